"""The order of the shards, or of all samples, in one epoch. It depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import Any

from tarkit.loading.division import WorkerPlace

Unit = tuple[int, int, int]
"""What a worker reads of a shard: its number, the first sample, and the one behind the last, -1 for all."""


PASSES = 1 << 20
"""Epochs between two passes over a source in one epoch of a mix, so that orders differ."""


def time_of(epoch: int) -> tuple[int, int]:
    """Return the epoch and the pass over a source that the number of an epoch means, which are in order of time."""
    return epoch % PASSES, epoch // PASSES


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers below `count` in a random order, the same on all nodes.

    For epoch 0 it is the order of webdataset's `SimpleShardList(seed=seed)`, and that of its `detshuffle` with
    `seed + epoch` for others.
    """
    numbers = list(range(count))
    Random(seed + epoch).shuffle(numbers)
    return numbers


def positions_of(count: int, place: WorkerPlace, block: int, spread: bool) -> Sequence[int]:
    """Return which of `count` samples in order are those of a worker.

    Samples go to nodes in turn, and those of a node to its workers in turn, `block` at a time. So batches of that size
    are the same for any number of workers, as a DataLoader takes one of each in turn, and those of all nodes together
    for any number of nodes. With `spread` the samples behind the last full turn are dealt one by one.
    """
    own = range(place.rank, count, place.world)
    if block == 1 or place.workers == 1:
        return own[place.worker :: place.workers]
    turn = block * place.workers
    stop = len(own) - (len(own) % turn if spread else 0)
    blocks = [own[at : min(at + block, stop)] for at in range(place.worker * block, stop, turn)]
    return [*chain.from_iterable(blocks), *own[stop:][place.worker :: place.workers]]


def cut(units: Iterable[Unit], samples: range) -> list[Unit]:
    """Return the units of some of the samples that `units`, whose ends are known, have one after another.

    >>> from tarkit.loading.order import cut
    >>> cut([(4, 0, 10), (2, 5, 25)], range(8, 12))
    [(4, 8, 10), (2, 5, 7)]
    """
    found, before = [], 0
    for shard, first, stop in units:
        begin, end = max(samples.start - before, 0), min(samples.stop - before, stop - first)
        if begin < end:
            found.append((shard, first + begin, first + end))
        before += stop - first
    return found


def left_of(order: list[int], given: Any, equal: str | None) -> list[int]:
    """Return the samples of an order that workers have not given.

    Args:
        order: the samples.
        given: the number of nodes, that of workers of each, the size of blocks, and of each worker how many of its
            samples it has taken (-1: all), and the numbers of those taken but not given.
        equal: that of the loader.
    """
    world, workers, block, counts, taken = given
    order = even(order, world * workers, equal)
    done = bytearray(len(order))
    for number, place in enumerate(WorkerPlace(0, world, 0, workers).all()):
        own = positions_of(len(order), place, block, equal is not None)
        for at in own if counts[number] < 0 else own[: counts[number]]:
            done[at] = 1
        for at in taken[number]:
            done[own[at]] = 0
    return [row for row, passed in zip(order, done, strict=True) if not passed]


def even(order: list[int], parts: int, equal: str | None) -> list[int]:
    """Return the samples of an order that `parts` workers read: as many each, if `equal` drops the others."""
    return order[: len(order) // parts * parts] if equal == "drop" else order


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
    return Random((place.number << 64) + seed + epoch)
