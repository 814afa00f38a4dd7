"""Decode and encode msgpack and CBOR: one value. Neither runs code when it is read.

Formats: the specification of MessagePack, and RFC 8949.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import TarkitError
from tarkit.media.equality import equal
from tarkit.media.libraries import media_library
from tarkit.sizes import plural


def decode_msgpack(data: bytes) -> Any:
    """Return the value. Raises the exceptions of msgpack, also for data after the value, and TarkitError."""
    msgpack = media_library("msgpack", "msgpack")
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except msgpack.FormatError:  # which says nothing
        raise TarkitError("the content is no MessagePack") from None


def encode_msgpack(name: str, value: Any) -> bytes:
    """Return the bytes of a value; tuples become arrays."""
    packed: bytes = media_library("msgpack", "msgpack", encode=True).packb(value)
    return packed


def decode_cbor(data: bytes) -> Any:
    """Return the value. Raises the exceptions of cbor2, and TarkitError for data after the value."""
    cbor2 = media_library("cbor2", "CBOR")
    file = io.BytesIO(data)
    value = cbor2.load(file)
    if file.tell() != len(data):
        raise TarkitError(f"{plural(len(data) - file.tell(), 'byte follows', 'bytes follow')} the value")
    return value


def encode_cbor(name: str, value: Any) -> bytes:
    """Return the bytes of a value; tuples become arrays. Raises TarkitError for a value that cbor2 would change."""
    cbor2 = media_library("cbor2", "CBOR", encode=True)
    packed: bytes = cbor2.dumps(value)
    _check_kept(value, cbor2)
    return packed


_PLAIN = (str, bytes, bytearray, int, float, type(None))


def _check_kept(value: Any, cbor2: Any) -> None:
    """Raise TarkitError for a value in this one that comes back as another: NaN as Decimal, flags of a pattern."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, _PLAIN) and not equal(next(iter(cbor2.loads(cbor2.dumps({key: None})))), key):
                raise _not_kept("the key", key)
            _check_kept(item, cbor2)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_kept(item, cbor2)
    elif not isinstance(value, _PLAIN):
        restored = cbor2.loads(cbor2.dumps(value))
        if isinstance(value, cbor2.CBORTag) and type(restored) is type(value):
            _check_kept(value.value, cbor2)
        elif not equal(restored, value):
            raise _not_kept(f"{type(value).__name__}", value, f", but {restored!r}"[:100])


def _not_kept(kind: str, value: object, detail: str = "") -> TarkitError:
    return TarkitError(f"CBOR would not give back {kind} {value!r:.80}{detail}", "give it as text, or in another form")
