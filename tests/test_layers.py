"""The structure of the package, read from the ASTs: imports, sizes, names, and the modules loaded at start-up."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import tarkit
from tarkit.cli.app import COMMANDS
from tests._tools import archive, each_row

ROOT = Path(tarkit.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[1]

MODULES = {
    ".".join(("tarkit", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def source(name: str) -> str:
    """Return the text of a module, read once."""
    return MODULES[name].read_text()


@cache
def tree(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(source(name))


LOOKED_AT = (ast.Import, ast.ImportFrom, ast.If, ast.Call, ast.Attribute, ast.ExceptHandler, ast.ClassDef,
             ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr)  # fmt: skip


@cache
def nodes(name: str) -> list[ast.AST]:
    """Return the nodes of a module that any test checks, from one walk through it."""
    return [node for node in ast.walk(tree(name)) if isinstance(node, LOOKED_AT)]


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """Keep the caches until the last test, without garbage collection, which takes longer than the parsing."""
    gc.disable()
    yield
    gc.enable()
    for each in (source, tree, nodes):
        each.cache_clear()


# The directories of the package, and modules at its top, from the bottom up: each imports only those before it. Imports
# for type checkers count.
LAYERS = [
    "bytereader",
    "redaction",
    "errors",
    "sizes",
    "machine",
    "align",
    "arguments",
    "options",
    "signals",
    "threads",
    "problems",
    "stores",
    "streams.codecs",
    "streams",
    "spill",
    "parallel",
    "media",
    "decoding",
    "tar",
    "tables",
    "messages",
    "zip",
    "samples",
    "choosing",
    "views",
    "pipeline",
    "joining",
    "sorting",
    "shards",
    "export",
    "query",
    "checking",
    "extraction",
    "indexing",
    "proc",
    "packing",
    "display",
    "dataset",
    "mixing",
    "jobs",
    "cluster",
    "loading",
    "torch",
    "wds",
    "tarkit",
    "cli",
    "commands",
    "demo_recipes",
    "demo",
    "start",
    "__main__",
]
MOST_FILES = 22
ACCELERATOR = "tarkit.tar._fast"  # compiled, where a compiler is there
CROWDED: dict[str, int] = {}  # directories that have more files for now, and how many
LONGEST_FUNCTION = 60

# Files that cite a document that is not in the repository, and how often; it stays empty.
CITED = {}


def directory(module: str) -> str:
    """Return the directory of a module of tarkit, with dots; for a module at the top its own name."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return package.partition(".")[2] or module.removeprefix("tarkit.")


LOADERS = ("load_library", "media_library")
"""Functions whose first argument is the name of a module that they import."""


def imports(name: str) -> Iterator[str]:
    """Yield what a module imports, anywhere in it."""
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in LOADERS
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def own(name: str) -> set[str]:
    """Return the modules of tarkit that a module imports."""
    return {each for each in imports(name) if each.partition(".")[0] == "tarkit" and each != ACCELERATOR}


