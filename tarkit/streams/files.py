"""Files that are read: as many as there are, of which few are open at once."""

from __future__ import annotations

import os
import resource
from collections import deque
from weakref import ref

from tarkit.errors import TarkitError

SPARE = 16  # descriptors besides those of inputs and outputs
MOST = 1 << 14  # files that are open at once, also where the system allows more

_latest: deque[ref[File]] = deque()  # the files that were opened last, in order


class Descriptor:
    """An open descriptor, which is closed when nobody refers to it; 0, 1 and 2 stay open."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Close it now."""
        if self.fd > 2:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class File:
    """A regular file that is read at any time, from any thread.

    With a `path`, it is closed when half of all descriptors that the system allows belong to files that were opened
    later, and opened again when it is wanted. It must be the same file then, to which nobody has written.

    Whoever reads keeps `opened` or what `open` returns for as long as it uses the descriptor, since another thread may
    close the file meanwhile:

        held = file.opened or file.open()
        os.pread(held.fd, ...)
    """

    def __init__(self, opened: Descriptor, name: str, path: str | None = None) -> None:
        self.name = name
        self.path = path
        self.opened: Descriptor | None = opened
        status = os.fstat(opened.fd)
        self.size = status.st_size
        self.mtime = status.st_mtime_ns
        self._identity = _identity(status)
        if path is not None:
            _close_all_but_latest(self)

    def open(self) -> Descriptor:
        """Open the file again. Raises TarkitError unless it is what it was."""
        assert self.path is not None
        opened = Descriptor(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))  # it may be a FIFO now
        self._compare(opened)
        self.opened = opened
        _close_all_but_latest(self)
        return opened

    def close(self) -> None:
        """Close the file until it is wanted again."""
        self.opened = None

    def unchanged(self) -> None:
        """Raise TarkitError if somebody replaced the file or wrote to it since it was opened first."""
        self._compare(self.opened or self.open())

    def _compare(self, opened: Descriptor) -> None:
        if _identity(os.fstat(opened.fd)) != self._identity:
            raise TarkitError(
                f"{self.name}: the file was changed while it was read", "make a copy that nobody writes to"
            )


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _close_all_but_latest(file: File) -> None:
    """Note that a file was opened, and close those that were opened long before."""
    _latest.append(ref(file))
    most = most_files()
    while len(_latest) > most:
        before = _latest.popleft()()
        if before is not None:
            before.close()


def most_files() -> int:
    """How many inputs may be open at once: half of what the system allows, the other half is for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(max(soft // 2, 1), MOST)


def allow_files(count: int) -> int:
    """Let that many inputs be open at once, as far as the system does; and as many outputs, which is the result."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * (min(count, MOST) + SPARE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most_files() - SPARE, 0)
