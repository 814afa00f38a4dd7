"""The cache: each object is fetched once, and no file in it is ever wrong, short or removed while it is read."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError, Usage
from tarkit.samples.dataset import open_source
from tarkit.stores import connect
from tarkit.stores.cache import PART, CachedFile, _file_name
from tarkit.stores.store import Info, StoreOptions, silent
from tarkit.streams.location import expand_inputs
from tarkit.streams.source import FileSource
from tests._tools import TARKIT, archive, each_row, happens, process
from tests.conftest import tarkit as tarkit_command
from tests.stores._http import HttpServer, Served

DATA = random.Random(7).randbytes(3_000_000)
OTHER = random.Random(8).randbytes(3_000_000)
QUICK = StoreOptions(retries=3, timeout=5)
MB = 1_000_000

Configure = Callable[..., None]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """Set the cache of this process; lines about it go to `lines`."""

    def set_cache(cache: Path | str | None, size: str | None = None, lines: list[str] | None = None) -> None:
        connect._cache_in.cache_clear()
        tell = silent if lines is None else lines.append
        connect.configure(QUICK.replace(cache=None if cache is None else str(cache), cache_size=size, tell=tell))

    yield set_cache
    connect.configure(StoreOptions())


def content(url: str) -> bytes | None:
    """The bytes of an object, from its file in the cache; None if it is read without."""
    cached = connect.open_cached(url)
    if cached is None:
        return None
    with os.fdopen(cached.fd, "rb") as file:
        return file.read()


def held(url: str) -> CachedFile:
    cached = connect.open_cached(url)
    assert cached is not None
    return cached


def files(cache: Path) -> list[str]:
    """The last components of the objects in the cache, those that are incomplete included."""
    return sorted(path.name[66:] for path in (cache / "tarkit").iterdir() if path.name != "lock")


def shard(name: str = "a", size: int = 2 * MB) -> bytes:
    return archive([(f"{name}.bin", random.Random(name).randbytes(size)), (f"{name}.cls", b"1")])


def started(*words: str) -> subprocess.Popen[bytes]:
    return process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(running: subprocess.Popen[bytes]) -> bytes:
    """Wait for a command that succeeds without a message; return its output."""
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, b"")
    return out


def some_is_fetched(cache: Path) -> bool:
    """Wait until there are the first bytes of an object that is not complete."""
    folder = cache / "tarkit"
    return happens(lambda: any(path.name.endswith(PART) and path.stat().st_size for path in folder.glob("*")))


# ---- One process


@each_row("how", [{}, {"ranges": False}, {"etag": None, "headers": {"Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}}])
def test_an_object_is_fetched_once(
    how: dict[str, object], server: HttpServer, configure: Configure, tmp_path: Path
) -> None:
    for n, data in enumerate((DATA, b"x")):
        configure(tmp_path / repr(how) / str(n))
        url = server.serve("/d/a.tar", data, **how)
        assert content(url) == data
        served = server.objects["/d/a.tar"]
        served.requests = served.sent = 0
        assert content(url) == data
        assert served.requests == 1
        assert "ranges" in how or served.sent <= 1
        assert files(tmp_path / repr(how) / str(n)) == ["a.tar"]


def test_an_object_that_changed_is_fetched_again(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    configure(tmp_path)
    url = server.serve("/a.tar", DATA)
    with os.fdopen(held(url).fd, "rb") as before:
        server.serve("/a.tar", OTHER, etag='"2"')
        assert content(url) == OTHER
        assert before.read() == DATA
        assert files(tmp_path) == ["a.tar", "a.tar"]
    server.serve("/a.tar", OTHER[:-1], etag='"2"')
    assert content(url) == OTHER[:-1]
    assert files(tmp_path) == ["a.tar"]  # those of other versions are gone, once nobody reads them
    server.objects.clear()
    with pytest.raises(FileNotFoundError):
        content(url)


def test_different_urls_have_different_files(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    configure(tmp_path)
    paths = ["/a/x.tar", "/b/x.tar", "/a/x.tar/x.tar", "/a%2Fx.tar", "/a_x.tar", "/A/x.tar", "/a//x.tar"]
    datas = [DATA[n:] + DATA[:n] for n in range(len(paths))]
    for _ in range(2):
        for path, data in zip(paths, datas, strict=True):
            assert content(server.serve(path, data, etag='"same"')) == data
    assert len(files(tmp_path)) == len(paths)
    url = server.url + paths[0]
    for n, other in enumerate((f"{url}?v=1", f"{url}?v=2", url.replace("//", "//user:pass@")), 1):
        assert content(other) == datas[0]
        assert len(files(tmp_path)) == len(paths) + n
    assert "pass" not in "".join(os.listdir(tmp_path / "tarkit"))


def test_a_file_that_was_damaged_is_replaced(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    configure(tmp_path)
    url = server.serve("/a.tar", DATA)
    cached = held(url)
    os.close(cached.fd)
    os.truncate(cached.path, 100)
    assert content(url) == DATA


def failing(served: Served, number: int) -> None:
    served.drop = 100_000 if number > 1 else None
    served.etag = served.etag if number < 4 else None


def changing(served: Served, number: int) -> None:
    if number == 3:
        served.data, served.etag = OTHER, '"2"'


def vanishing(served: Served, number: int) -> None:
    if number == 3:
        served.statuses = [404]


@each_row("change", [failing, changing, vanishing])
def test_what_broke_off_is_not_stored(
    change: Callable[[Served, int], None], server: HttpServer, configure: Configure, tmp_path: Path
) -> None:
    lines: list[str] = []
    configure(tmp_path / change.__name__, lines=lines)
    url = server.serve("/a", DATA, change=change)
    with pytest.raises((TarkitError, FileNotFoundError)) as caught:
        content(url)
    assert url in str(caught.value)
    assert files(tmp_path / change.__name__) == []
    assert not any("cache" in line for line in lines)
    server.serve("/a", DATA)
    assert content(url) == DATA


@each_row("how", [{"etag": None}, {"chunked": True, "ranges": False}])
def test_what_cannot_be_validated_is_not_stored(
    how: dict[str, object], server: HttpServer, configure: Configure, tmp_path: Path
) -> None:
    lines: list[str] = []
    configure(tmp_path, lines=lines)
    url = server.serve("/a", DATA, **how)
    assert content(url) is content(url) is None
    assert lines == [f"{url}: read without the cache: the server does not name its version and length"]


# ---- Size


def test_what_was_opened_longest_ago_is_removed(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    configure(tmp_path, "10MB")
    urls = {name: server.serve(f"/{name}", DATA) for name in "abcd"}
    for name in "abca":
        assert content(urls[name]) == DATA
    assert content(urls["d"]) == DATA
    assert files(tmp_path) == ["a", "c", "d"]
    with os.fdopen(held(urls["c"]).fd), os.fdopen(held(urls["a"]).fd):
        content(urls["d"])
        content(urls["b"])
        assert files(tmp_path) == ["a", "b", "c"]  # the others are in use, so that one goes which was opened last
    assert content(server.serve("/e", DATA * 3)) == DATA * 3
    assert files(tmp_path) == ["e"]


def test_there_is_no_room(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    lines: list[str] = []
    configure(tmp_path, "5MB", lines)
    assert content(server.serve("/large", DATA * 2)) is content(server.url + "/large") is None
    with os.fdopen(held(server.serve("/a", DATA)).fd):
        for name in "bc":
            assert content(server.serve(f"/{name}", DATA)) is None
        assert content(server.serve("/small", DATA[: 2 * MB])) == DATA[: 2 * MB]
    assert files(tmp_path) == ["a", "small"]
    assert lines == [
        "objects larger than the cache are read without it",
        "the cache is full of files that are in use: other objects are read without it",
    ]
    assert content(server.url + "/b") == DATA


def test_what_killed_processes_left_is_removed(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    configure(tmp_path)
    url = server.serve("/a", DATA)
    cached = held(url)
    os.close(cached.fd)
    os.rename(cached.path, cached.path + PART)
    left = tmp_path / "tarkit" / f"{'0' * 32}-{'0' * 32}-x{PART}"
    left.write_bytes(DATA)
    strange = tmp_path / "tarkit" / "notes.txt"
    strange.touch()
    assert content(url) == DATA
    assert not left.exists()
    strange.unlink()  # what is not of the cache stays
    assert files(tmp_path) == ["a"]


def test_invalid_sizes(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(cache: str | None, size: str | None, error: str) -> None:
        with pytest.raises(Usage, match=error):
            _ = configure(cache, size), connect.open_cached("http://127.0.0.1:1/a")

    refused(None, "5G", "cache_size requires cache")
    refused("x", "5Q", "invalid size")
    monkeypatch.setenv("WDS_CACHE", "x")
    monkeypatch.setenv("WDS_CACHE_SIZE", "five")
    refused(None, None, "WDS_CACHE_SIZE: invalid size")


def test_variables_of_webdataset(
    server: HttpServer, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "wds"))
    monkeypatch.setenv("WDS_CACHE_SIZE", "4e6")
    configure(None)
    for name in "ab":
        assert content(server.serve(f"/{name}", DATA)) == DATA
    assert files(tmp_path / "wds") == ["b"]
    configure(None, "7MB")
    content(server.url + "/a")
    assert files(tmp_path / "wds") == ["a", "b"]
    configure(tmp_path / "own", "7MB")
    content(server.url + "/a")
    assert files(tmp_path / "own") == ["a"]
    requests = len(server.log)
    configure("")
    assert content(server.url + "/a") is None
    assert len(server.log) == requests


def test_files_of_other_programs_are_not_used(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    """Such as those of webdataset, whose names say nothing of server and version; nor are they touched."""
    configure(tmp_path)
    url = server.serve("/a/b.tar", DATA)
    for name in ("b.tar", "a/b.tar", "a_b.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(DATA[:-1] + b"x")
    assert content(url) == DATA
    assert (tmp_path / "b.tar").read_bytes() == DATA[:-1] + b"x"


# ---- Servers


ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "profile"),
    "gs": ("GOOGLE_BASE_URL", "GOOGLE_SERVICE_ACCOUNT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
    "hf": ("HF_ENDPOINT",),
    "ais": ("AIS_ENDPOINT",),
}
URLS = {"hf": "hf://datasets/o/n/a.tar", "ais": "ais://b/a.tar"}


def named_for(scheme: str, options: StoreOptions) -> str:
    """The name of the file of an object of this scheme."""
    connect._store.cache_clear()
    url = URLS.get(scheme, f"{scheme}://b/a.tar")
    info = Info(url, 10, "v")
    remote = SimpleNamespace(url=url, info=info, options=options, store=connect.store_of(url, options))
    return _file_name(remote)  # type: ignore[arg-type]


@each_row(("scheme", "variable"), [(scheme, name) for scheme, names in ENDPOINTS.items() for name in names])
def test_each_server_has_files_of_its_own(
    scheme: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However it is named: two that count versions from 1 have equal ETags."""
    with monkeypatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        found = []
        for number in (1, 2):
            value = f"http://127.0.0.1:{number}"
            if variable == "profile":
                (tmp_path / f"config{number}").write_text(f"[default]\nendpoint_url = {value}\n")
                patch.setenv("AWS_CONFIG_FILE", str(tmp_path / f"config{number}"))
            elif variable == "GOOGLE_SERVICE_ACCOUNT":
                (tmp_path / f"key{number}").write_text(f'{{"gcs_base_url": "{value}"}}')
                patch.setenv(variable, str(tmp_path / f"key{number}"))
            else:
                patch.setenv(variable, f"account{number}" if variable.endswith("_NAME") else value)
            found += [named_for(scheme, StoreOptions()) for _ in range(2)]
        if scheme in ("s3", "gs", "az"):
            options = [StoreOptions(endpoint_url=f"http://h:{number}") for number in (1, 2)]
            assert len({named_for(scheme, each) for each in options}) == 2
    assert found[0] == found[1] != found[2] == found[3]


