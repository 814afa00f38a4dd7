"""Pack a directory tree into shards, or write a recipe for it: `tarkit.shard`, and what the command `shard` calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from tarkit.errors import TarkitError, show
from tarkit.joining.spec import OnDuplicate
from tarkit.packing.divide import Dirs
from tarkit.packing.files import Symlinks
from tarkit.packing.options import ShardOptions
from tarkit.packing.packer import Packer
from tarkit.packing.plan import Plan
from tarkit.packing.planner import plan_tree
from tarkit.packing.transform import OnMissing, Rename
from tarkit.pipeline.output import text_output
from tarkit.pipeline.run import Run
from tarkit.shards.limits import SizeRule
from tarkit.shards.writer import Shard, write_manifest
from tarkit.streams.text import check_created, create_file
from tarkit.tables.depfile import make_rule

NO_SAMPLE = "no sample, so no shard"


def shard(
    directory: str | os.PathLike[str],
    template: str | os.PathLike[str] | None = None,
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
    join_by: str = "key",
    on_duplicate: OnDuplicate = "error",
    set: str | Iterable[str] | None = None,
    match: str | None = None,
    exclude: str | Iterable[str] = (),
    keep_junk: bool = False,
    symlinks: Symlinks = "files",
    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None,
    map_sep: str | None = None,
    unmatched: str | None = None,
    update: bool = False,
    force: bool = False,
    resume: bool = False,
    skip_missing: bool = False,
    mtime: int | None = 0,
    post: str | None = None,
    manifest: str | os.PathLike[str] | None = None,
    depfile: str | os.PathLike[str] | None = None,
    compress: str | None = None,
    fsync: bool = False,
    processes: int | None = None,
    dry_run: bool = False,
    recipe: str | os.PathLike[str] | None = None,
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    output_storage_options: Mapping[str, object] | None = None,
) -> list[Shard]:
    """Pack a directory tree into shards. Names of entries are paths below it, in the order of their bytes.

    Args:
        directory: a directory, or the URL of one: the objects whose URLs begin with it.
        template: the names of the shards, `"photos-%06d.tar"` or `"photos-{000..099}.tar"`, or an existing directory;
            with a map the directory. The default is `"shard-%06d.tar"`.
        count, size: samples and bytes (a number or `"500M"`) in a shard at most. Without a limit it is 1 GB.
        shards: the number of shards, with equally many samples each, or with `even` about equally many bytes.
        sort: `"key"`, `"-key"`, `"shuffle:7"`. Default: the order of the names. The seed of `"shuffle"` is 0.
        key: which files form a sample: `"full"` path up to the first dot, `"base"` name, `"flat"`, or an expression.
        require: all fields that a sample may and must have, `"jpg|png"` requires either; `on_missing`: the action for
            a sample that lacks one or has others, `"error"`, `"warn"`, `"keep"` or `"exclude"`.
        label_from_dir: fields that get the class of a sample: `"cls"` the number of the first directory below
            `directory` that it is in, `"cls:2"` of the second, `"cls:-1"` of the innermost; `"cls:name"` the name of
            it. `classes` is a file with the names of the classes, one a line; they are written to the file
            `classes_out`.
        join: `"TABLE:COLUMN"`: add the other columns of a table as fields; COLUMN has keys or names of files. `set`
            says which columns are which fields; `join_by` and `on_duplicate` are as for `Dataset.join`.
        keep_junk: pack files of file managers too: `.DS_Store`, `Thumbs.db`, `desktop.ini`, `._*`, `__MACOSX/`.
        map, map_sep, unmatched: as for `Dataset.split`.
        update: pack only samples that are in no shard yet, into new shards.
        force: replace existing shards.
        resume: keep existing shards that are as planned, and write the rest; objects are read to compare them.
        skip_missing: leave out a sample with a file that disappears before it is read; else it is an error.
        mtime: the time of all entries in seconds since 1970; None is that of each file.
        post: a command that runs after each shard, whose name is in place of `{}`.
        manifest: a file for a table of the shards.
        depfile: a file for the dependencies of the first shard, for make.
        compress, fsync: as for `Dataset.write`.
        processes: how many shards are written at a time; 0 is one per CPU. The default is 1, and up to 4 from
            20 000 files on.
        dry_run: write nothing; the shards that are returned have no checksums.
        recipe: a file for a recipe, with the files in the order of the shards, which `tarkit.create` packs; no shard is
            written.
        storage_options: how URLs are reached, as for `tarkit.open`: those that are read, and those that are written
            unless there are `output_storage_options`. Others: as in `tarkit shard --help-all`.

    Returns:
        The shards: name, samples, size of the tar in bytes, sha256, first and last key. None with a recipe.

    Raises:
        TarkitError: shards of these names exist, or the options do not fit the files.

    >>> import tarkit
    >>> [shard.samples for shard in tarkit.shard("photos", "photos-%02d.tar", count=2)]
    [2, 1]
    """
    options = ShardOptions.of(locals())
    run = Run(tmpdir=tmpdir, on_problem=on_problem)
    if recipe is not None:
        write_recipe(run, options, os.fspath(recipe))
        return []
    if dry_run:
        plan = plan_tree(run, options)
        return [shard.written(shard.length) for shard in plan.shards]
    return write_shards(run, options)


def write_shards(run: Run, options: ShardOptions, digest: bool = True) -> list[Shard]:
    """Plan the shards of a directory tree and write them, with their manifest and depfile; return the shards.

    `digest` says whether checksums are made.
    """
    plan = plan_tree(run, options, writes=True)
    if plan.error is not None:
        raise plan.error
    run.reserve(options.manifest, "the manifest")
    run.reserve(options.depfile, "the depfile")
    for path in (options.manifest, options.depfile):
        check_created(path, options.storage)
    packer = Packer(run, plan, options, digest)
    packer.check()
    packer.write()
    _finish(run, plan, options, packer)
    _write_classes(options, plan)
    return packer.done


def _finish(run: Run, plan: Plan, options: ShardOptions, packer: Packer) -> None:
    """Count what was written; write depfile and manifest, after the last shard."""
    if not packer.done:
        run.tell(NO_SAMPLE)
    run.facts.update(+packer.facts)
    run.shards = len(packer.done)
    run.bytes = sum(shard.size for shard in packer.done)
    if options.depfile is not None:
        with create_file(options.depfile, options=options.storage) as sink:
            if plan.shards:
                sink.write(make_rule(plan.shards[0].name, chain(plan.tree.directory_paths(), plan.paths())))
    if options.manifest is not None:
        with create_file(options.manifest, options=options.storage) as sink:
            write_manifest(sink, packer.done)
    packer.finish()


def write_recipe(run: Run, options: ShardOptions, path: str) -> None:
    """Plan the shards of a directory tree and write a recipe for `create` with the files in their order."""
    plan = plan_tree(run, options, recipe=path)
    with text_output(path, options=options.storage).open() as sink:
        for batch in chain.from_iterable(map(plan.batches, plan.shards)):
            sink.writev(list(map(_recipe_line, batch.names, batch.sources)))
    count_planned(run, plan)
    _write_classes(options, plan)


def _recipe_line(name: bytes, source: bytes) -> bytes:
    """Return a line of a recipe. Raises TarkitError if it would not be one."""
    line = b"%b\t%b" % (name, source)
    if b"\n" in line or line.count(b"\t") > 1 or line.endswith(b"\r") or line.startswith(b"# "):
        raise TarkitError(f"{show(name)} cannot be a line of a recipe", "rename the file")
    return line + b"\n"


def count_planned(run: Run, plan: Plan) -> None:
    """Set the numbers of the run to those of a plan of which no shard is written."""
    if not plan.shards:
        run.tell(NO_SAMPLE)
    run.samples, run.shards, run.bytes = plan.samples, len(plan.shards), plan.content


def _write_classes(options: ShardOptions, plan: Plan) -> None:
    if options.classes_out is not None:
        with create_file(options.classes_out, options=options.storage) as sink:
            sink.write(plan.class_list)
