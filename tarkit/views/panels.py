"""Samples for a terminal: a panel each, with colours where they are wanted."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tarkit.inspecting.item import Item, Seen
from tarkit.views.words import ELLIPSIS, about_words, escaped, label_of, lines_of, safe, size_words

if TYPE_CHECKING:
    from rich.text import Text

LINES, TREE = 8, 14  # of a text, of JSON
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENS, _CLOSES = "{[", "}]"
_COLORS = {"picture": "magenta", "array": "cyan", "sound": "yellow", "text": "green"}
NARROW = 24  # columns that what an item says needs beside its size and kind
_FLAT = 60  # characters of a list or an object that stays on one line


def panel(seen: Seen, width: int, color: str | None) -> str:
    """A sample in a frame `width` columns wide; `color` is a colour system of rich (`truecolor`, `256`), or None."""
    from rich.cells import cell_len, chop_cells
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    key = escaped(seen.key) if seen.key is not None else "no sample"
    archive, at = safe(seen.archive), f" at {seen.offset}"
    room = width - 8 - len(at)
    if cell_len(archive) > room:  # the end of a path says more than its beginning
        archive = ELLIPSIS + archive[len(archive) - max(room // 2, 1) :]
    long = cell_len(key) > width - 8
    title, where = Text(ELLIPSIS if long else key, "bold"), Text(archive + at, "dim")
    heads = [Text(piece, "bold") for piece in chop_cells(key, width - 4)] if long else []
    body = Text("\n").join([*heads, *_rows(seen.items, width - 4)])
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color is not None, color_system=color or None, highlight=False,  # type: ignore[arg-type]
        emoji=False, markup=False, legacy_windows=False, no_color=color is None,
    )  # fmt: skip
    console.print(Panel(body, title=title, title_align="left", subtitle=where, subtitle_align="right"))
    return out.getvalue()


def _rows(items: Sequence[Item], width: int) -> Iterator[Text]:
    """Lines for each item, in columns; what it says stands beside them, or below them where that is too narrow."""
    from rich.cells import cell_len, chop_cells
    from rich.text import Text

    rows = [(chop_cells(label_of(item), max(12, width // 3)), size_words(item.size), item) for item in items]
    first = max((cell_len(label[0]) for label, _, _ in rows), default=0)
    second = max((len(size) for _, size, _ in rows), default=0)
    third = max((len(item.kind) for item in items), default=0)
    left = first + second + third + 6
    beside = width - left >= NARROW
    indent, room = (left, width - left) if beside else (2, width - 2)
    for label, size, item in rows:
        for piece in label[:-1]:  # a long name takes several lines
            yield Text(piece, "bold")
        line = Text(label[-1] + " " * (first - cell_len(label[-1])), "bold")
        line.append(f"  {size:>{second}}  ", "not bold")
        line.append(f"{item.kind:<{third}}", f"not bold {_COLORS.get(_family(item), '')}")
        says = [(piece, style) for text, style in _says(item, room) for piece in chop_cells(text, room) or [""]]
        if says and beside:
            piece, style = says.pop(0)
            line.append("  ").append(piece, f"not bold {style}")
        yield line
        for piece, style in says:
            yield Text(" " * indent).append(piece, style)


def _family(item: Item) -> str:
    if "width" in item.about:
        return "picture"
    if "shape" in item.about or "arrays" in item.about:
        return "array"
    return "sound" if "rate" in item.about else "text" if item.text is not None else ""


def _says(item: Item, width: int) -> Iterator[tuple[str, str]]:
    """Lines of what an item says, each with its style: its header, then its text."""
    if about := about_words(item):
        yield about, "yellow" if "named" in item.about else ""
    if item.text is None:
        return
    if item.kind == "json":
        lines, style = lines_of(indented(item.text), width, TREE), ""
    else:
        lines, style = lines_of(item.text, 3 * width, LINES), "green"
    if item.cut and not lines[-1].endswith(ELLIPSIS):
        lines.append(ELLIPSIS)
    for line in lines:
        yield line, style


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
