"""Trees of objects as shards, and shards as objects: the bytes are those of the same tree in a directory."""

from __future__ import annotations

import hashlib
import os
import random
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.packing.packer import Packer
from tarkit.stores import object_prefetch
from tests.conftest import Run, entries
from tests.stores._http import http_server
from tests.stores._s3 import Bucket, Request, S3Server
from tests.stores._servers import tarkit_run

RANDOM = random.Random(5)
FILES = {
    "a.jpg": b"1", "a.cls": b"0", "a-b.jpg": b"", "a/1.jpg": b"2" * 5000, "a/1.json": b"{}", "a/1/x.jpg": b"3",
    "a/1.b/y.jpg": b"4", "a0.jpg": b"5", "b/large.bin": RANDOM.randbytes(6_000_000), "b/plain": b"no key",
    "b/c/d/e.seg.png": b"6" * 70_000, "b/c/d/e.jpg": b"7", "\u00e9 1.txt": b"8",
}  # fmt: skip


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A tree in a bucket, which `grow` makes here as well."""
    return Bucket(s3, "t/")


def grow(bucket: Bucket, files: dict[str, bytes] = FILES) -> None:
    for name, data in files.items():
        bucket.put(name, data)
        path = Path("t", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def shards(front: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path().glob(f"{front}-*.tar"))]


@pytest.mark.parametrize(
    "words",
    [
        "-c 2",
        "-s 1M",
        "-c 3 --key base --rename key",
        "-c 3 --last-dot --exclude *.seg.png",
        "-c 2 --sort shuffle:7",
        "-c 2 --dirs separate",
        "-c 9 --label-from-dir class:-1 --match ^[ab]/",
        "-c 9 --match ^b/.*jpg",
        "-n 3 --even -p 3",
    ],
)
def test_a_bucket_is_packed_like_a_directory(words: str, bucket: Bucket) -> None:
    grow(bucket, {**FILES, **dict.fromkeys(("a/.DS_Store", "b/._1.jpg", "__MACOSX/a/._2.jpg", "README"), b"9")})
    local = tarkit_run("shard", "t", *words.split(), "-o", "l-%d.tar")
    remote = tarkit_run("shard", bucket.url, *words.split(), "-o", "r-%d.tar")
    assert shards("r") == shards("l") != []
    assert remote.stderr == local.stderr
    assert "--match" in words or "files of file managers: 3, " in local.stderr


def test_shards_are_objects(bucket: Bucket) -> None:
    """With checksums; existing ones stay without --force, which leaves no others; --resume and --update keep them."""
    grow(bucket)
    tarkit_run("shard", "t", "-c", "2", "-o", "l-%d.tar")
    expected, names = shards("l"), [f"out/x-{number}.tar" for number in range(len(shards("l")))]
    words = ("-o", f"{bucket.url}out/x-%d.tar")
    tarkit_run("shard", "t", "-c", "2", *words, "-p", "2", "--manifest", "m.tsv")
    assert [bucket.get(name) for name in names] == expected
    rows = [line.split("\t") for line in Path("m.tsv").read_text().splitlines()[1:]]
    assert [row[3] for row in rows] == [hashlib.sha256(data).hexdigest() for data in expected]
    assert [row[0] for row in rows] == [bucket.url + name for name in names]

    refused = tarkit_run("shard", "t", "-c", "2", *words, exit=1).stderr
    assert "there are shards of this name" in refused
    assert "--force" in refused
    bucket.delete(names[1])
    resumed = tarkit_run("shard", "t", "-c", "2", *words, "--resume", "-v", "--manifest", "m.tsv").stderr
    assert resumed.count("kept, it is as planned") == len(names) - 1
    assert [line.split("\t")[3] for line in Path("m.tsv").read_text().splitlines()[1:]] == [row[3] for row in rows]
    assert [bucket.get(name) for name in names] == expected
    bucket.put(names[0], b"other")
    assert "not as planned" in tarkit_run("shard", "t", "-c", "2", *words, "--resume", exit=1).stderr
    tarkit_run("shard", "t", "-c", "2", *words, "--resume", "--force")
    assert [bucket.get(name) for name in names] == expected

    # the source and the shards are in one directory
    more = tarkit_run("shard", bucket.url, "-c", "2", *words, "--update", "-v").stderr
    assert "no sample, so no shard" in more
    assert f"left out, files of this run: {len(names)}" in more
    bucket.put("new.jpg", b"new")
    tarkit_run("shard", bucket.url, "-c", "2", *words, "--update")
    Path("new.tar").write_bytes(bucket.get(f"out/x-{len(names)}.tar"))
    assert entries("new.tar") == [("new.jpg", b"new")]
    tarkit_run("shard", bucket.url, "-c", "99", *words, "--force")
    assert [name for name in bucket.names() if name.startswith("out/")] == ["out/x-0.tar"]


def test_compressed_shards_are_not_overlooked(bucket: Bucket) -> None:
    grow(bucket, {"a.x": b"1"})
    bucket.put("out/x-0.tar.gz", b"")
    words = ("shard", "t", "-c", "2", "-o", f"{bucket.url}out/x-%d.tar", "--update")
    assert "cannot read a shard that was compressed" in tarkit_run(*words, exit=1).stderr


def test_a_category_is_a_series_of_objects(bucket: Bucket) -> None:
    grow(bucket)
    words = ("--map", '{"a-%d.tar": ["^a"], "b-%d.tar": ["^b"]}', "--unmatched", "c-%d.tar")
    Path("l").mkdir()
    tarkit_run("shard", "t", "-c", "3", *words, "-o", "l/")
    tarkit_run("shard", bucket.url, "-c", "3", *words, "-o", f"{bucket.url}out/")
    assert {path.name: path.read_bytes() for path in Path("l").iterdir()} == {
        name[4:]: bucket.get(name) for name in bucket.names() if name.startswith("out/")
    }
    assert "there are shards" in tarkit_run("shard", "t", "-c", "3", *words, "-o", f"{bucket.url}out/", exit=1).stderr


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Make these changes, one a run, between plan and packing."""
    changes: list[Callable[[], object]] = []
    check = Packer.check

    def changed(self: Packer, *given: Any) -> None:
        check(self, *given)
        changes.pop()()

    monkeypatch.setattr(Packer, "check", changed)
    return changes


