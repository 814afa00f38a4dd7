"""tarkit cat: concatenate and filter."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.joining.options import JoinOptions, TableInputOptions
from tarkit.options import Options, row
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output
from tarkit.sizes import plural
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit cat a.tar b.tar -o both.tar",
    "tarkit cat 'a-{000..099}.tar' --match '^cat/' -f 'jpg cls' -o b.tar.zst",
    "tarkit cat hf.parquet --set 'jpg:image cls:label' --key id -o a.tar",
    "tarkit cat shards/ -s 1000 --seed 7 | tarkit split -c 500 -o 'm-%06d.tar'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data; "
    "--shuffle N holds N samples of a stream, large ones in temporary space, and -m N keeps N inputs open.\f "
    "--sample N and --balance read the headers of all samples first, and copy those of streams that may be chosen to "
    "temporary space."
)

SPECS = (".yaml", ".yml")  # suffixes of files that describe data sets


class CatOptions(Options):
    """The options of `cat` alone. In Python they are arguments of `tarkit.open`, `buffer_shuffle` and `write`."""

    mix: int = row(
        "Order",
        "-m",
        "--mix",
        at_least=1,
        default=1,
        metavar="N",
        help="Mix: a sample from each of N inputs in turn.",
        more="The command mix draws from inputs by weights, in random order.",
    )
    shuffle: int = row(
        "Order",
        "-s",
        "--shuffle",
        at_least=0,
        default=0,
        metavar="N",
        help="Shuffle locally, in a buffer of N samples.",
        hint="a number of samples, not bytes: -s 1000",
    )
    log: int = row(
        "Messages", "-L", "--log", "--logging", at_least=0, default=0, metavar="N", help="Print a line every N samples."
    )


@click.command(cls=MappedCommand, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Read N inputs ahead.")
@options.output
@options.rows(CatOptions, "chosen")
@options.join
@options.tables
@choice(count=options.count, fields=options.fields)
def cat(
    inputs: list[Location],
    tables: TableInputOptions,
    output: Output,
    choice: SampleChoice,
    joins: JoinOptions,
    parallel: int,
    chosen: Callable[..., CatOptions],
) -> None:
    """Concatenate archives; choose samples and fields on the way.

    SPEC.yaml, a list of `datasets` as of webdataset, stands for their shards in random order (--seed).

    Entries are copied with their headers, byte for byte; the copy of one whole archive is identical to it. Samples are
    selected first, in the order of the options under Select, then their fields.
    """
    run, cat = current(), chosen()
    if any(location.text.lower().endswith(SPECS) for location in inputs):
        from tarkit.mixing.shards import replace_specs

        inputs = replace_specs(inputs, options.draw_seed(choice.select.seed), run.tell, run.warn)
        run.refuse(inputs)
    data = choice.of(tables.applied(inputs, joins), joins, interleave=cat.mix, prefetch=parallel - 1)
    if cat.shuffle:
        seed = options.draw_seed(choice.select.seed)
        run.note(f"shuffling through a buffer of {plural(cat.shuffle, 'sample')}: local only")
        data = data.buffer_shuffle(cat.shuffle, seed)
    data = tables.with_fields(data, joins).change(choice.fields)

    def each(position: int) -> None:
        if run.samples % cat.log == 0:
            run.tell(f"{plural(run.samples, 'sample')}, {plural(position, 'byte')}")

    write_archive(data, output, run, each if cat.log else None)
    if not run.samples and not data.unchanged:
        run.warn("no sample is left: the output is an archive without any")
    run.finish()
