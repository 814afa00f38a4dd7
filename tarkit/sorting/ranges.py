"""The byte ranges of samples while their order is found: a compact list for each, and samples made of it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from tarkit.samples.sample import TarSample, key_of
from tarkit.spill.records import SpilledList
from tarkit.streams.ranges import HeldRange, JoinedSource, MovedRange
from tarkit.streams.sink import Sink
from tarkit.streams.source import FileSource, RequestedRange, Source, WindowSource
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.reader import Entry, TarReader
from tarkit.tar.writer import EntryWriter

Span = tuple[int, int]  # start and stop in the input
Place = bytes
"""The number of ranges; for each the input, the file, where it began in the input, its offset in the file and its
length; then the key."""

pack_one = Struct("<IIIQQQ").pack  # 1, input, file, start, offset, length: the place without its key
_COUNT = Struct("<I")
_RANGE = Struct("<IIQQQ")
_ONE = Struct("<IIIQQQ")
_HEAD, _EACH, _KEY = _COUNT.size, _RANGE.size, _ONE.size
_unpack_one = _ONE.unpack_from  # of the first range, whatever follows it


class PlacedSample(TarSample):
    """A sample that can be read at any time; its entries are read again when they are needed."""

    __slots__ = ()

    @property
    def entries(self) -> list[Entry]:
        if not self._named:
            found = []
            for entry in TarReader(self.source, self.start) if self.start < self.stop else ():
                found.append(entry)
                if entry.stop >= self.stop:
                    break
            self.entries = found
        return self._entries  # type: ignore[return-value]

    @entries.setter
    def entries(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._named = True

    @property
    def raw(self) -> list[Entry]:
        """The entries, in order."""
        return self.entries

    @property
    def content(self) -> int:
        return sum(entry.size for entry in self.entries)


def split_off_strays(sample: TarSample) -> tuple[list[Span], list[Span]]:
    """Return the ranges of entries without a key before or after all others, and the ranges of the rest."""
    if sample.plain:
        return [], [(sample.start, sample.stop)]
    named = sample.entries
    keyed = [number for number, entry in enumerate(named) if key_of(entry) is not None]
    first, last = (keyed[0], keyed[-1]) if keyed else (len(named), len(named))
    return spans_of([*named[:first], *named[last + 1 :]]), spans_of(named[first : last + 1])


def spans_of(entries: Iterable[Entry]) -> list[Span]:
    """Return the ranges of entries; adjacent ones are one range."""
    spans: list[Span] = []
    for entry in entries:
        if spans and spans[-1][1] == entry.start:
            spans[-1] = (spans[-1][0], entry.stop)
        else:
            spans.append((entry.start, entry.stop))
    return spans


class RangeList:
    """The inputs and temporary files by number; converts samples to places and back.

    Bytes of streams are copied to temporary space; `stored` counts them.
    """

    def __init__(self, tmpdir: str | None) -> None:
        self.tmpdir = tmpdir
        self.stored = 0
        self.files: list[Source | TemporaryFile] = []
        self._names: list[str] = []
        self._source: Source | None = None
        self._file = 0
        self._spool: tuple[TemporaryFile, EntryWriter, int] | None = None

    def enter(self, source: Source) -> None:
        """Set the source of the samples that follow."""
        if source is not self._source:
            self._source = source
            self._names.append(source.name)
            if source.seekable:
                self._file = self.add_file(source)

    @property
    def here(self) -> tuple[int, int]:
        """The numbers of the current input and of its file."""
        return len(self._names) - 1, self._file

    def unchanged(self) -> None:
        """Raise TarkitError if a file was written to since it was opened: samples may have moved."""
        for file in self.files:
            if isinstance(file, FileSource):
                file.unchanged()

    def add_file(self, file: Source | TemporaryFile) -> int:
        """Add a file that has ranges, and return its number."""
        self.files.append(file)
        return len(self.files) - 1

    def drop_file(self, number: int) -> None:
        """Close a temporary file that no place refers to any more."""
        scratch = self.files[number]
        assert isinstance(scratch, TemporaryFile)
        scratch.close()

    def keep(self, key: bytes | None, spans: Sequence[Span]) -> Place:
        """Return the place of ranges of the current input; those of a stream are copied to temporary space."""
        source, number = self._source, len(self._names) - 1
        assert source is not None
        spans = spans or [(0, 0)]  # a sample without fields
        if source.seekable:
            if len(spans) == 1:
                start, stop = spans[0]
                return _ONE.pack(1, number, self._file, start, start, stop - start) + (key or b"")
            ranges = [_RANGE.pack(number, self._file, start, start, stop - start) for start, stop in spans]
            return b"".join([_COUNT.pack(len(ranges)), *ranges, key or b""])
        _, writer, in_file = self._writer()
        ranges = []
        for start, stop in spans:
            ranges.append(_RANGE.pack(number, in_file, start, writer.position, stop - start))
            writer.append(source, start, stop)
            self.stored += stop - start
        writer.flush()
        return b"".join([_COUNT.pack(len(ranges)), *ranges, key or b""])

    def store(self, place: Place, blob: bytes) -> Place:
        """Write the bytes of a sample to temporary space, and return its place there. `flush` completes that."""
        _, writer, in_file = self._writer()
        offset = writer.position
        writer.raw((blob,), len(blob))
        self.stored += len(blob)
        return self.moved(place, in_file, offset)

    def flush(self) -> None:
        """Write buffered bytes, so that all that was stored can be read."""
        if self._spool is not None:
            self._spool[1].flush()

    def absorb(self, sample: TarSample) -> tuple[Place | None, Place]:
        """Read a sample of a stream to its end; return the places of its entries without a key, and of the rest."""
        _, writer, in_file = self._writer()
        base = writer.position
        sample.write(writer)
        writer.flush()
        self.stored += writer.position - base
        strays, rest = split_off_strays(sample)
        number, shift = len(self._names) - 1, base - sample.start

        def placed(key: bytes | None, spans: list[Span]) -> Place:
            ranges = [_RANGE.pack(number, in_file, start, start + shift, stop - start) for start, stop in spans]
            return b"".join([_COUNT.pack(len(ranges)), *ranges, key or b""])

        return (placed(None, strays) if strays else None), placed(sample.key, rest)

    def in_memory(self, key: bytes, start: int, size: int) -> Place:
        """Return a place without a file."""
        return _ONE.pack(1, len(self._names) - 1, 0, start, 0, size) + key

    def moved(self, place: Place, file: int, offset: int) -> Place:
        """Return the place of a sample that was copied as one range to `offset` of the temporary file `file`.

        A gathered sample keeps the position of its first entry.
        """
        _, number, _, start, _, _ = _unpack_one(place)
        return _ONE.pack(1, number, file, start, offset, size_of(place)) + key_in(place)

    def sample(self, place: Place, blob: bytes | None = None) -> TarSample:
        """Return the sample at a place; `blob` has its bytes if they are in memory."""
        count, number, in_file, start, offset, size = _unpack_one(place)
        if count > 1:
            pieces = self.pieces(place, blob)
            whole = JoinedSource(pieces[0][0].name, pieces[0][1], pieces)
            return PlacedSample(key_in(place), whole, (), whole.start, whole.size or 0)
        source: Source | TemporaryFile
        source = self.files[in_file] if blob is None else HeldRange(self._names[number], start, blob)
        if isinstance(source, TemporaryFile):
            source = MovedRange(source, self._names[number], start, start + size, offset)
        return PlacedSample(place[_KEY:], source, (), start, start + size)

    def pieces(self, place: Place, blob: bytes | None = None) -> list[tuple[Source, int, int]]:
        """Return the ranges of a place; `blob` has their bytes if they are in memory."""
        found: list[tuple[Source, int, int]] = []
        (count,) = _COUNT.unpack_from(place)
        held = 0
        for at in range(_HEAD, _HEAD + count * _EACH, _EACH):
            number, in_file, start, offset, size = _RANGE.unpack_from(place, at)
            file = self.files[in_file]
            if blob is not None:
                file = HeldRange(self._names[number], start, blob[held : held + size])
                held += size
            elif isinstance(file, TemporaryFile):
                file = MovedRange(file, self._names[number], start, start + size, offset)
            found.append((file, start, start + size))
        return found

    @property
    def remote(self) -> bool:
        """Whether samples are in objects of stores."""
        return any(isinstance(file, WindowSource) and file.url is not None for file in self.files)

    def request(self, place: Place) -> list[RequestedRange] | None:
        """Begin to fetch the ranges of a place; None if they are not all in objects of stores."""
        pieces = self.pieces(place)
        if not all(isinstance(file, WindowSource) and file.url is not None for file, _, _ in pieces):
            return None
        requests = (file.request(start, stop) for file, start, stop in pieces if isinstance(file, WindowSource))
        return [request for request in requests if request is not None]

    def free(self, place: Place) -> None:
        """Free the windows and connections of the objects that have the ranges of a place."""
        for file, _, _ in self.pieces(place):
            if isinstance(file, WindowSource) and file.url is not None:
                file.close()

    def entries(self, place: Place) -> Iterator[tuple[Source, Entry]]:
        """Yield the entries at a place, each with its source."""
        for source, start, stop in self.pieces(place):
            for entry in PlacedSample(None, source, (), start, stop).entries:
                yield source, entry

    def behind(self, front: Place, sample: TarSample) -> TarSample:
        """Return the sample with the bytes of a place in front of it."""
        pieces = [*self.pieces(front), (sample.source, sample.start, sample.stop)]
        # The name of the sample's own archive: the bytes in front may be of another one, and --rekey uses the name.
        source = JoinedSource(sample.source.name, pieces[0][1], pieces)
        return PlacedSample(sample.key, source, (), source.start, source.size or 0)

    def _writer(self) -> tuple[TemporaryFile, EntryWriter, int]:
        if self._spool is None:
            scratch = TemporaryFile(self.tmpdir)
            self._spool = scratch, EntryWriter(Sink(scratch.fd, scratch.name)), self.add_file(scratch)
        return self._spool


class KeptSamples:
    """Samples that can be read several times: they are kept when the first is requested.

    Those of files stay there; other samples go to a temporary file.
    """

    def __init__(self, samples: Iterator[TarSample], tmpdir: str | None) -> None:
        self._samples = samples
        self._ranges = RangeList(tmpdir)
        self._places: SpilledList[bytes] = SpilledList(tmpdir)

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples."""
        for sample in self._samples:
            self._ranges.enter(sample.source)
            self._places.append(self._ranges.keep(sample.key, spans_of(sample.entries)))
        for place in self._places:
            sample = self._ranges.sample(place)
            sample.key = sample.key or None
            yield sample


def key_in(place: Place) -> bytes:
    """Return the key of the sample at a place."""
    (count,) = _COUNT.unpack_from(place)
    return place[_HEAD + count * _EACH :]


def input_of(place: Place) -> int:
    """Return the number of the input of a place."""
    return int(_unpack_one(place)[1])


def size_of(place: Place) -> int:
    """Return the number of bytes at a place."""
    (count,) = _COUNT.unpack_from(place)
    return sum(size for *_, size in _RANGE.iter_unpack(place[_HEAD : _HEAD + count * _EACH]))


def joined(places: Sequence[Place]) -> Place:
    """Return one place of several, with the key of the first."""
    ranges = [place[_HEAD : len(place) - len(key_in(place))] for place in places]
    return b"".join([_COUNT.pack(sum(map(len, ranges)) // _EACH), *ranges, key_in(places[0])])


def will_need(source: Source) -> None:
    """Ask the system to read a whole file ahead."""
    if isinstance(source, FileSource):
        source.will_need()
