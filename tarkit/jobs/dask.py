"""Jobs and tasks on a cluster of Dask, which is reached by the address of its scheduler.

Dask assigns jobs to workers. When a worker is lost, Dask runs its jobs again, on another worker, and
gives up after `distributed.scheduler.allowed-failures` lost workers for one job. A job that fails is the engine's
business, as on one machine.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any

from tarkit import errors
from tarkit.arguments import parse_processes
from tarkit.errors import MissingLibrary, TarkitError, Usage, printable, spell
from tarkit.jobs.calls import PickledCall
from tarkit.jobs.dask_worker import (
    DRAIN,
    TARKIT_VERSION,
    WorkerMismatch,
    pickled,
    run_on_worker,
    wait_for_end,
)
from tarkit.jobs.job import JobExecutor, JobOutcome, Relay, ValueJob
from tarkit.streams.command import DEVNULL, Program
from tarkit.streams.location import Location
from tarkit.streams.tempfile import TemporaryFile

REFRESH = 2.0  # seconds between two looks at the workers
AHEAD = 2  # jobs for each thread of a worker, so that one waits while one runs
FEWEST = 8  # threads that are expected while there are no workers, so that a cluster that adapts sees work
START = 60  # seconds until workers that are started here are there
ALONE = 10.0  # seconds without workers until a warning
SMALL = 4096  # bytes of stdout that are kept in memory
WINDOW = 16  # tasks for each thread that are submitted, or done before their turn

# Text in place of a function of tarkit: a worker without tarkit would end when it is sent one, and the scheduler need
# not have tarkit.
RUN = "__import__('importlib').import_module('tarkit.jobs.dask_worker').run_pickled(data)"
Resources = Mapping[str, float]
"""What a job takes of a worker, such as `{"GPU": 1}`."""


def connect_cluster(
    address: Any,
    resources: Resources | None = None,
    *,
    jobs: int = 0,
    warn: Callable[[str], None] = lambda text: None,
) -> Cluster:
    """Connect to a cluster.

    Args:
        address: of a scheduler, such as `tcp://host:8786`; `"local"` starts workers here; or a `distributed.Client`.
        resources: the resources that a job takes of a worker.
        jobs: how many workers are started here; 0 is one per CPU.
        warn: called with a text while there are no workers.

    Raises:
        TarkitError: no scheduler answers.
    """
    try:
        import dask.config
        from distributed import Client
    except ImportError as error:
        if error.name not in ("distributed", "dask"):
            raise
        raise MissingLibrary(spell("dask"), "distributed", "dask") from None
    if isinstance(address, Client):
        if address.asynchronous:
            raise Usage("dask=Client(asynchronous=True): expected a client that is not asynchronous")
        return Cluster(address, str(address.scheduler_info(n_workers=1)["address"]), resources, warn=warn)
    if address == "local":
        return _start_here(parse_processes(jobs), resources, warn)
    if not isinstance(address, str) or not address.strip():
        raise Usage(f"{spell('dask')} {address!r}: expected the address of a scheduler", "tcp://HOST:8786, or local")
    try:
        limit = dask.config.get("distributed.comm.timeouts.connect")
        client = Client(address, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = str(error) if not isinstance(error, OSError) else f"no scheduler answers within {limit}"
        hint = "dask scheduler prints its address, such as tcp://HOST:8786"
        raise TarkitError(f"{spell('dask')} {address}: {reason}", hint) from error
    return Cluster(client, address, resources, [], warn)


def _start_here(workers: int, resources: Resources | None, warn: Callable[[str], None]) -> Cluster:
    """Start a scheduler in this process, and workers as a program: they do not import the caller's script again."""
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=0, processes=True, dashboard_address=":0", silence_logs="CRITICAL")
    options = ("--nworkers", str(workers), "--nthreads", "1", "--no-dashboard", "--death-timeout", str(START))
    main = f"import sys; sys.path[:] = {sys.path!r}; from dask.__main__ import main; main()"
    words = (sys.executable, "-P", "-c", main, "worker", local.scheduler_address, *options)
    program = Program(words, stdout=DEVNULL, stderr=DEVNULL)
    client = Client(local, set_as_default=False)
    cluster = Cluster(client, "local", resources, [program.end, local.close], warn)
    try:
        cluster.client.wait_for_workers(workers, timeout=START)
    except BaseException as error:
        cluster.close()
        if isinstance(error, TimeoutError):
            raise TarkitError(f"{spell('dask', 'local')}: the workers do not start within {START} s") from None
        raise
    return cluster


