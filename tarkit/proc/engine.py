"""Run jobs in parallel: the main thread reads and writes, and N workers run executors in threads of their own.

Results come in the order of the jobs, whatever N is, or as they are ready. The number of jobs under way is bounded:
while results are not taken nothing is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, Self

from tarkit.errors import TarkitError, show, signal_name
from tarkit.pipeline.run import CommandOutput
from tarkit.samples.sample import KEYLESS, TarSample, split_name
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

# ---- The contract: jobs go in, outcomes come out, and executors turn one into the other
# Each executor belongs to one thread, in which the engine calls `run`, so that it may block; `cancel` and `kill` are
# called from another thread. An exception other than `BatchFailed` ends the run: it is for what is wrong with all
# samples, such as a program that cannot be started.

WHOLE = 1 << 20  # bytes; a sample up to this size is read at once
TAIL = 2000  # bytes of the end of stderr that a failure keeps


class Failure(NamedTuple):
    """Why there is no result for a sample; it is returned, not raised, and `FailurePolicy` decides about it.

    Attributes:
        reason: for a message, after the key: `ended with status 3`.
        status: exit status of a program, negative for a signal; None when no program ended.
        tail: the end of its stderr, or a traceback; at most TAIL bytes.
        seconds: time of the last attempt.
        attempts: number of attempts.
        error: what a function in this process raised.
        fatal: a process that is not replaced died of it; it is not tried again, as that may cost another process.
    """

    reason: str
    status: int | None = None
    tail: bytes = b""
    seconds: float = 0.0
    attempts: int = 1
    error: Exception | None = None
    fatal: bool = False


class BatchFailed(Exception):
    """All jobs of a call of `run` failed together; if there are several, the engine runs the halves."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class HeldOutput(NamedTuple):
    """What a command printed, in memory."""

    data: bytes

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop), fewer only at the end."""
        return self.data[start:stop]


class Outcome(NamedTuple):
    """The result of one job: samples in order, perhaps none, or a failure.

    Attributes:
        samples: the new samples.
        failure: why there are none.
        log: output for the user's stderr, in this order.
        seconds: time that the work took.
    """

    samples: Sequence[TarSample] = ()
    failure: Failure | None = None
    log: Sequence[CommandOutput] = ()
    seconds: float = 0.0


class InputField(NamedTuple):
    """A field of an input sample. `data` is its content if the sample is small, else None."""

    field: bytes
    entry: Entry
    content: Entry  # the entry with the payload: for a hard link, its target
    source: Source
    data: bytes | None

    @property
    def size(self) -> int:
        """Number of bytes of content."""
        return self.content.size

    def read(self) -> bytes:
        """Return the content, whatever its size."""
        if self.data is not None:
            return self.data
        return self.source.read(self.content.data, self.content.data + self.content.size)

    def send(self, sink: Any) -> None:
        """Write the content to a sink without reading it whole."""
        if self.data is not None:
            sink.write(self.data)
        else:
            self.source.send(self.content.data, self.content.data + self.content.size, sink)


class Job:
    """One sample to work on.

    The sample can be read from any thread for as long as the job exists.

    Attributes:
        index: its number among the selected samples, from 0.
        sample: the sample.
        passes: it is not worked on, and is its own result.
    """

    __slots__ = ("_head", "_inputs", "index", "passes", "sample")

    def __init__(self, index: int, sample: TarSample, passes: bool = False) -> None:
        self.index = index
        self.sample = sample
        self.passes = passes
        self._inputs: list[InputField] | None = None
        self._head = 0, b""

    @property
    def key(self) -> bytes:
        """The key of the sample."""
        return self.sample.key or b""

    @property
    def shard(self) -> str:
        """The name of the input that it came from."""
        return self.sample.source.name

    def inputs(self) -> list[InputField]:
        """Return the fields of the sample in order, without the entries that have no key.

        Raises:
            BatchFailed: an entry has no content: a symbolic link, a device and the like.
        """
        if self._inputs is None:
            self._inputs = list(self._read())
        return self._inputs

    def piece(self, start: int, stop: int) -> bytes | None:
        """Return bytes [start, stop) of the sample's source if they were read together with its fields."""
        first, data = self._head
        return data[start - first : stop - first] if data and start >= first and stop - first <= len(data) else None

    def _read(self) -> Iterable[InputField]:
        sample = self.sample
        entries = sample.entries
        if not entries:
            return
        low, high = min(entry.start for entry in entries), max(entry.stop for entry in entries)
        if high - low <= WHOLE:
            self._head = (low, sample.source.read(low, high))
        skip = len(self.key) + 1
        by_name: dict[bytes, Entry] = {}
        for entry in entries:
            if entry.type in KEYLESS or split_name(entry.name) is None:
                continue
            content = by_name.get(entry.link, entry) if entry.type == block.HARD_LINK else entry
            if content.type not in block.FILES or content.sparse:
                what = "a sparse file" if content.sparse else _KINDS.get(entry.type, "no regular file")
                raise BatchFailed(Failure(f"has {show(entry.name)}, {what}, which has no content to work on"))
            by_name[entry.name] = content
            data = self.piece(content.data, content.data + content.size)
            yield InputField(entry.name[skip:], entry, content, sample.source, data)


