"""Private directories for commands, in one directory of this run that goes with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from tarkit.errors import show
from tarkit.proc.engine import BatchFailed, Failure, InputField, Job
from tarkit.proc.result import BytesContent, FieldContent, FileContent, SampleBuilder
from tarkit.samples.sample import TarSample
from tarkit.streams.copy import seconds
from tarkit.streams.location import natural_key
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import FALLBACK
from tarkit.tables.recipe import without_end

places: set[str] = set()
"""The directories of runs that are to go."""


def remove_directories() -> None:
    """Remove what is still there: the last act before a signal ends us."""
    for path in list(places):
        remove_tree(os.fsencode(path))
        places.discard(path)


class WorkDirectory:
    """A new directory in `folder` for all that a run has to write_fields. `keep` leaves it, and all that is in it."""

    def __init__(self, folder: str | None = None, keep: bool = False) -> None:
        self.keep = keep
        base = os.path.abspath(folder or FALLBACK)
        for attempt in range(1000):
            self.path = os.path.join(base, f".tarkit-{os.getpid()}-{attempt}")
            if not keep:
                places.add(self.path)
            try:
                os.mkdir(self.path, 0o700)
                return
            except FileExistsError:
                places.discard(self.path)
            except OSError:
                places.discard(self.path)
                raise
        raise FileExistsError(17, "too many directories of this name", self.path)

    def close(self) -> None:
        """Remove it."""
        if not self.keep:
            remove_tree(os.fsencode(self.path))
            places.discard(self.path)

    def folder(self, name: bytes) -> PrivateDirectory:
        """A new private directory in it, called `name` or something like it."""
        path = os.path.join(os.fsencode(self.path), name)
        again = 1
        while True:
            try:
                os.mkdir(path, 0o700)
                return PrivateDirectory(path, self.keep)
            except FileExistsError:  # of an earlier attempt
                again += 1
                path = os.path.join(os.fsencode(self.path), b"%b-%d" % (name, again))


class PrivateDirectory:
    """A private directory, which goes when nobody refers to it."""

    def __init__(self, path: bytes, keep: bool) -> None:
        self.path = path
        self.keep = keep

    def __del__(self) -> None:
        if not self.keep:
            remove_tree(self.path)


def remove_tree(root: bytes) -> None:
    """Remove a directory with all that is in it, as far as that is possible. Links are removed, never followed."""
    for _ in range(3):  # somebody may still be writing to it
        folders = [root]
        for folder in folders:  # it grows
            for attempt in range(2):
                try:
                    folders += _emptied(folder)
                    break
                except PermissionError:
                    if attempt == 0:
                        _open_up(folder)
                except OSError:
                    break
        for folder in reversed(folders):
            try:
                os.rmdir(folder)
            except OSError:
                continue
            if folder is root:
                return
        if not os.path.lexists(root):
            return


def _emptied(folder: bytes) -> list[bytes]:
    """Remove what is in a directory, but for other directories, which are handed back."""
    with os.scandir(folder) as found:
        entries = list(found)
    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
    return inner


def _open_up(folder: bytes) -> None:
    try:
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)
    except OSError:
        pass


# ---- A sample as files, `sample.FIELD`, and files as samples
# A field may have a name that no file can have. Such a file gets another name, and the field its own when it comes
# back.

SMALL = 1 << 16  # bytes of a file that is taken into memory at once
HELD = 1 << 20  # and of all files of one sample
LONGEST = 255  # bytes of a file's name
KEY = b"__key__"  # what would be the field of the file that has the key
_KEY_LIMIT = 1 << 16
_TAIL = 40  # bytes of the end of a name that stay when it is cut: the suffixes that programs look at

Gathered = tuple[bytes | None, list[tuple[bytes, bytes | FieldContent]]]


class FileNames:
    """The files of a sample's fields: `BASE.FIELD`, or another name where that is impossible."""

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
        """The field of a file, of whose name `rest` follows the base and a dot."""
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


def write_fields(job: Job, folder: PrivateDirectory, names: FileNames) -> None:
    """Write the fields of a sample to files, and its key to `BASE.__key__`."""
    root = folder.path + b"/"
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
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


class SampleCollector:
    """Makes samples of the files that a command left: `one`, those of `BASE-NUMBER.FIELD` (`multi`), or `subdirs`."""

    def __init__(self, base: bytes, mode: str, builder: SampleBuilder) -> None:
        self.base = base
        self.mode = mode
        self.builder = builder

    def __call__(
        self, job: Job, folder: PrivateDirectory, names: FileNames, extra: Sequence[tuple[bytes, bytes | FieldContent]]
    ) -> list[TarSample]:
        """The samples, each with the fields of `extra`. Raises Failed for what is no regular file, and bad keys."""
        held = _Budget(HELD)
        made: list[TarSample] = []
        keys = set()
        for default, (key, fields) in self._found(job, folder, names, held):
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
        self, job: Job, folder: PrivateDirectory, names: FileNames, held: _Budget
    ) -> Iterator[tuple[bytes, Gathered]]:
        if self.mode == "one":
            yield job.key, self._read(job, folder.path, folder, names, self.base, _listed(folder.path), held)
        elif self.mode == "multi":
            groups: dict[bytes, list[bytes]] = {}
            start = self.base + b"-"
            for name in _listed(folder.path):
                stem, dot, _ = name.partition(b".")
                if name.startswith(start) and dot:
                    groups.setdefault(stem, []).append(name)
            for stem in sorted(groups, key=_natural):
                key = job.key + b"/" + stem[len(start) :]
                yield key, self._read(job, folder.path, folder, names, stem, groups[stem], held)
        else:
            for name in sorted(_listed(folder.path), key=_natural):
                path = folder.path + b"/" + name
                if not name.startswith(b".") and stat.S_ISDIR(os.lstat(path).st_mode):
                    key = job.key + b"/" + name
                    yield key, self._read(job, path, folder, names, self.base, _listed(path), held)

    def _read(
        self,
        job: Job,
        path: bytes,
        folder: PrivateDirectory,
        names: FileNames,
        base: bytes,
        files: list[bytes],
        held: _Budget,
    ) -> Gathered:
        """The key, if there is one, and the fields of the files in a directory that have this base."""
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
                content = _content(path + b"/" + name, name, folder, held, timed=self.builder.mtime is None)
                fields.append((names.field_of(rest), content))
        return key, fields


class _Budget:
    """How many bytes of files may still be taken into memory."""

    def __init__(self, left: int) -> None:
        self.left = left


def _listed(path: bytes) -> list[bytes]:
    try:
        return os.listdir(path)
    except OSError as error:
        raise BatchFailed(Failure(f"left a directory that cannot be read: {error.strerror}")) from None


def _content(path: bytes, name: bytes, owner: object, held: _Budget, timed: bool = False) -> bytes | FieldContent:
    """What a file holds. It is opened without following links or waiting for a FIFO, then looked at."""
    kind = os.lstat(path).st_mode
    if not stat.S_ISREG(kind):
        what = next((words for test, words in _KINDS if test(kind)), "no regular file")
        hint = ": copy what it leads to" if stat.S_ISLNK(kind) else ""
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
            raise BatchFailed(Failure(f"left {show(name)}, which became shorter while it was read"))
        return BytesContent(data, seconds(status)) if timed else data
    finally:
        os.close(fd)


def _key(path: bytes, given: bytes) -> bytes:
    """The key that a file holds. One line end at its end is not part of it, unless the file has the key `given`."""
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
