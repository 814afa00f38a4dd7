"""Inputs of create: tables/recipe.py and tables/reader.py."""

import csv
import io
import itertools
import json
import types
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarkit.errors import TarkitError, Usage
from tarkit.stores import schemes
from tarkit.tables import reader
from tarkit.tables.reader import Format, read_table
from tarkit.tables.recipe import Row, read_recipe
from tarkit.tables.tsv import escape_tsv, unescape_tsv
from tests._tools import each_row

KNOWN = ", ".join(f"{scheme}://" for scheme in sorted([*schemes.SCHEMES, "mem"]))


@pytest.fixture(autouse=True)
def _scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schemes.SCHEMES, "mem", schemes.Scheme("nothing", "Nothing"))


RECIPES = [
    # content, rows as (name, kind, value)
    (b"a.jpg\tx/a.jpg\n", [(b"a.jpg", "path", b"x/a.jpg")]),
    (b"a.jpg x/a.jpg", [(b"a.jpg", "path", b"x/a.jpg")]),
    (b"  a.jpg   x/a b.jpg \n", [(b"a.jpg", "path", b"x/a b.jpg ")]),
    (b"a b.jpg\t x.jpg \n", [(b"a b.jpg", "path", b" x.jpg ")]),
    (b"a\tb\tc\n", [(b"a", "path", b"b\tc")]),
    (b"\xef\xbb\xbfa b\n\xef\xbb\xbfc d\n", [(b"a", "path", b"b"), (b"\xef\xbb\xbfc", "path", b"d")]),
    (b"\xff.jpg \xfe\n", [(b"\xff.jpg", "path", b"\xfe")]),
    # ends of lines
    (b"a b\r\nc text:d\r\n", [(b"a", "path", b"b"), (b"c", "data", b"d")]),
    (b"a text:b\r\r\nc text:d\r", [(b"a", "data", b"b\r"), (b"c", "data", b"d\r")]),
    # comments and blank lines
    (b"\n \n\t\n\r\n# a b\n#\n#\r\n# a\tb\n", []),
    (b"#a b\n# c\n #d e\n", [(b"#a", "path", b"b"), (b"#d", "path", b"e")]),
    (b"#\tb\n", [(b"#", "path", b"b")]),
    # sources
    (b"a file:text:x\n", [(b"a", "path", b"text:x")]),
    (b"a text:\nb\ttext:\nc text: 1  2 \n", [(b"a", "data", b""), (b"b", "data", b""), (b"c", "data", b" 1  2 ")]),
    (b"a\ttext:b\tc\0text:\n", [(b"a", "data", b"b\tc\0text:")]),
    (b"a hex:00fF\nb hex:\nc hex:00 01\n", [(b"a", "data", b"\0\xff"), (b"b", "data", b""), (b"c", "data", b"\0\1")]),
    (b"a base64:AP8=\nb base64: AP8= \n", [(b"a", "data", b"\0\xff"), (b"b", "data", b"\0\xff")]),
    (b"a pipe:cat x | sort: \n", [(b"a", "pipe", b"cat x | sort:")]),
    (b"a mem://b/c:d\n", [(b"a", "url", b"mem://b/c:d")]),
    # only known prefixes are prefixes
    (b"a C:x\nb 12:30.jpg\n", [(b"a", "path", b"C:x"), (b"b", "path", b"12:30.jpg")]),
    (b"a Text:x\nb :x\n", [(b"a", "path", b"Text:x"), (b"b", "path", b":x")]),
    (b"a mem:/x\nb ./s3://b\n", [(b"a", "path", b"mem:/x"), (b"b", "path", b"./s3://b")]),
    (b"a:b x\n", [(b"a:b", "path", b"x")]),
]


@each_row(("content", "expected"), RECIPES)
def test_recipes(content: bytes, expected: list[tuple[bytes, str, bytes]]) -> None:
    rows = list(read_recipe(io.BytesIO(content), "r", pipes_allowed=True))
    assert [(row.name, row.kind, row.value) for row in rows] == expected


