"""Samples, reports and rows of pictures for a terminal, with optional colours.

Pictures are drawn in the four ways that terminals have: kitty, iTerm2, sixel, and blocks anywhere. A row is one picture
for those that take real ones, so pictures stand side by side whatever the protocol does with the cursor. Sources: kitty
"Terminal graphics protocol"; iTerm2 "Inline Images Protocol"; DEC STD 070, chapter 9 (sixel).
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tarkit.align import cells
from tarkit.display.labels import captions_of, labels_of
from tarkit.display.pictures import Undrawn, encoded, is_picture, thumbnail
from tarkit.display.text import cell_text
from tarkit.samples.items import Item, SampleItems
from tarkit.samples.items_text import (
    ELLIPSIS,
    about_words,
    escaped,
    indented,
    label_of,
    lines_of,
    one_line,
    safe,
)
from tarkit.sizes import size_words

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.text import Text

    from tarkit.display.report import Section

# ---- A panel for each sample

TEXT_LINES, JSON_LINES = 8, 14
NARROW = 24  # columns for the facts of an item beside its size and kind
_COLORS = {"picture": "magenta", "array": "cyan", "sound": "yellow", "text": "green"}


def panel(seen: SampleItems, width: int, color: str | None) -> str:
    """Return a sample in a frame `width` columns wide; `color` is a colour system of rich or None."""
    from rich.cells import chop_cells
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    key = escaped(seen.key) if seen.key is not None else "no sample"
    archive, at = safe(seen.archive), f" at {seen.offset}"
    room = width - 8 - len(at)
    if cells(archive) > room:  # the end of a path says more than its beginning
        archive = ELLIPSIS + archive[len(archive) - max(room // 2, 1) :]
    long = cells(key) > width - 8
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
    """Yield lines for each item, in columns; a narrow frame has header and text below them."""
    from rich.cells import chop_cells
    from rich.text import Text

    rows = [(chop_cells(label_of(item), max(12, width // 3)), size_words(item.size), item) for item in items]
    first = max((cells(label[0]) for label, _, _ in rows), default=0)
    second = max((len(size) for _, size, _ in rows), default=0)
    third = max((len(item.kind) for item in items), default=0)
    margin = first + second + third + 6
    beside = width - margin >= NARROW
    indent, room = (margin, width - margin) if beside else (2, width - 2)
    for label, size, item in rows:
        for piece in label[:-1]:  # a long name takes several lines
            yield Text(piece, "bold")
        line = Text(label[-1] + " " * (first - cells(label[-1])), "bold")
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
    if about := about_words(item):
        yield about, "yellow" if "named" in item.about else ""
    if item.text is None:
        return
    if item.kind == "json":
        lines, style = lines_of(indented(item.text), width, JSON_LINES), ""
    else:
        lines, style = lines_of(item.text, 3 * width, TEXT_LINES), "green"
    if item.cut and not lines[-1].endswith(ELLIPSIS):
        lines.append(ELLIPSIS)
    for line in lines:
        yield line, style


# ---- A report


def coloured(sections: Sequence[Section], width: int) -> str:
    """Return a report for a terminal of that width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tarkit.display.report import Bar, Spark

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
                table.add_row(
                    *(Text(cell_text(cell), "cyan" if isinstance(cell, (Bar, Spark)) else "") for cell in row)
                )
            console.print(table)
            console.print(Text(f"  {section.note}\n" if section.note else "", "dim"))
    return capture.get()


# ---- Rows of pictures

Graphics = Literal["kitty", "iterm", "sixel", "blocks"]
Colors = Literal["truecolor", "256", "none"]

WIDTH = 36  # columns that a picture has about
GAP = 2
CAPTION = 3  # lines of captions below a picture
_CHUNK = 4096  # characters that kitty takes at once
_GREY = " .:-=+*#%@"


class Cell(NamedTuple):
    """Width and height of a character in pixels."""

    width: int = 10
    height: int = 20


Style = Literal["", "bold", "dim", "cyan"]


class Drawn(NamedTuple):
    """A picture (None: it could not be drawn) and the lines below it, each with its style."""

    image: Image | None
    below: Sequence[tuple[str, Style]]


