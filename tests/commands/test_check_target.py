"""tarkit check --target: what a reader refuses or misreads, compared with webdataset if it is installed."""

from __future__ import annotations

import gzip
import io
import random
import re
import tarfile
from pathlib import Path

import pytest

import tarkit
from tests._odd import header, odd_archive, padded
from tests._tools import ROUNDS, each_row
from tests.commands.test_check import R, found, objects, rows
from tests.conftest import GNU, PAX, Archive, Link, Rows, Run, tar

F, M = "reader-refuses", "reader-misreads"
LONG = "n" * 120

# for each archive, problems and offsets by reader; a reader that is not listed reads it correctly
Table = dict[str, tuple[bytes, dict[str, list[tuple[str, int | None]]]]]
TARGETS: Table = {
    "good": (tar(R), {}),
    "one field in two spellings": (
        tar([*R, ("k3.jpg", b""), ("k3.JPG", b"")]),
        {"webdataset": [(F, 6144)], "hf": [(F, 6144)]},
    ),
    "__key__": (
        tar([*R, ("k3.__key__", b"")]),
        {"webdataset": [(F, 6144)], "ray": [(F, 6144)], "hf": [(M, 6144), (F, 6144)]},
    ),
    "__url__": (tar([("k3.__url__", b"")]), {"webdataset": [(F, 0)], "hf": [(M, 0)], "ray": [(M, 0)]}),
    "__bad__": (tar([("a.__bad__", b"1"), ("b.__bad__", b"")]), {"webdataset": [(M, 0)], "ray": [(M, 0)]}),
    "no UTF-8": (tar([("a.\udcff", b"")]), {"dali": [(F, 0)], "hf": [(F, 0)], "ray": [(F, 0)]}),
    "__index__": (tar([("__index__/a.txt", b""), *rows(fields="txt")]), {"webdataset": [(M, 0)], "energon": [(M, 0)]}),
    "__a__.txt": (tar([("__a__.txt", b"")]), {"hf": [(M, 0)]}),
    "hidden": (tar([*R, ("a/.x.y", b"")]), {each: [(M, 6144)] for each in ("webdataset", "energon", "ray")}),
    "hidden at the top": (tar([(".x.y", b""), *R]), {}),
    "line break": (
        tar([("d.1\n/a.jpg", b"")]),
        {each: [(M, 0)] for each in ("webdataset", "energon", "ray", "hf", "dali")},
    ),
    "symbolic link": (
        tar([*R, ("z.png", Link("k0.jpg", b"2")), ("z.cls", b"1")]),
        {**{each: [(M, 6144)] for each in ("webdataset", "energon", "ray", "dali")}, "hf": [(M, 6144), (F, 6144)]},
    ),
    "no ASCII": (tar([("ä.jpg", b"")]), {"dali": [(F, 0)]}),
    "a blank": (tar([("a b.jpg", b"")]), {"dali": [(M, 0)]}),
    "a backslash": (tar([("a\\b.jpg", b"")]), {"dali": [(M, 0)]}),
    "no dot": (tar([*R, ("README", b"")]), {"dali": [(M, 6144)]}),
    "PAX header": (tar([("a.jpg", b"1"), (f"{LONG}.jpg", b"2")], PAX), {"dali": [(M, 0), (M, 1024)]}),
    "PAX header of a short name": (tar([("ä.jpg", b"1"), ("b.jpg", b"2")], PAX), {"dali": [(F, 0)]}),
    "GNU long name": (tar([("a.jpg", b"1"), (f"{LONG}.jpg", b"2")], GNU), {"dali": [(M, 1024)]}),
    "GNU long name first": (tar([(f"{LONG}.jpg", b"1"), ("a.jpg", b"2")], GNU), {"dali": [(M, 0)]}),
    "no sample": (tar({}), {each: [(F, None)] for each in ("dali", "energon", "hf")}),
    "first five differ": (tar(rows(count=5)[:9]), {"hf": [(F, 8192)]}),
    "a later one has more": (tar([*rows(count=6), ("k7.png", b""), ("k8.jpg", b"")]), {"hf": [(M, 12288)]}),
    "a later one has less": (tar([*rows(count=6), ("k8.jpg", b"")]), {}),
}


