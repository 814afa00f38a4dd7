"""A temporary directory for each sample, and its fields as files in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from tarkit.errors import show
from tarkit.proc.engine import BatchFailed, Failure, InputField, Job
from tarkit.proc.result import BytesContent, FieldContent, FileContent, SampleBuilder
from tarkit.samples.sample import TarSample
from tarkit.signals import DIRECTORIES, register_cleanup
from tarkit.streams.copy import seconds, write_all
from tarkit.streams.location import natural_key
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import FALLBACK
from tarkit.tables.recipe import without_end

directories: set[str] = set()
"""The directories that are to be removed."""


def remove_directories() -> None:
    """Remove all directories, before a signal ends the process."""
    for path in list(directories):
        remove_tree(os.fsencode(path))
        directories.discard(path)


register_cleanup(DIRECTORIES, remove_directories)


class WorkDirectory:
    """A new directory in `parent` for the directories of all samples of a run; `keep` leaves them."""

    def __init__(self, parent: str | None = None, keep: bool = False, name: str = ".tarkit") -> None:
        self.keep = keep
        base = os.path.abspath(parent or FALLBACK)
        for attempt in range(1000):
            self.path = os.path.join(base, f"{name}-{os.getpid()}-{attempt}")
            if not keep:
                directories.add(self.path)
            try:
                os.mkdir(self.path, 0o700)
                return
            except FileExistsError:
                directories.discard(self.path)
            except OSError:
                directories.discard(self.path)
                raise
        raise FileExistsError(17, "too many directories of this name", self.path)

    def close(self) -> None:
        """Remove the directory."""
        if not self.keep:
            remove_tree(os.fsencode(self.path))
            directories.discard(self.path)

    def subdirectory(self, name: bytes) -> SampleDirectory:
        """Return a new directory in it, called `name` or NAME-2 and so on."""
        path = os.path.join(os.fsencode(self.path), name)
        again = 1
        while True:
            try:
                os.mkdir(path, 0o700)
                return SampleDirectory(path, self.keep)
            except FileExistsError:  # an earlier attempt
                again += 1
                path = os.path.join(os.fsencode(self.path), b"%b-%d" % (name, again))


class SampleDirectory:
    """The directory of a sample, which is removed with the last reference to it."""

    def __init__(self, path: bytes, keep: bool) -> None:
        self.path = path
        self.keep = keep

    def __del__(self) -> None:
        if not self.keep:
            remove_tree(self.path)


def remove_tree(root: bytes) -> None:
    """Remove a directory and its contents as far as possible. Links are removed, never followed."""
    for _ in range(3):  # a process may still be writing to it
        found = [root]
        for directory in found:  # it grows
            for attempt in range(2):
                try:
                    found += _emptied(directory)
                    break
                except PermissionError:
                    if attempt == 0:
                        _open_up(directory)
                except OSError:
                    break
        for directory in reversed(found):
            try:
                os.rmdir(directory)
            except OSError:
                continue
            if directory is root:
                return
        if not os.path.lexists(root):
            return


def _emptied(directory: bytes) -> list[bytes]:
    """Remove the files in a directory; return the directories in it."""
    with os.scandir(directory) as found:
        entries = list(found)
    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
    return inner


def _open_up(directory: bytes) -> None:
    try:
        if stat.S_ISDIR(os.lstat(directory).st_mode):
            os.chmod(directory, 0o700)
    except OSError:
        pass


# ---- A sample as files, `sample.FIELD`, and files as samples
# The file of a field whose name is not valid for a file gets another name, which is mapped back.

SMALL = 1 << 16  # bytes of a file that is read into memory
HELD = 1 << 20  # bytes of all such files of one sample
LONGEST = 255  # bytes of a file's name
KEY = b"__key__"  # suffix of the file with the key
_KEY_LIMIT = 1 << 16
_TAIL = 40  # bytes at the end of a name that are kept when it is cut: the suffixes that programs look at

Gathered = tuple[bytes | None, list[tuple[bytes, bytes | FieldContent]]]


class FileNames:
    """The names of the files of fields: `BASE.FIELD`, or another name where that is not valid."""

    def __init__(self, base: bytes, inputs: Sequence[InputField]) -> None:
        self.base = base
        room = LONGEST - len(base) - 1
        self.file: dict[bytes, bytes] = {}
        self.field: dict[bytes, bytes] = {}  # of files that do not have its name
        strange = []
        for each in inputs:
            field = each.field
            if field == KEY or len(field) > room or b"\0" in field or b"/" in field:
                strange.append(field)
            else:
                self.file[field] = base + b"." + field
        taken = set(self.file.values())
        for field in strange:
            name = base + b"." + _cleaned(field, room, taken, base)
            taken.add(name)
            self.file[field] = name
            self.field[name[len(base) + 1 :]] = field

    def field_of(self, rest: bytes) -> bytes:
        """Return the field of a file; `rest` is its name without the base and the dot."""
        return self.field.get(rest, rest)


def _cleaned(field: bytes, room: int, taken: set[bytes], base: bytes) -> bytes:
    name = field.replace(b"%", b"%25").replace(b"/", b"%2F").replace(b"\0", b"%00")
    if name == KEY:
        name = b"%5F" + KEY[1:]
    number = 0
    while True:
        mark = b"~%d" % number if number or len(name) > room else b""
        cut = name
        if len(name) + len(mark) > room:
            dot = name.rfind(b".", len(name) - _TAIL)
            end = name[dot:] if dot >= 0 else b""
            cut = name[: room - len(mark) - len(end)] + mark + end
        else:
            cut = name + mark
        if base + b"." + cut not in taken:
            return cut
        number += 1


def write_fields(job: Job, directory: SampleDirectory, names: FileNames) -> None:
    """Write the fields of a sample to files, and its key to `BASE.__key__`."""
    root = directory.path + b"/"
    _write(root + names.base + b"." + KEY, job.key)
    for each in job.inputs():
        path = root + names.file[each.field]
        if each.data is not None:
            _write(path, each.data)
            continue
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            each.send(Sink(fd, os.fsdecode(path)))
        finally:
            os.close(fd)


def _write(path: bytes, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(fd, data)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


class SampleCollector:
    """Makes samples of the files that a command left; modes are those of `CommandOptions`."""

    def __init__(self, base: bytes, mode: str, builder: SampleBuilder) -> None:
        self.base = base
        self.mode = mode
        self.builder = builder

    def __call__(
        self,
        job: Job,
        directory: SampleDirectory,
        names: FileNames,
        extra: Sequence[tuple[bytes, bytes | FieldContent]],
    ) -> list[TarSample]:
        """Return the samples, each with the fields of `extra`.

        Raises:
            BatchFailed: a file is not a regular file, or a key is invalid.
        """
        held = _Budget(HELD)
        made: list[TarSample] = []
        keys = set()
        for default, (key, fields) in self._found(job, directory, names, held):
            if not fields:
                continue
            key = default if key is None else key
            if key in keys:
                raise BatchFailed(Failure(f"gave two samples of the key {show(key)}"))
            keys.add(key)
            fields += extra
            made.append(self.builder(job, key, fields, first=not made))
        return made

    def _found(
        self, job: Job, directory: SampleDirectory, names: FileNames, held: _Budget
    ) -> Iterator[tuple[bytes, Gathered]]:
        if self.mode == "one":
            yield job.key, self._read(job, directory.path, directory, names, self.base, _listed(directory.path), held)
        elif self.mode == "multi":
            groups: dict[bytes, list[bytes]] = {}
            start = self.base + b"-"
            for name in _listed(directory.path):
                stem, dot, _ = name.partition(b".")
                if name.startswith(start) and dot:
                    groups.setdefault(stem, []).append(name)
            for stem in sorted(groups, key=_natural):
                key = job.key + b"/" + stem[len(start) :]
                yield key, self._read(job, directory.path, directory, names, stem, groups[stem], held)
        else:
            for name in sorted(_listed(directory.path), key=_natural):
                path = directory.path + b"/" + name
                if not name.startswith(b".") and stat.S_ISDIR(os.lstat(path).st_mode):
                    key = job.key + b"/" + name
                    yield key, self._read(job, path, directory, names, self.base, _listed(path), held)

    def _read(
        self,
        job: Job,
        path: bytes,
        directory: SampleDirectory,
        names: FileNames,
        base: bytes,
        files: list[bytes],
        held: _Budget,
    ) -> Gathered:
        """Return the key, if there is one, and the fields of the files with this base."""
        key = None
        fields: list[tuple[bytes, bytes | FieldContent]] = []
        start = base + b"."
        for name in sorted(files):
            if not name.startswith(start):
                continue
            rest = name[len(start) :]
            if rest == KEY:
                key = _key(path + b"/" + name, job.key)
            else:
                content = _content(path + b"/" + name, name, directory, held, timed=self.builder.mtime is None)
                fields.append((names.field_of(rest), content))
        return key, fields


class _Budget:
    """The number of bytes of files that may still be read into memory."""

    def __init__(self, left: int) -> None:
        self.left = left


def _listed(path: bytes) -> list[bytes]:
    try:
        return os.listdir(path)
    except OSError as error:
        raise BatchFailed(Failure(f"left a directory that cannot be read: {error.strerror}")) from None


def _content(path: bytes, name: bytes, owner: object, held: _Budget, timed: bool = False) -> bytes | FieldContent:
    """Return the content of a file. It is opened without following links or waiting for a FIFO."""
    kind = os.lstat(path).st_mode
    if not stat.S_ISREG(kind):
        what = next((words for test, words in _KINDS if test(kind)), "not a regular file")
        hint = ": copy its target instead" if stat.S_ISLNK(kind) else ""
        raise BatchFailed(Failure(f"left {show(name)}, which is {what}{hint}"))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BatchFailed(Failure(f"left {show(name)}, which cannot be read: {error.strerror}")) from None
    try:
        status = os.fstat(fd)
        size = status.st_size
        if size > min(SMALL, held.left):
            return FileContent(path, size, seconds(status), owner)
        held.left -= size
        data = os.read(fd, size) if size else b""
        if len(data) < size:
            raise BatchFailed(Failure(f"left {show(name)}, which shrank while it was read"))
        return BytesContent(data, seconds(status)) if timed else data
    finally:
        os.close(fd)


def _key(path: bytes, given: bytes) -> bytes:
    """Return the key in a file, without one line end at its end unless the content is the key `given`."""
    found = _content(path, path.rpartition(b"/")[2], None, _Budget(_KEY_LIMIT))
    if not isinstance(found, bytes):
        raise BatchFailed(Failure(f"left a key of {found.size} bytes"))
    return given if found == given else without_end(found)


def _natural(name: bytes) -> tuple[list[str | int], str]:
    return natural_key(os.fsdecode(name))


_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
)
