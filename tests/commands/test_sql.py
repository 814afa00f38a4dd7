"""`tarkit sql`: what a query may name, which values it reads, and what its result is written as."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Content, Run, keys, on_terminal, tar

pytest.importorskip("duckdb")
arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

ROWS: dict[str, Content] = {
    "d/a.cls": b"3",
    "d/a.json": b'{"label": "x", "n": {"m": 1.5}, "id": 7}',
    "d/a.txt": "ä\tb".encode(),
    "d/b.cls": b"4\n",
    "d/b.json": b'{"label": "y", "n": null}',
    "d/c.cls": b"3",
    "d/c.jpg": b"\xff\xd8\0",
}
# of each sample an entry: the samples begin at 0, 3072 and 5120


def write_tables() -> str:
    """Write the archive of the queries, and tables beside it; return its name."""
    Path("t.csv").write_text("id,name\nd/a,one\nd/b,\n")
    Path("t.tsv").write_text("id\tname\nd/a\t\\N\nd/b\ttwo\n")
    Path("t.jsonl").write_text('{"id": "d/c", "v": [1, 2]}\n')
    parquet.write_table(arrow.table({"id": ["d/a"], "x": [0.5]}), "t.parquet")
    Path("in.tar").write_bytes(tar(ROWS))
    return "in.tar"


@pytest.fixture
def data(here: Path) -> str:
    """The archive of the queries."""
    return write_tables()


@each_row(
    ("query", "expected"),
    [
        ("from 'in.tar' limit 1", ["__key__ __shard__ __start__ __stop__", "d/a in.tar 0 3072"]),
        ("select cls, count(*) n from 'in.tar' group by cls order by cls", ["cls n", "3 2", "4 1"]),
        ("select cls + 1 as c from 'in.tar' where cls = 4", ["c", "5"]),
        ("select json.label, json.n.m, json.id from 'in.tar'", ["label m id", "x 1.5 7", r"y \N \N", r"\N \N \N"]),
        ("select \"json.n.m\" from 'in.tar' where json.label = 'x'", ["json.n.m", "1.5"]),
        ("select a.json.label l from 'in.tar' a where a.cls > 3", ["l", "y"]),
        ("select txt, length(txt) n from 'in.tar' where txt is not null", ["txt n", r"ä\tb 3"]),
        ("select json from 'in.tar' where json.label = 'y'", ["usage: json and json.label: one is in the other"]),
        ("select json->>'label' l from 'in.tar' where json is not null", ["l", "x", "y"]),
        ("select size, \"size.jpg\" s from 'in.tar' where __key__ = 'd/c'", ["size s", "4 3"]),
        ("select hex(jpg) h, octet_length(jpg) n from 'in.tar' where jpg is not null", ["h n", "FFD800 3"]),
        ("select sum(size.cls) from 'in.tar'", ["sum(size.cls)", "4"]),
        ("select __key__ k from 'in.tar' where cls > (select avg(cls) from 'in.tar')", ["k", "d/b"]),
        ("with t as (from 'in.tar') select sum(t.cls) c, max(n) n from t, (select 1 n)", ["c n", "10 1"]),
        ("with t as (from 'in.tar' where cls = 3) select count(*) n, min(t.cls) c from t", ["n c", "2 3"]),
        ("select a.cls k, name from 'in.tar' a join 't.csv' t on __key__ = id", ["k name", "3 one", r"4 \N"]),
        ("select a.cls, name from 'in.tar' a join 't.tsv' t on a.__key__ = t.id", ["cls name", r"3 \N", "4 two"]),
        ("select v, x from 't.jsonl' full join 't.parquet' using (id) order by id", ["v x", r"\N 0.5", r"[1,2] \N"]),
        ("select a.cls x, b.cls y from 'in.tar' a join 'in.tar' b using (__key__) where y = 4", ["x y", "4 4"]),
        ("select * exclude (__shard__, __stop__) from 'in.tar' where cls = 4", ["__key__ __start__", "d/b 3072"]),
        ("select __key__ k from 'in.tar' qualify rank() over (partition by cls order by __key__) > 1", ["k", "d/c"]),
        ("select cls % 2 as cls from 'in.tar' order by cls", ["cls", "0", "1", "1"]),
        ("select [jpg, 'a'::blob] l from 'in.tar' where jpg is not null", ["l", '["base64:/9gA","a"]']),
        ("select null a, true c, date '2020-01-02' d, 1.5::decimal(3,1) e", ["a c d e", r"\N true 2020-01-02 1.5"]),
        # what is refused
        ("select clss from 'in.tar'", ["no sample has 'clss': 'd/a' has no field 'clss'"]),
        ("select count(*) from 'no.tar'", ["no.tar: No such file or directory"]),
        ("select * from 'no.csv'", ["sql: IO Error: No files found that match the pattern"]),
        ("select nofunction(cls) from 'in.tar'", ["sql: Catalog Error: Scalar Function with name nofunction"]),
        ("select t.nothing from 't.csv' t", ["sql: Binder Error: "]),
        ("select upper(jpg) from 'in.tar'", ["sql: Binder Error: "]),
        ("select cls::date from 'in.tar'", ["sql: "]),
        ("select 1 a, 2 a", ["usage: two columns are named 'a'"]),
        ("copy (select 1) to 'made.csv'", ["usage: a query is a SELECT statement: nothing else is done"]),
        ("create table t (i int)", ["usage: a query is a SELECT statement"]),
        ("attach 'made.db'", ["usage: "]),
        ("select 1; select 2", ["usage: 2 queries: one is needed"]),
        ("selct 1", ["usage: invalid query: syntax error"]),
        (" ", ["usage: the query is empty"]),
        ("select cls from 'in.tar' , 't.parquet' where nothing = 1", ["no sample has 'nothing'"]),
        ("from 'https://host/x.csv'", ["https://host/x.csv: csv and jsonl are read from files"]),
    ],
)
def test_queries(query: str, expected: list[str], run: Run) -> None:
    """A query reads values by the names that expressions have, and gives rows, or an error in a line."""
    write_tables()
    before = sorted(os.listdir())
    ran = run("sql", query, exit=None)
    if ran.status == 0:
        assert ran.stdout.decode().replace("\t", " ").splitlines() == expected
        assert ran.stderr == ""
    else:
        said = ran.lines[0].replace("tarkit: ", "usage: " if ran.status == 2 else "")
        assert said.startswith((expected[0], f"usage: {expected[0]}"))
        assert len(ran.lines) <= 2
        assert ran.stdout == b""
    assert sorted(os.listdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "tsv", "jsonl"])
def test_types_of_duckdb(format: str, run: Run) -> None:
    """A value of any type is written, or its column is named with the repair, and nothing is left."""
    write_tables()
    values = """1::utinyint 1::hugeint 1::uhugeint [1::hugeint] 1.5::float 1.5::decimal(30,2) 'infinity'::timestamp
        '2020-01-01'::timestamp_ns date'2020-01-01' time'10:00:00' '10:00:00+01'::timetz '101'::bit 'x'::blob uuid()
        now() true null 'a'::enum('a') [1,2] array_value(1,2) {'a':1} map{'a':1} '{"a":1}'::json
        to_days(1) [to_days(1)] {'a':to_days(1)} union_value(x:=1)"""
    refused = []
    for value in values.split():
        ran = run("sql", f"select {value} v from 'in.tar'", "--format", format, "-o", "made", exit=None)
        assert Path("made").exists() == (ran.status == 0)
        if ran.status:
            assert ran.lines[0].startswith("tarkit: the column 'v' has a type that is not written: ")
            assert ran.lines[1] == "hint: cast it: 'v'::varchar"
            refused.append(value)
        else:
            Path("made").unlink()
    assert refused == values.split()[-4 if format == "parquet" else -1 :]


def test_types_that_change(run: Run, archive: Archive) -> None:
    """Text that is a number is one, unless other samples have text there; then all are text, as they are written."""
    archive({"a.cls": b"1", "b.cls": b"x", "c.n": b"2", "d.n": b"2.5", "e.bin": b"\xff", "f.bin": b"7"})
    from tarkit.export import parquet as export

    whole = run("sql", "select cls, n, typeof(cls) t, typeof(n) u, octet_length(bin) b from 'in.tar'").stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "GROUP_ROWS", 1)
        found = run("sql", "select cls, n::double n, typeof(cls) t from 'in.tar'").stdout.decode().splitlines()
    assert [line.split("\t")[2] for line in found[1:]] == ["VARCHAR"] * 6
    assert [line.split("\t")[0] for line in found[1:3]] == ["1", "x"]
    assert whole.decode().splitlines()[1].split("\t")[2:4] == ["VARCHAR", "DOUBLE"]


def test_results_as_files(run: Run, data: str) -> None:
    """The suffix says the format; Parquet keeps types; a result with places is a view, as seen from its directory."""
    query = "select cls, json.label as label, {'a': cls} as o from 'in.tar' order by __key__"
    run("sql", query, "-o", "r.jsonl")
    assert json.loads(Path("r.jsonl").read_text().splitlines()[0]) == {"cls": 3, "label": "x", "o": {"a": 3}}
    run("sql", query, "--format", "csv", "--no-header", "-o", "r.txt")
    assert Path("r.txt").read_text().splitlines()[0] == '3,x,"{""a"":3}"'
    run("sql", query, "-o", "r.parquet")
    assert parquet.read_table("r.parquet").to_pylist()[1] == {"cls": 4, "label": "y", "o": {"a": 4}}
    run("sql", "select sum(cls) s from 'in.tar'", "-o", "s.parquet")
    assert parquet.read_schema("s.parquet").field("s").type == arrow.int64()
    Path("sub").mkdir()
    run("sql", "from 'in.tar' where cls = 3 order by __key__ desc", "-o", "sub/v.view.parquet")
    assert parquet.read_table("sub/v.view.parquet")["__shard__"].to_pylist() == ["../in.tar"] * 2
    run("cat", "sub/v.view.parquet", "-o", "c.tar")
    assert keys(Path("c.tar")) == "d/c d/a"
    run("sql", "select *, txt from 'sub/v.view.parquet' where json.label = 'x'", "-o", "w.parquet")
    assert parquet.read_table("w.parquet").to_pylist()[0]["__shard__"] == "in.tar"
    run("cat", "w.parquet", "--where", "txt != ''", "-o", "c.tar")
    assert keys(Path("c.tar")) == "d/a"
    ran = run("sql", "select cls from 'in.tar'", "-o", "x.view.parquet", exit=2)
    assert "x.view.parquet: a view has the columns __key__, __shard__, __start__, __stop__; missing:" in ran.lines[0]
    assert "in.tar is both input and output" in run("sql", "from 'in.tar'", "-o", "in.tar", exit=2).stderr


def test_more_ranges(run: Run, data: str) -> None:
    """Further ranges and fields of a view stay, as seen from the output."""
    Path("sub").mkdir()
    Path("sub/o.tar").write_bytes(tar({"d/a.seg": b"s"}))
    row = {"__key__": "d/a", "__shard__": "../in.tar", "__start__": 0, "__stop__": 1024}
    more = [{"shard": "o.tar", "start": 0, "stop": 1024}]
    parquet.write_table(
        arrow.Table.from_pylist([{**row, "__more__": more, "__fields__": "c:cls seg"}]), "sub/v.parquet"
    )
    run("sql", "from 'sub/v.parquet'", "-o", "w.parquet")
    run("cat", "w.parquet", "-o", "c.tar")
    [sample] = tarkit.open("c.tar")
    assert dict(sample) == {"c": b"3", "seg": b"s"}


def test_a_terminal(run: Run, data: str) -> None:
    """Columns are in line there, with numbers to the right, and long texts cut; control characters are escapes."""
    shown, _ = on_terminal("sql", "-q", "select cls, txt, jpg from 'in.tar'")
    assert shown.splitlines() == [
        "cls  txt     jpg",
        "  3  ä\\x09b  NULL",
        "  4  NULL    NULL",
        "  3  NULL    <3 bytes>",
    ]
    shown, _ = on_terminal("sql", "-q", f"select '{'x' * 99}' t", "--no-header")
    assert shown == f"{'x' * 59}…\n"
    _, ran = on_terminal("sql", "select 1", "--format", "parquet", exit=2)
    assert "refusing to write Parquet to a terminal" in ran.stderr


def test_inputs_of_other_kinds(run: Run, data: str) -> None:
    """Compressed archives and stdin have keys and values, and no place; a query may come from stdin."""
    run("cat", data, "-o", "z.tar.gz")
    assert run("sql", "from 'z.tar.gz' where cls = 4").stdout == b"__key__\nd/b\n"
    assert run("sql", "select count(cls) n from '-'", stdin=Path("z.tar.gz")).stdout == b"n\n3\n"
    assert run("sql", "-", stdin=b"select max(cls) m\nfrom '*.tar'").stdout == b"m\n4\n"
    assert "archives and Parquet files are different tables" in run("sql", "from '*.{tar,parquet}'", exit=2).stderr


def test_problems(run: Run, archive: Archive) -> None:
    """A field that is not what its name says is an error, unless such samples are skipped."""
    archive({"a.json": b"{", "b.json": b'{"x": 1}'})
    assert "[bad-field]" in run("sql", "select json.x from 'in.tar'", exit=1).stderr
    assert run("sql", "select json.x from 'in.tar'", "--skip", "bad-field", "-q").stdout == b"x\n1\n"
    run("cat", "in.tar", "-o", "v.parquet")
    ran = run("sql", "select json.x from 'v.parquet'", "--skip", "bad-field", exit=1)
    assert "2 rows, and 1 sample: some were left out" in ran.stderr


def test_a_source_that_is_read_again(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and problems count once, and `--maxerr` is for all tables together."""
    monkeypatch.setattr("tarkit.export.parquet.GROUP_ROWS", 1)
    archive({"a.cls": b"1", "b.cls": b"x", "c.json": b"{"})
    query = "select cls, json.x from 'in.tar'"
    ran = run("sql", query, "--skip", "bad-field", "--report", "r.json", exit=1)  # no sample has json.x
    assert ran.stderr.count("[bad-field]") == 1
    Path("o.tar").write_bytes(tar({"a.cls": b"1", "b.cls": b"x", "c.json": b"{", "d.json": b'{"x": 1}'}))
    ran = run("sql", query.replace("in.tar", "o.tar"), "--skip", "bad-field", "--report", "r.json")
    report = json.loads(Path("r.json").read_text())
    assert (report["problems"], report["samples"]) == ({"bad-field": 1}, 4), report
    Path("p.tar").write_bytes(Path("o.tar").read_bytes())
    both = "select a.json.x, b.json.x y from 'o.tar' a join 'p.tar' b using (__key__)"
    assert "[bad-field]" in run("sql", both, "--maxerr", "1", exit=1).stderr
    run("sql", both, "--maxerr", "2")


