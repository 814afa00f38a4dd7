"""Loaders of all workers, with random options, stopped at random places and resumed: they go on as if not stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tests._tools import ROUNDS, slow
from tests.loading._tools import keys

MOST = 400  # samples or batches of an iteration without end


def write(random: Random) -> list[list[str]]:
    """Write shards of random sizes; return their keys."""
    shards, number = [], 0
    for old in Path().glob("s-*.tar"):
        old.unlink()
    for shard in range(random.randint(1, 7)):
        keys = [f"{number + n:05d}" for n in range(random.choice([1, 2, 3, 5, 20, 40]))]
        with tarkit.TarWriter(f"s-{shard}.tar") as out:
            for key in keys:
                out.write(key, {"cls": int(key)})
        number += len(keys)
        shards.append(keys)
    return shards


def draw(random: Random, shards: int) -> tuple[dict[str, Any], int]:
    """Return random options, and a number of workers."""
    workers = random.randint(1, min(3, shards))
    options: dict[str, Any] = {
        "seed": random.randrange(100),
        "epochs": random.choice([1, 2, 3, None]),
        "shuffle": random.choice([0, 0, 4, 30]),
        "interleave": random.choice([1, 1, 3]),
        "batch": random.choice([None, None, 4]),
        "equal": random.choice([None, None, "drop", "repeat"]),
        "shuffle_shards": random.random() < 0.8,
        "threads": random.choice([0, 0, 2]),
    }
    return options, workers


def draw_more(random: Random, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, or others that go together: a buffer that begins early, all samples, a choice, draws."""
    kind = random.choice(["as it is"] * 3 + ["initial", "full", "where", "drawn", "length"])
    more: dict[str, dict[str, Any]] = {
        "as it is": {},
        "initial": {"shuffle": 30, "initial": random.randint(1, 30)},
        "full": {"shuffle": "full", "interleave": 1},
        "where": {"where": "cls % 3 != 1", "equal": None, "shuffle": random.choice([0, 20, "full"]), "interleave": 1},
        "length": {"length": random.choice([9, 60, 150]), "equal": None},
        "drawn": {"resample": True, "length": random.choice([9, 60, 150]), "equal": None},
    }
    return {**options, **more[kind]}


def check_epochs(parts: list[list[str]], shards: list[list[str]], options: dict[str, Any]) -> None:
    """Check what all workers have given in an iteration with an end: each sample as often as there were epochs."""
    counts = Counter(key for part in parts for key in part)
    every = {key for shard in shards for key in shard if "where" not in options or int(key) % 3 != 1}
    if options["equal"] is None:
        assert counts == dict.fromkeys(every, options["epochs"])
    elif options["equal"] == "repeat":
        assert counts.keys() == every
        assert min(counts.values()) >= options["epochs"]
    else:
        assert max(counts.values()) <= options["epochs"]
    if options["equal"]:
        assert len({len(part) for part in parts}) == 1


@pytest.mark.parametrize("seeds", [range(4), slow(range(4, 20 * ROUNDS))])
def test_random_loaders(seeds: range, here: Path) -> None:
    """Each worker continues at its sample, in an epoch of its own, once or several times; then the next iteration."""
    for seed in seeds:
        random = Random(seed)
        shards = write(random)
        options, workers = draw(random, len(shards))
        options = draw_more(random, options)
        wholes = []
        for worker in range(workers):
            how = {**options, "worker": worker, "workers": workers}
            whole_loader = tarkit.loader("s-*.tar", **how)
            whole = list(islice(whole_loader, MOST))
            wholes.append(keys(whole))
            found: list[Any] = []
            state, loader = None, tarkit.loader("s-*.tar", **how)
            for _ in range(random.randint(1, 3)):
                loader = tarkit.loader("s-*.tar", **how)
                if state is not None:
                    loader.load_state_dict(state)
                    assert json.loads(json.dumps(loader.state_dict())) == state
                samples = iter(loader)
                found += islice(samples, random.choice([0, 1, 7, random.randrange(len(whole) + 1)]))
                state = json.loads(json.dumps(loader.state_dict()))
                assert len(json.dumps(state)) < 5000
                samples.close()  # type: ignore[attr-defined]
            last = tarkit.loader("s-*.tar", **how)
            last.load_state_dict(state)
            found += islice(last, max(MOST - len(found), 0))
            assert found[:MOST] == whole, (seed, how)
            assert last.epoch == whole_loader.epoch == (options["epochs"] or 1)
            assert list(islice(last, 9)) == list(islice(whole_loader, 9))
        if options["epochs"] and "length" not in options and all(len(part) < MOST for part in wholes):
            check_epochs(wholes, shards, options)


