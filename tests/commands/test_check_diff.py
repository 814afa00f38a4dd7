"""tarkit check --diff: which samples were removed, added, renamed, changed and moved between two sets."""

from __future__ import annotations

import csv
import json
import marshal
import os
import random
from pathlib import Path

import pytest

import tarkit
from tarkit.checking import diff
from tarkit.checking.findings import ShardReport
from tarkit.spill import multimap
from tests._tools import each_row, traced
from tests.commands.test_check import objects, rows
from tests.conftest import Archive, Feed, Rows, Run, each_feed, tar

OLD: Rows = [("README", b"x"), *rows("a", 6)]


def sample(number: int) -> Rows:
    return OLD[1 + 2 * number : 3 + 2 * number]


NEW: Rows = [*sample(0), *sample(2), ("a3.cls", b"9"), ("a3.txt", b"new"), *sample(4), *sample(1)]
NEW += [("b.cls", OLD[11][1]), ("b.jpg", OLD[12][1]), ("c.cls", b"2")]


@pytest.mark.forks
@each_feed
def test_each_difference(run: Run, archive: Archive, feed: Feed) -> None:
    """A line for each, those of a kind together, and their number; by content a renamed sample is seen as such."""
    old, new = archive(OLD, "old.tar"), feed(archive(NEW, "new.tar"))
    changed = "changed: 'a3' differs in 'cls' and has no 'jpg' and has the additional field 'txt': old.tar[3] -> "
    gone = [
        "removed: 'README': old.tar[0]",
        "removed: 'a5': old.tar[5]",
        f"added: 'b': {new}[5]",
        f"added: 'c': {new}[6]",
    ]
    rest = [f"{changed}{new}[2]", f"moved: 'a1': old.tar[1] -> {new}[4]"]
    for words in ([], ["-p", "2"]) if feed.kind == "file" else ([],):
        ran = run("check", old, "--diff", new, *words, exit=1)
        assert ran.printed == [*gone, *rest, "2 removed, 2 added, 1 changed, 1 moved; 3 samples are the same"]
        ran = run("check", old, "--diff", new, "--by", "content", *words, exit=1)
        renamed = f"renamed: 'b', before 'a5': old.tar[5] -> {new}[5]"
        counts = "1 removed, 1 added, 1 renamed, 1 changed, 1 moved; 3 samples are the same"
        assert ran.printed == [gone[0], gone[3], renamed, *rest, counts]
    if feed.kind == "file":
        assert run("check", old, "--diff", old).printed == ["no differences: 7 samples are the same"]


