"""Programs and shell commands, which end when this process ends.

A `Program` runs in its own process group. A `ShellCommand` (`pipe:COMMAND`, and commands that are only waited for) runs
under `bash -o pipefail -c`, in its own group too so that all of it can be ended; but at a terminal it stays in the
foreground group, since a background group is stopped when it reads from the terminal, for a password for instance. The
stderr of a `pipe:` is passed on to stderr; its last bytes are kept for the message of a failure.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tarkit.bytereader import ByteReader
from tarkit.errors import CommandFailed, TarkitError, show
from tarkit.signals import COMMANDS, register_cleanup, uninterrupted
from tarkit.streams.copy import widen
from tarkit.streams.terminal import PassedOn, progress_hidden

PATIENCE = 2.0  # seconds between SIGTERM and SIGKILL
PIPE, DEVNULL = -1, -3  # the values in subprocess
_POLL_INTERVAL = 0.005  # seconds, where there is no pidfd

# ---- Processes: their state in the system, and signals to them


def at_terminal() -> bool:
    """Whether this process is in the foreground process group of a terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def family(pid: int) -> list[int]:
    """Return a process and its descendants, as far as the system lists them (Linux)."""
    pids = [pid]
    for parent in pids:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", "rb") as file:
                pids += map(int, file.read().split())
        except OSError:
            pass
    return pids


def start_of(pid: int) -> bytes:
    """Return the time at which a process started, b"" if it does not run; zombies do not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b") ")[2].split()
    except OSError:
        return b""
    return b"" if words[0] in (b"Z", b"X") else words[19]


def send(targets: list[int], signum: int) -> None:
    """Send a signal to those of these processes, or groups (negative numbers), that still exist."""
    for target in targets:
        try:
            os.kill(target, signum)
        except (ProcessLookupError, PermissionError):
            pass


# ---- The register of running programs

_running: set[Program] = set()
_starting = threading.RLock()
_over = False


def end_all(*programs: Program) -> None:
    """End these programs: SIGTERM to all first, SIGKILL after PATIENCE."""
    for program in programs:
        program.terminate()
    limit = time.monotonic() + PATIENCE
    for program in programs:
        program.end_by(limit)


def end_commands() -> None:
    """End all programs that run, and those that a thread starts from now on."""
    global _over  # noqa: PLW0603
    with _starting:
        _over = True
        running = list(_running)
    end_all(*running)


register_cleanup(COMMANDS, end_commands)


def disown_commands() -> None:
    """Forget the programs that run: in a forked process they belong to the parent, which may be starting this one."""
    global _starting  # noqa: PLW0603
    _starting = threading.RLock()
    _running.clear()


class Program:
    """A program in its own process group. When it has ended, the processes that it left in that group are killed.

    Args:
        words: its name, which is also its path unless `path` is given, and its arguments.
        popen: called in place of `subprocess.Popen`: a `process.ForkedChild` with its first arguments.
        leads: whether the group is its own.

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
        leads: bool = True,
    ) -> None:
        import subprocess  # 4 ms of start-up, only for runs with commands

        self._lock = threading.Lock()
        self._status: int | None = None
        try:
            with uninterrupted(), _starting:
                self.process: subprocess.Popen[bytes] = (popen or subprocess.Popen)(
                    words,
                    executable=path,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=directory,
                    env=environment,
                    pass_fds=pass_fds,
                    process_group=0 if leads else None,
                )
                self.pid = self.process.pid
                self._pidfd = _pidfd(self.pid)
                _running.add(self)  # complete: a signal may follow at once, and ends it
        except OSError as error:
            raise TarkitError(f"{show(words[0])} cannot be started: {error.strerror}") from error
        if _over:
            self.end()

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
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # SIGCHLD is ignored: the system has collected its status
            return True

    @property
    def wakes(self) -> bool:
        """Whether `watch` has an effect; without it the caller has to poll."""
        return self._pidfd >= 0

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait at most `seconds` and return its status (negative: a signal), None if it still runs."""
        if self._status is not None:
            return self._status
        if seconds is None and hasattr(os, "waitid"):
            with suppress(ChildProcessError):
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
            rest = limit - time.monotonic()
            if rest <= 0:
                return False
            if self.wakes:
                poll.poll(rest * 1000)
            else:
                time.sleep(min(rest, _POLL_INTERVAL))
        return True

    def _reap(self) -> int:
        """Kill the rest of its group, then collect its status: until then its number is not used again."""
        with self._lock:
            if self._status is None:
                self._sweep()
                self._status = self.process.wait()
                _running.discard(self)  # last: a signal before this line still finds it
                if self._pidfd >= 0:
                    os.close(self._pidfd)
        return self._status

    def _sweep(self) -> None:
        send([-self.pid], signal.SIGKILL)

    def _targets(self) -> list[int]:
        return [-self.pid]

    def terminate(self) -> None:
        """Send SIGTERM to its group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, signum: int) -> None:
        with self._lock:
            if self._status is None:
                send(self._targets(), signum)

    def end_by(self, limit: float) -> None:
        """Wait until it has ended; at `limit`, a time of `time.monotonic`, kill its group."""
        if self.wait(max(0.0, limit - time.monotonic())) is None:
            self.kill()
            self.wait()

    def end(self) -> None:
        """End it and its group, by SIGTERM, then SIGKILL."""
        end_all(self)


