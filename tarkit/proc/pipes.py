"""The pipes of a long-lived program; its end is noticed although other processes may hold them open."""

from __future__ import annotations

import os
import select
import time

from tarkit.streams.copy import CHUNK, widen
from tarkit.streams.process import Program

_POLL = 0.05  # seconds between two checks where the system has no pidfd


class ProgramEnded(Exception):
    """The program has ended, or closed the pipe."""


class TimedOut(Exception):
    """Nothing could be read in time."""


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
            TimedOut: none have come at the time `limit`, as `time.monotonic` has it.
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
        """Wait for an event, or the end of the program; return False once `limit` has come."""
        left = None if limit is None else limit - time.monotonic()
        if left is not None and left <= 0:
            return False
        if not self.program.wakes:
            left = _POLL if left is None else min(left, _POLL)
        poll.poll(None if left is None else left * 1000 + 1)
        return True

    def close(self) -> None:
        """Close both pipes."""
        for file in self._files:
            try:
                file.close()
            except BrokenPipeError:
                pass
