"""The executor that runs jobs on this machine; a worker of Dask has one for each of its jobs."""

from __future__ import annotations

import select
from functools import partial

from tarkit.jobs.calls import PickledCall, call_here
from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import JobExecutor, JobOutcome, Relay, RunWords, ValueJob
from tarkit.jobs.process import Copies, RunningJob, end_jobs, end_late
from tarkit.threads import has_threads


class LocalExecutor(JobExecutor):
    """Runs jobs, several at a time; one thread watches the processes of all.

    Args:
        slots: how many run at a time.
        timeout: seconds after which a job is ended.
        run: runs a command line of tarkit in a copy of this process, and returns its status.
        relay: called with each line that a job writes to stderr; for a call in this process those about its error.
        directory: the working directory of jobs; None is that of this process.
        guard: ends the jobs when this process is killed; by default one of its own.
    """

    def __init__(
        self,
        slots: int,
        *,
        timeout: float | None = None,
        run: RunWords | None = None,
        relay: Relay,
        tmpdir: str | None,
        directory: str | None = None,
        guard: ProcessGuard | None = None,
    ) -> None:
        self.slots = slots
        self._begin = partial(RunningJob, timeout=timeout, relay=relay, tmpdir=tmpdir, directory=directory)
        self._copies = Copies(run, self._descriptors)
        self._relay = relay
        self._poll = select.poll()
        self._guard = guard
        self._owns_guard = guard is None
        self._running: list[RunningJob] = []
        self._ended: list[tuple[ValueJob, JobOutcome]] = []

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Begin a job. A call in this process, which has other threads and cannot be copied, is done on return."""
        copies = None if has_threads() else self._copies
        if job.call is not None and copies is None and not isinstance(job.call, PickledCall):
            self._ended.append((job, call_here(job, attempt, self._relay)))
            return
        self._guard = self._guard or ProcessGuard()
        self._running.append(self._begin(job, self._poll, attempt, began=self._guard.began, copies=copies))

    def _descriptors(self) -> list[int]:
        assert self._guard is not None
        return [self._guard.fd, *(fd for running in self._running for fd in running.descriptors)]

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        if not self._ended and not any(running.has_ended() for running in self._running):
            self._poll.poll(1000 * min([seconds, *(running.patience(seconds) for running in self._running)]))
        end_late(self._running)
        for running in list(self._running):
            if (outcome := running.advance()) is not None:
                self._forget(running)
                self._ended.append((running.job, outcome))
        ended, self._ended = self._ended, []
        return ended

    def _forget(self, running: RunningJob) -> None:
        self._running.remove(running)
        if self._guard is not None:
            self._guard.ended([running.mark, *(program.pid for program in running.programs)])

    def cancel(self) -> None:
        end_jobs(self._running)
        for running in list(self._running):
            running.close()
            self._forget(running)

    def close(self) -> None:
        self.cancel()
        if self._guard is not None and self._owns_guard:
            self._guard.close()
