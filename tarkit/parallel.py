"""A pool of forked worker processes, with results in the order of the jobs.

Each worker is forked for a few jobs in a row and pickles its results to a temporary file without a name, which the
parent reads when the jobs before are done. So memory does not grow with the data, the output is the same for any
number of processes, and there is no lock or queue that a worker could hold when it is killed.

A process is forked only while it has no other thread, since a lock that a thread holds during the fork is never
released in the copy. Objects with threads (streams that are read ahead, long copies, commands) are therefore opened by
the workers. While other threads run, the parent does the work itself.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, MutableSequence, Sequence
from contextlib import closing
from itertools import islice
from typing import IO, Any, Generic, NamedTuple, Protocol, TypeVar

from tarkit.errors import Interrupted, TarkitError, signal_name, spell
from tarkit.signals import RAISING, catch_signals, ignore_signals
from tarkit.streams import command
from tarkit.streams.command import disown_commands, end_commands
from tarkit.streams.sink import discard_unfinished, unfinished
from tarkit.streams.tempfile import TemporaryFile
from tarkit.threads import has_threads

Job = TypeVar("Job")
Item = TypeVar("Item")

# ---- The worker: the work of the forked process, and the results that it writes for the parent

BUFFER = 1 << 16  # bytes
ROOM = 1 << 12  # bytes reserved in the file, enough to report a full disk


def run(
    work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: TemporaryFile, mask: set[int], parent: int
) -> None:
    """Do the jobs, in the worker. It ignores SIGINT, which the parent handles, and ends when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    catch_signals()
    gc.freeze()  # a collection would write to the parent's objects, and so copy their pages
    unfinished.clear()
    disown_commands()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _work(work, jobs, file, parent)
        finally:
            _clean_up()
            ignore_signals()
    except Interrupted as error:  # perhaps during the cleanup; it is raised only once
        _clean_up()
        signal.signal(error.signum, signal.SIG_DFL)
        os.kill(os.getpid(), error.signum)


def _clean_up() -> None:
    discard_unfinished()
    end_commands()


