"""Who imports whom, how long things are, and what is loaded at the start: style.md 5.3 and 5.8, by the ASTs."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _tools import archive, each_row

import tarkit

ROOT = Path(tarkit.__file__).parent
MODULES = {
    ".".join(("tarkit", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def source(name: str) -> str:
    """The text of a module; only the process that runs these tests reads them all."""
    return MODULES[name].read_text()


@cache
def tree(name: str) -> ast.Module:
    """What is in a module."""
    return ast.parse(source(name))


LOOKED_AT = (ast.Import, ast.ImportFrom, ast.If, ast.Call, ast.Attribute, ast.ExceptHandler, ast.ClassDef,
             ast.FunctionDef, ast.AsyncFunctionDef)  # fmt: skip


@cache
def nodes(name: str) -> list[ast.AST]:
    """Those of a module that any test looks at, from one walk through it."""
    return [node for node in ast.walk(tree(name)) if isinstance(node, LOOKED_AT)]


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """All of it stays until the last test, and nobody looks for garbage in it, which takes longer than to read it."""
    gc.disable()
    yield
    gc.enable()
    for each in (source, tree, nodes):
        each.cache_clear()


# Each layer, and those that it may import besides itself. `problems` says what policies there are, for who has one.
LAYERS = {
    "tarkit": set(),
    "errors": set(),
    "problems": {"errors"},
    "tar": {"errors"},
    "streams": {"errors", "ending"},
    "dataset": {"tar", "streams", "errors", "problems", "ending"},
    "work": {"dataset", "tar", "streams", "errors", "problems"},
    "views": {"dataset", "tar", "streams", "errors", "problems"},
    "commands": {"views", "work", "dataset", "tar", "streams", "errors", "problems", "cli"},  # cli: Command, say
    "ending": {"errors"},
    "cli": {"tarkit", "ending", "errors", "problems"},
    "__main__": {"cli"},
}
LONGEST_FUNCTION = 60


def layer(module: str) -> str:
    """The layer of a module of ours."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports(name: str) -> Iterator[tuple[str, ast.stmt]]:
    """What a module imports, anywhere in it, each with the statement that does."""
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in MODULES else node.module), node


def own(name: str) -> Iterator[str]:
    """The modules of ours that a module imports."""
    return (imported for imported, _ in imports(name) if imported.partition(".")[0] == "tarkit")


@each_row("name", MODULES)
def test_imports_point_down(name: str) -> None:
    """cli -> commands -> dataset -> {tar, streams} -> errors; tar and streams do not know each other."""
    at = layer(name)
    assert at in LAYERS, f"a new layer: {at}"
    for imported in own(name):
        assert layer(imported) in LAYERS[at] | {at}, f"{name} imports {imported}"
        if at == "commands" and layer(imported) == "commands":
            last = imported.rpartition(".")[2]
            assert last.startswith("_") or last == "commands", f"{name} imports the command {last}"
        if at == "cli":
            assert not imported.startswith("tarkit.commands"), "commands are imported by name"


