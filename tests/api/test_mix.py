"""tarkit.mix: the same bytes as those of the command, from datasets, dicts and files that describe a mix."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import tarkit
from tests.api._inputs import ARCHIVES, MIXED, TARMIX, Stream
from tests.conftest import Archive, Run, tar


def test_streams_begin_again() -> None:
    """What can be read once is kept for the laps of one run, and a second run is an error."""
    once = tarkit.mix([tarkit.open(Stream(tar(MIXED)))], seed=1, total=25, repeat=True)
    assert [sample.key for sample in once] == [f"a{n % 9}{f'~{n // 9 + 1}' if n > 8 else ''}" for n in range(25)]
    with pytest.raises(tarkit.Unsupported, match="can be read once"):
        list(once)


def written(data: tarkit.Dataset) -> bytes:
    """The archive that a dataset gives."""
    file = io.BytesIO()
    data.write(file)
    return file.getvalue()


def write_shards(archive: Archive) -> None:
    """a.tar with nine samples, and b-0.tar to b-3.tar with four each."""
    for name in ("a.tar", *(f"b-{shard}.tar" for shard in range(4))):
        archive(ARCHIVES[name], name)


def test_datasets_with_what_a_description_says(archive: Archive, run: Run) -> None:
    """A dataset may stand for the names of shards, and keeps its steps."""
    write_shards(archive)
    Path("mix.json").write_text(json.dumps({"sources": TARMIX[:2]}))
    expected = run("mix", "mix.json", "--seed", "7", "--where", "cls != 'A3cls'", "--until", "all").stdout
    a = {**TARMIX[0], "shards": tarkit.open("a.tar").where("cls != 'A3cls'")}
    b = {**TARMIX[1], "shards": tarkit.open("b-*.tar", interleave=2).where("cls != 'A3cls'")}
    b.pop("nstreams")
    assert written(tarkit.mix([a, b], 7, until="all")) == expected


def test_each(archive: Archive, run: Run) -> None:
    """Samples are chosen before the draw; fields and keys of the mix change after it."""
    write_shards(archive)
    options = ["--seed", "7", "--where", "cls != 'A3cls'", "-f", "cls", "--rekey", "{stem}/{key}", "--until", "all"]
    expected = run("mix", "a.tar@2", "b-*.tar", *options).stdout
    sources = [{"shards": "a.tar", "weight": 2}, {"shards": "b-*.tar"}]
    mixed = tarkit.mix(sources, 7, until="all", each=lambda data: data.where("cls != 'A3cls'"))
    assert written(mixed.select("cls").rekey("{stem}/{key}")) == expected


def test_problems_of_sources(archive: Archive) -> None:
    """Sources that are names are read with the options of `tarkit.open`."""
    archive(tar(MIXED)[:3000], "cut.tar")
    said: list[str] = []
    archive(tar(MIXED), "b.tar")
    whole = tarkit.open("b.tar", skip="truncated")
    for others in ({}, {"skip": "truncated", "maxerr": 2}, {"allow": "truncated"}, {"on_missing": "warn"}):
        with pytest.raises(tarkit.Usage, match=r"cut\.tar.*: its allow, skip, maxerr or on_missing is not that of"):
            tarkit.mix([whole, tarkit.open("cut.tar", **others)])
    mixed = tarkit.mix([{"shards": "cut.tar"}], 1, skip="truncated", on_problem=said.append)
    assert [sample.key for sample in mixed] == ["a0"]
    assert len(said) == 1


def test_names_that_no_expression_says(archive: Archive) -> None:
    """Samples with a renamed field beside two of one name, or one with a blank, are counted in another order."""
    members = [(f"{n}.{field}", f"{n}{field}".encode()) for n in range(4) for field in ("x", "y", "y", "an s")]
    archive(tar(members), "a.tar")
    source = {"shards": "a.tar", "rename": {"x": "z"}}
    mixed = tarkit.mix([source], 1, allow=["duplicate-entry"], on_problem=lambda text: None).shuffle(seed=2)
    assert mixed.stats().samples == 4
    names = [(entry.key, entry.field) for entry in mixed.entries()]
    assert [field for key, field in names if key == "3"] == ["z", "y", "y", "an s"]
    assert [key for key, field in names if field == "z"] == [sample.key for sample in mixed]
    with pytest.raises(tarkit.TarkitError, match="a name that -f cannot say"):
        mixed.write("of.view.parquet")
