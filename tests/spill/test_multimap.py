"""Equal keys among many, exactly."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from tarkit.spill import multimap
from tarkit.spill.multimap import Multimap, in_runs


@pytest.mark.parametrize("few", [0, 1 << 20])
@pytest.mark.parametrize("held", [50, 500, 5000, 1 << 30])
def test_groups(held: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values of each key, in order, wherever they were kept."""
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
    """They are keys and values like others."""
    book = Multimap()
    for key, value in ((b"", b""), (b"a", b""), (b"", b"x")):
        book.add(key, value)
    assert dict(book.repeated()) == {b"": [b"", b"x"]}


def test_equal_checksums_are_no_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys of one checksum stay two."""
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
    """In order if they fit, else in sorted runs; nothing is lost."""
    items = [(n * 7 % 10, n) for n in range(10)]
    assert list(in_runs(items)) == sorted(items)
    assert list(in_runs(items, 4)) == [*sorted(items[:4]), *sorted(items[4:8]), *sorted(items[8:])]
