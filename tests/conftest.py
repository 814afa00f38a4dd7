"""Shared helpers: run a command in this process, build an archive in one line, pass it to a command in every way.

`tar`, `entries`, `keys` and `tarkit` are plain functions, for laws that run many times in one test; the fixtures `run`,
`archive` and `feed` use the directory of the test. Archives are built and read back by Python's `tarfile`, so that an
independent implementation checks what tarkit writes.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import gzip
import io
import itertools
import os
import pty
import re
import signal
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
from click.testing import CliRunner

from tarkit.cli.app import group
from tarkit.streams import sink
from tests._alone import run_alone, several_threads
from tests._tools import each_row

if TYPE_CHECKING:
    from tests._dask import Cluster, NewCluster

# A process that is started in the background, or by nohup, ignores these signals, and so would all its children.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Bytecode is kept even if the environment forbids it: hundreds of processes are started, and each would
# compile tarkit again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

for variable in ("SOURCE_DATE_EPOCH", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
    os.environ.pop(variable, None)
# The width of the terminal that the tests run in; readline, which pytest imports, sets it for child processes alone.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

ALONE = "TARKIT_TESTS_ALONE" in os.environ

# Thousands of tests are created and stay until the end: the garbage collector does not search them again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """Enable garbage collection, for objects that the tests create, and return free memory to the system.

    A process that is forked takes longer to start the more memory this one has.
    """
    gc.freeze()
    gc.enable()
    with suppress(OSError, AttributeError):  # of glibc
        ctypes.CDLL(None).malloc_trim(0)


SERVERS = {"shared", "new_cluster", "chromium"}  # fixtures; those of tests/stores are servers too, and of these files
SERVER_FILES = {"test_urls.py", "test_dask.py", "test_on_dask.py", "test_sockets.py"}
CONTRACT = {"api", "cli", "commands", "interop", "laws", "loading", "shell", "test_readme.py"}


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these tests."""
    for line in (
        "forks: the test copies its process, or many processes start; it runs in a small one that has one thread",
        "servers: needs a server, a cluster of Dask, a browser or many sockets; `scripts/test` alone leaves it out",
        "slow: takes a second of CPU or more: many random cases, much data, many processes; it is left out as well",
        "xdist_group(name): tests of one group run in one process; pytest-xdist knows it too",
        "contract: what users see, which holds whatever the code looks like: commands, Python, laws, other packages",
    ):
        config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need servers, and the contract with users."""
    for item in items:
        parts = item.path.relative_to(Path(__file__).parent).parts
        place = parts[0]
        if place == "stores" or SERVERS & {*getattr(item, "fixturenames", ())} or parts[-1] in SERVER_FILES:
            item.add_marker("servers")
        if place in CONTRACT:
            item.add_marker("contract")
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))


def group_of(item: pytest.Item) -> str:
    """Return the group of tests that share a fixture of their module, or a process, so that it is made once."""
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    shared = [name for name, found in fixtures.items() if found[-1].scope == "module"]
    params = getattr(getattr(item, "callspec", None), "params", {})
    if not shared and not item.get_closest_marker("forks"):
        return ""
    return "-".join((item.path.stem, *(params[name] for name in shared if name in params)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Run tests marked `forks`, with their fixtures, in a process without other threads."""
    if item.get_closest_marker("forks") and not ALONE and several_threads(0.05):
        base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        item.setup = lambda: None  # type: ignore[method-assign]
        item.runtest = lambda: run_alone(item, base)  # type: ignore[method-assign]


def no_threads(event: str, words: tuple[object, ...]) -> None:
    """Refuse to fork this process while other threads run; a thread that has just ended is waited for."""
    if event not in ("os.fork", "os.forkpty") or not several_threads(1):
        return
    gc.collect()  # an error holds what raised it, such as a DataLoader and its threads
    if several_threads(10):
        raise RuntimeError("threads run where the process is copied: mark the test with @pytest.mark.forks")


sys.addaudithook(no_threads)


Content: TypeAlias = "bytes | Link | None"
Rows: TypeAlias = list[tuple[str, Content]]
Members: TypeAlias = "Mapping[str, Content] | Iterable[tuple[str, Content]]"

USTAR, GNU, PAX = tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT


class Link(NamedTuple):
    """A hard link, or a symbolic link, to `target`."""

    target: str
    type: bytes = tarfile.LNKTYPE


def pairs(members: Members) -> list[tuple[str, Content]]:
    """Return the members of an archive as a list."""
    return list(members.items() if isinstance(members, Mapping) else members)


