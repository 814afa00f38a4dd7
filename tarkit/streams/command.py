"""Shell commands: `pipe:COMMAND` as an input or an output, and commands that are only waited for.

Each runs under `bash -o pipefail -c`, in its own process group so that all of it can be ended. At a terminal it stays
in the foreground group, since a background group is stopped when it reads from the terminal, for a password for
instance. The stderr of a `pipe:` is passed on to stderr; its last bytes are kept for the message of a failure.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tarkit.bytereader import ByteReader
from tarkit.errors import CommandFailed, TarkitError
from tarkit.signals import COMMANDS, register_cleanup, uninterrupted
from tarkit.streams.copy import widen

# ---- Processes: what the system knows about them, and signals to them


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
    found = [pid]
    for each in found:
        try:
            with open(f"/proc/{each}/task/{each}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            pass
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def send(targets: list[int], signum: int) -> None:
    """Send a signal to those of these processes, or groups (negative numbers), that still exist."""
    for target in targets:
        try:
            os.kill(target, signum)
        except (ProcessLookupError, PermissionError):
            pass


TAIL = 2000  # bytes of stderr kept for the message
PATIENCE = 2.0  # seconds between SIGTERM and SIGKILL
PIPE, DEVNULL = -1, -3  # the values in subprocess


class ChildProcess(Protocol):
    """A child process that is ended when this process ends."""

    def terminate(self) -> None:
        """Send SIGTERM to it and all that it started."""

    def end_by(self, limit: float) -> None:
        """Wait until it has ended; at `limit`, a time of `time.monotonic`, kill it and all that it started."""


_running: set[ChildProcess] = set()
_starting = threading.RLock()
_over = False


def begin(start: Callable[[], ChildProcess]) -> None:
    """Call `start` and register the child that it returns, so that it is ended when this process ends."""
    with uninterrupted(), _starting:
        child = start()
        _running.add(child)
    if _over:
        end_all(child)


def end_all(*children: ChildProcess) -> None:
    """End these children: SIGTERM to all first, SIGKILL after PATIENCE."""
    for child in children:
        child.terminate()
    limit = time.monotonic() + PATIENCE
    for child in children:
        child.end_by(limit)


def forget(child: ChildProcess) -> None:
    """Remove a child that has ended from the register."""
    _running.discard(child)


def end_commands() -> None:
    """End all commands that run, and those that a thread starts from now on."""
    global _over  # noqa: PLW0603
    with _starting:
        _over = True
        running = list(_running)
    end_all(*running)


register_cleanup(COMMANDS, end_commands)


def disown_commands() -> None:
    """Forget the commands that run: in a forked process they belong to the parent, which may be starting this one."""
    global _starting  # noqa: PLW0603
    _starting = threading.RLock()
    _running.clear()


def call(text: str, **environment: str) -> int:
    """Run a command with an empty stdin, wait for it and return its status."""
    process: _Process | None = None
    try:
        with uninterrupted():  # once it runs, the except clause must know it
            process = _Process(text, DEVNULL, environment=environment)
        return process.status()
    except BaseException:
        if process is not None:
            process.end()
        raise


def last_line(stderr: bytes) -> str:
    """Return the last line of a command's stderr, for a message."""
    lines = stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1].strip() if lines else ""


class _Process:
    """A command under bash, where a failure anywhere in a pipeline is a failure of the pipeline."""

    def __init__(
        self,
        text: str,
        stdin: int | None,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        import subprocess  # 4 ms of start-up, only for runs with commands

        self.text = text
        self._alone = not at_terminal()
        self._known: list[int] = []  # it and its descendants at the time of SIGTERM
        words = [f"{name}={value}" for name, value in (environment or {}).items()]

        def start() -> _Process:
            self.process = subprocess.Popen(
                [*(["env", *words] if words else []), "bash", "-o", "pipefail", "-c", text],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                process_group=0 if self._alone else None,
            )
            return self

        try:
            begin(start)
        except FileNotFoundError:
            raise TarkitError("bash is needed to run commands and was not found") from None

    def status(self) -> int:
        """Wait until it has ended and return its status."""
        status = self.process.wait()
        _running.discard(self)
        return status

    def terminate(self) -> None:
        """Send SIGTERM to it and all that it started."""
        self._known = family(self.process.pid) if self.process.poll() is None else []
        send(self._targets(), signal.SIGTERM)

    def end_by(self, limit: float) -> None:
        """Wait until it has ended; at `limit`, a time of `time.monotonic`, kill it and all that it started."""
        while (self.process.poll() is None or any(map(lives, self._known[1:]))) and time.monotonic() < limit:
            time.sleep(0.002)
        send(self._targets(), signal.SIGKILL)
        self.process.wait()
        _running.discard(self)  # last: a signal before this line still finds it

    def end(self) -> None:
        """End it and all that it started, by SIGTERM, then SIGKILL."""
        end_all(self)

    def _targets(self) -> list[int]:
        return [-self.process.pid] if self._alone else self._known


class _Command(_Process):
    """A command at the other end of a pipe, whose stderr is read by a thread."""

    def __init__(self, text: str, stdin: int, stdout: int | None) -> None:
        super().__init__(text, stdin, stdout, PIPE)
        self.tail = b""
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        fd = self.process.stderr.fileno()
        while said := os.read(fd, 4096):
            self.tail = (self.tail + said)[-TAIL:]
            try:
                os.write(2, said)
            except OSError:
                pass  # stderr is closed

    def wait(self) -> None:
        """Wait for the command; raises CommandFailed unless its status is 0."""
        status = self.status()
        self._reader.join(PATIENCE)  # a grandchild may still hold stderr
        if status != 0:
            raise CommandFailed(self.text, status, last_line(self.tail))


class CommandReader(_Command, ByteReader):
    """A command whose stdout is read, with an empty stdin. A status other than 0 is an error at the end of the data."""

    def __init__(self, text: str) -> None:
        super().__init__(text, DEVNULL, PIPE)
        assert self.process.stdout is not None
        self.fd = self.process.stdout.fileno()
        self.ended = False
        widen(self.fd)

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`; 0 once the command has ended with status 0."""
        if self.ended:
            return 0
        got = os.readv(self.fd, [view])
        if got == 0:
            self.ended = True
            self.wait()
        return got

    def close(self) -> None:
        """Stop reading and end the command; its status is ignored."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        if not self.ended:
            self.end()


class CommandWriter(_Command):
    """A command whose stdin is written; its stdout is that of this process."""

    def __init__(self, text: str) -> None:
        super().__init__(text, PIPE, None)
        assert self.process.stdin is not None
        self.fd = self.process.stdin.fileno()

    def finish(self) -> None:
        """Close its stdin and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait()
