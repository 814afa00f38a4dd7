"""tarkit check: every problem with its name and offset, alone and in pairs, from files, pipes and compressed files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
import shlex
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from tarkit import parallel
from tarkit.checking.findings import FINDINGS
from tarkit.problems import PROBLEMS
from tarkit.spill import multimap
from tests._tools import each_row, with_field
from tests.conftest import GNU, PAX, Archive, Feed, Link, Ran, Rows, Run, body, each_feed, entries, on_terminal, tar

DATA = Path(__file__).parents[1] / "data"


def rows(prefix: str = "k", count: int = 3, fields: str = "cls jpg") -> Rows:
    """Return samples with 1 KiB for each entry: headers are at 0, 1024, ..."""
    keys = [f"{prefix}{n}" for n in range(count)]
    return [(f"{key}.{field}", f"{key}{field}".encode() * 9) for key in keys for field in fields.split()]


def found(ran: Ran, notes: bool = False) -> list[tuple[str, int | None]]:
    """Return printed problems with offsets, in order."""
    pattern = re.compile(r"^(note: )?[^\n]*?(?:: at (\d+))?: [^\n]*\[([a-z-]+)\]$", re.M)
    text = ran.stdout.decode()
    return [(m[3], int(m[2]) if m[2] else None) for m in pattern.finditer(text) if notes or not m[1]]


def names(ran: Ran, notes: bool = False) -> list[str]:
    """Return the names of printed problems."""
    return [name for name, _ in found(ran, notes)]


def objects(ran: Ran, kind: str | None = None) -> list[dict[str, object]]:
    """Return the objects that --json printed."""
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return [line for line in lines if kind in (None, line["type"])]


# ---- each problem of a shard, alone


class Case(NamedTuple):
    """An archive, the problems or notes in it with their offsets, and the key of the first."""

    data: bytes
    listed: str
    key: str | None = None

    @property
    def problems(self) -> list[tuple[str, int | None]]:
        """The names and the offsets."""
        pairs = (each.partition(" ") for each in self.listed.split(", ") if each)
        return [(name, int(offset) if offset else None) for name, _, offset in pairs]


def flip(data: bytes, at: int, bit: int = 1) -> bytes:
    """Return data with one bit changed."""
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


R = rows()
CASES: dict[str, Case] = {
    "truncated in a payload": Case(tar(R)[: 5 * 1024 + 600], "truncated 5720", "k2"),
    "truncated in a header": Case(tar(R)[: 5 * 1024 + 100], "truncated 5220", "k2"),
    "no end marker": Case(tar(R)[: 6 * 1024], "no-end-marker 6144", "k2"),
    "a lone zero block": Case(tar(R)[: 6 * 1024 + 512], "no-end-marker 6144", "k2"),
    "no whole block": Case(body(tar(R)) + bytes(1025), "truncated 7169", "k2"),
    "a byte lost in the last payload": Case(tar(R)[:-1], "truncated 10239", "k2"),
    "preallocated": Case(tar(R) + bytes(1 << 20), "zero-filled 6144", "k2"),
    "nothing but zeros": Case(bytes(10_752), "zero-filled 0, unreadable-shard"),
    "empty": Case(b"", "no-end-marker 0"),
    "bad header": Case(flip(tar(R), 3 * 1024 + 1), "bad-header 3072", "k1"),
    "no archive": Case(b"x" * 3000, "bad-header 0, unreadable-shard"),
    "two bad headers": Case(flip(flip(tar(R), 1025), 4097), "bad-header 1024, bad-header 4096", "k0"),
    "glued": Case(tar(R) + tar(rows("l")), "trailing-data 10240", "k2"),
    "rubbish behind": Case(tar(R) + b"rubbish" * 100, "trailing-data 10240", "k2"),
    "scattered": Case(tar([*R[:1], *R[2:], R[1]]), "scattered-sample 5120", "k0"),
    "scattered twice": Case(tar([R[0], R[2], R[1], R[3]]), "scattered-sample 2048, scattered-sample 3072", "k0"),
    "duplicate": Case(tar([R[0], R[0], *R[1:]]), "duplicate-entry 1024", "k0"),
    "hard link": Case(tar([*R, ("z.jpg", Link("k0.jpg"))]), "unmovable-entry 6144", "z"),
    "unsafe": Case(tar([("../a.jpg", b"1"), *R]), "unsafe-name 0", "../a"),
    "absolute": Case(tar([("/a.jpg", b"1"), *R]), "unsafe-name 0", "/a"),
    "unsafe without key": Case(tar([("../README", b"1"), *R]), "unsafe-name 0"),
    "a link without key": Case(tar([*R, ("README", Link("k0.jpg"))]), "unmovable-entry 6144"),
    "a link without key in a sample": Case(tar([*R[:1], ("LICENSE", Link("README")), *R[1:]]), "unmovable-entry 1024"),
    "global header": Case(tar(R, PAX, pax_headers={"mtime": "1"}), "unmovable-entry 0"),
}
FINE: dict[str, Case] = {
    "good": Case(tar(R), ""),
    "without entries": Case(bytes(1024), ""),
    "link in a sample": Case(tar([*R, ("k2.png", Link("k2.jpg"))]), "mixed-fields 4096", "k2"),
    "a comment": Case(tar(R, PAX, pax_headers={"comment": "1"}), ""),
    "stray": Case(tar([("README", b"x"), *R[:1], (".hidden", b"x"), *R[1:]]), "stray-entry 0, stray-entry 2048"),
    "stray twice": Case(
        tar([("README", b"x"), R[0], ("README", b"y"), R[1], ("d", None), ("d", None), *R[2:], ("README", b"z")]),
        "stray-entry 0, stray-entry 2048, duplicate-entry 2048, "
        "stray-entry 9216, duplicate-entry 9216, stray-entry 4096",
    ),
    "only strays, twice": Case(
        tar([("README", b"x"), ("README", b"x")]), "stray-entry 0, stray-entry 1024, duplicate-entry 1024"
    ),
    "links without key": Case(
        tar([("README", b"x"), ("LICENSE", Link("README")), *R, ("COPYING", b"x"), ("NOTICE", Link("COPYING"))]),
        "stray-entry 0, stray-entry 1024, stray-entry 7680, stray-entry 8704",
    ),
    "a link without key to its sample": Case(tar([R[0], ("README", Link("k0.cls")), *R[1:]]), "stray-entry 1024"),
    "folders": Case(tar([("d", None), ("d/e", None), *R]), "stray-entry 0"),
    "case": Case(tar([*R[:5], ("k2.JPG", b"1")]), "case-variant 4096", "k2"),
    "mixed": Case(tar(R[:5]), "mixed-fields 4096", "k2"),
    "zeros for the rest": Case(tar(R)[:5120] + bytes(20480 - 5120), "mixed-fields 4096, odd-end 5120", "k2"),
    "padded to no record": Case(body(tar(R)) + bytes(1536), "odd-end 6144"),
    "odd": Case(tar(rows(fields="cls jpg 0\x20(x).mp3")), "odd-field 0", "k0"),
    "two forms of keys": Case(
        tar([(f"{key}.cls", b"1") for key in ("ä", "b", "a\u0308", "a\u0308/x")]), "form-variant 2048", "a\u0308"
    ),
    "two forms of fields": Case(
        tar([("a.ü", b"1"), ("a.u\u0308", b"1")]), "form-variant 0, odd-field 0, odd-field 0", "a"
    ),
    "sparse": Case(
        (DATA / "gnu-sparse-1.0.tar").read_bytes(), "sparse-entry 1024, mixed-fields 1024, odd-end 24576", "sparse"
    ),
}


@each_row("case", {**CASES, **FINE})
def test_each_problem(case: str, run: Run, archive: Archive) -> None:
    """Each problem is found at its offset, and the shard is bad; notes do not fail, except with --strict."""
    bad, shard = case in CASES, {**CASES, **FINE}[case]
    ran = run("check", archive(shard.data), *([] if bad else ["-v"]), exit=int(bad))
    assert found(ran, notes=not bad) == shard.problems
    assert ran.printed[-1].startswith(f"in.tar: {'bad' if bad else 'ok'}: ")
    if not bad:
        assert found(ran) == []
        strict = ran.stdout.replace(b"in.tar: ok: ", b"in.tar: bad: ") if shard.listed else ran.stdout
        assert run("check", "in.tar", "--strict", "-v", exit=1 if shard.listed else 0).stdout == strict
        bad_shards = run("check", "in.tar", "--list-bad", "--strict", exit=None).stdout
        assert bad_shards == (b"in.tar\n" if shard.listed else b"")


def sparse_entry(name: str, format: int) -> bytes:
    """Return a sparse file with one hole: typeflag S with the map in its header (GNU), or a PAX record."""
    if format == PAX:
        info = tarfile.TarInfo(f"GNUSparseFile.0/{name}")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name}
        info.pax_headers |= {"GNU.sparse.realsize": "4608"}
        payload = b"1\n4096\n512\n".ljust(512, b"\0") + b"x" * 512
        info.size = len(payload)
        return info.tobuf(PAX) + payload
    header = tar({name: b"x" * 512}, GNU)[:512]
    for offset, value in ((156, b"S"), (386, b"%011o\0%011o\0" % (4096, 512)), (483, b"%011o\0" % 4608)):
        header = with_field(header, offset, value)
    return header + b"x" * 512


@each_row("format", [GNU, PAX])
@each_row("sparse", [*([place] for place in range(6)), [0, 3], [2, 3, 5], range(6)])
def test_sparse_files(sparse: Sequence[int], format: int, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Each sparse file is a note, at any position in a sample and in the archive, from a file and from a stream."""
    data, expected = b"", []
    for place, (name, content) in enumerate(R):
        if place in sparse:
            expected.append((name, len(data)))
            data += sparse_entry(name, format)
        else:
            data += body(tar({name: content}))
    archive(data + bytes(1024))
    for feed in feeds:
        ran = run("check", feed("in.tar"), "-v")
        assert found(ran, notes=True) == [("sparse-entry", offset) for _, offset in expected]
        for name, offset in expected:
            assert f": at {offset}: '{name}' is a sparse file, " in ran.stdout.decode()


