"""Samples as text: plain lines, JSON, names, terminal. No content of an archive controls the terminal."""

from __future__ import annotations

import json
import re

from tarkit.display import terminal
from tarkit.errors import show
from tarkit.samples import items_text as views
from tarkit.samples.items import Item, SampleItems
from tests._tools import each_row

ESC = "\x1b]0;owned\x07\x1b[2J"
SEEN = SampleItems(
    b"d/a",
    "x.tar",
    512,
    [
        Item(b"d/a.jpg", b"jpg", 23456, "jpeg", {"width": 640, "height": 480}),
        Item(b"d/a.json", b"json", 21, "json", {}, '{"a": 1,\n "b": [1, 2]}'),
        Item(b"d/a.cls", b"cls", 1, "text", {}, "7"),
        Item(b"d/a.long.txt", b"long.txt", 9000, "text", {"named": "json"}, "word " * 800, True),
        Item(b"d/a.npz", b"npz", 100, "npz", {"arrays": [{"name": "w", "dtype": "float32", "shape": [2, 3]}]}),
        Item(b"d/a.wav", b"wav", 9, "wav", {"seconds": 1.5, "rate": 8000, "channels": 1}),
        Item(b"d/a.lnk", b"lnk", 0, "symbolic link", {"target": b"../\xff"}),
        Item(b"d/README", None, 2, "text", {}, "hi"),
    ],
)
HOSTILE = SampleItems(
    (ESC + "k").encode() + b"\xff\\",
    f"x{ESC}.tar",
    0,
    [
        Item((ESC + ".t\u202ext").encode(), ("t\u202ext" + ESC).encode(), 5, "text", {}, f"a{ESC}\u009b31m\rb\n\tc"),
        Item(b"b.json", b"json", 5, "json", {}, json.dumps({ESC: "\x7f"}, ensure_ascii=False)),
        Item(b"c.npz", b"npz", 5, "npz", {"arrays": [{"name": ESC, "dtype": ESC, "shape": []}]}),
        Item(b"d.zip", b"zip", 5, "zip", {"members": [ESC]}),
        Item(b"e.ln", b"ln", 5, "hard link", {"target": ESC.encode()}),
    ],
)


def test_plain() -> None:
    """A sample has one line, and one for each entry, in columns."""
    long = ("word " * 16)[:79] + "\u2026"
    assert views.sample_lines(SEEN).splitlines() == [
        "d/a  x.tar at 512",
        "  jpg       23456  jpeg           640 x 480",
        '  json         21  json           {"a": 1, "b": [1, 2]}',
        "  cls           1  text           7",
        f"  long.txt   9000  text           {long}  (but named json)",
        "  npz         100  npz            w: float32 [2, 3]",
        "  wav           9  wav            1.5 s, 8000 Hz, 1 channel",
        "  lnk           0  symbolic link  to ../\\xff",
        "  d/README      2  text           hi  (no key)",
    ]


