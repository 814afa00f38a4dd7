"""tarkit shard, writing: existing files, changed sources, --resume."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tarkit.machine import cpus
from tarkit.packing import packer, resume
from tarkit.packing.packer import Packer
from tarkit.streams.sink import FileSink
from tarkit.tables import content as contents
from tarkit.tar.writer import EntryWriter
from tests._tools import descriptors, each_row, process
from tests.conftest import Archive, Run, entries, tarkit

FILES = {"a.cls": b"1", "a.txt": b"one", "b.cls": b"2", "b.txt": b"two", "c.cls": b"3", "c.txt": b"three"}
Tree = Callable[..., dict[str, bytes]]
Aged = Callable[[bool], None]
RACY = resume.RACY


@pytest.fixture
def tree(here: Path) -> Tree:
    """Make files below `t`, a minute old: recently changed ones are recognized only by reading them."""

    def tree(files: dict[str, bytes] = FILES, folder: str = "t") -> dict[str, bytes]:
        for name, data in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return files

    return tree


def shards(pattern: str = "s-*.tar") -> dict[str, list[str]]:
    """Return the existing shards, each with the names in it."""
    return {str(path): [name for name, _ in entries(path)] for path in sorted(Path().glob(pattern))}


def left() -> set[str]:
    """Return all files but those of the tree."""
    return {str(path) for path in Path().rglob("*") if path.is_file() and path.parts[0] != "t"}


def test_odd_names(run: Run, tree: Tree) -> None:
    """Files with unusual names are planned and packed."""
    files = tree({os.fsdecode(b"\xff.x"): b"1", "t\tb.x": b"22", "n\nl.x": b"3", "b\\s.x": b"4", "text:x.y": b"5"})
    os.chdir("t")
    run("shard", ".", "-c", "9", "-o", "../s-%d.tar")
    os.chdir("..")
    with tarfile.open("s-0.tar", errors="surrogateescape") as file:
        assert {info.name: file.extractfile(info).read() for info in file} == files  # type: ignore[union-attr]


# ---- output


@each_row("mtime", ["@0", "@1234567890", "source"])
def test_entries_are_those_of_create(mtime: str, run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, large and empty files and unusual names have the same bytes as by create."""
    monkeypatch.setattr(contents, "SMALL", 2000)
    files = {f"{'d' * 60}/{'e' * 60}/{'n' * 90}.txt": b"l", "x" * 120 + ".y": b"2", "e.x": b"", "l.x": b"L" * 70_000}
    tree({**files, "é.x": b"5", "2000.x": b"s" * 2000, "2001.x": b"s" * 2001, "512.x": b"s" * 512})
    for number, path in enumerate(sorted(Path("t").rglob("*.?"))):
        os.utime(path, ns=(10**18 + number, 10**18 + number * 10**10))
    names = sorted((str(path.relative_to("t")) for path in Path("t").rglob("*.*")), key=os.fsencode)
    recipe = "".join(f"{name}\tt/{name}\n" for name in names)
    expected = run("create", "--mtime", mtime, stdin=recipe.encode()).stdout
    for p in ("1", "2") if mtime == "source" else ("1",):
        run("shard", "t", "-c", "99", "-o", "s-%d.tar", "--mtime", mtime, "-p", p, "--force")
        assert Path("s-0.tar").read_bytes() == expected
    run("shard", "t", "-c", "99", "-o", "s-%d.tar", "--mtime", mtime, "--on-missing", "skip", "--force")
    assert Path("s-0.tar").read_bytes() == expected


