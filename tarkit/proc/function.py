"""proc --map: samples go to a process that calls the user's function; what it hands back becomes samples.

Each hand has one process, which is started once and gets many small samples at a time. A process that dies while it
works on a sample has failed on that one; a new one goes on with what follows, and is given again the few whose results
died with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from marshal import dumps, loads
from mmap import mmap
from typing import Any

from tarkit.errors import TarkitError, show
from tarkit.proc import result as plain
from tarkit.proc.calling import split_spec
from tarkit.proc.child import IDLE, LENGTH, PLACE, SAID, WHOLE, Piece, Result
from tarkit.proc.engine import TAIL, BatchFailed, Failure, Job, Outcome, Words, status_words
from tarkit.streams.copy import CHUNK, widen
from tarkit.streams.process import PIPE, Program
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.reader import Raw

# ---- Two-way traffic with a program through its stdin and stdout; its end is seen, whoever else has the pipes

_LOOK = 0.05  # seconds between two looks where the system cannot wake us


class Gone(Exception):
    """The program has ended, or closed the pipe."""


class Late(Exception):
    """The time that was given is over."""


class Duplex:
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
        """Write all of `data`; raises Gone."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.stdin, view) :]
            except BlockingIOError:
                self._wait(self._writes, None)
                if self.program.ended():
                    raise Gone from None
            except BrokenPipeError:
                raise Gone from None

    def read(self, limit: float | None = None) -> bytes:
        """Some bytes; raises Gone at the end, and Late when none have come at `limit`, as `time.monotonic` has it."""
        while True:
            ended = self.program.ended()  # what it wrote before is still to be had
            try:
                data = os.read(self.stdout, CHUNK)
            except BlockingIOError:
                if ended:
                    raise Gone from None
                if not self._wait(self._reads, limit):
                    raise Late from None
                continue
            if not data:
                raise Gone
            return data

    def _wait(self, poll: select.poll, limit: float | None) -> bool:
        """Wait for anything to happen; False when the time is over."""
        left = None if limit is None else limit - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not self.program.wakes:
            left = _LOOK if left is None else min(left, _LOOK)
        poll.poll(None if left is None else left * 1000 + 1)
        return True

    def close(self) -> None:
        """Let go of both."""
        for file in self._files:
            try:
                file.close()
            except BrokenPipeError:
                pass


# ---- The process that calls the user's function, as `function` sees it; `child` is its own side

PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    "import sys; sys.path.insert(0, {root!r}); from tarkit.proc import child; sys.path.remove({root!r}); child.main()"
)


@dataclass(frozen=True)
class Call:
    """What is to be called, and how: MODULE:FUNCTION or FILE.py:FUNCTION, and `init` of that form once a process.

    With `batches` the function takes a list. `timeout` is in seconds, for one call; `mtime` is that of new entries.
    `tell` gets lines for the user. Raises TarkitError for what is of another form.
    """

    function: str
    init: str | None = None
    decode: bool = False
    pickles: bool = False
    batches: bool = False
    timeout: float | None = None
    tmpdir: str | None = None
    mtime: int | None = 0
    tell: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        for spec in (self.function, self.init):
            try:
                if spec is not None:
                    split_spec(spec)
            except ValueError:
                raise TarkitError(
                    f"{show(spec or '')} names no function", "it looks like package.module:function or file.py:function"
                ) from None


