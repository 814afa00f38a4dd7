"""A table of samples: its columns and rows. Rows are an iterator; one row is held at a time.

A column is a field or another name of `values`: `cls`, `json.label`, `size.jpg`, `width.jpg`, `shard`, `offset`.
`a;b` is the first one present in a sample; `new:a` or `new:a,b` names the column. `*` is all fields of the first
sample.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple

from tarkit.errors import Problem, TarkitError, Usage, show, spell
from tarkit.problems import Policy
from tarkit.samples.columns import SameFields, groups_of
from tarkit.samples.fields import OnMissing, parse_choices, pass_missing
from tarkit.samples.lookup import FieldLookup, is_unicode
from tarkit.samples.names import spelled
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.samples.values import Name
from tarkit.tables.vectors import CELL as CELL_FORM
from tarkit.tables.vectors import FAILURES
from tarkit.tar.reader import Entry

CELL = 16 << 20  # maximum size of a field in a cell, in bytes
SHORT = 1 << 16  # maximum size of a field that is a column by default

KEY, EVERY = "__key__", "*"
FEATURES = {"picture": "Image", "sound": "Audio"}  # kinds of values, and the types of Hugging Face
TableFormat = Literal["tsv", "csv", "jsonl", "json", "yaml", "parquet"]


class Missing:
    """Sentinel for a missing cell."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()
Row = list[Any]  # bytes of a field or of a name; the value of a path into JSON; MISSING
Rows = Sequence[Sequence[Any]]  # several, which are not changed


class MediaCell(NamedTuple):
    """A picture or a sound in a cell, and the name of its entry; None for a name that is not UTF-8."""

    content: bytes
    path: str | None


class Column(NamedTuple):
    """One column: its heading, and alternative names, of which the first one present in a sample is used.

    Attributes:
        exact: whether a field is spelled as the name is.
        of: gives the cell of a sample, in place of names.
        feature: `Image` or `Audio` if its cells are a `MediaCell`, else empty.
        kind: the type of its cells in Parquet, such as `int64`; empty for that of the first rows.
    """

    head: str
    names: tuple[Name, ...]
    exact: bool = False
    feature: str = ""
    kind: str = ""
    of: Callable[[TarSample], Any] | None = None

    @property
    def is_name(self) -> bool:
        """Whether its cells are names (a key, a shard) and not content."""
        return self.of is not None or self.names[0].is_name

    @property
    def columnar(self) -> bool:
        """Whether its cells may be made for many samples together."""
        return self.of is None and not self.feature and all(name.columnar for name in self.names)

    @property
    def needs_more(self) -> bool:
        """Whether its cell is more than the value of its only name."""
        return self.exact or bool(self.feature) or len(self.names) != 1

    def cell(self, lookup: FieldLookup) -> Any:
        """Return the cell of a sample.

        Raises:
            Problem: `missing-field`, `bad-field`, `sparse-entry`.
        """
        if self.of is not None:
            return self.of(lookup.sample)
        name = next((name for name in self.names[:-1] if name.present(lookup)), self.names[-1])
        if self.exact and name.field not in lookup.fields:
            raise lookup.missing(name.text)
        cell = name.cell(lookup, CELL)
        return _media_cell(lookup, name, cell) if self.feature and isinstance(cell, bytes) else cell


def _media_cell(lookup: FieldLookup, name: Name, content: bytes) -> MediaCell:
    entry = lookup.find(name.field)
    path = "" if entry is None else os.fsdecode(entry[0])
    return MediaCell(content, path if path and is_unicode(path) else None)


def with_features(columns: Sequence[Column]) -> list[Column]:
    """Return columns whose cells are a `MediaCell` where all names are those of pictures, or all of sounds."""
    from tarkit.media.coding import Coder, is_compressed

    coder, result = Coder(), []
    for column in columns:
        kinds = {
            coder.kind(name.text) if name.may_be_field and not is_compressed(name.text) else None
            for name in column.names
        }
        names = {FEATURES.get(kind.name, "") if kind else "" for kind in kinds}
        result.append(column._replace(feature=names.pop() if len(names) == 1 else ""))
    return result


