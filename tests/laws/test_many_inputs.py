"""Many more inputs than may be open at once: every command has the same output as without a limit."""

from __future__ import annotations

import functools
import gzip
import os
import resource
import shlex
import shutil
import subprocess
from itertools import cycle, repeat
from pathlib import Path

import pytest

from tests._tools import each_row, process
from tests.conftest import Archive, Run, keys

pytestmark = pytest.mark.forks

COUNT, LIMIT = 40, 40  # half of them are for inputs
COMMANDS = [
    "cat IN",
    "cat -s 500 --seed 1 IN",
    "cat -m 40 IN",
    "cat -m 40 -s 20 --seed 1 IN",
    "cat -p 40 IN",
    "sort IN",
    "sort -r -s cls IN",
    "shuffle --seed 1 IN",
    "shuffle --seed 1 --buffer 500 IN",
    "mix ALL --until all --seed 1",
    "mix ALL --repeat --total 200 --seed 1",
    "tsv IN -f cls",
    "check -q IN",
    "check -q -p 2 IN",
    "check -q --unique IN",
    "check -q IN --same-as IN",
    "stats IN",
    "show IN",
    "get 039-1.cls ALL",
    "proc -c 'rm sample.txt' --match 0$ IN",
    "proc --worker cat IN",
]
SERIES = [
    "split IN -c 7 -o out/s-%d.tar",
    "split IN -n 9 -o out/s-%d.tar",
    "split IN --parts train=0.8,val=0.2 -c 50 -o out/{part}-%d.tar",
    "shuffle --seed 1 --epochs 3 IN -o out/e{epoch}.tar",
    "extract IN -C out",
    "check -q IN --fix out/",
    "check -q IN --fix out/all.tar",
]
KINDS = {"plain": "p-*.tar", "gzip": "z-*.tar.gz"}


@pytest.fixture
def inputs(archive: Archive) -> None:
    """Write archives of a few samples each, and the same compressed."""
    for number in range(COUNT):
        rows = {f"{number:03}-{n}.{field}": b"%d\n" % number for n in range(3) for field in ("cls", "txt")}
        name = archive(rows, f"p-{number:03}.tar")
        Path(f"z-{number:03}.tar.gz").write_bytes(gzip.compress(Path(name).read_bytes(), 1))


def words_of(line: str, kind: str) -> list[str]:
    """Return the arguments of a row."""
    pattern = KINDS[kind]
    every = sorted(path.name for path in Path().glob(pattern))
    swapped = {"IN": [pattern], "ALL": every}
    return [word for each in shlex.split(line) for word in swapped.get(each, [each])]


def limited(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process with a low limit on open files."""
    few = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    pipe = subprocess.PIPE
    with process(*words, first=few, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as started:
        out, err = started.communicate(timeout=60)
    return subprocess.CompletedProcess(words, started.returncode, out, err)


@pytest.mark.slow
def test_commands(inputs: None, run: Run) -> None:
    """Commands that write to stdout have the same output."""

    @each_row("line,kind", [*zip(COMMANDS, repeat("plain")), *zip(COMMANDS[::4], repeat("gzip"))])
    def same(line: str, kind: str) -> None:
        words = words_of(line, kind)
        done, ran = limited(*words), run(*words)
        assert (done.returncode, done.stderr.decode()) == (0, ran.stderr)
        assert done.stdout == ran.stdout

    same()


@pytest.mark.slow
def test_series(inputs: None, run: Run) -> None:
    """Commands that write files have the same output."""

    @each_row("line,kind", zip(SERIES, cycle(KINDS)))
    def same(line: str, kind: str) -> None:
        found = []
        for limit in (True, False):
            shutil.rmtree("out", ignore_errors=True)
            os.mkdir("out")
            words = words_of(line, kind)
            if limit:
                done = limited(*words)
                assert (done.returncode, done.stderr) == (0, b"")
            else:
                run(*words)
            found.append({path.name: path.read_bytes() for path in Path("out").iterdir()})
        assert found[0] == found[1] != {}

    same()


CHANGED = [
    "cat -s 500 --seed 1 p-*.tar 'pipe:COMMAND' -o out.tar",
    "sort p-*.tar 'pipe:COMMAND' -o out.tar",
    "shuffle --seed 1 p-*.tar 'pipe:COMMAND' -o out.tar",
    "shuffle --seed 1 --epochs 2 p-*.tar 'pipe:COMMAND' -o out{epoch}.tar",
    "split -n 3 p-*.tar 'pipe:COMMAND' -o out-%d.tar",
    "check --fix out.tar p-*.tar 'pipe:COMMAND'",
]


def test_a_file_that_is_changed_while_it_is_closed(inputs: None) -> None:
    """A file that was replaced or changed while it was closed is an error; there is no output."""
    shutil.copy("p-000.tar", "kept")
    os.rename(f"p-{COUNT - 1:03}.tar", "last")

    @each_row("line,command", zip(CHANGED, cycle(["mv new p-000.tar; cat last", "cat new > p-000.tar; cat last"])))
    def refused(line: str, command: str) -> None:
        shutil.copy("kept", "p-000.tar")
        shutil.copy("p-001.tar", "new")
        done = limited(*shlex.split(line.replace("COMMAND", command)))
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(b"tarkit: p-000.tar: the file was changed while it was read\n"), done.stderr
        assert not [*Path().glob("out*")]

    refused()


def test_pipes_need_a_descriptor_each(inputs: None) -> None:
    """Pipes, which cannot be reopened, cause an error with a hint to raise the limit."""
    words = [f"pipe:cat p-{number:03}.tar" for number in range(COUNT)]
    done = limited("cat", "-m", "40", *words, "-o", "out.tar")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, b"hint: raise the limit with ulimit -n")
    assert not Path("out.tar").exists()
    assert limited("cat", *words, "-o", "out.tar").returncode == 0
    assert len(keys("out.tar").split()) == 3 * COUNT
