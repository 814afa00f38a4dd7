"""Shards that are completed in the background: several at a time, in order, and none behind one that failed."""

from __future__ import annotations

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

import tarkit
from tarkit.errors import TarkitError
from tarkit.streams.background_uploads import BackgroundUploads
from tests._tools import TARKIT
from tests.stores._servers import KEYS, moto, refusing

REPORT = ".tar: 1 samples, "
"""In the line about a shard."""

_numbers = count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setenv("HOME", str(here))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    (here / "small").mkdir()
    for n in range(9):
        (here / "small" / f"{n}.txt").write_text(str(n))
    assert tarkit_run("shard", "small", "-o", "small-%d.tar").returncode == 0


@pytest.fixture(params=["split", "shard"])
def command(request: pytest.FixtureRequest) -> str:
    """A command that writes shards."""
    return str(request.param)


def source(command: str, name: str = "small") -> list[str]:
    """The command with its input: a directory, or its archive."""
    return [command, f"{name}-0.tar" if command == "split" else name]


def tarkit_run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TARKIT, *words], capture_output=True, text=True, check=False)


def directory() -> str:
    return f"s3://bucket/{next(_numbers)}/"


def listed(endpoint: str, directory: str) -> list[str]:
    """The names of the objects in a directory; there are no unfinished uploads."""
    client = boto3.client("s3", endpoint_url=endpoint)
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket")
    prefix = directory.removeprefix("s3://bucket/")
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return [each["Key"].removeprefix(prefix) for each in found]


def write_large(here: Path) -> None:
    """Write the files and the archive `large`: samples of which each is sent in parts."""
    (here / "large").mkdir()
    for n in range(4):
        (here / "large" / f"{n}.bin").write_bytes(bytes(17 << 20))
    assert tarkit_run("shard", "large", "-o", "large-%d.tar").returncode == 0


def test_reports_are_in_order(command: str, endpoint: str, here: Path) -> None:
    """Those of shards, those of the manifest, and --post, which finds each shard."""
    into = directory()
    with refusing(endpoint, "PUT", 0, delay=0.1) as (slow, _):
        post = f"{shlex.join(TARKIT)} stats --total --endpoint-url {endpoint} {{}} >> seen && echo {{}} >> seen"
        words = ("-c", "1", "-o", f"{into}s-%d.tar", "--endpoint-url", slow)
        ran = tarkit_run(*source(command), *words, "--manifest", "m", "--post", post, "-v")
        assert ran.returncode == 0, ran.stderr
    names = [f"{into}s-{n}.tar" for n in range(9)]
    assert (here / "seen").read_text().split() == [word for name in names for word in ("1", name)]
    assert [line.split("\t")[0] for line in (here / "m").read_text().splitlines()[1:]] == names
    notes = [line for line in ran.stderr.splitlines() if REPORT in line]
    assert [line.split()[1].removesuffix(":") for line in notes] == names


@pytest.mark.parametrize("large", [False, True])
def test_nothing_is_behind_a_shard_that_failed(command: str, large: bool, endpoint: str, here: Path) -> None:
    """Those before it stay, and --append continues after them, --resume keeps them."""
    if large:
        write_large(here)
    name, total = ("large", 4) if large else ("small", 9)
    into = directory()
    words = (*source(command, name), "-c", "1", "-o", f"{into}s-%d.tar", "--net-retries", "0")
    method = "POST" if large else "PUT"
    path = "s-2.tar?uploadId" if large else "s-2.tar"
    with refusing(endpoint, method, 99, path=path, delay=0.05) as (slow, refused):
        ran = tarkit_run(*words, "--endpoint-url", slow)
        assert ran.returncode == 1
        assert f"tarkit: {into}s-2.tar: the server answers 503" in ran.stderr
        assert "panic" not in ran.stderr
        assert "Traceback" not in ran.stderr
        assert refused
    assert listed(endpoint, into) == ["s-0.tar", "s-1.tar"]
    rest = tarkit_run(*words, "--endpoint-url", endpoint, "--append" if command == "split" else "--resume")
    assert rest.returncode == 0, rest.stderr
    assert len(listed(endpoint, into)) == total + (2 if command == "split" else 0)


