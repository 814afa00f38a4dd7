"""Objects that are read: requests that are resumed at a byte, several ranges at a time, and always of one version.

An object is opened by the request of its first bytes, which also describes it. Every later reply must describe the same
version of it, so bytes of two versions are never mixed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from math import inf
from typing import Any

from tarkit.bytereader import ByteReader
from tarkit.errors import TarkitError, Unsupported
from tarkit.sizes import plural
from tarkit.stores.checksum import ChecksumCheck
from tarkit.stores.retry import RetryPolicy
from tarkit.stores.store import Info, Reply, Store, StoreOptions, TryAgain, changed_error
from tarkit.threads import ProcessBound, ThreadCall, Worker, call_interruptibly

FIRST = 1 << 20
"""Bytes of the first range of a stream; the next ones have twice as many each, up to LARGEST."""

LARGEST = 8 << 20
"""Bytes of the largest range."""

FLIGHT = 4
"""Ranges of one stream that are requested at a time."""

_of_others: list[object] = []
"""What a copy of a process has of the other's connections: kept, since closing one could end it for both."""


class RemoteObject:
    """An object that is read: `info` describes the version that all bytes come from.

    Args:
        name: its name for messages, without secrets.
        first: the number of bytes of the first request.
    """

    def __init__(self, store: Store, url: str, name: str, options: StoreOptions, first: int = FIRST) -> None:
        self.store = store
        self.url = url
        self.name = name
        self.options = options
        self._info: Info | None = None
        self._head = b""  # the first bytes, once they were requested as a range
        self._opening: Transfer | None = Transfer(self, 0, first)  # until something is read
        call_interruptibly(self._opening.begin)
        assert self._info is not None
        self.info: Info = self._info

    def request(self, start: int, stop: int | None) -> Reply:
        """Request bytes [start, stop); raise TarkitError if the reply is of another version."""
        if self._info is not None and not self._info.ranges:
            stop = None
        reply = self.store.get(self.url, start, stop)
        if self._info is None:
            info = reply.info
            if info.version is None or info.size is None:
                # later parts could be of another version, or missing: all of it in one reply
                if info.ranges and stop is not None:
                    reply.close()
                    reply = self.store.get(self.url, start, None)
                info = reply.info._replace(ranges=False)
            self._info = info
        elif (reply.info.version, reply.info.size) != (self._info.version, self._info.size):
            reply.close()
            raise changed_error(self.name)
        return reply

    def read(self, start: int, stop: int, least: int | None = None) -> bytes:
        """Return bytes [start, stop), fewer only at the end of the object.

        If at least `least` of them were among the first bytes, these are enough.
        """
        stop = stop if self.info.size is None else min(stop, self.info.size)
        if (opening := self._take_opening()) is not None:
            with closing(opening):
                if self.info.ranges and opening.stop is not None and start < opening.stop:
                    self._head = call_interruptibly(opening.rest)
        if (stop if least is None else min(start + least, stop)) <= max(start, len(self._head)):
            return self._head[start:stop]
        with closing(Transfer(self, start, stop)) as transfer:
            return call_interruptibly(transfer.rest)

    def stream(self, start: int = 0, stop: int | None = None, ahead: float = inf) -> Stream:
        """Return a reader of bytes [start, stop), in order. The bytes of the first request are not requested again.

        One that may be closed soon requests no more bytes ahead than were read, and `ahead` bytes.
        """
        opening = self._take_opening()
        head = self._head[start:] if stop is None else b""
        if opening is not None and (start > 0 or stop is not None):
            opening.close()
            opening = None
        if opening is None:
            position = start + len(head)
            opening = Transfer(self, position, position + FIRST if self.info.ranges else None)
        whole = start == 0 and stop in (None, self.info.size)
        check = ChecksumCheck(self.info.checksum) if whole and self.info.checksum else None
        return Stream(self, opening, stop, check, head, ahead)

    def read_all(self) -> bytes:
        """Return all bytes. Raises TarkitError if they have another length or checksum than the server names."""
        with self.stream() as stream:
            data = b"".join(iter(partial(stream.read, LARGEST), b""))
        if self.info.size not in (None, len(data)):
            raise TarkitError(f"{self.name}: {len(data)} of its {plural(self.info.size, 'byte')} came")
        return data

    def close(self) -> None:
        """Close the connection of the request that opened the object, if no stream uses it, and free its bytes."""
        self._head = b""
        if (opening := self._take_opening()) is not None:
            opening.close()

    def _take_opening(self) -> Transfer | None:
        """Return the first request, once; None in a copy of the process that made it."""
        opening, self._opening = self._opening, None
        if opening is not None and opening.elsewhere:
            opening.close()
            return None
        return opening


