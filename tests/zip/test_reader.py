"""Zips as inputs: the same result of every command, zips by other programs, and damage of all kinds."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tarkit.errors import TarkitError
from tarkit.streams.files import Descriptor, File
from tarkit.zip import decode
from tarkit.zip import reader as zip_input
from tarkit.zip.reader import ZipReader
from tests._tools import Chunks, each_row, program
from tests.conftest import Archive, Content, Feed, Link, Run, each_feed, entries, tar

ROWS: list[tuple[str, bytes]] = [
    ("d/a.cls", b"1"),
    ("d/a.jpg", bytes(range(256)) * 3),
    ("d/b.cls", b"2"),
    ("d/b.jpg", b""),
    ("d/c.cls", b"0"),
    ("d/c.jpg", b"c" * 1000),
]


def zipped(rows: Iterable[tuple[str, bytes]] = ROWS, method: int = zipfile.ZIP_STORED, **settings: Any) -> bytes:
    """Return a zip by Python; a name that ends with a slash is a directory. Times are even, modes 0604."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, **settings) as file:
        for name, content in rows:
            info = zipfile.ZipInfo(name, (2009, 2, 13, 23, 31, 30))
            info.compress_type, info.external_attr = method, 0o604 << 16
            file.writestr(info, content)
    return buffer.getvalue()