@each_row("reader", ["webdataset", "dali", "energon", "ray"])
def test_target(reader: str, run: Run, archive: Archive) -> None:
    """Each rule of each reader is applied, and no other one."""
    shards = [archive(data, f"{number}.tar") for number, (data, _) in enumerate(TARGETS.values())]
    problems = objects(run("check", *shards, "--target", reader, "--json", exit=1), "problem")
    for shard, (case, (_, expected)) in zip(shards, TARGETS.items(), strict=True):
        own = [(each["problem"], each["offset"]) for each in problems if each["shard"] == shard]
        assert [each for each in own if each[0] in (F, M)] == expected.get(reader, []), case


def numbered(data: bytes) -> bytes:
    """Return an archive of `rows` with numbers in its fields cls, which hf reads as numbers."""
    return re.sub(rb"([kl]\dcls){9}", b"0" * 44 + b"1", data)


@each_row("case", TARGETS)
def test_target_hf(case: str, run: Run, archive: Archive) -> None:
    """The rules of hf are applied to one shard, since the first shard determines the columns."""
    data, expected = TARGETS[case]
    ran = run("check", archive(numbered(data)), "--target", "hf", exit=None)
    assert [each for each in found(ran) if each[0] in (F, M)] == expected.get("hf", [])


def test_files(run: Run, archive: Archive, here: Path) -> None:
    """Compressed shards, and names that ray ignores, are reported."""
    packed = archive(gzip.compress(numbered(tar(R))), "a.tgz")
    expected = {"dali": [(F, 0)], "energon": [(F, 0)], "ray": [], "webdataset": [], "hf": []}
    for reader, problems in expected.items():
        assert found(run("check", packed, "--target", reader, exit=None)) == problems
    run("cat", packed, "-o", "a.tar.zst")
    for reader in ("webdataset", "hf"):
        assert found(run("check", "a.tar.zst", "--target", reader, exit=1))[0] == (F, 0)
    assert found(run("check", "a.tar.zst", "--target", "ray")) == []
    Path("a.tar.zst").rename("a.tar")
    assert found(run("check", "a.tar", "--target", "ray", exit=1)) == [(F, 0)]


def test_keys_of_energon(run: Run, archive: Archive) -> None:
    """Keys must be unique in the whole set."""
    shards = [archive(R, "1.tar"), archive([("z.jpg", b""), *R], "2.tar")]
    assert found(run("check", *shards, "--target", "energon", exit=1)) == [
        ("repeated-key", at) for at in (512, 2560, 4608)
    ]


def test_many_problems_of_a_reader(run: Run, archive: Archive) -> None:
    """Three problems of one kind are printed, unless more are requested; all are counted."""
    members = [*rows(count=1)[1:], *rows("l", 9), ("l9.jpg", b""), ("l9.x", b"")]
    name = archive(numbered(tar(members)))
    lines = run("check", name, "--target", "hf", exit=1).printed
    problems = [line for line in lines if "[reader-" in line and not line.startswith("note: ")]
    assert len(problems) == 8
    what = "... has the additional ..., compared with the first sample"
    assert problems[3::4] == [
        f"1 more: {what}: hf requires the same fields in the first 5 [reader-refuses]; -v prints all",
        f"3 more: {what}: hf has no column for it [reader-misreads]; -v prints all",
    ]
    assert ", 10 problems" in lines[-1]
    assert len(found(run("check", name, "--target", "hf", "-v", exit=1))) == 10
    named = archive([(f"a b{number}.jpg", b"") for number in range(9)] + [("c", b"")])
    lines = run("check", named, "--target", "dali", exit=1).printed
    assert [line.partition(": ")[0] for line in lines if "[reader-" in line].count("6 more") == 1
    assert "wds2idx makes a sample of 'c'" in "".join(lines)


