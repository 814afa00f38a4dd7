"""Options of `shard`: which files, how they are grouped into samples, how these are divided, how shards are written."""

from __future__ import annotations

import click

from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.packing.options import parse_division, parse_files, parse_samples
from tarkit.packing.packer import PackOptions
from tarkit.packing.tree_names import DEFAULT_NAME, shard_names
from tarkit.pipeline.arguments import parse_processes
from tarkit.shards.limits import DEFAULT_SIZE


def _pack_options(
    parallel: int | None,
    force: bool,
    resume: bool,
    on_missing: str,
    mtime: str | None,
    post: str | None,
    manifest: str | None,
    depfile: str | None,
    depfile_target: str | None,
) -> PackOptions:
    writers = None if parallel is None else parse_processes(parallel)
    time, skip = options.parse_mtime(mtime), on_missing == "skip"
    return PackOptions(writers, force, resume, skip, time, post, manifest, depfile, depfile_target)


names_options = options.group(
    "names",
    shard_names,
    options.shard_names(DEFAULT_NAME + ".tar"),
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
    option(
        "Input",
        "--keep-junk",
        is_flag=True,
        help="Pack files of file managers too.",
        more="Without it .DS_Store, Thumbs.db, desktop.ini, ._* and what is below __MACOSX/ are left out and counted.",
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
        more="key: KEY.FIELD, with _ for each dot in the last part of KEY. flat: the path with _ for each slash.",
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
        more="It is the first directory below DIR. FIELD:2 is the one below that, FIELD:-1 the innermost one. With "
        "FIELD:name or FIELD:2:name it is the name of the directory. Files of different depth are an error unless "
        "levels count from the innermost.",
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
pack_options = options.group(
    "pack",
    _pack_options,
    options.FORCE,
    option("Output", "--resume", is_flag=True, help="Continue a run: keep shards that are as planned."),
    options.MTIME,
    options.post("--post"),
    options.MANIFEST,
    options.DEPFILE,
    options.DEPFILE_TARGET,
    option(
        "Output",
        "-p",
        "--parallel",
        type=click.IntRange(0),
        metavar="N",
        help="Write N shards at a time; 0: one per CPU.",
        more="The default is 1, and up to 4 from 20000 files on.",
    ),
    choice(
        "Problems",
        "--on-missing",
        choices="error|skip",
        help="For a file that is gone.",
        more="skip leaves its sample out.",
    ),
)
