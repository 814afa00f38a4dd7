"""tarkit check --leak and --unique --by: the same content under other keys, in two sets or in one."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path

import pytest

import tarkit
from tarkit.checking import leaks, near
from tarkit.spill import multimap
from tests._tools import each_row
from tests.commands.test_check import names, objects
from tests.conftest import Archive, Feed, Ran, Run, each_feed, tar

TRAIN = {"t/0.txt": b"one", "t/0.cls": b"1", "t/1.txt": b"two", "t/2.txt": b"three", "t/3.txt": b"two"}
VAL = {"v/0.txt": b"two", "v/1.txt": b"4", "v/2.txt": b"two", "t/2.txt": b"other"}


def lines(ran: Ran) -> list[str]:
    """Return the lines of problems, and the last one."""
    text = ran.printed
    return [line for line in text if line.endswith("]")] + text[-1:]


@each_feed
def test_two_sets(run: Run, archive: Archive, feed: Feed) -> None:
    """Each sample of this set whose value is in the other is reported once, with one of the others."""
    train, val = feed(archive(TRAIN, "train.tar")), archive(VAL, "val.tar")
    ran = run("check", train, "--leak", val, "--by", "sha256.txt", exit=1)
    assert lines(ran) == [
        f"{train}: at 2048: 't/1' has the sha256.txt of 'v/0' in val.tar at 0, and of 1 more [leak]",
        f"{train}: at 4096: 't/3' has the sha256.txt of 'v/0' in val.tar at 0, and of 1 more [leak]",
        f"2 of 4 samples of {train} have the sha256.txt of one of 4 samples of val.tar",
    ]
    assert lines(run("check", val, "--leak", train, "--by", "__key__", exit=1)) == [
        f"val.tar: at 3072: 't/2' is in {train} at 3072 too [leak]",
        f"1 of 4 samples of val.tar has the __key__ of one of 4 samples of {train}",
    ]
    run("check", train, "--leak", archive({"a.txt": b"x"}, "x.tar"), "--by", "txt")


@pytest.mark.forks
def test_one_set(run: Run, archive: Archive) -> None:
    """With --unique each sample is reported that has the value of an earlier one, in any shard."""
    train, val = archive(TRAIN, "train.tar"), archive(VAL, "val.tar")
    for words in ([], ["-p", "2"]):
        ran = run("check", train, val, "--unique", "--by", "txt", *words, exit=1)
        assert lines(ran) == [
            "train.tar: at 4096: 't/3' has the txt of 't/1' in train.tar at 2048, and of 2 more [duplicate-sample]",
            "val.tar: at 0: 'v/0' has the txt of 't/1' in train.tar at 2048, and of 2 more [duplicate-sample]",
            "val.tar: at 2048: 'v/2' has the txt of 't/1' in train.tar at 2048, and of 2 more [duplicate-sample]",
            "3 of 8 samples of train.tar and 1 more have the txt of an earlier one",
        ]
    assert run("check", train, val, "--unique", "--by", "txt", "--list-bad", exit=1).stdout == b"train.tar\nval.tar\n"
    run("check", train, val, "--unique", "--by", "txt", "--allow", "duplicate-sample")


def test_json_report_and_python(run: Run, archive: Archive) -> None:
    """--json and the Python API name the other sample."""
    train, val = archive(TRAIN, "train.tar"), archive(VAL, "val.tar")
    ran = run("check", train, "--leak", val, "--by", "txt", "--json", exit=1)
    other = {"shard": "val.tar", "offset": 0, "key": "v/0", "bits": 0}
    assert [each["other"] for each in objects(ran, "problem")] == [other, other]
    total = {"type": "compared", "by": "txt", "distance": 0, "samples": 4, "others": 4, "found": 2}
    assert objects(ran, "compared") == [total]
    report = tarkit.check(train, leak=[val], by="txt")
    assert [(each.key, each.other and each.other.key) for each in report] == [(b"t/1", b"v/0"), (b"t/3", b"v/0")]
    assert not report.ok
    assert tarkit.check([train, val], unique=True, by="__key__").findings[0].name == "duplicate-sample"


def test_what_cannot_be_compared(run: Run, archive: Archive) -> None:
    """A sample without the value, and damage, are problems: nothing is left out silently."""
    train, val = archive({**TRAIN, "t/4.cls": b"1"}, "train.tar"), archive(VAL, "val.tar")
    assert names(run("check", train, "--leak", val, "--by", "txt", exit=1)) == ["missing-field", "leak", "leak"]
    ran = run("check", train, "--leak", val, "--by", "txt", "--allow", "missing-field,leak")
    assert set(names(ran, notes=True)) == {"missing-field", "leak"}
    assert set(names(run("check", val, "--leak", train, "--by", "width.txt", exit=1))) == {"bad-field", "missing-field"}
    Path("cut.tar").write_bytes(tar(VAL)[:2000])
    ran = run("check", train, "--leak", "cut.tar", "no.tar", "--by", "__key__", exit=1)
    assert set(names(ran)) == {"truncated", "unreadable-shard"}


def test_views_and_random_sets(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random sets the leaks are exact, in memory and on disk; those of a view are those of its samples."""
    draw = random.Random(5)
    sets = [{f"{side}{number:03}.x": b"%d" % draw.randrange(400) for number in range(200)} for side in "ab"]
    shards = [archive(content, f"{side}.tar") for side, content in zip("ab", sets, strict=True)]
    expected = sorted(key[:-2] for key, value in sets[0].items() if value in sets[1].values())
    for held in (1 << 20, 2000):
        monkeypatch.setattr(multimap, "HELD", held)
        ran = run("check", shards[0], "--leak", shards[1], "--by", "x", "--json", exit=1)
        assert [each["key"] for each in objects(ran, "problem")] == expected
    pytest.importorskip("pyarrow")
    run("cat", shards[0], "-o", "a.view.parquet")
    ran = run("check", "a.view.parquet", "--leak", shards[1], "--by", "x", "--json", exit=1)
    assert [(each["key"], each["offset"]) for each in objects(ran, "problem")] == [(key, None) for key in expected]


