"""Temporary files without a name, which the system removes when the process ends, however it ends; a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from tarkit.signals import uninterrupted
from tarkit.streams.copy import write_all
from tarkit.streams.files import Descriptor

FALLBACK = "/var/tmp"  # /tmp may be in memory


def temporary_directory(directory: str | None = None) -> AbstractContextManager[str]:
    """Return a new directory, which is removed with its files when the block ends."""
    from tempfile import TemporaryDirectory

    return TemporaryDirectory(prefix="tarkit-", dir=directory or FALLBACK)


class TemporaryFile(Descriptor):
    """A new file without a name in the directory `directory`; removed with the last reference to it."""

    def __init__(self, directory: str | None = None) -> None:
        self.name = f"temporary space in {directory or FALLBACK}"
        super().__init__(-1)
        self.fd = _unnamed(directory or FALLBACK)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at the current position."""
        try:
            write_all(self.fd, data)
        except OSError as error:
            error.filename = self.name
            raise

    def reserve(self, size: int) -> None:
        """Allocate the first `size` bytes, so that writing them cannot fail when the disk is full later."""
        self.write(b"\xff" * size)
        os.lseek(self.fd, 0, os.SEEK_SET)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop)."""
        return os.pread(self.fd, stop - start, start)


Opened = TypeVar("Opened")


def open_by_path(directory: str, open_: Callable[[str], Opened]) -> Opened:
    """Return what a function opens at the path of a new file in a directory; then the file has no name any more."""
    from tempfile import mkstemp

    with uninterrupted():  # a signal between the calls would leave the file
        try:
            fd, path = mkstemp(prefix="tarkit-", dir=directory)
        except OSError as error:
            error.filename = directory  # in place of the random name
            raise
        try:
            os.close(fd)
            return open_(path)
        finally:
            os.unlink(path)


def _unnamed(directory: str) -> int:
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed:
        try:
            return os.open(directory, os.O_RDWR | os.O_CLOEXEC | unnamed, 0o600)
        except OSError:
            pass  # not every file system has these; a directory without permission fails again below
    return open_by_path(directory, lambda path: os.open(path, os.O_RDWR | os.O_CLOEXEC))
