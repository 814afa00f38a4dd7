"""split into a view, whose column says the shard of each sample, and split by that column."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Run, keys

arrow: Any = pytest.importorskip("pyarrow", reason="views are Parquet files")
parquet: Any = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def archives(archive: Archive) -> Callable[[], list[str]]:
    """Return a function that makes two archives of 20 samples, and returns their names."""

    def make() -> list[str]:
        for name in "ab":
            archive(
                [
                    (f"{name}{n:02d}.{field}", b"%d" % (n % 3) * (1 if field == "cls" else 40 * n))
                    for n in range(20)
                    for field in ("cls", "txt")
                ],
                f"{name}.tar",
            )
        return ["a.tar", "b.tar"]

    return make


def contents(directory: str) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in Path(directory).rglob("*.*")}


SPLITS = [
    "-c 7 -o OUTs-%d.tar",
    "-s 20K -o OUTs-%d.tar",
    "-s 5K --size-rule content -o OUTs-%d.tar",
    "-n 6 -o OUTs-%d.tar",
    "-n 6 --remainder drop -o OUTs-%d.tar",
    "-n 7 --remainder repeat -o OUTs-%d.tar",
    "--even size -o OUTs-{0..4}.tar",
    "-c 7 --start 5 --max-shards 3 -o OUTs-{00..99}.tar",
    "-c 7 --where cls!=1 --match [01]$|5 -o OUTs-%d.tar",
    "-c 7 --sample 0.5 --seed 2 -o OUTs-%d.tar",
    "-c 9 --parts train=0.7,val=0.3 -o OUT{part}-%d.tar",
    "-c 9 --parts 3 --seed 4 -o OUT%d.tar",
    "-c 4 --parts x=0.5,y=0.5 --stratify cls -o OUT{part}-%d.tar",
    "-c 9 -o OUTs-%d.tar.gz",
]


@pytest.mark.slow
@each_row("command", SPLITS)
def test_shards_by_a_view(run: Run, archives: Callable[[], list[str]], command: str) -> None:
    """The shards that a view of a split stands for are those of the split, byte for byte; a view of a view as well."""
    os.mkdir("x")
    os.mkdir("y")
    inputs = archives()
    run("split", *inputs, *command.replace("OUT", "x/").split())
    planned = command.replace("-o OUT", "-o plan.view.parquet --names ").split()
    run("split", *inputs, *planned)
    before = contents(".")
    run("split", "plan.view.parquet", "--by", "__into__", "-o", "y/")
    assert {name: data for name, data in contents(".").items() if not name.startswith("y/")} == before
    assert contents("y") == contents("x")
    assert os.listdir("x")
    tarkit.open("plan.view.parquet").write("again.view.parquet")  # rows keep the column
    tarkit.open("again.view.parquet", on_problem=lambda text: None).split("y/", by="__into__", force=True)
    assert contents("y") == contents("x")


def test_shards_of_a_category(run: Run, archives: Callable[[], list[str]]) -> None:
    """The shards of a map are in the column as well; samples in no category are in no row."""
    for directory in ("x", "y"):
        os.mkdir(directory)
    inputs = archives()
    words = ["--map", '{"zero-%d.tar": ["^a"], "one-%d.tar": ["^b1"]}', "-c", "6"]
    run("split", *inputs, *words, "-o", "x/")
    run("split", *inputs, *words, "-o", "p.view.parquet")
    run("split", "p.view.parquet", "--by", "__into__", "-o", "y/")
    assert contents("y") == contents("x")
    assert len(contents("x")) == 6


def test_names_by_another_tool(run: Run, archives: Callable[[], list[str]]) -> None:
    """Any column of text names shards, in any order of rows: the samples of each keep the order of the rows."""
    run("cat", *archives(), "-o", "v.parquet")
    rows = parquet.read_table("v.parquet").to_pylist()
    draw = random.Random(1)
    draw.shuffle(rows)
    expected: dict[str, list[str]] = {}
    for row in rows:
        row["shard"] = draw.choice(["val/0.tar", "train-1.tar", "train-2.tar"])
        expected.setdefault(row["shard"], []).append(row["__key__"])
    parquet.write_table(arrow.Table.from_pylist(rows), "w.parquet")
    assert "mkdir -p out out/val" in run("split", "w.parquet", "--by", "shard", "-o", "out/", exit=1).stderr
    os.makedirs("out/val")
    run("split", "w.parquet", "--by", "shard", "-o", "out/", "--manifest", "m.tsv")
    assert {name: keys(Path("out", name)).split() for name in expected} == expected
    assert len(Path("m.tsv").read_text().splitlines()) == 4
    stderr = run("split", "w.parquet", "--by", "shard", "-o", "out/", exit=1).stderr
    assert "there are shards of this name" in stderr
    run("split", "w.parquet", "--by", "shard", "-o", "out/", "--force")


NAMES = {
    "../x.tar": "is not a path below the directory",
    "/tmp/x.tar": "is not a path below the directory",
    "a/../../x.tar": "is not a path below the directory",
    "pipe:touch x": "is not a path below the directory",
    "s3://bucket/x.tar": "is not a path below the directory",
    "": "is not the name of a shard",
    "x/": "is not the name of a shard",
    "x.parquet": "is not the name of a shard",
}


@each_row("name", [*NAMES])
def test_names_that_lead_out(run: Run, archives: Callable[[], list[str]], name: str) -> None:
    """A name in the column is a path below the directory: others are errors before anything is written."""
    archives()
    run("cat", "a.tar", "-o", "v.parquet")
    table = parquet.read_table("v.parquet")
    parquet.write_table(table.append_column("__into__", arrow.array([name] * len(table))), "w.parquet")
    before = {*os.listdir()}
    assert NAMES[name] in run("split", "w.parquet", "--by", "__into__", "-o", ".", exit=2).stderr
    assert {*os.listdir()} == before


def test_a_changed_archive(run: Run, archives: Callable[[], list[str]]) -> None:
    """A sample that is left out moves no other one to another shard."""
    archives()
    run("split", "a.tar", "-c", "2", "-o", "p.parquet")
    rows = parquet.read_table("p.parquet").to_pylist()
    rows[0]["__start__"] += 512
    rows[1]["__stop__"] += 512
    parquet.write_table(arrow.Table.from_pylist(rows), "w.parquet")
    assert "[changed-source]" in run("split", "w.parquet", "--by", "__into__", "-o", ".", exit=1).stderr
    run("split", "w.parquet", "--by", "__into__", "-o", ".", "--skip", "changed-source", "--force")
    assert not os.path.exists("split-000000.tar")
    assert keys(Path("split-000001.tar")) == "a02 a03"


def test_no_view_without_ranges(run: Run, archives: Callable[[], list[str]]) -> None:
    """Samples of a stream have no place that a view could name; no view is there then."""
    archives()
    data = Path("a.tar").read_bytes()
    ran = run("split", "-", "-c", "3", "-o", "p.parquet", stdin=data, exit=1)
    assert "a view names ranges of plain archives" in ran.stderr
    assert not os.path.exists("p.parquet")
