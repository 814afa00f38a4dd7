"""Samples for a terminal: a panel each, with colours where they are wanted."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tarkit.dataset.look import Item, Seen
from tarkit.views.words import about_words, escaped, label_of, lines_of, safe, size_words

if TYPE_CHECKING:
    from rich.text import Text

LINES, TREE = 8, 14  # of a text, of JSON
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENS, _CLOSES = "{[", "}]"
_COLORS = {"picture": "magenta", "array": "cyan", "sound": "yellow", "text": "green"}
_FLAT = 60  # characters of a list or an object that stays on one line


def panel(seen: Seen, width: int, color: str | None) -> str:
    """A sample in a frame `width` columns wide; `color` is a colour system of rich (`truecolor`, `256`), or None."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, expand=True)
    table.add_column(style="bold", overflow="fold", max_width=max(12, width // 3))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    inner = max(20, width - 40)
    for item in seen.items:
        color_of = _COLORS.get(_family(item), "")
        table.add_row(Text(label_of(item)), size_words(item.size), Text(item.kind, color_of), _says(item, inner))
    title = Text(escaped(seen.key) if seen.key is not None else "no sample", "bold")
    where = Text(f"{safe(seen.archive)} at {seen.offset}", "dim")
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color is not None, color_system=color or None, highlight=False,  # type: ignore[arg-type]
        emoji=False, markup=False, legacy_windows=False, no_color=color is None,
    )  # fmt: skip
    console.print(Panel(table, title=title, title_align="left", subtitle=where, subtitle_align="right"))
    return out.getvalue()


def _family(item: Item) -> str:
    if "width" in item.about:
        return "picture"
    if "shape" in item.about or "arrays" in item.about:
        return "array"
    return "sound" if "rate" in item.about else "text" if item.text is not None else ""


def _says(item: Item, width: int) -> Text:
    from rich.text import Text

    said = Text(about_words(item), "yellow" if "named" in item.about else "")
    if item.text is not None:
        text = indented(item.text) if item.kind == "json" else item.text
        lines = lines_of(text, width, TREE) if item.kind == "json" else lines_of(text, 3 * width, LINES)
        if item.cut and lines[-1:] != ["\u2026"]:
            lines.append("\u2026")
        if said:
            said.append("\n")
        said.append("\n".join(lines), "" if item.kind == "json" else "green")
    return said


def indented(text: str) -> str:
    """JSON on several lines, token by token: nothing in it is changed, also if it is not whole.

    >>> print(indented('{"a":1.50,"b":[1,2]}'))
    {
      "a": 1.50,
      "b": [1, 2]
    }
    """
    return "".join(_laid_out(_TOKEN.findall(text))).strip()


def _laid_out(tokens: list[str]) -> Iterable[str]:
    """The tokens with blanks and line ends between them: what is short and flat stays on one line."""
    depth, at = 0, 0
    while at < len(tokens):
        token = tokens[at]
        if token in _OPENS and (flat := _flat(tokens, at)):
            yield flat[0]
            at = flat[1]
            continue
        at += 1
        if token in _OPENS:
            depth += 1
            yield token + "\n" + "  " * depth
        elif token in _CLOSES:
            depth = max(depth - 1, 0)
            yield "\n" + "  " * depth + token
        elif token == ",":
            yield ",\n" + "  " * depth
        else:
            yield ": " if token == ":" else token


def _flat(tokens: list[str], at: int) -> tuple[str, int] | None:
    """A list or object of plain values that is short, and where it ends. The outermost is none, but if it is a list."""
    words, first = "", tokens[at]
    for place in range(at, min(at + _FLAT, len(tokens))):
        token = tokens[place]
        if place > at and token in _OPENS:
            return None
        words += ", " if token == "," else ": " if token == ":" else token
        if len(words) > _FLAT:
            return None
        if token in _CLOSES:
            return None if at == 0 and first == "{" and place > at + 1 else (words, place + 1)
    return None
