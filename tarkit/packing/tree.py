"""The files below a directory or a URL, in byte order of their whole paths, directory by directory and so in little
memory.

A directory sorts as its name with a trailing slash, so its files come where their whole paths belong (`a.txt`, `a/b`,
`a0`). Names are held for one directory at a time, about 60 bytes each besides their own.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tarkit.errors import TarkitError, show
from tarkit.packing.files import LocalFiles, ObjectFiles, Symlinks, is_remote
from tarkit.packing.planned import parse_source
from tarkit.shards.patterns import compile_glob
from tarkit.stores.store import Info, StoreOptions
from tarkit.tables.content import UNSIZED
from tarkit.tar.block import DOT

Chunk = tuple[bytes, list[bytes], Sequence[int]]
"""Consecutive files of a directory: the directory with a slash, or nothing, their base names, their sizes."""

STEP = 4096  # files whose sizes are looked up together; maximum of a chunk
JUNK = (b".DS_Store", b"Thumbs.db", b"desktop.ini")  # of file managers; also `._*`
JUNK_DIRECTORY = b"__MACOSX/"

_UNSIZED = (UNSIZED,) * STEP


@dataclass
class CountedNames:
    """The number of files or samples of one kind, and the first of them."""

    count: int = 0
    first: bytes = b""

    def add(self, name: bytes, count: int = 1) -> None:
        """Count some, the first of which has this name."""
        self.first = self.first if self.count else name
        self.count += count


@dataclass
class Tree:
    """The regular files below the directory `root`, or the objects below the URL `root`.

    Args:
        symlinks: "files": links to files are files; "all": links to directories are directories too; "skip": none.
        match: only names that this expression matches.
        exclude: globs of whole paths, or of base names if they have no slash; a directory excludes its content.
        hidden: by directory, a test for base names that are left out, such as those of the outputs.
        together: for keys within a directory, returns the part of a base name that files of one sample have in common:
            they then follow each other, where the first of them is.
        scattered: `together` does not end at the first dot, so files have to be grouped in each directory.
        sized: whether sizes are looked up; else all are UNSIZED. Those of objects are in the list.
        missing: whether files that disappear before that get size 0, to be left out later; else they raise.
        keep_junk: whether files that file managers make (JUNK, `._*`, those below JUNK_DIRECTORY) are listed.
        directories: gets the directories whose files are listed, without those of the outputs.

    `junk` counts files of file managers that were left out; `skipped` what else was, by kind; `files` and `content`
    (bytes) what was yielded.
    """

    root: str
    symlinks: Symlinks = "files"
    match: re.Pattern[str] | None = None
    exclude: Sequence[str] = ()
    hidden: dict[bytes, Callable[[bytes], bool]] = field(default_factory=dict)
    together: Callable[[bytes], bytes] | None = None
    scattered: bool = False
    sized: bool = True
    missing: bool = False
    tmpdir: str | None = None
    storage: StoreOptions | None = None
    keep_junk: bool = False
    directories: list[bytes] | None = None
    junk: CountedNames = field(default_factory=CountedNames)
    skipped: defaultdict[str, CountedNames] = field(default_factory=lambda: defaultdict(CountedNames))
    files: int = 0
    content: int = 0

    def __post_init__(self) -> None:
        self._files: LocalFiles | ObjectFiles
        self.remote = is_remote(self.root)
        if self.remote:
            self._files, self.sized = ObjectFiles(self.root, self.tmpdir, self.storage), True
        else:
            self._files = LocalFiles(self.root, self.symlinks, self.missing)
        self.mark = self._files.mark
        self._globs = [("/" in glob, compile_glob(glob)) for glob in self.exclude]

    def directory_paths(self) -> list[bytes]:
        """Return the paths of the `directories`."""
        front = parse_source(self.mark)[1] if self.directories else b""
        return [(front + directory).rstrip(b"/") or b"/" for directory in self.directories or ()]

    def source(self, name: bytes) -> bytes:
        """Return the source of the file of this name, as in a recipe."""
        return self.mark + name

    def has_changed(self, source: bytes, info: Info) -> bool:
        """Return whether an object is known not to be the one that was listed."""
        return isinstance(self._files, ObjectFiles) and self._files.has_changed(source, info)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield all files. Raises OSError for a directory that cannot be read."""
        for directory, names in self._runs():
            for start in range(0, len(names), STEP):
                part = names if len(names) <= STEP else names[start : start + STEP]
                sizes: Sequence[int] = _UNSIZED[: len(part)]
                if self.sized:
                    sizes = self._files.sizes(directory, part)
                    self.content += sum(sizes)
                self.files += len(part)
                yield directory, part, sizes

    def _runs(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield consecutive files, without a directory between them."""
        above = [self._files.identity(b"")]
        stack = [(b"", self._listed(b""))]
        while stack:
            directory, rest = stack[-1]
            for names, below in rest:
                if names:
                    yield directory, names
                if below:
                    deeper = directory + below
                    if self.symlinks == "all":
                        ids = self._files.identity(deeper)
                        if ids in above:
                            raise TarkitError(f"{show(deeper)} is a link to a directory that contains it")
                        above.append(ids)
                    stack.append((deeper, self._listed(deeper)))
                    break
            else:
                stack.pop()
                if self.symlinks == "all":
                    above.pop()

    def _listed(self, directory: bytes) -> Iterator[tuple[list[bytes], bytes]]:
        """Return the content of a directory: files, and the subdirectory that follows them, if one does."""
        files, directories, skipped = self._files.scan(directory)
        for kind, name in sorted(skipped):
            self.skipped[kind].add(directory + name)
        if self.match or self.exclude or directory in self.hidden:
            files, directories = self._chosen(directory, files, directories)
        files.sort()
        in_junk = not self.keep_junk and b"/" + JUNK_DIRECTORY in b"/" + directory
        if not self.keep_junk:
            self._drop_junk(directory, files, in_junk)
        if self.directories is not None and not in_junk and directory not in self.hidden:
            self.directories.append(directory)
        if self.together is not None and (self.scattered or _interrupts(files, directories)):
            return _regrouped(files, directories, self.together)
        return _mixed(files, sorted(name + b"/" for name in directories))

    def _chosen(
        self, directory: bytes, files: list[bytes], directories: list[bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        hides = self.hidden.get(directory)
        if hides:
            own = [name for name in files if hides(name)]
            if own:
                self.skipped["files of this run"].add(directory + min(own), len(own))
            files = [name for name in files if not hides(name)]
        if self.match is not None:
            search = self.match.search
            files = [name for name in files if search(os.fsdecode(directory + name))]
        for whole, glob in self._globs:
            front = os.fsdecode(directory) if whole else ""
            files = [name for name in files if not glob.match(front + os.fsdecode(name))]
            directories = [name for name in directories if not glob.match(front + os.fsdecode(name))]
        return files, directories

    def _drop_junk(self, directory: bytes, files: list[bytes], all_: bool) -> None:
        """Remove files of file managers from the sorted base names of a directory, or `all_` of them."""
        if all_:
            junk = files[:]
            files.clear()
        else:
            start, stop = bisect_left(files, b"._"), bisect_left(files, b".`")  # the byte after _
            junk = files[start:stop]
            del files[start:stop]
            for name in JUNK:
                at = bisect_left(files, name)
                if files[at : at + 1] == [name]:
                    junk.append(files.pop(at))
        if junk:
            self.junk.add(directory + junk[0], len(junk))


def _regrouped(
    files: list[bytes], directories: list[bytes], together: Callable[[bytes], bytes]
) -> Iterator[tuple[list[bytes], bytes]]:
    """Yield files of one sample where its first is, also if a directory or another sample sorts between them."""
    groups: dict[bytes, list[bytes]] = {}
    order: list[tuple[list[bytes], bytes]] = []
    below = {name + b"/" for name in directories}
    for name in sorted([*files, *below]):
        if name in below:
            order.append(([], name))
        elif (group := groups.get(stem := together(name))) is not None:
            group.append(name)
        else:
            groups[stem] = [name]
            order.append((groups[stem], b""))
    names: list[bytes] = []
    for group, directory in order:
        names += group
        if directory:
            yield names, directory
            names = []
    yield names, b""


def _mixed(files: list[bytes], directories: list[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
    start = 0
    for directory in directories:
        stop = bisect_left(files, directory, start)
        yield files[start:stop], directory
        start = stop
    yield files[start:] if start else files, b""


def _interrupts(files: list[bytes], directories: list[bytes]) -> bool:
    """Return whether files that are equal up to the first dot may not be consecutive: `a.b/` is between a.a and a.c,
    and a file without a dot is before `a-b.c`, which is before a.c."""
    return bool([name for name in directories if DOT in name] or [name for name in files if DOT not in name])
