"""Remote outputs that are completed in the background, a few at a time, while the next ones are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import NamedTuple

from tarkit.errors import TarkitError
from tarkit.signals import is_ending, uninterrupted
from tarkit.stores.store import Unconfirmed
from tarkit.streams.sink import Sink
from tarkit.threads import ThreadCall

AT_ONCE = 4
"""Outputs that are completed at a time."""

MEMORY = 128 << 20
"""Bytes that these may hold together."""

EACH = 64 << 20
"""Bytes that one holds at most: its parts that are being sent."""

ONE_REQUEST = 8 << 20
"""Bytes of an output that is surely sent in one request."""

PATIENCE = 1.0
"""Seconds that requests are given after a signal."""


class _Closing(NamedTuple):
    sink: Sink
    request: ThreadCall[None]
    held: int
    report: Callable[[], None]


class BackgroundUploads:
    """Outputs that are being completed, reported in the order in which they were added.

    An error of one is raised by the next call, when those before it are reported. Then, and after a signal, call
    `abort`: outputs that were not reported are removed, so that the remaining ones are the first.

    Args:
        replaces: whether the outputs may have replaced others; then those that are complete stay.
        warn: called with a message when an output stays that was not reported, or may stay.
    """

    def __init__(self, replaces: bool, warn: Callable[[str], None]) -> None:
        self._replaces = replaces
        self._warn = warn
        self._queue: deque[_Closing] = deque()

    def make_room(self, size: int) -> None:
        """Wait until an output of `size` bytes may be added."""
        most = MEMORY - min(size, EACH)
        while self._queue and (len(self._queue) >= AT_ONCE or sum(closing.held for closing in self._queue) > most):
            self._report_first()

    def add(self, sink: Sink, close: Callable[[], None], size: int, report: Callable[[], None]) -> None:
        """Have `close` called in a thread, which completes an output or leaves nothing of it; then call `report`."""
        with uninterrupted():
            self._queue.append(_Closing(sink, ThreadCall(close), min(size, EACH), report))

    def report(self) -> None:
        """Report the outputs that are complete by now."""
        while self._queue and self._queue[0].request.done:
            self._report_first()

    def finish(self) -> None:
        """Wait for all outputs, and report them."""
        while self._queue:
            self._report_first()

    def abort(self) -> None:
        """Wait for the requests that are under way, and remove the outputs that were not reported.

        After a signal, one request is given PATIENCE: the server has all of it then, or nothing.
        """
        queue, self._queue = self._queue, deque()
        limit = monotonic() + PATIENCE
        for closing in queue:
            closing.request.wait(limit - monotonic() if is_ending() and closing.held < ONE_REQUEST else inf)
        for closing in queue:
            if not closing.request.done:
                self._warn(f"{closing.sink.name}: perhaps written, although the run ended before the server said so")
                continue
            try:
                closing.request.result()
            except Unconfirmed as error:
                self._warn(str(error))
                continue
            except Exception:  # nothing of it is there, and the reason for the abort is the error that is reported
                continue
            if not self._replaces:
                self._remove(closing.sink)

    def _remove(self, sink: Sink) -> None:
        """Remove an output of this run; one that another run has written meanwhile stays."""
        message = f"{sink.name}: complete, although the run ended before it was reported"
        try:
            if not sink.withdraw():
                self._warn(f"{message}: it is not removed, as another run may have written it")
        except (TarkitError, OSError) as error:
            self._warn(f"{message}: {error}")

    def _report_first(self) -> None:
        first = self._queue[0]
        first.request.wait()
        with uninterrupted():  # else one that left the queue is neither reported nor removed
            self._queue.popleft()
            first.request.result()
            first.report()
