"""Laws of what is generated: it is up to date, a man page says all that the help says, and lint has nothing to say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from runpy import run_path
from typing import Any

import click
import pytest

from tarkit.cli.app import COMMANDS, group
from tarkit.problems import PROBLEMS
from tests._tools import each_row, program

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "man").glob("*.1"))


@pytest.fixture(scope="module")
def docs() -> Any:
    """The script, as a module."""
    loader = SourceFileLoader("docs", str(ROOT / "scripts/docs"))
    spec = spec_from_loader("docs", loader)
    assert spec is not None
    module = module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with nothing in it but what is generated."""
    shutil.copytree(ROOT / "man", tmp_path / "man")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def _command(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def test_all_is_up_to_date(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked in is what the script, as it is called, would write now."""
    monkeypatch.setattr(sys, "argv", ["scripts/docs", "--check"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        run_path(str(ROOT / "scripts/docs"), run_name="__main__")

    assert (ended.value.code, capsys.readouterr().err) == (0, "")


def test_a_change_makes_the_check_fail(
    docs: Any, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages that are stale are named, and so is the cure, which works."""
    monkeypatch.setattr(_command("cat"), "help", "Other words.")
    monkeypatch.setattr(_command("mix"), "cost", "Other words.")
    monkeypatch.setattr(_command("split").params[-1], "help", "Other words.")

    assert docs.main(["--check"], copy) == 1
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"man/tarkit-{name}.1 is stale: scripts/docs renews it" for name in ("cat", "mix", "split")
    ]

    assert docs.main([], copy) == 0
    assert docs.main(["--check"], copy) == 0


def test_the_tables_of_the_readme_are_checked(
    docs: Any, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from the table of commands and from that of problems."""
    monkeypatch.setitem(COMMANDS, "cat", "Other words.")
    monkeypatch.setitem(PROBLEMS, "truncated", PROBLEMS["truncated"]._replace(meaning="other words"))

    assert docs.main(["--check"], copy) == 1
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["man/tarkit.1", "README.md"]

    docs.main([], copy)
    text = (copy / "README.md").read_text()
    assert "| `tarkit cat` | Other words. |" in text
    assert "| `truncated` | error | other words |" in text


def test_pages_of_commands_that_are_gone_go(docs: Any, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page without a command is stale too."""
    (copy / "man/tarkit-gone.1").write_text("old")

    assert docs.main(["--check"], copy) == 1
    assert "man/tarkit-gone.1" in capsys.readouterr().err

    docs.main([], copy)
    assert not (copy / "man/tarkit-gone.1").exists()


def test_unknown_words_are_refused(docs: Any) -> None:
    """There is one option."""
    assert docs.main(["--chekc"]) == 2


@each_row("name", COMMANDS)
def test_a_page_says_all(name: str) -> None:
    """Every option of a command, every example and the cost are in its page."""
    command = _command(name)
    page = (ROOT / "man" / f"tarkit-{name}.1").read_text().replace("\\(aq", "'").replace("\\(ha", "^")
    page = page.replace("\\(ti", "~").replace("\\(ga", "`").replace("\\-", "-").replace("\\e", "\\")
    words = " ".join(page.split())

    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts) if isinstance(parameter, click.Option) else ():
            assert f"\\fB{option}\\fR" in words
    for example in getattr(command, "examples", ()):
        assert f"\n{example}\n" in page
    assert " ".join(getattr(command, "cost", "").split()) in words


@each_row("words", [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z", "-Tascii"]])
def test_lint_is_silent(words: list[str]) -> None:
    """mandoc has no warning and groff none."""
    ran = subprocess.run([program(words[0]), *words[1:], *PAGES], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_pages_fit_80_columns() -> None:
    """No line of what `man` shows is longer."""
    words = [program("mandoc"), "-T", "ascii", "-O", "width=80", *PAGES]
    shown = re.sub(".\b", "", subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert [line for line in shown.splitlines() if len(line) > 80] == []  # bold was a letter over itself
