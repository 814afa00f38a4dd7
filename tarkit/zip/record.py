"""The records of a zip: what stands before and behind an entry, in the directory, and at the end.

The time of a zip goes from 1980 to 2107, in steps of two seconds, and other programs take it for local time. So each
entry has its time, in UTC and to the second, in an extra field too: from 1970 to January 2038 in that of Info-ZIP,
before and after in that of NTFS, which goes from 1601 to 30827: of other readers some take the first for unsigned.

Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5, 4.5.5 (NTFS); Info-ZIP's extrafld.txt: 0x5455 (time), 0x7875
(owner), and its use of the upper half of the external attributes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct, pack

from tarkit.errors import Usage
from tarkit.zip.info import NTFS, NTFS_EPOCH, OWNER, TIME

LIMIT = 0xFFFFFFFE  # sizes and offsets beyond it need the fields of zip64
MOST = 0xFFFE  # and numbers of entries
STORED, DEFLATED = 0, 8

_LOCAL = Struct("<4s5H3L2H")
_CENTRAL = Struct("<4s6H3L5H2L")
_END = Struct("<4s4H2LH")
_END64 = Struct("<4sQ2H2L4Q")
_LOCATOR = Struct("<4sLQL")
_UTF8, _FOLLOWS = 0x800, 0x8  # flags: the name is UTF-8; checksum and sizes follow the content
_UNIX = 3 << 8
_FULL = 0xFFFFFFFF  # the true number is in a field of zip64


class Record:
    """What a zip says of one entry, before it and in the directory; `packed` is the size of its content as it lies.

    Raises ValueError for an `mtime` that no zip can say.
    """

    def __init__(self, name: bytes, attributes: int, mtime: int, offset: int, owner: tuple[int, int] = (0, 0)) -> None:
        self.name = name
        self.attributes = attributes
        self.time, self.date = dos_time(mtime)
        self.extra = exact_time(mtime) if owner == (0, 0) else exact_time(mtime) + _owner(*owner)
        self.offset = offset
        self.flags = 0 if name.isascii() or not _is_utf8(name) else _UTF8
        self.method = STORED
        self.crc = self.size = self.packed = 0
        self.wide = False  # its sizes are in a field of zip64

    def defer(self) -> None:
        """Have checksum and sizes follow the content."""
        self.flags |= _FOLLOWS

    def local(self) -> bytes:
        """The header before its content, which says no sizes when they follow."""
        known = not self.flags & _FOLLOWS
        numbers = (self.crc, self.packed, self.size) if known else (0, 0, 0)
        extra = self.extra
        if self.wide:
            extra = pack("<2H2Q", 1, 16, numbers[2], numbers[1]) + extra
            numbers = (numbers[0], _FULL, _FULL)
        fields = (self._needed(self.wide), self.flags, self.method, self.time, self.date, *numbers)
        return _LOCAL.pack(b"PK\3\4", *fields, len(self.name), len(extra)) + self.name + extra

    def follows(self) -> bytes:
        """The checksum and the sizes behind its content."""
        return pack("<4sL2Q" if self.wide else "<4s3L", b"PK\7\x08", self.crc, self.packed, self.size)

    def central(self) -> bytes:
        """Its record in the directory."""
        size, packed, offset, extra = self.size, self.packed, self.offset, self.extra
        wide = size > LIMIT or packed > LIMIT or offset > LIMIT
        if wide:
            numbers = [number for number in (size, packed, offset) if number > LIMIT]
            extra = pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) + extra
            size, packed, offset = (number if number <= LIMIT else _FULL for number in (size, packed, offset))
        needed = self._needed(self.wide or wide)
        fields = (_UNIX | needed, needed, self.flags, self.method, self.time, self.date, self.crc, packed, size)
        lengths = (len(self.name), len(extra), 0, 0, 0)
        return _CENTRAL.pack(b"PK\1\2", *fields, *lengths, self.attributes, offset) + self.name + extra

    def _needed(self, wide: bool) -> int:
        return 45 if wide else 20


def end_of_zip(count: int, start: int, size: int) -> bytes:
    """What ends a zip of `count` entries, whose directory has `size` bytes from `start` on."""
    ending = b""
    if count > MOST or size > LIMIT or start > LIMIT:
        ending = _END64.pack(b"PK\6\6", 44, _UNIX | 45, 45, 0, 0, count, count, size, start)
        ending += _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    shown = 0xFFFF if count > MOST else count
    where = (number if number <= LIMIT else _FULL for number in (size, start))
    return ending + _END.pack(b"PK\5\6", 0, 0, shown, shown, *where, 0)


@lru_cache(4096)
def dos_time(seconds: int) -> tuple[int, int]:
    """The time and the date fields of a zip for seconds since 1970, in UTC; the nearest that they can say.

    >>> dos_time(0)
    (0, 33)
    """
    earliest, latest = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        when = latest if seconds > 0 else earliest
    when = min(max(when, earliest), latest)
    return when.hour << 11 | when.minute << 5 | when.second >> 1, (when.year - 1980) << 9 | when.month << 5 | when.day


@lru_cache(4096)
def exact_time(seconds: int) -> bytes:
    """Return the extra field of a time in seconds since 1970; raises ValueError for a time that no field can say.

    >>> exact_time(1_700_000_001).hex()
    '555405000101f15365'
    """
    if 0 <= seconds < 1 << 31:
        return pack("<2HBL", TIME, 5, 1, seconds)
    ticks = (seconds + NTFS_EPOCH) * 10**7
    if not 0 < ticks < 1 << 63:
        raise ValueError("a time before 1601 or after 30827")
    return pack("<2HL2H3Q", NTFS, 32, 0, 1, 24, ticks, ticks, ticks)


def _owner(uid: int, gid: int) -> bytes:
    width = 4 if max(uid, gid) <= _FULL else 8
    numbers = b"".join(bytes((width,)) + number.to_bytes(width, "little") for number in (uid, gid))
    return pack("<2HB", OWNER, 1 + len(numbers), 1) + numbers


def check_time(seconds: int) -> None:
    """Raise Usage for a time, asked for in seconds since 1970, that a zip cannot say."""
    try:
        exact_time(seconds)
    except ValueError as error:
        raise Usage(f"a zip cannot hold the time @{seconds}: {error}") from None


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
