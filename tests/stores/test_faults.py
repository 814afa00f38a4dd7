"""Servers of S3 that send something else than they should: nothing is lost, nothing is reported that is not there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("obstore")
urllib3 = pytest.importorskip("urllib3")

from tarkit.errors import TarkitError
from tarkit.stores import connect, objects, retry
from tarkit.stores.store import StoreOptions, Unconfirmed
from tests._tools import each_row
from tests.stores._servers import KEYS, forwarding, moto

_numbers = count()
SIGNED = "AWS4-HMAC-SHA256 Credential=key/1/us-east-1/s3/x"  # tells moto which service is meant


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that has the bucket `bucket`."""
    with moto() as url:
        yield url


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def at(endpoint: str) -> StoreOptions:
    return StoreOptions(endpoint_url=endpoint, retries=2, timeout=5)


def put(endpoint: str, *names: str) -> None:
    for name in names:
        upload = connect.create_object(f"s3://bucket/{name}", options=at(endpoint))
        upload.write(name.encode())
        upload.close()


# ---- Lists

ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We try</Message></Error>"
PAGE = b"<html><head><title>Welcome</title></head><body><p>Log in</p></body></html>"


def _cut(page: bytes) -> bytes:
    return page[: page.rindex(b"</Contents>") - 20]


def _cut_between(page: bytes) -> bytes:
    return page[: page.rindex(b"<Contents>")]


FAULTS = {
    "error": lambda page: ERROR,
    "html": lambda page: PAGE,
    "cut": _cut,
    "cut-between": _cut_between,
}


