"""Recipes and tables as an origin of samples: rows of one key are a sample, whose entries are made when it is read."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Union

from tarkit.errors import TarkitError, show
from tarkit.pipeline.run import Run
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.samples.validate import NameChecks
from tarkit.stores.store import StoreOptions
from tarkit.streams.copy import Short
from tarkit.streams.location import Location
from tarkit.streams.ranges import HeldRange, JoinedSource, RangeReader
from tarkit.streams.sink import Sink
from tarkit.streams.source import Source
from tarkit.tables.content import EntryContent
from tarkit.tables.recipe import MalformedRow, Row
from tarkit.tar.header import encode
from tarkit.tar.reader import Raw
from tarkit.tar.writer import PADS

LoadedRows = Iterable[tuple[Row, EntryContent | None]]
Piece = Union[bytes, "OpenedContent"]
MadeEntry = tuple[bytes | None, bytes, Piece, bytes, int]
"""The key of a sample, None before the first; header, payload and padding of an entry, and their length together."""

HELD = 1 << 18  # bytes: a batch with more takes no further sample, and a sample with more is passed on unfinished


@dataclass(eq=False, repr=False)
class TableOrigin:
    """The rows of a recipe or a table as the origin of samples.

    Attributes:
        location: the file with the rows.
        rows: called for each run, with the directory of temporary files; returns the rows with their contents.
        repair: the hint for a row of a sample that ended before.
        mtime: the time of all entries in seconds since 1970; None is that of their contents.
        storage: how URLs of other files are reached that steps read.
    """

    location: Location
    rows: Callable[[str | None], LoadedRows]
    repair: str
    mtime: int | None = 0
    storage: StoreOptions | None = None
    whole = False
    keys_may_repeat = False

    @property
    def locations(self) -> tuple[Location, ...]:
        """The file with the rows."""
        return (self.location,)

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> TableReader:
        """Begin to read for a run; see `Origin`."""
        return TableReader(self, run, tmpdir)


class TableReader(InputReader):
    """Reads the samples of a table in one run; shows progress row by row, as some may take long."""

    draws = True

    def __init__(self, table: TableOrigin, run: Run, tmpdir: str | None) -> None:
        super().__init__(table.locations, run.policy, tmpdir)
        self._table = table
        self._run = run
        self._position = 0  # bytes so far

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples. Rows without a key belong to the sample before them.

        Raises:
            TarkitError: `RECIPE:LINE: reason`.
        """
        name, entries = self._table.location.name, self._entries()
        keys: list[bytes] = []  # of the batch: its complete samples, and where they end
        stops: list[int] = []
        held: list[Piece] = []  # the entries of these, and from `cut` on those of the next sample, which begins there
        start = begin = stop = cut = 0
        last: bytes | None = None
        entry = next(entries, None)
        while entry is not None:
            key, header, payload, padding, size = entry
            if key != last:
                if last is not None and stop > begin:
                    keys.append(last)
                    stops.append(stop)
                    if stop - start > HELD:
                        yield SampleBatch(_source_of(name, start, held), start, keys, stops)
                        keys, stops, held, start = [], [], [], stop
                    begin, cut = stop, len(held)
                last = key
            held += header, payload, padding
            stop += size
            if stop - begin <= HELD and key is not None:
                entry = next(entries, None)
                continue
            if keys:
                yield SampleBatch(_source_of(name, start, held[:cut]), start, keys, stops)
            sample = _GrowingSample(key, name, begin, held[cut:], entries)
            yield sample
            sample.complete()
            keys, stops, held, cut = [], [], [], 0
            start = begin = stop = sample.stop
            entry = sample.following
        if last is not None and stop > begin:
            keys.append(last)
            stops.append(stop)
        if keys:
            yield SampleBatch(_source_of(name, start, held), start, keys, stops)

    def _entries(self) -> Iterator[MadeEntry]:
        """Yield the entries of the rows, each with the key of its sample."""
        names, mtime = NameChecks(self._table.repair), self._table.mtime
        encode_, new, self._position = encode, OpenedContent, 0
        rows = iter(self._table.rows(self.tmpdir))
        for row, content in self._run.draw(rows, lambda: self._position, lambda: names.samples):
            if content is None:
                continue
            data, fd, size, modified, _ = content
            try:
                names.check(row[0])
                header = encode_(row[0], size, mtime=modified if mtime is None else mtime)
            except MalformedRow as error:
                raise TarkitError(f"{row.where}: {error}", error.hint) from None
            except ValueError as error:
                raise TarkitError(f"{row.where}: {error}") from None
            padding = PADS[size % 512]
            length = len(header) + size + len(padding)
            self._position += length
            yield names.last, header, data if fd < 0 else new(content, row), padding, length


class OpenedContent:
    """The content of an entry that is in a file, which is closed with the last reference."""

    def __init__(self, content: EntryContent, row: Row) -> None:
        self.size = content.size
        self._content = content
        self._row = row

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop). Raises TarkitError if there are fewer."""
        data = os.pread(self._content.fd, stop - start, start)
        while len(data) < stop - start:
            more = os.pread(self._content.fd, stop - start - len(data), start + len(data))
            if not more:
                raise self._error("became shorter")
            data += more
        return data

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`. Raises TarkitError if the file was changed."""
        content = self._content
        try:
            sink.copy(content.fd, start, stop)
        except Short:
            raise self._error("became shorter") from None
        after = os.fstat(content.fd)
        if content.written >= 0 and (after.st_size, after.st_mtime_ns) != (content.size, content.written):
            raise self._error("was changed")

    def _error(self, what: str) -> TarkitError:
        return TarkitError(f"{self._row.where}: {show(self._row.value)} {what} while it was read")

    def __del__(self) -> None:
        os.close(self._content.fd)


class _GrowingSample(TarSample):
    """A sample that is passed on before its end is known; its next entries are read while it is written.

    Attributes:
        following: the first entry of the next sample, once this one is complete.
    """

    __slots__ = ("_made", "_names", "_offsets", "following")

    source: _GrowingSource

    def __init__(
        self, key: bytes | None, name: str, start: int, pieces: list[Piece], entries: Iterator[MadeEntry]
    ) -> None:
        super().__init__(key, _GrowingSource(name, start, ()), None, start, start)
        self._made = entries
        self._names: list[bytes] = []
        self._offsets = array("q")  # of each entry where it starts, its data start, their size, and where it stops
        self.following: MadeEntry | None = None
        self.more = self._read_more
        self._extend(pieces)

    def _read_more(self) -> None:
        """Read entries until there is enough to write, or the sample ends."""
        pieces: list[Piece] = []
        length = 0
        for entry in self._made:
            if entry[0] != self.key:
                self.following = entry
                break
            pieces += entry[1:4]
            length += entry[4]
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


def _source_of(name: str, start: int, pieces: list[Piece]) -> Source:
    """Return a source with the bytes of pieces, from the position `start` on."""
    parts = _parts(name, pieces)
    if len(parts) == 1 and isinstance(parts[0][0], HeldRange):
        return HeldRange(name, start, parts[0][0].data)
    return JoinedSource(name, start, parts)


def _parts(name: str, pieces: list[Piece]) -> list[tuple[RangeReader, int, int]]:
    """Return pieces as ranges of sources: those in memory that follow each other are one."""
    parts: list[tuple[RangeReader, int, int]] = []
    for kind, some in groupby(pieces, type):
        if kind is bytes:
            data = b"".join(some)  # type: ignore[arg-type]
            parts.append((HeldRange(name, 0, data), 0, len(data)))
        else:
            parts += [(content, 0, content.size) for content in some if isinstance(content, OpenedContent)]
    return parts
