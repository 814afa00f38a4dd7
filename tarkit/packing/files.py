"""The files of a tree, directory by directory: those of a local directory, or the objects of a store."""

from __future__ import annotations

import marshal
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from mmap import PROT_READ, mmap
from operator import itemgetter
from typing import Literal

from tarkit.errors import TarkitError, show
from tarkit.spill.records import by_rank
from tarkit.stores import connect, listing
from tarkit.stores.object_prefetch import fetch, prefetch_objects
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import Info, StoreOptions
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import path_source

Scanned = tuple[list[bytes], list[bytes], list[tuple[str, bytes]]]
"""Base names of the files and of the subdirectories of a directory, and other entries with their kind; unordered."""

Symlinks = Literal["files", "all", "skip"]

_PAGE = 4096  # objects in a record of the list of a store
_KEY = 12  # bytes of the hash of a name
_MARK = 8  # bytes of the hash of a version

Listed = tuple[bytes, int, int | None, str | None]
"""Name, size, time of modification and version of an object in a list."""


class LocalFiles:
    """The files below a directory of the file system. Directories are relative to it, and end in a slash; its own is
    empty.

    `mark` and the name of a file are its source, as in a recipe.

    Args:
        symlinks: as for `Tree`.
        missing: whether files that disappear get size 0; else they raise.
    """

    def __init__(self, root: str, symlinks: Symlinks = "files", missing: bool = False) -> None:
        front = os.fsencode(root)
        self._front = front if front.endswith(b"/") else front + b"/"
        self._symlinks = symlinks
        self._missing = missing
        self.mark = path_source(self._front)

    def scan(self, directory: bytes) -> Scanned:
        """Return the content of a directory."""
        skipped: list[tuple[str, bytes]] = []
        files: list[bytes] = []
        directories: list[bytes] = []
        with os.scandir(self._front + directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif not entry.is_symlink():
                    skipped.append(("neither files nor directories", entry.name))
                elif self._symlinks == "skip":
                    skipped.append(("symbolic links", entry.name))
                elif entry.is_file():
                    files.append(entry.name)
                elif not entry.is_dir():
                    skipped.append(("symbolic links to nothing", entry.name))
                elif self._symlinks == "all":
                    directories.append(entry.name)
                else:
                    skipped.append(("symbolic links to directories", entry.name))
        return files, directories, skipped

    def sizes(self, directory: bytes, names: list[bytes]) -> array[int]:
        """Return the sizes of files of a directory in bytes; 0 for missing ones, if these are allowed."""
        look, path = os.stat, self._front + directory
        try:
            return array("Q", [look(path + name).st_size for name in names])
        except (FileNotFoundError, NotADirectoryError):
            if not self._missing:
                raise
            return array("Q", [_size_if_there(path + name) for name in names])

    def identity(self, directory: bytes) -> tuple[int, int]:
        """Return device and inode of a directory."""
        status = os.stat(self._front + directory)
        return status.st_dev, status.st_ino


def _size_if_there(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


class ObjectFiles:
    """The objects whose URLs begin with that of a directory; what is before a slash in their names is a directory.

    Directories are requested once each, after their parents, in byte order; sizes only of the last one, and of those
    above it.

    The store is listed once, in any order, and the names are sorted in temporary space. Memory holds those of one
    directory, and of the directories above it. Empty objects whose names end in a slash are no files.

    Args:
        root: the URL of the directory.
    """

    def __init__(self, root: str, tmpdir: str | None = None, options: StoreOptions | None = None) -> None:
        self.root = root if root.endswith("/") else f"{root}/"
        self._options = options
        self.mark = self.root.encode("utf-8", "surrogateescape")
        self._tmpdir = tmpdir
        self._directories: Iterator[tuple[bytes, Iterator[tuple[bytes, bytes, int]]]] = iter(())
        self._sizes: dict[bytes, dict[bytes, int]] = {}
        self._list: TemporaryFile | None = None
        self._versions: VersionTable | None = None
        self._newest: int | None = None

    def scan(self, directory: bytes) -> Scanned:
        """Return the content of a directory."""
        if not directory:
            self._directories = groupby(self._sorted(), itemgetter(0))
        sizes: dict[bytes, int] = {}
        below: list[bytes] = []
        content = next((objects for name, objects in self._directories if name == directory), iter(()))
        for _, base, size in content:
            if not base.endswith(b"/"):
                if base in sizes and (size or sizes[base]):
                    raise listing.slash_error(self.root + os.fsdecode(directory + base))
                sizes[base] = size
            elif base[:-1] not in below[-1:]:
                below.append(base[:-1])
        self._sizes = {above: of_names for above, of_names in self._sizes.items() if directory.startswith(above)}
        self._sizes[directory] = sizes
        return list(sizes), below, []

    def sizes(self, directory: bytes, names: list[bytes]) -> list[int]:
        """Return the sizes of objects, from the list."""
        sizes = self._sizes[directory]
        return [sizes[name] for name in names]

    def has_changed(self, source: bytes, info: Info) -> bool:
        """Return whether an object is known not to be the one in the list: it is newer than all, or another version."""
        if self._newest is not None and info.modified is not None and info.modified > self._newest:
            return True
        listed = b"" if self._versions is None else self._versions.find(source.removeprefix(self.mark))
        return listed != b"" and info.version is not None and _mark(info.version) != listed

    def identity(self, directory: bytes) -> bytes:
        """Return the name: no directory of a store contains itself."""
        return directory

    def _sorted(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield directory, base name and size of each object, and of each directory, whose base name ends in a slash.

        The content of a directory comes together, before that of its subdirectories.
        """
        pairs = ((b"%b\0%b" % row[:2], marshal.dumps(row)) for row in _with_directories(self._listed()))
        return map(marshal.loads, by_rank(pairs, self._tmpdir))

    def _listed(self) -> Iterator[tuple[bytes, int]]:
        """Yield names and sizes of the objects. They are listed before, in a process that has threads for it."""
        self._list = file = TemporaryFile(self._tmpdir)

        def work() -> list[str]:
            with os.fdopen(os.dup(file.fd), "wb") as stream:
                page: list[Listed] = []
                for info in _without_marks(connect.list_objects(self.root, self._options), self._options):
                    if info.size is None:
                        message = f"{public_name(info.url)}: the store does not say how long this object is"
                        raise TarkitError(message, "download it")
                    name = info.url[len(self.root) :].encode("utf-8", "surrogateescape")
                    if b"\0" in name:
                        raise TarkitError(f"{public_name(self.root)}: {show(name)} is not the name of a file")
                    page.append((name, info.size, info.modified, info.version))
                    if len(page) >= _PAGE:
                        marshal.dump(page, stream)
                        page = []
                marshal.dump(page, stream)
            return []

        listing.in_child(self.root, work)
        if os.lseek(file.fd, 0, os.SEEK_END) <= len(marshal.dumps([])):
            raise TarkitError(
                f"{public_name(self.root)}: there are no objects below it", "for an archive: tarkit split"
            )
        for name, size, modified, _ in self._pages():
            if modified is not None:
                self._newest = max(self._newest or 0, modified)
            yield name, size
        versions = ((name, version) for name, _, _, version in self._pages() if version is not None)
        self._versions = VersionTable(versions, self._tmpdir)

    def _pages(self) -> Iterator[Listed]:
        assert self._list is not None
        end = os.lseek(self._list.fd, 0, os.SEEK_END)
        os.lseek(self._list.fd, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._list.fd), "rb") as stream:
            while stream.tell() < end:
                yield from marshal.load(stream)


class VersionTable:
    """What tells versions of objects apart, by their names: a sorted table in temporary space, 20 bytes for each."""

    def __init__(self, versions: Iterable[tuple[bytes, str]], tmpdir: str | None) -> None:
        file = TemporaryFile(tmpdir)
        pairs = ((key, key + _mark(version)) for name, version in versions for key in (_hash(name, _KEY),))
        with os.fdopen(os.dup(file.fd), "wb") as stream:
            stream.writelines(by_rank(pairs, tmpdir))
        size = os.fstat(file.fd).st_size
        self._count = size // (_KEY + _MARK)
        self._table = mmap(file.fd, size, prot=PROT_READ) if size else None

    def find(self, name: bytes) -> bytes:
        """Return the mark of the version of an object, b"" for an object without one."""
        table, wanted, step = self._table, _hash(name, _KEY), _KEY + _MARK
        if table is None:
            return b""
        at = step * bisect_left(range(self._count), wanted, key=lambda row: table[step * row : step * row + _KEY])
        return table[at + _KEY : at + step] if table[at : at + _KEY] == wanted else b""


def _mark(version: str) -> bytes:
    return _hash(version.encode("utf-8", "surrogatepass"), _MARK)


def _hash(data: bytes, size: int) -> bytes:
    from hashlib import blake2b  # takes milliseconds to load

    return blake2b(data, digest_size=size).digest()


def _without_marks(objects: Iterator[Info], options: StoreOptions | None) -> Iterator[Info]:
    """Leave out empty objects whose names end in a slash: they stand for directories.

    Lists of obstore have their names without the slash. So an empty object is requested by its name, and if there is
    none, or one that is not empty, it is left out.
    """
    request_one = partial(fetch, options=options)
    empty = prefetch_objects(objects, lambda info: (info.url, 0) if info.size == 0 else None, request_one)
    for info, request in empty:
        if request is not None:
            try:
                if info.url.endswith("/") or request.result().info.size:
                    continue
            except FileNotFoundError:
                continue
        yield info


def _with_directories(names: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield directory, base name and size of each file and, perhaps repeatedly, of each directory, as `NAME/`."""
    last = b""
    for name, size in names:
        cut = name.rfind(b"/") + 1
        directory = name[:cut]
        if not last.startswith(directory):
            start = 0
            while stop := directory.find(b"/", start) + 1:
                if not last.startswith(directory[:stop]):
                    yield directory[:start], directory[start:stop], 0
                start = stop
        last = directory
        yield directory, name[cut:], size


def is_remote(root: str) -> bool:
    """Whether the root of a tree is the URL of a directory. A local directory of that name is meant first."""
    return scheme_of(root) is not None and not os.path.exists(root)
