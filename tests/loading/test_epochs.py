"""Numbers of epochs that processes share."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from typing import Any

import pytest

from tarkit.loading.epochs import EpochLog, Iteration


def begin(log: EpochLog, group: int, time: int, worker: int, epochs: int = 1, **how: Any) -> int:
    return log.begin(Iteration(os.getpid(), group, time, worker), epochs, **how)


def test_workers_of_one_group_have_one_epoch() -> None:
    """The first of a group begins it; a second iteration of the same workers is the next."""
    log = EpochLog()
    assert [begin(log, 100, 1, worker) for worker in range(3)] == [0, 0, 0]
    assert [begin(log, 200, 1, worker) for worker in (2, 0, 1)] == [1, 1, 1]
    assert [begin(log, 200, 2, worker) for worker in range(3)] == [2, 2, 2]
    assert begin(log, 100, 1, 3) == 0  # late
    assert begin(log, -1, 1, -1) == 3
    assert log.next == 4


def test_workers_with_the_seed_of_earlier_ones() -> None:
    """Torch was seeded again: a worker that comes again begins the next epoch, also one that was set."""
    log = EpochLog()
    assert [begin(log, 7, 1, worker) for worker in (0, 1)] == [0, 0]
    assert [begin(log, 7, 1, worker) for worker in (1, 0)] == [1, 1]
    log.set_next(5)
    assert [begin(log, 7, 1, worker) for worker in (0, 1)] == [5, 5]


def test_processes_count_for_themselves() -> None:
    """Nodes of one machine, which share the file, have the same epochs, whatever the seeds of their workers."""
    log = EpochLog(2)
    found = [
        log.begin(Iteration(owner, 10 * owner + epoch, 1, worker), 1)
        for epoch in range(2)
        for owner in (1, 2)
        for worker in range(2)
    ]
    assert found == [2, 2, 2, 2, 3, 3, 3, 3]


def test_epochs_that_are_set_or_loaded() -> None:
    """A set number is that of the next iteration; a loaded one is followed by the epochs behind it."""
    log = EpochLog(5)
    assert begin(log, 1, 1, 0) == 5
    log.set_next(9)
    assert begin(log, 1, 1, 1) == 5
    assert begin(log, 1, 2, 0, 3) == 9
    assert begin(log, 2, 1, 0) == 12
    assert begin(log, 3, 1, 0, epoch=40) == 40
    assert begin(log, 4, 1, 0) == 41


def test_a_seed_of_64_bits() -> None:
    """Any seed of torch is a group."""
    log = EpochLog()
    assert begin(log, (1 << 64) - 1, 1, 0) == 0
    assert begin(log, (1 << 63) - 2, 1, 0) == 1


def test_a_copy_counts_for_itself() -> None:
    """It begins with the number that is next."""
    log = EpochLog(3)
    for other in (copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        assert begin(other, 1, 1, 0) == 3
        assert log.next == 3


def _begin(log: EpochLog, group: int, worker: int, found: Any) -> None:
    found.put(log.begin(Iteration(os.getppid(), group, 1, worker), 1))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.forks
def test_other_processes(method: str) -> None:
    """Processes that are forked or spawned share the log."""
    context = multiprocessing.get_context(method)
    log, found = EpochLog(), context.Queue()
    for group in (7, 8):
        processes = [context.Process(target=_begin, args=(log, group, worker, found)) for worker in range(2)]
        for process in processes:
            process.start()
        assert [found.get(timeout=60) for _ in processes] == [group - 7] * 2
        for process in processes:
            process.join()
    assert log.next == 2
