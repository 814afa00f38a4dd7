"""Shards that do not exist, or vanish, with `--skip missing-shard` and `on_missing="warn"`: the others are read."""

from __future__ import annotations

import json
import os
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import MissingFile
from tests._tools import each_row
from tests.conftest import Run

ALL = [f"{shard}/{number}" for shard in range(4) for number in range(5)]
PRESENT = [key for key in ALL if not key.startswith("1/")]


def write() -> list[str]:
    """Write four shards of five samples; return their names."""
    names = [f"s-{shard}.tar" for shard in range(4)]
    for shard, name in enumerate(names):
        with tarkit.TarWriter(name) as out:
            for number in range(5):
                out.write(f"{shard}/{number}", {"cls": number, "txt": "t" * 900})
    return names


@pytest.fixture
def shards(here: Path) -> list[str]:
    """Four shards in an empty directory."""
    return write()


@each_row(
    "command",
    [
        *("cat {} -o {}.tar", "sort {} -o {}.tar", "shuffle --seed 7 {} -o {}.tar", "split {} -c 99 -o {}-%d.tar"),
        *("proc {} -c true -o {}.tar", "tsv {} -o {}.tsv", "stats {} --json", "show {} --json"),
        *("index {} --format view -o {}.view.parquet", "cat {} -o {}.view.parquet"),
    ],
)
def test_commands(command: str, run: Run, here: Path) -> None:
    """The output is that of the other shards, and the summary names the missing one; by default it is an error."""
    write()
    others = run(*command.format("s-0.tar s-2.tar s-3.tar", "expected").split())
    os.unlink("s-1.tar")
    ran = run(*command.format("s-{0..3}.tar", "error").split(), exit=1)
    assert "s-1.tar: No such file or directory (1 of the 4 names" in ran.stderr
    assert "\nhint: --skip missing-shard goes on without it\n" in ran.stderr
    assert not list(here.glob("error*"))
    ran = run(*command.format("s-{0..3}.tar", "found").split(), "--skip", "missing-shard")
    assert ran.lines[0] == "tarkit: warning: s-1.tar: No such file or directory [missing-shard]"
    assert "skipped for missing-shard: 1; 1 shard left out: s-1.tar" in ran.lines[-1]
    assert ran.stdout == others.stdout
    files = {path for path in here.rglob("*") if path.is_file() and "expected" in str(path)}
    for path in files:
        twin = Path(str(path).replace("expected", "found"))
        assert path.suffix == ".parquet" or twin.read_bytes() == path.read_bytes()
    assert files or "stats" in command or "show" in command
    run("cat", "s-1.tar", "s-9.tar", "--skip", "missing-shard", "-o", "none.tar", exit=1)


def test_a_query(run: Run, shards: list[str]) -> None:
    """A query is about the other shards."""
    pytest.importorskip("duckdb")
    os.unlink("s-1.tar")
    run("sql", "select count(*) from 's-{0..3}.tar'", exit=1)
    ran = run("sql", "select count(*) as n from 's-{0..3}.tar'", "--skip", "missing-shard")
    assert ran.stdout.split() == [b"n", b"15"]
    assert ran.lines[-1].endswith("1 shard left out: s-1.tar")


def test_many_are_counted(run: Run, shards: list[str]) -> None:
    """Three have a line of their own; the summary and the report name all."""
    ran = run("cat", "s-0.tar", "x-{0..4}.tar", "--skip", "missing-shard", "-o", "o.tar", "--report", "r.json")
    assert ran.lines[3] == "tarkit: warning: more of [missing-shard] follow; they are only counted"
    assert ran.lines[4].endswith("5 shards left out: x-0.tar, x-1.tar, x-2.tar, x-3.tar, x-4.tar")
    assert '"missing": [\n    "x-0.tar"' in Path("r.json").read_text()


@pytest.mark.parametrize("fault", ["missing", "html", "cut"])
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": 9}, {"shuffle": "full"}, {"interleave": 2}, {"equal": "drop"}], ids=str
)
def test_a_loader(fault: str, options: dict[str, Any], shards: list[str]) -> None:
    """It gives the samples of the other shards once, also if the shard vanishes behind its start, and names it."""
    lines: list[str] = []

    def given(**how: Any) -> list[str]:
        if fault == "missing" and options.get("shuffle") == "full":
            Path("s-1.tar").unlink(missing_ok=True)  # or it would be open already
        data = tarkit.open(shards, on_problem=lines.append, **how)
        loader = tarkit.loader(data, **options)
        if fault == "missing":
            Path("s-1.tar").unlink(missing_ok=True)
        return sorted(sample["__key__"] for sample in loader)

    content = Path("s-1.tar").read_bytes()
    if fault != "missing":
        Path("s-1.tar").write_bytes(b"<html>" * 99 if fault == "html" else content[:3500])
    if fault == "missing":
        found = given(on_missing="warn")
        assert found == PRESENT if "equal" not in options else len(found) == len(ALL)  # as many as were counted
        assert "epoch 0: 1 shard left out: s-1.tar" in lines or "full" in options.values()
    with pytest.raises((tarkit.TarkitError, OSError), match=r"s-1\.tar"):
        given()
    lines.clear()
    assert [key for key in given(on_missing="warn") if not key.startswith("1/")] == PRESENT
    assert any("s-1.tar" in line for line in lines)


