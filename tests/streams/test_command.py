"""Commands at the other end of a pipe: statuses, what they said, and that none stays behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tarkit import signals
from tarkit.errors import CommandFailed, Interrupted, TarkitError
from tarkit.streams import command as commands
from tarkit.streams.command import CommandReader, CommandWriter, call, end_commands, family, last_line
from tests._tools import PATIENT, archive, at_terminal, each_row, gone, pid_in, process, tarkit


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_all(reader: CommandReader) -> bytes:
    """All that a command gives."""
    view, data = memoryview(bytearray(1000)), b""
    while got := reader.readinto(view):
        data += view[:got]
    return data


# ---- reading


def test_reader() -> None:
    """All of its output, its stdin empty; the end comes when it has ended well."""
    reader = CommandReader("cat; echo $0 $-; sleep 0.05; echo end > file")
    assert read_all(reader) == b"bash hBc\n"
    assert Path("file").read_text() == "end\n"
    assert reader.readinto(memoryview(bytearray(10))) == 0
    reader.close()


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
    """What it gave before can be read; its status comes instead of the end, also that of a part of a pipeline."""
    reader = CommandReader(command)
    with pytest.raises(CommandFailed, match=words) as error:
        read_all(reader)
    assert error.value.status == status
    assert command in str(error.value)
    reader.close()


def test_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """It goes to ours as it comes, and its last line is in the message, however much there was."""
    reader = CommandReader(
        "echo first >&2; head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\nlast\\xff one\\n\\n' >&2; exit 1"
    )
    with pytest.raises(CommandFailed) as error:
        read_all(reader)
    assert str(error.value).endswith(": last\\xff one")
    reader.close()
    said = capfd.readouterr().err
    assert said.startswith("first\nxxx")
    assert said.count("x") >= 100_000
    assert len(reader.tail) <= commands.TAIL


@each_row(
    ("stderr", "line"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"a", "a"),
        (b"a\nb", "b"),
        (b"a\n  b  \n\n", "b"),
        (b"\xe9\n", "\\xe9"),
        (b"a\rb", "b"),
    ],
)
def test_last_line(stderr: bytes, line: str) -> None:
    """The last line that says something."""
    assert last_line(stderr) == line


@each_row("command", ["yes", "echo x; exit 3", "cat /dev/zero | cat | cat", "trap '' PIPE; yes; exit 4"])
def test_stopping_early(command: str) -> None:
    """Once we stop reading, its status does not matter, and it ends."""
    reader = CommandReader(command)
    reader.readinto(memoryview(bytearray(2)))
    reader.close()
    assert gone(reader.process.pid)
    reader.close()


def test_a_reader_is_not_spliced_from() -> None:
    """Its end must be seen here, where the status is asked for."""
    reader = CommandReader("true")
    assert reader.fileno() is None
    reader.close()


# ---- writing


def test_writer() -> None:
    """It gets what is written, and is waited for."""
    writer = CommandWriter("cat > file; sleep 0.05; echo end >> file")
    os.write(writer.fd, b"abc ")
    writer.finish()
    assert Path("file").read_text() == "abc end\n"


def test_a_writer_that_fails() -> None:
    """Its status counts also when it has read all."""
    writer = CommandWriter("cat > /dev/null; echo why >&2; exit 5")
    with pytest.raises(CommandFailed, match=r"status 5: .*: why$"):
        writer.finish()


# ---- ending


@each_row("command", ["sleep 60", "sleep 60 | cat | cat", "(sleep 60; true) & wait"])
def test_ending_takes_all_of_it(command: str, here: Path) -> None:
    """The command, and what it started."""
    reader = CommandReader(f"sh -c 'echo $$ > pid; exec sleep 60' & {command}")
    pid = pid_in("pid")
    reader.close()
    assert gone(pid)
    assert reader.process.returncode == -signal.SIGTERM, "asked to end, not made to"


@pytest.mark.parametrize("who", ["leader", "child"])
def test_ending_what_does_not_want_to(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores TERM is killed after a while, be it the shell or what it started."""
    monkeypatch.setattr(commands, "PATIENCE", 0.1)
    stubborn = "trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 0.05; done'"
    reader = CommandReader(stubborn if who == "leader" else f"({stubborn}) & sleep 60")
    pid = pid_in("pid")
    reader.close()
    assert gone(pid)
    assert gone(reader.process.pid)


def test_who_cleans_up_gets_the_time_to() -> None:
    """TERM comes first, to the children of the shell too."""
    reader = CommandReader(
        "sh -c 'trap \"rm file; exit\" TERM; touch file; echo $$ > pid; while :; do sleep 0.01; done'; true"
    )
    pid = pid_in("pid")
    reader.close()
    assert gone(pid)
    assert not os.path.exists("file")


