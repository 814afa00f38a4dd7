"""Colours: where text has them, and that it has the same words without."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import click
import pytest

from tarkit.cli.app import COMMANDS
from tarkit.cli.color import wanted_colors
from tests._tools import each_row, process
from tests.conftest import Archive, Run, on_terminal, tar

BOLD, RED, YELLOW, CYAN, END = "\x1b[1m", "\x1b[31m\x1b[1m", "\x1b[33m\x1b[1m", "\x1b[36m", "\x1b[0m"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the type of a terminal with colours."""
    monkeypatch.setenv("TERM", "xterm-256color")


@each_row(
    ("words", "wanted"),
    [
        ("", None),
        ("TERM=xterm", None),
        ("TERM=dumb", False),
        ("CLICOLOR=0", False),
        ("CLICOLOR=1", None),
        ("NO_COLOR=1", False),
        ("NO_COLOR=0", False),
        ("NO_COLOR=", None),
        ("FORCE_COLOR=1", True),
        ("FORCE_COLOR=3", True),
        ("FORCE_COLOR=0", None),
        ("FORCE_COLOR=", None),
        ("CLICOLOR_FORCE=1", True),
        ("CLICOLOR_FORCE=0", None),
        ("CLICOLOR_FORCE=1 TERM=dumb", True),
        ("FORCE_COLOR=1 CLICOLOR=0", True),
        ("NO_COLOR=1 FORCE_COLOR=1 CLICOLOR_FORCE=1", False),
    ],
)
def test_variables(words: str, wanted: bool | None) -> None:
    """NO_COLOR precedes the variables that ask for colours, and these precede the type of the terminal."""
    assert wanted_colors(dict(word.split("=") for word in words.split())) is wanted


def on_stderr(*words: str) -> str:
    """Return what `tarkit WORDS` writes to a terminal that is stderr."""
    ours, theirs = pty.openpty()
    with process(*words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs) as started:
        os.close(theirs)
        said = b""
        with open(ours, "rb", buffering=0) as screen:
            try:
                while piece := screen.read(1 << 16):
                    said += piece
            except OSError:  # the error on Linux when the other end is closed
                pass
        started.wait()
    return said.decode().replace("\r\n", "\n")


@each_row("name", ["", *COMMANDS])
def test_headings_of_help(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headings of help are bold on a terminal, nothing else is, and a pipe has the same words."""
    words = [*name.split(), "--help"]
    plain = run(*words).stdout.decode()
    colored = on_terminal(*words)[1].stdout.decode()
    headings = re.findall(r"\x1b\[1m(.*?)\x1b\[0m", colored)
    assert headings == re.findall(r"^(?:Usage:(?= )|\w.*:$)", plain, re.MULTILINE)
    assert headings[0] == "Usage:"
    assert "\x1b" not in plain
    assert click.unstyle(colored) == plain
    with monkeypatch.context() as changed:
        changed.setenv("FORCE_COLOR", "1")
        assert run(*words).stdout.decode() == colored
        changed.setenv("NO_COLOR", "1")
        assert on_terminal(*words)[1].stdout.decode() == plain


@pytest.mark.forks
@each_row(
    ("words", "said"),
    [
        (["cat", "none"], f"{RED}tarkit:{END} none: No such file or directory\n"),
        (
            ["sort", "--zzz"],
            f"{RED}tarkit:{END} sort: No such option '--zzz'.\n{CYAN}hint:{END} see tarkit sort --help\n",
        ),
        (["stats", "odd.tar", "--allow", "no-end-marker"], f"tarkit: {YELLOW}warning:{END} odd.tar: "),
    ],
)
def test_messages(words: list[str], said: str, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word of an error is red, of a warning yellow, of a hint blue; a pipe has the same words."""
    archive(tar({"a.txt": b""})[:512], "odd.tar")
    assert said in on_stderr(*words)
    with process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        out, err = started.communicate()
    assert click.unstyle(said) in err.decode()
    assert b"\x1b" not in out + err
    with monkeypatch.context() as changed:
        changed.setenv("TERM", "dumb")
        assert click.unstyle(said) in on_stderr(*words)
