"""Whether the names that a shard gets make whole samples, for many rows at once and at the speed of C.

`Batches` accepts what is surely well. What it does not accept is looked at name by name: then there is an error that
names the row, or it was well all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import le

NUL = b"\0"


class Batches:
    """The names of one shard, in batches. `samples` have begun so far; `first` and `last` are their keys."""

    def __init__(self) -> None:
        self.samples = 0
        self.first: bytes | None = None
        self.last: bytes | None = None
        self._seen: set[int] = set()
        self._tail: set[bytes] = set()

    def accept(self, names: Sequence[bytes]) -> bool:
        """Whether `names`, after those before, are surely safe, none twice, and those of one key together."""
        text = NUL + NUL.join(names) + NUL
        if text.count(NUL) != len(names) + 1 or b"\0\0" in text or b"\0/" in text or b"/\0" in text or b".." in text:
            return False
        if b"\0." in text or b"/." in text or len(set(names)) != len(names) or not self._tail.isdisjoint(names):
            return False
        # No base name begins with a dot, so one that has a dot has a key.
        dots = [name.find(b".", name.rfind(b"/") + 1) for name in names]
        if min(dots) < 0:
            return False
        keys = [name[:dot] for name, dot in zip(names, dots, strict=True)]
        each = [key for key, _ in groupby(keys)]
        again = each[0] == self.last
        hashes = set(map(hash, each))
        if len(hashes) != len(each) or not self._seen.isdisjoint(hashes - {hash(self.last)} if again else hashes):
            return False
        self._seen |= hashes
        self.samples += len(each) - again
        self.first = each[0] if self.first is None else self.first
        self.last = each[-1]
        start = keys.index(self.last)
        self._tail = set(names[start:]) | (self._tail if again and start == 0 else set())
        return True


def ascend(numbers: Sequence[int]) -> bool:
    """Whether none is smaller than the one before."""
    return all(map(le, numbers, numbers[1:]))
