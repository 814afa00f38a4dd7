"""What is said when a request for s3:// fails: by what failed, whatever words the server sends."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

pytest.importorskip("obstore")

from tarkit.errors import TarkitError
from tarkit.stores import connect, retry
from tarkit.stores.store import StoreOptions
from tests._tools import each_row, free_port
from tests.stores._servers import KEYS

WORDS = [
    "timeout", "timed", "out", "TimedOut", "kind:", "Timeout", "certificate", "InvalidCertificate", "dns", "error",
    "failed", "to", "lookup", "Connection", "refused", "ConnectionReset", "reset", "by", "peer", "IncompleteBody",
    "unexpected", "EOF", "BareRedirect", "builder", "error", "status", "code:", "200", "-", "Server", "returned",
    "non-2xx", "status", "code:", "999", "token", "request", "http://169.254.169.254/", "inner:", "BareRedirect",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def answering(answer: Callable[[socket.socket], None], whole: bool = True) -> Iterator[str]:
    """A server that reads a request, if it is `whole`, and answers; yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(20)

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                    data = client.recv(65536)
                    while whole and data and b"\r\n\r\n" not in data:
                        data += client.recv(65536)
                    answer(client)
                    client.close()
                except OSError:
                    return

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def send(data: bytes) -> Callable[[socket.socket], None]:
    return lambda client: client.sendall(data)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def body(status: str, text: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(text), text)


def failure(endpoint: str, timeout: float = 1, what: Callable[..., object] = connect.head_object) -> str:
    with pytest.raises((TarkitError, FileNotFoundError)) as raised:
        what("s3://bucket/x.tar", StoreOptions(endpoint_url=endpoint, retries=0, timeout=timeout))
    said = str(raised.value)
    assert "\n" not in said
    assert "uploadId" not in said
    return said


FAILURES: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "closed": (lambda client: None, "the server closed the connection"),
    "half": (send(b"HTTP/1.1 200 OK\r\nContent-Le"), "the server closed the connection"),
    "reset": (reset, "the connection was reset"),
    "ssh": (send(b"SSH-2.0-OpenSSH\r\n\r\n"), "the server does not answer in HTTP"),
    "stall": (lambda client: time.sleep(2), "no byte came within the time-out (127.0.0.1:"),
    "region": (send(body("301 Moved Permanently", b"")), "is the bucket in another region?"),
}


@each_row("kind", sorted(FAILURES))
def test_a_connection_that_fails(kind: str) -> None:
    answer, expected = FAILURES[kind]
    with answering(answer) as address:
        said = failure(f"http://{address}", what=connect.open_object)
    assert expected in said
    assert ("time-out" in said) == (kind == "stall")


def test_servers_that_are_not_there() -> None:
    port = free_port()
    assert f"connection refused (127.0.0.1:{port})" in failure(f"http://127.0.0.1:{port}")
    assert "the name of the host cannot be resolved (no-such.invalid)" in failure("http://no-such.invalid")


def test_tls_to_a_server_without() -> None:
    with answering(send(body("400 Bad Request", b"")), whole=False) as address:
        assert "the server answers without TLS" in failure(f"https://{address}", 5)


def test_a_body_that_ends_early() -> None:
    head = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nETag: "1"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n'
    )
    with answering(send(head + b"abc")) as address:
        assert "the reply ended early" in failure(f"http://{address}", what=connect.read_object)


@each_row("seed", range(40))
def test_words_of_the_server_do_not_decide(seed: int) -> None:
    """The status does, for replies with any text."""
    pick = random.Random(seed)
    status, expected = pick.choice([
        ("503 Service Unavailable", "the server answers 503"),
        ("500 Internal Server Error", "the server answers 500"),
        ("403 Forbidden", "permission denied"),
        ("404 Not Found", "No such file or directory"),
        ("400 Bad Request", "the server answers 400"),
        ("301 Moved", "another region"),
    ])  # fmt: skip
    text = " ".join(pick.choices(WORDS, k=8))
    xml = f'<Error><Code>Odd</Code><Message>"{text}\\" {text}</Message></Error>'
    with answering(send(body(status, xml.encode()))) as address:
        said = failure(f"http://{address}", what=connect.open_object)
    assert expected in said
    assert said.count("time-out") == 0
    assert "TLS error" not in said
    assert "no credentials" not in said
