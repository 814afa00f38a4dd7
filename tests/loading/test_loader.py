"""`tarkit.loader`: epochs, division, shuffling, batches, and positions to resume from."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.loading._tools import keys

SHARDS, EACH = 12, 30
ALL = [f"{number:05d}" for number in range(SHARDS * EACH)]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write twelve shards of thirty samples, one of them compressed, into an empty directory; return their glob."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "WORKER", "NUM_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    write_shards()
    return "s-*"


def write_shards(count: int = EACH) -> None:
    for name, data in made_shards(count).items():
        Path(name).write_bytes(data)


@cache
def made_shards(count: int) -> dict[str, bytes]:
    made = {}
    for shard in range(SHARDS):
        with tarkit.TarWriter(name := f"s-{shard:02d}.tar{'.gz' * (shard == 3)}") as out:
            for number in range(shard * count, (shard + 1) * count):
                out.write(f"{number:05d}", {"cls": number, "txt": f"text {number}"})
        made[name] = Path(name).read_bytes()
    return made


def test_a_sample(shards: str) -> None:
    """It is a dict of the key, the shard and the fields."""
    loader = tarkit.loader(shards, shuffle_shards=False)
    assert next(iter(loader)) == {"__key__": "00000", "__url__": "s-00.tar", "cls": b"0", "txt": b"text 0"}
    decoded = tarkit.loader(shards, shuffle_shards=False, decode=True, select="cls", where="cls == 7")
    assert list(decoded) == [{"__key__": "00007", "__url__": "s-00.tar", "cls": 7}]


def test_a_dataset_with_steps(shards: str) -> None:
    """Steps that work on each sample alone hold."""
    data = tarkit.open(shards).match("5$").rekey("{stem}/{key}").map(lambda sample: {"n": int(sample["cls"]) + 1})
    found = list(tarkit.loader(data, shuffle_shards=False))
    assert len(found) == 36
    assert found[0] == {"__key__": "s-00/00005", "__url__": "s-00.tar", "n": b"6"}


def test_decoded_samples(shards: str) -> None:
    """By the table, or by rules; a dataset that is decoded stays so, through the buffer and in any order."""
    Path("s-03.tar.gz").unlink()
    for options in ({}, {"shuffle": 20}, {"shuffle": "full"}, {"shuffle": "full", "where": "cls > 3"}):
        for loader in (
            tarkit.loader(shards, decode={"cls": int, "*": None}, **options),
            tarkit.loader(tarkit.open(shards, decode={"cls": int, "*": None}), **options),
        ):
            for sample in loader:
                assert sample["cls"] == int(sample["__key__"])
                assert sample["txt"] == b"text %d" % sample["cls"]
    with pytest.raises(tarkit.Usage, match="allow_pickle requires decode"):
        tarkit.loader(shards, allow_pickle=True)
    with pytest.raises(tarkit.TarkitError, match=r"00000.*cannot be decoded"):
        list(tarkit.loader(shards, shuffle_shards=False, decode={"txt": int}))


def test_keys_that_are_in_few_shards(shards: str, recwarn: pytest.WarningsRecorder) -> None:
    """A shard that has none of the keys is no warning."""
    assert keys(tarkit.loader(tarkit.open(shards).keys(["00007", "00300"]), shuffle_shards=False)) == ["00007", "00300"]
    assert not recwarn.list


def test_problems_by_the_policy_of_the_dataset(shards: str) -> None:
    """A damaged shard ends the run, unless the dataset lets it pass; one warning is given then."""
    os.truncate("s-05.tar", 20 * 1024 + 100)
    with pytest.raises(tarkit.Problem, match=r"s-05\.tar"):
        list(tarkit.loader(shards))
    with pytest.warns(tarkit.TarkitWarning, match=r"s-05\.tar"):
        found = keys(tarkit.loader(tarkit.open(shards, skip="truncated")))
    assert 330 < len(found) < 360


@each_row("options", [{"shuffle": "full"}, {}, {"shuffle": 50}, {"shuffle": 20, "interleave": 3}])
def test_epochs(shards: str, options: dict[str, Any]) -> None:
    """Each has all samples once, in another order; the order depends on the seed and the epoch alone."""
    shards = "s-*.tar" if options.get("shuffle") == "full" else shards
    loader = tarkit.loader(shards, seed=5, **options)
    epochs = [keys(loader) for _ in range(3)]
    assert all(len(epoch) == len(set(epoch)) >= 330 and sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = tarkit.loader(shards, seed=5, **options)
    again.set_epoch(2)
    assert again.epoch == 2
    assert keys(again) == epochs[2]
    assert again.epoch == 3
    assert keys(tarkit.loader(shards, seed=5, epochs=3, **options)) == [*epochs[0], *epochs[1], *epochs[2]]
    assert keys(tarkit.loader(shards, seed=6, **options)) != epochs[0]


@each_row("options", [{}, {"shuffle": 10, "interleave": 2}, {"shuffle_shards": False}])
@each_row(("world", "workers"), [(2, 1), (2, 3)])
def test_workers_share_the_samples(shards: str, options: dict[str, Any], world: int, workers: int) -> None:
    """All of them together have each sample once in each epoch, in other orders unless that of shards is given."""
    loaders = [
        tarkit.loader(shards, rank=rank, world=world, worker=worker, workers=workers, **options)
        for rank in range(world)
        for worker in range(workers)
    ]
    epochs = [[keys(loader) for loader in loaders] for _ in range(3)]
    assert [sorted(chain(*epoch)) for epoch in epochs] == [ALL] * 3
    shuffled = options != {"shuffle_shards": False}
    assert len({tuple(chain(*epoch)) for epoch in epochs}) == (3 if shuffled else 1)
    for parts in zip(*epochs, strict=True):
        assert (len({frozenset(part) for part in parts}) > 1) is shuffled  # other samples for each worker


def test_more_workers_than_shards(shards: str) -> None:
    """It is an error in each of them, unless it is allowed."""
    for worker in (0, 12):
        loader = tarkit.loader(shards, worker=worker, workers=13)
        with pytest.raises(tarkit.Usage, match="12 shards for 13 workers: some would have no samples"):
            iter(loader)
    assert list(tarkit.loader(shards, worker=12, workers=13, allow_idle=True)) == []
    assert len(list(tarkit.loader(shards, worker=12, workers=13, resample=True, length=5))) == 5


@pytest.mark.slow
@each_row("shuffle", [0, 25, "full"])
def test_equal_numbers_of_samples(shards: str, shuffle: Any) -> None:
    """With "drop" each worker has as many as the poorest, with "repeat" as the richest, and no sample is missing."""
    shards = "s-*.tar"
    options: dict[str, Any] = {"shuffle": shuffle, "workers": 4}
    for epoch in range(3):
        parts = {}
        for equal in ("drop", "repeat"):
            loaders = [tarkit.loader(shards, equal=equal, worker=worker, **options) for worker in range(4)]
            for loader in loaders:
                loader.set_epoch(epoch)
            sizes = {len(loader) for loader in loaders}
            parts[equal] = [keys(loader) for loader in loaders]
            assert {len(part) for part in parts[equal]} == sizes
            assert len(sizes) == 1
        dropped, repeated = (Counter(chain(*parts[equal])) for equal in ("drop", "repeat"))
        assert max(dropped.values()) == 1
        assert len(repeated) == 330
        assert len(dropped) == (328 if shuffle == "full" else 240)


def test_equal_with_a_filter(shards: str) -> None:
    """Samples are counted after the steps."""
    loaders = [
        tarkit.loader(shards, where="cls % 3 == 0 and cls < 200", equal="drop", worker=worker, workers=2)
        for worker in range(2)
    ]
    assert len({len(keys(loader)) for loader in loaders}) == 1
    with pytest.raises(tarkit.Usage, match="1 of 2 workers get no samples"):
        iter(tarkit.loader(shards, where="cls < 30", equal="drop", worker=0, workers=2))


def test_shards_with_replacement(shards: str) -> None:
    """The epoch has so many samples as requested; without a length it has no end."""
    loader = tarkit.loader(shards, resample=True, length=1000, shuffle=10)
    first, second = keys(loader), keys(loader)
    assert len(first) == len(second) == len(loader) == 1000
    assert first != second
    endless = iter(tarkit.loader(shards, resample=True))
    assert [next(endless)["__key__"] for _ in range(2000)]
    with pytest.raises(tarkit.TarkitError, match=r"no samples in \d+ shards"):
        next(iter(tarkit.loader(shards, resample=True, where="cls < 0")))
    with pytest.raises(tarkit.TarkitError, match="no samples"):
        next(iter(tarkit.loader(shards, epochs=None, where="cls < 0")))


def test_batches(shards: str) -> None:
    """A batch has a list for each field; `collate` makes another one, `partial` decides about the last."""
    loader = tarkit.loader(shards, batch=100, decode=True, shuffle_shards=False)
    batches = list(loader)
    assert [len(batch["cls"]) for batch in batches] == [100, 100, 100, 60]
    assert batches[0]["cls"] == list(range(100))
    assert len(list(tarkit.loader(shards, batch=100, partial=False))) == 3
    assert list(tarkit.loader(shards, batch=100, collate=len)) == [100, 100, 100, 60]
    for partial, number in ((True, 4), (False, 3)):
        assert len(tarkit.loader(shards, batch=100, partial=partial, equal="drop")) == number


def test_samples_with_other_fields_in_a_batch(shards: str) -> None:
    """It is an error that names both."""
    with tarkit.TarWriter("other.tar") as out:
        out.write("a", {"x": "1"})
        out.write("b", {"x": "1", "y": "1"})
    with pytest.raises(tarkit.TarkitError, match="'a' and 'b' cannot be in one batch: one of them lacks 'y'"):
        list(tarkit.loader("other.tar", batch=2))


def test_a_field_with_the_name_of_the_key(shards: str) -> None:
    """It is an error: nothing is overwritten."""
    with tarkit.TarWriter("other.tar") as out:
        out.write("a", {"x": "1", "__url__": "1"})
    with pytest.raises(tarkit.TarkitError, match="has a field __key__ or __url__"):
        list(tarkit.loader("other.tar"))
    assert len(list(tarkit.loader("other.tar", select="x"))) == 1


def test_a_buffer_that_begins_early(shards: str) -> None:
    """With `initial` the first sample is one of so many, else one of all in the buffer."""
    for initial, most in ((3, 5), (None, 29)):
        loaders = [tarkit.loader("s-00.tar", shuffle=30, initial=initial, seed=seed) for seed in range(20)]
        firsts = [int(next(iter(loader))["__key__"]) for loader in loaders]
        assert max(firsts) <= most
        assert len({*firsts}) > 2
        assert initial is not None or max(firsts) > 15


def test_a_length_that_is_not_known(shards: str) -> None:
    """It is a TypeError, as of an iterator, so that `list` works."""
    with pytest.raises(TypeError, match="the number of samples is known with"):
        len(tarkit.loader(shards))
    assert len(list(tarkit.loader(shards))) == 360
    assert len(tarkit.loader("s-*.tar", shuffle="full")) == 330
    for workers, batch in ((2, 8), (3, 100), (4, 7), (5, 150)):
        options: dict[str, Any] = {"shuffle": "full", "batch": batch, "allow_idle": True}
        made = [tarkit.loader("s-*.tar", worker=worker, workers=workers, **options) for worker in range(workers)]
        assert [len(loader) for loader in made] == [len(list(loader)) for loader in made]
    with pytest.raises(tarkit.Usage, match="330 samples for 5 workers: in batches of 150 some would have no samples"):
        list(tarkit.loader("s-*.tar", worker=0, workers=5, shuffle="full", batch=150))


def test_a_pickled_loader(shards: str) -> None:
    """It goes on with the same epoch and position."""
    loader = tarkit.loader(shards, shuffle=20, shuffle_shards=True)
    list(loader)
    state = loader.state_dict()
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.epoch == 1
    assert keys(copy) == keys(loader)
    copy.load_state_dict(state)
    assert keys(pickle.loads(pickle.dumps(copy))) == []


# ---- Resume


WAYS: list[dict[str, Any]] = [
    {},
    {"shuffle_shards": False},
    {"shuffle": 50},
    {"shuffle": 50, "initial": 10},
    {"interleave": 5},
    {"interleave": 3, "shuffle": 40},
    {"where": "cls % 3 == 1", "shuffle": 20},
    {"shuffle": "full"},
    {"shuffle": "full", "where": "cls % 2 == 0"},
    {"equal": "drop", "worker": 1, "workers": 2},
    {"equal": "repeat", "worker": 1, "workers": 5, "shuffle": 15},
    {"resample": True, "length": 250},
    {"resample": True, "length": 250, "shuffle": 30, "interleave": 3},
    {"epochs": 3, "shuffle": 30},
    {"batch": 7, "shuffle": 30},
]


def until_error(loader: tarkit.Loader, message: str) -> list[str]:
    """Return the keys of what a loader gives before an error with this message."""
    found: list[str] = []
    with pytest.raises((ValueError, tarkit.TarkitError), match=message):
        found.extend(key for item in loader for key in keys([item]))
    return found


@pytest.mark.slow
@each_row("options", WAYS)
def test_a_position_after_an_error(options: dict[str, Any], here: Path) -> None:
    """Samples that were taken and not given, since one could not be decoded or put in a batch, come again, in order."""
    write_shards(10)
    whole = keys(tarkit.loader("s-*.tar", **options))
    for place, number in enumerate((0, 1, len(whole) // 3, len(whole) - 1)):
        bad = f"text {int(whole[number])}"

        def decode(data: bytes, bad: str = bad) -> str:
            if data.decode() == bad:
                raise ValueError("bad luck")
            return data.decode()

        def collate(records: list[dict[str, Any]], bad: str = bad) -> dict[str, Any]:
            if bad in [record["txt"] for record in records]:
                raise ValueError("bad luck")
            return {"__key__": [record["__key__"] for record in records]}

        batch = {"batch": 5, "collate": collate, **{key: options[key] for key in options if key == "batch"}}
        failing = {**batch, "decode": {"txt": bytes.decode}} if place % 2 else {"decode": {"txt": decode}}
        loader = tarkit.loader("s-*.tar", **{**options, **failing})
        first = until_error(loader, "bad luck")
        state = json.loads(json.dumps(loader.state_dict()))
        assert first == whole[: len(first)]
        assert len(first) <= number
        loader.load_state_dict(state)
        assert until_error(loader, "bad luck") == []
        assert loader.state_dict() == state
        again = tarkit.loader("s-*.tar", **options)
        again.load_state_dict(state)
        assert first + keys(again) == whole


def test_a_position_after_an_error_of_a_step(shards: str) -> None:
    """A sample for which a condition fails comes again."""
    with tarkit.TarWriter("a.tar") as out:
        for number in range(9):
            out.write(f"{number}", {"json": {"n": number} if number != 5 else b"{"})
    loader = tarkit.loader("a.tar", where="json.n != 3")
    assert until_error(loader, "JSON") == ["0", "1", "2", "4"]
    assert loader.state_dict()["open"] == [[0, 5, -1]]


def test_two_iterations(shards: str) -> None:
    """The position is that of the latest; one that began before goes on, and says nothing more."""
    loader = tarkit.loader(shards, epochs=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    state = loader.state_dict()
    assert (state["epoch"], state["given"]) == (2, 1)
    assert len(list(first)) == 719
    assert loader.state_dict() == state
    assert loader.epoch == 4
    list(islice(second, 400))
    assert (loader.state_dict()["epoch"], loader.state_dict()["given"]) == (3, 41)
    list(islice(iter(loader), 1))
    list(second)
    assert (loader.state_dict()["epoch"], loader.state_dict()["given"]) == (4, 1)


@each_row("before", [{}, {"interleave": 4}, {"interleave": 2, "shuffle": 50}])
@each_row("behind", [{}, {"interleave": 7}, {"shuffle": 20, "interleave": 2}])
def test_with_other_shards_in_parallel(shards: str, before: dict[str, Any], behind: dict[str, Any]) -> None:
    """Each remaining sample comes exactly once."""
    for stop in (1, 100, 359):
        loader = tarkit.loader(shards, **before)
        samples = iter(loader)
        first = keys(next(samples) for _ in range(stop))
        again = tarkit.loader(shards, **behind)
        again.load_state_dict(loader.state_dict())
        assert sorted(first + keys(again)) == ALL


def test_what_was_read_is_not_read_again(shards: str) -> None:
    """Finished shards may be gone; of an open one the contents before the position may be."""
    loader = tarkit.loader(shards, shuffle_shards=False)
    samples = iter(loader)
    first = keys(next(samples) for _ in range(70))
    state = loader.state_dict()
    again = tarkit.loader(shards, shuffle_shards=False)
    with open("s-00.tar", "r+b") as file:
        file.write(b"\xff" * os.path.getsize("s-00.tar"))
    again.load_state_dict(state)
    assert first + keys(again) == ALL


def test_a_position_in_something_else(shards: str) -> None:
    """It is refused, with what differs."""
    loader = tarkit.loader(shards)
    next(iter(loader))
    state = loader.state_dict()
    for options, what in (
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"shuffle_shards": False}, "its order is 'shuffled', not 'given'"),
        ({"resample": True}, "its order is 'shuffled', not 'drawn'"),
        ({"worker": 1, "workers": 2}, "its worker is 0, not 1"),
        ({"rank": 0, "world": 2}, "its world is 1, not 2"),
        ({"equal": "drop"}, "its equal is None, not 'drop'"),
        ({"where": "cls == 1"}, """its filter is '', not "where='cls == 1'\""""),
    ):
        with pytest.raises(tarkit.Usage, match=what):
            tarkit.loader(shards, **options).load_state_dict(state)
    with pytest.raises(tarkit.Usage, match="its shards is 12, not 11"):
        tarkit.loader("s-*.tar").load_state_dict(state)
    with open("s-00.tar", "ab") as file:
        file.write(bytes(512))
    with pytest.raises(tarkit.Usage, match="names or sizes of files differ"):
        tarkit.loader(shards).load_state_dict(state)
    for damaged in ({}, None, {**loader.state_dict(), "open": 3}, {**loader.state_dict(), "random": "x"}):
        with pytest.raises(tarkit.Usage, match="state"):
            loader.load_state_dict(damaged)  # type: ignore[arg-type]


