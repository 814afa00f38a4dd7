"""Entries to samples: the key rule, entries without a key, damage with every policy, samples larger than memory."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem, TarkitError
from tarkit.problems import Policy
from tarkit.samples import reader
from tarkit.samples.groups import group_entries
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import REMEMBERED, Recent, SampleBatch, TarSample, split_name
from tarkit.streams import source as sources
from tarkit.streams.source import FileSource, StreamSource
from tarkit.tar import pax
from tarkit.tar.reader import TarReader
from tarkit.tar.writer import EntryWriter
from tests._tools import MARKER, SOURCES, Chunks, Log, archive, each_row, member, on_disk, stream, with_field

# ---- the key


WEBDATASET = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")


@settings(max_examples=200)
@given(st.text("ab./é ", max_size=12).map(str.encode))
def test_split_name_is_webdatasets(name: bytes) -> None:
    """The regular expression of webdataset splits names the same way, except names that begin with a dot."""
    match = WEBDATASET.match(name)
    if name.rpartition(b"/")[2].startswith(b"."):
        assert split_name(name) is None
    else:
        assert split_name(name) == (match.groups() if match else None)


# ---- grouping


def names(sample: TarSample) -> str:
    return " ".join(entry.name.decode() or entry.type.decode() for entry in sample.entries)


def grouped(data: bytes) -> list[str]:
    """Return the samples of an archive as `key: names`, and check that each covers its entries without gaps."""
    source, found = on_disk(data), []
    for sample in SampleReader(source, Policy()):
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


def global_header(records: dict[bytes, bytes]) -> bytes:
    return with_field(member("PaxHeaders/g", pax.format_records(records)), 156, b"g")


# ---- damage

GOOD = [member(f"{key}.{field}", f"{key}{field}".encode() * 200) for key in "abcd" for field in "xy"]
SIZE = len(GOOD[0])
WHOLE = b"".join(GOOD) + MARKER
MORE = of_names("e.x e.y f.x") + MARKER
GAP = WHOLE + bytes(2 << 20)
V7 = b"".join(with_field(member(name, b"v7"), 156, b"\0") for name in ("e.x", "e.y", "f.x")) + MARKER


DAMAGE = {  # problem: the archive, the keys (and fields) left by --allow, those left by --skip
    "a byte lost": ("truncated", WHOLE[:-1500] + WHOLE[-1499:], "a:xy b:xy c:xy d:xy", "a:xy b:xy c:xy"),
    "preallocated": ("zero-filled", WHOLE + bytes((1 << 20) + 512), "a:xy b:xy c:xy d:xy", "a:xy b:xy c:xy"),
    "zeros in c.x": ("zero-filled", WHOLE[: 4 * SIZE + 700] + bytes((2 << 20) + 324), "a:xy b:xy c:x", "a:xy b:xy"),
    "zeros after c.x": ("zero-filled", WHOLE[: 5 * SIZE] + bytes(2 << 20), "a:xy b:xy c:x", "a:xy b:xy"),
    "zeros between": ("zero-filled", GAP + MORE, "a:xy b:xy c:xy d:xy e:xy f:x", "a:xy b:xy c:xy f:x"),
    "glued": ("trailing-data", WHOLE + MORE, "a:xy b:xy c:xy d:xy e:xy f:x", "a:xy b:xy c:xy d:xy"),
    "glued, as V7": ("trailing-data", WHOLE + V7, "a:xy b:xy c:xy d:xy e:xy f:x", "a:xy b:xy c:xy d:xy"),
}  # fmt: skip


@each_row("kind", SOURCES)
@each_row(("problem", "data", "allowed", "skipped"), DAMAGE.values())
def test_damage(problem: str, data: bytes, allowed: str, skipped: str, kind: str) -> None:
    """Lost bytes, long zeros and other archives are an error unless allowed or skipped; see also tests/commands."""

    def fields(**policy: list[str]) -> str:
        samples = SampleReader(SOURCES[kind](data), Policy(**policy))  # type: ignore[arg-type]
        return " ".join(
            f"{(s.key or b'-').decode()}:{''.join(e.name.decode()[-1] for e in s.entries)}" for s in samples
        )

    others = [name for name in ("trailing-data", "zero-filled") if name != problem]
    with pytest.raises(Problem) as error:
        fields(allow=others)
    assert error.value.name == problem
    assert fields(allow=[problem, *others]) == allowed
    assert fields(allow=others, skip=[problem]) == skipped


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


@contextmanager
def small() -> Iterator[pytest.MonkeyPatch]:
    """Shrink windows and samples to kilobytes, which behave as those of megabytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "LARGE", 8192)
        patch.setattr(sources, "CHUNK", 2048)
        patch.setattr(sources, "HELD", 4096)
        yield patch


@each_row("cut", [-1, 1, 3000, 9000, 20_000])
def test_large_and_cut(cut: int) -> None:
    """A cut large sample raises while it is written, so that the output is not taken for complete."""
    data = archive([("a.0", b"s"), *((f"b.{n}", bytes([n]) * 3000) for n in range(9))])
    sink = Log()

    def copy() -> None:
        with EntryWriter(sink) as writer:
            for sample in SampleReader(stream(data[: len(data) - 1024 - cut], 700), Policy()):
                sample.write(writer)

    with small(), pytest.raises(Problem, match=r"truncated|no-end-marker"):
        copy()
    assert sink.calls[-1] == "abort"


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
    with small() as patch:
        patch.setattr(sources, "HELD", 1 << 16)
        patch.setattr(sources, "TemporaryFile", lambda *_: pytest.fail("the sample was spooled"))
        source, count = stream(LONG[kind], step), 0
        policy = Policy(skip=["bad-header"]) if "damage" in kind else Policy()
        for sample in SampleReader(source, policy):
            count += 1
            if act == "write":
                sample.write(EntryWriter(Log()))
    assert count >= 3


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
    with small():
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


@each_row("seed", range(100))
def test_recent_keys(seed: int) -> None:
    """Just the last `limit` keys are known; those of a batch are all new, or none of them is remembered."""
    draw = random.Random(seed)
    limit = draw.choice([8, 20, REMEMBERED])
    recent, model, begin = Recent(limit), list[bytes](), 500
    assert REMEMBERED >= 200_000
    for _ in range(60):
        begin += draw.choice([0, 5, 5, 5, 5, 5, 2, -30 * (seed % 3)])  # ascending for every third seed
        keys = [b"%05d" % (begin + number) for number in range(draw.randint(1, 5))]
        keys = draw.sample(keys, len(keys)) if draw.random() < 0.25 else keys
        keys += keys[:1] if draw.random() < 0.125 else []
        if draw.random() < 0.5:
            new = len({*keys}) == len(keys) and {*keys}.isdisjoint(model[-limit:])
            assert recent.extend(keys) == new
            model += keys if new else []
            continue
        for key in keys:
            known = key in model[-limit:]
            assert recent.add(key) == known
            model += [] if known else [key]


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


@each_row("kind", SOURCES)
def test_an_entry_before_any_damage_is_an_entry(kind: str) -> None:
    """An archive with one whole entry is one, though no other is whole, however often reading begins again."""
    bad, long = b"x" * 512, with_field(member("././@LongLink", b"long\0"), 156, b"L")
    data = member("a.x") + bad + long + bad + member("b.x", bytes(600))[:700]
    assert [sample.key for sample in SampleReader(SOURCES[kind](data), Policy(allow=["all"]))] == [b"a"]


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
