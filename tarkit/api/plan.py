"""Pack a directory tree into shards: choose files, form samples, divide these into shards, write the shards."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.api.chain import at_least, one_of, words
from tarkit.api.output import Output, numbered_output
from tarkit.api.run import Run
from tarkit.errors import Usage, show
from tarkit.packing.batch import Batch
from tarkit.packing.divide import Dirs
from tarkit.packing.layout import PackLayout, hidden
from tarkit.packing.packer import Packer, PackOptions, check_templates
from tarkit.packing.plan import Planned
from tarkit.packing.planner import UNSORTED, Cut, Sort, lay_out, parse_sort
from tarkit.packing.report import plan_notes
from tarkit.packing.resume import next_shards
from tarkit.packing.samples import Keyless, KeyRule, parse_key
from tarkit.packing.transform import OnMissing, Rename, SampleTransform
from tarkit.packing.tree import Symlinks, Tree
from tarkit.shards.limits import DEFAULT_SIZE, Limits, SizeRule, parse_size
from tarkit.shards.patterns import compile_regex
from tarkit.shards.template import ShardTemplate, parse_template
from tarkit.shards.writer import Shard
from tarkit.stores import schemes
from tarkit.streams.location import parse_output
from tarkit.streams.sink import Sink

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, Join, LabelField
    from tarkit.packing.transform import Required
    from tarkit.shards.categories import Map


@dataclass(frozen=True)
class Files:
    """Options that choose files of the tree and their names."""

    keep_root: bool = False
    symlinks: Any = "files"
    prefix: str = ""
    match: re.Pattern[str] | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampleOptions:
    """Options that form samples of files: keys, required fields, added fields."""

    rule: KeyRule
    rename: Any = "none"
    require: Sequence[tuple[bytes, ...]] = ()
    on_missing: OnMissing = "error"
    labels: Sequence[LabelField] = ()
    classes: str | None = None
    classes_out: str | None = None
    join: str | None = None


@dataclass(frozen=True)
class Division:
    """Options that order samples and divide them into shards."""

    count: int | None = None
    size: str | None = None
    size_rule: Any = "tar"
    shards: int | None = None
    even: bool = False
    dirs: Dirs = "pack"
    sort: Sort = UNSORTED

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.even or not (self.count is None and self.size is None and self.shards is None)

    def cut(self, templates: Sequence[ShardTemplate]) -> Cut:
        """Return the division for shards of these names. Raises Usage."""
        shards = self.shards
        if self.even and shards is None:
            shards = templates[0].count
            if shards is None:
                hint = "-n 64, or a limited number of names: -o 'x-{00..63}.tar'"
                raise Usage("--even requires a number of shards", hint)
        size = self.size if self.limited else DEFAULT_SIZE
        limits = Limits(self.count, None if size is None else parse_size(size, "-c"), self.size_rule)
        return Cut(limits, self.dirs, self.sort, shards, self.even)


def parse_files(
    keep_root: bool, symlinks: str, prefix: str | None, match: str | None, exclude: tuple[str, ...]
) -> Files:
    """Return the options that choose files. Raises Usage for an invalid expression."""
    pattern = None
    if match is not None:
        try:
            pattern = compile_regex(match)
        except (re.error, RecursionError, OverflowError) as error:
            raise Usage(f"--match {show(match)}: {error}") from None
    return Files(keep_root, symlinks, prefix or "", pattern, exclude)


def parse_samples(
    key: str,
    last_dot: bool,
    rename: str,
    require: tuple[str, ...],
    on_missing_field: OnMissing,
    label_from_dir: tuple[str, ...],
    classes: str | None,
    classes_out: str | None,
    join: str | None,
) -> SampleOptions:
    """Return the options that form samples. Raises Usage."""
    labels: list[LabelField] = []
    fields: Sequence[tuple[bytes, ...]] = ()
    if label_from_dir:
        from tarkit.packing.labels import parse_label

        labels = [parse_label(word) for word in label_from_dir]
    elif classes or classes_out:
        raise Usage("--classes and --classes-out require --label-from-dir")
    if require:
        from tarkit.packing.transform import parse_required

        fields = parse_required(require)
    rule = parse_key(key, last_dot)
    return SampleOptions(rule, rename, fields, on_missing_field, labels, classes, classes_out, join)


def parse_division(
    count: int | None, size: str | None, size_rule: str, shards: int | None, even: bool, dirs: Any, sort: str | None
) -> Division:
    """Return the division. Raises Usage for limits that exclude each other."""
    found = Division(count, size, size_rule, shards, even, dirs, parse_sort(sort))
    if (shards is not None or even) and (count is not None or size is not None):
        raise Usage("-n and --even cannot be used with -c or -s")
    if (shards is not None or even) and dirs != "pack":
        raise Usage(f"-n and --even cannot be used with --dirs {dirs}")
    if size is not None:
        parse_size(size, "-c")
    return found


class Names(NamedTuple):
    """The names of shards: the template of each category, and the map from files to categories."""

    templates: list[ShardTemplate]
    categories: Map | None = None
    on_unmatched: str = "error"


class Layout(NamedTuple):
    """A plan: the samples of each shard, and the classes if there are labels; `limited` is whether a limit is given."""

    shards: PackLayout
    classes: Classes | None
    limited: bool


Watch = Callable[[Iterator[Batch]], Iterator[Batch]]


def lay_out_tree(
    run: Run,
    root: str,
    files: Files,
    wanted: SampleOptions,
    division: Division,
    names: Names,
    *,
    directory: str | None = None,
    update: bool = False,
    sized: bool = True,
    beside: Iterable[str | None] = (),
    skip_missing: bool = False,
    draw_seed: Callable[[int | None], int] = lambda seed: seed or 0,
) -> Layout:
    """Plan the shards of a directory tree; nothing is written.

    Args:
        directory: that of the output, for temporary files.
        update: plan only samples that are in no shard yet.
        sized: whether the sizes of files are looked up.
        beside: other files that the run reads or writes, which are not packed.
        draw_seed: called with the seed of a shuffle, None if there is none; returns the seed.

    Raises:
        TarkitError: two files would have one name, a file is missing, there are too few names of shards.
    """
    cut = division.cut(names.templates)
    if cut.sort.by == "shuffle":
        cut = replace(cut, sort=cut.sort._replace(seed=draw_seed(cut.sort.seed)))
    tmpdir = run.scratch(directory)
    tmpdir = tmpdir if tmpdir is not None and os.path.isdir(tmpdir) else None
    _check_root(root)
    tree = Tree(
        root,
        files.keep_root,
        files.symlinks,
        os.fsencode(files.prefix),
        files.match,
        files.exclude,
        hidden(root, names.templates, beside),
        sized=sized,
        missing=skip_missing,
    )
    numbers, known = next_shards(names.templates, tmpdir) if update else ([0] * len(names.templates), None)
    transform = _transform(run, wanted, names, tree.source, known, tmpdir)
    layout = PackLayout(tree, names.templates, numbers, tmpdir)
    keyless = lay_out(tree, wanted.rule, transform, cut, layout, tmpdir, _watch(run, tree))
    _report(run, tree, transform, keyless, layout)
    if names.categories is not None:
        run.facts["unmatched"] = transform.unmatched
    return Layout(layout, transform.classes, division.limited)


def _report(run: Run, tree: Tree, transform: SampleTransform, keyless: Keyless, layout: PackLayout) -> None:
    """Report the numbers of files and samples, and what readers of shards may not expect."""
    for text, warning in plan_notes(tree, transform, keyless):
        (run.warn if warning else run.tell)(text)
    run.facts["files"] = tree.files
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {layout.samples} samples, {len(layout)} shards")


def _check_root(root: str) -> None:
    if schemes.scheme_of(root) and not os.path.exists(root):
        what = f"{schemes.public_name(root)}: only local directories can be listed"
        raise Usage(what, "mount it, or copy it here")
    if not os.path.isdir(root):
        os.stat(root)
        raise Usage(f"{root} is not a directory", "for an archive: tarkit split; for a recipe: tarkit create")


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


def pack(
    run: Run,
    rows: Iterable[Planned],
    output: Output,
    options: PackOptions,
    template: ShardTemplate | None = None,
    *,
    digest: bool = False,
    check: Callable[[str], None] = lambda path: None,
    written: Iterable[str] = (),
) -> Packer:
    """Write the shards of a plan; return the packer, which has the list of shards.

    Args:
        output: how each shard is written; their names are those of the rows.
        template: files with a name of it are existing shards; None: files with a name of the plan are.
        digest: whether checksums are made.
        check: called with the path of each shard before anything is written.
        written: other files that the run writes.

    Raises:
        TarkitError: shards of these names exist, or a file differs from the plan.
    """
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
        check(os.path.realpath(parse_output(name).text))
        output.check_time(options.mtime, name)
    packer.check(list(written))
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
    if not packer.done:
        run.tell("no sample, so no shard")
    facts = {"entries": packer.entries, "missing": packer.missing, "kept": packer.kept}
    run.facts.update({name: count for name, count in facts.items() if count})
    run.shards = len(packer.done)
    run.bytes = sum(shard.size for shard in packer.done)
    return packer


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

    Attributes:
        classes: with `label_from_dir`, the names of the classes, by number, after `preview` or `write`.
    """

    def __init__(
        self,
        root: str,
        files: Files,
        samples: SampleOptions,
        division: Division,
        start: Callable[[], Run],
    ) -> None:
        """Use `tarkit.plan`. `start` begins a run."""
        self._root = root
        self._files = files
        self._samples = samples
        self._division = division
        self._start = start
        self.classes: list[str] = []

    def preview(self, template: str | os.PathLike[str] = "shard-%06d.tar") -> list[ShardPreview]:
        """List the tree and return the shards that `write` would make; nothing is written."""
        layout = self._lay_out(self._start(), os.fspath(template), None)[0].shards
        return [ShardPreview(shard.name, shard.samples, shard.content, shard.tar) for shard, _ in layout.shards()]

    def write(
        self,
        template: str | os.PathLike[str],
        *,
        force: bool = False,
        resume: bool = False,
        skip_missing: bool = False,
        mtime: int | None = 0,
        post: str | None = None,
        compress: str | None = None,
        fsync: bool = False,
        processes: int | None = None,
    ) -> list[Shard]:
        """List the tree and write its shards.

        Args:
            template: the names, `"photos-%06d.tar"` or `"photos-{000..099}.tar"`.
            force: replace existing shards.
            resume: keep existing shards that are as planned, and write the rest.
            skip_missing: leave out a sample with a file that disappears before it is read; else it is an error.
            mtime: the time of all entries in seconds since 1970; None is that of each file.
            post: a command that runs after each shard, whose name is in place of `{}`.
            compress, fsync: as for `Dataset.write`.
            processes: how many shards are written at a time; 0 is one per CPU. The default is 1, and up to 4 from
                20 000 files on.

        Returns:
            The shards: name, samples, size of the tar in bytes, sha256, first and last key.

        Raises:
            TarkitError: shards of these names exist, or the options do not fit the files.
        """
        at_least(0, processes=processes)
        template = os.fspath(template)
        run, output = self._start(), numbered_output(template, compress, fsync)
        workers = None if processes is None else processes or os.cpu_count() or 1
        options = PackOptions(workers, force, resume, skip_missing, mtime, post)
        found, names = self._lay_out(run, template, output.directory, options)
        packer = pack(run, found.shards, output, options, names.templates[0], digest=True)
        packer.finish()
        return packer.done

    def _lay_out(
        self, run: Run, template: str, directory: str | None, options: PackOptions | None = None
    ) -> tuple[Layout, Names]:
        names = Names([parse_template(template, "auto")])
        if options is not None:
            check_templates(names.templates, options)
        table = self._samples.join
        layout = lay_out_tree(
            run,
            self._root,
            self._files,
            self._samples,
            self._division,
            names,
            directory=directory,
            beside=(self._samples.classes, None if table is None else table.rpartition(":")[0]),
            skip_missing=options is not None and options.skip_missing,
        )
        self.classes = [] if layout.classes is None else list(map(os.fsdecode, layout.classes.names))
        return layout, names


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
    join: str | None = None,
    match: str | None = None,
    exclude: str | Iterable[str] = (),
    symlinks: Symlinks = "files",
    keep_root: bool = False,
    prefix: str | None = None,
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
) -> Plan:
    """Plan to pack a directory tree into shards. Names of entries are paths below it, in the order of their bytes.

    Args:
        directory: the tree.
        count: how many samples a shard has at most.
        size: how many bytes a shard has at most, as a number or `"500M"`. Without a limit it is 1 GB.
        size_rule: `"tar"`: no tar exceeds `size`; `"content"`: a shard closes once its contents reach it.
        shards: the number of shards, with equally many samples each, or with `even` about equally many bytes.
        even: divide by bytes, into `shards` or as many as the template has names.
        dirs: `"pack"`, `"separate"` or `"collapse"`, as in `tarkit shard --help`.
        sort: `"key"`, `"-key"`, `"shuffle:7"`. Default: the order of the names. The seed of `"shuffle"` is 0.
        key: which files form a sample: `"full"` path up to the first dot, `"base"` name, `"flat"`, or an expression.
        rename: how entries are renamed: `"none"`, `"key"`, `"flat"`.
        require: all fields that a sample may and must have; `"jpg|png"` requires either.
        on_missing: `"error"`, `"warn"`, `"keep"` or `"exclude"`: the action for a sample that lacks one or has others.
        label_from_dir: fields that get the class of a sample, by the directory that it is in: `"cls"`.
        classes: a file with the names of the classes, one a line.
        join: `"TABLE:COLUMN"`: add the other columns of a table as fields; COLUMN has keys or names of files.
        match, exclude, prefix, symlinks, keep_root, last_dot: as the options of `tarkit shard`.
        on_problem, tmpdir: as for `tarkit.open`.

    >>> import tarkit
    >>> [shard.samples for shard in tarkit.plan("photos", count=2).write("photos-%02d.tar")]
    [2, 1]
    """
    at_least(1, count=count, shards=shards)
    _check_words(size_rule, dirs, rename, on_missing, symlinks)
    return Plan(
        os.fspath(directory),
        parse_files(keep_root, symlinks, prefix, match, words(exclude)),
        parse_samples(key, last_dot, rename, words(require), on_missing, words(label_from_dir), classes, None, join),
        parse_division(count, None if size is None else str(size), size_rule, shards, even, dirs, sort),
        lambda: Run(tmpdir=tmpdir, on_problem=on_problem),
    )


def _check_words(size_rule: SizeRule, dirs: Dirs, rename: Rename, on_missing: OnMissing, symlinks: Symlinks) -> None:
    """Raise Usage for an argument that is not one of its words."""
    one_of("size_rule", size_rule, SizeRule)
    one_of("dirs", dirs, Dirs)
    one_of("rename", rename, Rename)
    one_of("on_missing", on_missing, OnMissing)
    one_of("symlinks", symlinks, Symlinks)
