"""One field model: a name has the same value in a sample for every command, and causes the same problems."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import wave
from hashlib import sha256
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Link, Members, Run, entries, keys


def wav(frames: int, rate: int) -> bytes:
    """Return a sound of silence, of one channel and 8 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, rate, frames, "NONE", ""))
        sound.writeframes(bytes(frames))
    return file.getvalue()


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
    ("sha256.x", {"k.x": b"12"}, sha256(b"12").hexdigest()),
    *(("lines.x", {"k.x": text.encode()}, count) for text, count in (("", 0), ("a", 1), ("a\n", 1), ("\r\n\né", 3))),
    ("lines.x", {"k.x": "é\n".encode() * 700_000}, 700_000),
    ("duration.x", {"k.x": wav(20_000, 8000)}, 2.5),
    ("sha256.x", {"k.x": b""}, sha256(b"").hexdigest()),
    ("SHA256.x", {"k.x": b"1", "k.SHA256": b'{"x": 7}'}, 7),
    ("sha256.y", [("k.x", b"12" * 999_999), ("k.y", Link("k.x"))], sha256(b"12" * 999_999).hexdigest()),
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
    ("sha256.y", {"k.x": b"1"}, "missing-field"),
    ("lines.x", {"k.x": b"\xff"}, "bad-field"),
    ("lines.x", {"k.x": b"\xc3"}, "bad-field"),
    ("ok.x", {"k.x": b"1"}, "bad-field"),
    ("sha256.x", {"k.x": Link("j.x")}, "bad-field"),
    ("x", {"k.x": Link("j.x")}, "bad-field"),
]


@pytest.mark.slow
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
    assert keys(run("cat", word, "--where", f"{name} == {value!r}", *allow).stdout) == "k"
    assert run("cat", word, "--where", f"{name} != {value!r}", *allow).stdout == bytes(10240)
    run("sort", word, "-s", name, "-o", "sorted.tar", *allow)
    run("split", word, "--parts", "a=0.5,b=0.5", "--group-field", name, "-o", "{part}-%d.tar", *allow)
    archive({f"k.{field}": content for field, content in (("x", b"9" * 9), ("v", str(value).encode()))}, "text.tar")
    run("split", "text.tar", "--parts", "a=0.5,b=0.5", "--group-field", "v", "-o", "text-{part}-%d.tar")
    parts = [{each[0] for each in os.listdir() if each.startswith(("a-", "b-"))}]
    assert parts == [{each[5] for each in os.listdir() if each.startswith("text-")}]


@pytest.mark.slow
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
    if len(name) < 1000:  # the limit of a number in Python
        commands.append(["cat", word, "--where", f"{name} == 1", "-o", "out"])
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


# ---- Paths


