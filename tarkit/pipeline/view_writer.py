"""Write the samples of a dataset as a view: a row for each sample, and no byte of their contents."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import add, sub
from typing import TYPE_CHECKING, Any

from tarkit.errors import MissingFile, TarkitError, Unsupported, Usage, show, spell
from tarkit.pipeline.locator import Locator, directory_of
from tarkit.pipeline.output import Output, total_size
from tarkit.pipeline.stages import without_strays
from tarkit.pipeline.view_rows import ValueTable, ViewFile, ranges_type, view_file
from tarkit.samples.sample import SampleBatch, TarSample, ViewRow, singly
from tarkit.streams.copy import CHUNK
from tarkit.streams.files import File
from tarkit.streams.location import Location, is_view
from tarkit.streams.ranges import JoinedSource
from tarkit.streams.sink import Sink
from tarkit.streams.source import FileSource, Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.parquet import PyarrowFile, SourceFile, load_pyarrow, table_writer
from tarkit.views.batch import RowBatch, renumbered
from tarkit.views.names import FIELDS, INTO, KEY, MORE, SHARD, START, STOP
from tarkit.views.rows import RowRange, RowValues

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.pipeline.run import Run
    from tarkit.pipeline.steps import Flow

Added = tuple[ValueTable, Sequence[str], Sequence[Any]]  # a joined table, columns and the cells of a row

ROWS = 1 << 16  # of a row group
CELLS = 8 << 20  # bytes of the rows of joined tables that are held for a row group


class _Rows:
    """The columns of rows that are not written yet; `more` and `fields` have the few that are not null, by row."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.shards, self.starts, self.stops = array("i"), array("q"), array("q")
        self.names: dict[str, int] = {}  # of the archives, with their numbers in `shards`
        self.more: dict[int, list[dict[str, Any]]] = {}
        self.fields: dict[int, str] = {}
        self.values: list[
            tuple[RowValues | None, int]
        ] = []  # of each row the group that has its values, and its number
        self.added: dict[int, Added] = {}  # cells of joined tables, by row

    def add_values(self, row: ViewRow | None) -> None:
        """Add what the next row has as values."""
        if row is not None and row.added is not None:
            self.added[len(self.values)] = row.added
        stored = None if row is None else row.stored
        self.values.append((None, 0) if stored is None else stored)

    def by_group(self) -> dict[RowValues | None, tuple[list[int], list[int]]]:
        """Return of each group the numbers of its rows here, and in the group."""
        members: dict[RowValues | None, tuple[list[int], list[int]]] = {}
        for here, (group, there) in enumerate(self.values):
            if (pair := members.get(group)) is None:
                pair = members[group] = [], []
            pair[0].append(here)
            pair[1].append(there)
        return members


@dataclass(eq=False, repr=False)
class _Piece:
    """Rows [begin, end) of a batch of rows of a view."""

    batch: RowBatch
    begin: int
    end: int


class _Part:
    """Rows with the same columns, in temporary space: which columns there are is known at the end."""

    def __init__(self, schema: Any, parquet: Any, tmpdir: str | None) -> None:
        self.schema, self.file, self.size = schema, TemporaryFile(tmpdir), 0
        self._parquet, self._made = parquet, PyarrowFile()
        self._writer: Any = None

    def write(self, table: Any) -> None:
        table = table.select(self.schema.names).cast(self.schema)
        self._writer = self._writer or table_writer(self._made, table)
        self._writer.write_table(table)
        self._take()

    def close(self) -> None:
        self._writer.close()
        self._take()

    def _take(self) -> None:
        data = self._made.take()
        self.file.write(data)
        self.size += len(data)

    def tables(self) -> Iterator[Any]:
        file = self._parquet.ParquetFile(SourceFile(FileSource(os.dup(self.file.fd), self.file.name)))
        return (file.read_row_group(number, use_threads=False) for number in range(file.num_row_groups))


