"""tarkit extract: unpack samples into a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import click

from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import Run, current
from tarkit.cli.output import status_of, total_size
from tarkit.errors import TarkitError, Usage, show
from tarkit.extraction.extraction import Extraction
from tarkit.extraction.folder import OutputDirectory
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples.dataset import DatasetReader, open_source
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.shards.template import refuse_braces
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit extract a.tar -C out/",
    "tarkit extract 'train-{000..099}.tar' -C some/ --sample 0.01 --seed 1",
    "tarkit extract shards/ -C pictures/ -f jpg --match '^cat/'",
)
COST = (
    "Two passes over plain archives, the first over their headers alone, so that what is wrong shows before anything "
    "is written; one over streams and compressed ones. Memory: about 100 bytes for each entry; contents are not held."
)


@dataclass
class ExtractOptions:
    """Which samples, which of their fields, where to, and how."""

    folder: str
    select: Select
    fields: Fields
    shard_slice: Slice | None = None
    force: bool = False
    mtime: str = "source"


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@option(
    "Output",
    "-C",
    "--directory",
    "folder",
    metavar="DIR",
    required=True,
    help="Directory, made if missing.  [required]",
)
@option("Output", "--force", is_flag=True, help="Replace existing files.")
@option(
    "Output",
    "--mtime",
    metavar="WHEN",
    default="source",
    help="Times: source, now or @SECONDS.  [default: source]",
)
@options.shard_slice
@options.select
@options.count
@options.fields
@options.problems
def extract(
    inputs: list[Location],
    folder: str,
    force: bool,
    mtime: str,
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    fields: Fields,
    policy: Policy,
) -> None:
    """Unpack samples into a directory, and nowhere else.

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    Each entry becomes the file DIR/NAME, which appears when it is complete. Existing files are kept: one is an error,
    unless --force replaces it. Unsafe names are errors [unsafe-name].

    \f
    A name is unsafe if it is absolute or has a '..'; so are links that lead out of DIR, or may, devices and FIFOs.
    Nothing is written through a link. Two entries of one name are an error.

    Files get the permissions of their entries, restricted by the umask, and are readable and writable for you; they are
    never setuid. Owners are not restored.
    """
    select.count = count
    chosen = ExtractOptions(folder, select, fields, shard_slice, force, mtime)
    run_extract(current(), inputs, chosen, policy)


def run_extract(run: Run, locations: list[Location], chosen: ExtractOptions, policy: Policy) -> None:
    """Write the samples of all inputs that were chosen to files."""
    if "unsafe-name" in policy.allowed:
        if len(policy.allowed) < len(PROBLEMS):
            raise Usage("--allow unsafe-name: what is unsafe is never extracted", "--skip unsafe-name leaves it out")
        policy.allowed -= {"unsafe-name"}
    policy.strict = frozenset(("unsafe-name",))
    given = options.parse_mtime(chosen.mtime)
    time = None if chosen.mtime == "now" else -1 if given is None else given * 10**9
    if not chosen.folder:
        raise Usage("the name of the folder is empty", "is a shell variable unset?")
    if not os.path.exists(chosen.folder):
        refuse_braces(chosen.folder, "make the directory first if that is its name")
    elif not os.path.isdir(chosen.folder):
        raise Usage(f"-C {show(chosen.folder)}: it is a file, not a folder")
    texts = [location.text for location in locations if location.kind == "path"]
    taken = [status_of(path) for path in (*texts, *run.places)]  # inputs, and lists of inputs and of keys
    inputs = {(status.st_dev, status.st_ino) for status in [os.fstat(0), *taken] if status is not None}
    with OutputDirectory(chosen.folder, chosen.force, inputs) as folder:
        extraction = Extraction(folder, policy, time)
        if run.report is not None:
            below = os.path.relpath(os.path.realpath(run.report), os.path.realpath(chosen.folder))
            extraction.reserved = os.fsencode(below)
        if all(map(_readable_twice, locations)):
            extraction.policy = Policy(policy.allowed, policy.skipped, policy.maxerr)
            extraction.policy.strict = policy.strict
            for sample in _samples(run, locations, chosen, extraction.policy, quiet=True):
                extraction.plan(sample)
            if extraction.existing and not chosen.force:
                raise _in_the_way(folder, extraction)
            extraction.policy = policy
        extraction.begin()
        samples = _samples(run, locations, chosen, policy)
        for sample in run.watch(samples, lambda: extraction.written, total_size(locations)):
            extraction.write(sample)
    options.report_keys(run, chosen.select)
    run.bytes = extraction.written
    run.facts["files"] = extraction.files
    if not run.samples and not (chosen.select.all and chosen.fields.all):
        run.warn("no sample was chosen")
    run.finish()


def _samples(
    run: Run, locations: list[Location], chosen: ExtractOptions, policy: Policy, quiet: bool = False
) -> Iterator[TarSample]:
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        shard_slice=chosen.shard_slice,
        tmpdir=run.tmpdir or os.environ.get("TMPDIR") or (chosen.folder if os.path.isdir(chosen.folder) else None),
        announce=(lambda name: None) if quiet else lambda name: run.note(f"reading {name}"),
    )
    yield from chosen.fields(chosen.select(iter(inputs)), policy)
    if not quiet:
        run.dropped = inputs.dropped


def _readable_twice(location: Location) -> bool:
    """Whether an input is a plain file; opening another one would take something of it away."""
    if location.kind not in ("path", "stdin"):
        return False
    if location.kind == "path" and not os.path.isfile(location.text):
        return False
    if location.kind == "stdin" and not os.path.isfile("/dev/stdin"):
        return False
    source = open_source(location)
    source.close()
    return source.seekable


def _in_the_way(folder: OutputDirectory, extraction: Extraction) -> TarkitError:
    first = os.fsdecode(os.path.join(folder.path, extraction.first))
    more = f" and {extraction.existing - 1} more" if extraction.existing > 1 else ""
    return TarkitError(
        f"{first}{more}: there are files of these names", "--force replaces them, -C names another folder"
    )
