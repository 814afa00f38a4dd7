"""Transfers that break off: by the server, again and again, or because the process is ended by a signal."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("obstore")

from tests._tools import TARKIT, happens, member
from tests.conftest import tar
from tests.stores._http import http_server
from tests.stores._s3 import Bucket, Request
from tests.stores._servers import tarkit_run

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
    (here / "a.tar").write_bytes(tar({f"{n}.bin": random.Random(n).randbytes(6_000_000) for n in range(8)}))
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
    assert closed >= 24
    assert ran.stderr.count("; trying again\n") == closed
    assert int(ran.stdout) < 150


@contextmanager
def uploading(bucket: Bucket, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that has uploaded parts of an object and waits for more input."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*TARKIT, "cat", "-", "-o", url], stdin=pipe, stderr=pipe) as running:
        assert running.stdin is not None
        running.stdin.write(b"".join(member(f"{n}.bin", bytes(8 << 20)) for n in range(6)))
        running.stdin.flush()
        assert happens(lambda: bucket.server.uploads)
        yield running


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_neither_object_nor_parts(signum: int, bucket: Bucket) -> None:
    """But for a kill, whose parts are listed and can be removed, as docs/stores.md says."""
    with uploading(bucket, f"{bucket.url}ended.tar") as running:
        running.send_signal(signum)
        assert running.wait(30) == -signum
    assert bucket.names() == []
    assert len(bucket.server.uploads) == (signum == signal.SIGKILL)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("words", "late"), [("cat a.tar -o {}x.tar", True), ("split a.tar -c 1 -o {}x-%d.tar", False)])
def test_a_signal_while_the_server_stalls(words: str, late: bool, bucket: Bucket, here: Path) -> None:
    """The run ends at once, and a small object is written or not, never in part; `late` stalls with the reply alone."""
    data = tar({f"{n}.txt": bytes(100_000) for n in range(3)})
    (here / "a.tar").write_bytes(data)
    stalled, stop = threading.Event(), threading.Event()

    def stall(request: Request) -> str | None:
        if request.what == "put":
            if late:
                bucket.put("x.tar" if "cat" in words else "x-0.tar", request.body)
            stalled.set()
            stop.wait(30)
            return "close"
        return None

    bucket.server.fault = stall
    with subprocess.Popen([*TARKIT, *words.format(bucket.url).split()], stderr=subprocess.PIPE) as running:
        assert stalled.wait(20)
        begun = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == -signal.SIGINT
        assert time.monotonic() - begun < 2
    stop.set()
    assert {len(bucket.get(name)) for name in bucket.names()} <= {len(data), len(tar({"0.txt": bytes(100_000)}))}
