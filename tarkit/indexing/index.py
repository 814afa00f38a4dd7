"""Write index files that other tools read, and verify those that are there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import TarkitError, Unsupported, Usage, spell
from tarkit.indexing import wids
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import FORMATS, index_path, is_index, make_builders
from tarkit.indexing.scan import Scanned, build_indexes, open_shard
from tarkit.indexing.verify import faults, wids_faults
from tarkit.pipeline.arguments import parse_processes, split_names
from tarkit.pipeline.chain import locate
from tarkit.pipeline.options import Options, row
from tarkit.pipeline.output import Output, refuse_overwrite, status_of, total_size
from tarkit.pipeline.rows import FSYNC
from tarkit.pipeline.run import Run, new_run
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
    options = IndexOptions.of(locals())
    run = new_run(split_names(allow, "allow"), split_names(skip, "skip"), 0, on_problem, tmpdir)
    return ShardIndexes(run, locate(inputs, parse_options(storage_options)), options).write()


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
    options = IndexOptions.of(locals())
    run = new_run(split_names(allow, "allow"), split_names(skip, "skip"), 0, on_problem, tmpdir)
    return list(ShardIndexes(run, locate(inputs, parse_options(storage_options)), options).verify())


class IndexTask(NamedTuple):
    """One shard, and its index files."""

    location: Location
    files: list[IndexFile]
    md5: bool
    tmpdir: str | None
    sync: bool
    force: bool
    listed: bool  # also in a list for wids


class IndexOptions(Options):
    """The options of `tarkit.index`, `tarkit.verify_index` and the command `index`.

    Attributes:
        formats: the names in `format`.
    """

    output: str | os.PathLike[str] | None = row(
        "Output", "-o", "--output", metavar="OUT", help="File, directory or URL.  [default: beside the shards]"
    )
    force: bool = row("Output", "--force", default=False, help="Replace files that are not such indexes.")
    fsync: bool = FSYNC
    format: str | Iterable[str] = row(
        "Index", "-f", "--format", many=True, metavar="FORMAT", help=f"Formats: {', '.join(FORMATS)}."
    )
    verify: bool = row("Index", "--verify", default=False, help="Write nothing: compare indexes with their shards.")
    md5: bool = row("Index", "--md5", default=False, help="Add the MD5 of each shard to a wids index.")
    processes: int = 1

    def check(self) -> None:
        """Raise Usage for unknown formats, and a sum that no index has."""
        self.formats = list(dict.fromkeys(split_names(self.format, "format")))
        for name in self.formats:
            if name not in FORMATS:
                raise Usage(f"{spell('format')} {name}: no such format", " ".join(FORMATS))
        if self.md5 and "wids" not in self.formats:
            raise Usage(f"{spell('md5')} requires {spell('format', 'wids')}")
        self.processes = parse_processes(self.processes)


class ShardIndexes:
    """The indexes of shards, for a run."""

    def __init__(self, run: Run, locations: Sequence[Location], options: IndexOptions) -> None:
        self.run, self.locations, self.options = run, locations, options
        self.formats = options.formats
        self._storage = locations[0].options

    def write(self) -> list[str]:
        """Write the indexes of all shards; return their names."""
        if not self.formats:
            raise Usage(f"{spell('format')} is missing", " ".join(FORMATS))
        run, (tasks, listed) = self.run, self._tasks()
        files = [file for task in tasks for file in task.files] + ([listed] if listed else [])
        self._check_outputs(files)
        shards = []
        results = zip(tasks, run.do_in_order(_make, self._sent(tasks), self.options.processes), strict=True)
        for task, made in run.draw(results, lambda: run.bytes, lambda: run.samples, total_size(self.locations)):
            self._count(made)
            for file in task.files:
                run.note(f"{file.name}: the {file.format} index, samples: {made.samples}")
            if listed:
                shards.append(_listed_shard(task, listed, made))
        if listed:
            if (again := wids.repeated_name(shards)) is not None:
                what = f"{listed.name}: {again[0]} and {again[1]} have one base name, by which wids stores its copies"
                run.warn(f"{what}: it may read one shard for the other; rename the shards")
            _refuse_other_object(listed, self.options.force)
            with open_sink(listed.kind, listed.path, sync=self.options.fsync, options=listed.options) as sink:
                sink.write(wids.encode_wids(shards))
            run.note(f"{listed.name}: the wids index, shards: {len(shards)}")
        run.facts["indexes"] = len(files)
        return [file.path for file in files]

    def verify(self) -> Iterator[str]:
        """Yield the faults of existing indexes; without formats, of all indexes that exist.

        Raises TarkitError when there is none.
        """
        processes, formats = self.options.processes, self.formats
        if not formats and any(location.kind == "url" for location in self.locations):
            processes = 1  # the search for indexes may start threads of a library, so nothing is forked
        self.formats = formats or self._present()
        tasks, listed = self._tasks()
        if not formats:
            tasks = [task._replace(files=[file for file in task.files if file.exists()]) for task in tasks]
        shards = []
        compare = partial(_compare, count=listed is not None)
        results = self.run.do_in_order(compare, self._sent(tasks), processes)
        for task, (lines, scanned) in zip(tasks, results, strict=True):
            self._count(scanned or Scanned())
            if listed and scanned:
                shards.append(_listed_shard(task, listed, scanned))
            yield from lines
        if listed:
            yield from wids_faults(listed, shards)

    def _check_outputs(self, files: Sequence[IndexFile]) -> None:
        """Raise Usage or TarkitError for files that cannot be written, before a shard is read."""
        taken: set[str] = set()
        for file in files:
            if file.kind in ("path", "url"):
                name = os.path.realpath(file.path) if file.kind == "path" else file.path
                if name in taken:
                    hint = f"name another directory with {spell('output')}, or make one at a time"
                    raise Usage(f"{file.name} would be two indexes", hint)
                taken.add(name)
            if file.kind == "path":
                self.run.reserve(file.path, f"the {file.format} index")
                refuse_overwrite(status_of(file.path), self.locations)
                if not self.options.force:
                    file.refuse_other(partial(is_index, file.format))

    def _sent(self, tasks: list[IndexTask]) -> list[IndexTask]:
        """Return the tasks as those find their files that do them."""
        if self.run.executor is None:
            return tasks
        return [
            task._replace(location=self.run.sent(task.location), files=[file.sent() for file in task.files])
            for task in tasks
        ]

    def _count(self, scanned: Scanned) -> None:
        self.run.samples += scanned.samples
        self.run.bytes += scanned.size
        self.run.dropped += scanned.dropped
        self.run.shards += 1

    def _present(self) -> list[str]:
        """Return the formats of existing indexes beside the shards; raise TarkitError when there is none."""
        directory = os.fspath(self.options.output or "") or None
        texts = [location.text for location in self.locations]
        paths = {name: [index_path(name, text, directory) for text in texts] for name in FORMATS if name != "wids"}
        paths["wids"] = [path] if (path := wids.list_path(texts, directory)) else []
        there = [
            name for name in paths if any(IndexFile.at(name, path, self._storage).exists() for path in paths[name])
        ]
        if not there:
            raise TarkitError("there is no index to verify", "tarkit index --format makes some")
        return there

    def _tasks(self) -> tuple[list[IndexTask], IndexFile | None]:
        for location in self.locations:
            if location.kind != "url":  # later: a library may start threads, after which no process is forked
                open_shard(location).close()
        listed = "wids" in self.formats
        formats = [name for name in self.formats if name != "wids"]
        directory, single = self._place(len(formats) * len(self.locations) + listed)
        if single is not None and formats and formats[0] in ("energon", "parquet"):
            Output(single, None).refuse_terminal(f"an index for {formats[0]}")
        tasks = []
        for location in self.locations:
            files = [IndexFile.at(name, index_path(name, location.text, directory), self._storage) for name in formats]
            if single is not None:
                files = [IndexFile(name, single.text, single.kind, self._storage) for name in formats]
            for file in files:
                if file.path == location.text:
                    raise Usage(f"{location.name}: its {file.format} index would have its own name")
            beside = directory or os.path.dirname(os.path.abspath(location.text))
            tmpdir = self.run.scratch(None if scheme_of(directory or location.text) else beside)
            tasks.append(
                IndexTask(location, files, self.options.md5, tmpdir, self.options.fsync, self.options.force, listed)
            )
        if not listed:
            return tasks, None
        if single is not None:
            return tasks, IndexFile("wids", single.text, single.kind, self._storage)
        path = wids.list_path([location.text for location in self.locations], directory)
        if path is None:
            hint = f"say where their list goes: {spell('output', wids.NAME)}"
            raise Usage("the shards are in several directories", hint)
        return tasks, IndexFile.at("wids", path, self._storage)

    def _place(self, count: int) -> tuple[str | None, Location | None]:
        """Return the directory of all indexes, if one is given, or the output of the only one.

        Raises Usage when the output is not a directory, and there are several: `count` indexes.
        """
        if self.options.output is None:
            return None, None
        output = os.fspath(self.options.output)
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


def _listed_shard(task: IndexTask, listed: IndexFile, scanned: Scanned) -> wids.IndexedShard:
    url = wids.url_of(task.location.text, listed.path)
    return wids.IndexedShard(url, scanned.samples, scanned.size, scanned.md5)


def _make(task: IndexTask, policy: Policy) -> Scanned:
    """Write the indexes of one shard, once the whole shard was read."""
    for file in task.files:
        _refuse_other_object(file, task.force)
    source = open_shard(task.location)
    builders = make_builders(source, task.location.text, task.files, task.tmpdir)
    look = {"look": wids.refuse_other_names} if task.listed else {}
    scanned = build_indexes(source, builders, policy, strict=True, **look)
    for builder in builders:
        builder.write(task.sync)
    return _with_md5(task, scanned)


def _compare(task: IndexTask, policy: Policy, count: bool) -> tuple[list[str], Scanned | None]:
    """Return the faults of the indexes of one shard, and what the shard has, if it was read."""
    lines, scanned = faults(task.location, task.files, policy, task.tmpdir, count)
    return lines, None if scanned is None else _with_md5(task, scanned)


def _with_md5(task: IndexTask, scanned: Scanned) -> Scanned:
    if not task.md5:
        return scanned
    md5, _ = sum_file(task.location.kind, task.location.text, task.location.options, "md5")
    return scanned._replace(md5=md5)


def _refuse_other_object(file: IndexFile, force: bool) -> None:
    """Raise TarkitError when an index cannot be written to a URL, or would replace something else there."""
    scheme = find_scheme(file.path) if file.kind == "url" else None
    if scheme is not None and not scheme.writable:
        hint = f"say where the index goes: {spell('output', 'DIR/')}"
        raise Unsupported(f"{file.name}: objects of this store cannot be written", hint)
    if file.kind == "url" and not force:
        file.refuse_other(partial(is_index, file.format))
