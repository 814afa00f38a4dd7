"""tarkit check --decode: content that cannot be decoded, from files, streams and views; what takes the bad samples."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import tarkit
from tests._tools import each_row
from tests.commands.test_check import found, objects
from tests.conftest import Archive, Feed, Link, Rows, Run, each_feed, entries, keys, tar

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")
numpy = pytest.importorskip("numpy")


def jpeg(size: int = 24) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((size, size), 90).save(file, "JPEG")
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    numpy.save(file, numpy.arange(9))
    return file.getvalue()


GOOD: dict[str, Callable[[], bytes]] = {
    "jpg": jpeg,
    "json": lambda: b'{"a": 1}',
    "npy": npy,
    "txt": "é".encode,
    "cls": lambda: b"7",
    "json.gz": lambda: gzip.compress(b"[]"),
    "bin": lambda: b"\xff",
}
BAD: dict[str, Callable[[], bytes]] = {
    "jpg": lambda: jpeg()[:-150],
    "json": lambda: b'{"a": NaN}',
    "npy": lambda: npy()[:-1],
    "txt": lambda: b"\xe9",
    "cls": lambda: b"seven",
    "json.gz": lambda: gzip.compress(b"[]")[:-1],
}


def members(count: int, seed: int = 1) -> tuple[Rows, list[str]]:
    """Return samples of which some have bad content, and the names of these entries."""
    draw, made, bad = random.Random(seed), Rows(), []
    for number in range(count):
        for field in draw.sample([*GOOD], draw.randrange(1, 8)):
            name = f"k{number:02}.{field}"
            if field in BAD and draw.random() < 0.15:
                bad.append(name)
            made.append((name, (BAD if name in bad else GOOD)[field]()))
    return made, bad


def decoded(run: Run, *words: str, exit: int = 1) -> list[str]:
    """Return the entries that are reported as bad."""
    ran = run("check", *words, "--json", exit=exit)
    return [str(each["detail"]).split("'")[1] for each in objects(ran, "problem") if each["problem"] == "bad-content"]


@pytest.mark.forks
@each_feed
def test_bad_content(run: Run, archive: Archive, feed: Feed) -> None:
    """Each bad entry is reported once, at its offset; all inputs give the same."""
    made, bad = members(40)
    name = feed(archive(made))
    assert decoded(run, name, "--decode", "all") == bad
    assert decoded(run, name, "--decode", "JPG npy") == [each for each in bad if each.endswith((".jpg", ".npy"))]
    ran = run("check", name, "--decode", "all", "-v", exit=1)
    with tarfile.open("in.tar") as file:
        starts = {info.name: info.offset for info in file}
    assert found(ran) == [("bad-content", starts[each]) for each in bad]
    assert f"{name}: at {starts[bad[0]]}: '{bad[0]}' cannot be decoded: " in ran.stdout.decode()
    if feed.kind == "file":
        ways = [run("check", name, name, "--decode", "all", "-v", "-p", n, exit=1).stdout for n in ("1", "2")]
        assert ways[0] == ways[1]


@each_feed
def test_rejects(run: Run, archive: Archive, feed: Feed) -> None:
    """--rejects takes the samples with bad content as they are; with --fix the copy has the others."""
    made, bad = members(30, seed=2)
    name = feed(archive([("README", b"x"), *made]))
    wrong = [*dict.fromkeys(each.split(".")[0] for each in bad)]
    run("check", name, "--decode", "all", "--rejects", "bad.tar", exit=1)
    assert keys("bad.tar").split() == wrong
    content = {"README": b"x", **dict(made)}
    assert all(content[name] == data for name, data in entries("bad.tar"))
    ran = run("check", name, "--decode", "all", "--fix", "good.tar", "--rejects", "left.tar", exit=1)
    assert f"samples left out: {len(wrong)} for bad-content" in ran.stdout.decode()
    assert sorted([*keys("good.tar").split(), *wrong]) == sorted({each.split(".")[0] for each, _ in made})
    assert set(keys("left.tar").split()) - {"README"} == set(wrong)
    run("check", "good.tar", "--decode", "all")
    run("check", name, "--decode", "all", "--fix", "all.tar", "--allow", "bad-content")
    assert len(keys("all.tar").split()) == 30
    run("check", "good.tar", "--decode", "all", "--rejects", "none.tar")
    assert keys("none.tar") == ""


def test_what_is_printed(run: Run, archive: Archive, here: Path) -> None:
    """Verdicts, sums, --allow, --list-bad, --report and Python say the same."""
    name = archive([("a.jpg", b"<p>not found"), ("a.cls", b"1"), ("b.jpg", jpeg()), ("b.cls", b"2"), ("b.bin", b"3")])
    good = archive([("c.jpg", jpeg()), ("c.cls", b"1")], "good.tar")
    ran = run("check", name, "--decode", "jpg cls", "--report", "r.json", exit=1)
    assert ran.printed == [
        "note: in.tar: at 2048: 1 sample has the additional 'bin', unlike most; the first is 'b' [mixed-fields]",
        "hint: tarkit cat --require FIELDS --on-missing-field skip drops incomplete samples",
        "in.tar: at 0: 'a.jpg' cannot be decoded: it is text, not JPEG, PNG, WebP, GIF, BMP, TIFF or PPM [bad-content]",
        "hint: fetch the shard again, or pack the files again; --fix leaves such samples to --rejects",
        "in.tar: bad: 2 samples, 5 entries, 10240 bytes, 1 problem, 1 note",
        "decoded: 2 jpg, 2 cls",
    ]
    assert json.loads((here / "r.json").read_text())["decoded"] == {"jpg": 2, "cls": 2}
    assert objects(run("check", name, "--decode", "jpg", "--json", exit=1), "shard")[0]["decoded"] == {"jpg": 2}
    assert run("check", name, good, "--decode", "jpg", "--list-bad", exit=1).stdout == b"in.tar\n"
    run("check", name, "--decode", "jpg", "--allow", "bad-content")
    report = tarkit.check(name, decode=["jpg", "cls"])
    errors = [(each.name, each.key, each.offset) for each in report if each.level == "error"]
    assert errors == [("bad-content", b"a", 0)]
    assert report.decoded == {"jpg": 2, "cls": 2}
    assert tarkit.check(name).decoded is None


def test_other_names(run: Run, archive: Archive) -> None:
    """A field is decoded as another; a word without a field, and a field without a decoder, are named."""
    name = archive([("a.image", jpeg()[:-150]), ("a.mask", b"no"), ("b.seg.png", b"no"), ("b.bin", b"x")])
    assert decoded(run, name, "--decode", "png:mask,seg.png") == ["a.mask", "b.seg.png"]
    assert decoded(run, name, "--decode", "seg.png") == ["b.seg.png"]
    ran = run("check", name, "--decode", "image jpeg", exit=1)
    assert "--decode jpeg: no sample has this field, so nothing was decoded [missing-field]" in ran.stdout.decode()
    assert "'bin' of 1 sample has no decoder" in run("check", name, "--decode", "all", exit=1).stdout.decode()


def test_links_and_large_content(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be decoded here is named, and is not bad: it stays in the copy."""
    name = archive([("a.jpg", jpeg()), ("a.jpeg", Link("a.jpg")), ("b.txt", b"x" * 5000)])
    ran = run("check", name, "--decode", "all")
    what = "the field 'jpeg' of 1 sample is no regular file; the first is 'a.jpeg' [unchecked-content]"
    assert what in ran.stdout.decode()
    run("check", name, "--decode", "jpeg jpg", "--strict", exit=1)
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "4KiB")
    ran = run("check", name, "--decode", "txt", exit=1)
    assert "'b.txt' is not decoded: its 5000 bytes are more than 4096 (TARKIT_DECODE_LIMIT=4G" in ran.stdout.decode()
    assert "unchecked-content" in [each for each, _ in found(ran)]
    run("check", name, "--decode", "txt", "--fix", "copy.tar")
    assert keys("copy.tar") == "a b"


