"""A reader moved to a thread of its own, so that decoding overlaps with the work of whoever reads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from tarkit.streams.copy import Copier, Short

WAIT = 0.2  # seconds: a signal that comes just before a wait is seen when the wait ends


class ReadAhead:
    """Calls `read` in a thread, up to `limit` bytes ahead of the caller, in calls of `size` bytes.

    What `read` raises is raised by the method `read`, after all that came before it. Holds at most limit + size bytes.
    For one caller at a time, who calls `close()` when done, also at the end of the stream.
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
        # A daemon: a read that never returns, of a silent pipe, must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def read(self, n: int) -> bytes:
        """Up to n bytes (n > 0), b"" at the end. Raises what the reader raised, each time; ValueError once closed."""
        if not self._rest:
            chunk = self._next()
            if len(chunk) <= n:
                return chunk
            self._rest = memoryview(chunk)
        data = bytes(self._rest[:n])
        self._rest = self._rest[n:]
        return data

    def close(self, wait: float = 1.0) -> bool:
        """Stop the thread and drop what it has read. False: it is still inside a `read` after `wait` seconds.

        A blocked system call cannot be called off. After False leave the descriptor open, since its number would be
        given to the next file; the thread ends once its call returns.
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
            except BaseException as error:  # the caller's to handle, whatever it is
                self._error = error
                data = b""
            with self._change:
                self._chunks.extend([data] if data else [])
                self._held += len(data)
                self._ended = not data
                self._change.notify_all()


# ---- Long copies in a thread of their own, while whoever asked for them goes on reading headers

LONG = 4 << 20  # bytes from which on a copy is worth a thread
_STEP = 32 << 20  # bytes between two looks whether to go on
_QUEUE = 16  # ranges that may wait: each has a descriptor of its own

Shortened = Callable[[int], Exception]


class Mover:
    """Copies ranges of files to one target, in the order in which they were given.

    A descriptor may be closed as soon as it was handed over. What goes wrong is raised by the next call of any method
    but `stop`: an OSError of the target or the source, or, where a file was too short, what the caller said.
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
        """Copy bytes [start, stop) of the file `source` soon; `short(pos)` says that it ends at `pos`."""
        self._until(_QUEUE - 1)
        with self._ready:
            self._waiting.append((os.dup(source), start, stop, short))
            self._ready.notify_all()

    def wait(self) -> None:
        """Return when all is copied."""
        self._until(0)

    def stop(self) -> None:
        """Give up what is left, and end the thread: when this returns it does not touch the target any more."""
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