def test_values_like_those_that_are_kept(run: Run, archive: Archive) -> None:
    """A long value is kept as its SHA-256: a value that looks like what is kept is another one, at any length."""
    values = [b"x" * length for length in (0, 31, 32, 33, 34, 63, 64, 65, 66, 10_000)]
    values += [mark + form for value in values for form in forms(value) for mark in (b"", b"#")]
    archive({f"{number:03}.x": value for number, value in enumerate(dict.fromkeys(values))}, "a.tar")
    archive({f"{number:03}.y": value for number, value in enumerate(values)}, "b.tar")
    run("check", "a.tar", "--unique", "--by", "x")
    ran = run("check", "b.tar", "--unique", "--by", "y", "--json", exit=1)
    assert len(objects(ran, "problem")) == len(values) - len(set(values))


def forms(value: bytes) -> tuple[bytes, ...]:
    """Return what may be kept of a value."""
    digest = sha256(value)
    return value, digest.digest(), digest.hexdigest().encode()


# ---- Pictures that look alike


def changed(draw: random.Random, value: int, limit: int) -> int:
    """Return a hash with less than `limit` changed bits."""
    for bit in draw.sample(range(64), draw.randrange(limit)):
        value ^= 1 << bit
    return value


@pytest.mark.slow
@each_row("distance", [1, 2, 3, 5, 8, 16])
def test_near_pairs(distance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs within a distance are found, however many blocks are equal in a plan, and in parts."""
    numpy = pytest.importorskip("numpy")
    draw = random.Random(distance)
    base = [draw.getrandbits(64) for _ in range(30)]
    hashes = [changed(draw, draw.choice(base), 8) for _ in range(200)]
    pairs = {(one, other) for other in range(200) for one in range(other)}
    expected = {(i, j, bits) for i, j in pairs if (bits := (hashes[i] ^ hashes[j]).bit_count()) <= distance}
    monkeypatch.setattr(near, "PART", 60)
    for equal in (None, 0, 1, 2):
        if equal is not None:
            monkeypatch.setattr(near, "_plan", lambda count, bits, equal=equal: (bits + equal, equal))
        arrays = near.near_pairs(numpy.array(hashes, "u8"), distance)
        found = [row for part in arrays for row in zip(*(column.tolist() for column in part), strict=True)]
        assert {(min(i, j), max(i, j), bits) for i, j, bits in found} == expected


def test_pictures(run: Run, archive: Archive) -> None:
    """Planted duplicates are found: the same bytes, recompressed and resized; no other picture is."""
    pytest.importorskip("numpy")
    pytest.importorskip("PIL.Image")
    from tests.decoding.test_phash import landscape, stored

    pictures = [landscape(seed) for seed in range(40)]
    val = {
        "v0.jpg": stored(pictures[3]),
        "v1.jpg": stored(pictures[5], quality=50),
        "v2.jpg": stored(pictures[7].resize((224, 224))),
        "v3.jpg": stored(pictures[8], "PNG"),
        **{f"w{seed}.jpg": stored(landscape(seed)) for seed in range(40, 60)},
    }
    train = archive({f"t{number:02}.jpg": stored(picture) for number, picture in enumerate(pictures)}, "train.tar")
    ran = run("check", train, "--leak", archive(val, "val.tar"), "--by", "phash.jpg", "--json", exit=1)
    problems = objects(ran, "problem")
    pairs = [(each["key"], each["other"]["key"]) for each in problems]  # type: ignore[index]
    assert pairs == [("t03", "v0"), ("t05", "v1"), ("t07", "v2"), ("t08", "v3")]
    assert all(each["other"]["bits"] <= leaks.DISTANCE for each in problems)  # type: ignore[index]
    text = run("check", train, "--leak", "val.tar", "--by", "phash.jpg:0", exit=1).stdout.decode()
    assert "'t03' has the phash.jpg of 'v0' in val.tar at 0 [leak]" in text


def test_hashes_of_a_view(run: Run, archive: Archive) -> None:
    """Hashes may be a column of a view. Near ones are found in one set and in two, as in a model."""
    pytest.importorskip("numpy")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    draw = random.Random(2)
    base = [draw.getrandbits(64) for _ in range(20)]
    hashes = [changed(draw, draw.choice(base), 6) for _ in range(80)]
    archive({f"{number:02}.x": b"" for number in range(80)}, "a.tar")
    run("cat", "a.tar", "-o", "a.view.parquet")
    table = parquet.read_table("a.view.parquet")
    table = table.append_column("phash.jpg", pyarrow.array([f"{value:016x}" for value in hashes]))
    for name, rows in (("a", table), ("one", table.slice(0, 40)), ("two", table.slice(40))):
        parquet.write_table(rows, f"{name}.view.parquet")

    def nearest(number: int, others: range) -> tuple[int, int] | None:
        """Return the bits and the key of the nearest hash among others, the first of several; None for none."""
        return min(((hashes[number] ^ hashes[other]).bit_count(), other) for other in others) if others else None

    for words, own, others in (
        ("a.view.parquet --unique", range(80), range),
        ("one.view.parquet --leak two.view.parquet", range(40), lambda number: range(40, 80)),
    ):
        ran = run("check", *words.split(), "--by", "phash.jpg:4", "--json", exit=1)
        seen = {int(str(each["key"])): each["other"]["bits"] for each in objects(ran, "problem")}  # type: ignore[index]
        model = {number: found for number in own if (found := nearest(number, others(number)))}
        assert seen == {number: bits for number, (bits, _) in model.items() if bits <= 4}
