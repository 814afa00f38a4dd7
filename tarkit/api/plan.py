"""Pack a directory tree into shards: choose files, form samples, divide these into shards, write the shards.

`PlanOptions` says what is packed, `ShardNames` how shards are called, `PackOptions` how they are written. One function
plans, `lay_out_tree`; `write_tree`, `save_plan`, `write_recipe` and the command use its layout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from itertools import count as counting
from typing import TYPE_CHECKING, NamedTuple, Unpack

from tarkit.api.chain import at_least, one_of, words
from tarkit.api.output import Output, numbered_output, text_output, written_file
from tarkit.api.run import Run
from tarkit.api.split import CategoryArguments, MapOptions
from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.batch import Batch
from tarkit.packing.divide import Dirs
from tarkit.packing.files import Symlinks, is_remote
from tarkit.packing.layout import PackLayout, hidden, recipe_line
from tarkit.packing.options import Division, Files, SampleOptions, parse_division, parse_files, parse_samples
from tarkit.packing.packer import Packer, PackOptions, check_templates
from tarkit.packing.plan import Planned, SavedPlan, write_plan
from tarkit.packing.planner import lay_out, plan_notes
from tarkit.packing.resume import next_shards
from tarkit.packing.samples import Keyless
from tarkit.packing.transform import OnMissing, Rename, SampleTransform
from tarkit.packing.tree import Tree
from tarkit.shards.limits import SizeRule, no_limit
from tarkit.shards.template import Notation, ShardTemplate, parse_template
from tarkit.shards.writer import Shard, write_manifest
from tarkit.stores import rewrite, schemes
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import ARCHIVE_SUFFIXES, file_location, parse_output
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.text import create_file, open_file_or_stdin, split_column
from tarkit.tables.depfile import make_rule

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, Join
    from tarkit.packing.transform import Required
    from tarkit.shards.categories import Map


DEFAULT_NAME = "shard-%06d"
SUFFIXES = (*ARCHIVE_SUFFIXES, ".zip")
NO_SAMPLE = "no sample, so no shard"


@dataclass(frozen=True)
class PlanOptions:
    """What is packed, how it is divided, and the categories.

    Attributes:
        update: plan only samples that are in no shard yet.
        draw_seed: called with the seed of a shuffle, None if there is none; returns the seed.

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


class ShardNames(NamedTuple):
    """The names of shards as the user gives them.

    Attributes:
        output: how shards are written.
        text: a template; with categories a directory.
        notation: the notation of numbers in templates.
        extension: the suffix of names without one.
    """

    output: Output
    text: str
    notation: Notation
    extension: str

    def find(self, run: Run, categories: MapOptions) -> Names:
        """Return the template of each category, and the map. Raises Usage."""
        if categories.map is None:
            return Names([self._template()])
        directory = self.text.removeprefix("file:")
        if directory in (DEFAULT_NAME, "."):
            directory = ""
        elif not (directory.endswith("/") or os.path.isdir(directory)):
            option = spell("template")
            what = f"with {spell('map')}, {option} is the directory of the shards: the map has their names"
            raise Usage(what, f"for example {option} out/")
        directory += "/" if directory and not directory.endswith("/") else ""
        try:
            found = categories.read(run, directory, self.extension, self.notation)
        except TarkitError as error:
            raise Usage(str(error), error.hint) from None
        return Names([category.template for category in found.categories], found, categories.on_unmatched)

    def _template(self) -> ShardTemplate:
        text = self.text
        if text.endswith("/") or os.path.isdir(text.removeprefix("file:")):
            text = text.rstrip("/") + "/" + DEFAULT_NAME
        if self.output.location.kind not in ("path", "url"):
            hint = f"{spell('post')} runs a command for each: {spell('post', 'scp {} host: && rm {}')}"
            raise Usage("shards are files or objects", hint)
        known = text.lower().endswith(SUFFIXES) or codec_by_suffix(text)
        if text.strip() not in ("", "*") and not known:
            text += self.extension
        return parse_template(text, self.notation)


