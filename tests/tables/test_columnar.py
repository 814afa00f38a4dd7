"""Parquet tables as samples: which field a column is, what its content is, what a key is, and what is refused."""

from __future__ import annotations

import io
import json
import random
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row, samples_of
from tests.conftest import Archive, Content, Run, entries

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

PNG, JPEG, FLAC = b"\x89PNG\r\n\x1a\n1", b"\xff\xd8\xff\xe0", b"fLaC"


def table(columns: dict[str, Any], path: str = "t.parquet", **features: str) -> str:
    """Write a table, whose columns have these types of Hugging Face; return its name."""
    made = arrow.table(columns)
    if features:
        types = {name: {"_type": kind} for name, kind in features.items()}
        made = made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": types}})})
    parquet.write_table(made, path)
    return path


def medium(content: bytes | None, path: str | None = None) -> dict[str, Any]:
    """Return a picture or a sound as Hugging Face has it."""
    return {"bytes": content, "path": path}


KEY = {"__key__": ["d/a"]}


LIST_VIEWS = [({"d": arrow.array([[0]], arrow.list_view(arrow.date32()))}, {}, {"d": b'["1970-01-01"]'})]
LIST_VIEWS *= int(arrow.__version__.partition(".")[0]) >= 20  # older ones do not write them


@each_row(
    ("columns", "features", "expected"),
    [
        # values
        (
            {"txt": ["ß"], "n": [7], "x": [0.5], "ok": [True]},
            {},
            {"txt": "ß".encode(), "n": b"7", "x": b"0.5", "ok": b"true"},
        ),
        ({"a": [[1, 2]], "o": [{"p": None, "q": "ß"}]}, {}, {"a": b"[1,2]", "o": '{"p":null,"q":"ß"}'.encode()}),
        ({"a": arrow.array([None, "x"][:1], "string"), "b": [""]}, {}, {"b": b""}),
        ({"a": arrow.array(["x"]).dictionary_encode(), "__index_level_0__": [3]}, {}, {"a": b"x"}),
        ({"t": arrow.array([0], arrow.timestamp("ms"))}, {}, {"t": b"1970-01-01 00:00:00.000"}),
        ({"m": arrow.array([[("a", 0)]], arrow.map_("string", arrow.date32()))}, {}, {"m": b'[["a","1970-01-01"]]'}),
        *LIST_VIEWS,
        (
            {"d": [Decimal("12345678901234567890")], "e": [Decimal("1.10")]},
            {},
            {"d": b"12345678901234567890", "e": b"1.1"},
        ),
        ({"a": [{"bytes": b"x", "path": 3}]}, {}, {"a": b'{"bytes":"x","path":3}'}),
        # pictures and sounds
        ({"image": [medium(PNG)], "cls": ["1"]}, {}, {"png": PNG, "cls": b"1"}),
        ({"image": [medium(PNG, "x.JPEG")]}, {}, {"jpg": PNG}),
        ({"image": [medium(PNG, "d/a.b.JPG")]}, {}, {"b.JPG": PNG}),
        ({"image": [medium(b"?", None)]}, {}, {"image": b"?"}),
        ({"seg.png": [medium(JPEG, "x.jpg")], "audio": [medium(FLAC)]}, {}, {"seg.png": JPEG, "flac": FLAC}),
        (
            {"image": [medium(JPEG)], "mask": [medium(PNG)], "b": [PNG]},
            {},
            {"image.jpg": JPEG, "mask.png": PNG, "b": PNG},
        ),
        ({"picture": [JPEG], "n": [1]}, {}, {"jpg": JPEG, "n": b"1"}),
        ({"bin": [b"\0\xff"], "jpg": [PNG]}, {}, {"bin": b"\0\xff", "jpg": PNG}),
        ({"image": [medium(None)], "n": [1]}, {}, {"n": b"1"}),
        # classes
        ({"label": [3], "x": [1]}, {"label": "ClassLabel"}, {"cls": b"3", "x": b"1"}),
        ({"fine": [3], "coarse": [1]}, {"fine": "ClassLabel", "coarse": "ClassLabel"}, {"fine": b"3", "coarse": b"1"}),
        ({"label": [3], "cls": [1]}, {"label": "ClassLabel"}, {"label": b"3", "cls": b"1"}),
    ],
)
def test_columns(columns: dict[str, Any], features: dict[str, str], expected: dict[str, bytes], here: Path) -> None:
    """A column is a field, whose name may follow from its type, its paths and its contents; null is no field."""
    [sample] = tarkit.open(table(KEY | columns, **features))
    assert (sample.key, dict(sample)) == ("d/a", expected)