BAD_RECIPES = [
    # content, message
    (b"a b\n\na.jpg\n", "r:3: no source: a line is NAME SOURCE"),
    (b"a.jpg\t\n", "r:1: no source: a line is NAME SOURCE"),
    (b"a file:\n", "r:1: no source: a line is NAME SOURCE"),
    (b"a pipe: \n", "r:1: no source: a line is NAME SOURCE"),
    (b"\tb\n", "r:1: no name before the tab"),
    (b"a hex:0\n", "r:1: bad hex: "),
    (b"a hex:\xff\n", "r:1: bad hex: "),
    (b"# x\r\na base64:A\r\n", "r:2: bad base64: "),
    (b"a base64:AP8\n", "r:1: bad base64: "),
    (b"a base64:A*P8=\n", "r:1: bad base64: "),
    (b"a nix://b/c\n", f"r:1: nix://b/c: unknown scheme nix:// (known: {KNOWN})"),
    (b"a.jpg" + bytes(95) + b"0000644\n", "r:1: no source: a line is NAME SOURCE"),
    (b"a.jpg" + bytes(95) + b"0000644 \0\n", "r:1: a NUL byte: not a recipe?"),
    (b"a x\0y\n", "r:1: a NUL byte: not a recipe?"),
    (b"a\0b text:x\n", "r:1: a NUL byte: not a recipe?"),
]


@each_row(("content", "message"), BAD_RECIPES)
def test_bad_recipes(content: bytes, message: str) -> None:
    with pytest.raises(TarkitError) as caught:
        list(read_recipe(io.BytesIO(content), "r", pipes_allowed=True))
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 1


def test_hint_of_an_unknown_scheme() -> None:
    with pytest.raises(TarkitError) as caught:
        list(read_recipe([b"a nix://b/c"], "r", pipes_allowed=True))
    assert str(caught.value.hint).startswith("use a command: 'pipe:COMMAND nix://b/c'")


def test_recipes_and_tables_are_read_on_demand() -> None:
    def endless(line: bytes, header: bytes = b"") -> Iterator[bytes]:
        return itertools.chain([header] if header else [], itertools.repeat(line))

    assert next(read_recipe(endless(b"a b\n"), "r", pipes_allowed=True)).name == b"a"
    kinds: list[tuple[Format, bytes, bytes]] = [
        ("tsv", b"a\tb\n", b"1\t2\n"),
        ("csv", b"a,b\n", b"1,2\n"),
        ("jsonl", b"", b'{"a":1}'),
    ]
    for format, header, line in kinds:
        assert isinstance(
            rows := read_table(endless(line, header), format, "r", pipes_allowed=True), types.GeneratorType
        )
        assert next(rows) == Row(b"000000000.a", "data", b"1", 2 if header else 1, "r")


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text("az09./", min_size=1, max_size=9).map(str.encode), st.binary()), max_size=5))
def test_any_content_has_a_line(entries: list[tuple[bytes, bytes]]) -> None:
    content = b"".join(name + b"\thex:" + value.hex().encode() + b"\n" for name, value in entries)
    rows = read_recipe(io.BytesIO(content), "r", pipes_allowed=False)
    assert [(row.name, row.value) for row in rows] == entries


def entries(content: bytes, format: Format, key: str | None = None, columns: list[str] | None = None) -> str:
    """Return the rows, or the error, as a text: `NAME=VALUE`, `NAME<KIND:VALUE`."""
    try:
        rows = list(read_table(io.BytesIO(content), format, "t", key=key, columns=columns, pipes_allowed=False))
    except Usage as error:
        return f"usage: {error}"
    except TarkitError as error:
        return str(error)
    return " ".join(
        f"{row.name.decode()}={row.value!r}"[: None if row.kind == "data" else 0]
        or f"{row.name.decode()}<{row.kind}:{row.value.decode()}"
        for row in rows
    )


