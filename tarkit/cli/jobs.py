"""The options of commands that run jobs, and a run of jobs: its messages, its bar, the table of failures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from tarkit.cli.command import Command, Option, common, settings_of
from tarkit.cli.console import ConsoleRun, current, make_bar
from tarkit.cli.messages import bars_hidden, say
from tarkit.errors import TarkitError, Usage, printable, spell
from tarkit.pipeline.arguments import parse_processes
from tarkit.pipeline.options import Options, row
from tarkit.stores.schemes import public_name
from tarkit.streams.sink import Sink, open_sink

if TYPE_CHECKING:
    from tarkit.jobs.engine import JobExecutor, JobFailure, JobSummary
    from tarkit.jobs.job import JobStdout, ValueJob
    from tarkit.jobs.journal import JobJournal

Halt = Literal["soon", "now", "never"]
CLUSTER_OPTIONS = ("dask", "dask_resources")  # what a cluster can run: jobs, and tasks of other commands
PIECE = 1 << 20  # bytes of a job's stdout that are passed on at a time


class JobOptions(Options):
    """The options of a run of jobs."""

    jobs: int = row(
        "Jobs",
        "-j",
        "--jobs",
        default=0,
        at_least=0,
        metavar="N",
        help="N jobs at a time.  [default: 0, one per CPU]",
        more="With --dask ADDRESS: how many are handed out, by default two for each thread of a worker.",
    )
    job_retries: int = row(
        "Jobs", "--job-retries", default=0, at_least=0, metavar="N", help="Try a job that failed up to N times more."
    )
    halt: Halt = row(
        "Jobs",
        "--halt",
        default="soon",
        choices=Halt,
        metavar="WHEN",
        help="After a failure: end soon, now, never.",
        more="soon: when the jobs that run are done. now: end these. never: do all other jobs.",
    )
    job_timeout: float | None = row(
        "Jobs",
        "--job-timeout",
        seconds=True,
        metavar="S",
        help="A job fails after S seconds, and all of it is ended.",
        more="Also what it started in a session of its own, unless that has another environment and no parent.",
    )
    dry_run: bool = row("Jobs", "--dry-run", default=False, help="Print the command lines, and run nothing.")
    journal: str | None = row(
        "Jobs",
        "--journal",
        metavar="FILE",
        help="Record each job in FILE, a JSON object a line.",
        more="A file that is there is an error without --resume.",
    )
    resume: bool = row(
        "Jobs",
        "--resume",
        default=False,
        help="Leave out jobs that --journal has as done.",
        more="Unless one of their inputs or outputs has changed, or the command line.",
    )
    shard_index: str | None = row(
        "Jobs",
        "--shard-index",
        metavar="K/N",
        help="Only the K-th of N parts of the jobs, from 0.",
        more="For array jobs: a part has every N-th of the values.",
    )
    emit: str | None = row(
        "Jobs",
        "--emit",
        metavar="ENGINE",
        help="Print a script for slurm, k8s or make, and run nothing.",
        more="An array script of Slurm, an indexed Job of Kubernetes, a Makefile. The values are those that are "
        "found now. An array has an element for each N values, of -j N, and at most 1000; slurm:50: at most 50. "
        "Each element has a journal of its own, which has its number after the name.",
    )
    dask: str | None = row(
        "Jobs",
        "--dask",
        metavar="ADDRESS",
        help="Run jobs on a Dask cluster: tcp://HOST:8786, or local.",
        more="ADDRESS is its scheduler's; local starts workers here. A path must be the same file on all machines.",
    )
    dask_resources: tuple[str, ...] = row(
        "Jobs",
        "--dask-resources",
        default=(),
        detail=True,
        metavar="NAME=N",
        help="What a job takes of a worker of Dask: GPU=1.",
        more="May be repeated, or be a list with commas. Workers offer it with dask worker --resources GPU=1.",
    )

    @classmethod
    def given(cls, ctx: click.Context) -> JobOptions:
        """Return the options that the command line has. Raises Usage for those that do not go together."""
        return cls(**{name: ctx.meta[f"tarkit.{name}"] for name in cls.rows if f"tarkit.{name}" in ctx.meta})

    def check(self) -> None:
        """Raise Usage for options that do not go together."""
        if self.resume and self.journal is None:
            raise Usage("--resume requires --journal FILE")
        if self.dask_resources and self.dask is None:
            raise Usage("--dask-resources requires --dask ADDRESS")
        if self.emit is not None:
            self.check_emit()

    def check_emit(self) -> None:
        """Raise Usage for options that a script cannot have."""
        make = (self.emit or "").startswith("make")
        allowed = {"emit", "job_retries", "job_timeout", *(() if make else ("jobs", "halt", "journal"))}
        hints = {"jobs": "make -j N", "halt": "make -k goes on after failures", "journal": "make compares times"}
        for name in self.changed:
            if name not in allowed:
                hint = hints.get(name) if make else "what it prints has --shard-index and --resume itself"
                raise Usage(f"{spell('emit', self.emit)} does not go with {spell(name)}", hint)

    def part(self) -> slice:
        """Return which of the values are done. Raises Usage for an invalid --shard-index."""
        from tarkit.jobs.values import parse_part

        if self.shard_index is None:
            return slice(None)
        return slice(*parse_part(self.shard_index)[:1], None, parse_part(self.shard_index)[1])

    def open_journal(self, run: ConsoleRun) -> JobJournal | None:
        """Open the journal; a dry run begins none."""
        from tarkit.jobs.journal import JobJournal

        if self.journal is None or (self.dry_run and not os.path.exists(self.journal)):
            return None
        run.reserve(self.journal, "the journal")
        return JobJournal(self.journal, self.resume)


def job_options(detail: bool = False, names: Sequence[str] = tuple(JobOptions.rows)) -> list[Option]:
    """Return the options of these names; with `detail` only --help-all and man pages list them."""
    options = []
    for name in names:
        row = JobOptions.rows[name]
        settings = settings_of(row)
        settings["detail"] = detail or row.detail
        options.append(common(*row.names, name, section=row.section, **settings))
    return options


class TaskCommand(Command):
    """A command that may have a task for each input, on a cluster, and makes no jobs."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += job_options(True, CLUSTER_OPTIONS)


