"""tarkit split: cut archives into shards."""

from __future__ import annotations

from typing import Any

import click

from tarkit.api.dataset import Dataset, read
from tarkit.api.shards import ShardsOutput, write_equal
from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.split_options import Cuts, Equal, Naming, cuts, equal, naming
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.select import Select, Slice
from tarkit.shards.limits import DEFAULT_SIZE, NO_LIMIT, Limits, parse_size
from tarkit.shards.writer import Series, write_manifest
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

_THERE = "--force replaces them; --append keeps them, and appends all inputs after them"
EXAMPLES = (
    "tarkit split big.tar -c 1000 -o 'shards/train-%06d.tar'",
    "tarkit create recipe -o - | tarkit split - -s 500M -o 'b-%06d.tar.zst'",
    "tarkit split 'raw-*.tar' -n 64 -o 'even-{00..63}.tar' --manifest even.tsv",
    "tarkit split big.tar -s 1G --post 'aws s3 cp {} s3://bucket/ && rm {}'",
    "tarkit split big.tar -s 1G --parts train=0.9,val=0.1 -o '{part}-%d.tar'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data. -n "
    "and --even count first: two passes, and temporary space for streams and compressed inputs.\f --parts, --folds and "
    "--map have a shard open for each part or category, each with up to 0.5 MB and what its codec takes; each name is "
    "matched against all patterns of a map; --stratify keeps counts of each class. --max-shards reads the headers of "
    "the rest, and a stream to its end."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@naming
@option("Output", "--append", is_flag=True, help="Continue the numbers of existing shards.")
@options.FORCE
@options.post("-p", "--post")
@options.MANIFEST
@option("Shards", "-c", "--count", type=click.IntRange(1), metavar="N", help="Count: at most N samples in a shard.")
@option(
    "Shards",
    "-s",
    "--size",
    metavar="SIZE",
    help=f"Size limit in bytes.  [default without -c: {DEFAULT_SIZE}]",
    more="SIZE is a number such as 500M, 16MiB or 1e9.",
)
@options.SIZE_RULE
@equal
@option(
    "Shards",
    "--max-shards",
    "--maxshards",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N shards.",
    more="What is left is counted, and not written.",
)
@option("Shards", "--start", type=click.IntRange(0), metavar="N", help="Number of the first shard.  [default: 0]")
@cuts
@options.shard_slice
@options.select
@options.problems
def split(
    inputs: list[Location],
    naming: Naming,
    count: int | None,
    size: str | None,
    size_rule: Any,
    max_shards: int | None,
    select: Select,
    policy: Policy,
    equal: Equal,
    cuts: Cuts,
    start: int | None,
    append: bool,
    force: bool,
    post: str | None,
    manifest: str | None,
    shard_slice: Slice | None,
) -> None:
    """Cut archives into shards by number of samples or size.

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    Only given limits apply; a shard closes at whichever comes first. A sample stays whole, and one that is larger than
    SIZE has a shard to itself. No shard is empty. A shard appears under its name when it is complete.

    \f
    --parts, --folds and --map write several series at once, each with its own numbers and limits. With --parts and
    --folds the part of a sample depends only on its key and --salt, also when the set grows; with --stratify it depends
    on the samples before it.
    """
    run = current()
    equal.check(count is not None or size is not None)
    if append and force:
        raise Usage("--append keeps what is there, --force replaces it: choose one")
    if cuts.given and (equal.given or max_shards is not None):
        what = "--max-shards" if max_shards else "-n" if equal.shards else "--even"
        raise Usage(f"{what} cannot be used with {cuts.given}: it needs one series of shards")
    if count is None and size is None and not equal.given:
        size = DEFAULT_SIZE
        run.tell(NO_LIMIT)
    if append and start is not None:
        raise Usage("--append continues after the last shard: it cannot be used with --start")
    limits = Limits(count, None if size is None else parse_size(size, "-c"), size_rule, max_shards)
    plan = cuts.plan(run, naming, policy, len(inputs))
    run.refuse(inputs, manifest)
    run.reserve(manifest, "the manifest")
    digest = manifest is not None
    output = ShardsOutput(plan.output, plan.lots, limits, plan.assign, start, append, force, post, digest, _THERE)
    _refuse_names(run, output, manifest)
    series = _write(read(run, inputs, shard_slice).choose(select), output, equal, run)
    if manifest is not None:
        with open_sink("path", manifest) as sink:
            write_manifest(sink, series.done)
    run.finish(plan.wind_up(run, series))


def _write(data: Dataset, output: ShardsOutput, equal: Equal, run: ConsoleRun) -> Series:
    """Write the shards, with -n and --even after a pass that counts."""
    if not equal.given:
        return output.write(data, run)
    template = output.lots[0].template
    number = equal.number(template)
    template.name(output.starts[0] + number - 1)  # raises if there is no such name
    series = write_equal(data, output, run, number, equal.even, equal.remainder)
    if equal.even == "size" and 0 < len(series.done) < number and len(series.done) != output.limits.shards:
        run.tell(f"{len(series.done)} shards and no more: so large are some samples")
    return series


def _refuse_names(run: ConsoleRun, output: ShardsOutput, manifest: str | None) -> None:
    """Raise Usage when a file that is written or read besides has a name that shards may get."""
    if manifest is not None and output.output.location.kind != "path":
        raise Usage("--manifest needs shards that are files")
    for what, _, path in run.places.values():
        if what != "the output" and output.matches(path):
            option = "--manifest " if path == manifest else ""
            raise Usage(f"{option}{path}: the shards may get this name")
