"""`transform` and `as_tuple` of `tarkit.loader`: any value for a sample, none or several, the same after a resume."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row

SHARDS = "s-*.tar"


@pytest.fixture(autouse=True)
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write three shards of 4, 5 and 6 samples."""
    monkeypatch.chdir(tmp_path)
    for shard in range(3):
        with tarkit.TarWriter(f"s-{shard}.tar") as writer:
            for number in range(4 + shard):
                writer.write({"__key__": f"{shard}/{number}", "cls": number, "txt": f"text {shard}"})


def noisy(sample: dict[str, Any]) -> tuple[str, float, float]:
    """Return a value that depends on random numbers."""
    return sample["__key__"], random.random(), tarkit.sample_random().random()


@each_row(
    ("options", "value"),
    [
        ({"transform": lambda sample: sample["cls"] + 1}, [1, 2, 3, 4]),
        ({"transform": lambda sample: None if sample["cls"] == 1 else sample["__key__"]}, ["0/0", "0/2", "0/3"]),
        ({"transform": lambda sample: [sample["cls"]]}, [[0], [1], [2], [3]]),  # a list is one value
        ({"transform": lambda sample: (n for n in range(sample["cls"]))}, [0, 0, 1, 0, 1, 2]),
        ({"transform": lambda sample: (sample["cls"], 1), "batch": 3}, [([0, 1, 2], [1, 1, 1]), ([3], [1])]),
        ({"transform": lambda sample: sample["cls"], "batch": 3}, [[0, 1, 2], [3]]),
        ({"transform": lambda sample: {"n": sample["cls"]}, "batch": 4}, [{"n": [0, 1, 2, 3]}]),
        ({"select": "txt cls", "as_tuple": True}, [("text 0", 0), ("text 0", 1), ("text 0", 2), ("text 0", 3)]),
        (
            {"select": ["cls", "__key__"], "as_tuple": True, "batch": 3},
            [([0, 1, 2], ["0/0", "0/1", "0/2"]), ([3], ["0/3"])],
        ),
        ({"select": "__url__", "as_tuple": True, "batch": 4}, [(["s-0.tar"] * 4,)]),
        ({"select": "cls", "as_tuple": True, "batch": 4}, [([0, 1, 2, 3],)]),
    ],
)
def test_values(options: dict[str, Any], value: list[Any]) -> None:
    """A loader gives what the function returns, or tuples."""
    assert list(tarkit.loader("s-0.tar", decode=True, **options)) == value


def test_random_numbers() -> None:
    """They differ by epoch, sample and value, are those of a sample for any workers, and leave the process's alone."""
    numpy = pytest.importorskip("numpy")

    def drawn(sample: dict[str, Any]) -> tuple[str, float, float, float]:
        return sample["__key__"], random.random(), numpy.random.rand(), tarkit.sample_random().random()

    data = tarkit.loader(SHARDS, transform=drawn, epochs=2)
    random.seed(1)
    numpy.random.seed(1)
    expected = random.random(), numpy.random.rand()
    random.seed(1)
    numpy.random.seed(1)
    given = list(data)
    assert (random.random(), numpy.random.rand()) == expected
    assert len(set(given)) == len(given) == len({number for _, number, _, _ in given}) == 30
    assert len({numbers for _, *drawn in given for numbers in drawn}) == 90
    parts = [tarkit.loader(SHARDS, transform=drawn, worker=worker, workers=3) for worker in range(3)]
    assert sorted(value for part in parts for value in part) == sorted(given[:15])
    full = [
        tarkit.loader(SHARDS, transform=drawn, shuffle="full", worker=w, workers=n) for n in (1, 2) for w in range(n)
    ]
    assert sorted(full[0]) == sorted([*full[1], *full[2]])


FIRST = """
import numpy, tarkit
values = [list(tarkit.loader("s-0.tar", transform=lambda sample: float(numpy.random.rand()))) for _ in range(2)]
assert values[0] == values[1], values
"""


def test_random_numbers_of_the_first_sample() -> None:
    """They follow from the seed too: numpy imports its random numbers only when they are used."""
    pytest.importorskip("numpy")
    subprocess.run([sys.executable, "-c", FIRST], check=True)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception(kind: type[BaseException]) -> None:
    """It names the sample, and the sample comes again."""

    def fails(sample: dict[str, Any]) -> Iterator[str]:
        if sample["cls"] == 2 and broken == "at once":
            raise kind("no")
        yield sample["__key__"]
        if sample["cls"] == 2 and broken:
            raise kind("no")
        yield sample["__key__"].upper()

    options: dict[str, Any] = {"decode": True, "shuffle_shards": False, "transform": fails}
    whole = [key for number in range(4) for key in [f"0/{number}"] * 2]
    for batch, broken in product((None, 3), ("at once", "later")):
        data = tarkit.loader("s-0.tar", batch=batch, **options)
        given: list[Any] = []
        with pytest.raises(kind, match="no") as caught:
            given.extend(data)
        notes = ["tarkit: in the transform of '0/2' in s-0.tar"] if kind is ValueError else []
        assert getattr(caught.value, "__notes__", []) == notes
        again = tarkit.loader("s-0.tar", batch=batch, **options)
        again.load_state_dict(data.state_dict())
        broken = ""
        given.extend(again)
        assert (given if batch is None else [key for part in given for key in part]) == whole


@each_row(
    ("options", "message"),
    [
        ({"transform": 3}, "transform"),
        ({"as_tuple": True}, "as_tuple requires select"),
        ({"as_tuple": True, "select": "cls", "transform": len}, "as_tuple cannot be used with transform"),
    ],
)
def test_usage(options: dict[str, Any], message: str) -> None:
    """Options that do not go together are refused."""
    with pytest.raises((tarkit.Usage, TypeError), match=message):
        tarkit.loader(SHARDS, **options)


def test_random_numbers_outside_of_transform() -> None:
    """Nothing says which sample they would be of."""
    with pytest.raises(tarkit.Usage, match="function of transform="):
        tarkit.sample_random()


def test_no_length_with_transform() -> None:
    """Its number of values is known only where `equal` or `length` sets it."""
    with pytest.raises(TypeError, match="the number of samples is known"):
        len(tarkit.loader(SHARDS, shuffle="full", transform=noisy))
    assert len(tarkit.loader(SHARDS, shuffle="full", transform=noisy, equal="drop")) == 15


def test_endless_order_of_nothing() -> None:
    """An endless order whose samples are all left out ends with an error."""
    with pytest.raises(tarkit.TarkitError, match="no samples that give a value"):
        next(iter(tarkit.loader(SHARDS, transform=lambda _: None, epochs=None, resample=True)))