def drawn(draw: random.Random, depth: int = 3) -> Any:
    """Return a value of JSON."""
    kind = draw.choice("olls" if depth else "s")
    if kind == "o":
        return {draw.choice(["a", "b c", "0", "n.m"]): drawn(draw, depth - 1) for _ in range(draw.randint(1, 3))}
    if kind == "l":
        return [drawn(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    return draw.choice([1, "x", 2.5])


def written(draw: random.Random, steps: list[str | int]) -> str:
    """Return a path with each step in one of its forms."""
    text = "json"
    for step in steps:
        forms = [f"[{step}]"] if isinstance(step, int) else [f"['{step}']", f'["{step}"]']
        if str(step).replace(" ", "-").isalnum() and " " not in str(step):
            forms += [f".{step}"] * 3
        text += draw.choice(forms)
    return text


def at(value: Any, steps: list[str | int]) -> Any:
    """Return the value at a path, None if there is none: the model."""
    for step in steps:
        try:
            value = (
                value[str(step)] if isinstance(value, dict) else value[int(step)] if isinstance(value, list) else None
            )
        except (LookupError, ValueError):
            return None
    return value


@each_row("seed", range(60))
def test_paths(seed: int, run: Run, archive: Archive) -> None:
    """`json.t[0]`, `json.t.0` and `json['t'][0]` are one value in expressions, tables, orders, counts and Python."""
    draw = random.Random(seed)
    document = drawn(draw)
    steps = [draw.choice(["a", "b c", "0", 0, 1, -1, "n.m", "1"]) for _ in range(draw.randint(1, 3))]
    path, value = written(draw, steps), at(document, steps)
    word = archive({"k.json": json.dumps(document).encode(), "k.id": b"1"})
    has = run("cat", word, "--where", f"has({path})").stdout
    assert (keys(has) == "k") == (value is not None), path
    literal = isinstance(value, (int, float, str))
    if literal:
        assert keys(run("cat", word, "--where", f"{path} == {value!r}").stdout) == "k"
    elif value is None:
        assert "missing-field" in run("cat", word, "--where", f"{path} == 1", exit=1).stderr
    if " " in path:  # blanks separate the columns of a table
        return
    if value is None:
        assert "missing-field" in run("tsv", word, "-f", path, exit=1).stderr
        assert "missing-field" in run("sort", word, "-s", path, "-o", "out", exit=1).stderr
        return
    assert json.loads(run("tsv", word, "-f", path, "--format", "jsonl", "--no-key").stdout) == {path: value}
    run("sort", word, "-s", path, "-o", "sorted.tar")
    text = value if isinstance(value, str) else json.dumps(value)
    counted = json.loads(run("stats", word, "--by", path, "--json").stdout)
    assert counted["by"]["classes"] == [{"value": text, "samples": 1}]
    assert tarkit.open(word).stats(by=path).classes == {text: 1}
    if literal:
        assert [sample.key for sample in tarkit.open(word).where(f"{path} == {value!r}").sort(path)] == ["k"]


@each_row(
    ("expression", "message"),
    [
        ("len(json.n) == 1", "expected text, a list or an object, not the number 7; str(NAME) takes a field as text"),
        ("len(json.none) == 1", "expected text, a list or an object, not null; str(NAME) takes a field as text"),
        ("json.l.5 == 1", "'k' has no 'l.5' in its field 'json'"),
        ("json.l[5] == 1", "for 'k': no 5"),
        ("json.noen == 1", "'k' has no 'noen' in its field 'json'; did you mean 'none'?"),
        ("json.box.widht == 1", "'k' has no 'box.widht' in its field 'json'; did you mean 'box.width'?"),
        ("json.other == 1", "'k' has no 'other' in its field 'json' [missing-field]"),
    ],
)
def test_messages_of_expressions(expression: str, message: str, run: Run, archive: Archive) -> None:
    """What is wrong with a value is said with its name as it is written."""
    word = archive({"k.json": b'{"n": 7, "none": null, "l": [1], "box": {"width": 1}, "\\ud800": 1}'})
    assert message in run("cat", word, "--where", expression, exit=1).lines[0]


@each_row(("asked", "there"), [("\xe9", "e\u0301"), ("e\u0301", "\xe9"), ("\uac00", "\u1100\u1161")])
def test_unicode_forms(asked: str, there: str, run: Run, archive: Archive) -> None:
    """A key or a field that is there in another normal form, as macOS writes names, is said to be."""
    word = archive({f"{there}.{there}": b"1"})
    words = "in another Unicode form (NF"
    for command in (
        ("get", asked, word, "-o", "out"),
        ("get", f"{there}.{asked}", word),
        ("cat", word, "-f", asked, "-o", "out"),
        ("cat", word, "--where", f"field('{asked}') == 1", "-o", "out"),
        ("tsv", word, "-f", asked),
        ("sort", word, "-s", asked, "-o", "out"),
    ):
        assert words in run(*command, exit=1).stderr, command
    with open("keys", "w") as file:
        file.write(f"{asked}\n{there}x\n")
    assert words in run("cat", word, "--keys-from", "keys", "-o", "out").stderr
    assert words in run("check", word, "--against", "keys", exit=1).stdout.decode()
    with pytest.raises(KeyError) as raised:
        tarkit.open(word).get(asked)
    assert words in str(getattr(raised.value, "hint", ""))
