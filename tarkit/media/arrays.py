"""Shape and type of arrays, from their headers: .npy, .npz, safetensors. Needs no numpy, and unpickles nothing.

Every function takes `read(pos, n)`, which hands over at most `n` bytes of the content from `pos` on.
Formats: NumPy's `numpy.lib.format` (versions 1 to 3), ZIP (APPNOTE 6.3, local file headers and ZIP64), safetensors.
"""

from __future__ import annotations

import json
import re
import zlib
from math import prod
from struct import error, unpack_from
from typing import NamedTuple

from tarkit.media.headers import Read

NPY = b"\x93NUMPY"
ZIP = b"PK\x03\x04"
_DIRECTORY = b"PK\x01\x02"
LIMIT = 1 << 16  # bytes of a header
DIMENSIONS = 65  # numpy has no array of more than 64
MEMBERS = 256  # of a ZIP file that are looked at

_SHAPE = re.compile(rb"""['"]shape['"]\s*:\s*\(([\d\s,L]*)\)""")
_DESCR = re.compile(rb"""['"]descr['"]\s*:\s*(?:['"]([<>|=]?[A-Za-z]\w*(?:\[\w+\])?)['"]|(\[))""")
_DIGITS = re.compile(r"\D.*")
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex", "b": "bool"}


class Array(NamedTuple):
    """An array: its type, its shape, whether it holds pickled objects, and the bytes that it should take (None: ?)."""

    dtype: str
    shape: tuple[int, ...]
    pickled: bool = False
    bytes: int | None = None


class Member(NamedTuple):
    """A member of a ZIP file: its name, its array if it is one."""

    name: str
    array: Array | None


def npy(read: Read) -> Array | None:
    """The array of a .npy file; None when its header makes no sense."""
    return _parse(read(0, LIMIT) if len(read(0, 12)) == 12 else b"")


def _parse(data: bytes) -> Array | None:
    """The array whose file begins with `data`."""
    if data[:6] != NPY or len(data) < 12:
        return None
    start, length = (10, unpack_from("<H", data, 8)[0]) if data[6] == 1 else (12, unpack_from("<I", data, 8)[0])
    header = data[start : start + length]
    shape, descr = _SHAPE.search(header), _DESCR.search(header)
    if shape is None or descr is None:
        return None
    numbers = shape[1].replace(b"L", b"").split()  # as Python 2 wrote them
    numbers = b"".join(numbers).split(b",")
    if len(numbers) > DIMENSIONS or any(len(each) > 18 for each in numbers):
        return None
    sizes = tuple(int(each) for each in numbers if each)
    if descr[2]:
        return Array("structured", sizes, pickled=b"|O" in header)
    code = descr[1].decode()
    dtype, width = _dtype(code)
    whole = None if width is None else start + length + width * prod(sizes)
    return Array(dtype, sizes, code.lstrip("<>|=").startswith("O"), whole)


def _dtype(code: str) -> tuple[str, int | None]:
    """The name that numpy shows for a type such as `<f4`, and the bytes of an element."""
    bare = code.lstrip("<>|=")
    letter, digits = bare[0], _DIGITS.sub("", bare[1:])
    if letter == "O":
        return "object", None
    width = int(digits) if digits and len(digits) < 10 else None
    if letter not in _KINDS or width is None:
        return code, width if letter in "SV" else None
    name = "bool" if letter == "b" else f"{_KINDS[letter]}{8 * width}"
    return (f"{name} big-endian" if code[0] == ">" and width > 1 else name), width


def members(read: Read) -> tuple[list[Member], bool]:
    """The members of a ZIP file, as far as their local headers can be followed, at most MEMBERS; whether it is all."""
    found: list[Member] = []
    pos = 0
    while len(found) < MEMBERS:
        head = read(pos, 30)
        if len(head) < 30 or head[:4] != ZIP:
            return found, head[:4] == _DIRECTORY
        flags, method = unpack_from("<HH", head, 6)
        packed, _, length, extra = unpack_from("<IIHH", head, 18)
        tail = read(pos + 30, length + extra)
        name = tail[:length].decode("utf-8" if flags & 0x800 else "cp437", "replace")
        data = pos + 30 + length + extra
        found.append(Member(name, _member_array(read, data, method) if name.endswith(".npy") else None))
        if packed == 0xFFFFFFFF:
            packed = _zip64(tail[length:])
        if flags & 8 or packed < 0:  # how long it is stands behind it
            break
        pos = data + packed
    return found, False


def _member_array(read: Read, data: int, method: int) -> Array | None:
    if method == 8:
        try:
            head = zlib.decompressobj(-15).decompress(read(data, LIMIT), LIMIT)
        except zlib.error:
            return None
        return _parse(head)
    return npy(lambda pos, n: read(data + pos, n)) if method == 0 else None


def _zip64(extra: bytes) -> int:
    """The packed size in the ZIP64 field, -1 if there is none."""
    pos = 0
    while pos + 4 <= len(extra):
        tag, length = unpack_from("<HH", extra, pos)
        if tag == 1 and length >= 16 and pos + 20 <= len(extra):
            return int(unpack_from("<Q", extra, pos + 12)[0])
        pos += 4 + length
    return -1


def safetensors(read: Read, size: int) -> list[Member] | None:
    """The tensors of a safetensors file; None if it is none, or its header is longer than LIMIT."""
    try:
        length = unpack_from("<Q", read(0, 8))[0]
        if not 2 <= length <= min(LIMIT, size - 8):
            return None
        header = json.loads(read(8, length))
        return [
            Member(str(name), Array(str(each["dtype"]), tuple(map(int, each["shape"]))))
            for name, each in header.items()
            if name != "__metadata__"
        ]
    except (error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
