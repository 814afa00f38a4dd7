"""A server of S3 that sends objects late: `python _bench_s3.py DIRECTORY MILLISECONDS` prints its port.

Buckets are subdirectories; it answers GET and HEAD. A GET of /-/counts returns the numbers of requests and of bytes
since the last one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

COUNTS = "/-/counts"


class Handler(BaseHTTPRequestHandler):
    """Answers requests, each after a delay."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    directory = ""
    delay = 0.0  # seconds
    counts: ClassVar = [0, 0]
    lock = threading.Lock()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Send an object, or a part of it."""
        path = unquote(urlsplit(self.path).path)
        if path == COUNTS:
            with self.lock:
                said = "{} {}".format(*self.counts)
                self.counts[:] = 0, 0
            self._send(200, said.encode())
            return
        with self.lock:
            self.counts[0] += 1
        time.sleep(self.delay)
        try:
            fd = os.open(self.directory + path, os.O_RDONLY)
        except OSError:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        try:
            self._send_file(fd)
        except OSError:  # the client has enough
            self.close_connection = True
        finally:
            os.close(fd)

    do_HEAD = do_GET

    def _send_file(self, fd: int) -> None:
        found = os.fstat(fd)
        start, stop, status = 0, found.st_size, 200
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop, status = int(first), min(int(last) + 1 if last else stop, stop), 206
        self.send_response(status)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{found.st_ino:x}-{found.st_mtime_ns:x}"')
        self.send_header("Last-Modified", formatdate(found.st_mtime, usegmt=True))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{found.st_size}")
        self.end_headers()
        self.wfile.flush()
        while self.command == "GET" and start < stop:
            count = os.sendfile(self.connection.fileno(), fd, start, min(stop - start, 1 << 18))
            start += count
            with self.lock:
                self.counts[1] += count

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server for many connections at a time."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, but not that a command has ended before its replies."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    Handler.directory, Handler.delay = sys.argv[1], float(sys.argv[2]) / 1000
    listening = Server(("127.0.0.1", 0), Handler)
    print(listening.server_address[1], flush=True)
    listening.serve_forever()
