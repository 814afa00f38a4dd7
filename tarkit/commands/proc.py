"""tarkit proc: run a command, a function or a program over samples, in parallel and in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import click

from tarkit.api.output import Output, open_output, total_size
from tarkit.cli import options
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.proc_options import Work, parse_work
from tarkit.cli.proc_report import relay, summarize
from tarkit.errors import Usage
from tarkit.problems import ONE_ARCHIVE, Policy
from tarkit.proc.engine import Finished, Job, RunOptions
from tarkit.proc.policy import ErrorLimit, FailurePolicy, OnError, merge_rejects, parse_limit
from tarkit.proc.run import SampleRun, number_jobs, prepare_jobs
from tarkit.proc.text import Mode, text_samples
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location, expand_inputs
from tarkit.tar.writer import EntryWriter

EXAMPLES = (
    "tarkit proc -p 2 -c 'gm mogrify -resize 256 sample.jpg' a.tar -o b.tar",
    "tarkit proc --map f.py:keep --retries 2 --rejects bad.tar a.tar -o b.tar",
    "tarkit proc --map f.py:keep --redo bad.tar b.tar -o whole.tar",
)
COST = (
    "One pass. A command costs the start of a shell and a directory for each sample, in --tmpdir: a directory in "
    "memory such as /dev/shm is fastest. --map and --worker start once. Memory grows with -p.\f Some samples for each "
    "of -p are processed at a time, those of a stream in memory, or in temporary space from 1 MiB on; files over "
    "64 KiB are copied, never held; but --map holds what it works on, and up to 16 results, however large they are."
)


@dataclass
class Failing:
    """Options about samples that fail."""

    on_error: OnError = "error"
    limit: ErrorLimit | None = None
    rejects: Output | None = None


def _failing(on_error: OnError | None, max_errors: str | None, rejects: str | None) -> Failing:
    limit = None if max_errors is None else parse_limit(max_errors)
    goes_on = limit is not None or rejects is not None
    word: OnError = on_error or ("skip" if goes_on else "error")
    if word == "error" and goes_on:
        raise Usage("--on-error error cannot be used with --max-errors or --rejects: it ends at the first failure")
    output = None if rejects is None else open_output(rejects, None)
    if output is not None and output.location.kind == "stdout":
        raise Usage("--rejects needs a file: stdout is the output")
    return Failing(word, limit, output)


failing = options.group(
    "failing",
    _failing,
    choice(
        "Failures",
        "--on-error",
        choices="error|skip|keep",
        default=None,
        aliases={"abort": "error", "exclude": "skip", "ignore": "keep"},  # tarproc's words
        help="If a sample fails.  [default: error]",
        more="error: end the run. skip: leave it out. keep: write it as it was.",
    ),
    option("Failures", "--max-errors", metavar="N|P%", help="End after more failures than this; skip others."),
    option(
        "Failures",
        "--rejects",
        metavar="OUT",
        help="Write failed samples to this archive; skip them.",
        more="Each gets a field __error__.json.",
    ),
)


@dataclass
class ProcOptions:
    """The options of `proc`."""

    select: Select
    fields: Fields
    work: Work
    parallel: int = 1
    unordered: bool = False
    failing: Failing = field(default_factory=Failing)
    retries: int = 0
    redo: list[Location] | None = None
    mode: Mode = "tar"
    shard_slice: Slice | None = None


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@choice(
    "Input",
    "--mode",
    choices="tar|keys|lines|pages",
    help="For text: one sample for each.",
    more="tar: inputs are archives. keys: they are text, and each line is the key of a sample without fields. lines, "
    "pages: each line or page is the field txt of a sample.",
)
@options.output
@options.mtime
@option("Command", "-c", "--command", metavar="COMMAND", help="Command to run over the files of each sample.")
@option(
    "Command",
    "-m",
    "--multi",
    "--multicommand",
    metavar="COMMAND",
    help="Multi: it makes many samples, sample-000000.jpg ...",
)
@option("Command", "--script", metavar="FILE", help="Run FILE in place of a command.")
@option("Command", "--map", "map_", metavar="MODULE:FUNC", help="Call a Python function, of a module or FILE.py.")
@option(
    "Command",
    "--worker",
    metavar="COMMAND",
    help="A program that reads tar and writes tar.",
    more="It starts once and gets many samples.",
)
@option(
    "Command",
    "-p",
    "--parallel",
    type=click.IntRange(0),
    default=1,
    metavar="N",
    help="N samples at a time; 0: one per CPU.",
)
@option("Command", "--unordered", is_flag=True, help="Write results as soon as they are ready.")
@option(
    "Command", "--timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="A sample fails after S seconds."
)
@option("With -c, -m or --script", "-S", "--subdirs", is_flag=True, help="Subdirs with files sample.* are samples.")
@option("With -c, -m or --script", "--shell", metavar="SHELL", help="Shell to run it.  [default: bash]")
@option(
    "With -c, -m or --script",
    "--base",
    default="sample",
    metavar="NAME",
    help="Files are NAME.FIELD.  [default: sample]",
)
@option("With -c, -m or --script", "--add-log", metavar="FIELD", help="Write its messages to FIELD, not to stderr.")
@option("With -c, -m or --script", "--keep-dir", is_flag=True, help="Keep all directories, and print where.")
@option("With --map", "--decode", is_flag=True, help="Pass values, not bytes: text, numbers, JSON, arrays.")
@option("With --map", "--allow-pickle", is_flag=True, help="Decode pickles too, which can run any code.")
@option("With --map", "--init", metavar="MODULE:FUNC", help="Call this first, once in each process.")
@option("With --map", "--batch", type=click.IntRange(1), metavar="N", help="Pass lists of N samples.")
@failing
@option(
    "Failures",
    "--retries",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Try a sample that failed again, up to N times.",
)
@option(
    "Failures",
    "--redo",
    metavar="REJECTS",
    help="Run over what --rejects wrote, see Examples.",
    more="INPUT is the output of the first run, which gets the results.",
)
@options.shard_slice
@options.select
@option("Select", "--count", type=click.IntRange(0), metavar="N", help="Only the first N of those.")
@options.fields
@options.problems
def proc(
    inputs: list[Location],
    output: Output,
    select: Select,
    fields: Fields,
    count: int | None,
    policy: Policy,
    shard_slice: Slice | None,
    parallel: int,
    unordered: bool,
    retries: int,
    mode: Mode,
    failing: Failing,
    redo: str | None,
    **work: Any,
) -> None:
    """Run a command, a function or a program over samples.

    COMMAND runs in a directory of its own, where the fields of a sample are files: sample.jpg, sample.json. The files
    sample.* that it leaves there are the new sample; if there are none, the sample is dropped. The key is in
    sample.__key__. --map calls a Python function, --worker starts a program that reads and writes tar.

    Fields are chosen (-f, --drop ...) after the command. The output is the same for every -p.
    \f
    Fields keep their order, new ones come last. A changed sample.__key__ renames the sample. Other files are dropped;
    relative paths start in that directory, except for --script and --map. With -m the files sample-000000.*,
    sample-000001.* are samples KEY/000000, KEY/000001, unless sample-000000.__key__ says otherwise; with -S, each
    directory that has sample.* is one. Unchanged fields keep their headers. Entries without key go with the first
    sample.

    COMMAND has TARKIT_KEY, TARKIT_INDEX and TARKIT_SHARD in its environment. Its stdin is empty. Its messages are
    printed to stderr when it has ended, sample by sample, with -v with the key before each line. Processes that it
    leaves running in its process group are killed. A status other than 0 is a failure; so are links, directories and
    FIFOs called sample.*.

    --map calls a function with a dict: the fields as bytes, the key as __key__. It returns a dict, several, or None for
    no sample; with --batch a list, for a list. --decode passes values by the names of fields (txt, cls, json, npy, jpg
    ...), and encodes what was changed. --worker starts a program that reads samples as a tar stream and writes tar: its
    results have the keys of their samples, in their order; a sample without a result is dropped.

    --mode lines makes a sample of each line, --mode pages of each page, up to a form feed: the field is txt, the key a
    running number. With --mode keys each line is the key of a sample without fields. --rejects collects failed samples.
    --redo runs the command over them, once it is repaired, and inserts the results into INPUT, the output of the first
    run.
    """
    select.count = count
    chosen = ProcOptions(
        select,
        fields,
        parse_work(work),
        parallel or os.cpu_count() or 1,
        unordered,
        failing,
        retries,
        None if redo is None else expand_inputs((redo,)),
        mode,
        shard_slice,
    )
    run_proc(current(), inputs, output, chosen, policy)


def run_proc(run: ConsoleRun, locations: list[Location], output: Output, chosen: ProcOptions, policy: Policy) -> None:
    """Write the results of all selected samples to one archive."""
    policy.strict |= ONE_ARCHIVE
    work, failing = chosen.work, chosen.failing
    output.check_time(work.mtime)
    tmpdir = run.scratch(output.directory)
    inputs = DatasetReader(
        locations,
        policy,
        shard_slice=chosen.shard_slice,
        tmpdir=tmpdir,
        announce=lambda name: run.note(f"reading {name}"),
    )
    jobs = _jobs(inputs, chosen, policy, tmpdir)
    how = RunOptions(chosen.parallel, chosen.retries, not chosen.unordered, failing.on_error == "error")
    with ExitStack() as stack:
        runner = stack.enter_context(work.runner(how, tmpdir, run.tell))  # errors come before any output
        writer = stack.enter_context(EntryWriter(output.open([*locations, *(chosen.redo or [])])))
        rejects = _rejects(run, locations, chosen, stack)
        results = SampleRun(
            runner,
            policy,
            FailurePolicy(failing.on_error, failing.limit, rejects, run.warn, run.verbose),
            fields=chosen.fields,
            apart=chosen.redo is not None,
            distinct=(len(locations) > 1 and chosen.mode == "tar") or chosen.fields.rekey is not None,
            tmpdir=tmpdir,
            log=lambda key, log: relay(run, key, log),
        )
        for sample in results(jobs, lambda finished: _watched(finished, run, locations, chosen, results)):
            sample.write(writer)
        options.report_keys(run, chosen.select)
        writer.finish()
    run.samples, run.bytes, run.dropped = results.written, writer.position, inputs.dropped
    summarize(run, results, work.kind)
    run.finish()


def _watched(
    finished: Iterator[Finished], run: ConsoleRun, locations: list[Location], chosen: ProcOptions, results: SampleRun
) -> Iterator[Finished]:
    """Draw a progress bar while jobs finish, if one is wanted."""
    if not run.shows_progress:
        return finished
    whole = chosen.select.all and chosen.shard_slice is None and chosen.mode == "tar" and chosen.redo is None
    total = total_size(locations) if whole else None
    return run.draw(finished, lambda: results.position, lambda: results.failures.done, total)


def _jobs(inputs: DatasetReader, chosen: ProcOptions, policy: Policy, tmpdir: str | None) -> Iterator[Job]:
    if chosen.redo is not None:
        if not chosen.select.all or chosen.shard_slice is not None or chosen.mode != "tar":
            raise Usage("--redo reads all samples of its inputs: it excludes --mode and options that select samples")
        if chosen.fields.rekey is not None:
            raise Usage("--rekey cannot be used with --redo, which finds the places of samples by their keys")
        rejects = DatasetReader(chosen.redo, policy, tmpdir=tmpdir)
        return prepare_jobs(merge_rejects(iter(inputs), iter(rejects)), policy, tmpdir)
    mode, cut = chosen.mode, chosen.shard_slice
    samples = iter(inputs) if mode == "tar" else text_samples(inputs.locations, mode, cut)
    return number_jobs(chosen.select(samples), policy, tmpdir)


def _rejects(run: ConsoleRun, locations: list[Location], chosen: ProcOptions, stack: ExitStack) -> EntryWriter | None:
    for location in chosen.redo or ():
        if location.kind == "path":
            run.reserve(location.text, "the input of --redo", written=False)
    rejects = chosen.failing.rejects
    if rejects is None:
        return None
    if rejects.location.kind == "path":
        run.reserve(rejects.location.text, "the rejects")
    return stack.enter_context(EntryWriter(rejects.open([*locations, *(chosen.redo or [])])))
