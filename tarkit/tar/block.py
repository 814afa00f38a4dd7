"""One 512-byte block of a tar archive: where its fields lie, its numbers both ways, its checksum.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format", for the GNU magic, base-256 numbers and old sparse files; star's header as both GNU tar and Go read it.

    offset  0 name 100   100 mode 8   108 uid 8   116 gid 8   124 size 12   136 mtime 12   148 checksum 8
          156 typeflag   157 linkname 100   257 magic 6   263 version 2   265 uname 32   297 gname 32
          329 devmajor 8   337 devminor 8   345 prefix 155 (star: 131; GNU: times, sparse map)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from zlib import adler32

BLOCK: Final = 512
"""Bytes of a block: headers are one, payloads are padded to whole ones."""
RECORD: Final = 10240
"""Bytes of a record, the unit archives are padded to (POSIX pax: 20 blocks unless asked otherwise)."""
ZERO_BLOCK: Final = bytes(BLOCK)
"""Two of these end an archive."""
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of the years 1 to 9999: all readers take these times, and some fail or crash beyond them."""
DOT, SLASH, COLON = b"./:"
"""Bytes of names as numbers: found in bytes in a fifth of the time that bytes are, which are tried as one first."""

REGULAR: Final = b"0"
REGULAR_V7: Final = b"\0"
"""A regular file of a tar before POSIX; POSIX readers must take it."""
HARD_LINK: Final = b"1"
SYMLINK: Final = b"2"
CHAR: Final = b"3"
BLOCK_DEVICE: Final = b"4"
DIRECTORY: Final = b"5"
FIFO: Final = b"6"
CONTIGUOUS: Final = b"7"
"""POSIX: "high performance file"; everybody reads it as a regular file."""
PAX: Final = b"x"
"""PAX records for the next entry."""
PAX_GLOBAL: Final = b"g"
"""PAX records for all entries that follow."""
GNU_LONG_NAME: Final = b"L"
"""The name of the next entry, ended by NUL."""
GNU_LONG_LINK: Final = b"K"
"""The link target of the next entry, ended by NUL."""
GNU_SPARSE: Final = b"S"
"""A file with holes: the map lies in the header and in extension blocks before the payload."""
GNU_MULTIVOLUME: Final = b"M"
"""The rest of a file that began in the volume before."""
GNU_VOLUME: Final = b"V"
"""The label of the volume, in the name field."""
GNU_DUMPDIR: Final = b"D"
"""A directory of an incremental archive; its payload lists the files."""
SOLARIS_X: Final = b"X"
"""What Sun's tar wrote before POSIX settled on `x`; same content."""

USTAR_MAGIC: Final = b"ustar\0"
"""Bytes 257-263 of a POSIX header; the version "00" follows."""
GNU_MAGIC: Final = b"ustar  \0"
"""Bytes 257-265 of a GNU header, magic and version in one."""
STAR_TRAILER: Final = b"tar\0"
"""Bytes 508-512 of star's header, whose prefix is 131 bytes, followed by two times."""
STAR_PREFIX: Final = 131

_NO_PAYLOAD: Final = frozenset((HARD_LINK, SYMLINK, CHAR, BLOCK_DEVICE, DIRECTORY, FIFO))
NUMBERS_KEPT: Final = 4096
"""Distinct fields whose number `Numbers` remembers."""

_LARGEST_OFFSET: Final = 2**63 - 1
_CHECKSUM_FIELD: Final = re.compile(rb" *([0-7]+)(?:[ \0].*)?", re.DOTALL)


def parse_number(field: bytes) -> int:
    """Return the number in a header field: octal text, or GNU's base-256 when the first byte is 0x80 or 0xff.

    Octal may have leading spaces and ends at a NUL, a space or the field's end; an empty field is 0. Octal is POSIX,
    base-256 is from the GNU tar manual, "Extensions": 0x80 before a positive, 0xff before a negative number, in big
    endian two's complement. Raises ValueError for anything else.
    """
    digits = field[:-1]
    if digits.isdigit() and field[-1:] in (b"\0", b" "):
        return int(digits, 8)
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    if field[:1] == b"\xff":
        return int.from_bytes(field, "big", signed=True)
    digits, _, rest = field.partition(b"\0")
    digits = digits.strip(b" ")
    if digits.isdigit():
        return int(digits, 8)
    # A number behind one leading NUL is that number for GNU tar and Go, and 0 for Python and libarchive, so it is an
    # error here. Behind several it is 0 for GNU tar too.
    if digits or (rest.strip(b"\0 ") and field[1] != 0):
        raise ValueError(f"not a number: {field!r}")
    return 0


class Numbers(dict[bytes, int]):
    """Header fields to their numbers, -1 for what is none; the same few fields come again and again."""

    def __init__(self, parse: Callable[[bytes], int]) -> None:
        super().__init__()
        self.parse = parse

    def __missing__(self, field: bytes) -> int:
        if len(self) >= NUMBERS_KEPT:
            self.clear()
        try:
            number = self.parse(field)
        except ValueError:
            number = -1
        self[field] = number
        return number