def shard_names(
    template: str | os.PathLike[str] | None,
    notation: Notation = "auto",
    ext: str | None = None,
    compress: str | None = None,
    fsync: bool = False,
) -> ShardNames:
    """Return the names of shards. Raises Usage for stdout, and for a suffix that is not one of archives."""
    one_of("notation", notation, Notation)
    text = DEFAULT_NAME if template is None else os.fspath(template)
    if text == "-":
        raise Usage("shard writes numbered files, not stdout", f"name them with {spell('output')} 'out-%06d.tar'")
    extension = ".tar" if ext is None else "." + ext.removeprefix(".")
    if extension not in SUFFIXES:
        raise Usage(f"{spell('ext')} {show(ext or '')}: not a suffix of archives", " ".join(SUFFIXES))
    return ShardNames(numbered_output(text, compress, fsync), text, notation, extension)


class Names(NamedTuple):
    """The template of each category, and the map from files to categories."""

    templates: list[ShardTemplate]
    categories: Map | None = None
    on_unmatched: str = "error"


class Layout(NamedTuple):
    """A plan: the samples of each shard, the templates of names, and the classes if there are labels."""

    shards: PackLayout
    templates: list[ShardTemplate]
    classes: Classes | None
    class_list: bytes  # for the file of `classes_out`


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
) -> Layout:
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
    found, samples = names.find(run, chosen.categories), chosen.samples
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
    root = _root_of(chosen.root)
    beside = [path for _, _, path in run.places.values()]
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
    )
    numbers, known = [0] * len(found.templates), None
    if chosen.update:
        numbers, known = next_shards(found.templates, tmpdir)
    transform = _transform(run, samples, found, tree.source, known, tmpdir)
    layout = PackLayout(tree, found.templates, numbers, tmpdir)
    keyless = lay_out(tree, samples.rule, transform, cut, layout, tmpdir, _watch(run, tree))
    _report(run, tree, transform, keyless, layout)
    if not (chosen.division.limited or recipe):
        run.tell(no_limit())
    listed = b"" if samples.classes_out is None or transform.classes is None else transform.classes.lines()
    return Layout(layout, found.templates, transform.classes, listed)


def _report(run: Run, tree: Tree, transform: SampleTransform, keyless: Keyless, layout: PackLayout) -> None:
    """Report the numbers of files and samples, and what readers of shards may not expect."""
    for text, warning in plan_notes(tree, transform, keyless):
        (run.warn if warning else run.tell)(text)
    run.facts["files"] = tree.files
    if transform.map is not None:
        run.facts["unmatched"] = transform.unmatched
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {layout.samples} samples, {len(layout)} shards")


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
        os.stat(root)
        raise Usage(f"{root} is not a directory", "for an archive: tarkit split; for a recipe: tarkit create")
    return root


def _transform(
    run: Run,
    wanted: SampleOptions,
    names: Names,
    source: Callable[[bytes], bytes],
    known: dict[bytes, int] | None,
    tmpdir: str | None,
) -> SampleTransform:
    """Return the transformation of samples; modules for required fields, tables and labels are loaded when needed."""
    required: Required | None = None
    join: Join | None = None
    classes: Classes | None = None
    if wanted.require:
        from tarkit.packing.transform import Required

        required = Required(wanted.require, wanted.on_missing, wanted.rule.last_dot, run.warn)
    if wanted.join is not None:
        from tarkit.packing.labels import Join

        join = Join(wanted.join, wanted.rule.kind == "base")
    if wanted.labels:
        from tarkit.packing.labels import Classes

        classes = Classes(wanted.labels, wanted.classes)
    settings = (wanted.rule, source, wanted.rename, names.categories, required, join, classes, known, tmpdir)
    return SampleTransform(*settings, on_unmatched=names.on_unmatched)


def _watch(run: Run, tree: Tree) -> Watch:
    """Return a function that shows progress in bytes of the files that were listed."""
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


def write_tree(
    run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, digest: bool = True
) -> tuple[Packer, Layout]:
    """Plan the shards of a directory tree and write them; return the packer, whose `done` has them, and the plan."""
    layout = lay_out_tree(run, chosen, names, options, writes=True)
    known = layout.templates[0] if len(layout.templates) == 1 and not chosen.update else None
    packer = pack(run, layout.shards, names.output, options, known, digest=digest)
    _write_classes(chosen, layout)
    return packer, layout


def save_plan(run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, path: str) -> Layout:
    """Plan the shards of a directory tree and write the plan to a file, for `write_saved`; `-` is stdout."""
    layout = lay_out_tree(run, chosen, names, options, plan=path)
    run.reserve(path, "the plan")
    count = counting()
    with open_sink("stdout", "-") if path == "-" else create_file(path) as sink:
        write_plan(sink, (row for row, _ in zip(layout.shards, count, strict=False)))
    count_planned(run, layout)
    run.facts["entries"] = next(count)
    _write_classes(chosen, layout)
    return layout


