"""The order of the shards, or of all samples, in one epoch. It depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tarkit.loading.division import WorkerPlace


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers below `count` in a random order, the same on all nodes.

    For epoch 0 it is the order of webdataset's `SimpleShardList(seed=seed)`, and that of its `detshuffle` with
    `seed + epoch` for others.
    """
    numbers = list(range(count))
    Random(seed + epoch).shuffle(numbers)
    return numbers


def drawn(count: int, seed: int, epoch: int, place: WorkerPlace) -> Iterator[int]:
    """Yield numbers below `count` without end, drawn with replacement; others for each worker.

    The numbers are those of webdataset's `ResampledShards(deterministic=True)`.
    """
    folded = 0
    for part in (place.rank * 1000 + place.worker, epoch, seed):
        folded = (folded * 31 + hash(part)) & 0x7FFFFFFF
    draw = Random(folded).randint
    while True:
        yield draw(0, count - 1)


def buffer_random(seed: int, epoch: int, place: WorkerPlace) -> Random:
    """Return the random numbers of the shuffle buffer of a worker: `Random(seed + epoch)` for the first worker."""
    number = place.rank * place.workers + place.worker
    return Random((number << 64) + seed + epoch)
