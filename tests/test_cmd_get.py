"""tarkit get: the bytes of one field, or one sample, by an index or by reading, from every feed."""

from __future__ import annotations

import io
import os
import pty
import tarfile
from pathlib import Path

import pytest
from _tools import each_row
from conftest import PAX, Archive, Content, Feed, Link, Run, each_feed, entries, tar, tarkit

from tarkit.commands.get import LISTED
from tarkit.dataset import grouping

ONE: list[tuple[str, Content]] = [
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


@each_row("index", INDEXES)
def test_a_field(index: str | None, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Its content, to the last byte; one that a shard's sample lacks may be in a later shard."""
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
    """An archive, with the entries without key that go with it; the same by an index as without."""
    name = archive(ONE, "1.tar")
    if index:
        run("index", name, "--format", index)
    for key, rows in (("d.1/a", slice(0, 4)), ("b", slice(4, 6)), ("c", slice(6, 8))):
        for feed in feeds[:1] if index else feeds:
            ran = run("get", key, feed(name), "-v")
            assert ran.stdout == tar(ONE[rows]), (key, feed)
            assert ("looked up in" in ran.stderr) == bool(index)


def test_an_index_says_that_a_key_is_not_there(run: Run, archive: Archive) -> None:
    """Then the shard is not read."""
    names = [archive(ONE, "1.tar"), archive(TWO, "2.tar")]
    run("index", *names, "--format", "dali")
    ran = run("get", "x.jpg", *names, "-v", exit=1)
    assert ran.lines == [
        "tarkit: 1.tar: looked up in 1.idx",
        "tarkit: 2.tar: looked up in 2.idx",
        "tarkit: there is no sample 'x': looked at 2 inputs",
        f"hint: {LISTED}",
    ]


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
@each_row("format", ["dali", "tsv", "webshart"])
def test_an_index_that_is_stale(change: bytes, format: str, run: Run, archive: Archive) -> None:
    """It is not believed, whichever way the shard has changed: the shard is read."""
    name = archive(ONE, "1.tar")
    run("index", name, "--format", format)
    archive(change, "1.tar")
    with_warning = run("get", "new", name)
    assert "not used, the archive has changed since" in with_warning.stderr
    assert [entry for entry in entries(with_warning.stdout) if entry[0].startswith("new.")]


def test_an_index_that_is_none(run: Run, archive: Archive) -> None:
    """What is no index at all is not believed either."""
    name = archive(ONE, "1.tar")
    for format in ("dali", "tsv", "webshart"):
        run("index", name, "--format", format)
        [path] = [path for path in Path().iterdir() if path.name != name]
        path.write_bytes(b"v1.2 1\nnotes\n")
        assert run("get", "c.cls", name).stdout == b"3"
        path.unlink()


def test_an_index_leads_past_links(run: Run, archive: Archive) -> None:
    """No index lists links; samples behind them are found all the same."""
    rows: list[tuple[str, Content]] = [
        ("a.x", b"1"),
        ("a.l", Link("a.x", tarfile.SYMTYPE)),
        ("b.x", b"2"),
        ("c.x", b"3"),
    ]
    name = archive(rows, "1.tar")
    run("index", name, "--format", "dali")
    ran = run("get", "b.x", name, "-v")
    assert ran.stdout == b"2"
    assert "looked up in 1.idx" in ran.stderr


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
    """Of the samples that were chosen; no KEY then."""
    names = [archive(ONE, "1.tar"), archive({"x.a": b"", "y.a": b"", "z.jpg": b"b"}, "2.tar")]
    for feed in feeds:
        assert run("get", *words, *map(feed, names)).stdout == content


def test_it_stops_early(run: Run, archive: Archive) -> None:
    """What comes behind the sample is not looked at, be it damaged."""
    name = archive(tar(ONE)[:5500])
    assert run("get", "d.1/a.txt", name).stdout == b"text\n"
    assert run("get", "-f", "jpg", name, "no-such.tar", exit=1).stdout == b""
    assert "[truncated]" in run("get", "c.cls", name, exit=1).stderr


@each_row(
    ("words", "lines"),
    [
        (["x"], ["tarkit: there is no sample 'x': looked at 1 input", f"hint: {LISTED}"]),
        (["x.jpg"], ["tarkit: there is no sample 'x': looked at 1 input", f"hint: {LISTED}"]),
        (
            ["b.png"],
            [
                "tarkit: in.tar: at 4096: 'b' has no field 'png', it has 'JPG', 'txt' [missing-field]",
                "hint: tarkit show lists fields",
            ],
        ),
        (["-f", "wav"], ["tarkit: no sample that was chosen has a field 'wav': looked at 1 input"]),
    ],
)
def test_not_found(words: list[str], lines: list[str], run: Run, archive: Archive) -> None:
    """An error, and no output under its name."""
    ran = run("get", *words, archive(ONE), "-o", "out", exit=1)
    assert ran.lines == lines
    assert not Path("out").exists()


@each_row(
    ("words", "message"),
    [
        ([], "no KEY"),
        (["a/"], "'a/' is no key"),
        ([".hidden"], "'.hidden' is no key"),
        (["-f", "a/b", "in.tar"], "is the name of a field"),
        (["-f", "", "in.tar"], "is the name of a field"),
        (["a.jpg", "in.tar", "--compress", "gz"], "--compress is for a whole sample"),
        (["b.txt", "in.tar", "-o", "in.tar"], "in.tar is the output too"),
    ],
)
def test_wrong_words(words: list[str], message: str, run: Run, archive: Archive) -> None:
    """Status 2."""
    archive(ONE)
    assert message in run("get", *words, exit=2).stderr
    assert Path("in.tar").read_bytes() == tar(ONE)


@each_row("index", [False, True])
def test_no_content(index: bool, run: Run, archive: Archive) -> None:
    """Links, devices and FIFOs have none."""
    rows: list[tuple[str, Content]] = [
        ("a.x", b"1"),
        ("a.hard", Link("a.x")),
        ("a.sym", Link("a.x", tarfile.SYMTYPE)),
        ("a.fifo", Link("", tarfile.FIFOTYPE)),
        ("a.dev", Link("", tarfile.CHRTYPE)),
    ]
    name = archive(rows)
    if index:
        run("index", name, "--format", "dali")
    for field, what in (
        ("hard", "hard link to 'a.x': ask"),
        ("sym", "symbolic link"),
        ("fifo", "a FIFO"),
        ("dev", "a device"),
    ):
        assert what in run("get", f"a.{field}", name, exit=1).stderr


@each_row("name", ["gnu-sparse-1.0.tar", "gnu-sparse-old.tar", "bsdtar-pax-sparse.tar"])
def test_sparse(name: str, run: Run) -> None:
    """Its content is not stored as it is; the sample can be had."""
    path = Path(__file__).parent / "data" / name
    with tarfile.open(path) as file:
        found = next(info.name for info in file if info.issparse() and "." in os.path.basename(info.name))
    ran = run("get", found, path, exit=1)
    assert ran.lines[0].endswith("[sparse-entry]")
    key = os.path.join(os.path.dirname(found), os.path.basename(found).partition(".")[0])
    with tarfile.open(fileobj=io.BytesIO(run("get", key, path).stdout)) as file:
        assert found in file.getnames()


@each_feed
def test_duplicates(run: Run, archive: Archive, feed: Feed) -> None:
    """One name twice in a sample is an error, also where a large field of a stream is on its way already."""
    rows: list[tuple[str, Content]] = [("a.bin", b"1" * 5000), ("a.y", b""), ("a.bin", b"2"), ("b.x", b"")]
    word = feed(archive(rows))
    for large in (1 << 24, 1 << 12):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grouping, "LARGE", large)
            ran = run("get", "a.bin", word, "-o", "out", exit=1)
            assert ran.lines[0].endswith("'a.bin' is there twice [duplicate-entry]")
            assert not Path("out").exists()


def test_large_samples_of_streams(
    run: Run, archive: Archive, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that is handed out before its end is known is found whole, and each field of it."""
    monkeypatch.setattr(grouping, "LARGE", 1 << 12)
    rows: list[tuple[str, Content]] = [
        ("a.bin", b"1" * 9000),
        ("a.y", b"y"),
        ("a.z", b"Z" * 9000),
        ("b.bin", b"2" * 9000),
    ]
    for feed in feeds:
        word = feed(archive(rows))
        assert run("get", "a", word).stdout == tar(rows[:3])
        for row, (name, content) in enumerate(rows):
            assert run("get", name, word).stdout == content, row
        assert run("get", "-f", "z", word).stdout == b"Z" * 9000


def test_names_that_are_no_text(run: Run, archive: Archive) -> None:
    """Keys are bytes."""
    name = archive({"\udce9.x": b"1", "é.x": b"2", "n" * 150 + ".x": b"3"}, "in.tar", PAX)
    run("index", name, "--format", "dali")
    for word, content in (("\udce9.x", b"1"), ("é.x", b"2"), ("n" * 150 + ".x", b"3")):
        assert run("get", word, name).stdout == content


@each_row(("name", "good"), [("a.txt", True), ("a.bin", False), ("a.esc", False), ("a.utf", True), ("a", False)])
def test_terminal(name: str, good: bool, here: Path) -> None:
    """It gets text only: nothing that could change how it works."""
    Path("in.tar").write_bytes(
        tar({"a.txt": b"some\ttext\n", "a.bin": b"\0\1", "a.esc": b"\x1b[2J", "a.utf": "é".encode()})
    )
    main, other = pty.openpty()
    try:
        ran = tarkit("get", name, "in.tar", stdout=other, exit=0 if good else 2)
        os.write(other, b"END\n")
        shown = os.read(main, 1000)
    finally:
        os.close(main)
        os.close(other)
    assert shown.startswith(b"END") != good
    assert ("is a terminal" in ran.stderr) != good