def _pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends, -1 if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


class ShellCommand(Program):
    """A command under bash, where a failure anywhere in a pipeline is a failure of the pipeline.

    What it has started and left may go on when it has ended by itself.
    """

    def __init__(
        self,
        text: str,
        stdin: int,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.text = text
        self._leads = not at_terminal()
        self._family: list[int] = []  # it and its descendants at the time of SIGTERM
        words = ["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []
        words += ["bash", "-o", "pipefail", "-c", "--", text]
        try:
            super().__init__(words, stdin=stdin, stdout=stdout, stderr=stderr, leads=self._leads)
        except TarkitError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise TarkitError("bash is needed to run commands and was not found") from None
            raise

    def _sweep(self) -> None:
        """Leave the processes that it has started."""

    def _targets(self) -> list[int]:
        return [-self.pid] if self._leads else self._family

    def terminate(self) -> None:
        self._family = [] if self.ended() else family(self.pid)
        super().terminate()

    def end_by(self, limit: float) -> None:
        """Wait until it has ended, and what it started; at `limit`, a time of `time.monotonic`, kill these."""
        self._sleep(max(0.0, limit - time.monotonic()))
        while any(map(start_of, self._family[1:])) and time.monotonic() < limit:
            time.sleep(0.002)
        self.kill()
        self.wait()


def call(text: str, **environment: str) -> int:
    """Run a command with an empty stdin, wait for it and return its status."""
    command: ShellCommand | None = None
    try:
        with progress_hidden():  # it has this stdout and stderr
            with uninterrupted():  # once it runs, the except clause needs its name
                command = ShellCommand(text, DEVNULL, environment=environment)
            return command.wait() or 0
    except BaseException:
        if command is not None:
            command.end()
        raise


def last_line(stderr: bytes) -> str:
    """Return the last line of a command's stderr, for a message."""
    lines = stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1].strip() if lines else ""


class _Piped(ShellCommand):
    """A command at the other end of a pipe, whose stderr is passed on."""

    def __init__(self, text: str, stdin: int, stdout: int | None) -> None:
        super().__init__(text, stdin, stdout, PIPE)
        assert self.process.stderr is not None
        self._stderr = PassedOn(self.process.stderr)

    def check_status(self) -> None:
        """Wait for the command; raises CommandFailed unless its status is 0."""
        status = self.wait() or 0
        self._stderr.join(PATIENCE)  # a grandchild may still hold stderr
        if status != 0:
            raise CommandFailed(self.text, status, last_line(self._stderr.tail))


class CommandReader(_Piped, ByteReader):
    """A command whose stdout is read, with an empty stdin. A status other than 0 is an error at the end of the data."""

    def __init__(self, text: str) -> None:
        super().__init__(text, DEVNULL, PIPE)
        assert self.process.stdout is not None
        self.fd = self.process.stdout.fileno()
        self._read = False
        widen(self.fd)

    def readinto(self, view: Any, /) -> int:
        if self._read:
            return 0
        count = os.readv(self.fd, [view])
        if count == 0:
            self._read = True
            self.check_status()
        return count

    def close(self) -> None:
        """Stop reading and end the command; its status is ignored."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        if not self._read:
            self.end()


class CommandWriter(_Piped):
    """A command whose stdin is written; its stdout is that of this process."""

    def __init__(self, text: str) -> None:
        super().__init__(text, PIPE, None)
        assert self.process.stdin is not None
        self.fd = self.process.stdin.fileno()

    def finish(self) -> None:
        """Close its stdin and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.check_status()
