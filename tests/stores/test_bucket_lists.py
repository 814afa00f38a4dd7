"""Lists of s3:// with names that the library refuses: the other objects are found, and a warning names the first."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from itertools import count

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect, listing, retry
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import expand_inputs
from tests._tools import archive, each_row
from tests.stores._ais import ais_cluster
from tests.stores._s3 import S3Server, s3_server
from tests.stores._servers import KEYS, forwarding

GOOD = ("a.tar", "b c.tar", "é.tar", "x+y.tar", "%41.tar", "&amp;.tar", "d/e.tar", "d/f/g.tar", "[x].tar", "z", "~")
BAD = ("a//b", "d//", "d//e.tar", "d/../e.tar", "d/./e.tar", "..", "d/..", "a\x01b", "d/\n")
_numbers = count()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server() as found:
        monkeypatch.setattr(retry, "_PAUSE", 0.01)
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        yield found


def put(server: S3Server, *names: str, data: bytes = b"x") -> str:
    """Write objects to a new bucket; return its name."""
    bucket = f"list{next(_numbers)}"
    server.objects |= {f"{bucket}/{name}": (data, f'"{len(data)}"', {}) for name in names}
    return bucket


@each_row("seed", range(15))
def test_a_list_without_what_cannot_be_named(seed: int, server: S3Server) -> None:
    """In pages of any size, of any beginning."""
    pick = random.Random(seed)
    good, bad = pick.sample(GOOD, pick.randrange(1, 9)), pick.sample(BAD, pick.randrange(1, 5))
    bucket = put(server, *good, *bad)
    prefix = pick.choice(["", "", "d/", "a", "d"])
    options = StoreOptions(anonymous=bool(seed % 2), retries=2, timeout=10)
    server.page = pick.randrange(1, 6)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [info.url for info in connect.list_objects(f"s3://{bucket}/{prefix}", options)]
    assert found == [f"s3://{bucket}/{name}" for name in sorted(good, key=str.encode) if name.startswith(prefix)]
    texts = [str(each.message) for each in said if each.category is tarkit.TarkitWarning]
    left = [name for name in bad if name.startswith(prefix)]
    assert len(texts) == bool(left)
    if left:
        assert texts[0].startswith(f"s3://{bucket}/{prefix}: {len(left)} object")
        assert "\n" not in texts[0]


def test_what_is_found_is_described_alike(server: S3Server) -> None:
    bucket = put(server, "a.tar", "d/b.tar", data=b"xyz")
    before = list(connect.list_objects(f"s3://{bucket}/"))
    server.objects[f"{bucket}/x//y"] = b"", '"0"', {}
    with pytest.warns(tarkit.TarkitWarning, match="1 object is left out of the list, such as 'x//y'"):
        assert list(connect.list_objects(f"s3://{bucket}/")) == before


FAULTS = {
    "html": b"<html><body>Log in</body></html>",
    "error": b"<Error><Code>InternalError</Code></Error>",
    "empty": b"",
    "no-token": b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
}


@each_row("fault", sorted(FAULTS))
def test_pages_that_are_none(fault: str, server: S3Server) -> None:
    """Requested again; an error if they stay so."""
    bucket = put(server, "a.tar", "x//y")

    def damage(method: str, path: str, data: bytes) -> bytes:
        return FAULTS[fault] if "encoding-type" in path else data

    with forwarding(server.url, answer=damage) as wrong, pytest.raises(TarkitError, match="the server sends"):
        list(connect.list_objects(f"s3://{bucket}/", StoreOptions(endpoint_url=wrong, retries=2, timeout=5)))


def test_an_object_of_the_name_of_a_pattern(server: S3Server) -> None:
    """It is that object, as a file is; in arguments, lists and Python."""
    names = ["p/[x].tar", "p/x.tar", "p/*.tar", "p/?", "p/y.tar"]
    data = archive([("a.txt", b"1")])
    bucket = put(server, *names, data=data)
    start = f"s3://{bucket}/"
    for name in ("p/[x].tar", "p/*.tar", "p/?"):
        assert list(listing.named(start + name)) == [start + name]
        assert [found.text for found in expand_inputs([start + name])] == [start + name]
        assert [sample.key for sample in tarkit.open(start + name)] == ["a"]
    assert sorted(listing.named(f"{start}p/[xy].tar")) == [f"{start}p/x.tar", f"{start}p/y.tar"]


def test_lists_of_a_cluster() -> None:
    with ais_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIS_ENDPOINT", cluster.url)
        connect._store.cache_clear()
        for name in ("a.tar", "b//c.tar", "d/../e.tar", "f.tar"):
            cluster.objects["ais", "", "b", name] = (b"x", 1)
        with pytest.warns(tarkit.TarkitWarning, match="2 objects are left out of the list"):
            assert [info.url for info in connect.list_objects("ais://b/")] == ["ais://b/a.tar", "ais://b/f.tar"]
        connect._store.cache_clear()


@each_row("page", [1, 2, 3, 1000])
def test_markers_of_directories(page: int, server: S3Server) -> None:
    """An object whose name ends in a slash stands once in a list, also where it is the last."""
    bucket = put(server, "a.tar", "b/", "b/c.tar", "z/")
    server.page = page
    found = [info.url.removeprefix(f"s3://{bucket}/") for info in connect.list_objects(f"s3://{bucket}/")]
    assert found == ["a.tar", "b", "b/c.tar", "z"]


def test_keys_that_expire_in_what_follows(server: S3Server) -> None:
    """Where some objects follow, what else follows is not believed to be nothing."""
    bucket = put(server, *(f"{n}.tar" for n in range(8)))
    server.page = 2
    pages: list[str] = []

    def damage(method: str, path: str, data: bytes) -> bytes | int:
        pages.append(path)
        if len(pages) == 2:
            return FAULTS["html"]
        return 403 if len(pages) > 3 else data

    with forwarding(server.url, answer=damage) as wrong, pytest.raises(TarkitError, match="permission denied"):
        list(connect.list_objects(f"s3://{bucket}/", StoreOptions(endpoint_url=wrong, retries=2, timeout=5)))