@pytest.mark.slow
def test_check_and_cat_agree(run: Run, archive: Archive) -> None:
    """Commands that move samples accept shards in which `check` finds nothing, and it finds nothing in their output."""
    for case, fine in FINE.items():
        name, other = archive(fine.data), archive([("x.x", b"")], "other.tar")
        for command in ("cat", "shuffle --seed 1 -q", "sort", "split -c 1 --force -o o-%d.tar"):
            archive(run(*command.split(), name, other).stdout or tar(R), "out.tar")
            run("check", "out.tar")
        if "link" not in case:  # the meaning of a link changes with its name
            assert "[" not in run("cat", name, "--rekey", "n/{key}").stderr
    for case in ("hard link", "a link without key", "a link without key in a sample", "duplicate", "global header"):
        name = archive(CASES[case].data)
        [(problem, offset)] = CASES[case].problems
        ran = run("cat", name, archive([("x.x", b"")], "other.tar"), exit=1)
        assert ran.lines[0].startswith(f"tarkit: {name}: at {offset}: ")
        assert ran.lines[0].endswith(f"[{problem}]")


@each_feed
def test_all_cases_together(run: Run, archive: Archive, feed: Feed) -> None:
    """Shards are checked independently of those before them, from every feed."""
    cases = [*CASES.values(), *FINE.values()]
    words = [feed(archive(case.data, f"{number}.tar")) for number, case in enumerate(cases)]
    lines = objects(run("check", *words, "--allow", "joined-sample", "--json", exit=1))
    for word, case in zip(words, cases, strict=True):
        own = [line for line in lines if line.get("shard") == word]
        level, verdict = ("note", "ok") if case in FINE.values() else ("error", "bad")
        problems = [(line["problem"], line["offset"]) for line in own if line.get("level") == level]
        assert [each for each in problems if each != ("mixed-fields", None)] == case.problems  # it concerns all shards
        [first, *_] = [line for line in own if line.get("level") == level] or [{"key": None, "repair": "none"}]
        assert first["key"] == case.key
        assert first["repair"] or level == "note"
        assert [line["verdict"] for line in own if line["type"] == "shard"] == [verdict]


