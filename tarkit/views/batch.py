"""Samples of rows of a view that were not read: batches in columns of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import repeat
from typing import Any, NamedTuple

from tarkit.problems import Policy
from tarkit.samples.sample import ABSENT, OPEN, Condition, SampleBatch, TarSample
from tarkit.streams.ranges import Held, JoinedSource
from tarkit.streams.source import Source
from tarkit.tables.parquet import load_compute, load_pyarrow, plain_values, value_errors
from tarkit.tables.vectors import Columns, integers, key_list, vector_of
from tarkit.tar import block
from tarkit.views.rows import RowRange, StoredRow

READ = 3  # the flag of a row that the archive is asked for
COUNTED = ("int64", "int32", "string")  # types of columns of which each value is evaluated once,
FEW = 4  # if it comes as often as this
SINGLY = 256  # rows at most that are evaluated alone before the next ones are passed on


class RowColumns(NamedTuple):
    """The columns of some rows, as arrays of Arrow.

    Attributes:
        keys: text, the keys of the samples.
        shards: int32, the numbers of the archives in `RowBatch.sources`.
        starts, stops: int64, where the samples are in them.
        values: a record batch of the columns with values.
        numbers: int64, the numbers of the rows in their view, from 0.
    """

    keys: Any
    shards: Any
    starts: Any
    stops: Any
    values: Any
    numbers: Any

    def each(self, change: Callable[[Any], Any]) -> RowColumns:
        """Return the columns that a function makes of these."""
        return RowColumns(*map(change, self))


Look = Callable[["RowBatch", int], TarSample | None]
"""Returns the sample of a row of a batch, read and checked; None if the policy leaves it out."""


class RowBatch(SampleBatch):
    """Samples of rows of a view, each one range of an archive, which no step has looked at."""

    unread = True

    __slots__ = ("_keys", "_places", "_source", "_stops", "_values", "columns", "look", "name", "sources")

    def __init__(self, name: str, columns: RowColumns, sources: Sequence[Source], look: Look) -> None:
        """Make a batch.

        Args:
            name: the view.
            columns: at least one row; keys of neighbours differ.
            sources: the archives.
            look: reads the sample of a row.
        """
        self.name, self.columns, self.sources, self.look = name, columns, sources, look
        self.start, self.contents, self.plain, self.entries_held, self.first = 0, (), False, None, 0
        self._keys: list[bytes] | None = None
        self._stops: Any = None
        self._places: list[tuple[Source, int]] | None = None
        self._source: Source | None = None
        self._values = BatchValues(columns.values, name)

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.columns.keys)

    @property
    def first_key(self) -> bytes:
        """The key of the first sample."""
        return self.key_of(0)

    @property
    def key(self) -> bytes:  # type: ignore[override]
        """The key of the last sample."""
        return self.key_of(self.count - 1)

    def key_of(self, number: int) -> bytes:
        """Return the key of a sample."""
        return self.columns.keys[number].as_py().encode() if self._keys is None else self._keys[number]

    def number(self, number: int) -> int:
        """Return the number of the row of a sample in its view, from 0."""
        return int(self.columns.numbers[number].as_py())

    def place(self, number: int) -> tuple[Source, int]:
        """Return the archive of a sample and its offset there."""
        return self.sources[self.columns.shards[number].as_py()], self.columns.starts[number].as_py()

    def misplaced(self) -> list[int]:
        """Return the samples whose range cannot be: it is empty, not of whole blocks, or ends behind its archive."""
        arrow, compute, columns = load_pyarrow("a view")[0], load_compute(), self.columns
        sizes = arrow.array([source.size or 0 for source in self.sources], arrow.int64())
        starts, stops = columns.starts, columns.stops
        odd = compute.bit_wise_and(compute.bit_wise_or(starts, stops), -1 << 63 | (block.BLOCK - 1))
        tests = [
            compute.not_equal(odd, 0),  # also where one is negative
            compute.less_equal(stops, starts),
            compute.greater(stops, sizes.take(columns.shards)),
        ]
        return list(compute.indices_nonzero(reduce(compute.or_, tests)).to_pylist())

    @property
    def keys(self) -> list[bytes]:  # type: ignore[override]
        """The keys."""
        if self._keys is None:
            self._keys = key_list(self.columns.keys)
        return self._keys

    @property
    def stops(self) -> Sequence[int]:  # type: ignore[override]
        """Where each sample ends, if one comes after the other."""
        if self._stops is None:
            compute = load_compute()
            sizes = compute.subtract(self.columns.stops, self.columns.starts)
            self._stops = integers(compute.cumulative_sum(sizes))
        return self._stops  # type: ignore[no-any-return]

    @property
    def stop(self) -> int:  # type: ignore[override]
        """The bytes of all samples."""
        return self.stops[-1]

    @property
    def places(self) -> list[tuple[Source, int]]:  # type: ignore[override]
        """The archive of each sample, and its offset there."""
        if self._places is None:
            sources = map(self.sources.__getitem__, self.columns.shards.to_pylist())
            self._places = list(zip(sources, integers(self.columns.starts), strict=True))
        return self._places

    @property
    def source(self) -> Source:  # type: ignore[override]
        """The samples, one after the other."""
        if self._source is None:
            self._source = _RangesOfRows(self.name, self.stop, self.columns, self.sources)
        return self._source

    @property
    def rows(self) -> RowRange | None:  # type: ignore[override]
        """The rows; None without values."""
        return RowRange(self._values, 0, self.count) if self._values.columns else None

    def part(self, begin: int, stop: int) -> RowBatch:
        """Return samples [begin, stop)."""
        if begin == 0 and stop == self.count:
            return self
        return self._with(self.columns.each(lambda column: column.slice(begin, stop - begin)))

    def chosen(self, flags: bytes | bytearray) -> Iterator[SampleBatch]:
        """Yield the samples whose flag is 1, in batches in which keys of neighbours differ."""
        mask = mask_of(flags)
        count = mask.true_count
        if count == self.count:
            yield self
        elif count:
            yield from self._with(self.columns.each(lambda column: column.filter(mask))).apart()

    def flags(self, condition: Condition) -> bytearray:
        """Return for each row 1 if it is selected by its columns, 0, OPEN, or READ if one of these is null."""
        columns = {name: self.column(name) for name in condition.names}
        incomplete = [column for column in columns.values() if column.null_count]
        if not incomplete:
            return _together(condition, columns, self.count) or bytearray((OPEN,)) * self.count
        compute = load_compute()
        valid = reduce(compute.and_, (column.is_valid() for column in incomplete))
        columns = {name: each.filter(valid) for name, each in columns.items()}
        found = iter(_together(condition, columns, valid.true_count) or repeat(OPEN))
        return bytearray(next(found) if has_all else READ for has_all in valid.to_pylist())

    def in_turn(self, condition: Condition, flags: bytearray, policy: Policy) -> Iterator[SampleBatch]:
        """Yield the rows that are selected, in parts of more and more rows that are evaluated alone, the first of none.

        An archive is read in the turn of its row: an error of a row comes behind the rows in front of it.
        """
        selected = bytearray(flags)
        begin = alone = most = 0
        for number, sample in enumerate(self.samples()):
            if flags[number] < OPEN:
                continue
            if alone >= most and number > begin:
                yield from self.part(begin, number).chosen(selected[begin:number])
                begin, alone, most = number, 0, min(2 * most + 1, SINGLY)
            try:
                read = sample if flags[number] == OPEN else self.sample(number)
                selected[number] = read is not None and condition(read, policy)
            except Exception:
                if number > begin:
                    yield from self.part(begin, number).chosen(selected[begin:number])
                raise
            alone += 1
        yield from self.part(begin, self.count).chosen(selected[begin:])

    def _with(self, columns: RowColumns) -> RowBatch:
        return RowBatch(self.name, columns, self.sources, self.look)

    def apart(self) -> Iterator[RowBatch]:
        """Yield the samples in batches in which keys of neighbours differ."""
        keys, count, begin = self.columns.keys, self.count, 0
        if count > 1:
            compute = load_compute()
            equal = compute.equal(keys.slice(1), keys.slice(0, count - 1))
            for number in compute.indices_nonzero(equal).to_pylist():
                yield self.part(begin, number + 1)
                begin = number + 1
        yield self.part(begin, count)

    def column(self, name: str) -> Any:
        """Return the keys, or a column with values, as an array of Arrow."""
        array = self.columns.keys if name == "__key__" else self.columns.values.column(name)
        dictionary = getattr(array, "dictionary", None)
        # `null_count` of the array does not count the rows whose value is a null of the dictionary
        return array.dictionary_decode() if dictionary is not None and dictionary.null_count else array

    def samples(self) -> Iterator[TarSample]:
        """Yield the samples one by one, with rows, whose values can be asked for; their archives are not read."""
        for number, sample in enumerate(super().__iter__()):
            sample.row = StoredRow(self._values, number)
            yield sample

    def sample(self, number: int) -> TarSample | None:
        """Return the sample of a row, read and checked; None if the policy leaves it out."""
        sample = self.look(self, number)
        if sample is not None:
            sample.row = StoredRow(self._values, number)
        return sample


class _RangesOfRows(JoinedSource):
    """The samples of a batch, one after the other; where they are is found when one is read."""

    def __init__(self, name: str, size: int, columns: RowColumns, sources: Sequence[Source]) -> None:
        Held.__init__(self, name, 0, size)
        self._columns, self._sources = columns, sources

    @cached_property
    def pieces(self) -> Sequence[tuple[Source, int, int]]:  # type: ignore[override]
        """The ranges of the archives."""
        columns = self._columns
        sources = map(self._sources.__getitem__, columns.shards.to_pylist())
        return list(zip(sources, integers(columns.starts), integers(columns.stops), strict=True))


class BatchValues:
    """The values of some rows: a record batch.

    Attributes:
        name: the view, for messages.
        columns: the names of the columns.
    """

    def __init__(self, record: Any, name: str) -> None:
        self.name = name
        self.columns = frozenset(record.schema.names)
        self._record = record

    def value(self, column: str, row: int) -> Any:
        """Return the value of a column in a row, as Python has it; ABSENT if there is no such column."""
        if column not in self.columns:
            return ABSENT
        with value_errors(self.name, column):
            return plain_values(self._record.column(column).slice(row, 1))[0]

    def column(self, column: str) -> Any:
        """Return a column as a chunked array of Arrow."""
        arrow, _ = load_pyarrow("a view")
        return arrow.chunked_array([self._record.column(column)])


def _together(condition: Condition, columns: Mapping[str, Any], count: int) -> bytearray | None:
    """Return the flags of rows with all values; None if one may be a problem."""
    if len(columns) == 1:
        [column] = columns.values()
        if str(column.type) in COUNTED:
            encoded = column.dictionary_encode()
            if len(encoded.dictionary) <= count // FEW:
                flags = condition.flags(Columns(len(encoded.dictionary), lambda name: vector_of(encoded.dictionary)))
                if flags is None:
                    return None
                taken = _bytes_array(bytes(flags)).take(encoded.indices)
                return bytearray(taken.buffers()[1])[taken.offset : taken.offset + count]
    flags = condition.flags(Columns(count, lambda name: vector_of(columns[name])))
    return None if flags is None else bytearray(flags)


def mask_of(flags: Sequence[int]) -> Any:
    """Return flags, 0 or 1 each, as an array of Arrow with true and false."""
    arrow, _ = load_pyarrow("a view")
    return _bytes_array(bytes(flags)).cast(arrow.bool_())


def _bytes_array(data: bytes) -> Any:
    arrow, _ = load_pyarrow("a view")
    return arrow.Array.from_buffers(arrow.uint8(), len(data), [None, arrow.py_buffer(data)])


def renumbered(numbers: Any, number_of: Callable[[int], int]) -> Any:
    """Return numbers of an array of Arrow, each replaced by that which a function gives, as int32."""
    arrow, _ = load_pyarrow("a view")
    used = {number: number_of(number) for number in numbers.unique().to_pylist()}
    return arrow.array(map(used.get, range(max(used, default=-1) + 1)), arrow.int32()).take(numbers)
