"""Helpers for tests of the lower layers: sources over bytes in memory, archives, and `tarkit` as a process."""

from __future__ import annotations

import fcntl
import functools
import gc
import inspect
import io
import os
import pkgutil
import pty
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import tarkit as tarkit_package
from tarkit.bytereader import ByteReader
from tarkit.cli import app
from tarkit.errors import TarkitError
from tarkit.samples.items import Payload
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.streams import files
from tarkit.streams.command import disown_commands
from tarkit.streams.copy import Short
from tarkit.streams.source import FileSource, StreamSource
from tarkit.tar.block import BLOCK, padding, seal
from tarkit.tar.header import encode
from tests._copies import Copied

settings.register_profile(
    "tarkit", deadline=None, database=None, max_examples=60
)  # other tests may use all CPUs for a while
settings.load_profile("tarkit")

TARKIT = (sys.executable, "-m", "tarkit")
MARKER = bytes(2 * BLOCK)


def descriptors() -> set[tuple[int, int, int]]:
    """Return the open descriptors of this process, each with the device and the inode that it refers to.

    To find those that a test leaves open, take away those before it: others may be closed meanwhile, with what earlier
    tests have left to the garbage collector.
    """
    found = set()
    for fd in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # that of the listing is closed by now
            status = os.fstat(fd)
            found.add((fd, status.st_dev, status.st_ino))
    return found


def program(*names: str, version: str = "") -> str:
    """Return the path of the first of these programs that is installed and whose `--version` contains `version`.

    Without one the test, or the row of `each_row`, is skipped with the names as the reason. If TARKIT_TESTS_WITHOUT is
    set, only programs that it names may be missing: without another one the test fails.
    """
    __tracebackhide__ = True  # the summary shows the line of the caller
    for path in filter(None, map(shutil.which, names)):
        if not version or version in _version(path):
            return path
    reason = f"{' or '.join(names)}{version and f' ({version})'} is not here"
    allowed = os.environ.get("TARKIT_TESTS_WITHOUT")
    if allowed is not None and set(names).isdisjoint(allowed.split()):
        pytest.fail(f"{reason}, and TARKIT_TESTS_WITHOUT does not name it")
    pytest.skip(reason)


