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
from tarkit.proc.job import BatchFailed, Job, Outcome, RunOptions
from tarkit.proc.pool import Act, JobWorker, Pool, retried
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


class ProgramWorker(JobWorker):
    """Runs one program at a time, and starts another one when it dies."""

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
        session, idle = self._session, 0
        while True:
            try:
                session.run(partial(self._take, pool), partial(self._report, pool), pool.wake, self.options.timeout)
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
        """Find out which of these jobs fail: each half of them gets a program of its own, and so on."""
        middle = len(jobs) // 2
        for half in (jobs[:middle], jobs[middle:]):
            outcomes = retried(self._run_apart, half, self.retries, lambda: self._cancelled)
            for job, outcome in zip(half, outcomes, strict=True):
                if outcome is not None:
                    pool.report(job, outcome)

    def _run_apart(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run a new program on just these jobs. Raises BatchFailed if it does not answer all of them."""
        inputs, session = iter([jobs]), self._open()
        outcomes: dict[int, Outcome] = {}

        def done(job: Job, outcome: Outcome) -> None:
            self._answered = self._answered or outcome.failure is None
            failure = outcome.failure and outcome.failure._replace(fatal=True)  # the program answered: once is enough
            outcomes[id(job)] = outcome._replace(failure=failure)

        try:
            session.run(lambda stopped: next(inputs, None), done, timeout=self.options.timeout)
        except SessionFailed as failed:
            pending = failed.pending + [*session.unsent, *(job for rest in inputs for job in rest)]
            self._failed += len(jobs) == 1
            unusable = self._failed > MAX_FAILURES * (1 + self.retries) and not self._answered
            if self._cancelled or session.unsure or not pending or unusable:
                raise TarkitError(self._message(failed)) from None
            raise BatchFailed(failed.failure) from None
        return [outcomes[id(job)] for job in jobs]

    def _report(self, pool: Pool, job: Job, outcome: Outcome) -> None:
        self._answered = self._answered or outcome.failure is None
        pool.report(job, outcome)

    def _message(self, failed: SessionFailed) -> str:
        """Return what went wrong, and the pending samples, for a message."""
        keys = [show(job.key) for job in failed.pending]
        text = f"{spell('worker')} {self.options.text}: {failed.failure.reason}"
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            text += f"; pending samples: {', '.join(keys[:SHOWN])}{more}"
        last = last_line(failed.failure.tail)
        return f"{text}: {last}" if last else text

    def end(self, act: Act) -> None:
        with self._lock:
            self._cancelled = True
            self._session.cancel(act)


def program_pool(options: WorkerOptions, run: RunOptions) -> Pool:
    """Return what runs jobs through long-lived programs, once it is entered."""
    return Pool(lambda: ProgramWorker(options, run), run, TOGETHER, exact=True)
