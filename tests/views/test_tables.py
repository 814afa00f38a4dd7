"""Random tables as views, chosen, shuffled and split by rows: what comes out is what pyarrow gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.sorting.shuffle import random_keys
from tests._tools import traced
from tests.conftest import Archive

arrow = pytest.importorskip("pyarrow", reason="views are Parquet files")
compute = pytest.importorskip("pyarrow.compute", reason="views are Parquet files")
parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")

ROUNDS = 25 * int(os.environ.get("TARKIT_TESTS_ROUNDS", "1"))
SAMPLES = 300
VALUES: dict[str, tuple[Any, Callable[[Random], Any]]] = {
    "i": (arrow.int64(), lambda draw: draw.choice([0, 3, -1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)])),
    "n": (arrow.int32(), lambda draw: draw.randrange(4)),
    "u": (arrow.uint64(), lambda draw: draw.choice([3, (1 << 64) - 1])),
    "f": (arrow.float64(), lambda draw: draw.choice([0.5, -0.0, 0.0, float("inf"), draw.random()])),
    "g": (arrow.float32(), lambda draw: draw.randrange(8) / 4),
    "t": (arrow.string(), lambda draw: draw.choice(["", "a", "b", "\xe9", "\U0001f40d", "c\0"])),
    "w": (arrow.dictionary(arrow.int8(), arrow.string()), lambda draw: draw.choice("abc")),
    "b": (arrow.bool_(), lambda draw: draw.random() < 0.5),
    "data": (arrow.binary(), lambda draw: draw.randbytes(draw.randrange(4))),
    "list": (arrow.list_(arrow.float32()), lambda draw: [draw.randrange(9)] * draw.randrange(3)),
    "o": (arrow.struct([("a", arrow.int64()), ("b", arrow.string())]), lambda draw: {"a": 3, "b": draw.choice("xy")}),
    "when": (arrow.timestamp("us", "UTC"), lambda draw: datetime(2026, 1, draw.randint(1, 28), tzinfo=UTC)),
    "none": (arrow.int16(), lambda draw: None),
}
CONDITIONS: dict[str, Callable[[Any], Any]] = {  # expressions, and the same of pyarrow, of columns without null
    "i == 3": lambda table: compute.equal(table["i"], 3),
    "i < 9007199254740993": lambda table: compute.less(table["i"], (1 << 53) + 1),
    "3 > i": lambda table: compute.greater(3, table["i"]),
    "n in (1, 3)": lambda table: compute.is_in(table["n"], arrow.array([1, 3], arrow.int32())),
    "n >= 2 and f < 0.5": lambda table: compute.and_(
        compute.greater_equal(table["n"], 2), compute.less(table["f"], 0.5)
    ),
    "f != 0": lambda table: compute.not_equal(table["f"], 0.0),
    "not 0.5 <= f": lambda table: compute.invert(compute.less_equal(0.5, table["f"])),
    "u > 3": lambda table: compute.greater(table["u"], arrow.scalar(3, arrow.uint64())),
    "g == 0.25 or t > 'a'": lambda table: compute.or_(
        compute.equal(table["g"], 0.25), compute.greater(table["t"], "a")
    ),
    "w == 'b'": lambda table: compute.equal(table["w"].cast(arrow.string()), "b"),
    "b": lambda table: table["b"],
    "__key__ < 'k2'": lambda table: compute.less(table["__key__"], "k2"),
    "f < 2": lambda table: compute.less(table["f"], 2.0),
    "f < 0": lambda table: compute.less(table["f"], 0.0),
    "i == 0.5": lambda table: compute.equal(table["n"], 9),
}
NEEDED = {"i", "n", "u", "f", "g", "t", "w", "b"}


def write_random(draw: Random, places: Any) -> Any:
    """Write `v.parquet`: rows of some samples with values of all types, in groups of any size; return the table."""
    count = draw.choice([0, 1, 9, 100, 300])
    rows = draw.sample(range(SAMPLES), count)
    table = places.take(arrow.array(rows, arrow.int64()))
    for name in draw.sample([*VALUES], len(VALUES)):
        kind, value = VALUES[name]
        nulls = 0 if name in NEEDED else draw.choice([0, 0.3])
        cells = [None if draw.random() < nulls else value(draw) for _ in rows]
        table = table.append_column(name, arrow.array(cells, kind))
    with parquet.ParquetWriter("v.parquet", table.schema, use_dictionary=draw.random() < 0.5) as writer:
        begin = 0
        while begin < count:
            if draw.random() < 0.2:
                writer.write_table(table.slice(0, 0))
            size = draw.choice([1, 2, 7, 50, count])
            writer.write_table(table.slice(begin, size))
            begin += size
    return parquet.read_table("v.parquet")


def columns_of(table: Any) -> dict[str, tuple[str, list[Any]]]:
    """Return the types and the values of all columns, shards as text."""
    types = {name: str(table.schema.field(name).type) for name in table.schema.names}
    types["__shard__"] = "text"
    return {name: (types[name], table[name].to_pylist()) for name in table.schema.names}


@pytest.mark.slow
def test_rows_of_random_tables(archive: Archive) -> None:
    """A filter, a shuffle and a split of a view have the rows and columns that pyarrow gives, in the same order."""
    archive([(f"k{number}.txt", b"7") for number in range(SAMPLES)], "in.tar")
    tarkit.open("in.tar").write("places.parquet")
    places = parquet.read_table("places.parquet")
    draw, some = Random(int(os.environ.get("TARKIT_TESTS_FIRST", "5"))), 0
    for _ in range(ROUNDS):
        table = write_random(draw, places)
        condition, seed, count = draw.choice([*CONDITIONS]), draw.randrange(99), draw.randint(1, 50)
        chosen = table.filter(CONDITIONS[condition](table))
        tarkit.open("v.parquet").where(condition).write("chosen.parquet")
        assert columns_of(parquet.read_table("chosen.parquet")) == columns_of(chosen), condition
        keys = list(islice(random_keys(seed), len(chosen)))
        mixed = chosen.take(arrow.array(sorted(range(len(chosen)), key=keys.__getitem__), arrow.int64()))
        tarkit.open("v.parquet").where(condition).shuffle(seed).write("mixed.parquet")
        assert columns_of(parquet.read_table("mixed.parquet")) == columns_of(mixed), (condition, seed)
        tarkit.open("chosen.parquet").split("cut.parquet", count=count, names="s-%d.tar")
        cut = columns_of(parquet.read_table("cut.parquet"))
        assert cut.pop("__into__")[1] == [f"s-{number // count}.tar" for number in range(len(chosen))]
        assert cut == columns_of(chosen), (condition, count)
        some += 0 < len(chosen) < len(table)
    assert some > ROUNDS // 4


def wide_view(rows: int) -> None:
    """Write `v.parquet`: rows of ranges of one sparse archive, with a class, a score and text."""
    with Path("big.tar").open("wb") as file:
        file.truncate(1024 * rows)
    numbers = range(rows)
    starts = arrow.array([1024 * number for number in numbers])
    columns = {
        "__key__": arrow.array([f"key-{number:09}" for number in numbers]),
        "__shard__": arrow.array(["big.tar"] * rows).dictionary_encode(),
        "__start__": starts,
        "__stop__": compute.add(starts, 1024),
        "cls": arrow.array([number * 7919 % 10 for number in numbers], arrow.int32()),
        "score": arrow.array([number * 7919 % 1000003 / 1000003 for number in numbers]),
        "split": arrow.array([("train", "val")[number % 10 == 0] for number in numbers]),
    }
    parquet.write_table(arrow.table(columns), "v.parquet", row_group_size=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["cls == 3", "score < 0.5", "split == 'val'"])
def test_memory_of_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    """A choice of rows takes no more memory for more rows, in Python and in Arrow, and few bytes of Python a row."""
    monkeypatch.chdir(tmp_path)
    peaks = []
    for rows in (100_000, 200_000):
        wide_view(rows)
        with traced() as memory:
            before = arrow.total_allocated_bytes()
            tarkit.open("v.parquet").where(condition).write("w.parquet")
            peaks.append(memory()[1])
            assert arrow.total_allocated_bytes() - before < 1 << 20
    assert peaks[1] < 1.2 * peaks[0] + (1 << 20)
    assert peaks[1] < 16 << 20


def test_dictionaries_of_columns_whose_values_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a column of different values none is made, which takes long; others have one, which makes them small."""
    monkeypatch.chdir(tmp_path)
    wide_view(100_000)
    tarkit.open("v.parquet").where("cls < 8").write("w.parquet")
    tarkit.open("w.parquet").shuffle(1).write("x.parquet")
    for name in ("w.parquet", "x.parquet"):
        group = parquet.read_metadata(name).row_group(1)
        coded = {
            chunk.path_in_schema for chunk in map(group.column, range(group.num_columns)) if chunk.has_dictionary_page
        }
        assert coded == {"__shard__", "cls", "split"}
