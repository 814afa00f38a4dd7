"""The content of a recipe's row: a file, a literal, what a command or a URL gives."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.stores import schemes
from tarkit.streams.command import CommandReader
from tarkit.streams.copy import CHUNK, seconds
from tarkit.streams.source import ReadAdapter, ByteReader, DescriptorReader
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import Row

if TYPE_CHECKING:
    from concurrent.futures import Future

FIRST = 1 << 16  # bytes of a file that are read before anybody looks what it is
SMALL = 1 << 18  # and of one that is read at once
HELD = 16 << 20  # bytes of what has no size beforehand that are kept in memory
WAIT = 0.2  # seconds between two looks for signals

_new = tuple.__new__


class EntryContent(NamedTuple):
    """What an entry will hold: `data`, or the first `size` bytes of the file `fd`; `mtime` in whole seconds."""

    data: bytes
    fd: int
    size: int
    mtime: int


class ContentLoader:
    """Opens the content of rows. Paths are relative to `folder`; no file of `outputs` may be among them.

    A file that is missing is an error, or with `missing` is handed to that, and has no content. Without `times` those
    of small files are not looked up: their content says 0.

    Raises:
        TarkitError: `RECIPE:LINE: what is wrong`.
    """

    def __init__(
        self,
        folder: str | None = None,
        outputs: Iterable[os.stat_result] = (),
        tmpdir: str | None = None,
        missing: Callable[[str], None] | None = None,
        times: bool = True,
    ) -> None:
        self.missing = missing
        self.folder = os.fsencode(folder) if folder else b""
        self.outputs = {(status.st_ino, status.st_dev) for status in outputs}
        self.tmpdir = tmpdir
        self._looks = times or bool(self.outputs)

    def __call__(self, row: Row) -> EntryContent | None:
        """The content of one row."""
        kind = row[1]
        if kind == "path":
            return self._file(row)
        if kind == "data":
            return EntryContent(row[2], -1, len(row[2]), 0)
        reader: ByteReader
        try:
            if kind == "pipe":
                reader = CommandReader(os.fsdecode(row.value))
            else:
                reader = ReadAdapter(schemes.open_read(os.fsdecode(row.value)))
            return self._absorb(reader)
        except TarkitError as error:
            raise TarkitError(f"{row.where}: {error}", error.hint) from error
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            raise TarkitError(f"{row.where}: {what}") from error

    def _file(self, row: Row) -> EntryContent | None:
        path = os.path.join(self.folder, row[2]) if self.folder else row[2]
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            what = f"{row.where}: {show(path)}: {error.strerror}"
            if self.missing is not None and isinstance(error, FileNotFoundError):
                self.missing(what)
                return None
            raise TarkitError(what) from error
        data = b""
        try:
            if not self._looks:
                data = os.read(fd, FIRST)
                more = os.read(fd, 1)  # nothing: what was read before is all, if it was not all that was asked for
                if 0 < len(data) < FIRST and not more:
                    return _new(EntryContent, (data, -1, len(data), 0))  # as in `read_recipe`
                data += more
            status = os.fstat(fd)
            size = status.st_size
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
            if not stat.S_ISREG(status.st_mode):
                return self._absorb(DescriptorReader(os.dup(fd)), data)
            if data:
                os.lseek(fd, 0, os.SEEK_SET)
            if self.outputs and (status.st_ino, status.st_dev) in self.outputs:
                raise TarkitError(f"{row.where}: {show(path)} is the output too")
            if size > SMALL:
                kept, fd = fd, -1
                return EntryContent(b"", kept, size, seconds(status))
            if size == 0:  # files of /proc and the like have no size, and yet something to read
                return self._absorb(DescriptorReader(os.dup(fd)))._replace(mtime=seconds(status))
            data = os.read(fd, size)
            # A file of /sys has less than its size says, and keeps that size.
            if len(data) < size and (os.read(fd, 1) or os.fstat(fd).st_size != size):
                raise TarkitError(f"{row.where}: {show(path)} became shorter while it was read")
            return _new(EntryContent, (data, -1, len(data), seconds(status)))
        except IsADirectoryError:
            raise TarkitError(f"{row.where}: {show(path)} is a directory") from None
        except OSError as error:
            raise TarkitError(f"{row.where}: {show(path)}: {error.strerror}") from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _absorb(self, reader: ByteReader, begun: bytes = b"") -> EntryContent:
        """All that a reader gives, behind what was read of it, in memory or in a temporary file."""
        pieces = [begun]
        held = size = len(begun)
        file: TemporaryFile | None = None
        view = memoryview(bytearray(CHUNK))
        try:
            while got := reader.readinto(view):
                pieces.append(bytes(view[:got]))
                size += got
                held += got
                if held > HELD:
                    file = file or TemporaryFile(self.tmpdir)
                    file.write(b"".join(pieces))
                    pieces, held = [], 0
            if file is None:
                return EntryContent(b"".join(pieces), -1, size, 0)
            file.write(b"".join(pieces))
            return EntryContent(b"", os.dup(file.fd), size, 0)
        finally:
            reader.close()


def loaded(
    rows: Iterable[Row], load: Callable[[Row], EntryContent | None], ahead: int = 1
) -> Iterator[tuple[Row, EntryContent | None]]:
    """Each row with its content; `ahead` > 1 loads so many at a time in threads, in order all the same."""
    if ahead <= 1:
        for row in rows:
            yield row, load(row)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[Row, Future[EntryContent | None]]] = deque()
    pool = ThreadPoolExecutor(ahead)
    try:
        for row in rows:
            waiting.append((row, pool.submit(load, row)))
            if len(waiting) > 2 * ahead:
                first, future = waiting.popleft()
                yield first, _result(future)
        while waiting:
            first, future = waiting.popleft()
            yield first, _result(future)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[EntryContent | None]) -> EntryContent | None:
    """What a thread has loaded. A signal that comes just before we wait is seen when a wait ends, so it has an end."""
    from concurrent.futures import wait  # which is for -p alone

    while not future.done():
        wait((future,), WAIT)
    return future.result()
