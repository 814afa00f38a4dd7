"""The numbers of epochs for worker processes, which know neither each other nor how often others were started."""

from __future__ import annotations

import fcntl
import os
from struct import Struct
from typing import Any, NamedTuple

from tarkit.streams.files import Descriptor
from tarkit.streams.tempfile import TemporaryFile

_RECORD = Struct("<6q")  # owner, group, time, worker, epoch (or -1), epochs of one iteration
_SET = -2  # in place of a group: the next epoch of the owner is set
_MASK = (1 << 63) - 1


class Iteration(NamedTuple):
    """One of a dataset by one worker.

    Attributes:
        owner: the process that started the worker, or that iterates itself: the epochs of each are counted apart, so
            that those of nodes on one machine, which may share the file, are the same.
        group: the number that workers which are started together have in common; -1 outside of workers.
        time: how often this process has iterated.
        worker: the number of the worker; -1 outside of workers.
    """

    owner: int
    group: int
    time: int
    worker: int


class EpochLog:
    """A file that all copies of a dataset share, in this process and in workers, with a record for each iteration.

    Each worker appends its iteration. The first record of an owner, group and time begins an epoch, and those of other
    workers belong to it; a worker that is there already begins the next one, as of a loader whose seed is set anew for
    each epoch. Appending is atomic, so all processes see the same order, and so the same epochs, without a lock.
    Workers that live for many epochs and workers that are started for each are counted alike.
    """

    def __init__(self, epoch: int = 0) -> None:
        """`epoch` is the number of the first."""
        self._file: Descriptor = TemporaryFile()
        flags = fcntl.fcntl(self._file.fd, fcntl.F_GETFL)
        fcntl.fcntl(self._file.fd, fcntl.F_SETFL, flags | os.O_APPEND)
        if epoch:
            self.set_next(epoch)

    def set_next(self, epoch: int) -> None:
        """Set the number of the epoch that begins next: that of this process, and of those that have begun none."""
        self._append(os.getpid(), _SET, 0, 0, epoch, 0)

    def begin(self, iteration: Iteration, epochs: int, epoch: int | None = None) -> int:
        """Return the number of the epoch of an iteration.

        Args:
            iteration: that of this worker.
            epochs: how many epochs it has.
            epoch: the number, if it is known because a position was loaded.
        """
        group = iteration.group & _MASK if iteration.group >= 0 else -1
        iteration = iteration._replace(group=group)
        self._append(*iteration, -1 if epoch is None else epoch, epochs)
        return self._read(os.getpid())[0][iteration]

    @property
    def next(self) -> int:
        """The number of the epoch that begins next in this process, or in workers that it starts."""
        return self._read(os.getpid())[1]

    def _append(self, *record: int) -> None:
        os.write(self._file.fd, _RECORD.pack(*record))

    def _read(self, process: int) -> tuple[dict[Iteration, int], int]:
        """Return the number of the epoch of the latest of each iteration, and of the next one of a process."""
        data = os.pread(self._file.fd, os.fstat(self._file.fd).st_size, 0)
        found: dict[Iteration, int] = {}
        begun: dict[tuple[int, int, int], tuple[int, set[int]]] = {}  # the epoch, and the workers that are in it
        following: dict[int, int] = {}
        first = 0  # the next epoch of a process that has begun none
        for owner, group, time, worker, epoch, epochs in _RECORD.iter_unpack(data):
            if group == _SET:
                following[owner] = first = epoch
                continue
            number, workers = begun.get((owner, group, time), (0, {worker}))
            if worker in workers:
                number = epoch if epoch >= 0 else following.get(owner, first)
                following[owner] = number + epochs
                workers = set()
            begun[owner, group, time] = number, workers | {worker}
            found[Iteration(owner, group, time, worker)] = number
        return found, following.get(process, first)

    def __reduce__(self) -> tuple[object, ...]:
        """Share the file with a process that is being started; any other copy gets a file of its own."""
        from multiprocessing.context import get_spawning_popen

        if get_spawning_popen() is None:
            return EpochLog, (self.next,)
        from multiprocessing.reduction import DupFd

        return _share, (DupFd(self._file.fd),)


def _share(descriptor: Any) -> EpochLog:
    """Return the log in the file of another process."""
    log = EpochLog.__new__(EpochLog)
    log._file = Descriptor(descriptor.detach())
    return log
