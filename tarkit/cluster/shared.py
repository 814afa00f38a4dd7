"""The spill of a run on many machines: files that tasks write and others read, in a shared directory or a bucket.

A file gets its name when it is complete, and its bytes depend on the task alone. So it does no harm when a task runs
twice, as it does after a worker was lost. Who reads a file knows from its writer how long it is and what its checksums
are: a block that is gone, was cut or has other bytes is an error.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from socket import gethostname
from typing import NamedTuple, TypeVar
from zlib import crc32

from tarkit.errors import TarkitError, Usage, spell
from tarkit.stores import connect
from tarkit.stores.retry import request_again
from tarkit.stores.schemes import find_scheme, public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.text import is_there
from tarkit.threads import ThreadCall

Item = TypeVar("Item")
Result = TypeVar("Result")

REQUESTS = 16  # for small blocks of objects, at a time
CHUNK = 8 << 20  # bytes of one read
MARK = "in-use"  # a file by which a worker sees that it has the same directory
_AGAIN = 20  # attempts to remove a directory to which a lost worker may still write


class Blob(NamedTuple):
    """A small file of the spill that one process writes and many tasks read: its name, length and CRC-32."""

    name: str
    length: int
    checksum: int


@dataclass(frozen=True)
class Spill:
    """The files of one run.

    Attributes:
        place: a directory or a URL, without a slash at its end, that this run alone uses.
        storage: how the URL is reached.
    """

    place: str
    storage: StoreOptions | None = None

    @property
    def remote(self) -> bool:
        """Whether it is in a bucket."""
        return scheme_of(self.place) is not None

    @property
    def shown(self) -> str:
        """Its name for messages."""
        return public_name(self.place) if self.remote else self.place

    def begin(self) -> None:
        """Make the directory. Raises Usage where nothing can be written."""
        if self.remote:
            scheme = find_scheme(self.place)
            if scheme is None or not scheme.writable:
                raise Usage(f"{spell('spill')} {self.shown}: objects of this store cannot be written")
        else:
            os.mkdir(self.place)
        self.put(MARK, b"1")

    def check(self) -> None:
        """Raise TarkitError on a worker that does not see the spill, and after the end of the run.

        A task calls it before a file gets its name: its run may have ended since it began.
        """
        if self.remote:
            try:
                connect.head_object(self.path(MARK), self.storage)
            except FileNotFoundError:
                raise TarkitError(f"{self.shown}: the spill was removed: the run has ended") from None
        elif not os.path.exists(self.path(MARK)):
            message = f"{gethostname()} does not see the directory {self.place}, or it was removed"
            raise TarkitError(message, f"{spell('spill')} needs a directory that all workers share, or a URL")

    def path(self, name: str) -> str:
        """Return the path or URL of a file."""
        return f"{self.place}/{name}"

    @contextmanager
    def create(self, name: str) -> Iterator[Sink]:
        """Write a file of a task, which gets its name at the end of `with`."""
        with self._open(name) as sink:
            yield sink
            self.check()

    def put(self, name: str, data: bytes) -> Blob:
        """Write a small file."""
        with self._open(name) as sink:
            sink.write(data)
        return Blob(name, len(data), crc32(data))

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return is_there(self.path(name), self.storage)

    def _open(self, name: str) -> Sink:
        return open_sink("url" if self.remote else "path", self.path(name), options=self.storage)

    def get(self, blob: Blob) -> bytes:
        """Return the bytes of a small file. Raises TarkitError if they are not those that were written."""
        data = self.read(blob.name, 0, blob.length)
        if crc32(data) != blob.checksum:
            raise self.changed(blob.name, 0)
        return data

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of a file, all of them. Raises TarkitError if there are fewer."""
        try:
            data = self._fetch(name, start, stop) if stop > start else b""
        except OSError as error:
            raise self._unreadable(name, error) from error
        if len(data) < stop - start:
            raise TarkitError(
                f"{self._shown(name)}: this block of the spill ends at {start + len(data)}, its writer wrote more",
                "was it cut? run the command again",
            )
        return data

    def stream(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield the same bytes in pieces."""
        while start < stop:
            size = min(CHUNK, stop - start)
            yield self.read(name, start, start + size)
            start += size

    def ahead(self, read: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `read(item)` for each item, in order; several requests for objects are made at a time."""
        if not self.remote:
            yield from map(read, items)
            return
        remaining, waiting = iter(items), deque[ThreadCall[Result]]()
        while True:
            for item in islice(remaining, REQUESTS - len(waiting)):
                waiting.append(ThreadCall(partial(read, item)))
            if not waiting:
                return
            yield waiting.popleft().result()

    def changed(self, name: str, position: int) -> TarkitError:
        """Return the error for bytes that differ from those written."""
        message = f"{self._shown(name)}: at {position}: the bytes of this block are not those that its writer wrote"
        return TarkitError(message, "is the disk of the spill damaged? run the command again")

    def end(self) -> None:
        """End the run: tasks that still run complete no file from now on."""
        with suppress(FileNotFoundError):
            if self.remote:
                connect.delete_object(self.path(MARK), self.storage)
            else:
                os.unlink(self.path(MARK))

    def remove(self) -> None:
        """Remove all files, as far as possible; raises OSError or TarkitError otherwise."""
        self.end()
        if self.remote:
            for info in list(connect.list_objects(f"{self.place}/", self.storage)):
                with suppress(FileNotFoundError):
                    connect.delete_object(info.url, self.storage)
            return
        for attempt in range(_AGAIN):
            try:
                shutil.rmtree(self.place)
                return
            except OSError as error:  # a task that still runs has made a file, or removed one
                if not os.path.exists(self.place):
                    return
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or attempt == _AGAIN - 1:
                    raise
            time.sleep(0.1)

    def _fetch(self, name: str, start: int, stop: int) -> bytes:
        if not self.remote:
            with open(self.path(name), "rb") as file:
                file.seek(start)
                return file.read(stop - start)
        url = self.path(name)
        store = connect.store_of(url, self.storage)

        def request() -> bytes:
            with closing(store.get(url, start, stop)) as reply:
                pieces, remaining = [], stop - start
                while remaining > 0 and (data := reply.read(remaining)):
                    pieces.append(data)
                    remaining -= len(data)
                return b"".join(pieces)

        return request_again(request, public_name(url), connect.options_of(self.storage))

    def _shown(self, name: str) -> str:
        return f"{self.shown}/{name}"

    def _unreadable(self, name: str, error: OSError) -> TarkitError:
        if isinstance(error, FileNotFoundError):
            message = f"{self._shown(name)}: this block of the spill is gone"
            return TarkitError(message, "did someone, or a rule of the bucket, remove it? run the command again")
        return TarkitError(f"{self._shown(name)}: this block of the spill cannot be read: {error.strerror}")


def new_spill(place: str, command: str, storage: StoreOptions | None) -> Spill:
    """Return a spill in a directory or below a URL, under a name that no other run has."""
    name = f"tarkit-{command}-{os.urandom(6).hex()}"
    if scheme_of(place):
        return Spill(f"{place.rstrip('/')}/{name}", storage)
    if not os.path.isdir(place):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    return Spill(os.path.join(os.path.abspath(place), name))
