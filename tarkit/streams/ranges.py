"""Sources made of byte ranges: held in memory, held in a temporary file, or joined from other sources.

A range of a stream that is needed longer than the stream's window is copied to memory (`HeldRange`) or to temporary
space (`RangeSpool`); its positions stay those of the stream.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from tarkit.streams.files import File
from tarkit.streams.sink import Sink
from tarkit.streams.source import FileSource, Source, StreamSource
from tarkit.streams.tempfile import TemporaryFile


class Held(Source):
    """Base of the sources that hold bytes [start, stop) of a stream, at the positions that they had there.

    They are freed with the last reference.
    """

    def __init__(self, name: str, start: int, stop: int) -> None:
        super().__init__(name, stop)
        self.start = start

    def peek(self, pos: int, n: int) -> bytes | memoryview:
        return self.read(pos, min(pos + n, self.size or 0))


class HeldRange(Held):
    """A range held in memory."""

    def __init__(self, name: str, start: int, data: bytes | memoryview) -> None:
        super().__init__(name, start, start + len(data))
        self.data = data

    def read(self, start: int, stop: int) -> bytes:
        return bytes(self.data[start - self.start : stop - self.start])

    def peek(self, pos: int, n: int) -> memoryview:
        """Return all bytes from `pos` on."""
        return memoryview(self.data)[pos - self.start :]

    def send(self, start: int, stop: int, sink: Sink) -> None:
        sink.write(memoryview(self.data)[start - self.start : stop - self.start])


class MovedRange(Held):
    """A range held in a temporary file, from `offset` on."""

    def __init__(self, file: TemporaryFile, name: str, start: int, stop: int, offset: int) -> None:
        super().__init__(name, start, stop)
        self.file = file
        self.offset = offset

    def read(self, start: int, stop: int) -> bytes:
        return self.file.read(self.offset + start - self.start, self.offset + stop - self.start)

    def send(self, start: int, stop: int, sink: Sink) -> None:
        sink.copy(self.file.fd, self.offset + start - self.start, self.offset + stop - self.start)


class SpooledRange(MovedRange):
    """A range in the file of a RangeSpool. Its room is free again when the last reference to it is gone."""

    def __init__(self, spool: RangeSpool, file: TemporaryFile, name: str, start: int, stop: int, offset: int) -> None:
        super().__init__(file, name, start, stop, offset)
        self.spool = spool

    def __del__(self) -> None:
        self.spool.free(self.offset, (self.size or 0) - self.start)


class RangeReader(Protocol):
    """Bytes of a JoinedSource: any Source, or the content of a field."""

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop)."""

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`."""


class JoinedSource(Held):
    """Pieces (reader, start, stop), one after the other, as one source whose first byte is at position `start`."""

    def __init__(self, name: str, start: int, pieces: Sequence[tuple[RangeReader, int, int]]) -> None:
        super().__init__(name, start, start + sum(last - first for _, first, last in pieces))
        self.pieces = pieces

    def read(self, start: int, stop: int) -> bytes:
        return b"".join(reader.read(low, high) for reader, low, high in self.within(start, stop))

    def send(self, start: int, stop: int, sink: Sink) -> None:
        for reader, low, high in self.within(start, stop):
            reader.send(low, high, sink)

    def within(self, start: int, stop: int) -> Iterator[tuple[RangeReader, int, int]]:
        """Yield the parts of the pieces that are in [start, stop)."""
        at = self.start
        for reader, first, last in self.pieces:
            low, high = max(start - at, 0), min(stop - at, last - first)
            if low < high:
                yield reader, first + low, first + high
            at += last - first


class AssembledSource(JoinedSource):
    """Pieces of sources as one source, which can be read for as long as all of them can.

    Attributes:
        origin: the archive from which the bytes came, before any of them was replaced.
        origins: by the starts of entries, the source of each and the entry there, before it was renamed; None for one
            that was made.
    """

    pieces: Sequence[tuple[Source, int, int]]
    origins: Mapping[int, tuple[Source, Any] | None] = MappingProxyType({})

    def __init__(self, origin: Source, start: int, pieces: Sequence[tuple[Source, int, int]]) -> None:
        super().__init__(origin.name, start, pieces)
        self.origin: Source = origin.origin if isinstance(origin, AssembledSource) else origin
        self.seekable = all(source.seekable for source, _, _ in pieces)

    def within(self, start: int, stop: int) -> Iterator[tuple[Source, int, int]]:
        return super().within(start, stop)  # type: ignore[return-value]

    def unchanged(self) -> None:
        self.origin.unchanged()
        for source, _, _ in self.pieces:
            if source is not self.origin:
                source.unchanged()

    def lend(self, flush: Callable[[], None]) -> None:
        for source, _, _ in self.pieces:
            source.lend(flush)


class RangeSpool:
    """Ranges of streams in one temporary file, which reuses the room of freed ones (first fit).

    For byte ranges that are freed one by one, in any order. For items to be read in the order of writing use
    `spill.records`, for records to be found by key `spill.multimap`.
    """

    def __init__(self, tmpdir: str | None = None) -> None:
        self.tmpdir = tmpdir
        self._file: TemporaryFile | None = None
        self._gaps: list[tuple[int, int]] = []  # (offset, length), sorted, never adjacent
        self._length = 0
        self._freed: deque[tuple[int, int]] = deque()  # by any thread

    def hold(self, name: str, start: int, stop: int, send: Callable[[int, int, Sink], None]) -> SpooledRange:
        """Return a copy of bytes [start, stop) of the stream `name`, which `send` writes to a sink."""
        if self._file is None:
            self._file = TemporaryFile(self.tmpdir)
        offset = self._room(stop - start)
        os.lseek(self._file.fd, offset, os.SEEK_SET)
        held = SpooledRange(self, self._file, name, start, stop, offset)
        send(start, stop, Sink(self._file.fd, self._file.name))
        return held

    def free(self, offset: int, length: int) -> None:
        """Note that the room of a range is free; any thread may call this."""
        self._freed.append((offset, length))

    def _reclaim(self, offset: int, length: int) -> None:
        gaps: list[tuple[int, int]] = []
        for gap in sorted([*self._gaps, (offset, length)]):
            if gaps and sum(gaps[-1]) == gap[0]:
                gaps[-1] = (gaps[-1][0], gaps[-1][1] + gap[1])
            else:
                gaps.append(gap)
        if gaps and sum(gaps[-1]) == self._length:
            self._length = gaps.pop()[0]
        self._gaps = gaps

    def _room(self, length: int) -> int:
        while self._freed:
            self._reclaim(*self._freed.popleft())
        for place, (offset, room) in enumerate(self._gaps):
            if room >= length:
                self._gaps[place : place + 1] = [(offset + length, room - length)] if room > length else []
                return offset
        offset = self._length
        self._length += length
        return offset


class CopiedStream(FileSource):
    """A copy of a whole stream in a temporary file, from `start` on; other copies may follow in the same file."""

    def __init__(self, file: TemporaryFile, start: int, size: int, stream: StreamSource) -> None:
        super().__init__(File(file, stream.name), stream.name, start)
        self.size: int = size
        self.failure, self.codec = stream.failure, stream.codec

    def peek(self, pos: int, n: int) -> memoryview:
        return super().peek(pos, n)[: max(0, self.size - pos)]

    def unchanged(self) -> None:
        """Do nothing: no other process can write to the file."""


def spooled(source: StreamSource, behind: CopiedStream | None = None) -> CopiedStream:
    """Copy a whole stream to a temporary file, to read it in any order or more than once.

    With `behind`, the last copy in its file, the stream is appended to that file: any number of streams need one
    descriptor.
    """
    file = TemporaryFile(source.tmpdir) if behind is None else behind.file.opened
    assert isinstance(file, TemporaryFile)
    start = 0 if behind is None else behind.offset + behind.size
    os.lseek(file.fd, start, os.SEEK_SET)
    size = 0
    while view := source.peek(size, 1):
        file.write(view)
        size += len(view)
        source.release(size)
    source.close()
    return CopiedStream(file, start, size, source)
