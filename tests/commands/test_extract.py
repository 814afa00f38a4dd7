"""tarkit extract: valid archives as GNU tar extracts them; hostile ones never write outside the directory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from tarkit.extraction import directory, extraction
from tarkit.samples import reader
from tarkit.tar.header import encode
from tests._tools import PATIENT, each_row, files_up_to, happens, process, program
from tests._tools import tarkit as tarkit_process
from tests.conftest import GNU, PAX, Archive, Feed, Link, Rows, Run, each_feed, tar, tarkit

OLD = os.O_WRONLY | os.O_DIRECTORY  # flags on a system without O_TMPFILE
SYM, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
GOOD: Rows = [
    ("d", None),
    ("d/a.jpg", b"A" * 600),
    ("d/a.json", b"{}"),
    ("d/README", b"r"),
    ("./e/f/g.txt", b""),
    ("b.bin", bytes(range(256)) * 2000),
    ("b.hard", Link("b.bin")),
    ("b.sym", Link("d/a.jpg", SYM)),
    ("e/f/up.lnk", Link("../../d/a.json", SYM)),
    ("n" * 150 + ".txt", b"long"),
]


def tree(root: str) -> dict[str, tuple[object, ...]]:
    """Return the contents of a directory: contents, links, times and modes of files."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(Path(root).rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder",)
        else:
            found[name] = (path.read_bytes(), status.st_mtime_ns, stat.S_IMODE(status.st_mode) | 0o600, status.st_nlink)
    return found


