"""Odd replies of servers: the right bytes or one clear line; never a traceback, never fewer bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import connect, hub, reading
from tarkit.stores.store import StoreOptions
from tests._tools import archive, each_row
from tests.conftest import Run
from tests.stores._http import HttpServer

DATA = archive({f"{n}.bin": random.Random(n).randbytes(9000) for n in range(9)})
QUICK = StoreOptions(retries=1, timeout=0.4)
DATE = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
COMMIT = "a" * 40
HUGE = "9" * 5000  # more digits than `int` takes
TEXTS = ["", " ", "-1", "+5", "1_0", "1e3", "0x10", "1, 1", "1 2", "\xb2", "\xff", "\x01\x1b[31m", "9" * 18, HUGE]
"""Values of headers that are no numbers, or huge ones."""

HEADERS = [
    "Content-Length", "Content-Range",
    "ETag", "Last-Modified", "Accept-Ranges", "Content-Encoding", "Repr-Digest", "Digest", "Content-MD5",
    "x-goog-hash", "x-amz-checksum-sha256", "x-amz-checksum-crc32", "Transfer-Encoding", "Content-Type", "Location",
    "Retry-After",
]  # fmt: skip
RANGES = [
    "bytes", "bytes 0-", "bytes -", "bytes 5-3/10", "bytes 0-9/5", "bytes 0-9/*", "bytes */*", "bytes */10",
    "bytes */0", "bytes 0-0/1", f"bytes 0-{HUGE}/{HUGE}", f"bytes 0-{'9' * 18}/*", "items 0-99/100",
    "bytes 0-99/100, bytes 0-99/100",
]  # fmt: skip
LOCATIONS = [
    "", "#", "?", "/", "//", "http:", "http://", "http:x", "https://", "http://[::1", "http://[::1/x",
    "http://127.0.0.1:99999/", "http://:80/", "http://127.0.0.1:abc/", "http://a b/", "http://../", "http://\xff/",
    "http://\x01/", "http://[v1.x]/", "http://me:s3cret@[::1/", "file:///etc/passwd", "ftp://127.0.0.1/a",
    "gopher://127.0.0.1/a", "data:,x", "javascript:x", "s3://bucket/a", "\x01", "\xe2\x85\xb7",
    f"http://{'a' * 300}.invalid/", f"/{'x' * 60_000}", "/loop", "http://user:s3cret@127.0.0.1:1/",
]  # fmt: skip
STATUSES = [
    101, 201, 202, 203, 204, 205, 206, 207, 226, 299, 300, 301, 302, 303, 304, 305, 306, 307, 308, 400, 416, 600,
    999,
]  # fmt: skip
RAW = [
    b"", b"\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 99 OK\r\n\r\n",
    b"HTTP/1.1 -200 OK\r\n\r\n", b"HTTP/9 200 OK\r\n\r\n", b"SSH-2.0-x\r\n", b"<html>\r\n\r\n", b"\xff" * 100,
    b"HTTP/1.1 200 " + b"x" * 70_000, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc",
    b"HTTP/1.1 404 \x1b[31m\x07bad\r\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=x\r\n\r\n--x--",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 3, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nETag: \"1\"\r\n\r\nabc",
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 9\r\nETag: \"1\"\r\n\r\nabcdefghi",
]  # fmt: skip


@pytest.fixture
def server(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> HttpServer:
    """A server, with small ranges; it is the Hub, and a cluster of AIStore, as well."""
    monkeypatch.setattr(reading, "FIRST", 10_000)
    monkeypatch.setattr(reading, "LARGEST", 40_000)
    monkeypatch.setattr(hub, "_commits", {})
    for name in ("HF_ENDPOINT", "AIS_ENDPOINT"):
        monkeypatch.setenv(name, server.url)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "name")
    connect.configure(QUICK.replace(endpoint_url=server.url, anonymous=True))
    return server


def tried(call: Callable[..., object], *arguments: object) -> object:
    """Return what a call returns, None for a clear error; any other error is raised."""
    try:
        return call(*arguments)
    except (TarkitError, FileNotFoundError) as error:
        text = f"{error} {getattr(error, 'hint', '')}"
    assert text.isprintable(), text
    assert len(text) < 500, text
    assert "s3cret" not in text
    return None


def read(url: str) -> bytes:
    return connect.open_object(url).read_all()


def names(url: str) -> list[str]:
    return [info.url for info in connect.list_objects(url, QUICK)]


def served(scheme: str, server: HttpServer, data: bytes = b"", **how: object) -> str:
    """Serve an object; return its URL, that of a bucket at this server but for http."""
    url = server.serve("/bucket/a", data, **how)
    return url if scheme == "http" else f"{scheme}://bucket/a"


def reply(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [
        f"{name.replace('_', '-')}: {value}" for name, value in {"Content_Length": str(len(body)), **headers}.items()
    ]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1") + body


@each_row(
    ("name", "text", "ranges"),
    [
        *product(HEADERS, TEXTS, [True]),
        *product(["Content-Length", "ETag", "Location"], TEXTS, [False]),
        *product(["Content-Range"], RANGES, (True, False)),
        *product(["Transfer-Encoding"], ["gzip", "identity", "chunked, gzip", "chunked, chunked"], [True]),
    ],
)
def test_odd_headers(name: str, text: str, ranges: bool, server: HttpServer) -> None:
    got = tried(read, server.serve("/a", DATA, ranges=ranges, headers={name: text, "Connection": "close"}))
    assert got in (None, DATA)


@each_row(
    ("scheme", "status", "location"),
    [
        *product(["http", "s3", "az"], STATUSES, [None]),
        *product(["http"], [301], LOCATIONS),
        *product(["s3", "gs", "az"], [308], LOCATIONS[::3]),
    ],
)
def test_odd_statuses_and_redirects(scheme: str, status: int, location: str | None, server: HttpServer) -> None:
    headers = {**DATE, **({} if location is None else {"Location": location})}
    server.serve("/loop", statuses=[302] * 99, headers={"Location": "/loop"})
    url = served(scheme, server, DATA, statuses=[status] * 99, headers=headers)
    assert tried(read, url) is None
    served(scheme, server, DATA, statuses=[503], headers={**DATE, "Retry-After": location or HUGE})
    assert tried(read, url) in (None, DATA)


@each_row(("scheme", "raw"), [*product(["http", "s3"], RAW), *product(["gs", "az"], RAW[::4])])
def test_odd_bytes(scheme: str, raw: bytes, server: HttpServer) -> None:
    url = served(scheme, server, raw=raw)
    got = tried(read, url)
    assert got in (None, b"abc") or raw.endswith(b"\r\n\r\n"), got


JSON = [
    b"", b"null", b"1", b'"x"', b"[]", b"{}", b"[1]", b"[[]]", b"[null]", b"[{}]", b'[{"path": 1}]',
    b'[{"path": "a", "type": 1}]', b"\xff\xfe", b"NaN", b"{", b'[{"type": "file", "path": "a"}]',
    b'[{"type": "file", "path": "a", "size": "x"}]', b'[{"type": "file", "path": "a", "size": -1}]',
    b'[{"type": "file", "path": "a", "size": 1.5}]', b'[{"type": "file", "path": "a", "size": true}]',
    b'[{"type": "file", "path": 1, "size": 1}]', b'[{"type": "file", "path": "a", "size": 1, "lfs": 1}]',
    b'[{"type": "file", "path": "a", "size": 1, "lfs": {"oid": 1}}]',
    b'[{"type": "file", "path": "\\ud800", "size": 1}]', b'[{"type": "file", "path": "a\\u0000b", "size": 1}]',
    b'{"entries": 1}', b'{"entries": [1]}', b'{"entries": [{}]}', b'{"entries": [{"name": 1}]}',
    b'{"entries": [{"name": "a", "size": "x"}]}', b'{"entries": [{"name": "a", "size": -1}]}',
    b'{"entries": [{"name": "a", "size": {}}]}', b'{"entries": [{"name": "a", "version": 1}]}',
    b'{"entries": [{"name": "\\ud800", "size": "1"}]}', b'{"entries": {}}', b'{"entries": "x"}',
    b'{"entries": [{"name": "a", "size": "' + HUGE.encode() + b'"}]}', b'{"continuation_token": 1}',
    b'{"continuation_token": "x"}', b'{"continuation_token": ["x"], "uuid": 1}', b'{"sha": 1}', b'{"sha": "../../x"}',
    b'{"sha": "x\\r\\ny"}', b'{"sha": null}', b'[{"size": ' + HUGE.encode() + b"}]", b"[" * 100_000,
    b'{"a":' * 100_000, b"<!doctype html><title>Sign in</title>", b"\x1f\x8b\x08", b'{"error": "x"}', b"true",
]  # fmt: skip


@each_row("body", JSON)
def test_odd_json(body: bytes, server: HttpServer) -> None:
    """As a list, as the description of a revision, and as the reason of an error."""
    connect._store.cache_clear()
    raw = reply(body)
    server.serve(f"/api/datasets/o/n/tree/{COMMIT}", raw=raw)
    server.serve("/api/datasets/o/n/revision/main", raw=raw)
    server.serve("/v1/buckets/b", raw=raw)
    server.serve("/v1/objects/b/refused", raw=reply(body, "400 Bad Request"))
    error = body[:1000].decode("latin-1").replace("\n", "")
    server.serve("/v1/objects/b/denied", raw=reply(body, "403 Forbidden", Hdr_Error=error))

    found = tried(names, f"hf://datasets/o/n@{COMMIT}/")
    assert found in (None, []) or b'"lfs"' in body or b"a\\u0000b" in body, found
    assert tried(names, "ais://b/") is None
    for url in ("hf://datasets/o/n/a", "ais://b/refused", "ais://b/denied"):
        assert tried(read, url) is None
        assert tried(connect.head_object, url, QUICK) is None


def test_a_list_that_never_ends(server: HttpServer) -> None:
    """A next page that was there before is an error."""
    server.serve(f"/api/datasets/o/n/tree/{COMMIT}", raw=reply(b"[]", Link=f'<{server.url}/api/x>; rel="next"'))
    server.serve("/api/x", raw=reply(b"[]", Link=f'<{server.url}/api/x>; rel="next"'))
    server.serve("/v1/buckets/b", raw=reply(b'{"entries": [{"name": "a"}], "continuation_token": "a", "uuid": "x"}'))
    for url in (f"hf://datasets/o/n@{COMMIT}/", "ais://b/"):
        assert tried(names, url) is None


@each_row(
    ("name", "text"),
    [
        *product(["Content-Length", "X-Linked-Size", "X-Linked-ETag", "ETag", "Ais-Version", "Ais-Custom-Md"], TEXTS),
        *product(["Location"], LOCATIONS[::3]),
        *product(["X-Error-Code", "RateLimit", "Retry-After"], TEXTS),
    ],
)
def test_odd_headers_of_the_hub_and_of_a_cluster(name: str, text: str, server: HttpServer) -> None:
    connect._store.cache_clear()
    server.serve("/loop", statuses=[302] * 99, headers={"Location": "/loop"})
    for path, url in (
        (f"/datasets/o/n/resolve/{COMMIT}/a", f"hf://datasets/o/n@{COMMIT}/a"),
        ("/v1/objects/b/a", "ais://b/a"),
    ):
        status = {"Location": 307, "RateLimit": 429, "Retry-After": 503, "X-Error-Code": 404}.get(name)
        server.serve(path, DATA, statuses=[status] * 99 if status else [], headers={name: text, "Connection": "close"})
        assert tried(read, url) in (None, DATA)
        tried(connect.head_object, url, QUICK)
        tried(put, url)


def put(url: str) -> None:
    """Write an object, where the store can."""
    if url.startswith("ais"):
        upload = connect.create_object(url, options=QUICK)
        upload.write(b"data")
        upload.close()


@each_row("text", TEXTS)
def test_odd_versions_in_the_cache(text: str, server: HttpServer, tmp_path: Path) -> None:
    url = server.serve("/a", DATA, etag=None, headers={"ETag": text})
    for _ in range(2):
        cached = connect.open_cached(url, QUICK.replace(cache=str(tmp_path / "cache")))
        assert cached is None or os.pread(cached.fd, len(DATA) + 1, 0) == DATA


@each_row(
    ("how", "words"),
    [
        ({"headers": {"Content-Length": "\xb2"}}, "invalid Content-Length"),
        ({"headers": {"Content-Range": f"bytes 0-{HUGE}/*"}}, "another range"),
        ({"headers": {"Transfer-Encoding": "gzip"}}, "coding"),
        ({"statuses": [302] * 99, "headers": {"Location": "file:///etc/passwd"}}, "no valid http"),
        ({"statuses": [302] * 99, "headers": {"Location": "/a.tar"}}, "more than 10 redirects"),
        ({"statuses": [302] * 99}, "answers 302"),
        ({"statuses": [204] * 99}, "answers 204"),
        ({"statuses": [304] * 99}, "answers 304"),
        ({"raw": b"SSH-2.0-x\r\n"}, "SSH-2.0-x"),
        ({"raw": reply(b"", "418 \x1b[31mno")}, "418 \\x1b[31mno"),
        ({"raw": reply(b"<!doctype html><title>Sign in</title>" * 99, ETag="1")}, "a.tar"),
    ],
)
def test_the_command_line(how: dict[str, object], words: str, server: HttpServer, run: Run, here: Path) -> None:
    """One line, exit status 1, and no output."""
    url = server.serve("/a.tar", DATA, **how)
    ran = run("cat", url, "-o", "b.tar", "--net-retries", "0", "--net-timeout", "1", exit=1)
    lines = [line for line in ran.lines if not line.startswith("hint:")]
    assert len(lines) == 1, lines
    assert words in lines[0]
    assert not Path("b.tar").exists()


@each_row(
    "url",
    ["http://", "http:///a", "http://[::1/a", "http://h:99999/a", "http://h:x/a", "http://me:s3cret@[/a", "http:// /a"],
)
def test_urls_that_cannot_be_requested(url: str, server: HttpServer) -> None:
    with pytest.raises(Usage, match="not a valid URL") as caught:
        read(url)
    assert "s3cret" not in str(caught.value)


@each_row(
    "url", ["http://127.0.0.1:1/\udcff", "hf://datasets/o/n@\udcff/a", "hf://datasets/o/n/\udcff", "ais://b/\udcff"]
)
def test_urls_that_are_not_utf_8(url: str, server: HttpServer) -> None:
    """Words of the command line have such characters for bytes that are not UTF-8."""
    assert tried(read, url) is None


@each_row("name", ["HF_ENDPOINT", "AIS_ENDPOINT"])
def test_endpoints_that_are_no_urls(name: str, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in ("ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:99999"):
        monkeypatch.setenv(name, endpoint)
        connect._store.cache_clear()
        with pytest.raises(Usage, match=f"{name} is not a URL"):
            read({"HF_ENDPOINT": "hf://datasets/o/n/a", "AIS_ENDPOINT": "ais://b/a"}[name])
