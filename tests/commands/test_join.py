"""--join and --set: rows of a table go with samples, and columns become fields."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Run, entries

SAMPLES = [
    ("d/a.jpg", b"A"),
    ("d/a.cls", b"1"),
    ("d/b.jpg", b"B"),
    ("d/b.json", b'{"n": 1, "s": "x"}'),
    ("d/c.jpg", b"C"),
]
ROWS = [
    {"id": "d/c", "cls": 7, "txt": "see"},
    {"id": "d/a", "cls": None, "txt": "two\nlines"},
    {"id": "d/z", "cls": 9, "txt": "no"},
]


def table(name: str, rows: Iterable[dict[str, Any]] = ROWS) -> str:
    """Write rows with the same names as a table, whose suffix says the kind."""
    rows = list(rows)
    kind, heads = Path(name).suffix, list(rows[0])
    if kind == ".csv":
        lines = [heads, *([f'"{cell}"' if cell is not None else "" for cell in row.values()] for row in rows)]
        Path(name).write_text("".join(",".join(line) + "\n" for line in lines))
    elif kind == ".tsv":
        cells = [["\\N" if cell is None else str(cell).replace("\n", "\\n") for cell in row.values()] for row in rows]
        Path(name).write_text("".join("\t".join(line) + "\n" for line in (heads, *cells)))
    elif kind == ".jsonl":
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), name)
    return name


def fields(path: str = "out.tar") -> dict[str, bytes]:
    """Return the contents of an archive by name."""
    return dict(entries(path))  # type: ignore[arg-type]


@each_row("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_become_fields(kind: str, run: Run, archive: Archive) -> None:
    """A field is replaced in its place, new ones come last, null removes one; rows are counted and named."""
    archive(SAMPLES, "a.tar")
    name = table(f"t.{kind}")
    ran = run("cat", "a.tar", "--join", f"{name}:id", "--set", "cls caption.txt:txt", "-o", "out.tar", "--report", "r")
    assert entries("out.tar") == [
        *(("d/a.jpg", b"A"), ("d/a.caption.txt", b"two\nlines"), ("d/b.jpg", b"B"), ("d/b.json", SAMPLES[3][1])),
        *(("d/c.jpg", b"C"), ("d/c.cls", b"7"), ("d/c.caption.txt", b"see")),
    ]
    counts = "samples with a row: 2, without: 1 ('d/b'); rows without a sample: 1 ('d/z')"
    assert ran.lines == [f"tarkit: {name}: {counts}"]
    facts = {"with_row": 2, "without_row": 1, "unused": 1, "keys_without_row": ["d/b"], "rows_unused": ["d/z"]}
    assert json.loads(Path("r").read_text())["join"] == facts


@each_row("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_that_is_not_edited(kind: str, run: Run, archive: Archive) -> None:
    """What `tsv` wrote gives the same archive, byte for byte; an edited cell changes its sample alone."""
    samples = [("a.jpg", b"A"), ("a.cls", b"1\n"), ("a.json", b'{"s":"3",  "v": 0.50, "u": null}'), ("b.cls", b"2")]
    samples.append(("b.json", b'{"s": "x", "v": 1, "u": 1, "l": ["p", 2], "o": {"k": []}}'))
    archive(samples, "a.tar")
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    run("tsv", "a.tar", "-f", "cls json.s json.v json.u json.l json.o", "-o", f"t.{kind}", "--allow", "missing-field")
    words = ["--join", f"t.{kind}", "--set", "cls json.s json.v json.u json.l json.o", "-o", "out.tar"]
    run("cat", "a.tar", *words)
    assert Path("out.tar").read_bytes() == Path("a.tar").read_bytes()
    if kind == "parquet":
        return
    Path(f"t.{kind}").write_text(Path(f"t.{kind}").read_text().replace("x", "new"))
    run("cat", "a.tar", *words)
    assert fields() == {**dict(samples), "b.json": samples[4][1].replace(b"x", b"new")}


@each_row(
    ("words", "expected"),
    [
        ("json:{n:cls}", {"d/b.json": {"n": 7, "s": "x"}, "d/c.json": {"n": 7}, "d/a.json": None}),
        ("json:{cls,t.u:txt}", {"d/b.json": {"n": 1, "s": "x", "cls": 7, "t.u": "see"}, "d/a.json": {"t.u": "1"}}),
        ("json.m.k:cls", {"d/b.json": {"n": 1, "s": "x", "m": {"k": 7}}, "d/a.json": None}),
        ("json.s:cls json.n:txt", {"d/b.json": {"n": "see", "s": 7}, "d/a.json": {"n": "1"}}),
    ],
)
def test_members(words: str, expected: dict[str, Any], run: Run, archive: Archive) -> None:
    """Members of JSON are set, the others stay; null removes one."""
    rows = [{"id": "d/a", "cls": None, "txt": "1"}, *({"id": f"d/{key}", "cls": 7, "txt": "see"} for key in "bc")]
    table("t.jsonl", rows)
    run("cat", archive(SAMPLES), "--join", "t.jsonl:id", "--set", words, "-o", "out.tar")
    found = fields()
    assert {name: json.loads(found[name]) if name in found else None for name in expected} == expected


@each_row(
    ("rows", "words", "exit", "text"),
    [
        ("id,a\nd/a,1\nd/a,2\n", [], 1, "t.csv:3: 'd/a' occurs twice in column 'id'"),
        ("id,a\n,1\n", [], 1, "t.csv:2: empty cell in column 'id'"),
        ("q,a\nd/a,1\n", [], 1, "t.csv:1: no column 'id', the columns are 'q', 'a'"),
        (",id,a\n0,d/a,1\n", [], 1, "t.csv:1: invalid column name ''\nhint: pandas writes numbers of rows in such"),
        ("id,a\nd/a,1\n", ["--where", "b == 1"], 1, "'cls'; t.csv has columns 'id', 'a' [missing-field]"),
        ("id,a\nd/b,1\n", ["--where", "a == 1"], 1, "'d/a' has no field 'a', it has 'jpg', 'cls'; no row of t.csv ["),
        ("id,a\nd/a\n", [], 1, "t.csv:2: cells in this row: 1, columns: 2"),
        ("id,a\n", [], 1, "t.csv: no sample has a row: the table has no rows"),
        ("id,a\nx,1\n", [], 1, "no sample has a row: column 'id' begins with 'x', keys with 'd/a'"),
        ("id,jpg\nd/a,1\n", [], 1, "'d/a' has a field 'jpg' already [duplicate-entry]"),
        ("id,a\nd/a,1\n", ["--set", "b"], 1, "--set: t.csv has no column 'b', it has 'id', 'a'"),
        ("id,a\nd/a,1\n", ["--set", "a b c,d"], 2, "a word must be FIELD"),
        ("id,a\nd/b,1\n", ["--set", "json.n.x:a"], 1, "t.csv:2: 'd/b': 'n.x' cannot be set: 'n' is no object"),
        ("id,@a\nd/b,x.bin\n", [], 1, "x.bin: No such file or directory"),
        ("id,@a\nd/b,s3://b/x\n", [], 1, "sources in a joined table are paths"),
    ],
)
def test_refused(rows: str, words: list[str], exit: int, text: str, run: Run, archive: Archive) -> None:
    """An error of a table names the line, and leaves no output."""
    Path("t.csv").write_text(rows)
    assert text in run("cat", archive(SAMPLES), "--join", "t.csv:id", *words, "-o", "out.tar", exit=exit).stderr
    assert not os.path.exists("out.tar")


@each_row(
    ("rows", "words", "line", "repeated"),
    [
        ("d/b,1 d/b.json,2", [], "3: 'd/b.json' is a second row of the sample 'd/b': 'd/b' in line 2 is one too", 1),
        ("d/b.json,1 d/q,5 d/b.jpg,2", [], "4: 'd/b.jpg' is a second row of the sample 'd/b': 'd/b.json' in line 2", 1),
        ("b.jpg,1 b.json,2", ["--join-by", "stem"], "3: 'b.json' is a second row of the sample 'd/b': 'b.jpg'", 1),
        ("x/b,1 y/b.jpg,2", ["--join-by", "stem"], "3: 'y/b.jpg' is a second row of the sample 'd/b': 'x/b'", 1),
        ("b,0 d/b,1 b.json,0 d/b.jpg,2", ["--join-by", "stem"], "5: 'd/b.jpg' is a second row of", 3),
    ],
)
def test_two_rows_of_a_sample(
    rows: str, words: list[str], line: str, repeated: int, run: Run, archive: Archive
) -> None:
    """Two rows that match one sample are an error however their cells are spelled; none is without a sample."""
    Path("t.csv").write_text("\n".join(["id,v.txt", *rows.split(), ""]))
    words = ["cat", archive(SAMPLES), "--join", "t.csv:id", *words, "-o", "out.tar"]
    assert f"t.csv:{line}" in run(*words, exit=1).stderr
    assert not os.path.exists("out.tar")
    for how, expected in ("first", b"1"), ("last", b"2"):
        ran = run(*words, "--on-duplicate", how)
        assert fields()["d/b.v.txt"] == expected
        left = "1 ('d/q')" if "d/q" in rows else "0"
        counted = "1 row left out" if repeated == 1 else f"{repeated} rows left out"
        assert f"rows without a sample: {left}; {counted}, since another has the same key or sample" in ran.stderr


def _rows_of(cells: list[str], key: str, names: list[str], by_stem: bool) -> list[int]:
    """Return the numbers of the rows that match a sample best."""
    exact = [key, *names]
    stems = [name.rpartition("/")[2] for name in exact] if by_stem else []
    for matches in (
        lambda cell: cell in exact,
        lambda cell: cell in stems,
        lambda cell: by_stem and any(cell.endswith(f"/{name}") for name in exact),
        lambda cell: cell.rpartition("/")[2] in stems,
    ):
        if found := [number for number, cell in enumerate(cells) if matches(cell)]:
            return found
    return []


def test_rows_against_a_model(run: Run, archive: Archive) -> None:
    """Any cells find the rows that a list finds, or are an error where two match equally well."""
    draw = Random(5)
    for _ in range(60):
        keys = draw.sample([f"{above}{name}" for above in ("", "p/", "q/") for name in "01"], 3)
        samples = {key: [f"{key}.{field}" for field in draw.sample(["jpg", "cls"], draw.randint(1, 2))] for key in keys}
        tails = [f"{name}{end}" for name in "012" for end in ("", ".jpg", ".cls")]
        cells = draw.sample([f"{above}{tail}" for above in ("", "p/", "q/", "/x/p/", "./") for tail in tails], 5)
        archive([(name, b"0") for names in samples.values() for name in names], "a.tar")
        Path("t.csv").write_text("f,n.txt\n" + "".join(f"{cell},{number}\n" for number, cell in enumerate(cells)))
        by, how = draw.choice(["key", "stem"]), draw.choice(["error", "first", "last"])
        found = {key: _rows_of(cells, key, names, by == "stem") for key, names in samples.items()}
        fails = not any(found.values()) or (how == "error" and max(map(len, found.values())) > 1)
        words = ["cat", "a.tar", "--join", "t.csv:f", "--join-by", by, "--on-duplicate", how, "-o", "out.tar"]
        run(*words, exit=int(fails))
        if not fails:
            expected = {f"{key}.n.txt": b"%d" % rows[-(how == "last")] for key, rows in found.items() if rows}
            assert {name: data for name, data in fields().items() if name.endswith("txt")} == expected, (cells, samples)


def test_values_against_a_model(run: Run, archive: Archive, here: Path) -> None:
    """With --join-by VALUE rows are found by a value of the sample, as a dict finds them."""
    draw = Random(3)
    for _ in range(25):
        samples = {f"k{n}": draw.choice([None, 0, 1, 2.5, True, "1", "x y"]) for n in range(6)}
        archive([(f"{key}.json", json.dumps({} if id is None else {"id": id}).encode()) for key, id in samples.items()])
        cells = draw.sample(["0", "1", "2.5", "true", "x y", "new"], 3)
        given = table(draw.choice(["t.csv", "t.jsonl"]), [{"id": cell, "txt": f"of {cell}"} for cell in cells])
        cell_of = {key: id if isinstance(id, str) else json.dumps(id) for key, id in samples.items()}
        expected = {f"{key}.txt": f"of {cell}".encode() for key, cell in cell_of.items() if cell in cells}
        words = ["cat", "in.tar", "--join", f"{given}:id", "--join-by", "json.id", "-o", "out.tar"]
        ran = run(*words, exit=int(not expected))
        if not expected:
            assert f"column 'id' begins with '{cells[0]}', " in ran.stderr
            continue
        assert {name: data for name, data in fields().items() if name.endswith("txt")} == expected
        unused = sum(cell not in cell_of.values() for cell in cells)
        assert f"with a row: {len(expected)}, without: {6 - len(expected)}" in ran.stderr
        assert f"rows without a sample: {unused}" in ran.stderr
        data = tarkit.open("in.tar").join(given, "id", by="json.id").set()
        assert {f"{one.key}.txt": one["txt"] for one in data if "txt" in one} == expected


def test_values_of_other_kinds(run: Run, archive: Archive) -> None:
    """A field, the key alone and a column of a view are values; content that has none is a problem."""
    archive([("a.cls", b"3\n"), ("a.json", b"{"), ("a.jpg.cls", b"4"), ("b.cls", b"4")])
    table("t.csv", [{"id": "a", "txt": "key"}, {"id": "b.cls", "txt": "name"}, {"id": "3", "txt": "three"}])
    for by, expected in (("__key__", b"key"), ("cls", b"three")):
        ran = run("cat", "in.tar", "--join", "t.csv:id", "--join-by", by, "-o", "out.tar")
        assert (fields()["a.txt"], "b.txt" in fields()) == (expected, False)
        assert "rows without a sample: 2" in ran.stderr
    bad = ["cat", "in.tar", "--join", "t.csv:id", "--join-by", "json.id", "-o", "out.tar"]
    assert "[bad-field]" in run(*bad, exit=1).stderr
    assert "no sample has json.id" in run(*bad, "--skip", "bad-field", exit=1).stderr
    parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")
    run("cat", "in.tar", "-o", "v.parquet")
    parquet.write_table(parquet.read_table("v.parquet").append_column("id", [["b.cls", "a"]]), "v.parquet")
    run("cat", "v.parquet", "--join", "t.csv:id", "--join-by", "id", "-o", "out.tar")
    assert (fields()["a.txt"], fields()["b.txt"]) == (b"name", b"key")


def test_paths_by_stem(run: Run, archive: Archive) -> None:
    """With --join-by stem the last part of a cell counts too; a cell that is the key itself goes before it."""
    words = ["cat", archive(SAMPLES), "--join", "t.csv:file", "--join-by", "stem", "-o", "out.tar"]
    Path("t.csv").write_text("file,v.txt\n/data/set/a.jpg,1\n./d/b.json,2\nold/c,3\nd/c,4\n")
    assert "rows without a sample: 1 ('old/c')" in run(*words).stderr
    assert [data for name, data in entries("out.tar") if name.endswith("txt")] == [b"1", b"2", b"4"]
    Path("t.csv").write_text("file,v.txt\n" + "".join(f"{number}/a.jpg,x\n" for number in range(1001)))
    assert "1000 cells and more have the last part of 'd/a', such as '0/a.jpg'" in run(*words, exit=1).stderr


@pytest.mark.forks
def test_an_output_for_each_input(run: Run, archive: Archive) -> None:
    """A table of a few corrections leaves other shards as they are; it is an error if no shard has a row."""
    for name in "ab":
        archive([(f"{name}.jpg", b"x"), (f"{name}.cls", b"1")], f"{name}.tar")
    words = ["cat", "a.tar", "b.tar", "--join", "t.csv", "--set", "cls", "-o", "out-{stem}.tar"]
    Path("t.csv").write_text("__key__,cls\nb,2\n")
    ran = run(*words)
    assert fields("out-b.tar")["b.cls"] == b"2"
    assert Path("out-a.tar").read_bytes() == Path("a.tar").read_bytes()
    assert "t.csv: samples with a row: 0, without: 1 ('a'); rows without a sample: 1 ('b')" in ran.stderr
    Path("t.csv").write_text("__key__,cls\nx/b,2\n")
    run(*words, "--shard-index", "0/2")
    assert "--join: no sample of 2 jobs has a row of the table" in run(*words, exit=1).stderr


def test_a_row_of_two_samples(run: Run, archive: Archive) -> None:
    """A row that two samples have by --join-by stem is counted, unless each has a row of its own."""
    archive([(f"{above}/{name}.jpg", b"x") for above in "pq" for name in "01"], "a.tar")
    words = ["cat", "a.tar", "--join", "t.csv:file", "--join-by", "stem", "-o", "out.tar"]
    Path("t.csv").write_text("file,v.txt\np/0,key\np/1.jpg,file\n0,stem\n1.jpg,name\n")
    assert "an earlier sample" not in run(*words).stderr
    Path("t.csv").write_text("file,v.txt\n0.jpg,zero\n")
    assert "samples whose row an earlier sample has too: 1;" in run(*words).stderr


def test_columns_are_values(run: Run, archive: Archive) -> None:
    """Columns are values before fields: in --where, in tables, and in Python as keys of a sort. They end with `set`."""
    archive(SAMPLES, "a.tar")
    Path("t.csv").write_text('__key__,cls,score,json\nd/a,5,0.5,"{""n"": 4}"\nd/b,,2,\nd/c,3,10,"{""n"": 2}"\n')
    where = "(has(cls) and cls == 5) or score > 3"
    run("cat", "a.tar", "--join", "t.csv", "--where", where, "--set", "", "-o", "out.tar")
    assert entries("out.tar") == [*SAMPLES[:2], SAMPLES[4]]
    ran = run("tsv", "a.tar", "--join", "t.csv", "-f", "score json.n", "--format", "jsonl")
    assert [json.loads(line)["json.n"] for line in ran.stdout.splitlines()] == [4, 1, 2]
    data = tarkit.open("a.tar").join("t.csv")
    assert [sample.key for sample in data.sort("score", reverse=True)] == ["d/c", "d/b", "d/a"]
    assert [sample.key for sample in data.set("json.r:score").where("has(json.r) and json.r > 1")] == ["d/b", "d/c"]


@each_row("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_integers(kind: str, run: Run, archive: Archive) -> None:
    """A whole number as pandas writes it, `7.0`, is an integer for cls and for a member that was one."""
    rows = [{"id": "d/a", "v": 0.0}, {"id": "d/b", "v": 7.0}, {"id": "d/c", "v": None}]
    words = ["--join", f"{table(f't.{kind}', rows)}:id", "--set", "cls:v json.n:v json.new:v", "-o", "out.tar"]
    run("cat", archive(SAMPLES), *words)
    assert (fields()["d/a.cls"], fields()["d/b.cls"]) == (b"0", b"7")
    assert fields()["d/b.json"] == b'{"n": 7, "s": "x", "new": 7.0}'
    run("check", "out.tar", "--decode", "cls", "--allow", "missing-field")


@each_row(
    ("cell", "shown"), [("0.5", "0.5"), ('"cat"', "cat"), ("true", "true"), ("[1]", "[1]"), ("1e400", "Infinity")]
)
def test_no_integers(cell: str, shown: str, run: Run, archive: Archive) -> None:
    """A cell that is no integer is an error for a field of an integer, with the row; a field of text takes it."""
    archive(SAMPLES, "a.tar")
    Path("t.jsonl").write_text(f'{{"__key__": "d/c", "v": 1}}\n{{"__key__": "d/a", "v": {cell}}}\n')
    ran = run("cat", "a.tar", "--join", "t.jsonl", "--set", "cls:v", "-o", "out.tar", exit=1)
    assert f"t.jsonl:2: 'd/a': '{shown}' is no integer, which the field 'cls' holds" in ran.stderr
    assert "cls.txt, or another field of text, takes any value" in ran.stderr
    if shown != "Infinity":
        run("cat", "a.tar", "--join", "t.jsonl", "--set", "cls.txt:v", "-o", "out.tar")


@each_row(
    ("before", "cell", "expected"),
    [
        *(("true", "False", "false"), ("false", "True", "true"), ("1", "True", '"True"'), ('"a"', "True", '"True"')),
        *(("1", "1.10", "1.1"), ("1", "2.0", "2"), ("1.5", "2.0", "2.0"), ('"1"', "2.0", '"2.0"'), ("true", "1", "1")),
        *(("1", "1e400", '"1e400"'), ("1", "nan", '"nan"'), ("[]", "[1]", "[1]"), ("1", "null", "null")),
    ],
)
def test_members_of_csv(before: str, cell: str, expected: str, run: Run, archive: Archive) -> None:
    """A cell of CSV becomes the member that it looks like, text where text was, and a boolean where one was."""
    archive([("a.json", f'{{"m": {before}}}'.encode())], "a.tar")
    Path("t.csv").write_text(f"__key__,v\na,{cell}\n")
    run("cat", "a.tar", "--join", "t.csv", "--set", "json.m:v", "-o", "out.tar")
    assert fields()["a.json"] == f'{{"m": {expected}}}'.encode()


def test_a_sample_without_fields(run: Run, archive: Archive) -> None:
    """A sample whose fields are all removed is left out, and counted."""
    Path("t.tsv").write_text("__key__\tcls\nb\t\\N\n")
    ran = run("cat", archive([("a.cls", b"1"), ("b.cls", b"2")]), "--join", "t.tsv", "--set", "cls", "-o", "out.tar")
    assert entries("out.tar") == [("a.cls", b"1")]
    assert "no field is left of 1 sample, 'b': left out" in ran.stderr


def test_ended_early(run: Run, archive: Archive) -> None:
    """Rows of samples that are not read are not reached, which is no error."""
    Path("t.csv").write_text("__key__,x.cls\nd/c,1\n")
    ran = run("cat", archive(SAMPLES), "--join", "t.csv", "-c", "1", "-o", "out.tar")
    assert "samples with a row: 0, without: 1 ('d/a'); rows not reached: 1 ('d/c')" in ran.stderr


def test_files(run: Run, archive: Archive) -> None:
    """A column `@FIELD` has sources, as in a recipe."""
    archive(SAMPLES, "a.tar")
    Path("m.png").write_bytes(b"mask")
    Path("t.csv").write_text("__key__,@mask.png\nd/a,m.png\nd/b,hex:00ff\nd/c,\n")
    for words, name in (([], "mask.png"), (["--set", "m.png:mask.png"], "m.png")):
        run("cat", "a.tar", "--join", "t.csv", *words, "-o", "out.tar")
        assert fields() == {**dict(SAMPLES), f"d/a.{name}": b"mask", f"d/b.{name}": b"\0\xff"}


def test_values_with_types(run: Run, archive: Archive) -> None:
    """Of JSON lines and Parquet, numbers and objects are JSON text, lists arrays for npy; other fields refuse them."""
    numpy, arrow, parquet = map(pytest.importorskip, ("numpy", "pyarrow", "pyarrow.parquet"))
    archive(SAMPLES, "a.tar")
    vectors = arrow.array([[0.5, 2]], arrow.list_(arrow.float32()))
    parquet.write_table(arrow.table({"__key__": ["d/a"], "v": vectors, "b": [b"\xff"], "t": [True]}), "t.parquet")
    Path("t.jsonl").write_text(json.dumps({"__key__": "d/a", "v": [1, 2], "n": {"m": 0.5}}) + "\n")
    run("cat", "a.tar", "--join", "t.parquet", "--set", "v.npy:v v.txt:v b json:{t,v}", "-o", "out.tar")
    sample = tarkit.open("out.tar").decode().head()[0]
    assert (sample["v.npy"].dtype, sample["v.npy"].tolist()) == (numpy.float32, [0.5, 2])
    assert (sample.raw("v.txt"), sample.raw("b"), sample["json"]) == (b"[0.5,2.0]", b"\xff", {"t": True, "v": [0.5, 2]})
    run("cat", "a.tar", "--join", "t.jsonl", "--set", "v.npy:v n", "-o", "out.tar")
    assert tarkit.open("out.tar").decode().head()[0]["v.npy"].tolist() == [1, 2]
    assert fields()["d/a.n"] == b'{"m":0.5}'
    said = run("cat", "a.tar", "--join", "t.jsonl", "--set", "x.jpg:v", "-o", "out.tar", exit=1).stderr
    assert "t.jsonl:1: 'd/a': a list is no content of the field 'x.jpg'" in said


def test_proc_and_shard(run: Run, archive: Archive, here: Path) -> None:
    """`proc` gets the fields; `shard` has the same words, and adds fields alone."""
    archive(SAMPLES, "a.tar")
    Path("t.csv").write_text("__key__,label,n\nd/a,5,1\n")
    words = ["--join", "t.csv", "--set", "y.cls:label json:{n}"]
    command = "test ! -e sample.y.cls || cp sample.y.cls sample.z"
    run("proc", "-c", command, "a.tar", *words, "--match", "a", "-o", "out.tar")
    assert fields()["d/a.z"] == b"5"
    for name, data in SAMPLES[:2]:
        path = here / "tree" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
    run("shard", "tree", *words, "-c", "9", "-o", "s-%d.tar")
    assert entries("s-0.tar") == [*sorted(SAMPLES[:2]), ("d/a.y.cls", b"5"), ("d/a.json", b'{"n": 1}')]
    ran = run("shard", "tree", *words[:2], "--set", "cls:n", "-c", "9", "-o", "t-%d.tar", exit=1)
    assert "would both be named 'd/a.cls'" in ran.stderr


def test_views(run: Run, archive: Archive) -> None:
    """Of a view its samples' fields are copied, and a view of that has further ranges; columns are set by name."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    archive(SAMPLES, "a.tar")
    archive([("x/c.npy", b"3"), ("x/c.cls", b"9"), ("x/a.npy", b"1")], "e.tar")
    run("cat", "e.tar", "-o", "e.view.parquet")
    view = parquet.read_table("e.view.parquet")
    keys = arrow.array(["d/c", "d/a"])
    view = view.set_column(0, "__key__", keys).append_column("score", arrow.array([0.5, 0.25]))
    parquet.write_table(view, "e.view.parquet")
    run("cat", "a.tar", "--join", "e.view.parquet", "-o", "out.tar")
    assert entries("out.tar") == [
        *SAMPLES[:2], ("d/a.npy", b"1"), *SAMPLES[2:], ("d/c.npy", b"3"), ("d/c.cls", b"9")
    ]  # fmt: skip
    run("cat", "a.tar", "--join", "e.view.parquet", "-o", "both.view.parquet")
    assert [len(row["__more__"] or ()) for row in parquet.read_table("both.view.parquet").to_pylist()] == [1, 0, 1]
    run("cat", "both.view.parquet", "-o", "again.tar")
    assert Path("again.tar").read_bytes() == Path("out.tar").read_bytes()
    words = ["--set", "emb.npy:npy json:{score}", "--where", "has(score) and score < 0.4", "-o", "out.tar"]
    run("cat", "a.tar", "--join", "e.view.parquet", *words)
    assert entries("out.tar") == [*SAMPLES[:2], ("d/a.json", b'{"score": 0.25}'), ("d/a.emb.npy", b"1")]
    run("cat", "e.view.parquet", "--set", "txt:score", "-o", "out.tar")
    assert fields()["d/a.txt"] == b"0.25"
    words = ["cat", "a.tar", "--join", "e.view.parquet"]
    assert "has no field 'jpeg'" in run(*words, "--set", "jpeg", "-o", "o.tar", exit=1).stderr
    assert "and an archive of the table" in run(*words, "-o", "e.tar", exit=2).stderr
    os.rename("e.tar", "gone.tar")  # columns alone need no archive
    run(*words, "--set", "txt:score", "-o", "out.tar")
    assert "named by e.view.parquet" in run(*words, "-o", "o.tar", exit=1).stderr
    Path("e.tar").write_bytes(bytes(10240))
    assert "[changed-source]" in run(*words, "-o", "o.tar", exit=1).stderr


