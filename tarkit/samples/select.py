"""Select samples: by key, by list, at random, by position. Iterators in, iterators out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from tarkit.errors import Usage, show, spell
from tarkit.problems import Policy
from tarkit.samples.names import NearKeys, composed, form_words
from tarkit.samples.sample import TarSample, split_name
from tarkit.sizes import plural

if TYPE_CHECKING:
    from tarkit.samples.where import Where

Slice = tuple[int, int | None, int]

OTHERS = 10_000  # keys of other samples that are kept for suggestions
_MOST = sys.maxsize - 1  # the limit of islice


def parse_slice(text: str, name: str = "slice") -> Slice:
    """Return (lo, hi, step) for `LO:HI:STEP`, each optional; `LO` alone is one sample. `name` is that of the option.

    Raises:
        Usage: an invalid slice; negative numbers, since the number of samples is unknown.
    """
    parts = text.split(":")
    try:
        numbers = [min(int(part), _MOST) if part.strip() else None for part in parts]
        if len(parts) > 3:
            raise ValueError
    except ValueError:
        raise Usage(f"{spell(name, text)}: LO:HI:STEP takes up to three integers") from None
    if any(number is not None and number < 0 for number in numbers):
        raise Usage(f"{spell(name, text)}: negative numbers are not supported")
    if len(numbers) == 1:
        if numbers[0] is None:
            raise Usage(f"{spell(name, text)}: LO:HI:STEP takes up to three integers")
        return numbers[0], numbers[0] + 1, 1
    lo, hi, step = (numbers + [None])[:3]
    if step == 0:
        raise Usage(f"{spell(name, text)}: the step must be at least 1")
    return lo or 0, hi, step or 1


@dataclass(eq=False, repr=False)
class KeyList:
    """Keys to select, read from the file `name`.

    Attributes:
        name: the file, for messages.
        wanted: the keys.
        require_all: a missing key is an error.
        present: the keys of the samples that were selected so far.
        ended: all samples were read: keys that were not found are missing.
        others: the first keys of samples that were not selected.
    """

    name: str
    wanted: frozenset[bytes]
    require_all: bool = False
    present: set[bytes] = field(default_factory=set)
    ended: bool = False
    others: set[bytes] = field(default_factory=set)

    def hint(self) -> str | None:
        """Return a suggestion: a key in another Unicode form; if no key was found, a column, or a key that is similar
        to a file name or has another directory."""
        forms = {composed(key): key for key in self.others if not key.isascii()}
        for listed in self.missing() if forms else ():
            if (same := forms.get(composed(listed))) is not None:
                return f"the key {show(listed)} is there {form_words(same)}"
        if self.present:
            return None
        table = self.name.lower().endswith((".csv", ".tsv"))
        if table and all(b"," in key or b"\t" in key for key in self.wanted):
            return f"the lines look like rows of a table: {self.name}:COLUMN takes the keys in a column"
        near = NearKeys(self.others)
        for listed in self.missing():
            named = split_name(listed)
            if (meant := near.find(listed if named is None else named[0])) is not None:
                return f"no sample has the key {show(listed)}; did you mean {show(meant)}?"
        return None

    def missing(self) -> list[bytes]:
        """The keys that were not found, sorted."""
        return sorted(self.wanted - self.present)

    def summary(self) -> tuple[dict[str, int], str]:
        """Return the numbers of keys requested, found and missing, as a dict and as text."""
        missing = self.missing()
        state = "missing" if self.ended else "not_reached"
        facts = {"wanted": len(self.wanted), "found": len(self.present), "missing": 0, state: len(missing)}
        text = f"{self.name}: {plural(len(self.wanted), 'key')} requested, {len(self.present)} found"
        if self.ended or missing:
            text += f", {len(missing)} {'missing' if self.ended else 'not reached'}"
        return facts, f"{text}, the first of them {show(missing[0])}" if missing else text


@dataclass(repr=False)
class Select:
    """The options --match, --keys-from, --where, --sample, --slice and --count, applied in this order.

    `seed` is for `sample`. `policy` returns the policy for problems in `where`.
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
                raise Usage(f"{spell('match')} {show(self.match)}: {error}") from None
        if self.sample is not None and not 0 <= self.sample <= 1:
            raise Usage(f"{spell('sample')} takes a fraction from 0 to 1")

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
            where, on_problem = self.where, policy or self.policy()
            samples = (sample for sample in samples if where(sample, on_problem))
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
                keys.present.add(sample.key)
                yield sample
            elif len(keys.others) < OTHERS:
                keys.others.add(sample.key or b"")
        keys.ended = True
