"""A 512-byte header block: its fields, its numbers, its checksum.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar
Format", for the GNU magic, base-256 numbers and old sparse files; GNU tar and Go's archive/tar for star's header.

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
"""Bytes of a block: a header is one block, payloads are padded to whole blocks."""
RECORD: Final = 10240
"""Bytes of a record, to which archives are padded (POSIX, pax: 20 blocks by default)."""
ZERO_BLOCK: Final = bytes(BLOCK)
"""Two of these are the end-of-archive marker."""
DOT, SLASH, COLON = b"./:"
"""Bytes as numbers: `in` and `find` are faster with these than with bytes objects."""

REGULAR: Final = b"0"
REGULAR_V7: Final = b"\0"
"""A regular file in a V7 archive; POSIX readers must accept it."""
HARD_LINK: Final = b"1"
SYMLINK: Final = b"2"
CHAR: Final = b"3"
BLOCK_DEVICE: Final = b"4"
DIRECTORY: Final = b"5"
FIFO: Final = b"6"
CONTIGUOUS: Final = b"7"
"""POSIX: "high-performance file"; all readers treat it as a regular file."""
PAX: Final = b"x"
"""PAX records for the next entry."""
PAX_GLOBAL: Final = b"g"
"""PAX records for all entries that follow."""
GNU_LONG_NAME: Final = b"L"
"""The name of the next entry, terminated by NUL."""
GNU_LONG_LINK: Final = b"K"
"""The link target of the next entry, terminated by NUL."""
GNU_SPARSE: Final = b"S"
"""A file with holes: the map is in the header and in extension blocks before the payload."""
GNU_MULTIVOLUME: Final = b"M"
"""The rest of a file that began in the previous volume."""
GNU_VOLUME: Final = b"V"
"""The label of the volume, in the name field."""
GNU_DUMPDIR: Final = b"D"
"""A directory of an incremental archive; its payload lists the files."""
SOLARIS_ACL: Final = b"A"
"""The access control list of the next entry, under its name."""
SOLARIS_ATTRIBUTES: Final = b"E"
"""Extended attributes of an entry, under its name."""
SOLARIS_X: Final = b"X"
"""The `x` of Sun's tar, from before POSIX; same content."""

USTAR_MAGIC: Final = b"ustar\0"
"""Bytes [257, 263) of a POSIX header; the version "00" follows."""
GNU_MAGIC: Final = b"ustar  \0"
"""Bytes [257, 265) of a GNU header, magic and version in one."""
STAR_TRAILER: Final = b"tar\0"
"""Bytes [508, 512) of star's header, whose prefix is 131 bytes, followed by two times."""
STAR_PREFIX: Final = 131

EXTENSIONS: Final = frozenset((PAX, PAX_GLOBAL, SOLARIS_X, GNU_LONG_NAME, GNU_LONG_LINK))
"""The typeflags of headers that say something of the entries that follow, in their payload."""
FILES: Final = (REGULAR, REGULAR_V7, CONTIGUOUS)
"""The typeflags of regular files."""

_NO_PAYLOAD: Final = frozenset((HARD_LINK, SYMLINK, CHAR, BLOCK_DEVICE, DIRECTORY, FIFO))
NUMBERS_KEPT: Final = 4096
"""Distinct fields that `Numbers` caches."""

_LARGEST_OFFSET: Final = 2**63 - 1
_CHECKSUM_FIELD: Final = rb"(?s) *([0-7]+)(?:[ \0].*)?"
_V7_CHECKSUM: Final = rb" *[0-7]+[ \0]*"
_V7_SIZE: Final = rb"(?s) *[0-7]*[ \0]*|[\x80\xff].*"


def parse_number(field: bytes) -> int:
    """Return the number in a header field: octal text, or GNU's base-256 when the first byte is 0x80 or 0xff.

    Octal may have leading spaces and ends at a NUL, a space or the field's end; an empty field is 0. Octal is POSIX,
    base-256 is from the GNU tar manual, "Extensions": 0x80 before a positive, 0xff before a negative number, in big
    endian two's complement. Raises ValueError for anything else.
    """
    digits = field[:-1]
    if digits.isdigit() and field[-1:] in (b"\0", b" "):
        return _octal(digits)
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    if field[:1] == b"\xff":
        return int.from_bytes(field, "big", signed=True)
    digits, _, rest = field.partition(b"\0")
    digits = digits.strip(b" ")
    if digits.isdigit():
        return _octal(digits)
    # Digits after one leading NUL are a number for GNU tar and Go, and 0 for Python and libarchive, so they are an
    # error here. Behind several NULs they are 0 for GNU tar, too.
    if digits or (rest.strip(b"\0 ") and field[1] != 0):
        raise ValueError(f"not a number: {field!r}")
    return 0


def _octal(digits: bytes) -> int:
    try:
        return int(digits, 8)
    except ValueError:
        raise ValueError(f"not an octal number: {digits!r}") from None


