"""tarkit cat: concatenate and filter."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import Run, current
from tarkit.cli.output import Output, total_size
from tarkit.problems import ONE_ARCHIVE, Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import buffer_shuffle, neighbours
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.tar.writer import EntryWriter

EXAMPLES = (
    "tarkit cat a.tar b.tar -o both.tar",
    "tarkit cat 'a-{000..099}.tar' --match '^cat/' -f 'jpg cls' -o b.tar.zst",
    "tarkit cat shards/ -s 1000 --seed 7 | tarkit split -c 500 -o 'm-%06d.tar'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data; "
    "--shuffle N holds N samples of a stream, large ones in temporary space, and -m N keeps N inputs open."
)


@dataclass
class CatOptions:
    """What `cat` is to do besides copying."""

    select: Select
    fields: Fields
    shard_slice: Slice | None = None
    mix: int = 1
    shuffle: int = 0
    ahead: int = 0
    log: int = 0


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.output
@options.shard_slice
@options.select
@options.count
@options.fields
@click.option("-m", "--mix", type=click.IntRange(1), default=1, metavar="N", help="Take turns among N open inputs.")
@click.option("-s", "--shuffle", metavar="N", help="Shuffle through a buffer of N samples: this is local only.")
@click.option("-p", "--parallel", type=click.IntRange(1), default=1, metavar="N", help="Read N inputs ahead.")
@click.option(
    "-L", "--log", "--logging", type=click.IntRange(0), default=0, metavar="N", help="A line every N samples."
)
@options.problems
def cat(
    inputs: list[Location],
    output: Output,
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    fields: Fields,
    mix: int,
    shuffle: str | None,
    parallel: int,
    log: int,
    policy: Policy,
) -> None:
    """Concatenate archives; choose samples and fields on the way.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    Entries are copied as they are, with their headers, and one whole archive comes out as it is to the last byte.
    Samples are chosen first, in the order of the options below; then their fields.
    """
    select.count = count
    buffer = options.number_of_samples(shuffle, "--shuffle", "-s 1000")
    if buffer:
        select.seed = options.draw_seed(select.seed)
    run_cat(current(), inputs, output, CatOptions(select, fields, shard_slice, mix, buffer, parallel - 1, log), policy)


def run_cat(run: Run, locations: list[Location], output: Output, chosen: CatOptions, policy: Policy) -> None:
    """Write the samples of all inputs that were chosen to one archive."""
    policy.strict |= ONE_ARCHIVE
    plain = chosen.select.all and chosen.fields.all and chosen.shard_slice is None and not chosen.shuffle
    inputs = DatasetReader(
        locations,
        policy,
        moves=not (plain and len(locations) == 1),
        shard_slice=chosen.shard_slice,
        mix=chosen.mix,
        ahead=chosen.ahead,
        tmpdir=run.scratch(output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    samples = chosen.select(iter(inputs))
    if chosen.shuffle:
        run.note(f"shuffling through a buffer of {chosen.shuffle} samples: local only")
        seed = chosen.select.seed or 0
        samples = buffer_shuffle(samples, chosen.shuffle, chosen.shuffle, seed, inputs.tmpdir)
    distinct = len(locations) > 1 or chosen.fields.rekey is not None
    samples = neighbours(chosen.fields(samples, policy), policy, inputs.tmpdir, distinct)
    with EntryWriter(output.open(locations)) as writer:
        for sample in run.watch(samples, lambda: writer.position, total_size(locations) if plain else None):
            sample.write(writer)
            if chosen.log and run.samples % chosen.log == 0:
                run.tell(f"{run.samples} samples, {writer.position} bytes")
        options.report_keys(run, chosen.select)
        writer.finish(inputs.zeros if plain else None)
    if not run.samples and not plain:
        run.warn("no sample was chosen: the output is an archive without any")
    run.bytes, run.dropped = writer.position, inputs.dropped
    run.finish()
