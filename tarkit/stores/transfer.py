"""What all stores share: requests that are repeated, reads that are resumed at a byte, uploads that are checked.

An object is opened by the request of its first bytes, which also describes it. Every later reply must describe the same
version of it, so bytes of two versions are never mixed.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Generic, Self, TypeVar

from tarkit.errors import TarkitError, Unsupported, spell
from tarkit.stores.checksum import ChecksumCheck
from tarkit.stores.store import (
    Denied,
    Info,
    Reply,
    Store,
    StoreOptions,
    TryAgain,
    Unconfirmed,
    Upload,
    changed_error,
    exists_error,
)
from tarkit.threads import ProcessBound

FIRST = 1 << 20
"""Bytes of the first range of a stream; the next ones have twice as many each, up to LARGEST."""

LARGEST = 8 << 20
"""Bytes of the largest range."""

FLIGHT = 4
"""Ranges of one stream that are requested at a time."""

_PAUSE = 0.25  # seconds before the first repetition; twice as many before each next one
_LONGEST = 30.0  # seconds of the longest pause
_WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends

Result = TypeVar("Result")

_of_others: list[object] = []
"""What a copy of a process has of the other's connections: kept, since closing one could end it for both."""


class ThreadCall(ProcessBound, Generic[Result]):
    """A call in a thread. A request blocks signals while it waits for its server; waiting for a thread does not.

    The thread is a daemon, so that the program can end while a request still waits.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__()
        self._work = work
        self._found: list[Result] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="store", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._done.is_set()

    def wait(self) -> None:
        """Wait for the end of the call."""
        self.refuse_elsewhere()
        while not self._done.wait(_WAIT):
            pass

    def result(self) -> Result:
        """Wait for the end of the call; return its result, or raise its exception."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:
            self._error = error
        self._done.set()


def call_interruptibly(work: Callable[[], Result]) -> Result:
    """Return what a call returns: in the main thread by a ThreadCall, in others, which handle no signals, at once."""
    return ThreadCall(work).result() if threading.current_thread() is threading.main_thread() else work()


class RetryPolicy:
    """When a request is made again: after up to `options.retries` failures in a row, with growing pauses.

    Attributes:
        failures: failures since the last progress.
    """

    def __init__(self, options: StoreOptions, closed: threading.Event | None = None) -> None:
        """`closed` ends a pause."""
        self.failures = 0
        self._options = options
        self._closed = closed or threading.Event()

    def pause(self, where: str, failure: TryAgain) -> None:
        """Report a failure, and wait before the next request: longer each time, and as long as the server says.

        Raises:
            TarkitError: it is one too many.
        """
        self.failures += 1
        if self.failures > self._options.retries:
            many = f" ({self.failures} attempts)" if self.failures > 1 else ""
            hint = f"{spell('net_retries')} and {spell('net_timeout')} set how long to try"
            raise TarkitError(f"{where}: {failure}{many}", hint)
        self._options.tell(f"{where}: {failure}; trying again")
        pause = min(_PAUSE * 2 ** (self.failures - 1), _LONGEST) * random.uniform(0.5, 1.0)
        self._closed.wait(max(pause, min(failure.wait or 0.0, self._options.timeout)))

    def repeat(self, where: str, action: Callable[[], Result]) -> Result:
        """Return what an action returns, which is repeated while it fails in a way that may pass.

        Raises:
            TryAgain: `closed` is set meanwhile.
            TarkitError: it failed too often.
        """
        while True:
            try:
                return action()
            except TryAgain as failure:
                self.pause(where, failure)
                if self._closed.is_set():
                    raise


def request_again(request: Callable[[], Result], name: str, options: StoreOptions) -> Result:
    """Return what a request returns, which is made again after failures that may pass; a signal can interrupt it."""
    return RetryPolicy(options).repeat(name, partial(call_interruptibly, request))


