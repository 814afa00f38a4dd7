"""Lists of shards, and which of them a process reads, by webdataset's names."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from tarkit.errors import Usage
from tarkit.loading.division import find_place
from tarkit.sizes import plural
from tarkit.streams.location import expand_inputs
from tarkit.wds.utils import pytorch_worker_seed

try:
    from torch.utils.data import IterableDataset as IterableDataset
except ModuleNotFoundError:

    class IterableDataset:  # type: ignore[no-redef]
        """The base of datasets where torch is not installed."""


Shard = dict[str, Any]
"""A shard in front of the stage that opens it: its name as `url`."""


def expand_urls(urls: str | Iterable[str]) -> list[str]:
    """Return the names of shards: braces, globs, directories, URLs, and `::` between several, as in `tarkit.open`.

    A path that does not exist is an error when it is read.
    """
    locations = expand_inputs([urls] if isinstance(urls, str) else list(urls), missing="all")
    return [f"pipe:{location.text}" if location.kind == "pipe" else location.text for location in locations]


class SimpleShardList(IterableDataset):  # type: ignore[misc]
    """A list of shards; with a seed in a random order, the same in each epoch. True draws a seed."""

    def __init__(self, urls: str | Iterable[str], seed: Any = None) -> None:
        super().__init__()
        self.urls = expand_urls(urls)
        self.seed = random.getrandbits(32) if seed is True else seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[Shard]:
        urls = self.urls.copy()
        if self.seed is not None:
            random.Random(self.seed).shuffle(urls)
        return ({"url": url} for url in urls)


class ResampledShards(IterableDataset):  # type: ignore[misc]
    """Shards drawn with replacement, without end or `nshards` of them.

    With `deterministic` the draws of a worker follow from `seed` and the number of the epoch: those of webdataset for
    integers as seeds.
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        nshards: int | None = None,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.urls = expand_urls(urls)
        self.nshards = nshards
        self.seed = seed
        self.epoch = -1
        self._worker_seed = pytorch_worker_seed if worker_seed is None else worker_seed
        self._deterministic = deterministic

    def __iter__(self) -> Iterator[Shard]:
        self.epoch += 1
        parts: list[int] = [self._worker_seed(), self.epoch, self.seed]
        if not self._deterministic:
            parts += [os.getpid(), time.time_ns(), int.from_bytes(os.urandom(4), "little")]
        seed = 0
        for part in parts:
            seed = (seed * 31 + hash(part)) & 0x7FFFFFFF
        draw = random.Random(seed)
        return islice(iter(lambda: {"url": self.urls[draw.randrange(len(self.urls))]}, None), self.nshards)


def split_by_node(shards: Iterable[Shard], group: object = None) -> Iterator[Shard]:
    """Return the shards of this node."""
    place = find_place()
    return islice(shards, place.rank, None, place.world)


def split_by_worker(shards: Iterable[Shard]) -> Iterator[Shard]:
    """Return the shards of this worker, of those of its node."""
    place = find_place()
    return islice(shards, place.worker, None, place.workers)


def single_node_only(shards: Iterable[Shard], group: object = None) -> Iterator[Shard]:
    """Return the shards.

    Raises:
        Usage: there are several nodes, whose shards must be divided by `split_by_node`.
    """
    place = find_place()
    if place.world > 1:
        raise Usage(
            f"{plural(place.world, 'node')} would read the same shards", "give nodesplitter=tarkit.wds.split_by_node"
        )
    return iter(shards)