class FunctionProcess:
    """One process that calls the function, and what it has said."""

    def __init__(self, call: Call, said: TemporaryFile) -> None:
        self.call = call
        self.said = said
        self.loaded = False
        os.ftruncate(said.fd, 0)
        shared = TemporaryFile(call.tmpdir)
        os.ftruncate(shared.fd, PLACE.size)
        self.place = mmap(shared.fd, PLACE.size)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        # -P: not the folder where we are, before ours are imported; -B: nothing is written beside the user's files.
        # Sets of strings come in the same order in every process, and in every run.
        python = (sys.executable, "-P", "-B", "-X", "faulthandler", "-c", _START.format(root=_ROOT))
        self.program = Program(
            ("env", "PYTHONHASHSEED=0", *python), stdin=PIPE, stdout=PIPE, stderr=said.fd, pass_fds=(shared.fd,)
        )
        self.pipes = Duplex(self.program)
        self._buffer = bytearray()
        settings = {
            "function": call.function,
            "init": call.init,
            "decode": call.decode,
            "pickles": call.pickles,
            "batches": call.batches,
            "mtime": call.mtime,
            "place": shared.fd,
        }
        try:
            self.send(settings)
        except Gone:
            pass  # what it had to say is read later

    def send(self, value: Any) -> None:
        """Send a value; raises Gone."""
        data = dumps(value)
        self.pipes.write(LENGTH.pack(len(data)) + data if len(data) < SAID else LENGTH.pack(len(data)))
        if len(data) >= SAID:
            self.pipes.write(data)

    def receive(self) -> Any:
        """The next value; raises Gone, and Late when a call has taken too long."""
        buffer = self._buffer
        while len(buffer) < LENGTH.size or len(buffer) < LENGTH.size + LENGTH.unpack_from(buffer)[0]:
            try:
                buffer += self.pipes.read(self._limit())
            except Late:
                index, begun = self.where()
                if index != IDLE and self.call.timeout and time.monotonic() >= begun + self.call.timeout:
                    raise
        stop = LENGTH.size + LENGTH.unpack_from(buffer)[0]
        with memoryview(buffer) as view:
            value = loads(view[LENGTH.size : stop])
        del buffer[:stop]
        return value

    def _limit(self) -> float | None:
        if self.call.timeout is None:
            return None
        index, begun = self.where()
        return (time.monotonic() if index == IDLE else begun) + self.call.timeout

    def where(self) -> tuple[int, float]:
        """Which sample it works on, and since when."""
        seen = PLACE.unpack_from(self.place)
        while (again := PLACE.unpack_from(self.place)) != seen:  # it was just writing that
            seen = again
        return int(seen[0]), float(seen[1])

    def heard(self) -> bytes:
        """What it has said and not handed over."""
        return self.said.read(0, SAID)

    def close(self) -> int:
        """Let it end, and see to it that it does; its status."""
        self.pipes.close()
        if self.program.wait(PATIENCE) is None:  # a thread of the user's waits for what does not come
            self.call.tell(
                f"the process that called {self.call.function} did not end, and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0


TOGETHER = 256  # samples that are handed over at a time, when the function takes one
TOGETHER_BYTES = 1 << 20  # and as many bytes of them are read at a time
LARGEST = 1 << 31  # bytes that `marshal` does not take in one piece
IN_VAIN = 3  # processes that may end one after the other before they have begun anything


class Mappers:
    """Makes executors that call one function. `prepare` starts the first, so that errors come before any output."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._first: Mapper | None = None

    def prepare(self) -> None:
        """Start a process and wait until it has the function; raises TarkitError, in one line, if there is none."""
        self._first = Mapper(self.call)
        try:
            self._first.load()
        except BaseException:
            self.close()
            raise

    def __call__(self) -> Mapper:
        """The next executor."""
        first, self._first = self._first, None
        return first or Mapper(self.call)

    def close(self) -> None:
        """End the one that was prepared and not asked for."""
        if self._first is not None:
            self._first.cancel()
            self._first.close()


class Mapper:
    """One hand, with a process that calls the function; as `tarkit.proc.engine.Executor` has it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._said = TemporaryFile(call.tmpdir)
        fcntl.fcntl(self._said.fd, fcntl.F_SETFL, os.O_APPEND)
        self._lock = threading.Lock()
        self._over = False
        self._news: list[Words] = []  # that belong to no sample
        self._process: FunctionProcess | None = FunctionProcess(call, self._said)

    def load(self) -> None:
        """Wait until the process has the function; raises TarkitError if it has not."""
        process = self._running()
        if process.loaded:
            return
        try:
            error, hint, _, said = process.receive()
        except Gone:
            status = process.close()
            if self._over:
                raise BatchFailed(Failure("was given up")) from None
            last = process.heard().decode("utf-8", "backslashreplace").strip().splitlines()[-1:]
            words = f"--map {self.call.function}: the process {status_words(status)} before it had the function"
            raise TarkitError(": ".join((words, *last))) from None
        if error is not None:
            raise TarkitError(f"--map: {error}", hint)
        process.loaded = True
        self._note(said)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Call the function with each job's sample, or with all of them."""
        outcomes: list[Outcome | None] = [None] * len(jobs)
        for index, job in enumerate(jobs):
            if job.sample.size >= LARGEST:
                outcomes[index] = Outcome(failure=Failure("has 2 GiB or more, too much for --map"))
        todo = [index for index, outcome in enumerate(outcomes) if outcome is None]
        in_vain = 0
        while todo:
            before = len(todo)
            todo = self._some(jobs, outcomes, todo)
            in_vain = in_vain + 1 if len(todo) == before else 0
            if in_vain == IN_VAIN:
                what = "its process ends again and again before it does anything"
                raise TarkitError(f"--map {self.call.function}: {what}")
        return [outcome for outcome in outcomes if outcome is not None]

    def _some(self, jobs: Sequence[Job], outcomes: list[Outcome | None], todo: list[int]) -> list[int]:
        """Ask for those that are to do, and take what comes; those that are left when the process dies on the way."""
        self.load()
        process = self._running()
        done = 0
        late = False
        try:
            process.send(_pieces([jobs[index] for index in todo]))
            while done < len(todo):
                results = process.receive()
                if isinstance(results, dict) and "error" in results:
                    raise TarkitError(f"--map: {results['error']}", results["hint"])
                if isinstance(results, dict):  # a batch failed as one
                    self._note(results["said"])
                    raise BatchFailed(Failure(results["reason"], None, results["tail"], results["seconds"]))
                for result in results:
                    outcomes[todo[done]] = self._outcome(jobs[todo[done]], result)
                    done += 1
        except Late:
            late = True
            process.program.kill()
        except Gone:
            pass
        else:
            return []
        return self._died(process, outcomes, todo, done, late)

    def _died(
        self, process: FunctionProcess, outcomes: list[Outcome | None], todo: list[int], done: int, late: bool
    ) -> list[int]:
        status = process.close()
        place, begun = process.where()
        self._process = None
        said = process.heard()
        if self._over:
            raise BatchFailed(Failure("was given up"))
        reason = f"the process that calls the function {status_words(status)}"
        if late:
            reason, status = f"took longer than {self.call.timeout:g} s", -signal.SIGKILL
        failure = Failure(reason, status, _tail(said), max(0.0, time.monotonic() - begun))
        if place == WHOLE:
            self._note(said)
            raise BatchFailed(failure)
        if place == IDLE:
            self._note(said)
            return todo[done:]
        self._news, news = [], self._news
        words = [*news, Words(said)] if said else news
        outcomes[todo[place]] = Outcome(failure=failure, said=words, seconds=failure.seconds)
        return todo[done:place] + todo[place + 1 :]

    def _outcome(self, job: Job, result: Result) -> Outcome:
        made, failed, said, seconds = result
        words: Sequence[Words] = ()
        if said or self._news:
            self._news, news = [], self._news
            words = [*news, Words(said)] if said else news
        if made is None:
            reason, tail = failed or ("", b"")
            return Outcome((), Failure(reason, None, tail, seconds), words, seconds)
        return Outcome(
            [job.sample if each is None else plain.sample_of(job.shard, *each) for each in made], None, words, seconds
        )

    def _note(self, said: bytes) -> None:
        if said:
            self._news.append(Words(said))

    def _running(self) -> FunctionProcess:
        with self._lock:
            if self._over:
                raise BatchFailed(Failure("was given up"))
            if self._process is None:
                self._process = FunctionProcess(self.call, self._said)
            return self._process

    def cancel(self) -> None:
        """End the process; let no other be started."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.program.terminate()

    def kill(self) -> None:
        """The same, with force."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.program.kill()

    def close(self) -> None:
        """Let the process end. How it does is of no account: all that it was asked for is there."""
        process = self._process
        if process is not None:
            process.close()  # which `cancel` and `kill` may cut short
            self._process = None


def _tail(said: bytes) -> bytes:
    """The end of what was said, without what `faulthandler` tells of frames that are ours."""
    lines = said.splitlines(keepends=True)
    folder = b'  File "' + os.fsencode(os.path.dirname(os.path.abspath(__file__)))
    return b"".join(line for line in lines if not line.startswith((folder, b'  File "<string>"')))[-TAIL:]


def _pieces(jobs: list[Job]) -> list[Piece]:
    """What is sent of some samples; those that lie one behind the other are read at once."""
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
