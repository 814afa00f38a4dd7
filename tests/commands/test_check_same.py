"""tarkit check --same-as: whether two sets have the same samples in any order, and the differences."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from tarkit.checking import digest
from tarkit.spill import multimap
from tarkit.streams import source
from tests._tools import each_row
from tests.commands.test_check import R, found, names, objects, rows
from tests.conftest import GNU, PAX, Archive, Feed, Link, Ran, Rows, Run, each_feed, tar

DATA = Path(__file__).parents[1] / "data"


def messages(ran: Ran) -> list[str]:
    """Return the messages of problems."""
    return [line for line in ran.printed if line.endswith("]")]


@pytest.mark.forks
@each_feed
def test_the_same(run: Run, archive: Archive, feed: Feed) -> None:
    """Samples in another order, other shards, with reordered fields, other headers and other times are the same."""
    members = [*rows("a", 4), ("README", b"x"), *rows("b", 5)]
    name = feed(archive(members))
    samples: list[Rows] = [members[at : at + 2] for at in (*range(0, 8, 2), *range(9, 19, 2))]
    random.Random(1).shuffle(samples)
    mixed = [row for sample in samples for row in reversed(sample)]
    shards = [
        archive(tar([("folder", None), *mixed[:10]], GNU), "1.tar"),
        archive(tar([*mixed[10:], ("README", b"x")], PAX), "2.tar"),
    ]
    for words in ([], ["-p", "2"]) if feed.kind == "file" else ([],):
        ran = run("check", name, "--same-as", *shards, *words)
        one, two, last = ran.printed
        assert one.partition(": ")[2] == two.partition(": ")[2]
        assert one.startswith(f"this set, {name}: 10 samples, 19 entries, fingerprint ")
        assert last == "the same samples"
    assert objects(run("check", name, "--same-as", *shards, "--json"), "summary")[0]["same"] is True


@pytest.mark.forks
@each_feed
def test_differences(run: Run, archive: Archive, feed: Feed) -> None:
    """Each missing, added or changed sample is reported once, with its position and fields."""
    one = archive(rows("k", 6), "1.tar")
    changed: Rows = [*rows("k", 6)[:2], ("k1.cls", b"other"), ("k1.jpg", R[3][1]), ("k2.cls", R[4][1])]
    changed += [("k3.cls", rows("k", 6)[6][1]), ("k3.jpg", rows("k", 6)[7][1]), ("k3.txt", b"new"), ("l.cls", b"1")]
    two = feed(archive(changed, "2.tar"))
    for words in ([], ["-p", "2"]) if feed.kind == "gzip" else ([],):
        ran = run("check", one, "--same-as", two, *words, exit=1)
        assert messages(ran) == [
            f"1.tar: at 8192: 'k4' ('cls', 'jpg') is not in {two} [extra-sample]",
            f"1.tar: at 10240: 'k5' ('cls', 'jpg') is not in {two} [extra-sample]",
            f"{two}: at 2048: 'k1' differs in 'cls', compared with 1.tar at 2048 [changed-sample]",
            f"{two}: at 4096: 'k2' has no 'jpg', compared with 1.tar at 4096 [changed-sample]",
            f"{two}: at 5120: 'k3' has the additional field 'txt', compared with 1.tar at 6144 [changed-sample]",
            f"{two}: at 8192: 'l' ('cls') is only in {two} [missing-sample]",
        ]
        assert ran.printed[-1] == "not the same samples"
    assert names(run("check", two, "--same-as", one, exit=1)).count("changed-sample") == 3


def test_many_differences(run: Run, archive: Archive, here: Path) -> None:
    """Of each kind three differences of a shard are printed, unless more are requested; totals are printed by set."""
    (here / "d").mkdir()
    archive([*rows("a", 9), *rows("b", 9, "x")], "d/1.tar")
    archive([*rows("a", 9), *rows("c", 4)], "d/2.tar")
    archive([(f"b{number}.x", b"other") for number in range(9)], "3.tar")
    ran = run("check", "3.tar", "--same-as", "d", exit=1)
    lines = ran.printed
    extra = [line for line in lines if line.endswith(" is only in d [missing-sample]")]
    assert len(extra) == 6
    assert [line for line in lines if "more" in line] == [
        "16 more in 2 shards [missing-sample]; -v prints all",
        "6 more [changed-sample]; -v prints all",
    ]
    assert lines[-2].startswith("the other, d: ")
    assert len(messages(run("check", "3.tar", "--same-as", "d", "-v", exit=1))) == 31
    assert len(objects(run("check", "3.tar", "--same-as", "d", "--json", exit=1), "problem")) == 31
    ran = run("check", "d/1.tar", "d/2.tar", "--allow", "repeated-key", "--same-as", "3.tar", exit=1)
    assert "d/1.tar: at 0: 'a0' ('cls', 'jpg') is not in 3.tar [extra-sample]" in messages(ran)
    assert "\nthis set, d/1.tar and 1 more: " in ran.stdout.decode()


CHANGES: list[tuple[str, Rows, Rows]] = [
    ("key", [("a.x", b"1")], [("b.x", b"1")]),
    ("case of a field", [("a.x", b"1")], [("a.X", b"1")]),
    ("where the key ends", [("a.b.x", b"1")], [("a/b.x", b"1")]),
    ("once more", [("a.x", b"1")], [("a.x", b"1"), ("b.x", b"1"), ("a.x", b"1")]),
    ("moved content", [("a.x", b"12"), ("a.y", b"3")], [("a.x", b"1"), ("a.y", b"23")]),
    ("swapped contents", [("a.x", b"1"), ("a.y", b"2")], [("a.x", b"2"), ("a.y", b"1")]),
    ("scattered", [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3")], [("a.x", b"1"), ("b.x", b"3"), ("a.y", b"2")]),
    ("an empty entry more", [("a.x", b"1")], [("a.x", b"1"), ("a.y", b"")]),
    ("a link for a file", [("a.x", b"")], [("a.x", Link("b", b"2"))]),
    ("a file that says what a link is", [("a.x", b"2 -1 b")], [("a.x", Link("b", b"2"))]),
    ("target of a link", [("a.x", Link("c", b"2"))], [("a.x", Link("b", b"2"))]),
    ("key or no key", [("a", b"1")], [("a.", b"1")]),
    ("without key", [("a", b"1")], [("a", b"2")]),
    ("mispaired", [("a.x", b"1"), ("a.y", b"1"), ("b.x", b""), ("a.x", b"2"), ("a.y", b"2")],
     [("a.x", b"1"), ("a.y", b"2"), ("b.x", b""), ("a.x", b"2"), ("a.y", b"1")]),
]  # fmt: skip


@each_row(("what", "one", "two"), CHANGES)
def test_every_change_is_seen(what: str, one: Rows, two: Rows, run: Run, archive: Archive) -> None:
    """A change is reported in both directions; a changed set is the same as itself."""
    first, second = archive(one, "1.tar"), archive(two, "2.tar")
    for pair in ((first, second), (second, first)):
        ran = run("check", pair[0], "--same-as", pair[1], exit=1)
        assert set(names(ran)) <= {"extra-sample", "missing-sample", "changed-sample"}
        assert names(ran)
    run("check", second, "--same-as", second)


def test_differences_are_exact(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random sets the reported differences are exact, in memory and on disk."""
    draw = random.Random(7)
    one = {f"{draw.randrange(300):03}": draw.randbytes(3) for _ in range(150)}
    two = dict(one)
    for key in draw.sample(sorted(one), 60):
        change = draw.choice(("drop", "change", "keep"))
        if change == "drop":
            del two[key]
        elif change == "change":
            two[key] = b"changed"
    two |= {f"n{number}": b"" for number in range(20)}
    shuffled = sorted(two, key=lambda _: draw.random())
    archive({f"{key}.x": data for key, data in one.items()}, "1.tar")
    for n in range(3):
        archive({f"{key}.x": two[key] for key in shuffled[n::3]}, f"2-{n}.tar")
    expected = {("extra-sample", key) for key in one.keys() - two.keys()}
    expected |= {("missing-sample", key) for key in two.keys() - one.keys()}
    expected |= {("changed-sample", key) for key in one.keys() & two.keys() if one[key] != two[key]}
    outputs = set()
    for held in (1 << 20, 3000, 200):
        monkeypatch.setattr(multimap, "HELD", held)
        ran = run("check", "1.tar", "--same-as", "2-{0..2}.tar", "--json", exit=1)
        seen = [(each["problem"], each["key"]) for each in objects(ran, "problem")]
        assert len(seen) == len(expected)
        assert set(seen) == expected
        outputs.add(ran.stdout)
    assert len(outputs) == 1


