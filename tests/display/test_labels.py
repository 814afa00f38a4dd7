"""Classes and captions of samples, by the names and contents of fields."""

from __future__ import annotations

import json
from collections import Counter

from tarkit.display.classes import class_name, class_order
from tarkit.display.labels import Caption, Label, captions_of, class_values, is_class, labels_of
from tarkit.samples.items import Item, SampleItems
from tests._tools import each_row

NAMES = ["cat", "dog", "犬"]


def seen(**fields: object) -> SampleItems:
    """Return a sample of these fields: texts, and JSON for other values."""
    items = []
    for name, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value)
        field = name.replace("_", ".").encode()
        items.append(Item(b"k." + field, field, len(text), "text" if value is text else "json", {}, text))
    return SampleItems(b"k", "x.tar", 0, items)


@each_row(
    ("sample", "labels"),
    [
        (seen(cls="1\n"), [("cls", "1", "dog")]),
        (seen(CLS="3"), [("cls", "3", "3")]),
        (seen(cls="-1"), [("cls", "-1", "-1")]),
        (seen(cls="²"), [("cls", "²", "²")]),
        (seen(cls=2), [("cls", "2", "犬")]),
        (seen(label_txt="a\tb"), [("label.txt", "a b", "a b")]),
        (
            seen(json={"label": "x", "category": 0, "n": 1, "class": 1.5}),
            [("json.label", "x", "x"), ("json.category", "0", "cat")],
        ),
        (
            seen(json={"tags": ["a", "a", 1, "b\x1b", "w" * 50]}),
            [("json.tags", "a", "a"), ("json.tags", "b\\x1b", "b\\x1b")],
        ),
        (seen(cls="w" * 41, txt="1", json=[1]), []),
        (seen(cls="", json={"label": {}}), []),
    ],
)
def test_labels(sample: SampleItems, labels: list[tuple[str, str, str]]) -> None:
    """Labels come from fields and members with such names; numbers are names of classes by line."""
    assert labels_of(sample, NAMES) == [Label(*each) for each in labels]


def test_a_given_field() -> None:
    """With a given field no other is used; a sample without it has no class."""
    assert labels_of(seen(cls="1"), NAMES, ("size", "2")) == [Label("size", "2", "犬")]
    assert labels_of(seen(cls="1"), NAMES, ("size", "\x1b" * 50))[0].name == "\\x1b" * 39 + "…"
    assert labels_of(seen(cls="1"), NAMES, ("x", "")) == []


@each_row(
    ("sample", "captions"),
    [
        (seen(txt=" one\ntwo\n"), [("txt", "one\ntwo")]),
        (seen(py="a = 1", txt="x"), [("txt", "x")]),
        (seen(py="a = 1", n="12"), [("py", "a = 1")]),
        (
            seen(en_txt="a", de_txt="b", json={"caption": "b", "title": "t", "n": "c d"}),
            [("en.txt", "a"), ("de.txt", "b"), ("json.title", "t")],
        ),
        (seen(cls_txt="a b", txt="\n"), [("cls.txt", "a b")]),
        (seen(json={"prompt": 1, "text": " "}), []),
        (seen(html="<!DOCTYPE html><p>a b", xml="<?xml version='1.0'?> <a/>", x="\n<p class='a b'>c d</p>"), []),
        (seen(txt="<div>a b</div>", py="1 < 2 or 3"), [("py", "1 < 2 or 3")]),
        (seen(txt="<3 a heart, < 5"), [("txt", "<3 a heart, < 5")]),
    ],
)
def test_captions(sample: SampleItems, captions: list[tuple[str, str]]) -> None:
    """Captions come from texts with such names, each once; without these, from texts of several words."""
    assert captions_of(sample) == [Caption(*each) for each in captions]


def test_invalid_json() -> None:
    """JSON that is cut, nested too deep, or no object has no members."""
    deep = Item(b"a", b"json", 1, "json", {}, "[" * 100_000)
    cut = Item(b"a", b"json", 1, "json", {}, '{"label": "x"', True)
    assert [class_values("json", each) for each in (deep, cut)] == [[], []]
    sample = SampleItems(b"k", "x", 0, [deep, cut])
    assert labels_of(sample) == captions_of(sample) == []


def test_classes() -> None:
    """Values that repeat are classes, in the order of their counts, then by numeric value."""
    assert [is_class(Counter(text)) for text in ("aabb", "aaaa", "abcd", "aab", "")] == [True] + [False] * 4
    assert class_order(Counter(["2", "10", "b", "a", "10"])) == [("10", 2), ("2", 1), ("a", 1), ("b", 1)]
    assert [class_name(value, NAMES) for value in ("0", "02", "3", "00000000000", "1.0", "")] == [
        "cat", "犬", "3", "00000000000", "1.0", ""
    ]  # fmt: skip
