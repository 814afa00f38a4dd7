"""Rows of a table in a file of any known format, with values of JSON and bytes as cells.

A cell of TSV and CSV is bytes: content of a field. An empty cell of CSV is null, as table tools write and read it; null
in TSV is `\\N`. Cells of JSON lines and Parquet have types: text, numbers, true and false, lists, objects; of Parquet
bytes too.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from shlex import quote
from typing import Any, Literal, NoReturn

from tarkit.errors import TarkitError, Usage, load_library, show, spell
from tarkit.media.coding import Coder, is_compressed
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, parse_file, seekable
from tarkit.tables.parquet import load_pyarrow, plain_values
from tarkit.tables.reader import Format, TableRow, read_records
from tarkit.tables.recipe import MalformedRow

FORMATS: dict[str, Format | Literal["parquet"]] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The formats of tables, by the suffixes of their names."""

ROWS = 1024  # of Parquet that are read together
_WHOLE = re.compile(rb"(\s*[-+]?[0-9]+)\.0*\s*")
_TEXTS = ("text", "integer", "json", "lines")  # kinds of fields that take JSON text
_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}  # of numpy, by names of Arrow
_CODER = Coder()


def table_format(word: str) -> Format | Literal["parquet"]:
    """Return the format of a table by its name. Raises Usage for an unknown suffix."""
    name = file_label(word)
    format = FORMATS.get(os.path.splitext(name)[1].lower())
    if format is None:
        stem, tar, _ = name.partition(".tar")
        hint = f"known suffixes: {' '.join(FORMATS)}"
        if tar:
            plain = name.lower().endswith(".tar")
            made = f"tarkit cat {quote(name)} -o {quote(stem + ('.view.parquet' if plain else '.tar'))}"
            hint = f"a view of it is a table: {made}" if plain else f"a plain archive can be joined: {made}"
        raise Usage(f"{spell('join')} {show(name)}: unknown kind of table", hint)
    return format


class NumberList(list[Any]):
    """A list of numbers, perhaps nested, with the type that numpy has for them."""

    def __init__(self, values: list[Any], dtype: str) -> None:
        super().__init__(values)
        self.dtype = dtype


def parquet_schema(word: str, storage: StoreOptions | None) -> Any:
    """Return the schema of a Parquet file, as Arrow has it. Raises Usage for two columns of one name."""
    _, parquet = load_pyarrow(f"{file_label(word)}: Parquet")
    with _parquet_file(parquet, word, storage) as file:
        schema = file.schema_arrow
    if twice := {name for name in schema.names if schema.names.count(name) > 1}:
        raise Usage(f"{file_label(word)}: the column {show(min(twice))} is there twice")
    return schema


def number_types(schema: Any) -> dict[str, str]:
    """Return the types of the columns of a schema that have lists of numbers, as numpy names them."""
    found = {}
    for field in schema:
        kind = field.type
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        dtype = _DTYPES.get(str(kind), str(kind))
        if kind is not field.type and dtype.startswith(("int", "uint", "float")):
            found[field.name] = dtype
    return found


def read_rows(
    word: str, format: Format | Literal["parquet"], storage: StoreOptions | None, warn: Callable[[str], None]
) -> Iterator[TableRow]:
    """Yield the rows of a table; the line of one of Parquet is its number, from 1.

    Raises:
        MalformedRow: a row is malformed, perhaps with the line.
        TarkitError: the file cannot be read.
        MissingLibrary: pyarrow is not installed, for Parquet.
    """
    if format == "parquet":
        yield from _parquet_rows(word, storage)
        return
    with open_file(word, storage) as file:
        for row in read_records(file, format, warn=warn, convert=_checked):
            yield row._replace(values=[cell or None for cell in row.values]) if format == "csv" else row


