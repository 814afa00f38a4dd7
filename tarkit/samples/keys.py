"""Keys from a file: one per line, or a column of a table."""

from __future__ import annotations

import os
from dataclasses import replace

from tarkit.errors import TarkitError, show, unreadable
from tarkit.samples.select import KeyList
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, split_column
from tarkit.tables.reader import Format, read_cells, read_records
from tarkit.tables.recipe import MalformedRow, without_bom, without_end

KEY_COLUMN = "__key__"

_OTHER = (".json", ".yaml", ".yml", ".parquet")
_MAGICS = (b"PAR1", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"\x04\x22\x4d\x18", b"BZh9")


def read_keys(spec: str, require_all: bool = False, options: StoreOptions | None = None) -> KeyList:
    """Return the keys in FILE[:COLUMN]: one per line, or a column of a TSV, CSV or JSON-lines table (by its suffix).

    Raises:
        TarkitError: FILE cannot be read, has no such column or no key.
    """
    word, column = split_column(spec)
    name = file_label(word)
    try:
        with open_file(word, options) as file:
            _refuse(name, file.peek(4)[:4])
            lines = list(without_bom(file))
    except OSError as error:
        raise unreadable(name, error) from error
    keys = _column(name, lines, column) if column else [key for line in lines if (key := without_end(line))]
    if not keys:
        raise TarkitError(f"{name}: no key found")
    return KeyList(file_label(spec), frozenset(keys), require_all)


def _refuse(name: str, head: bytes) -> None:
    """Raise TarkitError for a file whose lines cannot be keys; `head` is its beginning."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix in _OTHER or head in _MAGICS or head[:2] == b"\x1f\x8b":
        raise TarkitError(
            f"{name}: not a list of keys, TSV, CSV or JSON lines",
            "tarkit tsv writes these formats; decompress a compressed file first",
        )


def read_table_keys(spec: str, options: StoreOptions | None = None) -> KeyList:
    """Return the keys of FILE:COLUMN as `read_keys` does; of FILE alone the column `__key__`, or without it the lines.

    Raises:
        TarkitError: as `read_keys` does.
    """
    if not split_column(spec)[1] and _has_keys(spec, options):
        return replace(read_keys(f"{spec}:{KEY_COLUMN}", options=options), name=file_label(spec))
    return read_keys(spec, options=options)


def _format(path: str) -> Format:
    suffix = os.path.splitext(path)[1].lower()
    return "jsonl" if suffix in (".jsonl", ".ndjson") else "csv" if suffix == ".csv" else "tsv"


def _has_keys(path: str, options: StoreOptions | None) -> bool:
    format = _format(path)
    if format == "jsonl":
        return True
    try:
        with open_file(path, options) as file:
            first = next(file, b"")
    except OSError:
        return False  # reported when it is read
    try:
        return any(KEY_COLUMN.encode() in cells for _, cells in read_cells([first], format))
    except MalformedRow:
        return False


def _column(name: str, lines: list[bytes], column: str) -> list[bytes]:
    """Return the cells of a column that are not empty; objects of JSON lines may lack it."""
    format = _format(name)
    try:
        if format == "jsonl":
            rows = read_records(lines, format)
            values = [
                value for row in rows for head, value in zip(row.names, row.values, strict=True) if head == column
            ]
            return [value for value in values if value is not None]
        header, *cells = (cells for _, cells in read_cells(lines, format))
        place = header.index(column.encode("utf-8", "surrogateescape"))
    except MalformedRow as error:
        raise TarkitError(f"{name}:{error.line}: {error}") from None
    except ValueError:
        raise TarkitError(f"{name}: no column {show(column)}") from None
    return [key for row in cells if len(row) > place and (key := row[place])]
