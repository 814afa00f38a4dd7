"""Servers of S3 that send something else than they should: nothing is lost, nothing is reported that is not there."""

from __future__ import annotations

import random
from functools import partial
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tarkit.errors import TarkitError
from tarkit.stores import connect, objects
from tarkit.stores.store import StoreOptions, Unconfirmed
from tests._tools import each_row
from tests.stores._s3 import Bucket, Request

SMALL, LARGE = b"x" * 1000, random.Random(7).randbytes(12_000_000)
_numbers = count()


@pytest.fixture
def bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket, in which large objects have parts of 5 MiB."""
    monkeypatch.setattr(objects, "PART", 5 << 20)
    return bucket


def at(endpoint: str, anonymous: bool = False) -> StoreOptions:
    return StoreOptions(endpoint_url=endpoint, retries=2, timeout=5, anonymous=anonymous)


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