class ViewWriter:
    """Writes rows of a view to a sink.

    Args:
        sink: the output.
        directory: paths of archives are written relative to it; None for an object: they are URLs.
        schema: the columns with values, as Arrow has them.
        tmpdir: the directory of temporary files.
        into: whether there is a column with the shard that each sample is for.
        tables: those that samples may be joined with, whose columns the schema has.
    """

    def __init__(
        self,
        sink: Sink,
        directory: str | None,
        schema: Any,
        tmpdir: str | None = None,
        into: bool = False,
        tables: Sequence[ValueTable] = (),
    ) -> None:
        self._arrow, self._parquet = load_pyarrow("a view")
        arrow = self._arrow
        places = [
            (KEY, arrow.string()),
            (SHARD, arrow.dictionary(arrow.int32(), arrow.string())),
            (START, arrow.int64()),
            (STOP, arrow.int64()),
            (MORE, ranges_type(arrow)),
            (FIELDS, arrow.string()),
        ]
        if into:
            places.append((INTO, arrow.dictionary(arrow.int32(), arrow.string())))
        self._into = into
        self._values = [field for field in schema if not into or field.name != INTO]
        self._schema = arrow.schema([*map(arrow.field, *zip(*places, strict=True)), *self._values])
        self._sink, self._locator, self._tmpdir = sink, Locator(directory), tmpdir
        self._parts: list[_Part] = []
        self._whole: _Part | None = None  # of all rows, once it is complete
        self._without = {MORE, FIELDS}  # columns that no row has needed yet
        self._rows = _Rows()
        self._tables = tables
        self._most = max(min(ROWS, *(CELLS // (table.row_size + 1) for table in tables)), 1) if tables else ROWS
        self._plain_schema = arrow.schema([field for field in self._schema if not into or field.name != INTO])
        self._into_numbers = array("i")  # of the shards that the rows are for, their numbers in `_into_names`
        self._into_names: dict[str, int] = {}
        self._waiting: list[Any] = []  # of the rows before these
        self._held = 0  # rows that are not written yet

    @property
    def position(self) -> int:
        """The bytes written so far."""
        return sum(part.size for part in self._parts) if self._whole is None else self._whole.size

    def add(self, batch: SampleBatch, begin: int = 0, stop: int | None = None, into: str = "") -> None:
        """Add the rows of samples [begin, stop) of a batch, by default of all, which are for the shard `into`.

        Raises:
            TarkitError: a sample cannot be named by ranges of archives that stay.
        """
        stop = batch.count if stop is None else stop
        while begin < stop:
            end = min(begin + self._most - self._held, stop)
            if self._into:
                names = self._into_names
                self._into_numbers.extend(repeat(names.setdefault(into, len(names)), end - begin))
            if isinstance(batch, RowBatch):
                self._add_columns(batch, begin, end)
            elif isinstance(batch, TarSample) or (isinstance(batch.source, JoinedSource) and batch.places is None):
                for sample in islice(batch, begin, end):
                    sample.complete()
                    self._add_one(sample)
            else:
                self._add_together(batch, begin, end)
            self._held += end - begin
            begin = end
            if self._held >= self._most:
                self._flush()

    def _add_columns(self, batch: RowBatch, begin: int, end: int) -> None:
        """Add rows [begin, end) of a view, whose columns stay as they are."""
        last = self._waiting[-1] if self._waiting and not self._rows.keys else None
        if isinstance(last, _Piece) and last.batch is batch and last.end == begin:
            last.end = end
            return
        self._end_rows()
        self._waiting.append(_Piece(batch, begin, end))

    def _end_rows(self) -> None:
        """Make a table of the rows so far that are no columns yet."""
        if self._rows.keys:
            self._waiting.append(self._table(self._rows))
            self._rows = _Rows()

    def _add_together(self, batch: SampleBatch, begin: int, end: int) -> None:
        """Add samples [begin, end) of a batch, each of which is one range of an archive."""
        rows, first = self._rows, batch.start_of(begin)
        rows.keys += batch.keys[begin:end]  # type: ignore[arg-type]
        stops = batch.stops[begin:end]
        starts: Sequence[int] = (first, *stops[:-1])
        if batch.places is None:
            rows.shards.extend(repeat(self._number(batch.source), end - begin))
        else:
            sources, origins = zip(*batch.places[begin:end], strict=True)
            numbers = {source: self._number(source) for source in dict.fromkeys(sources)}
            rows.shards.extend(map(numbers.__getitem__, sources))
            stops, starts = list(map(add, origins, map(sub, stops, starts))), origins
        rows.starts.extend(starts)
        rows.stops.extend(stops)
        if batch.rows is None:
            rows.values.extend(repeat((None, 0), end - begin))
        elif isinstance(batch.rows, RowRange):
            first_row = batch.rows.first
            rows.values.extend(zip(repeat(batch.rows.group), range(first_row + begin, first_row + end), strict=False))
        elif self._tables:
            for row in batch.rows[begin:end]:
                rows.add_values(row)
        else:
            rows.values += batch.rows[begin:end]  # type: ignore[arg-type]

    def _add_one(self, sample: TarSample) -> None:
        """Add the row of a sample of any kind."""
        rows = self._rows
        number = len(rows.keys)
        ((first, start, stop), *rest), fields = self._locator.ranges_of(sample)
        if rest:
            rows.more[number] = [
                {"shard": self._locator.name(source), "start": low, "stop": high} for source, low, high in rest
            ]
        if fields is not None:
            rows.fields[number] = fields
        assert sample.key is not None
        rows.keys.append(sample.key)
        rows.shards.append(self._number(first))
        rows.starts.append(start)
        rows.stops.append(stop)
        rows.add_values(sample.row)

    def _number(self, source: Source) -> int:
        """Return the number of an archive among those of the rows that are not written yet."""
        names = self._rows.names
        return names.setdefault(self._locator.name(source), len(names))

    def _flush(self) -> None:
        table = self._together()
        without = {name for name in self._without if table.column(name).null_count == len(table)}
        if not self._parts or without != self._without:
            self._without = without
            schema = self._arrow.schema([field for field in self._schema if field.name not in without])
            self._parts.append(_Part(schema, self._parquet, self._tmpdir))
        self._parts[-1].write(table)

    def _together(self) -> Any:
        """Return all rows that are not written yet, as one table, and forget them."""
        arrow = self._arrow
        self._end_rows()
        tables = [self._copied(each) if isinstance(each, _Piece) else each for each in self._waiting]
        table = tables[0] if len(tables) == 1 else arrow.concat_tables(tables or [self._plain_schema.empty_table()])
        if len(tables) > 1:
            table = table.unify_dictionaries().combine_chunks()
        if self._into:
            at = self._schema.get_field_index(INTO)
            table = table.add_column(at, self._schema.field(at), self._names_of(self._into_numbers, self._into_names))
        self._waiting, self._held = [], 0
        self._into_numbers, self._into_names = array("i"), {}
        return table

    def _copied(self, piece: _Piece) -> Any:
        """Return rows of a view as a table."""
        arrow = self._arrow
        columns, sources = piece.batch.part(piece.begin, piece.end).columns, piece.batch.sources
        count, names = len(columns.keys), dict[str, int]()

        def number_of(number: int) -> int:
            return names.setdefault(self._locator.name(sources[number]), len(names))

        shards = renumbered(columns.shards, number_of)
        made = {
            KEY: columns.keys,
            SHARD: arrow.DictionaryArray.from_arrays(shards, arrow.array(names, arrow.string())),
            START: columns.starts,
            STOP: columns.stops,
        }
        fields = list(self._plain_schema)
        for field in fields:
            if field.name in columns.values.schema.names:
                made[field.name] = _as_type(arrow, columns.values.column(field.name), field.type)
            elif field.name not in made:
                made[field.name] = arrow.nulls(count, field.type)
        return arrow.table([made[field.name] for field in fields], schema=self._plain_schema)

    def _table(self, rows: _Rows) -> Any:
        arrow, count = self._arrow, len(rows.keys)
        columns = [
            self._keys(rows.keys),
            self._names_of(rows.shards, rows.names),
            *(
                arrow.Array.from_buffers(arrow.int64(), count, [None, arrow.py_buffer(numbers)])
                for numbers in (rows.starts, rows.stops)
            ),
            self._sparse(rows.more, count, self._schema.field(MORE).type),
            self._sparse(rows.fields, count, arrow.string()),
            *self._values_of(rows),
        ]
        return arrow.table(columns, schema=self._plain_schema)

    def _names_of(self, numbers: array[int], names: dict[str, int]) -> Any:
        arrow = self._arrow
        indices = arrow.Array.from_buffers(arrow.int32(), len(numbers), [None, arrow.py_buffer(numbers)])
        return arrow.DictionaryArray.from_arrays(indices, arrow.array(names, arrow.string()))

    def _keys(self, keys: list[bytes]) -> Any:
        """Return keys as text. Raises TarkitError for one that is not UTF-8."""
        arrow = self._arrow
        try:
            return arrow.array(keys, arrow.binary()).cast(arrow.string())
        except arrow.ArrowInvalid:
            key = next(key for key in keys if not _is_utf8(key))
        words = f"{show(key)} is not UTF-8, as the keys of a view are"
        raise TarkitError(words, f"{spell('rekey')} gives other keys, in a copy") from None

    def _sparse(self, values: dict[int, Any], count: int, kind: Any) -> Any:
        """Return a column of a few values, by row, among nulls."""
        return self._arrow.array(map(values.get, range(count)), kind) if values else self._arrow.nulls(count, kind)

    def _values_of(self, rows: _Rows) -> Iterator[Any]:
        """Yield the columns of values that rows of views have; null for samples of archives."""
        arrow = self._arrow
        for table in dict.fromkeys(table for table, _, _ in rows.added.values()):
            if table not in self._tables:  # of one data set of a mix
                words = f"{table.name}: its columns cannot be in a view of a mix"
                raise Unsupported(words, "write a view of each data set with its table first, and mix these")
        members = rows.by_group() if self._values else {}
        inverse = [0] * len(rows.values)
        for new, old in enumerate(chain.from_iterable(here for here, _ in members.values())):
            inverse[old] = new
        order = None if len(members) == 1 else arrow.array(inverse)
        taken = {group: arrow.array(there) for group, (_, there) in members.items()}
        for field in self._values:
            pieces = []
            for group, there in taken.items():
                if group is None or field.name not in group.columns:
                    pieces.append(arrow.nulls(len(there), field.type))
                else:
                    pieces += group.column(field.name).take(there).cast(field.type).chunks
            column = arrow.chunked_array(pieces, field.type).unify_dictionaries()
            column = column if order is None else column.take(order)
            yield self._joined(column, field, rows.added) if rows.added else column

    def _joined(self, column: Any, field: Any, added: dict[int, Added]) -> Any:
        """Return a column with the cells of joined tables, in the place of others, where rows of these have some."""
        cells: dict[ValueTable, tuple[list[int], list[Any]]] = {table: ([], []) for table in self._tables}
        for here, (table, names, values) in added.items():
            if field.name in names:
                numbers, values_of_field = cells[table]
                numbers.append(here)
                values_of_field.append(values[names.index(field.name)])
        order, pieces, before = list(range(len(column))), column.chunks, len(column)
        for table, (numbers, values_of_field) in cells.items():
            if numbers:
                pieces.append(table.array(field.name, values_of_field, field.type))
                for at, here in enumerate(numbers, before):
                    order[here] = at
                before += len(numbers)
        return self._arrow.chunked_array(pieces, field.type).take(self._arrow.array(order))

    def finish(self) -> None:
        """Complete the output: with one part its bytes, else the rows of all with the columns of the last one."""
        if self._held or not self._parts:
            self._flush()
        for part in self._parts:
            part.close()
        last = self._whole = self._parts[-1]
        if len(self._parts) > 1:
            whole = _Part(last.schema, self._parquet, self._tmpdir)
            for part in self._parts:
                for table in part.tables():
                    for name in last.schema.names:
                        if name not in table.schema.names:
                            table = table.append_column(
                                name, self._arrow.nulls(len(table), last.schema.field(name).type)
                            )
                    whole.write(table)
            whole.close()
            last = self._whole = whole
        for at in range(0, last.size, CHUNK):
            self._sink.write(last.file.read(at, min(at + CHUNK, last.size)))
        self._sink.close()

    def __enter__(self) -> ViewWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._sink.abort()


def _as_type(arrow: Any, column: Any, kind: Any) -> Any:
    """Return a column with another type; words of a dictionary are counted again where they are none."""
    if arrow.types.is_dictionary(kind) and not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.cast(kind)


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def open_view(output: Output, inputs: Sequence[Location], flow: Flow, into: bool = False) -> ViewWriter:
    """Open a view of samples of inputs, with the columns of views among these; `into` is that of `ViewWriter`.

    Raises:
        Usage: the output is to be compressed: Parquet does that itself.
        TarkitError: two views have columns of one name and different types.
    """
    if output.codec is not None:
        raise Usage(f"{output.location.name}: a view is not compressed again")
    schema = _schema(output.location.name, inputs, flow)
    sink = flow.open(output._replace(format=None), inputs)
    return ViewWriter(sink, directory_of(output), schema, flow.inputs.tmpdir, into, flow.tables)


def _schema(name: str, inputs: Sequence[Location], flow: Flow) -> Any:
    """Return the columns with values: those of views among inputs, and of joined tables. Raises TarkitError."""
    arrow, _ = load_pyarrow(f"{name}: a view")
    schemas = []
    for location in filter(is_view, inputs):
        with suppress(MissingFile):  # it is reported, or left out, when it is read
            schemas.append(view_file(location).value_schema())
    try:
        schema = arrow.unify_schemas(schemas) if schemas else arrow.schema([])
    except arrow.ArrowException as error:
        raise TarkitError(f"{name}: two views have columns of one name and different types: {error}") from None
    for table in flow.tables:
        schema = _with_columns(arrow, schema, table.schema())
    return schema


def view_of(data: Chain, run: Run, name: str, tmpdir: str | None) -> ViewFile:
    """Return a view of all samples of a dataset, in a temporary file.

    Raises:
        TarkitError: as `write_view` does.
    """
    file, directory = TemporaryFile(tmpdir), os.path.realpath(os.curdir)
    batches, flow = data.batches(run, contents=False, listed=True, as_view=True)
    schema = _schema(name, data.locations, flow)
    with flow, ViewWriter(Sink(file.fd, file.name), directory, schema, tmpdir, tables=flow.tables) as writer:
        for batch in without_strays(batches, run.policy):
            writer.add(batch)
        flow.finish()
        writer.finish()
    location = Location("path", os.path.join(directory, name), name, options=data.storage)
    return ViewFile(location, FileSource(File(file, file.name), name))


def _with_columns(arrow: Any, schema: Any, added: Any) -> Any:
    """Return a schema with the columns of a joined table; a column of both keeps its type, if it is one."""
    types = {field.name: field.type for field in schema}
    for field in added:
        if (kind := types.get(field.name)) is None or arrow.types.is_null(kind):
            types[field.name] = field.type
        elif arrow.types.is_dictionary(kind):
            types[field.name] = kind.value_type
    return arrow.schema(list(types.items()))


def write_view(
    data: Chain, output: Output, run: Run, after_sample: Callable[[int], None] | None = None
) -> tuple[bytes, bytes]:
    """Write a view of all samples of a dataset; return the first and the last key, empty if there is no sample.

    `after_sample` is called after each sample with the length so far in bytes.

    Raises:
        Usage: the output is to be compressed: Parquet does that itself.
        TarkitError: a sample does not consist of ranges of plain archives, or a row cannot say how it is renamed.
    """
    batches, flow = data.batches(run, contents=False, listed=True, as_view=True, directory=output.directory)
    first = last = None
    with (
        flow,
        open_view(output, data.locations, flow) as writer,
    ):
        total = total_size(data.locations) if data.permutes else None
        batches = without_strays(batches, run.policy)
        if after_sample is not None:
            batches = singly(batches)
        for batch in run.watch("writing", batches, lambda: writer.position, total):
            writer.add(batch)
            if after_sample is not None:
                after_sample(writer.position)
            first, last = first or batch.first_key, batch.key
        flow.finish()
        writer.finish()
    run.bytes += writer.position
    return first or b"", last or b""
