"""What is said when a store cannot be reached, or refuses: one clear line, and what to do."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import buckets, connect
from tarkit.stores.store import StoreOptions, parse_options
from tests._tools import each_row, program
from tests.stores._http import HttpServer, QuietServer
from tests.stores._servers import KEYS, rclone, tarkit_run

QUICK = ("--net-retries", "0", "--net-timeout", "0.5")


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
        (closed, "http", "refused"),
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
    url, variable = (
        f"{scheme}://bucket/k",
        {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"},
    )
    with pytest.raises(Usage, match="an endpoint is a URL"):
        connect.open_object(url, StoreOptions(endpoint_url=endpoint, retries=0))
    monkeypatch.setenv(variable[scheme], endpoint)
    for call in (connect.open_object, connect.create_object):
        with pytest.raises(Usage, match=f"^{variable[scheme]} .*an endpoint is a URL") as raised:
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
    (here / "recipe").write_text("a.txt text:a\n")
    tarkit_run("create", "recipe", "-o", "a.tar")
    data = Path("a.tar").read_bytes()
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
    for variables in ({"HF_ENDPOINT": f"https://{address}"}, {"AIS_ENDPOINT": f"https://{address}"}):
        url = "hf://datasets/o/n/a.tar" if "HF_ENDPOINT" in variables else "ais://b/a.tar"
        assert expected in said("stats", url, **variables)
