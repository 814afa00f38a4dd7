"""Long copies in a thread of their own, while whoever asked for them goes on reading headers."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from tarkit.streams.background import WAIT
from tarkit.streams.copy import Copier, Short

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
