"""tarkit check --fix: a clean copy that drops only entries next to damage, and counts every entry."""

from __future__ import annotations

import gzip
import json
import os
import random
from itertools import groupby
from pathlib import Path

import pytest

from tarkit.checking.findings import Finding
from tarkit.checking.salvage import KeptSample, Salvage
from tarkit.checking.shard import OptionalChecks, ShardCheck
from tarkit.streams.ranges import HeldRange
from tests._tools import each_row
from tests.commands.test_check import CASES, FINE, R, flip, names, objects, rows
from tests.conftest import GNU, PAX, Archive, Feed, Link, Ran, Rows, Run, body, each_feed, entries, keys, tar


def fixed(ran: Ran) -> dict[str, object]:
    """Return the counts of the only shard."""
    [account] = objects(ran, "fix")
    return account


# ---- the effect of each problem: the members of the copy, and of the rejects


CLEAN: dict[str, tuple[Rows, Rows]] = {
    "truncated in a payload": (R[:4], R[4:5]),
    "truncated in a header": (R[:4], R[4:5]),
    "no whole block": (R[:4], R[4:]),
    "a byte lost in the last payload": (R[:4], R[4:]),
    "preallocated": (R[:4], R[4:]),
    "no end marker": (R[:4], R[4:]),
    "a lone zero block": (R[:4], R[4:]),
    "empty": ([], []),
    "bad header": (R[:2], R[2:3] + R[4:]),
    "no archive": ([], []),
    "two bad headers": ([], [R[0], R[2], R[3], R[5]]),
    "glued": (R + rows("l"), []),
    "rubbish behind": (R, []),
    "scattered": (R, []),
    "scattered twice": (R[:4], []),
    "duplicate": ([*R[:2], ("k0~2.cls", R[0][1]), *R[2:]], []),
    "hard link": (R, [("z.jpg", Link("k0.jpg"))]),
    "unsafe": (R, [("../a.jpg", b"1")]),
    "absolute": (R, [("/a.jpg", b"1")]),
    "global header": (R, []),
    "good": (R, []),
    "without entries": ([], []),
    "link in a sample": ([*R, ("k2.png", Link("k2.jpg"))], []),
    "a comment": (R, []),
    "a link without key": (R, [("README", Link("k0.jpg"))]),
    "a link without key in a sample": (R, [("LICENSE", Link("README"))]),
    "stray twice": (R, [("README", b"x"), ("README", b"y"), ("d", None), ("d", None), ("README", b"z")]),
    "stray": (R, [("README", b"x"), (".hidden", b"x")]),
    "folders": (R, [("d", None), ("d/e", None)]),
}
LOSSES = ("truncated", "no whole", "a byte", "preallocated", "a lone", "empty", "bad header", "no archive", "two bad")
LOSSES += ("rubbish",)


@each_row("case", CLEAN)
def test_clean_copy(case: str, run: Run, archive: Archive) -> None:
    """Kept entries are in order, rejected samples complete, and the counts add up; an empty copy is clean."""
    data = {**CASES, **FINE}[case].data
    kept, left = CLEAN[case]
    lost = case.startswith(LOSSES)
    ran = run("check", archive(data), "--fix", "clean.tar", "--rejects", "left.tar", "--json", exit=None)
    assert entries("clean.tar") == kept if case != "no archive" else not os.path.exists("clean.tar")
    assert sorted(entries("left.tar")) == sorted(left)
    account = fixed(ran)
    renamed = sum("~" in each for each, _ in kept)
    dropped = len(left) if "key" in case or case.startswith(("stray", "folders")) else 0
    harmless = case in ("global header", "a comment")
    assert account["kept"] == len(kept) - renamed
    assert account["renamed"] == renamed
    assert account["dropped"] == (1 if harmless else dropped)
    assert account["rejected"] == len(left) - dropped
    assert account["entries"] == len(kept) + len(left) + harmless
    assert bool(account["lost"]) == lost
    whole = not lost and len(left) == dropped
    assert ran.status == (0 if whole else 1)
    if not kept and case != "no archive":
        run("check", "clean.tar")


