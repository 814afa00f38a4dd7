"""Steps that choose by what all samples have: each value once, as many of each value, a number of samples.

They keep the order of the samples, and depend on nothing but the samples in their order and the seed: not on batches,
archives or the machine.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from itertools import count as counting
from random import Random
from struct import Struct

from tarkit.choosing.select import PerClass, Select
from tarkit.errors import MissingFile, TarkitError, show, spell
from tarkit.pipeline.origins import spans_of
from tarkit.pipeline.output import total_size
from tarkit.pipeline.places import Place, size_of
from tarkit.pipeline.ranges import RangeList
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import ChooseAmongAll, Flow, SampleFilter, Step
from tarkit.samples.dataset import SPARSE, DatasetReader, DrawnRows, InputReader
from tarkit.samples.labels import FieldValue
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sizes import plural
from tarkit.spill.runs import BATCH, SortedRuns, ordinal_of, pack, rank_of, rests_of, without_rank
from tarkit.spill.sets import GrowingSet
from tarkit.streams.location import is_view

CLASSES = 1_000_000  # maximum
MEMORY = 64 << 20  # bytes of places in memory
FEW = 1 << 21  # random numbers that are remembered, to leave samples out before their place is known
DIGEST = 16  # bytes, of longer values

_NO_VALUE = b"no value"  # this object alone; Python has one object for all equal bytes of length 0 and 1
_RANK = Struct(">IQ")  # the number of the class, and a random number


class UniqueValues(ChooseAmongAll):
    """The first sample of each value of the field `by`. Digests of 16 bytes are compared, shorter values themselves."""

    name = "unique_by"

    def __init__(self, by: str) -> None:
        self.by = by

    @property
    def choice(self) -> str:
        """The field."""
        return f"unique_by={self.by!r}"

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples whose value is new; those without a value that the policy keeps are all different."""
        run, value_of = flow.run, FieldValue(self.by, flow.run.policy, "keeps them all", _NO_VALUE, True)
        seen = GrowingSet(flow.inputs.tmpdir)
        facts = {"samples": 0, "left_out": 0}

        def unique() -> Iterator[TarSample]:
            for sample in singly(batches):
                value = None if sample.key is None else value_of(sample)
                if value is None:
                    continue
                facts["samples"] += 1
                if value is _NO_VALUE or seen.add(_digest(value)):
                    yield sample
                else:
                    facts["left_out"] += 1

        def report() -> None:
            run.facts["unique_by"] = facts
            of = f"{facts['left_out']} of {plural(facts['samples'], 'sample')}"
            run.tell(f"{spell('unique_by', self.by)}: {of} left out: a sample before has the same value")

        flow.at_end.append(report)
        return unique()


def _digest(value: bytes) -> bytes:
    return value if 0 < len(value) < DIGEST else blake2b(value, digest_size=DIGEST).digest()


class Draw(ChooseAmongAll):
    """A number of samples at random, of all of them or of each class.

    Each sample gets a random number, and of each class those with the lowest are taken. Until all samples were read,
    the places of candidates are kept, those of streams with their contents in temporary space. A class with fewer
    samples than `count` gives each of them in turn, with `max` and `median`.

    Args:
        seed: decides about the random numbers.
        count: how many samples, or `min`, `max`, `median`: as many as the class of this size has.
        by: the field with the class; None for one class, in which fewer samples are a warning.
    """

    def __init__(self, seed: int, count: PerClass, by: str | None = None) -> None:
        self.name = "sample" if by is None else "balance"
        self.seed = seed
        self.count = count
        self.by = by

    @property
    def choice(self) -> str:
        """The class, the number and the seed."""
        return f"{self.name}={self.by!r}, count={self.count!r}, seed={self.seed!r}"

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Have rows of views read once they are drawn, and objects with large samples by ranges: most are not taken."""
        if not before and isinstance(self.count, int) and self.by is None:
            rows = _rows_of(inputs, self.count)
            if rows is not None:
                inputs.drawn_rows = DrawnRows(self, rows)
                return
        inputs.reordered = inputs.reordered or all(step.reads == "headers" for step in before)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples that are drawn."""
        if self.count in ("max", "median"):
            flow.repeats, flow.keys_may_repeat, flow.is_repeated = spell("per_class", self.count), True, None
            hint = f"{flow.repeats} repeats samples: {spell('rekey', '{index:09d}-{key}')} gives each a key of its own"
            flow.run.policy.repairs |= {"joined-sample": hint, "repeated-key": hint}
        candidates = _Candidates(self, flow)
        flow.at_end.append(candidates.report)
        watched = flow.run.watch_input("reading", batches, total_size(flow.inputs.locations))
        rows = flow.inputs.drawn_rows
        if rows is None or rows.drawn_by is not self:
            return candidates.batches(watched)
        rows.begin(candidates.drawn(rows.total))
        return watched


