"""URLs of fsspec's file systems: memory, the local disk, and servers of FTP and SFTP on loopback."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.stores import connect, listing, reading, retry, schemes
from tarkit.stores.reading import RemoteObject
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions
from tarkit.stores.upload import RemoteUpload
from tests._tools import TARKIT, archive, contents, each_row
from tests.conftest import Run

fsspec = pytest.importorskip("fsspec")
from tarkit.stores import other
from tarkit.stores.other import OtherStore

DATA = random.Random(7).randbytes(2_000_000)
_numbers = count()


@contextmanager
def ftp_server(root: Path) -> Iterator[str]:
    """Serve a directory by FTP, to the user `me`."""
    pytest.importorskip("pyftpdlib")
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    authorizer = DummyAuthorizer()
    authorizer.add_user("me", "s3cret", str(root), perm="elradfmwMT")
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "auth_failed_timeout": 0})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"timeout": 0.05, "handle_exit": False}, daemon=True)
    thread.start()
    try:
        yield f"ftp://me:s3cret@127.0.0.1:{server.socket.getsockname()[1]}/"
    finally:
        server.close_all()


@contextmanager
def sftp_server(root: Path) -> Iterator[str]:
    """Serve a directory by SFTP, to the user `me`."""
    pytest.importorskip("paramiko")
    asyncssh = pytest.importorskip("asyncssh")

    class Server(asyncssh.SSHServer):  # type: ignore[misc]
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("me", "s3cret")

    async def listen() -> int:
        found = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(root)),
        )  # fmt: skip
        return int(found.get_port())

    async def end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"sftp://me:s3cret@127.0.0.1:{asyncio.run_coroutine_threadsafe(listen(), loop).result(10)}/"
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


@pytest.fixture(params=["memory", "local", "ftp", "sftp"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory of a file system of each kind."""
    monkeypatch.setattr(reading, "FIRST", 100_000)
    monkeypatch.setattr(reading, "LARGEST", 400_000)
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    monkeypatch.setattr(other, "_PIECE", 150_000)
    monkeypatch.setattr(other, "_WRITTEN", 500_000)
    (tmp_path / "root").mkdir()
    connect._store.cache_clear()
    if request.param == "memory":
        yield f"memory://test{next(_numbers)}/"
    elif request.param == "local":
        yield f"local://{tmp_path}/root/"
    else:
        with (ftp_server if request.param == "ftp" else sftp_server)(tmp_path / "root") as url:
            yield url
    connect._store.cache_clear()


@pytest.fixture
def store() -> OtherStore:
    return OtherStore(StoreOptions(retries=2, timeout=5))


def put(store: OtherStore, url: str, data: bytes, fresh: bool = False) -> None:
    upload = RemoteUpload(store, url, public_name(url), store.options, fresh)
    for start in range(0, len(data), 300_000):
        upload.write(memoryview(data)[start : start + 300_000])
    upload.close()


def whole(store: OtherStore, url: str) -> bytes:
    parts = []
    with RemoteObject(store, url, public_name(url), store.options, first=reading.FIRST).stream() as stream:
        while data := stream.read(70_000):
            parts.append(data)
    return b"".join(parts)


def names(store: OtherStore, root: str, prefix: str = "", depth: int | None = None) -> list[str]:
    return [info.url.removeprefix(root) for info in store.list(root + prefix, depth)]