@pytest.mark.forks
def test_any_number_of_writers(run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, messages and summary are the same for any -p."""
    tree({f"{n:03d}.x": b"%d" % n for n in range(19)})
    said = []
    for p in ("1", "3"):
        ran = run("shard", "t", "-c", "3", "-o", f"{p}-%02d.tar", "-p", p, "-v", "--manifest", f"{p}.tsv")
        said.append(re.sub(r"\b[13]-|[\d.]+ s$", "", ran.stderr))
    assert said[0] == said[1]
    for one in shards("1-*.tar"):
        assert Path(one).read_bytes() == Path(one.replace("1-", "3-")).read_bytes()
    assert len(shards("3-*.tar")) == 7
    assert Path("1.tsv").read_bytes() == Path("3.tsv").read_bytes().replace(b"3-", b"1-")
    run("check", *shards("3-*.tar"), "--manifest", "3.tsv")
    seen: list[int] = []

    def workers(*given: Any) -> tuple[int, int]:
        chosen = real(*given)
        seen.append(chosen[0])
        return 1, chosen[1]

    real = packer.workers
    monkeypatch.setattr(packer, "workers", workers)
    run("shard", "t", "-c", "1", "-o", "0-%02d.tar", "-p", "0")
    assert seen == [cpus()]


def test_suffixes(run: Run, tree: Tree) -> None:
    """The suffix of each name determines its codec; shards are read again by their content."""
    tree()
    whole = run("create", "-", stdin="".join(f"{name} t/{name}\n" for name in FILES).encode()).stdout
    for suffix in ("tgz", "tar.zst", "zip"):
        run("shard", "t", "-c", "2", "-o", f"s-%d.{suffix}")
        assert run("cat", f"s-0.{suffix}", f"s-1.{suffix}", "-o", "-").stdout == whole


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_sees_a_new_file(run: Run, here: Path) -> None:
    """Directories are in the depfile, so that make writes the shards again for a new file, and only then."""
    (here / "t" / "a").mkdir(parents=True)
    (here / "t" / "a" / "1.x").write_bytes(b"1")
    Path("Makefile").write_text(
        f"s-0.tar:\n\t{sys.executable} -m tarkit shard t -o s-%d.tar --force --depfile d\n-include d\n"
    )

    def make() -> str:
        return subprocess.run(["make"], capture_output=True, text=True, check=True).stdout

    assert "tarkit shard" in make()
    assert "up to date" in make()
    (here / "t" / "a" / "2.x").write_bytes(b"2")
    os.utime("t/a", (time.time() + 5, time.time() + 5))
    assert "tarkit shard" in make()
    assert [name for name, _ in entries("s-0.tar")] == ["a/1.x", "a/2.x"]
    run("shard", "t", "-c", "9", "-o", "t/s-%d.tar", "--depfile", "d")
    assert Path("d").read_text().splitlines()[:2] == ["t/s-0.tar: \\", "  t/a \\"]


def test_what_is_told(run: Run, tree: Tree) -> None:
    """Report, summary, manifest and depfile are correct."""
    tree()
    words = ("shard", "t", "-c", "2", "-o", "s-%d.tar", "-v", "--report", "r.json", "--manifest", "m.tsv")
    ran = run(*words, "--depfile", "d", "--post", "echo {} >> posted")
    assert re.fullmatch(r"shard: 3 samples, 20480 bytes, 2 shards, [\d.]+ s", ran.lines[-1].removeprefix("tarkit: "))
    report = json.loads(Path("r.json").read_text())
    assert {name: report[name] for name in ("samples", "bytes", "shards", "entries")} == {
        "samples": 3,
        "bytes": 20480,
        "shards": 2,
        "entries": 6,
    }
    lines = Path("m.tsv").read_text().splitlines()
    assert [line.split("\t")[::5] for line in lines[1:]] == [["s-0.tar", "b"], ["s-1.tar", "c"]]
    assert lines[1].split("\t")[1:3] == ["2", "10240"]
    assert Path("d").read_text().splitlines()[:3] == ["s-0.tar: \\", "  t \\", "  t/a.cls \\"]
    assert Path("posted").read_text() == "s-0.tar\ns-1.tar\n"
    ran = run("shard", "t", "-c", "2", "-o", "x-%d.tar", "--match", "^$", "--depfile", "d", "--manifest", "m.tsv")
    assert ran.lines == ["tarkit: no sample, so no shard"]
    assert Path("d").read_text() == ""
    assert len(Path("m.tsv").read_text().splitlines()) == 1


@pytest.mark.forks
def test_the_bar_ends_full(run: Run, tree: Tree) -> None:
    """The bar shows bytes of content out of the planned ones, for one process and for two."""
    tree()
    for p in ("1", "2"):
        ran = run("shard", "t", "-c", "1", "-o", "s-%d.tar", "-p", p, "--progress", "--force")
        last = ran.stderr.split("\r")[-1].splitlines()[0]
        assert "100%" in last, ran.stderr
        assert "14.0/14.0" in last
        assert "3 samples" in last


# ---- existing files


def test_existing_shards(run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the first, before the tree is listed; --force replaces them, and removes others at the end."""
    tree()
    run("shard", "t", "-c", "1", "-o", "s-%d.tar")
    before = {name: Path(name).read_bytes() for name in shards()}
    with monkeypatch.context() as patched:
        patched.setattr("tarkit.packing.tree.Tree.__iter__", lambda tree: pytest.fail("listed"))
        ran = run("shard", "t", "-c", "2", "-o", "s-%d.tar", exit=1)
    assert ran.lines[0] == "tarkit: s-0.tar and 2 more: there are shards of this name"
    assert {name: Path(name).read_bytes() for name in shards()} == before
    ran = run("shard", "t", "-c", "2", "-o", "s-%d.tar", "--force")
    assert "tarkit: s-2.tar: removed: --force leaves no other shards of this name" in ran.lines
    assert {name: len(names) for name, names in shards().items()} == {"s-0.tar": 4, "s-1.tar": 2}


def test_outputs_are_no_inputs(run: Run, tree: Tree) -> None:
    """A source that would be replaced, under any name, is refused before anything is written."""
    tree()
    os.link("t/a.txt", "s-0.tar")
    for words in (["-c", "9"], ["-s", "1M"]):
        ran = run("shard", "t", *words, "-o", "s-%d.tar", "--force", exit=1)
        assert ran.lines[0] == "tarkit: s-0.tar: 't/a.txt' is written too"
    os.link("t/a.cls", "m")
    ran = run("shard", "t", "-c", "9", "-o", "x-%d.tar", "--manifest", "m", exit=1)
    assert ran.lines[0] == "tarkit: x-0.tar: 't/a.cls' is written too"
    ran = run("shard", "t", "-c", "9", "-o", "x-%d.tar", "--manifest", "x-0.tar", exit=2)
    assert "the manifest" in ran.stderr
    assert Path("t/a.txt").read_bytes() == b"one"
    assert left() == {"m", "s-0.tar"}


# ---- changed files


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    """Replace a file by something else."""
    path.unlink()
    make(path)


def vanish(path: Path) -> None:
    """Remove the file."""
    path.unlink()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "vanish": (vanish, ": No such file or directory"),
    "grow": (lambda path: path.write_bytes(path.read_bytes() + b"!"), " has {more} bytes, and the plan says {size}"),
    "shrink": (lambda path: path.write_bytes(path.read_bytes()[:-1]), " has {less} bytes, and the plan says {size}"),
    "directory": (lambda path: replaced(path, Path.mkdir), " is a directory"),
    "fifo": (lambda path: replaced(path, os.mkfifo), " is not a regular file, so its size cannot be planned"),
}
SIZED, UNSIZED = ("-s", "1G"), ()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Path], object]]:
    """Change b.x between plan and packing."""
    changes: list[Callable[[Path], object]] = []
    check = Packer.check

    def changed(self: Packer, *given: Any) -> None:
        changes.pop()(Path("t/b.x"))
        check(self, *given)

    monkeypatch.setattr(Packer, "check", changed)
    return changes


