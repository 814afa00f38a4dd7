"""Views: Parquet files that name samples of archives, as outputs and as inputs of commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.pipeline import view_writer
from tarkit.samples.fields import Fields
from tests._tools import TARKIT, each_row
from tests.conftest import Archive, Link, Run, entries, keys, tar

arrow: Any = pytest.importorskip("pyarrow", reason="views are Parquet files")
parquet: Any = pytest.importorskip("pyarrow.parquet")

A = [(f"a{n}.{field}", b"%s %d" % (field.encode(), 9 - n)) for n in range(6) for field in ("cls", "jpg")]
B = [(f"b{n}.{field}", field.encode() * 300) for n in range(3) for field in ("jpg", "txt")]


def rows(path: str) -> list[dict[str, Any]]:
    """Return the rows of a view, without columns that are null in all of them."""
    table = parquet.read_table(path).to_pylist()
    used = {name for row in table for name, value in row.items() if value is not None}
    return [{name: value for name, value in row.items() if name in used} for row in table]


def write(path: str, view: list[dict[str, Any]]) -> str:
    """Write rows as another tool would, without what is null in all of them."""
    parquet.write_table(arrow.Table.from_pylist(view), path)
    return path


@pytest.fixture
def make(run: Run, archive: Archive) -> Callable[[], str]:
    """Return a function that makes a view of all samples of two archives in a directory of their own."""

    def make() -> str:
        os.mkdir("data")
        archive(A, "data/a.tar")
        archive(B, "data/b.tar")
        run("cat", "data/a.tar", "data/b.tar", "-o", "v.parquet")
        return "v.parquet"

    return make


def test_rows(make: Callable[[], str]) -> None:
    """A row has the key, the archive as seen from the view, and the range of the sample."""
    view = make()
    assert rows(view)[:2] == [
        {"__key__": "a0", "__shard__": "data/a.tar", "__start__": 0, "__stop__": 2048},
        {"__key__": "a1", "__shard__": "data/a.tar", "__start__": 2048, "__stop__": 4096},
    ]
    assert [row["__key__"] for row in rows(view)] == [f"a{n}" for n in range(6)] + [f"b{n}" for n in range(3)]


SAME = [
    "cat VIEW",
    "cat VIEW --match a[13]",
    "cat VIEW -f jpg",
    "cat VIEW -f picture:jpg",
    "cat VIEW --drop jpg",
    "cat VIEW --rekey {index:03d}-{key}",
    "cat VIEW --slice 1:9:2",
    "cat VIEW --where size>100",
    "cat VIEW --sample 0.5 --seed 3",
    "sort VIEW --reverse",
    "sort VIEW -s jpg",
    "sort VIEW -s size -f jpg",
    "shuffle VIEW --seed 5",
    "shuffle VIEW --seed 5 --rekey x/{key}",
    "shuffle VIEW --buffer 3 --seed 1",
    "mix VIEW --seed 1",
]


@pytest.mark.slow
@each_row("command", SAME)
def test_a_view_of_a_view(run: Run, make: Callable[[], str], command: str) -> None:
    """The archive that a view stands for is the one that the command writes, of archives or of another view."""
    view = make()
    archives = run(*command.replace("VIEW", "data/a.tar data/b.tar").split(), "-o", "-").stdout
    if not command.startswith("mix"):  # which draws from each input
        assert run(*command.replace("VIEW", view).split(), "-o", "-").stdout == archives
        run(*command.replace("VIEW", view).split(), "-o", "of-view.parquet")
        assert run("cat", "of-view.parquet", "-o", "-").stdout == archives
    run(*command.replace("VIEW", "data/a.tar data/b.tar").split(), "-o", "new.parquet")
    assert run("cat", "new.parquet", "-o", "-").stdout == archives


def test_neighbours_of_one_key(run: Run, archive: Archive) -> None:
    """Rows of samples with the same key, one after the other, are all in a view of the view."""
    archive({"a.cls": b"1", "c.cls": b"2"}, "a.tar")
    archive({"c.cls": b"3", "d.cls": b"4"}, "b.tar")
    run("cat", "a.tar", "b.tar", "--allow", "repeated-key", "-o", "v.parquet")
    write("w.parquet", [{**row, "n": n} for n, row in enumerate(rows("v.parquet"))])
    run("cat", "w.parquet", "--where", "n < 9", "--allow", "repeated-key", "-o", "again.parquet")
    assert [row["__key__"] for row in rows("again.parquet")] == ["a", "c", "c", "d"]


def test_no_content_is_written(run: Run, archive: Archive) -> None:
    """A view of large samples is small."""
    archive([(f"{n}.bin", bytes(300_000)) for n in range(20)])
    run("shuffle", "in.tar", "-o", "v.parquet")
    assert os.path.getsize("v.parquet") < 5000


def test_values(run: Run, make: Callable[[], str]) -> None:
    """Columns are values of samples, before fields of that name; null is asked of the archive."""
    values = ({"score": n / 2, "cls": None if n % 2 else 40 + n, "tags": {"a": [n]}} for n in range(9))
    view = write("w.parquet", [{**row, **more} for row, more in zip(rows(make()), values, strict=True)])
    assert keys(run("cat", view, "--where", "score >= 3", "-o", "-").stdout) == "b0 b1 b2"
    assert keys(run("cat", view, "--where", "tags.a[0] == 2 and has(score)", "-o", "-").stdout) == "a2"
    ran = run("tsv", view, "-f", "score cls", "-c", "2")
    assert ran.stdout == b"__key__\tscore\tcls\na0\t0.0\t40\na1\t0.5\tcls 8\n"
    assert keys(run("sort", view, "-s", "score", "--reverse", "-o", "-").stdout).split()[0] == "b2"


def test_columns_that_are_not_written(run: Run, make: Callable[[], str]) -> None:
    """Files have fields alone: one line names the columns that are none, unless the user says which fields there are.

    Columns with values of fields, which `tsv` writes, are there as fields.
    """
    view = [{**row, "cls": "1", "size.jpg": 3, "caption": "x", "score": 1} for row in rows(make())[:6]]
    write("c.view.parquet", view)
    line = "tarkit: columns are not written, as 'a0' has no such fields: 'caption', 'score'; "
    line += "tarkit cat --set makes fields of them"
    for words in (
        *(
            "cat -o x.tar",
            "sort -o x.tar",
            'shuffle --seed 1 --where __key__=="a0" -o x.tar',
            "cat --drop cls -o x.tar",
        ),
        *("split -n 2 -o s-%d.tar", "split -c 3 -o t-%d.tar", "extract -C files"),
    ):
        dropped = "'cls', " if "drop" in words else ""
        assert line.replace("'caption'", f"{dropped}'caption'") in run(*words.split(), "c.view.parquet").lines
    for words in (
        "cat -f jpg -o x.tar",
        "cat --set txt:caption -o x.tar",
        "tsv -f cls",
        "split -n 2 -o p.view.parquet",
    ):
        assert "not written" not in run(*words.split(), "c.view.parquet").stderr
    write("f.view.parquet", [{name: row[name] for name in row if name not in ("caption", "score")} for row in view])
    assert not run("cat", "f.view.parquet", "-o", "x.tar").stderr


def test_a_column_that_is_wanted_as_a_field(run: Run, make: Callable[[], str]) -> None:
    """The error about the missing field says that there is such a column, and what makes a field of it."""
    write("c.view.parquet", [{**row, "caption": None if n == 1 else "x"} for n, row in enumerate(rows(make())[:2])])
    words = "; 'caption' is a column, which tarkit cat --set caption makes a field"
    for command in (
        *("cat -f caption", "cat --require jpg,caption", "cat --where size.caption>1", "check --require caption"),
        *("sort -s width.caption", "extract -C x -f caption", "get -f caption"),
    ):
        ran = run(*command.split(), "c.view.parquet", exit=1)
        assert words in ran.stdout.decode() + ran.stderr
    assert words in run("get", "a0.caption", "c.view.parquet", exit=1).stderr
    said = run("get", "a1.caption", "c.view.parquet", exit=1).stderr  # null
    assert "has no field 'caption'" in said
    assert "column" not in said
    first, *_ = tarkit.open("c.view.parquet")
    with pytest.raises(KeyError, match=r"; 'caption' is a column, which set\('caption'\) makes a field"):
        first["caption"]
    assert "caption" not in first


def test_a_column_of_json(run: Run, archive: Archive) -> None:
    """Paths lead into a column with the text of JSON, as `tsv` writes the field, before they lead into the archive."""
    archive({"a.json": b'{"n": 1}', "b.json": b'{"n": 1}'})
    run("tsv", "in.tar", "-f", "json", "-o", "v.parquet")
    write("w.parquet", [{**row, "json": '{"n": 7}' if row["__key__"] == "a" else None} for row in rows("v.parquet")])
    assert run("tsv", "w.parquet", "-f", "json.n").stdout == b"__key__\tjson.n\na\t7\nb\t1\n"
    assert keys(run("cat", "w.parquet", "--where", "json.n == 7").stdout) == "a"
    write("w.parquet", [{**row, "json": "{"} for row in rows("v.parquet")])
    assert "[bad-field]" in run("tsv", "w.parquet", "-f", "json.n", exit=1).stderr


@each_row(
    "command",
    [
        "cat VIEW --where score>1",
        "sort VIEW -s score --reverse",
        "shuffle VIEW --seed 2",
        "cat VIEW -f jpg",
        "sort VIEW --rekey new/{key}",
    ],
)
def test_values_stay(run: Run, make: Callable[[], str], command: str) -> None:
    """A view of a view has the columns of its rows."""
    view = make()
    before = [{**row, "score": n % 4, "name": f"name {row['__key__']}"} for n, row in enumerate(rows(view))]
    write("w.parquet", before)
    run(*command.replace("VIEW", "w.parquet").split(), "-o", "out.parquet")
    scores = {row["__key__"]: (row["score"], row["name"]) for row in before}
    after = {row["__key__"].removeprefix("new/"): (row["score"], row["name"]) for row in rows("out.parquet")}
    assert after == {key: scores[key] for key in after}
    assert len(after) == (4 if "where" in command else 9)


def test_other_keys_and_fields(run: Run, make: Callable[[], str]) -> None:
    """Rows may give other keys, choose and rename fields, come in any order, and come twice."""
    view = make()
    first, second, *_ = rows(view)
    made = [
        {**second, "__key__": "d/x", "__fields__": "txt:cls"},
        {**first, "__key__": "y", "__fields__": None},
        {**second, "__key__": "z"},
    ]
    write("w.parquet", made)
    assert entries(run("cat", "w.parquet", "-o", "-").stdout) == [
        ("d/x.txt", b"cls 8"), ("y.cls", b"cls 9"), ("y.jpg", b"jpg 9"), ("z.cls", b"cls 8"), ("z.jpg", b"jpg 8")
    ]  # fmt: skip


def test_more_ranges(run: Run, make: Callable[[], str]) -> None:
    """A sample may have fields from several archives."""
    view = make()
    first, *_, last = rows(view)
    more = [{"shard": last["__shard__"], "start": last["__start__"] + 1536, "stop": last["__stop__"]}]
    write("w.parquet", [{**first, "__more__": more}])
    assert [name for name, _ in entries(run("cat", "w.parquet", "-o", "-").stdout)] == ["a0.cls", "a0.jpg", "a0.txt"]
    run("sort", "w.parquet", "-o", "again.parquet")
    assert run("cat", "again.parquet", "-o", "-").stdout == run("cat", "w.parquet", "-o", "-").stdout


@each_row("command", ["sort", "sort --reverse", "shuffle --seed 1", "cat", "sort --rekey x/{key}"])
def test_more_ranges_of_one_key(run: Run, make: Callable[[], str], archive: Archive, command: str) -> None:
    """A sample of several archives that has one key in all of them stays a row, in any order."""
    view = make()
    archive([(f"a{n}.txt", b"text %d" % n) for n in range(6)], "data/c.tar")
    run("cat", "data/c.tar", "-o", "c.parquet")
    made = [
        {**row, "__more__": [{"shard": "data/c.tar", "start": more["__start__"], "stop": more["__stop__"]}]}
        for row, more in zip(rows(view)[:6], rows("c.parquet"), strict=True)
    ]
    name, *options = command.split()
    run(name, write("w.parquet", made), *options, "-o", "again.parquet")
    run(name, "w.parquet", *options, "-o", "all.tar")
    run("cat", "again.parquet", "-o", "through.tar")
    assert Path("through.tar").read_bytes() == Path("all.tar").read_bytes()
    assert [len(row["__more__"]) for row in rows("again.parquet")] == [1] * 6


@each_row("first", [0, 1, 2, 3, 5])
def test_columns_that_some_rows_need(
    run: Run, make: Callable[[], str], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view has the columns of further ranges and fields if a row needs them, wherever that is."""
    monkeypatch.setattr(view_writer, "ROWS", 2)
    made = rows(make())[:6]
    assert parquet.read_schema("v.parquet").names == ["__key__", "__shard__", "__start__", "__stop__"]
    more = [{"shard": "data/b.tar", "start": 1536, "stop": 3072}]
    for number, row in enumerate(made):
        row |= {"score": number, "__more__": more if number == first else None}
        row["__fields__"] = "jpg picture:cls" if number == first + 2 else None
    run("sort", write("w.parquet", made), "-o", "out.parquet")
    columns = {"__key__", "__shard__", "__start__", "__stop__", "score"} | ({"__more__"} if first < 6 else set())
    assert {*parquet.read_schema("out.parquet").names} == columns | ({"__fields__"} if first + 2 < 6 else set())
    assert run("cat", "out.parquet", "-o", "-").stdout == run("cat", "w.parquet", "-o", "-").stdout
    assert [row["score"] for row in rows("out.parquet")] == [*range(6)]


