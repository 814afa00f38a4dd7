r"""Words that all views share: names on one line, sizes, what a header says.

Whatever comes out of an archive goes through `safe` before it reaches a terminal: what is not printable, the escape
sequences of terminals and marks that change the direction of text among it, becomes `\xNN`. `escaped` can be undone as
well, because it writes a backslash twice.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import printable, show
from tarkit.inspecting.item import Item

ELLIPSIS = "\u2026"
INSIDE = 12  # names of what is inside of a file that are shown


def escaped(name: bytes) -> str:
    r"""A name so that it can be read back: `\\` is a backslash, `\xNN` a byte, all else is UTF-8 as it stands."""
    return show(name)[1:-1]


def safe(text: str) -> str:
    """Text on one line: what is not printable as escapes."""
    return printable(text)


def lines_of(text: str, width: int, height: int) -> list[str]:
    """The first lines of a text, each at most `width` characters; an ellipsis stands where there is more."""
    pieces = text.replace("\r\n", "\n").expandtabs(4).rstrip("\n").split("\n")
    shown = [shortened(safe(piece), width) for piece in pieces[:height]]
    return shown + [ELLIPSIS] if len(pieces) > height else shown


def shortened(text: str, width: int) -> str:
    """The beginning of one line of text, with an ellipsis if there is more."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + ELLIPSIS


def one_line(text: str) -> str:
    """A text with its runs of white space as single blanks, nothing else changed."""
    return " ".join(text.split())


def size_words(size: int) -> str:
    """Bytes in the unit that fits, as in `1.2 MB`: powers of 1000."""
    number = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 999.5 or unit == "TB":
            break
        number /= 1000
    return f"{size} B" if unit == "B" else f"{number:.3g} {unit}"


def about_words(item: Item) -> str:
    """What the header of an item says, as words: `640 x 480`, `float32 [3, 4]`, `2.5 s, 44100 Hz, 2 channels`."""
    about, words = item.about, []
    if "width" in about:
        words.append(f"{about['width']} x {about['height']}")
    if "rate" in about:
        words += [] if about["seconds"] is None else [f"{about['seconds']:.4g} s"]
        words += [f"{about['rate']} Hz", f"{about['channels']} channel" + "s" * (about["channels"] != 1)]
    if "dtype" in about:
        words.append(_array(about))
    inside = [f"{safe(each['name'])}: {_array(each)}" for each in about.get("arrays", ())]
    inside += [safe(name) for name in about.get("members", ())]
    words += inside[:INSIDE] + [f"and {len(inside) - INSIDE} more"] * (len(inside) > INSIDE)
    if "target" in about:
        words.append(f"to {escaped(about['target'])}")
    if "named" in about:
        words.append(f"but named {about['named']}")
    if "note" in about:
        words.append(about["note"])
    if item.field is None:
        words.append("no key")
    return ", ".join(words)


def _array(about: dict[str, Any]) -> str:
    return f"{safe(about['dtype'])} {about['shape']}" if about["dtype"] is not None else "an array"


def label_of(item: Item) -> str:
    """What an item is called in its sample: the field, or the name of what has no key."""
    return escaped(item.name if item.field is None else item.field) or "(no name)"
