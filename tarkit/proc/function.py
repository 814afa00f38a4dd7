"""proc --map: run samples through a Python function: `function_runner` says in which processes it is called.

Each executor has one worker process (`function_process`), which is started once and gets many small samples at a time.
`child` is what runs in the process. One executor, and no timeout: `direct` calls the function in this process.

A function that is named, FILE.py:FUNCTION, runs in a new interpreter. When it dies while it works on a sample, that one
has failed; a new process continues with the samples after it, and gets again the few whose results were lost.

A callable of the running process runs in copies of it (os.fork), or, with one worker, in the process itself. All copies
are made before the engine has threads, so one that dies is not replaced: the sample that it worked on has failed, and
other copies get the rest of those that were sent to it, again the few whose results were lost.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc.calls import FunctionOptions, NewSample, Piece, SampleFunction, each_sample, failure_of, load
from tarkit.proc.child import IDLE, WHOLE, Result
from tarkit.proc.function_process import FunctionProcess
from tarkit.proc.job import (
    TAIL,
    BatchFailed,
    Failure,
    Finished,
    Job,
    Outcome,
    Runner,
    RunOptions,
    status_words,
)
from tarkit.proc.pool import Act, BatchWorker, Pool, grouped, retried
from tarkit.proc.result import sample_of
from tarkit.samples.sample import TarSample
from tarkit.streams.command import last_line
from tarkit.streams.ranges import HeldRange
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.reader import Raw

TOGETHER_BYTES = 1 << 20  # bytes of samples that are read at a time
TOGETHER = 256  # samples that are sent at a time, when the function takes one
LARGEST = 1 << 31  # bytes that `marshal` does not take in one piece
EVERY_SIZE = 1 << 62  # bytes: a batch of N samples is one whatever their size
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
        yield partial(_call_here, options, batch, run.retries)
        return
    prepared: list[FunctionWorker] = []
    try:
        for _ in range(1 if options.named else run.parallel):  # all copies, before there are threads
            prepared.append(FunctionWorker(options))
        prepared[0].load()
        # a batch is N samples, whatever their size, so that the output is the same for any number of processes
        size = (TOGETHER, TOGETHER_BYTES, False) if batch is None else (batch, EVERY_SIZE, True)
        with Pool(lambda: prepared.pop(0) if prepared else FunctionWorker(options), run, *size) as pool:
            yield pool
    finally:
        for worker in prepared:  # which were not needed
            worker.end("terminate")
        for worker in prepared:
            worker.close()


class FunctionWorker(BatchWorker):
    """A worker with a process that calls the function."""

    def __init__(self, options: FunctionOptions) -> None:
        self.options = options
        self._output = TemporaryFile(options.tmpdir)
        fcntl.fcntl(self._output.fd, fcntl.F_SETFL, os.O_APPEND)
        self._lock = threading.Lock()
        self._cancelled = False
        self._unassigned: list[HeldRange] = []  # output that belongs to no sample; the next one gets it
        self._process: FunctionProcess | None = FunctionProcess(options, self._output)

    def load(self) -> None:
        """Wait until the process has loaded the function. Raises TarkitError if it cannot."""
        process = self._running()
        if process.loaded:
            return
        try:
            error, hint, _, output = process.receive()
        except EOFError:
            status = process.close()
            if self._cancelled:
                raise BatchFailed(Failure("was cancelled")) from None
            last = last_line(process.unread_output())
            words = f"{self.options.label}: the process {status_words(status)} before it had loaded the function"
            raise TarkitError(f"{words}: {last}" if last else words) from None
        if error is not None:
            raise TarkitError(f"{self.options.where}: {error}", hint)
        process.loaded = True
        self._keep_output(output)

    def run(self, jobs: Sequence[Job]) -> list[Outcome | None]:
        """Call the function with the sample of each job, or with a list of all; None if there is no process for it."""
        too_large = Outcome(failure=Failure("has 2 GiB or more, too much for a worker process"))
        outcomes = {id(job): too_large for job in jobs if job.sample.size >= LARGEST}
        deaths = 0
        while not self.lost and (todo := [job for job in jobs if id(job) not in outcomes]):
            before = len(outcomes)
            self._send(todo, outcomes)
            deaths = deaths + 1 if len(outcomes) == before else 0
            if deaths == MAX_DEATHS:
                raise TarkitError(
                    f"{self.options.label}: its process ended {MAX_DEATHS} times before it began a sample"
                )
        return [outcomes.get(id(job)) for job in jobs]

    def _send(self, jobs: list[Job], outcomes: dict[int, Outcome]) -> None:
        """Send jobs and take their results, until all are there or the process dies."""
        self.load()
        process = self._running()
        unanswered = deque(jobs)
        try:
            process.send(pieces_of(jobs))
            while unanswered:
                results = process.receive()
                if isinstance(results, dict) and "error" in results:
                    raise TarkitError(f"{self.options.where}: {results['error']}", results["hint"])
                if isinstance(results, dict):  # a batch failed as a whole
                    self._keep_output(results["output"])
                    raise BatchFailed(Failure(results["reason"], None, results["tail"], results["seconds"]))
                for result in results:
                    job = unanswered.popleft()
                    outcomes[id(job)] = self._outcome(job, result)
        except TimeoutError:
            process.program.kill()
            self._process_died(process, jobs, outcomes, timed_out=True)
        except EOFError:
            self._process_died(process, jobs, outcomes, timed_out=False)

    def _process_died(
        self, process: FunctionProcess, jobs: list[Job], outcomes: dict[int, Outcome], timed_out: bool
    ) -> None:
        """Set the outcome of the sample that the process died of.

        Raises:
            BatchFailed: it worked on all of them together, or was cancelled.
        """
        status = process.close()
        place, begun = process.where()
        self._process = None
        output = process.unread_output()
        if self._cancelled:
            raise BatchFailed(Failure("was cancelled"))
        reason = f"the process that calls the function {status_words(status)}"
        if timed_out:
            reason, status = f"took longer than {self.options.timeout:g} s", -signal.SIGKILL
        self.lost = not self.options.named
        failure = Failure(reason, status, _tail(output), max(0.0, time.monotonic() - begun), fatal=self.lost)
        if place == WHOLE:
            self._keep_output(output)
            if self.lost and len(jobs) > 1:  # it is not known which of them it died of
                failure = failure._replace(reason=f"has no result, as its worker process died: {reason}")
            raise BatchFailed(failure)
        if place == IDLE or id(jobs[place]) in outcomes:
            self._keep_output(output)
        else:
            log = self._with_unassigned(output)
            outcomes[id(jobs[place])] = Outcome((), failure, log, failure.seconds)

    def _outcome(self, job: Job, result: Result) -> Outcome:
        """Return the outcome of a job for the result that the process sent."""
        made, failed, output, seconds = result
        log = self._with_unassigned(output) if output or self._unassigned else ()
        if made is None:
            reason, tail = failed or ("", b"")
            return Outcome((), Failure(reason, None, tail, seconds), log, seconds)
        return Outcome(new_samples(job, made), None, log, seconds)

    def _keep_output(self, output: bytes) -> None:
        """Keep output that belongs to no sample."""
        if output:
            self._unassigned.append(HeldRange("output", 0, output))

    def _with_unassigned(self, output: bytes) -> list[HeldRange]:
        """Return the output that belonged to no sample, and this."""
        self._keep_output(output)
        log, self._unassigned = self._unassigned, []
        return log

    def _running(self) -> FunctionProcess:
        """Return the process; start it if there is none. Raises BatchFailed once the executor was cancelled."""
        with self._lock:
            if self._cancelled:
                raise BatchFailed(Failure("was cancelled"))
            if self._process is None:
                self._process = FunctionProcess(self.options, self._output)
            return self._process

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


# ---- A function that is called in this process


def _call_here(options: FunctionOptions, batch: int | None, retries: int, jobs: Iterator[Job]) -> Iterator[Finished]:
    """Call a callable in the thread that takes the results, so that a debugger works; yield jobs with their outcomes.

    What the function prints is printed; what it raises is the cause of the error that ends the run.
    """
    try:
        function = load(options)
    except TarkitError as error:
        raise TarkitError(f"{options.label}: {error}", error.hint) from error.__cause__
    for group in grouped(jobs, lambda: batch or 1, EVERY_SIZE):
        if group[0].passes:
            yield group[0], Outcome((group[0].sample,))
            continue
        run = partial(_outcomes, function, batch is not None)
        for job, outcome in zip(group, retried(run, group, retries), strict=True):
            assert outcome is not None
            yield job, outcome


def _outcomes(function: SampleFunction, batches: bool, jobs: Sequence[Job]) -> list[Outcome]:
    """Call the function with the samples of jobs. Raises BatchFailed when a call with several fails."""
    samples = list(each_sample(pieces_of(list(jobs))))
    started = time.monotonic()

    def failed(error: Exception, seconds: float) -> Outcome:
        reason, tail = failure_of(error)
        return Outcome(failure=Failure(reason, None, tail, seconds, error=error), seconds=seconds)

    made: list[list[NewSample] | Exception]
    try:
        made = function.many(samples) if batches else [function.one(samples[0])]
    except MissingLibrary:
        raise
    except Exception as error:
        outcome = failed(error, time.monotonic() - started)
        if len(jobs) > 1 and outcome.failure is not None:
            raise BatchFailed(outcome.failure) from error
        return [outcome]
    seconds = (time.monotonic() - started) / len(jobs)
    return [
        failed(each, seconds) if isinstance(each, Exception) else Outcome(new_samples(job, each), seconds=seconds)
        for job, each in zip(jobs, made, strict=True)
    ]


def pieces_of(jobs: list[Job]) -> list[Piece]:
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


def new_samples(job: Job, made: list[NewSample]) -> list[TarSample]:
    """Return the samples that were made of the sample of a job."""
    return [job.sample if each is None else sample_of(job.shard, *each) for each in made]
