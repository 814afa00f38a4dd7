"""A cache of whole objects in a directory, for any number of processes at a time.

`DIR/tarkit/` has a file for each object, whose name begins with hashes of its URL, with the server and the account that
it is read from, and of its version (ETag and length). Each time an object is opened, one small request asks for its
version. So a file of another version is never used, and different objects never share one.

- An object is written to `NAME.part` under an exclusive lock, and renamed once all of it is on the disk. Other
  processes that want it wait for that. Locks are those of flock(2), which end with their process, however that ends:
  a killed process leaves a `.part` without a lock, which the next process overwrites or removes.
- A file that is open has a shared lock. To make room, files that no process has open are removed, those first that were
  opened longest ago (their time of access).
- `DIR/tarkit/` is for one user. Nobody else may write there; a link, or a file of somebody else, is never opened.

Whatever fails in the directory, objects are read without it, and one line says so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import sha256
from time import sleep, time_ns
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from tarkit.errors import TarkitError
from tarkit.sizes import plural
from tarkit.stores.reading import RemoteObject

PART = ".part"
"""Suffix of a file that is not complete."""

_FOLDER = "tarkit"
_LOCK = "lock"  # the file whose lock is held while room is made
_CHUNK = 1 << 20  # bytes that are read at a time
_WAIT = 0.1  # seconds between two attempts to get a lock: a signal that arrives just before a wait is handled then
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ENTRY = re.compile("[0-9a-f]{32}-[0-9a-f]{32}-.*")


class CachedFile(NamedTuple):
    """A file with all bytes of an object: its descriptor, which holds a lock, its path, and the object's version."""

    fd: int
    path: str
    version: str | None = None


class ObjectCache:
    """The cache in a directory.

    Args:
        directory: the directory, which is made if it does not exist.
        size: the sum of the lengths of all files in it; None for no limit.
        tell: called with a line when objects are read without the cache.
    """

    def __init__(
        self, directory: str, size: int | None = None, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.directory = directory
        self.folder = os.path.join(directory, _FOLDER)
        self.size = size
        self._tell = tell
        self._told: set[str] = set()
        self._failed = False

    def open(self, remote: RemoteObject) -> CachedFile | None:
        """Return the file with an object, fetched if it is missing; None if the object is read without the cache.

        Raises the errors of the store.
        """
        info = remote.info
        if info.size is None or info.version is None:
            self._tell_once(f"{remote.name}: read without the cache: the server does not name its version and length")
            return None
        path = os.path.join(self.folder, _file_name(remote))
        try:
            self._own_folder()
            cached = _complete(path, info.size)
            while cached is None and not self._failed:
                fd = _begin(path + PART)
                if fd is not None:
                    return self._fetch(remote, info.size, fd, path)
                sleep(_WAIT)  # another process fetches it
                cached = _complete(path, info.size)
            return cached
        except _StoreError as error:
            raise error.error from None
        except OSError as error:
            self._failed = True
            self._tell_once(f"cache {self.directory}: {error.strerror or error}: objects are read without it")
            return None

    def _own_folder(self) -> None:
        """Make the directory of the files. Raises OSError if it is a link, or if others have made it."""
        for make in (partial(os.makedirs, self.directory), partial(os.mkdir, self.folder, 0o700)):
            with suppress(FileExistsError):
                make()
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if status.st_uid not in _users(self.folder):
                raise OSError(errno.EPERM, f"{_FOLDER} in it belongs to another user")
            if status.st_mode & _OTHERS:
                os.fchmod(fd, stat.S_IMODE(status.st_mode) & ~_OTHERS)
        finally:
            os.close(fd)

    def _fetch(self, remote: RemoteObject, size: int, fd: int, path: str) -> CachedFile | None:
        """Return the file, after fetching it to the locked `fd`, unless another process has done so meanwhile."""
        try:
            cached = _complete(path, size)
            if cached is None and self._reserve(fd, size, path):
                _fill(fd, remote, size)
                os.rename(path + PART, path)
                fcntl.flock(fd, fcntl.LOCK_SH)
                cached = CachedFile(os.dup(fd), path)
            return cached
        finally:
            with suppress(OSError):
                if _is_at(fd, path + PART):
                    os.unlink(path + PART)
            os.close(fd)

    def _reserve(self, fd: int, size: int, path: str) -> bool:
        """Make room for `size` bytes, and give the file this length, so that other processes count it."""
        if self.size is not None and size > self.size:
            self._tell_once("objects larger than the cache are read without it")
            return False
        lock = _open(os.path.join(self.folder, _LOCK), os.O_RDWR | os.O_CREAT)
        try:
            _wait_for(lock, fcntl.LOCK_EX)
            total = size + self._make_room(size, path)
            if self.size is not None and total > self.size:
                self._tell_once("the cache is full of files that are in use: other objects are read without it")
                return False
            space = os.statvfs(self.folder)
            if space.f_bavail * space.f_frsize < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(fd, size)
            return True
        finally:
            os.close(lock)

    def _make_room(self, size: int, path: str) -> int:
        """Remove useless files, then those opened longest ago, until `size` bytes fit; return the bytes left.

        Useless are other versions of the object that will be at `path`, and files that killed processes left.
        """
        total, files = 0, []
        url = os.path.basename(path)[:33]
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if not _ENTRY.fullmatch(entry.name) or entry.path == path + PART:
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_size
                    useful = not entry.name.endswith(PART) and not entry.name.startswith(url)
                    files.append((useful, status.st_atime_ns, status.st_size, entry.path))
        for useful, _, length, file in sorted(files):
            if useful and (self.size is None or total + size <= self.size):
                break
            if _remove_unused(file):
                total -= length
        return total

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)