def test_a_loader_of_names(shards: list[str]) -> None:
    """It has the argument for names; a dataset has it in tarkit.open. Positions continue as ever."""
    os.unlink("s-1.tar")
    with pytest.raises(tarkit.TarkitError, match=r"s-1\.tar: No such file"):
        tarkit.loader(shards)
    with pytest.raises(tarkit.Usage, match="on_missing cannot be used with a dataset"):
        tarkit.loader(tarkit.open("s-0.tar"), on_missing="warn")
    with pytest.raises(tarkit.Usage, match="on_missing"):
        tarkit.loader(shards, on_missing="skip")  # type: ignore[arg-type]
    loader = tarkit.loader(shards, on_missing="warn", shuffle=4)
    again = tarkit.loader(shards, on_missing="warn", shuffle=4)
    with warnings.catch_warnings(record=True) as said:
        found = [sample["__key__"] for sample in islice(loader, 7)]
        again.load_state_dict(loader.state_dict())
        assert sorted([*found, *(sample["__key__"] for sample in again)]) == PRESENT
    assert "epoch 0: 1 shard left out: s-1.tar" in [str(each.message) for each in said]


def test_a_view(run: Run, shards: list[str]) -> None:
    """The samples of an archive that a view names and that is missing are left out."""
    pytest.importorskip("pyarrow")
    tarkit.open(shards).write("all.view.parquet")
    os.unlink("s-1.tar")
    assert "named by all.view.parquet" in run("cat", "all.view.parquet", "-o", "o.tar", exit=1).stderr
    ran = run("cat", "all.view.parquet", "-o", "o.tar", "--skip", "missing-shard")
    assert "1 shard left out: s-1.tar (5 samples left out)" in ran.stderr
    assert [sample.key for sample in tarkit.open("o.tar")] == PRESENT
    with pytest.warns(tarkit.TarkitWarning, match="s-1"):
        data = tarkit.open("all.view.parquet", on_missing="warn").indexed()
    assert [sample.key for sample in data] == PRESENT


@each_row("names", ["s-{0..3}.tar", ["s-0.tar", "missing.tar"]])
def test_hints(names: Any, shards: list[str]) -> None:
    """An error about a missing shard says how to go on; of one that is alone it does not."""
    Path("s-1.tar").unlink(missing_ok=True)
    for call in (tarkit.open, tarkit.stats, tarkit.loader):
        with pytest.raises(MissingFile) as raised:
            call(names)
        assert raised.value.hint == "on_missing='warn' of tarkit.open and tarkit.loader goes on without it"
        with pytest.raises(MissingFile) as raised:
            call("missing.tar")
        assert raised.value.hint is None


@each_row("names", ["s-{0..3}.tar", ["s-0.tar", "missing.tar"], "missing.tar", "missing-{0..1}.tar"])
def test_check(names: Any, shards: list[str], run: Run) -> None:
    """A missing shard is a finding of `check`, as in the command."""
    Path("s-1.tar").unlink(missing_ok=True)
    words = [names] if isinstance(names, str) else names
    ran = run("check", *words, "--json", exit=1)
    report = tarkit.check(names)
    assert not report.ok
    assert json.loads(ran.stdout.splitlines()[-1])["bad"] == len(report.bad) > 0


@each_row(
    "command",
    ["cat {} -o {}.tar", "tsv {} -f cls -o {}.tsv", "shuffle --seed 7 {} -o {}.tar", "cat {} -o {}.view.parquet"],
)
def test_missing_views(command: str, run: Run, here: Path) -> None:
    """A view that does not exist is left out as an archive is; by default it is an error."""
    pytest.importorskip("pyarrow")
    names = [f"{shard}.view.parquet" for shard in range(4)]
    for shard, name in zip(write(), names, strict=True):
        tarkit.open(shard).write(name)
    os.unlink(names[1])
    others = [name for name in names if name != names[1]]
    assert "1.view.parquet: No such file" in run(*command.format(" ".join(names), "error").split(), exit=1).stderr
    assert not list(here.glob("error*"))
    run(*command.format(" ".join(others), "expected").split())
    ran = run(*command.format(" ".join(names), "found").split(), "--skip", "missing-shard")
    assert "skipped for missing-shard: 1; 1 shard left out: 1.view.parquet" in ran.lines[-1]
    for expected in here.glob("expected*"):
        assert (here / expected.name.replace("expected", "found")).read_bytes() == expected.read_bytes()
    table = run("tsv", *names, "-o", "keys.parquet", "--skip", "missing-shard")
    assert "1 shard left out: 1.view.parquet" in table.lines[-1]
    data = tarkit.open(names, on_missing="warn")
    with pytest.warns(tarkit.TarkitWarning, match="1.view.parquet: No such file"):
        assert [sample.key for sample in data] == PRESENT
    for options in ({}, {"shuffle": "full"}, {"shuffle": 5}):
        with pytest.warns(tarkit.TarkitWarning, match="1.view.parquet: No such file"):
            assert sorted(sample["__key__"] for sample in tarkit.loader(data, **options)) == PRESENT