class _Candidates:
    """The samples that may be drawn in one run: their places, by class and random number."""

    def __init__(self, draw: Draw, flow: Flow) -> None:
        self._draw = draw
        self._run = flow.run
        self._value_of = None if draw.by is None else FieldValue(draw.by, flow.run.policy)
        self._random = Random(f"tarkit {draw.name} {draw.seed}")
        self._tmpdir = flow.inputs.tmpdir
        self._places = RangeList(self._tmpdir, flow.inputs.contents)
        self._runs = SortedRuns(self._tmpdir, MEMORY)
        self._classes: dict[bytes, int] = {} if draw.by is not None else {b"": 0}
        self._counts = [0] * len(self._classes)  # the samples of each class
        count = draw.count if isinstance(draw.count, int) else None
        self._lowest = None if count is None else _Lowest(count)
        self._per_class = 0  # how many samples of each class are taken
        flow.at_end.append(self._places.unchanged)

    def batches(self, batches: Iterator[SampleBatch]) -> Iterator[SampleBatch]:
        """Read all samples; yield those that are taken, in their order."""
        ordinal, records = 0, list[bytes]()
        for batch in batches:
            if batch.key is None:
                continue
            numbers = [self._random.getrandbits(64) for _ in batch.keys]
            if self._value_of is None:
                self._counts[0] += len(numbers)
            if self._value_of is not None or any(self._admits(0, number) for number in numbers):
                records += filter(None, map(self._record, batch, numbers, counting(ordinal)))
                if len(records) >= BATCH:
                    self._runs.extend(records)
                    records.clear()
            ordinal += len(numbers)
        self._runs.extend(records)
        yield from self._read(rests_of(block) for block in self._chosen())

    def _chosen(self) -> Iterator[list[bytes]]:
        """Return the records of the samples that are taken, in the order of the samples."""
        self._per_class = self._taken()
        order = SortedRuns(self._tmpdir, MEMORY)
        for records in self._records_taken():
            order.extend(records)
        return order.blocks()

    def drawn(self, count: int) -> Iterator[int]:
        """Return the numbers of those that are taken of `count` samples, in ascending order, before any is read."""
        self._counts[0] = count
        for begin in range(0, count, BATCH):
            numbers = ((self._random.getrandbits(64), number) for number in range(begin, min(begin + BATCH, count)))
            self._runs.extend([self._packed(0, *pair) for pair in numbers if self._admit(0, pair[0])])
        return (ordinal_of(record) for block in self._chosen() for record in block)

    def _read(self, blocks: Iterator[list[Place]]) -> Iterator[SampleBatch]:
        """Yield the samples at places."""
        places = self._places
        if not (places.fetches and places.remote):
            for block in blocks:
                yield from places.batches(block, places.fetches)
            return
        from tarkit.streams.prefetch import Groups, fetch_ahead

        for group in fetch_ahead(Groups()(chain.from_iterable(blocks), size_of), places.remote_ranges):
            yield from map(places.sample, group)

    def _admits(self, label: int, number: int) -> bool:
        """Return whether a sample may be among those with the lowest numbers of its class."""
        return self._lowest is None or self._lowest.may_admit(label, number)

    def _record(self, sample: TarSample, number: int, ordinal: int) -> bytes | None:
        """Return a record with the place of a sample; None if it is not taken."""
        label = 0
        if self._value_of is not None:
            value = self._value_of(sample)
            if value is None:
                return None
            label = self._class_of(value)
            self._counts[label] += 1
        if not self._admit(label, number):
            return None
        sample.complete()
        self._places.enter(sample.source)
        spans = [(sample.start, sample.stop)] if sample.plain else spans_of(sample.entries)
        place = self._places.keep(sample.key, spans, sample.row)
        return self._packed(label, number, ordinal, place)

    def _admit(self, label: int, number: int) -> bool:
        return self._lowest is None or self._lowest.admit(label, number)

    @staticmethod
    def _packed(label: int, number: int, ordinal: int, place: Place = b"") -> bytes:
        return pack(_RANK.pack(label, number), ordinal, place)

    def _class_of(self, value: bytes) -> int:
        """Return the number of a class. Raises TarkitError when there are too many."""
        number = self._classes.get(value)
        if number is None:
            number = self._classes[value] = len(self._counts)
            self._counts.append(0)
            if number == CLASSES:
                raise TarkitError(f"{spell('balance')}: over {CLASSES} classes", "is this field a class?")
        return number

    def _taken(self) -> int:
        """Return how many samples of each class are taken. Raises TarkitError for a class with fewer of them."""
        count, counts = self._draw.count, self._counts
        if self._draw.by is None or not counts:
            return counts[0] if counts and counts[0] < int(count) else int(count) if counts else 0
        if isinstance(count, str):
            ordered = sorted(counts)
            return ordered[{"min": 0, "max": -1, "median": (len(counts) - 1) // 2}[count]]
        if (fewest := min(counts)) < count:
            name = show(list(self._classes)[counts.index(fewest)])
            others = sum(each < count for each in counts) - 1
            more = f"; so have {plural(others, 'other class', 'other classes')}" if others else ""
            of = f"the class {name} of {show(self._draw.by)}"
            raise TarkitError(
                f"{spell('per_class', count)}: {of} has fewer samples: {fewest}{more}",
                f"{spell('per_class', 'min')} takes {fewest} of each, {spell('per_class', 'max')} repeats samples",
            )
        return count

    def _records_taken(self) -> Iterator[list[bytes]]:
        """Yield records of places in the order of the samples, as often as each is taken."""
        wanted, current, at, times, rest = self._per_class, -1, 0, 0, 0
        for block in self._runs.blocks():
            records = []
            for record in block:
                label, _ = _RANK.unpack(rank_of(record))
                if label != current:
                    current, at = label, 0
                    times, rest = divmod(wanted, self._counts[label]) if self._repeats else (0, wanted)
                if times + (at < rest):
                    records += [without_rank(record)] * (times + (at < rest))
                at += 1
            yield records

    @property
    def _repeats(self) -> bool:
        return self._draw.count in ("max", "median")

    def report(self) -> None:
        """Say how many samples there were."""
        run, draw, counts = self._run, self._draw, self._counts
        total = sum(counts)
        if draw.by is None:
            run.facts["sample"] = {"samples": total, "taken": self._per_class}
            if self._per_class < int(draw.count):
                run.warn(f"{spell('sample', draw.count)}: there are {plural(total, 'sample')}, and all are taken")
            return
        run.facts["balance"] = {"samples": total, "classes": len(counts), "per_class": self._per_class}
        each = f"{plural(self._per_class, 'sample')} of each of {plural(len(counts), 'class')}"
        run.tell(f"{spell('balance', draw.by)}: {each}, from {plural(total, 'sample')}")


class _Lowest:
    """The `count` lowest numbers of each class, as far as memory allows: others cannot be taken."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers: dict[int, array[int]] = {}
        self._limits: dict[int, int] = {}
        self._most = 1 << 64 if count else -1

    def may_admit(self, label: int, number: int) -> bool:
        """Return whether a number may be among the lowest of its class."""
        return number <= self._limits.get(label, self._most)

    def admit(self, label: int, number: int) -> bool:
        """Add a number; return whether it may be among the lowest of its class."""
        if not self.may_admit(label, number):
            return False
        if 2 * self._count * len(self._numbers) > FEW:
            return True  # the limits of the classes so far stay
        numbers = self._numbers.setdefault(label, array("Q"))
        numbers.append(number)
        if len(numbers) >= 2 * self._count:
            lowest = sorted(numbers)[: self._count]
            self._numbers[label] = array("Q", lowest)
            self._limits[label] = lowest[-1]
        return True


def _rows_of(inputs: InputReader, count: int) -> int | None:
    """Return the number of rows of views of which `count` can be drawn before any is read; None if all are read.

    The inputs are views, read in order, no sample is left out by the policy, and their archives are objects of stores,
    or few rows are drawn.
    """
    if not (isinstance(inputs, DatasetReader) and inputs.may_choose and all(map(is_view, inputs.locations))):
        return None
    from tarkit.pipeline.view_rows import NotView, locate_archive, view_file

    try:
        views = [(location, view_file(location)) for location in inputs.locations]
    except (NotView, MissingFile):
        return None
    total = sum(len(range(*location.rows[:2])) if location.rows else view.count for location, view in views)
    remote = any(
        locate_archive(location, shard)[0].kind == "url" for location, view in views for shard in view.shards()
    )
    return total if remote or total >= SPARSE * count else None


def steps_of(select: Select, shared: bool = False) -> Iterator[Step]:
    """Yield the steps of a selection that is not `each_alone`; `shared` is as for `SampleFilter`."""
    drawn = select.sample if isinstance(select.sample, int) else None
    first = replace(select, unique_by=None, balance=None, sample=None, slice=None, count=None)
    share = select.sample if drawn is None else None
    last = Select(sample=share, slice=select.slice, count=select.count, seed=select.seed)
    if not first.all:
        yield SampleFilter(first, shared)
    if select.unique_by is not None:
        yield UniqueValues(select.unique_by)
    if select.balance is not None:
        assert select.seed is not None
        yield Draw(select.seed, select.per_class, select.balance)
    if drawn is not None:
        assert select.seed is not None
        yield Draw(select.seed, drawn)
    if not last.all:
        yield SampleFilter(last, shared)
