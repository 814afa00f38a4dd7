"""`threads=` of a loader: threads make the values of samples before these are taken, which are given in their order."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from threading import Condition
from typing import Any, NamedTuple

from tarkit.loading.settings import LoaderSettings
from tarkit.pipeline.sample import Sample
from tarkit.threads import WAIT, ThreadCall, Worker

EACH = 2
"""Samples for each thread that are read and not taken yet, beside those of one batch."""

PATIENCE = 10.0
"""Seconds that the end of an iteration, or of Python, waits for calls that have begun. A thread is never ended within a
call: later ones end once their call returns."""

Place = tuple[int, int]
"""The number of a shard, and that of a sample in it."""


class Gate:
    """Lets calls in threads run at the same time, but none of them while a call is alone."""

    def __init__(self) -> None:
        self._change = Condition()
        self._running = 0
        self._closed = False

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Wait until no call is alone."""
        with self._change:
            while self._closed:
                self._change.wait()
            self._running += 1
        try:
            yield
        finally:
            with self._change:
                self._running -= 1
                self._change.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for the calls that run, and let none begin meanwhile; for one thread only, the one that iterates."""
        try:
            with self._change:
                self._closed = True
                while self._running:
                    self._change.wait(WAIT)
            yield
        finally:
            with self._change:
                self._closed = False
                self._change.notify_all()


class LoaderThreads(NamedTuple):
    """The threads of an iteration, how many samples may wait to be taken, and the gate of calls of `transform`."""

    worker: Worker
    most: int
    gate: Gate

    def part(self, share: float) -> LoaderThreads:
        """Return the same threads for a source with this share of the samples."""
        return self._replace(most=max(ceil(self.most * share), 1))


@contextmanager
def loader_threads(settings: LoaderSettings) -> Iterator[LoaderThreads | None]:
    """Start the threads of an iteration, if the settings want some; end them afterwards, or when Python ends."""
    if not settings.threads:
        yield None
        return
    worker = Worker("tarkit loader", settings.threads)
    end = partial(worker.end, PATIENCE, drop=True)
    atexit.register(end)
    try:
        yield LoaderThreads(worker, EACH * settings.threads + (settings.batch or 0), Gate())
    finally:
        atexit.unregister(end)
        end()


class Ahead:
    """What threads make of samples: in the order of the samples, each made before it is taken.

    Attributes:
        places: those of the samples that were read and not taken yet, in order.
    """

    def __init__(self, threads: LoaderThreads) -> None:
        self._worker, self._most = threads.worker, threads.most
        self._ended = False
        self._waiting: deque[ThreadCall[Any]] = deque()
        self.places: deque[Place] = deque()

    def calls(
        self,
        samples: Iterator[tuple[int, int, Sample]],
        work_of: Callable[[Place, Sample], Callable[[], Any]],
        alone: Callable[[], bool],
    ) -> Iterator[tuple[int, int, ThreadCall[Any]]]:
        """Yield the shard and the number of each sample, and the call of its work.

        Args:
            samples: the samples, with their places.
            work_of: returns the work for a sample.
            alone: whether the next sample is not read before the one before it was taken.

        An error of reading is raised behind the samples that precede it.
        """
        failure: Exception | None = None
        while True:
            while failure is None and len(self.places) < (1 if alone() else self._most):
                try:
                    read = next(samples, None)
                except Exception as error:
                    failure = error
                    break
                if read is None:
                    break
                place = read[:2]
                work = partial(self._unless_ended, work_of(place, read[2]))
                self._waiting.append(ThreadCall(work, self._worker))
                self.places.append(place)
            if not self.places:
                if failure is not None:
                    raise failure
                return
            call, place = self._waiting.popleft(), self.places.popleft()
            yield *place, call

    def _unless_ended(self, work: Callable[[], Any]) -> Any:
        return None if self._ended else work()

    def end(self) -> None:
        """Make no more calls, and free what was made."""
        self._ended = True
        self._waiting.clear()
