"""Whether shards are those that a position was stored for.

Names of all shards, and sizes of files, are compared at once. A shard that was opened has a mark: of an object of a
store a hash of its version (ETag), of a file one of its size and of some of its bytes. Marks are taken when shards are
opened, so nothing is read for them before.

A table that samples are joined with has a mark, too: of its rows, as the first shard is opened, when it is read anyway;
and of archives that it places. With a position it is compared then, in the process that reads it.

Files that have the time and number of those of the position are taken for them, and not read. Of others, such as
copies, the marks of those that were opened before the position are compared: these are the shards whose samples would
come again, or never.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from tarkit.errors import Usage
from tarkit.joining.join import Join
from tarkit.joining.table import JoinTable
from tarkit.pipeline.steps import digest
from tarkit.pipeline.view_rows import ViewFile, locate_archive
from tarkit.sizes import plural
from tarkit.stores import connect
from tarkit.stores.listing import without_threads
from tarkit.stores.schemes import find_scheme
from tarkit.streams.location import Location
from tarkit.streams.source import Source

_PLACES = 8  # of a file, from its start to its end, at which bytes are compared
_PIECE = 4096  # bytes at each; of files up to 32 KiB these are all bytes
_REQUESTS = 16  # that are made at a time

Marks = Mapping[int, str]  # of shards by their numbers
Result = TypeVar("Result")


def starts_threads(location: Location) -> bool:
    """Whether a shard is read by a library of a store that starts threads."""
    scheme = find_scheme(location.text) if location.kind == "url" else None
    return scheme is not None and scheme.threads


def in_process(locations: Iterable[Location], work: Callable[[], Result]) -> Result:
    """Return the result of a function that reads shards before workers are forked.

    It is called in a process of its own if the library of a store starts threads.
    """
    return without_threads(work) if any(map(starts_threads, locations)) else work()


class OpenedMarks(dict[int, str]):
    """The marks of the shards that were opened; their text is made anew when one is added, not for each position."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(marks)
        self._text: str | None = None

    def __setitem__(self, shard: int, mark: str) -> None:
        super().__setitem__(shard, mark)
        self._text = None

    @property
    def text(self) -> str:
        """The marks as text."""
        if self._text is None:
            self._text = marks_as_text(self)
        return self._text


