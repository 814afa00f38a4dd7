"""Samples of a tree in batches of columns: lists of names take a fraction of the time of a tuple for each file.

Code for single samples uses a Group: `batch.groups()`, and back, `batched(groups)`.
"""

from __future__ import annotations

import marshal
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, groupby, islice, repeat
from operator import itemgetter, ne, sub
from typing import Any, NamedTuple, Self

from tarkit.packing.plan import Planned

SAMPLES = 4000  # in a batch that is made of groups

File = tuple[bytes, int, bytes]
"""Name of an entry, bytes of content, source; an empty source is the file of that name in the tree."""


Group = tuple[bytes, list[File], int]
"""A planned sample: its key, its files, the place of its category in a map."""


class Batch(NamedTuple):
    """Consecutive samples, at least one, all of one category.

    `stops` has for each of the `keys` the end of its files in `names`, `sizes` and `sources`, which are as in a File;
    `sources` None stands for empty ones.
    """

    keys: list[bytes]
    stops: list[int]
    names: list[bytes]
    sizes: list[int]
    sources: list[bytes] | None = None
    category: int = 0

    def part(self, start: int, stop: int) -> Batch:
        """Return the samples [start, stop), at least one."""
        if stop - start == len(self.keys):
            return self
        first = self.stops[start - 1] if start else 0
        files = slice(first, self.stops[stop - 1])
        stops = self.stops[start:stop]
        return Batch(
            self.keys[start:stop],
            [each - first for each in stops] if first else stops,
            self.names[files],
            self.sizes[files],
            self.sources and self.sources[files],
            self.category,
        )

    def groups(self) -> Iterator[Group]:
        """Yield the samples one by one."""
        files = list(zip(self.names, self.sizes, self.sources or repeat(b"", len(self.names)), strict=True))
        start = 0
        for key, stop in zip(self.keys, self.stops, strict=True):
            yield key, files[start:stop], self.category
            start = stop


def _batch_of(groups: Sequence[Group], category: int) -> Batch:
    """Return a batch of samples, at least one; each has files."""
    names, sizes, sources = map(list, zip(*(file for _, files, _ in groups for file in files), strict=True))
    stops = list(accumulate(len(files) for _, files, _ in groups))
    return Batch([key for key, _, _ in groups], stops, names, sizes, sources if any(sources) else None, category)


def batched(groups: Iterable[Group]) -> Iterator[Batch]:
    """Yield batches of consecutive samples of one category."""
    for category, each in groupby(groups, itemgetter(2)):
        while some := list(islice(each, SAMPLES)):
            yield _batch_of(some, category)


def ends_of_runs(items: Sequence[Any]) -> list[int]:
    """Return the ends of runs of equal items; there is at least one item."""
    return [*compress(count(1), map(ne, items, islice(items, 1, None))), len(items)]


def together(batches: Sequence[Batch]) -> Batch:
    """Return one batch of several, at least one, of one category."""
    if len(batches) == 1:
        return batches[0]
    ends = accumulate((len(batch.names) for batch in batches), initial=0)
    flat = chain.from_iterable
    sources = None
    if any(batch.sources for batch in batches):
        sources = list(flat(batch.sources or repeat(b"", len(batch.names)) for batch in batches))
    return Batch(
        list(flat(batch.keys for batch in batches)),
        [end + stop for end, batch in zip(ends, batches, strict=False) for stop in batch.stops],
        list(flat(batch.names for batch in batches)),
        list(flat(batch.sizes for batch in batches)),
        sources,
        batches[0].category,
    )


# ---- Rows of a plan in batches of columns, as they are stored in a file between planning and packing

_MARSHAL = 2  # without references, which cost more than they save


class RowBatch(NamedTuple):
    """Rows of one shard, at least one.

    Rows of one position follow each other: `stops` has the ends of those of each of the `numbers`. With `given` None
    the source of a row is `front` and its name from `skip` on. `lines` are those of a saved plan; `keys` those of a
    layout. Sources that are objects were not modified after the time `newest`, if there is one, and have these
    `versions`, as `files.version_mark` makes them, b"" for one that is not known.
    """

    shard: bytes
    numbers: list[int]
    stops: list[int]
    names: list[bytes]
    sizes: list[int]
    given: list[bytes] | None
    front: bytes = b""
    skip: int = 0
    lines: list[int] | None = None
    keys: list[bytes] | None = None
    newest: int | None = None
    versions: list[bytes] | None = None

    @property
    def positions(self) -> list[int]:
        """The position of each row."""
        lengths = map(sub, self.stops, [0, *self.stops])
        return list(chain.from_iterable(map(repeat, self.numbers, lengths)))

    @property
    def sources(self) -> list[bytes]:
        """The source of each row, as in a plan."""
        if self.given is not None:
            return self.given
        return [self.front + name[self.skip :] for name in self.names]

    @property
    def has_marks(self) -> bool:
        """Whether a source may not be a path, since it has a colon."""
        return self.given is not None and b":" in b"".join(self.given)

    @property
    def has_urls(self) -> bool:
        """Whether a source may be a URL."""
        return b"://" in (self.front if self.given is None else b"\0".join(self.given))

    def row(self, at: int) -> Planned:
        """Return one row."""
        source = self.front + self.names[at][self.skip :] if self.given is None else self.given[at]
        line = self.lines[at] if self.lines else 0
        number = self.numbers[bisect_right(self.stops, at)]
        return Planned(self.shard, number, self.names[at], source, self.sizes[at], line)

    def samples(self) -> Iterator[tuple[bytes, list[File]]]:
        """Yield the keys and the files of a layout's samples."""
        files = list(zip(self.names, self.sizes, self.sources, strict=True))
        for key, start, stop in zip(self.keys or (), [0, *self.stops], self.stops, strict=False):
            yield key, files[start:stop]

    def rows(self) -> Iterator[Planned]:
        """Yield the rows."""
        lines = self.lines or repeat(0)
        columns = zip(repeat(self.shard), self.positions, self.names, self.sources, self.sizes, lines)
        return map(Planned._make, columns)

    @classmethod
    def of(cls, rows: Iterable[Planned]) -> Self:
        """Return a batch of rows, at least one, of one shard."""
        shards, positions, names, sources, sizes, lines = map(list, zip(*rows, strict=True))
        stops = ends_of_runs(positions)
        return cls(shards[0], [positions[stop - 1] for stop in stops], stops, names, sizes, sources, lines=lines)

    def dump(self) -> bytes:
        """Return the batch as bytes for `load`."""
        return marshal.dumps(tuple(self), _MARSHAL)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Return the batch that `dump` made into bytes."""
        return cls._make(marshal.loads(data))


Extent = tuple[int, int]
"""Start and stop of a RowBatch in a file."""


def load_rows(read: Callable[[int, int], bytes], extents: Iterable[Extent]) -> Iterator[RowBatch]:
    """Yield the batches at these extents."""
    return (RowBatch.load(read(start, stop)) for start, stop in extents)
