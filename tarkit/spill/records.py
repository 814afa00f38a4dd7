"""A list of any length: in memory while it is short, then in a temporary file; and pairs sorted in such lists."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from tarkit.spill.runs import SortedRuns, pack, rests_of
from tarkit.streams.tempfile import TemporaryFile

HELD = 16 << 20  # bytes in memory
BATCH = 256  # items that are marshalled together
SORTED = 64 << 20  # bytes of pairs in memory

Item = TypeVar("Item")


class SpilledList(Generic[Item]):
    """Items of numbers, bytes, None, tuples and lists; to be iterated over any number of times."""

    def __init__(self, tmpdir: str | None) -> None:
        self.count = 0
        self._tmpdir = tmpdir
        self._held = 0
        self._latest: list[Item] = []
        self._blobs: list[bytes] = []
        self._file: TemporaryFile | None = None
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return self.count

    def append(self, item: Item) -> None:
        """Append an item, which must not be changed afterwards."""
        self.extend((item,))

    def extend(self, items: Sequence[Item]) -> None:
        """Append items, which are marshalled together."""
        self._latest += items
        self.count += len(items)
        if len(self._latest) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        blob = marshal.dumps(self._latest, 2)  # 2: without references, which take time
        self._latest = []
        self._blobs.append(blob)
        self._held += len(blob)
        if self._held > HELD:
            self._file = self._file or TemporaryFile(self._tmpdir)
            for chunk in self._blobs:
                self._ends.append(self._ends[-1] + len(chunk))
            self._file.write(b"".join(self._blobs))
            self._blobs, self._held = [], 0

    def __iter__(self) -> Iterator[Item]:
        """Yield the items; nothing may be appended meanwhile."""
        for number in range(len(self._ends) - 1):
            assert self._file is not None
            yield from marshal.loads(self._file.read(self._ends[number], self._ends[number + 1]))
        for blob in self._blobs:
            yield from marshal.loads(blob)
        yield from self._latest


def by_rank(pairs: Iterable[tuple[bytes, bytes]], tmpdir: str | None) -> Iterator[bytes]:
    """Yield the values of pairs (rank, value) in the order of their ranks; the sort is stable."""
    runs, remaining = SortedRuns(tmpdir, SORTED), iter(pairs)
    while batch := list(islice(remaining, BATCH)):
        runs.extend([pack(rank, ordinal, value) for ordinal, (rank, value) in enumerate(batch, runs.count)])
    for block in runs.blocks():
        yield from rests_of(block)
