"""Write the shards of a directory tree, or its plan, or a recipe for it; write the shards of a saved plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from itertools import count as counting

from tarkit.errors import Usage, show
from tarkit.packing.layout import recipe_line
from tarkit.packing.packer import Packer, PackOptions
from tarkit.packing.plan import Planned, SavedPlan, write_plan
from tarkit.packing.tree_layout import PlanOptions, TreeLayout, lay_out_tree
from tarkit.packing.tree_names import ShardNames
from tarkit.pipeline.output import Output, text_output
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.writer import write_manifest
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import file_location, parse_output
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.text import check_created, create_file, open_file_or_stdin
from tarkit.tables.depfile import make_rule

NO_SAMPLE = "no sample, so no shard"


def write_tree(
    run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, digest: bool = True
) -> tuple[Packer, TreeLayout]:
    """Plan the shards of a directory tree and write them; return the packer, whose `done` has them, and the plan."""
    layout = lay_out_tree(run, chosen, names, options, writes=True)
    known = layout.templates[0] if len(layout.templates) == 1 and not chosen.update else None
    listed = layout.shards.tree.directory_paths()
    packer = pack(
        run, layout.shards, names.output, options, known, depends=listed, storage=chosen.storage, digest=digest
    )
    _write_classes(chosen, layout, options.storage)
    return packer, layout


def save_plan(run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, path: str) -> TreeLayout:
    """Plan the shards of a directory tree and write the plan to a file, for `write_saved`; `-` is stdout."""
    layout = lay_out_tree(run, chosen, names, options, plan=path)
    run.reserve(path, "the plan")
    count = counting()
    with open_sink("stdout", "-") if path == "-" else create_file(path, options=options.storage) as sink:
        write_plan(sink, (row for row, _ in zip(layout.shards, count, strict=False)))
    count_planned(run, layout)
    run.facts["entries"] = next(count)
    _write_classes(chosen, layout, options.storage)
    return layout


def save_recipe(run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, path: str) -> TreeLayout:
    """Plan the shards of a directory tree and write a recipe for `create` with the files in their order."""
    layout = lay_out_tree(run, chosen, names, options, recipe=path)
    with text_output(path, options=options.storage).open() as sink:
        for row in layout.shards:
            sink.write(recipe_line(row))
    if not len(layout.shards):
        run.tell(NO_SAMPLE)
    count_planned(run, layout)
    _write_classes(chosen, layout, options.storage)
    return layout


def count_planned(run: Run, layout: TreeLayout) -> None:
    """Set the numbers of the run to those of a plan of which no shard is written."""
    planned = layout.shards
    run.samples, run.shards, run.bytes = planned.samples, len(planned), planned.content


def _write_classes(chosen: PlanOptions, layout: TreeLayout, storage: StoreOptions | None) -> None:
    if chosen.samples.classes_out is not None:
        with create_file(chosen.samples.classes_out, options=storage) as sink:
            sink.write(layout.class_list)


def write_saved(
    run: Run,
    path: str,
    output: Output,
    options: PackOptions,
    digest: bool = True,
    storage: StoreOptions | None = None,
) -> Packer:
    """Write the shards of a saved plan; `-` is stdin. Of `output` only codec, fsync and threads count.

    `storage` says how the plan and its sources are reached.
    """
    if path == "-" and os.isatty(0):
        raise Usage("stdin is a terminal", "name the plan, or pipe one to stdin")
    run.reserve(path, "the plan", written=False)
    location = file_location(path)
    with open_file_or_stdin(path, storage) as lines:
        rows = SavedPlan(lines, location.name)
        plan = [os.fsencode(location.text)] if location.kind == "path" else []
        return pack(run, rows, output, options, depends=plan, storage=storage, digest=digest)


def pack(
    run: Run,
    rows: Iterable[Planned],
    output: Output,
    options: PackOptions,
    template: ShardTemplate | None = None,
    *,
    depends: Sequence[bytes] = (),
    storage: StoreOptions | None = None,
    digest: bool = True,
) -> Packer:
    """Write the shards of a plan, their manifest and depfile; return the packer, which has the list of shards.

    Args:
        output: how each shard is written; their names are those of the rows.
        template: files with a name of it are existing shards; None: files with a name of the plan are.
        depends: what the depfile lists besides the sources: the file of a saved plan, or the directories of a tree.
        storage: how sources are reached.
        digest: whether checksums are made.

    Raises:
        TarkitError: shards of these names exist, or a file differs from the plan.
    """
    run.reserve(options.manifest, "the manifest")
    run.reserve(options.depfile, "the depfile")
    for path in (options.manifest, options.depfile):
        check_created(path, options.storage)
    packer = Packer(
        rows,
        options,
        partial(_open_shard, output, options),
        template=template,
        codec=str(output.codec),
        digest=digest,
        counted=run.shows_progress,
        tmpdir=run.scratch(output.directory),
        storage=storage,
        note=run.note,
        warn=run.warn,
    )
    for name in packer.names:
        location = parse_output(name)
        place = run.places.get(location.text if location.kind == "url" else os.path.realpath(location.text))
        if place:
            raise Usage(f"{place.path} is {place.what}, and has the name of a shard")
        output.check_time(options.mtime, name)
    packer.check([place.path for place in run.places.values() if place.written])
    several, first = packer.in_several()
    if several:
        what = f"samples in several shards, or whose entries are not together: {several}, {show(first)} first"
        run.warn(f"{packer.plan_name}: {what}")
    with closing(packer.write()) as counts:
        for count in run.draw(counts, packer.position, lambda: run.samples, packer.content):
            run.samples += count
    if options.force:
        run.remove_others(packer.stale, options.storage)
    _finish(run, packer, depends)
    return packer


def _finish(run: Run, packer: Packer, depends: Sequence[bytes]) -> None:
    """Count what was written; write depfile and manifest, after the last shard."""
    options = packer.options
    if not packer.done:
        run.tell(NO_SAMPLE)
    facts = {"entries": packer.entries, "missing": packer.missing, "kept": packer.kept}
    run.facts.update({name: count for name, count in facts.items() if count})
    run.shards = len(packer.done)
    run.bytes = sum(shard.size for shard in packer.done)
    if options.depfile is not None:
        first = packer.names[0] if packer.names else ""
        sources = packer.spool.sources(packer.shards)
        rule = make_rule(options.depfile_target or first, chain(depends, sources))
        with create_file(options.depfile, options=options.storage) as sink:
            sink.write(rule if packer.shards else b"")
    if options.manifest is not None:
        with create_file(options.manifest, options=options.storage) as sink:
            write_manifest(sink, packer.done)
    packer.finish()


def _open_shard(output: Output, options: PackOptions, name: str) -> Sink:
    """Open a shard by its name, perhaps in another process."""
    location = parse_output(name, options.storage)
    return output._replace(location=location).open_named(location.text, fresh=not options.force)
