"""Shards that are completed in the background: several at a time, in order, and none behind one that failed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.streams.background_uploads import BackgroundUploads
from tests._tools import TARKIT
from tests.stores._s3 import Bucket, Request
from tests.stores._servers import tarkit_run

REPORT = r"\.tar: \d samples?, "
"""In the line about a shard."""

WRITES = ("put", "part", "create", "complete")


@pytest.fixture
def bucket(bucket: Bucket) -> Bucket:
    """A bucket, and here a directory and an archive with nine small samples."""
    Path("small").mkdir()
    for n in range(9):
        Path("small", f"{n}.txt").write_text(str(n))
    tarkit_run("shard", "small", "-o", "small-%d.tar")
    return bucket


def source(command: str, name: str = "small") -> list[str]:
    """The command with its input: a directory, or its archive."""
    return [command, f"{name}-0.tar" if command == "split" else name]


def slow(bucket: Bucket, delay: float, refused: Callable[[Request], bool] = lambda request: False) -> None:
    """Have each request that writes take so long, and some be refused."""

    def fault(request: Request) -> str | None:
        if request.what in WRITES:
            time.sleep(delay)
        return "503" if refused(request) else None

    bucket.server.fault = fault


def puts(name: str) -> Callable[[Request], bool]:
    return lambda request: request.what in ("put", "part") and request.key.endswith(name)


def listed(bucket: Bucket) -> list[str]:
    """The names of the objects; there are no unfinished uploads."""
    assert not bucket.server.uploads
    return bucket.names()


def write_large() -> None:
    """Write the files and the archive `large`: samples of which each is sent in parts."""
    Path("large").mkdir()
    for n in range(4):
        Path("large", f"{n}.bin").write_bytes(bytes(17 << 20))
    tarkit_run("shard", "large", "-o", "large-%d.tar")


@pytest.mark.parametrize("command", ["split", "shard -p 2"])
def test_reports_are_in_order(command: str, bucket: Bucket) -> None:
    """Those of shards, those of the manifest, and --post, which finds each shard."""
    slow(bucket, 0.05)
    post = f"{shlex.join(TARKIT)} stats --total {{}} >> seen && echo {{}} >> seen"
    name, *more = command.split()
    count = "2" if command == "split" else "1"
    words = ("-c", count, "-o", f"{bucket.url}s-%d.tar", "--manifest", "m", "-v", *more)
    ran = tarkit_run(*source(name), *words, *(("--post", post) if command == "split" else ()))
    names = [f"{bucket.url}s-{n}.tar" for n in range(5 if command == "split" else 9)]
    if command == "split":
        assert Path("seen").read_text().split()[:-2] == [word for name in names[:-1] for word in ("2", name)]
    assert [line.split("\t")[0] for line in Path("m").read_text().splitlines()[1:]] == names
    notes = [line for line in ran.stderr.splitlines() if re.search(REPORT, line)]
    assert [line.split()[1].removesuffix(":") for line in notes] == names
    assert len(listed(bucket)) == len(names)


@pytest.mark.parametrize(("command", "large"), [("split", True), ("shard", False)])
def test_nothing_is_behind_a_shard_that_failed(command: str, large: bool, bucket: Bucket) -> None:
    """Those before it stay, and --append continues after them, --resume keeps them."""
    if large:
        write_large()
    name, total = ("large", 4) if large else ("small", 9)
    words = (*source(command, name), "-c", "1", "-o", f"{bucket.url}s-%d.tar", "--net-retries", "0")
    slow(bucket, 0.05, lambda request: request.what in ("put", "complete") and request.key.endswith("s-2.tar"))
    said = tarkit_run(*words, exit=1).stderr
    assert f"tarkit: {bucket.url}s-2.tar: the server answers 503" in said
    assert "panic" not in said
    assert "Traceback" not in said
    assert listed(bucket) == ["s-0.tar", "s-1.tar"]
    slow(bucket, 0)
    tarkit_run(*words, "--append" if command == "split" else "--resume")
    assert len(listed(bucket)) == total + (2 if command == "split" else 0)


def test_with_force_complete_shards_stay(bucket: Bucket) -> None:
    """They have replaced others, which cannot be brought back."""
    words = (*source("split"), "-o", f"{bucket.url}s-%d.tar", "-c")
    tarkit_run(*words, "1")
    slow(bucket, 0.05, puts("s-0.tar"))
    tarkit_run(*words, "2", "--force", "--net-retries", "0", exit=1)
    assert len(listed(bucket)) == 9


def test_a_command_that_fails_ends_the_run(bucket: Bucket) -> None:
    slow(bucket, 0.05)
    words = ("-c", "1", "-o", f"{bucket.url}s-%d.tar", "--post", "case {} in *1.tar*) exit 3; esac")
    said = tarkit_run(*source("shard"), *words, exit=1).stderr
    assert f"hint: the shard {bucket.url}s-1.tar is complete; for those after it the command was not run" in said
    assert listed(bucket) == ["s-0.tar", "s-1.tar"]


@pytest.mark.parametrize(
    ("command", "sign", "large"), [("split", signal.SIGINT, True), ("shard", signal.SIGTERM, False)]
)
def test_a_signal_leaves_the_first_shards(command: str, sign: signal.Signals, large: bool, bucket: Bucket) -> None:
    """Those that were reported, and no parts of others."""
    if large:
        write_large()
    slow(bucket, 0.2)
    words = [*source(command, "large" if large else "small"), "-c", "1", "-o", f"{bucket.url}s-%d.tar", "-v"]
    with subprocess.Popen([*TARKIT, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [next(process.stderr)]
        while not re.search(REPORT, lines[-1]):
            lines.append(next(process.stderr))
        process.send_signal(sign)
        lines += process.stderr
    assert process.returncode == -sign
    reported = [f"s-{n}.tar" for n in range(sum(bool(re.search(REPORT, line)) for line in lines))]
    assert 1 <= len(reported) < 9
    unsure = {name for name in bucket.names() if any(f"{name}: perhaps written" in line for line in lines)}
    assert listed(bucket) == sorted({*reported, *unsure})


def test_a_signal_to_several_processes_leaves_no_parts(bucket: Bucket) -> None:
    """Nor does an error of one of them: each removes what it has begun."""
    write_large()
    slow(bucket, 0.2)
    words = ["shard", "large", "-c", "1", "-o", f"{bucket.url}s-%d.tar", "-p", "2", "--net-retries", "0"]
    with subprocess.Popen([*TARKIT, *words], stderr=subprocess.PIPE) as process:
        while not any(len(data) > 1 for _, _, parts in [*bucket.server.uploads.values()] for data in parts.values()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == -signal.SIGINT
    assert len(listed(bucket)) < 4
    bucket.server.objects.clear()
    slow(bucket, 0.05, lambda request: request.query.get("partNumber") == "2")
    assert "503" in tarkit_run(*words, exit=1).stderr
    assert listed(bucket) == []


def test_shards_that_are_kept_are_reported_in_order(bucket: Bucket) -> None:
    """Those that are there stay when a later one fails; with --force a shard that differs is replaced."""
    words = ["shard", "small", "-c", "1", "-o", f"{bucket.url}s-%d.tar", "--manifest", "m", "-v"]
    tarkit_run(*words)
    manifest = Path("m").read_text()
    for number in (1, 4, 7):
        bucket.delete(f"s-{number}.tar")
    bucket.put("s-5.tar", b"other")
    more = ("--resume", "--force")
    slow(bucket, 0.05, puts("s-7.tar"))
    tarkit_run(*words, *more, "--net-retries", "0", exit=1)
    assert listed(bucket) == [f"s-{n}.tar" for n in range(9) if n != 7]
    slow(bucket, 0)
    lines = [line for line in tarkit_run(*words, *more).stderr.splitlines() if line.split()[1].startswith(bucket.url)]
    assert [line.split()[1].removesuffix(":") for line in lines] == [f"{bucket.url}s-{n}.tar" for n in range(9)]
    assert sum("kept" in line for line in lines) == 8
    assert Path("m").read_text() == manifest


@pytest.mark.parametrize("own", [False, True])
def test_a_writer_in_python(own: bool, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a shard is raised by a later write, or by the end of the block.

    What was not reported is removed from the server of `storage_options`, not from that of the environment.
    """
    slow(bucket, 0.05, puts("s-2.tar"))
    connect.configure(StoreOptions(retries=0))
    how = {"endpoint_url": bucket.server.url, "net_retries": 0} if own else None
    if own:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    out = tarkit.ShardWriter(f"{bucket.url}s-%d.tar", count=1, storage_options=how)
    with pytest.raises(TarkitError, match="503"):
        write_samples(out)
    assert [shard.name for shard in out.shards] == [f"{bucket.url}s-{n}.tar" for n in range(2)]
    assert listed(bucket) == ["s-0.tar", "s-1.tar"]


def write_samples(out: tarkit.ShardWriter) -> None:
    with out:
        for number in range(5):
            out.write(str(number), {"cls": number})


class Closing:
    """Outputs that are completed when they may be; `most` were completed at a time."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.now = self.most = 0
        self.reported: list[int] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.may.acquire()
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize(("size", "most"), [(1, 4), (40 << 20, 3), (64 << 20, 2), (1 << 40, 2)])
def test_memory_is_bounded(size: int, most: int) -> None:
    """Four small outputs at a time, fewer large ones; each is reported once, in order."""
    closing, uploads = Closing(), BackgroundUploads(True, print)
    threading.Timer(0.3, closing.may.release, (12,)).start()
    for number in range(12):
        uploads.make_room(size)
        uploads.add(str(number), closing.close, size, lambda number=number: closing.reported.append(number))  # type: ignore[misc]
    uploads.finish()
    assert closing.most == most
    assert closing.reported == list(range(12))
