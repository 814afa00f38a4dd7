"""A report: sections with tables, whose cells are text, numbers and bars. `text` and `report_page` draw it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Bar(NamedTuple):
    """A bar of this share of the whole width, from 0 to 1."""

    share: float


class Spark(NamedTuple):
    """A row of little bars, each of a share of the whole height."""

    shares: tuple[float, ...]


Cell = str | int | Bar | Spark


@dataclass
class Section:
    """A table under a title. Numbers stand at the right, all else at the left."""

    title: str
    heads: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    note: str = ""

    def numeric(self) -> set[int]:
        """The columns that hold numbers alone, with units perhaps."""
        columns = range(len(self.heads))
        return {place for place in columns if self.rows and all(_is_number(row[place]) for row in self.rows)}


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int) or (isinstance(cell, str) and _NUMBER.fullmatch(cell) is not None)


_NUMBER = re.compile(r"-|~?[0-9][0-9. ]*([kMGTPE]?B|%)?")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def amount(size: float) -> str:
    """Bytes for eyes, three digits and a unit: 999 B, 1.50 kB, 12.3 MB."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"


def share(part: float, whole: float) -> str:
    """A part of the whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def number(value: int) -> str:
    """A number with blanks between its thousands."""
    return f"{value:,}".replace(",", " ")
