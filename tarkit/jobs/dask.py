"""Jobs and tasks on a cluster of Dask, which is reached by the address of its scheduler.

Dask decides which worker does what. When a worker is lost, Dask runs again what was on it, on another worker, and
gives up after `distributed.scheduler.allowed-failures` lost workers for one job. A job that fails is the engine's
business, as on one machine.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError, Usage, printable, show, spell
from tarkit.jobs.dask_worker import (
    DRAIN,
    PYTHON_VERSION,
    TARKIT_VERSION,
    WorkerMismatch,
    mismatch,
    no_directory,
    other_python,
    pickled,
    run_on_worker,
    wait_for_end,
)
from tarkit.jobs.job import JobOutcome, PickledCall, Relay, ValueJob
from tarkit.pipeline.arguments import parse_processes
from tarkit.streams.command import DEVNULL
from tarkit.streams.process import Program
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
LOOK = (
    "(__import__('tarkit').__version__, '.'.join(__import__('platform').python_version_tuple()[:2]),"
    " __import__('os').path.isdir(directory))"
)

Resources = Mapping[str, float]
"""What a job takes of a worker, such as `{"GPU": 1}`."""


def parse_resources(words: Iterable[str]) -> dict[str, float]:
    """Return the resources in `GPU=1,memory=2e9`. Raises Usage for anything else."""
    found: dict[str, float] = {}
    for word in ",".join(words).split(",") if words else ():
        name, sign, number = word.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            sign = ""
        if not (sign and name.strip() and 0 < found[name.strip()] < float("inf")):
            raise Usage(f"{spell('dask_resources')} {show(word)}: expected NAME=NUMBER", "for example GPU=1")
    return found


def connect_cluster(address: Any, *, jobs: int = 0, warn: Callable[[str], None] = lambda text: None) -> Cluster:
    """Connect to a cluster.

    Args:
        address: of a scheduler, such as `tcp://host:8786`; `"local"` starts workers here; or a `distributed.Client`.
        jobs: how many workers are started here; 0 is one per CPU.
        warn: called with a text while there are no workers.

    Raises:
        TarkitError: no scheduler answers; a worker has no tarkit, or another version.
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
        return Cluster(address, str(address.scheduler_info(n_workers=1)["address"]), warn=warn).checked()
    if address == "local":
        return _start_here(parse_processes(jobs), warn)
    if not isinstance(address, str) or not address.strip():
        raise Usage(f"{spell('dask')} {address!r}: expected the address of a scheduler", "tcp://HOST:8786, or local")
    try:
        limit = dask.config.get("distributed.comm.timeouts.connect")
        client = Client(address, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        said = str(error) if not isinstance(error, OSError) else f"no scheduler answers within {limit}"
        hint = "dask scheduler prints its address, such as tcp://HOST:8786"
        raise TarkitError(f"{spell('dask')} {address}: {said}", hint) from error
    return Cluster(client, address, [], warn).checked()


def _start_here(workers: int, warn: Callable[[str], None]) -> Cluster:
    """Start a scheduler in this process, and workers as a program: they do not import the caller's script again."""
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=0, processes=True, dashboard_address=":0", silence_logs="CRITICAL")
    options = ("--nworkers", str(workers), "--nthreads", "1", "--no-dashboard", "--death-timeout", str(START))
    main = f"import sys; sys.path[:] = {sys.path!r}; from dask.__main__ import main; main()"
    words = (sys.executable, "-P", "-c", main, "worker", local.scheduler_address, *options)
    program = Program(words, stdout=DEVNULL, stderr=DEVNULL)
    cluster = Cluster(Client(local, set_as_default=False), "local", [program.end, local.close], warn)
    try:
        cluster.client.wait_for_workers(workers, timeout=START)
    except BaseException as error:
        cluster.close()
        if isinstance(error, TimeoutError):
            raise TarkitError(f"{spell('dask', 'local')}: the workers do not start within {START} s") from None
        raise
    return cluster.checked()


