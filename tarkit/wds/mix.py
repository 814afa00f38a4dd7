"""Several pipelines as one source, in turn or at random, by webdataset's names."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from tarkit.wds.shardlists import IterableDataset


class RoundRobin(IterableDataset):  # type: ignore[misc]
    """A sample of each dataset in turn, until one ends; with `longest` until all have ended."""

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        super().__init__()
        self._datasets = datasets
        self._longest = longest

    def __iter__(self) -> Iterator[Any]:
        sources, turn, end = [iter(data) for data in self._datasets], 0, object()
        while sources:
            turn %= len(sources)
            if (sample := next(sources[turn], end)) is not end:
                yield sample
                turn += 1
            elif self._longest:
                del sources[turn]
            else:
                return


class RandomMix(IterableDataset):  # type: ignore[misc]
    """Draw each sample from a dataset by weights, until that one ends; with `longest` until all have ended.

    The numbers are those of `random`, as in webdataset; `tarkit.mix` has a seed and weights that hold in every prefix.
    """

    def __init__(
        self, datasets: Sequence[Iterable[Any]], probs: Sequence[float] | None = None, longest: bool = False
    ) -> None:
        super().__init__()
        self._datasets = datasets
        self._weights = [1.0] * len(datasets) if probs is None else list(probs)
        self._longest = longest

    def __iter__(self) -> Iterator[Any]:
        sources, weights, end = [iter(data) for data in self._datasets], list(self._weights), object()
        while sources:
            total = sum(weights)
            limits = list(accumulate(weight / total for weight in weights))
            drawn = min(bisect_left(limits, random.random()), len(sources) - 1)
            if (sample := next(sources[drawn], end)) is not end:
                yield sample
            elif self._longest:
                del sources[drawn], weights[drawn]
            else:
                return
