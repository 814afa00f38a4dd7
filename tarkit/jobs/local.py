"""The executor that runs jobs as processes on this machine."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import Any

from tarkit.jobs.copies import ProcessCopy, RunWords
from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import JobOutcome, Relay, RunningJob, ValueJob, run_job
from tarkit.threads import has_threads


class LocalExecutor:
    """Runs jobs as processes, several at a time; one thread watches all of them.

    Args:
        slots: how many run at a time.
        timeout: seconds after which a job is ended.
        run: runs a command line of tarkit in a copy of this process; without it, it is a new process.
        relay: called with each line that a job writes to stderr.
        tmpdir: directory of temporary files.
    """

    def __init__(
        self,
        slots: int,
        *,
        timeout: float | None = None,
        run: RunWords | None = None,
        relay: Relay | None = None,
        tmpdir: str | None = None,
    ) -> None:
        self.slots = slots
        self._settings: dict[str, Any] = {"timeout": timeout, "relay": relay, "tmpdir": tmpdir}
        self._run = run
        self._poll: Any = select.poll()
        self._running: dict[RunningJob, ValueJob] = {}
        self._ended: list[tuple[ValueJob, JobOutcome]] = []
        self._guard = None if has_threads() else ProcessGuard()

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Start a job. A call is called at once, to its end, if this process has threads, and so cannot be copied.

        Raises:
            Unsupported: a timeout for such a call.
        """
        copies = self._guard is not None and not has_threads()
        if job.call is not None and not copies:
            self._ended.append((job, run_job(job, attempt=attempt, **self._settings)))
            return
        copy: Callable[..., Any] | None = None
        if copies and (self._run is not None or job.call is not None):
            copy = partial(ProcessCopy, self._run, self._descriptors())
        settings = self._settings if self._guard is None else {**self._settings, "began": self._guard.began}
        running = RunningJob(job, self._poll, attempt=attempt, copy=copy, **settings)
        self._running[running] = job

    def _descriptors(self) -> list[int]:
        assert self._guard is not None
        return [self._guard.fd, *(fd for each in self._running for fd in each.descriptors)]

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        """Return the jobs that have ended, and how; wait up to `seconds` while there are none."""
        if not self._ended:
            self._poll.poll(1000 * min([seconds, *(each.patience() for each in self._running)]))
        for running, job in list(self._running.items()):
            if (outcome := running.advance()) is not None:
                self._forget(running)
                self._ended.append((job, outcome))
        ended, self._ended = self._ended, []
        return ended

    def _forget(self, running: RunningJob) -> None:
        del self._running[running]
        if self._guard is not None:
            self._guard.ended(running.pids)

    def cancel(self) -> None:
        """End all jobs that run."""
        for running in self._running:
            running.begin_end()
        for running in list(self._running):
            running.end()
            self._forget(running)

    def close(self) -> None:
        """End all jobs that run, and what watches them."""
        self.cancel()
        if self._guard is not None:
            self._guard.close()
            self._guard = None
