"""Lists of buckets: pages that are no lists, and names that the library refuses."""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Callable
from itertools import count

import pytest

pytest.importorskip("obstore")

import obstore
from obstore.exceptions import GenericError

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect, listing
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import expand_inputs
from tests._tools import archive, each_row
from tests.stores._http import HttpServer, Served
from tests.stores._s3 import ERROR, Bucket, Request, S3Server

GOOD = ("a.tar", "b c.tar", "é.tar", "x+y.tar", "%41.tar", "&amp;.tar", "d/e.tar", "d/f/g.tar", "[x].tar", "z", "~")
BAD = ("a//b", "d//", "d//e.tar", "d/../e.tar", "d/./e.tar", "..", "d/..", "a\x01b", "d/\n")
HTML = b"<html><head><title>Welcome</title></head><body><p>Log in</p></body></html>"
FAULTS: dict[str, Callable[[bytes], bytes | int]] = {
    "error": lambda page: ERROR,
    "html": lambda page: HTML,
    "503": lambda page: 503,
    "cut": lambda page: page[: page.rindex(b"</Contents>") - 20],
    "cut-between": lambda page: page[: page.rindex(b"<Contents>")],
}
_numbers = count()


def put(server: S3Server, *names: str, data: bytes = b"x") -> str:
    """Write objects to a new bucket; return its URL."""
    bucket = f"list{next(_numbers)}"
    server.objects |= {f"{bucket}/{name}": (data, f'"{len(data)}"', {}) for name in names}
    return f"s3://{bucket}/"


def at(endpoint: str, anonymous: bool = False) -> StoreOptions:
    return StoreOptions(endpoint_url=endpoint, retries=2, timeout=5, anonymous=anonymous)


# ---- Pages that are no lists


def damaged_list(s3: S3Server, scheme: str, damage: Callable[[int, Request, bytes], bytes | int]) -> str:
    """List ten objects, three a page, from a server whose pages are damaged; return the error.

    `damage` is called with the number of a page, the request and the content. All objects are found, or there is an
    error.
    """
    names = [f"{n:02}" for n in range(10)]
    url = put(s3, *names).replace("s3", scheme, 1)
    pages, found, said = count(1), list[str](), ""
    s3.page, s3.damage = 3, lambda request, data: damage(next(pages), request, data)
    try:
        for info in connect.list_objects(url, at(s3.url, anonymous=scheme == "gs")):
            found.append(info.url.removeprefix(url))
    except TarkitError as error:
        said = str(error)
    assert found == names or (said.startswith(f"{url}: ") and found == names[: len(found)])
    assert "\n" not in said
    return said


@each_row("scheme", ["s3", "gs"])
@each_row("fault", FAULTS)
@each_row("number", [1, 2, 4])
def test_a_page_that_is_no_list(scheme: str, fault: str, number: int, s3: S3Server) -> None:
    """In place of one page, which may be taken for the last."""
    said = damaged_list(s3, scheme, lambda page, request, data: FAULTS[fault](data) if page == number else data)
    assert fault.startswith("cut") or not said


@each_row("scheme", ["s3", "gs"])
@each_row("fault", FAULTS)
def test_pages_that_are_no_lists(scheme: str, fault: str, s3: S3Server) -> None:
    """From one page on, for ever: an error."""

    def damage(page: int, request: Request, data: bytes) -> bytes | int:
        return FAULTS[fault](data) if page > 2 and b"<Contents>" in data else data

    assert ": the " in damaged_list(s3, scheme, damage)


@each_row(
    "page",
    [
        *(HTML, ERROR, b""),
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>x</Key><Size>some</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>x</Key></Contents></ListBucketResult>",
    ],
)
def test_what_follows_is_no_list(page: bytes, s3: S3Server) -> None:
    said = damaged_list(s3, "s3", lambda number, request, data: page if "encoding-type" in request.query else data)
    assert "the server sends" in said


@each_row("scheme", ["s3", "gs"])
@each_row("first", [1, 2])
def test_pages_that_follow_themselves(scheme: str, first: int, s3: S3Server) -> None:
    """The list is an error, and has an end."""
    url, pages = put(s3, *(f"{n:02}" for n in range(10))).replace("s3", scheme), list[bytes]()

    def damage(request: Request, data: bytes) -> bytes:
        pages.append(data)
        return pages[min(len(pages), first) - 1]

    s3.page, s3.damage = 3, damage
    with pytest.raises(TarkitError, match=f"^{url}: the list has no end"):
        list(connect.list_objects(url, at(s3.url, anonymous=True)))
    assert len(pages) < 40


def test_what_follows_may_not_be_asked_for(s3: S3Server) -> None:
    """Some accounts refuse a login in the query of a URL: then the list is believed, unless something follows."""
    assert not damaged_list(s3, "s3", lambda page, request, data: 403 if "X-Amz-Signature" in request.query else data)
    said = damaged_list(s3, "s3", lambda page, request, data: HTML if page == 2 else 403 if page > 3 else data)
    assert "permission denied" in said


