"""Choose rows of views by their keys and columns; samples of other inputs pass by, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import repeat
from typing import Any

from tarkit.choosing.select import Select
from tarkit.choosing.where import Where
from tarkit.problems import Policy
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.tables.parquet import load_compute
from tarkit.tables.vectors import Columns, vector_of
from tarkit.views.batch import RowBatch, mask_of

COUNTED = ("int64", "int32", "string")  # types of columns of which each value is evaluated once,
FEW = 4  # if it comes as often as this
SINGLY = 256  # rows at most that are evaluated alone before the next ones are passed on


class _Item(TarSample):
    """A sample of a batch of rows, of which the key is known."""

    __slots__ = ("batch", "number")

    def __init__(self, key: bytes, batch: RowBatch, number: int) -> None:
        self.key, self.batch, self.number = key, batch, number


def choose_rows(select: Select, batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Return the samples that `select` chooses: rows together, by their keys and columns, others one by one."""
    if select.where is None:
        return _by_key(select, batches, policy)
    first = Select(match=select.match, keys=select.keys, exclude_keys=select.exclude_keys)
    last = replace(select, match=None, keys=None, exclude_keys=None, where=None)
    if not first.all:
        batches = _by_key(first, batches, policy)
    batches = _by_columns(select.where, batches, policy)
    return batches if last.all else _by_key(last, batches, policy)


def _by_key(select: Select, batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Yield the samples that are chosen without a look at their values."""

    def items() -> Iterator[TarSample]:
        for batch in batches:
            if isinstance(batch, RowBatch):
                yield from (_Item(key, batch, number) for number, key in enumerate(batch.keys))
            else:
                yield from batch

    batch: RowBatch | None = None
    flags = bytearray()
    for item in select(items(), policy):
        if batch is not None and (not isinstance(item, _Item) or item.batch is not batch):
            yield from _apart(batch, mask_of(flags))
            batch = None
        if not isinstance(item, _Item):
            yield item
            continue
        if batch is None:
            batch, flags = item.batch, bytearray(item.batch.count)
        flags[item.number] = 1
    if batch is not None:
        yield from _apart(batch, mask_of(flags))


def _by_columns(where: Where, batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Yield the samples that an expression selects, whose names are columns of all views."""
    for batch in batches:
        if isinstance(batch, RowBatch):
            yield from _chosen(where, batch, policy)
        else:
            yield from (sample for sample in batch if sample.key is not None and where(sample, policy))


def _chosen(where: Where, batch: RowBatch, policy: Policy) -> Iterator[SampleBatch]:
    """Yield the rows that are selected: by columns, but where one of these is null by the archive.

    Rows of which one may be a problem are halved, to few that are evaluated in turn, and an archive is read in the turn
    of its row: an error behind the rows that are taken is none.
    """
    columns = {name: batch.column(name) for name in where.names}
    incomplete = [column for column in columns.values() if column.null_count]
    valid = None
    if incomplete:
        compute = load_compute()
        valid = reduce(compute.and_, (column.is_valid() for column in incomplete))
        columns = {name: each.filter(valid) for name, each in columns.items()}
    flags = _together(where, columns, batch.count if valid is None else valid.true_count)
    if flags is None and batch.count > SINGLY:
        half = batch.count // 2
        yield from _chosen(where, batch.part(0, half), policy)
        yield from _chosen(where, batch.part(half, batch.count), policy)
    elif flags is None or valid is not None:
        yield from _in_turn(where, batch, valid, flags, policy)
    else:
        yield from _apart(batch, flags)


def _in_turn(where: Where, batch: RowBatch, valid: Any, flags: Any, policy: Policy) -> Iterator[SampleBatch]:
    """Yield the rows that are selected, in parts of more and more rows that are evaluated alone; the first has none.

    An error of a row comes behind the rows in front of it. `flags` has those of the rows that are valid, or is None.
    """
    known = None if flags is None else iter(flags.to_pylist())
    complete = repeat(True) if valid is None else valid.to_pylist()
    selected = bytearray(batch.count)
    begin = alone = most = 0
    for number, (sample, has_all) in enumerate(zip(batch.samples(), complete, strict=False)):
        if has_all and known is not None:
            selected[number] = next(known)
            continue
        if alone >= most and number > begin:
            yield from _apart(batch.part(begin, number), mask_of(selected[begin:number]))
            begin, alone, most = number, 0, min(2 * most + 1, SINGLY)
        try:
            read = sample if has_all else batch.sample(number)
            selected[number] = read is not None and where(read, policy)
        except Exception:
            if number > begin:
                yield from _apart(batch.part(begin, number), mask_of(selected[begin:number]))
            raise
        alone += 1
    yield from _apart(batch.part(begin, batch.count), mask_of(selected[begin:]))


def _together(where: Where, columns: Mapping[str, Any], count: int) -> Any | None:
    """Return the flags of rows with all values; None if one may be a problem."""
    if len(columns) == 1:
        [column] = columns.values()
        if str(column.type) in COUNTED:
            encoded = column.dictionary_encode()
            if len(encoded.dictionary) <= count // FEW:
                flags = where.flags(Columns(len(encoded.dictionary), lambda name: vector_of(encoded.dictionary)))
                return None if flags is None else mask_of(flags).take(encoded.indices)
    flags = where.flags(Columns(count, lambda name: vector_of(columns[name])))
    return None if flags is None else mask_of(flags)


def _apart(batch: RowBatch, flags: Any) -> Iterator[SampleBatch]:
    """Yield the samples whose flag is true, in batches in which keys of neighbours differ."""
    chosen = batch.chosen(flags)
    if chosen is not None:
        yield from (chosen,) if chosen is batch else chosen.apart()