def test_keys_of_other_types(run: Run, archive: Archive) -> None:
    """Numbers, true and false are keys as JSON has them, as for `--key`."""
    name = archive({"true.txt": b"x", "7.txt": b"y"})
    Path("t.jsonl").write_text('{"id": true, "a": 1}\n{"id": 7, "a": 2}\n')
    run("cat", name, "--join", "t.jsonl:id", "--set", "a", "-o", "out.tar")
    assert entries("out.tar") == [("true.txt", b"x"), ("true.a", b"1"), ("7.txt", b"y"), ("7.a", b"2")]


@each_row(
    ("words", "expected"),
    [
        (["--skip", "bad-field"], []),
        (["--allow", "bad-field"], [("a.json", b"{"), ("a.b", b"4"), ("b.json", b"[1]"), ("b.b", b"5")]),
    ],
)
def test_members_of_bad_json(words: list[str], expected: list[Any], run: Run, archive: Archive) -> None:
    """JSON that has no members is a problem: the sample is left out, or kept with this field as it is."""
    archive({"a.json": b"{", "b.json": b"[1]", "c.json": b"{}"}, "a.tar")
    Path("t.csv").write_text("id,a,b\na,1,4\nb,2,5\nc,3,6\n")
    run("cat", "a.tar", "--join", "t.csv:id", "--set", "json:{a} b", *words, "-o", "out.tar")
    assert entries("out.tar") == [*expected, ("c.json", b'{"a": 3}'), ("c.b", b"6")]


