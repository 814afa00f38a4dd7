"""tarkit proc: run a command, a function or a program over samples, in parallel and in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from tarkit.cli import options as shared
from tarkit.cli.command import declare, option
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.dataset import for_run
from tarkit.errors import Usage, show, spell
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output, archive_output
from tarkit.problems import Policy
from tarkit.proc.function import CallFunction
from tarkit.proc.program import RunProgram
from tarkit.proc.shell import RunCommand
from tarkit.proc.step import SampleWork
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
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


def _rejects(word: str | None) -> Output | None:
    return None if word is None else archive_output(word, None)


@click.command(cls=MappedCommand, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.output
@option("Command", "-c", "--command", metavar="COMMAND", help="Command to run over the files of each sample.")
@option(
    "Command",
    "-m",
    "--multi",
    "--multicommand",
    metavar="COMMAND",
    help="Multi: it makes many samples, sample-000000.jpg ...",
)
@option(
    "Command",
    "--map",
    "map_",
    metavar="MODULE:FUNC",
    role="function",
    help="Call a Python function, of a module or FILE.py.",
)
@option(
    "Command",
    "--worker",
    metavar="COMMAND",
    help="A program that reads tar and writes tar.",
    more="It starts once and gets many samples.",
)
@declare(RunCommand.rows["keep_dir"], "keep_dir")
@shared.rows(CallFunction, "work", mtime=shared.parse_mtime, rejects=_rejects)
@shared.shard_slice
@shared.select
@option("Select", "--count", at_least=0, metavar="N", help="Only the first N of those.")
@shared.fields
@shared.problems
def proc(
    inputs: list[Location],
    output: Output,
    select: Select,
    fields: Fields,
    count: int | None,
    policy: Policy,
    shard_slice: Slice | None,
    work: partial[CallFunction],
    **words: Any,
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
    step = make_step(work.keywords, **words)
    output.check_time(step.mtime)
    run = current()
    data = for_run(run, inputs, shard_slice).filter_samples(select).then(step).change(fields)
    write_archive(data, output, run)
    facts = run.facts
    run.extra = f", {facts['done']} done, {facts['left_out']} skipped, {facts['failed']} failed"
    run.extra += f", {facts['removed']} removed" if facts["removed"] else ""
    if slowest := facts.get("slowest"):
        run.extra += f", slowest {show(slowest['key'])} with {slowest['seconds']:.2f} s"
    run.finish()


def make_step(options: Mapping[str, Any], *, keep_dir: bool, **words: str | None) -> SampleWork:
    """Return the step that the options ask for. Raises Usage for options that exclude each other.

    Args:
        options: those of `CallFunction`; other steps have those of `SampleWork` alone.
        keep_dir: an option of `RunCommand`.
        words: command, multi, map_ and worker, of which one is given.
    """
    names = {"command": "-c", "multi": "-m", "map_": "--map", "worker": "--worker"}
    chosen = [name for name in names if words[name] is not None]
    if len(chosen) != 1:
        raise Usage(
            f"{' and '.join(names[name] for name in chosen)} exclude each other" if chosen else "nothing to run",
            "give one of -c COMMAND, -m COMMAND, --map MODULE:FUNCTION and --worker COMMAND",
        )
    [name] = chosen
    command, common = words[name] or "", {each: options[each] for each in SampleWork.rows}
    for each in CallFunction.rows:
        if each not in common and options[each] and name != "map_":
            raise Usage(f"{spell(each)} cannot be used with {names[name]}")
    if keep_dir and name not in ("command", "multi"):
        raise Usage(f"--keep-dir cannot be used with {names[name]}")
    if name == "worker":
        return RunProgram(command=command, **common)
    if name == "map_":
        return CallFunction(function=command, **options)
    return RunCommand(command=command, multi=name == "multi", keep_dir=keep_dir, **common)
