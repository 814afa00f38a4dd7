"""Records by key, against a dict."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tarkit.spill import keyed
from tarkit.spill.keyed import KeyedRecords, RepeatedRecord
from tests._tools import each_row


@each_row("how", ["first", "last", "error"])
@each_row("memory", [64 << 20, 10_000, 0])
def test_records(how: str, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any records, some with one key, are found by their keys and their numbers, in memory or not; no file is left."""
    draw = Random(how)
    monkeypatch.setattr(keyed, "BATCH", 7)
    monkeypatch.setattr(keyed, "MEMORY", memory)
    pairs = [(draw.randbytes(draw.choice((1, 2, 20))), draw.randbytes(draw.randrange(300))) for _ in range(500)]
    if how == "error":
        pairs = list(dict(pairs).items())
    records = KeyedRecords(str(tmp_path), how)
    for key, record in pairs:
        records.add(key, record, key[-1:])
    records.complete()
    assert os.listdir(tmp_path) == []
    expected: dict[bytes, tuple[int, bytes]] = {}
    for number, (key, record) in enumerate(pairs, 1):
        if how == "last" or key not in expected:
            expected[key] = number, record
    assert len(records) == len(expected)
    assert dict(records.numbered_keys()) == {number: key for key, (number, _) in expected.items()}
    for key, (number, record) in expected.items():
        assert records.find(key) == (number, record)
        assert records.find_all([b"no such key", key]) == {key: (number, record)}
        assert records.record(number) == record
    assert records.find(b"no such key") is None
    assert records.find_all([b"no such key", b"none"]) == {}
    for tail in b"\1", b"\2", b"\3":
        found = sorted((number, key) for key, (number, _) in expected.items() if key[-1:] == tail)
        assert records.with_tail([tail], 3) == found[:3]


@each_row("memory", [64 << 20, 600, 0])
def test_repeated(memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is there already is an error, with the number of the later record."""
    monkeypatch.setattr(keyed, "MEMORY", memory)
    records = KeyedRecords(str(tmp_path))
    for number in (1, 2, 1, 2):
        records.add(b"%d" % number, b"")
    with pytest.raises(RepeatedRecord) as raised:
        records.complete()
    assert (raised.value.key, raised.value.number) == (b"1", 3)
    assert records.record(3) == b""