@pytest.fixture(scope="module")
def listed(server: str) -> list[str]:
    """The objects in a directory, in pages of three."""
    names = [f"l/{n:02}" for n in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        put(server, *names, "l-after")
    return [f"s3://bucket/{name}" for name in names]


def small_pages(path: str) -> str:
    """Ask for pages of three objects: moto forgets its own size in the pages that follow."""
    return f"{path}&max-keys=3" if "list-type" in path and "max-keys" not in path else path


def is_list(method: str, path: str) -> bool:
    return method == "GET" and "list-type" in path


@each_row("fault", ["error", "html", "cut", "cut-between", "503"])
@each_row("number", [0, 1, 3])
def test_a_page_that_is_no_list(fault: str, number: int, server: str, listed: list[str]) -> None:
    """Pages that are no XML, or that are refused, are an error; other XML counts as the last page."""
    pages: list[str] = []

    def damage(method: str, path: str, data: bytes) -> bytes | int:
        if not is_list(method, path):
            return data
        pages.append(path)
        if number >= len(pages) or b"<Contents>" not in data:
            return data
        return 503 if fault == "503" else FAULTS[fault](data)

    with forwarding(server, answer=damage, path=small_pages) as endpoint:
        found, said = [], ""
        try:
            for info in connect.list_objects("s3://bucket/l/", at(endpoint)):
                found.append(info.url)
        except TarkitError as error:
            said = str(error)
    assert found == ([] if said else listed[: 3 * number])
    assert said.startswith("s3://bucket/l/: the ") or (fault in ("error", "html") and not said)
    assert "\n" not in said


def test_a_busy_server_is_asked_for_a_page_again(server: str, listed: list[str]) -> None:
    log: list[str] = []

    def refuse(method: str, path: str) -> int | None:
        log.append(path)
        return 503 if is_list(method, path) and len(log) % 2 else None

    with forwarding(server, refuse, path=small_pages) as endpoint:
        assert [info.url for info in connect.list_objects("s3://bucket/l/", at(endpoint))] == listed
    assert len(log) == 8


# ---- What is written

SMALL, LARGE = b"x" * 1000, random.Random(7).randbytes(12_000_000)


def write(endpoint: str, data: bytes, fresh: bool = True) -> str:
    """Write an object of a new name; return that."""
    url = f"s3://bucket/w/{next(_numbers)}"
    upload = connect.create_object(url, fresh, at(endpoint))
    for start in range(0, len(data), 1 << 20):
        upload.write(data[start : start + (1 << 20)])
    upload.close()
    return url


def read(endpoint: str, url: str) -> bytes:
    return connect.read_object(url, at(endpoint))[0]


def completes(method: str, path: str) -> bool:
    """Whether a request is the one that makes an object appear."""
    return (method == "PUT" and "uploadId" not in path) or (method == "POST" and "uploadId" in path)


@each_row("lost", [None, 503, 500])
@each_row("fresh", [True, False])
@each_row("times", [1, 9])
@each_row("size", [0, 1000, 12_000_000])
def test_a_lost_reply(
    lost: int | None, fresh: bool, times: int, size: int, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is there, although the server said so to nobody, or says that it exists."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    replies: list[str] = []

    def lose(method: str, path: str, data: bytes) -> bytes | int | None:
        if not completes(method, path) or len(replies) == times:
            return data
        replies.append(path)
        return lost

    with forwarding(server, answer=lose) as endpoint:
        url = write(endpoint, LARGE[:size], fresh)
    assert replies
    assert read(server, url) == LARGE[:size]


def test_the_object_of_another_writer_stays(server: str) -> None:
    """One that appears between the look and the write, of the same size."""

    def intrude(method: str, path: str) -> None:
        if completes(method, path):
            put_at(server, f"s3:/{path.partition('?')[0]}", SMALL[::-1].upper())

    with forwarding(server, refuse=intrude) as endpoint, pytest.raises(TarkitError, match="this object exists"):
        write(endpoint, SMALL)


def test_parts_that_replace_an_object(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of the same length that was there before is not taken for what was written."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    url = write(server, bytes(len(LARGE)))
    refused: list[str] = []

    def refuse(method: str, path: str) -> int | None:
        if not completes(method, path):
            return None
        refused.append(path)
        return 503

    with forwarding(server, refuse=refuse) as endpoint:
        with pytest.raises(TarkitError, match="the server answers 503"):
            put_at(endpoint, url, LARGE)
        assert refused
        assert read(server, url) == bytes(len(LARGE))

    def refuse_first(method: str, path: str) -> int | None:
        first = method == "HEAD" and not refused
        refused.append(path)
        return 503 if first or completes(method, path) else None

    refused.clear()
    with forwarding(server, refuse=refuse_first) as endpoint, pytest.raises(TarkitError, match="server answers 503"):
        put_at(endpoint, url, LARGE)
    with forwarding(server, answer=lambda method, path, data: 503 if completes(method, path) else data) as endpoint:
        put_at(endpoint, url, LARGE)
    assert read(server, url) == LARGE


@each_row("data", [b"", SMALL, LARGE])
def test_a_server_that_stores_nothing(data: bytes, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers 200 all the same."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    deleted: list[str] = []

    def forget(method: str, path: str, reply: bytes) -> bytes:
        if completes(method, path):
            deleted.append(path)
            connect.delete_object(f"s3:/{path.partition('?')[0]}", at(server))
        return reply

    with forwarding(server, answer=forget) as endpoint, pytest.raises(TarkitError, match="the server does not find"):
        write(endpoint, data)
    assert len(deleted) == 1


def test_a_server_that_stores_less(server: str) -> None:
    def shorten(method: str, path: str, reply: bytes) -> bytes:
        if completes(method, path):
            put_plainly(server, path, SMALL[:-1])
        return reply

    said = r"999 bytes .* 1000 were sent; it is there"
    with forwarding(server, answer=shorten) as endpoint, pytest.raises(Unconfirmed, match=said):
        write(endpoint, SMALL)


def put_plainly(server: str, path: str, data: bytes) -> None:
    """Write an object as other programs do."""
    url = server + path.partition("?")[0]
    assert urllib3.request("PUT", url, body=data, headers={"authorization": SIGNED}).status == 200


def put_at(endpoint: str, url: str, data: bytes) -> None:
    upload = connect.create_object(url, options=at(endpoint))
    upload.write(data)
    upload.close()


def test_credentials_that_may_write_and_not_read(server: str) -> None:
    """Then nothing is compared."""
    with forwarding(server, refuse=lambda method, path: 403 if method in ("HEAD", "GET") else None) as endpoint:
        url = write(endpoint, SMALL, fresh=False)
    assert read(server, url) == SMALL
