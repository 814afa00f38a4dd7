"""The shards of webdataset's specifications, compared with its own class."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit.errors import TarkitError, Usage
from tarkit.mixing.shards import replace_specs
from tarkit.streams.location import Location
from tests._tools import each_row

SPECS = (
    "datasets: [{shards: 'a-{0..3}.tar', choose: 2}, {shards: b.tar, resample: 3}]",
    "{prefix: '', datasets: [{name: x, shards: [b.tar, 'a-{0..1}.tar']}, {shards: 'a-{2..3}.tar', choose: 1}]}",
    "{prefix: '$SHARDS/', buckets: [d], datasets: [{shards: 'c{0..2}.tar'}, {buckets: '.', shards: a-0.tar}]}",
    "{buckets: d, datasets: [{shards: 'c{0..2}.tar', resample: 5}]}",
)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files of these names."""
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDS", str(tmp_path))
    Path("d").mkdir()
    for name in (*(f"a-{n}.tar" for n in range(4)), "b.tar", *(f"d/c{n}.tar" for n in range(3))):
        Path(name).touch()


def replaced(text: str, seed: int, name: str = "spec.yaml") -> list[str]:
    Path(name).write_text(text)
    lines: list[str] = []
    found = replace_specs([Location("path", name, name)], seed, lines.append, lines.append)
    assert lines == []
    return [location.text for location in found]


@each_row("text", SPECS)
def test_shards_and_their_order_are_those_of_webdataset(
    text: str, shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = pytest.importorskip("webdataset.shardlists")
    monkeypatch.setenv("ALLOW_OBSOLETE", "1")
    for seed in range(5):
        found = replaced(text, seed)
        theirs = lists.MultiShardSample("spec.yaml")
        theirs.set_epoch(seed)
        assert found == [each["url"] for each in theirs]


def test_other_inputs_stay(shards: None) -> None:
    Path("s.YML").write_text("dataset: [{shards: 'a-{0..3}.tar'}]")
    given = [Location("path", "b.tar", "b.tar"), Location("path", "s.YML", "s.YML"), Location("pipe", "x.yaml", "x")]
    found = replace_specs(given, 1, str, str)
    assert [found[0], found[-1]] == [given[0], given[2]]
    assert sorted(each.text for each in found[1:-1]) == [f"a-{n}.tar" for n in range(4)]


@each_row(
    ("text", "error"),
    [
        ("datasets: [{shards: b.tar, weight: 2}]", "`weight`"),
        ("datasets: [{shards: b.tar, rename: {a: b}}]", "`rename`"),
        ("sources: [{shards: b.tar}]", "`weight`"),
        ("datasets: [{shards: c.tar}]", "No such file"),
        ("datasets: [{shards: b.tar, choose: 2}]", "choose 2 of 1"),
        ("a: b", "neither"),
    ],
)
def test_specifications_that_are_no_list_of_shards(text: str, error: str, shards: None) -> None:
    with pytest.raises((Usage, TarkitError), match=error):
        replaced(text, 1)