@pytest.mark.forks
def test_objects_that_change(bucket: Bucket, changes: list[Callable[[], object]]) -> None:
    """Objects that changed, or are gone, are errors, and existing shards stay."""
    grow(bucket)
    said: list[str] = []
    call = partial(tarkit.shard, bucket.url, f"{bucket.url}out/x-%d.tar", count=4, force=True, on_problem=said.append)

    def gone() -> None:
        bucket.delete("a/1.json")

    changes += [gone, gone, lambda: bucket.put("a/1.json", b"[1]"), lambda: None]
    call()
    before = bucket.get("out/x-0.tar")
    name = f"{bucket.url}a/1.json"
    with pytest.raises(tarkit.TarkitError, match=f"{name} has 3 bytes, and the plan says 2"):
        call()
    assert bucket.get("out/x-0.tar") == before
    with pytest.raises(tarkit.TarkitError, match=f"out/x-0.tar: {name}: No such file or directory"):
        call()
    bucket.put("a/1.json", b"{}")
    call(skip_missing=True)
    assert any(f"{name}: No such file or directory; its sample is left out" in text for text in said)
    Path("x.tar").write_bytes(bucket.get("out/x-0.tar"))
    Path("l.tar").write_bytes(before)
    kept = [name for name, _ in entries("l.tar") if not name.startswith("a/1.j")]
    assert [name for name, _ in entries("x.tar")] == kept


@pytest.mark.forks
def test_an_object_of_another_version(bucket: Bucket, changes: list[Callable[[], object]]) -> None:
    """An object of the same size and version that was written after the others were listed is an error."""
    grow(bucket, {"a.x": b"1", "b.x": b"2"})

    def newer() -> None:
        bucket.server.date += 1

    changes.append(newer)
    with pytest.raises(tarkit.TarkitError, match=r"a\.x was changed after it was listed"):
        tarkit.shard(bucket.url, "s-%d.tar", count=9)
    assert not Path("s-0.tar").exists()


@pytest.mark.forks
@pytest.mark.parametrize("processes", [1, 2])
def test_an_object_that_is_replaced_in_the_same_second(
    processes: int, bucket: Bucket, changes: list[Callable[[], object]]
) -> None:
    """Neither its size nor its time shows it, but its ETag: of small and large ones, in any order, and renamed."""
    files = {"a.x": b"1", "b.x": bytes(6_000_000), "c/d/e.x": b"3", "f.x": b"4"}
    grow(bucket, files)
    hows: list[dict[str, Any]] = [{}, {"rename": "key"}, {"sort": "shuffle:1"}]
    for name, how in zip(("a.x", "c/d/e.x", "b.x"), hows, strict=True):
        changes.append(partial(bucket.put, name, b"x" * len(files[name])))
        with pytest.raises(tarkit.TarkitError, match=rf"{name} was changed after it was listed"):
            tarkit.shard(bucket.url, "s-%d.tar", count=9, processes=processes, **how)
        assert not Path("s-0.tar").exists()
        bucket.put(name, files[name])


@pytest.mark.forks
def test_a_thousand_objects(bucket: Bucket) -> None:
    """In Python, from a bucket to a bucket, while the server is busy for a while."""
    files = {f"{number % 7}/{number:04d}.{field}": b"%d" % number for number in range(500) for field in ("x", "y")}
    grow(bucket, files)
    expected = [shard.sha256 for shard in tarkit.shard("t", "l-%d.tar", count=100)]
    refused: list[str] = []

    def refuse(request: Request) -> str | None:
        if request.what not in ("get", "list") or len(refused) == 5:
            return None
        refused.append(request.key)
        return "503"

    bucket.server.fault = refuse
    written = tarkit.shard(bucket.url, f"{bucket.url}out/x-%d.tar", count=100, processes=2)
    assert len(refused) == 5
    assert [shard.sha256 for shard in written] == expected
    assert [hashlib.sha256(bucket.get(f"out/x-{number}.tar")).hexdigest() for number in range(5)] == expected


