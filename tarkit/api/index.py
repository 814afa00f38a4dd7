"""Write index files that other tools read, and verify those that are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tarkit.api.chain import at_least, locate, names
from tarkit.api.output import Output, refuse_overwrite, status_of, total_size
from tarkit.api.run import Run
from tarkit.errors import TarkitError, Unsupported, Usage, spell
from tarkit.indexing import formats as wids
from tarkit.indexing.formats import FORMATS, index_path, is_index, make_layout
from tarkit.indexing.scan import Index, exists, may_replace, open_shard, write_indexes
from tarkit.indexing.verify import faults, wids_faults
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.shards.template import refuse_template
from tarkit.stores.schemes import READ_ONLY, public_name, scheme_of
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
    at_least(1, processes=processes)
    chosen = check_formats(names(format, "format"))
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
    run.policy = Policy(names(allow, "allow"), names(skip, "skip"), warn=run.warn)
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
    force: bool = False


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
            _take(path, os.path.realpath(path), taken)
            reserve(path, f"the {name} index")
            refuse_overwrite(status_of(path), locations)
            if not chosen.force:
                may_replace(path, kind, wids.is_wids if name == "wids" else partial(is_index, name), name)
        elif kind == "url":
            _take(path, path, taken)
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
        if listed[1] == "url" and not chosen.force:
            may_replace(*listed, wids.is_wids, "wids")
        with open_sink(listed[1], listed[0], sync=chosen.fsync) as sink:
            sink.write(wids.encode_wids(shards))
        run.note(f"{listed[0]}: the wids index, shards: {len(shards)}")
    run.facts["indexes"] = len(outputs) + bool(listed)
    return [path for _, path, _ in outputs] + ([listed[0]] if listed else [])


def _take(path: str, place: str, taken: dict[str, str]) -> None:
    """Note that an index is written to a place; raise Usage when another one is."""
    if place in taken:
        hint = f"name another directory with {spell('output')}, or make one at a time"
        raise Usage(f"{path} would be two indexes", hint)
    taken[place] = path


def verify(run: Run, locations: Sequence[Location], chosen: IndexOptions) -> Iterator[str]:
    """Yield the faults of existing indexes; without formats, of all indexes that exist.

    Raises TarkitError when there is none.
    """
    any_format = not chosen.formats
    if any_format:
        if any(location.kind == "url" for location in locations):
            chosen.parallel = 1  # the search for indexes may start threads of a library, so nothing is forked
        chosen.formats = _present(locations, chosen)
    jobs, listed = _jobs(run, locations, chosen)
    if any_format:
        jobs = [job._replace(indexes=[each for each in job.indexes if exists(each[1], each[2])]) for job in jobs]
    for lines in results_in_order(_faults, jobs, chosen.parallel):
        run.shards += 1
        yield from lines
    if listed:
        shards = []
        for job, done in zip(jobs, results_in_order(_make, _counting(jobs), chosen.parallel), strict=True):
            _account(run, done, shards=0)
            url = wids.url_of(job.location.text, listed[0])
            shards.append(wids.IndexedShard(url, done.samples, done.size, done.md5))
        yield from wids_faults(listed[0], shards, listed[1])


def _present(locations: Sequence[Location], chosen: IndexOptions) -> list[str]:
    """Return the formats of existing indexes beside the shards; raise TarkitError when there is none."""
    directory = chosen.output or ""
    texts = [location.text for location in locations]
    formats = [
        name
        for name in FORMATS
        if name != "wids" and any(_exists(index_path(name, text, directory or None)) for text in texts)
    ]
    path = os.path.join(directory, wids.NAME) if directory else wids.list_path(texts)
    if path and _exists(path):
        formats.append("wids")
    if not formats:
        raise TarkitError("there is no index to verify", "tarkit index --format makes some")
    return formats


def _jobs(
    run: Run, locations: Sequence[Location], chosen: IndexOptions
) -> tuple[list[IndexTask], tuple[str, str] | None]:
    """Return a task for each shard, and path and kind of the list for wids."""
    for location in locations:
        if (
            location.kind != "url"
        ):  # the process that reads it says so: a library may start threads, which are not forked
            open_shard(location).close()
    each = [name for name in chosen.formats if name != "wids"]
    directory, one = None, None
    if chosen.output is not None:
        one = parse_output(chosen.output)
        if one.kind == "path" and (chosen.output.endswith("/") or os.path.isdir(one.text)):
            if not os.path.isdir(one.text):
                raise FileNotFoundError(2, os.strerror(2), one.text)
            directory, one = one.text, None
        elif one.kind == "url" and chosen.output.endswith("/"):
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
        paths = [(name, index_path(name, location.text, directory)) for name in each]
        outputs = [(name, path, _kind_of(path)) for name, path in paths]
        if one is not None:
            outputs = [(name, one.text, one.kind) for name in each]
        for name, path, _ in outputs:
            if path == location.text:
                raise Usage(f"{location.name}: its {name} index would have its own name")
        jobs.append(_task(run, chosen, location, outputs, directory))
    if "wids" not in chosen.formats:
        return jobs, None
    if one is not None:
        return jobs, (one.text, one.kind)
    place = (
        os.path.join(directory, wids.NAME) if directory else wids.list_path([location.text for location in locations])
    )
    if place is None:
        raise Usage("the shards are in several directories", f"say where their list goes: {spell('output', wids.NAME)}")
    return jobs, (place, _kind_of(place))


def _task(
    run: Run, chosen: IndexOptions, location: Location, outputs: list[tuple[str, str, str]], directory: str | None
) -> IndexTask:
    """Return the task for a shard."""
    beside = directory or os.path.dirname(os.path.abspath(location.text))
    tmpdir = run.scratch(None if scheme_of(directory or location.text) else beside)
    given = run.policy.allowed, run.policy.skipped, run.policy.maxerr
    return IndexTask(location, outputs, *given, chosen.md5, tmpdir, chosen.fsync, chosen.force)


def _kind_of(path: str) -> str:
    """Return the kind of the place of an index."""
    return "url" if scheme_of(path) else "path"


def _exists(path: str) -> bool:
    return exists(path, _kind_of(path))


def _counting(jobs: list[IndexTask]) -> Iterator[IndexTask]:
    return (job._replace(indexes=[]) for job in jobs)


def _make(job: IndexTask) -> Done:
    """Write the indexes of one shard."""
    said: list[str] = []
    for name, path, kind in job.indexes:
        if kind == "url":
            if scheme_of(path) in READ_ONLY:
                hint = f"say where the index goes: {spell('output', 'DIR/')}"
                raise Unsupported(f"{public_name(path)}: objects of this store cannot be written", hint)
            if not job.force:
                may_replace(path, kind, partial(is_index, name), name)
    policy = Policy(job.allowed, job.skipped, job.maxerr, said.append)
    source = open_shard(job.location)
    layouts = [
        Index(name, path, kind, make_layout(name, job.location.text, source.size or 0))
        for name, path, kind in job.indexes
    ]
    scanned = write_indexes(source, layouts, policy, job.tmpdir, job.sync)
    md5 = _md5(job.location) if job.md5 else ""
    return Done(scanned.samples, scanned.size, scanned.dropped, md5, dict(policy.counts), dict(policy.dropped), said)


def _faults(job: IndexTask) -> list[str]:
    """Return the faults of the indexes of one shard."""
    lines: list[str] = []
    for name, path, kind in job.indexes:
        lines += faults(job.location, name, path, Policy(job.allowed, job.skipped, job.maxerr), kind)
    return lines


def _md5(location: Location) -> str:
    import hashlib

    found = hashlib.md5(usedforsecurity=False)
    source = open_source(location, stream=True)  # each byte once
    position = 0
    while data := source.peek(position, 1):
        found.update(data)
        position += len(data)
        source.release(position)
    source.close()
    return found.hexdigest()


def _account(run: Run, done: Done, shards: int = 1) -> None:
    for line in done.said:
        run.warn(line)
    run.policy.counts.update(done.counts)
    run.policy.dropped.update(done.skipped)
    run.samples += done.samples
    run.bytes += done.size
    run.dropped += done.dropped
    run.shards += shards
