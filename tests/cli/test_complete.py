"""Completion from data: fields, values and keys of the archives on a command line."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarkit.cli import complete
from tarkit.cli.app import group
from tests._tools import each_row
from tests.conftest import Archive, tar, tarkit

DATA = {
    f"{key}.{field}": content
    for key in ("d/17", "d/170", "e")
    for field, content in {
        "jpg": b"1",
        "seg.png": b"2",
        "json": b'{"label": "x", "box": {"x": 1, "a b": 2}, "2": 3}',
        "JPG2": b"",
        "0 (x).mp3": b"",
    }.items()
}
FIELDS = ["jpg", "seg.png", "json", "JPG2"]
PATHS = ["jpg", "seg.png", "json", "json.label", "json.box", "json.box.x", "JPG2"]


Complete = Callable[..., list[str]]


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Complete:
    """Return the words that bash gets for the word at a place of a line, the last one by default, without a limit."""

    def completed(*line: str, at: int | None = None) -> list[str]:
        monkeypatch.setattr(complete, "LIMIT", 60.0)
        monkeypatch.setenv("COMP_WORDS", "\n".join(["tarkit", *line]))
        monkeypatch.setenv("COMP_CWORD", str(len(line) if at is None else at))
        monkeypatch.setenv("_TARKIT_COMPLETE", "bash_complete")
        with pytest.raises(SystemExit):
            group.main([], prog_name="tarkit")
        monkeypatch.delenv("_TARKIT_COMPLETE")
        out, err = capfd.readouterr()
        assert err == ""
        return list(filter(None, out.splitlines()))

    return completed


def prepare(archive: Archive) -> None:
    """Write x.tar, and x.tar.gz, an empty file, a directory of archives, and an archive that is cut."""
    archive(DATA, "x.tar")
    archive({"z.new": b""}, "dir/z.tar")
    Path("x.tar.gz").write_bytes(gzip.compress(tar(DATA)))
    Path("empty.tar").touch()
    Path("cut.tar").write_bytes(tar(DATA)[:1500])


@each_row(
    ("line", "words"),
    [
        (["cat", "x.tar", "-f", ""], FIELDS),
        (["cat", "x.tar.gz", "-f", "j"], ["jpg", "json"]),
        (["cat", "cut.tar", "-f", ""], []),
        (["cat", "empty.tar", "x.tar", "-f", "s"], ["seg.png"]),
        (["cat", "{empty,x}.tar", "-f", "s"], ["seg.png"]),
        (["cat", "'x*.tar'", "-f", "s"], ["seg.png"]),
        (["cat", "dir", "-f", ""], ["new"]),
        (["cat", "dir/", "x.tar", "-f", ""], ["new", *FIELDS]),
        (["-q", "cat", "-p", "2", "x.tar", "-f", "'jpg s"], ["jpg seg.png"]),
        (["cat", "x.tar", "-f", "'new:jpg,j"], ["new:jpg,jpg", "new:jpg,json"]),
        (["cat", "x.tar", "--drop", "j"], ["jpg", "json"]),
        (["cat", "x.tar", "--require", "jpg,j"], ["jpg,jpg", "jpg,json"]),
        (["cat", "x.tar", "--where", "'js"], ["json", "json.label", "json.box", "json.box.x"]),
        (["cat", "x.tar", "--where", "'a(b) and json.b"], ["a(b) and json.box", "a(b) and json.box.x"]),
        (["cat", "x.tar", "--where", "'seg"], ["seg.png", "seg.png =="]),
        (["cat", "x.tar", "--where", "'has.se"], ["has.seg.png", "has.seg.png =="]),
        (["cat", "x.tar", "--where", "'size.jp"], ["size.jpg", "size.jpg =="]),
        (["sort", "x.tar", "-s", ""], PATHS),
        (["tsv", "x.tar", "-f", "'jpg;se"], ["jpg;seg.png"]),
        (["tsv", "x.tar", "-f", "'jpg size.se"], ["jpg size.seg.png"]),
        (["stats", "x.tar", "--by", "json.l"], ["json.label"]),
        (["split", "x.tar", "--stratify", "jp"], ["jpg"]),
        (["check", "x.tar", "--require", "jp"], ["jpg"]),
        (["get", "x.tar", "-f", "jp"], ["jpg"]),
        (["get", "d/170"], ["d/170", *(f"d/170.{field}" for field in FIELDS)]),
        (["get", "d/170.s"], ["d/170.seg.png"]),
        (["get", "d/17."], [f"d/17.{field}" for field in FIELDS]),
        (["get", "d"], ["d/17", "d/170"]),
        # nothing is read
        (["cat", "https://host.invalid/x.tar", "-f", ""], []),
        (["cat", "pipe:touch ran", "-f", ""], []),
        (["cat", "missing.tar", "-f", ""], []),
        (["cat", "-", "-f", ""], []),
        (["cat", "fifo", "-f", ""], []),
        (["mix", "x.tar", "-f", "s"], ["seg.png"]),
    ],
)
def test_words(line: list[str], words: list[str], completed: Complete, archive: Archive) -> None:
    """The words are those of the data; nothing but regular files of this machine is read."""
    prepare(archive)
    os.mkfifo("fifo")
    assert completed(*line) == [f"plain,{word}" for word in words]
    assert not Path("ran").exists()


def test_words_behind_the_cursor(completed: Complete, archive: Archive) -> None:
    """bash passes the whole line, with empty words."""
    prepare(archive)
    assert completed("get", "d/170.j", "x.tar", at=2) == ["plain,d/170.jpg", "plain,d/170.json"]
    assert completed("get", "", "dir", at=2) == ["plain,z", "plain,z.new"]
    assert completed("cat", "-f", "s", "x.tar", at=3) == ["plain,seg.png"]
    assert completed("get", "d/17", "x") == ["file,x"]


def test_keys_of_an_index(completed: Complete, archive: Archive) -> None:
    """Keys are those of an index, as long as it is not older than its archive."""
    archive({name: data for name, data in DATA.items() if " " not in name}, "x.tar")
    for format, index in (("tsv", "x.index.tsv"), ("dali", "x.idx")):
        tarkit("index", "x.tar", "--format", format)
        Path(index).write_text(Path(index).read_text().replace("d/170", "d/179"))
        assert completed("get", "d/1", "x.tar", at=2) == ["plain,d/17", "plain,d/179"]
        os.utime(index, (1, 1))
        assert completed("get", "d/1", "x.tar", at=2) == ["plain,d/17", "plain,d/170"]
        os.remove(index)


def test_the_time_is_limited() -> None:
    """Words that come later are not waited for, and an error ends them."""

    def slow() -> Iterator[str]:
        yield "a"
        yield "b"
        time.sleep(60)

    def failing() -> Iterator[str]:
        yield "a"
        raise KeyError

    assert complete._in_time(slow) == ["a", "b"]
    assert complete._in_time(failing) == ["a"]
