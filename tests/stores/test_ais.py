"""Reading, writing and listing ais:// URLs, on a stub of a cluster that AIStore's own client agrees with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, TarkitWarning, Usage
from tarkit.stores import ais, connect
from tarkit.stores.ais import AisStore, split_url
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions, Unconfirmed
from tarkit.stores.upload import RemoteUpload
from tests._tools import each_row
from tests.stores._ais import AisCluster, ais_cluster
from tests.stores._tools import put, whole

DATA = random.Random(7).randbytes(1_000_000)


@pytest.fixture
def cluster(small_ranges: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[AisCluster]:
    """A cluster, small ranges and parts."""
    monkeypatch.setattr(ais, "PART", 150_000)
    with ais_cluster() as found:
        monkeypatch.setenv("AIS_ENDPOINT", found.url)
        yield found


@pytest.fixture
def store(cluster: AisCluster) -> AisStore:
    return AisStore(StoreOptions(retries=3, timeout=5))


@each_row(
    ("url", "expected"),
    [
        ("ais://b/a/x", ("ais://b/", "b", "a/x", {"provider": "ais"})),
        ("ais://b", ("ais://b/", "b", "", {"provider": "ais"})),
        ("ais://@uuid#ns/b/x", ("ais://@uuid#ns/b/", "b", "x", {"provider": "ais", "namespace": "@uuid#ns"})),
        ("ais://@uuid/b/x", ("ais://@uuid/b/", "b", "x", {"provider": "ais", "namespace": "@uuid#"})),
        ("ais://#ns/b/x", ("ais://#ns/b/", "b", "x", {"provider": "ais", "namespace": "@#ns"})),
        ("s3://b/x", ("s3://b/", "b", "x", {"provider": "aws"})),
    ],
)
def test_urls(url: str, expected: object) -> None:
    assert split_url(url) == expected
    assert public_name(url) == url


def test_agrees_with_the_client_library(cluster: AisCluster, store: AisStore) -> None:
    """What AIStore's own client writes is read, and the reverse: so the stub answers as it expects."""
    aistore = pytest.importorskip("aistore")
    from aistore.sdk.namespace import Namespace

    client = aistore.Client(cluster.url)
    for bucket, root in (
        (client.bucket("b"), "ais://b/"),
        (client.bucket("b", namespace=Namespace(uuid="uuid", name="ns")), "ais://@uuid#ns/b/"),
    ):
        bucket.object("one").get_writer().put_content(DATA)
        assert whole(store, f"{root}one") == DATA
        upload = bucket.object("d d/two#").multipart_upload().create()
        for number in (1, 2):
            upload.add_part(number).put_content(DATA[:10])
        upload.complete()
        assert whole(store, f"{root}d d/two#") == DATA[:10] * 2
        for size in (0, 10, 500_000):
            put(store, f"{root}ours/{size}", DATA[:size])
            found = bucket.object(f"ours/{size}")
            assert found.get_reader().read_all() == DATA[:size]
            assert found.head().size == size
        assert bucket.object("one").get_reader(byte_range="bytes=5-9").read_all() == DATA[5:10]
        theirs = [(root + entry.name, entry.size) for entry in bucket.list_all_objects()]
        assert [info[:2] for info in store.list(root)] == theirs
        assert len(theirs) == 5


def test_tokens_go_to_the_gateway_alone(
    cluster: AisCluster, store: AisStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.token = "t0ken"
    with pytest.raises(TarkitError, match=r"permission denied.*token required") as caught:
        whole(store, "ais://b/a")
    assert "AIS_AUTHN_TOKEN" in str(caught.value.hint)
    with pytest.raises(TarkitError, match="permission denied"):
        put(store, "ais://b/a", b"x")
    file = tmp_path / ".config" / "ais" / "cli" / "auth.token"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"token": "t0ken"}))
    for _ in range(2):
        store = AisStore(StoreOptions())
        put(store, "ais://b/a", DATA)
        assert whole(store, "ais://b/a") == DATA
        assert len(list(store.list("ais://b/"))) == 1
        file.unlink(missing_ok=True)
        monkeypatch.setenv("AIS_AUTHN_TOKEN", "t0ken")
    assert any(role == "target" for role, *_ in cluster.log)
    assert all("Authorization" not in headers for role, _, _, headers in cluster.log if role == "target")
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "wr0ng")
    with pytest.raises(TarkitError) as caught:
        whole(AisStore(StoreOptions()), "ais://b/a")
    assert "wr0ng" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("size", [1000, 900_000])