_KINDS = {
    block.HARD_LINK: "a hard link to what is not in the sample",
    block.SYMLINK: "a symbolic link",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


class Executor(Protocol):
    """What works on jobs, in a thread of its own; made in the main thread when there is a job for it."""

    @property
    def lost(self) -> bool:
        """Whether it can work on no more jobs. Those of the last `run` without an outcome go to other executors."""

    def run(self, jobs: Sequence[Job]) -> Sequence[Outcome | None]:
        """Work on some jobs; return one outcome for each, in order, when all are done.

        The failure of one job is an Outcome with `failure`. None is for a job that was not done, or whose result was
        lost, when the executor is lost.

        Raises:
            BatchFailed: all fail together: a function refused a batch, or a process died. The engine then runs the
                halves, until the job that fails is alone.
        """

    def cancel(self) -> None:
        """End the processes, from another thread, and start no more; `run` returns soon after."""

    def kill(self) -> None:
        """Kill the processes: some time after `cancel`, if `run` has not returned."""

    def close(self) -> None:
        """End long-lived processes when all is done, in the executor's thread. Raises TarkitError when that fails."""


def status_words(status: int) -> str:
    """Return how a program ended, for the reason of a Failure: `ended with status 3`, `was ended by SIGKILL`."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal_name(-status)}"


PENDING = 4  # batches under way, done and not done, for each worker
MIN_PENDING = 16  # of these, so that a slow one does not stop the other workers at once
HELD = 32 << 20  # bytes of samples that are under way in memory
PATIENCE = 2.0  # seconds that workers get to end by themselves
QUICK, SLOW = 0.05, 0.2  # seconds: if a batch takes less the next are larger, if it takes more they are smaller
WAIT = 0.2  # seconds; a signal that comes just before a wait does not interrupt it

Finished = tuple[Job, Outcome]
_Outcomes = Sequence[Outcome | None]
_Task = tuple[int, list[Job], _Outcomes]
_Done = tuple[int, list[Job], "_Outcomes | BaseException", float, bool]


class RunOptions(NamedTuple):
    """How many executors work at a time, and what is done with their results.

    Args:
        parallel: number of executors.
        retries: further attempts at a job that failed.
        ordered: results come in the order of the jobs.
        stops: the first failure ends the run; otherwise it must be found out which of several samples failed.
    """

    parallel: int = 1
    retries: int = 0
    ordered: bool = True
    stops: bool = True


class Runner(Protocol):
    """Runs jobs: the engine, or what takes its place. Leaving the `with` block ends all that still runs."""

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Engine:
    """Runs jobs through executors, each made by `start` in the main thread when it is first needed.

    Args:
        start: makes an executor.
        run: number of executors, order and retries. A job is retried alone.
        batch: jobs that are submitted together, at most. The number grows from 1 while batches take a short time.
        batch_bytes: bytes of samples from which on a batch is submitted.
        exact: submit `batch` jobs together, from the first on.
        most: how many jobs are under way at most, done and not done; by default only the number of batches is limited.
    """

    def __init__(
        self,
        start: Callable[[], Executor],
        run: RunOptions,
        batch: int = 1,
        batch_bytes: int = 1 << 20,
        exact: bool = False,
        most: int | None = None,
    ) -> None:
        self.start = start
        self.parallel = run.parallel
        self.retries = run.retries
        self.ordered = run.ordered
        self.batch = batch
        self.batch_bytes = batch_bytes
        self.max_pending = max(MIN_PENDING, PENDING * run.parallel)
        self.most = most
        self._workers: list[tuple[threading.Thread, Executor]] = []
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._done: SimpleQueue[_Done] = SimpleQueue()
        self._results: dict[int, list[Finished]] = {}  # by number of the batch; not yielded yet
        self._submitted = self._yielded = self._busy = self._held = self._live = self._jobs = 0
        self._cancelled = False
        self._close_errors: list[BaseException] = []
        self._size = batch if exact else 1
        self._exact = exact
        self._death = ""  # what the last executor that was lost died of

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""
        for group in self._groups(jobs):
            while self._is_full(len(group)):
                self._receive(wait=True)
                yield from self._ready()
            self._submit(group)
            while self._busy and self._receive(wait=False):
                pass
            yield from self._ready()
        while self._busy:
            self._receive(wait=True)
            yield from self._ready()
        self._close()

    def _is_full(self, more: int) -> bool:
        """Return whether results have to be taken before so many more jobs are submitted."""
        batches = self._submitted - self._yielded
        many = self.most is not None and self._jobs + more > self.most and batches > 0
        return batches >= self.max_pending or many or (self._held > HELD and self._busy > 0)

    def _groups(self, jobs: Iterator[Job]) -> Iterator[list[Job]]:
        """Yield the jobs in batches; a job that passes is a batch of its own."""
        group: list[Job] = []
        size = 0
        for job in jobs:
            if job.passes:
                if group:
                    yield group
                group, size = [], 0
                yield [job]
                continue
            group.append(job)
            size += job.sample.size
            if len(group) >= self._size or size >= self.batch_bytes:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _submit(self, group: list[Job]) -> None:
        number, self._submitted = self._submitted, self._submitted + 1
        self._held += _weight(group)
        self._jobs += len(group)
        if group[0].passes:
            self._results[number] = [(job, Outcome((job.sample,))) for job in group]
            return
        self._put((number, group, [None] * len(group)))

    def _put(self, task: _Task) -> None:
        if self._busy >= self._live and len(self._workers) < self.parallel:
            self._add_worker()
        self._busy += 1
        self._tasks.put(task)

    def _add_worker(self) -> None:
        executor = self.start()
        thread = threading.Thread(target=self._work, args=(executor,), daemon=True)
        self._workers.append((thread, executor))  # from here on `_end` ends it too
        try:
            thread.start()
        except RuntimeError as error:  # a limit of the system; with fewer workers it only takes longer
            self._workers.pop()
            executor.cancel()
            executor.close()
            if not self._workers:
                raise TarkitError(f"cannot start a thread: {error}") from None
            self.parallel = len(self._workers)
            return
        self._live += 1

    def _receive(self, wait: bool) -> bool:
        """Take the result of a worker; return whether there was one."""
        while True:
            if wait and not self._live:
                if len(self._workers) == self.parallel:
                    words = f"samples are left, but all worker processes have died: {self.parallel}"
                    raise TarkitError(words, f"the last one at {self._death}" if self._death else None)
                self._add_worker()
            try:
                number, jobs, outcomes, seconds, lost = self._done.get(wait, WAIT) if wait else self._done.get_nowait()
                break
            except Empty:
                if not wait:
                    return False
        self._busy -= 1
        self._live -= lost
        if isinstance(outcomes, BaseException):
            raise outcomes
        if not self._exact:
            self._size = min(2 * self._size, self.batch) if seconds < QUICK else self._size
            self._size = max(self._size // 2, 1) if seconds > SLOW else self._size
        finished = [(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True) if outcome is not None]
        if lost:
            for job, outcome in finished:
                if outcome.failure is not None and outcome.failure.fatal:
                    self._death = f"{show(job.key)}: {outcome.failure.reason}"
            others = self._live or len(self._workers) < self.parallel
            if len(finished) < len(jobs) or (others and any(_repeats(each, self.retries) for each in outcomes)):
                self._put((number, jobs, outcomes))  # another executor does what is left
                return True
        self._results[number] = finished
        return True

    def _ready(self) -> Iterator[Finished]:
        """Yield the results whose turn it is."""
        while self._results:
            number = self._yielded if self.ordered else next(iter(self._results))
            finished = self._results.pop(number, None)
            if finished is None:
                return
            self._yielded += 1
            self._held -= _weight([job for job, _ in finished])
            self._jobs -= len(finished)
            finished.reverse()
            while finished:
                yield finished.pop()  # without a reference here, so that its memory can be freed

    # ---- in the thread of a worker

    def _work(self, executor: Executor) -> None:
        while (task := self._tasks.get()) is not None:
            number, jobs, known = task
            outcomes: _Outcomes | BaseException
            started = time.monotonic()
            try:
                outcomes = retried(executor.run, jobs, self.retries, lambda: self._cancelled, known)
            except BaseException as error:
                outcomes = error
            self._done.put((number, jobs, outcomes, time.monotonic() - started, executor.lost))
            del task, jobs, known, outcomes
            if executor.lost:
                break
        try:
            executor.close()
        except BaseException as error:
            self._close_errors.append(error)

    # ---- the end

    def _close(self) -> None:
        """Stop the workers when all is done. Each thread closes its executor, so that all end at the same time."""
        for _ in self._workers:
            self._tasks.put(None)
        for thread, _ in self._workers:
            while thread.is_alive():
                thread.join(WAIT)
        self._workers = []
        if self._close_errors:
            raise self._close_errors[0]

    def _end(self) -> None:
        """End all workers, with force if need be."""
        self._cancelled = True
        for act in ("cancel", "kill"):
            for _, executor in self._workers:
                getattr(executor, act)()
            for _ in self._workers:
                self._tasks.put(None)
            limit = time.monotonic() + PATIENCE
            for thread, executor in self._workers:
                if thread.ident:
                    thread.join(max(0.0, limit - time.monotonic()))
                elif act == "cancel":  # its thread was never started
                    executor.close()
            self._workers = [worker for worker in self._workers if worker[0].is_alive()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()


def _weight(jobs: list[Job]) -> int:
    """Return how many bytes of memory the samples may take."""
    return sum(min(job.sample.size, WHOLE) for job in jobs)


_Run = Callable[[Sequence[Job]], Sequence[Outcome | None]]


def retried(
    run: _Run,
    jobs: Sequence[Job],
    retries: int,
    cancelled: Callable[[], bool] = lambda: False,
    known: _Outcomes = (),
) -> list[Outcome | None]:
    """Return the outcomes of jobs, None for one that a lost executor has not done.

    Jobs that fail together are run again by halves, one that fails alone by itself. `known` are the outcomes of the
    jobs at executors that were lost.
    """
    outcomes = list(known) or [None] * len(jobs)
    todo = [index for index, outcome in enumerate(outcomes) if outcome is None]
    for index, outcome in zip(todo, _halved(run, [jobs[index] for index in todo], cancelled), strict=True):
        outcomes[index] = outcome
    return [_retried(run, job, outcome, retries, cancelled) for job, outcome in zip(jobs, outcomes, strict=True)]


def _halved(run: _Run, jobs: Sequence[Job], cancelled: Callable[[], bool]) -> _Outcomes:
    try:
        return run(jobs) if jobs else []
    except BatchFailed as error:
        if len(jobs) > 1 and not cancelled() and not error.failure.fatal:
            half = len(jobs) // 2
            return [*_halved(run, jobs[:half], cancelled), *_halved(run, jobs[half:], cancelled)]
        return [Outcome(failure=error.failure, seconds=error.failure.seconds) for _ in jobs]


def _repeats(outcome: Outcome | None, retries: int) -> bool:
    """Whether a job has failed and is to be tried again."""
    failure = outcome.failure if outcome is not None else None
    return failure is not None and not failure.fatal and failure.attempts <= retries


def _retried(
    run: _Run, job: Job, outcome: Outcome | None, retries: int, cancelled: Callable[[], bool]
) -> Outcome | None:
    while outcome is not None and outcome.failure is not None and _repeats(outcome, retries) and not cancelled():
        [again] = _halved(run, [job], cancelled)
        if again is None:
            break
        failure = again.failure and again.failure._replace(attempts=outcome.failure.attempts + 1)
        outcome = again._replace(failure=failure, log=[*outcome.log, *again.log])
    return outcome
