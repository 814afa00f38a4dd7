"""The pool with test workers: order, halved batches, limits, and failures."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Queue
from random import Random

import pytest

from tarkit.errors import Interrupted, TarkitError
from tarkit.problems import Policy
from tarkit.proc import pool as pools
from tarkit.proc.job import Failure, Job, Outcome
from tarkit.proc.pool import Act, JobWorker, Pool
from tarkit.samples.reader import SampleReader
from tests._tools import archive, on_disk

DATA = archive({f"{index:05d}.x": b"%d" % index for index in range(500)})


def jobs(count: int, pulled: list[int] | None = None) -> Iterator[Job]:
    """Yield jobs with the samples of an archive; the index of each is appended to `pulled`."""
    for index, sample in enumerate(SampleReader(on_disk(DATA), Policy())):
        if index == count:
            return
        if pulled is not None:
            pulled.append(index)
        yield Job(index, sample)


class Recorder(JobWorker):
    """A worker that calls a function for a list of jobs."""

    def __init__(self, work: Callable[[Sequence[Job]], list[Outcome]]) -> None:
        self.task = work
        self.acts: list[str] = []
        self.stop = threading.Event()

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        return self.task(jobs)

    def end(self, act: Act) -> None:
        self.acts.append(act)
        if act == "terminate":
            self.stop.set()

    def close(self) -> None:
        self.acts.append("close")


def recorders(work: Callable[[Sequence[Job]], list[Outcome]]) -> tuple[list[Recorder], Callable[[], Recorder]]:
    """Return a function that starts workers for a pool, and the list of them."""
    made: list[Recorder] = []

    def start() -> Recorder:
        made.append(Recorder(work))
        return made[-1]

    return made, start


def good(jobs: Sequence[Job]) -> list[Outcome]:
    """Return each sample unchanged."""
    return [Outcome((job.sample,)) for job in jobs]


class Keeper(JobWorker):
    """A worker that takes jobs in one thread and answers in another, but for the last few, as programs that buffer."""

    streams = True

    def __init__(self, kept: int, pause: Callable[[], float]) -> None:
        super().__init__()
        self.kept, self.pause = kept, pause

    def work(self, pool: Pool) -> None:
        sent: Queue[Job | None] = Queue()
        answers = threading.Thread(target=self.answer, args=(pool, sent), daemon=True)
        answers.start()
        while (batch := pool.take(self)) is not None:
            for job in batch.jobs:
                sent.put(job)
        sent.put(None)
        answers.join()

    def answer(self, pool: Pool, sent: Queue[Job | None]) -> None:
        held: deque[Job] = deque()
        while (job := sent.get()) is not None:
            held.append(job)
            if len(held) > self.kept:
                time.sleep(self.pause())
                pool.report(held[0], Outcome((held.popleft().sample,)))
        while held:
            pool.report(held[0], Outcome((held.popleft().sample,)))


@pytest.mark.parametrize("seed", range(8))
def test_programs_that_keep_answers_back(seed: int) -> None:
    """Nothing waits for ever where programs answer a sample only after more samples, whatever the others do."""
    random = Random(seed)
    for _ in range(6):
        kept, batch, parallel = random.randrange(8), random.randrange(1, 5), random.randrange(2, 6)
        start = partial(Keeper, kept, lambda: random.choice((0, 0, 0.0002, 0.002)))
        done: list[int] = []

        def take(start: Callable[[], Keeper], batch: int, parallel: int, done: list[int]) -> None:
            with Pool(start, parallel, batch=batch, exact=True) as pool:
                done += [job.index for job, _ in pool(jobs(300))]

        taker = threading.Thread(target=take, args=(start, batch, parallel, done), daemon=True)
        taker.start()
        taker.join(20)
        assert not taker.is_alive(), f"no end with {kept=} {batch=} {parallel=}"
        assert done == list(range(300))


def test_retries() -> None:
    """A job is retried up to the limit; a later success counts; the logs of all attempts are kept."""
    tries: dict[int, int] = {}

    def work(jobs: Sequence[Job]) -> list[Outcome]:
        [job] = jobs
        tries[job.index] = tries.get(job.index, 0) + 1
        if tries[job.index] <= job.index:
            return [Outcome(failure=Failure("no"), log=("s",))]  # type: ignore[arg-type]
        return [Outcome((job.sample,), log=("t",))]  # type: ignore[arg-type]

    with Pool(lambda: Recorder(work), 1, retries=2) as pool:
        found = [(outcome.failure and job.failures, "".join(outcome.log)) for job, outcome in pool(jobs(5))]  # type: ignore[arg-type]
    assert found == [(None, "t"), (None, "st"), (None, "sst"), (3, "sss"), (3, "sss")]


def test_pending_jobs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first job runs, or results are not taken, only a few jobs are read."""
    pulled: list[int] = []
    gate = threading.Event()

    def work(jobs: Sequence[Job]) -> list[Outcome]:
        assert gate.wait(20) or jobs[0].index
        return good(jobs)

    with Pool(lambda: Recorder(work), 2) as pool:
        threading.Timer(0.05, gate.set).start()
        found = pool(jobs(500, pulled))
        next(found)
        assert len(pulled) <= pools.MIN_PENDING + 2
        for _ in range(100):
            next(found)
        assert len(pulled) <= 100 + pools.MIN_PENDING + 3
    pulled.clear()
    with Pool(lambda: Recorder(work), 2, batch=4, most=20) as pool:
        found = pool(jobs(500, pulled))
        for number in range(400):
            next(found)
            assert len(pulled) <= number + 1 + 20 + 4
    monkeypatch.setattr(pools, "HELD", 3000)
    pulled.clear()
    gate.clear()
    with Pool(lambda: Recorder(work), 2) as pool:
        threading.Timer(0.05, gate.set).start()
        next(pool(jobs(500, pulled)))
        assert len(pulled) <= 5