class _StoreError(Exception):
    """An OSError of the store, as opposed to the cache."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def _pieces(remote: RemoteObject) -> Iterator[bytes]:
    try:
        with remote.stream() as stream:
            yield from iter(partial(stream.read, _CHUNK), b"")
    except OSError as error:
        raise _StoreError(error) from error


def _file_name(remote: RemoteObject) -> str:
    """Return the name of the file of an object: hashes of its URL, with the server, and of its version; the name."""
    info = remote.info
    settings = [f"{name}={value}" for name, value in sorted(remote.options.plain.items())]
    url = "\n".join([remote.url, *remote.store.server(remote.url), *settings])
    name = re.sub(r"[^\w.+-]", "_", urlsplit(remote.url).path.rpartition("/")[2], flags=re.ASCII)
    return f"{_hash(url)}-{_hash(f'{info.size} {info.version}')}-{name[-100:]}"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _open(path: str, flags: int) -> int:
    """Open a file of the cache. Raises PermissionError for a link, one with another name, or one of somebody else."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
            raise PermissionError(errno.EPERM, "a link in place of a file") from None
        raise
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and status.st_uid in _users(os.path.dirname(path)):
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "not a file of this cache")


@lru_cache(maxsize=16)
def _users(folder: str) -> frozenset[int]:
    """Return whose files are trusted: those of this user, as a network may name it there, and of root."""
    users = {0, os.geteuid()}
    if os.stat(folder).st_uid not in users:
        path = os.path.join(folder, f"user-{uuid4().hex}")
        with suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            users.add(os.fstat(fd).st_uid)
            os.close(fd)
            os.unlink(path)
    return frozenset(users)


def _complete(path: str, size: int) -> CachedFile | None:
    """Open the file at `path` if it has `size` bytes, under a shared lock; note the time of access."""
    try:
        fd = _open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        if os.fstat(fd).st_size != size:
            return None
        _wait_for(fd, fcntl.LOCK_SH)
        status = os.fstat(fd)
        if status.st_size != size or not _is_at(fd, path):
            return None
        with suppress(OSError):  # a file of root
            os.utime(fd, ns=(time_ns(), status.st_mtime_ns))
        return CachedFile(os.dup(fd), path)
    finally:
        os.close(fd)


def _begin(part: str) -> int | None:
    """Open an empty file under an exclusive lock; None if another process has one. Anything but a file is removed."""
    try:
        fd = _open(part, os.O_RDWR | os.O_CREAT)
    except PermissionError:
        os.unlink(part)
        return None
    try:
        if _locked(fd, fcntl.LOCK_EX) and _is_at(fd, part):
            os.ftruncate(fd, 0)
            kept, fd = fd, -1
            return kept
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _fill(fd: int, remote: RemoteObject, size: int) -> None:
    """Write all bytes of an object to `fd`, and to the disk; the position of `fd` stays at the start.

    Raises TarkitError if they are fewer or more than `size`.
    """
    end = 0
    for piece in _pieces(remote):
        data = memoryview(piece)
        while data:
            written = os.pwrite(fd, data, end)
            data, end = data[written:], end + written
    if end != size:
        raise TarkitError(f"{remote.name}: {plural(end, 'byte was', 'bytes were')} read of an object of {size}")
    os.fsync(fd)


def _remove_unused(path: str) -> bool:
    """Remove a file that no process reads or writes; return whether it is gone."""
    try:
        fd = os.open(
            path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )  # on NFS an exclusive lock needs it
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if _locked(fd, fcntl.LOCK_EX) and _is_at(fd, path):
            os.unlink(path)
            return True
        return False
    except OSError:
        return False
    finally:
        os.close(fd)


def _wait_for(fd: int, operation: int) -> None:
    while not _locked(fd, operation):
        sleep(_WAIT)


def _locked(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
