"""The same work on several inputs at once, in processes, with what comes out in the order of the inputs.

A few inputs in a row are for one process, forked when it is their turn, which writes what it yields to an unlinked
temporary file; that is read when the inputs before are done. So what is held does not grow with the data, the output
is the same for any number of processes, and there is no lock or queue that a process could hold when it ends.

Nor is there a lock that a process could wait for in vain: what a thread holds when its process is copied is never
released in the copy, so a process is copied only while it has no other thread. What has threads here, a stream that is
read ahead, a long copy, a command, is opened by the processes, each for itself. Where threads run all the same, the
work is done here.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, NamedTuple, TypeVar

from tarkit.errors import CommandFailed, Interrupted, Problem, TarkitError, signal_name
from tarkit.signals import RAISING, catch_signals, ignore_signals
from tarkit.streams import command
from tarkit.streams.command import disown_commands, end_commands
from tarkit.streams.sink import discard_unfinished, unfinished
from tarkit.streams.tempfile import TemporaryFile

# ---- The other side of `parallel`: a copy of this process that works, and what it writes for the one that started it

BUFFER, ROOM = 1 << 16, 1 << 12  # bytes; the second is enough to tell of a full disk
_NEXT, _ITEM, _FAILED = range(3)


class RemoteError:
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


def run(
    work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: TemporaryFile, mask: set[int], parent: int
) -> None:
    """What a process does. What ends its parent ends it through its parent, which must be there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    catch_signals()
    gc.freeze()  # a collection that looks at what is the parent's would copy it
    unfinished.clear()
    disown_commands()
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    try:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _work(work, jobs, file, parent)
        finally:
            _clean_up()
            ignore_signals()
    except Interrupted as error:  # which may have come while it cleaned up, and comes once
        _clean_up()
        signal.signal(error.signum, signal.SIG_DFL)
        os.kill(os.getpid(), error.signum)


def _clean_up() -> None:
    discard_unfinished()
    end_commands()


