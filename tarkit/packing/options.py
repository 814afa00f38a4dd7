"""Options of `shard`: which files, how they form samples, how these are divided, how shards are written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tarkit.arguments import check_at_least
from tarkit.errors import Usage, show, spell
from tarkit.joining.options import JoinOptions, TableInputOptions
from tarkit.joining.spec import NAMES, OnDuplicate
from tarkit.options import Options, row
from tarkit.packing.divide import Dirs, parse_order
from tarkit.packing.files import Symlinks
from tarkit.packing.grouping import parse_key
from tarkit.packing.names import DEFAULT_NAME, shard_output
from tarkit.packing.transform import OnMissing, Rename, parse_required
from tarkit.pipeline.rows import COMPRESS, DEPFILE, FSYNC, MTIME, file_row, processes_row
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.limits import DEFAULT_SIZE, Limits, SizeRule
from tarkit.shards.patterns import compile_regex
from tarkit.shards.rows import (
    COUNT,
    FORCE,
    MANIFEST,
    MAP,
    MAP_SEP,
    SHARDS,
    SIZE_RULE,
    UNMATCHED,
    MapOptions,
    post_row,
    size_row,
    template_row,
)
from tarkit.stores.store import parse_options

if TYPE_CHECKING:
    from tarkit.packing.labels import LabelField


class ShardOptions(Options):
    """The options of `tarkit.shard` and the command `shard`.

    Attributes:
        draw_seed: called with the seed of a shuffle, None if there is none; returns the seed.
        rule: how keys are made.
        pattern: that of `match`.
        required: the names of `require`, each a choice of fields.
        labels: the fields of `label_from_dir`.
        order: the order of samples.
        limits: when a shard is full, unless they are equal.
        categories: the map from names to categories.
        text, output: the names of shards as the user gives them, and how each is written.
        sources, storage: how URLs are reached that are read, and those that are written.
    """

    symlinks: Symlinks = row(
        "Input",
        "--symlinks",
        default="files",
        choices=Symlinks,
        help="Links to follow.",
        more="files: links to files. all: links to directories too. skip: none.",
    )
    match: str | None = row("Input", "--match", metavar="REGEX", help="Only names that contain REGEX.")
    exclude: Sequence[str] = row(
        "Input",
        "--exclude",
        default=(),
        metavar="GLOB",
        help="No names that match GLOB.",
        more="A GLOB without a slash is compared with base names.",
    )
    keep_junk: bool = row(
        "Input",
        "--keep-junk",
        default=False,
        help="Pack files of file managers too.",
        more="Without it .DS_Store, Thumbs.db, desktop.ini, ._* and what is below __MACOSX/ are left out and counted.",
    )
    template: str | os.PathLike[str] | None = template_row(DEFAULT_NAME + ".tar")
    compress: str | None = COMPRESS
    fsync: bool = FSYNC
    count: int | None = COUNT
    size: int | str | None = size_row(f"without -c, -n: {DEFAULT_SIZE}")
    size_rule: SizeRule = SIZE_RULE
    shards: int | None = SHARDS
    even: bool = row(
        "Shards",
        "--even",
        default=False,
        help="Make shards equal in bytes, not in samples.",
        more="Their number is that of -n, else the number of names that TEMPLATE has: 64 for 'x-{00..63}.tar'.",
    )
    dirs: Dirs = row(
        "Shards",
        "--dirs",
        default="pack",
        choices=Dirs,
        metavar="HOW",
        help="Subdirs: pack, separate, collapse.",
        more="pack: directories do not matter. separate: each directory ends a shard. collapse: what does not fill a "
        "shard goes with the directory above.",
    )
    sort: str | None = row("Shards", "--sort", metavar="ORDER", help="Order of samples: key, -key or shuffle:SEED.")
    key: str = row(
        "Samples",
        "--key",
        "-k",
        default="full",
        metavar="RULE",
        help="Key: full, base, flat or REGEX.  [default: full]",
        more="Files are one sample if their paths, base names, or what REGEX leaves of them, are equal up to a dot.",
    )
    last_dot: bool = row(
        "Samples",
        "--last-dot",
        default=False,
        help="Fields begin at the last dot, as in ishard.",
        more="Names of entries stay, and readers end keys at the first dot: --rename key makes them agree.",
    )
    rename: Rename = row(
        "Samples",
        "--rename",
        default="none",
        choices=Rename,
        help="Names of entries.",
        more="key: KEY.FIELD, with _ for each dot in the last part of KEY. flat: the path with _ for each slash.",
    )
    require: Sequence[str] = row(
        "Samples", "--require", default=(), metavar="F1,F2", help="Fields that samples have, and no others."
    )
    on_missing: OnMissing = row(
        "Samples",
        "--on-missing-field",
        default="error",
        choices=OnMissing,
        aliases={"abort": "error", "ignore": "keep", "skip": "exclude"},
        metavar="HOW",
        help="One of error, warn, keep, exclude.",
        more="What to do with a sample that lacks a field of --require: error ends the run, keep keeps it, warn "
        "keeps it with a warning, exclude drops it, and drops fields that --require does not name from the others.",
    )
    label_from_dir: Sequence[str] = row(
        "Samples",
        "--label-from-dir",
        default=(),
        metavar="FIELD",
        help="Add FIELD: the number of the directory.",
        more="It is the first directory below DIR. FIELD:2 is the one below that, FIELD:-1 the innermost one. With "
        "FIELD:name or FIELD:2:name it is the name of the directory. Files of different depth are an error unless "
        "levels count from the innermost.",
    )
    classes: str | None = row(
        "Samples",
        "--classes",
        metavar="FILE",
        role="file",
        help="Number directories by the lines of FILE.",
        more="The default is the order of their names.",
    )
    classes_out: str | None = file_row("Samples", "--classes-out", "Write the names of classes to FILE, in order.")
    join: str | None = JoinOptions.rows["join"]  # type: ignore[assignment]
    join_by: str = JoinOptions.rows["join_by"]  # type: ignore[assignment]
    on_duplicate: OnDuplicate = JoinOptions.rows["on_duplicate"]  # type: ignore[assignment]
    set: str | Sequence[str] | None = TableInputOptions.rows["set"]  # type: ignore[assignment]
    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = MAP
    map_sep: str | None = MAP_SEP
    unmatched: str | None = UNMATCHED
    force: bool = FORCE
    resume: bool = row(
        "Output",
        "--resume",
        default=False,
        help="Continue a run: keep shards that are as planned.",
        more="The command of --post runs for a kept shard too, unless a run with --resume has recorded that it ran.",
    )
    mtime: int | None = MTIME
    post: str | None = post_row("--post")
    manifest: str | None = MANIFEST
    depfile: str | None = DEPFILE
    processes: int | None = processes_row(
        "Output", "Write N shards at a time", None, "The default is 1, and up to 4 from 20000 files on."
    )
    skip_missing: bool = row(
        "Problems",
        "--on-missing",
        default=False,
        choices=("error", "skip"),
        aliases={"error": False, "skip": True},
        help="For a file that is gone.",
        more="skip leaves its sample out.",
    )
    dry_run: bool = row("Plan", "--dry-run", default=False, help="Print the plan, and write nothing.")
    show_keys: bool = row("Plan", "--show-keys", default=False, help="Same, with the keys of samples.")
    recipe: str | os.PathLike[str] | None = row(
        "Plan", "--recipe", metavar="FILE", role="side", help="Write a recipe for create to FILE or -, not shards."
    )
    update: bool = row("Plan", "--update", default=False, help="Pack files that are in no shard yet into new shards.")
    directory: str | os.PathLike[str] = ""
    draw_seed: Callable[[int | None], int] = lambda seed: seed or 0
    storage_options: Mapping[str, object] | None = None
    output_storage_options: Mapping[str, object] | None = None

    def check(self) -> None:
        if sum((self.dry_run or self.show_keys, self.recipe is not None, self.resume)) > 1:
            raise Usage(f"{spell('dry_run')}, {spell('recipe')} and {spell('resume')}: choose one")
        self.sources = self.storage = parse_options(self.storage_options)
        if self.output_storage_options is not None:
            self.storage = parse_options(self.output_storage_options)
        self.categories = MapOptions(self.map, self.map_sep, self.unmatched)
        self.text = DEFAULT_NAME if self.template is None else os.fspath(self.template)
        self.output = shard_output(self.text, self.compress, self.fsync, self.storage)
        self.pattern = None if self.match is None else _parse_match(self.match)
        self._parse_samples()
        self._parse_division()
        if self.update and (self.force or self.resume):
            message = f"{spell('update')} adds to existing shards: it cannot be used with"
            raise Usage(f"{message} {spell('force')} or {spell('resume')}")

    def _parse_samples(self) -> None:
        self.rule = parse_key(self.key, self.last_dot)
        self.labels: Sequence[LabelField] = []
        if self.label_from_dir:
            from tarkit.packing.labels import parse_labels

            self.labels = parse_labels(self.label_from_dir)
        elif self.classes or self.classes_out:
            raise Usage(f"{spell('classes')} and {spell('classes_out')} require {spell('label_from_dir')}")
        self.spec = JoinOptions(join=self.join, join_by=self.join_by, on_duplicate=self.on_duplicate).spec
        if self.join_by not in NAMES:
            words = f"{spell('join_by', self.join_by)}: files of a directory have keys and names: {' or '.join(NAMES)}"
            raise Usage(words, f"cat joins samples of shards by their values: tarkit cat {spell('join')} TABLE:COLUMN")
        self.assignments = TableInputOptions(set=self.set).assignments
        if self.set is not None and self.join is None:
            raise Usage(f"{spell('set')} requires {spell('join')}")
        self.required = parse_required(self.require)
        if self.update and self.classes is None and not all(label.by_name for label in self.labels):
            hint = f"{spell('classes')} FILE, as {spell('classes_out')} wrote it"
            raise Usage(f"{spell('update')} requires the numbers of the classes", hint)

    def _parse_division(self) -> None:
        if self.size is not None and not isinstance(self.size, str):
            check_at_least(1, size=self.size)
        self.order = parse_order(self.sort)
        if self.shards is not None or self.even:
            equal = f"{spell('shards')} and {spell('even')} cannot be used with"
            if self.count is not None or self.size is not None:
                raise Usage(f"{equal} {spell('count')} or {spell('size')}")
            if self.dirs != "pack":
                raise Usage(f"{equal} {spell('dirs', self.dirs)}")
            if self.map is not None:
                raise Usage(f"{equal} {spell('map')}")
        self.limits = Limits.of(self.count, self.size if self.limited else DEFAULT_SIZE, self.size_rule)

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.even or not (self.count is None and self.size is None and self.shards is None)

    @property
    def needs_sizes(self) -> bool:
        """Whether sizes of files are needed before the files are read."""
        by_size = self.size is not None or self.even or not self.limited
        return by_size or self.update or self.skip_missing

    def count_shards(self, template: ShardTemplate) -> int | None:
        """Return the number of shards, if they are to be equal. Raises Usage."""
        if not self.even or self.shards is not None:
            return self.shards
        if template.count is None:
            hint = f"{spell('shards', 64)}, or a limited number of names: {spell('template', 'x-{00..63}.tar')}"
            raise Usage(f"{spell('even')} requires a number of shards", hint)
        return template.count


def _parse_match(match: str) -> re.Pattern[str]:
    try:
        return compile_regex(match)
    except (re.error, RecursionError, OverflowError) as error:
        raise Usage(f"{spell('match')} {show(match)}: {error}") from None
