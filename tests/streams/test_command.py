"""Commands at the other end of a pipe: exit status, stderr, and that no process remains."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tarkit import signals
from tarkit.errors import CommandFailed, Interrupted, TarkitError
from tarkit.streams import command as commands
from tarkit.streams import terminal
from tarkit.streams.command import PIPE, CommandReader, CommandWriter, Program, call, end_commands
from tests._tools import PATIENT, archive, at_terminal, each_row, gone, pid_in, process, tarkit

pytestmark = pytest.mark.usefixtures("here")


def read_all(reader: CommandReader) -> bytes:
    """Return all output of a command."""
    view, data = memoryview(bytearray(1000)), b""
    while got := reader.readinto(view):
        data += view[:got]
    return data


# ---- reading


@each_row(
    ("command", "status", "words"),
    [
        ("echo x; exit 3", 3, "ended with status 3"),
        ("false", 1, "status 1"),
        ("exit 7 | cat", 7, "status 7"),
        ("no_such_command", 127, "no_such_command"),
        ("kill -TERM $$", -15, "ended by SIGTERM"),
        ("kill -37 $$", -37, "signal 37"),
    ],
)
def test_a_reader_that_fails(command: str, status: int, words: str) -> None:
    """Output before the failure can be read; the status replaces the end, also for any part of a pipeline."""
    reader = CommandReader(command)
    with pytest.raises(CommandFailed, match=words) as error:
        read_all(reader)
    assert error.value.status == status
    assert command in str(error.value)
    reader.close()


@each_row(
    ("stderr", "line"),
    [
        ("true", ""),
        ("printf '\\n\\n'", ""),
        ("printf a", ": a"),
        ("printf 'a\\n  b  \\n\\n'", ": b"),
        ("printf 'a\\rb'", ": b"),
        ("echo first; head -c 100000 /dev/zero | tr '\\0' x; printf '\\nlast\\xff one\\n\\n'", ": last\\xff one"),
    ],
)
def test_stderr(stderr: str, line: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """stderr is passed on as it arrives, and its last line that is not blank is in the message, for any amount."""
    reader = CommandReader(f"({stderr}) >&2; exit 1")
    with pytest.raises(CommandFailed) as error:
        read_all(reader)
    assert str(error.value).endswith(line or "; exit 1")
    reader.close()
    said = capfd.readouterr().err
    assert said.startswith("first\nxxx") or len(stderr) < 50
    assert said.count("x") >= 100_000 or len(stderr) < 50
    assert len(reader._stderr.tail) <= terminal.TAIL


@each_row("command", ["yes", "echo x; exit 3", "cat /dev/zero | cat | cat", "trap '' PIPE; yes; exit 4"])
def test_stopping_early(command: str) -> None:
    """If the reader is closed early, the status is ignored, and the command ends."""
    reader = CommandReader(command)
    reader.readinto(memoryview(bytearray(2)))
    reader.close()
    assert gone(reader.process.pid)
    reader.close()


# ---- ending


@pytest.mark.parametrize("who", ["leader", "child"])
def test_ending_what_ignores_term(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell or child that ignores TERM is killed after a while."""
    monkeypatch.setattr(commands, "PATIENCE", 0.1)
    stubborn = "trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 0.05; done'"
    reader = CommandReader(stubborn if who == "leader" else f"({stubborn}) & sleep 60")
    pid = pid_in("pid")
    reader.close()
    assert gone(pid)
    assert gone(reader.process.pid)


def test_term_leaves_time_for_cleanup() -> None:
    """TERM comes first, for children of the shell as well, so that they can clean up."""
    reader = CommandReader(
        "sh -c 'trap \"rm file; exit\" TERM; touch file; echo $$ > pid; while :; do sleep 0.01; done'; true"
    )
    pid = pid_in("pid")
    reader.close()
    assert gone(pid)
    assert not os.path.exists("file")


def test_end_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """All running commands are ended, ended ones are forgotten, and no new one keeps running."""
    monkeypatch.setattr(commands, "_over", False)
    done = CommandReader("true")
    read_all(done)
    running = [CommandReader("sleep 60"), CommandWriter("sleep 60")]
    end_commands()
    assert all(gone(each.process.pid) for each in running)
    assert not commands._running
    assert gone(CommandReader("sleep 60").process.pid)
    done.close()


def test_no_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TarkitError, match="bash is needed"):
        CommandReader("true")


# ---- calling


def test_call(capfd: pytest.CaptureFixture[str]) -> None:
    """A call returns the status; stdout and stderr are inherited, stdin is empty, variables are set unchanged."""
    assert call("cat; echo $A; echo err >&2; exit 3 | cat", A="a b\n$c") == 3
    assert capfd.readouterr() == ("a b $c\n", "err\n")
    assert call("true") == 0
    assert call("kill -9 $$") == -9
    assert not commands._running


