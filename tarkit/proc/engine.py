"""Work on samples in parallel: one reader and writer, which is the main thread, and N hands in threads of their own.

Results come in the order of the input, whatever N is, or as they are ready. So much is under way at a time as N hands
need and no more: when results are not taken nothing is read, and when nothing comes the hands wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from tarkit.errors import TarkitError, show, signal_name
from tarkit.samples.sample import KEYLESS, TarSample, split_name
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

# ---- The contract of the engine: jobs go in, outcomes come out, and an executor is what works on them in between
# An executor is one of the N workers that work at a time. The engine calls `run` from a thread that is the executor's
# own, so that it may block; a hand that is a process, or has one, does its work beside us. `cancel` alone is called
# from another thread. What an executor raises other than `BatchFailed` ends the run: that is for what is wrong with all
# samples, such as a program that cannot be started.

WHOLE = 1 << 20  # bytes; a sample up to this size is read at once
TAIL = 2000  # bytes of what was said on stderr that a failure keeps

_FILES = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)


class Failure(NamedTuple):
    """Why there is no result for a sample; it is not raised but handed back, and the policies decide.

    `reason` is for a message, and follows the key: `ended with status 3`. `status` is that of a program, negative for a
    signal, None when none ended. `tail` is the end of what it said on stderr (or a traceback), at most TAIL bytes.
    `seconds` is the time of the last attempt.
    """

    reason: str
    status: int | None = None
    tail: bytes = b""
    seconds: float = 0.0
    attempts: int = 1


class BatchFailed(Exception):
    """Raised by `run` when all jobs that were handed over fail together; with more than one the engine halves them."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class CommandOutput(Protocol):
    """What a command said, in memory or in a file; `tarkit.streams.tempfile.TemporaryFile` and `Words` are two."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fewer only at the end."""


class Words(NamedTuple):
    """What a command said, in memory."""

    data: bytes

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fewer only at the end."""
        return self.data[start:stop]


class Outcome(NamedTuple):
    """What became of one job: the samples that it gave, in order, none at all perhaps, or a failure.

    `said` is for the user's stderr, in this order. `seconds` is how long the work took.
    """

    samples: Sequence[TarSample] = ()
    failure: Failure | None = None
    said: Sequence[CommandOutput] = ()
    seconds: float = 0.0


class InputField(NamedTuple):
    """A field of a sample as it comes in. `data` is its content if the sample is small, else None."""

    field: bytes
    entry: Entry
    content: Entry  # the entry whose payload it is: that of a hard link is its target's
    source: Source
    data: bytes | None

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self.content.size

    def read(self) -> bytes:
        """The content, however large."""
        if self.data is not None:
            return self.data
        return self.source.read(self.content.data, self.content.data + self.content.size)

    def send(self, sink: Any) -> None:
        """Write the content to a sink, without holding it."""
        if self.data is not None:
            sink.write(self.data)
        else:
            self.source.send(self.content.data, self.content.data + self.content.size, sink)


class Job:
    """One sample to work on, number `index` (from 0) of those that were chosen.

    The sample is good for as long as the job is, and can be read from any thread. What `passes` is not worked on and
    comes out as it is.
    """

    __slots__ = ("_head", "_inputs", "index", "passes", "sample")  # dataclasses take a third of a process's start

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
        """The fields of the sample, in order, without the entries that have no key.

        Raises Failed for what has no content that could be handed over: symbolic links, devices and the like.
        """
        if self._inputs is None:
            self._inputs = list(self._read())
        return self._inputs

    def piece(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the sample's source, if they were read together with its fields."""
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
            if content.type not in _FILES or content.sparse:
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
    """One of the hands that work; made in the main thread, when the first job for it is there."""

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Work on some jobs: one outcome for each, in order. It blocks until they are done.

        A failure of one is an Outcome with `failure`. Raises Failed when all fail together: a batch that a function
        refused, a process that died on the way. The engine then hands over the halves, until one is alone. Where the
        results of a batch cannot be told apart they are all in the outcome of its first job.
        """

    def cancel(self) -> None:
        """End what runs, resident or not, from another thread, and start nothing more; `run` ends soon after."""

    def kill(self) -> None:
        """The same, with force: some time after `cancel`, if `run` has not ended."""

    def close(self) -> None:
        """End what is resident when all is done, in the thread that ran it. Raises TarkitError when that ends badly."""


def status_words(status: int) -> str:
    """How a program ended, for a Failure's reason: `ended with status 3`, `was ended by SIGKILL`."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal_name(-status)}"


AHEAD = 4  # times the number of hands: so many batches are under way, done and not done
LEAST = 16  # batches that may always be, so that one that is slow does not stop the others at once
HELD = 32 << 20  # bytes of samples that are under way in memory
PATIENCE = 2.0  # seconds that hands get to end by themselves
QUICK, SLOW = 0.05, 0.2  # seconds: batches that take less become larger, those that take more smaller
WAIT = 0.2  # seconds between two looks for signals: one that comes just before a wait does not end it

Finished = tuple[Job, Outcome]
_Task = tuple[int, list[Job]]
_Done = tuple[int, list[Job], "list[Outcome] | BaseException", float]


