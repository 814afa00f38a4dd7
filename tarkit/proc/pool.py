"""Run jobs in parallel: the main thread reads and writes, and N workers have threads of their own.

Results come in the order of the jobs, whatever N is, or as they are ready. The number of jobs under way is bounded:
while results are not taken nothing is read.

All work is in one queue of batches. What was not done returns to its front: the halves of a batch that failed as a
whole, a job that is tried again, and the jobs that a lost worker has left.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Self, get_args

from tarkit.errors import TarkitError, show
from tarkit.proc.job import WHOLE, Finished, Job, Outcome, WorkFailed
from tarkit.streams.command import Program

PENDING = 4  # batches under way, done and not done, for each worker
MIN_PENDING = 16  # of these, so that a slow one does not stop the other workers at once
HELD = 32 << 20  # bytes of samples that are under way in memory
PATIENCE = 2.0  # seconds that workers get to end by themselves
QUICK, SLOW = 0.05, 0.2  # seconds: if a batch takes less the next are larger, if it takes more they are smaller
WAIT = 0.2  # seconds; a signal that comes just before a wait does not interrupt it

Outcomes = Sequence[Outcome | None]
"""Those of some jobs, in order; None for one that was not done."""
Act = Literal["terminate", "kill"]
"""How a worker ends its process: some time after `terminate`, if `work` has not returned, by `kill`."""


class JobBatch(NamedTuple):
    """Jobs that a worker gets together; `alone`: after a failure, apart from all others."""

    jobs: Sequence[Job]
    alone: bool = False


class JobWorker:
    """What works on jobs, in a thread of its own; made in the main thread when there are jobs for it.

    Attributes:
        lost: it can work on no more jobs, and no other takes its place.
        streams: it takes jobs before those it has are done, perhaps all of them. So the one that has the next result
            always gets more jobs.
        program: the process that it started last.
        cancelled: whether it was ended.
    """

    lost = False
    streams = False

    def __init__(self) -> None:
        self.program: Program | None = None
        self.cancelled = False
        self._lock = threading.Lock()

    def start(self, begin: Callable[[], Program]) -> Program:
        """Start a process, which `end` then ends. Raises WorkFailed if this worker was ended."""
        with self._lock:
            if self.cancelled:
                raise WorkFailed("was cancelled")
            self.program = begin()
            return self.program

    def run(self, jobs: Sequence[Job]) -> Outcomes:
        """Work on some jobs; return one outcome for each, in order.

        The failure of one job is an Outcome with `failure`. None is for a job that was not done, or whose result was
        lost, when a process ended.

        Raises:
            WorkFailed: all fail together: a function refused a batch, or a process died.
        """
        raise NotImplementedError

    def work(self, pool: Pool) -> None:
        """Take batches from the pool and report outcomes until there are no more; an exception ends the run."""
        while not self.lost and (batch := pool.take(self)) is not None:
            pool.do(self, batch)
            del batch

    def end(self, act: Act) -> None:
        """End the process, from another thread, and start no more; `work` returns soon after."""
        with self._lock:
            self.cancelled = True
            if self.program is not None:
                getattr(self.program, act)()

    def close(self) -> None:
        """End long-lived processes when all is done, in the worker's thread. Raises TarkitError when that fails."""


