"""Containers that spill to disk: values by key, and pairs by rank."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from tarkit.spill import multimap, records
from tarkit.spill.multimap import Multimap, in_runs
from tarkit.spill.records import by_rank
from tests._tools import each_row


@each_row("few", [0, 1 << 20])
@each_row("held", [50, 500, 5000, 1 << 30])
def test_groups(held: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values of each key are returned in order, in memory and on disk."""
    monkeypatch.setattr(multimap, "HELD", held)
    monkeypatch.setattr(multimap, "FEW", few)
    draw = random.Random(held)
    expected: dict[bytes, list[bytes]] = {}
    book = Multimap()
    for number in range(300):
        key, value = b"%d" % draw.randrange(80), b"v%d" % number
        book.add(key, value)
        expected.setdefault(key, []).append(value)
    assert book.count == 300
    assert dict(book.groups()) == expected
    assert not list(book.groups())


def test_empty_keys_and_values() -> None:
    book = Multimap()
    for key, value in ((b"", b""), (b"a", b""), (b"", b"x")):
        book.add(key, value)
    assert dict(book.repeated()) == {b"": [b"", b"x"]}


def test_equal_checksums_are_not_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = b"plumless", b"buckeroo"
    assert crc32(one) == crc32(two)
    for held in (1, 1 << 20):
        monkeypatch.setattr(multimap, "HELD", held)
        book = Multimap()
        book.add(one, b"1")
        book.add(two, b"2")
        assert not list(book.repeated())
        assert dict(Multimap().groups()) == {}


def test_runs() -> None:
    """Items are sorted if they fit, else in sorted runs; none is lost."""
    items = [(n * 7 % 10, n) for n in range(10)]
    assert list(in_runs(items)) == sorted(items)
    assert list(in_runs(items, 4)) == [*sorted(items[:4]), *sorted(items[4:8]), *sorted(items[8:])]


@each_row("memory", [0, 1000, 1 << 20])
@each_row("ranks", [3, 1000])
def test_by_rank(memory: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are in the order of `sorted`, stable within a rank, for any memory limit."""
    monkeypatch.setattr(records, "SORTED", memory)
    draw = random.Random(memory)
    pairs = [(b"%d" % draw.randrange(ranks), b"v%d" % number) for number in range(300)]
    assert list(by_rank(iter(pairs), None)) == [value for _, value in sorted(pairs, key=lambda pair: pair[0])]
    assert not list(by_rank([], None))