@functools.cache
def _version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], before: Callable[[], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each row of a table, as one test with an error for each row that fails.

    It is like pytest's `parametrize` for rows that need no fixture but a directory: thousands of separate tests cost
    more than their content.

    A row that is skipped does not hide others: all run, and if none fails the test is reported as skipped, with the
    reasons and the numbers of skipped rows.

    A test that uses the fixture `here` (conftest), or one that depends on it, runs in a new directory for each row; so
    does any with `before`, which is called in that directory first.
    """
    table, words = list(rows), names.split(",") if isinstance(names, str) else list(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in words]
        apart = before is not None or not {"here", "run", "archive"}.isdisjoint(signature.parameters)
        asked = "here" in signature.parameters

        @functools.wraps(test)
        def all_rows(**given: Any) -> None:
            failed: list[Exception] = []
            skipped: Counter[str] = Counter()
            here = given.pop("here") if apart else None
            for number, row in enumerate(table):
                cells = (row,) if len(words) == 1 else row
                try:
                    if here is not None:
                        own = _directory(here, f"row{number}")
                        given.update({"here": own} if asked else {})
                        if before is not None:
                            before()
                    test(**given, **dict(zip(words, cells, strict=True)))
                except pytest.skip.Exception as skip:
                    skipped[str(skip)] += 1
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(error if isinstance(error, Exception) else AssertionError(str(error)))
                    failed[-1].add_note(f"in row {number}: {row!r:.300}")
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} rows of {test.__name__}", failed)
            if skipped:
                left_out = [f"{reason}: {count} of {len(table)} rows" for reason, count in skipped.items()]
                pytest.skip(f"{'; '.join(left_out)} of {test.__name__}")

        assert table, "no rows"
        if apart and not asked:
            others.append(inspect.Parameter("here", inspect.Parameter.KEYWORD_ONLY))
        all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_rows

    return decorate


def _directory(here: Path, name: str) -> Path:
    """Make a directory and change to it."""
    own = here / name
    own.mkdir()
    os.chdir(own)
    return own


slow = functools.partial(pytest.param, marks=pytest.mark.slow)
"""A value of pytest's `parametrize` with which a test is slow."""


def check_result(expected: object, call: Callable[..., object], *arguments: object) -> None:
    """Check what a call returns, or, where a text is expected, that it raises a ValueError that says so."""
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            call(*arguments)
    else:
        assert call(*arguments) == expected


def error_line(call: Callable[..., object], *arguments: object) -> str:
    """Return the message of the error of tarkit that a call raises; it is one line."""
    with pytest.raises(TarkitError) as raised:
        call(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def raising(kind: type[BaseException], *arguments: object) -> Callable[..., Any]:
    """Return a function that raises a new error each time, whatever it is called with."""

    def fail(*_: object, **__: object) -> None:
        raise kind(*arguments)

    return fail


def samples_of(data: Iterable[tarkit_package.Sample]) -> list[tuple[str, dict[str, bytes]]]:
    """Return keys and fields of samples."""
    return [(sample.key, dict(sample)) for sample in data]


class Chunks(ByteReader):
    """A reader that returns at most `step` bytes of `data` at a time, then raises `error` if there is one."""

    def __init__(self, data: bytes, step: int = 1 << 20, error: Exception | None = None) -> None:
        self.data = data
        self.step = step
        self.error = error
        self.pos = 0
        self.closes = 0

    def readinto(self, view: Any, /) -> int:
        piece = self.data[self.pos : self.pos + min(self.step, len(view))]
        view[: len(piece)] = piece
        self.pos += len(piece)
        if not piece and self.error is not None:
            raise self.error
        return len(piece)

    def close(self) -> None:
        self.closes += 1


class MemorySource:
    """A source of bytes, which counts how many are read."""

    name, seekable = "x.tar", True

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.count = 0

    def read(self, start: int, stop: int) -> bytes:
        self.count += stop - start
        return self.data[start:stop]


def payload_of(data: bytes, reach: int | None = None) -> Payload:
    """Return the content of an item, of which the first `reach` bytes can be read."""
    source: Any = MemorySource(data)
    return Payload(source, 0, len(data), len(data) if reach is None else reach)


class Peeked:
    """A source for `tar.reader`: bytes in memory, of which a peek returns at least `ahead`; a stream hides its size."""

    name = "x.tar"

    def __init__(self, data: bytes, ahead: int = 0, stream: bool = False) -> None:
        self.data = data
        self.ahead = ahead
        self.size = None if stream else len(data)

    def peek(self, pos: int, n: int) -> memoryview:
        stop = pos + max(n, self.ahead)
        if stop > len(self.data):
            self.size = len(self.data)
        return memoryview(self.data)[pos:stop]


class Log:
    """A sink in memory that records the calls."""

    fd = None

    def __init__(self) -> None:
        self.data = bytearray()
        self.calls: list[str] = []

    def write(self, data: bytes | memoryview) -> None:
        self.calls.append("write")
        self.data += data

    def writev(self, pieces: Sequence[bytes]) -> None:
        self.calls.append("writev")
        self.data += b"".join(pieces)

    def copy(self, source: int, start: int, stop: int, short: object = None) -> None:
        self.calls.append("copy")
        piece = os.pread(source, stop - start, start)
        self.data += piece
        if len(piece) < stop - start:
            raise Short(start + len(piece))

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


def on_disk(data: bytes, name: str = "x.tar", offset: int = 0) -> FileSource:
    """Return a source for a file with these bytes."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return FileSource(os.dup(file.fileno()), name, offset)


def counted(source: FileSource) -> list[int]:
    """Return a list that gets the length of each later read-ahead of a file."""
    reads: list[int] = []
    fill = source._read_into

    def count(view: memoryview, pos: int, n: int) -> int:
        reads.append(got := fill(view, pos, n))
        return got

    source._read_into = count  # type: ignore[method-assign]
    return reads


def fd_of(source: FileSource) -> int:
    """Return the descriptor of a source whose file is open."""
    assert source.file.opened is not None
    return source.file.opened.fd


def stream(data: bytes, step: int = 1 << 20, name: str = "x.tar", error: Exception | None = None) -> StreamSource:
    """Return a source for a stream that arrives in pieces of at most `step` bytes."""
    return StreamSource(Chunks(data, step, error), name)


SOURCES: dict[str, Callable[[bytes], FileSource | StreamSource]] = {
    "file": on_disk,
    "stream": stream,
    "trickle": lambda data: stream(data, 100),
}


def member(name: str | bytes, payload: bytes = b"", **fields: object) -> bytes:
    """Return an entry as `create` writes it."""
    raw = name if isinstance(name, bytes) else name.encode()
    return encode(raw, len(payload), **fields) + payload + bytes(padding(len(payload)))  # type: ignore[arg-type]


def archive(members: Mapping[str, bytes] | Iterable[tuple[str, bytes]], end: bytes = MARKER) -> bytes:
    """Return an archive of entries as `create` writes them, with the shortest end."""
    pairs = members.items() if isinstance(members, Mapping) else members
    return b"".join(member(name, payload) for name, payload in pairs) + end


def batch_of(samples: Sequence[TarSample]) -> SampleBatch:
    """Return samples that follow each other as a batch."""
    keys, stops = [sample.key or b"" for sample in samples], [sample.stop for sample in samples]
    return SampleBatch(samples[0].source, samples[0].start, keys, stops)


def with_field(block: bytes, offset: int, value: bytes) -> bytes:
    """Return a header with other bytes at `offset` and a correct checksum."""
    return seal(block[:offset] + value + block[offset + len(value) : BLOCK]) + block[BLOCK:]


def extension(kind: bytes, payload: bytes) -> bytes:
    """Return an extension header of any kind with its payload."""
    return with_field(member("././@Extension", payload), 156, kind)


def contents(data: bytes) -> list[tuple[str, bytes]]:
    """Return names and contents of an archive as Python's `tarfile` reads it."""
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        return [(info.name, opened.read() if (opened := file.extractfile(info)) else b"") for info in file]


def process(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    first: Callable[[], object] = lambda: None,
    fds: Mapping[int, int] | None = None,
    **others: Any,
) -> subprocess.Popen[bytes]:
    """Start `tarkit WORDS`, as Popen would with `others`: a process with its own descriptors, signals and exit status.

    It is a fork of this process that continues where `python -m tarkit` is loaded; loading takes five times as long. If
    it starts Python, that is a fork of it as well. `first` is called in it before that; `env` is added to its
    environment; `fds` are all of its descriptors: their numbers in the new process, with the descriptors in this one.
    """

    def become() -> None:
        status: Any = 1
        try:
            gc.freeze()  # files of the parent, whose descriptors are others here, must not be collected
            files._latest.clear()  # nor by the limit on open files
            high = {there: fcntl.fcntl(fd, fcntl.F_DUPFD, 512) for there, fd in (fds or {0: 0, 1: 1, 2: 2}).items()}
            os.closerange(0, 512)
            for there, fd in high.items():
                os.dup2(fd, there)
            os.closerange(512, 1 << 16)
            os.environ.update(env or {})
            for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # the state that Python sets at its start
                signal.signal(signum, signal.SIG_IGN)
            disown_commands()  # of this process, which a test may have left
            subprocess.Popen = Copied  # type: ignore[misc]
            first()
            sys.stdin, sys.stdout, sys.stderr = _standard(0), _standard(1), _standard(2)  # type: ignore[assignment]
            sys.argv = ["tarkit", *map(str, words)]
            app.main()
        except SystemExit as done:
            status = done.code
        except BaseException:
            traceback.print_exc()
        try:
            for file in (sys.stdout, sys.stderr):
                if file is not None:
                    file.flush()
        except OSError:
            traceback.print_exc()
            status = 120
        os._exit(int(status or 0))

    _load()
    # threads are not forked; tarkit needs no lock that one of them may hold
    return subprocess.Popen(["tarkit", *map(str, words)], preexec_fn=become, **others)  # noqa: PLW1509


@functools.cache
def _load() -> None:
    """Load the package before the first fork, so that no fork loads it; stores and torch need other libraries."""
    for module in pkgutil.walk_packages(tarkit_package.__path__, "tarkit."):
        if not module.name.startswith(("tarkit.__main__", "tarkit.stores.", "tarkit.torch")):
            import_module(module.name)


def _standard(fd: int) -> io.TextIOWrapper | None:
    try:
        os.fstat(fd)
    except OSError:
        return None
    file = open(fd, "w" if fd else "r", 1 if fd == 2 else -1, errors="backslashreplace", closefd=False)
    assert isinstance(file, io.TextIOWrapper)
    return file


def tarkit(
    *words: str | Path, stdin: bytes | None = None, exit: int = 0, **others: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run `tarkit WORDS` as a process; its status must be `exit` (negative: a signal)."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with process(*words, stdin=null if stdin is None else pipe, stdout=pipe, stderr=pipe, **others) as started:
        out, err = started.communicate(stdin, timeout=30)
    assert started.returncode == exit, f"status {started.returncode}: {err.decode()}"
    assert b"Traceback" not in err, err.decode()
    return subprocess.CompletedProcess(words, exit, out, err)


def at_terminal(words: Sequence[str], **others: Any) -> tuple[subprocess.Popen[bytes], int]:
    """Start a program at a new terminal, as Popen would with `others`; return it and the other end of the terminal.

    The first process of a session gets the terminal that it opens. `pty.fork` would fork this process.
    """
    ours, theirs = pty.openpty()
    opens = ["sh", "-c", ': <"$0"; exec "$@"', os.ttyname(theirs)]
    try:
        started = subprocess.Popen(
            [*opens, *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, **others
        )
    finally:
        os.close(theirs)
    return started, ours


ROUNDS = int(os.environ.get("TARKIT_TESTS_ROUNDS", "1"))
"""How many times as many random cases are drawn; .ci/run draws a few."""

PATIENT = 60  # seconds that a test waits for an event; it comes at once unless the machine is loaded


def happens(event: Callable[[], object]) -> bool:
    """Wait for an event; return whether it happens."""
    limit = time.monotonic() + PATIENT
    while not event():
        if time.monotonic() > limit:
            return False
        time.sleep(0.005)
    return True


def free_port() -> int:
    """Return a port of this machine that is free, and none of those that the system gives to others meanwhile."""
    while True:
        number = random.SystemRandom().randrange(10_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", number))
            return number


def gone(pid: int) -> bool:
    """Return whether a process ends or has ended; a zombie has ended."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return happens(ended)


def pid_in(name: str) -> int:
    """Return the process id that a command writes to a file."""
    assert happens(lambda: os.path.exists(name) and Path(name).read_text().endswith("\n")), f"no {name}"
    return int(Path(name).read_text())


def files_up_to(size: int) -> Callable[[], None]:
    """Return what a process calls first so that its files cannot be larger, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextmanager
def small_disk(size: int, *options: str) -> Iterator[Path]:
    """Mount a file system of this size in memory, for the time of a block; skip the test where that cannot be done."""
    path = Path("small").absolute()
    path.mkdir()
    mount = shutil.which("mount")
    words = [mount or "mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs", str(path)]
    if os.getuid() or mount is None or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)  # a worker may still have a file there


@contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Trace memory: a function of the bytes now, and at most so far. A fork of a process that traces may hang."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()
