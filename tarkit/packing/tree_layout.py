"""Lay out the shards of a directory tree: list files, form samples, divide these into shards. Nothing is written.

`PlanOptions` says what is packed, `tarkit.packing.tree_names.ShardNames` how shards are called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import Usage, spell
from tarkit.packing.batch import Batch
from tarkit.packing.files import is_remote
from tarkit.packing.layout import PackLayout, hidden
from tarkit.packing.options import Division, Files, SampleOptions
from tarkit.packing.packer import PackOptions, check_templates
from tarkit.packing.planner import OddNames, lay_out, plan_notes
from tarkit.packing.resume import next_shards
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import Tree
from tarkit.packing.tree_names import ShardNames, ShardTemplates
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.limits import no_limit
from tarkit.shards.split import MapOptions
from tarkit.stores import rewrite, schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import split_column

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, Join
    from tarkit.packing.transform import Required


@dataclass(frozen=True)
class PlanOptions:
    """What is packed, and how it is divided into shards.

    Attributes:
        root: the directory.
        files: which files below it.
        samples: how files form samples, and how these are changed.
        division: how many samples or bytes a shard has, and in which order.
        categories: series of shards to which a map assigns the samples.
        update: plan only samples that are in no shard yet.
        draw_seed: called with the seed of a shuffle, None if there is none; returns the seed.
        storage: how URLs of the directory, of its objects and of files to read are reached.

    Raises:
        Usage: some do not go together.
    """

    root: str
    files: Files
    samples: SampleOptions
    division: Division
    categories: MapOptions
    update: bool = False
    draw_seed: Callable[[int | None], int] = lambda seed: seed or 0
    storage: StoreOptions | None = None

    def __post_init__(self) -> None:
        samples, division = self.samples, self.division
        if self.update and samples.classes is None and not all(label.by_name for label in samples.labels):
            hint = f"{spell('classes')} FILE, as {spell('classes_out')} wrote it"
            raise Usage(f"{spell('update')} requires the numbers of the classes", hint)
        if (division.shards is not None or division.even) and self.categories.map is not None:
            raise Usage(f"{spell('shards')} and {spell('even')} cannot be used with {spell('map')}")

    def needs_sizes(self, run: Run, skip_missing: bool) -> bool:
        """Return whether sizes of files are needed before the files are read."""
        division = self.division
        by_size = division.size is not None or division.even or not division.limited
        return by_size or run.shows_progress or self.update or skip_missing


class TreeLayout(NamedTuple):
    """The shards of a directory tree.

    Attributes:
        shards: the samples of each shard.
        templates: those of the names of the shards.
        classes: the classes of the samples, if there are labels.
        class_list: the content of the file of `classes_out`.
    """

    shards: PackLayout
    templates: list[ShardTemplate]
    classes: Classes | None
    class_list: bytes


Watch = Callable[[Iterator[Batch]], Iterator[Batch]]


def lay_out_tree(
    run: Run,
    chosen: PlanOptions,
    names: ShardNames,
    options: PackOptions,
    *,
    writes: bool = False,
    plan: str | None = None,
    recipe: str | None = None,
) -> TreeLayout:
    """Plan the shards of a directory tree; nothing is written. Files that the run reads or writes are not packed.

    Args:
        options: how shards are written.
        writes: whether the shards are written after this.
        plan, recipe: files that get the plan instead.

    Raises:
        TarkitError: two files would have one name, a file is missing, there are too few names of shards.
    """
    if chosen.update and (options.force or options.resume):
        what = f"{spell('update')} adds to existing shards: it cannot be used with"
        raise Usage(f"{what} {spell('force')} or {spell('resume')}")
    found, samples = names.find(run, chosen.categories, chosen.storage), chosen.samples
    if writes:
        check_templates(found.templates, options, chosen.update)
    run.reserve(samples.classes_out, "the list of classes")
    run.reserve(recipe, "the recipe")
    run.reserve(samples.classes, "the list of classes to read", written=False)
    run.reserve(None if samples.join is None else split_column(samples.join)[0], "the table", written=False)
    cut = chosen.division.cut(found.templates)
    if cut.sort.by == "shuffle":
        cut = replace(cut, sort=cut.sort._replace(seed=chosen.draw_seed(cut.sort.seed)))
    tmpdir = run.scratch(names.output.directory)
    tmpdir = tmpdir if tmpdir is not None and os.path.isdir(tmpdir) else None
    root = _root_of(chosen.root, chosen.storage)
    beside = [place.path for place in run.places.values()]
    tree = Tree(
        root,
        chosen.files.keep_root,
        chosen.files.symlinks,
        os.fsencode(chosen.files.prefix),
        chosen.files.match,
        chosen.files.exclude,
        hidden(root, found.templates, [*beside, plan, options.manifest, options.depfile]),
        sized=not (writes or recipe) or chosen.needs_sizes(run, options.skip_missing),
        missing=options.skip_missing,
        tmpdir=tmpdir,
        storage=chosen.storage,
        keep_junk=chosen.files.keep_junk,
        directories=None if options.depfile is None or is_remote(root) else [],
    )
    numbers, known = [0] * len(found.templates), None
    if chosen.update:
        numbers, known = next_shards(found.templates, tmpdir, options.storage)
    transform = _transform(run, chosen, found, tree.source, known, tmpdir)
    layout = PackLayout(tree, found.templates, numbers, tmpdir, transform.gathers)
    odd = lay_out(tree, samples.rule, transform, cut, layout, tmpdir, _watch(run, tree))
    _report(run, tree, transform, odd, layout)
    if not (chosen.division.limited or recipe):
        run.tell(no_limit())
    listed = b"" if samples.classes_out is None or transform.classes is None else transform.classes.lines()
    return TreeLayout(layout, found.templates, transform.classes, listed)


def _report(run: Run, tree: Tree, transform: SampleTransform, odd: OddNames, layout: PackLayout) -> None:
    """Report the numbers of files and samples, and what readers of shards may not expect."""
    for text, warning in plan_notes(tree, transform, odd):
        (run.warn if warning else run.tell)(text)
    run.facts["files"] = tree.files
    if tree.junk.count:
        run.facts["junk"] = tree.junk.count
    if transform.map is not None:
        run.facts["unmatched"] = transform.unmatched
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {layout.samples} samples, {len(layout)} shards")


def _root_of(root: str, storage: StoreOptions | None) -> str:
    """Return the directory of a tree, or its URL after the rules for names. Raises Usage."""
    if is_remote(root):
        [root] = rewrite.rewritten([root])
    scheme = schemes.scheme_of(root)
    if scheme and is_remote(root):
        if not schemes.is_listed(root):
            raise Usage(f"{schemes.public_name(root)}: {scheme}:// cannot be listed", "mount it, or copy it here")
        return f"{scheme}{root[len(scheme) :].rstrip('/')}/"
    if not os.path.isdir(root):
        try:
            os.stat(root)
        except OSError as error:  # without a filename there is no hint to make the directory
            raise OSError(error.errno, f"{root}: {error.strerror}") from None
        raise Usage(f"{root} is not a directory", "for an archive: tarkit split; for a recipe: tarkit create")
    return root


def _transform(
    run: Run,
    chosen: PlanOptions,
    names: ShardTemplates,
    source: Callable[[bytes], bytes],
    known: dict[bytes, int] | None,
    tmpdir: str | None,
) -> SampleTransform:
    """Return the transformation of samples; modules for required fields, tables and labels are loaded when needed."""
    wanted = chosen.samples
    required: Required | None = None
    join: Join | None = None
    classes: Classes | None = None
    if wanted.require:
        from tarkit.packing.transform import Required

        required = Required(wanted.require, wanted.on_missing, wanted.rule.last_dot, run.warn)
    if wanted.join is not None:
        from tarkit.packing.labels import Join

        join = Join(wanted.join, wanted.rule.kind == "base", chosen.storage, run.warn)
    if wanted.labels:
        from tarkit.packing.labels import Classes

        classes = Classes(wanted.labels, wanted.classes, chosen.storage, int(chosen.files.keep_root))
    return SampleTransform(wanted.rule, source, wanted.rename, names.categories, required, join, classes, known, tmpdir)


def _watch(run: Run, tree: Tree) -> Watch:
    """Return a function that shows progress in bytes of the files that were listed."""
    listed = 0

    def counted(batches: Iterator[Batch]) -> Iterator[Batch]:
        nonlocal listed
        for batch in batches:
            listed += len(batch.keys)
            yield batch

    def watch(batches: Iterator[Batch]) -> Iterator[Batch]:
        return run.draw(counted(batches), lambda: tree.content, lambda: listed)

    return watch
