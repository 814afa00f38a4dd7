"""A job: the command lines, or the call, for one value; how it is run, and how it ended.

The command lines of a job are its steps, joined by pipes. Each runs in a process group of its own: when the job ends by
itself, so does all that a step has left in its group; when a time-out or something else ends it, so does
all that a step has started (`strays`). The first step has an empty stdin; what the last one prints to stdout goes to
temporary space, and is passed on when the job has succeeded. A step that begins with the word `tarkit` is a command
line of tarkit, and runs in a new process or in a copy of this.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tarkit.errors import TarkitError, Unsupported, message_text, printable, signal_name, system_hint
from tarkit.jobs.quoting import shell_word
from tarkit.jobs.strays import Strays, end_strays, find_strays, marked_environment, new_mark
from tarkit.jobs.values import Value
from tarkit.pipeline.template import ShardTemplate
from tarkit.redaction import hide_secrets
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams import command
from tarkit.streams.command import DEVNULL, PATIENCE, send
from tarkit.streams.process import Program
from tarkit.streams.tempfile import TemporaryFile
from tarkit.threads import has_threads

TAIL = 2000  # bytes of stderr that an outcome keeps
LINE = 1 << 16  # bytes; a longer line of stderr is passed on in pieces
PIPE = 1 << 20  # bytes that a pipe holds, at most
STDOUT_LIMIT = 1 << 26  # bytes of stdout that `run_job` returns
PULSE = 0.2  # seconds between two calls of `watch`
NOT_STARTED, TIMED_OUT = 127, 124  # statuses, as of a shell and of timeout(1)

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python_words(module: str, function: str, *arguments: object) -> tuple[str, ...]:
    """Return the words of a command line that calls a function of tarkit in a new process of Python."""
    call = f"from {module} import {function}; sys.path.remove({_ROOT!r}); {function}{arguments!r}"
    # -P: tarkit is imported before what is in the current directory
    return sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {_ROOT!r}); {call}"


TARKIT_WORDS = python_words("tarkit.__main__", "main")

JobStdout = TemporaryFile | bytes
"""What a job wrote to stdout."""
Counts = tuple[int, int]
"""Samples and bytes that a job has written."""
Relay = Callable[["ValueJob", bytes], None]


@dataclass(frozen=True)
class PickledCall:
    """A call of a job as it is sent to another machine."""

    data: bytes

    def __call__(self) -> Counts:
        """Call it."""
        import pickle  # 2 ms of start-up, only for those that are sent

        counts: Counts = pickle.loads(self.data)()
        return counts


@dataclass(frozen=True)
class ValueJob:
    """One job. It can be pickled, if its call can.

    Attributes:
        value: what it is done for.
        steps: command lines, each of which reads what the one before it writes.
        inputs, outputs: the files and URLs that it reads and writes, as far as they are known.
        reads: returns the state of what it reads, for a journal; None: that of `inputs`.
        storage: how outputs are reached that are URLs.
        series: the templates of the shards that its last step writes.
        replaces: shards of these names are of an earlier attempt, and are replaced.
        directories: are made before it begins.
        common: options of steps of tarkit that do not change what is written, such as `--verbose`.
        call: is called in place of steps; returns the samples and bytes that it wrote.
        name: the name of the call, which tells it from others.
    """

    value: Value
    steps: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    reads: Callable[[], dict[str, str | None]] | None = None
    storage: StoreOptions | None = None
    series: tuple[ShardTemplate, ...] = ()
    replaces: bool = False
    directories: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    call: Callable[[], Counts] | None = None
    name: str = ""

    def shown(self) -> str:
        """Return the command line for bash, on one line, without secrets of URLs."""
        whole = ((*step[:1], *self.common, *step[1:]) if step[0] == "tarkit" else step for step in self.steps)
        words = (map(shell_word, (hide_secrets(word, whole=bool(scheme_of(word))) for word in step)) for step in whole)
        return " | ".join(map(" ".join, words)) if self.steps else self.name


def print_line(job: ValueJob, line: bytes) -> None:
    """Write a line of a job's stderr to stderr, after its value; a closed stderr is not an error."""
    if b"://" in line or b"=" in line:
        line = os.fsencode(hide_secrets(os.fsdecode(line)))
    data = printable(public_name(job.value.text)).encode() + b": " + line + b"\n"
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


