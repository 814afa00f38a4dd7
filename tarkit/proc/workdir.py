"""A temporary directory for each sample or batch of samples, and their fields as files in it."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress

from tarkit.errors import TarkitError, show, spell_open
from tarkit.proc.job import InputField, Job, WorkFailed
from tarkit.proc.result import Content, FileContent, SampleBuilder, check_key
from tarkit.samples.sample import TarSample
from tarkit.signals import DIRECTORIES, register_cleanup
from tarkit.sizes import plural
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


MEMORY = "/dev/shm"
"""The file system in memory that Linux has; directories of small samples there save a tenth of the CPU time of `wc`."""

LARGEST_IN_MEMORY = 1 << 20  # bytes of a sample; the files of larger ones are copied by the system on disk
ROOM, FILES = 1 << 31, 1 << 20  # bytes and files that memory must have room for, and half of it must be free
SPARE, SPARE_FILES = 1 << 30, 1 << 18  # a command that leaves less is ended: the next write could find no space
WATCH = 50.0  # milliseconds between two looks at the memory; meanwhile a machine writes less than ROOM - SPARE
_OURS = ".tarkit-memory"


class WorkDirectory:
    """A new directory in `parent` for the directories of the samples of a run; `keep` leaves it.

    One in memory is locked, so that what a killed process has left there can be told from it.
    """

    def __init__(self, parent: str | None = None, keep: bool = False, in_memory: bool = False) -> None:
        self.keep = keep
        self.in_memory = in_memory
        self._lock = -1
        base = os.path.abspath(parent or FALLBACK)
        if in_memory:
            remove_abandoned(base)
        for attempt in range(1000):
            self.path = os.path.join(base, f"{_OURS if in_memory else '.tarkit'}-{os.getpid()}-{attempt}")
            if not keep:
                directories.add(self.path)
            try:
                os.mkdir(self.path, 0o700)
                break
            except FileExistsError:
                directories.discard(self.path)
            except OSError:
                directories.discard(self.path)
                raise
        else:
            raise FileExistsError(17, "too many directories of this name", self.path)
        if in_memory:
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.stat(self.path)  # raises if another process took it for abandoned before it was locked
            except BaseException:
                self.close()
                raise

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

    def check(self) -> None:
        """Raise TarkitError if little memory is left. So a command never finds none, which it could ignore."""
        free, _, files = free_space(self.path)
        if free < SPARE or files < SPARE_FILES:
            raise TarkitError(
                f"{os.path.dirname(self.path)} is nearly full, so that the command was ended",
                f"{spell_open('tmpdir', 'DIR')} names a directory with more space for its files",
            )

    def close(self) -> None:
        """Remove the directory."""
        if not self.keep:
            remove_tree(os.fsencode(self.path))
            directories.discard(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class SampleDirectory:
    """The directory of a sample, which is removed with the last reference to it."""

    def __init__(self, path: bytes, keep: bool) -> None:
        self.path = path
        self.keep = keep

    def __del__(self) -> None:
        if not self.keep:
            remove_tree(self.path)


class WorkDirectories:
    """Where the directories of the samples of a run are: in memory while they are small against it, else on disk.

    Attributes:
        disk: the directory on disk.

    Args:
        parent: where it is made.
        keep: leave it.
        in_memory: use memory as well. It is left out where programs cannot be started in it.
    """

    def __init__(self, parent: str | None, keep: bool, in_memory: bool) -> None:
        self.disk = WorkDirectory(parent, keep)
        self._memory: WorkDirectory | None = None
        try:
            if in_memory and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
                self._memory = WorkDirectory(MEMORY, in_memory=True)
        except OSError:
            pass  # the system has none

    def choose(self, largest: int) -> WorkDirectory:
        """Return where the directory of samples is made, the largest of which has so many bytes."""
        if self._memory is None or largest > LARGEST_IN_MEMORY:
            return self.disk
        free, whole, files = free_space(self._memory.path)
        return self._memory if free >= max(ROOM, whole // 2) and files >= FILES else self.disk

    def close(self) -> None:
        """Remove the directories."""
        for directory in (self.disk, self._memory):
            if directory is not None:
                directory.close()


def free_space(path: str) -> tuple[int, int, int]:
    """Return the bytes of a file system that are free, all of its bytes, and the number of files that can be made."""
    system = os.statvfs(path)
    files = system.f_favail if system.f_files else sys.maxsize  # 0: not limited
    return system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize, files


def remove_abandoned(place: str) -> None:
    """Remove the directories in memory of this user's processes that were killed. Those on disk stay."""
    for name in os.listdir(place):
        if not name.startswith(_OURS):
            continue
        path = os.path.join(place, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid() and os.path.samestat(os.fstat(fd), os.lstat(path)):
                remove_tree(os.fsencode(path))  # nobody else can put links into it
        except OSError:
            pass  # its process lives
        finally:
            os.close(fd)


def remove_tree(root: bytes) -> None:
    """Remove a directory and its contents as far as possible. Links are removed, never followed."""
    for _ in range(3):  # a process may still be writing to it
        tree = [root]
        for directory in tree:  # it grows
            with suppress(OSError):
                tree += _emptied(directory)
        for directory in reversed(tree):
            with suppress(OSError):
                os.rmdir(directory)
        if not os.path.lexists(root):
            return


def _emptied(directory: bytes, again: bool = True) -> list[bytes]:
    """Remove the files in a directory, which is opened up if need be; return the directories in it."""
    try:
        inner = []
        with os.scandir(directory) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.path)
                else:
                    os.unlink(entry.path)
        return inner
    except PermissionError:
        if not again or not stat.S_ISDIR(os.lstat(directory).st_mode):
            raise
        os.chmod(directory, 0o700)
        return _emptied(directory, again=False)


