"""The same work on many things at once, in processes of their own: results in order, a few waiting at most."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tarkit.errors import CommandFailed, Problem, TarkitError
from tarkit.streams.sink_plain import discard_unfinished, unfinished

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.process import BaseProcess

Item = TypeVar("Item")
Result = TypeVar("Result")

WAIT = 0.2  # seconds between two looks for signals
AGAIN, PATIENCE = 0.05, 2.0  # seconds until a process is asked again to end, and until it has to


class Pulse:
    """No result yet."""


class Failed:
    """An error of the family as plain facts: the exceptions themselves cannot go from one process to another."""

    def __init__(self, error: Exception) -> None:
        self.kind = type(error)
        self.facts: tuple[Any, ...] = (str(error), getattr(error, "hint", None))
        if isinstance(error, Problem):
            self.facts = (error.name, error.archive, error.offset, error.detail, error.hint)
        elif isinstance(error, OSError):
            self.facts = (error.errno, error.strerror, error.filename)
        elif isinstance(error, CommandFailed):
            self.kind = TarkitError

    def again(self) -> Exception:
        """The error."""
        return self.kind(*self.facts)


def in_processes(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """`function` of each item, in order; `processes` of them at a time, which are copies of this one.

    `function` and what it hands back must be picklable. Raises what it raises, of the first item that fails. Where a
    process cannot be copied, or one is enough, everything is done here.
    """
    return (result for result in with_pulse(function, items, processes) if not isinstance(result, Pulse))


def with_pulse(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result | Pulse]:
    """The same, with a Pulse now and then while nothing is done: for who shows how far the work is."""
    from multiprocessing import get_all_start_methods

    if processes <= 1 or "fork" not in get_all_start_methods():
        yield from map(function, items)
        return
    yield from _forked(function, items, processes)


def _forked(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result | Pulse]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(processes, get_context("fork"), initializer=_prepare)
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(_guarded, function, item))
            if len(waiting) > 2 * processes:
                yield from _awaited(waiting.popleft())
        while waiting:
            yield from _awaited(waiting.popleft())
    except BaseException as error:
        _stop(list((getattr(pool, "_processes", None) or {}).values()))
        if isinstance(error, BrokenProcessPool):
            raise TarkitError(
                "a process of ours was ended from outside", "out of memory? -p 1 needs the least"
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _stop(processes: Sequence[BaseProcess]) -> None:
    """End processes that wait or work. Each is asked until it ends: a signal just before a wait is seen with the next.

    What waits for a lock that another one of them had when it ended would wait for ever.
    """
    from multiprocessing.connection import wait

    limit = time.monotonic() + PATIENCE
    while (alive := [each for each in processes if each.is_alive()]) and time.monotonic() < limit:
        for process in alive:
            process.terminate()
        wait([each.sentinel for each in alive], AGAIN)
    for process in processes:
        process.kill()


def _prepare() -> None:
    """A signal that ends us ends the copies through us; they leave no unfinished output of theirs, and none of ours.

    The one that cannot be caught ends them too: each has a thread that waits for our end.
    """
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    unfinished.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), _end)


def _outlive_nobody() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        discard_unfinished()
        os.kill(os.getpid(), signal.SIGKILL)


def _end(signum: int, frame: object) -> None:
    discard_unfinished()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _guarded(function: Callable[[Item], Result], item: Item) -> Result | Failed:
    try:
        return function(item)
    except (TarkitError, OSError) as error:
        return Failed(error)


def _awaited(future: Future[Any]) -> Iterator[Any]:
    from concurrent.futures import wait

    while not future.done():  # a wait without an end would not see a signal that came just before it
        if not wait((future,), WAIT).done:
            yield Pulse()
    result = future.result()
    if isinstance(result, Failed):
        raise result.again()
    yield result
