"""Decode and encode tenbin: a list of numpy arrays.

Format: webdataset's module `tenbin`. An array is two chunks, a header and its data. A chunk is eight bytes of magic,
the length of its payload, and the payload, padded with zeros to a multiple of 64 bytes. A header consists of numbers of
eight bytes: a code for the type and a label, both text, the number of dimensions, and each dimension. All numbers are
little-endian here; webdataset writes them in the order of the machine.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from tarkit.errors import TarkitError, show
from tarkit.media.coding_arrays import refuse_mask
from tarkit.media.libraries import media_library
from tarkit.sizes import plural

MAGIC = b"~TenBin~"
_TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_ALIGNED = 64
_MOST_DIMENSIONS = 9


def decode(data: bytes) -> list[Any]:
    """Return the arrays; their labels are ignored. Raises TarkitError for other data."""
    numpy = media_library("numpy", "arrays")
    chunks = list(_chunks(data))
    if len(chunks) % 2:
        raise TarkitError("the data of the last array are missing")
    arrays = []
    for header, content in zip(chunks[::2], chunks[1::2], strict=True):
        code, shape = _parse_header(bytes(header))
        dtype = numpy.dtype(code)
        if len(content) != math.prod(shape) * dtype.itemsize:
            message = f"an array of {code}, {shape}, has {plural(len(content), 'byte')}"
            raise TarkitError(f"{message}, not {math.prod(shape) * dtype.itemsize}")
        arrays.append(numpy.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype))
    return arrays


def encode(name: str, value: Any) -> bytes:
    """Return the bytes of a list of arrays, or of one array. Raises TarkitError for other values, and other types."""
    numpy = media_library("numpy", "arrays", encode=True)
    arrays = value if isinstance(value, (list, tuple)) else [value]
    pieces: list[bytes] = []
    for array in arrays:
        if not isinstance(array, (numpy.ndarray, numpy.generic)):
            raise TarkitError(f"it takes a list of numpy arrays, not {type(array).__name__}")
        refuse_mask(array)
        code = f"{array.dtype.kind}{array.dtype.itemsize}"
        if code not in _TYPES:
            message = f"tenbin has no arrays of {array.dtype}, only float16 to float64, int8 to int64, uint8 to uint64"
            raise TarkitError(message, "astype() makes one of another type; npy holds all types")
        if array.ndim > _MOST_DIMENSIONS:
            raise TarkitError(f"tenbin has at most {_MOST_DIMENSIONS} dimensions, and this array {array.ndim}")
        header = struct.pack(f"<8s8sq{array.ndim}q", code.encode(), b"", array.ndim, *array.shape)
        pieces += (*_chunk(header), *_chunk(array.astype(array.dtype.newbyteorder("<")).tobytes()))
    return b"".join(pieces)


def _chunk(payload: bytes) -> tuple[bytes, bytes, bytes]:
    return MAGIC + struct.pack("<q", len(payload)), payload, bytes(-len(payload) % _ALIGNED)


def _chunks(data: bytes) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        if data[at : at + 8] != MAGIC:
            raise TarkitError(f"it is not tenbin: at {at} there is {show(data[at : at + 8])}, not {show(MAGIC)}")
        size = int.from_bytes(data[at + 8 : at + 16], "little")
        start, at = at + 16, at + 16 + size + -size % _ALIGNED
        if at > len(data):
            raise TarkitError(f"the chunk at {start - 16} is cut off")
        yield memoryview(data)[start : start + size]


def _parse_header(header: bytes) -> tuple[str, tuple[int, ...]]:
    code = header[:8].rstrip(b"\0").decode("latin-1")
    if code not in _TYPES:
        raise TarkitError(f"arrays of {show(code)} are unknown; tenbin has {', '.join(_TYPES)}")
    count = int.from_bytes(header[16:24], "little")
    if len(header) != 24 + 8 * count:
        raise TarkitError(f"a header of {plural(len(header), 'byte')} cannot have {plural(count, 'dimension')}")
    shape = struct.unpack(f"<{count}q", header[24:])
    if min(shape, default=0) < 0:
        raise TarkitError(f"a dimension is negative: {shape}")
    return code, shape