class RemoteObject:
    """An object that is read: `info` describes the version that all bytes come from.

    Args:
        store: the store.
        url: its URL, for requests.
        name: its name for messages, without secrets.
        options: those of its requests.
        first: how many bytes the first request asks for.
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
        opening = self._take_opening()
        if opening is not None:
            with closing(opening):
                used = self.info.ranges and opening.stop is not None and start < opening.stop
                self._head = call_interruptibly(opening.rest) if used else b""
        if (stop if least is None else min(start + least, stop)) <= max(start, len(self._head)):
            return self._head[start:stop]
        with closing(Transfer(self, start, stop)) as transfer:
            return call_interruptibly(transfer.rest)

    def stream(self, start: int = 0, stop: int | None = None, eager: bool = True) -> Stream:
        """Return a reader of bytes [start, stop), in order. What the first request has read is not requested again.

        One that is not `eager` may be closed soon: it requests no more bytes ahead than were read.
        """
        opening = self._take_opening()
        head = self._head if (start, stop) == (0, None) else b""
        if opening is not None and (start > 0 or stop is not None):
            opening.close()
            opening = None
        if opening is None:
            begun = start + len(head)
            opening = Transfer(self, begun, begun + FIRST if self.info.ranges else None)
        whole = start == 0 and stop in (None, self.info.size)
        check = ChecksumCheck(self.info.checksum) if whole and self.info.checksum else None
        return Stream(self, opening, stop, check, head, eager=eager)

    def _take_opening(self) -> Transfer | None:
        """Return the first request, once; None in a copy of the process that made it."""
        opening, self._opening = self._opening, None
        if opening is not None and opening.elsewhere:
            _of_others.append(opening)
            return None
        return opening

    def read_all(self) -> bytes:
        """Return all bytes. Raises TarkitError if they have another length or checksum than the server names."""
        with self.stream() as stream:
            data = b"".join(iter(partial(stream.read, LARGEST), b""))
        if self.info.size not in (None, len(data)):
            raise TarkitError(f"{self.name}: {len(data)} of its {self.info.size} bytes came")
        return data

    def close(self) -> None:
        """Close the connection of the request that opened the object, if no stream uses it, and free its bytes."""
        self._head = b""
        opening = self._take_opening()
        if opening is not None:
            opening.close()


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
        """Return the reply that is read; request one if there is none. Raises TarkitError once `close` was called."""
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

    def read(self, n: int) -> bytes:
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

    def rest(self) -> bytes:
        """Return all bytes up to `stop`."""
        parts = []
        while data := self.read(LARGEST):
            parts.append(data)
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection; calls in other threads end. A copy of the process leaves it to the other."""
        if self.elsewhere:
            return
        self._closed.set()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection of the reply, if there is one."""
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


class Stream:
    """Bytes of an object, in order; several ranges are requested at a time.

    Args:
        opening: the transfer of the first range, or of all if the store sends no parts.
        stop: where the bytes end; None is the end of the object.
        check: computes the checksum, if all bytes are read and there is one to compare with.
        head: bytes before those of the first range, which come first.
        eager: request ranges ahead at once, and not only as many bytes as were read.
    """

    def __init__(
        self,
        remote: RemoteObject,
        opening: Transfer,
        stop: int | None = None,
        check: ChecksumCheck | None = None,
        head: bytes = b"",
        *,
        eager: bool = True,
    ) -> None:
        self._remote = remote
        self._check = check
        self._stop = remote.info.size if stop is None else stop
        self._whole = None if remote.info.ranges else opening
        self._flight: deque[tuple[Transfer, ThreadCall[bytes]]] = deque()
        self._rest = memoryview(head)
        self._size = FIRST
        self._next = self._stop
        self._begun = self._taken = opening.position - len(head)  # the first byte, and the first that is not read
        self._eager = eager
        if self._whole is not None:
            self._whole.stop = self._stop
        elif opening.stop is not None and self._stop is not None:
            self._next = opening.stop = min(opening.stop, self._stop)
            self._flight.append((opening, ThreadCall(opening.rest)))

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes, b"" at the end. Raises TarkitError for an object that does not have its checksum."""
        data = self._read(n)
        check = self._check
        if check is not None:
            check.update(data)
            if check.size == self._stop or (n and not data):
                self._check = None
                if not check.matches():
                    what = "what was read does not have the checksum that the server names"
                    raise TarkitError(f"{self._remote.name}: {what}", "read it again, or compare it with its origin")
        return data

    @property
    def requested(self) -> int:
        """The position up to which bytes are requested or read."""
        return self._taken if self._next is None or self._whole is not None else self._next

    def _read(self, n: int) -> bytes:
        if self._whole is not None:
            return ThreadCall(partial(self._whole.read, n)).result()
        while not self._rest:
            self._request_more()
            if not self._flight:
                return b""
            transfer, task = self._flight.popleft()
            with closing(transfer):
                self._rest = memoryview(task.result())
        data, self._rest = bytes(self._rest[:n]), self._rest[n:]
        self._taken += len(data)
        return data

    def close(self) -> None:
        """Close all connections."""
        for transfer, _ in self._flight:
            transfer.close()
            if transfer.elsewhere:
                _of_others.append(transfer)
        self._flight.clear()
        if self._whole is not None:
            self._whole.close()
            if self._whole.elsewhere:
                _of_others.append(self._whole)
        self._rest = memoryview(b"")

    def _request_more(self) -> None:
        """Request further ranges, up to FLIGHT at a time; one at least."""
        while (
            self._next is not None and self._stop is not None and self._next < self._stop and len(self._flight) < FLIGHT
        ):
            if self._flight and not self._eager and self._next - self._taken >= self._taken - self._begun:
                return
            self._size = min(2 * self._size, LARGEST)
            start, self._next = self._next, min(self._next + self._size, self._stop)
            transfer = Transfer(self._remote, start, self._next)
            self._flight.append((transfer, ThreadCall(transfer.rest)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RemoteUpload:
    """An object that is written: given up after the first error, and with `fresh` not in place of another.

    Once it is complete the store is asked for its length.

    Args:
        store: the store.
        url: its URL, for requests.
        name: its name for messages, without secrets.
        options: those of its requests.
        fresh: an object that exists when this one is completed is an error.
    """

    def __init__(self, store: Store, url: str, name: str, options: StoreOptions, fresh: bool = False) -> None:
        self._head = partial(request_again, partial(store.head, url), name, options)
        self._delete = partial(request_again, partial(store.delete, url), name, options)
        self._name = name
        self._fresh = fresh
        self._size = 0
        self._written: Info | None = None  # the object, once it is known to be the one that was written
        try:  # in this thread, as are writes: what another one has begun would stay if this one is interrupted
            self._upload: Upload = store.put(url, fresh)
        except TryAgain as failure:
            raise self._not_written_error(failure) from failure

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self._size += len(data)
        self._do(partial(self._upload.write, data))

    def close(self) -> None:
        """Complete the object. After an error there is none, unless the error is `Unconfirmed`."""
        if self._fresh:
            self._do(self._refuse_existing)
        self._do(self._upload.close)
        self._confirm()

    def abort(self) -> None:
        """Remove what was written."""
        self._upload.abort()

    def withdraw(self) -> bool:
        """Remove the object that `close` has completed; return whether it is gone. One of another writer stays."""
        if self._written is None:
            return False
        try:
            info = self._head()
            if (info.version, info.mark) != (self._written.version, self._written.mark) or info.version is None:
                return False
            self._delete()
        except FileNotFoundError:
            pass
        return True

    def _refuse_existing(self) -> None:
        try:
            self._head()
        except FileNotFoundError:
            return
        raise exists_error(self._name)

    def _confirm(self) -> None:
        """Compare the object that the store has with what was sent."""
        try:
            info = self._head()
        except FileNotFoundError as error:
            what = "the server does not find this object, although it said that it has stored it"
            raise Unconfirmed(f"{self._name}: {what}") from error
        except Denied:  # of who may write, but not read
            return
        except TarkitError as error:
            raise Unconfirmed(f"{error}; the object was written, and its length was not compared") from error
        upload = self._upload
        if info.mark not in (upload.mark, None):
            raise TarkitError(f"{self._name}: another writer has replaced this object meanwhile")
        proved = info.mark is not None or (upload.version is not None and upload.version == info.version)
        right = info.size in (self._size, None)
        if proved or (right and upload.version is None):
            self._written = info
        if right:
            return
        what = f"{self._name}: the server has {info.size} bytes of this object, {self._size} were sent"
        try:
            gone = self.withdraw()
        except (TarkitError, OSError):
            gone = False
        if gone:
            raise TarkitError(f"{what}; it was removed")
        raise Unconfirmed(f"{what}; it is there", "remove it")

    def _do(self, action: Callable[[], object]) -> None:
        """Perform an action; abort the upload after an error."""
        try:
            action()
        except BaseException as error:
            self.abort()
            if isinstance(error, TryAgain):
                raise self._not_written_error(error) from error
            raise

    def _not_written_error(self, failure: TryAgain) -> TarkitError:
        return TarkitError(f"{self._name}: {failure}; the object was not written")
