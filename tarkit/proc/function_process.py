"""A process that calls a Python function: a new interpreter, or a copy of this process.

`child` is what runs in it, and has the form of what is exchanged.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from marshal import dumps, loads
from mmap import mmap
from typing import Any, ClassVar
from weakref import WeakSet

from tarkit.proc.call import FunctionOptions
from tarkit.proc.child import IDLE, LENGTH, PLACE, PRINTED, main_of_fork
from tarkit.proc.pipes import ProgramEnded, ProgramPipes, TimedOut
from tarkit.streams.command import PIPE
from tarkit.streams.process import ForkedChild, Program
from tarkit.streams.tempfile import TemporaryFile

_JOINED = 1 << 20  # bytes; a smaller value is written together with its length
PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    "import sys; sys.path.insert(0, {root!r}); from tarkit.proc import child; sys.path.remove({root!r}); child.main()"
)


class ForkedProcess(ForkedChild):
    """A copy of this process that calls a function.

    Attributes:
        running: all of them; a copy closes the pipes of the others, which would stay open with it.
    """

    running: ClassVar[WeakSet[ForkedProcess]] = WeakSet()

    def __init__(self, settings: Mapping[str, Any], words: Sequence[str], *, stderr: int, **ignored: Any) -> None:
        self.stderr = None
        child_in, stdin = os.pipe()
        stdout, child_out = os.pipe()
        self.stdin, self.stdout = open(stdin, "wb", 0), open(stdout, "rb", 0)
        ForkedProcess.running.add(self)
        try:
            pid = os.fork()
        except OSError:
            os.close(child_in)
            os.close(child_out)
            self.stdin.close()
            self.stdout.close()
            raise
        if pid == 0:
            files = [file for each in ForkedProcess.running for file in (each.stdin, each.stdout)]
            main_of_fork(settings, (child_in, child_out, stderr), files)
        os.close(child_in)
        os.close(child_out)
        super().__init__(pid)


class FunctionProcess:
    """One process that calls the function.

    Args:
        options: the function.
        output: takes what the process prints; what is in it is discarded.

    Attributes:
        loaded: whether it has said that it loaded the function; set by the one who reads that.
    """

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
        length = LENGTH.pack(len(data))
        if len(data) < _JOINED:
            self.pipes.write(length + data)
        else:
            self.pipes.write(length)
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
        """Return when the current call has taken too long; where there is none, when to look again."""
        if self.options.timeout is None:
            return None
        index, begun = self.where()
        return (time.monotonic() if index == IDLE else begun) + self.options.timeout

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
        self.pipes.close()
        if self.program.wait(PATIENCE) is None:  # a thread of the user's does not end
            self.options.tell(
                f"the process that called {self.options.name} did not end, and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0
