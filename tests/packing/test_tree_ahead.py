"""Folders that are read before it is their turn."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tarkit.packing import tree as tree_ahead
from tarkit.packing.tree import Ahead, Scanned, Tree
from tests._tools import each_row


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder counts as slow."""
    monkeypatch.setattr(tree_ahead, "SLOW", -1)


def tree(folder: Path) -> None:
    """Folders below folders, between files; links, and what is neither."""
    for path in (
        "a/1.x",
        "a/b/2.x",
        "a/b/c/3.x",
        "a.x",
        "a/b.x",
        "d/e/4.x",
        "d/f/5.x",
        "d.y/6.x",
        "z/7.x",
        "z/y/x/w/8.x",
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "z/link").symlink_to("nowhere")
    (folder / "d/folder").symlink_to("e")
    for number in range(30):
        (folder / f"m/{number:02}").mkdir(parents=True)
        (folder / f"m/{number:02}/9.x").touch()


@each_row("symlinks", ["skip", "files", "all"])
@each_row("threads", [2, 5])
def test_the_same_as_by_one(threads: int, symlinks: str, here: Path) -> None:
    """Files, their order, and what is counted."""
    tree(here)
    by = {}
    for processes in (1, threads):
        found = Tree(str(here), sized=False, processes=processes, symlinks=symlinks)  # type: ignore[arg-type]
        by[processes] = [folder + name for folder, names, _ in found for name in names], found.skipped, found.files
    assert by[threads] == by[1]
    assert len(by[1][0]) == 40 + (symlinks == "all")
    assert by[1][0] == sorted(by[1][0])


def test_folders_are_read_ahead() -> None:
    """As many as there are threads, and no more; they begin while the first is still under way."""
    meet = threading.Barrier(3, timeout=20)
    asked: list[bytes] = []

    def scan(folder: bytes) -> Scanned:
        asked.append(folder)
        if folder in (b"a", b"b"):
            meet.wait()
        return [folder], [], Counter()

    with Ahead(scan, 2) as ahead:
        ahead(b"")
        ahead.expect([b"a", b"b", b"c"])
        meet.wait()
        assert sorted(asked) == [b"", b"a", b"b"]
        assert [ahead(folder)[0] for folder in (b"a", b"b", b"c")] == [[b"a"], [b"b"], [b"c"]]
    assert sorted(asked) == [b"", b"a", b"b", b"c"]


def test_only_where_folders_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads ahead before one has taken long; then those that are expected already are read."""
    monkeypatch.setattr(tree_ahead, "SLOW", 0.5)
    where: dict[bytes, threading.Thread] = {}

    def scan(folder: bytes) -> Scanned:
        where[folder] = threading.current_thread()
        if folder == b"b":
            time.sleep(0.6)
        return [folder], [], Counter()

    names = [b"a", b"b", b"c", b"d"]
    with Ahead(scan, 2) as ahead:
        ahead.expect(names)
        assert [ahead(folder)[0] for folder in names] == [[folder] for folder in names]
    own = threading.current_thread()
    assert [where[folder] is own for folder in names] == [True, True, False, False]


def test_a_folder_of_many_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow is what takes long for the number of its entries."""
    monkeypatch.setattr(tree_ahead, "SLOW", 0.01)
    monkeypatch.setattr(tree_ahead, "SLOW_EACH", 0.1)
    where: list[threading.Thread] = []

    def scan(folder: bytes) -> Scanned:
        where.append(threading.current_thread())
        time.sleep(0.03)
        return [folder] * 100, [], Counter()

    with Ahead(scan, 2) as ahead:
        ahead.expect([b"a", b"b", b"c"])
        for folder in (b"a", b"b", b"c"):
            ahead(folder)
    assert set(where) == {threading.current_thread()}


def test_an_error_waits_for_its_turn(tmp_path: Path) -> None:
    """What comes before the folder that cannot be read is found."""

    def scan(folder: bytes) -> Scanned:
        if folder == b"b":
            raise PermissionError(13, "Permission denied", "b")
        return [folder], [], Counter()

    with Ahead(scan, 4) as ahead:
        ahead(b"")
        ahead.expect([b"a", b"b"])
        assert ahead(b"a")[0] == [b"a"]
        with pytest.raises(PermissionError):
            ahead(b"b")