def test_with_force_complete_shards_stay(command: str, endpoint: str) -> None:
    """They have replaced others, which cannot be brought back."""
    into = directory()
    words = (*source(command), "-o", f"{into}s-%d.tar", "-c")
    assert tarkit_run(*words, "1", "--endpoint-url", endpoint).returncode == 0
    with refusing(endpoint, "PUT", 99, path="s-0.tar", delay=0.1) as (slow, _):
        ran = tarkit_run(*words, "2", "--force", "--net-retries", "0", "--endpoint-url", slow)
        assert ran.returncode == 1
    assert len(listed(endpoint, into)) == 9


def test_a_command_that_fails_ends_the_run(command: str, endpoint: str) -> None:
    into = directory()
    with refusing(endpoint, "PUT", 0, delay=0.1) as (slow, _):
        words = (
            "-c",
            "1",
            "-o",
            f"{into}s-%d.tar",
            "--endpoint-url",
            slow,
            "--post",
            "case {} in *1.tar*) exit 3; esac",
        )
        ran = tarkit_run(*source(command), *words)
    assert ran.returncode == 1
    assert f"hint: the shard {into}s-1.tar is complete; for those after it the command was not run" in ran.stderr
    assert listed(endpoint, into) == ["s-0.tar", "s-1.tar"]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("large", [False, True])
def test_a_signal_leaves_the_first_shards(
    command: str, sign: signal.Signals, large: bool, endpoint: str, here: Path
) -> None:
    """Those that were reported, and no parts of others."""
    if large:
        write_large(here)
    into = directory()
    with refusing(endpoint, "PUT", 0, delay=0.3) as (slow, _):
        name = "large" if large else "small"
        words = [*source(command, name), "-c", "1", "-o", f"{into}s-%d.tar", "--endpoint-url", slow, "-v"]
        with subprocess.Popen([*TARKIT, *words], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines = [next(process.stderr)]
            while REPORT not in lines[-1]:
                lines.append(next(process.stderr))
            process.send_signal(sign)
            lines += process.stderr
        assert process.returncode == -sign
    reported = sum(REPORT in line for line in lines)
    assert 1 <= reported < 9
    assert listed(endpoint, into) == [f"s-{n}.tar" for n in range(reported)]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_several_processes_leaves_no_parts(sign: signal.Signals, endpoint: str, here: Path) -> None:
    """Nor does an error of one of them: each removes what it has begun."""
    write_large(here)
    into = directory()
    client = boto3.client("s3", endpoint_url=endpoint)
    words = ["shard", "large", "-c", "1", "-o", f"{into}s-%d.tar", "-p", "2", "--net-retries", "0", "--endpoint-url"]
    with (
        refusing(endpoint, "PUT", 0, delay=0.3) as (slow, _),
        subprocess.Popen([*TARKIT, *words, slow], stderr=subprocess.PIPE) as process,
    ):
        while "Uploads" not in client.list_multipart_uploads(Bucket="bucket"):
            assert process.poll() is None
        process.send_signal(sign)
        process.communicate()
    assert process.returncode == -sign
    assert len(listed(endpoint, into)) < 4
    into = directory()
    with refusing(endpoint, "PUT", 99, path="partNumber=2", delay=0.1) as (slow, refused):
        failed = tarkit_run(*words, slow)
        assert refused
        assert (failed.returncode, "503" in failed.stderr) == (1, True)
    assert listed(endpoint, into) == []


def test_processes_complete_several_shards_at_a_time(endpoint: str, here: Path) -> None:
    """And report them in order."""
    into = directory()
    with refusing(endpoint, "PUT", 0, delay=0.1) as (slow, _):
        words = ("-c", "1", "-o", f"{into}s-%d.tar", "--endpoint-url", slow, "-p", "2", "--manifest", "m", "-v")
        ran = tarkit_run("shard", "small", *words)
        assert ran.returncode == 0, ran.stderr
    names = [f"{into}s-{n}.tar" for n in range(9)]
    assert [line.split("\t")[0] for line in (here / "m").read_text().splitlines()[1:]] == names
    assert [line.split()[1].removesuffix(":") for line in ran.stderr.splitlines() if REPORT in line] == names
    assert len(listed(endpoint, into)) == 9


@pytest.mark.parametrize("force", [False, True])
def test_shards_that_are_kept_are_reported_in_order(force: bool, endpoint: str, here: Path) -> None:
    """Those that are there stay when a later one fails; with --force a shard that differs is replaced."""
    into = directory()
    words = ["shard", "small", "-c", "1", "-o", f"{into}s-%d.tar", "--manifest", "m", "-v", "--endpoint-url"]
    assert tarkit_run(*words, endpoint).returncode == 0
    manifest = (here / "m").read_text()
    client = boto3.client("s3", endpoint_url=endpoint)
    prefix = into.removeprefix("s3://bucket/")
    for number in (1, 4, 7):
        client.delete_object(Bucket="bucket", Key=f"{prefix}s-{number}.tar")
    if force:
        client.put_object(Bucket="bucket", Key=f"{prefix}s-5.tar", Body=b"other")
    more = ("--resume", "--force") if force else ("--resume",)
    with refusing(endpoint, "PUT", 99, path="s-7.tar", delay=0.1) as (slow, _):
        assert tarkit_run(*words, slow, *more, "--net-retries", "0").returncode == 1
    assert listed(endpoint, into) == [f"s-{n}.tar" for n in range(9) if n != 7]
    ran = tarkit_run(*words, endpoint, *more)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.split()[1].startswith(into)]
    assert [line.split()[1].removesuffix(":") for line in lines] == [f"{into}s-{n}.tar" for n in range(9)]
    assert sum("kept" in line for line in lines) == 8
    assert (here / "m").read_text() == manifest


