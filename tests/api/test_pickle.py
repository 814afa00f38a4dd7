"""Datasets in other processes: pickled, with what they are made of, and not what runs have left of them."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row, samples_of
from tests.conftest import Archive

MEMBERS = {
    f"c/{n}.{field}": data
    for n in range(6)
    for field, data in (("cls", b"%d" % (n % 2)), ("jpg", bytes(n)), ("json", b'{"w": %d}' % n))
}


def doubled(sample: tarkit.Sample) -> dict[str, bytes]:
    return {**sample, "cls": 2 * sample["cls"]}


def ignored(line: str) -> None:
    """Take a warning."""


STEPS: Mapping[str, Callable[[tarkit.Dataset], tarkit.Dataset]] = {
    "none": lambda data: data,
    "where": lambda data: data.where("cls == 1 and json.w > 2 or has(txt)"),
    "choices": lambda data: data.match("c").keys(["c/1", "c/2"]).sample(0.9, seed=1).slice(0, 5),
    "fields": lambda data: data.select("a:jpg cls").require("a|b").rekey("{stem}/{key}/{index:03d}"),
    "drop": lambda data: data.drop("*.jpg", "json"),
    "sort": lambda data: data.sort(by=["cls", "json.w"], reverse=True),
    "order file": lambda data: data.sort(order_file="order.txt"),
    "shuffle": lambda data: data.shuffle(seed=3),
    "buffer": lambda data: data.buffer_shuffle(4, seed=3),
    "map": lambda data: data.map(doubled),
    "maps": lambda data: data.map(doubled, processes=2),
    "proc": lambda data: data.proc("cp sample.jpg sample.png"),
    "worker": lambda data: data.worker("cat"),
    "mix": lambda data: tarkit.mix([(data, 2), (data.rekey("x{key}"), 1)], seed=1).select("cls"),
    "names": lambda data: tarkit.mix([{"shards": "in.tar", "rename": {"cls": "label"}, "rekey": "y{key}"}], seed=1),
}


@pytest.mark.forks
@each_row("steps", STEPS)
def test_a_pickled_dataset_has_the_same_samples(steps: str, archive: Archive) -> None:
    """Before and after it was read."""
    archive(MEMBERS)
    Path("order.txt").write_text("".join(f"c/{n}\n" for n in (3, 1, 2, 0, 5, 4)))
    data = STEPS[steps](tarkit.open("in.tar", on_problem=ignored))
    again = pickle.dumps(data)
    right = samples_of(data)
    assert right
    assert samples_of(pickle.loads(again)) == samples_of(pickle.loads(pickle.dumps(data))) == right


def test_what_cannot_be_pickled(archive: Archive) -> None:
    """Lambdas, as elsewhere in Python; what another process does not have."""
    archive(MEMBERS)
    data = tarkit.open("in.tar")
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(data.map(lambda sample: sample))
    with pytest.raises(TypeError, match="cannot pickle a dataset of a file object"):
        pickle.dumps(tarkit.open(io.BytesIO(b"")))
    with pytest.raises(TypeError, match="cannot pickle a dataset of stdin"):
        pickle.dumps(tarkit.open("-"))


def test_a_pickled_indexed_dataset(archive: Archive) -> None:
    """The shards are opened again, and must be as they were."""
    archive(MEMBERS)
    data = tarkit.open("in.tar").indexed()
    pickled = pickle.dumps(data)
    again = pickle.loads(pickled)
    assert (len(again), again.keys(), samples_of(again)) == (len(data), data.keys(), samples_of(data))
    archive({**MEMBERS, "d.jpg": b"1"})
    with pytest.raises(tarkit.Unsupported, match="the archive has changed since its headers were read"):
        pickle.loads(pickled)["c/3"]


PROGRAM = """
import multiprocessing
import sys

import tarkit


def keys(data):
    return [sample.key for sample in data]


def labels(data, numbers):
    return [bytes(data[number]["cls"]) for number in numbers]


if __name__ == "__main__":
    name, method = sys.argv[1:]
    data = tarkit.open(name)
    indexed = data.indexed()
    assert len(list(data)) == len(indexed) == 6
    with multiprocessing.get_context(method).Pool(2) as pool:
        chosen = data.where("cls == 1").rekey("{key}/{index}")
        print(pool.map(keys, [data, chosen]))
        print(pool.starmap(labels, [(indexed, [0, 1]), (indexed, [5])]))
"""


def work(name: str, method: str, **how: Any) -> str:
    """Run a program whose processes, begun with this method of multiprocessing, read a dataset that it has read."""
    Path("work.py").write_text(PROGRAM)
    words = [sys.executable, "work.py", name, method]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **how)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


FOUND = "[['c/0', 'c/1', 'c/2', 'c/3', 'c/4', 'c/5'], ['c/1/0', 'c/3/1', 'c/5/2']]\n[[b'0', b'1'], [b'1']]\n"


@pytest.mark.slow
@each_row("method", multiprocessing.get_all_start_methods())
def test_processes(method: str, archive: Archive) -> None:
    archive(MEMBERS)
    assert work("in.tar", method) == FOUND


def test_samples(archive: Archive) -> None:
    """A pickled sample has its bytes, links and odd entries included, whether the archive is there or not."""
    path = archive({"a.x": b"1", "a.cls": b"3", "big.x": bytes(2 << 20), "c.x": b"3"})
    for decode in (None, True):
        samples = list(tarkit.open(path, decode=decode))
        with open(path, "rb") as file:
            streamed = [pickle.dumps(sample) for sample in tarkit.open(file, decode=decode)]
        copies = [pickle.loads(pickle.dumps(sample)) for sample in samples]
        for sample, *others in zip(samples, copies, map(pickle.loads, streamed), strict=True):
            for other in others:
                assert type(other) is type(sample)
                assert dict(other) == dict(sample)
                assert (other.key, other.offset, other.sizes) == (sample.key, sample.offset, sample.sizes)
        assert [copy["__url__"] for copy in copies] == [sample.shard for sample in samples] == ["in.tar"] * 3
