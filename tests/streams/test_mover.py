"""Copies in a thread: in order with all other writes, and with errors that reach the caller."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import Problem
from tarkit.streams import sink as sink_plain
from tarkit.streams.copy import Copier
from tarkit.streams.readers import DescriptorReader
from tarkit.streams.sink import FileSink
from tarkit.streams.source import FileSource, StreamSource
from tests._tools import PATIENT, descriptors, raising

LONG = 100_000  # replaces the minimum of megabytes for a copy in a thread
DATA = b"".join(bytes([number]) * 25_000 for number in range(12))
assert len(DATA) > 2 * LONG


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The copies that were started, slowed down; at the end no thread of a closed or aborted sink remains."""
    begun: list[int] = []
    real = Copier.copy

    def slow(*words: Any) -> None:
        begun.append(1)
        time.sleep(0.002)
        real(*words)

    monkeypatch.setattr(sink_plain, "LONG", LONG)
    monkeypatch.setattr(Copier, "copy", slow)
    yield begun
    assert [each.name for each in threading.enumerate() if each.name == "mover"] == []


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    """A file of several long ranges."""
    (tmp_path / "in").write_bytes(DATA)
    return FileSource(os.open(tmp_path / "in", os.O_RDONLY), "in.tar")


def test_all_writes_stay_in_order(tmp_path: Path, source: FileSource) -> None:
    """Short and long copies, writes, and bytes spliced to the descriptor stay in order."""
    reading, writing = os.pipe()
    feeder = threading.Thread(target=lambda: (os.write(writing, b"p" * 50_000), os.close(writing)))
    with FileSink(str(tmp_path / "out")) as sink:
        source.send(0, LONG, sink)
        source.send(LONG, LONG + 3, sink)
        source.send(0, 2 * LONG, sink)
        sink.write(b"written")
        source.send(1, LONG + 1, sink)
        sink.writev([b"a", b"b"])
        source.send(2, LONG + 2, sink)
        feeder.start()
        stream = StreamSource(DescriptorReader(reading), "pipe")
        stream.send(0, 50_000, sink)
        stream.close()
        source.send(0, LONG, sink)
        assert os.fstat(sink.fileno()).st_size == 6 * LONG + 3 + 7 + 2 + 50_000
        source.send(7, LONG + 7, sink)
        sink.cut(6 * LONG + 3 + 7 + 2 + 50_000 + 1)
    feeder.join()
    expected = DATA[: LONG + 3] + DATA[: 2 * LONG] + b"written" + DATA[1 : LONG + 1] + b"ab" + DATA[2 : LONG + 2]
    assert (tmp_path / "out").read_bytes() == expected + b"p" * 50_000 + DATA[:LONG] + DATA[7:8]


def test_a_short_copy_after_a_long_one(tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the long one, but is made after it; `busy` says whether copies are under way."""
    held, real = threading.Event(), Copier.copy
    monkeypatch.setattr(Copier, "copy", lambda *words: held.wait(PATIENT) and real(*words))
    with FileSink(str(tmp_path / "out")) as sink:
        assert not sink.busy
        source.send(0, LONG, sink)
        source.send(LONG, LONG + 7, sink)
        assert sink.busy
        held.set()
        sink.write(b"then")
        assert not sink.busy
    assert (tmp_path / "out").read_bytes() == DATA[: LONG + 7] + b"then"


@pytest.mark.parametrize("then", ["close", "write", "send", "fd"])
def test_a_file_that_became_shorter(then: str, tmp_path: Path, source: FileSource) -> None:
    """The next call raises an error with file and offset; there is no output."""
    os.truncate(tmp_path / "in", LONG + 5)

    def write() -> None:
        with FileSink(str(tmp_path / "out")) as sink:
            source.send(0, 2 * LONG, sink)
            if then == "write":
                sink.write(b"more")
            elif then == "send":
                source.send(0, 1, sink)
            elif then == "fd":
                _ = sink.fd

    with pytest.raises(Problem) as caught:
        write()
    assert (caught.value.archive, caught.value.offset, caught.value.name) == ("in.tar", LONG + 5, "truncated")
    assert os.listdir(tmp_path) == ["in"]


def test_a_full_disk(tmp_path: Path, source: FileSource) -> None:
    """The name of the output is in the error, for any call that raises it."""

    def write() -> None:
        with FileSink(str(tmp_path / "out")) as sink:
            for _ in range(3):
                source.send(0, LONG, sink)

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LONG + 1000, old[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["in"]


def test_no_thread(tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system starts no more threads, the caller copies."""
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError, "can't start new thread"))
    with FileSink(str(tmp_path / "out")) as sink:
        source.send(0, len(DATA), sink)
    assert (tmp_path / "out").read_bytes() == DATA


def test_abort_does_not_wait_for_all(tmp_path: Path, source: FileSource, copies: list[int]) -> None:
    """Abort drops pending copies and closes their descriptors, of which there are few at any time."""
    before = descriptors()
    sink = FileSink(str(tmp_path / "out"))
    for _ in range(60):
        source.send(0, len(DATA), sink)
        assert len(descriptors() - before) < 20
    sink.abort()
    assert len(copies) < 60
    assert os.listdir(tmp_path) == ["in"]
    assert descriptors() <= before
