"""Measures of how mixed an archive is, in exact numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.samples.sample import TarSample
from tarkit.sorting.audit import Count, measure
from tarkit.streams.ranges import HeldRange
from tests._tools import each_row


def keyed(keys: list[str]) -> Iterator[TarSample]:
    """Yield samples with these keys, and an entry without a key."""
    yield TarSample(None, HeldRange("x", 0, b""), [], 0, 0)
    for key in keys:
        yield TarSample(key.encode(), HeldRange("x", 0, b""), [], 0, 0)


@each_row(
    ("keys", "kept", "distance", "expected_distance"),
    [
        ("", (0, 0.0, 0), 0.0, 0.0),
        ("a", (0, 0.0, 0), 0.0, 0.0),
        ("b a", (1, 1.0, 1), 1.0, 1.0),
        ("8 9 10 11", (3, 1.5, 3), 1.0, 5 / 3),  # in natural order
        ("11 10 9 8", (3, 1.5, 3), 1.0, 5 / 3),
        ("b d a c", (0, 1.5, 3), 7 / 3, 5 / 3),
        ("a c b d", (1, 1.5, 3), 5 / 3, 5 / 3),
        ("a e b c d f", (2, 5 / 3, 5), 11 / 5, 7 / 3),
    ],
)
def test_by_key(keys: str, kept: tuple[int, float, int], distance: float, expected_distance: float) -> None:
    """The measures are neighbours that were kept, and distances between former neighbours."""
    found = measure(keyed(keys.split()))
    assert found.samples == len(keys.split())
    assert (found.kept.found, found.kept.expected, found.kept.pairs) == pytest.approx(kept)
    assert (found.distance, found.expected_distance) == pytest.approx((distance, expected_distance))
    assert found.report().keys() == {"samples", "kept", "distance", "expected_distance"}


@each_row(
    ("classes", "same", "number", "longest"),
    [
        ("", Count(0, 0.0, 0), 0, 0),
        ("x", Count(0, 0.0, 0), 1, 1),
        ("xxyy", Count(2, 1.0, 3), 2, 2),
        ("xyxy", Count(0, 1.0, 3), 2, 1),
        ("xxxx", Count(3, 3.0, 3), 1, 4),
        ("xyyyxz", Count(2, 8 / 6, 5), 3, 3),
        ("abcd", Count(0, 0.0, 3), 4, 1),
        ("x-x-y", Count(1, 2 / 3, 2), 2, 2),  # samples without a class are left out
    ],
)
def test_by_class(classes: str, same: Count, number: int, longest: int) -> None:
    """The measure is the number of neighbours with the same class."""

    def by(sample: TarSample, ordinal: int) -> bytes | None:
        letter = classes[ordinal]
        return None if letter == "-" else letter.encode()

    found = measure(keyed([*map(str, range(len(classes)))]), by)
    assert found.same == same
    assert (found.classes, found.longest) == (number, longest)
    told: dict[str, Any] = found.report()["same"]
    assert told["ratio"] == (same.found / same.expected if same.expected else None)


def test_expected_values() -> None:
    """The expected values are the averages over random shuffles."""
    draw = random.Random(4)
    items, classes = [*map(str, range(50))], [b"x" if number % 5 else b"y" for number in range(50)]
    kept = same = 0
    distance = 0.0
    for _ in range(100):
        order = draw.sample(items, 50)
        found = measure(keyed(order), lambda sample, ordinal, order=order: classes[int(order[ordinal])])  # type: ignore[misc]
        assert found.same
        kept, same, distance = kept + found.kept.found, same + found.same.found, distance + found.distance
    assert kept / 100 == pytest.approx(found.kept.expected, rel=0.1)
    assert same / 100 == pytest.approx(found.same.expected, rel=0.02)
    assert distance / 100 == pytest.approx(found.expected_distance, rel=0.02)