def test_every_problem_of_the_table_has_a_case() -> None:
    """Each row of the table of problems, and each finding of check only, has a case in these files.

    The exceptions are bad-field, which only expressions and tables cause, and those of views (test_views.py).
    """
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_check*.py"))
    others = {"bad-field", "changed-source", "foreign-source"}
    listed = {name for case in (*CASES.values(), *FINE.values()) for name, _ in case.problems}
    assert not [name for name in {*PROBLEMS, *FINDINGS} - others - listed if f'"{name}"' not in text]


# ---- in pairs: a problem of one sample does not hide one of another


def damaged(key: str, kind: str) -> tuple[Rows, bool]:
    """Return the entries of a sample with a problem, and whether its second header must be damaged."""
    a, b = (f"{key}.cls", b"1" * 9), (f"{key}.jpg", b"2" * 9)
    made: dict[str, Rows] = {
        "duplicate-entry": [a, b, a],
        "scattered-sample": [a, (f"{key}x.cls", b"1"), (f"{key}x.jpg", b"1"), b],
        "unmovable-entry": [a, (f"{key}.jpg", Link("elsewhere.jpg"))],
        "unsafe-name": [(f"/{key}.cls", b"1"), (f"/{key}.jpg", b"1")],
        "bad-header": [a, b, (f"{key}.txt", b"3")],
        "stray-entry": [a, b, (f"README{key}", b"x")],
        "case-variant": [a, (f"{key}.JPG", b"2")],
        "mixed-fields": [a, b, (f"{key}.txt", b"2")],
        "odd-field": [a, b, (f"{key}.2 x.jpg", b"2")],
    }
    return made[kind], kind == "bad-header"


KINDS = ["duplicate-entry", "scattered-sample", "unmovable-entry", "unsafe-name", "bad-header"]
KINDS += ["stray-entry", "case-variant", "mixed-fields", "odd-field"]
ENDS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(body(data)) - 100],
    "no-end-marker": body,
    "trailing-data": lambda data: data + tar(rows("zz")),
}


def in_pairs(one: str, two: str) -> bytes:
    """Return an archive with both problems."""
    members: Rows = rows("a")
    flips = []
    for kind, key in ((one, "m"), (two, "t")):
        if kind in ENDS:
            continue
        sample, flipped = damaged(key, kind)
        if flipped:
            flips.append(len(body(tar([*members, *sample[:1]]))))
        members += [*sample, *rows(f"{key}z", 2)]
    data = tar(members)
    for kind in (one, two):
        if kind in ENDS:
            data = ENDS[kind](data)
    for at in flips:
        data = flip(data, at)
    return data


def test_in_pairs(run: Run, archive: Archive) -> None:
    """Both problems are found, each as often as alone, except for differences of fields that they cause."""
    rows = [pair for pair in combinations([*KINDS, *ENDS], 2) if not {*pair} <= ENDS.keys()]
    shards = {archive(in_pairs(*pair), "-".join(pair) + ".tar"): pair for pair in rows}
    ran = run("check", *shards, "--json", exit=1)
    found = [each for each in objects(ran, "problem") if each["offset"] is not None]
    verdicts = objects(ran, "shard")
    for (shard, pair), verdict in zip(shards.items(), verdicts, strict=True):
        seen = Counter(str(each["problem"]) for each in found if each["shard"] == shard)
        assert set(seen) - {"mixed-fields"} == {*pair} - {"mixed-fields"}, shard
        assert seen["mixed-fields"] >= ("mixed-fields" in pair), shard
        assert all(seen[kind] == 1 for kind in {*pair} - {"mixed-fields"}), shard
        failing = {*pair} - {"stray-entry", "case-variant", "mixed-fields", "odd-field"}
        assert (verdict["shard"], verdict["verdict"]) == (shard, "bad" if failing else "ok")


# ---- unreadable shards, and problems between shards