def test_outputs(run: Run, archive: Archive, here: Path) -> None:
    """JSON, tables, the report and Python say the same as the lines; keys of a table choose samples."""
    old, new = archive(OLD, "old.tar"), archive(NEW, "new.tar")
    counts = {"removed": 1, "added": 1, "renamed": 1, "changed": 1, "moved": 1, "same": 3}
    found = objects(run("check", old, "--diff", new, "--by", "content", "--json", exit=1))
    assert found[3] == {
        "type": "difference",
        "change": "changed",
        "key": "a3",
        "fields": ["cls", "-jpg", "+txt"],
        "old": {"key": "a3", "shard": "old.tar", "index": 3},
        "new": {"key": "a3", "shard": "new.tar", "index": 2},
    }
    assert found[-1] == {"type": "summary", "different": True, **counts, "found": {}}
    ran = run("check", old, "--diff", new, "--by", "content", "-o", "d.csv", "--report", "r.json", exit=1)
    assert len(ran.printed) == 1
    assert json.loads((here / "r.json").read_text())["differences"] == counts
    with open("d.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["change"] for row in table] == [each["change"] for each in found[:-1]]
    assert list(table[3].values()) == ["a3", "changed", "cls -jpg +txt", "a3", "old.tar", "3", "a3", "new.tar", "2"]
    run("cat", new, "--keys-from", "d.csv:__key__", "-o", "x.tar")
    report = tarkit.check(old, diff=new, by="content")
    assert [each.record for each in report.differences] == found[:-1]
    assert report.same is False
    assert tarkit.check(old, diff=[old]).same is True
    run("check", old, "--diff", old, "-o", "none.jsonl")
    assert (here / "none.jsonl").read_bytes() == b""
    parquet = pytest.importorskip("pyarrow.parquet")  # where numbers are numbers, also if the first rows have none
    run("check", old, "--diff", archive([("z.x", b"")], "z.tar"), "-o", "d.parquet", exit=1)
    table = parquet.read_table("d.parquet")
    assert table["old_index"].to_pylist() == [0, 0, 1, 2, 3, 4, 5, None]
    assert str(table.schema.field("new_index").type) == "int64"


def test_shards(run: Run, archive: Archive) -> None:
    """Another shard is a move where both sets have as many; else the order of all shards together counts."""
    members = [row for name in "abcdef" for row in rows(name, 1)]
    whole, parts = archive(members, "whole.tar"), [archive(members[:6], "1.tar"), archive(members[6:], "2.tar")]
    assert run("check", whole, "--diff", *parts).printed == ["no differences: 6 samples are the same"]
    others = [archive(members[:8], "3.tar"), archive(members[8:], "4.tar")]
    assert run("check", *parts, "--diff", *others, exit=1).printed == [
        "moved: 'd0': 2.tar[0] -> 3.tar[3]",
        "1 moved; 5 samples are the same",
    ]
    run("check", whole, "--diff", *others, "-p", "1")
    run("cat", whole, "-o", "x.zip")
    run("check", *parts, "--diff", "x.zip")
    pytest.importorskip("pyarrow")
    run("cat", *parts, "-o", "v.view.parquet")
    run("check", "v.view.parquet", "--diff", *parts)
    run("sort", "v.view.parquet", "-r", "-o", "w.view.parquet")
    ran = run("check", "v.view.parquet", "--diff", "w.view.parquet", exit=1)
    assert ran.printed[-1] == "5 moved; 1 sample is the same"


def longest(places: list[int]) -> int:
    """Return the length of a longest increasing subsequence, by comparing all pairs."""
    best: list[int] = []
    for at, place in enumerate(places):
        best.append(1 + max((best[before] for before in range(at) if places[before] < place), default=0))
    return max(best, default=0)


@each_row("seed", range(12))
def test_against_dicts(seed: int, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random edits of a dict of samples are found exactly, in memory and on disk; moves are as few as there can be."""
    draw = random.Random(seed)
    old = {f"{number:03}": draw.randbytes(4) for number in draw.sample(range(400), 60)}
    new = dict(old)
    renamed = dict[str, str]()
    for key in draw.sample(sorted(old), 25):
        edit = draw.choice(("remove", "change", "rename", "move"))
        value = new.pop(key)
        if edit == "change":
            new[key] = value + b"!"
        elif edit == "rename":
            new[f"n{key}"] = value
            renamed[f"n{key}"] = key
        elif edit == "move":
            new[key] = value
    new |= {f"x{number}": draw.randbytes(5) for number in range(3)}
    archive({f"{key}.x": value for key, value in old.items()}, "old.tar")
    archive({f"{key}.x": value for key, value in new.items()}, "new.tar")
    for by, held in (("key", 1 << 20), ("content", 1 << 20), ("content", 300)):
        monkeypatch.setattr(multimap, "HELD", held)
        seen: dict[str, set[str]] = {change: set() for change in diff.CHANGES}
        ran = run("check", "old.tar", "--diff", "new.tar", "--by", by, "--json", exit=None)
        for each in objects(ran, "difference"):
            seen[str(each["change"])].add(str(each["key"]))
        names = renamed if by == "content" else {}
        both = [key for key in new if names.get(key, key) in old]
        assert seen["removed"] == old.keys() - new.keys() - set(names.values())
        assert seen["added"] == new.keys() - set(both)
        assert seen["renamed"] == set(names)
        assert seen["changed"] == {key for key in both if key in old and old[key] != new[key]}
        staying = [key for key in both if key not in seen["moved"]]
        stays = {key for key in staying if key in old and key not in seen["changed"]}
        places = {key: at for at, key in enumerate(old)}
        kept = [places[key] for key in new if key in stays]
        assert kept == sorted(kept)
        assert len(both) - len(seen["moved"]) >= longest([places[names.get(key, key)] for key in both])


def test_windows(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a window of samples the list of moves need not be the shortest, and is still complete."""
    names = [f"{number:02}" for number in range(40)]
    mixed = random.Random(3).sample(names, 40)
    archive({f"{name}.x": b"" for name in names}, "old.tar")
    archive({f"{name}.x": b"" for name in mixed}, "new.tar")
    monkeypatch.setattr(diff, "WINDOW", 7)
    ran = run("check", "old.tar", "--diff", "new.tar", "--json", exit=1)
    moved = {each["key"] for each in objects(ran, "difference")}
    assert [name for name in mixed if name not in moved] == [name for name in names if name not in moved]
    assert len(moved) < 39


def test_repeated_samples(run: Run, archive: Archive) -> None:
    """Samples of one key are matched one by one."""
    old = archive([("a.x", b"1"), ("b.x", b"2"), ("a.x", b"1"), ("c.x", b"3"), ("a.x", b"4")], "old.tar")
    new = archive([("a.x", b"1"), ("b.x", b"2"), ("a.x", b"5")], "new.tar")
    words = ["--allow", "scattered-sample"]
    ran = run("check", old, "--diff", new, *words, exit=1)
    assert sum(line.startswith("removed: ") for line in ran.printed) == 2


def test_no_verdict(run: Run, archive: Archive) -> None:
    """If a shard is damaged or unreadable, that is said, and the status is 1."""
    old, cut = archive(OLD, "old.tar"), archive(tar(OLD)[:6144], "cut.tar")
    for one, other in (("no.tar", old), (old, "no.tar"), (cut, old), ("v.parquet", old)):
        assert run("check", one, "--diff", other, exit=1).printed[-1].startswith("no verdict: ")
    assert run("check", cut, "--diff", cut, "--allow", "no-end-marker").stdout.endswith(b"are the same\n")


def test_an_output_that_is_an_input(run: Run, archive: Archive, here: Path) -> None:
    """The table replaces no archive."""
    name = archive(OLD, "x.csv")
    before = (here / name).read_bytes()
    for words in ([name, "--diff", "-"], ["-", "--diff", name]):
        assert "both input and output" in run("check", *words, "-o", name, stdin=b"", exit=2).stderr
    assert (here / name).read_bytes() == before
    assert os.listdir(here) == [name]


@pytest.mark.slow
def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many samples take the same memory."""
    limits = {(multimap, "HELD"): 1 << 16, (multimap, "FEW"): 1 << 14, (diff, "_HELD"): 1 << 18, (diff, "WINDOW"): 500}
    for (module, name), value in limits.items():
        monkeypatch.setattr(module, name, value)
    contents = marshal.dumps([(b"x", bytes(16))])
    peaks = []
    for count in (1500, 6000):
        reports = [ShardReport("a")], [ShardReport("b")]
        with traced() as memory:
            compared = diff.Diff(None, ("a", "b"))
            for side in (0, 1):
                for number in range(count):
                    compared.add(side, 0, [(b"%d" % (number if side else count - number), number, contents)])
            assert sum(1 for _ in compared.differences(*reports)) == count
            peaks.append(memory()[1])
    assert peaks[1] < 1.5 * peaks[0]