def test_writes_that_fail(size: int, cluster: AisCluster, store: AisStore) -> None:
    """A target where others write is asked again; one that fails leaves no object; one that loses bytes is an error."""
    cluster.statuses = [409]
    put(store, "ais://b/a", DATA[:size])
    assert whole(store, "ais://b/a") == DATA[:size]
    cluster.statuses = [507] * 99
    with pytest.raises(TarkitError, match=r"507.*told so"):
        put(store, "ais://b/new", DATA[:size])
    cluster.statuses = [418] * 4
    upload = store.put("ais://b/new", False)
    with pytest.raises(TarkitError, match="418"):
        upload.write(DATA * 2)
    cluster.statuses = []
    upload.abort()
    assert ("ais", "", "b", "new") not in cluster.objects
    cluster.short = True
    upload = RemoteUpload(store, "ais://b/short", "ais://b/short", store.options)
    upload.write(DATA[:size])
    message = f"the server has {size - 1} bytes of this object, {size} were sent; it is there"
    with pytest.raises(Unconfirmed, match=message):
        upload.close()
    assert not cluster.uploads


def test_urls_that_cannot_be_requested(store: AisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a namespace that there is not, without a name, without a cluster."""
    calls = (partial(whole, store), lambda url: list(store.list(url)), lambda url: put(store, url, b"x", fresh=True))
    for call in calls:
        with pytest.raises(TarkitError, match="no such bucket"):
            call("ais://@other#/b/a")
    for url in ("ais://", "ais://b", "ais://b/"):
        with pytest.raises(Usage):
            whole(store, url)
        with pytest.raises(Usage):
            put(store, url, b"x")
    monkeypatch.delenv("AIS_ENDPOINT")
    with pytest.raises(Usage, match="no cluster"):
        whole(AisStore(StoreOptions()), "ais://b/a")
    monkeypatch.setenv("AIS_ENDPOINT", "127.0.0.1:1")
    with pytest.raises(TarkitError, match="no connection"):
        whole(AisStore(StoreOptions(retries=0)), "ais://b/a")


def test_buckets_of_other_providers(cluster: AisCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """USE_AIS_FOR sends the URLs of a scheme to the cluster, which has buckets of their providers."""
    monkeypatch.setenv("USE_AIS_FOR", "gs:s3")
    upload = connect.create_object("s3://b/a/x")
    upload.write(DATA)
    upload.close()
    assert list(cluster.objects) == [("aws", "", "b", "a/x")]
    with connect.open_object("s3://b/a/x").stream() as stream:
        assert stream.read(10) == DATA[:10]
    assert [info.url for info in connect.list_objects("s3://b/a")] == ["s3://b/a/x"]


def test_names_that_cannot_be_requested(cluster: AisCluster, store: AisStore) -> None:
    """They are left out of a list."""
    for name in ("a.tar", "b//c.tar", "d/../e.tar", "f.tar"):
        cluster.objects["ais", "", "b", name] = (b"x", 1)
    with pytest.warns(TarkitWarning, match="2 objects are left out of the list"):
        assert [info.url for info in store.list("ais://b/")] == ["ais://b/a.tar", "ais://b/f.tar"]


def test_versions_in_lists_are_those_of_replies(cluster: AisCluster, store: AisStore) -> None:
    """Other clouds may have other versions in lists, so these have none."""
    for url in ("ais://b/a", "ais://#ns/b/a", "s3://b/a"):
        cluster.buckets.add(("ais", "@#ns", "b"))
        put(store, url, DATA)
        (listed,) = store.list(url)
        read = store.get(url, 0, None)
        read.close()
        assert read.info.version == store.head(url).version
        assert listed.version == (None if url.startswith("s3") else read.info.version)


@pytest.mark.parametrize("read_range", [False, True, None])
def test_an_object_that_is_deleted_and_written_again(
    read_range: bool | None, cluster: AisCluster, store: AisStore
) -> None:
    """Its version begins anew. The checksum shows it, unless replies with a range have that of the range alone."""
    cluster.read_range = read_range
    place = ("ais", "", "b", "again")
    cluster.objects[place] = (DATA, 1)
    assert whole(store, "ais://b/again") == DATA
    replies = count(1)

    def change() -> None:
        if next(replies) == 4:
            cluster.objects[place] = (DATA[::-1], 1)

    cluster.change = change
    if read_range is False:
        with pytest.raises(TarkitError, match="has changed"):
            whole(store, "ais://b/again")
    else:
        assert len(whole(store, "ais://b/again")) == len(DATA)
    asked = [path for _, method, path, _ in cluster.log if method == "HEAD" and path.startswith("/v1/buckets/")]
    assert asked == ["/v1/buckets/b?provider=ais"]
