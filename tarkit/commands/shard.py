"""tarkit shard: from a tree of files to shards."""

from __future__ import annotations

from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.category_options import categories
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.errors import Usage
from tarkit.packing.names import DEFAULT_NAME
from tarkit.packing.options import ShardOptions
from tarkit.packing.shard import count_planned, plan_tree, write_recipe, write_shards
from tarkit.packing.transform import OnMissing
from tarkit.pipeline.output import text_output
from tarkit.shards.limits import DEFAULT_SIZE
from tarkit.shards.split import MapOptions

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
@choice(
    "Input",
    "--symlinks",
    choices="files|all|skip",
    help="Links to follow.",
    more="files: links to files. all: links to directories too. skip: none.",
)
@option("Input", "--match", metavar="REGEX", help="Only names that contain REGEX.")
@option(
    "Input",
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="No names that match GLOB.",
    more="A GLOB without a slash is compared with base names.",
)
@option(
    "Input",
    "--keep-junk",
    is_flag=True,
    help="Pack files of file managers too.",
    more="Without it .DS_Store, Thumbs.db, desktop.ini, ._* and what is below __MACOSX/ are left out and counted.",
)
@options.shard_names(DEFAULT_NAME + ".tar")
@options.COUNT
@options.shard_size(f"without -c, -n: {DEFAULT_SIZE}")
@options.SIZE_RULE
@options.SHARDS
@option(
    "Shards",
    "--even",
    is_flag=True,
    help="Make shards equal in bytes, not in samples.",
    more="Their number is that of -n, else the number of names that TEMPLATE has: 64 for 'x-{00..63}.tar'.",
)
@choice(
    "Shards",
    "--dirs",
    choices="pack|separate|collapse",
    metavar="HOW",
    help="Subdirs: pack, separate, collapse.",
    more="pack: directories do not matter. separate: each directory ends a shard. collapse: what does not fill a "
    "shard goes with the directory above.",
)
@option("Shards", "--sort", metavar="ORDER", help="Order of samples: key, -key or shuffle:SEED.")
@option(
    "Samples",
    "-k",
    "--key",
    default="full",
    metavar="RULE",
    help="Key: full, base, flat or REGEX.  [default: full]",
    more="Files are one sample if their paths, base names, or what REGEX leaves of them, are equal up to a dot.",
)
@option("Samples", "--last-dot", is_flag=True, help="Fields begin at the last dot, as in ishard.")
@choice(
    "Samples",
    "--rename",
    choices="none|key|flat",
    help="Names of entries.",
    more="key: KEY.FIELD, with _ for each dot in the last part of KEY. flat: the path with _ for each slash.",
)
@option("Samples", "--require", multiple=True, metavar="F1,F2", help="Fields that samples have, and no others.")
@choice(
    "Samples",
    "--on-missing-field",
    choices="error|warn|keep|exclude",
    aliases={"abort": "error", "ignore": "keep", "skip": "exclude"},
    metavar="HOW",
    help="One of error, warn, keep, exclude.",
    more="What to do with a sample that lacks a field of --require: error ends the run, keep keeps it, warn "
    "keeps it with a warning, exclude drops it, and drops fields that --require does not name from the others.",
)
@option(
    "Samples",
    "--label-from-dir",
    multiple=True,
    metavar="FIELD",
    help="Add FIELD: the number of the directory.",
    more="It is the first directory below DIR. FIELD:2 is the one below that, FIELD:-1 the innermost one. With "
    "FIELD:name or FIELD:2:name it is the name of the directory. Files of different depth are an error unless "
    "levels count from the innermost.",
)
@option(
    "Samples",
    "--classes",
    metavar="FILE",
    help="Number directories by the lines of FILE.",
    more="The default is the order of their names.",
)
@options.written("--classes-out", "Write the names of classes to FILE, in order.", section="Samples")
@option(
    "Samples",
    "--join",
    metavar="TABLE:COLUMN",
    help="Add the other columns of TABLE as fields.",
    more="COLUMN has keys or file names.",
)
@categories
@options.FORCE
@option("Output", "--resume", is_flag=True, help="Continue a run: keep shards that are as planned.")
@options.MTIME
@options.post("--post")
@options.MANIFEST
@options.DEPFILE
@option(
    "Output",
    "-p",
    "--parallel",
    type=click.IntRange(0),
    metavar="N",
    help="Write N shards at a time; 0: one per CPU.",
    more="The default is 1, and up to 4 from 20000 files on.",
)
@choice(
    "Problems",
    "--on-missing",
    choices="error|skip",
    help="For a file that is gone.",
    more="skip leaves its sample out.",
)
@option("Plan", "--dry-run", is_flag=True, help="Print the plan, and write nothing.")
@option("Plan", "--show-keys", is_flag=True, help="Same, with the keys of samples.")
@option("Plan", "--recipe", metavar="FILE", help="Write a recipe for create to FILE or -, not shards.")
@option(
    "Plan",
    "--update",
    is_flag=True,
    help="Pack files that are in no shard yet into new shards.",
)
def shard(
    directory: str,
    categories: MapOptions,
    parallel: int | None,
    mtime: str | None,
    on_missing: str,
    on_missing_field: OnMissing,
    dry_run: bool,
    show_keys: bool,
    recipe: str | None,
    **words: Any,
) -> None:
    """Pack a tree of files into shards, sample by sample.

    DIR is a directory or a URL. Names of entries are paths below it, in byte order. Files whose paths are equal up to
    the first dot after the last slash are a sample, which stays whole. Everything is planned first: errors are reported
    before any shard is written.

    \f
    A file whose name has no dot, or begins with one, is no sample: it goes with the sample that follows, -c and -n do
    not count it, and -s counts its bytes. The depfile lists the directories of the tree too.

    Without -c, -s, -n or --even a shard has at most 1G (10^9 bytes). The file of --map has patterns for names:
    {"fish-%d.tar": ["train/n0144.*", "glob:train/n0153/*"]}.

    The objects below a URL are packed as the files below a directory. Up to 32 are requested at a time.
    """
    run, shows = current(), dry_run or show_keys
    if not directory:
        raise Usage("no directory: tarkit shard DIR")
    if sum((shows, recipe is not None, words["resume"])) > 1:
        raise Usage("--dry-run, --recipe and --resume: choose one")
    chosen = ShardOptions(
        directory,
        **words,
        on_missing=on_missing_field,
        categories=categories,
        skip_missing=on_missing == "skip",
        mtime=options.parse_mtime(mtime),
        processes=parallel,
        draw_seed=options.draw_seed,
    )
    if shows:
        _print_plan(run, chosen, show_keys)
    elif recipe is not None:
        write_recipe(run, chosen, recipe)
    else:
        write_shards(run, chosen, digest=chosen.manifest is not None)
    run.finish()


def _print_plan(run: ConsoleRun, chosen: ShardOptions, keys: bool) -> None:
    """Print the plan, and write nothing."""
    from tarkit.views.text import shard_lines

    plan = plan_tree(run, chosen).plan
    with text_output().open() as sink:
        for each in plan.shards:
            size = each.content if chosen.size_rule == "content" else each.length
            samples = (group for batch in plan.batches(each) for group in batch.groups())
            for line in shard_lines(each.name, size, samples, keys):
                sink.write(line)
    count_planned(run, plan)