@each_row("url", ["ftp://me:s3#cret@h/a", "ftp://me:s3?cret@h/a", "sftp://me:s3/cret@h/a", "ftp://h:port/a"])
@each_row("words", ["stats {}", "cat {}*.tar -o x.tar", "create recipe -o {}"])
def test_logins_that_end_a_url(words: str, url: str, here: Path) -> None:
    """One line that says what to do, without the password."""
    if url.startswith("sftp"):
        pytest.importorskip("paramiko")
    (here / "recipe").write_text("a.txt text:1\n")
    command = [*TARKIT, *words.format(url).split()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert ran.returncode == 2, ran.stderr
    assert "not valid" in ran.stderr
    assert "%23" in ran.stderr
    assert "s3" not in ran.stderr.replace("s3://", "")


def test_what_is_written_is_read(root: str, store: OtherStore) -> None:
    for number, size in enumerate((0, 1, 100_000, 499_999, 500_000, 2_000_000)):
        url = f"{root}sub/{number} x.tar"
        put(store, url, DATA[:size])
        assert whole(store, url) == DATA[:size]
        assert store.head(url).size == size
    remote = RemoteObject(store, url, url, store.options)
    assert remote.read(1_234_567, 1_700_000) == DATA[1_234_567:1_700_000]
    assert remote.read(len(DATA) - 5, len(DATA) + 5) == DATA[-5:]
    remote.close()


def test_several_are_read_at_a_time(root: str, store: OtherStore) -> None:
    """Some file systems have one connection, or one open file, for all readers."""
    put(store, f"{root}a", DATA)
    put(store, f"{root}b", DATA[::-1])
    found: dict[str, bytes] = {}
    urls = [f"{root}{name}" for name in "abab"]
    threads = [
        threading.Thread(target=lambda at=at, url=url: found.update({at: whole(store, url)}))  # type: ignore[misc]
        for at, url in enumerate(urls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[at] for at in range(4)] == [DATA, DATA[::-1]] * 2  # type: ignore[index]


def test_an_upload_is_seen_when_it_is_complete(root: str, store: OtherStore) -> None:
    """While it is written there is no object of its name; given up, it leaves nothing at all."""
    upload = store.put(f"{root}a.tar", False)
    for _ in range(4):
        upload.write(DATA[:300_000])
        with pytest.raises(FileNotFoundError):
            store.head(f"{root}a.tar")
    assert list(_matching(root, "*")) == []
    upload.abort()
    assert names(store, root) == []
    put(store, f"{root}a.tar", b"old")
    upload = store.put(f"{root}a.tar", False)
    upload.write(DATA)
    assert whole(store, f"{root}a.tar") == b"old"
    upload.close()
    assert whole(store, f"{root}a.tar") == DATA
    assert names(store, root) == ["a.tar"]


def _matching(root: str, pattern: str) -> list[str]:
    return [url.removeprefix(root) for url in listing.matching(root + pattern)]


@each_row("fault", ["open", "write", "rename", "short"])
def test_a_write_that_fails_leaves_nothing(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it replace what was there."""
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    root, store = f"memory://fault{next(_numbers)}/", OtherStore(StoreOptions())
    put(store, f"{root}a", b"old")

    def fail(*args: object, **how: object) -> None:
        raise OSError(28, "No space left on device")

    where, name = {
        "open": (MemoryFileSystem, "_open"),
        "write": (MemoryFile, "write"),
        "rename": (MemoryFileSystem, "cp_file"),
        "short": (MemoryFile, "write"),
    }[fault]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, (lambda self, data: len(data)) if fault == "short" else fail, raising=False)
        with pytest.raises(TarkitError, match="memory://") as caught:
            put(store, f"{root}a", DATA)
    assert "not written" in str(caught.value) or "arrived" in str(caught.value)
    assert names(store, root) == ["a"]
    assert whole(store, f"{root}a") == b"old"


def test_a_file_system_that_renames_onto_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of Hadoop, which refuses or does nothing if the name is taken."""
    from fsspec.implementations.local import LocalFileSystem

    rename = LocalFileSystem.mv

    def refuse(self: object, one: str, two: str) -> None:
        if Path(two).exists():
            raise FileExistsError(two)
        rename(self, one, two)

    def ignore(self: object, one: str, two: str) -> None:
        if not Path(two).exists():
            rename(self, one, two)

    url, store = f"local://{tmp_path}/a", OtherStore(StoreOptions())
    for number, way in enumerate((refuse, ignore)):
        monkeypatch.setattr(LocalFileSystem, "mv", way)
        put(store, url, b"%d" % number)
        put(store, url, b"new%d" % number)
        assert whole(store, url) == b"new%d" % number
        assert names(store, f"local://{tmp_path}/") == ["a"]


def test_fresh_replaces_nothing(root: str, store: OtherStore) -> None:
    put(store, f"{root}a", b"one", fresh=True)
    with pytest.raises(TarkitError, match="exists"):
        put(store, f"{root}a", b"two", fresh=True)
    upload = RemoteUpload(store, f"{root}b", "b", store.options, fresh=True)
    put(store, f"{root}b", b"first")
    with pytest.raises(TarkitError, match="exists"):
        upload.close()
    assert [whole(store, f"{root}{name}") for name in "ab"] == [b"one", b"first"]
    assert names(store, root) == ["a", "b"]


def test_removes(root: str, store: OtherStore) -> None:
    put(store, f"{root}a", b"x")
    put(store, f"{root}b", b"x")
    store.delete(f"{root}a")
    assert names(store, root) == ["b"]
    with pytest.raises(FileNotFoundError):
        store.delete(f"{root}a")


def test_lists(root: str, store: OtherStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["a-1.tar", "a-10.tar", "a-2.tar", "a/b/c.tar", "a/d.tar", "a0.tar", ".hidden.tar"]
    for name in files:
        put(store, root + name, name.encode())
    assert names(store, root) == sorted(files)
    assert names(store, root, "a-") == ["a-1.tar", "a-10.tar", "a-2.tar"]
    assert names(store, root, "a/") == ["a/b/c.tar", "a/d.tar"]
    assert names(store, root, depth=0) == sorted(name for name in files if "/" not in name)
    assert names(store, root, depth=1) == sorted(name for name in files if name.count("/") < 2)
    assert names(store, root, "none/") == []
    assert [info.size for info in store.list(f"{root}a-")] == [7, 8, 7]
    assert _matching(root, "a-?.tar") == ["a-1.tar", "a-2.tar"]
    assert _matching(root, "**/*.tar") == sorted(name for name in files if name[0] != ".")
    assert _matching(root, "*/d.tar") == ["a/d.tar"]


def test_errors(root: str, store: OtherStore) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        whole(store, f"{root}none/a.tar")
    assert "s3cret" not in str(caught.value)
    assert str(caught.value.filename).endswith("none/a.tar")
    put(store, f"{root}d/a", b"x")
    with pytest.raises(IsADirectoryError):
        whole(store, f"{root}d")
    with pytest.raises(Usage):
        store.put(f"{root}d/", False)
    with pytest.raises(Usage, match="chains"):
        whole(store, f"{root}d::{root}a")


def test_a_wrong_password_and_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    store = OtherStore(StoreOptions(retries=1, timeout=2))
    with ftp_server(tmp_path) as url, pytest.raises(TarkitError, match="permission denied") as caught:
        whole(store, url.replace("s3cret", "wr0ng") + "a.tar")
    assert "wr0ng" not in f"{caught.value}{caught.value.hint}"
    with pytest.raises(TarkitError, match="refused"):
        whole(store, "ftp://127.0.0.1:1/a.tar")


def test_a_connection_that_ends_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that closes idle connections, or restarts."""
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    store = OtherStore(StoreOptions(retries=2, timeout=2))
    with ftp_server(tmp_path) as root:
        put(store, f"{root}a", DATA)
        [connection] = store._connections.values()
        connection._system.ftp.sock.shutdown(2)
        assert whole(store, f"{root}a") == DATA


def test_an_object_that_changes_is_an_error(root: str, store: OtherStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first byte is read too: a longer one is not cut to the length that was known."""
    url = f"{root}a"
    for old, new, start in ((DATA[:1000], DATA[:2000], 0), (DATA, DATA[:-1], 200_000), (DATA[:1000], DATA[:10], 0)):
        put(store, url, old)
        remote = RemoteObject(store, url, url, store.options, first=100_000)
        put(store, url, new)
        with pytest.raises(TarkitError, match="has changed"):
            remote.read(start, start + 300_000)
        remote.close()


@each_row("url", ["data://x", "github://o:n@main/a", "zip://a.tar"])
def test_file_systems_that_cannot_rename_are_not_written(url: str) -> None:
    with pytest.raises((Unsupported, TarkitError)) as caught:
        put(OtherStore(StoreOptions()), url, b"x")
    assert "cannot rename" in str(caught.value) or "Install" in str(caught.value) or "installed" in str(caught.value)


def test_schemes_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsspec the hint names the extra as well; `pipe:` is there always."""
    assert schemes.find_scheme("nobody://x") is None
    assert schemes.find_scheme("memory://x") == schemes.OTHER
    assert "fsspec" not in str(schemes.unknown_scheme_error("nobody://x").hint)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "tarkit.stores.other")
    assert schemes.find_scheme("memory://x") is None
    hint = str(schemes.unknown_scheme_error("nobody://x").hint)
    assert "'pipe:COMMAND nobody://x'" in hint
    assert "pip install 'tarkit[fsspec]'" in hint


@pytest.mark.forks
def test_commands_read_and_write(root: str, run: Run) -> None:
    """Shards are written and read back through the command line."""
    Path("in.tar").write_bytes(archive({f"{n}.txt": b"x" for n in range(5)}))
    run("split", "-c", "2", "-o", f"{root}out/s-%d.tar", "in.tar")
    run("cat", f"{root}out/s-*.tar", "-o", "all.tar")
    assert [name for name, _ in contents(Path("all.tar").read_bytes())] == [f"{n}.txt" for n in range(5)]
    run("cat", f"{root}out/", "-o", "all2.tar")
    assert Path("all2.tar").read_bytes() == Path("all.tar").read_bytes()
    Path("recipe").write_text(f"a.bin\t{root}out/s-2.tar\n")
    run("create", "recipe", "-o", "made.tar")
    [(_, data)] = contents(Path("made.tar").read_bytes())
    assert contents(data) == [("4.txt", b"x")]


@pytest.mark.forks
def test_existing_shards_are_found_continued_and_replaced(tmp_path: Path) -> None:
    """As in a directory: an error, the next number, or no other shards of this name."""
    with tarkit.ShardWriter(str(tmp_path / "in-%d.tar"), count=100) as out:
        for number in range(6):
            out.write(f"{number}", {"txt": str(number)})
    data, template = tarkit.open(str(tmp_path / "in-0.tar")), "memory://shards/s-%d.tar"
    assert [shard.name[-7:] for shard in data.split(template, count=2)] == ["s-0.tar", "s-1.tar", "s-2.tar"]
    with pytest.raises(TarkitError, match="there are shards of this name"):
        data.split(template, count=2)
    assert [shard.name[-7:] for shard in data.split(template, count=3, append=True)] == ["s-3.tar", "s-4.tar"]
    data.split(template, count=3, force=True)
    assert len(list(tarkit.open("memory://shards/*.tar"))) == 6
