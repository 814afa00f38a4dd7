"""Ranges that are kept beyond the window of their stream: in memory, and in a file whose space is reused."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.streams.copy import Short
from tarkit.streams.ranges import HeldRange, RangeSpool, SpooledRange
from tarkit.streams.tempfile import TemporaryFile
from tests._tools import Log, on_disk

DATA = random.Random(5).randbytes(100_000)


def test_held() -> None:
    """A range in memory keeps its positions."""
    held = HeldRange("x.tar", 1000, DATA[1000:5000])
    assert (held.name, held.size, held.seekable, held.failure) == ("x.tar", 5000, True, None)
    assert held.read(1500, 2000) == DATA[1500:2000]
    assert held.peek(4900, 512) == DATA[4900:5000]
    sink = Log()
    held.send(1000, 5000, sink)
    held.send(2000, 2001, sink)
    assert sink.data == DATA[1000:5000] + DATA[2000:2001]
    held.release(4000)
    held.lend(lambda: None)
    held.close()
    assert held.read(1000, 1001) == DATA[1000:1001]


def test_temporary_files_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has no name, even on file systems without O_TMPFILE."""
    for _ in range(2):
        scratch = TemporaryFile(str(tmp_path))
        assert os.listdir(tmp_path) == []
        scratch.write(b"abc")
        assert scratch.read(1, 3) == b"bc"
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)


def size(spool: RangeSpool) -> int:
    """Return the length of the file."""
    assert spool._file is not None
    return os.fstat(spool._file.fd).st_size


def test_space_is_reused() -> None:
    """The space of an unreferenced range is reused; adjacent gaps are merged."""
    spool, source = RangeSpool(), on_disk(DATA)

    def hold(length: int) -> SpooledRange:
        return spool.hold("x", 0, length, source.send)

    ranges = [hold(1000) for _ in range(5)]
    assert size(spool) == 5000
    del ranges[1]
    gc.collect(1)
    again = hold(600), hold(400)
    assert size(spool) == 5000, "600 and 400 take the space of 1000"
    assert [each.read(0, each.size) for each in again] == [DATA[:600], DATA[:400]]
    for _ in range(20):
        held = hold(3000)
        assert held.read(0, 3000) == DATA[:3000]
        del held
    assert size(spool) <= 8000


def test_space_at_the_end_is_reused() -> None:
    """An emptied spool starts at offset 0 again."""
    spool, source = RangeSpool(), on_disk(DATA)
    for _ in range(10):
        held = [spool.hold("x", 0, 10_000, source.send) for _ in range(3)]
        assert all(each.read(0, 10_000) == DATA[:10_000] for each in held)
        del held
    assert size(spool) == 30_000


def test_a_spool_lives_as_long_as_its_ranges() -> None:
    held = RangeSpool().hold("x", 0, 1000, on_disk(DATA).send)
    gc.collect(1)
    assert held.read(0, 1000) == DATA[:1000]
    fd = held.file.fd
    del held
    gc.collect(1)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_failures(tmp_path: Path) -> None:
    """A range that cannot be read or kept is an error, and its space is reused."""
    spool, short = RangeSpool(), on_disk(DATA[:100])
    for _ in range(3):
        with pytest.raises(Exception, match="became shorter"):
            spool.hold("x", 0, 1000, short.send)
    gc.collect(1)
    assert spool.hold("x", 0, 10, short.send).offset == 0
    with pytest.raises(OSError, match="missing"):
        RangeSpool(str(tmp_path / "missing")).hold("x", 0, 10, short.send)
    assert issubclass(Short, EOFError)


def test_a_full_disk(tmp_path: Path) -> None:
    """The message names the temporary directory."""
    spool = RangeSpool(str(tmp_path))
    spool.hold("x", 0, 10, on_disk(DATA).send)
    assert spool._file is not None
    scratch = TemporaryFile(str(tmp_path))
    with open("/dev/full", "wb", buffering=0) as full:
        for fd in (spool._file.fd, scratch.fd):
            os.dup2(full.fileno(), fd)
    for write in (
        lambda: spool.hold("x", 0, 100, lambda start, stop, sink: sink.write(DATA[start:stop])),
        lambda: scratch.write(b"x"),
    ):
        with pytest.raises(OSError, match="No space") as error:
            write()
        assert error.value.filename == f"temporary space in {tmp_path}"


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 3000)), max_size=40))
def test_ranges_never_overlap(calls: list[tuple[bool, int, int]]) -> None:
    """For any order of keeping and dropping, no range overwrites another."""
    spool, source = RangeSpool(), on_disk(DATA)
    kept: list[tuple[SpooledRange, int, int]] = []
    for adds, number, length in calls:
        if adds or not kept:
            start = number * 7000
            kept.append((spool.hold("x", start, start + length, source.send), start, start + length))
        else:
            del kept[number % len(kept)]
        assert all(held.read(start, stop) == DATA[start:stop] for held, start, stop in kept)
