"""tarkit index: the files it writes and keeps, and the findings of --verify."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest

from tarkit.indexing import formats
from tests._tools import each_row
from tests.conftest import Archive, Content, Run, tar

ONE: dict[str, Content] = {"a.x": b"1", "a.y": b"2" * 700, "b.x": b"3"}
TWO: dict[str, Content] = {"c.x": b"4", "d.x": b"5", "e.x": b"6"}
ALL = "dali,energon,webshart,tsv,wids"
MADE = ["1.idx", "1.index.tsv", "1.json", "1.tar", "1.tar.idx", "2.idx", "2.index.tsv", "2.json", "2.tar", "2.tar.idx"]


@pytest.fixture
def shards(archive: Archive) -> list[str]:
    """Write two shards in a directory."""
    return [archive(ONE, "s/1.tar"), archive(TWO, "s/2.tar")]


def files(directory: str = "s") -> dict[str, bytes]:
    """Return the files in a directory."""
    return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


@pytest.mark.forks
def test_beside_the_shards(run: Run, shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several formats are written at once; the number of processes and the limit of memory change nothing."""
    ran = run("index", "s", "--format", ALL, "--report", "1.json")
    made = files()
    assert [*made] == sorted([*MADE, "shardindex.json"])
    assert ran.stdout == b""
    assert ran.stderr == ""
    assert made["1.idx"] == b"v1.2 2\nx 512 1 a.x y 1536 700 a.y\nx 3072 1 b.x\n"
    assert made["2.tar.idx"] == struct.pack("=4Q", 0, 1024, 2048, 3072)
    listed = json.loads(made["shardindex.json"])["shardlist"]
    found = [(each["url"], each["nsamples"], each["filesize"]) for each in listed]
    assert found == [("1.tar", 2, 10240), ("2.tar", 3, 10240)]
    for name in made.keys() - {"1.tar", "2.tar"}:
        os.unlink(f"s/{name}")
    monkeypatch.setattr(formats, "BUFFERED", 10)
    run("index", "s", "--format", ALL, "-p", "2", "--report", "2.json")
    assert files() == made
    for number in "12":
        report = json.loads(Path(f"{number}.json").read_text())
        assert (report["samples"], report["shards"], report["indexes"]) == (5, 2, 9)
    assert run("index", "s", "--verify", "--format", ALL, "-p", "2").stdout == b""
    assert run("index", "s", "--verify").stdout == b""


def test_output(run: Run, shards: list[str]) -> None:
    """-o is a directory for several indexes, a file or stdout for one."""
    os.mkdir("o")
    run("index", *shards, "--format", "dali tsv wids", "-o", "o")
    assert [*files("o")] == ["1.idx", "1.index.tsv", "2.idx", "2.index.tsv", "shardindex.json"]
    listed = json.loads(files("o")["shardindex.json"])["shardlist"]
    assert [each["url"] for each in listed] == ["../s/1.tar", "../s/2.tar"]
    assert run("index", shards[0], "--format", "dali", "-o", "-").stdout == files("o")["1.idx"]
    run("index", shards[0], "--format", "dali", "-o", "x.idx")
    assert Path("x.idx").read_bytes() == files("o")["1.idx"]
    assert [*files()] == ["1.tar", "2.tar"]


def test_equal_base_names(run: Run, shards: list[str]) -> None:
    """wids copies shards to one directory: equal base names are a warning."""
    os.mkdir("t")
    Path("t/2.tar").write_bytes(Path("s/2.tar").read_bytes())
    ran = run("index", *shards, "t/2.tar", "--format", "wids", "-o", "shardindex.json")
    [said] = ran.lines
    what = "shardindex.json: s/2.tar and t/2.tar have one base name, by which wids stores its copies"
    assert said == f"tarkit: warning: {what}: it may read one shard for the other; rename the shards"
    assert run("index", *shards, "--format", "wids", "-o", "shardindex.json", "--force").lines == []


def test_md5(run: Run, shards: list[str]) -> None:
    """With --md5 the list has the MD5 sum of each shard."""
    run("index", "s", "--format", "wids", "--md5")
    listed = json.loads(Path("s/shardindex.json").read_text())["shardlist"]
    assert listed[1]["md5sum"] == hashlib.md5(Path("s/2.tar").read_bytes()).hexdigest()
    Path("s/2.tar").write_bytes(tar({"c.x": b"4", "d.x": b"5", "e.x": b"7"}))
    assert run("index", "s", "--format", "wids", "--verify").stdout == b""
    found = run("index", "s", "--format", "wids", "--verify", "--md5", exit=1).stdout
    assert found == b"s/shardindex.json: 2.tar: the MD5 sum differs\n"


NAMES = {"dali": "1.idx", "energon": "1.tar.idx", "webshart": "1.json", "tsv": "1.index.tsv", "wids": "shardindex.json"}


