"""tarkit proc with failing samples: messages, policies and rejects; no file or process is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import TarkitError
from tests._copies import Copied
from tests._tools import PATIENT, each_row, gone, member, pid_in, process
from tests.conftest import Archive, Content, Run, body, entries, keys, tar

TEN: dict[str, Content] = {
    f"{index}.{field}": f"{index} {field}".encode() for index in range(10) for field in ("x", "y")
}
THIRD = "((TARKIT_INDEX % 3 != 1)) || { echo bad $TARKIT_KEY >&2; exit 3; }; echo > sample.z"


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the processes of --map as forks of this one."""
    monkeypatch.setattr(subprocess, "Popen", Copied)


def left() -> list[str]:
    """Return the new files in the directory."""
    return sorted(name for name in os.listdir() if name not in ("in.tar", "log"))


# ---- policies


@pytest.mark.parametrize("number", ["1", "3"])
def test_error(number: str, run: Run, archive: Archive) -> None:
    """The first failure in the order of the input ends the run with all details; there is no output."""
    archive(TEN)
    ran = run("proc", "-p", number, "-c", THIRD, "in.tar", "-o", "out.tar", exit=1)
    assert ran.lines == [
        "bad 1",
        "tarkit: in.tar: '1' ended with status 3: bad 1",
        "hint: --on-error skip leaves such samples out, --rejects OUT.tar collects them",
    ]
    assert left() == []
    assert run("proc", "-q", "-c", THIRD, "in.tar", exit=1).lines[0] == ran.lines[1]


def test_skip(run: Run, archive: Archive) -> None:
    """Failed samples are dropped, printed and counted; the status is 0."""
    archive(TEN)
    ran = run("proc", "-p", "3", "-c", THIRD, "in.tar", "--on-error", "skip", "--report", "log")
    assert keys(ran.stdout) == "0 2 3 5 6 8 9"
    assert ran.lines[1] == "tarkit: warning: in.tar: '1' ended with status 3: bad 1"
    assert ran.lines[-1] == "tarkit: 3 samples failed and were left out"
    report = json.loads(Path("log").read_text())
    assert (report["done"], report["failed"], report["left_out"], report["samples"]) == (7, 3, 3, 7)
    assert report["slowest"]["seconds"] > 0
    again = run("proc", "-v", "-c", THIRD, "in.tar", "--on-error", "exclude")
    assert again.stdout == ran.stdout
    line = again.lines[-1]
    assert line.startswith("tarkit: proc: 7 samples, ")
    assert ", 7 done, 3 skipped, 3 failed, slowest '" in line


def test_keep(run: Run, archive: Archive) -> None:
    """Failed samples are written unchanged, for any changes by the command."""
    archive(TEN)
    command = "echo lost > sample.x; " + THIRD
    ran = run("proc", "-c", command, "in.tar", "--on-error", "keep")
    assert run("proc", "-c", command, "in.tar", "--on-error", "ignore") == ran
    found = dict(entries(ran.stdout))
    for index in range(10):
        failed = index % 3 == 1
        assert found[f"{index}.x"] == (TEN[f"{index}.x"] if failed else b"lost\n")
        assert (f"{index}.z" in found) != failed
    assert ran.lines[-1] == "tarkit: 3 samples failed and were kept as they came in"


@each_row(("limit", "exit"), [("3", 0), ("2", 1), ("0", 1), ("30%", 0), ("29.9%", 1), ("100%", 0), ("0%", 1)])
def test_max_errors(limit: str, exit: int, run: Run, archive: Archive) -> None:
    """If more samples fail than the number or share allows, there is no output, and no rejects either."""
    archive(TEN)
    words = ("--max-errors", limit, "--rejects", "bad.tar", "-o", "out.tar")
    ran = run("proc", "-c", THIRD, "in.tar", *words, exit=exit)
    if exit:
        assert "samples failed, more than --max-errors allows" in ran.stderr
    assert left() == ([] if exit else ["bad.tar", "out.tar"])


