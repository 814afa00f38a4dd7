"""Real shells, pipelines, signals, terminals and full disks."""

from __future__ import annotations

import functools
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import tarkit as package
from tarkit import signals
from tarkit.cli import app
from tarkit.errors import TarkitError
from tarkit.streams import source
from tarkit.tar.writer import EntryWriter
from tests import conftest
from tests._served import served
from tests._tools import MARKER, PATIENT, TARKIT, archive, contents, each_row, happens, member, process, program, tarkit

pytestmark = pytest.mark.forks

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
THREE = archive({"a.txt": b"1" * 600, "b.txt": b"2" * 600, "c.txt": b"3" * 600})


@functools.cache
def large() -> bytes:
    """Return an archive larger than any pipe; made on demand, since each fork copies existing memory."""
    return archive({f"{number}.bin": random.Random(number).randbytes(80_000) for number in range(20)})


INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


@pytest.fixture(scope="module")
def bins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a directory with the command `tarkit`, and one with a fast `tarkit` for tests of files and pipes only."""
    real = tmp_path_factory.mktemp("real")
    (real / "tarkit").write_text(f'#!/bin/sh\nexec {shlex.join(TARKIT)} "$@"\n')
    (real / "tarkit").chmod(0o755)
    return real, served(tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bins: tuple[Path, Path]) -> Path:
    """Make a directory for the test with `tarkit` in PATH, and change to it."""
    monkeypatch.setenv("PATH", f"{bins[0]}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    Path("a.tar").write_bytes(THREE)
    return tmp_path


each = partial(each_row, before=lambda: Path("a.tar").write_bytes(THREE))


def sh(script: str, exit: int = 0, shell: str = "bash -o pipefail -c", stdin: int = DEVNULL) -> tuple[str, str]:
    """Run a script; return stdout and stderr. Its status must be `exit`, and there must be no traceback."""
    done = subprocess.run([*shell.split(), script], stdin=stdin, capture_output=True, timeout=PATIENT, check=False)
    out, err = done.stdout.decode("latin-1"), done.stderr.decode("latin-1")
    assert done.returncode == exit, f"status {done.returncode}\n{err}"
    assert_no_traceback(err)
    return out, err


@pytest.fixture
def quick(bins: tuple[Path, Path], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fast `tarkit`."""
    monkeypatch.setenv("PATH", f"{bins[1]}:{os.environ['PATH']}")


def alone(line: str, exit: int = 0, first: Callable[[], object] | None = None) -> str:
    """Run a line with one command and redirections such as `<`, `>>` and `2>&-`, without a shell; return stderr.

    It does what a shell would do, and takes less time than a new process; a command without redirections runs in this
    process.
    """
    words, opened = [], []
    tokens = iter(shlex.split(line, posix=False)[1:])
    for token in tokens:
        if found := re.fullmatch(r"(\d?)(<>|>>|<|>)(&-)?", token):
            fd = int(found[1] or "<" not in found[2])
            opened.append((fd, found[2], None if found[3] else next(tokens)))
        else:
            words += shlex.split(token)

    def before() -> None:
        for fd, how, name in opened:
            if name is None:
                os.close(fd)
            else:
                new = os.open(name, FLAGS[how], 0o644)
                if new != fd:
                    os.dup2(new, fd)
                    os.close(new)
        if first is not None:
            first()

    if not opened and first is None:
        return conftest.tarkit(*words, exit=exit).stderr
    done = tarkit(*words, exit=exit, first=before)
    assert_no_traceback(done.stderr.decode("latin-1"))
    return done.stderr.decode("latin-1")


FLAGS = {
    "<": os.O_RDONLY,
    ">": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    ">>": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "<>": os.O_RDWR | os.O_CREAT,
}


def assert_no_traceback(err: str) -> None:
    """Check that there is no traceback or other message of Python."""
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    assert "Aborted" not in err, err


def left() -> list[str]:
    """Return the names in the directory, including hidden ones."""
    return sorted(os.listdir())


def names(path: str) -> list[str]:
    """Return the names in an archive, which must be complete."""
    data = Path(path).read_bytes()
    assert data.endswith(MARKER)
    return [name for name, _ in contents(data)]


# ---- pipelines


