"""Nothing is lost, taken for something else or left lying without a word: rare archives, each with its law."""

from __future__ import annotations

import gc
import gzip
import re
import sys
from collections.abc import Callable
from itertools import chain, product

import pytest

from tarkit.problems import Policy
from tarkit.samples import pipeline, reader
from tarkit.samples.reader import SampleReader
from tarkit.streams import source as sources
from tarkit.tar.writer import EntryWriter
from tests._feeds import in_turn
from tests._tools import archive as packed
from tests._tools import each_row, stream
from tests.conftest import PAX, Archive, Feed, Link, Run, body, each_feed, entries, tar
from tests.tar.test_writer import Log

BIG = bytes(range(250)) * 20  # makes a sample a large one


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream, a sample over 4 KiB is large, a buffer has it in a file, and so much is held in memory."""
    monkeypatch.setattr(reader, "LARGE", 1 << 12)
    monkeypatch.setattr(pipeline, "SPOOLED", 1 << 12)
    monkeypatch.setattr(sources, "HELD", 1 << 12)
    monkeypatch.setattr(sources, "CHUNK", 1 << 11)


# ---- archives that were glued together, or are damaged


@each_feed
def test_large_sample_behind_the_glue(run: Run, archive: Archive, feed: Feed) -> None:
    """A large sample that begins before the glue, with an entry without key, has all its entries behind it."""
    one = [("a.x", b"1"), ("README", b"r")]
    two = [("b.bin", BIG), ("b.cls", b"2"), ("b.txt", BIG), ("c.x", b"3")]
    ran = run("cat", feed(archive(tar(one) + tar(two))), "--allow", "trailing-data")
    assert ran.stdout == tar([*one, *two])


@each_feed
def test_keyless_entries_behind_the_glue(run: Run, archive: Archive, feed: Feed) -> None:
    """Entries without key that are all there is behind the glue go with the last sample, large or not."""
    for payload in (b"1", BIG):
        one, two = [("a.x", b"0"), ("b.bin", payload), ("b.cls", b"2")], [("README", b"r"), ("LICENSE", b"l")]
        ran = run("cat", feed(archive(tar(one) + tar(two))), "--allow", "trailing-data")
        assert ran.stdout == tar([*one, *two])


def test_large_last_sample_before_other_data(run: Run, archive: Archive) -> None:
    """What is no gzip behind the gzip is the same to a large last sample as to any."""
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
def test_shuffle_of_what_damage_left(
    payload: bytes, rekey: bool, options: str, expected: str, run: Run, archive: Archive, feed: Feed
) -> None:
    """Samples with gaps wait in the buffer of a shuffle whole, whatever is done to them afterwards."""
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
    """Whoever keeps a sample of a stream keeps all its entries, in whatever order they are to be written."""
    for payload in (b"1", BIG):
        rows = {f"{key}.{field}": key.encode() + payload for key in "ab" for field in "xyz"}
        ran = run("cat", feed(archive(rows)), "--allow", "joined-sample", "-f", "y z x")
        assert ran.stdout == tar([(f"{key}.{field}", rows[f"{key}.{field}"]) for key in "ab" for field in "yzx"])


# ---- what is a field, and what is there twice


@each_row(("type", "feed"), in_turn([b"V", b"D"], 1))
def test_no_field(type: bytes, run: Run, archive: Archive, feed: Feed) -> None:
    """A volume label has a name like a field's and is none: it is neither chosen, dropped nor renamed for one."""
    label, rows = ("abc.jpg", Link("", type)), [("k00.jpg", b"1"), ("k00.cls", b"2")]
    name = feed(archive([label, *rows]))
    assert run("cat", name, "-f", "jpg").stdout == tar(rows[:1])
    assert run("cat", name, "--drop", "jpg").stdout == tar([label, rows[1]])
    assert run("cat", name, "-R", "n{key}").stdout == tar([label, *((f"n{old}", data) for old, data in rows)])
    ran = run("cat", feed(archive([label, ("k00.cls", b"2")], "no.tar")), "--require", "jpg", exit=1)
    assert "'k00' has no field 'jpg', it has 'cls'" in ran.stderr