def test_damaged_shards_have_no_verdict(run: Run, archive: Archive) -> None:
    """Two shards with the same damage are not the same, unless it is allowed; their differences are reported."""
    name = archive(tar(R)[:6144], "1.tar")
    ran = run("check", name, "--same-as", name, exit=1)
    assert set(found(ran)) == {("no-end-marker", 6144)}
    assert ran.printed[-1] == "no verdict: some shards are damaged"
    assert run("check", name, "--same-as", name, "--allow", "no-end-marker").stdout.endswith(b"\nthe same samples\n")
    other = archive(tar(R)[:4096], "2.tar")
    for pair in ((name, other), (other, name)):
        ran = run("check", pair[0], "--same-as", pair[1], exit=1)
        assert len(messages(ran)) > 2
        assert ran.printed[-1] == "no verdict: some shards are damaged"
        ran = run("check", pair[0], "--same-as", pair[1], "--allow", "no-end-marker", exit=1)
        assert ran.printed[-1] == "not the same samples"


@pytest.mark.slow
@pytest.mark.forks
@each_row(
    ("these", "others"),
    [
        (["no.tar"], ["none.tar"]),
        (["no.tar"], ["no.tar"]),
        (["in.tar", "no.tar"], ["in.tar"]),
        (["in.tar"], ["no.tar", "in.tar"]),
        (["in.tar", "no.tar"], ["in.tar", "no.tar"]),
        (["{in,no}.tar"], ["in.tar"]),
        (["-T", "list"], ["in.tar"]),
        (["locked.tar"], ["locked.tar"]),
        (["pipe:cat in.tar; exit 3"], ["in.tar"]),
        (["in.tar"], ["pipe:exit 3"]),
        (["bad.tar.gz"], ["bad.tar.gz"]),
        (["zero.tar"], ["zero.tar"]),
        (["garbage"], ["garbage"]),
    ],
)
def test_no_verdict(these: list[str], others: list[str], run: Run, archive: Archive, here: Path) -> None:
    """If a shard of either set is unreadable, there is no verdict and no difference."""
    name = archive(R)
    (here / "list").write_text("in.tar\nno.tar\n")
    (here / "locked.tar").symlink_to("locked.tar")
    (here / "bad.tar.gz").write_bytes(gzip.compress((here / name).read_bytes())[:-9])
    (here / "zero.tar").write_bytes(b"")
    (here / "garbage").write_bytes(b"garbage" * 1000)
    for words in ([], ["-p", "2"], ["--allow", "unreadable-shard"]):
        ran = run("check", *these, "--same-as", *others, *words, "--report", "report", exit=1)
        assert ran.printed[-1].startswith("no verdict: ")
        assert b"the same samples" not in ran.stdout
        assert (b"fingerprint" in ran.stdout) == (b"no verdict: some shards are damaged" in ran.stdout)
        assert not {"extra-sample", "missing-sample", "changed-sample"} & set(names(ran))
        assert json.loads((here / "report").read_text())["same"] is None
    assert objects(run("check", *these, "--same-as", *others, "--json", exit=1), "summary")[0]["same"] is None


