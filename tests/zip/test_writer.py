"""Zips as outputs: round trips, every command, what a zip cannot store, zip64."""

from __future__ import annotations

import io
import stat
import subprocess
import tarfile
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError
from tarkit.streams.sink import FileSink
from tarkit.tar import entry_sink
from tarkit.zip import writer
from tarkit.zip.writer import ZipSink, dos_time
from tests._tools import MARKER, Log, archive, each_row, member, program, with_field
from tests.conftest import GNU, PAX, Archive, Content, Feed, Link, Run, entries, tar

SAMPLES: list[tuple[str, Content]] = [
    ("d/a.cls", b"1"),
    ("d/a.jpg", bytes(range(256)) * 3),
    ("d/b.cls", b""),
    ("d/b.jpg", b"b" * 5000),
    ("d/c.cls", b"3"),
]
LINK = Link("a.cls", tarfile.SYMTYPE)
TABLE: dict[str, list[tuple[str, Content]]] = {
    "samples": SAMPLES,
    "none": [],
    "folders": [("d", None), ("d/a.x", b"1"), ("e", None)],
    "strays": [("README", b"r"), ("a.x", b"1"), ("LICENSE", b"l")],
    "link": [("d/a.cls", b"1"), ("d/a.txt", LINK)],
    "names": [("ü/a.x", b"1"), ("k" * 300 + "/b.x", b"2"), ("c\\d.x", b"3"), ("e.x\n", b"4"), ("f.x", b"5" * 512)],
    "raw": [("\udcff\udc81.x", b"1"), ("b.x", b"2")],
    "long": [("n" * 20000 + f"/{number}.x", b"%d" % number) for number in range(3)],
}


def listed(data: bytes | Path | str) -> list[tuple[str, bytes]]:
    """Return names and contents of a zip as Python reads them, with all checksums verified."""
    with zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data) as file:
        assert file.testzip() is None
        return [(info.orig_filename, file.read(info)) for info in file.infolist()]


class ZipLog(Log):
    """A sink in memory, of a name."""

    name, remote = "x.zip", False


def packed(data: bytes, step: int = 1 << 30, level: int | None = None) -> bytes:
    """Return the zip made from an archive that arrives in pieces of `step` bytes."""
    into = ZipLog()
    sink = ZipSink(into, level)  # type: ignore[arg-type]
    for at in range(0, len(data), step):
        sink.write(memoryview(data)[at : at + step])
    sink.close()
    assert into.calls[-1] == "close"
    return bytes(into.data)


def one(**settings: int) -> bytes:
    """Return an archive of one entry, with `settings` in its header or in the PAX records before it."""
    buffer, info = io.BytesIO(), tarfile.TarInfo("a.x")
    for field, value in {"size": 1, **settings}.items():
        setattr(info, field, value)
    with tarfile.open(fileobj=buffer, mode="w", format=PAX) as file:
        file.addfile(info, io.BytesIO(b"1"))
    return buffer.getvalue()


# ---- round trips


