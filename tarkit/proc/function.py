"""proc --map: run samples through a Python function: `CallFunction.pool` says in which processes it is called.

Each worker has one process (`FunctionProcess`), which is started once and gets many small samples at a time; `child` is
what runs in it. With one worker and no timeout, a callable is called in this process.

A function that is named, FILE.py:FUNCTION, runs in a new interpreter. When it dies while it works on a sample, that one
has failed; a new process continues with the samples after it, and gets again the few whose results were lost.

A callable of the running process runs in copies of it (os.fork). All copies are made before the pool has threads, so
one that dies is not replaced: the sample that it worked on has failed, and other copies get the rest of those that were
sent to it, again the few whose results were lost.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from mmap import mmap
from typing import Any, ClassVar

from tarkit import errors
from tarkit.arguments import check_function
from tarkit.errors import MissingLibrary, TarkitError, Usage, spell, status_words
from tarkit.options import row
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import Sample
from tarkit.proc.calls import Made, Piece, SampleFunction, each_sample, failure_of, name_of
from tarkit.proc.child import (
    ENDS,
    IDLE,
    PLACE,
    PRINTED,
    REFUSED,
    WHOLE,
    Channel,
    Result,
    read_place,
    work_in_copy,
    write_place,
)
from tarkit.proc.job import TAIL, Failure, Job, Outcome, WorkFailed
from tarkit.proc.loader import split_spec
from tarkit.proc.pool import JobWorker, Pool
from tarkit.proc.result import extent, sample_of
from tarkit.proc.step import BATCH, SampleWork
from tarkit.samples.sample import TarSample
from tarkit.streams.command import Program, last_line
from tarkit.streams.copy import widen
from tarkit.streams.process import ForkedChild, python_words
from tarkit.streams.ranges import HeldRange
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.reader import Raw

TOGETHER_BYTES = 1 << 20  # bytes of samples that are read at a time
TOGETHER = 256  # samples that are sent at a time, when the function takes one
LARGEST = 1 << 31  # bytes that `marshal` does not take in one piece
EVERY_SIZE = 1 << 62  # bytes: a batch of N samples is one whatever their size
MAX_DEATHS = 3  # processes that may end one after the other before they have begun a sample
PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_POLL = 0.05  # seconds between two checks where the system has no pidfd


class CallFunction(SampleWork):
    """Call a Python function for each sample, or for lists of `batch` samples.

    A function is called in this process or in copies of it; a name, MODULE:FUNCTION or FILE.py:FUNCTION, in a new
    process. A callable gets a `Sample`, and with `decode` a dict of values, as a function that is named does. With
    `exact` a value is refused that its field would hold with a loss, such as a picture for jpg.
    """

    decode: object = row(
        "With --map", "--decode", default=False, help="Pass values, not bytes: text, numbers, pictures."
    )
    allow_pickle: bool = row(
        "With --map", "--allow-pickle", default=False, help="Decode pickles too, which can run any code."
    )
    init: str | Callable[[], Any] | None = row(
        "With --map", "--init", metavar="MODULE:FUNC", role="function", help="Call this first, once in each process."
    )
    batch: int | None = BATCH
    function: str | Callable[..., Any] = ""
    wrap: Callable[[TarSample, bytes | None], Sample] | None = Sample
    exact: bool = False

    def check(self) -> None:
        """Raise TypeError or TarkitError for what is no function, and Usage for options that do not go together."""
        super().check()
        if not isinstance(self.function, str):
            check_function(function=self.function)
        for spec in (self.function, self.init):
            if isinstance(spec, str):
                split_spec(spec)
        if not isinstance(self.decode, bool):
            hint = f"for other forms: tarkit.open(..., decode={self.decode!r}).map(...), whose function gets a sample"
            raise Usage(f"decode={self.decode!r}: map takes True, which gives the function a dict of values", hint)
        if self.decode and self.wrap not in (None, Sample):
            raise Usage(
                f"{spell('decode')} of map cannot be used here: the samples of this dataset are decoded already"
            )
        if self.allow_pickle and not self.decode:
            raise Usage(f"{spell('allow_pickle')} requires {spell('decode')}")

    @property
    def code(self) -> str:
        """The name of the function, or of the type of a callable without one."""
        called = self.function
        if isinstance(called, str):
            return called
        while isinstance(called, partial):
            called = called.func
        named = called if hasattr(called, "__qualname__") else type(called)
        return f"{named.__module__}.{named.__qualname__}"

    def apart(self) -> CallFunction:
        """Return the step in front of a loader, where values come out as the function returned them, or not at all."""
        step = copy(self)
        step.exact = True
        return step

    @property
    def named(self) -> bool:
        """Whether the function is found by its name, in a new interpreter."""
        return isinstance(self.function, str)

    @property
    def label(self) -> str:
        """What messages call the step."""
        return f"--map {self.function}" if self.named else f"map({name_of(self.function)})"

    @property
    def where(self) -> str:
        """What messages call the option or the method for the function."""
        return self.label.partition(" ")[0]

    @property
    def call(self) -> dict[str, Any]:
        """The arguments of `SampleFunction`; a named function has those that a new interpreter can be sent."""
        arguments: dict[str, Any] = {"function": self.function, "init": self.init, "decode": self.decode}
        arguments |= {"pickles": self.allow_pickle, "batches": self.batch is not None, "mtime": self.mtime}
        if self.named:
            return arguments
        return {**arguments, "wrap": None if self.decode else self.wrap, "exact": self.exact}

    @contextmanager
    def pool(self, run: Run, tmpdir: str | None = None) -> Iterator[Pool]:
        """Yield a pool whose workers call the function; the first process is started and has loaded it.

        Raises:
            TarkitError: the function cannot be loaded.
        """
        # a batch is N samples, whatever their size, so that the output is the same for any number of processes
        size: dict[str, Any] = {"batch": self.batch or 1, "batch_bytes": EVERY_SIZE, "exact": True}
        if not self.named and self.way["parallel"] == 1 and self.timeout is None:
            yield Pool(lambda: LocalWorker(self), **self.way, **size, here=True)
            return
        if self.batch is None:
            size = {"batch": TOGETHER, "batch_bytes": TOGETHER_BYTES}
        prepared: list[FunctionWorker] = []
        try:
            for _ in range(1 if self.named else self.way["parallel"]):  # all copies, before there are threads
                prepared.append(FunctionWorker(self, tmpdir, run.tell))
            prepared[0].load()
            start = lambda: prepared.pop(0) if prepared else FunctionWorker(self, tmpdir, run.tell)  # noqa: E731
            with Pool(start, **self.way, **size) as pool:
                yield pool
        finally:
            for worker in prepared:  # which were not needed
                worker.end("terminate")
            for worker in prepared:
                worker.close()


class LocalWorker(JobWorker):
    """Calls the function in the thread that takes the results, so that a debugger works.

    What the function prints is printed; what it raises is the cause of the error that ends the run.
    """

    def __init__(self, step: CallFunction) -> None:
        try:
            self.function = SampleFunction(**step.call)
        except TarkitError as error:
            raise TarkitError(f"{step.where}: {error}", error.hint) from error.__cause__

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        samples = list(each_sample(pieces_of(jobs)))
        started = time.monotonic()
        try:
            made = self.function(samples)
        except MissingLibrary:
            raise
        except Exception as error:
            raise WorkFailed(_failure(error), time.monotonic() - started) from error
        seconds = (time.monotonic() - started) / len(jobs)
        return [
            Outcome(failure=_failure(new), seconds=seconds)
            if isinstance(new, WorkFailed)
            else Outcome(new_samples(job, new), seconds=seconds)
            for job, new in zip(jobs, made, strict=True)
        ]


def _failure(error: Exception) -> Failure:
    reason, tail = failure_of(error)
    return Failure(reason, None, tail, error)


class FunctionWorker(JobWorker):
    """A worker with a process that calls the function.

    Args:
        step: the function, and how it is called.
        tell: called with lines for the user.
    """

    def __init__(
        self, step: CallFunction, tmpdir: str | None = None, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        super().__init__()
        self.step = step
        self._tmpdir = tmpdir
        self._tell = tell
        self._output = TemporaryFile(tmpdir)
        fcntl.fcntl(self._output.fd, fcntl.F_SETFL, os.O_APPEND)
        self._deaths = 0  # of processes that had no result, one after the other
        self._log: list[HeldRange] = []  # output that belongs to no sample; the next one gets it
        self._process: FunctionProcess | None = None
        self.start(self._begin)

    def _begin(self) -> Program:
        self._process = FunctionProcess(self.step, self._output, self._tmpdir)
        return self._process.program

    def load(self) -> FunctionProcess:
        """Return the process, which is started if there is none, and has loaded the function.

        One that is killed before is replaced as often as a sample is tried again.

        Raises:
            TarkitError: it cannot be loaded.
            WorkFailed: the worker was ended.
        """
        attempts = 1 + (self.step.retries if self.step.named else 0)
        while True:
            if self._process is None:
                self.start(self._begin)
            elif self.cancelled:
                raise WorkFailed("was cancelled")
            process = self._process
            assert process is not None
            if process.loaded:
                return process
            try:
                self._keep(self._reply(process))
                process.loaded = True
            except EOFError:
                status, self._process = self._close(process), None
                attempts -= 1
                if self.cancelled or (attempts and status < 0):
                    continue
                last = last_line(process.unread_output())
                words = f"{self.step.label}: the process {status_words(status)} before it had loaded the function"
                raise TarkitError(f"{words}: {last}" if last else words) from None

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        if any(job.sample.size >= LARGEST for job in jobs):
            raise WorkFailed("has 2 GiB or more, too much for a worker process")
        process = self.load()
        outcomes: list[Outcome | None] = []
        try:
            process.send(pieces_of(jobs))
            while len(outcomes) < len(jobs):
                for result in self._reply(process):
                    outcomes.append(self._outcome(jobs[len(outcomes)], result))
        except (EOFError, TimeoutError) as error:
            self._end_process(process, jobs, outcomes, timed_out=isinstance(error, TimeoutError))
        return outcomes + [None] * (len(jobs) - len(outcomes))

    def _reply(self, process: FunctionProcess) -> Any:
        kind, value = process.receive()
        if kind == ENDS:
            message, hint = value
            raise TarkitError(f"{self.step.where}: {message}", hint)
        if kind == REFUSED:
            _, (reason, tail), output, seconds = value
            self._keep(output)
            raise WorkFailed(Failure(reason, None, tail), seconds)
        return value

    def _end_process(
        self, process: FunctionProcess, jobs: Sequence[Job], outcomes: list[Outcome | None], timed_out: bool
    ) -> None:
        """Append the outcome of the sample that the process died of, or took too long for.

        Raises:
            WorkFailed: it worked on all of them together, or the worker was ended.
            TarkitError: several processes have died before they began a sample.
        """
        if timed_out:
            process.program.kill()
        status = self._close(process)
        place, begun = process.where()
        self._process = None
        output = process.unread_output()
        self._keep(output)
        if self.cancelled:
            raise WorkFailed("was cancelled")
        reason = f"the process that calls the function {status_words(status)}"
        if timed_out:
            reason, status = f"took longer than {self.step.timeout:g} s", -signal.SIGKILL
        self.lost = not self.step.named
        failure = Failure(reason, status, _tail(output), fatal=self.lost)
        seconds = max(0.0, time.monotonic() - begun)
        if place == WHOLE:
            if self.lost and len(jobs) > 1:  # any of them may be the cause
                failure = failure._replace(reason=f"has no result, as its worker process died: {reason}")
            raise WorkFailed(failure, seconds)
        if place >= len(outcomes):
            outcomes += [None] * (place - len(outcomes))
            outcomes.append(Outcome((), failure, self._take_log(), seconds))
        self._deaths = 0 if outcomes else self._deaths + 1
        if self._deaths == MAX_DEATHS:
            raise TarkitError(f"{self.step.label}: its process ended {MAX_DEATHS} times before it began a sample")

    def _outcome(self, job: Job, result: Result) -> Outcome:
        made, failed, output, seconds = result
        self._keep(output)
        log = self._take_log() if self._log else ()
        if made is None:
            reason, tail = failed or ("", b"")
            return Outcome((), Failure(reason, None, tail), log, seconds)
        return Outcome(new_samples(job, made), None, log, seconds)

    def _keep(self, output: bytes) -> None:
        if output:
            self._log.append(HeldRange("output", 0, output))

    def _take_log(self) -> list[HeldRange]:
        log, self._log = self._log, []
        return log

    def close(self) -> None:
        """Let the process end. Its status does not matter: all results are there."""
        if self._process is not None:
            self._close(self._process)  # which `end` may cut short
            self._process = None

    def _close(self, process: FunctionProcess) -> int:
        """Let a process end, with force after some time, and return its status."""
        process.close_pipes()
        if process.program.wait(PATIENCE) is None:  # a thread of the user's does not end
            name = name_of(self.step.function)
            self._tell(f"the process that called {name} did not end, and was ended after {PATIENCE:g} s")
            process.program.end()
        return process.program.wait() or 0


def _tail(output: bytes) -> bytes:
    """Return the end of the output, without the frames of tarkit that `faulthandler` prints."""
    lines = output.splitlines(keepends=True)
    own = b'  File "' + os.fsencode(os.path.dirname(os.path.abspath(__file__)))
    return b"".join(line for line in lines if not line.startswith((own, b'  File "<string>"')))[-TAIL:]


class FunctionProcess:
    """A process that calls the function: a new interpreter, or a copy of this process.

    Args:
        step: the function, and how it is called.
        output: takes what the process prints; what is in it is discarded.

    Attributes:
        loaded: whether it has said that it loaded the function; set by the one who reads that.
    """

    _pipes: ClassVar[set[int]] = set()
    """Ends of the pipes of all processes: a copy closes those of the others, which would stay open with it."""

    def __init__(self, step: CallFunction, output: TemporaryFile, tmpdir: str | None) -> None:
        self.output = output
        self._timeout = step.timeout
        self.loaded = self._ended = False
        os.ftruncate(output.fd, 0)
        shared = TemporaryFile(tmpdir)
        os.ftruncate(shared.fd, PLACE.size)
        self.place = mmap(shared.fd, PLACE.size)
        write_place(self.place, IDLE)
        # -B: nothing is written beside the user's files. Sets of strings have the same order in every process and run.
        executable, *words = python_words("tarkit.proc.child", "main")
        python = ("env", "PYTHONHASHSEED=0", executable, "-B", "-X", "faulthandler", *words)
        copy = partial(ForkedChild, partial(work_in_copy, step.call, shared.fd), self._pipes)
        incoming, stdin = os.pipe()
        stdout, outgoing = os.pipe()
        self._fds = [stdin, stdout]
        self._pipes.update(self._fds)
        try:
            self.program = Program(
                python if step.named else (step.label,),
                stdin=incoming,
                stdout=outgoing,
                stderr=output.fd,
                pass_fds=(shared.fd,),
                popen=None if step.named else copy,
            )
        except BaseException:
            self.close_pipes()
            raise
        finally:
            os.close(incoming)
            os.close(outgoing)
        self._polls = select.poll(), select.poll()  # for reads, for writes; both wake up at the end of the process
        for poll, fd, event in zip(self._polls, (stdout, stdin), (select.POLLIN, select.POLLOUT), strict=True):
            widen(fd)
            os.set_blocking(fd, False)
            poll.register(fd, event)
            self.program.watch(poll)
        self._channel = Channel(stdout, stdin, self._wait)
        if step.named:
            try:
                self.send((step.call, shared.fd, errors.command_line))
            except EOFError:
                pass  # its output is read later

    def close_pipes(self) -> None:
        """Have it end, since it gets no more samples."""
        while self._fds:
            fd = self._fds.pop()
            self._pipes.discard(fd)
            os.close(fd)

    def send(self, value: Any) -> None:
        """Send a value. Raises EOFError when the process has ended."""
        try:
            self._channel.send(value)
        except BrokenPipeError:
            raise EOFError from None

    def receive(self) -> Any:
        """Return the next value. Raises EOFError when the process has ended, TimeoutError for a call that is late."""
        return self._channel.receive()

    def _wait(self, writing: bool) -> None:
        """Wait until a pipe is ready. The end of the process counts although others may hold its pipes open."""
        if self._ended:
            raise EOFError
        self._ended = self.program.ended()
        if self._ended:
            return  # what it wrote before is still in the pipe
        rest = None
        if self._timeout is not None and not writing:
            index, begun = self.where()
            rest = (time.monotonic() if index == IDLE else begun) + self._timeout - time.monotonic()
            if rest <= 0:
                raise TimeoutError
        if not self.program.wakes:
            rest = _POLL if rest is None else min(rest, _POLL)
        self._polls[writing].poll(None if rest is None else rest * 1000 + 1)

    def where(self) -> tuple[int, float]:
        """Return the index of the sample that it works on, IDLE or WHOLE, and the time at which it began."""
        return read_place(self.place)

    def unread_output(self) -> bytes:
        """Return the output that belongs to no result."""
        return self.output.read(0, PRINTED)


# ---- What is sent to a process, and what it returns


def pieces_of(jobs: Sequence[Job]) -> list[Piece]:
    """Return what is sent of some samples: pieces of archives. Samples that are adjacent are read at once."""
    runs: list[tuple[Source, int, int, list[tuple[bytes, list[Raw]]]]] = []
    for job in jobs:
        source = job.sample.source
        entries: list[Raw] = list(map(tuple, job.sample.raw))  # type: ignore[arg-type]
        start, stop = extent(entries)
        samples: list[tuple[bytes, list[Raw]]] = []
        if runs and runs[-1][0] is source and runs[-1][2] == start and stop - runs[-1][1] <= TOGETHER_BYTES:
            _, start, _, samples = runs.pop()
        samples.append((job.key, entries))
        runs.append((source, start, stop, samples))
    return [(source.name, start, source.read(start, stop), samples) for source, start, stop, samples in runs]


def new_samples(job: Job, made: Made) -> list[TarSample]:
    """Return the samples that were made of the sample of a job."""
    return [job.sample if new is None else sample_of(job.shard, *new) for new in made]
