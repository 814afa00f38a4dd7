"""Tables: CSV with any separator, and what is no table of its format."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from tarkit.tables.reader import read_records
from tarkit.tables.recipe import MalformedRow
from tests._tools import each_row
from tests.conftest import Archive, Run, entries, keys

CELLS = ("a", "b c", "x,y", "1;2", "p|q", "t\tu", 'say "no"', "two\nlines", "", "é", " ")
NAMES = ("txt", "@jpg", "cls", "a b", "seg.png", "json")


@each_row("seed", range(200))
def test_any_separator(seed: int) -> None:
    """Random tables are read as they were written, whatever separates their cells, with quotes or without."""
    rng = random.Random(seed)
    separator = rng.choice(",;\t|")
    names = ["__key__", *rng.sample(NAMES, rng.randint(1, 5))]
    rows = [[f"k{number}", *rng.choices(CELLS, k=len(names) - 1)] for number in range(rng.randint(0, 8))]
    text = io.StringIO(newline="")
    how = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(text, delimiter=separator, lineterminator=rng.choice(("\n", "\r\n")), quoting=how)
    writer.writerows([names, *rows])
    named = rng.choice(("", f"sep={separator}\r\n"))
    blank = rng.choice(("", "\n\r\n"))
    data = rng.choice((b"", b"\xef\xbb\xbf")) + (blank + named + text.getvalue()).encode()
    told: list[str] = []
    found = list(read_records(io.BytesIO(data), "csv", warn=told.append))
    assert [list(row.names) for row in found] == [names] * len(rows)
    assert [[(cell or b"").decode() for cell in row.values] for row in found] == rows
    assert bool(told) == (separator != "," and not named)


@each_row(
    ("format", "text", "message"),
    [
        ("csv", "id;a|b\n", "the first row has no comma, but ; and |"),
        ("tsv", "id,txt\n1,a\n", "the header is one cell with , in it: 'id,txt'"),
        ("tsv", "id;a|b\n", "the header is one cell with ; and | in it: 'id;a|b'"),
    ],
)
def test_no_table_of_its_format(format: str, text: str, message: str) -> None:
    """What may have several separators, or another one, is an error with a hint."""
    with pytest.raises(MalformedRow) as error:
        list(read_records(io.BytesIO(text.encode()), format))  # type: ignore[arg-type]
    assert str(error.value) == message
    assert error.value.line == 1
    assert error.value.hint


@each_row("format", ["csv", "tsv"])
def test_utf_16(format: str, run: Run, here: Path) -> None:
    Path("t").write_bytes("id\ttxt\n1\ta\n".encode("utf-16"))
    ran = run("create", "--format", format, "t", "-o", "x.tar", exit=1)
    assert ran.lines == ["tarkit: t:1: the text is UTF-16", "hint: save the table as UTF-8"]


@each_row(("header", "said"), [("id;caption, long;txt", 1), ("id,caption", 0), ('"a;b",c', 1), ('"a;b"', 0)])
def test_separators_in_a_header(header: str, said: int) -> None:
    """A header with commas and other separators is a warning: one of them may be meant."""
    told: list[str] = []
    list(read_records(io.BytesIO(header.encode()), "csv", warn=told.append))
    assert len(told) == said


@each_row("separator", [";", "\t", "|"])
def test_in_each_place(separator: str, run: Run, archive: Archive) -> None:
    """Every option that reads a CSV finds its separator."""
    table = "\ufefffile,txt\na,one\nb,two\n".replace(",", separator)
    Path("t.csv").write_text(table)
    Path("k.csv").write_text(table.replace("file", "__key__"))
    Path("tree").mkdir()
    Path("tree/a.jpg").write_bytes(b"1")
    word = "TAB" if separator == "\t" else separator
    warning = f"tarkit: warning: t.csv: the first row has no comma: cells are separated by {word}"
    assert warning in run("shard", "tree", "--join", "t.csv:file", "-c", "1", "-o", "x-%d.tar").lines
    assert entries("x-0.tar") == [("a.jpg", b"1"), ("a.txt", b"one")]
    assert warning in run("create", "--format", "csv", "t.csv", "--key", "{file}", "-o", "c.tar").lines
    assert dict(entries("c.tar"))["b.txt"] == b"two"
    out = run("cat", "c.tar", "--keys-from", "t.csv:txt", exit=None).stderr
    assert "2 keys requested, 0 found" in out
    run("cat", "c.tar", "--keys-from", "t.csv:file", "--require-all", "-o", "d.tar")
    assert keys("d.tar") == "a b"
    for against in ("k.csv", "t.csv:file"):
        run("check", "c.tar", "--against", against)


def test_a_column_whose_name_has_separators(run: Run, here: Path) -> None:
    """A column that tsv writes alone is read as one."""
    run("create", "-o", "a.tar", stdin=b"1.jpg text:x\n2.png text:y,z\n")
    run("tsv", "a.tar", "--no-key", "-f", "jpg;png", "--format", "csv", "-o", "t.csv")
    run("create", "--format", "csv", "t.csv", "-o", "b.tar")
    assert [data for _, data in entries("b.tar")] == [b"x", b"y,z"]
