"""Entries to samples: the key rule, entries without a key, damage with every policy, samples larger than memory."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem, TarkitError, respell
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples import reader
from tarkit.samples.groups import EntryGroups, group_entries
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import REMEMBERED, Recent, SampleBatch, TarSample, is_safe, split_name
from tarkit.streams import source as sources
from tarkit.streams.source import FileSource, StreamSource
from tarkit.tar import pax
from tarkit.tar.reader import TarReader
from tarkit.tar.writer import EntryWriter
from tests._tools import MARKER, SOURCES, Chunks, archive, each_row, member, on_disk, stream, with_field
from tests.tar.test_writer import Log

# ---- the key


@each_row(
    ("name", "key", "field"),
    [  # as webdataset splits it
        ("a.jpg", "a", "jpg"),
        ("a.seg.png", "a", "seg.png"),
        ("d/a.jpg", "d/a", "jpg"),
        ("d.1/e.2/f.tar.gz", "d.1/e.2/f", "tar.gz"),
        ("./a.txt", "./a", "txt"),
        ("../a.txt", "../a", "txt"),
        ("x.", "x", ""),
        ("x..y", "x", ".y"),
        ("README", None, None),
        ("a.b/c", None, None),
        ("a/b.c/d", None, None),
        (".hidden", None, None),
        ("a/.hidden", None, None),  # webdataset: the key `a/`, though `.hidden` has none
        ("a/b/.x.y", None, None),
        ("", None, None),
        (".", None, None),
        ("..", None, None),
        ("a/", None, None),
        ("a.b/", None, None),
        ("/a.b", "/a", "b"),
        ("a b.c d", "a b", "c d"),
        ("a\n.b", "a\n", "b"),
    ],
)
def test_split_name(name: str, key: str | None, field: str | None) -> None:
    """The key is the path up to the first dot after the last slash, the field is the rest."""
    expected = None if key is None or field is None else (key.encode(), field.encode())
    assert split_name(name.encode()) == expected


WEBDATASET = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")


@settings(max_examples=30)
@given(st.text("ab./é", max_size=12).map(str.encode))
def test_split_name_is_webdatasets(name: bytes) -> None:
    """The regular expression of webdataset splits names the same way, except names that begin with a dot."""
    match = WEBDATASET.match(name)
    if name.rpartition(b"/")[2].startswith(b"."):
        assert split_name(name) is None
    else:
        assert split_name(name) == (match.groups() if match else None)


@each_row(
    ("name", "safe"),
    [
        (b"a.b", True),
        (b"a/..b/c..", True),
        (b"./a", True),
        (b"...", True),
        (b"/a", False),
        (b"..", False),
        (b"../a", False),
        (b"a/../b", False),
        (b"a/..", False),
        (b"a\0b", False),
    ],
)
def test_is_safe(name: bytes, safe: bool) -> None:
    """Absolute names, `..` as a component and NULs are unsafe."""
    assert is_safe(name) == safe


# ---- grouping


def names(sample: TarSample) -> str:
    """Return the names in a sample, separated by spaces."""
    return " ".join(entry.name.decode() or entry.type.decode() for entry in sample.entries)


def grouped(data: bytes, kind: str = "file", **policy: list[str]) -> list[str]:
    """Return the samples of an archive as `key: names`, and check that each covers its entries without gaps."""
    source = SOURCES[kind](data)
    found, samples = [], SampleReader(source, Policy(**policy))  # type: ignore[arg-type]
    for sample in samples:
        sample.complete()
        assert (sample.start, sample.stop) == (sample.entries[0].start, sample.entries[-1].stop)
        assert source.read(sample.start, sample.stop) == data[sample.start : sample.stop]
        found.append(f"{(sample.key or b'-').decode()}: {names(sample)}")
    return found


def of_names(words: str) -> bytes:
    """Return an archive of entries with these names; those that end with a slash are directories."""
    return b"".join(
        member(name, typeflag=b"5") if name.endswith("/") else member(name, name.encode()) for name in words.split()
    )


@each_row("kind", SOURCES)
@each_row(
    ("words", "samples"),
    [
        ("", []),
        ("a.x", ["a: a.x"]),
        ("a.x a.y b.x b.y", ["a: a.x a.y", "b: b.x b.y"]),
        ("a.y a.x", ["a: a.y a.x"]),
        ("a.x a.X", ["a: a.x a.X"]),
        ("a.x ab.x a.y.z", None),
        ("a.x d/a.x", ["a: a.x", "d/a: d/a.x"]),
        ("a.x a.d/b.x", ["a: a.x", "a.d/b: a.d/b.x"]),
        ("d.1/a.x d.1/a.y", ["d.1/a: d.1/a.x d.1/a.y"]),
        ("a.x a. a..", ["a: a.x a. a.."]),
        # no key: part of the sample around it, else of the next one, at the end of the last one
        ("a.x README a.y", ["a: a.x README a.y"]),
        ("a.x README b.x", ["a: a.x", "b: README b.x"]),
        ("README LICENSE a.x", ["a: README LICENSE a.x"]),
        ("a.x b.x README", ["a: a.x", "b: b.x README"]),
        ("d/ d/a.x d/ e/ e/b.x", ["d/a: d/ d/a.x", "e/b: d/ e/ e/b.x"]),
        ("a.x .hidden a.y d/.hidden b.x", ["a: a.x .hidden a.y", "b: d/.hidden b.x"]),
        ("README", ["-: README"]),
        ("d/ e/ README", ["-: d/ e/ README"]),
        ("a.d/ a.x", ["a: a.d/ a.x"]),
        ("a.x a.d/ a.y", ["a: a.x a.d/ a.y"]),
    ],
)
def test_grouping(words: str, samples: list[str] | None, kind: str) -> None:
    """Consecutive entries with the same key are a sample; every entry is in one sample, with or without a key."""
    data = of_names(words) + MARKER
    if samples is None:
        with pytest.raises(Problem, match="scattered-sample"):
            grouped(data, kind)
    else:
        assert grouped(data, kind) == samples


@each_row("typeflag", ["0", "\0", "7", "2", "3", "4", "6", "Z"])
def test_every_type_but_directories_can_have_a_key(typeflag: str) -> None:
    """A link or a device belongs to the sample of its name, and so does an entry of unknown type."""
    link = with_field(member("a.lnk"), 156, typeflag.encode())
    assert grouped(member("a.x") + link + member("a.y") + MARKER) == ["a: a.x a.lnk a.y"]


@each_row("typeflag", ["5", "D", "V", "A", "E"])
def test_types_without_key(typeflag: str) -> None:
    """Directories, dump directories, labels, and Solaris' lists and attributes have no key, for any name."""
    special = with_field(member("q.x"), 156, typeflag.encode())
    assert grouped(member("a.x") + special + member("b.x") + MARKER) == ["a: a.x", "b: q.x b.x"]
    same = with_field(member("b.x"), 156, typeflag.encode())
    assert grouped(member("a.x") + same + member("b.x") + MARKER) == ["a: a.x", "b: b.x b.x"]


