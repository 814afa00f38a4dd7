"""Measure how well mixed an archive is: its pairs of neighbours, compared with those of a full shuffle.

Keys tell the original order: files are numbered, or packed by name. So two samples were neighbours if no other key
comes between theirs in natural order (img9 < img10).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tarkit.samples.sample import TarSample
from tarkit.sorting import encoding


@dataclass
class Count:
    """Of `pairs` of neighbours, how many have something in common, and how many would after a full shuffle."""

    found: int
    expected: float
    pairs: int

    @property
    def ratio(self) -> float | None:
        """The ratio of found to expected pairs; None if no pair is expected."""
        return self.found / self.expected if self.expected else None


@dataclass
class Audit:
    """How well mixed samples are.

    Attributes:
        samples: the number of samples.
        kept: neighbours that are neighbours by their keys too.
        distance: the mean number of places between neighbours in the order of keys.
        expected_distance: that of a full shuffle.
        same: with classes, neighbours of one class.
        classes: the number of classes.
        longest: the length of the longest run of one class.
    """

    samples: int
    kept: Count
    distance: float
    expected_distance: float
    same: Count | None = None
    classes: int = 0
    longest: int = 0

    def report(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        record = asdict(self)
        for name, count in (("kept", self.kept), ("same", self.same)):
            if count is not None:
                record[name]["ratio"] = count.ratio
        if self.same is None:
            for name in ("same", "classes", "longest"):
                del record[name]
        return record


def measure(samples: Iterator[TarSample], by: Callable[[TarSample, int], bytes | None] | None = None) -> Audit:
    """Measure how mixed `samples` are. `by` returns the class of a sample, None to leave it out.

    Only names are read, besides what `by` reads. Keys are held in memory: about 150 bytes per sample.
    """
    codes: list[bytes] = []
    classes: list[bytes] = []
    ordinal = 0
    for sample in samples:
        if sample.key is None:
            continue
        if by is not None:
            kind = by(sample, ordinal)
            ordinal += 1
            if kind is None:
                continue
            classes.append(kind)
        codes.append(encoding.natural(sample.key))
    count = len(codes)
    places = array("Q", bytes(8 * count))
    for place, index in enumerate(sorted(range(count), key=codes.__getitem__)):
        places[index] = place
    steps = [abs(one - other) for one, other in pairwise(places)]
    pairs = len(steps)
    kept = Count(sum(step == 1 for step in steps), 2 * pairs / count if count else 0.0, pairs)
    found = Audit(count, kept, sum(steps) / pairs if pairs else 0.0, (count + 1) / 3 if pairs else 0.0)
    if by is not None:
        _by_class(found, classes)
    return found


def _by_class(found: Audit, classes: list[bytes]) -> None:
    counts = Counter(classes)
    count = len(classes)
    alike = sum(number * (number - 1) for number in counts.values())
    same = longest = run = 0
    for one, other in pairwise(classes):
        run = run + 1 if one == other else 0
        same += one == other
        longest = max(longest, run)
    found.same = Count(same, alike / count if count else 0.0, max(count - 1, 0))
    found.classes = len(counts)
    found.longest = longest + 1 if count else 0
