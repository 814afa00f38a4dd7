"""tarkit extract: unpack samples into a directory."""

from __future__ import annotations

import click

from tarkit.cli import options
from tarkit.cli.command import option
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.dataset import for_run
from tarkit.extraction.extract import extract as unpack
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
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


@click.command(cls=MappedCommand, maps="directory", examples=EXAMPLES, cost=COST)
@options.inputs
@option("Output", "-C", "--directory", metavar="DIR", required=True, help="Directory, made if missing.  [required]")
@option("Output", "--force", is_flag=True, help="Replace existing files.")
@option(
    "Output",
    "--mtime",
    metavar="WHEN",
    default="source",
    help="File times: source, now or @SECONDS.  [default: source]",
)
@options.shard_slice
@options.select
@options.count
@options.fields
@options.problems
def extract(
    inputs: list[Location],
    directory: str,
    force: bool,
    mtime: str,
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    fields: Fields,
    policy: Policy,
) -> None:
    """Unpack samples into a directory, and nowhere else.

    Each entry becomes the file DIR/NAME, which appears when it is complete. Existing files are kept: one is an error,
    unless --force replaces it. Unsafe names are errors [unsafe-name].

    \f
    A name is unsafe if it is absolute or has a '..'; so are links that lead out of DIR, or may, devices and FIFOs.
    Nothing is written through a link. Two entries of one name are an error.

    Files get the permissions of their entries, restricted by the umask, and are readable and writable for you; they are
    never setuid. Owners are not restored.
    """
    select.count = count
    run = current()
    given = options.parse_mtime(mtime)
    time = None if mtime == "now" else -1 if given is None else given * 10**9
    data = for_run(run, inputs, shard_slice).filter_samples(select).change(fields)
    unpack(data, directory, run, force=force, time=time, reserved=[*run.places], report=run.report)
    if not run.samples and not (select.all and fields.all):
        run.warn("no sample selected")
    run.finish()
