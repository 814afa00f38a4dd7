"""One run of a --worker program: samples go in as one tar stream, and its answers come out as another.

It has three threads: one sends samples, the caller's reads answers, one copies stderr. The program may read ahead and
delay answers as it likes: samples are written without waiting for answers.

The rules by which answers are matched with samples: the answer to a sample is the entries with its key. Answers come in
the order of the samples; a sample that is skipped has no answer, and is removed. A key that was not sent, or comes too
late, is an error. Concatenated archives are one stream. The stream is complete when it ends with the end of an archive
and the program has read all of its input and ended with status 0.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.proc import result
from tarkit.proc.job import TAIL, BatchFailed, Failure, Job, Outcome, status_words
from tarkit.proc.pool import Act
from tarkit.proc.result import Content, SampleBuilder
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import KEYLESS, Recent, TarSample, key_of, split_name
from tarkit.streams.command import PIPE, Program
from tarkit.streams.copy import widen, write_all
from tarkit.streams.ranges import RangeSpool
from tarkit.streams.readers import DescriptorReader
from tarkit.streams.source import StreamSource
from tarkit.tar import block
from tarkit.tar.header import end_of_archive

HELD = 1 << 20  # bytes of a field of an answer from which on it is in a temporary file


def fields_of(sample: TarSample, spool: RangeSpool) -> list[tuple[bytes, Content]]:
    """Return the fields of an answer, large ones in a temporary file. Directories are skipped.

    Raises:
        BatchFailed: another entry has no key, or is not a regular file.
    """
    fields: list[tuple[bytes, Content]] = []
    source = sample.source
    for entry in sample.entries:
        if key_of(entry) is None:
            if entry.type not in KEYLESS:
                raise BatchFailed(Failure(f"the program answered {show(entry.name)}, which has no key"))
            continue
        if entry.type not in block.FILES or entry.sparse:
            raise BatchFailed(Failure(f"the program answered {show(entry.name)}, which is not a regular file"))
        stop = entry.data + entry.size
        _, field = split_name(entry.name) or (b"", b"")
        if entry.size < HELD:
            fields.append((field, source.read(entry.data, stop)))
        else:
            fields.append((field, spool.hold(source.name, entry.data, stop, source.send)))
    return fields


PATIENCE = 1.0  # seconds that a program gets to end after it has closed its output
POLL = 0.2  # seconds between two checks whether a program that does not read has ended

Take = Callable[[Callable[[], bool]], Sequence[Job] | None]
"""Waits for samples to be sent; None: there are no more, or the function that it gets says that none are wanted."""
Done = Callable[[Job, Outcome], None]


class SessionFailed(Exception):
    """The program ended early or broke a rule; `pending` are the samples that it was sent and has not answered."""

    def __init__(self, failure: Failure, pending: list[Job]) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.pending = pending


class Session:
    """One run of the program.

    Attributes:
        unsent: samples that were taken, and of which the program got nothing.
        late: the program took too long and was killed.
        unsure: a sample without answer may have had one.
        tail: the end of its stderr.
    """

    def __init__(self, words: list[str], builder: SampleBuilder, tmpdir: str | None = None) -> None:
        self.builder = builder
        self.tmpdir = tmpdir
        self.late = False
        self.unsure = False
        self.tail = b""
        self.unsent: deque[Job] = deque()
        self.timeout: float | None = None
        self.wake: Callable[[], None] = lambda: None
        self._spool = RangeSpool(tmpdir)
        self._sent: deque[Job] = deque()
        self._skipped = Recent()
        self._lock = threading.Lock()
        self._cancelled = self._all_sent = False
        self._failure: BaseException | None = None  # in the thread that writes
        self._length = self._written = self.status = 0  # bytes of samples, bytes of all
        self._writing = False
        self._active = time.monotonic()
        self._unread, self._stdin = os.pipe()  # the read end stays open: it tells what was not read
        try:
            self.program = Program(words, stdin=self._unread, stdout=PIPE, stderr=PIPE)
        except BaseException:
            os.close(self._unread)
            os.close(self._stdin)
            raise
        self._room = select.poll()
        self._room.register(self._stdin, select.POLLOUT)
        self.program.watch(self._room)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._stderr = threading.Thread(target=self._copy_stderr, daemon=True)

    # ---- reading

    def run(
        self, take: Take, done: Done, wake: Callable[[], None] = lambda: None, timeout: float | None = None
    ) -> None:
        """Send samples and read all answers.

        Args:
            take: returns samples to be sent.
            done: called with the answers.
            wake: has a `take` that waits return.
            timeout: seconds for which the program may neither read nor write when it could.

        Raises:
            SessionFailed: the program ended early or broke a rule.
            TarkitError: a sample could not be read.
        """
        self.take, self.done, self.wake, self.timeout = take, done, wake, timeout
        self._writer.start()
        self._stderr.start()
        assert self.program.process.stdout is not None
        fd = self.program.process.stdout.fileno()
        widen(fd)
        reader = _Watched(fd, self)
        problem: str | None = "its output cannot be read"
        try:
            self._answers(StreamSource(reader, "its output", self.tmpdir))
            problem = None
        except Problem as error:
            problem = f"its output: {error.detail}" if reader.got else "it wrote nothing, not even an empty archive"
        except BatchFailed as error:
            problem = error.failure.reason
        finally:
            self._stop(problem is None, reader.ended)
        if self._failure is not None:
            os.close(self._unread)
            raise self._failure
        self._check_end(problem, reader)

    def _stop(self, complete: bool, ended: bool) -> None:
        """Stop after the last answer. A program that has all its input ends by itself, any other is ended."""
        if not (complete and self._all_sent) and self.program.wait(PATIENCE if ended else 0) is None:
            self.program.end()
        self.status = self.program.wait() or 0
        self._cancelled = True
        self.wake()
        self._writer.join()
        self._stderr.join(PATIENCE)
        for file in (self.program.process.stdout, self.program.process.stderr):
            if file is not None:
                file.close()

    def _check_end(self, problem: str | None, reader: _Watched) -> None:
        """Raise SessionFailed if the stream is not complete; samples left have no answer."""
        ended, status = f"the program {status_words(self.status)}", None
        left = bytearray(4)
        fcntl.ioctl(self._unread, termios.FIONREAD, left)
        os.close(self._unread)
        unread = int.from_bytes(left, sys.byteorder)
        if self.late:
            problem, status = "the program took too long", self.status
        elif self.status != 0 and (problem is None or reader.ended):
            problem, status = ended, self.status
        elif problem is None and (not self._all_sent or self._written - unread < self._length):
            problem, status = f"{ended} before it had read all its input", self.status
        if problem is not None:
            raise SessionFailed(Failure(problem, status, self.tail), list(self._sent))
        while self._sent:
            self.done(self._sent.popleft(), Outcome())

    def _answers(self, source: StreamSource) -> None:
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
            sample = result.build_changed(job, fields, self.builder.mtime or 0) or self.builder(job, job.key, fields)
            outcome = Outcome((sample,))
        except BatchFailed as error:
            outcome = Outcome(failure=error.failure)
        with self._lock:
            self._sent.popleft()
        self.done(job, outcome)

    def _match(self, sample: TarSample) -> Job | None:
        """Return the job that is answered, which stays pending; those before it have no answer and are done."""
        if sample.key is None:
            fields_of(sample, self._spool)
            return None
        skipped = []
        with self._lock:
            for place, job in enumerate(self._sent):
                if job.key == sample.key:
                    skipped = [self._sent.popleft() for _ in range(place)]
                    break
            else:
                if self._skipped.add(sample.key):
                    self.unsure = True
                    late = "too late: a later sample was answered before it"
                    raise BatchFailed(Failure(f"the program answered {show(sample.key)} {late}"))
                what = f"the program answered {show(sample.key)}, which it was not sent, or answered before"
                raise BatchFailed(Failure(what))
        for each in skipped:
            self._skipped.add(each.key)
            self.done(each, Outcome())
        return job

    # ---- writing

    def _write(self) -> None:
        widen(self._stdin)
        os.set_blocking(self._stdin, False)
        last: bytes | None = None
        try:
            for job in self._taken():
                try:
                    if not job.inputs():
                        raise BatchFailed(Failure("has no field to send"))
                    if job.key == last:
                        raise BatchFailed(Failure("has the key of the sample before it: a reader would join the two"))
                except BatchFailed as error:
                    self.done(job, Outcome(failure=error.failure))
                    continue
                last = job.key
                with self._lock:
                    self._sent.append(job)
                self._send(job)
            if not self._cancelled:
                self._length = self._written
                self._all_sent = True
                self._put(end_of_archive(self._length))
        except BrokenPipeError:
            pass  # the program has ended, which the reader notices
        except BaseException as error:
            self._failure = error
        finally:
            self.touch()
            os.close(self._stdin)

    def _taken(self) -> Iterator[Job]:
        """Yield the samples to be sent."""
        while (jobs := self.take(lambda: self._cancelled)) is not None:
            self.unsent = deque(jobs)
            while self.unsent and not self._cancelled:
                yield self.unsent.popleft()

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
                if self._cancelled or self.program.ended():
                    raise BrokenPipeError from None
                self._room.poll(POLL * 1000)

    # ---- called by other threads

    def check_timeout(self) -> None:
        """Kill the program if it has work, and has neither read nor written for too long."""
        busy = self._writing or (self._all_sent and not self._cancelled)
        if busy and self.timeout is not None and time.monotonic() - self._active > self.timeout:
            self.late = True
            self.program.kill()

    def cancel(self, act: Act) -> None:
        """`terminate` the program, or `kill` it; further answers are ignored."""
        self._cancelled = True
        getattr(self.program, act)()
        self.wake()

    def touch(self) -> None:
        """Note that the program has read."""
        self._active = time.monotonic()
        self._writing = False

    def note_answer(self) -> None:
        """Note that the program has written."""
        self._active = time.monotonic()

    def _copy_stderr(self) -> None:
        assert self.program.process.stderr is not None
        fd = self.program.process.stderr.fileno()
        while data := os.read(fd, 4096):
            self.tail = (self.tail + data)[-TAIL:]
            try:
                write_all(2, data)
            except OSError:
                pass  # stderr is closed


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
        self.session.note_answer()
        self.got = self.got or got > 0
        self.ended = not got
        return got

    def fileno(self) -> int:
        raise OSError("each read is noted")