def format_number(value: int, width: int) -> bytes:
    """Return `value` as a header field of `width` bytes: octal ended by NUL, base-256 (GNU) when that cannot hold it.

    Raises ValueError when base-256 cannot hold it either.
    """
    if 0 <= value < 1 << 3 * (width - 1):
        return b"%0*o\0" % (width - 1, value)
    try:
        if value >= 0:
            return b"\x80" + value.to_bytes(width - 1, "big")
        return b"\xff" + (value + (1 << 8 * (width - 1))).to_bytes(width - 1, "big")
    except OverflowError:
        raise ValueError(f"{value} does not fit in {width} bytes") from None


def checksum_ok(block: bytes) -> bool:
    """True if the block's checksum field holds the sum of its bytes, that field counted as eight spaces (POSIX).

    Also true for the sum of signed bytes, as Sun's and other old tars wrote it. A field that is no octal number, and
    a block that is not 512 bytes, are False.
    """
    # adler32's low half is 1 + the sum of the bytes modulo 65521, and 504 ASCII bytes sum to less than that.
    if len(block) == BLOCK and block.isascii():
        total = (adler32(block[156:], adler32(block[:148])) & 0xFFFF) + 255
        return block[148:156] == b"%06o\0 " % total or parse_checksum(block[148:156]) == total
    if len(block) != BLOCK:
        return False
    stored = parse_checksum(block[148:156])
    total = _sum(block) - sum(block[148:156]) + 8 * 32
    return stored >= 0 and (stored == total or stored == total - 256 * sum(1 for byte in block if byte > 127))


def seal(block: bytes | bytearray) -> bytes:
    """Return the block with its checksum field set: six octal digits, NUL, space (as POSIX examples and GNU tar)."""
    head, tail = bytes(block[:148]), bytes(block[156:BLOCK])
    return head + b"%06o\0 " % _sum(b"%b        %b" % (head, tail)) + tail


def prefix_of(block: bytes) -> bytes:
    """Return the prefix of the name in a header, without the "/" that joins them; b"" when there is none.

    It exists under the POSIX magic alone: a GNU header keeps times and sparse maps there, a V7 header anything. With
    star's trailer it is 131 bytes, as in Go.
    """
    if block[345] == 0 or block[257:263] != USTAR_MAGIC:
        return b""
    size = STAR_PREFIX if block[508:512] == STAR_TRAILER else 155
    return block[345 : 345 + size].partition(b"\0")[0]


def name_of(block: bytes) -> bytes:
    """Return the name in a header, raw, with its prefix; b"" when there is none."""
    end = block.find(b"\0", 0, 100)
    name = block[:100] if end < 0 else block[:end]
    prefix = prefix_of(block)
    return prefix + b"/" + name if prefix else name


def linkname_of(block: bytes) -> bytes:
    """Return the link target in a header, raw; b"" when there is none."""
    return block[157:257].partition(b"\0")[0]


def padding(size: int) -> int:
    """Return the number of bytes from `size` to the next block border, 0 to 511."""
    return -size % BLOCK


def is_zero(block: bytes) -> bool:
    """True for a block of 512 zeros."""
    return block == ZERO_BLOCK


def payload_size(typeflag: bytes, size: int) -> int:
    """Return the bytes of payload that follow the header of an entry whose size field (or PAX record) says `size`.

    Raises ValueError when there would be a payload of negative size or of more than 2**63 - 1 bytes.
    """
    # Links, devices, directories and FIFOs have none, whatever `size` says: so Go, Python and libarchive, and POSIX for
    # ustar; GNU tar 1.34 does so for hard links and directories alone. POSIX lets a hard link of the pax format carry
    # its data (`pax -o linkdata`), and libarchive believes that once it saw an `x`; but Go's writer leaves sizes
    # without data in such headers. So 0, as three of four: if it is wrong, the next block is no header, which shows.
    if typeflag in _NO_PAYLOAD:
        return 0
    if not 0 <= size <= _LARGEST_OFFSET:
        raise ValueError(f"impossible size {size}")
    return size


def sparse_real_size(block: bytes) -> int:
    """Return the size in bytes that a file of typeflag `S` has with its holes (GNU tar manual, "Old GNU Format").

    Raises ValueError when the field is no number from 0 to 2**63 - 1, or the header is not GNU's: star has its own
    layout for `S`, which only star and GNU tar know.
    """
    if block[257:265] != GNU_MAGIC:
        raise ValueError("a sparse file that is not in the GNU format")
    size = parse_number(block[483:495])
    if not 0 <= size <= _LARGEST_OFFSET:
        raise ValueError(f"impossible real size {size}")
    return size


def sparse_is_extended(block: bytes) -> bool:
    """True if a block with more of the sparse map follows the header of typeflag `S`."""
    return block[482] != 0


def sparse_extension_continues(block: bytes) -> bool:
    """True if one more block of sparse map follows this one; False if the payload does."""
    return block[504] != 0


def _sum(block: bytes) -> int:
    """The sum of up to 512 bytes: 256 of them stay below adler32's modulus, so each half is exact."""
    return (adler32(block[:256]) & 0xFFFF) + (adler32(block[256:]) & 0xFFFF) - 2


def parse_checksum(field: bytes) -> int:
    """Return the number in a checksum field, or -1: octal that ends at the first NUL or space, whatever follows."""
    match = _CHECKSUM_FIELD.fullmatch(field)
    return int(match[1], 8) if match else -1
