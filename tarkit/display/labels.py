"""Labels of a sample: its classes, and the texts that describe it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tarkit.display.classes import class_name
from tarkit.samples.items import Item, SampleItems
from tarkit.samples.items_text import escaped, one_line, safe, shortened

CLASS_FIELDS = ("cls", "class", "label", "category")  # fields, and members of JSON, that name a class
CLASS_LISTS = ("classes", "labels", "categories", "tags")  # members of JSON that name several
CAPTION_FIELDS = ("txt", "text", "caption", "prompt", "transcript", "title", "description", "md")
LONGEST = 40  # characters of a class
TAGS = 8  # classes of a list that are shown


class Label(NamedTuple):
    """A class of a sample: the field that says it, the value there, and the name that is shown."""

    field: str
    value: str
    name: str


class Caption(NamedTuple):
    """A text that describes a sample, or its beginning, and the field that it is from."""

    field: str
    text: str


def labels_of(seen: SampleItems, names: Sequence[str] = (), by: tuple[str, str] | None = None) -> list[Label]:
    """Return the classes of a sample by the names of its fields.

    Args:
        seen: The sample.
        names: The names of numbered classes.
        by: The requested field and its value in this sample; other fields are ignored then.
    """
    if by is not None:
        if not by[1]:
            return []
        return [Label(by[0], by[1], safe(shortened(class_name(by[1], names), LONGEST)))]
    labels = []
    for item in seen.items:
        for field, value in () if item.field is None else class_values(escaped(item.field).lower(), item):
            if field.removesuffix(".txt").rpartition(".")[2] in CLASS_FIELDS:
                labels.append(Label(field, value, class_name(value, names)))
        for name, value in members(item).items():
            if name.lower() in CLASS_LISTS and isinstance(value, list):
                words = [safe(one_line(word)) for word in value[:TAGS] if isinstance(word, str)]
                labels += [Label(f"{_field(item)}.{name}", word, word) for word in words if 0 < len(word) <= LONGEST]
    return list(dict.fromkeys(labels))


def captions_of(seen: SampleItems) -> list[Caption]:
    """Return the texts that describe a sample: those whose names say so first, then other texts of several words."""
    named, others = [], []
    for item in seen.items:
        if item.field is None or item.text is None:
            continue
        if item.kind == "json":
            for name, value in members(item).items():
                if name.lower() in CAPTION_FIELDS and isinstance(value, str) and value.strip():
                    named.append(Caption(f"{_field(item)}.{safe(name)}", value.strip()))
            continue
        text, field = item.text.strip(), _field(item)
        if (
            field.rpartition(".")[2] in CAPTION_FIELDS
            and text
            and not _is_markup(text)
            and field.removesuffix(".txt") not in CLASS_FIELDS
        ):
            named.append(Caption(field, text))
        elif " " in text and not _is_markup(text):
            others.append(Caption(field, text))
    captions = named or others
    return [
        caption for at, caption in enumerate(captions) if caption.text not in [before.text for before in captions[:at]]
    ]


def _is_markup(text: str) -> bool:
    """Return whether a text is HTML or XML: whether a tag, a declaration or a comment is at its beginning."""
    return re.match(r"\ufeff?\s*<(!|\?|/?[A-Za-z][^<>]*>)", text) is not None


def class_values(field: str, item: Item) -> list[tuple[str, str]]:
    """Return possible classes, each with its field: a short text, or the plain members of a JSON object."""
    if item.text is None or item.cut:
        return []
    if item.kind != "json":
        value = one_line(item.text)
        return [(field, safe(value))] if 0 < len(value) <= LONGEST else []
    if not item.text.lstrip().startswith("{"):
        value = one_line(item.text).strip('"')
        return [(field, safe(value))] if 0 < len(value) <= LONGEST and value[0] not in "[{" else []
    plain = {name: value for name, value in members(item).items() if isinstance(value, (bool, int, str))}
    return [
        (f"{field}.{safe(name)}", safe(text))
        for name, value in plain.items()
        if 0 < len(text := one_line(json.dumps(value) if isinstance(value, bool) else str(value))) <= LONGEST
    ]


def is_class(counts: Counter[str]) -> bool:
    """Return whether values are classes: there are several, and they repeat."""
    return len(counts) > 1 and 2 * len(counts) <= counts.total()


def members(item: Item) -> dict[str, Any]:
    """Return the members of the JSON object that an item holds; none if it holds something else, or is cut."""
    if item.kind != "json" or item.text is None or item.cut:
        return {}
    return _parsed(item.text)


@lru_cache(maxsize=4)
def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _field(item: Item) -> str:
    return escaped(item.field or b"").lower()
