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
from tests._tools import slow
from tests.loading._tools import keys

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


def draw(random: Random, kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "seed": random.randrange(99),
        "epochs": random.choice([1, 1, 2, 3, None]),
        "shuffle": random.choice([0, 4, 30, "full", "full"]),
        "batch": random.choice([None, 1, 3, 4]),
        "shuffle_shards": random.random() < 0.8,
        "allow_idle": True,
        "where": random.choice([None, None, "cls % 3 != 1"]) if kind != "mix" else None,
        "equal": random.choice([None, None, None, "drop", "repeat"]) if kind != "join" else None,
    }
    if options["shuffle"] == "full":
        return {**options, "equal": options["equal"] if options["where"] is None else None}
    return {**options, "interleave": random.choice([1, 1, 3])}


def data_of(random: Random, kind: str, every: list[str]) -> tuple[Any, dict[str, Any]]:
    """Return archives, views, joins or a mix of the shards; and the options of the mix."""
    if kind == "archives":
        return "s-*.tar", {}
    shards = sorted(map(str, Path().glob("s-*.tar")))
    if kind == "join":
        Path("t.csv").write_text("__key__,twice\n" + "".join(f"{key},{2 * int(key)}\n" for key in every))
        return tarkit.open(shards).join("t.csv").set("score:twice"), {}
    count = random.randint(1, min(3, len(shards)))
    parts: list[Any] = [shards[part::count] for part in range(count)]
    if kind == "views" or random.random() < 0.3:
        pytest.importorskip("pyarrow")
        for number, part in enumerate(parts):
            tarkit.open(part).write(f"{number}.view.parquet")
            parts[number] = f"{number}.view.parquet"
    if kind == "views":
        return parts, {}
    ends: list[dict[str, Any]] = [{}, {"until": "all"}, {"until": "all", "repeat": True}, {"total": 40, "repeat": True}]
    mix = random.choice([*ends, ends[1], {"total": 9}])
    return tarkit.mix([(tarkit.open(part), random.choice([1, 2, 5])) for part in parts], **mix), mix


def places(random: Random) -> list[Place]:
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


def read(loader: tarkit.Loader, count: int | None = None, last: int | None = None) -> list[tuple[int, str]]:
    """Return the epochs and keys of the next samples or batches, of all, or of those up to an epoch."""
    found: list[tuple[int, str]] = []
    for item in islice(loader, count):
        epoch = loader.state_dict()["epoch"]
        if last is not None and epoch > last:
            break
        found += [(epoch, key) for key in keys([item])]
    return found


def check(counts: Counter[str], expected: list[str], options: dict[str, Any], mix: dict[str, Any], loss: int) -> None:
    """Check how often samples have come in one epoch; with equal="drop" up to `loss` of them do not."""
    assert counts.keys() <= {*expected}
    if ("until" in mix or "total" in mix) and (options["equal"] or "total" in mix):
        total = sum(counts.values())
        assert options["equal"] or (total == mix["total"] if mix.get("whole") else total <= mix["total"])
        assert options["equal"] or mix.get("repeat") or max(counts.values(), default=0) <= 1
    elif options["equal"] == "repeat" or mix.get("repeat"):
        assert counts.keys() == {*expected}
    elif options["equal"] == "drop" or mix.get("until") == "first":
        assert max(counts.values(), default=0) <= 1
        assert mix.get("until") or len(expected) - len(counts) <= loss
    else:
        assert counts == dict.fromkeys(expected, 1)


def all_have_part(data: Any, options: dict[str, Any], chosen: list[Place]) -> bool:
    """Return whether each of these workers has a part of each source of a mix."""
    try:
        for loader in loaders({**options, "allow_idle": False}, chosen[:1], None, data):
            iter(loader)
    except tarkit.Usage:
        return False
    return True


def check_settings(seed: int) -> None:
    """Stop the workers of a random loader at random places, each in an epoch of its own; then read to the end."""
    random = Random(seed)
    kind = random.choice(["archives", "archives", "views", "views", "join", "mix", "mix"])
    every = write(random)
    options = draw(random, kind)
    data, mix = data_of(random, kind, every)
    if kind == "mix":
        mix = mix or {"until": "first"}
    by_sample = options["shuffle"] == "full" or (kind == "views" and options["where"] is None)
    moves = options["equal"] is None or (options["equal"] == "drop" and by_sample and kind != "mix")
    expected = [key for key in every if options["where"] is None or int(key) % 3 != 1]
    chosen, found, loss = places(random), list[tuple[int, str]](), 0
    mix["whole"] = kind == "mix" and mix.get("repeat") and all_have_part(data, options, chosen)
    states: list[Any] | None = None
    for _ in range(random.randint(1, 3)):
        stopped = []
        loss += len(chosen) - 1 if by_sample else len(every)
        for loader in loaders(options, chosen, states, data):
            whole = len(every) * (options["epochs"] or 2) // len(chosen)
            found += read(loader, random.choice([0, 1, random.randrange(whole + 2), whole // 2]))
            stopped.append(json.loads(json.dumps(loader.state_dict())))
            assert len(json.dumps(stopped[-1])) < (18000 if kind == "mix" else 6000)
        states = stopped
        if moves and random.random() < 0.7:
            chosen = places(random)
            mix["whole"] = mix["whole"] and all_have_part(data, options, chosen)
    begun = [*(epoch for epoch, _ in found), *(state["epoch"] for state in states or ())]
    last = options["epochs"] - 1 if options["epochs"] else max(begun) + 1
    for loader in loaders(options, chosen, states, data):
        found += read(loader, None, last)
    counts: list[Counter[str]] = [Counter() for _ in range(last + 1)]
    for epoch, key in found:
        counts[epoch][key] += 1
    for each in counts:
        check(each, expected, options, mix, loss + len(chosen) - 1)


@pytest.mark.filterwarnings("ignore:.*no sample for worker")
@pytest.mark.parametrize("seeds", [range(5), slow(range(5, SETTINGS))])
def test_random_settings(seeds: range, here: Path) -> None:
    """Each sample comes as often as it should in each epoch, on the same and on other numbers of nodes and workers."""
    for seed in seeds:
        try:
            check_settings(seed)
        except BaseException as error:
            if "an iteration without end has nothing to give" not in str(error):  # to a worker that has no part
                error.add_note(f"seed {seed}")
                raise


@pytest.mark.slow
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
    mix = tarkit.mix([(tarkit.open("s-0.tar"), 1), (tarkit.open("s-*.tar"), 2)], until="all")
    made = loaders({"allow_idle": True, "equal": "drop"}, [(0, 1, 0, 2), (0, 1, 1, 2)], None, mix)
    loader = tarkit.loader(mix, allow_idle=True, equal="drop")
    loader.load_state_dict([each.state_dict() for each in made])
    with pytest.raises(tarkit.Usage, match="equal='drop' counts the samples of each worker"):
        next(iter(loader))
