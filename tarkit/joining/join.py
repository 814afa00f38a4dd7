"""Join samples with the rows of a table, whose columns are values then. Order and number of samples stay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import Problem, Unsupported
from tarkit.joining.columns import JoinedColumns
from tarkit.joining.spec import JoinSpec
from tarkit.joining.table import JoinCounts, JoinTable
from tarkit.pipeline.output import and_archives
from tarkit.pipeline.steps import Flow, Step
from tarkit.problems import Policy
from tarkit.samples.dataset import InputReader
from tarkit.samples.labels import FieldValue
from tarkit.samples.sample import ABSENT, SampleBatch, TarSample, ViewRow, singly
from tarkit.streams.location import Location, is_view
from tarkit.streams.text import parse_file

if TYPE_CHECKING:
    from tarkit.pipeline.view_reader import ViewReader
    from tarkit.pipeline.view_rows import ValueTable, ViewFile

_SHIFT = 32  # bits of the number of a joined row; those above are the number of the row of a view that the sample has


class JoinedRow(NamedTuple):
    """The row of a table that a sample has.

    Attributes:
        joined: the table.
        place: the number of the row there; 0 for none.
        before: the row of a view that the sample is of, with values; None for others.
    """

    joined: Joined
    place: int
    before: ViewRow | None

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
        names, cells, *_ = self.joined.table.row(self.place)
        return self.joined.columns, names, cells

    def value(self, column: str) -> Any:
        """Return the value of a column; ABSENT if there is no such column."""
        value = self.cell(column)
        return value if value is not ABSENT or self.before is None else self.before.value(column)

    def cell(self, column: str) -> Any:
        """Return the cell of the table itself; ABSENT if it has no such column."""
        if not self.place:
            return ABSENT
        names, cells, *_ = self.joined.table.row(self.place)
        return cells[names.index(column)] if column in names else ABSENT

    def after(self, count: int) -> JoinedRow:
        """Return the row with a number that is larger by `count`."""
        number = self.number + count
        before = self.before
        if before is not None:
            before = before.after((number >> _SHIFT) - before.number)
        return JoinedRow(self.joined, number & (1 << _SHIFT) - 1, before)


class Joined:
    """A table in one run: its rows, what is counted, and where it is if it is a view."""

    def __init__(self, table: JoinTable, counts: JoinCounts, view: Location | None, inputs: InputReader) -> None:
        self.table, self.counts, self.view = table, counts, view
        self.columns = JoinedColumns(table)
        self._inputs = inputs
        self._reader: ViewReader | None = None

    def sample(self, number: int, key: bytes) -> TarSample | None:
        """Return the sample that a row of a view places, under a key; None if the policy leaves it out."""
        if self._reader is None:
            from tarkit.pipeline.view_reader import ViewReader

            assert self.view is not None
            self._reader = ViewReader(self.view, self._inputs)
        return self._reader.sample(key, self.table.row(number).place, number - 1)

    def unchanged(self) -> None:
        """Raise TarkitError if an archive of a view was changed since it was opened."""
        if self._reader is not None:
            self._reader.unchanged()


class Join(Step):
    """Give each sample the row of a table with its key."""

    name = "join"
    reads = "headers"

    def __init__(self, spec: JoinSpec, shared: bool = False) -> None:
        """With `shared`, several runs over parts of the samples read the table once, and do not report its rows."""
        self.spec = spec
        self.shared = shared
        self.permutes = not spec.by_value
        self._kept: tuple[int, JoinTable] | None = None  # with `shared`: the process, and its table

    def __reduce__(self) -> tuple[object, ...]:
        return Join, (self.spec, self.shared)

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether samples whose value cannot be read may be left out."""
        return self.spec.by_value

    def apart(self) -> Join:
        """Return the join for runs of a loader, each over one of the archives."""
        return Join(self.spec, shared=True)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples with their rows. Raises TarkitError for a table that cannot be read."""
        joined = self._open(flow)
        if not self.shared:
            flow.at_end.append(lambda: _report(joined.counts, flow))
        return self._joined(batches, joined, flow.run.policy)

    def _joined(self, batches: Iterator[SampleBatch], joined: Joined, policy: Policy) -> Iterator[SampleBatch]:
        counts, words = joined.counts, (joined.table.name, joined.table.names)
        value = FieldValue(self.spec.by, policy) if self.spec.by_value else None
        for sample in singly(batches):
            if sample.key is not None:
                sample.complete()
                if isinstance(sample.row, JoinedRow):
                    raise _joined_twice(joined.table.name)
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
                if number is not None:
                    sample.row = JoinedRow(joined, number, sample.row)
            yield sample
        joined.counts.ended = True

    def _open(self, flow: Flow) -> Joined:
        run, spec, kept = flow.run, self.spec, self._kept
        run.reserve(spec.word, "the table", written=False)
        place, view = _open_view(spec)
        for archive in () if view is None else and_archives([place])[1:]:
            run.reserve(archive.text, "an archive of the table", written=False)
        if kept is not None and kept[0] == os.getpid():
            table = kept[1]
        else:
            table = JoinTable(spec, flow.inputs.tmpdir, run.warn, view)
            self._kept = (os.getpid(), table) if self.shared else None
        counts = JoinCounts(table, run.report is not None and not run.part_of_many)
        joined = Joined(table, counts, None if view is None else place, flow.inputs)
        flow.at_end.append(joined.unchanged)
        flow.tables.append(joined.columns)
        return joined


def _open_view(spec: JoinSpec) -> tuple[Location, ViewFile | None]:
    """Return where a table is, and the file if it is a view."""
    kind, text = parse_file(spec.word)
    location = Location("url" if kind == "url" else "path", text, spec.name, options=spec.storage)
    if kind == "pipe" or not is_view(location):
        return location, None
    from tarkit.pipeline.view_rows import NotView, view_file

    try:
        return location, view_file(location)
    except NotView:
        return location, None


def _report(counts: JoinCounts, flow: Flow) -> None:
    if not flow.run.part_of_many:  # some of the jobs may have no row
        counts.check()
    flow.run.facts["join"], text = counts.summary()
    flow.run.tell(text)


def _joined_twice(name: str) -> Unsupported:
    hint = "make fields of the columns of the first one before: data.join(a).set().join(b)"
    return Unsupported(f"{name}: the samples have rows of another table already", hint)
