"""Work on a worker of Dask: jobs as processes of their own, and tasks in a thread of the worker.

Dask does not end a function that runs. So a job looks several times a second whether its result is still wanted: the
client may have cancelled it or be gone, and the worker may be closing. If not, its processes are ended. When the
worker itself is killed, a guard ends them.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import sys
import threading
import time
from collections import Counter, deque
from typing import Any

from tarkit.errors import TarkitError
from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import JobOutcome, ValueJob
from tarkit.jobs.local import LocalExecutor
from tarkit.streams.tempfile import TemporaryFile

STDOUT_LIMIT = 1 << 26  # bytes of a job's stdout that are sent to the client
SAID = 1 << 20  # bytes of a job's stderr that are sent to the client
PULSE = 0.1  # seconds between two looks whether a job is still wanted
DRAIN = 5.0  # seconds that jobs have to end
PYTHON_VERSION = ".".join(platform.python_version_tuple()[:2])
TARKIT_VERSION = str(sys.modules["tarkit"].__version__)


class WorkerMismatch(TarkitError):
    """A worker cannot do the work: its tarkit is of another version, or it lacks a directory."""


class _Unwanted(Exception):
    """The client has cancelled the job."""


_running: Counter[str] = Counter()  # jobs of each run on this worker
_lock = threading.Lock()
_guards: list[ProcessGuard] = []


def run_pickled(data: bytes) -> Any:
    """Call a function; `data` is what `pickled` returned at the client.

    Raises:
        WorkerMismatch: tarkit is of another version here; or Python, if that matters. The task is not unpickled then.
    """
    version, python, task = pickle.loads(data)
    if version != TARKIT_VERSION:
        message = f"{_place()} has tarkit {TARKIT_VERSION}, and this is {version}"
        raise WorkerMismatch(message, f"there: pip install tarkit=={version}")
    if python not in (None, PYTHON_VERSION):
        message = f"{_place()} has Python {PYTHON_VERSION}, and this is {python}: it cannot read the function"
        raise WorkerMismatch(message, "the same Python there and here, or command lines in place of a function")
    function, arguments = pickle.loads(task)
    return function(*arguments)


def pickled(task: bytes, calls: bool = False) -> bytes:
    """Return the argument of `run_pickled`: a task, and the versions that it needs.

    Args:
        task: a function and the tuple of its arguments, pickled together.
        calls: whether there are functions of the caller in it, which another version of Python cannot read.
    """
    return pickle.dumps((TARKIT_VERSION, PYTHON_VERSION if calls else None, task))


def _place() -> str:
    from distributed import get_worker

    return f"the worker {get_worker().address} on {os.uname().nodename}"


def run_on_worker(
    run: str, job: ValueJob, timeout: float | None, attempt: int, directory: str
) -> tuple[JobOutcome, list[bytes]]:
    """Run a job as processes of this machine; return how it ended, and the lines that it wrote to stderr.

    Args:
        run: which run of jobs it belongs to.
        timeout: seconds after which it is ended.

    Raises:
        WorkerMismatch: there is no such directory here.
    """
    from distributed import get_worker

    if not os.path.isdir(directory):
        raise WorkerMismatch(
            f"{_place()} has no directory {directory}, where the jobs work",
            "share it, or start in a directory that all have: cd / if jobs read and write URLs alone",
        )
    worker = get_worker()
    key = worker.get_current_task()
    stderr = _JobStderr()
    place = {"tmpdir": worker.local_directory, "directory": directory}
    executor = LocalExecutor(1, timeout=timeout, relay=stderr.take, **place, guard=_guard())
    with _lock:
        _running[run] += 1
    try:
        executor.submit(job, attempt)
        while not (ended := executor.wait(PULSE)):
            task = worker.state.tasks.get(key)
            if task is None or task.state != "executing" or worker.status.name in ("closing", "closed", "failed"):
                raise _Unwanted(f"the job of {job.value.text} was cancelled")
    finally:
        executor.close()
        with _lock:
            _running[run] -= 1
            if not _running[run]:
                del _running[run]
    [(_, outcome)] = ended
    _read_output(job, outcome, stderr)
    return outcome, stderr.lines()


def _read_output(job: ValueJob, outcome: JobOutcome, stderr: _JobStderr) -> None:
    """Read the output of a job, to be sent; fail if it is too large."""
    if isinstance(outcome.output, TemporaryFile):
        outcome.output = outcome.output.read(0, STDOUT_LIMIT + 1)
        if len(outcome.output) > STDOUT_LIMIT:
            outcome.status, outcome.output = 1, None
            outcome.tail = f"tarkit: the job wrote more than {STDOUT_LIMIT >> 20} MiB to stdout: let it write a file"
            stderr.take(job, outcome.tail.encode())


def _guard() -> ProcessGuard:
    with _lock:
        if not _guards:
            _guards.append(ProcessGuard())
        return _guards[0]


async def wait_for_end(run: str) -> None:
    """Wait until no job of a run, which has been cancelled, runs on this worker; a few seconds at most."""
    limit = time.monotonic() + DRAIN
    while _running[run] and time.monotonic() < limit:
        await asyncio.sleep(0.02)


class _JobStderr:
    """The lines that a job writes to stderr: the first and the last ones, if there are too many."""

    def __init__(self) -> None:
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._sizes = [0, 0]
        self._omitted = 0

    def take(self, job: ValueJob, line: bytes) -> None:
        second = bool(self._last) or self._sizes[0] + len(line) >= SAID // 2
        (self._last if second else self._first).append(line)
        self._sizes[second] += len(line) + 1
        while self._sizes[1] > SAID // 2:
            self._sizes[1] -= len(self._last.popleft()) + 1
            self._omitted += 1

    def lines(self) -> list[bytes]:
        middle = [b"... %d lines are left out ..." % self._omitted] if self._omitted else []
        return [*self._first, *middle, *self._last]