def test_unreadable_shards(run: Run, archive: Archive, here: Path) -> None:
    """A shard that is missing or unreadable is a finding, and the others are checked."""
    archive(R, "a-0.tar")
    archive(rows("l"), "a-2.tar")
    (here / "list").write_text("a-0.tar\nno.tar\n")
    for words in (["a-{0..2}.tar"], ["a-0.tar", "a-1.tar", "a-2.tar"]):
        ran = run("check", *words, exit=1)
        assert [line.split(", ")[0] for line in ran.printed] == [
            "a-0.tar: ok: 3 samples",
            "a-2.tar: ok: 3 samples",
            "a-1.tar: No such file or directory [unreadable-shard]",
            "hint: check that it exists and is readable",
            "a-1.tar: bad: 0 samples",
        ]
    assert "no.tar: No such file" in run("check", "-T", "list", exit=1).stdout.decode()
    ran = run("check", "pipe:cat a-0.tar; exit 3", "a-2.tar", exit=1)
    assert "pipe:cat a-0.tar; exit 3: command ended with status 3" in ran.stdout.decode()
    assert run("check", "--list-bad", "a-{0..2}.tar", exit=1).stdout == b"a-1.tar\n"
    assert run("check", "--list-bad", "-0", "a-{0..2}.tar", exit=1).stdout == b"a-1.tar\0"
    ran = run("check", DATA / "gnu-multivolume-2.tar", exit=1)
    assert names(ran) == ["unreadable-shard"]
    for words in (["no*.tar"], ["-T", "nolist"]):
        assert run("check", *words, exit=1).stdout == b""


def test_a_cut_is_the_same_on_every_way(run: Run, archive: Archive) -> None:
    """An entry that is cut is not counted, also where the end of the input is not known in advance."""
    data = tar([("README", b"r" * 700), *rows(), ("notes", b"n" * 600)])
    for size in range(300, len(body(data)), 388):
        Path("cut.tar.gz").write_bytes(gzip.compress(data[:size]))
        ways = {archive(data[:size], "cut.tar"): None, "-": Path("cut.tar"), "cut.tar.gz": None}
        shown = [objects(run("check", "--json", name, stdin=stdin, exit=1)) for name, stdin in ways.items()]
        file, pipe, gz = (sorted(json.dumps({**each, "shard": ""}, sort_keys=True) for each in way) for way in shown)
        assert file == pipe == gz, size


def test_joined_and_repeated(run: Run, archive: Archive) -> None:
    """A key at the boundary of shards is a joined sample; with --unique, a key in any two shards is found."""
    shards = [archive(tar(rows("ab"[n % 2], 4)), f"{n}.tar") for n in range(3)]
    assert run("check", *shards).stdout
    ran = run("check", *shards, "--unique", "-v", exit=1)
    assert found(ran) == [("repeated-key", at) for at in (0, 2048, 4096, 6144)]
    assert "2.tar: at 0: the key 'a0' is also in 0.tar, at 0 [repeated-key]" in ran.stdout.decode()
    assert run("check", *shards, "--unique", "--list-bad", exit=1).stdout == b"2.tar\n"
    assert run("check", *shards, "--unique", "--allow", "repeated-key").stdout
    ran = run("check", archive(R, "x.tar"), archive(R[4:], "y.tar"), exit=1)
    assert found(ran) == [("joined-sample", 0)]


@each_row("records", [{"comment": "x", "mtime": "1"}, {"path": "x"}])
def test_the_hint_for_a_global_header(records: dict[str, str], run: Run, archive: Archive) -> None:
    """The hint for a global header is about global headers, the one for a hard link about hard links."""
    ran = run("check", archive(R, format=PAX, pax_headers=records), exit=1)
    assert "a global PAX header applies to all entries that follow it [unmovable-entry]\nhint: " in ran.stdout.decode()
    assert "--pax-option" in ran.stdout.decode()
    assert "--hard" not in ran.stdout.decode()
    assert "--hard-dereference" in run("check", archive(CASES["hard link"].data), exit=1).stdout.decode()


