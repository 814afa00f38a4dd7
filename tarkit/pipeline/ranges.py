"""The byte ranges of samples while their order is found: a compact list for each, and samples made of it again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, repeat
from operator import add, eq, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, TypeGuard
from weakref import WeakKeyDictionary

from tarkit.errors import Unsupported, Usage
from tarkit.pipeline.stages import joined_row
from tarkit.problems import Policy
from tarkit.samples.fields import parse_fields, with_names
from tarkit.samples.sample import SampleBatch, TarSample, ViewRow, key_of, singly, split_name
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
"""Where a sample is. Of one range of a file of input: `SHORT` with the kind, the file, start and length; then the tail.
Of any ranges: `LONG` with the kind and their number; for each the input, the file, where it began in the input, its
offset in the file and its length; then the tail. The kind has the bits MANY, WITH_ROW and NAMED. The tail is the key,
after `ROW` if the sample is one of a view: the number of the rows that are read together, and of the row among them.
Before them are the words of -f for its fields, after their length, if it is NAMED: its entries get new names."""

SHORT = Struct(">BIQI")
SHORT_LIMIT = 1 << 32
"""Bytes of a range that is too long for `SHORT`."""

MANY, WITH_ROW, NAMED = 1, 2, 4
ROW = Struct(">IQ")
_WORDS = Struct(">I")  # the length of the fields of a sample whose entries have new names
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


def origins_of(
    source: Source, spans: Iterable[Span], entries: Iterable[Entry] | None = None
) -> tuple[list[tuple[Source, int, int]], str | None] | None:
    """Return the ranges of archives that entries came from, and their fields in the words of -f if they are renamed.

    Args:
        source: the source of the entries.
        spans: their ranges in it.
        entries: themselves, if they are known.

    Returns:
        None if an entry has new content, or a range cannot be told.

    Raises:
        Unsupported: two fields of one name, of which one is renamed.
    """
    ranges: list[tuple[Source, int, int]] = []
    words: list[bytes] = []
    pairs: list[tuple[bytes, bytes]] = []
    renamed = False
    for entry in entries if entries is not None else [each for span in spans for each in _entries(source, span)]:
        origin = _origin_of(source, entry)
        if origin is None or not stays(origin[0]):
            return None
        archive, before = origin
        if ranges and ranges[-1][0] is archive and ranges[-1][2] == before.start:
            ranges[-1] = archive, ranges[-1][1], before.stop
        else:
            ranges.append((archive, before.start, before.stop))
        old, new = split_name(before.name), split_name(entry.name)
        if old is not None and new is not None:
            pairs.append((old[1], new[1]))
            words.append(old[1] if old[1] == new[1] else b"%b:%b" % (new[1], old[1]))
            renamed = renamed or old[1] != new[1]
    if not ranges:
        return None
    if not renamed:
        return ranges, None
    text = os.fsdecode(b" ".join(words))
    if len(words) > len(set(words)) or not _says(text, pairs):
        raise Unsupported(
            f"{source.name}: a field is there twice, or has a name that -f cannot say: a view cannot rename it"
        )
    return ranges, text


def _says(words: str, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the words of -f mean these pairs of an old and a new name."""
    try:
        choices = parse_fields(words)
    except Usage:
        return False
    return [(choice.old, choice.old[0] if choice.new is None else choice.new) for choice in choices] == [
        ((old,), new) for old, new in pairs
    ]


def _entries(source: Source, span: Span) -> list[Entry]:
    return TarSample(None, source, None, *span).entries


def _origin_of(source: Source, entry: Entry) -> tuple[Source, Entry] | None:
    """Return the archive of an entry and the entry there, under the name that it has there."""
    while isinstance(source, JoinedSource):
        if isinstance(source, AssembledSource) and entry.start in source.origins:
            origin = source.origins[entry.start]
            if origin is None:
                return None
            source, entry = origin[0], Entry._make(origin[1])
            continue
        parts = list(source.within(entry.start, entry.stop))
        if len(parts) != 1 or not isinstance(parts[0][0], Source):
            return None
        source, entry = parts[0][0], entry._replace(start=parts[0][1], stop=parts[0][2])
    return source, entry


def stays(source: Source) -> bool:
    """Return whether the bytes of a source can be read at any time and take no memory: those of files and objects."""
    return source.seekable and not isinstance(source, Held)


def unaltered(source: Source) -> Source:
    """Return the archive if a source consists of ranges of it alone, so that no header was changed; else the source."""
    if isinstance(source, AssembledSource) and all(piece is source.origin for piece, _, _ in source.pieces):
        return source.origin
    return source


