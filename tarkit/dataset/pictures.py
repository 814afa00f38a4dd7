"""Width and height of pictures, by their headers: PNG, JPEG, GIF, WebP, BMP, TIFF.

Formats: PNG, W3C 2003, 11.2.2. JPEG, ITU-T T.81, B.2.2. GIF89a, 18. WebP container, RFC 9649. BMP, BITMAPINFOHEADER.
TIFF 6.0, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as Short
from struct import unpack_from

HEADS = (1 << 12, 1 << 18, 16 << 20)  # bytes that are looked at, one after the other

_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_LENGTHLESS = frozenset({0x01, *range(0xD0, 0xD9)})
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257


def picture_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of the picture that begins with `head`; None when that does not say."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            return _checked(*unpack_from(">II", head, 16))
        if head.startswith(b"\xff\xd8"):
            return _jpeg(head)
        if head.startswith((b"GIF87a", b"GIF89a")):
            return _checked(*unpack_from("<HH", head, 6))
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(head)
        if head.startswith(b"BM"):
            return _bmp(head)
        if head.startswith((b"II*\0", b"MM\0*")):
            return _tiff(head, "<" if head[:1] == b"I" else ">")
    except (Short, IndexError):
        pass
    return None


def picture_of(read: Callable[[int], bytes], size: int) -> tuple[int, int] | None:
    """The same for a picture of `size` bytes, of which `read` gives the first: more of them when a few do not do."""
    for count in HEADS:
        head = read(count)
        found = picture_size(head)
        if found or count >= size or not head.startswith((b"\xff\xd8", b"II*\0", b"MM\0*")):
            return found
    return None


def _checked(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width > 0 and height > 0 else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    pos = 2
    while True:
        if head[pos] != 0xFF:
            return None
        while head[pos] == 0xFF:  # any number of them may fill up
            pos += 1
        marker = head[pos]
        pos += 1
        if marker in _FRAMES:
            height, width = unpack_from(">HH", head, pos + 3)
            return _checked(width, height)
        if marker in (0xD9, 0xDA):  # the end, or the scan: no frame came before it
            return None
        if marker not in _LENGTHLESS:
            pos += max(2, unpack_from(">H", head, pos)[0])


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(_piece(head, 24, 3), "little"), 1 + int.from_bytes(_piece(head, 27, 3), "little")
    if kind == b"VP8L" and head[20] == 0x2F:
        bits = unpack_from("<I", head, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = unpack_from("<HH", head, 26)
        return _checked(width & 0x3FFF, height & 0x3FFF)
    return None


def _piece(head: bytes, start: int, length: int) -> bytes:
    if len(head) < start + length:
        raise IndexError
    return head[start : start + length]


def _bmp(head: bytes) -> tuple[int, int] | None:
    if unpack_from("<I", head, 14)[0] == 12:  # of OS/2
        return _checked(*unpack_from("<HH", head, 18))
    width, height = unpack_from("<ii", head, 18)
    return _checked(width, abs(height))  # below zero: from top to bottom


def _tiff(head: bytes, order: str) -> tuple[int, int] | None:
    place = unpack_from(f"{order}I", head, 4)[0]
    found = {}
    for index in range(unpack_from(f"{order}H", head, place)[0]):
        tag, kind = unpack_from(f"{order}HH", head, place + 2 + 12 * index)
        if tag in (_TIFF_WIDTH, _TIFF_HEIGHT) and kind in (3, 4):
            found[tag] = unpack_from(f"{order}{'H' if kind == 3 else 'I'}", head, place + 10 + 12 * index)[0]
    return _checked(found.get(_TIFF_WIDTH, 0), found.get(_TIFF_HEIGHT, 0))
