"""How sizes are spread: counted one by one while they are few, then in narrow classes, so that memory is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

DISTINCT = 1 << 16  # sizes that are counted one by one
BITS = 8  # leading bits that tell classes apart: one is at most 1/256 of its size wide


class Sizes:
    """Sizes in bytes: how many, their sum, the least, the most, and how they are spread."""

    __slots__ = ("bytes", "count", "counts", "exact")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.counts: Counter[int] = Counter()
        self.exact = True

    def add(self, sizes: list[int]) -> None:
        """Count `sizes` too."""
        self.count += len(sizes)
        self.bytes += sum(sizes)
        self._count(Counter(sizes).items())

    def merge(self, other: Sizes) -> None:
        """Count those of `other` too."""
        self.count += other.count
        self.bytes += other.bytes
        if not other.exact:
            self._coarsen()
        self._count(other.counts.items())

    def _count(self, items: Iterable[tuple[int, int]]) -> None:
        counts = self.counts
        for size, count in items:
            counts[size if self.exact else _class(size)] += count
        if self.exact and len(counts) > DISTINCT:
            self._coarsen()

    def _coarsen(self) -> None:
        if self.exact:
            self.exact = False
            ends = (min(self.counts, default=0), max(self.counts, default=0))
            counts, self.counts = self.counts, Counter()
            for size, count in counts.items():
                self.counts[size if size in ends else _class(size)] += count

    @property
    def least(self) -> int:
        """The smallest."""
        return min(self.counts, default=0)

    @property
    def most(self) -> int:
        """The largest."""
        return max(self.counts, default=0)

    @property
    def median(self) -> int:
        """The one in the middle, of two the smaller; of more than 65536 different ones its class, at most 1/256 off."""
        passed, half = 0, (self.count + 1) // 2
        for size in sorted(self.counts):
            passed += self.counts[size]
            if passed >= half:
                return size
        return 0

    def bins(self) -> list[tuple[int, int, int]]:
        """From, to, how many, by powers of two; without gaps. What is empty is a bin of its own."""
        found: Counter[int] = Counter()
        for size, count in self.counts.items():
            found[size.bit_length()] += count
        if not found:
            return []
        return [
            (1 << level >> 1, max((1 << level) - 1, 0), found[level]) for level in range(min(found), max(found) + 1)
        ]


def _class(size: int) -> int:
    """The smallest size of the class."""
    low = max(size.bit_length() - BITS - 1, 0)
    return size >> low << low