TABLES: list[tuple[Format, bytes, str | None, list[str] | None, str]] = [
    # format, content, key, columns, entries
    ("tsv", b"__key__\tcls\ttxt\na\t1\tx\nb\t2\ty\n", None, None, "a.cls=b'1' a.txt=b'x' b.cls=b'2' b.txt=b'y'"),
    ("tsv", b"b\ta\r\nx\t1\r\ny\t2", "{index}", None, "0.b=b'x' 0.a=b'1' 1.b=b'y' 1.a=b'2'"),
    ("tsv", b"a\n1\n2\n", None, None, "000000000.a=b'1' 000000001.a=b'2'"),
    ("tsv", b"", None, None, ""),
    ("tsv", b"a\tb\n", None, None, ""),
    ("tsv", b"\xef\xbb\xbfa\n1\n", None, None, "000000000.a=b'1'"),
    ("tsv", b"a\tb\n1\t2\n\n\r\n3\t4\n", "{index}", None, "0.a=b'1' 0.b=b'2' 1.a=b'3' 1.b=b'4'"),
    ("tsv", b"a\n\n1\n", "{index}", None, "0.a=b'' 1.a=b'1'"),  # one column: an empty line is a row
    ("tsv", b"a\tb\n\t\n", "{index}", None, "0.a=b'' 0.b=b''"),
    ("tsv", b"a\tb\n\\t\\n\t\\r\\\\n\n", "{index}", None, "0.a=b'\\t\\n' 0.b=b'\\r\\\\n'"),
    ("tsv", b"a\tb\n1\t\"2\n", "{index}", None, "0.a=b'1' 0.b=b'\"2'"),  # quotes have no effect
    ("tsv", b"seg.png\t__x__\n1\t2\n", "{index}", None, "0.seg.png=b'1' 0.__x__=b'2'"),
    ("tsv", b"a\tb\n1\n", None, None, "t:2: cells in this row: 1, columns: 2"),
    ("tsv", b"a\tb\n\n1\t2\t3\n", None, None, "t:3: cells in this row: 3, columns: 2"),
    ("tsv", b"a\n1\t\n", None, None, "t:2: cells in this row: 2, columns: 1"),
    ("tsv", b"a\nC:\\new\\data\n", None, None, "t:2: unknown escape \\d: write a backslash twice"),
    ("tsv", b"a\nx\\", None, None, "t:2: unknown escape \\: write a backslash twice"),
    ("tsv", b"\n\na\ta\n", None, None, "t:3: two columns for 'a'"),
    ("tsv", b"@a\ta\n", None, None, "t:1: two columns for 'a'"),
    ("tsv", b"a\t\n", None, None, "t:1: invalid column name ''"),
    ("tsv", b"@\tb\n", None, None, "t:1: invalid column name '@'"),
    ("tsv", b"a/b\tb\n", None, None, "t:1: invalid column name 'a/b'"),
    # sources
    ("tsv", b"@jpg\tcls\nx y.jpg\t1\n", "{index}", None, "0.jpg<path:x y.jpg 0.cls=b'1'"),
    ("tsv", b"@jpg\tcls\n\t\n", "{index}", None, "0.cls=b''"),  # no source, no entry
    ("tsv", b"@a\t@b\t@c\ntext:\tfile:\\t\tmem://x\n", "{index}", None, "0.a=b'' 0.b<path:\t 0.c<url:mem://x"),
    ("tsv", b"@a\nx\npipe:x\n", None, None, "t:3: pipe: is not allowed here"),
    ("tsv", b"@a\nnix://b\n", None, None, "t:2: nix://b: unknown scheme nix:// (known: ..."),
    ("tsv", b"@a\nfile:\n", None, None, "t:2: column '@a': invalid source"),
    ("tsv", b"@a\nx\0\n", None, None, "t:2: column '@a': invalid source"),
    # columns
    ("tsv", b"http://h/0\nhttp://h/1\n", None, ["url"], "000000000.url=b'http://h/0' 000000001.url=b'http://h/1'"),
    ("tsv", b"a\t1\n", None, ["__key__", "@b"], "a.b<path:1"),
    ("csv", b"a,1\n", None, ["__key__", "b"], "a.b=b'1'"),
    ("tsv", b"1\t2\n", None, ["a"], "t:1: cells in this row: 2, columns: 1"),
    ("tsv", b"1\t2\n", None, ["a", "a"], "usage: two columns for 'a'"),
    ("jsonl", b"{}\n", None, ["a"], "usage: column names are for tsv and csv only"),
    # keys
    ("tsv", b"id\ta\n17\tx\n", "{a}/{id:04d}-{index}", None, "x/0017-0.id=b'17' x/0017-0.a=b'x'"),
    ("tsv", b"__key__\ta\nk\tx\n", "{index}", None, "0.a=b'x'"),
    ("tsv", b"__key__\ta\nk\tx\n", "n/{__key__}-{{}}", None, "n/k-{}.a=b'x'"),
    ("tsv", b"json.id\ta\n7\tx\n", "{json.id:>3}", None, "  7.json.id=b'7'   7.a=b'x'"),
    ("tsv", b"id:x\ta\n7\tx\n", "id:x", None, "7.id:x=b'7' 7.a=b'x'"),
    ("tsv", b"@p\nx\n", "{@p}", None, "x.p<path:x"),
    ("tsv", b"__key__\ta\na.b/c\tx\n", None, None, "a.b/c.a=b'x'"),
    ("tsv", b"__key__\ta\na.b\tx\n", None, None, "t:2: invalid key 'a.b': a dot after the last slash ends a key"),
    ("tsv", b"__key__\ta\na/\tx\n", None, None, "t:2: invalid key 'a/'"),
    ("tsv", b"__key__\ta\na\0b\tx\n", None, None, "t:2: invalid key 'a\\x00b'"),
    ("tsv", b"__key__\ta\n\tx\n", None, None, "t:2: column '__key__' of the key is empty"),
    ("tsv", b"a\nx\n", "{b}", None, "t:2: there is no column 'b', which is in the key"),
    ("tsv", b"a\nx\n", "{a:04d}", None, "t:2: column 'a' in the key: invalid literal for int() with base 10: 'x'"),
    ("tsv", b"a\n", "{index:x:}", None, "usage: invalid template for keys '{index:x:}': Invalid format specifier..."),
    ("tsv", b"a\nx\n", "{", None, "usage: invalid template for keys '{': Single '{' encountered in format string"),
    *(
        ("tsv", b"", bad, None, f"usage: invalid template for keys '{bad}'")
        for bad in ("", "{}", "{a!r}", "{{a}}")
    ),
    # csv
    ("csv", b'a,b\n"1,""2""",\n', "{index}", None, "0.a=b'1,\"2\"' 0.b=b''"),
    ("csv", b'a,b\r\n"1\r\n2",3\r\n\r\n4,5\r\n', "{index}", None, "0.a=b'1\\r\\n2' 0.b=b'3' 1.a=b'4' 1.b=b'5'"),
    ("csv", b"a,b\n\xff\\t,\xc3\xa4\n", "{index}", None, "0.a=b'\\xff\\\\t' 0.b=b'\\xc3\\xa4'"),
    ("csv", b'a\n""\n\n1\n', "{index}", None, "0.a=b'' 1.a=b'1'"),
    ("csv", b'\xef\xbb\xbf"a"\n1\n', "{index}", None, "0.a=b'1'"),
    ("csv", b'"a\nb",c\n1,2\n3\n', None, None, "t:4: cells in this row: 1, columns: 2"),
    ("csv", b'a,b\n"1\n\n2",3\n\n"x\ny"\n', None, None, "t:6: cells in this row: 1, columns: 2"),
    ("csv", b'a,@b\n"1\n2",3\n"x\ny",pipe:z\n', None, None, "t:4: pipe: is not allowed here"),
    ("csv", b'a,b\n1,2\n"1\n2,3\n', None, None, "t:3: unexpected end of data"),
    ("csv", b'a,b\n"1"2,3\n', None, None, "t:2: ',' expected after '\"'"),
    # jsonl
    ("jsonl", b'{"__key__":"k","a":"\xc3\xa4\\u00e4","b":7}\n', None, None, "k.a=b'\\xc3\\xa4\\xc3\\xa4' k.b=b'7'"),
    ("jsonl", b'{"a":{"x":[1, "\\u00e4"]}}', "{index}", None, "0.a=b'{\"x\":[1,\"\\xc3\\xa4\"]}'"),
    ("jsonl", b'{"a":true,"b":1.50,"c":[]}', "{index}", None, "0.a=b'true' 0.b=b'1.5' 0.c=b'[]'"),
    ("jsonl", b'{"a":null,"b":""}\n\n{"a":1}\r\n', "{index}", None, "0.b=b'' 1.a=b'1'"),
    ("jsonl", b'{"@a":"x","@b":null,"@c":""}\n', "{index}", None, "0.a<path:x"),
    ("jsonl", b'{"__key__":3,"a":1}\n', None, None, "3.a=b'1'"),
    ("jsonl", b'\xef\xbb\xbf{"a":1}', "{index}", None, "0.a=b'1'"),
    ("jsonl", b'{"id":17,"a":1}', "{id:04d}", None, "0017.id=b'17' 0017.a=b'1'"),
    ("jsonl", b'{"__key__":"k","a":1}\n{"a":1}\n', None, None, "t:2: some rows have a __key__ and others do not"),
    ("jsonl", b'{"a":1}\n{"__key__":"k","a":1}\n', None, None, "t:2: some rows have a __key__ and others do not"),
    ("jsonl", b'{"__key__":null,"a":1}\n', None, None, "t:1: column '__key__' of the key is empty"),
    ("jsonl", b'{"a":1}\n{"@a":1}\n', None, None, "t:2: bad JSON: '@a': a source must be a string"),
    ("jsonl", b'{"a":1,"@a":"x"}\n', None, None, "t:1: two columns for 'a'"),
    ("jsonl", b'{"a":1,"a":2}\n', None, None, "t:1: bad JSON: repeated name in an object"),
    ("jsonl", b'{"a":1}\n[1]\n', None, None, "t:2: bad JSON: not an object"),
    ("jsonl", b'{"a":}\n', None, None, "t:1: bad JSON: Expecting value at column 6"),
    ("jsonl", b'{"a":"\xff"}\n', None, None, "t:1: bad JSON: 'utf-8' codec can't decode byte 0xff..."),
    ("jsonl", b'{"a":"\\ud800"}\n', None, None, "t:1: bad JSON: 'utf-8' codec can't encode character..."),
    ("jsonl", b'{"\\ud880":1}\n', None, None, "t:1: bad JSON: 'utf-8' codec can't encode character..."),
    ("jsonl", b"[" * 100_000, None, None, "t:1: bad JSON: nested too deep"),
    ("jsonl", b'{"a":' + b"1" * 5000 + b"}", None, None, "t:1: bad JSON: Exceeds the limit..."),
]  # fmt: skip