NAMES = st.one_of(
    st.lists(st.sampled_from(["a.x", "a.y", "a.z", "b.x"]), max_size=10),
    st.lists(st.sampled_from(["a.x", "a.y", "b.x", "b.y", "R", "d/", "d/a.x", "l.x"]), max_size=10),
)


def of_words(words: list[str]) -> bytes:
    """Return an archive of entries with these names, where those that begin with `l` are links."""
    return b"".join(with_field(member(word), 156, b"2") if word[0] == "l" else of_names(word) for word in words)


@settings(max_examples=50)
@given(NAMES)
def test_samples_equal_the_reference(words: list[str]) -> None:
    """For any names in any order, samples and problems are those of `group_entries`, from a file and from a stream."""
    data = of_words(words) + MARKER
    expected = list(group_entries(TarReader(on_disk(data)).raw()))
    keys = [key for key, _ in expected]
    fields = [[entry[0] for entry in entries if split_name(entry[0])] for _, entries in expected]
    repeated = sum(key in keys[:at] for at, key in enumerate(keys))
    twice = sum(name in names[:at] for names in fields for at, name in enumerate(names))
    for kind in ("file", "stream"):
        policy = Policy(allow=["scattered-sample", "duplicate-entry"])
        found = [(sample.key, list(sample.entries)) for sample in SampleReader(SOURCES[kind](data), policy)]
        assert found == expected
        assert policy.counts == +Counter({"scattered-sample": repeated, "duplicate-entry": twice})


@settings(max_examples=50)
@given(NAMES, st.lists(st.integers(0, 10), max_size=3), st.integers(0, 4000))
def test_groups_equal_the_reference(words: list[str], stops: list[int], limit: int) -> None:
    """Groups are the same for any pauses of reading and any large samples; `plain` holds for plain samples only."""
    entries = list(TarReader(on_disk(of_words(words) + MARKER)).raw())
    expected = list(group_entries(entries))
    groups, found = EntryGroups(), []
    for start, stop in pairwise([0, *sorted(stops), len(entries)]):
        found += groups.read(entries[start:stop])
    found.append((*groups.finish(), False))
    assert [(key, sample) for key, sample, _ in found if sample] == expected
    for _, sample, plain in found[:-1]:
        good = len({entry[0] for entry in sample}) == len(sample) and all(
            entry[5] == b"0" and split_name(entry[0]) for entry in sample
        )
        assert plain <= good
        assert plain or not good or stops
    rest, pieces = iter(entries), []
    while True:
        pieces += [(key, sample) for key, sample, _ in groups.read(rest, limit)]
        large = groups.size > limit
        pieces.append(groups.take() if large else groups.finish())
        if not large:
            break
    assert [entry for _, sample in pieces for entry in sample] == [entry for _, sample in expected for entry in sample]


