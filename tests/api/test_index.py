"""tarkit.index and tarkit.verify_index: the files and the faults of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Content, Run, tar


@pytest.mark.forks
def test_verify_as_the_command_does(archive: Archive, run: Run) -> None:
    """A line for each fault, of one format or of all."""
    names = [archive({f"{n}{i}.x": b"1" * n for i in range(3)}, f"s/{n}.tar") for n in (1, 2)]
    assert tarkit.index("s", format="dali,wids", md5=True) == ["s/1.idx", "s/2.idx", "s/shardindex.json"]
    assert tarkit.verify_index("s") == []
    assert tarkit.verify_index(names, ["wids"], md5=True) == []
    Path("s/1.tar").write_bytes(tar({"1.x": b"1"}))
    for format, more in ((None, []), ("dali", []), ("wids", ["--md5"])):
        words = [] if format is None else ["--format", format, *more]
        found = run("index", "s", "--verify", *words, exit=1).stdout.decode().splitlines()
        assert tarkit.verify_index("s", format or (), md5=bool(more)) == found != []
    Path("new").mkdir()
    assert tarkit.index("s", "dali", Path("new")) == ["new/1.idx", "new/2.idx"]
    assert tarkit.verify_index("s", output="new", processes=2) == []


def test_problems(archive: Archive) -> None:
    """As for `tarkit.open`."""
    archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")], "a.tar")
    with pytest.raises(tarkit.Problem, match="scattered-sample"):
        tarkit.index("a.tar", "dali")
    said: list[str] = []
    tarkit.index("a.tar", "dali", allow="scattered-sample", on_problem=said.append)
    assert len(said) == 1
    assert tarkit.verify_index("a.tar", allow=["scattered-sample"], on_problem=said.append) == []


TWICE: list[tuple[str, Content]] = [("a.x", b"1"), ("a.x", b"2"), ("b.x", b"3")]


@pytest.mark.forks
@each_row(("maxerr", "exit"), [("1", 1), ("2", 0)])
@each_row("command", [["stats"], ["index", "-f", "dali"], ["index", "-f", "dali,tsv,wids", "-p", "2"], ["verify"]])
def test_maxerr_of_all_shards(command: list[str], maxerr: str, exit: int, archive: Archive, run: Run) -> None:
    """So many problems may be in all shards together, each of which counts once; the next ends the run."""
    for name in ("s/1.tar", "s/2.tar"):
        archive(TWICE, name)
    if command == ["verify"]:
        tarkit.index("s", "dali,tsv,wids", skip="duplicate-entry", on_problem=lambda line: None)
        command = ["index", "--verify"]
    found = run(*command, "s", "--maxerr", maxerr, "--report", "report.json", exit=exit)
    assert str(found.stderr).count("[duplicate-entry]") + str(found.stdout).count("[duplicate-entry]") >= 2
    if not exit:
        assert json.loads(Path("report.json").read_text())["problems"] == {"duplicate-entry": 2}


@pytest.mark.forks
@each_row("processes", [1, 3])
def test_warnings(processes: int, archive: Archive) -> None:
    """Three of a kind in a run, and one that there are more; those of a shard that ends the run come before."""
    names = [archive(TWICE, f"s/{number}.tar") for number in range(5)]
    said: list[str] = []
    tarkit.index("s", "dali", skip="duplicate-entry", processes=processes, on_problem=said.append)
    assert [line.partition(":")[0] for line in said[:3]] == names[:3]
    assert said[3:] == ["more of [duplicate-entry] follow; they are only counted"]
    archive([*TWICE, ("a.y", b"4")], "s/0.tar")
    said.clear()
    with pytest.raises(tarkit.Problem, match="scattered-sample"):
        tarkit.index("s", "dali", skip="duplicate-entry", processes=processes, on_problem=said.append)
    assert len(said) == 1
