"""The byte ranges of samples while their order is found: a compact list for each, and samples made of it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat
from operator import add, eq, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, TypeGuard
from weakref import WeakKeyDictionary

from tarkit.samples.sample import SampleBatch, TarSample, key_of, singly
from tarkit.spill.records import SpilledList
from tarkit.streams.ranges import AssembledSource, Held, HeldRange, JoinedSource, MovedRange
from tarkit.streams.sink import Sink
from tarkit.streams.source import FileSource, Source, WindowSource, gather
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import fast
from tarkit.tar.block import HARD_LINK
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.stores.reading import RangeRequest

Span = tuple[int, int]  # start and stop in the input
Place = bytes
"""Where a sample is. Of one range of a file of input: `SHORT` with 0, the file, start and length; then the key. Of any
ranges: `LONG` with 1 and their number; for each the input, the file, where it began in the input, its offset in the
file and its length; then the key."""

SHORT = Struct(">BIQI")
SHORT_LIMIT = 1 << 32
"""Bytes of a range that is too long for `SHORT`."""

_LONG = Struct(">BI")
_RANGE = Struct(">IIQQQ")
_FIRST = Struct(">xI4xI")  # the number of ranges, and the file of the first
_HEAD, _EACH, _KEY = _LONG.size, _RANGE.size, SHORT.size

TOGETHER = 512  # samples that may become one batch
LEAST = 128  # as many are not divided into halves
SMALL = 1 << 13  # maximum of bytes of a sample that is read together with others
READ = 1 << 20  # maximum of bytes that are read together
MOST = 16 << 20  # maximum of bytes of a batch of samples that follow each other
FETCHED = 1 << 16  # bytes of a sample of an object that is copied while it is passed: a later request takes longer

Range = tuple[int, int, int, int, int]  # input, file, start, offset, length


def split_off_strays(sample: TarSample) -> tuple[list[Span], list[Span]]:
    """Return the ranges of entries without a key before or after all others, and the ranges of the rest.

    They stay in the sample where a hard link needs that.
    """
    if sample.plain:
        return [], [(sample.start, sample.stop)]
    named = sample.entries
    keyed = [number for number, entry in enumerate(named) if key_of(entry) is not None]
    first, last = (keyed[0], keyed[-1]) if keyed else (len(named), len(named))
    strays, rest = [*named[:first], *named[last + 1 :]], named[first : last + 1]
    if _linked(strays, rest):
        return [], spans_of(named)
    return spans_of(strays), spans_of(rest)


def _linked(strays: Sequence[Entry], rest: Sequence[Entry]) -> bool:
    """Return whether a hard link among these entries has its target among the others."""
    pairs = (strays, rest), (rest, strays)
    return any(
        entry.type == HARD_LINK and any(entry.link == other.name for other in b) for a, b in pairs for entry in a
    )


def spans_of(entries: Iterable[Entry]) -> list[Span]:
    """Return the ranges of entries; adjacent ones are one range."""
    spans: list[Span] = []
    for entry in entries:
        if spans and spans[-1][1] == entry.start:
            spans[-1] = (spans[-1][0], entry.stop)
        else:
            spans.append((entry.start, entry.stop))
    return spans


def stays(source: Source) -> bool:
    """Return whether the bytes of a source can be read at any time and take no memory: those of files and objects."""
    return source.seekable and not isinstance(source, Held)


def unaltered(source: Source) -> Source:
    """Return the archive if a source consists of ranges of it alone, so that no header was changed; else the source."""
    if isinstance(source, AssembledSource) and all(piece is source.origin for piece, _, _ in source.pieces):
        return source.origin
    return source


def is_object(source: Source) -> bool:
    """Return whether a source is an object of a store, read by ranges."""
    return isinstance(source, WindowSource) and source.url is not None


class RangeList:
    """The inputs and temporary files by number; converts samples to places and back.

    Bytes of sources that do not stay, such as streams, are copied to temporary space, and so are those of small samples
    of objects; `stored` counts them.
    """

    def __init__(self, tmpdir: str | None) -> None:
        self.tmpdir = tmpdir
        self.stored = 0
        self.files: list[Source | TemporaryFile] = []
        self._inputs: list[int] = []  # of each file, the number of the input; -1 of temporary files
        self._names: list[str] = []
        self._numbers: WeakKeyDictionary[Source, tuple[int, int]] = WeakKeyDictionary()  # of an input and of its file
        self._source: Source | None = None
        self._input = 0  # the number of the current input
        self.here = 0  # and of its file, if it stays
        self._spool: tuple[TemporaryFile, EntryWriter, int] | None = None

    def enter(self, source: Source) -> bool:
        """Set the source of the samples that follow, perhaps one of those before; return whether it is new."""
        if source is self._source:
            return False
        self._source = source
        origin = source.origin if isinstance(source, AssembledSource) else source
        new = origin not in self._numbers
        if new:
            number = len(self._names)
            self._names.append(origin.name)
            self._numbers[origin] = number, self.add_file(origin, number) if stays(origin) else -1
        self._input, self.here = self._numbers[origin]
        return new

    def unchanged(self) -> None:
        """Raise TarkitError if a file was written to since it was opened: samples may have moved."""
        for file in self.files:
            if isinstance(file, FileSource):
                file.unchanged()

    def add_file(self, file: Source | TemporaryFile, number: int = -1) -> int:
        """Add a file that has ranges, and return its number; `number` is that of the input if it is all of it."""
        self.files.append(file)
        self._inputs.append(number)
        return len(self.files) - 1

    def keep(self, key: bytes | None, spans: Sequence[Span]) -> Place:
        """Return the place of ranges of the current input; those of a source that does not stay are copied."""
        source, number = self._source, self._input
        assert source is not None
        if isinstance(source, AssembledSource) and stays(origin := unaltered(source)):
            spans = [(low, high) for span in spans for _, low, high in source.within(*span)]
            source = origin
        spans = spans or [(0, 0)]  # a sample without fields
        if stays(source) and not (is_object(source) and spans[-1][1] - spans[0][0] <= FETCHED):
            start, stop = spans[0]
            if len(spans) == 1 and stop - start < SHORT_LIMIT:
                return SHORT.pack(0, self.here, start, stop - start) + (key or b"")
            return _long(((number, self.here, start, start, stop - start) for start, stop in spans), key)
        _, writer, in_file = self._writer()
        ranges: list[Range] = []
        for start, stop in spans:
            ranges.append((number, in_file, start, writer.position, stop - start))
            writer.append(source, start, stop)
            self.stored += stop - start
        writer.flush()
        return _long(ranges, key)

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
        number, shift = self._input, base - sample.start

        def placed(key: bytes | None, spans: list[Span]) -> Place:
            return _long(((number, in_file, start, start + shift, stop - start) for start, stop in spans), key)

        return (placed(None, strays) if strays else None), placed(sample.key, rest)

    def in_memory(self, key: bytes, start: int, size: int) -> Place:
        """Return a place without a file."""
        return _long([(self._input, 0, start, 0, size)], key)

    def moved(self, place: Place, file: int, offset: int) -> Place:
        """Return the place of a sample that was copied as one range to `offset` of the temporary file `file`.

        A gathered sample keeps the position of its first entry.
        """
        number, _, start, _, _ = self.ranges(place)[0]
        return _long([(number, file, start, offset, size_of(place))], key_in(place))

    def ranges(self, place: Place) -> list[Range]:
        """Return the ranges of a place."""
        if place[0]:
            return list(_RANGE.iter_unpack(place[_HEAD : _keyed(place)]))
        _, file, start, size = SHORT.unpack_from(place)
        return [(self._inputs[file], file, start, start, size)]

    def input_of(self, place: Place) -> int:
        """Return the number of the input of a place."""
        return self.ranges(place)[0][0]

    def joined(self, places: Sequence[Place]) -> Place:
        """Return one place of several, with the key of the first."""
        return _long([item for place in places for item in self.ranges(place)], key_in(places[0]))

    def sample(self, place: Place, blob: bytes | None = None) -> TarSample:
        """Return the sample at a place; `blob` has its bytes if they are in memory."""
        ranges = self.in_sources(place, blob)
        source, start, stop = ranges[0]
        if len(ranges) > 1:
            source = JoinedSource(source.name, start, ranges)
            stop = source.size or 0
        return TarSample(key_in(place), source, None, start, stop)

    def batches(self, places: Sequence[Place]) -> Iterator[SampleBatch]:
        """Yield the samples at places, together if they follow each other, or are small: then their bytes are read."""
        for at in range(0, len(places), TOGETHER):
            yield from self._together(places[at : at + TOGETHER])

    def _together(self, places: Sequence[Place]) -> Iterator[SampleBatch]:
        """Yield the samples at some places as one batch, as two halves, or one by one."""
        if any(map(itemgetter(0), places)):
            yield from self._halves(places) if len(places) > LEAST else map(self.sample, places)
            return
        _, numbers, starts, sizes = zip(*map(SHORT.unpack_from, places), strict=True)
        keys = [place[_KEY:] for place in places]
        stops = tuple(map(add, starts, sizes))
        files = [self.files[number] for number in numbers]
        one = files[0] if len(set(numbers)) == 1 else None
        total, repeated = sum(sizes), any(map(eq, keys, islice(keys, 1, None)))
        if one is not None and not repeated and total <= MOST and all(map(eq, stops, islice(starts, 1, None))):
            yield SampleBatch(one, starts[0], keys, stops)
        elif not repeated and max(sizes) <= SMALL and total <= READ and _are_files(files):
            data = HeldRange(files[-1].name, 0, gather(files, starts, sizes, fast.gather))
            yield SampleBatch(data, 0, keys, list(accumulate(sizes)), places=list(zip(files, starts, strict=True)))
        elif len(places) > LEAST:
            yield from self._halves(places)
        else:
            yield from map(TarSample, keys, files, repeat(None), starts, stops)

    def _halves(self, places: Sequence[Place]) -> Iterator[SampleBatch]:
        half = len(places) // 2
        yield from self._together(places[:half])
        yield from self._together(places[half:])

    def in_sources(self, place: Place, blob: bytes | None = None) -> list[tuple[Source, int, int]]:
        """Return the ranges of a place with their sources; `blob` has their bytes if they are in memory."""
        parts: list[tuple[Source, int, int]] = []
        held = 0
        for number, in_file, start, offset, size in self.ranges(place):
            source: Source | TemporaryFile
            if blob is not None:
                source = HeldRange(self._names[number], start, blob[held : held + size])
                held += size
            elif isinstance(source := self.files[in_file], TemporaryFile):
                source = MovedRange(source, self._names[number], start, start + size, offset)
            parts.append((source, start, start + size))
        return parts

    @property
    def remote(self) -> bool:
        """Whether samples are in objects of stores."""
        return any(isinstance(file, WindowSource) and file.url is not None for file in self.files)

    def request(self, place: Place) -> list[RangeRequest] | None:
        """Begin to fetch the ranges of a place; None if they are not all in objects of stores."""
        ranges = self.in_sources(place)
        if not all(isinstance(file, WindowSource) and file.url is not None for file, _, _ in ranges):
            return None
        requests = (file.request(start, stop) for file, start, stop in ranges if isinstance(file, WindowSource))
        return [request for request in requests if request is not None]

    def free(self, place: Place) -> None:
        """Free the windows and connections of the objects that have the ranges of a place."""
        for file, _, _ in self.in_sources(place):
            if isinstance(file, WindowSource) and file.url is not None:
                file.close()

    def entries(self, place: Place) -> Iterator[tuple[Source, Entry]]:
        """Yield the entries at a place, each with its source."""
        for source, start, stop in self.in_sources(place):
            for entry in TarSample(None, source, None, start, stop).entries:
                yield source, entry

    def behind(self, front: Place, sample: TarSample) -> TarSample:
        """Return the sample with the bytes of a place in front of it."""
        ranges = [*self.in_sources(front), (sample.source, sample.start, sample.stop)]
        # The name of the sample's own archive: the bytes in front may be of another one, and --rekey uses the name.
        source = JoinedSource(sample.source.name, ranges[0][1], ranges)
        return TarSample(sample.key, source, None, source.start, source.size or 0)

    def _writer(self) -> tuple[TemporaryFile, EntryWriter, int]:
        if self._spool is None:
            scratch = TemporaryFile(self.tmpdir)
            self._spool = scratch, EntryWriter(Sink(scratch.fd, scratch.name)), self.add_file(scratch)
        return self._spool


class KeptSamples:
    """Samples that can be read several times: they are kept when the first is requested.

    Those of files stay there; other samples go to a temporary file.
    """

    def __init__(self, batches: Iterator[SampleBatch], tmpdir: str | None) -> None:
        self._batches = batches
        self._ranges = RangeList(tmpdir)
        self._places: SpilledList[bytes] = SpilledList(tmpdir)

    def batches(self) -> Iterator[TarSample]:
        """Yield the samples."""
        for sample in singly(self._batches):
            self._ranges.enter(sample.source)
            self._places.append(self._ranges.keep(sample.key, spans_of(sample.entries)))
        for place in self._places:
            sample = self._ranges.sample(place)
            sample.key = sample.key or None
            yield sample


def _are_files(files: Iterable[Source | TemporaryFile]) -> TypeGuard[Sequence[FileSource]]:
    return all(isinstance(file, FileSource) for file in set(files))


def _long(ranges: Iterable[Range], key: bytes | None) -> Place:
    """Return the place of any ranges."""
    packed = [_RANGE.pack(*item) for item in ranges]
    return b"".join([_LONG.pack(1, len(packed)), *packed, key or b""])


def _keyed(place: Place) -> int:
    """Return where the key begins in a place."""
    return _HEAD + _EACH * int(_LONG.unpack_from(place)[1]) if place[0] else _KEY


def key_in(place: Place) -> bytes:
    """Return the key of the sample at a place."""
    return place[_keyed(place) :]


def size_of(place: Place) -> int:
    """Return the number of bytes at a place."""
    if place[0]:
        return sum(size for *_, size in _RANGE.iter_unpack(place[_HEAD : _keyed(place)]))
    return int(SHORT.unpack_from(place)[3])


def file_of(place: Place) -> int | None:
    """Return the number of the file of a place of one range that is not in a file of input; None for others."""
    count, file = _FIRST.unpack_from(place) if place[0] else (0, 0)
    return file if count == 1 else None


def will_need(source: Source) -> None:
    """Ask the system to read a whole file ahead."""
    if isinstance(source, FileSource):
        source.will_need()
