"""tarkit shard: from a tree of files to shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tarkit.api.output import text_output
from tarkit.api.plan import Division, Files, SampleOptions, lay_out_tree
from tarkit.api.shards import MapOptions
from tarkit.cli import options
from tarkit.cli.category_options import categories
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.shard_options import ShardNames, division_options, files_options, names_options, samples_options
from tarkit.cli.shard_plan import PlanOptions, pack_options, run_pack, saved_plan
from tarkit.errors import Usage
from tarkit.packing.layout import PackLayout, recipe_line
from tarkit.packing.packer import check_templates
from tarkit.shards.limits import NO_LIMIT
from tarkit.shards.template import ShardTemplate
from tarkit.streams.sink import open_sink

if TYPE_CHECKING:
    pass

EXAMPLES = (
    "tarkit shard photos/ -o 'x-%06d.tar' -c 1000 --label-from-dir cls",
    "tarkit shard data/ --key base --rename key --require jpg,json -s 500M",
    "tarkit shard data/ -o 'x-{00..63}.tar' --even --sort shuffle:7",
    "tarkit shard data/ -c 1000 --dry-run --show-keys",
)
COST = (
    "One pass over the names, and over the sizes unless -c or -n alone divides, before one pass over the contents. A "
    "million files take 70 to 110 MB of memory.\f They are sorted in temporary space. A file whose size was planned "
    "must still have it. --join and --update hold a table, --even 50 bytes a sample."
)


@dataclass(frozen=True)
class ShardOptions:
    """All options, and whether the plan is shown, saved, or run."""

    files: Files
    samples: SampleOptions
    division: Division
    names: ShardNames
    pack: PlanOptions
    map: MapOptions
    update: bool = False
    dry_run: bool = False
    show_keys: bool = False
    json: bool = False
    recipe: str | None = None

    @property
    def shows(self) -> bool:
        """Whether the plan is only printed."""
        return self.dry_run or self.show_keys or self.json


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("directory", metavar="[DIR]", required=False)
@files_options
@names_options
@division_options
@samples_options
@categories
@pack_options
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
    pack: PlanOptions,
    json_: bool,
    **given: Any,
) -> None:
    """Pack a tree of files into shards, sample by sample.

    Names of entries are paths below DIR, in byte order. Files whose paths are equal up to the first dot after the last
    slash are a sample, which stays whole. Everything is planned first: errors are reported before any shard is written.

    \f
    Without -c, -s, -n or --even a shard has at most 1G (10^9 bytes). The file of --map has patterns for names:
    {"fish-%d.tar": ["train/n0144.*", "glob:train/n0153/*"]}.
    """
    chosen = ShardOptions(files, samples, division, names, pack, categories, json=json_, **given)
    if sum((chosen.shows, pack.plan is not None, chosen.recipe is not None, pack.resume)) > 1:
        raise Usage("--dry-run, --plan, --recipe and --resume: choose one")
    if chosen.update and (pack.force or pack.resume):
        raise Usage("--update adds to existing shards: it cannot be used with --force or --resume")
    if chosen.update and samples.classes is None and not all(label.by_name for label in samples.labels):
        raise Usage("--update requires the numbers of the classes", "--classes FILE, as --classes-out wrote it")
    if (division.shards is not None or division.even) and categories.map is not None:
        raise Usage("-n and --even cannot be used with --map")
    if pack.from_plan is not None:
        _run_saved(current(), directory, chosen)
        return
    if not directory:
        raise Usage("no directory: tarkit shard DIR", "--from-plan FILE runs a plan that was saved")
    run_shard(current(), directory, chosen)


def _run_saved(run: ConsoleRun, directory: str | None, chosen: ShardOptions) -> None:
    """Write the shards of a plan that was saved: it says all, so there is nothing else to say."""
    context = click.get_current_context()
    with_plan = {"from_plan", "parallel", "force", "resume", "on_missing", "mtime", "post", "manifest", "depfile"}
    with_plan |= {"depfile_target", "compress", "fsync"}
    for param in context.command.params:
        given = context.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and param.expose_value and param.name not in with_plan:
            raise Usage(f"{param.opts[0]} cannot be used with --from-plan, which has a plan", "edit the plan instead")
    run_pack(run, saved_plan(run, chosen.pack), chosen.names.output, chosen.pack)


def run_shard(run: ConsoleRun, root: str, chosen: ShardOptions) -> None:
    """Plan what is below `root`; show the plan, save it as a recipe, or write its shards."""
    names = chosen.names.names(run, chosen.map)
    if not (chosen.shows or chosen.recipe or chosen.pack.plan):
        check_templates(names.templates, chosen.pack, chosen.update)
    pack, wanted = chosen.pack, chosen.samples
    layout = lay_out_tree(
        run,
        root,
        chosen.files,
        wanted,
        chosen.division,
        names,
        directory=chosen.names.output.directory,
        update=chosen.update,
        sized=_weighs(run, chosen),
        beside=_beside(run, chosen),
        skip_missing=pack.skip_missing,
        draw_seed=options.draw_seed,
    )
    if not layout.limited and chosen.recipe is None:
        run.tell(NO_LIMIT)
    listed = layout.classes.lines() if wanted.classes_out is not None and layout.classes is not None else b""
    _hand_over(run, chosen, layout.shards, names.templates)
    if wanted.classes_out is not None and not chosen.shows:
        with open_sink("path", wanted.classes_out) as sink:
            sink.write(listed)


def _beside(run: ConsoleRun, chosen: ShardOptions) -> list[str | None]:
    """The files that are read or written besides, which are not packed. Raises Usage for one that is used twice."""
    pack, wanted = chosen.pack, chosen.samples
    table = None if wanted.join is None else wanted.join.rpartition(":")[0]
    run.reserve(wanted.classes_out, "the list of classes")
    run.reserve(chosen.recipe, "the recipe")
    run.reserve(wanted.classes, "the list of classes to read", written=False)
    run.reserve(table, "the table", written=False)
    written = (run.report, pack.plan, pack.manifest, pack.depfile, chosen.recipe, wanted.classes_out)
    return [*written, table, wanted.classes, chosen.map.text]


def _weighs(run: ConsoleRun, chosen: ShardOptions) -> bool:
    """Return whether sizes of files are shown or needed; else they are not looked up before files are read."""
    pack, division = chosen.pack, chosen.division
    by_size = division.size is not None or division.even or not division.limited
    shown = chosen.shows or pack.plan is not None or run.shows_progress
    return by_size or shown or chosen.update or pack.skip_missing


def _hand_over(run: ConsoleRun, chosen: ShardOptions, layout: PackLayout, templates: list[ShardTemplate]) -> None:
    """Show the plan, write it as a recipe, or run it."""
    if not chosen.shows and chosen.recipe is None:
        known = templates[0] if len(templates) == 1 and not chosen.update else None
        run_pack(run, layout, chosen.names.output, chosen.pack, known)
        return
    lines: Iterator[bytes] = map(recipe_line, layout)
    if chosen.recipe is None:
        from tarkit.views.text import layout_json, layout_lines

        content = chosen.division.size_rule == "content"
        lines = layout_json(layout) if chosen.json else layout_lines(layout, chosen.show_keys, content)
    output = text_output(chosen.recipe)
    with output.open() as sink:
        for line in lines:
            sink.write(line)
    if not len(layout):
        run.tell("no sample, so no shard")
    run.samples, run.shards, run.bytes = layout.samples, len(layout), layout.content
    run.finish()
