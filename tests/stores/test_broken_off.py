"""Transfers that break off: by the server, again and again, or because the process is ended by a signal."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("obstore")
pytest.importorskip("boto3")

from tests._tools import TARKIT, happens, member
from tests.conftest import tar
from tests.stores._http import Served, http_server
from tests.stores._servers import Server, client, forwarding, serving, tarkit_run

PEAK = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(status)
"""
"""A program that runs another one, and prints the MiB of memory that it had at most."""


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_server_that_closes_connections_all_the_time(scheme: str, here: Path) -> None:
    """The bytes are right, there is one line for each connection, and memory is bounded."""
    (here / "a.tar").write_bytes(tar({f"{n}.bin": random.Random(n).randbytes(6_000_000) for n in range(16)}))
    tarkit_run("cat", "a.tar", "-o", "b.tar")
    modified = {"Last-Modified": "Sun, 01 Nov 2026 00:00:00 GMT"}
    with http_server() as server:
        server.serve("/bucket/a.tar", (here / "a.tar").read_bytes(), every=2_000_000, headers=modified)
        url = f"{server.url if scheme == 'http' else 's3:/'}/bucket/a.tar"
        words = [*TARKIT, "cat", url, "-o", "c.tar", "--endpoint-url", server.url, "--anonymous"]
        ran = subprocess.run([sys.executable, "-c", PEAK, *words], capture_output=True, text=True, check=False)
        closed = server.objects["/bucket/a.tar"].closed
    assert ran.returncode == 0, ran.stderr
    assert sha256(here / "c.tar") == sha256(here / "b.tar")
    assert closed >= 48
    assert ran.stderr.count("; trying again\n") == closed
    assert int(ran.stdout) < 150


def test_an_object_that_changes_is_an_error_and_leaves_no_output(here: Path) -> None:
    def change(served: Served, number: int) -> None:
        if number == 4:
            served.etag = '"2"'

    data = tar({f"{n}.bin": bytes(6_000_000) for n in range(8)})
    with http_server() as server:
        url = server.serve("/a.tar", data, change=change)
        assert "has changed" in tarkit_run("cat", url, "-o", "a.tar", exit=1).stderr
    assert not [*here.iterdir()]


@pytest.fixture(scope="module", params=["moto", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of S3 that has the bucket `bucket`."""
    with serving(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@contextmanager
def uploading(server: Server, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that has uploaded parts of an object and waits for more input."""
    words = [*TARKIT, "cat", "-", "-o", url, "--endpoint-url", server.endpoint]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stderr=pipe, env={**os.environ, **server.environ}) as running:
        assert running.stdin is not None
        running.stdin.write(b"".join(member(f"{n}.bin", bytes(8 << 20)) for n in range(6)))
        running.stdin.flush()
        assert happens(lambda: unfinished(server))
        yield running


def unfinished(server: Server) -> list[dict[str, str]]:
    """Return the uploads that nobody has completed."""
    found: list[dict[str, str]] = client(server).list_multipart_uploads(Bucket="bucket").get("Uploads", [])
    return found


def exists(server: Server, name: str) -> bool:
    return name in [each["Key"] for each in client(server).list_objects_v2(Bucket="bucket").get("Contents", [])]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_neither_object_nor_parts(signum: int, server: Server) -> None:
    with uploading(server, "s3://bucket/ended.tar") as running:
        running.send_signal(signum)
        assert running.wait(30) == -signum
    assert not exists(server, "ended.tar")
    assert unfinished(server) == []


def test_what_a_kill_leaves_is_listed_and_can_be_removed(server: Server) -> None:
    """As docs/stores.md says."""
    with uploading(server, "s3://bucket/killed.tar") as running:
        running.kill()
        assert running.wait(30) == -signal.SIGKILL
    assert not exists(server, "killed.tar")
    (left,) = unfinished(server)
    assert left["Key"] == "killed.tar"
    s3 = client(server)
    with suppress(s3.exceptions.NoSuchUpload):  # boto3 repeats a request whose answer is lost: the list is what counts
        s3.abort_multipart_upload(Bucket="bucket", Key=left["Key"], UploadId=left["UploadId"])
    assert unfinished(server) == []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("words", ["cat a.tar -o s3://bucket/w/{}.tar", "split a.tar -c 1 -o s3://bucket/w/{}-%d.tar"])
def test_a_signal_while_the_server_stalls(words: str, late: bool, server: Server, here: Path) -> None:
    """The run ends at once, and a small object is written or not, never in part; `late` stalls with the reply alone."""
    data = tar({f"{n}.txt": bytes(100_000) for n in range(3)})
    (here / "a.tar").write_bytes(data)
    name, stalled, stop = f"{random.random()}", threading.Event(), threading.Event()

    def stall(method: str) -> None:
        if method == "PUT":
            stalled.set()
            stop.wait(30)

    def before(method: str, path: str) -> None:
        if not late:
            stall(method)

    def after(method: str, path: str, reply: bytes) -> bytes:
        if late:
            stall(method)
        return reply

    with forwarding(server.endpoint, before, answer=after) as endpoint:
        command = [*TARKIT, *words.format(name).split(), "--endpoint-url", endpoint]
        with subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **server.environ}) as running:
            assert stalled.wait(20)
            time.sleep(0.1)
            begun = time.monotonic()
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == -signal.SIGINT
            assert time.monotonic() - begun < 2
        stop.set()
        time.sleep(0.2)
    found = client(server).list_objects_v2(Bucket="bucket", Prefix=f"w/{name}").get("Contents", [])
    assert {each["Size"] for each in found} <= {len(data), len(tar({"0.txt": bytes(100_000)}))}
