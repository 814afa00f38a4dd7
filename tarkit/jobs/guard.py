"""The process that ends jobs when tarkit is killed: after SIGKILL tarkit cannot do so itself."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable

from tarkit.jobs.job import python_words
from tarkit.jobs.strays import end_processes
from tarkit.streams.process import ForkedChild, Program


class ProcessGuard:
    """A process that ends the steps of jobs when this process has been killed and cannot do so itself.

    It reads from a pipe which processes run, and sees that the pipe is closed.

    Args:
        copy: whether it is a copy of this process, which has no threads then; else a new process.

    Attributes:
        fd: the end of the pipe that is written; a copy of this process closes it.
    """

    def __init__(self, copy: bool = True) -> None:
        read, self.fd = os.pipe()
        self._child: ForkedChild | Program
        if not copy:
            self._child = Program(python_words("tarkit.jobs.guard", "guard_input"), stdin=read)
        elif (pid := os.fork()) == 0:
            try:
                os.close(self.fd)
                os.setpgid(0, 0)  # a signal to the group of the parent is not for it
                for fd in range(3):
                    os.dup2(os.open(os.devnull, os.O_RDWR), fd)
                gc.freeze()
                _guard(read)
            finally:
                os._exit(0)
        else:
            self._child = ForkedChild(pid)
        os.close(read)

    def began(self, pid: int) -> None:
        """Take note of a process, which leads its group."""
        self._tell(b"+%d\n" % pid)

    def ended(self, pids: Iterable[int]) -> None:
        """Take note that the processes of a job have ended, and their groups with them; none if it did not start."""
        self._tell(b"-%s\n" % " ".join(map(str, pids)).encode())

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self.fd, line)
        except BrokenPipeError:
            pass  # it has been killed itself

    def close(self) -> None:
        """End it."""
        os.close(self.fd)
        self._child.wait()


def guard_input() -> None:
    """Guard the processes that stdin tells, in a process of its own."""
    _guard(0)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _guard(fd: int) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    running: set[int] = set()
    with open(fd, "rb") as lines:
        for line in lines:
            if line.startswith(b"+"):
                running.add(int(line[1:]))
            else:
                running.difference_update(map(int, line[1:].split()))
                running = set(filter(_exists, running))  # without those that began, but whose program is missing
    if running:
        end_processes(sorted(running))
