"""Read the entries of an archive from their headers, and find the next header after a damaged one.

An archive is a sequence of entries and an end-of-archive marker, in blocks of 512 bytes. An entry is a header, before
it any extension headers (entries themselves, whose payloads say more about the entry), after it the payload padded to
a whole block. The marker is two blocks of zeros; zeros may follow it to any length.

    [x header][records][header][payload][header][payload]...[zeros][zeros]
    start .............. entry  data     stop = start of the next entry

Supported: V7, POSIX ustar and pax (typeflags `x`, `g`), GNU (`L`, `K`, base-256 numbers, old sparse `S`), PAX sparse
0.0, 0.1 and 1.0. Entries of other types are byte ranges that are copied unchanged.

Sources: POSIX.1-2017, pax, "ustar Interchange Format", "pax Interchange Format", "pax Extended Header"; GNU tar manual,
"Basic Tar Format" and "Storing Sparse Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import adler32

from tarkit.errors import Problem, TarkitError, Unsupported, show, spell_from
from tarkit.sizes import plural
from tarkit.streams.codecs import MESSAGES, message_format
from tarkit.streams.ranges import HeldRange
from tarkit.streams.source import FileSource
from tarkit.tar import block as blocks
from tarkit.tar import pax
from tarkit.tar.block import BLOCK
from tarkit.tar.fast import Found, FoundEntries, PlainEntries, scan
from tarkit.tar.mistaken import LENGTH, recognise

EXTENSION_LIMIT = 16 << 20  # bytes of the extension headers of one entry, and of all global ones together
TAILS_KEPT = 64  # distinct header tails that are cached
NO_END = 1 << 62  # larger than any position
NEAR = 1 << 15  # bytes: smaller samples are found in memory, in large windows; of others headers alone are read
PADDING = 1 << 20  # bytes of zeros after an end marker: as many as the largest records of tar -b that are in use
_MOST = 1 << 24  # bytes of the samples that the accelerator finds together, without the last
_NO_TAR = "it is not a tar archive; for a list of inputs use -T, for a recipe tarkit create"

_HEADER = Struct("148s8s356s")  # before the checksum, the checksum, from the typeflag on


class Entry(NamedTuple):
    """One entry of an archive; offsets and sizes are in bytes."""

    name: bytes
    start: int  # offset of its first extension header, or of its header
    data: int  # offset of its payload
    size: int  # size of its payload as stored
    stop: int  # offset of the block after its payload
    type: bytes
    link: bytes  # target of a hard or symbolic link
    real: int  # size of a sparse file with its holes, else -1

    @property
    def sparse(self) -> bool:
        """Whether the entry is a sparse file, whose payload is not its content."""
        return self.real >= 0


Raw = tuple[bytes, int, int, int, int, bytes, bytes, int]
"""The fields of an Entry as a plain tuple, which the garbage collector does not track: with entries in its place `cat`
without the accelerator takes 10 % more time, `stats` 12 to 20 %. What is no loop over all entries makes an Entry.
"""
ReadPlaces = Callable[[Iterable[tuple[int, int]]], list[bytes]]  # of places and sizes, as the accelerator returns them


class PlainSamples(NamedTuple):
    """Plain samples that follow each other: regular files with different names, all of them safe, of one key each."""

    start: int  # offset of the first
    keys: list[bytes]
    stops: Sequence[int]  # their ends
    contents: list[bytes]  # of the field that was asked for
    entries: PlainEntries
    last: Raw  # the last entry


def samples_of(start: int, arrays: Found, read: ReadPlaces | None) -> PlainSamples:
    """Return the samples that the accelerator found from an offset on; `read` returns contents by their places."""
    keys, names, samples, entries = arrays
    numbers, rows = memoryview(entries).cast("q"), memoryview(samples).cast("q")
    stops = memoryview(rows[1::4].tobytes()).cast("q")  # without the others
    contents: list[bytes] = []
    if read is not None:
        contents = read(zip(rows[2::4].tolist(), rows[3::4].tolist(), strict=True))
    before = numbers[-4] if len(numbers) > 3 else start
    last = names[names.rfind(b"\0") + 1 :], before, numbers[-3], numbers[-2], numbers[-1], b"0", b"", -1
    return PlainSamples(start, keys.split(b"\0"), stops, contents, FoundEntries(start, arrays), last)


class HeaderSource(Protocol):
    """The part of `tarkit.streams.source.Source` that reading headers needs."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def size(self) -> int | None:
        """The length of the archive; None until a stream has ended."""

    def peek(self, pos: int, n: int) -> bytes | memoryview:
        """Return at least `n` bytes from `pos` on, fewer only at the end; valid until the next call."""


