"""The same content under other keys: in two sets of shards (a leak), or twice in one set.

A value of each sample is compared, by any name that expressions take: `sha256.jpg`, `txt`, `__key__`. Values are
grouped in bounded memory (`Multimap`); of a long one its SHA-256 is kept. Pictures that look alike are found by
`phash.FIELD`, whose hashes may differ in a few bits (`near`): about 30 bytes of memory for each different hash.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, NamedTuple

from tarkit.checking.findings import Finding, FindingPolicy, OtherSample, ShardReport, unreadable_shard
from tarkit.checking.shard import BATCH, CheckedSample, Item
from tarkit.errors import MissingLibrary, Problem, TarkitError, Usage, show, spell
from tarkit.pipeline.chain import Archives
from tarkit.pipeline.run import Run
from tarkit.samples.columns import cells_of
from tarkit.samples.lookup import FieldLookup
from tarkit.samples.properties import PROPERTIES
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.samples.values import Name
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap, in_runs
from tarkit.spill.records import SpilledList
from tarkit.streams.location import Location, is_view

DISTANCE = 4  # bits in which hashes of pictures that look alike may differ, unless others are asked for
FARTHEST = 16
_CELL = 16 << 20  # bytes of a field that is compared
_LONG = 32  # bytes of a value; of longer ones the digest is kept
_DIGITS = 64  # bytes of a value that is kept all the same, as those of `sha256.FIELD` are
_PLACE = Struct("<BIQQ")  # the set (0 or 1), the index of a shard in it, the offset, the number of the sample
_HASH = re.compile(rb"[0-9A-Fa-f]{16}")
_NONE = (1 << 64) - 1  # in place of the bits and the position of a hash
_BITS = 32  # where its bits begin
_POSITION = (1 << _BITS) - 1

Places = list[bytes]  # of samples with one value: `_PLACE` and the key


class Compared(NamedTuple):
    """What is compared: a value by its name, and in how many bits two may differ."""

    name: str
    distance: int

    def load(self) -> None:
        """Import the libraries that it needs. Raises MissingLibrary."""
        if self.name.startswith("phash."):
            from tarkit.decoding import phash

            phash.load()
        if self.distance:
            from tarkit.checking.near import load_numpy

            load_numpy()


def parse_compared(text: str) -> Compared:
    """Return what `sha256.jpg` or `phash.jpg:4` says. Raises Usage."""
    name, colon, number = text.rpartition(":")
    word = (name or text).partition(".")[0]
    if not colon or word not in PROPERTIES:
        return Compared(text, DISTANCE if text.startswith("phash.") else 0)
    if word != "phash":
        raise Usage(f"{spell('by', text)}: {word} has no distance", f"{spell('by', name)}, or phash.FIELD:DISTANCE")
    if not number.isdecimal() or int(number) > FARTHEST:
        raise Usage(f"{spell('by', text)}: a distance is a number of bits from 0 to {FARTHEST}")
    return Compared(name, int(number))


def read_values(compared: Compared, tmpdir: str | None, job: tuple[int, Location]) -> Iterator[Item]:
    """Yield the samples of an input with their values, what is wrong with it, and its report last.

    A sample without the value is a finding, `missing-field` or `bad-field`, and is not compared.
    """
    location, name = job[1], Name(compared.name)
    report = ShardReport(location.name, located=not is_view(location))
    policy = FindingPolicy(location.name, report.located)
    reader = Archives((location,)).open(Run(policy), tmpdir, spool=False)
    reader.moves, reader.contents = False, name.needs_entries
    samples: list[CheckedSample] = []
    try:
        for batch in reader.batches():
            together = None if isinstance(batch, TarSample) else _together(batch, name, report)
            samples += _singly(batch, name, compared, report, policy) if together is None else together
            if policy.findings or len(samples) >= BATCH:
                yield from policy.findings
                policy.findings.clear()
                yield samples
                samples = []
        report.size += reader.zeros or 0
    except (MissingLibrary, Usage):
        raise
    except TarkitError as error:
        report.readable = False
        policy.findings.append(unreadable_shard(location.name, error))
    yield from policy.findings
    yield samples
    yield report


def _together(batch: SampleBatch, name: Name, report: ShardReport) -> Iterable[CheckedSample] | None:
    """Return samples with their values, which are counted, as `_singly` does; None if one may be a problem."""
    cells = cells_of(batch, name)
    if cells is None or batch.entries_held is None:
        return None
    starts: Sequence[int] = [batch.start, *batch.stops[:-1]]
    if not report.located:
        starts = range(report.samples, report.samples + batch.count)
    ends, first = batch.entries_held.columns.ends, batch.first
    report.samples += batch.count
    report.entries += ends[first + batch.count - 1] - (ends[first - 1] if first else 0)
    report.first, report.last = report.first or batch.first_key, batch.key
    report.size = batch.stop if report.located else report.size + batch.stop - batch.start
    return zip(batch.keys, starts, map(_as_bytes, cells), strict=True)  # type: ignore[arg-type]


def _singly(
    batch: SampleBatch, name: Name, compared: Compared, report: ShardReport, policy: FindingPolicy
) -> Iterator[CheckedSample]:
    """Yield the samples that have a value, with it; all are counted."""
    for sample in batch:
        if sample.key is not None:
            try:
                lookup = FieldLookup(sample)
                value = _as_bytes(name.cell(lookup, _CELL))
                if compared.distance and not _HASH.fullmatch(value):
                    raise lookup.bad(os.fsencode(compared.name), "is not a hash of 16 hexadecimal digits")
                yield sample.key, sample.start if report.located else report.samples, value
            except Problem as problem:
                problem.hint = f"{spell('allow', problem.name)}: samples without the value are no problem"
                policy.apply(problem)
                policy.findings[-1] = policy.findings[-1]._replace(key=sample.key)
            report.samples += 1
            report.first, report.last = report.first or sample.key, sample.key
        report.entries += len(sample.raw)
        report.size = sample.stop if report.located else report.size + sample.size


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    elif not isinstance(value, bytes):
        value = json.dumps(value, sort_keys=True).encode()
    return value if len(value) <= _LONG or len(value) == _DIGITS else b"#" + sha256(value).digest()


def refuse_own(locations: Sequence[Location], others: Sequence[Location], compared: Compared) -> None:
    """Raise Usage for a shard that is in both sets: each of its samples would be a leak."""
    own = {os.path.realpath(location.text) if location.kind == "path" else location.name for location in locations}
    for other in others:
        if (os.path.realpath(other.text) if other.kind == "path" else other.name) in own:
            hint = f"within one set: {spell('unique')} {spell('by', compared.name)}"
            raise Usage(f"{spell('leak')} names {other.name}, which is an input too", hint)


class EqualSample(NamedTuple):
    """A sample with the value of another one.

    Attributes:
        place: the index of its shard, its offset, and its key.
        other: the other sample: its place in front of its key.
        bits: the bits in which their hashes differ.
        more: how many other samples have the value, besides.
    """

    place: tuple[int, int, bytes]
    other: bytes
    bits: int
    more: int


class Leaks:
    """Samples of two sets, 0 and 1, or of one, whose values are compared. Samples are added in order.

    Attributes:
        counts: the number of samples of each set.
        total: the number of samples of the first set that have the value of another one; complete after `findings`.
    """

    def __init__(self, compared: Compared, within: bool, tmpdir: str | None, names: tuple[str, str]) -> None:
        """With `within` the samples of one set are compared with each other; `names` are those of the sets."""
        self.compared, self.within, self.names = compared, within, names
        self.counts, self.total = [0, 0], 0
        self._tmpdir = tmpdir
        self._values = Multimap(tmpdir)

    def add(self, side: int, index: int, samples: Sequence[CheckedSample]) -> None:
        """Add samples of the shard with this index in a set."""
        ordinal = sum(self.counts)
        self.counts[side] += len(samples)
        for number, (key, offset, value) in enumerate(samples, ordinal):
            self._values.add(value, _PLACE.pack(side, index, offset, number) + key)

    def findings(self, first: Sequence[ShardReport], second: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield each sample of the first set with the value of another, sorted unless there are too many.

        Args:
            first, second: the reports on the shards of each set, by index.
        """
        name = "duplicate-sample" if self.within else "leak"
        for (index, offset, key), place, bits, more in in_runs(
            self._near() if self.compared.distance else self._equal()
        ):
            self.total += 1
            report = first[index]
            other = _other(place, (first, second), bits)
            detail = self._detail(key, other, more)
            yield Finding(name, report.shard, offset if report.located else None, key, detail, other=other)

    def __str__(self) -> str:
        these = f"{self.total} of {plural(self.counts[0], 'sample')} of {self.names[0]}"
        value = f"the {self.compared.name}" + (
            f", within {plural(self.compared.distance, 'bit')}," * bool(self.compared.distance)
        )
        others = "an earlier one" if self.within else f"one of {plural(self.counts[1], 'sample')} of {self.names[1]}"
        return f"{these} {'has' if self.total == 1 else 'have'} {value} of {others}"

    @property
    def record(self) -> dict[str, Any]:
        """The same as JSON."""
        others = {} if self.within else {"others": self.counts[1]}
        name, distance = self.compared
        return {
            "type": "compared",
            "by": name,
            "distance": distance,
            "samples": self.counts[0],
            **others,
            "found": self.total,
        }

    def _detail(self, key: bytes, other: OtherSample, more: int) -> str:
        where = other.shard if other.offset is None else f"{other.shard} at {other.offset}"
        others = f", and of {more} more" if more else ""
        if self.compared.name == "__key__":
            return f"{show(key)} is in {where} too"
        if not other.bits:
            return f"{show(key)} has the {self.compared.name} of {show(other.key)} in {where}{others}"
        differ = plural(other.bits, "bit differs", "bits differ")
        return f"{show(key)} has nearly the {self.compared.name} of {show(other.key)} in {where}: {differ}"

    def _equal(self) -> Iterator[EqualSample]:
        for _, places in self._values.repeated():
            yield from self._matches(places)

    def _matches(self, places: Places) -> Iterator[EqualSample]:
        """Yield the samples of one value that are reported for another of them."""
        if self.within:
            others, own = places[:1], places[1:]
        else:
            own, others = _of_set(places, 0), _of_set(places, 1)
        for place in own if others else ():
            yield EqualSample(_placed(place), others[0], 0, len(places) - 2 if self.within else len(others) - 1)

    def _near(self) -> Iterator[EqualSample]:
        """Yield the samples whose hashes are equal, or differ in a few bits: the nearest one of each."""
        groups = SpilledList[Places](self._tmpdir)
        ranks, hashes, sides = self._grouped(groups)
        nearest = self._nearest(hashes, sides)
        wanted = {score & _POSITION for score in nearest if score != _NONE}
        side = 0 if self.within else 1
        partners = {
            rank: _of_set(places, side)[0] for rank, places in zip(ranks, groups, strict=True) if rank in wanted
        }
        for rank, places in zip(ranks, groups, strict=True):
            equal = list(self._matches(places))
            yield from equal
            if (score := nearest[rank]) != _NONE:
                alone = places[:1] if self.within else [] if equal else _of_set(places, 0)
                other = partners[score & _POSITION]
                yield from (EqualSample(_placed(place), other, score >> _BITS, 0) for place in alone)

    def _grouped(self, groups: SpilledList[Places]) -> tuple[memoryview, Any, Any]:
        """Append the samples of each hash to `groups`.

        Returns:
            The rank of each group in the order of their first samples; by rank the hashes, and the sets that have each.
        """
        from tarkit.checking.near import load_numpy

        numpy = load_numpy()
        hashes, firsts, sides = array("Q"), array("I"), bytearray()
        for value, places in self._values.groups():
            groups.append(places)
            hashes.append(int(value, 16))
            firsts.append(_PLACE.unpack_from(places[0])[3])
            sides.append(sum({1 << place[0] for place in places}))
        order = numpy.argsort(numpy.frombuffer(firsts, numpy.uint32))
        del firsts
        ranks = numpy.empty(len(order), numpy.uint32)
        ranks[order] = numpy.arange(len(order), dtype=numpy.uint32)
        sorted_hashes = numpy.frombuffer(hashes, numpy.uint64)[order]
        del hashes
        return memoryview(ranks), sorted_hashes, numpy.frombuffer(sides, numpy.uint8)[order]

    def _nearest(self, hashes: Any, sides: Any) -> memoryview:
        """Return for each hash the nearest one that it is compared with: in how many bits it differs, and its position.

        With `within` these are earlier ones, else those of the second set for those of the first.
        """
        from tarkit.checking.near import load_numpy, near_pairs

        numpy = load_numpy()
        best = numpy.full(len(hashes), _NONE, numpy.uint64)
        for one, other, bits in near_pairs(hashes, self.compared.distance):
            for these, those in ((one, other), (other, one)):
                compared = those < these if self.within else (sides[these] & 1) & (sides[those] >> 1) == 1
                score = bits[compared].astype(numpy.uint64) << numpy.uint64(_BITS) | those[compared].astype(
                    numpy.uint64
                )
                numpy.minimum.at(best, these[compared], score)
        return memoryview(best)


def _of_set(places: Places, side: int) -> Places:
    return [place for place in places if place[0] == side]


def _placed(place: bytes) -> tuple[int, int, bytes]:
    _, index, offset, _ = _PLACE.unpack_from(place)
    return index, offset, place[_PLACE.size :]


def _other(place: bytes, sets: tuple[Sequence[ShardReport], Sequence[ShardReport]], bits: int) -> OtherSample:
    index, offset, key = _placed(place)
    report = sets[place[0]][index]
    return OtherSample(report.shard, offset if report.located else None, key, bits)