def tar(members: Members, format: int = USTAR, **settings: Any) -> bytes:
    """Return an archive of `members`: names with contents, None for a directory.

    Each header has more than a name and a size, so that a header that was generated anew differs.
    """
    named = pairs(members)
    small = len(named) <= 100 and sum(len(content) for _, content in named if isinstance(content, bytes)) < 1 << 16
    return (_tar if small and not settings else _tar.__wrapped__)(tuple(named), format, **settings)


@lru_cache(200)
def _tar(members: tuple[tuple[str, Content], ...], format: int, **settings: Any) -> bytes:
    """Cached: the same archive is built for each row of a table, and for each feed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, encoding="utf-8", **settings) as file:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode, info.uid, info.gid, info.uname, info.gname = 1234567890, 0o604, 7, 8, "me", "us"
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, Link):
                info.type, info.linkname = content.type, content.target
            else:
                info.size = len(content)
            file.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


def entries(archive: bytes | Path | str) -> list[tuple[str, Content]]:
    """Return names and contents, read by `tarfile`: the inverse of `tar`."""
    data = archive if isinstance(archive, bytes) else Path(archive).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as file:
        return [(info.name, _content(file, info)) for info in file]


def _content(file: tarfile.TarFile, info: tarfile.TarInfo) -> Content:
    if info.isdir():
        return None
    if info.islnk() or info.issym():
        return Link(info.linkname, info.type)
    opened = file.extractfile(info)
    return opened.read() if opened else b""


def body(archive: bytes) -> bytes:
    """Return an archive without its end."""
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8") as file:
        stop = max((info.offset_data + info.size for info in file), default=0)
    return archive[: stop + -stop % 512]


def keys(archive: bytes | Path | str) -> str:
    """Return the keys of the samples in an archive, separated by spaces; entries without a key are left out."""
    named = (name.rpartition("/") for name, _ in entries(archive))
    found = [directory + slash + base.partition(".")[0] for directory, slash, base in named if "." in base.lstrip(".")]
    return " ".join(key for key, _ in groupby(found))


def pick(members: Members, keys: str) -> list[tuple[str, Content]]:
    """Return the members that have these keys (separated by spaces), sample after sample in this order."""
    named = pairs(members)
    return [(name, content) for key in keys.split() for name, content in named if name.startswith(f"{key}.")]


class Ran(NamedTuple):
    """The output and status of a command."""

    stdout: bytes
    stderr: str
    status: int = 0

    @property
    def lines(self) -> list[str]:
        """The lines of stderr."""
        return self.stderr.splitlines()

    @property
    def printed(self) -> list[str]:
        """The lines of stdout."""
        return self.stdout.decode().splitlines()


def tarkit(
    *words: str | Path, stdin: bytes | Path | int | None = None, stdout: int | None = None, exit: int | None = 0
) -> Ran:
    """Run `tarkit WORDS` in this process; the exit status must be `exit` (None: any).

    `stdin` is the content of a file, a file or a descriptor. Commands write to the descriptors 1 and 2 directly, so
    files replace these (or the descriptor `stdout`).
    """
    with ExitStack() as pipes, unnamed() as out, unnamed() as err:
        for word in words:
            if isinstance(word, Piped):
                pipes.enter_context(word.filled())
        with _stdin(stdin) as fd, _in_place_of((fd, stdout or out.fileno(), err.fileno())):
            result = CliRunner().invoke(
                group, [os.fspath(word) for word in words], prog_name="tarkit", catch_exceptions=False
            )
        out.seek(0)
        err.seek(0)
        said = (err.read() + result.stderr_bytes).decode("utf-8", "replace")
        ran = Ran(out.read() + result.stdout_bytes, said, result.exit_code)
    assert exit in (None, ran.status), f"exit status {ran.status}\n{ran.stderr}"
    assert not sink.unfinished
    return ran


def on_terminal(*words: str | Path, exit: int | None = 0) -> tuple[str, Ran]:
    """Run `tarkit WORDS` with a terminal as stdout; return what it shows, less than its buffer, and the run."""
    ours, theirs = pty.openpty()
    try:
        ran = tarkit(*words, stdout=theirs, exit=exit)
    finally:
        os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # the error on Linux after the last byte
        while piece := screen.read(1 << 16):  # the system may deliver output late
            shown += piece
    return shown.decode().replace("\r\n", "\n"), ran


def unnamed() -> IO[bytes]:
    """Return a file without a name; in memory if the system has such files, which takes a quarter of the time."""
    return open(os.memfd_create("unnamed"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()


@contextmanager
def _stdin(given: bytes | Path | int | None) -> Iterator[int]:
    if isinstance(given, int):
        yield given
    elif isinstance(given, bytes):
        with unnamed() as file:
            file.write(given)
            file.seek(0)
            yield file.fileno()
    else:
        with open(given or os.devnull, "rb") as file:
            yield file.fileno()


@contextmanager
def _in_place_of(descriptors: tuple[int, int, int]) -> Iterator[None]:
    saved = [os.dup(fd) for fd in range(3)]
    try:
        for fd, descriptor in enumerate(descriptors):
            os.dup2(descriptor, fd)
        yield
    finally:
        for fd, descriptor in enumerate(saved):
            os.dup2(descriptor, fd)
            os.close(descriptor)


class Piped(str):
    """The name of a pipe, as a shell makes for `<(cat PATH)`; each run that gets it reads the content of the file."""

    def __new__(cls, number: int, path: str) -> Piped:
        """Return the name of descriptor `number`, a pipe with the content of the file `path`."""
        self = super().__new__(cls, f"/dev/fd/{number}")
        self.number, self.path = number, path
        return self

    number: int
    path: str

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Open the pipe for one run."""
        data = Path(self.path).read_bytes()
        if _is_open(self.number):
            gc.collect()  # an error that refers to its own traceback keeps the inputs of its command open
        assert not _is_open(self.number), f"descriptor {self.number} is in use"
        read, write = os.pipe()
        os.dup2(read, self.number, inheritable=False)
        os.close(read)
        writer = threading.Thread(target=_write, args=(write, data), daemon=True)
        if len(data) <= _capacity(write):
            writer.run()
        else:
            writer.start()
        try:
            yield
        finally:
            while os.read(self.number, 1 << 20):
                pass
            os.close(self.number)


