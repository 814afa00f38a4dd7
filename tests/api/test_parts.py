"""Dataset.split into parts, categories and equal shards: the shards of `tarkit split`, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import chdir
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Run

Archive = Callable[..., str]
SAMPLES = {f"{number % 7}/{number:03d}.cls": b"%d" % (number % 3) for number in range(90)}


@each_row(
    "options,words",
    [
        ({"parts": "train,val=0.1"}, "--parts train,val=0.1"),
        ({"parts": {"train": 0.75, "val": 0.25}}, "--parts train=0.75,val=0.25"),
        ({"parts": {"a": Fraction(1, 3), "b": None}, "seed": 3}, "--parts a=1/3,b --seed 3"),
        ({"parts": 3, "stratify": "cls"}, "--parts 3 --stratify cls"),
        ({"parts": 2, "group": "^([0-9])/"}, "--parts 2 --group ^([0-9])/"),
        ({"parts": 2, "group_field": "cls"}, "--parts 2 --group-field cls"),
    ],
)
def test_the_shards_of_the_command(options: dict[str, Any], words: str, run: Run, archive: Archive) -> None:
    """Names, bytes and order of the shards are those of the command."""
    name = archive(SAMPLES)
    run("split", name, "-c", "20", "-o", "cli-{part}-%d.tar", *words.split())
    shards = tarkit.open(name).split("api-{part}-%d.tar", count=20, **options)
    assert sum(shard.samples for shard in shards) == len(SAMPLES)
    ours, theirs = sorted(Path().glob("api-*")), sorted(Path().glob("cli-*"))
    assert sorted(shard.name for shard in shards) == [path.name for path in ours]
    assert [path.name[4:] for path in ours] == [path.name[4:] for path in theirs]
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]
    for path in (*ours, *theirs):
        path.unlink()


@each_row(
    "options,words",
    [
        ({"shards": 7}, "-n 7"),
        ({"shards": 7, "remainder": "drop"}, "-n 7 --remainder drop"),
        ({"shards": 7, "remainder": "repeat"}, "-n 7 --remainder repeat"),
        ({"shards": 4, "even": "size"}, "-n 4 --even size"),
        ({"template": "x-{1..5}.tar", "even": "size"}, "-o x-{1..5}.tar --even size"),
        ({"template": "x-@3.tar", "count": 40}, "-o x-@3.tar -c 40"),
        ({"map": "map.txt", "count": 9}, "--map map.txt -c 9"),
        ({"map": "map.txt", "template": "out", "unmatched": "rest"}, "--map map.txt -o out --unmatched rest"),
        (
            {"map": {"a-%d.tar": ["^1/"], "b": ["glob:[2-3]/*"]}},
            '--map {"a-%d.tar":["^1/"],"b":["glob:[2-3]/*"]}',
        ),
        ({"map": Path("lines"), "map_sep": ";"}, "--map lines --map-sep ;"),
        ({"count": 50, "compress": "gz"}, "-c 50 --compress gz"),
    ],
)
def test_other_shards_of_the_command(options: dict[str, Any], words: str, run: Run, archive: Archive) -> None:
    """With the manifest: equal shards, and categories."""
    name = os.path.abspath(archive(SAMPLES))
    for folder in ("cli", "api"):
        Path(folder, "out").mkdir(parents=True)
        Path(folder, "map.txt").write_text("^1/ one\n^[23]/ sub-%03d\n")
        Path(folder, "lines").write_text("^1/;one\n^[23]/;sub-%03d\n")
    with chdir("cli"):
        run("split", name, "--manifest", "m.tsv", *words.split())
    with chdir("api"):
        shards = tarkit.open(name).split(**{"manifest": Path("m.tsv"), **options})
    ours = {str(path.relative_to("api")): path.read_bytes() for path in Path("api").rglob("*.*")}
    assert ours == {str(path.relative_to("cli")): path.read_bytes() for path in Path("cli").rglob("*.*")}
    assert len(shards) > 1
    assert {shard.name for shard in shards} == {name for name in ours if ".tar" in name}


def test_names_without_the_part(archive: Archive) -> None:
    """The name of the part is a prefix."""
    shards = tarkit.open(archive(SAMPLES)).split("x-%d.tar", parts=2)
    assert [shard.name for shard in shards] == ["fold-0-x-0.tar", "fold-1-x-0.tar"]


def test_a_part_without_samples(archive: Archive) -> None:
    """A warning names the part."""
    messages: list[str] = []
    data = tarkit.open(archive({"a.x": b""}), on_problem=messages.append)
    (shard,) = data.split("{part}-%d.tar", parts={"a": 0.5, "b": 0.5})
    (message,) = messages
    assert message == f"no sample for {'b' if shard.name == 'a-0.tar' else 'a'}, so no shard"


@each_row(
    "options,message",
    [
        ({"group": "x"}, "group requires parts"),
        ({"stratify": "cls"}, "stratify requires parts"),
        ({"parts": 2, "stratify": "cls", "seed": 1}, "stratify uses no hash: it cannot be used with seed"),
        ({"parts": 2, "group": "x", "group_field": "cls"}, "group and group_field: choose one"),
        ({"parts": 2, "max_shards": 3}, "max_shards cannot be used with parts: it needs one series of shards"),
        ({"parts": 1}, "parts 1: a number of parts is from 2 to 9999"),
        ({"parts": {"a": 0.5}}, "parts 'a=0.5': the shares sum to 0.5"),
        ({"parts": 2, "map": "m"}, "map and parts cannot be used together"),
        ({"parts": 2, "shards": 3}, "shards cannot be used with parts: it needs one series of shards"),
        ({"shards": 3, "count": 3}, "shards cannot be used with count or size"),
        ({"even": "size", "size": 3}, "even cannot be used with count or size"),
        ({"even": "size"}, "even='size' requires a number of shards"),
        ({"even": "tar"}, "even='tar': it is one of count, size"),
        ({"remainder": "drop"}, "remainder requires shards"),
        ({"remainder": "nix", "shards": 3}, "remainder='nix'"),
        ({"shards": 0}, "shards=0: it is at least 1"),
        ({"append": True, "start": 3}, "append continues after the last shard: it cannot be used with start"),
        ({"append": True, "force": True}, "append keeps what is there, force replaces it: choose one"),
        ({"unmatched": "rest"}, "map_sep and unmatched require map"),
        ({"map": {"x-%d": ["."]}}, "with map, template is a directory: the map has the names of shards"),
        ({"manifest": "s-7.tar"}, "s-7.tar is the manifest, and has a name that the shards may get"),
        ({"manifest": "in.tar"}, "in.tar is both input and output"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str, archive: Archive) -> None:
    """It is refused before anything is written."""
    data = tarkit.open(archive(SAMPLES))
    with pytest.raises(tarkit.Usage) as error:
        data.split("{part}-%d.tar" if "parts" in options else "s-%d.tar", **options)
    assert message in str(error.value)
    assert [path.name for path in Path().glob("*.tar")] == ["in.tar"]


def test_samples_in_no_category(archive: Archive) -> None:
    """A warning counts them."""
    messages: list[str] = []
    data = tarkit.open(archive(SAMPLES), on_problem=messages.append)
    (shard,) = data.split(map={"x-%d": ["^0/000"]})
    assert (shard.name, shard.samples) == ("x-0.tar", 1)
    assert messages == ["89 samples are in no category of map and left out, '1/001' first"]


def test_a_directory_that_is_not_there(archive: Archive) -> None:
    """It is an error before the first part is written."""
    Path("train").mkdir()
    data = tarkit.open(archive(SAMPLES))
    with pytest.raises(tarkit.TarkitError, match="val: no such directory"):
        data.split("{part}/%d.tar", parts="train,val=0.1")
    assert list(Path("train").iterdir()) == []
