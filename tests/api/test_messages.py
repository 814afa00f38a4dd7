"""Messages and hints name arguments in a Python program, options on the command line: `errors.spell`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tarkit
from tarkit import errors
from tarkit.problems import PROBLEMS
from tests.conftest import Run

ROOT = Path(tarkit.__file__).parent


def test_warnings_and_findings(data: tarkit.Dataset) -> None:
    """So do warnings, and the repairs of findings."""
    said: list[str] = []
    list(tarkit.open("a.tar", on_problem=said.append).drop("png"))
    assert said == ["drop 'png' matches no field"]
    hints = [finding.hint for finding in tarkit.check("cut.tar").findings]
    assert hints == ["fetch the shard again; fix keeps the samples that are whole"]


def test_the_command_line(data: tarkit.Dataset, run: Run) -> None:
    """A command names options, in this process too; Python before and after it names arguments."""
    Path("f.py").write_text("def f(sample): return {'a': 1}\n")
    for _ in range(2):
        with pytest.raises(tarkit.Problem) as error:
            list(tarkit.open("cut.tar"))
        assert "skip='truncated'" in str(error.value.hint)
        assert "--skip truncated keeps" in run("cat", "cut.tar", "-o", "o.tar", exit=1).stderr
        assert "--on-error skip leaves" in run("proc", "-c", "false", "a.tar", "-o", "o.tar", exit=1).stderr
        [line, *_] = run("proc", "--map", "f.py:f", "a.tar", "-o", "o.tar", exit=1).lines
        assert line.endswith("; --decode encodes other values by the name of the field"), "in a new interpreter"
        assert "--map and --parts cannot" in run("split", "a.tar", "--parts", "2", "--map", "m", exit=2).stderr
    assert errors.command_line is None


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of the tables are unchanged on the command line; in Python only command lines name options."""
    for kind in PROBLEMS.values():
        assert not re.search("--", re.sub(r"\btar[^;]*", "", errors.respell(kind.repair) or ""))
    monkeypatch.setattr(errors, "command_line", {})
    for kind in PROBLEMS.values():
        assert errors.respell(kind.repair) == kind.repair
    assert errors.spell("fix", "clean-%06d.tar") == "--fix 'clean-%06d.tar'"


TABLES = (
    "errors.py",
    "problems.py",
    "checking/findings.py",
    "checking/across.py",
    "jobs/emit.py",
    "jobs/dask.py",  # options of a program of Dask
)  # the last writes command lines
COMMAND_LINE = re.compile(r"\b(tar|tarkit|check|zip|hf|aws) .*--")
COMMANDS_ONLY = {  # options without an argument, of pages and of commands
    "--map ",
    ": {epoch} needs --epochs N",
    "--load takes one argument, a list of inputs, not ",
    " more: --json has all",
    " DIRECTORY --repo-type ",
    "--report=/dev/fd/",  # of the command lines of jobs
    "--force",  # likewise
    "--size",  # of a hint that sort alone gives
}


def test_no_literal_names_an_option() -> None:
    """In the packages below the command line `spell` writes the options, and nothing is told which way."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("__main__", "start", "demo", "cli/", "commands/")):
            continue
        text = path.read_text()
        if not re.search(r"--[a-z]|\b(spell|word)\b[:,)]", text):
            continue  # most modules, which need not be parsed
        nodes = list(ast.walk(ast.parse(text)))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        rows = (node for node in nodes if isinstance(node, ast.Call) and _called(node).lower().endswith("row"))
        docs |= {id(node) for row in rows for node in ast.walk(row)}
        for node in nodes:
            if isinstance(node, ast.arg):
                assert node.arg != "spell", name
                assert node.arg != "word" or ast.unparse(node.annotation or node).startswith("str"), name
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
            if isinstance(text, str) and name not in TABLES and re.search(r"(?<![\w-])--[a-z]", text):
                assert COMMAND_LINE.search(text) or text in COMMANDS_ONLY, (name, text)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
