"""Load the contents of entries: files, literals, the output of commands, objects."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tarkit.bytereader import ByteReader
from tarkit.errors import TarkitError, show
from tarkit.sizes import plural
from tarkit.stores import connect
from tarkit.stores.object_prefetch import Fetched, Wanted, fetch, prefetch_objects
from tarkit.stores.schemes import public_name
from tarkit.streams.cold import ColdFiles, ask_for_file
from tarkit.streams.command import CommandReader
from tarkit.streams.copy import CHUNK, SMALL, Short, new_buffer, read_small, seconds
from tarkit.streams.files import Descriptor
from tarkit.streams.readers import DescriptorReader
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import Kind, Row

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tarkit.stores.store import Info, StoreOptions
    from tarkit.threads import ThreadCall

HELD = 16 << 20  # bytes: larger content without a known size goes to a temporary file
WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends
UNSIZED = -1  # the size of a source that was not looked up

# Without O_NONBLOCK, opening a FIFO waits for a writer; it has no effect on a regular file.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_REGULAR_FLAGS = _FLAGS | os.O_NONBLOCK | os.O_NOCTTY
_AGAIN = "run it again"

_new = tuple.__new__


class EntryContent(NamedTuple):
    """The content of an entry: `data`, or `size` bytes that `large` reads; `mtime` in whole seconds."""

    data: bytes
    large: LargeContent | None
    size: int
    mtime: int


class LargeContent:
    """Content that is not in memory: an open file, which is closed with the last reference.

    Args:
        file: the file.
        size: its length in bytes.
        shown: its name for messages.
        written: when a file of the user's was written, in nanoseconds since 1970; -1 for a file that cannot change.

    Attributes:
        place: named in front of errors: the line of a recipe, or the name of a shard.
    """

    def __init__(self, file: Descriptor | None, size: int, shown: str = "", written: int = -1) -> None:
        self.size = size
        self.place = ""
        self._file = file
        self._shown = shown
        self._written = written

    def _opened(self) -> Descriptor:
        assert self._file is not None
        return self._file

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop). Raises TarkitError if there are fewer."""
        fd, data = self._opened().fd, b""
        while len(data) < stop - start:
            more = os.pread(fd, stop - start - len(data), start + len(data))
            if not more:
                raise self._error("became shorter while it was read")
            data += more
        return data

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`. Raises TarkitError if the file was changed."""
        fd = self._opened().fd
        try:
            sink.copy(fd, start, stop)
        except Short:
            raise self._error("became shorter while it was read") from None
        after = os.fstat(fd)
        if self._written >= 0 and (after.st_size, after.st_mtime_ns) != (self.size, self._written):
            raise self._error("was changed while it was read")

    def _error(self, words: str, hint: str | None = None) -> TarkitError:
        return TarkitError(f"{self.place}: {self._shown} {words}", hint)


class LargeObject(LargeContent):
    """A large object: what is written whole comes from the store; it goes to temporary space for any other use."""

    def __init__(self, fetched: Fetched, size: int, tmpdir: str | None) -> None:
        super().__init__(None, size, public_name(fetched.info.url))
        self._fetched = fetched
        self._tmpdir = tmpdir

    def _opened(self) -> Descriptor:
        if self._file is None:
            file = TemporaryFile(self._tmpdir)
            for data in self._chunks():
                file.write(data)
            self._file = file
        return self._file

    def send(self, start: int, stop: int, sink: Sink) -> None:
        """Write bytes [start, stop) to `sink`."""
        if self._file is not None or (start, stop) != (0, self.size):
            super().send(start, stop, sink)
            return
        for data in self._chunks():
            sink.write(data)

    def _chunks(self) -> Iterator[bytes]:
        count = 0
        with closing(self._fetched.stream()) as stream:
            while True:
                try:
                    data = stream.read(CHUNK)
                except OSError as error:
                    raise TarkitError(f"{self.place}: {self._shown}: {error.strerror}", _AGAIN) from error
                except TarkitError as error:
                    raise TarkitError(f"{self.place}: {error}", error.hint) from error
                if not data:
                    break
                count += len(data)
                yield data
        if count != self.size:
            raise TarkitError(f"{self.place}: {self._shown}: {plural(count, 'byte')} came, and it has {self.size}")


class ContentLoader:
    """Load contents. Errors do not say which entry needs the content: the caller does.

    Args:
        directory: the directory that paths are relative to.
        outputs: files that may not be among the sources.
        tmpdir: the directory of temporary files.
        storage: how objects are reached.
        times: whether the times of files matter; else small ones are read without a `stat`, and have the time 0.
        planned: sources are regular files and objects, whose sizes may be known already. Objects of any size are read
            when they are written.
        has_changed: returns whether an object is known not to be the one that was listed.

    Raises:
        TarkitError: a source cannot be read, or has not the size that was planned. The cause is FileNotFoundError or
            NotADirectoryError for one that does not exist.
    """

    def __init__(
        self,
        directory: str | None = None,
        outputs: Iterable[os.stat_result] = (),
        tmpdir: str | None = None,
        storage: StoreOptions | None = None,
        times: bool = True,
        planned: bool = False,
        has_changed: Callable[[bytes, Info], bool] = lambda source, info: False,
    ) -> None:
        self.directory = os.fsencode(directory) if directory else b""
        self.outputs = {(status.st_ino, status.st_dev) for status in outputs}
        self.tmpdir = tmpdir
        self.storage = storage
        self._unproved: set[str] = set()
        self._looks = times or bool(self.outputs)
        self._planned = planned
        self._flags = _REGULAR_FLAGS if planned else _FLAGS
        self._has_changed = has_changed

    def __call__(
        self, kind: Kind, value: bytes, size: int = UNSIZED, request: ThreadCall[Fetched] | None = None
    ) -> EntryContent:
        """Return the content of a source, as `parse_source` returns it.

        `size` is its planned size. `request` is that of an object, which is otherwise made here.
        """
        if kind == "path":
            return self.file(value, size)
        if kind == "data":
            return EntryContent(value, None, len(value), 0)
        try:
            if kind == "pipe":
                return self._read_all(CommandReader(os.fsdecode(value)))
            reply = fetch(os.fsdecode(value), options=self.storage) if request is None else request.result()
            return self._object(reply, value, size)
        except OSError as error:
            name = public_name(os.fsdecode(value)) if self._planned else error.filename
            message = f"{name}: {error.strerror}" if name else error.strerror
            raise TarkitError(message or str(error), _AGAIN if self._planned else None) from error

    def _object(self, reply: Fetched, url: bytes, planned: int) -> EntryContent:
        info, shown = reply.info, public_name(os.fsdecode(url))
        modified = (info.modified or 0) // 10**9
        if self._planned:
            if info.size is None:
                raise TarkitError(f"{shown}: the store does not say how long this object is")
            if planned not in (info.size, UNSIZED):
                raise TarkitError(_other_size(shown, info.size, planned), _AGAIN)
            if self._has_changed(url, info):
                raise TarkitError(f"{shown} was changed after it was listed", _AGAIN)
            if reply.data is None:
                return EntryContent(b"", LargeObject(reply, info.size, self.tmpdir), info.size, modified)
        if not info.ends:
            self._warn_of_length(info.url)
        if reply.data is not None:
            return EntryContent(reply.data, None, len(reply.data), modified)
        return self._read_all(reply.stream())._replace(mtime=modified)

    def _warn_of_length(self, url: str) -> None:
        """Say once for each server that sends no lengths that nothing proves that its objects are complete."""
        name = public_name(url)
        server = "/".join(name.split("/", 3)[:3])
        if server not in self._unproved:
            self._unproved.add(server)
            message = f"{server}: the server does not say how long objects are: nothing proves that {name} is complete"
            connect.options_of(self.storage).warn(f"{message}, nor others of this server")

    def small(self, path: bytes, size: int) -> bytes:
        """Return the content of a small file, if no time matters; b"" for any other, at which `file` has to look.

        The hot path of `shard`: three system calls if the size is known, else four.
        """
        if self._looks or size > SMALL:
            return b""
        try:
            fd = os.open(path, self._flags)
            try:
                data = read_small(fd, size)
            finally:
                os.close(fd)
        except OSError:
            return b""
        return data if size in (len(data), UNSIZED) else b""

    def ask_for(self, kind: Kind, value: bytes) -> int:
        """Ask the system for a file before its turn; return the bytes of memory that a source takes until then."""
        if kind != "path":
            return len(value)
        return ask_for_file(os.path.join(self.directory, value) if self.directory else value)

    def file(self, name: bytes, planned: int = UNSIZED) -> EntryContent:
        """Return the content of a file."""
        path = os.path.join(self.directory, name) if self.directory else name
        try:
            fd = os.open(path, self._flags)
        except OSError as error:
            raise TarkitError(f"{show(path)}: {error.strerror}") from error
        try:
            if not self._looks and not self._planned:
                try:
                    data = read_small(fd)
                except OSError:  # it is read again below, which says why
                    data = b""
                if data:
                    return _new(EntryContent, (data, None, len(data), 0))
            status = os.fstat(fd)
            size = status.st_size
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            if not stat.S_ISREG(status.st_mode):
                if self._planned:
                    raise TarkitError(f"{show(path)} is not a regular file, so its size cannot be planned")
                return self._read_all(DescriptorReader(os.dup(fd)))
            if planned not in (size, UNSIZED):
                raise TarkitError(_other_size(show(path), size, planned), _AGAIN)
            if self.outputs and (status.st_ino, status.st_dev) in self.outputs:
                raise TarkitError(f"{show(path)} is both input and output")
            if size > SMALL:
                file, fd = Descriptor(fd), -1
                large = LargeContent(file, size, show(path), status.st_mtime_ns)
                return EntryContent(b"", large, size, seconds(status))
            if size == 0 and not self._planned:  # files in /proc have size 0 but may have content
                return self._read_all(DescriptorReader(os.dup(fd)))._replace(mtime=seconds(status))
            data = self._read_small(fd, path, size)
            return _new(EntryContent, (data, None, len(data), seconds(status)))
        except IsADirectoryError:
            raise TarkitError(f"{show(path)} is a directory") from None
        except OSError as error:
            error.filename = path
            raise TarkitError(f"{show(path)}: {error.strerror}") from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _read_small(self, fd: int, path: bytes, size: int) -> bytes:
        data = read_small(fd, size)
        if len(data) > size:
            raise TarkitError(f"{show(path)} was changed while it was read")
        while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
            data += more
        # A file in /sys has less content than its size; its size does not change when it is read.
        if len(data) < size and (self._planned or os.fstat(fd).st_size != size):
            raise TarkitError(f"{show(path)} became shorter while it was read")
        return data

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
        finally:
            reader.close()
        if file is None:
            return EntryContent(bytes(held), None, size, 0)
        return EntryContent(b"", LargeContent(file, size), size, 0)


def _other_size(shown: str, size: int, planned: int) -> str:
    many = plural(size, "byte")
    return f"{shown} has {many}, and the plan says {planned}"


Loaded = EntryContent | TarkitError  # an error is that of a file that does not exist


def loaded(
    rows: Iterable[Row], load: ContentLoader, ahead: int = 1, missing: Callable[[str], None] | None = None
) -> Iterator[tuple[Row, EntryContent]]:
    """Return each row with its content, in order; `ahead` > 1 loads that many at a time in threads.

    Objects are requested ahead in any case, and without threads the system is asked for files that are not in its
    cache. `missing` is called with a message for a file that does not exist, and its row is left out; without it such a
    file is an error.

    Raises:
        TarkitError: `RECIPE:LINE: reason`.
    """
    results = _loaded(iter(rows), load, ahead, missing is not None)
    return _without_missing(results, missing) if missing else results  # type: ignore[return-value]


def _without_missing(
    results: Iterator[tuple[Row, Loaded]], missing: Callable[[str], None]
) -> Iterator[tuple[Row, EntryContent]]:
    for row, content in results:
        if isinstance(content, TarkitError):
            missing(str(content))
        else:
            yield row, content


def _loaded(rows: Iterator[Row], load: ContentLoader, ahead: int, skips: bool) -> Iterator[tuple[Row, Loaded]]:
    if ahead <= 1:
        rows = ColdFiles().ahead(rows, lambda row: load.ask_for(row[1], row[2]))
        for row in rows:  # up to the first object
            if row[1] == "url":
                rows = chain((row,), rows)
                break
            yield row, _load(row, load, None, skips)
    requested = prefetch_objects(rows, _object_of, partial(fetch, options=load.storage))
    if ahead <= 1:
        for row, request in requested:
            yield row, _load(row, load, request, skips)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[Row, Future[Loaded]]] = deque()
    pool = ThreadPoolExecutor(ahead)
    try:
        for row, request in requested:
            waiting.append((row, pool.submit(_load, row, load, request, skips)))
            if len(waiting) > 2 * ahead:
                first, future = waiting.popleft()
                yield first, _result(future)
        while waiting:
            first, future = waiting.popleft()
            yield first, _result(future)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _load(row: Row, load: ContentLoader, request: ThreadCall[Fetched] | None, skips: bool) -> Loaded:
    """Return the content of a row; the error of a file that does not exist if such a row is skipped."""
    try:
        content = load.file(row[2]) if row[1] == "path" else load(row[1], row[2], UNSIZED, request)
    except TarkitError as error:
        placed = TarkitError(f"{row.where}: {error}", error.hint)
        if skips and row.kind == "path" and isinstance(error.__cause__, FileNotFoundError):
            return placed
        raise placed from error
    if content[1] is not None:
        content[1].place = row.where
    return content


def _object_of(row: Row) -> Wanted | None:
    return (os.fsdecode(row[2]), None) if row[1] == "url" else None


def _result(future: Future[Loaded]) -> Loaded:
    """Return the result of a thread. A signal just before a wait is handled at its end, so waits are short."""
    from concurrent.futures import wait  # only needed with -p

    while not future.done():
        wait((future,), WAIT)
    return future.result()