def interrupt_after(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Raise a signal when `subprocess.Popen`, or `send`, returns; return the list of its results."""
    found: list[Any] = []
    monkeypatch.setattr(signals, "_ending", False)
    monkeypatch.setattr(signals._shield, "kept", [])
    place, last = (subprocess, "Popen") if name == "Popen" else (commands, name)
    real = getattr(place, last)

    def late(*words: object, **settings: object) -> object:
        found.append(real(*words, **settings))
        signals._interrupt(signal.SIGTERM, None)
        return found[-1]

    monkeypatch.setattr(place, last, late)
    return found


def test_a_delayed_signal_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delayed signal is raised once, and not again by the next block that delays signals."""
    monkeypatch.setattr(signals, "_ending", False)
    with pytest.raises(Interrupted), signals.uninterrupted():
        signals._interrupt(signal.SIGTERM, None)
    monkeypatch.setattr(signals, "_ending", False)
    with signals.uninterrupted():
        pass


def test_call_and_a_signal_as_the_command_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started = interrupt_after("Popen", monkeypatch)
    with pytest.raises(Interrupted):
        call("sleep 60")
    assert not commands._running
    assert [gone(process.pid) for process in started] == [True]


def test_a_signal_as_a_command_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is interrupted while it is ended stays known, and is ended by the cleanup."""
    monkeypatch.setattr(commands, "_over", False)
    reader = CommandReader("trap '' TERM; echo; while :; do sleep 0.05; done")
    reader.readinto(memoryview(bytearray(1)))
    with monkeypatch.context() as patched:
        interrupt_after("send", patched)
        with pytest.raises(Interrupted):
            reader.close()
    monkeypatch.setattr(commands, "PATIENCE", 0.1)
    end_commands()
    assert gone(reader.process.pid)
    assert not commands._running


STAYS = "sh -c 'echo $$ > pid; exec sleep 60'"


@each_row(
    ("signum", "words"),
    [
        (signal.SIGTERM, ["cat", f"pipe:{STAYS} | cat", "-o", "out.tar"]),
        (signal.SIGINT, ["cat", f"pipe:{STAYS} | cat", "-o", "out.tar"]),
        (signal.SIGTERM, ["cat", "in.tar", "-o", f"pipe:{STAYS} | cat"]),
        (signal.SIGINT, ["cat", "-p", "2", "in.tar", f"pipe:{STAYS} | cat", "-o", "out.tar"]),
        (signal.SIGTERM, ["create", "recipe", "-o", "out.tar"]),
        (signal.SIGTERM, ["create", "-p", "3", "recipe", "-o", "out.tar"]),
        (signal.SIGINT, ["create", "-p", "3", "recipe", "-o", "out.tar"]),
        (signal.SIGINT, ["split", "in.tar", "-c1", "-o", "out-%d.tar", "--post", f"{STAYS}; true"]),
    ],
)
def test_no_command_outlives_the_process(signum: int, words: list[str], here: Path) -> None:
    """A signal that ends the process ends any command that it runs, silently."""
    Path("in.tar").write_bytes(archive({"a.txt": b"a"}))
    Path("recipe").write_text(f"a.txt pipe:{STAYS} | cat\n")
    started = process(*words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    pid = pid_in("pid")
    started.send_signal(signum)
    assert started.wait(PATIENT) == -signum
    assert gone(pid)
    assert started.stderr
    assert started.stderr.read() == b""
    left = [name for name in os.listdir() if name not in ("in.tar", "recipe", "pid")]
    assert left == (["out-0.tar"] if "split" in words else [])


def test_an_error_ends_running_commands() -> None:
    """A failure elsewhere does not wait for commands that are read ahead."""
    wait = "while ! test -s pid; do sleep 0.01; done; exit 3"
    Path("recipe").write_text(f"a.txt pipe:{wait}\nb.txt pipe:echo $$ > pid; sleep 60; true\nc.txt pipe:sleep 60\n")
    done = tarkit("create", "-p", "4", "recipe", "-o", "out.tar", exit=1)
    assert b"recipe:1: command ended with status 3" in done.stderr
    assert gone(pid_in("pid"))


def test_at_a_terminal() -> None:
    """A command may read a password from the terminal: it is not stopped as a background process group would be."""
    words = "read -r word < /dev/tty; echo $word > answer"
    code = f"from tarkit.streams.command import call; call({words!r})"
    process, fd = at_terminal([sys.executable, "-c", code])
    os.write(fd, b"secret\n")
    with suppress(OSError):  # the other end is closed
        while select.select([fd], [], [], PATIENT)[0] and os.read(fd, 1000):
            pass
    if not Path("answer").exists():
        process.kill()
    process.wait()
    os.close(fd)
    assert Path("answer").read_text() == "secret\n"


# ---- programs


def test_a_signal_while_a_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal during the start of a program is delayed until the program can be ended."""
    before = set(commands._running)
    with monkeypatch.context() as patched:
        interrupt_after("Popen", patched)
        with pytest.raises(Interrupted):
            Program(("sleep", "60"))
    [program] = commands._running - before
    assert isinstance(program, Program)
    program.end()
    assert commands._running == before
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)


def test_programs_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that ignore TERM are killed together after one time limit, not one after the other."""
    monkeypatch.setattr(commands, "PATIENCE", 0.5)
    programs = [
        Program(("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"), stdout=PIPE) for _ in range(6)
    ]
    for program in programs:
        assert program.process.stdout
        assert program.process.stdout.read(1) == b"\n"
    start = time.monotonic()
    commands.end_all(*programs)
    assert 0.5 <= time.monotonic() - start < 3.0
    assert [program.wait() for program in programs] == [-signal.SIGKILL] * 6