def unescaped(text: str) -> bytes:
    """Return the inverse of the escapes in names."""
    return re.sub(rb"\\(\\|x[0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()[1:]) or b"\\", text.encode())


@each_row(
    "name", [b"a", b"\\x41", b"\\\\", b"\xff\xfe", "\u00e9\U0001f600".encode(), b"\x1b[1m\n", "\u202e".encode(), b"a\\"]
)
def test_names_can_be_read_back(name: bytes) -> None:
    """Every byte of a name can be decoded from printable characters."""
    text = views.escaped(name)
    assert text.isprintable()
    assert unescaped(text) == name
    assert show(name) == f"'{text}'"


def control_characters(text: str) -> list[str]:
    """Return the characters that control a terminal: control characters except line ends, and bidirectional marks."""
    return [char for char in text if not char.isprintable() and char != "\n"]


def test_hostile_names_and_texts() -> None:
    """Escape sequences are shown as text, in every view."""
    assert control_characters(views.sample_lines(HOSTILE)) == []
    assert len(views.sample_lines(HOSTILE).splitlines()) == 6
    assert control_characters(views.json_line(HOSTILE)) == []
    assert json.loads(views.json_line(HOSTILE))["fields"][0]["text"] == HOSTILE.items[0].text
    assert unescaped(json.loads(views.json_line(HOSTILE))["key"]) == HOSTILE.key
    assert control_characters(terminal.panel(HOSTILE, 80, None)) == []
    coloured = terminal.panel(HOSTILE, 80, "truecolor")
    assert control_characters(re.sub(r"\x1b\[[0-9;]*m", "", coloured)) == []
    assert "[2J" in re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    lone = SampleItems(b"a", "x", 0, [Item(b"a.t", b"t", 1, "latin text", {}, "caf\udce9")])
    assert "caf\\xe9" in views.sample_lines(lone)
    assert '"caf\\udce9"' in views.json_line(lone)
    assert "caf\\xe9" in terminal.panel(lone, 80, "256")


def test_markup_is_text() -> None:
    """Text that looks like markup of rich is shown unchanged."""
    seen = SampleItems(b"[red]k[/]", "[bold]", 0, [Item(b"a.t", b"[t]", 1, "text", {}, "[link=x]:smile:[/nope]")])
    text = terminal.panel(seen, 80, None)
    for each in ("[red]k[/]", "[bold]", "[t]", "[link=x]:smile:[/nope]"):
        assert each in text


PANEL = """\
╭─ d/a ────────────────────────────────────────────────────╮
│ jpg       23.5 kB  jpeg  640 x 480                       │
│ json         21 B  json  {                               │
│                            "a": 1,                       │
│                            "b": [1, 2]                   │
│                          }                               │
│ cls           1 B  text  7                               │
│ long.txt  9.00 kB  text  but named json                  │
│                          word word word word word word w │
│                          ord word word word word word wo │
│                          rd word word word word word wo… │
│ d/README      2 B  text  no key                          │
│                          hi                              │
╰─────────────────────────────────────────── x.tar at 512 ─╯
"""
NARROW = """\
╭─ no sample ──────────────────────────╮
│ json  21 B  json                     │
│   {                                  │
│     "a": 1,                          │
│     "b": [1, 2]                      │
│   }                                  │
╰───────────────────────── x.tar at 0 ─╯
"""
LONG = """\
╭─ … ──────────────────────────────────╮
│ kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk │
│ kkkk                                 │
╰─────────────── …/aaaaaaaaaaaa at 77 ─╯
"""


def test_panel() -> None:
    """A panel has the requested width; JSON is indented, long texts are cut."""
    seen = SampleItems(SEEN.key, "x.tar", 512, [*SEEN.items[:4], SEEN.items[7]])
    assert terminal.panel(seen, 60, None).splitlines() == PANEL.splitlines()
    assert terminal.panel(SampleItems(None, "x.tar", 0, [SEEN.items[1]]), 40, None).splitlines() == NARROW.splitlines()
    long = SampleItems(b"k" * 40, "b" * 40 + "/aaaaaaaaaaaa", 77, [])
    assert terminal.panel(long, 40, None).splitlines() == LONG.splitlines()
    for width in (40, 41, 72, 200):
        assert {len(line) for line in terminal.panel(SEEN, width, None).splitlines()} == {width}
    assert terminal.panel(SampleItems(b"a", "x", 0, []), 40, None).count("\n") == 3


@each_row(
    ("text", "laid_out"),
    [
        ("{}", "{}"),
        ("[]", "[]"),
        ('{"a":1}', '{\n  "a": 1\n}'),
        ("[1,2,3]", "[1, 2, 3]"),
        ('{"a":{"b":[1.50,-2e+400]},"a":null}', '{\n  "a": {\n    "b": [1.50, -2e+400]\n  },\n  "a": null\n}'),
        ('{"a": "{\\"x\\": [", "b": ', '{\n  "a": "{\\"x\\": [",\n  "b":'),
        ('{"a": "cut', '{\n  "a": "cut'),
        ("}]", "}\n]"),
        ("[" + ",".join("1" * 9 for _ in range(7)) + "]", "[\n  " + ",\n  ".join("1" * 9 for _ in range(7)) + "\n]"),
    ],
)
def test_indented(text: str, laid_out: str) -> None:
    """Only blanks and line ends are inserted: numbers, equal names and cut JSON are unchanged."""
    assert views.indented(text) == laid_out
    assert re.sub(r"\s", "", laid_out) == re.sub(r"\s", "", text)


def test_many_members() -> None:
    """Of many members of a file some are named, the others counted."""
    names = [str(number) for number in range(20)]
    about = {"arrays": [{"name": name, "dtype": "int8", "shape": []} for name in names]}
    said = views.about_words(Item(b"a.npz", b"npz", 1, "npz", about))
    assert said == ", ".join(f"{number}: int8 []" for number in range(12)) + ", and 8 more"
    assert views.about_words(Item(b"a.zip", b"zip", 1, "zip", {"members": names[:12]})) == ", ".join(names[:12])
