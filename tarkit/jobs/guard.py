"""The process that ends jobs when tarkit is killed: after SIGKILL tarkit cannot do so itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from tarkit.jobs.strays import end_processes
from tarkit.streams.command import Program
from tarkit.streams.process import python_words


class ProcessGuard:
    """A process that ends the steps of jobs when this process has been killed and cannot do so itself.

    It reads from a pipe the marks of jobs, before they begin, and their processes, and sees that the pipe is closed.

    Attributes:
        fd: the end of the pipe that is written; a copy of this process closes it.
    """

    def __init__(self) -> None:
        read, self.fd = os.pipe()
        self._program = Program(python_words("tarkit.jobs.guard", "guard_input"), stdin=read)
        os.close(read)

    def began(self, process: int | bytes) -> None:
        """Record a process, which leads its group; or the mark of a job that is about to begin."""
        self._tell(b"+%b\n" % _word(process))

    def ended(self, processes: Iterable[int | bytes]) -> None:
        """Take note that a job has ended: its processes, and their groups with them, and its mark."""
        self._tell(b"-%b\n" % b" ".join(map(_word, processes)))

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self.fd, line)
        except BrokenPipeError:
            pass  # it has been killed itself

    def close(self) -> None:
        """End it."""
        os.close(self.fd)
        self._program.wait()


def _word(process: int | bytes) -> bytes:
    return process if isinstance(process, bytes) else b"%d" % process


def guard_input() -> None:
    """Guard the processes that stdin tells, in a process of its own."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    running: set[bytes] = set()
    with open(0, "rb") as lines:
        for line in lines:
            if line.startswith(b"+"):
                running.add(line[1:].strip())
            else:
                running.difference_update(line[1:].split())
    if running:
        leaders = {word for word in running if word.isdigit()}
        end_processes(sorted(map(int, leaders)), running - leaders)
