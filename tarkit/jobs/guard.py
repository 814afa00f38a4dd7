"""The process that ends jobs when tarkit is killed: after SIGKILL tarkit cannot do so itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from tarkit.jobs.quoting import python_words
from tarkit.jobs.strays import end_processes
from tarkit.streams.command import Program


class ProcessGuard:
    """A process that ends the steps of jobs when this process has been killed and cannot do so itself.

    It reads from a pipe which processes run, and sees that the pipe is closed.

    Attributes:
        fd: the end of the pipe that is written; a copy of this process closes it.
    """

    def __init__(self) -> None:
        read, self.fd = os.pipe()
        self._program = Program(python_words("tarkit.jobs.guard", "guard_input"), stdin=read)
        os.close(read)

    def began(self, pid: int) -> None:
        """Take note of a process, which leads its group."""
        self._tell(b"+%d\n" % pid)

    def ended(self, pids: Iterable[int]) -> None:
        """Take note that the processes of a job have ended, and their groups with them."""
        self._tell(b"-%s\n" % " ".join(map(str, pids)).encode())

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self.fd, line)
        except BrokenPipeError:
            pass  # it has been killed itself

    def close(self) -> None:
        """End it."""
        os.close(self.fd)
        self._program.wait()


def guard_input() -> None:
    """Guard the processes that stdin tells, in a process of its own."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    running: set[int] = set()
    with open(0, "rb") as lines:
        for line in lines:
            if line.startswith(b"+"):
                running.add(int(line[1:]))
            else:
                running.difference_update(map(int, line[1:].split()))
    if running:
        end_processes(sorted(running))
