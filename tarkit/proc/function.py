"""proc --map: samples go to worker processes that call a Python function; what it returns becomes samples.

Each executor has one worker process, which is started once and gets many small samples at a time. `child` is what runs
in the process.

A function that is named, FILE.py:FUNCTION, runs in a new interpreter. When it dies while it works on a sample, that one
has failed; a new process continues with the samples after it, and gets again the few whose results were lost.

A callable of the running process runs in copies of it (os.fork), or, with one worker, in the process itself. All copies
are made before the engine has threads, so one that dies is not replaced: the sample that it worked on has failed, and
other copies get the rest of those that were sent to it, again the few whose results were lost.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from marshal import dumps, loads
from mmap import mmap
from typing import Any, ClassVar, Self
from weakref import WeakSet

from tarkit import errors
from tarkit.errors import MissingLibrary, TarkitError, show
from tarkit.proc import result as results_of
from tarkit.proc.child import (
    IDLE,
    LENGTH,
    PLACE,
    PRINTED,
    WHOLE,
    NewSample,
    Piece,
    Result,
    SampleFunction,
    failure_of,
    load,
    main_of_fork,
    split_spec,
)
from tarkit.proc.engine import (
    TAIL,
    BatchFailed,
    Engine,
    Failure,
    Finished,
    HeldOutput,
    Job,
    Outcome,
    Runner,
    RunOptions,
    retried,
    status_words,
)
from tarkit.samples.sample import TarSample
from tarkit.streams.command import PIPE, last_line
from tarkit.streams.copy import CHUNK, widen
from tarkit.streams.process import Program
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.reader import Raw

# ---- The pipes of a program; its end is noticed although other processes may hold them open

_POLL = 0.05  # seconds between two checks where the system has no pidfd


class ProgramEnded(Exception):
    """The program has ended, or closed the pipe."""


class TimedOut(Exception):
    """Nothing came in time."""


class ProgramPipes:
    """The pipes of a program that was started with PIPE for its stdin and stdout."""

    def __init__(self, program: Program) -> None:
        self.program = program
        incoming, outgoing = program.process.stdin, program.process.stdout
        assert incoming is not None
        assert outgoing is not None
        self._files = (incoming, outgoing)
        self.stdin, self.stdout = incoming.fileno(), outgoing.fileno()
        self._reads, self._writes = select.poll(), select.poll()
        for fd, poll, event in ((self.stdin, self._writes, select.POLLOUT), (self.stdout, self._reads, select.POLLIN)):
            widen(fd)
            os.set_blocking(fd, False)
            poll.register(fd, event)
            program.watch(poll)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`. Raises ProgramEnded."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.stdin, view) :]
            except BlockingIOError:
                self._wait(self._writes, None)
                if self.program.ended():
                    raise ProgramEnded from None
            except BrokenPipeError:
                raise ProgramEnded from None

    def read(self, limit: float | None = None) -> bytes:
        """Return some bytes.

        Raises:
            ProgramEnded: there are no more.
            TimedOut: none have come at `limit`, as `time.monotonic` has it.
        """
        while True:
            ended = self.program.ended()  # before the read: what it wrote earlier is still in the pipe
            try:
                data = os.read(self.stdout, CHUNK)
            except BlockingIOError:
                if ended:
                    raise ProgramEnded from None
                if not self._wait(self._reads, limit):
                    raise TimedOut from None
                continue
            if not data:
                raise ProgramEnded
            return data

    def _wait(self, poll: select.poll, limit: float | None) -> bool:
        """Wait for an event; return whether there may be one before `limit`."""
        left = None if limit is None else limit - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not self.program.wakes:
            left = _POLL if left is None else min(left, _POLL)
        poll.poll(None if left is None else left * 1000 + 1)
        return True

    def close(self) -> None:
        """Close both."""
        for file in self._files:
            try:
                file.close()
            except BrokenPipeError:
                pass


# ---- What is called, and the process that calls it

PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    "import sys; sys.path.insert(0, {root!r}); from tarkit.proc import child; sys.path.remove({root!r}); child.main()"
)


@dataclass(frozen=True)
class FunctionOptions:
    """What is called, and how.

    Args:
        function: a callable, or MODULE:FUNCTION or FILE.py:FUNCTION.
        init: is called once in each process, before the function; of the same forms.
        decode: decode the fields and encode the results by the names of fields.
        pickles: decode pickles too.
        batches: the function takes and returns lists.
        timeout: seconds for one call.
        mtime: time of new entries, in seconds since 1970.
        tell: called with lines for the user.
        wrap: makes the argument of a callable from a sample; without it that is a dict of fields and `__key__`.
        encode: makes bytes of the value of a field that a callable returns; without it bytes and str are taken.

    Raises:
        TarkitError: `function` or `init` is a name of another form.
    """

    function: str | Callable[..., Any]
    init: str | Callable[[], Any] | None = None
    decode: bool = False
    pickles: bool = False
    batches: bool = False
    timeout: float | None = None
    tmpdir: str | None = None
    mtime: int | None = 0
    tell: Callable[[str], None] = lambda line: None
    wrap: Callable[[TarSample], Mapping[str, Any]] | None = None
    encode: Callable[[str, Any], bytes] | None = None

    def __post_init__(self) -> None:
        for spec in (self.function, self.init):
            try:
                if isinstance(spec, str):
                    split_spec(spec)
            except ValueError:
                raise TarkitError(
                    f"{show(str(spec))} is not the name of a function",
                    "names are package.module:function or file.py:function",
                ) from None

    @property
    def named(self) -> bool:
        """Whether the function is found by its name, in a new interpreter."""
        return isinstance(self.function, str)

    @property
    def name(self) -> str:
        """What messages call the function."""
        return _name_of(self.function)

    @property
    def label(self) -> str:
        """What messages call the run of the function."""
        return f"--map {self.name}" if self.named else f"map({self.name})"

    def settings(self, place: int) -> dict[str, Any]:
        """Return what the process gets; `place` is the descriptor of the memory that both share."""
        return {
            "functions": (self.function, self.init),
            "init_name": _name_of(self.init),
            "decode": self.decode,
            "pickles": self.pickles,
            "batches": self.batches,
            "mtime": self.mtime,
            "wrap": self.wrap,
            "encode": self.encode,
            "place": place,
            "command_line": errors.command_line,
        }


def _name_of(function: object) -> str:
    return function if isinstance(function, str) else str(getattr(function, "__qualname__", type(function).__name__))


class ForkedProcess:
    """A copy of this process that calls a function: what `Program` uses of `subprocess.Popen`."""

    running: ClassVar[WeakSet[ForkedProcess]] = WeakSet()

    def __init__(self, settings: Mapping[str, Any], words: Sequence[str], *, stderr: int, **ignored: Any) -> None:
        self.stderr = None
        self.returncode: int | None = None
        child_in, stdin = os.pipe()
        stdout, child_out = os.pipe()
        self.stdin, self.stdout = open(stdin, "wb", 0), open(stdout, "rb", 0)
        ForkedProcess.running.add(self)
        try:
            self.pid = os.fork()
        except OSError:
            os.close(child_in)
            os.close(child_out)
            self.stdin.close()
            self.stdout.close()
            raise
        if self.pid == 0:
            files = [file for each in ForkedProcess.running for file in (each.stdin, each.stdout)]
            main_of_fork(settings, (child_in, child_out, stderr), files)
        os.close(child_in)
        os.close(child_out)
        try:
            os.setpgid(self.pid, self.pid)  # the copy does that too, perhaps later
        except OSError:
            pass

    def poll(self) -> int | None:
        """Return the status if the process has ended."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of the process and return its status."""
        return self._waited(0) or 0

    def _waited(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


class FunctionProcess:
    """One process that calls the function, and its output."""

    def __init__(self, options: FunctionOptions, output: TemporaryFile) -> None:
        self.options = options
        self.output = output
        self.loaded = False
        os.ftruncate(output.fd, 0)
        shared = TemporaryFile(options.tmpdir)
        os.ftruncate(shared.fd, PLACE.size)
        self.place = mmap(shared.fd, PLACE.size)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        settings = options.settings(shared.fd)
        # -P: tarkit is imported before what is in the current directory; -B: nothing is written beside the user's
        # files. Sets of strings have the same order in every process and in every run.
        python = (sys.executable, "-P", "-B", "-X", "faulthandler", "-c", _START.format(root=_ROOT))
        self.program = Program(
            ("env", "PYTHONHASHSEED=0", *python) if options.named else (options.label,),
            stdin=PIPE,
            stdout=PIPE,
            stderr=output.fd,
            pass_fds=(shared.fd,),
            popen=None if options.named else partial(ForkedProcess, settings),
        )
        self.pipes = ProgramPipes(self.program)
        self._buffer = bytearray()
        if options.named:
            try:
                self.send(settings)
            except ProgramEnded:
                pass  # its output is read later

    def send(self, value: Any) -> None:
        """Send a value. Raises ProgramEnded."""
        data = dumps(value)
        self.pipes.write(LENGTH.pack(len(data)) + data if len(data) < PRINTED else LENGTH.pack(len(data)))
        if len(data) >= PRINTED:
            self.pipes.write(data)

    def receive(self) -> Any:
        """Return the next value. Raises ProgramEnded, and TimedOut when a call takes too long."""
        buffer = self._buffer
        while len(buffer) < LENGTH.size or len(buffer) < LENGTH.size + LENGTH.unpack_from(buffer)[0]:
            try:
                buffer += self.pipes.read(self._limit())
            except TimedOut:
                index, begun = self.where()
                timeout = self.options.timeout
                if index != IDLE and timeout and time.monotonic() >= begun + timeout:
                    raise
        stop = LENGTH.size + LENGTH.unpack_from(buffer)[0]
        with memoryview(buffer) as view:
            value = loads(view[LENGTH.size : stop])
        del buffer[:stop]
        return value

    def _limit(self) -> float | None:
        if self.options.timeout is None:
            return None
        index, begun = self.where()
        return (time.monotonic() if index == IDLE else begun) + self.options.timeout

    def where(self) -> tuple[int, float]:
        """Return the index of the sample that it works on, and the time at which it began."""
        seen = PLACE.unpack_from(self.place)
        while (again := PLACE.unpack_from(self.place)) != seen:  # it was being written
            seen = again
        return int(seen[0]), float(seen[1])

    def unread_output(self) -> bytes:
        """Return the output that belongs to no result."""
        return self.output.read(0, PRINTED)

    def close(self) -> int:
        """Let it end, with force after some time, and return its status."""
        self.pipes.close()
        if self.program.wait(PATIENCE) is None:  # a thread of the user's does not end
            self.options.tell(
                f"the process that called {self.options.name} did not end, and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0


# ---- Executors

TOGETHER = 256  # samples that are sent at a time, when the function takes one
TOGETHER_BYTES = 1 << 20  # bytes of samples that are read at a time
LARGEST = 1 << 31  # bytes that `marshal` does not take in one piece
MAX_DEATHS = 3  # processes that may end one after the other before they have begun a sample


@contextmanager
def function_runner(options: FunctionOptions, batch: int | None, run: RunOptions) -> Iterator[Runner]:
    """Yield what runs jobs through a function.

    The first process is started and has loaded the function when this yields. A callable runs in this process, in the
    thread that takes the results, when there is to be one worker and no timeout.

    Args:
        options: the function.
        batch: samples in a call; None where the function takes one sample.
        run: number of processes, order and retries.

    Raises:
        TarkitError: the function cannot be loaded.
    """
    if not options.named and run.parallel == 1 and options.timeout is None:
        yield DirectRunner(options, batch, run)
        return
    executors = FunctionExecutors(options)
    executors.prepare(1 if options.named else run.parallel)
    try:
        # a batch is N samples, whatever their size, so that the output is the same for any number of processes
        size = (TOGETHER, 1 << 20, False) if batch is None else (batch, 1 << 62, True)
        with Engine(executors, run, *size) as engine:
            yield engine
    finally:
        executors.close()


class FunctionExecutors:
    """Makes executors that call one function. `prepare` starts some, so that errors come before any output."""

    def __init__(self, options: FunctionOptions) -> None:
        self.options = options
        self._prepared: list[FunctionExecutor] = []

    def prepare(self, count: int = 1) -> None:
        """Start processes and wait until the first has loaded the function.

        Copies of this process are all made here, before there are threads.

        Raises:
            TarkitError: the function cannot be loaded.
        """
        try:
            for _ in range(count):
                self._prepared.append(FunctionExecutor(self.options))
            self._prepared[0].load()
        except BaseException:
            self.close()
            raise

    def __call__(self) -> FunctionExecutor:
        """Return the next executor."""
        return self._prepared.pop(0) if self._prepared else FunctionExecutor(self.options)

    def close(self) -> None:
        """End those that were prepared and not used."""
        for each in self._prepared:
            each.cancel()
        while self._prepared:
            self._prepared.pop().close()


class FunctionExecutor:
    """An executor with a process that calls the function."""

    def __init__(self, options: FunctionOptions) -> None:
        self.options = options
        self._output = TemporaryFile(options.tmpdir)
        fcntl.fcntl(self._output.fd, fcntl.F_SETFL, os.O_APPEND)
        self._lock = threading.Lock()
        self._cancelled = False
        self._lost = False
        self._unassigned: list[HeldOutput] = []  # output that belongs to no sample
        self._process: FunctionProcess | None = FunctionProcess(options, self._output)

    @property
    def lost(self) -> bool:
        """Whether the process has died and there is no other."""
        return self._lost

    def load(self) -> None:
        """Wait until the process has loaded the function. Raises TarkitError if it cannot."""
        process = self._running()
        if process.loaded:
            return
        try:
            error, hint, _, output = process.receive()
        except ProgramEnded:
            status = process.close()
            if self._cancelled:
                raise BatchFailed(Failure("was cancelled")) from None
            last = last_line(process.unread_output())
            words = f"{self.options.label}: the process {status_words(status)} before it had loaded the function"
            raise TarkitError(f"{words}: {last}" if last else words) from None
        if error is not None:
            raise TarkitError(f"{self.options.label.partition(' ')[0]}: {error}", hint)
        process.loaded = True
        self._keep_output(output)

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """Call the function with the sample of each job, or with a list of all; None if there is no process for it."""
        outcomes: list[Outcome | None] = [None] * len(jobs)
        for index, job in enumerate(jobs):
            if job.sample.size >= LARGEST:
                outcomes[index] = Outcome(failure=Failure("has 2 GiB or more, too much for a worker process"))
        todo = [index for index, outcome in enumerate(outcomes) if outcome is None]
        deaths = 0
        while todo and not self._lost:
            before = len(todo)
            todo = self._some(jobs, outcomes, todo)
            deaths = deaths + 1 if len(todo) == before else 0
            if deaths == MAX_DEATHS:
                raise TarkitError(
                    f"{self.options.label}: its process ended {MAX_DEATHS} times before it began a sample"
                )
        return outcomes

    def _some(self, jobs: Sequence[Job], outcomes: list[Outcome | None], todo: list[int]) -> list[int]:
        """Send the jobs `todo` and take their results; return those that are left when the process dies."""
        self.load()
        process = self._running()
        done = 0
        timed_out = False
        try:
            process.send(_pieces([jobs[index] for index in todo]))
            while done < len(todo):
                results = process.receive()
                if isinstance(results, dict) and "error" in results:
                    raise TarkitError(f"{self.options.label.partition(' ')[0]}: {results['error']}", results["hint"])
                if isinstance(results, dict):  # a batch failed as a whole
                    self._keep_output(results["output"])
                    raise BatchFailed(Failure(results["reason"], None, results["tail"], results["seconds"]))
                for result in results:
                    outcomes[todo[done]] = self._outcome(jobs[todo[done]], result)
                    done += 1
        except TimedOut:
            timed_out = True
            process.program.kill()
        except ProgramEnded:
            pass
        else:
            return []
        return self._died(process, jobs, outcomes, todo, done, timed_out)

    def _died(
        self,
        process: FunctionProcess,
        jobs: Sequence[Job],
        outcomes: list[Outcome | None],
        todo: list[int],
        done: int,
        timed_out: bool,
    ) -> list[int]:
        """Note the failure of the sample that the process died of; return the jobs that are left."""
        status = process.close()
        place, begun = process.where()
        self._process = None
        output = process.unread_output()
        if self._cancelled:
            raise BatchFailed(Failure("was cancelled"))
        reason = f"the process that calls the function {status_words(status)}"
        if timed_out:
            reason, status = f"took longer than {self.options.timeout:g} s", -signal.SIGKILL
        self._lost = not self.options.named
        failure = Failure(reason, status, _tail(output), max(0.0, time.monotonic() - begun), fatal=self._lost)
        if place == WHOLE:
            self._keep_output(output)
            if self._lost and len(todo) > 1:  # it is not known which of them it died of
                failure = failure._replace(reason=f"has no result, as its worker process died: {reason}")
            raise BatchFailed(failure)
        if place == IDLE:
            self._keep_output(output)
            return todo[done:]
        outcomes[todo[place]] = Outcome((), failure, self._with_unassigned(output), failure.seconds)
        return todo[done:place] + todo[place + 1 :]

    def _outcome(self, job: Job, result: Result) -> Outcome:
        made, failed, output, seconds = result
        log = self._with_unassigned(output) if output or self._unassigned else ()
        if made is None:
            reason, tail = failed or ("", b"")
            return Outcome((), Failure(reason, None, tail, seconds), log, seconds)
        return Outcome(_new_samples(job, made), None, log, seconds)

    def _keep_output(self, output: bytes) -> None:
        if output:
            self._unassigned.append(HeldOutput(output))

    def _with_unassigned(self, output: bytes) -> list[HeldOutput]:
        """Return the output that belonged to no sample, and this."""
        self._keep_output(output)
        log, self._unassigned = self._unassigned, []
        return log

    def _running(self) -> FunctionProcess:
        with self._lock:
            if self._cancelled:
                raise BatchFailed(Failure("was cancelled"))
            if self._process is None:
                self._process = FunctionProcess(self.options, self._output)
            return self._process

    def cancel(self) -> None:
        """End the process; start no other."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.program.terminate()

    def kill(self) -> None:
        """Kill the process; start no other."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.program.kill()

    def close(self) -> None:
        """Let the process end. Its status does not matter: all results are there."""
        process = self._process
        if process is not None:
            process.close()  # which `cancel` and `kill` may cut short
            self._process = None


class DirectRunner:
    """Calls a callable in this process, in the thread that takes the results: no worker, no copy, a debugger works.

    What the function prints is printed; what it raises is the cause of the error that ends the run.
    """

    def __init__(self, options: FunctionOptions, batch: int | None, run: RunOptions) -> None:
        self.options = options
        self.batch = batch
        self.run = run
        self._function: SampleFunction | None = None

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""
        try:
            self._function = load(self.options.settings(-1))
        except TarkitError as error:
            raise TarkitError(f"{self.options.label}: {error}", error.hint) from error.__cause__
        group: list[Job] = []
        for job in jobs:
            if job.passes:
                yield from self._finish(group)
                group = []
                yield job, Outcome((job.sample,))
                continue
            group.append(job)
            if len(group) >= (self.batch or 1):
                yield from self._finish(group)
                group = []
        yield from self._finish(group)

    def _finish(self, jobs: list[Job]) -> Iterator[Finished]:
        if jobs:
            for job, outcome in zip(jobs, retried(self._outcomes, jobs, self.run.retries), strict=True):
                assert outcome is not None
                yield job, outcome

    def _outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        assert self._function is not None
        samples = [(name, start, data, *each) for name, start, data, some in _pieces(list(jobs)) for each in some]
        started = time.monotonic()
        made: list[list[NewSample] | Exception]
        try:
            made = [self._function.one(*samples[0])] if self.batch is None else self._function.many(samples)
        except MissingLibrary:
            raise
        except Exception as error:
            failure = self._failure(error, time.monotonic() - started)
            if len(jobs) > 1:
                raise BatchFailed(failure) from error
            return [Outcome(failure=failure, seconds=failure.seconds)]
        seconds = (time.monotonic() - started) / len(jobs)
        return [
            Outcome(failure=self._failure(each, seconds), seconds=seconds)
            if isinstance(each, Exception)
            else Outcome(_new_samples(job, each), seconds=seconds)
            for job, each in zip(jobs, made, strict=True)
        ]

    def _failure(self, error: Exception, seconds: float) -> Failure:
        reason, tail = failure_of(error)
        return Failure(reason, None, tail, seconds, error=error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def _new_samples(job: Job, made: list[NewSample]) -> list[TarSample]:
    return [job.sample if each is None else results_of.sample_of(job.shard, *each) for each in made]


def _tail(output: bytes) -> bytes:
    """Return the end of the output, without the frames of tarkit that `faulthandler` prints."""
    lines = output.splitlines(keepends=True)
    own = b'  File "' + os.fsencode(os.path.dirname(os.path.abspath(__file__)))
    return b"".join(line for line in lines if not line.startswith((own, b'  File "<string>"')))[-TAIL:]


def _pieces(jobs: list[Job]) -> list[Piece]:
    """Return what is sent of some samples; samples that are adjacent are read at once."""
    pieces: list[Piece] = []
    runs: list[tuple[Source, int, int, list[tuple[bytes, list[Raw]]]]] = []
    for job in jobs:
        sample = job.sample
        entries: list[Raw] = list(map(tuple, sample.raw))  # type: ignore[arg-type]
        start, stop = (entries[0][1], entries[-1][4]) if entries else (0, 0)
        if runs and runs[-1][0] is sample.source and runs[-1][2] == start and stop - runs[-1][1] <= TOGETHER_BYTES:
            runs[-1][3].append((job.key, entries))
            runs[-1] = (*runs[-1][:2], stop, runs[-1][3])
        else:
            runs.append((sample.source, start, stop, [(job.key, entries)]))
    for source, start, stop, samples in runs:
        pieces.append((source.name, start, source.read(start, stop), samples))
    return pieces
