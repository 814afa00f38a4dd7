"""Whether the names that a shard gets make whole samples, for many rows at once and at the speed of C.

`ManyNames` accepts what is surely well. What it does not accept is looked at name by name: then there is an error that
names the row, or it was well all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import le

from tarkit.packing.samples import cut_first
from tarkit.sorting.runs import DuplicateKeys

NUL = b"\0"
HELD = 16 << 20  # bytes of hashes in memory

_DOTTED = re.compile(rb"\.[^/\0]*/")  # a folder with a dot in its name


class ManyNames:
    """The names of one shard. `samples` have begun so far, with keys of these `hashes`; `first` and `last`
    are their keys."""

    def __init__(self) -> None:
        self.samples = 0
        self.first: bytes | None = None
        self.last: bytes | None = None
        self.hashes: set[int] = set()
        self._tail: set[bytes] = set()

    def accept(self, names: Sequence[bytes]) -> bool:
        """Whether `names`, after those before, are surely safe, none twice, and those of one key together."""
        text = NUL + NUL.join(names) + NUL
        if text.count(NUL) != len(names) + 1 or b"\0\0" in text or b"\0/" in text or b"/\0" in text or b".." in text:
            return False
        if b"\0." in text or b"/." in text or len(set(names)) != len(names) or not self._tail.isdisjoint(names):
            return False
        # No base name begins with a dot, so one that has a dot has a key.
        if _DOTTED.search(text):
            dots = [name.find(b".", name.rfind(b"/") + 1) for name in names]
            keys = [name[:dot] for name, dot in zip(names, dots, strict=True) if dot >= 0]
        else:
            keys = [key for name in names for key, dot, _ in (name.partition(b"."),) if dot]
        if len(keys) < len(names):
            return False
        each = [key for key, _ in groupby(keys)]
        again = each[0] == self.last
        hashes = set(map(hash, each))
        if len(hashes) != len(each) or not self.hashes.isdisjoint(hashes - {hash(self.last)} if again else hashes):
            return False
        self.hashes |= hashes
        self.samples += len(each) - again
        self.first = each[0] if self.first is None else self.first
        self.last = each[-1]
        start = keys.index(self.last)
        self._tail = set(names[start:]) | (self._tail if again and start == 0 else set())
        return True


def ascend(numbers: Sequence[int]) -> bool:
    """Whether none is smaller than the one before."""
    return all(map(le, numbers, numbers[1:]))


def keys_of(names: Iterable[bytes]) -> Iterator[bytes]:
    """The keys of the samples in a shard, whose names are together."""
    return (key for key, _ in groupby(cut_first(name)[0] for name in names))


def in_several(shards: Callable[[], Iterable[Iterable[bytes]]], tmpdir: str | None) -> tuple[int, bytes]:
    """How many keys have entries in more than one shard, and the first of them; `shards` gives the names in each."""
    twins = DuplicateKeys(HELD, tmpdir)
    for key in chain.from_iterable(map(keys_of, shards())):
        twins.add(hash(key))
    marks = twins.marked() or b""
    found = [key for mark, key in zip(marks, chain.from_iterable(map(keys_of, shards())), strict=False) if mark]
    return len(set(found)), found[0] if found else b""