def global_header(records: dict[bytes, bytes]) -> bytes:
    """Return a global PAX header."""
    return with_field(member("PaxHeaders/g", pax.format_records(records)), 156, b"g")


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["a.x", "a.y", "b.x", "b.y", "c.x", "README", "d/", "d/a.x", "d/a.y"]), max_size=12),
    st.integers(1, 3000),
)
def test_samples_cover_the_archive(words: list[str], step: int) -> None:
    """All bytes before the end are in exactly one sample, in order, from a file and from a stream."""
    data = of_names(" ".join(words)) + MARKER
    allowed = {"allow": ["scattered-sample", "duplicate-entry"]}
    for source in (on_disk(data), stream(data, step)):
        pos = 0
        for sample in SampleReader(source, Policy(**allowed)):
            assert sample.start == pos
            pos = sample.stop
        assert pos == len(data) - 1024


# ---- problems of samples

DUPLICATE = member("a.x") + member("b.x", b"1") + member("b.x", b"2") + member("c.x")
SCATTERED = of_names("a.x b.x c.x a.y d.x")
LINKED = member("a.x", b"1") + member("a.y", typeflag=b"1", linkname=b"a.x") + member("b.x")
HARD = member("a.x", b"1") + member("b.x", typeflag=b"1", linkname=b"a.x") + member("c.x")
GLOBAL = member("a.x") + global_header({b"mtime": b"1"}) + member("b.x") + member("c.x")
UNSAFE = member("a.x") + member("../b.x") + member("c.x")
CASES = {
    "duplicate-entry": (DUPLICATE, ["a", "b", "c"], ["a", "c"]),
    "scattered-sample": (SCATTERED, ["a", "b", "c", "a", "d"], ["a", "b", "c", "d"]),
    "unmovable-entry": (HARD, ["a", "b", "c"], ["a", "c"]),
}


def keys(data: bytes, kind: str = "file", policy: Policy | None = None, **settings: object) -> list[str]:
    """Return the keys of the samples of an archive."""
    samples = SampleReader(SOURCES[kind](data), policy or Policy(), **settings)  # type: ignore[arg-type]
    found = [(sample.key or b"-").decode() for sample in samples]
    assert samples.dropped == (policy.dropped.total() if policy else 0)
    return found


@each_row("kind", SOURCES)
@each_row("problem", CASES)
def test_policies(problem: str, kind: str) -> None:
    """A problem is an error with its offset and a repair; --allow keeps, --skip and --maxerr drop the sample."""
    data, kept, left = CASES[problem]
    data += MARKER
    with pytest.raises(Problem) as error:
        keys(data, kind)
    assert error.value.name == problem
    repair = respell(PROBLEMS[problem].repair)
    assert error.value.hint == repair or (kind != "file" and (error.value.hint or "").startswith(f"{repair}; if "))
    assert error.value.offset is not None
    assert keys(data, kind, Policy(allow=[problem])) == kept
    warnings: list[str] = []
    policy = Policy(skip=[problem], warn=warnings.append)
    assert keys(data, kind, policy) == left
    assert (policy.dropped, policy.counts) == ({problem: 1}, {problem: 1})
    assert [problem in line for line in warnings] == [True]
    assert keys(data, kind, Policy(maxerr=1)) == left


def test_duplicate_names_in_a_sample() -> None:
    """A duplicate name is found anywhere in the sample, and not across samples."""
    for words in ("a.x a.x", "a.b a.a a.b", "a.a a.b a.a", "a.x R a.x"):
        for more in ("", " z.x"):
            with pytest.raises(Problem, match="duplicate-entry"):
                keys(of_names(words + more) + MARKER)
    assert keys(of_names("d/ a.x d/ a.y R b.x") + MARKER) == ["a", "b"]
    for words in ("R a.x R", "R R a.x", "a.x R R", "a.x R R a.y", ".h a.x .h .h z/.h a.y z/.h"):  # these have no key
        assert keys(of_names(words) + MARKER) == keys(of_names(words) + MARKER, policy=Policy(skip=["all"])) == ["a"]
    assert keys(of_names("a.b a.a a.c a.aa") + MARKER) == ["a"]


def test_unsafe_names() -> None:
    """An unsafe name is a warning; --skip drops the sample, also for an entry without a key."""
    for data, left in ((UNSAFE, ["a", "c"]), (of_names("a.x ../b.y ../b.z c.x"), ["a", "c"])):
        warnings: list[str] = []
        assert len(keys(data + MARKER, policy=Policy(warn=warnings.append))) == 3
        assert len(warnings) == 1
        assert "[unsafe-name]" in warnings[0]
        assert keys(data + MARKER, policy=Policy(skip=["unsafe-name"])) == left
    for stray in ("/etc/passwd", "../README", "x/../y"):
        assert keys(of_names(f"a.x {stray} b.x c.x") + MARKER, policy=Policy(skip=["unsafe-name"])) == ["a", "c"]
    assert keys(of_names("a..x b.x..y ..a/c.x") + MARKER, policy=Policy(skip=["unsafe-name"])) == ["a", "b", "..a/c"]


