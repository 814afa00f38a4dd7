"""Megatron-Energon: its own preparation and its loader over shards and index files of tarkit, and tarkit after it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._odd import odd_archive
from tests.commands.test_check import found
from tests.commands.test_check_target import COUNT, TARGETS, claims
from tests.conftest import Archive, Run, tar
from tests.interop._packages import needs, result

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skip tests where Megatron-Energon is not there."""
    needs("torch", "megatron.energon")


PREPARE = """
import glob, sys
from pathlib import Path
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator
def prepare(directory, *shards, **settings):
    return WebdatasetPreparator.prepare_dataset(
        Path(directory), list(shards), split_parts_ratio=[("train", 1.0)], shuffle_seed=None, workers=1, **settings
    )
"""

LOAD = """
from megatron.energon import Cooker, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless
@stateless
def same(sample):
    return sample
class Raw(DefaultTaskEncoder):
    decoder = None
    cookers = [Cooker(same)]
    @stateless
    def encode_sample(self, sample):
        return sample
def load(directory, workers=0):
    data = get_train_dataset(
        directory, worker_config=WorkerConfig(rank=0, world_size=1, num_workers=workers), batch_size=None,
        shuffle_buffer_size=None, max_samples_per_sequence=100, task_encoder=Raw(), repeat=False,
        shuffle_over_epochs_multiplier=None, parallel_shard_iters=1,
    )
    return [(s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")}) for s in get_loader(data)]
"""


def write_shards(directory: str) -> dict[str, dict[str, bytes]]:
    """Write three shards with names of all kinds; return their samples."""
    Path(directory).mkdir()
    with tarkit.ShardWriter(f"{directory}/s-%03d.tar", count=4) as out:
        for n in range(10):
            key = f"d.1/ß{n}" + "n" * (140 if n % 3 == 2 else 0)
            out.write(key, {"seg.bin": bytes(n), "bin": f"{n}".encode()})
    return {sample.key: dict(sample) for sample in tarkit.open(directory)}


def describe(directory: str) -> None:
    """Write the description of a dataset of unknown samples, and which shards are for training."""
    meta = Path(directory, ".nv-meta")
    meta.mkdir(exist_ok=True)
    (meta / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    if not (meta / "split.yaml").exists():
        shards = {path.name: len(tarkit.open(path).indexed()) for path in Path(directory).glob("*.tar")}
        (meta / ".info.json").write_text(json.dumps({"energon_version": "7.0.0", "shard_counts": shards}))
        (meta / "split.yaml").write_text(json.dumps({"split_parts": {"train": sorted(shards)}, "exclude": []}))


def test_its_index_is_that_of_tarkit(here: Path) -> None:
    """What it prepares is what `tarkit index` writes, byte for byte; its loader reads all samples."""
    expected = write_shards("a")
    shutil.copytree("a", "b")
    result(PREPARE + "prepare('a', 's-{000..002}.tar'); print(None)")
    written = tarkit.index("b", "energon")
    assert [Path(path).read_bytes() for path in written] == [
        Path("a", Path(path).name).read_bytes() for path in written
    ]
    assert tarkit.verify_index("a/*.tar", "energon") == []
    assert {sample.key: dict(sample) for sample in tarkit.open("a/*.tar")} == expected
    describe("a")
    assert dict(result(LOAD + "print(load('a'))")) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_its_loader_reads_by_an_index_of_tarkit(workers: int, here: Path) -> None:
    """Each sample comes once."""
    expected = write_shards("a")
    tarkit.index("a", "energon")
    describe("a")
    found = result(LOAD + f"print(load('a', {workers}))")
    assert len(found) == len(expected)
    assert dict(found) == expected


def test_tarkit_reads_what_it_repairs(run: Run, archive: Archive) -> None:
    """Keys that are in two shards, which it renames in place, are found by `check` before, and unique after."""
    Path("a").mkdir()
    for name in ("1", "2"):
        Path(f"a/{name}.tar").write_bytes(tar({f"{n}.x": name.encode() for n in range(3)}))
    assert "[repeated-key]" in run("check", "a", "--target", "energon", exit=1).stdout.decode()
    needs("numba")
    result(PREPARE + "prepare('a', '1.tar', '2.tar', fix_duplicates=True); print(None)")
    run("check", "a/1.tar", "a/2.tar", "--target", "energon")
    assert tarkit.verify_index("a/*.tar", "energon") == []
    read = [(sample.key, sample["x"]) for sample in tarkit.open("a/*.tar")]
    assert read == [(f"{name}.tar/{n}", name.encode()) for name in "12" for n in range(3)]


SCAN = """
from megatron.energon.epathlib import EPath
rows = []
for name in sys.argv[1:]:
    samples = []
    for each in WebdatasetPreparator._preprocess_tar(name, {name: 0}, EPath("."), 50):
        kind = type(each).__name__
        if kind == "IndexSamplePart":
            samples.append((each.part_name, each.content_byte_offset, each.content_byte_size))
        elif kind == "IndexSample":
            samples.append(each.sample_key)
    rows.append(samples)
print(rows)
"""


def test_the_rules_of_check(run: Run, archive: Archive) -> None:
    """Where `check --target energon` finds nothing, its index has the fields that tarkit reads; else other ones."""
    shards = [archive(data, f"{place}.tar") for place, (data, _) in enumerate(TARGETS.values())]
    for case, shard, listed in zip(TARGETS, shards, result(PREPARE + SCAN, *shards), strict=True):
        wrong = {problem for problem, _ in found(run("check", shard, "--target", "energon", exit=None))}
        data = Path(shard).read_bytes()
        expected: list[Any] = []
        for sample in tarkit.open(shard):
            expected += [(name, size) for name, size in sample.sizes.items()] + [sample.key]
        contents = [(each[0], len(data[each[1] :][: each[2]])) if isinstance(each, tuple) else each for each in listed]
        if wrong & {"reader-refuses", "reader-misreads"}:
            assert contents != expected or not expected, case
        else:
            assert contents == expected, case


def test_odd_archives(here: Path) -> None:
    """The same for names, types and extension headers drawn at random."""
    for seed in range(COUNT // 2):
        Path(f"{seed}.tar").write_bytes(odd_archive(random.Random(seed)))
    Path("shards").write_text("\n".join(f"{seed}.tar" for seed in range(COUNT // 2)))
    scan = SCAN.replace("sys.argv[1:]", 'open("shards").read().split()')
    for seed, listed in enumerate(result(PREPARE + scan)):
        said, data = claims(f"{seed}.tar", "energon"), Path(f"{seed}.tar").read_bytes()
        if said is None:
            continue
        expected: list[Any] = []
        try:
            for sample in tarkit.open(f"{seed}.tar"):
                expected += [*sample.items(), sample.key]
        except tarkit.TarkitError:  # a field without content
            expected = []
        contents = [(each[0], data[each[1] :][: each[2]]) if isinstance(each, tuple) else each for each in listed]
        assert (contents == expected != []) == (not said), seed