@each_feed
def test_folders_of_joined_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """Two samples that both bring their folder along can be joined, as one sample may have a folder twice."""
    one, two = [("d", None), ("d/k.jpg", b"1")], [("d", None), ("d/k.cls", b"2")]
    names = [feed(archive(one, "1.tar")), feed(archive(two, "2.tar"))]
    assert run("cat", *names, "--allow", "joined-sample,repeated-key").stdout == tar([*one, *two])


@each_row("length", [2, 3, 4])
def test_twice_wherever_it_stands(length: int) -> None:
    """A name that is there twice is noticed in any order of entries, in the last sample and in any other."""
    for fields in product("abc", repeat=length):
        rows = [(f"k.{field}", b"") for field in fields]
        good = len(set(fields)) == length
        for follows in ([], [("l.x", b"")]):
            policy = Policy(skip=["duplicate-entry"])
            found = [sample.key for sample in SampleReader(stream(packed([*rows, *follows])), policy)]
            assert found == [b"k"] * good + [b"l"] * bool(follows), fields
            assert bool(policy.counts["duplicate-entry"]) != good, fields


@each_feed
def test_unsafe_name_in_any_place(run: Run, archive: Archive, feed: Feed) -> None:
    """A NUL in a name is told of in whichever entry of a sample it is."""
    for names in ("a.xß a.y", "a.x a.yß", "a.x a.y a.zß"):
        data = tar(dict.fromkeys([*names.split(), "b.x"], b"1"), PAX)
        data = re.sub(rb"(path=a\.[xyz])\xc3\x9f", rb"\1\0z", data)
        assert b"\0z\n" in data
        name = feed(archive(data))
        ran = run("cat", name)
        assert [line.split()[-1] for line in ran.lines if "warning" in line] == ["[unsafe-name]"]
        assert ran.stdout == data
        assert run("cat", name, "--skip", "unsafe-name").stdout == tar({"b.x": b"1"}, PAX)


# ---- what is left lying, and how long it takes


@each_feed
def test_no_file_is_left(run: Run, archive: Archive, feed: Feed) -> None:
    """A --post that fails while a large sample is moved on to the next shard leaves nothing of that shard."""
    name = feed(archive([("a.x", bytes(20_000)), ("b.bin", bytes(8000)), ("b.txt", bytes(8000))]))
    ran = run("split", name, "-s", "30720", "-o", "out-%d.tar", "--post", "false", exit=1)  # a.x and b.bin alone fit
    assert "out-0.tar" in ran.stderr  # and `run` looks for unfinished files


def steps(do: Callable[[], None]) -> int:
    """How many functions are called meanwhile."""
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
    """A large sample of twice as many entries takes twice as long, and not four times."""

    def copy(data: bytes) -> None:
        with EntryWriter(Log()) as writer:
            for sample in SampleReader(stream(data), Policy()):
                sample.write(writer)
            writer.finish(1024)

    few, many = (packed([("a.bin", BIG), *((f"a.{n}", b"") for n in range(count))]) for count in (200, 400))
    assert steps(lambda: copy(many)) < 2.5 * steps(lambda: copy(few))


def test_problems_of_a_large_sample_count_once() -> None:
    """What is wrong with an entry of a large sample is judged once, however many entries follow it."""
    policy = Policy(allow=["duplicate-entry"])
    rows = [("a.bin", BIG), ("a.x", b""), ("a.x", b""), *((f"a.{n}", b"") for n in range(9))]
    for sample in SampleReader(stream(packed(rows)), policy):
        sample.complete()
    assert policy.counts["duplicate-entry"] == 1


def test_steps_between_large_samples() -> None:
    """One large sample after the other leaves nothing behind that the next must go through."""
    alive = []
    gc.collect()
    gc.freeze()  # what is there already is not looked at; nor afterwards, as conftest has it
    for sample in SampleReader(stream(packed([(f"{n:03}.bin", BIG) for n in range(40)])), Policy()):
        sample.complete()
        alive.append(sum(type(thing) is chain for thing in gc.get_objects()))
    assert len(alive) == 40
    assert max(alive) < 9
