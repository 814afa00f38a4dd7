"""Write index files that other tools read, and verify those that are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tarkit.api.arguments import check_at_least, split_names
from tarkit.api.chain import locate
from tarkit.api.output import Output, refuse_overwrite, status_of, total_size
from tarkit.api.run import Run
from tarkit.errors import TarkitError, Usage, spell
from tarkit.indexing import formats as wids
from tarkit.indexing.formats import FORMATS, index_path, is_index, make_layout
from tarkit.indexing.scan import Index, may_replace, open_shard, write_indexes
from tarkit.indexing.verify import faults, wids_faults
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.shards.template import refuse_template
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink

if TYPE_CHECKING:
    from tarkit.api.chain import Input


def index(
    inputs: Input | Iterable[Input],
    format: str | Iterable[str],
    output: str | os.PathLike[str] | None = None,
    *,
    md5: bool = False,
    force: bool = False,
    fsync: bool = False,
    processes: int = 1,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
) -> list[str]:
    """Write index files beside shards.

    Args:
        inputs: plain archives, as for `tarkit.open`; so are allow, skip, on_problem and tmpdir.
        format: dali, energon, webshart, tsv, parquet, wids; or several.
        output: the one index, or a directory for all; without it they go beside the shards.
        md5: whether a wids index has the MD5 sums of the shards.
        force: whether files of these names that are no such indexes are replaced.
        fsync: whether each index is on the disk before it gets its name.
        processes: how many shards are read at a time.

    Returns:
        The paths of the indexes.

    >>> import tarkit
    >>> tarkit.index("a.tar", format="dali")
    ['a.idx']
    """
    chosen = _options(format, output, processes, md5, force, fsync)
    if not chosen.formats:
        raise Usage("format names no format")
    return write(_run(allow, skip, on_problem, tmpdir), locate(inputs), chosen)


def verify_index(
    inputs: Input | Iterable[Input],
    format: str | Iterable[str] = (),
    output: str | os.PathLike[str] | None = None,
    *,
    md5: bool = False,
    processes: int = 1,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
) -> list[str]:
    """Compare index files with their shards.

    Args:
        inputs: the shards; the other arguments are as for `tarkit.index`.
        format: the formats; without it, all indexes that exist.

    Returns:
        A line for each fault.

    Raises:
        TarkitError: there is no index.

    >>> import tarkit
    >>> paths = tarkit.index("a.tar", format="dali")
    >>> tarkit.verify_index("a.tar")
    []
    """
    chosen = _options(format, output, processes, md5)
    return list(verify(_run(allow, skip, on_problem, tmpdir), locate(inputs), chosen))


def _options(
    format: str | Iterable[str],
    output: str | os.PathLike[str] | None,
    processes: int,
    md5: bool,
    force: bool = False,
    fsync: bool = False,
) -> IndexOptions:
    check_at_least(1, processes=processes)
    chosen = check_formats(split_names(format, "format"))
    if md5 and "wids" not in chosen:
        raise Usage("md5 requires the format wids")
    return IndexOptions(chosen, None if output is None else os.fspath(output), processes, md5, force, fsync)


def _run(
    allow: str | Iterable[str],
    skip: str | Iterable[str],
    on_problem: Callable[[str], None] | None,
    tmpdir: str | None,
) -> Run:
    run = Run(tmpdir=tmpdir, on_problem=on_problem)
    run.policy = Policy(split_names(allow, "allow"), split_names(skip, "skip"), warn=run.warn)
    return run


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the names of formats, each once; raise Usage for an unknown one."""
    chosen = list(dict.fromkeys(formats))
    for name in chosen:
        if name not in FORMATS:
            raise Usage(f"{spell('format')} {name}: no such format", " ".join(FORMATS))
    return chosen


@dataclass
class IndexOptions:
    """The options of `index`: formats, places, and how existing indexes are treated."""

    formats: list[str]
    output: str | None = None
    parallel: int = 1
    md5: bool = False
    force: bool = False
    fsync: bool = False


class IndexTask(NamedTuple):
    """One shard, and the indexes to write: format, path and kind of each output."""

    location: Location
    indexes: list[tuple[str, str, str]]
    allowed: frozenset[str]
    skipped: frozenset[str]
    maxerr: int
    md5: bool = False
    tmpdir: str | None = None
    sync: bool = False


class Done(NamedTuple):
    """The result of an index task."""

    samples: int
    size: int
    dropped: int
    md5: str
    counts: dict[str, int]
    skipped: dict[str, int]
    said: list[str]


