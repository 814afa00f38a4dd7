"""Write a zip: a sink that takes the bytes of a tar archive and writes its entries as those of a zip.

So every command that writes archives can write zips. Entries keep their order, names, modes, times (to the second) and
owner ids; a zip has no owner names. They are stored unless a level is given, since the fields of datasets are usually
compressed.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor
from struct import pack
from typing import Any
from zlib import crc32

from tarkit.errors import Usage
from tarkit.streams.codecs import deflate_library, legal_level
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import block as blocks
from tarkit.tar.block import BLOCK
from tarkit.tar.entry_sink import EntrySink, kind_name
from tarkit.tar.header import is_utf8, main_header, number_or_zero, time_of
from tarkit.tar.pax import Records
from tarkit.tar.reader import Entry
from tarkit.zip.decode import DEFLATE, STORED
from tarkit.zip.directory import CENTRAL, END, END64, FULL, FULL16, LOCAL, LOCATOR, ZIP64
from tarkit.zip.info import NTFS, NTFS_EPOCH, OWNER, TIME

# ---- The records of a zip: before and after an entry, in the directory, and at the end
# The MS-DOS time of an entry goes from 1980 to 2107 in steps of two seconds, and other programs read it as local time.
# So each entry also has its time in UTC and to the second in an extra field: from 1970 to January 2038 in Info-ZIP's,
# else in that of NTFS, which goes from 1601 to 30827. (Some readers take Info-ZIP's for unsigned.)
#
# Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5, 4.5.5 (NTFS); Info-ZIP's extrafld.txt: 0x5455 (time), 0x7875
# (owner), and its use of the upper half of the external attributes.

LIMIT = 0xFFFFFFFE  # larger sizes and offsets need zip64
MOST = 0xFFFE  # so do more entries

_UTF8, _FOLLOWS = 0x800, 0x8  # flags: the name is UTF-8; checksum and sizes follow the content
_UNIX = 3 << 8


class ZipRecord:
    """The facts of one entry, and its headers made from them; `packed` is the size of its content as stored.

    Raises ValueError for an `mtime` that a zip cannot hold.
    """

    def __init__(self, name: bytes, attributes: int, mtime: int, offset: int, owner: Sequence[int]) -> None:
        self.name = name
        self.attributes = attributes
        self.time, self.date = dos_time(mtime)
        self.extra = exact_time(mtime) + (_owner(*owner) if any(owner) else b"")
        self.offset = offset
        self.flags = 0 if name.isascii() or not is_utf8(name) else _UTF8
        self.method = STORED
        self.crc = self.size = self.packed = 0
        self.wide = False  # its sizes are in the zip64 field

    def local(self) -> bytes:
        """Return the header before the content, with zeros for the sizes if they follow the content."""
        sizes_known = not self.flags & _FOLLOWS
        numbers = (self.crc, self.packed, self.size) if sizes_known else (0, 0, 0)
        extra = self.extra
        if self.wide:
            extra = pack("<2H2Q", ZIP64, 16, numbers[2], numbers[1]) + extra
            numbers = (numbers[0], FULL, FULL)
        fields = (45 if self.wide else 20, self.flags, self.method, self.time, self.date, *numbers)
        return LOCAL.pack(b"PK\3\4", *fields, len(self.name), len(extra)) + self.name + extra

    def follows(self) -> bytes:
        """Return the checksum and sizes after the content (4.3.9)."""
        return pack("<4sL2Q" if self.wide else "<4s3L", b"PK\7\x08", self.crc, self.packed, self.size)

    def central(self) -> bytes:
        """Return its record in the directory."""
        size, packed, offset, extra = self.size, self.packed, self.offset, self.extra
        wide = size > LIMIT or packed > LIMIT or offset > LIMIT
        if wide:
            numbers = [number for number in (size, packed, offset) if number > LIMIT]
            extra = pack(f"<2H{len(numbers)}Q", ZIP64, 8 * len(numbers), *numbers) + extra
            size, packed, offset = (number if number <= LIMIT else FULL for number in (size, packed, offset))
        needed = 45 if self.wide or wide else 20
        fields = (_UNIX | needed, needed, self.flags, self.method, self.time, self.date, self.crc, packed, size)
        lengths = (len(self.name), len(extra), 0, 0, 0)
        return CENTRAL.pack(b"PK\1\2", *fields, *lengths, self.attributes, offset) + self.name + extra


def end_of_zip(count: int, start: int, size: int) -> bytes:
    """Return the end records of a zip of `count` entries, with a directory of `size` bytes from `start` on."""
    ending = b""
    if count > MOST or size > LIMIT or start > LIMIT:
        ending = END64.pack(b"PK\6\6", 44, _UNIX | 45, 45, 0, 0, count, count, size, start)
        ending += LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    shown = FULL16 if count > MOST else count
    where = (number if number <= LIMIT else FULL for number in (size, start))
    return ending + END.pack(b"PK\5\6", 0, 0, shown, shown, *where, 0)


@lru_cache(4096)
def dos_time(seconds: int) -> tuple[int, int]:
    """Return the nearest MS-DOS time and date, in UTC, for seconds since 1970.

    >>> dos_time(0)
    (0, 33)
    """
    earliest, latest = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        time = latest if seconds > 0 else earliest
    time = min(max(time, earliest), latest)
    return time.hour << 11 | time.minute << 5 | time.second >> 1, (time.year - 1980) << 9 | time.month << 5 | time.day


@lru_cache(4096)
def exact_time(seconds: int) -> bytes:
    """Return the extra field of a time in seconds since 1970. Raises ValueError for a time that no field can hold.

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
    width = 4 if max(uid, gid) <= FULL else 8
    numbers = b"".join(bytes((width,)) + number.to_bytes(width, "little") for number in (uid, gid))
    return pack("<2HB", OWNER, 1 + len(numbers), 1) + numbers