# ---- In worker processes


def check_torch(seed: int) -> None:
    """Compare a StatefulDataLoader that was stopped and resumed with one that was not."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tarkit.torch import TorchDataset

    random = Random(seed)
    shards = write(random)
    options, workers = draw(random, len(shards))
    kind: dict[str, Any] = {"num_workers": random.choice([0, workers, workers])}
    if kind["num_workers"]:
        kind["persistent_workers"] = random.random() < 0.5
        kind["multiprocessing_context"] = random.choice(["fork"] * 5 + ["spawn"])
    torch_seed = random.choice([None, 7])

    def make() -> Any:
        return StatefulDataLoader(TorchDataset("s-*.tar", **options), batch_size=None, **kind)

    def take(loader: Any, count: int) -> list[list[str]]:
        if torch_seed is not None:
            torch.manual_seed(torch_seed)
        return [keys([item]) for item in islice(loader, count)]

    import torch

    loader = make()
    whole, following = take(loader, MOST), take(loader, 30)
    stop = random.randrange(len(whole))
    loader = make()
    found = take(loader, stop)
    state = loader.state_dict()
    loader = make()
    loader.load_state_dict(state)
    found += take(loader, MOST - stop)
    assert found == whole, (seed, options, kind)
    assert take(loader, 30) == following, (seed, options, kind)
    if options["epochs"] and len(whole) < MOST and not options["equal"]:
        check_epochs([[key for batch in whole for key in batch]], shards, options)


@pytest.mark.torch
def test_random_loaders_of_torch(here: Path) -> None:
    """StatefulDataLoader stores and loads the positions of all workers, which are in different epochs."""
    pytest.importorskip("torchdata", reason="torchdata is not here")
    code = (
        "import sys; from tests.loading.test_resume import check_torch; list(map(check_torch, range(int(sys.argv[1]))))"
    )
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(3 * ROUNDS)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def edited(state: Any, random: Random) -> Any:
    """Return a state with one of its values, at any depth, removed or replaced."""
    state = json.loads(json.dumps(state))
    node, deeper = state, True
    while deeper:
        key = random.choice([*node] if isinstance(node, dict) else range(len(node)))
        deeper = isinstance(node[key], dict | list) and bool(node[key]) and random.random() < 0.8
        node = node[key] if deeper else node
    new = random.choice([None, "x", "12", -1, 1.5, True, [], {}, 10**30, [[1]], ...])
    if new is ...:
        del node[key]
    else:
        node[key] = new
    return state


def test_a_state_that_was_edited(here: Path) -> None:
    """It is refused with an error of tarkit when it is loaded or read, or it is a state as well."""
    random = Random(1)
    for name in ("a-0", "a-1", "b-0"):
        with tarkit.TarWriter(f"{name}.tar") as out:
            for number in range(9):
                out.write(f"{name}/{number}", {"cls": number})
    mix = tarkit.mix([(tarkit.open("a-*.tar"), 2), (tarkit.open("b-0.tar"), 1)], seed=1)
    refused = 0
    for data in ("a-*.tar", mix):
        for options in ({}, {"shuffle": 4}, {"shuffle": "full"}):
            nodes = [tarkit.loader(data, seed=1, rank=rank, world=2, allow_idle=True, **options) for rank in range(2)]
            for node in nodes:
                assert len(list(islice(node, 3))) == 3 or data is mix
            again = tarkit.loader(data, seed=1, rank=0, world=1, allow_idle=True, **options)
            again.load_state_dict([node.state_dict() for node in nodes])
            assert len(list(islice(again, 2))) == 2
            for loader in (nodes[0], again):
                state = loader.state_dict()
                for _ in range(50 * ROUNDS):
                    try:
                        loader.load_state_dict(edited(state, random))
                        list(islice(loader, 3))
                    except tarkit.TarkitError:
                        refused += 1
    assert refused > 100 * ROUNDS
