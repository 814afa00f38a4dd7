"""Threads for input and output: `ReadAhead` reads and decodes ahead of the caller, `Mover` makes long copies."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tarkit.bytereader import ByteReader
from tarkit.streams.copy import Copier, Short, new_buffer
from tarkit.threads import WAIT, ProcessBound, ThreadCall, Worker


class ReadAhead(ByteReader, ProcessBound):
    """Reads ahead of the caller, in a thread, into a ring of `limit` bytes, up to `size` at a time.

    An exception of `reader` is raised by `readinto` after the data that precedes it. For one caller at a time, which
    closes it when done, also at the end of the stream.
    """

    patience = 1.0
    """Seconds that `close` waits for the thread."""

    def __init__(self, reader: ByteReader, size: int = 1 << 20, limit: int = 4 << 20) -> None:
        ProcessBound.__init__(self)
        self._reader = reader
        self._size = size
        self._ring = new_buffer(limit)
        self._filled = self._taken = 0  # bytes since the start; what is between is in the ring
        self._ended = self._stopped = False
        self._change = threading.Condition()
        self._call = ThreadCall(self._fill)

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`, 0 bytes at the end. Raises what `reader` raised, each time; ValueError if closed."""
        self.refuse_elsewhere()
        with self._change:
            while not self._change.wait_for(lambda: self._held or self._ended or self._stopped, WAIT):
                pass
        if self._stopped:
            raise ValueError("read of a closed ReadAhead")
        if not self._held:
            self._call.result()
        at = self._taken % len(self._ring)
        count = min(len(view), self._held, len(self._ring) - at)
        view[:count] = self._ring[at : at + count]
        with self._change:
            self._taken += count
            self._change.notify_all()
        return count

    def close(self) -> None:
        """Stop the thread, drop its data, and close `reader`.

        A blocked system call cannot be cancelled: while the thread is inside one, the descriptor stays open, since the
        next file would get its number. The thread ends once its call returns.
        """
        if not self.elsewhere:
            with self._change:
                self._stopped = True
                self._change.notify_all()
            if not self._call.wait(self.patience):
                return
        self._reader.close()

    @property
    def _held(self) -> int:
        return self._filled - self._taken

    def _fill(self) -> None:
        count = 1
        try:
            while count:
                with self._change:
                    self._change.wait_for(lambda: len(self._ring) - self._held >= self._size or self._stopped)
                    if self._stopped:
                        return
                at = self._filled % len(self._ring)
                count = self._reader.readinto(self._ring[at : at + self._size])
                with self._change:
                    self._filled += count
                    self._change.notify_all()
        finally:
            with self._change:
                self._ended = True
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
