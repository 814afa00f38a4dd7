"""Ranks that torchrun starts, one of which is killed: the run goes on from the latest stored positions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tarkit

pytest.importorskip("torch", reason="torch is not here: scripts/test -m torch")
pytest.importorskip("torchdata", reason="torchdata is not here")

pytestmark = [pytest.mark.torch, pytest.mark.forks]

ROOT = Path(__file__).resolve().parents[2]
STORED, KILLED = 12, 14  # steps
GLOBAL = 24  # samples in the batches of all ranks together

TRAIN = """if __name__ == "__main__":
    import json, os, signal, sys
    from torch import distributed
    from torchdata.stateful_dataloader import StatefulDataLoader
    from tarkit.torch import TorchDataset

    workers, killed, options = json.loads(sys.argv[1])
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    dataset = TorchDataset("s-*.tar", select="cls", seed=5, epochs=2, batch=24 // world, **options)
    if os.path.exists("positions.json"):
        with open("positions.json") as file:
            dataset.load_state_dict(json.load(file))
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=workers)
    with open(f"seen-{rank}.txt", "w") as seen:
        for step, batch in enumerate(loader, 1):
            print(step, *batch["__key__"], file=seen, flush=True)
            if killed and step % 4 == 0:
                distributed.all_gather_object(positions := [None] * world, loader.state_dict())
                if rank == 0:
                    with open("new.json", "w") as file:
                        json.dump(positions, file)
                    os.replace("new.json", "positions.json")
            if step == killed and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    distributed.barrier()
    distributed.destroy_process_group()
"""


def torchrun(directory: Path, ranks: int, workers: int, options: Mapping[str, Any], killed: int = 0) -> dict[int, Any]:
    """Run the ranks; return for each step the keys of the batches of all. The status is that of a killed rank."""
    words = ["--standalone", "--nproc-per-node", str(ranks), "train.py", json.dumps([workers, killed, options])]
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (ran.returncode != 0) == (killed != 0), ran.stderr
    assert not killed or "Signal 9 (SIGKILL)" in ran.stderr
    steps: dict[int, list[str]] = defaultdict(list)
    for rank in range(ranks):
        for line in (directory / f"seen-{rank}.txt").read_text().splitlines():
            step, *keys = line.split()
            steps[int(step)] += keys
    return steps


@pytest.mark.parametrize(
    ("options", "before", "others"),
    [({"shuffle": "full"}, (2, 2), [(2, 2), (3, 1)]), ({"shuffle": 20, "interleave": 2}, (3, 1), [(3, 1), (2, 2)])],
    ids=str,
)
def test_a_rank_that_is_killed(options: dict[str, Any], before: Any, others: list[Any], tmp_path: Path) -> None:
    """In the second of two epochs. On the same and on another number of ranks what was not given then comes, once.

    With a full shuffle the batches of all ranks together are those of one process that was not interrupted.
    """
    every = [f"{number:04d}" for number in range(240)]
    with tarkit.ShardWriter(str(tmp_path / "s-%02d.tar"), count=20) as out:
        for number, key in enumerate(every):
            out.write(key, {"cls": number})
    (tmp_path / "train.py").write_text(TRAIN)
    one = tarkit.loader(
        str(tmp_path / "s-*.tar"), select="cls", seed=5, epochs=2, batch=GLOBAL, rank=0, world=1, **options
    )
    expected = [sorted(batch["__key__"]) for batch in one]
    first = torchrun(tmp_path, *before, options, KILLED)
    given = [sorted(first[step]) for step in range(1, KILLED)]
    shutil.copy(tmp_path / "positions.json", tmp_path / "stored.json")
    for ranks, workers in others:
        shutil.copy(tmp_path / "stored.json", tmp_path / "positions.json")
        steps = torchrun(tmp_path, ranks, workers, options)
        rest = [sorted(steps[step]) for step in range(1, len(steps) + 1)]
        if options["shuffle"] == "full":
            assert given == expected[: KILLED - 1]
            assert rest == expected[STORED:]
        counts = Counter(key for batch in (*given[:STORED], *rest) for key in batch)
        assert counts == dict.fromkeys(every, 2)