@each_row(("format", "content", "key", "columns", "expected"), TABLES)
def test_tables(format: Format, content: bytes, key: str | None, columns: list[str] | None, expected: str) -> None:
    found = entries(content, format, key, columns)
    assert found == expected or (expected.endswith("...") and found.startswith(expected[:-3]))


def test_pipes_of_a_table() -> None:
    [row] = read_table([b"@a\n", b"pipe:cat x\n"], "tsv", "t", pipes_allowed=True)
    assert row == Row(b"000000000.a", "pipe", b"cat x", 2, "t")


def test_an_open_quote_does_not_extend_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CELL_LIMIT", 1000)
    lines = itertools.chain([b"a,b\n", b'1,"2\n'], itertools.repeat(b"3,4\n"))
    with pytest.raises(TarkitError, match=r"(?m)^t:2: field larger than field limit \(1000\)$"):
        list(read_table(lines, "csv", "t", pipes_allowed=True))
    csv.field_size_limit(1 << 17)


@settings(max_examples=40)
@given(st.binary())
@example(b"\t\n\r\\\t\t\\\\")
def test_escapes_of_tsv_are_reversible(cell: bytes) -> None:
    escaped = escape_tsv(cell)
    assert unescape_tsv(escaped) == cell
    assert not set(escaped) & set(b"\t\r\n")


