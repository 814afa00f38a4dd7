"""Read a zip as the tar archive that `create` would have made of its entries, so that every command takes one.

What is in a zip its directory says, at its end; entries come in the order of that, each checked against its checksum
before its last byte is handed out. Python's zipfile reads the directory and the entries; a zip that does not come from
a file is first copied to a temporary one. Names are the bytes that the zip has, and UTF-8 where it says so.
Source: PKWARE APPNOTE.TXT 6.3.10, 4.3 and 4.4; Info-ZIP's extra fields 0x5455 (time) and 0x7075 (name).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct, unpack_from
from struct import error as Malformed
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32
from zlib import error as zlib_error

from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.streams.copy import CHUNK
from tarkit.streams.scratch import Scratch
from tarkit.streams.source import Reader
from tarkit.tar import block as blocks
from tarkit.tar.block import padding
from tarkit.tar.header import encode, end_of_archive

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

GATHERED = 1 << 18  # bytes of small entries that are handed out together
LINK = 1 << 16  # bytes; no target of a symbolic link is longer

_END = Struct("<4s4H2LH")
_END64 = Struct("<4sQ2H2L4Q")
_LOCATOR = 20  # bytes that stand between the end of a zip64 and that of the zip
_ENCRYPTED, _UTF8 = 0x1 | 0x40, 0x800
_UNIX = (3, 19)  # systems whose modes are in the external attributes
_TIME, _NAME = 0x5455, 0x7075  # extra fields of Info-ZIP
_KINDS = (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_CUT = "the file was not written or not copied to its end: copy or make it again"
METHODS = {0: "stored", 8: "deflate", 12: "bzip2", 14: "lzma"}
AHEAD = 1 << 16  # bytes that are read of the file at a time


class ZipReader:
    """The zip that `reader` has, as a tar archive; `name` is for messages.

    `fd`, if given, is the descriptor of a file that is the zip, from its first byte to its last. Memory: some 500 bytes
    for each entry.
    """

    def __init__(self, reader: Reader, name: str, tmpdir: str | None = None, fd: int | None = None) -> None:
        self.reader = reader
        self.name = name
        self._tmpdir = tmpdir
        self._fd = fd
        self._tar = self._archive()
        self._data = memoryview(b"")
        self._failure: TarkitError | None = None

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`.

        Raises Problem `truncated` for a zip that was cut and `bad-data` for other damage, and Unsupported for what is
        encrypted or packed in a way that is not known; each further call raises the same.
        """
        while not self._data:
            if self._failure is not None:
                raise self._failure
            try:
                data = next(self._tar, None)
            except TarkitError as failure:
                self._failure = failure
                raise
            if data is None:
                return 0
            self._data = memoryview(data)
        count = min(len(self._data), len(view))
        view[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def fileno(self) -> int | None:
        """None: what a descriptor has is not what is read here."""
        return None

    def close(self) -> None:
        """Close what it is read from."""
        self._tar.close()
        self.reader.close()

    def _archive(self) -> Generator[bytes]:
        """The archive, in pieces; what was read before an error is handed out before that is raised."""
        held: list[bytes] = []
        size = position = 0
        failure: TarkitError | None = None
        try:
            for piece in self._pieces():
                held.append(piece)
                size += len(piece)
                if size >= GATHERED:
                    position += size
                    yield b"".join(held)
                    held, size = [], 0
        except TarkitError as raised:
            failure = raised
        yield b"".join(held)
        if failure is not None:
            raise failure
        yield end_of_archive(position + size)

    def _pieces(self) -> Iterator[bytes]:
        """The same without its end."""
        scratch = self._spooled() if self._fd is None else None
        with os.fdopen(os.dup(scratch.fd if scratch else self._fd or 0), "rb", AHEAD) as file:
            try:
                zip_ = self._opened(file)
                names = [name_of(info) for info in zip_.infolist()]
                for info, name in zip(zip_.infolist(), names, strict=True):
                    self._check(info, name)
                for info, name in zip(zip_.infolist(), names, strict=True):
                    yield from self._entry(zip_, info, name)
            except OSError as failure:
                failure.filename = failure.filename or self.name
                raise

    def _spooled(self) -> Scratch:
        scratch = Scratch(self._tmpdir)
        view = memoryview(bytearray(CHUNK))
        while got := self.reader.readinto(view):
            scratch.write(view[:got])
        return scratch

    def _opened(self, file: BinaryIO) -> ZipFile:
        """The directory; raises Problem unless it is all that the zip says there is."""
        from zipfile import BadZipFile, ZipFile

        try:
            zip_ = ZipFile(file)
            size = os.fstat(file.fileno()).st_size
            end = size - _END.size - len(zip_.comment)
            record = _END.unpack(os.pread(file.fileno(), _END.size, end))
        except (BadZipFile, EOFError, ValueError, OverflowError, Malformed) as failure:
            if str(failure) == "File is not a zip file":
                what = f"the zip ends before its directory, after {os.fstat(file.fileno()).st_size} bytes"
                raise Problem("truncated", self.name, None, what, _CUT) from None
            raise self._damaged(f"its directory does not read: {failure}") from None
        magic, disk, first, _, count, _, start, comment = record
        if magic != b"PK\5\6":
            raise self._damaged("other bytes follow its end")
        if comment != len(zip_.comment):
            raise Problem("truncated", self.name, None, "the zip ends inside its comment", _CUT)
        wide = os.pread(file.fileno(), _END64.size, max(0, end - _LOCATOR - _END64.size))
        if wide.startswith(b"PK\6\6"):
            _, _, _, _, disk, first, _, count, _, start = _END64.unpack(wide)
        if disk or first:
            raise Unsupported(
                f"{self.name}: the zip is one of several volumes", "zip -s 0 IN.zip --out OUT.zip joins them"
            )
        if zip_.start_dir != start:
            raise self._damaged("other bytes stand before it: two that were glued together?")
        if count not in (len(zip_.infolist()), len(zip_.infolist()) & 0xFFFF):
            raise self._damaged(f"it has {count} entries, and its directory lists {len(zip_.infolist())}")
        return zip_

    def _check(self, info: ZipInfo, name: bytes) -> None:
        """Raise Unsupported or Problem for an entry that cannot be read, before any is."""
        import zipfile

        unable = None
        if info.flag_bits & _ENCRYPTED:
            unable = "is encrypted"
        elif info.compress_type not in METHODS and info.compress_type != getattr(zipfile, "ZIP_ZSTANDARD", 0):
            unable = f"is packed by method {info.compress_type}, not by {', '.join(METHODS.values())}"
        elif kind_of(info) not in _KINDS:
            unable = "is a device or a FIFO"
        elif (kind_of(info) == stat.S_IFDIR or name.endswith(b"/")) and info.file_size:
            unable = "is a folder, and has content"
        if unable:
            raise Unsupported(
                f"{self.name}: the zip entry {show(name)} {unable}", "unpack it with the program that made it"
            )
        if not name or 0 in name:
            raise self._damaged(f"an entry has the name {show(name)}")
        if info.compress_type == 0 and info.compress_size != info.file_size:
            raise self._damaged(f"{show(name)} has {info.file_size} bytes, of which {info.compress_size} are stored")

    def _entry(self, zip_: ZipFile, info: ZipInfo, name: bytes) -> Iterator[bytes]:
        """An entry as it lies in a tar."""
        size, mode, mtime = info.file_size, mode_of(info), mtime_of(info)
        kind = kind_of(info)
        if kind == stat.S_IFLNK:
            if size > LINK:
                raise self._damaged(f"{show(name)} is a symbolic link of {size} bytes")
            target = b"".join(self._content(zip_, info, name))
            yield encode(name, 0, mode=mode, mtime=mtime, typeflag=blocks.SYMLINK, linkname=target)
            return
        content = self._content(zip_, info, name)
        if kind == stat.S_IFDIR or name.endswith(b"/"):
            yield encode(name, 0, mode=mode, mtime=mtime, typeflag=blocks.DIRECTORY)
        else:
            yield encode(name, size, mode=mode, mtime=mtime)
        yield from content
        yield bytes(padding(size))

    def _content(self, zip_: ZipFile, info: ZipInfo, name: bytes) -> Iterator[bytes]:
        """What an entry has, the last of it once the checksum is right."""
        from lzma import LZMAError
        from zipfile import BadZipFile

        left = info.file_size
        try:
            with zip_.open(info) as file:
                while data := file.read(min(CHUNK, max(left, 1))):
                    left -= len(data)
                    yield data
        except EOFError:
            what = f"the zip ends inside the entry {show(name)}"
            raise Problem("truncated", self.name, None, what, _CUT) from None
        except (BadZipFile, zlib_error, LZMAError, ValueError, OverflowError, Malformed, RuntimeError) as failure:
            raise self._damaged(f"the entry {show(name)} does not read: {failure}") from None
        except OSError as failure:
            if failure.errno is None:  # so bz2 says that data are wrong
                raise self._damaged(f"the entry {show(name)} does not read: {failure}") from None
            raise
        if left:
            raise self._damaged(f"the entry {show(name)} has {left} bytes less than the directory says")

    def _damaged(self, what: str) -> Problem:
        return Problem("bad-data", self.name, None, f"the zip is damaged: {what}")


def name_of(info: ZipInfo) -> bytes:
    """The name of an entry as it lies in the zip; what Info-ZIP says of it in UTF-8 goes before another code page."""
    if info.flag_bits & _UTF8:
        return info.orig_filename.encode()
    raw = info.orig_filename.encode("cp437")  # as zipfile decodes what is not marked; each byte is one of it
    said = _extra(info, _NAME)
    if said and len(said) > 5 and said[0] == 1 and said[1:5] == crc32(raw).to_bytes(4, "little"):
        return said[5:]
    return raw


def kind_of(info: ZipInfo) -> int:
    """What an entry is, as the upper bits of a mode: 0 when the zip does not say."""
    return stat.S_IFMT(info.external_attr >> 16) if info.create_system in _UNIX else 0


def mode_of(info: ZipInfo) -> int:
    """Its permissions; 0644, or 0755 for folders, when the zip does not say."""
    mode = info.external_attr >> 16 & 0o7777 if info.create_system in _UNIX else 0
    return mode or (0o755 if info.orig_filename.endswith("/") else 0o644)


def mtime_of(info: ZipInfo) -> int:
    """Its time, in seconds since 1970. That of the zip itself is taken for UTC, and its first for none: 0."""
    said = _extra(info, _TIME)
    if said and len(said) >= 5 and said[0] & 1:
        return int.from_bytes(said[1:5], "little", signed=True)
    return _seconds(info.date_time)


@lru_cache(4096)
def _seconds(when: tuple[int, int, int, int, int, int]) -> int:
    if when <= (1980, 1, 1, 0, 0, 0):
        return 0
    try:
        return int(datetime(*when, tzinfo=UTC).timestamp())
    except ValueError:  # a 30th of February
        return 0


def _extra(info: ZipInfo, wanted: int) -> bytes | None:
    """The extra field of a number."""
    extra, at = info.extra, 0
    while at + 4 <= len(extra):
        number, size = unpack_from("<2H", extra, at)
        if number == wanted:
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return None
