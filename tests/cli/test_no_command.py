"""Words that are no commands: each gets one that does what is meant, with an example that runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tarkit.cli.app import COMMANDS
from tarkit.cli.words import answer, table
from tests._tools import each_row
from tests.conftest import Archive, Run

TRIED = (
    "ls list head merge unpack count version cp concat join pack tar info inspect validate repair fix view "
    "filter select sample map convert tail rm diff search download upload rename xf tf cf untar zip dedup wids reshard "
    "tfrecord mds"
)


def _prepare(archive: Archive) -> None:
    """Write what the examples name."""
    for name in ("x", "y"):
        fields = {"jpg": b"\xff\xd8\xff", "cls": b"3", "json": b'{"width": 3, "score": 1}'}
        prefix = "a" if name == "x" else "b"
        archive({f"{prefix}/{key}.{field}": data for key in (17, 18) for field, data in fields.items()}, f"{name}.tar")
    Path("labels.csv").write_text("__key__,label\na/17,1\na/18,2\n")
    Path("pictures").mkdir()
    Path("pictures/a.jpg").write_bytes(b"1")
    Path("table.csv").write_text("__key__,txt\nk1,hello\n")


@each_row("word", TRIED.split())
def test_words_people_try(word: str, run: Run) -> None:
    """The hint has a command line."""
    ran = run(word, "x.tar", exit=2)
    assert ran.stdout == b""
    [line, hint] = ran.lines
    assert line == f"tarkit: No such command {word!r}."
    assert hint.startswith("hint: tarkit ")


@pytest.mark.slow
@pytest.mark.forks
@each_row("line", [line for line, _ in table() if "://" not in line])
def test_examples_run(line: str, run: Run, archive: Archive) -> None:
    """A command line of a hint can be copied."""
    if "phash" in line:
        pytest.importorskip("PIL")
    if "tfrecord" in line:
        pytest.importorskip("google.protobuf")
        pytest.importorskip("google_crc32c")
    _prepare(archive)
    assert len(f"hint: tarkit {line}") <= 120
    finds = re.search("check .*--(same-as|diff|decode|leak|by)", line)
    run(*shlex.split(line, comments=True), exit=int(finds is not None))


def test_the_table() -> None:
    """A word has one answer, and is none of the commands."""
    words = [word for _, words in table() for word in words]
    assert sorted(words) == sorted(set(words))
    assert not {*words} & {*COMMANDS, "help"}
    assert all(answer(word) for word in words)
    assert answer("To_CSV") == answer("to-csv")
    assert answer("nothing") is None


@each_row("words", [["help"], ["help", "help"], ["help", "--help"], ["help", "-v"], ["-q", "help"]])
def test_help(words: list[str], run: Run) -> None:
    """`tarkit help` is `tarkit --help`."""
    assert run(*words).stdout == run("--help").stdout


@each_row("name", COMMANDS)
def test_help_of_a_command(name: str, run: Run) -> None:
    """`tarkit help X` is `tarkit X --help`."""
    assert run("help", name).stdout == run(name, "--help").stdout == run("help", name, "--help").stdout
    assert run("help", name, "--help-all").stdout == run(name, "--help-all").stdout


@each_row(
    ("words", "lines"),
    [
        (["help", "nothing"], ["tarkit: No such command 'nothing'.", "hint: see tarkit --help"]),
        (["help", "splt"], ["tarkit: No such command 'splt'. (Did you mean 'split'?)", "hint: see tarkit --help"]),
        (["help", "ls"], ["tarkit: No such command 'ls'.", f"hint: {answer('ls')}"]),
        (["each", "a", "--", "tarkit", "ls", "{}"], ["tarkit: No such command 'ls'.", f"hint: {answer('ls')}"]),
        (["-xf", "a.tar"], ["tarkit: No such option '-x'.", f"hint: {answer('-x')}"]),
        (["-czf", "a.tgz", "d"], ["tarkit: No such option '-c'.", f"hint: {answer('-c')}"]),
        (["--list", "a.tar"], ["tarkit: No such option '--list'.", f"hint: {answer('list')}"]),
        (["--extract", "-f", "a.tar"], ["tarkit: No such option '--extract'.", f"hint: {answer('x')}"]),
        (["x y.tar"], ["tarkit: No such command 'x y.tar'.", "hint: tarkit show 'x y.tar'  # what is in it"]),
        (["cat", "-x"], ["tarkit: cat: No such option '-x'.", "hint: see tarkit cat --help"]),
    ],
)
def test_where_a_word_may_be(words: list[str], lines: list[str], run: Run) -> None:
    """Behind help, in the command line of `each`, and as options of tar; not as an option of a command."""
    Path("x y.tar").touch()
    ran = run(*words, exit=2)
    assert ran.lines == lines
