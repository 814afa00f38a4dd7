"""Work on several inputs at once, in processes, with what comes out in the order of the inputs.

Each input has a process of its own, forked when it is its turn, which writes what it yields to an unlinked temporary
file; it is read when the inputs before are done. So what is held does not grow with the data, and the output is the
same for any number of processes.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, TypeVar

from tarkit.errors import Interrupted, TarkitError
from tarkit.streams.command import end_commands
from tarkit.streams.scratch import Scratch

Job = TypeVar("Job")
Item = TypeVar("Item")

_BUFFER = 1 << 16


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
    import multiprocessing

    context = multiprocessing.get_context("fork")
    waiting: deque[tuple[Any, Scratch, Job]] = deque()
    rest = iter(jobs)
    try:
        while True:
            for job in islice(rest, processes - len(waiting)):
                file = Scratch(tmpdir)
                process = context.Process(target=_run, args=(work, job, file.fd), daemon=True)
                process.start()
                waiting.append((process, file, job))
            if not waiting:
                return
            process, file, job = waiting.popleft()
            process.join()
            if process.exitcode != 0:
                raise TarkitError(f"{job}: the process that worked on it was ended (status {process.exitcode})")
            yield _results(file)
    finally:
        for process, _, _ in waiting:
            process.terminate()
        for process, _, _ in waiting:
            process.join()


def _run(work: Callable[[Job], Iterator[Item]], job: Job, fd: int) -> None:
    """What a process does."""
    try:
        with os.fdopen(os.dup(fd), "wb", _BUFFER) as file:
            try:
                for item in work(job):
                    pickle.dump((item, None), file, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                pickle.dump((None, error), file, pickle.HIGHEST_PROTOCOL)
    except (KeyboardInterrupt, Interrupted) as error:
        raise SystemExit(130) from error
    finally:
        end_commands()


def _results(file: Scratch) -> Iterator[Any]:
    os.lseek(file.fd, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file.fd), "rb", _BUFFER) as stream:
        while (pair := _load(stream)) is not None:
            item, error = pair
            if error is not None:
                raise error
            yield item


def _load(stream: IO[bytes]) -> tuple[Any, Exception | None] | None:
    try:
        pair: tuple[Any, Exception | None] = pickle.load(stream)
    except EOFError:
        return None
    return pair
