"""tarkit proc: run a command, a function or a program over samples, in parallel and in order."""

from __future__ import annotations

from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.dataset import for_run
from tarkit.errors import Usage, show
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output, archive_output
from tarkit.problems import Policy
from tarkit.proc.map import CallFunction, RunCommand, RunProgram, SampleWork
from tarkit.proc.policy import OnError
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
from tarkit.sizes import LONGEST
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit proc -p 2 -c 'gm mogrify -resize 256 sample.jpg' a.tar -o b.tar",
    "tarkit proc --map f.py:keep --retries 2 --rejects bad.tar a.tar -o b.tar",
    "tarkit proc --worker 'python3 filter.py' a.tar -o b.tar",
)
COST = (
    "One pass. A command costs the start of a shell and a directory for each sample: in /dev/shm while samples are "
    "small, unless --tmpdir or $TMPDIR is given. --map and --worker start once. Memory grows with -p.\f A sample of up "
    "to 1 MiB is in /dev/shm while half of that is free, at least 2 GiB; a command that leaves less than 1 GiB free "
    "there, with any of its files, is ended, and with it the run. Some samples for each "
    "of -p are processed at a time, those of a stream in memory, or in temporary space from 1 MiB on; files over "
    "64 KiB are copied, never held; but --map holds what it works on, and up to 16 results, however large they are."
)


MAP_ONLY = ("decode", "allow_pickle", "init", "batch")


@click.command(cls=MappedCommand, also=("rejects",), examples=EXAMPLES, cost=COST)
@options.inputs
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
    "Command",
    "--timeout",
    type=click.FloatRange(0, LONGEST, min_open=True),
    metavar="S",
    help="A sample fails after S seconds.",
)
@option("With -c or -m", "--keep-dir", is_flag=True, help="Keep all directories, and print where.")
@option("With --map", "--decode", is_flag=True, help="Pass values, not bytes: text, numbers, JSON, arrays.")
@option("With --map", "--allow-pickle", is_flag=True, help="Decode pickles too, which can run any code.")
@option("With --map", "--init", metavar="MODULE:FUNC", help="Call this first, once in each process.")
@option("With --map", "--batch", type=click.IntRange(1), metavar="N", help="Pass lists of N samples.")
@choice(
    "Failures",
    "--on-error",
    choices=("error", "skip", "keep"),
    default=None,
    aliases={"abort": "error", "exclude": "skip", "ignore": "keep"},  # tarproc's words
    help="If a sample fails.  [default: error]",
    more="error: end the run. skip: leave it out. keep: write it as it was.",
)
@option("Failures", "--max-errors", metavar="N|P%", help="End after more failures than this; skip others.")
@option(
    "Failures",
    "--rejects",
    metavar="OUT",
    help="Write failed samples to this archive; skip them.",
    more="Each gets a field __error__.json.",
)
@option(
    "Failures",
    "--retries",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Try a sample that failed again, up to N times.",
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
    mtime: int | None,
    **work: Any,
) -> None:
    """Run a command, a function or a program over samples.

    COMMAND runs in a directory of its own, where the fields of a sample are files: sample.jpg, sample.json. The files
    sample.* that it leaves there are the new sample; if there are none, the sample is dropped. The key is in
    sample.__key__. --map calls a Python function, --worker starts a program that reads and writes tar.

    Fields are chosen (-f, --drop ...) after the command. The output is the same for every -p.
    \f
    Files have the case that the archive has: sample.JPG is not sample.jpg; the dict of --map finds JPG as sample["jpg"]
    too. Fields keep their order, new ones come last. A changed sample.__key__ renames the sample. Other files are
    dropped; relative paths start in that directory, except for --map. With -m the files sample-000000.*,
    sample-000001.* are samples KEY/000000, KEY/000001, unless sample-000000.__key__ says otherwise. Unchanged fields
    keep their headers. Entries without key go with the first sample.

    COMMAND has TARKIT_KEY, TARKIT_INDEX and TARKIT_SHARD in its environment. Its stdin is empty. Its messages are
    printed to stderr when it has ended, sample by sample, with -v with the key before each line. Processes that it
    leaves running in its process group are killed. A status other than 0 is a failure; so are links, directories and
    FIFOs called sample.*.

    --map calls a function with a dict: the fields as bytes, the key as __key__. It returns a dict, several, or None for
    no sample; with --batch a list, for a list. --decode passes values by the names of fields (txt, cls, json, npy, jpg
    ...), and encodes what was changed. --worker starts a program that reads samples as a tar stream and writes tar: its
    results have the keys of their samples, in their order; a sample without a result is dropped.

    --rejects collects failed samples. Once the command is repaired, run it over them, with --drop __error__.json, and
    add the results with cat or sort.
    """
    select.count = count
    step = make_step(mtime=mtime, **work)
    output.check_time(mtime)
    run = current()
    data = for_run(run, inputs, shard_slice).filter_samples(select).then(step).change(fields)
    write_archive(data, output, run)
    facts = run.facts
    run.extra = f", {facts['done']} done, {facts['left_out']} skipped, {facts['failed']} failed"
    run.extra += f", {facts['removed']} removed" if facts["removed"] else ""
    if slowest := facts.get("slowest"):
        run.extra += f", slowest {show(slowest['key'])} with {slowest['seconds']:.2f} s"
    run.finish()


def make_step(
    *,
    parallel: int,
    unordered: bool,
    retries: int,
    timeout: float | None,
    mtime: int | None,
    on_error: OnError | None,
    max_errors: str | None,
    rejects: str | None,
    **options: Any,
) -> SampleWork:
    """Return the step that the options ask for. Raises Usage for options that exclude each other."""
    common: dict[str, Any] = {"processes": parallel, "ordered": not unordered, "retries": retries, "timeout": timeout}
    common |= {"mtime": mtime, "on_error": on_error, "max_errors": max_errors}
    common["rejects"] = None if rejects is None else archive_output(rejects, None)
    named = {"-c": "command", "-m": "multi", "--map": "map_", "--worker": "worker"}
    chosen = [word for word, name in named.items() if options[name] is not None]
    if len(chosen) != 1:
        raise Usage(
            f"{' and '.join(chosen)} exclude each other" if chosen else "nothing to run",
            "give one of -c COMMAND, -m COMMAND, --map MODULE:FUNCTION and --worker COMMAND",
        )
    [word] = chosen
    only = {"keep_dir": ("-c", "-m"), **dict.fromkeys(MAP_ONLY, ("--map",))}
    for name, words in only.items():
        if options[name] and word not in words:
            raise Usage(f"--{name.replace('_', '-')} cannot be used with {word}")
    if word == "--worker":
        return RunProgram(command=options["worker"], **common)
    if word == "--map":
        return CallFunction(function=options["map_"], **{name: options[name] for name in MAP_ONLY}, **common)
    return RunCommand(command=options[named[word]], multi=word == "-m", keep_dir=options["keep_dir"], **common)