def test_accounts_of_one_server() -> None:
    """Each may have a bucket of the same name on a server of its own; no key is in a name."""
    keys = [{"access_key_id": f"id{number}", "secret_access_key": f"s3cret{number}"} for number in (1, 2)]
    names = [named_for("s3", StoreOptions(endpoint_url="http://h:1", storage=each)) for each in keys]
    assert names[0] != names[1]
    assert "id1" not in names[0]


# ---- What others have planted


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def make_theirs(path: Path) -> None:
    path.write_bytes(DATA[:-1] + b"x")
    os.chown(path, 12345, 12345)


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "symlink": lambda path, victim: path.symlink_to(victim),
    "dangling": lambda path, victim: path.symlink_to(victim.parent / "nothing"),
    "link": lambda path, victim: os.link(victim, path),
    "fifo": lambda path, victim: os.mkfifo(path),
    "socket": lambda path, victim: make_socket(path),
    "theirs": lambda path, victim: make_theirs(path),
}


@each_row("kind", PLANTED)
@each_row("where", ["", PART, "lock"])
def test_no_other_file_is_read_or_written(
    kind: str, where: str, server: HttpServer, configure: Configure, here: Path
) -> None:
    """In place of a complete file, of one that is being fetched, and of the lock."""
    if kind == "theirs" and os.geteuid():
        pytest.skip("only root can make files of others")
    victim = here / "victim"
    victim.write_bytes(DATA[:-1] + b"x")
    lines: list[str] = []
    configure(here / "cache", lines=lines)
    url = server.serve("/a", DATA)
    assert content(url) == DATA
    [name] = [path for path in (here / "cache" / "tarkit").iterdir() if path.name != "lock"]
    name.unlink()
    place = name.parent / "lock" if where == "lock" else Path(f"{name}{where}")
    place.unlink(missing_ok=True)
    PLANTED[kind](place, victim)
    found = content(url)
    assert found in (DATA, None)
    assert bool(lines) == (found is None)
    assert victim.read_bytes() == DATA[:-1] + b"x"
    assert not (here / "nothing").exists()


