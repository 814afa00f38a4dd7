"""Dataset.split into parts: the shards of `tarkit split --parts`, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
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
        ({"parts": {"a": Fraction(1, 3), "b": None}, "salt": "x"}, "--parts a=1/3,b --salt x"),
        ({"parts": 3, "stratify": "cls"}, "--folds 3 --stratify cls"),
        ({"parts": 2, "group": "^([0-9])/"}, "--folds 2 --group ^([0-9])/"),
        ({"parts": 2, "group_field": "cls"}, "--folds 2 --group-field cls"),
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
        ({"parts": 2, "stratify": "cls", "salt": "x"}, "stratify uses no hash: it cannot be used with salt"),
        ({"parts": 2, "group": "x", "group_field": "cls"}, "group and group_field: choose one"),
        ({"parts": 2, "max_shards": 3}, "max_shards cannot be used with parts: it needs one series of shards"),
        ({"parts": 1}, "parts=1"),
        ({"parts": {"a": 0.5}}, "the shares sum to 0.5"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str, archive: Archive) -> None:
    """It is refused before anything is written."""
    data = tarkit.open(archive(SAMPLES))
    with pytest.raises(tarkit.Usage) as error:
        data.split("{part}-%d.tar" if "parts" in options else "s-%d.tar", **options)
    assert message in str(error.value)
    assert [path.name for path in Path().glob("*.tar")] == ["in.tar"]


def test_a_directory_that_is_not_there(archive: Archive) -> None:
    """It is an error before the first part is written."""
    Path("train").mkdir()
    data = tarkit.open(archive(SAMPLES))
    with pytest.raises(tarkit.TarkitError, match="val: no such directory"):
        data.split("{part}/%d.tar", parts="train,val=0.1")
    assert list(Path("train").iterdir()) == []
