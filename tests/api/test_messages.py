"""Messages and hints name arguments in a Python program, options on the command line: `errors.spell`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit import errors
from tarkit.problems import PROBLEMS
from tests._tools import each_row
from tests.conftest import Run

Call = Callable[[tarkit.Dataset], Any]
ROOT = Path(tarkit.__file__).parent


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tarkit.Dataset:
    """Make ten samples in a.tar, cut.tar without its end, and a tree, in the current directory."""
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("a.tar") as out:
        for number in range(10):
            out.write(f"{number:02}", {"txt": "x", "cls": number % 2})
    Path("cut.tar").write_bytes(Path("a.tar").read_bytes()[:1500])
    Path("keys").write_text("00\n")
    for name in ("one/a.jpg", "one/a.txt", "two/b.jpg", "out/00.txt", "s-0.tar"):
        Path("tree", name).parent.mkdir(parents=True, exist_ok=True)
        Path("tree", name).write_text("x")
    return tarkit.open("a.tar")


def fails(sample: tarkit.Sample) -> Any:
    """Fail for any sample."""
    raise ValueError


def plan(**arguments: Any) -> Any:
    """Plan the shards of the tree."""
    return tarkit.shard("tree", dry_run=True, **arguments)


# what is called, the text of the error, and its hint; each is a part
ERRORS: dict[str, tuple[Call, str, str]] = {
    "truncated": (
        lambda data: list(tarkit.open("cut.tar")),
        "[truncated]",
        "; tarkit.open(..., skip='truncated') keeps the whole",
    ),
    "allow and skip": (
        lambda data: list(tarkit.open("a.tar", allow="truncated", skip="truncated")),
        "allow and skip both name truncated",
        "",
    ),
    "allow": (lambda data: list(tarkit.open("a.tar", allow="nix")), "allow nix: unknown problem", ""),
    "syntax of where": (lambda data: data.where("cls ="), "where 'cls =': ", ""),
    "where": (
        lambda data: list(data.where("nix == 1")),
        "has no field 'nix'",
        "; tarkit.open(..., skip='missing-field') leaves",
    ),
    "select": (
        lambda data: list(tarkit.loader(data, select="txt jpg")),
        "has no field 'jpg'",
        "tarkit.open(..., skip='missing-field') leaves such samples out",
    ),
    "value of where": (
        lambda data: list(data.where("txt > 1")),
        "where 'txt > 1' for '00': ",
        "tarkit.open(..., skip='bad-field') drops such samples",
    ),
    "match": (lambda data: data.match("("), "match '(': ", ""),
    "template of keys": (lambda data: data.rekey("{nix}"), "rekey '{nix}': ", ""),
    "equal keys": (
        lambda data: data.rekey("k").write("o.tar"),
        "",
        "this rekey gives two samples one key: another makes them differ, rekey='{index:09d}-{key}' always",
    ),
    "require": (lambda data: list(data.require("jpg")), "[missing-field]", "on_missing='skip' drops such samples"),
    "type of values": (lambda data: data.sort("txt", type="int").write("o.tar"), "not a", "type='auto' takes all"),
    "sort": (
        lambda data: data.sort("nix").write("o.tar"),
        "[missing-field]",
        "tarkit.open(..., skip='missing-field') leaves such samples out, allow='missing-field' puts them before",
    ),
    "order_file": (lambda data: data.sort(order_file="keys").write("o.tar"), "is not in keys", "that are: keys keys"),
    "map": (
        lambda data: list(data.map(fails)),
        "raised ValueError",
        "on_error='skip' leaves such samples out, rejects='OUT.tar' collects them",
    ),
    "max_errors": (lambda data: list(data.map(fails, max_errors=3)), "failed, more than max_errors allows", ""),
    "limit of errors": (lambda data: data.map(fails, max_errors="x"), "max_errors 'x': expected", ""),
    "program": (lambda data: list(data.proc("nix-program")), "", "by their absolute paths"),
    "worker": (lambda data: list(data.worker("exit 3")), "worker exit 3: ", ""),
    "extract": (
        lambda data: data.extract("tree/out"),
        "there are files of these names",
        "force replaces them, directory names another directory",
    ),
    "unsafe names": (
        lambda data: tarkit.open("a.tar", allow="unsafe-name").extract("d"),
        "allow='unsafe-name': what is unsafe",
        "skip='unsafe-name' leaves it out",
    ),
    "split to stdout": (lambda data: data.split("-"), "not stdout", "name them with template='out-%06d.tar'"),
    "existing shards": (lambda data: data.split("tree/s-%d.tar"), "", "force replaces them; append keeps them, and"),
    "equal shards": (lambda data: data.split("o-%d.tar", shards=2, count=1), "shards cannot be used with count", ""),
    "too few samples": (lambda data: data.split("o-%02d.tar", shards=11, remainder="drop"), "", "remainder='repeat'"),
    "even": (lambda data: data.split("o-%d.tar", even="size"), "even='size' requires a number", "shards=64, or a"),
    "group alone": (lambda data: data.split("o-%d.tar", group="x"), "group requires parts", ""),
    "folds and map": (lambda data: data.split(parts=2, map={"a": ["b"]}), "map and parts cannot be used together", ""),
    "group": (lambda data: data.split("o-%d.tar", parts=2, group="y"), "", "match all: group='y|.*'"),
    "missing inputs": (
        lambda data: list(tarkit.open("nix-{0..3}.tar")),
        "4 of the 4 names",
        "",
    ),
    "table": (lambda data: data.table("t.zip"), "refusing to write text to a zip", "compress='none', or another name"),
    "indexes": (lambda data: tarkit.index(["a.tar", "a.tar"], "dali", "x"), "output x: there will be several", ""),
    "fix": (lambda data: tarkit.check("a.tar", fix="-"), "fix writes to files", "name it: fix='clean.tar'"),
    "create": (lambda data: tarkit.create("recipe", "o.tar"), "", "group gathers the entries of each sample"),
    "plan": (
        lambda data: plan(require="txt", on_missing="error", match="jpg|txt"),
        "[missing-field]",
        "on_missing='exclude' leaves such samples out",
    ),
    "key": (lambda data: plan(key="("), "key '(': ", ""),
    "join": (lambda data: plan(join="x"), "join 'x': not TABLE:COLUMN", ""),
    "classes": (
        lambda data: plan(label_from_dir="cls", match="s-0"),
        "",
        "match and exclude leave files out",
    ),
    "planned shards": (
        lambda data: tarkit.shard("tree/one", "tree/s-%d.tar"),
        "",
        "resume keeps those that are as planned, update packs what is new, force replaces them",
    ),
}


@each_row("name", ERRORS)
@pytest.mark.filterwarnings("ignore::tarkit.TarkitWarning")
def test_errors(name: str, data: tarkit.Dataset) -> None:
    """An error and its hint name arguments, and no option."""
    call, text, hint = ERRORS[name]
    Path("recipe").write_text("a.txt\ttext:1\nb.txt\ttext:2\na.cls\ttext:3\n")
    with pytest.raises(tarkit.TarkitError) as error:
        call(data)
    said, more = str(error.value), error.value.hint or ""
    assert text in said
    assert hint in more
    assert not re.search(r"(?<![\w-])--?[a-zA-Z]", f"{said} {more}"), (said, more)


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
    assert not errors.command_line


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of the tables are unchanged on the command line; in Python only command lines name options."""
    for kind in PROBLEMS.values():
        assert not re.search("--", re.sub(r"\btar[^;]*", "", errors.respell(kind.repair) or ""))
    monkeypatch.setattr(errors, "command_line", True)
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
}


def test_no_literal_names_an_option() -> None:
    """In the packages below the command line `spell` writes the options, and nothing is told which way."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("__main__", "cli/", "commands/")):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.arg):
                assert node.arg != "spell", name
                assert node.arg != "word" or ast.unparse(node.annotation or node).startswith("str"), name
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
            if isinstance(text, str) and name not in TABLES and re.search(r"(?<![\w-])--[a-z]", text):
                assert COMMAND_LINE.search(text) or text in COMMANDS_ONLY, (name, text)