@pytest.mark.slow
def test_columns_of_a_view_against_a_model(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a joined table are columns of a view: with it as input the join itself is there."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")
    draw = Random(5)
    kinds: list[Callable[[], Any]] = [
        lambda: draw.randrange(-9, 1 << 58),
        lambda: draw.choice([0.1, 1e300, -2.5]),
        lambda: draw.choice(["x", "007", "1.10", "ü, y", "3", "true"]),
        lambda: draw.random() < 0.5,
        lambda: [draw.randrange(9) for _ in range(draw.randrange(1, 3))],
        lambda: [[draw.random()], []],
        lambda: {"b": draw.randrange(3), "a": draw.choice("xy")},
        lambda: draw.choice([{"a": 1}, {"b": [None]}, [1, "x"], 5]),
    ]
    for _ in range(12):
        suffix, of_kinds = draw.choice([("csv", 3), ("tsv", 3), ("jsonl", 8), ("parquet", 7)])
        columns = {name: draw.choice(kinds[:of_kinds]) for name in "uv"}
        samples: dict[str, dict[str, Any]] = {f"k{n}": {} for n in range(draw.randrange(1, 9))}
        archive([(f"{key}.{field}", b"old") for key in samples for field in ("u", "jpg")])
        source = "in.tar"
        if columns["u"] is not kinds[7] and draw.random() < 0.5:  # a view with values of its own
            samples = {key: {"u": columns["u"](), "x": n} for n, key in enumerate(samples)}
            run("cat", "in.tar", "-o", source := "v.parquet")
            view = parquet.read_table(source)
            for name in "ux":
                view = view.append_column(name, [[sample[name] for sample in samples.values()]])
            parquet.write_table(view, source)
        rows = {key: {name: make() for name, make in columns.items()} for key in draw.sample([*samples], len(samples))}
        if draw.random() < 0.5:
            rows["k0"]["v"] = None
        if draw.random() < 0.3 and len(rows) > 1:
            rows.popitem()
        given = table(f"t.{suffix}", [{"id": key, **row} for key, row in rows.items()])
        join, words = ["--join", f"{given}:id", "--set"], ["--set", "txt:v cls.txt:u", "-o"]
        expected = {key: {**sample, **rows.get(key, {})} for key, sample in samples.items()}
        monkeypatch.setattr("tarkit.pipeline.view_writer.CELLS", draw.choice([50, 8 << 20]))
        run("cat", source, *join, "", "-o", "out.parquet")
        written = parquet.read_table("out.parquet").to_pylist()
        assert [row["__key__"] for row in written] == [*expected]
        for row in written:
            for name, value in expected[row["__key__"]].items():
                assert row[name] in (value, json.dumps(value, separators=(",", ":"))) or str(row[name]) == value
        tarkit.open(source).join(given, "id").sort(reverse=True).write("sorted.parquet")
        assert parquet.read_table("sorted.parquet").to_pylist() == written[::-1]
        run("cat", source, "--keys-from", f"{given}:id", *join, *words[1:], "a.tar")
        run("cat", "out.parquet", "--keys-from", f"{given}:id", *words, "b.tar")
        assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()


