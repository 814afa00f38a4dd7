"""Options of `shard`: which files, how they are grouped into samples, how these are divided, names of shards."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tarkit.api.output import Output, numbered_output
from tarkit.cli import options
from tarkit.cli.category_options import MapOptions
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun
from tarkit.errors import TarkitError, Usage, show
from tarkit.packing.divide import Dirs
from tarkit.packing.planner import UNSORTED, Cut, Sort, parse_sort
from tarkit.packing.samples import KeyRule, parse_key
from tarkit.shards.limits import DEFAULT_SIZE, Limits, parse_size
from tarkit.shards.patterns import compile_regex
from tarkit.shards.template import ShardTemplate, parse_template
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import ARCHIVE_SUFFIXES

if TYPE_CHECKING:
    from tarkit.packing.labels import LabelField
    from tarkit.packing.transform import OnMissing
    from tarkit.shards.categories import Map

DEFAULT_NAME = "shard-%06d"
SUFFIXES = (*ARCHIVE_SUFFIXES, ".zip")


@dataclass(frozen=True)
class Files:
    """Which files of the tree are packed, and their names."""

    keep_root: bool = False
    symlinks: Any = "files"
    prefix: str = ""
    match: re.Pattern[str] | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampleOptions:
    """Which files are one sample, and the fields that it must have or gets."""

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
    """How samples are ordered and divided into shards."""

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


@dataclass(frozen=True)
class ShardNames:
    """Names of shards: one template, or a map with one for each category."""

    output: Output
    text: str
    template: Any
    extension: str

    def templates(self, run: ConsoleRun, map_: MapOptions) -> tuple[list[ShardTemplate], Map | None]:
        """Return the templates of all categories, and the map. Raises Usage."""
        if map_.spec is None:
            return [self._template()], None
        folder = self.text.removeprefix("file:")
        if folder in (DEFAULT_NAME, "."):
            folder = ""
        elif not (folder.endswith("/") or os.path.isdir(folder)):
            raise Usage("with --map, -o is the directory of the shards: the map has their names", "for example -o out/")
        folder += "/" if folder and not folder.endswith("/") else ""
        try:
            found = map_.read(run, folder, self.extension, self.template)
        except TarkitError as error:
            raise Usage(str(error), error.hint) from None
        return [category.template for category in found.categories], found

    def _template(self) -> ShardTemplate:
        text = self.text
        if text.endswith("/") or os.path.isdir(text.removeprefix("file:")):
            text = text.rstrip("/") + "/" + DEFAULT_NAME
        if text.startswith("pipe:"):
            raise Usage(
                "shards are files", "--post runs a command for each: --post 'aws s3 cp {} s3://bucket/ && rm {}'"
            )
        known = text.lower().endswith(SUFFIXES) or codec_by_suffix(text)
        if text.strip() not in ("", "*") and not known:
            text += self.extension
        return parse_template(text, self.template)


def _files(keep_root: bool, symlinks: str, prefix: str | None, match: str | None, exclude: tuple[str, ...]) -> Files:
    pattern = None
    if match is not None:
        try:
            pattern = compile_regex(match)
        except (re.error, RecursionError, OverflowError) as error:
            raise Usage(f"--match {show(match)}: {error}") from None
    return Files(keep_root, symlinks, prefix or "", pattern, exclude)


def _samples(
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


def _division(
    count: int | None, size: str | None, size_rule: str, shards: int | None, even: bool, dirs: Any, sort: str | None
) -> Division:
    found = Division(count, size, size_rule, shards, even, dirs, parse_sort(sort))
    if (shards is not None or even) and (count is not None or size is not None):
        raise Usage("-n and --even cannot be used with -c or -s")
    if (shards is not None or even) and dirs != "pack":
        raise Usage(f"-n and --even cannot be used with --dirs {dirs}")
    if size is not None:
        parse_size(size, "-c")
    return found


def _names(
    output: str | None,
    template: str,
    ext: str | None,
    compress: str | None,
    fsync: bool,
) -> ShardNames:
    words = DEFAULT_NAME if output is None else output
    if words == "-":
        raise Usage("shard writes numbered files, not stdout", "name them with -o 'out-%06d.tar'")
    extension = ".tar" if ext is None else "." + ext.removeprefix(".")
    if extension not in SUFFIXES:
        raise Usage(f"--ext {show(ext or '')}: not a suffix of archives", " ".join(SUFFIXES))
    return ShardNames(numbered_output(words, compress, fsync), words, template, extension)


names_options = options.group(
    "names",
    _names,
    *options.shard_names(DEFAULT_NAME + ".tar"),
    option("Output", "--ext", metavar="SUFFIX", help="Suffix of bare names: tgz, zip.  [default: .tar]"),
)
files_options = options.group(
    "files",
    _files,
    option("Input", "--keep-root", is_flag=True, help="Begin names with the name of DIR itself."),
    choice(
        "Input",
        "--symlinks",
        choices="files|all|skip",
        help="Links to follow.",
        more="Those to files; those to directories too; or none.",
    ),
    option("Input", "--prefix", metavar="TEXT", help="Only names that begin with TEXT."),
    option("Input", "--match", metavar="REGEX", help="Only names that contain REGEX."),
    option(
        "Input",
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="No names that match GLOB.",
        more="A GLOB without a slash is compared with base names.",
    ),
)
samples_options = options.group(
    "samples",
    _samples,
    option(
        "Samples",
        "-k",
        "--key",
        default="full",
        metavar="RULE",
        help="Key: full, base, flat or REGEX.  [default: full]",
        more="Files are one sample if their paths, base names, or what REGEX leaves of them, are equal up to a dot.",
    ),
    option("Samples", "--last-dot", is_flag=True, help="Fields begin at the last dot, as in ishard."),
    choice(
        "Samples",
        "--rename",
        choices="none|key|flat",
        help="Names of entries.",
        more="key: KEY.FIELD. flat: the path with _ for each slash.",
    ),
    option("Samples", "--require", multiple=True, metavar="F1,F2", help="Fields that samples have, and no others."),
    choice(
        "Samples",
        "--on-missing-field",
        choices="error|warn|keep|exclude",
        aliases={"abort": "error", "ignore": "keep", "skip": "exclude"},
        metavar="HOW",
        help="Else: error, warn, keep, exclude.",
        more="What becomes of samples without a field of --require; exclude drops other fields too.",
    ),
    option(
        "Samples",
        "--label-from-dir",
        multiple=True,
        metavar="FIELD",
        help="Add FIELD: the number of the directory.",
        more="With FIELD:name it is the name of the directory.",
    ),
    option(
        "Samples",
        "--classes",
        metavar="FILE",
        help="Number directories by the lines of FILE.",
        more="The default is the order of their names.",
    ),
    options.written("--classes-out", "Write those names to FILE, in order.", section="Samples"),
    option(
        "Samples",
        "--join",
        metavar="TABLE:COLUMN",
        help="Add the other columns of TABLE as fields.",
        more="COLUMN has keys or file names.",
    ),
)
division_options = options.group(
    "division",
    _division,
    option("Shards", "-c", "--count", type=click.IntRange(1), metavar="N", help="At most N samples in a shard."),
    option(
        "Shards",
        "-s",
        "--size",
        metavar="SIZE",
        help=f"At most SIZE bytes.  [default without -c, -n: {DEFAULT_SIZE}]",
        more="SIZE is 500M, 16MiB or 1e9.",
    ),
    options.SIZE_RULE,
    option("Shards", "-n", "--shards", type=click.IntRange(1), metavar="N", help="N shards with equally many samples."),
    option(
        "Shards",
        "--even",
        is_flag=True,
        help="Equally many bytes too.",
        more="Without -n there are as many shards as TEMPLATE has names.",
    ),
    choice(
        "Shards",
        "--dirs",
        choices="pack|separate|collapse",
        metavar="HOW",
        help="Subdirs: pack, separate, collapse.",
        more="Directories do not matter; or each ends a shard; or what does not fill one goes to the directory above.",
    ),
    option("Shards", "--sort", metavar="ORDER", help="Order of samples: key, -key or shuffle:SEED."),
)
