"""Positions of all workers, continued on other numbers of nodes and workers: each sample as often as it should be."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit

SETTINGS = int(os.environ.get("TARKIT_TESTS_ELASTIC", "40"))
Place = tuple[int, int, int, int]


def write(random: Random) -> list[str]:
    """Write shards of random sizes; return their keys."""
    for old in Path().glob("s-*.tar"):
        old.unlink()
    keys: list[str] = []
    for shard in range(random.randint(1, 9)):
        with tarkit.TarWriter(f"s-{shard}.tar") as out:
            for _ in range(random.choice([1, 2, 5, 30])):
                keys.append(f"{len(keys):04d}")
                out.write(keys[-1], {"cls": len(keys) - 1})
    return keys


def draw(random: Random) -> dict[str, Any]:
    """Return random options."""
    options: dict[str, Any] = {
        "seed": random.randrange(99),
        "epochs": random.choice([1, 1, 2, 3]),
        "shuffle": random.choice([0, 4, 30, "full", "full", "full"]),
        "batch": random.choice([None, 1, 3, 4]),
        "shuffle_shards": random.random() < 0.8,
        "allow_idle": True,
        "where": random.choice([None, None, "cls % 3 != 1"]),
    }
    if options["shuffle"] == "full":
        return {**options, "equal": random.choice([None, "drop"]) if options["where"] is None else None}
    return {**options, "interleave": random.choice([1, 1, 3])}


def places(random: Random) -> list[Place]:
    """Return the places of all workers of random nodes."""
    world, workers = random.choice([(1, 1), (1, 3), (2, 2), (4, 2), (3, 1), (2, 8)])
    return [(rank, world, worker, workers) for rank in range(world) for worker in range(workers)]


def loaders(options: dict[str, Any], chosen: list[Place], states: list[Any] | None, inputs: Any) -> list[tarkit.Loader]:
    """Return the loaders of all workers, at the positions that others have stored."""
    made = []
    for rank, world, worker, workers in chosen:
        loader = tarkit.loader(inputs, rank=rank, world=world, worker=worker, workers=workers, **options)
        if states is not None:
            loader.load_state_dict(states)
        made.append(loader)
    return made


def keys(items: Any) -> list[str]:
    found: list[str] = []
    for item in items:
        found += item["__key__"] if isinstance(item["__key__"], list) else [item["__key__"]]
    return found


def test_random_settings(here: Path) -> None:
    """Stopped at random places, each worker at another and in other epochs, up to three times; then read to the end."""
    for seed in range(SETTINGS):
        random = Random(seed)
        every = write(random)
        options, inputs = draw(random), "s-*.tar"
        joined = random.random() < 0.2
        if random.random() < 0.4:
            pytest.importorskip("pyarrow")
            tarkit.open("s-*.tar").write("all.view.parquet")
            inputs = "all.view.parquet"
        data: Any = inputs
        if joined and not options.get("equal"):
            Path("t.csv").write_text("__key__,twice\n" + "".join(f"{key},{2 * int(key)}\n" for key in every))
            data = tarkit.open(inputs).join("t.csv").set("score:twice")
        expected = [key for key in every if options["where"] is None or int(key) % 3 != 1]
        found: list[str] = []
        states: list[Any] | None = None
        for _ in range(random.randint(1, 3)):
            made = loaders(options, places(random), states, data)
            whole = len(every) * options["epochs"] // len(made)
            stopped = []
            for loader in made:
                samples = iter(loader)
                found += keys(islice(samples, random.choice([0, 1, random.randrange(whole + 2), whole // 2])))
                stopped.append(json.loads(json.dumps(loader.state_dict())))
                assert len(json.dumps(stopped[-1])) < 6000
            states = stopped
        ends = [keys(loader) for loader in loaders(options, places(random), states, data)]
        counts = Counter(key for own in (found, *ends) for key in own)
        if options.get("equal") != "drop":
            assert counts == dict.fromkeys(expected, options["epochs"]), (seed, options)
        else:
            assert max(counts.values(), default=0) <= options["epochs"], (seed, options)


@pytest.mark.parametrize("equal", [None, "drop"])
def test_the_same_batches(equal: Any, here: Path) -> None:
    """Batches of all nodes together are the same for any number of nodes and workers, before and behind a resume."""
    write(Random(1))
    with tarkit.TarWriter("s-9.tar") as out:
        for number in range(500):
            out.write(f"x{number}", {"cls": number})

    def steps(world: int, workers: int, states: list[Any] | None, count: int) -> tuple[list[set[str]], list[Any]]:
        chosen = [(rank, world, worker, workers) for rank in range(world) for worker in range(workers)]
        options: dict[str, Any] = {"shuffle": "full", "batch": 24 // world, "partial": False, "equal": equal}
        made = loaders(options, chosen, states, "s-*.tar")
        turns = [iter(loader) for loader in made]
        batches = []
        for step in range(count):  # a DataLoader takes the batches of its workers in turn
            of_all = [next(turns[rank * workers + step % workers])["__key__"] for rank in range(world)]
            batches.append({key for one in of_all for key in one})
        return batches, [loader.state_dict() for loader in made]

    expected, _ = steps(1, 1, None, 18)
    first, states = steps(4, 2, None, 5)
    assert first == expected[:5]
    for world, workers in ((1, 3), (2, 8), (4, 2), (3, 1)):
        if (world, workers) != (4, 2):  # there the next batch is that of the second worker
            assert steps(world, workers, states, 9)[0] == expected[5:14]
    second, again = steps(2, 8, states, 4)
    assert second + steps(1, 2, again, 3)[0] == expected[5:12]


def several(sample: dict[str, Any]) -> Any:
    """Give the key of a sample twice."""
    yield from [sample["__key__"]] * 2


def test_what_is_refused(here: Path) -> None:
    """Positions that are missing or do not go together, and what cannot be divided: one clear line each."""
    write(Random(3))

    def states(**options: Any) -> tuple[list[Any], tarkit.Loader]:
        made = loaders({"allow_idle": True, **options}, [(0, 1, 0, 2), (0, 1, 1, 2)], None, "s-*.tar")
        for loader in made:
            list(islice(loader, 1))
        return [loader.state_dict() for loader in made], tarkit.loader("s-*.tar", allow_idle=True, **options)

    two, loader = states()
    with pytest.raises(tarkit.Usage, match="1 position of 2 workers: that of worker 1 on node 0 is missing"):
        loader.load_state_dict(two[:1])
    with pytest.raises(tarkit.Usage, match="two positions of worker 0 on node 0"):
        loader.load_state_dict([two[0], {**two[0], "opened": 7}, two[1]])
    with pytest.raises(tarkit.Usage, match="its workers is 2, not 1") as error:
        loader.load_state_dict(two[0])
    assert "load_state_dict([state, ...])" in str(error.value.hint)
    one = loader.state_dict()
    for mixed in ([one, *two], [*two, one]):
        with pytest.raises(tarkit.Usage, match=r"positions of \d workers?, and of \d workers?: they are of different"):
            loader.load_state_dict(mixed)
    other = tarkit.loader("s-*.tar", allow_idle=True, worker=1, workers=2)
    other.set_epoch(5)
    with pytest.raises(tarkit.Usage, match="not of the same iteration: their epochs differ"):
        other.load_state_dict([two[0], other.state_dict()])
    with pytest.raises(tarkit.Usage, match="not the state of a loader"):
        loader.load_state_dict([])
    for options, message in (
        ({"resample": True}, "resample gives each worker samples of its own: the position continues on 2 workers"),
        ({"length": 9}, "length gives each worker samples of its own"),
        ({"equal": "drop"}, "equal='drop' counts the samples of each worker"),
        ({"transform": several}, "a worker stopped within the values that transform gives of one sample"),
        ({"equal": "repeat", "shuffle": "full"}, "equal='repeat' counts the samples of each worker"),
    ):
        two, loader = states(**options)
        loader.load_state_dict(two)
        with pytest.raises(tarkit.Usage, match=message):
            next(iter(loader))
