"""Proxies: their logins are sent, to them alone, and messages say what is wrong with them."""

from __future__ import annotations

import random
import socket
from base64 import b64decode
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import quote

import pytest

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import buckets, connect
from tarkit.stores.store import StoreOptions
from tests._tools import each_row, free_port
from tests.stores._http import Handler, listening
from tests.stores._servers import KEYS

OPTIONS = StoreOptions(retries=0, timeout=5)
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
        """Answer any request."""
        login = self.headers.get("Proxy-Authorization")
        self.log.append(login and b64decode(login.removeprefix("Basic ")).decode())
        self.answer(Proxy.status)

    do_CONNECT = do_HEAD = do_GET


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Proxy]]:
    for name in ("all_proxy", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    Proxy.log.clear()
    monkeypatch.setattr(Proxy, "status", 404)
    with listening(Proxy) as url:
        monkeypatch.setattr(Proxy, "host", url.removeprefix("http://"))
        yield Proxy


def use(patch: pytest.MonkeyPatch, host: str, secure: bool) -> None:
    """Name a proxy, and servers behind it."""
    for name in ("http_proxy", "https_proxy"):
        patch.setenv(name, f"http://{host}")
    start = "https" if secure else "http"
    for name in ("HF_ENDPOINT", "AIS_ENDPOINT", "AWS_ENDPOINT_URL"):
        patch.setenv(name, f"{start}://data.example")
    connect._store.cache_clear()
    buckets._open.cache_clear()


def failure(url: str) -> str:
    try:
        connect.head_object(url, OPTIONS)
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
    use(monkeypatch, f"{quote(user, safe='')}:{quote(password, safe='')}@{proxy.host}", secure)
    proxy.log.clear()
    said = failure(URLS[scheme])
    assert set(proxy.log) == {f"{user}:{password}"}
    assert f":{password}@" not in said


@each_row("secure", [False, True])
@each_row("scheme", sorted(URLS))
def test_a_proxy_that_wants_a_login(
    scheme: str, secure: bool, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.status = 407
    use(monkeypatch, f"me:s3cret@{proxy.host}", secure)
    said = failure(URLS[scheme])
    assert "the proxy wants a login" in said
    assert "s3cret" not in said


@each_row("secure", [False, True])
@each_row("scheme", sorted(URLS))
def test_a_proxy_that_is_down(scheme: str, secure: bool, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and its login is not."""
    host = f"127.0.0.1:{free_port()}"
    use(monkeypatch, f"me:s3cret@{host}", secure)
    said = failure(URLS[scheme])
    assert f"the proxy {host}" in said
    assert "refused" in said
    assert "time-out" not in said
    assert "s3cret" not in said


@each_row("status", [403, 502, 503])
def test_a_proxy_that_does_not_connect(status: int, proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.status = status
    use(monkeypatch, proxy.host, secure=True)
    assert f"the proxy {proxy.host} answers {status}" in failure(URLS["https"])
    assert "the proxy does not connect to the server" in failure(URLS["s3"])


def test_a_proxy_that_cannot_be_used(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("http://me:s3/cr#et@[::", "socks5://127.0.0.1:1", "http://127.0.0.1:bad", "http://me:cr#et@[::1"):
        monkeypatch.setenv("http_proxy", value)
        with pytest.raises(Usage, match="cannot be used") as raised:
            connect.head_object(URLS["http"], OPTIONS)
        assert "cr#et" not in str(raised.value)


def test_a_proxy_without_a_scheme(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy.host)
    assert "No such file" in failure(URLS["http"])
    assert len(proxy.log) == 1


def test_hosts_without_a_proxy(proxy: type[Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, proxy.host, secure=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert "refused" in failure(f"http://127.0.0.1:{closed.getsockname()[1]}/x.tar")
    assert proxy.log == []
