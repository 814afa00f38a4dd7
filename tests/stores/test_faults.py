"""Servers of S3 that send something else than they should: nothing is lost, nothing is reported that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("obstore")

from tarkit.errors import TarkitError
from tarkit.stores import connect, transfer
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.stores._servers import KEYS, forwarding, moto

Answer = Callable[[str, str, bytes], "bytes | int | None"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that has the bucket `bucket`."""
    with moto() as url:
        yield url


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transfer, "_PAUSE", 0.01)
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


def _without_token(page: bytes) -> bytes:
    return re.sub(rb"<NextContinuationToken>[^<]*</NextContinuationToken>", b"", page)


def _cut(page: bytes) -> bytes:
    return page[: page.rindex(b"</Contents>") - 20]


def _cut_between(page: bytes) -> bytes:
    return page[: page.rindex(b"<Contents>")]


FAULTS = {
    "error": lambda page: ERROR,
    "html": lambda page: PAGE,
    "cut": _cut,
    "cut-between": _cut_between,
    "no-token": _without_token,
    "empty": lambda page: b"",
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


@each_row("fault", sorted(FAULTS))
@each_row("times", [1, 99])
@each_row("number", [0, 1, 3])
def test_a_page_that_is_no_list(fault: str, times: int, number: int, server: str, listed: list[str]) -> None:
    """Once: the list is complete. Each time from page `number` on: it is an error, or nothing is found at all."""
    pages: list[str] = []

    def damage(method: str, path: str, data: bytes) -> bytes:
        if not is_list(method, path):
            return data
        pages.append(path)
        wrong = number < len(pages) <= number + times
        return FAULTS[fault](data) if wrong and b"<Contents>" in data else data

    with forwarding(server, answer=damage, path=small_pages) as endpoint:
        found, said = [], ""
        try:
            for info in connect.list_objects("s3://bucket/l/", at(endpoint)):
                found.append(info.url)
        except TarkitError as error:
            said = str(error)
    assert found == listed[: len(found)]
    if times == 1 or fault == "no-token":
        assert (found, said) == (listed, "")
    elif said:
        assert said.startswith("s3://bucket/l/: the ")
        assert "\n" not in said
    else:
        assert found == listed or (not found and number == 0 and fault in ("error", "html"))


def test_a_list_takes_one_request_more(server: str, listed: list[str]) -> None:
    log: list[str] = []

    def keep(method: str, path: str, data: bytes) -> bytes:
        log.append(path)
        return data

    with forwarding(server, answer=keep) as endpoint:
        assert [info.url for info in connect.list_objects("s3://bucket/l/", at(endpoint))] == listed
    assert [parse_qs(urlsplit(path).query).get("start-after") for path in log] == [None, ["l/08~"]]
