"""Programs in process groups of their own: registered from the start, and ended with the process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import pytest

from tarkit import signals
from tarkit.errors import Interrupted
from tarkit.streams import command
from tarkit.streams.command import PIPE
from tarkit.streams.process import Program


def test_a_signal_while_a_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal during the start of a program is delayed until the program can be ended."""
    real = subprocess.Popen

    def popen(*words: Any, **settings: Any) -> Any:
        process = real(*words, **settings)
        signals._interrupt(signal.SIGTERM, None)
        return process

    before = set(command._running)
    monkeypatch.setattr(signals._shield, "kept", [])
    monkeypatch.setattr(signals, "_ending", False)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", popen)
        with pytest.raises(Interrupted):
            Program(("sleep", "60"))
    [program] = command._running - before
    assert isinstance(program, Program)
    program.end()
    assert command._running == before
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)


def test_programs_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that ignore TERM are killed together after one time limit, not one after the other."""
    monkeypatch.setattr(command, "PATIENCE", 1.0)
    programs = [
        Program(("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"), stdout=PIPE) for _ in range(6)
    ]
    for program in programs:
        assert program.process.stdout
        assert program.process.stdout.read(1) == b"\n"
    start = time.monotonic()
    command.end_all(*programs)
    assert 1.0 <= time.monotonic() - start < 4.0
    assert [program.wait() for program in programs] == [-signal.SIGKILL] * 6
