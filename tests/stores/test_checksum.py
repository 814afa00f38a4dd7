"""Objects that do not have the checksum that their server names are errors, when they are read from start to end."""

from __future__ import annotations

import random
import zlib
from base64 import b64encode
from hashlib import md5, sha1, sha256, sha512
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect, reading
from tarkit.stores.checksum import Checksum, named_by
from tarkit.stores.object_prefetch import fetch
from tests._tools import archive, each_row
from tests.stores._http import HttpServer

DATA = archive([("a.bin", random.Random(7).randbytes(3_000_000)), ("a.cls", b"1")])
OTHER = archive([("a.bin", random.Random(8).randbytes(3_000_000)), ("a.cls", b"1")])


def text(value: bytes) -> str:
    return b64encode(value).decode()


def headers(data: bytes) -> list[tuple[dict[str, str], bool]]:
    """Headers with a checksum of `data`, and whether they hold in replies with a part of it too."""
    crc = zlib.crc32(data).to_bytes(4, "big")
    return [
        ({"Repr-Digest": f"sha-256=:{text(sha256(data).digest())}:"}, True),
        ({"Repr-Digest": f"unknown=:AAAA:, sha-512=:{text(sha512(data).digest())}:"}, True),
        ({"Digest": f"SHA-256={text(sha256(data).digest())}"}, True),
        ({"x-goog-hash": f"crc32c=AAAAAA==,md5={text(md5(data).digest())}"}, True),
        ({"x-ms-blob-content-md5": text(md5(data).digest())}, True),
        ({"Content-MD5": text(md5(data).digest())}, False),
        ({"x-amz-checksum-sha256": text(sha256(data).digest())}, False),
        ({"x-amz-checksum-sha1": text(sha1(data).digest())}, False),
        ({"x-amz-checksum-crc32": text(crc)}, False),
    ]


@pytest.fixture
def server(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> HttpServer:
    """A server, with small ranges."""
    monkeypatch.setattr(reading, "FIRST", 100_000)
    monkeypatch.setattr(reading, "LARGEST", 400_000)
    return server


def read(url: str, start: int = 0, stop: int | None = None) -> bytes:
    with connect.open_object(url).stream(start, stop) as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))


@each_row("number", range(len(headers(b""))))
def test_the_checksum_of_the_server_is_compared(number: int, server: HttpServer, here: Path) -> None:
    right, parts = headers(DATA)[number]
    wrong = headers(OTHER)[number][0]
    for ranges in (True, False) if parts else (False,):
        url = server.serve("/a.tar", DATA, headers=right, ranges=ranges)
        assert read(url) == DATA
        assert [sample.key for sample in tarkit.open(url)] == ["a"]
        url = server.serve("/a.tar", DATA, headers=wrong, ranges=ranges)
        with pytest.raises(TarkitError, match="checksum"):
            read(url)
        with pytest.raises(TarkitError, match="checksum"):
            tarkit.open(url).write("b.tar")
        assert not (here / "b.tar").exists()
        with pytest.raises(TarkitError, match="checksum"):
            list(tarkit.open(url, storage_options={"cache": f"cache-{number}-{ranges}"}))


def test_a_connection_that_breaks_changes_nothing(server: HttpServer) -> None:
    right, wrong = headers(DATA)[0][0], headers(OTHER)[0][0]
    assert read(server.serve("/a.tar", DATA, headers=right, drop=50_000, drops=3)) == DATA
    with pytest.raises(TarkitError, match="checksum"):
        read(server.serve("/a.tar", DATA, headers=wrong, drop=50_000, drops=3))
    assert read(server.serve("/empty", b"", headers=headers(b"")[0][0])) == b""


def test_what_is_read_by_one_request(server: HttpServer) -> None:
    """Such as a source of a recipe."""
    with pytest.raises(TarkitError, match="checksum"):
        fetch(server.serve("/a", b"data", headers=headers(b"other")[0][0]), 4)


def test_parts_are_not_compared(server: HttpServer) -> None:
    url = server.serve("/a.tar", DATA, headers=headers(OTHER)[0][0])
    assert read(url, 1000) == DATA[1000:]
    assert read(url, 0, 1000) == DATA[:1000]
    assert tarkit.stats(url).samples == 1
    url = server.serve("/whole.tar", DATA, headers=headers(OTHER)[0][0], ranges=False)
    assert read(url, 0, 1000) == DATA[:1000]


def test_what_is_no_checksum_of_the_object() -> None:
    """Those of several parts, of compressed bytes, of unknown algorithms, and whatever is not of the right length."""
    digest = text(md5(b"").digest())
    for each in (
        {"x-amz-checksum-sha256": f"{text(sha256(b'').digest())}-3"},
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
