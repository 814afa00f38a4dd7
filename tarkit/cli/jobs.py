"""Commands that run jobs: their options, the job of a command line, and a run with its messages and its bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.cli.command import WHOLE_RUN, Command, common, common_options, given, given_words
from tarkit.cli.console import ConsoleRun, JsonLines, current, end_bar, make_bar
from tarkit.cli.messages import bars_hidden, say
from tarkit.errors import TarkitError, Usage, printable, spell
from tarkit.jobs.options import JobOptions
from tarkit.sizes import plural
from tarkit.stores.schemes import public_name
from tarkit.streams.sink import Sink, open_sink

if TYPE_CHECKING:
    from tarkit.cli.emit import ValueWords
    from tarkit.cli.lines import TarkitStep
    from tarkit.jobs.engine import JobFailure, JobSummary
    from tarkit.jobs.job import JobOutcome, JobStdout, ValueJob
    from tarkit.jobs.journal import JobJournal
    from tarkit.jobs.values import Value

CLUSTER_OPTIONS = ("dask", "dask_resources")  # what a cluster can run: jobs, and tasks of other commands
PIECE = 1 << 20  # bytes of a job's stdout that are passed on at a time


def given_options(ctx: click.Context) -> JobOptions:
    """Return the options that the command line has. Raises Usage for those that do not go together."""
    return JobOptions(**given(JobOptions, ctx))


class TaskCommand(Command):
    """A command that may have a task for each input, on a cluster, and makes no jobs."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += common(JobOptions, True, CLUSTER_OPTIONS)


def run_values(
    ctx: click.Context,
    options: JobOptions,
    texts: Sequence[str],
    job_of: Callable[[Value], ValueJob],
    words: Callable[[], ValueWords],
    as_json: bool = False,
) -> None:
    """Run the job of each value, or print a script that does.

    Args:
        job_of: returns the job of a value.
        words: returns the words that name the values.
        as_json: print an object for each attempt. What jobs print goes to stderr.
    """
    from tarkit.jobs.values import make_values

    if options.emit is not None:
        from tarkit.cli.emit import emit

        if as_json:
            raise Usage(f"{spell('emit', options.emit)} does not go with --json", "it prints a script")

        own = given_words(ctx, (*common_options(), *common(JobOptions)), (*WHOLE_RUN, "emit", "journal"))
        emit(ctx, options, words(), own, map(job_of, make_values(texts)))
        return
    part = options.part()
    lines = JsonLines(current()) if as_json else None
    _run_all(map(job_of, make_values(texts, part)), len(range(len(texts))[part]), options, lines)


def make_job(
    value: Value,
    lines: Iterable[Iterable[str]],
    steps: Sequence[TarkitStep | None],
    others: Iterable[str] = (),
    **facts: Any,
) -> ValueJob:
    """Return the job of a value.

    Args:
        lines: its command lines.
        steps: the same as they are parsed; None for that of another program.
        others: files that other programs may write.
        facts: more attributes of the job.
    """
    from tarkit.cli.lines import known_outputs
    from tarkit.cli.reads import states_of
    from tarkit.jobs.job import ValueJob

    ours, last = [step for step in steps if step is not None], steps[-1]
    return ValueJob(
        value,
        tuple(map(tuple, lines)),
        inputs=tuple(name for step in ours for name in step.inputs()),
        outputs=(*known_outputs(word for step in ours for word in step.outputs()), *others),
        reads=partial(states_of, ours),
        storage=ours[-1].storage if ours else None,
        series=() if last is None else last.series(),
        **facts,
    )