class Cluster:
    """A cluster that this process is connected to.

    Args:
        address: for messages.
        resources: the resources that a job takes of a worker.
        owned: is called after the client has been closed; None: the client belongs to the caller.
        warn: called with a text while there are no workers.
    """

    def __init__(
        self,
        client: Any,
        address: str,
        resources: Resources | None = None,
        owned: Sequence[Callable[[], object]] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.client = client
        self.address = address
        self.resources = dict(resources or {})
        self._owned = owned
        self._warn = warn
        self._alone: float | None = None  # since when there are no workers

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless the caller made it, and the workers that were started here."""
        if self._owned is not None:
            self.client.close()
            for end in self._owned:
                end()

    def slots(self) -> int:
        """Return how many jobs the workers that there are now do at a time.

        Raises:
            Usage: there are workers, but none has the resources.
        """
        with self.explaining_loss():
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        total = 0
        for worker in workers:
            offers = worker.get("resources") or {}
            shares = (offers.get(name, 0) // need for name, need in self.resources.items())
            total += int(min([worker["nthreads"], *shares]))
        if workers and not total and self.resources:
            wanted = ",".join(f"{name}={need:g}" for name, need in self.resources.items())
            raise Usage(
                f"{spell('dask_resources')} {wanted}: no worker of {self.address} has this",
                f"workers are started with what they have: dask worker ADDRESS --resources {wanted}",
            )
        self._note(len(workers))
        return total

    def _note(self, workers: int) -> None:
        """Warn, once, if there have been no workers for a while."""
        now = time.monotonic()
        if workers:
            self._alone = None
        elif self._alone is None:
            self._alone = now
        elif now - self._alone >= ALONE:
            self._alone = float("inf")
            self._warn(f"{self.address} has no workers: the work waits for them")

    def submit(self, tasks: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]], keys: list[str], calls: bool) -> Any:
        """Submit calls of functions of tarkit, and return their futures.

        Args:
            tasks: functions and their arguments.
            keys: names of the tasks.
            calls: whether functions of the caller are in the arguments.
        """
        data = [{"data": pickled(pickle.dumps(task), calls)} for task in tasks]
        with self.explaining_loss():
            return self.client.map(
                eval, [RUN] * len(data), data, key=keys, pure=False, resources=self.resources or None
            )

    def in_order(self, work: Callable[[Any], Iterator[Any]], jobs: Iterable[Any], /) -> Iterator[Iterator[Any]]:
        """Yield an iterator over the results of `work` for each job, in order; see `parallel.OrderedExecutor`.

        A job runs in a thread of a worker, in the directory of the worker: its paths are absolute. One that runs is not
        ended when this process ends. Only a few jobs for each thread are submitted at a time, and what is done is
        released.

        Args:
            work: a function at the top of a module that the workers have, or another that cloudpickle takes.
            jobs: are taken when there is room.

        Raises:
            TarkitError: a job raised another error than TarkitError and OSError; the message names the job.
        """
        run_id, numbers, todo = uuid.uuid4().hex, count(), iter(jobs)
        pending: deque[tuple[str, Any]] = deque()  # names of jobs and their futures
        looked, room = -REFRESH, 0
        packed = _packed(partial(_do_job, work, errors.command_line))
        try:
            while True:
                if time.monotonic() - looked >= REFRESH:
                    looked, room = time.monotonic(), WINDOW * (self.slots() or FEWEST)
                if 2 * len(pending) <= room and (batch := list(islice(todo, room - len(pending)))):
                    keys = [f"tarkit-task-{run_id}-{next(numbers)}" for _ in batch]
                    futures = self.submit([(_call, (packed, job)) for job in batch], keys, calls=False)
                    pending.extend(zip(map(_name_of, batch), futures, strict=True))
                if not pending:
                    return
                try:
                    pending[0][1].exception(timeout=REFRESH)  # or None, once it is over
                except TimeoutError:
                    continue
                yield from map(_until_error, self._results(pending))
        finally:
            if pending and self.client.status == "running":
                self.client.cancel([future for _, future in pending])

    def _results(self, pending: deque[tuple[str, Any]]) -> list[Any]:
        ready = [pending.popleft()]
        while pending and pending[0][1].status == "finished":
            ready.append(pending.popleft())
        if ready[0][1].status == "finished":
            with suppress(Exception):  # a worker was lost together with a result
                results: list[Any] = self.client.gather([future for _, future in ready])
                return results
        return [self._result(name, future) for name, future in ready]

    def _result(self, name: str, future: Any) -> Any:
        try:
            return future.result()
        except (Exception, asyncio.CancelledError) as error:
            raise self.explained(error) or TarkitError(f"{name}: {type(error).__name__}: {error}") from error

    def _lost(self) -> TarkitError:
        return TarkitError(f"{spell('dask')} {self.address}: the connection to the scheduler was lost")

    @contextmanager
    def explaining_loss(self) -> Iterator[None]:
        """Raise the error for a connection that was lost, in place of those that Dask then raises."""
        try:
            yield
        except TarkitError:
            raise
        except Exception as error:
            if self.client.status == "running":
                raise
            raise self._lost() from error

    def explained(self, error: BaseException) -> TarkitError | None:
        """Return the error for the user of a failure of Dask itself; None if a function failed."""
        from distributed import CancelledError

        if isinstance(error, (CancelledError, asyncio.CancelledError)):
            return self._lost()
        if isinstance(error, WorkerMismatch):
            return error
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "tarkit":
            hint = f"there: pip install tarkit=={TARKIT_VERSION}"
            return TarkitError(f"a worker of {self.address} has no tarkit: {error}", hint)
        return None


def _packed(function: Callable[..., Any]) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise TarkitError(f"the function cannot be sent to workers: {error}") from error
    return data


def _call(function: bytes, job: Any) -> Any:
    return pickle.loads(function)(job)


def _name_of(job: Any) -> str:
    """Return the name of a job for messages: that of its input, without secrets."""
    parts = (job,) if isinstance(job, Location) or not isinstance(job, tuple) else job
    return next((part.name for part in parts if isinstance(part, Location)), str(job))


def _do_job(
    work: Callable[[Any], Iterator[Any]], command_line: Mapping[str, str] | None, job: Any
) -> tuple[list[Any], TarkitError | OSError | None]:
    errors.command_line = command_line
    results: list[Any] = []
    try:
        results.extend(work(job))
    except (TarkitError, OSError) as error:
        return results, error
    return results, None


def _until_error(outcome: tuple[list[Any], TarkitError | OSError | None]) -> Iterator[Any]:
    results, error = outcome
    yield from results
    if error is not None:
        raise error


class DaskExecutor(JobExecutor):
    """Runs jobs as futures on a cluster.

    Args:
        jobs: how many are submitted at a time; 0 is two for each thread of the workers.
        timeout: seconds after which a job is ended.
        relay: called with each line that a job has written to stderr, when it has ended.
        tmpdir: directory of temporary files here.

    Raises:
        Usage: no worker has the resources.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        jobs: int,
        timeout: float | None = None,
        relay: Relay,
        tmpdir: str | None,
    ) -> None:
        self._cluster = cluster
        self._jobs = 0 if cluster.address == "local" else jobs  # there are as many workers
        self._timeout = timeout
        self._relay = relay
        self._tmpdir = tmpdir
        self._run_id = uuid.uuid4().hex
        self._directory = os.getcwd()
        self._futures: dict[Any, tuple[Any, ValueJob, int]] = {}  # futures, jobs and attempts
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._numbers = count()
        try:
            self._look()
        except BaseException:
            cluster.close()
            raise

    def _look(self) -> None:
        self._looked = time.monotonic()
        threads = self._cluster.slots()
        self.slots = self._jobs or AHEAD * (threads or FEWEST)

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Submit a job. A call is pickled."""
        sent = replace(job, reads=dict, call=None if job.call is None else PickledCall(_packed(job.call)))
        key = f"tarkit-job-{self._run_id}-{next(self._numbers)}"
        arguments = (self._run_id, sent, self._timeout, attempt, self._directory)
        [future] = self._cluster.submit([(run_on_worker, arguments)], [key], job.call is not None)
        self._futures[future.key] = future, job, attempt
        future.add_done_callback(self._done.put)

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        if time.monotonic() - self._looked >= REFRESH:
            self._look()
        futures = []
        with suppress(queue.Empty):
            futures.append(self._done.get(timeout=seconds))
            while True:
                futures.append(self._done.get_nowait())
        return [self._ended(future) for future in futures if future.key in self._futures]

    def _ended(self, future: Any) -> tuple[ValueJob, JobOutcome]:
        _, job, attempt = self._futures.pop(future.key)
        try:
            outcome, stderr = future.result()
        except (Exception, asyncio.CancelledError) as error:
            if explained := self._cluster.explained(error):
                raise explained from error
            tail = _tail(error)
            outcome, stderr = JobOutcome(1, attempt=attempt, host="", tail=tail), tail.encode().splitlines()
        future.release()
        for line in stderr:
            self._relay(job, line)
        if isinstance(outcome.output, bytes) and len(outcome.output) > SMALL:
            file = TemporaryFile(self._tmpdir)
            file.write(outcome.output)
            outcome.output = file
        return job, outcome

    def cancel(self) -> None:
        """Cancel all jobs, and wait a few seconds until their processes have ended."""
        futures, self._futures = self._futures, {}
        client = self._cluster.client
        if not futures or client.status != "running":
            return
        try:
            client.cancel([future for future, _, _ in futures.values()])
            client.sync(client._run, wait_for_end, self._run_id, on_error="ignore", callback_timeout=DRAIN)
        except (OSError, RuntimeError):  # a timeout is an OSError
            pass
        while not self._done.empty():
            self._done.get_nowait()

    def close(self) -> None:
        self.cancel()
        self._cluster.close()


def _tail(error: BaseException) -> str:
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        lost = error.allowed_failures + 1
        workers = (
            "the worker that had it was" if lost == 1 else f"{lost} workers that had it, one after the other, were"
        )
        return f"tarkit: {workers} lost"
    return printable(f"tarkit: {type(error).__name__}: {error}")
