"""Dataset.split into parts, categories and equal shards: the shards of `tarkit split`, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tarkit

Archive = Callable[..., str]
SAMPLES = {f"{number % 7}/{number:03d}.cls": b"%d" % (number % 3) for number in range(90)}


def test_a_part_without_samples(archive: Archive) -> None:
    """A warning names the part."""
    messages: list[str] = []
    data = tarkit.open(archive({"a.x": b""}), on_problem=messages.append)
    (shard,) = data.split("{part}-%d.tar", parts={"a": 0.5, "b": 0.5})
    (message,) = messages
    assert message == f"no sample for {'b' if shard.name == 'a-0.tar' else 'a'}, so no shard"


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
