"""Sets of byte strings in temporary files, against a set in memory."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tarkit.spill import sets
from tarkit.spill.sets import GrowingSet, Marks, StoredSet, set_of
from tests._tools import slow

ALPHABET = [b"\0", b"\1", b"\2", b"a", b"\xff", b"key/"]


def items_of(draw: random.Random, count: int) -> list[bytes]:
    """Return items, some of which come twice, of bytes that have a meaning in the file and others."""
    return [b"".join(draw.choices(ALPHABET, k=draw.randrange(1, 8))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_a_stored_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its items and no others, numbers them, and knows which were added to marks."""
    draw = random.Random(seed)
    monkeypatch.setattr(sets, "WRITTEN", draw.choice((1, 500, 1 << 19)))
    monkeypatch.setattr(sets, "BUCKET", draw.choice((1, 3, 64)))
    items = items_of(draw, draw.choice((0, 1, 40, 9000)))
    stored, model = StoredSet(iter(items), None), set(items)
    assert (len(stored), set(stored)) == (len(model), model)
    assert [stored.number(item) for item in stored] == list(range(len(model)))
    asked = items_of(draw, 300)
    assert [item in stored for item in asked] == [item in model for item in asked]
    marks, some = Marks(stored), [item for item in asked if item in model]
    for item in some + some[:9]:
        marks.add(item)
    assert (len(marks), set(marks.others())) == (len(set(some)), model - set(some))


@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 4))])
def test_a_growing_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of each item whether it is new, through any number of stored sets."""
    draw = random.Random(seed)
    monkeypatch.setattr(sets, "HELD", draw.choice((1, 20, 10_000)))
    monkeypatch.setattr(sets, "MOST", draw.choice((1, 3)))
    monkeypatch.setattr(sets, "FILTER", draw.choice((1, 9, 500)))
    growing, model = GrowingSet(None), set[bytes]()
    for item in items_of(draw, 200):
        assert growing.add(item) == (item not in model)
        model.add(item)


def test_the_kind_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to HELD items are in memory, more in a file."""
    monkeypatch.setattr(sets, "HELD", 3)
    for count, kind in ((0, frozenset), (3, frozenset), (4, StoredSet), (9, StoredSet)):
        made = set_of((b"%d" % number for number in range(count)), None)
        assert isinstance(made, kind)
        assert len(made) == count


CODE = """
import resource
from tarkit.spill import sets
sets.WRITTEN = sets.HELD = 1 << 12
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sets.set_of((b"%020d" % number for number in range(10_000)), None)
before = peak()
found = sets.set_of((b"%020d" % number for number in range(400_000)), None)
assert b"%020d" % 399_999 in found and b"%021d" % 0 not in found
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units")
def test_memory() -> None:
    """400 000 items take 2 MB, where a set of Python takes 50."""
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 4 << 10
