"""Samples as lines of plain text, as lines of JSON, and names with what becomes of them."""

from __future__ import annotations

import json
from typing import Any

from tarkit.inspecting.item import Item, Seen
from tarkit.samples.sample import TarSample, key_of
from tarkit.views.words import about_words, escaped, label_of, one_line, safe, shortened

PREVIEW = 80  # characters of a text


def plain(seen: Seen) -> str:
    """A line for the sample, then one for each entry: field, bytes, kind, and what its header or its text says."""
    head = f"{escaped(seen.key)}" if seen.key is not None else "(no sample)"
    rows = [(label_of(item), str(item.size), item.kind, _says(item)) for item in seen.items]
    wide = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = [f"{head}  {safe(seen.archive)} at {seen.offset}"]
    for label, size, kind, says in rows:
        lines.append(f"  {label:<{wide[0]}}  {size:>{wide[1]}}  {kind:<{wide[2]}}  {says}".rstrip())
    return "\n".join(lines) + "\n"


def _says(item: Item) -> str:
    about = about_words(item)
    if item.text is None:
        return about
    text = one_line(item.text)
    text = shortened(safe(text + "\u2026" * (item.cut and len(text) < PREVIEW)), PREVIEW)
    return f"{text}  ({about})" if about else text


def json_line(seen: Seen) -> str:
    """The sample as a line of JSON. Names are written as in messages, `\\xNN` for a byte that is no text."""
    line = {
        "key": None if seen.key is None else escaped(seen.key),
        "archive": seen.archive,
        "offset": seen.offset,
        "fields": [_fields(item) for item in seen.items],
    }
    text = json.dumps(line, ensure_ascii=False)
    if text.isprintable():
        return text + "\n"
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text) + "\n"


def _fields(item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": escaped(item.name),
        "field": None if item.field is None else escaped(item.field),
        "size": item.size,
        "kind": item.kind,
        **item.about,
    }
    if "target" in told:
        told["target"] = escaped(told["target"])
    if item.text is not None:
        told |= {"text": item.text, "cut": item.cut}
    return told


def name_lines(sample: TarSample, nul: bool) -> bytes:
    """The names in a sample: `SIZE  PATH -> KEY | FIELD`; with `nul` path, key, field and size raw, each ended by NUL.

    What has no key is `PATH -> no key`; its raw key and field are empty.
    """
    lines = []
    for entry in sample.entries:
        size = entry.real if entry.sparse else entry.size
        keyed = sample.key is not None and key_of(entry) is not None
        key, field = (sample.key or b"", entry.name[len(sample.key or b"") + 1 :]) if keyed else (b"", b"")
        if nul:
            lines.append(b"%b\0%b\0%b\0%d\0" % (entry.name, key, field, size))
        else:
            become = f"{escaped(key)} | {escaped(field)}" if keyed else "no key"
            lines.append(f"{size:>10}  {escaped(entry.name)} -> {become}\n".encode())
    return b"".join(lines)
