"""Two-way traffic with a program through its stdin and stdout; its end is seen, whoever else has the pipes."""

from __future__ import annotations

import os
import select
import time

from tarkit.streams.copy import CHUNK, widen
from tarkit.streams.process import Program

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
