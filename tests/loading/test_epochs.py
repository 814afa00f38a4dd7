"""Numbers of epochs that processes share."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from random import Random
from typing import Any

import pytest

from tarkit.loading.epochs import EpochLog, Iteration


def begin(log: EpochLog, group: int, time: int, workers: int = 3, epochs: int = 1, **how: Any) -> int:
    return log.begin(Iteration(os.getpid(), group, workers, time), epochs, **how)


def started(log: EpochLog) -> EpochLog:
    """Return the log as a process has it that is started now: in the same file."""
    made = EpochLog.__new__(EpochLog)
    vars(made).update(vars(log))
    return made


def test_workers_of_one_group_have_one_epoch() -> None:
    """The first of a group begins it; a second iteration of the same workers is the next."""
    log = EpochLog()
    assert [begin(log, 1, 1) for _ in range(3)] == [0, 0, 0]
    assert [begin(log, 4, 1) for _ in range(2)] == [1, 1]
    assert [begin(log, 4, 2) for _ in range(3)] == [2, 2, 2]
    assert begin(log, 4, 1) == 1  # late
    assert begin(log, -1, 1, 0) == 3
    assert log.next == 4


def test_other_processes_between_two_workers() -> None:
    """A process that a thread starts meanwhile does not separate the workers of a group."""
    log = EpochLog()
    assert [begin(log, group, 1, 4) for group in (1, 2, 2, 3)] == [0, 0, 0, 0]
    assert [begin(log, group, 1, 4) for group in (6, 7)] == [1, 1]


def test_processes_count_for_themselves() -> None:
    """Nodes of one machine, which share the file, have the same epochs."""
    log = EpochLog(2)
    found = [
        log.begin(Iteration(owner, 10 * owner + 2 * epoch, 2, 1), 1)
        for epoch in range(2)
        for owner in (1, 2)
        for worker in range(2)
    ]
    assert found == [2, 2, 2, 2, 3, 3, 3, 3]


def test_epochs_that_are_set_or_loaded() -> None:
    """A set number is that of the next iteration; a loaded one is followed by the epochs behind it."""
    log = EpochLog(5)
    before = started(log)
    assert begin(log, 1, 1) == 5
    log.set_next(9)
    assert begin(before, 1, 1) == 5
    assert begin(log, 4, 1, epochs=3) == 9
    assert begin(log, 7, 1) == 12
    assert begin(log, 10, 1, loaded=40) == 40
    assert begin(log, 13, 1) == 41
    log.set_next(2)
    assert begin(before, 1, 2) == 2  # workers that were there before it was set
    assert log.next == 3


def test_a_worker_that_begins_after_its_loader_was_left() -> None:
    """It does not take the epoch that was set for the next loader."""
    log = EpochLog()
    late = started(log)  # of a loader that gave no sample
    log.set_next(7)
    now = started(log)
    assert begin(late, 1, 1) == 0
    assert [begin(each, 4, 1) for each in (now, now)] == [7, 7]
    assert log.next == 8


def test_random_starts() -> None:
    """Loaders that are left before all workers have begun, in any order: those of a group agree, and groups advance."""
    for seed in range(200):
        random, log = Random(seed), EpochLog()
        started_before, expected = 1, 0  # number of the next process; epoch of the next group
        late: list[tuple[EpochLog, int, int, int]] = []
        for _ in range(8):
            if random.random() < 0.3:
                expected = random.randrange(20)
                log.set_next(expected)
            workers = random.randint(1, 4)
            places = [(started(log), started_before, workers, expected)] * workers
            started_before += workers + random.randrange(3)
            random.shuffle(late)
            for each, group, width, epoch in late[: random.randrange(3)]:
                assert begin(each, group, 1, width) == epoch
            begun = random.randint(1, workers)
            for each, group, width, epoch in places[:begun]:
                assert begin(each, group, 1, width) == epoch
            late += places[begun:]
            expected += 1
            assert log.next == expected


def test_a_copy_counts_for_itself() -> None:
    """It begins with the number that is next."""
    log = EpochLog(3)
    for other in (copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        assert begin(other, 1, 1) == 3
        assert log.next == 3


def _begin(log: EpochLog, group: int, found: Any) -> None:
    found.put(log.begin(Iteration(os.getppid(), group, 2, 1), 1))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.forks
def test_other_processes(method: str) -> None:
    """Processes that are forked or spawned share the log."""
    context = multiprocessing.get_context(method)
    log, found = EpochLog(), context.Queue()
    log.set_next(5)
    for group in (7, 9):
        processes = [context.Process(target=_begin, args=(log, group, found)) for _ in range(2)]
        for process in processes:
            process.start()
        assert [found.get(timeout=60) for _ in processes] == [5 + (group - 7) // 2] * 2
        for process in processes:
            process.join()
    assert log.next == 7