def is_object(source: object) -> TypeGuard[WindowSource]:
    """Return whether a source is an object of a store, read by ranges."""
    return isinstance(source, WindowSource) and source.url is not None


class RangeList:
    """The inputs and temporary files by number; converts samples to places and back.

    Bytes of sources that do not stay, such as streams, are copied to temporary space, and so are those of small samples
    of objects, if it `fetches` them; `stored` counts them. If it does not, samples with new names stay in their
    archives too, and get the names when they are made again.
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

    def enter(self, source: Source) -> bool:
        """Set the source of the samples that follow, perhaps one of those before; return whether it is new."""
        if source is self._source:
            return False
        self._source, inputs = source, len(self._names)
        self._input, self.here = self._number(source.origin if isinstance(source, AssembledSource) else source)
        return len(self._names) > inputs

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
                return _long(named_ranges, kind, tail)
            return _long(named_ranges, kind | NAMED, _WORDS.pack(len(words)) + words + tail)
        spans = spans or [(0, 0)]  # a sample without fields
        if stays(source) and not (self.fetches and is_object(source) and spans[-1][1] - spans[0][0] <= FETCHED):
            start, stop = spans[0]
            kind, tail = self._tail(key, row)
            if len(spans) == 1 and stop - start < SHORT_LIMIT:
                return SHORT.pack(kind, self.here, start, stop - start) + tail
            return _long(((number, self.here, start, start, stop - start) for start, stop in spans), kind, tail)
        _, writer, in_file = self._writer()
        ranges: list[Range] = []
        for start, stop in spans:
            ranges.append((number, in_file, start, writer.position, stop - start))
            writer.append(source, start, stop)
            self.stored += stop - start
        writer.flush()
        return _long(ranges, *self._tail(key, row))

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
            return _long(
                ((number, in_file, start, start + shift, stop - start) for start, stop in spans), 0, key or b""
            )

        return (placed(None, strays) if strays else None), placed(sample.key, rest)

    def place(self, key: bytes, parts: Sequence[tuple[Source, int, int]]) -> Place:
        """Return the place of ranges of files or objects."""
        ranges = [self._range(*part) for part in parts]
        if len(ranges) == 1 and ranges[0][-1] < SHORT_LIMIT:
            return SHORT.pack(0, ranges[0][1], ranges[0][2], ranges[0][-1]) + key
        return _long(ranges, 0, key)

    def _range(self, source: Source, start: int, stop: int) -> Range:
        number, in_file = self._number(source)
        return number, in_file, start, start, stop - start

    def in_memory(self, key: bytes, start: int, size: int, row: ViewRow | None = None) -> Place:
        """Return a place without a file."""
        return _long([(self._input, 0, start, 0, size)], *self._tail(key, row))

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

    def row_of(self, place: Place) -> ViewRow | None:
        """Return the row of the sample at a place; None if it is not one of a view."""
        if not place[0] & WITH_ROW:
            return None
        group, number = ROW.unpack_from(place, _keyed(place) - ROW.size)
        row: ViewRow = self._rows[group].after(number)
        return row

    def moved(self, place: Place, file: int, offset: int) -> Place:
        """Return the place of a sample that was copied as one range to `offset` of the temporary file `file`.

        A gathered sample keeps the position of its first entry.
        """
        number, _, start, _, _ = self.ranges(place)[0]
        return _long([(number, file, start, offset, size_of(place))], place[0] & ~MANY, tail_of(place))

    def ranges(self, place: Place) -> list[Range]:
        """Return the ranges of a place."""
        if place[0] & MANY:
            return list(_RANGE.iter_unpack(place[_HEAD : _tailed(place)]))
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
        return _long([item for place in places for item in self.ranges(place)], *self._tail(key_in(first), row))

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

    def batches(self, places: Sequence[Place]) -> Iterator[SampleBatch]:
        """Yield the samples at places, together if they follow each other, or are small: then their bytes are read."""
        for at in range(0, len(places), TOGETHER):
            yield from self._together(places[at : at + TOGETHER])

    def _together(self, places: Sequence[Place]) -> Iterator[SampleBatch]:
        """Yield the samples at some places as one batch, as two halves, or one by one."""
        whole, kinds = places, set(map(itemgetter(0), places))
        if kinds not in ({0}, {WITH_ROW}):
            yield from self._halves(places) if len(places) > LEAST else map(self.sample, places)
            return
        rows = None
        if kinds == {WITH_ROW}:
            rows = list(map(self.row_of, places))
            places = [place[:_KEY] + place[_KEY + ROW.size :] for place in places]
        _, numbers, starts, sizes = zip(*map(SHORT.unpack_from, places), strict=True)
        keys = [place[_KEY:] for place in places]
        stops = tuple(map(add, starts, sizes))
        files = [self.files[number] for number in numbers]
        one = files[0] if len(set(numbers)) == 1 else None
        total, repeated = sum(sizes), any(map(eq, keys, islice(keys, 1, None)))
        if one is not None and not repeated and total <= MOST and all(map(eq, stops, islice(starts, 1, None))):
            yield _with_rows(SampleBatch(one, starts[0], keys, stops), rows)
        elif not repeated and max(sizes) <= SMALL and total <= READ and _are_files(files):
            data = HeldRange(files[-1].name, 0, gather(files, starts, sizes, fast.gather))
            batch = SampleBatch(data, 0, keys, list(accumulate(sizes)), places=list(zip(files, starts, strict=True)))
            yield _with_rows(batch, rows)
        elif len(places) > LEAST:
            yield from self._halves(whole)
        else:
            yield from map(_with_row, map(TarSample, keys, files, repeat(None), starts, stops), rows or repeat(None))

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
        return any(map(is_object, self.files))

    def request(self, place: Place) -> list[RangeRequest] | None:
        """Begin to fetch the ranges of a place; None if they are not all in objects of stores."""
        ranges = self.in_sources(place)
        if not all(is_object(file) for file, _, _ in ranges):
            return None
        requests = (file.request(start, stop) for file, start, stop in ranges if isinstance(file, WindowSource))
        return [request for request in requests if request is not None]

    def free(self, place: Place) -> None:
        """Free the windows and connections of the objects that have the ranges of a place."""
        for file, _, _ in self.in_sources(place):
            if is_object(file):
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
        joined = TarSample(sample.key, source, None, source.start, source.size or 0)
        joined.row = sample.row
        return joined

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
            self._places.append(self._ranges.keep(sample.key, spans_of(sample.entries), sample.row))
        for place in self._places:
            sample = self._ranges.sample(place)
            sample.key = sample.key or None
            yield sample


def _are_files(files: Iterable[Source | TemporaryFile]) -> TypeGuard[Sequence[FileSource]]:
    return all(isinstance(file, FileSource) for file in set(files))


def _with_rows(batch: SampleBatch, rows: Sequence[ViewRow | None] | None) -> SampleBatch:
    batch.rows = rows  # type: ignore[assignment]
    return batch


def _with_row(sample: TarSample, row: ViewRow | None) -> TarSample:
    sample.row = row
    return sample


def _long(ranges: Iterable[Range], kind: int, tail: bytes) -> Place:
    """Return the place of any ranges."""
    packed = [_RANGE.pack(*item) for item in ranges]
    return b"".join([_LONG.pack(kind | MANY, len(packed)), *packed, tail])


def _tailed(place: Place) -> int:
    """Return where the tail begins in a place."""
    return _HEAD + _EACH * int(_LONG.unpack_from(place)[1]) if place[0] & MANY else _KEY


def _keyed(place: Place) -> int:
    """Return where the key begins in a place."""
    at = _tailed(place)
    if place[0] & NAMED:
        at += _WORDS.size + int(_WORDS.unpack_from(place, at)[0])
    return at + (ROW.size if place[0] & WITH_ROW else 0)


def fields_in(place: Place) -> str:
    """Return the words of -f for the fields of a named sample; empty for all."""
    at = _tailed(place)
    (length,) = _WORDS.unpack_from(place, at)
    return place[at + _WORDS.size : at + _WORDS.size + length].decode("utf-8", "surrogateescape")


def tail_of(place: Place) -> bytes:
    """Return the tail of a place."""
    return place[_tailed(place) :]


def key_in(place: Place) -> bytes:
    """Return the key of the sample at a place."""
    return place[_keyed(place) :]


def size_of(place: Place) -> int:
    """Return the number of bytes at a place."""
    if place[0] & MANY:
        return sum(size for *_, size in _RANGE.iter_unpack(place[_HEAD : _tailed(place)]))
    return int(SHORT.unpack_from(place)[3])


def file_of(place: Place) -> int | None:
    """Return the number of the file of a place of one range that is not in a file of input; None for others."""
    count, file = _FIRST.unpack_from(place) if place[0] & MANY else (0, 0)
    return file if count == 1 else None


def will_need(source: Source) -> None:
    """Ask the system to read a whole file ahead."""
    if isinstance(source, FileSource):
        source.will_need()
