"""The library of Parquet files, and file objects for it."""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import load_library
from tarkit.streams.source import WindowSource
from tarkit.threads import mark_native_threads


def load_pyarrow(purpose: str) -> tuple[Any, Any]:
    """Return the libraries pyarrow and pyarrow.parquet, which `purpose` needs. Raises MissingLibrary."""
    pyarrow = load_library("pyarrow", purpose, "pyarrow", "parquet")
    mark_native_threads()
    return pyarrow, load_library("pyarrow.parquet", purpose, "pyarrow", "parquet")


class PyarrowFile(io.RawIOBase):
    """A file object for pyarrow, whose bytes are taken out while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._position

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class SourceFile(io.RawIOBase):
    """A file object for pyarrow that reads a source, such as a file or an object of a store."""

    def __init__(self, source: WindowSource) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size or 0}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._source.size or 0
        stop = end if size is None or size < 0 else min(self._position + size, end)
        data = self._source.read(self._position, stop) if self._position < stop else b""
        self._position += len(data)
        return data
