"""The executors that run jobs on this machine: command lines as processes, calls in copies of this process."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tarkit.errors import TarkitError
from tarkit.jobs.calls import call_here
from tarkit.jobs.engine import JobExecutor
from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import TAIL, JobOutcome, Relay, ValueJob
from tarkit.jobs.process import run_job
from tarkit.jobs.strays import VARIABLE, end_strays, find_strays, new_mark, take_environment
from tarkit.parallel import PATIENCE, ForkedWorker, may_fork, start_worker, stop_workers, wait_for_workers
from tarkit.streams.command import send
from tarkit.streams.tempfile import TemporaryFile


class _Cancelled(Exception):
    """The job is not wanted any more."""


class LocalExecutor(JobExecutor):
    """Runs command lines of jobs, several at a time: a thread waits for the processes of each.

    Args:
        slots: how many run at a time.
        timeout: seconds after which a job is ended.
        relay: called with each line that a job writes to stderr.
        tmpdir: directory of temporary files.
    """

    def __init__(self, slots: int, *, timeout: float | None, relay: Relay, tmpdir: str | None) -> None:
        self.slots = slots
        self._run = partial(run_job, timeout=timeout, relay=self._relay_line, tmpdir=tmpdir, watch=self._watch)
        self._relay = relay
        self._lock = threading.Lock()  # so that lines of two jobs are not mixed
        self._guard = ProcessGuard()
        self._pool = ThreadPoolExecutor(slots)
        self._jobs: dict[Future[JobOutcome], ValueJob] = {}
        self._ended: queue.SimpleQueue[Future[JobOutcome]] = queue.SimpleQueue()
        self._cancelled = False

    def submit(self, job: ValueJob, attempt: int) -> None:
        future = self._pool.submit(self._work, job, attempt)
        self._jobs[future] = job
        future.add_done_callback(self._ended.put)

    def _work(self, job: ValueJob, attempt: int) -> JobOutcome:
        pids: list[int] = []

        def began(pid: int) -> None:
            pids.append(pid)
            self._guard.began(pid)

        try:
            return self._run(job, attempt=attempt, began=began)
        finally:
            self._guard.ended(pids)

    def _relay_line(self, job: ValueJob, line: bytes) -> None:
        with self._lock:
            self._relay(job, line)

    def _watch(self) -> None:
        if self._cancelled:
            raise _Cancelled

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        ended = []
        with suppress(queue.Empty):
            ended.append(self._ended.get(timeout=seconds))
            while True:
                ended.append(self._ended.get_nowait())
        return [(self._jobs.pop(future), future.result()) for future in ended]

    def cancel(self) -> None:
        """End all jobs that run. No other job can be submitted."""
        self._cancelled = True
        self._pool.shutdown(cancel_futures=True)
        self._jobs.clear()

    def close(self) -> None:
        self.cancel()
        self._guard.close()


class _CallTask(NamedTuple):
    job: ValueJob
    attempt: int
    stderr: TemporaryFile
    mark: bytes


class CallExecutor(JobExecutor):
    """Calls the functions of jobs in copies of this process, or in it while it has other threads.

    What a copy writes to stderr is passed on when it has ended.

    Args:
        slots: how many run at a time.
        relay: called with each line that a job writes to stderr; for a call in this process those about its error.
        tmpdir: directory of temporary files.
    """

    def __init__(self, slots: int, *, relay: Relay, tmpdir: str | None) -> None:
        self.slots = slots
        self._relay = relay
        self._tmpdir = tmpdir
        self._workers: list[ForkedWorker[_CallTask]] = []
        self._ended: list[tuple[ValueJob, JobOutcome]] = []

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Begin a call; one in this process is done when this function returns."""
        if may_fork():
            task = _CallTask(job, attempt, TemporaryFile(self._tmpdir), new_mark())
            start_worker(_call_apart, [task], self._tmpdir, self._workers)
        else:
            self._ended.append((job, call_here(job, attempt, self._relay)))

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        if not self._ended:
            wait_for_workers(self._workers, seconds)
        for worker in [each for each in self._workers if each.ended]:
            self._workers.remove(worker)
            self._ended.append((worker.jobs[0].job, self._outcome(worker)))
        ended, self._ended = self._ended, []
        return ended

    def _outcome(self, worker: ForkedWorker[_CallTask]) -> JobOutcome:
        [task] = worker.jobs
        with open(os.dup(task.stderr.fd), "rb") as said:
            said.seek(0)
            for line in said:
                self._relay(task.job, line.removesuffix(b"\n"))
            said.seek(max(0, said.tell() - TAIL))
            tail = said.read().decode("utf-8", "backslashreplace").strip()
        try:
            outcomes: list[JobOutcome] = [outcome for results in worker.results() for outcome in results]
        except TarkitError:  # it was killed, or has ended itself
            return JobOutcome(worker.process.exitcode or 1, attempt=task.attempt, tail=tail)
        return outcomes[0]

    def cancel(self) -> None:
        """End all calls that run, and the processes that they started."""
        if workers := self._workers:
            marks = [worker.jobs[0].mark for worker in workers]
            strays = find_strays([worker.process.pid for worker in workers], marks)
            send(list(strays), signal.SIGTERM)
            self._workers = []
            stop_workers(workers, PATIENCE)
            end_strays(strays, marks, time.monotonic())

    close = cancel


def _call_apart(task: _CallTask) -> Iterator[JobOutcome]:
    take_environment({VARIABLE: task.mark})
    null = os.open(os.devnull, os.O_RDWR)
    for place, fd in enumerate((null, null, task.stderr.fd)):
        os.dup2(fd, place)
    yield call_here(task.job, task.attempt, _write_line)


def _write_line(job: ValueJob, line: bytes) -> None:
    os.write(2, line + b"\n")