@pytest.mark.forks
@each_row(
    ("change", "size", "words"),
    [
        *product(CHANGES, (3, 300_000), (SIZED,)),
        *product(("vanish", "directory", "fifo"), (700,), (UNSIZED, ("--mtime", "source"))),
        *product(("vanish", "shrink", "fifo"), (3,), ((*SIZED, "-p", "2"),)),
        ("grow", 300_000, (*SIZED, "-p", "2")),
    ],
)
def test_a_file_that_changes(
    change: str, size: int, words: tuple[str, ...], run: Run, tree: Tree, planned: list[Callable[[Path], object]]
) -> None:
    """A file that changed after the plan is an error with its name; earlier shards are complete, none is partial."""
    tree({"a.x": b"1", "b.x": b"2" * size, "c.x": b"3"})
    make, what = CHANGES[change]
    planned.append(make)
    ran = run("shard", "t", "-c", "1", "-o", "s-%d.tar", *words, exit=1)
    assert ran.lines[0] == f"tarkit: s-1.tar: 't/b.x'{what.format(size=size, more=size + 1, less=size - 1)}"
    assert "s-0.tar" in shards()
    assert "s-1.tar" not in shards()


@pytest.mark.forks
@each_row(
    ("mtime", "size", "p"),
    [*product(("@0", "source"), (0, 1, 3, 511, 65_535, 65_536, 65_537, 300_000), "1"), ("source", 65_537, "2")],
)
def test_sizes_that_no_limit_asks_for(
    mtime: str, size: int, p: str, run: Run, tree: Tree, planned: list[Callable[[Path], object]]
) -> None:
    """Sizes that no limit needs are those at the time of reading."""
    tree({"a.x": b"1", "b.x": b"2" * 700, "c.x": b"4"})
    planned.append(lambda path: path.write_bytes(b"3" * size))
    run("shard", "t", "-c", "2", "-o", "s-%d.tar", "-p", p, "--mtime", mtime)
    assert entries("s-0.tar") == [("a.x", b"1"), ("b.x", b"3" * size)]
    assert entries("s-1.tar") == [("c.x", b"4")]