def test_retries(run: Run, archive: Archive) -> None:
    """A failed sample is run again from the start."""
    archive({"a.x": b"1", "b.x": b"2"})
    once = "../../once$TARKIT_KEY"
    command = f"[ ! -e sample.y ] || exit 9; touch sample.y; ls {once} && exit 0; touch {once}; exit 1"
    ran = run("proc", "-c", command, "in.tar", "--retries", "1", "--tmpdir", ".")
    assert [name for name, _ in entries(ran.stdout)] == ["a.x", "a.y", "b.x", "b.y"]
    lines = run("proc", "-c", "echo no >&2; exit 1", "in.tar", "--retries", "2", exit=1).lines
    assert lines[:4] == ["no", "no", "no", "tarkit: in.tar: 'a' ended with status 1 (3 attempts): no"]


def test_rejects(run: Run, archive: Archive) -> None:
    """Rejects are unchanged samples, with the details of the failure."""
    archive(TEN)
    run("proc", "-p", "2", "-c", "echo lost > sample.x; " + THIRD, "in.tar", "--rejects", "bad.tar", "-o", "out.tar")
    assert keys("out.tar") == "0 2 3 5 6 8 9"
    found = entries("bad.tar")
    assert [name for name, _ in found] == [f"{i}.{field}" for i in (1, 4, 7) for field in ("x", "y", "__error__.json")]
    assert Path("bad.tar").read_bytes()[:2048] == tar({"1.x": TEN["1.x"], "1.y": TEN["1.y"]})[:2048]
    record = json.loads(dict(found)["4.__error__.json"] or b"")
    assert record.pop("seconds") > 0
    assert record == {
        "key": "4",
        "shard": "in.tar",
        "index": 4,
        "reason": "ended with status 3",
        "status": 3,
        "signal": None,
        "stderr": "bad 4\n",
        "attempts": 1,
    }
    run("proc", "-c", ":", "in.tar", "--rejects", "none.tar", "-o", "out.tar")
    assert Path("none.tar").read_bytes() == bytes(10240)


# ---- easily overlooked failures


def test_nothing_is_left(run: Run, archive: Archive) -> None:
    """A function that returns None, or a command that removes all samples, causes a message; removing a few is fine."""
    archive(TEN)
    Path("f.py").write_text("def lost(sample): sample['z'] = b''\ndef one(sample): return None\n")
    assert run("proc", "--map", "f.py:lost", "in.tar", "-o", "out.tar").lines == [
        "tarkit: warning: nothing is left of 10 samples: the function returned None: does it return them?"
    ]
    assert run("proc", "-c", "rm sample.*", "in.tar", "-o", "out.tar").lines == [
        "tarkit: warning: nothing is left of 10 samples: the command left no file sample.*"
    ]
    assert run("proc", "-c", "rm sample.*", "in.tar", "-q", "-o", "out.tar").stderr == ""
    assert run("proc", "-c", "((TARKIT_INDEX)) || rm sample.*", "in.tar", "-o", "out.tar").stderr == ""
    assert ", 1 removed, " in run("proc", "-v", "-c", "((TARKIT_INDEX)) || rm *", "in.tar", "-o", "out.tar").stderr


def test_all_fail(run: Run, archive: Archive) -> None:
    """If all samples failed, a message says so, and the same failure is not repeated."""
    archive(TEN)
    words = ("proc", "-c", "echo bad $TARKIT_KEY >&2; exit 3", "in.tar", "-o", "out.tar")
    failed = [f"tarkit: warning: in.tar: '{number}' ended with status 3: bad {number}" for number in range(10)]
    end = [
        "tarkit: warning: nothing is left of 10 samples: all failed",
        "tarkit: 10 samples failed and were left out",
    ]
    more = "tarkit: warning: more samples fail in the same way: 'ended with status 3'; they are counted, -v shows all"
    for option in (("--on-error", "skip"), ("--rejects", "bad.tar")):
        lines = [line for line in run(*words, *option).lines if line.startswith("tarkit")]
        assert lines == [*failed[:3], more, *end]
    said = run(*words, "--rejects", "bad.tar", "-v").lines
    assert [line for line in said if ": warning: in.tar" in line] == failed
    assert keys("bad.tar") == "0 1 2 3 4 5 6 7 8 9"
    assert run(*words, "--on-error", "skip", "-q").stderr == ""
    lines = run(*words, "--on-error", "keep").lines
    assert lines[-1] == "tarkit: 10 samples failed and were kept as they came in"
    assert not [line for line in lines if "nothing is left" in line]
    lines = run(*words[:2], "echo bad $((TARKIT_INDEX / 5 + 20)) >&2; exit 3", "in.tar", "--on-error", "skip").lines
    assert [line.count("more samples fail") for line in lines if line.startswith("tarkit: w")] == [0, 0, 0, 1] * 2 + [0]


