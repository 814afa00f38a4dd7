"""Rows of a view, each with the values of one sample, which are read when one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, overload


class RowValues(Protocol):
    """The values of some rows of a view.

    Attributes:
        name: the view, for messages.
        columns: the names of the columns.
    """

    name: str
    columns: frozenset[str]

    def value(self, column: str, row: int) -> Any:
        """Return the value of a column in a row, as Python has it; ABSENT if there is no such column."""

    def column(self, column: str) -> Any:
        """Return a column as an array of Arrow, or a chunked one."""


class StoredRow(NamedTuple):
    """A row of a view: the group and its number there."""

    group: RowValues
    number: int

    @property
    def has_values(self) -> bool:
        """Whether there are columns with values."""
        return bool(self.group.columns)

    def value(self, column: str) -> Any:
        """Return the value of a column; ABSENT if there is no such column."""
        return self.group.value(column, self.number)

    def after(self, count: int) -> StoredRow:
        """Return the row that comes `count` rows later in the group."""
        return StoredRow(self.group, self.number + count)

    @property
    def stored(self) -> StoredRow:
        """The row itself."""
        return self

    @property
    def added(self) -> None:
        """None: there is no joined table."""
        return


class RowRange(Sequence[StoredRow]):
    """Rows of a group that follow each other, each made when it is asked for."""

    def __init__(self, group: RowValues, first: int, count: int) -> None:
        self.group, self.first, self._count = group, first, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> StoredRow: ...
    @overload
    def __getitem__(self, number: slice) -> RowRange: ...
    def __getitem__(self, number: int | slice) -> StoredRow | RowRange:
        numbers = range(self.first, self.first + self._count)[number]
        if isinstance(numbers, range):
            return RowRange(self.group, numbers.start, len(numbers))
        return StoredRow(self.group, numbers)
