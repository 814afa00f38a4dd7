"""Walk the headers of an archive: the only place that reads them.

What is understood: V7, POSIX ustar and pax (`x`, `g`), GNU (`L`, `K`, base-256 numbers, old sparse `S`), PAX sparse
0.0, 0.1 and 1.0. All else is opaque: an entry is a byte range and is carried over as it is.
Formats: POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format" and "Storing Sparse Files".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import adler32

from tarkit.errors import Problem, Unsupported, show
from tarkit.tar import block as blocks
from tarkit.tar import pax
from tarkit.tar.block import BLOCK

EXTENSION_LIMIT = 16 << 20  # bytes of one extension header; none that a program writes comes near it
NO_END = 1 << 62  # no archive is so long
_NO_TAR = "it is no tar archive; for a list of inputs use -T, for a recipe tarkit create"

_HEADER = Struct("148s8s356s")  # before the checksum, the checksum, from the typeflag on
_PLAIN = (blocks.REGULAR, blocks.REGULAR_V7, blocks.CONTIGUOUS)
_EXTENSIONS = (blocks.PAX, blocks.PAX_GLOBAL, blocks.GNU_LONG_NAME, blocks.GNU_LONG_LINK, blocks.SOLARIS_X)


class Entry(NamedTuple):
    """One member as it lies in the archive; offsets and sizes in bytes."""

    name: bytes
    start: int  # of its extension headers, if it has any, else of its header
    data: int  # of its payload
    size: int  # of its payload as stored
    stop: int  # behind its payload and padding
    type: bytes
    link: bytes  # target of a hard or symbolic link
    real: int  # size of a sparse file once unpacked, else -1

    @property
    def sparse(self) -> bool:
        """Whether the payload is not the content: a map of holes goes with it."""
        return self.real >= 0


Raw = tuple[bytes, int, int, int, int, bytes, bytes, int]  # an Entry without the names of its fields


class Source(Protocol):
    """Bytes to walk over: `tarkit.streams.source` has them for files and for streams."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def size(self) -> int | None:
        """The archive's length, None until a stream has ended."""

    def peek(self, pos: int, n: int) -> bytes | memoryview:
        """At least `n` bytes from `pos` on, fewer only at the end of the archive; good until the next call."""


