"""Sets of byte strings of any size: in memory while they are small, then in temporary files, compared exactly.

A stored set is a hash table: its items are in buckets of about `BUCKET`, by a hash. A lookup reads one bucket, and
looks for the item between two NUL: no item in it has one. In memory there are the places of the buckets, 0.3 bytes an
item. Items come to the file in two steps, so that memory is bounded: first to parts by some bits of the hash, then part
by part to their buckets. An item is not empty.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from tarkit.streams.tempfile import TemporaryFile

HELD = 1 << 20  # items of a set in memory: 100 to 200 MB
WRITTEN = 1 << 19  # items that are divided into parts together
BUCKET = 64  # items
MOST = 16  # stored sets of a growing one
FILTER = 1 << 26  # bytes of the bits by which most new items need no lookup in these

_PARTS = 1024  # a power of 2
_PART_BITS = _PARTS.bit_length() - 1
_SLICE = 1 << 12  # items that are divided together
_READ = 1 << 20  # bytes that are read together


class StoredSet:
    """Items in a temporary file, each once."""

    def __init__(self, items: Iterable[bytes], tmpdir: str | None) -> None:
        self.tmpdir = tmpdir
        self._file = TemporaryFile(tmpdir)
        self._starts = array("Q", (0,))  # of each bucket in the file, and the end of the last one
        self._counts = array("Q", (0,))  # of the items before it
        self._parts: list[tuple[int, int]] = []  # the first bucket of each, and the mask for the hash
        self._last: tuple[bytes, int | None] = b"", None  # what was looked up last
        for part in _Parts(items, tmpdir).read():
            self._store(part)

    def _store(self, items: dict[bytes, None]) -> None:
        """Write the items of the next part, as `_escaped` returns them."""
        mask = (1 << max(len(items) // BUCKET, 1).bit_length() - 1) - 1
        self._parts.append((len(self._starts) - 1, mask))
        buckets: list[list[bytes]] = [[] for _ in range(mask + 1)]
        for item, number in zip(items, map(hash, items), strict=True):
            buckets[number >> _PART_BITS & mask].append(item)
        pieces = []
        for bucket in buckets:
            pieces.append(b"\0%b\0" % b"\0".join(bucket) if bucket else b"")
            self._starts.append(self._starts[-1] + len(pieces[-1]))
            self._counts.append(self._counts[-1] + len(bucket))
        self._file.write(b"".join(pieces))

    def __len__(self) -> int:
        return self._counts[-1]

    def number(self, item: bytes) -> int | None:
        """Return the number of an item among all, from 0; None if it is not there."""
        if self._last[0] == item:
            return self._last[1]
        escaped = _escaped(item)
        hashed = hash(escaped)
        first, mask = self._parts[hashed & _PARTS - 1]
        bucket = first + (hashed >> _PART_BITS & mask)
        data, number = self._file.read(self._starts[bucket], self._starts[bucket + 1]), None
        at = data.find(b"\0%b\0" % escaped)
        if at >= 0:
            number = self._counts[bucket] + data.count(b"\0", 0, at)
        self._last = item, number
        return number

    def __contains__(self, item: bytes) -> bool:
        return self.number(item) is not None

    def __iter__(self) -> Iterator[bytes]:
        """Yield the items in the order of their numbers."""
        starts, at = self._starts, 0
        while at < len(starts) - 1:
            stop = min(max(bisect_left(starts, starts[at] + _READ, at), at + 1), len(starts) - 1)
            yield from map(_unescaped, filter(None, self._file.read(starts[at], starts[stop]).split(b"\0")))
            at = stop


class _Parts:
    """Items in a temporary file, to be read part by part."""

    def __init__(self, items: Iterable[bytes], tmpdir: str | None) -> None:
        self._file = TemporaryFile(tmpdir)
        self._starts: list[array[int]] = []  # of the parts of those that were written together, and their end
        waiting: list[list[bytes]] = [[] for _ in range(_PARTS)]
        items, count = iter(items), 0
        while some := list(map(_escaped, islice(items, _SLICE))):
            for item, number in zip(some, map(hash, some), strict=True):
                waiting[number & _PARTS - 1].append(item)
            count += len(some)
            if count >= WRITTEN:
                self._write(waiting)
                count = 0
        self._write(waiting)

    def _write(self, waiting: list[list[bytes]]) -> None:
        starts, pieces = array("Q", (self._starts[-1][-1] if self._starts else 0,)), []
        for part in waiting:
            pieces.append(b"\0".join(part))
            starts.append(starts[-1] + len(pieces[-1]))
            part.clear()
        self._file.write(b"".join(pieces))
        self._starts.append(starts)

    def read(self) -> Iterator[dict[bytes, None]]:
        """Yield the items of each part, each once."""
        for part in range(_PARTS):
            ranges = [(starts[part], starts[part + 1]) for starts in self._starts]
            yield dict.fromkeys(
                chain.from_iterable(self._file.read(low, high).split(b"\0") for low, high in ranges if low < high)
            )


class Marks:
    """Which items of a stored set were added: a bit for each."""

    def __init__(self, of: StoredSet) -> None:
        self._of = of
        self.tmpdir = of.tmpdir
        self._bits = bytearray(len(of) // 8 + 1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: bytes) -> None:
        """Add an item of the set."""
        number = self._of.number(item)
        assert number is not None
        bit = 1 << number % 8
        self._count += not self._bits[number // 8] & bit
        self._bits[number // 8] |= bit

    def others(self) -> Iterator[bytes]:
        """Yield the items of the set that were not added."""
        bits = self._bits
        return (item for number, item in enumerate(self._of) if not bits[number // 8] >> number % 8 & 1)


class GrowingSet:
    """Items that are added one by one; `HELD` of them may be in memory.

    Of stored ones a bit at the place of a hash is set: where it is not, the item is new.
    """

    def __init__(self, tmpdir: str | None) -> None:
        self._tmpdir = tmpdir
        self._filter = bytearray()
        self._recent: set[bytes] = set()
        self._stored: list[StoredSet] = []

    def add(self, item: bytes) -> bool:
        """Add an item; return whether it is new."""
        if item in self._recent or (self._stored and self._is_stored(item)):
            return False
        self._recent.add(item)
        if len(self._recent) >= HELD:
            self._store()
        return True

    def _is_stored(self, item: bytes) -> bool:
        at, bit = divmod(hash(item) % (8 * len(self._filter)), 8)
        return bool(self._filter[at] >> bit & 1) and any(item in stored for stored in self._stored)

    def _store(self) -> None:
        """Move the items in memory to the disk; those of many sets become one."""
        bits = self._filter = self._filter or bytearray(FILTER)
        for number in map(hash, self._recent):
            at, bit = divmod(number % (8 * FILTER), 8)
            bits[at] |= 1 << bit
        if len(self._stored) < MOST:
            self._stored.append(StoredSet(self._recent, self._tmpdir))
        else:
            self._stored = [StoredSet(chain(self._recent, *self._stored), self._tmpdir)]
        self._recent = set()


def set_of(items: Iterable[bytes], tmpdir: str | None) -> frozenset[bytes] | StoredSet:
    """Return a set of items: in memory if at most `HELD` come, counted with those that come twice."""
    items = iter(items)
    first = list(islice(items, HELD + 1))
    return frozenset(first) if len(first) <= HELD else StoredSet(chain(_emptied(first), items), tmpdir)


def _emptied(items: list[bytes]) -> Iterator[bytes]:
    """Yield items, and free them."""
    items.reverse()
    while items:
        yield items.pop()


def _escaped(item: bytes) -> bytes:
    """Return an item without NUL."""
    return item.replace(b"\1", b"\1\1").replace(b"\0", b"\1\2") if 0 in item or 1 in item else item


def _unescaped(item: bytes) -> bytes:
    if 1 not in item:
        return item
    return b"\1".join(part.replace(b"\1\2", b"\0") for part in item.split(b"\1\1"))
