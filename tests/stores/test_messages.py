"""What is said when a store cannot be reached, or refuses: one clear line, and what to do."""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import subprocess
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.parse import quote

import pytest

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import buckets, connect
from tarkit.stores.store import StoreOptions, parse_options
from tests._tools import each_row, free_port, program
from tests.conftest import tar
from tests.stores._http import Handler, HttpServer, QuietServer, listening
from tests.stores._servers import KEYS, rclone, tarkit_run

QUICK = ("--net-retries", "0", "--net-timeout", "0.5")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials of s3://, which `said` unsets."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def said(*words: str, exit: int = 1, **variables: str) -> str:
    """Run a command without any credentials; return its messages."""
    buckets._open.cache_clear()
    connect._store.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AWS_", "HF_", "AIS_")):
                patch.delenv(name)
        for name, value in {"HOME": os.getcwd(), **variables}.items():
            patch.setenv(name, value)
        return tarkit_run(*words, *QUICK, exit=exit).stderr


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing, as HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """A server whose certificate nobody has signed but itself."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(
        [*words, "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = QuietServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_servers_that_cannot_be_reached(silent: str, closed: str, untrusted: str, here: Path) -> None:
    """Each is one line within the time-out, for reading by HTTP and by S3, and for listing and writing."""
    (here / "recipe").write_text("a.txt text:a\n")
    for address, scheme, words in (
        (silent, "http", "no byte came within the time-out"),
        (closed, "http", "connection refused"),
        ("no-such-host.invalid", "http", "cannot be resolved"),
        (untrusted, "https", "TLS error"),
    ):
        commands = (
            ["stats", f"{scheme}://{address}/a.tar"],
            ["stats", "s3://bucket/a.tar", "--endpoint-url", f"{scheme}://{address}"],
            ["stats", "s3://bucket/*.tar", "--endpoint-url", f"{scheme}://{address}"],
            ["create", "recipe", "-o", "s3://bucket/a.tar", "--endpoint-url", f"{scheme}://{address}"],
        )
        for command in commands:
            begun = time.monotonic()
            text = said(*command, **KEYS)
            assert time.monotonic() - begun < 8, command
            messages = [line for line in text.splitlines() if not line.startswith("hint:")]
            assert len(messages) == 1, text
            assert words in messages[0].lower() or words in messages[0], (command, text)
            assert len(messages[0]) < 200, text
            if scheme == "http" and "s3://" in " ".join(command):
                assert f"({address})" in messages[0]


def test_credentials(tmp_path: Path, here: Path) -> None:
    """None are set, wrong ones are, or --anonymous is given: the message says which, and how to give them."""
    with rclone(tmp_path) as endpoint:
        at = ("--endpoint-url", endpoint)
        for word in ("s3://bucket/a.tar", "s3://bucket/*.tar"):
            text = said("stats", word, *at)
            assert "no credentials" in text
            assert "AWS_ACCESS_KEY_ID" in text
            assert "--anonymous" in text
            text = said("stats", word, *at, "--anonymous")
            assert "no credentials were sent" in text
            assert "without --anonymous" in text
            assert "AWS_ACCESS_KEY_ID" in text
            text = said("stats", word, *at, **{**KEYS, "AWS_SECRET_ACCESS_KEY": "wr0ng"})
            assert "SignatureDoesNotMatch" in text
            assert "hint: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in text
            assert "wr0ng" not in text


def write(url: str, options: StoreOptions | None) -> object:
    return connect.create_object(url, options=options).close()


def test_credentials_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `storage_options` are named as such, and their values are not shown; without any, both ways are."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*KEYS, "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with rclone(tmp_path) as endpoint:
        given = {"endpoint_url": endpoint, "net_retries": 0, "net_timeout": 2}
        wrong = {**given, "access_key_id": "wr0ng", "secret_access_key": "s3cret"}
        for call in (connect.head_object, write):
            with pytest.raises(TarkitError, match="permission denied") as raised:
                call("s3://bucket/a.tar", parse_options(wrong))
            hint = raised.value.hint or ""
            assert hint.startswith("check storage_options['access_key_id'] and storage_options['secret_access_key']; ")
            assert "s3cret" not in f"{raised.value} {hint}"
            with pytest.raises(TarkitError, match="no credentials") as raised:
                call("s3://bucket/a.tar", parse_options(given))
            assert "give access_key_id and secret_access_key in storage_options" in (raised.value.hint or "")
        monkeypatch.setenv("AWS_PROFILE", "mine")
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / "credentials").write_text("[mine]\naws_access_key_id=x\naws_secret_access_key=y\n")
        with pytest.raises(TarkitError, match="permission denied") as raised:
            connect.head_object("s3://bucket/a.tar", parse_options({**given, "net_timeout": 3}))
        assert (raised.value.hint or "").startswith("check the profile of AWS_PROFILE in ~/.aws; ")


@each_row("bucket", ["b ucket", "b\nu", "b@c", "b?c", "..", "[::1]", "é", "\x00"])
def test_buckets_that_cannot_be(bucket: str) -> None:
    for call in (connect.open_object, connect.create_object):
        with pytest.raises(Usage, match="not the name of a bucket"):
            call(f"s3://{bucket}/k")


ENDPOINTS = [
    "", "http://", "http://h:99999", "http://h:0", "http://h:-1", "http://h:port", "http://[::1", "http://h h/",
    "http:///x", "http://é", "http://127.0.0.1:9\n", "http://127.0.0.1:9/?a=b", "http://127.0.0.1:9/#a",
    "http://:9", "http://%zz", "http://..", "http://xn--zzzzzzzz--", "http://me:s3cret@[::", "ftp://127.0.0.1:9",
    "127.0.0.1:9",
]  # fmt: skip


@each_row("scheme", ["s3", "gs", "az"])
@each_row("endpoint", ENDPOINTS)
def test_endpoints_that_cannot_be(
    scheme: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By an option, or a variable; the library panics at most of them."""
    url = f"{scheme}://bucket/k"
    variable = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}[scheme]
    with pytest.raises(Usage, match="an endpoint is a URL"):
        connect.open_object(url, StoreOptions(endpoint_url=endpoint, retries=0))
    monkeypatch.setenv(variable, endpoint)
    for call in (connect.open_object, connect.create_object):
        with pytest.raises(Usage, match=f"^{variable} .*an endpoint is a URL") as raised:
            call(url, options=StoreOptions(retries=0))
        assert "s3cret" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_the_endpoint_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in (*KEYS, "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://h:99999\n")
    with pytest.raises(Usage, match="endpoint_url of the AWS profile http://h:99999: an"):
        connect.head_object("s3://bucket/a.tar", StoreOptions(retries=0))


