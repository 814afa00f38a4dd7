"""Temporary files, which have no name and so go with the process whatever ends it."""

from __future__ import annotations

import os
from typing import Protocol

from tarkit.streams.copy import write_all
from tarkit.streams.files import Descriptor

FALLBACK = "/var/tmp"  # /tmp may be memory


class CopySink(Protocol):
    """What ranges are sent to: a sink."""

    def copy(self, source: int, start: int, stop: int) -> None:
        """Write bytes [start, stop) of the file `source`."""


class TemporaryFile(Descriptor):
    """A new file without a name in `folder`, to write and to read again; gone when nobody refers to it."""

    def __init__(self, folder: str | None = None) -> None:
        self.name = f"temporary space in {folder or FALLBACK}"
        super().__init__(-1)
        self.fd = _unnamed(folder or FALLBACK)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data` where the file stands."""
        try:
            write_all(self.fd, data)
        except OSError as error:
            error.filename = self.name
            raise

    def reserve(self, size: int) -> None:
        """Have room for so many bytes from the start on, also when the disk is full later."""
        self.write(b"\xff" * size)
        os.lseek(self.fd, 0, os.SEEK_SET)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return os.pread(self.fd, stop - start, start)


class Overflow:
    """What memory does not hold of a stream, from `start` on."""

    def __init__(self, start: int, tmpdir: str | None) -> None:
        self.start = start
        self.file = TemporaryFile(tmpdir)

    def write(self, data: memoryview) -> None:
        """Append `data`."""
        self.file.write(data)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the stream."""
        return self.file.read(start - self.start, stop - self.start)

    def send(self, start: int, stop: int, sink: CopySink) -> None:
        """Write bytes [start, stop) of the stream to `sink`."""
        sink.copy(self.file.fd, start - self.start, stop - self.start)

    def close(self) -> None:
        """Give its room back."""
        self.file.close()


def _unnamed(folder: str) -> int:
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed:
        try:
            return os.open(folder, os.O_RDWR | os.O_CLOEXEC | unnamed, 0o600)
        except OSError:
            pass  # some file systems have none of these; others deny the folder, and say so below
    from tempfile import mkstemp

    try:
        fd, path = mkstemp(prefix="tarkit-", dir=folder)
    except OSError as error:
        error.filename = folder  # not a name that nobody knows
        raise
    os.unlink(path)
    return fd
