"""Objects at URLs of any other scheme that fsspec supports: memory://, ftp://, sftp://, hdfs://, smb:// ...

Many of these file systems publish a file while it is written, and one whose writer fails stays. So an object is written
under another name in its directory, checked for its length, and renamed; where a file system cannot rename, writing is
refused. A connection serves one request at a time, and is made anew after an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import itemgetter
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from tarkit.errors import MissingLibrary, TarkitError, Unsupported, Usage
from tarkit.sizes import plural
from tarkit.stores.retry import request_again
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import (
    Info,
    PieceReply,
    Store,
    StoreOptions,
    TryAgain,
    Upload,
    changed_error,
    denied_error,
    not_found_error,
)

try:
    import fsspec  # type: ignore[import-untyped,unused-ignore]
except ImportError:
    raise MissingLibrary("reading and writing this URL", "fsspec", "fsspec") from None

_T = TypeVar("_T")
_PIECE = 8 << 20  # bytes that are requested at a time
_BLOCK = 1 << 16  # bytes that a file system may read ahead of what was requested
_WRITTEN = 8 << 20  # bytes that are sent at a time
_SERVERS = ("ftp", "sftp", "ssh")  # their file systems take `timeout`, of a connection and of its replies
_VERSIONS = (
    "ETag", "etag", "e_tag", "version_id", "generation", "mtime", "modify", "modified", "last_modified",
    "LastModified", "modificationTime", "updated", "created",
)  # fmt: skip
_MOVES = ("mv", "mv_file", "move", "_mv_file", "cp_file", "_cp_file", "copy")


class OtherStore(Store):
    """Objects of the file systems of fsspec."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self._connections: dict[tuple[int, str], Connection] = {}

    def head(self, url: str) -> Info:
        connection, path = self._locate(url)
        return connection.use(url, lambda system: _info(url, path, system))

    def get(self, url: str, start: int, stop: int | None) -> OtherReply:
        connection, path = self._locate(url)
        return OtherReply(connection, url, path, self.head(url), start, stop)

    def put(self, url: str, fresh: bool) -> OtherUpload:
        connection, path = self._locate(url)
        return OtherUpload(connection, url, path)

    def delete(self, url: str) -> None:
        connection, path = self._locate(url)
        connection.use(url, lambda system: system.rm_file(path) if _exists(path, system) else _gone(path))

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        """Yield the objects whose URL begins with `url`, in the order of their names; directory by directory."""
        return self._walk(url[: max(url.rfind("/"), url.find("://") + 2) + 1], url, depth)

    def _walk(self, directory: str, prefix: str, depth: int | None) -> Iterator[Info]:
        connection, path = self._locate(directory)
        request = partial(connection.use, directory, partial(_entries, path))
        entries: list[tuple[str, dict[str, Any]]] = []
        try:
            for entry in request_again(request, public_name(directory), self.options):
                name = entry["name"].rstrip("/").rpartition("/")[2]
                entries.append((name + "/" if entry["type"] == "directory" else name, entry))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in sorted(entries, key=itemgetter(0)):
            url = directory + name
            if not url.startswith(prefix):
                continue
            if entry["type"] != "directory":
                # without a version: what a list calls one may differ from what a file is asked for
                yield Info(url, entry.get("size") if entry["type"] == "file" else None, None)
            elif depth is None or depth > 0:
                yield from self._walk(url, prefix, None if depth is None else depth - 1)

    def _locate(self, url: str) -> tuple[Connection, str]:
        """Return the connection of a URL, one for each server in each process, and the path there."""
        if "::" in url:
            raise Usage(f"{public_name(url)}: chains of URLs are not supported", "give one URL")
        key = (os.getpid(), "/".join(url.split("/", 3)[:3]))
        connection = self._connections.get(key) or self._connections.setdefault(key, Connection(url, self.options))
        return connection, connection.path(url)


