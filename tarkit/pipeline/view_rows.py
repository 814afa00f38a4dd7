"""Views: Parquet files whose rows say where samples lie, in archives that stay where they are.

    __key__      string   the key; names of entries are made anew where it is another than in the archive
    __shard__    string   path or URL of a plain archive, relative to the directory of the view
    __start__    int64    where the entries of the sample begin in it, extension headers included,
    __stop__     int64    and where they end
    __more__     list of struct(shard, start, stop), or absent   further ranges, whose fields belong to the sample
    __fields__   string, or absent   the fields that the sample has, in the words of -f; null: all

Only the first four are required. Any other column is a value of the sample. The order of rows is that of samples.
Nothing is in the metadata of the file, since tools that write such tables drop them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tarkit.errors import MissingFile, TarkitError, Unsupported, Usage, printable, show
from tarkit.pipeline.origins import is_object
from tarkit.samples.dataset import open_source
from tarkit.samples.sample import ABSENT
from tarkit.stores.names import stays_below
from tarkit.stores.schemes import find_scheme, is_socket, public_name, scheme_of
from tarkit.streams.location import PARQUET, Location, RowsOfView, is_view, says_view
from tarkit.streams.source import WindowSource
from tarkit.tables.parquet import SourceFile, held_type, load_pyarrow, parquet_errors, value_errors
from tarkit.tables.stored_columns import StoredColumns
from tarkit.tables.vectors import integers, key_list
from tarkit.views.names import FIELDS, KEY, MORE, PLACES, REQUIRED, SHARD, START, STOP
from tarkit.views.rows import RowRange

if TYPE_CHECKING:
    from tarkit.streams.prefetch import Part
    from tarkit.tables.reader import TableRow

ROWS = 8192  # that are read together
MANY, BYTES = 1 << 16, 32 << 20  # of rows with all columns, at most


class ValueTable(Protocol):
    """A table whose columns become columns of a view that is written.

    Attributes:
        name: its name for messages.
        row_size: the mean number of bytes of its rows.
    """

    name: str
    row_size: int

    def schema(self) -> Any:
        """Return the schema of the columns, as Arrow has them."""

    def array(self, column: str, cells: Sequence[Any], kind: Any) -> Any:
        """Return cells of a column as an array of a type. Raises TarkitError for cells that it does not hold."""


class MoreRange(NamedTuple):
    """A further range of a sample."""

    shard: str
    start: int
    stop: int


def ranges_type(arrow: Any) -> Any:
    """Return the type of the column of further ranges."""
    members = [("shard", arrow.string()), ("start", arrow.int64()), ("stop", arrow.int64())]
    return arrow.list_(arrow.struct(members))


class RowGroup:
    """The values of some rows of a view; a column is read when a value of it is asked for."""

    def __init__(self, stored: StoredColumns, number: int, columns: frozenset[str], name: str) -> None:
        self.name = name
        self.columns = columns
        self._stored = stored
        self._number = number

    def value(self, column: str, row: int) -> Any:
        """Return the value of a column in a row, as Python has it; ABSENT if there is no such column."""
        if column not in self.columns:
            return ABSENT
        with value_errors(self.name, column):
            return self._stored.value(self._number, column, row)

    def column(self, column: str) -> Any:
        """Return a column as an array of Arrow."""
        return self._stored.column(self._number, column)


class RecordRows(NamedTuple):
    """Rows that follow each other, with all columns: a record batch of Arrow.

    Attributes:
        batch: the columns.
        group: the group of the rows.
        first: the number of the first one in the group.
        before: its number in the view.
    """

    batch: Any
    group: RowGroup
    first: int
    before: int


class Rows(NamedTuple):
    """Rows that follow each other: where their samples lie, and where they are in their group."""

    group: RowGroup
    first: int
    keys: list[bytes]
    shards: list[str]
    starts: list[int]
    stops: list[int]
    more: list[list[MoreRange]] | None
    fields: list[str | None] | None

    def part(self, at: int, count: int) -> Rows:
        """Return `count` rows from one on."""
        stop = at + count
        more, fields = self.more and self.more[at:stop], self.fields and self.fields[at:stop]
        keys, shards, starts, stops = (
            self.keys[at:stop],
            self.shards[at:stop],
            self.starts[at:stop],
            self.stops[at:stop],
        )
        return Rows(self.group, self.first + at, keys, shards, starts, stops, more, fields)

    def ranges(self, at: int) -> list[MoreRange]:
        """Return all ranges of the sample of a row."""
        first = MoreRange(self.shards[at], self.starts[at], self.stops[at])
        return [first] if self.more is None else [first, *self.more[at]]

    def size(self, at: int) -> int:
        """Return the bytes of the sample of a row."""
        return sum(stop - start for _, start, stop in self.ranges(at))

    def of(self, at: int, count: int) -> RowRange:
        """Return some of the rows."""
        return RowRange(self.group, self.first + at, count)


def base_of(name: str) -> str:
    """Return the directory from which a view sees its archives: its own; of a part that of `NAME.parquet/` around it.

    >>> base_of("data/v.parquet"), base_of("data/v.parquet/part-0.parquet")
    ('data', 'data')
    """
    directory = os.path.dirname(name)
    return os.path.dirname(directory) if directory.lower().endswith(PARQUET) else directory


def locate_archive(view: Location, shard: str) -> tuple[Location, bool]:
    """Return where an archive is that a view names, and whether the view may name it.

    A name is a path or the URL of an object. A view in a file may name any; one at a URL may name those below its own
    directory, by names that no decoding leads out of it.

    Raises:
        Usage: a URL whose scheme no store serves.
    """
    if view.kind != "url" and not scheme_of(shard):
        path = os.path.join(base_of(view.text), shard)
        name = os.path.join(base_of(view.name), printable(shard))
        return Location("path", path, name), True
    name = view.text.partition("?")[0] if view.text.startswith("http") else view.text
    base = base_of(name) + "/"
    text = shard if scheme_of(shard) else base + shard
    if find_scheme(text) is None or is_socket(text):
        raise Usage(f"{view.name}: it names {show(public_name(text))}, and that is no path and no object of a store")
    return Location("url", text, public_name(text), options=view.options), view.kind != "url" or _is_below(text, base)


def _is_below(url: str, base: str) -> bool:
    """Return whether a URL begins with another one, and stays below it."""
    path = re.split("[?#]", url, maxsplit=1)[0]
    return path.startswith(base) and stays_below(path.removeprefix(base))


def with_archives(locations: Sequence[Location]) -> list[Location]:
    """Return inputs, each view with the archives that it names."""
    result = list(locations)
    for location, view in present_views(locations):
        result += [locate_archive(location, shard)[0] for shard in view.shards()]
    return result


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _are_ranges(types: Any, kind: Any) -> bool:
    """Return whether a type is that of further ranges."""
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    members = {member.name: member.type for member in map(kind.value_type.field, range(kind.value_type.num_fields))}
    if not {"shard", "start", "stop"} <= {*members}:
        return False
    return _is_text(types, members["shard"]) and all(types.is_integer(members[name]) for name in ("start", "stop"))


class NotView(Usage):
    """The error for a Parquet file that has no column of places: a table, but no view."""


def _values(arrow: Any, column: Any, name: str) -> list[Any]:
    """Return the values of a column of places, keys as bytes: of buffers, in a fifth of the time of `to_pylist`."""
    types, kind = arrow.types, column.type
    if name in (START, STOP):
        return _numbers(arrow, column)
    if name == SHARD and types.is_dictionary(kind):
        names = column.dictionary.to_pylist()
        return list(map(names.__getitem__, _numbers(arrow, column.indices)))
    if name == KEY:
        text = (column.dictionary_decode() if types.is_dictionary(kind) else column).cast(arrow.large_string())
        text.validate(full=True)  # UTF-8
        return key_list(text)
    return list(column.to_pylist())


def _numbers(arrow: Any, column: Any) -> list[int]:
    return integers(column.cast(arrow.int64())).tolist()


class ViewFile:
    """The Parquet file of a view.

    Attributes:
        name: its name for messages.
        location: where it is.
        count: the number of its rows.
        first: the number of the first one that is read; see `Location.rows`.
        values: the columns with values.

    Raises:
        MissingLibrary: pyarrow is not installed.
        TarkitError: it is no Parquet file, or another one than that of which `location` names rows.
        Usage: it has not the columns of a view; NotView if it has none of their places.
    """

    def __init__(self, location: Location, source: WindowSource | None = None) -> None:
        """Use `view_file`; `source` has the bytes of a file that was made for this."""
        self._arrow, parquet = load_pyarrow(f"{location.name}: a view")
        self.location = location
        opened = source or open_source(location, table=True)
        if not isinstance(opened, WindowSource):
            opened.close()
            raise Unsupported(f"{location.name}: a view must be a file, or an object that is read by ranges")
        self.name, self.source = location.name, opened
        with parquet_errors(self.name):
            table = parquet.ParquetFile(SourceFile(opened))
            schema = table.schema_arrow
            self._places = [name for name in PLACES if name in schema.names]
            self._check(schema, says_view(location))
            # each name is there once in memory
            self._file = parquet.ParquetFile(SourceFile(opened), metadata=table.metadata, read_dictionary=[SHARD])
        metadata = self._file.metadata
        self.count: int = metadata.num_rows
        self.first, self._stop, version = location.rows or self.all_rows
        if version != self.version:
            raise Unsupported(f"{self.name}: the view has changed since its rows were counted", "run it again")
        sizes = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        self._starts = list(accumulate(sizes, initial=0))
        self.values: tuple[str, ...] = tuple(name for name in schema.names if name not in PLACES)
        self.schema = schema
        self._stored = StoredColumns(self._file)
        self._shards: list[str] | None = None

    @property
    def version(self) -> tuple[object, ...]:
        """The size and the version of the file, or of the object, which a cache has on some machines alone."""
        return self.source.size, self.source.object_version or self.source.version

    @property
    def all_rows(self) -> RowsOfView:
        """All rows of the view."""
        return RowsOfView(0, self.count, self.version)

    def store_in(self, tmpdir: str | None) -> None:
        """Set the directory of temporary files for values."""
        self._stored.tmpdir = tmpdir

    def _check(self, schema: Any, says_view: bool) -> None:
        missing = [name for name in REQUIRED if name not in schema.names]
        if missing:
            kind, hint = Usage, None
            if {SHARD, START, STOP} <= {*missing}:
                kind, hint = NotView, f"cat packs other tables: tarkit cat {self.name} -o NAME.tar"
                if says_view:
                    hint = "write it again with these columns; the name of another table ends in .parquet alone"
            message = f"{self.name}: a view needs the columns {', '.join(REQUIRED)}; missing: {', '.join(missing)}"
            raise kind(message, hint)
        if twice := {name for name in schema.names if schema.names.count(name) > 1}:
            raise Usage(f"{self.name}: the column {show(min(twice))} is there twice")
        types = self._arrow.types
        for name in self._places:
            kind = schema.field(name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if name in (START, STOP):
                good, wanted = types.is_integer(kind), "whole numbers"
            elif name == MORE:
                good, wanted = _are_ranges(types, kind), "lists of shard, start and stop"
            else:
                good, wanted = _is_text(types, kind), "text"
            if name not in REQUIRED and types.is_null(kind):  # as pandas writes a column of nulls
                continue
            if not good:
                raise Usage(f"{self.name}: the column {name} has {wanted}, not {kind}")

    def _damaged(self, error: BaseException) -> TarkitError:
        return TarkitError(f"{self.name}: damaged, or not a Parquet file: {error}")

    def value_schema(self) -> Any:
        """Return the schema of the columns with values."""
        return self._arrow.schema([(name, held_type(self.schema.field(name).type)) for name in self.values])

    def shards(self) -> list[str]:
        """Return the shards that rows name, in the order in which they come first."""
        if self._shards is None:
            self._shards = self._read_shards()
        return self._shards

    def _read_shards(self) -> list[str]:
        names: dict[str, None] = {}
        try:
            for batch in self._batches([SHARD], 1 << 16):
                names |= dict.fromkeys(batch.column(0).unique().to_pylist())
            if MORE in self._places:
                for batch in self._batches([MORE]):
                    for ranges in filter(None, batch.column(0).to_pylist()):
                        names |= dict.fromkeys(item and item["shard"] for item in ranges)
        except (self._arrow.ArrowException, UnicodeDecodeError) as error:
            raise self._damaged(error) from None
        if None in names:
            raise TarkitError(f"{self.name}: the name of an archive is null in a row")
        return list(names)

    def _batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[Any]:
        """Yield columns of all rows, as record batches."""
        for number in self._groups(columns):
            yield from self._file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False)

    def _groups(self, columns: Sequence[str]) -> Iterator[int]:
        """Return the numbers of the row groups; of an object each once its columns were fetched, many at a time."""
        source = self.source
        numbers = [
            number
            for number, (start, stop) in enumerate(pairwise(self._starts))
            if start < self._stop and stop > self.first
        ]
        if not is_object(source):
            return iter(numbers)
        from tarkit.streams.prefetch import Groups, fetch_ahead

        def size_of(number: int) -> int:
            return sum(stop - start for start, stop in self._chunks(number, columns))

        def parts_of(group: list[int]) -> Iterator[Part]:
            wanted = [*columns, *self._stored.used]  # values that were asked for are needed of the next rows too
            return ((source, *chunk) for number in group for chunk in self._chunks(number, wanted))

        fetched = fetch_ahead(Groups()(numbers, size_of), parts_of)
        return (number for group in fetched for number in group)

    def _chunks(self, number: int, columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of columns of a row group in the file."""
        group = self._file.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in columns):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                yield start, start + chunk.total_compressed_size

    def runs(self, column: str) -> Iterator[str]:
        """Yield the text of a column, of equal values in a row perhaps one.

        Raises:
            Usage: there is no such column, or it is not text.
            TarkitError: a value is null.
        """
        if column not in self.values:
            raise Usage(f"{self.name}: there is no column {show(column)}", "columns: " + " ".join(self.values))
        types, kind = self._arrow.types, self.schema.field(column).type
        if not _is_text(types, kind.value_type if types.is_dictionary(kind) else kind):
            raise Usage(f"{self.name}: the column {show(column)} has names of shards, and so text, not {kind}")
        try:
            for batch in self._batches([column]):
                encoded = batch.column(0)
                encoded = encoded if types.is_dictionary(encoded.type) else encoded.dictionary_encode()
                if encoded.null_count:
                    raise TarkitError(f"{self.name}: {column} is null in a row")
                names = encoded.dictionary.to_pylist()
                yield from (names[number] for number, _ in groupby(encoded.indices.to_pylist()))
        except (self._arrow.ArrowException, UnicodeDecodeError) as error:
            raise self._damaged(error) from None

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in order."""
        columns = frozenset(self.values)
        for number in self._groups(self._places):
            group, first, before = RowGroup(self._stored, number, columns, self.name), 0, self._starts[number]
            try:
                for batch in self._file.iter_batches(
                    ROWS, row_groups=[number], columns=self._places, use_threads=False
                ):
                    low, high = self._inside(before + first, batch.num_rows)
                    if low < high:
                        part = batch.slice(low, high - low)
                        yield self._rows_of(part, group, first + low, before + first + low)
                    first += batch.num_rows
            except (self._arrow.ArrowException, UnicodeDecodeError) as error:
                raise self._damaged(error) from None

    def _inside(self, start: int, count: int) -> tuple[int, int]:
        """Return which of `count` rows from `start` on are read, from one up to another."""
        return max(self.first - start, 0), min(self._stop - start, count)

    def record_batches(self) -> Iterator[RecordRows]:
        """Yield all columns of the rows in order."""
        columns = frozenset(self.values)
        for number in self._groups([*self._places, *self.values]):
            group, first, before = RowGroup(self._stored, number, columns, self.name), 0, self._starts[number]
            chunks = self._file.metadata.row_group(number)
            rows = max(min(MANY, BYTES * chunks.num_rows // max(chunks.total_byte_size, 1)), 1)
            try:
                for batch in self._file.iter_batches(rows, row_groups=[number], use_threads=False):
                    low, high = self._inside(before + first, batch.num_rows)
                    if low < high:
                        part = batch.slice(low, high - low)
                        part.column(KEY).validate(full=True)
                        self._check_places(part, before + first + low)
                        yield RecordRows(part, group, first + low, before + first + low)
                    first += batch.num_rows
            except (self._arrow.ArrowException, UnicodeDecodeError) as error:
                raise self._damaged(error) from None

    def rows_of(self, record: RecordRows) -> Iterator[Rows]:
        """Yield the rows of a record batch; their values are read again when they are asked for."""
        for at in range(0, record.batch.num_rows, ROWS):
            yield self._rows_of(record.batch.slice(at, ROWS), record.group, record.first + at, record.before + at)

    def table_rows(self) -> Iterator[tuple[TableRow, tuple[Any, ...]]]:
        """Yield each row as one of a table, with its place, which `ViewReader.sample` takes."""
        from tarkit.tables.reader import TableRow

        names = (KEY, *self.values)
        number = 0
        for rows in self.rows():
            for at, row in enumerate(rows.of(0, len(rows.keys))):
                number += 1
                more = [] if rows.more is None else list(map(tuple, rows.more[at]))
                fields = None if rows.fields is None else rows.fields[at]
                place = rows.shards[at], rows.starts[at], rows.stops[at], more, fields
                yield TableRow(number, names, [rows.keys[at], *map(row.value, self.values)]), place

    def _rows_of(self, batch: Any, group: RowGroup, first: int, before: int) -> Rows:
        self._check_places(batch, before)
        columns = {name: _values(self._arrow, batch.column(name), name) for name in self._places}
        more = columns.get(MORE)
        fields = columns.get(FIELDS)
        return Rows(
            group,
            first,
            columns[KEY],
            columns[SHARD],
            columns[START],
            columns[STOP],
            [self._more(ranges or ()) for ranges in more] if more and any(more) else None,
            list(fields) if fields and any(text is not None for text in fields) else None,
        )

    def _check_places(self, batch: Any, before: int) -> None:
        """Raise TarkitError for a null in a column that each row needs."""
        for name in REQUIRED:
            column = batch.column(name)
            if column.null_count:
                row = before + column.is_null().to_pylist().index(True) + 1
                raise TarkitError(f"{self.name}: {name} is null in row {row}")

    def _more(self, ranges: Sequence[dict[str, Any]]) -> list[MoreRange]:
        found = [MoreRange(item["shard"], item["start"], item["stop"]) for item in ranges]
        if any(None in item for item in found):
            raise TarkitError(f"{self.name}: a range in {MORE} has a null")
        return found


_shared: dict[Location, ViewFile | NotView | MissingFile] = {}


@contextmanager
def shared_views(locations: Sequence[Location]) -> Iterator[None]:
    """Open the views among inputs, which are the results of `view_file` until they are taken, or the block ends."""
    opened: dict[Location, ViewFile | NotView | MissingFile] = {}
    try:
        for location in filter(is_view, locations):
            if location not in _shared:
                try:
                    opened[location] = _shared[location] = ViewFile(location)
                except (NotView, MissingFile) as error:  # raised where the input is read
                    opened[location] = _shared[location] = error
        yield
    finally:
        for location, file in opened.items():
            if _shared.get(location) is file:
                del _shared[location]


def common_columns(locations: Sequence[Location]) -> frozenset[str]:
    """Return the columns with values of all views among inputs, and that of keys."""
    columns: list[set[str]] = []
    for _, view in present_views(locations):
        columns.append({KEY, *view.values})
    return frozenset(set.intersection(*columns) if columns else ())


def all_columns(locations: Sequence[Location]) -> list[str]:
    """Return the columns with values of all views among inputs, in order, without names such as `__into__`."""
    columns: dict[str, None] = {}
    for _, view in present_views(locations):
        columns |= dict.fromkeys(view.values)
    return [name for name in columns if not (name.startswith("__") and name.endswith("__"))]


def view_file(location: Location, take: bool = False) -> ViewFile:
    """Return the file of a view: the one that is shared, for the last time with `take`, or a new one.

    Raises:
        TarkitError: as `ViewFile` does.
    """
    file = _shared.pop(location, None) if take else _shared.get(location)
    if isinstance(file, (NotView, MissingFile)):
        raise file
    return file or ViewFile(location)


def present_views(locations: Iterable[Location]) -> Iterator[tuple[Location, ViewFile]]:
    """Yield the views among inputs, with their files, but for those that do not exist."""
    for location in filter(is_view, locations):
        try:
            view = view_file(location)
        except (NotView, MissingFile):
            continue
        yield location, view