@each_row("kind", ["symlink", "theirs", "file"])
def test_a_directory_that_is_not_used(kind: str, server: HttpServer, configure: Configure, here: Path) -> None:
    """That of somebody else, and one that cannot be made: one line says so."""
    cache, folder = here / "cache", here / "cache" / "tarkit"
    if kind == "file":
        cache.touch()
    elif kind == "symlink":
        cache.mkdir()
        folder.symlink_to(here)
    else:
        folder.mkdir(parents=True)
        if os.geteuid():
            pytest.skip("only root can make directories of others")
        os.chown(folder, 12345, 12345)
    before, lines = sorted(here.rglob("*")), list[str]()
    configure(cache, lines=lines)
    assert content(server.serve("/a", DATA)) is content(server.serve("/b", DATA)) is None
    why = {"theirs": "tarkit in it belongs to another user"}.get(kind, "Not a directory")
    assert lines == [f"cache {cache}: {why}: objects are read without it"]
    assert sorted(here.rglob("*")) == before


def test_only_the_user_can_read_and_write(server: HttpServer, configure: Configure, here: Path) -> None:
    configure(here / "cache")
    (here / "cache" / "tarkit").mkdir(parents=True)
    (here / "cache" / "tarkit").chmod(0o777)
    before = os.umask(0)
    try:
        assert content(server.serve("/a", DATA)) == DATA
    finally:
        os.umask(before)
    assert (here / "cache" / "tarkit").stat().st_mode & 0o022 == 0
    assert {path.stat().st_mode & 0o777 for path in (here / "cache" / "tarkit").iterdir()} == {0o600}


