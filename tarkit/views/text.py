"""A report as text: plain lines, or with colours and rules for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.errors import printable
from tarkit.views.report import Bar, Cell, Section, Spark, number

WIDTH = 30  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"


def plain(sections: Sequence[Section]) -> str:
    """As plain lines, columns below one another."""
    return "\n".join("\n".join(_lines(section)) + "\n" for section in sections)


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    rows = [[drawn(cell) for cell in row] for row in section.rows]
    if any(section.heads) or not rows:
        rows.insert(0, list(section.heads))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = section.numeric()
    for row in rows:
        cells = (
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield ("  " + "  ".join(cells)).rstrip()
    if section.note:
        yield f"  {section.note}"


def drawn(cell: Cell) -> str:
    """A cell as text on one line."""
    if isinstance(cell, Bar):
        eighths = max(round(cell.share * WIDTH * 8), cell.share > 0)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    if isinstance(cell, Spark):
        return "".join(_LEVELS[max(round(each * 8), each > 0)] for each in cell.shares)
    return number(cell) if isinstance(cell, int) else printable(cell)


def coloured(sections: Sequence[Section], width: int) -> str:
    """For a terminal of that width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width, force_terminal=True, highlight=False)
    with console.capture() as capture:
        for section in sections:
            right = section.numeric()
            title = Text(section.title, "bold green")
            table = Table(title=title, title_justify="left", box=None, padding=(0, 0, 0, 2), pad_edge=True)
            table.show_header = any(section.heads)
            for place, head in enumerate(section.heads):
                justify: Any = "right" if place in right else "left"
                table.add_column(Text(head, "dim"), justify=justify, overflow="fold", no_wrap=place in right)
            for row in section.rows:
                table.add_row(*(Text(drawn(cell), "cyan" if isinstance(cell, (Bar, Spark)) else "") for cell in row))
            console.print(table)
            console.print(Text(f"  {section.note}\n" if section.note else "", "dim"))
    return capture.get()
