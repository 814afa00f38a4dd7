"""Reading over HTTP from a server whose replies go wrong: the right bytes, or an error; never fewer bytes."""

from __future__ import annotations

import random
import threading
import time
import traceback
import zlib
from base64 import b64encode
from email.utils import formatdate
from hashlib import md5, sha1, sha256, sha512
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect, reading, retry
from tarkit.stores.checksum import Checksum, named_by
from tarkit.stores.connect import open_object
from tarkit.stores.http import HttpStore
from tarkit.stores.object_prefetch import fetch
from tarkit.stores.reading import RemoteObject, Transfer
from tarkit.stores.store import StoreOptions, TryAgain
from tests._tools import archive, each_row
from tests.stores import _tools
from tests.stores._http import HttpServer, Served, http_server

pytestmark = pytest.mark.usefixtures("small_ranges")
DATA = random.Random(7).randbytes(3_000_000)
QUICK = StoreOptions(retries=3, timeout=0.5)


def opened(url: str) -> RemoteObject:
    return _tools.opened(HttpStore(QUICK), url)


def whole(url: str, options: StoreOptions = QUICK, lines: list[str] | None = None) -> bytes:
    return _tools.whole(HttpStore(options if lines is None else options.replace(tell=lines.append)), url)


@each_row(
    ("how", "requests"),
    [
        ({}, 9),
        ({"etag": 'W/"weak"'}, 9),
        ({"headers": {"Content-Encoding": "gzip"}}, 9),  # which is not decoded
        ({"ranges": False}, 1),
        ({"longest": 70_000}, None),  # shorter ranges than requested are continued
        # without a version or a length all of an object comes in one reply, which may be the first one
        ({"chunked": True}, None),
        ({"chunked": True, "ranges": False}, 1),
        ({"etag": None}, 2),
        ({"etag": None, "longest": 70_000}, 2),
        ({"etag": None, "ranges": False}, 1),
        ({"etag": None, "ranges": False, "chunked": True}, 1),
        ({"total": False}, 2),
        ({"total": False, "longest": 70_000}, 2),
    ],
)
def test_reads_all(how: dict[str, object], requests: int | None, server: HttpServer) -> None:
    """In few requests, and no byte twice but those of a first range that is of no use."""
    url = server.serve("/a", DATA, **how)
    assert whole(url) == DATA
    served = server.objects["/a"]
    assert requests in (None, served.requests)
    assert served.sent <= len(DATA) + (reading.FIRST if requests == 2 else 0)
    for data in (DATA[:100_000], DATA[:100_001], b"x", b""):
        assert whole(server.serve("/a", data, **how)) == opened(url).read_all() == data
        fetched = fetch(url, len(data), QUICK)
        assert (fetched.data if fetched.data is not None else fetched.stream().readall()) == data
    assert {headers["Accept-Encoding"] for _, _, headers in server.log} == {"identity"}


@each_row(("drop", "drops"), [(50_000, 20), (1, 3), (99_999, 1), (0, 3), (399_999, None)])
def test_a_connection_that_breaks_is_taken_up_at_its_byte(drop: int, drops: int | None, server: HttpServer) -> None:
    url = server.serve("/a", DATA, drop=drop, drops=drops)
    lines: list[str] = []
    assert whole(url, lines=lines) == DATA
    served = server.objects["/a"]
    assert served.sent == len(DATA)
    assert len(lines) == served.requests - 9  # see above
    assert all("trying again" in line and line.startswith(f"{url}: ") for line in lines)


