"""Which node and which worker this process is, and its part of the shards, as webdataset divides them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from tarkit.arguments import check_whole
from tarkit.errors import Usage
from tarkit.sizes import plural

Item = TypeVar("Item")


class WorkerPlace(NamedTuple):
    """The place of this process: worker `worker` of `workers` on node `rank` of `world`, which share the shards.

    Every node has the same number of workers.
    """

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    @property
    def parts(self) -> int:
        """The number of workers on all nodes."""
        return self.world * self.workers

    @property
    def number(self) -> int:
        """The number of this worker among those of all nodes."""
        return self.rank * self.workers + self.worker

    def divide(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this worker: item `i` is of node `i % world`, and of these `i` of worker `i % workers`.

        >>> from tarkit.loading.division import WorkerPlace
        >>> list(WorkerPlace(rank=1, world=3, worker=1, workers=2).divide(range(20)))
        [4, 10, 16]
        """
        return items[self.rank :: self.world][self.worker :: self.workers]

    def run_of(self, count: int) -> range:
        """Return the part of this worker of `count` samples in order, which follow each other; the last has least.

        >>> from tarkit.loading.division import WorkerPlace
        >>> [WorkerPlace(0, 1, worker, 3).run_of(11) for worker in range(3)]
        [range(0, 4), range(4, 8), range(8, 11)]
        """
        (whole, more), number = divmod(count, self.parts), self.number
        begin = number * whole + min(number, more)
        return range(begin, begin + whole + (number < more))

    def all(self) -> list[WorkerPlace]:
        """Return the places of all workers of all nodes."""
        pairs = [(rank, worker) for rank in range(self.world) for worker in range(self.workers)]
        return [WorkerPlace(rank, self.world, worker, self.workers) for rank, worker in pairs]

    def describe(self) -> str:
        """Return the numbers of workers and nodes for a message: `4 workers (2 on each of 2 nodes)`."""
        workers = plural(self.parts, "worker")
        return workers if self.world == 1 else f"{workers} ({self.workers} on each of {self.world} nodes)"


def find_place(
    rank: int | None = None, world: int | None = None, worker: int | None = None, workers: int | None = None
) -> WorkerPlace:
    """Return the division of this process, by the arguments or its environment.

    Args:
        rank, world: the number of this node, and of all nodes; else `$RANK` and `$WORLD_SIZE`, both of them; else those
            of torch.distributed, if the process has initialised it; else 0 of 1.
        worker, workers: the number of this worker, and of all workers of a node; else `$WORKER` and `$NUM_WORKERS`;
            else those of torch's DataLoader in its worker processes; else 0 of 1.

    Raises:
        Usage: one of two numbers without the other, or numbers that do not go together.
    """
    node = _pair("rank", rank, "world", world) or _by_environment("RANK", "WORLD_SIZE") or find_process_group()
    part = _pair("worker", worker, "workers", workers) or _by_environment("WORKER", "NUM_WORKERS") or _by_torch()
    return WorkerPlace(*(node or (0, 1)), *(part or (0, 1)))


def _pair(name: str, number: int | None, total: str, count: int | None) -> tuple[int, int] | None:
    """Return two numbers that belong together, None for neither."""
    if number is None and count is None:
        return None
    if number is None or count is None:
        raise Usage(f"{name} and {total} belong together: give both or neither")
    check_whole(**{name: number, total: count})
    if not 0 <= number < count:
        raise Usage(f"{name}={number}, {total}={count}: {name} is from 0 to {total} - 1")
    return number, count


def _by_environment(name: str, total: str) -> tuple[int, int] | None:
    """Return the numbers of two variables of the environment, None if one is not set."""
    number, count = os.environ.get(name), os.environ.get(total)
    if number is None or count is None:
        return None
    try:
        return _pair(f"${name}", int(number), f"${total}", int(count))
    except ValueError:
        raise Usage(f"${name}={number}, ${total}={count}: whole numbers are needed") from None


def find_process_group() -> tuple[int, int] | None:
    """Return the rank and the size of torch's process group, None without one. torch is not loaded for this."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _by_torch() -> tuple[int, int] | None:
    """Return the number of this worker process of torch's DataLoader, None outside of one."""
    data: Any = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else (info.id, info.num_workers)
