"""A shard that has all its samples and waits for its copies, while the next one is written."""

from __future__ import annotations

import errno
import os
import re
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice
from pathlib import Path

import pytest

from tarkit.pipeline.output import archives_output
from tarkit.pipeline.ranges import RangeList
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import parse_template
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import Limits
from tarkit.shards.series import ShardsPlan
from tarkit.shards.writer import ShardsWriter
from tarkit.streams import sink
from tarkit.streams.copy import Copier
from tarkit.streams.sink import FileSink
from tests._tools import PATIENT, happens, on_disk, small_disk, tarkit
from tests.conftest import keys, tar

pytestmark = pytest.mark.forks

LONG = 10_000
"""Replaces the minimum of megabytes for a copy in a thread."""

SPLIT = ["split", "in.tar", "-c", "1", "-o", "s-%d.tar"]
SHARDS = 9
PARTS = ["--parts", "a=0.5,b=0.5"]


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


def names(count: int) -> list[str]:
    """Return the names of the first shards."""
    return [f"s-{number}.tar" for number in range(count)]


def left() -> list[str]:
    """Return the names of all files, without the input."""
    return sorted(set(os.listdir()) - {"in.tar"})


def held_up(shard: str, seconds: float = 0.2) -> Callable[[], None]:
    """Return what makes the copy to a shard slow."""
    return with_copies(lambda name: f".{shard}." in name and time.sleep(seconds))


def test_two_are_copied_at_once() -> None:
    """The copies of a shard and of the next one are under way at a time, and no others."""
    assert SHARDS % 2 == 1
    meeting, running, lock = threading.Barrier(2, timeout=10), [0], threading.Lock()

    def meet(name: str) -> None:
        if f".s-{SHARDS - 1}." in name:  # it comes alone
            return
        with lock:
            running[0] += 1
        meeting.wait()
        time.sleep(0.02)  # a third one could begin
        assert running[0] == 2
        meeting.wait()
        running[0] = 0
        meeting.wait()

    said = tarkit(*SPLIT, "-v", first=with_copies(meet)).stderr.decode()
    assert re.findall(r"s-\d.tar(?=: 1 sample,)", said) == names(SHARDS)
    assert [keys(name) for name in left()] == [str(number) for number in range(SHARDS)]


def test_they_are_complete_in_order() -> None:
    """A shard whose copies are made before those of the one before waits for it; the manifest has them in order."""
    tarkit(*SPLIT, "--manifest", "m.tsv", first=held_up("s-0.tar"))
    assert [line.split("\t")[0] for line in Path("m.tsv").read_text().splitlines()[1:]] == names(SHARDS)


@pytest.mark.parametrize(("output", "words"), [("s-%d.tar", ["--post", "ls -A >> seen"]), ("{part}-%d.tar", PARTS)])
def test_one_after_the_other(output: str, words: list[str]) -> None:
    """Before a command, which may make room for the next shard, and in several series, a shard is completed at once."""

    def alone(name: str) -> None:
        time.sleep(0.01)
        series = os.path.basename(name).rpartition("-")[0]
        assert len([name for name in os.listdir() if name.startswith(series) and name.endswith(".part")]) == 1

    tarkit("split", "in.tar", "-c", "1", "-o", output, *words, first=with_copies(alone))
    assert len([name for name in left() if name.endswith(".tar")]) == SHARDS
    seen = Path("seen")  # the files that were there when the command ran
    assert seen.exists() == ("--post" in words)
    assert not seen.exists() or ".part" not in seen.read_text()


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
    assert left() == names(shard)


@pytest.mark.parametrize("slow", ["s-0.tar", "s-2.tar", "none"])
def test_a_damaged_input(slow: str) -> None:
    """All shards before the damage are complete, however long their copies take."""
    data = bytearray(Path("in.tar").read_bytes())
    data[data.index(b"5.x")] ^= 1
    Path("in.tar").write_bytes(data)
    error = tarkit(*SPLIT, exit=1, first=held_up(slow)).stderr.decode()
    assert "[bad-header]" in error
    assert "3 complete shards stay" in error  # the next one is full only when sample 4 is complete
    assert left() == names(3)
    assert [keys(name) for name in left()] == list("012")


def test_an_input_that_becomes_shorter() -> None:
    """An error that a copy finds while the next shards are written is that of the archive; none of them is left."""

    def cut(name: str) -> None:
        if ".s-3." in name:
            time.sleep(0.1)
            os.truncate("in.tar", 3 * (2 * LONG + 1504) + 1000)

    error = tarkit(*SPLIT, exit=1, first=with_copies(cut)).stderr.decode()
    assert "[truncated]" in error
    assert left() == names(3)