class Numbers(dict[bytes, int]):
    """A cache from header fields to their numbers, -1 for malformed ones; most fields repeat within an archive."""

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
    """Return `value` as a header field of `width` bytes: octal and a NUL, or base-256 (GNU) if that is too short.

    Raises ValueError if base-256 cannot hold it either.
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

    Also true for the sum of signed bytes, as written by Sun's and other old tars. False for a field that is not an
    octal number, and for a block that is not 512 bytes.
    """
    # The lower half of adler32 is 1 + the sum of the bytes modulo 65521, and 504 ASCII bytes sum to less than that.
    if len(block) == BLOCK and block.isascii():
        total = (adler32(block[156:], adler32(block[:148])) & 0xFFFF) + 255
        return block[148:156] == b"%06o\0 " % total or parse_checksum(block[148:156]) == total
    if len(block) != BLOCK:
        return False
    stored = parse_checksum(block[148:156])
    total = _sum(block) - sum(block[148:156]) + 8 * 32
    return stored >= 0 and (stored == total or stored == total - 256 * sum(1 for byte in block if byte > 127))


def is_sound(block: bytes) -> bool:
    """Return whether a block is a header that begins where the block does: its checksum is right, and so is its form.

    A lost byte moves all headers after it. If the content of each file begins with the first byte of its name, the sums
    stay, and the checksum is followed by the typeflag. Such a header has the magic beside its place, or without one
    (V7) bytes of the next field behind its size or checksum.
    """
    if not checksum_ok(block):
        return False
    if block[257:262] == b"ustar":
        return True
    if block.find(b"ustar", 250, 270) >= 0:
        return False
    return bool(re.fullmatch(_V7_CHECKSUM, block[148:156]) and re.fullmatch(_V7_SIZE, block[124:136]))


def seal(block: bytes | bytearray) -> bytes:
    """Return the block with its checksum set: six octal digits, NUL, space, as in GNU tar."""
    head, tail = bytes(block[:148]), bytes(block[156:BLOCK])
    return head + b"%06o\0 " % _sum(b"%b        %b" % (head, tail)) + tail


def prefix_of(block: bytes) -> bytes:
    """Return the prefix of the name in a header, without the "/" between them; b"" if there is none.

    Only POSIX headers have one: a GNU header has times and sparse maps there, a V7 header anything. With star's trailer
    it is 131 bytes, as in Go.
    """
    if block[345] == 0 or block[257:263] != USTAR_MAGIC:
        return b""
    size = STAR_PREFIX if block[508:512] == STAR_TRAILER else 155
    return block[345 : 345 + size].partition(b"\0")[0]


def name_of(block: bytes) -> bytes:
    """Return the name in a header with its prefix; b"" if there is none."""
    end = block.find(b"\0", 0, 100)
    name = block[:100] if end < 0 else block[:end]
    prefix = prefix_of(block)
    return prefix + b"/" + name if prefix else name


def linkname_of(block: bytes) -> bytes:
    """Return the link target in a header; b"" if there is none."""
    return block[157:257].partition(b"\0")[0]


def padding(size: int) -> int:
    """Return the number of bytes that pad `size` to whole blocks, 0 to 511."""
    return -size % BLOCK


def is_zero(block: bytes) -> bool:
    """True for a block of 512 zeros."""
    return block == ZERO_BLOCK


def payload_size(typeflag: bytes, size: int) -> int:
    """Return the bytes of payload after the header of an entry whose size field or PAX record is `size`.

    Raises ValueError for a payload of negative size or of more than 2**63 - 1 bytes.
    """
    # Links, devices, directories and FIFOs have no payload, whatever `size` is: as in Go, Python, libarchive, and POSIX
    # for ustar; GNU tar 1.34 ignores the size of hard links and directories only. In the pax format of POSIX a hard
    # link may have its data (`pax -o linkdata`), which libarchive reads after an `x` header; but Go's writer leaves
    # sizes without data in such headers. If 0 is wrong, the next block is not a valid header, which is an error.
    if typeflag in _NO_PAYLOAD:
        return 0
    if not 0 <= size <= _LARGEST_OFFSET:
        raise ValueError(f"impossible size {size}")
    return size


def sparse_real_size(block: bytes) -> int:
    """Return the size in bytes of a file of typeflag `S`, with its holes (GNU tar manual, "Old GNU Format").

    Raises ValueError if the field is not a number from 0 to 2**63 - 1, or the header is not in the GNU format: star has
    its own layout for `S`, which only star and GNU tar read.
    """
    if block[257:265] != GNU_MAGIC:
        raise ValueError("a sparse file that is not in the GNU format")
    size = parse_number(block[483:495])
    if not 0 <= size <= _LARGEST_OFFSET:
        raise ValueError(f"impossible real size {size}")
    return size


def sparse_is_extended(block: bytes) -> bool:
    """Return whether a block with more of the sparse map follows this header of typeflag `S`."""
    return block[482] != 0


def sparse_extension_continues(block: bytes) -> bool:
    """Return whether another block of the sparse map follows this one, else the payload does."""
    return block[504] != 0


def _sum(block: bytes) -> int:
    """Return the sum of up to 512 bytes. 256 bytes sum to less than the modulus of adler32, so each half is exact."""
    return (adler32(block[:256]) & 0xFFFF) + (adler32(block[256:]) & 0xFFFF) - 2


def parse_checksum(field: bytes) -> int:
    """Return the number in a checksum field, or -1: octal up to the first NUL or space, anything after that."""
    match = re.fullmatch(_CHECKSUM_FIELD, field)
    return int(match[1], 8) if match else -1