def test_unmovable_entries() -> None:
    """Hard links to other samples and global headers are problems only if samples move."""
    assert keys(LINKED + MARKER) == ["a", "b"], "a link inside its sample moves with it"
    for data in (HARD, GLOBAL):
        with pytest.raises(Problem, match="unmovable-entry"):
            keys(data + MARKER)
        assert len(keys(data + MARKER, moves=False)) == 3
        assert keys(data + MARKER, policy=Policy(skip=["unmovable-entry"])) == ["a", "c"]
    comment = global_header({b"comment": b"0123"})
    assert keys(comment + of_names("a.x b.x") + MARKER) == ["a", "b"]
    with pytest.raises(Problem, match="unmovable-entry"):
        keys(global_header({b"comment": b"0", b"mtime": b"1"}) + of_names("a.x") + MARKER)


# ---- damage

GOOD = [member(f"{key}.{field}", f"{key}{field}".encode() * 200) for key in "abcd" for field in "xy"]
SIZE = len(GOOD[0])
WHOLE = b"".join(GOOD) + MARKER


def broken(number: int) -> bytes:
    """Return the archive of a, b, c, d with the header of entry `number` damaged."""
    data = bytearray(WHOLE)
    data[number * SIZE + 7] ^= 1
    return bytes(data)