def test_unique_in_bounded_memory(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings are the same if keys go to temporary space."""
    choose = random.Random(3)
    keys = [sorted({f"{choose.randrange(400):03}" for _ in range(60)}) for _ in range(4)]
    shards = [archive({f"{key}.x": b"" for key in own}, f"{n}.tar") for n, own in enumerate(keys)]
    expected = [(n, key) for n, own in enumerate(keys) for key in own if any(key in other for other in keys[:n])]
    outputs = set()
    for held in (1 << 20, 2000, 100):
        monkeypatch.setattr(multimap, "HELD", held)
        ran = run("check", *shards, "--unique", "--json", exit=1)
        repeated = (each for each in objects(ran, "problem") if each["problem"] == "repeated-key")
        assert [(int(str(each["shard"])[0]), each["key"]) for each in repeated] == expected
        outputs.add(ran.stdout)
    assert len(outputs) == 1


def test_similar_problems(run: Run, archive: Archive) -> None:
    """Of problems of a kind three of a shard are printed, and the number of the others; with -v and --json all."""
    again = [*rows(count=8, fields="jpg"), *rows(count=8, fields="cls")]
    one = archive([*again, ("README", b""), *((f"x/.{n}", b"") for n in range(4))], "1.tar")
    two = archive(again, "2.tar")
    ran = run("check", one, two, exit=1)
    assert names(ran) == ["scattered-sample"] * 6
    assert ran.printed.count("hint: --fix or tarkit sort gathers each sample") == 1
    assert [line for line in ran.printed if "-v prints all" in line] == [
        (
            "note: 1 shard, 4 entries, such as 1.tar: at 16896: 'x/.0' has no key, but webdataset makes a "
            "sample 'x/' of it, between two samples or inside one [stray-entry]; -v prints all"
        ),
        "10 more in 2 shards [scattered-sample]; -v prints all",
    ]
    assert ran.printed[-1] == "2.tar: bad: 16 samples, 16 entries, 20480 bytes, 8 problems, 1 note"
    assert names(run("check", one, two, "-v", exit=1)) == ["scattered-sample"] * 16
    assert len(objects(run("check", one, two, "--json", exit=1), "problem")) == 23
    assert "stray" not in run("check", one, two, "-q", exit=1).stdout.decode()


def test_many_shards(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of one kind in many shards have one line, as good shards do; errors are last, and have a colour."""
    for number in range(12):
        members = [("README", b""), *rows(f"{number}k"), (f"{number}k3.cls", b""), (f"{number}l.jpg", b"")]
        archive(tar(members), f"x-{number:02d}.tar")
    archive(tar(R)[: 6 * 1024], "x-03.tar")
    expected = [
        "note: 11 shards, 11 entries, such as x-00.tar: at 0: 'README' has no key [stray-entry]; -v prints all",
        "hint: tarkit check --fix drops it; --target READER says what a reader makes of it",
        (
            "note: 11 shards, 11 samples, such as x-00.tar: at 6656: 1 sample has no 'jpg', unlike most; "
            "the first is '0k3' [mixed-fields]; -v prints all"
        ),
        "hint: tarkit cat --require FIELDS --on-missing-field skip drops incomplete samples",
        (
            "note: 11 shards, 11 samples, such as x-00.tar: at 7168: 1 sample has no 'cls', unlike most; "
            "the first is '0l' [mixed-fields]; -v prints all"
        ),
        "11 shards: ok: 55 samples, 99 entries, 112640 bytes, 33 notes; -v prints all",
        "x-03.tar: at 6144: no end-of-archive marker after 'k2.jpg' [no-end-marker]",
        "hint: fetch the shard again; if it is known to be whole, --allow no-end-marker",
        "x-03.tar: bad: 3 samples, 6 entries, 6144 bytes, 1 problem",
    ]
    assert run("check", "x-*.tar", exit=1).printed == expected
    assert run("check", "x-*.tar", "-q", exit=1).printed == expected[-3:]
    assert len(run("check", "x-*.tar", "-v", exit=1).stdout.splitlines()) == 33 + 1 + 3 + 12
    assert len(objects(run("check", "x-*.tar", "--json", exit=1), "shard")) == 12
    monkeypatch.setenv("TERM", "xterm")
    colored = on_terminal("check", "x-*.tar", exit=1)[0]
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines() == expected
    assert re.findall(r"\x1b\[31m\x1b\[1m(.*?)\x1b\[0m", colored) == ["[no-end-marker]", "bad:"]


def test_many_bad_shards(run: Run, archive: Archive) -> None:
    """Ten bad shards have a line each, and ten problems of a kind; all are counted."""
    for number in range(14):
        archive(tar(R), f"x-{number:02d}.tar")
    lines = run("check", "x-*.tar", "--require", "txt", exit=1).printed
    assert sum(line.endswith("[missing-field]") for line in lines) == 10
    assert "32 more in 11 shards [missing-field]; -v prints all" in lines
    assert sum(": bad: 3 samples" in line for line in lines) == 10
    assert lines[-1] == "4 more shards are bad; --list-bad prints all"


def test_similar_repairs(run: Run, archive: Archive) -> None:
    """Of new names and lost ranges the first three of each copy are printed; with -v all."""
    data = tar([*(row for row in rows(count=9, fields="jpg") for _ in "ab"), *rows("l", 14)])
    for at in range(18, 18 + 2 * 12, 5):
        data = flip(data, at * 1024)
    ran = run("check", archive(data), "--fix", "clean.tar", exit=1)
    text = ran.stdout.decode()
    assert text.count("renamed to") == text.count("are lost,") == 3
    assert "in.tar: 5 more renamed; -v prints all\n" in text
    assert "in.tar: 2 more ranges are lost; -v prints all\n" in text
    text = run("check", "in.tar", "--fix", "again.tar", "-v", exit=1).stdout.decode()
    assert (text.count("renamed to"), text.count("are lost,")) == (8, 5)
    assert Path("again.tar").read_bytes() == Path("clean.tar").read_bytes()


def test_mixed_shards(run: Run, archive: Archive) -> None:
    """A shard with other fields than most shards is a note."""
    shards = [archive(tar(rows(f"{n}k", fields="jpg" if n < 3 else "png")), f"{n}.tar") for n in range(4)]
    ran = run("check", *shards)
    assert "note: 3.tar: its samples have 'png', those of most shards 'jpg' [mixed-fields]" in ran.stdout.decode()


# ---- requested checks


@each_feed
def test_require(run: Run, archive: Archive, feed: Feed) -> None:
    """Each sample without a required field is reported, in any case; a|b requires one of them."""
    name = feed(archive(tar([*R[:3], ("k1.PNG", b""), *R[4:5]])))
    ran = run("check", name, "--require", "cls,jpg", exit=1)
    assert found(ran) == [("missing-field", 2048), ("missing-field", 3584)]
    assert "'k1' has no field 'jpg', it has 'cls', 'PNG'" in ran.stdout.decode()
    assert found(run("check", name, "--require", "cls", "--require", "JPG|png", exit=1)) == [("missing-field", 3584)]
    run("check", name, "--require", "CLS")


@pytest.mark.forks
@each_row(
    ("table", "text"),
    [
        ("keys.txt", "k0\nk1\nx\n"),
        ("keys.tsv", "shard\t__key__\tn\n0\tk0\t1\n0\tk1\t2\n0\tx\t3\n"),
        ("keys.csv", "__key__,n\nk0,1\nk1,2\nx,3\n"),
        ("quoted.csv", '"n","__key__"\n"' + "y" * 200_000 + '","k0"\n1,"k1"\n1,"x"\n'),
        ("keys.jsonl", '{"__key__": "k0"}\n{"__key__": "k1"}\n{"__key__": "x"}\n'),
        ("keys.tsv:id", "id\tn\nk0\t1\nk1\t2\nx\t3\n"),
    ],
)
def test_against(table: str, text: str, run: Run, archive: Archive, here: Path) -> None:
    """Samples of the table that are missing in shards, and the reverse, are reported."""
    (here / table.partition(":")[0]).write_text(text)
    for number in "12" if table == "keys.txt" else "1":
        ran = run("check", archive(R[:2], "1.tar"), archive(R[2:], "2.tar"), "--against", table, "-p", number, exit=1)
        assert found(ran) == [("extra-sample", 2048), ("missing-sample", None)]
        assert f"2.tar: at 2048: 'k2' is not in {table} [extra-sample]" in ran.stdout.decode()
        assert f"{table}: no shard has the sample 'x' [missing-sample]" in ran.stdout.decode()
    run("check", archive(R[:2], "1.tar"), "--against", "no.tsv", exit=1)


def test_against_a_table_without_its_column(run: Run, archive: Archive, here: Path) -> None:
    """If no line of a table is a key, a hint names the form with a column."""
    (here / "t.csv").write_text("id,n\nk0,1\nk1,2\nk2,3\n")
    archive(R)
    hint = "hint: the lines look like rows of a table: t.csv:COLUMN takes the keys in a column\n"
    assert hint in run("check", "in.tar", "--against", "t.csv", exit=1).stdout.decode()
    assert run("check", "in.tar", "--against", "t.csv:id").stdout
    ran = run("cat", "in.tar", "--keys-from", "t.csv", "-o", "out.tar", exit=None)
    assert hint.removeprefix("hint: ") in ran.stderr
    (here / "t.csv").write_text("k0,1\nk1\n")
    assert b"hint: the lines" not in run("check", "in.tar", "--against", "t.csv", exit=1).stdout


@pytest.mark.forks
def test_manifest(run: Run, archive: Archive, here: Path) -> None:
    """The manifest by split is verified: samples, bytes, sha256, keys, missing and extra shards."""
    run("split", archive(rows(count=9)), "-c", "3", "-o", "s/%d.tar", "--manifest", "m.tsv", exit=1)
    (here / "s").mkdir()
    run("split", "in.tar", "-c", "3", "-o", "s/%d.tar", "--manifest", "m.tsv")
    assert run("check", "s/", "--manifest", "m.tsv").stdout == run("check", "s/").stdout
    assert run("check", "--manifest", "m.tsv").stdout == run("check", "s/").stdout
    one = here / "s/1.tar"
    one.write_bytes(flip(one.read_bytes(), 600))
    ran = run("check", "s/", "--manifest", "m.tsv", "-p", "2", exit=1)
    assert found(ran) == [("changed-shard", None)]
    assert re.search(r"^s/1\.tar: sha256: \w{64} in m\.tsv, \w{64} in the shard ", ran.stdout.decode(), re.M)
    one.write_bytes(tar(rows(count=2)))
    ran = run("check", "s/", "--manifest", "m.tsv", "-v", exit=1)
    changed = [line.split(":")[1] for line in ran.printed if line.endswith("[changed-shard]")]
    assert changed == [" samples", " sha256", " first key", " last key"]
    one.rename(here / "s/7.tar")
    ran = run("check", "s/", "--manifest", "m.tsv", exit=1)
    assert names(ran) == ["extra-shard", "missing-shard"]
    ran = run("check", "--manifest", "m.tsv", exit=1)
    assert names(ran) == ["missing-shard"]
    said = "s/1.tar: m.tsv lists it, but it does not exist [missing-shard]\nhint: fetch it again\n"
    assert said in ran.stdout.decode()
    (here / "moved").mkdir()
    for path in (here / "s/0.tar", here / "s/2.tar", here / "m.tsv"):
        path.rename(here / "moved" / path.name)
    ran = run("check", "moved/", "--manifest", "moved/m.tsv", exit=1)
    assert names(ran) == ["missing-shard"]
    for text in ("", "no manifest\n", (here / "moved/m.tsv").read_text() + "x\ty\n"):
        (here / "bad.tsv").write_text(text)
        assert run("check", "moved/", "--manifest", "bad.tsv", exit=1).stdout == b""
    for name in ("0.tar", "2.tar"):
        (here / "moved" / name).unlink()
    assert names(run("check", "--manifest", "moved/m.tsv", exit=1)) == ["missing-shard"] * 3


def test_manifest_of_a_copy(run: Run, archive: Archive, here: Path) -> None:
    """Shards are those beside the manifest, by the names in it, not the ones that it was copied from."""
    archive(rows(count=9))
    for kind in ("own", "up"):
        (here / kind / "s").mkdir(parents=True)
        to = f"{kind}/m.tsv" if kind == "up" else f"{kind}/s/m.tsv"
        run("split", "in.tar", "-c", "3", "-o", f"{kind}/s/%d.tar", "--manifest", to)
        if kind == "up":  # names are relative to the manifest
            (here / to).write_text((here / to).read_text().replace("up/s", "s"))
        shutil.copytree(here / kind, here / f"{kind}-copy")
        copy = here / f"{kind}-copy/s/1.tar"
        copy.write_bytes(flip(copy.read_bytes(), 600))
        run("check", "--manifest", to)
        ran = run("check", "--manifest", to.replace(kind, f"{kind}-copy", 1), exit=1)
        assert found(ran) == [("changed-shard", None)]
        assert f"{kind}-copy/s/1.tar: sha256" in ran.stdout.decode()


# ---- output


@pytest.mark.forks
def test_output_is_the_same_for_any_number_of_processes(
    run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text and JSON are the same with all kinds of checks."""
    monkeypatch.setattr(parallel, "SHARES", 1)  # a fork of the test process is slow
    shards = [archive(case.data, f"{n:02}.tar") for n, case in enumerate([*CASES.values(), *FINE.values()])]
    for words, number in (([], "2"), (["--json", "--unique", "--require", "cls", "--target", "dali"], "3")):
        expected = run("check", *shards, *words, "-p", "1", exit=1).stdout
        assert run("check", *shards, *words, "-p", number, exit=1).stdout == expected


def test_json(run: Run, archive: Archive) -> None:
    """There is one object a line: problems, shards, the summary; names that are no text can be restored."""
    name = archive(tar([("d/k\udcff0.jpg", b""), *R]), "x.tar")
    ran = run("check", name, "--json", "--require", "cls", "--report", "r.json", exit=1)
    report = json.loads(Path("r.json").read_text())
    assert (report["samples"], report["shards"], report["bad"]) == (4, 1, 1)
    assert report["problems"] == {"missing-field": 1, "mixed-fields": 1}
    assert [each["type"] for each in objects(ran)] == ["problem", "problem", "shard", "summary"]
    assert os.fsencode(str(objects(ran)[0]["key"])) == b"d/k\xff0"
    counts = {"samples": 4, "entries": 7, "bytes": 10240}
    counted = {"problems": {"missing-field": 1}, "notes": {"mixed-fields": 1}}
    assert objects(ran, "shard") == [{"type": "shard", "shard": "x.tar", "verdict": "bad", **counts, **counted}]
    found = {"missing-field": 1, "mixed-fields": 1}
    assert objects(ran, "summary") == [{"type": "summary", "shards": 1, "bad": 1, "samples": 4, "found": found}]


@each_row(
    ("words", "status", "stderr"),
    [
        ("a.tar", 0, "1 shard OK"),
        ("a.tar b.tar", 0, "2 shards OK"),
        ("a.tar bad.tar b.tar", 1, "1 of 3 shards bad"),
        ("a.tar noted.tar", 0, "2 shards OK"),
        ("a.tar noted.tar --strict", 1, "1 of 2 shards bad"),
        ("a.tar --against keys", 1, "1 shard OK, but the set has problems"),
    ],
)
def test_outcome(words: str, status: int, stderr: str, run: Run, here: Path) -> None:
    """The last line counts bad shards; -q prints only lines of problems and bad shards, unchanged."""
    for name in ("a", "b"):
        (here / f"{name}.tar").write_bytes(tar({f"{name}.txt": b"1"}))
    (here / "bad.tar").write_bytes(tar({"c.txt": b"1"})[:700])
    (here / "noted.tar").write_bytes(tar({"README": b"", "d.txt": b"1"}))
    (here / "keys").write_text("a\nz\n")
    ran = run("check", *words.split(), exit=status)
    assert ran.lines == [f"tarkit: check: {stderr}"]
    printed = ran.printed
    strict = "--strict" in words
    notes = ("note: ",) if status else ("note: ", "hint: ")
    kept = [line for line in printed if (strict and "note" in line) or not (": ok: " in line or line.startswith(notes))]
    assert len(kept) < len(printed)
    quiet = run("check", *words.split(), "-q", exit=status)
    assert (quiet.printed, quiet.stderr) == (kept, "")
    assert bool(kept) is bool(status)


def test_allow(run: Run, archive: Archive) -> None:
    """An allowed problem is a note."""
    name = archive(CASES["no end marker"].data)
    ran = run("check", name, "--allow", "no-end-marker")
    assert found(ran) == []
    assert names(ran, notes=True) == ["no-end-marker"]
    assert "in.tar: ok: " in ran.stdout.decode()


# ---- arbitrary archives


GOLDEN = sorted(path for path in DATA.glob("*.tar") if "multivolume" not in path.name)


def test_golden_archives(run: Run) -> None:
    """Archives by all writers have no problems, except for hard links."""
    ran = run("check", *GOLDEN, exit=1)
    assert set(names(ran)) == {"unmovable-entry"}


def test_nested_archive(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Entries of an archive that is the content of a damaged entry are ignored."""
    inner = tar(rows("inner"))
    data = flip(tar([*R[:2], ("n.tar", inner), *R[2:]]), 2 * 1024 + 1)
    for feed in feeds:
        ran = run("check", feed(archive(data)), exit=1)
        assert found(ran) == [("bad-header", 2048)]
        assert f"reading resumes at {2048 + 512 + len(inner)}" in ran.stdout.decode()
        assert "3 samples, 6 entries" in ran.stdout.decode()


def test_cut_anywhere(run: Run, archive: Archive) -> None:
    """A shard that is cut anywhere is bad, without a traceback."""
    data = tar(rows(count=2))
    assert len(body(data)) == 4096
    sizes = [*range(0, 4096, 97), *range(500, 530), *range(4080, 4097), 4608, 5119]
    shards = [archive(data[:size], f"{number}.tar") for number, size in enumerate(sizes)]
    ran = run("check", *shards, "--allow", "joined-sample", "--json", exit=1)
    errors = {str(each["problem"]) for each in objects(ran, "problem") if each["level"] == "error"}
    assert errors <= {"truncated", "no-end-marker", "bad-header", "unreadable-shard"}
    nothing = [each["shard"] for each in objects(ran, "problem") if each["problem"] == "unreadable-shard"]
    assert nothing == [name for name, size in zip(shards, sizes, strict=True) if 0 < size < 1024]
    assert [(each["shard"], each["verdict"]) for each in objects(ran, "shard")] == [(name, "bad") for name in shards]
    run("check", archive(data[:5120]))


@each_row("codec", ["gz", "bz2", "xz"])
def test_compressed_cut_or_flipped(codec: str, run: Run, archive: Archive) -> None:
    """A compressed shard that is cut or changed is reported."""
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lambda data: lzma.compress(data, preset=0)}[codec]
    data = pack(tar(R))
    run("check", archive(data, f"in.tar.{codec}"))
    cut = [archive(data[:size], f"{size}.tar.{codec}") for size in range(20, len(data) - 1, 37)]
    ran = run("check", *cut, "--allow", "joined-sample", "--json", exit=1)
    assert [(each["shard"], each["verdict"]) for each in objects(ran, "shard")] == [(name, "bad") for name in cut]
    flipped = [archive(flip(data, at), f"{at}.tar.{codec}") for at in range(12, len(data) - 12, 23)]
    ran = run("check", *flipped, "--json", exit=None)
    assert [each["shard"] for each in objects(ran, "shard")] == flipped


def test_bad_data_and_a_bad_header(run: Run, archive: Archive) -> None:
    """The damaged header and the wrong checksum of the compressed stream are both found."""
    data = bytearray(gzip.compress(tar(R), 0, mtime=0))
    at = data.index(b"k1.cls") + 1
    data[at] ^= 1
    ran = run("check", archive(bytes(data), "in.tar.gz"), exit=1)
    assert set(names(ran)) == {"bad-header", "bad-data"}
    run("cat", "in.tar.gz", "--skip", "bad-header", "-o", "out.tar", exit=1)


def damaged_at_random(seed: int) -> bytes:
    """Return an archive with bytes changed, removed, inserted or zeroed."""
    draw = random.Random(seed)
    data = bytearray(tar(rows(count=4), draw.choice((0, GNU, PAX))))
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(data)), draw.choice((1, 7, 512, 700))
        piece = {"set": draw.randbytes(size), "cut": b"", "zero": bytes(size)}
        piece["in"] = data[at : at + 1] + draw.randbytes(size)
        kind = draw.choice([*piece])
        data[at : at + (1 if kind == "in" else size)] = piece[kind]
    return bytes(data)


