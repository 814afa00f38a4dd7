"""Servers of object stores on loopback, each a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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

        urllib3.request(
            "PUT", f"{url}/bucket", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=key/1/us-east-1/s3/x"}
        )
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
def refusing(endpoint: str, method: str, times: int) -> Iterator[tuple[str, list[str]]]:
    """Forward requests to a server, the first ones of a method answered by 503; yield the URL and what was refused."""
    import urllib3

    refused: list[str] = []
    pool = urllib3.PoolManager()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == method and len(refused) < times:
                refused.append(self.path)
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            reply = pool.request(self.command, endpoint + self.path, body=body or None, headers=dict(self.headers))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", reply.headers.get("Content-Length") or str(len(reply.data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", refused
    finally:
        server.shutdown()
        server.server_close()
