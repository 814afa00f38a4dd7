"""New headers read back by Python's tarfile and GNU tar; renamed headers keep all but the name."""

from __future__ import annotations

import functools
import io
import json
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarkit.errors import TarkitError
from tarkit.streams.ranges import HeldRange
from tarkit.tar import block as b
from tarkit.tar import header as h
from tarkit.tar import pax
from tarkit.tar.reader import TarReader
from tests._tools import each_row

DATA = Path(__file__).parents[1] / "data"
EXPECTED: dict[str, list[tuple[str, str, int, int]]] = json.loads((DATA / "expected.json").read_text())


GIB9 = 9 << 30

COMPONENTS = st.binary(min_size=1, max_size=180).map(lambda text: text.replace(b"\0", b"_").replace(b"/", b"."))
NAMES = st.lists(COMPONENTS, min_size=1, max_size=3).map(b"/".join)
SHORT_NAMES = st.binary(min_size=1, max_size=100).map(lambda text: text.replace(b"\0", b"_"))
TIMES = st.integers(-(10**6), 2**40) | st.floats(-1e6, 1e12, allow_nan=False)
SIZES = st.integers(0, 10**4) | st.integers(0, 2**63 - 1) | st.sampled_from([8**11 - 1, 8**11, GIB9])


def members(archive: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as tar:
        return tar.getmembers()


def read_back(header: bytes) -> tarfile.TarInfo:
    """Return what tarfile makes of a header: its blocks alone, as the payload may have 9 GB."""
    with tarfile.open(fileobj=io.BytesIO(header), encoding="utf-8", errors="surrogateescape") as tar:
        info = tar.next()
        assert info is not None
        return info


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def records_of(header: bytes) -> dict[bytes, bytes]:
    """Return the records of the PAX entry that the header begins with, if it does."""
    if header[156:157] != b.PAX:
        return {}
    return pax.parse_records(header[512 : 512 + b.parse_number(header[124:136])])


def test_a_plain_header_byte_for_byte() -> None:
    """A plain header has the layout of POSIX ustar, written down by hand."""
    assert h.encode(b"a/17.jpg", 1234) == (
        b"a/17.jpg".ljust(100, b"\0")
        + b"0000644\0"
        + b"0000000\0"
        + b"0000000\0"
        + b"00000002322\0"
        + b"00000000000\0"
        + b"010355\0 "
        + b"0"
        + bytes(100)
        + b"ustar\0"
        + b"00"
        + bytes(32)
        + bytes(32)
        + b"0000000\0"
        + b"0000000\0"
        + bytes(155)
        + bytes(12)
    )


@each_row("archive", ["gnu-ustar.tar", "gnu-ustar-split.tar"])
def test_headers_are_those_of_gnu_tar(archive: str) -> None:
    """Headers equal those of the golden archives, which have the same fixed metadata, byte for byte."""
    data = (DATA / archive).read_bytes()
    for name, flag, size, start in EXPECTED[archive]:
        if flag == "0":
            assert h.encode(name.encode("latin-1"), size) == data[start : start + 512]


@each_row(
    ("name", "records"),
    [
        (b"a.jpg", set()),
        (b"caf\xe9.jpg", set()),
        (b"n" * 100, set()),
        (b"n" * 101, {b"path"}),
        (b"n" * 100 + b"/", {b"path"}),
        (b"d/" + b"n" * 99, set()),
        (b"d/" + b"n" * 100, set()),
        (b"d/" + b"n" * 101, {b"path"}),
        (b"/" + b"n" * 100, {b"path"}),
        (b"//" + b"n" * 100, {b"path"}),
        (b"d//" + b"n" * 99, set()),
        (b"d//" + b"n" * 100, {b"path"}),
        (b"/d/" + b"n" * 100, set()),
        (b"p" * 155 + b"/" + b"n" * 99, set()),
        (b"p" * 155 + b"/" + b"n" * 100, set()),
        (b"p" * 155 + b"/" + b"n" * 99 + b"/", set()),
        (b"p" * 154 + b"/" + b"n" * 100 + b"/", {b"path"}),
        (b"p" * 156 + b"/" + b"n" * 99, {b"path"}),
        (b"p" * 100 + b"/" + b"q" * 54 + b"/" + b"n" * 100, set()),
        (b"p" * 100 + b"/" + b"q" * 55 + b"/" + b"n" * 99, {b"path"}),
        (b"a/" * 150, {b"path"}),
        (b"a/" * 128, set()),
        (b"\xc3\xa9" * 60, {b"path"}),
        (b"\xe9" * 101, {b"hdrcharset", b"path"}),
        (b"/" * 256, {b"path"}),
    ],
)
def test_names(name: bytes, records: set[bytes]) -> None:
    header = h.encode(name, 5)
    assert set(records_of(header)) == records
    assert len(header) % 512 == 0
    info = read_back(header)
    assert (raw(info.path).rstrip(b"/"), info.size) == (name.rstrip(b"/"), 5)  # tarfile cuts a slash at the end
    assert records_of(header).get(b"path", b.name_of(header[-512:])) == name


@each_row(
    ("fields", "records"),
    [
        ({"size": 8**11 - 1}, {}),
        ({"size": 8**11}, {b"size": b"8589934592"}),
        ({"size": GIB9}, {b"size": b"9663676416"}),
        ({"mtime": 8**11 - 1}, {}),
        ({"mtime": 8**11}, {b"mtime": b"8589934592"}),
        ({"mtime": 1700000000.0}, {}),
        ({"mtime": 1.5}, {b"mtime": b"1.5"}),
        ({"mtime": 1e-7}, {b"mtime": b"0.0000001"}),
        ({"mtime": 1e18}, {b"mtime": b"1000000000000000000"}),
        ({"mtime": -1}, {b"mtime": b"-1"}),
        ({"mtime": -0.25}, {b"mtime": b"-0.25"}),
        ({"mtime": -0.0}, {}),
        ({"uid": 8**7 - 1, "gid": 8**7}, {b"gid": b"2097152"}),
        ({"uid": 2**31}, {b"uid": b"2147483648"}),
        ({"mode": 0o7777777}, {}),
        ({"typeflag": b.DIRECTORY}, {}),
        ({"typeflag": b.SYMLINK, "linkname": b"t" * 100}, {}),
        ({"typeflag": b.SYMLINK, "linkname": b"t" * 101}, {b"linkpath": b"t" * 101}),
        ({"typeflag": b.HARD_LINK, "linkname": b"\xe9" * 101}, {b"hdrcharset": b"BINARY", b"linkpath": b"\xe9" * 101}),
    ],
)
def test_fields(fields: dict[str, Any], records: dict[bytes, bytes]) -> None:
    fields = {"size": 0, **fields}
    header = h.encode(b"a", **fields)
    assert records_of(header) == records
    info = read_back(header)
    for field in fields.keys() - {"typeflag", "linkname"}:
        assert getattr(info, field) == fields[field]
    assert raw(info.linkname) == fields.get("linkname", b"")
    assert info.type == fields.get("typeflag", b"0")


@each_row(
    "fields",
    [
        {"name": b""},
        {"name": b"a\0b"},
        {"name": b"a" * 200 + b"\0"},
        {"size": -1},
        {"size": 2**63},
        {"uid": -1},
        {"gid": -1},
        {"mode": -1},
        {"mode": 0o10000000},
        {"mtime": float("nan")},
        {"mtime": float("inf")},
        {"mtime": 10**400},
        {"typeflag": b""},
        {"typeflag": b"00"},
        {"typeflag": b.SYMLINK, "linkname": b"a\0b"},
        {"typeflag": b.SYMLINK, "size": 1},
        {"typeflag": b.DIRECTORY, "size": 1},
    ],
)
def test_fields_that_do_not_fit(fields: dict[str, Any]) -> None:
    said = {"name": b"a", "size": 0, **fields}
    with pytest.raises(ValueError, match=r"."):
        h.encode(**said)


@settings(max_examples=25)
@given(NAMES | SHORT_NAMES, SIZES, TIMES)
@example(b"\xff" * 100, 8**11 - 1, 0)
@example(b"\xff" * 100, 8**11 - 1, 8**11 - 1)
@example(b"a" * 101, 0, 0)
@example(b"b", 8**11, 0)
@example(b"c", 0, -1)
@example(b"d", 1, 1.0)
@example(b"e", 1, 1.5)
def test_the_fast_path_equals_the_slow_path(name: bytes, size: int, mtime: int | float) -> None:
    slow = h._encode_any(name, size, 0o644, mtime, 0, 0, b.REGULAR, b"")
    assert [h.encode(name, size, mtime=mtime) for _ in range(2)] == [slow, slow]


@settings(max_examples=25)
@given(NAMES, SIZES, TIMES, st.integers(0, 2**40), st.integers(0, 0o7777))
def test_tarfile_reads_what_is_encoded(name: bytes, size: int, mtime: int | float, uid: int, mode: int) -> None:
    header = h.encode(name, size, mtime=mtime, uid=uid, gid=uid // 2, mode=mode)
    info = read_back(header)
    assert (raw(info.path), info.size, info.mtime) == (name.rstrip(b"/") if info.isdir() else name, size, mtime)
    assert (info.uid, info.gid, info.mode, info.uname, info.gname, info.type) == (uid, uid // 2, mode, "", "", b"0")
    assert info.offset_data == len(header)
    for at in range(0, len(header), 512):
        if header[at + 257 : at + 263] == b.USTAR_MAGIC:
            assert b.checksum_ok(header[at : at + 512])


@settings(max_examples=25)
@given(NAMES, NAMES, SIZES, TIMES)
def test_rename_and_back(name: bytes, other: bytes, size: int, mtime: int | float) -> None:
    header = h.encode(name, size, mtime=mtime)
    renamed = h.rename(header, other)
    assert renamed == h.encode(other, size, mtime=mtime)
    assert h.rename(renamed, name) == header


NEW_NAMES = {
    "short": b"new/0.jpg",
    "100": b"n" * 100,
    "101": b"n" * 101,
    "split": b"p" * 155 + b"/" + b"n" * 100,
    "300": b"p" * 150 + b"/" + b"q" * 149,
    "bytes": b"caf\xe9.jpg",
    "long bytes": b"p" * 150 + b"/" + b"\xe9" * 149,
    "utf8": "é".encode() * 51,
}
GOLDEN = sorted(EXPECTED)


@functools.cache
def ranges(name: str) -> list[tuple[int, int, int]]:
    """Return (start, data, end) of the entries of a golden archive; the last one includes the end of the archive."""
    archive = (DATA / name).read_bytes()
    infos = members(archive)
    ends = [info.offset for info in infos[1:]] + [len(archive)]
    return [(info.offset, info.offset_data, end) for info, end in zip(infos, ends, strict=True)]


def renamed(archive: bytes, entries: list[tuple[int, int, int]], names: list[bytes]) -> bytes:
    pieces = [archive[: entries[0][0]]]
    for (start, data, end), name in zip(entries, names, strict=True):
        pieces += [h.rename(archive[start:data], name), archive[data:end]]
    return b"".join(pieces)


@each_row("archive", GOLDEN)
def test_the_same_name_changes_nothing(archive: str) -> None:
    data = (DATA / archive).read_bytes()
    names = [name.encode("latin-1") for name, *_ in EXPECTED[archive]]
    assert renamed(data, ranges(archive), names) == data


@each_row("archive", ["gnu-gnu.tar", "gnu-oldgnu-long.tar", "python-gnu.tar", "go-gnu.tar", "bsdtar-gnutar.tar"])
def test_gnu_headers_stay_gnu(archive: str) -> None:
    data = (DATA / archive).read_bytes()
    for start, header_end, _ in ranges(archive):
        for new in NEW_NAMES.values():
            header = h.rename(data[start:header_end], new)
            flags = [part.kind for part in h._parts(header)]
            assert b.PAX not in flags
            assert flags.count(b.GNU_LONG_NAME) == (len(new) > 100)
            assert header[-255:-247] == b.GNU_MAGIC


X = h._pax_entry
L = h._extension(h._LONG_NAME_BLOCK, b"long\0")
PLAIN = h.encode(b"a", 3)
V7 = b.seal(PLAIN[:257] + bytes(255))
STAR = b.seal(PLAIN[:345] + bytes(131) + b"00000000001 " * 2 + bytes(8) + b"tar\0")
XSTAR = b.seal(STAR[:508] + bytes(4))
SOLARIS = (
    b.seal(X(b"a", {b"path": b"a"})[:156] + b"X" + X(b"a", {b"path": b"a"})[157:512]) + X(b"a", {b"path": b"a"})[512:]
)


@each_row(
    ("header", "new", "kinds"),
    [
        (PLAIN, b"b", b"0"),
        (PLAIN, b"n" * 101, b"x0"),
        (V7, b"n" * 100, b"0"),
        (V7, b"d/" + b"n" * 99, b"x0"),
        (STAR, b"p" * 130 + b"/" + b"n" * 100, b"0"),
        (STAR, b"p" * 131 + b"/" + b"n" * 100, b"x0"),
        (XSTAR, b"p" * 130 + b"/" + b"n" * 100, b"0"),
        (XSTAR, b"p" * 131 + b"/" + b"n" * 100, b"x0"),
        (X(b"a", {b"path": b"a"}) + PLAIN, b"b", b"0"),
        (X(b"a", {b"path": b"\xe9", b"hdrcharset": b"BINARY"}) + PLAIN, b"b", b"0"),
        (X(b"a", {b"path": b"a", b"comment": b"c"}) + PLAIN, b"b", b"x0"),
        (X(b"a", {b"path": b"a"}) + PLAIN, b"n" * 101, b"x0"),
        (SOLARIS + PLAIN, b"b", b"0"),
        (SOLARIS + PLAIN, b"n" * 101, b"x0"),
        (L + PLAIN, b"b", b"0"),
        (L + PLAIN, b"n" * 101, b"x0"),
        (L + X(b"a", {b"path": b"a"}) + PLAIN, b"b", b"0"),
        (X(b"a", {b"path": b"z", b"mtime": b"1.5"}) + X(b"a", {b"path": b"a"}) + PLAIN, b"b", b"0"),
        (h._extension(b.seal(L[:156] + b"K" + L[157:512]), b"target\0") + PLAIN, b"n" * 101, b"Kx0"),
    ],
)
def test_dialects(header: bytes, new: bytes, kinds: bytes) -> None:
    changed = h.rename(header, new)
    parts = h._parts(changed)
    assert b"".join(part.kind for part in parts) == kinds
    assert all(b.checksum_ok(part.block) for part in parts)
    assert raw(read_back(changed).path) == new
    assert h.rename(changed, new) is changed
    old, block = header[-512:], changed[-512:]
    end = 476 if old in (STAR, XSTAR) else 500
    assert old[100:148] + old[156:345] + old[end:] == block[100:148] + block[156:345] + block[end:]


@each_row(
    ("records", "new", "after"),
    [
        ({b"path": b"a" * 101}, b"\xe9" * 101, {b"hdrcharset": b"BINARY", b"path": b"\xe9" * 101}),
        ({b"hdrcharset": b"BINARY", b"path": b"\xe9" * 101}, b"b" * 101, {b"path": b"b" * 101}),
        ({b"hdrcharset": b"BINARY", b"path": b"\xe9", b"uname": b"\xe9"}, b"b", {b"hdrcharset": b"BINARY",
            b"uname": b"\xe9"}),
        ({b"mtime": b"1.5", b"path": b"z"}, b"b", {b"mtime": b"1.5"}),
        ({b"size": b"9663676416", b"path": b"z"}, b"b", {b"size": b"9663676416"}),
        ({b"GNU.sparse.name": b"z", b"GNU.sparse.map": b"0,1"}, b"b", {b"GNU.sparse.name": b"b",
            b"GNU.sparse.map": b"0,1"}),
        ({b"GNU.sparse.name": b"z", b"path": b"x"}, b"\xe9", {b"hdrcharset": b"BINARY", b"GNU.sparse.name": b"\xe9"}),
    ],
)  # fmt: skip
def test_records_of_the_renamed(records: dict[bytes, bytes], new: bytes, after: dict[bytes, bytes]) -> None:
    assert records_of(h.rename(X(b"a", records) + PLAIN, new)) == after


def test_the_placeholder_name_of_a_sparse_file_is_renamed() -> None:
    header = X(b"a", {b"GNU.sparse.name": b"secret", b"GNU.sparse.realsize": b"9"}) + h.encode(
        b"./GNUSparseFile.7/secret", 3
    )
    assert b.name_of(h.rename(header, b"d/new")[-512:]) == b"d/GNUSparseFile.0/new"
    assert b.name_of(h.rename(header, b"new")[-512:]) == b"./GNUSparseFile.0/new"
    assert b"secret" not in h.rename(header, b"new")


def test_tarfile_reads_the_name_of_a_sparse_file_and_not_the_placeholder() -> None:
    """Of a record with the name and one with the placeholder, the last counts for Python's tarfile."""
    header = X(b"a", {b"GNU.sparse.major": b"1", b"GNU.sparse.name": b"z", b"path": b"z" * 120}) + h.encode(b"a", 3)
    renamed = h.rename(header, b"d/" + b"n" * 200)
    assert list(records_of(renamed)) == [b"GNU.sparse.major", b"path", b"GNU.sparse.name"]
    assert raw(read_back(renamed).path) == b"d/" + b"n" * 200


@each_row(
    ("header", "new"),
    [
        (PLAIN, b""),
        (PLAIN, b"a\0b"),
        (b"", b"b"),
        (PLAIN[:511], b"b"),
        (X(b"a", {b"path": b"a"}), b"b"),
        (X(b"a", {b"path": b"a"}) + PLAIN[:100], b"b"),
        (h._extension(X(b"a", {})[:512], b"9 junk") + PLAIN, b"b"),
        (b.seal(X(b"a", {})[:124] + b"junk" + X(b"a", {})[128:512]) + PLAIN, b"b"),
    ],
)
def test_headers_that_cannot_be_renamed(header: bytes, new: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        h.rename(header, new)


def test_rename_entry_is_rename() -> None:
    """An entry with another name is that with the header that `rename` makes, or None where that does more."""
    done = 0
    for path in sorted(DATA.glob("*.tar")):
        data = path.read_bytes()
        with suppress(TarkitError):  # the rest of an archive in several volumes
            for entry in TarReader(HeldRange("a", 0, data)):
                head, rest = data[entry.start : entry.data], data[entry.data : entry.stop]
                for name in (b"a", b"d/" + entry.name[-60:], b"n" * 100, b"n" * 101, b"\xff.txt", entry.name or b"x"):
                    renamed = h.rename_entry(head + rest, entry.name, name)
                    done += renamed not in (None, head + rest)
                    assert renamed is None or renamed == h.rename(head, name) + rest, (path, name)
    assert done > 100
