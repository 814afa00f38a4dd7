"""Put any number of samples into any order, in bounded memory: sort, shuffle, and joins rest on it.

An order is a function that gives each sample a *rank*: bytes whose byte order is that of the samples. Samples of equal
rank stay in the order of the input, so every order is stable. The output does not depend on `memory`, nor on whether a
sample is from a file or a stream.

There are two ways; the source of a sample decides:

- by ranges: samples of files stay where they are; a compact list of ranks and ranges is sorted, and they are copied
  from the files in their new order. Data are read once and written once, beside the headers. Objects of stores whose
  samples are large are sorted like this as well, with many ranges requested ahead (`streams.prefetch`).
- by runs: samples of streams, those with other names than in their file, and those that code of the user makes, are
  collected up to `memory`, sorted, and written to a temporary file as one run; the runs are merged. Data are read
  twice and written twice, always in sequence; temporary space is the size of the data. Data that fit into `memory`
  need none. Files are sorted like this when they are opened as streams (`DatasetReader.stream`, see
  `memory.in_place`).

A list that is larger than `memory` is sorted in runs itself (external merge sort: Knuth, TAOCP 3, 5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, repeat
from operator import add, itemgetter
from struct import Struct
from typing import TYPE_CHECKING

from tarkit.errors import Problem, show, spell
from tarkit.pipeline.origins import Span, is_object, split_off_strays, stays, unaltered, will_need
from tarkit.pipeline.places import SHORT, SHORT_LIMIT, WITH_ROW, Place, key_in, size_of
from tarkit.pipeline.ranges import RangeList
from tarkit.problems import Policy
from tarkit.samples.checks import EQUAL_PARTS, describe_duplicate, duplicate_entries
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sizes import plural
from tarkit.sorting.runs import Record, Runs, SeenKeys
from tarkit.spill.runs import END, HEAD, escape, merge, ordinal_of, rank_of, rest_of, rests_of
from tarkit.streams.ranges import Held, JoinedSource
from tarkit.streams.source import Source

if TYPE_CHECKING:
    from tarkit.streams.prefetch import Part

Rank = Callable[[TarSample, int], bytes | None]
Ranks = Callable[[SampleBatch], Sequence[bytes] | None]

LARGE = 1 << 22  # bytes of a sample of a stream that goes to a temporary file at once
_JOINED = "else first tarkit cat --rekey '{stem}/{key}' ... | tarkit sort -"
OFTEN = 1 << 12  # samples between two checks of the memory used
LONG = 1 << 8  # bytes of a rank after which memory is checked at once

pack_head = Struct(HEAD.format + SHORT.format[1:]).pack  # the bytes between the rank and the key in a record of a file


@dataclass(eq=False, repr=False)
class Sorter:
    """Iterate over samples, which come in batches, in the order of their ranks.

    `rank(sample, ordinal)` returns the rank of a sample, whose bytes can be read during the call; `ordinal` counts the
    samples from 0. It returns None for a sample without a rank, since a field is missing: then `absent(sample)` returns
    one, or None to leave the sample out, or raises. Without `absent` such a sample is left out. `ranks(batch)`
    returns the ranks of the next samples at once; None calls `rank` for each.

    With a policy in `gather` samples of one key become one sample: samples scattered in one input always, samples of
    two inputs if `joined-sample` is allowed. Entries keep their order, the ordinal is that of the first sample, and
    `duplicate-entry` is checked. `rank` is called again for each gathered sample, and `absent` only for samples that
    are complete.

    With `contents`, the bytes of all samples will be read: those of objects of stores are fetched before their turn.

    With `strays_apart` the entries without a key are yielded as a sample of their own, whose key is None, before all
    others. With `one_by_one` samples come singly, and `current_rank` is the rank of the one that was yielded last.

    With `distinct`, `repeated` says whether the key of the sample that was yielded last is there more than once. Keys
    that are gathered are not.

    `memory` is in bytes, for data and lists together. A sample can be written until the next one is requested; its
    entries are read again when they are needed. `note` is called with a message about the way that is taken.

    Afterwards `taken` samples were read, `joined` of them became part of another, `left_out` were left out, and
    `yielded` were yielded. An AssertionError is raised at the end if these numbers do not add up.
    """

    samples: Iterator[SampleBatch]
    rank: Rank
    memory: int
    ranks: Ranks | None = None
    tmpdir: str | None = None
    note: Callable[[str], None] = lambda text: None
    gather: Policy | None = None
    absent: Callable[[TarSample], bytes | None] | None = None
    distinct: bool = False
    contents: bool = True
    strays_apart: bool = False
    one_by_one: bool = False
    repeated: bool = False
    taken: int = 0
    joined: int = 0
    left_out: int = 0
    yielded: int = 0

    def __post_init__(self) -> None:
        self._places = RangeList(self.tmpdir, self.contents)
        share = self.memory // 2
        self._runs = Runs(self._places, share, self.note)
        self._strays = Runs(self._places, share // 8)
        self._pending = Runs(self._places, share // 4)
        self._ranked_late = Runs(self._places, share // 4)
        self._keys = SeenKeys(self.memory // 16, self.tmpdir)
        self._waiting: list[bytes] = []  # of the last samples of files
        self._gather_marks: bytearray | None = None
        self._repeat_marks: bytearray | None = None  # by ordinal: of which samples the key is there more than once
        self._large = min(LARGE, self.memory // 16)
        self._record = END  # of the sample that was yielded last

    @property
    def current_rank(self) -> bytes:
        """The rank of the sample that was yielded last."""
        return rank_of(self._record)

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one; see `batches`."""
        return singly(self.batches())

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, together where samples of files are small or follow each other.

        Entries without a key come in front of the first, or alone if there is no sample. No key in a batch of several
        is `repeated`.
        """
        self._take_all()
        self._flush()
        places = self._places
        marked = self._strays.count or self._repeat_marks is not None or self._runs.blobs
        if self.one_by_one or marked or (self.contents and places.remote):
            yield from self._singly()
            return
        for block in self._in_order():
            for batch in places.batches(rests_of(block), self.contents):
                self.yielded += len(batch.keys)
                yield batch
        self._account()

    def _singly(self) -> Iterator[TarSample]:
        """Yield the samples once all were taken."""
        strays = [place for _, _, place, _ in self._strays]
        if strays and self.strays_apart:
            yield self._alone(strays)
            strays = []
        marks = self._repeat_marks
        for record, sample in self._sorted_samples():
            self._record = record
            if strays:
                sample = self._places.behind(self._places.joined(strays), sample)
                strays = []
            if marks is not None:
                self.repeated = bool(marks[ordinal_of(record)])
            self.yielded += 1
            yield sample
        if strays:
            yield self._alone(strays)
        self._account()

    def _sorted_samples(self) -> Iterator[tuple[bytes, TarSample]]:
        """Yield the records in order, with their samples."""
        blocks, places, blob = self._in_order(), self._places, self._runs.blob
        if self.contents and places.remote:
            from tarkit.streams.prefetch import Groups, fetch_ahead

            records = ((record, blob(record)) for block in blocks for record in block)
            for group in fetch_ahead(Groups()(records, _size), self._remote_ranges):
                for record, held in group:
                    yield record, places.sample(rest_of(record), held)
        elif self.contents and not self._runs.blobs:
            for block in blocks:
                yield from zip(block, singly(places.batches(rests_of(block))), strict=True)
        else:
            for block in blocks:
                for record in block:
                    yield record, places.sample(rest_of(record), blob(record))

    def _remote_ranges(self, records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[Part]:
        """Return the ranges of samples that are in objects of stores."""
        return self._places.remote_ranges(rest_of(record) for record, held in records if held is None)

    def _alone(self, strays: list[Place]) -> TarSample:
        """Return the entries without a key as a sample."""
        sample = self._places.sample(self._places.joined(strays))
        sample.key = None
        return sample

    def _account(self) -> None:
        """Raise if a sample was lost, or a file was changed meanwhile."""
        self.unchanged()
        if self.yielded != self.taken - self.joined - self.left_out:
            raise AssertionError(
                f"{plural(self.taken, 'sample')} came in, {self.joined} were joined to others "
                f"and {self.left_out} left out, but {self.yielded} came out"
            )

    def unchanged(self) -> None:
        """Raise TarkitError if a file was changed since it was opened. Copies of samples may still be under way."""
        self._places.unchanged()

    def _take_all(self) -> None:
        """Read all samples and find the rank and the place of each."""
        rank = self.rank
        remembers, remember, recall = self.gather is not None or self.distinct, self._keys.extend, self._taken_keys
        source, in_place = None, False
        ordinal = file = 0
        due = OFTEN  # the ordinal at which memory is checked
        records = self._waiting
        for batch in self.samples:
            if batch.source is not source and not batch.gathered:
                source = batch.source
                if self._places.enter(source):
                    will_need(source)
                in_place, file = stays(source) and not is_object(source), self._places.here
            ranks = None
            if not isinstance(batch, TarSample) and self.ranks is not None:
                ranks = self.ranks(batch)
            together = None if ranks is None else self._records_of(batch, ranks, ordinal, file if in_place else None)
            if ranks is not None and together is not None:
                records += together
                if remembers:
                    remember(batch.keys, recall)  # type: ignore[arg-type]
                ordinal += len(batch.keys)
                if ordinal >= due or max(map(len, ranks)) > LONG:
                    due = ordinal + OFTEN
                    self._add()
                continue
            for sample, known_rank in zip(batch, repeat(None) if ranks is None else ranks, strict=False):
                if sample.source is not source:
                    source = sample.source
                    self._places.enter(source)
                    in_place, file = stays(source) and not is_object(source), self._places.here
                key, start = sample.key, sample.start
                size = sample.stop - start
                if in_place and sample.plain and size < SHORT_LIMIT and sample.row is None:
                    value = rank(sample, ordinal) if known_rank is None else known_rank
                    if value is None:
                        self._pending.add(key or b"", ordinal, SHORT.pack(0, file, start, size) + key)  # type: ignore[operator]
                    else:
                        if 0 in value:
                            value = escape(value)
                        records.append(value + pack_head(0, ordinal, 0, file, start, size) + key)  # type: ignore[operator]
                        if len(value) > LONG:
                            self._add()
                elif not self._take(sample, ordinal, known_rank):
                    continue
                if remembers:
                    remember((key or b"",), recall)
                ordinal += 1
                if ordinal >= due:
                    due = ordinal + OFTEN
                    self._add()
        self._add()
        self.taken = ordinal

    def _records_of(
        self, batch: SampleBatch, ranks: Sequence[bytes], ordinal: int, file: int | None
    ) -> Iterable[bytes] | None:
        """Return the records of samples that stay where they are; None if each has to be looked at.

        `file` is the number of the file that the source is, if its ranges can be read at any time.
        """
        whole = batch.plain and not batch.gathered and batch.rows is None and batch.stop - batch.start < SHORT_LIMIT
        if file is not None and whole:
            return _records(batch, ranks, ordinal, file)
        return self._listed(batch, ranks, ordinal) if not self.contents and _is_listed(batch) else None

    def _listed(self, batch: SampleBatch, ranks: Sequence[bytes], ordinal: int) -> Iterator[bytes]:
        """Yield the records of samples that are in archives, each in its place, and were not read."""
        places = self._places
        sources: Iterable[Source] = repeat(batch.source)
        starts: Sequence[int] = (batch.start, *batch.stops[:-1])
        if batch.places is not None:
            sources, starts = zip(*batch.places, strict=True)
        files = {source: places.file_of(source) for source in {batch.source, *((batch.places and sources) or ())}}
        tails: Iterable[bytes] = batch.keys  # type: ignore[assignment]
        kind = 0
        if batch.rows is not None:
            kind, tails = WITH_ROW, map(add, places.row_tails(batch.rows), tails)
        before = chain((batch.start,), batch.stops)
        for rank, number, source, start, low, high, tail in zip(
            ranks, range(ordinal, ordinal + len(starts)), sources, starts, before, batch.stops, tails, strict=False
        ):
            yield (
                (escape(rank) if 0 in rank else rank)
                + pack_head(0, number, kind, files[source], start, high - low)
                + tail
            )

    def _add(self) -> None:
        """Move records, and hashes of keys, to where memory is bounded."""
        self._runs.extend(self._waiting)
        self._waiting.clear()
        self._keys.flush()

    def _taken_keys(self) -> Iterator[tuple[int, bytes]]:
        self._add()
        for _, ordinal, place, _ in chain(self._runs.records(), self._pending.records()):
            yield ordinal, key_in(place)

    def _take(self, sample: TarSample, ordinal: int, known_rank: bytes | None) -> bool:
        """Find rank and place of one sample of any kind; return False if it has only entries without a key.

        `known_rank` is its rank if it was found before.
        """
        places = self._places
        key, place, blob = sample.key, None, None
        spans: list[Span] = []
        if sample.more is not None:
            stray, place = places.absorb(sample)
            if stray is not None:
                self._strays.add(b"", self._strays.count, stray)
            if key is None:
                return False
            sample = places.sample(place)
        else:
            strays, spans = split_off_strays(sample)
            if strays:
                self._strays.add(b"", self._strays.count, places.keep(None, strays))
        if key is None:
            return False
        value = self.rank(sample, ordinal) if known_rank is None else known_rank
        if place is None:
            size = sum(stop - start for start, stop in spans)
            if stays(unaltered(sample.source)) or value is None or size > self._large or not self.contents:
                place = places.keep(key, spans, sample.row)
            else:
                blob = b"".join([sample.source.read(*span) for span in spans])
                place = places.in_memory(key, spans[0][0] if spans else 0, size, sample.row)
        if value is None:
            self._pending.add(key, ordinal, place)
        else:
            self._runs.add(value, ordinal, place, blob)
        return True

    def _flush(self) -> None:
        """Gather the samples of one key, and find ranks for samples without one."""
        lacking = self._pending.count
        marks = self._gather_marks = self._keys.marked() if self.gather is not None else None
        self._repeat_marks = self._keys.marked() if self.distinct and self.gather is None else None
        if not lacking and marks is None:
            return
        if marks is not None:
            if self._runs.on_disk:
                self._runs.spill()  # a later merge would remove the files that places refer to
            for _, ordinal, place, blob in self._runs.records():
                if marks[ordinal]:
                    if blob is not None:
                        place = self._places.store(place, blob)
                        del self._runs.blobs[ordinal]
                    self._pending.add(key_in(place), ordinal, place)
            self._places.flush()
        for _, group in groupby(self._pending, key=itemgetter(0)):
            self._resolve(list(group))

    def _resolve(self, group: list[Record]) -> None:
        """Make one sample of the records of a key, in their order; keep them apart if nothing is gathered."""
        if self.gather is None:
            for _, ordinal, place, _ in group:
                self._rank(ordinal, place)
            return
        input_of = self._places.input_of
        first = input_of(group[0][2])
        kept, refused = [group[0][2]], set()
        for _, _, place, _ in group[1:]:
            other = input_of(place)
            if other != first and other not in refused and other != input_of(kept[-1]):
                sample = self._places.sample(place)
                message = f"the key {show(sample.key or b'')} was in an earlier input"
                hint = f"{spell('allow', 'joined-sample')} joins them; {_JOINED}"
                problem = Problem("joined-sample", sample.source.name, sample.start, message, hint)
                if self.gather.apply(problem) == "drop":
                    refused.add(other)
            if other not in refused:
                kept.append(place)
        self.left_out += len(group) - len(kept)
        place = kept[0]
        if len(kept) > 1:
            place = self._places.joined(kept)
            if not self._distinct(place):
                self.left_out += len(kept)
                return
            self.joined += len(kept) - 1
        self._rank(group[0][1], place)

    def _rank(self, ordinal: int, place: Place) -> None:
        sample = self._places.sample(place)
        value = self.rank(sample, ordinal)
        if value is None and self.absent is not None:
            value = self.absent(sample)
        if value is None:
            self.left_out += 1
        else:
            self._ranked_late.add(value, ordinal, place)

    def _distinct(self, place: Place) -> bool:
        """Return whether no name is twice in the ranges of a place, or that is allowed."""
        assert self.gather is not None
        names: set[bytes] = set()
        good = True
        for source, entry in self._places.entries(place):
            if any(duplicate_entries([entry], names)):
                message = f"{describe_duplicate(entry.name)}, in separate parts of one sample"
                problem = Problem("duplicate-entry", source.name, entry.start, message, EQUAL_PARTS)
                good = self.gather.apply(problem) == "keep" and good
        return good

    def _in_order(self) -> Iterator[list[bytes]]:
        """Return the records in order, in lists."""
        marks, blocks = self._gather_marks, self._runs.blocks()
        if marks is not None:
            kept = ([record for record in block if not marks[ordinal_of(record)]] for block in blocks)
            blocks = filter(None, kept)
        return merge((blocks, self._ranked_late.blocks())) if self._ranked_late.count else blocks


def _size(item: tuple[bytes, bytes | None]) -> int:
    """Return the bytes of the sample of a record."""
    return size_of(rest_of(item[0]))


def _is_listed(batch: SampleBatch) -> bool:
    """Return whether a batch has samples of rows of a view that were not read: their places, but not their bytes."""
    if batch.places is None:
        return batch.rows is not None and not isinstance(batch.source, Held)
    return isinstance(batch.source, JoinedSource)


def _records(batch: SampleBatch, ranks: Sequence[bytes], ordinal: int, file: int) -> list[bytes]:
    """Return the records of the samples of a batch; the ordinal of the first and the number of their file are given."""
    escaped = (escape(rank) if 0 in rank else rank for rank in ranks)
    starts = chain((batch.start,), islice(batch.stops, len(batch.stops) - 1))
    numbers = range(ordinal, ordinal + len(batch.keys))
    return [
        rank + pack_head(0, number, 0, file, start, stop - start) + key  # type: ignore[operator]
        for rank, number, start, stop, key in zip(escaped, numbers, starts, batch.stops, batch.keys, strict=True)
    ]
