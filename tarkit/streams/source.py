"""Where bytes are read: files in any order, streams forward only. Both have the same few methods.

A file's bytes can be asked for at any time. A stream's are good until `release` has passed them: a window of memory
holds them, and what of one sample is more than HELD goes to an unlinked temporary file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from tarkit.errors import Problem
from tarkit.streams.copy import CHUNK, Short, is_pipe, widen
from tarkit.streams.files import Descriptor, File
from tarkit.streams.tempfile import Overflow

HELD = 16 << 20  # bytes of a stream that may be in memory
AHEAD = (1536, 8192, 32768, 1 << 18)  # how far a file is read ahead: far when entries are small
SPLICED = 1 << 20  # a range at least so long is spliced, where it can be
_STEP = 1 << 28


class RangeSink(Protocol):
    """What a source sends ranges to; `tarkit.streams.sink` has them."""

    @property
    def fd(self) -> int | None:
        """The descriptor, when bytes may be moved to it directly."""

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""

    def copy(self, source: int, start: int, stop: int, short: Callable[[int], Exception] | None = None) -> None:
        """Write bytes [start, stop) of the file `source`, with `short` perhaps later."""


class ByteReader(Protocol):
    """Where a stream comes from: a descriptor, a decoder, a command."""

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view` and return how much, 0 at the end."""

    def fileno(self) -> int | None:
        """The descriptor, when nothing stands between it and the bytes."""

    def close(self) -> None:
        """Let go; raises if what was read was not whole."""