def test_a_list_from_stdin(run: Run, archive: Archive) -> None:
    """stdin is read once, even if a shard that it lists is missing."""
    listed = f"{archive(R)}\nno.tar\n".encode()
    assert names(run("check", "-T", "-", stdin=listed, exit=1)) == ["unreadable-shard"]
    ran = run("check", "-T", "-", "--same-as", "in.tar", stdin=listed, exit=1)
    assert ran.printed[-1] == "no verdict: no.tar could not be read"


def test_arguments(run: Run, archive: Archive, here: Path) -> None:
    """All arguments after --same-as, up to the next option, are the other set."""
    one = archive(R)
    two, three = archive(R[:2], "2.tar"), archive(R[2:], "3.tar")
    for words in (
        [one, "--same-as", two, three],
        [one, "--same-as", two, "--same-as", three],
        [one, f"--same-as={two}", three, "-p", "1"],
        ["--same-as", two, three, "-p", "1", one],
        [one, "--same-as", "{2..3}.tar"],
    ):
        run("check", *words)
    run("check", one, "--same-as", two, exit=1)
    run("check", "--same-as", two, three, stdin=here / one)
    assert sorted(os.listdir(here)) == ["2.tar", "3.tar", "in.tar"]


@each_row("kind", ["sparse-0.0", "sparse-0.1", "sparse-1.0", "sparse-old"])
def test_sparse_files(kind: str, run: Run) -> None:
    """Sparse files are compared as they are stored."""
    run("check", DATA / f"gnu-{kind}.tar", "--same-as", DATA / f"gnu-{kind}.tar")


def test_long_entries(run: Run, archive: Archive, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries larger than a window are hashed in pieces, in streams as well."""
    monkeypatch.setattr(digest, "_CHUNK", 1 << 12)
    monkeypatch.setattr(source, "CHUNK", 1 << 12)
    big = random.Random(2).randbytes(30_001)
    name = archive([("a.bin", big), ("a.cls", b"1"), ("b.bin", big[:-1]), ("b.cls", b"2")])
    (here / "x.tar.gz").write_bytes(gzip.compress((here / name).read_bytes(), 0))
    run("check", name, "--same-as", "x.tar.gz")
    run("check", name, "--same-as", f"pipe:cat {name}")
    other = archive([("a.bin", big[:-1] + b"?"), ("a.cls", b"1"), ("b.bin", big[:-1]), ("b.cls", b"2")], "2.tar")
    assert [line.split(": ")[2] for line in messages(run("check", name, "--same-as", other, exit=1))] == [
        "'a' differs in 'bin', compared with in.tar at 0 [changed-sample]"
    ]
