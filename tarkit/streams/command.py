"""Commands at the other end of a pipe: `pipe:COMMAND` as input and as output.

Each runs under `bash -o pipefail -c` in a process group of its own, so that all of it can be ended. Its stderr goes to
ours; the end of it is kept for the message when the command fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from tarkit.errors import CommandFailed, TarkitError
from tarkit.streams.copy import widen

TAIL = 2000  # bytes of stderr that are kept
PATIENCE = 2.0  # seconds that a command gets to end by itself


def shell(text: str) -> list[str]:
    """The words that run `text`: a failure anywhere in a pipeline is the pipeline's."""
    return ["bash", "-o", "pipefail", "-c", text]


def last_line(stderr: bytes) -> str:
    """The last line of what a command said, for a message."""
    lines = stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1].strip() if lines else ""


class _Command:
    def __init__(self, text: str, stdin: int | None, stdout: int | None) -> None:
        self.text = text
        try:
            self.process = subprocess.Popen(
                shell(text), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, process_group=0
            )
        except FileNotFoundError:
            raise TarkitError("bash is needed to run commands and was not found") from None
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
        status = self.process.wait()
        self._listener.join(PATIENCE)  # a grandchild may still hold stderr
        if status != 0:
            raise CommandFailed(self.text, status, last_line(self.tail))

    def end(self) -> None:
        """End the command and all that it started, whatever its status."""
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signum)
            except (ProcessLookupError, PermissionError):
                break
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                continue
            break
        self.process.wait()


class CommandReader(_Command):
    """A command whose stdout is read; its own stdin is empty. A status other than 0 at its end is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text, subprocess.DEVNULL, subprocess.PIPE)
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
        super().__init__(text, subprocess.PIPE, None)
        assert self.process.stdin is not None
        self.fd = self.process.stdin.fileno()

    def finish(self) -> None:
        """Close its stdin and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait()