def parse_columns(text: str) -> list[Column]:
    """Return the columns of `'cls json.label first:a,b c;d'`.

    Raises:
        Usage: the text has another form.
    """
    choices = parse_choices(text, "column", "NAME, A;B, NEW:NAME or NEW:A,B", ";,")
    return [Column(new or names[0], tuple(map(Name, names))) for new, names in choices]


def checked(columns: Sequence[Column]) -> list[Column]:
    """Return the columns unchanged.

    Raises:
        Usage: two have the same heading, or a heading begins with @, which marks a column of sources for `create`.
    """
    heads = [column.head for column in columns]
    for head in heads:
        if heads.count(head) > 1:
            raise Usage(f"two columns are named {show(head)}", f"rename one of them: 'new:{head}'")
        if head.startswith("@"):
            raise Usage(f"invalid column {show(head)}: @ marks a column of sources", f"'x{head[1:]}:{head}'")
    return list(columns)


def check_heads(columns: Sequence[Column], format: TableFormat) -> None:
    """Raise TarkitError for a heading that the format cannot write: YAML and Parquet have names in UTF-8 alone."""
    for column in columns:
        if format in ("yaml", "parquet") and any("\udc80" <= char <= "\udcff" for char in column.head):
            hint = f"{spell('format', 'jsonl')} writes any name, {spell('columns')} chooses columns"
            raise TarkitError(f"column {show(column.head)}: its name is not UTF-8, as {format} requires", hint)


def usual(lookup: FieldLookup | None) -> list[Column]:
    """Return the default columns: each field of the first sample that is a short text, and the size of any other."""
    columns = []
    for name, raw in lookup.fields.items() if lookup is not None else ():
        text = os.fsdecode(name)
        if lookup is not None and name not in (b"", KEY.encode()) and not text.startswith("@"):
            exact = Name(text, exact=True) if _is_text(lookup, name, Entry._make(raw)) else Name(f"size.{text}")
            columns.append(Column(exact.text, (exact,)))
    return columns


def _with_every(columns: Sequence[Column], lookup: FieldLookup | None) -> list[Column]:
    """Return columns with all fields of the first sample in place of `*`, but for those that have a column.

    Raises:
        TarkitError: a field whose name cannot be that of a column.
    """
    taken = {column.head for column in columns}
    every = []
    for name in lookup.fields if lookup is not None else ():
        text = os.fsdecode(name)
        if text in ("", KEY) or text.startswith("@"):
            raise TarkitError(f"field {show(text)}: no column can have this name", spell("drop", text))
        if text not in taken:
            every.append(Column(text, (Name(text, exact=True),), exact=True))
    return [each for column in columns for each in (every if column.head == EVERY else [column])]


def _is_text(lookup: FieldLookup, name: bytes, entry: Entry) -> bool:
    try:
        content = lookup.content(name, entry, SHORT)
        content.decode("utf-8")
    except (Problem, ValueError):
        return False
    return b"\0" not in content