def test_a_damaged_archive(run: Run, archive: Archive, here: Path) -> None:
    """Content is decoded before and after damage, but not that of an entry which is cut."""
    data = tar([("a.json", b"{"), ("b.json", b"{}"), ("c.json", b"{"), ("d.json", b"{}" + b" " * 999)])
    (here / "x.tar").write_bytes(data[:1024] + b"x" + data[1025 : 4 * 1024])
    ran = run("check", "x.tar", "--decode", "json", exit=1)
    problems = [("bad-content", 0), ("bad-content", 2048), ("bad-header", 1024), ("truncated", 4096)]
    assert sorted(found(ran)) == problems


def test_a_library_that_is_not_there(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one error before anything is read, or a note where all fields are decoded that can be."""
    name = archive([("a.flac", b"x"), ("a.txt", b"x")])
    monkeypatch.setitem(sys.modules, "soundfile", None)
    ran = run("check", "none.tar", "--decode", "txt flac", "--rejects", "x.tar", exit=1)
    assert ran.stdout == b""
    assert ran.stderr.splitlines() == [
        "tarkit: --decode of sound needs soundfile, which is not installed",
        "hint: pip install 'tarkit[sound]'",
    ]
    said = run("check", name, "--decode", "all").stdout
    assert b"'flac' of 1 sample is not decoded: --decode of sound needs" in said


@each_row("kind", ["zip", "view"])
def test_zip_and_views(kind: str, run: Run, archive: Archive) -> None:
    """Samples of a zip, and those that a view names, are decoded too; also those of ranges in several archives."""
    made, bad = members(20, seed=3)
    archive(made)
    if kind == "view":
        pytest.importorskip("pyarrow")
    name = {"zip": "x.zip", "view": "x.view.parquet"}[kind]
    run("cat", "in.tar", "-o", name)
    assert decoded(run, name, "--decode", "all", "--rejects", "bad.tar") == bad
    run("check", "in.tar", "--decode", "all", "--rejects", "same.tar", exit=1)
    run("check", "bad.tar", "--same-as", "same.tar")