def test_no_cycles() -> None:
    """Within a layer too, but for what only type checkers see."""
    graph = {name: {each for each in own(name) if each != name} - typing_only(name) for name in MODULES}
    graph = {name: edges - {"tarkit"} for name, edges in graph.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in done:
            for each in sorted(graph[name]):
                if not (layer(name) == "commands" and each == "tarkit.cli"):  # cli loads commands by name
                    visit(each, (*above, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def typing_only(name: str) -> set[str]:
    """What a module imports only under TYPE_CHECKING."""
    found: set[str] = set()
    for node in nodes(name):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            found |= {each.module for each in ast.walk(node) if isinstance(each, ast.ImportFrom) and each.module}
    return found


EDGE = {
    "click": lambda name: layer(name) in ("cli", "commands"),
    "tqdm": lambda name: layer(name) == "commands",
    "rich": lambda name: layer(name) in ("commands", "views"),
    "PIL": lambda name: name in ("tarkit.views.pictures", "tarkit.views.terminal", "tarkit.dataset.coding_pictures"),
    "filetype": lambda name: name == "tarkit.dataset.kinds",
    "braceexpand": lambda name: name == "tarkit.streams.braces",
    "subprocess": lambda name: name in ("tarkit.streams.command", "tarkit.streams.process"),
    "simpleeval": lambda name: name == "tarkit.dataset.where",
    "tempfile": lambda name: name == "tarkit.streams.scratch",
    "yaml": lambda name: name in ("tarkit.dataset.described", "tarkit.dataset.writing"),
    "pyarrow": lambda name: name in ("tarkit.dataset.parquet", "tarkit.dataset.sidecar_parquet"),
    "tarfile": lambda name: False,
    "zipfile": lambda name: False,
    "logging": lambda name: False,
    "importlib.metadata": lambda name: False,
    **dict.fromkeys(
        ("zstandard", "lz4", "isal", "gzip", "bz2", "lzma", "compression"),
        lambda name: name.startswith("tarkit.streams.codecs"),
    ),
}


@each_row("name", MODULES)
def test_libraries_have_one_place(name: str) -> None:
    """click stays at the edge, codecs in codecs, commands are started in one module."""
    for imported, _ in imports(name):
        for library, allowed in EDGE.items():
            if imported == library or imported.startswith(f"{library}."):
                assert allowed(name), f"{name} imports {imported}"


LAZY = """
    zstandard lz4 isal tqdm rich PIL filetype numpy pyarrow yaml simpleeval subprocess multiprocessing sqlite3
    zipfile
"""


@each_row("name", MODULES)
def test_optional_libraries_are_imported_where_they_are_used(name: str) -> None:
    """Not at the top: whoever needs none does not wait for them."""
    lazy = LAZY.split()
    for node in tree(name).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for each in names:
                assert each.partition(".")[0] not in lazy, f"{name} imports {each} at the top"


WORLD = {
    "sys.exit": ["tarkit.cli"],
    "sys.argv": [],
    "sys.stdin": [],
    "sys.stdout": ["tarkit.cli", "tarkit.work.child"],  # a process of its own, where the user's code prints
    "os.environ": None,
}


@each_row("name", MODULES)
def test_the_world_is_at_the_edge(name: str) -> None:
    """No print, no sys.exit, no environment below cli and commands; no assert for users is to be seen by machine."""
    for node in nodes(name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "input", "exit", "quit", "breakpoint", "eval", "exec"), name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            word = f"{node.value.id}.{node.attr}"
            if word in ("os.environ", "os.getenv", "os.environb"):
                assert layer(name) in ("cli", "commands"), f"{name} uses {word}"
            elif word in WORLD and WORLD[word] is not None:
                assert name in WORLD[word], f"{name} uses {word}"
            assert word not in ("os._exit", "os.system", "os.popen", "time.time") or name in (
                "tarkit.commands._options",
                "tarkit.cli",
            ), name
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{name} catches everything, line {node.lineno}"


@each_row("name", MODULES)
def test_no_function_is_too_long(name: str) -> None:
    """A function of more than 60 lines is two; a module ends where its idea ends."""
    for node in nodes(name):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{name}.{node.name} has {length} lines"


@each_row("name", MODULES)
def test_everything_is_documented(name: str) -> None:
    """A docstring for each module, and for each class, function and method that others may use.

    A method of a class that has a base may be documented there.
    """
    assert ast.get_docstring(tree(name)), f"{name} has no docstring"
    for node in nodes(name):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}.{node.name}"
    classes = [node for node in nodes(name) if isinstance(node, ast.ClassDef)]
    for body in (tree(name), *(node for node in classes if not node.bases and not node.name.startswith("_"))):
        for node in body.body:
            setter = isinstance(node, ast.FunctionDef) and any(".setter" in ast.unparse(d) for d in node.decorator_list)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not setter:
                assert ast.get_docstring(node), f"{name}.{node.name}"


# ---- what is loaded


def loaded(*words: str, code: str | None = None) -> set[str]:
    """The modules that a run imports, those that Python itself needs left out."""
    command = ["-c", code] if code else ["-m", "tarkit", *words]
    done = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", *command],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    return set(re.findall(r"^import time:\s+\d+ \|\s+\d+ \| +(\S+)$", done.stderr, re.M))


HEAVY = """
    rich tqdm PIL filetype zstandard lz4 isal braceexpand subprocess tempfile importlib.metadata multiprocessing
    concurrent logging tarfile zipfile gzip sqlite3 json csv asyncio http urllib.request email hashlib dataclasses
    random decimal fractions statistics
"""


def heavy(modules: set[str]) -> list[str]:
    """Those of HEAVY, and what is in them, that click alone does not load."""
    return sorted({each for each in modules for name in HEAVY.split() if each == name or each.startswith(f"{name}.")})


@pytest.fixture(scope="module")
def click() -> set[str]:
    """What the library that we stand on loads."""
    return loaded(code="import click, runpy, signal, locale, encodings.ascii")


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_start(word: str, click: set[str]) -> None:
    """click, the table of commands, errors and signals; no command, nothing heavy."""
    modules = loaded(word)
    ours = {each for each in modules if each.partition(".")[0] == "tarkit"}
    assert ours == {"tarkit", "tarkit.cli", "tarkit.ending", "tarkit.errors"}
    assert not heavy(modules - click)
    if word == "--version":
        beyond = modules - click - ours
        assert len(beyond) <= 2, f"--version loads {sorted(beyond)}"


def test_cat_of_a_file(tmp_path: Path, click: set[str]) -> None:
    """Copying one plain archive needs no codec, no command, no temporary file, no table."""
    (tmp_path / "a.tar").write_bytes(archive({"a.txt": b"x"}))
    modules = loaded("cat", str(tmp_path / "a.tar"), "-o", str(tmp_path / "b.tar")) - click
    allowed = {"dataclasses", "random", "braceexpand"}
    assert [each for each in heavy(modules) if each.partition(".")[0] not in allowed] == []
    for name in (
        "commands.split",
        "commands.create",
        "dataset.table",
        "dataset.keys",
        "dataset.shards",
        "dataset.where",
    ):
        assert f"tarkit.{name}" not in modules


def test_the_version_is_a_literal() -> None:
    """Asking the package database costs more than all of click."""
    [value] = [
        node.value
        for node in tree("tarkit").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert ast.literal_eval(value) == tarkit.__version__
