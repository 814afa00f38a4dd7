"""Select samples: by key, list, expression, position, at random. Iterators of batches in, iterators of batches out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import not_
from typing import TYPE_CHECKING, Literal

from tarkit.errors import Usage, show, spell
from tarkit.problems import Policy
from tarkit.samples.names import NearKeys, composed, form_words
from tarkit.samples.sample import SampleBatch, split_name
from tarkit.sizes import plural
from tarkit.spill.records import by_rank
from tarkit.spill.sets import Marks, StoredSet

if TYPE_CHECKING:
    from tarkit.choosing.where import Where

Slice = tuple[int, int | None, int]
PerClass = int | Literal["min", "max", "median"]

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
    """Keys to select or to leave out, read from the file `name`.

    Attributes:
        name: the file, for messages.
        wanted: the keys; more than `spill.sets.HELD` are in temporary space.
        require_all: a missing key is an error.
        present: those of them that samples had so far.
        ended: all samples were read: keys that were not found are missing.
        others: the first keys of samples that are not listed.
    """

    name: str
    wanted: frozenset[bytes] | StoredSet
    require_all: bool = False
    present: set[bytes] | Marks = field(init=False)
    ended: bool = False
    others: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.present = Marks(self.wanted) if isinstance(self.wanted, StoredSet) else set()

    def found(self, keys: Iterable[bytes]) -> Iterator[bool]:
        """Yield whether keys of samples are listed, and remember which of those listed were found."""
        for key in keys:
            if key in self.wanted:
                self.present.add(key)
                yield True
            else:
                if len(self.others) < OTHERS:
                    self.others.add(key)
                yield False

    def numbers_in(self, keys: Iterable[bytes]) -> Iterator[int]:
        """Yield the numbers of those of keys that are listed; of the others the first are remembered."""
        for number, key in enumerate(keys):
            if key in self.wanted:
                yield number
            elif len(self.others) < OTHERS:
                self.others.add(key)

    def anew(self) -> KeyList:
        """Return the same list, of which no key was found yet."""
        return KeyList(self.name, self.wanted, self.require_all)

    def hint(self) -> str | None:
        """Return a suggestion: a key in another Unicode form; if no key was found, a column, or a key that is similar
        to a file name or has another directory."""
        forms = {composed(key): key for key in self.others if not key.isascii()}
        missing = self._first_missing(OTHERS)
        for listed in missing if forms else ():
            if (same := forms.get(composed(listed))) is not None:
                return f"the key {show(listed)} is there {form_words(same)}"
        if self.present:
            return None
        table = self.name.lower().endswith((".csv", ".tsv"))
        if table and all(b"," in key or b"\t" in key for key in self.wanted):
            return f"the lines look like rows of a table: {self.name}:COLUMN takes the keys in a column"
        near = NearKeys(self.others)
        for listed in missing:
            named = split_name(listed)
            if (meant := near.find(listed if named is None else named[0])) is not None:
                return f"no sample has the key {show(listed)}; did you mean {show(meant)}?"
        return None

    def missing(self) -> Iterable[bytes]:
        """Return the keys that were not found, sorted."""
        if isinstance(self.present, set):
            return sorted(self.wanted - self.present)  # type: ignore[operator]
        return by_rank(((key, key) for key in self.present.others()), self.present.tmpdir)

    def _first_missing(self, count: int) -> list[bytes]:
        """Return the first of the keys that were not found: of a list in memory all."""
        return sorted(self.missing()) if isinstance(self.present, set) else nsmallest(count, self.present.others())

    def summary(self, done: str = "requested") -> tuple[dict[str, int], str]:
        """Return the numbers of keys listed, found and missing, as a dict and as text. `done` says what is done."""
        missing = len(self.wanted) - len(self.present)
        state = "missing" if self.ended else "not_reached"
        facts = {"wanted": len(self.wanted), "found": len(self.present), "missing": 0, state: missing}
        text = f"{self.name}: {plural(len(self.wanted), 'key')} {done}, {len(self.present)} found"
        if self.ended or missing:
            text += f", {missing} {'missing' if self.ended else 'not reached'}"
        return facts, f"{text}, the first of them {show(self._first_missing(1)[0])}" if missing else text


@dataclass(repr=False)
class Select:
    """The options that select samples, applied in this order.

    `unique_by`, `balance` and a number of samples in `sample` are steps of their own: `pipeline.choose.steps_of`.

    Attributes:
        match: an expression for keys.
        keys: those that are taken.
        exclude_keys: those that are left out.
        where: the expression for values.
        unique_by: the field of which each value is there once.
        balance: the field of which each value is there as often as `per_class` says.
        sample: a number of samples, or the probability of each.
        seed: for `balance` and `sample`.
        slice, count: which of the samples that are left.
        policy: returns the policy for problems in `where`.
    """

    match: str | None = None
    keys: KeyList | None = None
    exclude_keys: KeyList | None = None
    where: Where | None = None
    unique_by: str | None = None
    balance: str | None = None
    per_class: PerClass = "min"
    sample: float | int | None = None
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

    @property
    def all(self) -> bool:
        """Whether every sample is selected."""
        return self == Select(seed=self.seed)

    @property
    def each_alone(self) -> bool:
        """Whether samples are chosen one by one, without steps of their own."""
        return self.unique_by is None and self.balance is None and not isinstance(self.sample, int)

    @property
    def most(self) -> int | None:
        """How many samples `slice` and `count` look at; None if they may look at all."""
        lo, hi, step = self.slice or (0, None, 1)
        positions = range(lo, _MOST if hi is None else hi, step)[: self.count]
        if hi is None and self.count is None:
            return None
        return positions[-1] + 1 if positions else 0

    @property
    def is_random(self) -> bool:
        """Whether the seed is used."""
        return self.sample is not None or self.balance is not None

    def __call__(self, batches: Iterator[SampleBatch], policy: Policy | None = None) -> Iterator[SampleBatch]:
        """Yield the selected samples; `policy` replaces that of `self.policy`."""
        if self.all:
            return batches
        from tarkit.choosing.batches import by_keys, by_position, by_values  # not loaded for most runs

        batches = (batch for batch in batches if batch.key is not None)
        if self.match is not None:
            search = self._pattern.search
            batches = by_keys(batches, lambda keys: (search(key) is not None for key in keys))
        ends = self.slice is not None or self.count is not None
        if self.keys is not None:
            batches = by_keys(_read_one_by_one(batches, ends), self.keys.found)
            batches = self._to_end(batches, self.keys)
        if self.exclude_keys is not None:
            others = self.exclude_keys
            batches = by_keys(_read_one_by_one(batches, ends), lambda keys: map(not_, others.found(keys)))
            batches = self._to_end(batches, others)
        if self.where is not None:
            batches = by_values(self.where, batches, policy or self.policy())
        if self.sample is not None:
            from random import Random

            share, draw = self.sample, Random(self.seed).random
            batches = by_keys(batches, lambda keys: (draw() < share for _ in keys))
        if self.slice is not None:
            batches = by_position(batches, *self.slice)
        if self.count is not None:
            batches = by_position(batches, 0, self.count)
        return batches

    @staticmethod
    def _to_end(batches: Iterator[SampleBatch], keys: KeyList) -> Iterator[SampleBatch]:
        yield from batches
        keys.ended = True


def _read_one_by_one(batches: Iterator[SampleBatch], every: bool) -> Iterator[SampleBatch]:
    """Yield samples that were read one by one, so that listed keys count up to the last sample that is taken.

    Rows of views stay together, unless `every` is set.
    """
    for batch in batches:
        yield from (batch,) if batch.unread and not every else batch