CHOICES = [
    lambda data: data.where("cls == 1"),
    lambda data: data.where("cls == 2"),
    lambda data: data.match("1"),
    lambda data: data.keys(["00001"]),
    lambda data: data.keys(["00001", "00002"]),
    lambda data: data.require("txt", on_missing="skip"),
    lambda data: data.map(len),
    lambda data: data.map(sorted),
    lambda data: data.proc("true"),
    lambda data: data.proc("false"),
    lambda data: data.worker("cat"),
    lambda data: tarkit.open("s-*", shard_slice=slice(3)),
    lambda data: tarkit.open("s-*", shard_slice=slice(4)),
]


def test_a_position_in_other_samples(shards: str) -> None:
    """What chooses samples belongs to the position; fields, decoding and the treatment of problems do not."""
    data = tarkit.open(shards)
    states = [tarkit.loader(choose(data)).state_dict() for choose in [lambda data: data, *CHOICES]]
    assert len({state["filter"] for state in states}) == len(states)
    for state in states[1:]:
        with pytest.raises(tarkit.Usage, match="its filter is"):
            tarkit.loader(data).load_state_dict(state)
    for same in (
        data.select("cls"),
        data.drop("txt"),
        data.rekey("x/{key}"),
        data.decode(),
        tarkit.open(shards, skip="all"),
    ):
        tarkit.loader(same).load_state_dict(states[0])


