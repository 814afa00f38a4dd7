"""Sort keys as bytes: their order is that of the values, for each type, for several fields, and reversed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem, TarkitError
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.sorting import encoding
from tarkit.sorting.keys import OrderFile, SortKey
from tarkit.streams.ranges import HeldRange
from tests._tools import archive as packed
from tests._tools import each_row
from tests.conftest import Archive, Content, Link, Members, Run, tar


def samples(members: Members | bytes, name: str = "in.tar") -> Iterator[TarSample]:
    """Return the samples of an archive."""
    data = members if isinstance(members, bytes) else tar(members)
    return iter(SampleReader(HeldRange(name, 0, data), Policy(allow=["scattered-sample"])))


def order(members: Members | bytes, key: SortKey | OrderFile, policy: Policy | None = None) -> str:
    """Return the keys of an archive in the order of their ranks; equal ones keep their order."""
    ranked = []
    for ordinal, sample in enumerate(samples(members)):
        rank = key(sample, ordinal)
        if rank is None:
            rank = key.absent(sample, policy or Policy())
        if rank is not None:
            ranked.append((rank, ordinal, (sample.key or b"-").decode("utf-8", "surrogateescape")))
    return " ".join(name for *_, name in sorted(ranked))


def contents(*values: bytes, field: str = "x") -> list[tuple[str, Content]]:
    """Return samples a, b, c ... of one field."""
    return [(f"{chr(97 + place)}.{field}", value) for place, value in enumerate(values)]


# ---- encoded and plain values: the order is Python's


def decimal(raw: bytes) -> Fraction:
    """Return the exact value of a number, as Python parses it."""
    return Fraction(raw.strip().decode())


def by_runs(raw: bytes) -> tuple[list[tuple[int, int]], bytes]:
    """Return a name for comparison: runs of digits by value, in the position of their first digit; then the bytes."""
    return [(48, int(run)) if run.isdigit() else (run[0], 0) for run in re.findall(rb"[0-9]+|.", raw, re.DOTALL)], raw


def special(raw: bytes) -> tuple[int, float]:
    """Return a float for comparison, with NaN after all others."""
    value = float(raw)
    return (1, 0.0) if math.isnan(value) else (0, value)


def rank(raw: bytes) -> tuple[int, Any]:
    """Return the order of `auto`: numbers by value, then text by bytes."""
    try:
        return 0, decimal(raw)
    except ValueError:
        return 1, raw


DIGITS = st.text("0123456789", max_size=6)
NUMBERS = st.one_of(
    st.integers().map(lambda n: b"%d" % n),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda n: repr(n).encode()),
    st.tuples(st.sampled_from(["", "-", "+", " -", "\n"]), DIGITS, DIGITS, st.integers(-300, 300)).map(
        lambda t: f"{t[0]}{t[1] or 0}.{t[2]}e{t[3]}\n".encode()
    ),
)
WORDS = st.binary(max_size=6) | st.lists(st.sampled_from([b"a", b"0", b"\0", b"\xff", b"-", b"/"])).map(b"".join)
NAMES = st.lists(st.sampled_from([b"img", b"0", b"9", b"10", b"007", b"\0", b"-", b".", b":"]), max_size=7).map(
    b"".join
)
TYPES: list[tuple[str, st.SearchStrategy[bytes], Any]] = [
    ("str", WORDS, lambda raw: raw),
    ("int", st.integers().map(lambda n: b" %d\n" % n), int),
    ("float", NUMBERS, decimal),
    ("float", st.floats().map(lambda n: repr(n).encode()), special),
    ("natural", NAMES | WORDS, by_runs),
    ("auto", NUMBERS, decimal),
    ("auto", NUMBERS | st.text("xyz-", min_size=1).map(str.encode), rank),
]


@given(st.text("0123456789", max_size=120) | st.integers(-5, 10**6).map(str))
def test_digits(text: str) -> None:
    """The fast path for digits gives the code of the general one."""
    raw = text.encode()
    assert encoding.number(raw) == encoding._number(raw)
    assert encoding.auto(raw) == (encoding._number(raw) or encoding.text(raw))


def sign(a: Any, b: Any) -> int:
    """Return -1, 0 or 1 if a < b, a == b or a > b."""
    return (a > b) - (a < b)


@each_row(("type_", "values", "value"), TYPES)
def test_codes(type_: Any, values: st.SearchStrategy[bytes], value: Any) -> None:
    """Ranks compare as the values do, for one field or two, and reversed."""

    @settings(max_examples=25)
    @given(st.tuples(values, values), st.tuples(values, values))
    def check(first: tuple[bytes, bytes], second: tuple[bytes, bytes]) -> None:
        members = [("a.x", first[0]), ("a.y", first[1]), ("b.x", second[0]), ("b.y", second[1])]
        a, b = samples(packed(members))
        for fields, count in ((["x"], 1), (["x", "y"], 2)):
            want = sign([value(raw) for raw in first[:count]], [value(raw) for raw in second[:count]])
            key = SortKey(fields, type_)
            assert sign(key(a), key(b)) == want
            key = SortKey(fields, type_, reverse=True)
            assert sign(key(a), key(b)) == -want

    check()


@settings(max_examples=40)
@given(st.lists(st.text("ab-./\0\x7f", min_size=1, max_size=4), min_size=2, max_size=2), st.booleans())
def test_keys(names: list[str], reverse: bool) -> None:
    """Keys compare by bytes, even if one is a prefix of the other, with a second field, and reversed."""
    found = [TarSample(name.encode(), HeldRange("x", 0, b""), [], 0, 0) for name in names]
    want = sign(*names) * (-1 if reverse else 1)
    assert sign(*map(SortKey(reverse=reverse), found)) == want
    assert sign(*map(SortKey(["__key__", "size"], reverse=reverse), found)) == want


@settings(max_examples=40)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_no_code_is_a_prefix(first: bytes, second: bytes) -> None:
    """No code is a prefix of another, so that the fields after it are not compared with the rest of it."""
    for code in (encoding.text, encoding.natural):
        if first != second:
            assert not code(first).startswith(code(second))


# ---- tables

ORDERS: list[tuple[dict[str, Any], Members, str]] = [
    ({}, {f"{key}.x": b"" for key in ("b", "a/b", "a-1", "a", "A", "a1", "\udcff", "é")}, "A a a-1 a/b a1 b é \udcff"),
    ({"reverse": True}, {f"{key}.x": b"" for key in ("b", "a/b", "a-1", "a")}, "b a/b a-1 a"),
    (
        {"type": "natural"},
        {f"{key}.x": b"" for key in ("img10", "img9", "img009", "img", "img1a")},
        "img img1a img009 img9 img10",
    ),
    ({"type": "int"}, {f"{key}.x": b"" for key in ("10", "9", "0011", "-1")}, "-1 9 10 0011"),
    ({"fields": ["x"], "type": "int"}, contents(b"12\n", b" 3 ", b"+4", b"-0", b"0"), "d e b c a"),
    ({"fields": ["x"], "type": "int"}, contents(b"1" * 5000, b"2" * 4999, b"-" + b"1" * 5000), "c b a"),
    (
        {"fields": ["x"], "type": "float"},
        contents(b"nan", b"inf", b"-Infinity", b"1e400", b".5", b"-1.", b"0"),
        "c f g e d b a",
    ),
    ({"fields": ["x"], "type": "float"}, contents(b"0.1", b"0.10000000000000000001", b"1e-1"), "a c b"),
    ({"fields": ["x"]}, contents(b"b", b"10", b"", b"9", b"-1.5", b"1e1", b"0x1", b"inf", b"a"), "e d b f c g i a h"),
    ({"fields": ["x"]}, contents(b"1_0", b"2", b"\xd9\xa1", b"1"), "d b a c"),
    ({"fields": ["seg.png"]}, contents(b"2", b"1", field="seg.png"), "b a"),
    ({"fields": ["size"]}, {"a.x": b"12", "a.y": b"34", "b.x": b"123", "c.x": b""}, "c b a"),
    ({"fields": ["size"], "reverse": True}, {"a.x": b"12", "b.x": bytes(100), "c.x": bytes(9)}, "b c a"),
    ({"fields": ["size.y"]}, {"a.x": b"9999", "a.y": b"1", "b.x": b"", "b.y": b"22"}, "a b"),
    ({"fields": ["size"]}, contents(b"2", b"1", field="size"), "b a"),  # a field with exactly this name
    ({"fields": ["size.x"]}, contents(b"2", b"1", field="size.x"), "b a"),
    ({"fields": ["j.a.b"]}, contents(b'{"a": {"b": 10}}', b'{"a": {"b": 9.5}}', field="j"), "b a"),
    ({"fields": ["j.a.b"]}, contents(b"2", b"1", field="j.a.b"), "b a"),
    ({"fields": ["j.a.b"]}, contents(b'{"b": 2}', b'{"b": 1}', field="j.a"), "b a"),
    ({"fields": ["j.a.1"]}, contents(b'{"a": [0, 2]}', b'{"a": [9, 1]}', field="j"), "b a"),
    (
        {"fields": ["j.v"]},
        contents(
            *(b'{"v": %s}' % v for v in (b"[1]", b"{}", b'"10"', b'"b"', b"10", b"true", b"false", b"null", b"-1")),
            field="j",
        ),
        "h g f i e c d a b",
    ),
    ({"fields": ["j.v"]}, contents(*(b'{"v": %s}' % (b"9" * n) for n in (5001, 5000)), field="j"), "b a"),
    ({"fields": ["j.v"]}, contents(b'{"v": NaN}', b'{"v": 1e999}', b'{"v": -Infinity}', field="j"), "c b a"),
    ({"fields": ["j.v"], "type": "int"}, contents(b'{"v": "10"}', b'{"v": 9}', field="j"), "b a"),
    ({"fields": ["j.v"], "type": "str"}, contents(b'{"v": "9"}', b'{"v": 10}', field="j"), "b a"),
    ({"fields": ["x", "y"]}, {"a.x": b"a", "a.y": b"z", "b.x": b"a\0", "b.y": b"", "c.x": b"a", "c.y": b"b"}, "c a b"),
    (
        {"fields": ["x", "y"], "reverse": True},
        {"a.x": b"a", "a.y": b"z", "b.x": b"ab", "b.y": b"", "c.x": b"a", "c.y": b"b"},
        "b a c",
    ),
]


@each_row(("settings", "members", "expected"), ORDERS)
def test_orders(settings: dict[str, Any], members: Members, expected: str) -> None:
    """The samples have this order."""
    assert order(members, SortKey(**settings)) == expected


ERRORS: list[tuple[dict[str, Any], Members, str]] = [
    (
        {"fields": ["x"], "type": "int"},
        contents(b"1", b"1.5"),
        r"in\.tar: at 1024: the field 'x' of 'b' is '1\.5', not a whole number",
    ),
    (
        {"fields": ["x"], "type": "float"},
        contents(b"1,5"),
        r"in\.tar: at 0: the field 'x' of 'a' is '1,5', not a number",
    ),
    ({"fields": ["x"], "type": "float"}, contents(b"y\n" * 99), r"is '(y\\x0a){30}'\.\.\., not a number"),
    (
        {"fields": ["x"], "type": "float"},
        contents(b"1e1000000000000000000"),
        r"is '1e1000000000000000000', not a number",
    ),
    ({"type": "int"}, {"a.x": b""}, r"the field '__key__' of 'a' is 'a', not a whole number"),
    (
        {"fields": ["j.v"], "type": "int"},
        contents(b'{"v": null}', field="j"),
        r"'j\.v' of 'a' is 'null', not a whole number",
    ),
]


@each_row(("settings", "members", "message"), ERRORS)
def test_errors(settings: dict[str, Any], members: Members, message: str) -> None:
    """The error names the sample, the field and the value."""
    with pytest.raises(TarkitError, match=message) as raised:
        order(members, SortKey(**settings))
    assert not isinstance(raised.value, Problem)


BAD_FIELDS: list[tuple[str, Members, str]] = [
    ("j.v", contents(b"v=1", b'{"v": 1}', field="j"), r"in\.tar: at 0: the field 'j' of 'a' is not JSON: Expecting"),
    (
        "j.v",
        contents(b"[" * 100_000, b'{"v": 1}', field="j"),
        r"the field 'j' of 'a' is JSON that is nested too deeply",
    ),
    ("j.v", contents(b'{"v": "\\ud800"}', b'{"v": 1}', field="j"), r"the field 'j' of 'a' has text with a lone surr"),
    (
        "x",
        contents(bytes((1 << 20) + 1), b"1"),
        r"in\.tar: at 0: the field 'x' of 'a' has 1048577 bytes, the limit is 1048576",
    ),
    ("x", {"a.x": Link("b.x", b"2"), "b.x": b"1"}, r"the field 'x' of 'a' is not a regular file"),
]


@each_row(("field", "members", "message"), BAD_FIELDS)
def test_bad_fields(field: str, members: Members, message: str) -> None:
    """An invalid field is an error; --skip and --allow apply, as in other commands."""
    with pytest.raises(Problem, match=f"{message}.* \\[bad-field\\]") as raised:
        order(members, SortKey([field], reverse=True))
    assert raised.value.hint == (
        "tarkit.open(..., skip='bad-field') leaves such samples out, allow='bad-field' puts them before the others"
    )
    assert order(members, SortKey([field]), Policy(skip=["bad-field"])) == "b"
    assert order(members, SortKey([field]), Policy(allow=["bad-field"])) == "a b"
    assert order(members, SortKey([field], reverse=True), Policy(allow=["bad-field"])) == "b a"


def test_the_longest_content() -> None:
    """A content of one mebibyte is not too long."""
    assert order(contents(bytes(1 << 20), b"1"), SortKey(["x"])) == "b a"


@each_row("name", ["gnu-sparse-old", "gnu-sparse-1.0", "bsdtar-pax-sparse"])
def test_sparse_files(name: str) -> None:
    """Sorting by the content of a sparse file is an error, or skips it; sorting by its key or size is not."""
    data = (Path(__file__).parents[1] / "data" / f"{name}.tar").read_bytes()
    [(key, entry)] = [(s.key, each) for s in samples(data) for each in s.entries if each.sparse]
    assert key is not None
    field = entry.name[len(key) + 1 :].decode()
    with pytest.raises(Problem, match=r"is a sparse file, .* \[sparse-entry\]") as raised:
        order(data, SortKey([field]), Policy(allow=["missing-field"]))
    assert raised.value.hint == "pack the file again without tar's --sparse"
    everything = order(data, SortKey())
    assert order(data, SortKey([f"size.{field}"]), Policy(skip=["missing-field"])) == key.decode()
    left = Policy(skip=["sparse-entry"], allow=["missing-field"])
    assert order(data, SortKey([field]), left).split() == [each for each in everything.split() if each != key.decode()]


def test_entries_without_a_key_have_no_order(run: Run, archive: Archive) -> None:
    """They are the first, in either direction, and no sample that could be out of order."""
    run("sort", archive([("d", None), ("README", b"")]), "--check-only")
    [alone], [sample] = samples([("d", None), ("README", b"")]), samples({"a.x": b""})
    for key in (SortKey(), SortKey(reverse=True), SortKey(["x"])):
        assert (key(alone) or b"") < (key(sample) or b"")