ROWS = {
    "id": [7, 8],
    "image": [medium(PNG, "a.png"), medium(JPEG)],
    "text": ["x", None],
    "v": [[1.5], [2]],
    "n": [1, 2],
}


@each_row(
    ("words", "key", "expected"),
    [
        ("jpg:image txt:text", "id", [("7", {"jpg": PNG, "txt": b"x"}), ("8", {"jpg": JPEG})]),
        (
            "json:{t:text,n} v",
            "a/{id:03d}",
            [("a/007", {"json": b'{"t":"x","n":1}', "v": b"[1.5]"}), ("a/008", {"json": b'{"n":2}', "v": b"[2.0]"})],
        ),
        (
            "json.a.b:n n",
            "{n}-{index}",
            [("1-0", {"json": b'{"a":{"b":1}}', "n": b"1"}), ("2-1", {"json": b'{"a":{"b":2}}', "n": b"2"})],
        ),
        ("n", None, [("t/000000000", {"n": b"1"}), ("t/000000001", {"n": b"2"})]),
    ],
)
def test_chosen_fields(words: str, key: str | None, expected: list[Any], run: Run) -> None:
    """`--set` says which columns are fields, and `--key` which one is the key: in cat, split, create and in Python."""
    name = table(ROWS)
    options = ["--set", words, *(["--key", key] if key else [])]
    run("cat", name, *options, "-o", "cat.tar")
    run("split", name, *options, "-c", "2", "-o", "split-%d.tar")
    assert samples_of(tarkit.open(name, set=words, key=key)) == samples_of(tarkit.open("cat.tar")) == expected
    assert Path("split-0.tar").read_bytes() == Path("cat.tar").read_bytes()
    run("create", name, "--format", "parquet", *options, "-o", "create.tar")
    created = samples_of(tarkit.open("create.tar"))
    assert created == [(each if key else each.removeprefix("t/"), fields) for each, fields in expected]


def test_arrays(here: Path) -> None:
    """Lists of numbers are arrays in a field that has arrays, of the type that the table has."""
    numpy = pytest.importorskip("numpy")
    name = table(KEY | {"e": arrow.array([[[1, 2], [3, 4]]], arrow.list_(arrow.list_(arrow.float32())))})
    [sample] = tarkit.open(name, set="npy:e", decode=True)
    assert sample["npy"].dtype == numpy.float32
    assert sample["npy"].tolist() == [[1, 2], [3, 4]]