def test_random_damage(run: Run, archive: Archive) -> None:
    """With any damage there is a verdict for each shard, and the copies are clean."""
    shards = [archive(damaged_at_random(seed), f"{seed}.tar") for seed in range(60)]
    ran = run("check", *shards, "--target", "dali", "--json", exit=1)
    assert [each["shard"] for each in objects(ran, "shard")] == shards
    os.mkdir("clean")
    ran = run("check", *shards, "--fix", "clean/", "--rejects", "rejects.tar", "--json", exit=1)
    assert [each["shard"] for each in objects(ran, "fix")] == shards
    run("check", "clean/")


@each_row("seed", range(8))
def test_the_repair_of_spellings(seed: int, run: Run, archive: Archive, here: Path) -> None:
    """The command that the hint of case-variant names leaves one spelling, and every content."""
    draw = random.Random(seed)
    members = [
        (f"{key}.{draw.choice(spellings)}", f"{key}{spellings[0]}".encode())
        for key in "abcdef"
        for spellings in (("jpg", "JPG", "Jpg"), ("seg.png", "SEG.png"), ("txt",))
        if seed % 2 or draw.random() < 0.7
    ]
    name = archive(members)
    lines = run("check", name).printed
    hints = [line for line in lines if line.startswith("hint: tarkit cat") and " -f " in line]
    assert bool(hints) == any("[case-variant]" in line for line in lines)
    if hints:
        words = shlex.split(hints[0].removeprefix("hint: tarkit ").partition(" gives")[0])
        run(*[{"SHARD": name, "OUT": "one.tar"}.get(word, word) for word in words])
        assert "case-variant" not in run("check", "one.tar").stdout.decode()
        left = sorted((each.lower(), data) for each, data in entries("one.tar"))
        assert left == sorted((each.lower(), data) for each, data in members)


def test_two_spellings_in_a_sample(run: Run, archive: Archive) -> None:
    """Where a sample has both, a command that keeps one of them is not the repair."""
    found = run("check", archive([("a.jpg", b"1"), ("a.JPG", b"2"), ("b.jpg", b"3")])).stdout.decode()
    assert "hint: a sample has both spellings, which are two fields: rename one of them\n" in found
