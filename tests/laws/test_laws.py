"""Laws that hold for any archive: hypothesis generates small ones and searches for a counterexample."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import shlex
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import GNU, PAX, USTAR, Content, Link, Ran, body, entries, tar, tarkit

Members = list[tuple[str, Content]]

laws = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])

KEYS = ["a", "b", "a/b", "d.1/e", "é", "\udce9", "n" * 99, "p" * 60 + "/" + "q" * 60, "x" * 130, "__k__", "c d", "0"]
FIELDS = ["jpg", "JPG", "seg.png", "cls", "", "x" * 110]
SIZES = [0, 1, 511, 512, 513, 1024, 3000]
STRAYS = ["README", "d/.hidden", ".x", "d/e"]


@st.composite
def samples(draw: st.DrawFn, at_least: int = 0) -> Members:
    """Samples of different keys, each with different fields, and sometimes a link."""
    rows: Members = []
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, min_size=at_least, max_size=6)):
        first = f"{key}.{draw(st.sampled_from(FIELDS))}"
        names = dict.fromkeys(
            [first, *(f"{key}.{field}" for field in draw(st.lists(st.sampled_from(FIELDS), max_size=3)))]
        )
        rows += [(name, bytes([len(name)]) * draw(st.sampled_from(SIZES))) for name in names]
        if draw(st.integers(0, 5)) == 0:
            rows.append((f"{key}.link", Link(first, draw(st.sampled_from([b"1", b"2"])))))
    return rows


@st.composite
def archives(draw: st.DrawFn, at_least: int = 0) -> bytes:
    """An archive of samples, stray entries and directories, in any suitable format, with any length of its end."""
    rows = draw(samples(at_least))
    for stray in draw(st.lists(st.sampled_from(STRAYS), unique=True, max_size=2)):
        rows.insert(draw(st.integers(0, len(rows))), (stray, draw(st.sampled_from([None, b"note"]))))
    long = any(len(os.fsencode(name)) > 100 for name, _ in rows)
    data = body(tar(rows, draw(st.sampled_from([GNU, PAX] if long else [USTAR, GNU, PAX]))))
    return data + bytes(draw(st.sampled_from([1024, 1536, 10240, 1024 + -(len(data) + 1024) % 10240])))


def ended(data: bytes) -> bytes:
    """Return entries with the end that tarkit gives an archive."""
    return data + bytes(1024 + -(len(data) + 1024) % 10240)


def grouped(rows: Members) -> list[tuple[str | None, Members]]:
    """Group entries by key; those without a key belong to the next sample, at the end to the last."""

    def key(name: str) -> str | None:
        directory, slash, base = name.rpartition("/")
        return None if base.find(".") < 1 else directory + slash + base.partition(".")[0]

    groups: list[tuple[str | None, Members]] = []
    waiting: Members = []
    for row in rows:
        if row[1] is None or key(row[0]) is None:
            waiting.append(row)
        elif groups and groups[-1][0] == key(row[0]):
            groups[-1][1].extend([*waiting, row])
            waiting = []
        else:
            groups.append((key(row[0]), [*waiting, row]))
            waiting = []
    if waiting and groups:
        groups[-1][1].extend(waiting)
    return groups


def flat(groups: list[tuple[str | None, Members]]) -> Members:
    return [row for _, rows in groups for row in rows]


@contextmanager
def stored(data: bytes) -> Iterator[tuple[Path, list[str]]]:
    """Make a directory with this archive; yield it and the inputs: a file, and a compressed file, read as a stream."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "in.tar").write_bytes(data)
        (directory / "in.tar.gz").write_bytes(gzip.compress(data, 1))
        yield directory, [f"{directory}/in.tar", f"{directory}/in.tar.gz"]


def piped(data: bytes) -> int:
    """Return a pipe with these bytes and an end."""
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as pipe:
        if len(data) > 65536:
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        pipe.write(data)
    return read


def shards(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("out-*"))]


@laws
@given(archives())
def test_cat_changes_nothing(data: bytes) -> None:
    """cat(x) = x."""
    with stored(data) as (_, words):
        for word in words:
            assert tarkit("cat", word).stdout == data
    pipe = piped(data)
    assert tarkit("cat", stdin=pipe).stdout == data
    os.close(pipe)


