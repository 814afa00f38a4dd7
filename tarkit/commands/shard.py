"""tarkit shard: from a tree of files to shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from tarkit.api.output import text_output
from tarkit.cli import options
from tarkit.cli.category_options import MapOptions, map_options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.shard_options import (
    Division,
    Files,
    SampleOptions,
    ShardNames,
    division_options,
    files_options,
    names_options,
    samples_options,
)
from tarkit.cli.shard_plan import PlanOptions, pack_options, run_pack, saved_plan
from tarkit.errors import Usage
from tarkit.packing.batch import Batch
from tarkit.packing.layout import PackLayout, hidden, recipe_line
from tarkit.packing.packer import check_templates
from tarkit.packing.planner import lay_out
from tarkit.packing.report import plan_notes
from tarkit.packing.resume import next_shards
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import Tree
from tarkit.shards.limits import NO_LIMIT
from tarkit.shards.template import ShardTemplate
from tarkit.stores import schemes
from tarkit.streams.sink import open_sink

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, Join
    from tarkit.packing.transform import Required

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
@map_options
@pack_options
@option("Plan", "--dry-run", is_flag=True, help="Print the plan, and write nothing.")
@option("Plan", "--show-keys", is_flag=True, help="Same, with the keys of samples.")
@option("Plan", "--json", "json_", is_flag=True, help="Same, as JSON: a line for each shard.")
@option("Plan", "--recipe", metavar="FILE", help="Write a recipe for create to FILE or -, not shards.")
@option(
    "Plan",
    "--update",
    is_flag=True,
    help="Pack what is in no shard yet into new shards.",
)
def shard(
    directory: str | None,
    names: ShardNames,
    map_: MapOptions,
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
    chosen = ShardOptions(files, samples, division, names, pack, map_, json=json_, **given)
    if sum((chosen.shows, pack.plan is not None, chosen.recipe is not None, pack.resume)) > 1:
        raise Usage("--dry-run, --plan, --recipe and --resume: choose one")
    if chosen.update and (pack.force or pack.resume):
        raise Usage("--update adds to existing shards: it cannot be used with --force or --resume")
    if chosen.update and samples.classes is None and not all(label.by_name for label in samples.labels):
        raise Usage("--update requires the numbers of the classes", "--classes FILE, as --classes-out wrote it")
    if (division.shards is not None or division.even) and map_.spec is not None:
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
    templates, categories = chosen.names.templates(run, chosen.map)
    cut = chosen.division.cut(templates)
    if cut.sort.by == "shuffle":
        cut = replace(cut, sort=cut.sort._replace(seed=options.draw_seed(cut.sort.seed)))
    tree = _tree(run, root, chosen, templates)
    scratch = run.scratch(chosen.names.output.folder)
    if scratch is not None and not os.path.isdir(scratch):
        scratch = None
    if not (chosen.shows or chosen.recipe or chosen.pack.plan):
        check_templates(templates, chosen.pack, chosen.update)
    numbers, known = next_shards(templates, scratch) if chosen.update else ([0] * len(templates), None)
    wanted = chosen.samples
    required, join, classes = _transforms(run, wanted)
    transform = SampleTransform(
        wanted.rule,
        tree.source,
        wanted.rename,
        categories,
        required,
        join,
        classes,
        known,
        scratch,
        on_unmatched=chosen.map.on_unmatched,
    )
    layout = PackLayout(tree, templates, numbers, scratch)
    keyless = lay_out(tree, wanted.rule, transform, cut, layout, scratch, _watch(run, tree))
    if not chosen.division.limited and chosen.recipe is None:
        run.tell(NO_LIMIT)
    for text, warning in plan_notes(tree, transform, keyless):
        (run.warn if warning else run.tell)(text)
    run.facts["files"] = tree.files
    if categories is not None:
        run.facts["unmatched"] = transform.unmatched
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {layout.samples} samples, {len(layout)} shards")
    listed = transform.classes.lines() if wanted.classes_out is not None and transform.classes is not None else b""
    _hand_over(run, chosen, layout, templates)
    if wanted.classes_out is not None and not chosen.shows:
        with open_sink("path", wanted.classes_out) as sink:
            sink.write(listed)


def _transforms(run: ConsoleRun, wanted: SampleOptions) -> tuple[Required | None, Join | None, Classes | None]:
    """Return the transformations of --require, --join and --label-from-dir, whose modules are loaded when needed."""
    required = join = classes = None
    if wanted.require:
        from tarkit.packing.transform import Required

        required = Required(wanted.require, wanted.on_missing, wanted.rule.last_dot, run.warn)
    if wanted.join is not None:
        from tarkit.packing.labels import Join

        join = Join(wanted.join, wanted.rule.kind == "base")
    if wanted.labels:
        from tarkit.packing.labels import Classes

        classes = Classes(wanted.labels, wanted.classes)
    return required, join, classes


def _tree(run: ConsoleRun, root: str, chosen: ShardOptions, templates: list[ShardTemplate]) -> Tree:
    if schemes.scheme_of(root) and not os.path.exists(root):
        what = f"{schemes.public_name(root)}: only local directories can be listed"
        raise Usage(what, "mount it, or copy it here")
    if not os.path.isdir(root):
        os.stat(root)
        raise Usage(f"{root} is not a directory", "for an archive: tarkit split; for a recipe: tarkit create")
    pack, wanted = chosen.pack, chosen.samples
    table = None if wanted.join is None else wanted.join.rpartition(":")[0]
    written = (run.report, pack.plan, pack.manifest, pack.depfile, chosen.recipe, wanted.classes_out)
    read = (table, wanted.classes, chosen.map.spec)
    run.reserve(wanted.classes_out, "the list of classes")
    run.reserve(chosen.recipe, "the recipe")
    run.reserve(wanted.classes, "the list of classes to read", written=False)
    run.reserve(table, "the table", written=False)
    files = chosen.files
    return Tree(
        root,
        files.keep_root,
        files.symlinks,
        os.fsencode(files.prefix),
        files.match,
        files.exclude,
        hidden(root, templates, (*written, *read)),
        sized=_weighs(run, chosen),
        missing=pack.skip_missing,
    )


def _weighs(run: ConsoleRun, chosen: ShardOptions) -> bool:
    """Return whether sizes of files are shown or needed; else they are not looked up before files are read."""
    pack, division = chosen.pack, chosen.division
    by_size = division.size is not None or division.even or not division.limited
    shown = chosen.shows or pack.plan is not None or run.shows_progress
    return by_size or shown or chosen.update or pack.skip_missing


def _watch(run: ConsoleRun, tree: Tree) -> Any:
    """Return a function that draws a bar of the bytes of the listed files, if one is wanted."""
    listed = 0

    def counted(batches: Iterator[Batch]) -> Iterator[Batch]:
        nonlocal listed
        for batch in batches:
            listed += len(batch.keys)
            yield batch

    def watch(batches: Iterator[Batch]) -> Iterator[Batch]:
        if not run.shows_progress:
            return batches
        return run.draw(counted(batches), lambda: tree.content, lambda: listed)

    return watch


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
