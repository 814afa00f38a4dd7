"""From a tree of files to a plan of shards: list, group, transform, sort, divide, and report what is in it.

Errors are reported here, before any shard is written: two entries of one name, too few names of shards, missing fields.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.divide import SampleOrder, collapse, equal, level, of_each, ordered, pack, weigh
from tarkit.packing.files import is_remote
from tarkit.packing.grouping import attach, by_key, in_directories, ranked
from tarkit.packing.names import check_templates, find_templates, hidden, next_shards
from tarkit.packing.options import ShardOptions
from tarkit.packing.plan import Plan
from tarkit.packing.planned import PlannedBatch, PlannedSample, batched
from tarkit.packing.transform import Required, SampleTransform
from tarkit.packing.tree import CountedNames, Tree
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.limits import Limits, no_limit
from tarkit.sizes import plural
from tarkit.spill.records import SpilledList
from tarkit.stores import rewrite, schemes
from tarkit.streams.location import ARCHIVE_SUFFIXES
from tarkit.streams.text import split_column

FIRST = 20
"""Files in a directory that are looked at for a warning about shards as files."""

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, FieldsOfTable
    from tarkit.shards.categories import Map


def plan_tree(run: Run, options: ShardOptions, *, writes: bool = False, recipe: str | None = None) -> Plan:
    """Plan the shards of a directory tree; nothing is written. Files that the run reads or writes are not packed.

    Args:
        run: gets messages.
        options: what is packed.
        writes: whether the shards are written after this.
        recipe: the file that gets a recipe instead.

    Raises:
        TarkitError: two files would have one name, a file is missing, there are too few names of shards.
    """
    templates, categories = find_templates(run, options.text, options.output, options.categories, options.sources)
    tree, tmpdir = _tree(run, options, templates, writes, recipe)
    shards = options.count_shards(templates[0])
    numbers, packed = [0] * len(templates), None
    order = options.order
    if order.by == "shuffle":
        order = order._replace(seed=options.draw_seed(order.seed))
    if options.update:
        numbers, packed = next_shards(templates, tmpdir, options.storage)
    transform = _transform(run, options, categories, tree, packed, tmpdir)
    plan = Plan(tree, templates, numbers, tmpdir, transform.gathers)
    _fill(run, plan, options, shards, order, transform)
    _report(run, plan, transform)
    if not (options.limited or recipe):
        run.tell(no_limit())
    if options.classes_out is not None and transform.classes is not None:
        plan.class_list = transform.classes.lines()
    return plan


def _tree(
    run: Run, options: ShardOptions, templates: Sequence[ShardTemplate], writes: bool, recipe: str | None
) -> tuple[Tree, str | None]:
    """Return the tree without the files of the run, and the directory of temporary files."""
    if writes:
        check_templates(templates, options.force or options.resume or options.update, options.storage)
    run.reserve(options.classes_out, "the list of classes")
    run.reserve(recipe, "the recipe")
    run.reserve(options.classes, "the list of classes to read", written=False)
    run.reserve(None if options.join is None else split_column(options.join)[0], "the table", written=False)
    tmpdir = run.scratch(options.output.directory)
    tmpdir = tmpdir if tmpdir is not None and os.path.isdir(tmpdir) else None
    root = _root_of(os.fspath(options.directory))
    beside = [*(place.path for place in run.places.values()), options.manifest, options.depfile]
    tree = Tree(
        root,
        options.symlinks,
        options.pattern,
        options.exclude,
        hidden(root, templates, beside),
        sized=not (writes or recipe) or options.needs_sizes or run.shows_progress,
        missing=options.skip_missing,
        tmpdir=tmpdir,
        storage=options.sources,
        keep_junk=options.keep_junk,
        directories=None if options.depfile is None or is_remote(root) else [],
    )
    return tree, tmpdir


def _root_of(root: str) -> str:
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
    options: ShardOptions,
    categories: Map | None,
    tree: Tree,
    packed: dict[bytes, int] | None,
    tmpdir: str | None,
) -> SampleTransform:
    """Return the transformation of samples; modules for required fields, tables and labels are loaded when needed."""
    required: Required | None = None
    join: FieldsOfTable | None = None
    classes: Classes | None = None
    if options.required:
        required = Required(options.required, options.on_missing, options.last_dot, run.warn)
    if options.spec is not None:
        from tarkit.packing.labels import FieldsOfTable

        spec = options.spec._replace(storage=options.sources)
        spec = spec._replace(by="stem") if options.rule.kind == "base" else spec
        join = FieldsOfTable(spec, options.assignments, run, tmpdir)
    if options.labels:
        from tarkit.packing.labels import Classes

        classes = Classes(options.labels, options.classes, options.sources)
    settings = (options.rule, tree.source, options.rename, categories, required, join, classes, packed, tmpdir)
    return SampleTransform(*settings)


# ---- From files to shards


def _fill(
    run: Run, plan: Plan, options: ShardOptions, shards: int | None, order: SampleOrder, transform: SampleTransform
) -> None:
    """Fill a plan with all samples of its tree, and divide them into shards: `shards` equal ones, or by limits."""
    tree, tmpdir, rule, dirs, keyless = plan.tree, plan.tmpdir, options.rule, options.dirs, plan.keyless
    if rule.kind == "full":  # all files of a sample are in one directory
        tree.together, tree.scattered = rule.stem, rule.last_dot
        batches = in_directories(tree, keyless, rule.last_dot)
    else:
        batches = batched(by_key(tree, rule, keyless, tmpdir))
    batches = _watch(run, tree, batches if rule.may_have_dots else plan.dotted.watch(batches))
    sorts = order.by != "none" or dirs != "pack" or transform.map is not None
    if transform.needed or sorts:
        samples: Iterator[PlannedSample] = (sample for batch in batches for sample in batch.samples())
        samples = _transformed(samples, transform, tmpdir)
        batches = batched(ordered(samples, order, dirs != "pack", tmpdir) if sorts else samples)
    renames = transform.rename != "none"
    batches = attach(batches, lambda: renames or keyless.count > 0, transform.keyless_out)
    if shards is not None:
        _divide(batches, shards, options.even, plan)
    elif dirs == "collapse":
        collapse(batches, options.limits, plan)
    else:
        pack(batches, options.limits, dirs == "separate", plan)
    transform.close()
    if tree.files and keyless.count == tree.files and not plan.samples:
        message = f"no file has a key, {show(keyless.first)} is the first of {tree.files}: there is no sample"
        raise TarkitError(
            message, "a key ends at the first dot of a file name, which is not its first character: rename"
        )


def _watch(run: Run, tree: Tree, batches: Iterator[PlannedBatch]) -> Iterator[PlannedBatch]:
    """Show progress in bytes of the files that were listed."""
    listed = 0

    def counted() -> Iterator[PlannedBatch]:
        nonlocal listed
        for batch in batches:
            listed += len(batch.keys)
            yield batch

    return run.draw("planning", counted(), lambda: tree.content, lambda: listed)


def _transformed(
    samples: Iterator[PlannedSample], transform: SampleTransform, tmpdir: str | None
) -> Iterator[PlannedSample]:
    samples, classes = transform.apply(samples), transform.classes
    if classes is None:
        return samples
    if classes.open:
        records: SpilledList[PlannedSample] = SpilledList(tmpdir)
        for sample in samples:
            records.append(sample)
        samples = iter(records)
    classes.close()
    return classes.filled(samples)


def _divide(batches: Iterator[PlannedBatch], shards: int, even: bool, plan: Plan) -> None:
    """Divide samples into shards of equal numbers, and with `even` of nearly equal sizes."""
    sizes = array("Q")
    records: SpilledList[PlannedSample] = SpilledList(plan.tmpdir)
    for batch in batches:
        if even:
            sizes.extend(of_each(weigh(batch)[1]))
        records.extend(list(batch.samples()))
    total = len(records)
    if 0 < total < shards:
        raise TarkitError(f"{plural(total, 'sample')} cannot fill {plural(shards, 'shard')}", "choose fewer shards")
    samples: Iterable[PlannedSample] = records
    if even and total:
        chosen = level(sizes, shards)
        samples = ranked(
            ((number.to_bytes(4, "big"), sample) for number, sample in zip(chosen, records, strict=True)), plan.tmpdir
        )
    pack(batched(samples), Limits(), False, plan, filter(None, equal(total, shards)))


# ---- Messages: what was left out, and what readers of the shards may not expect


def _report(run: Run, plan: Plan, transform: SampleTransform) -> None:
    """Report the numbers of files and samples, and what readers of shards may not expect."""
    tree, rule, required = plan.tree, transform.rule, transform.required
    for words, names in sorted(tree.skipped.items()):
        run.tell(f"left out, {words}: {_shown(names)}")
    if tree.junk.count:
        run.tell(f"left out, files of file managers: {_shown(tree.junk)}; {spell('keep_junk')} packs them")
    if rule.unmatched:
        words = f"{spell('key')}: names without a match, which are their own keys"
        run.warn(f"{words}: {rule.unmatched} of {tree.files}")
    if transform.unmatched.count:
        words = f"samples in no category, left out: {_shown(transform.unmatched)}"
        run.warn(f"{words}; {spell('unmatched')} packs them")
    if required is not None and required.lacking + required.others:
        counts = f"samples that lack a field: {required.lacking}; files of other fields: {required.others}"
        run.warn(f"{spell('require')}: {counts}")
    if transform.join is not None:
        run.facts["join"], text = transform.join.counts.summary()
        run.tell(text)
    _report_update(run, transform)
    if transform.parted.count:
        first = show(transform.parted.first)
        words = f"readers would split {plural(transform.parted.count, 'sample')}, {first} first"
        run.warn(f"{words}: their entries have different paths; {spell('rename', 'key')} makes each one sample")
    if transform.shared.count:
        words = f"keys that readers find in several samples, perhaps in several shards: {_shown(transform.shared)}"
        more = "" if transform.rename == "key" else f"; {spell('rename', 'key')} names entries after their sample"
        run.warn(words + more)
    if transform.keyless_out.count:
        run.warn(f"files without a key, left out since no sample goes with them: {_shown(transform.keyless_out)}")
    if plan.keyless.count:
        words = f"names without a key, with no dot or a leading one: {_shown(plan.keyless)}"
        run.warn(f"{words}; they are no samples, and go with the sample that follows")
    if (parts := plan.dotted.parts_of_names(plan.samples)) is not None:
        fields, example = parts
        words = f"fields with a dot, {fields}, such as {show(example)}"
        way = f"{spell('last_dot')} {spell('rename', 'key')}"
        run.warn(f"{words}: they are probably parts of names; {way} ends keys at the last dot")
    if tree.files and not tree.remote and _holds_archives(tree.root):
        words = "all files are archives, and are packed as they are"
        run.warn(f"{tree.root}: {words}; for the samples in them: tarkit split, cat or mix")
    run.facts["files"] = tree.files
    if tree.junk.count:
        run.facts["junk"] = tree.junk.count
    if transform.map is not None:
        run.facts["unmatched"] = transform.unmatched.count
    content = f" of {plural(tree.content, 'byte')}" if tree.sized else ""
    run.note(
        f"{plural(tree.files, 'file')}{content}, {plural(plan.samples, 'sample')}, {plural(len(plan.shards), 'shard')}"
    )


def _holds_archives(root: str) -> bool:
    """Return whether the first of the files in a directory are archives, and nothing else is there."""
    with os.scandir(root) as entries:
        first = list(islice((entry for entry in entries if not entry.name.startswith(".")), FIRST))
        return bool(first) and all(entry.name.lower().endswith(ARCHIVE_SUFFIXES) and entry.is_file() for entry in first)


def _report_update(run: Run, transform: SampleTransform) -> None:
    if transform.packed is not None:
        none = "" if transform.packed else "; there are no shards of this name"
        run.tell(f"{spell('update')}: samples that are in shards already: {transform.packed_samples}{none}")
        if transform.packed and not transform.packed_samples:
            words = f"no file of the tree is in the shards; were they made with another {spell('rename')} or DIR?"
            run.warn(f"{spell('update')}: {words}")
    if transform.changed.count:
        words = f"files with another size than in the shards, which stay: {_shown(transform.changed)}"
        run.warn(f"{spell('update')}: {words}")


def _shown(names: CountedNames) -> str:
    return f"{names.count}, {show(names.first)} first"
