"""Numbers of epochs that processes share."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import pytest

from tarkit.loading.epochs import EpochLog


def test_workers_of_one_group_have_one_epoch() -> None:
    """The first of a group begins it; a second iteration of the same workers is the next."""
    log = EpochLog()
    assert [log.begin(100, 1, 1) for _ in range(3)] == [0, 0, 0]
    assert [log.begin(200, 1, 1) for _ in range(3)] == [1, 1, 1]
    assert [log.begin(200, 2, 1) for _ in range(3)] == [2, 2, 2]
    assert log.begin(100, 1, 1) == 0  # late
    assert log.begin(-1, 1, 1) == 3
    assert log.next == 4


def test_epochs_that_are_set_or_loaded() -> None:
    """A set number is that of the next iteration; a loaded one is followed by the epochs behind it."""
    log = EpochLog(5)
    assert log.begin(1, 1, 1) == 5
    log.set_next(9)
    assert log.begin(1, 1, 1) == 5
    assert log.begin(1, 2, 3) == 9
    assert log.begin(2, 1, 1) == 12
    assert log.begin(3, 1, 1, epoch=40) == 40
    assert log.begin(4, 1, 1) == 41


def test_a_seed_of_64_bits() -> None:
    """Any seed of torch is a group."""
    log = EpochLog()
    assert log.begin((1 << 64) - 1, 1, 1) == 0
    assert log.begin((1 << 63) - 2, 1, 1) == 1


def test_a_copy_counts_for_itself() -> None:
    """It begins with the number that is next."""
    log = EpochLog(3)
    for other in (copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        assert other.begin(1, 1, 1) == 3
        assert log.next == 3


def _begin(log: EpochLog, group: int, found: Any) -> None:
    found.put(log.begin(group, 1, 1))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.forks
def test_other_processes(method: str) -> None:
    """Processes that are forked or spawned share the log."""
    context = multiprocessing.get_context(method)
    log, found = EpochLog(), context.Queue()
    for group in (7, 8):
        processes = [context.Process(target=_begin, args=(log, group, found)) for _ in range(2)]
        for process in processes:
            process.start()
        assert [found.get(timeout=60) for _ in processes] == [group - 7] * 2
        for process in processes:
            process.join()
    assert log.next == 2
