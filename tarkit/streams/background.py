"""Threads for input and output: `ReadAhead` reads and decodes ahead of the caller, `Mover` makes long copies."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from tarkit.streams.copy import Copier, Short

WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends


class ReadAhead:
    """Read ahead in a thread, by calls of `read(size)`, until `limit` bytes are waiting (at most limit + size).

    An exception of `read` is raised by the method `read` after the data that precedes it. For one caller at a time,
    which calls `close()` when done, also at the end of the stream.
    """

    def __init__(self, read: Callable[[int], bytes], size: int = 1 << 20, limit: int = 4 << 20) -> None:
        self._source = read
        self._size = size
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._change = threading.Condition()
        self._rest = memoryview(b"")
        # A daemon, since a read from a pipe may never return, and the program must end nevertheless.
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def read(self, n: int) -> bytes:
        """Return up to n bytes (n > 0), b"" at the end. Raises what `read` raised, each time; ValueError if closed."""
        if not self._rest:
            chunk = self._next()
            if len(chunk) <= n:
                return chunk
            self._rest = memoryview(chunk)
        data = bytes(self._rest[:n])
        self._rest = self._rest[n:]
        return data

    def close(self, wait: float = 1.0) -> bool:
        """Stop the thread and drop its data. Returns False if it is still inside a `read` after `wait` seconds.

        A blocked system call cannot be cancelled. After False leave the descriptor open, since the next file would get
        its number; the thread ends once its call returns.
        """
        with self._change:
            self._closed = True
            self._chunks.clear()
            self._change.notify_all()
        self._rest = memoryview(b"")
        self._thread.join(wait)
        return not self._thread.is_alive()

    def _next(self) -> bytes:
        with self._change:
            while not self._change.wait_for(lambda: self._chunks or self._ended or self._closed, WAIT):
                pass
            if self._closed:
                raise ValueError("read of a closed ReadAhead")
            if self._chunks:
                chunk = self._chunks.popleft()
                self._held -= len(chunk)
                self._change.notify_all()
                return chunk
        if self._error is not None:
            raise self._error
        return b""

    def _run(self) -> None:
        data = b"more"
        while data:
            with self._change:
                self._change.wait_for(lambda: self._held < self._limit or self._closed)
                if self._closed:
                    return
            try:
                data = self._source(self._size)
            except BaseException as error:  # raised again in the thread of the caller
                self._error = error
                data = b""
            with self._change:
                self._chunks.extend([data] if data else [])
                self._held += len(data)
                self._ended = not data
                self._change.notify_all()


# ---- Long copies in a thread, while the caller continues to read headers

LONG = 4 << 20  # bytes: shorter copies are not worth a thread
_STEP = 32 << 20  # bytes copied between two checks whether to stop
_QUEUE = 16  # ranges that may wait; each needs a descriptor

Shortened = Callable[[int], Exception]


class Mover:
    """Copy ranges of files to one target in a thread, in the order of the calls of `put`.

    An error is raised by the next call of any method but `stop`: an OSError of the target or the source, or the
    exception that `short(pos)` returned for a file that ended at `pos`.
    """

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._ready = threading.Condition()
        self._waiting: deque[tuple[int, int, int, Shortened]] = deque()
        self._failure: Exception | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="mover", daemon=True)
        self._thread.start()

    def put(self, source: int, start: int, stop: int, short: Shortened) -> None:
        """Queue a copy of bytes [start, stop) of the file `source`, whose descriptor may be closed after the call."""
        self._until(_QUEUE - 1)
        with self._ready:
            self._waiting.append((os.dup(source), start, stop, short))
            self._ready.notify_all()

    def wait(self) -> None:
        """Wait until all queued ranges are copied."""
        self._until(0)

    def stop(self) -> None:
        """Drop the queued ranges and end the thread; it does not use the target after this returns."""
        self._stopped = True
        with self._ready:
            self._ready.notify_all()
        self._thread.join()

    def _until(self, left: int) -> None:
        while len(self._waiting) > left:
            with self._ready:
                if len(self._waiting) > left:
                    self._ready.wait(WAIT)
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._stopped:
                    self._ready.wait()
                if self._stopped and not self._waiting:
                    return
                source, start, stop, short = self._waiting[0]
            try:
                if not self._stopped and self._failure is None:
                    self._move(source, start, stop)
            except Short as error:
                self._failure = short(error.pos)
            except Exception as error:
                self._failure = error
            finally:
                os.close(source)
                with self._ready:
                    self._waiting.popleft()
                    self._ready.notify_all()

    def _move(self, source: int, start: int, stop: int) -> None:
        while start < stop and not self._stopped:
            step = min(stop - start, _STEP)
            self._copier.copy(source, start, start + step)
            start += step