class TarReader:
    """Iterate over the entries of an archive from `pos` on.

    Attributes:
        marker: after the last entry, the offset of the end-of-archive marker.
        end: after the last entry, the length of the archive.
        has_entry: after the end, whether there was a complete entry.
        broken: after a Problem, where the damaged part begins; no entry from there on is complete.
        resume: after a Problem, where reading can continue: at `broken`, or after a header that is not valid.
        cut: the entry in which the archive ends, if it does.
        torn: after `trailing-data`, whether the zeros are taken for damage, not for an end of the archive, which has
            two blocks or fills a record.
        filled: after `trailing-data`, the problem `zero-filled` if there are too many zeros before the data.

    Raises:
        Problem: `truncated`, `zero-filled`, `no-end-marker`, `bad-header`, `trailing-data`.
        Unsupported: a multi-volume archive.
    """

    def __init__(self, source: HeaderSource, pos: int = 0) -> None:
        self.source = source
        self.first = pos
        self.last: Raw | None = None
        self.cut: Entry | None = None
        self.broken = self.resume = pos
        self.marker: int | None = None
        self.end: int | None = None
        self.torn = False
        self.filled: Problem | None = None
        self.nul = False  # a name contains NUL, which is possible in PAX records only
        self.sparse = False  # there is a sparse file
        self._globals: dict[bytes, bytes] = {}  # records of the global PAX headers so far
        self._globals_length = 0  # of their payloads
        self._learned = _TAILS
        self._chunk: tuple[bytes | memoryview, int] = (
            b"",
            0,
        )  # the bytes that `raw` has in memory, and the offset of their end
        self._passed: Raw | None = None  # the entry after which `raw` continues
        self._near = False  # whether the samples that the accelerator found last were in memory
        self._ends_at_marker = False  # whether bytes behind the end-of-archive marker are ignored

    def restart(self, pos: int) -> TarReader:
        """Return a reader of the entries from `pos` on, after damage; the global PAX headers so far still apply."""
        reader = TarReader(self.source, pos)
        reader._globals, reader._globals_length = {**self._globals}, self._globals_length
        reader._learned = self._learned
        return reader

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries."""
        return map(Entry._make, self.raw())

    def raw(self) -> Iterator[Raw]:
        """Yield the entries as plain tuples.

        This is the fast path: regular files, also after a PAX header or a GNU long name with nothing but a name, if
        the source has them in memory (45 % of `cat` of a webdataset archive, where each entry has a PAX header).
        `_slow` reads any other entry and reports damage; it is the reference.
        """
        peek, unpack, low_sum = self.source.peek, _HEADER.unpack_from, adler32
        sizes, checksums = _SIZES, _CHECKSUMS
        whole = self.source.size or NO_END
        start = pos = limit = base = self.first  # of the entry, of its header; end and start of `chunk`
        chunk: bytes | memoryview = b""
        entry: Raw | None = None
        long_name = known_tail = prefix = known_type = b""
        known_sum = -1
        while True:
            if pos + BLOCK > limit:
                chunk = peek(pos, BLOCK)
                base, limit = pos, pos + len(chunk)
                self._chunk = chunk, limit
                if limit - base < BLOCK:
                    raise self._ends(pos, limit, entry)
            head, stored, tail = unpack(chunk, pos - base)
            if tail != known_tail:
                known_sum, known_type, prefix = self._learned[tail]
                known_tail = tail
            # the lower half of adler32 is 1 + the sum of the bytes, exact for so few of them
            good = (low_sum(head) & 0xFFFF) + known_sum == checksums[stored]
            following: Raw | None = None
            if good and known_type:
                name = head.partition(b"\0")[0]
                if len(name) > 100:
                    name = name[:100]
                size = sizes[head[124:136]]
                if prefix:
                    name = prefix + name
                if long_name:
                    name, long_name = long_name, b""
                data = pos + BLOCK
                stop = data + (size + 511 & -512)
                if size >= 0 and name:
                    following = (name, start, data, size, stop, known_type, b"", -1)
            elif good and start == pos and (extension := _extension(chunk, pos - base)):
                long_name, length = extension
                pos += length
                continue
            if following is None:
                self.last = entry
                special = self._slow(start, bytes(chunk[start - base : start - base + BLOCK]))
                if special is None:
                    return
                following = special
                stop = special.stop
                limit = pos  # `chunk` is not valid any more
                self._chunk = b"", 0
                long_name = known_tail = b""
            if stop > whole:
                raise self._overruns(following)
            entry = following
            yield entry
            if self._passed is not None:
                entry, self._passed = self._passed, None
                stop = limit = entry[4]  # `chunk` may not be valid any more
            start = pos = stop

    @property
    def accelerated(self) -> bool:
        """Whether the accelerator is there."""
        return scan is not None

    def plain_samples(self, entry: Raw, field: bytes | None = None) -> PlainSamples | None:
        """Return the plain samples from `entry` on, the last one that `raw` has yielded, which continues after them.

        These are the samples up to the first that is not plain, that lacks the field, or whose end is not in memory. If
        that is the first, and less than NEAR bytes of it are in memory, headers alone are read in a file, up to the
        first sample of fewer than NEAR bytes, and fields of up to 4 KiB. None if there are none, or no accelerator.
        """
        scanned = self._scan(entry, field)
        if scanned is None:
            return None
        arrays, read = scanned
        with suppress(TarkitError):  # the file became shorter, which is noticed again when the sample is read
            samples = samples_of(entry[1], arrays, None if field is None else read)
            self._passed = samples.last
            return samples
        return None

    def _scan(self, entry: Raw, field: bytes | None) -> tuple[Found, ReadPlaces] | None:
        """Return the arrays of the accelerator, and a function that reads contents of the field."""
        source, whole = self.source, self.source.size or NO_END
        if scan is None or not self.plain:
            return None
        chunk, end = self._chunk
        if self._near and end - entry[1] < NEAR and isinstance(source, FileSource):
            chunk = source.peek(entry[1], NEAR)  # the next window begins with the sample that this one cuts
            end = entry[1] + len(chunk)
            self._chunk, self._passed = (chunk, end), entry  # where `raw` takes the window anew
        self._near = False
        if self.holds(entry):
            arrays = scan(chunk, end - len(chunk), -1, 0, entry[1], whole, field, 0, _MOST)
            if arrays is not None:
                self._near = True
                return arrays, lambda places: [bytes(chunk[at : at + size]) for at, size in places]
            if end - entry[1] >= NEAR:  # so much of it is in memory: most likely it is not plain
                return None
        if not isinstance(source, FileSource):
            return None
        held = source.file.opened or source.file.open()
        arrays = scan(b"", 0, held.fd, source.offset, entry[1], whole, field, NEAR, _MOST)
        return arrays and (arrays, lambda places: [source.read(at, at + size) for at, size in places])

    def holds(self, entry: Raw) -> bool:
        """Return whether the end of an entry is in memory, if `raw` has yielded it last."""
        return entry[4] < self._chunk[1]

    def again(self, entry: Raw) -> TarReader:
        """Return another reader of what is in memory from `entry` on, the last one that `raw` has yielded."""
        chunk, end = self._chunk
        again = self.restart(entry[1])
        again.source, again._ends_at_marker = HeldRange(self.source.name, end - len(chunk), chunk), True
        return again

    @property
    def plain(self) -> bool:
        """Whether all headers so far say what is in them: no global record overrides it, and no name contains NUL."""
        return self._learned.plain and not self.nul

    def pass_by(self, last: Raw) -> None:
        """Continue after an entry that was found ahead."""
        self._passed = last

    def _slow(self, start: int, block: bytes) -> Entry | None:
        """Read any entry at `start`, with its extension headers; return None at the end-of-archive marker."""
        pos = start
        if blocks.is_zero(block):
            if not self._ends_at_marker:
                self._finish(pos)
            return None
        records: dict[bytes, bytes] = {}
        long_name = long_link = b""
        length = 0  # of the extension headers of this entry
        while True:
            if not blocks.is_sound(block):
                raise self._bad(pos, "bad checksum in", start)
            type_ = block[156:157]
            if type_ not in blocks.EXTENSIONS:
                break
            try:
                payload = self._payload(start, pos, _size_in(block), length)
                length += len(payload)
                if type_ == blocks.GNU_LONG_NAME:
                    long_name = pax.parse_long_name(payload)
                elif type_ == blocks.GNU_LONG_LINK:
                    long_link = pax.parse_long_name(payload)
                elif type_ == blocks.PAX_GLOBAL and pos > start:
                    # GNU tar and libarchive apply the headers before it to the next entry; no writer makes this.
                    raise ValueError("a global header after an extension header")
                elif type_ == blocks.PAX_GLOBAL:
                    return self._global(start, pos, payload)
                else:
                    records = pax.parse_decisive(payload)  # only the last of several counts, as in GNU tar
            except ValueError as error:
                raise self._bad(pos, f"{error} in", start) from None
            pos += BLOCK + len(payload) + blocks.padding(len(payload))
            block = self._block(start, pos)
        try:
            return self._entry(start, pos, block, {**self._globals, **records}, long_name, long_link)
        except ValueError as error:
            raise self._bad(pos, f"{error} in", start) from None

    def _global(self, start: int, pos: int, payload: bytes) -> Entry:
        """Return the entry of a global header, and apply its records to all entries that follow (POSIX, `g`)."""
        length = self._globals_length + len(payload)
        if length > EXTENSION_LIMIT:
            raise ValueError(f"{plural(length, 'byte')} of global headers, more than {EXTENSION_LIMIT},")
        records = {**self._globals, **pax.parse_decisive(payload)}
        overrides = pax.Overrides.of(records)  # raises before anything applies
        self._globals, self._globals_length = records, length
        self._learned = _Learned(plain=not overrides.any)
        data, size = pos + BLOCK, len(payload)
        return Entry(b"", start, data, size, data + size + blocks.padding(size), blocks.PAX_GLOBAL, b"", -1)

    def _entry(
        self, start: int, pos: int, block: bytes, records: dict[bytes, bytes], long_name: bytes, long_link: bytes
    ) -> Entry:
        type_ = block[156:157]
        if type_ == blocks.GNU_MULTIVOLUME:
            raise Unsupported(
                f"{self.source.name}: at {start}: the archive has several volumes", "join the volumes with tar"
            )
        says = pax.Overrides.of(records)
        name = says.path or long_name or blocks.name_of(block)
        link = says.linkpath or long_link or blocks.linkname_of(block)
        size = blocks.payload_size(type_, _size_in(block) if says.size is None else says.size)
        if size >= NO_END:
            raise ValueError(f"impossible size {size}")
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
        self.sparse = self.sparse or real >= 0
        return Entry(name, start, data, size, data + size + blocks.padding(size), type_, link, real)

    def _block(self, start: int, pos: int) -> bytes:
        block = bytes(self.source.peek(pos, BLOCK)[:BLOCK])
        if len(block) < BLOCK:
            raise self._cut(start, pos + len(block))
        return block

    def _payload(self, start: int, pos: int, size: int, before: int) -> bytes:
        """Return the payload of the extension header at `pos`; the entry has `before` bytes of these already."""
        if size < 0:
            raise ValueError(f"an extension of {plural(size, 'byte')}")
        if before + size > EXTENSION_LIMIT:
            raise ValueError(f"{plural(before + size, 'byte')} of extension headers, more than {EXTENSION_LIMIT},")
        payload = bytes(self.source.peek(pos + BLOCK, size)[:size])
        if len(payload) < size:
            raise self._cut(start, pos + BLOCK + len(payload))
        return payload

    def _finish(self, pos: int) -> None:
        """Note the end-of-archive marker at `pos`, and check that only zeros follow."""
        self.marker = pos
        self.broken = self.resume = pos
        follows = bytes(self.source.peek(pos + BLOCK, BLOCK)[:BLOCK])
        if not follows:
            raise Problem("no-end-marker", self.source.name, pos, "the input ends with a lone block of zeros")
        lone, behind = not blocks.is_zero(follows), pos + BLOCK
        while True:
            chunk = bytes(self.source.peek(behind, BLOCK))
            if not chunk:
                break
            if chunk.count(0) != len(chunk):
                behind += (len(chunk) - len(chunk.lstrip(b"\0"))) & -BLOCK
                self.broken = self.resume = behind
                self.torn = lone or not self._is_end(pos, behind)
                self.filled = self._zero_filled(pos, behind)
                message = "data follow a lone block of zeros" if lone else "data follow the end of the archive"
                raise Problem("trailing-data", self.source.name, behind, message)
            behind += len(chunk) & -BLOCK or len(chunk)  # less than a block: the end of the input
        if behind % BLOCK:
            has = f"the archive has {plural(behind, 'byte')}, not a multiple of {BLOCK}"
            message = f"{has}: some were lost or added {self._after()}"
            raise Problem("truncated", self.source.name, behind, message)
        self.filled = self._zero_filled(pos, behind)
        if self.filled is not None:
            raise self.filled
        self.end = behind

    def _zero_filled(self, pos: int, stop: int) -> Problem | None:
        """Return the problem of too many zeros in [pos, stop), from an end marker on; None for a usual padding."""
        zeros = stop - pos
        if pos == 0 and zeros > blocks.RECORD:
            return Problem(
                "zero-filled", self.source.name, pos, f"{plural(zeros, 'byte')} of zeros in place of an archive"
            )
        if zeros > 2 * BLOCK + PADDING:
            message = f"{plural(zeros, 'byte')} of zeros {self._after()}"
            message += ": some may be in place of its content or of more entries"
            return Problem("zero-filled", self.source.name, pos, message)
        return None

    def _is_end(self, start: int, stop: int) -> bool:
        """Return whether blocks of zeros before other data are like an end: two, or as many as fill a record."""
        if 0 in (stop % blocks.RECORD, (stop - self.first) % blocks.RECORD):
            return True
        data = bytes(self.source.peek(stop, BLOCK)[:BLOCK])
        return stop - start == 2 * BLOCK and (len(data) < BLOCK or is_header(data))

    @property
    def has_entry(self) -> bool:
        """Whether there was a complete entry; valid after the end."""
        return (self.broken if self.marker is None else self.marker) > self.first

    def _after(self) -> str:
        return f"after {show(self.last[0])}" if self.last and self.last[0] else "at the start"

    def _bad(self, pos: int, detail: str, start: int | None = None) -> Problem:
        self.broken = pos if start is None else start
        self.resume = pos + BLOCK
        if self.last is None and pos == self.first == 0 and b"ustar" not in bytes(self.source.peek(0, BLOCK)[257:262]):
            kind, hint = self._not_tar()
            return Problem("bad-header", self.source.name, pos, f"{kind}: {detail} the first header", hint)
        return Problem("bad-header", self.source.name, pos, f"{detail} the header {self._after()}")

    def _cut(self, start: int, end: int) -> Problem:
        self.broken = self.resume = start
        words, hint = f"the input ends inside a header {self._after()}", None
        if end < BLOCK:
            kind, hint = self._not_tar()
            words = words if hint == _NO_TAR else f"{kind}: {words}"
        return Problem("truncated", self.source.name, end, words, hint)

    def _not_tar(self) -> tuple[str, str]:
        """Return the kind of an input that begins without a header, and the hint."""
        head = bytes(self.source.peek(0, LENGTH))
        if kind := recognise(head):
            return f"this is {kind.what}, no archive", kind.hint
        if form := message_format(head, ""):
            return f"this is {MESSAGES[form].title}, no archive", f"{spell_from(form)} reads it"
        return "this is not a tar archive", _NO_TAR

    def _ends(self, pos: int, limit: int, last: Raw | None) -> Problem:
        """Return the problem of an input that ends at `limit`; a header should be at `pos`, after the entry `last`."""
        self.last = last
        size = self.source.size
        if size is not None and size < pos and last is not None:
            return self._overruns(last)
        if limit > pos:
            return self._cut(pos, limit)
        self.broken = self.resume = pos
        hint = None if pos else "it has 0 bytes: make or fetch it again"
        message = f"no end-of-archive marker {self._after()}" if pos else "the input is empty"
        return Problem("no-end-marker", self.source.name, pos, message, hint)

    def _overruns(self, entry: Raw) -> Problem:
        self.cut = Entry._make(entry)
        self.broken = self.resume = self.cut.start
        size = self.source.size or 0
        message = (
            f"the input ends inside {show(self.cut.name)}, which needs {plural(self.cut.stop - size, 'byte')} more"
        )
        return Problem("truncated", self.source.name, size, message)


class _Learned(dict[bytes, tuple[int, bytes, bytes]]):
    """A cache by the tail of a header, its bytes from the typeflag on: their sum, the type, the prefix of the name.

    Nearly all headers of an archive have the same tail. The type is empty unless it is that of a regular file, and
    `plain`: no global record overrides the name and size in the header.
    """

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.plain = plain

    def __missing__(self, tail: bytes) -> tuple[int, bytes, bytes]:
        if len(self) >= TAILS_KEPT:
            self.clear()
        prefix = blocks.prefix_of(bytes(156) + tail)
        plain = self.plain and tail[:1] in blocks.FILES and tail[101:106] == b"ustar"  # V7 is rare, and has more rules
        type_ = tail[:1] if plain else b""
        learned = self[tail] = sum(tail) + 255, type_, prefix and prefix + b"/"
        return learned


def _extension(chunk: bytes | memoryview, at: int) -> tuple[bytes, int] | None:
    """Parse the extension header at `at` if it holds a name at most and the next header is in `chunk` too.

    Returns the name, b"" for none, and the bytes up to the next header; None if `TarReader._slow` has to read it.
    """
    data = at + BLOCK
    size = _SIZES[bytes(chunk[at + 124 : at + 136])]
    length = BLOCK + (size + 511 & -512)
    if size < 0 or at + length + BLOCK > len(chunk):
        return None
    payload = bytes(chunk[data : data + size])
    if chunk[at + 156] == blocks.PAX[0]:
        name = pax.name_alone(payload)
        return None if name is None else (name, length)
    return (pax.parse_long_name(payload), length) if chunk[at + 156] == blocks.GNU_LONG_NAME[0] else None


def _size_in(block: bytes) -> int:
    """Return the size in a header; raises ValueError."""
    try:
        return blocks.parse_number(block[124:136])
    except ValueError as error:
        raise ValueError(f"a size that is {error}") from None


def _plain_size(field: bytes) -> int:
    """Return the size of a regular file, -1 for an impossible one."""
    size = blocks.parse_number(field)
    return size if size < NO_END else -1


_SIZES, _CHECKSUMS = blocks.Numbers(_plain_size), blocks.Numbers(blocks.parse_checksum)
_TAILS = _Learned(plain=True)


# ---- Resume after a damaged header


def is_header(block: bytes) -> bool:
    """Whether a block is a header: by its checksum, and its magic or a name (a V7 header has no magic)."""
    return (block[257:262] == b"ustar" or block[:1] != b"\0") and blocks.is_sound(block)


def find_header(
    source: HeaderSource, pos: int, passed: Callable[[int], None] | None = None, until: int = NO_END
) -> int | None:
    """Return the offset of the next block in [pos, until) that is a header, None if there is none.

    `passed` is called with the position that is reached, so that the caller can release the bytes before it.
    """
    while pos < until:
        chunk = bytes(source.peek(pos, BLOCK))
        if len(chunk) < BLOCK:
            return None
        for at in range(0, min(len(chunk), until - pos) - BLOCK + 1, BLOCK):
            if is_header(chunk[at : at + BLOCK]):
                return pos + at
        pos += len(chunk) & -BLOCK
        if passed is not None:
            passed(pos)
    return None


def find_entry(source: HeaderSource, pos: int, reach: int, passed: Callable[[int], None] | None) -> int | None:
    """Return where the archive continues after the damaged header at `pos`: at a header or at its end marker.

    The next header may belong to an archive that is the payload of the damaged entry. That payload is skipped if the
    damaged header gives its size, at most `reach` bytes, a header or the end marker follows it, and it is an archive.
    """
    stop = _stated_stop(source, pos, reach)
    if stop is None:
        return find_header(source, pos + BLOCK, passed)
    first = find_header(source, pos + BLOCK, until=stop)
    return stop if first is None or (first == pos + BLOCK and _is_archive(source, first, stop)) else first


def _stated_stop(source: HeaderSource, pos: int, reach: int) -> int | None:
    """Return where the payload of the header at `pos` ends by its size, if a header or the end marker is there."""
    head = bytes(source.peek(pos, BLOCK)[:BLOCK])
    try:
        size = blocks.payload_size(head[156:157], blocks.parse_number(head[124:136]))
    except ValueError:
        return None
    stop = pos + BLOCK + size + blocks.padding(size)
    if size > reach or (source.size is not None and stop > source.size):
        return None
    block = bytes(source.peek(stop, BLOCK)[:BLOCK])
    if len(block) < BLOCK:
        return None
    ends = blocks.is_zero(block) and find_header(source, stop, until=stop + blocks.RECORD) is None
    return stop if ends or is_header(block) else None


def _is_archive(source: HeaderSource, pos: int, stop: int) -> bool:
    """Whether bytes [pos, stop) are an archive: entries, and an end marker of two blocks or to the end of a record."""
    walk, end = TarReader(source, pos), pos
    try:
        for entry in walk.raw():
            end = entry[4]
            if end >= stop:
                return False
    except Problem as problem:
        if problem.name != "trailing-data" or walk.resume != stop:
            return False
    except TarkitError:
        return False
    return stop - end == 2 * BLOCK or (stop - pos) % blocks.RECORD == 0
