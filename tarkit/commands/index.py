"""tarkit index: index files that other tools read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import click

from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import Run, current
from tarkit.cli.output import Output, refuse_overwrite, status_of, total_size
from tarkit.errors import TarkitError, Usage
from tarkit.indexing import formats as wids
from tarkit.indexing.formats import FORMATS, index_path, is_index, make_layout
from tarkit.indexing.scan import Index, may_replace, open_shard, write_indexes
from tarkit.indexing.verify import faults, wids_faults
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.shards.template import refuse_template
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink

EXAMPLES = (
    "tarkit index shards/ --format dali",
    "tarkit index 'train-{000..099}.tar' --format wids,webshart -p 4",
    "tarkit index shards/ --format dali --verify",
)
COST = (
    "One pass over the headers, for all formats together; contents are not read, but for --md5. Memory does not grow "
    "with the shard, but with the index for --verify and for parquet; indexes over 1 MiB take temporary space."
)


@dataclass
class IndexOptions:
    """Which indexes, where, and what to do with those that are there."""

    formats: list[str]
    output: str | None = None
    parallel: int = 1
    verify: bool = False
    md5: bool = False
    force: bool = False
    fsync: bool = False


class IndexTask(NamedTuple):
    """One shard, and what is to be made of it: format, path and kind of each output."""

    location: Location
    indexes: list[tuple[str, str, str]]
    allowed: frozenset[str]
    skipped: frozenset[str]
    maxerr: int
    md5: bool = False
    tmpdir: str | None = None
    sync: bool = False


class Done(NamedTuple):
    """What came of it."""

    samples: int
    size: int
    dropped: int
    md5: str
    counts: dict[str, int]
    skipped: dict[str, int]
    said: list[str]


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Index N shards at a time.")
@option("Output", "-o", "--output", metavar="OUT", help="File, or directory.  [default: beside the shards]")
@option("Output", "--force", is_flag=True, help="Replace files that are not such indexes.")
@options.FSYNC
@option("Index", "-f", "--format", "formats", multiple=True, metavar="FORMAT", help=f"Formats: {', '.join(FORMATS)}.")
@option("Index", "--verify", is_flag=True, help="Write nothing: compare indexes with their shards.")
@option("Index", "--md5", is_flag=True, help="Add the MD5 of each shard to a wids index.")
@options.problems
def index(
    inputs: list[Location],
    formats: tuple[str, ...],
    output: str | None,
    parallel: int,
    verify: bool,
    md5: bool,
    force: bool,
    fsync: bool,
    policy: Policy,
) -> None:
    """Write index files that other tools read.

    For X.tar: dali X.idx, energon X.tar.idx, webshart X.json, tsv X.index.tsv, parquet X.index.parquet; wids has one
    shardindex.json for all shards. The tables have a row for each field: its key, name, offset, size, and the offset of
    its first header.

    Regular files with a key are listed. An existing index is replaced, another file of that name is not. Shards must be
    plain archives. --verify ends with status 1 when it finds a fault, each on a line of stdout.
    """
    chosen = list(dict.fromkeys(" ".join(formats).replace(",", " ").split()))
    unknown = [name for name in chosen if name not in FORMATS]
    if unknown or not (chosen or verify):
        raise Usage(f"--format {unknown[0]}: no such format" if unknown else "--format is missing", " ".join(FORMATS))
    if md5 and "wids" not in chosen:
        raise Usage("--md5 requires --format wids")
    given = IndexOptions(chosen, output, parallel, verify, md5, force, fsync)
    (run_verify if verify else run_index)(current(), inputs, given, policy)


def run_index(run: Run, locations: list[Location], chosen: IndexOptions, policy: Policy) -> None:
    """Write the indexes of all shards."""
    jobs, listed = _jobs(run, locations, chosen, policy)
    taken: dict[str, str] = {}
    outputs = [(name, path, kind) for job in jobs for name, path, kind in job.indexes]
    for name, path, kind in [*outputs, *([("wids", *listed)] if listed else [])]:
        if kind == "path":
            if os.path.realpath(path) in taken:
                raise Usage(f"{path} would be two indexes", "name another folder with -o, or make one at a time")
            taken[os.path.realpath(path)] = path
            run.reserve(path, f"the {name} index")
            refuse_overwrite(status_of(path), locations)
            if not chosen.force:
                may_replace(path, wids.is_wids if name == "wids" else partial(is_index, name), name)
    shards = []
    results = zip(jobs, results_in_order(_make, jobs, chosen.parallel), strict=True)
    for job, done in (
        run.draw(results, lambda: run.bytes, lambda: run.samples, total_size(locations))
        if (run.shows_progress)
        else results
    ):
        _account(run, done)
        for name, path, _ in job.indexes:
            run.note(f"{path}: the {name} index, samples: {done.samples}")
        if listed:
            shards.append(
                wids.IndexedShard(wids.url_of(job.location.text, listed[0]), done.samples, done.size, done.md5)
            )
    if listed:
        with open_sink(listed[1], listed[0], sync=chosen.fsync) as sink:
            sink.write(wids.spell_wids(shards))
        run.note(f"{listed[0]}: the wids index, shards: {len(shards)}")
    run.facts["indexes"] = len(outputs) + bool(listed)
    run.finish()


def run_verify(run: Run, locations: list[Location], chosen: IndexOptions, policy: Policy) -> None:
    """Print what is wrong with the indexes that are there; raises TarkitError when something is."""
    found, any_format = 0, not chosen.formats
    if any_format:
        chosen.formats = _present(locations, chosen)
    jobs, listed = _jobs(run, locations, chosen, policy)
    if any_format:
        jobs = [job._replace(indexes=[each for each in job.indexes if os.path.exists(each[1])]) for job in jobs]
    with open_sink("stdout", "-") as sink:
        for lines in results_in_order(_judge, jobs, chosen.parallel):
            run.shards += 1
            for line in lines:
                sink.write(os.fsencode(line) + b"\n")
                found += 1
        if listed:
            shards = []
            for job, done in zip(jobs, results_in_order(_make, _counting(jobs), chosen.parallel), strict=True):
                _account(run, done, shards=0)
                shards.append(
                    wids.IndexedShard(wids.url_of(job.location.text, listed[0]), done.samples, done.size, done.md5)
                )
            for line in wids_faults(listed[0], shards):
                sink.write(os.fsencode(line) + b"\n")
                found += 1
    run.facts["faults"] = found
    run.finish()
    if found:
        what = "1 fault" if found == 1 else f"{found} faults"
        raise TarkitError(
            f"{what} in the indexes of {len(jobs)} shards", "tarkit index without --verify makes new ones"
        )


def _present(locations: list[Location], chosen: IndexOptions) -> list[str]:
    """The formats of which there is an index beside one of the shards; raises TarkitError when there is none."""
    folder = chosen.output or ""
    texts = [location.text for location in locations]
    formats = [
        name
        for name in FORMATS
        if name != "wids" and any(os.path.exists(index_path(name, text, folder or None)) for text in texts)
    ]
    path = os.path.join(folder, wids.NAME) if folder else wids.list_path(texts)
    if path and os.path.exists(path):
        formats.append("wids")
    if not formats:
        raise TarkitError("there is no index to verify", "tarkit index --format makes some")
    return formats


def _jobs(
    run: Run, locations: list[Location], chosen: IndexOptions, policy: Policy
) -> tuple[list[IndexTask], tuple[str, str] | None]:
    """The work, a shard at a time, and where the list for wids goes: path and kind."""
    for location in locations:
        open_shard(location).close()
    each = [name for name in chosen.formats if name != "wids"]
    folder, one = None, None
    if chosen.output is not None:
        one = parse_output(chosen.output)
        if one.kind == "path" and (chosen.output.endswith("/") or os.path.isdir(one.text)):
            if not os.path.isdir(one.text):
                raise FileNotFoundError(2, os.strerror(2), one.text)
            folder, one = one.text, None
    if chosen.output is not None and one is not None:
        refuse_template(chosen.output, "a directory that is there takes all: -o DIR/")
        if len(each) * len(locations) + ("wids" in chosen.formats) != 1:
            raise Usage(f"-o {chosen.output}: there will be several indexes", "name a folder that is there")
    if one is not None and each and each[0] in ("energon", "parquet"):
        Output(one, None).refuse_terminal(f"an index for {each[0]}")
    jobs = []
    for location in locations:
        outputs = [(name, index_path(name, location.text, folder), "path") for name in each]
        if one is not None:
            outputs = [(name, one.text, one.kind) for name in each]
        for name, path, _ in outputs:
            if path == location.text:
                raise Usage(f"{location.name}: its {name} index would have its own name")
        tmpdir = run.tmpdir or os.environ.get("TMPDIR") or folder or os.path.dirname(os.path.abspath(location.text))
        jobs.append(
            IndexTask(
                location, outputs, policy.allowed, policy.skipped, policy.maxerr, chosen.md5, tmpdir, chosen.fsync
            )
        )
    if "wids" not in chosen.formats:
        return jobs, None
    if one is not None:
        return jobs, (one.text, one.kind)
    place = os.path.join(folder, wids.NAME) if folder else wids.list_path([location.text for location in locations])
    if place is None:
        raise Usage("the shards are in several folders", f"say where their list goes: -o {wids.NAME}")
    return jobs, (place, "path")


def _counting(jobs: list[IndexTask]) -> Iterator[IndexTask]:
    return (job._replace(indexes=[]) for job in jobs)


def _make(job: IndexTask) -> Done:
    """Write the indexes of one shard."""
    said: list[str] = []
    policy = Policy(job.allowed, job.skipped, job.maxerr, said.append)
    source = open_shard(job.location)
    layouts = [
        Index(name, path, kind, make_layout(name, job.location.text, source.size or 0))
        for name, path, kind in job.indexes
    ]
    scanned = write_indexes(source, layouts, policy, job.tmpdir, job.sync)
    md5 = _md5(job.location.text) if job.md5 else ""
    return Done(scanned.samples, scanned.size, scanned.dropped, md5, dict(policy.counts), dict(policy.dropped), said)


def _judge(job: IndexTask) -> list[str]:
    """The faults of the indexes of one shard."""
    lines: list[str] = []
    for name, path, _ in job.indexes:
        lines += faults(job.location, name, path, Policy(job.allowed, job.skipped, job.maxerr))
    return lines


def _md5(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _account(run: Run, done: Done, shards: int = 1) -> None:
    for line in done.said:
        run.warn(line)
    run.policy.counts.update(done.counts)
    run.policy.dropped.update(done.skipped)
    run.samples += done.samples
    run.bytes += done.size
    run.dropped += done.dropped
    run.shards += shards
