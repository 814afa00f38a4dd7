"""Ranges of streams that are wanted longer than their window: in memory, or in one temporary file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from tarkit.errors import Problem
from tarkit.streams import source as sources
from tarkit.streams.files import File
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile


class Held:
    """A source of one range, whose positions are those of the stream it was taken from."""

    seekable = True
    codec: str | None = None
    failure: Problem | None = None

    def __init__(self, name: str, start: int, stop: int) -> None:
        self.name = name
        self.start = start
        self.size: int | None = stop

    def peek(self, pos: int, n: int) -> bytes:
        """At least `n` bytes from `pos` on, fewer only at the end."""
        return self.read(pos, min(pos + n, self.size or 0))

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        raise NotImplementedError

    def release(self, pos: int) -> None:
        """It is kept whole."""

    def lend(self, flush: Callable[[], None]) -> None:
        """It does not move."""

    def close(self) -> None:
        """It goes when nobody refers to it."""


class HeldRange(Held):
    """A range in memory."""

    def __init__(self, name: str, start: int, data: bytes) -> None:
        super().__init__(name, start, start + len(data))
        self.data = data

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self.data[start - self.start : stop - self.start]

    def send(self, start: int, stop: int, sink: sources.RangeSink) -> None:
        """Write bytes [start, stop) to `sink`."""
        sink.write(memoryview(self.data)[start - self.start : stop - self.start])


class MovedRange(Held):
    """A range that is now in a temporary file, from `offset` on."""

    def __init__(self, file: TemporaryFile, name: str, start: int, stop: int, offset: int) -> None:
        super().__init__(name, start, stop)
        self.file = file
        self.offset = offset

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self.file.read(self.offset + start - self.start, self.offset + stop - self.start)

    def send(self, start: int, stop: int, sink: sources.RangeSink) -> None:
        """Write bytes [start, stop) to `sink`."""
        sink.copy(self.file.fd, self.offset + start - self.start, self.offset + stop - self.start)


class SpooledRange(MovedRange):
    """A range in the file of a spool, which takes the room back when nobody refers to the range."""

    def __init__(self, spool: RangeSpool, file: TemporaryFile, name: str, start: int, stop: int, offset: int) -> None:
        super().__init__(file, name, start, stop, offset)
        self.spool = spool

    def __del__(self) -> None:
        self.spool.free(self.offset, (self.size or 0) - self.start)


class RangeSpool:
    """An unlinked temporary file with room for ranges that come and go; first fit."""

    def __init__(self, tmpdir: str | None = None) -> None:
        self.tmpdir = tmpdir
        self._file: TemporaryFile | None = None
        self._gaps: list[tuple[int, int]] = []  # offset and length, in order, never adjacent
        self._length = 0
        self._freed: deque[tuple[int, int]] = deque()  # in whatever thread the last reference went

    def hold(self, name: str, start: int, stop: int, send: Callable[[int, int, Sink], None]) -> SpooledRange:
        """Keep bytes [start, stop) of the stream `name`, which `send` writes to a sink."""
        if self._file is None:
            self._file = TemporaryFile(self.tmpdir)
        offset = self._room(stop - start)
        os.lseek(self._file.fd, offset, os.SEEK_SET)
        held = SpooledRange(self, self._file, name, start, stop, offset)
        send(start, stop, Sink(self._file.fd, self._file.name))
        return held

    def free(self, offset: int, length: int) -> None:
        """Take back the room of a range, when room is wanted the next time."""
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


class Copy(sources.FileSource):
    """A stream that was read to its end, in a temporary file where others may lie behind it."""

    def __init__(self, file: TemporaryFile, start: int, size: int, stream: sources.StreamSource) -> None:
        super().__init__(File(file, stream.name), stream.name, start)
        self.size: int = size
        self.failure, self.codec = stream.failure, stream.codec

    def peek(self, pos: int, n: int) -> memoryview:
        """At least `n` bytes from `pos` on, fewer only at the end; good until the next call."""
        return super().peek(pos, n)[: max(0, self.size - pos)]

    def unchanged(self) -> None:
        """Nobody else writes to it."""


def spooled(source: sources.StreamSource, behind: Copy | None = None) -> Copy:
    """All of a stream in a temporary file, to read it in any order or more than once.

    It is the file that has the copy `behind` at its end, if one is given: any number of streams take one open file.
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
    return Copy(file, start, size, source)