def test_a_writer_in_python(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a shard is raised by a later write, or by the end of the block."""
    into = directory()
    with refusing(endpoint, "PUT", 99, path="s-2.tar") as (slow, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", slow)
        monkeypatch.setattr("tarkit.stores.connect._options", tarkit.stores.store.StoreOptions(retries=0))
        out = tarkit.ShardWriter(f"{into}s-%d.tar", count=1)
        with pytest.raises(TarkitError, match="503"):
            write_samples(out)
    assert [shard.name for shard in out.shards] == [f"{into}s-{n}.tar" for n in range(2)]
    assert listed(endpoint, into) == ["s-0.tar", "s-1.tar"]


def test_an_abort_uses_the_options_of_the_call(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not reported is removed from the server of `storage_options`, not from that of the environment."""
    into = directory()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with refusing(endpoint, "PUT", 99, path="s-2.tar", delay=0.1) as (slow, _):
        how = {"endpoint_url": slow, "net_retries": 0}
        out = tarkit.ShardWriter(f"{into}s-%d.tar", count=1, storage_options=how)
        with pytest.raises(TarkitError, match="503"):
            write_samples(out)
    assert listed(endpoint, into) == ["s-0.tar", "s-1.tar"]


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


def test_an_error_is_raised_when_those_before_are_reported() -> None:
    reported: list[str] = []
    first = threading.Event()

    def fail() -> Any:
        raise TarkitError("no")

    uploads = BackgroundUploads(True, print)
    uploads.add("a", lambda: first.wait() and None, 1, lambda: reported.append("a"))
    uploads.add("b", fail, 1, lambda: reported.append("b"))
    uploads.add("c", lambda: None, 1, lambda: reported.append("c"))
    time.sleep(0.05)
    uploads.report()
    assert not reported
    first.set()
    with pytest.raises(TarkitError, match="no"):
        uploads.finish()
    assert reported == ["a"]
    uploads.abort()
    with suppress(TarkitError):
        uploads.finish()
    assert reported == ["a"]
