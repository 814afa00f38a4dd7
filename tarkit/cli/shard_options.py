"""Options of `shard`: which files, how they are grouped into samples, how these are divided, names of shards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tarkit.api.output import Output, numbered_output
from tarkit.api.plan import Names, parse_division, parse_files, parse_samples
from tarkit.api.shards import MapOptions
from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun
from tarkit.errors import TarkitError, Usage, show
from tarkit.shards.limits import DEFAULT_SIZE
from tarkit.shards.template import ShardTemplate, parse_template
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import ARCHIVE_SUFFIXES

if TYPE_CHECKING:
    pass

DEFAULT_NAME = "shard-%06d"
SUFFIXES = (*ARCHIVE_SUFFIXES, ".zip")


@dataclass(frozen=True)
class ShardNames:
    """Names of shards: one template, or a map with one for each category."""

    output: Output
    text: str
    template: Any
    extension: str

    def names(self, run: ConsoleRun, map_: MapOptions) -> Names:
        """Return the templates of all categories, and the map. Raises Usage."""
        if map_.map is None:
            return Names([self._template()])
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
        return Names([category.template for category in found.categories], found, map_.on_unmatched)

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
    options.shard_names(DEFAULT_NAME + ".tar"),
    option("Output", "--ext", metavar="SUFFIX", help="Suffix of bare names: tgz, zip.  [default: .tar]"),
)
files_options = options.group(
    "files",
    parse_files,
    option("Input", "--keep-root", is_flag=True, help="Begin names with the name of DIR itself."),
    choice(
        "Input",
        "--symlinks",
        choices="files|all|skip",
        help="Links to follow.",
        more="files: links to files. all: links to directories too. skip: none.",
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
    parse_samples,
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
        help="One of error, warn, keep, exclude.",
        more="What to do with a sample that lacks a field of --require: error ends the run, keep keeps it, warn "
        "keeps it with a warning, exclude drops it, and drops fields that --require does not name from the others.",
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
    options.written("--classes-out", "Write the names of classes to FILE, in order.", section="Samples"),
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
    parse_division,
    option("Shards", "-c", "--count", type=click.IntRange(1), metavar="N", help="Count: at most N samples in a shard."),
    option(
        "Shards",
        "-s",
        "--size",
        metavar="SIZE",
        help=f"Size limit in bytes.  [default without -c, -n: {DEFAULT_SIZE}]",
        more="SIZE is a number such as 500M, 16MiB or 1e9.",
    ),
    options.SIZE_RULE,
    option(
        "Shards",
        "-n",
        "--shards",
        type=click.IntRange(1),
        metavar="N",
        help="Number of shards, with equally many samples.",
    ),
    option(
        "Shards",
        "--even",
        is_flag=True,
        help="Make shards equal in bytes, not in samples.",
        more="Their number is that of -n, else the number of names that TEMPLATE has: 64 for 'x-{00..63}.tar'.",
    ),
    choice(
        "Shards",
        "--dirs",
        choices="pack|separate|collapse",
        metavar="HOW",
        help="Subdirs: pack, separate, collapse.",
        more="pack: directories do not matter. separate: each directory ends a shard. collapse: what does not fill a "
        "shard goes with the directory above.",
    ),
    option("Shards", "--sort", metavar="ORDER", help="Order of samples: key, -key or shuffle:SEED."),
)
