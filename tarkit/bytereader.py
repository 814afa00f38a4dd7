"""Bytes that are read in order: inputs, decoders, objects of stores, archives that are generated; a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

MOST = 1 << 20  # bytes that one call of `read` returns


class ByteReader(io.RawIOBase):
    """A raw stream of `io`. Subclasses have `readinto`, which gets a memoryview.

    `close` may raise an error if the bytes turn out not to be complete. `fileno` raises `io.UnsupportedOperation`
    unless the next bytes can be read from the descriptor directly.
    """

    _buffer = memoryview(b"")

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`, and return how many bytes; 0 at the end."""
        raise NotImplementedError

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, MOST of them, and b"" at the end; all that follow for -1."""
        if size < 0:
            return self.readall()
        size = min(size, MOST)
        if len(self._buffer) < size:
            self._buffer = memoryview(bytearray(size))
        return bytes(self._buffer[: self.readinto(self._buffer[:size])])

    def readable(self) -> bool:
        """Return True."""
        return True

    def __del__(self) -> None:
        """Do nothing: a copy (fork) of the process must not end the reader of the other one."""


class SeekableFile(io.RawIOBase):
    """A file of `size` bytes, for a library that reads it in any order; `read_range` returns bytes [start, stop)."""

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        self._read_range, self._size, self._position = read_range, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, view: Any, /) -> int:
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._position + size, self._size)
        data = self._read_range(self._position, stop) if self._position < stop else b""
        self._position += len(data)
        return data
