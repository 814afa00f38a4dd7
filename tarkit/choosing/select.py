"""Select samples: by key, list, expression, position, at random. Iterators of batches in, iterators of batches out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import not_
from typing import TYPE_CHECKING, Literal

from tarkit.errors import Usage, show, spell
from tarkit.problems import Policy
from tarkit.samples.sample import SampleBatch

if TYPE_CHECKING:
    from tarkit.choosing.key_list import KeyList
    from tarkit.choosing.where import Where

Slice = tuple[int, int | None, int]
PerClass = int | Literal["min", "max", "median"]

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