@dataclass
class JobOutcome:
    """How an attempt of a job ended.

    Attributes:
        status: 0 if it succeeded; of a signal its negative number.
        seconds: how long it took.
        samples, bytes: what it wrote, if the last step is one of tarkit and says so.
        attempt: its number, from 1.
        host: the machine.
        start: when it began, in UTC.
        tail: the last lines of its stderr.
        output: what it wrote to stdout, if it succeeded.
    """

    status: int
    seconds: float = 0.0
    samples: int | None = None
    bytes: int | None = None
    attempt: int = 1
    host: str = field(default_factory=lambda: os.uname().nodename)
    start: str = ""
    tail: str = ""
    output: JobStdout | None = field(default=None, repr=False)

    def words(self) -> str:
        """Return how it ended, in words."""
        if self.status == TIMED_OUT:
            return "timed out"
        return f"status {self.status}" if self.status >= 0 else signal_name(-self.status)


def run_job(
    job: ValueJob,
    timeout: float | None = None,
    attempt: int = 1,
    relay: Relay | None = None,
    tmpdir: str | None = None,
    directory: str | None = None,
    watch: Callable[[RunningJob], None] = lambda running: None,
    began: Callable[[int], None] | None = None,
) -> JobOutcome:
    """Run a job to its end, its steps in new processes, and return how it ended; what it wrote to stdout is in memory.

    Args:
        job: the job; a call that is no `PickledCall` is called in this process, where nothing can end it.
        timeout: seconds after which it is ended.
        attempt: the number of the attempt.
        relay: called with each line of its stderr; for a call in this process with those about its error alone.
        tmpdir: directory of temporary files.
        directory: its working directory.
        watch: called several times a second while it runs; an exception ends it.
        began: called with each process as soon as it has started: in the process itself if this one has no threads.

    Raises:
        Unsupported: a timeout for a call in this process.
    """
    if job.call is not None and not isinstance(job.call, PickledCall):
        if timeout is not None:
            raise Unsupported(f"{job.name}: a call in a process with threads cannot be ended after a timeout")
        return _call_here(job, attempt, relay)
    poll = select.poll()
    how: dict[str, Any] = {"timeout": timeout, "attempt": attempt, "relay": relay, "tmpdir": tmpdir}
    running = RunningJob(job, poll, **how, directory=directory, began=began)
    try:
        while (outcome := running.advance()) is None:
            watch(running)
            poll.poll(min(PULSE, running.patience()) * 1000)
    except BaseException:
        running.end()
        raise
    if isinstance(outcome.output, TemporaryFile):
        printed = outcome.output.read(0, STDOUT_LIMIT + 1)
        outcome.output = printed
        if len(printed) > STDOUT_LIMIT:
            outcome.status, outcome.output = 1, None
            outcome.tail = f"tarkit: the job wrote more than {STDOUT_LIMIT >> 20} MiB to stdout: let it write a file"
            if relay is not None:
                relay(job, outcome.tail.encode())
    return outcome


def error_text(error: BaseException) -> str:
    """Return what a call that raised writes to stderr: the message, or the traceback of an error of the function."""
    if isinstance(error, (TarkitError, OSError)):
        return message_text(str(error), getattr(error, "hint", None))
    from traceback import format_exception

    return "".join(format_exception(error))


def _call_here(job: ValueJob, attempt: int, relay: Relay | None) -> JobOutcome:
    assert job.call is not None
    begun, start = time.monotonic(), _now()
    status, counts, tail = 0, None, ""
    try:
        make_directories(job)
        counts = job.call()
    except (Exception, SystemExit) as error:
        status, tail = 1, f"{type(error).__name__}: {error}" if not isinstance(error, TarkitError) else str(error)
        if relay is not None:
            for line in error_text(error).encode("utf-8", "backslashreplace").splitlines():
                relay(job, line)
    samples, size = counts or (None, None)
    return JobOutcome(status, time.monotonic() - begun, samples, size, attempt, start=start, tail=tail)


