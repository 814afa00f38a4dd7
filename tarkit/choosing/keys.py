"""Keys from a file: one per line, or a column of a table."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tarkit.choosing.key_list import KeyList
from tarkit.errors import TarkitError, show, unreadable
from tarkit.spill.sets import set_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, split_column
from tarkit.tables.parquet import load_pyarrow
from tarkit.tables.reader import Format, read_cells, read_records
from tarkit.tables.recipe import MalformedRow, without_bom, without_end

KEY_COLUMN = "__key__"

_OTHER = (".json", ".yaml", ".yml")
_MAGICS = (b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"\x04\x22\x4d\x18", b"BZh9")
_PARQUET = b"PAR1"


def read_keys(
    spec: str, require_all: bool = False, options: StoreOptions | None = None, tmpdir: str | None = None
) -> KeyList:
    """Return the keys in FILE[:COLUMN]: one per line, or a column of a table, in TSV, CSV, JSON lines or Parquet.

    Without COLUMN the keys of a table are in its column `__key__`. A file of lines without such a header has a key in
    each line. More than `spill.sets.HELD` keys are stored in a temporary file in `tmpdir`.

    Raises:
        TarkitError: FILE cannot be read, has no such column or no key.
    """
    word, column = split_column(spec)
    name = file_label(word)
    try:
        with open_file(word, options) as file:
            head = file.peek(4)[:4]
            if head == _PARQUET or name.lower().endswith(".parquet"):
                keys = _from_parquet(name, file, column or KEY_COLUMN)
            else:
                _refuse(name, head)
                keys = _from_lines(name, file, column)
            wanted = set_of(keys, tmpdir)
    except OSError as error:
        raise unreadable(name, error) from error
    if not wanted:
        raise TarkitError(f"{name}: no key found")
    return KeyList(file_label(spec), wanted, require_all)


def _refuse(name: str, head: bytes) -> None:
    """Raise TarkitError for a file whose lines cannot be keys; `head` is its beginning."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix in _OTHER or head in _MAGICS or head[:2] == b"\x1f\x8b":
        raise TarkitError(
            f"{name}: not a list of keys, TSV, CSV, JSON lines or Parquet",
            "tarkit tsv writes these formats; decompress a compressed file first",
        )


def _from_parquet(name: str, file: io.BufferedReader, column: str) -> Iterator[bytes]:
    arrow, parquet = load_pyarrow(f"{name}: a table of keys")
    if not file.seekable():
        raise TarkitError(f"{name}: a Parquet file is read from its end, and this is a stream", "write it to a file")
    try:
        table = parquet.ParquetFile(file)
        schema = table.schema_arrow
        if column not in schema.names:
            raise TarkitError(f"{name}: no column {show(column)}")
        kind = schema.field(column).type
        kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
        if not _has_keys_of(arrow.types, kind):
            raise TarkitError(f"{name}: the column {show(column)} has {kind}, and keys are text")
        for batch in table.iter_batches(columns=[column], use_threads=False):
            for value in filter(None, batch.column(batch.schema.names.index(column)).to_pylist()):
                yield value if isinstance(value, bytes) else str(value).encode()
    except arrow.ArrowException as error:
        raise TarkitError(f"{name}: damaged, or not a Parquet file: {error}") from None


def _has_keys_of(types: Any, kind: Any) -> bool:
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_null)
    return any(test(kind) for test in (*tests, types.is_binary, types.is_large_binary))


def _from_lines(name: str, lines: Iterable[bytes], column: str) -> Iterator[bytes]:
    format, remaining = _format(name), iter(without_bom(lines))
    if not column:
        first = next(remaining, b"")
        remaining = chain((first,), remaining) if first else remaining
        column = KEY_COLUMN if _heads_keys(first, format) else ""
    return filter(None, _column(name, format, remaining, column) if column else map(without_end, remaining))


def _format(path: str) -> Format:
    suffix = os.path.splitext(path)[1].lower()
    return "jsonl" if suffix in (".jsonl", ".ndjson") else "csv" if suffix == ".csv" else "tsv"


def _heads_keys(line: bytes, format: Format) -> bool:
    """Return whether the first line of a file says that it is a table with keys."""
    if format == "jsonl":
        return line.lstrip().startswith(b"{")
    try:
        return any(KEY_COLUMN.encode() in cells for _, cells in read_cells([line], format))
    except MalformedRow:
        return False


def _column(name: str, format: Format, lines: Iterator[bytes], column: str) -> Iterator[bytes | None]:
    """Yield the cells of a column; None for those that are not there."""
    try:
        if format == "jsonl":
            for row in read_records(lines, format):
                yield from (value for head, value in zip(row.names, row.values, strict=True) if head == column)
            return
        rows = read_cells(lines, format)
        _, header = next(rows, (0, []))
        if (head := column.encode("utf-8", "surrogateescape")) not in header:
            raise TarkitError(f"{name}: no column {show(column)}")
        place = header.index(head)
        for _, cells in rows:
            yield cells[place] if len(cells) > place else None
    except MalformedRow as error:
        raise TarkitError(f"{name}:{error.line}: {error}") from None