@each_row(("format", "name"), NAMES.items())
def test_existing_files(format: str, name: str, run: Run, archive: Archive) -> None:
    """An index of that format is replaced, another file only with --force."""
    words = ["index", archive(ONE, "s/1.tar"), "--format", format]
    run(*words)
    good = files()[name]
    archive(TWO, "s/1.tar")
    run(*words)
    assert files()[name] != good
    Path(f"s/{name}").write_text("my own notes\n")
    said = [f"tarkit: s/{name}: the file exists and is not a {format} index", "hint: --force replaces it"]
    assert run(*words, exit=1).lines == said
    assert files()[name] == b"my own notes\n"
    run(*words, "--force")
    archive(ONE, "s/1.tar")
    run(*words)
    assert files()[name] == good


@pytest.mark.forks
def test_damage_leaves_no_index(run: Run, shards: list[str], archive: Archive) -> None:
    """A damaged shard is an error without an index; the shards before it have theirs."""
    archive(tar(TWO)[:1600], "s/2.tar")
    for processes in ("1", "2"):
        ran = run("index", "s", "--format", ALL, "-p", processes, exit=1)
        assert ran.lines[0].endswith("[truncated]")
        assert [name for name in files() if name[0] == "2"] == ["2.tar"]
        assert "shardindex.json" not in files()
    run("index", "s", "--format", "dali", "--skip", "truncated")
    assert files()["2.idx"] == b"v1.2 1\nx 512 1 c.x\n"


def test_compressed(run: Run, here: Path) -> None:
    """The hint is the command that makes a plain archive; nothing is written for the shards before it either."""
    Path("1.tar").write_bytes(tar(ONE))
    Path("a b.tar.gz").write_bytes(gzip.compress(tar(ONE)))
    ran = run("index", "1.tar", "a b.tar.gz", "--format", "dali", exit=1)
    assert ran.lines == [
        "tarkit: a b.tar.gz: an index needs offsets in a plain archive, not a compressed archive",
        "hint: make a plain archive: tarkit cat 'a b.tar.gz' -o 'a b.tar'",
    ]
    assert not Path("1.idx").exists()
    assert "needs a regular file" in run("index", "--format", "dali", stdin=tar(ONE), exit=1).stderr


@each_row(
    ("format", "shard", "lines"),
    [
        ("dali", {"a.x": b"1", "a.y": b"2" * 500, "b.x": b"3"}, 2),
        ("dali", {**ONE, "c.x": b""}, 1),
        ("energon", {**ONE, "c.x": b""}, 1),
        ("webshart", {"a.x": b"1", "a.z": b"2" * 700, "b.x": b"3"}, 1),
        ("tsv", {"a.x": b"12", "a.y": b"2" * 700, "b.x": b"3"}, 1),
        ("wids", {"a.x": b"1"}, 1),
    ],
)
def test_verify_reports_changes(format: str, shard: dict[str, Content], lines: int, run: Run, archive: Archive) -> None:
    """A changed shard is reported with one line for each difference, status 1, and a hint."""
    archive(ONE, "s/1.tar")
    archive(TWO, "s/2.tar")
    run("index", "s", "--format", format)
    before = files()
    archive(shard, "s/1.tar")
    ran = run("index", "s", "--format", format, "--verify", exit=1)
    found = ran.printed
    assert len(found) == lines
    assert all("1." in line for line in found)
    assert ran.lines[-1] == "hint: tarkit index without --verify makes new ones"
    assert {**files(), "1.tar": b""} == {**before, "1.tar": b""}


def test_verify_reports_errors(run: Run, shards: list[str], archive: Archive) -> None:
    """A missing index, an invalid one and a damaged shard are reported with a line each."""
    run("index", "s", "--format", "dali")
    os.unlink("s/1.idx")
    assert run("index", "s", "--format", "dali", "--verify", exit=1).stdout == b"s/1.tar: no index s/1.idx\n"
    Path("s/1.idx").write_text("notes")
    out = run("index", "s", "--verify", exit=1).stdout
    assert out == b"s/1.tar: s/1.idx: not a dali index: not a DALI index of version 1.2\n"
    archive(tar(TWO)[:1600], "s/2.tar")
    assert b"[truncated]" in run("index", "s", "--verify", exit=1).stdout
    os.unlink("s/1.idx")
    os.unlink("s/2.idx")
    assert "no index to verify" in run("index", "s", "--verify", exit=1).stderr


@pytest.mark.slow
@pytest.mark.forks
def test_parquet(run: Run, shards: list[str]) -> None:
    """pyarrow reads the columns of the table; without it the hint names the extra."""
    if find_spec("pyarrow") is None:
        ran = run("index", "s", "--format", "parquet", exit=1)
        assert ran.lines[-1] == "hint: pip install 'tarkit[parquet]'"
        return
    run("index", "s", "--format", "parquet,tsv", "-p", "2")
    first = files()
    run("index", "s", "--format", "parquet,tsv")
    assert files() == first
    assert run("index", "s", "--verify").stdout == b""
    from pyarrow import parquet  # imported at the end, since it starts threads

    table = parquet.read_table("s/1.index.parquet")
    rows = [line.split("\t") for line in Path("s/1.index.tsv").read_text().splitlines()]
    assert [list(map(str, row.values())) for row in table.to_pylist()] == rows[1:]
    assert table.column_names == rows[0]
    assert table.schema.metadata[b"tarkit.size"] == b"10240"
