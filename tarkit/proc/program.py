"""proc --worker: N long-lived programs get samples as a tar stream and answer with another.

A program may read ahead and delay answers without limit: samples are written without waiting for answers, and the pool
gives more of them to the program that has the next result, whatever the others have done.

The rules by which answers are matched with samples: the answer to a sample is the entries with its key. Answers come in
the order of the samples; a sample that is skipped has no answer, and is removed. A key that was not sent, or comes too
late, is an error. Concatenated archives are one stream. The stream is complete when it ends with the end of an archive
and the program has read all of its input and ended with status 0.

When a program dies, it is not known which of its pending samples was the cause. If failures do not end the run, these
samples are sent to new programs by halves, each as a complete input, until those that fail are alone.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from tarkit.errors import Problem, TarkitError, show, spell, status_words
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import digest
from tarkit.problems import Policy
from tarkit.proc.job import Failure, Job, Outcome, WorkFailed, find_program
from tarkit.proc.pool import Act, JobBatch, JobWorker, Pool
from tarkit.proc.result import Content, SampleBuilder
from tarkit.proc.step import SampleWork
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import KEYLESS, Recent, TarSample, key_of, split_name
from tarkit.streams.command import PIPE, Program, last_line
from tarkit.streams.copy import widen
from tarkit.streams.ranges import RangeSpool
from tarkit.streams.readers import DescriptorReader
from tarkit.streams.source import StreamSource
from tarkit.streams.terminal import PassedOn
from tarkit.tar import block
from tarkit.tar.header import end_of_archive

TOGETHER = 64  # samples that one program gets before the next one
HELD = 1 << 20  # bytes of a field of an answer from which on it is in a temporary file
MAX_FAILURES = 50  # samples that may fail before a program that has never answered is an error
IDLE = 2  # programs that may die one after the other without a pending sample
SHOWN = 5  # keys of pending samples in a message
PATIENCE = 1.0  # seconds that a program gets to end after it has closed its output
POLL = 0.2  # seconds between two checks whether a program that does not read has ended


class RunProgram(SampleWork):
    """Send samples to long-lived programs that read and write tar streams."""

    command: str = ""
    name = "worker"

    @property
    def code(self) -> str:
        """A hash of the command, in which there may be passwords."""
        return digest(os.fsencode(self.command))

    def pool(self, run: Run, tmpdir: str | None = None) -> Pool:
        words = [find_program("bash", os.environ.get("PATH", os.defpath)), "-o", "pipefail", "-c", "--", self.command]
        return Pool(lambda: ProgramWorker(self, words, tmpdir), **self.way, batch=TOGETHER, exact=True)


class ProgramWorker(JobWorker):
    """Runs one program at a time, and starts another one when it dies.

    Args:
        step: the program, and what becomes of failures.

    Attributes:
        session: the run of the program.
    """

    streams = True

    def __init__(self, step: RunProgram, words: list[str], tmpdir: str | None) -> None:
        super().__init__()
        self.step = step
        self.words = words
        self.tmpdir = tmpdir
        self.session: Session | None = None
        self._isolates = not step.stops or step.retries > 0  # find out which sample the program died of
        self._failed = self._idle = 0

    def work(self, pool: Pool) -> None:
        answered = False
        while (batch := pool.take(self)) is not None:
            session = self.session = Session(pool, self, batch)
            failure = session.run()
            answered = answered or session.answered
            if self.cancelled:
                return
            pending = list(session.sent)
            if batch.alone:
                pending += session.unsent
            else:
                pool.give_back(list(session.unsent))
            if failure is None:
                continue
            self._idle = 0 if pending else self._idle + 1
            last = not pending and (batch.alone or self._idle > IDLE or pool.is_drained())
            if not self._isolates or session.unsure or last:
                raise TarkitError(self._message(failure, pending))
            if batch.alone and len(batch.jobs) == 1:
                self._failed += 1
                if self._failed > MAX_FAILURES * (1 + self.step.retries) and not answered:
                    raise TarkitError(self._message(failure, pending))
                pool.report(batch.jobs[0], Outcome(failure=failure))
            else:
                pool.halve(pending)

    def _message(self, failure: Failure, pending: list[Job]) -> str:
        """Return what went wrong, and the pending samples, for a message."""
        text = f"{spell('worker')} {self.step.command}: {failure.reason}"
        if pending:
            more = f" and {len(pending) - SHOWN} more" if len(pending) > SHOWN else ""
            text += f"; pending samples: {', '.join(show(job.key) for job in pending[:SHOWN])}{more}"
        last = last_line(failure.tail)
        return f"{text}: {last}" if last else text

    def end(self, act: Act) -> None:
        """End the program; further answers are ignored."""
        super().end(act)
        if self.session is not None:
            self.session.stopped = True


class Session:
    """One run of the program: samples go in as one tar stream, and its answers come out as another.

    It has three threads: one sends samples, the caller's reads answers, one copies stderr.

    Args:
        pool: gives samples and gets the answers.
        worker: what the session belongs to, which has the program.
        batch: the first samples; if it is alone, all.

    Attributes:
        unsent: samples that were taken, and of which the program got nothing.
        sent: samples that have no answer yet.
        answered: the program has given a valid answer.
        unsure: a sample without answer may have had one.
        stopped: no more samples are sent, and further answers are ignored.
    """

    def __init__(self, pool: Pool, worker: ProgramWorker, batch: JobBatch) -> None:
        self.timeout = worker.step.timeout
        self.pool = pool
        self.worker = worker
        self.batch = batch
        self.answered = self.unsure = False
        self.unsent: deque[Job] = deque(batch.jobs)
        self.sent: deque[Job] = deque()
        self.touched = time.monotonic()  # when the program has read or written
        self._late = self.stopped = self._writing = self._all_sent = False
        self._spool = RangeSpool(worker.tmpdir)
        self._builder = SampleBuilder(worker.step.mtime)
        self._skipped = Recent()
        self._lock = threading.Lock()
        self._error: BaseException | None = None  # in the thread that writes
        self._length = self._written = 0  # bytes of samples, bytes of all
        self._unread, self._stdin = os.pipe()  # the read end stays open: it tells what was not read
        try:
            self.program = worker.start(lambda: Program(worker.words, stdin=self._unread, stdout=PIPE, stderr=PIPE))
        except BaseException:
            os.close(self._unread)
            os.close(self._stdin)
            raise
        self._room = select.poll()
        self._room.register(self._stdin, select.POLLOUT)
        self.program.watch(self._room)
        self._writer = threading.Thread(target=self._write, daemon=True)

    # ---- reading

    def run(self) -> Failure | None:
        """Send samples and read all answers; return why the program ended early or which rule it broke.

        Raises:
            TarkitError: a sample could not be read.
        """
        self._writer.start()
        assert self.program.process.stdout is not None
        assert self.program.process.stderr is not None
        self._stderr = PassedOn(self.program.process.stderr)
        fd = self.program.process.stdout.fileno()
        widen(fd)
        reader = _Watched(fd, self)
        problem: str | None = "its output cannot be read"
        try:
            self._read_answers(StreamSource(reader, "its output", self.worker.tmpdir))
            problem = None
        except Problem as error:
            problem = f"its output: {error.detail}" if reader.got else "it wrote nothing, not even an empty archive"
        except WorkFailed as error:
            problem = error.failure.reason
        finally:
            status = self._stop(problem is None, reader.ended)
            unread = bytearray(4)
            fcntl.ioctl(self._unread, termios.FIONREAD, unread)
            os.close(self._unread)
        if self._error is not None:
            raise self._error
        read = self._written - int.from_bytes(unread, sys.byteorder)
        ended = f"the program {status_words(status)}"
        if self._late:
            return Failure("the program took too long", status, self._stderr.tail)
        if status != 0 and (problem is None or reader.ended):
            return Failure(ended, status, self._stderr.tail)
        if problem is None and (not self._all_sent or read < self._length):
            return Failure(f"{ended} before it had read all its input", status, self._stderr.tail)
        if problem is not None:
            return Failure(problem, None, self._stderr.tail)
        while self.sent:
            self._report(self.sent.popleft(), Outcome())
        return None

    def _stop(self, complete: bool, ended: bool) -> int:
        """Stop after the last answer. A program that has all its input ends by itself, any other is ended."""
        if not (complete and self._all_sent) and self.program.wait(PATIENCE if ended else 0) is None:
            self.program.end()
        status = self.program.wait() or 0
        self.stopped = True
        self.pool.wake()
        self._writer.join()
        self._stderr.join(PATIENCE)
        for file in (self.program.process.stdout, self.program.process.stderr):
            if file is not None:
                file.close()
        return status

    def _read_answers(self, source: StreamSource) -> None:
        job: Job | None = None
        fields: list[tuple[bytes, Content]] = []
        for sample in SampleReader(source, Policy(allow=("trailing-data", "scattered-sample"))):
            if job is None or sample.key != job.key:  # the parts of an answer may be in two archives
                self._finish(job, fields)
                job, fields = self._match(sample), []
            fields += fields_of(sample, self._spool)
        self._finish(job, fields)

    def _finish(self, job: Job | None, fields: list[tuple[bytes, Content]]) -> None:
        if job is None:
            return
        try:
            outcome = Outcome((self._builder(job, job.key, fields),))
        except WorkFailed as error:
            outcome = _refused(error)
        with self._lock:
            self.sent.popleft()
        self._report(job, outcome)

    def _report(self, job: Job, outcome: Outcome) -> None:
        self.answered = self.answered or outcome.failure is None
        self.pool.report(job, outcome)

    def _match(self, sample: TarSample) -> Job | None:
        """Return the job that is answered, which stays pending; those before it have no answer and are done."""
        if sample.key is None:
            fields_of(sample, self._spool)
            return None
        if self.sent and self.sent[0].key == sample.key:
            return self.sent[0]
        with self._lock:
            place = next((place for place, job in enumerate(self.sent) if job.key == sample.key), None)
            skipped = [self.sent.popleft() for _ in range(place or 0)]
        for job in skipped:
            self._skipped.add(job.key)
            self._report(job, Outcome())
        if place is not None:
            return self.sent[0]
        if self._skipped.add(sample.key):
            self.unsure = True
            raise WorkFailed(f"the program answered {show(sample.key)} too late: a later sample was answered before it")
        raise WorkFailed(f"the program answered {show(sample.key)}, which it was not sent, or answered before")

    # ---- writing

    def _write(self) -> None:
        widen(self._stdin)
        os.set_blocking(self._stdin, False)
        last: bytes | None = None
        try:
            for job in self._taken():
                try:
                    if not job.inputs():
                        raise WorkFailed("has no field to send")
                    if job.key == last:
                        raise WorkFailed("has the key of the sample before it: a reader would join the two")
                except WorkFailed as error:
                    self._report(job, _refused(error))
                    continue
                last = job.key
                with self._lock:
                    self.sent.append(job)
                self._send(job)
            if not self.stopped:
                self._length = self._written
                self._all_sent = True
                self._put(end_of_archive(self._length))
        except BrokenPipeError:
            pass  # the program has ended, which the reader notices
        except BaseException as error:
            self._error = error
        finally:
            self.touch()
            os.close(self._stdin)

    def _taken(self) -> Iterator[Job]:
        """Yield the samples to be sent."""
        while True:
            while self.unsent and not self.stopped:
                yield self.unsent.popleft()
            if self.stopped or self.batch.alone:
                return
            batch = self.pool.take(self.worker, lambda: self.stopped)
            if batch is None:
                return
            self.unsent.extend(batch.jobs)

    def _send(self, job: Job) -> None:
        """Send the entries of a sample that have its key, as they are."""
        source, entries = job.sample.source, job.sample.entries
        whole = job.piece(entries[0].start, entries[-1].stop)
        if whole is not None and len(entries) == len(job.inputs()):  # all have the key
            self._put(whole)
            return
        for entry in entries:
            if key_of(entry) is None:
                continue
            piece = job.piece(entry.start, entry.stop)
            if piece is not None:
                self._put(piece)
            else:
                for start in range(entry.start, entry.stop, HELD):
                    self._put(source.read(start, min(start + HELD, entry.stop)))

    def _put(self, data: bytes) -> None:
        """Write to the program. Raises BrokenPipeError when it has ended."""
        view = memoryview(data)
        while view:
            try:
                done = os.write(self._stdin, view)
                self._written += done
                view = view[done:]
                self.touch()
            except BlockingIOError:
                self._writing = True
                if self.stopped or self.program.ended():
                    raise BrokenPipeError from None
                self._room.poll(POLL * 1000)

    # ---- called by other threads

    def check_timeout(self) -> None:
        """Kill the program if it has work, and has neither read nor written for too long."""
        busy = self._writing or (self._all_sent and not self.stopped)
        limit = self.timeout
        if busy and limit is not None and time.monotonic() - self.touched > limit:
            self._late = True
            self.program.kill()

    def touch(self) -> None:
        """Note that the program has read."""
        self.touched = time.monotonic()
        self._writing = False


def _refused(error: WorkFailed) -> Outcome:
    """Return the outcome of a sample that cannot be sent, or whose answer is invalid: once is enough."""
    return Outcome(failure=error.failure._replace(fatal=True))


def fields_of(sample: TarSample, spool: RangeSpool) -> list[tuple[bytes, Content]]:
    """Return the fields of an answer, large ones in a temporary file. Directories are skipped.

    Raises:
        WorkFailed: another entry has no key, or is not a regular file.
    """
    fields: list[tuple[bytes, Content]] = []
    source = sample.source
    for entry in sample.entries:
        if key_of(entry) is None:
            if entry.type not in KEYLESS:
                raise WorkFailed(f"the program answered {show(entry.name)}, which has no key")
            continue
        if entry.type not in block.FILES or entry.sparse:
            raise WorkFailed(f"the program answered {show(entry.name)}, which is not a regular file")
        stop = entry.data + entry.size
        _, field = split_name(entry.name) or (b"", b"")
        if entry.size < HELD:
            fields.append((field, source.read(entry.data, stop)))
        else:
            fields.append((field, spool.hold(source.name, entry.data, stop, source.send)))
    return fields


class _Watched(DescriptorReader):
    """The program's output; notes when there is some."""

    def __init__(self, fd: int, session: Session) -> None:
        super().__init__(fd)
        self.session = session
        self.got = self.ended = False
        self._answers = select.poll()
        self._answers.register(fd, select.POLLIN)

    def readinto(self, view: Any, /) -> int:
        if self.session.timeout is not None:
            while not self._answers.poll(POLL * 1000):
                self.session.check_timeout()
        got = super().readinto(view)
        self.session.touched = time.monotonic()
        self.got = self.got or got > 0
        self.ended = not got
        return got

    def fileno(self) -> int:
        raise OSError("each read is noted")
