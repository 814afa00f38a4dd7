"""Servers of object stores on loopback, each a process of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tarkit.threads import mark_native_threads
from tests._tools import TARKIT, free_port, program
from tests.conftest import tarkit

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite is shipped with, and its documentation prints."""

_SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=key/1/us-east-1/s3/x"}  # tells moto which service is meant


@contextmanager
def running(command: list[str], port: int, **how: object) -> Iterator[str]:
    """Run a server until it is not needed; return its URL once it accepts connections."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                assert process.poll() is None, f"{command[0]} ended"
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@contextmanager
def moto() -> Iterator[str]:
    """The S3 of moto, with a bucket `bucket`."""
    pytest.importorskip("moto.server")
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port) as url:
        import urllib3

        urllib3.request("PUT", f"{url}/bucket", headers=_SIGNED)
        yield url


@contextmanager
def rclone(directory: Path, keys: str = "key,s3cret") -> Iterator[str]:
    """`rclone serve s3` over a directory, whose subdirectory `bucket` is a bucket; it checks the two `keys`."""
    program = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("rclone is not installed")
    (directory / "bucket").mkdir(parents=True, exist_ok=True)
    port = free_port()
    words = ["serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    with running([program, *words], port) as url:
        yield url


@contextmanager
def azurite(directory: Path) -> Iterator[str]:
    """Azurite, the emulator of Azure's blobs, with a container `bucket`."""
    program("node")
    port = free_port()
    words = ["--blobPort", str(port), "--location", str(directory), "--disableTelemetry", "--silent"]
    with running([program("azurite-blob"), *words], port) as url:
        _make_container(f"{url}/{AZURE_ACCOUNT}", "bucket")
        yield f"{url}/{AZURE_ACCOUNT}"


def _make_container(endpoint: str, name: str) -> None:
    """Create a container (Azure's REST API: "Create Container" and "Authorize with Shared Key")."""
    import urllib3

    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{each}:{value}\n" for each, value in headers.items())
    text = f"PUT{chr(10) * 12}{named}/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}", "Content-Length": "0"}
    assert urllib3.request("PUT", f"{endpoint}/{name}?restype=container", headers=headers).status == 201


def tarkit_run(*words: str, exit: int = 0, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which has the threads of obstore then; with `how` in a new one."""
    if how:
        ran = subprocess.run([*TARKIT, *words], capture_output=True, text=True, check=False, **how)
        assert ran.returncode == exit, ran.stderr
        return ran
    mark_native_threads("obstore")
    done = tarkit(*words, exit=exit)
    return subprocess.CompletedProcess(words, done.status, done.stdout.decode(), done.stderr)