def write_recipe(run: Run, chosen: PlanOptions, names: ShardNames, options: PackOptions, path: str) -> Layout:
    """Plan the shards of a directory tree and write a recipe for `create` with the files in their order."""
    layout = lay_out_tree(run, chosen, names, options, recipe=path)
    with text_output(path).open() as sink:
        for row in layout.shards:
            sink.write(recipe_line(row))
    if not len(layout.shards):
        run.tell(NO_SAMPLE)
    count_planned(run, layout)
    _write_classes(chosen, layout)
    return layout


def count_planned(run: Run, layout: Layout) -> None:
    """Report the numbers of a plan that is not run."""
    planned = layout.shards
    run.samples, run.shards, run.bytes = planned.samples, len(planned), planned.content


def _write_classes(chosen: PlanOptions, layout: Layout) -> None:
    if chosen.samples.classes_out is not None:
        with create_file(chosen.samples.classes_out) as sink:
            sink.write(layout.class_list)


def write_saved(run: Run, path: str, output: Output, options: PackOptions, digest: bool = True) -> Packer:
    """Write the shards of a saved plan; `-` is stdin. Of `output` only codec, fsync and threads count."""
    if path == "-" and os.isatty(0):
        raise Usage("stdin is a terminal", "name the plan, or pipe one to stdin")
    run.reserve(path, "the plan", written=False)
    location = file_location(path)
    with open_file_or_stdin(path) as lines:
        rows = SavedPlan(lines, location.name)
        return pack(run, rows, output, options, plan=location.text if location.kind == "path" else None, digest=digest)


def pack(
    run: Run,
    rows: Iterable[Planned],
    output: Output,
    options: PackOptions,
    template: ShardTemplate | None = None,
    *,
    plan: str | None = None,
    digest: bool = True,
) -> Packer:
    """Write the shards of a plan, their manifest and depfile; return the packer, which has the list of shards.

    Args:
        output: how each shard is written; their names are those of the rows.
        template: files with a name of it are existing shards; None: files with a name of the plan are.
        plan: the file of the plan.
        digest: whether checksums are made.

    Raises:
        TarkitError: shards of these names exist, or a file differs from the plan.
    """
    run.reserve(options.manifest, "the manifest")
    run.reserve(options.depfile, "the depfile")
    packer = Packer(
        rows,
        options,
        partial(_open_shard, output, not options.force),
        template=template,
        codec=str(output.codec),
        digest=digest,
        counted=run.shows_progress,
        tmpdir=run.scratch(output.directory),
        note=run.note,
        warn=run.warn,
    )
    for name in packer.names:
        location = parse_output(name)
        place = run.places.get(location.text if location.kind == "url" else os.path.realpath(location.text))
        if place:
            raise Usage(f"{place[2]} is {place[0]}, and has the name of a shard")
        output.check_time(options.mtime, name)
    packer.check([path for _, own, path in run.places.values() if own])
    several, first = packer.in_several()
    if several:
        what = f"samples in several shards, or whose entries are not together: {several}, {show(first)} first"
        run.warn(f"{packer.plan_name}: {what}")
    counts = packer.write()
    if run.shows_progress:
        counts = run.draw(counts, packer.position, lambda: run.samples, packer.content)
    for count in counts:
        run.samples += count
    if options.force:
        run.remove_others(packer.stale)
    _finish(run, packer, plan)
    return packer


def _finish(run: Run, packer: Packer, plan: str | None) -> None:
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
        rule = make_rule(options.depfile_target or first, chain([] if plan is None else [os.fsencode(plan)], sources))
        with create_file(options.depfile) as sink:
            sink.write(rule if packer.shards else b"")
    if options.manifest is not None:
        with create_file(options.manifest) as sink:
            write_manifest(sink, packer.done)
    packer.finish()


def _open_shard(output: Output, fresh: bool, name: str) -> Sink:
    """Open a shard by its name, perhaps in another process."""
    location = parse_output(name)
    return replace(output, location=location).open_named(location.text, fresh)


class ShardPreview(NamedTuple):
    """A planned shard: its name, the number of samples, the bytes of their contents, the size of its tar in bytes."""

    name: str
    samples: int
    content: int
    size: int


