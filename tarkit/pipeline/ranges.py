"""The files of samples while their order is found: samples become places in them, and samples again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat
from operator import add, eq, itemgetter
from typing import TYPE_CHECKING, TypeGuard
from weakref import WeakKeyDictionary

from tarkit.errors import Unsupported
from tarkit.pipeline.origins import Span, is_object, origins_of, spans_of, split_off_strays, stays, unaltered
from tarkit.pipeline.places import (
    MANY,
    NAMED,
    ROW,
    SHORT,
    SHORT_LIMIT,
    TAIL,
    WITH_ROW,
    Place,
    Range,
    fields_in,
    key_in,
    many_in,
    pack_ranges,
    row_in,
    size_of,
    tail_of,
    with_words,
)
from tarkit.pipeline.stages import joined_row
from tarkit.problems import Policy
from tarkit.samples.fields import parse_fields, with_names
from tarkit.samples.sample import SampleBatch, TarSample, ViewRow, singly
from tarkit.spill.records import SpilledList
from tarkit.streams.cold import ColdFiles, ask_for_range
from tarkit.streams.ranges import AssembledSource, HeldRange, JoinedSource, MovedRange
from tarkit.streams.sink import Sink
from tarkit.streams.source import FileSource, Source, gather
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import fast
from tarkit.tar.header import encode
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.streams.remote import RemoteSource

TOGETHER = 512  # samples that may become one batch
LEAST = 128  # as many are not divided into halves
SMALL = 1 << 13  # maximum of bytes of a sample that is read together with others
READ = 1 << 20  # maximum of bytes that are read together
MOST = 16 << 20  # maximum of bytes of a batch of samples that follow each other
FETCHED = 1 << 16  # bytes of a sample of an object that is copied while it is passed: a later request takes longer
BEHIND = encode(b"behind.others", 0)
"""An entry behind samples in memory, which ends the last one; if that has the same key, it is read alone."""


class RangeList:
    """The inputs and temporary files by number; converts samples to places and back.

    Bytes of sources that do not stay, such as streams, are copied to temporary space, and so are samples of objects
    that are small or in memory, if it `fetches` them; `stored` counts them. If it does not, samples with new names stay
    in their archives too, and get the names when they are made again.
    """

    def __init__(self, tmpdir: str | None, fetches: bool = True) -> None:
        self.tmpdir = tmpdir
        self.fetches = fetches
        self.stored = 0
        self.files: list[Source | TemporaryFile] = []
        self._inputs: list[int] = []  # of each file, the number of the input; -1 of temporary files
        self._names: list[str] = []
        self._numbers: WeakKeyDictionary[Source, tuple[int, int]] = WeakKeyDictionary()  # of an input and of its file
        self._source: Source | None = None
        self._input = 0  # the number of the current input
        self.here = 0  # and of its file, if it stays
        self._spool: tuple[TemporaryFile, EntryWriter, int] | None = None
        self._rows: list[ViewRow] = []  # the first one of each group of rows
        self._groups: dict[ViewRow, int] = {}  # their numbers
        self._cold = ColdFiles()

    def enter(self, source: Source) -> bool:
        """Set the source of the samples that follow, perhaps one of those before; return whether it is new."""
        if source is self._source:
            return False
        self._source, inputs = source, len(self._names)
        self._input, self.here = self._number(source.origin if isinstance(source, AssembledSource) else source)
        return len(self._names) > inputs

    def file_of(self, source: Source) -> int:
        """Return the number of the file of an archive that stays."""
        return self._number(source)[1]

    def _number(self, source: Source) -> tuple[int, int]:
        """Return the numbers of an input and of its file; -1 if it does not stay."""
        if source not in self._numbers:
            number = len(self._names)
            self._names.append(source.name)
            self._numbers[source] = number, self.add_file(source, number) if stays(source) else -1
        return self._numbers[source]

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

    def keep(self, key: bytes | None, spans: Sequence[Span], row: ViewRow | None = None) -> Place:
        """Return the place of ranges of the current input; those of a source that does not stay are copied."""
        source, number = self._source, self._input
        assert source is not None
        if isinstance(source, AssembledSource) and stays(origin := unaltered(source)):
            spans = [(low, high) for span in spans for _, low, high in source.within(*span)]
            source = origin
        if not self.fetches and isinstance(source, AssembledSource) and (named := origins_of(source, spans)):
            parts, fields = named
            kind, tail = self._tail(key, row)
            words = fields.encode("utf-8", "surrogateescape") if fields is not None else b""
            named_ranges = [self._range(*part) for part in parts]
            if key is None:  # entries without a key have the names that they had
                return pack_ranges(named_ranges, kind, tail)
            return pack_ranges(named_ranges, kind | NAMED, with_words(words, tail))
        if not self.fetches and type(source) is JoinedSource and (parts := _parts_that_stay(source, spans)):
            return pack_ranges([self._range(*part) for part in parts], *self._tail(key, row))
        spans = spans or [(0, 0)]  # a sample without fields
        if stays(source) and not (self.fetches and _is_at_hand(source, spans[0][0], spans[-1][1])):
            start, stop = spans[0]
            kind, tail = self._tail(key, row)
            if len(spans) == 1 and stop - start < SHORT_LIMIT:
                return SHORT.pack(kind, self.here, start, stop - start) + tail
            return pack_ranges(((number, self.here, start, start, stop - start) for start, stop in spans), kind, tail)
        _, writer, in_file = self._writer()
        ranges: list[Range] = []
        for start, stop in spans:
            ranges.append((number, in_file, start, writer.position, stop - start))
            writer.append(source, start, stop)
            self.stored += stop - start
        writer.flush()
        return pack_ranges(ranges, *self._tail(key, row))

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
            return pack_ranges(
                ((number, in_file, start, start + shift, stop - start) for start, stop in spans), 0, key or b""
            )

        return (placed(None, strays) if strays else None), placed(sample.key, rest)

    def place(self, key: bytes, parts: Sequence[tuple[Source, int, int]]) -> Place:
        """Return the place of ranges of files or objects."""
        ranges = [self._range(*part) for part in parts]
        if len(ranges) == 1 and ranges[0][-1] < SHORT_LIMIT:
            return SHORT.pack(0, ranges[0][1], ranges[0][2], ranges[0][-1]) + key
        return pack_ranges(ranges, 0, key)

    def _range(self, source: Source, start: int, stop: int) -> Range:
        number, in_file = self._number(source)
        return number, in_file, start, start, stop - start

    def in_memory(self, key: bytes, start: int, size: int, row: ViewRow | None = None) -> Place:
        """Return a place without a file."""
        return pack_ranges([(self._input, 0, start, 0, size)], *self._tail(key, row))

    def _tail(self, key: bytes | None, row: ViewRow | None) -> tuple[int, bytes]:
        """Return the kind and the tail of a place of one range."""
        if row is None:
            return 0, key or b""
        first = row.after(-row.number)
        number = self._groups.get(first)
        if number is None:
            number = self._groups[first] = len(self._rows)
            self._rows.append(first)
        return WITH_ROW, ROW.pack(number, row.number) + (key or b"")

    def row_tails(self, rows: Sequence[ViewRow]) -> Iterator[bytes]:
        """Yield what the places of samples with these rows have before their keys."""
        if isinstance(rows, list):  # of places: in any order, of any groups
            return (self._tail(None, row)[1] for row in rows)
        group, first = ROW.unpack(self._tail(None, rows[0])[1])  # rows of one group that follow each other
        return map(ROW.pack, repeat(group), range(first, first + len(rows)))

    def row_of(self, place: Place) -> ViewRow | None:
        """Return the row of the sample at a place; None if it is not one of a view."""
        found = row_in(place)
        return None if found is None else self._rows[found[0]].after(found[1])

    def moved(self, place: Place, file: int, offset: int) -> Place:
        """Return the place of a sample that was copied as one range to `offset` of the temporary file `file`.

        A gathered sample keeps the position of its first entry.
        """
        number, _, start, _, _ = self.ranges(place)[0]
        return pack_ranges([(number, file, start, offset, size_of(place))], place[0] & ~MANY, tail_of(place))

    def ranges(self, place: Place) -> list[Range]:
        """Return the ranges of a place."""
        if place[0] & MANY:
            return many_in(place)
        _, file, start, size = SHORT.unpack_from(place)
        return [(self._inputs[file], file, start, start, size)]

    def input_of(self, place: Place) -> int:
        """Return the number of the input of a place."""
        return self.ranges(place)[0][0]

    def joined(self, places: Sequence[Place]) -> Place:
        """Return one place of several, with the key of the first, and the row of the one that has values."""
        first = places[0]
        if len(places) == 1:
            return first
        if any(place[0] & NAMED for place in places):
            raise Unsupported("parts of a sample with new names are joined: a view cannot say that")
        row = joined_row(map(self.row_of, places), self._names[self.input_of(first)])
        return pack_ranges([item for place in places for item in self.ranges(place)], *self._tail(key_in(first), row))

    def sample(self, place: Place, blob: bytes | None = None) -> TarSample:
        """Return the sample at a place; `blob` has its bytes if they are in memory."""
        ranges = self.in_sources(place, blob)
        source, start, stop = ranges[0]
        if len(ranges) > 1:
            source = JoinedSource(source.name, start, ranges)
            stop = source.size or 0
        sample = TarSample(key_in(place), source, None, start, stop)
        if place[0] & NAMED:
            words = fields_in(place)
            keep = parse_fields(words) if words else None
            named = with_names(sample, key_in(place), keep, Policy(allow=("all",)))
            assert named is not None
            sample = named
        sample.row = self.row_of(place)
        return sample

    def batches(self, places: Sequence[Place], read: bool = True, together: int = TOGETHER) -> Iterator[SampleBatch]:
        """Yield the samples at places, together if they follow each other, or are small: then their bytes are read.

        Without `read` they come together as they are, and nothing is read. At most `together` are in a batch.
        """
        groups = (places[at : at + together] for at in range(0, len(places), together))
        for group in self._cold.ahead(groups, self._ask_for, 1) if read else groups:
            yield from self._together(group, read)

    def _ask_for(self, places: Sequence[Place]) -> int:
        """Ask the system for samples of files before their turn."""
        ranges = (item for place in places for item in self.ranges(place))
        return sum(ask_for_range(self.files[file], start, start + size) for _, file, _, start, size in ranges)

    def _together(self, places: Sequence[Place], read: bool) -> Iterator[SampleBatch]:
        """Yield the samples at some places as one batch, as two halves, or one by one."""
        whole, kinds = places, set(map(itemgetter(0), places))
        if kinds not in ({0}, {WITH_ROW}):
            yield from self._halves(places, read) if len(places) > LEAST else map(self.sample, places)
            return
        rows = None
        if kinds == {WITH_ROW}:
            pairs = map(ROW.unpack_from, places, repeat(TAIL))
            rows = [self._rows[group].after(number) for group, number in pairs]
            places = [place[:TAIL] + place[TAIL + ROW.size :] for place in places]
        _, numbers, starts, sizes = zip(*map(SHORT.unpack_from, places), strict=True)
        keys = [place[TAIL:] for place in places]
        stops = tuple(map(add, starts, sizes))
        files = [self.files[number] for number in numbers]
        one = files[0] if len(set(numbers)) == 1 else None
        total, repeated = sum(sizes), any(map(eq, keys, islice(keys, 1, None)))
        if one is not None and not repeated and total <= MOST and all(map(eq, stops, islice(starts, 1, None))):
            yield _with_rows(SampleBatch(one, starts[0], keys, stops), rows)
        elif not repeated and not read and len(places) > 1:
            joined = JoinedSource(files[-1].name, 0, list(zip(files, starts, stops, strict=True)))
            batch = SampleBatch(joined, 0, keys, list(accumulate(sizes)), places=list(zip(files, starts, strict=True)))
            yield _with_rows(batch, rows)
        elif not repeated and max(sizes) <= SMALL and total <= READ and _are_files(files):
            yield _with_rows(gathered(keys, files, starts, sizes), rows)
        elif len(places) > LEAST:
            yield from self._halves(whole, read)
        else:
            yield from map(_with_row, map(TarSample, keys, files, repeat(None), starts, stops), rows or repeat(None))

    def _halves(self, places: Sequence[Place], read: bool) -> Iterator[SampleBatch]:
        half = len(places) // 2
        yield from self._together(places[:half], read)
        yield from self._together(places[half:], read)

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
        return any(map(is_object, self.files))

    def remote_ranges(self, places: Iterable[Place]) -> Iterator[tuple[RemoteSource, int, int]]:
        """Yield the ranges of places that are in objects of stores."""
        for place in places:
            for source, start, stop in self.in_sources(place):
                if is_object(source):
                    yield source, start, stop

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
        joined = TarSample(sample.key, source, None, source.start, source.size or 0)
        joined.row = sample.row
        return joined

    def _writer(self) -> tuple[TemporaryFile, EntryWriter, int]:
        if self._spool is None:
            scratch = TemporaryFile(self.tmpdir)
            self._spool = scratch, EntryWriter(Sink(scratch.fd, scratch.name)), self.add_file(scratch)
        return self._spool


def gathered(
    keys: Sequence[bytes], files: Sequence[FileSource], starts: Sequence[int], sizes: Sequence[int]
) -> SampleBatch:
    """Return samples of files as one batch, whose bytes are read. A header behind them ends the last one."""
    data = HeldRange(files[-1].name, 0, gather(files, starts, sizes, fast.gather) + BEHIND)
    return SampleBatch(data, 0, keys, list(accumulate(sizes)), places=list(zip(files, starts, strict=True)))


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
            self._places.append(self._ranges.keep(sample.key, spans_of(sample.entries), sample.row))
        for place in self._places:
            sample = self._ranges.sample(place)
            sample.key = sample.key or None
            yield sample


def _parts_that_stay(source: JoinedSource, spans: Iterable[Span]) -> list[tuple[Source, int, int]]:
    """Return the ranges of archives that spans of a sample of several are; none if they are not all in archives."""
    parts = [part for span in spans for part in source.within(*span)]
    found = [(piece, start, stop) for piece, start, stop in parts if isinstance(piece, Source) and stays(piece)]
    return found if len(found) == len(parts) else []


def _is_at_hand(source: Source, start: int, stop: int) -> bool:
    """Return whether a range of an object is short, or in memory, so that a copy takes less than another request."""
    return is_object(source) and (stop - start <= FETCHED or source.holds(start, stop))


def _are_files(files: Iterable[Source | TemporaryFile]) -> TypeGuard[Sequence[FileSource]]:
    return all(isinstance(file, FileSource) for file in set(files))


def _with_rows(batch: SampleBatch, rows: Sequence[ViewRow | None] | None) -> SampleBatch:
    batch.rows = rows  # type: ignore[assignment]
    return batch


def _with_row(sample: TarSample, row: ViewRow | None) -> TarSample:
    sample.row = row
    return sample