@each_row(
    ("how", "error"),
    [
        ({"drop": 0}, "ended"),
        ({"stall": 10}, "time-out"),
        ({"statuses": [503] * 9}, "503"),
        ({"statuses": [500] * 9}, "500"),
        ({"statuses": [429] * 9, "headers": {"Retry-After": "0"}}, "429"),
        ({"statuses": [403]}, "403"),
        ({"statuses": [401]}, "401"),
        ({"statuses": [418]}, "418"),
        ({"statuses": [404]}, "No such file"),
        ({"drop": 1000, "etag": None}, "no version"),
        ({"drop": 1000, "ranges": False}, "parts"),
        ({"headers": {"Content-Range": "bytes 5-99/100"}}, "another range"),
        ({"headers": {"Content-Range": "bytes 0-1"}}, "another range"),
        ({"headers": {"Content-Length": "2000"}}, "2000 bytes, and says they are bytes 0 to 99999"),
        ({"headers": {"Content-Length": "4000000", "Connection": "close"}, "ranges": False}, "ended early"),
        *(({"statuses": [status] * 9}, f"answers {status}") for status in (202, 203, 204, 205, 207)),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_url(
    how: dict[str, object], error: str, server: HttpServer
) -> None:
    url = server.serve("/a", DATA, **how)
    with pytest.raises((TarkitError, OSError)) as caught:
        whole(url)
    hint = getattr(caught.value, "hint", "")
    assert error in f"{caught.value} {hint}"
    assert url in str(caught.value)


class Pauses:
    """Stands for the event that ends a pause: notes how long it would be."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


@each_row(
    ("text", "least", "most"), [("7", 7, 7), (None, 50, 60), ("9999", 60, 60), ("soon", 0, 0.01), ("-1", 0, 0.01)]
)
def test_retry_after_is_heeded(text: str | None, least: float, most: float, server: HttpServer) -> None:
    """A number or a date, but no longer than the time-out."""
    text = text or formatdate(time.time() + 55, usegmt=True)
    url = server.serve("/a", b"x", statuses=[503], headers={"Retry-After": text})
    with pytest.raises(TryAgain) as raised:
        HttpStore(QUICK).get(url, 0, None)
    pauses = Pauses()
    retry.RetryPolicy(StoreOptions(timeout=60), pauses).pause(url, raised.value)  # type: ignore[arg-type]
    assert least <= pauses.seconds[0] <= most


def test_an_object_that_changes_is_an_error(server: HttpServer) -> None:
    """Another ETag, another length, or another time in a later reply: no bytes of two versions."""

    def other_tag(served: Served, number: int) -> None:
        served.etag = '"2"' if number > 4 else served.etag

    def other_length(served: Served, number: int) -> None:
        served.data = served.data + b"x" if number == 5 else served.data

    def other_time(served: Served, number: int) -> None:
        served.headers = {"Last-Modified": f"Mon, 01 Jan 2024 00:00:0{number > 4:d} GMT"}

    for change, etag in ((other_tag, '"1"'), (other_length, '"1"'), (other_time, None)):
        url = server.serve("/a", DATA, change=change, etag=etag)
        with pytest.raises(TarkitError, match="has changed"):
            whole(url)


def test_logins_are_sent_and_not_shown(server: HttpServer, tmp_path: Path) -> None:
    url = server.serve("/a", b"x").replace("http://", "http://me:s3cret%21@")
    assert whole(url) == b"x"
    assert server.log[-1][2]["Authorization"] == "Basic bWU6czNjcmV0IQ=="
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login you password other\n")
    assert whole(server.serve("/a", b"x")) == b"x"
    assert server.log[-1][2]["Authorization"] == "Basic eW91Om90aGVy"
    assert whole(server.serve("/a", b"x"), StoreOptions(anonymous=True)) == b"x"
    assert "Authorization" not in server.log[-1][2]
    server.serve("/a", statuses=[401])
    with pytest.raises(TarkitError) as caught:
        whole(url)
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"


def test_redirects_are_followed_without_the_login(server: HttpServer) -> None:
    with http_server() as other:
        there = other.serve("/b", DATA).replace("127.0.0.1", "localhost")
        server.serve("/a", statuses=[302] * 99, headers={"Location": there})
        assert whole(server.url.replace("http://", "http://me:pw@") + "/a") == DATA
        assert "Authorization" in server.log[-1][2]
        assert "Authorization" not in other.log[-1][2]
        server.serve("/loop", statuses=[302] * 99, headers={"Location": f"{server.url}/loop"})
        with pytest.raises(TarkitError, match="redirects"):
            whole(server.url + "/loop")


@each_row("how", [{"longest": 7000}, {"statuses": [503] * 9}, {}])
def test_no_request_follows_after_close(how: dict[str, object], server: HttpServer) -> None:
    """`close` by another thread while a reply is on its way: its connection is closed, and there is no other one."""
    remote = opened(server.serve("/a", DATA[:50_000]))
    transfer_of = Transfer(remote, 100, 50_000)
    closed = threading.Event()

    def close(served: Served, number: int) -> None:
        if number == 2:
            transfer_of.close()
            closed.set()

    server.serve("/a", DATA[:50_000], change=close, requests=1 if how == {} else 0, **how)
    with pytest.raises(TarkitError, match="closed"):
        transfer_of.rest()
    assert closed.is_set()
    assert server.objects["/a"].requests == 2
    with pytest.raises(TarkitError, match="closed"):
        transfer_of.read(1)
    assert server.objects["/a"].requests == 2
    remote.close()


def test_an_object_without_a_version_is_not_mixed(server: HttpServer) -> None:
    """It may change from one range to the next, unseen."""

    def change(served: Served, number: int) -> None:
        served.data = bytes([number % 256]) * 1_000_000

    data = whole(server.serve("/a", b"x", etag=None, change=change))
    assert (len(data), len(set(data))) == (1_000_000, 1)


def test_a_token_with_a_line_end_is_in_no_message(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIS_ENDPOINT", server.url)
    token = "first\nsecond"
    with pytest.raises(TarkitError, match="a header is not valid") as caught:
        open_object("ais://b/a.tar", StoreOptions(storage={"token": token}))
    assert token.splitlines()[1] not in "".join(traceback.format_exception(caught.value))


# ---- Checksums

SHARD = archive([("a.bin", random.Random(7).randbytes(3_000_000)), ("a.cls", b"1")])
ANOTHER = archive([("a.bin", random.Random(8).randbytes(3_000_000)), ("a.cls", b"1")])


def base64(value: bytes) -> str:
    return b64encode(value).decode()


def headers(data: bytes) -> list[tuple[dict[str, str], bool]]:
    """Headers with a checksum of `data`, and whether they hold in replies with a part of it too."""
    crc = zlib.crc32(data).to_bytes(4, "big")
    return [
        ({"Repr-Digest": f"sha-256=:{base64(sha256(data).digest())}:"}, True),
        ({"Repr-Digest": f"unknown=:AAAA:, sha-512=:{base64(sha512(data).digest())}:"}, True),
        ({"Digest": f"SHA-256={base64(sha256(data).digest())}"}, True),
        ({"x-goog-hash": f"crc32c=AAAAAA==,md5={base64(md5(data).digest())}"}, True),
        ({"x-ms-blob-content-md5": base64(md5(data).digest())}, True),
        ({"Content-MD5": base64(md5(data).digest())}, False),
        ({"x-amz-checksum-sha256": base64(sha256(data).digest())}, False),
        ({"x-amz-checksum-sha1": base64(sha1(data).digest())}, False),
        ({"x-amz-checksum-crc32": base64(crc)}, False),
    ]


def read_range(url: str, start: int = 0, stop: int | None = None) -> bytes:
    with connect.open_object(url).stream(start, stop) as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))


@each_row("number", range(len(headers(b""))))
def test_the_checksum_of_the_server_is_compared(number: int, server: HttpServer, here: Path) -> None:
    right, parts = headers(SHARD)[number]
    wrong = headers(ANOTHER)[number][0]
    for ranges in (True, False) if parts else (False,):
        url = server.serve("/a.tar", SHARD, headers=right, ranges=ranges)
        assert read_range(url) == SHARD
        assert [sample.key for sample in tarkit.open(url)] == ["a"]
        url = server.serve("/a.tar", SHARD, headers=wrong, ranges=ranges)
        with pytest.raises(TarkitError, match="checksum"):
            read_range(url)
        with pytest.raises(TarkitError, match="checksum"):
            tarkit.open(url).write("b.tar")
        assert not (here / "b.tar").exists()
        with pytest.raises(TarkitError, match="checksum"):
            list(tarkit.open(url, storage_options={"cache": f"cache-{number}-{ranges}"}))


def test_a_connection_that_breaks_changes_nothing(server: HttpServer) -> None:
    right, wrong = headers(SHARD)[0][0], headers(ANOTHER)[0][0]
    assert read_range(server.serve("/a.tar", SHARD, headers=right, drop=50_000, drops=3)) == SHARD
    with pytest.raises(TarkitError, match="checksum"):
        read_range(server.serve("/a.tar", SHARD, headers=wrong, drop=50_000, drops=3))
    assert read_range(server.serve("/empty", b"", headers=headers(b"")[0][0])) == b""


def test_what_is_read_by_one_request(server: HttpServer) -> None:
    """Such as a source of a recipe."""
    with pytest.raises(TarkitError, match="checksum"):
        fetch(server.serve("/a", b"data", headers=headers(b"other")[0][0]), 4)


def test_parts_are_not_compared(server: HttpServer) -> None:
    url = server.serve("/a.tar", SHARD, headers=headers(ANOTHER)[0][0])
    assert read_range(url, 1000) == SHARD[1000:]
    assert read_range(url, 0, 1000) == SHARD[:1000]
    assert tarkit.stats(url).samples == 1
    url = server.serve("/whole.tar", SHARD, headers=headers(ANOTHER)[0][0], ranges=False)
    assert read_range(url, 0, 1000) == SHARD[:1000]


def test_what_is_no_checksum_of_the_object() -> None:
    """Those of several parts, of compressed bytes, of unknown algorithms, and whatever is not of the right length."""
    digest = base64(md5(b"").digest())
    for each in (
        {"x-amz-checksum-sha256": f"{base64(sha256(b'').digest())}-3"},
        {"x-goog-hash": f"md5={digest}", "x-goog-stored-content-encoding": "gzip"},
        {"Repr-Digest": f"md5=:{digest}:", "Content-Encoding": "gzip"},
        {"x-goog-hash": "crc32c=AAAAAA=="},
        {"Repr-Digest": "sha-256=:AAAA:"},
        {"Repr-Digest": "sha-256=AAAAA"},
        {"ETag": f'"{md5(b"").hexdigest()}"'},
        {"Content-MD5": "é"},
    ):
        assert named_by(each, whole=True) is None, each
    assert named_by({"Content-MD5": digest}, whole=False) is None
    assert named_by({"Content-MD5": digest}, whole=True) == Checksum("md5", md5(b"").digest())
