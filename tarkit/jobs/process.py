"""A job as processes: its steps, joined by pipes, or a call.

Each step runs in a process group of its own: when the job ends by itself, so does all that a step has left in its
group; when a time-out or something else ends it, so does all that a step has started (`strays`). The first step has an
empty stdin; the stdout of the last one goes to temporary space.

A step that begins with the word `tarkit` is a command line of tarkit. It runs in a copy of this process where that is
possible, as does a call: in 20 ms of CPU time, where a new process takes 100 ms to load tarkit.
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
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, message_text, system_hint
from tarkit.jobs.calls import PickledCall, call_apart, work_apart
from tarkit.jobs.job import (
    NOT_STARTED,
    TAIL,
    TIMED_OUT,
    JobOutcome,
    Relay,
    RunWords,
    ValueJob,
    joined_of,
    make_directories,
    utc_now,
)
from tarkit.jobs.strays import end_strays, find_strays, marked_environment, new_mark
from tarkit.redaction import hide_secrets
from tarkit.streams.command import DEVNULL, PATIENCE, Program, end_all, send
from tarkit.streams.process import ForkedChild, python_words
from tarkit.streams.tempfile import TemporaryFile

LINE = 1 << 16  # bytes; a longer line of stderr is passed on in pieces
PIPE = 1 << 20  # bytes that a pipe holds, at most
INTERVAL = 0.005  # seconds, where the system does not tell when a process ends
_TARKIT_WORDS = python_words("tarkit.__main__", "main")


class Copies(NamedTuple):
    """How copies of this process are made.

    Attributes:
        run: runs a command line of tarkit in a copy, and returns its status; None if there are only calls.
        close: returns the descriptors of this process that a copy closes.
    """

    run: RunWords | None
    close: Callable[[], list[int]]


class RunningJob:
    """The processes of a job.

    Args:
        job: the job; its call is a `PickledCall` where there are no copies.
        poll: a `select.poll`, which is to wake up when there is something to be done for the job.
        timeout: seconds after which it is ended.
        relay: called with each line of its stderr.
        directory: its working directory; None is that of this process.
        began: called with the mark before processes start, and with each process as soon as it has started, in a copy
            of this process as well.
        copies: how copies of this process are made, if they can be.

    Attributes:
        mark: the value of a variable in the environments of its processes.
        programs: the processes of its steps.
        limit: the time of `time.monotonic` at which it is ended.
    """

    def __init__(
        self,
        job: ValueJob,
        poll: Any,
        attempt: int,
        *,
        timeout: float | None,
        relay: Relay,
        tmpdir: str | None,
        directory: str | None,
        began: Callable[[int | bytes], object],
        copies: Copies | None,
    ) -> None:
        self.job = job
        self.mark = new_mark()
        self.programs: list[Program] = []
        self._attempt = attempt
        self._relay = relay
        self._began = began
        self._copies = copies
        self._poll = poll
        self._watched: list[Program] = []
        self._stderr, self._report = _Pipe(poll), _Pipe(poll)
        self._tail = self._line = self._counts = b""
        self._status: int | None = None  # if it is not that of a step
        self._begun, self._start = time.monotonic(), utc_now()
        self.limit = None if timeout is None else self._begun + timeout
        try:
            make_directories(job, directory)
            self._output = TemporaryFile(tmpdir)
            began(self.mark)
            self._start_steps(tmpdir, directory)
        except TarkitError as error:
            self.fail(NOT_STARTED, message_text(str(error), error.hint))
            end_jobs([self])
        except OSError as error:
            self.fail(1, message_text(f"{error.filename}: {error.strerror}", system_hint(error)))
            end_jobs([self])
        except BaseException:
            end_jobs([self])
            raise

    @property
    def descriptors(self) -> list[int]:
        """The ends of pipes that are read."""
        return [self._stderr.fd, self._report.fd]

    def _start_steps(self, tmpdir: str | None, directory: str | None) -> None:
        """Start all steps. Raises TarkitError for a program that cannot be started."""
        steps = self.job.steps or (("tarkit",),)
        apart = self.job.call is not None and self._copies is None
        stdin = _content_of(self.job.call, tmpdir) if apart else DEVNULL
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            following, stdout = (-1, self._output.fd) if last else os.pipe()
            try:
                words, popen = self._words(step, last, following)
                program = Program(
                    words,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=self._stderr.end,
                    directory=directory,
                    environment=marked_environment(self.mark),
                    pass_fds=(self._report.end,) if step[0] == "tarkit" else (),
                    popen=popen,
                )
                self.programs.append(program)
                program.watch(self._poll)
                self._watched.append(program)
                self._began(program.pid)
            except BaseException:
                _close(following)
                raise
            finally:
                _close(stdin, -1 if last else stdout)
            stdin = following
        self._stderr.close_end()
        self._report.close_end()

    def _words(
        self, step: Sequence[str], last: bool, following: int
    ) -> tuple[Sequence[str], Callable[..., ForkedChild] | None]:
        """Return the command line of a step, and the function that starts it in place of `subprocess.Popen`.

        The last step, if it is of tarkit, reports its counts. `following` is the descriptor of its stdout.
        """
        job, report, copies = self.job, self._report.end, self._copies
        close = [] if copies is None else [*self.descriptors, *([] if last else [following]), *copies.close()]
        if job.call is not None:
            if copies is None:
                return python_words("tarkit.jobs.calls", "call_input", report, sys.path), None
            return step, self._copy_for(partial(call_apart, job.call, report), close)
        if job.replaces and last:
            step = (*step[:2], "--force", *step[2:])
        if step[0] != "tarkit":
            return step, None
        words = [*([f"--report=/dev/fd/{report}"] if last else []), *job.common, *step[1:]]
        if copies is None or copies.run is None:
            return [*_TARKIT_WORDS, *words], None
        return step, self._copy_for(partial(copies.run, words), close)

    def _copy_for(self, work: Callable[[], int], close: list[int]) -> Callable[..., ForkedChild]:
        return partial(ForkedChild, partial(work_apart, work, self.mark), close, began=self._began)

    def fail(self, status: int, message: str) -> None:
        """Note a status that is not that of a step, with its message."""
        self._status = status
        self._take(message.encode())

    def has_ended(self) -> bool:
        """Whether all steps have ended."""
        for program in [program for program in self._watched if program.ended()]:
            self.unwatch(program)
        return not self._watched

    def unwatch(self, *programs: Program) -> None:
        """Have the end of these programs not wake `poll` any more."""
        for program in programs:
            if program in self._watched:
                self._watched.remove(program)
                program.unwatch(self._poll)

    def patience(self, seconds: float) -> float:
        """Return how long `poll` may wait, at most `seconds`."""
        if not all(program.wakes for program in self._watched):
            seconds = min(seconds, INTERVAL)
        return seconds if self.limit is None else max(0.0, min(seconds, self.limit - time.monotonic()))

    def advance(self) -> JobOutcome | None:
        """Pass on its stderr; return its outcome once it has ended."""
        self._read()
        if not self.has_ended():
            return None
        try:
            status = self._end_status()
            status = status if self._status is None else self._status
            report: dict[str, Any] = {}
            with suppress(ValueError):
                report = json.loads(self._counts)
            seconds = time.monotonic() - self._begun
            outcome = JobOutcome(status, seconds, None, None, self._attempt, start=self._start, tail=self.tail)
            if status == 0:
                outcome.samples, outcome.bytes = report.get("samples"), report.get("bytes")
                outcome.joined = joined_of(report.get("join"))
                if os.fstat(self._output.fd).st_size:
                    outcome.output = self._output
            return outcome
        finally:
            self.close()

    def _read(self) -> None:
        self._take(self._stderr.read())
        self._counts += self._report.read()

    def _take(self, data: bytes) -> None:
        """Pass on the lines of stderr, and keep the last ones."""
        self._tail = (self._tail + data)[-TAIL:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            self._relay(self.job, line)

    def _end_status(self) -> int:
        """Return the status of the last step that failed, once all have ended; kill the rest of their groups.

        A step ended by SIGPIPE did not fail if the next one, which then stopped reading, succeeded.
        """
        statuses = [program.wait() or 0 for program in self.programs]
        for _ in range(PIPE // LINE):  # a process that left its group may write on
            self._read()
        if self._line:
            self._take(b"\n")
        after = 1
        for status in reversed(statuses):
            if status and not (status == -signal.SIGPIPE and after == 0):
                return status
            after = status
        return 0

    @property
    def tail(self) -> str:
        """The last lines of its stderr."""
        return hide_secrets(self._tail.decode("utf-8", "backslashreplace").strip())

    def close(self) -> None:
        """Close its pipes."""
        self._stderr.close()
        self._report.close()


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
            self._unwatch()
        return data

    def _unwatch(self) -> None:
        if self._poll is not None:
            self._poll.unregister(self.fd)
            self._poll = None

    def close_end(self) -> None:
        """Close the end that is written, once the processes have it."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def close(self) -> None:
        """Close it."""
        self._unwatch()
        self.close_end()
        os.close(self.fd)


def end_jobs(jobs: Sequence[RunningJob]) -> None:
    """End the processes of jobs, and all that they started, by SIGTERM, then SIGKILL."""
    programs, marks = [program for job in jobs for program in job.programs], [job.mark for job in jobs]
    limit, strays = time.monotonic() + PATIENCE, {}
    if not all(job.has_ended() for job in jobs):
        strays = find_strays([program.pid for program in programs], marks)
        send(list(strays), signal.SIGTERM)
    for job in jobs:
        job.unwatch(*job.programs)
    end_all(*programs)
    if strays:
        end_strays(strays, marks, limit)


def end_late(jobs: Sequence[RunningJob]) -> None:
    """End those of the jobs whose time is over."""
    now = time.monotonic()
    if late := [job for job in jobs if job.limit is not None and now >= job.limit and not job.has_ended()]:
        for job in late:
            job.fail(TIMED_OUT, "tarkit: timed out\n")
        end_jobs(late)


def _content_of(call: Callable[..., Any] | None, tmpdir: str | None) -> int:
    assert isinstance(call, PickledCall)
    file = TemporaryFile(tmpdir)
    file.write(call.data)
    os.lseek(file.fd, 0, os.SEEK_SET)
    return os.dup(file.fd)


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
