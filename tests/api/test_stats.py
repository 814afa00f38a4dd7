"""tarkit.stats and Dataset.stats: the numbers of `tarkit stats --json`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Feed, Run, each_feed, tar


def members(start: int, stop: int) -> dict[str, Any]:
    """Samples with three fields, of which some lack one; and a directory, which has no key."""
    made: dict[str, Any] = {f"d{start}/": None}
    for i in range(start, stop):
        made[f"{i:04}.JPG"] = b"j" * (i * 7 % 100)
        made[f"{i:04}.json"] = json.dumps({"label": i % 4}).encode()
        if i % 3:
            made[f"{i:04}.cls"] = str(i % 5).encode()
    return made


def expected(run: Run, *words: str) -> dict[str, Any]:
    """What the command prints, in the form of `plain`."""
    found = json.loads(run("stats", "--json", *words).stdout)
    by = found.get("by", {"classes": [], "missing": 0})
    names = {"count": "count", "bytes": "bytes", "min": "least", "median": "median", "max": "most"}
    return {
        "samples": found["samples"],
        "bytes": found["bytes"],
        "fields": {
            name: {key: sizes[json_name] for key, json_name in names.items()} for name, sizes in found["fields"].items()
        },
        "shards": {shard["name"]: shard["samples"] for shard in found["shards"]},
        "classes": {each["value"]: each["samples"] for each in by["classes"]},
        "missing": by["missing"],
    }


def plain(stats: tarkit.Stats) -> dict[str, Any]:
    """Stats as dicts."""
    names = ("samples", "bytes", "shards", "classes", "missing")
    fields = {name: {**vars(sizes)} for name, sizes in stats.fields.items()}
    return {**{name: getattr(stats, name) for name in names}, "fields": fields}


@pytest.mark.forks
@each_row("by", [None, "cls", "json.label"])
def test_the_numbers_of_the_command(by: str | None, archive: Archive, run: Run) -> None:
    """For any number of processes; fields and classes in the same order."""
    names = [archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(4)]
    wanted = expected(run, *names, *(() if by is None else ("--by", by)))
    for processes in (0, 1, 3, 9):
        found = plain(tarkit.stats("s{0..3}.tar", by=by, processes=processes))
        assert found == wanted
        assert [list(found[each]) for each in ("fields", "shards", "classes")] == [
            list(wanted[each]) for each in ("fields", "shards", "classes")
        ]
    assert tarkit.open("s?.tar").stats(by).describe() == tarkit.stats(names, by=by).describe()
    assert wanted["samples"] == 68


@each_row(
    ("words", "arguments"),
    [
        ((), {}),
        (("--by", "cls"), {"by": "cls"}),
        (("--by", "cls", "--classes", "names"), {"by": "cls", "classes": ["cat", "a dog", "emu"]}),
        (("--by", "cls", "--classes", "names"), {"by": "cls", "classes": Path("names")}),
        (("--world", "3"), {"world": 3}),
        (("--workers", "2", "--by", "json.label"), {"workers": 2, "by": "json.label"}),
    ],
)
def test_the_outputs_of_the_command(words: list[str], arguments: dict[str, Any], archive: Archive, run: Run) -> None:
    """Text, JSON and the page, byte for byte; also of samples that are selected."""
    names = [archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(3)]
    Path("names").write_text("cat\n\na dog\nemu\n")
    data = tarkit.open(names)
    for chosen, options in ((data, []), (data.where("has(cls)"), ["--where", "has(cls)"])):
        found = chosen.stats(**arguments)
        assert f"{found}\n".encode() == run("stats", *words, *options, *names).stdout
        assert found.describe() == json.loads(run("stats", "--json", *words, *options, *names).stdout)
        found.write_html("page.html")
        assert Path("page.html").read_bytes() == run("stats", "--html", "-", *words, *options, *names).stdout
        page = io.BytesIO()
        found.write_html(page)
        assert page.getvalue() == Path("page.html").read_bytes()
    shares = data.stats(world=2, workers=3).shares
    assert [(each.node, each.worker, each.shards) for each in shares[:3]] == [(0, None, 2), (0, 0, 1), (0, 1, 1)]
    assert repr(data.stats()) == "<tarkit.Stats of 3 shards: 51 samples, 153600 bytes>"


@each_feed
def test_every_way_in(feed: Feed, archive: Archive, run: Run) -> None:
    """Files, pipes and compressed archives; and file objects."""
    name = archive(members(0, 30))
    wanted = tarkit.stats(name, by="cls")
    found = tarkit.stats(f"pipe:cat {name}" if feed.kind == "pipe" else feed(name), by="cls")
    assert {**plain(found), "shards": [30]} == {**plain(wanted), "shards": [*found.shards.values()]}
    assert tarkit.stats(io.BytesIO(tar(members(0, 30))), by="cls").fields == wanted.fields


def test_steps(archive: Archive) -> None:
    """What comes out of them is counted, each sample for the archive that it is from."""
    data = tarkit.open([archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(2)])
    chosen = data.where("has(cls) and cls == 3").select("image:jpg cls")
    found = chosen.stats(by="cls", processes=2)
    chosen.write("chosen.tar")
    written = tarkit.stats("chosen.tar", by="cls")
    assert (found.samples, found.fields, found.classes) == (written.samples, written.fields, written.classes)
    assert found.classes == {"3": found.samples}
    assert found.shards == {"s0.tar": 2, "s1.tar": 2}
    assert data.shuffle(seed=1).stats().samples == data.stats().samples == 34
    assert data.slice(0, 3).stats().shards == {"s0.tar": 3}
    assert data.drop("cls").stats(by="cls").missing == 34
    with tarkit.open("s0.tar", shard_slice=slice(5)) as first:
        assert first.stats().samples == 5


def test_archives_of_one_name(archive: Archive) -> None:
    """Their samples are added up: none is missing from `shards`."""
    name = archive(members(0, 10))
    found = tarkit.stats([name, name, io.BytesIO(tar(members(0, 3))), io.BytesIO(tar(members(0, 4)))])
    assert found.samples == sum(found.shards.values()) == 27
    assert found.shards[name] == 20


def test_more_values_than_are_told_apart(archive: Archive) -> None:
    """The rest is counted as others, so that the numbers add up."""
    found = tarkit.stats(archive({f"{i}.id": str(i).encode() for i in range(5000)}), by="id")
    assert (len(found.classes), found.others, found.missing) == (4096, 904, 0)


@pytest.mark.forks
def test_problems(archive: Archive) -> None:
    """They are errors; those that are passed over are told, whatever the process."""
    whole = tar(members(0, 10))
    archive(whole, "a.tar")
    Path("b.tar").write_bytes(whole[:5000])
    for processes in (1, 2):
        with pytest.raises(tarkit.Problem, match=r"b\.tar.*truncated"):
            tarkit.stats(["a.tar", "b.tar"], processes=processes)
        messages: list[str] = []
        found = tarkit.stats(["a.tar", "b.tar"], skip="truncated", on_problem=messages.append, processes=processes)
        assert found.shards["a.tar"] == 10
        assert 0 < found.shards["b.tar"] < 10
        assert len(messages) == 1
        assert "truncated" in messages[0]
        with pytest.warns(tarkit.TarkitWarning, match="truncated"):
            tarkit.stats("b.tar", allow="truncated", processes=processes)


@each_row(
    "arguments,message",
    [
        ({"inputs": []}, "the list of inputs is empty"),
        ({"inputs": "*.nix"}, "nix"),
        ({"processes": -1}, "processes=-1: it is at least 0"),
        ({"world": 0}, "world=0: it is at least 1"),
        ({"workers": 0}, "workers=0: it is at least 1"),
        ({"classes": "names"}, "classes are the names of the values of a field"),
        ({"skip": "nix"}, "nix"),
    ],
)
def test_errors(arguments: dict[str, Any], message: str, archive: Archive) -> None:
    """No statistics of nothing."""
    with pytest.raises(tarkit.TarkitError, match=message.replace("*", r"\*")):
        tarkit.stats(**{"inputs": archive(members(0, 3)), **arguments})
