"""tarkit sort: the order, whole samples, no losses, from every feed and with every amount of memory."""

from __future__ import annotations

import functools
import json
import os
import random
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarkit import machine as limits
from tarkit.sorting import memory
from tarkit.sorting import sorter as order
from tarkit.spill import runs
from tarkit.tar.header import end_of_archive
from tests._tools import each_row, member
from tests.conftest import GNU, PAX, Archive, Content, Feed, Link, Run, body, each_feed, entries, keys, pick, tar


@contextmanager
def machine(way: str) -> Iterator[None]:
    """Provide enough memory, or so little that everything goes through merged runs on disk.

    Memory is checked after a few samples, not thousands.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "OFTEN", 16)
        if way == "little":
            patch.setattr(memory, "LEAST", 1000)
            patch.setattr(memory.MEMORY, "at_least", 1000)
            patch.setattr(limits, "memory", lambda: limits.Memory(4 * 8000, 0))
        yield


def ways(*named: str) -> list[tuple[str, Feed]]:
    """Return pairs of memory and feed, such as `plenty file`."""
    return [(way, Feed(kind)) for way, kind in map(str.split, named)]


WAYS = ("plenty file", "plenty pipe", "little gzip")


def each_way(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with samples in their file, in memory, and through runs on disk."""

    @functools.wraps(test)
    def on_machine(way: str, **given: Any) -> None:
        with machine(way):
            test(**given)

    return each_row("way,feed", ways(*WAYS))(on_machine)


def rows(text: str) -> list[tuple[str, Content]]:
    """Return entries with these names; the content repeats the name."""
    return [(name, name.encode() * 3) for name in text.split()]


def sorted_to(run: Run, words: list[str], **settings: Any) -> list[str]:
    """Return the names in the output."""
    return [name for name, _ in entries(run("sort", *words, **settings).stdout)]


# ---- by key


MISSING = "d.x b.n b.x a.n c.x"


@each_row(
    ("before", "options", "after"),
    [
        ("b.x a.x c.x", "", "a.x b.x c.x"),
        ("b.x b.y a.y a.x", "", "a.y a.x b.x b.y"),  # a sample is not changed
        ("a.x a-1.x a/b.x a.d/c.x", "", "a.x a-1.x a.d/c.x a/b.x"),  # by key: the dot does not count
        ("img10.x img9.x Img.x \u00e9.x", "", "Img.x img10.x img9.x \u00e9.x"),  # by bytes, not by language
        ("a.jpg a.d/x.jpg a.cls", "", "a.jpg a.cls a.d/x.jpg"),  # by name, the directory a.d is between a.cls and a.jpg
        ("ab.x a.x abc.x a.y ab.y", "", "a.x a.y ab.x ab.y abc.x"),
        ("a.x", "", "a.x"),
        ("", "", ""),
        ("README b.x .hidden a.x a.y LAST", "", "README .hidden LAST a.x a.y b.x"),  # entries without a key come first
        ("b.x README b.y a.x", "", "a.x b.x README b.y"),  # except those inside a sample
        ("README LICENSE", "", "README LICENSE"),
        ("a.x b.x a.y b.y a.z c.x", "", "a.x a.y a.z b.x b.y c.x"),  # scattered
        # a prefix of a key is smaller; entries without a key are first in any case
        ("README a.x ab.x b.x a-1.x b.y", "-r", "README b.x b.y ab.x a-1.x a.x"),
        (MISSING, "-s n", "[missing-field]"),
        (MISSING, "-s n --allow missing-field", "d.x c.x a.n b.n b.x"),  # such samples come first, in their order
        (MISSING, "-s n --skip missing-field", "a.n b.n b.x"),
        (MISSING, "-s n -r --allow missing-field", "b.n b.x a.n d.x c.x"),
        ("d.y c.x c.y b.y a.x a.y", "-s x,y --allow missing-field", "b.y d.y a.x a.y c.x c.y"),
        ("README a.x b.n LAST", "-s n --skip missing-field", "README LAST b.n"),
        ("b.1M a.1M", "-s 1M", "a.1M b.1M"),  # no size
        # fields are selected after a sample is gathered; no part is selected alone
        ("b.x a.x b.y a.y", "-f 'y x' --require x,y", "a.y a.x b.y b.x"),
        ("a.x b.x a.y", "--slice 1:", "[scattered-sample]"),
        ("a.x b.x a.y", "--sample 0.5 --seed 1", "[scattered-sample]"),
    ],
)
def test_by_key(before: str, options: str, after: str, run: Run, archive: Archive) -> None:
    """Whole samples are in the order of their keys, entries are unchanged, and the end is the usual one."""
    members = dict(rows(before))
    for way, feed in ways(*WAYS):
        word = feed(archive(members))
        with machine(way):
            ran = run("sort", word, *shlex.split(options), exit=after.startswith("["))
        if ran.status:
            assert ran.lines[0].endswith(after)
            assert ran.stdout == b""
        else:
            assert ran.stdout == tar([(name, members[name]) for name in after.split()])
            assert options or ran.stderr == ""


