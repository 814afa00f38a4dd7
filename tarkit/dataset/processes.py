"""Work on several inputs at once, in processes, with what comes out in the order of the inputs.

A few inputs in a row are for one process, forked when it is their turn, which writes what it yields to an unlinked
temporary file; that is read when the inputs before are done. So what is held does not grow with the data, and the
output is the same for any number of processes.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, TypeVar

from tarkit.errors import Interrupted, TarkitError
from tarkit.streams.command import end_commands
from tarkit.streams.scratch import Scratch

Job = TypeVar("Job")
Item = TypeVar("Item")

SHARES = 8  # parts of its work that a process gets one after the other: fewer forks, but idle ones at the end
AHEAD = 4  # processes that are done and whose turn has not come, for each that may run

_BUFFER = 1 << 16
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NEXT, _ITEM, _FAILED = range(3)


class _Started(NamedTuple):
    process: Any
    file: Scratch
    jobs: int


def in_order(
    jobs: Sequence[Job], work: Callable[[Job], Iterator[Item]], processes: int, tmpdir: str | None = None
) -> Iterator[Iterator[Item]]:
    """For each job, in order, an iterator over what `work` yields for it; it must be used up before the next.

    What is yielded must be picklable when there are several `processes`. What `work` raises is raised here.

    Raises:
        TarkitError: a process was ended from outside.
    """
    if processes <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield work(job)
        return
    share = max(1, len(jobs) // (SHARES * processes))
    shares = deque(jobs[at : at + share] for at in range(0, len(jobs), share))
    started: deque[_Started] = deque()
    try:
        while shares or started:
            _start(shares, started, work, processes, tmpdir)
            running = [each for each in started if each.process.exitcode is None]
            if started[0] in running:  # asked once: it may end any time
                _wait(running)
                continue
            done = started.popleft()
            if done.process.exitcode != 0:
                raise TarkitError(f"a process that worked on shards was ended (status {done.process.exitcode})")
            with os.fdopen(os.dup(done.file.fd), "rb", _BUFFER) as stream:
                stream.seek(0)
                stream.read(1)
                for _ in range(done.jobs):
                    yield _results(stream)
    finally:
        for each in started:
            each.process.terminate()
        for each in started:
            each.process.join()


def _start(
    shares: deque[Sequence[Job]], started: deque[_Started], work: Callable[..., Any], processes: int, tmpdir: str | None
) -> None:
    """Fork as long as there is something to do and not too many run."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    running = sum(each.process.exitcode is None for each in started)
    while shares and running < processes and len(started) < AHEAD * processes:
        jobs, file = shares.popleft(), Scratch(tmpdir)
        # A signal waits until the process is known: else nobody would end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            process = context.Process(target=_run, args=(work, jobs, file.fd, before), daemon=True)
            process.start()
            started.append(_Started(process, file, len(jobs)))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        running += 1


def _wait(running: list[_Started]) -> None:
    from multiprocessing.connection import wait

    wait([each.process.sentinel for each in running])


def _run(work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], fd: int, mask: set[int]) -> None:
    """What a process does."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with os.fdopen(os.dup(fd), "wb", _BUFFER) as file:
            try:
                for job in jobs:
                    file.write(bytes([_NEXT]))
                    for item in work(job):
                        file.write(bytes([_ITEM]))
                        pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
                file.write(bytes([_NEXT]))
            except Exception as error:
                file.write(bytes([_FAILED]))
                pickle.dump(error, file, pickle.HIGHEST_PROTOCOL)
    except (KeyboardInterrupt, Interrupted) as error:
        raise SystemExit(130) from error
    finally:
        end_commands()


def _results(stream: IO[bytes]) -> Iterator[Any]:
    """What was yielded for one job; the stream stands behind the mark before it."""
    while (mark := stream.read(1)[0]) != _NEXT:
        item = pickle.load(stream)
        if mark == _FAILED:
            raise item
        yield item
