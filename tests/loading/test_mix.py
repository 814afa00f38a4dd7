"""Loaders of mixes: shares at any time, passes over each source, positions; compared with a small model."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.loading.mixed import Schedule
from tests._tools import ROUNDS, slow
from tests.loading._tools import keys

MOST = 300


@pytest.mark.parametrize("seed", range(3))
def test_the_schedule(seed: int) -> None:
    """After any number of draws, each source was drawn as often as its share of them, up to less than one."""
    random = Random(seed)
    for _ in range(20 * ROUNDS):
        weights = [random.choice([1, 2, 3, 10, 0.1, 100, random.random() + 1e-3]) for _ in range(random.randint(1, 7))]
        schedule, shares = Schedule(weights), [weight / sum(weights) for weight in weights]
        for time in range(1, 200):
            schedule.drawn[schedule.next()] += 1
            assert all(
                abs(drawn - time * share) < 1 + 1e-6 for drawn, share in zip(schedule.drawn, shares, strict=True)
            )


def write(random: Random) -> list[list[list[str]]]:
    """Write shards of random sizes for each source; return the keys of each shard."""
    for old in Path().glob("s-*.tar"):
        old.unlink()
    sources = []
    for source in range(random.randint(1, 3)):
        shards = []
        for shard in range(random.randint(1, 3)):
            keys = [f"{source}/{shard}/{number}" for number in range(random.choice([1, 3, 10]))]
            with tarkit.TarWriter(f"s-{source}-{shard}.tar") as out:
                for key in keys:
                    out.write(key, {"cls": len(key)})
            shards.append(keys)
        sources.append(shards)
    return sources


def draw(random: Random, sources: list[list[list[str]]]) -> tuple[list[float], dict[str, Any], dict[str, Any], int]:
    """Return weights, options of the mix, options of the loader, and a number of workers."""
    weights = [random.choice([1, 2, 3, 0.5]) for _ in sources]
    ends = [{}, {"until": "all"}, {"until": "all", "repeat": True}, {"total": 25, "repeat": True}, {"total": 7}]
    workers = random.randint(1, min(len(shards) for shards in sources))
    options = {
        "seed": random.randrange(9),
        "epochs": random.choice([1, 2, None]),
        "shuffle": random.choice([0, 4, "full"]),
        "batch": random.choice([None, None, 4]),
        **random.choice([{}, {}, {"equal": "drop"}, {"equal": "repeat"}, {"length": 33}]),
    }
    return weights, random.choice(ends), options, workers


def check_epoch(
    given: list[str], weights: list[float], options: dict[str, Any], mix: dict[str, Any], alone: bool
) -> None:
    """Check what one worker has given in an epoch: shares at any time, and if `alone` each sample once in each pass.

    Passes have other orders, so with several workers the samples of one differ from pass to pass.
    """
    by_source = [[key for key in given if key[0] == str(source)] for source in range(len(weights))]
    shares = [weight / sum(weights) for weight in weights]
    if mix != {"until": "all"} or options.keys() & {"equal", "length"}:  # else fewer sources are left at the end
        counts: Counter[int] = Counter()
        for time, key in enumerate(given, 1):
            counts[int(key[0])] += 1
            assert all(abs(counts[source] - time * share) < 1 + 1e-6 for source, share in enumerate(shares))
    for own in by_source if alone else ():
        part = len(set(own))
        for start in range(0, len(own), part or 1):
            one = own[start : start + part]
            assert len(set(one)) == len(one)


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 25 * ROUNDS))])
def test_random_mixes(seeds: range, here: Path) -> None:
    """Each worker gives what it should, also stopped at any place and resumed; workers together read all."""
    for seed in seeds:
        random = Random(seed)
        sources = write(random)
        weights, mix, options, workers = draw(random, sources)
        parts = []

        def make(worker: int) -> tarkit.Loader:
            data = tarkit.mix(
                [(tarkit.open(f"s-{source}-*.tar"), weight) for source, weight in enumerate(weights)],  # noqa: B023
                **mix,  # noqa: B023
            )
            return tarkit.loader(data, worker=worker, workers=workers, **options)  # noqa: B023

        for worker in range(workers):
            loader = make(worker)
            whole = list(islice(loader, MOST))
            if options["epochs"] == 1:
                check_epoch(keys(whole), weights, options, mix, workers == 1)
                if options.keys() & {"equal", "length"}:
                    assert len(loader) == len(list(loader))
            parts.append(keys(whole))
            found: list[Any] = []
            state = None
            for _ in range(random.randint(1, 3)):
                again = make(worker)
                if state is not None:
                    again.load_state_dict(state)
                    assert json.loads(json.dumps(again.state_dict())) == state
                found += islice(again, random.choice([0, 1, 7, random.randrange(len(whole) + 1)]))
                state = json.loads(json.dumps(again.state_dict()))
            last = make(worker)
            last.load_state_dict(state)
            found += islice(last, max(MOST - len(found), 0))
            assert found[:MOST] == whole, (seed, weights, mix, options, worker)
            assert list(islice(last, 9)) == list(islice(loader if options["epochs"] != 1 else _second(make(worker)), 9))
        if options.keys() & {"equal", "length"}:
            assert len({len(part) for part in parts}) == 1
        elif mix.get("until") == "all" and options["epochs"]:
            every = {key for shards in sources for shard in shards for key in shard}
            counts = Counter(key for part in parts for key in part)
            assert counts.keys() == every
            if not mix.get("repeat"):
                assert set(counts.values()) == {options["epochs"]}
        elif "total" in mix and mix.get("repeat") and options["epochs"]:
            assert sum(map(len, parts)) == mix["total"] * options["epochs"]


def _second(loader: tarkit.Loader) -> tarkit.Loader:
    loader.set_epoch(1)
    return loader


@pytest.mark.parametrize("seeds", [range(2), slow(range(2, 15 * ROUNDS))])
def test_errors_in_batches(seeds: range, here: Path) -> None:
    """Where collate or transform fails, the values of a batch come again, also those of a pass that has ended."""
    calls = limit = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls == limit:
            raise ValueError("no batch")

    def values(sample: dict[str, Any]) -> Any:
        for number in range(len(sample["__key__"]) % 4 + sample["__key__"].count("3")):
            call()
            yield f"{sample['__key__']}: {number}"

    def collate(items: list[Any]) -> list[Any]:
        call()
        return items

    for seed in seeds:
        random = Random(seed)
        sources = write(random)
        weights, mix, options, _ = draw(random, sources)
        inputs = [(tarkit.open(f"s-{source}-*.tar"), weight) for source, weight in enumerate(weights)]
        options |= {"equal": None, "transform": values, **({"collate": collate} if options["batch"] else {})}
        make = partial(tarkit.loader, tarkit.mix(inputs, **mix), **options)
        calls, limit = 0, -1
        whole = list(islice(make(), MOST))
        found: list[Any] = []
        loader = make()
        for _ in range(20):
            calls, limit = 0, random.randint(4, 40)
            try:
                found.extend(item for item in islice(loader, MOST - len(found)))
                break
            except ValueError:
                state = json.loads(json.dumps(loader.state_dict()))
                loader = make()
                loader.load_state_dict(state)
        else:
            limit = -1
            found += islice(loader, MOST - len(found))
        assert found == whole, (seed, weights, mix, options)


def test_what_is_refused(here: Path) -> None:
    """Another mix than that of the position, options of sources that a loader has itself, sources without samples."""
    write(Random(5))
    one, other = tarkit.open("s-0-*.tar"), tarkit.open("s-1-*.tar")
    loader = tarkit.loader(tarkit.mix([(one, 3), (other, 1)]))
    list(islice(loader, 2))
    for data in (tarkit.mix([(one, 2), (other, 1)]), tarkit.mix([(one, 3), (other, 1)], temperature=2), one):
        with pytest.raises(tarkit.Usage, match="that of another loader"):
            tarkit.loader(data).load_state_dict(loader.state_dict())
    with pytest.raises(tarkit.Usage, match="the form 5, and this tarkit reads the form 6"):
        loader.load_state_dict({**loader.state_dict(), "version": 5})
    with pytest.raises(tarkit.Usage, match="shuffle of a source cannot be used with a loader"):
        tarkit.loader(tarkit.mix([{"shards": one, "shuffle": 9}]))
    with pytest.raises(tarkit.Usage, match=r"s-0-0\.tar.*: \d shards? for 9 workers"):
        list(tarkit.loader(tarkit.mix([one, other]), worker=0, workers=9))
    with pytest.raises(tarkit.TarkitError, match="no sample to draw"):
        list(tarkit.loader(tarkit.mix([one.where("cls == 99"), other], until="all")))
    with pytest.raises(tarkit.Usage, match="temperature"):
        tarkit.mix([one, other], temperature=0)


def test_a_part_without_samples(here: Path) -> None:
    """A worker whose part of a source is empty, as behind `where`, draws from the others; stopped and resumed, too."""
    for shard in range(3):
        with tarkit.TarWriter(f"a{shard}.tar") as a, tarkit.TarWriter(f"b{shard}.tar") as b:
            for number in range(6):
                a.write(f"a{shard}/{number}", {"cls": int(shard == 1)})
                b.write(f"b{shard}/{number}", {"cls": 1})
    for options, mix in (
        ({}, {}),
        ({"batch": 4}, {"until": "all"}),
        ({"length": 40}, {}),
        ({"equal": "repeat"}, {}),
        ({"equal": "drop"}, {}),
        ({}, {"total": 50, "repeat": True}),
    ):
        given: list[list[str]] = []
        for worker in range(3):
            said: list[str] = []
            sources = [tarkit.open("a*.tar", on_problem=said.append).where("cls == 1"), tarkit.open("b*.tar")]
            how: dict[str, Any] = {"worker": worker, "workers": 3, "seed": 2, **options}
            make = partial(tarkit.loader, tarkit.mix(sources, **mix), **how)
            whole = list(make())
            again, last = make(), make()
            begun = list(islice(again, 3))
            last.load_state_dict(json.loads(json.dumps(again.state_dict())))
            assert begun + list(last) == whole
            if options.keys() & {"length", "equal"} or mix.get("repeat"):
                assert len(make()) == len(whole)
            else:
                with pytest.raises(TypeError, match="known with equal"):
                    len(make())
            given.append(keys(whole))
            words = f"a0.tar: no sample for worker {worker} on node 0 in epoch 0"
            assert [line for line in said if words not in line] == []
        if mix.get("until") == "all":
            assert Counter(key for own in given for key in own) == Counter(
                [f"{name}/{number}" for name in ("a1", "b0", "b1", "b2") for number in range(6)]
            )
    sources = [tarkit.open("a*.tar").where("cls == 1"), tarkit.open("b*.tar").where("__key__ < 'b1'")]
    for equal in ("drop", "repeat"):
        with pytest.raises(tarkit.Usage, match="of 3 workers get no samples in epoch 0"):
            list(tarkit.loader(tarkit.mix(sources), worker=0, workers=3, shuffle_shards=False, equal=equal))
    with pytest.raises(TypeError, match="total and repeat"):
        len(tarkit.loader(tarkit.mix(sources, total=1000)))


def test_temperature(here: Path) -> None:
    """The weights 9 and 1 are 3 and 1 at the temperature 2."""
    with tarkit.TarWriter("a.tar") as a, tarkit.TarWriter("b.tar") as b:
        for number in range(100):
            a.write(f"a{number}", {"cls": 1})
            b.write(f"b{number}", {"cls": 1})
    data = tarkit.mix([(tarkit.open("a.tar"), 9), (tarkit.open("b.tar"), 1)], temperature=2)
    assert Counter(key[0] for key in keys(islice(tarkit.loader(data), 40))) == {"a": 30, "b": 10}
    drawn = Counter(sample.key[0] for sample in islice(data, 80))
    assert 10 < drawn["b"] < 30