@each_way
def test_headers_stay(run: Run, archive: Archive, feed: Feed) -> None:
    """Long names, PAX records and links inside samples are copied to the last byte."""
    long = "n" * 150
    for format in (GNU, PAX):
        one = tar([(f"{long}.x", b"1"), (f"{long}.l", Link(f"{long}.x"))], format)
        two = tar([(f"d/{long}.y", b"x" * 700), (f"d/{long}.s", Link("anywhere", b"2"))], format)
        data = body(one) + body(two)
        word = feed(archive(data + end_of_archive(len(data))))
        expected = body(two) + body(one)
        assert run("sort", word).stdout == expected + end_of_archive(len(expected))


@each_way
def test_equal_values(run: Run, archive: Archive, feed: Feed) -> None:
    """Of many samples with equal values all are in the output, ties in the order of the input."""
    count = 600 if feed.kind == "gzip" else 100  # with little memory, long lists are merged
    names = [b"%05d" % (number * 7919 % count) for number in range(count)]
    data = b"".join(member(name + b".cls", b"%d" % (index % 3)) for index, name in enumerate(names))
    word = feed(archive(data + end_of_archive(len(data))))

    def found(*words: str) -> list[bytes]:
        data = run("sort", word, *words).stdout
        return [data[at : at + 5] for at in range(0, 1024 * len(names), 1024)]

    assert found("-s", "cls", "-t", "int") == names[::3] + names[1::3] + names[2::3]
    assert found("-s", "cls", "-t", "int", "-r") == names[2::3] + names[1::3] + names[::3]
    assert found("-s", "size", "-r") == names


# ---- by content

VALUES: dict[str, Content] = {
    "a.n": b"10\n",
    "a.json": b'{"w": 2, "t": "x"}',
    "b.n": b"9",
    "b.json": b'{"w": 10, "t": "y"}',
    "c.n": b"-1",
    "c.json": b'{"w": 2, "t": "w"}',
    "d.n": b"9.5",
    "d.json": b'{"w": 1, "t": "x"}' + b" " * 600,
}


@each_row(
    ("options", "expected"),
    [
        ("-s n", "c b d a"),
        ("-s n -t float", "c b d a"),
        ("-s n -t float -r", "a d b c"),
        ("-s n -t str", "c a b d"),
        ("--sortfield n", "c b d a"),
        ("-s N", "c b d a"),  # names of fields match in any case
        ("-s json.w", "d a c b"),
        ("-s json.w -r", "b a c d"),
        ("-s json.w,json.t", "d c a b"),
        ("-s json.w -s json.t", "d c a b"),
        ("--sort-field json.t,n", "c d a b"),
        ("-s size.n", "b c a d"),
        ("-s size", "b c a d"),
        ("-s __key__ -r", "d c b a"),
        ("--by json.w -r", "b a c d"),
        ("--order-file list", "b d a c"),
    ],
)
def test_by_value(options: str, expected: str, run: Run, archive: Archive) -> None:
    """Samples are sorted by all kinds of values."""
    Path("list").write_text("b\nd\na\nc\n")
    words = options.split()
    for way, feed in ways("plenty file", "little pipe"):
        with machine(way):
            assert run("sort", feed(archive(VALUES)), *words).stdout == tar(pick(VALUES, expected))
    run("sort", archive(pick(VALUES, expected)), *words, "--check-only")
    ran = run("sort", archive(pick(VALUES, expected[::-1])), *words, "--check-only", exit=1)
    assert "is out of order after" in ran.stderr


