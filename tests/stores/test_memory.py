"""Memory while samples of objects are read in an order that is known: a few groups of them, however many there are."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.stores import reading
from tarkit.streams import prefetch
from tests._tools import each_row, traced
from tests.conftest import tar
from tests.stores._s3 import Bucket

GROUP = 1 << 18
SIZE = 60_000
COUNT = 150  # samples of a shard
MOST = 8 << 20
"""Bytes of three groups, with the gaps in them, of windows, and of replies of the server, which is in this process."""


@pytest.fixture
def urls(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two shards, of 9 MB each, and a small one, whose reading loads the modules; groups are small."""
    monkeypatch.setattr(prefetch, "GROUP", GROUP)
    monkeypatch.setattr(reading, "LARGEST", GROUP)  # of streams, which read the headers
    monkeypatch.setattr(reading, "FIRST", GROUP)
    bucket.server.log = deque(maxlen=0)  # type: ignore[assignment]
    draw = random.Random(5)
    for shard, count in (("a", COUNT), ("b", COUNT), ("few", 8)):
        members = [(f"{shard}/{number:03}.bin", draw.randbytes(SIZE)) for number in range(count)]
        bucket.put(f"{shard}.tar", tar(members))
    return f"{bucket.url}{{a,b}}.tar"


def by_keys(urls: str) -> Iterator[int]:
    data = tarkit.open(urls).indexed()
    keys = data.keys()
    random.Random(1).shuffle(keys)
    return (len(sample["bin"]) for start in range(0, len(keys), 8) for sample in data[keys[start : start + 8]])


def by_number(urls: str) -> Iterator[int]:
    data = tarkit.open(urls).indexed()
    numbers = random.Random(1).sample(range(len(data)), len(data))
    return (len(sample["bin"]) for sample in data.samples(numbers))


def view(urls: str) -> Iterator[int]:
    pytest.importorskip("pyarrow")
    tarkit.open(urls).shuffle(seed=7).write("v.view.parquet")
    tarkit.open("v.view.parquet").write("x.tar")
    return (len(sample["bin"]) for sample in tarkit.open("x.tar"))


def listed(urls: str) -> Iterator[int]:
    pytest.importorskip("pyarrow")
    tarkit.open(urls).write("v.view.parquet")
    for part in range(8):
        keys = [f"{shard}/{number:03}" for shard in ("a", "b", "few") for number in range(part, COUNT, 8)]
        yield from (len(sample["bin"]) for sample in tarkit.open("v.view.parquet").keys(keys))


def shuffled(urls: str) -> Iterator[int]:
    return (len(sample["bin"]) for sample in tarkit.open(urls).shuffle(seed=7))


def loaded(urls: str) -> Iterator[int]:
    return (len(sample["bin"]) for sample in tarkit.loader(urls, shuffle="full", seed=7))


READS: list[Callable[[str], Iterator[int]]] = [by_keys, by_number, view, listed, shuffled, loaded]


@each_row("read", READS)
def test_memory(
    read: Callable[[str], Iterator[int]], urls: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    """18 MB are read, in another order than they lie, and few of them are in memory at a time."""
    monkeypatch.setattr("tarkit.samples.dataset.LARGE", 1)  # samples are read by their ranges
    assert sum(read(f"{bucket.url}few.tar")) == 8 * SIZE
    with traced() as memory:
        assert sum(read(urls)) == 2 * COUNT * SIZE
        assert memory()[1] < MOST