def _outlive_nobody() -> None:
    """End when the parent ends, even when it is killed."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _clean_up()
    os.kill(os.getpid(), signal.SIGKILL)  # nobody waits for the rest


def _work(work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: TemporaryFile, parent: int) -> None:
    """Write what `work` yields, with marks; where there is no room for it, that instead."""
    try:
        with os.fdopen(os.dup(file.fd), "wb", BUFFER) as stream:
            for job in jobs:
                if os.getppid() != parent:
                    raise SystemExit(1)
                stream.write(bytes([_NEXT]))
                for mark, item in _marked(work, job):
                    stream.write(bytes([mark]))
                    pickle.dump(item, stream, pickle.HIGHEST_PROTOCOL)
                    if mark == _FAILED:
                        return
            stream.write(bytes([_NEXT]))
    except OSError as error:
        error.filename = file.name
        os.ftruncate(file.fd, ROOM)
        os.pwrite(file.fd, bytes([_NEXT, _FAILED]) + pickle.dumps(RemoteError(error)), 0)


def _marked(work: Callable[[Job], Iterator[Item]], job: Job) -> Iterator[tuple[int, Item | RemoteError]]:
    """What is yielded for a job, and what is raised in the end."""
    try:
        for item in work(job):
            yield _ITEM, item
    except (TarkitError, OSError) as error:
        yield _FAILED, RemoteError(error)


def results(stream: IO[bytes]) -> Iterator[Any]:
    """What was yielded for one job; the stream stands behind the mark before it."""
    while (mark := stream.read(1)) != bytes([_NEXT]):
        if not mark or mark[0] > _FAILED:
            raise TarkitError("a process of ours did less than it should")
        item = pickle.load(stream)
        if mark == bytes([_FAILED]):
            raise item.again()
        yield item


Job = TypeVar("Job")
Item = TypeVar("Item")
Result = TypeVar("Result")

SHARES = 8  # parts of its work that a process gets one after the other: fewer forks, but idle ones at the end
AHEAD = 4  # processes that are done and whose turn has not come, for each that may run

WAIT = 0.2  # seconds: a signal that comes just before a wait is seen when the wait ends
AGAIN = 0.05  # seconds until a process is asked again to end
PATIENCE = 2 * command.PATIENCE  # seconds until it has to: it waits for commands of its own


class _Started(NamedTuple):
    process: Any
    file: TemporaryFile
    jobs: int


def results_in_order(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    processes: int,
    tmpdir: str | None = None,
    *,
    share: int | None = None,
    pulse: Any = None,
) -> Iterator[Result]:
    """`function` of each job, in order: as `in_order`, for work that comes to one result."""
    if processes <= 1:
        yield from map(function, jobs)
        return

    def work(job: Job) -> Iterator[Result]:
        yield function(job)

    for found in in_order(jobs, work, processes, tmpdir, share=share, pulse=pulse):
        yield from found


def in_order(
    jobs: Iterable[Job],
    work: Callable[[Job], Iterator[Item]],
    processes: int,
    tmpdir: str | None = None,
    *,
    share: int | None = None,
    pulse: Any = None,
) -> Iterator[Iterator[Item]]:
    """For each job, in order, an iterator over what `work` yields for it; it must be used up before the next.

    So many jobs in a row, `share`, are for one process, and then jobs are taken as they are needed; without it they are
    counted and dealt out. An iterator over `pulse` alone, if there is one, comes now and then while nothing is done.

    What is yielded must be picklable when there are several `processes`, which are copies of this one. An error of the
    family, or of the system, that `work` raises is raised here when it is the turn of its job, behind what was yielded
    before it. Whoever does not read to the end closes the iterator: that ends the processes. While this one cannot be
    copied, the work is done here.

    Raises:
        TarkitError: a process was ended from outside.
    """
    if share is None:
        jobs = list(jobs)
        processes = min(processes, len(jobs))
        share = max(1, len(jobs) // (SHARES * max(1, processes)))
    if processes <= 1:
        yield from map(work, jobs)
        return
    shares = _shares(jobs, share)
    started: deque[_Started] = deque()
    try:
        while True:
            _start(shares, started, work, processes, tmpdir)
            if not started:
                if not (some := next(shares, ())):
                    return
                yield from map(work, some)
                continue
            running = [each.process for each in started if each.process.exitcode is None]
            if started[0].process in running:  # asked once: it may end any time
                _wait(running, WAIT)
                if pulse is not None:
                    yield iter((pulse,))
                continue
            done = started.popleft()
            done.process.join()  # gives its descriptors back, which multiprocessing keeps until the next one starts
            if done.process.exitcode != 0:
                raise _ended(done.process.exitcode)
            with os.fdopen(os.dup(done.file.fd), "rb", BUFFER) as stream:
                stream.seek(0)
                stream.read(1)
                for _ in range(done.jobs):
                    yield results(stream)
    finally:
        _stop([each.process for each in started])


def _shares(jobs: Iterable[Job], share: int) -> Iterator[tuple[Job, ...]]:
    left = iter(jobs)
    while some := tuple(islice(left, share)):
        yield some


def _ended(status: int) -> TarkitError:
    """A process ended before it was done; negative: by a signal."""
    how = f"with status {status}" if status >= 0 else f"by {signal_name(-status)}"
    return TarkitError(f"a process of ours was ended {how}", "out of memory? -p 1 needs the least")


def _start(
    shares: Iterator[Sequence[Job]],
    started: deque[_Started],
    work: Callable[..., Any],
    processes: int,
    tmpdir: str | None,
) -> None:
    """Fork as long as there is something to do, not too many run, and no thread does."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    running = sum(each.process.exitcode is None for each in started)
    while running < processes and len(started) < AHEAD * processes and _may_fork():
        if (jobs := next(shares, None)) is None:
            return
        file = TemporaryFile(tmpdir)
        file.reserve(ROOM)
        # A signal waits until the process is known: else nobody would end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, RAISING)
        try:
            process = context.Process(target=run, args=(work, jobs, file, before, os.getpid()), daemon=True)
            process.start()
            started.append(_Started(process, file, len(jobs)))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        running += 1


def _may_fork() -> bool:
    return hasattr(os, "fork") and threading.active_count() == 1


def _wait(processes: Sequence[Any], seconds: float) -> None:
    from multiprocessing.connection import wait

    wait([each.sentinel for each in processes], seconds)


def _stop(processes: Sequence[Any]) -> None:
    """End processes. Each is asked until it ends: what a signal raises may be lost where nothing can be raised."""
    limit = time.monotonic() + PATIENCE
    while (alive := [each for each in processes if each.is_alive()]) and time.monotonic() < limit:
        for process in alive:
            process.terminate()
        _wait(alive, AGAIN)
    for process in processes:
        process.kill()
        process.join()