class Cluster:
    """A cluster that this process is connected to.

    Args:
        client: the client of Dask.
        address: for messages.
        owned: is called after the client has been closed; None: the client belongs to the caller.
        warn: called with a text while there are no workers.
    """

    def __init__(
        self,
        client: Any,
        address: str,
        owned: Sequence[Callable[[], object]] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.client = client
        self.address = address
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

    def checked(self) -> Cluster:
        """Return this cluster if all workers that it has now have this version of tarkit; else close it and raise."""
        try:
            self.check()
        except BaseException:
            self.close()
            raise
        return self

    def check(self, directory: str | None = None, calls: bool = False) -> None:
        """Raise WorkerMismatch if a worker, of those that there are now, cannot do the work.

        Args:
            directory: each must have this directory.
            calls: whether they are sent functions of the caller, which other versions of Python cannot read.
        """
        with self.explaining_loss():
            looks = self.client.run(eval, LOOK, {"directory": directory or "/"}, on_error="return")
        for address, found in looks.items():
            place = f"the worker {address}"
            if isinstance(found, ImportError):
                raise WorkerMismatch(f"{place} has no tarkit: {found}", f"there: pip install tarkit=={TARKIT_VERSION}")
            if isinstance(found, Exception):
                continue  # it is gone
            if found[0] != TARKIT_VERSION:
                raise WorkerMismatch(*mismatch(place, found[0], TARKIT_VERSION))
            if calls and found[1] != PYTHON_VERSION:
                raise WorkerMismatch(*other_python(place, found[1], PYTHON_VERSION))
            if not found[2]:
                raise WorkerMismatch(*no_directory(place, directory or "/"))

    def slots(self, resources: Resources | None = None) -> int:
        """Return how many jobs the workers that there are now do at a time.

        Raises:
            Usage: there are workers, but none has the resources.
        """
        with self.explaining_loss():
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        needed = dict(resources or {})
        total = 0
        for each in workers:
            offers = each.get("resources") or {}
            total += int(min([each["nthreads"], *(offers.get(name, 0) // need for name, need in needed.items())]))
        if workers and not total and needed:
            wanted = ",".join(f"{name}={need:g}" for name, need in needed.items())
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

    def submit(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        key: str,
        resources: Resources | None = None,
        calls: bool = False,
    ) -> Any:
        """Submit one call of a function of tarkit, and return its future.

        Args:
            function: the function.
            arguments: its arguments.
            key: the name of the task.
            resources: what it takes of a worker.
            calls: whether a function of the caller is in the arguments.
        """
        given = {"data": pickled(pickle.dumps((function, tuple(arguments))), calls)}
        with self.explaining_loss():
            return self.client.submit(eval, RUN, given, key=key, pure=False, resources=dict(resources or {}) or None)

    def run_tasks(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        retries: int = 0,
        resources: Resources | None = None,
    ) -> Iterator[Any]:
        """Call a function for each item, on the workers, and yield the results in the order of the items.

        A task runs in a thread of a worker, in the directory of the worker: paths in items are absolute. One that runs
        is not ended when this process ends. Only a few tasks for each thread are submitted at a time, and what is done
        is released.

        Args:
            function: a function at the top of a module that the workers have, or another that cloudpickle takes.
            items: are taken when there is room.
            retries: how often a task that raised is tried again; lost workers do not count.
            resources: what a task takes of a worker.

        Raises:
            TarkitError: a task raised; an error that is no TarkitError is told with the item.
        """
        run, numbers, todo = uuid.uuid4().hex, count(), iter(items)
        pending: deque[tuple[Any, Any]] = deque()  # items and their futures
        looked, room = -REFRESH, 0
        settings = {"retries": retries, "resources": dict(resources or {}) or None}
        packed = _packed(function)
        try:
            while True:
                if time.monotonic() - looked >= REFRESH:
                    looked, room = time.monotonic(), WINDOW * (self.slots(resources) or FEWEST)
                if 2 * len(pending) <= room and (batch := list(islice(todo, room - len(pending)))):
                    keys = [f"tarkit-task-{run}-{next(numbers)}" for _ in batch]
                    data = [{"data": pickled(pickle.dumps((_call, (packed, item))))} for item in batch]
                    with self.explaining_loss():
                        futures = self.client.map(eval, [RUN] * len(batch), data, key=keys, pure=False, **settings)
                    pending.extend(zip(batch, futures, strict=True))
                if not pending:
                    return
                try:
                    pending[0][1].exception(timeout=REFRESH)  # or None, once it is over
                except TimeoutError:
                    continue
                yield from self._results(pending)
        finally:
            if pending and self.client.status == "running":
                self.client.cancel([future for _, future in pending])

    def _results(self, pending: deque[tuple[Any, Any]]) -> list[Any]:
        """Take the first tasks, which are done, and return their results."""
        ready = [pending.popleft()]
        while pending and pending[0][1].status == "finished":
            ready.append(pending.popleft())
        items = {future.key: item for item, future in ready}
        return self.gather([future for _, future in ready], lambda future: self._result(items[future.key], future))

    def gather(self, futures: Sequence[Any], single: Callable[[Any], Any]) -> list[Any]:
        """Return the results of futures that are done, together; if one has none, that of each future by `single`."""
        if futures and all(future.status == "finished" for future in futures):
            try:
                found: list[Any] = self.client.gather(futures)
                return found
            except Exception:
                pass  # a worker was lost together with a result
        return [single(future) for future in futures]

    def _result(self, item: Any, future: Any) -> Any:
        from distributed import CancelledError

        try:
            return future.result()
        except (TarkitError, CancelledError) as error:
            if isinstance(error, TarkitError):
                error.add_note(f"item: {item}")
                raise
            raise self.lost() from error
        except Exception as error:
            raise self.explained(error) or TarkitError(f"{item}: {type(error).__name__}: {error}") from error

    def lost(self) -> TarkitError:
        """Return the error for a connection that was lost."""
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
            raise self.lost() from error

    def explained(self, error: BaseException) -> TarkitError | None:
        """Return what a failure of Dask itself means, for the user; None if it is that of a function."""
        if isinstance(error, WorkerMismatch):
            return error
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "tarkit":
            try:
                self.check()
            except TarkitError as found:
                return found
            hint = f"there: pip install tarkit=={TARKIT_VERSION}"
            return TarkitError(f"a worker of {self.address} has no tarkit", hint)
        return None


def _packed(function: Callable[..., Any]) -> bytes:
    """Pickle a function. Raises TarkitError if it cannot be pickled."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise TarkitError(f"the function cannot be sent to workers: {error}") from error
    return data


def _call(function: bytes, item: Any) -> Any:
    return pickle.loads(function)(item)


class _Submitted(NamedTuple):
    future: Any
    job: ValueJob
    attempt: int


class DaskExecutor:
    """Runs jobs as futures on a cluster.

    Args:
        cluster: the cluster.
        jobs: how many are submitted at a time; 0 is two for each thread of the workers.
        timeout: seconds after which a job is ended.
        resources: what a job takes of a worker.
        relay: called with each line that a job has written to stderr, when it has ended.
        tmpdir: directory of temporary files here.

    Raises:
        Usage: no worker has the resources.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        jobs: int = 0,
        timeout: float | None = None,
        resources: Resources | None = None,
        relay: Relay | None = None,
        tmpdir: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._jobs = 0 if cluster.address == "local" else jobs  # there are as many workers
        self._timeout = timeout
        self._resources = resources
        self._relay = relay or (lambda job, line: None)
        self._tmpdir = tmpdir
        self._run = uuid.uuid4().hex
        self._directory = os.getcwd()
        self._futures: dict[Any, _Submitted] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._checked: set[bool] = set()
        self._numbers = count()
        try:
            self._look()
        except BaseException:
            cluster.close()
            raise

    def _look(self) -> None:
        """Look how many workers there are."""
        self._looked = time.monotonic()
        threads = self._cluster.slots(self._resources)
        self.slots = self._jobs or AHEAD * (threads or FEWEST)

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Submit a job. A call is pickled."""
        calls = job.call is not None
        if calls not in self._checked:
            self._cluster.check(self._directory, calls)
            self._checked.add(calls)
        sent = replace(job, reads=None, call=None if job.call is None else PickledCall(_packed(job.call)))
        key = f"tarkit-job-{self._run}-{next(self._numbers)}"
        arguments = (self._run, sent, self._timeout, attempt, self._directory)
        future = self._cluster.submit(run_on_worker, arguments, key, self._resources, calls)
        self._futures[future.key] = _Submitted(future, job, attempt)
        future.add_done_callback(self._done.put)

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        """Return the jobs that have ended, and how; wait up to `seconds` while there are none."""
        if time.monotonic() - self._looked >= REFRESH:
            self._look()
        futures = []
        try:
            futures.append(self._done.get(timeout=seconds))
            while True:
                futures.append(self._done.get_nowait())
        except queue.Empty:
            pass
        known = [future for future in futures if future.key in self._futures]
        results = self._cluster.gather(known, _returned_or_raised)
        return [self._ended(future, result) for future, result in zip(known, results, strict=True)]

    def _ended(self, future: Any, result: Any) -> tuple[ValueJob, JobOutcome]:
        from distributed import CancelledError

        _, job, attempt = self._futures.pop(future.key)
        future.release()
        if isinstance(result, CancelledError):
            raise self._cluster.lost()
        if isinstance(result, Exception):
            if error := self._cluster.explained(result):
                raise error from result
            tail = _tail(result)
            self._relay(job, tail.encode("utf-8", "backslashreplace"))
            return job, JobOutcome(1, attempt=attempt, host="", tail=tail)
        outcome, said = result
        for line in said:
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
            client.cancel([each.future for each in futures.values()])
            client.sync(client._run, wait_for_end, self._run, on_error="ignore", callback_timeout=DRAIN)
        except (OSError, RuntimeError):  # a timeout is an OSError
            pass
        while not self._done.empty():
            self._done.get_nowait()

    def close(self) -> None:
        """End all jobs that run, and the connection."""
        self.cancel()
        self._cluster.close()


def _returned_or_raised(future: Any) -> Any:
    """Return what a job has returned, or raised."""
    try:
        return future.result()
    except Exception as error:
        return error
    except BaseException as error:
        if type(error).__name__ == "CancelledError":  # of concurrent.futures, or of asyncio
            return error
        raise


def _tail(error: Exception) -> str:
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        lost = error.allowed_failures + 1
        which = "the worker that had it was" if lost == 1 else f"{lost} workers that had it, one after the other, were"
        return f"tarkit: {which} lost"
    return printable(f"tarkit: {type(error).__name__}: {error}")
