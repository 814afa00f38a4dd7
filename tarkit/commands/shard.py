"""tarkit shard: from a tree of files to shards."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.command import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.errors import Usage
from tarkit.packing.options import ShardOptions
from tarkit.packing.planner import plan_tree
from tarkit.packing.shard import count_planned, write_recipe, write_shards
from tarkit.pipeline.output import text_output

EXAMPLES = (
    "tarkit shard photos/ -o 'x-%06d.tar' -c 1000 --label-from-dir cls",
    "tarkit shard data/ --key base --rename key --require jpg,json -s 500M",
    "tarkit shard data/ -o 'x-{00..63}.tar' --even --sort shuffle:7",
    "tarkit shard data/ -c 1000 --dry-run --show-keys",
    "tarkit shard s3://bucket/photos/ -c 1000 -o 's3://bucket/x-%06d.tar'",
)
COST = (
    "One pass over the names, and over the sizes unless -c or -n alone divides, before one pass over the contents. A "
    "million files take 70 to 110 MB of memory.\f They are sorted in temporary space. A file whose size was planned "
    "must still have it; of one up to 256 KiB only a change of its length is seen while it is read. --join and "
    "--update hold a table, --even 50 bytes a sample."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("directory", metavar="DIR", default="")
@shared.rows(ShardOptions, mtime=shared.parse_mtime)
def shard(directory: str, options: Callable[..., ShardOptions]) -> None:
    """Pack a tree of files into shards, sample by sample.

    DIR is a directory or a URL. Names of entries are paths below it, in byte order. Files whose paths are equal up to
    the first dot after the last slash are a sample, which stays whole. Everything is planned first: errors are reported
    before any shard is written.

    \f
    A file whose name has no dot, or begins with one, is no sample: it goes with the sample that follows, -c and -n do
    not count it, and -s counts its bytes. The target of the depfile is the first shard; it lists the directories of the
    tree too.

    Without -o the shards are shard-000000.tar and so on, in the working directory. Without -c, -s, -n or --even a shard
    has at most 1G (10^9 bytes). The file of --map has patterns for names:
    {"fish-%d.tar": ["train/n0144.*", "glob:train/n0153/*"]}.

    The objects below a URL are packed as the files below a directory. Up to 32 are requested at a time.
    """
    run = current()
    if not directory:
        raise Usage("no directory: tarkit shard DIR")
    chosen = options(directory=directory, draw_seed=shared.draw_seed)
    if chosen.dry_run or chosen.show_keys:
        _print_plan(run, chosen)
    elif chosen.recipe is not None:
        write_recipe(run, chosen, os.fspath(chosen.recipe))
    else:
        write_shards(run, chosen, digest=chosen.manifest is not None)
    run.finish()


def _print_plan(run: ConsoleRun, chosen: ShardOptions) -> None:
    """Print the plan, and write nothing."""
    from tarkit.display.text import shard_lines

    run.take_stdout("the plan")
    plan = plan_tree(run, chosen)
    with text_output().open() as sink:
        for planned in plan.shards:
            size = planned.content if chosen.size_rule == "content" else planned.length
            samples = (sample for batch in plan.batches(planned) for sample in batch.samples())
            for line in shard_lines(planned.name, size, samples, chosen.show_keys):
                sink.write(line)
    count_planned(run, plan)
