"""Read a zip as a stream of the tar archive that `create` would make of its entries, so that every command takes one.

Entries are in the order of the directory. The checksum of each is verified before its last bytes are returned. A zip
that is not a file is first copied to a temporary file, since its directory is at the end. Names are the bytes in the
zip, unless an extra field has them in UTF-8. Values that do not fit in a USTAR header go to a PAX header before it.

Source: PKWARE APPNOTE.TXT 6.3.10: 4.3.7 (local header), 4.3.8 (content).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from zlib import crc32, decompressobj
from zlib import error as zlib_error

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, Unsupported, show
from tarkit.sizes import plural
from tarkit.streams.codecs import CUT
from tarkit.streams.copy import CHUNK, new_buffer
from tarkit.streams.files import File
from tarkit.streams.source import FileSource
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import block as blocks
from tarkit.tar.block import padding
from tarkit.tar.generated import GeneratedArchive
from tarkit.tar.header import encode
from tarkit.zip.decode import DEFLATE, STORED, MalformedData, decoded
from tarkit.zip.directory import LOCAL, ZipMember, damaged, read_directory
from tarkit.zip.info import facts_of, is_directory, kind_of, name_of, unsupported

SHORT = 1 << 16  # bytes in the zip: larger entries are read in pieces
MOST = 1 << 62  # bytes: larger than any file


class ZipReader(GeneratedArchive):
    """A ByteReader of the tar archive for the zip that `reader` reads; `name` is for messages.

    `file`, if given, is the zip itself. Memory: about 500 bytes for each entry.
    """

    def __init__(self, reader: ByteReader, name: str, tmpdir: str | None = None, file: File | None = None) -> None:
        super().__init__(name)
        self.reader = reader
        self._tmpdir = tmpdir
        self._file = file

    def close(self) -> None:
        super().close()
        self.reader.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive without its end.

        Raises Problem `truncated` for a zip that ends early, `bad-data` for other damage, and Unsupported for an entry
        that is encrypted or has an unknown compression method.
        """
        source = FileSource(self._file or File(self._spooled(), self.name), self.name)
        try:
            members = read_directory(source, self.name)
            for member in members:
                self._check(member)
            for member in members:
                start, local = self._local(source, member)
                if member.packed <= SHORT and member.size <= CHUNK and member.method in (STORED, DEFLATE):
                    yield self._short(source, member, start, local)
                else:
                    yield from self._long(source, member, start, local)
        except OSError as failure:
            failure.filename = failure.filename or self.name
            raise

    def _spooled(self) -> TemporaryFile:
        scratch = TemporaryFile(self._tmpdir)
        view = new_buffer(CHUNK)
        while count := self.reader.readinto(view):
            scratch.write(view[:count])
        return scratch

    def _check(self, member: ZipMember) -> None:
        """Raise Unsupported or Problem for an entry that cannot be read, before any entry is read."""
        why = unsupported(member)
        if why is not None:
            message = f"{self.name}: the zip entry {show(name_of(member))} {why}"
            raise Unsupported(message, "unpack it with the program that made it")
        name = member.name
        if not name or 0 in name:
            raise damaged(self.name, f"an entry has the name {show(name)}")
        if max(member.size, member.packed) > MOST:
            raise damaged(self.name, f"{show(name)} has {plural(member.size, 'byte')}, or {member.packed} in the zip")
        if member.method == STORED and member.packed != member.size:
            raise damaged(
                self.name, f"{show(name)} has {plural(member.size, 'byte')}, of which {member.packed} are stored"
            )

    def _header(self, member: ZipMember, local: bytes, target: bytes | None = None) -> bytes:
        """Return the tar header of an entry with the extra fields `local`; `target` is that of a symbolic link."""
        name, facts = name_of(member), facts_of(member, local)
        try:
            if target is not None:
                return encode(name, 0, typeflag=blocks.SYMLINK, linkname=target, **facts)
            if is_directory(member):
                return encode(name if name.endswith(b"/") else name + b"/", 0, typeflag=blocks.DIRECTORY, **facts)
            return encode(name, member.size, **facts)
        except ValueError as failure:
            raise self._unreadable(member, str(failure)) from None

    def _short(self, source: FileSource, member: ZipMember, start: int, local: bytes) -> bytes:
        content = bytes(source.peek(start, member.packed)[: member.packed])
        if len(content) < member.packed:
            raise self._cut(member)
        try:
            if member.method:
                content = decompressobj(-15).decompress(content, member.size + 1)
        except zlib_error as failure:
            raise self._unreadable(member, str(failure)) from None
        self._verify(member, len(content), crc32(content))
        if kind_of(member) == stat.S_IFLNK:
            return self._header(member, local, content)
        return b"".join((self._header(member, local), content, bytes(padding(len(content)))))

    def _long(self, source: FileSource, member: ZipMember, start: int, local: bytes) -> Iterator[bytes]:
        content = self._content(source, member, start)
        if kind_of(member) != stat.S_IFLNK:
            yield self._header(member, local)
            yield from content
            yield bytes(padding(member.size))
        elif member.size <= SHORT:
            yield self._header(member, local, b"".join(content))
        else:
            raise damaged(self.name, f"{show(name_of(member))} is a symbolic link of {plural(member.size, 'byte')}")

    def _local(self, source: FileSource, member: ZipMember) -> tuple[int, bytes]:
        """Return the offset of the content of an entry, and the extra fields of its local header."""
        at = min(member.offset, MOST)
        size = LOCAL.size + len(member.name)
        head = source.peek(at, size)[:size]
        if len(head) < size:
            raise self._cut(member)
        magic, *_, length, extra = LOCAL.unpack(head[: LOCAL.size])
        if magic != b"PK\3\4" or length != len(member.name) or head[LOCAL.size :] != member.name:
            raise self._unreadable(member, "its local header differs from the directory")
        at += size
        return at + extra, bytes(source.peek(at, extra)[:extra]) if extra else b""

    def _content(self, source: FileSource, member: ZipMember, start: int) -> Iterator[bytes]:
        """Yield the content of an entry, the last piece after the checksum was verified."""
        crc = size = 0
        last = b""
        try:
            for data in decoded(self._packed(source, member, start), member.method, member.size):
                yield last
                last = data
                size += len(data)
                crc = crc32(data, crc)
                if size > member.size:
                    break
        except MalformedData as failure:
            raise self._unreadable(member, str(failure)) from None
        self._verify(member, size, crc)
        yield last

    def _packed(self, source: FileSource, member: ZipMember, start: int) -> Iterator[bytes]:
        stop = start + member.packed
        if stop > (source.size or 0):
            raise self._cut(member)
        for at in range(start, stop, CHUNK):
            yield source.read(at, min(at + CHUNK, stop))

    def _verify(self, member: ZipMember, size: int, crc: int) -> None:
        if size != member.size:
            raise self._unreadable(member, f"its size is not {plural(member.size, 'byte')}, as in the directory")
        if crc != member.crc:
            raise self._unreadable(member, "its checksum (CRC-32) is wrong")

    def _unreadable(self, member: ZipMember, why: str) -> Problem:
        return damaged(self.name, f"the entry {show(name_of(member))} cannot be read: {why}")

    def _cut(self, member: ZipMember) -> Problem:
        return Problem("truncated", self.name, None, f"the zip ends inside the entry {show(name_of(member))}", CUT)