def _is_open(fd: int) -> bool:
    with suppress(OSError):
        os.fstat(fd)
        return True
    return False


def _capacity(pipe: int) -> int:
    """Return how many bytes a pipe takes before they are read."""
    return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20) if hasattr(fcntl, "F_SETPIPE_SZ") else 4096


def _write(pipe: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


Run: TypeAlias = Callable[..., Ran]
Archive: TypeAlias = Callable[..., str]


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory for the test, without the search of all existing ones for a number, as pytest does it."""
    base = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{base}{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Make a cluster of Dask for tests that leave it as it is."""
    from tests._dask import Cluster

    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack).begin()


@pytest.fixture
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewCluster]:
    """Make a cluster of Dask for one test."""
    from tests._dask import Cluster

    with ExitStack() as stack:
        yield lambda **how: Cluster(tmp_path_factory.mktemp("cluster"), stack).begin(**how)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Make a directory for the test, and change to it."""
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture
def run(here: Path) -> Run:
    """Run a command in the directory of the test, and check that no unfinished output remains."""

    def run(*words: str | Path, **settings: Any) -> Ran:
        ran = tarkit(*words, **settings)
        assert not [*Path.cwd().rglob("*.part")]
        return ran

    return run


@pytest.fixture
def archive(here: Path) -> Archive:
    """Write an archive to the directory of the test, and return its name: `archive({"a.jpg": b"x"}, "a.tar")`.

    Members may be replaced by the bytes of an archive, a damaged one for example.
    """

    def archive(members: Members | bytes, name: str = "in.tar", format: int = USTAR, **settings: Any) -> str:
        data = members if isinstance(members, bytes) else tar(members, format, **settings)
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name

    return archive


class Feed:
    """A way to pass an archive to a command. Called with its path, returns the input name that messages repeat."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._next = 500  # above what libraries keep open

    def __repr__(self) -> str:
        return self.kind

    def __call__(self, name: str) -> str:
        """Return the input argument."""
        if self.kind == "pipe":
            self._next += 1
            return Piped(self._next, name)
        if self.kind == "gzip":
            data = Path(name).read_bytes()
            Path(f"{name}.gz").write_bytes(gzip.compress(data, 1 if len(data) < 1 << 20 else 0, mtime=0))
            return f"{name}.gz"
        return name


KINDS = ("file", "pipe", "gzip")


def each_feed(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with every kind of `feed`; the output must be the same."""
    return each_row("feed", [Feed(kind) for kind in KINDS])(test)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make samples over 2 KiB large, and limit the window, and a splice, to 32 KiB."""
    from tarkit.samples import reader
    from tarkit.streams import source

    monkeypatch.setattr(reader, "LARGE", 1 << 11)
    for name in ("CHUNK", "HELD", "SPLICED"):
        monkeypatch.setattr(source, name, 1 << 15)


@pytest.fixture
def feeds(here: Path) -> list[Feed]:
    """Return all kinds of feeds, for the rows of tables."""
    return [Feed(kind) for kind in KINDS]
