"""Who gets which shards in training: webdataset's split_by_node and split_by_worker.

Shard i goes to node i mod W; of a node's shards, the j-th goes to its worker j mod K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Share(NamedTuple):
    """What one worker gets; `worker` is None for all of a node together."""

    node: int
    worker: int | None
    shards: int
    samples: int


def deal(samples: Sequence[int], world: int, workers: int) -> list[Share]:
    """The shares of all workers of all nodes, of shards with so many samples, in order; a node's own before them."""
    shares = []
    for node in range(world):
        mine = samples[node::world]
        shares.append(Share(node, None, len(mine), sum(mine)))
        for worker in range(workers if workers > 1 else 0):
            shares.append(Share(node, worker, len(mine[worker::workers]), sum(mine[worker::workers])))
    return shares
