"""tarkit shard: from a tree of files to shards."""

from __future__ import annotations

import click

from tarkit.cli import options
from tarkit.cli.category_options import categories
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.shard_options import division_options, files_options, names_options, pack_options, samples_options
from tarkit.errors import Usage
from tarkit.packing.options import Division, Files, SampleOptions
from tarkit.packing.packer import PackOptions
from tarkit.packing.tree_layout import PlanOptions, lay_out_tree
from tarkit.packing.tree_names import ShardNames
from tarkit.packing.tree_pack import NO_SAMPLE, count_planned, save_plan, save_recipe, write_saved, write_tree
from tarkit.pipeline.output import text_output
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
@click.argument("directory", metavar="[DIR]", required=False)
@files_options
@names_options
@division_options
@samples_options
@categories
@pack_options
@options.written(
    "--plan", "Save the plan to FILE, and write no shard.", "FILE is a table, which may be edited.", "Plan"
)
@option("Plan", "--from-plan", metavar="FILE", help="Write the shards of a saved plan; - is stdin.")
@option("Plan", "--dry-run", is_flag=True, help="Print the plan, and write nothing.")
@option("Plan", "--show-keys", is_flag=True, help="Same, with the keys of samples.")
@option("Plan", "--json", "json_", is_flag=True, help="Same, as JSON: a line for each shard.")
@option("Plan", "--recipe", metavar="FILE", help="Write a recipe for create to FILE or -, not shards.")
@option(
    "Plan",
    "--update",
    is_flag=True,
    help="Pack files that are in no shard yet into new shards.",
)
def shard(
    directory: str | None,
    names: ShardNames,
    categories: MapOptions,
    division: Division,
    files: Files,
    samples: SampleOptions,
    pack: PackOptions,
    plan: str | None,
    from_plan: str | None,
    dry_run: bool,
    show_keys: bool,
    json_: bool,
    recipe: str | None,
    update: bool,
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
    run, shows = current(), dry_run or show_keys or json_
    if sum((shows, plan is not None, recipe is not None, pack.resume)) > 1:
        raise Usage("--dry-run, --plan, --recipe and --resume: choose one")
    if from_plan is not None:
        _refuse_planning()
    elif not directory:
        raise Usage("no directory: tarkit shard DIR", "--from-plan FILE runs a plan that was saved")
    root = directory or ""
    chosen = PlanOptions(root, files, samples, division, categories, update, options.draw_seed)
    if from_plan is not None:
        write_saved(run, from_plan, names.output, pack, digest=pack.manifest is not None)
    elif shows:
        _print_plan(run, chosen, names, pack, keys=show_keys, json=json_)
    elif recipe is not None:
        save_recipe(run, chosen, names, pack, recipe)
    elif plan is not None:
        save_plan(run, chosen, names, pack, plan)
        run.extra = " planned"
    else:
        write_tree(run, chosen, names, pack, digest=pack.manifest is not None)
    run.finish()


def _refuse_planning() -> None:
    """Raise Usage for an option that plans, since a saved plan is complete."""
    context = click.get_current_context()
    with_plan = {"from_plan", "parallel", "force", "resume", "on_missing", "mtime", "post", "manifest", "depfile"}
    with_plan |= {"depfile_target", "compress", "fsync"}
    for param in context.command.params:
        given = context.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and param.expose_value and param.name not in with_plan:
            raise Usage(f"{param.opts[0]} cannot be used with --from-plan, which has a plan", "edit the plan instead")


def _print_plan(
    run: ConsoleRun, chosen: PlanOptions, names: ShardNames, pack: PackOptions, *, keys: bool, json: bool
) -> None:
    """Print the plan, and write nothing."""
    from tarkit.views.text import layout_json, layout_lines

    layout = lay_out_tree(run, chosen, names, pack)
    content = chosen.division.size_rule == "content"
    with text_output().open() as sink:
        for line in layout_json(layout.shards) if json else layout_lines(layout.shards, keys, content):
            sink.write(line)
    if not len(layout.shards):
        run.tell(NO_SAMPLE)
    count_planned(run, layout)
