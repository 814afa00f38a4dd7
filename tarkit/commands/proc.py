"""tarkit proc: run a command, a function or a program over samples, in parallel and in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.errors import Usage, show, spell
from tarkit.joining.options import JoinOptions, TableInputOptions
from tarkit.options import Options, row
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output, archive_output
from tarkit.proc.function import CallFunction
from tarkit.proc.program import RunProgram
from tarkit.proc.shell import RunCommand
from tarkit.proc.step import SampleWork
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit proc -p 2 -c 'gm mogrify -resize 256 sample.jpg' a.tar -o b.tar",
    "tarkit proc --map f.py:keep --retries 2 --rejects bad.tar a.tar -o b.tar",
    "tarkit proc --worker 'python3 filter.py' a.tar -o b.tar",
)
COST = (
    "One pass. A command costs the start of a shell and a directory for each sample, or --batch: in /dev/shm while "
    "samples are small, unless --tmpdir or $TMPDIR is given. --map and --worker start once. Memory grows with -p.\f "
    "With --batch it grows by 16 MiB of samples, and as much of results, for each of -p. A sample of up "
    "to 1 MiB is in /dev/shm while half of that is free, at least 2 GiB; a command that leaves less than 1 GiB free "
    "there, with any of its files, is ended, and with it the run. Some samples for each "
    "of -p are processed at a time, those of a stream in memory, or in temporary space from 1 MiB on; files over "
    "64 KiB are copied, never held; but --map holds what it works on, and up to 16 results, however large they are."
)


def _rejects(word: str | None) -> Output | None:
    return None if word is None else archive_output(word, None)


class ProcOptions(Options):
    """What `proc` runs: one of these. In Python they are the methods `proc`, `map` and `worker` of a dataset."""

    command: str | None = row(
        "Command", "-c", "--command", metavar="COMMAND", help="Command to run over the files of each sample."
    )
    multi: str | None = row(
        "Command",
        "-m",
        "--multi",
        "--multicommand",
        metavar="COMMAND",
        help="Multi: it makes many samples, sample-000000.jpg ...",
    )
    map: str | None = row(
        "Command",
        "--map",
        metavar="MODULE:FUNC",
        role="function",
        help="Call a Python function, of a module or FILE.py.",
    )
    worker: str | None = row(
        "Command",
        "--worker",
        metavar="COMMAND",
        help="A program that reads tar and writes tar.",
        more="It starts once and gets many samples.",
    )
    keep_dir: bool = RunCommand.rows["keep_dir"]  # type: ignore[assignment]

    def check(self) -> None:
        """Raise Usage unless there is one thing to run."""
        names = [name for name in ("command", "multi", "map", "worker") if getattr(self, name) is not None]
        if len(names) != 1:
            raise Usage(
                f"{' and '.join(map(spell, names))} exclude each other" if names else "nothing to run",
                "give one of -c COMMAND, -m COMMAND, --map MODULE:FUNCTION and --worker COMMAND",
            )
        [self.name] = names

    def step(self, options: Mapping[str, Any]) -> SampleWork:
        """Return the step. Raises Usage for options that it does not have.

        Args:
            options: those of `CallFunction`; other steps have those of `SampleWork` alone.
        """
        name, command, common = self.name, getattr(self, self.name), {each: options[each] for each in SampleWork.rows}
        for each in CallFunction.rows:
            if each not in common and options[each] and name != "map" and (name, each) != ("command", "batch"):
                raise Usage(f"{spell(each)} cannot be used with {spell(name)}")
        if self.keep_dir and name not in ("command", "multi"):
            raise Usage(f"{spell('keep_dir')} cannot be used with {spell(name)}")
        if name == "worker":
            return RunProgram(command=command, **common)
        if name == "map":
            return CallFunction(function=command, **options)
        batch = options["batch"]
        return RunCommand(command=command, multi=name == "multi", keep_dir=self.keep_dir, batch=batch, **common)


@click.command(cls=MappedCommand, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.output
@shared.rows(ProcOptions, "program")
@shared.rows(CallFunction, "work", mtime=shared.parse_mtime, rejects=_rejects)
@shared.join
@shared.tables
@choice(count=shared.first("--count"), fields=shared.fields)
def proc(
    inputs: list[Location],
    output: Output,
    choice: SampleChoice,
    joins: JoinOptions,
    tables: TableInputOptions,
    program: partial[ProcOptions],
    work: partial[CallFunction],
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

    With --batch N, COMMAND runs once for N samples, or fewer of 8 MiB together. Their files are sample-000000.*,
    sample-000001.* in the order of the input, and none of the three variables is set. Samples whose files are gone are
    dropped; any other file that is left is a failure. A failure of a batch is that of one of its samples: COMMAND runs
    again over halves of the batch, until the sample that fails is alone. So it runs up to 2 log2(N) times more for one
    that fails, 14 times for N = 100, and all results are those without --batch. N samples have N times the --timeout.
    What COMMAND prints is printed before the first sample of the batch.

    --map calls a function with a dict: the fields as bytes, the key as __key__. It returns a dict, several, or None for
    no sample; with --batch a list, for a list. --decode passes values by the names of fields (txt, cls, json, npy, jpg
    ...), and encodes what was changed. --worker starts a program that reads samples as a tar stream and writes tar: its
    results have the keys of their samples, in their order; a sample without a result is dropped.

    --rejects collects failed samples. Once the command is repaired, run it over them, with --drop __error__.json, and
    add the results with cat or sort.
    """
    step = program().step(work.keywords)
    output.check_time(step.mtime)
    run = current()
    data = choice.of(tables.applied(inputs, joins), joins)
    data = tables.with_fields(data, joins).then(step).change(choice.fields)
    write_archive(data, output, run)
    facts = run.facts
    run.extra = f", {facts['done']} done, {facts['left_out']} skipped, {facts['failed']} failed"
    run.extra += f", {facts['removed']} removed" if facts["removed"] else ""
    if slowest := facts.get("slowest"):
        run.extra += f", slowest {show(slowest['key'])} with {slowest['seconds']:.2f} s"
    run.finish()
