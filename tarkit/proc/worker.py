"""proc --worker: N long-lived programs get samples as a tar stream and answer with another.

A program may read ahead and delay answers without limit: the pool gives more samples to the one that has the next
result, whatever the others have done.

When a program dies, it is not known which of its pending samples was the cause. If failures do not end the run, these
samples are sent to new programs by halves, each as a complete input, until those that fail are alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tarkit.errors import TarkitError, show, spell
from tarkit.proc.job import Failure, Job, Outcome, RunOptions
from tarkit.proc.pool import Pool
from tarkit.proc.result import SampleBuilder
from tarkit.proc.session import Session, SessionFailed
from tarkit.streams.command import last_line

TOGETHER = 64  # samples that one program gets before the next one
MAX_FAILURES = 50  # samples that may fail before a program that has never answered is an error
IDLE = 2  # programs that may die one after the other without a pending sample
SHOWN = 5  # keys of pending samples in a message


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


class ProgramWorker:
    """Runs one program at a time, and starts another one when it dies."""

    lost = False
    streams = True

    def __init__(self, options: WorkerOptions, run: RunOptions) -> None:
        self.options = options
        self.retries = run.retries
        self._isolates = not run.stops or run.retries > 0  # find out which sample the program died of
        self._lock = threading.Lock()
        self._cancelled = self._answered = False
        self._failed = 0
        self._session = self._open()

    def _open(self) -> Session:
        with self._lock:
            if self._cancelled:
                raise TarkitError("it was cancelled")
            self._session = Session(self.options.words, self.options.builder, self.options.tmpdir)
            return self._session

    def work(self, pool: Pool) -> None:
        """Send samples to programs until there are no more, and report the answers."""
        session, idle = self._session, 0
        while True:
            try:
                session.run(partial(self._take, pool), self._reporter(pool), pool.wake, self.options.timeout)
                return
            except SessionFailed as failed:
                pool.give_back(session.unsent)
                if self._cancelled:
                    return
                idle = 0 if failed.pending else idle + 1
                if not self._isolates or session.unsure or idle > IDLE or (idle and pool.is_drained()):
                    raise TarkitError(self._message(failed)) from None
                self._isolate(failed.pending, pool)
            if pool.is_drained():
                return
            session = self._open()

    def _take(self, pool: Pool, stopped: Callable[[], bool]) -> Sequence[Job] | None:
        batch = pool.take(self, stopped)
        return None if batch is None else batch[0]

    def _isolate(self, jobs: Sequence[Job], pool: Pool) -> None:
        """Find out which of these jobs fail."""
        if len(jobs) < 2:
            for job in jobs:
                self._alone(job, pool)
            return
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            failed = self._once(half, pool) if len(half) > 1 else SessionFailed(Failure(""), [*half])
            if failed is not None:
                self._isolate(failed.pending, pool)

    def _alone(self, job: Job, pool: Pool) -> None:
        attempts = 0
        while (failed := self._once([job], pool)) is not None:
            attempts += 1
            if attempts > self.retries:
                self._failed += 1
                if self._failed > MAX_FAILURES and not self._answered:
                    raise TarkitError(self._message(failed))
                pool.report(job, Outcome(failure=failed.failure._replace(attempts=attempts)))
                return

    def _once(self, jobs: Sequence[Job], pool: Pool) -> SessionFailed | None:
        """Run a new program on just these jobs; return what went wrong."""
        inputs = iter([jobs])
        session = self._open()
        try:
            session.run(lambda stopped: next(inputs, None), self._reporter(pool), timeout=self.options.timeout)
        except SessionFailed as failed:
            pending = failed.pending + [*session.unsent, *(job for rest in inputs for job in rest)]
            if self._cancelled or session.unsure or not pending:
                raise TarkitError(self._message(failed)) from None
            return SessionFailed(failed.failure, pending)
        return None

    def _reporter(self, pool: Pool) -> Callable[[Job, Outcome], None]:
        def report(job: Job, outcome: Outcome) -> None:
            self._answered = self._answered or outcome.failure is None
            pool.report(job, outcome)

        return report

    def _message(self, failed: SessionFailed) -> str:
        """Return what went wrong, and the pending samples, for a message."""
        keys = [show(job.key) for job in failed.pending]
        text = f"{spell('worker')} {self.options.text}: {failed.failure.reason}"
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            text += f"; pending samples: {', '.join(keys[:SHOWN])}{more}"
        last = last_line(failed.failure.tail)
        return f"{text}: {last}" if last else text

    def cancel(self) -> None:
        """Terminate the program; start no other."""
        self._end("terminate")

    def kill(self) -> None:
        """Kill the program; start no other."""
        self._end("kill")

    def _end(self, act: str) -> None:
        with self._lock:
            self._cancelled = True
            self._session.cancel(act)

    def close(self) -> None:
        """Nothing: the program has ended."""


def program_pool(options: WorkerOptions, run: RunOptions) -> Pool:
    """Return what runs jobs through long-lived programs, once it is entered."""
    return Pool(lambda: ProgramWorker(options, run), run, TOGETHER, exact=True)