def test_a_position_in_other_directories(here: Path) -> None:
    """The same names in other directories are other shards, unless all were moved together."""
    for name in ("a/0.tar", "b/0.tar"):
        Path(name).parent.mkdir()
        with tarkit.TarWriter(name) as out:
            out.write(name[0], {"txt": "x"})
    state = tarkit.loader(["a/0.tar", "b/0.tar"]).state_dict()
    with pytest.raises(tarkit.Usage, match="names or sizes of files differ"):
        tarkit.loader(["b/0.tar", "a/0.tar"]).load_state_dict(state)
    Path("c").mkdir()
    for name in ("a", "b"):
        Path(name).rename(f"c/{name}")
    tarkit.loader(["c/a/0.tar", "c/b/0.tar"]).load_state_dict(state)


def test_the_epoch_of_a_position_is_set_again(shards: str) -> None:
    """set_epoch with the epoch of a loaded position keeps it, as training loops call it before each epoch."""
    loader = tarkit.loader(shards)
    loader.set_epoch(3)
    first = keys(next(iter(loader)) for _ in range(1))
    again = tarkit.loader(shards)
    again.load_state_dict(loader.state_dict())
    assert again.epoch == 3
    again.set_epoch(3)
    assert len(first + keys(again)) == 360
    again.load_state_dict(loader.state_dict())
    again.set_epoch(4)
    assert len(keys(again)) == 360


