"""tarkit.mix: the same bytes as those of the command, from datasets, dicts and files that describe a mix."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Content, Run, entries, tar

A: dict[str, Content] = {f"a{n}.{field}": f"A{n}{field}".encode() for n in range(9) for field in ("cls", "jpg")}


def test_mix_as_the_command_does(archive: Archive, run: Run) -> None:
    """The same draws by the same seed."""
    archive({f"a{i}.x": b"1" for i in range(30)}, "a.tar")
    archive({f"b{i}.x": b"2" for i in range(9)}, "b.tar")
    a, b = tarkit.open("a.tar"), tarkit.open("pipe:cat b.tar")
    for options, words in (
        ({}, []),
        ({"until": "all"}, ["--until", "all"]),
        ({"total": 12}, ["--total", "12"]),
        ({"total": 60, "repeat": True}, ["--total", "60", "--repeat"]),
        ({"until": "all", "repeat": True}, ["--until", "all", "--repeat"]),
    ):
        expected = run("mix", "a.tar@2", "b.tar@1", "--seed", "5", "-o", "-", *words).stdout
        data = tarkit.mix([(a, Fraction(2)), b], seed=5, **options)  # type: ignore[arg-type]
        for _ in range(2):
            file = io.BytesIO()
            data.write(file)
            assert entries(file.getvalue()) == entries(expected)
        assert [f"{each.key}.x" for each in data] == [name for name, _ in entries(expected)]


def test_a_mix_that_cannot_be(archive: Archive) -> None:
    """No dataset, a weight of 0, no end, a dataset without samples."""
    data = tarkit.open(archive(A))
    for sources, options in (([], {}), ([(data, 0)], {}), ([data], {"repeat": True})):
        with pytest.raises(tarkit.Usage):
            tarkit.mix(sources, seed=1, **options)
    with pytest.raises(tarkit.TarkitError, match="no sample to draw"):
        list(tarkit.mix([data.match("nix")], seed=1))


class Once(io.RawIOBase):
    """A stream that cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


def test_streams_begin_again() -> None:
    """What can be read once is kept for the laps of one run, and a second run is an error."""
    once = tarkit.mix([tarkit.open(io.BufferedReader(Once(tar(A))))], seed=1, total=25, repeat=True)
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
    archive(A, "a.tar")
    for shard in range(4):
        archive({f"b{shard}{n}.{field}": b"b" for n in range(4) for field in ("cls", "png")}, f"b-{shard}.tar")


TARMIX = [
    {"shards": "a.tar", "weight": 1.5, "rename": {"cls": "label"}, "rekey": "x/{index:02d}"},
    {"shards": ["b-{0..3}.tar"], "probability": 0.5, "nstreams": 2, "nrepeats": 2},
    {"shards": "b-{1..9}.tar", "shuffle": 3, "allow_missing": True, "rekey": "y/{key}"},
]
CHOSEN: dict[str, Any] = {"datasets": [{"shards": "b-{0..3}.tar", "choose": 2, "weight": 1}]}
DESCRIBED = [
    # the description, arguments of Python, options of the command
    ({"sources": TARMIX}, {"until": "all"}, "--until all"),
    ({"sources": TARMIX, "shuffle": 4}, {"total": 30}, "--total 30"),
    ({"sources": TARMIX}, {"repeat": True, "total": 99, "prefetch": 2}, "--repeat --total 99 -p 3"),
    ({"sources": TARMIX}, {"shard_slice": slice(1, 3)}, "--shard-slice 1:3"),
    (CHOSEN, {"until": "all"}, "--until all"),
]