@each_row(
    ("columns", "words", "message"),
    [
        ({"a": ["x"]}, ["--key", "b"], "there is no column 'b'"),
        ({"a": ["x"]}, ["--set", "txt:c"], "there is no column 'c'"),
        ({"a": ["x"]}, ["--set", "txt:"], "--set 'txt:': a word must be FIELD, FIELD:COLUMN or json:{A,B:COLUMN}"),
        ({"__key__": ["a", "a"], "b": ["x", "y"]}, [], "t.parquet:2: the key 'a' is that of the row before"),
        ({"__key__": ["a", "b", "a"], "b": ["x"] * 3}, [], "t.parquet:3: 'a.b' belongs to a sample that ended before"),
        ({"__key__": ["a.b"], "b": ["x"]}, [], "t.parquet:1: invalid key 'a.b': a dot after the last slash ends a key"),
        ({"__key__": ["a", None], "b": ["x", "y"]}, [], "t.parquet:2: column '__key__' of the key is empty"),
        ({"__key__": ["a"], "b/c": ["x"]}, [], "t.parquet:1: invalid column name 'b/c'"),
        ({"__key__": ["a"], "@b": ["x"]}, [], "t.parquet: a column of sources: '@b'"),
        ({"__key__": ["a"], "b": arrow.nulls(1, "string")}, [], "t.parquet:1: all columns are null"),
        ({"__key__": ["a"], "i": [medium(None, "/etc/passwd")]}, [], "'i' has a path and no bytes: '/etc/passwd'"),
        ({"__key__": ["a"], "i": [medium(PNG, "a.x")], "x": ["y"]}, [], "t.parquet:1: two columns for 'x'"),
        ({"__key__": ["a"], "d": [Decimal("0.12345678901234567890")]}, [], "has more digits than a number has"),
        ({"__key__": ["a"], "__shard__": ["s"]}, [], "t.parquet: a view needs the columns"),
        ({"__key__": ["a"], "e": [[[1], [2, 3]]]}, ["--set", "npy:e"], ":1: the column 'e' has no array for 'npy'"),
    ],
)  # fmt: skip
def test_refused(columns: dict[str, Any], words: list[str], message: str, run: Run) -> None:
    """What is no sample is an error that names file and row; nothing is written."""
    ran = run("cat", table(columns), *words, "-o", "o.tar", exit=None)
    assert (ran.status > 0, message in ran.lines[0]) == (True, True), ran.stderr
    assert len(ran.lines) <= 2
    assert not Path("o.tar").exists()


def test_no_table(run: Run, archive: Archive) -> None:
    """Options of tables need one; a damaged one is named; a view is no recipe."""
    name = archive({"a.txt": b""})
    for view in ("x.view.parquet", "spark.view.parquet/part-0.parquet"):
        Path(view).parent.mkdir(exist_ok=True)
        shutil.copy(table(KEY | {"a": ["x"]}), view)
        ran = run("cat", view, "-o", "o.tar", exit=2)
        assert f"{view}: a view needs the columns __key__, __shard__, __start__, __stop__; missing: __sh" in ran.stderr
        assert "write it again with these columns" in run("check", view, exit=1).stdout.decode()
    for words in ("--no-locate", "--no-key"):
        ran = run("tsv", name, "-f", "txt", words, "-o", "new.view.parquet", exit=2)
        assert "new.view.parquet: the name is that of a view, and the table would not say" in ran.stderr
        assert not Path("new.view.parquet").exists()
    line = "tarkit: --key is for tables (.parquet, .tfrecord, .mds), and no input is one"
    assert run("cat", name, "--key", "x", exit=2).lines[0] == line
    data = Path(table(KEY | {"a": ["x" * 999]})).read_bytes()
    for cut in (b"", data[:50], data[:-9] + data[-8:], data[:30] + bytes(60) + data[90:]):
        Path("t.parquet").write_bytes(cut)
        ran = run("cat", "t.parquet", "-o", "o.tar", exit=1)
        assert ran.lines[0].startswith("tarkit: t.parquet: damaged, or not a Parquet file")
    run("cat", name, "-o", "v.parquet")
    assert "a view, which has no contents" in run("create", "v.parquet", "--format", "parquet", exit=2).stderr
    assert "--format parquet packs its rows" in run("create", "v.parquet", exit=2).stderr