@each_feed
def test_all_clean_copies(run: Run, archive: Archive, feed: Feed) -> None:
    """Several shards from every feed have clean copies, and none of them is empty."""
    cases = sorted(CLEAN, key=lambda case: case == "bad header")  # its copy ends with the first key of other copies
    words = [feed(archive({**CASES, **FINE}[case].data, f"{n:03}.tar")) for n, case in enumerate(cases)]
    os.mkdir("clean")
    ran = run("check", *words, "--fix", "clean/%03d.tar", "--rejects", "left.tar", "--json", exit=1)
    for n, (case, account) in enumerate(zip(cases, objects(ran, "fix"), strict=True)):
        kept, _ = CLEAN[case]
        assert account["output"] == (f"clean/{n:03}.tar" if kept else None)
        assert not kept or entries(f"clean/{n:03}.tar") == kept, case
    left = [row for _, members in CLEAN.values() for row in members]
    assert sorted(entries("left.tar"), key=repr) == sorted(left, key=repr)
    run("check", "clean/")


@pytest.mark.slow
@each_row("seed", range(40))
def test_an_archive_before_a_cut_copy(seed: int, run: Run, archive: Archive) -> None:
    """What precedes a damaged archive is kept whole by --fix and by --skip."""
    draw = random.Random(seed)
    fields = ["jpg", "cls", "txt"][: draw.randint(1, 3)]
    whole = rows("k", draw.randint(2, 5), " ".join(fields))
    again = rows(draw.choice("km"), 4, " ".join(fields))
    end = tar(whole) if draw.random() < 0.5 else body(tar(whole)) + bytes(1024)
    cut = 1024 * draw.randrange(len(fields) - 1, len(again)) + draw.randrange(513, 1024)  # in a payload
    run("check", archive(end + tar(again)[:cut]), "--fix", "fix.tar", exit=1)
    assert [row for row in whole if row not in entries("fix.tar")] == []
    assert entries(run("cat", "in.tar", "--skip", "all").stdout) == whole