def test_answers_that_do_not_come(run: Run, archive: Archive) -> None:
    """A program that ends early with a complete archive and status 0 looks like one that removes samples."""
    archive(TEN)
    head = "tar -xf - && tar -cf - 0.x 0.y 1.x"
    assert run("proc", "--worker", head, "in.tar", "-o", "out.tar").lines == [
        "tarkit: 8 of 10 samples had no answer and were removed"
    ]
    assert [name for name, _ in entries(Path("out.tar"))] == ["0.x", "0.y", "1.x"]
    assert run("proc", "--worker", "cat", "in.tar", "-o", "out.tar").stderr == ""


@each_row("command", ["./mine.sh sample.x", "nowhere-to-be-found"])
def test_a_program_that_is_not_there(command: str, run: Run, archive: Archive) -> None:
    """The message has the directory in which a command runs, for programs that are in another one."""
    archive(TEN)
    lines = run("proc", "-c", command, "in.tar", "-o", "out.tar", exit=1).lines
    assert lines[-1].startswith("hint: commands run in the directory of the sample: ")


# ---- many samples


FUNCTION = """
def some(sample):
    number = int(sample["__key__"])
    if number % 100 == 7:
        raise ValueError(f"no {number}")
    return {**sample, "y": b"%d" % (number * number)}


def all(sample):
    return {**sample, "y": b"%d" % int(sample["__key__"]) ** 2}
"""
MANY = 300


