"""tarkit each: a command line for each value, by processes; failures, journals, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarkit.jobs.process import LINE
from tests._tools import PATIENT, each_row, files_up_to, gone, happens, pid_in, process, tarkit
from tests.conftest import entries, keys, tar

pytestmark = pytest.mark.forks


def said(ran: subprocess.CompletedProcess[bytes]) -> list[str]:
    """Return the lines of stderr."""
    return ran.stderr.decode().splitlines()


def records(path: str = "j") -> list[dict[str, Any]]:
    """Return the lines of a journal."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def shards(count: int) -> None:
    """Make shards whose samples are not in order."""
    for number in range(count):
        names = [f"{number}/{at}.txt" for at in (2, 0, 1)]
        Path(f"in-{number}.tar").write_bytes(tar({name: name.encode() for name in names}))


def outputs() -> dict[str, bytes]:
    """Return the contents of outputs; nothing unfinished is there."""
    assert not [*Path().glob(".*")]
    return {path.name: path.read_bytes() for path in sorted(Path().glob("out-*.tar"))}


@contextmanager
def started(*words: str, **others: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start `tarkit WORDS`, and end it with the block."""
    with process(*words, **others) as run:
        try:
            yield run
        finally:
            run.terminate()


@pytest.fixture
def unbroken(here: Path) -> dict[str, bytes]:
    """Make eight shards, and return what a run over them writes."""
    shards(8)
    tarkit("each", "{0..7}", "--", "sort", "in-{}.tar", "-o", "out-{}.tar")
    found = outputs()
    assert len(found) == 8
    for name in found:
        os.unlink(name)
    return found


@each_row(
    "words,expected",
    [
        (["{a,b}", "--", "echo", "{}", "{index:02d}"], "a 00\nb 01\n"),
        (["d/x.tar", "y.tgz", "--", "echo", "{dir} {name} {stem}"], "d x.tar x\n. y.tgz y\n"),
        (["{0..3}", "-j", "4", "--", "bash", "-c", "sleep 0.$((3 - $1)); echo $1", "-", "{}"], "0\n1\n2\n3\n"),
        (["2", "--", "seq", "{}", "+", "tail", "-n", "1", "+", "sed", "s/^/x/"], "x2\n"),
        (["a b", "$(x)", "--", "echo", "<{}>"], "<a b>\n<$(x)>\n"),
        (["{0..9}", "--shard-index", "1/4", "--", "echo", "{} {index}"], "1 1\n5 5\n9 9\n"),
        (
            ["1", "--", "tarkit", "tsv", "in-{}.tar", "-f", "txt", "--no-header"],
            "1/2\t1/2.txt\n1/0\t1/0.txt\n1/1\t1/1.txt\n",
        ),
        (
            ["1", "--", "cat", "in-{}.tar", "+", "sort", "+", "tsv", "-f", "txt", "--no-key"],
            "txt\n1/0.txt\n1/1.txt\n1/2.txt\n",
        ),
        (["1", "--", "yes", "+", "head", "-n", "1"], "y\n"),  # yes is ended by SIGPIPE
        (["1", "--", "env", "sort", "list"], "a\nb\n"),
        (
            ["1", "--dry-run", "--", "cat", "in-{}.tar", "-o", "a b", "+", "x", "s3://me:secret@b/c"],
            "tarkit cat in-1.tar -o 'a b' | x s3://b/c\n",
        ),
    ],
)
def test_stdout(here: Path, words: list[str], expected: str) -> None:
    """What jobs print comes in the order of the values, whatever order they end in."""
    shards(2)
    Path("list").write_text("b\na\n")
    ran = tarkit("each", *words)
    assert (ran.stdout.decode(), ran.stderr.decode()) == (expected, "")


def test_failures(here: Path) -> None:
    """Lines of stderr have their value; a table has the command that repeats each job; the report has the same."""
    script = "echo one >&2; echo two >&2; exit $1"
    words = ["{0..3}", "--halt", "never", "-j", "1", "--report", "r", "--", "bash", "-c", script, "-", "{}"]
    ran = tarkit("each", *words, exit=1)
    lines = [re.sub(r"\d+\.\d\d", "T", line) for line in said(ran)]
    assert lines[:8] == [f"{value}: {word}" for value in range(4) for word in ("one", "two")]
    repeat = "bash -c 'echo one >&2; echo two >&2; exit $1' - "
    assert lines[8:] == [
        "tarkit: failed  how       attempts  seconds  to repeat it",
        *(f"tarkit: {value}       status {value}  1         T     {repeat}{value}" for value in (1, 2, 3)),
        "tarkit: 3 of 4 jobs failed",
        "hint: with --journal FILE, --resume would do what is left",
    ]
    report = json.loads(Path("r").read_text())
    assert report["jobs"] == {"total": 4, "done": 1, "kept": 0, "failed": 3, "cancelled": 0, "retried": 0}
    assert [each["stderr"] for each in report["failures"]] == ["one\ntwo"] * 3


@each_row(
    "words,expected",
    [
        (["no-such-program"], ("'no-such-program' cannot be started: No such file or directory", "status 127")),
        (["bash", "-c", "kill -9 $$"], ("", "SIGKILL")),
        (["cat", "no.tar"], ("no.tar: No such file or directory", "status 1")),
        (["cat", "cut.tar", "-o", "x.tar"], ("[truncated]", "status 1")),
        (["false", "+", "true"], ("", "status 1")),
        (["true", "+", "false"], ("", "status 1")),
    ],
)
def test_how_jobs_fail(here: Path, words: list[str], expected: tuple[str, str]) -> None:
    """Programs that are not there, signals, errors of tarkit, and a step that fails in a pipeline."""
    shards(1)
    Path("cut.tar").write_bytes(Path("in-0.tar").read_bytes()[:700])
    ran = tarkit("each", "v", "--", *words, exit=1)
    assert expected[0] in ran.stderr.decode()
    assert expected[1] in said(ran)[-3]
    assert not Path("x.tar").exists()


def test_lines_are_not_mixed(here: Path) -> None:
    """Parts of a line that are written apart are one line; a last one without a line end has one."""
    script = "for i in 1 2 3; do printf a >&2; sleep 0.01; printf 'b\\n' >&2; done; printf c >&2"
    ran = tarkit("each", "{0..3}", "-j", "4", "--", "bash", "-c", script)
    assert sorted(said(ran)) == sorted(f"{value}: {line}" for value in range(4) for line in ("ab", "ab", "ab", "c"))


def test_long_lines(here: Path) -> None:
    """Lines that a pipe takes in pieces are not mixed; a line that memory does not hold is passed on in pieces."""
    Path("s").write_text("for at in {1..9}; do printf '%030000d\\n' $1; done >&2")
    ran = tarkit("each", "{0..3}", "-j", "4", "--", "bash", "s", "{}")
    assert sorted(said(ran)) == [f"{value}: {value:030000d}" for value in range(4) for _ in range(9)]
    ran = tarkit("each", "v", "--", "bash", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2")
    assert sum(line.count("x") for line in said(ran)) == 1000000
    assert len(said(ran)) > 1
    assert max(map(len, said(ran))) <= 2 * LINE + 100


@each_row("halt,expected", [("soon", {0, 1, 2}), ("now", {0, 2}), ("never", {0, 1, 2, 3, 4})])
def test_halt(here: Path, halt: str, expected: set[int]) -> None:
    """After a failure the running jobs are done, or ended, or all others are done."""
    waits = "while [ ! -e failed ]; do sleep 0.01; done; sleep 0.2"
    script = f"case $1 in 1) {waits};; 2) :>failed; exit 1;; esac; :>done-$1"
    Path("s").write_text(script)
    ran = tarkit("each", "{0..4}", "-j", "2", "--halt", halt, "--", "bash", "s", "{}", exit=1)
    assert {int(path.name[5:]) for path in Path().glob("done-*")} == expected - {2}
    left = 5 - len(expected)
    assert said(ran)[-2] == "tarkit: 1 of 5 jobs failed" + (f", {left} were not done" if left else "")


def test_halt_now_prints_what_is_done(here: Path) -> None:
    """A job that is done has its output printed, and its line in the journal, though one before it is cancelled."""
    Path("s").write_text("case $1 in 0) sleep 600;; 1) echo one;; 2) sleep 0.5; exit 1;; esac")
    options = ("-j", "3", "--halt", "now", "--journal", "j")
    ran = tarkit("each", "{0..2}", "-v", *options, "--", "bash", "s", "{}", exit=1)
    assert ran.stdout == b"one\n"
    assert [(each["value"], each["status"]) for each in records()] == [("2", 1), ("1", 0)]
    assert "3 jobs: 1 done, 1 failed, 1 cancelled" in said(ran)[-3]
    Path("s").write_text("echo again $1")
    assert tarkit("each", "{0..2}", *options, "--resume", "--", "bash", "s", "{}").stdout == b"again 0\nagain 2\n"


def test_retries(here: Path) -> None:
    """A job is tried again; the journal has each attempt."""
    script = 'echo >> n; [ "$(wc -l < n)" -ge 3 ]'
    tarkit("each", "v", "--job-retries", "2", "--journal", "j", "--", "bash", "-c", script)
    assert [(each["attempt"], each["status"]) for each in records()] == [(1, 1), (2, 1), (3, 0)]
    os.unlink("n")
    ran = tarkit("each", "v", "--job-retries", "1", "--", "bash", "-c", script, exit=1)
    assert "status 1  2" in said(ran)[-3]


def test_timeout(here: Path) -> None:
    """A job that takes too long fails; all of it is ended, also what ignores SIGTERM."""
    script = "trap '' TERM; sleep 600 & echo $! > child; wait"
    ran = tarkit("each", "v", "--job-timeout", "0.5", "--", "bash", "-c", script, exit=1)
    assert said(ran)[0] == "v: tarkit: timed out"
    assert "timed out" in said(ran)[-3]
    assert gone(pid_in("child"))
    tarkit("each", "v", "--", "bash", "-c", "sleep 600 & echo $! > left")  # processes of its group end with a job
    assert gone(pid_in("left"))


@each_row("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_all_jobs(here: Path, signum: int) -> None:
    """A signal ends all processes of all jobs, and tarkit by that signal; nothing is recorded as done."""
    shards(1)
    words = ["proc", "-c", "echo $$ > $HERE/pid; sleep 600", "in-0.tar", "-o", "out-{}.tar"]
    with started("each", "v", "--journal", "j", "--", *words, env={"HERE": str(here)}, stderr=subprocess.PIPE) as run:
        pid = pid_in("pid")
        run.send_signal(signum)
        _, err = run.communicate(timeout=PATIENT)
    assert (run.returncode, err) == (-signum, b"")
    assert gone(pid)
    assert records() == []
    assert sorted(os.listdir()) == ["in-0.tar", "j", "pid"]


def test_jobs_end_when_tarkit_is_killed(here: Path) -> None:
    """After SIGKILL the guard ends the jobs, so that a run that resumes is alone."""
    with started("each", "v", "--", "bash", "-c", "sleep 600 & echo $! > pid; wait") as run:
        pid = pid_in("pid")
        run.kill()
    assert gone(pid)


def test_resume_after_kill(unbroken: dict[str, bytes]) -> None:
    """All is killed in the middle: the run that resumes does the rest, and the bytes are those of an unbroken run."""
    Path("s").write_text("[ $(ls out-*.tar 2>/dev/null | wc -l) -lt 3 ] || [ -e go ] || { :>ready; sleep 600; }")
    line = ["--journal", "j", "--", "bash", "s", "+", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    with started("each", "{0..7}", "-j", "2", *line, start_new_session=True) as run:
        assert happens(lambda: os.path.exists("ready"))
        os.killpg(run.pid, signal.SIGKILL)
    before = {each["value"] for each in records()}
    assert 0 < len(before) < 8
    Path("go").touch()
    with open("j", "ab") as file:
        file.write(b'{"value": "7", "comm')  # a torn line
    ran = tarkit("each", "{0..7}", "-v", "--resume", *line)
    assert f"8 jobs: {8 - len(before)} done, {len(before)} kept" in said(ran)[-1]
    assert outputs() == unbroken
    assert {each["value"] for each in records()} == set("01234567")
    assert "8 jobs: 8 kept" in said(tarkit("each", "{0..7}", "-v", "--resume", *line))[-1]


@pytest.mark.slow
def test_what_has_changed_is_done_again(unbroken: dict[str, bytes]) -> None:
    """Jobs whose input or output has changed or is gone, and whose command line is another, are done again."""
    line = ["--", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    tarkit("each", "{0..7}", "--journal", "j", *line)
    os.utime("in-1.tar", (1, 1))
    os.unlink("out-2.tar")
    Path("out-3.tar").write_bytes(b"something else")
    for options, expected in ((["-v"], {"1", "2", "3"}), (["-r"], set("01234567"))):
        count = len(records())
        tarkit("each", "{0..7}", "--journal", "j", "--resume", *line, *options[1:] if options == ["-v"] else options)
        assert {each["value"] for each in records()[count:]} == expected
        if expected == {"1", "2", "3"}:
            assert outputs() == unbroken


def test_directories_are_compared(here: Path) -> None:
    """A file that has changed in a directory that a job reads or writes, at any depth, has it done again."""
    for name in "ab":
        (here / name / "sub").mkdir(parents=True)
        (here / name / "sub/file").write_text(name)
    (here / "b/sub/file").rename(here / "target")
    (here / "b/sub/file").symlink_to(here / "target")
    packs = ["each", "a", "b", "--journal", "j", "--resume", "--", "tar", "-chf", "out-{}.tar", "{}"]
    tarkit(*packs)
    (here / "b/sub/file").write_text("new")
    tarkit(*packs)
    assert [record["value"] for record in records()[2:]] == ["b"]
    assert entries((here / "out-b.tar").read_bytes())[-1] == ("b/sub/file", b"new")
    (here / "files").mkdir()
    unpacks = ["extract", "out-?.tar", "-C", "files/{stem}", "--force", "--journal", "k", "--resume"]
    tarkit(*unpacks, "-v")
    (here / "files/out-a/a/sub/file").write_text("")
    tarkit(*unpacks, "-v")
    assert (here / "files/out-a/a/sub/file").read_text() == "a"
    assert [record["value"] for record in records("k")[2:]] == ["out-a.tar"]


def test_the_journal(here: Path) -> None:
    """A record has what is said of it; a journal that is there is an error; one that is locked is another."""
    shards(1)
    line = ["--", "cat", "in-{}.tar", "-o", "out-{}.tar"]
    tarkit("each", "0", "--journal", "j", *line)
    [record] = records()
    assert {name: record[name] for name in ("value", "command", "status", "samples", "bytes", "attempt", "host")} == {
        "value": "0",
        "command": "tarkit cat in-0.tar -o out-0.tar",
        "status": 0,
        "samples": 3,
        "bytes": 10240,
        "attempt": 1,
        "host": os.uname().nodename,
    }
    assert record["seconds"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["start"])
    assert [*record["inputs"], *record["outputs"]] == ["in-0.tar", "out-0.tar"]
    ran = tarkit("each", "0", "--journal", "j", *line, exit=2)
    assert said(ran)[0] == "tarkit: j: there is a journal of this name"
    with started("each", "v", "--journal", "k", "--", "bash", "-c", "echo $$ > pid; sleep 600"):
        pid_in("pid")
        ran = tarkit("each", "v", "--journal", "k", "--resume", "--", "true", exit=2)
    assert said(ran)[0] == "tarkit: k: another run writes to this journal"
    deep = "[" * 100_000 + "]" * 100_000
    for line in ("nothing", "5", "[]", deep, '{"job": "00", "status": 1e999, "inputs": {}, "outputs": {}}'):
        Path("l").write_text(f"{line}\n")
        ran = tarkit("each", "v", "--journal", "l", "--resume", "--", "true", exit=1)
        assert said(ran) == ["tarkit: l:1: this is no line of a journal"], line[:20]


def test_values_of_other_programs_are_not_requested(here: Path) -> None:
    """Whatever a URL is, the job of another program is run and recorded, and its URL is not looked at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        Path("list").write_text(f"a\0{url}\0http://127.0.0.1:1/x\0http://\0s3://bucket\0ftp://x/#?\0")
        words = ["each", "-0", "-T", "list", "--journal", "j", "--resume", "--net-retries", "0", "--"]
        for _ in range(2):
            ran = tarkit(*words, "bash", "-c", 'echo "$1" >> ran', "-", "{}", "url={}")
            assert (ran.stderr, len(records())) == (b"", 6)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing has connected
            server.accept()
    assert len(Path("ran").read_text().splitlines()) == 6


def test_a_full_disk(here: Path) -> None:
    """A job that cannot write fails, and leaves nothing that looks whole."""
    Path("in-0.tar").write_bytes(tar({"a.bin": bytes(1 << 20)}))
    ran = tarkit("each", "0", "--", "sort", "in-{}.tar", "-o", "out-{}.tar", exit=1, first=files_up_to(1 << 16))
    assert "out-0.tar: File too large" in ran.stderr.decode()
    assert sorted(os.listdir()) == ["in-0.tar"]


def test_a_full_disk_of_the_journal(here: Path) -> None:
    """A journal that cannot be written ends the run; what was written of its line is no error for the next one."""
    line = ["each", "{0..4}", "-j", "1", "--journal", "j", "--resume", "--", "bash", "-c", "echo >> n"]
    ran = tarkit(*line, exit=1, first=files_up_to(500))
    assert re.match("tarkit: j: (No space left on device|File too large)", said(ran)[0])
    done = len(Path("n").read_text())
    assert 0 < done < 5
    tarkit(*line)
    assert len(records()) == 5
    assert len(Path("n").read_text()) == 5 + 1  # the one that was not recorded is done again


def test_values_at_a_glance(here: Path) -> None:
    """A run with --progress shows how many jobs are done, and is not mixed with lines of jobs."""
    ran = tarkit("each", "{0..2}", "--progress", "--", "bash", "-c", "echo x >&2")
    assert b"3/3" in ran.stderr
    assert ran.stderr.count(b": x\n") == 3


def test_another_attempt_replaces_shards(here: Path) -> None:
    """The first attempt leaves a shard, and fails; the next one writes it again."""
    Path("a.tar").write_bytes(tar({f"{at}.txt": b"%d" % at for at in range(3)}))
    cut = 'if mkdir once; then head -c 1600 "$1"; exit 1; fi; cat "$1"'
    line = ["each", "a.tar", "--job-retries", "1", "--", "bash", "-c", cut, "-", "{}", "+"]
    tarkit(*line, "split", "-", "-c", "1", "-o", "{stem}-%d.tar")
    assert [keys(Path(f"a-{at}.tar")) for at in range(3)] == ["0", "1", "2"]
    assert Path("once").is_dir()


def test_another_attempt_of_a_step_without_shards(here: Path) -> None:
    """The series of a step before the last one is not replaced: the last step does not get its option."""
    Path("a.tar").write_bytes(tar({f"{at}.txt": b"%d" % at for at in range(3)}))
    line = ["each", "a", "--job-retries", "1", "--", "split", "{}.tar", "-c", "1", "--force", "-o", "{}-%d.tar", "+"]
    tarkit(*line, "each", "x", "--", "bash", "-c", "if mkdir once; then exit 1; fi")
    assert [keys(Path(f"a-{at}.tar")) for at in range(3)] == ["0", "1", "2"]
