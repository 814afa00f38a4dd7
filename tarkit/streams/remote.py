"""Objects of stores as sources: headers are read by small ranges, and what is read in order by large ones in flight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from threading import get_ident

from tarkit.errors import Problem
from tarkit.stores.connect import gap_of
from tarkit.stores.reading import RangeRequest, RemoteObject, Stream, Transfer
from tarkit.stores.store import GAP, LEAST
from tarkit.streams.copy import CHUNK, new_buffer
from tarkit.streams.sink import Sink
from tarkit.streams.source import WindowSource
from tarkit.threads import Worker

KEPT = 1 << 18
"""Bytes that were not released and stay in the window when it moves on: the contents of a sample of that size."""

KEPT_WHOLE = 1 << 20
"""The same once contents of samples are read whole."""

MOST = 1 << 22
"""Bytes that are requested ahead at once at most, when a stream begins: as many as arrive in 40 to 100 ms."""

PADDING = 10240
"""Bytes behind the last entry that need not be read."""


class HeldRanges:
    """Ranges of an object in memory, which do not overlap: pairs of start and bytes."""

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        ordered = sorted(pieces, key=itemgetter(0))
        self._starts = [start for start, _ in ordered]
        self._pieces = [memoryview(piece) for _, piece in ordered]

    def find(self, start: int, stop: int) -> memoryview | None:
        """Return the bytes from `start` on, at least up to `stop`; None if they are not there."""
        at = bisect_right(self._starts, start) - 1
        if at < 0 or stop - self._starts[at] > len(self._pieces[at]):
            return None
        return self._pieces[at][start - self._starts[at] :]


class RemoteSource(WindowSource):
    """An object that ranges of bytes are requested of.

    While positions grow by steps over gaps of up to `gap` bytes, the object is read as a stream, with several ranges in
    flight; a larger step closes the stream. Of what may be needed next so many bytes are requested at most, or as many
    as were read without a larger step, also of objects before in the same directory. The thread that calls `peek` reads
    from the window what is in it, without a request. Where that thread reads an eighth of a sample at once, the window
    passes over the contents of the next ones as well.

    Attributes:
        gap: bytes between two positions that are read through.
        held: ranges that were fetched before their turn (see `prefetch`): they are read from memory.
        missed: whether there were such ranges when others were read.
    """

    ahead = (LEAST, 1 << 15, 1 << 18, 1 << 20)
    gap = GAP

    def __init__(self, remote: RemoteObject, name: str) -> None:
        assert remote.info.size is not None
        super().__init__(name, remote.info.size)
        self.url, self.options = remote.url, remote.options
        self.object_version = remote.info.version
        self.gap = gap_of(remote.options)
        self._remote = remote
        self._stream: Stream | None = None
        self._position = 0  # of the stream
        self._row = 0  # where the bytes begin that are read in a row, without a larger step
        self._reached = 0  # where they end
        self._directory = remote.url.rpartition("/")[0]
        self._before = remote.store.read_in_a_row.get(self._directory, 0)
        self._kept = 0  # bytes before it were released
        self._thread = 0  # the one that called `peek`
        self._whole = False  # whether contents are read
        self.held: list[HeldRanges] = []
        self.missed = False
        self._borrowers: set[Callable[[], None]] = set()

    def peek(self, pos: int, n: int) -> memoryview:
        self._thread = get_ident()
        n = max(min(n, (self.size or 0) - pos), 0)  # the window stays at the end
        if (held := self._find(pos, pos + n)) is not None:
            return held[: max(n, KEPT)]
        self.missed = self.missed or bool(self.held)
        kept, most = self._kept, KEPT_WHOLE if self._whole else KEPT
        if pos + n > self._end and self._base <= kept <= self._end and 0 < pos - kept <= most and self._is_near(pos):
            return super().peek(kept, pos - kept + n)[pos - kept :]
        return super().peek(pos, n)

    def _is_near(self, pos: int) -> bool:
        return self._base <= pos <= self._end + self.gap

    def release(self, pos: int) -> None:
        self._kept = pos

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop). It may be called from any thread."""
        if (held := self._find(start, stop)) is not None:
            return bytes(held[: stop - start])
        if self._thread == get_ident():
            if self._base <= start and stop <= self._end:
                return bytes(self._seen[start - self._base : stop - self._base])
            self._whole = self._whole or 0 < self._base - self._kept < 8 * (stop - start)
        return self.complete(self._remote.read(start, stop), start, stop)

    def send(self, start: int, stop: int, sink: Sink) -> None:
        while start < stop and (held := self._find(start, start + 1)) is not None:
            sink.write(held[: stop - start])
            start += min(len(held), stop - start)
        if stop - start <= CHUNK or (self._base <= start and stop <= self._end):
            sink.write(self.read(start, stop))
            return
        view = new_buffer(CHUNK)
        with self._remote.stream(start, stop) as stream:
            while count := stream.readinto(view):
                sink.write(view[:count])
                start += count
        self.complete(b"", start, stop)

    @property
    def written(self) -> int | None:
        return self._remote.info.modified

    @property
    def version(self) -> object:
        return self._remote.info.version

    def another(self) -> RemoteSource:
        other = RemoteSource(self._remote, self.name)
        other.held, other._before, other._directory = self.held, 0, ""
        return other

    def request(self, start: int, stop: int, worker: Worker) -> RangeRequest:
        """Begin to fetch bytes [start, stop), by a worker; a connection that breaks is taken up at its byte."""
        transfer = Transfer(self._remote, start, stop)
        return RangeRequest(transfer, lambda data: self.complete(data, start, stop), worker)

    def lend(self, flush: Callable[[], None]) -> None:
        if self.held:
            self._borrowers.add(flush)

    def drop(self, ranges: HeldRanges) -> None:
        """Free ranges that were held."""
        while self._borrowers:
            self._borrowers.pop()()
        self.held.remove(ranges)

    def holds(self, start: int, stop: int) -> bool:
        """Return whether bytes [start, stop) are held."""
        return self._find(start, stop) is not None

    def _find(self, start: int, stop: int) -> memoryview | None:
        """Return bytes from `start` on that were fetched before their turn, at least up to `stop`; None if not."""
        for ranges in reversed(self.held):
            if (held := ranges.find(start, stop)) is not None:
                return held
        return None

    def complete(self, data: bytes, start: int, stop: int) -> bytes:
        """Return the bytes of a range; raise Problem if the object ends before its end."""
        if start + len(data) < stop:
            raise Problem("truncated", self.name, start + len(data), "the object ends inside an entry")
        return data

    def close(self) -> None:
        """Close the connections and free the memory. Samples may still refer to the source, and read from it."""
        self._drop_stream()
        self._remote.close()
        if self._row == 0 and self._reached > (self.size or 0) - PADDING:
            self._remote.store.read_in_a_row[self._directory] = self._before + self._reached
        else:
            self._remote.store.read_in_a_row.pop(self._directory, None)
        self._level = 0
        super().close()

    def _read_into(self, view: memoryview, pos: int, n: int) -> int:
        if not self._reached <= pos <= self._reached + self.gap:
            self._row, self._before = pos, 0
        in_a_row = pos - self._row
        allowed = max(LEAST, self.gap, in_a_row)
        view = view[: max(n, allowed)]
        if self._stream is not None:
            reach = max(self._position + self.gap, self._stream.requested)
            if not self._position <= pos <= reach:
                self._drop_stream()
        if self._stream is None and (self._level < len(self.ahead) - 1 or allowed < self.ahead[-1]):
            data = self._remote.read(pos, pos + len(view), n)
            view[: len(data)] = data
            self._reached = pos + len(data)
            return len(data)
        if self._stream is None:
            ahead = min(self._before + in_a_row, MOST)
            self._stream, self._position = self._remote.stream(pos, ahead=ahead), pos
        while self._position < pos and (data := self._stream.read(pos - self._position)):
            self._position += len(data)
        size = 0
        while size < n and (count := self._stream.readinto(view[size:])):
            size += count
        self._position += size
        self._reached = pos + size
        return size

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
