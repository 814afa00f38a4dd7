"""The progress bar on a terminal: when it is shown, and that messages have their own lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
from pathlib import Path

import pytest

from tests._tools import each_row, process, tarkit
from tests.conftest import tar

pytestmark = pytest.mark.forks

BAR = "B/s"  # text of a bar that no message has
SAMPLES = tar({f"{index:03d}.{field}": b"x" * 500 for index in range(200) for field in ("cls", "jpg")})


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a directory with an archive and recipes, and change to it; there are no colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    Path("in.tar").write_bytes(SAMPLES)
    Path("cut.tar").write_bytes(SAMPLES[:-12345])
    Path("recipe").write_text("a.txt text:a\nb.txt nothing\nc.txt text:c\n")
    Path("bad").write_text("a.txt text:a\n../b.txt text:b\n")


def terminal(*words: str, stdout: int | None = subprocess.DEVNULL) -> tuple[int, str]:
    """Run `tarkit WORDS` with a terminal as stderr; return its status, and the output on the terminal.

    With None for `stdout` that is the terminal too.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 150))
    done = process(*words, stdin=subprocess.DEVNULL, stdout=theirs if stdout is None else stdout, stderr=theirs)
    os.close(theirs)
    said = bytearray()
    try:
        while piece := os.read(ours, 1 << 16):
            said += piece
    except OSError:  # the error on Linux when the other end is closed
        pass
    os.close(ours)
    return done.wait(), said.decode().replace("\r\n", "\n")


def screen(said: str) -> list[str]:
    """Return the lines on the screen at the end: a carriage return overwrites the line."""
    lines = []
    for line in said.split("\n"):
        shown = ""
        for piece in line.split("\r"):
            shown = piece + shown[len(piece) :]
        lines.append(shown.rstrip())
    assert lines.pop() == "", "the output does not end with a line end"
    return lines


def test_a_message_has_its_own_line() -> None:
    """A message replaces the bar, which moves one line down."""
    status, said = terminal("create", "recipe", "-o", "out.tar", "--on-missing", "skip")
    lines = screen(said)
    assert status == 0
    assert [BAR in line for line in lines] == [False, True, False], lines
    assert lines[0].startswith("tarkit: warning: recipe:2: ")
    assert lines[0].endswith("; its entry is left out")
    assert BAR in said.split("warning")[0], "no bar was shown"
    assert lines[2].startswith("tarkit: create: 2 samples, ")


def test_notes_have_their_own_lines() -> None:
    """Notes of -v are printed on their own lines, while the bar continues."""
    status, said = terminal("-v", "split", "-c", "50", "in.tar", "-o", "out-%d.tar")
    lines = screen(said)
    assert status == 0
    assert sum("closed by" in line for line in lines) == 4
    assert [line for line in lines if not line.startswith("tarkit: ")] == [line for line in lines if BAR in line]
    assert sum(BAR in line for line in lines) == 1


def test_an_error_is_last() -> None:
    """The bar stays above the error."""
    lines = screen(terminal("create", "bad", "-o", "out.tar")[1])
    assert [BAR in line for line in lines] == [True, False], lines
    assert lines[1].endswith("[unsafe-name]")
    lines = screen(terminal("cat", "cut.tar", "-o", "out.tar")[1])
    assert BAR in lines[0]
    assert not any(BAR in line for line in lines[1:])
    assert "[truncated]" in lines[1]


@each_row("words", ["cat in.tar -o out.tar", "split -c 70 in.tar", "split -c 70 in.tar -o x-%d.tar --slice 10:20"])
def test_the_bar_ends_full(words: str) -> None:
    """The bar ends at 100%, though the end of the archive is not a sample."""
    status, said = terminal(*words.split())
    assert status == 0
    assert "100%" in next(line for line in screen(said) if BAR in line)
    assert "\x1b[3" not in said, "no colours"


def test_the_bar_moves_with_every_sample() -> None:
    """The bar moves with every sample, even if there are few and slow ones."""
    Path("slow").write_text("".join(f"{n}.txt pipe:sleep 0.2; echo {n}\n" for n in range(3)))
    _, said = terminal("create", "slow", "-o", "out.tar")
    assert all(f"{n} sample" in said for n in (1, 2, 3))


@each_row(
    "words",
    [
        "split in.tar -o nowhere/x-%d.tar",
        "split in.tar -s 1",
        "cat nothing.tar -o out.tar",
        "create nothing -o out.tar",
    ],
)
def test_no_empty_bar_before_an_error(words: str) -> None:
    """There is no bar before a sample was written."""
    status, said = terminal(*words.split())
    assert status
    assert BAR not in said
    assert said.startswith("tarkit: ")