class FileSource:
    """A regular file, or a descriptor of one, from `offset` on."""

    seekable = True
    codec: str | None = None

    def __init__(self, file: File | int, name: str, offset: int = 0) -> None:
        self.file = file if isinstance(file, File) else File(Descriptor(file), name)
        self.name = name
        self.offset = offset
        self.size: int | None = max(0, self.file.size - offset)
        self.failure: Problem | None = None
        self._view = self._seen = memoryview(b"")
        self._level = self._base = self._end = 0

    def peek(self, pos: int, n: int) -> memoryview:
        """At least `n` bytes from `pos` on, fewer only at the end; good until the next call.

        No byte is read twice while the calls move forward: what is still held is not read again.
        """
        at = pos - self._base
        if at >= 0 and pos + n <= self._end:
            return self._seen[at:]
        if not self._view:
            self._view = memoryview(bytearray(AHEAD[-1]))
        near = pos - self._end <= AHEAD[self._level]
        self._level = min(self._level + 1, len(AHEAD) - 1) if near else max(self._level - 1, 0)
        want = AHEAD[self._level]
        view = self._view[:want] if n <= want else memoryview(bytearray(n))
        held = max(self._end - pos, 0) if at >= 0 else 0
        if held:
            view[:held] = self._seen[at:]
        got = held + self._fill(view[held:], pos + held, n - held)
        self._seen, self._base, self._end = view[:got], pos, pos + got
        return self._seen

    def recent(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), perhaps of what was read ahead: only for the thread that peeks."""
        near = self._base <= start and stop <= self._end
        return bytes(self._seen[start - self._base : stop - self._base]) if near else self.read(start, stop)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
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

    def send(self, start: int, stop: int, sink: RangeSink) -> None:
        """Write bytes [start, stop) to `sink`."""
        held = self.file.opened or self.file.open()
        try:
            sink.copy(held.fd, self.offset + start, self.offset + stop, self._shortened)
        except Short as error:
            raise self._shortened(error.pos) from None

    def will_need(self) -> None:
        """Let the system read the file before it is asked for."""
        if hasattr(os, "posix_fadvise"):
            held = self.file.opened or self.file.open()
            os.posix_fadvise(held.fd, 0, 0, os.POSIX_FADV_WILLNEED)

    def unchanged(self) -> None:
        """Raise TarkitError if somebody replaced the file or wrote to it since it was opened."""
        self.file.unchanged()

    def release(self, pos: int) -> None:
        """A file keeps its bytes."""

    def lend(self, flush: Callable[[], None]) -> None:
        """A file keeps its bytes where they are."""

    def close(self) -> None:
        """Give back what was read ahead. Samples may still refer to the file, which is closed with the last of them."""
        self._view, self._seen, self._end = memoryview(b""), memoryview(b""), 0

    def _fill(self, view: memoryview, pos: int, n: int) -> int:
        """Read at least `n` bytes from `pos` on, unless the file ends before; how many."""
        held = self.file.opened or self.file.open()
        try:
            got = os.preadv(held.fd, [view], self.offset + pos)
            while 0 < got < n:
                more = os.preadv(held.fd, [view[got:]], self.offset + pos + got)
                if more == 0:
                    break
                got += more
        except OSError as error:
            error.filename = self.name
            raise
        return got

    def _shortened(self, end: int) -> Problem:
        return Problem("truncated", self.name, end - self.offset, "the file became shorter while it was read")


class StreamSource:
    """A stream: a window of its bytes, from what was released on. `codec` is what it was decoded from."""

    seekable = False
    codec: str | None = None

    def __init__(self, reader: ByteReader, name: str, tmpdir: str | None = None) -> None:
        self.reader = reader
        self.tmpdir = tmpdir
        self.name = name
        self.size: int | None = None  # known at the end
        self.failure: Problem | None = None  # why it ended, when it should not have
        self._view = memoryview(bytearray(CHUNK))
        self._base = 0  # position of the window's first byte
        self._fill = 0  # bytes in the window
        self._keep = 0  # what lies before was released
        self._overflow: Overflow | None = None
        self._borrowers: set[Callable[[], None]] = set()

    def peek(self, pos: int, n: int) -> memoryview:
        """At least `n` bytes from `pos` on, fewer only at the end; good until the next call."""
        if pos + n > self._base + self._fill and self.size is None:
            self._fetch(pos, n)
        return self._view[max(pos - self._base, 0) : self._fill]

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), which must not have been released."""
        self._reach(stop)
        data = b""
        if start < self._base and self._overflow:
            data = self._overflow.read(start, min(stop, self._base))
        if stop > self._base:
            data += self._view[max(start - self._base, 0) : stop - self._base]
        return data

    def send(self, start: int, stop: int, sink: RangeSink) -> None:
        """Write bytes [start, stop) to `sink`; those that lie behind the window are passed on and not kept."""
        if start < self._base:
            if self._overflow is None or start < self._overflow.start:
                raise AssertionError("bytes of a stream were asked for after their release")
            self._overflow.send(start, min(stop, self._base), sink)
            start = min(stop, self._base)
        end = self._base + self._fill
        if start < end:
            sink.write(self._view[start - self._base : min(stop, end) - self._base])
        if stop > end:
            self._pass(max(start, end), stop, sink)

    def release(self, pos: int) -> None:
        """What lies before `pos` will not be asked for again."""
        self._keep = pos

    def lend(self, flush: Callable[[], None]) -> None:
        """Call `flush` before the window moves."""
        self._borrowers.add(flush)

    def close(self) -> None:
        """Close the reader. Bytes that were not released can still be had."""
        self.reader.close()

    def _settle(self) -> None:
        borrowers, self._borrowers = self._borrowers, set()
        for flush in borrowers:
            flush()

    def _reach(self, stop: int) -> None:
        if stop > self._base + self._fill:
            self._fetch(stop, 0)
        if stop > self._base + self._fill:
            raise Problem("truncated", self.name, self._base + self._fill, "the input ends inside an entry")

    def _fetch(self, pos: int, n: int) -> None:
        """Read until [pos, pos + n) is in the window or the stream has ended."""
        while self._base + self._fill < pos + n or (n == 0 and self._base + self._fill < pos):
            if self._fill == len(self._view) or pos - self._base + n > len(self._view):
                self._make_room(pos, n)
            got = self._read(self._view[self._fill :])
            if got == 0:
                self.size = self._base + self._fill
                return
            self._fill += got

    def _make_room(self, pos: int, n: int) -> None:
        """Move what is still wanted to the front of the window; else grow the window; else write it to the spool."""
        self._settle()
        low = min(self._keep, pos)
        if low >= self._base:
            self._drop_overflow()
            self._shift(min(low - self._base, self._fill))
        if self._fill < len(self._view) // 2 and n <= len(self._view) // 2:
            return
        if len(self._view) < HELD or n > HELD // 2:
            larger = memoryview(bytearray(max(2 * len(self._view), 2 * n)))
            larger[: self._fill] = self._view[: self._fill]
            self._view = larger
            return
        if self._overflow is None:
            self._overflow = Overflow(self._base, self.tmpdir)
        passed = min(pos - self._base, self._fill)  # what is asked for now stays in the window
        self._overflow.write(self._view[:passed])
        self._shift(passed)

    def _shift(self, count: int) -> None:
        """Forget the first `count` bytes of the window."""
        if count:
            self._view[: self._fill - count] = self._view[count : self._fill]
            self._base += count
            self._fill -= count

    def _drop_overflow(self) -> None:
        if self._overflow is not None:
            self._overflow.close()
            self._overflow = None

    def _pass(self, start: int, stop: int, sink: RangeSink) -> None:
        """Move [start, stop), of which nothing has been read yet, from the reader to `sink`."""
        self._settle()
        if start > self._base + self._fill:
            self._keep = start
            self._fetch(start, 0)
        self._drop_overflow()
        self._base, self._fill = start, 0
        fd = self.reader.fileno()
        spliced = fd is not None and sink.fd is not None and stop - start >= SPLICED and hasattr(os, "splice")
        while self._base < stop:
            if spliced:
                got = self._splice(fd, sink.fd, stop - self._base)  # type: ignore[arg-type]
                if got is None:
                    spliced = False
                    continue
            else:
                got = self._read(self._view[: min(len(self._view), stop - self._base)])
                sink.write(self._view[:got])
            if got == 0:
                self.size = self._base
                raise self.failure or Problem("truncated", self.name, self._base, "the input ends inside an entry")
            self._base += got

    def _read(self, view: memoryview) -> int:
        """Some bytes, 0 at the end: also at an untimely one, so that what came before it can still be used."""
        try:
            return self.reader.readinto(view)
        except Problem as problem:
            self.failure = problem
            return 0

    @staticmethod
    def _splice(source: int, target: int, count: int) -> int | None:
        try:
            return os.splice(source, target, min(count, _STEP))
        except OSError:  # neither is a pipe, or the target appends, or is gone: then writing says how
            return None