def test_hundreds(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy is exact for any -p; the repaired output is complete."""
    monkeypatch.setattr("tarkit.proc.function.TOGETHER", 20)
    bad = set(range(7, MANY, 100))
    old = [member(f"{index:05d}.x", b"") for index in range(MANY)]
    new = [each + member(f"{index:05d}.y", b"%d" % index**2) for index, each in enumerate(old)]
    Path("in.tar").write_bytes(b"".join(old) + bytes(1024))
    Path("f.py").write_text(FUNCTION)
    words = ("proc", "--map", "f.py:some", "in.tar")
    lines = run(*words, "-p", "2", "-o", "out.tar", exit=1).lines
    assert lines[0].startswith("tarkit: in.tar: '00007' raised ValueError in f.py, line 5: ")
    assert lines[0].endswith("| ValueError: no 7")
    assert left() == ["f.py"]
    ran = run(*words, "-p", "2", "-o", "out.tar", "--rejects", "bad.tar", "--max-errors", "1%")
    assert ran.lines[-1] == "tarkit: 3 samples failed and were left out"
    assert body(Path("out.tar").read_bytes()) == b"".join(each for index, each in enumerate(new) if index not in bad)
    assert keys("bad.tar").split() == [f"{index:05d}" for index in sorted(bad)]
    kept = run(*words, "-p", "3", "--on-error", "keep", "-q")
    assert kept.stderr == ""
    assert body(kept.stdout) == b"".join((old if index in bad else new)[index] for index in range(MANY))
    run("proc", "--map", "f.py:all", "--drop", "__error__.json", "bad.tar", "-o", "good.tar")
    assert body(run("sort", "out.tar", "good.tar").stdout) == b"".join(new)


# ---- commands that fail


@each_row(
    ("command", "what"),
    [
        ("kill -9 $$", "was ended by SIGKILL"),
        ("kill $$; sleep 60", "was ended by SIGTERM"),
        ("no-such-command", "ended with status 127: bash: line 1: no-such-command: command not found"),
        ("for i in 1 2 3 4 5; do echo line $i; done >&2; false", "ended with status 1: line 3 | line 4 | line 5"),
        ("printf '\\377\\n' >&2; exit 2", "ended with status 2: \\xff"),
    ],
)
def test_ends(command: str, what: str, run: Run, archive: Archive) -> None:
    """The message has status or signal, and the last lines of stderr."""
    archive({"a.x": b"1"})
    said = run("proc", "-q", "-c", command, "in.tar", exit=1).lines[0]
    assert said == f"tarkit: in.tar: 'a' {what}"


@each_row("batch", [(), ("--batch", "2")])
@each_row(
    ("command", "missed"),
    [
        ("sh tool.sh", "tool.sh"),
        ("[ a ] && sh ./tool.sh 1", "./tool.sh"),
        ("tool.sh", "tool.sh"),
        ("cat <'sub/list'", "sub/list"),
        ("cat sub", None),  # a directory
        ("grep tool.sh /dev/null", None),  # not in the message of the command
        ("echo false > tool.sh; sh -x tool.sh; echo tool.sh >&2; false", None),  # it is there
        ("sh -x $HERE/tool.sh", None),
    ],
)
def test_a_file_beside_the_user(
    command: str, missed: str | None, batch: tuple[str, ...], run: Run, archive: Archive, here: Path
) -> None:
    """The hint has the absolute path of a file that the command misses in the directory of the sample."""
    archive({"a.x": b"1"})
    Path("sub").mkdir()
    for name in ("tool.sh", "sub/list"):
        Path(name).write_text("false\n")
    last = run("proc", *batch, "-c", command.replace("$HERE", str(here)), "in.tar", exit=1).lines[-1]
    if missed is None:
        assert last.startswith("hint: --on-error skip leaves such samples out")
    else:
        assert (
            last == f"hint: commands run in the directory of the sample, where {missed} is not: write {here / missed}"
        )


def test_timeout(run: Run, archive: Archive) -> None:
    """The command and all of its process group end, also processes that ignore TERM."""
    archive({"a.x": b"1", "b.x": b"2"})
    command = "[ $TARKIT_KEY = a ] || exit 0; sleep 60 & echo $! > ../../one; echo $$ > ../../two; echo wait >&2; wait"
    ran = run("proc", "-c", command, "in.tar", "--timeout", "2", "--on-error", "skip", "--tmpdir", ".")
    assert ran.lines[1] == "tarkit: warning: in.tar: 'a' took longer than 2 s and was ended: wait"
    assert keys(ran.stdout) == "b"
    assert all(gone(pid_in(name)) for name in ("one", "two"))


def test_timeout_of_the_stubborn(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores TERM is killed."""
    from tarkit.proc import shell

    monkeypatch.setattr(shell, "PATIENCE", 0.05)
    archive({"a.x": b"1"})
    command = "trap '' TERM; echo $$ > ../../one; while :; do sleep 0.01; done"
    ran = run("proc", "-c", command, "in.tar", "--timeout", "1", "--tmpdir", ".", exit=1)
    assert "took longer than 1 s and was ended" in ran.stderr
    assert gone(pid_in("one"))


def test_what_is_left_running(run: Run, archive: Archive) -> None:
    """A process in the background does not delay the run, even with stdout and stderr, and ends with its sample."""
    archive({"a.x": b"1"})
    started = time.monotonic()
    run("proc", "-c", "sleep 60 & echo $! > ../../one; (while :; do echo more; done) &", "in.tar", "--tmpdir", ".")
    assert time.monotonic() - started < 20
    assert gone(pid_in("one"))


def test_a_command_that_says_a_lot(run: Run, archive: Archive) -> None:
    """The output and the input may exceed the buffer of a pipe."""
    archive({"a.x": b"1"})
    ran = run("proc", "-c", "seq 15000 >&2 & seq 15000; wait", "in.tar")
    assert sorted(map(int, ran.lines)) == sorted([*range(1, 15001)] * 2)


def test_directories_that_cannot_be_entered(run: Run, archive: Archive, here: Path) -> None:
    """Directories without permission are removed, with links that lead out and unusual names."""
    archive({"a.x": b"1"})
    Path("kept").mkdir()
    Path("kept/file").write_text("here")
    command = "mkdir -p d/e/f; touch d/e/f/g; ln -s ../../kept d/link; ln -s /nowhere l2; mkfifo p; chmod 0 d/e/f d/e d"
    run("proc", "-c", command, "in.tar", "--tmpdir", ".", "-o", "out.tar")
    assert left() == ["kept", "out.tar"]
    assert Path("kept/file").read_text() == "here"


# ---- signals


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(signum: signal.Signals, archive: Archive) -> None:
    """All processes end, all directories are removed, no output appears, and the process ends by the signal."""
    archive(TEN)
    command = "echo $$ > pid; mv pid ../../pid$TARKIT_KEY; sleep 60 & wait"
    words = ("proc", "-p", "2", "-c", command, "in.tar", "-o", "out.tar", "--rejects", "bad.tar", "--tmpdir", ".")
    started = process(*words, stderr=subprocess.PIPE)
    pids = [pid_in(f"pid{index}") for index in (0, 1)]
    started.send_signal(signum)
    assert started.wait(PATIENT) == -signum
    assert started.stderr is not None
    assert started.stderr.read() == b""
    assert all(map(gone, pids))
    assert [name for name in left() if not name.startswith("pid")] == []


def test_a_broken_pipe(archive: Archive) -> None:
    """If the output is closed, all processes end at once."""
    archive({f"{index:03d}.x": bytes(1 << 17) for index in range(30)})
    words = ("proc", "-p", "2", "-c", ": $TARKIT_KEY", "in.tar", "--tmpdir", ".")
    started = process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stdout.read(100)
    started.stdout.close()
    assert started.wait(PATIENT) == -signal.SIGPIPE
    assert left() == []


def test_a_damaged_input(run: Run, archive: Archive) -> None:
    """Damage of the input is an error without an output, although samples before it were processed."""
    data = tar(TEN)
    archive(data[:5000])
    assert "[truncated]" in run("proc", "-p", "2", "-c", ":", "in.tar", "-o", "out.tar", exit=1).stderr
    assert left() == []
    assert keys(run("proc", "-p", "2", "-c", ":", "in.tar", "--skip", "truncated").stdout) == "0 1"


def test_no_zombies(run: Run, archive: Archive) -> None:
    """Every child is waited for."""
    archive(TEN)
    others = children()  # children of tests that share this process
    run("proc", "-p", "4", "-c", "sleep 0.01 & exit $((TARKIT_INDEX % 2))", "in.tar", "--on-error", "skip")
    assert children() == others


def children() -> set[int]:
    """Return the child processes that were not waited for."""
    tasks = Path("/proc/self/task")
    return {int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()}


def test_a_sample_that_was_rejected_before(run: Run, archive: Archive) -> None:
    """It has only one record."""
    archive({"a.x": b"1"})
    run("proc", "-c", "exit 1", "in.tar", "--rejects", "one.tar", "-o", "out.tar")
    run("proc", "-c", "exit 2", "one.tar", "--rejects", "two.tar", "-o", "out.tar")
    found = entries("two.tar")
    assert [name for name, _ in found] == ["a.x", "a.__error__.json"]
    assert json.loads(found[1][1] or b"")["status"] == 2  # type: ignore[arg-type]
    assert Path("two.tar").read_bytes()[:1024] == tar({"a.x": b"1"})[:1024] != member("a.x", b"1")


# ---- mistakes in a function

MISTAKES = """
def name(s): return nothere
def kind(s): return len(3)
def attribute(s): return s.nothere
def module(s): import nothere
def result(s): return 3
def later(s): return {"x": b"1"} if s["__key__"] < "5" else len(3)
def name_later(s): return {"x": b"1"} if s["__key__"] < "5" else nothere
def value(s): raise ValueError
def absent(s): return s["nothere"]
"""


@each_row("number", ["1", "3"])
def test_mistakes_in_functions(number: str, run: Run, archive: Archive) -> None:
    """A function with a mistake fails for every sample: --on-error skip, which leaves all out, is no repair."""
    archive(TEN)
    Path("f.py").write_text(MISTAKES)
    skip = "hint: --on-error skip leaves such samples out, --rejects OUT.tar collects them"
    mistake = "hint: this looks like a mistake in the function, not in the sample: correct the function"
    for function in ("name", "kind", "attribute", "module", "result", "name_later"):
        assert run("proc", "-p", number, "--map", f"f.py:{function}", "in.tar", exit=1).lines[-1] == mistake, function
    for function in ("value", "absent", "later"):
        assert run("proc", "-p", number, "--map", f"f.py:{function}", "in.tar", exit=1).lines[-1] == skip, function
    with pytest.raises(TarkitError) as raised:
        list(tarkit.open("in.tar").map(lambda sample: nothere))  # type: ignore[name-defined]  # noqa: F821
    assert raised.value.hint == mistake.removeprefix("hint: ")
