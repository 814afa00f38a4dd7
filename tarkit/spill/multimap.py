"""A multimap of any size in bounded memory: records (key, value), read grouped by key.

A partitioned hash table: records go to one of 256 parts by a checksum of their key. When all parts together exceed
`HELD` bytes, they are appended to a temporary file and emptied. To read, one part after the other is loaded into a
dict, which compares the keys themselves. A part that is too large for memory is partitioned again by other bits of the
checksum. So a record is usually written at most twice, and memory is bounded unless very many records have one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import TypeVar
from zlib import crc32

from tarkit.streams.tempfile import TemporaryFile

HELD = 64 << 20  # bytes of records in memory
FEW = 1 << 18  # bytes of records that are kept in one part
PARTS = 256
RUN = 1 << 17  # items that `in_runs` sorts in memory

_SIZES = Struct("<II")  # of a record: the lengths of its key and of its value

Placed = TypeVar("Placed", bound=tuple[object, ...])
Group = tuple[bytes, list[bytes]]  # a key and its values, in order


class Multimap:
    """Records (key, value), read grouped by key, once.

    For a list in the order of writing use `SpilledList`; for values in sorted order, `by_rank`.
    """

    def __init__(self, tmpdir: str | None = None, level: int = 0) -> None:
        self.count = 0
        self._tmpdir = tmpdir
        self._level = level
        self._pending = bytearray()
        self._parts: list[bytearray] = []  # empty while all records are in `_few`
        self._held = 0
        self._file: TemporaryFile | None = None
        self._end = 0
        self._extents: list[list[tuple[int, int]]] = [[] for _ in range(PARTS)]

    def add(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        part = self._parts[crc32(key) >> 8 * self._level & 255] if self._parts else self._pending
        record = _SIZES.pack(len(key), len(value)) + key + value
        part += record
        self.count += 1
        self._held += len(record)
        if self._held > HELD or (self._held > FEW and not self._parts):
            if self._parts:
                self._spill()
            else:
                self._divide()

    def groups(self) -> Iterator[Group]:
        """Yield each key with its values in order of arrival, and remove them.

        The order of the keys is arbitrary, but the same for the same records.
        """
        for records in self._by_parts():
            groups: dict[bytes, list[bytes]] = {}
            for key, value in records:
                groups.setdefault(key, []).append(value)
            yield from groups.items()

    def repeated(self) -> Iterator[Group]:
        """Yield the keys with more than one value, as `groups` does, and remove all."""
        for records in self._by_parts():
            first: dict[bytes, bytes] = {}
            groups: dict[bytes, list[bytes]] = {}
            for key, value in records:
                if key in first:
                    groups.setdefault(key, [first[key]]).append(value)
                else:
                    first[key] = value
            yield from groups.items()

    def _by_parts(self) -> Iterator[Iterable[tuple[bytes, bytes]]]:
        """Yield the records, all those of one key together, as many as memory has room for, and remove them."""
        if not self._parts:
            pending, self._pending = bytes(self._pending), bytearray()
            yield _parsed(pending)
            return
        for number in range(PARTS):
            size = len(self._parts[number]) + sum(length for _, length in self._extents[number])
            if size > HELD and self._level < 3:
                finer = Multimap(self._tmpdir, self._level + 1)
                for key, value in self._records(number):
                    finer.add(key, value)
                yield from finer._by_parts()
            else:
                yield self._records(number)

    def _divide(self) -> None:
        self._parts = [bytearray() for _ in range(PARTS)]
        pending, self._pending, self._held = bytes(self._pending), bytearray(), 0
        for key, value in _parsed(pending):
            self.add(key, value)
            self.count -= 1

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(self._tmpdir)
        for part, extents in zip(self._parts, self._extents, strict=True):
            if part:
                self._file.write(memoryview(part))
                extents.append((self._end, len(part)))
                self._end += len(part)
        self._parts = [bytearray() for _ in range(PARTS)]
        self._held = 0

    def _records(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        for start, length in self._extents[number]:
            assert self._file is not None
            yield from _parsed(self._file.read(start, start + length))
        yield from _parsed(bytes(self._parts[number]))
        self._extents[number] = []
        self._parts[number] = bytearray()


def in_runs(items: Iterable[Placed], limit: int = RUN) -> Iterator[Placed]:
    """Yield items sorted if there are at most `limit` of them, else in sorted runs of `limit` items."""
    remaining = iter(items)
    while run := sorted(islice(remaining, limit)):
        yield from run


def _parsed(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    unpack, head = _SIZES.unpack_from, _SIZES.size
    pos = 0
    while pos < len(data):
        key_size, value_size = unpack(data, pos)
        start = pos + head
        middle = start + key_size
        pos = middle + value_size
        yield data[start:middle], data[middle:pos]
