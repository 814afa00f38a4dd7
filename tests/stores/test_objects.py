"""Reading, writing and listing objects on servers of S3, Azure and Google's XML API."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

import tarkit
from tarkit.errors import TarkitError, Usage
from tarkit.stores import connect, listing, objects, reading, retry
from tarkit.stores.objects import ObjectStore
from tarkit.stores.reading import RemoteObject
from tarkit.stores.store import StoreOptions
from tarkit.stores.upload import RemoteUpload
from tarkit.streams.location import expand_inputs
from tests.conftest import tar
from tests.stores._servers import KEYS, Server, client, forwarding, refusing, serving, tarkit_run

DATA = random.Random(7).randbytes(3_000_000)
_numbers = count()


SERVERS = ("moto", "rclone", "azurite", "xml")

Fresh = Callable[..., str]


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has the bucket `bucket`."""
    with serving(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def store(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    """The server as a store, with small ranges and parts."""
    monkeypatch.setattr(reading, "FIRST", 100_000)
    monkeypatch.setattr(reading, "LARGEST", 400_000)
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    monkeypatch.setattr(objects, "PART", 5 << 20)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(StoreOptions(endpoint_url=server.endpoint, retries=2, timeout=5))


@pytest.fixture
def commands(server: Server, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the server."""
    monkeypatch.setenv(server.named, server.endpoint)


@pytest.fixture
def fresh_url(server: Server) -> Fresh:
    """Return a function that makes URLs, each in a directory of its own."""
    return lambda name="": f"{server.scheme}://bucket/{next(_numbers)}/{name or 'a.tar'}"


def put(store: ObjectStore, url: str, data: bytes, fresh: bool = False) -> None:
    upload = RemoteUpload(store, url, url, store.options, fresh)
    for start in range(0, len(data), 1 << 20):
        upload.write(data[start : start + (1 << 20)])
    upload.close()


def whole(store: ObjectStore, url: str) -> bytes:
    parts = []
    with RemoteObject(store, url, url, store.options, first=reading.FIRST).stream() as stream:
        while data := stream.read(70_000):
            parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, 100_000, 100_001, 3_000_000, 12_000_000])
def test_what_is_written_is_read(size: int, store: ObjectStore, fresh_url: Fresh) -> None:
    data, url = (DATA * 4)[:size], fresh_url()
    put(store, url, data)
    assert whole(store, url) == data
    assert store.head(url).size == size


def test_versions_in_lists_are_those_of_replies(store: ObjectStore, fresh_url: Fresh) -> None:
    """Of objects that were written by one request, or in parts."""
    for size in (0, 1000, 12_000_000):
        url = fresh_url()
        put(store, url, (DATA * 4)[:size])
        (listed,) = store.list(url)
        with closing(store.get(url, 0, None)) as reply:
            assert listed.version == reply.info.version == store.head(url).version
            assert listed.version is not None


def test_an_object_with_an_encoding_is_read_as_it_is_stored(
    store: ObjectStore, server: Server, fresh_url: Fresh, here: Path
) -> None:
    """`Content-Encoding: gzip` is that of the name of a shard, or of a program that uploaded it: nothing is decoded."""
    if not server.s3:
        pytest.skip("the client of the tests is one of S3")
    sent: list[str] = []

    def keep(headers: dict[str, str]) -> dict[str, str]:
        sent.append(headers.get("accept-encoding", ""))
        return headers

    plain = tar({f"{n}.txt": bytes(100_000) for n in range(9)})
    for size in (1000, len(plain)):
        url, data = fresh_url(), gzip.compress(plain[:size], 0)
        key = url.removeprefix(f"{server.scheme}://bucket/")
        client(server).put_object(Bucket="bucket", Key=key, Body=data, ContentEncoding="gzip")
        with forwarding(server.endpoint, change=keep) as endpoint:
            behind = ObjectStore(replace(store.options, endpoint_url=endpoint))
            assert whole(behind, url) == data
            assert behind.head(url).size == len(data)
    assert set(sent) == {"gzip" if server.scheme == "gs" else "identity"}
    with forwarding(server.endpoint) as endpoint:
        ran = tarkit_run("stats", "--total", url, "--endpoint-url", endpoint)
    assert ran.stdout == "9\n"


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_a_reply_that_is_longer_than_it_says(store: ObjectStore, server: Server, fresh_url: Fresh) -> None:
    """As of a server that decodes what it sends: an error, and never the first bytes of it."""
    put(store, url := fresh_url(), b"x" * 1000)

    def decode(method: str, path: str, data: bytes) -> bytes:
        return data + b"more" if method == "GET" else data

    with forwarding(server.endpoint, answer=decode) as endpoint:
        behind = ObjectStore(replace(store.options, endpoint_url=endpoint, retries=0))
        with pytest.raises(TarkitError, match="more bytes than it says"):
            whole(behind, url)


def test_an_upload_that_is_given_up_leaves_nothing(store: ObjectStore, server: Server, fresh_url: Fresh) -> None:
    """Neither an object nor parts, small or large."""
    for size in (1000, 12_000_000):
        url = fresh_url()
        upload = store.put(url, False)
        for start in range(0, size, 1 << 20):
            upload.write((DATA * 4)[start : min(start + (1 << 20), size)])
        upload.abort()
        with pytest.raises(FileNotFoundError):
            store.head(url)
    if server.s3:
        assert "Uploads" not in client(server).list_multipart_uploads(Bucket="bucket")


def test_fresh_replaces_nothing(store: ObjectStore, fresh_url: Fresh) -> None:
    url = fresh_url()
    put(store, url, b"one", fresh=True)
    with pytest.raises(TarkitError, match="exists"):
        put(store, url, b"two", fresh=True)
    assert whole(store, url) == b"one"
    put(store, url, b"three")
    assert whole(store, url) == b"three"


def test_lists_by_prefix_in_order(store: ObjectStore, fresh_url: Fresh) -> None:
    directory = fresh_url("x").removesuffix("x")
    names = ["train-0.tar", "train-1.tar", "train-10.tar", "val-0.tar", "sub/train-0.tar", "train"]
    for name in names:
        put(store, directory + name, name.encode())

    def listed(prefix: str) -> list[str]:
        return sorted(info.url.removeprefix(directory) for info in store.list(directory + prefix))

    assert listed("") == sorted(names)
    assert listed("train-") == ["train-0.tar", "train-1.tar", "train-10.tar"]
    assert listed("train") == ["train", "train-0.tar", "train-1.tar", "train-10.tar"]
    assert listed("sub/") == ["sub/train-0.tar"]
    assert listed("none") == []
    assert {info.size for info in store.list(directory + "train-")} == {11, 12}
    assert {info.version for info in store.list(directory + "val")} == {store.head(f"{directory}val-0.tar").version}


@pytest.mark.parametrize("server", ["xml"], indirect=True)
def test_anonymous_requests_to_google(
    server: Server, store: ObjectStore, fresh_url: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no credentials, also to write."""
    for name in server.environ:
        monkeypatch.delenv(name)
    nobody = ObjectStore(StoreOptions(endpoint_url=server.endpoint, anonymous=True, retries=0, timeout=5))
    for size in (10, 12_000_000):
        put(nobody, url := fresh_url(), (DATA * 4)[:size])
        assert whole(nobody, url) == (DATA * 4)[:size]


def test_bytes_beyond_the_end(store: ObjectStore, fresh_url: Fresh) -> None:
    """Are none, and no failure."""
    put(store, url := fresh_url(), DATA[:1000])
    for start, stop in ((1000, 2000), (1000, None), (5000, 6000)):
        assert store.get(url, start, stop).read(10) == b""


def test_objects_are_deleted(store: ObjectStore, fresh_url: Fresh) -> None:
    put(store, url := fresh_url(), b"x")
    store.delete(url)
    with pytest.raises(FileNotFoundError):
        store.head(url)


@pytest.mark.parametrize("server", ["rclone", "azurite"], indirect=True)
@pytest.mark.usefixtures("commands")
def test_other_credentials(server: Server, store: ObjectStore, fresh_url: Fresh) -> None:
    """The message says which to check, and not what they are. The other servers take any."""
    put(store, url := fresh_url(), archive := tar({"a.txt": b"x"}))
    secrets = [*server.wrong.values(), *server.environ.values()]
    for words in (["cat", url, "-o", "-"], ["cat", "-", "-o", fresh_url()], ["stats", f"{url[:-5]}*.tar"]):
        ran = tarkit_run(*words, exit=1, env={**os.environ, **server.wrong}, input=archive.decode())
        assert "permission denied" in ran.stderr
        assert "\nhint: check A" in ran.stderr
        assert not [secret for secret in secrets if len(secret) > 5 and secret in ran.stderr]


@pytest.mark.parametrize("url", ["s3://bucket/a.tar", "gs://bucket/a.tar", "az://bucket/a.tar"])
def test_no_credentials(url: str, tmp_path: Path) -> None:
    """They are missing, and not refused."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AZURE_STORAGE_ACCOUNT_NAME": "name"}
    with refusing("http://127.0.0.1:9", "GET", 99, 404) as (nobody, _):
        for words in (["cat", url, "-o", "-"], ["cat", "-", "-o", url]):
            ran = tarkit_run(*words, "--endpoint-url", nobody, exit=1, env=environ, input=tar({"a.txt": b"x"}).decode())
            assert "no credentials" in ran.stderr
            assert "\nhint: set " in ran.stderr


def test_errors_name_the_object_and_what_to_do(store: ObjectStore, server: Server, fresh_url: Fresh) -> None:
    with pytest.raises(FileNotFoundError):
        whole(store, fresh_url())
    nowhere = f"{server.scheme}://no-such-bucket/a.tar"
    with pytest.raises((TarkitError, FileNotFoundError), match="no-such-bucket"):
        whole(store, nowhere)
    with pytest.raises(
        (TarkitError, FileNotFoundError), match=r"no-such-bucket: there is no such (bucket|container)"
    ) as found:
        [*store.list(nowhere)]
    assert "\n" not in str(found.value)
    for size in (10, 12_000_000):
        with pytest.raises((TarkitError, FileNotFoundError), match="no-such-bucket"):
            put(store, nowhere, (DATA * 4)[:size])
    for url in (":///a.tar", "://bucket", "://bucket/"):
        with pytest.raises(Usage):
            whole(store, server.scheme + url)


@pytest.mark.parametrize(
    ("endpoint_url", "words"),
    [
        ("http://127.0.0.1:1", "refused"),
        ("http://no-such-host.invalid", "cannot be resolved"),
    ],
)
def test_no_server(endpoint_url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(StoreOptions(endpoint_url=endpoint_url, retries=1, timeout=2))
    with pytest.raises(TarkitError, match=words):
        whole(store, "s3://bucket/a.tar")


def test_globs_match_as_in_a_directory(
    store: ObjectStore, fresh_url: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pattern matches in a bucket is what `glob` finds in a directory that has the same files."""
    directory = fresh_url("x").removesuffix("x")
    names = ["a-1.tar", "a-2.tar", "a-10.tar", "b.tar", ".a-3.tar", "d/a-1.tar", "d/e/a-1.tar", "d/.h/a.tar", "[x].tar"]
    for name in names:
        put(store, directory + name, b"x")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(connect, "_options", store.options)
    for pattern in (
        "*.tar",
        "a-*.tar",
        "a-?.tar",
        "a-[12].tar",
        "a-[!1]*.tar",
        "**/*.tar",
        "*/a-1.tar",
        "d/**/a*.tar",
        "[[]x].tar",
    ):
        expected = {str(path) for path in glob.glob(pattern, root_dir=tmp_path, recursive=True)}
        assert {url.removeprefix(directory) for url in listing.matching(directory + pattern)} == expected, pattern
    assert {url.removeprefix(directory) for url in listing.children(directory)} == {
        "a-1.tar",
        "a-2.tar",
        "a-10.tar",
        "b.tar",
        "[x].tar",
    }
    found = [location.text.removeprefix(directory) for location in expand_inputs([f"{directory}a-*.tar"])]
    assert found == ["a-1.tar", "a-2.tar", "a-10.tar"]
    with pytest.raises(TarkitError, match="matches no archive"):
        expand_inputs([f"{directory}z*.tar"])
    with pytest.raises(TarkitError, match="no archives"):
        expand_inputs([f"{directory}none/"])


@pytest.mark.usefixtures("commands")
def test_an_input_is_never_an_output(store: ObjectStore, fresh_url: Fresh, here: Path) -> None:
    """As with files: neither one object, nor the shards of a series, also with --force."""
    directory = fresh_url("x").removesuffix("x")
    (here / "recipe").write_text("".join(f"{n}.txt text:{n}\n" for n in range(9)))
    tarkit_run("create", "recipe", "-o", f"{directory}a.tar")
    tarkit_run("split", f"{directory}a.tar", "-c", "4", "-o", f"{directory}s-%d.tar")
    both = "is both input and output"
    for words in (f"cat {directory}a.tar -o {directory}a.tar", f"sort {directory}*.tar -o {directory}s-1.tar"):
        assert both in tarkit_run(*words.split(), "--allow", "repeated-key", exit=2).stderr
    taken = "is an input, and has a name that the shards may get"
    assert (
        taken
        in tarkit_run("split", f"{directory}s-*.tar", "-c", "2", "-o", f"{directory}s-%d.tar", "--force", exit=2).stderr
    )
    assert tarkit_run("stats", f"{directory}s-*.tar", "--total").stdout == "9\n"
    assert "not a directory" in tarkit_run("cat", f"{directory}a.tar", "-o", directory, exit=2).stderr


@pytest.mark.usefixtures("commands")
def test_shards_have_checksums(store: ObjectStore, fresh_url: Fresh, here: Path) -> None:
    """Those of the objects, in Python and in a manifest, plain and compressed."""
    put(store, fresh_url(), b"")  # the process has the threads of obstore, and lists without a copy of itself
    directory = fresh_url("x").removesuffix("x")
    (here / "recipe").write_text("".join(f"{n}.txt text:{n}\n" for n in range(9)))
    tarkit_run("create", "recipe", "-o", "a.tar")
    for suffix in ("tar", "tar.zst", "zip"):
        shards = tarkit.open("a.tar").split(f"{directory}s-%d.{suffix}", count=4)
        for shard in shards:
            data = whole(store, shard.name)
            assert (shard.sha256, shard.stored) == (hashlib.sha256(data).hexdigest(), len(data))
        tarkit_run("split", "a.tar", "-c", "4", "-o", f"{directory}m-%d.{suffix}", "--manifest", "m.tsv")
        rows = [line.split("\t") for line in (here / "m.tsv").read_text().splitlines()[1:]]
        assert [(row[2], row[3]) for row in rows] == [(str(shard.stored), shard.sha256) for shard in shards]


@pytest.mark.usefixtures("commands")
def test_shards_are_replaced_by_force_alone(fresh_url: Fresh, here: Path) -> None:
    (here / "a.tar").write_bytes(tar({f"{n}.txt": b"x" for n in range(4)}))
    words = ["split", "a.tar", "-c", "2", "-o", fresh_url("s-%d.tar")]
    tarkit_run(*words)
    assert "there are shards of this name" in tarkit_run(*words, exit=1).stderr
    tarkit_run(*words, "--force")
    (here / "b.tar").write_bytes(tar({f"{n}.txt": b"x" for n in range(4, 6)}))
    tarkit_run("split", "b.tar", *words[2:], "--append")
    assert tarkit_run("stats", words[-1].replace("%d", "*"), "--total").stdout == "6\n"


def test_an_endpoint_is_a_url(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--endpoint-url", "127.0.0.1:9"], ["--endpoint-url", "ftp://127.0.0.1:9"]):
        assert "an endpoint is a URL" in tarkit_run("stats", "s3://b/a.tar", *words, exit=2).stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9")
    assert "an endpoint is a URL" in tarkit_run("cat", "s3://b/a.tar", "-o", "s3://b/b.tar", exit=2).stderr


@pytest.mark.usefixtures("commands")
def test_hints_for_objects_that_do_not_exist(server: Server) -> None:
    bucket = f"{server.scheme}://bucket"
    missing = f"tarkit: {bucket}/none.tar: No such file or directory\n"
    assert tarkit_run("stats", f"{bucket}/none.tar", exit=1).stderr == missing
    hint = f"hint: a directory ends in a slash: {bucket}/none/\n"
    assert tarkit_run("stats", f"{bucket}/none", exit=1).stderr.endswith(hint)


@pytest.mark.parametrize("size", [1000, 12_000_000])
def test_a_busy_server_is_asked_again(size: int, store: ObjectStore, fresh_url: Fresh) -> None:
    """For an object in one request, and for one in parts; too many failures are an error, and leave nothing."""
    data, url = (DATA * 4)[:size], fresh_url()
    with refusing(store.options.endpoint_url or "", "PUT", 2) as (endpoint, refused):
        put(ObjectStore(StoreOptions(endpoint_url=endpoint, retries=3, timeout=5)), url, data)
        assert len(refused) == 2
    assert whole(store, url) == data
    with refusing(store.options.endpoint_url or "", "PUT", 99) as (endpoint, refused):
        busy = ObjectStore(StoreOptions(endpoint_url=endpoint, retries=1, timeout=5))
        with pytest.raises(TarkitError, match="503"):
            put(busy, other := fresh_url(), data)
    with pytest.raises(FileNotFoundError):
        store.head(other)
    with refusing(store.options.endpoint_url or "", "GET", 2) as (endpoint, refused):
        again = ObjectStore(StoreOptions(endpoint_url=endpoint, retries=3, timeout=5))
        assert whole(again, url) == data
        assert len(refused) == 2