class ShardFiles:
    """Names, sizes and times of shards when a loader is made.

    Attributes:
        names: a hash of the names of all shards and of the sizes of files. The directory that all files are in does not
            count, as they may be moved.
        times: a hash of values that change whenever a file is written or copied.
    """

    def __init__(self, locations: Sequence[Location], missing: bool = False) -> None:
        """Look at all files, of which some may be `missing`."""
        paths = [os.path.abspath(location.text) for location in locations if location.kind == "path"]
        common = os.path.commonpath(map(os.path.dirname, paths)) if paths else ""
        names, times = [], []
        for location in locations:
            name, size = location.text, -1
            if location.kind == "path":
                name = os.path.relpath(name, common)
                try:
                    status = os.stat(location.text)
                    size = status.st_size
                    times.append(b"%d %d %d" % (status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
                except FileNotFoundError:
                    if not missing:
                        raise
            names.append(b"%d %d %s" % (len(os.fsencode(name)), size, os.fsencode(name)))
        self.names = digest(b"".join(names))
        self.times = digest(b" ".join(times))


def mark_of(location: Location, source: Source) -> str | None:
    """Return the mark of a shard that was opened; None if its store names no version, or it is of a command."""
    if location.kind == "path":
        return _mark_of_file(location.text)
    version: str | None = getattr(source, "object_version", None)
    return None if version is None else _hash(os.fsencode(version))


def present_mark(location: Location) -> str | None:
    """Return the mark that a file or an object has now."""
    return _mark_of_file(location.text) if location.kind == "path" else _mark_of_object(location)


def find_changed(locations: Sequence[Location], marks: Marks, *, files: bool) -> Location | None:
    """Return a shard that does not have its mark, None if all have it. Without `files` only objects are compared."""
    for number, mark in marks.items():
        location = locations[number]
        if files and location.kind == "path":
            try:
                now = _mark_of_file(location.text)
            except FileNotFoundError:
                now = ""
            if now != mark:
                return location
    objects = {number: locations[number] for number in marks if locations[number].kind == "url"}
    present = in_process(objects.values(), partial(_marks_of_objects, list(objects.values()))) if objects else []
    return next((locations[number] for number, now in zip(objects, present, strict=True) if now != marks[number]), None)


class JoinedTable:
    """A table that samples are joined with.

    Attributes:
        name: its name for messages.
        mark: that of its rows: of the table that was read, or of the position before that; empty if neither is known.
    """

    def __init__(self, name: str) -> None:
        self.name, self.mark = name, ""
        self._latest: tuple[JoinTable, str] | None = None

    def compare(self, join: Join) -> None:
        """Compare the table that this process has read for a step with the mark. Raises Usage if it is another."""
        opened = join.opened
        assert opened is not None, "the step has begun"
        table = opened[0].table
        if self._latest is None or self._latest[0] is not table:
            self._latest = table, _mark_of_table(join, table, opened[1])
        if self.mark not in ("", self._latest[1]):
            hint = "resume with what it was made with, or begin without the position, in a new loader"
            raise Usage(f"{self.name}: not what the position was joined with: its content has changed", hint)
        self.mark = self._latest[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which reads the table itself."""
        return {**self.__dict__, "_latest": None}


def joined_marks(tables: Sequence[JoinedTable], states: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the marks of tables in states of loaders; empty for one that no worker has read.

    Raises:
        Usage: those of one table differ, or are damaged.
    """
    found = [""] * len(tables)
    for state in states:
        marks = state.get("joined", [])
        if not isinstance(marks, list) or len(marks) != len(tables) or not all(isinstance(mark, str) for mark in marks):
            raise Usage("the state of a loader is damaged: it has no marks of the tables that are joined")
        for number, mark in enumerate(marks):
            if mark and found[number] not in ("", mark):
                raise Usage(f"{tables[number].name}: workers have joined contents that differ, by their positions")
            found[number] = mark or found[number]
    return found


def _mark_of_table(join: Join, table: JoinTable, view: ViewFile | None) -> str:
    """Return the mark of the rows of a table and of the archives that they place.

    Objects that a view names have their names alone; of those that are joined themselves all headers were read.
    """
    marks = [table.digest]
    if view is not None:
        archives = [locate_archive(view.location, shard)[0] for shard in table.shards]
        urls = [] if join.spec.in_file else [location for location in archives if location.kind == "url"]
        versions = iter(in_process(urls, partial(_marks_of_objects, urls)) if urls else [])
        for shard, location in zip(table.shards, archives, strict=True):
            mark = None
            if location.kind == "url":
                mark = next(versions, None)
            else:
                with suppress(FileNotFoundError):  # it is reported when a sample of it is read
                    mark = _mark_of_file(location.text)
            marks.append(mark or shard)
    return digest(os.fsencode("\0".join(marks)))


def marks_as_text(marks: Marks) -> str:
    """Return marks as text."""
    return " ".join([f"{number}:{mark}" for number, mark in marks.items()])


def parse_marks(text: str, count: int) -> dict[int, str]:
    """Return the marks of shards below `count` that `marks_as_text` has written. Raises ValueError."""
    pairs: Iterable[tuple[str, str, str]] = (word.partition(":") for word in text.split())
    marks = {int(number): mark for number, _, mark in pairs}
    if marks and not 0 <= min(marks) <= max(marks) < count:
        raise ValueError(f"{plural(count, 'shard has', 'shards have')} no number {max(marks)}")
    return marks


def _mark_of_file(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size <= _PLACES * _PIECE:
            data = os.pread(fd, size, 0)
        else:
            last = size - _PIECE
            data = b"".join(os.pread(fd, _PIECE, last * place // (_PLACES - 1)) for place in range(_PLACES))
    finally:
        os.close(fd)
    return _hash(b"%d " % size + data)


def _marks_of_objects(locations: Sequence[Location]) -> list[str | None]:
    with ThreadPoolExecutor(min(_REQUESTS, len(locations))) as threads:
        return list(threads.map(_mark_of_object, locations))


def _mark_of_object(location: Location) -> str | None:
    version = connect.head_object(location.text, location.options).version
    return None if version is None else _hash(os.fsencode(version))


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()
