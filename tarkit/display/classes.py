"""Classes of samples: how many samples have each value of a field, and the names of numbered classes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tarkit.errors import Problem, printable
from tarkit.problems import Policy
from tarkit.samples.lookup import FieldLookup
from tarkit.samples.sample import TarSample
from tarkit.samples.values import MISFITS, Name
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location
from tarkit.streams.text import open_file

MOST = 4096  # maximum number of different values that are counted separately
CLASSES_FILE = "classes.txt"  # names of classes, in the directory of the shards
LONGEST = 200  # maximum length of a value in characters

ClassNames = str | os.PathLike[str] | Sequence[str] | None  # a file of names, or names


def class_of(name: Name, sample: TarSample, policy: Policy) -> str | None:
    """Return the value of a field as text, JSON as JSON; None if the sample has none.

    Raises:
        Problem: a field cannot be read, unless `policy` lets it pass.
    """
    try:
        value = name.words(FieldLookup(sample))
    except Problem as problem:
        if problem.name not in MISFITS:
            raise
        if problem.name != "missing-field":
            policy.apply(problem)
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())[:LONGEST]


def class_name(value: str, names: Sequence[str]) -> str:
    """Return the name of a class: for an index into `names` that name, else the value."""
    if value.isascii() and value.isdigit() and len(value) < 10 and int(value) < len(names):
        return names[int(value)]
    return value


def class_order(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return values and counts, the most frequent first, equally frequent ones by number or text."""
    return sorted(counts.items(), key=lambda item: (-item[1], value_rank(item[0])))


def value_rank(value: str) -> tuple[float, str]:
    """Return the key that sorts values by number, then by text."""
    return (float(value), value) if value.isdecimal() and len(value) < 16 else (float("inf"), value)


def read_class_names(path: str, options: StoreOptions | None = None) -> list[str]:
    """Return the names of classes in a file, one per line from class 0 on. Blank lines are skipped."""
    with open_file(path, options) as file:
        lines = file.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").splitlines()
    return [printable(line.strip()) for line in lines if line.strip()]


def find_class_names(names: ClassNames, inputs: Sequence[Location], options: StoreOptions | None = None) -> list[str]:
    """Return names of classes: given ones, or those in a file, which `options` say how to reach.

    Without either they are those in the first `classes.txt` in the directory of an input.
    """
    if isinstance(names, (str, os.PathLike)):
        return read_class_names(os.fspath(names), options)
    if names is not None:
        return list(map(printable, names))
    directories = (os.path.dirname(location.text) for location in inputs if location.kind == "path")
    for directory in dict.fromkeys(directories):
        try:
            return read_class_names(os.path.join(directory, CLASSES_FILE))
        except OSError:  # no such file
            continue
    return []


@dataclass
class ClassCounts:
    """The number of samples for each value of a field.

    Samples with values beyond the first MOST are counted as `others`, samples without the field as `missing`.
    """

    counts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    others: int = 0

    def counter(self, by: str, policy: Policy) -> Callable[[TarSample], None]:
        """Return a function that counts samples by their values of `by`; raises Problem as `class_of` does."""
        name = Name(by)

        def count(sample: TarSample) -> None:
            value = class_of(name, sample, policy)
            if value is None:
                self.missing += 1
            else:
                self._count(value, 1)

        return count

    def merge(self, other: ClassCounts) -> None:
        """Add the counts of `other`."""
        for value, count in other.counts.items():
            self._count(value, count)
        self.missing += other.missing
        self.others += other.others

    def _count(self, value: str, count: int) -> None:
        if value in self.counts or len(self.counts) < MOST:
            self.counts[value] += count
        else:
            self.others += count
