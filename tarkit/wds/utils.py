"""The place of a process among nodes and workers, by webdataset's names."""

from __future__ import annotations

from tarkit.loading.division import find_place


def pytorch_worker_info(group: object = None) -> tuple[int, int, int, int]:
    """Return the number of this node, of all nodes, of this worker, and of the workers of a node."""
    return find_place()


def pytorch_worker_seed(group: object = None) -> int:
    """Return a seed that is another one in each worker of each node: 1000 times the node, plus the worker."""
    place = find_place()
    return place.rank * 1000 + place.worker
