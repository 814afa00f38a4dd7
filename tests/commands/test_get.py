"""tarkit get: the bytes of one field, or one sample, with an index or by reading, from every feed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tarkit.commands.get import LISTED
from tarkit.indexing.formats import index_path
from tarkit.samples import reader
from tarkit.streams import source
from tests._tools import each_row
from tests.conftest import PAX, Archive, Content, Feed, Link, Rows, Run, each_feed, entries, on_terminal, tar

ONE: Rows = [
    ("d.1", None),
    ("d.1/a.jpg", b"A" * 600),
    ("d.1/a.seg.png", b"segments"),
    ("d.1/a.txt", b"text\n"),
    ("b.JPG", b"B"),
    ("b.txt", b""),
    ("README", b"r"),
    ("c.cls", b"3"),
]
TWO: dict[str, Content] = {"e.jpg": b"E", "e.txt": b"e", "b.cls": b"labels of b"}


INDEXES = [None, "dali", "tsv", "webshart"]
FIELDS = [
    ("d.1/a.jpg", b"A" * 600),
    ("d.1/a.seg.png", b"segments"),
    ("d.1/a.SEG.png", b"segments"),
    ("b.jpg", b"B"),
    ("b.txt", b""),
    ("c.cls", b"3"),
    ("e.txt", b"e"),
    ("b.cls", b"labels of b"),
]


def index_of(run: Run, name: str, format: str) -> Path:
    """Write an index of an archive, and return its path."""
    run("index", name, "--format", format)
    return Path(index_path(format, name))


@each_row("index", INDEXES)
def test_a_field(index: str | None, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The content of a field, to the last byte; a field missing in one shard's sample may be in a later shard."""
    names = [archive(ONE, "1.tar"), archive(TWO, "2.tar")]
    if index:
        run("index", *names, "--format", index)
    for word, content in FIELDS:
        for feed in feeds[:1] if index else feeds:
            assert run("get", word, *map(feed, names)).stdout == content, (word, feed)
    run("get", "b.jpg", *names, "-o", "out.gz")
    assert Path("out.gz").read_bytes() == b"B"


