"""Make fields of columns: of the rows that samples were joined with, and of views."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple, TypeVar

from tarkit.errors import Problem, TarkitError, Usage, show, spell, spell_open
from tarkit.joining.altered import AlteredBatch, AlteredSample
from tarkit.joining.columns import JoinedColumns
from tarkit.joining.edit import FieldEdit, assigned
from tarkit.joining.join import Join, JoinedRow, JoinedRows
from tarkit.joining.join import Joined as JoinedTable
from tarkit.joining.table import JoinTable
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.steps import Flow, Step
from tarkit.pipeline.view_rows import present_views
from tarkit.problems import Policy
from tarkit.samples.columns import Contents, groups_of
from tarkit.samples.fields import FieldChoice, with_names
from tarkit.samples.names import spelled
from tarkit.samples.sample import ABSENT, SampleBatch, TarSample, ViewRow, field_names, key_of
from tarkit.streams.files import changed as archive_changed
from tarkit.tables.assignments import Assignment, assignment_of, columns_of
from tarkit.tables.recipe import MalformedRow, parse_source
from tarkit.tables.rows import content_of, holds_integer

Joined = TypeVar("Joined", bound=Chain)
Chosen = TypeVar("Chosen")

MOST_PLANS = 1000  # of samples with other fields, or rows with other columns, that are remembered


class SetFields(Step):
    """Make fields of columns.

    Args:
        assignments: what is set; None for all columns of a table, of a view for all fields of the samples it places.
    """

    name = "set"

    def __init__(self, assignments: Sequence[Assignment] | None) -> None:
        self.assignments = assignments

    @property
    def choice(self) -> str:
        """What is set."""
        return "set=" + ("all" if self.assignments is None else repr(" ".join(map(str, self.assignments))))

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether columns may remove all fields of a sample, or the policy leaves samples out."""
        return bool(self.assignments) or bool(self.assignments is None and policy.skipped)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples with their new fields.

        Raises:
            Usage: the output is a view, which has no new contents.
            TarkitError: a view among the inputs has no column of a name.
        """
        columns = flow.tables[-1] if flow.tables else None
        table = columns.table if isinstance(columns, JoinedColumns) else None
        if flow.as_view and table is not None and not table.is_view and self.assignments is None:
            return batches  # a view has columns as values
        if flow.as_view:
            self._refuse_contents(table)
        if self.assignments and not flow.tables:
            for location, view in present_views(flow.inputs.locations):
                for column in columns_of(self.assignments):
                    if {column, f"@{column}"}.isdisjoint(view.values):
                        raise no_column(location.name, column, view.values)
        return FieldSetter(self.assignments, flow.run.policy, flow.as_view).apply(batches)

    def _refuse_contents(self, table: JoinTable | None) -> None:
        """Raise Usage for fields that columns become; those of samples that a joined view places are ranges."""
        named = self.assignments or ()
        if table is not None and table.is_view:
            named = [one for one in named if one.members or one.column in table.names]
        for one in named:
            what = f"{show(one.field)} has new contents"
            words = f"{spell('set', one.field)}: a view names ranges of plain archives, and {what}"
            hint = f"without {spell('set')} the columns of a joined table are values of the view; where it is the input"
            raise Usage(words, f"{hint}, {spell('set')} makes fields of them")


def with_columns(data: Joined) -> Joined:
    """Return a dataset in which the columns of a joined table are fields, all of them if no `set` says which."""
    for step in reversed(data.steps):
        if isinstance(step, SetFields):
            return data
        if isinstance(step, Join):
            return data.then(SetFields(None))
    return data


class _Plan(NamedTuple):
    """What is set in plain samples that have the same fields, and rows with the same columns.

    Attributes:
        simple: columns are contents of fields, and no more.
        columns: of each the field as the sample has it, and as it is set, the number of the column, whether the sample
            has the field, and whether any bytes and any text are its content as they are.
        choices: the fields of the sample that a row of a view places; None for all.
    """

    simple: bool
    columns: list[tuple[str, str, int, bool, bool]]
    choices: list[FieldChoice] | None

    @property
    def places(self) -> bool:
        """Whether fields of the sample that a row of a view places are set."""
        return self.choices != []


class FieldSetter:
    """Makes fields of the columns of rows, in one run."""

    def __init__(self, assignments: Sequence[Assignment] | None, policy: Policy, keeps_rows: bool = False) -> None:
        """With `keeps_rows` columns of a joined table are still values of the samples."""
        self._assignments = assignments
        self._policy = policy
        self._keeps_rows = keeps_rows
        self._by_names: dict[tuple[str, ...], list[Assignment]] = {}
        self._adds = assignments is None
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], _Plan] = {}
        self._latest: tuple[tuple[str, ...] | None, tuple[str, ...], _Plan] = None, (), _Plan(False, [], None)

    def apply(self, batches: Iterable[SampleBatch]) -> Iterator[SampleBatch]:
        """Yield the samples with their fields; rows that fields were made of are gone, if they are not kept."""
        emptied, first = 0, b""
        for batch in chain.from_iterable(map(self._together, batches)):
            if isinstance(batch, AlteredBatch) and batch.rows is None:
                yield batch
                continue
            for sample in batch:
                changed = self._changed(sample)
                if changed is None:
                    continue
                if changed is sample or changed.base is not None or any(map(key_of, changed.entries)):
                    yield changed
                else:
                    emptied, first = emptied + 1, first or sample.key or b""
        if emptied:
            counted = f"{emptied} samples, the first of them" if emptied > 1 else "1 sample,"
            self._policy.warn(f"no field is left of {counted} {show(first)}: left out")

    def _changed(self, sample: TarSample) -> TarSample | None:
        """Return a sample with its fields; None if the policy leaves it out. Raises TarkitError for a row."""
        row = sample.row
        if row is None or sample.key is None:
            return sample
        if isinstance(row, JoinedRow) and not row.place:
            sample.row = row if self._keeps_rows else row.before
            return sample
        sample.complete()
        try:
            return self._set(sample, row)
        except MalformedRow as error:
            line = f":{row.joined.table.row(row.place).line}" if isinstance(row, JoinedRow) else ""
            where = f"{_table_of(row)}{line}: {show(sample.key)}"
            raise TarkitError(f"{where}: {error}", error.hint) from None

    def _set(self, sample: TarSample, row: ViewRow) -> TarSample | None:
        """Return a sample with its new fields; None if the policy leaves it out."""
        changed = self._altered(sample, row) if isinstance(row, JoinedRow) and sample.plain else None
        if changed is None:
            changed = self._edited(sample, row)
        if changed is not None:
            if self._keeps_rows:
                changed.row = row
            elif isinstance(row, JoinedRow):
                changed.row, changed.left_out = row.before, row.joined.words
            else:
                changed.row = None
        return changed

    def _together(self, batch: SampleBatch) -> Iterable[SampleBatch]:
        """Return samples in parts: altered ones together, and others, which are looked at one by one."""
        rows = None if isinstance(batch, TarSample) else batch.rows
        if not isinstance(rows, JoinedRows) or self._keeps_rows:
            return (batch,)
        found = [rows.ahead.rows[number] for number in rows.numbers]
        sizes = [len(list(run)) for _, run in groupby(found, lambda row: row and row[1].names)]
        ends = zip(sizes, accumulate(sizes), strict=True)
        return [self._altered_batch(batch.part(end - size, end)) for size, end in ends]

    def _altered_batch(self, batch: SampleBatch) -> SampleBatch:
        """Return samples as `_altered` has them, of rows that all have the same columns; as they are if one differs."""
        rows, batch.rows = batch.rows, None
        assert isinstance(rows, JoinedRows)
        ahead, fields = rows.ahead, fields_of_all(batch)
        some = [found for number in rows.numbers if (found := ahead.rows[number]) is not None]
        if fields is not None and some:
            plan = self._plan_of(some[0][1].names, fields, ahead.joined)
            placed = [ahead.contents[number] for number in rows.numbers] if plan.places else ()
            columns = self._columns_of(plan, [found.cells for _, found in some], fields, placed)
            if columns is not None:
                arguments = [(plan, ahead.joined, number) for number, _ in some]
                names, contents, words = [*columns], [*columns.values()], ahead.joined.words
                return AlteredBatch(batch, fields, names, contents, self._put_together, arguments, words)
        batch.rows = rows  # type: ignore[assignment]
        return batch

    def _columns_of(
        self, plan: _Plan, rows: Sequence[Sequence[Any]], fields: tuple[str, ...], placed: Sequence[Contents]
    ) -> dict[str, Sequence[bytes]] | None:
        """Return what `_changes` does of many samples, in columns; None if one is not changed as the others are."""
        columns = dict[str, Sequence[bytes]]()
        if not plan.simple:
            return None
        for name, field, number, there, is_free in plan.columns:
            cells = [cells[number] for cells in rows]
            if None in cells or (there and self._adds):
                return None
            try:
                columns[name] = [_content(cell, field, is_free) for cell in cells]
            except (MalformedRow, TarkitError):
                return None  # it is raised when it is the turn of the sample
        if plan.places:
            known = {names for names, _ in placed}
            if len(known) > 1:
                return None
            added = dict(zip(known.pop(), zip(*(values for _, values in placed), strict=True), strict=True))
            added = added if plan.choices is None else _chosen_contents(added, plan.choices)
            if not added or not added.keys().isdisjoint((*fields, *columns)):
                return None
            columns |= added
        return columns

    def _altered(self, sample: TarSample, row: JoinedRow) -> TarSample | None:
        """Return a plain sample whose fields get contents of columns, or come from a plain sample; None for others."""
        found, fields = row.found, sample.plain_fields()
        plan = self._plan_of(found.names, fields, row.joined)
        if not (sample.base or sample.source.seekable):
            return None
        other, contents = None, dict[str, bytes]()
        if plan.places:
            other = row.plain_sample()
            contents = row.contents or ({} if other is None else other.plain_contents())
        changes = self._changes(plan, found.cells, fields, contents)
        if changes is None:
            return None
        return AlteredSample(sample, fields, changes, self._put_together, (plan, row.joined, row.place, other))

    def _changes(
        self, plan: _Plan, cells: Sequence[Any], fields: tuple[str, ...], placed: dict[str, bytes]
    ) -> dict[str, bytes] | None:
        """Return the contents that fields of a plain sample get; None if the sample is to be edited.

        Args:
            plan: what is set.
            cells: those of its row.
            fields: those that it has.
            placed: the contents of the sample that the row of a view places; none if they are not known.
        """
        if not plan.simple:
            return None
        changes: dict[str, bytes] = {}
        for name, field, number, there, is_free in plan.columns:
            cell = cells[number]
            if there and (cell is None or self._adds):
                return None
            if cell is not None:
                changes[name] = _content(cell, field, is_free)
        if not plan.places:
            return changes
        added = placed if plan.choices is None else _chosen_contents(placed, plan.choices)
        if not added or not added.keys().isdisjoint(fields) or not added.keys().isdisjoint(changes):
            return None
        return changes | added if changes else added

    def _plan_of(self, names: tuple[str, ...], fields: tuple[str, ...], joined: JoinedTable) -> _Plan:
        """Return what is set in samples with these fields, of rows of a table with these columns."""
        if names is not self._latest[0] or fields != self._latest[1]:
            plan = self._plans.get((names, fields)) or self._remember(names, fields, joined)
            self._latest = names, fields, plan
        return self._latest[2]

    def _put_together(
        self,
        sample: TarSample,
        changes: Mapping[str, bytes],
        plan: _Plan,
        joined: JoinedTable,
        number: int,
        other: TarSample | None = None,
    ) -> TarSample:
        """Return an altered sample as it is written; `other` is the sample that its row places, if it was read."""
        assert sample.key is not None
        edit = FieldEdit(sample, self._policy)
        for name, *_ in plan.columns:
            if name in changes:
                edit.put(os.fsencode(name), changes[name])
        if plan.places:
            other = other or joined.sample(number, sample.key)
            if other is not None and plan.choices is not None:
                other = with_names(other, sample.key, plan.choices, self._policy)
            if other is None:
                raise archive_changed(f"{joined.table.name}: {show(sample.key)}")
            edit.add(other)
        made = edit.done(self._adds)
        assert made is not None
        return made

    def _remember(self, names: tuple[str, ...], fields: tuple[str, ...], joined: JoinedTable) -> _Plan:
        """Return what is set in samples with these columns and fields, for the next one too."""
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        columns, choices = self._divided_joined(joined, names)
        new = [choice.new for choice in choices or ()]
        simple = len({*new}) == len(new)
        set_from = []
        for one in columns:
            if one.members or one.column not in names or one.column.startswith("@"):
                simple = False
                break
            there = spelled(fields, one.field)
            is_free = not holds_integer(one.field)
            set_from.append((there or one.field, one.field, names.index(one.column), there is not None, is_free))
        plan = self._plans[names, fields] = _Plan(simple, set_from, choices)
        return plan

    def _edited(self, sample: TarSample, row: ViewRow) -> TarSample | None:
        """Return any sample with its new fields; None if the policy leaves it out."""
        edit = FieldEdit(sample, self._policy)
        columns, choices = self._divided(row)
        documents = {one.field: edit.members(os.fsencode(one.field)) for one in columns if one.members}
        if edit.left_out:
            return None
        for one, content in assigned(columns, partial(_cell, row), documents.get):
            edit.put(os.fsencode(one.field), content)
        if isinstance(row, JoinedRow) and choices != []:
            assert sample.key is not None
            other = row.joined.sample(row.place, sample.key)
            if other is not None and choices is not None:
                other = self._chosen(other, sample.key, choices)
            if other is None:
                return None
            edit.add(other)
        return edit.done(self._adds)

    def _chosen(self, sample: TarSample, key: bytes, choices: list[FieldChoice]) -> TarSample | None:
        """Return a joined sample with these fields; None if the policy leaves it out."""
        try:
            return with_names(sample, key, choices, self._policy)
        except Problem as problem:
            if problem.name == "missing-field":
                skip, allow = spell_open("skip", problem.name), spell_open("allow", problem.name)
                problem.hint = f"{skip} leaves such samples out, {allow} keeps them without the field"
            raise

    def _divided(self, row: ViewRow) -> tuple[Sequence[Assignment], list[FieldChoice] | None]:
        """Return what is set from columns, and the fields of the sample that a row of a view places; None for all."""
        if isinstance(row, JoinedRow):
            return self._divided_joined(row.joined, row.found.names)
        if self._assignments is None:
            raise Usage(f"{spell('set')} needs words here: a view has all its columns as values")
        return self._assignments, []

    def _divided_joined(
        self, joined: JoinedTable, names: tuple[str, ...]
    ) -> tuple[Sequence[Assignment], list[FieldChoice] | None]:
        """Return the same for a row of a table, with these columns."""
        if joined.view is None:
            return self._assignments_for(joined.table, names), []
        if self._assignments is None:
            return (), None
        known = joined.table.names
        columns = [one for one in self._assignments if one.members or one.column in known]
        return columns, [
            FieldChoice(os.fsencode(one.field), (os.fsencode(one.column),))
            for one in self._assignments
            if not one.members and one.column not in known
        ]

    def _assignments_for(self, table: JoinTable, names: tuple[str, ...]) -> Sequence[Assignment]:
        """Return what is set of a row of a table, with these columns."""
        if self._assignments is not None:
            return self._assignments
        known = self._by_names.get(names)
        if known is None:
            known = self._by_names[names] = column_assignments(names, table.column)
        return known


def fields_of_all(batch: SampleBatch) -> tuple[str, ...] | None:
    """Return the fields that all samples of a batch have; None if they differ, or are not known."""
    if isinstance(batch, AlteredBatch):
        return batch.fields
    groups = groups_of(batch) if batch.source.seekable else None
    return tuple(map(field_names.__getitem__, groups[0].fields)) if groups and len(groups) == 1 else None


def _content(cell: Any, field: str, is_free: bool) -> bytes:
    """Return what `content_of` does, in less time for what is content as it is."""
    if is_free and type(cell) is bytes:
        return cell
    if is_free and type(cell) is str:
        return cell.encode("utf-8", "surrogateescape")
    return content_of(cell, field)


def _chosen_contents(contents: Mapping[str, Chosen], choices: list[FieldChoice]) -> dict[str, Chosen]:
    """Return contents of fields by their new names; none if a field is missing."""
    chosen = dict[str, Chosen]()
    for new, (old,) in choices:
        if (name := spelled(contents, os.fsdecode(old))) is None:
            return {}
        chosen[os.fsdecode(old if new is None else new)] = contents[name]
    return chosen


def column_assignments(names: Iterable[str], key_column: str) -> list[Assignment]:
    """Return what all columns of a table set, except that of keys and those with names such as `__key__`."""
    columns = [name for name in names if name != key_column and not (name.startswith("__") and name.endswith("__"))]
    return [assignment_of(name) for name in columns]


def _cell(row: ViewRow, column: str) -> Any:
    """Return a cell; None for null, ABSENT where the row of a table of JSON lines does not have the column.

    Raises:
        TarkitError: the table has no such column.
        MalformedRow: the source in a cell of a column `@FIELD` cannot be read.
    """
    cell = row.cell(column) if isinstance(row, JoinedRow) else row.value(column)
    if cell is ABSENT:
        source = row.cell(f"@{column}") if isinstance(row, JoinedRow) else ABSENT
        if source is not ABSENT:
            return _loaded(source)
        names = _names_of(row)
        if column not in names and f"@{column}" not in names:
            raise no_column(_table_of(row), column, names)
    elif column.startswith("@"):
        return _loaded(cell)
    return cell


def no_column(table: str, column: str, names: Iterable[str]) -> TarkitError:
    """Return the error of a word of `--set` that names no column of a table."""
    others = ", ".join(map(show, names)) or "none with values"
    return TarkitError(f"{spell('set')}: {table} has no column {show(column)}, it has {others}")


def _loaded(source: Any) -> bytes | None:
    """Return the content of a source: of a path, or a literal; None for null and an empty cell."""
    if not source:
        return None
    kind, value = parse_source(source if isinstance(source, bytes) else os.fsencode(str(source)), pipes_allowed=False)
    if kind == "data":
        return value
    if kind != "path":
        raise MalformedRow(f"{show(value)}: sources in a joined table are paths")
    with open(value, "rb") as file:
        return file.read()


def _names_of(row: ViewRow) -> Iterable[str]:
    return row.joined.table.names if isinstance(row, JoinedRow) else row.group.columns  # type: ignore[attr-defined]


def _table_of(row: ViewRow) -> str:
    return row.joined.table.name if isinstance(row, JoinedRow) else row.group.name  # type: ignore[attr-defined]