def test_any_output_and_order(run: Run) -> None:
    """Commands read tables as they read the archive with the same samples; several tables are told apart by keys."""
    name = table({"uid": [f"u{n}" for n in range(9)], "n": list(range(9)), "image": [medium(PNG)] * 9})
    run("cat", name, "-o", "a.tar")
    for words in (
        ["sort", "-s", "n", "--reverse"],
        ["shuffle", "--seed", "3"],
        ["cat", "--where", "n > 3", "-f", "x:png"],
    ):
        command, *rest = words
        run(command, name, *rest, "-o", "one.tar")
        run(command, "a.tar", *rest, "-o", "two.tar")
        assert Path("one.tar").read_bytes() == Path("two.tar").read_bytes()
    assert run("stats", name, "--total").stdout == b"9\n"
    Path("u.parquet").write_bytes(Path(name).read_bytes())
    run("cat", name, "u.parquet", "a.tar", "--rekey", "{index}", "-o", "both.tar")
    assert len({key.partition(".")[0] for key, _ in entries(Path("both.tar"))}) == 27
    assert len(tarkit.open([name, "u.parquet"]).head(99)) == 18


def test_pipes(run: Run) -> None:
    """`create` takes a table from a pipe; a view of a table cannot be, as its samples are in no archive."""
    data = Path(table(KEY | {"txt": ["x"]})).read_bytes()
    assert entries(run("create", "--format", "parquet", stdin=data).stdout) == [("d/a.txt", b"x")]
    assert "tarkit cat t.parquet -o NAME.tar" in run("cat", "t.parquet", "-o", "v.parquet", exit=2).stderr


NAMES = ["a", "d.1/b", "é", "\udce9", "x y", "n" * 60, "A"]
FIELDS = ["jpg", "txt", "seg.png", "TXT", "a.b.c", "é", "a b", "b\nc", "flac", "json.x", "jpg.gz", "__x__"]
CONTENTS = [b"", b"\0", b"\xff\xfe", b"text\n", b'{"a": 1}', PNG, b"null"]


@pytest.mark.slow
def test_there_and_back(run: Run, archive: Archive) -> None:
    """An archive as a table, and that as an archive, has the same samples: keys, fields and bytes."""
    draw = random.Random(5)
    for _ in range(40):
        fields = draw.sample(FIELDS, draw.randint(1, 5))
        first = draw.choice(["\udcff", "é"])  # the first rows give a column its type
        content = {name: draw.choice([CONTENTS, CONTENTS[3:5]]) for name in fields}
        rows: list[tuple[str, Content]] = [
            (f"{first}.{name}", b"\xff" if b"\0" in content[name] else b"x") for name in fields
        ]
        for key in draw.sample(NAMES, draw.randint(0, 5)):
            if key == first or (first == "é" and key == "\udce9"):
                continue
            present = [name for name in fields if draw.random() < 0.7] or fields[:1]
            rows += [(f"{key}.{name}", draw.choice(content[name])) for name in present]
        name = archive(rows)
        run("tsv", name, "-f", "*", "-o", "t.parquet")
        run("cat", "t.parquet", "-o", "back.tar")
        run("check", "back.tar", "--same-as", name)
        run("create", "t.parquet", "--format", "parquet", "-o", "back.tar")
        run("check", "back.tar", "--same-as", name)


def test_memory(run: Run) -> None:
    """A batch of rows is read at a time, whatever the size of a row group."""
    from tarkit.tables import columnar

    count = 40
    schema = arrow.schema([("__key__", "string"), ("bin", "binary")])
    sink = io.BytesIO()
    with parquet.ParquetWriter(sink, schema, use_dictionary=False, write_batch_size=4, data_page_size=1) as writer:
        rows = {"__key__": [str(n) for n in range(count)], "bin": [bytes([n]) * 1_000_000 for n in range(count)]}
        writer.write_table(arrow.table(rows, schema), row_group_size=count)
    del rows
    Path("t.parquet").write_bytes(sink.getvalue())
    sizes = []
    with open("t.parquet", "rb") as file:
        for row in columnar.ColumnarTable(file, "t").rows():
            assert row.value == bytes([row.line - 1]) * 1_000_000
            sizes.append(arrow.total_allocated_bytes())
    assert len(sizes) == count
    assert max(sizes) < 30_000_000
