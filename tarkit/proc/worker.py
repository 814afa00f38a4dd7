"""proc --worker: programs that stay, one for each of -p, get samples as a tar stream and answer with another.

Samples are dealt out in runs, and the results come in the order of the input. How far a program reads ahead, and how
much it holds back, is its own affair: whoever owes the next result is always given more, so that nobody waits for ever.

A program that dies has samples in hand, and which of them it died of is not to be seen. Where failures do not end the
run these samples are given to new programs by halves, each with an end to its input, until those that fail are alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from tarkit.errors import TarkitError, show
from tarkit.proc.engine import Failure, Finished, Job, Outcome, Runner, RunOptions
from tarkit.proc.result import SampleBuilder
from tarkit.proc.session import JobQueue, Session, SessionFailed
from tarkit.proc.shell import find_program

RUN = 64  # samples that one program gets before it is another's turn
RUN_BYTES = 1 << 20  # or so many bytes of them
WAITING = 2 * RUN_BYTES  # bytes of samples that wait for one program
QUEUED = 4 * RUN  # and how many
HELD = 64 << 20  # bytes of samples whose results wait for their turn
IN_VAIN = 50  # samples that may fail before a program that has never answered any is given up
IDLE = 2  # programs that may die one after the other without a sample in hand
SHOWN = 5  # keys of samples in hand that a message names
LOOK = 0.1  # seconds between two looks whether a program takes too long, and for signals

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
    """One program at a time, in a thread that sees to it that there is one."""

    def __init__(self, options: WorkerOptions, run: RunOptions, events: SimpleQueue[Event]) -> None:
        self.options = options
        self.run = run
        self.events = events
        self.feed = JobQueue(WAITING, QUEUED, lambda: events.put(None))
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._over = self._answered = False
        self._failed = 0
        self._isolates = not run.stops or run.retries > 0  # find out which sample the program died of
        self.thread = threading.Thread(target=self._work, daemon=True)
        self._open(self.feed)  # an error of starting it comes before all others
        self.thread.start()

    def _open(self, feed: JobQueue) -> Session:
        with self._lock:
            if self._over:
                raise TarkitError("it was given up")
            options = self.options
            self._session = Session(options.words, options.builder, feed, self._done, options.tmpdir)
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
                except SessionFailed as broken:
                    if self._over:
                        break
                    idle = 0 if broken.hand else idle + 1
                    if not self._isolates or session.unsure or idle > IDLE or (idle and self.feed.ended):
                        raise TarkitError(self._words(broken)) from None
                    if broken.hand:
                        self._isolate(broken.hand)
                if self.feed.ended:
                    break
                session = self._open(self.feed)
        except BaseException as error:
            self.events.put(error)
        else:
            self.events.put(None)

    def _isolate(self, jobs: list[Job]) -> None:
        """Find out which of these fail."""
        if len(jobs) == 1:
            self._alone(jobs[0])
            return
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            broken = self._once(half) if len(half) > 1 else SessionFailed(Failure(""), half)
            if broken is not None:
                self._isolate(broken.hand)

    def _alone(self, job: Job) -> None:
        attempts = 0
        while (broken := self._once([job])) is not None:
            attempts += 1
            if attempts > self.run.retries:
                self._failed += 1
                if self._failed > IN_VAIN and not self._answered:
                    raise TarkitError(self._words(broken))
                self._done(job, Outcome(failure=broken.failure._replace(attempts=attempts)))
                return

    def _once(self, jobs: list[Job]) -> SessionFailed | None:
        """Give a new program just these; what went wrong."""
        feed = JobQueue()
        for job in jobs:
            feed.put(job)
        feed.close()
        try:
            session = self._open(feed)
            session.run()
        except SessionFailed as broken:
            left = feed.rest()
            if self._over or session.unsure or not (broken.hand or left):
                raise TarkitError(self._words(broken)) from None
            return SessionFailed(broken.failure, broken.hand + left)
        return None

    def _words(self, broken: SessionFailed) -> str:
        """What went wrong, and what the program had in hand."""
        keys = [show(job.key) for job in broken.hand]
        text = f"--worker {self.options.text}: {broken.failure.reason}"
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            text += f"; it had in hand {', '.join(keys[:SHOWN])}{more}"
        lines = broken.failure.tail.decode("utf-8", "backslashreplace").strip().splitlines()
        return f"{text}: {lines[-1].strip()}" if lines else text

    def look(self) -> None:
        """End a program that takes too long."""
        session, limit = self._session, self.options.timeout
        if session is not None and limit is not None and session.overdue(limit):
            session.end_late()

    def end(self, act: str) -> None:
        """Ask the program to `terminate`, or `kill` it; no other is started."""
        with self._lock:
            self._over = True
            if self._session is not None:
                self._session.give_up(act)


class WorkerPool:
    """As `tarkit.proc.engine.Engine`, with `parallel` programs."""

    def __init__(self, options: WorkerOptions, run: RunOptions) -> None:
        self.options = options
        self.run = run
        self._workers: list[_Worker] = []
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._line: deque[tuple[Job, _Worker | None]] = deque()  # all that was given and not handed on, in order
        self._results: dict[int, Finished] = {}  # by the identity of the job
        self._held = 0
        self._left = 0  # jobs without result
        self._turn: _Worker | None = None
        self._run = (0, 0)  # samples and bytes that the one whose turn it is has had

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Each job with what became of it."""
        for job in jobs:
            if job.passes:
                self._line.append((job, None))
                self._results[id(job)] = (job, Outcome((job.sample,)))
            else:
                yield from self._give(job)
            del job
            while self._receive(0):
                pass
            yield from self._ready()
        for hand in self._workers:
            hand.feed.close()
        while self._left:
            self._receive(LOOK)
            yield from self._ready()
        yield from self._ready()
        self._wait()

    def _give(self, job: Job) -> Iterator[Finished]:
        """Give a job to somebody, as soon as there is room."""
        while (hand := self._chosen()) is None:
            self._receive(LOOK)
            yield from self._ready()
        samples, size = self._run if hand is self._turn else (0, 0)
        self._turn, self._run = hand, (samples + 1, size + job.sample.size)
        self._line.append((job, hand))
        self._left += 1
        hand.feed.put(job)

    def _chosen(self) -> _Worker | None:
        """Whose turn it is; None while there is no room."""
        turn = self._turn
        if self._held > HELD or len(self._results) > HELD // RUN_BYTES * RUN:  # they all wait for one
            turn = next((hand for job, hand in self._line if hand is not None and id(job) not in self._results), turn)
        elif turn is None or self._run[0] >= RUN or self._run[1] >= RUN_BYTES:
            if len(self._workers) < self.run.parallel:
                turn = _Worker(self.options, self.run, self._events)
                self._workers.append(turn)
                return turn
            turn = min(self._workers, key=lambda hand: hand.feed.size)
        assert turn is not None
        return turn if turn.feed.size < WAITING and len(turn.feed) < QUEUED else None

    def _receive(self, seconds: float) -> bool:
        """Take in what somebody has to say; whether there was anything."""
        try:
            event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
        except Empty:
            if seconds:
                for hand in self._workers:
                    hand.look()
            return False
        if isinstance(event, BaseException):
            raise event
        if event is not None:
            self._results[id(event[0])] = event
            self._held += sum(sample.size for sample in event[1].samples)
            self._left -= 1
        return True

    def _ready(self) -> Iterator[Finished]:
        """The results whose turn it is."""
        while self._line:
            found = self._results.pop(id(self._line[0][0]), None)
            if found is None and not self.run.ordered:
                place = next((n for n, (job, _) in enumerate(self._line) if id(job) in self._results), None)
                if place is not None:
                    found = self._results.pop(id(self._line[place][0]))
                    del self._line[place]
                    self._line.appendleft((found[0], None))
            if found is None:
                return
            self._line.popleft()
            if not found[0].passes:
                self._held -= sum(sample.size for sample in found[1].samples)
            yield found

    def _wait(self) -> None:
        """Wait until all programs have ended, well."""
        while any(hand.thread.is_alive() for hand in self._workers) or not self._events.empty():
            self._receive(LOOK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for act, seconds in (("terminate", 2.0), ("kill", 5.0)):
            for hand in self._workers:
                hand.end(act)
            limit = time.monotonic() + seconds
            for hand in self._workers:
                hand.thread.join(max(0.0, limit - time.monotonic()))


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
