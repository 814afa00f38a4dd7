"""tsv: columns that say where samples lie, so that a table is a view."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Run, keys

arrow: Any = pytest.importorskip("pyarrow", reason="views are Parquet files")
parquet: Any = pytest.importorskip("pyarrow.parquet")

PLACE = ["__shard__", "__start__", "__stop__"]


@pytest.fixture
def archives(archive: Archive) -> Callable[[], list[str]]:
    """Return a function that makes two archives of 6 samples, and returns their names."""

    def make() -> list[str]:
        os.makedirs("d", exist_ok=True)
        for name in "ab":
            members = [(f"{name}{n}.{field}", b"%d" % (9 - n)) for n in range(6) for field in ("cls", "txt")]
            archive(members, f"d/{name}.tar")
        return ["d/a.tar", "d/b.tar"]

    return make


def columns(path: str) -> list[str]:
    return list(parquet.read_schema(path).names)


TABLES = {
    "-f cls": ["__key__", *PLACE, "cls"],
    "-f cls --no-locate": ["__key__", "cls"],
    "-f cls --no-key": ["cls"],
    "-f cls --where int(txt)>5": ["__key__", *PLACE, "cls"],
    "-f cls --drop txt": ["__key__", *PLACE, "__more__", "__fields__", "cls"],
    "-f cls --rekey x/{key}": ["__key__", *PLACE, "__more__", "__fields__", "cls"],
    "": ["__key__", *PLACE, "cls", "txt"],
}


@each_row("words", [*TABLES])
def test_a_table_is_a_view(run: Run, archives: Callable[[], list[str]], words: str) -> None:
    """A Parquet file of plain archives names their ranges: cat of it is cat with the same choice, byte for byte."""
    inputs = archives()
    run("table", *inputs, *words.split(), "-o", "t.parquet")
    assert columns("t.parquet") == TABLES[words]
    if "__shard__" in TABLES[words]:
        choice = words.removeprefix("-f cls").replace("--locate", "").split()
        assert run("cat", "t.parquet", "-o", "-").stdout == run("cat", *inputs, *choice, "-o", "-").stdout
        run("table", "t.parquet", "-f", "cls", "-o", "again.parquet")
        assert run("cat", "again.parquet", "-o", "-").stdout == run("cat", "t.parquet", "-o", "-").stdout


def test_text(run: Run, archives: Callable[[], list[str]]) -> None:
    """--locate adds them to tables of text, with paths as seen from the directory of the table."""
    archives()
    assert run("tsv", "d/a.tar", "-f", "cls", "--locate", "-c", "2").stdout.decode().splitlines() == [
        "__key__\t__shard__\t__start__\t__stop__\tcls",
        "a0\td/a.tar\t0\t2048\t9",
        "a1\td/a.tar\t2048\t4096\t8",
    ]
    assert tarkit.open("d/a.tar").table("d/t.csv", "cls", locate=True) == 6
    assert Path("d/t.csv").read_text().splitlines()[1] == "a0,a.tar,0,2048,9"


def test_an_edited_table(run: Run, archives: Callable[[], list[str]]) -> None:
    """A table that another tool has sorted and labelled is read as a view; an empty one too."""
    run("tsv", *archives(), "-f", "cls", "-o", "t.parquet")
    rows = parquet.read_table("t.parquet").to_pylist()
    edited = [{**row, "cls": int(row["cls"]) * 2} for row in reversed(rows) if int(row["cls"]) > 6]
    parquet.write_table(arrow.Table.from_pylist(edited), "e.parquet")
    assert keys(run("cat", "e.parquet", "-o", "-").stdout).split() == [row["__key__"] for row in edited]
    assert run("cat", "e.parquet", "--where", "cls == 18", "-o", "-").stdout
    run("tsv", "d/a.tar", "-f", "cls", "--where", "cls > 99", "-o", "no.parquet")
    assert keys(run("cat", "no.parquet", "-o", "-").stdout) == ""


def test_no_places(run: Run, archives: Callable[[], list[str]]) -> None:
    """Streams and compressed archives have no ranges: no such columns by default, an error with --locate."""
    archives()
    data = Path("d/a.tar").read_bytes()
    run("cat", "d/a.tar", "-o", "z.tar.gz")
    run("tsv", "d/b.tar", "z.tar.gz", "-f", "cls", "-o", "t.parquet")
    assert columns("t.parquet") == ["__key__", "cls"]
    run("tsv", "-", "-f", "cls", "-o", "t.parquet", stdin=Path("d/a.tar"))
    assert "cls" in columns("t.parquet")
    ran = run("tsv", "z.tar.gz", "-f", "cls", "--locate", "-o", "u.parquet", exit=1)
    assert "a view names ranges of plain archives" in ran.stderr
    assert not os.path.exists("u.parquet")
    assert "--locate needs the column __key__" in run("tsv", "d/a.tar", "--locate", "--no-key", exit=2).stderr
    renamed = tarkit.open("d/a.tar").select("label:cls")
    renamed.table("r.parquet", "label")
    assert columns("r.parquet") == ["__key__", "label"]
    renamed.table("r.parquet", "label", locate=True)
    assert columns("r.parquet") == ["__key__", *PLACE, "__more__", "__fields__", "label"]
    assert [sample["label"] for sample in tarkit.open("r.parquet")] == [sample["label"] for sample in renamed]
    parquet.write_table(arrow.table({"txt": ["a", "b"]}), "plain.parquet")  # a table that is no view
    run("tsv", "plain.parquet", "-f", "txt", "-o", "p.parquet")
    assert columns("p.parquet") == ["__key__", "txt"]
    tarkit.open("d/a.tar").map(lambda sample: sample).table("m.parquet", "cls")
    assert columns("m.parquet") == ["__key__", "cls"]
    assert data == Path("d/a.tar").read_bytes()