@each_row("index", INDEXES)
def test_a_sample(index: str | None, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A sample is an archive with its entries without a key, the same with an index as without."""
    name = archive(ONE, "1.tar")
    if index:
        run("index", name, "--format", index)
    for key, rows in (("d.1/a", slice(0, 4)), ("b", slice(4, 6)), ("c", slice(6, 8))):
        for feed in feeds[:1] if index else feeds:
            ran = run("get", key, feed(name), "-v")
            assert ran.stdout == tar(ONE[rows]), (key, feed)
            assert ("looked up in" in ran.stderr) == bool(index)


@each_row("format", INDEXES[1:])
def test_an_index_that_lacks_a_key(format: str, run: Run, archive: Archive) -> None:
    """If an index lacks the key, the headers are read, here of a shard with the same size and time, in order."""
    names = [archive({f"{n:03}.txt": b"a" for n in range(99)}, "1.tar"), archive({"z77.txt": b"b"}, "2.tar")]
    run("index", *names, "--format", format)
    status = os.stat("1.tar")
    archive({f"{'z' if n == 77 else '0'}{n:02}.txt": b"a" for n in range(99)}, "1.tar")
    os.utime("1.tar", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert os.stat("1.tar").st_size == status.st_size
    assert run("get", "z77.txt", *names).stdout == run("get", "z77.txt", "1.tar").stdout == b"a"
    ran = run("get", "x.jpg", *names, "-v", exit=1)
    one, two = (index_path(format, name) for name in names)
    assert ran.lines == [
        f"tarkit: {one}: the index does not list 'x'",
        "tarkit: reading 1.tar",
        f"tarkit: {two}: the index does not list 'x'",
        "tarkit: reading 2.tar",
        "tarkit: no sample 'x': searched 2 inputs",
        f"hint: {LISTED}",
    ]


@each_row("nanoseconds", [1, -1, 0])
@each_row("format", INDEXES[1:])
def test_an_index_that_is_older(nanoseconds: int, format: str, run: Run, archive: Archive) -> None:
    """An index older than its shard, by a nanosecond, is ignored; one of the same time is used."""
    path = index_of(run, name := archive(ONE, "1.tar"), format)
    time = path.stat().st_mtime_ns
    os.utime(name, ns=(time, time + nanoseconds))
    ran = run("get", "b.txt", name, "-v")
    assert (f"warning: {path}: index not used: it is older than the shard" in ran.stderr) == (nanoseconds > 0)
    assert ("looked up in" in ran.stderr) == (nanoseconds <= 0)


def test_an_index_that_leads_into_a_payload(run: Run, archive: Archive) -> None:
    """An offset that points to the header of an archive inside a payload is noticed by the entries around it."""
    rows = {f"k{n}.x": str(n).encode() for n in range(5)}
    name = archive(rows, "1.tar")
    run("index", name, "--format", "dali")
    inner = tar(dict([*rows.items()][1:]))
    archive({"k0.x": b"0".ljust(512, b"\0") + inner, "k1.x": b"one", "k2.x": b"two"}, "1.tar")
    time = os.stat("1.idx").st_mtime_ns
    os.utime(name, ns=(time, time))
    assert run("get", "k2.x", name).stdout == b"two"


@each_row(
    "members",
    [
        {"k.a": b"1", "k.seg.png": b"2", "seg.x": b"found", "seg.seg.x": b"4", "l.seg.x": b"5"},  # named as the key
        {"a.x": b"1", "a.l": Link("a.x", tarfile.SYMTYPE), "seg.x": b"found", "c.x": b"3"},  # no index lists links
    ],
)
def test_what_an_index_leads_past(members: dict[str, Content], run: Run, archive: Archive) -> None:
    """An index finds the sample, whatever entries are around it."""
    run("index", archive(members), "--format", "dali")
    ran = run("get", "seg.x", "in.tar", "-v")
    assert ran.stdout == b"found"
    assert "looked up in in.idx" in ran.stderr


@each_row(
    "change",
    [
        tar({"new.jpg": b"N" * 600, **dict(ONE)}),
        tar([*ONE, ("new.jpg", b"N")]),
        tar([*ONE[:7], ("new.cls", b"3")]),
        tar([*ONE[:1], ("new.jpg", b"A" * 600), *ONE[4:]]),
        tar([("new.jpg", b"N")]),
    ],
)
@each_row("format", INDEXES[1:])
def test_an_index_that_is_stale(change: bytes, format: str, run: Run, archive: Archive) -> None:
    """An index of a changed shard, with the time of the shard, gives the samples that are there now."""
    path = index_of(run, name := archive(ONE, "1.tar"), format)
    archive(change, "1.tar")
    os.utime(name, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    ran = [run("get", key, name, exit=None) for key in ("d.1/a", "b", "c", "new")]
    path.unlink()
    assert [each.stdout for each in ran] == [run("get", k, name, exit=None).stdout for k in ("d.1/a", "b", "c", "new")]
    assert [entry for entry in entries(ran[3].stdout) if entry[0].startswith("new.")]


def test_an_index_that_is_none(run: Run, archive: Archive) -> None:
    """An invalid index is ignored."""
    name = archive(ONE, "1.tar")
    for format in ("dali", "tsv", "webshart"):
        path = index_of(run, name, format)
        path.write_bytes(b"v1.2 1\nnotes\n")
        assert run("get", "c.cls", name).stdout == b"3"
        path.unlink()


def test_an_index_that_lists_a_key_twice(run: Run, archive: Archive) -> None:
    """It is not used: one row is a part of the sample."""
    name = archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")])
    run("index", name, "--format", "dali", "--allow", "scattered-sample")
    assert "[scattered-sample]" in run("get", "a.y", name, exit=1).stderr


@each_row(
    ("words", "content"),
    [
        (["-f", "jpg"], b"A" * 600),
        (["-f", "png,TXT"], b"text\n"),
        (["-f", "cls"], b"3"),
        (["-f", "jpg", "--match", "^[be]$"], b"B"),
        (["-f", "txt", "--slice", "1:"], b""),
        (["-f", "jpg", "--shard-slice", "2:"], b"b"),
    ],
)
def test_the_first_that_has_it(words: list[str], content: bytes, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Without a KEY the first selected sample is used."""
    names = [archive(ONE, "1.tar"), archive({"x.a": b"", "y.a": b"", "z.jpg": b"b"}, "2.tar")]
    for feed in feeds:
        assert run("get", *words, *map(feed, names)).stdout == content


def test_it_stops_early(run: Run, archive: Archive) -> None:
    """Entries after the sample are not read, even if they are damaged."""
    name = archive(tar(ONE)[:5500])
    assert run("get", "d.1/a.txt", name).stdout == b"text\n"
    assert run("get", "-f", "jpg", name, "no-such.tar", exit=1).stdout == b""
    assert "[truncated]" in run("get", "c.cls", name, exit=1).stderr


def test_no_content(run: Run, archive: Archive) -> None:
    """Links, devices and FIFOs have no content, with an index and without."""
    without = {
        "a.hard": (Link("a.x"), "hard link to 'a.x': get that instead"),
        "a.sym": (Link("a.x", tarfile.SYMTYPE), "symbolic link"),
        "a.fifo": (Link("", tarfile.FIFOTYPE), "a FIFO"),
        "a.dev": (Link("", tarfile.CHRTYPE), "a device"),
    }
    name = archive({"a.x": b"1", **{word: link for word, (link, _) in without.items()}})
    for index in (False, True):
        if index:
            run("index", name, "--format", "dali")
        for word, (_, what) in without.items():
            assert what in run("get", word, name, exit=1).stderr


@each_feed
def test_duplicates(run: Run, archive: Archive, feed: Feed) -> None:
    """A duplicate name in a sample is an error, even while a large field of a stream is written."""
    rows: Rows = [("a.bin", b"1" * 5000), ("a.y", b""), ("a.bin", b"2"), ("b.x", b"")]
    word = feed(archive(rows))
    for large in (1 << 24, 1 << 12):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "LARGE", large)
            ran = run("get", "a.bin", word, "-o", "out", exit=1)
            assert ran.lines[0].endswith("'a.bin' occurs twice [duplicate-entry]")
            assert not Path("out").exists()


