"""Runs a job as processes: its steps, joined by pipes, or a pickled call.

Each step runs in a process group of its own: when the job ends by itself, so does all that a step has left in its
group; when a time-out or something else ends it, so does all that a step has started (`strays`). The first step has an
empty stdin; what the last one prints goes to temporary space. A step that begins with the word `tarkit` is a command
line of tarkit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tarkit.errors import TarkitError, message_text, system_hint
from tarkit.jobs.calls import PickledCall
from tarkit.jobs.job import NOT_STARTED, TAIL, TIMED_OUT, JobOutcome, Relay, ValueJob, make_directories, utc_now
from tarkit.jobs.quoting import TARKIT_WORDS, python_words
from tarkit.jobs.strays import end_strays, find_strays, marked_environment, new_mark
from tarkit.redaction import hide_secrets
from tarkit.streams.command import DEVNULL, PATIENCE, end_all, send
from tarkit.streams.process import Program
from tarkit.streams.tempfile import TemporaryFile

LINE = 1 << 16  # bytes; a longer line of stderr is passed on in pieces
PIPE = 1 << 20  # bytes that a pipe holds, at most
PULSE = 0.1  # seconds between two calls of `watch`
INTERVAL = 0.005  # seconds, where the system does not tell when a process ends


def run_job(
    job: ValueJob,
    timeout: float | None = None,
    attempt: int = 1,
    relay: Relay = lambda job, line: None,
    *,
    tmpdir: str | None = None,
    directory: str | None = None,
    watch: Callable[[], object] = lambda: None,
    began: Callable[[int], object] = lambda pid: None,
) -> JobOutcome:
    """Run a job to its end, and return how it ended.

    Args:
        job: the job; its call, if it has one, is a `PickledCall`.
        timeout: seconds after which it is ended.
        attempt: the number of the attempt.
        relay: called with each line of its stderr.
        tmpdir: directory of temporary files.
        directory: its working directory; None is that of this process.
        watch: called several times a second while it runs; an exception ends the job.
        began: called with each process as soon as it has started.
    """
    begun, start = time.monotonic(), utc_now()
    steps = _Steps(job, relay)
    try:
        status = None
        try:
            make_directories(job, directory)
            steps.start(tmpdir, directory, began)
            steps.wait(None if timeout is None else begun + timeout, watch)
        except _TimedOut:
            status = TIMED_OUT
            steps.take(b"tarkit: timed out\n")
        except TarkitError as error:
            status = NOT_STARTED
            steps.take(message_text(str(error), error.hint).encode())
        except OSError as error:
            status = 1
            steps.take(message_text(f"{error.filename}: {error.strerror}", system_hint(error)).encode())
        if status is not None:
            steps.terminate()
        ended = steps.status()
        status = ended if status is None else status
        samples, size = steps.counts() if status == 0 else (None, None)
        outcome = JobOutcome(status, time.monotonic() - begun, samples, size, attempt, start=start, tail=steps.tail)
        if status == 0 and steps.output is not None and os.fstat(steps.output.fd).st_size:
            outcome.output = steps.output
        return outcome
    except BaseException:
        steps.terminate()
        raise
    finally:
        steps.close()


class _TimedOut(Exception):
    """The time of a job is over."""


class _Pipe:
    """A pipe that processes write to, and `poll` watches until all of them have closed it."""

    def __init__(self, poll: Any) -> None:
        self.fd, self.end = os.pipe()
        os.set_blocking(self.fd, False)
        self._poll = poll
        poll.register(self.fd, select.POLLIN)

    def read(self) -> bytes:
        """Return what has been written since, but not more than `LINE` bytes; b"" for nothing."""
        if self._poll is None:
            return b""
        try:
            data = os.read(self.fd, LINE)
        except BlockingIOError:
            return b""
        if not data:
            self._poll.unregister(self.fd)
            self._poll = None
        return data

    def close_end(self) -> None:
        """Close the end that is written, once the processes have it."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def close(self) -> None:
        self.close_end()
        os.close(self.fd)