def _end_with_parent() -> None:
    """End the worker when its parent ends, even by SIGKILL."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _clean_up()
    os.kill(os.getpid(), signal.SIGKILL)  # without running any other thread


def _work(work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: TemporaryFile, parent: int) -> None:
    """Write pairs (whether it is an error, item or error) to the file, and None after each job.

    If the disk is full, that error alone is written.
    """
    try:
        with os.fdopen(os.dup(file.fd), "wb", BUFFER) as stream:
            for job in jobs:
                if os.getppid() != parent:
                    raise SystemExit(1)
                with closing(_marked(work, job)) as marked:  # after a signal too, so that work is given up in order
                    for failed, item in marked:
                        pickle.dump((failed, item), stream, pickle.HIGHEST_PROTOCOL)
                        if failed:
                            return
                pickle.dump(None, stream)
    except OSError as error:
        error.filename = file.name
        os.ftruncate(file.fd, ROOM)
        os.pwrite(file.fd, pickle.dumps((True, error)), 0)


def _marked(work: Callable[[Job], Iterator[Item]], job: Job) -> Generator[tuple[bool, Item | Exception]]:
    """Yield the items of a job, and the error that ends it, if any; each with whether it is an error."""
    items = work(job)
    try:
        for item in items:
            yield False, item
    except GeneratorExit:
        if isinstance(items, Generator):
            items.close()
        raise
    except (TarkitError, OSError) as error:
        yield True, error


def results(stream: IO[bytes]) -> Iterator[Any]:
    """Yield the results of one job; raise its error."""
    while True:
        try:
            entry = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            raise TarkitError("a worker process exited before it had finished") from None
        if entry is None:
            return
        failed, item = entry
        if failed:
            raise item
        yield item


# ---- The parent

SHARES = 8  # workers forked one after the other for each process: fewer would leave CPUs idle at the end
AHEAD = 4  # finished workers whose results were not read yet, for each process

WAIT = 0.2  # seconds: a signal that arrives just before a wait is handled when the wait ends
AGAIN = 0.05  # seconds until SIGTERM is sent to a worker again
PATIENCE = 2 * command.PATIENCE  # seconds until SIGKILL: a worker may be ending commands of its own


class OrderedExecutor(Protocol):
    """An executor: does jobs, and yields their results in order, such as `jobs.dask.Cluster`."""

    def in_order(self, work: Callable[[Job], Iterator[Item]], jobs: Iterable[Job], /) -> Iterator[Iterator[Item]]:
        """Yield an iterator over the results of `work` for each job, in order; read each to its end before the next.

        The results can be pickled; for a cluster the function and the jobs as well. There a job may run twice, also
        twice at a time, when a worker was lost.

        Raises:
            Exception: a TarkitError or OSError that `work` raised, after the results that precede it.
        """


class ForkedWorker(NamedTuple, Generic[Job]):
    """A forked process that does some jobs and writes their results to a file."""

    process: Any
    file: TemporaryFile
    jobs: Sequence[Job]

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.exitcode is not None

    def results(self) -> Iterator[Iterator[Any]]:
        """Yield an iterator over the results of each job. Raises TarkitError if the worker did not do all of them."""
        self.process.join()  # closes its descriptors, which multiprocessing otherwise keeps until the next start
        if self.process.exitcode:
            raise _ended(self.process.exitcode)
        with os.fdopen(os.dup(self.file.fd), "rb", BUFFER) as stream:
            stream.seek(0)
            for _ in self.jobs:
                yield results(stream)


def in_order(
    jobs: Iterable[Job],
    work: Callable[[Job], Iterator[Item]],
    processes: int,
    tmpdir: str | None = None,
    *,
    share: int | None = None,
    pulse: Any = None,
    patience: float = PATIENCE,
) -> Generator[Iterator[Item]]:
    """Yield an iterator over the results of `work` for each job, in order; read each to its end before the next.

    Close the iterator to stop the workers early.

    Args:
        jobs: the jobs; with a `share` they are taken from the iterator as workers become free.
        work: yields the results of a job, which must be picklable.
        processes: the number of workers; 1 or less does the work in this process.
        tmpdir: directory for the results.
        share: jobs in a row for one worker; None counts the jobs and divides them evenly.
        pulse: if given, an iterator over this alone is yielded every 0.2 seconds while no result is ready.
        patience: seconds that a worker has to end after SIGTERM.

    Raises:
        TarkitError: a worker was killed.
        Exception: a TarkitError or OSError that `work` raised, after the results that precede it.
    """
    if share is None:
        jobs = list(jobs)
        processes = min(processes, len(jobs))
        share = max(1, len(jobs) // (SHARES * max(1, processes)))
    if processes <= 1:
        yield from map(work, jobs)
        return
    shares = _shares(jobs, share)
    workers: deque[ForkedWorker[Job]] = deque()
    try:
        while True:
            while (
                not has_threads()
                and len(workers) < AHEAD * processes
                and sum(not worker.ended for worker in workers) < processes
            ):
                if (share_jobs := next(shares, None)) is None:
                    break
                start_worker(work, share_jobs, tmpdir, workers)
            if not workers:
                if not (share_jobs := next(shares, ())):
                    return
                yield from map(work, share_jobs)
                continue
            alive = [worker for worker in workers if not worker.ended]
            if workers[0] in alive:  # decided once: it may end at any moment
                wait_for_workers(alive, WAIT)
                if pulse is not None:
                    yield iter((pulse,))
                continue
            for done in workers.popleft().results():
                yield _stopping(done, workers, patience)
    finally:
        stop_workers(workers, patience)


def _stopping(results: Iterator[Item], workers: Iterable[ForkedWorker[Job]], patience: float) -> Iterator[Item]:
    """Yield results; an error stops the workers before it is raised: the caller may keep `in_order` as it is."""
    try:
        yield from results
    except Exception:
        stop_workers(workers, patience)
        raise


def _shares(jobs: Iterable[Job], share: int) -> Iterator[tuple[Job, ...]]:
    remaining = iter(jobs)
    while share_jobs := tuple(islice(remaining, share)):
        yield share_jobs


def _ended(status: int) -> TarkitError:
    """Return the error for a worker that ended early; a negative status is a signal."""
    end = f"with status {status}" if status >= 0 else f"by {signal_name(-status)}"
    return TarkitError(f"a worker process was ended {end}", f"out of memory? {spell('processes', 1)} needs the least")


def start_worker(
    work: Callable[[Job], Iterator[Any]],
    jobs: Sequence[Job],
    tmpdir: str | None,
    workers: MutableSequence[ForkedWorker[Job]],
) -> None:
    """Fork a worker, and append it to `workers`."""
    import multiprocessing

    file = TemporaryFile(tmpdir)
    file.reserve(ROOM)
    # Signals are blocked until the worker is in `workers`: it could not be stopped before.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, RAISING)
    try:
        arguments = (work, jobs, file, before, os.getpid())
        process = multiprocessing.get_context("fork").Process(target=run, args=arguments, daemon=True)
        process.start()
        workers.append(ForkedWorker(process, file, jobs))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_for_workers(workers: Iterable[ForkedWorker[Any]], seconds: float) -> None:
    """Wait until one of the workers has ended, at most `seconds`."""
    from multiprocessing.connection import wait

    wait([worker.process.sentinel for worker in workers], seconds)


def stop_workers(workers: Iterable[ForkedWorker[Any]], patience: float) -> None:
    """Stop workers. SIGTERM is sent repeatedly, since the exception that it raises may be lost, such as in __del__."""
    limit = time.monotonic() + patience
    while (alive := [worker for worker in workers if not worker.ended]) and time.monotonic() < limit:
        for worker in alive:
            worker.process.terminate()
        wait_for_workers(alive, AGAIN)
    for worker in workers:
        worker.process.kill()
        worker.process.join()