class Engine:
    """Runs jobs through `parallel` executors, each made by `start` in the main thread when it is first needed.

    Up to `batch` jobs are handed over at a time, and not many more than `batch_bytes` of samples: few at first, and as
    many as are done in a moment, unless they are to be `exact` so many. Each failure is tried
    `retries` times more, alone. With `ordered` the results come in the order of the jobs. Leaving the `with` block ends
    all that still runs.
    """

    def __init__(
        self,
        start: Callable[[], Executor],
        parallel: int,
        *,
        batch: int = 1,
        batch_bytes: int = 1 << 20,
        exact: bool = False,
        retries: int = 0,
        ordered: bool = True,
    ) -> None:
        self.start = start
        self.parallel = parallel
        self.batch = batch
        self.batch_bytes = batch_bytes
        self.retries = retries
        self.ordered = ordered
        self.most = max(LEAST, AHEAD * parallel)
        self._hands: list[tuple[threading.Thread, Executor]] = []
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._done: SimpleQueue[_Done] = SimpleQueue()
        self._results: dict[int, list[Finished]] = {}  # that wait for their turn
        self._given = self._taken = self._busy = self._held = 0
        self._over = False
        self._failed: list[BaseException] = []  # executors that ended badly
        self._size = batch if exact else 1
        self._exact = exact

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Each job with what became of it."""
        for group in self._groups(jobs):
            while self._given - self._taken >= self.most or (self._held > HELD and self._busy):
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

    def _groups(self, jobs: Iterator[Job]) -> Iterator[list[Job]]:
        """The jobs in batches; what only passes is one of its own."""
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
        number, self._given = self._given, self._given + 1
        self._held += _weight(group)
        if group[0].passes:
            self._results[number] = [(job, Outcome((job.sample,))) for job in group]
            return
        if self._busy >= len(self._hands) < self.parallel:
            self._hire()
        self._busy += 1
        self._tasks.put((number, group))

    def _hire(self) -> None:
        executor = self.start()
        thread = threading.Thread(target=self._work, args=(executor,), daemon=True)
        self._hands.append((thread, executor))  # from here on a signal ends it too
        try:
            thread.start()
        except RuntimeError as error:  # a limit of the system; with fewer hands it only takes longer
            self._hands.pop()
            executor.cancel()
            executor.close()
            if not self._hands:
                raise TarkitError(f"no thread can be started: {error}") from None
            self.parallel = len(self._hands)

    def _receive(self, wait: bool) -> bool:
        """Take in a result that a hand has; whether there was one."""
        while True:
            try:
                number, jobs, outcomes, seconds = self._done.get(wait, WAIT) if wait else self._done.get_nowait()
                break
            except Empty:
                if not wait:
                    return False
        self._busy -= 1
        if isinstance(outcomes, BaseException):
            raise outcomes
        if not self._exact:
            self._size = min(2 * self._size, self.batch) if seconds < QUICK else self._size
            self._size = max(self._size // 2, 1) if seconds > SLOW else self._size
        self._results[number] = list(zip(jobs, outcomes, strict=True))
        return True

    def _ready(self) -> Iterator[Finished]:
        """The results whose turn it is."""
        while self._results:
            number = self._taken if self.ordered else next(iter(self._results))
            finished = self._results.pop(number, None)
            if finished is None:
                return
            self._taken += 1
            self._held -= _weight([job for job, _ in finished])
            finished.reverse()
            while finished:
                yield finished.pop()  # nobody else holds it then

    # ---- what hands do, each in its own thread

    def _work(self, executor: Executor) -> None:
        while (task := self._tasks.get()) is not None:
            number, jobs = task
            outcomes: list[Outcome] | BaseException
            started = time.monotonic()
            try:
                outcomes = self._settle(executor, jobs)
            except BaseException as error:
                outcomes = error
            self._done.put((number, jobs, outcomes, time.monotonic() - started))
            del task, jobs, outcomes
        try:
            executor.close()
        except BaseException as error:
            self._failed.append(error)

    def _settle(self, executor: Executor, jobs: Sequence[Job]) -> list[Outcome]:
        """Have the jobs done; those that fail together by halves, those that fail alone once more."""
        try:
            outcomes = executor.run(jobs)
        except BatchFailed as error:
            if len(jobs) > 1 and not self._over:
                half = len(jobs) // 2
                return self._settle(executor, jobs[:half]) + self._settle(executor, jobs[half:])
            outcomes = [Outcome(failure=error.failure, seconds=error.failure.seconds) for _ in jobs]
        return [self._again(executor, job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def _again(self, executor: Executor, job: Job, outcome: Outcome) -> Outcome:
        attempts = 1
        while outcome.failure is not None and attempts <= self.retries and not self._over:
            attempts += 1
            said = outcome.said
            try:
                [outcome] = executor.run([job])
            except BatchFailed as error:
                outcome = Outcome(failure=error.failure, seconds=error.failure.seconds)
            outcome = outcome._replace(said=[*said, *outcome.said])
        if outcome.failure is not None:
            outcome = outcome._replace(failure=outcome.failure._replace(attempts=attempts))
        return outcome

    # ---- the end

    def _close(self) -> None:
        """Stop the threads when all is done. Each closes its executor, so that all have the same time to end."""
        for _ in self._hands:
            self._tasks.put(None)
        for thread, _ in self._hands:
            while thread.is_alive():
                thread.join(WAIT)
        self._hands = []
        if self._failed:
            raise self._failed[0]

    def _end(self) -> None:
        """End all that runs, with force if need be."""
        self._over = True
        for act in ("cancel", "kill"):
            for _, executor in self._hands:
                getattr(executor, act)()
            for _ in self._hands:
                self._tasks.put(None)
            limit = time.monotonic() + PATIENCE
            for thread, executor in self._hands:
                if thread.ident:
                    thread.join(max(0.0, limit - time.monotonic()))
                elif act == "cancel":  # it was never started
                    executor.close()
            self._hands = [hand for hand in self._hands if hand[0].is_alive()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def _weight(jobs: list[Job]) -> int:
    """Bytes of memory that they may take."""
    return sum(min(job.sample.size, WHOLE) for job in jobs)
