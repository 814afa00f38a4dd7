"""The engine that orders samples: laws for any archive, memory, disk and messages."""

from __future__ import annotations

import gc
import itertools
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit import machine
from tarkit.dataset import open as open_dataset
from tarkit.errors import TarkitError
from tarkit.machine import Memory
from tarkit.pipeline.ranges import KeptSamples
from tarkit.problems import Policy
from tarkit.samples import reader
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.sorting import memory as memories
from tarkit.sorting.memory import in_place
from tarkit.sorting.runs import Runs, SeenKeys
from tarkit.sorting.sorter import Sorter
from tarkit.spill import runs as spilled
from tarkit.streams import source as sources
from tarkit.streams.location import Location
from tarkit.streams.ranges import HeldRange
from tarkit.tar.header import encode
from tarkit.tar.writer import EntryWriter
from tests._tools import MARKER, Log, archive, each_row, member, on_disk, stream
from tests.conftest import Run, entries, tar, tarkit
from tests.laws.test_laws import archives, grouped, laws, stored

# ---- laws


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit memory to runs of two or three samples, and many levels of them."""
    with (
        mock.patch.object(memories, "LEAST", 1000),
        mock.patch.object(memories.MEMORY, "at_least", 1000),
        mock.patch.object(machine, "memory", return_value=Memory(4 * 5000, 0)),
        mock.patch.object(spilled, "MOST_RUNS", 2),
        mock.patch.object(spilled, "BUFFER", 64),
        mock.patch.object(reader, "LARGE", 1 << 11),
        mock.patch.object(sources, "HELD", 1 << 11),
    ):
        yield


ORDERS = ["", "-r", "-s size", "-s size -r", "-t natural", "-s size,__key__"]


@laws
@given(archives(), st.sampled_from(ORDERS))
def test_sort(data: bytes, by: str) -> None:
    """Whole samples are permuted; a second sort changes nothing; any feed and memory limit give the same output."""
    words = by.split()
    with stored(data) as (directory, names):
        once = tarkit("sort", names[0], *words).stdout
        assert tarkit("sort", names[1], *words).stdout == once
        with little_memory():
            for name in names:
                assert tarkit("sort", name, *words).stdout == once
        (directory / "once.tar").write_bytes(once)
        assert tarkit("sort", directory / "once.tar", *words).stdout == once
        tarkit("sort", directory / "once.tar", *words, "--check-only")
    assert sorted(entries(once), key=repr) == sorted(entries(data), key=repr)
    samples = {key for key, _ in grouped(entries(data)) if key}
    assert [key for key, _ in grouped(entries(once)) if key] == sorted(samples) or by != ""


@laws
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyzuvw")), unique=True, max_size=14))
def test_gathering_any_entries(pairs: list[tuple[str, str]]) -> None:
    """Entries in any order are gathered by key, and keep their order."""
    rows = [(f"{key}.{field}", f"{key}{field}".encode()) for key, field in pairs]
    expected = tar(sorted(rows, key=lambda row: row[0][0]))
    with stored(tar(rows)) as (_, names):
        assert tarkit("sort", names[0]).stdout == expected
        with little_memory():
            for name in names:
                assert tarkit("sort", name).stdout == expected


@laws
@given(st.lists(st.binary(max_size=3), max_size=40), st.sampled_from([1 << 30, 2000, 400]))
def test_any_ranks(ranks: list[bytes], memory: int) -> None:
    """Samples are in the order of rank, then ordinal; a rank may be empty or a prefix of another."""
    data = archive((f"{number:03}.x", b"x" * (number * 37 % 700)) for number in range(len(ranks)))
    expected = [f"{number:03}" for number in sorted(range(len(ranks)), key=lambda number: ranks[number])]
    for make in (on_disk, stream):
        sorter_of = Sorter(iter(SampleReader(make(data), Policy())), lambda sample, ordinal: ranks[ordinal], memory)
        assert [sample.key.decode() for sample in sorter_of if sample.key] == expected
        assert (sorter_of.taken, sorter_of.yielded) == (len(ranks), len(ranks))


# ---- checks and messages


def sorter_of(
    names: list[str], rank: Callable[[TarSample, int], bytes | None], memory: int = 1 << 30, **settings: Any
) -> Sorter:
    """Return a sorter of samples of one entry, from a stream."""
    data = archive((name, name.encode()) for name in names)
    return Sorter(iter(SampleReader(stream(data), Policy(), gather=True)), rank, memory, **settings)


def test_a_missing_sample_is_an_error() -> None:
    """A sample that is missing at the end is an error."""
    one = sorter_of(["a.x", "b.x"], lambda sample, ordinal: sample.key)
    with (
        mock.patch.object(Runs, "blocks", return_value=iter(())),
        pytest.raises(AssertionError, match="2 samples came in"),
    ):
        list(one)


def test_samples_in_memory_do_not_stay(tmp_path: Path) -> None:
    """Samples that code of the user has made go to temporary space, as those of streams do."""
    alive: weakref.WeakSet[HeldRange] = weakref.WeakSet()

    def made() -> Iterator[TarSample]:
        for number in range(200):
            data = member(f"{number * 7 % 200:03}.x", bytes(1000))
            source = HeldRange("a.tar", 0, data + MARKER)
            alive.add(source)
            yield next(iter(SampleReader(source, Policy())))
            assert len(alive) < 20

    with little_memory():
        one = Sorter(made(), lambda sample, ordinal: sample.key, 5000, tmpdir=str(tmp_path))
        found = [(sample.key, sample.source.read(sample.start, sample.stop)) for sample in one]
    assert found == [(b"%03d" % number, member(f"{number:03}.x", bytes(1000))) for number in range(200)]
    kept = KeptSamples(
        (next(iter(SampleReader(HeldRange("a.tar", 0, data + MARKER), Policy()))) for _, data in found), None
    )
    for _ in range(2):
        assert [(sample.key, sample.source.read(sample.start, sample.stop)) for sample in kept.batches()] == found


def test_inputs_in_turn(here: Path) -> None:
    """An input to which the reader comes back is the same one: parts of a sample in it are scattered, not joined."""
    for name, members in ("a.tar", {"a.x": b"1", "c.x": b"", "a.y": b"2"}), ("b.tar", {"k.x": b"", "l.x": b""}):
        Path(name).write_bytes(tar(members))
    found = open_dataset(["a.tar", "b.tar"], interleave=2).sort()
    assert [(sample.key, [*sample]) for sample in found] == [
        ("a", ["x", "y"]), ("c", ["x"]), ("k", ["x"]), ("l", ["x"])
    ]  # fmt: skip
    with pytest.raises(TarkitError, match="joined-sample"):
        list(open_dataset(["a.tar", "b.tar", "a.tar"], interleave=2).sort())


def test_without_rank() -> None:
    """A sample without a rank is checked again when it is complete, and then kept or dropped."""
    asked: list[bytes | None] = []

    def absent(sample: TarSample) -> bytes | None:
        asked.append(sample.key)
        return None if sample.key == b"b" else b"0"

    def rank(sample: TarSample, ordinal: int) -> bytes | None:
        return sample.key if any(entry.name.endswith(b"x") for entry in sample.entries) else None

    names = ["c.y", "a.x", "b.y", "d.y", "d.x"]
    for memory in (1 << 30, 3000):
        asked.clear()
        one = sorter_of(names, rank, memory, gather=Policy(), absent=absent)
        assert [sample.key for sample in one] == [b"c", b"a", b"d"]
        assert asked == [b"b", b"c"]
        assert (one.taken, one.joined, one.left_out, one.yielded) == (4, 0, 1, 3)
    one = sorter_of(names, rank)
    assert [sample.key for sample in one] == [b"a", b"d"]
    assert (one.taken, one.left_out, one.yielded) == (4, 2, 2)


def test_default_memory() -> None:
    """The default is a quarter of the memory."""
    with mock.patch.object(machine, "memory", return_value=Memory(8 << 30, 1)):
        assert memories.default_memory() == 2 << 30


def test_in_place(tmp_path: Path) -> None:
    """Files that fit into free memory are not copied; inputs of unknown size do not count."""
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(1000))
    file, pipe = Location("path", str(path), "a.tar"), Location("pipe", "cat", "pipe:cat")
    for free, expected in ((2000, True), (1999, False)):
        said: list[str] = []
        with mock.patch.object(machine, "memory", lambda free=free: Memory(1 << 30, free)):
            assert in_place([file, pipe, file], said.append) is expected
        assert len(said) == 1
    assert in_place([pipe], said.append)
    assert len(said) == 1


@each_row(("size", "inputs", "step"), [(9, 1, 7), (9, 2, 7), (9, 1, 1), (9000, 1, 7), (0, 1, 7)])
def test_samples_that_are_read_together(size: int, inputs: int, step: int) -> None:
    """Samples have the same bytes and fields, whether they are small, large, neighbours, or of several files."""
    count = 300
    names = [f"{number * step % count:03}.x" for number in range(count)]
    parts = [[(name, name.encode() * size) for name in names[each::inputs]] for each in range(inputs)]
    readers = [SampleReader(on_disk(archive(rows)), Policy()) for rows in parts]
    sink, fields = Log(), []
    with EntryWriter(sink) as writer:
        for sample in Sorter(itertools.chain(*readers), lambda sample, _: sample.key, 1 << 30):
            fields += [
                (entry.name, sample.source.read(entry.data, entry.data + entry.size)) for entry in sample.entries
            ]
            if len(fields) % 3 == 0:
                sample = sample.with_entries(sample.entries)
            sample.write(writer)
    expected = [(f"{number:03}.x", f"{number:03}.x".encode() * size) for number in range(count)]
    assert fields == [(name.encode(), content) for name, content in expected]
    assert bytes(sink.data).rstrip(b"\0") == archive(expected).rstrip(b"\0")


# ---- parts


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), max_size=12),
    st.integers(0, 40),
    st.sampled_from([8, 80, 1 << 20]),
)
def test_seen_keys(shapes: list[list[int]], ascending: int, memory: int) -> None:
    """Keys that ascend are not kept, and found again once one does not: those that come more than once are marked."""
    batches = [[b"%03d" % number] for number in range(ascending)]
    batches += [[b"%03d" % number for number in batch] for batch in shapes]
    keys: list[bytes] = []
    calls = 0

    def recall() -> Iterator[tuple[int, bytes]]:
        nonlocal calls
        calls += 1
        known = list(enumerate(keys))
        return iter(sorted(known, key=lambda pair: pair[0] * 7919 % 101))

    seen = SeenKeys(memory, None)
    with mock.patch.object(seen, "_step", max(memory // 8, 1)):
        for batch in batches:
            keys += batch  # in the Sorter too they can be recalled already
            seen.extend(batch, recall)
            seen.flush()
    marks = seen.marked()
    counts = Counter(keys)
    assert [bool(mark) for mark in marks or bytes(len(keys))] == [counts[key] > 1 for key in keys]
    assert not calls or any(key >= following for key, following in pairwise(keys))


def test_a_sorter_is_freed() -> None:
    """A sorter is freed with its last reference, without garbage collection: each of many epochs has one."""
    data = archive([(f"{number}.x", b"1" * 300) for number in range(30)])
    gc.disable()
    try:
        for make in (on_disk, stream):
            for memory in (1 << 30, 1500):
                one = Sorter(iter(SampleReader(make(data), Policy())), lambda sample, _: sample.key, memory)
                assert len(list(one)) == 30
                left = weakref.ref(one)
                del one
                assert left() is None
    finally:
        gc.enable()


def test_an_invalid_value_in_a_gathered_sample(run: Run, here: Path) -> None:
    """An invalid value names its sample in the input, after any move of the sample."""
    Path("1.tar").write_bytes(member("a.x", b"1") + archive({"b.n": b"1", "a.n": b"one"}))
    for stdin in (None, Path("1.tar").read_bytes()):
        with little_memory():
            ran = run("sort", *(["1.tar"] if stdin is None else []), "-s", "n", "-t", "int", stdin=stdin, exit=1)
        assert "the field 'n' of 'a' is 'one', not a whole number" in ran.stderr


def test_a_sample_of_4_gib(here: Path) -> None:
    """A range that takes more than 32 bits has a place like any other, also among samples in runs."""
    with open("big.tar", "wb") as file:
        for name, size in (("a.x", 1 << 10), ("c.x", 1 << 32), ("b.x", 1 << 10)):
            file.write(encode(name.encode(), size))
            file.seek(size, os.SEEK_CUR)  # a hole
        file.write(MARKER)
    found = [(sample.key, sample.sizes["x"]) for sample in open_dataset("big.tar").sort()]
    assert found == [("a", 1 << 10), ("b", 1 << 10), ("c", 1 << 32)]
    assert sorted(sample.key for sample in open_dataset("big.tar").shuffle(seed=1)) == ["a", "b", "c"]


@each_row("size", [4096, 5000, 300_000, 2_000_000])
def test_fields_that_differ_in_case(size: int, here: Path) -> None:
    """The one that is spelled as the option counts, else the first, whatever its size: no other one in its place."""
    names = {"a.CLS": b"z" * size, "a.cls": b"1", "b.cls": b"m", "c.cls": b"n"}
    Path("in.tar").write_bytes(b"".join(member(name, data) for name, data in names.items()) + MARKER)
    out = tarkit("sort", "in.tar", "-s", "cls", "-o", "-").stdout
    assert [name for name, _ in entries(out)] == ["a.CLS", "a.cls", "b.cls", "c.cls"]
    for field in ("CLS", "Cls"):
        if size > 1 << 20:
            assert "[bad-field]" in tarkit("sort", "in.tar", "-s", field, "-o", "-", exit=1).stderr
        else:
            out = tarkit("sort", "in.tar", "-s", field, "-o", "-").stdout
            assert [name for name, _ in entries(out)] == ["b.cls", "c.cls", "a.CLS", "a.cls"]


@each_row("words", ["sort --rekey x{key}", "shuffle --seed 1", "sort"])
def test_nothing_is_read_before_the_output_is_known(words: str, here: Path) -> None:
    """An output that is an input is refused first, whatever is in the input."""
    Path("cut.tar").write_bytes(member("a.x") + member("b.x", b"x" * 600)[:700])
    assert "is both input and output" in tarkit(*words.split(), "cut.tar", "-o", "cut.tar", exit=2).stderr