@pytest.mark.slow
@each_row("seed", range(40))
def test_a_hole_that_ends_like_an_archive(seed: int, run: Run, archive: Archive) -> None:
    """Zeros in place of fields, up to the border of a record or of two blocks: no sample that is kept lacks one."""
    draw = random.Random(seed)
    members = rows("k", 12, "a b c")
    data = bytearray(tar(members))
    place = draw.randrange(1, 30)
    start = place * 1024
    stop = start + 1024 if seed % 2 else -(-(start + 1024) // 10240) * 10240
    data[start:stop] = bytes(stop - start)
    for words in (("cat", "in.tar", "--skip", "all", "-o", "o.tar"), ("check", archive(bytes(data)), "--fix", "o.tar")):
        archive(bytes(data))
        run(*words, exit=None)
        kept = entries("o.tar") if os.path.exists("o.tar") else []
        for key, each in groupby(kept, lambda row: row[0].split(".")[0]):
            assert len(list(each)) == 3, (words, key)
        if os.path.exists("o.tar"):
            os.unlink("o.tar")


def test_text(run: Run, archive: Archive) -> None:
    """The text has the counts, new names and lost bytes, and --report the totals."""
    data = flip(tar([*R[:2], *R[:2], *rows("l", 4), ("README", b"")]), 8 * 1024)
    ran = run("check", archive(data), "--fix", "clean.tar", "--report", "r.json", exit=1)
    lines = ran.printed
    at = next(n for n, line in enumerate(lines) if " -> " in line)
    assert lines[at:] == [
        "in.tar -> clean.tar: 12 entries = 6 kept + 2 renamed + 1 dropped + 3 rejected; 4 samples",
        "in.tar: samples left out: 2 for bad-header",
        "in.tar: 'k0' renamed to 'k0~2'",
        "in.tar: bytes 8192 to 9216 are lost, 1024 bytes [bad-header]",
        (
            "fix: 12 entries = 6 kept + 2 renamed + 1 dropped + 3 rejected; 4 samples, 2 left out; "
            "1024 bytes lost to damage"
        ),
    ]
    sums = {"entries": 12, "kept": 6, "renamed": 2, "dropped": 1, "rejected": 3, "samples": 4, "lost_bytes": 1024}
    assert json.loads(Path("r.json").read_text())["fix"] == {**sums, "end_early": 0}


@each_feed
def test_new_names(run: Run, archive: Archive, feed: Feed) -> None:
    """A duplicate entry goes to the first of KEY~2, KEY~3 ... without that field; existing keys are not used."""
    a, b = ("d/k.a", b"1"), ("d/k.b", b"2")
    members: Rows = [a, b, a, ("d/k~2.a", b"0"), b, a, ("d/k.c", b"3"), ("d/l.a", b"4"), a]
    run("check", feed(archive(tar(members, GNU))), "--fix", "clean.tar")
    made = [a, b, ("d/k.c", b"3"), ("d/k~3.a", b"1"), ("d/k~3.b", b"2"), ("d/k~4.a", b"1"), ("d/k~5.a", b"1")]
    assert entries("clean.tar") == [*made, ("d/k~2.a", b"0"), ("d/l.a", b"4")]


@each_row("format", [GNU, PAX])
def test_new_names_of_long_names(format: int, run: Run, archive: Archive) -> None:
    """The headers are unchanged except for the name."""
    long = "n" * 150
    data = tar([(f"{long}.a", b"1"), (f"{long}.a", b"2"), (f"{long}.b", b"3" * 700)], format)
    run("check", archive(data), "--fix", "clean.tar")
    assert entries("clean.tar") == [(f"{long}.a", b"1"), (f"{long}.b", b"3" * 700), (f"{long}~2.a", b"2")]
    assert b"me\0" in Path("clean.tar").read_bytes()[-2 * 10240 :]


def test_links_are_not_renamed(run: Run, archive: Archive) -> None:
    """A sample that would be renamed and has a hard link is rejected."""
    link = ("k.b", Link("k.a"))
    members: Rows = [("k.a", b"1"), link, ("k.a", b"2"), link, ("l.a", b"")]
    run("check", archive(members), "--fix", "clean.tar", "--rejects", "left.tar", exit=1)
    assert entries("clean.tar") == [("k.a", b"1"), link, ("l.a", b"")]
    assert [name for name, _ in entries("left.tar")] == ["k.a", "k.b"]


# ---- several inputs


@each_feed
def test_one_copy_of_all(run: Run, archive: Archive, feed: Feed) -> None:
    """No key occurs twice in one copy of several inputs."""
    shards = [feed(archive(rows(count=2), f"{n}.tar")) for n in range(3)]
    ran = run("check", *shards, "--fix", "clean.tar", "--json", exit=0)
    assert keys("clean.tar") == "k0 k1 k0~2 k1~2 k0~3 k1~3"
    assert [(each["kept"], each["renamed"]) for each in objects(ran, "fix")] == [(4, 0), (0, 4), (0, 4)]
    assert run("check", "clean.tar", "--unique").status == 0


@each_row("target,unique", [("clean/", False), ("clean", True), ("clean/%03d.tar", False), ("clean/%03d.tar", True)])
def test_a_copy_of_each(target: str, unique: bool, run: Run, archive: Archive, here: Path) -> None:
    """Each copy has its input's name in a directory, or a number, and is never empty."""
    (here / "clean").mkdir()
    shards = [archive(rows(count=2), "0.tar"), archive(b"", "1.tar"), archive(tar(rows(count=3)), "2.tar.gz")]
    packed = here / "2.tar.gz"
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    words = ["--unique"] * unique
    ran = run("check", *shards, "--fix", target, *words, "--json", exit=1)
    made = ["000.tar", "002.tar"] if "%" in target else ["0.tar", "2.tar.gz"]
    assert sorted(os.listdir("clean")) == made
    assert [each["output"] for each in objects(ran, "fix")] == [f"clean/{made[0]}", None, f"clean/{made[1]}"]
    data = (here / "clean" / made[1]).read_bytes()
    if made[1].endswith(".gz"):
        data = gzip.decompress(data)
    keys = [key for key, _ in groupby(entries(data), lambda row: row[0].split(".")[0])]
    assert keys == (["k0~2", "k1~2", "k2"] if unique else ["k0", "k1", "k2"])
    run("check", "clean/", *words)
    before = {path: path.read_bytes() for path in (here / "clean").iterdir()}
    again = run("check", *shards, "--fix", target, exit=1)
    assert "file exists" in again.stderr
    assert {path: path.read_bytes() for path in (here / "clean").iterdir()} == before


def test_joined_neighbours(run: Run, archive: Archive, here: Path) -> None:
    """The first sample of a copy does not have the last key of the copy before it."""
    (here / "clean").mkdir()
    shards = [archive(members, f"{number}.tar") for number, members in enumerate((R, R[4:], b"", R[2:]), 1)]
    run("check", *shards, "--fix", "clean/", exit=1)
    assert [name for name, _ in entries("clean/2.tar")] == ["k2~2.cls", "k2~2.jpg"]
    assert entries("clean/4.tar") == R[2:]
    run("check", "clean/")


def test_unreadable_shards(run: Run, archive: Archive) -> None:
    """An unreadable shard does not affect the others; the suffix determines the compression of a copy."""
    name = archive(R)
    ran = run("check", f"pipe:cat {name}; exit 3", name, "--fix", "clean.tar", exit=1)
    assert names(ran) == ["unreadable-shard"]
    assert entries("clean.tar") == R
    assert names(run("check", name, "no.tar", "--fix", "clean.tar.gz", exit=1)) == ["unreadable-shard"]
    assert entries(gzip.decompress(Path("clean.tar.gz").read_bytes())) == R


def test_bad_data(run: Run, archive: Archive) -> None:
    """If a checksum over the whole shard fails, all samples are rejected, unless that is allowed."""
    data = bytearray(gzip.compress(tar(R), 0, mtime=0))
    data[data.index(b"k1jpg")] ^= 1
    name = archive(bytes(data), "in.tar.gz")
    ran = run("check", name, "--fix", "clean.tar", "--rejects", "left.tar", exit=1)
    assert names(ran) == ["bad-data"]
    assert entries("clean.tar") == []
    assert len(entries("left.tar")) == 6
    run("check", name, "--fix", "clean2.tar", "--allow", "bad-data", exit=None)
    assert len(entries("clean2.tar")) == 6


def test_global_header_with_names(run: Run, archive: Archive) -> None:
    """Entries after a global PAX header with names or sizes cannot be copied without it."""
    data = tar(R[:2])[:2048] + tar(R[2:], PAX, pax_headers={"GNU.sparse.name": "x.y"})
    ran = run("check", archive(data), "--fix", "clean.tar", "--rejects", "left.tar", "--json", exit=1)
    assert entries("clean.tar") == R[:2]
    account = fixed(ran)
    assert (account["kept"], account["rejected"], account["why"]) == (2, 5, {"unmovable-entry": 1})


# ---- no further losses: a model


class Memory(HeldRange):
    """A seekable source in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__("x.tar", 0, data)


def outcome(data: bytes) -> tuple[list[str], int]:
    """Return the keys of a clean copy, and the number of problems that `check` finds; count all entries."""
    plan = Salvage(Memory(data))
    keys, count = [], len(plan.keyless)
    for item in plan.samples(set(), ()):
        if isinstance(item, KeptSample):
            keys.append((item.new or item.key).decode())
            count += len(item.entries) if item.part is None else item.part.count
        else:
            count += len(item.entries)
    assert count == plan.entries
    found = ShardCheck(Memory(data), OptionalChecks())
    return keys, sum(isinstance(item, Finding) and item.level == "error" for item in found)


def test_cut_anywhere() -> None:
    """A cut archive has a problem, and keeps all samples before the cut except one that may be incomplete."""
    data = tar(rows(count=4))
    edges = {block + near for block in range(0, 4097, 512) for near in (-2, -1, 0, 1, 2)}
    for size in sorted(edges & {*range(4097)} | {*range(0, 4097, 29)}):
        whole, rest = divmod(size, 1024)  # complete entries
        unknown = rest < 512  # at the end of an entry, or within a header: the next key is unknown
        kept = [f"k{n}" for n in range((max(0, whole - 1) if unknown else whole) // 2)]
        problems = 2 if 0 < size < 1024 else 1  # without an entry the shard is unreadable as well
        assert outcome(data[:size]) == (kept, problems), size


def owners_of(members: Rows) -> list[str]:
    """Return the key of each entry."""
    return [name.split(".")[0] for name, _ in members]


def test_flipped_header_bytes() -> None:
    """A damaged header is a problem, and all samples but its neighbours are kept. Each byte is tested in one header."""
    members, draw = rows(count=3), random.Random(5)
    data, owners = tar(members), owners_of(members)
    for at in range(len(members)):
        touched = owners[max(0, at - 1) : at + 2]
        for offset in range(at, 512, len(members)):
            keys, problems = outcome(flip(data, at * 1024 + offset, 1 << draw.randrange(8)))
            if problems:
                assert keys == [key for key in dict.fromkeys(owners) if key not in touched], (at, offset)
            else:  # the checksum may end with a NUL or a space
                assert offset in (154, 155)


@each_row("seed", range(40))
def test_several_damaged_headers(seed: int) -> None:
    """With several damaged headers, exactly the samples that are not next to damage are kept."""
    draw, members = random.Random(seed), Rows()
    for n in range(draw.randint(4, 12)):
        fields = "abc"[: draw.randint(1, 3)]
        members += [(f"s{n:02}.{field}", bytes(draw.choice((0, 5, 512, 2000)))) for field in fields]
    data, owners, touched = tar(members), owners_of(members), set[str]()
    for bad in draw.sample(range(len(members)), draw.randint(1, 3)):
        start = len(body(tar(members[:bad])))
        data = flip(data, start + draw.choice((0, 100, 130, 137, 257)), 1 << draw.randrange(3))
        touched |= {*owners[max(0, bad - 1) : bad + 2]}
    keys, problems = outcome(data)
    assert problems >= 1
    assert keys == [key for key in dict.fromkeys(owners) if key not in touched]


def test_holes_of_zeros() -> None:
    """A hole of zeros over headers is not an end of the archive: its neighbours are rejected."""
    members = rows(count=8, fields="a b")
    data, owners = tar(members), owners_of(members)
    for first in range(1, 12):
        for count in (512, 1024, 1536, 3072, 4096):
            keys, problems = outcome(data[: first * 1024] + bytes(count) + data[first * 1024 + count :])
            assert problems >= 1
            assert not {*owners[first : first + -(-count // 1024)]} & {*keys}, (first, count, keys)


def test_differences_from_a_manifest_are_not_repaired(run: Run, archive: Archive, here: Path) -> None:
    """A shard whose checksum differs from the manifest is copied without repair, and the problem remains."""
    (here / "s").mkdir()
    (here / "f").mkdir()
    archive([(f"{number}.x", b"1") for number in range(4)])
    run("split", "in.tar", "-c", "2", "-o", "s/%d.tar", "--manifest", "m.tsv")
    run("check", "s/", "--manifest", "m.tsv", "--fix", "f/")
    shard = here / "s/1.tar"
    data = bytearray(shard.read_bytes())
    data[512] ^= 1
    shard.write_bytes(data)
    ran = run("check", "s/", "--manifest", "m.tsv", "--fix", "g-%d.tar", exit=1)
    assert names(ran) == ["changed-shard"]
    run("check", "s/", "--manifest", "m.tsv", "--fix", "h-%d.tar", "--allow", "changed-shard")


@each_row("zeros", [0, 512])
def test_an_allowed_end_rejects_no_sample(zeros: int, run: Run, archive: Archive) -> None:
    """With --allow no-end-marker the last sample is kept, also if one block of the end exists."""
    whole = tar([("a.x", b"1"), ("b.x", b"2")])
    archive(whole[:2048] + bytes(zeros))
    ran = run("check", "in.tar", "--fix", "clean.tar", exit=1)
    assert entries(Path("clean.tar")) == [("a.x", b"1")]
    ran = run("check", "in.tar", "--fix", "clean.tar", "--allow", "no-end-marker")
    assert "0 bytes lost" in ran.stdout.decode()
    assert entries(Path("clean.tar")) == [("a.x", b"1"), ("b.x", b"2")]


def test_verified_entries_of_a_zip(run: Run, archive: Archive) -> None:
    """Entries of a zip have checksums: samples before a wrong one are kept, except the last, which may continue."""
    archive([(f"{number}.{field}", b"%d" % number * 50) for number in range(4) for field in "xy"])
    run("cat", "in.tar", "-o", "in.zip")
    data = Path("in.zip").read_bytes()
    Path("in.zip").write_bytes(data.replace(b"2" * 50, b"2" * 49 + b"3", 1))
    run("check", "in.zip", "--fix", "clean.tar", exit=1)
    assert keys(Path("clean.tar")) == "0"
    for codec in ("gz", "zst"):
        run("cat", "in.tar", "-o", f"in.tar.{codec}")
        cut = Path(f"in.tar.{codec}")
        cut.write_bytes(cut.read_bytes()[:-6] + b"wrong!")
        run("check", str(cut), "--fix", f"clean-{codec}.tar", exit=1)
        assert not Path(f"clean-{codec}.tar").exists() or keys(Path(f"clean-{codec}.tar")) == ""
