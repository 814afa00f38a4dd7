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
from struct import Struct
from struct import error as Malformed
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32, decompressobj
from zlib import error as zlib_error

from tarkit.dataset.zip_info import is_folder, kind_of, mode_of, mtime_of, name_of, raw_name, unable
from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.streams.copy import CHUNK
from tarkit.streams.scratch import Scratch
from tarkit.streams.source import FileSource, Reader
from tarkit.tar import block as blocks
from tarkit.tar.block import padding
from tarkit.tar.header import encode, end_of_archive

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

GATHERED = 1 << 18  # bytes of small entries that are handed out together
SHORT = 1 << 16  # bytes in the zip; an entry of more is read in pieces

_END = Struct("<4s4H2LH")
_END64 = Struct("<4sQ2H2L4Q")
_LOCAL = Struct("<4s22x2H")
_LOCATOR = 20  # bytes that stand between the end of a zip64 and that of the zip
_CUT = "the file was not written or not copied to its end: copy or make it again"


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
        source = FileSource(os.dup(scratch.fd if scratch else self._fd or 0), self.name)
        with os.fdopen(os.dup(source.fd), "rb") as file:
            try:
                zip_ = self._opened(file)
                for info in zip_.infolist():
                    self._check(info)
                short = _Short(source)
                for info in zip_.infolist():
                    if info.compress_size <= SHORT and info.file_size <= CHUNK and info.compress_type in (0, 8):
                        yield self._short(short, info)
                    else:
                        yield from self._long(zip_, info)
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
        except (BadZipFile, EOFError, ValueError, OverflowError, NotImplementedError, Malformed) as failure:
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

    def _check(self, info: ZipInfo) -> None:
        """Raise Unsupported or Problem for an entry that cannot be read, before any is."""
        why = unable(info)
        if why is not None:
            what = f"{self.name}: the zip entry {show(name_of(info))} {why}"
            raise Unsupported(what, "unpack it with the program that made it")
        name = info.orig_filename
        if not name or "\0" in name:
            raise self._damaged(f"an entry has the name {show(name)}")
        if info.compress_type == 0 and info.compress_size != info.file_size:
            raise self._damaged(f"{show(name)} has {info.file_size} bytes, of which {info.compress_size} are stored")

    def _header(self, info: ZipInfo, target: bytes | None = None) -> bytes:
        """The header of an entry, of a symbolic link to `target`."""
        name, mode, mtime = name_of(info), mode_of(info), mtime_of(info)
        if target is not None:
            return encode(name, 0, mode=mode, mtime=mtime, typeflag=blocks.SYMLINK, linkname=target)
        if is_folder(info):
            return encode(name, 0, mode=mode, mtime=mtime, typeflag=blocks.DIRECTORY)
        return encode(name, info.file_size, mode=mode, mtime=mtime)

    def _short(self, short: _Short, info: ZipInfo) -> bytes:
        """A short entry as it lies in a tar."""
        try:
            content = short(info)
            if kind_of(info) == stat.S_IFLNK:
                return self._header(info, content)
            return b"".join((self._header(info), content, bytes(padding(len(content)))))
        except EOFError:
            raise self._cut(info) from None
        except (ValueError, zlib_error) as failure:
            raise self._damaged(f"the entry {show(name_of(info))} does not read: {failure}") from None

    def _long(self, zip_: ZipFile, info: ZipInfo) -> Iterator[bytes]:
        """Any entry as it lies in a tar, in pieces."""
        if kind_of(info) == stat.S_IFLNK and info.file_size <= SHORT:
            yield self._header(info, b"".join(self._content(zip_, info)))
            return
        if kind_of(info) == stat.S_IFLNK:
            raise self._damaged(f"{show(name_of(info))} is a symbolic link of {info.file_size} bytes")
        yield self._header(info)
        yield from self._content(zip_, info)
        yield bytes(padding(info.file_size))

    def _content(self, zip_: ZipFile, info: ZipInfo) -> Iterator[bytes]:
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
            raise self._cut(info) from None
        except (BadZipFile, zlib_error, LZMAError, ValueError, OverflowError, Malformed, RuntimeError) as failure:
            raise self._damaged(f"the entry {show(name_of(info))} does not read: {failure}") from None
        except OSError as failure:
            if failure.errno is None:  # so bz2 says that data are wrong
                raise self._damaged(f"the entry {show(name_of(info))} does not read: {failure}") from None
            raise
        if left:
            raise self._damaged(f"the entry {show(name_of(info))} has {left} bytes less than the directory says")

    def _damaged(self, what: str) -> Problem:
        return Problem("bad-data", self.name, None, f"the zip is damaged: {what}")

    def _cut(self, info: ZipInfo) -> Problem:
        return Problem("truncated", self.name, None, f"the zip ends inside the entry {show(name_of(info))}", _CUT)


class _Short:
    """Reads short entries that are stored or deflated: five times as fast as zipfile, which seeks for each."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._view = memoryview(b"")
        self._start = 0

    def __call__(self, info: ZipInfo) -> bytes:
        """The content of an entry; raises EOFError, ValueError and zlib.error when it is cut or damaged."""
        head, raw = self._look(info.header_offset, _LOCAL.size), raw_name(info)
        magic, length, extra = _LOCAL.unpack(head)
        lead = length + extra
        if magic == b"PK\3\4":
            view = self._look(info.header_offset + _LOCAL.size, lead + info.compress_size)
        if magic != b"PK\3\4" or view[:length] != raw:
            raise ValueError("its header is not what the directory says")
        content = bytes(view[lead:])
        if info.compress_type:
            content = decompressobj(-15).decompress(content, info.file_size + 1)
        if len(content) != info.file_size:
            raise ValueError(f"it has not the {info.file_size} bytes that the directory says")
        if crc32(content) != info.CRC:
            raise ValueError("its checksum (CRC-32) is wrong")
        return content

    def _look(self, start: int, size: int) -> memoryview:
        at = start - self._start
        if at < 0 or at + size > len(self._view):
            self._view, self._start, at = self._source.peek(start, size), start, 0
            if len(self._view) < size:
                raise EOFError
        return self._view[at : at + size]