def test_fields_of_streams_are_those_of_files(
    run: Run, archive: Archive, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first field of a name, or the one in the exact case, may come late in a large sample of a stream."""
    monkeypatch.setattr(reader, "LARGE", 1 << 12)
    monkeypatch.setattr(source, "HELD", 1 << 12)
    name = archive({"a.PNG": b"P" * 9000, "a.TXT": b"T" * 9000, "a.png": b"p" * 9000, "a.jpg": b"j", "b.x": b""})
    for words, content in (
        (["a.png"], b"p" * 9000),
        (["a.Png"], b"P" * 9000),
        (["-f", "jpg,png"], b"j"),
        (["-f", "wav,txt,JPG"], b"T" * 9000),
    ):
        for feed in feeds:
            word = feed(name)
            assert run("get", *words, word).stdout == content, (words, feed)


def test_names_that_are_no_text(run: Run, archive: Archive) -> None:
    """Keys are bytes."""
    name = archive({"\udce9.x": b"1", "é.x": b"2", "n" * 150 + ".x": b"3"}, "in.tar", PAX)
    run("index", name, "--format", "dali")
    for word, content in (("\udce9.x", b"1"), ("é.x", b"2"), ("n" * 150 + ".x", b"3")):
        assert run("get", word, name).stdout == content


@each_row(("name", "shown"), [("a.txt", "some\ttext\n"), ("a.bin", ""), ("a.esc", ""), ("a.utf", "é"), ("a", "")])
def test_terminal(name: str, shown: str, archive: Archive) -> None:
    """A terminal gets text only, without control characters."""
    archive({"a.txt": b"some\ttext\n", "a.bin": b"\0\1", "a.esc": b"\x1b[2J", "a.utf": "é".encode()})
    text, ran = on_terminal("get", name, "in.tar", exit=0 if shown else 2)
    assert text.expandtabs() == shown.expandtabs()
    assert ("to a terminal" in ran.stderr) == (not shown)