def check_time(seconds: int) -> None:
    """Raise Usage for a time of an option, in seconds since 1970, that a zip cannot hold."""
    try:
        exact_time(seconds)
    except ValueError as error:
        raise Usage(f"a zip cannot hold the time @{seconds}: {error}") from None


SHORT = 1 << 12  # bytes: shorter content is joined with its header
DIRECTORY_HELD = 16 << 20  # bytes of the directory in memory


def _recorded_number(records: Records, keyword: bytes, number: int) -> int:
    text = records.get(keyword, b"")
    return int(text) if text.isdigit() and len(text) < 20 else number


class ZipSink(EntrySink):
    """A sink that takes a tar archive and writes a zip to `target`.

    The directory of the zip, about 50 bytes and the name for each entry, is held until the end: in memory, and beyond
    DIRECTORY_HELD bytes in a temporary file.

    Args:
        target: the sink of the zip.
        level: 0 stores; 1 to 9 deflate entries that get smaller by it.
        tmpdir: directory for the temporary file.

    Raises:
        Unsupported: an entry that a zip cannot hold: hard links, devices, FIFOs, sparse files, a name with NUL or of
            64 KiB, a time before 1601 or after 30827.
    """

    format = "a zip"

    def __init__(self, target: Sink, level: int | None = None, tmpdir: str | None = None) -> None:
        super().__init__(target)
        self._level = legal_level("zip", level)
        self._tmpdir = tmpdir
        self._numbers = blocks.Numbers(number_or_zero)
        self._record: ZipRecord | None = None  # of a large entry
        self._deflater: Any = None
        self._position = 0  # bytes of the zip
        self._count = 0
        self._directory = bytearray()
        self._directory_file: TemporaryFile | None = None
        self._directory_file_size = 0

    def abort(self) -> None:
        if self._directory_file is not None:
            self._directory_file.close()
        super().abort()

    def _record_for(self, entry: Entry) -> ZipRecord:
        name, kind = entry.name, stat.S_IFREG
        if entry.type != blocks.REGULAR or entry.real >= 0 or len(name) > FULL16 or name[-1] == 47 or 0 in name:
            directory = entry.type == blocks.DIRECTORY or (
                entry.type in blocks.FILES and name.endswith(b"/") and not entry.size
            )
            if entry.sparse:
                raise self.refused(name, "a sparse file")
            if not directory and entry.type not in (*blocks.FILES, blocks.SYMLINK):
                raise self.refused(name, kind_name(entry.type))
            if directory and not name.endswith(b"/"):
                name += b"/"
            if 0 in name or len(name) > FULL16 or (name.endswith(b"/") and not directory):
                raise self.refused(name, "a name that a zip cannot hold")
            kind = stat.S_IFDIR if directory else stat.S_IFLNK if entry.type == blocks.SYMLINK else kind
        mode, mtime, *owner = self._facts(entry)
        attributes = (kind | mode) << 16 | (0x10 if kind == stat.S_IFDIR else 0)
        try:
            return ZipRecord(name, attributes, mtime, self._position, owner)
        except ValueError as failure:
            raise self.refused(name, str(failure)) from None

    def _facts(self, entry: Entry) -> tuple[int, int, int, int]:
        numbers = self._numbers
        records: Records = {}
        header = self.header(entry)
        if len(header) > BLOCK:
            header, records = main_header(header)
        mode, uid, gid = numbers[header[100:108]], numbers[header[108:116]], numbers[header[116:124]]
        mtime = numbers[header[136:148]]
        if records:
            exact = time_of(records)
            mtime = mtime if exact is None else floor(exact)
            uid, gid = _recorded_number(records, b"uid", uid), _recorded_number(records, b"gid", gid)
        return mode & 0o7777, mtime, max(0, uid), max(0, gid)

    def take(self, entry: Entry, content: bytes) -> None:
        record = self._record_for(entry)
        if entry.type == blocks.SYMLINK:
            content = entry.link
        record.crc, record.size = crc32(content), len(content)
        if self._level and content:
            deflater = self._new_deflater()
            packed = deflater.compress(content) + deflater.flush()
            if len(packed) < len(content):
                content, record.method = packed, DEFLATE
        record.packed = len(content)
        record.wide = max(record.size, record.packed) > LIMIT
        self.put(record.local() + content if record.packed < SHORT else record.local())
        if record.packed >= SHORT:
            self.put(content)
        self._add_to_directory(record)

    def begin(self, entry: Entry) -> None:
        """Write the header of a large entry; checksum and sizes follow its content."""
        record = self._record = self._record_for(entry)
        record.flags |= _FOLLOWS
        record.method = DEFLATE if self._level else STORED
        record.wide = entry.size + (entry.size >> 4) > LIMIT  # deflate can make it a little longer
        self._deflater = self._new_deflater() if self._level else None
        self.put(record.local())

    def proceed(self, data: bytes, last: bool) -> None:
        record = self._record
        assert record is not None
        record.crc = crc32(data, record.crc)
        record.size += len(data)
        if self._deflater is not None:
            data = self._deflater.compress(data) + (self._deflater.flush() if last else b"")
        record.packed += len(data)
        self.put(data)
        if last:
            self.put(record.follows())
            self._add_to_directory(record)
            self._record = None

    def _new_deflater(self) -> Any:
        library = deflate_library(self._level)
        return library.compressobj(self._level, library.DEFLATED, -15)

    def put(self, data: bytes) -> None:
        self._position += len(data)
        super().put(data)

    def _add_to_directory(self, record: ZipRecord) -> None:
        self._count += 1
        self._directory += record.central()
        if len(self._directory) > DIRECTORY_HELD:
            self._directory_file = self._directory_file or TemporaryFile(self._tmpdir)
            self._directory_file.write(bytes(self._directory))
            self._directory_file_size += len(self._directory)
            self._directory.clear()

    def finish(self) -> None:
        start, size = self._position, self._directory_file_size + len(self._directory)
        self.flush()
        if self._directory_file is not None:
            self.target.copy(self._directory_file.fd, 0, self._directory_file_size)
            self._directory_file.close()
        self.target.write(bytes(self._directory))
        self.target.write(end_of_zip(self._count, start, size))
