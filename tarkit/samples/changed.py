"""Samples of a batch with other keys or fields: the bytes of all of them are put together at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import add, eq

from tarkit.samples.columns import TOGETHER, SameFields
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.streams.ranges import HeldRange, JoinedSource
from tarkit.streams.source import Source
from tarkit.tar.header import rename_entry
from tarkit.tar.writer import EntryWriter

Remake = Callable[[int, int], Iterator[TarSample]]
"""Makes the samples with numbers in [begin, stop) of a batch one by one."""


class ChangedBatch(SampleBatch):
    """Samples that were made together, in memory. Iterated over, they are made one by one, each with its origin."""

    __slots__ = ("_begin", "_data", "_remake")

    def __init__(
        self, source: Source, start: int, keys: Sequence[bytes], stops: Sequence[int], data: bytes, remake: Remake
    ) -> None:
        """Make a batch of `data`, which begins at `start`; `remake` makes its samples one by one."""
        held = JoinedSource(source.name, start, [(HeldRange(source.name, start, data), start, start + len(data))])
        super().__init__(held, start, keys, stops)
        self._data, self._remake = data, remake

    @property
    def gathered(self) -> bool:
        """True: a single sample has a source of its own."""
        return True

    def part(self, begin: int, stop: int) -> SampleBatch:
        """Return samples [begin, stop), at least one."""
        start, remake = self.start_of(begin), self._remake
        return ChangedBatch(
            self.source,
            start,
            self.keys[begin:stop],  # type: ignore[arg-type]
            self.stops[begin:stop],
            self._data[start - self.start : self.stops[stop - 1] - self.start],
            lambda low, high: remake(begin + low, begin + high),
        )

    def write(self, writer: EntryWriter, begin: int = 0, end: int | None = None) -> None:
        """Append samples [begin, end) to an archive, by default all."""
        low = self.start_of(begin) - self.start
        high = (self.stop if end is None else self.stops[end - 1]) - self.start
        writer.raw((self._data[low:high],), high - low)

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        return self._remake(0, self.count)


def changed_batch(
    batch: SampleBatch, group: SameFields, keys: Sequence[bytes], kept: Sequence[tuple[int, bytes]], remake: Remake
) -> ChangedBatch | None:
    """Return the samples of a batch, all with the same fields, under other keys, or with some of their fields.

    Args:
        batch: the samples.
        group: the same, as columns.
        keys: their new keys.
        kept: the places of their fields, in the order of the result, with the new names of the fields.
        remake: makes them one by one.

    Returns:
        None for samples that are large, have equal keys, or an entry whose name is not in a header without a prefix.
    """
    shared = group.batch
    if batch.stop - batch.start > TOGETHER or shared.entries is None or any(map(eq, keys, keys[1:])):
        return None
    columns, pieces = shared.entries, list[Sequence[bytes]]()
    for place, field in kept:
        entries = shared.pieces(group.of(columns.starts, place), group.of(columns.stops, place))
        old, new = group.of(columns.names, place), list(map(add, keys, repeat(b"." + field)))
        if list(old) != new:
            renamed = list(map(rename_entry, entries, old, new))
            if None in renamed:
                return None
            entries = renamed  # type: ignore[assignment]
        pieces.append(entries)
    sizes = map(sum, zip(*(map(len, entries) for entries in pieces), strict=True))
    stops = list(accumulate(sizes, initial=batch.start))[1:]
    data = b"".join(chain.from_iterable(zip(*pieces, strict=True)))
    return ChangedBatch(batch.source, batch.start, keys, stops, data, remake)