class Table:
    """The columns of a table, and its rows.

    Attributes:
        columns: the columns: the default ones are those of the first sample.
        outside: with default columns, the number of samples so far with fields that have no column; with `*` such a
            field is an error.
        example: such a field.
    """

    def __init__(
        self,
        columns: list[Column] | None,
        batches: Iterator[SampleBatch],
        policy: Policy,
        on_missing: OnMissing,
        key: bool,
    ) -> None:
        """Read the first sample, if there are no `columns` or one is `*`.

        Args:
            columns: the columns; None for the default columns.
            batches: the samples.
            policy: decides about problems.
            on_missing: the treatment of samples that lack a column; default columns may be missing.
            key: add a column of keys if there is none.
        """
        self.outside, self.example = 0, ""
        self._policy, self._on_missing, self._batches = policy, on_missing, batches
        self._fields: frozenset[bytes] | None = None  # those that have default columns
        self._every = columns is not None and any(column.head == EVERY for column in columns)
        if columns is None or self._every:
            first = next(batches, None)
            lookup = None if first is None else FieldLookup(next(iter(first)))
            columns = usual(lookup) if columns is None else _with_every(columns, lookup)
            self._fields, self._on_missing = frozenset(lookup.fields if lookup else ()), "keep"
            self._batches = batches if first is None else chain((first,), batches)
        if key and not any(column.head == KEY for column in columns):
            columns = [Column(KEY, (Name(KEY),)), *columns]
        self.columns = checked(columns)

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows of samples that are not left out, in blocks."""
        columns, cells = (
            self.columns,
            [column.cell if column.needs_more else _single(column.names[0]) for column in self.columns],
        )
        columnar = all(column.columnar for column in columns)
        for batch in self._batches:
            block = self._together(batch) if columnar and not isinstance(batch, TarSample) else None
            if block is not None:
                yield block
                continue
            for sample in batch:
                row = self._row(sample, cells)
                if row is not None:
                    yield [row]

    def _row(self, sample: TarSample, cells: Sequence[Callable[[FieldLookup], Any]]) -> Row | None:
        """Return the row of a sample, of which `cells` gives the cells; None if it is left out."""
        lookup, fields = FieldLookup(sample), self._fields
        if fields is not None and not lookup.fields.keys() <= fields:
            self._note(lookup, fields)
        try:
            return [cell(lookup) for cell in cells]
        except Problem:
            return self._careful(lookup)

    def _together(self, batch: SampleBatch) -> Rows | None:
        """Return the rows of plain samples, as `_row` makes them one by one; None if one has to be looked at."""
        groups = groups_of(batch)
        if groups is None or not all(self._fields is None or self._fields.issuperset(each.fields) for each in groups):
            return None
        absent, rows = 0, list[Any]([()]) * batch.count
        try:
            for group in groups:
                cells = [self._cells(column, group) for column in self.columns]
                absent += group.count * cells.count(None)
                vectors = [repeat(MISSING, group.count) if column is None else column for column in cells]
                for number, row in zip(group.numbers, zip(*vectors, strict=True), strict=True):
                    rows[number] = row
        except FAILURES:
            return None
        if absent:
            self._policy.counts["missing-field"] += absent
        return rows

    def _cells(self, column: Column, group: SameFields) -> Iterable[Any] | None:
        """Return the cells of a column for samples with the same fields; None if they are missing and that is kept.

        Raises one of FAILURES if a cell may be a problem.
        """
        *others, last = column.names
        name = next((name for name in others if group.has(name)), last)
        if self._on_missing == "keep" and not (name.field in group.fields if column.exact else group.has(name)):
            return None
        if column.exact and name.field not in group.fields:
            raise KeyError(name.text)
        return group.get(name, CELL_FORM).values

    def _careful(self, lookup: FieldLookup) -> Row | None:
        """Return the row of a sample that lacks a cell, None if it is left out."""
        row: list[Any] = []
        for column in self.columns:
            try:
                row.append(column.cell(lookup))
            except Problem as problem:
                if problem.name == "missing-field":
                    if not pass_missing(problem, self._on_missing, self._policy):
                        return None
                elif self._policy.apply(problem) == "drop":
                    return None
                row.append(MISSING)
        return row

    def _note(self, lookup: FieldLookup, fields: frozenset[bytes]) -> None:
        """Count a sample that has a field without a column; with `*` raise TarkitError."""
        if self._every:
            name = next(name for name in lookup.fields if name not in fields)
            where = f"{lookup.sample.source.name}: {show(lookup.sample.key or b'')} has the field {show(name)}"
            hint = f"{spell('columns', 'FIELDS')} with {spell('on_missing', 'keep')}: tarkit stats names all fields"
            raise TarkitError(f"{where}, which the first sample has not: {EVERY} is the fields of that one", hint)
        others = lookup.fields.keys() - {spelled(lookup.fields, name) for name in fields}
        self.outside += bool(others)
        if others and not self.example:
            other = next(name for name in lookup.fields if name in others)
            self.example = f"{show(other)} of {show(lookup.sample.key or b'')}"


def _single(name: Name) -> Any:
    return lambda lookup: name.cell(lookup, CELL)
