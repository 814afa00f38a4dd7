"""WorkerPlace of shards among nodes and workers, and the orders of webdataset."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

import tarkit
from tarkit.loading.division import WorkerPlace, find_place
from tarkit.loading.order import buffer_random, drawn, shuffled
from tarkit.pipeline.stages import ShuffleBuffer
from tests._tools import each_row

LETTERS = "abcdef"


def letters(numbers: list[int]) -> str:
    """Return shards a to f by their numbers."""
    return "".join(LETTERS[number] for number in numbers)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that say where a process is."""
    for name in ("RANK", "WORLD_SIZE", "WORKER", "NUM_WORKERS"):
        monkeypatch.delenv(name, raising=False)


def test_the_part_of_a_worker_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 1 of 3, worker 1 of 2 of 20 items: 4, 10, 16, as in webdataset."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "WORKER": "1", "NUM_WORKERS": "2"}.items():
        monkeypatch.setenv(name, value)
    assert list(find_place().divide(range(20))) == [4, 10, 16]
    assert find_place(rank=0, world=1) == WorkerPlace(0, 1, 1, 2)  # arguments come first


def test_one_variable_of_two_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in webdataset, both are needed."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("NUM_WORKERS", "4")
    assert find_place() == WorkerPlace(0, 1, 0, 1)


@each_row("count", [1, 2, 7, 20, 100])
@each_row(("world", "workers"), [(1, 1), (1, 4), (3, 2), (5, 5)])
def test_nothing_is_lost_or_repeated(count: int, world: int, workers: int) -> None:
    """All parts together are all items, in each epoch."""
    for epoch in range(3):
        order = shuffled(count, 7, epoch)
        parts = [number for each in WorkerPlace(0, world, 0, workers).all() for number in each.divide(order)]
        assert sorted(parts) == list(range(count))


@each_row(
    ("arguments", "message"),
    [
        ({"rank": 1}, "rank and world belong together"),
        ({"workers": 1}, "worker and workers belong together"),
        ({"rank": 2, "world": 2}, "rank is from 0 to world - 1"),
        ({"worker": -1, "workers": 2}, "worker is from 0 to workers - 1"),
    ],
)
def test_numbers_that_do_not_go_together(arguments: dict[str, int], message: str) -> None:
    """They are usage errors."""
    with pytest.raises(tarkit.Usage, match=message):
        find_place(**arguments)


def test_a_variable_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variables."""
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(tarkit.Usage, match=r"\$RANK=one, \$WORLD_SIZE=2: whole numbers are needed"):
        find_place()


def test_the_order_of_shards() -> None:
    """It is webdataset's: SimpleShardList(seed=1) gives c d f a e b."""
    assert letters(shuffled(6, 1, 0)) == "cdfaeb"
    assert shuffled(100, 3, 4) == shuffled(100, 7, 0)  # detshuffle: seed + epoch


def test_shards_that_are_drawn() -> None:
    """They are those of webdataset's ResampledShards(deterministic=True), seed 0."""
    assert letters(list(islice(drawn(6, 0, 0, WorkerPlace()), 8))) == "ddaceddc"
    assert letters(list(islice(drawn(6, 0, 1, WorkerPlace()), 8))) == "adadbfab"
    others = [letters(list(islice(drawn(6, 0, 0, each), 20))) for each in WorkerPlace(0, 2, 0, 2).all()]
    assert len(set(others)) == 4


def test_each_worker_and_epoch_has_other_random_numbers() -> None:
    """The first worker has those of webdataset's detshuffle."""
    assert buffer_random(3, 4, WorkerPlace()).random() == Random(7).random()
    firsts = [buffer_random(3, epoch, each).random() for epoch in range(5) for each in WorkerPlace(0, 3, 0, 4).all()]
    assert len(set(firsts)) == 60


@each_row("seed", [0, 7])
def test_the_real_webdataset(seed: int) -> None:
    """Its classes give the same orders."""
    shardlists = pytest.importorskip("webdataset.shardlists")
    filters = pytest.importorskip("webdataset.filters")
    urls = [f"{number}.tar" for number in range(30)]

    found = shardlists.ResampledShards(urls, nshards=50, seed=seed, deterministic=True)
    for epoch in range(2):
        want = [each["url"] for each in found]
        assert [urls[number] for number in islice(drawn(30, seed, epoch, WorkerPlace()), 50)] == want
    simple = [each["url"] for each in shardlists.SimpleShardList(urls, seed=seed)]
    assert [urls[number] for number in shuffled(30, seed, 0)] == simple
    shuffle = filters.detshuffle(bufsize=20, initial=5, seed=seed)
    for epoch in range(3):
        buffer = ShuffleBuffer[int](20, 5, buffer_random(seed, epoch, WorkerPlace()))
        assert list(buffer.shuffle(iter(range(100)))) == list(shuffle.run(iter(range(100))))