def test_an_error_of_close() -> None:
    """An exception of `close` is raised at the end."""

    class EndsBadly(Recorder):
        def close(self) -> None:
            raise TarkitError("it ended badly")

    with pytest.raises(TarkitError, match="it ended badly"), Pool(lambda: EndsBadly(good), 2) as pool:
        list(pool(jobs(3)))


def test_an_error_of_an_executor() -> None:
    """An exception of an executor is raised by the engine, and the others are cancelled."""

    def work(jobs: Sequence[Job]) -> list[Outcome]:
        if jobs[0].index == 3:
            raise TarkitError("no such program")
        return good(jobs)

    made, start = recorders(work)
    with pytest.raises(TarkitError, match="no such program"), Pool(start, 2) as pool:
        list(pool(jobs(50)))
    assert all(executor.acts[0] == "terminate" for executor in made)
    assert all(executor.acts[-1] == "close" for executor in made)


def test_leaving_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving the block ends all executors; one that does not end is killed."""
    monkeypatch.setattr(pools, "PATIENCE", 0.2)
    made: list[Recorder] = []
    deaf: list[Recorder] = []
    busy, killed = threading.Event(), threading.Event()

    def start() -> Recorder:
        executor = Recorder(good)

        def work(jobs: Sequence[Job]) -> list[Outcome]:
            if jobs[0].index == 1:
                deaf.append(executor)
                busy.set()
                killed.wait(20)
            elif jobs[0].index > 1:
                executor.stop.wait(20)
            return good(jobs)

        def end(act: Act) -> None:
            executor.acts.append(act)
            (killed if act == "kill" else executor.stop).set()

        executor.task, executor.end = work, end  # type: ignore[method-assign]
        made.append(executor)
        return executor

    def some() -> Iterator[Job]:
        yield from jobs(5)
        assert busy.wait(20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool(start, 2) as pool:
        list(pool(some()))
    assert deaf[0].acts == ["terminate", "kill", "close"]
    assert all(executor.acts[0] == "terminate" for executor in made)
    assert all(executor.acts[-1] == "close" for executor in made)


def test_threads_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit on threads fewer workers do the work; without any it is an error, and all executors are closed."""
    executors, start = recorders(good)
    begin, left = threading.Thread.start, [2]

    def limited(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with Pool(start, 8) as pool:
        assert [job.index for job, _ in pool(jobs(100))] == list(range(100))
    assert len(executors) <= 3
    assert all("close" in executor.acts for executor in executors)
    with pytest.raises(TarkitError, match="cannot start a thread: can't start new thread"), Pool(start, 8) as pool:
        list(pool(jobs(10)))
    assert all("close" in executor.acts for executor in executors)


@pytest.mark.parametrize("before", [True, False])
def test_a_signal_while_a_worker_is_added(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends the new worker, whether its thread runs or not, without waiting for an idle one."""

    class Thread(threading.Thread):
        def start(self) -> None:
            if not (before and executors[1:]):
                super().start()
            if executors[1:]:
                raise Interrupted(signal.SIGTERM)

    def work(jobs: Sequence[Job]) -> list[Outcome]:
        assert executors[0].stop.wait(20)
        return good(jobs)

    executors, start = recorders(work)
    monkeypatch.setattr(pools.threading, "Thread", Thread)
    with pytest.raises(Interrupted), Pool(start, 2) as pool:
        list(pool(jobs(10)))
    assert [executor.acts for executor in executors] == [["terminate", "close"]] * 2
