"""Examples in docstrings run, with the shown results."""

from __future__ import annotations

import doctest
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive

ROOT = Path(tarkit.__file__).parent
MODULES = [
    ".".join(("tarkit", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text()
]
LOOKED_UP = [
    "open",
    "check",
    "create",
    "index",
    "loader",
    "mix",
    "shard",
    "stats",
    "TarWriter",
    "ShardWriter",
    "Sample",
]
METHODS = ["head", "where", "select", "rekey", "sort", "shuffle", "write", "split", "table", "extract", "indexed"]
"""Public names, and methods of a dataset, whose docstring has an example."""


def fill(archive: Archive) -> None:
    """Write the files that examples read."""
    samples = {"a/0": ("3", b"one"), "a/1": ("1", b"two"), "b/0": ("3", b"two")}
    for name, keys in (("train-0.tar", "a/0 a/1"), ("train-1.tar", "b/0"), ("a.tar", "a/0 a/1")):
        members = {}
        for key in keys.split():
            members[f"{key}.jpg"], members[f"{key}.cls"] = samples[key][1], samples[key][0].encode()
        archive(members, name)
    archive({f"cat/{i}.jpg": b"cat" for i in range(4)}, "cats.tar")
    archive({f"dog/{i}.jpg": b"dog" for i in range(2)}, "dogs.tar")
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Path("photos", name).write_bytes(b"picture")


@pytest.mark.slow
@pytest.mark.forks
@each_row("name", MODULES)
def test_examples_are_true(name: str, archive: Archive, here: Path) -> None:
    """Each docstring runs alone, in a directory with the files that it reads."""
    module = import_module(name)
    ran = 0
    names = {key: value for key, value in vars(module).items() if key != "open"}
    for number, test in enumerate(doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=names)):
        folder = here / str(number)
        folder.mkdir()
        with chdir(folder):
            fill(archive)
            said: list[str] = []
            result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
        assert result.failed == 0, "".join(said)
        ran += result.attempted
    assert ran or name not in ("tarkit", "tarkit.dataset", "tarkit.pipeline.sample", "tarkit.shards.from_values")


def test_what_users_look_up_has_an_example() -> None:
    """Functions, classes and the most important methods of a dataset have an example."""
    for name in LOOKED_UP:
        assert ">>> " in (getattr(tarkit, name).__doc__ or ""), name
    for name in METHODS:
        assert ">>> " in (getattr(tarkit.Dataset, name).__doc__ or ""), name