def test_progress_and_size(run: Run, make: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The function for progress hears of each sample; the size is that of the file, also where columns came late."""
    monkeypatch.setattr(view_writer, "ROWS", 2)
    made = rows(make())
    made[5]["__fields__"] = "jpg"
    counts: list[int] = []
    written = (
        tarkit.open(write("w.parquet", made))
        .sort()
        .write("out.parquet", progress=lambda samples, size: counts.append(samples))
    )
    assert counts == [*range(1, 10)]
    assert written.size == os.path.getsize("out.parquet")


def test_no_sample(run: Run, make: Callable[[], str]) -> None:
    """A view may have no rows."""
    run("cat", make(), "--match", "none", "-o", "out.parquet")
    assert rows("out.parquet") == []
    assert keys(run("cat", "out.parquet", "-o", "-").stdout) == ""


KINDS = {
    "large strings": lambda: (arrow.large_string(), arrow.large_string(), arrow.int64()),
    "nothing in a column": lambda: (arrow.string(), arrow.string(), arrow.int64()),
    "string views": lambda: (arrow.string_view(), arrow.string(), arrow.uint64()),
    "categories": lambda: (arrow.string(), arrow.dictionary(arrow.int8(), arrow.string()), arrow.int32()),
}


@each_row("kind", [*KINDS])
def test_types_of_other_tools(run: Run, make: Callable[[], str], kind: str) -> None:
    """Text and numbers may have any width."""
    view = make()
    text, shard, number = KINDS[kind]()
    table = parquet.read_table(view).select(["__key__", "__shard__", "__start__", "__stop__"])
    table = table.set_column(1, "__shard__", table.column(1).cast(arrow.string()))
    try:
        table = table.cast(
            arrow.schema([("__key__", text), ("__shard__", shard), ("__start__", number), ("__stop__", number)])
        )
        if kind == "nothing in a column":
            for name in ("__more__", "__fields__", "other"):
                table = table.append_column(name, arrow.nulls(len(table)))
        parquet.write_table(table, "w.parquet", row_group_size=4)
    except (arrow.ArrowNotImplementedError, arrow.ArrowInvalid) as error:
        pytest.skip(f"this version of pyarrow: {error}")
    assert run("cat", "w.parquet", "-o", "-").stdout == run("cat", view, "-o", "-").stdout


# ---- What is wrong

CHANGES: dict[str, tuple[Any, str]] = {
    "replaced": (lambda: tar([("c.jpg", b"x" * 3000), *A]), ""),
    "cut": (lambda: Path("data/a.tar").read_bytes()[:3000], "the archive has no such range"),
    "other bytes": (lambda: b"no archive" * 2000, "no entry is there"),
    "other keys": (lambda: tar([(f"k{name}", content) for name, content in A]), ""),
}


@each_row("change", [*CHANGES])
@each_row("many", [False, True])
def test_an_archive_that_changed(run: Run, make: Callable[[], str], change: str, many: bool) -> None:
    """A row whose range is no sample any more is an error, or leaves the sample out."""
    view = make()
    data, words = CHANGES[change]
    before = run("cat", view, "-o", "-").stdout
    Path("data/a.tar").write_bytes(data())
    chosen = write("w.parquet", rows(view) if many else rows(view)[1:2])
    if change == "other keys":  # the view gives the keys
        assert run("cat", chosen, "-o", "-").stdout == (
            before if many else run("cat", view, "--slice", "1:2", "-o", "-").stdout
        )
        return
    ran = run("cat", chosen, "-o", "-", exit=1)
    assert words in ran.stderr
    assert "[changed-source]" in ran.stderr
    assert "hint: make the view again" in ran.stderr
    assert b"[changed-source]" in run("check", chosen, exit=1).stdout
    left = run("cat", chosen, "--skip", "changed-source", "-o", "-").stdout
    assert [key for key in keys(left).split() if key.startswith("b")] == (["b0", "b1", "b2"] if many else [])


def test_an_archive_that_is_gone(run: Run, make: Callable[[], str]) -> None:
    """Archives that do not exist are reported before anything is written."""
    view = make()
    os.rename("data/b.tar", "data/c.tar")
    ran = run("cat", view, "-o", "out.tar", exit=1)
    assert ran.stderr.splitlines()[0] == "tarkit: data/b.tar: No such file or directory; named by v.parquet"
    assert not os.path.exists("out.tar")


def test_a_compressed_archive(run: Run, make: Callable[[], str]) -> None:
    """Ranges are of plain archives."""
    view = make()
    run("cat", "data/a.tar", "-o", "data/a.tar.gz")
    ran = run("cat", "data/a.tar.gz", "-o", "w.parquet", exit=1)
    assert "data/a.tar.gz: a view names ranges of plain archives" in ran.stderr
    write("w.parquet", [{**rows(view)[0], "__shard__": "data/a.tar.gz"}])
    ran = run("cat", "w.parquet", "-o", "-", exit=1)
    assert "data/a.tar.gz: it is compressed, and a view needs plain archives" in ran.stderr


@each_row(
    "name",
    ["pipe:touch made", "pipe://usr/bin/touch made", "pipe:///bin/touch made", "file:data/a.tar", "-", "data/[a].tar"],
)
def test_names_are_paths(run: Run, make: Callable[[], str], name: str) -> None:
    """The name of an archive in a view is a path or a URL, and nothing else: no command, no glob."""
    view = make()
    write("w.parquet", [{**rows(view)[0], "__shard__": name}])
    ran = run("cat", "w.parquet", "-o", "-", exit=2 if "://" in name else 1)
    assert re.search("No such file or directory|no path and no object of a store", ran.stderr)
    assert not os.path.exists("made")
    write("w.parquet", [{**rows(view)[0], "__shard__": "data"}])
    assert "data: not a regular file; named by w.parquet" in run("cat", "w.parquet", exit=1).stderr


NO_RANGE = "the archive has no such range [changed-source]"
FORM = "w.parquet: the column __more__ has lists of shard, start and stop, not list<element: "
MORE = [{"shard": "data/b.tar", "start": 0, "stop": 1024}]
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no range": ({"__start__": None}, "w.parquet: __start__ is null in row 1"),
    "a negative offset": ({"__start__": -512}, f"data/a.tar: at -512: row 1 of w.parquet: {NO_RANGE}"),
    "an offset in a header": ({"__start__": 100}, f"data/a.tar: at 100: row 1 of w.parquet: {NO_RANGE}"),
    "an empty range": ({"__stop__": 0}, f"data/a.tar: at 0: row 1 of w.parquet: {NO_RANGE}"),
    "half a sample": ({"__stop__": 700}, f"data/a.tar: at 0: row 1 of w.parquet: {NO_RANGE}"),
    "two samples": (
        {"__stop__": 4096},
        "data/a.tar: at 0: row 1 of w.parquet: the range is not one whole sample [changed-source]",
    ),
    "no key": ({"__key__": "d.e/.f"}, "w.parquet: 'd.e/.f' in row 1 is not a key"),
    "a field that is missing": (
        {"__fields__": "png"},
        "data/a.tar: at 0: 'a0' has no field 'png', it has 'cls', 'jpg' [missing-field]",
    ),
    "text for numbers": ({"__start__": "0"}, "w.parquet: the column __start__ has whole numbers, not string"),
    "a further range that is not there": (
        {"__more__": [{"shard": "data/b.tar", "start": 512, "stop": 1 << 40}]},
        f"data/b.tar: at 512: row 1 of w.parquet: {NO_RANGE}",
    ),
    "a list of numbers": ({"__more__": [1]}, f"{FORM}int64>"),
    "other members": (
        {"__more__": [{"shard": "data/b.tar", "size": 1024, "start": 0}]},
        f"{FORM}struct<shard: string, size: int64, start: int64>>",
    ),
    "text in a range": (
        {"__more__": [{"shard": "data/b.tar", "start": "0", "stop": "1024"}]},
        f"{FORM}struct<shard: string, start: string, stop: string>>",
    ),
    "a null": (
        {"__more__": [{"shard": "data/b.tar", "start": None, "stop": 1024}]},
        "w.parquet: a range in __more__ has a null",
    ),
    "no name": (
        {"__more__": [{"shard": None, "start": 0, "stop": 1024}]},
        "w.parquet: the name of an archive is null in a row",
    ),
}


@each_row("name", [*BAD])
def test_bad_rows(run: Run, make: Callable[[], str], name: str) -> None:
    """Rows that name nothing are errors, and say which row it is; so are columns of another form."""
    change, message = BAD[name]
    first, second, *others = rows(make())
    if name in ("a null", "no name"):
        second["__more__"] = MORE
    write("w.parquet", [{**first, **change}, *([] if "text" in name else [second, *others])])
    ran = run("cat", "w.parquet", "-o", "-", exit=2 if "the column" in message else 1)
    assert ran.lines[0] == f"tarkit: {message}"


def test_files_that_are_no_views(run: Run, archive: Archive) -> None:
    """Views without a column and damaged files are named as such, and other tables where views are needed."""
    write("t.parquet", [{"__key__": "a", "__shard__": "b", "__start__": 1}])
    message = "t.parquet: a view needs the columns __key__, __shard__, __start__, __stop__; missing: "
    assert f"{message}__stop__\n" in run("cat", "t.parquet", "-o", "-", exit=2).stderr
    write("t.parquet", [{"__key__": "a", "b": 1}])
    for words in (["check", "t.parquet"], ["cat", "t.parquet", "-o", "v.parquet"]):
        ran = run(*words, exit=None)
        assert f"{message}__shard__, __start__, __stop__" in ran.stderr + ran.stdout.decode()
        assert "tarkit cat t.parquet -o NAME.tar" in ran.stderr + ran.stdout.decode()
    archive(A, "x.parquet")
    assert "x.parquet: damaged, or not a Parquet file" in run("cat", "x.parquet", "-o", "-", exit=1).stderr


def test_check_reads_the_rows(run: Run, make: Callable[[], str]) -> None:
    """--same-as compares the samples of views with those of archives, on both sides; a changed row makes a view bad."""
    view = make()
    run("shuffle", view, "--seed", "1", "-o", "w.parquet")
    for pair in ((view, "data"), ("data", "w.parquet"), (view, "w.parquet")):
        assert run("check", pair[0], "--same-as", pair[1]).stdout.endswith(b"the same samples\n")
    made = rows(view)
    made[0]["__fields__"] = None
    made[1]["__key__"], made[2]["__fields__"] = "new", "picture:jpg cls"
    del made[8]
    lines = run("check", write("u.parquet", made), "--same-as", "data", exit=1).stdout.decode().splitlines()
    changed = "'a2' has no 'picture' and has the additional field 'jpg', compared with u.parquet"
    assert [line for line in lines if line.endswith("]")] == [
        "u.parquet: 'new' ('cls', 'jpg') is not in data [extra-sample]",
        "data/a.tar: at 2048: 'a1' ('cls', 'jpg') is only in data [missing-sample]",
        "data/b.tar: at 6144: 'b2' ('jpg', 'txt') is only in data [missing-sample]",
        f"data/a.tar: at 4096: {changed} [changed-sample]",
    ]
    made[0]["__stop__"] -= 512
    ran = run("check", write("u.parquet", made), "--same-as", "data", exit=1)
    assert b"u.parquet: row 1, data/a.tar at 0: the range is not one whole sample [changed-source]" in ran.stdout
    assert ran.stdout.endswith(b"no verdict: some shards are damaged\n")
    assert b"u.parquet: bad: 7 samples" in run("check", "u.parquet", exit=1).stdout
    os.unlink("data/b.tar")
    assert b"no verdict: v.parquet could not be read" in run("check", view, "--same-as", "data", exit=1).stdout


def test_a_field_of_a_column_that_a_view_has_not(run: Run, make: Callable[[], str]) -> None:
    """It is an error before anything is written, also where a view has no column with values, or no rows."""
    made = rows(make())
    for chosen, inputs in ((made, "w.parquet"), (made, "data/a.tar w.parquet"), (made[:0], "w.parquet")):
        table = arrow.Table.from_pylist(chosen, parquet.read_schema("v.parquet"))
        parquet.write_table(table.select(["__key__", "__shard__", "__start__", "__stop__"]), "w.parquet")
        ran = run("cat", *inputs.split(), "--set", "txt:caption", "-o", "out.tar", exit=1)
        assert ran.lines == ["tarkit: --set: w.parquet has no column 'caption', it has none with values"]
        assert not Path("out.tar").exists()


def test_order_by_values(run: Run, make: Callable[[], str]) -> None:
    """A sort by a column compares numbers by value, also where the archive has a field of its name."""
    numbers = [9.5, -20.0, 10.5, -3.0, 2e-05, 0.1]
    made = [{**row, "cls": number} for row, number in zip(rows(make()), numbers, strict=False)]
    run("sort", write("w.parquet", made), "-s", "cls", "-o", "out.parquet")
    assert [row["cls"] for row in rows("out.parquet")] == sorted(numbers)


def test_symbolic_links(run: Run, make: Callable[[], str]) -> None:
    """The name of an archive leads to it from where the view is, whatever links are on the way."""
    make()
    os.makedirs("deep/er")
    os.symlink("deep/er", "link")
    os.rename("data/a.tar", "deep/a.tar")
    os.rename("data/b.tar", "a.tar")
    run("cat", "link/../a.tar", "-o", "v.parquet")
    assert keys(run("cat", "v.parquet", "-o", "-").stdout).split()[0] == "a0"
    run("cat", "a.tar", "-o", "link/w.parquet")
    assert keys(run("cat", "link/w.parquet", "-o", "-").stdout).split()[0] == "b0"


@each_row("names", ["img:txt", "x=txt", "q,txt", "two words", ""])
def test_names_that_words_cannot_say(run: Run, archive: Archive, names: str) -> None:
    """A field with a name that -f cannot say stays as it is; if it would have to be named, that is an error."""
    archive([("k.cls", b"1"), (f"k.{names}", b"odd"), ("k.txt", b"txt")])
    data = tarkit.open("in.tar")
    data.write("v.parquet")
    data.write("a.tar")
    tarkit.open("v.parquet").write("b.tar")
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()
    with pytest.raises(tarkit.TarkitError, match="a name that -f cannot say"):
        data.change(Fields(rename=((b"cls", b"label"),))).write("w.parquet")


def test_a_link_into_another_archive(run: Run, archive: Archive) -> None:
    """A hard link among further ranges does not get the content of another archive."""
    archive([("k.jpg", b"one")], "1.tar")
    archive([("k.jpg", b"two"), ("k.png", Link("k.jpg"))], "2.tar")
    more = [{"shard": "2.tar", "start": 1024, "stop": 1536}]
    write("w.parquet", [{"__key__": "k", "__shard__": "1.tar", "__start__": 0, "__stop__": 1024, "__more__": more}])
    assert "[unmovable-entry]" in run("cat", "w.parquet", "-o", "-", exit=1).stderr


def test_a_column_beside_a_struct(run: Run, make: Callable[[], str]) -> None:
    """A column whose name looks like a path is that column."""
    made = [{**row, "json": {"a": 1}, "json.a": 101} for row in rows(make())]
    write("w.parquet", made)
    assert run("tsv", "w.parquet", "-f", "json.a", "-c", "1").stdout == b"__key__\tjson.a\na0\t101\n"
    run("cat", "w.parquet", "-o", "out.parquet")
    assert [(row["json"], row["json.a"]) for row in rows("out.parquet")] == [({"a": 1}, 101)] * 9


TYPES: dict[str, tuple[Any, Any, str]] = {
    "timestamp": (arrow.timestamp("us"), datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05.000000"),
    "nanoseconds": (arrow.timestamp("ns"), 1_704_164_645_000_000_001, "2024-01-02 03:04:05.000000001"),
    "date": (arrow.date32(), date(2024, 1, 2), "2024-01-02"),
    "duration": (arrow.duration("s"), 90, "90"),
    "decimal": (arrow.decimal128(5, 2), Decimal("1.50"), "1.5"),
    "binary": (arrow.binary(), b"text", "text"),
    "binaries": (arrow.list_(arrow.binary()), [b"a", b"b"], '["a","b"]'),
    "booleans": (arrow.bool_(), True, "true"),
    "large": (arrow.uint64(), 2**63 + 1, str(2**63 + 1)),
}


@each_row("name", [*TYPES])
def test_types_of_values(run: Run, make: Callable[[], str], name: str) -> None:
    """Values of any type are text, numbers, lists or objects, in tables, orders and views."""
    kind, value, shown = TYPES[name]
    table = parquet.read_table(make())
    values = arrow.array([value] * 4 + [None] * 5, arrow.int64() if name == "nanoseconds" else kind).cast(kind)
    parquet.write_table(table.append_column("value", values), "w.parquet")
    for command in (["cat", "w.parquet"], ["sort", "w.parquet", "-s", "value", "--allow", "missing-field"]):
        run(*command, "-o", "out.parquet")
        assert parquet.read_schema("out.parquet").field("value").type == kind
        ran = run("tsv", "out.parquet", "--where", "has(value)", "-f", "value")
        assert ran.stdout.decode().splitlines()[1:] == [f"a{n}\t{shown}" for n in range(4)]


UNREAD = ["cat VIEW", "shuffle VIEW --seed 1", "cat VIEW --match a --slice 0:4", "split VIEW -c 2", "cat VIEW VIEW"]


@each_row("command", UNREAD)
def test_rows_of_rows(run: Run, make: Callable[[], str], command: str) -> None:
    """Rows that keys choose or order pass unread, with their values; samples are checked when they are read."""
    made = [{**row, "n": number} for number, row in enumerate(rows(make()))]
    view = write("w.parquet", made)
    run(*command.replace("VIEW", view).split(), "-o", "before.parquet")
    data = Path("data/a.tar").read_bytes()
    Path("data/a.tar").write_bytes(bytes(len(data)))
    run(*command.replace("VIEW", view).split(), "-o", "out.parquet")
    assert rows("out.parquet") == rows("before.parquet")
    assert all({**row, "__into__": None} == {**made[row["n"]], "__into__": None} for row in rows("out.parquet"))
    assert "[changed-source]" in run("cat", "out.parquet", "-o", "-", exit=1).stderr
    assert b"[changed-source]" in run("check", "out.parquet", exit=1).stdout
    Path("data/a.tar").write_bytes(data[:4096])
    assert "[changed-source]" in run(*command.replace("VIEW", view).split(), "-o", "cut.parquet", exit=1).stderr


def test_index(run: Run, make: Callable[[], str]) -> None:
    """index --format view writes the rows of cat, one view for all shards; another file is not replaced."""
    make()
    run("cat", "data/a.tar", "data/b.tar", "-o", "data/cat.parquet")
    ran = run("index", "data/a.tar", "data/b.tar", "--format", "view", "--json")
    assert b'"samples": 9' in ran.stdout.splitlines()[-1]
    assert rows("data/all.view.parquet") == rows("data/cat.parquet")
    run("index", "data", "--format", "dali,view", "-o", "data/")  # a view is no shard
    assert rows("data/all.view.parquet") == rows("data/cat.parquet")
    assert tarkit.index(["data/a.tar", "data/b.tar"], "view", "x.view.parquet") == ["x.view.parquet"]
    assert rows("x.view.parquet") == rows("v.parquet")
    Path("x.view.parquet").write_text("my own notes")
    message = "x.view.parquet: the file exists and is not a view"
    assert message in run("index", "data", "--format", "view", "-o", "x.view.parquet", exit=1).stderr
    run("index", "data", "--format", "view", "-o", "x.view.parquet", "--force")
    assert rows("x.view.parquet") == rows("v.parquet")
    assert "ends in .parquet" in run("index", "data", "--format", "view", "-o", "x.tsv", exit=2).stderr
    assert "tarkit check" in run("index", "data", "--format", "view", "--verify", exit=2).stderr


def test_text_that_is_none(run: Run, make: Callable[[], str]) -> None:
    """Bytes that are not UTF-8 are no value."""
    table = parquet.read_table(make())
    parquet.write_table(table.append_column("value", arrow.array([b"\xff"] * 9)), "w.parquet")
    ran = run("tsv", "w.parquet", "-f", "value", exit=1)
    assert "w.parquet: the column 'value' has no values for tarkit" in ran.stderr


def test_a_view_that_is_rewritten(run: Run, make: Callable[[], str]) -> None:
    """A view that changes while it is read is an error, as an archive is."""
    batches = iter(tarkit.open(make()))
    next(batches)
    data = Path("v.parquet").read_bytes()
    Path("v.parquet").write_bytes(data + b"more")
    with pytest.raises(tarkit.TarkitError, match=r"v\.parquet"):
        list(batches)


def test_an_unsafe_key(run: Run, make: Callable[[], str]) -> None:
    """A key of a view that would lead out of a directory is the problem that it is in an archive."""
    write("w.parquet", [{**rows(make())[0], "__key__": "../../evil"}])
    assert "[unsafe-name]" in run("cat", "w.parquet", "-o", "out.tar").stderr
    assert b"[unsafe-name]" in run("check", "w.parquet", exit=1).stdout


def test_commands_that_read(run: Run, make: Callable[[], str]) -> None:
    """All commands that read samples read those of a view."""
    view = make()
    assert run("stats", view, "--total").stdout == b"9\n"
    assert b"ok: 9 samples" in run("check", view).stdout
    assert run("get", "b1.txt", view).stdout == b"txt" * 300
    assert len(run("show", view, "--names").stdout.splitlines()) == 18
    run("extract", view, "-C", "x")
    assert sorted(os.listdir("x")) == sorted(name for name, _ in [*A, *B])
    run("split", view, "-c", "5", "-o", "s-%d.tar")
    assert keys(Path("s-0.tar")) == "a0 a1 a2 a3 a4"
    run("proc", view, "-c", "cat >/dev/null", "-o", "p.tar")
    assert keys(Path("p.tar")) == "a0 a1 a2 a3 a4 a5 b0 b1 b2"


def test_new_contents(run: Run, make: Callable[[], str]) -> None:
    """What code of the user makes is in no archive, and a view cannot name it; what it leaves as it is can be named."""
    data = tarkit.open(make())
    data.map(lambda sample: sample).write("same.parquet")
    assert [row["__key__"] for row in rows("same.parquet")] == [sample.key for sample in data]
    with pytest.raises(
        tarkit.TarkitError, match="a view names ranges of plain archives, and here its contents are new"
    ):
        data.map(lambda sample: {**sample, "jpg": b"new"}).write("new.parquet")
    assert not os.path.exists("new.parquet")


def test_orders_of_views_with_gaps(run: Run, archive: Archive) -> None:
    """Samples that are gathered from several archives keep their bytes through orders, without values too."""
    for name in "abc":
        archive(
            [(f"{name}{n}.{field}", f"{name}{n}{field}".encode() * 30) for n in range(60) for field in ("cls", "jpg")],
            f"{name}.tar",
        )
        run("cat", f"{name}.tar", "--slice", "0:60:2", "-o", f"{name}.parquet")
        run("cat", f"{name}.tar", "--slice", "0:60:2", "-o", f"copy-{name}.tar")
    views, copies = [f"{name}.parquet" for name in "abc"], [f"copy-{name}.tar" for name in "abc"]
    for words in (["shuffle", "--seed", "1"], ["sort", "--reverse"], ["sort", "-s", "cls"]):
        expected = run(*words, *copies, "-o", "-").stdout
        assert run(*words, *views, "-o", "-").stdout == expected
        run(*words, *views, "-o", "out.parquet")
        assert run("cat", "out.parquet", "-o", "-").stdout == expected
    data = tarkit.open(["a.parquet", "copy-b.tar", "c.parquet"]).shuffle(seed=1).shuffle(seed=2)
    data.write("x.tar")
    tarkit.open(copies).shuffle(seed=1).shuffle(seed=2).write("y.tar")
    assert Path("x.tar").read_bytes() == Path("y.tar").read_bytes()


PARTS = ["stats", "stats --by cls", "stats --skip changed-source --json", "check", "check --json", "check --unique"]
PARTS += ["check --decode all", "check --same-as 0.tar", "check --diff 0.tar"]


@pytest.mark.slow
def test_parts_of_views(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes read parts of a view, and say what one says: of good rows, bad ones, archives that are gone."""
    monkeypatch.setattr("tarkit.pipeline.view_index.LEAST", 2)
    draw = Random(7)
    for turn in range(4):
        names = [f"{at}.tar" for at in range(3)]
        for name in names:
            archive([(f"{name[0]}{n}.{field}", b"%d" % n) for n in range(8) for field in ("cls", "jpg")], name)
        run("shuffle", *names, "--seed", str(turn), "-o", "v.parquet")
        view = parquet.read_table("v.parquet").to_pylist()
        bad = draw.randrange(len(view))
        if turn == 1:
            view[bad]["__start__"] += 512
        elif turn == 2:
            view[bad]["__shard__"] = "gone.tar"
        elif turn == 3:
            view[bad] = view[bad - 1]  # a sample twice
        parquet.write_table(arrow.Table.from_pylist(view), "v.parquet", row_group_size=draw.choice([3, 100]))
        for words in draw.sample(PARTS, 4):
            whole, parts = (
                run(*words.split(), "v.parquet", "0.tar", "v.parquet", "-q", "-p", p, exit=None) for p in "13"
            )
            assert (whole.status, whole.stdout, whole.stderr) == (parts.status, parts.stdout, parts.stderr), words
    archive([(f"{n:03}.{field}", b"%d" % n) for n in range(700) for field in ("cls", "json")])
    run("cat", "in.tar", "-o", "v.parquet")
    words = [*TARKIT, "check", "--decode", "all", "v.parquet", "-p"]
    whole, parts = (subprocess.run([*words, p], capture_output=True, check=True).stdout for p in "13")
    assert b"700 json" in whole
    assert whole == parts


def test_a_directory_of_parts(run: Run, make: Callable[[], str]) -> None:
    """A view may be a directory of part files, as Spark writes it, which lies where the view would."""
    table = parquet.read_table(make())
    os.makedirs("sub/w.parquet")
    shards = arrow.array([f"../{name.as_py()}" for name in table["__shard__"]])
    table = table.set_column(1, "__shard__", shards)
    for part in range(3):
        parquet.write_table(table.slice(3 * part, 3), f"sub/w.parquet/part-{part}.snappy.parquet")
    for other in ("_SUCCESS", ".part-0.snappy.parquet.crc", "._SUCCESS.crc"):
        Path("sub/w.parquet", other).touch()
    whole = run("cat", "v.parquet").stdout
    for name in ("sub/w.parquet", "sub/w.parquet/", "sub/w.parquet/*.parquet"):
        assert run("cat", name).stdout == whole
    assert run("shuffle", "sub/w.parquet", "--seed", "3").stdout == run("shuffle", "v.parquet", "--seed", "3").stdout
    os.rename("data/b.tar", "data/gone.tar")
    gone = "sub/../data/b.tar: No such file or directory; named by sub/w.parquet/part-2"
    assert gone in run("cat", name, exit=1).stderr
