"""`tarkit.plan`: pack a directory tree into shards. `tarkit.load_plan`: the same with a plan that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Unpack

from tarkit.errors import Usage
from tarkit.packing.divide import Dirs
from tarkit.packing.files import Symlinks
from tarkit.packing.options import parse_division, parse_files, parse_samples
from tarkit.packing.packer import PackOptions
from tarkit.packing.transform import OnMissing, Rename
from tarkit.packing.tree_layout import PlanOptions, TreeLayout, lay_out_tree
from tarkit.packing.tree_names import ShardNames, shard_names
from tarkit.packing.tree_pack import save_plan, save_recipe, write_saved, write_tree
from tarkit.pipeline.arguments import check_at_least, check_choice, list_words, parse_processes
from tarkit.pipeline.output import written_path
from tarkit.pipeline.run import Run
from tarkit.shards.limits import SizeRule
from tarkit.shards.split import CategoryArguments, MapOptions
from tarkit.shards.writer import Shard
from tarkit.stores.store import StoreOptions, parse_options


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
        storage: StoreOptions | None = None,
    ) -> None:
        """Use `tarkit.plan`, or `tarkit.load_plan`, where `chosen` is a file, reached as `storage` says. `start` begins
        a run."""
        self._chosen = chosen
        self._start = start
        self._storage = storage
        self._names(None)  # raises
        self.classes: list[str] = []

    def preview(
        self,
        template: str | os.PathLike[str] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> list[ShardPreview]:
        """List the tree and return the shards that `write` would make; nothing is written."""
        options = PackOptions(storage=parse_options(storage_options))
        names = self._names(template, storage=options.storage)
        return self._previews(lay_out_tree(self._start(), self._tree(), names, options))

    def save(
        self,
        path: str | os.PathLike[str],
        template: str | os.PathLike[str] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> list[ShardPreview]:
        """List the tree and save the plan to a file, a table that may be edited; `tarkit.load_plan` reads it.

        `storage_options` say how the URLs of the file and of existing shards are reached.
        """
        options = PackOptions(storage=parse_options(storage_options))
        names, target = self._names(template, storage=options.storage), written_path(path)
        return self._previews(save_plan(self._start(), self._tree(), names, options, target))

    def recipe(
        self,
        path: str | os.PathLike[str],
        template: str | os.PathLike[str] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> int:
        """List the tree and write a recipe for `tarkit.create`, with the files in the order of the shards.

        Returns:
            The number of samples.
        """
        run, options = self._start(), PackOptions(storage=parse_options(storage_options))
        names = self._names(template, storage=options.storage)
        self._keep_classes(save_recipe(run, self._tree(), names, options, os.fspath(path)))
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
        storage_options: Mapping[str, object] | None = None,
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
            storage_options: how URLs of shards, manifest and depfile are reached, as for `Dataset.write`; what is read
                has those of `tarkit.plan` or `tarkit.load_plan`.

        Returns:
            The shards: name, samples, size of the tar in bytes, sha256, first and last key.

        Raises:
            TarkitError: shards of these names exist, or the options do not fit the files.
        """
        workers = None if processes is None else parse_processes(processes)
        files = written_path(manifest), written_path(depfile), depfile_target
        storage = parse_options(storage_options)
        options = PackOptions(workers, force, resume, skip_missing, mtime, post, *files, storage)
        names = self._names(template, compress, fsync, storage)
        if isinstance(self._chosen, str):
            if template is not None:
                raise Usage(f"template={template!r}: a saved plan has the names of its shards", "edit the plan instead")
            return write_saved(self._start(), self._chosen, names.output, options, storage=self._storage).done
        packer, layout = write_tree(self._start(), self._chosen, names, options)
        self._keep_classes(layout)
        return packer.done

    def _names(
        self,
        template: str | os.PathLike[str] | None,
        compress: str | None = None,
        fsync: bool = False,
        storage: StoreOptions | None = None,
    ) -> ShardNames:
        return shard_names(template, compress, fsync, storage=storage)

    def _tree(self) -> PlanOptions:
        if isinstance(self._chosen, str):
            raise Usage(f"{self._chosen}: a plan that was saved can only be written", "edit the plan instead")
        return self._chosen

    def _previews(self, layout: TreeLayout) -> list[ShardPreview]:
        self._keep_classes(layout)
        found = layout.shards.shards()
        return [ShardPreview(shard.name, shard.samples, shard.content, shard.tar) for shard, _ in found]

    def _keep_classes(self, layout: TreeLayout) -> None:
        self.classes = [] if layout.classes is None else list(map(os.fsdecode, layout.classes.names))


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
    keep_junk: bool = False,
    symlinks: Symlinks = "files",
    keep_root: bool = False,
    prefix: str | None = None,
    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None,
    update: bool = False,
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
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
        label_from_dir: fields that get the class of a sample: `"cls"` the number of the first directory below
            `directory` that it is in, `"cls:2"` of the second, `"cls:-1"` of the innermost; `"cls:name"` the name of
            it. `classes` is a file with the names of the classes, one a line; they are written to the file
            `classes_out`.
        join: `"TABLE:COLUMN"`: add the other columns of a table as fields; COLUMN has keys or names of files.
        map, map_sep, unmatched: as for `Dataset.split`.
        keep_junk: pack files of file managers too: `.DS_Store`, `Thumbs.db`, `desktop.ini`, `._*`, `__MACOSX/`.
        storage_options: how URLs of the directory, its objects and files to read are reached, as for `tarkit.open`.
        update: plan only samples that are in no shard yet. Others: as in `tarkit shard --help-all`.

    >>> import tarkit
    >>> [shard.samples for shard in tarkit.plan("photos", count=2).write("photos-%02d.tar")]
    [2, 1]
    """
    check_at_least(1, count=count, size=None if isinstance(size, str) else size, shards=shards)
    _check_words(size_rule, dirs, rename, on_missing, symlinks)
    files = parse_files(keep_root, symlinks, prefix, match, list_words(exclude), keep_junk)
    labels = list_words(label_from_dir), classes, written_path(classes_out)
    samples = parse_samples(key, last_dot, rename, list_words(require), on_missing, *labels, join)
    division = parse_division(count, size, size_rule, shards, even, dirs, sort)
    series, storage = MapOptions(map, **categories), parse_options(storage_options)
    chosen = PlanOptions(os.fspath(directory), files, samples, division, series, update, storage=storage)
    return Plan(chosen, lambda: Run(tmpdir=tmpdir, on_problem=on_problem))


def load_plan(
    path: str | os.PathLike[str],
    *,
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Plan:
    """Return a plan that `Plan.save` or `tarkit shard --plan` saved, `"-"` for one on stdin; `write` writes its shards.

    `storage_options` say how URLs of the plan and of the objects in it are reached, as for `tarkit.open`.

    >>> import tarkit
    >>> _ = tarkit.plan("photos", count=2).save("photos.tsv", "photos-%02d.tar")
    >>> [shard.samples for shard in tarkit.load_plan("photos.tsv").write()]
    [2, 1]
    """
    storage = parse_options(storage_options)
    return Plan(os.fspath(path), lambda: Run(tmpdir=tmpdir, on_problem=on_problem), storage=storage)


def _check_words(size_rule: SizeRule, dirs: Dirs, rename: Rename, on_missing: OnMissing, symlinks: Symlinks) -> None:
    """Raise Usage for an argument that is not one of its words."""
    check_choice("size_rule", size_rule, SizeRule)
    check_choice("dirs", dirs, Dirs)
    check_choice("rename", rename, Rename)
    check_choice("on_missing", on_missing, OnMissing)
    check_choice("symlinks", symlinks, Symlinks)