@pytest.mark.parametrize("words", [["-c", "1", "-o", "s-%d.tar"], ["-o", "s-0.tar"]])
def test_a_file_that_is_changed_before_its_last_copies(words: list[str]) -> None:
    """A sort checks whether its files have changed once all copies are made, also those in threads."""
    with tarfile.open("in.tar") as archive:
        last = archive.getmembers()[-1].name

    def first() -> None:
        real, asked = RangeList.unchanged, threading.Event()

        def unchanged(ranges: RangeList) -> None:
            real(ranges)
            asked.set()

        def change(name: str) -> None:
            if "-c" not in words or f".s-{SHARDS - 1}." in name:
                asked.wait(1)
                os.utime("in.tar", ns=(1, 2))

        RangeList.unchanged = unchanged  # type: ignore[method-assign]
        with_copies(change)()

    assert last == f"{SHARDS - 1}.x"
    error = tarkit("sort", "in.tar", "-r", *words, exit=1, first=first).stderr.decode()
    assert error.startswith("tarkit: in.tar: the file was changed while it was read\n")
    assert len(left()) < (SHARDS if "-c" in words else 1)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals(signum: signal.Signals) -> None:
    """After a signal the shards that are there are the first ones, and complete; nothing else is left."""

    def end(name: str) -> None:
        if ".s-3." in name:
            os.kill(os.getpid(), signum)
            time.sleep(1)  # longer than a signal is delayed

    assert tarkit(*SPLIT, exit=-signum, first=with_copies(end)).stderr == b""
    assert left() in (names(2), names(3))
    assert [keys(name) for name in left()] == [str(number) for number in range(len(left()))]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that all copies in this process wait for; at the end no thread is left."""
    event, real = threading.Event(), Copier.copy
    monkeypatch.setattr(sink, "LONG", LONG)
    monkeypatch.setattr(Copier, "copy", lambda *words: event.wait(PATIENT) and real(*words))
    yield event
    event.set()
    assert [each.name for each in threading.enumerate() if each.name == "mover"] == []


def shards(count: int, *more: str) -> tuple[ShardsWriter, Iterator[TarSample]]:
    """Return a writer of shards of `count` samples, and the samples; sample 3 goes to the last series."""
    texts = ["s-%d.tar", *more]
    series = [map(parse_template(text).name, numbers()) for text in texts]
    assign = (lambda sample: len(more) if sample.key == b"3" else 0) if more else None
    output = archives_output(texts[0], None, False)
    writer = ShardsWriter(Run(), ShardsPlan(output, Limits(count), assign), series)
    return writer, iter(SampleReader(on_disk(Path("in.tar").read_bytes()), Policy()))


def test_a_shard_gets_its_name_when_its_copies_are_made(held: threading.Event) -> None:
    """It does not wait until the next one is full."""
    writer, samples = shards(3)
    for _ in range(4):
        writer.add(next(samples))
    assert writer.done == []
    held.set()
    copying = writer.series[0]._copying
    assert happens(lambda: copying is None or not copying.writer.sink.busy)
    writer.add(next(samples))
    assert [shard.name for shard in writer.done] == names(1)
    writer.abort()
    assert left() == names(1)


@pytest.mark.parametrize("release", [True, False])
def test_abort(release: bool, held: threading.Event) -> None:
    """Abort leaves nothing of the shard that takes samples and of the one before, whose copies are under way."""
    writer, samples = shards(1)
    for sample in islice(samples, 2):
        writer.add(sample)
    assert len(left()) == 2
    if release:
        held.set()
    else:
        threading.Timer(0.05, held.set).start()
    writer.abort()
    assert writer.done == []
    assert left() == []


def test_a_full_disk() -> None:
    """The shards that are there are the first ones and complete; the message names the next one."""
    with small_disk(100 << 10) as disk:
        words = ["split", "in.tar", "-c", "1", "-o", f"{disk}/s-%d.tar"]
        error = tarkit(*words, exit=1, first=with_copies(lambda name: None)).stderr.decode()
        there = sorted(os.listdir(disk))
        assert f"{disk}/s-{len(there)}.tar: No space left on device" in error
        assert there in (names(1), names(2), names(3))
        assert [keys(disk / name) for name in there] == [str(number) for number in range(len(there))]


def test_all_are_given_up(held: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error while one output is given up, the others are nevertheless."""
    writer, samples = shards(3, "t-%d.tar")
    for sample in islice(samples, 4):
        writer.add(sample)
    assert len(left()) == 2
    held.set()
    real, failing = FileSink.abort, iter([True])

    def abort(output: FileSink) -> None:
        real(output)
        if next(failing, False):
            raise OSError(errno.EIO, "no good")

    monkeypatch.setattr(FileSink, "abort", abort)
    with pytest.raises(OSError, match="no good"):
        writer.abort()
    assert left() == []