def test_python(here: Path, archive: Archive) -> None:
    """`tarkit.sql` returns a table of pyarrow, or the number of rows that it writes."""
    archive(ROWS)
    found = tarkit.sql("select __key__, cls from 'in.tar' where cls = 3")
    assert found.to_pylist() == [{"__key__": "d/a", "cls": 3}, {"__key__": "d/c", "cls": 3}]
    assert tarkit.sql("from 'in.tar'", "o.csv", header=False) == 3
    assert len(Path("o.csv").read_text().splitlines()) == 3
    value = 3  # names in Python are no tables
    with pytest.raises(tarkit.TarkitError, match="value: No such file"):
        tarkit.sql("from value")
    del value


def test_against_a_model(run: Run, archive: Archive) -> None:
    """Groups, sums and choices of random samples are those of dicts."""
    draw = random.Random(4)
    for _ in range(5):
        samples = {
            f"k{n:03}": {"cls": draw.randrange(4), "n": draw.randrange(100)} for n in range(draw.randrange(1, 60))
        }
        archive([(f"{key}.{name}", b"%d" % value) for key, row in samples.items() for name, value in row.items()])
        counts = Counter(row["cls"] for row in samples.values())
        totals = {cls: sum(row["n"] for row in samples.values() if row["cls"] == cls) for cls in counts}
        rows = tarkit.sql("select cls, count(*) c, sum(n)::bigint s from 'in.tar' group by cls").to_pylist()
        assert {row["cls"]: (row["c"], row["s"]) for row in rows} == {cls: (counts[cls], totals[cls]) for cls in counts}
        run("sql", "from 'in.tar' where n > 50 order by n desc, __key__", "-o", "v.view.parquet")
        run("cat", "v.view.parquet", "-o", "out.tar")
        chosen = sorted((-row["n"], key) for key, row in samples.items() if row["n"] > 50)
        assert [sample.key for sample in tarkit.open("out.tar")] == [key for _, key in chosen]
