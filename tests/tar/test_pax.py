"""PAX records and GNU long names: valid and invalid ones, and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.tar import pax
from tests._tools import check_result, each_row

KEYWORDS = st.binary(min_size=1, max_size=40).filter(lambda keyword: b"=" not in keyword)
VALUES = st.binary(max_size=1200)


@each_row(
    ("payload", "pairs"),
    [
        (b"", []),
        (b"6 k=1\n", [(b"k", b"1")]),
        (b"11 path=ab\n", [(b"path", b"ab")]),
        (b"011 path=ab\n"[1:], [(b"path", b"ab")]),
        (b"012 path=ab\n", [(b"path", b"ab")]),
        (b"000000000000000000000000000035 k=1\n", [(b"k", b"1")]),
        (b"30 mtime=1350244992.023960108\n", [(b"mtime", b"1350244992.023960108")]),
        (b"11 k=a\nb=\n\n", [(b"k", b"a\nb=\n")]),
        (b"8 k=a=b\n", [(b"k", b"a=b")]),
        (b"5 k=\n", [(b"k", b"")]),
        (b"7 k k=\n", [(b"k k", b"")]),
        (b"6 k=\xe9\n", [(b"k", b"\xe9")]),
        (b"6 k=\0\n", [(b"k", b"\0")]),
        (b"6 k=1\n6 k=2\n6 j=3\n", [(b"k", b"1"), (b"k", b"2"), (b"j", b"3")]),
        (b"6 k=1\n\0\0\0\0", [(b"k", b"1")]),
        (b"\0" * 512, []),
        # GNU tar, Go and libarchive refuse these as well; with the reason
        (b"6 k=1", "beyond"),
        (b"7 k=1\n", "beyond"),
        (b"5 k=1\n", "no newline"),
        (b"6 k=1\n6 k=1", "at 6: its length 6 goes beyond"),
        (b"0 k=1\n", "no newline"),
        (b"1 k=1\n", "no newline"),
        (b"2 k=1\n", "no newline"),
        (b"3 \n", "no keyword"),
        (b"5 k1\n", "no keyword"),
        (b"5 =1\n", "no keyword"),
        (b" 6 k=1\n", "no length"),
        (b"-6 k=1\n", "no length"),
        (b"+6 k=1\n", "no length"),
        (b"6_0 k=1\n", "no length"),
        (b"6\tk=1\n", "no length"),
        (b"k=1\n", "no length"),
        (b"6 k=1\njunk", "at 6: no length"),
        (b"6 k=1\n\0\0junk", "at 6: no length"),
        (b"99999999999999999999 k=1\n", "no length"),
        (b"9" * 5000 + b" k=1\n", "no length"),
        (b"6", "no length"),
        (b"\xd9\xa6 k=1\n", "no length"),
    ],
)
def test_parse_pairs(payload: bytes, pairs: list[tuple[bytes, bytes]] | str) -> None:
    check_result(pairs, lambda: list(pax.parse_pairs(payload)))
    check_result(pairs if isinstance(pairs, str) else pax.last_of_each(pairs), pax.parse_records, payload)


@each_row(
    ("payload", "records"),
    [
        (b"6 k=1\n6 j=2\n", {b"k": b"1", b"j": b"2"}),
        (b"6 k=1\n6 k=2\n", {b"k": b"2"}),
        (b"6 k=1\n5 k=\n", {}),
        (b"5 k=\n6 k=1\n", {b"k": b"1"}),
        (b"5 k=\n", {}),
    ],
)
def test_parse_records(payload: bytes, records: dict[bytes, bytes]) -> None:
    assert pax.parse_records(payload) == records


@each_row(
    ("records", "payload"),
    [
        ({}, b""),
        ({b"k": b"v"}, b"6 k=v\n"),
        ({b"k": b""}, b"5 k=\n"),
        ({b"z": b"1", b"a": b"2"}, b"6 z=1\n6 a=2\n"),
        ([(b"k", b"1"), (b"k", b"2")], b"6 k=1\n6 k=2\n"),
        ({b"k": b"v" * 4}, b"9 k=vvvv\n"),
        ({b"k": b"v" * 5}, b"11 k=vvvvv\n"),
        ({b"k": b"v" * 93}, b"99 k=" + b"v" * 93 + b"\n"),
        ({b"k": b"v" * 94}, b"101 k=" + b"v" * 94 + b"\n"),
        ({b"k": b"v" * 992}, b"999 k=" + b"v" * 992 + b"\n"),
        ({b"k": b"v" * 993}, b"1001 k=" + b"v" * 993 + b"\n"),
        ({b"": b"v"}, "not a PAX keyword"),
        ({b"k=": b"v"}, "not a PAX keyword"),
    ],
)
def test_format_records(records: pax.Records | list[tuple[bytes, bytes]], payload: bytes | str) -> None:
    check_result(payload, pax.format_records, records)


@settings(max_examples=25)
@given(st.lists(st.tuples(KEYWORDS, VALUES), max_size=5))
def test_records_round_trip(pairs: list[tuple[bytes, bytes]]) -> None:
    payload = pax.format_records(pairs)
    assert list(pax.parse_pairs(payload)) == pairs
    assert pax.parse_records(payload) == pax.last_of_each(pairs)
    assert list(pax.parse_pairs(payload + bytes(-len(payload) % 512))) == pairs


@settings(max_examples=25)
@given(st.lists(st.tuples(KEYWORDS, VALUES), min_size=1, max_size=3), st.data())
def test_a_cut_payload_is_an_error_or_ends_at_a_record(pairs: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    payload = pax.format_records(pairs)
    cut = data.draw(st.integers(0, len(payload) - 1))
    borders = {len(pax.format_records(pairs[:count])): count for count in range(len(pairs))}
    if cut in borders:
        assert list(pax.parse_pairs(payload[:cut])) == pairs[: borders[cut]]
    else:
        with pytest.raises(ValueError, match="PAX record at"):
            list(pax.parse_pairs(payload[:cut]))


@settings(max_examples=25)
@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"6 k=1\n", b" ", b"=", b"\n", b"9", b"\0"])).map(b"".join))
def test_any_payload_has_records_or_is_an_error(payload: bytes) -> None:
    try:
        pairs = list(pax.parse_pairs(payload))
    except ValueError:
        return
    assert len(pax.format_records(pairs)) <= len(payload)


NOTHING = (None, None, None, None, False)


@each_row(
    ("records", "says"),
    [
        ({}, NOTHING),
        ({b"mtime": b"1.5", b"comment": b"size=3"}, NOTHING),
        ({b"path": b"a"}, (b"a", None, None, None, False)),
        ({b"linkpath": b"t"}, (None, b"t", None, None, False)),
        ({b"size": b"9663676416"}, (None, None, 9 << 30, None, False)),
        ({b"size": b"0"}, (None, None, 0, None, False)),
        # sparse 0.0, 0.1, 1.0
        ({b"GNU.sparse.size": b"99", b"GNU.sparse.numbytes": b"1"}, (None, None, None, 99, True)),
        ({b"GNU.sparse.name": b"a", b"path": b"x", b"GNU.sparse.size": b"99"}, (b"a", None, None, 99, True)),
        ({b"path": b"x", b"GNU.sparse.name": b"a", b"GNU.sparse.size": b"99"}, (b"a", None, None, 99, True)),
        (
            {b"GNU.sparse.major": b"1", b"GNU.sparse.name": b"a", b"GNU.sparse.realsize": b"99", b"size": b"9"},
            (b"a", None, 9, 99, True),
        ),
        ({b"GNU.sparse.map": b"0,1"}, (None, None, None, None, True)),
        ({b"size": str(2**63 - 1).encode()}, (None, None, 2**63 - 1, None, False)),
        ({b"size": str(2**63).encode()}, "not a size"),
        ({b"size": b"-1"}, "not a size"),
        ({b"size": b"+1"}, "not a size"),
        ({b"size": b" 1"}, "not a size"),
        ({b"size": b"1_0"}, "not a size"),
        ({b"size": b"1.0"}, "not a size"),
        ({b"size": b"0x10"}, "not a size"),
        ({b"size": b"\xd9\xa3"}, "not a size"),
        ({b"size": b"9" * 5000}, "not a size"),
        ({b"GNU.sparse.realsize": b"junk"}, "not a size"),
        ({b"GNU.sparse.size": b"-5"}, "not a size"),
    ],
)
def test_overrides(records: dict[bytes, bytes], says: tuple[object, ...] | str) -> None:
    check_result(says, pax.Overrides.of, records)
    assert isinstance(says, str) or pax.Overrides.of(records).any == (says != NOTHING)


@each_row(
    ("payload", "name"),
    [(b"a/b\0", b"a/b"), (b"a/b", b"a/b"), (b"a\0b\0", b"a"), (b"\0", b""), (b"", b""), (b"\xe9\n\0\0\0", b"\xe9\n")],
)
def test_long_name(payload: bytes, name: bytes) -> None:
    assert pax.parse_long_name(payload) == name
