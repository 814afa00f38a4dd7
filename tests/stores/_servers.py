"""Servers of object stores on loopback, each a process of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests._tools import TARKIT, free_port, program

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite is shipped with, and its documentation prints."""

_SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=key/1/us-east-1/s3/x"}  # tells moto which service is meant


@dataclass(frozen=True)
class Server:
    """A server of objects that has the bucket `bucket`.

    Attributes:
        scheme: the scheme of its URLs.
        endpoint: where it is.
        environ: variables with its credentials.
        wrong: variables with others, which it refuses; {} if it takes any.
        named: the variable that names an endpoint.
        s3: the same objects for clients of S3; "" if it does not speak that.
    """

    scheme: str
    endpoint: str
    environ: Mapping[str, str]
    wrong: Mapping[str, str] = field(default_factory=dict)
    named: str = "AWS_ENDPOINT_URL"
    s3: str = ""


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


@contextmanager
def serving(kind: str, directory: Path) -> Iterator[Server]:
    """Run one of the servers: "moto" and "rclone" for S3, "azurite" for Azure, "xml" for Google.

    No emulator of Google's storage has the uploads of its XML API, which obstore uses. They are those of S3 with other
    names for conditions (https://cloud.google.com/storage/docs/xml-api/reference-headers), so "xml" is moto behind
    these names.
    """
    if kind == "azurite":
        account = {"AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT}
        with azurite(directory) as url:
            keys = {key: account | {"AZURE_STORAGE_ACCOUNT_KEY": key} for key in (AZURE_KEY, "d3Jvbmc=")}
            yield Server("az", url, keys[AZURE_KEY], keys["d3Jvbmc="], "AZURE_STORAGE_ENDPOINT")
    elif kind == "xml":
        none = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        with moto() as behind, forwarding(behind, change=_of_s3) as url:
            yield Server("gs", url, {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(none)}, {}, "GOOGLE_BASE_URL", behind)
    elif kind == "rclone":
        with rclone(directory) as url:
            yield Server("s3", url, KEYS, KEYS | {"AWS_SECRET_ACCESS_KEY": "wrong"}, s3=url)
    else:
        with moto() as url:
            yield Server("s3", url, KEYS, s3=url)


def _of_s3(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a request for Google's XML API as S3 names them."""
    sent = {name.replace("x-goog-", "x-amz-"): value for name, value in headers.items()}
    if sent.pop("x-amz-if-generation-match", None) == "0":
        sent["if-none-match"] = "*"
    return sent | _SIGNED


@contextmanager
def refusing(
    endpoint: str, method: str, times: int, status: int = 503, *, path: str = "", delay: float = 0
) -> Iterator[tuple[str, list[str]]]:
    """Forward requests to a server, but answer the first ones of a method with `status`; yield the URL and these.

    Of those whose path contains `path`. Each request takes `delay` seconds more.
    """
    refused: list[str] = []

    def refuse(command: str, name: str) -> int | None:
        time.sleep(delay)
        if command != method or path not in name or len(refused) >= times:
            return None
        refused.append(name)
        return status

    with forwarding(endpoint, refuse) as url:
        yield url + urlsplit(endpoint).path, refused


@contextmanager
def forwarding(
    endpoint: str,
    refuse: Callable[[str, str], int | None] = lambda method, path: None,
    change: Callable[[dict[str, str]], dict[str, str]] = lambda headers: headers,
    answer: Callable[[str, str, bytes], bytes | int | None] = lambda method, path, data: data,
    path: Callable[[str], str] = lambda path: path,
) -> Iterator[str]:
    """Forward requests to a server; yield the URL.

    Args:
        endpoint: the server.
        refuse: the status to answer a request with in its place, None for none.
        change: called with the headers of a request; returns those to send.
        path: called with the path of a request; returns the one to send.
        answer: called with the method and path of a request and the body of its reply; returns the body to send, or
            another status in place of the reply, None to hang up.
    """
    import urllib3

    target = "http://" + urlsplit(endpoint).netloc
    pool = urllib3.PoolManager()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _status(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if (status := refuse(self.command, self.path)) is not None:
                self._status(status)
                return
            sent = change({name.lower(): value for name, value in self.headers.items()})
            reply = pool.request(
                self.command, target + path(self.path), body=body or None, headers=sent, decode_content=False
            )
            data = answer(self.command, self.path, reply.data)
            if data is None:
                self.close_connection = True
                return
            if isinstance(data, int):
                self._status(data)
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = reply.headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def client(server: Server) -> Any:
    """A client of S3 for the server."""
    import boto3

    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "s3cret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=server.s3, **keys)


def tarkit_run(*words: str, exit: int = 0, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process: a copy of this one would have the threads of obstore, which do not run there."""
    ran = subprocess.run([*TARKIT, *words], capture_output=True, text=True, check=False, **how)
    assert ran.returncode == exit, ran.stderr
    return ran
