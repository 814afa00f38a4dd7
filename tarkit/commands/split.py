"""tarkit split: cut archives into shards."""

from __future__ import annotations

from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.category_options import categories
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import ConsoleRun, aligned, current
from tarkit.dataset import for_run
from tarkit.pipeline.template import SPLIT_NAME
from tarkit.problems import Policy
from tarkit.samples.select import Select, Slice
from tarkit.shards.limits import DEFAULT_SIZE
from tarkit.shards.split import MapOptions, SplitOptions, write_split
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit split big.tar -c 1000 -o 'shards/train-%06d.tar'",
    "tarkit create recipe -o - | tarkit split - -s 500M -o 'b-%06d.tar.zst'",
    "tarkit split 'raw-*.tar' -n 64 -o 'even-{00..63}.tar' --manifest even.tsv",
    "tarkit split big.tar -s 1G --post 'aws s3 cp {} s3://bucket/ && rm {}'",
    "tarkit split big.tar -s 1G --parts train=0.9,val=0.1 -o '{part}-%d.tar'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data. -n "
    "and --even count first: two passes, and temporary space for streams and compressed inputs.\f --parts and "
    "--map have a shard open for each part or category, each with up to 0.5 MB and what its codec takes; each name is "
    "matched against all patterns of a map; --stratify keeps counts of each class. In one series without --post, a "
    "shard may begin while the one before is still copied. --max-shards reads the headers of the rest, and a stream to "
    "its end."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.shard_names(SPLIT_NAME)
@option("Output", "--append", is_flag=True, help="Continue the numbers of existing shards.")
@options.FORCE
@options.post("-p", "--post")
@options.MANIFEST
@options.COUNT
@options.shard_size(f"without -c: {DEFAULT_SIZE}")
@options.SIZE_RULE
@options.SHARDS
@choice(
    "Shards",
    "--even",
    choices="count|size",
    help="What is equal in shards.",
    more="count: their numbers of samples. size: their bytes, about; without -n there are as many shards as "
    "TEMPLATE has names: 64 for 'x-{00..63}.tar'.",
)
@choice(
    "Shards",
    "--remainder",
    choices="spread|drop|repeat",
    metavar="HOW",
    help="Rest: spread, drop, repeat.",
    more="What to do with samples that are left over when their number is divided by N. spread: some shards have "
    "one sample more. drop: they are left out. repeat: some samples come twice, so that all shards are full.",
)
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
@categories
@option(
    "Parts",
    "--parts",
    metavar="A=0.9,B=0.1",
    help="Parts by a hash of the key: {part}, or PART-TEMPLATE.",
    more="The name of a part, such as train, replaces {part} in TEMPLATE; without it, it is put before the name. "
    "A number K is K equal parts: fold-0, fold-1 and so on. "
    "Shares are 0.1, 1/10 or 10%, and a part without one gets the rest.",
)
@option(
    "Parts",
    "--group",
    metavar="REGEX",
    help="Keep keys with one match of REGEX together.",
    more="If REGEX has a group, keys in which it matched the same text.",
)
@option("Parts", "--group-field", metavar="FIELD", help="Keep samples with equal FIELD together.")
@option(
    "Parts",
    "--stratify",
    metavar="FIELD",
    help="Give each part its share of each value of FIELD.",
    more="FIELD is a class, as in cls or json.label. Samples are dealt in order, without a hash.",
)
@options.shard_slice
@options.select
@options.problems
def split(
    inputs: list[Location],
    shard_slice: Slice | None,
    select: Select,
    policy: Policy,
    categories: MapOptions,
    parts: str | None,
    **given: Any,
) -> None:
    """Cut archives into shards by number of samples or size.

    Only given limits apply; a shard closes at whichever comes first. A sample stays whole, and one that is larger than
    SIZE has a shard to itself. No shard is empty. A shard appears under its name when it is complete.

    \f
    --parts and --map write several series at once, each with its own numbers and limits. With --parts the part of a
    sample depends only on its key and --seed, also when the set grows; with --stratify it depends on the samples before
    it.
    """
    run = current()
    seed = click.get_current_context().params["seed"] if parts is not None else None
    if given["stratify"] is not None and select.sample is not None:
        seed = None  # that of --sample
    chosen = SplitOptions(**given, parts=parts, seed=seed, categories=categories)
    data = for_run(run, inputs, shard_slice).filter_samples(select)
    write_split(data, run, chosen, digest=chosen.manifest is not None)
    if unmatched := run.facts.get("unmatched"):
        run.extra = f", {unmatched} in no category"
    run.finish(_table(run))


def _table(run: ConsoleRun) -> list[str]:
    """Return the lines of a table of the parts, none without parts."""
    if "parts" not in run.facts:
        return []
    rows: list[tuple[str, ...]] = [("part", "asked", "got", "samples", "shards", "bytes")]
    for name, part in run.facts["parts"].items():
        asked = f"{part['asked']:.2%}" if "asked" in part else ""
        numbers = (str(part[each]) for each in ("samples", "shards", "bytes"))
        rows.append((name, asked, f"{part['got']:.2%}", *numbers))
    if not any(asked for _, asked, *_ in rows[1:]):  # categories have no shares
        rows = [(name, *rest) for name, _, *rest in rows]
    return aligned(rows)
