"""Load the content of a row of a recipe: a file, a literal, the output of a command, a URL."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tarkit.bytereader import ByteReader
from tarkit.errors import TarkitError, show
from tarkit.stores import connect
from tarkit.stores.object_prefetch import Fetched, Place, fetch, prefetch_objects
from tarkit.stores.schemes import public_name
from tarkit.streams.command import CommandReader
from tarkit.streams.copy import CHUNK, SMALL, new_buffer, read_small, seconds
from tarkit.streams.readers import DescriptorReader
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import Row

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tarkit.stores.store import StoreOptions
    from tarkit.threads import ThreadCall

HELD = 16 << 20  # bytes: larger content without a known size goes to a temporary file
WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends

_new = tuple.__new__


class EntryContent(NamedTuple):
    """The content of an entry: `data`, or the `size` bytes of the file `fd`; `mtime` in whole seconds.

    `written` is when a file of the user's was written, in nanoseconds since 1970; -1 for content that cannot change.
    """

    data: bytes
    fd: int
    size: int
    mtime: int
    written: int = -1


class ContentLoader:
    """Load the content of rows.

    Args:
        directory: the directory that paths are relative to.
        outputs: files that may not be among the sources.
        tmpdir: the directory of temporary files.
        missing: called with a message for a file that does not exist, whose row then has no content; without it such
            a file is an error.
        storage: how objects are reached.
        times: whether the times of files matter; else small ones are read without a `stat`, and have the time 0.

    Raises:
        TarkitError: `RECIPE:LINE: reason`.
    """

    def __init__(
        self,
        directory: str | None = None,
        outputs: Iterable[os.stat_result] = (),
        tmpdir: str | None = None,
        missing: Callable[[str], None] | None = None,
        storage: StoreOptions | None = None,
        times: bool = True,
    ) -> None:
        self.missing = missing
        self.directory = os.fsencode(directory) if directory else b""
        self.outputs = {(status.st_ino, status.st_dev) for status in outputs}
        self.tmpdir = tmpdir
        self.storage = storage
        self._unproved: set[str] = set()
        self._looks = times or bool(self.outputs)

    def __call__(self, row: Row, request: ThreadCall[Fetched] | None = None) -> EntryContent | None:
        """Return the content of a row; None for a file that does not exist, if `missing` is set.

        `request` is that of the object of a URL, which is otherwise made here.
        """
        kind = row[1]
        if kind == "path":
            return self._file(row)
        if kind == "data":
            return EntryContent(row[2], -1, len(row[2]), 0)
        try:
            if kind == "pipe":
                return self._read_all(CommandReader(os.fsdecode(row.value)))
            reply = fetch(os.fsdecode(row.value), options=self.storage) if request is None else request.result()
            if not reply.info.ends:
                self._warn_of_length(reply.info.url)
            modified = (reply.info.modified or 0) // 10**9
            if reply.data is not None:
                return EntryContent(reply.data, -1, len(reply.data), modified)
            return self._read_all(reply.stream())._replace(mtime=modified)
        except TarkitError as error:
            raise TarkitError(f"{row.where}: {error}", error.hint) from error
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            raise TarkitError(f"{row.where}: {what}") from error

    def _warn_of_length(self, url: str) -> None:
        """Say once for each server that sends no lengths that nothing proves that its objects are complete."""
        name = public_name(url)
        server = "/".join(name.split("/", 3)[:3])
        if server not in self._unproved:
            self._unproved.add(server)
            what = f"{server}: the server does not say how long objects are: nothing proves that {name} is complete"
            connect.options_of(self.storage).warn(f"{what}, nor others of this server")

    def _file(self, row: Row) -> EntryContent | None:
        path = os.path.join(self.directory, row[2]) if self.directory else row[2]
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            what = f"{row.where}: {show(path)}: {error.strerror}"
            if self.missing is not None and isinstance(error, FileNotFoundError):
                self.missing(what)
                return None
            raise TarkitError(what) from error
        try:
            if not self._looks:
                try:
                    data = read_small(fd)
                except OSError:  # it is read again below, which says why
                    data = b""
                if data:
                    return _new(EntryContent, (data, -1, len(data), 0, -1))
            status = os.fstat(fd)
            size = status.st_size
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            if not stat.S_ISREG(status.st_mode):
                return self._read_all(DescriptorReader(os.dup(fd)))
            if self.outputs and (status.st_ino, status.st_dev) in self.outputs:
                raise TarkitError(f"{row.where}: {show(path)} is both input and output")
            if size > SMALL:
                kept, fd = fd, -1
                return EntryContent(b"", kept, size, seconds(status), status.st_mtime_ns)
            if size == 0:  # files in /proc have size 0 but may have content
                return self._read_all(DescriptorReader(os.dup(fd)))._replace(mtime=seconds(status))
            data = read_small(fd, size)
            if len(data) > size:
                raise TarkitError(f"{row.where}: {show(path)} was changed while it was read")
            while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
                data += more
            # A file in /sys has less content than its size; its size does not change when it is read.
            if len(data) < size and os.fstat(fd).st_size != size:
                raise TarkitError(f"{row.where}: {show(path)} became shorter while it was read")
            return _new(EntryContent, (data, -1, len(data), seconds(status), -1))
        except IsADirectoryError:
            raise TarkitError(f"{row.where}: {show(path)} is a directory") from None
        except OSError as error:
            raise TarkitError(f"{row.where}: {show(path)}: {error.strerror}") from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _read_all(self, reader: ByteReader) -> EntryContent:
        """Read a stream to its end, into memory or a temporary file."""
        held = bytearray()
        size = 0
        file: TemporaryFile | None = None
        view = new_buffer(CHUNK)
        try:
            while count := reader.readinto(view):
                size += count
                if size <= HELD:
                    held += view[:count]
                    continue
                if file is None:
                    file = TemporaryFile(self.tmpdir)
                    file.write(held)
                    held.clear()
                file.write(view[:count])
            if file is None:
                return EntryContent(bytes(held), -1, size, 0)
            return EntryContent(b"", os.dup(file.fd), size, 0)
        finally:
            reader.close()


def loaded(rows: Iterable[Row], load: ContentLoader, ahead: int = 1) -> Iterator[tuple[Row, EntryContent | None]]:
    """Yield each row with its content, in order; `ahead` > 1 loads that many at a time in threads.

    Objects are requested ahead in any case.
    """
    rows = iter(rows)
    if ahead <= 1:
        for row in rows:  # up to the first object
            if row[1] == "url":
                rows = chain((row,), rows)
                break
            yield row, load(row)
    requested = prefetch_objects(rows, _place_of, partial(fetch, options=load.storage))
    if ahead <= 1:
        for row, request in requested:
            yield row, load(row, request)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[Row, Future[EntryContent | None]]] = deque()
    pool = ThreadPoolExecutor(ahead)
    try:
        for row, request in requested:
            waiting.append((row, pool.submit(load, row, request)))
            if len(waiting) > 2 * ahead:
                first, future = waiting.popleft()
                yield first, _result(future)
        while waiting:
            first, future = waiting.popleft()
            yield first, _result(future)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _place_of(row: Row) -> Place | None:
    return (os.fsdecode(row[2]), None) if row[1] == "url" else None


def _result(future: Future[EntryContent | None]) -> EntryContent | None:
    """Return the result of a thread. A signal just before a wait is handled at its end, so waits are short."""
    from concurrent.futures import wait  # only needed with -p

    while not future.done():
        wait((future,), WAIT)
    return future.result()
