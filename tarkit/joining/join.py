"""Join samples with the rows of a table, whose columns are values then. Order and number of samples stay."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tarkit.errors import Problem
from tarkit.joining.columns import JoinedColumns
from tarkit.joining.spec import KEY_COLUMN, JoinSpec
from tarkit.joining.table import FoundRow, JoinCounts, JoinTable, new_tuple
from tarkit.pipeline.chain import Archives, Chain, locate
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow, Step
from tarkit.problems import Policy
from tarkit.samples.columns import Contents, contents_held
from tarkit.samples.dataset import ComingKeys, InputReader
from tarkit.samples.labels import FieldValue
from tarkit.samples.sample import ABSENT, SampleBatch, TarSample, ViewRow, singly
from tarkit.streams.location import Location, is_view
from tarkit.streams.text import parse_file

if TYPE_CHECKING:
    from tarkit.pipeline.view_reader import ViewReader
    from tarkit.pipeline.view_rows import ValueTable, ViewFile

TOGETHER = 128  # rows that are found together, and of a view the samples that are read together
LEAST = 16  # samples of a batch that stay together

_SHIFT = 32  # bits of the number of a joined row; those above are the number of the row of a view that the sample has


class JoinedRow(NamedTuple):
    """The row of a table that a sample has.

    Attributes:
        joined: the table.
        place: the number of the row there; 0 for none.
        before: the row of a view that the sample is of, with values; None for others.
        ahead: the rows that were found together with this one.
        at: its number among them.
    """

    joined: Joined
    place: int
    before: ViewRow | None
    ahead: FoundTogether | None = None
    at: int = 0

    @property
    def found(self) -> FoundRow:
        """The row there."""
        return self.joined.table.row(self.place) if self.ahead is None else self.ahead.row(self.at)

    @property
    def contents(self) -> dict[str, bytes]:
        """The contents of the sample that the row of a view places, if they are in memory; else none."""
        return {} if self.ahead is None else dict(zip(*self.ahead.contents[self.at], strict=True))

    def plain_sample(self) -> TarSample | None:
        """Return the sample that the row of a view places, if it is among those that are read together."""
        return None if self.ahead is None else self.ahead.samples.get(self.at)

    @property
    def number(self) -> int:
        """The number of both rows."""
        return (0 if self.before is None else self.before.number << _SHIFT) + self.place

    @property
    def has_values(self) -> bool:
        """Return True."""
        return True

    @property
    def stored(self) -> Any:
        """The row of a view that is an input; None for a sample of an archive."""
        return self.before

    @property
    def added(self) -> tuple[ValueTable, Sequence[str], Sequence[Any]] | None:
        """The columns and cells of the table, after these; None without a row."""
        if not self.place:
            return None
        names, cells, *_ = self.found
        return self.joined.columns, names, cells

    def value(self, column: str) -> Any:
        """Return the value of a column; ABSENT if there is no such column."""
        value = self.cell(column)
        return value if value is not ABSENT or self.before is None else self.before.value(column)

    def cell(self, column: str) -> Any:
        """Return the cell of the table itself; ABSENT if it has no such column."""
        if not self.place:
            return ABSENT
        names, cells, *_ = self.found
        return cells[names.index(column)] if column in names else ABSENT

    def after(self, count: int) -> JoinedRow:
        """Return the row with a number that is larger by `count`."""
        number = self.number + count
        before = self.before
        if before is not None:
            before = before.after((number >> _SHIFT) - before.number)
        return JoinedRow(self.joined, number & (1 << _SHIFT) - 1, before)


class JoinedRows(Sequence[JoinedRow | None]):
    """The rows of samples that were found together, each made when it is asked for; None for a sample without a row.

    Attributes:
        ahead: the rows.
        numbers: the number of each among them.
    """

    def __init__(self, ahead: FoundTogether, numbers: range) -> None:
        self.ahead, self.numbers = ahead, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, number: int) -> JoinedRow | None: ...
    @overload
    def __getitem__(self, number: slice) -> JoinedRows: ...
    def __getitem__(self, number: int | slice) -> JoinedRow | JoinedRows | None:
        at = self.numbers[number]
        if isinstance(at, range):
            return JoinedRows(self.ahead, at)
        found = self.ahead.rows[at]
        return found and new_tuple(JoinedRow, (self.ahead.joined, found[0], None, self.ahead, at))

    @property
    def joined(self) -> tuple[str, Collection[str]]:
        """See `TarSample`."""
        return self.ahead.joined.words


class Joined:
    """A table in one run: its rows, what is counted, and where it is if it is a view."""

    def __init__(self, counts: JoinCounts, view: ViewFile | None, inputs: InputReader) -> None:
        self.table, self.counts, self.view = counts.table, counts, view
        self.columns = JoinedColumns(self.table)
        self.words = self.table.name, self.table.names
        self._inputs = inputs
        self._reader: ViewReader | None = None

    @property
    def _samples(self) -> ViewReader:
        if self._reader is None:
            from tarkit.pipeline.view_reader import ViewReader

            assert self.view is not None
            self._reader = ViewReader(self.view.location, self._inputs, self.view)
        return self._reader

    def sample(self, number: int, key: bytes) -> TarSample | None:
        """Return the sample that a row of a view places, under a key; None if the policy leaves it out."""
        return self._samples.sample(key, self.table.row(number).place, number - 1)

    def plain_samples(
        self, keys: Sequence[bytes], places: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Sequence[int], SampleBatch]]:
        """Return the samples with these keys and places of rows that are plain, with their numbers here."""
        return list(self._samples.plain_samples(keys, places))

    def unchanged(self) -> None:
        """Raise TarkitError if an archive of a view was changed since it was opened."""
        if self._reader is not None:
            self._reader.unchanged()


class FoundTogether:
    """Rows of a table that samples with some keys have, found together; None for one without a row.

    If the table is a view, the samples that it places are read together when the first is asked for.
    """

    def __init__(self, joined: Joined, keys: Sequence[bytes]) -> None:
        self.joined, self.keys = joined, keys
        self.rows = joined.table.find_all(keys)

    def place_of(self, key: bytes, first: int) -> int:
        """Return the number of a key here, from `first` on; -1 if it is not there."""
        keys = self.keys
        if first < len(keys) and keys[first] == key:
            return first
        try:
            return keys.index(key, first)
        except ValueError:
            return -1

    def row(self, at: int) -> FoundRow:
        """Return a row that was found."""
        found = self.rows[at]
        assert found is not None
        return found[1]

    @cached_property
    def _batches(self) -> list[tuple[list[int], SampleBatch]]:
        """The samples that the rows of a view place, with the numbers of the rows here: those that are plain."""
        if self.joined.table.column != KEY_COLUMN:
            return []
        placed = [
            (at, key, found[1].place) for at, (key, found) in enumerate(zip(self.keys, self.rows, strict=True)) if found
        ]
        if not placed:
            return []
        numbers, keys, places = zip(*placed, strict=True)
        found = self.joined.plain_samples(keys, places)
        return [([numbers[at] for at in some], batch) for some, batch in found]

    @cached_property
    def samples(self) -> dict[int, TarSample]:
        """These samples, by the numbers of the rows."""
        return {at: sample for numbers, batch in self._batches for at, sample in zip(numbers, batch, strict=True)}

    @cached_property
    def contents(self) -> list[Contents]:
        """The names of fields of these samples, and their contents, if they are in memory; none for others."""
        contents = list[Contents]([((), ())] * len(self.rows))
        for numbers, batch in self._batches:
            for at, of_sample in zip(numbers, contents_held(batch), strict=False):
                contents[at] = of_sample
        return contents


class Join(Step):
    """Give each sample the row of a table with its key."""

    name = "join"
    reads = "headers"

    def __init__(self, spec: JoinSpec, shared: bool = False) -> None:
        """With `shared`, several runs over parts of the samples read the table once, and do not report its rows."""
        self.spec = spec
        self.shared = shared
        self.permutes = not spec.by_value
        self._kept: tuple[int, JoinCounts, ViewFile | None] | None = None  # with `shared`: the process, and its table

    def __reduce__(self) -> tuple[object, ...]:
        return Join, (self.spec, self.shared)

    @property
    def choice(self) -> str:
        """How rows are found."""
        spec = self.spec
        return f"join={spec.column!r}, by={spec.by!r}, on_duplicate={spec.on_duplicate!r}"

    @property
    def opened(self) -> tuple[JoinCounts, ViewFile | None] | None:
        """The counts of the table, and its file if it is a view, once this process has read it for `shared` runs."""
        kept = self._kept
        return None if kept is None or kept[0] != os.getpid() else kept[1:]

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Have keys noted of samples that come next, to look many up at once."""
        inputs.coming = inputs.coming or ComingKeys()

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether samples whose value cannot be read may be left out."""
        return self.spec.by_value

    def apart(self) -> Join:
        """Return the join for runs of a loader, each over one of the archives."""
        return Join(self.spec, shared=True)

    def check_rows(self) -> None:
        """Raise TarkitError if none of the samples of all `shared` runs in this process has a row."""
        if self.opened is not None:
            self.opened[0].check()

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples with their rows. Raises TarkitError for a table that cannot be read."""
        joined = self._open(flow)
        if not self.shared:
            flow.at_end.append(lambda: _report(joined.counts, flow))
        return self._joined(batches, joined, flow.run.policy, flow.inputs.coming or ComingKeys())

    def _joined(
        self, batches: Iterator[SampleBatch], joined: Joined, policy: Policy, coming: ComingKeys
    ) -> Iterator[SampleBatch]:
        counts, words = joined.counts, joined.words
        value = FieldValue(self.spec.by, policy) if self.spec.by_value else None
        if joined.table.by_key and value is None:
            yield from self._by_key(batches, joined, coming)
            return
        for sample in singly(batches):
            if sample.key is not None:
                sample.complete()
                if value is None:
                    number = counts.find(sample.key, lambda sample=sample: [raw[0] for raw in sample.raw])  # type: ignore[misc]
                else:
                    try:
                        number = counts.find_by(value.of(sample), sample.key)
                    except Problem as problem:
                        if problem.name != "missing-field" and policy.apply(problem) == "drop":
                            continue
                        number = counts.find_by(None, sample.key)
                sample.joined = words
                if number is not None or sample.row is not None:
                    sample.row = JoinedRow(joined, number or 0, sample.row)
            yield sample
        joined.counts.ended = True

    def _by_key(self, batches: Iterator[SampleBatch], joined: Joined, coming: ComingKeys) -> Iterator[SampleBatch]:
        """Return the samples with rows that are found by their keys, of many that come next together.

        Where a step in front leaves most of them out, fewer are looked up at once.
        """
        counts, words = joined.counts, joined.words
        ahead, at, used, most = FoundTogether(joined, ()), -1, 0, TOGETHER
        for batch in coming.noted(batches):
            if self.shared and batch.plain and batch.rows is None and batch.count >= LEAST:
                yield from _with_rows(batch, joined)
                continue
            for sample in batch:
                if sample.key is None:
                    yield sample
                    continue
                at = ahead.place_of(sample.key, at + 1)
                if at < 0:
                    most = min(2 * most, TOGETHER) if 2 * used >= len(ahead.keys) else max(most // 2, 1)
                    ahead, at, used = FoundTogether(joined, coming.following(sample.key, most)), 0, 0
                used += 1
                sample.joined, found = words, ahead.rows[at]
                if not (self.shared and counts.with_row):
                    counts.count(sample.key, found and (found[0], ()))
                if found is not None:
                    sample.row = new_tuple(JoinedRow, (joined, found[0], sample.row, ahead, at))
                elif sample.row is not None:
                    sample.row = JoinedRow(joined, 0, sample.row)
                yield sample
        counts.ended = True

    def _open(self, flow: Flow) -> Joined:
        run, spec = flow.run, self.spec
        if self.opened is not None:
            counts, view = self.opened
        else:
            view = _open_view(spec, flow)
            table = JoinTable(spec, flow.inputs.tmpdir, run.warn, view)
            counts = JoinCounts(table, run.report is not None and not run.part_of_many)
            self._kept = (os.getpid(), counts, view) if self.shared else None
        if spec.in_file:
            run.reserve(spec.word, "the table", written=False)
        if view is not None:
            from tarkit.pipeline.view_rows import locate_archive

            for shard in view.shards():
                run.reserve(locate_archive(view.location, shard)[0].text, "an archive of the table", written=False)
        joined = Joined(counts, view, flow.inputs)
        flow.at_end.append(joined.unchanged)
        flow.tables.append(joined.columns)
        return joined


def _with_rows(batch: SampleBatch, joined: Joined) -> Iterator[SampleBatch]:
    """Yield samples with rows that are found by their keys, in parts; they are counted until one has a row."""
    count, counts = batch.count, joined.counts
    size = -(-count // -(-count // TOGETHER))  # of parts of about one size
    for begin in range(0, count, size):
        part = batch.part(begin, min(begin + size, count))
        ahead = FoundTogether(joined, part.keys)  # type: ignore[arg-type]
        if not counts.with_row:
            for key, found in zip(ahead.keys, ahead.rows, strict=True):
                counts.count(key, found and (found[0], ()))
        part.rows = JoinedRows(ahead, range(part.count))  # type: ignore[assignment]
        yield part


def _open_view(spec: JoinSpec, flow: Flow) -> ViewFile | None:
    """Return the view that a table is, or that of a dataset; None for another table."""
    from tarkit.pipeline.view_rows import NotView, view_file

    if not spec.in_file:
        from tarkit.pipeline.view_writer import view_of

        data, run = spec.data, Run(flow.run.policy, flow.run.tmpdir)
        if data is None:
            data = Chain(Archives(locate(spec.word, spec.storage), storage=spec.storage), lambda: run)
        return view_of(data, data.new_run(), os.path.basename(spec.name), flow.inputs.tmpdir)
    kind, text = parse_file(spec.word)
    location = Location("url" if kind == "url" else "path", text, spec.name, options=spec.storage)
    if kind == "pipe" or not is_view(location):
        return None
    try:
        return view_file(location)
    except NotView:
        return None


def _report(counts: JoinCounts, flow: Flow) -> None:
    if not flow.run.part_of_many:  # some of the jobs may have no row
        counts.check()
    flow.run.facts["join"], text = counts.summary()
    flow.run.tell(text)