class Connection:
    """A file system of one server, used by one thread at a time."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self._options = options
        self._scheme = scheme_of(url) or ""
        self._lock = threading.RLock()
        self._system: Any = None
        try:
            self._class: Any = fsspec.get_filesystem_class(self._scheme)
        except ImportError as error:
            raise TarkitError(f"{public_name(url)}: {error}") from error

    def path(self, url: str) -> str:
        """Return the path of a URL in the file system."""
        try:
            path: str = self._class._strip_protocol(self._scheme + url[len(self._scheme) :])
            self._class._get_kwargs_from_urls(url)
        except ValueError:  # whose text may have a part of the password
            message = f"{self._scheme}://: a URL whose login, host or port is not valid"
            raise Usage(message, "in a password # ? / : @ are %23 %3F %2F %3A %40") from None
        if "?" in url and self._scheme in _SERVERS:  # they would leave it out, with all that follows
            raise not_found_error(public_name(url))
        return path

    def use(self, url: str, action: Callable[[Any], _T]) -> _T:
        """Call `action` with the file system, and return its result; an error closes the connection."""
        with self._lock:
            try:
                if self._system is None:
                    self._system = self._connect(url)
                return action(self._system)
            except BaseException as error:
                if not isinstance(error, (FileNotFoundError, TarkitError)):
                    self._system = None  # the rest of a reply may still arrive
                if isinstance(error, Exception):
                    _raise_for(url, error, self._options)
                raise

    def renames(self) -> bool:
        """Whether the file system can give a file another name, or copy it on the server."""
        classes = [kind for kind in self._class.__mro__ if kind.__module__ not in ("fsspec.spec", "fsspec.asyn")]
        return any(name in vars(kind) for kind in classes for name in _MOVES)

    def _connect(self, url: str) -> Any:
        settings = {**self._class._get_kwargs_from_urls(url), **self._options.storage}
        settings.pop("path", None)
        if self._scheme in _SERVERS:
            settings.setdefault("timeout", self._options.timeout)
        system = self._class(skip_instance_cache=True, **settings)
        if self._scheme in ("sftp", "ssh"):
            channel = system.ftp.get_channel()
            channel.settimeout(self._options.timeout)
            # blocks are sent one by one, and the end of each would wait for an acknowledgement
            channel.get_transport().sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        return system


class OtherReply(PieceReply):
    """Bytes [start, stop) of an object, requested in pieces."""

    def __init__(self, connection: Connection, url: str, path: str, info: Info, start: int, stop: int | None) -> None:
        self.info = info
        self._connection = connection
        self._url = url
        self._path = path
        self._at = start
        self._stop = stop if info.size is None else min(info.size if stop is None else stop, info.size)
        self._closed = False

    def _next_piece(self) -> bytes:
        if self._closed:
            raise TryAgain("closed")
        end = self._at + _PIECE if self._stop is None else min(self._at + _PIECE, self._stop)
        if self._at >= end:
            return b""
        data = self._connection.use(self._url, partial(self._read, end))
        if len(data) != end - self._at and self._stop is not None:
            raise TryAgain(f"{plural(end - self._at - len(data), 'byte is', 'bytes are')} missing from {self._at} on")
        self._at += len(data)
        return data

    def _read(self, end: int, system: Any) -> bytes:
        """Return the bytes up to `end`. They are of the version of `info`, if it is there before and after."""
        data = _bytes(self._path, self._at, end, system)
        if _info(self._url, self._path, system) != self.info:
            raise changed_error(public_name(self._url))
        return data

    def close(self) -> None:
        self._closed, self._rest = True, memoryview(b"")


class OtherUpload(Upload):
    """An object that is written under another name, `.NAME.xxxxxxxx.part`, and renamed once it is complete."""

    def __init__(self, connection: Connection, url: str, path: str) -> None:
        """Make the directory, and begin the file. Raises Unsupported where the file system cannot rename."""
        self._connection = connection
        self._url = url
        self._path = path
        self._size = 0
        self._buffer = bytearray()
        self._file: Any = None
        if url.endswith("/"):
            raise Usage(f"{public_name(url)}: the name of the object is missing")
        if not connection.renames():
            raise Unsupported(
                f"{public_name(url)}: this file system cannot rename, so a file would be seen while it is written",
                "write a file, then upload it",
            )
        directory, _, name = path.rpartition("/")
        self._part = f"{path[: len(path) - len(name)]}.{name}.{uuid4().hex[:8]}.part"
        try:
            self._use(lambda system: self._begin(directory, system))
        except BaseException:
            self.abort()
            raise

    def write(self, data: bytes | memoryview) -> None:
        self._buffer += data
        self._size += len(data)
        if len(self._buffer) >= _WRITTEN:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._use(lambda system: self._file.close())
        self._file = None
        self._use(self._rename)

    def abort(self) -> None:
        file, self._file = self._file, None

        def remove(system: Any) -> None:
            try:
                if file is not None:
                    file.close()
            finally:
                system.invalidate_cache()
                system.rm_file(self._part)

        try:
            self._connection.use(self._url, remove)
        except Exception:  # the reason for the abort is the error that is reported
            pass

    def _begin(self, directory: str, system: Any) -> None:
        self._refuse_directory(system)
        if directory:
            try:
                system.makedirs(directory, exist_ok=True)
            except (NotImplementedError, FileExistsError):
                pass
        self._file = system.open(self._part, "wb", block_size=_WRITTEN)

    def _flush(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        if data:
            self._use(lambda system: self._file.write(data))

    def _rename(self, system: Any) -> None:
        """Rename the file, over an existing one, and check that the new name exists."""
        self._check(self._part, system)
        self._refuse_directory(system)
        try:
            system.mv(self._part, self._path)
        except Exception:
            if not _exists(self._path, system):
                raise
        if _exists(self._part, system):
            self._replace(system)
        self._check(self._path, system)

    def _replace(self, system: Any) -> None:
        """Rename where a file of that name is in the way: that gets another name, and its own back after an error."""
        old = self._part.removesuffix("part") + "old"
        system.mv(self._path, old)
        try:
            system.mv(self._part, self._path)
            self._check(self._path, system)
        except BaseException:
            system.mv(old, self._path)
            raise
        system.rm_file(old)

    def _refuse_directory(self, system: Any) -> None:
        """Raise IsADirectoryError for a directory of the name, which a file system may rename, or rename into."""
        if _exists(self._path, system):
            _info(self._url, self._path, system)

    def _check(self, path: str, system: Any) -> None:
        system.invalidate_cache()
        size = system.info(path)["size"]
        if size != self._size:
            raise TarkitError(f"{public_name(self._url)}: {plural(size, 'byte')} arrived of {self._size}")

    def _use(self, action: Callable[[Any], object]) -> None:
        self._connection.use(self._url, action)


@cache
def knows(scheme: str) -> bool:
    """Whether fsspec has a file system for a scheme."""
    return scheme in fsspec.available_protocols() or scheme in fsspec.registry


def _info(url: str, path: str, system: Any) -> Info:
    system.invalidate_cache()
    entry = system.info(path)
    if entry["type"] == "directory":
        raise IsADirectoryError(path)
    size = entry.get("size")
    return Info(url, size, _version(entry), ends=size is not None)


def _version(entry: dict[str, Any]) -> str | None:
    return next((f"{key} {entry[key]}" for key in _VERSIONS if entry.get(key)), None)


def _entries(path: str, system: Any) -> list[dict[str, Any]]:
    system.invalidate_cache()
    entries: list[dict[str, Any]] = system.ls(path, detail=True)
    return [entry for entry in entries if entry["name"].strip("/") != path.strip("/")]


def _exists(path: str, system: Any) -> bool:
    system.invalidate_cache()
    try:  # `exists` of fsspec says no after any error
        system.info(path)
    except FileNotFoundError:
        return False
    return True


def _gone(path: str) -> NoReturn:
    raise FileNotFoundError(path)


def _bytes(path: str, start: int, end: int, system: Any) -> bytes:
    """Return bytes [start, end) of a file. It is opened for each piece: some file systems share one open file."""
    with system.open(path, "rb", block_size=_BLOCK) as file:
        if hasattr(file, "readv"):  # of SFTP: requests all blocks at once, where `read` waits for each
            return b"".join(file.readv([(start, end - start)]))
        file.seek(start)
        parts = []
        while start < end and (data := file.read(end - start)):
            parts.append(data)
            start += len(data)
        return b"".join(parts)


def _raise_for(url: str, error: Exception, options: StoreOptions) -> NoReturn:
    if isinstance(error, (TarkitError, TryAgain)):
        raise error
    name, kinds = public_name(url), {kind.__name__ for kind in type(error).__mro__}
    login = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    text = str(error).partition("\n")[0]
    for secret in filter(None, (login, login.partition(":")[2])):
        text = text.replace(secret, "***")
    text = options.without_secrets(text) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        raise not_found_error(name) from error
    if isinstance(error, IsADirectoryError):
        raise IsADirectoryError(21, os.strerror(21), name) from error
    if isinstance(error, PermissionError) or kinds & {"AuthenticationException"} or text.startswith("530"):
        raise denied_error(name, text, "a login is read from the URL: SCHEME://USER:PASSWORD@HOST/PATH") from error
    if isinstance(error, NotImplementedError):
        raise Unsupported(f"{name}: this file system does not support it: {text}") from error
    if isinstance(error, (OSError, EOFError)) or kinds & {"error_temp", "error_reply", "error_proto", "SSHException"}:
        raise TryAgain(text) from error
    raise TarkitError(f"{name}: {text}") from error