@each_row(("name", "compress"), [*product(TABLE, ["zip"]), *product(["samples", "names"], ["zip:1", "zip:9"])])
def test_round_trip(name: str, compress: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A zip has the contents of the tar, and so has a tar of that zip: names, contents, order, modes, times."""
    rows = TABLE[name]
    for format in (GNU, PAX):
        word = archive(rows, format=format, errors="surrogateescape")
        made = {run("cat", feed(word), "--compress", compress).stdout for feed in feeds[: 3 if format == PAX else 1]}
        assert len(made) == 1
        [data] = made
        found = listed(data)
        assert [content for _, content in found] == [
            content if isinstance(content, bytes) else b"" if content is None else content.target.encode()
            for _, content in rows
        ]
        if name not in ("raw", "folders"):
            assert [each for each, _ in found] == [each for each, _ in rows]
        back = run("cat", stdin=data).stdout
        with tarfile.open(fileobj=io.BytesIO(back), encoding="utf-8") as file:
            members = file.getmembers()
            assert [info.name for info in members] == [each for each, _ in rows]
            assert all((info.mtime, info.mode) == (1234567890, 0o604) for info in members)
        assert entries(back) == rows
        assert run("cat", "--compress", compress, stdin=back).stdout == data


def test_headers(run: Run, archive: Archive) -> None:
    """Headers have the correct kinds, modes, methods and UTF-8 flags, with sizes before the contents."""
    rows: list[tuple[str, Content]] = [("d", None), ("d/a.x", b"1" * 99), ("d/b.x", b"2"), ("d/ü.x", LINK)]
    for level, methods in ((0, [0, 0, 0, 0]), (6, [0, 8, 0, 0])):
        data = run("cat", archive(rows), "--compress", f"zip:{level}").stdout
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            infos = file.infolist()
        assert [info.filename for info in infos] == ["d/", "d/a.x", "d/b.x", "d/ü.x"]
        assert [info.compress_type for info in infos] == methods
        assert [info.flag_bits for info in infos] == [0, 0, 0, 0x800]
        kinds = [stat.S_IFDIR, stat.S_IFREG, stat.S_IFREG, stat.S_IFLNK]
        assert [info.external_attr >> 16 for info in infos] == [kind | 0o604 for kind in kinds]
        assert {info.date_time for info in infos} == {(2009, 2, 13, 23, 31, 30)}


@each_row(
    ("seconds", "expected"),
    [
        (0, (1980, 1, 1, 0, 0, 0)),
        (-5, (1980, 1, 1, 0, 0, 0)),
        (315532800, (1980, 1, 1, 0, 0, 0)),
        (1234567891, (2009, 2, 13, 23, 31, 30)),
        (4354819198, (2107, 12, 31, 23, 59, 58)),
        (1 << 40, (2107, 12, 31, 23, 59, 58)),
        (1 << 80, (2107, 12, 31, 23, 59, 58)),
        (-1 << 80, (1980, 1, 1, 0, 0, 0)),
    ],
)
def test_times(seconds: int, expected: tuple[int, ...]) -> None:
    """Times of a zip range from 1980 to 2107, in steps of two seconds."""
    time, date = dos_time(seconds)
    found = (1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, 2 * (time & 31))
    assert found == expected


EXACT = [0, 1, 315532801, 1234567891, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, 4354819199, 1 << 33, 253402300799]
EXACT += [-5, -11644473599]  # the second one is the first that NTFS has


@each_row("seconds", EXACT)
def test_exact_times(seconds: int, run: Run, archive: Archive, here: Path) -> None:
    """Exact times of any year, from headers or PAX records, are restored from extra fields."""
    archive(one(mtime=seconds))
    run("cat", "in.tar", "-o", "x.zip")
    with tarfile.open(fileobj=io.BytesIO(run("cat", "x.zip").stdout)) as file:
        assert [info.mtime for info in file] == [seconds]
    (here / "f").mkdir()
    (here / "f/a.x").write_bytes(b"1")
    run("shard", "f", "-o", "y-%d.zip", "--mtime", f"@{seconds}", exit=0 if seconds >= 0 else None)
    for made in here.glob("y-*.zip"):
        with tarfile.open(fileobj=io.BytesIO(run("cat", made.name).stdout)) as file:
            assert [info.mtime for info in file] == [seconds]


@pytest.mark.parametrize("tool", ["unzip", "bsdtar", "7z"])
def test_times_in_other_programs(tool: str, run: Run, archive: Archive, here: Path, monkeypatch: Any) -> None:
    """Other programs restore the exact times, far from UTC as well; after January 2038 those that know NTFS fields."""
    path = program(tool)
    monkeypatch.setenv("TZ", "America/New_York")
    words = {"unzip": ["-q"], "bsdtar": ["-xf"], "7z": ["x"]}[tool]
    for seconds in (0, 1234567891, (1 << 31) - 1, *([1 << 31, 253402300] if tool == "7z" else [])):
        archive(one(mtime=seconds))
        run("cat", "in.tar", "-o", "x.zip")
        subprocess.run([path, *words, "x.zip"], check=True, cwd=here, capture_output=True)
        assert (here / "a.x").stat().st_mtime == seconds
        (here / "a.x").unlink()


@each_row("numbers", [(0, 0), (1000, 100), (0, 5), ((1 << 21) - 1, 1 << 21), (1 << 32, 5)])
def test_owners(numbers: tuple[int, int], run: Run, archive: Archive) -> None:
    """Owner ids are restored, also those of PAX records; an owner of 0 has no extra field."""
    archive(one(uid=numbers[0], gid=numbers[1]))
    data = run("cat", "in.tar", "--compress", "zip").stdout
    assert (b"ux" in data) == any(numbers)
    with tarfile.open(fileobj=io.BytesIO(run("cat", stdin=data).stdout)) as file:
        assert [(info.uid, info.gid) for info in file] == [numbers]


@pytest.mark.parametrize("large", [False, True])
@each_row("level", [0, 6])
def test_any_pieces(level: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zip does not depend on the pieces of its archive; checksums of large entries follow them."""
    if large:
        monkeypatch.setattr(ZipSink, "large", 600)
        monkeypatch.setattr(entry_sink, "STEP", 512)
    rows = [(name, content) for name, content in SAMPLES if isinstance(content, bytes)]
    rows[1:1] = [("n" * 300 + "/x.y", b"z" * 700)]
    data = tar(rows, PAX)
    whole = packed(data, level=level)
    assert listed(whole) == rows
    for step in (1, 7, 511, 512, 513, 1000):
        assert packed(data, step, level) == whole
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        assert [bool(info.flag_bits & 8) for info in file.infolist()] == [
            large and len(content) > 600 for _, content in rows
        ]


@pytest.fixture(params=[False, True])
def zip64(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit sizes and offsets in a zip to 100 and counts to 2; in one variant every entry is large."""
    monkeypatch.setattr(writer, "LIMIT", 100)
    monkeypatch.setattr(writer, "MOST", 2)
    if request.param:
        monkeypatch.setattr(ZipSink, "large", 1)


def test_zip64(zip64: None, run: Run, archive: Archive, here: Path) -> None:
    """Sizes, offsets and counts that exceed the fields of a zip are in those of zip64."""
    name = archive(SAMPLES)
    for level in (0, 6):
        run("cat", name, "--compress", f"zip:{level}", "-o", "x.zip")
        assert b"PK\6\6" in (here / "x.zip").read_bytes()
        assert listed("x.zip") == SAMPLES
        assert entries(run("cat", "x.zip").stdout) == SAMPLES


@each_row("words", [("unzip", "-tq"), ("bsdtar", "-tf"), ("zip", "-T")])
def test_other_programs_read_zip64(words: tuple[str, ...], zip64: None, run: Run, archive: Archive) -> None:
    """Info-ZIP and libarchive accept zip64."""
    run("cat", archive(SAMPLES), "--compress", "zip:6", "-o", "x.zip")
    subprocess.run([program(words[0]), *words[1:], "x.zip"], check=True, capture_output=True)


def test_long_directory(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory larger than memory is kept in temporary space until the end."""
    data = run("cat", archive(SAMPLES), "--compress", "zip").stdout
    monkeypatch.setattr(writer, "DIRECTORY_HELD", 60)
    assert run("cat", archive(SAMPLES), "--compress", "zip").stdout == data


# ---- every command


@each_row(
    "words",
    [
        "cat in.tar -f cls -o o.tar",
        "cat in.tar --match b -R k# -o o.tar",
        "split in.tar -c 2 -o o-%06d.tar",
        "split in.tar -s 5000 -o o-%06d.tar",
        "split in.tar -n 2 -o o-{0..1}.tar",
        "sort in.tar -s cls -t str -o o.tar",
        "sort in.tar -c 1 -o o-%d.tar",
        "shuffle in.tar --seed 3 -o o.tar",
        "shuffle in.tar --seed 3 -c 2 -o o-%06d.tar",
        "mix in.tar --seed 1 -o o.tar",
        "proc in.tar -c true -o o.tar",
        "create recipe -o o.tar",
        "get d/b in.tar -o o.tar",
        "check in.tar --fix o.tar",
    ],
)
def test_commands(words: str, run: Run, here: Path, archive: Archive) -> None:
    """All commands that write archives write the same entries to a zip if the output's name ends in .zip."""
    archive(SAMPLES)
    (here / "recipe").write_bytes(b"a.txt\ttext:hello\na.cls\ttext:1\nb.txt\ttext:x\n")
    run(*words.split())
    run(*words.replace(".tar", ".zip").replace("in.zip", "in.tar").split())
    tars = sorted(here.glob("o*.tar"))
    assert tars
    assert [path.with_suffix(".tar") for path in sorted(here.glob("o*.zip"))] == tars
    for path in tars:
        assert listed(path.with_suffix(".zip")) == entries(path)


def test_limit_of_size(run: Run, archive: Archive, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of size counts the bytes of a tar, for a stream with large samples as well."""
    from tarkit.samples import reader

    monkeypatch.setattr(reader, "LARGE", 1 << 12)
    rows = [(f"{key}.bin", key.encode() * 9000) for key in "abcde"]
    name = Feed("pipe")(archive(rows))
    run("split", name, "-s", "30000", "-o", "o-%d.zip")
    found = [listed(path) for path in sorted(here.glob("o-*.zip"))]
    assert found == [rows[0:2], rows[2:4], rows[4:]]


def test_outputs(run: Run, archive: Archive, here: Path) -> None:
    """--compress zip writes to stdout and to commands; a name without a number gets one before its suffix."""
    archive(SAMPLES)
    run("cat", "in.tar", "-o", "x.zip")
    data = (here / "x.zip").read_bytes()
    assert run("cat", "in.tar", "--compress", "zip").stdout == data
    run("cat", "in.tar", "--compress", "zip", "-o", "pipe:cat > y.zip")
    assert (here / "y.zip").read_bytes() == data
    run("split", "in.tar", "-c", "9", "-o", "z.zip")
    assert (here / "z-000000.zip").read_bytes() == data
    run("cat", "in.tar", "-o", "n.zip", "--compress", "none")
    assert entries("n.zip") == SAMPLES
    assert (here / "x.zip").stat().st_mode & 0o777 == (here / "n.zip").stat().st_mode & 0o777


# ---- unsupported contents


@each_row(
    ("rows", "words"),
    [
        ([("a.x", b"1"), ("a.y", Link("a.x"))], "'a.y': a hard link"),
        ([("a.x", b"1"), ("a.y", Link("", tarfile.FIFOTYPE))], "'a.y': a FIFO"),
        ([("a.x", b"1"), ("a.y", Link("", tarfile.CHRTYPE))], "'a.y': a device"),
        ([("a.x", b"1"), ("a.y", Link("", b"V"))], "'a.y': the label of a volume"),
        ([("a.x", b"1"), ("n" * 66000 + ".y", b"1")], "a name that a zip cannot hold"),
        (one(mtime=1 << 40), "'a.x': a time before 1601 or after 30827"),
        (one(mtime=-11644473600), "'a.x': a time before 1601 or after 30827"),
        (archive([]) and member("a.x/", b"1") + MARKER, "'a.x/': a name that a zip cannot hold"),
        (tar([("a.x", b"1")], PAX, pax_headers={"GNU.sparse.name": "a.x"}), "'a.x': a sparse file"),
    ],
)
def test_unsupported_content(rows: Any, words: str, run: Run, here: Path, archive: Archive, feeds: list[Feed]) -> None:
    """Content that a zip cannot store is an error that names it; there is no output."""
    name = archive(rows, format=PAX)
    for feed in feeds:
        ran = run("cat", feed(name), "-o", "x.zip", exit=1)
        assert "tarkit: x.zip: a zip cannot hold " in ran.stderr
        assert words in ran.stderr
        assert not (here / "x.zip").exists()


def test_sparse_of_gnu(run: Run, archive: Archive) -> None:
    """An old sparse file is refused by its header."""
    old = with_field(with_field(member("a.x", b"1"), 156, b"S"), 257, b"ustar  \0")
    ran = run("cat", archive(old + MARKER), "--compress", "zip", exit=1)
    assert "a zip cannot hold 'a.x': a sparse file" in ran.stderr


@each_row("words", ["tsv in.tar -f cls -o x.zip", "tsv in.tar -f cls --compress zip", "show in.tar --html x.zip"])
def test_text(words: str, run: Run, archive: Archive, here: Path) -> None:
    """Tables are refused as a zip before anything is read."""
    archive(SAMPLES)
    assert "refusing to write text to a zip" in run(*words.split(), exit=2).stderr
    assert not (here / "x.zip").exists()


@each_row("data", [b"", tar(SAMPLES)[:600], tar(SAMPLES)[:1024], tar(SAMPLES) + tar(SAMPLES)])
def test_no_archive(data: bytes, here: Path) -> None:
    """An archive without its end, or followed by another one, yields no zip."""
    sink = ZipSink(FileSink(str(here / "x.zip")))
    with pytest.raises(TarkitError), sink:
        sink.write(data)
    assert not [*here.iterdir()]


def test_comment_of_git(run: Run, archive: Archive) -> None:
    """A global header is dropped: its names are in the entries, and a zip cannot store the rest."""
    name = archive(tar([("a.x", b"1")], PAX, pax_headers={"comment": "0123"}))
    assert listed(run("cat", name, "--compress", "zip").stdout) == [("a.x", b"1")]