class Plan:
    """A plan to pack a directory tree; `tarkit.plan` makes one. The tree is listed by each call of a method.

    A template is `"photos-%06d.tar"` or `"photos-{000..099}.tar"`, or an existing directory. With a map it is the
    directory. The default is `"shard-%06d.tar"`.

    Attributes:
        classes: with `label_from_dir`, the names of the classes, by number, after any of the methods.
    """

    def __init__(
        self,
        chosen: PlanOptions | str,
        start: Callable[[], Run],
        notation: Notation = "auto",
        ext: str | None = None,
    ) -> None:
        """Use `tarkit.plan`, or `tarkit.load_plan`, where `chosen` is a file. `start` begins a run."""
        self._chosen = chosen
        self._start = start
        self._naming = notation, ext
        self._names(None)  # raises
        self.classes: list[str] = []

    def preview(self, template: str | os.PathLike[str] | None = None) -> list[ShardPreview]:
        """List the tree and return the shards that `write` would make; nothing is written."""
        return self._previews(lay_out_tree(self._start(), self._tree(), self._names(template), PackOptions()))

    def save(self, path: str | os.PathLike[str], template: str | os.PathLike[str] | None = None) -> list[ShardPreview]:
        """List the tree and save the plan to a file, a table that may be edited; `tarkit.load_plan` reads it."""
        target = str(written_file(path))
        return self._previews(save_plan(self._start(), self._tree(), self._names(template), PackOptions(), target))

    def recipe(self, path: str | os.PathLike[str], template: str | os.PathLike[str] | None = None) -> int:
        """List the tree and write a recipe for `tarkit.create`, with the files in the order of the shards.

        Returns:
            The number of samples.
        """
        run = self._start()
        self._keep_classes(write_recipe(run, self._tree(), self._names(template), PackOptions(), os.fspath(path)))
        return run.samples

    def write(
        self,
        template: str | os.PathLike[str] | None = None,
        *,
        force: bool = False,
        resume: bool = False,
        skip_missing: bool = False,
        mtime: int | None = 0,
        post: str | None = None,
        manifest: str | os.PathLike[str] | None = None,
        depfile: str | os.PathLike[str] | None = None,
        depfile_target: str | None = None,
        compress: str | None = None,
        fsync: bool = False,
        processes: int | None = None,
    ) -> list[Shard]:
        """List the tree and write its shards.

        Args:
            template: the names; none for a plan that was saved, which has them.
            force: replace existing shards.
            resume: keep existing shards that are as planned, and write the rest; objects are read to compare them.
            skip_missing: leave out a sample with a file that disappears before it is read; else it is an error.
            mtime: the time of all entries in seconds since 1970; None is that of each file.
            post: a command that runs after each shard, whose name is in place of `{}`.
            manifest: a file for a table of the shards.
            depfile: a file for the dependencies of the first shard, or of `depfile_target`, for make.
            compress, fsync: as for `Dataset.write`.
            processes: how many shards are written at a time; 0 is one per CPU. The default is 1, and up to 4 from
                20 000 files on.

        Returns:
            The shards: name, samples, size of the tar in bytes, sha256, first and last key.

        Raises:
            TarkitError: shards of these names exist, or the options do not fit the files.
        """
        at_least(0, processes=processes)
        files = written_file(manifest), written_file(depfile), depfile_target
        options = PackOptions(_workers(processes), force, resume, skip_missing, mtime, post, *files)
        names = self._names(template, compress, fsync)
        if isinstance(self._chosen, str):
            if template is not None:
                raise Usage(f"template={template!r}: a saved plan has the names of its shards", "edit the plan instead")
            return write_saved(self._start(), self._chosen, names.output, options).done
        packer, layout = write_tree(self._start(), self._chosen, names, options)
        self._keep_classes(layout)
        return packer.done

    def _names(
        self, template: str | os.PathLike[str] | None, compress: str | None = None, fsync: bool = False
    ) -> ShardNames:
        return shard_names(template, *self._naming, compress, fsync)

    def _tree(self) -> PlanOptions:
        if isinstance(self._chosen, str):
            raise Usage(f"{self._chosen}: a plan that was saved can only be written", "edit the plan instead")
        return self._chosen

    def _previews(self, layout: Layout) -> list[ShardPreview]:
        self._keep_classes(layout)
        found = layout.shards.shards()
        return [ShardPreview(shard.name, shard.samples, shard.content, shard.tar) for shard, _ in found]

    def _keep_classes(self, layout: Layout) -> None:
        self.classes = [] if layout.classes is None else list(map(os.fsdecode, layout.classes.names))


