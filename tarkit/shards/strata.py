"""Deal samples to parts class by class, so that each class comes in the shares that were asked for.

After any number of samples, a part has of each class its share of them, rounded down or up: with the share f, of n
samples floor(f n) or ceil(f n). Among the choices that leave this possible for all that may follow, it is the part that
is most behind its share of the whole set; so many small classes together come out nearly right as well.

What is possible is Pfair scheduling on one processor: a part's j-th sample of a class comes no sooner than number
floor((j - 1) / f) + 1 of it and no later than number ceil(j / f). Dealing to the one that must be served soonest is
always possible (Baruah, Cohen, Plaxton, Varvel 1996), so a choice is good if doing that from there on leads to where
doing nothing else leads. It is tried for the first ten thousand samples of a class; then the soonest gets the next.

Who gets what depends on the samples before: the same input gives the same parts, and what is added behind it changes
nothing, but another order does. Only counts are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm

from tarkit.errors import TarkitError
from tarkit.samples.sample import Sample
from tarkit.shards.partition import Part

CLASSES = 1_000_000  # at most
_TRIED = 10_000  # samples of a class for which there is a choice, unless counts are whole again before


class Dealer:
    """Which part a sample is in, by number; `label` says its class, None for one that is left out."""

    def __init__(self, parts: Sequence[Part], label: Callable[[Sample], bytes | None]) -> None:
        self._label = label
        self._period = lcm(*(part.share.denominator for part in parts))
        self._weights = [int(part.share * self._period) for part in parts]
        self._counts: dict[bytes, list[int]] = {}
        self._totals = [0] * len(parts)
        self._dealt = 0
        self._free = len(parts) == 2 or len(set(self._weights)) == 1  # where any choice that holds is possible
        self._known: dict[tuple[int, ...], bool] = {}
        self._soonest_only = [[0] * len(parts)]

    @property
    def counts(self) -> dict[bytes, list[int]]:
        """How many of each class each part has."""
        return self._counts

    def __call__(self, sample: Sample) -> int | None:
        """The number of the part."""
        label = self._label(sample)
        return None if label is None else self.deal(label)

    def deal(self, label: bytes) -> int:
        """The part of the next sample of this class; raises TarkitError when there are too many classes."""
        counts = self._counts.get(label)
        if counts is None:
            if len(self._counts) == CLASSES:
                raise TarkitError(f"--stratify: over {CLASSES} classes", "is this field a class?")
            counts = self._counts[label] = [0] * len(self._weights)
        part = self._choose(counts)
        counts[part] += 1
        self._totals[part] += 1
        self._dealt += 1
        return part

    def _choose(self, counts: list[int]) -> int:
        whole, number = divmod(sum(counts), self._period)
        have = [count - whole * weight for count, weight in zip(counts, self._weights, strict=True)]
        number += 1
        behind = [
            total * self._period - weight * (self._dealt + 1)
            for total, weight in zip(self._totals, self._weights, strict=True)
        ]
        order = sorted(range(len(have)), key=behind.__getitem__)
        for part in order if number <= _TRIED else ():
            have[part] += 1
            if self._holds(have, number) and self._possible(have, number):
                return part
            have[part] -= 1
        return self._soonest(have, number, order)

    def _holds(self, have: Sequence[int], number: int) -> bool:
        """Whether each part has its share of so many, rounded down or up."""
        return all(
            weight * number // self._period <= count <= -(-weight * number // self._period)
            for count, weight in zip(have, self._weights, strict=True)
        )

    def _possible(self, have: Sequence[int], number: int) -> bool:
        """Whether the shares can hold for all that follows."""
        if self._free:
            return True
        state = (number, *have)
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = self._succeeds(list(have), number)
        return known

    def _succeeds(self, have: list[int], number: int) -> bool:
        order = range(len(have))
        while self._usual(number) != have:
            if number > _TRIED:
                return False
            number += 1
            have[self._soonest(have, number, order)] += 1
            if not self._holds(have, number):
                return False
        return True

    def _usual(self, number: int) -> list[int]:
        """What each part has after so many samples if it is always the soonest that gets the next."""
        for after in range(len(self._soonest_only), number + 1):
            have = list(self._soonest_only[-1])
            have[self._soonest(have, after, range(len(have)))] += 1
            self._soonest_only.append(have)
        return self._soonest_only[number]

    def _soonest(self, have: Sequence[int], number: int, order: Sequence[int]) -> int:
        """Of the parts that may have sample `number`, the one that must have its next the soonest."""
        best, least = order[0], self._period * 2
        for part in order:
            weight, count = self._weights[part], have[part]
            if count * self._period < weight * number:  # count + 1 <= ceil(share * number)
                due = -(-(count + 1) * self._period // weight)
                if due < least:
                    best, least = part, due
        return best