class Pool:
    """Runs jobs through workers, each made by `start` in the main thread when it is first needed.

    Args:
        start: makes a worker.
        retries: further attempts at a job that failed, alone.
        ordered: results come in the order of the jobs.
        batch: jobs that are submitted together, at most. The number grows from 1 while batches take a short time.
        batch_bytes: bytes of samples from which on a batch is submitted.
        exact: submit `batch` jobs together, from the first on.
        most: how many jobs are under way at most, done and not done; by default only the number of batches is limited.
        held: bytes of samples in memory from which on no more jobs are submitted; by default HELD.
        here: call `run` of the only worker in the thread that takes the results.

    Attributes:
        cancelled: whether the run is given up; workers then return.
    """

    def __init__(
        self,
        start: Callable[[], JobWorker],
        parallel: int = 1,
        *,
        retries: int = 0,
        ordered: bool = True,
        batch: int = 1,
        batch_bytes: int = 1 << 20,
        exact: bool = False,
        most: int | None = None,
        held: int | None = None,
        here: bool = False,
    ) -> None:
        self.start = start
        self.parallel = parallel
        self.retries = retries
        self.ordered = ordered
        self.batch = batch
        self.batch_bytes = batch_bytes
        self.most = most
        self.here = here
        self.cancelled = False
        self._max_batches = max(MIN_PENDING, PENDING * parallel)
        self._exact = exact
        self._size = batch if exact else 1
        self._threads: list[tuple[threading.Thread, JobWorker]] = []
        lock = threading.Lock()
        self._work, self._news = threading.Condition(lock), threading.Condition(lock)  # for workers, for this thread
        self._queue: deque[JobBatch] = deque()
        self._closed = False
        self._waiting: set[JobWorker] = set()  # for a batch
        self._live = 0  # workers whose threads run
        # Their first is asked for again and again: a dict looks for it behind the place of each that was removed.
        self._jobs: OrderedDict[int, Job] = OrderedDict()  # by id, in order; not yielded yet
        self._owners: dict[int, JobWorker] = {}  # by id of a job that is worked on
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()  # by id of a job that is done, and not yielded yet
        self._held = 0  # bytes of samples of all of them
        self._most_held = held
        self._error: BaseException | None = None
        self._death = ""  # what the last worker that was lost died of

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""
        groups = grouped(jobs, lambda: self._size, self.batch_bytes)
        if self.here:
            yield from self._run_here(self.start(), groups)
            return
        for group in groups:
            while not self._has_room(len(group)):
                yield from self._ready()
            if self._submit(group):
                self._add_worker()
            del group
            yield from self._ready()
        with self._work:
            self._closed = True
            self._work.notify_all()
        while self._jobs:
            self._wait()
            yield from self._ready()
        self._join()

    # ---- in the thread that takes the results

    def _run_here(self, worker: JobWorker, groups: Iterator[list[Job]]) -> Iterator[Finished]:
        for group in groups:
            if group[0].passes:
                yield group[0], Outcome((group[0].sample,))
                continue
            self.do(worker, JobBatch(group))
            while self._queue:
                self.do(worker, self._queue.popleft())
            for job in group:
                yield job, self._outcomes.pop(id(job))

    def _has_room(self, more: int) -> bool:
        """Whether so many more jobs can be submitted; if not, wait a while for results."""
        with self._work:
            if not self._is_full(more) or self._starves():
                return True
        self._wait()
        return False

    def _is_full(self, more: int = 0) -> bool:
        count = len(self._jobs) + more
        most = min(self.most or count, self._max_batches * self._size)
        return bool(self._jobs) and (count > most or self._held > (self._most_held or HELD))

    def _starves(self) -> bool:
        """Whether the worker that has the next result waits for more jobs."""
        return not self._queue and self._owners.get(next(iter(self._jobs), 0)) in self._waiting

    def _submit(self, group: list[Job]) -> bool:
        """Put jobs into the queue; return whether they need one more worker."""
        with self._work:
            for job in group:
                self._jobs[id(job)] = job
                self._held += _weight(job)
            if group[0].passes:
                self._outcomes[id(group[0])] = Outcome((group[0].sample,))
                return False
            self._queue.append(JobBatch(group))
            self._work.notify(self.parallel if self._is_full() else 1)
            return len(self._queue) > len(self._waiting) and len(self._threads) < self.parallel

    def _add_worker(self) -> None:
        worker = self.start()
        thread = threading.Thread(target=self._run, args=(worker,), daemon=True)
        self._threads.append((thread, worker))  # from here on `_end` ends it too
        with self._work:
            self._live += 1
        try:
            thread.start()
        except RuntimeError as error:  # a limit of the system; with fewer workers it only takes longer
            self._threads.pop()
            self._live -= 1
            worker.end("terminate")
            worker.close()
            if not self._threads:
                raise TarkitError(f"cannot start a thread: {error}") from None
            self.parallel = len(self._threads)

    def _wait(self) -> None:
        """Wait a while until a result is ready, or a worker waits for jobs."""
        with self._work:
            if self._error is None and not self._is_ready() and (self._live or not self._queue):
                self._news.wait(WAIT)
            if self._error is not None:
                raise self._error
            if self._live or not self._queue or self._is_ready():
                return
            if len(self._threads) == self.parallel:
                words = f"samples are left, but all worker processes have died: {self.parallel}"
                raise TarkitError(words, f"the last one at {self._death}" if self._death else None)
        self._add_worker()

    def _is_ready(self) -> bool:
        return next(iter(self._jobs), None) in self._outcomes if self.ordered else bool(self._outcomes)

    def _ready(self) -> Iterator[Finished]:
        """Yield the results whose turn it is."""
        while self._is_ready():
            yield self._pop()  # without a reference here, so that its memory can be freed

    def _pop(self) -> Finished:
        with self._work:
            key = next(iter(self._jobs if self.ordered else self._outcomes))
            job = self._jobs.pop(key)
            self._held -= _weight(job)
            if self._queue and self._waiting:
                self._work.notify_all()  # the next result may be that of another worker, which takes what waits
            return job, self._outcomes.pop(key)

    # ---- in the threads of workers

    def take(self, worker: JobWorker, ends: Callable[[], bool] | None = None) -> JobBatch | None:
        """Wait for a batch; return None when there are no more.

        With `ends` the batch is for a program that runs: it takes none that is alone, and gets none once `ends` says so
        after a `wake`.
        """
        with self._work:
            self._waiting.add(worker)
            try:
                while not (self.cancelled or (ends is not None and ends())):
                    batches = [batch for batch in self._queue if ends is None or not batch.alone]
                    if not batches and self._closed and (worker.streams or len(self._jobs) == len(self._outcomes)):
                        break
                    may = self._may_take(worker)
                    batch = next((batch for batch in batches if may or batch.alone), None)
                    if batch is not None:
                        self._queue.remove(batch)
                        if self._closed and not self._queue:
                            self._work.notify_all()  # workers that waited for it end
                        self._owners.update((id(job), worker) for job in batch.jobs)
                        return batch
                    self._news.notify()
                    self._work.wait()
                return None
            finally:
                self._waiting.discard(worker)

    def _may_take(self, worker: JobWorker) -> bool:
        return not worker.streams or not self._is_full() or self._owners.get(next(iter(self._jobs))) in (worker, None)

    def wake(self) -> None:
        """Have waiting workers check again whether they are stopped."""
        with self._work:
            self._work.notify_all()

    def is_drained(self) -> bool:
        """Whether all jobs were taken and no more will come."""
        with self._work:
            return self._closed and not self._queue

    def do(self, worker: JobWorker, batch: JobBatch) -> None:
        """Have a worker run a batch, and report what became of it."""
        started = time.monotonic()
        try:
            outcomes = worker.run(batch.jobs)
        except WorkFailed as error:
            if len(batch.jobs) > 1 and not error.failure.fatal:
                self.halve(batch.jobs)
                return
            outcomes = [Outcome(failure=error.failure, seconds=error.seconds)] * len(batch.jobs)
        seconds = time.monotonic() - started
        with self._work:
            if not self._exact:
                self._size = min(2 * self._size, self.batch) if seconds < QUICK else self._size
                self._size = max(self._size // 2, 1) if seconds > SLOW else self._size
            again = not worker.lost or self._live > 1 or len(self._threads) < self.parallel
            rest = []
            for job, outcome in zip(batch.jobs, outcomes, strict=True):
                if outcome is None:
                    rest.append(job)
                else:
                    self._report(job, outcome, again)
            self._news.notify()
            if rest:
                self._put_back([JobBatch(rest)])

    def halve(self, jobs: Sequence[Job]) -> None:
        """Have jobs that failed together done in halves, each alone; a single one alone."""
        half = len(jobs) // 2
        with self._work:
            self._put_back([JobBatch(part, alone=True) for part in (jobs[:half], jobs[half:]) if part])

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Put jobs that were taken, and not begun, in front of the others."""
        if jobs:
            with self._work:
                self._put_back([JobBatch(jobs)])

    def report(self, job: Job, outcome: Outcome) -> None:
        """Report what became of a job; one that failed is tried again, alone, until its attempts are used up."""
        with self._work:
            self._report(job, outcome, True)
            self._news.notify()

    def _report(self, job: Job, outcome: Outcome, again: bool) -> None:
        """Note what became of a job; who calls it notifies `_news`."""
        failure = outcome.failure
        if failure is not None:
            job.failures += 1
            if failure.fatal:
                self._death = f"{show(job.key)}: {failure.reason}"
            if again and not failure.fatal and job.failures <= self.retries:
                job.log += outcome.log
                self._put_back([JobBatch([job], alone=True)])
                return
        if job.log:
            outcome = outcome._replace(log=[*job.log, *outcome.log])
        self._owners.pop(id(job), None)
        self._outcomes[id(job)] = outcome
        if self._closed and len(self._jobs) == len(self._outcomes):
            self._work.notify_all()

    def _put_back(self, batches: Sequence[JobBatch]) -> None:
        for batch in reversed(batches):
            for job in batch.jobs:
                self._owners.pop(id(job), None)
            self._queue.appendleft(batch)
        self._work.notify_all()

    def _run(self, worker: JobWorker) -> None:
        try:
            worker.work(self)
        except BaseException as error:
            self._fail(error)
            with self._work:
                while not self.cancelled:
                    self._work.wait()
        try:
            worker.close()
        except BaseException as error:
            self._fail(error)
        with self._work:
            self._live -= 1
            self._news.notify()

    def _fail(self, error: BaseException) -> None:
        with self._work:
            self._error = self._error or error
            self._news.notify()

    # ---- the end

    def _join(self) -> None:
        """Wait for the workers when all is done. Each thread closes its worker, so that all end at the same time."""
        for thread, _ in self._threads:
            while self._error is None and thread.is_alive():
                thread.join(WAIT)
        if self._error is not None:
            raise self._error
        self._threads = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End all workers, with force if need be."""
        with self._work:
            self.cancelled = True
        for act in get_args(Act):
            for _, worker in self._threads:
                worker.end(act)
            self.wake()
            limit = time.monotonic() + PATIENCE
            for thread, worker in self._threads:
                if thread.ident:
                    thread.join(max(0.0, limit - time.monotonic()))
                elif act == "terminate":  # its thread was never started
                    worker.close()
            self._threads = [(thread, worker) for thread, worker in self._threads if thread.is_alive()]


def grouped(jobs: Iterator[Job], size: Callable[[], int], most: int) -> Iterator[list[Job]]:
    """Yield jobs in groups of `size`, or of `most` bytes of samples; a job that passes is a group of its own."""
    group: list[Job] = []
    held = 0
    for job in jobs:
        if not job.passes:
            group.append(job)
            held += job.sample.size
        if group and (job.passes or len(group) >= size() or held >= most):
            yield group
            group, held = [], 0
        if job.passes:
            yield [job]
    if group:
        yield group


def _weight(job: Job) -> int:
    """Return how many bytes of memory the sample may take."""
    return min(job.sample.size, WHOLE)