class _Steps:
    """The processes of a job.

    Attributes:
        output: what the last step prints.
    """

    def __init__(self, job: ValueJob, relay: Relay) -> None:
        self.job = job
        self.output: TemporaryFile | None = None
        self._relay = relay
        self._poll = select.poll()
        self._stderr, self._report = _Pipe(self._poll), _Pipe(self._poll)
        self._programs: list[Program] = []
        self._mark = new_mark()
        self._tail = self._line = self._counts = b""

    def start(self, tmpdir: str | None, directory: str | None, began: Callable[[int], object]) -> None:
        """Start all steps. Raises TarkitError for a program that cannot be started."""
        self.output = TemporaryFile(tmpdir)
        steps = self.job.steps or (("tarkit",),)
        stdin = DEVNULL if self.job.call is None else _content_of(self.job.call, tmpdir)
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            following, stdout = (-1, self.output.fd) if last else os.pipe()
            try:
                program = Program(
                    self._words(step, last),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=self._stderr.end,
                    directory=directory,
                    environment=marked_environment(self._mark),
                    pass_fds=(self._report.end,) if step[0] == "tarkit" else (),
                )
                self._programs.append(program)
                began(program.pid)
            except BaseException:
                _close(following)
                raise
            finally:
                _close(stdin, -1 if last else stdout)
            stdin = following
        self._stderr.close_end()
        self._report.close_end()

    def _words(self, step: Sequence[str], last: bool) -> Sequence[str]:
        """Return the command line of a step; the last one, if it is of tarkit, reports its counts."""
        job, report = self.job, self._report.end
        if job.call is not None:
            return python_words("tarkit.jobs.calls", "call_input", report, sys.path)
        if job.replaces and last:
            step = (*step[:2], "--force", *step[2:])
        if step[0] != "tarkit":
            return step
        return [*TARKIT_WORDS, *([f"--report=/dev/fd/{report}"] if last else []), *job.common, *step[1:]]

    def wait(self, limit: float | None, watch: Callable[[], object]) -> None:
        """Pass on lines of stderr until all steps have ended. Raises _TimedOut at `limit`."""
        for program in self._programs:
            program.watch(self._poll)
            try:
                while not program.ended():
                    watch()
                    left = PULSE if limit is None else limit - time.monotonic()
                    if left <= 0:
                        raise _TimedOut
                    self._poll.poll(1000 * min(left, PULSE if program.wakes else INTERVAL))
                    self._read()
            finally:
                program.unwatch(self._poll)

    def _read(self) -> None:
        self.take(self._stderr.read())
        self._counts += self._report.read()

    def take(self, data: bytes) -> None:
        """Pass on the lines of stderr, and keep the last ones."""
        self._tail = (self._tail + data)[-TAIL:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            self._relay(self.job, line)

    def terminate(self) -> None:
        """End the steps and all that they started, by SIGTERM, then SIGKILL."""
        limit, strays = time.monotonic() + PATIENCE, {}
        if not all(program.ended() for program in self._programs):
            strays = find_strays([program.pid for program in self._programs], [self._mark])
            send(list(strays), signal.SIGTERM)
        end_all(*self._programs)
        if strays:
            end_strays(strays, [self._mark], limit)

    def status(self) -> int:
        """Return the status of the last step that failed, once all have ended; kill what they left in their groups.

        A step ended by SIGPIPE did not fail if the next one, which then stopped reading, succeeded.
        """
        statuses = [program.wait() or 0 for program in self._programs]
        for _ in range(PIPE // LINE):  # a process that left its group may write on
            self._read()
        if self._line:
            self.take(b"\n")
        after = 1
        for status in reversed(statuses):
            if status and not (status == -signal.SIGPIPE and after == 0):
                return status
            after = status
        return 0

    def counts(self) -> tuple[int | None, int | None]:
        """Return samples and bytes that were reported; None if a command reports none."""
        with suppress(ValueError):
            report = json.loads(self._counts)
            return report.get("samples"), report.get("bytes")
        return None, None

    @property
    def tail(self) -> str:
        return hide_secrets(self._tail.decode("utf-8", "backslashreplace").strip())

    def close(self) -> None:
        self._stderr.close()
        self._report.close()


def _content_of(call: Callable[..., Any], tmpdir: str | None) -> int:
    assert isinstance(call, PickledCall)
    file = TemporaryFile(tmpdir)
    file.write(call.data)
    os.lseek(file.fd, 0, os.SEEK_SET)
    return os.dup(file.fd)


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