def make_directories(job: ValueJob, working: str | None = None) -> None:
    """Make the directories of a job's outputs; `working` is its working directory, if it is another than here."""
    for directory in job.directories:
        os.makedirs(os.path.join(working or "", directory), exist_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Pipe:
    """The read end of a pipe, which `poll` watches until the end of what is written."""

    def __init__(self, poll: Any) -> None:
        self.fd, self.end = os.pipe()
        os.set_blocking(self.fd, False)
        self._poll = poll
        self._open = True
        poll.register(self.fd, select.POLLIN)

    def started(self) -> None:
        """Close the end that is written, once processes have it."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def read(self) -> bytes:
        """Return what has been written since, but not more than `LINE` bytes; b"" for nothing."""
        if not self._open:
            return b""
        try:
            data = os.read(self.fd, LINE)
        except BlockingIOError:
            return b""
        if not data:
            self._open = False
            self._poll.unregister(self.fd)
        return data

    def close(self) -> None:
        """Close it."""
        self.started()
        if self._open:
            self._open = False
            self._poll.unregister(self.fd)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class RunningJob:
    """A job that runs: `advance` is called whenever `poll`, which watches its processes and pipes, wakes up.

    Args:
        copy: starts a step of tarkit, or a call, in a copy of this process: called with the descriptor for the counts
            of samples and bytes, it returns what has the form of `subprocess.Popen`. None: steps are new processes.
        directory: its working directory; None is that of this process.
    """

    def __init__(
        self,
        job: ValueJob,
        poll: Any,
        *,
        timeout: float | None = None,
        attempt: int = 1,
        relay: Relay | None = None,
        tmpdir: str | None = None,
        copy: Callable[..., Any] | None = None,
        directory: str | None = None,
        began: Callable[[int], None] | None = None,
    ) -> None:
        self.job = job
        self._began = began
        self._directory = directory
        self._poll = poll
        self._attempt = attempt
        self._relay = relay or (lambda job, line: None)
        self._begun, self._start = time.monotonic(), _now()
        self._limit = None if timeout is None else self._begun + timeout
        self._status: int | None = None  # decided before all steps have ended
        self._tail = b""
        self._line = b""
        self._counts = b""
        self._programs: list[Program] = []
        self._mark = new_mark()
        self._strays: Strays = {}
        self._watched: list[Program] = []
        self._stderr, self._report = _Pipe(poll), _Pipe(poll)
        try:
            make_directories(job, directory)
            self._output = TemporaryFile(tmpdir)
            self._start_steps(copy, tmpdir)
        except (TarkitError, OSError) as error:
            self._fail(NOT_STARTED if isinstance(error, TarkitError) else 1, error)
        except BaseException:
            self.end()
            raise
        self._stderr.started()
        self._report.started()

    def _start_steps(self, copy: Callable[..., Any] | None, tmpdir: str | None) -> None:
        steps: Sequence[Sequence[str]] = self.job.steps or ((self.job.name,),)
        stdin, last = DEVNULL, len(steps) - 1
        first = None if self._began is None or has_threads() else partial(_begin, self._began)
        if isinstance(self.job.call, PickledCall):
            stdin = _content_of(self.job.call, tmpdir)
        for number, words in enumerate(steps):
            after, stdout = os.pipe() if number < last else (-1, self._output.fd)
            if self.job.replaces and number == last:
                words = [*words[:2], "--force", *words[2:]]
            popen: Callable[..., Any] | None = None
            kept: tuple[int, ...] = ()
            if words[0] == "tarkit" or self.job.call is not None:
                counted = [f"--report=/dev/fd/{self._report.end}"] if number == last else []
                words = ["tarkit", *counted, *self.job.common, *words[1:]]
                kept = (self._report.end,)
                if copy is not None:
                    popen = partial(copy, self.job.call, self._report.end)
                elif self.job.call is not None:
                    words = python_words("tarkit.jobs.copies", "call_input", self._report.end, sys.path)
                else:
                    words = [*TARKIT_WORDS, *words[1:]]
            try:
                program = Program(
                    words,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=self._stderr.end,
                    directory=self._directory,
                    environment=marked_environment(self._mark),
                    pass_fds=kept,
                    first=first,
                    popen=popen,
                )
            except BaseException:
                if after >= 0:
                    os.close(after)
                raise
            finally:
                for fd in (stdin, *([stdout] if number < last else [])):
                    if fd >= 0:
                        os.close(fd)
            stdin = after
            if first is None and self._began is not None:
                self._began(program.pid)
            self._programs.append(program)
            self._watched.append(program)
            program.watch(self._poll)

    def _fail(self, status: int, error: Exception) -> None:
        """Fail for an error before all steps have started."""
        if isinstance(error, OSError):
            hint, text = system_hint(error), f"{error.filename}: {error.strerror}"
        else:
            hint, text = getattr(error, "hint", None), str(error)
        self._status = status
        self._take(message_text(text, hint).encode())
        self.terminate()

    def patience(self) -> float:
        """Return the seconds after which `advance` is to be called even if `poll` did not wake up."""
        if not all(program.wakes for program in self._watched):
            return 0.005
        return 1.0 if self._limit is None else max(0.0, min(1.0, self._limit - time.monotonic()))

    def advance(self) -> JobOutcome | None:
        """Pass on what was printed; return how the job ended, None while it runs."""
        self._take(self._stderr.read())
        self._counts += self._report.read()
        if self._limit is not None and time.monotonic() >= self._limit and self._watched:
            self._limit, self._status = None, TIMED_OUT
            self._take(b"tarkit: timed out\n")
            self.terminate()
        for program in [each for each in self._watched if each.ended()]:
            program.unwatch(self._poll)
            self._watched.remove(program)
        if self._watched:
            return None
        return self._ended()

    @property
    def pids(self) -> list[int]:
        """The processes of its steps, which lead their groups."""
        return [program.pid for program in self._programs]

    @property
    def descriptors(self) -> list[int]:
        """Its descriptors that a copy of this process closes."""
        return [pipe.fd for pipe in (self._stderr, self._report) if pipe.fd >= 0]

    def begin_end(self) -> None:
        """Send SIGTERM to its steps, and to what has left their groups."""
        self._strays |= find_strays(self.pids, [self._mark]) if self._watched else {}
        send(list(self._strays), signal.SIGTERM)
        for program in self._programs:
            program.terminate()

    def terminate(self) -> None:
        """End its steps and all that they started, by SIGTERM, then SIGKILL."""
        if not self._watched:
            command.end_all(*self._programs)
            return
        limit = time.monotonic() + PATIENCE
        self.begin_end()
        command.end_all(*self._programs)
        end_strays(self._strays, [self._mark], limit)

    def _ended(self) -> JobOutcome:
        statuses = [program.wait() or 0 for program in self._programs]  # what they left in their groups is killed
        for _ in range(PIPE // LINE):  # a process that left its group may write on
            self._take(self._stderr.read())
            self._counts += self._report.read()
        if self._line:
            self._take(b"\n")
        status = _status_of(statuses) if self._status is None else self._status
        samples, size = _parse_counts(self._counts) if status == 0 else (None, None)
        self._close()
        outcome = JobOutcome(status, time.monotonic() - self._begun, samples, size, self._attempt, start=self._start)
        outcome.tail = hide_secrets(self._tail.decode("utf-8", "backslashreplace").strip())
        if status == 0 and os.fstat(self._output.fd).st_size:
            outcome.output = self._output
        return outcome

    def end(self) -> None:
        """End it at once, with all that it started."""
        self.terminate()
        self._close()

    def _close(self) -> None:
        for program in self._watched:
            program.unwatch(self._poll)
        self._watched.clear()
        self._stderr.close()
        self._report.close()

    def _take(self, data: bytes) -> None:
        """Pass on the lines of stderr, and keep the last ones."""
        if not data:
            return
        self._tail = (self._tail + data)[-TAIL:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > LINE:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            self._relay(self.job, line)


def _begin(began: Callable[[int], None]) -> None:
    """Say that this process has begun, which its parent can no longer do once it has been killed."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # whoever is told may be gone
    began(os.getpid())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as programs expect


def _content_of(call: PickledCall, tmpdir: str | None) -> int:
    """Return a descriptor of a file with a call."""
    file = TemporaryFile(tmpdir)
    file.write(call.data)
    os.lseek(file.fd, 0, os.SEEK_SET)
    return os.dup(file.fd)


def _status_of(statuses: Sequence[int]) -> int:
    """Return the status of a pipeline: of the last step that failed.

    A step ended by SIGPIPE did not fail if the next one, which then stopped reading, succeeded.
    """
    after = 1
    for status in reversed(statuses):
        if status and not (status == -signal.SIGPIPE and after == 0):
            return status
        after = status
    return 0


def _parse_counts(data: bytes) -> tuple[int | None, int | None]:
    """Return samples and bytes of a report; None if a command reports none."""
    try:
        report = json.loads(data) if data else {}
    except ValueError:
        return None, None
    return report.get("samples"), report.get("bytes")