def write(
    run: Run,
    locations: Sequence[Location],
    chosen: IndexOptions,
    reserve: Callable[[str, str], None] = lambda path, what: None,
) -> list[str]:
    """Write the indexes of all shards; return their names. `reserve` is called with each name before writing."""
    jobs, listed = _jobs(run, locations, chosen)
    taken: dict[str, str] = {}
    outputs = [(name, path, kind) for job in jobs for name, path, kind in job.indexes]
    for name, path, kind in [*outputs, *([("wids", *listed)] if listed else [])]:
        if kind == "path":
            if os.path.realpath(path) in taken:
                hint = f"name another directory with {spell('output')}, or make one at a time"
                raise Usage(f"{path} would be two indexes", hint)
            taken[os.path.realpath(path)] = path
            reserve(path, f"the {name} index")
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
            sink.write(wids.encode_wids(shards))
        run.note(f"{listed[0]}: the wids index, shards: {len(shards)}")
    run.facts["indexes"] = len(outputs) + bool(listed)
    return [path for _, path, _ in outputs] + ([listed[0]] if listed else [])


def verify(run: Run, locations: Sequence[Location], chosen: IndexOptions) -> Iterator[str]:
    """Yield the faults of existing indexes; without formats, of all indexes that exist.

    Raises TarkitError when there is none.
    """
    any_format = not chosen.formats
    if any_format:
        chosen.formats = _present(locations, chosen)
    jobs, listed = _jobs(run, locations, chosen)
    if any_format:
        jobs = [job._replace(indexes=[each for each in job.indexes if os.path.exists(each[1])]) for job in jobs]
    for lines in results_in_order(_faults, jobs, chosen.parallel):
        run.shards += 1
        yield from lines
    if listed:
        shards = []
        for job, done in zip(jobs, results_in_order(_make, _counting(jobs), chosen.parallel), strict=True):
            _account(run, done, shards=0)
            url = wids.url_of(job.location.text, listed[0])
            shards.append(wids.IndexedShard(url, done.samples, done.size, done.md5))
        yield from wids_faults(listed[0], shards)


def _present(locations: Sequence[Location], chosen: IndexOptions) -> list[str]:
    """Return the formats of existing indexes beside the shards; raise TarkitError when there is none."""
    directory = chosen.output or ""
    texts = [location.text for location in locations]
    formats = [
        name
        for name in FORMATS
        if name != "wids" and any(os.path.exists(index_path(name, text, directory or None)) for text in texts)
    ]
    path = os.path.join(directory, wids.NAME) if directory else wids.list_path(texts)
    if path and os.path.exists(path):
        formats.append("wids")
    if not formats:
        raise TarkitError("there is no index to verify", "tarkit index --format makes some")
    return formats


def _jobs(
    run: Run, locations: Sequence[Location], chosen: IndexOptions
) -> tuple[list[IndexTask], tuple[str, str] | None]:
    """Return a task for each shard, and path and kind of the list for wids."""
    for location in locations:
        open_shard(location).close()
    each = [name for name in chosen.formats if name != "wids"]
    directory, one = None, None
    if chosen.output is not None:
        one = parse_output(chosen.output)
        if one.kind == "path" and (chosen.output.endswith("/") or os.path.isdir(one.text)):
            if not os.path.isdir(one.text):
                raise FileNotFoundError(2, os.strerror(2), one.text)
            directory, one = one.text, None
    if chosen.output is not None and one is not None:
        refuse_template(chosen.output, f"a directory that is there takes all: {spell('output', 'DIR/')}")
        if len(each) * len(locations) + ("wids" in chosen.formats) != 1:
            what = f"{spell('output')} {chosen.output}: there will be several indexes"
            raise Usage(what, "name an existing directory")
    if one is not None and each and each[0] in ("energon", "parquet"):
        Output(one, None).refuse_terminal(f"an index for {each[0]}")
    jobs = []
    for location in locations:
        outputs = [(name, index_path(name, location.text, directory), "path") for name in each]
        if one is not None:
            outputs = [(name, one.text, one.kind) for name in each]
        for name, path, _ in outputs:
            if path == location.text:
                raise Usage(f"{location.name}: its {name} index would have its own name")
        tmpdir = run.scratch(directory or os.path.dirname(os.path.abspath(location.text)))
        policy = run.policy
        jobs.append(
            IndexTask(
                location, outputs, policy.allowed, policy.skipped, policy.maxerr, chosen.md5, tmpdir, chosen.fsync
            )
        )
    if "wids" not in chosen.formats:
        return jobs, None
    if one is not None:
        return jobs, (one.text, one.kind)
    place = (
        os.path.join(directory, wids.NAME) if directory else wids.list_path([location.text for location in locations])
    )
    if place is None:
        raise Usage("the shards are in several directories", f"say where their list goes: {spell('output', wids.NAME)}")
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


def _faults(job: IndexTask) -> list[str]:
    """Return the faults of the indexes of one shard."""
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
