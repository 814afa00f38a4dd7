"""No entry is lost, misinterpreted or left behind silently: rare archives, each with its law."""

from __future__ import annotations

import gc
import gzip
import re
import sys
from collections.abc import Callable
from itertools import chain, product

import pytest

from tarkit.pipeline import stages as pipeline
from tarkit.problems import Policy
from tarkit.samples import reader
from tarkit.samples.reader import SampleReader
from tarkit.streams import source as sources
from tarkit.tar.writer import EntryWriter
from tests._feeds import in_turn
from tests._tools import Log, each_row, stream
from tests._tools import archive as packed
from tests.conftest import PAX, Archive, Feed, Link, Run, body, each_feed, entries, tar

BIG = bytes(range(250)) * 20  # makes a sample large


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make samples of a stream over 4 KiB large, buffer them in a file, and keep at most 4 KiB in memory."""
    monkeypatch.setattr(reader, "LARGE", 1 << 12)
    monkeypatch.setattr(pipeline, "SPOOLED", 1 << 12)
    monkeypatch.setattr(sources, "HELD", 1 << 12)
    monkeypatch.setattr(sources, "CHUNK", 1 << 11)


# ---- concatenated or damaged archives


def test_large_last_sample_before_other_data(run: Run, archive: Archive) -> None:
    """Data after gzip that is not gzip has the same effect on a large last sample as on any other."""
    for payload in (b"1", BIG):
        rows = [("a.x", b"0"), ("b.bin", payload), ("b.cls", b"2")]
        name = archive(gzip.compress(tar(rows)) + b"hello", "in.tar.gz")
        assert run("cat", name, "--allow", "trailing-data").stdout == tar(rows)
        assert "[trailing-data]" in run("cat", name, exit=1).stderr


GAPS = [("", "a.x a.z b.x b.z c.x c.z"), ("-f x", "a.x b.x c.x"), ("-f 'z x'", "a.z a.x b.z b.x c.z c.x")]


@each_row(
    ("payload", "rekey", "options", "expected", "feed"),
    in_turn(((payload, rekey, *row) for payload in (BIG, b"1") for rekey in (False, True) for row in GAPS), len(GAPS)),
)
def test_shuffle_of_samples_with_gaps(
    payload: bytes, rekey: bool, options: str, expected: str, run: Run, archive: Archive, feed: Feed
) -> None:
    """Samples with gaps stay complete in the buffer of a shuffle, with any change of fields or keys."""
    rows = [(f"{key}.{field}", key.encode() + field.encode() + payload) for key in "abc" for field in "xyz"]
    damaged = bytearray(tar(rows))
    size = len(body(bytes(damaged))) // len(rows)
    for number, (name, _) in enumerate(rows):
        if name.endswith(".y"):
            damaged[number * size] ^= 1
    words = [word.strip("'") for word in options.split(" ", 1)] if options else []
    words += ["-R", "n{key}"] if rekey else []
    ran = run("cat", feed(archive(bytes(damaged))), "--allow", "bad-header", "--shuffle", "2", "--seed", "1", *words)
    new = "n" if rekey else ""
    found = entries(ran.stdout)
    assert sorted(found, key=lambda row: row[0].split(".")[0]) == [
        (new + name, dict(rows)[name]) for name in expected.split()
    ]


@each_feed
def test_joined_with_its_fields_in_another_order(run: Run, archive: Archive, feed: Feed) -> None:
    """A joined sample of a stream has all its entries, written in any order."""
    for payload in (b"1", BIG):
        rows = {f"{key}.{field}": key.encode() + payload for key in "ab" for field in "xyz"}
        ran = run("cat", feed(archive(rows)), "--allow", "joined-sample", "-f", "y z x")
        assert ran.stdout == tar([(f"{key}.{field}", rows[f"{key}.{field}"]) for key in "ab" for field in "yzx"])


# ---- fields, and duplicates


@each_row(("type", "feed"), in_turn([b"V", b"D"], 1))
def test_labels_are_not_fields(type: bytes, run: Run, archive: Archive, feed: Feed) -> None:
    """A volume label with a name like a field's is not a field: it is neither selected, dropped nor renamed as one."""
    label, rows = ("abc.jpg", Link("", type)), [("k00.jpg", b"1"), ("k00.cls", b"2")]
    name = feed(archive([label, *rows]))
    assert run("cat", name, "-f", "jpg").stdout == tar(rows[:1])
    assert run("cat", name, "--drop", "jpg").stdout == tar([label, rows[1]])
    assert run("cat", name, "-R", "n{key}").stdout == tar([label, *((f"n{old}", data) for old, data in rows)])
    ran = run("cat", feed(archive([label, ("k00.cls", b"2")], "no.tar")), "--require", "jpg", exit=1)
    assert "'k00' has no field 'jpg', it has 'cls'" in ran.stderr


@each_row("length", [2, 3, 4])
def test_duplicates_in_any_position(length: int) -> None:
    """A duplicate name is noticed in any order of entries, in the last sample and in any other."""
    for fields in product("abc", repeat=length):
        rows = [(f"k.{field}", b"") for field in fields]
        good = len(set(fields)) == length
        for follows in ([], [("l.x", b"")]):
            policy = Policy(skip=["duplicate-entry"])
            found = [sample.key for sample in SampleReader(stream(packed([*rows, *follows])), policy)]
            assert found == [b"k"] * good + [b"l"] * bool(follows), fields
            assert bool(policy.counts["duplicate-entry"]) != good, fields


@each_feed
def test_unsafe_name_in_any_position(run: Run, archive: Archive, feed: Feed) -> None:
    """A NUL in a name is reported for any entry of a sample."""
    for names in ("a.xß a.y", "a.x a.yß", "a.x a.y a.zß"):
        data = tar(dict.fromkeys([*names.split(), "b.x"], b"1"), PAX)
        data = re.sub(rb"(path=a\.[xyz])\xc3\x9f", rb"\1\0z", data)
        assert b"\0z\n" in data
        name = feed(archive(data))
        ran = run("cat", name)
        assert [line.split()[-1] for line in ran.lines if "warning" in line] == ["[unsafe-name]"]
        assert ran.stdout == data
        assert run("cat", name, "--skip", "unsafe-name").stdout == tar({"b.x": b"1"}, PAX)


# ---- running time


def steps(do: Callable[[], None]) -> int:
    """Return how many functions are called by `do`."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        do()
    finally:
        sys.setprofile(before)
    return count


def test_steps_of_a_large_sample() -> None:
    """The time for a large sample is linear in its number of entries."""

    def copy(data: bytes) -> None:
        with EntryWriter(Log()) as writer:
            for sample in SampleReader(stream(data), Policy()):
                sample.write(writer)
            writer.finish(1024)

    few, many = (packed([("a.bin", BIG), *((f"a.{n}", b"") for n in range(count))]) for count in (200, 400))
    assert steps(lambda: copy(many)) < 2.5 * steps(lambda: copy(few))


def test_steps_between_large_samples() -> None:
    """Large samples in sequence leave no chain of sources that the next one must traverse."""
    alive = []
    gc.collect()
    gc.freeze()  # existing objects are not searched, now or later: conftest freezes them as well
    for sample in SampleReader(stream(packed([(f"{n:03}.bin", BIG) for n in range(40)])), Policy()):
        sample.complete()
        alive.append(sum(type(thing) is chain for thing in gc.get_objects()))
    assert len(alive) == 40
    assert max(alive) < 9