@pytest.mark.parametrize("touch", [True, False])
def test_a_large_file_that_changes_while_it_is_read(
    touch: bool, run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change during reading is an error even if the size stays."""
    tree({"a.x": b"1" * 300_000})
    copy = FileSink.copy

    def changed(self: FileSink, *range_: Any, **how: Any) -> None:
        if not touch:
            os.truncate("t/a.x", 1000)
        copy(self, *range_, **how)
        os.utime("t/a.x")

    monkeypatch.setattr(FileSink, "copy", changed)
    ran = run("shard", "t", "-c", "1", "-o", "s-%d.tar", exit=1)
    what = "was changed while it was read" if touch else "became shorter while it was read"
    assert ran.lines[0] == f"tarkit: s-0.tar: 't/a.x' {what}"
    assert left() == set()


@pytest.mark.forks
def test_a_directory_that_is_gone(run: Run, tree: Tree, planned: list[Callable[[Path], object]]) -> None:
    """Error and hint are those of one process, also where another process has found it."""
    for p in ("1", "2"):
        tree({"a.x": b"1", "d/b.x": b"2"})
        planned.append(lambda path: shutil.rmtree("t/d"))
        ran = run("shard", "t", "-c", "1", "-o", "s-%d.tar", "--force", "-p", p, exit=1)
        assert ran.lines == [
            "tarkit: s-1.tar: 't/d/b.x': No such file or directory",
            "hint: there is no directory t/d: make it with mkdir -p",
        ]


@pytest.mark.forks
def test_missing_samples_are_skipped(run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole samples are dropped, printed and counted; a shard without samples is not written."""
    check = Packer.check

    def gone(self: Packer, *given: Any) -> None:
        for name in ("t/b.txt", "t/c.cls"):
            os.unlink(name)
        check(self, *given)

    monkeypatch.setattr(Packer, "check", gone)
    for p in ("1", "2"):
        tree()
        words = ("shard", "t", "-c", "2", "-o", "s-%d.tar", "--on-missing", "skip", "--force", "-p", p)
        ran = run(*words, "--report", "r.json", "--manifest", "m.tsv")
        assert ran.lines[:2] == [
            "tarkit: warning: s-0.tar: 't/b.txt': No such file or directory; its sample is left out",
            "tarkit: warning: s-1.tar: 't/c.cls': No such file or directory; its sample is left out",
        ]
        assert shards() == {"s-0.tar": ["a.cls", "a.txt"]}
        report = json.loads(Path("r.json").read_text())
        assert [report[name] for name in ("samples", "missing", "entries", "shards")] == [1, 2, 2, 1]
        assert Path("m.tsv").read_text().splitlines()[1].split("\t")[-2:] == ["a", "a"]


def test_an_existing_shard_whose_samples_are_missing(
    run: Run, tree: Tree, planned: list[Callable[[Path], object]]
) -> None:
    """It is not as planned; with --force it is removed."""
    tree({"a.x": b"1", "b.x": b"2"})
    words = ("shard", "t", "-c", "1", "-o", "s-%d.tar", "--on-missing", "skip")
    planned += [vanish, lambda path: None]
    run(*words)
    ran = run(*words, "--resume", exit=1)
    assert ran.lines[0].startswith("tarkit: s-1.tar: exists, but is not as planned")
    assert set(shards()) == {"s-0.tar", "s-1.tar"}
    tree({"b.x": b"2"})
    planned.append(vanish)
    run(*words, "--resume", "--force")
    assert set(shards()) == {"s-0.tar"}


def test_files_that_disappear_while_others_are_written(run: Run, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are whole or left out: all files of one are open before the first is written."""
    tree({f"{n:03}.{field}": b"%d" % n for n in range(200) for field in "xy"})
    read, count = contents.read_small, 0

    def remove(fd: int, size: int = -1) -> bytes:
        nonlocal count
        count += 1
        if count == 21:
            for n in (*range(10), *range(150, 160)):
                Path(f"t/{n:03}.y").unlink()
        return read(fd, size)

    monkeypatch.setattr(contents, "read_small", remove)
    ran = run("shard", "t", "-c", "200", "-o", "s-%d.tar", "-p", "1", "--on-missing", "skip")
    fields = Counter(name.partition(".")[0] for name, _ in entries("s-0.tar"))
    assert set(fields.values()) == {2}
    assert fields.keys() == {f"{n:03}" for n in range(200) if not 150 <= n < 160}
    assert sum("its sample is left out" in line for line in ran.lines) == 10


@each_row(
    ("files", "gone", "expected", "said"),
    [
        ("a.x aREADME b.x c.x", "b.x", "a.x aREADME c.x", "s-0.tar: 't/b.x': No such file or directory; its sample"),
        ("a.x aREADME b.x", "b.x", "a.x aREADME", "s-0.tar: 't/b.x': No such file or directory; its sample"),
        ("aREADME b.x", "b.x", "", "s-0.tar: no sample is left, so 'aREADME' is left out"),
        ("a.x aREADME b.x", "aREADME", "a.x b.x", "s-0.tar: 't/aREADME': No such file or directory; it is left out"),
    ],
)
def test_files_without_a_key_of_skipped_samples(
    files: str, gone: str, expected: str, said: str, run: Run, tree: Tree, planned: list[Callable[[Path], object]]
) -> None:
    """They go with the next sample, or with the last; where there is none they are named."""
    tree(dict.fromkeys(files.split(), b"1"))
    planned.append(lambda path: Path("t", gone).unlink())
    ran = run("shard", "t", "-c", "9", "-o", "s-%d.tar", "--on-missing", "skip")
    assert " ".join(name for name, _ in entries("s-0.tar")) == expected if expected else not Path("s-0.tar").exists()
    assert [line for line in ran.lines if said in line]


# ---- --resume


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> Aged:
    """Return a function that says whether the files of the tree are so old that --resume trusts their times."""
    return lambda old: monkeypatch.setattr(resume, "RACY", -(10**18) if old else RACY)


@each_row(("suffix", "journal"), product(("tar", "tar.gz"), (True, False)))
def test_resume(suffix: str, journal: bool, run: Run, tree: Tree, aged: Aged) -> None:
    """Complete shards are kept, by the journal or by comparison; the others are as in an uninterrupted run."""
    tree({**FILES, "d.txt": b"4" * 300_000})
    words = ("shard", "t", "-c", "1", "-o", f"s-%d.{suffix}", "-v")
    run(*words, "--manifest", "m.tsv")
    whole = {str(path): path.read_bytes() for path in Path().glob("s-*")}
    manifest = Path("m.tsv").read_bytes()
    for path in whole:
        os.unlink(path)
    aged(journal)
    tarkit(*words, "--resume", "--post", f"[ {{}} != s-2.{suffix} ]", exit=1)
    inodes = {path: os.stat(path).st_ino for path in (f"s-0.{suffix}", f"s-1.{suffix}")}
    assert not os.path.exists(f"s-3.{suffix}")
    assert os.path.exists(f".s-0.{suffix}.0.part") == journal
    ran = run(*words, "--resume", "--post", "echo {} >> posted", "--manifest", "m.tsv")
    assert {str(path): path.read_bytes() for path in Path().glob("s-*")} == whole
    assert {path: os.stat(path).st_ino for path in inodes} == inodes
    assert Path("m.tsv").read_bytes() == manifest
    assert sum("kept, it is as planned" in line for line in ran.lines) == 3
    again = f"; --post ran for {1 if journal else 3} of them: no record says that it ran before"
    assert f"tarkit: --resume: shards kept, as planned: 3{again}" in ran.lines
    assert Path("posted").read_text().split() == [f"s-{n}.{suffix}" for n in range(2 if journal else 0, 4)]
    assert not os.path.exists(f".s-0.{suffix}.0.part")


CHANGED = {
    "content": lambda: Path("t/a.txt").write_bytes(b"eno"),
    "shard": lambda: Path("s-0.tar").write_bytes(Path("s-0.tar").read_bytes().replace(b"one", b"eno")),
    "longer": lambda: Path("s-0.tar").write_bytes(Path("s-0.tar").read_bytes() + b"x"),
    "shorter": lambda: os.truncate("s-0.tar", 1000),
    "empty": lambda: os.truncate("s-0.tar", 0),
}


@each_row(
    ("what", "journal"),
    [
        *product(("content", "shard"), (True, False)),
        ("longer", False),
        ("shorter", True),
        ("empty", False),
    ],
)
def test_resume_keeps_nothing_wrong(what: str, journal: bool, run: Run, tree: Tree, aged: Aged) -> None:
    """Sources with another content and other shards are noticed, and written again only with --force."""
    tree()
    aged(journal)
    words = ("shard", "t", "-c", "1", "-o", "s-%d.tar", "--resume")
    tarkit(*words, "--post", "[ {} = s-0.tar ]", exit=1)
    assert os.path.exists(".s-0.tar.0.part") == journal
    before = os.stat("t/a.txt")
    shard = os.stat("s-0.tar")
    CHANGED[what]()
    if what == "content":
        os.utime("t/a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    ran = tarkit(*words, exit=1)
    assert ran.lines[0].startswith("tarkit: s-0.tar: exists, but is not as planned: "), ran.stderr
    assert ran.lines[1] == "hint: --resume with --force writes it again"
    run(*words, "--force")
    expected = b"eno" if what == "content" else b"one"
    assert entries("s-0.tar") == [("a.cls", b"1"), ("a.txt", expected)]
    assert os.stat("s-0.tar").st_size == shard.st_size
    assert set(shards()) == {"s-0.tar", "s-1.tar", "s-2.tar"}


@each_row("when", ["source", "@1700000001", "@0", "@4354819199", None])
def test_resume_of_zips_with_times(when: str | None, run: Run, tree: Tree) -> None:
    """Times in a zip are rounded to two seconds, from 1980 to 2107: such a shard is as planned nevertheless."""
    tree()
    for number, name in enumerate(FILES):
        os.utime(f"t/{name}", (1_700_000_000 + number, 1_700_000_000 + number))
    words = ("shard", "t", "-c", "1", "-o", "s-%d.zip", *([] if when is None else ["--mtime", when]))
    run(*words)
    before = os.stat("s-2.zip").st_mtime_ns
    assert run(*words, "--resume", "-v").stderr.count("kept, it is as planned") == 3
    os.utime("t/c.txt", (1_700_000_100, 1_700_000_100))
    run(*words, "--resume", exit=when == "source")
    assert os.stat("s-2.zip").st_mtime_ns == before


@pytest.mark.forks
@pytest.mark.parametrize(
    "words", [("shard", "t", "-c", "1"), ("shard", "t", "-c", "1", "-p", "2"), ("split", "in.tar", "-c", "1")]
)
def test_a_shard_of_another_run(
    words: tuple[str, ...], run: Run, tree: Tree, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two concurrent runs for one series of shards the second fails, and replaces nothing."""
    archive(tree())
    finish = EntryWriter.finish

    def late(writer: EntryWriter) -> None:
        finish(writer)
        if writer.sink.name == "s-1.tar":
            Path("s-1.tar").write_bytes(b"theirs")

    monkeypatch.setattr(EntryWriter, "finish", late)
    ran = run(*words, "-o", "s-%d.tar", exit=1)
    assert ran.lines[0] == "tarkit: s-1.tar: another process has created this file"
    assert Path("s-1.tar").read_bytes() == b"theirs"
    run(*words, "-o", "s-%d.tar", "--force")
    assert entries("s-1.tar") == [("b.cls", b"2"), ("b.txt", b"two")]


def test_resume_of_shards_that_were_moved(run: Run, tree: Tree, aged: Aged) -> None:
    """A shard that --post moved away is in the journal, and is not written again; --post runs again where it failed."""
    tree()
    aged(True)
    os.mkdir("away")
    words = ("shard", "t", "-c", "1", "-o", "s-%d.tar", "--resume")
    tarkit(*words, "--post", "mv {} away && [ {} != s-1.tar ]", exit=1)
    assert sorted(os.listdir("away")) == ["s-0.tar", "s-1.tar"]
    run(*words, "--post", "echo {} >> posted; mv {} away")
    assert Path("posted").read_text().split() == ["s-1.tar", "s-2.tar"]  # the command for s-1 did not succeed
    assert left() == {"posted", *(f"away/s-{n}.tar" for n in range(3))}


def test_resume_of_shards_with_long_names(run: Run, tree: Tree, aged: Aged) -> None:
    """Names of shards may be as long as the file system allows: the journal's name is shorter."""
    tree()
    aged(True)
    words = ("shard", "t", "-c", "1", "-o", "s" * 249 + "%d.tar", "--resume")
    tarkit(*words, "--post", "case {} in *1.tar) false;; esac", exit=1)
    assert [name for name in os.listdir() if name.endswith(".0.part")]
    run(*words)
    assert len(shards("s*.tar")) == 3


def test_resume_in_the_folder_itself(run: Run, tree: Tree, aged: Aged) -> None:
    """Unfinished files beside the shards are not part of the tree."""
    tree()
    aged(True)
    words = ("shard", "t", "-c", "1", "-o", "t/s-%d.tar", "--resume")
    tarkit(*words, "--post", "[ {} != t/s-1.tar ]", exit=1)
    Path("t/.s-2.tar.4711.part").touch()
    ran = tarkit(*words, "-v")
    assert sum("kept, it is as planned" in line for line in ran.lines) == 2
    assert {name: len(names) for name, names in shards("t/s-*.tar").items()} == {f"t/s-{n}.tar": 2 for n in range(3)}
    assert not Path("t/.s-0.tar.0.part").exists()


@pytest.mark.forks
def test_the_command_fails(here: Path, tree: Tree) -> None:
    """With several writers nothing is written after the failure, and no partial file is left."""
    tree({f"{n:02d}.x": b"1" for n in range(50)})
    for p in ("1", "2"):
        ran = tarkit("shard", "t", "-c", "1", "-o", f"{p}-%02d.tar", "--post", "false", "-p", p, exit=1)
        assert ran.lines == [
            "tarkit: command ended with status 1: false",
            f"hint: the shard {p}-00.tar is complete; for those after it the command was not run",
        ]
        assert len(shards(f"{p}-*.tar")) < 20
        assert not [*here.glob(".*")]


def test_resume_with_another_command(run: Run, tree: Tree, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard whose command did not run has it run now without being written again; without --post as well."""
    tree()
    aged(True)
    words = ("shard", "t", "-c", "1", "-o", "s-%d.tar", "--resume", "-v")
    with monkeypatch.context() as patched:
        patched.setattr(Packer, "check", lambda *_: os.unlink("t/b.txt"))
        tarkit(*words, exit=1)
    tree()
    inode = os.stat("s-0.tar").st_ino
    ran = tarkit(*words, "--post", "echo {} >> posted; [ {} != s-1.tar ]", exit=1)
    assert "tarkit: s-0.tar: kept, it is as planned" in ran.lines
    assert Path("posted").read_text().split() == ["s-0.tar", "s-1.tar"]
    assert os.stat("s-0.tar").st_ino == inode
    run(*words)
    assert set(shards()) == {"s-0.tar", "s-1.tar", "s-2.tar"}


def test_resume_with_other_shards_there(run: Run, tree: Tree) -> None:
    """Shards that are not in the plan are an error; --force removes them."""
    tree()
    run("shard", "t", "-c", "1", "-o", "s-%d.tar")
    ran = run("shard", "t", "-c", "2", "-o", "s-%d.tar", "--resume", exit=1)
    assert ran.lines[0] == "tarkit: s-2.tar: exists, but is not in the plan"
    run("shard", "t", "-c", "2", "-o", "s-%d.tar", "--resume", "--force")
    assert {name: len(names) for name, names in shards().items()} == {"s-0.tar": 4, "s-1.tar": 2}


@pytest.mark.forks
def test_killed(here: Path, run: Run, tree: Tree) -> None:
    """After SIGKILL the same command continues: there is no partial shard, and no other process writes."""
    tree({f"{n:03d}.x": b"%d" % n * 100 for n in range(24)})
    run("shard", "t", "-c", "2", "-o", "w-%02d.tar")
    words = ["shard", "t", "-c", "2", "-o", "s-%02d.tar", "--resume"]
    command = [*words, "-p", "2", "--post", "[ {} != s-06.tar ] || kill -9 $PPID"]
    ended = process(*command, stderr=subprocess.PIPE)
    ended.communicate()  # returns when the last process has ended
    assert ended.returncode == -signal.SIGKILL
    for name in shards():
        assert Path(name).read_bytes() == Path("w" + name[1:]).read_bytes()
    assert len(shards()) >= 7
    for part in here.glob("*.part"):
        part.unlink()
    run(*words, "-p", "2")
    for name in shards("w-*.tar"):
        assert Path(name).read_bytes() == Path("s" + name[1:]).read_bytes()


@pytest.mark.forks
def test_a_full_disk(here: Path, tree: Tree) -> None:
    """The error names the shard, and nothing of it remains."""
    tree({"a.x": b"1" * 1000, "b.x": b"2" * 400_000, "c.x": b"3" * 100_000})
    small = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (200_000, 200_000))
    words = ("shard", "t", "-c", "1", "-o", "s-%d.tar", "-p", "2")
    started = process(*words, first=small, stderr=subprocess.PIPE)
    assert started.communicate()[1].decode() == "tarkit: s-1.tar: File too large\n"
    assert started.returncode == 1
    assert not os.path.exists("s-1.tar")
    assert not [*here.glob(".*")]


def test_folders_are_let_go(run: Run, tree: Tree) -> None:
    """Each shard opens the directory of its sources, and closes it."""
    tree()
    before = descriptors()
    run("shard", "t", "-c", "1", "-p", "1", "-o", "s-%d.tar")
    assert descriptors() <= before


def test_a_folder_that_looks_like_a_source(run: Run, here: Path) -> None:
    """The prefix that a plan needs is not part of the path."""
    for folder, content in {"text:d": b"right", "file:text:d": b"wrong"}.items():
        (here / folder).mkdir()
        (here / folder / "a.x").write_bytes(content)
    run("shard", "text:d", "-c", "1", "-o", "s-%d.tar")
    assert entries("s-0.tar") == [("a.x", b"right")]


@pytest.mark.slow
@each_row(
    ("words", "suffix"),
    [(("-c", "1"), ""), (("-c", "1"), ".zip"), (("-c", "1"), ".tar.gz"), (("-s", "1k"), ""), (("-n", "7"), "")],
)
def test_shards_are_no_garbage(words: tuple[str, ...], suffix: str, here: Path) -> None:
    """Shards and files are freed without garbage collection."""
    found = []
    for count in (7, 140):
        folder = here / f"in{count}"
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.x").write_bytes(bytes(300_000 * (number % 7 == 0)))
        gc.collect()
        gc.disable()
        try:
            tarkit("shard", folder, *words, "-p", "1", "-q", "-o", f"{count}-%d{suffix}")
            found.append(gc.collect())
        finally:
            gc.enable()
    assert found[1] < found[0] + 300  # the parser of the command line leaves up to 260, or not