@each_row("endpoint", ["http://127.0.0.1:9/a/b_c", "https://[::1]:9", "http://me:pass@localhost:9", "http://a_b.c-d/"])
def test_endpoints_that_can_be(endpoint: str) -> None:
    for scheme in ("s3", "gs"):
        assert buckets.open_bucket(scheme, "bucket", StoreOptions(endpoint_url=endpoint, anonymous=True))


def test_web_servers(server: HttpServer, here: Path) -> None:
    """They cannot be listed; a login is asked for, or was refused."""
    for word in ("/x-*.tar", "/d/"):
        text = said("stats", f"{server.url}{word}")
        assert "No such file" in text
        assert "braces" in text
    assert "braces" not in said("stats", f"{server.url}/x.tar")
    url = server.serve("/a.tar", b"", statuses=[401, 401, 403])
    assert "no login was sent" in said("stats", url)
    assert "without --anonymous" in said("stats", url, "--anonymous")
    assert "the login was not accepted" in said("stats", url.replace("//", "//me:s3cret@"))


def test_servers_that_send_no_parts(here: Path, server: HttpServer) -> None:
    """With -v there is a line for each store, not for each object."""
    data = tar({"a.txt": b"a"})
    urls = [server.serve(f"/{n}.tar", data, ranges=False) for n in range(3)]
    other = [server.serve(f"/{n}.tar", data, etag=None) for n in range(3, 5)]
    line = "the server sends no parts of objects: each is read whole, by one request"
    text = said("stats", "-v", *urls, exit=0)
    assert text.count(f"tarkit: {server.url}: {line}\n") == text.count("the server") == 1
    text = said("stats", "-v", *other, exit=0)
    assert text.count("the server does not name version and length of objects") == text.count("the server") == 1
    for quiet in ([], ["-v", "-q"]):
        assert "the server" not in said("stats", *quiet, *urls, exit=0)