@each_row("format", [GNU, PAX])
def test_as_tar_extracts(
    format: int, run: Run, archive: Archive, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents, directories, links, times and modes are correct from every feed, also in large samples of streams."""
    archive(GOOD, "in.tar", format)
    os.mkdir("tar")
    subprocess.run([program("gtar", "tar", version="GNU tar"), "xf", "in.tar", "-C", "tar"], check=True)
    expected = tree("tar")
    for small in (False, True):
        if small:
            for module, name in ((reader, "LARGE"), (extraction, "SMALL"), (extraction, "READ")):
                monkeypatch.setattr(module, name, 1 << 9)
        for feed in feeds:
            run("extract", feed("in.tar"), "-C", "new/out")
            assert tree("new/out") == expected
            shutil.rmtree("new")


def test_mode_and_time(run: Run, archive: Archive) -> None:
    """There is no setuid bit; the owner may read and write; --mtime sets times."""
    data = bytearray(encode(b"a.x", 1, mode=0o6711, mtime=1.5) + b"1" + bytes(511))
    data += encode(b"a.y", 0, mode=0o444, mtime=7) + bytes(1024)
    archive(bytes(data))
    run("extract", "in.tar", "-C", "out")
    status = os.stat("out/a.x")
    assert (stat.S_IMODE(status.st_mode) & ~0o077, status.st_mtime_ns) == (0o700, 1_500_000_000)
    assert stat.S_IMODE(os.stat("out/a.y").st_mode) & 0o600 == 0o600
    run("extract", "in.tar", "-C", "out", "--force", "--mtime", "@99")
    assert os.stat("out/a.x").st_mtime == 99
    run("extract", "in.tar", "-C", "out", "--force", "--mtime", "now")
    assert os.stat("out/a.x").st_mtime > 1e9


# ---- existing files


@each_feed
def test_files_are_kept(run: Run, archive: Archive, feed: Feed) -> None:
    """The error names the first existing file, and their number; if the input is a file, before anything is written."""
    word = feed(archive(GOOD[:5]))
    os.makedirs("out/d")
    for name in ("out/d/a.json", "out/d/README"):
        Path(name).write_text("mine")
    ran = run("extract", word, "-C", "out", exit=1)
    if feed.kind == "file":
        assert ran.lines[0] == "tarkit: out/d/a.json and 1 more: there are files of these names"
        assert [*tree("out")] == ["d", "d/README", "d/a.json"]
    else:
        assert ran.lines[0] == "tarkit: out/d/a.json: the file exists"
    assert "--force replaces" in ran.lines[1]
    assert Path("out/d/a.json").read_text() == Path("out/d/README").read_text() == "mine"
    run("extract", word, "-C", "out", "--force")
    assert Path("out/d/README").read_bytes() == b"r"
    assert Path("out/d/a.json").read_bytes() == b"{}"


def test_force_replaces_links_and_not_their_targets(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A link with the name of a file is replaced, not its target, for any size of the file; a directory is kept."""
    archive({"a.x": b"new", "b.x": b"n" * 300_000})
    links = [Path("out/a.x"), Path("out/b.x")]
    for feed in feeds:
        Path("out").mkdir()
        Path("victim").write_text("mine")
        for link in links:
            link.symlink_to("../victim")
        assert run("extract", feed("in.tar"), "-C", "out", exit=1)
        run("extract", feed("in.tar"), "-C", "out", "--force")
        assert Path("victim").read_text() == "mine"
        assert not any(link.is_symlink() for link in links)
        shutil.rmtree("out")
        os.makedirs("out/a.x")
        run("extract", feed("in.tar"), "-C", "out", "--force", exit=1)
        shutil.rmtree("out")


@each_row("size", [1, 300_000])
def test_an_input_is_never_replaced(size: int, run: Run, archive: Archive) -> None:
    """An input and the report are never replaced."""
    os.mkdir("out")
    archive({"b.x": b"1", "in.tar": b"2" * size}, "out/in.tar")
    before = Path("out/in.tar").read_bytes()
    ran = run("extract", "out/in.tar", "-C", "out", "--force", exit=1)
    assert ran.lines[0] == "tarkit: 'in.tar' would replace an input"
    assert Path("out/in.tar").read_bytes() == before
    os.mkdir("new")
    ran = run("extract", "out/in.tar", "-C", "new", "--report", "new/b.x", exit=1)
    assert "has the path of the report" in ran.stderr


def test_standard_input(run: Run, archive: Archive) -> None:
    """A file on stdin is read twice, so that nothing is written if it is damaged."""
    ran = run("extract", "-C", "out", "-v", stdin=tar({"a.x": b"1", "b.x": b"23"}))
    assert [*tree("out")] == ["a.x", "b.x"]
    assert (ran.stdout, ran.lines[0]) == (b"", "tarkit: reading stdin")
    assert ran.lines[1].startswith("tarkit: extract: 2 samples, 3 bytes")
    run("extract", "-C", "none", stdin=tar({"a.x": b"1", "b.x": b"2"})[:1600], exit=1)
    assert not Path("none").exists()


# ---- refused entries

HOSTILE: dict[str, tuple[Rows, str]] = {
    "absolute": ([("/tmp/evil.x", b"")], "is not safe to extract"),
    "up": ([("../evil.x", b"")], "is not safe to extract"),
    "up inside": ([("a/../../evil.x", b"")], "is not safe to extract"),
    "up at the end": ([("a/..", None)], "is not safe to extract"),
    "up and back": ([("../out/evil.x", b"")], "is not safe to extract"),
    "only up": ([("..", None)], "is not safe to extract"),
    "root": ([("/", None)], "is not safe to extract"),
    "link out": ([("a.x", Link("../evil", SYM))], "may lead outside"),
    "link absolute": ([("a.x", Link("/etc/passwd", SYM))], "may lead outside"),
    "link up": ([("d/a.x", Link("../../evil", SYM))], "may lead outside"),
    "link up in the middle": ([("a.x", Link("b/../../evil", SYM))], "may lead outside"),
    "link through a folder": ([("d", Link(".", SYM)), ("d/evil.x", b"")], "is not a directory [unsafe-name]"),
    "link chain": (
        [("a/b", None), ("a/b/l", Link(".", SYM)), ("m", Link("a/b/l/../../..", SYM)), ("m/evil.x", b"")],
        "may lead outside",
    ),
    "link to a link": (
        [("one", Link("two", SYM)), ("two", Link("d", SYM)), ("d", None), ("one/evil.x", b"")],
        "is not a directory [unsafe-name]",
    ),
    "hard link out": ([("a.x", Link("../victim", HARD))], "is not safe"),
    "hard link absolute": ([("a.x", Link("/etc/passwd", HARD))], "is not safe"),
    "hard link to what is not extracted": ([("a.x", Link("kept.x", HARD))], "was not extracted before it"),
    "hard link to a symbolic link": ([("a.s", Link("b", SYM)), ("a.x", Link("a.s", HARD))], "was not extracted before"),
    "hard link to itself": ([("a.x", Link("a.x", HARD))], "a hard link to itself"),
    "device": ([("a.x", Link("", tarfile.CHRTYPE))], "is a character device"),
    "block device": ([("a.x", Link("", tarfile.BLKTYPE))], "is a block device"),
    "FIFO": ([("a.x", Link("", tarfile.FIFOTYPE))], "is a FIFO"),
    "below a file": ([("a", b""), ("a/evil.x", b"")], "is not a directory [unsafe-name]"),
    "twice": ([("a.x", b"1"), ("b.x", b""), ("./a.x", b"2")], "would be written twice"),
    "twice in one sample": ([("a.x", b"1"), ("a.x", b"2")], "occurs twice"),
    "of unknown type": ([("a.x", Link("", b"Z"))], "unknown type"),
}


@each_row(("number", "case"), enumerate(HOSTILE))
def test_hostile(number: int, case: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Nothing outside of the directory is created or changed, with and without --force; the message has the reason."""
    members, words = HOSTILE[case]
    archive([("good.x", b"1"), *members])
    Path("victim").write_text("mine")
    os.mkdir("out")
    Path("out/kept.x").write_text("mine too")
    forced = {"file": number % 2, "pipe": False, "gzip": True}  # a compressed file is a stream, as a pipe is
    for feed in feeds:
        ran = run("extract", feed("in.tar"), "-C", "out", *(["--force"] if forced[feed.kind] else []), exit=1)
        assert words in ran.stderr
        assert {path.name for path in Path().iterdir()} <= {"in.tar", "in.tar.gz", "victim", "out"}
        assert Path("victim").read_text() == "mine"
        assert Path("victim").stat().st_nlink == 1
        assert Path("out/kept.x").stat().st_nlink == 1
        if feed.kind == "file":
            assert not Path("out/good.x").exists()
        for path in [path for path in Path("out").iterdir() if path.name != "kept.x"]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@each_feed
def test_nul(run: Run, archive: Archive, feed: Feed) -> None:
    """A name with a NUL, which PAX records can have, is refused."""
    data = re.sub(rb"(path=a\.x)\xc3\x9f", rb"\1\0z", tar({"a.xß": b"1", "b.x": b""}, PAX))
    archive(data)
    assert "is not safe to extract" in run("extract", feed("in.tar"), "-C", "out", exit=1).stderr
    run("extract", feed("in.tar"), "-C", "out", "--skip", "unsafe-name")
    assert [*tree("out")] == ["b.x"]


@each_feed
def test_skip_drops_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """--skip drops whole samples with unsafe names, links or devices."""
    rows: Rows = [
        ("a.x", b"1"),
        ("b.x", b""),
        ("b.y", Link("/etc", SYM)),
        ("../c.x", b""),
        ("d.x", b""),
        ("d.y", Link("", tarfile.CHRTYPE)),
        ("e.x", b"2"),
    ]
    run("extract", feed(archive(rows)), "-C", "out", "--skip", "unsafe-name")
    assert [*tree("out")] == ["a.x", "e.x"]


def test_existing_links(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A directory that was replaced by a link is not entered; that of -C, which the user named, may be a link."""
    os.mkdir("real")
    os.symlink("real", "link")
    run("extract", archive({"a.x": b"1"}), "-C", "link")
    assert Path("real/a.x").read_bytes() == b"1"
    archive({"d/a.x": b"1"})
    for feed in feeds:
        os.makedirs("out", exist_ok=True)
        os.makedirs("elsewhere", exist_ok=True)
        if not Path("out/d").is_symlink():
            os.symlink("../elsewhere", "out/d")
        assert "is not a directory [unsafe-name]" in run("extract", feed("in.tar"), "-C", "out", exit=1).stderr
        assert not [*Path("elsewhere").iterdir()]


def test_long_names(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A component of a name may have 255 bytes; with 256 it is an error with the name."""
    archive({"n" * 253 + ".x": b"1", "m" * 251 + ".big": b"2" * 300_000}, "in.tar", PAX)
    archive({"n" * 254 + ".x": b"1"}, "bad.tar", PAX)
    for feed in feeds:
        run("extract", feed("in.tar"), "-C", "out")
        assert [len(name) for name in tree("out")] == [255, 255]
        assert "name too long" in run("extract", feed("bad.tar"), "-C", "out", exit=1).stderr
        shutil.rmtree("out")


# ---- damage and signals


@each_row(("size", "force"), [(size, force) for size in (9000, 300_000) for force in ([], ["--force"])])
def test_a_full_disk(size: int, force: list[str], archive: Archive) -> None:
    """With a limit on file sizes, as on a full disk, the error names the file, which does not exist."""
    name = archive({"a.x": b"1", "d/b.x": bytes(size)})
    ran = tarkit_process("extract", name, "-C", "out", *force, exit=1, first=files_up_to(8000))
    assert ran.stderr == b"tarkit: out/d/b.x: File too large\n"
    assert os.listdir("out/d") == []


@each_row("force", [[], ["--force"]])
def test_signal(force: list[str], here: Path) -> None:
    """TERM while a large file is written removes the partial file."""
    head = tar({"a.x": b"1"})[:1024] + encode(b"b.bin", 1 << 30)
    with process("extract", "-C", "out", *force, stdin=subprocess.PIPE) as started:
        assert started.stdin
        started.stdin.write(head + bytes(1 << 20))
        started.stdin.flush()
        assert happens(lambda: [*here.glob("out/.b.bin.*.part")])
        started.terminate()
        assert started.wait(PATIENT) == -signal.SIGTERM
    assert [path.name for path in (here / "out").iterdir()] == ["a.x"]


@pytest.mark.slow
@each_row("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@each_row("force", [[], ["--force"]])
def test_names_have_whole_contents(force: list[str], signum: int, archive: Archive, here: Path) -> None:
    """After any signal each file is complete or, with --force, the old one. TERM and INT leave no partial file."""
    content = bytes(range(1, 251)) * 100
    rows = {f"d{n % 3}/{n:03}.x": content if n % 40 else content * 11 for n in range(160)}
    archive(rows)
    for attempt in range(4 if signum == signal.SIGKILL else 1):
        out = here / f"out{attempt}"
        for name in rows if force else ():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(b"old")
        with process("extract", "in.tar", "-C", out, *force) as started:
            until = time.monotonic() + 20
            first = out / "d1/001.x"
            while time.monotonic() < until and (not first.exists() or first.stat().st_size == 3):
                time.sleep(0.001)
            time.sleep(attempt * 0.002)
            started.send_signal(signum)
            started.wait(20)
        found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        parts = [name for name in found if name.endswith(".part")]
        assert len(parts) <= (signum == signal.SIGKILL)
        assert {name for name in found if name not in parts} <= rows.keys()
        assert all(data == rows[name] or (force and data == b"old") for name, data in found.items() if name in rows)


@each_row("force", [[], ["--force"]])
def test_after_a_killed_run(force: list[str], archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial file of a killed run is neither used nor in the way, even with the same process id."""
    name = archive({"a.x": b"1", "b.x": b"2" * 300_000})
    os.mkdir("out")
    left = [Path(f"out/.{base}.{os.getpid()}{more}.part") for base in ("a.x", "b.x") for more in ("", ".1")]
    for unnamed in (True, False):
        monkeypatch.setattr(directory, "_UNNAMED", directory._UNNAMED if unnamed else OLD)
        for path in left:
            path.write_bytes(b"half")
        tarkit("extract", name, "-C", "out", *force)
        assert [path.read_bytes() for path in left] == [b"half"] * 4
        assert sorted(os.listdir("out")) == sorted(["a.x", "b.x", *(path.name for path in left)])
        assert [Path("out", name).stat().st_size for name in ("a.x", "b.x")] == [1, 300_000]
        if not force:
            shutil.rmtree("out")
            os.mkdir("out")


def test_file_systems_without_unnamed_files(
    run: Run, archive: Archive, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without O_TMPFILE small files are written beside their names: trees, modes, times and kept files are the same."""
    archive(GOOD, "in.tar", GNU)
    run("extract", "in.tar", "-C", "expected")
    monkeypatch.setattr(directory, "_UNNAMED", OLD)
    for feed in feeds:
        run("extract", feed("in.tar"), "-C", "out")
        assert tree("out") == tree("expected")
        assert run("extract", feed("in.tar"), "-C", "out", exit=1)
        run("extract", feed("in.tar"), "-C", "out", "--force")
        assert tree("out") == tree("expected")
        shutil.rmtree("out")


def test_links_replace_files(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """With --force a link replaces a file; a link that cannot be created leaves the file."""
    archive([("a.x", b"1"), ("a.y", Link("a.x", SYM)), ("a.z", Link("a.x"))])
    for feed in feeds:
        os.mkdir("out")
        for name in ("y", "z"):
            Path("out/a." + name).write_text("mine")
        assert run("extract", feed("in.tar"), "-C", "out", exit=1)
        assert Path("out/a.z").read_text() == "mine"
        for _ in range(2):
            run("extract", feed("in.tar"), "-C", "out", "--force")
            assert os.readlink("out/a.y") == "a.x"
            assert os.path.samefile("out/a.x", "out/a.z")
            assert sorted(os.listdir("out")) == ["a.x", "a.y", "a.z"]
        shutil.rmtree("out")


def test_hard_links_between_many_directories(run: Run, archive: Archive) -> None:
    """Hard links work between more directories than may be open at once."""
    rows: Rows = []
    for n in range(3 * directory.OPEN):
        rows += [(f"{n:03}/a.x", b"%d" % n), (f"{n:03}/a.l/b.x", Link(f"{n // 2:03}/a.x"))]
    run("extract", archive(rows), "-C", "out")
    for n in range(3 * directory.OPEN):
        assert os.path.samefile(f"out/{n:03}/a.l/b.x", f"out/{n // 2:03}/a.x")