def assert_no_cycle(graph: dict[str, set[str]]) -> None:
    """Fail with the path of a cycle."""
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in done:
            for each in sorted(graph[name]):
                visit(each, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_imports_go_down() -> None:
    """A directory imports those before it in LAYERS alone."""
    assert {directory(name) for name in MODULES} == set(LAYERS)
    wrong = []
    for name in MODULES:
        below = LAYERS[: LAYERS.index(directory(name)) + 1]
        wrong += [f"{name} imports {imported}" for imported in own(name) if directory(imported) not in below]
    assert not wrong


def test_no_cycles_of_modules() -> None:
    """Modules form a graph without cycles, including imports for type checkers."""
    assert_no_cycle({name: own(name) - {name} for name in MODULES})


def test_commands_are_one_file_each() -> None:
    """commands/ has one module for each command; none imports another, and the app loads them by name.

    None imports the app: commands depend on the rest of cli.
    """
    assert {name for name in MODULES if directory(name) == "commands"} == {
        "tarkit.commands",
        *(f"tarkit.commands.{name}" for name in COMMANDS),
    }
    for name in MODULES:
        assert not [each for each in own(name) if each.startswith("tarkit.commands.")], name
        assert directory(name) != "commands" or "tarkit.cli.app" not in own(name), name


def test_no_directory_is_crowded() -> None:
    """A directory has at most 22 files."""
    files = Counter(path.parent for path in MODULES.values())
    crowded = {str(at.relative_to(ROOT)): count for at, count in files.items() if count > MOST_FILES}
    assert crowded == CROWDED


def test_public_classes_have_unique_names() -> None:
    """No two public classes of the package have the same name."""
    names = Counter(
        node.name
        for name in MODULES
        for node in tree(name).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_cited_documents_are_in_the_repository() -> None:
    """Code, tests, scripts and documents cite no Markdown file, and no specification, that is not in the repository."""
    known = {path.name for path in REPOSITORY.glob("*.md")}
    known |= {path.name for at in ("docs", "tests") for path in (REPOSITORY / at).rglob("*.md")}
    files = [path for at in ("tarkit", "tests", "scripts", "docs") for path in (REPOSITORY / at).rglob("*")]
    cited = Counter()
    for path in (*files, *REPOSITORY.glob("*.md")):
        if path.is_file() and path.suffix in ("", ".py", ".sh", ".md") and path != Path(__file__).resolve():
            for name in re.findall(r"\b[\w-]+\.md\b|\b[a-z]+-spec\b", path.read_text()):
                cited[str(path.relative_to(REPOSITORY))] += name not in known
    assert {name: count for name, count in cited.items() if count} == CITED


EDGE = {
    "click": "cli cli.* commands commands.*",
    "tqdm": "cli cli.*",
    "duckdb": "query.engine",
    "rich": "commands commands.* display display.* align",
    "PIL": "media.* decoding.* display.pictures display.terminal",
    "filetype": "media.kinds",
    "imagesize": "media.headers",
    "braceexpand": "streams.braces",
    "subprocess": "streams.command",
    "tempfile": "streams.tempfile",
    "google": "messages.tfrecord",
    "google_crc32c": "messages.tfrecord",
    "yaml": "mixing.spec export.writer",
    "pyarrow": "tables.parquet",
    "urllib3": "stores.http stores.hub stores.ais",
    "soundfile": "media.* decoding.sound",
    "av": "media.container decoding.sound",
    "simplejpeg": "media.whole_pictures decoding.jpeg",
    "fsspec": "stores.other",
    "obstore": "stores.objects stores.buckets stores.bucket_lists",
    "torchvision": "decoding.batch",
    "torch": "media.* decoding.* wds.* torch",
    "distributed": "jobs.dask jobs.dask_worker",
    "dask": "jobs.dask",
    "cloudpickle": "jobs.dask",
    "tarfile": "checking.targets",  # which says what readers with it see
    "zipfile": "media.coding_arrays media.coding_torch",
    "logging": "",
    "importlib.metadata": "",
    **dict.fromkeys(
        ("zstandard", "lz4", "isal", "gzip", "bz2", "lzma", "compression"),
        "streams.codecs streams.codecs.* zip.decode",
    ),
}
"""The modules, or patterns of them, that may import a library."""


@each_row("name", MODULES)
def test_libraries_have_one_place(name: str) -> None:
    """click is imported in cli and commands, codec libraries in codecs; subprocesses are started in two modules."""
    for imported in imports(name):
        for library, allowed in EDGE.items():
            if imported == library or imported.startswith(f"{library}."):
                good = any(fnmatchcase(name, f"tarkit.{pattern}") for pattern in allowed.split())
                assert good, f"{name} imports {imported}"


LAZY = """
    zstandard lz4 isal tqdm rich PIL filetype imagesize numpy pyarrow duckdb yaml subprocess multiprocessing
    sqlite3 zipfile msgpack cbor2 soundfile simplejpeg av torchvision torch distributed dask
    cloudpickle google google_crc32c
"""


@each_row("name", MODULES)
def test_optional_libraries_are_imported_where_they_are_used(name: str) -> None:
    """Optional and slow libraries are not imported at the top of a module, so that other commands start fast."""
    lazy = LAZY.split()
    for node in tree(name).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for each in names:
                assert each.partition(".")[0] not in lazy, f"{name} imports {each} at the top"


WORLD = {
    "sys.exit": ["tarkit.cli.app"],
    "sys.argv": ["tarkit.cli.app", "tarkit.demo", "tarkit.start"],
    "sys.stdin": ["tarkit.proc.child"],
    # proc.child: a separate process, in which the user's code prints
    "sys.stdout": ["tarkit.cli.app", "tarkit.demo", "tarkit.proc.child"],
    "os.environ": None,
}


ENVIRONMENT = """
    tarkit.jobs.strays tarkit.media.limits tarkit.pipeline.run tarkit.proc.shell tarkit.proc.program tarkit.tar.fast
"""  # besides four directories


@each_row("name", MODULES)
def test_side_effects_are_at_the_edge(name: str) -> None:
    """No print, no sys.exit, and no access to the environment but where it is allowed."""
    for node in nodes(name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "input", "exit", "quit", "breakpoint", "eval", "exec"), name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            word = f"{node.value.id}.{node.attr}"
            if word in ("os.environ", "os.getenv", "os.environb"):
                good = directory(name) in ("cli", "commands", "loading", "stores", "wds") or name in ENVIRONMENT.split()
                assert good, f"{name} uses {word}"
            elif word in WORLD and WORLD[word] is not None:
                assert name in WORLD[word], f"{name} uses {word}"
            assert word not in ("os._exit", "os.system", "os.popen", "time.time") or name in (
                "tarkit.cli.options",
                "tarkit.cli.app",
                "tarkit.streams.process",  # a forked process, which must end itself
                "tarkit.stores.listing",  # another one
            ), name
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{name} catches everything, line {node.lineno}"


@each_row("name", MODULES)
def test_no_function_is_too_long(name: str) -> None:
    """A function has at most 60 lines, besides its docstring."""
    for node in nodes(name):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            assert length <= LONGEST_FUNCTION, f"{name}.{node.name} has {length} lines"


@each_row("name", MODULES)
def test_everything_is_documented(name: str) -> None:
    """Each module, and each public class, function and method, has a docstring.

    A method of a class with a base may be documented there.
    """
    assert ast.get_docstring(tree(name)), f"{name} has no docstring"
    for node in nodes(name):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}.{node.name}"
    classes = [node for node in nodes(name) if isinstance(node, ast.ClassDef)]
    for body in (tree(name), *(node for node in classes if not node.bases and not node.name.startswith("_"))):
        for node in body.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if not any(mark == "overload" or ".setter" in mark for mark in marks):
                assert ast.get_docstring(node), f"{name}.{node.name}"


NOUNS = """
    archives attempts bytes categories characters classes columns depths differences dimensions directories entries
    epochs errors fields files groups inputs jobs keys lines messages names nodes notes objects outputs parts problems
    processes ranges records rows samples shards sources tasks values workers
"""
NEVER_ONE = {  # numbers in messages that are more, where the message is of several
    "attempts", "emptied", "failed", "free", "item.shards", "len(names)", "limit", "longest", "lost",
    "number(high)", "number(samples)", "run.samples", "scope", "seed", "self.world", "total", "width",
}  # fmt: skip


@each_row("name", MODULES)
def test_a_noun_agrees_with_its_number(name: str) -> None:
    """`1 sample` and `2 samples`: `sizes.plural` writes a number with its noun, unless it is a constant."""
    plain = re.compile(rf" (\w+ed |more |complete )?({'|'.join(NOUNS.split())})\b")
    for node in nodes(name):
        if isinstance(node, ast.JoinedStr):
            for before, after in pairwise(node.values):
                if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant):
                    number = ast.unparse(before.value)
                    good = number.isupper() or number.startswith("spell") or number in NEVER_ONE
                    assert good or not plain.match(str(after.value)), f"{name}: {{{number}}}{after.value}"


