"""Generated files: they are up to date, manual pages have everything that the help has, and linters report nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from typing import Any

import click
import pytest

import tarkit
from tarkit.cli.app import COMMANDS, group
from tarkit.problems import PROBLEMS
from tests._tools import each_row, program

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "man").glob("*.1"))


@pytest.fixture(scope="module")
def docs() -> Any:
    """Return the script as a module."""
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
    """Return a checkout that has the generated files alone."""
    for name in ("man", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def _command(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def test_all_is_up_to_date(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The files in the repository equal the output of the script."""
    monkeypatch.setattr(sys, "argv", ["scripts/docs", "--check"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        run_path(str(ROOT / "scripts/docs"), run_name="__main__")

    assert (ended.value.code, capsys.readouterr().err) == (0, "")


def test_a_change_makes_the_check_fail(
    docs: Any, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stale pages are named, and running the script repairs them."""
    monkeypatch.setattr(_command("cat"), "help", "Other words.")
    monkeypatch.setattr(_command("mix"), "cost", "Other words.")
    monkeypatch.setattr(_command("split").params[-1], "help", "Other words.")

    assert docs.main(["--check"], copy) == 1
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"{path.format(name)} is stale: scripts/docs renews it"
        for path in ("docs/commands/tarkit-{}.md", "man/tarkit-{}.1")
        for name in ("cat", "mix", "split")
    ]

    assert docs.main([], copy) == 0
    assert docs.main(["--check"], copy) == 0


def test_tables_are_checked(
    docs: Any, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the tables of commands or problems makes the check fail; the script repairs it."""
    monkeypatch.setitem(COMMANDS, "cat", "Other words.")
    monkeypatch.setitem(PROBLEMS, "truncated", PROBLEMS["truncated"]._replace(meaning="other words"))

    assert docs.main(["--check"], copy) == 1
    stale = ["man/tarkit.1", "README.md", "docs/problems.md", "docs/commands/index.md"]
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == stale

    docs.main([], copy)
    assert "| `tarkit cat` | Other words. |" in (copy / "README.md").read_text()
    assert "## truncated\n\n**error**: other words.\n" in (copy / "docs/problems.md").read_text()


def test_words_of_help_are_no_markup_on_pages(docs: Any) -> None:
    """Names between underscores and what is quoted are code, and < is text: no letter of them is lost."""
    said = "set 'a json:{b,c}' of __key__ < 3, sample.__key__, json:{A}, --keys-from LIST:__key__"
    shown = "set `'a json:{b,c}'` of `__key__` &lt; 3, `sample.__key__`, `json:{A}`, `--keys-from LIST:__key__`"
    assert docs.pages.escaped(said) == shown
    for path in (ROOT / "docs/commands").glob("*.md"):
        plain = re.sub("```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
        assert re.findall(r"__\w+__|\\<|.*\*\*.*", plain) == []


def test_packages_have_a_row(docs: Any) -> None:
    """Each package has a row, with the first words of its docstring."""
    rows = docs.pages.package_table().splitlines()[2:]
    names = [row.split("`")[1] for row in rows]
    assert {"tar/", "streams/codecs/", "errors.py"} <= set(names)
    assert all((ROOT / "tarkit" / name).exists() for name in names)
    assert all(row.count("|") == 3 and len(row.split("|")[2]) > 10 for row in rows)


def test_each_public_name_has_its_place_in_the_reference() -> None:
    """Each name of the package is on one page of the API reference, and each page is in the navigation."""
    pages = {path.name: path.read_text() for path in (ROOT / "docs/api").glob("*.md")}
    names = [name for text in pages.values() for name in re.findall(r"^::: tarkit\.([\w.]+)$", text, re.MULTILINE)]
    methods = [f"Dataset.{name}" for name in vars(tarkit.Dataset) if not name.startswith("_")]
    assert sorted(names) == sorted([*methods, *(name for name in tarkit.__all__ if name != "__version__")])
    listed = (ROOT / "mkdocs.yml").read_text()
    every = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert [str(path) for path in every if f": {path}\n" not in listed] == []


TABLES = ("test_layers", "test_problems", "cli/test_app", "streams/test_codecs")


@cache
def _defined() -> frozenset[str]:
    """Return the names of modules, classes, functions and variables, in the package and in tests with tables."""
    names = set()
    for path in (*(ROOT / "tarkit").rglob("*.py"), *(ROOT / f"tests/{name}.py" for name in TABLES)):
        text = path.read_text(encoding="utf-8")
        names |= {path.stem, path.parent.name, *re.findall(r"^ *(?:class|def) (\w+)", text, re.MULTILINE)}
        names.update(re.findall(r"^ *(\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE))
    return frozenset(names)


@cache
def _options() -> frozenset[str]:
    """Return the options of all commands."""
    return frozenset(each for command in COMMANDS for param in _command(command).params for each in param.opts)


def _exists(name: str) -> bool:
    """Return whether a name in backticks is a file, an option, a command, or something in the code."""
    if " " in name:
        return all(map(_exists, name.removeprefix("import ").split()))
    if name.startswith("-"):
        return name in _options() or name == "--help"
    if "/" in name or name.endswith((".py", ".md", ".toml")):
        return any((above / name).exists() for above in (ROOT, ROOT / "tarkit"))
    if "." in name:
        try:
            resolve_name(f"tarkit.{name.removeprefix('tarkit.')}")
        except (ImportError, AttributeError):
            return False
        return True
    return name in _defined() or name in COMMANDS


def _names(page: str) -> set[str]:
    """Return the names in backticks on a page, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@each_row("name", sorted(_names("docs/architecture.md")))
def test_the_architecture_names_what_exists(name: str) -> None:
    """Each name in backticks on the page is in the package, is a file, or is an option."""
    assert _exists(name)


@each_row(
    "name",
    sorted(name for name in _names("CONTRIBUTING.md") if re.search(r"^[A-Z]\w+$|^(tarkit|tests|scripts|docs)/", name)),
)
def test_contributing_names_what_exists(name: str) -> None:
    """Paths, classes and tables in the instructions exist; NAME stands for a new command."""
    assert "NAME" in name or _exists(name.split()[0])


def test_a_name_that_does_not_exist_is_reported() -> None:
    """The test of names fails for those that do not exist."""
    gone = "samples.reader.Walk streams.walk Inputs tar/walk.py --nothing scripts/none"
    assert [name for name in (*gone.split(), "cat --nothing") if _exists(name)] == []


def test_pages_of_removed_commands_are_removed(docs: Any, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page without a command is stale, and is removed."""
    gone = "tarkit-gone"
    pages = [f"docs/commands/{gone}.md", f"man/{gone}.1"]
    for page in pages:
        (copy / page).write_text("old")

    assert docs.main(["--check"], copy) == 1
    assert sorted(line.split()[0] for line in capsys.readouterr().err.splitlines()) == pages

    docs.main([], copy)
    assert not any((copy / page).exists() for page in pages)


def test_unknown_arguments_are_refused(docs: Any) -> None:
    """Unknown arguments are a usage error."""
    assert docs.main(["--chekc"]) == 2


@each_row("name", COMMANDS)
def test_a_page_is_complete(name: str) -> None:
    """Every option, example and cost of a command is in its page."""
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
    site = (ROOT / "docs/commands" / f"tarkit-{name}.md").read_text()
    headings = " ".join(re.findall(r"^### `(.*)`$", site, re.MULTILINE)).replace(",", "").split()
    assert {option for parameter in command.params for option in parameter.opts if option[0] == "-"} <= {*headings}
    assert all(f"\n{example}\n" in site for example in getattr(command, "examples", ()))


@each_row("words", [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z", "-Tascii"]])
def test_lint_is_silent(words: list[str]) -> None:
    """mandoc has no warning and groff none."""
    ran = subprocess.run([program(words[0]), *words[1:], *PAGES], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_pages_fit_80_columns() -> None:
    """No line of the output of `man` has more than 80 columns."""
    words = [program("mandoc"), "-T", "ascii", "-O", "width=80", *PAGES]
    shown = re.sub(".\b", "", subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert [line for line in shown.splitlines() if len(line) > 80] == []  # bold is a character over itself