@each_row(
    ("suffix", "cells", "expected"),
    [
        ("csv", ["1", "0.5", "0.25", ""], [1.0, 0.5, 0.25, None]),
        ("csv", ["1", "2", "-3", "0"], [1, 2, -3, 0]),
        ("csv", ["0.5", "01", "1", "2"], ["0.5", "01", "1", "2"]),
        ("csv", ["0.50", "1", "2", "3"], ["0.50", "1", "2", "3"]),
        ("csv", ["0.5", "9007199254740993", "1", "2"], ["0.5", "9007199254740993", "1", "2"]),  # no double has it
        ("csv", ["9007199254740993", "1", "2", "3"], [9007199254740993, 1, 2, 3]),
        ("jsonl", ["1", 1, None, [1]], ['"1"', "1", None, "[1]"]),
        ("jsonl", [2, "abc", True, 1.5], ["2", '"abc"', "true", "1.5"]),
        ("jsonl", ["1", "abc", None, "é"], ["1", "abc", None, "é"]),
        ("jsonl", [1, 0.5, 2, None], [1.0, 0.5, 2.0, None]),
    ],
)
def test_types_of_columns(suffix: str, cells: list[Any], expected: list[Any], run: Run, archive: Archive) -> None:
    """Numbers are numbers if all are; values of several types are JSON, which says what each one is."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")
    archive([(f"k{number}.txt", b"") for number in range(4)])
    given = table(f"t.{suffix}", [{"id": f"k{number}", "v": cell} for number, cell in enumerate(cells)])
    run("cat", "in.tar", "--join", f"{given}:id", "--set", "", "-o", "out.parquet")
    found = parquet.read_table("out.parquet").column("v").to_pylist()
    assert repr(found) == repr(expected)


def test_columns_of_a_view_that_is_written(run: Run, archive: Archive) -> None:
    """A view has the columns as values, whether it is said or not; a field of one has new contents, which it cannot."""
    pytest.importorskip("pyarrow", reason="views are Parquet files")
    archive(SAMPLES, "a.tar")
    run("cat", "a.tar", "--join", f"{table('t.csv')}:id", "-o", "v.parquet")
    run("cat", "a.tar", "--join", "t.csv:id", "--set", "", "-o", "said.parquet")
    data = tarkit.open("a.tar").join("t.csv", "id")
    data.write("python.parquet")
    data.set().write("all.parquet")
    for name in ("said", "python", "all"):
        assert Path(f"{name}.parquet").read_bytes() == Path("v.parquet").read_bytes()
    assert run("tsv", "v.parquet", "-f", "txt", "--on-missing-field", "keep").stdout.count(b"see") == 1
    words, hint = run("cat", "a.tar", "--join", "t.csv:id", "--set", "txt", "-o", "x.parquet", exit=2).lines
    assert words == "tarkit: --set txt: a view names ranges of plain archives, and 'txt' has new contents"
    assert hint.startswith("hint: without --set the columns of a joined table are values of the view")
    with pytest.raises(tarkit.Usage, match="'txt' has new contents"):
        data.set("txt").write("x.parquet")
    assert not os.path.exists("x.parquet")


def test_no_columns_of_a_mix(run: Run, archive: Archive) -> None:
    """A view of a mix cannot have the columns of a table that one data set is joined with, and says so."""
    pytest.importorskip("pyarrow", reason="views are Parquet files")
    archive(SAMPLES)
    joined = tarkit.open("in.tar").join(table("t.csv"), "id")
    with pytest.raises(tarkit.TarkitError, match=r"t\.csv: its columns cannot be in a view of a mix"):
        tarkit.mix([joined], seed=1).write("v.parquet")
    assert not os.path.exists("v.parquet")


@each_row("words", [[], ["--set", "x.npy:npy"], ["--set", "npy txt"]])
def test_archives(words: list[str], run: Run, archive: Archive) -> None:
    """Archives are joined as a view of them is; what is written, and what is said, is the same."""
    pytest.importorskip("pyarrow")
    archive(SAMPLES, "a.tar")
    archive([(f"d/{key}.{field}", f"{key} {field}".encode()) for key in "bac" for field in ("npy", "txt")], "b-0.tar")
    archive([("d/z.npy", b"Z"), ("d/z.txt", b"")], "b-1.tar")
    run("cat", "b-0.tar", "b-1.tar", "-o", "b.view.parquet")
    said = run("cat", "a.tar", "--join", "b.view.parquet", *words, "-o", "by-view.tar").lines
    ran = run("cat", "a.tar", "--join", "b-{0..1}.tar", *words, "-o", "out.tar")
    assert ran.lines == [line.replace("b.view.parquet", "b-{0..1}.tar") for line in said]
    assert Path("out.tar").read_bytes() == Path("by-view.tar").read_bytes()
    if not words:
        run("cat", "a.tar", "--join", "b-*.tar", "-o", "both.view.parquet")
        run("cat", "both.view.parquet", "-o", "of-view.tar")
        assert Path("of-view.tar").read_bytes() == Path("out.tar").read_bytes()


@each_row(
    ("table", "exit", "text"),
    [
        ("none.tar", 1, "none.tar: No such file or directory"),
        ("a.tar", 1, "'d/a' has a field 'cls' already"),
        ("twice-*.tar", 1, "'d/a' occurs twice in column '__key__'"),
        ("out.tar", 2, "out.tar is the output, and an archive of the table too"),
        ("b.tar:id", 1, "no column 'id', the columns are '__key__'"),
    ],
)
def test_archives_that_are_refused(table: str, exit: int, text: str, run: Run, archive: Archive) -> None:
    """Each error names the archive, and nothing is written."""
    pytest.importorskip("pyarrow")
    archive(SAMPLES, "a.tar")
    for name in ("b.tar", "twice-0.tar", "twice-1.tar", "out.tar"):
        archive([("d/a.npy", b"1")], name)
    before = Path("out.tar").read_bytes()
    ran = run("cat", "a.tar", "--join", table, "-o", "out.tar", exit=None)
    assert (ran.status, Path("out.tar").read_bytes()) == (exit, before)
    assert text in ran.lines[0]


@each_row("count", [1, 40])
def test_columns_that_set_left_out(count: int, run: Run, archive: Archive) -> None:
    """The error for such a column, which is no value any more, says so; not for other names, nor without a row."""
    fields = {f"{number:02}.{name}": b"1" for number in range(count) for name in ("cls", "jpg")}
    archive({**fields, "x.cls": b"1"})
    table("t.csv", [{"id": f"{number:02}", "label": 7, "text": "a"} for number in range(count)])
    words = "'text' is a column of t.csv, which set leaves out [missing-field]"
    changed = tarkit.open("in.tar").join("t.csv", "id").set("cls:label")
    for data in (
        changed.select("text cls"),
        changed.where("text == 'a'"),
        changed.require("text"),
        changed.join("t.csv", "id").set("jpg:label").select("text"),
        tarkit.loader(changed, select="text cls", threads=0),
        tarkit.open("in.tar").join("t.csv", "id").set("txt:label").where("text == 'a'"),
    ):
        with pytest.raises(tarkit.TarkitError) as error:
            list(data)
        assert words in str(error.value)
    command = ("cat", "in.tar", "--join", "t.csv:id", "--set", "cls:label")
    assert words.replace("which set", "which --set") in run(*command, "-f", "text", exit=1).stderr
    assert "left out" not in run(*command, "-f", "texts", exit=1).stderr
    table("u.csv", [{"id": "00", "more": 1}])
    with pytest.raises(tarkit.TarkitError, match=r"'cls', 'jpg'; u.csv has columns 'id', 'more'"):
        list(changed.join("u.csv", "id").where("texts == 'a'"))
    with pytest.raises(tarkit.TarkitError, match=r"'x' has no field 'text', it has 'cls' \[missing-field\]"):
        list(changed.match("x").select("text"))
    with pytest.raises(tarkit.TarkitError, match=r"'x' has no field 'text', it has 'cls'; no row of t.csv"):
        list(changed.match("x").where("text == 'a'"))
