"""Shuffle rows of views: they go to parts by the first bits of their random keys, and part by part to their places.

The order is that of `sorter.Sorter`, of the same random keys. Rows are columns of Arrow all the way, with their values;
what memory does not hold is in a temporary file, written and read once (distribution sort: Knuth, TAOCP 3, 5.2.5).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.sorting.sorter import Sorter
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.parquet import load_compute, load_pyarrow
from tarkit.tables.vectors import buffer_numbers
from tarkit.views.batch import RowBatch, RowColumns, renumbered

HELD = 48 << 20  # bytes of rows in memory, at most, and of one part
TOGETHER = 1 << 16  # rows that are divided into parts together
BITS = 6  # of a random key that name a part
DEEPEST = 9  # levels of parts of parts

# columns before those of values: names that none of these has
KEY, SHARD, START, STOP, HIGH, LOW = "__key__", "__shard__", "__start__", "__stop__", "__more__", "__fields__"
OWN = 6


class RowShuffle:
    """Rows in a random order, among samples that are sorted otherwise.

    Args:
        take: returns the random keys of the next samples, 16 bytes each.
        memory: bytes of rows that may be in memory.
        tmpdir: the directory of temporary files.

    Attributes:
        count: the number of rows so far.
    """

    def __init__(self, take: Callable[[int], bytes], memory: int, tmpdir: str | None) -> None:
        self.count = 0
        self._take = take
        self._arrow, _ = load_pyarrow("a view")
        self._parts = _Parts(tmpdir, min(memory // 2, HELD), 0)
        self._numbers: dict[Source, int] = {}
        self._name = ""

    def others(self, batches: Iterator[SampleBatch]) -> Iterator[SampleBatch]:
        """Keep rows; yield all other samples, whose random keys have to be taken before the next ones are asked for."""
        for batch in batches:
            if isinstance(batch, RowBatch):
                self._add(batch)
            else:
                yield batch

    def _add(self, batch: RowBatch) -> None:
        arrow, columns, count = self._arrow, batch.columns, batch.count
        keys = array("Q", self._take(count))
        if sys.byteorder == "little":
            keys.byteswap()
        halves = (
            arrow.Array.from_buffers(arrow.uint64(), count, [None, arrow.py_buffer(keys[half::2])]) for half in (0, 1)
        )
        shards = renumbered(columns.shards, lambda number: self._number(batch.sources[number]))
        values = [column.dictionary_decode() if _is_coded(column) else column for column in columns.values.columns]
        names = [KEY, SHARD, START, STOP, HIGH, LOW, *columns.values.schema.names]
        self._parts.add(
            arrow.record_batch([columns.keys, shards, columns.starts, columns.stops, *halves, *values], names=names)
        )
        self.count += count
        self._name = batch.name

    def _number(self, source: Source) -> int:
        return self._numbers.setdefault(source, len(self._numbers))

    def merged(self, sorter: Sorter) -> Iterator[SampleBatch]:
        """Yield all rows and the samples of a sorter of `others`, whose samples come one by one, in their order."""
        samples: Iterator[SampleBatch] = sorter.batches()
        sample = next(samples, None)  # now all were read
        for record in self._parts.in_order():
            batch, begin = self._batch(record), 0
            while sample is not None and (stop := _before(record, sorter.current_rank)) < batch.count:
                if begin < stop:
                    yield from batch.part(begin, stop).apart()
                yield sample
                sample, begin = next(samples, None), stop
            yield from batch.part(begin, batch.count).apart()
        if sample is not None:
            yield sample
            yield from samples

    def _batch(self, record: Any) -> RowBatch:
        values = record.select(record.schema.names[OWN:])
        numbers = self._arrow.nulls(len(record), self._arrow.int64())
        keys, shards, starts, stops = map(record.column, (KEY, SHARD, START, STOP))
        columns = RowColumns(keys, shards, starts, stops, values, numbers)
        return RowBatch(self._name, columns, list(self._numbers), _look)


def _look(batch: RowBatch, number: int) -> TarSample | None:
    raise AssertionError("a step after a shuffle looks at archives")


def _is_coded(column: Any) -> bool:
    return str(column.type).startswith("dictionary<")


def _before(record: Any, rank: bytes) -> int:
    """Return how many rows come before a random key."""
    high, low = (int.from_bytes(half, "big") for half in (rank[:8], rank[8:]))
    highs, lows = (
        buffer_numbers(column.buffers()[1], column.offset, len(column), "Q")
        for column in (record.column(HIGH), record.column(LOW))
    )
    at = bisect_left(highs, high)
    while at < len(highs) and highs[at] == high and lows[at] < low:
        at += 1
    return at


class _Parts:
    """Record batches, divided by some bits of their random keys.

    Args:
        tmpdir: the directory of temporary files.
        held: bytes that may be in memory.
        level: how many times they were divided before.
    """

    def __init__(self, tmpdir: str | None, held: int, level: int) -> None:
        self._arrow, self._compute = load_pyarrow("a view")[0], load_compute()
        self._tmpdir, self._held, self._level = tmpdir, held, level
        self._waiting: list[Any] = []  # record batches that are not divided yet
        self._waiting_rows = self._waiting_bytes = self._size = self._end = 0
        self._records: list[list[Any]] = [[] for _ in range(1 << BITS)]  # of each part those in memory
        self._extents: list[list[tuple[int, int]]] = [[] for _ in range(1 << BITS)]  # and where others are in the file
        self._file: TemporaryFile | None = None

    def add(self, record: Any) -> None:
        """Add a record batch."""
        self._waiting.append(record)
        self._waiting_rows += len(record)
        self._waiting_bytes += record.nbytes
        if self._waiting_rows >= TOGETHER or self._waiting_bytes > self._held // 4:
            self._divide()

    def in_order(self) -> Iterator[Any]:
        """Yield record batches, sorted by their random keys."""
        self._divide()
        for number, extents in enumerate(self._extents):
            size = sum(stop - start for start, stop in extents)
            if size > self._held and self._level < DEEPEST:
                finer = _Parts(self._tmpdir, self._held, self._level + 1)
                for record in self._of(number):
                    finer.add(record)
                yield from finer.in_order()
            elif records := list(self._of(number)):
                yield self._sorted(self._joined(records))

    def _divide(self) -> None:
        """Give the record batches that are waiting to their parts."""
        if not self._waiting:
            return
        compute, record = self._compute, self._joined(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        shift = 64 - BITS * (self._level + 1)
        parts = compute.bit_wise_and(compute.shift_right(record.column(HIGH), _uint64(shift)), _uint64((1 << BITS) - 1))
        record = record.take(compute.sort_indices(parts))
        begin = 0
        counts = {entry["values"]: entry["counts"] for entry in compute.value_counts(parts).to_pylist()}
        for number in sorted(counts):
            self._records[number].append(record.slice(begin, counts[number]))
            begin += counts[number]
        self._size += record.nbytes
        if self._size > self._held:
            self._spill()

    def _spill(self) -> None:
        """Write the parts in memory to the file."""
        if self._file is None:
            self._file = TemporaryFile(self._tmpdir)
        for number, records in enumerate(self._records):
            if records:
                record, made = self._joined(records), self._arrow.BufferOutputStream()
                with self._arrow.ipc.new_stream(made, record.schema) as writer:
                    writer.write_batch(record)
                data = made.getvalue()
                self._file.write(memoryview(data))
                self._extents[number].append((self._end, self._end + data.size))
                self._end += data.size
                records.clear()
        self._size = 0

    def _of(self, number: int) -> Iterator[Any]:
        """Yield the record batches of a part, in the order in which they came, and remove those in memory."""
        for start, stop in self._extents[number]:
            assert self._file is not None
            yield from self._arrow.ipc.open_stream(self._file.read(start, stop))
        records, self._records[number] = self._records[number], []
        yield from records

    def _joined(self, records: Sequence[Any]) -> Any:
        """Return one record batch of several; a column that one does not have is null there."""
        if len(records) == 1:
            return records[0]
        tables = [self._arrow.Table.from_batches([record]) for record in records]
        [record] = self._arrow.concat_tables(tables, promote_options="default").combine_chunks().to_batches()
        return record

    def _sorted(self, record: Any) -> Any:
        """Return the rows in the order of their random keys; equal ones stay in the order in which they came."""
        compute = self._compute
        high = record.column(HIGH)
        order = compute.sort_indices(high)
        ordered = high.take(order)
        if compute.any(compute.equal(ordered.slice(1), ordered.slice(0, max(len(record) - 1, 0)))).as_py():
            order = compute.sort_indices(record, sort_keys=[(HIGH, "ascending"), (LOW, "ascending")])
        return record.take(order)


def _uint64(number: int) -> Any:
    arrow, _ = load_pyarrow("a view")
    return arrow.scalar(number, arrow.uint64())
