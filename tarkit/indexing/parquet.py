"""The index of a shard as a Parquet file, by pyarrow: the columns of the TSV one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tarkit.errors import MissingLibrary, show
from tarkit.export.parquet import PyarrowFile
from tarkit.indexing.scan import COLUMNS, Listed, NoIndex, Row, grouped

GROUP = 1 << 16  # rows of a row group

_ABOUT = b"tarkit.index"


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingLibrary("Parquet", "pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet


class _Gathered(PyarrowFile):
    """What pyarrow wants of a file, with what it has written so far."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        super().__init__(self._pieces.append)

    def take(self) -> bytes:
        """What was written since the last time."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


class Parquet:
    """A row for each field; the file's metadata have the shard's name and size."""

    def __init__(self, shard: str, size: int) -> None:
        self._arrow, parquet = _library()
        about = {_ABOUT: b"1", b"tarkit.shard": os.fsencode(os.path.basename(shard)), b"tarkit.size": b"%d" % size}
        types = [self._arrow.string()] * 2 + [self._arrow.int64()] * 3
        self._schema = self._arrow.schema(list(zip(map(bytes.decode, COLUMNS), types, strict=True)), metadata=about)
        self._file = _Gathered()
        self._writer = parquet.ParquetWriter(self._file, self._schema, compression="snappy")
        self._rows: list[tuple[str, str, int, int, int]] = []

    def sample(self, key: bytes, fields: Sequence[Listed]) -> bytes:
        """What is complete of the file."""
        cut = len(key) + 1
        for name, offset, size, start in fields:
            try:
                self._rows.append((key.decode(), name[cut:].decode(), offset, size, start))
            except UnicodeDecodeError:
                raise ValueError(f"the name {show(name)} is no UTF-8") from None
        if len(self._rows) >= GROUP:
            self._flush()
        return self._file.take()

    def head(self, samples: int) -> bytes:
        """Nothing: the file begins with its first row."""
        return b""

    def tail(self, end: int | None) -> bytes:
        """The last rows and the foot."""
        if self._rows:
            self._flush()
        self._writer.close()
        return self._file.take()

    def _flush(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows = []


def read_parquet(data: bytes) -> list[Row]:
    """The samples of the file. Raises NoIndex."""
    arrow, parquet = _library()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowException, OSError):
        raise NoIndex("no Parquet file") from None
    if _ABOUT not in (table.schema.metadata or {}):
        raise NoIndex("a Parquet file of something else")
    keys, fields, offsets, sizes, starts = (table.column(name.decode()).to_pylist() for name in COLUMNS)
    listed = [
        Listed(f"{key}.{field}".encode(), offset, size, start)
        for key, field, offset, size, start in zip(keys, fields, offsets, sizes, starts, strict=True)
    ]
    return grouped(listed)
