"""Rows of pictures for a terminal, in the four ways that terminals have: kitty, iTerm2, sixel, and blocks anywhere.

A row is one picture for those that take real ones: so pictures stand side by side whatever the protocol does with the
cursor. Sources: kitty "Terminal graphics protocol"; iTerm2 "Inline Images Protocol"; DEC STD 070, chapter 9 (sixel).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from tarkit.views.pictures import encoded
from tarkit.views.words import shortened

if TYPE_CHECKING:
    from PIL.Image import Image

How = Literal["kitty", "iterm", "sixel", "blocks"]
Colors = Literal["truecolor", "256", "none"]

COLUMNS, LINES = 24, 10  # of a picture, in cells
GAP = 2
_CHUNK = 4096  # characters that kitty takes at once
_GREY = " .:-=+*#%@"


class Cell(NamedTuple):
    """Width and height of a character in pixels."""

    width: int = 10
    height: int = 20


class Drawn(NamedTuple):
    """A picture (None: it could not be drawn) and the lines below it."""

    image: Image | None
    caption: Sequence[str]


def per_row(width: int) -> int:
    """How many pictures stand in a row of a terminal of `width` columns."""
    return max(1, (width + GAP) // (COLUMNS + GAP))


def room(how: How, cell: Cell) -> tuple[int, int]:
    """The most pixels that a thumbnail may have: two to a character for blocks."""
    return (COLUMNS, 2 * LINES) if how == "blocks" else (COLUMNS * cell.width, LINES * cell.height)


def row(pictures: Sequence[Drawn], how: How, colors: Colors, cell: Cell) -> str:
    """Pictures side by side, and below them their captions."""
    lines = _blocks(pictures, colors) if how == "blocks" else _strip(pictures, how, cell)
    depth = max(len(each.caption) for each in pictures)
    for place in range(depth):
        words = [each.caption[place] if place < len(each.caption) else "" for each in pictures]
        lines += (" " * GAP).join(f"{shortened(word, COLUMNS):<{COLUMNS}}" for word in words).rstrip() + "\n"
    return lines + "\n"


def _strip(pictures: Sequence[Drawn], how: How, cell: Cell) -> str:
    """The row as one picture, transparent where there is none."""
    from PIL import Image

    step = (COLUMNS + GAP) * cell.width
    height = max((each.image.height for each in pictures if each.image is not None), default=0)
    if height == 0:
        return ""
    lines = -(-height // cell.height)
    columns = len(pictures) * (COLUMNS + GAP) - GAP
    strip = Image.new("RGBA", (columns * cell.width, lines * cell.height))
    for place, each in enumerate(pictures):
        if each.image is not None:
            strip.paste(each.image, (place * step, 0))
    if how == "sixel":
        return sixel(strip) + "\n"
    data = b64encode(encoded(strip, "PNG")).decode()
    return (kitty if how == "kitty" else iterm)(data, columns, lines) + "\n"


def kitty(data: str, columns: int, lines: int) -> str:
    """A PNG in base64 for kitty's protocol, scaled to cells."""
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    out = []
    for number, chunk in enumerate(chunks):
        head = f"a=T,f=100,q=2,c={columns},r={lines}," if number == 0 else ""
        out.append(f"\x1b_G{head}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(out)


def iterm(data: str, columns: int, lines: int) -> str:
    """A PNG in base64 for iTerm2's protocol, scaled to cells."""
    return f"\x1b]1337;File=inline=1;width={columns};height={lines};preserveAspectRatio=1:{data}\x07"


def sixel(image: Image) -> str:
    """An RGBA picture in sixels, of at most 255 colours; what is transparent keeps the terminal's background."""
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
        out.append("$".join(f"#{color}{_runs(bits)}" for color, bits in bands.items()) + "-")
    return "".join(out) + "\x1b\\"


def _runs(bits: bytearray) -> str:
    """A band of one colour: a run of more than three is written as its length."""
    out, x, width = [], 0, len(bits.rstrip(b"\0"))
    while x < width:
        end = x + 1
        while end < width and bits[end] == bits[x]:
            end += 1
        char = chr(63 + bits[x])
        out.append(f"!{end - x}{char}" if end - x > 3 else char * (end - x))
        x = end
    return "".join(out)


def _blocks(pictures: Sequence[Drawn], colors: Colors) -> str:
    """Each character is two pixels: an upper half block in the colour of one on the colour of the other."""
    height = max((each.image.height for each in pictures if each.image is not None), default=0)
    out = []
    for y in range(0, height, 2):
        cells = [_cells(each.image, y, colors) for each in pictures]
        out.append((" " * GAP).join(cells).rstrip() + "\n")
    return "".join(out)


def _cells(image: Image | None, y: int, colors: Colors) -> str:
    """Line `y` and the one below it of a picture, COLUMNS characters wide."""
    if image is None or y >= image.height:
        return " " * COLUMNS
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
    return "".join(out) + ("" if colors == "none" else "\x1b[0m") + " " * (COLUMNS - width)


def _color(what: int, rgb: bytes, colors: Colors) -> str:
    red, green, blue = rgb
    if colors == "truecolor":
        return f"{what};2;{red};{green};{blue}"
    low, high = min(rgb), max(rgb)
    if high - low < 12 and 8 <= low <= 238:  # the 24 greys are finer than the cube
        return f"{what};5;{232 + min(23, (low - 8) // 10 + ((low - 8) % 10 > 4))}"
    return f"{what};5;{16 + 36 * _level(red) + 6 * _level(green) + _level(blue)}"


def _level(value: int) -> int:
    """The nearest of the six levels of xterm's cube: 0, 95, 135, 175, 215, 255."""
    return 0 if value < 48 else 1 if value < 115 else (value - 35) // 40
