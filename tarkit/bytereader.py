"""Bytes that are read in order: inputs, decoders, objects of stores, archives that are generated."""

from __future__ import annotations

import io
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
