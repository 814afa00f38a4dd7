"""Hashes of the contents of samples, independent of headers and of the order of entries.

The hash of an entry is BLAKE2b of 128 bits over its type, the target of a link and its payload as stored (for a sparse
file with the map of its holes). Times, modes, owners and the tar format are ignored.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from tarkit.samples.sample import KEYLESS
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

SIZE = 16  # bytes of a hash
KEYLESS_FIELD = b"/"  # in place of the field of an entry without a key: no field has a slash
_SPECIAL = b"link or sparse"  # separates the hashes of links and sparse files from those of regular files
_CHUNK = 1 << 20
_SPARSE_RECORD = re.compile(rb"[0-9]+ GNU\.sparse\.(?!name=)[^\n]*\n")

Fields = list[tuple[bytes, bytes]]
"""Fields with the hashes of their contents, in order of the fields."""


class ContentHash:
    """Hashes of the entries of an archive, added in order and taken sample by sample."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._digests: dict[int, bytes] = {}  # offset of an entry -> its hash

    def add(self, entry: Entry) -> None:
        """Hash an entry."""
        if entry.type in KEYLESS:
            return
        plain = entry.type in block.FILES and not entry.sparse
        digest = blake2b(digest_size=SIZE, person=b"" if plain else _SPECIAL)
        if not plain:
            holes = _holes(self.source.read(entry.start, entry.data)) if entry.sparse else b""
            facts = (entry.type, entry.real, len(entry.link), len(holes), entry.link, holes)
            digest.update(b"%b %d %d %d %b%b" % facts)
        start, stop = entry.data, entry.data + entry.size
        while start < stop:
            digest.update(self.source.read(start, min(stop, start + _CHUNK)))
            start += _CHUNK
            self.source.release(min(start, stop))
        self._digests[entry.start] = digest.digest()

    def take(self, entries: Iterable[Raw], length: int) -> bytes:
        """Return the fields of a sample with their hashes, for `fields_of`.

        Args:
            entries: the entries of the sample.
            length: the number of bytes of a name before the field.
        """
        return marshal.dumps(sorted((name[length:], self._digests.pop(start)) for name, start, *_ in entries))

    def take_keyless(self, entry: Entry) -> bytes:
        """Return the same for an entry without a key."""
        return marshal.dumps([(KEYLESS_FIELD, self._digests.pop(entry.start))])


def _holes(header: bytes) -> bytes:
    """Return the map of a sparse file, as far as the headers before its payload hold it."""
    for at in range(0, len(header), block.BLOCK):
        if header[at + 156 : at + 157] == block.GNU_SPARSE and header[at + 257 : at + 265] == block.GNU_MAGIC:
            return header[at + 386 : at + 482] + header[at + block.BLOCK :]
    return b"".join(_SPARSE_RECORD.findall(header))


def fields_of(contents: bytes) -> Fields:
    """Return the fields and hashes that `take` encoded."""
    fields: Any = marshal.loads(contents)
    return list(fields)


def is_keyless(contents: bytes) -> bool:
    """Return whether encoded contents are those of an entry without a key."""
    return any(name == KEYLESS_FIELD for name, _ in fields_of(contents))


def sample_hash(key: bytes, fields: Fields) -> int:
    """Return the BLAKE2b hash of 128 bits of a key and of fields with their hashes, each with its length."""
    digest = blake2b(b"%d:%b" % (len(key), key), digest_size=SIZE)
    for name, content in fields:
        digest.update(b"%d:%b%b" % (len(name), name, content))
    return int.from_bytes(digest.digest(), "big")