class Transfer(ProcessBound):
    """Bytes [start, stop) of an object, to its end for None, over as many connections as it takes."""

    def __init__(self, remote: RemoteObject, start: int, stop: int | None) -> None:
        super().__init__()
        self._remote = remote
        self.position = start
        self.stop = stop
        self._reply: Reply | None = None
        self._begun = start  # the first byte of the reply
        self._closed = threading.Event()
        self._policy = RetryPolicy(remote.options, self._closed)

    def begin(self) -> Reply:
        """Return the open reply, or request one. Raises TarkitError once `close` was called."""
        while (reply := self._reply) is None:
            self._refuse_closed()
            try:
                self._reply = self._remote.request(self.position, self.stop)
                self._begun = self.position
            except TryAgain as failure:
                self._recover(failure)
            if self._closed.is_set():
                self._hang_up()
        return reply

    def read(self, n: int) -> bytes | memoryview:
        """Return up to `n` bytes, b"" at the end."""
        self.refuse_elsewhere()
        if self.stop is not None:
            n = min(n, self.stop - self.position)
        while n > 0:
            reply = self.begin()
            try:
                data = reply.read(n)
            except TryAgain as failure:
                self._recover(failure)
                continue
            if data:
                self._policy.failures = 0
                self.position += len(data)
                return data
            if self.position >= self._end():
                return b""
            if self._begun < self.position:  # the server sends shorter ranges than requested
                self._hang_up()
            else:
                self._recover(TryAgain("the server sends no byte of the range"))
        return b""

    def _end(self) -> int:
        """Return where the bytes end; where reading is, if the store does not say how long the object is."""
        size = self._remote.info.size
        return self.position if size is None else size if self.stop is None else min(self.stop, size)

    def pieces(self) -> list[bytes | memoryview]:
        """Return all bytes up to `stop`, in the pieces in which they came."""
        return list(iter(partial(self.read, LARGEST), b""))

    def rest(self) -> bytes:
        """Return all bytes up to `stop`."""
        return b"".join(self.pieces())

    def close(self) -> None:
        """Close the connection; calls in other threads end. A copy of the process leaves it to the other."""
        if self.elsewhere:
            _of_others.append(self)
            return
        self._closed.set()
        self._hang_up()

    def _hang_up(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.close()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise TarkitError(f"{self._where()}: closed")

    def _where(self) -> str:
        return f"{self._remote.name}: at {self.position}" if self.position else self._remote.name

    def _recover(self, failure: TryAgain) -> None:
        """Wait after a failure, then let the next request go on at its byte; raise TarkitError after too many."""
        self._hang_up()
        self._refuse_closed()
        remote, where = self._remote, self._where()
        if self.position and remote.info.version is None:
            raise TarkitError(f"{where}: {failure}", "the server names no version, so the rest may be of another one")
        if self.position and not remote.info.ranges:
            raise Unsupported(f"{where}: {failure}", "the server sends no parts of objects, so reading begins anew")
        self._policy.pause(where, failure)


class RangeRequest:
    """A transfer in a thread of its own, or of a worker; `check` is called with its bytes when they are taken."""

    def __init__(
        self, transfer: Transfer, check: Callable[[bytes], object] = bool, worker: Worker | None = None
    ) -> None:
        self._transfer = transfer
        self._check = check
        self._call = ThreadCall(transfer.pieces, worker)

    def pieces(self) -> list[bytes | memoryview]:
        """Wait for the bytes, and return all of them, in pieces. Raises an exception of reading."""
        return self._call.result()

    def result(self) -> bytes:
        """Wait for the bytes, and return all of them. Raises an exception of reading."""
        data = b"".join(self.pieces())
        self._check(data)
        return data

    def close(self) -> None:
        """Give up the bytes that were not fetched."""
        self._transfer.close()


class Stream(ByteReader):
    """Bytes of an object, in order; several ranges are requested at a time.

    The pieces of a range are handed on as they came: joined, 256 MB of s3:// take 1.15 times the CPU and 50 MB more
    memory.

    Args:
        opening: the transfer of the first range, or of all if the store sends no parts.
        stop: where the bytes end; None is the end of the object.
        check: computes the checksum, if all bytes are read and there is one to compare with.
        head: bytes before those of the first range, which come first.
        ahead: bytes that are requested ahead at once; as many more as were read.
    """

    def __init__(
        self,
        remote: RemoteObject,
        opening: Transfer,
        stop: int | None = None,
        check: ChecksumCheck | None = None,
        head: bytes = b"",
        ahead: float = inf,
    ) -> None:
        self._remote = remote
        self._check = check
        self._stop = remote.info.size if stop is None else stop
        self._whole = None if remote.info.ranges else opening
        self._flight: deque[RangeRequest] = deque()
        self._pieces: deque[bytes | memoryview] = deque()  # fetched; `_rest` is of the one before them
        self._rest = memoryview(head)
        self._size = FIRST
        self._next = self._stop
        self._begun = self._taken = opening.position - len(head)  # the first byte, and the first that is not read
        self._ahead = ahead
        if self._whole is not None:
            self._whole.stop = self._stop
        elif opening.stop is not None and self._stop is not None:
            self._next = opening.stop = min(opening.stop, self._stop)
            self._flight.append(RangeRequest(opening))

    def readinto(self, view: Any, /) -> int:
        data = self._piece(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int = -1, /) -> bytes:
        return self.readall() if size < 0 else bytes(self._piece(size))

    def _piece(self, n: int) -> bytes | memoryview:
        """Return up to `n` bytes, none at the end. Raises TarkitError for an object that does not have its checksum."""
        data = self._unchecked(n)
        check = self._check
        if check is not None:
            check.update(data)
            if check.size == self._stop or (n and not data):
                self._check = None
                if not check.matches():
                    words = "what was read does not have the checksum that the server names"
                    raise TarkitError(f"{self._remote.name}: {words}", "read it again, or compare it with its origin")
        return data

    @property
    def requested(self) -> int:
        """The position up to which bytes are requested or read."""
        return self._taken if self._next is None or self._whole is not None else self._next

    def _unchecked(self, n: int) -> bytes | memoryview:
        if self._whole is not None:
            return ThreadCall(partial(self._whole.read, n)).result()
        while not self._rest:
            if self._pieces:
                self._rest = memoryview(self._pieces.popleft())
                continue
            self._request_more()
            if not self._flight:
                return b""
            with closing(self._flight.popleft()) as request:
                self._pieces.extend(request.pieces())
        data, self._rest = self._rest[:n], self._rest[n:]
        self._taken += len(data)
        return data

    def close(self) -> None:
        """Close all connections."""
        while self._flight:
            self._flight.popleft().close()
        if self._whole is not None:
            self._whole.close()
        self._rest = memoryview(b"")
        self._pieces.clear()

    def _request_more(self) -> None:
        """Request further ranges, up to FLIGHT at a time; one at least."""
        if self._next is None or self._stop is None:
            return
        while self._next < self._stop and len(self._flight) < FLIGHT:
            if self._flight and self._next - self._taken >= self._taken - self._begun + self._ahead:
                return
            self._size = min(2 * self._size, LARGEST)
            start, self._next = self._next, min(self._next + self._size, self._stop)
            self._flight.append(RangeRequest(Transfer(self._remote, start, self._next)))
