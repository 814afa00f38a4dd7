"""Pictures in the terminal: each protocol is decoded again, pixel by pixel; and the choice of a protocol."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import select
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tarkit.cli import screen
from tarkit.display import pictures, terminal
from tarkit.display.terminal import Cell, Colors, Drawn, Graphics, PictureRows
from tarkit.samples.items import Item, SampleItems
from tests._tools import each_row, payload_of

Images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

RED, GREEN, BLUE, WHITE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (98, 98, 98)


def drawing(*rows: list[tuple[int, int, int]]) -> Any:
    """Return a picture of these pixels."""
    image = Images.new("RGB", (len(rows[0]), len(rows)))
    image.putdata([pixel for row in rows for pixel in row])
    return image


def row(pictures: Sequence[Drawn], how: Graphics, colors: Colors, width: int = 76, cell: Cell = Cell()) -> str:  # noqa: B008
    """Return a row for a terminal of this width: of 76 columns two pictures of 37 each."""
    return PictureRows(width, how, colors, cell).row(pictures)


SMALL = drawing([RED, GREEN], [BLUE, WHITE], [RED, RED])


def test_blocks_in_full_colour() -> None:
    """A character shows two pixels, a run sets its colours once; the lower half of an odd last line has no colour."""
    text = row([Drawn(SMALL, (("key", "bold"), ("png 2 x 3", "")))], "blocks", "truecolor")
    assert text.splitlines() == [
        "\x1b[38;2;255;0;0;48;2;0;0;255m\u2580\x1b[38;2;0;255;0;48;2;255;255;255m\u2580\x1b[0m",
        "\x1b[38;2;255;0;0;49m\u2580\u2580\x1b[0m",
        "\x1b[1mkey\x1b[0m",
        "png 2 x 3",
        "",
    ]


def test_blocks_with_256_colours_and_none() -> None:
    """The nearest colour of the cube or of the greys is used; without colours, characters of similar brightness."""
    image = drawing([RED, GREY, (90, 140, 180)], [BLUE, WHITE, (0, 0, 0)])
    text = row([Drawn(image, ())], "blocks", "256")
    assert re.findall(r"38;5;(\d+);48;5;(\d+)", text) == [("196", "21"), ("241", "231"), ("67", "16")]
    image = drawing([WHITE, (0, 0, 0), GREY], [WHITE, (0, 0, 0), GREY])
    assert row([Drawn(image, ())], "blocks", "none") == "@ -\n\n"


def test_several_in_a_row() -> None:
    """Pictures of a row are side by side with a gap, with different heights, and a reason for one that is not drawn."""
    text = row(
        [
            Drawn(SMALL, (("a", "bold"), ("x" * 30, "dim"))),
            Drawn(None, (("b", "bold"), ("why", "dim"))),
            Drawn(SMALL.crop((0, 0, 2, 2)), (("\u732b" * 20, ""),)),
        ],
        "blocks",
        "none",
        80 - 4,
    )
    first, second, *below = text.splitlines()
    assert below == [
        "a".ljust(37) + "  " + "b".ljust(37) + "  " + "\u732b" * 18 + "\u2026",
        "x" * 30 + " " * 7 + "  why",
        "",
    ]
    assert first[:2] == first[78:80]
    assert first[2:78] == " " * 76
    assert len(second) == 2
    found = [PictureRows(width, "blocks", "none", Cell()) for width in (40, 54, 55, 80, 100, 160, 250)]
    assert [(each.count, each.columns) for each in found] == [
        (1, 40), (1, 54), (2, 26), (2, 39), (3, 32), (4, 38), (7, 34)
    ]  # fmt: skip
    assert [found[3].room, PictureRows(80, "kitty", "none", Cell(8, 16)).room] == [(39, 32), (312, 256)]


def test_texts_below() -> None:
    """Below are key, classes, a caption in at most three lines, and the header; a row is printed when it is full."""
    rows = PictureRows(80, "blocks", "none", Cell(), ["cat", "\u72d7"])
    found = []
    for key, cls, caption in (("d/a", "1", "word " * 40), ("d/b", "7", ""), ("d/c", "0", "two\nlines")):
        picture = item(SMALL, "PNG")
        picture.about = {"width": 2, "height": 3}
        texts = [Item(b"k.cls", b"cls", 1, "text", {}, cls), Item(b"k.txt", b"txt", 1, "text", {}, caption)]
        rows.take(picture)
        found.append(rows.add(SampleItems(key.encode(), "x", 0, [picture, *texts])))
    assert rows.add(SampleItems(b"d", "x", 0, texts)) == found[0] == found[2] == ""
    assert rows.without == 1
    words = "word word word word word word word word"
    assert found[1].splitlines()[2:] == [
        "d/a" + " " * 38 + "d/b",
        "\u72d7" + " " * 39 + "7",
        words + "  x 2 x 3",
        words,
        words[:-1] + "\u2026",
        "x 2 x 3",
        "",
    ]
    assert rows.rest().splitlines()[2:] == ["d/c", "cat", "two lines", "x 2 x 3", ""]
    assert rows.rest() == ""


def kitty_picture(text: str) -> tuple[str, Any]:
    """Return the parameters of kitty's protocol, and the picture in it."""
    chunks = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", text)
    assert [head[-3:] for head, _ in chunks] == ["m=1"] * (len(chunks) - 1) + ["m=0"]
    assert all(len(data) <= 4096 for _, data in chunks)
    assert len(chunks) > 1
    return chunks[0][0].removesuffix(",m=1"), Images.open(
        io.BytesIO(base64.b64decode("".join(data for _, data in chunks)))
    )


