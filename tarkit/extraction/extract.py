"""Unpack samples into a directory; names that lead out of it are errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from tarkit.arguments import check_choice, check_seconds
from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.extraction.directory import OutputDirectory
from tarkit.extraction.extraction import Extraction, way_out
from tarkit.options import Options, row
from tarkit.pipeline.archive import with_columns_told
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import and_archives, status_of, total_size
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import refuse_braces
from tarkit.problems import ALL
from tarkit.samples.dataset import is_plain_file
from tarkit.samples.sample import singly
from tarkit.stores.schemes import refuse_url

FileTime = Literal["source", "now"]


class ExtractOptions(Options):
    """The options of `Dataset.extract` and the command `extract`.

    Attributes:
        time: that of files, in nanoseconds since 1970; -1 is that of each entry, None the current time.
    """

    directory: str = row(
        "Output",
        "-C",
        "--directory",
        metavar="DIR",
        role="output",
        required=True,
        help="Directory, made if missing.  [required]",
        parse=os.fspath,
    )
    force: bool = row("Output", "--force", default=False, help="Replace existing files.")
    mtime: FileTime | int = row(
        "Output",
        "--mtime",
        metavar="WHEN",
        default="source",
        help="File times: source, now or @SECONDS.  [default: source]",
    )

    def check(self) -> None:
        if isinstance(self.mtime, str):
            check_choice("mtime", self.mtime, FileTime)
            self.time = None if self.mtime == "now" else -1
        else:
            check_seconds(mtime=self.mtime)
            self.time = self.mtime * 10**9


def extract(
    data: Chain, run: Run, options: ExtractOptions, *, reserved: Sequence[str] = (), report: str | None = None
) -> int:
    """Write the samples of a dataset to files; return the number of files.

    Args:
        reserved: files that are read, and so are not replaced.
        report: a file that is written besides.

    Raises:
        TarkitError: files of these names are there, and no `force`.
        Problem: `unsafe-name`, unless the policy skips it: an unsafe entry is never extracted.
    """
    directory, force = options.directory, options.force
    policy = run.policy
    if "unsafe-name" in policy.allowed:
        if not policy.allowed >= ALL:
            allow, skip = spell("allow", "unsafe-name"), spell("skip", "unsafe-name")
            raise Usage(f"{allow}: what is unsafe is never extracted", f"{skip} leaves it out")
        policy.allowed -= {"unsafe-name"}
    policy.strict = frozenset(("unsafe-name",))
    _check_directory(directory)
    taken = [
        status_of(path)
        for path in (
            *(location.text for location in and_archives(data.locations) if location.kind == "path"),
            *reserved,
        )
    ]
    inputs = {(status.st_dev, status.st_ino) for status in [os.fstat(0), *taken] if status is not None}
    temporary = directory if os.path.isdir(directory) else None
    with OutputDirectory(directory, force, inputs) as output:
        extraction = Extraction(output, policy, options.time)
        if report is not None:
            below = os.path.relpath(os.path.realpath(report), os.path.realpath(directory))
            extraction.reserved = os.fsencode(below)
        twice = all(map(is_plain_file, data.locations))
        batches, flow = data.batches(run, moves=False, directory=temporary, spool=twice and data.opaque)
        with flow:
            flow.refuse_repeats()
            if twice:
                extraction.policy = policy.silent()
                for sample in singly(flow.reread(extraction.policy)):
                    extraction.plan(sample)
                if extraction.existing and not force:
                    raise _in_the_way(output, extraction)
                extraction.policy = policy
            extraction.begin()
            batches = with_columns_told(batches, data, flow)
            for sample in run.watch("writing", singly(batches), lambda: extraction.written, total_size(data.locations)):
                extraction.write(sample)
            flow.finish()
    run.bytes = extraction.written
    run.facts["files"] = extraction.files
    return extraction.files


def _check_directory(directory: str) -> None:
    """Raise Usage when files cannot be extracted to a path of this name."""
    if not directory:
        raise Usage("the name of the directory is empty", "is a shell variable unset?")
    refuse_url(directory, "directory")
    if not os.path.exists(directory):
        refuse_braces(directory, "make the directory first if that is its name")
    elif not os.path.isdir(directory):
        raise Usage(f"{spell('directory')} {show(directory)}: it is a file, not a directory")


def _in_the_way(output: OutputDirectory, extraction: Extraction) -> TarkitError:
    first = os.fsdecode(os.path.join(output.path, extraction.first))
    more = f" and {extraction.existing - 1} more" if extraction.existing > 1 else ""
    hint = way_out(first, f"{spell('force')} replaces them, {spell('directory')} names another directory")
    return TarkitError(f"{first}{more}: there are files of these names", hint)
