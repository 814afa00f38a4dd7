"""One field model: a name has the same value in a sample for every command, and causes the same problems."""

from __future__ import annotations

import csv
import io
import json
import os
from typing import Any

import pytest

from tests._tools import each_row
from tests.conftest import Archive, Link, Members, Run, entries, keys

JSON = '{"a": "é", "n": 7, "o": {"b": [1, "x"]}, "t": "\\ud83d\\ude00"}'
BAD: tuple[tuple[str, bytes], ...] = (
    ("json.a", b'{"a": "\\ud800"}'),
    ("json.a", b'{"a": "x\\uDfFfy"}'),
    ("json.a", b'{"a": "\\udce9"}'),
    ("json.a", b'{"a": "\\ude00\\ud83d"}'),
    ("json.a", b'{"a": ["x", {"b": "\\ud800"}]}'),
    ("json.a", b'{"a": {"\\ud800": 1}}'),
    ("json.a.0", b'{"a": ["\\ud800"]}'),
    ("json.a", b'{"a": "\xed\xa0\x80"}'),  # UTF-8 has no surrogates
    ("json.a", b'{"a": "\xe9"}'),
    ("json.a", b'{"a": "x"'),
    ("json.a", b""),
    ("json.a", b"[" * 100_000),
    ("json.a", JSON.encode("utf-16")[:-1]),
)
VALUES: list[tuple[str, Members, Any]] = [
    ("size", [("k.x", b"1"), ("README", b"22222222"), ("k.y", b"1")], 2),
    ("size", [("README", b"22222222"), ("k.y", b"1")], 1),
    ("size", [("k.y", b"1"), ("d", None), ("README", b"22222222")], 1),
    ("size", {"k.x": b"12", "k.X": b"345"}, 5),
    ("size", [("k.x", b"12"), ("k.y", Link("k.x"))], 2),
    ("size.y", [("k.x", b"12"), ("k.y", Link("k.x"))], 2),
    ("y", [("k.x", b"12"), ("k.y", Link("k.x"))], 12),
    ("size", {"k.size": b"7"}, 7),
    ("size.x", {"k.size.x": b"7", "k.x": b"12"}, 7),
    ("size.x", {"k.size": b'{"x": 7}', "k.x": b"12"}, 2),
    ("SIZE.x", {"k.size": b'{"x": 7}', "k.x": b"12"}, 7),
    ("__key__", {"k.__key__": b"other"}, "k"),
    ("offset", {"k.x": b"1"}, 0),
    ("json.a", {"k.json": b'{"a": 9}', "k.json.a": b"7"}, 7),
    ("json.a.b", {"k.json": b'{"a": {"b": 9}}', "k.json.a": b'{"b": 7}'}, 7),
    *(
        (name, {"k.json": JSON.encode(codec)}, value)
        for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
        for name, value in (("json.a", "é"), ("JSON.n", 7), ("json.o.b.1", "x"), ("json.t", "\U0001f600"))
    ),
    ("json.a", {"k.json": b'{"a": 7, "b": "\\ud800"}'}, 7),
    ("json.a", {"k.json": b'{"a": "\\\\ud800"}'}, "\\ud800"),
    ("json.a", {"k.json": b'{"a": "\\u0000"}'}, "\0"),
]
FAULTS: list[tuple[str, Members, str]] = [
    *((name, {"k.json": content}, "bad-field") for name, content in BAD),
    ("size.y", {"k.x": b"12", "k.size": b'{"y": 7}'}, "missing-field"),
    ("json.a", {"k.x": b"12"}, "missing-field"),
    ("json.b", {"k.json": b'{"a": 1}'}, "missing-field"),
    ("json.1", {"k.json": b"[0]"}, "missing-field"),
    ("json." + "0" * 20 + "1", {"k.json": b"[0, 1]"}, "missing-field"),
    ("json." + "9" * 5000, {"k.json": b"[0]"}, "missing-field"),
    ("width.x", {"k.x": b"1"}, "bad-field"),
    ("x", {"k.x": Link("j.x")}, "bad-field"),
]


def expression(name: str) -> str:
    """Return a name as --where takes it: dots and names, or subscripts for numbers."""
    head, *rest = name.split(".")
    return head + "".join(f"[{int(step)}]" if step.isdigit() else f".{step}" for step in rest)


