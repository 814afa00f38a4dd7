"""Values of columns of a Parquet file, in any order: those of the file, in bounded memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tarkit.tables import stored_columns
from tarkit.tables.parquet import plain_values
from tarkit.tables.stored_columns import StoredColumns
from tests._tools import each_row

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

ROWS = 500
KINDS: dict[str, Any] = {
    "numbers": list(range(4 * ROWS)),
    "text": [f"caption {number}" * (number % 7) or None for number in range(4 * ROWS)],
    "categories": arrow.array([f"class {number % 5}" for number in range(4 * ROWS)]).dictionary_encode(),
    "vectors": [[float(number)] * 300 for number in range(4 * ROWS)],
    "records": [{"a": number, "b": [str(number)]} for number in range(4 * ROWS)],
    "nulls": [None] * (4 * ROWS),
}


@pytest.mark.slow
@each_row("memory", [0, 20_000, 1 << 30])
def test_values_in_any_order(memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as those of the whole table, whether columns are in memory or in temporary space."""
    monkeypatch.setattr(stored_columns, "MEMORY", memory)
    table = arrow.table(KINDS)
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=ROWS)
    stored = StoredColumns(parquet.ParquetFile(tmp_path / "x.parquet"), str(tmp_path))
    expected = {name: plain_values(table.column(name)) for name in KINDS}
    rng = random.Random(memory)
    for turn in range(600):
        name, number = rng.choice(list(KINDS)), rng.randrange(4 * ROWS)
        group, row = divmod(number, ROWS)
        assert stored.value(group, name, row) == expected[name][number]
        if turn % 100 == 0:
            column = stored.column(group, name)
            assert plain_values(column) == expected[name][group * ROWS : (group + 1) * ROWS]


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of 64 MB take no more than the bound, and the one that was read last."""
    monkeypatch.setattr(stored_columns, "MEMORY", 8 << 20)
    text = arrow.array([f"{number:08}" * 500 for number in range(1000)])
    table = arrow.concat_tables([arrow.table({"text": text})] * 16)
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=1000)
    del table
    before = arrow.total_allocated_bytes()
    stored = StoredColumns(parquet.ParquetFile(tmp_path / "x.parquet"), str(tmp_path))
    for turn in range(3):
        for group in range(16):
            assert stored.value(group, "text", turn * 300) == f"{turn * 300:08}" * 500
    assert arrow.total_allocated_bytes() - before < 20 << 20
