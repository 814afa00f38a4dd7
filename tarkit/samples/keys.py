"""Keys from a file: one a line, or a column of a table."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace

from tarkit.errors import TarkitError, show
from tarkit.samples.select import KeyList
from tarkit.tables.reader import CELL_LIMIT
from tarkit.tables.recipe import MalformedRow, without_bom, without_end
from tarkit.tables.tsv import parse_tsv

KEY_COLUMN = "__key__"

_OTHER = (".json", ".yaml", ".yml", ".parquet")
_MAGICS = (b"PAR1", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"\x04\x22\x4d\x18", b"BZh9")


def read_keys(spec: str, require_all: bool = False) -> KeyList:
    """The keys in FILE[:COLUMN]: one a line, or a column of a TSV, CSV (by its suffix) or JSON-lines table.

    Raises TarkitError for a file that cannot be read, has no such column or no key.
    """
    name, colon, column = spec, "", ""
    if not os.path.exists(spec):
        name, colon, column = spec.rpartition(":")
        if not colon:
            name = spec
    _refuse(name)
    try:
        with open(name, "rb") as file:
            lines = list(without_bom(file))
    except OSError as error:
        raise TarkitError(f"{name}: {error.strerror}") from error
    keys = _column(name, lines, column) if colon else [key for line in lines if (key := without_end(line))]
    if not keys:
        raise TarkitError(f"{name}: no key in it")
    return KeyList(spec, frozenset(keys), require_all)


def _refuse(name: str) -> None:
    """Raises TarkitError for a table of a kind whose lines are no keys."""
    suffix = os.path.splitext(name)[1].lower()
    try:
        with open(name, "rb") as file:
            head = file.read(4)
    except OSError:
        return  # whoever opens it says why
    if suffix in _OTHER or head in _MAGICS or head[:2] == b"\x1f\x8b":
        raise TarkitError(
            f"{name}: keys are read from lists, TSV, CSV and JSON lines, not from this",
            "tarkit tsv writes those; decompress what is compressed",
        )


def read_table_keys(spec: str) -> KeyList:
    """The keys of a table: FILE:COLUMN as for `read_keys`, else column `__key__` if FILE has it, else its lines."""
    if os.path.exists(spec) and _has_keys(spec):
        return replace(read_keys(f"{spec}:{KEY_COLUMN}"), name=spec)
    return read_keys(spec)


def _has_keys(path: str) -> bool:
    with open(path, "rb") as file:
        first = without_end(next(without_bom(file), b""))
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".jsonl", ".ndjson"):
        return True
    if suffix == ".csv":
        return KEY_COLUMN in next(csv.reader([first.decode("utf-8", "surrogateescape")]), [])
    return KEY_COLUMN.encode() in first.split(b"\t")


def _column(name: str, lines: list[bytes], column: str) -> list[bytes]:
    suffix = os.path.splitext(name)[1].lower()
    rows: list[list[bytes | None]]
    if suffix in (".jsonl", ".ndjson"):
        return _values(name, lines, column)
    try:
        if suffix == ".csv":
            csv.field_size_limit(CELL_LIMIT)
            text = (line.decode("utf-8", "surrogateescape") for line in lines)
            rows = [[cell.encode("utf-8", "surrogateescape") for cell in row] for row in csv.reader(text, strict=True)]
        else:
            rows = [parse_tsv(without_end(line)) for line in lines]
    except (MalformedRow, csv.Error) as error:
        raise TarkitError(f"{name}: {error}") from None
    wanted = column.encode("utf-8", "surrogateescape")
    if not rows or wanted not in rows[0]:
        raise TarkitError(f"{name}: no column {show(column)}")
    place = rows[0].index(wanted)
    return [key for row in rows[1:] if len(row) > place and (key := row[place])]


def _values(name: str, lines: list[bytes], column: str) -> list[bytes]:
    """What the objects of a JSON-lines file have under `column`, those that have it; text as such, else as JSON."""
    keys = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = json.loads(line)[column]
                if value is not None:
                    text = value if isinstance(value, str) else json.dumps(value)
                    keys.append(text.encode("utf-8", "surrogateescape"))
            except KeyError:
                continue
            except (ValueError, TypeError, RecursionError):
                raise TarkitError(f"{name}:{number}: no JSON object") from None
    return keys
