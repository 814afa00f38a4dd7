"""Programs in process groups of their own, which end when this process ends."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tarkit.errors import TarkitError, show
from tarkit.streams import command
from tarkit.streams.command import DEVNULL, send

_POLL_INTERVAL = 0.005  # seconds, where there is no pidfd


class Program:
    """A program in its own process group. When it has ended, the processes that it left in that group are killed.

    Args:
        words: its name, which is also its path unless `path` is given, and its arguments.
        directory: its working directory.
        popen: called in place of `subprocess.Popen`: a `ForkedChild` with its first arguments.

    Raises:
        TarkitError: it cannot be started.
    """

    def __init__(
        self,
        words: Sequence[str | bytes],
        *,
        path: str | None = None,
        stdin: int = DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        directory: str | bytes | None = None,
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
                cwd=directory,
                env=environment,
                pass_fds=pass_fds,
                process_group=0,
            )
            self.pid = self.process.pid
            self._pidfd = _pidfd(self.pid)
            return self  # complete: a signal may follow at once, and ends it

        try:
            command.begin(start)
        except OSError as error:
            raise TarkitError(f"{show(words[0])} cannot be started: {error.strerror}") from None

    def watch(self, poll: Any) -> None:
        """Register the program with a `select.poll`, which then wakes up when it ends, if the system has pidfds."""
        if self._pidfd >= 0:
            poll.register(self._pidfd, select.POLLIN)

    def unwatch(self, poll: Any) -> None:
        """Undo `watch`."""
        if self._pidfd >= 0:
            poll.unregister(self._pidfd)

    def ended(self) -> bool:
        """Whether it has ended; it may still be a zombie."""
        if self._status is not None:
            return True
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        return self.process.poll() is not None

    @property
    def wakes(self) -> bool:
        """Whether `watch` has an effect; without it the caller has to poll."""
        return self._pidfd >= 0

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait at most `seconds` and return its status (negative: a signal), None if it still runs."""
        if self._status is not None:
            return self._status
        if seconds is None and hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        elif seconds is None:
            self.process.wait()
        elif not self._sleep(seconds):
            return None
        return self._reap()

    def _sleep(self, seconds: float) -> bool:
        """Wait at most `seconds` for its end and return whether it has ended."""
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
                time.sleep(min(left, _POLL_INTERVAL))
        return True

    def _reap(self) -> int:
        """Kill the rest of its group, then collect its status: until then its number is not used again."""
        with self._lock:
            if self._status is None:
                send([-self.pid], signal.SIGKILL)
                self._status = self.process.wait()
                command.forget(self)
                if self._pidfd >= 0:
                    os.close(self._pidfd)
        return self._status

    def terminate(self) -> None:
        """Send SIGTERM to its group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, signum: int) -> None:
        with self._lock:
            if self._status is None:
                send([-self.pid], signum)

    def end_by(self, limit: float) -> None:
        """Wait until it has ended; at `limit`, a time of `time.monotonic`, kill its group."""
        if self.wait(max(0.0, limit - time.monotonic())) is None:
            self.kill()
            self.wait()

    def end(self) -> None:
        """End it and its group, by SIGTERM, then SIGKILL."""
        command.end_all(self)


class ForkedChild:
    """A copy of this process that does some work and ends. It has what `Program` uses of `subprocess.Popen`.

    The files, commands and directories of this process stay its own. A copy is made only while there are no threads.

    Args:
        work: called in the copy, which leads its process group; returns the exit status.
        close: descriptors that the copy closes.
        words: not used, as all that `Popen` takes besides.
        stdin, stdout, stderr: descriptors of the copy; negative ones are /dev/null.
    """

    def __init__(
        self,
        work: Callable[[], int],
        close: Iterable[int],
        words: Sequence[str | bytes],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        **ignored: object,
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _work_in_copy(work, (stdin, stdout, stderr), close)
        try:
            os.setpgid(self.pid, self.pid)  # the copy does that too, perhaps later
        except OSError:
            pass

    def poll(self) -> int | None:
        """Return the status if the process has ended."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of the process and return its status."""
        return self._waited(0) or 0

    def _waited(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _work_in_copy(work: Callable[[], int], fds: Sequence[int], close: Iterable[int]) -> NoReturn:
    import gc

    from tarkit.streams.sink import unfinished

    status = 1
    try:
        os.setpgid(0, 0)
        for place, fd in enumerate(fds):
            os.dup2(fd if fd >= 0 else os.open(os.devnull, os.O_RDWR), place)
        for fd in close:
            os.close(fd)
        gc.freeze()  # a collection would copy all pages of the parent
        unfinished.clear()
        command.disown_commands()
        status = work()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, -1 if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