KILLED = """
import json, os, signal, sys, tarkit

options, stop = json.loads(sys.argv[1]), int(sys.argv[2])
loader = tarkit.loader("s-*.tar", **options)
if os.path.exists("state.json"):
    with open("state.json") as file:
        loader.load_state_dict(json.load(file))
seen = open("seen.txt", "a")
for number, sample in enumerate(loader, 1):
    print(sample["__key__"], file=seen, flush=True)
    if number == stop:
        with open("state.json", "w") as file:
            json.dump(loader.state_dict(), file)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_is_killed(tmp_path: Path) -> None:
    """After a thousand samples; the rest with another number of shards in parallel: each sample comes once."""
    for shard in range(10):
        with tarkit.TarWriter(tmp_path / f"s-{shard}.tar") as out:
            for number in range(200):
                out.write(f"{shard}-{number}", {"txt": "x"})
    options = {"shuffle": 200, "interleave": 4}
    for changed, stop in ((options, 1000), ({**options, "interleave": 7}, 0)):
        command = [sys.executable, "-c", KILLED, json.dumps(changed), str(stop)]
        done = subprocess.run(command, cwd=tmp_path, check=False)
        assert done.returncode == (-signal.SIGKILL if stop else 0)
    seen = (tmp_path / "seen.txt").read_text().split()
    assert len(seen) == len(set(seen)) == 2000


# ---- Errors


def test_steps_that_need_all_samples(shards: str) -> None:
    """They are refused by name, also streams, and mixes of mixes."""
    data = tarkit.open(shards)
    for changed, name in (
        (data.sort(), "sort"),
        (data.shuffle(seed=1), "shuffle"),
        (data.slice(3), "slice"),
        (data.sample(0.5, seed=1), "sample"),
        (data.buffer_shuffle(10, seed=1), "buffer_shuffle"),
        (data.rekey("{index}"), "rekey"),
    ):
        with pytest.raises(tarkit.Unsupported, match=f"{name} needs all samples in turn"):
            tarkit.loader(changed)
    with pytest.raises(tarkit.Unsupported, match="a loader reads archives, views and mixes of these"):
        tarkit.loader(tarkit.mix([tarkit.mix([(data, 1)])]))
    os.mkfifo("fifo")
    with pytest.raises(tarkit.Unsupported, match="fifo: the archives are read again and again"):
        tarkit.loader("fifo")
    with open("s-00.tar", "rb") as file, pytest.raises(tarkit.Unsupported, match="read again and again"):
        tarkit.loader(file)
    assert len(list(tarkit.loader(["pipe:cat s-00.tar", "s-01.tar"]))) == 60


@pytest.fixture
def broken(shards: str) -> str:
    """Break a field of every fifth sample of the shards, and all of the shard 7; return the glob of plain shards."""
    Path("s-03.tar.gz").unlink()
    for name in sorted(Path().glob("s-*.tar")):
        with tarkit.open(str(name)) as data:
            samples = [(sample.key, dict(sample)) for sample in data]
        with tarkit.TarWriter(name) as out:
            for key, fields in samples:
                bad = int(key) % 5 == 2 or name.name == "s-07.tar"
                out.write(key, {**fields, "cls": b"x" if bad else fields["cls"]})
    return "s-*.tar"


GOOD = [key for key in ALL if int(key) % 5 != 2 and int(key) // EACH not in (3, 7)]


def test_fields_that_cannot_be_decoded(broken: str) -> None:
    """They are the problem bad-field: an error with its place and a hint, or the sample is left out with a warning."""
    for data in (tarkit.open(broken), tarkit.open(broken, allow="all")):
        with pytest.raises(tarkit.Problem, match=r"s-00.tar: at \d+: '00002': field 'cls'.*\[bad-field\]") as raised:
            list(tarkit.loader(data, decode=True, shuffle_shards=False))
        assert raised.value.hint == "tarkit.loader leaves such samples out with tarkit.open(..., skip='bad-field')"
    with pytest.raises(tarkit.Problem, match="bad-field") as raised:
        [sample["cls"] for sample in tarkit.open(broken, decode=True, skip="bad-field")]
    assert (raised.value.archive, raised.value.name) == ("s-00.tar", "bad-field")
    for skip in ("all", ["bad-field"]):
        said: list[str] = []
        data = tarkit.open(broken, skip=skip, decode=True, on_problem=said.append)
        assert keys(tarkit.loader(data, shuffle_shards=False)) == GOOD
        assert len(said) == 4
        assert said[-1] == "more of [bad-field] follow; they are only counted"
    data = tarkit.open("s-00.tar", maxerr=6, on_problem=said.append)
    assert len(keys(tarkit.loader(data, decode=True))) == 24
    with pytest.raises(tarkit.Problem, match="bad-field"):
        list(tarkit.loader(tarkit.open("s-00.tar", maxerr=5, on_problem=said.append), decode=True))


@pytest.mark.slow
@each_row(
    "options",
    [
        {},
        {"shuffle": 50, "interleave": 3},
        {"shuffle": "full"},
        {"shuffle": "full", "equal": "repeat"},
        {"equal": "drop", "interleave": 2, "shuffle": 7},
        {"equal": "drop", "shuffle": "full"},
        {"equal": "repeat"},
        {"resample": True, "length": 500, "shuffle": 10},
    ],
)
@each_row("batch", [None, 7])
def test_positions_with_samples_that_are_left_out(broken: str, options: dict[str, Any], batch: int | None) -> None:
    """The rest is the same, wherever the position is; with `equal` each worker gives as many samples as before."""

    def made(worker: int = 0, decode: bool = True) -> tarkit.Loader:
        data = tarkit.open(broken, skip="bad-field", on_problem=lambda line: None)
        data = data.decode() if decode else data
        return tarkit.loader(data, seed=3, worker=worker, workers=2, batch=batch, **options)

    loader = made()
    expected = keys(loader)
    assert set(expected) <= set(GOOD)
    if "equal" in options or "length" in options:
        assert len(expected) == len(keys(made(1))) == len(keys(made(decode=False)))
    else:
        assert sorted(expected + keys(made(1))) == GOOD
    for stop in (0, 1, 5, 23):
        loader = made()
        samples = iter(loader)
        first = keys(islice(samples, stop))
        state = json.loads(json.dumps(loader.state_dict()))
        again = made()
        again.load_state_dict(state)
        assert first + keys(again) == expected


@each_row("options", [{"resample": True, "shuffle": 10}, {"equal": "repeat"}, {"epochs": None}])
def test_nothing_can_be_decoded(broken: str, options: dict[str, Any]) -> None:
    """An order without end ends with an error."""
    data = tarkit.open("s-07.tar", skip="bad-field", on_problem=lambda line: None)
    with pytest.raises(tarkit.TarkitError, match="no samples"):
        list(tarkit.loader(data, decode=True, **options))


@each_row("name", ["initial", "seed", "interleave", "length", "batch", "epochs", "rank", "worker"])
def test_a_bool_is_no_number(name: str, shards: str) -> None:
    """A bool where a number is meant is an error that names the argument."""
    pair = {"rank": {"world": 2}, "worker": {"workers": 2}}.get(name, {})
    for flag in (True, False):
        with pytest.raises(TypeError, match=f"{name}={flag}: a whole number is needed, not bool"):
            tarkit.loader(shards, **{name: flag, **pair})  # type: ignore[arg-type]


@each_row("value", [True, False, "all"])
def test_no_size_of_a_buffer(value: Any, shards: str) -> None:
    """`shuffle=True` says what to give."""
    with pytest.raises(tarkit.Usage, match=r"shuffle=.*such as 1000, or 'full'"):
        tarkit.loader(shards, shuffle=value)
