"""Decode and encode msgpack and CBOR: one value. Neither runs code when it is read.

Formats: the specification of MessagePack, and RFC 8949.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, spell


def _load_msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise MissingLibrary(f"{spell('decode')} of msgpack", "msgpack", "msgpack") from None
    return msgpack


def _load_cbor() -> Any:
    try:
        import cbor2
    except ImportError:
        raise MissingLibrary(f"{spell('decode')} of CBOR", "cbor2", "cbor") from None
    return cbor2


def decode_msgpack(data: bytes) -> Any:
    """Return the value. Raises the exceptions of msgpack, also for data after the value."""
    return _load_msgpack().unpackb(data, strict_map_key=False)


def encode_msgpack(name: str, value: Any) -> bytes:
    """Return the bytes of a value; tuples become arrays."""
    packed: bytes = _load_msgpack().packb(value)
    return packed


def decode_cbor(data: bytes) -> Any:
    """Return the value. Raises the exceptions of cbor2, and TarkitError for data after the value."""
    cbor2 = _load_cbor()
    file = io.BytesIO(data)
    value = cbor2.load(file)
    if file.tell() != len(data):
        raise TarkitError(f"{len(data) - file.tell()} bytes follow the value")
    return value


def encode_cbor(name: str, value: Any) -> bytes:
    """Return the bytes of a value; tuples become arrays."""
    packed: bytes = _load_cbor().dumps(value)
    return packed
