"""The numbers of epochs for worker processes, which know neither each other nor how often others were started."""

from __future__ import annotations

import fcntl
import os
from struct import Struct
from typing import Any

from tarkit.streams.files import Descriptor
from tarkit.streams.tempfile import TemporaryFile

_RECORD = Struct("<4q")  # group, time, epoch (or -1), epochs of one iteration
_SET = -2  # in place of a group: the next epoch is set
_MASK = (1 << 63) - 1


class EpochLog:
    """A file that all copies of a dataset share, in this process and in workers, with a record for each iteration.

    Workers that a data loader starts together have a number in common, their group. Each of them appends its group and
    how often it has iterated. The first record of a pair begins an epoch, and the others with the same pair belong to
    it; appending is atomic, so all processes see the same order, and so the same epochs, without a lock. Workers that
    live for many epochs and workers that are started for each are counted alike.
    """

    def __init__(self, epoch: int = 0) -> None:
        """`epoch` is the number of the first."""
        self._file: Descriptor = TemporaryFile()
        flags = fcntl.fcntl(self._file.fd, fcntl.F_GETFL)
        fcntl.fcntl(self._file.fd, fcntl.F_SETFL, flags | os.O_APPEND)
        if epoch:
            self.set_next(epoch)

    def set_next(self, epoch: int) -> None:
        """Set the number of the epoch that begins next, in any process."""
        self._append(_SET, 0, epoch, 0)

    def begin(self, group: int, time: int, epochs: int, epoch: int | None = None) -> int:
        """Return the number of the epoch of an iteration.

        Args:
            group: the number that the workers have in common; -1 outside of workers.
            time: how often this process has iterated.
            epochs: how many epochs the iteration has.
            epoch: the number, if it is known because a position was loaded.
        """
        pair = (group & _MASK if group >= 0 else -1), time
        self._append(*pair, -1 if epoch is None else epoch, epochs)
        return self._read()[0][pair]

    @property
    def next(self) -> int:
        """The number of the epoch that begins next."""
        return self._read()[1]

    def _append(self, *record: int) -> None:
        os.write(self._file.fd, _RECORD.pack(*record))

    def _read(self) -> tuple[dict[tuple[int, int], int], int]:
        """Return the number of the epoch of each iteration, and of the next one."""
        data = os.pread(self._file.fd, os.fstat(self._file.fd).st_size, 0)
        found: dict[tuple[int, int], int] = {}
        following = 0
        for group, time, epoch, epochs in _RECORD.iter_unpack(data):
            if group == _SET:
                following = epoch
            elif (group, time) not in found:
                found[group, time] = epoch if epoch >= 0 else following
                following = found[group, time] + epochs
        return found, following

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