def test_keys_that_are_gone_before_the_end(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a profile are asked for again when they are old: one line says that there are none."""

    def fail(*words: object) -> str:
        raise GenericError("Generic S3 error: External AWS credential provider: TarkitError: no more keys")

    monkeypatch.setattr(obstore, "sign", fail)
    with pytest.raises(TarkitError, match=r"^s3://list\d+/: no more keys"):
        list(connect.list_objects(put(s3, "a")))


def test_a_server_that_answers_with_pages_alone(server: HttpServer) -> None:
    """As one that wants a login in a browser: no list is empty."""
    server.objects = defaultdict(lambda: Served(HTML))
    for url in ("s3://bucket/d/", "gs://bucket/d/"):
        with pytest.raises(TarkitError, match=f"^{url}: "):
            list(connect.list_objects(url, at(server.url, anonymous=True)))


def test_objects_that_are_removed_while_they_are_listed(s3: S3Server) -> None:
    """The last name need not be there when what follows it is requested."""
    url, options = put(s3, *map(str, range(10))).replace("s3", "gs"), at(s3.url, anonymous=True)
    s3.page = 3
    for info in connect.list_objects(url, options):
        connect.delete_object(info.url, options)
    assert not s3.objects


def test_each_page_is_requested_once(bucket: Bucket) -> None:
    """And again while the server is busy; the last request asks whether more follows."""
    names = [bucket.put(f"{n:02}", b"x") for n in range(10)]
    bucket.server.page = 3
    assert [info.url for info in connect.list_objects(bucket.url)] == names
    assert [request.what for request in bucket.server.log] == ["list"] * 5
    bucket.server.fault = lambda request: "503" if len(bucket.server.log) % 2 else None
    assert [info.url for info in connect.list_objects(bucket.url)] == names
    assert len(bucket.server.log) == 5 + 10


# ---- Names


@each_row("seed", range(15))
def test_a_list_without_what_cannot_be_named(seed: int, s3: S3Server) -> None:
    """The other objects are found, in pages of any size, of any beginning; a warning names the first that is not."""
    pick = random.Random(seed)
    good, bad = pick.sample(GOOD, pick.randrange(1, 9)), pick.sample(BAD, pick.randrange(1, 5))
    url, prefix = put(s3, *good, *bad), pick.choice(["", "", "d/", "a", "d"])
    s3.page = pick.randrange(1, 6)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [info.url for info in connect.list_objects(url + prefix, at(s3.url, anonymous=bool(seed % 2)))]
    assert found == [url + name for name in sorted(good, key=str.encode) if name.startswith(prefix)]
    texts = [str(each.message) for each in said if each.category is tarkit.TarkitWarning]
    left = [name for name in bad if name.startswith(prefix)]
    assert len(texts) == bool(left)
    if left:
        assert texts[0].startswith(f"{url}{prefix}: {len(left)} object")
        assert "\n" not in texts[0]


@each_row("damaged", [0, 2])
def test_names_that_cannot_be_left_out(damaged: int, s3: S3Server) -> None:
    """In gs:// and az:// they are an error, also behind a page that is no list."""
    url, pages = put(s3, "a", "b", "c", "d//e").replace("s3", "gs"), count(1)
    s3.page, s3.damage = 2, lambda request, data: HTML if next(pages) == damaged else data
    with pytest.raises(TarkitError, match=f"^{url}: the library cannot name an object in this list"):
        list(connect.list_objects(url, at(s3.url, anonymous=True)))


def test_what_is_found_is_described_alike(s3: S3Server) -> None:
    url = put(s3, "a.tar", "d/b.tar", data=b"xyz")
    before = list(connect.list_objects(url))
    s3.objects[f"{url.removeprefix('s3://')}x//y"] = b"", '"0"', {}
    with pytest.warns(tarkit.TarkitWarning, match="1 object is left out of the list, such as 'x//y'"):
        assert list(connect.list_objects(url)) == before


def test_an_object_of_the_name_of_a_pattern(s3: S3Server) -> None:
    """It is that object, as a file is; in arguments, lists and Python."""
    data = archive([("a.txt", b"1")])
    start = put(s3, "p/[x].tar", "p/x.tar", "p/*.tar", "p/?", "p/y.tar", data=data)
    for name in ("p/[x].tar", "p/*.tar", "p/?"):
        assert list(listing.named(start + name)) == [start + name]
        assert [found.text for found in expand_inputs([start + name])] == [start + name]
        assert [sample.key for sample in tarkit.open(start + name)] == ["a"]
    assert sorted(listing.named(f"{start}p/[xy].tar")) == [f"{start}p/x.tar", f"{start}p/y.tar"]


@each_row("page", [1, 2, 3, 1000])
def test_markers_of_directories(page: int, s3: S3Server) -> None:
    """An object whose name ends in a slash stands once in a list, also where it is the last."""
    url = put(s3, "a.tar", "b/", "b/c.tar", "z/")
    s3.page = page
    for scheme in ("s3", "gs"):
        found = connect.list_objects(url.replace("s3", scheme), at(s3.url, anonymous=True))
        assert [info.url.rpartition(url.partition("//")[2])[2] for info in found] == ["a.tar", "b", "b/c.tar", "z"]
