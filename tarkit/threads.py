"""Threads of this process: calls in threads, whether there are any threads, and how many may compress.

A copy (a fork) of a process with threads would wait for ever for a lock that one of them holds.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tarkit.errors import Unsupported

if TYPE_CHECKING:
    from queue import SimpleQueue

Result = TypeVar("Result")

WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends
MOST_CODEC_THREADS = 8  # each needs 10 MiB for zstd's level 3, 25 for level 9, 80 for level 19

_native: set[str] = set()
_copied: set[str] = set()
_origin = os.getpid()


def mark_native_threads(library: str) -> None:
    """Record that a library has started threads that `threading` does not list, and that do not end."""
    if not _native:
        os.register_at_fork(after_in_child=_note_copy)
    _native.add(library)


def refuse_copy(library: str, name: str) -> None:
    """Raise Unsupported in a copy of a process that had threads of a library, which would wait for them."""
    if library in _copied:
        raise Unsupported(
            f"{name} cannot be used in this process: it is a copy (fork) of one that used them before",
            "start processes before that, or with 'spawn' or 'forkserver' (torch: multiprocessing_context='spawn')",
        )


class ProcessBound:
    """Base of objects of one process: a thread, or a connection, which a copy of the process does not have.

    Attributes:
        elsewhere: whether this is a copy (fork) of the process that made it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def elsewhere(self) -> bool:
        """Whether this is a copy of the process that made it: it may not be used here, nor closed."""
        return os.getpid() != self._process

    def refuse_elsewhere(self) -> None:
        """Raise Unsupported in a copy of the process, which would wait for ever or take the bytes of the other."""
        if self.elsewhere:
            raise Unsupported(
                "this process is a copy (fork) of one that began to read, and cannot go on with that",
                "begin to read in the process that needs the samples",
            )


class ThreadCall(ProcessBound, Generic[Result]):
    """A call in a thread: one of its own, or that of a `Worker`.

    A request blocks signals while it waits for its server, as does a long copy; waiting for a thread does not. The
    thread is a daemon, so that the program can end while a request still waits.
    """

    def __init__(self, work: Callable[[], Result], worker: Worker | None = None) -> None:
        super().__init__()
        self._work = work
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        if worker is None:
            threading.Thread(target=self.run, name="call", daemon=True).start()
        else:
            worker.refuse_elsewhere()
            worker.queue.put(self)

    def run(self) -> None:
        """Make the call; for the thread."""
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error
        self._done.set()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._done.is_set()

    def wait(self, seconds: float = inf) -> bool:
        """Wait for the end of the call, at most so long; return whether it has ended."""
        self.refuse_elsewhere()
        limit = monotonic() + seconds
        while not self._done.wait(min(WAIT, max(limit - monotonic(), 0))):
            if monotonic() >= limit:
                return False
        return True

    def result(self) -> Result:
        """Wait for the end of the call; return its result, or raise its exception."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]


class Worker(ProcessBound):
    """A thread, or several, which make calls in the order in which they were put to them (see `ThreadCall`)."""

    def __init__(self, name: str, threads: int = 1) -> None:
        from queue import SimpleQueue

        super().__init__()
        self._dropped = False
        self.queue: SimpleQueue[ThreadCall[Any] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (call := self.queue.get()) is not None and not self._dropped:
            call.run()

    def end(self, patience: float = inf, drop: bool = False) -> None:
        """End the threads once all calls are made, or those that have begun if the others are to `drop`.

        Wait for that, at most so many seconds: not in one of the threads, nor where Python ends, which stops them.
        """
        if self.elsewhere:
            return
        self._dropped = drop
        for _ in self._threads:
            self.queue.put(None)
        limit = monotonic() + patience
        for thread in self._threads:
            if thread is not threading.current_thread() and not sys.is_finalizing():
                thread.join(None if patience == inf else max(limit - monotonic(), 0))


def call_interruptibly(work: Callable[[], Result]) -> Result:
    """Return the result of a call: in the main thread by a ThreadCall, in others, which handle no signals, at once."""
    return ThreadCall(work).result() if threading.current_thread() is threading.main_thread() else work()


def has_threads() -> bool:
    """Return whether this process has other threads than the current one."""
    return bool(_native) or threading.active_count() > 1


def has_native_threads(library: str) -> bool:
    """Return whether this process has threads of a library that do not end."""
    return library in _native


def codec_threads() -> int:
    """Return how many threads compress one output, or decode: one a CPU, but one alone in a copy, which shares them."""
    from tarkit.machine import cpus  # 0.5 ms of a start

    if os.getpid() != _origin:
        return 1
    return min(cpus(), MOST_CODEC_THREADS)


def _note_copy() -> None:
    _copied.update(_native)
