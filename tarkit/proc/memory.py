"""The directories of small samples in memory, where the system has a file system there."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable

from tarkit.errors import TarkitError, spell_open
from tarkit.proc.workdir import WorkDirectory, remove_tree

MEMORY = "/dev/shm"
"""The file system in memory that Linux has."""

LARGEST_IN_MEMORY = 1 << 20  # bytes of a sample; the files of larger ones are copied by the system on disk
ROOM, FILES = 1 << 31, 1 << 20  # bytes and files that memory must have room for, and half of it must be free
SPARE, SPARE_FILES = 1 << 30, 1 << 18  # a command that leaves less is ended: the next write could find no space
WATCH = 50.0  # milliseconds between two looks at the memory; meanwhile a machine writes less than ROOM - SPARE
_OURS = ".tarkit-memory"


class MemoryDirectory(WorkDirectory):
    """A directory in memory. It is locked, so that what a killed process has left there can be told from it."""

    def __init__(self, place: str) -> None:
        remove_abandoned(place)
        super().__init__(place, name=_OURS)
        self._lock = -1
        try:
            self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(self.path)  # raises if another process took it for abandoned before it was locked
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the directory."""
        super().close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(place: str) -> None:
    """Remove the directories in memory of this user's processes that were killed. Those on disk stay."""
    for name in os.listdir(place):
        if not name.startswith(_OURS):
            continue
        path = os.path.join(place, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid() and os.path.samestat(os.fstat(fd), os.lstat(path)):
                remove_tree(os.fsencode(path))  # nobody else can put links into it
        except OSError:
            pass  # its process lives
        finally:
            os.close(fd)


class WorkDirectories:
    """Where the directories of the samples of a run are: in memory while they are small against it, else on disk.

    Attributes:
        disk: the directory on disk.

    Args:
        parent: where it is made.
        keep: leave it.
        memory: a file system in memory; None: use none. It is left out where programs cannot be started in it.
    """

    def __init__(self, parent: str | None = None, keep: bool = False, memory: str | None = None) -> None:
        self.disk = WorkDirectory(parent, keep)
        self._memory: MemoryDirectory | None = None
        try:
            if memory is not None and not keep and not os.statvfs(memory).f_flag & os.ST_NOEXEC:
                self._memory = MemoryDirectory(memory)
        except OSError:
            pass  # the system has none

    def choose(self, size: int) -> WorkDirectory:
        """Return where the directory of a sample of `size` bytes is made."""
        if self._memory is None or size > LARGEST_IN_MEMORY:
            return self.disk
        free, whole, files = free_space(self._memory.path)
        return self._memory if free >= max(ROOM, whole // 2) and files >= FILES else self.disk

    def watch(self, directory: WorkDirectory) -> Callable[[], None] | None:
        """Return a function to be called while a command runs in a directory, and at its end; None on disk.

        It raises TarkitError when little memory is left. So a command never finds none, which it could ignore.
        """
        return None if directory is self.disk else self._check

    def _check(self) -> None:
        assert self._memory is not None
        free, _, files = free_space(self._memory.path)
        if free < SPARE or files < SPARE_FILES:
            where = os.path.dirname(self._memory.path)
            raise TarkitError(
                f"{where} is nearly full, so that the command was ended",
                f"{spell_open('tmpdir', 'DIR')} names a directory with more space for its files",
            )

    def close(self) -> None:
        """Remove the directories."""
        self.disk.close()
        if self._memory is not None:
            self._memory.close()


def free_space(path: str) -> tuple[int, int, int]:
    """Return the bytes of a file system that are free, all of its bytes, and the number of files that can be made."""
    system = os.statvfs(path)
    files = system.f_favail if system.f_files else sys.maxsize  # 0: not limited
    return system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize, files