def test_a_disk_that_becomes_full(
    server: HttpServer, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    configure(tmp_path, lines=lines)
    assert content(server.serve("/a", DATA)) == DATA
    write = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at >= MB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: MB - at], at)

    monkeypatch.setattr(os, "pwrite", full)
    urls = [server.serve(f"/{name}", DATA) for name in "bc"]
    assert [content(url) for url in urls] == [None, None]
    monkeypatch.setattr(os, "pwrite", write)
    assert lines == [f"cache {tmp_path}: No space left on device: objects are read without it"]
    assert files(tmp_path) == ["a"]
    assert content(server.url + "/a") == DATA  # what is there is used


# ---- Several processes


def test_processes_fetch_an_object_once(server: HttpServer, tmp_path: Path) -> None:
    data = shard(size=6 * MB)
    url = server.serve("/a.tar", data, change=lambda served, number: time.sleep(0.02))
    running = [started("cat", url, "--cache", str(tmp_path / "c"), "-o", "-") for _ in range(6)]
    assert [finished(each) for each in running] == [data] * 6
    assert server.objects["/a.tar"].sent <= len(data) + 6
    assert files(tmp_path / "c") == ["a.tar"]


def test_a_killed_process_blocks_nobody(server: HttpServer, tmp_path: Path) -> None:
    data = shard(size=6 * MB)
    url = server.serve("/a.tar", data, stall=MB)
    words = ("cat", url, "--cache", str(tmp_path / "c"), "-o", "-")
    first = started(*words)
    assert some_is_fetched(tmp_path / "c")
    others = [started(*words) for _ in range(3)]
    assert happens(lambda: server.objects["/a.tar"].requests >= 3)
    server.objects["/a.tar"].stall = None
    time.sleep(0.3)
    assert [each.poll() for each in others] == [None] * 3
    first.kill()
    first.communicate()
    sent = server.objects["/a.tar"].sent
    assert [finished(each) for each in others] == [data] * 3
    assert server.objects["/a.tar"].sent - sent <= len(data) + 6
    assert files(tmp_path / "c") == ["a.tar"]


