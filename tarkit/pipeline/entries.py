"""New entries as batches of samples: each has its header, its content in memory or in a file, and its padding."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby

from tarkit.errors import TarkitError
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.samples.validate import NameChecks
from tarkit.streams.ranges import Held, JoinedSource, RangeReader
from tarkit.streams.sink import Sink
from tarkit.streams.source import Source
from tarkit.tables.content import EntryContent, LargeContent
from tarkit.tables.recipe import MalformedRow, Row
from tarkit.tar.header import encode
from tarkit.tar.reader import Raw
from tarkit.tar.writer import GATHERED, PADS

Piece = bytes | LargeContent
NewEntries = tuple[bytes | None, list[Piece], int]
"""Entries of a sample, or some of them: its key, None before the first; their pieces, and the length of these."""

HELD = GATHERED  # bytes: a batch with more takes no further sample, and a sample with more is passed on unfinished


def new_entry(row: Row, content: EntryContent, names: NameChecks, mtime: int | None) -> NewEntries:
    """Return the entry of a row, whose name is checked; `mtime` is its time, None for that of its content.

    Raises:
        TarkitError: `RECIPE:LINE: reason`.
    """
    data, large, size, modified = content
    try:
        names.check(row[0])
        header = encode(row[0], size, mtime=modified if mtime is None else mtime)
    except MalformedRow as error:
        raise TarkitError(f"{row.where}: {error}", error.hint) from None
    except ValueError as error:
        raise TarkitError(f"{row.where}: {error}") from None
    padding = PADS[size % 512]
    return names.last, [header, large or data, padding], len(header) + size + len(padding)


def sample_batches(name: str, entries: Iterator[NewEntries]) -> Iterator[SampleBatch]:
    """Yield entries as samples of a source of this name. Those of one key follow each other."""
    keys: list[bytes] = []  # of the batch: its complete samples, and where they end
    stops: list[int] = []
    held: list[Piece] = []  # the entries of these, and from `cut` on those of the next sample, which begins there
    start = begin = stop = cut = 0
    last: bytes | None = None
    for key, pieces, size in entries:
        if key != last:
            if last is not None and stop > begin:
                keys.append(last)
                stops.append(stop)
                if stop - start > HELD:
                    yield SampleBatch(source_of(name, start, stop, held), start, keys, stops)
                    keys, stops, held, start = [], [], [], stop
                begin, cut = stop, len(held)
            last = key
        held += pieces
        stop += size
        while stop - begin > HELD or (key is None and held):
            if keys:
                yield SampleBatch(source_of(name, start, begin, held[:cut]), start, keys, stops)
            sample = GrowingSample(last, name, begin, held[cut:], entries)
            yield sample
            sample.complete()
            keys, stops, held, cut = [], [], [], 0
            start = begin = stop = sample.stop
            if sample.following is not None:
                last, held, size = sample.following
                key = last
                stop += size
    if last is not None and stop > begin:
        keys.append(last)
        stops.append(stop)
    if keys:
        yield SampleBatch(source_of(name, start, stop, held), start, keys, stops)


class GrowingSample(TarSample):
    """A sample that is passed on before its end is known; its next entries are read while it is written.

    Attributes:
        following: the first entry of the next sample, once this one is complete.
    """

    __slots__ = ("_names", "_new", "_offsets", "following")

    source: _GrowingSource

    def __init__(
        self, key: bytes | None, name: str, start: int, pieces: list[Piece], entries: Iterator[NewEntries]
    ) -> None:
        super().__init__(key, _GrowingSource(name, start, ()), None, start, start)
        self._new = entries
        self._names: list[bytes] = []
        self._offsets = array("q")  # of each entry where it starts, its data start, their size, and where it stops
        self.following: NewEntries | None = None
        self.more = self._read_more
        self._extend(pieces)

    def _read_more(self) -> None:
        """Read entries until there is enough to write, or the sample ends."""
        pieces: list[Piece] = []
        length = 0
        for entry in self._new:
            if entry[0] != self.key:
                self.following = entry
                break
            pieces += entry[1]
            length += entry[2]
            if length > HELD:
                self._extend(pieces)
                return
        self.more = None
        self._extend(pieces)

    def _extend(self, pieces: list[Piece]) -> None:
        start, self.stop = self.stop, self.source.extend(pieces)
        for name, *places, _, _, _ in TarSample(self.key, self.source, None, start, self.stop).raw:
            self._names.append(name)
            self._offsets.extend(places)
        self._named = False

    @property
    def raw(self) -> Sequence[Raw]:
        """The entries so far, which are files: their headers are not kept."""
        places = [iter(self._offsets)] * 4
        return [(name, *four, b"0", b"", -1) for name, four in zip(self._names, zip(*places, strict=True), strict=True)]


class _GrowingSource(JoinedSource):
    """The entries of a sample that grows while it is written."""

    def extend(self, pieces: list[Piece]) -> int:
        """Append pieces; return where they end."""
        parts = _parts(self.name, pieces)
        self.pieces = [*self.pieces, *parts]
        self.size = (self.size or 0) + sum(stop for _, _, stop in parts)
        return self.size

    def release(self, pos: int) -> None:
        """Free the pieces that end before `pos`."""
        pieces = list(self.pieces)
        while pieces and self.start + pieces[0][2] <= pos:
            self.start += pieces.pop(0)[2]
        self.pieces = pieces


class HeldPieces(Held):
    """Pieces in memory, which are written as they are: they are joined only where some of them are read."""

    def __init__(self, name: str, start: int, stop: int, pieces: list[bytes]) -> None:
        super().__init__(name, start, stop)
        self._pieces = pieces

    def read(self, start: int, stop: int) -> bytes:
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0][start - self.start : stop - self.start]

    def send(self, start: int, stop: int, sink: Sink) -> None:
        if (start, stop) == (self.start, self.size):
            sink.writev(self._pieces)
        else:
            sink.write(self.read(start, stop))


def source_of(name: str, start: int, stop: int, pieces: list[Piece]) -> Source:
    """Return a source with the bytes of pieces, from the position `start` on."""
    if set(map(type, pieces)) == {bytes}:
        return HeldPieces(name, start, stop, pieces)  # type: ignore[arg-type]
    return JoinedSource(name, start, _parts(name, pieces))


def _parts(name: str, pieces: list[Piece]) -> list[tuple[RangeReader, int, int]]:
    """Return pieces as ranges of sources: those in memory that follow each other are one."""
    parts: list[tuple[RangeReader, int, int]] = []
    for large, some in groupby(pieces, lambda piece: isinstance(piece, LargeContent)):
        if large:
            parts += [(content, 0, content.size) for content in some if isinstance(content, LargeContent)]
        else:
            data: list[bytes] = list(some)  # type: ignore[arg-type]
            length = sum(map(len, data))
            parts.append((HeldPieces(name, 0, length, data), 0, length))
    return parts
