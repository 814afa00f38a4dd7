"""The engine of jobs: memory does not grow with the number of jobs that are done, and outputs come in order."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from tarkit.jobs.calls import call_here
from tarkit.jobs.engine import JobSummary, run_jobs
from tarkit.jobs.job import Counts, JobOutcome, JobStdout, ValueJob
from tarkit.jobs.journal import JobJournal
from tarkit.jobs.values import Value
from tests._tools import each_row, traced


class HereExecutor:
    """Runs jobs in this process, one after the other; those that wait end last first, and `last` at the end of all."""

    def __init__(self, slots: int, last: int = -1, prints: int = 0) -> None:
        self.slots = slots
        self.last = last
        self.prints = prints
        self.waiting: list[tuple[ValueJob, int]] = []

    def submit(self, job: ValueJob, attempt: int) -> None:
        self.waiting.append((job, attempt))

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        """Run all jobs that wait; `last` only when it is alone."""
        now = [each for each in self.waiting if each[0].value.index != self.last] or self.waiting
        self.waiting = [each for each in self.waiting if each not in now]
        return [(job, self.run(job, attempt)) for job, attempt in reversed(now)]

    def run(self, job: ValueJob, attempt: int) -> JobOutcome:
        outcome = call_here(job, attempt, lambda job, line: None)
        if self.prints and job.value.index % self.prints == 0:
            outcome.output = b"%d" % job.value.index
        return outcome

    def cancel(self) -> None:
        """There is nothing to end."""


def nothing() -> Counts:
    return Counts(1, 2)


def fails() -> Counts:
    raise ValueError("no")


def jobs(count: int) -> Iterator[ValueJob]:
    """Yield jobs for numbers; every fourth fails."""
    for index in range(count):
        text = str(index)
        yield ValueJob(Value(text, index, text, text, "."), call=nothing if index % 4 else fails)


@pytest.mark.slow
def test_memory_of_many_jobs() -> None:
    """2500 jobs take no more memory than a few, even while the first of them runs."""
    peaks = []
    for count in (500, 2500):
        with traced() as memory:
            summary = run_jobs(jobs(count), HereExecutor(16, 0), retries=1, halt="never")
            peaks.append(memory()[1])
        assert (summary.done, summary.failed, summary.retried) == (count * 3 // 4, count // 4, count // 4)
        assert (summary.samples, len(summary.failures)) == (count * 3 // 4, 100)
    assert peaks[1] < peaks[0] + 25_000


@each_row("last,prints", [(-1, 1), (0, 3), (5, 2), (9, 3)])
def test_outputs_in_order(last: int, prints: int) -> None:
    """What jobs print comes in their order, whatever order they end in; some fail, and some print nothing."""
    found: list[int] = []
    executor = HereExecutor(8, last, prints)
    run_jobs(jobs(1000), executor, halt="never", write_stdout=lambda output: found.append(int(output)))
    assert found == list(range(0, 1000, prints))


def test_what_was_not_passed_on_is_not_done(tmp_path: Path) -> None:
    """The journal has a job as done once what it printed was passed on: a run that is resumed prints the rest."""
    found: list[int] = []
    resumed = False

    def write_stdout(output: JobStdout) -> None:
        if len(found) == 3 and not resumed:
            raise OSError(errno.ENOSPC, "full")
        found.append(int(output))  # type: ignore[arg-type]

    def run() -> None:
        with closing(JobJournal(str(tmp_path / "journal"), resumed)) as journal:
            run_jobs(jobs(40), HereExecutor(8, 5, 2), halt="never", write_stdout=write_stdout, journal=journal)

    with pytest.raises(OSError, match="full"):
        run()
    resumed = True
    run()
    assert [number for number in found if number % 4] == list(range(2, 40, 4))  # others fail, and are run again


@each_row("first,slots,printed,done", [(3, 5, [6], [5, 6, 7]), (1, 4, [3], [2, 3])])
def test_halt_now_passes_on_what_is_done(
    first: int, slots: int, printed: list[int], done: list[int], tmp_path: Path
) -> None:
    """What a job printed is passed on though a job before it is cancelled, and the journal has it as done.

    The first job runs until the end; 4 fails, and the others end before it or together with it.
    """
    found: list[int] = []

    def write_stdout(output: JobStdout) -> None:
        found.append(int(output))  # type: ignore[arg-type]

    def run(resumed: bool) -> JobSummary:
        todo, executor = islice(jobs(first + slots), first, None), HereExecutor(slots, first, 3)
        with closing(JobJournal(str(tmp_path / f"journal-{first}"), resumed)) as journal:
            return run_jobs(todo, executor, halt="now", journal=journal, write_stdout=write_stdout)

    summary = run(resumed=False)
    assert (summary.done, summary.failed, summary.cancelled, summary.halted) == (len(done), 1, 1, True)
    assert summary.samples == len(done)
    assert found == printed
    lines = [json.loads(line) for line in (tmp_path / f"journal-{first}").read_text().splitlines()]
    assert sorted(int(line["value"]) for line in lines if line["status"] == 0) == done
    assert [int(line["value"]) for line in lines if line["status"]] == [4]
    found.clear()
    assert run(resumed=True).kept == len(done)
    assert not set(found) & set(printed)
