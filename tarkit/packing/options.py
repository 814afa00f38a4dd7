"""Options of a plan: which files are packed, how they form samples, and how these are divided into shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tarkit.errors import Usage, show, spell
from tarkit.packing.divide import Dirs
from tarkit.packing.planner import UNSORTED, Cut, Sort, parse_sort
from tarkit.packing.samples import KeyRule, parse_key
from tarkit.packing.transform import OnMissing
from tarkit.pipeline.template import ShardTemplate
from tarkit.shards.limits import DEFAULT_SIZE, Limits, parse_size
from tarkit.shards.patterns import compile_regex

if TYPE_CHECKING:
    from tarkit.packing.labels import LabelField


@dataclass(frozen=True)
class Files:
    """Options that choose files of the tree and their names."""

    keep_root: bool = False
    symlinks: Any = "files"
    prefix: str = ""
    match: re.Pattern[str] | None = None
    exclude: tuple[str, ...] = ()
    keep_junk: bool = False


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
                hint = f"{spell('shards', 64)}, or a limited number of names: {spell('template', 'x-{00..63}.tar')}"
                raise Usage(f"{spell('even')} requires a number of shards", hint)
        size = self.size if self.limited else DEFAULT_SIZE
        limits = Limits(self.count, None if size is None else parse_size(size, spell("count")), self.size_rule)
        return Cut(limits, self.dirs, self.sort, shards, self.even)


def parse_files(
    keep_root: bool,
    symlinks: str,
    prefix: str | None,
    match: str | None,
    exclude: tuple[str, ...],
    keep_junk: bool,
) -> Files:
    """Return the options that choose files. Raises Usage for an invalid expression."""
    pattern = None
    if match is not None:
        try:
            pattern = compile_regex(match)
        except (re.error, RecursionError, OverflowError) as error:
            raise Usage(f"{spell('match')} {show(match)}: {error}") from None
    return Files(keep_root, symlinks, prefix or "", pattern, exclude, keep_junk)


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
        from tarkit.packing.labels import parse_labels

        labels = parse_labels(label_from_dir)
    elif classes or classes_out:
        raise Usage(f"{spell('classes')} and {spell('classes_out')} require {spell('label_from_dir')}")
    if require:
        from tarkit.packing.transform import parse_required

        fields = parse_required(require)
    rule = parse_key(key, last_dot)
    return SampleOptions(rule, rename, fields, on_missing_field, labels, classes, classes_out, join)


def parse_division(
    count: int | None,
    size: int | str | None,
    size_rule: str,
    shards: int | None,
    even: bool,
    dirs: Any,
    sort: str | None,
) -> Division:
    """Return the division. Raises Usage for limits that exclude each other."""
    size = None if size is None else str(size)
    found = Division(count, size, size_rule, shards, even, dirs, parse_sort(sort))
    equal = f"{spell('shards')} and {spell('even')} cannot be used with"
    if (shards is not None or even) and (count is not None or size is not None):
        raise Usage(f"{equal} {spell('count')} or {spell('size')}")
    if (shards is not None or even) and dirs != "pack":
        raise Usage(f"{equal} {spell('dirs', dirs)}")
    if size is not None:
        parse_size(size, spell("count"))
    return found
