"""Tables as bytes: TSV, CSV, JSON lines, JSON, YAML, Parquet.

Encoding of bytes: unchanged in TSV and CSV. In JSON, content that is UTF-8 is a string; other content is under
`@FIELD` as `base64:...`, a source that `create --format jsonl` reads back. Names that are not UTF-8 have surrogates
(`\\udce9`), as Python writes them. YAML has `!!binary`; a column of Parquet is binary if its first rows are not UTF-8.

A missing cell is `\\N` in TSV (as in PostgreSQL), empty in CSV, and null in the other formats.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import chain
from typing import Any

from tarkit.errors import TarkitError, load_library, show, spell
from tarkit.export.columns import MISSING, Column, Rows, TableFormat
from tarkit.tables.recipe import BOM
from tarkit.tables.tsv import ABSENT, escape_tsv

CHUNK = 1 << 18  # bytes that are written at once


def pieces(format: TableFormat, columns: Sequence[Column], blocks: Iterable[Rows], header: bool) -> Iterator[bytes]:
    """Yield the table as bytes, block by block of rows; `header` is for TSV and CSV."""
    if format in ("tsv", "csv") and header:
        blocks = chain([[[column.head.encode("utf-8", "surrogateescape") for column in columns]]], blocks)
    if format == "tsv":
        return _with_bom(_tsv(len(columns), blocks))
    rows = chain.from_iterable(blocks)
    if format == "csv":
        return _with_bom(_csv(columns, rows, header))
    if format == "parquet":
        from tarkit.export.parquet import parquet_pieces

        return parquet_pieces(columns, rows)
    return _yaml(columns, rows) if format == "yaml" else _json(columns, rows, as_lines=format == "jsonl")


def gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `parts` in chunks of CHUNK bytes or more."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def as_bytes(value: Any) -> bytes:
    """Return a cell as bytes: text as UTF-8, other values as JSON."""
    if type(value) is bytes:
        return value
    if type(value) is int:
        return b"%d" % value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _with_bom(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines; a BOM precedes a first line that begins with a BOM, since a reader removes one."""
    first = next(lines, None)
    if first is not None:
        yield (BOM if first.startswith(BOM) else b"") + first
        yield from lines


def _tsv(width: int, blocks: Iterable[Rows]) -> Iterator[bytes]:
    for block in blocks:
        together = _plain_lines(width, block) if len(block) > 1 else None
        if together is not None:
            yield together
            continue
        for row in block:
            cells = [cell if type(cell) is bytes else ABSENT if cell is MISSING else as_bytes(cell) for cell in row]
            line = b"\t".join(cells)
            if b"\\" in line or b"\n" in line or b"\r" in line or line.count(b"\t") != width - 1:
                line = b"\t".join([cell if cell is ABSENT else escape_tsv(cell) for cell in cells])
            yield line + b"\n"


def _plain_lines(width: int, block: Rows) -> bytes | None:
    """Return the lines of rows as `_tsv` does one by one, if no cell is missing or has a character to be escaped."""
    columns = [
        cells
        if set(map(type, cells)) == {bytes}
        else [MISSING if cell is MISSING else as_bytes(cell) for cell in cells]
        for cells in zip(*block, strict=True)
    ]
    if any(MISSING in cells for cells in columns):
        return None
    lines = b"\n".join(map(b"\t".join, zip(*columns, strict=True))) + b"\n"
    count = len(block)
    if b"\\" in lines or b"\r" in lines or lines.count(b"\n") != count or lines.count(b"\t") != count * (width - 1):
        return None
    return lines


def _csv(columns: Sequence[Column], rows: Iterable[Sequence[Any]], header: bool) -> Iterator[bytes]:
    import csv

    text = StringIO(newline="")
    single = header and len(columns) == 1 and any(char in columns[0].head for char in ";\t|")
    write = csv.writer(
        text,
        lineterminator="\r\n",  # so that cells with CR or LF are quoted
        quoting=csv.QUOTE_ALL if single else csv.QUOTE_MINIMAL,  # unquoted it would be several columns for readers
    ).writerow
    for row in rows:
        write(["" if cell is MISSING else as_bytes(cell).decode("utf-8", "surrogateescape") for cell in row])
        yield text.getvalue().removesuffix("\r\n").encode("utf-8", "surrogateescape") + b"\n"
        text.seek(0)
        text.truncate()


def _json(columns: Sequence[Column], rows: Iterable[Sequence[Any]], as_lines: bool) -> Iterator[bytes]:
    heads = [(column.head, column.is_name) for column in columns]
    between = b"" if as_lines else b"[\n"
    for row in rows:
        members = {}
        for (head, is_name), cell in zip(heads, row, strict=True):
            value: Any = None if cell is MISSING else cell
            if type(value) is bytes:
                try:
                    value = value.decode("utf-8", "surrogateescape" if is_name else "strict")
                except ValueError:
                    head, value = f"@{head}", "base64:" + b64encode(value).decode()
            members[head] = value
        yield between + _object(members)
        between = b"\n" if as_lines else b",\n"
    if as_lines:
        yield b"\n" if between == b"\n" else b""
    else:
        yield b"\n]\n" if between == b",\n" else b"[]\n"


def _object(members: dict[str, Any]) -> bytes:
    try:
        try:
            return json.dumps(members, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except UnicodeEncodeError:
            return json.dumps(members, allow_nan=False).encode("ascii")
    except ValueError:
        raise _unwritable(members, "a number that JSON cannot represent, NaN or Infinity") from None
    except RecursionError:
        raise _unwritable(members, "a value that is nested too deeply") from None


def _unwritable(members: dict[str, Any], reason: str) -> TarkitError:
    """Return the error for a row that cannot be written; its first cell, by default the key, identifies it."""
    return TarkitError(f"the row of {show(str(next(iter(members.values()), '')))} has {reason}")


def _yaml(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    yaml = load_library("yaml", spell("format", "yaml"), "PyYAML", "yaml")
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    empty = True
    for row in rows:
        members = {column.head: _text(cell) for column, cell in zip(columns, row, strict=True)}
        try:
            yield yaml.dump(
                [members], Dumper=dumper, allow_unicode=True, sort_keys=False, width=1 << 30, encoding="utf-8"
            )
        except RecursionError:
            raise _unwritable(members, "a value that is nested too deeply for YAML") from None
        empty = False
    if empty:
        yield b"[]\n"


def _text(cell: Any) -> Any:
    """Return bytes as text if they are UTF-8."""
    if type(cell) is bytes:
        try:
            return cell.decode("utf-8")
        except ValueError:
            return cell
    return None if cell is MISSING else cell
