"""Plans of shards and reports as plain text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tarkit.align import align
from tarkit.errors import printable
from tarkit.streams.location import ARCHIVE_SUFFIXES

if TYPE_CHECKING:
    from tarkit.display.report import Cell, Section

# ---- Plans of shards: the layout that `shard --dry-run` prints

_UNITS = ("KiB", "MiB", "GiB", "TiB")
_SUFFIXES = sorted(ARCHIVE_SUFFIXES, key=len, reverse=True)


def human_size(size: int) -> str:
    """Return bytes in binary units: `100B`, `30.00KiB`, `1.07MiB`."""
    if size < 1024:
        return f"{size}B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f}{_UNITS[unit]}"


def bare_name(name: str) -> str:
    """Return the name of a shard without its suffix."""
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def shard_lines(
    name: str, size: int, samples: Iterable[tuple[bytes, list[tuple[bytes, int, bytes]], int]], keys: bool
) -> Iterator[bytes]:
    """Yield lines: a shard and its size, below it `SHARD/ENTRY` with its bytes, before a sample its [key] with `keys`.

    Of each of `samples` there are its key, and names and sizes of its entries. Characters that would break a line are
    escaped as in tables.
    """
    from tarkit.tables.tsv import escape_tsv

    yield b"%b\t%b\n" % (escape_tsv(os.fsencode(name)), human_size(size).encode())
    front = escape_tsv(os.fsencode(bare_name(name)))
    for key, files, _ in samples:
        if keys:
            yield b"  [%b]\t\n" % escape_tsv(key)
        for entry, length, _ in files:
            yield b"    %b/%b\t%b\n" % (front, escape_tsv(entry), human_size(length).encode())


# ---- Reports

BAR = 30  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"


def report_lines(sections: Sequence[Section]) -> str:
    """Return a report as plain lines with aligned columns."""
    return "\n".join("\n".join(_section_lines(section)) + "\n" for section in sections)


def _section_lines(section: Section) -> Iterator[str]:
    yield section.title
    rows = [[cell_text(cell) for cell in row] for row in section.rows]
    if any(section.heads) or not rows:
        rows.insert(0, list(section.heads))
    for line in align(rows, section.numeric()):
        yield f"  {line}".rstrip()
    if section.note:
        yield f"  {section.note}"


def cell_text(cell: Cell) -> str:
    """Return a cell as text on one line."""
    from tarkit.display.report import Bar, Spark, number  # not loaded for samples

    if isinstance(cell, Bar):
        eighths = max(round(cell.share * BAR * 8), cell.share > 0)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    if isinstance(cell, Spark):
        return "".join(_LEVELS[max(round(share * 8), share > 0)] for share in cell.shares)
    return number(cell) if isinstance(cell, int) else printable(cell)