@each_row("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_removes_what_was_fetched(signum: int, server: HttpServer, tmp_path: Path) -> None:
    url = server.serve("/a.tar", shard(size=6 * MB), stall=MB)
    cache = tmp_path / str(signum)
    fetching = started("cat", url, "--cache", str(cache), "-o", "-")
    assert some_is_fetched(cache)
    fetching.send_signal(signum)
    fetching.communicate(timeout=20)
    assert fetching.returncode == -signum
    assert files(cache) == []


def test_processes_with_little_room(server: HttpServer, tmp_path: Path) -> None:
    """Many objects, few of which fit: all are read, and the directory is never larger than the limit."""
    datas = {f"/{n}.tar": shard(str(n), MB) for n in range(8)}
    urls = [server.serve(path, data) for path, data in datas.items()]
    words = ("--cache", str(tmp_path), "--cache-size", "3.5MB", "-o", "-")
    running = [started("cat", *random.Random(n).sample(urls, 8), *words) for n in range(4)]
    lengths = set()
    for each in running:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
        lengths.add(len(out))
        assert sum(path.stat().st_size for path in (tmp_path / "tarkit").iterdir()) <= 3_500_000
    assert len(lengths) == 1


# ---- Commands


def test_a_cached_input_is_a_file(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    """Also when its samples are looked up."""
    configure(tmp_path)
    url = server.serve("/a.tar", archive([(f"{n}.txt", b"%d" % n) for n in range(50)]))
    [location] = expand_inputs([url])
    source = open_source(location)
    assert isinstance(source, FileSource)
    assert source.name == url
    source.close()
    assert not isinstance(open_source(location, stream=True), FileSource)
    samples = tarkit.open(url).indexed()
    assert (samples["17"]["txt"], samples[49]["txt"], len(samples)) == (b"17", b"49", 50)


@each_row(
    "words",
    [["shuffle", "--seed", "7", "-o", "-"], ["check"], ["stats", "-p", "2", "--json"], ["cat", "-p", "3", "-o", "-"]],
)
def test_commands(words: list[str], server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {name: archive([(f"{name}{n}.txt", b"%d" % n) for n in range(50)]) for name in "abc"}
    for name, data in shards.items():
        (tmp_path / f"{name}.tar").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    local = tarkit_command(*words, *map("{}.tar".format, shards), exit=None)
    urls = [server.serve(f"/{name}.tar", data) for name, data in shards.items()]
    for _ in range(2):
        done = tarkit_command(*words, *urls, "--cache", "c", exit=None)
        assert (done.status, done.stderr) == (local.status, local.stderr)
        assert done.stdout.replace(server.url.encode() + b"/", b"") == local.stdout
    assert files(tmp_path / "c") == ["a.tar", "b.tar", "c.tar"]


def test_a_disk_that_is_too_small(server: HttpServer, tmp_path: Path) -> None:
    """Nothing is fetched that does not fit; the limit of the length of files stands for the end of the disk."""
    data = shard()
    url = server.serve("/a.tar", data)
    words = ["bash", "-c", 'ulimit -f 1000; exec "$@"', "-", *TARKIT, "cat", url, url, "--rekey", "{index}/{key}"]
    done = subprocess.run([*words, "--cache", str(tmp_path / "c"), "-o", "-"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().count("\n") == 1
    assert b"File too large: objects are read without it" in done.stderr
    assert len(done.stdout) > 2 * len(data) - 4096
    assert files(tmp_path / "c") == []


def test_nothing_is_left_after_a_kill_at_any_time(server: HttpServer, configure: Configure, tmp_path: Path) -> None:
    """A file with the name of an object is complete, whenever the process is killed that fetches it."""
    data = shard(size=6 * MB)
    url = server.serve("/a.tar", data, change=lambda served, number: time.sleep(0.1))
    for n in range(0, 8, 2):
        fetching = started("cat", url, "--cache", str(tmp_path), "-o", "-")
        with suppress(subprocess.TimeoutExpired):
            fetching.communicate(timeout=0.2 + 0.1 * n)
        fetching.kill()
        fetching.communicate()
        for path in (tmp_path / "tarkit").glob("*.tar"):
            assert path.read_bytes() == data
            path.unlink()
    configure(tmp_path)
    assert content(url) == data
    assert files(tmp_path) == ["a.tar"]