def test_end_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that run are ended at once, those that have ended are not remembered, and none starts any more."""
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
    """The message says what is missing."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TarkitError, match="bash is needed"):
        CommandReader("true")


# ---- calling


def test_call(capfd: pytest.CaptureFixture[str]) -> None:
    """Its status, its output ours, its stdin empty, variables as they were given."""
    assert call("cat; echo $A; echo err >&2; exit 3 | cat", A="a b\n$c") == 3
    assert capfd.readouterr() == ("a b $c\n", "err\n")
    assert call("true") == 0
    assert call("kill -9 $$") == -9
    assert not commands._running


def test_call_and_a_signal() -> None:
    """A signal that ends us ends the command too, and all that it started."""
    code = """if True:
        from tarkit.signals import catch_signals
        from tarkit.streams.command import call
        catch_signals()
        call("sh -c 'echo $$ > pid; exec sleep 60'; true")"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    pid = pid_in("pid")
    process.terminate()
    process.wait(10)
    assert gone(pid)


def interrupting(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have a signal come when `subprocess.Popen`, or a method of it, has done its work; what comes of that."""
    found: list[Any] = []
    monkeypatch.setattr(signals, "_ending", False)
    monkeypatch.setattr(signals._shield, "kept", [])
    place, last = (subprocess, "Popen") if name == "Popen" else (subprocess.Popen, name)
    real = getattr(place, last)

    def late(*words: object, **settings: object) -> object:
        found.append(real(*words, **settings))
        signals._interrupt(signal.SIGTERM, None)
        return found[-1]

    monkeypatch.setattr(place, last, late)
    return found


def test_a_signal_that_was_kept_back_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on, as a test does, is not interrupted again by the next moment that keeps signals back."""
    monkeypatch.setattr(signals, "_ending", False)
    with pytest.raises(Interrupted), signals.uninterrupted():
        signals._interrupt(signal.SIGTERM, None)
    monkeypatch.setattr(signals, "_ending", False)
    with signals.uninterrupted():
        pass


def test_call_and_a_signal_as_the_command_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs before the function that started it has returned, and is ended all the same."""
    started = interrupting("Popen", monkeypatch)
    with pytest.raises(Interrupted):
        call("sleep 60")
    assert not commands._running
    assert [gone(process.pid) for process in started] == [True]


def test_a_signal_as_a_command_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still known then, and ended as the last act."""
    monkeypatch.setattr(commands, "_over", False)
    reader = CommandReader("trap '' TERM; echo; while :; do sleep 0.05; done")
    reader.readinto(memoryview(bytearray(1)))
    with monkeypatch.context() as patched:
        interrupting("poll", patched)
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
def test_no_command_outlives_us(signum: int, words: list[str], here: Path) -> None:
    """Wherever a command runs, a signal that ends us ends it; nothing is said."""
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


def test_an_error_ends_what_still_runs() -> None:
    """A failure elsewhere does not wait for commands that are read ahead."""
    wait = "while ! test -s pid; do sleep 0.01; done; exit 3"
    Path("recipe").write_text(f"a.txt pipe:{wait}\nb.txt pipe:echo $$ > pid; sleep 60; true\nc.txt pipe:sleep 60\n")
    done = tarkit("create", "-p", "4", "recipe", "-o", "out.tar", exit=1)
    assert b"recipe:1: command ended with status 3" in done.stderr
    assert gone(pid_in("pid"))


def test_at_a_terminal() -> None:
    """A command may ask for a password there: it is not stopped as a group in the background would be."""
    words = "read -r word < /dev/tty; echo $word > answer"
    code = f"from tarkit.streams.command import call; call({words!r})"
    process, fd = at_terminal([sys.executable, "-c", code])
    os.write(fd, b"secret\n")
    with suppress(OSError):  # nobody is left at the other side
        while select.select([fd], [], [], PATIENT)[0] and os.read(fd, 1000):
            pass
    if not Path("answer").exists():
        process.kill()
    process.wait()
    os.close(fd)
    assert Path("answer").read_text() == "secret\n"


def test_the_family_of_a_process() -> None:
    """Where groups are shared, what a command started is found by asking the system."""
    process = subprocess.Popen(["bash", "-c", "sh -c 'echo $$ > pid; sleep 60; true'; true"])
    pid = pid_in("pid")
    known = family(process.pid)
    assert known[:2] == [process.pid, pid]
    for each in known:  # the other way round a parent might be gone before its turn
        os.kill(each, signal.SIGKILL)
    process.wait()
