"""What the contents of a sample are, whatever its headers say and in whatever order its entries stand.

The hash of an entry is BLAKE2b of 128 bits over its kind, the target of a link and its payload as it is stored (of a
sparse file with the map of its holes). Times, modes and owners do not count, nor in which dialect of tar it is said.
"""

from __future__ import annotations

import marshal
import re
from hashlib import blake2b
from typing import Any

from tarkit.samples.sample import KEYLESS
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Raw

SIZE = 16  # bytes of a hash
STRAY = b"/"  # stands for the field of an entry without key: no field has a slash
_SPECIAL = b"link or sparse"  # else a file could say what a link is
_CHUNK = 1 << 20
_SPARSE_RECORD = re.compile(rb"[0-9]+ GNU\.sparse\.(?!name=)[^\n]*\n")
_PLAIN = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))

Fields = list[tuple[bytes, bytes]]
"""Fields with the hashes of their contents, in order of the fields."""


class ContentHash:
    """Hashes the entries of an archive as they come by."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._sample: list[tuple[bytes, bytes]] = []
        self._latest: list[tuple[bytes, bytes]] = []

    def add(self, entry: Raw) -> None:
        """Hash an entry."""
        if self._latest:
            self.settle()
        if entry[5] in KEYLESS:
            return
        plain = entry[5] in _PLAIN and entry[7] < 0
        digest = blake2b(digest_size=SIZE, person=b"" if plain else _SPECIAL)
        if not plain:
            holes = _holes(self.source.read(entry[1], entry[2])) if entry[7] >= 0 else b""
            digest.update(b"%b %d %d %d %b%b" % (entry[5], entry[7], len(entry[6]), len(holes), entry[6], holes))
        start, stop = entry[2], entry[2] + entry[3]
        while start < stop:
            digest.update(self.source.read(start, min(stop, start + _CHUNK)))
            start += _CHUNK
            self.source.release(min(start, stop))
        self._latest = [(entry[0], digest.digest())]

    def settle(self) -> None:
        """What came last is the end of its sample."""
        self._sample += self._latest
        self._latest = []

    def take(self, length: int) -> bytes:
        """What the sample that is complete has: its fields, from `length` bytes on in the names, and their hashes."""
        sample, self._sample = self._sample, []
        return marshal.dumps(sorted((name[length:], digest) for name, digest in sample))

    def take_stray(self) -> bytes:
        """The same of the entry that came last, which has no key."""
        latest, self._latest = self._latest, []
        return marshal.dumps([(STRAY, digest) for _, digest in latest])


def _holes(header: bytes) -> bytes:
    """The map of a sparse file, as far as it is in the headers before its payload."""
    for at in range(0, len(header), block.BLOCK):
        if header[at + 156 : at + 157] == block.GNU_SPARSE and header[at + 257 : at + 265] == block.GNU_MAGIC:
            return header[at + 386 : at + 482] + header[at + block.BLOCK :]
    return b"".join(_SPARSE_RECORD.findall(header))


def fields_of(contents: bytes) -> Fields:
    """The fields and hashes that `take` put together."""
    fields: Any = marshal.loads(contents)
    return list(fields)


def sample_hash(key: bytes, fields: Fields) -> int:
    """The hash of a sample: BLAKE2b of 128 bits over its key and its fields with their hashes, each with its length."""
    digest = blake2b(b"%d:%b" % (len(key), key), digest_size=SIZE)
    for name, content in fields:
        digest.update(b"%d:%b%b" % (len(name), name, content))
    return int.from_bytes(digest.digest(), "big")
