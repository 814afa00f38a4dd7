"""The shards of a loader: how they, or their samples, are counted, ordered and divided among the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from tarkit.dataset import Dataset
from tarkit.errors import TarkitError, Usage
from tarkit.indexing.indexed import IndexedDataset
from tarkit.joining.join import Join
from tarkit.loading.cursor import Cursor, ListedSamples, Position
from tarkit.loading.division import WorkerPlace
from tarkit.loading.identity import JoinedTable, in_process, mark_of, parse_marks, present_mark, starts_threads
from tarkit.loading.order import Unit, cut, drawn, even, left_of, positions_of, shuffled
from tarkit.loading.settings import LoaderSettings
from tarkit.loading.state import Plan, Progress
from tarkit.pipeline.chain import Archives
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import keeper
from tarkit.pipeline.view_rows import NotView, view_file, with_archives
from tarkit.sizes import plural
from tarkit.stores.listing import without_threads
from tarkit.streams.location import Location, RowsOfView, is_view
from tarkit.streams.source import Source


def note_mark(marks: dict[int, str], shard: int, location: Location, source: Source) -> None:
    """Add the mark of an opened shard, if there is one."""
    mark = mark_of(location, source)
    if mark is not None:
        marks[shard] = mark


def read_index(data: Dataset, equal: bool) -> tuple[IndexedDataset, dict[int, str]]:
    """Return an index of all samples, and the marks of all shards."""
    run = data.new_run()
    if equal and data.leaves_out(run.policy):
        unfit = "where, map or a step that may leave samples out"
        raise Usage(f"equal with shuffle='full' needs all samples: it cannot be used with {unfit}")
    index = IndexedDataset(data.locations, run)
    marks: dict[int, str] = {}
    for shard, source in index.sources.items():
        note_mark(marks, shard, data.locations[shard], source)
    return index, marks


def count_samples(data: Dataset) -> list[int]:
    """Return the number of samples of each shard behind all steps."""
    sizes = []
    for shard in range(len(data.locations)):
        one = data.only([shard])
        batches, flow = one.batches(one.new_run(), moves=False, contents=False)
        with flow:
            sizes.append(sum(batch.count for batch in batches))
            flow.finish()
    return sizes


def divides_rows(data: Dataset, settings: LoaderSettings, counted: bool) -> bool:
    """Return whether rows of views are divided among the workers: all shards are views, and each row is a sample."""
    origin, policy = data.origin, data.new_run().policy
    if settings.full or settings.resample or data.opaque or not all(map(is_view, data.locations)):
        return False
    if policy.maxerr or not policy.skipped <= {"bad-field"} or policy.skips_missing:
        return False  # samples that are left out have no numbers
    if not isinstance(origin, Archives) or not origin.reads_all(policy):
        return False
    return not (counted and data.leaves_out(policy))


def count_rows(views: Sequence[Location]) -> list[RowsOfView] | None:
    """Return the rows of each view; None if one is another table."""
    try:
        return [view_file(view).all_rows for view in views]
    except NotView:
        return None


def refuse_idle(sizes: Sequence[int], place: WorkerPlace, epoch: int) -> None:
    """Raise Usage if one of all workers has no samples; `sizes` are the numbers of samples."""
    if 0 in sizes:
        idle = f"{sizes.count(0)} of {place.describe()} get no samples in epoch {epoch}"
        raise Usage(idle, "give fewer workers or more shards, or allow_idle=True")


class Shards:
    """The shards of a loader.

    Samples are divided among the workers where their numbers are known: with shuffle="full", and of views. Else these
    are shards.

    Attributes:
        data: the dataset.
        count: the number of shards.
        whole: whether no step may leave samples out.
        joined: the tables that samples are joined with.
        marks: with shuffle="full", whose samples are of all shards, the marks of all; see `tarkit.loading.identity`.
    """

    def __init__(self, data: Dataset, settings: LoaderSettings, counted: bool = False) -> None:
        """Count samples, or read all headers, if the settings need it; the first also if they are to be `counted`."""
        self.data = data
        self.settings = settings
        self.count = len(data.locations)
        self.joined = [JoinedTable(join.spec.name) for join in self._joins()]
        self.whole = not data.leaves_out(data.new_run().policy)
        self._index: IndexedDataset | None = None
        self._sizes: list[int] = []
        self.marks: dict[int, str] = {}
        counted = counted or settings.equal is not None
        self._views: list[RowsOfView] | None = None
        if divides_rows(data, settings, counted):
            library = "obstore" if any(map(starts_threads, data.locations)) else "pyarrow"
            self._views = without_threads(partial(count_rows, data.locations), library)
        if settings.full:
            self._index, self.marks = in_process(self._inputs(), partial(read_index, data, counted))
        elif counted and self._views is None:
            self._sizes = in_process(self._inputs(), partial(count_samples, data))

    def _inputs(self) -> Sequence[Location]:
        """Return the inputs, with the archives that views name unless one has to be read in a process of its own."""
        locations = self.data.locations
        return locations if any(map(starts_threads, locations)) else with_archives(locations)

    @property
    def by_sample(self) -> bool:
        """Whether samples are divided among the workers."""
        return self._index is not None or self._views is not None

    @property
    def items(self) -> int:
        """The number of shards or samples that are divided."""
        if self._views is not None:
            return sum(rows.stop for rows in self._views)
        return self.count if self._index is None else len(self._index)

    @property
    def kind(self) -> str:
        """The kind of order, which a position depends on."""
        settings = self.settings
        if settings.full or settings.resample:
            return "full" if settings.full else "drawn"
        order = "shuffled" if settings.shuffle_shards else "given"
        return order if self._views is None else f"rows {order}"

    @property
    def choice(self) -> str:
        """The selection of samples as text."""
        return self.data.choice

    def marks_in(self, progress: Progress) -> dict[int, str]:
        """Return the marks of shards in a position. Raises ValueError for a shard that is not there."""
        if any(place[0] >= self.count for place in (*progress.open, *progress.buffer, *progress.taken)):
            raise ValueError(f"{plural(self.count, 'shard')}, and one with a greater number")
        return parse_marks(progress.marks, self.count)

    def without_rows(self, place: WorkerPlace) -> list[str]:
        """Return of each joined table, of which no sample that this worker has read has a row, what it has instead."""
        found = []
        worker = f"worker {place.worker} on node {place.rank}: " if place.parts > 1 else ""
        for step in self.data.steps:
            if isinstance(step, Join):
                try:
                    step.check_rows()
                except TarkitError as error:
                    found.append(f"{worker}{error}")
        return found

    def own(self, place: WorkerPlace) -> Sequence[int]:
        """Return which of the shards in order are those of a worker, or which of the samples in order."""
        settings = self.settings
        if settings.full:
            return positions_of(self.items, place, settings.batch or 1, settings.equal is not None)
        if self._views is not None:
            return place.run_of(self.items // place.parts * place.parts if settings.equal == "drop" else self.items)
        return place.divide(range(self.items))

    def has_part(self, place: WorkerPlace) -> bool:
        """Return whether a worker has a part of the shards, or samples."""
        return self.settings.resample or bool(self.own(place))

    def check_idle(self, place: WorkerPlace, name: str = "", allow_idle: bool | None = None) -> None:
        """Raise Usage if a worker has no part, unless the settings, or `allow_idle`, let some have none."""
        settings = self.settings
        allow_idle = settings.allow_idle if allow_idle is None else allow_idle
        last = WorkerPlace(place.world - 1, place.world, place.workers - 1, place.workers)  # no other has less
        if not allow_idle and not self.has_part(last):
            words = "sample" if self.by_sample else "shard"
            units = f"{name}{plural(self.items, words)} for {place.describe()}"
            batches = "" if self.items < place.parts else f"in batches of {settings.batch} "
            whole = "" if self.by_sample else ", or shuffle='full', which divides samples"
            hint = f"give fewer workers or more {words}s, or allow_idle=True{whole}"
            raise Usage(f"{units}: {batches}some would have no samples", hint)

    def part_size(self, epoch: int, place: WorkerPlace) -> int:
        """Return the number of samples of a worker in an epoch, where they were counted."""
        if self.by_sample:
            return len(self.own(place))
        return sum(self._sizes[shard] for shard, _, _ in self.order(epoch, place))

    def order(self, epoch: int, place: WorkerPlace) -> Iterable[Unit]:
        """Return what a worker reads in an epoch, in order; a list, or without end with `resample`."""
        settings, own = self.settings, self.own(place)
        if settings.full:
            return [(0, 0, -1)] if own else []
        if settings.resample:
            return ((shard, 0, -1) for shard in drawn(self.count, settings.seed, epoch, place))
        shards = shuffled(self.count, settings.seed, epoch) if settings.shuffle_shards else range(self.count)
        if self._views is not None:
            assert isinstance(own, range)
            return cut([(shard, 0, self._views[shard].stop) for shard in shards], own)
        return [(shards[at], 0, -1) for at in own]

    def divided(
        self, units: Sequence[Unit], samples: Sequence[tuple[int, int]], place: WorkerPlace
    ) -> tuple[Sequence[Unit], Sequence[tuple[int, int]], int]:
        """Return the part of a worker of what is left of an epoch, and how many samples it has given by count.

        Args:
            units: what is left in order.
            samples: single samples that come first, each a shard and a number.
            place: the worker.
        """
        number, parts, drop = place.number, place.parts, self.settings.equal == "drop"
        if self._views is None:
            return units[number::parts], samples[number::parts], 0
        total = len(samples) + sum(stop - first for _, first, stop in units)
        total -= total % parts if drop else 0
        sizes = [len(other.run_of(total)) for other in place.all()]
        single = samples[number::parts][: sizes[number]]
        of_units = [max(size - len(samples[other::parts]), 0) for other, size in enumerate(sizes)]
        begin = sum(of_units[:number])
        given = len(self.own(place)) - sizes[number] if drop else 0
        return cut(units, range(begin, begin + of_units[number])), single, given

    def size(self, epoch: int, place: WorkerPlace) -> int | None:
        """Return the number of samples that each worker gives in an epoch; None if that is not set."""
        settings = self.settings
        if settings.equal is None:
            return settings.length
        drop = settings.equal == "drop"
        if self.by_sample:
            whole, rest = divmod(self.items, place.parts)
            return whole + (rest > 0 and not drop)
        totals = [self.part_size(epoch, part) for part in place.all()]
        if not settings.allow_idle:
            refuse_idle(totals, place, epoch)
        return min(totals) if drop or not totals[place.number] else max(totals)  # who has none repeats none

    def length(self, epoch: int, place: WorkerPlace) -> int | None:
        """Return the number of samples of a worker in an epoch; None if it is not known."""
        size = self.size(epoch, place)
        if not self.has_part(place):
            return 0
        known = self.by_sample and self.whole and self.settings.transform is None
        return self.part_size(epoch, place) if size is None and known else size

    def open(self, unit: Unit, position: Position, run: Run, marks: dict[int, str]) -> Cursor:
        """Open a unit at a position; the mark of its shard is added to `marks`."""
        settings, (shard, _, stop) = self.settings, unit
        keep = keeper(run.tmpdir) if settings.shuffle or position.only is not None else None
        location = self.data.locations[shard]
        if is_view(location):
            with suppress(FileNotFoundError):  # it is reported when it is opened
                if (mark := present_mark(location)) is not None:
                    marks[shard] = mark
        data = self.data.only([shard])
        if self._views is not None:
            rows = self._views[shard]._replace(start=position.number, stop=stop)
            data = data.with_origin(replace(cast(Archives, data.origin), locations=(location._replace(rows=rows),)))
        return self._compared(Cursor(data, unit, run, position, keep, partial(note_mark, marks, shard, location)))

    def left(self, epoch: int, plan: Plan | None) -> list[int]:
        """Return the numbers in the index of all samples that a plan leaves of an epoch, in random order."""
        assert self._index is not None
        order = shuffled(len(self._index), self.settings.seed, epoch)
        try:
            for given in plan or ():
                order = left_of(order, given, self.settings.equal)
        except IndexError:
            raise Usage("the state of a loader is damaged: its plan does not fit the samples") from None
        return order

    def rows(self, place: WorkerPlace, progress: Progress) -> Sequence[int]:
        """Return the numbers of the samples of a worker in the index of all, in the random order of an epoch."""
        equal = self.settings.equal
        order = self.left(progress.epoch, progress.plan)
        order = even(order, place.parts, equal)
        return [order[at] for at in positions_of(len(order), place, progress.block, equal is not None)]

    def open_index(self, rows: Sequence[int], position: Position, run: Run) -> Cursor:
        """Open these samples of the index, from a position on."""
        assert self._index is not None
        rows = rows if self.data.opaque else rows[position.number :]
        data = self.data.with_origin(ListedSamples(self._index, rows, self.data.locations))
        return self._compared(Cursor(data, (0, 0, -1), run, position))

    def _joins(self) -> list[Join]:
        return [step for step in self.data.steps if isinstance(step, Join)]

    def _compared(self, cursor: Cursor) -> Cursor:
        """Return a cursor, whose tables were opened. Raises Usage if one is not that of the position."""
        try:
            for table, join in zip(self.joined, self._joins(), strict=True):
                table.compare(join)
        except BaseException:
            cursor.close()
            raise
        return cursor
