"""The files of a spill, and the records in them; `run` defines the words.

- `in-use`: there as long as the run goes on (`shared.Spill.check`).
- `bounds`: the ranks at which all spans but the first begin, as hexadecimal digits in JSON.
- `inputs`: the names of the inputs, and then of the archives that views name; JSON.
- `data-N`, of each group: its samples in order, each as the length of its key, the key, and its bytes.
- `list-N`, of each group: a record for each of these samples, in the same order, divided into sections: the strays,
  then one section for each span; then the keys, a section for each key part. At the end is a table of the sections.
- `groups`: of each group, where its table of sections begins, and whether it has strays; JSON.
- `order-N`, of each span: records of fixed length for its samples in their order, with the places of their bytes.
- `weights-N`, of each span: the weights of its samples, where shards are cut by them: lengths in a tar, or payload.
- `claim-N`, of each task of write: it has begun to write its shards, and may replace those of these names.
- `piece-N`, of each task of write: its part of an output that is one archive.

Sections, samples and records each have a checksum that is compared when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.shared import Blob, Spill
from tarkit.streams.sink import Sink

DIGEST = 16  # bytes of SHA-256 that are kept
KEY_SIZE = Struct("<I")  # before each sample in a data file
_SECTION = Struct("<QQI")  # offset, length and CRC-32 of a section
_LISTED = Struct("<IIIQQQQ16s")  # lengths of rank and key; input, start, offset, size, weight, digest
_KEYED = Struct("<IIQ")  # length of the key; input, start
_ORDERED = Struct("<?IIQQ16s")
_CHECK = Struct("<I")

SECTION_SIZE = _SECTION.size + _CHECK.size
ORDERED_SIZE = _ORDERED.size + _CHECK.size
MODULUS = 1 << 128


def file_name(kind: str, number: int) -> str:
    """Return the name of a file of the spill (see above)."""
    return f"{kind}-{number:07d}"


def add_digest(total: int, digest: bytes) -> int:
    """Return the fingerprint of a set with one sample more: the sum of all digests, in any order."""
    return (total + int.from_bytes(digest, "big")) % MODULUS


class ListedSample(NamedTuple):
    """A sample in the list of its group.

    Attributes:
        rank, key: bytes that say where it stands in the order; its key.
        input, start: the number of its input, and where it begins there.
        offset, size, digest: of its bytes in the data file; `offset` is that of the length of its key.
        weight: bytes by which shards are cut: its size, or its payload.
    """

    rank: bytes
    key: bytes
    input: int
    start: int
    offset: int
    size: int
    weight: int
    digest: bytes

    def pack(self) -> bytes:
        """Return the record."""
        head = _LISTED.pack(len(self.rank), len(self.key), *self[2:])
        return head + self.rank + self.key


def unpack_listed(data: bytes) -> Iterator[ListedSample]:
    """Yield the samples of a section."""
    at = 0
    while at < len(data):
        ranks, keys, *rest = _LISTED.unpack_from(data, at)
        at += _LISTED.size + ranks + keys
        yield ListedSample(data[at - ranks - keys : at - keys], data[at - keys : at], *rest)


def pack_keyed(key: bytes, input: int, start: int) -> bytes:
    """Return the record of a key."""
    return _KEYED.pack(len(key), input, start) + key


def unpack_keyed(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the keys of a section, each with the number of its input and its position there."""
    at = 0
    while at < len(data):
        size, number, start = _KEYED.unpack_from(data, at)
        at += _KEYED.size + size
        yield data[at - size : at], number, start


class OrderedSample(NamedTuple):
    """A sample in the order of a span.

    Attributes:
        joined: whether it is joined to the one before it.
        group: the group of inputs whose data file has its bytes.
        key_size, offset, size, digest: of these bytes.
    """

    joined: bool
    group: int
    key_size: int
    offset: int
    size: int
    digest: bytes

    @property
    def stop(self) -> int:
        """Where its bytes end in the data file."""
        return self.offset + KEY_SIZE.size + self.key_size + self.size

    def pack(self, span: int) -> bytes:
        """Return the record. Its checksum has the number of the span, so that no record is taken for one of another."""
        record = _ORDERED.pack(*self)
        return record + _CHECK.pack(crc32(record, span))

    @classmethod
    def unpack(cls, data: bytes, at: int) -> OrderedSample:
        """Return the sample of the record at a position."""
        return cls(*_ORDERED.unpack_from(data, at))


def read_order(spill: Spill, span: int, first: int, last: int) -> Iterator[OrderedSample]:
    """Yield records [first, last) of the order of a span."""
    name, rest, position = file_name("order", span), b"", first * ORDERED_SIZE
    for piece in spill.stream(name, position, last * ORDERED_SIZE):
        data = rest + piece
        whole = len(data) - len(data) % ORDERED_SIZE
        for at in range(0, whole, ORDERED_SIZE):
            if crc32(data[at : at + _ORDERED.size], span) != _CHECK.unpack_from(data, at + _ORDERED.size)[0]:
                raise spill.changed(name, position + at)
            yield OrderedSample.unpack(data, at)
        position, rest = position + whole, data[whole:]


class SectionWriter:
    """Writes the sections of a list, one after the other, and then the table of them.

    Attributes:
        length: where the table begins, once it is written.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._table: list[bytes] = []
        self._start = self.length = self._checksum = 0
        self._pieces: list[bytes] = []
        self._waiting = 0

    def add(self, section: int, record: bytes) -> None:
        """Append a record to a section; those before it are complete."""
        self.complete(section)
        self._pieces.append(record)
        self._waiting += len(record)
        if self._waiting > 1 << 20:
            self._flush()

    def complete(self, section: int) -> None:
        """Complete all sections before this one."""
        while len(self._table) < section:
            self._flush()
            entry = _SECTION.pack(self._start, self.length - self._start, self._checksum)
            self._table.append(entry + _CHECK.pack(crc32(entry)))
            self._start, self._checksum = self.length, 0

    def finish(self, sections: int) -> None:
        """Write the table of this many sections."""
        self.complete(sections)
        self._sink.write(b"".join(self._table))

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._waiting = [], 0
        if data:
            self._checksum = crc32(data, self._checksum)
            self.length += len(data)
            self._sink.write(data)


def read_section(spill: Spill, group: int, sections_at: int, section: int) -> bytes:
    """Return the bytes of a section of the list of a group, whose table of sections begins at `sections_at`."""
    name, at = file_name("list", group), sections_at + section * SECTION_SIZE
    entry = spill.read(name, at, at + SECTION_SIZE)
    if crc32(entry[: _SECTION.size]) != _CHECK.unpack_from(entry, _SECTION.size)[0]:
        raise spill.changed(name, at)
    start, length, checksum = _SECTION.unpack_from(entry)
    data = spill.read(name, start, start + length)
    if crc32(data) != checksum:
        raise spill.changed(name, start)
    return data


def read_groups(spill: Spill, table: Blob) -> list[tuple[int, bool]]:
    """Return of each group where its table of sections begins, and whether it has strays."""
    groups: list[tuple[int, bool]] = json.loads(spill.get(table))
    return groups


def read_sections(spill: Spill, table: Blob, section: int) -> Iterator[bytes]:
    """Yield the bytes of one section of the list of each group, in order."""
    tables = [(group, sections_at) for group, (sections_at, _) in enumerate(read_groups(spill, table))]
    return spill.ahead(lambda place: read_section(spill, *place, section), tables)
