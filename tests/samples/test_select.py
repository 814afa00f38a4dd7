"""Selection of samples: samples/select.py, and the lists of keys of samples/keys.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError, Usage
from tarkit.samples.keys import read_keys
from tarkit.samples.sample import TarSample
from tarkit.samples.select import KeyList, Select, Slice, parse_slice
from tests._tools import each_row

MOST = 2**63 - 2


@each_row(
    ("text", "expected"),
    [
        ("3", (3, 4, 1)),
        ("0", (0, 1, 1)),
        (":", (0, None, 1)),
        ("::", (0, None, 1)),
        ("2:", (2, None, 1)),
        (":5", (0, 5, 1)),
        ("2:5", (2, 5, 1)),
        ("5:2", (5, 2, 1)),
        ("::3", (0, None, 3)),
        ("1:9:2", (1, 9, 2)),
        (" 1 : 9 ", (1, 9, 1)),
        (f"{10**30}:{10**30}:{10**30}", (MOST, MOST, MOST)),
        (f"{10**30}", (MOST, MOST + 1, 1)),
        ("", "empty slice"),
        ("x", "invalid slice 'x': LO:HI:STEP takes up to three integers"),
        ("1.5", "invalid slice '1.5': LO:HI:STEP takes up to three integers"),
        ("1:2:3:4", "invalid slice '1:2:3:4': LO:HI:STEP takes up to three integers"),
        ("-1", "invalid slice '-1': negative numbers are not supported"),
        (":-1", "invalid slice ':-1': negative numbers are not supported"),
        ("::-1", "invalid slice '::-1': negative numbers are not supported"),
        ("::0", "invalid slice '::0': the step must be at least 1"),
    ],
)
def test_slices(text: str, expected: Slice | str) -> None:
    """LO:HI:STEP is a slice as in Python, but with indices from the start only."""
    result: Slice | str
    try:
        result = parse_slice(text)
    except Usage as error:
        result = str(error)
    assert result == expected


def samples(keys: str) -> Iterator[TarSample]:
    """Return samples with these keys; `-` is a sample without a key."""
    for key in keys.split():
        yield TarSample(None if key == "-" else key.encode(), None, [], 0, 0)  # type: ignore[arg-type]


def chosen(select: Select, keys: str) -> str:
    return " ".join((sample.key or b"-").decode() for sample in select(samples(keys)))


@each_row(
    ("settings", "expected"),
    [
        ({}, "a b - c d e"),
        ({"seed": 5}, "a b - c d e"),
        ({"match": ""}, "a b c d e"),
        ({"match": "[a-c]"}, "a b c"),
        ({"match": "[a-c]", "slice": (1, None, 1)}, "b c"),
        ({"match": "[a-c]", "slice": (1, None, 1), "count": 1}, "b"),
        ({"keys": KeyList("list", frozenset((b"c", b"a", b"x")))}, "a c"),
        ({"keys": KeyList("list", frozenset((b"c", b"a", b"x"))), "match": "[b-e]"}, "c"),
        ({"slice": (0, None, 2)}, "a c e"),
        ({"count": 0}, ""),
        ({"count": 10**30}, "a b c d e"),
    ],
)
def test_select(settings: dict[str, Any], expected: str) -> None:
    """match, keys, sample, slice and count apply in this order; a selection drops entries without a key."""
    assert chosen(Select(**settings), "a b - c d e") == expected


def test_keys_found() -> None:
    """A key counts as found when its sample is read, after --match and before --slice."""
    keys = KeyList("list", frozenset((b"a", b"b", b"c", b"x")))
    assert chosen(Select(keys=keys, match="[ab]", slice=(0, 1, 1)), "a b c") == "a"
    assert keys.present == {b"a"}  # b is not searched any more
    assert keys.missing() == [b"b", b"c", b"x"]


def test_sampling_draws_once_for_each_sample() -> None:
    """Sample i is selected if the i-th draw of Python's random with that seed is below P."""
    names = " ".join(map(str, range(1000)))
    draw = random.Random(3).random
    assert chosen(Select(sample=0.3, seed=3), names) == " ".join(name for name in names.split() if draw() < 0.3)
    draw = random.Random(3).random
    drawn = [name for name in names.split() if draw() < 0.3]
    assert chosen(Select(sample=0.3, seed=3, slice=(1, 9, 2), count=3), names) == " ".join(drawn[1:9:2][:3])
    assert chosen(Select(sample=0, seed=3), names) == ""
    assert chosen(Select(sample=1, seed=3), names) == names


