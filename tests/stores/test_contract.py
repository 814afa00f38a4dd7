"""What every store does alike: a table of stores, and a list of laws."""

from __future__ import annotations

import glob
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.stores import ais, connect, listing, objects, other, reading, retry
from tarkit.stores.connect import create_object, delete_object, head_object, list_objects, open_object, read_object
from tarkit.stores.schemes import find_scheme, public_name
from tarkit.stores.store import Reply, Store, TryAgain
from tests.conftest import entries, tar
from tests.stores._backends import LOOPBACK, SERVERS, Backend

DATA = random.Random(7).randbytes(12_000_000)
SIZES = (0, 1, 99_999, 100_000, 100_001, 1_234_567)
NAMES = ("a-1.tar", "a-10.tar", "a-2.tar", "a0.tar", "b.tar", "d/a-1.tar", "d/e/a-1.tar", "d/e/f.tar", "z z.tar")
SECRETS = ("s3cret", "wr0ng", "d3Jvbmc", "t0ken", "SECRET")


@pytest.fixture(scope="module", params=[*LOOPBACK, *SERVERS])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with {**LOOPBACK, **SERVERS}[request.param](tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def backend(running: Backend, monkeypatch: pytest.MonkeyPatch, here: Path) -> Backend:
    """A store with small ranges, parts and pauses, whose options are those of the process."""
    for module, name, value in (
        (reading, "FIRST", 100_000), (reading, "LARGEST", 400_000), (retry, "_PAUSE", 0.001),
        (objects, "PART", 5 << 20), (ais, "PART", 5 << 20), (other, "_PIECE", 150_000), (other, "_WRITTEN", 500_000),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    if running.place.startswith("memory"):  # which no other process has
        monkeypatch.setattr(listing, "in_child", lambda url, call: call())
    monkeypatch.setenv("HOME", str(here))
    use(running, running.environ, monkeypatch)
    if running.refuse is not None:
        running.refuse(0)
    return running


def use(backend: Backend, environ: object, patch: pytest.MonkeyPatch) -> None:
    """Reach a store with these variables."""
    from tarkit.stores import buckets

    for name, value in dict(environ).items():  # type: ignore[call-overload]
        patch.setenv(name, value)
    buckets._open.cache_clear()
    connect._store.cache_clear()
    connect.configure(backend.options)


@pytest.fixture
def root(backend: Backend) -> str:
    """The URL of an empty directory."""
    return backend.directory()


@pytest.fixture
def written(backend: Backend, root: str) -> str:
    """The same of a store that can be written."""
    if not find_scheme(root).writable:  # type: ignore[union-attr]
        with pytest.raises(Unsupported):
            create_object(f"{root}a")
        with pytest.raises((Unsupported, FileNotFoundError)):
            delete_object(f"{root}a")
        pytest.skip("not written")
    return root


def put(url: str, data: bytes, fresh: bool = False) -> None:
    upload = create_object(url, fresh)
    for start in range(0, len(data), 300_000):
        upload.write(memoryview(data)[start : start + 300_000])
    upload.close()


def fill(backend: Backend, url: str, data: bytes) -> str:
    (backend.fill or put)(url, data)
    return url


def whole(url: str, step: int = 70_000) -> bytes:
    with open_object(url).stream() as stream:
        return b"".join(iter(lambda: stream.read(step), b""))


def names(root: str, prefix: str = "", depth: int | None = None) -> list[str]:
    return [info.url.removeprefix(root) for info in list_objects(root + prefix, depth=depth)]


def needs_ranges(backend: Backend) -> None:
    if not backend.ranges:
        url = fill(backend, f"{backend.directory()}a", b"x" * 1000)
        with pytest.raises(Unsupported, match="does not send parts"):
            connect.store_of(url, None).get(url, 10, 20)
        pytest.skip("a server that sends no parts of objects")


# ---- Reading


def test_whole_objects(backend: Backend, root: str) -> None:
    """By ranges and at once, with the length that is named; versions in lists are those of replies."""
    listed = find_scheme(root).listed  # type: ignore[union-attr]
    for size in SIZES:
        url = fill(backend, f"{root}{size} x.tar", DATA[:size])
        assert whole(url) == read_object(url)[0] == DATA[:size]
        info = head_object(url)
        assert info.size == size
        assert info.version == read_object(url)[1].version or not size  # a web server may say less of an empty one
        if listed:
            [found] = list_objects(url)
            assert found.size == size
            assert found.version in (info.version, None)


def test_ranges(backend: Backend, root: str) -> None:
    """In any order; beyond the end there is nothing."""
    needs_ranges(backend)
    remote = open_object(fill(backend, f"{root}a", DATA[:1_000_000]), first=5000)
    for start, stop in ((500_000, 700_000), (0, 10), (4990, 5010), (999_995, 1_000_005), (3, 3), (0, 1_000_000)):
        assert remote.read(start, stop) == DATA[:1_000_000][start:stop]
    remote.close()
    store = connect.store_of(root, None)
    for start, stop in ((1_000_000, 2_000_000), (1_000_000, None), (5_000_000, 6_000_000)):
        with closing(store.get(f"{root}a", start, stop)) as reply:
            assert reply.read(10) == b""


class Cut(Store):
    """A store whose replies end early, after some bytes."""

    def __init__(self, store: Store, length: int) -> None:
        super().__init__(store.options)
        self.store, self.length, self.requests = store, length, 0

    def get(self, url: str, start: int, stop: int | None) -> Reply:
        self.requests += 1
        reply = self.store.get(url, start, stop)
        read, left = reply.read, self.length

        def cut(n: int) -> bytes:
            nonlocal left
            if not left:
                raise TryAgain("cut")
            data = read(min(n, left))
            left -= len(data)
            return data

        reply.read = cut  # type: ignore[method-assign]
        return reply


def test_a_read_goes_on_at_its_byte(backend: Backend, root: str) -> None:
    needs_ranges(backend)
    url = fill(backend, f"{root}a", DATA[:500_000])
    store = Cut(connect.store_of(url, None), 30_000)
    with reading.RemoteObject(store, url, url, backend.options).stream() as stream:
        assert b"".join(iter(lambda: stream.read(70_000), b"")) == DATA[:500_000]
    assert store.requests >= 500_000 // 30_000
    dead = Cut(store.store, 0)
    with (
        pytest.raises(TarkitError, match=r"cut \(4 attempts\)") as raised,
        reading.RemoteObject(dead, url, public_name(url), backend.options).stream() as stream,
    ):
        stream.read(1)
    assert public_name(url) in str(raised.value)


def test_several_are_read_at_a_time(backend: Backend, root: str) -> None:
    """Some file systems have one connection, or one open file, for all readers."""
    data = {name: DATA[n : 600_000 + n] for n, name in enumerate("ab")}
    urls = [fill(backend, f"{root}{name}", data[name]) for name in "ab"] * 2
    found: dict[int, bytes] = {}

    def read(at: int) -> None:
        found[at] = whole(urls[at])

    threads = [threading.Thread(target=read, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[at] for at in range(4)] == [*data.values()] * 2


def test_an_object_that_changes_is_an_error(backend: Backend, root: str) -> None:
    """A longer one is not cut to the length that was known. The Hub has commits, which do not change."""
    needs_ranges(backend)
    if root.startswith("hf"):
        pytest.skip("commits do not change")
    for old, new, start in ((1000, 2000, 0), (600_000, 599_999, 200_000), (1000, 10, 0)):
        remote = open_object(fill(backend, f"{root}{old}-{new}", DATA[:old]), first=100)
        fill(backend, remote.url, DATA[-new:])
        with pytest.raises(TarkitError, match="has changed"):
            remote.read(max(start, 100), start + 300_000)
        remote.close()


def test_errors(backend: Backend, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name what is wrong, on one line, and no secret."""
    scheme, calls = find_scheme(root), list[Callable[[str], object]]((open_object, head_object, read_object))
    url, login, said = fill(backend, f"{root}a.tar", b"x"), "s3cret@" in root, list[str]()
    for call in calls:
        with pytest.raises(FileNotFoundError) as missing:
            call(f"{root}none/a.tar")
        assert missing.value.filename == public_name(f"{root}none/a.tar")
    if backend.missing:
        for call in (*calls, lambda url: put(url, b"x"), lambda url: list(list_objects(url))):
            with pytest.raises((TarkitError, FileNotFoundError), match=r"no such|No such file") as found:
                call(backend.missing)
            said.append(f"{found.value} {getattr(found.value, 'hint', '')}")
    if backend.wrong or login:
        use(backend, backend.wrong, monkeypatch)
        url, others = url.replace("s3cret@", "wr0ng@"), [] if login else [lambda url: list(list_objects(url))]
        for call in (*calls, *others, *([lambda url: put(url, b"x")] if scheme and scheme.writable else [])):
            with pytest.raises(TarkitError, match="permission denied") as found:
                call(url)
            said.append(f"{found.value} {found.value.hint}")
    for text, secret in product(said, SECRETS):
        assert text.isprintable()
        assert secret not in text.replace("SECRET_ACCESS_KEY", ""), text


def test_a_busy_server_is_asked_again(backend: Backend, root: str) -> None:
    """For reading, listing and writing, in one request and in parts; too many failures are an error."""
    if backend.refuse is None:
        pytest.skip("a server that is never busy")
    url, scheme = fill(backend, f"{root}a", DATA[:500_000]), find_scheme(root)
    assert scheme is not None
    backend.refuse(3)
    assert whole(url) == DATA[:500_000]
    if scheme.listed:
        backend.refuse(2 if root.startswith("ais") else 3)
        assert names(root) == ["a"]
    backend.refuse(999)
    with pytest.raises(TarkitError, match="503"):
        whole(url)
    for size in (1000, 11_000_000) if scheme.writable else ():
        backend.refuse(3)
        put(f"{root}{size}", DATA[:size])
        assert whole(f"{root}{size}", 1 << 20) == DATA[:size]
        backend.refuse(999)
        with pytest.raises(TarkitError, match="503"):
            put(f"{root}new-{size}", DATA[:size])
        backend.refuse(0)
        with pytest.raises(FileNotFoundError):
            head_object(f"{root}new-{size}")


def test_a_cache_has_an_object_until_it_changes(backend: Backend, root: str, here: Path) -> None:
    """Where the server names its version and length. A commit of the Hub does not change."""
    url, options = fill(backend, f"{root}a", DATA[:500_000]), backend.options.replace(cache=str(here / "cache"))
    files: list[int] = []
    for data in (DATA[:500_000], DATA[:500_000], DATA[-400_000:])[: 2 if root.startswith("hf") else 3]:
        fill(backend, url, data)
        cached = connect.open_cached(url, options)
        if cached is None:
            assert head_object(url).version is None
            continue
        with os.fdopen(cached.fd, "rb") as file:
            assert file.read() == data
            files.append(os.fstat(file.fileno()).st_ino)
    assert not files[2:] or files[1] != files[2]


# ---- Lists


def test_lists(backend: Backend, root: str) -> None:
    """By the start of names, with lengths, and a depth; globs are those of a directory with the same files."""
    if not find_scheme(root).listed:  # type: ignore[union-attr]
        with pytest.raises(Unsupported):
            names(root)
        pytest.skip("not listed")
    for name in NAMES:
        fill(backend, root + name, name.encode())
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"")
    assert sorted(names(root)) == sorted(NAMES)
    for prefix in ("a-", "a", "d/", "d/e", "none", "none/", "a-1.tar"):
        assert sorted(names(root, prefix)) == sorted(name for name in NAMES if name.startswith(prefix))
    for depth in (0, 1):
        assert {name for name in NAMES if name.count("/") <= depth} <= set(names(root, depth=depth))
    assert {info.url.removeprefix(root): info.size for info in list_objects(root)} == {n: len(n) for n in NAMES}
    for pattern in ("*.tar", "a-*.tar", "a-?.tar", "a-[12].tar", "a-[!1]*.tar", "**/*.tar", "*/a-1.tar", "d/**/a*.tar"):
        expected = sorted(map(str, glob.glob(pattern, recursive=True)))
        assert sorted(url.removeprefix(root) for url in listing.matching(root + pattern)) == expected, pattern
    assert sorted(url.removeprefix(root) for url in listing.children(f"{root}d/")) == ["d/a-1.tar"]
    assert [each.text.removeprefix(root) for each in tarkit.open(f"{root}a-*.tar").locations] == [
        "a-1.tar",
        "a-2.tar",
        "a-10.tar",
    ]
    with pytest.raises(TarkitError, match="matches no archive"):
        tarkit.open(f"{root}z*.zip")


# ---- Writing


@pytest.mark.parametrize("size", [0, 5 << 20, 12_000_000])
def test_what_is_written_is_read(size: int, backend: Backend, written: str) -> None:
    """There is no object before it is complete, and the old one stays until then; what is given up leaves nothing."""
    url, data = f"{written}d/a b.tar", DATA[:size]
    for old in (None, b"old"):
        for end in ("abort", "close"):
            upload = create_object(url)
            for start in range(0, size, 1 << 20):
                upload.write(data[start : start + (1 << 20)])
            if old is None:
                with pytest.raises(FileNotFoundError):
                    head_object(url)
                assert list(listing.matching(f"{written}**/*.tar")) == []
            else:
                assert whole(url) == old
            getattr(upload, end)()
            if end == "abort":
                upload.abort()
                assert names(written) == ([] if old is None else ["d/a b.tar"])
        assert whole(url, 1 << 20) == data
        assert head_object(url).size == size
        put(url, b"old")
    assert names(written) == ["d/a b.tar"]
    assert not backend.parts()


def test_fresh_replaces_nothing(written: str) -> None:
    """Neither what was there, nor what another writer wrote meanwhile."""
    put(f"{written}a", b"one", fresh=True)
    for size in (3, 11_000_000):
        with pytest.raises(TarkitError, match="exists"):
            put(f"{written}a", DATA[:size], fresh=True)
        upload = create_object(f"{written}{size}", fresh=True)
        upload.write(DATA[:size])
        put(f"{written}{size}", b"first")
        with pytest.raises(TarkitError, match="exists"):
            upload.close()
        assert whole(f"{written}{size}") == b"first"
    assert whole(f"{written}a") == b"one"
    assert sorted(names(written)) == ["11000000", "3", "a"]


def test_a_directory_stays(backend: Backend, written: str) -> None:
    """Where an object cannot have its name it is an error, and nothing is left of it."""
    if not backend.ranges:
        pytest.skip("rclone removes directories itself")
    put(f"{written}d/a", b"one")
    with suppress(TarkitError, OSError):
        put(f"{written}d", b"two")
    assert whole(f"{written}d/a") == b"one"
    assert set(names(written)) <= {"d", "d/a"}


def test_removes(written: str) -> None:
    for name in "ab":
        put(f"{written}{name}", b"x")
    delete_object(f"{written}a")
    assert names(written) == ["b"]
    upload = create_object(f"{written}c")
    upload.write(b"x")
    upload.close()
    put(f"{written}c", b"y")
    assert upload.withdraw() is False or written.startswith(("memory", "local", "ftp", "sftp"))


def test_shards(backend: Backend, written: str) -> None:
    """Are written, listed and read back; existing ones are an error, continued, or replaced, and never an input."""
    Path("in.tar").write_bytes(tar({f"{n}.txt": b"x" for n in range(5)}))
    data, template = tarkit.open("in.tar"), f"{written}out/s-%d.tar"
    assert [shard.name for shard in data.split(template, count=2)] == [f"{written}out/s-{n}.tar" for n in range(3)]
    for inputs in (f"{written}out/s-*.tar", f"{written}out/", f"{written}out/s-{{0..2}}.tar"):
        tarkit.open(inputs).write("all.tar")
        assert entries("all.tar") == [(f"{n}.txt", b"x") for n in range(5)]
    with pytest.raises(TarkitError, match="there are shards of this name"):
        data.split(template, count=2)
    assert len(data.split(template, count=9, append=True)) == 1
    with pytest.raises(Usage, match="is an input"):
        tarkit.open(f"{written}out/*.tar", allow=["repeated-key"]).split(template, count=3, force=True)
    data.split(template, count=3, force=True)
    assert names(written, "out/") == ["out/s-0.tar", "out/s-1.tar"]
