"""A report as one self-contained HTML page: no script, nothing from the network, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tarkit.errors import printable
from tarkit.views.report import Bar, Cell, Section, Spark, number

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --paper: #fff; --line: #d5d9de; --soft: #667; --bar: #2a6fb0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --paper: #15181b; --line: #363c42; --soft: #9aa3ab; --bar: #6fb1ea; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; min-width: 5.5rem; }
th { color: var(--soft); font-weight: 500; } th.n, td.n { text-align: right; white-space: nowrap; min-width: 0;
  font-variant-numeric: tabular-nums; }
.bar { width: clamp(6rem, 25vw, 16rem); }
.bar i { display: block; height: .8rem; background: var(--bar); border-radius: 2px; }
svg { fill: var(--bar); vertical-align: middle; } p { color: var(--soft); margin: .3rem 0; }
"""


def page(title: str, sections: Sequence[Section]) -> str:
    """The page. All text is escaped."""
    body = "".join(map(_section, sections))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_safe(title)}</h1>\n{body}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    right = section.numeric()
    heads = ""
    if any(section.heads):
        marked = (f"<th{_class(place in right)}>{_safe(head)}</th>" for place, head in enumerate(section.heads))
        heads = f"<tr>{''.join(marked)}</tr>\n"
    rows = "".join(
        f"<tr>{''.join(_cell(cell, place in right) for place, cell in enumerate(row))}</tr>\n" for row in section.rows
    )
    note = f"<p>{_safe(section.note)}</p>\n" if section.note else ""
    return f'<h2>{_safe(section.title)}</h2>\n<div class="wide"><table>\n{heads}{rows}</table></div>\n{note}'


def _class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(cell: Cell, is_number: bool) -> str:
    if isinstance(cell, Bar):
        return f'<td class="bar"><i style="width: {100 * cell.share:.2f}%"></i></td>'
    if isinstance(cell, Spark):
        bars = "".join(
            f'<rect x="{5 * place}" y="{20 - 20 * each:.1f}" width="4" height="{20 * each:.1f}"/>'
            for place, each in enumerate(cell.shares)
        )
        return f'<td><svg width="{5 * len(cell.shares)}" height="20" aria-hidden="true">{bars}</svg></td>'
    return f"<td{_class(is_number)}>{_safe(number(cell) if isinstance(cell, int) else cell)}</td>"


def _safe(text: str) -> str:
    return escape(printable(text))
