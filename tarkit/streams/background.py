"""Threads for input and output: `ReadAhead` reads and decodes ahead of the caller, `Mover` makes long copies."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from tarkit.streams.copy import Copier, Short, new_buffer
from tarkit.threads import WAIT, ProcessBound, ThreadCall, Worker


class ReadAhead(ProcessBound):
    """Read ahead in a thread, by calls of `fill(view)`, into a ring of `limit` bytes, up to `size` at a time.

    An exception of `fill` is raised by `readinto` after the data that precedes it. For one caller at a time, which
    calls `close()` when done, also at the end of the stream.
    """

    def __init__(self, fill: Callable[[memoryview], int], size: int = 1 << 20, limit: int = 4 << 20) -> None:
        super().__init__()
        self._fill = fill
        self._size = size
        self._ring = new_buffer(limit)
        self._filled = self._taken = 0  # bytes since the start; what is between is in the ring
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._change = threading.Condition()
        # A daemon, since a read from a pipe may never return, and the program must end nevertheless.
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`, 0 bytes at the end. Raises what `fill` raised, each time; ValueError if closed."""
        self.refuse_elsewhere()
        with self._change:
            while not self._change.wait_for(lambda: self._held or self._ended or self._closed, WAIT):
                pass
        if self._closed:
            raise ValueError("read of a closed ReadAhead")
        if not self._held and self._error is not None:
            raise self._error
        at = self._taken % len(self._ring)
        count = min(len(view), self._held, len(self._ring) - at)
        view[:count] = self._ring[at : at + count]
        with self._change:
            self._taken += count
            self._change.notify_all()
        return count

    def close(self, wait: float = 1.0) -> bool:
        """Stop the thread and drop its data. Returns False if it is still inside a call of `fill` after `wait` seconds.

        A blocked system call cannot be cancelled. After False leave the descriptor open, since the next file would get
        its number; the thread ends once its call returns.
        """
        if self.elsewhere:
            return True
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(wait)
        return not self._thread.is_alive()

    @property
    def _held(self) -> int:
        return self._filled - self._taken

    def _run(self) -> None:
        count = 1
        while count:
            with self._change:
                self._change.wait_for(lambda: len(self._ring) - self._held >= self._size or self._closed)
                if self._closed:
                    return
            at = self._filled % len(self._ring)
            try:
                count = self._fill(self._ring[at : at + self._size])
            except BaseException as error:  # raised again in the thread of the caller
                self._error = error
                count = 0
            with self._change:
                self._filled += count
                self._ended = not count
                self._change.notify_all()


# ---- Long copies in a thread, while the caller continues to read headers

LONG = 4 << 20  # bytes: shorter copies are not worth a thread
_STEP = 32 << 20  # bytes copied between two checks whether to stop
_QUEUE = 8  # ranges that may wait; each needs a descriptor

Shortened = Callable[[int], Exception]


class Mover:
    """Copy ranges of files to one target in a thread, in the order of the calls of `put`.

    An error is raised by the next calls of any method but `stop`: an OSError of the target or the source, or the
    exception that `short(pos)` returned for a file that ended at `pos`. Nothing is copied after it.
    """

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._waiting: deque[ThreadCall[None]] = deque()
        self._stopped = False
        self._worker = Worker("mover")

    def put(self, source: int, start: int, stop: int, short: Shortened) -> None:
        """Queue a copy of bytes [start, stop) of the file `source`, whose descriptor may be closed after the call."""
        self._wait_for(_QUEUE - 1)
        move = partial(self._move, os.dup(source), start, stop, short)
        self._waiting.append(ThreadCall(move, self._worker))

    @property
    def busy(self) -> bool:
        """Whether ranges are being copied, or wait for that."""
        return bool(self._waiting) and not self._waiting[-1].done

    def wait(self) -> None:
        """Wait until all queued ranges are copied."""
        self._wait_for(0)

    def stop(self) -> None:
        """Drop the queued ranges and end the thread; it does not use the target after this returns."""
        self._stopped = True
        self._worker.end()

    def _wait_for(self, most: int) -> None:
        """Wait until `most` ranges are left."""
        while len(self._waiting) > most:
            self._waiting[0].result()
            self._waiting.popleft()

    def _move(self, source: int, start: int, stop: int, short: Shortened) -> None:
        try:
            while start < stop and not self._stopped:
                step = min(stop - start, _STEP)
                self._copier.copy(source, start, start + step)
                start += step
        except Short as error:
            self._stopped = True
            raise short(error.pos) from None
        except BaseException:
            self._stopped = True
            raise
        finally:
            os.close(source)