@each_row(("name", "members", "value"), VALUES)
def test_values(name: str, members: Members, value: Any, run: Run, archive: Archive) -> None:
    """Every command has the same value."""
    word = archive(members)
    allow = ["--allow", "unmovable-entry"]
    out = run("tsv", word, "-f", name, "--no-key", "--format", "jsonl").stdout
    found = next(iter(json.loads(out).values()))
    assert found in (value, str(value))
    out = run("tsv", word, "-f", name, "--no-key", "--no-header", "--format", "csv").stdout
    [[cell]] = csv.reader(io.StringIO(out.decode(), newline=""))
    assert cell == str(value)
    assert keys(run("cat", word, "--where", f"{expression(name)} == {value!r}", *allow).stdout) == "k"
    assert run("cat", word, "--where", f"{expression(name)} != {value!r}", *allow).stdout == bytes(10240)
    run("sort", word, "-s", name, "-o", "sorted.tar", *allow)
    run("split", word, "--parts", "a=0.5,b=0.5", "--group-field", name, "-o", "{part}-%d.tar", *allow)
    archive({f"k.{field}": content for field, content in (("x", b"9" * 9), ("v", str(value).encode()))}, "text.tar")
    run("split", "text.tar", "--parts", "a=0.5,b=0.5", "--group-field", "v", "-o", "text-{part}-%d.tar")
    parts = [{each[0] for each in os.listdir() if each.startswith(("a-", "b-"))}]
    assert parts == [{each[5] for each in os.listdir() if each.startswith("text-")}]


@each_row(("name", "members", "fault"), FAULTS)
def test_faults(name: str, members: Members, fault: str, run: Run, archive: Archive) -> None:
    """Every command reports the same problem in the same sample, and drops or keeps that sample if requested."""
    word = archive(members)
    commands = [
        ["tsv", word, "-f", name, "-o", "out", "--format", "tsv"],
        ["sort", word, "-s", name, "-o", "out"],
        ["sort", word, "-s", f"__key__ {name}", "-r", "-o", "out"],
        ["split", word, "--parts", "a=0.5,b=0.5", "--group-field", name, "-c", "9", "-o", "out-{part}-%d.tar"],
    ]
    if "0" not in name and "9" not in name:  # --where takes digits as subscripts, which are numbers
        commands.append(["cat", word, "--where", f"{expression(name)} == 1", "-o", "out"])
    for command in commands:
        ran = run(*command, "--allow", "unmovable-entry", exit=1)
        line = next(each for each in ran.lines if "warning" not in each)
        assert line.startswith(f"tarkit: {word}: at 0: "), command
        assert line.endswith(f" [{fault}]"), command
        assert ran.lines[-1].startswith("hint: "), command
        assert os.listdir() == [word]
        ran = run(*command, "--allow", "unmovable-entry", "--skip", fault)
        assert f"[{fault}]" in ran.stderr
        for path in set(os.listdir()) - {word}:
            assert command[0] == "tsv" or not entries(path)
            os.unlink(path)


@each_row(("name", "content"), [row for row in BAD if b"\\u" in row[1]])
def test_invalid_text(name: str, content: bytes, run: Run, archive: Archive) -> None:
    """Half of a surrogate pair is no text in any format of tables: an error or an empty cell, but never other bytes."""
    word = archive({"a.json": content, "b.json": b'{"a": ["x"]}'})
    for format in ("tsv", "csv", "jsonl", "json", "yaml", "parquet"):
        if format in ("yaml", "parquet"):
            pytest.importorskip({"yaml": "yaml", "parquet": "pyarrow"}[format])
        words = ("tsv", word, "-f", name, "--format", format, "-o", f"t.{format}")
        line = run(*words, exit=1).lines[0]
        assert line.endswith("has text with a lone surrogate, which is not Unicode text [bad-field]")
        assert os.listdir() == [word]
        for option in ("--skip", "--allow"):
            run(*words, option, "bad-field")
            if format in ("tsv", "csv", "jsonl"):
                cells = dict(entries(run("create", "--format", format, f"t.{format}").stdout))
                assert cells.pop(f"a.{name}", b"") == b""
                assert list(cells.values()) == [b"x" if name == "json.a.0" else b'["x"]']
            os.unlink(f"t.{format}")
    assert keys(run("cat", word, "--where", "has.json.a").stdout) == "a b"
    assert run("cat", word, "--where", "str(json.a) == ''", exit=1).lines[0].endswith(" [bad-field]")


def test_invalid_text_inside_a_value(run: Run, archive: Archive) -> None:
    """A surrogate inside a value that an expression uses is an error as well."""
    word = archive({"a.json": b'{"a": "\\ud800", "b": ["\\ud800"]}'})
    for where in ("json['a'] == 'x'", "json['b'][0] == 'x'", "field('json')['a'] != 'x'"):
        line = run("cat", word, "--where", where, exit=1).lines[0]
        assert line.endswith("text with a lone surrogate, which is not Unicode text [bad-field]")
    assert keys(run("cat", word, "--where", "'a' in json and len(json['b']) == 1").stdout) == "a"
