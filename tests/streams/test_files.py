"""Files that are read: few are open at once, and a file that is reopened must be unchanged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tarkit.errors import TarkitError
from tarkit.streams import files
from tarkit.streams.files import MOST, SPARE, Descriptor, File, allow_files
from tarkit.streams.source import FileSource
from tests._tools import each_row

LIMIT = 16


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that allows 16 descriptors, of which 8 are for inputs."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (LIMIT, LIMIT))


def opened(path: Path) -> File:
    """Return a file that can be reopened."""
    return File(Descriptor(os.open(path, os.O_RDONLY)), path.name, str(path))


def number_of(sources: list[FileSource]) -> int:
    """Return how many sources are open."""
    return sum(source.file.opened is not None for source in sources)


def written(directory: Path, count: int) -> list[FileSource]:
    """Return sources for files that contain their numbers."""
    for number in range(count):
        (directory / f"{number:03}").write_bytes(b"%03d" % number)
    return [FileSource(opened(directory / f"{number:03}"), f"{number:03}") for number in range(count)]


def test_descriptors_are_closed(few: None, tmp_path: Path) -> None:
    """No closed file keeps its descriptor, and none is left at the end; one without a path, as stdin, stays open."""

    def held() -> int:
        found = 0
        for fd in os.listdir("/dev/fd"):
            with suppress(OSError):  # the descriptor of the listing itself
                found += (status := os.fstat(int(fd))).st_ino in inodes and status.st_dev == tmp_path.stat().st_dev
        return found

    sources = written(tmp_path, 50)
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    assert held() == LIMIT // 2
    stay = [FileSource(os.open(path, os.O_RDONLY), "stdin") for path in [*tmp_path.iterdir()][:20]]
    assert (number_of(stay), number_of(sources)) == (20, LIMIT // 2)
    sources.clear()
    assert held() == 20
    stay.clear()
    assert held() == 0


def replace(path: Path) -> None:
    """Replace the file by another one with the same size and time."""
    times = path.stat()
    (path.parent / "new").write_bytes(b"new")
    os.utime(path.parent / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (path.parent / "new").rename(path)


def write(path: Path) -> None:
    """Write other bytes to the same file."""
    path.write_bytes(b"new")
    os.utime(path, ns=(1, 2))  # the clock may be coarse


def append(path: Path) -> None:
    """Append bytes, and keep the time."""
    times = path.stat()
    with path.open("ab") as file:
        file.write(b"more")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def fifo(path: Path) -> None:
    """Replace the file by a FIFO without a writer."""
    path.unlink()
    os.mkfifo(path)


CHANGES: list[Callable[[Path], None]] = [replace, write, append, fifo]


@each_row("change", CHANGES)
def test_a_file_that_was_changed_while_it_was_closed(change: Callable[[Path], None], here: Path) -> None:
    """A file that changed while it was closed is an error for every method; nothing of it is read."""
    path = here / "x.tar"
    path.write_bytes(b"old")
    source = FileSource(opened(path), "x.tar")
    change(path)
    calls: list[Callable[[], object]] = [
        lambda: source.read(0, 3),
        lambda: source.peek(0, 3),
        source.unchanged,
        source.will_need,
    ]
    for call in calls:
        source.file.close()
        with pytest.raises(TarkitError, match=r"(?m)^x\.tar: the file was changed while it was read$"):
            call()
        assert source.file.opened is None


def test_a_removed_file(tmp_path: Path) -> None:
    """A removed file is readable while it is open; then its name is in the error."""
    [source] = written(tmp_path, 1)
    (tmp_path / "000").unlink()
    assert source.read(0, 3) == b"000"
    source.unchanged()
    source.file.close()
    with pytest.raises(FileNotFoundError, match="000"):
        source.read(0, 3)


def test_threads(few: None, tmp_path: Path) -> None:
    """Threads read their own files, while other threads close these and get the same descriptors."""
    sources = written(tmp_path, 40)

    def read(step: int) -> bool:
        numbers = (turn * step % 40 for turn in range(3000))
        return all(sources[number].read(0, 3) == b"%03d" % number for number in numbers)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(read, (1, 3, 7)))


@each_row(
    ("limits", "count", "raised", "outputs"),
    [
        ((1024, 4096), 10, None, 512 - SPARE),
        ((1024, 4096), 1000, (2032, 4096), 1000),
        ((1024, 4096), 5000, (4096, 4096), 2048 - SPARE),
        ((1024, 1024), 5000, None, 512 - SPARE),
        ((64, -1), 1000, (2032, -1), 1000),
        ((-1, -1), 10, None, MOST - SPARE),
        ((20, 20), 10, None, 0),
    ],
)
def test_allow_files(
    limits: tuple[int, int], count: int, raised: tuple[int, int] | None, outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is raised as far as necessary and possible; half of it is for inputs."""
    now = list(limits)
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", lambda what, wanted: now.__setitem__(slice(None), wanted))
    assert allow_files(count) == outputs
    assert tuple(now) == (raised or limits)
    assert files.most_files() == min(now[0] // 2 if now[0] > 0 else MOST, MOST)


def test_descriptors_that_live_longer_than_their_module() -> None:
    """At its end Python empties the modules that something still holds, such as torch, one after another."""
    code = (
        "import sys, types; last = sys.modules['last'] = types.ModuleType('last'); import os\n"
        "from tarkit.streams import files; last.kept = files.Descriptor(os.dup(0)); sys.held = [last, files]"
    )
    ran = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert ran.stderr == b""
