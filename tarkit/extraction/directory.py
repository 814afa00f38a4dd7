"""The output directory of an extraction: no name or link of an archive leads out of it.

Each component of a path is opened relative to its parent, without following symbolic links (openat with O_NOFOLLOW), so
neither links nor races lead out. A file gets its name when it is complete. Until then a small file has no name
(O_TMPFILE), if the file system supports that; any other is `.NAME.PID.part` in the same directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from tarkit.errors import TarkitError, show, spell
from tarkit.streams.copy import write_all
from tarkit.streams.sink import Sink, unfinished

OPEN = 64  # directories that are kept open
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", os.O_DIRECTORY)  # a directory is refused: EISDIR
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

Made = TypeVar("Made")


class Unsafe(ValueError):
    """A name or a link that leads out of the directory, or through something that is not a directory."""


class InTheWay(Unsafe):
    """A link or a file of the output directory, where a directory is needed."""


class Exists(TarkitError):
    """The file of an entry exists; `name` is its path."""

    def __init__(self, name: bytes) -> None:
        super().__init__(f"{show(name)} exists")
        self.name = name


def components(name: bytes) -> list[bytes]:
    """Return the components of a path without `.` and empty ones.

    Raises:
        Unsafe: the path is absolute, or contains `..` or a NUL.
    """
    if name.startswith(b"/") or b"\0" in name:
        raise Unsafe(f"the name {show(name)} is not safe to extract")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise Unsafe(f"the name {show(name)} is not safe to extract")
    return parts


def check_target(parts: list[bytes], target: bytes) -> None:
    """Check that a symbolic link at `parts` to `target` stays inside the directory.

    `..` may only be at the beginning of the target, where its parents are known directories; after a name, that name
    may be another link.

    Raises:
        Unsafe: the link may lead outside.
    """
    steps = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = 0
    while up < len(steps) and steps[up] == b"..":
        up += 1
    if not target or target.startswith(b"/") or b"\0" in target or b".." in steps[up:] or up >= len(parts):
        raise Unsafe(f"{show(b'/'.join(parts))} is a symbolic link that may lead outside, to {show(target)}")


class OutputDirectory:
    """The directory to which files are extracted.

    Args:
        path: the directory; `make` creates it.
        force: replace existing files.
        inputs: (device, inode) of files that are never replaced.
    """

    def __init__(self, path: str, force: bool = False, inputs: Collection[tuple[int, int]] = ()) -> None:
        self._inputs = inputs
        self.path = os.fsencode(path)
        self.force = force
        self._open: dict[tuple[bytes, ...], int] = {}
        self._root = -1
        self._unnamed = True  # until the file system refuses a file without a name

    def __enter__(self) -> OutputDirectory:
        """Open the directory if it exists."""
        try:
            self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        return self

    def __exit__(self, *error: object) -> None:
        """Close the directories."""
        self._forget()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def make(self) -> None:
        """Create the directory if it does not exist."""
        if self._root < 0:
            os.makedirs(self.path, exist_ok=True)
            self.__enter__()

    def existing(self, parts: list[bytes]) -> os.stat_result | None:
        """Return the status of the file at a path, None if it does not exist.

        Raises:
            Unsafe: a parent is a link or a file.
        """
        parent = self._directory(parts[:-1], make=False)
        if parent is None:
            return None
        try:
            return os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make_directory(self, parts: list[bytes]) -> None:
        """Create a directory with its parents if it does not exist."""
        self._directory(parts, make=True)

    def small(self, parts: list[bytes], data: bytes | memoryview, mode: int, time: int | None) -> None:
        """Write a small file; `time` in nanoseconds, None for now. Raises Exists."""
        if self._unnamed and not (self.force and self.existing(parts)):
            try:
                if self._write_unnamed(self._parent(parts), parts[-1], data, mode, time):
                    return
            except FileExistsError:
                if not self.force:
                    raise Exists(b"/".join(parts)) from None
        self.large(parts, lambda sink: sink.write(data), mode, time)

    def _write_unnamed(self, parent: int, base: bytes, data: bytes | memoryview, mode: int, time: int | None) -> bool:
        """Write a file without a name, and link it; return whether the file system supports that.

        Raises:
            FileExistsError: the name is taken.
        """
        try:
            fd = os.open(b".", _UNNAMED, mode, dir_fd=parent)
        except OSError:
            self._unnamed = False
            return False
        try:
            write_all(fd, data)
            if time is not None:
                os.utime(fd, ns=(time, time))
            try:
                os.link(b"/proc/self/fd/%d" % fd, base, dst_dir_fd=parent)
            except FileExistsError:
                raise
            except OSError:
                self._unnamed = False
            return self._unnamed
        finally:
            os.close(fd)

    def large(self, parts: list[bytes], fill: Callable[[Sink], None], mode: int, time: int | None) -> None:
        """Write a file under a temporary name, then rename it; `fill` writes to the sink. Raises Exists."""
        parent = self._parent(parts)
        with self._temporary(parent, parts, lambda part: os.open(part, _NEW, mode, dir_fd=parent)) as fd:
            try:
                fill(Sink(fd, os.fsdecode(b"/".join(parts))))
                if time is not None:
                    os.utime(fd, ns=(time, time))
            finally:
                os.close(fd)

    @contextmanager
    def _temporary(self, parent: int, parts: list[bytes], make: Callable[[bytes], Made]) -> Iterator[Made]:
        """Create a file with `make` under a temporary name; at the end it is renamed, after an error removed.

        A temporary name may be taken by a run that was killed, or by one on another machine.
        """
        base = parts[-1]
        for attempt in range(1000):
            part = b".%b.%d%b.part" % (base[:230], os.getpid(), b".%d" % attempt if attempt else b"")
            path = os.fsdecode(b"/".join((self.path, *parts[:-1], part)))
            unfinished.add(path)
            try:
                made = make(part)
                break
            except OSError as error:
                unfinished.discard(path)  # this process did not create it
                if error.errno != errno.EEXIST or attempt == 999:
                    raise
        try:
            yield made
            self._rename(parent, part, base, parts)
        finally:
            try:
                os.unlink(part, dir_fd=parent)
            except FileNotFoundError:
                pass
            unfinished.discard(path)

    def _rename(self, parent: int, part: bytes, base: bytes, parts: list[bytes]) -> None:
        """Rename a complete file to its final name; an existing file is replaced only by force."""
        if self.force:
            self._check_input(parts)
            os.rename(part, base, src_dir_fd=parent, dst_dir_fd=parent)
            return
        try:
            os.link(part, base, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            raise Exists(b"/".join(parts)) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self.existing(parts) is not None:
                raise Exists(b"/".join(parts)) from None
            os.rename(part, base, src_dir_fd=parent, dst_dir_fd=parent)

    def symlink(self, parts: list[bytes], target: bytes) -> None:
        """Create a symbolic link. Raises Unsafe if it leads outside, Exists."""
        check_target(parts, target)
        parent = self._parent(parts)
        self._link(parent, parts, lambda name: os.symlink(target, name, dir_fd=parent))

    def hard_link(self, parts: list[bytes], target: list[bytes]) -> None:
        """Create a hard link. Raises Exists."""
        if len(self._open) > OPEN - 2:
            self._forget()  # so that both descriptors stay open
        parent = self._parent(parts)
        other = self._directory(target[:-1], make=True)

        def make(name: bytes) -> None:
            os.link(target[-1], name, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)

        self._link(parent, parts, make)

    def _link(self, parent: int, parts: list[bytes], make: Callable[[bytes], None]) -> None:
        """Create a link under its final name, in one step; an existing file is replaced only by force."""
        try:
            make(parts[-1])
        except FileExistsError:
            if not self.force:
                raise Exists(b"/".join(parts)) from None
            with self._temporary(parent, parts, make):
                pass

    def _check_input(self, parts: list[bytes]) -> None:
        """Raise TarkitError if an input would be replaced."""
        status = self.existing(parts)
        if status is not None and (status.st_dev, status.st_ino) in self._inputs:
            hint = f"choose another directory with {spell('directory')}"
            raise TarkitError(f"{show(b'/'.join(parts))} would replace an input", hint)

    def _parent(self, parts: list[bytes]) -> int:
        """Return the descriptor of the parent directory, which is created if missing."""
        parent = self._directory(parts[:-1], make=True)
        assert parent is not None
        return parent

    def _directory(self, parts: list[bytes], make: bool) -> int | None:
        """Return the descriptor of a directory; if it is missing, create it with `make`, else return None."""
        path = tuple(parts)
        if not path or self._root < 0:
            return self._root if self._root >= 0 else None
        fd = self._open.get(path)
        if fd is None:
            if len(self._open) >= OPEN:
                self._forget()
            fd = self._open_directory(parts, make)
            if fd is not None:
                self._open[path] = fd
        return fd

    def _open_directory(self, parts: list[bytes], make: bool) -> int | None:
        fd = os.dup(self._root)
        try:
            for count, part in enumerate(parts, 1):
                try:
                    child = self._open_child(fd, part, make)
                except OSError as error:
                    _raise_unsafe(error, parts[:count])
                if child is None:
                    return None
                fd, parent = child, fd
                os.close(parent)
            kept, fd = fd, -1
            return kept
        finally:
            if fd >= 0:
                os.close(fd)

    @staticmethod
    def _open_child(fd: int, part: bytes, make: bool) -> int | None:
        try:
            return os.open(part, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                return None
        try:
            os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass
        return os.open(part, _DIRECTORY, dir_fd=fd)

    def _forget(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()


def _raise_unsafe(error: OSError, parts: list[bytes]) -> NoReturn:
    """Raise InTheWay if a path leads through a link or a file, else the error."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        raise InTheWay(f"{show(b'/'.join(parts))} is not a directory")
    raise error