@each(
    ("script", "out"),
    [
        # commands work in pipelines with each other and with tar
        (
            """printf 'x.txt text:one\\ny.txt text:two\\n' | tarkit create | tarkit cat - a.tar |
            tarkit split -c 2 -o 's-%d.tar'; tarkit cat 's-*.tar' | tar tf - | tr '\\n' ' '""",
            "x.txt y.txt a.txt b.txt c.txt ",
        ),
        # stdin in all ways
        ("cat a.tar | tarkit cat | cmp - a.tar", ""),
        ("tarkit cat - < a.tar | cmp - a.tar", ""),
        ("cat a.tar | tarkit cat /dev/stdin | cmp - a.tar", ""),
        # `<(...)` is an input, `>(...)` an output, several at once; a FIFO is both
        (
            "tarkit cat <(cat a.tar) <(tarkit cat a.tar --rekey 'x/{key}') | tar tf - | tr '\\n' ' '",
            "a.txt b.txt c.txt x/a.txt x/b.txt x/c.txt ",
        ),
        ("tarkit cat a.tar -o >(cat > b.tar); until cmp -s a.tar b.tar; do sleep 0.02; done", ""),
        ("mkfifo in out; cat a.tar > in & cat out > b.tar & tarkit cat in -o out; wait; cmp a.tar b.tar", ""),
        # a child ends by SIGPIPE, as it would in a shell, instead of printing an error
        ("tarkit cat 'pipe:(yes; echo $? > s) | head -c 1 > /dev/null; cat a.tar' | cmp - a.tar; cat s", "141\n"),
    ],
)
def test_pipelines(script: str, out: str, quick: None) -> None:
    """Commands work in pipelines, with files, pipes and FIFOs, as other programs do."""
    assert sh(script) == (out, "")