# ---- A sample as files, `sample.FIELD`, in a batch `sample-000007.FIELD`, and files as samples
# The file of a field whose name is not valid for a file gets another name, which is mapped back.

SMALL = 1 << 16  # bytes of a file that is read into memory
HELD = 1 << 20  # bytes of all such files of one sample
TOGETHER = 8  # samples of a batch that may have so many bytes in memory together
LONGEST = 255  # bytes of a file's name
KEY = b"__key__"  # suffix of the file with the key
_KEY_LIMIT = 1 << 16
_TAIL = 40  # bytes at the end of a name that are kept when it is cut: the suffixes that programs look at

STEM = b"sample"


class FileNames:
    """The names of the files of fields: `sample.FIELD`, or another name where that is not valid.

    Attributes:
        stem: what all of them begin with, before the first dot: `sample`, or `sample-NUMBER` in a batch.
    """

    def __init__(self, inputs: Sequence[InputField], stem: bytes = STEM) -> None:
        self.stem = stem
        start = stem + b"."
        room = LONGEST - len(start)
        self.file: dict[bytes, bytes] = {}
        self.field: dict[bytes, bytes] = {}  # of files that do not have its name
        strange = []
        for field in (entry.field for entry in inputs):
            if field == KEY or len(field) > room or b"\0" in field or b"/" in field:
                strange.append(field)
            else:
                self.file[field] = start + field
        taken = set(self.file.values())
        for field in strange:
            name = start + _cleaned(field, room, taken, start)
            taken.add(name)
            self.file[field] = name
            self.field[name[len(start) :]] = field


def _cleaned(field: bytes, room: int, taken: set[bytes], start: bytes) -> bytes:
    name = field.replace(b"%", b"%25").replace(b"/", b"%2F").replace(b"\0", b"%00")
    if name == KEY:
        name = b"%5F" + KEY[1:]
    dot = name.rfind(b".", len(name) - _TAIL)
    end = name[dot:] if dot >= 0 else b""
    mark = b"~0" if len(name) > room else b""
    number = 0
    while True:
        cut = name + mark
        if len(cut) > room:
            cut = name[: room - len(mark) - len(end)] + mark + end
        if start + cut not in taken:
            return cut
        number += 1
        mark = b"~%d" % number


def write_fields(job: Job, directory: SampleDirectory, names: FileNames) -> None:
    """Write the fields of a sample to files, and its key to `STEM.__key__`.

    Raises TarkitError for two fields of one name.
    """
    root = directory.path + b"/"
    _write(root + names.stem + b"." + KEY, job.key)
    for field in job.inputs():
        try:
            _write(root + names.file[field.field], field if field.data is None else field.data)
        except FileExistsError:
            message = f"{show(job.key)} has two fields {show(field.field)}, and a directory has one file of a name"
            skip = spell_open("skip", "duplicate-entry")
            raise TarkitError(message, f"{skip} leaves such samples out") from None