DAMAGE = {  # problem: the archive, the keys (and fields) left by --allow, those left by --skip
    "cut in c.x": ("truncated", WHOLE[: 4 * SIZE + 700], "a: xy b: xy", "a: xy b: xy"),
    "cut before c.x": ("truncated", WHOLE[: 4 * SIZE + 100], "a: xy b: xy", "a: xy"),
    "cut in c.y": ("truncated", WHOLE[: 5 * SIZE + 700], "a: xy b: xy c: x", "a: xy b: xy"),
    "cut in a header": ("truncated", WHOLE[: 5 * SIZE + 100], "a: xy b: xy c: x", "a: xy b: xy"),
    "cut in the first": ("truncated", WHOLE[:100], None, None),  # nothing is left with any policy
    "no marker": ("no-end-marker", WHOLE[:-1024], "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
    "half a marker": ("no-end-marker", WHOLE[:-512], "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
    "cut on a border": ("no-end-marker", WHOLE[: 5 * SIZE], "a: xy b: xy c: x", "a: xy b: xy"),
    "empty": ("no-end-marker", b"", "", ""),
    "bad c.x": ("bad-header", broken(4), "a: xy b: xy c: y d: xy", "a: xy d: xy"),
    "bad c.y": ("bad-header", broken(5), "a: xy b: xy c: x d: xy", "a: xy b: xy"),
    "bad a.x": ("bad-header", broken(0), "a: y b: xy c: xy d: xy", "b: xy c: xy d: xy"),
    "bad d.y": ("bad-header", broken(7), "a: xy b: xy c: xy d: x", "a: xy b: xy c: xy"),
    "no archive": ("bad-header", b"PK" * 5000, None, None),
    "a byte lost": ("truncated", WHOLE[:-1500] + WHOLE[-1499:], "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
    "preallocated": ("zero-filled", WHOLE + bytes((1 << 20) + 512), "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
    "zeros in c.x": (
        "zero-filled",
        WHOLE[: 4 * SIZE + 700] + bytes((2 << 20) + 324),
        "a: xy b: xy c: x",
        "a: xy b: xy",
    ),
    "zeros after c.x": ("zero-filled", WHOLE[: 5 * SIZE] + bytes(2 << 20), "a: xy b: xy c: x", "a: xy b: xy"),
    "zeros alone": ("zero-filled", bytes(10_752), None, None),
    "glued": ("trailing-data", WHOLE + WHOLE.replace(b"d.", b"e."), None, "a: xy b: xy c: xy d: xy"),
    "junk": ("trailing-data", WHOLE + b"junk", None, "a: xy b: xy c: xy d: xy"),
}


def fields(data: bytes, kind: str, policy: Policy) -> str:
    """Return keys with the last letters of their names."""
    samples = SampleReader(SOURCES[kind](data), policy)
    found = [f"{(s.key or b'-').decode()}: {''.join(e.name.decode()[-1] for e in s.entries)}" for s in samples]
    assert samples.zeros is None or len(found) == 4
    return " ".join(found)


@each_row("kind", SOURCES)
@each_row("case", DAMAGE)
def test_damage(case: str, kind: str) -> None:
    """Each damage is an error unless allowed or skipped; the samples that the table of problems promises remain."""
    problem, data, allowed, skipped = DAMAGE[case]
    given: list[str] = []
    with pytest.raises(Problem) as error:
        given += (names(sample) for sample in SampleReader(SOURCES[kind](data), Policy()))
    assert error.value.name == problem
    if allowed is not None:
        assert fields(data, kind, Policy(allow=[problem])) == allowed
    for policy in (Policy(skip=[problem]), Policy(maxerr=9)):
        if skipped is not None:
            assert fields(data, kind, policy) == skipped
            continue
        with pytest.raises(Problem, match=f"no whole entry was found: .*{problem}"):
            fields(data, kind, policy)


@each_row("kind", SOURCES)
def test_concatenated_archives(kind: str) -> None:
    """--allow trailing-data reads the next archive; no sample spans the boundary."""
    more = of_names("d.z e.x")
    for zeros in (1024, 1536, 10_240):
        data = WHOLE[:-1024] + bytes(zeros) + more + MARKER
        policy = Policy(allow=["trailing-data", "scattered-sample"])
        assert keys(data, kind, policy) == ["a", "b", "c", "d", "d", "e"]
    with pytest.raises(Problem, match="scattered-sample"):
        keys(data, kind, Policy(allow=["trailing-data"]))


@each_row("kind", SOURCES)
def test_many_zeros_before_another_archive(kind: str) -> None:
    """Zeros of more than 1 MiB before other data are a problem of their own, and touch the samples on both sides."""
    data = WHOLE + bytes(2 << 20) + of_names("e.x e.y f.x f.y") + MARKER
    with pytest.raises(Problem, match="zero-filled"):
        keys(data, kind, Policy(allow=["trailing-data"]))
    assert keys(data, kind, Policy(allow=["trailing-data", "zero-filled"])) == ["a", "b", "c", "d", "e", "f"]
    samples = SampleReader(SOURCES[kind](data), Policy(allow=["trailing-data"], skip=["zero-filled"]))
    assert [sample.key for sample in samples] == [b"a", b"b", b"c", b"f"]


@each_row("kind", SOURCES)
def test_concatenated_v7_archives(kind: str) -> None:
    """V7 entries are read by the slow path, before and after the boundary."""
    old = b"".join(with_field(member(name, b"v7"), 156, b"\0") for name in ("e.x", "e.y", "f.x", "f.y"))
    assert keys(WHOLE + old + MARKER, kind, Policy(allow=["trailing-data"])) == ["a", "b", "c", "d", "e", "f"]


def test_zeros() -> None:
    """The number of zeros at the end is known for an archive that was read without loss, and for no other."""
    for data, policy, zeros in (
        (WHOLE, Policy(), 1024),
        (WHOLE + bytes(9216), Policy(), 10_240),
        (WHOLE[:-1024], Policy(allow=["all"]), None),
        (broken(4), Policy(skip=["all"]), None),
        (SCATTERED + MARKER, Policy(skip=["all"]), None),
        (SCATTERED + MARKER, Policy(allow=["all"]), 1024),
    ):
        for kind in SOURCES:
            samples = SampleReader(SOURCES[kind](data), policy)
            list(samples)
            assert samples.zeros == zeros


@each_row("problem", ["truncated", "bad-data"])
@each_row(
    ("end", "allowed", "skipped"),
    [
        (len(WHOLE), "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy d: xy"),
        (len(WHOLE) - 100, "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
        (len(WHOLE) - 1024, "a: xy b: xy c: xy d: xy", "a: xy b: xy c: xy"),
        (5 * SIZE + 700, "a: xy b: xy c: x", "a: xy b: xy"),
        (0, None, None),
    ],
)
def test_a_stream_that_fails(end: int, allowed: str | None, skipped: str | None, problem: str) -> None:
    """If decompression fails, its error is reported, not its effect on the archive; earlier samples are returned."""
    failure = Problem(problem, "x.tar.gz", None, "why")

    def source() -> StreamSource:
        return stream(WHOLE[:end], error=failure)

    with pytest.raises(Problem) as error:
        list(SampleReader(source(), Policy()))
    assert error.value is failure
    for policy, left in ((Policy(allow=[problem]), allowed), (Policy(skip=[problem]), skipped)):
        if problem == "bad-data" and policy.skipped and end == len(WHOLE):  # the last one may be wrong
            left = "a: xy b: xy c: xy"
        if left is None:
            with pytest.raises(Problem, match=f"no whole entry was found: why .{problem}"):
                list(SampleReader(source(), policy))
            continue
        found = [
            f"{s.key.decode()}: {''.join(e.name.decode()[-1] for e in s.entries)}"
            for s in SampleReader(source(), policy)
            if s.key
        ]
        assert " ".join(found) == left


@each_row("kind", SOURCES)
@each_row("problem_is", ["allow", "skip"])
def test_global_headers_apply_after_damage(kind: str, problem_is: str) -> None:
    """A global PAX header applies to entries after a damaged header as well."""
    entries = [with_field(member(f"{key}.x", bytes(700)), 124, b"%011o" % 0) for key in "abcde"]
    entries[1] = b"?" + entries[1][1:]
    data = global_header({b"size": b"700"}) + b"".join(entries) + MARKER
    samples = SampleReader(SOURCES[kind](data), Policy(**{problem_is: ["bad-header"]}), moves=False)
    found = [(entry.name, entry.size) for sample in samples for entry in sample.entries if entry.name]
    kept = {"allow": "acde", "skip": "de"}[problem_is]
    assert found == [(f"{key}.x".encode(), 700) for key in kept]


@each_row("kind", SOURCES)
def test_a_bad_global_header_does_not_apply(kind: str) -> None:
    """A global PAX header with a record that is not valid is one problem, and applies to no entry of any form."""
    bad = global_header({b"path": b"z.x", b"size": b"x"})
    long = with_field(member("././@LongLink", b"c.x\0"), 156, b"L") + member("c.x", b"3", typeflag=b"7")
    data = member("a.x") + bad + member("b.x") + long + member("d.x") + MARKER
    policy = Policy(allow=["bad-header"])
    found = [entry.name for sample in SampleReader(SOURCES[kind](data), policy) for entry in sample.entries]
    assert found == [b"a.x", b"b.x", b"c.x", b"d.x"]
    assert policy.counts == {"bad-header": 1}


def test_maxerr_runs_out() -> None:
    """--maxerr problems are skipped, and the next one is an error."""
    data = bytearray(WHOLE)
    for number in (0, 4):
        data[number * SIZE + 7] ^= 1
    assert fields(bytes(data), "file", Policy(maxerr=2)) == "d: xy"
    with pytest.raises(Problem, match="bad-header"):
        fields(bytes(data), "file", Policy(maxerr=1))


@settings(max_examples=30)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.booleans())
def test_no_sample_is_lost_silently(at: int, flip: int, file: bool) -> None:
    """With any damaged byte there are all samples or an error; with --skip all, only samples of the archive."""
    data = bytearray(WHOLE)
    data[at] ^= flip
    make: Callable[[bytes], FileSource | StreamSource] = on_disk if file else stream
    try:
        assert len(list(SampleReader(make(bytes(data)), Policy()))) == 4
    except Problem:
        found = [names(sample) for sample in SampleReader(make(bytes(data)), Policy(skip=["all"]))]
        assert set(found) <= {f"{key}.x {key}.y" for key in "abcd"}
        assert len(found) >= 2


# ---- larger than memory


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and samples of kilobytes, which behave as those of megabytes."""
    shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Shrink windows and samples; the fixture `small` does it for one test."""
    patch.setattr(reader, "LARGE", 8192)
    patch.setattr(sources, "CHUNK", 2048)
    patch.setattr(sources, "HELD", 4096)


def test_large(small: None) -> None:
    """A large sample of a stream is returned before its end is known, and written as it arrives."""
    data = archive([("a.0", b"s"), *((f"b.{n}", bytes([n]) * 3000) for n in range(9)), ("c.0", b"s")])
    sizes = []
    sink = Log()
    with EntryWriter(sink) as writer:
        for sample in SampleReader(stream(data, 700), Policy()):
            sizes.append((sample.key, len(sample.entries), sample.more is not None))
            sample.write(writer)
            assert sample.more is None
        writer.finish(1024)
    assert sink.data == data
    assert sizes == [(b"a", 1, False), (b"b", 3, True), (b"c", 1, False)]
    assert [s.more for s in SampleReader(on_disk(data), Policy())] == [None] * 3, "samples of a file are complete"


def test_large_with_strays_at_its_end(small: None) -> None:
    """Entries without a key in and after a large sample belong to it, or to the next."""
    big = [(f"b.{n}", bytes(4000)) for n in range(5)]
    for pairs, expected in (
        ([*big, ("README", b"r")], ["b: 6"]),
        ([*big, ("README", b"r"), ("b.z", b"z")], ["b: 7"]),
        ([*big, ("README", b"r"), ("c.z", b"z")], ["b: 5", "c: 2"]),
    ):
        found = []
        for sample in SampleReader(stream(archive(pairs), 700), Policy()):
            sample.complete()
            found.append(f"{sample.key.decode() if sample.key else '-'}: {len(sample.entries)}")
        assert found == expected


@pytest.mark.parametrize("cut", [-1, 1, 3000, 9000, 20_000])
def test_large_and_cut(cut: int, small: None) -> None:
    """A cut large sample raises while it is written, so that the output is not taken for complete."""
    data = archive([("a.0", b"s"), *((f"b.{n}", bytes([n]) * 3000) for n in range(9))])
    sink = Log()

    def copy() -> None:
        with EntryWriter(sink) as writer:
            for sample in SampleReader(stream(data[: len(data) - 1024 - cut], 700), Policy()):
                sample.write(writer)

    with pytest.raises(Problem, match=r"truncated|no-end-marker"):
        copy()
    assert sink.calls[-1] == "abort"


def test_one_huge_entry(small: None) -> None:
    """A single entry larger than all windows is copied without being kept."""
    data = archive([("a.0", bytes(100_000)), ("b.0", b"s"), ("c.0", bytes(50_000))])
    source = stream(data, 700)
    sink = Log()
    with EntryWriter(sink) as writer:
        for sample in SampleReader(source, Policy()):
            sample.write(writer)
        writer.finish(1024)
    assert sink.data == data
    assert len(source._view) <= 8192
    assert source._overflow is None


LONG = {
    "many samples": archive((f"{number:04}.x", bytes(300)) for number in range(400)),
    "many entries": archive([("a.0", b"s"), *((f"b.{n}", bytes(3000)) for n in range(99)), ("c.0", b"s")]),
    "small entries": archive([("a.0", b"s"), *((f"b.{n}", b"") for n in range(600)), ("c.0", b"s")]),
    "large entries": archive([("a.0", b"s"), *((f"b.{n}", bytes(10_000)) for n in range(40)), ("c.0", b"s")]),
    "damage": archive({"a.0": b"s"}, b"") + b"x" * 300_032 + archive({f"{n}.0": bytes(900) for n in range(99)}),
    "much damage": member("a.0")
    + 600 * with_field(member("b.0"), 124, b"?")
    + archive({f"{n}.0": b"" for n in range(9)}),
}


@each_row("kind", LONG)
@each_row(("act", "step"), [("write", 700), ("leave", 1 << 20)])
def test_used_samples_are_released(kind: str, act: str, step: int) -> None:
    """Samples of a stream that are written, ignored or skipped do not go to temporary space."""
    with pytest.MonkeyPatch.context() as patch:
        read_without_spooling(kind, act, step, patch)


def read_without_spooling(kind: str, act: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all samples, and check that none is spooled."""
    shrink(monkeypatch)
    monkeypatch.setattr(sources, "HELD", 1 << 16)
    monkeypatch.setattr(sources, "TemporaryFile", lambda *_: pytest.fail("the sample was spooled"))
    source, count = stream(LONG[kind], step), 0
    policy = Policy(skip=["bad-header"]) if "damage" in kind else Policy()
    for sample in SampleReader(source, policy):
        count += 1
        if act == "write":
            sample.write(EntryWriter(Log()))
    assert count >= 3
    assert len(source._view) <= 1 << 17


Act = str


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9000), min_size=1, max_size=6), st.sampled_from("wcsp")), max_size=8),
    st.integers(200, 5000),
    st.booleans(),
)
def test_any_use_of_samples(plan: list[tuple[list[int], Act]], step: int, lenient: bool) -> None:
    """Any use of samples (written, completed first, or ignored) leaves the bytes of the others correct.

    The stream arrives in pieces of `step` bytes, with windows of a few kilobytes; a lenient policy makes it read ahead.
    """
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        entries = [
            [member(f"{number}.{field}", bytes([number * 16 + field]) * size) for field, size in enumerate(sizes)]
            for number, (sizes, _) in enumerate(plan)
        ]
        data = b"".join(map(b"".join, entries)) + MARKER
        sink = Log()
        policy = Policy(skip=["truncated"] if lenient else [])
        writer = EntryWriter(sink)
        for number, sample in enumerate(SampleReader(StreamSource(Chunks(data, step), "x.tar"), policy)):
            act = plan[number][1]
            if act in "cp":
                sample.complete()
            if act == "p":
                assert sample.source.read(sample.start, sample.stop) == b"".join(entries[number])
            if act in "wc":
                sample.write(writer)
        writer.finish(0)
        assert sink.data == b"".join(
            b"".join(each) for each, (_, act) in zip(entries, plan, strict=True) if act in "wc"
        )


# ---- remembered keys


def test_recent() -> None:
    """The most recent keys are known, earlier ones are forgotten, and memory stays bounded."""
    recent = Recent(3)
    assert [recent.add(key) for key in (b"a", b"b", b"a", b"c", b"a")] == [False, False, True, False, True]
    assert not recent.add(b"d")
    assert recent.add(b"b"), "a, b, c, d: the last three are known"
    assert not recent.add(b"a"), "a, the oldest, is forgotten"
    assert not any(recent.add(b"%d" % number) for number in range(1000))
    assert [recent.add(b"%d" % number) for number in (997, 998, 999)] == [True] * 3
    assert not recent.add(b"996")


@each_row("ascending", [True, False])
def test_repeated_keys_within_the_bound(ascending: bool) -> None:
    """At least the last 200 000 keys of an input are remembered, in bounded memory; here 2000."""
    assert Recent()._order.maxlen == REMEMBERED >= 200_000
    order = range(2500) if ascending else [*range(1, 2500), 0]
    recent = Recent(2000)
    assert not any(recent.add(b"%04d.x" % number) for number in order)
    assert recent.add(b"0500.x" if ascending else b"0501.x")
    assert not recent.add(b"0499.x"), "older keys may be forgotten"


@each_row("seed", range(100))
def test_recent_runs(seed: int) -> None:
    """Keys of a run are known or new as one by one; if one is known none is remembered."""
    pick = random.Random(seed)
    limit = pick.choice([8, 20, None])
    one, several = Recent(limit), Recent(limit)
    begin = 0
    for _ in range(60):
        begin += pick.choice([0, 5, 5, 5, 5, 5, 2, -30 * (seed % 3)])
        keys = [b"%05d" % (500 + begin + number) for number in range(pick.randint(1, 5))]
        if pick.getrandbits(2) == 0:
            pick.shuffle(keys)
        if pick.getrandbits(3) == 0:
            keys.append(keys[0])
        numbers = [*map(hash, keys)]
        free = len(set(numbers)) == len(numbers) and not set(numbers) & set(one._order)
        assert several.extend(keys) == free
        found = [one.add(key) for key in keys]
        if free:
            assert not any(found)
        else:
            assert found == [several.add(key) for key in keys]
        assert one._order == several._order
        assert several._seen in (None, set(one._order))


def test_samples_of_a_file_stay_readable() -> None:
    """Samples of a file stay readable; in a stream the previous sample is released."""
    kept = list(SampleReader(on_disk(WHOLE), Policy()))
    assert b"".join(s.source.read(s.start, s.stop) for s in reversed(kept)) == b"".join(
        WHOLE[s.start : s.stop] for s in reversed(kept)
    )


EIGHT = b"".join(member(f"{number}.{field}", b"x") for number in range(8) for field in "ab")


def dented(*entries: int) -> bytes:
    """Return the archive with damage in the headers of entries."""
    data = bytearray(EIGHT)
    for entry in entries:
        data[entry * 1024] ^= 1
    return bytes(data)


@each_row(
    ("data", "problem", "left_out"),
    [
        (dented(7) + MARKER, "bad-header", ["3", "4"]),
        (dented(6) + MARKER, "bad-header", ["2", "3"]),
        (dented(7, 9) + MARKER, "bad-header", ["3", "4", "5"]),
        (dented(15)[:-100], "bad-header", ["7"]),
        (EIGHT[:-100], "truncated", ["7"]),
        (EIGHT, "no-end-marker", ["7"]),
    ],
)
def test_each_sample_that_is_left_out_is_named(data: bytes, problem: str, left_out: list[str]) -> None:
    """With --skip a line names each sample that damage may have touched, once, and it is counted."""
    for opened in (on_disk, stream):
        for batches in (False, True):
            policy, said = Policy(skip=[problem]), list[str]()
            policy.warn = said.append
            reading, kept = SampleReader(opened(data), policy), set[str]()
            for batch in reading.batches() if batches else reading:
                kept.update(key.decode() for key in batch.keys if key)
            assert sorted({str(number) for number in range(8)} - kept) == left_out
            assert [line.split("'")[1] for line in said if "the sample" in line] == left_out
            assert reading.dropped == len(left_out)


@each_row("seed", range(60))
def test_a_sample_is_left_out_once_for_any_damage(seed: int) -> None:
    """However many headers of a sample are damaged, it is named and counted once, if any entry of it is whole."""
    draw = random.Random(seed)
    members = [f"{key}.{field}" for key in range(5) for field in "abcdef"[: draw.randint(1, 6)]]
    damaged = set(draw.sample(range(len(members)), draw.randint(1, 6)))
    data = bytearray(b"".join(member(name, b"x") for name in members) + MARKER)
    for entry in damaged:
        data[entry * 1024] ^= 1
    there = {name.split(".")[0] for number, name in enumerate(members) if number not in damaged}
    for opened in (on_disk, stream):
        policy, said = Policy(skip=["bad-header"]), list[str]()
        policy.warn = said.append
        reading = SampleReader(opened(bytes(data)), policy)
        kept = {sample.key.decode() for sample in reading if sample.key}
        named = [line.split("'")[1] for line in said if "the sample" in line]
        assert sorted(named) == sorted(there - kept)
        assert reading.dropped == len(there - kept)


@each_row("policy", ["skip", "allow"])
def test_the_rest_that_is_left_out_is_named(policy: str) -> None:
    """Where no header follows the damage, a line says how many bytes are not read."""
    for opened in (on_disk, stream):
        said: list[str] = []
        passing = Policy(**{policy: ["bad-header"]}, warn=said.append)
        list(SampleReader(opened(EIGHT + b"x" * 3000), passing))
        assert said[-1] == f"x.tar: at {len(EIGHT)}: no valid header follows: the rest, 3000 bytes, is left out"


def test_a_batch_whose_headers_are_gone(tmp_path: Path) -> None:
    """Zeros in place of headers, when these are read again, are an error, and not an end."""
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(member(f"{number}.x", b"1") for number in range(9)) + MARKER)
    found = next(SampleReader(FileSource(os.open(path, os.O_RDONLY), "x.tar"), Policy()).batches())

    def again() -> list[object]:
        keys, source = [key or b"" for key in found.keys], FileSource(os.open(path, os.O_RDONLY), "x.tar")
        return [sample.entries for sample in SampleBatch(source, found.start, keys, found.stops)]

    assert again() == [sample.entries for sample in found]
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(TarkitError, match=re.escape("x.tar: the file was changed while it was read")):
        again()