@each_row(("described", "arguments", "options"), DESCRIBED)
def test_descriptions(
    described: dict[str, Any], arguments: dict[str, Any], options: str, archive: Archive, run: Run
) -> None:
    """In a file, and as dicts."""
    write_shards(archive)
    Path("mix.json").write_text(json.dumps(described))
    expected = run("mix", "mix.json", "--seed", "7", *options.split()).stdout
    assert written(tarkit.mix("mix.json", 7, **arguments)) == expected
    assert written(tarkit.mix(Path("mix.json"), 7, **arguments)) == expected
    if "shuffle" not in described:
        sources = described.get("sources", described.get("datasets"))
        assert written(tarkit.mix(sources, 7, **arguments)) == expected


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


def test_a_key_that_comes_back(archive: Archive, run: Run) -> None:
    """A new key may be that of another sample."""
    archive({"k~2.x": b"1", "l.x": b"2", "k.x": b"3"}, "a.tar")
    run("mix", "a.tar", "--repeat", "--total", "6", "--seed", "1", exit=1)
    with pytest.raises(tarkit.Problem, match="repeated-key"):
        written(tarkit.mix([tarkit.open("a.tar")], 1, repeat=True, total=6))


def test_problems_of_sources(archive: Archive) -> None:
    """Sources that are names are read with the options of `tarkit.open`."""
    archive(tar(A)[:3000], "cut.tar")
    said: list[str] = []
    mixed = tarkit.mix([{"shards": "cut.tar"}], 1, skip="truncated", on_problem=said.append)
    assert [sample.key for sample in mixed] == ["a0"]
    assert len(said) == 1


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "suffix": (lambda: tarkit.mix("a.tar", 1), tarkit.Usage, r"a.tar: a mix is described in a file .yaml"),
    "no file": (lambda: tarkit.mix("nix.yaml", 1), tarkit.TarkitError, r"nix.yaml: No such file"),
    "mapping": (lambda: tarkit.mix({"shards": "a.tar"}, 1), TypeError, "a mix is of datasets"),  # type: ignore[arg-type]
    "number": (lambda: tarkit.mix(3, 1), TypeError, "a mix is of datasets"),  # type: ignore[arg-type]
    "no shards": (lambda: tarkit.mix([{"weight": 1}], 1), tarkit.Usage, r"sources\[0\]: `shards` is a name"),
    "key": (lambda: tarkit.mix([{"shards": "a.tar", "weigth": 1}], 1), tarkit.Usage, "did you mean 'weight'"),
    "weight": (lambda: tarkit.mix([{"shards": "a.tar", "weight": "x"}], 1), tarkit.Usage, "`weight` is a number"),
    "choose": (lambda: tarkit.mix([{"shards": "a.tar", "choose": 2}], 1), tarkit.Usage, "choose 2 of 1 shards"),
    "argument": (
        lambda: tarkit.mix([tarkit.open("a.tar")], 1, skip="truncated"),
        tarkit.Usage,
        "skip: it is for sources that are names",
    ),
    "nstreams": (
        lambda: tarkit.mix([{"shards": tarkit.open("a.tar"), "nstreams": 2}], 1),
        tarkit.Usage,
        "`nstreams` is for shards that are names",
    ),
    "shuffle of a mix": (
        lambda: tarkit.mix([{"shards": tarkit.mix([tarkit.open("a.tar")], 1), "shuffle": 2}], 1),
        tarkit.Usage,
        "a mix has no shards",
    ),
    "each": (
        lambda: tarkit.mix([tarkit.open("a.tar")], 1, each=print),  # type: ignore[arg-type]
        TypeError,
        "each returns a dataset, not NoneType",
    ),
    "twice": (lambda: tarkit.mix([{"shards": "-"}, {"shards": "-"}], 1), tarkit.Usage, "stdin is named more than once"),
    "never": (lambda: tarkit.mix([tarkit.open("a.tar")], 1, until="never"), tarkit.Usage, "until='never'"),  # type: ignore[arg-type]
}


@each_row("case", WRONG)
def test_wrong_arguments(case: str, archive: Archive) -> None:
    """At the call."""
    archive(A, "a.tar")
    call, kind, text = WRONG[case]
    with pytest.raises(kind, match=text):
        call()