# ---- modules loaded


def loaded(*words: str, code: str | None = None) -> set[str]:
    """Return the modules that a run imports, without those that Python itself needs."""
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
    rich tqdm PIL filetype imagesize zstandard lz4 isal braceexpand subprocess tempfile importlib.metadata
    multiprocessing concurrent logging tarfile zipfile gzip sqlite3 json csv asyncio http urllib.request email
    hashlib dataclasses random decimal fractions statistics
"""


def heavy(modules: set[str]) -> list[str]:
    """Return the modules in HEAVY, and their submodules, among `modules`."""
    return sorted({each for each in modules for name in HEAVY.split() if each == name or each.startswith(f"{name}.")})


@pytest.fixture(scope="module")
def click() -> set[str]:
    """Return the modules that click loads."""
    return loaded(code="import click, runpy, signal, locale, encodings.ascii")


def test_start(click: set[str]) -> None:
    """--help loads click, the table of commands, errors, sizes and signals; no command, no heavy module."""
    modules = loaded("--help")
    ours = {each for each in modules if each.partition(".")[0] == "tarkit"}
    own = {f"tarkit.cli.{name}" for name in ("app", "color", "command", "messages")}
    top = {f"tarkit.{name}" for name in ("cli", "errors", "redaction", "signals", "sizes", "start", "threads")}
    top |= {f"tarkit.{name}" for name in ("arguments", "options", "stores", "stores.schemes", "stores.store")}
    assert ours == {"tarkit", *top, *own}
    assert not heavy(modules - click)


def test_version_alone() -> None:
    """--version loads next to nothing."""
    beyond = loaded("--version") - loaded(code="import runpy, signal")
    assert beyond <= {"tarkit", "tarkit.__main__", "tarkit.start"}


def test_cat_of_a_file(tmp_path: Path, click: set[str]) -> None:
    """A copy of one plain archive loads no codec, no command but cat, no temporary file and no table."""
    (tmp_path / "a.tar").write_bytes(archive({"a.txt": b"x"}))
    modules = loaded("cat", str(tmp_path / "a.tar"), "-o", str(tmp_path / "b.tar")) - click
    allowed = {"dataclasses", "random", "braceexpand"}
    assert [each for each in heavy(modules) if each.partition(".")[0] not in allowed] == []
    others = "commands.split commands.create tables.reader choosing.keys shards.writer choosing.where"
    assert modules.isdisjoint(f"tarkit.{name}" for name in others.split())


PLAIN = {
    "cat a.tar -o b.tar": "cli.lines spill",
    "split a.tar -c 1 -o c-%d.tar": "spill.runs",
    "sort a.tar -o d.tar": "shards.output",
    "shuffle a.tar -o e.tar": "shards.output",
    "stats a.tar": "spill",
    "show a.tar": "spill",
    "check a.tar": "",
    "tsv a.tar": "spill",
}
"""Commands over a plain archive, with modules that they do not load beside those of tables, views, URLs and media."""


@pytest.mark.parametrize("words", PLAIN)
def test_a_plain_archive(words: str, tmp_path: Path, click: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command over a plain archive loads nothing for tables, views, URLs, media, MDS, and no width of characters."""
    (tmp_path / "a.tar").write_bytes(archive({"a.txt": b"x"}))
    monkeypatch.chdir(tmp_path)
    modules = loaded(*words.split()) - click
    others = f"""
        tables.reader pipeline.view_rows pipeline.view_reader messages streams.remote stores.reading media.coding
        choosing.where {PLAIN[words]}
    """
    found = {each for each in modules for name in others.split() if f"{each}.".startswith(f"tarkit.{name}.")}
    assert found | (modules & {"rich", "csv", "difflib", "shutil"}) == set()


def test_a_bucket() -> None:
    """Objects in buckets are read and written without a library for HTTP, which takes longer to load than obstore."""
    pytest.importorskip("obstore")
    modules = loaded(code="import tarkit.stores.objects")
    assert "obstore" in modules
    assert modules.isdisjoint({"urllib3", "http.client", "urllib.request", "tarkit.stores.http"})


def test_the_version_is_a_literal() -> None:
    """The version is a literal: a query of the package database takes longer than the import of click."""
    [value] = [
        node.value
        for node in tree("tarkit").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert ast.literal_eval(value) == tarkit.__version__