class Walk:
    """Iterate over the entries of an archive from `pos` on.

    After the last entry `marker` is the offset of the end-of-archive marker and `end` the length of the archive. After
    a Problem `broken` is where the damaged part starts (entries from there on are not whole) and `resume` where reading
    could go on: at that offset itself, or behind it for a header that cannot be trusted.

    Raises:
        Problem: `truncated`, `no-end-marker`, `bad-header`, `trailing-data`.
        Unsupported: a multi-volume archive.
    """

    def __init__(self, source: Source, pos: int = 0) -> None:
        self.source = source
        self.first = pos
        self.last: Raw | None = None
        self.cut: Entry | None = None  # the entry inside of which the archive ends
        self.broken = self.resume = pos
        self.marker: int | None = None
        self.end: int | None = None
        self.nul = False  # a name has a NUL in it, as only PAX records can say
        self._globals: dict[bytes, bytes] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries."""
        return map(Entry._make, self.raw())

    def raw(self) -> Iterator[Raw]:
        """Yield the entries as plain tuples: making and reading those takes half the time."""
        peek, unpack, low_sum = self.source.peek, _HEADER.unpack_from, adler32
        sizes, checksums = _SIZES, _CHECKSUMS
        whole = self.source.size or NO_END
        pos = limit = base = self.first
        chunk: bytes | memoryview = b""
        entry: Raw | None = None
        known, known_sum, known_type, prefix = b"", -1, b"", b""
        while True:
            if pos + BLOCK > limit:
                chunk = peek(pos, BLOCK)
                base, limit = pos, pos + len(chunk)
                if limit - base < BLOCK:
                    raise self._ends(pos, limit, entry)
            head, stored, tail = unpack(chunk, pos - base)
            if tail != known:
                known, known_sum, known_type, prefix = self._learn(head + stored + tail)
            # adler32's low half is 1 + the sum of the bytes, exact for so few of them
            if (low_sum(head) & 0xFFFF) + known_sum == checksums[stored] and known_type:
                name = head.partition(b"\0")[0]
                if len(name) > 100:
                    name = name[:100]
                size = sizes[head[124:136]]
                if prefix:
                    name = prefix + name
                data = pos + BLOCK
                stop = data + (size + 511 & -512)
                if size < 0 or not name:
                    self.last = entry
                    raise self._bad(pos, "no name in" if size >= 0 else "an impossible size in")
                following: Raw = (name, pos, data, size, stop, known_type, b"", -1)
            else:
                self.last = entry
                special = self._slow(pos, head + stored + tail)
                if special is None:
                    return
                following = special
                stop = special.stop
                limit = pos  # the source was asked for other bytes meanwhile
            if stop > whole:
                raise self._overruns(following)
            entry = following
            pos = stop
            yield entry

    def _learn(self, block: bytes) -> tuple[bytes, int, bytes, bytes]:
        """What headers with the same bytes from the typeflag on have in common: sum, type and prefix of the name.

        The type is empty when each such header wants a closer look.
        """
        tail = block[156:]
        if tail[:1] not in _PLAIN or blocks.is_zero(block) or (self._globals and pax.Overrides.of(self._globals).any):
            return tail, -1, b"", b""
        return _learned(tail)

    def _slow(self, pos: int, block: bytes) -> Entry | None:
        """The entry at `pos` whatever it is, with its extension headers; None at the end marker."""
        start = pos
        if blocks.is_zero(block):
            self._finish(pos)
            return None
        records: dict[bytes, bytes] = {}
        long_name = long_link = b""
        while True:
            if not blocks.checksum_ok(block):
                raise self._bad(pos, "bad checksum in", start)
            type_ = block[156:157]
            if type_ not in _EXTENSIONS:
                break
            try:
                payload = self._payload(start, pos, blocks.parse_number(block[124:136]))
                if type_ == blocks.GNU_LONG_NAME:
                    long_name = pax.parse_long_name(payload)
                elif type_ == blocks.GNU_LONG_LINK:
                    long_link = pax.parse_long_name(payload)
                elif type_ == blocks.PAX_GLOBAL:
                    self._globals.update(pax.parse_pairs(payload))
                    data, size = pos + BLOCK, len(payload)
                    return Entry(b"", start, data, size, data + size + blocks.padding(size), type_, b"", -1)
                else:
                    records = dict(pax.parse_pairs(payload))  # of several the last counts, as in GNU tar
            except ValueError as error:
                raise self._bad(pos, f"{error} in", start) from None
            pos += BLOCK + len(payload) + blocks.padding(len(payload))
            block = self._block(start, pos)
        try:
            return self._entry(start, pos, block, {**self._globals, **records}, long_name, long_link)
        except ValueError as error:
            raise self._bad(pos, f"{error} in", start) from None

    def _entry(
        self, start: int, pos: int, block: bytes, records: dict[bytes, bytes], long_name: bytes, long_link: bytes
    ) -> Entry:
        type_ = block[156:157]
        if type_ == blocks.GNU_MULTIVOLUME:
            raise Unsupported(
                f"{self.source.name}: at {start}: the archive has several volumes", "put the volumes together with tar"
            )
        says = pax.Overrides.of({keyword: value for keyword, value in records.items() if value})
        name = says.path or long_name or blocks.name_of(block)
        link = says.linkpath or long_link or blocks.linkname_of(block)
        size = blocks.payload_size(type_, blocks.parse_number(block[124:136]) if says.size is None else says.size)
        data = pos + BLOCK
        real = -1
        if says.sparse:
            real = says.real_size if says.real_size is not None else size
        elif type_ == blocks.GNU_SPARSE:
            real = blocks.sparse_real_size(block)
            more = blocks.sparse_is_extended(block)
            while more:
                more = blocks.sparse_extension_continues(self._block(start, data))
                data += BLOCK
        if not name:
            raise ValueError("no name")
        self.nul = self.nul or 0 in name
        return Entry(name, start, data, size, data + size + blocks.padding(size), type_, link, real)

    def _block(self, start: int, pos: int) -> bytes:
        block = bytes(self.source.peek(pos, BLOCK)[:BLOCK])
        if len(block) < BLOCK:
            raise self._cut(start, pos + len(block))
        return block

    def _payload(self, start: int, pos: int, size: int) -> bytes:
        """The payload of the extension header at `pos`."""
        if not 0 <= size <= EXTENSION_LIMIT:
            raise ValueError(f"an extension of {size} bytes")
        payload = bytes(self.source.peek(pos + BLOCK, size)[:size])
        if len(payload) < size:
            raise self._cut(start, pos + BLOCK + len(payload))
        return payload

    def _finish(self, pos: int) -> None:
        """Note the end marker at `pos`; all behind it must be zeros, of any length."""
        follows = bytes(self.source.peek(pos + BLOCK, BLOCK)[:BLOCK])
        if len(follows) < BLOCK and not any(follows):
            self.broken = self.resume = pos
            raise Problem("no-end-marker", self.source.name, pos, "the input ends with a lone block of zeros")
        lone, behind = not blocks.is_zero(follows), pos + BLOCK
        while True:
            chunk = bytes(self.source.peek(behind, BLOCK))
            if not chunk:
                break
            if chunk.count(0) != len(chunk):
                behind += (len(chunk) - len(chunk.lstrip(b"\0"))) & -BLOCK
                self.broken = self.resume = behind
                what = "data follow a lone block of zeros" if lone else "data follow the end of the archive"
                raise Problem("trailing-data", self.source.name, behind, what)
            behind += len(chunk) & -BLOCK or len(chunk)  # fewer bytes than a block are the last
        self.marker, self.end = pos, behind

    def _after(self) -> str:
        return f"after {show(self.last[0])}" if self.last and self.last[0] else "at the start"

    def _bad(self, pos: int, what: str, start: int | None = None) -> Problem:
        self.broken = pos if start is None else start
        self.resume = pos + BLOCK
        if self.last is None and pos == self.first == 0:
            what = f"this is no tar archive: {what} the first header"
            return Problem("bad-header", self.source.name, pos, what, _NO_TAR)
        return Problem("bad-header", self.source.name, pos, f"{what} the header {self._after()}")

    def _cut(self, start: int, end: int) -> Problem:
        self.broken = self.resume = start
        where, hint = self._after(), _NO_TAR if end < BLOCK else None
        return Problem("truncated", self.source.name, end, f"the input ends inside a header {where}", hint)

    def _ends(self, pos: int, limit: int, last: Raw | None) -> Problem:
        """The input ends at `limit`, and the next header should be at `pos`, behind the entry `last`."""
        self.last = last
        size = self.source.size
        if size is not None and size < pos and last is not None:
            return self._overruns(last)
        if limit > pos:
            return self._cut(pos, limit)
        self.broken = self.resume = pos
        hint = None if pos else "it has 0 bytes: make or fetch it again"
        what = f"no end-of-archive marker {self._after()}" if pos else "the input is empty"
        return Problem("no-end-marker", self.source.name, pos, what, hint)

    def _overruns(self, entry: Raw) -> Problem:
        self.cut = Entry._make(entry)
        self.broken = self.resume = self.cut.start
        size = self.source.size or 0
        what = f"the input ends inside {show(self.cut.name)}, which needs {self.cut.stop - size} bytes more"
        return Problem("truncated", self.source.name, size, what)


@lru_cache(64)
def _learned(tail: bytes) -> tuple[bytes, int, bytes, bytes]:
    """What `_learn` finds in the tail alone: many walks are over one entry, and most of those have the same."""
    prefix = blocks.prefix_of(bytes(156) + tail)
    return tail, sum(tail) + 255, tail[:1], prefix and prefix + b"/"


def _plain_size(field: bytes) -> int:
    """The size of a regular file, -1 for an impossible one."""
    size = blocks.parse_number(field)
    return size if size < NO_END else -1


_SIZES, _CHECKSUMS = blocks.Numbers(_plain_size), blocks.Numbers(blocks.parse_checksum)
