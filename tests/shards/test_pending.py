"""Shards that have all their samples and wait for their copies, while the next ones are written."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.shards.limits import Limits
from tarkit.shards.template import parse_template
from tarkit.shards.writer import BEHIND, SeriesWriter
from tarkit.streams import sink
from tarkit.streams.copy import Copier
from tests._tools import PATIENT, on_disk, small_disk, tarkit
from tests.conftest import keys, tar

LONG = 10_000
"""Replaces the minimum of megabytes for a copy in a thread."""

SPLIT = ["split", "in.tar", "-c", "1", "-o", "s-%d.tar"]
SHARDS = 9


@pytest.fixture(autouse=True)
def archive(here: Path) -> None:
    """An archive of SHARDS samples, each a long copy."""
    Path("in.tar").write_bytes(tar({f"{number}.x": bytes(2 * LONG) for number in range(SHARDS)}))


def with_copies(before: Callable[[str], object]) -> Callable[[], None]:
    """Return what has `before(name)` called, in another process, before each copy to the output `name`."""

    def first() -> None:
        real = Copier.copy

        def copy(copier: Copier, *words: int) -> None:
            before(os.readlink(f"/proc/self/fd/{copier.target}"))
            real(copier, *words)

        sink.LONG = LONG
        Copier.copy = copy  # type: ignore[method-assign]

    return first


def left() -> list[str]:
    """Return the names of all files, without the input."""
    return sorted(set(os.listdir()) - {"in.tar"})


def held_up(shard: str, seconds: float = 0.2) -> Callable[[], None]:
    """Return what makes the copy to a shard slow."""
    return with_copies(lambda name: f".{shard}." in name and time.sleep(seconds))


def test_several_are_copied_at_once() -> None:
    """The copies of as many shards as may be pending, and of the open one, are under way at a time."""
    together = BEHIND + 1
    assert SHARDS % together == 1  # the last one is copied alone
    meeting = threading.Barrier(together, timeout=PATIENT)

    def meet(name: str) -> None:
        if f".s-{SHARDS - 1}." not in name:
            meeting.wait()

    said = tarkit(*SPLIT, "-v", first=with_copies(meet)).stderr.decode()
    assert re.findall(r"s-\d.tar(?=: 1 samples)", said) == [f"s-{number}.tar" for number in range(SHARDS)]
    assert [keys(name) for name in left()] == [str(number) for number in range(SHARDS)]


def test_they_are_complete_in_order() -> None:
    """A shard whose copy is made before that of an earlier one waits for it; so do --post and the manifest."""
    words = ["--post", "ls s-* | wc -l >> seen", "--manifest", "m.tsv"]
    tarkit(*SPLIT, *words, first=held_up("s-0.tar"))
    assert Path("seen").read_text().split() == [str(number + 1) for number in range(SHARDS)]
    shards = [line.split("\t")[0] for line in Path("m.tsv").read_text().splitlines()[1:]]
    assert shards == [f"s-{number}.tar" for number in range(SHARDS)]


@pytest.mark.parametrize("shard", [0, 1, 5, SHARDS - 1])
def test_a_copy_that_fails(shard: int) -> None:
    """There is no shard after one whose copy fails, and no temporary file."""

    def change(name: str) -> None:
        if f".s-{shard}." in name:
            time.sleep(0.1)  # so that the next ones are written
            raise OSError(errno.EIO, "no good")

    error = tarkit(*SPLIT, exit=1, first=with_copies(change)).stderr.decode()
    assert f"s-{shard}.tar: no good" in error
    assert (f"{shard} complete shard" in error) == (shard > 0)
    assert left() == [f"s-{number}.tar" for number in range(shard)]


def test_a_command_that_fails() -> None:
    """A shard whose --post fails stays; there is none after it."""
    tarkit(*SPLIT, "--post", "test {} != s-2.tar", exit=1, first=held_up("s-2.tar"))
    assert left() == ["s-0.tar", "s-1.tar", "s-2.tar"]


@pytest.mark.parametrize("slow", ["s-0.tar", "s-2.tar", "none"])
def test_a_damaged_input(slow: str) -> None:
    """All shards before the damage are complete, however long their copies take."""
    data = bytearray(Path("in.tar").read_bytes())
    data[data.index(b"5.x")] ^= 1
    Path("in.tar").write_bytes(data)
    error = tarkit(*SPLIT, exit=1, first=held_up(slow)).stderr.decode()
    assert "[bad-header]" in error
    assert "3 complete shards stay" in error  # the next one is full only when sample 4 is complete
    assert left() == ["s-0.tar", "s-1.tar", "s-2.tar"]
    assert [keys(name) for name in left()] == list("012")


def test_an_input_that_becomes_shorter() -> None:
    """An error that a copy finds while the next shards are written is that of the archive; none of them is left."""

    def cut(name: str) -> None:
        if ".s-3." in name:
            time.sleep(0.1)
            os.truncate("in.tar", 3 * (2 * LONG + 1504) + 1000)

    error = tarkit(*SPLIT, exit=1, first=with_copies(cut)).stderr.decode()
    assert "[truncated]" in error
    assert left() == [f"s-{number}.tar" for number in range(3)]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals(signum: signal.Signals) -> None:
    """After a signal the shards that are there are the first ones, and complete; nothing else is left."""

    def end(name: str) -> None:
        if ".s-3." in name:
            os.kill(os.getpid(), signum)
            time.sleep(0.1)

    assert tarkit(*SPLIT, exit=-signum, first=with_copies(end)).stderr == b""
    assert left() == [f"s-{number}.tar" for number in range(len(left()))]
    assert len(left()) <= 3
    assert [keys(name) for name in left()] == [str(number) for number in range(len(left()))]


def test_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abort leaves nothing of the shards that wait for their copies, nor a thread."""
    held, real = threading.Event(), Copier.copy
    monkeypatch.setattr(sink, "LONG", LONG)
    monkeypatch.setattr(Copier, "copy", lambda *words: held.wait(PATIENT) and real(*words))
    series = SeriesWriter(parse_template("s-%d.tar"), lambda name: sink.open_sink("path", name), Limits(count=1))
    for sample in islice(SampleReader(on_disk(Path("in.tar").read_bytes()), Policy()), BEHIND + 1):
        series.add(sample)
    assert len(left()) == BEHIND + 1
    assert series.done == []
    held.set()
    series.abort()
    assert left() == []
    assert [each.name for each in threading.enumerate() if each.name == "mover"] == []


def test_a_full_disk() -> None:
    """The shards that fit are complete; the message names the one that does not fit."""
    with small_disk(100 << 10) as disk:
        words = ["split", "in.tar", "-c", "1", "-o", f"{disk}/s-%d.tar"]
        error = tarkit(*words, exit=1, first=with_copies(lambda name: None)).stderr.decode()
        there = sorted(os.listdir(disk))
        assert f"{disk}/s-{len(there)}.tar: No space left on device" in error
        assert there == [f"s-{number}.tar" for number in range(len(there))]
        assert [keys(disk / name) for name in there] == [str(number) for number in range(len(there))]
