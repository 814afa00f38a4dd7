"""Tables as Parquet files, by pyarrow: one row group at a time, so that memory does not grow with the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tarkit.errors import TarkitError, show, spell
from tarkit.export.columns import MISSING, Column, MediaCell
from tarkit.pipeline.view_rows import ranges_type
from tarkit.tables.parquet import PyarrowFile, load_pyarrow, table_writer

GROUP_ROWS, GROUP_BYTES = 8192, 16 << 20  # limits of a row group


class MixedColumn(TarkitError):
    """A later value of a column is of another type than the first ones."""

    column = ""


def parquet_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield a table as bytes. The type of each column is inferred from the first row group (up to 8192 rows).

    Types are int64, double, bool and string; binary for bytes that are not UTF-8; string of JSON for objects, lists,
    values of several types, and integers that a double would round. Pictures and sounds are as Hugging Face's
    `datasets` writes them.

    Raises:
        MixedColumn: a later value does not fit the type of its column.
        MissingLibrary: pyarrow is not installed.
    """
    pyarrow, _ = load_pyarrow(spell("format", "parquet"))
    file = PyarrowFile()
    writer: Any = None
    types: list[str] = []
    done = 0
    for group in _groups(iter(rows)):
        values = list(zip(*group, strict=True)) or [()] * len(columns)
        types = types or [
            column.feature or column.kind or _type(cells) for column, cells in zip(columns, values, strict=True)
        ]
        arrays = []
        for column, kind, cells in zip(columns, types, values, strict=True):
            try:
                arrays.append(_media(pyarrow, cells) if column.feature else _array(pyarrow, cells, kind))
            except (ValueError, TypeError, AttributeError, OverflowError, pyarrow.ArrowException):
                message = f"column {show(column.head)}: a value in rows {done + 1} to {done + len(group)} is not"
                hint = f"{spell('format', 'jsonl')} takes values of any type"
                mixed = MixedColumn(f"{message} {kind}, the type of the first rows", hint)
                mixed.column = column.head
                raise mixed from None
        table = pyarrow.table(arrays, names=[column.head for column in columns], metadata=_features(columns))
        writer = writer or _writer(file, table, columns)
        writer.write_table(table)
        done += len(group)
        yield file.take()
    writer.close()
    yield file.take()


def _writer(file: PyarrowFile, first: Any, columns: Sequence[Column]) -> Any:
    """Return the writer of a file. Pictures and sounds are compressed already, and seldom there twice."""
    media = {column.head for column in columns if column.feature}
    if not media:
        return table_writer(file, first)
    others = [name for name in first.schema.names if name not in media] + [f"{name}.path" for name in media]
    compression = {**dict.fromkeys(others, "zstd"), **{f"{name}.bytes": "none" for name in media}}
    return table_writer(file, first, compression=compression, use_dictionary=others)


def _features(columns: Sequence[Column]) -> dict[str, str] | None:
    """Return the metadata by which Hugging Face's `datasets` knows pictures and sounds."""
    features = {column.head: {"_type": column.feature} for column in columns if column.feature}
    return {"huggingface": json.dumps({"info": {"features": features}})} if features else None


def _array(pyarrow: Any, cells: Sequence[Any], kind: str) -> Any:
    if kind == "ranges":
        return pyarrow.array([None if cell is MISSING else cell for cell in cells], ranges_type(pyarrow))
    return pyarrow.array([_fitted(cell, kind) for cell in cells], getattr(pyarrow, kind)())


def _media(pyarrow: Any, cells: Sequence[Any]) -> Any:
    """Return pictures or sounds as Hugging Face has them: struct<bytes: binary, path: string>."""
    absent = [cell is MISSING for cell in cells]
    contents = [None if cell is MISSING else cell.content for cell in cells]
    paths = [None if cell is MISSING else cell.path for cell in cells]
    return pyarrow.StructArray.from_arrays(
        [pyarrow.array(contents, pyarrow.binary()), pyarrow.array(paths, pyarrow.string())],
        names=["bytes", "path"],
        mask=pyarrow.array(absent, pyarrow.bool_()),
    )


def _groups(rows: Iterator[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Yield rows in groups; at least one group, which may be empty."""
    first = True
    while True:
        group: list[Sequence[Any]] = []
        size = 0
        for row in islice(rows, GROUP_ROWS):
            group.append(row)
            size += sum(_length(cell) for cell in row)
            if size >= GROUP_BYTES:
                break
        if not group and not first:
            return
        yield group
        first = False


def _length(cell: Any) -> int:
    return len(cell.content) if isinstance(cell, MediaCell) else len(cell) if isinstance(cell, (bytes, str)) else 0


def _type(cells: Sequence[Any]) -> str:
    kinds = {_kind(cell) for cell in cells if cell is not MISSING and cell is not None}
    if kinds == {"int64", "float64"}:
        return "float64" if all(_is_float(cell) for cell in cells if isinstance(cell, int)) else "string"
    if kinds == {"string", "binary"}:
        return "binary"
    return kinds.pop() if len(kinds) == 1 else "string"


def _kind(cell: Any) -> str:
    if isinstance(cell, bytes):
        try:
            cell.decode("utf-8")
        except ValueError:
            return "binary"
        return "string"
    if isinstance(cell, bool):
        return "bool_"
    if isinstance(cell, int):
        return "int64" if -(1 << 63) <= cell < 1 << 63 else "string"
    return "float64" if isinstance(cell, float) else "string"


def _is_float(cell: int) -> bool:
    """Return whether a float is the same number. Raises OverflowError."""
    return int(float(cell)) == cell


def _fitted(cell: Any, kind: str) -> Any:
    """Return a cell for a column of this type. Raises ValueError, TypeError, OverflowError."""
    if cell is MISSING or cell is None:
        return None
    if kind == "string":
        if isinstance(cell, bytes):
            return cell.decode("utf-8")
        return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    if kind == "float64" and isinstance(cell, int) and not isinstance(cell, bool) and _is_float(cell):
        return float(cell)
    if kind == "int64" and isinstance(cell, float) and int(cell) != cell:  # pyarrow would cut it off
        raise ValueError
    if kind in ("int64", "float64") and isinstance(cell, int) and (kind == "float64" or isinstance(cell, bool)):
        raise ValueError
    return cell
