"""A web server on loopback that serves bytes as told: with faults at chosen places."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from typing import Any


@dataclass
class Served:
    """An object of the server, and how replies for it go wrong.

    Attributes:
        data: its bytes.
        ranges: whether parts of it are sent.
        etag: its ETag, None for none.
        drop: bytes of a reply after which the connection is closed.
        drops: how many replies are cut so; None for all.
        every: bytes of all replies together after which, each time, a connection is closed.
        stall: bytes of a reply after which nothing more comes.
        statuses: statuses of the first replies, in place of 200.
        headers: further headers of each reply.
        chunked: send it chunked, without its length.
        longest: bytes of the longest range that is sent; a longer one is cut, which its header says.
        total: whether the header of a range has the length of the object.
        raw: the bytes that are sent in place of a reply; to a HEAD, those of its head.
        change: called with the number of the request before each reply; it may change any of this.
        requests, sent, closed, cut: how many requests there were, bytes that were sent, connections that `every`
            closed, replies that `drop` cut.
    """

    data: bytes = b""
    ranges: bool = True
    etag: str | None = '"1"'
    drop: int | None = None
    drops: int | None = None
    every: int | None = None
    stall: int | None = None
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    longest: int | None = None
    total: bool = True
    raw: bytes | None = None
    change: Callable[[Served, int], None] = lambda served, number: None
    requests: int = 0
    sent: int = 0
    closed: int = 0
    cut: int = 0


class HttpServer:
    """The server. `objects` are what it serves by path, `log` the requests: method, path, headers."""

    def __init__(self) -> None:
        self.objects: dict[str, Served] = {}
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.stop = threading.Event()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"served_by": self})
        self.server = QuietServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, path: str, data: bytes = b"", **how: Any) -> str:
        """Serve `data` at a path; return its URL."""
        self.objects[path] = Served(data, **how)
        return self.url + path

    def close(self) -> None:
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def http_server() -> Iterator[HttpServer]:
    server = HttpServer()
    try:
        yield server
    finally:
        server.close()


class QuietServer(ThreadingHTTPServer):
    """A server whose clients may go away."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing when a client goes away."""


class Handler(BaseHTTPRequestHandler):
    """The base of handlers: HTTP/1.1, and replies with a length."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def wanted(self, size: int) -> tuple[int, int] | None:
        """Return the range [start, stop) of `size` bytes that is requested; None for all."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        return None if found is None else (int(found[1]), min(int(found[2] or size) + 1, size))

    def send_part(self, data: bytes, headers: Mapping[str, str]) -> None:
        """Send what is requested of `data`, all or a range."""
        part = self.wanted(len(data))
        if part is None or self.command == "HEAD":
            self.answer(200, headers, data)
        elif part[0] >= len(data):
            self.answer(416, {**headers, "Content-Range": f"bytes */{len(data)}"})
        else:
            found = {**headers, "Content-Range": f"bytes {part[0]}-{part[1] - 1}/{len(data)}"}
            self.answer(206, found, data[slice(*part)])


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], **attributes: object) -> Iterator[str]:
    """Run a server whose handler has these attributes; yield its URL."""
    server = QuietServer(("127.0.0.1", 0), type("Made", (handler,), attributes))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(Handler):
    served_by: HttpServer

    def do_GET(self) -> None:
        """Send an object, or a part of it."""
        server = self.served_by
        path = self.path.partition("?")[0]
        if self.headers.get("Connection") != "close":  # then a client may wait for an answer before it sends a body
            self.body()
        with server.lock:
            server.log.append((self.command, self.path, dict(self.headers)))
            served = server.objects.get(path)
            if served is None:
                self.answer(404)
                return
            served.requests += 1
            served.change(served, served.requests)
            status = served.statuses.pop(0) if served.statuses else 200
        if served.raw is not None:
            head, line, body = served.raw.partition(b"\r\n\r\n")
            self.wfile.write(head + line + (b"" if self.command == "HEAD" else body))
            self.close_connection = True
            return
        if status != 200:
            self.answer(status, served.headers)
            return
        self._send(served)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _send(self, served: Served) -> None:
        part = self.wanted(len(served.data)) if served.ranges else None
        start, stop = part or (0, len(served.data))
        if part:
            if start >= len(served.data):
                self.answer(416, {"Content-Range": f"bytes */{len(served.data)}"})
                return
            stop = stop if served.longest is None else min(stop, start + served.longest)
        headers = {"Content-Length": str(stop - start), **({"Accept-Ranges": "bytes"} if served.ranges else {})}
        if served.chunked:
            headers = {"Transfer-Encoding": "chunked"}
        if served.etag is not None:
            headers["ETag"] = served.etag
        if part:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(served.data) if served.total else '*'}"
        self.send_response(206 if part else 200)
        for name, value in {**headers, **served.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._body(served, start, stop)

    def _body(self, served: Served, start: int, stop: int) -> None:
        drop = served.drop if served.drops is None or served.drops > 0 else None
        ends = [start + each for each in (drop, served.stall) if each is not None and start + each < stop]
        end = min([stop, *ends])
        try:
            for at in range(start, end, 1 << 16):
                piece = served.data[at : min(at + (1 << 16), end)]
                with self.served_by.lock:
                    served.sent += len(piece)
                    cut = served.every is not None and served.sent // served.every > served.closed
                    served.closed += cut
                if cut:
                    self.wfile.write(piece[: len(piece) // 2])
                    self._hang_up()
                    return
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if served.chunked else piece)
            if end == stop and served.chunked:
                self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            return
        if end < stop and end - start == served.stall:
            self.served_by.stop.wait(30)
        if end < stop:
            if end - start == drop:
                with self.served_by.lock:
                    served.cut += 1
                    served.drops = None if served.drops is None else served.drops - 1
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(SHUT_RDWR)
        except OSError:
            pass