def _write(path: bytes, content: bytes | InputField) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if isinstance(content, bytes):
            write_all(fd, content)
        else:
            content.send(Sink(fd, os.fsdecode(path)))
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def collect_samples(
    job: Job, directory: SampleDirectory, names: FileNames, builder: SampleBuilder, multi: bool
) -> list[TarSample]:
    """Return the samples made of the files that a command left; with `multi` of `sample-NUMBER.FIELD`.

    Raises:
        WorkFailed: a file is not a regular file, or a key is invalid.
    """
    stems, _ = _listed(directory)
    wanted = [stem for stem in stems if (stem.startswith(STEM + b"-") if multi else stem == STEM)]
    room = _room(HELD, builder)
    samples: list[TarSample] = []
    keys = set()
    for stem in sorted(wanted, key=lambda stem: natural_key(os.fsdecode(stem))):
        key, fields, room = _read(job, directory, names, stem, stems[stem], room)
        if not fields:
            continue
        if key is None:
            key = job.key + b"/" + stem.removeprefix(STEM + b"-") if multi else job.key
        if key in keys:
            raise WorkFailed(f"gave two samples of the key {show(key)}")
        keys.add(key)
        check_key(key)
        samples.append(builder(job, key, fields, first=not samples))
    return samples


def collect_batch(
    jobs: Sequence[Job], directory: SampleDirectory, names: Sequence[FileNames], builder: SampleBuilder
) -> list[list[TarSample]]:
    """Return for each job the sample made of the files that a command left for it, or none.

    Raises:
        WorkFailed: a file belongs to no sample, or as for `collect_samples`.
    """
    stems, others = _listed(directory)
    strange = stems.keys() - {each.stem for each in names}
    if others := sorted([*others, *(name for stem in strange for name in stems[stem])]):
        words = f"left {show(others[0])}, which belongs to no sample of the batch"
        raise WorkFailed(f"{words}: call it {os.fsdecode(names[0].stem)}.FIELD and so on, or remove it")
    room = _room(min(len(jobs), TOGETHER) * HELD, builder)
    samples: list[list[TarSample]] = []
    for job, each in zip(jobs, names, strict=True):
        key, fields, room = _read(job, directory, each, each.stem, stems.get(each.stem, ()), room)
        key = job.key if key is None else key
        if fields:
            check_key(key)
        samples.append([builder(job, key, fields)] if fields else [])
    return samples


def _listed(directory: SampleDirectory) -> tuple[dict[bytes, list[bytes]], list[bytes]]:
    """Return the names of the files with a dot, by what is before the first one, and those of the others."""
    stems: dict[bytes, list[bytes]] = {}
    others = []
    try:
        listed = os.listdir(directory.path)
    except OSError as error:
        raise WorkFailed(f"left a directory that cannot be read: {error.strerror}") from None
    for name in listed:
        stem, dot, _ = name.partition(b".")
        if dot:
            stems.setdefault(stem, []).append(name)
        else:
            others.append(name)
    return stems, others


def _room(most: int, builder: SampleBuilder) -> int:
    """Return the bytes of files that are read into memory: none where the time of a file is needed."""
    return most if builder.mtime is not None else -1


def _read(
    job: Job, directory: SampleDirectory, names: FileNames, stem: bytes, files: Sequence[bytes], room: int
) -> tuple[bytes | None, list[tuple[bytes, Content]], int]:
    """Return the key that the files of a sample have, or None, the fields, and the bytes that memory has room for."""
    key: bytes | None = None
    fields: list[tuple[bytes, Content]] = []
    for name in sorted(files):
        path, field = directory.path + b"/" + name, name[len(stem) + 1 :]
        if field == KEY:
            key = _key(path, job.key)
            continue
        content = _content(path, directory, min(SMALL, room))
        room -= len(content) if isinstance(content, bytes) else 0
        fields.append((names.field.get(field, field), content))
    return key, fields, room


def _content(path: bytes, owner: object, room: int) -> Content:
    """Return the content of a file, in memory up to `room` bytes; it is opened without following links or waiting."""
    name = path.rpartition(b"/")[2]
    kind = os.lstat(path).st_mode
    if not stat.S_ISREG(kind):
        words = next((words for test, words in _KINDS if test(kind)), "not a regular file")
        hint = ": copy its target instead" if stat.S_ISLNK(kind) else ""
        raise WorkFailed(f"left {show(name)}, which is {words}{hint}")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise WorkFailed(f"left {show(name)}, which cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if status.st_size > room:
            return FileContent(path, status.st_size, seconds(status), owner)
        data = os.read(fd, status.st_size)
        if len(data) < status.st_size:
            raise WorkFailed(f"left {show(name)}, which shrank while it was read")
        return data
    finally:
        os.close(fd)


def _key(path: bytes, before: bytes) -> bytes:
    """Return the key in a file, without one line end at its end unless it is the key `before`."""
    key = _content(path, None, _KEY_LIMIT)
    if not isinstance(key, bytes):
        raise WorkFailed(f"left a key of {plural(key.size or 0, 'byte')}")
    return before if key == before else without_end(key)


_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
)