def test_the_rest_is_not_read() -> None:
    """With a count the rest of the input is not read."""
    several = samples("a b c d e")
    assert [sample.key for sample in Select(count=2)(several)] == [b"a", b"b"]
    assert next(several).key == b"c"
    assert next(samples("a")).key == b"a"


@each_row("share", [-0.1, 1.1, float("nan"), float("inf")])
def test_shares(share: float) -> None:
    """A share is a number from 0 to 1."""
    with pytest.raises(Usage, match="sample takes a fraction from 0 to 1"):
        Select(sample=share)


# ---- lists of keys

FILES = {
    "list": b"a\nb c\r\n\n\xe9\n",
    "last": b"a\nb",
    "bom": b"\xef\xbb\xbfa\n",
    "empty": b"\n\r\n",
    "odd:name": b"x\n",
    "t.tsv": b"n\t__key__\n1\ta\\tb\n2\tc\n3\n4\t\n5\td\t6\n",
    "t.txt": b"__key__\r\na\r\nb\r\n",
    "bom.csv": b"\xef\xbb\xbf__key__,n\na,1\n",
    "t.csv": b'n,__key__\n1,"a,\nb"\n2,c\n3\n4,\n',
    "t.CSV": b"k\na\n",
    "t.jsonl": b'{"k": "a", "n": 1}\n\n{"k": "\xc3\xa9"}\n{"n": 2}\n{"k": 7}\n{"k": null}\n{"k": ["x"]}\n',
    "bad.tsv": b"k\na\\x\n",
    "bad.csv": b'k\n"a\n',
    "bad.jsonl": b'{"k": "a"}\n{"k"\n',
    "array.ndjson": b'["k"]\n',
    "half.jsonl": b'{"k": "\\ud83d"}\n',
    "deep.jsonl": b"[" * 200_000,
}

HALF = "'utf-8' codec can't encode character '\\ud83d' in position 0: surrogates not allowed"


@each_row(
    ("spec", "expected"),
    [
        ("list", ["a", "b c", "\udce9"]),
        ("last", ["a", "b"]),
        ("bom", ["a"]),
        ("odd:name", ["x"]),
        ("t.tsv:__key__", ["a\tb", "c", "d"]),
        ("t.tsv:n", ["1", "2", "3", "4", "5"]),
        ("t.txt:__key__", ["a", "b"]),
        ("t.csv:__key__", ["a,\nb", "c"]),
        ("bom.csv:__key__", ["a"]),
        ("t.CSV:k", ["a"]),
        ("t.jsonl:k", ["7", '["x"]', "a", "é"]),
        ("empty", "empty: no key found"),
        ("none", "none: No such file or directory"),
        ("none:k", "none: No such file or directory"),
        ("list:k", "list: no column 'k'"),
        ("t.tsv:x", "t.tsv: no column 'x'"),
        ("t.jsonl:x", "t.jsonl: no key found"),
        ("bad.tsv:k", "bad.tsv:2: unknown escape \\x: write a backslash twice"),
        ("bad.csv:k", "bad.csv:2: unexpected end of data"),
        ("bad.jsonl:k", "bad.jsonl:2: bad JSON: Expecting ':' delimiter at column 1"),
        ("array.ndjson:k", "array.ndjson:1: bad JSON: not an object"),
        ("half.jsonl:k", f"half.jsonl:1: bad JSON: {HALF}"),
        ("deep.jsonl:k", "deep.jsonl:1: bad JSON: nested too deep"),
    ],
)
def test_read_keys(spec: str, expected: list[str] | str, here: Path) -> None:
    """FILE[:COLUMN] is one key a line, or a column of a TSV, CSV or JSON-lines table."""
    for name, data in FILES.items():
        Path(name).write_bytes(data)
    result: list[str] | str
    try:
        result = sorted(key.decode("utf-8", "surrogateescape") for key in read_keys(spec).wanted)
    except TarkitError as error:
        result = str(error)
    assert result == (sorted(expected) if isinstance(expected, list) else expected)
