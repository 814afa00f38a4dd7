"""Options of `shard`: which files, how they form samples, how these are divided, how shards are written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import Usage, show, spell
from tarkit.packing.divide import Dirs
from tarkit.packing.files import Symlinks
from tarkit.packing.names import ShardNames, shard_names
from tarkit.packing.order import SampleOrder, parse_order
from tarkit.packing.samples import KeyRule, parse_key
from tarkit.packing.transform import OnMissing, Rename, parse_required
from tarkit.pipeline.arguments import check_at_least, check_choice, parse_processes
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.limits import DEFAULT_SIZE, Limits, SizeRule, parse_size
from tarkit.shards.patterns import compile_regex
from tarkit.shards.split import MapOptions
from tarkit.stores.store import StoreOptions, parse_options

if TYPE_CHECKING:
    from tarkit.packing.labels import LabelField


class Division(NamedTuple):
    """How samples are divided: by limits, or into `shards` of equal number."""

    limits: Limits
    shards: int | None


@dataclass(eq=False, repr=False)
class ShardOptions:
    """The arguments of `tarkit.shard`, which are the options of the command `shard`.

    Attributes:
        draw_seed: called with the seed of a shuffle, None if there is none; returns the seed.
        rule: how keys are made.
        pattern: that of `match`.
        required: the names of `require`, each a choice of fields.
        labels: the fields of `label_from_dir`.
        order: the order of samples.
        names: the names of shards, and how each is written.
        sources, storage: how URLs are reached that are read, and those that are written.

    Raises:
        Usage: some are invalid, or do not go together.
    """

    directory: str
    template: str | os.PathLike[str] | None = None
    count: int | None = None
    size: int | str | None = None
    size_rule: SizeRule = "tar"
    shards: int | None = None
    even: bool = False
    dirs: Dirs = "pack"
    sort: str | None = None
    key: str = "full"
    last_dot: bool = False
    rename: Rename = "none"
    require: Sequence[str] = ()
    on_missing: OnMissing = "error"
    label_from_dir: Sequence[str] = ()
    classes: str | None = None
    classes_out: str | None = None
    join: str | None = None
    match: str | None = None
    exclude: Sequence[str] = ()
    keep_junk: bool = False
    symlinks: Symlinks = "files"
    categories: MapOptions = field(default_factory=MapOptions)
    update: bool = False
    force: bool = False
    resume: bool = False
    skip_missing: bool = False
    mtime: int | None = 0
    post: str | None = None
    manifest: str | None = None
    depfile: str | None = None
    compress: str | None = None
    fsync: bool = False
    processes: int | None = None
    storage_options: Mapping[str, object] | None = None
    output_storage_options: Mapping[str, object] | None = None
    draw_seed: Callable[[int | None], int] = lambda seed: seed or 0
    rule: KeyRule = field(init=False)
    pattern: re.Pattern[str] | None = field(init=False)
    required: Sequence[tuple[bytes, ...]] = field(init=False)
    labels: Sequence[LabelField] = field(init=False)
    order: SampleOrder = field(init=False)
    names: ShardNames = field(init=False)
    sources: StoreOptions | None = field(init=False)
    storage: StoreOptions | None = field(init=False)

    def __post_init__(self) -> None:
        for name, words in (("size_rule", SizeRule), ("dirs", Dirs), ("rename", Rename), ("symlinks", Symlinks)):
            check_choice(name, getattr(self, name), words)
        check_choice("on_missing", self.on_missing, OnMissing)
        self.processes = None if self.processes is None else parse_processes(self.processes)
        self.sources = self.storage = parse_options(self.storage_options)
        if self.output_storage_options is not None:
            self.storage = parse_options(self.output_storage_options)
        self.names = shard_names(self.template, self.compress, self.fsync, storage=self.storage)
        self.pattern = None if self.match is None else _parse_match(self.match)
        self._parse_samples()
        self._parse_division()
        if self.update and (self.force or self.resume):
            what = f"{spell('update')} adds to existing shards: it cannot be used with"
            raise Usage(f"{what} {spell('force')} or {spell('resume')}")

    def _parse_samples(self) -> None:
        self.rule = parse_key(self.key, self.last_dot)
        self.labels = []
        if self.label_from_dir:
            from tarkit.packing.labels import parse_labels

            self.labels = parse_labels(self.label_from_dir)
        elif self.classes or self.classes_out:
            raise Usage(f"{spell('classes')} and {spell('classes_out')} require {spell('label_from_dir')}")
        self.required = parse_required(self.require)
        if self.update and self.classes is None and not all(label.by_name for label in self.labels):
            hint = f"{spell('classes')} FILE, as {spell('classes_out')} wrote it"
            raise Usage(f"{spell('update')} requires the numbers of the classes", hint)

    def _parse_division(self) -> None:
        size = None if isinstance(self.size, str) else self.size
        check_at_least(1, count=self.count, size=size, shards=self.shards)
        self.order = parse_order(self.sort)
        if self.shards is not None or self.even:
            equal = f"{spell('shards')} and {spell('even')} cannot be used with"
            if self.count is not None or self.size is not None:
                raise Usage(f"{equal} {spell('count')} or {spell('size')}")
            if self.dirs != "pack":
                raise Usage(f"{equal} {spell('dirs', self.dirs)}")
            if self.categories.map is not None:
                raise Usage(f"{equal} {spell('map')}")
        if self.size is not None:
            parse_size(str(self.size), spell("count"))

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.even or not (self.count is None and self.size is None and self.shards is None)

    @property
    def needs_sizes(self) -> bool:
        """Whether sizes of files are needed before the files are read."""
        by_size = self.size is not None or self.even or not self.limited
        return by_size or self.update or self.skip_missing

    def division(self, templates: Sequence[ShardTemplate]) -> Division:
        """Return the division for shards of these names. Raises Usage."""
        shards = self.shards
        if self.even and shards is None:
            shards = templates[0].count
            if shards is None:
                hint = f"{spell('shards', 64)}, or a limited number of names: {spell('template', 'x-{00..63}.tar')}"
                raise Usage(f"{spell('even')} requires a number of shards", hint)
        size = self.size if self.limited else DEFAULT_SIZE
        parsed = None if size is None else parse_size(str(size), spell("count"))
        return Division(Limits(self.count, parsed, self.size_rule), shards)


def _parse_match(match: str) -> re.Pattern[str]:
    try:
        return compile_regex(match)
    except (re.error, RecursionError, OverflowError) as error:
        raise Usage(f"{spell('match')} {show(match)}: {error}") from None
