"""Samples of a tree in batches of columns: lists of names take a fraction of the time of a tuple for each file.

Code for single samples uses a Group: `batch.groups()`, and back, `batched(groups)`. A plan stores batches (`dump`).
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, count, groupby, islice, repeat
from operator import itemgetter, ne
from typing import Any, Literal, NamedTuple, Self

from tarkit.tables import recipe

SAMPLES = 4000  # in a batch that is made of groups
_MARSHAL = 2  # without references, which cost more than they save

File = tuple[bytes, int, bytes]
"""Name of an entry, bytes of content, source as in a recipe; an empty source is the file of that name in the tree."""

Group = tuple[bytes, list[File], int]
"""A planned sample: its key, its files, the place of its category in a map."""


class Batch(NamedTuple):
    """Consecutive samples, at least one, all of one category.

    `stops` has for each of the `keys` the end of its files in `names`, `sizes` and `sources`, which are as in a File;
    without `sources` all are empty.
    """

    keys: list[bytes]
    stops: list[int]
    names: list[bytes]
    sizes: list[int]
    sources: list[bytes] | tuple[()] = ()
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
            [end - first for end in stops] if first else stops,
            self.names[files],
            self.sizes[files],
            self.sources and self.sources[files],
            self.category,
        )

    def parts(self, size: int) -> Iterator[Batch]:
        """Yield the samples in parts, each of which ends where its files have reached `size` bytes."""
        totals = list(accumulate(self.sizes, initial=0))
        start = before = 0
        for number, stop in enumerate(self.stops, 1) if totals[-1] > size else ():
            if totals[stop] - before >= size:
                yield self.part(start, number)
                start, before = number, totals[stop]
        if start < len(self.keys):
            yield self.part(start, len(self.keys))

    def groups(self) -> Iterator[Group]:
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


def _batch_of(groups: Sequence[Group], category: int) -> Batch:
    """Return a batch of samples, at least one; each has files."""
    names, sizes, sources = map(list, zip(*(file for _, files, _ in groups for file in files), strict=True))
    stops = list(accumulate(len(files) for _, files, _ in groups))
    return Batch([key for key, _, _ in groups], stops, names, sizes, sources if any(sources) else (), category)


def batched(groups: Iterable[Group]) -> Iterator[Batch]:
    """Yield batches of consecutive samples of one category."""
    for category, of_category in groupby(groups, itemgetter(2)):
        while some := list(islice(of_category, SAMPLES)):
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
    sources: list[bytes] | tuple[()] = ()
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


# ---- Sources: a path, a URL, or literal content

_PREFIXES = (b"file:", b"text:", b"hex:", b"base64:", b"pipe:")


def path_source(path: bytes) -> bytes:
    """Return a path as a source, with the prefix `file:` if it could be something else."""
    return b"file:" + path if path.startswith(_PREFIXES) or b"://" in path else path


def text_source(value: bytes) -> bytes:
    """Return literal content as a source, on one line."""
    if any(byte in value for byte in b"\n\r\t\0"):
        from binascii import b2a_base64

        return b"base64:" + b2a_base64(value, newline=False)
    return b"text:" + value


def parse_source(source: bytes) -> tuple[Literal["path", "data", "url"], bytes]:
    """Return the path or the URL of a source, or its literal content."""
    kind, value = recipe.parse_source(source, pipes_allowed=False, rewrites=False)
    assert kind != "pipe"
    return kind, value
