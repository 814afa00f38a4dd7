"""Commands that we run: `pipe:COMMAND` as input and as output, and those that are only waited for.

Each runs under `bash -o pipefail -c`, in a process group of its own so that all of it can be ended; but not at a
terminal, where a group in the background would be stopped as soon as it asked for a password. The stderr of a `pipe:`
goes to ours; the end of it is kept for the message when the command fails.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tarkit.errors import CommandFailed, TarkitError
from tarkit.signals import COMMANDS, register_cleanup, uninterrupted
from tarkit.streams.copy import widen

# ---- What the system tells of processes, and what can be done to them from outside


def at_terminal() -> bool:
    """Whether we are in the foreground of a terminal."""
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
    """A process and what it started, as far as the system tells (Linux)."""
    found = [pid]
    for each in found:
        try:
            with open(f"/proc/{each}/task/{each}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            pass
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def send(targets: list[int], signum: int) -> None:
    """Send a signal to processes, or to groups (negative), those that are still there."""
    for target in targets:
        try:
            os.kill(target, signum)
        except (ProcessLookupError, PermissionError):
            pass


TAIL = 2000  # bytes of stderr that are kept
PATIENCE = 2.0  # seconds that a command gets to end by itself
_PIPE, _DEVNULL = -1, -3  # as subprocess has them


class ChildProcess(Protocol):
    """A process of ours that runs."""

    def terminate(self) -> None:
        """Ask it, and all that it started, to end."""

    def end_by(self, limit: float) -> None:
        """Wait for its end; at `limit`, as `time.monotonic` has it, end it with force, and all that it started."""


_running: set[ChildProcess] = set()
_starting = threading.RLock()
_over = False


def begin(start: Callable[[], ChildProcess]) -> None:
    """Have `start` start a child, which is known from then on, and ended with us."""
    with uninterrupted(), _starting:
        child = start()
        _running.add(child)
    if _over:
        end_all(child)


def end_all(*children: ChildProcess) -> None:
    """End these, whatever their status: all are asked first, and have the same time to do so."""
    for child in children:
        child.terminate()
    limit = time.monotonic() + PATIENCE
    for child in children:
        child.end_by(limit)


def forget(child: ChildProcess) -> None:
    """A child has ended."""
    _running.discard(child)


def end_commands() -> None:
    """End all commands that run, and those that a thread may still start."""
    global _over  # noqa: PLW0603
    with _starting:
        _over = True
        running = list(_running)
    end_all(*running)


register_cleanup(COMMANDS, end_commands)


def disown_commands() -> None:
    """Leave commands that run to the process that started them: this one is a copy of it."""
    _running.clear()


def call(text: str, **environment: str) -> int:
    """Run a command and wait for it; its status. Its stdin is empty, its output ours."""
    process: _Process | None = None
    try:
        with uninterrupted():  # once it runs it is ours to end
            process = _Process(text, _DEVNULL, environment=environment)
        return process.status()
    except BaseException:
        if process is not None:
            process.end()
        raise


def last_line(stderr: bytes) -> str:
    """The last line of what a command said, for a message."""
    lines = stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1].strip() if lines else ""


class _Process:
    """A command under bash: a failure anywhere in a pipeline is the pipeline's."""

    def __init__(
        self,
        text: str,
        stdin: int | None,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        import subprocess  # 4 ms, which whoever runs no command need not wait for

        self.text = text
        self._alone = not at_terminal()
        self._known: list[int] = []  # it and what it had started when it was asked to end
        words = [f"{name}={value}" for name, value in (environment or {}).items()]
        with uninterrupted(), _starting:
            try:
                self.process = subprocess.Popen(
                    [*(["env", *words] if words else []), "bash", "-o", "pipefail", "-c", text],
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    process_group=0 if self._alone else None,
                )
            except FileNotFoundError:
                raise TarkitError("bash is needed to run commands and was not found") from None
            _running.add(self)
        if _over:
            self.end()

    def status(self) -> int:
        """Wait for its end."""
        status = self.process.wait()
        _running.discard(self)
        return status

    def terminate(self) -> None:
        """Ask it, and all that it started, to end."""
        self._known = family(self.process.pid) if self.process.poll() is None else []
        send(self._targets(), signal.SIGTERM)

    def end_by(self, limit: float) -> None:
        """Wait for its end; at `limit`, as `time.monotonic` has it, end it with force, and all that it started."""
        while (self.process.poll() is None or any(map(lives, self._known[1:]))) and time.monotonic() < limit:
            time.sleep(0.002)
        send(self._targets(), signal.SIGKILL)
        self.process.wait()
        _running.discard(self)  # last: a signal that comes before finds it there

    def end(self) -> None:
        """End it and all that it started, whatever its status."""
        end_all(self)

    def _targets(self) -> list[int]:
        return [-self.process.pid] if self._alone else self._known


class _Command(_Process):
    """A command at the other end of a pipe, whose stderr is listened to."""

    def __init__(self, text: str, stdin: int, stdout: int | None) -> None:
        super().__init__(text, stdin, stdout, _PIPE)
        self.tail = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        fd = self.process.stderr.fileno()
        while said := os.read(fd, 4096):
            self.tail = (self.tail + said)[-TAIL:]
            try:
                os.write(2, said)
            except OSError:
                pass  # nobody listens to us

    def wait(self) -> None:
        """Wait for the command; raises CommandFailed unless its status is 0."""
        status = self.status()
        self._listener.join(PATIENCE)  # a grandchild may still hold stderr
        if status != 0:
            raise CommandFailed(self.text, status, last_line(self.tail))


class CommandReader(_Command):
    """A command whose stdout is read; its own stdin is empty. A status other than 0 at its end is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _DEVNULL, _PIPE)
        assert self.process.stdout is not None
        self.fd = self.process.stdout.fileno()
        self.ended = False
        widen(self.fd)

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`, 0 once the command has ended well."""
        if self.ended:
            return 0
        got = os.readv(self.fd, [view])
        if got == 0:
            self.ended = True
            self.wait()
        return got

    def fileno(self) -> int | None:
        """None: the end must be seen by `readinto`, which asks for the status."""
        return None

    def close(self) -> None:
        """Stop reading: from here on the status does not matter."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        if not self.ended:
            self.end()


class CommandWriter(_Command):
    """A command whose stdin is written; its stdout is ours."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _PIPE, None)
        assert self.process.stdin is not None
        self.fd = self.process.stdin.fileno()

    def finish(self) -> None:
        """Close its stdin and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait()
