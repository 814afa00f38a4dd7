"""Checksums of whole objects, as replies name them; an object that is read from start to end is compared with them.

| header | checksum | source |
|---|---|---|
| `Repr-Digest` | sha-256, sha-512, md5 | RFC 9530 |
| `Digest` | sha-256, sha-512, md5 | RFC 3230 |
| `x-goog-hash` | md5 | Google Cloud Storage |
| `x-ms-blob-content-md5` | md5 | Azure Blob Storage |
| `Content-MD5` | md5, in a reply with the whole object alone | RFC 1864 |
| `x-amz-checksum-sha256`, `-sha1`, `-crc32` | likewise | Amazon S3 |

An ETag is no checksum: that of an object in parts, or of an encrypted one, is something else. CRC32C is not computed:
it requires a library.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import NamedTuple

_NAMES = {"sha-256": "sha256", "sha256": "sha256", "sha-512": "sha512", "md5": "md5", "sha1": "sha1", "crc32": "crc32"}
_LENGTHS = {"sha256": 32, "sha512": 64, "md5": 16, "sha1": 20, "crc32": 4}
_ITEM = re.compile(r"([A-Za-z0-9-]+)=:?([A-Za-z0-9+/]+={0,2}):?")
_LISTS = ("Repr-Digest", "Digest", "x-goog-hash")
_ALWAYS = {"x-ms-blob-content-md5": "md5"}
_WHOLE = {
    "x-amz-checksum-sha256": "sha256",
    "x-amz-checksum-sha1": "sha1",
    "x-amz-checksum-crc32": "crc32",
    "Content-MD5": "md5",
}


class Checksum(NamedTuple):
    """The checksum of a whole object: the name of its algorithm, and its bytes."""

    name: str
    value: bytes


def named_by(headers: Mapping[str, str], whole: bool) -> Checksum | None:
    """Return the checksum of the object that the headers of a reply name; None without one of a known kind.

    `whole` says that the reply has all bytes of the object.
    """
    for name in ("Content-Encoding", "x-goog-stored-content-encoding"):  # perhaps the checksum of other bytes
        if headers.get(name, "identity").lower() != "identity":
            return None
    texts = [match.groups() for name in _LISTS for match in _ITEM.finditer(headers.get(name, ""))]
    single = {**_ALWAYS, **_WHOLE} if whole else _ALWAYS
    texts += [(algorithm, headers[name]) for name, algorithm in single.items() if name in headers]
    for algorithm, text in texts:
        checksum = _checksum(_NAMES.get(algorithm.lower()), text)
        if checksum is not None:
            return checksum
    return None


def _checksum(name: str | None, text: str) -> Checksum | None:
    try:
        value = b64decode(text, validate=True)
    except (NotBase64, ValueError):  # of several parts: `...-3`
        return None
    return Checksum(name, value) if name is not None and len(value) == _LENGTHS[name] else None


class ChecksumCheck:
    """Compares the bytes of an object, from its start on, with a checksum."""

    def __init__(self, checksum: Checksum) -> None:
        self.size = 0
        self._expected = checksum
        self._crc = 0
        self._hash = None if checksum.name == "crc32" else hashlib.new(checksum.name, usedforsecurity=False)

    def update(self, data: bytes | memoryview) -> None:
        """Add the bytes that follow."""
        self.size += len(data)
        if self._hash is None:
            self._crc = zlib.crc32(data, self._crc)
        else:
            self._hash.update(data)

    def matches(self) -> bool:
        """Return whether the bytes so far have the checksum."""
        digest = self._crc.to_bytes(4, "big") if self._hash is None else self._hash.digest()
        return digest == self._expected.value
