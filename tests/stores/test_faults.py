"""Servers of S3 that send something else than they should: nothing is lost, nothing is reported that is not there."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tarkit.errors import TarkitError
from tarkit.stores import connect, objects
from tarkit.stores.store import StoreOptions, Unconfirmed
from tests._tools import each_row
from tests.stores._http import HttpServer, Served
from tests.stores._s3 import ERROR, Bucket, Request
from tests.stores._servers import forwarding

SMALL, LARGE = b"x" * 1000, random.Random(7).randbytes(12_000_000)
_numbers = count()


@pytest.fixture
def bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket, in which large objects have parts of 5 MiB."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    return bucket


def at(endpoint: str, anonymous: bool = False) -> StoreOptions:
    return StoreOptions(endpoint_url=endpoint, retries=2, timeout=5, anonymous=anonymous)


# ---- Lists

FAULTS = {
    "error": lambda page: ERROR,
    "html": lambda page: b"<html><head><title>Welcome</title></head><body><p>Log in</p></body></html>",
    "cut": lambda page: page[: page.rindex(b"</Contents>") - 20],
    "cut-between": lambda page: page[: page.rindex(b"<Contents>")],
    "503": lambda page: 503,
}


def damaged_list(bucket: Bucket, scheme: str, damages: Callable[[int], object], fault: str) -> tuple[list[str], str]:
    """List ten objects, three a page; pages are damaged by their numbers. Return the URLs, and the error."""
    urls = [bucket.put(f"{n:02}", b"x").replace("s3", scheme, 1) for n in range(10)]
    bucket.server.page, pages = 3, list[str]()

    def damage(method: str, path: str, data: bytes) -> bytes | int:
        pages.append(path)
        return FAULTS[fault](data) if damages(len(pages)) and b"<Contents>" in data else data

    found, said = [], ""
    with forwarding(bucket.server.url, answer=damage) as endpoint:
        try:
            url = bucket.url.replace("s3", scheme, 1)
            for info in connect.list_objects(url, at(endpoint, anonymous=scheme == "gs")):
                found.append(info.url)
        except TarkitError as error:
            said = str(error)
    assert found == urls or (said.startswith(f"{url}: the ") and found == urls[: len(found)])
    assert "\n" not in said
    return found, said


@each_row("scheme", ["s3", "gs"])
@each_row("fault", FAULTS)
@each_row("number", [1, 2, 4])
def test_a_page_that_is_no_list(scheme: str, fault: str, number: int, bucket: Bucket) -> None:
    """In place of one page, which may be taken for the last: all objects are found, or there is an error."""
    _, said = damaged_list(bucket, scheme, lambda page: page == number, fault)
    assert fault.startswith("cut") or not said


@each_row("scheme", ["s3", "gs"])
@each_row("fault", sorted(FAULTS))
def test_pages_that_are_no_lists(scheme: str, fault: str, bucket: Bucket) -> None:
    """From one page on, for ever: an error."""
    assert damaged_list(bucket, scheme, lambda page: page > 2, fault)[1]


def test_a_server_that_answers_with_pages_alone(server: HttpServer) -> None:
    """As one that wants a login in a browser: no list is empty."""
    server.objects = defaultdict(lambda: Served(b"<html><body>Log in</body></html>"))
    for url in ("s3://bucket/d/", "gs://bucket/d/"):
        with pytest.raises(TarkitError, match=r"^(s3|gs)://bucket/d/: "):
            list(connect.list_objects(url, at(server.url, anonymous=True)))


def test_objects_that_are_removed_while_they_are_listed(bucket: Bucket) -> None:
    """The last name need not be there when what follows it is requested."""
    for n in range(10):
        bucket.put(f"{n:02}", b"x")
    bucket.server.page = 3
    options = at(bucket.server.url, anonymous=True)
    for info in connect.list_objects("gs://bucket/d/", options):
        connect.delete_object(info.url, options)
    assert bucket.names() == []


def test_what_follows_may_not_be_asked_for(bucket: Bucket) -> None:
    """Some accounts refuse a login in the query of a URL: then the list is believed."""
    names = [bucket.put(f"{n:02}", b"x") for n in range(10)]
    bucket.server.page = 3

    def deny(method: str, path: str, data: bytes) -> bytes | int:
        return 403 if "X-Amz-Signature" in path else data

    with forwarding(bucket.server.url, answer=deny) as endpoint:
        assert [info.url for info in connect.list_objects(bucket.url, at(endpoint))] == names


def test_each_page_is_requested_once(bucket: Bucket) -> None:
    """And again while the server is busy; the last request asks whether more follows."""
    names = [bucket.put(f"{n:02}", b"x") for n in range(10)]
    bucket.server.page = 3
    assert [info.url for info in connect.list_objects(bucket.url)] == names
    assert [request.what for request in bucket.server.log] == ["list"] * 5
    bucket.server.fault = lambda request: "503" if len(bucket.server.log) % 2 else None
    assert [info.url for info in connect.list_objects(bucket.url)] == names
    assert len(bucket.server.log) == 5 + 10


# ---- What is written


def write(bucket: Bucket, data: bytes, fresh: bool = True, name: str = "") -> str:
    """Write an object, of a new name; return that."""
    name = name or f"{next(_numbers)}"
    upload = connect.create_object(bucket.url + name, fresh, at(bucket.server.url))
    for start in range(0, len(data), 1 << 20):
        upload.write(data[start : start + (1 << 20)])
    upload.close()
    return name


def completes(request: Request) -> bool:
    """Whether a request is the one that makes an object appear."""
    return request.what in ("put", "complete")


@each_row("lost", ["close", "503", "500"])
@each_row("fresh", [True, False])
@each_row("times", [1, 9])
@each_row("size", [0, 1000, 12_000_000])
def test_a_lost_reply(lost: str, fresh: bool, times: int, size: int, bucket: Bucket) -> None:
    """What was written is there, although the server said so to nobody, or says that it exists."""
    replies: list[str] = []

    def lose(request: Request) -> str | None:
        if not completes(request) or len(replies) == times:
            return None
        replies.append(request.key)
        return f"done {lost}"

    bucket.server.fault = lose
    name = write(bucket, LARGE[:size], fresh)
    assert replies
    assert bucket.get(name) == LARGE[:size]


def test_parts_that_replace_an_object(bucket: Bucket) -> None:
    """An object of the same length that was there before is not taken for what was written."""
    bucket.put("a", bytes(len(LARGE)))
    refused: list[str] = []

    def refuse(request: Request, first: str) -> str | None:
        if not completes(request) and (refused or request.what != first):
            return None
        refused.append(request.what)
        return "503"

    for first in ("", "head"):
        bucket.server.fault = partial(refuse, first=first)
        refused.clear()
        with pytest.raises(TarkitError, match="the server answers 503"):
            write(bucket, LARGE, False, "a")
        assert refused
        assert bucket.get("a") == bytes(len(LARGE))
    bucket.server.fault = lambda request: "done 503" if completes(request) else None
    write(bucket, LARGE, False, "a")
    assert bucket.get("a") == LARGE


@each_row("data", [b"", SMALL, LARGE])
@each_row("stored", [None, b"less"])
def test_a_server_that_stores_something_else(data: bytes, stored: bytes | None, bucket: Bucket) -> None:
    """Nothing, or another object; it answers 200 all the same."""
    done: list[str] = []

    def forget(request: Request) -> None:
        done.append(request.what)
        if request.what == "head" and {"put", "complete"} & set(done):
            bucket.server.objects.pop(request.key, None)
            if stored is not None:
                bucket.server.objects[request.key] = stored, '"other"', {}

    bucket.server.fault = forget
    said = "the server does not find" if stored is None else f"4 bytes .* {len(data)} were sent; it is there"
    with pytest.raises(Unconfirmed, match=said):
        write(bucket, data)


def test_no_descriptor_of_an_upload_stays(bucket: Bucket, here: Path) -> None:
    upload = connect.create_object(f"{bucket.url}a", options=at(bucket.server.url))
    upload.write(LARGE)
    upload.abort()
    upload.abort()
    assert (bucket.names(), bucket.server.uploads) == ([], {})
