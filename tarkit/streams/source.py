"""Sources of bytes: files, read in any order, and streams, read forward only, behind one interface.

The bytes of a file can be read at any time. Those of a stream can be read until `release` has passed them: they are
held in a window in memory, and the bytes of a sample beyond HELD go to a temporary file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem
from tarkit.streams.copy import CHUNK, Short, is_pipe, new_buffer
from tarkit.streams.files import Descriptor, File, most_files
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile

if TYPE_CHECKING:
    from tarkit.stores.store import StoreOptions
    from tarkit.streams.location import Location

HELD = 16 << 20  # bytes: the largest window of a stream in memory
SPLICED = 1 << 20  # bytes: shorter ranges are not worth a splice from a pipe to a file
_STEP = 1 << 28  # bytes of one splice: signals are handled between two of them

Gather = Callable[[Sequence[int], Sequence[int], Sequence[int]], bytes | None]
"""`quick` of `gather`."""


class Source:
    """Bytes of one archive by position. Positions and sizes are in decoded bytes.

    Attributes:
        name: the name for messages.
        size: the length of the archive; None until a stream has ended.
        seekable: whether bytes can be read at any time and in any order.
        codec: the codec that the archive was compressed with, None for a plain one.
        form: the format of messages, of whose samples the archive is made; None for an archive.
        failure: the error that ended a stream early; the bytes before it were read.
        object_version: the version of the object of a store, also of one that is read from the cache.
        location: where the archive is, if its bytes are those of a file or an object that can be opened again.
    """

    seekable = True
    codec: str | None = None
    form: str | None = None
    object_version: str | None = None
    location: Location | None = None

    def __init__(self, name: str, size: int | None) -> None:
        self.name = name
        self.size = size
        self.failure: Problem | None = None

    def peek(self, pos: int, n: int) -> bytes | memoryview:
        """Return at least `n` bytes from `pos` on, fewer only at the end; valid until the next call."""
        raise NotImplementedError

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop)."""
        raise NotImplementedError

    def recent(self, start: int, stop: int) -> bytes:
        """Return the same, from memory if they were read ahead. Only for the thread that calls `peek`."""
        return bytes(self.view(start, stop))

    def view(self, start: int, stop: int) -> bytes | memoryview:
        """Return what `recent` does, if possible without a copy: valid until the source is read again."""
        return self.read(start, stop)

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`."""
        raise NotImplementedError

    def release(self, pos: int) -> None:
        """Declare that the bytes before `pos` are not needed again."""

    def unchanged(self) -> None:
        """Raise TarkitError if the file has changed since it was read; do nothing if that is not known."""

    def lend(self, flush: Callable[[], None]) -> None:
        """Register `flush`, to be called once, before bytes of a stream are overwritten or dropped."""

    def close(self) -> None:
        """Close the source."""


class WindowSource(Source):
    """A source whose bytes can be read in any order, with a window of those that were read last.

    Attributes:
        ahead: bytes that are read ahead, by level. The level rises while the next position is near, else it falls; a
            position before what is held begins at the lowest.
        gap: a position with more bytes between it and what is held is not near, nor one with more than `ahead`.
        url: the URL of an object of a store, for requests; None for files.
        options: how the URL is reached.
    """

    url: str | None = None
    options: StoreOptions | None = None
    ahead: tuple[int, ...] = (1536, 8192, 32768, 1 << 18, 1 << 20)
    gap = 1 << 15

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self._view = self._seen = memoryview(b"")
        self._level = self._base = self._end = 0

    def peek(self, pos: int, n: int) -> memoryview:
        """Return at least `n` bytes from `pos` on, fewer only at the end; valid until the next call.

        No byte is read twice while positions grow: bytes that are still in memory are kept.
        """
        at = pos - self._base
        if at >= 0 and pos + n <= self._end:
            return self._seen[at:]
        if at < 0:
            self._level = 0
        elif self._is_near(pos):
            self._level = min(self._level + 1, len(self.ahead) - 1)
        else:
            self._level = max(self._level - 1, 0)
        want = self.ahead[self._level]
        if len(self._view) < want and n <= want:
            self._view = new_buffer(want)
        view = self._view[:want] if n <= want else new_buffer(n)
        held = max(self._end - pos, 0) if at >= 0 else 0
        self._end = 0  # an error while bytes move leaves none
        if held:
            view[:held] = self._seen[at:]
        size = held + self._read_into(view[held:], pos + held, n - held)
        self._seen, self._base, self._end = view[:size], pos, pos + size
        return self._seen

    def _is_near(self, pos: int) -> bool:
        """Return whether a position is in what is held or at most so far behind it as is read ahead."""
        return self._base <= pos <= self._end + min(self.ahead[self._level], self.gap)

    def view(self, start: int, stop: int) -> bytes | memoryview:
        near = self._base <= start and stop <= self._end
        return self._seen[start - self._base : stop - self._base] if near else self.read(start, stop)

    @property
    def written(self) -> int | None:
        """When the archive was written, in nanoseconds since 1970; None if that is not known."""
        raise NotImplementedError

    @property
    def version(self) -> object:
        """A value that differs, beside the size, once the archive has changed; None if unknown."""
        return self.written

    def another(self) -> WindowSource:
        """Return a source of the same bytes with a window of its own, for another thread."""
        raise NotImplementedError

    def close(self) -> None:
        self._view, self._seen, self._end = memoryview(b""), memoryview(b""), 0

    def _read_into(self, view: memoryview, pos: int, n: int) -> int:
        """Read at least `n` bytes from `pos` on, fewer only at the end, and return how many."""
        raise NotImplementedError


class FileSource(WindowSource):
    """A regular file, or an open descriptor of one, from `offset` on. It is closed with the last reference to it."""

    def __init__(self, file: File | int, name: str, offset: int = 0) -> None:
        self.file = file if isinstance(file, File) else File(Descriptor(file), name)
        self.offset = offset
        super().__init__(name, max(0, self.file.size - offset))

    def read(self, start: int, stop: int) -> bytes:
        held = self.file.opened or self.file.open()
        try:
            data = os.pread(held.fd, stop - start, self.offset + start)
            while len(data) < stop - start:
                more = os.pread(held.fd, stop - start - len(data), self.offset + start + len(data))
                if not more:
                    raise self._shortened(self.offset + start + len(data))
                data += more
        except OSError as error:
            error.filename = self.name
            raise
        return data

    def send(self, start: int, stop: int, sink: Sink) -> None:
        held = self.file.opened or self.file.open()
        try:
            sink.copy(held.fd, self.offset + start, self.offset + stop, self._shortened)
        except Short as error:
            raise self._shortened(error.pos) from None

    @property
    def written(self) -> int:
        return self.file.mtime

    def another(self) -> FileSource:
        return FileSource(self.file, self.name, self.offset)

    def will_need(self, start: int = 0, size: int = 0) -> None:
        """Ask the system to read `size` bytes from `start` on into its cache; 0 is all."""
        if hasattr(os, "posix_fadvise"):
            held = self.file.opened or self.file.open()
            os.posix_fadvise(held.fd, self.offset + start, size, os.POSIX_FADV_WILLNEED)

    def unchanged(self) -> None:
        self.file.unchanged()

    def _read_into(self, view: memoryview, pos: int, n: int) -> int:
        held = self.file.opened or self.file.open()
        try:
            size = os.preadv(held.fd, [view], self.offset + pos)
            while 0 < size < n:
                more = os.preadv(held.fd, [view[size:]], self.offset + pos + size)
                if more == 0:
                    break
                size += more
        except OSError as error:
            error.filename = self.name
            raise
        return size

    def _shortened(self, end: int) -> Problem:
        return Problem("truncated", self.name, end - self.offset, "the file became shorter while it was read")


def gather(files: Sequence[FileSource], starts: Sequence[int], sizes: Sequence[int], quick: Gather) -> bytes:
    """Return ranges of files, one after the other: each is `sizes` bytes of `files` from `starts` on.

    `quick(fds, positions, sizes)` does that in one call, or returns None if it cannot.
    """
    one, first, stop = files[0], min(starts), max(map(add, starts, sizes))
    different = set(files)
    if len(different) == 1 and stop - first <= 2 * sum(sizes):  # they are close together
        data = one.read(first, stop)
        return b"".join([data[start - first : start - first + size] for start, size in zip(starts, sizes, strict=True)])
    if len(different) <= most_files() // 4:  # so many can be kept open
        positions = tuple(map(add, starts, [source.offset for source in files]))
        try:
            held = [source.file.opened or source.file.open() for source in files]
            fds = [descriptor.fd for descriptor in held]
            joined = quick(fds, positions, sizes)
            joined = b"".join(map(os.pread, fds, sizes, positions)) if joined is None else joined
        except OSError:
            joined = b""
        if len(joined) == sum(sizes):
            return joined
    return b"".join(
        [source.read(start, start + size) for source, start, size in zip(files, starts, sizes, strict=True)]
    )


class StreamSource(Source):
    """A stream, with a window of its bytes that begins where they were released last.

    The window grows up to HELD bytes; if all of it is still needed then, its front goes to a temporary file.
    """

    seekable = False

    def __init__(self, reader: ByteReader, name: str, tmpdir: str | None = None) -> None:
        super().__init__(name, None)  # its size is known at the end
        self.reader = reader
        self.tmpdir = tmpdir
        self._view = new_buffer(CHUNK)
        self._base = 0  # position of the first byte in the window
        self._filled = 0  # bytes in the window
        self._keep = 0  # position of the first byte that was not released
        self._overflow: TemporaryFile | None = None  # bytes before the window that were not released
        self._overflow_start = 0  # position of its first byte
        self._borrowers: set[Callable[[], None]] = set()

    def peek(self, pos: int, n: int) -> memoryview:
        if pos + n > self._base + self._filled and self.size is None:
            self._fetch(pos, n)
        return self._view[max(pos - self._base, 0) : self._filled]

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop), which must not have been released."""
        if stop > self._base + self._filled:
            self._fetch(stop, 0)
        if stop > self._base + self._filled:
            raise self._truncated()
        data = b""
        if start < self._base:
            first = self._overflow_start
            if self._overflow is None or start < first:
                raise AssertionError("bytes of a stream were asked for after their release")
            data = self._overflow.read(start - first, min(stop, self._base) - first)
        if stop > self._base:
            data += self._view[max(start - self._base, 0) : stop - self._base]
        return data

    def view(self, start: int, stop: int) -> bytes | memoryview:
        near = self._base <= start and stop <= self._base + self._filled
        return self._view[start - self._base : stop - self._base] if near else self.read(start, stop)

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`; those that are not in the window yet are not kept."""
        if start < self._base:
            first = self._overflow_start
            if self._overflow is None or start < first:
                raise AssertionError("bytes of a stream were requested after their release")
            sink.copy(self._overflow.fd, start - first, min(stop, self._base) - first)
            start = min(stop, self._base)
        end = self._base + self._filled
        if start < end:
            sink.write(self._view[start - self._base : min(stop, end) - self._base])
        if stop > end:
            self._pass(max(start, end), stop, sink)

    def release(self, pos: int) -> None:
        self._keep = pos

    def lend(self, flush: Callable[[], None]) -> None:
        self._borrowers.add(flush)

    def close(self) -> None:
        """Close the reader. Bytes in the window that were not released can still be read."""
        self.reader.close()

    def _flush_borrowers(self) -> None:
        borrowers, self._borrowers = self._borrowers, set()
        for flush in borrowers:
            flush()

    def _truncated(self) -> Problem:
        return Problem("truncated", self.name, self._base + self._filled, "the input ends inside an entry")

    def _fetch(self, pos: int, n: int) -> None:
        """Read until [pos, pos + n) is in the window or the stream has ended."""
        while self._base + self._filled < pos + n:
            if self._filled == len(self._view) or pos - self._base + n > len(self._view):
                self._make_room(pos, n)
            count = self._read(self._view[self._filled :])
            if count == 0:
                self.size = self._base + self._filled
                return
            self._filled += count

    def _make_room(self, pos: int, n: int) -> None:
        """Drop released bytes from the window, else enlarge it, else move its front to the temporary file."""
        self._flush_borrowers()
        low = min(self._keep, pos)
        if low >= self._base:
            self._drop_overflow()
            self._shift(min(low - self._base, self._filled))
        if self._filled < len(self._view) // 2 and n <= len(self._view) // 2:
            return
        if len(self._view) < HELD or n > HELD // 2:
            larger = new_buffer(max(2 * len(self._view), 2 * n))
            larger[: self._filled] = self._view[: self._filled]
            self._view = larger
            return
        if self._overflow is None:
            self._overflow, self._overflow_start = TemporaryFile(self.tmpdir), self._base
        passed = min(pos - self._base, self._filled)  # the bytes that are requested now stay in the window
        self._overflow.write(self._view[:passed])
        self._shift(passed)

    def _shift(self, count: int) -> None:
        if count:
            self._view[: self._filled - count] = self._view[count : self._filled]
            self._base += count
            self._filled -= count

    def _drop_overflow(self) -> None:
        if self._overflow is not None:
            self._overflow.close()
            self._overflow = None

    def _pass(self, start: int, stop: int, sink: Sink) -> None:
        """Move [start, stop), none of which has been read yet, from the reader to `sink`."""
        self._flush_borrowers()
        if start > self._base + self._filled:
            self._keep = start
            self._fetch(start, 0)
        self._drop_overflow()
        self._base, self._filled = start, 0
        spliced = stop - start >= SPLICED and hasattr(os, "splice")
        # A pipe gets copies, see `tarkit.streams.copy`. A splice from pipe to pipe was not faster.
        spliced = spliced and sink.fd is not None and not is_pipe(sink.fd)
        while self._base < stop:
            count = self._splice(sink.fd, stop - self._base) if spliced else None  # type: ignore[arg-type]
            if count is None:
                spliced = False
                count = self._read(self._view[: min(len(self._view), stop - self._base)])
                sink.write(self._view[:count])
            if count == 0:
                self.size = self._base
                raise self.failure or self._truncated()
            self._base += count

    def _read(self, view: memoryview) -> int:
        """Read some bytes, 0 at the end. An error counts as the end, so that the bytes before it can be used."""
        try:
            return self.reader.readinto(view)
        except Problem as problem:
            self.failure = problem
            return 0

    def _splice(self, target: int, count: int) -> int | None:
        try:
            return os.splice(self.reader.fileno(), target, min(count, _STEP))
        except OSError:  # no descriptor, or no pipe; the target appends or is closed: the write that follows reports it
            return None