@laws
@given(archives(at_least=1), st.sampled_from(["-c 1", "-c 2", "-s 1K", "-s 10240", "-s 20K", "-n 1", "-c 3 -s 20480"]))
def test_shards_together_are_the_archive(data: bytes, limits: str) -> None:
    """cat(split(x)) has the entries of x to the last byte, from any feed."""
    with stored(data) as (directory, words):
        made = []
        for word in words:
            tarkit("split", word, *limits.split(), "-o", f"{directory}/out-%03d.tar", "--force")
            assert tarkit("cat", f"{directory}/out-*.tar").stdout == ended(body(data))
            made.append(shards(directory))
        assert made[0] == made[1]
        assert b"".join(map(body, made[0])) == body(data)


@laws
@given(archives(at_least=2), st.integers(1, 4), st.integers(1, 5))
def test_shards_are_as_full_as_the_limits_allow(data: bytes, count: int, records: int) -> None:
    """No shard exceeds a limit, unless it is one sample; the first sample of the next shard would exceed it."""
    with stored(data) as (directory, words):
        tarkit("split", words[0], "-c", str(count), "-s", str(records * 10240), "-o", f"{directory}/out-%03d.tar")
        made = shards(directory)
        groups = [grouped(entries(shard)) for shard in made]
        assert flat([group for each in groups for group in each]) == entries(data)
        for number, shard in enumerate(made):
            assert 1 <= len(groups[number]) <= count
            assert len(shard) == len(ended(body(shard)))
            assert len(shard) <= records * 10240 or len(groups[number]) == 1
            if number + 1 < len(made) and len(groups[number]) < count:
                following = len(flat(groups[number + 1][:1]))
                with tarfile.open(fileobj=io.BytesIO(made[number + 1]), encoding="utf-8") as file:
                    last = file.getmembers()[following - 1]
                more = bytes(last.offset_data + -(-last.size // 512) * 512)
                assert len(ended(body(shard) + more)) > records * 10240


@laws
@given(archives(), archives(), st.sampled_from(["1", "3"]))
def test_cat_of_two(one: bytes, two: bytes, parallel: str) -> None:
    """cat(x, y) has the entries of x, then those of y."""
    with stored(one) as (_, first), stored(two) as (_, second):
        options = ["--allow", "repeated-key,joined-sample,duplicate-entry"]
        expected = ended(body(one) + body(two))
        for words in zip(first, second, strict=True):
            assert tarkit("cat", *words, *options, "-p", parallel).stdout == expected


@pytest.mark.slow
@laws
@given(archives(), st.integers(-99, 99), st.integers(0, 3))
def test_full_shuffle(data: bytes, seed: int, count: int) -> None:
    """A full shuffle keeps all samples, and puts entries without a key first; sort(shuffle(x)) = sort(x)."""
    with stored(data) as (directory, words):
        outs = {tarkit("shuffle", word, "--seed", str(seed)).stdout for word in words}
        assert len(outs) == 1
        (directory / "out.tar").write_bytes(outs.pop())
        out = entries(directory / "out.tar")
        assert sorted(map(str, out)) == sorted(map(str, entries(data)))
        groups = [without_edges(rows) for _, rows in grouped(entries(data))]
        assert all(out[(at := out.index(rows[0])) : at + len(rows)] == rows for rows in groups)
        inside = flat([(None, rows) for rows in groups])
        strays = [row for row in entries(data) if row not in inside]
        assert out[: len(strays)] == strays
        assert tarkit("sort", directory / "out.tar").stdout == tarkit("sort", words[0]).stdout
        if count:
            tarkit("shuffle", words[1], "--seed", str(seed), "-c", str(count), "-o", directory / "out-%d.tar", "-q")
            parts = [path.read_bytes() for path in sorted(directory.glob("out-*"))]
            assert [row for part in parts for row in entries(part)] == (out if groups else [])


def without_edges(rows: Members) -> Members:
    """Return a sample without the entries before and after it that have no key."""
    keyed = [index for index, row in enumerate(rows) if grouped([row])]
    return rows[keyed[0] : keyed[-1] + 1]


# ---- damage


def checked_output(ran: Ran) -> Members | None:
    """Return the output of a run that succeeded; None after an error, which is one line."""
    if ran.status == 0:
        return entries(ran.stdout)
    assert ran.status == 1
    assert ran.lines[0].startswith("tarkit: ")
    assert ran.lines[0].endswith("]")
    return None


def first_stop(archive: bytes) -> int:
    """Return the archive up to the end of its first entry; all of an archive without entries."""
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8") as file:
        stops = (info.offset_data + info.size for info in file)
        return next((stop + -stop % 512 for stop in stops), len(archive))


@laws
@given(archives(), st.data())
def test_a_cut_is_always_noticed(data: bytes, more: st.DataObject) -> None:
    """An archive that was cut before its end is an error; with --skip the output has whole samples of it."""
    stop = len(body(data)) + 1024
    cut = more.draw(st.integers(0, stop - 1))
    groups = grouped(entries(data))
    with stored(data[:cut]) as (_, words):
        pipe = piped(data[:cut])
        assert checked_output(tarkit("cat", stdin=pipe, exit=None)) is None
        os.close(pipe)
        assert checked_output(tarkit("cat", words[0], exit=None)) is None
        rans = [tarkit("cat", word, "--skip", "truncated,no-end-marker", exit=None) for word in words]
        [(status, given)] = {(ran.status, ran.stdout) for ran in rans}
        assert (status == 1) == (0 < cut < first_stop(data))  # bytes, but no whole entry
        if status:
            assert all("no whole entry was found" in ran.stderr for ran in rans)
            return
        out = grouped(entries(given))
        assert out == groups[: len(out)] or not groups
        assert len(out) < len(groups) or not groups
    rest = more.draw(st.integers(stop, len(data)))  # with its end marker; a part of a block shows that bytes are lost
    with stored(data[:rest]) as (_, words):
        out = checked_output(tarkit("cat", more.draw(st.sampled_from(words)), exit=None))
        assert out == (None if rest % 512 else entries(data))


@laws
@given(archives(at_least=1), st.data())
def test_a_flipped_header_is_always_noticed(data: bytes, more: st.DataObject) -> None:
    """A changed byte of a header is an error, or the output is the same."""
    starts = [at for at in range(0, len(body(data)), 512) if data[at + 257 : at + 262] == b"ustar"]
    at = more.draw(st.sampled_from(starts)) + more.draw(st.integers(0, 511))
    flipped = bytearray(data)
    flipped[at] ^= more.draw(st.integers(1, 255))
    with stored(bytes(flipped)) as (_, words):
        outs = [checked_output(tarkit("cat", word, exit=None)) for word in words]
        assert outs[0] == outs[1]
        assert outs[0] in (None, entries(data))


@laws
@given(archives(at_least=1), st.data())
def test_damage_of_the_compression_is_always_noticed(data: bytes, more: st.DataObject) -> None:
    """A compressed archive that was cut or changed anywhere is an error, or the output is the same."""
    packed = gzip.compress(data, 1, mtime=0)
    at = more.draw(st.integers(0, len(packed) - 1))
    flipped = bytearray(packed)
    flipped[at] ^= more.draw(st.integers(1, 255))
    for damaged in (packed[:at], bytes(flipped)):
        with stored(damaged) as (_, words):
            out = checked_output(tarkit("cat", words[0], exit=None))
            assert out in (None, entries(data))
            assert out is None or damaged == bytes(flipped)


# ---- create


@laws
@given(samples(), st.sampled_from(["1", "3"]))
def test_create(rows: Members, parallel: str) -> None:
    """All names and contents of a recipe are in the archive, which split and cat accept unchanged."""
    rows = [(name, content) for name, content in rows if isinstance(content, bytes)]
    with TemporaryDirectory() as name:
        directory = Path(name)
        lines = []
        for number, (entry, content) in enumerate(rows):
            (directory / f"{number}").write_bytes(content)
            source = (f"{number}", f"hex:{content.hex()}", f"pipe:cat {shlex.quote(name)}/{number}")[number % 7 % 3]
            lines.append(f"{entry}\t{source}\n")
        recipe = os.fsencode("".join(lines))
        out = tarkit("create", "-C", directory, "-p", parallel, stdin=recipe).stdout
        assert parallel == "1" or out == tarkit("create", "-C", directory, stdin=recipe).stdout
        assert entries(out) == rows
        (directory / "made.tar").write_bytes(out)
        assert tarkit("cat", directory / "made.tar").stdout == out


@laws
@given(samples())
def test_group(rows: Members) -> None:
    """--group keeps the entries of each sample of a recipe together, in the order of the recipe."""
    rows = [(name, content) for name, content in rows if isinstance(content, bytes)]
    mixed = sorted(rows, key=lambda row: (len(row[0]), row[0]))
    recipe = os.fsencode(
        "".join(f"{name}\thex:{content.hex()}\n" for name, content in mixed if isinstance(content, bytes))
    )
    out = entries(tarkit("create", "--group", stdin=recipe).stdout)
    assert sorted(out, key=str) == sorted(rows, key=str)
    keys = [key for key, _ in grouped(out)]
    assert len(keys) == len(set(keys))
    for key, members in grouped(out):
        assert members == [row for row in mixed if row in members]
        assert all(name.startswith(f"{key}.") for name, _ in members)
    assert [key for key, _ in groupby(keys)] == keys
