"""Shards of MDS, the format of MosaicML Streaming, as sequences of maps.

A shard has the number of its samples, where each begins and the last ends, its columns as JSON, and the samples.
Numbers are uint32, little endian. A sample has the length of each content that may have any, then the contents, in the
order of the columns (`streaming/base/format/mds/writer.py` and `encodings.py` of version 0.13).

Written, contents are as they are, under the encoding that gives readers the value of a field of that name: `jpeg`,
`png`, `json`, `str` for text, `str_int` for integers such as `cls`, else `bytes`; the key is the column `__key__`.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tarkit.errors import load_library, show
from tarkit.media.coding_pictures import picture_of_pixels
from tarkit.messages.maps import LARGEST, IncompleteMap, MalformedMap, Unpack, read_exactly
from tarkit.tables.map_fields import NoContent
from tarkit.tables.rows import NumberList

_AS_IT_IS = ("bytes", "str", "jpeg", "png", "json", "str_int", "str_float", "str_decimal")
_FLOATS = {"float16": "<e", "float32": "<f", "float64": "<d"}
_INTEGERS = ("int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPE = re.compile("(?:[0-9]{1,9}(?:,[0-9]{1,9})*)?")


class ShardHead(NamedTuple):
    """What precedes the samples of a shard: where each begins, and the last ends; its columns and other settings."""

    offsets: array[int]
    config: dict[str, Any]


def load_mds(purpose: str) -> Unpack:
    """Return the function that reads the format; `MdsSink` writes it. Libraries are for some columns alone."""
    return lambda read: _maps(read, purpose)


def read_head(read: Callable[[int], bytes]) -> ShardHead:
    """Read what precedes the samples. Raises IncompleteMap and MalformedMap."""
    count = int.from_bytes(_bytes(read, 4), "little")
    offsets = array("I", _bytes(read, 4 * (count + 1)))
    if sys.byteorder == "big":
        offsets.byteswap()
    start = 4 + 4 * len(offsets)
    if offsets[0] < start or any(offsets[number] > offsets[number + 1] for number in range(count)):
        raise MalformedMap("the positions of samples at the start are damaged, or this is no shard of MDS", position=4)
    try:
        config = json.loads(_bytes(read, offsets[0] - start))
        columns = list(zip(*(config[f"column_{part}"] for part in ("names", "encodings", "sizes")), strict=True))
        good = config["version"] == 2 and config["format"] == "mds" and all(map(_is_column, columns))
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise MalformedMap("the description of the columns is damaged, or this is no shard of MDS", position=start)
    return ShardHead(offsets, config)


def _is_column(column: tuple[object, ...]) -> bool:
    """Return whether a column has a name and an encoding, and a number of bytes or none."""
    name, encoding, size = column
    return isinstance(name, str) and isinstance(encoding, str) and (size is None or (type(size) is int and size >= 0))


def _bytes(read: Callable[[int], bytes], size: int, position: int = 0) -> bytes:
    data = read_exactly(read, size)
    if len(data) < size:
        raise IncompleteMap(position)
    return data


def _maps(read: Callable[[int], bytes], purpose: str) -> Iterator[object]:
    """Yield the samples of a shard. Raises IncompleteMap, MalformedMap and MissingLibrary."""
    offsets, config = read_head(read)
    names, sizes = config["column_names"], config["column_sizes"]
    decoders = [
        _decoder(encoding, name, purpose) for encoding, name in zip(config["column_encodings"], names, strict=True)
    ]
    lengths = struct.Struct(f"<{sum(not size for size in sizes)}I")
    for number in range(len(offsets) - 1):
        at = offsets[number]
        size = offsets[number + 1] - at
        if size > LARGEST:
            raise MalformedMap(f"the sample is longer than {LARGEST >> 30} GiB", position=at)
        data = _bytes(read, size, at)
        variable = iter(lengths.unpack_from(data) if size >= lengths.size else ())
        begin, values = lengths.size, {}
        try:
            for name, decode, fixed in zip(names, decoders, sizes, strict=True):
                end = begin + (fixed or next(variable))
                values[name] = decode(data[begin:end])
                begin = end
        except (StopIteration, ValueError, IndexError, KeyError, struct.error) as error:
            raise MalformedMap(f"the sample is damaged: {error or 'it is too short'}", position=at) from None
        if begin != size:
            raise MalformedMap(f"the lengths of its contents are {begin} together, and it has {size}", position=at)
        yield values
    if read(1):
        raise MalformedMap("other bytes follow the last sample", position=offsets[-1])


def _decoder(encoding: str, name: str, purpose: str) -> Callable[[bytes], Any]:
    """Return a function that makes a value of a content."""
    kind, _, more = encoding.partition(":")
    if encoding in _AS_IT_IS:
        return bytes
    if encoding in _INTEGERS:
        return lambda data: int.from_bytes(data, "little", signed=encoding[0] == "i")
    if encoding in _FLOATS:
        return lambda data: struct.unpack(_FLOATS[encoding], data)[0]
    if encoding == "pil":
        return _picture
    dtype, _, shape = more.partition(":")
    if kind == "ndarray" and dtype in ("", *_DTYPES.values()) and _SHAPE.fullmatch(shape):
        numpy = load_library("numpy", purpose, "numpy", "numpy")
        return lambda data: _array(numpy, data, dtype, [int(size) for size in shape.split(",") if size])
    why = "is a pickle, which may run code" if encoding == "pkl" else f"has the encoding {encoding}"
    unreadable = NoContent(f"the column {show(name)} {why}, and cannot be read")
    return lambda data: unreadable


def _picture(data: bytes) -> bytes:
    """Return pixels of Pillow as PNG."""
    width, height, length = struct.unpack_from("<3I", data)
    return picture_of_pixels(data[12 : 12 + length].decode(), (width, height), data[12 + length :])


def _array(numpy: Any, data: bytes, dtype: str, shape: list[int]) -> NumberList:
    """Return an array, whose type and shape precede the values unless the column has them."""
    at = 0
    if not dtype:
        dtype, at = _DTYPES[data[0]], 1
    if not shape:
        size = 1 << (data[at] & 3)
        stop = at + 1 + (data[at] >> 2) * size
        shape = [int.from_bytes(data[place : place + size], "little") for place in range(at + 1, stop, size)]
        at = stop
    values = numpy.frombuffer(data[at:], numpy.dtype(dtype).newbyteorder("<")).reshape(shape)
    return NumberList(values.tolist(), dtype)