@each(("shell", "bin"), [("dash -c", 0), ("zsh -f -c", 1)])
def test_other_shells(shell: str, bin: int, bins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline works in other shells, once with a new Python process."""
    monkeypatch.setenv("PATH", f"{bins[bin]}:{os.environ['PATH']}")
    program(shell.split()[0])
    script = "printf 'x.txt text:one\\n' | tarkit create | tarkit cat - a.tar | tar tf - | tr '\\n' ' '"
    assert sh(script, shell=shell) == ("x.txt a.txt b.txt c.txt ", "")


def test_appending(quick: None) -> None:
    """`>> out.tar` appends, for all ways of copying."""
    Path("big.tar").write_bytes(large())
    Path("out").write_bytes(b"before")
    sh("tarkit cat big.tar >> out; cat big.tar | tarkit cat >> out; tarkit cat a.tar >> out")
    assert Path("out").read_bytes() == b"before" + large() + large() + THREE


@each(
    ("how", "bin"),
    [("tarkit cat big.tar", 0), ("cat big.tar | tarkit cat", 1), ("tarkit cat big.tar --compress gz:1", 1)],
)
def test_a_closed_pipe(how: str, bin: int, bins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """`| head` ends the command by SIGPIPE, silently, whatever it writes; once with a new Python process."""
    monkeypatch.setenv("PATH", f"{bins[bin]}:{os.environ['PATH']}")
    Path("big.tar").write_bytes(large())
    out, err = sh(f"{{ {how}; echo $? >&3; }} 3>status | head -c 100 | wc -c; cat status")
    assert (out.split(), err) == (["100", "141"], "")


@each("words", ["--help", "cat -h"])
def test_a_closed_pipe_of_the_help(words: str, quick: None) -> None:
    """A closed pipe ends --help silently as well."""
    late = "until test -e closed; do sleep 0.01; done"
    out, err = sh(f"{{ {late}; tarkit {words}; echo $? >&3; }} 3>status | {{ exec <&-; > closed; }}; cat status")
    assert (out, err) == ("141\n", "")


def test_statuses_of_a_pipeline(quick: None) -> None:
    """Each status in a pipeline is that of its command."""
    Path("cut.tar").write_bytes(THREE[:2000])
    out, err = sh("tarkit cat cut.tar | tarkit split -c 1 -o 's-%d.tar'; echo ${PIPESTATUS[*]}")
    assert out == "1 1\n"
    assert "[truncated]" in err
    assert [name for name in left() if name.endswith(".part")] == []


# ---- an output that is an input


@each(
    "script",
    [
        "tarkit cat a.tar -o a.tar",
        "tarkit cat a.tar -o ./a.tar",
        "tarkit cat < a.tar -o a.tar",
        "tarkit cat a.tar >> a.tar",
        "tarkit cat < a.tar >> a.tar",
        "tarkit cat a.tar 1<> a.tar",
        "tarkit cat a.tar -o /dev/stdout >> a.tar",
        "tarkit cat a.tar -o /dev/fd/3 3>> a.tar",
        "ln -s a.tar link; tarkit cat a.tar -o link",
        "ln a.tar hard; tarkit cat a.tar -o hard",
        "ln a.tar s-0.tar; tarkit split a.tar -c1 -o 's-%d.tar' --force",
        "ln a.tar x-000000.tar; tarkit split a.tar -c1 -o x --force",
        "cp a.tar s-1.tar; tarkit split s-1.tar -c1 -o 's-%d.tar' --append",
        "ln -s /dev/stdin here; tarkit cat here -o a.tar < a.tar",
    ],
)
def test_an_input_as_the_output(script: str) -> None:
    """An output that is an input, under any name, is a usage error, and the input is unchanged."""
    before, _, line = script.rpartition("; ")
    if before:
        sh(before)
    err = alone(line, exit=2)
    assert "is both input and output" in err or "has a name that the shards may get" in err
    assert Path("a.tar").read_bytes() == THREE


def test_an_input_that_the_shell_truncated() -> None:
    """With `> a.tar` the shell truncates the input first; the error is reported."""
    assert "a.tar is both input and output" in alone("tarkit cat a.tar > a.tar", exit=2)


def test_create_does_not_read_its_output(quick: None) -> None:
    """A recipe or an entry that is the output is an error."""
    _, err = sh("printf 'x.bin a.tar\\n' | tarkit create -o a.tar", exit=1)
    assert "is both input and output" in err
    _, err = sh("cp a.tar recipe; tarkit create recipe -o recipe", exit=2)
    assert Path("a.tar").read_bytes() == Path("recipe").read_bytes() == THREE


# ---- closed descriptors, terminals


@each(
    ("script", "status", "words"),
    [
        ("tarkit cat - <&-", 1, "stdin: Bad file descriptor"),
        ("tarkit cat a.tar >&-", 1, "stdout: Bad file descriptor"),
        (":; tarkit cat a.tar >&-", 1, "stdout: Bad file descriptor"),
        ("tarkit cat a.tar -o b.tar <&- >&-", 0, ""),
        ("tarkit cat a.tar -o b.tar 2>&-", 0, ""),
        ("tarkit cat a.tar -o b.tar --progress 2>&-", 0, ""),
        ("tarkit cat missing.tar 2>&-", 1, ""),
        ("tarkit cat 'pipe:cat a.tar' -o b.tar <&- >&- 2>&-", 0, ""),
        ("tarkit cat a.tar -o 'pipe:cat > b.tar' <&- >&- 2>&-", 0, ""),
        ("tarkit split a.tar -c 9 -o 'b%s.tar' <&- >&- 2>&-; tarkit cat a.tar -o b.tar", 0, ""),
        ("tarkit --help >&-", 1, "Bad file descriptor"),
        ("printf 'a.txt text:1\\n' | tarkit create -o b.tar >&- 2>&-", 0, ""),
        ("tarkit create - -o b.tar <&-", 1, "Bad file descriptor"),
        ("tarkit cat -T - <&-", 1, "Bad file descriptor"),
    ],
)
def test_closed_descriptors(script: str, status: int, words: str, quick: None) -> None:
    """Closed descriptors 0, 1 or 2 are an error if they are needed, and no other file takes their place."""
    err = (
        sh(script, exit=status)[1] if "; " in script or " | " in script or "--help" in script else alone(script, status)
    )
    assert words in err
    assert err.count("\n") == bool(words)
    if status == 0:
        assert Path("b.tar").read_bytes()[:512] == (
            THREE[:512] if "create" not in script else member("a.txt", b"1")[:512]
        )
    assert Path("a.tar").read_bytes() == THREE


def test_closed_descriptors_from_the_start() -> None:
    """Descriptors may be closed before Python starts."""
    sh("tarkit cat a.tar -v -o b.tar <&- >&- 2>&-")
    assert Path("b.tar").read_bytes() == THREE


# ---- errors of files


@each(
    ("words", "message"),
    [
        ("cat missing.tar", "missing.tar: No such file or directory"),
        ("cat a.tar/b", "a.tar/b: No such file or directory"),
        ("cat /proc/self/mem", "/proc/self/mem: Input/output error"),
        ("cat a.tar -o missing/b.tar", "missing/b.tar: No such file or directory"),
        ("cat a.tar -o /dev/full", "/dev/full: No space left on device"),
        ("cat a.tar > /dev/full", "stdout: No space left on device"),
        ("cat a.tar -o x.tar.gz --report missing/r.json", "missing/r.json: No such file or directory"),
        ("cat a.tar -o x.tar.gz --tmpdir missing", "missing: No such file or directory"),
        ("cat a.tar -o 'two\nlines/b.tar'", r"two\x0alines/b.tar: No such file or directory"),
        ("split a.tar -c1 -o 'missing/%d.tar'", "missing/0.tar: No such file or directory"),
        ("create missing -o b.tar", "missing: No such file or directory"),
        ("cat -T missing", "missing: No such file or directory"),
        ("--help > /dev/full", "No space left on device"),
    ],
)
def test_errors_name_the_file(words: str, message: str) -> None:
    """An error is `tarkit: NAME: reason`, on one line, with status 1."""
    err = sh(f"tarkit {words}", exit=1)[1] if "--help" in words else alone(f"tarkit {words}", exit=1)
    assert err.splitlines()[0] == f"tarkit: {message}"
    assert Path("a.tar").read_bytes() == THREE
    assert not [name for name in left() if "part" in name or name == "missing"]


@each(
    "words",
    [
        "cat big.tar -o out.tar",
        "cat - -o out.tar < big.tar",
        "cat 'pipe:cat big.tar' -o out.tar",
        "cat big.tar -o out.tar.gz --compress gz:1",
        "split big.tar -c 3 -o 'out-%d.tar'",
        "create recipe -o out.tar",
        "shuffle big.tar --seed 1 -o out.tar",
        "shuffle - --seed 1 --size 1M -o 'out-%d.tar' < big.tar",
        "sort 'pipe:cat big.tar' --memory 1M --tmpdir tmp -o out.tar",
    ],
)
def test_a_full_disk(words: str) -> None:
    """The error names the file or the temporary space, and nothing of the output remains."""
    Path("big.tar").write_bytes(large())
    Path("recipe").write_text("x.bin big.tar\n")
    Path("tmp").mkdir()
    before = left()
    limit = 64 << 10
    err = alone(f"tarkit {words}", exit=1, first=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)))
    name = "out-0.tar" if "%d" in words else words.split("-o ")[1].split()[0]
    assert err == f"tarkit: {'temporary space in tmp' if 'tmpdir' in words else name}: File too large\n"
    assert (left(), os.listdir("tmp")) == (before, [])


# ---- commands as inputs and outputs


@each(
    ("words", "status", "message"),
    [
        (
            "cat 'pipe:cat missing.tar'",
            1,
            "command ended with status 1: cat missing.tar: cat: missing.tar: No such file",
        ),
        ("cat 'pipe:cat a.tar; exit 3'", 1, "command ended with status 3: cat a.tar; exit 3"),
        ("cat 'pipe:cat missing.tar | cat'", 1, "command ended with status 1: cat missing.tar | cat"),
        ("cat 'pipe:kill -9 $$'", 1, "command was ended by SIGKILL"),
        ("cat a.tar -o pipe:false", 1, "command ended with status 1: false"),
        ("cat a.tar -o 'pipe:cat > /dev/null; exit 4'", 1, "command ended with status 4"),
        ("cat big.tar -o 'pipe:exit 5'", 1, "command ended with status 5"),
        ("cat 'pipe:cat big.tar' -o 'pipe:exit 5'", 1, "command ended with status 5"),
        ("cat 'pipe:printf x; exec cat' ", 1, "stdin"),
        (
            "cat big.tar -o 'pipe:head -c 9 > x'",
            1,
            "pipe:head -c 9 > x: the command exited before reading all its input",
        ),
        ("split a.tar -c1 -o 's-%d.tar' --post false", 1, "command ended with status 1: false"),
        ("split a.tar -c1 -o 's-%d.tar' --post 'kill -9 $$'", 1, "command was ended by SIGKILL"),
        ("create recipe -o b.tar", 1, "recipe:1: command ended with status 6"),
    ],
)
def test_commands_that_fail(words: str, status: int, message: str) -> None:
    """The status of a command counts while it is needed; the message has the command and its last line of stderr."""
    Path("big.tar").write_bytes(large())
    Path("recipe").write_text("x.txt pipe:echo half; exit 6\n")
    err = alone(f"tarkit {words}", exit=status)
    if "exec cat" not in words:
        assert f"tarkit: {message}" in err
    assert "b.tar" not in left()


@each("words", ["-c 1", "--shard-slice 0:1", "--match ^a"])
def test_commands_that_are_not_read_to_their_end(words: str) -> None:
    """The status of a command that is not read to its end is ignored."""
    Path("big.tar").write_bytes(large())
    command = "cat a.tar - < big.tar; exit 3"
    status = 1 if "match" in words else 0
    alone(f"tarkit cat 'pipe:cat a.tar; cat big.tar; {command}' {words} --allow trailing-data -o b.tar", exit=status)
    assert ("b.tar" in left()) == (status == 0)


def test_large_samples_to_a_command_that_exited(quick: None) -> None:
    """Long copies from pipe to pipe cause the same errors as short writes."""
    sh("truncate -s 30M zeros; printf 'x.bin zeros\\n' > recipe")
    for words, message in (
        ("-o pipe:false", "command ended with status 1: false"),
        ("-o 'pipe:exec <&-; sleep 0.1; exit 7'", "command ended with status 7"),
    ):
        _, err = sh(f"tarkit create recipe | {{ tarkit cat - {words}; echo $? >&2; }}", exit=141)
        assert err == f"tarkit: {message}{err.partition(message)[2]}"
        assert err.endswith("\n1\n")
    out, err = sh("tarkit create recipe | { tarkit cat -; echo $? >&2; } | head -c 10 | wc -c", exit=141)
    assert (out.strip(), err) == ("10", "141\n")


# ---- signals


class Started:
    """A running command that is fed through a pipe."""

    def __init__(self, words: list[str], ignored: int | None = None, anew: bool = False) -> None:
        if anew:
            ignoring = ["sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh"]
            self.process = subprocess.Popen([*ignoring, *TARKIT, *words], stdin=PIPE, stdout=PIPE, stderr=PIPE)
        else:
            first = (lambda: None) if ignored is None else partial(signal.signal, ignored, signal.SIG_IGN)
            self.process = process(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE, first=first)

    def feed(self, data: bytes, until: Callable[[], bool]) -> None:
        """Write, then wait until something has happened."""
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()
        happens(lambda: until() or self.process.poll() is not None)
        assert until(), self.process.poll() is not None and self.process.stderr and self.process.stderr.read()

    def end(self) -> tuple[int, str]:
        """Return its status and stderr."""
        out, err = self.process.communicate(timeout=PATIENT)
        assert out == b""
        assert_no_traceback(err.decode())
        return self.process.returncode, err.decode()


@pytest.fixture
def started() -> Iterator[Callable[..., Started]]:
    """Start commands, and kill those that run at the end of the test."""
    all: list[Started] = []

    def start(words: list[str], ignored: int | None = None, anew: bool = False) -> Started:
        all.append(Started(words, ignored, anew))
        return all[-1]

    yield start
    for each in all:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


SPLIT = ["split", "-c", "2", "-o", "s-%d.tar"]
FEW = b"".join(member(f"{number}.txt", b"x" * 500) for number in range(6))


@each(("signum", "options"), [(INT, []), (TERM, []), (HUP, []), (TERM, ["--compress", "gz"])])
def test_signals(signum: int, options: list[str], started: Callable[..., Started]) -> None:
    """A signal during split ends it silently by that signal; finished shards are complete, the other is removed."""
    split = started([*SPLIT, *options])
    split.feed(FEW, until=lambda: os.path.exists("s-1.tar"))
    split.process.send_signal(signum)
    assert split.end() == (-signum, "")
    assert left() == ["a.tar", "s-0.tar", "s-1.tar"]
    if not options:
        assert names("s-0.tar") + names("s-1.tar") == ["0.txt", "1.txt", "2.txt", "3.txt"]


def test_signals_to_other_commands(started: Callable[..., Started], monkeypatch: pytest.MonkeyPatch) -> None:
    """cat, create and mix leave no file either, even during a sample larger than memory."""
    monkeypatch.setattr(source, "HELD", 1 << 20)
    large = member("x.bin", bytes(2_000_000))[:1_800_000]
    for signum, words, data in (
        (INT, ["cat", "-o", "b.tar"], FEW),
        (TERM, ["create", "-o", "b.tar"], b"x.txt text:1\n" + b"# \n" * 5000),
        (INT, ["cat", "-o", "b.tar"], large),
        (TERM, ["cat", "-o", "b.tar"], large),
        (TERM, ["cat", "--skip", "all", "-o", "b.tar"], large),
        (INT, ["mix", "-", "a.tar", "--until", "all", "--seed", "1", "-o", "b.tar"], FEW),
        (TERM, ["mix", "-", "a.tar", "--repeat", "--total", "9", "--seed", "1", "-o", "b.tar"], FEW),
    ):
        run = started(words)
        run.feed(data, until=lambda: any(name.endswith(".part") for name in left()))
        run.process.send_signal(signum)
        assert run.end() == (-signum, "")
        assert left() == ["a.tar"]


@each("words", [["sort"], ["shuffle", "--seed", "1"]])
def test_a_signal_as_the_output_is_opened(words: list[str]) -> None:
    """An output that is opened when a signal arrives is removed by the cleanup."""

    def first() -> None:
        EntryWriter.__enter__ = lambda writer: os.kill(os.getpid(), TERM)  # type: ignore[assignment,return-value,method-assign]

    assert tarkit(*words, "a.tar", "-o", "b.tar", exit=-TERM, first=first).stderr == b""
    assert left() == ["a.tar"]


def test_a_second_signal(started: Callable[..., Started]) -> None:
    """Further signals do not interrupt the cleanup."""
    split = started(SPLIT)
    split.feed(FEW, until=lambda: os.path.exists("s-1.tar"))
    for signum in (INT, INT, TERM, HUP, INT):
        split.process.send_signal(signum)
    status, err = split.end()
    assert status in (-INT, -TERM, -HUP)
    assert (err, left()) == ("", ["a.tar", "s-0.tar", "s-1.tar"])


def test_kill(started: Callable[..., Started]) -> None:
    """After SIGKILL an unfinished file remains, but not under the name of an output."""
    split = started(SPLIT)
    split.feed(FEW, until=lambda: any(name.startswith(".s-2.tar") for name in left()))
    split.process.kill()
    assert split.end() == (-9, "")
    [part] = [name for name in left() if name not in ("a.tar", "s-0.tar", "s-1.tar")]
    assert part == f".s-2.tar.{split.process.pid}.part"
    assert names("s-0.tar") + names("s-1.tar") == ["0.txt", "1.txt", "2.txt", "3.txt"]


@each(("signum", "anew"), [(HUP, True), (INT, False)])
def test_ignored_signals_stay_ignored(signum: int, anew: bool, started: Callable[..., Started]) -> None:
    """Signals that were ignored at the start, as under nohup, stay ignored."""
    split = started(SPLIT, ignored=signum, anew=anew)
    split.feed(FEW, until=lambda: os.path.exists("s-1.tar"))
    split.process.send_signal(signum)
    split.feed(member("6.txt") + member("7.txt"), until=lambda: os.path.exists("s-2.tar"))
    assert split.process.stdin
    split.process.stdin.write(MARKER)
    assert split.end() == (0, "")
    assert names("s-3.tar") == ["6.txt", "7.txt"]


def test_a_loop_stops() -> None:
    """bash ends a loop whose command ends by SIGINT, which it does not for the exit status 130."""
    script = 'for i in 1 2 3; do tarkit cat "pipe:kill -INT -- -$$; sleep 5" -o b.tar; echo $?; done'
    done = subprocess.run(["bash", "-c", script], capture_output=True, start_new_session=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-INT, b"", b"")


def test_interrupted_during_imports() -> None:
    """SIGINT at the first import of the script, or a later one, ends it silently; an ignored SIGINT stays ignored."""
    script = Path(sys.executable).with_name("tarkit")
    if not script.exists():  # not installed: what a wheel has as that script
        script = Path(package.__file__).with_name("__main__.py")
    for name in ("tarkit", "click"):
        press = (
            "import os, signal, sys\n"
            "class Finder:\n"
            "    def find_spec(self, name, *rest):\n"
            f"        if name == {name!r}: os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Finder())\n"
            "sys.argv = ['tarkit', '--help']\n"
            f"exec(compile(open({str(script)!r}).read(), 'tarkit', 'exec'), {{'__name__': '__main__'}})\n"
        )
        for first, status in (("signal.default_int_handler", -INT), ("signal.SIG_IGN", 0)):
            code = f"import signal; signal.signal(signal.SIGINT, {first})\n{press}"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
            assert (done.returncode, done.stderr) == (status, "")


EACH_IMPORT = """
import atexit, os, runpy, sys

seen = []

def spare(act):
    other = f".{os.getppid()}."
    return lambda path, *to: other in str(path) or act(path, *to)

class Finder:
    def find_spec(self, name, *rest):
        if not seen and name != "tarkit.__main__":
            return
        seen.append(name)
        if len(seen) == 1 or len(seen) % 4:  # before the first there is no line of ours
            return
        signum = (2, 15, 1)[len(seen) % 3]
        pid = os.fork()
        if not pid:  # a copy, whose output is that of the other
            sys.meta_path = sys.meta_path[1:]
            os.unlink, os.rename = map(spare, (os.unlink, os.rename))
            os.kill(os.getpid(), signum)
            return
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signum, name

atexit.register(lambda: print(*seen))
sys.meta_path.insert(0, Finder())
runpy.run_module("tarkit.__main__", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_a_signal_at_each_import() -> None:
    """A signal at any import, before and during a command, ends the process silently by that signal."""
    done = subprocess.run(
        [sys.executable, "-c", EACH_IMPORT, "cat", "a.tar", "-o", "b.tar.gz"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    seen = done.stdout.decode().split()
    assert {"signal", "enum", "click", "tarkit.cli.app", "tarkit.streams.command", "tarkit.streams.codecs.encode"} <= {
        *seen
    }
    assert left() == ["a.tar", "b.tar.gz"]


@each("moment", ["reserve_standard_descriptors", "group", "clean_up", "release_signals", "has_threads"])
def test_a_signal_before_and_after_the_command(moment: str) -> None:
    """A signal has the same effect from the first line of `main` to the last."""

    def first() -> None:
        def kill(*_: object, **__: object) -> int:
            os.kill(os.getpid(), TERM)
            return 1

        setattr(app, moment, kill)

    assert tarkit("cat", "a.tar", "-o", "b.tar", exit=-TERM, first=first).stderr == b""
    assert left() == ["a.tar"] if moment in ("reserve_standard_descriptors", "group") else ["a.tar", "b.tar"]


def test_a_pending_signal_before_an_exception() -> None:
    """A pending signal takes precedence over an exception."""

    def broken(*_: object, **__: object) -> None:
        signals._send_again(TERM)
        raise KeyError("x")

    assert tarkit("cat", "a.tar", exit=-TERM, first=lambda: setattr(app, "group", broken)).stderr == b""


def test_a_signal_after_an_exception() -> None:
    """A signal takes precedence over an exception until nothing catches it."""

    def first() -> None:
        def broken(*_: object, **__: object) -> None:
            raise KeyError("x")

        def release() -> None:
            os.kill(os.getpid(), TERM)
            released()

        released = app.release_signals
        app.group = broken  # type: ignore[assignment]
        app.release_signals = release

    assert tarkit("cat", "a.tar", exit=-TERM, first=first).stderr == b""


def test_a_pending_signal_before_an_error_of_the_input() -> None:
    """An input that ends together with this process, which is importing at that moment, is not an error of its own."""

    def ended(*_: object) -> None:
        signals._send_again(TERM)
        raise TarkitError("in.tar: truncated")

    assert tarkit("cat", "a.tar", exit=-TERM, first=lambda: setattr(app.Commands, "invoke", ended)).stderr == b""
