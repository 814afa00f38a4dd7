"""What pyarrow writes to, in place of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PyarrowFile:
    """A write-only file object for pyarrow."""

    closed = False

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write: Callable[[bytes], None] | None = write
        self._position = 0

    def give_up(self) -> None:
        """Discard further bytes: pyarrow completes its file even after an error, when the output is already closed."""
        self._write = None

    def write(self, data: Any) -> int:
        """Write bytes."""
        data = bytes(data)
        if self._write is not None:
            self._write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: bytes are not buffered."""

    def close(self) -> None:
        """Do nothing: the caller closes the output."""

    def seekable(self) -> bool:
        """Return False."""
        return False

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True