def test_a_server_that_stays_busy(bucket: Bucket) -> None:
    grow(bucket, {"a.x": b"1", "b.x": b"2"})
    bucket.server.fault = lambda request: "503" if request.what in ("get", "list") else None
    failed = tarkit_run("shard", bucket.url, "-o", "s-%d.tar", "--net-retries", "1", exit=1).stderr
    assert "503" in failed
    assert "s3cret" not in failed
    assert shards("s") == []


def test_times_and_modes(bucket: Bucket) -> None:
    """Of an object only the time of its modification is known, and used with --mtime source."""
    grow(bucket, {"a.x": b"1"})
    tarkit_run("shard", bucket.url, "-c", "1", "-o", "s-%d.tar", "--mtime", "source")
    (info,) = tarfile.open("s-0.tar").getmembers()
    assert (info.mtime, info.mode, info.uid, info.uname) == (bucket.server.date, 0o644, 0, "")


def test_nothing_below(bucket: Bucket) -> None:
    bucket.put("x/a.tar", b"")
    for url in (f"{bucket.url}none/", f"{bucket.url}x/a.tar"):
        assert "there are no objects below it" in tarkit_run("shard", url, "-o", "s-%d.tar", exit=1).stderr
    assert "cannot be listed" in tarkit_run("shard", "https://127.0.0.1:9/x/", "-o", "s-%d.tar", exit=2).stderr


def test_objects_that_stand_for_directories(bucket: Bucket) -> None:
    """Empty objects whose names end in a slash are no files; empty ones without it are."""
    grow(bucket, {"a/1.x": b"", "b.x": b"1", "b": b""})
    for name in ("", "a/", "empty/", "a/1.x/", "b.x/"):
        bucket.put(name, b"")
    tarkit_run("shard", bucket.url, "-c", "9", "-o", "s-%d.tar")
    assert entries("s-0.tar") == [("a/1.x", b""), ("b", b""), ("b.x", b"1")]
    bucket.put("full/", b"data")
    assert tarkit_run("shard", bucket.url, "-c", "9", "-o", "t-%d.tar", exit=1).stderr
    assert not Path("t-0.tar").exists()
    bucket.put("b.x/", b"2")
    ran = tarkit_run("shard", bucket.url, "-c", "9", "-o", "u-%d.tar", exit=1)
    assert "b.x: there is an object of this name with a slash at its end" in ran.stderr
    bucket.put("c.tar", Path("s-0.tar").read_bytes())
    bucket.put("c.tar/", b"")
    assert tarkit_run("stats", "--total", f"{bucket.url}c*.tar").stdout == "2\n"
    bucket.put("c.tar/", b"2")
    ran = tarkit_run("stats", "--total", f"{bucket.url}c*.tar", exit=1)
    assert "c.tar: there is an object of this name with a slash at its end" in ran.stderr


# ---- Requests ahead


def test_memory_is_bounded() -> None:
    """No more is requested while what is held is MEMORY or more; an unknown length counts as one range."""
    requested: list[str] = []

    def read(url: str, size: int | None) -> None:
        requested.append(url)

    found = object_prefetch.prefetch_objects(map(str, range(99)), lambda item: (item, 1 << 40), read)
    for _ in range(3):
        next(found)[1]
    assert len(requested) <= object_prefetch.MEMORY // object_prefetch.WHOLE + 3


def test_a_recipe_of_urls(here: Path, run: Run) -> None:
    """Small and large objects, some of unknown length, among other sources; an object that is missing has a line."""
    with http_server() as server:
        data = {f"/{n}.bin": RANDOM.randbytes(n * 1000) for n in range(60)} | {"/big.bin": RANDOM.randbytes(9_000_000)}
        lines = []
        for number, (path, content) in enumerate(data.items()):
            url = server.serve(path, content, chunked=number % 9 == 1, drop=500, drops=number % 2)
            lines += [f"{number:03d}.bin {url}", f"{number:03d}.txt text:{number}"]
        Path("r").write_text("\n".join(lines))
        for words in ((), ("-p", "3")):
            run("create", "r", "-o", "a.tar", *words)
            got = entries("a.tar")
            assert [content for name, content in got if name.endswith(".bin")] == list(data.values())
            assert [name for name, _ in got] == [line.split()[0] for line in lines]
        Path("r").write_text("\n".join([*lines[:40], f"x.bin {server.url}/none", *lines[40:]]))
        assert "r:41: " in run("create", "r", "-o", "b.tar", exit=1).lines[0]
        assert not os.path.exists("b.tar")
