"""Commands with a placeholder in the name of the output: each input is a job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests._tools import each_row, tarkit
from tests.conftest import entries, keys, tar

pytestmark = pytest.mark.forks


def shards() -> None:
    """Make three shards in two directories, and directories for outputs."""
    for name, key in (("x/a.tar", "a"), ("x/b.tar.gz", "b"), ("y/c.v1.tar", "c")):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(tar({f"{key}/{at}.{field}": b"%d" % at for at in (1, 0) for field in ("txt", "cls")}))
    Path("out").mkdir()


def found() -> list[str]:
    """Return the names of files in out/."""
    return sorted(str(path)[4:] for path in Path("out").rglob("*") if path.is_file())


INPUTS = ["x/a.tar", "x/b.tar.gz", "y/c.v1.tar"]
STEMS = ["a.tar", "b.tar", "c.v1.tar"]


@pytest.mark.slow
@each_row(
    "words,expected",
    [
        (["cat", "-o", "out/{stem}.tar"], STEMS),
        (["cat", "-o", "out/{dir}/{name}"], ["x/a.tar", "x/b.tar.gz", "y/c.v1.tar"]),
        (
            ["cat", "-o", "out/{index:03d}.tar", "-f", "txt", "-f", "cls", "--match", "0$"],
            ["000.tar", "001.tar", "002.tar"],
        ),
        (["cat", "-oout/{stem}.tar", "--no-progress", "-q"], STEMS),
        (["sort", "-o", "out/{stem}.tar", "-r", "-j", "2"], STEMS),
        (
            ["sort", "-o", "out/{stem}-%d.tar", "-c", "1"],
            [f"{stem}-{at}.tar" for stem in ("a", "b", "c.v1") for at in (0, 1)],
        ),
        (
            ["shuffle", "-o", "out/{stem}-e{epoch}.tar", "--epochs", "2", "--seed", "1"],
            [f"{stem}-e{at}.tar" for stem in ("a", "b", "c.v1") for at in (0, 1)],
        ),
        (["proc", "-c", "awk '{print $1}' sample.txt > sample.n", "-o", "out/{stem}.tar"], STEMS),
        (
            ["proc", "-c", "false", "-o", "out/{stem}.tar", "--rejects", "out/{stem}.bad.tar"],
            ["a.bad.tar", "a.tar", "b.bad.tar", "b.tar", "c.v1.bad.tar", "c.v1.tar"],
        ),
        (["tsv", "-o", "out/{stem}.csv", "-f", "txt"], ["a.csv", "b.csv", "c.v1.csv"]),
        (["check", "--fix", "out/{stem}.tar"], STEMS),
        (
            ["extract", "-C", "out/{stem}"],
            [
                f"{stem}/{key}/{at}.{field}"
                for stem, key in (("a", "a"), ("b", "b"), ("c.v1", "c"))
                for at in (0, 1)
                for field in ("cls", "txt")
            ],
        ),
        (["index", "-f", "dali", "-o", "out/{stem}.idx"], ["a.idx", "b.idx", "c.v1.idx"]),
    ],
)
def test_map(here: Path, words: list[str], expected: list[str]) -> None:
    """Each input has an output, with the bytes that the command alone writes for it."""
    shards()
    if words[0] == "index":
        Path("x/b.tar.gz").write_bytes(Path("x/a.tar").read_bytes())
    for name in INPUTS:
        assert Path(name).exists()
    tarkit(words[0], *INPUTS, *words[1:])
    assert found() == sorted(expected)


def test_bytes_are_those_of_single_runs(here: Path) -> None:
    """A map, with options of every kind before and after the command word, is as many runs of the command."""
    shards()
    options = ["-f", "txt", "-f", "cls", "--where", "cls == 1", "--rekey", "{stem}/{key}", "--allow", "no-end-marker"]
    tarkit("-v", "cat", *options, *INPUTS, "-o", "out/{stem}.tar", "--tmpdir", ".")
    for name, stem in zip(INPUTS, ("a", "b", "c.v1"), strict=True):
        tarkit("cat", *options, name, "-o", "one.tar")
        assert Path(f"out/{stem}.tar").read_bytes() == Path("one.tar").read_bytes()
        assert len(entries(Path("one.tar"))) == 2


@each_row(
    "words,expected",
    [
        (["cat", *INPUTS, "-o", "{dir}.tar"], "x/a.tar and x/b.tar.gz have one output: x.tar"),
        (["cat", *INPUTS, "-o", "no/{stem}.tar"], "'no/{stem}.tar': there is no directory no"),
        (["cat", "x/a.tar", "-o", "x/{name}"], "x/a.tar is an input, and the output of x/a.tar"),
        (["cat", *INPUTS, "-o", "out/{stem}-{part}.tar"], "'out/{stem}-{part}.tar': unknown placeholder {part}"),
        (["cat", *INPUTS, "-o", "out/{stem}-%06d.tar"], "'out/{stem}-%06d.tar': a job writes one file, not %06d"),
        (["cat", *INPUTS, "-o", "out.tar", "-j", "2"], "--jobs is for jobs, one for each input"),
        (["cat", *INPUTS, "-o", "out.tar", "--journal", "j"], "--journal is for jobs, one for each input"),
        (["proc", *INPUTS, "-c", ":", "-o", "out/{stem}.tar", "--rejects", "r.tar"], "--rejects r.tar: all jobs would"),
        (["cat", "-o", "out/{stem}.tar"], "'out/{stem}.tar': stdin has no name"),
        (["cat", "pipe:cat x/a.tar", "-o", "out/{stem}.tar"], "pipe:cat x/a.tar: a command has no name for"),
        (["shuffle", *INPUTS, "-o", "out/{stem}.tar", "--journal", "j"], "--journal requires --seed S"),
        (["cat", "no.tar", "-o", "out/{stem}.tar"], "no.tar: No such file or directory"),
    ],
)
def test_usage(here: Path, words: list[str], expected: str) -> None:
    """What cannot be is said before a job begins."""
    shards()
    ran = tarkit(*words, exit=1 if "no.tar" in words else 2)
    assert ran.stderr.decode().startswith(f"tarkit: {expected}")
    assert (found(), os.path.exists("j")) == ([], False)


def test_seeds(here: Path) -> None:
    """Without a seed one is drawn, for all jobs, and printed once."""
    shards()
    ran = tarkit("shuffle", *INPUTS, "-o", "out/{stem}.tar")
    [line] = ran.stderr.decode().splitlines()
    tarkit("shuffle", "x/a.tar", "-o", "one.tar", "--seed", line.split()[-1])
    assert Path("one.tar").read_bytes() == Path("out/a.tar").read_bytes()


def test_journal_and_resume(here: Path) -> None:
    """The job of a damaged input fails, and is the only one that --resume does; -v makes no other job."""
    shards()
    whole = Path("x/a.tar").read_bytes()
    Path("x/a.tar").write_bytes(whole[:700])
    line = ["sort", *INPUTS, "-o", "out/{stem}.tar", "--journal", "j", "--halt", "never"]
    ran = tarkit(*line, exit=1)
    assert b"tarkit sort --output out/a.tar x/a.tar\n" in ran.stderr
    assert found() == STEMS[1:]
    Path("x/a.tar").write_bytes(whole)
    ran = tarkit(*line, "--resume", "-v", "--report", "r")
    assert json.loads(Path("r").read_text())["jobs"]["kept"] == 2
    assert keys(Path("out/a.tar")) == "a/0 a/1"
    words = [json.loads(each)["value"] for each in Path("j").read_text().splitlines()]
    assert (sorted(words[:3]), words[3:]) == (INPUTS, ["x/a.tar"])


def test_pipes_and_dry_runs(here: Path) -> None:
    """A command is an input of a job with {index}; a dry run prints what would run."""
    shards()
    ran = tarkit("-q", "cat", "pipe:cat x/a.tar", "x/a.tar", "-o", "out/{index}.tar", "--dry-run")
    lines = ran.stdout.decode().splitlines()
    assert lines[0] == "tarkit --quiet cat --output out/0.tar 'pipe:cat x/a.tar'"
    assert (lines[1], found()) == ("tarkit --quiet cat --output out/1.tar x/a.tar", [])
    tarkit("cat", "pipe:cat x/a.tar", "x/a.tar", "-o", "out/{index}.tar")
    assert Path("out/0.tar").read_bytes() == Path("out/1.tar").read_bytes() == Path("x/a.tar").read_bytes()


def counted(words: list[str]) -> tuple[int, int]:
    """Run a command line, and return how many jobs were done, and how many were left out."""
    tarkit("--report", "report", *words)
    jobs = json.loads(Path("report").read_text())["jobs"]
    return jobs["done"], jobs["kept"]


@pytest.mark.slow
@each_row(
    "words",
    [
        ["sort", *INPUTS, "-c", "1", "-o", "out/{stem}-%d.tar"],
        ["shuffle", *INPUTS, "-c", "1", "--epochs", "2", "--seed", "7", "-o", "out/{stem}-e{epoch}-%d.tar"],
        ["each", *INPUTS, "--", "split", "{}", "-c", "1", "-o", "out/{stem}-%d.tar"],
        ["each", *INPUTS, "--", "cat", "{}", "+", "sort", "-", "-c", "1", "-o", "out/{stem}-%d.tar"],
    ],
)
def test_shards_of_an_attempt_that_did_not_end(here: Path, words: list[str]) -> None:
    """Its journal has that it began; the run that resumes replaces what it left, and knows shards that were changed."""
    shards()
    line = [words[0], "--journal", "j", "--resume", *words[1:]]
    tarkit(*line)
    whole = {name: Path("out", name).read_bytes() for name in found()}
    assert len(whole) >= 6
    ended = [json.loads(each)["status"] for each in Path("j").read_text().splitlines()]
    assert sorted(map(str, ended)) == ["0"] * 3 + ["None"] * 3
    assert counted(line) == (0, 3)

    begun = [each for each in Path("j").read_text().splitlines(True) if json.loads(each)["status"] is None]
    Path("j").write_text("".join(begun))  # as if all was killed
    Path("out", found()[0]).write_bytes(b"half")
    assert counted(line) == (3, 0)
    assert {name: Path("out", name).read_bytes() for name in found()} == whole

    Path("out", found()[0]).unlink()
    assert counted(line) == (1, 2)
    assert {name: Path("out", name).read_bytes() for name in found()} == whole


def test_shards_of_others_are_not_replaced(here: Path) -> None:
    shards()
    Path("out/a.tar-0.tar").write_bytes(b"of another")
    Path("out/b-0.tar").write_bytes(b"of another")
    ran = tarkit("sort", "x/b.tar.gz", "-c", "1", "-o", "out/{stem}-%d.tar", "--journal", "j", exit=1)
    assert b"out/b-0.tar: there are shards of this name" in ran.stderr
    assert Path("out/b-0.tar").read_bytes() == b"of another"