@each_way
def test_the_field_is_read_before_selection_of_fields(run: Run, archive: Archive, feed: Feed) -> None:
    """The sort field need not be in the output; {index} counts in the new order."""
    word = feed(archive({"a.n": b"2", "a.x": b"a", "b.n": b"1", "b.x": b"b"}))
    assert entries(run("sort", word, "-s", "n", "-f", "x").stdout) == [("b.x", b"b"), ("a.x", b"a")]
    ran = run("sort", word, "-s", "n", "-f", "y:x", "-R", "{index:02d}")
    assert entries(ran.stdout) == [("00.y", b"b"), ("01.y", b"a")]
    assert entries(run("sort", word, "-s", "n", "--drop", "n", "-r").stdout) == [("a.x", b"a"), ("b.x", b"b")]


# ---- gathered samples


@each_way
def test_gathering(run: Run, archive: Archive, feed: Feed) -> None:
    """Entries with one key are gathered in the order of the input, for any sort key."""
    members: list[tuple[str, Content]] = [
        ("a.x", b"1"), ("b.n", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("c.n", b"0"), ("a.n", b"2"), ("c.x", b"4"),
    ]  # fmt: skip
    word = feed(archive(members))
    for options, expected in (("-s n", "c b a"), ("-s n -r", "a b c"), ("", "a b c"), ("-s size.n,__key__", "a b c")):
        ran = run("sort", word, *options.split(), "--report", "r.json")
        assert ran.stdout == tar(pick(members, expected)), options
        assert ran.stderr == ""
        assert json.loads(Path("r.json").read_text())["order"] == {"in": 7, "gathered": 4, "left_out": 0, "out": 3}


@each_way
def test_values_of_scattered_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """Sizes, contents and paths are those of the whole sample, after gathering."""
    name = feed(
        archive(
            [
                *(("a.x", b"1"), ("README", b"r" * 99), ("a.json", b'{"v": 3}'), ("b.x", b"2"), ("a.y", b"3" * 40)),
                *(("b.json", b'{"v": 2}'), ("c.x", b"3" * 20), ("c.json", b'{"v": 1}'), ("b.y", b"")),
            ]
        )
    )
    for field, expected in (("size", "bca"), ("size.y", "ba"), ("json.v", "cba"), ("x", "abc"), ("y", "ab")):
        names = sorted_to(run, [name, "-s", field, "--skip", "missing-field"])
        assert "".join(dict.fromkeys(each[0] for each in names if "." in each)) == expected, field


@each_way
def test_everything_is_scattered(run: Run, archive: Archive, feed: Feed) -> None:
    """25 samples of three scattered parts, each in another order, are gathered and sorted."""
    draw = random.Random(2)
    names = [f"{number:03}" for number in range(25)]
    members = []
    for field in ("img", "cls", "txt"):
        draw.shuffle(names)
        members += [
            (f"{name}.{field}", f"{int(name) * 5 % 7}".encode() if field == "cls" else name.encode()) for name in names
        ]
    word = feed(archive(members))
    ran = run("sort", word)
    assert entries(ran.stdout) == [row for name in sorted(names) for row in pick(members, name)]
    first = [name.partition(".")[0] for name, _ in members[:25]]
    value = dict(members)
    ran = run("sort", word, "-s", "cls")
    assert keys(ran.stdout).split() == sorted(first, key=lambda name: value[f"{name}.cls"])
    assert sorted(entries(ran.stdout)) == sorted(members)


@each_way
def test_duplicates_in_scattered_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """A duplicate name in a gathered sample is an error; --allow keeps both entries, --skip drops the sample."""
    word = feed(archive([("a.x", b"1"), ("b.x", b"2"), ("a.x", b"3"), ("c.x", b"4")]))
    ran = run("sort", word, "-o", "no.tar", exit=1)
    assert "at 2048: 'a.x' occurs twice" in ran.stderr
    assert "[duplicate-entry]" in ran.stderr
    assert not os.path.exists("no.tar")
    ran = run("sort", word, "--allow", "duplicate-entry")
    assert entries(ran.stdout) == [("a.x", b"1"), ("a.x", b"3"), ("b.x", b"2"), ("c.x", b"4")]
    ran = run("sort", word, "--skip", "duplicate-entry", "--report", "r.json")
    assert keys(ran.stdout) == "b c"
    assert json.loads(Path("r.json").read_text())["order"] == {"in": 4, "gathered": 0, "left_out": 2, "out": 2}


@each_way
def test_joining(run: Run, archive: Archive, feed: Feed) -> None:
    """Equal keys of two inputs are an error; --allow joins the samples, --skip drops the later one."""
    images = feed(archive(rows("b.jpg a.jpg c.jpg"), "images.tar"))
    labels = feed(archive([("c.cls", b"1"), ("a.cls", b"3"), ("b.cls", b"2"), ("d.cls", b"0")], "labels.tar"))
    ran = run("sort", images, labels, "-o", "no.tar", exit=1)
    assert "[joined-sample]" in ran.stderr
    assert "tarkit cat --rekey" in ran.stderr  # --rekey of sort itself applies after sorting
    assert os.path.basename(labels) in ran.stderr
    assert not os.path.exists("no.tar")
    ran = run("sort", images, labels, "--allow", "joined-sample")
    names = "a.jpg a.cls b.jpg b.cls c.jpg c.cls d.cls"
    assert [name for name, _ in entries(ran.stdout)] == names.split()
    assert ran.stderr == ""
    # fields are selected, and keys changed, after samples are joined
    words = (images, labels, "--match", "[ab]", "--allow", "joined-sample", "-f", "cls x:jpg", "-R", "n{key}")
    assert sorted_to(run, [*words]) == ["na.cls", "na.x", "nb.cls", "nb.x"]
    ran = run("sort", images, feed(archive(rows("x/a.cls x/b.cls"), "other.tar")), "--allow", "joined-sample")
    assert ran.stderr == "tarkit: no sample was joined: no key is in two inputs\n"
    ran = run("sort", labels, images, "--allow", "joined-sample", "-s", "cls", "-t", "int")
    assert [name for name, _ in entries(ran.stdout)] == ["d.cls", "c.cls", "c.jpg", "b.cls", "b.jpg", "a.cls", "a.jpg"]
    ran = run("sort", images, labels, "--skip", "joined-sample", "--report", "r.json")
    assert [name for name, _ in entries(ran.stdout)] == ["a.jpg", "b.jpg", "c.jpg", "d.cls"]
    assert json.loads(Path("r.json").read_text())["order"] == {"in": 7, "gathered": 0, "left_out": 3, "out": 4}
    ran = run("sort", images, images if feed.kind != "pipe" else feed("images.tar"), "--allow", "joined-sample", exit=1)
    assert "[duplicate-entry]" in ran.stderr


@each_way
def test_unmovable_entries(run: Run, archive: Archive, feed: Feed) -> None:
    """A hard link to another sample, and a global header that is not only a comment, are errors."""
    word = feed(archive([("b.x", b"1"), ("a.x", Link("b.x"))]))
    ran = run("sort", word, exit=1)
    assert "'a.x' is a hard link to 'b.x'" in ran.stderr
    assert "[unmovable-entry]" in ran.stderr
    assert sorted_to(run, [word, "--skip", "unmovable-entry"]) == ["b.x"]
    assert sorted_to(run, [word, "--allow", "unmovable-entry"]) == ["a.x", "b.x"]
    word = feed(archive(tar(rows("b.x a.x"), PAX, pax_headers={"mtime": "1"})))
    assert "[unmovable-entry]" in run("sort", word, exit=1).stderr
    word = feed(archive(tar(rows("b.x a.x"), PAX, pax_headers={"comment": "1"})))
    assert sorted_to(run, [word]) == ["a.x", "b.x"]


# ---- options


@each_way
def test_order_file(run: Run, archive: Archive, feed: Feed) -> None:
    """A key that is not in the list is an error."""
    Path("list").write_bytes(b"c\r\nz\n\na")
    word = feed(archive(rows("a.x b.x c.x")))
    ran = run("sort", word, "--order-file", "list", "-o", "no.tar", exit=1)
    assert ran.lines == [
        f"tarkit: {word}: at 1024: 'b' is not in list",
        "hint: add it there, or choose those that are: --keys-from list",
    ]
    assert not os.path.exists("no.tar")
    ran = run("sort", word, "--order-file", "list", "--match", "[ac]")
    assert keys(ran.stdout) == "c a"
    assert "1 of 3 keys were not found" in ran.stderr


@each_way
def test_random(run: Run, archive: Archive, feed: Feed) -> None:
    """`-s __random__` is a shuffle by the seed; scattered samples are an error."""
    members = rows(" ".join(f"{number}.x" for number in range(50)))
    word = feed(archive(members))
    one = run("sort", word, "-s", "__random__", "--seed", "3").stdout
    assert sorted(entries(one)) == sorted(members)
    assert entries(one) != members
    assert run("shuffle", word, "--seed", "3").stdout == one
    scattered = feed(archive(rows("a.x b.x a.y"), "s.tar"))
    assert "[scattered-sample]" in run("sort", scattered, "-s", "__random__", exit=1).stderr


@each_row("way,feed", ways(*WAYS, "little file"))
def test_verbose(way: str, run: Run, archive: Archive, feed: Feed) -> None:
    """-v prints the method, the reason, and the numbers of samples."""
    with machine(way):
        text = run("sort", feed(archive(rows(" ".join(f"{n}.x" for n in range(100))))), "-v", "-o", "o.tar").stderr
    if way == "plenty" and feed.kind == "file":
        assert "fit into free memory" in text
    if way == "little":
        assert "--memory does not hold samples: sorted in runs, in temporary space" in text
    assert "100 samples came in, 0 became parts of others, 0 were left out, and 100 came out" in text


# ---- temporary space


@each_feed
def test_no_space_is_needed_for_samples_that_fit(
    run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary space is not used before memory is full."""
    monkeypatch.setenv("TMPDIR", "none")
    run("sort", feed(archive(rows("b.x a.x"))), "-o", "o.tar")
    assert keys("o.tar") == "a b"


@each_row("feed", [Feed("file"), Feed("pipe")])
def test_many_levels_of_runs(run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs than may be open at once are merged in several steps, with the bytes of their samples."""
    monkeypatch.setattr(memory, "LEAST", 1000)
    monkeypatch.setattr(memory.MEMORY, "at_least", 1000)
    monkeypatch.setattr(limits, "memory", lambda: limits.Memory(0, 0))
    monkeypatch.setattr(runs, "MOST_RUNS", 3)
    monkeypatch.setattr(runs, "BUFFER", 100)
    members = [(f"{number * 7919 % 150:05}.n", b"%d" % (number % 10)) for number in range(150)]
    word = feed(archive(members))
    ran = run("sort", word, "--memory", "20K")
    assert ran.stdout == tar(sorted(members))
    ran = run("sort", word, "--memory", "20K", "-s", "n")
    assert ran.stdout == tar(sorted(members, key=lambda row: row[1]))