def test_one_bar_in_a_pipeline() -> None:
    """If stdout is a pipe, the next command shows the bar, unless it is requested; --progress needs no terminal."""
    words = ("cat", "in.tar")
    with open("out", "wb") as out:
        assert BAR in terminal(*words, stdout=out.fileno())[1]
        assert BAR not in terminal(*words, "--no-progress", stdout=out.fileno())[1]
        assert BAR not in terminal(*words, "-q", stdout=out.fileno())[1]
    assert BAR not in drained(*words)
    assert BAR in drained(*words, "--progress")
    assert BAR not in drained("create", "recipe", "--on-missing", "skip")
    assert BAR not in tarkit(*words).stderr.decode()
    assert BAR in tarkit(*words, "--progress").stderr.decode()


def drained(*words: str) -> str:
    """Return the output of `terminal` with a pipe as stdout, which is read."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin
        status, said = terminal(*words, stdout=reader.stdin.fileno())
    assert status == 0
    return said


def test_proc() -> None:
    """The bar of proc shows samples and rate; the summary shows the outcomes."""
    command = "[ $TARKIT_KEY != 007 ]; s=$?; sleep 0.02; exit $s"
    words = ("-p", "2", "-c", command, "--count", "12", "in.tar", "-o", "out.tar", "--on-error", "skip")
    status, said = terminal("--progress", "proc", *words)
    assert status == 0
    assert re.search(r"\r *proc: .* [0-9]+ samples, [0-9]+/s", said)
    lines = screen(said)
    assert lines[0] == "tarkit: warning: in.tar: '007' ended with status 1"
    assert re.match(
        r"tarkit: proc: 11 samples, .* 11 done, 1 skipped, 1 failed, slowest '...' with 0\.[0-9]+ s, ", lines[-1]
    )
    assert lines[-2] == "tarkit: 1 sample failed and was left out"
    Path("in.tar").write_bytes(tar({f"{index}.x": b"" for index in range(8)}))
    status, said = terminal("--progress", "proc", "-c", "sleep 0.01", "--slice", "0:", "in.tar", "-o", "out.tar")
    assert status == 0


@each_row(
    ("words", "names"),
    [
        ("cat in.tar -o out.tar", ["cat: writing"]),
        ("sort in.tar -o out.tar", ["sort: reading", "sort: writing"]),
        ("shuffle in.tar --seed 1 -o out.tar", ["shuffle: reading", "shuffle: writing"]),
        ("split -n 3 in.tar -o out-%d.tar", ["split: counting", "split: writing"]),
        ("shard tree -c 3 -o made-%d.tar", ["shard: planning", "shard: writing"]),
        ("check in.tar cut.tar --allow truncated", ["check"]),
        ("each {0..3} -- true", ["each"]),
    ],
)
def test_passes_have_names(words: str, names: list[str]) -> None:
    """The bar of each pass has its name, and stays above that of the next one."""
    Path("tree").mkdir(exist_ok=True)
    for number in range(30):
        Path(f"tree/{number}.jpg").write_bytes(b"x" * 100)
    status, said = terminal(*words.split())
    assert status == 0
    bars = [line for line in screen(said) if not line.startswith("tarkit: ")]
    assert [re.split(r": +[0-9]+%|: [.0-9]+k?B ", line)[0] for line in bars] == names


@each_row(
    ("words", "lines"),
    [
        (
            ["each", "{0..2}", "-j", "1", "--", "bash", "-c", "echo out; echo err >&2"],
            "0: err,out,1: err,out,2: err,out",
        ),
        (["cat", "pipe:printf 'one\\nha' >&2; cat in.tar; printf 'lf' >&2", "-o", "out.tar"], "one,half"),
        (
            ["split", "in.tar", "-c", "50", "-o", "out-%d.tar", "-p", "echo {}"],
            ",".join(f"out-{n}.tar" for n in range(4)),
        ),
        (["proc", "in.tar", "--count", "3", "-o", "out.tar", "-c", "printf text"], "text,text,text"),
        (["tsv", "small.tar", "-f", "x"], "__key__\tx,a\t1,b\t2"),
    ],
)
def test_output_is_above_the_bar(words: list[str], lines: str) -> None:
    """What jobs, commands and tarkit itself write to the terminal has lines of its own, and the bar is below them."""
    Path("small.tar").write_bytes(tar({"a.x": b"1", "b.x": b"2"}))
    end = words.index("--") if "--" in words else len(words)
    status, said = terminal(*words[:end], "--progress", *words[end:], stdout=None)
    assert status == 0
    shown = [line for line in screen(said) if not line.startswith("tarkit: ")]
    own = [line for line in shown if not re.match(r"[a-z]+: .*(\[|B/s)", line)]
    assert own == lines.split(",")
    assert len(shown) == len(own) + 1
