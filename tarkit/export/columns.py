"""A table of samples: which columns it has, and its rows. Iterators in, iterators out; one row is held at a time.

A column is a field, or a name that `values` knows: `cls`, `json.label`, `size.jpg`, `width.jpg`, `shard`, `offset`.
`a;b` is the first that a sample has, `new:a` or `new:a,b` gives a name to the column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import Problem, Usage, show
from tarkit.problems import Policy
from tarkit.samples.fields import OnMissing, parse_choices, pass_missing
from tarkit.samples.sample import TarSample
from tarkit.samples.values import Name, View
from tarkit.tar.reader import Raw

CELL = 16 << 20  # bytes of a field that may be a cell
SHORT = 1 << 16  # of a field that is a column without being asked for

KEY = "__key__"


class Missing:
    """Sentinel for a missing cell."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()
Row = list[Any]  # bytes of a field or of a name; numbers, text and what JSON has, of a path; MISSING


class Column(NamedTuple):
    """One column: the word at its head, and the names that are looked for, the first that a sample has counts."""

    head: str
    names: tuple[Name, ...]

    @property
    def is_name(self) -> bool:
        """Whether its bytes are those of a name, and not of content."""
        return self.names[0].is_name

    def cell(self, view: View) -> Any:
        """What the sample has for it. Raises Problem: `missing-field`, `bad-field`, `sparse-entry`."""
        for name in self.names[:-1]:
            if name.present(view):
                return name.cell(view, CELL)
        return self.names[-1].cell(view, CELL)


def parse_columns(text: str) -> list[Column]:
    """Return the columns of `'cls json.label first:a,b c;d'`.

    Raises:
        Usage: it is not of this form.
    """
    choices = parse_choices(text, "column", "NAME, A;B, NEW:NAME or NEW:A,B", ";,")
    return [Column(new or names[0], tuple(map(Name, names))) for new, names in choices]


def checked(columns: Sequence[Column]) -> list[Column]:
    """The same columns; raises Usage when two have one head, or `create` would take one for a list of sources."""
    heads = [column.head for column in columns]
    for head in heads:
        if heads.count(head) > 1:
            raise Usage(f"two columns are called {show(head)}", f"name one of them: 'new:{head}'")
        if head.startswith("@"):
            raise Usage(f"{show(head)}: a column that begins with @ would be one of sources", f"'x{head[1:]}:{head}'")
    return list(columns)


def usual(view: View | None) -> list[Column]:
    """The columns where none is asked for: of the first sample, each short text, and of what is none the size."""
    columns = []
    for name, raw in view.fields.items() if view else ():
        text = os.fsdecode(name)
        if name not in (b"", KEY.encode()) and not text.startswith("@"):
            exact = Name(text, exact=True) if _is_text(view, name, raw) else Name(f"size.{text}")
            columns.append(Column(exact.text, (exact,)))
    return columns


def _is_text(view: View | None, name: bytes, raw: Raw) -> bool:
    assert view is not None
    try:
        content = view.content(name, raw, SHORT)
        content.decode("utf-8")
    except (Problem, ValueError):
        return False
    return b"\0" not in content


@dataclass
class Table:
    """The columns of a table, and what to do about samples that lack one.

    After the rows, `outside` counts samples with fields that no column is about, where columns were not asked for;
    `example` names one.
    """

    columns: list[Column]
    policy: Policy
    on_missing: OnMissing = "error"
    complete: bool = True
    outside: int = 0
    example: str = ""
    _known: frozenset[bytes] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls,
        columns: list[Column] | None,
        samples: Iterator[TarSample],
        policy: Policy,
        on_missing: OnMissing,
        key: bool,
    ) -> tuple[Table, Iterator[tuple[TarSample, Row]]]:
        """The table and its rows; without `columns` the first sample says them. With `key` it has one for that."""
        first: list[TarSample] = []
        known: frozenset[bytes] = frozenset()
        asked = columns is not None
        if columns is None:
            first = [sample for sample in (next(samples, None),) if sample is not None]
            view = View(first[0]) if first else None
            columns = usual(view)
            known = frozenset(view.fields) if view else known
            on_missing = "keep"
        if key and not any(column.head == KEY for column in columns):
            columns = [Column(KEY, (Name(KEY),)), *columns]
        table = cls(checked(columns), policy, on_missing, asked, _known=known)
        return table, table._rows(first, samples)

    @property
    def heads(self) -> list[str]:
        """The words at the heads of the columns."""
        return [column.head for column in self.columns]

    def _rows(self, first: list[TarSample], samples: Iterator[TarSample]) -> Iterator[tuple[TarSample, Row]]:
        cells = [column.cell if len(column.names) > 1 else _single(column.names[0]) for column in self.columns]
        for group in (iter(first), samples):
            for sample in group:
                view = View(sample)
                if not (self.complete or view.fields.keys() <= self._known):
                    self._note(view)
                try:
                    yield sample, [cell(view) for cell in cells]
                except Problem:
                    row = self._careful(view)
                    if row is not None:
                        yield sample, row

    def _careful(self, view: View) -> Row | None:
        """The row of a sample that has not got all of it, None when it is left out."""
        row: Row = []
        for column in self.columns:
            try:
                row.append(column.cell(view))
            except Problem as problem:
                if problem.name == "missing-field":
                    if not pass_missing(problem, self.on_missing, self.policy):
                        return None
                elif self.policy.judge(problem) == "drop":
                    return None
                row.append(MISSING)
        return row

    def _note(self, view: View) -> None:
        self.outside += 1
        if not self.example:
            other = next(name for name in view.fields if name not in self._known)
            self.example = f"{show(other)} of {show(view.sample.key or b'')}"


def _single(name: Name) -> Any:
    return lambda view: name.cell(view, CELL)
