"""A reader moved to a thread of its own, so that decoding overlaps with the work of whoever reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

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