def test_kitty_and_iterm() -> None:
    """A row is one PNG, scaled to cells, and transparent outside of pictures."""
    big = Images.effect_noise((200, 180), 90).convert("RGB")
    pictures = [Drawn(SMALL, (("a", ""),)), Drawn(None, (("b", ""),)), Drawn(big, (("c", ""),))]
    head, strip = kitty_picture(row(pictures, "kitty", "none", 96, Cell(10, 20)))
    assert head == "a=T,f=100,q=2,c=94,r=9"
    assert strip.size == (940, 180)
    assert [strip.getpixel(at) for at in ((0, 0), (1, 1), (2, 0), (300, 9))] == [
        (*RED, 255), (*WHITE, 255), (0, 0, 0, 0), (0, 0, 0, 0)
    ]  # fmt: skip
    assert strip.crop((640, 0, 840, 180)).convert("RGB").tobytes() == big.tobytes()
    text = row(pictures[:1], "iterm", "none", 96, Cell(10, 20))
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;width=30;height=1;preserveAspectRatio=1:(.*)\x07\na\n\n", text)
    assert found
    assert Images.open(io.BytesIO(base64.b64decode(found[1]))).getpixel((0, 0)) == (*RED, 255)
    assert row([Drawn(None, (("a", ""), ("why", "")))], "kitty", "none") == "a\nwhy\n\n"


def sixel_pixels(text: str) -> tuple[tuple[int, int], dict[tuple[int, int], tuple[int, ...]]]:
    """Return size and painted pixels of a picture in sixels, decoded as the manual of the VT340 specifies."""
    head = re.match(r'\x1bP0;1;0q"1;1;(\d+);(\d+)', text)
    assert head
    assert text.endswith("\x1b\\")
    palette: dict[int, tuple[int, ...]] = {}
    painted: dict[tuple[int, int], tuple[int, ...]] = {}
    x = top = color = 0
    for token in re.findall(r"#\d+(?:;\d+)*|!\d+[?-~]|[?-~]|\$|-", text[head.end() : -2]):
        if token[0] == "#":
            color, *rgb = map(int, token[1:].split(";"))
            if rgb:
                assert rgb[0] == 2
                palette[color] = tuple(rgb[1:])
        elif token == "$":
            x = 0
        elif token == "-":
            x, top = 0, top + 6
        else:
            bits, count = ord(token[-1]) - 63, int(token[1:-1]) if token[0] == "!" else 1
            for column in range(x, x + count):
                for line in range(6):
                    if bits >> line & 1:
                        assert (column, top + line) not in painted
                        painted[column, top + line] = palette[color]
            x += count
    return (int(head[1]), int(head[2])), painted


def test_sixel() -> None:
    """Each solid pixel is painted once in its colour, the others are not painted."""
    image = Images.new("RGBA", (40, 15))
    image.paste(SMALL, (3, 5))
    image.paste(Images.new("RGB", (20, 8), BLUE), (15, 7))
    size, painted = sixel_pixels(terminal.sixel(image))
    expected = {
        (x, y): tuple(round(value * 100 / 255) for value in image.getpixel((x, y))[:3])
        for x in range(40)
        for y in range(15)
        if image.getpixel((x, y))[3]
    }
    assert size == (40, 15)
    assert painted == expected
    size, painted = sixel_pixels(terminal.sixel(Images.effect_noise((64, 20), 90).convert("RGBA")))
    assert len(painted) == 64 * 20


# ---- thumbnails


def item(image: Any, format: str, **settings: Any) -> Item:
    """Return an item with this picture."""
    out = io.BytesIO()
    image.save(out, format, **settings)
    data = out.getvalue()
    kind = {"PPM": "netpbm"}.get(format, format.lower())
    return Item(b"a.x", b"x", len(data), kind, {}, payload=payload_of(data))


