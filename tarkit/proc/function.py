"""proc --map: run samples through a Python function: `function_pool` says in which processes it is called.

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
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from mmap import mmap
from typing import Any, ClassVar

from tarkit import errors
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc.calls import FunctionOptions, Made, Piece, SampleFunction, each_sample, failure_of, name_of
from tarkit.proc.child import ENDS, IDLE, PLACE, PRINTED, REFUSED, WHOLE, Channel, Result, work_in_copy
from tarkit.proc.job import TAIL, Failure, Job, Outcome, RunOptions, WorkFailed, status_words
from tarkit.proc.pool import Act, JobWorker, Pool
from tarkit.proc.result import sample_of
from tarkit.samples.sample import TarSample
from tarkit.streams.command import Program, last_line
from tarkit.streams.copy import widen
from tarkit.streams.process import ForkedChild
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
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); from tarkit.proc import child; sys.path.remove({_ROOT!r}); "
    "child.main()"
)


@contextmanager
def function_pool(options: FunctionOptions, batch: int | None, run: RunOptions) -> Iterator[Pool]:
    """Yield what runs jobs through a function.

    The first process is started and has loaded the function when this yields.

    Args:
        options: the function.
        batch: samples in a call; None where the function takes one sample.
        run: number of processes, order and retries.

    Raises:
        TarkitError: the function cannot be loaded.
    """
    # a batch is N samples, whatever their size, so that the output is the same for any number of processes
    size = (TOGETHER, TOGETHER_BYTES, False) if batch is None else (batch, EVERY_SIZE, True)
    if not options.named and run.parallel == 1 and options.timeout is None:
        yield Pool(lambda: LocalWorker(options), run, batch or 1, EVERY_SIZE, exact=True, here=True)
        return
    prepared: list[FunctionWorker] = []
    try:
        for _ in range(1 if options.named else run.parallel):  # all copies, before there are threads
            prepared.append(FunctionWorker(options))
        prepared[0].load()
        with Pool(lambda: prepared.pop(0) if prepared else FunctionWorker(options), run, *size) as pool:
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

    def __init__(self, options: FunctionOptions) -> None:
        try:
            self.function = SampleFunction(options)
        except TarkitError as error:
            raise TarkitError(f"{options.where}: {error}", error.hint) from error.__cause__

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
    """A worker with a process that calls the function."""

    def __init__(self, options: FunctionOptions) -> None:
        self.options = options
        self._output = TemporaryFile(options.tmpdir)
        fcntl.fcntl(self._output.fd, fcntl.F_SETFL, os.O_APPEND)
        self._lock = threading.Lock()
        self._cancelled = False
        self._deaths = 0  # of processes that had no result, one after the other
        self._log: list[HeldRange] = []  # output that belongs to no sample; the next one gets it
        self._process: FunctionProcess | None = FunctionProcess(options, self._output)

    def load(self) -> FunctionProcess:
        """Return the process, which is started if there is none, and has loaded the function.

        Raises:
            TarkitError: it cannot.
            WorkFailed: the worker was ended.
        """
        with self._lock:
            if self._cancelled:
                raise WorkFailed("was cancelled")
            if self._process is None:
                self._process = FunctionProcess(self.options, self._output)
            process = self._process
        if not process.loaded:
            try:
                self._keep(self._reply(process))
            except EOFError:
                status = process.close()
                if self._cancelled:
                    raise WorkFailed("was cancelled") from None
                last = last_line(process.unread_output())
                words = f"{self.options.label}: the process {status_words(status)} before it had loaded the function"
                raise TarkitError(f"{words}: {last}" if last else words) from None
            process.loaded = True
        return process

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """Call the function with the sample of each job, or with a list of all; None for those not done at its end."""
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
            raise TarkitError(f"{self.options.where}: {message}", hint)
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
        status = process.close()
        place, begun = process.where()
        self._process = None
        output = process.unread_output()
        self._keep(output)
        if self._cancelled:
            raise WorkFailed("was cancelled")
        reason = f"the process that calls the function {status_words(status)}"
        if timed_out:
            reason, status = f"took longer than {self.options.timeout:g} s", -signal.SIGKILL
        self.lost = not self.options.named
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
            raise TarkitError(f"{self.options.label}: its process ended {MAX_DEATHS} times before it began a sample")

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

    def end(self, act: Act) -> None:
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                getattr(self._process.program, act)()

    def close(self) -> None:
        """Let the process end. Its status does not matter: all results are there."""
        process = self._process
        if process is not None:
            process.close()  # which `end` may cut short
            self._process = None


def _tail(output: bytes) -> bytes:
    """Return the end of the output, without the frames of tarkit that `faulthandler` prints."""
    lines = output.splitlines(keepends=True)
    own = b'  File "' + os.fsencode(os.path.dirname(os.path.abspath(__file__)))
    return b"".join(line for line in lines if not line.startswith((own, b'  File "<string>"')))[-TAIL:]


class FunctionProcess:
    """A process that calls the function: a new interpreter, or a copy of this process.

    Args:
        options: the function.
        output: takes what the process prints; what is in it is discarded.

    Attributes:
        loaded: whether it has said that it loaded the function; set by the one who reads that.
    """

    _pipes: ClassVar[set[int]] = set()
    """Ends of the pipes of all processes: a copy closes those of the others, which would stay open with it."""

    def __init__(self, options: FunctionOptions, output: TemporaryFile) -> None:
        self.options = options
        self.output = output
        self.loaded = self._ended = False
        os.ftruncate(output.fd, 0)
        shared = TemporaryFile(options.tmpdir)
        os.ftruncate(shared.fd, PLACE.size)
        self.place = mmap(shared.fd, PLACE.size)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        # -P: tarkit is imported before what is in the current directory; -B: nothing is written beside the user's
        # files. Sets of strings have the same order in every process and in every run.
        python = ("env", "PYTHONHASHSEED=0", sys.executable, "-P", "-B", "-X", "faulthandler", "-c", _START)
        copy = partial(ForkedChild, partial(work_in_copy, options, shared.fd), self._pipes)
        incoming, stdin = os.pipe()
        stdout, outgoing = os.pipe()
        self._fds = [stdin, stdout]
        self._pipes.update(self._fds)
        try:
            self.program = Program(
                python if options.named else (options.label,),
                stdin=incoming,
                stdout=outgoing,
                stderr=output.fd,
                pass_fds=(shared.fd,),
                popen=None if options.named else copy,
            )
        except BaseException:
            self._close_pipes()
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
        if options.named:
            try:
                self.send((options.portable, shared.fd, errors.command_line))
            except EOFError:
                pass  # its output is read later

    def _close_pipes(self) -> None:
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
        if self.options.timeout is not None and not writing:
            index, begun = self.where()
            rest = (time.monotonic() if index == IDLE else begun) + self.options.timeout - time.monotonic()
            if rest <= 0:
                raise TimeoutError
        if not self.program.wakes:
            rest = _POLL if rest is None else min(rest, _POLL)
        self._polls[writing].poll(None if rest is None else rest * 1000 + 1)

    def where(self) -> tuple[int, float]:
        """Return the index of the sample that it works on, IDLE or WHOLE, and the time at which it began."""
        seen = PLACE.unpack_from(self.place)
        while (again := PLACE.unpack_from(self.place)) != seen:  # it was being written
            seen = again
        return int(seen[0]), float(seen[1])

    def unread_output(self) -> bytes:
        """Return the output that belongs to no result."""
        return self.output.read(0, PRINTED)

    def close(self) -> int:
        """Let it end, with force after some time, and return its status."""
        self._close_pipes()
        if self.program.wait(PATIENCE) is None:  # a thread of the user's does not end
            self.options.tell(
                f"the process that called {name_of(self.options.function)} did not end, "
                f"and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0


# ---- What is sent to a process, and what it returns


def pieces_of(jobs: Sequence[Job]) -> list[Piece]:
    """Return what is sent of some samples: pieces of archives. Samples that are adjacent are read at once."""
    runs: list[tuple[Source, int, int, list[tuple[bytes, list[Raw]]]]] = []
    for job in jobs:
        source = job.sample.source
        entries: list[Raw] = list(map(tuple, job.sample.raw))  # type: ignore[arg-type]
        start, stop = (entries[0][1], entries[-1][4]) if entries else (0, 0)
        samples: list[tuple[bytes, list[Raw]]] = []
        if runs and runs[-1][0] is source and runs[-1][2] == start and stop - runs[-1][1] <= TOGETHER_BYTES:
            _, start, _, samples = runs.pop()
        samples.append((job.key, entries))
        runs.append((source, start, stop, samples))
    return [(source.name, start, source.read(start, stop), samples) for source, start, stop, samples in runs]


def new_samples(job: Job, made: Made) -> list[TarSample]:
    """Return the samples that were made of the sample of a job."""
    return [job.sample if new is None else sample_of(job.shard, *new) for new in made]
