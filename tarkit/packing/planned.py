"""Planned files and samples, before their contents are read.

They are in batches of columns: lists of names take a fraction of the time of a tuple for each file. Code for single
samples uses a PlannedSample: `batch.samples()`, and back, `batched(samples)`. A plan stores batches (`dump`).
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, groupby, islice, repeat
from operator import itemgetter, ne
from typing import Any, NamedTuple, Self

from tarkit.tables import recipe
from tarkit.tables.recipe import Kind
from tarkit.tar.block import COLON

SAMPLES = 4000  # in a batch that is made of samples
_MARSHAL = 2  # without references, which cost more than they save

PlannedFile = tuple[bytes, int, bytes]
"""Name of an entry, bytes of content, source as in a recipe; an empty source is the file of that name in the tree."""

PlannedSample = tuple[bytes, list[PlannedFile], int]
"""A planned sample: its key, its files, the place of its category in a map."""


class PlannedBatch(NamedTuple):
    """Consecutive samples, at least one, all of one category.

    `stops` has for each of the `keys` the end of its files in `names`, `sizes` and `sources`, which are as in a
    PlannedFile; without `sources` all are empty.
    """

    keys: list[bytes]
    stops: list[int]
    names: list[bytes]
    sizes: list[int]
    sources: list[bytes] | tuple[()] = ()
    category: int = 0

    def part(self, start: int, stop: int) -> PlannedBatch:
        """Return the samples [start, stop), at least one."""
        if stop - start == len(self.keys):
            return self
        first = self.stops[start - 1] if start else 0
        files = slice(first, self.stops[stop - 1])
        stops = self.stops[start:stop]
        return PlannedBatch(
            self.keys[start:stop],
            [end - first for end in stops] if first else stops,
            self.names[files],
            self.sizes[files],
            self.sources and self.sources[files],
            self.category,
        )

    def samples(self) -> Iterator[PlannedSample]:
        """Yield the samples one by one."""
        files = list(zip(self.names, self.sizes, self.sources or repeat(b"", len(self.names)), strict=True))
        start = 0
        for key, stop in zip(self.keys, self.stops, strict=True):
            yield key, files[start:stop], self.category
            start = stop

    def dump(self) -> bytes:
        """Return the batch as bytes for `load`."""
        return marshal.dumps(tuple(self), _MARSHAL)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Return the batch that `dump` made into bytes."""
        return cls._make(marshal.loads(data))


def _batch_of(samples: Sequence[PlannedSample], category: int) -> PlannedBatch:
    """Return a batch of samples, at least one; each has files."""
    names, sizes, sources = map(list, zip(*(file for _, files, _ in samples for file in files), strict=True))
    stops = list(accumulate(len(files) for _, files, _ in samples))
    return PlannedBatch([key for key, _, _ in samples], stops, names, sizes, sources if any(sources) else (), category)


def batched(samples: Iterable[PlannedSample]) -> Iterator[PlannedBatch]:
    """Yield batches of consecutive samples of one category."""
    for category, of_category in groupby(samples, itemgetter(2)):
        while some := list(islice(of_category, SAMPLES)):
            yield _batch_of(some, category)


def ends_of_runs(items: Sequence[Any]) -> list[int]:
    """Return the ends of runs of equal items; there is at least one item."""
    return [*compress(count(1), map(ne, items, islice(items, 1, None))), len(items)]


def together(batches: Sequence[PlannedBatch]) -> PlannedBatch:
    """Return one batch of several, at least one, of one category."""
    if len(batches) == 1:
        return batches[0]
    ends = accumulate((len(batch.names) for batch in batches), initial=0)
    flat = chain.from_iterable
    sources: list[bytes] | tuple[()] = ()
    if any(batch.sources for batch in batches):
        sources = list(flat(batch.sources or repeat(b"", len(batch.names)) for batch in batches))
    return PlannedBatch(
        list(flat(batch.keys for batch in batches)),
        [end + stop for end, batch in zip(ends, batches, strict=False) for stop in batch.stops],
        list(flat(batch.names for batch in batches)),
        list(flat(batch.sizes for batch in batches)),
        sources,
        batches[0].category,
    )


def parse_source(source: bytes) -> tuple[Kind, bytes]:
    """Return the path or the URL of a planned source, or its literal content. Rules for URLs were applied before."""
    return recipe.parse_source(source, pipes_allowed=False, rewrites=False) if COLON in source else ("path", source)
