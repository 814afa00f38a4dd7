"""Input files: any number of them, with a bounded number of open descriptors."""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable
from weakref import ref

from tarkit.errors import TarkitError

SPARE = 16  # descriptors besides those of inputs and outputs
MOST = 1 << 14  # inputs open at once, also if the system allows more

_latest: deque[ref[File]] = deque()  # the files that were opened last, in that order


class Descriptor:
    """An open descriptor, closed with the last reference to it; 0, 1 and 2 stay open."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """Close it now. At the end of Python `os` may be gone already, so that its function is kept here."""
        if self.fd > 2:
            close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class File:
    """A regular file that can be read at any time, from any thread.

    A file with a `path` is closed when too many others were opened after it (see `most_files`), and opened again when
    it is needed. It must still be the same file then, unchanged.

    Keep a reference to `opened`, or to the result of `open`, while you use its descriptor, since another thread may
    close the file:

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
        """Open the file again. Raises TarkitError if it was replaced or changed."""
        assert self.path is not None
        opened = Descriptor(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))  # it may be a FIFO now
        self._compare(opened)
        self.opened = opened
        _close_all_but_latest(self)
        return opened

    def close(self) -> None:
        """Close the file until it is needed again."""
        self.opened = None

    def unchanged(self) -> None:
        """Raise TarkitError if the file was replaced or written to since it was first opened."""
        self._compare(self.opened or self.open())

    def _compare(self, opened: Descriptor) -> None:
        if _identity(os.fstat(opened.fd)) != self._identity:
            raise changed(self.name)


def changed(name: str) -> TarkitError:
    """Return the error for a file whose bytes are not those that were there before."""
    return TarkitError(f"{name}: the file was changed while it was read", "read a copy that no process writes to")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _close_all_but_latest(file: File) -> None:
    """Note that a file was opened, and close those beyond the limit that were opened longest ago."""
    _latest.append(ref(file))
    most = most_files()
    while len(_latest) > most:
        before = _latest.popleft()()
        if before is not None:
            before.close()


def most_files() -> int:
    """Return how many inputs may be open at once: half of the descriptors that the system allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(max(soft // 2, 1), MOST)


def allow_files(count: int) -> int:
    """Raise the limit of open files for `count` inputs and as many outputs; return how many outputs may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * (min(count, MOST) + SPARE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most_files() - SPARE, 0)