def _checked(name: str, value: Any) -> Any:
    """Return a value of JSON. Raises ValueError for text that is not Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    json.dumps(value, ensure_ascii=False).encode()
    name.encode("utf-8", "surrogateescape")
    return value


def _parquet_rows(word: str, storage: StoreOptions | None) -> Iterator[TableRow]:
    path = file_label(word)
    pyarrow, parquet = load_pyarrow(f"{path}: Parquet")
    number = 0
    try:
        with _parquet_file(parquet, word, storage) as file:
            names = tuple(file.schema_arrow.names)
            for batch in file.iter_batches(ROWS, use_threads=False):
                columns = [_cells(path, name, column) for name, column in zip(names, batch.columns, strict=True)]
                for cells in zip(*columns, strict=True):
                    number += 1
                    yield TableRow(number, names, cells)
    except pyarrow.ArrowException as error:
        raise TarkitError(f"{path}: {error}") from None


def _parquet_file(parquet: Any, word: str, storage: StoreOptions | None) -> Any:
    kind, text = parse_file(word)
    return parquet.ParquetFile(text if kind == "path" else seekable(open_file(word, storage)))


def _cells(path: str, name: str, column: Any) -> list[Any]:
    kind = str(column.type)
    if kind in ("binary", "large_binary", "binary_view") or kind.startswith("fixed_size_binary"):
        cells: list[Any] = column.to_pylist()
        return cells
    try:
        return plain_values(column)
    except (ValueError, OverflowError) as error:  # of Arrow, and of bytes in lists that are not UTF-8
        raise TarkitError(f"{path}: the column {show(name)} has no values for tarkit: {error}") from None


def holds_integer(field: str) -> bool:
    """Return whether a field of this name holds an integer."""
    kind = _CODER.kind(field)
    return kind is not None and kind.name == "integer" and not is_compressed(field)


def content_of(cell: Any, field: str) -> bytes:
    """Return the content that a cell, other than null, is for a field of this name.

    Bytes are the content, text is UTF-8, a list of numbers an array for npy, other values are JSON text. A field of an
    integer, such as cls, takes integers, and `0.0` as 0: table tools write that in a column with empty cells.

    Raises:
        MalformedRow: the field holds no JSON text, such as npy for a list, or it holds an integer and the cell is none.
    """
    kind = _CODER.kind(field)
    if kind is not None and kind.name == "integer" and not is_compressed(field):
        return _integer_of(cell, field)
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode("utf-8", "surrogateescape")
    if isinstance(cell, list) and kind is not None and kind.name in ("array", "tenbin"):
        numpy = load_library("numpy", f"the field {show(field)}", "numpy", "numpy")
        try:
            return _CODER.encode(field, numpy.array(cell, getattr(cell, "dtype", None)))
        except (ValueError, TypeError) as error:
            raise MalformedRow(f"a list is no array for the field {show(field)}: {error}") from None
    if kind is not None and (kind.name not in _TEXTS or is_compressed(field)):
        what = "a list" if isinstance(cell, list) else "an object" if isinstance(cell, dict) else f"the value {cell!r}"
        raise MalformedRow(f"{what} is no content of the field {show(field)}", hint="bytes are; json takes any value")
    return json.dumps(cell, ensure_ascii=False, separators=(",", ":")).encode()


def _integer_of(cell: Any, field: str) -> bytes:
    data = cell.encode("utf-8", "surrogateescape") if isinstance(cell, str) else cell
    if not isinstance(data, bytes):
        whole_number = isinstance(cell, float) and cell.is_integer()
        data = b"%d" % cell if whole_number else json.dumps(cell, ensure_ascii=False).encode()
    elif whole := _WHOLE.fullmatch(data):
        data = whole[1]
    try:
        _CODER.decode(field, data)
    except TarkitError:
        hint = f"{field}.txt, or another field of text, takes any value"
        raise MalformedRow(f"{show(data[:40])} is no integer, which the field {show(field)} holds", hint=hint) from None
    return data


def member_of(cell: Any, before: Any) -> Any:
    """Return the value of a member of JSON that a cell, other than null, stands for; `before` is the one so far.

    Cells of TSV and CSV have no types: if the member has been text so far it stays text, else a number, true, false,
    an object and a list are what they look like, and where a boolean was, True and False are booleans. Where an integer
    was, a number such as 3.0 is 3. Text in place of a list or an object is one if it looks like one.

    Raises:
        MalformedRow: bytes that are not UTF-8.
    """
    value = _typed(cell, before)
    if isinstance(value, float) and value.is_integer() and type(before) is int:
        return int(value)
    return value


def _typed(cell: Any, before: Any) -> Any:
    if isinstance(cell, str) and isinstance(before, (list, dict)):
        parsed = _parsed(cell)
        return parsed if isinstance(parsed, type(before)) else cell
    if not isinstance(cell, bytes):
        return cell
    try:
        text = cell.decode()
    except ValueError:
        raise MalformedRow("bytes that are not UTF-8 are no value of JSON") from None
    if isinstance(before, str):
        return text
    if isinstance(before, bool) and text in ("True", "False"):
        return text == "True"
    return _parsed(text)


def _parsed(text: str) -> Any:
    """Return what a text means as JSON; itself if that is nothing."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_constant(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
