"""Write index files that other tools read, and verify those that are there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tarkit.errors import TarkitError, Unsupported, Usage, spell
from tarkit.indexing import formats as wids
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import FORMATS, index_path, is_index, make_layout
from tarkit.indexing.scan import Index, Scanned, open_shard, write_indexes
from tarkit.indexing.verify import faults, wids_faults
from tarkit.pipeline.arguments import check_at_least, parse_processes, split_names
from tarkit.pipeline.chain import locate
from tarkit.pipeline.output import Output, refuse_overwrite, status_of, total_size
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import refuse_template
from tarkit.problems import Policy
from tarkit.stores.schemes import find_scheme, scheme_of
from tarkit.stores.store import parse_options
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink
from tarkit.streams.text import sum_file

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


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
    storage_options: Mapping[str, object] | None = None,
) -> list[str]:
    """Write index files beside shards.

    Args:
        inputs: plain archives, as for `tarkit.open`; so are allow, skip, on_problem, tmpdir and
            storage_options.
        format: dali, energon, webshart, tsv, parquet, wids; or several.
        output: the one index, or a directory for all; without it they go beside the shards.
        md5: whether a wids index has the MD5 sums of the shards.
        force: whether files of these names that are no such indexes are replaced.
        fsync: whether each index is on the disk before it gets its name.
        processes: how many shards are read at a time; 0 is one per CPU.

    Returns:
        The paths of the indexes.

    >>> import tarkit
    >>> tarkit.index("a.tar", format="dali")
    ['a.idx']
    """
    formats = check_formats(split_names(format, "format"))
    options = IndexOptions(formats, output, processes, md5, force, fsync)
    if not formats:
        raise Usage("format names no format")
    return write(_run(allow, skip, on_problem, tmpdir), locate(inputs, parse_options(storage_options)), options)


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
    storage_options: Mapping[str, object] | None = None,
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
    options = IndexOptions(check_formats(split_names(format, "format")), output, processes, md5)
    found = locate(inputs, parse_options(storage_options))
    return list(verify(_run(allow, skip, on_problem, tmpdir), found, options))


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


@dataclass(eq=False, repr=False)
class IndexOptions:
    """The options of `index`: formats, output, and how existing indexes are treated.

    Raises:
        Usage: some are invalid, or do not go together.
    """

    formats: Sequence[str]
    output: str | os.PathLike[str] | None = None
    processes: int = 1
    md5: bool = False
    force: bool = False
    fsync: bool = False

    def __post_init__(self) -> None:
        check_at_least(0, processes=self.processes)
        if self.md5 and "wids" not in self.formats:
            raise Usage(f"{spell('md5')} requires {spell('format', 'wids')}")


class IndexTask(NamedTuple):
    """One shard, and its index files."""

    location: Location
    files: list[IndexFile]
    md5: bool = False
    tmpdir: str | None = None
    sync: bool = False
    force: bool = False
    listed: bool = False  # also in a list for wids


class IndexResult(NamedTuple):
    """The result of an index task."""

    samples: int
    size: int
    dropped: int
    md5: str


def write(
    run: Run,
    locations: Sequence[Location],
    options: IndexOptions,
    reserve: Callable[[str, str], None] = lambda path, what: None,
) -> list[str]:
    """Write the indexes of all shards; return their names. `reserve` is called with each name before writing."""
    tasks, listed = _tasks(run, locations, options)
    files = [file for task in tasks for file in task.files] + ([listed] if listed else [])
    taken: set[str] = set()
    for file in files:
        if file.kind in ("path", "url"):
            name = os.path.realpath(file.path) if file.kind == "path" else file.path
            if name in taken:
                hint = f"name another directory with {spell('output')}, or make one at a time"
                raise Usage(f"{file.name} would be two indexes", hint)
            taken.add(name)
        if file.kind == "path":
            reserve(file.path, f"the {file.format} index")
            refuse_overwrite(status_of(file.path), locations)
            if not options.force:
                file.refuse_other(_recogniser(file.format))
    shards = []
    results = zip(tasks, run.do_in_order(_make, _sent(run, tasks), parse_processes(options.processes)), strict=True)
    for task, made in run.draw(results, lambda: run.bytes, lambda: run.samples, total_size(locations)):
        _account(run, made)
        for file in task.files:
            run.note(f"{file.name}: the {file.format} index, samples: {made.samples}")
        if listed:
            shards.append(_listed_shard(task, listed, made))
    if listed:
        if (again := wids.repeated_name(shards)) is not None:
            what = f"{listed.name}: {again[0]} and {again[1]} have one base name, by which wids stores its copies"
            run.warn(f"{what}: it may read one shard for the other; rename the shards")
        _refuse_other_object(listed, options.force)
        with open_sink(listed.kind, listed.path, sync=options.fsync, options=listed.options) as sink:
            sink.write(wids.encode_wids(shards))
        run.note(f"{listed.name}: the wids index, shards: {len(shards)}")
    run.facts["indexes"] = len(files)
    return [file.path for file in files]


def verify(run: Run, locations: Sequence[Location], options: IndexOptions) -> Iterator[str]:
    """Yield the faults of existing indexes; without formats, of all indexes that exist.

    Raises TarkitError when there is none.
    """
    processes = parse_processes(options.processes)
    if not options.formats and any(location.kind == "url" for location in locations):
        processes = 1  # the search for indexes may start threads of a library, so nothing is forked
    formats = options.formats or _present(locations, options)
    tasks, listed = _tasks(run, locations, replace(options, formats=formats))
    if not options.formats:
        tasks = [task._replace(files=[file for file in task.files if file.exists()]) for task in tasks]
    shards = []
    compare = partial(_compare, count=listed is not None)
    for task, (lines, found) in zip(tasks, run.do_in_order(compare, _sent(run, tasks), processes), strict=True):
        _account(run, found or IndexResult(0, 0, 0, ""))
        if listed and found:
            shards.append(_listed_shard(task, listed, found))
        yield from lines
    if listed:
        yield from wids_faults(listed, shards)


def _sent(run: Run, tasks: list[IndexTask]) -> list[IndexTask]:
    """Return the tasks as those find their files that do them."""
    if run.tasks is None:
        return tasks
    return [
        task._replace(location=run.sent(task.location), files=[file.sent() for file in task.files]) for task in tasks
    ]


def _listed_shard(task: IndexTask, listed: IndexFile, made: IndexResult) -> wids.IndexedShard:
    """Return the row of a shard in the list for wids."""
    return wids.IndexedShard(wids.url_of(task.location.text, listed.path), made.samples, made.size, made.md5)


def _present(locations: Sequence[Location], options: IndexOptions) -> list[str]:
    """Return the formats of existing indexes beside the shards; raise TarkitError when there is none."""
    directory = os.fspath(options.output or "")
    texts = [location.text for location in locations]
    storage = locations[0].options

    def present(name: str, path: str) -> bool:
        return IndexFile.at(name, path, storage).exists()

    formats = [
        name
        for name in FORMATS
        if name != "wids" and any(present(name, index_path(name, text, directory or None)) for text in texts)
    ]
    path = os.path.join(directory, wids.NAME) if directory else wids.list_path(texts)
    if path and present("wids", path):
        formats.append("wids")
    if not formats:
        raise TarkitError("there is no index to verify", "tarkit index --format makes some")
    return formats


def _tasks(run: Run, locations: Sequence[Location], options: IndexOptions) -> tuple[list[IndexTask], IndexFile | None]:
    """Return a task for each shard, and the list for wids."""
    for location in locations:
        if location.kind != "url":  # later: a library may start threads, after which no process is forked
            open_shard(location).close()
    storage = locations[0].options
    formats = [name for name in options.formats if name != "wids"]
    directory, single = _place(options, len(formats) * len(locations) + ("wids" in options.formats))
    if single is not None and formats and formats[0] in ("energon", "parquet"):
        Output(single, None).refuse_terminal(f"an index for {formats[0]}")
    tasks = []
    for location in locations:
        files = [IndexFile.at(name, index_path(name, location.text, directory), storage) for name in formats]
        if single is not None:
            files = [IndexFile(name, single.text, single.kind, storage) for name in formats]
        for file in files:
            if file.path == location.text:
                raise Usage(f"{location.name}: its {file.format} index would have its own name")
        beside = directory or os.path.dirname(os.path.abspath(location.text))
        tmpdir = run.scratch(None if scheme_of(directory or location.text) else beside)
        listed = "wids" in options.formats
        tasks.append(IndexTask(location, files, options.md5, tmpdir, options.fsync, options.force, listed))
    if "wids" not in options.formats:
        return tasks, None
    if single is not None:
        return tasks, IndexFile("wids", single.text, single.kind, storage)
    texts = [location.text for location in locations]
    path = os.path.join(directory, wids.NAME) if directory else wids.list_path(texts)
    if path is None:
        raise Usage("the shards are in several directories", f"say where their list goes: {spell('output', wids.NAME)}")
    return tasks, IndexFile.at("wids", path, storage)


def _place(options: IndexOptions, count: int) -> tuple[str | None, Location | None]:
    """Return the directory of all indexes, if one is given, or the output of the only one.

    Raises Usage when the output is not a directory, and there are several: `count` indexes.
    """
    if options.output is None:
        return None, None
    output = os.fspath(options.output)
    single = parse_output(output)
    if single.kind == "path" and (output.endswith("/") or os.path.isdir(single.text)):
        if not os.path.isdir(single.text):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), single.text)
        return single.text, None
    if single.kind == "url" and output.endswith("/"):
        return single.text, None
    refuse_template(output, f"a directory that is there takes all: {spell('output', 'DIR/')}")
    if count != 1:
        raise Usage(f"{spell('output')} {output}: there will be several indexes", "name an existing directory")
    return None, single


def _make(task: IndexTask, policy: Policy) -> IndexResult:
    """Write the indexes of one shard."""
    for file in task.files:
        _refuse_other_object(file, task.force)
    source = open_shard(task.location)
    layouts = [Index(file, make_layout(file.format, task.location.text, source.size or 0)) for file in task.files]
    look = {"look": wids.refuse_other_names} if task.listed else {}
    return _result(task, write_indexes(source, layouts, policy, task.tmpdir, task.sync, **look))


def _result(task: IndexTask, scanned: Scanned) -> IndexResult:
    """Return the result of a task."""
    md5 = ""
    if task.md5:
        md5, _ = sum_file(task.location.kind, task.location.text, task.location.options, "md5")
    return IndexResult(scanned.samples, scanned.size, scanned.dropped, md5)


def _compare(task: IndexTask, policy: Policy, count: bool) -> tuple[list[str], IndexResult | None]:
    """Return the faults of the indexes of one shard, and what the shard has, if it was read."""
    lines, scanned = faults(task.location, task.files, policy, task.tmpdir, count)
    return lines, None if scanned is None else _result(task, scanned)


def _recogniser(format: str) -> Callable[[BinaryIO], bool]:
    """Return the function that tells whether a file is an index of a format."""
    return wids.is_wids if format == "wids" else partial(is_index, format)


def _refuse_other_object(file: IndexFile, force: bool) -> None:
    """Raise TarkitError when an index cannot be written to a URL, or would replace something else there."""
    scheme = find_scheme(file.path) if file.kind == "url" else None
    if scheme is not None and not scheme.writable:
        hint = f"say where the index goes: {spell('output', 'DIR/')}"
        raise Unsupported(f"{file.name}: objects of this store cannot be written", hint)
    if file.kind == "url" and not force:
        file.refuse_other(_recogniser(file.format))


def _account(run: Run, made: IndexResult) -> None:
    run.samples += made.samples
    run.bytes += made.size
    run.dropped += made.dropped
    run.shards += 1
