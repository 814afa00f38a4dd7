"""Programs that we start in process groups of their own, and that end with us, whatever happens."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarkit.errors import TarkitError, show
from tarkit.streams import command
from tarkit.streams.command import send

DEVNULL, PIPE = -3, -1  # as subprocess has them
_LOOK = 0.005  # seconds between two looks where the system cannot wake us


class Program:
    """A program with its own process group. When it has ended, what it left in that group is killed.

    `words` are its name, which is its path too unless that is given, and its arguments; signals have their defaults.
    `popen` is called in place of `subprocess.Popen`. Raises TarkitError when it cannot be started.
    """

    def __init__(
        self,
        words: Sequence[str | bytes],
        *,
        path: str | None = None,
        stdin: int = DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        folder: str | bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
        pass_fds: Sequence[int] = (),
        popen: Callable[..., Any] | None = None,
    ) -> None:
        import subprocess

        self._lock = threading.Lock()
        self._status: int | None = None

        def start() -> Program:
            self.process: subprocess.Popen[bytes] = (popen or subprocess.Popen)(
                words,
                executable=path,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                env=environment,
                pass_fds=pass_fds,
                process_group=0,
            )
            self.pid = self.process.pid
            self._pidfd = _pidfd(self.pid)
            return self  # whole: a signal may be what comes next, and ends it

        try:
            command.begin(start)
        except OSError as error:
            raise TarkitError(f"{show(words[0])} cannot be started: {error.strerror}") from None

    def watch(self, poll: Any) -> None:
        """Have a `select.poll` wake up when the program ends, where the system can do that."""
        if self._pidfd >= 0:
            poll.register(self._pidfd, select.POLLIN)

    def unwatch(self, poll: Any) -> None:
        """The opposite."""
        if self._pidfd >= 0:
            poll.unregister(self._pidfd)

    def ended(self) -> bool:
        """Whether it has ended; it need not have been waited for."""
        if self._status is not None:
            return True
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        return self.process.poll() is not None

    @property
    def wakes(self) -> bool:
        """Whether `watch` can do anything; else look every now and then."""
        return self._pidfd >= 0

    def wait(self, seconds: float | None = None) -> int | None:
        """Its status (negative: a signal), None when it has not ended in time."""
        if self._status is not None:
            return self._status
        if seconds is None and hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        elif seconds is None:
            self.process.wait()
        elif not self._sleep(seconds):
            return None
        return self._bury()

    def _sleep(self, seconds: float) -> bool:
        """Wait so long for its end; whether it came."""
        limit = time.monotonic() + seconds
        poll = select.poll()
        self.watch(poll)
        while not self.ended():
            left = limit - time.monotonic()
            if left <= 0:
                return False
            if self.wakes:
                poll.poll(left * 1000)
            else:
                time.sleep(min(left, _LOOK))
        return True

    def _bury(self) -> int:
        """Kill what it left, then take its status: until then nobody else has its number."""
        with self._lock:
            if self._status is None:
                send([-self.pid], signal.SIGKILL)
                self._status = self.process.wait()
                command.forget(self)
                if self._pidfd >= 0:
                    os.close(self._pidfd)
        return self._status

    def terminate(self) -> None:
        """Ask all of the group to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all of the group."""
        self._signal(signal.SIGKILL)

    def _signal(self, signum: int) -> None:
        with self._lock:
            if self._status is None:
                send([-self.pid], signum)

    def end_by(self, limit: float) -> None:
        """Wait for its end; at `limit`, as `time.monotonic` has it, end all of its group with force."""
        if self.wait(max(0.0, limit - time.monotonic())) is None:
            self.kill()
            self.wait()

    def end(self) -> None:
        """End it and all of its group, whatever its status: by asking, then with force."""
        command.end_all(self)


def _pidfd(pid: int) -> int:
    """A descriptor that tells of a process's end, -1 where there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