def run_all(jobs: Iterable[ValueJob], total: int, given: JobOptions) -> None:
    """Run jobs and say what became of them. Raises TarkitError when one failed."""
    run = current()
    journal = given.open_journal(run)
    try:
        if given.dry_run:
            for job in jobs:
                if journal is None or not journal.has_done(job):
                    click.echo(os.fsencode(job.shown()))
            return
        summary = _run(run, jobs, total, given, journal)
    finally:
        if journal is not None:
            journal.close()
    _report(run, summary, total)
    if summary.unknown:
        what = (
            "was done again: what it reads or writes"
            if summary.unknown == 1
            else "were done again: what they read or write"
        )
        run.tell(f"{summary.unknown} of the jobs that {given.journal} has as done {what} cannot be compared")
    _print_failures(run, summary)
    run.finish()
    if summary.failed:
        hint = "--resume does what is left" if given.journal else "with --journal FILE, --resume would do what is left"
        raise TarkitError(f"{summary.failed} of {total} jobs failed{_left(summary, total)}", hint)


def _run(
    run: ConsoleRun, jobs: Iterable[ValueJob], total: int, given: JobOptions, journal: JobJournal | None
) -> JobSummary:
    from tarkit.jobs.engine import run_jobs

    output = _Stdout()
    executor = _make_executor(run, total, given)
    try:
        summary = run_jobs(
            jobs,
            executor,
            retries=given.job_retries,
            halt=given.halt,
            journal=journal,
            progress=_progress(run, total),
            write_stdout=output.write,
        )
    finally:
        executor.close()
    output.close()
    return summary


def _make_executor(run: ConsoleRun, total: int, given: JobOptions) -> JobExecutor:
    settings: dict[str, Any] = {"timeout": given.job_timeout, "relay": _relay, "tmpdir": run.scratch(None)}
    if given.dask is not None:
        from tarkit.jobs.dask import DaskExecutor, connect_cluster, parse_resources

        resources = parse_resources(given.dask_resources)
        cluster = connect_cluster(given.dask, resources, jobs=given.jobs, warn=run.warn)
        return DaskExecutor(cluster, jobs=given.jobs, **settings)
    from tarkit.cli.app import run_in_copy
    from tarkit.jobs.local import LocalExecutor

    return LocalExecutor(min(parse_processes(given.jobs), max(1, total)), run=run_in_copy, **settings)


def _relay(job: ValueJob, line: bytes) -> None:
    from tarkit.jobs.job import print_line

    with bars_hidden():
        print_line(job, line)


class _Stdout:
    """What jobs print, one after the other."""

    def __init__(self) -> None:
        self._sink: Sink | None = None

    def write(self, output: JobStdout) -> None:
        if self._sink is None:
            self._sink = open_sink("stdout", "-")
        if isinstance(output, bytes):
            self._sink.write(output)
            return
        at = 0
        while data := output.read(at, at + PIECE):
            self._sink.write(data)
            at += len(data)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


def _progress(run: ConsoleRun, total: int) -> Callable[[JobSummary], None]:
    if not run.shows_progress:
        return lambda summary: None
    bar = make_bar(run.command, total, 0.0, unit=" jobs", scale=False)

    def progress(summary: JobSummary) -> None:
        if kept := summary.kept - (bar.initial or 0):
            bar.initial, bar.total = bar.initial + kept, total  # not counted in the rate
        if summary.failed:
            bar.set_postfix_str(f"{summary.failed} failed", refresh=False)
        bar.n = summary.ended
        bar.refresh()

    return progress


def _report(run: ConsoleRun, summary: JobSummary, total: int) -> None:
    run.samples, run.bytes = summary.samples, summary.bytes
    names = ("done", "kept", "failed", "cancelled", "retried")
    counts = {name: getattr(summary, name) for name in names}
    run.facts["jobs"] = {"total": total, **counts}
    run.facts["failures"] = [_facts(each) for each in summary.failures]
    said = [f"{count} {name}" for name, count in counts.items() if count]
    run.extra = f", {total} {'job' if total == 1 else 'jobs'}" + (f" ({', '.join(said)})" if said else "")


def _facts(failure: JobFailure) -> dict[str, Any]:
    job, outcome = failure
    facts = {"value": public_name(job.value.text), "command": job.shown(), "status": outcome.status}
    facts |= {"attempts": outcome.attempt, "seconds": round(outcome.seconds, 3)}
    return {**facts, "host": outcome.host, "stderr": outcome.tail}


def _print_failures(run: ConsoleRun, summary: JobSummary) -> None:
    if not summary.failures:
        return
    rows = [("failed", "how", "attempts", "seconds", "to repeat it")]
    for job, outcome in summary.failures:
        value = printable(public_name(job.value.text))
        rows.append((value, outcome.words(), str(outcome.attempt), f"{outcome.seconds:.2f}", job.shown()))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for *cells, command in rows:
        say("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), command]))
    if summary.failed > len(summary.failures):
        say(f"and {summary.failed - len(summary.failures)} more, which the journal lists")


def _left(summary: JobSummary, total: int) -> str:
    left = total - summary.ended
    return f", {left} {'was' if left == 1 else 'were'} not done" if left else ""
