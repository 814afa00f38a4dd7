r"""Samples and names as plain text, and the words that all of them share.

Text from an archive goes through `safe` before it reaches a terminal: characters that are not printable, such as escape
sequences and marks that change the direction of text, become `\xNN`. `escaped` also doubles the backslash, so that a
name can be read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tarkit.align import align
from tarkit.errors import printable, show
from tarkit.sizes import plural

if TYPE_CHECKING:
    from tarkit.samples.items import EntryName, Item, SampleItems

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENS, _CLOSES = "{[", "}]"
_FLAT = 60  # characters of a list or an object that stays on one line
ELLIPSIS = "\u2026"
INSIDE = 12  # members of a file that are named
PREVIEW = 80  # characters of a text on one line

# ---- Words that all of them share


def escaped(name: bytes | str) -> str:
    r"""Return a name so that it can be read back: `\\` is a backslash, `\xNN` a byte, all else is UTF-8."""
    return show(name)[1:-1]


def safe(text: str) -> str:
    """Return text on one line, with escapes for characters that are not printable."""
    return printable(text)


def lines_of(text: str, width: int, height: int) -> list[str]:
    """Return the first lines of a text, at most `width` characters each, with an ellipsis where text is cut off."""
    pieces = text.replace("\r\n", "\n").expandtabs(4).rstrip("\n").split("\n")
    shown = [shortened(safe(piece), width) for piece in pieces[:height]]
    return shown + [ELLIPSIS] if len(pieces) > height else shown


def shortened(text: str, width: int) -> str:
    """Return the beginning of a line of text, with an ellipsis if there is more."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + ELLIPSIS


def one_line(text: str) -> str:
    """Return a text with single blanks for its runs of white space."""
    return " ".join(text.split())


def about_words(item: Item) -> str:
    """Return the facts in the header of an item: `640 x 480`, `float32 [3, 4]`, `2.5 s, 44100 Hz, 2 channels`."""
    about, words = item.about, []
    if "width" in about:
        words.append(f"{about['width']} x {about['height']}")
    if "rate" in about:
        words += [] if about["seconds"] is None else [f"{about['seconds']:.4g} s"]
        words += [f"{about['rate']} Hz", plural(about["channels"], "channel")]
    if "dtype" in about:
        words.append(_array(about))
    inside = [f"{safe(array['name'])}: {_array(array)}" for array in about.get("arrays", ())]
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
    """Return the name of an item in its sample: the field, or the whole name if it has no key."""
    return escaped(item.name if item.field is None else item.field) or "(no name)"


def indented(text: str) -> str:
    """Return JSON on several lines, token by token: no token is changed, and it may be cut.

    >>> print(indented('{"a":1.50,"b":[1,2]}'))
    {
      "a": 1.50,
      "b": [1, 2]
    }
    """
    return "".join(_laid_out(_TOKEN.findall(text))).strip()


def _laid_out(tokens: list[str]) -> Iterable[str]:
    """Yield the tokens with blanks and line ends between them; a short list of plain values stays on one line."""
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
    """Return a short list or object of plain values, and where it ends; the outermost object is never one."""
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


# ---- Samples


def sample_lines(seen: SampleItems) -> str:
    """Return a line for the sample and one for each entry: field, bytes, kind, and facts in its header or its text."""
    head = f"{escaped(seen.key)}" if seen.key is not None else "(no sample)"
    rows = [(label_of(item), str(item.size), item.kind, _says(item)) for item in seen.items]
    lines = [f"{head}  {safe(seen.archive)} at {seen.offset}", *(f"  {line}" for line in align(rows, right=(1,)))]
    return "\n".join(lines) + "\n"


def _says(item: Item) -> str:
    about = about_words(item)
    if item.text is None:
        return about
    text = one_line(item.text)
    text = shortened(safe(text + "\u2026" * (item.cut and len(text) < PREVIEW)), PREVIEW)
    return f"{text}  ({about})" if about else text


def sample_record(seen: SampleItems) -> dict[str, Any]:
    """Return the sample as values of JSON. Names are escaped as in messages."""
    return {
        "key": None if seen.key is None else escaped(seen.key),
        "archive": seen.archive,
        "offset": seen.offset,
        "fields": [_fields(item) for item in seen.items],
    }


def json_line(seen: SampleItems) -> str:
    """Return `sample_record` as a line of JSON without characters that are not printable."""
    import json

    text = json.dumps(sample_record(seen), ensure_ascii=False)
    if text.isprintable():
        return text + "\n"
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text) + "\n"


def _fields(item: Item) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": escaped(item.name),
        "field": None if item.field is None else escaped(item.field),
        "size": item.size,
        "kind": item.kind,
        **item.about,
    }
    if "target" in record:
        record["target"] = escaped(record["target"])
    if item.text is not None:
        record |= {"text": item.text, "cut": item.cut}
    return record


def name_line(name: EntryName, nul: bool) -> bytes:
    """Return a line `SIZE  PATH -> KEY | FIELD`; with `nul` path, key, field and size raw, each ended by NUL.

    An entry without a key is `PATH -> no key`; its raw key and field are empty.
    """
    path, key, field, size = name
    if nul:
        return f"{path}\0{key or ''}\0{field or ''}\0{size}\0".encode("utf-8", "surrogateescape")
    shown = escaped(path)
    if key is None or field is None:
        become = "no key"
    else:
        become = f"{key} | {field}" if shown == path else f"{escaped(key)} | {escaped(field)}"  # both are parts of it
    return f"{size:>10}  {shown} -> {become}\n".encode()
