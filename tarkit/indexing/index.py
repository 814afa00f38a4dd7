"""Write index files that other tools read, and verify those that are there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tarkit.arguments import split_names
from tarkit.errors import TarkitError, Unsupported, Usage, spell
from tarkit.indexing import wids
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import FORMATS as OF_ONE
from tarkit.indexing.formats import LAYOUTS, InvalidIndex, index_path
from tarkit.indexing.scan import Scanned, fill_indexes, open_shard
from tarkit.indexing.verify import faults
from tarkit.options import Options, row
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.chain import Archives, Chain, locate
from tarkit.pipeline.output import Output, refuse_overwrite, status_of, total_size
from tarkit.pipeline.rows import FSYNC, processes_row
from tarkit.pipeline.run import Run
from tarkit.pipeline.selection import ProblemOptions
from tarkit.pipeline.template import refuse_template
from tarkit.problems import Policy
from tarkit.samples.dataset import without_missing
from tarkit.stores.schemes import find_scheme, scheme_of
from tarkit.stores.store import parse_options
from tarkit.streams.location import Location, is_view, parse_output
from tarkit.streams.sink import open_sink
from tarkit.streams.text import sum_file

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


FORMATS = (*OF_ONE, "view")
"""All formats; wids and view are of all shards."""
VIEW = "all.view.parquet"
_OF_ALL = {"wids": ("list", wids.NAME), "view": ("view", VIEW)}  # the word in messages, and the usual name


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
        format: dali, energon, webshart, tsv, parquet, wids, view; or several.
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
    options, problems = IndexOptions.of(locals()), ProblemOptions.of(locals())
    run = problems.new_run(on_problem, tmpdir)
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
    options, problems = IndexOptions.of(locals()), ProblemOptions.of(locals())
    run = problems.new_run(on_problem, tmpdir)
    return list(ShardIndexes(run, locate(inputs, parse_options(storage_options)), options).verify())


class IndexTask(NamedTuple):
    """One shard, its index files, and the directory of temporary files."""

    location: Location
    files: list[IndexFile]
    tmpdir: str | None


class IndexOptions(Options):
    """The options of `tarkit.index`, `tarkit.verify_index` and the command `index`.

    Attributes:
        formats: the names in `format`.
    """

    output: str | os.PathLike[str] | None = row(
        "Output",
        "-o",
        "--output",
        metavar="OUT",
        role="output",
        help="File, directory or URL.  [default: beside the shards]",
    )
    force: bool = row("Output", "--force", default=False, help="Replace files that are not such indexes.")
    fsync: bool = FSYNC
    format: str | Iterable[str] = row(
        "Index",
        "--format",
        "-f",
        default=(),
        split=True,
        parse=split_names,
        metavar="FORMAT",
        help=f"As {', '.join(FORMATS)}.",
    )
    verify: bool = row("Index", "--verify", default=False, help="Write nothing: compare indexes with their shards.")
    md5: bool = row("Index", "--md5", default=False, help="Add the MD5 of each shard to a wids index.")
    processes: int = processes_row("Input", "Index N shards at a time")

    def check(self) -> None:
        """Raise Usage for unknown formats, and a sum that no index has."""
        self.formats = list(dict.fromkeys(self.format))
        for name in self.formats:
            if name not in FORMATS:
                raise Usage(f"{spell('format')} {name}: no such format", " ".join(FORMATS))
        if self.verify and "view" in self.formats:
            raise Usage("a view is compared with its archives by tarkit check NAME.view.parquet")
        if self.md5 and "wids" not in self.formats:
            raise Usage(f"{spell('md5')} requires {spell('format', 'wids')}")


class ShardIndexes:
    """The indexes of shards, for a run."""

    def __init__(self, run: Run, locations: Sequence[Location], options: IndexOptions) -> None:
        self.run, self.locations, self.options = run, without_missing(locations, run.policy), options
        self.formats = options.formats
        self._output = None if options.output is None else os.fspath(options.output)
        self._storage = locations[0].options
        self._view: IndexFile | None = None

    def write(self, written: Callable[[IndexFile, str, int], None] = lambda file, shard, samples: None) -> list[str]:
        """Write the indexes of all shards; return their names.

        `written` is called with each index, the name of its shard (that of all shards has none), and its samples.
        """
        if not self.formats:
            raise Usage(f"{spell('format')} is missing", " ".join(FORMATS))
        run, (tasks, table) = self.run, self._tasks()
        files = [file for task in tasks for file in task.files] + ([table] if table else [])
        self._check_outputs(files)
        shards = []
        make = partial(
            _make,
            md5=self.options.md5,
            force=self.options.force,
            sync=self.options.fsync,
            wids_too=table is not None,
            alone=len(tasks) == 1,
        )
        results = zip(tasks, run.do_in_order(make, self._sent(tasks), self.options.processes), strict=True)
        for task, scanned in run.draw("", results, lambda: run.bytes, lambda: run.samples, total_size(self.locations)):
            if scanned is None:
                files = [file for file in files if file not in task.files]
                continue
            self._count(scanned)
            for file in task.files:
                run.note(f"{file.name}: the {file.format} index, samples: {scanned.samples}")
                written(file, task.location.name, scanned.samples)
            if table:
                shards.append(_shard(task, table, scanned))
        if table:
            if (again := wids.repeated_name(shards)) is not None:
                message = f"{table.name}: {again[0]} and {again[1]} have one base name, by which wids stores its copies"
                run.warn(f"{message}: it may read one shard for the other; rename the shards")
            _check_object(table, self.options.force)
            with open_sink(table.kind, table.path, sync=self.options.fsync, options=table.options) as sink:
                sink.write(wids.encode_wids(shards))
            run.note(f"{table.name}: the wids index, shards: {len(shards)}")
            written(table, "", run.samples)
        if self._view:
            one = Run(run.policy, run.tmpdir) if tasks else run  # which has counted the samples
            output = Output.from_argument(self._view.path, None, self.options.fsync, options=self._storage)
            present = [location for location in self.locations if location.name not in run.policy.missing]
            write_archive(Chain(Archives(tuple(present or self.locations)), lambda: one), output, one)
            run.note(f"{self._view.name}: the view, samples: {one.samples}")
            written(self._view, "", one.samples)
            files.append(self._view)
        run.facts["indexes"] = len(files)
        return [file.path for file in files]

    def verify(self) -> Iterator[str]:
        """Yield the faults of existing indexes; without formats, of all indexes that exist.

        Raises TarkitError when no index exists.
        """
        processes, formats = self.options.processes, self.formats
        if not formats and any(location.kind == "url" for location in self.locations):
            processes = 1  # the search for indexes may start threads of a library, so nothing is forked
        self.formats = formats or self._present()
        tasks, table = self._tasks()
        if not formats:
            tasks = [task._replace(files=[file for file in task.files if file.exists()]) for task in tasks]
        shards = []
        compare = partial(_compare, md5=self.options.md5, count=table is not None)
        results = self.run.do_in_order(compare, self._sent(tasks), processes)
        for task, (lines, scanned) in zip(tasks, results, strict=True):
            self._count(scanned or Scanned())
            if table and scanned:
                shards.append(_shard(task, table, scanned))
            yield from lines
        if table:
            yield from wids.faults(table, shards)

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
                    _refuse_other(file)

    def _sent(self, tasks: list[IndexTask]) -> list[IndexTask]:
        """Return the tasks as other machines find their files, where a cluster does them."""
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
        texts = [location.text for location in self.locations]
        present = []
        for name in (*LAYOUTS, "wids"):
            if name == "wids":
                paths = [path] if (path := self._path_of_all(name, self._output)) else []
            else:
                paths = [index_path(name, text, self._output) for text in texts]
            if any(IndexFile.at(name, path, self._storage).exists() for path in paths):
                present.append(name)
        if not present:
            raise TarkitError("there is no index to verify", "tarkit index --format makes some")
        return present

    def _tasks(self) -> tuple[list[IndexTask], IndexFile | None]:
        """Return a task for each shard, and the list of shards for wids, if it is requested."""
        for location in self.locations:
            if location.kind != "url":  # later: a library may start threads, after which no process is forked
                open_shard(location).close()
        formats = [name for name in self.formats if name not in ("wids", "view")]
        listed = ("wids" in self.formats) + ("view" in self.formats)
        directory, single = self._place(len(formats) * len(self.locations) + listed)
        if "view" in self.formats:
            self._view = self._file_of_all("view", directory, single)
            _check_view(self._view, self.options.force)
            if len(self.formats) == 1:
                return [], None
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
            tasks.append(IndexTask(location, files, tmpdir))
        return tasks, self._file_of_all("wids", directory, single) if "wids" in self.formats else None

    def _file_of_all(self, format: str, directory: str | None, single: Location | None) -> IndexFile:
        """Return the index of all shards, in `directory` or theirs. Raises Usage if they are in several."""
        if single is not None:
            return IndexFile(format, single.text, single.kind, self._storage)
        path = self._path_of_all(format, directory)
        if path is None:
            what, name = _OF_ALL[format]
            hint = f"say where their {what} goes: {spell('output', name)}"
            raise Usage("the shards are in several directories", hint)
        return IndexFile.at(format, path, self._storage)

    def _path_of_all(self, format: str, directory: str | None) -> str | None:
        directories = {os.path.dirname(each.text) for each in self.locations} if directory is None else {directory}
        return os.path.join(directories.pop(), _OF_ALL[format][1]) if len(directories) == 1 else None

    def _place(self, count: int) -> tuple[str | None, Location | None]:
        """Return the directory of all indexes, if there is one, or the output of the only one.

        Raises Usage when the output is not a directory, and there are several: `count` indexes.
        """
        output = self._output
        if output is None:
            return None, None
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


def _shard(task: IndexTask, table: IndexFile, scanned: Scanned) -> wids.IndexedShard:
    return wids.IndexedShard(wids.url_of(task.location.text, table.path), scanned.samples, scanned.size, scanned.md5)


def _make(
    task: IndexTask, policy: Policy, *, md5: bool, force: bool, sync: bool, wids_too: bool, alone: bool
) -> Scanned | None:
    """Write the indexes of one shard, once the whole shard was read; return None for one that the policy leaves out."""
    for file in task.files:
        _check_object(file, force)
    look = wids.refuse_other_names if wids_too else None
    try:
        indexes, scanned = fill_indexes(task.location, task.files, policy, task.tmpdir, strict=True, look=look)
    except (FileNotFoundError, PermissionError) as error:
        policy.leave_out(task.location.name, error, alone)
        return None
    for index in indexes:
        index.write(sync)
    return _with_md5(task, scanned) if md5 else scanned


def _compare(task: IndexTask, policy: Policy, *, md5: bool, count: bool) -> tuple[list[str], Scanned | None]:
    """Return the faults of the indexes of one shard, and the counts of the shard, if it was read."""
    lines, scanned = faults(task.location, task.files, policy, task.tmpdir, count)
    return lines, _with_md5(task, scanned) if md5 and scanned is not None else scanned


def _with_md5(task: IndexTask, scanned: Scanned) -> Scanned:
    md5, _ = sum_file(task.location.kind, task.location.text, task.location.options, "md5")
    return scanned._replace(md5=md5)


def _check_object(file: IndexFile, force: bool) -> None:
    """Raise TarkitError when an index cannot be written to a URL, or would replace something else there."""
    scheme = find_scheme(file.path) if file.kind == "url" else None
    if scheme is not None and not scheme.writable:
        hint = f"say where the index goes: {spell('output', 'DIR/')}"
        raise Unsupported(f"{file.name}: objects of this store cannot be written", hint)
    if file.kind == "url" and not force:
        _refuse_other(file)


def _check_view(file: IndexFile, force: bool) -> None:
    """Raise TarkitError for a file that would not be read as a view, or would replace another file than a view."""
    location = Location("url" if file.kind == "url" else "path", file.path, file.name, options=file.options)
    if file.kind not in ("path", "url") or not is_view(location):
        raise Usage(f"{file.name}: the name of a view ends in .parquet", f"{spell('output', VIEW)}")
    if force or not file.exists():
        return
    from tarkit.pipeline.view_rows import view_file

    try:
        view_file(location)
    except TarkitError:
        raise _not_such(file, "a view") from None


def _refuse_other(file: IndexFile) -> None:
    """Raise TarkitError for an existing file or object that is not an index of the format; empty ones are replaced."""
    try:
        if file.kind == "url":
            data, _ = file.read()
            good = not data or _recognises(file.format, BytesIO(data))
        elif not stat.S_ISREG((status := os.stat(file.path)).st_mode) or not status.st_size:
            good = True
        else:
            with open(file.path, "rb") as content:
                good = _recognises(file.format, content)
    except FileNotFoundError:
        return
    if not good:
        raise _not_such(file, f"a {file.format} index")


def _not_such(file: IndexFile, index: str) -> TarkitError:
    kind = "object" if file.kind == "url" else "file"
    return TarkitError(f"{file.name}: the {kind} exists and is not {index}", f"{spell('force')} replaces it")


def _recognises(format: str, file: BinaryIO) -> bool:
    if format != "wids":
        return LAYOUTS[format].recognises(file)
    try:
        wids.read_wids(file.read())
    except InvalidIndex:
        return False
    return True