def test_a_server_without_tls(server: HttpServer, here: Path) -> None:
    """One line says how to reach it; after a redirect it is the server that was redirected to."""
    address = server.url.removeprefix("http://")
    expected = f"the server at {address} speaks plain HTTP: use http://"
    assert said("stats", f"https://{address}/a.tar") == f"tarkit: https://{address}/a.tar: {expected}\n"
    url = server.serve("/b.tar", statuses=[302], headers={"Location": f"https://{address}/a.tar"})
    assert said("stats", url) == f"tarkit: {url}: {expected}\n"
    for name, url in (("HF_ENDPOINT", "hf://datasets/o/n/a.tar"), ("AIS_ENDPOINT", "ais://b/a.tar")):
        assert expected in said("stats", url, **{name: f"https://{address}"})


# ---- s3://: what failed decides, whatever words the server sends

WORDS = [
    "timeout", "timed", "out", "TimedOut", "kind:", "Timeout", "certificate", "InvalidCertificate", "dns", "error",
    "failed", "to", "lookup", "Connection", "refused", "ConnectionReset", "reset", "by", "peer", "IncompleteBody",
    "unexpected", "EOF", "BareRedirect", "builder", "error", "status", "code:", "200", "-", "Server", "returned",
    "non-2xx", "status", "code:", "999", "token", "request", "http://169.254.169.254/", "inner:", "BareRedirect",
    "Received non-partial response", "Wanted range starting at",
]  # fmt: skip


