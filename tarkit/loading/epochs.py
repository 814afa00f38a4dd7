"""The numbers of epochs for worker processes, which do not share memory, and are started any number of times."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from tarkit.streams.files import Descriptor
from tarkit.streams.tempfile import TemporaryFile

_RECORD = Struct("<8q")  # the iteration, the setting, the epoch of a loaded position (or -1), epochs of the iteration
_SET = -2  # in place of a group: a setting of the epoch


class Setting(NamedTuple):
    """State of `set_epoch` in a process: how often it was called, and the epoch that begins after the latest call."""

    number: int
    epoch: int


class Iteration(NamedTuple):
    """One of a dataset by one process.

    Attributes:
        owner: the process that started the worker, or that iterates itself: the epochs of each are counted apart, so
            that those of nodes on one machine, which may share the file, are the same.
        group: what workers that are started together have in common, and others do not: the number of the worker's
            process among those of the owner, less the number of the worker; -1 outside of workers.
        workers: the number of workers of the group; 0 outside of workers.
        time: how often this process has iterated.
    """

    owner: int
    group: int
    workers: int
    time: int


class EpochLog:
    """A file that all copies of a dataset share, in this process and in workers, with a record for each iteration.

    The first record of an owner, group and time begins an epoch, and the other workers of the group join it. Appending
    is atomic, so all processes see the same order, and so the same epochs, without a lock. Workers that live for many
    epochs and workers that are started for each are counted alike.

    Epochs are counted from the latest setting that the process knew when it was started, so a worker that begins after
    its loader was left does not take an epoch that was set for the next one.
    """

    def __init__(self, epoch: int = 0) -> None:
        """`epoch` is the number of the first."""
        self._file: Descriptor = TemporaryFile()
        flags = fcntl.fcntl(self._file.fd, fcntl.F_GETFL)
        fcntl.fcntl(self._file.fd, fcntl.F_SETFL, flags | os.O_APPEND)
        self._setting = Setting(0, epoch)

    def set_next(self, epoch: int) -> None:
        """Set the number of the epoch that begins next, in this process and its workers."""
        self._setting = Setting(self._setting.number + 1, epoch)
        self._append(Iteration(os.getpid(), _SET, 0, 0), self._setting, -1, 0)  # for workers that are there already

    def begin(self, iteration: Iteration, epochs: int, loaded: int | None = None) -> int:
        """Return the number of the epoch that an iteration begins with.

        Args:
            iteration: that of this process.
            epochs: how many epochs it has.
            loaded: the epoch that it began with, if a position in it was loaded.
        """
        setting = self._setting if iteration.time == 1 or not iteration.workers else self._latest(iteration.owner)
        self._append(iteration, setting, -1 if loaded is None else loaded, epochs)
        return self._read(iteration)[0]

    def used_before(self, iteration: Iteration) -> bool:
        """Return whether another iteration has begun since the latest setting that this process knows."""
        for *place, number, _, _, _ in self._records():
            other = Iteration(*place)
            same = other.time == iteration.time and abs(other.group - iteration.group) < iteration.workers
            if other.owner == iteration.owner and number == self._setting.number and other.group != _SET and not same:
                return True
        return False

    @property
    def next(self) -> int:
        """The number of the epoch that begins next in this process, or in workers that it starts."""
        number, epoch = self._setting
        return self._read()[1].get((os.getpid(), number), epoch)

    def _latest(self, owner: int) -> Setting:
        """Return the latest setting by the owner of a worker that has begun before."""
        settings = [self._setting]
        for process, group, _, _, *setting, _, _ in self._records():
            if process == owner and group == _SET:
                settings.append(Setting(*setting))
        return max(settings)

    def _append(self, iteration: Iteration, setting: Setting, loaded: int, epochs: int) -> None:
        os.write(self._file.fd, _RECORD.pack(*iteration, *setting, loaded, epochs))

    def _records(self) -> Iterator[tuple[int, ...]]:
        return _RECORD.iter_unpack(os.pread(self._file.fd, os.fstat(self._file.fd).st_size, 0))

    def _read(self, wanted: Iteration | None = None) -> tuple[int, dict[tuple[int, int], int]]:
        """Return the epoch of an iteration, and the next epoch for each owner and number of a setting."""
        begun: dict[tuple[int, int, int], dict[int, int]] = {}  # epochs by group, of those that may be one group
        following: dict[tuple[int, int], int] = {}
        epoch = 0
        for *place, number, first, loaded, epochs in self._records():
            iteration = Iteration(*place)
            owner, group, workers, time = iteration
            if group == _SET:
                continue
            by_group = begun.setdefault((owner, workers, time), {})
            # other processes may have been started between two workers, but the next group is `workers` away
            joined = next((other for other in by_group if abs(group - other) < workers), group)
            if joined not in by_group:
                by_group[joined] = loaded if loaded >= 0 else following.get((owner, number), first)
                following[owner, number] = by_group[joined] + epochs
            if iteration == wanted:
                epoch = by_group[joined]
        return epoch, following

    def __reduce__(self) -> tuple[object, ...]:
        """Share the file with a process that is being started; any other copy gets a file of its own."""
        from multiprocessing.context import get_spawning_popen

        if get_spawning_popen() is None:
            return EpochLog, (self.next,)
        from multiprocessing.reduction import DupFd

        return _share, (DupFd(self._file.fd), self._setting)


def _share(descriptor: Any, setting: Setting) -> EpochLog:
    """Return the log in the file of another process."""
    log = EpochLog.__new__(EpochLog)
    log._file = Descriptor(descriptor.detach())
    log._setting = setting
    return log