# ---- Readers: descriptors, files, decoders


class DescriptorReader:
    """A descriptor, read from where it stands; `name` is for messages."""

    def __init__(self, fd: int, name: str | None = None) -> None:
        self.fd = fd
        self.name = name
        if is_pipe(fd):
            widen(fd)

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        try:
            return os.readv(self.fd, [view])
        except OSError as error:
            error.filename = self.name
            raise

    def fileno(self) -> int | None:
        """The descriptor."""
        return self.fd

    def close(self) -> None:
        """Close the descriptor, unless it is stdin."""
        if self.fd > 2:
            os.close(self.fd)
            self.fd = -1


class FileReader:
    """A regular file, read from `offset` to its end; where there are many, not all of them are open."""

    def __init__(self, file: File, offset: int = 0) -> None:
        self.file = file
        self.pos = offset

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        held = self.file.opened or self.file.open()
        try:
            got = os.preadv(held.fd, [view], self.pos)
        except OSError as error:
            error.filename = self.file.name
            raise
        self.pos += got
        return got

    def fileno(self) -> int | None:
        """None: the descriptor is not at the place that is read."""
        return None

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Prepended:
    """A reader of which `head` was read before."""

    def __init__(self, head: bytes, reader: ByteReader) -> None:
        self.head = head
        self.reader = reader

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        if not self.head:
            return self.reader.readinto(view)
        count = min(len(self.head), len(view))
        view[:count] = self.head[:count]
        self.head = self.head[count:]
        return count

    def fileno(self) -> int | None:
        """The reader's descriptor, once `head` has been taken."""
        return None if self.head else self.reader.fileno()

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


class Readable(Protocol):
    """What a decoder, a URL and a thread that reads ahead have in common; `close()` too, but for decoders."""

    def read(self, n: int, /) -> bytes:
        """Up to `n` bytes, none at the end."""


class ReadAdapter:
    """A reader for what has `read`; closing it closes `below`, the reader that it stands on, too."""

    def __init__(self, inner: Readable, below: ByteReader | None = None) -> None:
        self.inner = inner
        self.below = below

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        data = self.inner.read(len(view))
        view[: len(data)] = data
        return len(data)

    def fileno(self) -> int | None:
        """None: what a descriptor has is not what is read here."""
        return None

    def close(self) -> None:
        """Close it and what it stands on."""
        close = getattr(self.inner, "close", None)
        if (close is None or close() is not False) and self.below is not None:
            self.below.close()


def reading(reader: ByteReader) -> _Read:
    """The `read(n)` of a reader, for who wants one."""
    return _Read(reader)


class _Read:
    def __init__(self, reader: ByteReader) -> None:
        self._reader = reader
        self._view = memoryview(bytearray(CHUNK))

    def __call__(self, n: int) -> bytes:
        return bytes(self._view[: self._reader.readinto(self._view[:n])])