def _workers(processes: int | None) -> int | None:
    return None if processes is None else processes or os.cpu_count() or 1


def plan(
    directory: str | os.PathLike[str],
    *,
    count: int | None = None,
    size: int | str | None = None,
    size_rule: SizeRule = "tar",
    shards: int | None = None,
    even: bool = False,
    dirs: Dirs = "pack",
    sort: str | None = None,
    key: str = "full",
    last_dot: bool = False,
    rename: Rename = "none",
    require: str | Iterable[str] = (),
    on_missing: OnMissing = "error",
    label_from_dir: str | Iterable[str] = (),
    classes: str | None = None,
    classes_out: str | None = None,
    join: str | None = None,
    match: str | None = None,
    exclude: str | Iterable[str] = (),
    symlinks: Symlinks = "files",
    keep_root: bool = False,
    prefix: str | None = None,
    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None,
    update: bool = False,
    ext: str | None = None,
    notation: Notation = "auto",
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    **categories: Unpack[CategoryArguments],
) -> Plan:
    """Plan to pack a directory tree into shards. Names of entries are paths below it, in the order of their bytes.

    Args:
        directory: a directory, or the URL of one: the objects whose URLs begin with it.
        count, size: samples and bytes (a number or `"500M"`) in a shard at most. Without a limit it is 1 GB.
        shards: the number of shards, with equally many samples each, or with `even` about equally many bytes.
        sort: `"key"`, `"-key"`, `"shuffle:7"`. Default: the order of the names. The seed of `"shuffle"` is 0.
        key: which files form a sample: `"full"` path up to the first dot, `"base"` name, `"flat"`, or an expression.
        require: all fields that a sample may and must have, `"jpg|png"` requires either; `on_missing`: the action for
            a sample that lacks one or has others, `"error"`, `"warn"`, `"keep"` or `"exclude"`.
        label_from_dir: fields that get the class of a sample, by the directory that it is in: `"cls"`. `classes` is a
            file with the names of the classes, one a line; they are written to the file `classes_out`.
        join: `"TABLE:COLUMN"`: add the other columns of a table as fields; COLUMN has keys or names of files.
        map, map_sep, first_match, unmatched, on_unmatched, on_bad_line, notation: as for `Dataset.split`.
        update: plan only samples that are in no shard yet. Others: as in `tarkit shard --help-all`.

    >>> import tarkit
    >>> [shard.samples for shard in tarkit.plan("photos", count=2).write("photos-%02d.tar")]
    [2, 1]
    """
    at_least(1, count=count, size=None if isinstance(size, str) else size, shards=shards)
    _check_words(size_rule, dirs, rename, on_missing, symlinks)
    files = parse_files(keep_root, symlinks, prefix, match, words(exclude))
    labels = words(label_from_dir), classes, written_file(classes_out)
    samples = parse_samples(key, last_dot, rename, words(require), on_missing, *labels, join)
    division = parse_division(count, size, size_rule, shards, even, dirs, sort)
    chosen = PlanOptions(os.fspath(directory), files, samples, division, MapOptions(map, **categories), update)
    return Plan(chosen, lambda: Run(tmpdir=tmpdir, on_problem=on_problem), notation, ext)


def load_plan(
    path: str | os.PathLike[str],
    *,
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
) -> Plan:
    """Return a plan that `Plan.save` or `tarkit shard --plan` saved, `"-"` for one on stdin; `write` writes its shards.

    >>> import tarkit
    >>> _ = tarkit.plan("photos", count=2).save("photos.tsv", "photos-%02d.tar")
    >>> [shard.samples for shard in tarkit.load_plan("photos.tsv").write()]
    [2, 1]
    """
    return Plan(os.fspath(path), lambda: Run(tmpdir=tmpdir, on_problem=on_problem))


def _check_words(size_rule: SizeRule, dirs: Dirs, rename: Rename, on_missing: OnMissing, symlinks: Symlinks) -> None:
    """Raise Usage for an argument that is not one of its words."""
    one_of("size_rule", size_rule, SizeRule)
    one_of("dirs", dirs, Dirs)
    one_of("rename", rename, Rename)
    one_of("on_missing", on_missing, OnMissing)
    one_of("symlinks", symlinks, Symlinks)
