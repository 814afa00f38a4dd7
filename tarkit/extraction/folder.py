"""A folder that archives are unpacked into, and nothing outside of it, whatever names and links they have.

Each component of a path is opened from the one before, never following a symbolic link (openat with O_NOFOLLOW), so
neither links nor races lead out. A file gets its name when it is complete, whatever ends the process. Until then a
small one has no name (O_TMPFILE), where the file system has such files; any other is `.NAME.PID.part` beside it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from tarkit.errors import TarkitError, show
from tarkit.streams.copy import write_all
from tarkit.streams.sink import Sink, unfinished

OPEN = 64  # folders that are kept open
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", os.O_DIRECTORY)  # a directory is refused: EISDIR
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

Made = TypeVar("Made")


class Unsafe(ValueError):
    """A name or a link that leads out of the directory, or through something that is not a directory."""


class Exists(TarkitError):
    """There is something under the name of an entry; `name` is that."""

    def __init__(self, name: bytes) -> None:
        super().__init__(f"{show(name)} is there already")
        self.name = name


def components(name: bytes) -> list[bytes]:
    """The parts of a path that stays below; `.` and empty ones left out. Raises Unsafe."""
    if name.startswith(b"/") or b"\0" in name:
        raise Unsafe(f"the name {show(name)} is not safe to extract")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise Unsafe(f"the name {show(name)} is not safe to extract")
    return parts


def check_target(parts: list[bytes], target: bytes) -> None:
    """Raises Unsafe unless a symbolic link at `parts` that points to `target` stays below.

    `..` may stand only in front, where it leaves folders that are known to be ones: behind a name it could be that of
    another link.
    """
    steps = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = 0
    while up < len(steps) and steps[up] == b"..":
        up += 1
    if not target or target.startswith(b"/") or b"\0" in target or b".." in steps[up:] or up >= len(parts):
        raise Unsafe(f"{show(b'/'.join(parts))} is a symbolic link that may lead outside, to {show(target)}")


class OutputDirectory:
    """The folder `path`, made if it is missing. With `force` files that are there are replaced, but none of `inputs`,
    which are pairs of device and inode.
    """

    def __init__(self, path: str, force: bool = False, inputs: Collection[tuple[int, int]] = ()) -> None:
        self._inputs = inputs
        self.path = os.fsencode(path)
        self.force = force
        self._open: dict[tuple[bytes, ...], int] = {}
        self._root = -1
        self._unnamed = True  # until the file system refuses a file without a name

    def __enter__(self) -> OutputDirectory:
        """Open the directories that exist."""
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
        """What is there under a name. Raises Unsafe when that lies behind a link, or below a file."""
        folder = self._folder(parts[:-1], make=False)
        if folder is None:
            return None
        try:
            return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def folder(self, parts: list[bytes]) -> None:
        """Have a folder there."""
        self._folder(parts, make=True)

    def small(self, parts: list[bytes], data: bytes | memoryview, mode: int, time: int | None) -> None:
        """Write a file at once; `time` in nanoseconds, None for now. Raises Exists."""
        if self._unnamed and not (self.force and self.existing(parts)):
            try:
                if self._write_unnamed(self._made(parts), parts[-1], data, mode, time):
                    return
            except FileExistsError:
                if not self.force:
                    raise Exists(b"/".join(parts)) from None
        self.large(parts, lambda sink: sink.write(data), mode, time)

    def _write_unnamed(self, folder: int, base: bytes, data: bytes | memoryview, mode: int, time: int | None) -> bool:
        """Write a file that has no name before it is complete; whether that is possible. Raises FileExistsError."""
        try:
            fd = os.open(b".", _UNNAMED, mode, dir_fd=folder)
        except OSError:
            self._unnamed = False
            return False
        try:
            write_all(fd, data)
            if time is not None:
                os.utime(fd, ns=(time, time))
            try:
                os.link(b"/proc/self/fd/%d" % fd, base, dst_dir_fd=folder)
            except FileExistsError:
                raise
            except OSError:
                self._unnamed = False
            return self._unnamed
        finally:
            os.close(fd)

    def large(self, parts: list[bytes], fill: Callable[[Sink], None], mode: int, time: int | None) -> None:
        """Write a file beside its name: `fill` gets what to write it to. Raises Exists."""
        folder = self._made(parts)
        with self._beside(folder, parts, lambda part: os.open(part, _NEW, mode, dir_fd=folder)) as fd:
            try:
                fill(Sink(fd, os.fsdecode(b"/".join(parts))))
                if time is not None:
                    os.utime(fd, ns=(time, time))
            finally:
                os.close(fd)

    @contextmanager
    def _beside(self, folder: int, parts: list[bytes], make: Callable[[bytes], Made]) -> Iterator[Made]:
        """What `make` makes under a temporary name. At the end it gets the name that it is for; after an error it goes.

        A temporary name may be taken: by a run that was killed, or runs on another machine.
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
                unfinished.discard(path)  # it is not ours
                if error.errno != errno.EEXIST or attempt == 999:
                    raise
        try:
            yield made
            self._name(folder, part, base, parts)
        finally:
            try:
                os.unlink(part, dir_fd=folder)
            except FileNotFoundError:
                pass
            unfinished.discard(path)

    def _name(self, folder: int, part: bytes, base: bytes, parts: list[bytes]) -> None:
        """Give a complete file its name, over what is there only by force."""
        if self.force:
            self._spare(parts)
            os.rename(part, base, src_dir_fd=folder, dst_dir_fd=folder)
            return
        try:
            os.link(part, base, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise Exists(b"/".join(parts)) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self.existing(parts) is not None:
                raise Exists(b"/".join(parts)) from None
            os.rename(part, base, src_dir_fd=folder, dst_dir_fd=folder)

    def symlink(self, parts: list[bytes], target: bytes) -> None:
        """Make a symbolic link, which stays below. Raises Unsafe, Exists."""
        check_target(parts, target)
        folder = self._made(parts)
        self._link(folder, parts, lambda name: os.symlink(target, name, dir_fd=folder))

    def hard_link(self, parts: list[bytes], target: list[bytes]) -> None:
        """Make another name for a file. Raises Exists."""
        if len(self._open) > OPEN - 2:
            self._forget()  # now, not between the two
        folder = self._made(parts)
        other = self._folder(target[:-1], make=True)

        def make(name: bytes) -> None:
            os.link(target[-1], name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)

        self._link(folder, parts, make)

    def _link(self, folder: int, parts: list[bytes], make: Callable[[bytes], None]) -> None:
        """Make a link under its name, which is one step; what is there is replaced only by force, when there is one."""
        try:
            make(parts[-1])
        except FileExistsError:
            if not self.force:
                raise Exists(b"/".join(parts)) from None
            with self._beside(folder, parts, make):
                pass

    def _spare(self, parts: list[bytes]) -> None:
        """Raises TarkitError when what would be replaced is an input."""
        there = self.existing(parts)
        if there is not None and (there.st_dev, there.st_ino) in self._inputs:
            raise TarkitError(f"{show(b'/'.join(parts))} would replace an input", "-C names another folder")

    def _made(self, parts: list[bytes]) -> int:
        folder = self._folder(parts[:-1], make=True)
        assert folder is not None
        return folder

    def _folder(self, parts: list[bytes], make: bool) -> int | None:
        """The descriptor of a folder below, which may have to be made; None when it is missing and stays so."""
        path = tuple(parts)
        if not path or self._root < 0:
            return self._root if self._root >= 0 else None
        fd = self._open.get(path)
        if fd is None:
            if len(self._open) >= OPEN:
                self._forget()
            fd = self._enter(parts, make)
            if fd is not None:
                self._open[path] = fd
        return fd

    def _enter(self, parts: list[bytes], make: bool) -> int | None:
        fd = os.dup(self._root)
        try:
            for count, part in enumerate(parts, 1):
                try:
                    below = self._below(fd, part, make)
                except OSError as error:
                    _refuse(error, parts[:count])
                if below is None:
                    return None
                fd, above = below, fd
                os.close(above)
            kept, fd = fd, -1
            return kept
        finally:
            if fd >= 0:
                os.close(fd)

    @staticmethod
    def _below(fd: int, part: bytes, make: bool) -> int | None:
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


def _refuse(error: OSError, parts: list[bytes]) -> NoReturn:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        raise Unsafe(f"{show(b'/'.join(parts))} is no folder, and nothing is written through it")
    raise error
