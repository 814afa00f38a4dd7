"""A mix while training: each worker draws from its part of every source, by a schedule in place of random numbers.

Sources are divided, shuffled and read like the shards of any loader, each with a position and with passes of its own.
The next sample comes from the source that the `Schedule` names, so that shares are those of the weights at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

from tarkit.dataset import Dataset
from tarkit.errors import TarkitError, Usage
from tarkit.joining.join import Join
from tarkit.joining.set_fields import with_columns
from tarkit.loading.ahead import LoaderThreads
from tarkit.loading.division import WorkerPlace
from tarkit.loading.epoch import BARREN, EpochReader
from tarkit.loading.order import PASSES
from tarkit.loading.records import collate_lists
from tarkit.loading.settings import LoaderSettings
from tarkit.loading.shards import Shards, refuse_idle
from tarkit.loading.state import Plan, Progress
from tarkit.mixing.mix import MixOptions, MixSource, Mixture
from tarkit.mixing.mixer import Until
from tarkit.mixing.spec import SourceSpec
from tarkit.pipeline.steps import Change
from tarkit.samples.fields import Fields

SEEDS = 1_000_003  # between the seeds of two sources
_END = object()
ABSENT = -1  # in place of a number of passes: the worker has no sample of the source
_NEAR = 1e-9  # shares are not exact: what is this close to a whole number is taken for it


class Schedule:
    """Which source the next sample comes from.

    After any number of draws, each source was drawn as often as its share of them, up to less than one. Draw `n` of a
    source with the share `s` has to come between the draws `floor(n / s)` and `ceil((n + 1) / s)` of all; among those
    that may come, the one with the earliest end is next. This is the fair schedule of Baruah, Cohen, Plaxton and
    Varvel (Proportionate Progress, 1996) for one resource.

    Attributes:
        drawn: how often each source was drawn.
    """

    def __init__(self, weights: Sequence[float], drawn: Sequence[int] = ()) -> None:
        """With a weight of 0 a source is not drawn."""
        total = sum(weights) or 1.0
        self._shares = [weight / total for weight in weights]
        self.drawn = list(drawn) or [0] * len(weights)

    def next(self) -> int:
        """Return the number of the source that is next; it counts once it is added to `drawn`."""
        time, drawn = sum(self.drawn), self.drawn
        ends = [
            (ceil((drawn[at] + 1) / share - _NEAR), at)
            for at, share in enumerate(self._shares)
            if drawn[at] < (time + 1) * share - _NEAR
        ]
        return min(ends)[1]


class MixDraw:
    """The draws of one worker in an epoch: which source is next, and what happens at the end of one.

    Attributes:
        drawn: how often each source was drawn since the number of sources changed.
        passes: how often the end of each source was reached; -1 for one that was left out.
        endless: whether only a number of samples ends it.
    """

    def __init__(
        self, weights: Sequence[float], options: MixOptions, endless: bool, drawn: Sequence[int], passes: Sequence[int]
    ) -> None:
        """With `endless`, sources begin again whatever the options say. One with the weight 0 is never drawn."""
        self._weights = weights
        self._options = options
        self._again = endless or options.repeat
        self.endless = endless or options.end == "never"
        self.passes = list(passes) or [0] * len(weights)
        self._schedule = Schedule(self._live, drawn)

    @property
    def _live(self) -> list[float]:
        return [
            0 if count == ABSENT or (count and not self._again) else weight
            for weight, count in zip(self._weights, self.passes, strict=True)
        ]

    @property
    def drawn(self) -> list[int]:
        """How often each source was drawn since the number of sources changed."""
        return self._schedule.drawn

    def next(self) -> int:
        """Return the number of the source that is next."""
        return self._schedule.next()

    def end(self, source: int) -> bool:
        """Note the end of a source that is next, and has no more samples; return whether the mix ends."""
        self.passes[source] += 1
        if not self._again and not self.over:
            self._schedule = Schedule(self._live)
        return self.over

    def leave_out(self, source: int) -> bool:
        """Draw from the other sources alone, of which each worker may have none; return whether the mix ends."""
        self.passes[source] = ABSENT
        self._schedule = Schedule(self._live)
        return self.over

    @property
    def over(self) -> bool:
        """Whether the mix has ended."""
        pairs = zip(self.passes, self._weights, strict=True)
        ended = [count > 0 for count, weight in pairs if weight and count != ABSENT]
        if self.endless:
            return not ended
        return any(ended) if ended and self._options.end == "first" else all(ended)


@lru_cache(64)
def draws_of(weights: tuple[float, ...], end: Until, repeat: bool, counts: tuple[int, ...], total: int | None) -> int:
    """Return how many samples an epoch has of sources with these numbers of samples."""
    draw = MixDraw(
        weights, MixOptions(until=None if end == "never" else end, repeat=repeat, total=total), False, (), ()
    )
    left, number = list(counts), 0
    while not draw.over and (total is None or number < total):
        source = draw.next()
        if not left[source]:
            draw.end(source)
            left[source] = counts[source] if repeat else 0
            continue
        left[source] -= 1
        draw.drawn[source] += 1
        number += 1
    return number


class MixedShards:
    """The shards of the sources of a mix, as `Shards` has those of archives.

    Attributes:
        data: the dataset.
        sources: the shards of each source.
        names: their names.
        joined: the tables that samples of any source are joined with.
    """

    whole = False

    def __init__(self, data: Dataset, settings: LoaderSettings) -> None:
        """Look at the sources. Raises Usage for what a loader cannot do, and Unsupported as `Dataset.apart` does."""
        mixture = data.origin
        assert isinstance(mixture, Mixture)
        self.data = data
        self.settings = settings
        self._options = mixture.options
        self._weights = [mixture.options.flat(source.weight) for source in mixture.sources]
        self.names = [source.spec.name for source in mixture.sources]
        inner = replace(settings, batch=None, collate=None, length=None, equal=None, allow_idle=True)
        self.sources = [
            Shards(
                _apart(data, mixture, source),
                replace(inner, seed=settings.seed + SEEDS * number),
                settings.equal is not None,
            )
            for number, source in enumerate(mixture.sources)
        ]
        self.count = sum(source.count for source in self.sources)
        self.joined = [table for source in self.sources for table in source.joined]

    @property
    def choice(self) -> str:
        """What decides which samples come, as text."""
        parts = [f"{weight!r} of ({source.choice})" for weight, source in zip(self._weights, self.sources, strict=True)]
        options = self._options
        return f"mix of {'; '.join(parts)}, until={options.end!r}, repeat={options.repeat}, total={options.total}"

    @property
    def kind(self) -> str:
        """The kinds of order of the sources, which a position depends on."""
        return ", ".join(dict.fromkeys(source.kind for source in self.sources))

    def marks_in(self, progress: Progress) -> dict[int, str]:
        """Return the marks of shards in a position, by their numbers in `data`. Raises ValueError."""
        marks: dict[int, str] = {}
        before = 0
        if any(len(numbers) not in (0, len(self.sources)) for numbers in (progress.drawn, progress.passes)):
            raise ValueError("numbers of other sources")
        for source, position in zip(self.sources, progress.sources, strict=bool(progress.sources)):
            marks |= {before + shard: mark for shard, mark in source.marks_in(position).items()}
            before += source.count
        return marks

    def check_idle(self, place: WorkerPlace) -> None:
        """Raise Usage if a worker would have no samples of a source."""
        for name, source in zip(self.names, self.sources, strict=True):
            source.check_idle(place, f"{name}: ", self.settings.allow_idle)

    def weights(self, epoch: int, place: WorkerPlace) -> list[float]:
        """Return the weights of the sources for a worker: 0 for one of which it has no shard, or counted no sample."""
        counted = self.settings.equal is not None
        return [
            weight if source.has_part(place) and not (counted and source.part_size(epoch, place) == 0) else 0.0
            for weight, source in zip(self._weights, self.sources, strict=True)
        ]

    @property
    def begins_again(self) -> bool:
        """Whether the end of one source does not end the mix, and it begins again."""
        return self._options.repeat and self._options.end != "first"

    def draw(self, place: WorkerPlace, progress: Progress) -> MixDraw:
        """Return the draws of a worker from a position on."""
        weights = self.weights(progress.epoch, place)
        for number, source in enumerate(progress.sources):
            if source.plan is not None:  # which says what the worker has
                weights[number] = self._weights[number]
        endless = self.settings.length is not None or self.settings.equal is not None
        return MixDraw(weights, self._options, endless, progress.drawn, progress.passes)

    def size(self, epoch: int, place: WorkerPlace) -> int | None:
        """Return the most samples that each worker gives in an epoch; None if that is not set. Raises Usage for 0."""
        settings, options = self.settings, self._options
        if settings.length is not None:
            return settings.length
        if settings.equal is None:
            return self.part_of_total(place)
        sizes = []
        for part in place.all():
            counts = tuple(source.part_size(epoch, part) for source in self.sources)
            weights = tuple(self.weights(epoch, part))
            total = self.part_of_total(part)
            sizes.append(draws_of(weights, options.end, options.repeat, counts, total) if any(counts) else 0)
        if not settings.allow_idle:
            refuse_idle(sizes, place, epoch)
        return min(sizes) if settings.equal == "drop" else max(sizes)

    def part_of_total(self, place: WorkerPlace) -> int | None:
        """Return the part of a worker of the `total` of the mix; None without one."""
        return None if self._options.total is None else _part(self._options.total, place)

    def is_over(self, place: WorkerPlace, progress: Progress) -> bool:
        """Return whether the epoch of a worker has ended at a position."""
        total = self.part_of_total(place)
        return self.draw(place, progress).over or (total is not None and progress.given >= total)

    def length(self, epoch: int, place: WorkerPlace) -> int | None:
        """Return the number of samples of a worker in an epoch; None if it is not known."""
        settings, size = self.settings, self.size(epoch, place)
        if settings.length is None and settings.equal is None and self._options.end != "never":
            return None  # a source may end before `total`
        return size if any(self.weights(epoch, place)) else 0


def _part(total: int, place: WorkerPlace) -> int:
    """Return the part of a worker of a number of samples."""
    return len(place.divide(range(total)))


def _apart(data: Dataset, mixture: Mixture, source: MixSource) -> Dataset:
    """Return a source with its steps, and behind these the steps of the mix, to be read one archive at a time.

    Columns of a table that it is joined with are fields, as in a loader of the source alone.
    """
    spec, plain = source.spec, SourceSpec("", [])
    for key in ("probability", "nrepeats", "shuffle", "choose", "resample"):
        if getattr(spec, key) != getattr(plain, key):
            hint = "shuffle and resample are options of the loader; a weight holds for each pass"
            raise Usage(f"{spec.name}: {key} of a source cannot be used with a loader", hint)
    changes = [
        Change(fields) for fields in (Fields(rename=spec.rename, rekey=spec.rekey), mixture.fields) if not fields.all
    ]
    joins = any(isinstance(step, Join) for step in data.steps)
    first = with_columns(source.data) if joins else source.data  # as `Dataset.join` has the columns of a join before it
    return with_columns(data.with_steps(first.origin, (*first.steps, *changes, *data.steps))).apart()


def first_pass(epoch: int, number: int, later: tuple[Plan, ...] = ()) -> Progress:
    """Return the position at the start of a pass over a source in an epoch of the mix; `later` is that of Progress."""
    epoch += PASSES * number
    return Progress(epoch, 1, epoch + 1, later=later).resolved()


def next_epoch(progress: Progress, remaining: int | None) -> Progress:
    """Return the position at the start of the epoch behind a position at the end of one."""
    begin = Progress(progress.epoch + 1, remaining, progress.following, later=progress.later).resolved()
    if any(source.later for source in progress.sources):
        return begin._replace(sources=tuple(first_pass(begin.epoch, 0, source.later) for source in progress.sources))
    return begin


class MixedReader:
    """The samples of one epoch of a worker of a mix, from a position on, as `EpochReader` has those of archives."""

    def __init__(self, shards: MixedShards, place: WorkerPlace, progress: Progress) -> None:
        """`progress` says where to start."""
        self._shards = shards
        self._place = place
        self._start = progress
        self._size = shards.size(progress.epoch, place)
        self._draw = shards.draw(place, progress)
        self._holds = shards.settings.batch is not None
        positions = progress.sources or [first_pass(progress.epoch, 0)] * len(shards.sources)
        self._readers = [
            EpochReader(source, place, position, self._holds)
            for source, position in zip(shards.sources, positions, strict=True)
        ]
        self._given = progress.given
        self._drawn = self._draw.drawn.copy()  # as of the latest sample or batch that was given
        self._before: Progress | None = progress  # the position of it, where a pass has begun since

    def progress(self) -> Progress:
        """Return the position behind the latest sample or batch that was given."""
        return self._before or self._now()

    def _now(self) -> Progress:
        return self._start._replace(
            given=self._given,
            sources=tuple(reader.progress() for reader in self._readers),
            drawn=tuple(self._drawn),
            passes=tuple(self._draw.passes),
        )

    def _give(self, count: int) -> None:
        """Count values as given: all that were read."""
        self._given += count
        self._before = None
        self._drawn[:] = self._draw.drawn
        for reader in self._readers if self._holds else ():
            reader.release()

    def items(self, threads: LoaderThreads | None) -> Iterator[Any]:
        """Yield samples as records, or batches of them; `threads` are divided among the sources by their weights."""
        settings = self._shards.settings
        size, collate = settings.batch, settings.collate or collate_lists
        batch: list[Any] = []
        for value in self._values(threads):
            batch.append(value)
            if size is None or len(batch) == size:
                item, count, batch = value if size is None else collate(batch), len(batch), []
                self._give(count)
                yield item
        item = collate(batch) if batch and settings.partial else None
        self._give(len(batch))
        if item is not None:
            yield item

    def _values(self, threads: LoaderThreads | None) -> Iterator[Any]:
        """Yield the values of samples in the order of the draws."""
        draw, read, shards = self._draw, self._given, self._shards
        weights = shards.weights(self._start.epoch, self._place)
        parts = [None if threads is None else threads.part(weight / (sum(weights) or 1.0)) for weight in weights]
        streams = [reader.items(part) for reader, part in zip(self._readers, parts, strict=True)]
        vain = [0] * len(streams)  # passes without a sample since the latest: other passes have other shards
        while not draw.over and (self._size is None or read < self._size):
            source = draw.next()
            value = next(streams[source], _END)
            if value is not _END:
                draw.drawn[source] += 1
                read += 1
                yield value
                continue
            if self._before is None:
                self._before = self._now()  # what follows changes passes and readers
            barren = not self._readers[source].read
            if barren and not self._has_more(source):
                if draw.leave_out(source):  # others have what is left of it
                    return
                continue
            if barren and not draw.passes[source] and not self._readers[source].planned:
                self._leave_out(source)
                continue
            vain[source] = vain[source] + 1 if barren else 0
            if vain[source] > BARREN * self._place.parts:
                raise self._nothing(source)
            if draw.end(source):
                return
            begin = first_pass(self._start.epoch, draw.passes[source], self._readers[source].later)
            self._readers[source] = reader = EpochReader(shards.sources[source], self._place, begin, self._holds)
            streams[source] = reader.items(parts[source])

    def _has_more(self, source: int) -> bool:
        """Return whether another pass may have samples of a source, of which a pass has none for this worker."""
        again = self._shards.begins_again or not self._readers[source].planned
        return again and self._shards.sources[source].has_part(self._place)

    def _leave_out(self, source: int) -> None:
        """Leave out a source of which this worker has no sample. Raises TarkitError if no worker has one."""
        place, shards = self._place, self._shards
        over = self._draw.leave_out(source)
        if place.parts == 1 or (over and self._draw.endless):
            raise self._nothing(source)
        words = f"{shards.names[source]}: no sample for worker {place.worker} on node {place.rank}"
        shards.sources[source].data.new_run().warn(f"{words} in epoch {self._start.epoch}")

    def _nothing(self, source: int) -> TarkitError:
        name = self._shards.names[source]
        return TarkitError(f"{name}: no sample to draw", "leave the source out, or check its selection")
