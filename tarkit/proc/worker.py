"""proc --worker: N long-lived programs get samples as a tar stream and answer with another.

Samples are distributed in runs, and the results come in the order of the input. Programs may read ahead and delay
answers without limit; the program with the next result always gets more samples, so that there is no deadlock. (This is
why `Engine` cannot run them: its executors return the outcomes of some jobs before they get more.)

When a program dies, it is not known which of its pending samples was the cause. If failures do not end the run, these
samples are sent to new programs by halves, each as a complete input, until those that fail are alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Self

from tarkit.errors import TarkitError, show, spell
from tarkit.proc.engine import Failure, Finished, Job, Outcome, Runner, RunOptions
from tarkit.proc.result import SampleBuilder
from tarkit.proc.session import JobQueue, Session, SessionFailed
from tarkit.proc.shell import find_program
from tarkit.streams.command import last_line

RUN = 64  # samples that one program gets before the next one
RUN_BYTES = 1 << 20  # bytes of samples, likewise
WAITING = 2 * RUN_BYTES  # bytes of samples that wait for one program
QUEUED = 4 * RUN  # number of samples that wait for one program
HELD = 64 << 20  # bytes of samples whose results wait for their turn
MAX_FAILURES = 50  # samples that may fail before a program that has never answered is an error
IDLE = 2  # programs that may die one after the other without a pending sample
SHOWN = 5  # keys of pending samples in a message
POLL = 0.1  # seconds between two checks of timeouts and signals

Event = tuple[Job, Outcome] | BaseException | None


@dataclass(frozen=True)
class WorkerOptions:
    """The program, and how it is run.

    Args:
        words: the program and its arguments.
        text: what messages call it.
        builder: makes the samples of its answers.
        timeout: seconds for which it may neither read nor write when it could.
    """

    words: list[str]
    text: str
    builder: SampleBuilder
    timeout: float | None = None
    tmpdir: str | None = None


class _Worker:
    """A thread that runs one program at a time, and starts another one when it dies."""

    def __init__(self, options: WorkerOptions, run: RunOptions, events: SimpleQueue[Event]) -> None:
        self.options = options
        self.run = run
        self.events = events
        self.queue = JobQueue(WAITING, QUEUED, lambda: events.put(None))
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._cancelled = self._answered = False
        self._failed = 0
        self._isolates = not run.stops or run.retries > 0  # find out which sample the program died of
        self.thread = threading.Thread(target=self._work, daemon=True)
        self._open(self.queue)  # here, so that an error of starting it comes first
        self.thread.start()

    def _open(self, queue: JobQueue) -> Session:
        with self._lock:
            if self._cancelled:
                raise TarkitError("it was cancelled")
            options = self.options
            self._session = Session(options.words, options.builder, queue, self._done, options.tmpdir)
            return self._session

    def _done(self, job: Job, outcome: Outcome) -> None:
        self._answered = self._answered or outcome.failure is None
        self.events.put((job, outcome))

    def _work(self) -> None:
        try:
            session, idle = self._session, 0
            assert session is not None
            while True:
                try:
                    session.run()
                    break
                except SessionFailed as failed:
                    if self._cancelled:
                        break
                    idle = 0 if failed.pending else idle + 1
                    if not self._isolates or session.unsure or idle > IDLE or (idle and self.queue.ended):
                        raise TarkitError(self._message(failed)) from None
                    if failed.pending:
                        self._isolate(failed.pending)
                if self.queue.ended:
                    break
                session = self._open(self.queue)
        except BaseException as error:
            self.events.put(error)
        else:
            self.events.put(None)

    def _isolate(self, jobs: list[Job]) -> None:
        """Find out which of these jobs fail."""
        if len(jobs) == 1:
            self._alone(jobs[0])
            return
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            failed = self._once(half) if len(half) > 1 else SessionFailed(Failure(""), half)
            if failed is not None:
                self._isolate(failed.pending)

    def _alone(self, job: Job) -> None:
        attempts = 0
        while (failed := self._once([job])) is not None:
            attempts += 1
            if attempts > self.run.retries:
                self._failed += 1
                if self._failed > MAX_FAILURES and not self._answered:
                    raise TarkitError(self._message(failed))
                self._done(job, Outcome(failure=failed.failure._replace(attempts=attempts)))
                return

    def _once(self, jobs: list[Job]) -> SessionFailed | None:
        """Run a new program on just these jobs; return what went wrong."""
        queue = JobQueue()
        for job in jobs:
            queue.put(job)
        queue.close()
        try:
            session = self._open(queue)
            session.run()
        except SessionFailed as failed:
            left = queue.take_all()
            if self._cancelled or session.unsure or not (failed.pending or left):
                raise TarkitError(self._message(failed)) from None
            return SessionFailed(failed.failure, failed.pending + left)
        return None

    def _message(self, failed: SessionFailed) -> str:
        """Return what went wrong, and the pending samples, for a message."""
        keys = [show(job.key) for job in failed.pending]
        text = f"{spell('worker')} {self.options.text}: {failed.failure.reason}"
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            text += f"; pending samples: {', '.join(keys[:SHOWN])}{more}"
        last = last_line(failed.failure.tail)
        return f"{text}: {last}" if last else text

    def check_timeout(self) -> None:
        """Kill a program that takes too long."""
        session, limit = self._session, self.options.timeout
        if session is not None and limit is not None and session.overdue(limit):
            session.time_out()

    def end(self, act: str) -> None:
        """`terminate` the program, or `kill` it; start no other."""
        with self._lock:
            self._cancelled = True
            if self._session is not None:
                self._session.cancel(act)


class WorkerPool:
    """Runs jobs through programs; a `tarkit.proc.engine.Runner`."""

    def __init__(self, options: WorkerOptions, run: RunOptions) -> None:
        self.options = options
        self.run = run
        self._workers: list[_Worker] = []
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._pending: deque[tuple[Job, _Worker | None]] = deque()  # jobs that were not yielded yet, in order
        self._results: dict[int, Finished] = {}  # by identity of the job
        self._held = 0
        self._left = 0  # jobs without result
        self._turn: _Worker | None = None
        self._streak = (0, 0)  # samples and bytes of the current run

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""
        for job in jobs:
            if job.passes:
                self._pending.append((job, None))
                self._results[id(job)] = (job, Outcome((job.sample,)))
            else:
                yield from self._submit(job)
            del job
            while self._receive(0):
                pass
            yield from self._ready()
        for worker in self._workers:
            worker.queue.close()
        while self._left:
            self._receive(POLL)
            yield from self._ready()
        yield from self._ready()
        self._wait()

    def _submit(self, job: Job) -> Iterator[Finished]:
        """Give a job to a program as soon as there is room; yield results meanwhile."""
        while (worker := self._chosen()) is None:
            self._receive(POLL)
            yield from self._ready()
        samples, size = self._streak if worker is self._turn else (0, 0)
        self._turn, self._streak = worker, (samples + 1, size + job.sample.size)
        self._pending.append((job, worker))
        self._left += 1
        worker.queue.put(job)

    def _chosen(self) -> _Worker | None:
        """Return the worker that gets the next job, None while there is no room."""
        turn = self._turn
        if self._held > HELD or len(self._results) > HELD // RUN_BYTES * RUN:  # they all wait for one program
            turn = next(
                (worker for job, worker in self._pending if worker is not None and id(job) not in self._results), turn
            )
        elif turn is None or self._streak[0] >= RUN or self._streak[1] >= RUN_BYTES:
            if len(self._workers) < self.run.parallel:
                turn = _Worker(self.options, self.run, self._events)
                self._workers.append(turn)
                return turn
            turn = min(self._workers, key=lambda worker: worker.queue.size)
        assert turn is not None
        return turn if turn.queue.size < WAITING and len(turn.queue) < QUEUED else None

    def _receive(self, seconds: float) -> bool:
        """Take an event of a worker; return whether there was one."""
        try:
            event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
        except Empty:
            if seconds:
                for worker in self._workers:
                    worker.check_timeout()
            return False
        if isinstance(event, BaseException):
            raise event
        if event is not None:
            self._results[id(event[0])] = event
            self._held += sum(sample.size for sample in event[1].samples)
            self._left -= 1
        return True

    def _ready(self) -> Iterator[Finished]:
        """Yield the results whose turn it is."""
        while self._pending:
            found = self._results.pop(id(self._pending[0][0]), None)
            if found is None and not self.run.ordered:
                place = next((n for n, (job, _) in enumerate(self._pending) if id(job) in self._results), None)
                if place is not None:
                    found = self._results.pop(id(self._pending[place][0]))
                    del self._pending[place]
                    self._pending.appendleft((found[0], None))
            if found is None:
                return
            self._pending.popleft()
            if not found[0].passes:
                self._held -= sum(sample.size for sample in found[1].samples)
            yield found

    def _wait(self) -> None:
        """Wait until all programs have ended."""
        while any(worker.thread.is_alive() for worker in self._workers) or not self._events.empty():
            self._receive(POLL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for act, seconds in (("terminate", 2.0), ("kill", 5.0)):
            for worker in self._workers:
                worker.end(act)
            limit = time.monotonic() + seconds
            for worker in self._workers:
                worker.thread.join(max(0.0, limit - time.monotonic()))


def worker_runner(
    command: str,
    run: RunOptions,
    *,
    path: str,
    timeout: float | None = None,
    mtime: int | None = 0,
    tmpdir: str | None = None,
) -> Runner:
    """Return what runs jobs through long-lived programs, each started by `bash -c`.

    Args:
        command: a command that reads samples as a tar stream and writes its answers as one.
        run: number of programs, order and retries.
        path: directories in which bash is looked for, as PATH has them.
        timeout: seconds for which a program may neither read nor write when it could.
        mtime: time of new entries, in seconds since 1970.
        tmpdir: directory for large fields of answers.
    """
    words = [find_program("bash", path), "-o", "pipefail", "-c", command]
    return WorkerPool(WorkerOptions(words, command, SampleBuilder(mtime), timeout, tmpdir), run)