@contextmanager
def answering(answer: Callable[[socket.socket], None], whole: bool = True) -> Iterator[str]:
    """A server that reads a request, if it is `whole`, and answers; yield its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    data = client.recv(65536)
                    while whole and data and b"\r\n\r\n" not in data:
                        data += client.recv(65536)
                    answer(client)
                    client.close()

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def sends(data: bytes) -> Callable[[socket.socket], None]:
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


HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nETag: "1"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n'
FAILURES: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "closed": (lambda client: None, "the server closed the connection"),
    "half": (sends(b"HTTP/1.1 200 OK\r\nContent-Le"), "the server closed the connection"),
    "body": (sends(HEAD + b"abc"), "the reply ended early"),
    "reset": (reset, "the connection was reset"),
    "ssh": (sends(b"SSH-2.0-OpenSSH\r\n\r\n"), "the server does not answer in HTTP"),
    "stall": (lambda client: time.sleep(2), "no byte came within the time-out (127.0.0.1:"),
    "region": (sends(body("301 Moved Permanently", b"")), "is the bucket in another region?"),
}


@each_row("kind", sorted(FAILURES))
def test_a_connection_that_fails(kind: str) -> None:
    answer, expected = FAILURES[kind]
    with answering(answer) as address:
        said = failure(f"http://{address}", what=connect.read_object)
    assert expected in said
    assert ("time-out" in said) == (kind == "stall")


def test_tls_to_a_server_without() -> None:
    with answering(sends(body("400 Bad Request", b"")), whole=False) as address:
        assert "the server answers without TLS" in failure(f"https://{address}", 5)


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
    with answering(sends(body(status, xml.encode()))) as address:
        said = failure(f"http://{address}", what=connect.open_object)
    assert expected in said
    assert not any(words in said for words in ("time-out", "TLS error", "no credentials"))


# ---- Proxies: their logins are sent, to them alone

ONCE = StoreOptions(retries=0, timeout=5)
URLS = {
    "http": "http://data.example/x.tar",
    "https": "https://data.example/x.tar",
    "hf": "hf://datasets/o/n/x.tar",
    "ais": "ais://b/x.tar",
    "s3": "s3://bucket/x.tar",
}


class Proxy(Handler):
    """A proxy that answers every request with a status. `log` has their logins."""

    host = ""
    status = 404
    log: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        login = self.headers.get("Proxy-Authorization")
        self.log.append(login and b64decode(login.removeprefix("Basic ")).decode())
        self.answer(Proxy.status)

    do_CONNECT = do_HEAD = do_GET


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Proxy]]:
    Proxy.log.clear()
    monkeypatch.setattr(Proxy, "status", 404)
    with listening(Proxy) as url:
        monkeypatch.setattr(Proxy, "host", url.removeprefix("http://"))
        yield Proxy


def use_proxy(patch: pytest.MonkeyPatch, host: str, secure: bool) -> None:
    """Name a proxy, and servers behind it."""
    for name in ("http_proxy", "https_proxy"):
        patch.setenv(name, f"http://{host}")
    start = "https" if secure else "http"
    for name in ("HF_ENDPOINT", "AIS_ENDPOINT", "AWS_ENDPOINT_URL"):
        patch.setenv(name, f"{start}://data.example")
    connect._store.cache_clear()
    buckets._open.cache_clear()


def behind(url: str) -> str:
    try:
        connect.head_object(url, ONCE)
    except (TarkitError, FileNotFoundError) as error:
        return str(error)
    raise AssertionError("no error")


@each_row("seed", range(12))
@each_row("scheme", sorted(URLS))
def test_the_login_is_sent(scheme: str, seed: int, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """In each request for http://, in the request for a tunnel for https://; with any characters."""
    pick = random.Random(seed)
    user, password = ("".join(pick.choices("aZ0 :@/?#%&é~+", k=pick.randrange(1, 9))) for _ in range(2))
    user = user.replace(":", "")
    secure = bool(seed % 2)
    use_proxy(monkeypatch, f"{quote(user, safe='')}:{quote(password, safe='')}@{proxy.host}", secure)
    proxy.log.clear()
    said = behind(URLS[scheme])
    assert set(proxy.log) == {f"{user}:{password}"}
    assert f":{password}@" not in said


@each_row("secure", [False, True])
@each_row("scheme", sorted(URLS))
def test_a_proxy_that_fails(scheme: str, secure: bool, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """It wants a login, or is down and is named; the login is not shown."""
    proxy.status = 407
    down = f"127.0.0.1:{free_port()}"
    for host, expected in ((proxy.host, ["the proxy wants a login"]), (down, [f"the proxy {down}", "refused"])):
        use_proxy(monkeypatch, f"me:s3cret@{host}", secure)
        said = behind(URLS[scheme])
        assert all(words in said for words in expected), said
        assert "time-out" not in said
        assert "s3cret" not in said


@each_row("status", [403, 502, 503])
def test_a_proxy_that_does_not_connect(status: int, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.status = status
    use_proxy(monkeypatch, proxy.host, secure=True)
    assert f"the proxy {proxy.host} answers {status}" in behind(URLS["https"])
    assert "the proxy does not connect to the server" in behind(URLS["s3"])


def test_a_proxy_that_cannot_be_used(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("http://me:s3/cr#et@[::", "socks5://127.0.0.1:1", "http://127.0.0.1:bad", "http://me:cr#et@[::1"):
        monkeypatch.setenv("http_proxy", value)
        with pytest.raises(Usage, match="cannot be used") as raised:
            connect.head_object(URLS["http"], ONCE)
        assert "cr#et" not in str(raised.value)


def test_a_proxy_without_a_scheme(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy.host)
    assert "No such file" in behind(URLS["http"])
    assert len(proxy.log) == 1


def test_hosts_without_a_proxy(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    use_proxy(monkeypatch, proxy.host, secure=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert "refused" in behind(f"http://127.0.0.1:{closed.getsockname()[1]}/x.tar")
    assert proxy.log == []
