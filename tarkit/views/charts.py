"""What histograms are made of: sizes of fields, and values of fields that name a class."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tarkit.inspecting.item import Item, Seen
from tarkit.views.words import escaped, one_line, safe, shortened, size_words

CLASSES = 20  # bars of a class field; the rest is one
_EDGES = [first * 10**power for power in range(19) for first in (1, 2, 5)]
_VALUE = 40  # characters of a class


class Chart(NamedTuple):
    """A histogram: what it is about, and for each bar what it stands for and how many there are."""

    title: str
    bars: list[tuple[str, int]]


def charts(samples: Sequence[Seen]) -> list[Chart]:
    """A histogram of each field, or member of JSON, whose values are classes, then one of the sizes of each field."""
    sizes: dict[str, list[int]] = {}
    values: dict[str, Counter[str]] = {}
    for seen in samples:
        for item in seen.items:
            if item.field is not None:
                field = escaped(item.field).lower()
                sizes.setdefault(field, []).append(item.size)
                for name, value in _values(field, item):
                    values.setdefault(name, Counter())[value] += 1
    shown = [Chart(name, class_bars(counts)) for name, counts in values.items() if is_class(counts)]
    return shown + [Chart(f"size of {field}", size_bars(each)) for field, each in sizes.items()]


def size_bars(sizes: Sequence[int]) -> list[tuple[str, int]]:
    """How many sizes lie in each of the ranges 1 to 2, 2 to 5, 5 to 10 bytes and so on, up to the largest there is."""
    if min(sizes) == max(sizes):
        return [(size_words(sizes[0]), len(sizes))]
    counts = Counter(bisect_right(_EDGES, size) for size in sizes)
    return [(_range(place), counts[place]) for place in range(min(counts), max(counts) + 1)]


def _range(place: int) -> str:
    """The name of the range that ends before edge `place`."""
    return f"{size_words(_EDGES[place - 1])} to {size_words(_EDGES[place])}" if place else size_words(0)


def is_class(counts: Counter[str]) -> bool:
    """Whether values are classes: there are several, and they come back."""
    return len(counts) > 1 and 2 * len(counts) <= counts.total()


def class_bars(counts: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent values, equal ones in their order by number or text, and the rest as one."""
    order = sorted(counts.items(), key=lambda pair: (-pair[1], _rank(pair[0])))
    bars, rest = order[:CLASSES], order[CLASSES:]
    return bars + [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else bars


def _rank(value: str) -> tuple[float, str]:
    return (float(value), value) if value.isdecimal() and len(value) < 16 else (float("inf"), value)


def _values(field: str, item: Item) -> list[tuple[str, str]]:
    """What may be a class: a short text, or the plain members of a JSON object."""
    if item.text is None or item.cut:
        return []
    if item.kind != "json":
        value = one_line(item.text)
        return [(field, safe(value))] if 0 < len(value) <= _VALUE else []
    try:
        members = json.loads(item.text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(members, dict):
        return [(field, shortened(safe(item.text.strip()), _VALUE))] if isinstance(members, (int, str)) else []
    plain = {name: value for name, value in members.items() if isinstance(value, (bool, int, str))}
    return [
        (f"{field}.{safe(name)}", safe(text))
        for name, value in plain.items()
        if 0 < len(text := one_line(json.dumps(value) if isinstance(value, bool) else str(value))) <= _VALUE
    ]