@each_row(
    ("mode", "color", "format", "seen"),
    [
        ("RGB", (200, 0, 0), "PNG", (200, 0, 0)),
        ("L", 77, "PNG", (77, 77, 77)),
        ("1", 1, "PNG", (255, 255, 255)),
        ("RGBA", (200, 0, 0, 0), "PNG", (255, 255, 255)),
        ("LA", (0, 255), "PNG", (0, 0, 0)),
        ("CMYK", (0, 0, 0, 0), "JPEG", (255, 255, 255)),
        ("I;16", 60_000, "TIFF", (0, 0, 0)),
        ("F", 0.25, "TIFF", (0, 0, 0)),
        ("RGB", (0, 0, 200), "WEBP", (0, 0, 200)),
        ("RGB", (0, 0, 200), "BMP", (0, 0, 200)),
        ("L", 9, "PPM", (9, 9, 9)),
        ("P", 0, "GIF", (0, 0, 0)),
    ],
)
def test_thumbnail(mode: str, color: Any, format: str, seen: tuple[int, int, int]) -> None:
    """A thumbnail of every mode is in RGB, and fits."""
    image = Images.new(mode, (400, 100), color)
    thumbnail = pictures.thumbnail(item(image, format, **({"lossless": True} if format == "WEBP" else {})), 60, 60)
    assert (thumbnail.mode, thumbnail.size, thumbnail.getpixel((30, 7))) == ("RGB", (60, 15), seen)


def test_sixteen_bits_are_stretched() -> None:
    """The minimum is black, the maximum white: medical and depth pictures use few of the values."""
    image = Images.new("I;16", (2, 1))
    image.putdata([1000, 1200])
    thumbnail = pictures.thumbnail(item(image, "TIFF"), 60, 60)
    assert [thumbnail.getpixel((x, 0)) for x in (0, 1)] == [(0, 0, 0), (255, 255, 255)]


@each_row("format", ["JPEG", "PNG"])
def test_orientation(format: str) -> None:
    """A picture is rotated by its EXIF orientation."""
    exif = Images.Exif()
    exif[0x0112] = 6
    image = Images.new("RGBA" if format == "PNG" else "RGB", (40, 20), "red")
    assert pictures.thumbnail(item(image, format, exif=exif), 60, 60).size == (20, 40)


def test_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged pictures, bombs and large files are not drawn; the error has the reason."""
    good = item(Images.new("RGB", (300, 300)), "PNG")
    assert good.payload
    cut = Item(b"a.x", b"x", 60, "png", {}, payload=replace(good.payload, size=60, reach=60))
    with pytest.raises(pictures.Undrawn, match="cannot be decoded"):
        pictures.thumbnail(cut, 10, 10)
    monkeypatch.setattr(pictures, "PIXELS", 80_000)
    with pytest.raises(pictures.Undrawn, match="too many pixels"):
        pictures.thumbnail(good, 10, 10)
    monkeypatch.setattr(pictures, "LARGEST", 100)
    with pytest.raises(pictures.Undrawn, match="larger than"):
        pictures.thumbnail(good, 10, 10)


# ---- choice of a protocol

ENVIRONMENTS: list[tuple[dict[str, str], str]] = [
    ({"TERM": "xterm-kitty"}, "kitty"),
    ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
    ({"TERM": "xterm-ghostty"}, "kitty"),
    ({"TERM_PROGRAM": "iTerm.app"}, "iterm"),
    ({"LC_TERMINAL": "iTerm2"}, "iterm"),
    ({"TERM_PROGRAM": "WezTerm"}, "iterm"),
    ({"TERM": "xterm-256color"}, "blocks"),
    ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x,1,0"}, "blocks"),
    ({"KITTY_WINDOW_ID": "1", "STY": "1.x"}, "blocks"),
    ({}, "blocks"),
]


@each_row(("env", "how"), ENVIRONMENTS)
def test_how_to_draw(env: Mapping[str, str], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment determines the protocol; an unknown terminal is queried for sixels."""
    monkeypatch.setattr(screen, "takes_sixel", lambda: False)
    assert screen.how_to_draw(env) == how
    monkeypatch.setattr(screen, "takes_sixel", lambda: True)
    assert screen.how_to_draw(env) == ("sixel" if how == "blocks" else how)


@each_row(
    ("env", "colors"),
    [
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "xterm-kitty"}, "truecolor"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, "none"),
        ({"NO_COLOR": "1", "COLORTERM": "truecolor"}, "none"),
        ({"NO_COLOR": ""}, "256"),
    ],
)
def test_colors(env: Mapping[str, str], colors: str) -> None:
    """The environment determines the colours; NO_COLOR takes precedence."""
    assert screen.colors(env) == colors


@each_row(
    ("answer", "attributes"),
    [(b"\x1b[?62;4;22c", [b"4", b"22"]), (b"\x1b[?6c", []), (b"typed\x1b[?63;1;2;4c", [b"1", b"2", b"4"]), (b"", [])],
)
def test_query_of_the_terminal(answer: bytes, attributes: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal returns its attributes, or nothing; its settings are unchanged."""
    monkeypatch.setattr(screen, "PATIENCE", 5 if answer else 0.01)
    master, slave = pty.openpty()

    def reply() -> None:
        select.select([master], [], [], 5)
        assert os.read(master, 100) == b"\x1b[c"
        os.write(master, answer)

    thread = threading.Thread(target=reply)
    thread.start()
    import termios

    before = termios.tcgetattr(slave)
    try:
        assert screen._attributes(slave) == attributes
        assert termios.tcgetattr(slave) == before
    finally:
        thread.join()
        os.close(master)
        os.close(slave)
