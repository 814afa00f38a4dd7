"""Rows of views that are not read: chosen by columns, shuffled and split, as the samples that they stand for."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.choosing.where import Where
from tarkit.errors import TarkitError
from tarkit.pipeline import view_rows, view_writer
from tarkit.sorting import rows as sorted_rows
from tests._tools import each_row
from tests.conftest import Archive

arrow = pytest.importorskip("pyarrow", reason="views are Parquet files")
parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")

ROUNDS = 60 * int(os.environ.get("TARKIT_TESTS_ROUNDS", "1"))
NUMBERS = [0, 1, -1, 3, (1 << 63) - 1, -(1 << 63), 1 << 53, (1 << 53) + 1]
REALS = [0.5, -0.0, 3.0, 1e300, float("nan"), float("inf"), 2.0**53, 0.1]
TEXTS = ["", "a", "cat", "é", "3", "\U0001f40d", "A cat"]
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "i": (arrow.int64(), NUMBERS),
    "u": (arrow.uint64(), [0, 3, (1 << 64) - 1]),
    "f": (arrow.float64(), REALS),
    "t": (arrow.string(), TEXTS),
    "w": (arrow.dictionary(arrow.int8(), arrow.string()), TEXTS[:3]),
    "b": (arrow.bool_(), [True, False]),
    "d": (arrow.decimal128(9, 2), [Decimal("1.25"), Decimal("3.00")]),
    "l": (arrow.list_(arrow.int64()), [[], [3], [1, 2]]),
    "o": (arrow.struct([("a", arrow.int64())]), [{"a": 3}]),
    "when": (arrow.timestamp("s"), [0, 86400]),
}
VIEWS = [
    arrow.string_view(),
    arrow.binary_view(),
    arrow.list_(arrow.string_view()),
    arrow.struct([("a", arrow.string_view())]),
]
"""Types that few functions of Arrow take."""


def archive_of(archive: Archive, count: int) -> list[dict[str, Any]]:
    """Write an archive of samples with a field `i`; return the rows of a view of it."""
    archive([(f"k{number}.{field}", b"7") for number in range(count) for field in ("i", "txt")], "in.tar")
    tarkit.open("in.tar").write("places.parquet")
    return parquet.read_table("places.parquet").to_pylist()  # type: ignore[no-any-return]


def expression(draw: Random, depth: int = 0) -> str:
    """Return a random expression over the columns."""
    if depth > 2 or draw.random() < 0.3:
        names = [*COLUMNS] * 3 + ["__key__", "has.i", "has(t)", "str(i)", "field('t')"]
        literals = [*map(repr, NUMBERS[:6]), "0.5", "1e400", *map(repr, TEXTS), "null", "true", "[1, 3]", "'\\ud800'"]
        return draw.choice(names if draw.random() < 0.7 else literals)
    parts = [expression(draw, depth + 1) for _ in range(3)]
    one, other, third = parts
    items = draw.choice(["(1, 3)", "['a', 'cat']", "{3, 'a'}", "{1, True}", "(t, i)", "t", "()", "o", "(true, false)"])
    return draw.choice([
        *[f"({one} {sign} {other})" for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%")],
        *[f"({one} {word} {other})" for word in ("and", "or")] * 3,
        *[f"({one} {word} {items})" for word in ("in", "not in")] * 2,
        *[f"(not {one})", f"(-{one})", f"({one} if {other} else {third})", f"({one} < {other} <= {third})"],
        *[f"{name}({one})" for name in ("len", "lower", "int", "float", "abs", "str")],
        *[f"startswith({one}, 'c')", f"match('a', {one})", f"min({one}, {other})", f"l[{one}]", f"{one} is not null"],
        f"t[{draw.choice(['0:1', ':2', '-1:', '0'])}]",
    ])  # fmt: skip


def outcome(expr: str, way: str, **policy: Any) -> tuple[list[str], str, list[str]]:
    """Return the keys that an expression selects, the error, and the warnings: by rows, or by samples."""
    said: list[str] = []
    data = tarkit.open("v.parquet", on_problem=lambda text: said.append(str(text)), **policy)
    try:
        if way == "samples":
            return [sample.key for sample in data.where(expr)], "", said
        return keys_of_rows(data.where(expr)), "", said
    except TarkitError as error:
        return [], f"{error}", said


@pytest.mark.slow
def test_expressions_against_the_plain_evaluation(archive: Archive) -> None:
    """An expression over columns selects what it selects of one sample after the other, with the same problems."""
    draw, places, chosen, failed = Random(os.environ.get("TARKIT_TESTS_FIRST", "3")), archive_of(archive, 40), 0, 0
    for number in range(ROUNDS):
        if number % 20 == 0:
            nulls = draw.choice([0, 0, 0.05])
            columns = {
                name: arrow.array([None if draw.random() < nulls else draw.choice(few) for _ in places], kind)
                for name, (kind, values) in COLUMNS.items()
                for few in [draw.sample(values, draw.randint(1, len(values)))]
            }
            table = arrow.Table.from_pylist(places)
            for name, column in columns.items():
                table = table.append_column(name, column)
            parquet.write_table(table, "v.parquet", row_group_size=draw.choice([7, 40]))
        expr = expression(draw)
        policy = draw.choice([{}, {"skip": ["bad-field", "missing-field"]}, {"allow": ["bad-field", "missing-field"]}])
        expected = outcome(expr, "samples", **policy)
        assert outcome(expr, "rows", **policy) == expected, expr
        chosen += 0 < len(expected[0]) < len(places)
        failed += expected[1] != ""
    assert chosen > ROUNDS // 12
    assert failed > ROUNDS // 8


@pytest.mark.slow
@each_row("expr", ["10 // i > 1", "i == 3", "10 // i > 1 or n == 3", "n == 3", "i + n > 2"])
def test_rows_behind_those_that_are_taken(archive: Archive, expr: str) -> None:
    """An error of a row behind the last one that is taken is none: by columns as by samples, wherever the row is."""
    places = archive_of(archive, 12)
    for bad in (1, 5, 11):
        rows = [{**row, "i": int(number != bad) * 3, "n": 3 - number % 2} for number, row in enumerate(places)]
        rows[bad]["n"] = None
        rows[bad]["__start__"] += 512 * (expr == "n == 3")  # an error where the archive is read
        parquet.write_table(arrow.Table.from_pylist(rows), "v.parquet")
        for count in (1, 2, 4, 6, 12):
            chosen = tarkit.open("v.parquet").where(expr).slice(0, count)
            found: list[list[str] | str] = []
            for keys in (lambda data: [sample.key for sample in data], keys_of_rows):
                try:
                    found.append(keys(chosen))
                except TarkitError as error:
                    found.append(str(error))
            assert found[0] == found[1], (bad, count)


def keys_of_rows(data: Any) -> list[str]:
    """Return the keys of samples, of which a view is written."""
    data.write("out.parquet")
    return parquet.read_table("out.parquet").column("__key__").to_pylist()  # type: ignore[no-any-return]


def test_archives_are_asked_only_where_a_column_is_null(archive: Archive) -> None:
    """A choice by a column reads no archive; rows without a value there are read, and checked."""
    places = archive_of(archive, 6)
    made = [{**row, "i": None if number == 4 else number} for number, row in enumerate(places)]
    parquet.write_table(arrow.Table.from_pylist(made), "v.parquet")
    data = tarkit.open("v.parquet").where("i in (1, 7)")
    data.write("w.parquet")
    assert parquet.read_table("w.parquet").column("__key__").to_pylist() == ["k1", "k4"]
    Path("in.tar").write_bytes(bytes(Path("in.tar").stat().st_size))
    with pytest.raises(TarkitError, match=r"row 5 of v\.parquet"):
        data.write("w.parquet")
    tarkit.open("v.parquet", skip=["changed-source"]).where("i in (1, 7)").write("w.parquet")
    assert parquet.read_table("w.parquet").column("__key__").to_pylist() == ["k1"]


@pytest.mark.parametrize("rows", [2, 40])
def test_samples_drawn_of_rows_keep_their_values(archive: Archive, rows: int) -> None:
    """A step after one that draws rows of a view takes each with its own values, not with those of its neighbours."""
    made = [{**row, "own": row["__key__"]} for row in archive_of(archive, 40)]
    parquet.write_table(arrow.Table.from_pylist(made), "v.parquet", row_group_size=rows)
    drawn = tarkit.open("v.parquet").sample(9, seed=1)
    for data in (drawn.sort(), drawn.shuffle(seed=1), drawn.sample(5, seed=2)):
        data.write("w.parquet")
        written = parquet.read_table("w.parquet")
        assert written.column("own").to_pylist() == written.column("__key__").to_pylist()


def test_two_columns_of_one_name_in_a_joined_table(archive: Archive) -> None:
    """It is an error, as in a table that is an input: which of them is meant is not known."""
    archive_of(archive, 1)
    columns = [arrow.array([text]) for text in ("k0", "one", "other")]
    parquet.write_table(arrow.Table.from_arrays(columns, names=["__key__", "x", "x"]), "t.parquet")
    with pytest.raises(TarkitError, match=r"t\.parquet: the column 'x' is there twice"):
        tarkit.open("in.tar").join("t.parquet").set("x").write("out.tar")


@pytest.mark.parametrize("kind", VIEWS, ids=str)
def test_columns_of_views_of_text(archive: Archive, kind: Any) -> None:
    """Columns that an order of Arrow does not know are shuffled and sorted as others."""
    places = archive_of(archive, 9)
    value = {"string_view": "é", "binary_view": b"e"}.get(str(kind), ["x"] if arrow.types.is_list(kind) else {"a": "x"})
    column = arrow.array([value, None] * 4 + [value], kind)
    try:
        parquet.write_table(arrow.Table.from_pylist(places).append_column("v", column), "v.parquet")
    except arrow.ArrowNotImplementedError as error:
        pytest.skip(f"this pyarrow does not write {kind}: {error}")
    expected = {row["__key__"]: value for row, value in zip(places, column.to_pylist(), strict=True)}
    view = tarkit.open("v.parquet")
    for data in (view.shuffle(seed=1), view.sort("__key__"), tarkit.open("in.tar").join("v.parquet").set("")):
        data.write("w.parquet")
        assert {row["__key__"]: row["v"] for row in parquet.read_table("w.parquet").to_pylist()} == expected
    assert [sample.key for sample in tarkit.open("v.parquet").where("has(v)")] == [
        key for key, value in expected.items() if value
    ]


def test_steps_over_rows_against_samples(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of rows through steps are those of the same steps over archives, whatever the memory and the batches."""
    draw = Random(5)
    for number in range(ROUNDS // 8):
        inputs = []
        for name in "ab"[: draw.randint(1, 2)]:
            archive(
                [(f"{name}{draw.randrange(10**6)}.jpg", b"x" * draw.randrange(900)) for _ in range(90)], f"{name}.tar"
            )
            tarkit.open(f"{name}.tar").write(view := f"{name}.parquet")
            table = parquet.read_table(view)
            values = arrow.array([draw.choice(["x", "y", None]) for _ in range(len(table))])
            table = table.append_column(f"v{name}", values).append_column("n", arrow.array(range(len(table))))
            parquet.write_table(table, view, row_group_size=draw.choice([9, 200]))
            inputs.append(draw.choice([view, view, f"{name}.tar"]))
        monkeypatch.setattr(view_writer, "ROWS", draw.choice([7, 1 << 16]))
        monkeypatch.setattr(view_rows, "MANY", draw.choice([5, 1 << 16]))
        monkeypatch.setattr(sorted_rows, "HELD", draw.choice([200, 1 << 20]))
        monkeypatch.setattr(sorted_rows, "TOGETHER", draw.choice([3, 1 << 16]))
        seed, steps = draw.randrange(99), draw.sample(["match", "shuffle", "sample", "slice"], draw.randint(1, 4))

        def through(data: tarkit.Dataset, steps: list[str] = steps, seed: int = seed) -> tarkit.Dataset:
            for step in steps:
                data = {
                    "match": lambda data: data.match("[13579]$"),
                    "shuffle": lambda data: data.shuffle(seed),
                    "sample": lambda data: data.sample(0.7, seed),
                    "slice": lambda data: data.slice(2, 60, 3),
                }[step](data)
            return data

        through(tarkit.open(inputs)).write("out.parquet")
        through(tarkit.open([f"{name[0]}.tar" for name in inputs])).write("out.tar")
        tarkit.open("out.parquet", allow=["joined-sample"]).write("through.tar")
        assert Path("through.tar").read_bytes() == Path("out.tar").read_bytes(), (number, steps, inputs)
        known = {
            row["__key__"]: row
            for name in inputs
            if name.endswith("parquet")
            for row in parquet.read_table(name).to_pylist()
        }
        for row in parquet.read_table("out.parquet").to_pylist():
            source = known.get(row["__key__"], {})
            assert all(row[name] == source.get(name) for name in row if name[0] != "_"), (steps, inputs)


def test_where_names() -> None:
    """The names of an expression are those whose values it needs."""
    assert Where("cls == 3 and has.json and str(a.b) != field('__key__') or __key__ in ('x', txt)").names == {
        *("cls", "json", "a.b", "\0", "__key__", "txt")
    }


def test_a_plan_of_a_plan(archive: Archive) -> None:
    """The column of shards of a view that is divided again is that of the new shards; other columns stay."""
    places = archive_of(archive, 9)
    made = [{**row, "__into__": "old.tar", "n": number} for number, row in enumerate(places)]
    parquet.write_table(arrow.Table.from_pylist(made), "v.parquet")
    tarkit.open("v.parquet").where("n > 2").split("w.parquet", count=4, names="x-%d.tar")
    table = parquet.read_table("w.parquet")
    assert table.column("__into__").to_pylist() == ["x-0.tar"] * 4 + ["x-1.tar"] * 2
    assert table.column("n").to_pylist() == [*range(3, 9)]
