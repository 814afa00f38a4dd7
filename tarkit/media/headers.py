"""Parse headers: width and height of pictures, length of sounds, shapes and types of arrays. Nothing is decoded.

Every function is given `read(pos, n)`, which returns at most `n` bytes of the content from `pos` on. It returns None if
the header lacks the fact, is cut or is malformed.
Formats: PNG (ISO 15948, IHDR), JPEG (ITU T.81, SOFn), GIF89a, BMP (BITMAPINFOHEADER), WebP (RFC 9649), TIFF 6.0,
Netpbm (the manual pages pbm, pgm, ppm), RIFF WAVE and RF64 (EBU Tech 3306), FLAC (RFC 9639, STREAMINFO).
AVIF, HEIC and JPEG 2000 are left to the library imagesize. It knows others too, but takes 4 to 24 times as long, and
misreads a GIF above 32767 pixels, BMP of OS/2 and WebP with a scale.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from math import prod
from struct import Struct, error, unpack_from
from typing import NamedTuple

Read = Callable[[int, int], bytes]

_HOPS = 512  # segments or chunks that are read to find a header
_TAGS = 4096  # entries of a TIFF directory
_ENTRY = {"<": Struct("<HHI4s"), ">": Struct(">HHI4s")}
NETPBM = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})\s")
_CROPPED, _ROTATED = b"\0\0\0\x28clap", b"\0\0\0\x09irot"  # boxes of HEIF
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # codes of segments with height and width
JPEG_DATA = 0xDA  # of the segment before the data of pixels
_NO_LENGTH = 0xFFFFFFFF  # written by programs that cannot seek, and in RF64


class Sound(NamedTuple):
    """A sound: its length in seconds (None: unknown), samples per second, channels."""

    seconds: float | None
    rate: int
    channels: int


def picture_size(kind: str, read: Read) -> tuple[int, int] | None:
    """Return width and height in pixels of a picture of this kind, as stored (EXIF may rotate it)."""
    reader = _SIZES.get(kind)
    try:
        size = reader(read) if reader else None
    except error:  # too short
        return None
    return size if size and size[0] > 0 and size[1] > 0 else None


def sound(kind: str, read: Read, size: int) -> Sound | None:
    """Return length, rate and channels of a sound of this kind and of `size` bytes."""
    try:
        if kind == "wav":
            return _wav(read, size)
        return _flac(read(0, 26)) if kind == "flac" else None
    except (error, ZeroDivisionError):
        return None


def _png(read: Read) -> tuple[int, int] | None:
    head = read(0, 24)
    return unpack_from(">II", head, 16) if head[12:16] == b"IHDR" else None


def _gif(read: Read) -> tuple[int, int]:
    return unpack_from("<HH", read(0, 10), 6)


def _bmp(read: Read) -> tuple[int, int]:
    head = read(0, 26)
    if unpack_from("<I", head, 14)[0] == 12:  # OS/2
        return unpack_from("<HH", head, 18)
    width, height = unpack_from("<ii", head, 18)
    return width, abs(height)  # negative: from the top down


def _webp(read: Read) -> tuple[int, int] | None:
    head = read(0, 30)
    form = head[12:16]
    if form == b"VP8X" and len(head) == 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if form == b"VP8L" and head[20:21] == b"\x2f":
        bits = unpack_from("<I", head, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(read: Read) -> tuple[int, int] | None:
    for _, head in jpeg_segments(read):
        if head[1] in JPEG_FRAMES:
            height, width = unpack_from(">HH", head, 5)
            return width, height
    return None


def jpeg_segments(read: Read) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the first 19 bytes of the segments of a JPEG that have a length, to that of its data."""
    pos = 2
    for _ in range(_HOPS):
        head = read(pos, 19)
        if len(head) < 4 or head[0] != 0xFF:
            return
        code = head[1]
        if code == 0xFF:  # fill
            pos += 1
        elif code == 0x01 or 0xD0 <= code <= 0xD7:  # without a length
            pos += 2
        elif code == 0xD9:  # the end
            return
        else:
            yield pos, head
            if code == JPEG_DATA:
                return
            pos += 2 + unpack_from(">H", head, 2)[0]


def _tiff(read: Read) -> tuple[int, int] | None:
    head = read(0, 8)
    order = "<" if head[:2] == b"II" else ">"
    first = unpack_from(order + "I", head, 4)[0]
    count = min(unpack_from(order + "H", read(first, 2))[0], _TAGS)
    tags: dict[int, int] = {}
    for tag, type_, _, value in _ENTRY[order].iter_unpack(_whole(read(first + 2, 12 * count), 12)):
        if tag in (256, 257) and type_ in (3, 4):  # width and height, SHORT or LONG
            tags[tag] = unpack_from(order + ("H" if type_ == 3 else "I"), value)[0]
    return (tags[256], tags[257]) if len(tags) == 2 else None