def linked(target: str, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip with a symbolic link, as Info-ZIP writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("a.txt")
        info.external_attr, info.compress_type = (stat.S_IFLNK | 0o777) << 16, method
        file.writestr(info, target)
    return buffer.getvalue()


def patched(data: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """Return a zip with changed bytes at an offset from the first of each signature: `C` the directory, `E` the end."""
    raw = bytearray(data)
    for signature, offset, value in changes:
        at = raw.index({b"L": b"PK\3\4", b"C": b"PK\1\2", b"E": b"PK\5\6"}[signature]) + offset
        raw[at : at + len(value)] = value
    return bytes(raw)


class Pipe(io.BytesIO):
    """A file without a position."""

    def tell(self) -> int:
        raise OSError


def streamed() -> bytes:
    """Return a zip that was written to a pipe: checksums and sizes follow the contents."""
    target = Pipe()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in ROWS:
            file.writestr(name, content)
    return target.getvalue()


def wide() -> bytes:
    """Return a zip whose entries have zip64 fields."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in ROWS:
            with file.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
                entry.write(content)
    return buffer.getvalue()


def commented() -> bytes:
    buffer = io.BytesIO(zipped())
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = b"made by hand"
    return buffer.getvalue()


def read(data: bytes, tmpdir: str | None = None) -> bytes:
    """Return the archive that is made from a zip."""
    reader = ZipReader(Chunks(data), "x.zip", tmpdir)
    view, out = memoryview(bytearray(1 << 16)), bytearray()
    while got := reader.readinto(view):
        out += view[:got]
    reader.close()
    return bytes(out)


# ---- output


@each_row(
    "data",
    [
        zipped(),
        zipped(method=zipfile.ZIP_DEFLATED),
        zipped(method=zipfile.ZIP_BZIP2),
        zipped(method=zipfile.ZIP_LZMA),
        streamed(),
        wide(),
        commented(),
    ],
)
def test_python(data: bytes, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Zips by Python's zipfile are read from a file, a pipe and (instead of gzip) stdin."""
    name = archive(data, "in.zip")
    for feed in feeds[:2]:
        assert entries(run("cat", feed(name)).stdout) == ROWS
    assert entries(run("cat", stdin=data).stdout) == ROWS


@pytest.mark.parametrize("name", ["zip", "bsdtar"])
def test_other_programs(name: str, run: Run, here: Path) -> None:
    """Zips by Info-ZIP and libarchive are read: directories, links, modes, times, names in UTF-8."""
    packer = program(name)
    (here / "d").mkdir()
    for row, content in (*ROWS, ("d/ü.txt", b"umlaut")):
        (here / row).write_bytes(content)
        os.utime(here / row, (1234567890, 1234567890))
    (here / "d/z.txt").symlink_to("a.cls")
    names = sorted(f"d/{each.name}" for each in (here / "d").iterdir())
    words = ["-qy"] if name == "zip" else ["-ncf"]
    more = [] if name == "zip" else ["--format=zip"]
    subprocess.run([packer, *words, "x.zip", *more, "d/", *names], check=True, cwd=here)
    run("cat", "x.zip", "-o", "x.tar")
    expected = {"d": None, **dict(ROWS), "d/ü.txt": b"umlaut", "d/z.txt": Link("a.cls", tarfile.SYMTYPE)}
    assert dict(entries("x.tar")) == expected
    with tarfile.open("x.tar", encoding="utf-8") as file:
        found = file.getmember("d/a.jpg")
        mode = (here / "d/a.jpg").stat().st_mode & 0o777
    assert (found.mtime, found.mode, found.uid, found.uname) == (1234567890, mode, os.getuid(), "")


def test_metadata(run: Run, archive: Archive) -> None:
    """Mode and time are those of the zip; without these, the defaults of `create`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, when, attributes, system in (
            ("a.x", (2009, 2, 13, 23, 31, 30), (stat.S_IFREG | 0o604) << 16, 3),
            ("b.x", (1980, 1, 1, 0, 0, 0), 0o4600 << 16, 19),
            ("c.x", (2021, 2, 30, 0, 0, 0), 0o604 << 16, 0),
            ("d/", (1980, 1, 1, 0, 0, 0), 0, 0),
        ):
            info = zipfile.ZipInfo(name, when)
            info.external_attr, info.create_system = attributes, system
            file.writestr(info, b"" if name == "d/" else b"x")
    out = run("cat", archive(buffer.getvalue(), "in.zip")).stdout
    with tarfile.open(fileobj=io.BytesIO(out)) as tar_file:
        found = [(info.name, info.mtime, info.mode, info.isdir()) for info in tar_file]
    assert found == [("a.x", 1234567890, 0o604, False), ("b.x", 0, 0o4600, False), ("c.x", 0, 0o644, False),
                     ("d", 0, 0o755, True)]  # fmt: skip


@each_row(
    ("name", "flags", "extra", "expected"),
    [
        (b"d/a.x", 0, b"", b"d/a.x"),
        ("ü.x".encode(), 0x800, b"", "ü.x".encode()),
        ("ü.x".encode(), 0, b"", "ü.x".encode()),
        (b"\x81.x", 0, b"", b"\x81.x"),
        (b"\x81.x", 0, struct.pack("<2HBL", 0x7075, 9, 1, crc32(b"\x81.x")) + "ü.x".encode(), "ü.x".encode()),
        (b"\x81.x", 0, struct.pack("<2HBL", 0x7075, 9, 1, 77) + "ü.x".encode(), b"\x81.x"),
        (b"_.x", 0, struct.pack("<2HBL", 0x7075, 9, 1, crc32(b"_.x")) + "ü.x".encode(), "ü.x".encode()),
        (b"_.x", 0, struct.pack("<2HBL", 0x7075, 9, 1, 77) + "ü.x".encode(), b"_.x"),
        (b"_.x", 0, struct.pack("<2HBL", 0x7075, 9, 2, crc32(b"_.x")) + "ü.x".encode(), b"_.x"),
        (b"_.x", 0, struct.pack("<2HBL", 0x7075, 8, 1, crc32(b"_.x")) + b"\x81.x", b"_.x"),
        (b"_.x", 0, struct.pack("<2HBL", 0x7075, 8, 1, crc32(b"_.x")) + b"\0.x", b"_.x"),
        (b"_.x", 0x800, struct.pack("<2HBL", 0x7075, 9, 1, crc32(b"_.x")) + "ü.x".encode(), b"_.x"),
        (b"k" * 300 + b"/a.x", 0, b"", b"k" * 300 + b"/a.x"),
        (b"a\\b.x", 0, b"", b"a\\b.x"),
        (b"../a.x", 0, b"", b"../a.x"),
        (b"k" * 65533 + b".x", 0, b"", b"k" * 65533 + b".x"),
    ],
)
def test_names(name: bytes, flags: int, extra: bytes, expected: bytes, run: Run, archive: Archive) -> None:
    """Names are the bytes in the zip; no code page is guessed, but a UTF-8 name in an extra field is used."""
    data = made(name, flags=flags, central=extra, local=extra)
    out = run("cat", archive(data, "in.zip")).stdout
    with tarfile.open(fileobj=io.BytesIO(out), encoding="utf-8", errors="surrogateescape") as file:
        assert [os.fsencode(info.name) for info in file] == [expected]


def made(
    name: bytes = b"a.x",
    content: bytes = b"x",
    *,
    central: bytes = b"",
    local: bytes = b"",
    flags: int = 0,
    system: int = 0,
    attributes: int = 0,
    date: tuple[int, int, int] = (1980, 1, 1),
) -> bytes:
    """Return a zip with one stored entry, made by hand: extra fields of directory and local header, midnight."""
    day = (date[0] - 1980) << 9 | date[1] << 5 | date[2]
    what = (flags, 0, 0, day, crc32(content), len(content), len(content), len(name))
    body = struct.pack("<4s5H3L2H", b"PK\3\4", 20, *what, len(local)) + name + local + content
    listed = struct.pack("<4s2B", b"PK\1\2", 20, system)
    listed += struct.pack("<5H3L5H2L", 20, *what, len(central), 0, 0, 0, attributes, 0) + name + central
    return body + listed + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(listed), len(body), 0)


def first(out: bytes) -> tarfile.TarInfo:
    with tarfile.open(fileobj=io.BytesIO(out), encoding="utf-8", errors="surrogateescape") as file:
        member = file.next()
    assert member is not None
    return member


def unix(number: int, *values: int) -> bytes:
    """Return an extra field of signed 32-bit times, then 16-bit owners."""
    times, owners = values[:2], values[2:]
    return struct.pack(f"<2H{len(times)}l{len(owners)}H", number, 4 * len(times) + 2 * len(owners), *values)


def times(seconds: int, *more: int) -> bytes:
    """Return Info-ZIP's extra field of times, cut to 32 bits as by `zip`: modification time, then others."""
    wrapped = [each & 0xFFFFFFFF for each in (seconds, *more)]
    return struct.pack(f"<2HB{len(wrapped)}L", 0x5455, 1 + 4 * len(wrapped), (1 << len(wrapped)) - 1, *wrapped)


def ntfs(seconds: int) -> bytes:
    """Return the extra field of NTFS, with the times of change, access and creation."""
    ticks = (seconds + 11644473600) * 10**7 + 1234567
    return struct.pack("<2HL2H3Q", 10, 32, 0, 1, 24, ticks, 0, 0)


@each_row(
    ("settings", "expected"),
    [
        ({"date": (2009, 2, 13)}, 1234483200),
        ({"date": (2107, 12, 31)}, 4354732800),
        ({"date": (2009, 2, 13), "central": times(1234567891)}, 1234567891),
        ({"date": (2009, 2, 13), "local": times(1234567891)}, 1234567891),
        ({"date": (2009, 2, 13), "central": times(1234567891), "local": times(1234567891, 5, 6)}, 1234567891),
        ({"central": times(-5)}, -5),
        ({"central": times(-(1 << 31))}, -(1 << 31)),
        ({"date": (2038, 1, 19), "central": times(1 << 31)}, 1 << 31),
        ({"date": (2060, 6, 1), "central": times(2853316801)}, 2853316801),
        ({"date": (2106, 2, 7), "central": times(1 << 32)}, 1 << 32),
        ({"date": (2107, 12, 31), "central": times(4354819199)}, 4354819199),
        ({"date": (2009, 2, 13), "central": struct.pack("<2HBL", 0x5455, 5, 2, 77)}, 1234483200),
        ({"date": (2009, 2, 13), "central": unix(0x5855, 1, 1234567891)}, 1234567891),
        ({"date": (2009, 2, 13), "central": unix(0x000D, 1, 1234567891, 7, 8)}, 1234567891),
        ({"date": (2009, 2, 13), "central": ntfs(1234567891)}, 1234567891),
        ({"central": ntfs(-5)}, -5),
        ({"central": ntfs(32503680000)}, 32503680000),
        ({"central": ntfs(7) + times(5)}, 5),
        ({"date": (2009, 2, 13), "central": struct.pack("<2HL2H3Q", 10, 32, 0, 1, 24, 0, 0, 0)}, 1234483200),
        ({"date": (2009, 2, 13), "local": times(5)[:-1]}, 1234483200),
        ({"date": (2009, 2, 13), "local": b"\0\0\0"}, 1234483200),
    ],
)
def test_times(settings: Any, expected: int, run: Run, archive: Archive) -> None:
    """The time is that of an extra field, in UTC; the zip's own time is the default, and determines the century."""
    assert first(run("cat", archive(made(**settings), "in.zip")).stdout).mtime == expected


def owner(uid: int, gid: int, width: int = 4) -> bytes:
    """Return Info-ZIP's extra field of the owner."""
    numbers = b"".join(bytes((width,)) + number.to_bytes(width, "little") for number in (uid, gid))
    return struct.pack("<2HB", 0x7875, 1 + len(numbers), 1) + numbers


@each_row(
    ("settings", "expected"),
    [
        ({}, (0, 0)),
        ({"central": owner(1000, 100)}, (1000, 100)),
        ({"local": owner(1000, 100)}, (1000, 100)),
        ({"local": owner(1000, 100, 2)}, (1000, 100)),
        ({"local": owner(1 << 21, 1 << 40, 8)}, (1 << 21, 1 << 40)),
        ({"local": owner(1000, 100)[:-1]}, (0, 0)),
        ({"local": owner(7, 8).replace(b"ux", b"uy", 1)}, (0, 0)),
        ({"central": unix(0x5855, 1, 2), "local": unix(0x5855, 1, 2, 501, 20)}, (501, 20)),
        ({"central": unix(0x7855), "local": struct.pack("<4H", 0x7855, 4, 501, 20)}, (501, 20)),
        ({"central": unix(0x000D, 1, 2, 501, 20)}, (501, 20)),
        ({"central": struct.pack("<2H7B", 0x7875, 7, 1, 200, 1, 2, 3, 4, 5)}, (0, 0)),
    ],
)
def test_owners(settings: Any, expected: tuple[int, int], run: Run, archive: Archive) -> None:
    """User and group ids are those of an extra field, in a PAX header if USTAR has no room for them."""
    found = first(run("cat", archive(made(**settings), "in.zip")).stdout)
    assert (found.uid, found.gid) == expected


@each_row(
    ("settings", "expected"),
    [
        ({"attributes": 0x10}, (True, 0o755)),
        ({"attributes": 0x10, "system": 10}, (True, 0o755)),
        ({"attributes": 0x10 | 0o40700 << 16, "system": 3}, (True, 0o700)),
        ({"attributes": 0x10 | 0o100600 << 16, "system": 3}, (False, 0o600)),
        ({"attributes": 0x20}, (False, 0o644)),
        ({"attributes": 0x10, "content": b"x"}, (False, 0o644)),
        ({"attributes": 0o10600 << 16, "system": 3, "content": b"from a pipe"}, (False, 0o600)),
        ({"attributes": 0xFFFF0010, "system": 3, "name": b"d/"}, (True, 0o755)),
    ],
)
def test_types(settings: Any, expected: tuple[bool, int], run: Run, archive: Archive) -> None:
    """Directories of MS-DOS need no slash; the content that `zip` read from a FIFO is a file."""
    data = made(**{"name": b"d", "content": b"", **settings})
    out = run("cat", archive(data, "in.zip")).stdout
    found = first(out)
    assert (found.isdir(), found.mode) == expected
    assert not found.isdir() or out[:3] == b"d/\0"


@pytest.mark.parametrize("tool", ["zip", "bsdtar", "7z"])
def test_times_of_others(tool: str, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times by other programs are correct far from UTC, for any year that they support."""
    path = program(tool)
    monkeypatch.setenv("TZ", "America/New_York")
    expected = {}
    for year, seconds in ((1975, 170856001), (1999, 928238401), (2039, 2190542401), (2105, 4273300801)):
        (here / f"{year}.txt").write_bytes(b"x")
        os.utime(here / f"{year}.txt", (seconds, seconds))
        expected[f"{year}.txt"] = seconds
    words = {"zip": ["-q"], "bsdtar": ["-acf"], "7z": ["a"]}[tool]
    subprocess.run([path, *words, "x.zip", *expected], check=True, cwd=here, capture_output=True)
    run("cat", "x.zip", "-o", "x.tar")
    with tarfile.open("x.tar") as file:
        assert {info.name: info.mtime for info in file} == expected


def test_beyond_ustar(here: Path) -> None:
    """A size that exceeds USTAR is in a PAX header, as are times and owners."""
    size = (8 << 30) + 1
    field = struct.pack("<2H2Q", 1, 16, size, size)
    data = made(content=b"", local=field, central=field)
    directory = data.index(b"PK\1\2")
    full = patched(data, (b"C", 20, b"\xff" * 8))
    start = directory + size
    with open(here / "x.zip", "wb") as file:
        file.write(full[:directory])
        file.seek(start)
        end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(data) - directory - 22, start)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + len(data) - directory - 22, 1)
        end = bytearray(full[-22:])
        end[16:20] = b"\xff" * 4
        file.write(full[directory:-22] + end64 + locator + end)
    with open(here / "x.zip", "rb") as file:
        reader = ZipReader(Chunks(b""), "x.zip", file=File(Descriptor(os.dup(file.fileno())), "x.zip"))
        view = memoryview(bytearray(4096))
        reader.readinto(view)
        found = first(bytes(view))
        reader.close()
    assert (found.name, found.size) == ("a.x", size)


FRONT = [b"#!/bin/sh\nexit\n", b"MZ" + os.urandom(5000), b"\x7fELFPK\3\4PK\5\6" + bytes(40), b"PK00"]
BEHIND = [b"\n", bytes(512), os.urandom(200_000), b"PK\5\6", zipped()[-22:]]


@pytest.mark.slow
@each_row(("front", "behind"), [*((front, b"") for front in FRONT), *((b"", behind) for behind in BEHIND),
                                (FRONT[0], BEHIND[0])])  # fmt: skip
def test_bytes_around(
    front: bytes, behind: bytes, run: Run, archive: Archive, feeds: list[Feed], tmp_path: Path
) -> None:
    """A zip is read whole with bytes before it, as in self-extracting zips, and after it, for any policy.

    Its offsets may count the bytes before it, as after `zip -A`, or not.
    """
    counted = tmp_path / "counted.zip"
    counted.write_bytes(front)
    with zipfile.ZipFile(counted, "a") as file:
        for name, content in ROWS:
            file.writestr(name, content)
    for data in (front + zipped() + behind, counted.read_bytes() + behind):
        name = archive(data, "in.zip")
        for feed in feeds[:2]:
            for words in ((), ("--allow", "all"), ("--skip", "all")):
                assert entries(run("cat", feed(name), *words).stdout) == ROWS


def test_any_bytes_in_front(run: Run, archive: Archive) -> None:
    """A file with unknown first bytes is a zip if its name says so; under another name it is no archive."""
    data = b"a photograph" * 99 + zipped()
    assert entries(run("cat", archive(data, "in.ZIP")).stdout) == ROWS
    assert "not a tar archive" in run("cat", archive(data, "in.jpg"), exit=1).stderr
    assert run("cat", archive(tar(ROWS), "tar.zip")).stdout == tar(ROWS)


@each_feed
def test_no_entries(run: Run, archive: Archive, feed: Feed) -> None:
    """A zip without entries is an archive without entries; directories and stray entries are kept."""
    if feed.kind == "gzip":
        return
    assert entries(run("cat", feed(archive(zipped([]), "0.zip"))).stdout) == []
    rows: list[tuple[str, Content]] = [("d", None), ("README", b"r")]
    assert entries(run("cat", feed(archive(zipped([("d/", b""), ("README", b"r")]), "1.zip"))).stdout) == rows


def test_link(run: Run, archive: Archive) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        name = archive(linked("b.txt", method), "in.zip")
        assert entries(run("cat", name).stdout) == [("a.txt", Link("b.txt", tarfile.SYMTYPE))]
    assert "a symbolic link of 70000 bytes" in run("cat", archive(linked("b" * 70000), "in.zip"), exit=1).stderr


def test_same_name_twice(run: Run, archive: Archive) -> None:
    """Two entries with one name are kept, and are the same problem as in a tar."""
    with pytest.warns(UserWarning, match="Duplicate"):
        data = zipped([("a.x", b"1"), ("a.x", b"2")])
    name = archive(data, "in.zip")
    assert "[duplicate-entry]" in run("cat", name, exit=1).stderr
    assert entries(run("cat", name, "--allow", "duplicate-entry").stdout) == [("a.x", b"1"), ("a.x", b"2")]


def test_deleted(run: Run, archive: Archive) -> None:
    """An entry that the directory does not list is ignored."""
    buffer = io.BytesIO(zipped())
    with zipfile.ZipFile(buffer, "a") as file:
        del file.filelist[1]
        file._didModify = True
    assert entries(run("cat", archive(buffer.getvalue(), "in.zip")).stdout) == [ROWS[0], *ROWS[2:]]


@each_feed
def test_large(run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are read in pieces, with short ones between them, are correct."""
    if feed.kind == "gzip":
        return
    monkeypatch.setattr(zip_input, "SHORT", 300)
    monkeypatch.setattr(zip_input, "CHUNK", 512)
    monkeypatch.setattr(decode, "CHUNK", 100)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert entries(run("cat", feed(archive(zipped(method=method), "in.zip"))).stdout) == ROWS
        bad = patched(zipped([("a.x", os.urandom(5000)), ("b.x", b"2")], method), (b"L", 40, b"\0" * 8))
        ran = run("cat", feed(archive(bad, "bad.zip")), exit=1)
        assert re.search(r"the zip is damaged: the entry 'a.x' cannot be read: .*\[bad-data\]", ran.stderr)


def test_lzma_without_end_marker(run: Run, archive: Archive) -> None:
    """Content ends where the directory says, since the bytes after it may decode to anything."""
    from lzma import FILTER_LZMA2, FORMAT_RAW, compress

    content = b"some text, " * 30
    chunk = compress(content, FORMAT_RAW, filters=[{"id": FILTER_LZMA2, "dict_size": 4096}])  # has no end marker
    size = int.from_bytes(chunk[3:5], "big") + 1
    packed = b"\x09\x14\5\0\x5d\0\x10\0\0" + chunk[6 : 6 + size] + b"\x55" * 9
    numbers = struct.pack("<3L", crc32(content), len(packed), len(content))
    changes = [(b"L", 8, b"\x0e\0"), (b"C", 10, b"\x0e\0"), (b"L", 14, numbers), (b"C", 16, numbers)]
    data = patched(made(content=packed), *changes)
    assert entries(run("cat", archive(data, "in.zip")).stdout) == [("a.x", content)]


@each_feed
def test_zip_in_a_tar(run: Run, archive: Archive, feed: Feed) -> None:
    """A zip as the content of an entry is data, even if the first name begins with the magic bytes of a zip."""
    rows = [("PK\3\4.zip", zipped()), ("a.x", b"1")]
    assert run("cat", feed(archive(rows))).stdout == tar(rows)


# ---- every command

COMMANDS = [
    "cat {}",
    "cat {} -f cls --match b",
    "cat {} --shuffle 2 --seed 1",
    "cat {} -R k#",
    "sort {} -s cls",
    "shuffle {} --seed 3",
    "mix {} --seed 1",
    "split {} -c 2 -o o-%06d.tar",
    "split {} -n 2 -o o-%06d.tar",
    "tsv {} -f cls",
    "tsv {} -f size.jpg",
    "stats {}",
    "show {}",
    "get d/b.cls {}",
    "get d/b {}",
    "extract {} -C out",
    "proc {} -c true",
    "check {}",
]


@each_row("words", COMMANDS)
def test_commands(words: str, run: Run, here: Path, archive: Archive) -> None:
    """All commands have the same output for a zip, from a file and from a pipe, as for a tar with the same entries."""
    found = []
    sources = {"t.tar": None, "z.zip": None, "p.zip": "pipe"}
    archive(zipped(), "z.zip")
    archive(zipped(), "p.zip")
    run("cat", "z.zip", "-o", "t.tar")
    for source, kind in sources.items():
        name = Feed(kind or "file")(source)
        (here / "out").mkdir()
        ran = run(*(name if word == "{}" else word for word in words.split()))
        made = {path.name: path.read_bytes() for path in sorted(here.glob("o-*"))}
        made |= {str(path): path.read_bytes() for path in sorted(here.glob("out/**/*")) if path.is_file()}
        found.append((ran.stdout.replace(os.fsencode(name), b"IN"), made))
        for path in here.glob("o-*"):
            path.unlink()
        shutil.rmtree(here / "out")
    assert found[0] == found[1] == found[2]
    assert any(found[0])


def test_index(run: Run, archive: Archive) -> None:
    """Offsets into a zip are useless: an index is refused with a hint, as for compressed shards."""
    ran = run("index", archive(zipped(), "in.zip"), "--format", "dali", exit=1)
    assert "in.zip: an index needs offsets in a plain archive, not a zip" in ran.stderr
    assert "tarkit cat in.zip -o in.tar" in ran.stderr


def test_directory_of_zips(run: Run, archive: Archive) -> None:
    archive(zipped(ROWS[:2]), "s/0.zip")
    archive(zipped(ROWS[2:]), "s/1.zip")
    assert entries(run("cat", "s").stdout) == ROWS


def test_read_ahead(run: Run, archive: Archive) -> None:
    """Several zips are read ahead in threads; a cut one is an error."""
    names = [archive(zipped(ROWS[at : at + 2]), f"{at}.zip") for at in (0, 2, 4)]
    assert entries(run("cat", *names, "-p", "3").stdout) == ROWS
    archive(GOOD[:-1], "2.zip")
    assert "2.zip: the zip ends before its directory" in run("cat", *names, "-p", "3", exit=1).stderr


def test_from_a_command(run: Run, archive: Archive) -> None:
    """The status of a command takes precedence over problems of its zip."""
    name = archive(GOOD, "in.zip")
    assert entries(run("cat", f"pipe:cat {name}").stdout) == ROWS
    assert "ended with status 3" in run("cat", f"pipe:head -c 99 {name}; exit 3", exit=1).stderr
    assert "the zip ends before its directory, after 99" in run("cat", f"pipe:head -c 99 {name}", exit=1).stderr


def test_from_the_middle_of_a_file(run: Run, here: Path) -> None:
    (here / "x").write_bytes(b"before" + GOOD)
    with open(here / "x", "rb") as file:
        os.lseek(file.fileno(), 6, os.SEEK_SET)
        assert entries(run("cat", stdin=file.fileno()).stdout) == ROWS


# ---- damaged zips

GOOD = zipped()
TWO = zipped([("a.x", b"one"), ("b.x", b"two")])
CUT = zipped([("a.zip", TWO), ("b.x", b"2")])[:-40]
UNLISTED_BEFORE = "there is an entry before it that its directory does not list"
UNLISTED_AFTER = "there is an entry after it that its directory does not list"
DAMAGE = [
    (GOOD[:1], "truncated", None),
    (GOOD[:40], "truncated", "before its directory, after 40 bytes"),
    (GOOD[:-1], "truncated", "before its directory"),
    (GOOD[:-30], "truncated", "before its directory"),
    (commented()[:-3], "truncated", "inside its comment"),
    (TWO + GOOD, "bad-data", UNLISTED_BEFORE),
    (b"#!/bin/sh\n" + TWO + GOOD, "bad-data", UNLISTED_BEFORE),
    (TWO + GOOD[:60], "bad-data", UNLISTED_AFTER),
    (TWO + GOOD[:10], "bad-data", UNLISTED_AFTER),
    (TWO + b"junk" + GOOD[:-30], "bad-data", UNLISTED_AFTER),
    (CUT, "bad-data", UNLISTED_BEFORE),
    (b"MZ" + CUT, "bad-data", UNLISTED_BEFORE),
    (GOOD[:-2] + len(TWO).to_bytes(2, "little") + TWO, "bad-data", UNLISTED_BEFORE),
    (zipped([]) + b"more", "bad-data", "its directory is empty, and there are other bytes before or after it"),
    (patched(TWO, (b"E", 16, b"\xff")), "bad-data", "as if bytes of its start were missing"),
    (b"#!/bin/sh\n" * 99, "bad-header", "at 0: this is neither a tar archive nor a zip"),
    (b"PK\7\x08" + GOOD[:-30], None, "one of several volumes"),
    (patched(TWO, (b"L", 33, b"O")), "bad-data", "the entry 'a.x' cannot be read: its checksum (CRC-32) is wrong"),
    (patched(TWO, (b"L", 30, b"A")), "bad-data", "'a.x' cannot be read: its local header differs from the directory"),
    (patched(TWO, (b"C", 16, b"\0")), "bad-data", "'a.x' cannot be read: its checksum"),
    (patched(TWO, (b"C", 20, b"\2")), "bad-data", "'a.x' has 3 bytes, of which 2 are stored"),
    (patched(TWO, (b"C", 46, b"A")), "bad-data", "'A.x' cannot be read"),
    (patched(TWO, (b"C", 42, b"\1")), "bad-data", "'a.x' cannot be read"),
    (patched(TWO, (b"C", 42, b"\xff\xff\0\0")), "truncated", "the zip ends inside the entry 'a.x'"),
    (patched(TWO, (b"C", 0, b"XX")), "bad-data", "its directory cannot be read: it contains something other"),
    (patched(TWO, (b"E", 8, b"\1\0\1\0")), "bad-data", "it has 1 entry, and its directory lists 2"),
    (patched(TWO, (b"L", 32, b"\0"), (b"C", 48, b"\0")), "bad-data", "an entry has the name 'a.\\x00'"),
    (patched(TWO, (b"C", 8, b"\1\0")), None, "the zip entry 'a.x' is encrypted"),
    (patched(TWO, (b"C", 10, b"\x09\0")), None, "the zip entry 'a.x' is compressed by method 9"),
    (patched(TWO, (b"C", 38, b"\0\0\0\x20")), None, "the zip entry 'a.x' is a device"),
    (patched(TWO, (b"C", 38, b"\0\0\0\x40")), None, "the zip entry 'a.x' is a directory"),
    (patched(TWO, (b"E", 4, b"\1\0")), None, "one of several volumes"),
]


@each_row(("data", "problem", "words"), DAMAGE)
def test_damage(
    data: bytes, problem: str | None, words: str | None, run: Run, here: Path, archive: Archive, feeds: list[Feed]
) -> None:
    """Each damage is an error with a reason and position; there is no output."""
    name = archive(data, "in.zip")
    for feed in feeds[:2]:
        word = feed(name)
        ran = run("cat", word, "-o", "out.tar", exit=1)
        if words is not None:
            assert f"tarkit: {word}: " in ran.stderr
            assert words in ran.stderr
            assert problem is None or f"[{problem}]" in ran.stderr
            assert len(ran.lines) <= 2
        assert not (here / "out.tar").exists()
    assert b"in.zip" in run("check", name, exit=1).stdout


def test_samples_before_damage(run: Run, archive: Archive) -> None:
    """--skip keeps the whole samples before damage, --allow the entries as well, as for a damaged gzip."""
    rows = [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("b.y", b"wrong"), ("c.x", b"5")]
    name = archive(zipped(rows).replace(b"wrong", b"wrung"), "in.zip")
    assert entries(run("cat", name, "--skip", "bad-data").stdout) == rows[:2]
    assert entries(run("cat", name, "--allow", "bad-data").stdout) == rows[:3]


BITS = (0xFF, 0x01)


@each_row("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_byte(method: int) -> None:
    """A zip with any changed byte, or any cut, is an error of tarkit or has the same names and contents."""
    rows = [("a.x", b"one"), ("b.y", b"two" * 9)]
    data = zipped(rows, method)
    assert entries(read(data)) == rows
    attributes = {
        at + offset for at in (match.start() for match in re.finditer(b"PK\1\2", data)) for offset in range(36, 42)
    } | {at + 5 for at in (match.start() for match in re.finditer(b"PK\1\2", data))}
    wrong = 0
    for at in range(len(data)):
        for bits in BITS if method == zipfile.ZIP_STORED else (BITS[at % 2],):
            changed = bytes((*data[:at], data[at] ^ bits, *data[at + 1 :]))
            try:
                out = read(changed)
            except TarkitError:
                wrong += 1
            else:
                assert at in attributes or entries(out) == rows, f"byte {at}"
        if method == zipfile.ZIP_STORED or not at % 9:
            with pytest.raises(TarkitError):
                read(data[:at])
    assert wrong > len(data) * (1 if method == zipfile.ZIP_STORED else 0.5)


def test_a_read_error_is_raised_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read error ends the zip each time it is read, and is never taken for the end of an archive."""
    (here / "x.zip").write_bytes(zipped([("a.x", b"1"), ("b.x", os.urandom(300_000))]))
    with open(here / "x.zip", "rb") as file:
        reader = ZipReader(Chunks(b""), "x.zip", file=File(Descriptor(os.dup(file.fileno())), "x.zip"))
    real = zip_input.ZipReader._long

    def broken(*words: Any) -> Iterator[bytes]:
        yield next(real(*words))
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(zip_input.ZipReader, "_long", broken)
    view = memoryview(bytearray(1 << 20))
    assert reader.readinto(view) >= 1024  # data before the error
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            reader.readinto(view)
    reader.close()
