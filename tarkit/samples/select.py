"""Select samples: by key, by list, at random, by position. Iterators in, iterators out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from tarkit.errors import Usage, show
from tarkit.problems import Policy
from tarkit.samples.sample import TarSample, split_name

if TYPE_CHECKING:
    from tarkit.samples.where import Where

Slice = tuple[int, int | None, int]

SEEN = 10_000  # other keys that are kept for suggestions
_MOST = sys.maxsize - 1  # the limit of islice


def parse_slice(text: str) -> Slice:
    """`LO:HI:STEP` as (lo, hi, step), each optional; `LO` alone is that one. Not from the end: its place is not known.

    Raises Usage.
    """
    parts = text.split(":")
    try:
        numbers = [min(int(part), _MOST) if part.strip() else None for part in parts]
        if len(parts) > 3:
            raise ValueError
    except ValueError:
        raise Usage(f"{show(text)} is no slice: LO:HI:STEP wants up to three whole numbers") from None
    if any(number is not None and number < 0 for number in numbers):
        raise Usage(f"{show(text)}: a slice counts from the start; negative numbers have no meaning here")
    if len(numbers) == 1:
        if numbers[0] is None:
            raise Usage("an empty slice")
        return numbers[0], numbers[0] + 1, 1
    lo, hi, step = (numbers + [None])[:3]
    if step == 0:
        raise Usage(f"{show(text)}: the step of a slice is at least 1")
    return lo or 0, hi, step or 1


@dataclass
class KeyList:
    """Wanted keys, read from the file `name`, with `require_all` all of them; `found` are those of samples so far.

    `ended`: all samples were read, so that keys that were not found are missing.
    """

    name: str
    wanted: frozenset[bytes]
    require_all: bool = False
    found: set[bytes] = field(default_factory=set)
    ended: bool = False
    others: set[bytes] = field(default_factory=set)  # the first keys of samples that were not wanted

    def hint(self) -> str | None:
        """If no key was found, suggest a key for a wanted one that is a file name or has another directory."""
        if self.found:
            return None
        bases = {key.rpartition(b"/")[2]: key for key in sorted(self.others, reverse=True)}
        for wanted in self.missing():
            named = split_name(wanted)
            key = wanted if named is None else named[0]
            meant = key if key in self.others else bases.get(key.rpartition(b"/")[2])
            if meant is not None:
                return f"{show(wanted)} is no key, but there is a sample with the key {show(meant)}"
        return None

    def missing(self) -> list[bytes]:
        """The keys that were not found, sorted."""
        return sorted(self.wanted - self.found)

    def summary(self) -> tuple[dict[str, int], str]:
        """Return the numbers of keys wanted, found and missing, as a dict and as text."""
        missing = self.missing()
        what = "missing" if self.ended else "not_reached"
        facts = {"wanted": len(self.wanted), "found": len(self.found), "missing": 0, what: len(missing)}
        text = f"{self.name}: {len(self.wanted)} keys wanted, {len(self.found)} found"
        if self.ended or missing:
            text += f", {len(missing)} {'missing' if self.ended else 'not reached'}"
        return facts, f"{text}, the first of them {show(missing[0])}" if missing else text


@dataclass
class Select:
    """What --match, --keys-from, --where, --sample, --slice and --count chose, in this order. `seed` is for `sample`.

    `policy` hands over what says about problems that `where` meets.
    """

    match: str | None = None
    keys: KeyList | None = None
    where: Where | None = None
    sample: float | None = None
    seed: int | None = None
    slice: Slice | None = None
    count: int | None = None
    policy: Callable[[], Policy] = field(default=Policy, compare=False)

    def __post_init__(self) -> None:
        if self.match is not None:
            try:
                self._pattern = re.compile(os.fsencode(self.match))
            except re.error as error:
                raise Usage(f"--match {show(self.match)}: {error}") from None
        if self.sample is not None and not 0 <= self.sample <= 1:
            raise Usage("--sample takes a share from 0 to 1")

    @property
    def all(self) -> bool:
        """Whether every sample is selected."""
        return self == Select(seed=self.seed)

    def __call__(self, samples: Iterator[TarSample], policy: Policy | None = None) -> Iterator[TarSample]:
        """Yield the selected samples; `policy` replaces that of `self.policy`."""
        if self.all:
            return samples
        samples = (sample for sample in samples if sample.key is not None)
        if self.match is not None:
            search = self._pattern.search
            samples = (sample for sample in samples if search(sample.key or b""))
        if self.keys is not None:
            samples = self._listed(samples, self.keys)
        if self.where is not None:
            wanted, judge = self.where, policy or self.policy()
            samples = (sample for sample in samples if wanted(sample, judge))
        if self.sample is not None:
            from random import Random

            share, draw = self.sample, Random(self.seed).random
            samples = (sample for sample in samples if draw() < share)
        if self.slice is not None:
            samples = islice(samples, *self.slice)
        if self.count is not None:
            samples = islice(samples, min(self.count, _MOST))
        return samples

    @staticmethod
    def _listed(samples: Iterator[TarSample], keys: KeyList) -> Iterator[TarSample]:
        for sample in samples:
            if sample.key in keys.wanted:
                keys.found.add(sample.key)
                yield sample
            elif len(keys.others) < SEEN:
                keys.others.add(sample.key or b"")
        keys.ended = True
