"""Parquet tables as samples: a row is a sample, whose fields are its columns. Row groups are read one by one.

Without assignments a column is the field of its name, but for

    __key__               the key of the sample
    __index_level_0__     and so on: numbers of rows, which pandas writes
    struct<bytes, path>   pictures and sounds as Hugging Face has them; where no column is such, those of bytes that
                          begin with one. If `path` is the key and a field, it is that field; else the column if its
                          name is that of a format (`jpg`, `seg.png`); else the suffix of `path`, else that of the
                          format of the content. Where several columns are such, their names precede it: `mask.png`
    ClassLabel            the number of a class: the field `cls` if one column is such, and none is named so

Text is its UTF-8, bytes are as they are, null is no field, and other values are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.media.coding import Coder, is_compressed
from tarkit.media.kinds import HEAD, kind_of
from tarkit.tables.assignments import Assignment, columns_of
from tarkit.tables.parquet import SourceFile, load_pyarrow, parquet_errors, plain_values
from tarkit.tables.reader import RUNNING_KEY, KeyTemplate, entry_columns
from tarkit.tables.recipe import MalformedRow, Row

BATCH = 8 << 20  # bytes of values that are read together, by the mean of the row group
ROWS = 8192  # that are read together at most
READ, FETCH = 1 << 18, 4 << 20  # bytes of a column that are read at a time from a file, and from an object

KEY = "__key__"
_INDEX = "__index_level_"
_MEDIA = ("picture", "sound")
_VAGUE = ("img", "image")  # names of fields with pictures that are no formats
_SHORT = {"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tiff": "tif", "netpbm": "ppm"}
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # names of types, for numpy
_NO_FORMATS = ("data", "empty", "json", "text", "latin text", "pickle")

_coder = Coder()


class ContentCell(NamedTuple):
    """The content of a field, and the path of a picture or a sound; it may be empty."""

    content: bytes
    path: bytes = b""


class FieldColumn(NamedTuple):
    """A column that is a field.

    Attributes:
        column: its name.
        field: the field; empty if paths and contents say which.
        prefix: what precedes the suffix that they say.
        may_be_bytes: whether it has bytes, and is the field of its name unless the first ones are a picture or a sound.
    """

    column: str
    field: str
    prefix: str = ""
    may_be_bytes: bool = False


class ColumnarTable:
    """A Parquet file whose rows are samples.

    Args:
        file: the file, which can seek.
        name: its name for messages.
        assignments: the fields, and their columns; empty for all columns.
        key: the template of keys, or a column; None for the column `__key__`, without it for `numbered`.
        numbered: the template of keys of tables without that column.
        read: bytes of a column that are read at a time.
        warn: called with a message about a table without keys.

    Attributes:
        name: its name for messages.

    Raises:
        TarkitError: it is no Parquet file.
        Usage: a column is not there, or has a name that no field has.
        MissingLibrary: pyarrow is not installed.
    """

    def __init__(
        self,
        file: BinaryIO | SourceFile,
        name: str,
        assignments: Sequence[Assignment] = (),
        key: str | None = None,
        numbered: str = RUNNING_KEY,
        read: int = READ,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.name = name
        self._arrow, parquet = load_pyarrow(f"{self.name}: Parquet")
        with parquet_errors(name):
            self._file = parquet.ParquetFile(file, pre_buffer=False, buffer_size=read)
        self._schema = self._file.schema_arrow
        self._names: list[str] = self._schema.names
        if twice := {name for name in self._names if self._names.count(name) > 1}:
            raise Usage(f"{self.name}: the column {show(min(twice))} is there twice")
        if key is None and KEY not in self._names:
            key = numbered
            warn(f"{self.name}: no column {KEY}: keys are the numbers of the rows; {spell('key', 'COLUMN')} names one")
        self._key = KeyTemplate(f"{{{KEY}}}" if key is None else key)
        self._assignments = assignments
        for name in (*columns_of(assignments), *self._key.columns):
            if name not in self._names:
                raise Usage(f"{self.name}: there is no column {show(name)}", f"it has {', '.join(self._names)}")
        self._columns = [] if assignments else self._usual_columns()
        self._last: bytes | None = None  # key of the latest row
        self._wanted = list(
            dict.fromkeys([*(one.column for one in self._columns), *columns_of(assignments), *self._key.columns])
        )

    # ---- Columns

    def _usual_columns(self) -> list[FieldColumn]:
        features, types = self._features(), self._arrow.types
        if not {"__shard__", "__start__", "__stop__"}.isdisjoint(self._names):
            raise Usage(f"{self.name}: a view, which has no contents", f"tarkit cat {self.name} -o NAME.tar packs it")
        names = [name for name in self._names if name != KEY and not name.startswith(_INDEX)]
        if sources := [name for name in names if name.startswith("@")]:
            hint = f"tables of text have them; {spell('set', 'FIELD:COLUMN')} chooses columns"
            raise Usage(f"{self.name}: a column of sources: {show(sources[0])}", hint)
        media = [name for name in names if _is_media(types, self._schema.field(name).type)]
        may_be = [] if media else [name for name in names if _is_bytes(types, self._schema.field(name).type)]
        unnamed = [name for name in media or may_be if not is_format(name)]
        classes = [name for name in names if features.get(name) == "ClassLabel"]
        columns = []
        for name in names:
            if name in unnamed:
                prefix = f"{name}." if len(unnamed) > 1 else ""
                columns.append(FieldColumn(name, "", prefix, may_be_bytes=name in may_be))
            else:
                columns.append(FieldColumn(name, "cls" if classes == [name] and "cls" not in names else name))
        return columns

    def _features(self) -> dict[str, str]:
        """Return the types that Hugging Face's metadata have for columns."""
        try:
            features = json.loads((self._schema.metadata or {})[b"huggingface"])["info"]["features"]
            return {name: feature["_type"] for name, feature in features.items() if "_type" in feature}
        except (KeyError, TypeError, ValueError, AttributeError):
            return {}

    # ---- Rows

    def rows(self) -> Iterator[Row]:
        """Yield the entries of all samples, those of each together.

        Raises:
            TarkitError: `NAME:ROW: reason`; rows are counted from 1.
        """
        index, self._last = 0, None
        bare: dict[str, bool] = {}  # columns of bytes, and whether the first ones are a picture or a sound
        for number in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(number)
            size = max(1, min(ROWS, BATCH * group.num_rows // max(group.total_byte_size, 1)))
            batches = self._file.iter_batches(size, row_groups=[number], columns=self._wanted, use_threads=False)
            while (batch := self._next(batches)) is not None:
                yield from self._rows_of(batch, index, bare)
                index += batch.num_rows

    def _next(self, batches: Iterator[Any]) -> Any:
        with parquet_errors(self.name):
            return next(batches, None)

    def _rows_of(self, batch: Any, index: int, bare: dict[str, bool]) -> Iterator[Row]:
        """Yield the entries of rows, the first of which has this index."""
        keys = [self._cells(batch, name, index) for name in self._key.columns]
        columns = [(one, self._cells(batch, one.column, index)) for one in self._columns]
        assigned = [(one.field, self._assigned(batch, one, index)) for one in self._assignments]
        for row in range(batch.num_rows):
            try:
                values = [None if cell is None else cell.content for cell in (cells[row] for cells in keys)]
                key = self._key.checked(index + row, self._key.columns, values)
                if key == self._last:
                    raise MalformedRow(f"the key {show(key)} is that of the row before")
                self._last = key
                fields = []
                for field, cells in assigned:
                    if (cell := cells[row]) is not None:
                        fields.append((field, cell))
                for column, cells in columns:
                    if (cell := cells[row]) is not None:
                        fields.append((field_of(column, key + b".", cell, bare), cell))
                if not fields:
                    raise MalformedRow("all columns are null, and a sample has a field")
                entry_columns((KEY, *(field for field, _ in fields)))
            except MalformedRow as error:
                words = f"{spell('set', 'FIELD:COLUMN')} names fields, {spell('key', 'COLUMN')} keys"
                hint = error.hint or words
                raise TarkitError(f"{self.name}:{index + row + 1}: {error}", hint) from error
            for field, cell in fields:
                yield Row(key + b"." + field.encode(), "data", cell.content, index + row + 1, self.name)

    def _assigned(self, batch: Any, one: Assignment, index: int) -> list[ContentCell | None]:
        """Return the contents of a field in all rows."""
        if not one.members:
            return self._cells(batch, one.column, index, one.field)
        columns = [self._plain(batch, member.column, index) for member in one.members]
        cells: list[ContentCell | None] = []
        for values in zip(*columns, strict=True):
            document: dict[str, Any] = {}
            for member, value in zip(one.members, values, strict=True):
                if value is not None:
                    inner = document
                    for name in member.path[:-1]:
                        inner = inner.setdefault(name, {})
                    inner[member.path[-1]] = value
            cells.append(ContentCell(_content(document)) if document else None)
        return cells

    def _cells(self, batch: Any, name: str, index: int, field: str = "") -> list[ContentCell | None]:
        """Return the contents of a column in all rows."""
        column, types = batch.column(name), self._arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if _is_media(types, column.type):
            return [self._medium(name, value, index + row) for row, value in enumerate(column.to_pylist())]
        if _is_text(types, column.type):
            column = column.cast(self._arrow.large_binary())
        if _is_bytes(types, column.type):
            return [None if value is None else ContentCell(value) for value in column.to_pylist()]
        kind = _coder.kind(field) if field else None
        if kind is not None and kind.name in ("array", "tenbin"):
            return self._arrays(column, name, field, index)
        return [None if value is None else ContentCell(_content(value)) for value in self._plain(batch, name, index)]

    def _medium(self, name: str, value: dict[str, Any] | None, index: int) -> ContentCell | None:
        if value is None or (value["bytes"] is None and value["path"] is None):
            return None
        if value["bytes"] is None:
            message = f"{self.name}:{index + 1}: the column {show(name)} has a path and no bytes: {show(value['path'])}"
            embedded = "with_format('arrow').map(datasets.table.embed_table_storage, batched=True)"
            raise TarkitError(message, f"datasets embeds them: {embedded}, then to_parquet")
        return ContentCell(value["bytes"], (value["path"] or "").encode())

    def _arrays(self, column: Any, name: str, field: str, index: int) -> list[ContentCell | None]:
        """Return lists of numbers as arrays, of the type that the innermost list has."""
        import numpy

        kind = column.type
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        cells: list[ContentCell | None] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                array = None if value is None else numpy.array(value, _FLOATS.get(str(kind), str(kind)))
                cells.append(None if array is None else ContentCell(_coder.encode(field, array)))
            except (ValueError, TypeError) as error:
                message = f"{self.name}:{index + row + 1}: the column {show(name)} has no array for {show(field)}"
                raise TarkitError(f"{message}: {error}") from None
        return cells

    def _plain(self, batch: Any, name: str, index: int) -> list[Any]:
        try:
            return plain_values(batch.column(name))
        except (ValueError, OverflowError) as error:  # of Arrow, and of text that is not UTF-8
            rows = f"{self.name}: rows {index + 1} to {index + batch.num_rows}"
            raise TarkitError(f"{rows}: the column {show(name)} has no values for tarkit: {error}") from None


def _is_media(types: Any, kind: Any) -> bool:
    """Return whether a type is that of pictures and sounds of Hugging Face."""
    if not types.is_struct(kind) or kind.num_fields != 2:
        return False
    members = {kind.field(number).name: kind.field(number).type for number in range(2)}
    if set(members) != {"bytes", "path"} or not (_is_text(types, members["path"]) or types.is_null(members["path"])):
        return False
    return _is_bytes(types, members["bytes"]) or bool(types.is_null(members["bytes"]))


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(types: Any, kind: Any) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_format(name: str) -> bool:
    """Return whether a name ends in that of a format of pictures or sounds."""
    kind = _coder.kind(name)
    last = name.lower().rpartition(".")[2]
    return kind is not None and kind.name in _MEDIA and last not in _VAGUE and not is_compressed(name)


def field_of(column: FieldColumn, start: bytes, cell: ContentCell, bare: dict[str, bool]) -> str:
    """Return the field of a cell of a sample whose names begin with `start`."""
    rest = cell.path.removeprefix(start).decode() if cell.path.startswith(start) else ""
    if rest and "/" not in rest:
        return rest
    if column.field:
        return column.field
    suffix = cell.path.decode().rpartition(".")[2].lower()
    if not is_format(suffix):
        suffix = kind_of(cell.content[:HEAD], b"", len(cell.content))
        if column.may_be_bytes and not bare.setdefault(column.column, is_format(suffix)):
            return column.column
        if suffix in _NO_FORMATS:
            return column.column
    return column.prefix + _SHORT.get(suffix, suffix)


def _content(value: Any) -> bytes:
    """Return a value as content: text as it is, any other as JSON."""
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
