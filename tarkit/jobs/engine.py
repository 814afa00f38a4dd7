"""The engine: takes jobs one after the other, has an executor run them, tries again, and records their outcomes.

Its memory does not grow with the number of jobs that are done. The stdout of jobs is passed on in the order of
the jobs, each as a whole when it has succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tarkit.jobs.job import JobExecutor, JobOutcome, JobStdout, ValueJob
from tarkit.jobs.journal import JobJournal
from tarkit.jobs.options import Halt

WriteStdout = Callable[[JobStdout], None]
JobEnded = Callable[[ValueJob, JobOutcome], None]

SHOWN = 100  # failures that are kept for the table
HELD = 256  # outputs of jobs that wait for those of jobs before them
PULSE = 0.2  # seconds between two calls of `progress`


class JobFailure(NamedTuple):
    """A job that failed, and how its last attempt ended."""

    job: ValueJob
    outcome: JobOutcome


@dataclass
class JobSummary:
    """Counts of jobs by their outcome.

    Attributes:
        done: how many succeeded.
        kept: how many were done before, and were left as they are.
        failed: how many failed.
        cancelled: how many were ended because another one failed; a run that is resumed does them again.
        retried: attempts after a failure.
        unknown: how many jobs that a journal has as done were not left out, since something cannot be compared.
        halted: whether jobs were left because one failed.
        samples, bytes: the output of the jobs that succeeded, as far as they report it.
        joined: of all jobs with a table of `--join`, how many samples have a row of it; None without such jobs.
        failures: the first of the failures.
        seconds: how long it took.
    """

    done: int = 0
    kept: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    unknown: int = 0
    halted: bool = False
    samples: int = 0
    bytes: int = 0
    joined: int | None = None
    failures: list[JobFailure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def has_no_row(self) -> bool:
        """Whether there is a joined table, and no sample of any job has a row of it."""
        return self.joined == 0 and not self.kept

    @property
    def ended(self) -> int:
        """How many jobs are over."""
        return self.done + self.kept + self.failed


def run_jobs(
    jobs: Iterable[ValueJob],
    executor: JobExecutor,
    *,
    retries: int = 0,
    halt: Halt = "soon",
    journal: JobJournal | None = None,
    progress: Callable[[JobSummary], None] = lambda summary: None,
    write_stdout: WriteStdout = lambda output: None,
    ended: JobEnded = lambda job, outcome: None,
) -> JobSummary:
    """Run jobs, and return counts of their outcomes.

    Args:
        jobs: an iterator, which is advanced when there is room for another job.
        executor: runs them; running jobs are cancelled whatever ends this function.
        retries: how often a job that failed is tried again.
        halt: after a failure: end when the running jobs are done, end them now, or never.
        journal: has the jobs that are done, and records attempts.
        progress: called when something has changed, and several times a second.
        write_stdout: called with the stdout of jobs.
        ended: called with each attempt that ended.
    """
    loop = _JobLoop(iter(jobs), executor, retries, halt, journal, write_stdout, ended)
    try:
        while loop.start() or loop.running:
            for job, outcome in executor.wait(PULSE):
                loop.take(job, outcome)
            if halt == "now" and loop.summary.halted:
                loop.cancel()
            progress(loop.summary)
        progress(loop.summary)
        return loop.summary
    finally:
        executor.cancel()


@dataclass
class _JobLoop:
    jobs: Iterator[ValueJob]
    executor: JobExecutor
    retries: int
    halt: Halt
    journal: JobJournal | None
    write_stdout: WriteStdout
    ended: JobEnded

    def __post_init__(self) -> None:
        self.summary = JobSummary()
        self.running = 0
        self._begun = time.monotonic()
        # jobs that printed something which is not passed on, by number in order; None for jobs that run
        self._printed: dict[int, tuple[ValueJob, JobOutcome] | None] = {}
        self._held = 0

    def start(self) -> bool:
        """Submit jobs while there is room; return whether there may be more to do.

        That is so if one was submitted, or if many were left out as done, and progress is to be shown.
        """
        submitted = False
        while self.running < self.executor.slots and self._held < HELD and not self.summary.halted:
            job = next(self.jobs, None)
            if job is None:
                break
            if self.journal is not None and self.journal.has_done(job):
                self.summary.kept += 1
                if self.summary.kept % HELD == 0:
                    return True
                continue
            self.summary.unknown = 0 if self.journal is None else self.journal.unknown
            submitted = True
            self._printed[job.value.index] = None
            self._submit(job, 1)
        return submitted

    def _submit(self, job: ValueJob, attempt: int) -> None:
        again = attempt > 1
        if self.journal is not None:
            again = self.journal.begin(job) or again
        self.executor.submit(replace(job, replaces=again and bool(job.series)), attempt)
        self.running += 1

    def take(self, job: ValueJob, outcome: JobOutcome) -> None:
        """Count and record a job that ended, or try it again."""
        self.running -= 1
        summary = self.summary
        summary.seconds = time.monotonic() - self._begun
        self.ended(job, outcome)
        if outcome.output is None:
            self._record(job, outcome)
        if outcome.status == 0:
            summary.done += 1
            summary.samples += outcome.samples or 0
            summary.bytes += outcome.bytes or 0
            if outcome.joined is not None:
                summary.joined = (summary.joined or 0) + outcome.joined
        elif outcome.attempt <= self.retries and not summary.halted:
            summary.retried += 1
            self._submit(job, outcome.attempt + 1)
            return
        else:
            self._fail(job, outcome)
        if outcome.output is None:
            del self._printed[job.value.index]
        else:
            self._printed[job.value.index] = job, outcome
            self._held += 1
        self._pass_on()

    def _record(self, job: ValueJob, outcome: JobOutcome) -> None:
        if self.journal is not None:
            self.journal.end(job, outcome)

    def _fail(self, job: ValueJob, outcome: JobOutcome) -> None:
        summary = self.summary
        summary.failed += 1
        if len(summary.failures) < SHOWN:
            summary.failures.append(JobFailure(job, outcome))
        summary.halted = self.halt != "never"

    def cancel(self) -> None:
        """Cancel the jobs that run, and pass on the stdout of jobs after them, which waited for them."""
        self.executor.cancel()
        self.summary.cancelled, self.running = self.running, 0
        self._printed = {number: ended for number, ended in self._printed.items() if ended is not None}
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass on the stdout of all jobs before the first that still runs; then the journal has them as done."""
        while self._printed:
            number, ended = next(iter(self._printed.items()))
            if ended is None:
                return
            job, outcome = ended
            del self._printed[number]
            self._held -= 1
            if outcome.output is not None:
                self.write_stdout(outcome.output)
            self._record(job, outcome)