@settings(max_examples=25)
@given(st.lists(st.lists(st.binary(max_size=9), min_size=2, max_size=2), max_size=4), st.sampled_from([b"\n", b"\r\n"]))
def test_any_cells_survive_tsv(rows: list[list[bytes]], end: bytes) -> None:
    content = b"a\tb" + end + b"".join(b"\t".join(map(escape_tsv, row)) + end for row in rows)
    read = read_table(io.BytesIO(content), "tsv", "t", pipes_allowed=False)
    assert [row.value for row in read] == [cell for row in rows for cell in row]


LETTERS = "ab,;\"'\\ \t\r\n\0\x1c\x85\u2028\ufeffé😀"


@settings(max_examples=25)
@given(st.lists(st.lists(st.text(LETTERS, max_size=9), min_size=2, max_size=2), max_size=4))
def test_any_cells_survive_csv_and_jsonl(rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b"], *rows])
    lines = [json.dumps({"a": row[0], "b": row[1]}).encode() for row in rows]
    cells = [cell.encode() for row in rows for cell in row]
    assert [
        row.value for row in read_table(io.BytesIO(text.getvalue().encode()), "csv", "t", pipes_allowed=False)
    ] == cells
    assert [row.value for row in read_table(lines, "jsonl", "t", pipes_allowed=False)] == cells