def test_columns_of_hf(run: Run, archive: Archive) -> None:
    """The columns are those of the first shard."""
    shards = [archive(numbered(tar(R)), "1.tar"), archive(rows("l", fields="png"), "2.tar")]
    assert found(run("check", *shards, "--target", "hf")) == []
    assert found(run("check", *reversed(shards), "--target", "hf")) == []


# ---- comparison with webdataset


def read_by_webdataset(path: str) -> list[tuple[str, dict[str, bytes]]]:
    """Return keys and fields as webdataset reads them."""
    wds = pytest.importorskip("webdataset")
    own = ("__key__", "__url__", "__local_path__")
    samples = wds.WebDataset(path, shardshuffle=False, empty_check=False)
    return [(each["__key__"], {name: data for name, data in each.items() if name not in own}) for each in samples]


ORACLE: list[Rows] = [  # beside the archives of TARGETS
    [("a.JPG", b""), ("a.cls", b"")],
    [("a.__x__", b"")],
    [("__a__", b""), ("b.x", b"")],
    [("x/__a__/b.x", b"")],
    [("__x/y__/a.jpg", b"")],
    [("d.1/README", b""), ("b.x", b"")],
    [("d\n/a.jpg", b"")],
    [("a\n.jpg", b"")],
    [("a.j\npg", b"")],
    [("x.", b"")],
    [("x..y", b"")],
]


@each_row("data", [*(data for data, _ in TARGETS.values()), *map(tar, ORACLE)])
def test_webdataset_agrees(data: bytes, run: Run, archive: Archive) -> None:
    """webdataset fails if `reader-refuses` is reported, differs if `reader-misreads` is, and else agrees."""
    name = archive(data)
    seen = {problem for problem, _ in found(run("check", name, "--target", "webdataset", exit=None))}
    if "reader-refuses" in seen:
        with pytest.raises(ValueError, match="duplicate file name"):
            read_by_webdataset(name)
    else:
        ours = [(sample.key, [field.lower() for field in sample]) for sample in tarkit.open(name)]
        theirs = [(key, [*fields]) for key, fields in read_by_webdataset(name)]
        assert (theirs != ours) == ("reader-misreads" in seen)


COUNT = 100 * ROUNDS  # of odd archives
READERS = {F, M}


def claims(path: str, reader: str) -> set[str] | None:
    """Return what check says of a reader and an archive; None where the archive has other problems."""
    found = {each.name for each in tarkit.check(path, target=reader).findings if each.level == "error"}  # type: ignore[arg-type]
    return None if found - READERS else found


def test_webdataset_agrees_on_odd_archives(here: Path) -> None:
    """The same for names, types and extension headers drawn at random: no verdict is false."""
    for seed in range(COUNT):
        Path("odd.tar").write_bytes(odd_archive(random.Random(seed)))
        said = claims("odd.tar", "webdataset")
        if said is None:
            continue
        try:
            read = read_by_webdataset("odd.tar")
        except (ValueError, tarfile.TarError):
            assert said, seed
            continue
        assert said != {F}, seed
        ours = ((each.key, {k.lower(): v for k, v in each.items()}) for each in tarkit.open("odd.tar"))
        assert (M not in said and read == [*ours]) == (not said), seed


def test_incremental_archives(run: Run, archive: Archive) -> None:
    """In headers of GNU tar --incremental Python's tarfile takes times for a directory; wds2idx uses GNU tar."""
    data = b"".join(header(name, 1, b"0", times=True) + padded(b"1") for name in (b"a.txt", b"a.bin")) + bytes(1024)
    for reader in ("webdataset", "hf", "energon", "ray"):
        ran = run("check", archive(data), "--target", reader, exit=1)
        assert found(ran)[:2] == [(M, 0), (M, 1024)]
        assert f"Python's tarfile, which {reader} uses, reads '15302050443/a.txt', not 'a.txt'" in ran.stdout.decode()
    run("check", archive(data), "--target", "dali")