class PictureRows:
    """Rows of pictures that have the width of a terminal."""

    def __init__(
        self, width: int, graphics: Graphics, colors: Colors, cell: Cell, class_names: Sequence[str] = ()
    ) -> None:
        self.count = max(1, round((width + GAP) / (WIDTH + GAP)))  # pictures in a row
        self.columns = (width + GAP) // self.count - GAP  # of a picture
        self.graphics, self.colors, self.cell = graphics, colors, cell
        self.without = 0  # samples that have no picture
        self._names = class_names
        self._new: list[tuple[Image | None, str]] = []
        self._waiting: list[Drawn] = []

    @property
    def room(self) -> tuple[int, int]:
        """The most pixels that a thumbnail may have: two to a character for blocks."""
        lines = self.columns * 5 // 12
        if self.graphics == "blocks":
            return self.columns, 2 * lines
        return self.columns * self.cell.width, lines * self.cell.height

    def take(self, item: Item) -> None:
        """Take in the picture of an item, if it is one, while its bytes can be read."""
        if not is_picture(item):
            return
        try:
            image = thumbnail(item, *self.room)
            self._new.append((image, f"{label_of(item)} {about_words(item)}"))
        except Undrawn as error:
            self._new.append((None, f"{label_of(item)}: {error}"))

    def add(self, seen: SampleItems, by: tuple[str, str] | None = None) -> str:
        """Return the rows that are complete with a sample whose pictures were taken in; `by` is its class."""
        labels = [label.name for label in labels_of(seen, self._names, by)]
        captions = [caption.text for caption in captions_of(seen)]
        self.without += not self._new
        new, self._new = self._new, []
        rows = ""
        for image, about in new:
            self._waiting.append(Drawn(image, self._below(escaped(seen.key or b""), labels, captions, about)))
            if len(self._waiting) == self.count:
                rows += self.rest()
        return rows

    def rest(self) -> str:
        """Return the row that is not complete."""
        row, self._waiting = self._waiting, []
        return self.row(row) if row else ""

    def row(self, pictures: Sequence[Drawn]) -> str:
        """Return pictures side by side, and below them their lines."""
        lines = self._blocks(pictures) if self.graphics == "blocks" else self._strip(pictures)
        for place in range(max(len(picture.below) for picture in pictures)):
            columns = (
                self._line(*picture.below[place]) if place < len(picture.below) else self._line()
                for picture in pictures
            )
            lines += (" " * GAP).join(columns).rstrip() + "\n"
        return lines + "\n"

    def _below(self, key: str, labels: Sequence[str], captions: Sequence[str], about: str) -> list[tuple[str, Style]]:
        """Return the lines below a picture: key, classes, the first caption, and facts in its header."""
        lines: list[tuple[str, Style]] = [(key, "bold")]
        if labels:
            lines.append((", ".join(labels), "cyan"))
        for caption in captions[:1]:
            lines += [(line, "") for line in cell_lines(caption, self.columns, CAPTION)]
        return [*lines, (about, "dim")]

    def _line(self, text: str = "", style: Style = "") -> str:
        """Return a line below a picture as wide as that, the end cut off if there is no room."""
        text = next(iter(cell_lines(text, self.columns, 1)), "")
        blanks = " " * (self.columns - cells(text))
        code = {"bold": "1", "dim": "2", "cyan": "36"}.get(style)
        return text + blanks if code is None or self.colors == "none" else f"\x1b[{code}m{text}\x1b[0m{blanks}"

    def _strip(self, pictures: Sequence[Drawn]) -> str:
        """Return the row as one picture, transparent where there is none."""
        from PIL import Image

        cell = self.cell
        height = max((picture.image.height for picture in pictures if picture.image is not None), default=0)
        if height == 0:
            return ""
        lines = -(-height // cell.height)
        columns = len(pictures) * (self.columns + GAP) - GAP
        strip = Image.new("RGBA", (columns * cell.width, lines * cell.height))
        for place, picture in enumerate(pictures):
            if picture.image is not None:
                strip.paste(picture.image, (place * (self.columns + GAP) * cell.width, 0))
        if self.graphics == "sixel":
            return sixel(strip) + "\n"
        data = b64encode(encoded(strip, "PNG")).decode()
        return (kitty if self.graphics == "kitty" else iterm)(data, columns, lines) + "\n"

    def _blocks(self, pictures: Sequence[Drawn]) -> str:
        """Return lines whose characters are two pixels: an upper half block in one colour on the other."""
        height = max((picture.image.height for picture in pictures if picture.image is not None), default=0)
        out = []
        for y in range(0, height, 2):
            line = (_cells(picture.image, y, self.colors, self.columns) for picture in pictures)
            out.append((" " * GAP).join(line).rstrip() + "\n")
        return "".join(out)


def cell_lines(text: str, width: int, height: int) -> list[str]:
    """Return the first lines of a text, broken between words, at most `width` columns each."""
    from rich.cells import chop_cells

    lines: list[str] = []
    for word in safe(one_line(text)).split(" "):
        for place, piece in enumerate(chop_cells(word, width)):
            if lines and place == 0 and cells(lines[-1]) + 1 + cells(piece) <= width:
                lines[-1] += " " + piece
            else:
                lines.append(piece)
    if len(lines) > height:
        line = f"{lines[height - 1]} {lines[height]}"
        while cells(line) > width - 1:
            line = line[:-1]
        lines[height - 1 :] = [line.rstrip() + ELLIPSIS]
    return lines


def kitty(data: str, columns: int, lines: int) -> str:
    """Return a PNG in base64 for kitty's protocol, scaled to cells."""
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    out = []
    for number, chunk in enumerate(chunks):
        head = f"a=T,f=100,q=2,c={columns},r={lines}," if number == 0 else ""
        out.append(f"\x1b_G{head}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(out)


def iterm(data: str, columns: int, lines: int) -> str:
    """Return a PNG in base64 for iTerm2's protocol, scaled to cells."""
    return f"\x1b]1337;File=inline=1;width={columns};height={lines};preserveAspectRatio=1:{data}\x07"


def sixel(image: Image) -> str:
    """Return an RGBA picture in sixels, of at most 255 colours; transparent pixels are not painted."""
    width, height = image.size
    solid = image.getchannel("A").tobytes()
    flat = image.convert("RGB").quantize(255)
    pixels, palette = flat.tobytes(), flat.getpalette() or []
    out = [f'\x1bP0;1;0q"1;1;{width};{height}']
    for color in sorted(set(pixels)):
        red, green, blue = (round(value * 100 / 255) for value in palette[3 * color : 3 * color + 3])
        out.append(f"#{color};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        bands: dict[int, bytearray] = {}
        for line in range(top, min(top + 6, height)):
            bit, start = 1 << (line - top), line * width
            for x in range(width):
                if solid[start + x]:
                    color = pixels[start + x]
                    if color not in bands:
                        bands[color] = bytearray(width)
                    bands[color][x] |= bit
        out.append("$".join(f"#{color}{_run_lengths(bits)}" for color, bits in bands.items()) + "-")
    return "".join(out) + "\x1b\\"


def _run_lengths(bits: bytearray) -> str:
    """Return a band of one colour; a run of more than three has its length."""
    out, x, width = [], 0, len(bits.rstrip(b"\0"))
    while x < width:
        end = x + 1
        while end < width and bits[end] == bits[x]:
            end += 1
        char = chr(63 + bits[x])
        out.append(f"!{end - x}{char}" if end - x > 3 else char * (end - x))
        x = end
    return "".join(out)


def _cells(image: Image | None, y: int, colors: Colors, columns: int) -> str:
    """Return line `y` and the one below it of a picture, `columns` characters wide."""
    if image is None or y >= image.height:
        return " " * columns
    data: bytes = image.tobytes()
    width: int = image.width
    upper = data[3 * width * y : 3 * width * (y + 1)]
    lower = data[3 * width * (y + 1) : 3 * width * (y + 2)]
    out: list[str] = []
    last = ""
    for x in range(width):
        top, bottom = upper[3 * x : 3 * x + 3], lower[3 * x : 3 * x + 3]
        if colors == "none":
            out.append(_GREY[(sum(top) + sum(bottom or top)) * len(_GREY) // (6 * 256)])
            continue
        code = f"\x1b[{_color(38, top, colors)};{_color(48, bottom, colors) if bottom else '49'}m"
        out.append((code if code != last else "") + "\u2580")
        last = code
    return "".join(out) + ("" if colors == "none" else "\x1b[0m") + " " * (columns - width)


def _color(layer: int, rgb: bytes, colors: Colors) -> str:
    red, green, blue = rgb
    if colors == "truecolor":
        return f"{layer};2;{red};{green};{blue}"
    low, high = min(rgb), max(rgb)
    if high - low < 12 and 8 <= low <= 238:  # the 24 greys are finer than the cube
        return f"{layer};5;{232 + min(23, (low - 8) // 10 + ((low - 8) % 10 > 4))}"
    return f"{layer};5;{16 + 36 * _level(red) + 6 * _level(green) + _level(blue)}"


def _level(value: int) -> int:
    return 0 if value < 48 else 1 if value < 115 else (value - 35) // 40
