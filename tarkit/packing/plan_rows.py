"""Rows of a plan, many at a time and in columns, as they wait in a file between planning and packing."""

from __future__ import annotations

import marshal
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from operator import sub
from typing import NamedTuple, Self

from tarkit.packing.batch import ends_of_runs
from tarkit.packing.plan import Planned

PackRow = tuple[bytes, int, bytes, bytes, int, int]
"""A Planned as a plain tuple, and its line in the plan; 0 where that was not saved."""

_MARSHAL = 2  # without references, which cost more than they save


class RowBatch(NamedTuple):
    """Rows of one shard, at least one.

    Rows of one position follow each other: `stops` has where those of each of the `numbers` end. Where `given` is None
    sources are `front` and what names have from `skip` on; `lines` None says that the plan was not saved.
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

    @property
    def positions(self) -> list[int]:
        """That of each row."""
        lengths = map(sub, self.stops, [0, *self.stops])
        return list(chain.from_iterable(map(repeat, self.numbers, lengths)))

    @property
    def sources(self) -> list[bytes]:
        """Where the content of each is, as in a plan."""
        if self.given is not None:
            return self.given
        return [self.front + path for path in self.inner]

    @property
    def folder(self) -> bytes | None:
        """The folder that all sources are `inner` paths of, as files and not as what a mark could say."""
        return self.front if self.given is None and self.front and b":" not in self.front else None

    @property
    def inner(self) -> list[bytes]:
        """Their paths in that folder."""
        return [name[self.skip :] for name in self.names] if self.skip else self.names

    @property
    def has_marks(self) -> bool:
        """Whether a source may be something else than a path: there is a colon in one that was given."""
        return self.given is not None and b":" in b"".join(self.given)

    def row(self, at: int) -> PackRow:
        """One of the rows."""
        source = self.front + self.names[at][self.skip :] if self.given is None else self.given[at]
        line = self.lines[at] if self.lines else 0
        number = self.numbers[bisect_right(self.stops, at)]
        return self.shard, number, self.names[at], source, self.sizes[at], line

    def rows(self) -> Iterator[PackRow]:
        """The rows one by one."""
        return zip(repeat(self.shard), self.positions, self.names, self.sources, self.sizes, self.lines or repeat(0))

    @classmethod
    def of(cls, rows: Iterable[PackRow]) -> Self:
        """These rows, at least one, of one shard."""
        shards, positions, names, sources, sizes, lines = map(list, zip(*rows, strict=True))
        stops = ends_of_runs(positions)
        return cls(shards[0], [positions[stop - 1] for stop in stops], stops, names, sizes, sources, lines=lines)

    def dump(self) -> bytes:
        """All of it, for `load`."""
        return marshal.dumps(tuple(self), _MARSHAL)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """What `dump` gave."""
        return cls._make(marshal.loads(data))


class Rows:
    """The rows of a layout, as often as one likes; `batches` hands them back many at a time. Shards come one after the
    other, samples by position."""

    def __init__(self, batches: Callable[[], Iterator[RowBatch]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Planned]:
        """Yield them one by one."""
        return (Planned(*row[:5]) for batch in self.batches() for row in batch.rows())