def _run_all(jobs: Iterable[ValueJob], total: int, options: JobOptions, lines: JsonLines | None) -> None:
    """Run jobs and say what became of them. Raises TarkitError when one failed."""
    run = current()
    journal = options.open_journal(run)
    try:
        if options.dry_run:
            if lines is None:
                run.take_stdout("the list of jobs")
            for job in jobs:
                if journal is not None and journal.has_done(job):
                    continue
                if lines is not None:
                    lines.write(type="job", value=public_name(job.value.text), command=job.shown())
                else:
                    click.echo(os.fsencode(job.shown()))
            return
        summary = _run(run, jobs, total, options, journal, lines)
    finally:
        if journal is not None:
            journal.close()
    _report(run, summary, total)
    if lines is not None:
        lines.write(type="summary", jobs=run.facts["jobs"], samples=run.samples, bytes=run.bytes)
        lines.close()
    if summary.unknown:
        one = summary.unknown == 1
        words = "was done again: what it reads or writes" if one else "were done again: what they read or write"
        run.tell(f"{summary.unknown} of the jobs that {options.journal} has as done {words} cannot be compared")
    _print_failures(run, summary)
    run.finish()
    if summary.failed:
        later = (
            "--resume does what is left" if options.journal else "with --journal FILE, --resume would do what is left"
        )
        raise TarkitError(f"{summary.failed} of {plural(total, 'job')} failed{_left(summary, total)}", later)
    if summary.has_no_row and options.shard_index is None:  # a part may have no row
        words = f"{spell('join')}: no sample of {plural(total, 'job')} has a row of the table"
        raise TarkitError(
            words, f"{spell('join_by')} says what cells are compared with: key, stem or a value of samples"
        )


def _run(
    run: ConsoleRun,
    jobs: Iterable[ValueJob],
    total: int,
    options: JobOptions,
    journal: JobJournal | None,
    lines: JsonLines | None,
) -> JobSummary:
    from tarkit.cli.app import run_in_copy
    from tarkit.jobs.engine import run_jobs
    from tarkit.jobs.journal import attempt_record

    def ended(job: ValueJob, outcome: JobOutcome) -> None:
        if lines is not None:
            said = {"stderr": outcome.tail} if outcome.status else {}
            lines.write(type="job", **attempt_record(job, outcome), **said)

    output = _Stdout(run)
    executor = options.open_executor(total, _relay, run.scratch(None), run.warn, run_in_copy)
    with closing(executor), _progress(run, total) as progress:
        summary = run_jobs(
            jobs,
            executor,
            retries=options.retries,
            halt=options.halt,
            journal=journal,
            progress=progress,
            write_stdout=output.write,
            ended=ended,
        )
    output.close()
    return summary


def _relay(job: ValueJob, line: bytes) -> None:
    from tarkit.jobs.job import print_line

    with bars_hidden():
        print_line(job, line)


class _Stdout:
    """What jobs print, one after the other: on stdout, on stderr if stdout is for JSON."""

    def __init__(self, run: ConsoleRun) -> None:
        self._sink: Sink | None = None
        self._place = ("path", "/dev/stderr") if run.stdout_taken else ("stdout", "-")

    def write(self, output: JobStdout) -> None:
        if self._sink is None:
            self._sink = open_sink(*self._place)
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


@contextmanager
def _progress(run: ConsoleRun, total: int) -> Iterator[Callable[[JobSummary], None]]:
    """Return the function that shows how many jobs have ended."""
    if not run.shows_progress:
        yield lambda summary: None
        return
    bar = make_bar(run.command, total, 0.0, unit=" jobs", scale=False)

    def progress(summary: JobSummary) -> None:
        if kept := summary.kept - (bar.initial or 0):
            bar.initial, bar.total = bar.initial + kept, total  # not counted in the rate
        if summary.failed:
            bar.set_postfix_str(f"{summary.failed} failed", refresh=False)
        bar.n = summary.ended
        bar.refresh()

    try:
        yield progress
    finally:
        end_bar(bar)


def _report(run: ConsoleRun, summary: JobSummary, total: int) -> None:
    run.samples, run.bytes = summary.samples, summary.bytes
    names = ("done", "kept", "failed", "cancelled", "retried")
    counts = {name: getattr(summary, name) for name in names}
    run.facts["jobs"] = {"total": total, **counts}
    run.facts["failures"] = [_facts(each) for each in summary.failures]
    said = [f"{count} {name}" for name, count in counts.items() if count]
    run.jobs = plural(total, "job") + (f": {', '.join(said)}" if said else "")


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
    from tarkit.align import align

    for line in align(rows):
        say(line)
    if summary.failed > len(summary.failures):
        say(f"and {summary.failed - len(summary.failures)} more, which the journal lists")


def _left(summary: JobSummary, total: int) -> str:
    left = total - summary.ended
    return f", {left} {'was' if left == 1 else 'were'} not done" if left else ""
