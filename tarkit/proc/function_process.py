"""A process that calls a Python function: a new interpreter, or a copy of this process.

`child` is what runs in it, and has the form of what is exchanged.
"""

from __future__ import annotations

import os
import select
import sys
import time
from functools import partial
from mmap import mmap
from typing import Any, ClassVar

from tarkit import errors
from tarkit.proc.calls import FunctionOptions
from tarkit.proc.child import IDLE, PLACE, PRINTED, Channel, work_in_copy
from tarkit.streams.command import Program
from tarkit.streams.copy import widen
from tarkit.streams.process import ForkedChild
from tarkit.streams.tempfile import TemporaryFile

PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_POLL = 0.05  # seconds between two checks where the system has no pidfd
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    "import sys; sys.path.insert(0, {root!r}); from tarkit.proc import child; sys.path.remove({root!r}); child.main()"
)


class FunctionProcess:
    """One process that calls the function.

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
        python = (sys.executable, "-P", "-B", "-X", "faulthandler", "-c", _START.format(root=_ROOT))
        copy = partial(ForkedChild, partial(work_in_copy, options, shared.fd), self._pipes)
        incoming, stdin = os.pipe()
        stdout, outgoing = os.pipe()
        self._fds = [stdin, stdout]
        self._pipes.update(self._fds)
        try:
            self.program = Program(
                ("env", "PYTHONHASHSEED=0", *python) if options.named else (options.label,),
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
        left = None
        if self.options.timeout is not None and not writing:
            index, begun = self.where()
            left = (time.monotonic() if index == IDLE else begun) + self.options.timeout - time.monotonic()
            if left <= 0:
                raise TimeoutError
        if not self.program.wakes:
            left = _POLL if left is None else min(left, _POLL)
        self._polls[writing].poll(None if left is None else left * 1000 + 1)

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
                f"the process that called {self.options.name} did not end, and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0