def _netpbm(read: Read) -> tuple[int, int] | None:
    match = NETPBM.match(read(0, 512))
    return (int(match[1]), int(match[2])) if match else None


def _by_imagesize(read: Read) -> tuple[int, int] | None:
    """Ask imagesize, which returns (-1, -1) for an invalid header."""
    import imagesize

    head = read(0, LIMIT)
    if _CROPPED in head:  # imagesize 2.0 ignores the box, and returns what it is cropped from
        return None
    head = head.replace(_ROTATED, _ROTATED[:4] + b"free")  # imagesize 2.0 takes the box for a longer one, and fails
    width, height = imagesize.get(io.BytesIO(head), exif_rotation=False)
    return width, height


def _whole(data: bytes, step: int) -> bytes:
    return data[: len(data) // step * step]


_SIZES: dict[str, Callable[[Read], tuple[int, int] | None]] = {
    "png": _png,
    "jpeg": _jpeg,
    "gif": _gif,
    "bmp": _bmp,
    "webp": _webp,
    "tiff": _tiff,
    "netpbm": _netpbm,
    **dict.fromkeys(("avif", "heic", "jpx"), _by_imagesize),
}

PICTURES = frozenset(_SIZES)
"""The kinds of pictures that `picture_size` supports."""


def _wav(read: Read, size: int) -> Sound | None:
    """Follow the chunks; `fmt ` precedes `data`."""
    pos, format_, long = 12, None, None
    for _ in range(_HOPS):
        head = read(pos, 32)
        name, length = head[:4], unpack_from("<I", head, 4)[0]
        if name == b"ds64":
            long = unpack_from("<Q", head, 16)[0]
        elif name == b"fmt ":
            format_ = unpack_from("<HII", head, 10)
        elif name == b"data" and format_:
            channels, rate, byte_rate = format_
            if length == _NO_LENGTH and long is not None:
                length = long
            elif length in (0, _NO_LENGTH):
                length = size - pos - 8
            return Sound(length / byte_rate, rate, channels)
        pos += 8 + length + (length & 1)
    return None


def _flac(head: bytes) -> Sound | None:
    if len(head) < 26 or head[4] & 0x7F:  # STREAMINFO comes first
        return None
    bits = int.from_bytes(head[18:], "big")
    rate, channels, samples = bits >> 44, (bits >> 41 & 7) + 1, bits & (1 << 36) - 1
    return Sound(samples / rate if samples else None, rate, channels) if rate else None


# ---- Shape and type of arrays: .npy, .npz, safetensors. Needs no numpy, and unpickles nothing
# Formats: NumPy's `numpy.lib.format` (versions 1 to 3), ZIP (APPNOTE 6.3, local file headers and ZIP64), safetensors.

NPY = b"\x93NUMPY"
ZIP = b"PK\x03\x04"
_DIRECTORY = b"PK\x01\x02"
LIMIT = 1 << 16  # bytes of a header
DIMENSIONS = 65  # numpy has no array of more than 64
MEMBERS = 256  # members of a ZIP file that are read

_SHAPE = re.compile(rb"""['"]shape['"]\s*:\s*\(([\d\s,L]*)\)""")
_DESCR = re.compile(rb"""['"]descr['"]\s*:\s*(?:['"]([<>|=]?[A-Za-z]\w*(?:\[\w+\])?)['"]|(\[))""")
_DIGITS = re.compile(r"\D.*")
_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex", "b": "bool"}


class Array(NamedTuple):
    """An array: its type, its shape, whether it holds pickled objects, and its expected bytes (None: unknown)."""

    dtype: str
    shape: tuple[int, ...]
    pickled: bool = False
    bytes: int | None = None


class NpzMember(NamedTuple):
    """A member of a ZIP file: its name, and its array if it is one."""

    name: str
    array: Array | None


def npy(read: Read) -> Array | None:
    """Return the array of a .npy file, None if its header is malformed."""
    return _parse(read(0, LIMIT) if len(read(0, 12)) == 12 else b"")


def _parse(data: bytes) -> Array | None:
    if data[:6] != NPY or len(data) < 12:
        return None
    start, length = (10, unpack_from("<H", data, 8)[0]) if data[6] == 1 else (12, unpack_from("<I", data, 8)[0])
    header = data[start : start + length]
    shape, descr = _SHAPE.search(header), _DESCR.search(header)
    if shape is None or descr is None:
        return None
    numbers = shape[1].replace(b"L", b"").split()  # as Python 2 wrote them
    numbers = b"".join(numbers).split(b",")
    if len(numbers) > DIMENSIONS or any(len(number) > 18 for number in numbers):
        return None
    sizes = tuple(int(number) for number in numbers if number)
    if descr[2]:
        return Array("structured", sizes, pickled=b"|O" in header)
    code = descr[1].decode()
    dtype, width = _dtype(code)
    whole = None if width is None else start + length + width * prod(sizes)
    return Array(dtype, sizes, code.lstrip("<>|=").startswith("O"), whole)


def _dtype(code: str) -> tuple[str, int | None]:
    """Return the name that numpy shows for a type such as `<f4`, and the bytes of an element."""
    bare = code.lstrip("<>|=")
    letter, digits = bare[0], _DIGITS.sub("", bare[1:])
    if letter == "O":
        return "object", None
    width = int(digits) if digits and len(digits) < 10 else None
    if letter not in _KINDS or width is None:
        return code, width if letter in "SV" else None
    name = "bool" if letter == "b" else f"{_KINDS[letter]}{8 * width}"
    return (f"{name} big-endian" if code[0] == ">" and width > 1 else name), width


def members(read: Read) -> tuple[list[NpzMember], bool]:
    """Return at most MEMBERS members of a ZIP file, by their local headers, and whether these are all."""
    entries: list[NpzMember] = []
    pos = 0
    while len(entries) < MEMBERS:
        head = read(pos, 30)
        if len(head) < 30 or head[:4] != ZIP:
            return entries, head[:4] == _DIRECTORY
        flags, method = unpack_from("<HH", head, 6)
        packed, _, length, extra = unpack_from("<IIHH", head, 18)
        tail = read(pos + 30, length + extra)
        name = tail[:length].decode("utf-8" if flags & 0x800 else "cp437", "replace")
        data = pos + 30 + length + extra
        entries.append(NpzMember(name, _member_array(read, data, method) if name.endswith(".npy") else None))
        if packed == 0xFFFFFFFF:
            packed = _zip64(tail[length:])
        if flags & 8 or packed < 0:  # its size is after its content
            break
        pos = data + packed
    return entries, False


def _member_array(read: Read, data: int, method: int) -> Array | None:
    if method == 8:
        try:
            head = zlib.decompressobj(-15).decompress(read(data, LIMIT), LIMIT)
        except zlib.error:
            return None
        return _parse(head)
    return npy(lambda pos, n: read(data + pos, n)) if method == 0 else None


def _zip64(extra: bytes) -> int:
    pos = 0
    while pos + 4 <= len(extra):
        tag, length = unpack_from("<HH", extra, pos)
        if tag == 1 and length >= 16 and pos + 20 <= len(extra):
            return int(unpack_from("<Q", extra, pos + 12)[0])
        pos += 4 + length
    return -1


def safetensors(read: Read, size: int) -> list[NpzMember] | None:
    """Return the tensors of a safetensors file; None if it is not one, or its header is longer than LIMIT."""
    try:
        length = unpack_from("<Q", read(0, 8))[0]
        if not 2 <= length <= min(LIMIT, size - 8):
            return None
        header = json.loads(read(8, length))
        return [
            NpzMember(str(name), Array(str(tensor["dtype"]), tuple(map(int, tensor["shape"]))))
            for name, tensor in header.items()
            if name != "__metadata__"
        ]
    except (error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def tenbin(read: Read, size: int) -> list[NpzMember] | None:
    """Return the arrays of a tenbin file, with their labels, or else numbers, as names; None if it is malformed."""
    arrays: list[NpzMember] = []
    at = 0
    while at < size and len(arrays) < MEMBERS:
        head = read(at, 40 + 8 * DIMENSIONS)
        try:
            magic, length, code, label, count = unpack_from("<8sQ8s8sQ", head)
            if magic != b"~TenBin~" or length != 24 + 8 * count:
                return None
            shape = unpack_from(f"<{count}Q", head, 40)
            start = at + 16 + length + -length % 64
            magic, length = unpack_from("<8sQ", read(start, 16))
        except error:
            return None
        if magic != b"~TenBin~":
            return None
        dtype, _ = _dtype(code.rstrip(b"\0").decode("latin-1"))
        name = label.rstrip(b"\0").decode("latin-1") or str(len(arrays))
        arrays.append(NpzMember(name, Array(dtype, shape)))
        at = start + 16 + length + -length % 64
    return arrays