def test_a_global_header_at_the_end(run: Run, archive: Archive) -> None:
    """Python's tarfile raises an error where no entry follows a global header; the clean copy is without it."""
    data = header(b"a.txt", 1, b"0") + padded(b"1")
    data += header(b"pax_global_header", 13, b"g") + padded(b"13 comment=g\n") + bytes(1024)
    with pytest.raises(tarfile.ReadError):
        tarfile.open(fileobj=io.BytesIO(data)).getnames()
    for reader in ("webdataset", "hf", "energon", "ray"):
        ran = run("check", archive(data), "--target", reader, exit=1)
        assert found(ran) == [(F, 1024)]
    run("check", archive(data), "--target", "dali")
    run("check", archive(data), "--fix", "fixed.tar")
    run("check", "fixed.tar", "--target", "webdataset")


NULLS = ['{"n": null}'] * 5


@each_row(
    ("field", "values", "expected"),
    [
        ("txt", ["a", "", "\xe9"], []),
        ("TXT", ["a", b"\xff"], [(F, 1)]),
        ("x.cls", [" 1\n", "-3"], []),
        ("cls", ["1", "1.5", "", "cat"], [(F, 1), (F, 2), (F, 3)]),
        ("index", ["9223372036854775808"], [(F, 0)]),
        ("json", [*NULLS, '{"n": "s"}'], [(F, 5)]),
        ("json", [*NULLS[:4], '{"n": "s"}', '{"n": "t"}', '{"n": null}'], []),
        ("json", ['{"n": 1}', '{"n": 1.5}'], [(F, 1)]),
        ("json", ["[1, 2.5]", "[]", "[null]", "null", "[]", "[7]"], []),
        ("json", ['["s", 1]', "[", b"\xff"], [(F, 0), (F, 1), (F, 2)]),
        ("json", ['{"n": 1}'] * 5 + ['{"n": 1, "m": 2}', '{"n": true}', "{}"], [(M, 5)]),
        ("json", ["1"] * 5 + ["2.0", "2.5", '"5"', "[]"], [(M, 6), (M, 7), (M, 8)]),
        ("jsn", ["true"] * 5 + ["1", "7", "null"], [(M, 6)]),
        ("json", ["[]"] * 5 + ["[1]", "{}"], [(F, 5), (M, 6)]),
        ("bin", [b"\xff"], []),
    ],
)
def test_contents_for_hf(
    field: str, values: list[str | bytes], expected: list[tuple[str, int]], run: Run, archive: Archive
) -> None:
    """Texts, numbers and JSON are what Hugging Face datasets takes and does not change."""
    contents = [each.encode() if isinstance(each, str) else each for each in values]
    starts = [sum(512 + len(data) + -len(data) % 512 for data in contents[:n]) for n in range(len(contents))]
    name = archive([(f"{n}.{field}", data) for n, data in enumerate(contents)])
    assert found(run("check", name, "--target", "hf", "-v", exit=None)) == [(each, starts[n]) for each, n in expected]


def test_contents_that_are_not_read_for_hf(run: Run, archive: Archive) -> None:
    """What the library decodes and check does not is a note; types of JSON are compared in the first shard alone."""
    shards = [archive({"a.json": b"1", "a.npy": b"x", "a.jpg": b""}, "1.tar"), archive({"b.json": b'"s"'}, "2.tar")]
    ran = run("check", *shards, "--target", "hf")
    assert [each for each in found(ran, notes=True) if each[0] == "reader-unchecked"] == [
        ("reader-unchecked", None)
    ] * 2
    assert "hf decodes 'jpg', 'npy': such contents are not checked" in ran.stdout.decode()
    assert "hf converts 'json' to the types in the first shard, which are not compared" in ran.stdout.decode()
