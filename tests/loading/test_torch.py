"""`tarkit.torch`: datasets in DataLoader and StatefulDataLoader, with workers of all kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit

torch = pytest.importorskip("torch", reason="torch is not here: scripts/test -m torch")
import numpy  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from tarkit.torch import TorchDataset  # noqa: E402
from tests._tools import ROUNDS  # noqa: E402
from tests.loading._tools import keys  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.forks, pytest.mark.filterwarnings("ignore")]

SHARDS, EACH = 8, 25
ALL = [f"{number:05d}" for number in range(SHARDS * EACH)]
WORKERS = [
    {"num_workers": 0},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True},
]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write eight shards of 25 samples into an empty directory; return their glob."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "WORKER", "NUM_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    with tarkit.ShardWriter("s-%02d.tar", count=EACH) as out:
        for number in range(SHARDS * EACH):
            out.write(f"{number:05d}", {"cls": number, "npy": numpy.array([number, 1.5])})
    return "s-*.tar"


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_threads(shards: str, workers: dict[str, Any]) -> None:
    """They give the same batches, in this process and in each worker, also of values that draw random numbers."""
    found = []
    for threads in (0, 3):
        options: dict[str, Any] = {"decode": True, "shuffle": 20, "batch": 8, "collate": torch.stack}
        dataset = TorchDataset(shards, transform=draw_number, threads=threads, **options)
        loader = DataLoader(dataset, batch_size=None, **workers)
        found.append([batch.tolist() for _ in range(2) for batch in loader])
    assert found[0] == found[1]


def draw_number(sample: dict[str, Any]) -> torch.Tensor:
    """Return the class, a number of the sample, and for few samples a random number of torch."""
    number = tarkit.sample_random().random()
    return torch.tensor([sample["cls"], number, torch.rand(()) if sample["cls"] % 20 == 7 else 0])


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_each_sample_once_in_an_epoch(shards: str, workers: dict[str, Any]) -> None:
    """Epochs follow each other, in other orders, whatever the workers; set_epoch reaches them."""
    dataset = TorchDataset(shards, decode=True, shuffle=20, seed=3)
    loader = DataLoader(dataset, batch_size=8, **workers)
    epochs = [keys(loader) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [ALL] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert dataset.epoch == 3
    dataset.set_epoch(1)
    assert keys(loader) == epochs[1]
    assert keys(loader) == epochs[2]
    for _ in loader:
        break
    assert dataset.epoch == 4


def test_values(shards: str) -> None:
    """Numbers and arrays become tensors in batches."""
    dataset = TorchDataset(shards, decode=True, shuffle_shards=False)
    batch = next(iter(DataLoader(dataset, batch_size=4)))
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert batch["npy"].tolist() == [[0, 1.5], [1, 1.5], [2, 1.5], [3, 1.5]]
    assert batch["__url__"] == ["s-00.tar"] * 4


def test_another_number_of_workers(shards: str) -> None:
    """Loaders with other workers over one dataset, also at the same time, lose and repeat nothing."""
    dataset = TorchDataset(shards, shuffle=10)
    next(iter(dataset))
    for workers in (2, 4, 0, 3):
        assert sorted(keys(DataLoader(dataset, batch_size=5, num_workers=workers))) == ALL
    spawn = DataLoader(dataset, batch_size=5, num_workers=1, multiprocessing_context="spawn")
    first = iter(DataLoader(dataset, batch_size=5, num_workers=2))
    begun = [next(first)]
    second = keys(spawn)  # there are threads now
    assert sorted(second) == sorted(keys(begun) + keys(first)) == ALL


def test_more_workers_than_shards(shards: str) -> None:
    """It is an error that comes out of the loader."""
    shards = "s-0[01].tar"
    assert len(keys(DataLoader(TorchDataset(shards, allow_idle=True), num_workers=3))) == 50
    with pytest.raises(tarkit.Usage, match="2 shards for 3 workers"):
        list(DataLoader(TorchDataset(shards), num_workers=3))


@pytest.mark.parametrize("equal", ["drop", "repeat"])
def test_number_of_batches(shards: str, equal: Any) -> None:
    """Batches of a DataLoader have no number; the loader of one worker says how many batches there are."""
    for workers in (1, 2, 3):
        made = DataLoader(TorchDataset(shards, equal=equal), batch_size=4, num_workers=workers)
        with pytest.raises(TypeError, match="known where the dataset makes them"):
            len(made)
        one_of = tarkit.loader(shards, equal=equal, batch=4, worker=0, workers=workers)
        assert len(list(made)) == workers * len(one_of)


@pytest.mark.parametrize("seed", range(4 * ROUNDS))
def test_the_length_of_a_loader(seed: int, shards: str) -> None:
    """`len(DataLoader(...))` is what all workers of a rank give, with any number of them, in each epoch."""
    pytest.importorskip("pyarrow")
    random = Random(seed)
    tarkit.open(shards).write("all.view.parquet")
    tarkit.open("s-0[0-2].tar").write("some.view.parquet")
    options: dict[str, Any] = {
        **random.choice([{"shuffle": "full"}, {"shuffle": 20}, {}]),
        **random.choice([{}, {"equal": "drop"}, {"equal": "repeat"}, {"length": 31}]),
        "batch": random.choice([1, 7, 64]),
        "partial": random.random() < 0.7,
        "epochs": random.choice([1, 2]),
        "allow_idle": True,
    }
    inputs: Any = random.choice([shards, "all.view.parquet", ["some.view.parquet", "all.view.parquet"]])
    world, workers = random.choice([(1, 0), (1, 3), (3, 2)])
    told: Any = {"workers": workers} if options.keys() & {"equal", "length"} or random.random() < 0.7 else {}
    for rank in range(world):
        made = DataLoader(
            dataset := TorchDataset(inputs, rank=rank, world=world, **options, **told),
            batch_size=None,
            num_workers=workers,
        )
        for epoch in (0, 5):
            dataset.set_epoch(epoch)
            given = 0
            for worker in range(workers or 1):
                place = {"rank": rank, "world": world, "worker": worker, "workers": workers or 1}
                loader = tarkit.loader(inputs, **place, **options)
                loader.set_epoch(epoch)
                given += len(list(loader))
            known = options.get("shuffle") == "full" or (told and inputs != shards)
            if known or options.keys() & {"equal", "length"}:
                assert len(made) == given
            else:
                with pytest.raises(TypeError, match=r"the number of (samples|batches)"):
                    len(made)


def test_another_number_of_workers_than_was_said(shards: str) -> None:
    """It is an error: `len` was that of other workers."""
    made = DataLoader(TorchDataset(shards, workers=2, equal="drop", batch=7), batch_size=None, num_workers=2)
    assert len(made) == len(list(made)) == 30
    for workers in (0, 1):
        with pytest.raises(tarkit.Usage, match=f"workers=2, and the DataLoader has num_workers={workers}"):
            list(DataLoader(TorchDataset(shards, workers=2), num_workers=workers))


SEEDED = """if __name__ == "__main__":
    import multiprocessing, os, torch, sys
    from torch.utils.data import DataLoader
    from tarkit.torch import TorchDataset

    def train(rank, dataset):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
        torch.manual_seed(rank)
        for epoch in range(2):
            keys = [sample["__key__"] for sample in DataLoader(dataset, batch_size=None, num_workers=2)]
            sys.stdout.write("".join(f"{epoch} {key}\\n" for key in keys))
            sys.stdout.flush()

    dataset = TorchDataset("s-*.tar", select="cls")
    ranks = [multiprocessing.get_context("fork").Process(target=train, args=(rank, dataset)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
"""


def test_a_dataset_that_is_handed_to_the_processes_of_nodes(shards: str) -> None:
    """Each of them counts its epochs, so that they divide the same ones, whatever their seeds."""
    Path("main.py").write_text(SEEDED)
    printed = subprocess.run([sys.executable, "main.py"], capture_output=True, text=True, check=True).stdout
    assert sorted(printed.splitlines()) == [f"{epoch} {key}" for epoch in range(2) for key in ALL]


def test_the_same_seed_of_torch_in_each_epoch(shards: str) -> None:
    """The epochs advance all the same, and set_epoch holds."""
    dataset, orders = TorchDataset(shards, select="cls", shuffle=20), []
    for epoch in (None, None, 7, 0):
        if epoch is not None:
            dataset.set_epoch(epoch)
        torch.manual_seed(0)
        orders.append(keys(DataLoader(dataset, batch_size=8, num_workers=2)))
    assert [sorted(order) for order in orders] == [ALL] * 4
    assert orders[3] == orders[0]
    assert len({tuple(order) for order in orders}) == 3


NODE = """if __name__ == "__main__":
    import sys, torch.distributed as distributed
    from torch.utils.data import DataLoader
    from tarkit.torch import TorchDataset

    rank = int(sys.argv[1])
    distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    dataset = TorchDataset("s-*.tar", select="cls")
    for batch in DataLoader(dataset, batch_size=5, num_workers=2, multiprocessing_context=("fork", "spawn")[rank]):
        print(*batch["__key__"])
    distributed.barrier()
    distributed.destroy_process_group()
"""


def test_the_node_by_torch_distributed(shards: str) -> None:
    """It is known to workers too, also to those that are spawned."""
    Path("main.py").write_text(NODE)
    words = [os.path.abspath("group")]
    nodes = [
        subprocess.Popen([sys.executable, "main.py", str(rank), *words], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [node.communicate(timeout=120)[0].split() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    assert [len(part) for part in said] == [100, 100]
    assert sorted(said[0] + said[1]) == ALL


# ---- Positions


def stateful(dataset: Any, **options: Any) -> Any:
    """Return a StatefulDataLoader."""
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(dataset, batch_size=5, **options)


@pytest.mark.parametrize(
    ("workers", "stop"),
    [(WORKERS[0], 0), (WORKERS[0], 39), (WORKERS[1], 7), (WORKERS[1], 40), (WORKERS[2], 7)],
    ids=str,
)
def test_a_position_of_all_workers(shards: str, workers: dict[str, Any], stop: int) -> None:
    """The rest of an epoch follows at the very sample, and then the next epochs."""
    options: dict[str, Any] = {"shuffle": 30, "seed": 1, "interleave": 2}

    def make() -> Any:
        return stateful(TorchDataset(shards, **options), **workers)

    loader = make()
    epochs = [[batch["__key__"] for batch in loader] for _ in range(4)]
    assert [sorted(sum(epoch, [])) for epoch in epochs] == [ALL] * 4  # noqa: RUF017

    loader = make()
    list(loader)
    batches = iter(loader)
    first = [next(batches)["__key__"] for _ in range(stop)]
    state = loader.state_dict()
    del batches, loader
    loader = make()
    loader.load_state_dict(state)
    rest = [batch["__key__"] for batch in loader]
    if stop < 40:
        assert first + rest == epochs[1]
        assert [[batch["__key__"] for batch in loader] for _ in range(2)] == epochs[2:]
    else:
        assert first == epochs[1]
        assert sorted(sum(rest, [])) in ([], ALL)  # noqa: RUF017


@pytest.mark.parametrize(
    "options",
    [
        {"resample": True, "length": 60, "shuffle": 10},
        {"equal": "drop", "shuffle": 10},
        {"equal": "repeat", "interleave": 2},
    ],
    ids=str,
)
def test_a_position_with_a_set_number_of_samples(shards: str, options: dict[str, Any]) -> None:
    """Each worker continues where it was, and gives as many samples in all as the others."""
    names = "s-0[0-6].tar"  # one of two workers has four shards, the other three
    kind = WORKERS[3 if "length" in options else 2]
    whole = [batch["__key__"] for batch in stateful(TorchDataset(names, **options), num_workers=2)]
    assert len(sum(whole, [])) == 2 * len(tarkit.loader(names, worker=0, workers=2, **options))  # noqa: RUF017
    loader = stateful(TorchDataset(names, **options), num_workers=2)
    batches = iter(loader)
    first = [next(batches)["__key__"] for _ in range(9)]
    state = loader.state_dict()
    del batches, loader
    again = stateful(TorchDataset(names, **options), **kind)
    again.load_state_dict(state)
    assert first + [batch["__key__"] for batch in again] == whole


def test_a_position_for_other_workers(shards: str) -> None:
    """One of the process itself is refused by workers, in place of being taken for that of each."""
    dataset = TorchDataset(shards)
    next(iter(dataset))
    state = dataset.state_dict()
    again = TorchDataset(shards)
    again.load_state_dict(state)
    assert len(list(again)) == 199
    again.load_state_dict(state)
    with pytest.raises(tarkit.Usage, match="the position was loaded in another process"):
        list(DataLoader(again, num_workers=2))


WITHOUT = """if __name__ == "__main__":
    import sys
    sys.modules["torchdata"] = None  # to import it raises an error
    from torch.utils.data import DataLoader
    from tarkit.torch import TorchDataset

    def keys(loader):
        return [key for batch in loader for key in batch["__key__"]]

    dataset = TorchDataset("s-*.tar", shuffle=20, seed=3)
    for workers in (0, 2):
        assert len(set(keys(DataLoader(dataset, batch_size=5, num_workers=workers)))) == 200
    whole = keys(DataLoader(dataset, batch_size=5))
    dataset.set_epoch(2)
    batches = iter(DataLoader(dataset, batch_size=5))
    first = keys([next(batches) for _ in range(7)])
    again = TorchDataset("s-*.tar", shuffle=20, seed=3)
    again.load_state_dict(dataset.state_dict())
    assert first + keys(DataLoader(again, batch_size=5)) == whole
    again.load_state_dict(dataset.state_dict())
    keys(DataLoader(again, batch_size=5, num_workers=2))
"""


def test_without_torchdata(shards: str) -> None:
    """Epochs in a DataLoader; without workers it continues at a position, and with them the error names torchdata."""
    Path("main.py").write_text(WITHOUT)
    done = subprocess.run([sys.executable, "main.py"], stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    last = [line for line in done.stderr.splitlines() if line.strip()][-2:]
    assert last[0].endswith("the position was loaded in another process, and is that of another worker")
    assert last[1].startswith("hint: ")
    assert "torchdata" in last[1]


# ---- Random access


@pytest.mark.parametrize("workers", [WORKERS[1], WORKERS[3]], ids=str)
def test_an_index_as_a_dataset(shards: str, workers: dict[str, Any]) -> None:
    """`indexed()` has len and numbers, which is all that a DataLoader with a sampler needs."""
    indexed = tarkit.open(shards).indexed()
    loader = DataLoader(indexed, batch_size=8, shuffle=True, collate_fn=key_batch, **workers)  # type: ignore[arg-type]
    for _ in range(2):
        assert sorted(keys(loader)) == ALL


def key_batch(samples: list[tarkit.Sample]) -> dict[str, list[str]]:
    """Return the keys of samples, whose fields can be read."""
    assert all(int(sample["cls"]) == int(sample.key) for sample in samples)
    return {"__key__": [sample.key for sample in samples]}


def test_errors_of_workers(shards: str) -> None:
    """They have their class, and the hint is in the text."""
    how: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
    with pytest.raises(tarkit.Usage, match=r"hint: give fewer workers or more shards"):
        list(DataLoader(TorchDataset("s-00.tar"), **how))
    os.truncate("s-01.tar", 2000)
    with pytest.raises(tarkit.Problem, match=r"hint: .*skip='truncated'") as raised:
        list(DataLoader(TorchDataset(shards), **how))
    assert raised.value.name == "truncated"
    state = tarkit.loader(shards, seed=1).state_dict()
    dataset = TorchDataset(shards, seed=2)
    with pytest.raises(tarkit.Usage, match="hint: resume with the shards, steps, seed"):
        dataset.load_state_dict(state)


@pytest.mark.parametrize("shuffle", ["full", 10])
@pytest.mark.parametrize("persistent", [False, True])
def test_positions_on_other_workers(shards: str, shuffle: Any, persistent: bool) -> None:
    """States of StatefulDataLoader of two nodes continue on one, with more workers; the next epochs are whole."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not here")
    options: dict[str, Any] = {"shuffle": shuffle, "batch": 5, "seed": 3}
    found, states = [], []
    for rank in range(2):
        dataset = TorchDataset(shards, rank=rank, world=2, **options)
        loader = stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=2)
        batches = iter(loader)
        found += keys([next(batches) for _ in range(4 + rank)])
        states.append(json.loads(json.dumps(loader.state_dict())))
        del batches, loader
    dataset = TorchDataset(shards, rank=0, world=1, **options)
    dataset.load_state_dict(states)
    later = DataLoader(dataset, batch_size=None, num_workers=3, persistent_workers=persistent)
    assert sorted(found + keys(later)) == ALL
    assert [sorted(keys(later)) for _ in range(2)] == [ALL, ALL]
    assert dataset.epoch == 3
