"""tarkit split: cut archives into shards."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.align import align
from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.command import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.joining.options import TableInputOptions
from tarkit.shards.split import SplitOptions, write_split
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
@shared.inputs
@shared.tables
@shared.rows(SplitOptions)
@choice()
def split(
    inputs: list[Location],
    tables: TableInputOptions,
    choice: SampleChoice,
    options: Callable[..., SplitOptions],
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
    params = click.get_current_context().params
    hashed = params["parts"] is not None and (params["stratify"] is None or not choice.select.is_random)
    chosen = options(seed=params["seed"] if hashed else None)
    data = tables.with_fields(choice.of(tables.applied(inputs)))
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
    return align(rows, right=range(1, len(rows[0])))
