"""tarkit cat: the output, to the byte, from files, pipes and compressed files."""

from __future__ import annotations

import gzip
import json
import os
import random
import shlex
import stat
import tarfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tarkit.problems import PROBLEMS
from tarkit.samples import reader
from tarkit.streams import source
from tests._feeds import in_turn
from tests._tools import each_row
from tests.conftest import (
    GNU,
    KINDS,
    PAX,
    Archive,
    Content,
    Feed,
    Link,
    Run,
    body,
    each_feed,
    entries,
    keys,
    pairs,
    pick,
    tar,
)

DATA = Path(__file__).parents[1] / "data"
GOLDEN = sorted(path for path in DATA.glob("*.tar") if "multivolume" not in path.name)

ABC: dict[str, Content] = {
    "a.jpg": b"A" * 600,  # header at 0
    "a.json": b'{"n": 1}',  # at 1536
    "b.jpg": b"B" * 600,  # at 2560
    "b.json": b'{"n": 2}',  # at 4096
    "c.jpg": b"C" * 600,  # at 5120
    "c.json": b'{"n": 3}',  # at 6656, end marker at 7680
}
SIX: dict[str, Content] = {
    f"{directory}/{key}.{field}": f"{directory}{key}{field}".encode()
    for directory in "de"
    for key in "abc"
    for field in ("cls", "jpg")
}


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make samples over 2 KiB large, and limit the window, and a splice, to 32 KiB."""
    monkeypatch.setattr(reader, "LARGE", 1 << 11)
    for name in ("CHUNK", "HELD", "SPLICED"):
        monkeypatch.setattr(source, name, 1 << 15)


# ---- whole archives


ENDS = [1024, 1536, 10240 - 7680 % 10240, 70_144, 1_000_448]
WHOLE = [*(path.read_bytes() for path in GOLDEN), *(tar(ABC)[:7680] + bytes(zeros) for zeros in ENDS)]


@each_row(("data", "feed"), in_turn([*WHOLE, tar({}), bytes(1024)], 0))
def test_a_whole_archive_is_copied_unchanged(data: bytes, run: Run, archive: Archive, feed: Feed) -> None:
    """cat of one whole archive is that archive to the last byte, by any writer, with any length of its end."""
    assert run("cat", feed(archive(data))).stdout == data


@each_feed
def test_selected_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """Names that are no UTF-8 are selected and copied unchanged; an archive without entries is no error."""
    members: dict[str, Content] = {"\udce9.jpg": b"1", "\udcff/\n.jpg": b"2", "é.jpg": b"3"}
    assert run("cat", feed(archive(members)), "--match", "\udcff|é").stdout == tar([*members.items()][1:])
    assert run("cat", feed(archive(bytes(1024))), "--match", "x").stdout == tar({})


# ---- entries without key

STRAYS: list[tuple[str, Content]] = [
    ("d", None),
    ("d/a.jpg", b"1"),
    ("d/README", b"2"),
    ("d/a.json", b"3"),
    ("d/.hidden", b"4"),
    ("d/b.jpg", b"5"),
    ("d/c.jpg", b"6"),
    ("LAST", b"7"),
]


@each_row(
    ("pattern", "rows", "feed"),
    in_turn([("a$", [0, 1, 2, 3]), ("b$", [4, 5]), ("c$", [6, 7]), ("[ac]$", [0, 1, 2, 3, 6, 7]), ("x", [])]),
)
def test_entries_without_key_belong_to_a_sample(
    pattern: str, rows: list[int], run: Run, archive: Archive, feed: Feed
) -> None:
    """An entry without a key inside a sample belongs to it, others to the next sample, at the end to the last."""
    out = run("cat", feed(archive(STRAYS)), "--match", pattern).stdout
    assert out == tar([STRAYS[row] for row in rows])


@each_feed
def test_archive_without_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """Entries without a key are copied if everything is; they are no sample, and are not counted or selected."""
    members: list[tuple[str, Content]] = [("d", None), ("README", b"1"), (".x.y", b"2")]
    word = feed(archive(members))
    assert run("cat", word).stdout == tar(members)
    ran = run("cat", word, feed("in.tar"), "--report", "r.json")
    assert entries(ran.stdout) == members + members
    assert json.loads(Path("r.json").read_text())["samples"] == 0
    assert run("cat", word, "-c", "5").stdout == tar({})


# ---- select

SELECT = [
    ("--match ^d/", "d/a d/b d/c"),
    ("--match a$", "d/a e/a"),
    ("--match [bc]", "d/b d/c e/b e/c"),
    ("--match .", "d/a d/b d/c e/a e/b e/c"),
    ("--match x", ""),
    ("--match cls", ""),  # only the key is matched
    ("--keys-from list", "d/b e/a"),  # in the order of the archive
    ("--keys-from table.tsv:id", "d/a e/b"),
    ("--keys-from table.csv:id", "d/a e/c"),
    ("--keys-from table.jsonl:id", "d/c e/c"),
    ("--sample 0 --seed 1", ""),
    ("--sample 1.0 --seed 1", "d/a d/b d/c e/a e/b e/c"),
    ("--slice 2:4", "d/c e/a"),
    ("--slice :2", "d/a d/b"),
    ("--slice 4:", "e/b e/c"),
    ("--slice ::2", "d/a d/c e/b"),
    ("--slice 1::2", "d/b e/a e/c"),
    ("--slice 1:5:3", "d/b e/b"),
    ("--slice 3", "e/a"),
    ("--slice 3:3", ""),
    ("--slice 9:", ""),
    ("--slice 99999999999999999999:", ""),
    ("--shard-slice 1:3", "d/b d/c"),
    ("--shardslice ::5", "d/a e/c"),
    ("-c 2", "d/a d/b"),
    ("--count 0", ""),
    ("--count 9223372036854775807", "d/a d/b d/c e/a e/b e/c"),
    # the order of application does not depend on the order of options
    ("-c 1 --slice 1: --match ^e/", "e/b"),
    ("--slice 1:3 --shard-slice 2:", "e/a e/b"),
    ("--slice 1 --keys-from list", "e/a"),
    ("--match [ab]$ --shard-slice 1:5", "d/b e/a e/b"),
    ("-c 2 --slice ::2 --match ^d|a", "d/a d/c"),
]


def write_lists() -> None:
    """Write the lists of keys that SELECT names."""
    Path("list").write_text("e/a\nnone\n\nd/b\n")
    Path("table.tsv").write_text("n\tid\n1\te/b\n2\td/a\n")
    Path("table.csv").write_text('id,n\n"e/c",1\nd/a,2\n')
    Path("table.jsonl").write_text('{"id": "e/c"}\n\n{"n": 1}\n{"id": "d/c"}\n')


@each_row(("options", "expected", "feed"), in_turn(SELECT))
def test_select(options: str, expected: str, run: Run, archive: Archive, feed: Feed) -> None:
    """shard-slice, match, keys-from, sample, slice and count select samples, which keep their headers."""
    write_lists()
    out = run("cat", feed(archive(SIX)), *shlex.split(options)).stdout
    assert out == tar(pick(SIX, expected))


@each_feed
def test_shard_slice_is_per_input_and_slice_is_not(run: Run, archive: Archive, feed: Feed) -> None:
    """--shard-slice selects from each input, before all else; --slice from the samples that are left."""
    words = [feed(archive(pick(SIX, "d/a d/b d/c"), "1.tar")), feed(archive(pick(SIX, "e/a e/b e/c"), "2.tar"))]
    assert keys(run("cat", *words, "--shard-slice", "1:").stdout) == "d/b d/c e/b e/c"
    assert keys(run("cat", *words, "--shard-slice", "1:", "--slice", "1:3").stdout) == "d/c e/b"
    assert keys(run("cat", *words, "--slice", "1:").stdout) == "d/b d/c e/a e/b e/c"


MANY: dict[str, Content] = {f"{number:03}.cls": b"%d" % number for number in range(100)}


@each_feed
def test_sample(run: Run, archive: Archive, feed: Feed) -> None:
    """Each sample is drawn separately: the same seed selects the same samples, from any feed."""
    word = feed(archive(MANY))
    draw = random.Random(7).random
    expected = tar([pair for pair in MANY.items() if draw() < 0.1])
    assert run("cat", word, "--sample", "0.1", "--seed", "7").stdout == expected
    assert run("cat", word, "--sample", "0.1", "--seed", "8").stdout != expected


def test_keys_from_counts_found_keys(run: Run, archive: Archive) -> None:
    """Requested, found and missing keys are counted, on stderr and in the report."""
    Path("list").write_text("e/a\nnone\nd/b\nother\n")
    ran = run("cat", archive(SIX), "--keys-from", "list", "--report", "r.json")
    assert ran.lines == ["tarkit: list: 4 keys requested, 2 found, 2 missing, the first of them 'none'"]
    assert json.loads(Path("r.json").read_text())["keys"] == {"wanted": 4, "found": 2, "missing": 2}
    ran = run("cat", archive(SIX), "--keys-from", "list", "-c", "1", "--report", "r.json")
    assert ran.lines == ["tarkit: list: 4 keys requested, 1 found, 3 not reached, the first of them 'e/a'"]
    facts = json.loads(Path("r.json").read_text())["keys"]
    assert facts == {"wanted": 4, "found": 1, "missing": 0, "not_reached": 3}
    ran = run("cat", archive(SIX), "--keys-from", "list", "-c", "1", "--require-all", exit=1)
    assert ran.lines == ["tarkit: list: 4 keys requested, 1 found, 3 not reached, the first of them 'e/a'"]
    ran = run("cat", "in.tar", "--keys-from", "list", "--require-all", "-o", "out.tar", exit=1)
    assert ran.lines == ["tarkit: list: 4 keys requested, 2 found, 2 missing, the first of them 'none'"]
    assert not Path("out.tar").exists()
    Path("list").write_text("e/a\r\nd/b")
    assert keys(run("cat", "in.tar", "--keys-from", "list", "--require-all").stdout) == "d/b e/a"


@each_row(
    ("column", "meant"),
    [
        ("none x.jpg d/b.jpg d/a.cls", "no sample has the key 'd/a.cls'; did you mean 'd/a'?"),
        ("b.txt", "no sample has the key 'b.txt'; did you mean 'd/b'?"),
        ("f/c", "no sample has the key 'f/c'; did you mean 'd/c'?"),
        ("none none.jpg", None),
        ("e/a d/b.jpg", None),
    ],
)
def test_keys_that_are_names_of_files(column: str, meant: str | None, run: Run, archive: Archive) -> None:
    """If no key is found but they are names of files, a warning says so; with --require-all it is a hint."""
    Path("t.csv").write_text("n,file\n" + "".join(f"1,{value}\n" for value in column.split()))
    ran = run("cat", archive(SIX), "--keys-from", "t.csv:file")
    assert [line for line in ran.lines if "t.csv" in line][1:] == (
        [f"tarkit: warning: t.csv:file: {meant}"] if meant else []
    )
    ran = run("cat", archive(SIX), "--keys-from", "t.csv:file", "--require-all", exit=1)
    assert ran.lines[1:] == ([f"hint: {meant}"] if meant else [])


# ---- fields

SAMPLE: list[tuple[str, Content]] = [
    ("d/a.JPG", b"pixels" * 200),
    ("d/README", b"keyless"),
    ("d/a.cls", b"1"),
    ("d/a.json", b"{}"),
    ("d/a.seg.png", b"mask"),
]
FIELDS = [
    # options, the names in the output and the rows of SAMPLE with their contents
    ("-f json", [("d/a.json", 3)]),
    ("-f jpg", [("d/a.jpg", 0)]),
    ("-f Json", [("d/a.Json", 3)]),
    ("-f 'seg.png cls JPG'", [("d/a.seg.png", 4), ("d/a.cls", 2), ("d/a.JPG", 0)]),
    ("--fields jpg:png,jpeg,jpg,json", [("d/a.jpg", 0)]),
    ("--field 'image:png,jpg label=cls'", [("d/a.image", 0), ("d/a.label", 2)]),
    ("-f 'x.png:seg.png'", [("d/a.x.png", 4)]),
    ("-f 'jpg:jpg'", [("d/a.jpg", 0)]),
    ("-f 'a:cls b:cls cls'", [("d/a.a", 2), ("d/a.b", 2), ("d/a.cls", 2)]),
    ("-f 'cls:json json:cls'", [("d/a.cls", 3), ("d/a.json", 2)]),
    ("--drop json", [("d/a.JPG", 0), ("d/README", 1), ("d/a.cls", 2), ("d/a.seg.png", 4)]),
    ("--drop *.png --drop j*", [("d/README", 1), ("d/a.cls", 2)]),
    ("--drop png", [("d/a.JPG", 0), ("d/README", 1), ("d/a.cls", 2), ("d/a.json", 3), ("d/a.seg.png", 4)]),
    ("-f 'jpg json' --drop json", [("d/a.jpg", 0)]),
    ("--require jpg,CLS -f json", [("d/a.json", 3)]),
    ("--require 'x|jpg cls'", [("d/a.JPG", 0), ("d/README", 1), ("d/a.cls", 2), ("d/a.json", 3), ("d/a.seg.png", 4)]),
    ("--require x --on-missing-field skip", []),
    ("-f 'jpg x' --on-missing-field keep", [("d/a.jpg", 0)]),
    ("-R b -f cls", [("b.cls", 2)]),
    ("-R {key}_1 --drop *.png", [("d/a_1.JPG", 0), ("d/README", 1), ("d/a_1.cls", 2), ("d/a_1.json", 3)]),
    ("--rekey # -f x:cls", [("000000000.x", 2)]),
]


@each_row(
    ("format", "options", "expected", "feed"),
    in_turn((format, *row) for format in (GNU, PAX) for row in FIELDS),
)
def test_fields(
    format: int, options: str, expected: list[tuple[str, int]], run: Run, archive: Archive, feed: Feed
) -> None:
    """-f selects and renames, --drop drops, --require checks, --rekey comes last; headers change their names only."""
    out = run("cat", feed(archive(SAMPLE, format=format)), *shlex.split(options)).stdout
    assert out == tar([(name, SAMPLE[row][1]) for name, row in expected], format)


MISSING: dict[str, Content] = {"a.jpg": b"1", "a.json": b"2", "b.jpg": b"3", "c.jpg": b"4", "c.json": b"5"}
LACKS = "{}: at 2048: 'b' has no field {}, it has 'jpg' [missing-field]"


@each_row(
    ("options", "policy", "feed"),
    in_turn(
        (options, policy)
        for options in ("-f 'jpg json'", "--require json", "--require jpg,png|json")
        for policy in ("error", "abort", "warn", "keep", "ignore", "skip", "exclude")
    ),
)
def test_on_missing_field(options: str, policy: str, run: Run, archive: Archive, feed: Feed) -> None:
    """A sample without the field is an error, passes with warn and keep, and is dropped and counted with skip."""
    word = feed(archive(MISSING))
    lacks = LACKS.format(word, "'png' or 'json'" if "|" in options else "'json'")
    words = ["cat", word, *shlex.split(options), "-o", "out.tar"]
    if policy in ("error", "abort"):
        for more in ([], ["--on-missing-field", policy]):
            hint = "hint: --on-missing-field skip drops such samples, keep keeps them"
            assert run(*words, *more, exit=1).lines == [f"tarkit: {lacks}", hint]
            assert not Path("out.tar").exists()
        return
    ran = run(*words, "--on-missing-field", policy, "--report", "r.json")
    report, dropped = json.loads(Path("r.json").read_text()), policy in ("skip", "exclude")
    assert Path("out.tar").read_bytes() == tar(pick(MISSING, "a c" if dropped else "a b c"))
    assert (report["problems"], report["skipped"]) == ({"missing-field": 1}, {"missing-field": 1} if dropped else {})
    if dropped:
        [line] = ran.lines
        assert line.startswith("tarkit: cat: 2 samples, ")
    else:
        assert ran.lines == ([f"tarkit: warning: {lacks}"] if policy == "warn" else [])


def test_repeated_warnings_are_limited(run: Run, archive: Archive) -> None:
    """Three problems of each kind are printed; a fourth line says that more follow."""
    ran = run("cat", archive(MANY), "--require", "jpg", "--on-missing-field", "warn", "--report", "r.json")
    assert [line[-17:] for line in ran.lines[:3]] == ["' [missing-field]"] * 3
    assert ran.lines[3:] == ["tarkit: warning: more of [missing-field] follow; they are only counted"]
    assert json.loads(Path("r.json").read_text())["problems"] == {"missing-field": 100}


REKEYS = [
    ("#", "000000000 000000001 000000002"),
    ("x/#", "x/000000000 x/000000001 x/000000002"),
    ("{index:06d}", "000000 000001 000002"),
    ("{key}", "a b c"),
    ("n{index}/{key}", "n0/a n1/b n2/c"),
    ("{stem}/{key}", "{stem}/a {stem}/b {stem}/c"),
    ("{shard}/{key}", "{shard}/a {shard}/b {shard}/c"),
    ("{stem}-{index:03d}-{key}", "{stem}-000-a {stem}-001-b {stem}-002-c"),
    ("é{index}", "é0 é1 é2"),
]


@each_row(("spec", "expected", "feed"), in_turn(REKEYS))
def test_rekey(spec: str, expected: str, run: Run, archive: Archive, feed: Feed) -> None:
    """# is nine digits; {key}, {index}, {shard} and {stem} are replaced; headers change their names only."""
    word = feed(archive(ABC))
    stem, shard = "501" if feed.kind == "pipe" else "in", os.path.basename(word)
    new = [each.replace("{shard}", shard).replace("{stem}", stem) for each in expected.split()]
    renamed = [(new["abc".index(name[0])] + name[1:], content) for name, content in ABC.items()]
    assert run("cat", word, "--rekey", spec).stdout == tar(renamed)


def test_rekey_counts_the_output(run: Run, archive: Archive) -> None:
    """The index counts the samples in the output: over all inputs, without gaps for those not selected."""
    words = [archive(MISSING, "1.tar"), archive({"d.json": b"6", "e.jpg": b"7", "f.json": b"8"}, "2.tar")]
    options = ("--match", "[^d]", "--require", "json", "--on-missing-field", "skip", "-R", "{index}_{key}")
    assert keys(run("cat", *words, *options).stdout) == "0_a 1_c 2_f"


@each_feed
def test_rekey_with_long_names(run: Run, archive: Archive, feed: Feed) -> None:
    """A name that is too long for its header goes to a PAX record, or in a GNU header to an L entry."""
    for format in (GNU, PAX):
        word = feed(archive({"a.jpg": b"1", "a.json": b"2"}, format=format))
        out = run("cat", word, "-R", "k" * 120).stdout
        assert entries(out) == [("k" * 120 + ".jpg", b"1"), ("k" * 120 + ".json", b"2")]
        assert out[156:157] == (b"L" if format == GNU else b"x")
        Path("long.tar").write_bytes(out)
        assert entries(run("cat", feed("long.tar"), "-R", "s").stdout) == [("s.jpg", b"1"), ("s.json", b"2")]


# ---- problems

X = tar(ABC)
TWICE: list[tuple[str, Content]] = [("a.jpg", b"1"), ("a.json", b"2"), ("a.jpg", b"3"), ("b.jpg", b"4")]
BACK: list[tuple[str, Content]] = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.json", b"3"), ("c.jpg", b"4")]
LINKS: list[tuple[str, Content]] = [
    ("a.jpg", b"1"),
    ("a.png", Link("a.jpg")),
    ("b.jpg", Link("a.jpg")),
    ("c.jpg", b"2"),
    ("c.x", Link("a.jpg", b"2")),
]
TRIPLE: list[tuple[str, Content]] = [(f"{key}.{number}", b"x") for key in "abc" for number in (1, 2, 3)]
UNSAFE: list[tuple[str, Content]] = [
    ("/a.jpg", b"1"),
    ("../b.jpg", b"2"),
    ("x/../c.jpg", b"3"),
    ("a..b/c..d.jpg", b"4"),
]
LONG: dict[str, Content] = {"a.cls": b"1", "b" * 120 + ".cls": b"2"}


def flip(data: bytes, at: int) -> bytes:
    """Return `data` with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def sealed(data: bytes, at: int, field: slice, value: bytes) -> bytes:
    """Return `data` with another value in a field of the header at `at`, and a correct checksum."""
    block = bytearray(data[at : at + 512])
    block[field] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:at] + bytes(block) + data[at + 512 :]


class Case(NamedTuple):
    """A problem: the message that ends the run ({0}, {1} are the inputs), the entries kept by --allow and by --skip."""

    problem: str
    inputs: list[bytes]
    message: str
    allow: list[tuple[str, Content]]
    skip: list[tuple[str, Content]]
    options: str = ""


ENDS = "the input ends inside"
DAMAGE = {
    "in-a-payload": Case("truncated", [X[:7200]], f"{{0}}: at 7200: {ENDS} 'c.json', which needs 480 bytes more",
        pick(ABC, "a b c")[:5], pick(ABC, "a b")),
    "in-the-padding": Case("truncated", [X[:7679]], f"{{0}}: at 7679: {ENDS} 'c.json', which needs 1 byte more",
        pick(ABC, "a b c")[:5], pick(ABC, "a b")),
    # the header is complete, and has the key
    "in-the-first-payload-of-a-sample": Case("truncated", [X[:5800]],
        f"{{0}}: at 5800: {ENDS} 'c.jpg', which needs 856 bytes more", pick(ABC, "a b"), pick(ABC, "a b")),
    # an entry without a key before a sample whose header is cut: it is the last complete one
    "in-a-payload-behind-a-note": Case("truncated", [tar({"a.x": b"1", "README": b"2", "b.x": b"3" * 600})[:2600]],
        f"{{0}}: at 2600: {ENDS} 'b.x', which needs 984 bytes more", [("a.x", b"1"), ("README", b"2")],
        [("a.x", b"1")]),
    "in-a-header": Case("truncated", [X[:6756]], f"{{0}}: at 6756: {ENDS} a header after 'c.jpg'",
        pick(ABC, "a b c")[:5], pick(ABC, "a b")),
    # the key in that header is unknown: b may have lost an entry
    "between-samples": Case(
        "truncated", [X[:5420]], f"{{0}}: at 5420: {ENDS} a header after 'b.json'", pick(ABC, "a b"), pick(ABC, "a")
    ),
    "in-a-pax-header": Case("truncated", [tar(LONG, PAX)[: 1024 + 512 + 20]],
        f"{{0}}: at 1556: {ENDS} a header after 'a.cls'", pick(LONG, "a"), []),
    "without-end": Case("no-end-marker", [X[:7680]], "{0}: at 7680: no end-of-archive marker after 'c.json'",
        pick(ABC, "a b c"), pick(ABC, "a b")),
    "without-end-in-a-sample": Case("no-end-marker", [X[:6656]],
        "{0}: at 6656: no end-of-archive marker after 'c.jpg'", pick(ABC, "a b c")[:5], pick(ABC, "a b")),
    "half-an-end": Case("no-end-marker", [X[: 7680 + 512]],
        "{0}: at 7680: the input ends with a lone block of zeros", pick(ABC, "a b c"), pick(ABC, "a b")),
    "zero-bytes": Case("no-end-marker", [b""], "{0}: at 0: the input is empty", [], []),
    "in-the-second-payload-of-a-sample": Case("truncated", [X[:2100]],
        f"{{0}}: at 2100: {ENDS} 'a.json', which needs 460 bytes more", pick(ABC, "a")[:1], []),
    "second-is-empty": Case(
        "no-end-marker", [X, b""], "{1}: at 0: the input is empty", pick(ABC, "a b c"), pick(ABC, "a b c")
    ),
    # the damaged header may be the last of a's or the first of b's
    "flipped": Case("bad-header", [flip(X, 2560)], "{0}: at 2560: bad checksum in the header after 'a.json'",
        [pair for pair in ABC.items() if pair[0] != "b.jpg"], pick(ABC, "c")),
    "flipped-inside": Case("bad-header", [flip(X, 4096 + 511)],
        "{0}: at 4096: bad checksum in the header after 'b.jpg'",
        [pair for pair in ABC.items() if pair[0] != "b.json"], pick(ABC, "a")),
    "flipped-last": Case("bad-header", [flip(X, 6656 + 130)],
        "{0}: at 6656: bad checksum in the header after 'c.jpg'", pick(ABC, "a b c")[:5], pick(ABC, "a b")),
    "no-size": Case("bad-header", [sealed(X, 2560, slice(124, 136), b"zzzzzzzzzzz\0")],
        "{0}: at 2560: a size that is not a number: b'zzzzzzzzzzz\\x00' in the header after 'a.json'",
        [pair for pair in ABC.items() if pair[0] != "b.jpg"], pick(ABC, "c")),
    "no-name": Case("bad-header", [sealed(X, 2560, slice(0, 100), bytes(100))],
        "{0}: at 2560: no name in the header after 'a.json'", [pair for pair in ABC.items() if pair[0] != "b.jpg"],
        pick(ABC, "c")),
    "flipped-first": Case("bad-header", [flip(X, 0)], "{0}: at 0: bad checksum in the header at the start",
        pick(ABC, "a b c")[1:], pick(ABC, "b c")),
    "bad-pax": Case("bad-header", [tar(LONG, PAX).replace(b" path=", b"_path=")],
        "{0}: at 1024: PAX record at 0: no length in the header after 'a.cls'", [("a.cls", b"1"), ("b" * 100, b"2")],
        []),
    # entries after the damage belong to the sample before it: b has lost none
    "flipped-in-the-middle": Case("bad-header", [flip(tar(TRIPLE), 1024)],
        "{0}: at 1024: bad checksum in the header after 'a.1'", [TRIPLE[0], *TRIPLE[2:]], TRIPLE[3:]),
    "flipped-without-key": Case("bad-header",
        [flip(tar([("a.1", b"1"), ("README", b"2"), ("LICENSE", b"3")]), 1024)],
        "{0}: at 1024: bad checksum in the header after 'a.1'", [("a.1", b"1"), ("LICENSE", b"3")], []),
    "glued-without-key": Case("trailing-data", [X + tar({"README": b"D"})],
        "{0}: at 10240: data follow the end of the archive", [*ABC.items(), ("README", b"D")], [*ABC.items()]),
    "glued": Case("trailing-data", [X + tar({"d.jpg": b"D"})], "{0}: at 10240: data follow the end of the archive",
        [*ABC.items(), ("d.jpg", b"D")], [*ABC.items()]),
    "glued-after-half-an-end": Case("trailing-data", [X[:7680] + bytes(512) + tar({"d.jpg": b"D"})],
        "{0}: at 8192: data follow a lone block of zeros", [*ABC.items(), ("d.jpg", b"D")], pick(ABC, "a b")),
    "comes-back": Case(
        "scattered-sample", [tar(BACK)], "{0}: at 2048: the key 'a' occurs again", BACK, [BACK[0], BACK[1], BACK[3]]
    ),
    "neighbours": Case("joined-sample", [tar({"a.jpg": b"1", "b.jpg": b"2"}), tar({"b.json": b"3", "c.jpg": b"4"})],
        "{1}: at 0: the sample before it in the output has the same key 'b'",
        [("a.jpg", b"1"), ("b.jpg", b"2"), ("b.json", b"3"), ("c.jpg", b"4")],
        [("a.jpg", b"1"), ("b.jpg", b"2"), ("c.jpg", b"4")]),
    "twice": Case("duplicate-entry", [tar(TWICE)], "{0}: at 2048: 'a.jpg' occurs twice", TWICE, TWICE[3:]),
    "twice-in-any-order": Case("duplicate-entry",
        [tar([("k.c", b"1"), ("k.a", b"2"), ("k.c", b"3"), ("l.x", b"4")])], "{0}: at 2048: 'k.c' occurs twice",
        [("k.c", b"1"), ("k.a", b"2"), ("k.c", b"3"), ("l.x", b"4")], [("l.x", b"4")]),
    "twice-among-others": Case("duplicate-entry",
        [tar([("k.a", b"1"), ("k.c", b"2"), ("k.b", b"3"), ("k.c", b"4"), ("l.x", b"5")])],
        "{0}: at 3072: 'k.c' occurs twice",
        [("k.a", b"1"), ("k.c", b"2"), ("k.b", b"3"), ("k.c", b"4"), ("l.x", b"5")], [("l.x", b"5")]),
    "hard-link": Case("unmovable-entry", [tar(LINKS), tar({"d.jpg": b"3"})],
        "{0}: at 1536: 'b.jpg' is a hard link to 'a.jpg', which is not in its sample", [*LINKS, ("d.jpg", b"3")],
        [*LINKS[:2], *LINKS[3:], ("d.jpg", b"3")]),
    "link-to-a-field-that-goes": Case("unmovable-entry", [tar(LINKS[:2] + LINKS[3:])],
        "{0}: at 1024: 'a.png' is a hard link to 'a.jpg', which is removed or renamed", [LINKS[1], LINKS[4]],
        LINKS[4:], "--drop jpg"),
    "lacks-a-field": Case("missing-field", [tar(BACK[1:])], "{0}: at 0: 'b' has no field 'json', it has 'jpg'",
        BACK[2:3], BACK[2:3], "-f json"),
    "two-of-a-name": Case("duplicate-entry", [tar(TWICE[1:])], "{0}: at 0: two fields of 'a' get the same name",
        [("a.x", b"3"), ("a.x", b"2"), ("b.x", b"4")], [("b.x", b"4")], "-f 'x:jpg x:json' --on-missing-field keep"),
}  # fmt: skip


@each_row(
    ("name", "feed"), [(name, Feed(kind)) for n, name in enumerate(DAMAGE) for kind in ("file", KINDS[n % 2 + 1])]
)
def test_problems(name: str, run: Run, archive: Archive, feed: Feed) -> None:
    """A problem ends the run; --allow keeps the entries with it, --skip leaves the samples out and counts them.

    `all` is any name; --maxerr skips a number of problems.
    """
    case = DAMAGE[name]
    words = [feed(archive(data, f"{number}.tar")) for number, data in enumerate(case.inputs)]
    words += shlex.split(case.options)
    message = f"{case.message.format(*words)} [{case.problem}]"
    ran = run("cat", *words, "-o", "out.tar", exit=1)
    said = [line for line in ran.lines if "[repeated-key]" not in line]
    assert said[0] == f"tarkit: {message}"
    assert len(said) == 1 or said[1].startswith("hint: ")
    assert not Path("out.tar").exists()

    ran = run("cat", *words, "--allow", case.problem, "--report", "r.json")
    assert ran.stdout == tar(case.allow)
    report = json.loads(Path("r.json").read_text())
    assert report["skipped"] == {}
    assert report["problems"][case.problem] >= 1
    error = PROBLEMS[case.problem].default == "error" and case.problem != "joined-sample"
    assert (f"tarkit: warning: {message}" in ran.lines) == error

    ran = run("cat", *words, "--skip", case.problem, "--report", "r.json")
    assert ran.stdout == tar(case.skip)
    report = json.loads(Path("r.json").read_text())
    times, gone = report["skipped"][case.problem], report.get("dropped", 0)
    assert f"tarkit: warning: {message}" in ran.lines
    left_out = f" ({gone} sample{'s' * (gone > 1)} left out)" if gone else ""
    assert ran.lines[-1].endswith(f", skipped for {case.problem}: {times}{left_out}")
    assert name != "flipped" or (report["samples"], times, gone) == (1, 1, 2)

    if feed.kind != "file":
        assert run("cat", *words, "--allow", "all").stdout == tar(case.allow)
        assert (
            run("cat", *words, "--skip", "all").stdout
            == run("cat", *words, "--maxerr", str(times)).stdout
            == ran.stdout
        )
        if times > 1:
            run("cat", *words, "--maxerr", str(times - 1), "-o", "none.tar", exit=1)
            assert not Path("none.tar").exists()


def test_damage_before_a_cut(run: Run, archive: Archive) -> None:
    """Of a compressed archive that is cut, as much is kept after damaged headers as of the same bytes in a file."""
    noise = random.Random(7)
    data = bytearray(tar([(f"{number:02}.{field}", noise.randbytes(1500)) for number in range(30) for field in "ab"]))
    for entry in (7, 31):
        data[entry * 2048 + 128] ^= 4  # the size is 1 MiB more, which is beyond the cut
    cut = gzip.compress(data)[:-20_000]
    plain = zlib.decompressobj(31).decompress(cut)
    Path("cut.tar.gz").write_bytes(cut)
    ran = run("cat", "--skip", "all", archive(plain, "cut.tar"), "-o", "file.tar")
    again = run("cat", "--skip", "all", "cut.tar.gz", "-o", "gz.tar")
    assert Path("gz.tar").read_bytes() == Path("file.tar").read_bytes()
    assert "(4 samples left out)" in ran.lines[-1]
    assert "(4 samples left out)" in again.lines[-1]


@each_feed
def test_a_header_of_zeros(run: Run, archive: Archive, feed: Feed) -> None:
    """A header that became zeros may have been of the sample before it, which is left out with what follows."""
    data = bytearray(tar([("a.x", b"1"), ("b.x", b"2"), ("b.y", b"3"), ("c.x", b"4")]))
    data[2048:2560] = bytes(512)
    word = feed(archive(bytes(data)))
    ran = run("cat", word, "--skip", "trailing-data", "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar({"a.x": b"1"})
    assert f"tarkit: warning: {word}: at 2560: data follow a lone block of zeros [trailing-data]" in ran.lines
    what = "the sample 'b' is left out: the damage after it may have destroyed some of its entries"
    assert f"tarkit: warning: {word}: at 1024: {what}" in ran.lines
    assert ran.lines[-1].endswith(", skipped for trailing-data: 1 (1 sample left out)")
    word = feed(archive(tar({"README": b"1"})[:1024] + bytes(512) + b"x" * 512))
    assert run("cat", word, "--skip", "trailing-data").stdout == tar({"README": b"1"})
    data[2560:3072] = tar({"b.z": b""})[:512]  # as behind the header of an empty file
    run("cat", feed(archive(bytes(data))), "--skip", "trailing-data", "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar({"a.x": b"1"})


@each_feed
def test_zeros_inside_of_an_archive(run: Run, archive: Archive, feed: Feed) -> None:
    """Zeros that may be damage take the sample before them along."""
    sizes = {"a.x": 600, "a.y": 600, "b.x": 600, "b.y": 400, "b.z": 600, "c.x": 0, "c.y": 4000}
    rows = {name: name.encode() * (size // 3) for name, size in sizes.items()}
    whole = tar(rows)
    damaged = {
        "a header": (4608, 1),
        "an entry, before another one of its sample": (4608, 2),
        "a header and a part of its content": (5632, 2),
        "an entry, before another sample": (5632, 3),
        "a page": (4608, 8),
    }
    for what, (start, blocks) in damaged.items():
        data = whole[:start] + bytes(512 * blocks) + whole[start + 512 * blocks :]
        ran = run("cat", feed(archive(data)), "--skip", "all", "-o", "out.tar")
        assert Path("out.tar").read_bytes() == tar(pick(rows, "a")), what
        assert any("the sample 'b' is left out" in line for line in ran.lines), what
    ran = run("cat", feed(archive(whole[:7168] + bytes(1024) + whole[7168:])), "--skip", "all", "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar(pick(rows, "a b")), "an end of two blocks, as some programs write it"
    assert not any("is left out:" in line for line in ran.lines)


NOTHING = {
    # bytes without a complete entry, the problem
    "text": (b"hello, world\n" * 100, "bad-header"),
    "a few bytes": (b"hello", "truncated"),
    "in the first header": (X[:100], "truncated"),
    "in the first payload": (X[:600], "truncated"),
    "in the first payload of a large sample": (tar({"a.bin": bytes(90_000)})[:80_000], "truncated"),
    "in a long name": (tar({"b" * 120 + ".x": b"1"}, PAX)[:700], "truncated"),
    "a damaged header and nothing else": (flip(tar({"a.x": b""}), 1), "bad-header"),
    "zeros that are no end": (bytes(512), "no-end-marker"),
    "few zeros": (bytes(100), "truncated"),
    "nothing but zeros": (bytes(10_752), "zero-filled"),
    "other data behind an end": (bytes(1024) + b"garbage" * 200, "trailing-data"),
}
READS = ["stats", "tsv -f x", "proc -c true -o o.tar", "extract -C d", "mix --until all --seed 1 -o o.tar"]
WRITES = ["cat -o o.tar", "sort -o o.tar", "shuffle --seed 1 -o o.tar", "split -c 9 -o o-%d.tar"]


@each_row(("name", "feed"), in_turn(NOTHING))
def test_bytes_without_an_entry_are_an_error(
    name: str, run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes without a complete entry are an error with any policy, in every command that reads."""
    monkeypatch.setattr(reader, "LARGE", 1 << 16)
    data, problem = NOTHING[name]
    word, good = feed(archive(data)), feed(archive(ABC, "good.tar"))
    for options in ("", "--allow all", "--skip all", "--maxerr 9", f"--allow {problem}", f"--skip {problem}"):
        ran = run("cat", word, *options.split(), "-o", "out.tar", exit=1)
        [said] = [line for line in ran.lines if not line.startswith(("tarkit: warning: ", "hint: "))]
        assert said.startswith(f"tarkit: {word}: at ")
        assert said.endswith("]")
        assert (": no whole entry was found: " in said) == bool(options) or options == "--allow trailing-data"
        assert not Path("out.tar").exists()
    for command in WRITES if name in ("text", "in the first payload", "nothing but zeros") else WRITES[:1]:
        if not command.startswith("split"):  # the first shard of split is complete
            run(*command.split(), good, word, "--skip", "all", exit=1)
        run(*command.split(), word, "--skip", "all", exit=1)
    for command in READS:
        assert ": no whole entry was found: " in run(*command.split(), word, "--allow", "all", exit=1).stderr, command
    assert b"no whole entry was found [unreadable-shard]" in run("check", word, "--allow", problem, exit=1).stdout
    run("check", word, "--allow", problem, "--fix", "o.tar", exit=1)
    assert not [*Path.cwd().glob("o*")]


PAIRS = [
    # the bytes of an archive, options, the expected entries or message
    (X + b"garbage" * 200, "--allow trailing-data", "at 10240: bad checksum in the header at the start [bad-header]"),
    (X + b"garbage" * 200, "--allow trailing-data --skip bad-header", pick(ABC, "a b")),
    (X + b"garbage" * 200, "--allow trailing-data,bad-header", pick(ABC, "a b c")),
    (X + b"garbage" * 200, "--skip trailing-data", pick(ABC, "a b c")),
    (X + X, "--allow trailing-data", "at 10240: the key 'a' occurs again [scattered-sample]"),
    (X + X, "--allow trailing-data --skip scattered-sample", pick(ABC, "a b c")),
    (X + X, "--allow trailing-data --allow scattered-sample", pick(ABC, "a b c a b c")),
    (tar(TWICE[3:]) + tar(TWICE[3:]), "--allow trailing-data,scattered-sample",
        "at 10240: the sample before it in the"),
    (X + tar({"d.x": b"1", "e.x": b"2"})[:1600], "--allow trailing-data",
        "at 11840: the input ends inside 'e.x', which"),
    (X + tar({"d.x": b"1", "e.x": b"2"})[:1600], "--allow trailing-data --skip truncated",
        [*ABC.items(), ("d.x", b"1")]),
    (flip(X, 2560)[:7200], "--skip bad-header", "at 7200: the input ends inside 'c.json', which needs 480 bytes more"),
    (flip(X, 2560)[:7200], "--skip bad-header --skip truncated", []),
    (flip(X, 2560)[:7200], "--skip bad-header --allow truncated", pick(ABC, "c")[:1]),
    (flip(X, 2560)[:7200], "--allow bad-header,truncated",
        [pair for pair in ABC.items() if pair[0] not in ("b.jpg", "c.json")]),
    (flip(X, 2560)[:7680], "--maxerr 2", []),
    (flip(X, 2560)[:7680], "--maxerr 1", "at 7680: no end-of-archive marker after 'c.json' [no-end-marker]"),
    (flip(flip(X, 0), 5120), "--skip bad-header", []),
    (flip(flip(X, 0), 5120), "--allow bad-header", [*ABC.items()][1:4] + [*ABC.items()][5:]),
    (flip(flip(X, 0), 1536), "--skip bad-header", pick(ABC, "c")),
    (tar(TWICE)[:2560], "--allow duplicate-entry,no-end-marker", "at 2560: the input ends inside 'a.jpg', which needs"),
    (tar(TWICE)[:3072], "--allow duplicate-entry,no-end-marker", TWICE[:3]),
    (tar(TWICE)[:3072], "--skip duplicate-entry --allow no-end-marker", []),
    # a name takes precedence over all
    (tar(BACK), "--skip all --allow scattered-sample", BACK),
    (tar(BACK), "--allow all --skip scattered-sample", [BACK[0], BACK[1], BACK[3]]),
    (tar(BACK), "--skip truncated,scattered-sample", [BACK[0], BACK[1], BACK[3]]),
    # zero bytes, an archive without entries, and a whole entry that is skipped are archives
    (b"", "--allow no-end-marker", []),
    (tar({"a.x": b"1"})[:1024], "--skip all", []),
    (bytes(1024) + tar(ABC), "--allow trailing-data", pick(ABC, "a b c")),
    (b"x" * 512 + tar(ABC), "--allow bad-header", pick(ABC, "a b c")),
]  # fmt: skip


@each_row(("data", "options", "expected", "feed"), in_turn(PAIRS))
def test_problems_in_pairs(
    data: bytes, options: str, expected: str | list[tuple[str, Content]], run: Run, archive: Archive, feed: Feed
) -> None:
    """Each of two problems is handled separately."""
    word = feed(archive(data))
    if isinstance(expected, str):
        ran = run("cat", word, *options.split(), "-o", "out.tar", exit=1)
        said = [line for line in ran.lines if not line.startswith(("hint", "tarkit: warning"))]
        assert said[0].startswith(f"tarkit: {word}: {expected}")
        assert not Path("out.tar").exists()
    else:
        assert run("cat", word, *options.split()).stdout == tar(expected)


@each_row(
    ("rows", "damage", "options", "expected"),
    [
        ("a.x README | b.0 b.1 b.2 c.x", None, "--allow trailing-data", "a.x README b.0 b.1 b.2 c.x"),
        ("a.x b.0 b.1 README | LICENSE", None, "--allow trailing-data", "a.x b.0 b.1 README LICENSE"),
        ("a.x b.0 README b.1 c.x", None, "--drop 2", "a.x b.0 README b.1 c.x"),
        ("a.x b.x b.0 b.1 c.x", 1, "--maxerr 1", "c.x"),
        ("a.x b.x b.0 b.1 c.x", 1, "--skip bad-header", "c.x"),
        ("a.x b.x b.0 b.1 c.x", 1, "--allow bad-header", "a.x b.0 b.1 c.x"),
        ("a.x b.0 b.1 b.2 c.x", 2, "--allow bad-header", "a.x b.0 b.2 c.x"),
        ("a.x b.0 b.1 b.2 c.x", 2, "--skip bad-header", "a.x c.x"),
        ("a.x b.0 b.1 b.2 c.x", 2, "--allow bad-header -s 10 --seed 1", "a.x c.x b.0 b.2"),
        ("a.x b.0 b.1 b.2 c.x", 2, "--allow bad-header -s 10 --seed 1 -f 2 -f x --on-missing-field keep",
            "a.x c.x b.2"),
        ("a.x b.0 b.1 b.2 c.x", 2, "--allow bad-header,joined-sample -R {key}", "a.x b.0 b.2 c.x"),
    ],
)  # fmt: skip
def test_damage_around_large_samples(
    rows: str,
    damage: int | None,
    options: str,
    expected: str,
    run: Run,
    archive: Archive,
    feeds: list[Feed],
    small_memory: None,
) -> None:
    """Problems of large samples are handled as those of small ones; `|` is an end with another archive after it."""
    content = {name: name.encode() * (1250 if name[-1].isdigit() else 1) for name in rows.split()}
    data = b"".join(tar([(name, content[name]) for name in part.split()]) for part in rows.split("|"))
    if damage is not None:
        data = flip(data, len(body(tar([(name, content[name]) for name in rows.split()[:damage]]))))
    for feed in feeds:
        out = run("cat", feed(archive(data)), *options.split()).stdout
        assert out == tar([(name, content[name]) for name in expected.split()])


@each_feed
def test_a_large_sample_is_examined_once(
    run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is checked once, entry by entry, from any feed."""
    monkeypatch.setattr(reader, "LARGE", 1 << 16)
    rows: list[tuple[str, Content]] = [("a.0", b"0"), ("a.0", b"1")]
    rows += [(f"a.{number}", b"x" * 9000) for number in range(1, 30)]
    ran = run("cat", feed(archive([*rows, ("a.1", b"2")])), "--allow", "duplicate-entry", "--report", "r.json")
    assert ran.stdout == tar([*rows, ("a.1", b"2")])
    assert json.loads(Path("r.json").read_text())["problems"] == {"duplicate-entry": 2}


def test_an_archive_in_a_damaged_entry_is_ignored(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The entries of an archive inside a damaged entry are content, whether the sample is kept or not."""
    rows: list[tuple[str, Content]] = [*pick(ABC, "a"), ("b.txt", b"1"), ("b.tar", tar(ABC)), ("b.x", b"2")]
    rows += [("c.txt", b"3"), ("d.txt", b"4")]
    data = flip(tar(rows), len(body(tar(rows[:-4]))) + 1)
    for feed in feeds:
        word = feed(archive(data))
        assert keys(run("cat", word, "--skip", "bad-header").stdout) == "a c d"
        assert entries(run("cat", word, "--allow", "bad-header").stdout) == [row for row in rows if row[0] != "b.tar"]
    data = flip(tar(rows[:-3]), len(body(tar(rows[:-4]))) + 1)
    for feed in feeds:
        assert keys(run("cat", feed(archive(data)), "--skip", "bad-header").stdout) == "a"


def test_repeated_keys(run: Run, archive: Archive) -> None:
    """A key in two inputs is an error in one archive; --allow is silent, --skip drops the later sample."""
    members: dict[str, Content] = {f"{key}.x": key.encode() for key in "abcde"}
    words = [archive(members, "1.tar"), archive(members, "2.tar")]
    ran = run("cat", *words, "-o", "out.tar", exit=1)
    assert not Path("out.tar").exists()
    assert ran.lines == [
        "tarkit: 2.tar: at 0: the key 'a' is already in the output [repeated-key]",
        "hint: make the keys differ: --rekey '{stem}/{key}'",
    ]
    assert keys(run("cat", *words, "--rekey", "{stem}/{key}").stdout) == "1/a 1/b 1/c 1/d 1/e 2/a 2/b 2/c 2/d 2/e"
    ran = run("cat", *words, "--allow", "repeated-key", "--report", "r.json")
    assert (ran.stdout, ran.stderr) == (tar([*members.items()] * 2), "")
    assert json.loads(Path("r.json").read_text())["problems"] == {"repeated-key": 5}
    assert run("cat", *words, "--skip", "repeated-key,joined-sample", "-m", "2").stdout == tar(members)
    ran = run("cat", *words, "--skip", "repeated-key", "-o", "out.tar")
    assert ran.lines[2:4] == [
        "tarkit: warning: 2.tar: at 2048: the key 'c' is already in the output [repeated-key]",
        "tarkit: warning: more of [repeated-key] follow; they are only counted",
    ]


@each_feed
def test_the_hint_for_a_scattered_sample(run: Run, archive: Archive, feed: Feed) -> None:
    """The hint for scattered parts with different fields is to sort, for parts with equal fields to change keys.

    For a stream, in which earlier fields are unknown, the hint has both.
    """
    twins: list[tuple[str, Content]] = [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("a.z", b"4"), ("a.y", b"5")]
    for rows, equal in ((BACK, False), (twins, True)):
        word = feed(archive(rows))
        for command in ("cat", "stats", "split -c 1 -o o-%d.tar", "check"):
            ran = run(*command.split(), word, exit=1)
            lines = [*ran.stdout.decode().splitlines(), *ran.lines]
            hint = next(line for line in lines[lines.index(_scattered(lines)) :] if line.startswith("hint: "))
            known = feed.kind == "file" or command == "check"  # which has the names of the fields
            assert ("tarkit sort" in hint) == (not known or not equal), command
            assert ("--rekey '{stem}/{key}'" in hint) == (not known or equal), command
        for shard in Path.cwd().glob("o-*.tar"):
            shard.unlink()
    assert keys(run("sort", feed(archive(BACK))).stdout) == "a b c"
    ran = run("sort", feed(archive(twins)), exit=1)
    assert "[duplicate-entry]" in ran.lines[0]
    assert "--rekey '{stem}/{key}'" in ran.lines[1]
    run("check", "in.tar", "--fix", "fixed.tar")
    assert keys("fixed.tar") == "a a~2 b"


def _scattered(lines: list[str]) -> str:
    return next(line for line in lines if line.endswith("[scattered-sample]"))


@each_feed
def test_unsafe_names(run: Run, archive: Archive, feed: Feed) -> None:
    """Names that lead out of the directory are a warning; --allow is silent, --skip drops the sample."""
    word = feed(archive(UNSAFE))
    ran = run("cat", word)
    assert ran.stdout == tar(UNSAFE)
    assert ran.lines == [
        f"tarkit: warning: {word}: at {at}: the name '{name}' is not safe to extract [unsafe-name]"
        for at, name in ((0, "/a.jpg"), (1024, "../b.jpg"), (2048, "x/../c.jpg"))
    ]
    assert run("cat", word, "--allow", "unsafe-name").stderr == ""
    assert run("cat", word, "--skip", "unsafe-name").stdout == tar(UNSAFE[3:])
    word = feed(archive([("/etc/passwd", b"1"), ("../README", b"2"), ("a.jpg", b"3")]))
    assert len(run("cat", word).lines) == 2
    data = tar({"q" * 120 + ".x": b"1"}, PAX).replace(b"=" + b"q" * 120, b"=" + b"q" * 60 + b"\0" + b"q" * 59)
    assert "\\x00" in run("cat", feed(archive(data))).lines[0]
    assert run("cat", feed("in.tar"), "--skip", "unsafe-name").stdout == tar({})


ONE = {"a.x": b"1", "b.x": b"2", "c.x": b"3"}
TWO = {"c.y": b"4", "b.x": b"5", "d.x": b"6"}
SAME = {"a.x": b"1", "b.x": b"2"}
PICTURES = [{"a.jpg": b"1", "b.jpg": b"2"}, {"b.jpg": b"3", "b.cls": b"4", "c.jpg": b"5"}]
JOIN = "--allow joined-sample,repeated-key"
BEFORE = "the sample before it in the output has the same key"
EQUAL_KEYS: list[tuple[list[Any], str, str]] = [
    # inputs, options, and the names in the output, or the message
    ([ONE, TWO], "--match [ad]", "a.x d.x"),  # only samples in the output have repeated keys
    ([ONE, TWO], "", f"{{1}}: at 0: {BEFORE} 'c' [joined-sample]"),
    ([ONE, TWO], "--allow joined-sample", "{1}: at 1024: the key 'b' is already in the output [repeated-key]"),
    ([ONE, TWO], "--allow joined-sample --skip repeated-key", "a.x b.x c.x c.y d.x"),
    ([ONE, TWO], "-m 2", f"{{1}}: at 1024: {BEFORE} 'b' [joined-sample]"),  # a c b b
    ([{"a.x": b"1"}, {"README": b""}, {"a.y": b"2"}], "", f"{{2}}: at 0: {BEFORE} 'a' [joined-sample]"),
    ([BACK, {"x.x": b""}], "--allow scattered-sample", "a.jpg b.jpg a.json c.jpg x.x"),
    ([SAME, SAME], "--rekey {index}/{key}", "0/a.x 1/b.x 2/a.x 3/b.x"),  # the new keys must differ, not the old ones
    ([SAME, SAME], "--rekey n/{key}", "{1}: at 0: the key 'n/a' is already in the output [repeated-key]"),
    ([SAME, SAME], "--rekey n/{key} --skip repeated-key", "n/a.x n/b.x"),
    (PICTURES, JOIN, "{1}: at 0: 'b.jpg' is in both samples that are joined [duplicate-entry]"),
    (PICTURES, f"{JOIN} --allow duplicate-entry", "a.jpg b.jpg b.jpg b.cls c.jpg"),
    (PICTURES, f"{JOIN} --skip duplicate-entry", "a.jpg c.jpg"),
    (PICTURES, f"{JOIN} --drop jpg", "b.cls"),
]


@each_row(("inputs", "options", "expected"), EQUAL_KEYS)
def test_equal_keys(
    inputs: list[Any], options: str, expected: str, run: Run, archive: Archive, feeds: list[Feed]
) -> None:
    """Equal keys of several inputs: neighbours would be one sample, others a repeated key."""
    for feed in feeds:
        words = [feed(archive(members, f"{number}.tar")) for number, members in enumerate(inputs)]
        ran = run("cat", *words, *options.split(), exit="[" in expected and "match" not in options)
        if ran.status:
            said = [line for line in ran.lines if not line.startswith("tarkit: warning")]
            assert said[0] == f"tarkit: {expected.format(*words)}"
        else:
            assert [name for name, _ in entries(ran.stdout)] == expected.split()
            rest = iter([content for members in inputs for _, content in pairs(members)])
            assert all(content in rest for _, content in entries(ran.stdout)), "contents in the order of the inputs"


COMMENT = {"comment": "3f2a"}
SAYS_MORE = {"comment": "3f2a", "mtime": "1"}


@each_feed
def test_global_headers(run: Run, archive: Archive, feed: Feed) -> None:
    """A global PAX header can be moved if it is only a comment, as by git; others are kept in a whole archive only."""
    word = feed(archive(ABC, format=PAX, pax_headers=COMMENT))
    assert keys(run("cat", word, "--match", "[bc]").stdout) == "b c"
    assert run("cat", word).stdout == tar(ABC, PAX, pax_headers=COMMENT)
    word = feed(archive(ABC, format=PAX, pax_headers=SAYS_MORE))
    assert run("cat", word).stdout == tar(ABC, PAX, pax_headers=SAYS_MORE)
    ran = run("cat", word, feed("in.tar"), "--rekey", "#", exit=1)
    assert ran.lines[0] == (
        f"tarkit: {word}: at 0: a global PAX header applies to all entries that follow it [unmovable-entry]"
    )
    assert "hard links" not in ran.stderr  # no hint about hard links, since there are none
    assert keys(run("cat", word, "--match", "[bc]", "--skip", "unmovable-entry").stdout) == "b c"
    assert keys(run("cat", word, "--match", "[ab]", "--allow", "unmovable-entry").stdout) == "a b"


@each_feed
def test_links_are_kept_in_a_whole_archive(run: Run, archive: Archive, feed: Feed) -> None:
    """A hard link to another sample is copied with a whole archive only; one inside its sample can be moved."""
    word = feed(archive(LINKS))
    assert run("cat", word).stdout == tar(LINKS)
    assert "[unmovable-entry]" in run("cat", word, "--match", ".", exit=1).stderr
    within = [LINKS[0], LINKS[1], LINKS[3], LINKS[4]]
    assert run("cat", feed(archive(within)), "--match", ".").stdout == tar(within)


@each_feed
def test_joined_samples_of_streams_stay_readable(run: Run, archive: Archive, feed: Feed, small_memory: None) -> None:
    """A sample that may be joined stays readable while any number of samples after it is dropped."""
    members = {f"{number:02}.bin": b"%04d" % number * 480 for number in range(100)}
    out = run("cat", feed(archive(members)), "--allow", "joined-sample", "--match", "[05]0$", "-f", "x:bin").stdout
    assert entries(out) == [("00.x", members["00.bin"]), ("50.x", members["50.bin"])]


# ---- damaged compressed inputs

GZ = gzip.compress(X, mtime=0)
BROKEN = [
    # the damage of the gz stream, the problem, the keys kept by --allow and by --skip
    ("wrong checksum", flip(GZ, len(GZ) - 8), "bad-data", "a b c", "a b"),
    ("wrong size", flip(GZ, len(GZ) - 1), "bad-data", "a b c", "a b"),
    ("bytes behind it", GZ + b"hello", "trailing-data", "a b c", "a b c"),
]


@each_row(("data", "problem", "allow", "skip"), [row[1:] for row in BROKEN])
@each_row("kind", ["file", "pipe"])
def test_damaged_gzip(data: bytes, problem: str, allow: str, skip: str, kind: str, run: Run) -> None:
    """Damage of the compression is an error, from a file and from a pipe; --allow and --skip keep exact samples."""
    Path("in.tar.gz").write_bytes(data)
    word = Feed(kind)("in.tar.gz")
    ran = run("cat", word, "-o", "out.tar", exit=1)
    assert ran.lines[0].startswith(f"tarkit: {word}: ")
    assert ran.lines[0].endswith(f"[{problem}]")
    assert not Path("out.tar").exists()
    assert run("cat", word, "--allow", problem).stdout == tar(pick(ABC, allow))
    assert run("cat", word, "--skip", problem).stdout == tar(pick(ABC, skip))


@each_row("codec", ["gz", "zst", "lz4", "xz", "bz2"])
@each_row(("size", "kind"), [(10, "pipe"), (300_000, "file"), (300_000, "pipe")])
def test_a_cut_trailer(codec: str, size: int, kind: str, run: Run, archive: Archive, small_memory: None) -> None:
    """All bytes were decoded, so all samples are there where the loss of the checksum is passed over."""
    members: dict[str, Content] = {"a.bin": random.Random(1).randbytes(size), "b.bin": b"2", "c.bin": b"3"}
    name = archive(members)
    run("cat", name, "-o", f"in.tar.{codec}")
    data = Path(f"in.tar.{codec}").read_bytes()
    Path(f"cut.tar.{codec}").write_bytes(data[: -12 if codec == "xz" else -4])
    word = Feed(kind)(f"cut.tar.{codec}")
    assert run("cat", word, exit=1).lines[0].endswith("[truncated]")
    assert run("cat", word, "--skip", "truncated").stdout == tar(members)


@each_row("codec", ["gz", "zst", "lz4", "xz", "bz2"])
def test_a_cut_compressed_stream(codec: str, run: Run, archive: Archive) -> None:
    """A compressed stream that ends early is an error; the output with --skip has whole samples."""
    members: dict[str, Content] = {f"{n}.bin": random.Random(n).randbytes(3000) for n in range(20)}
    run("cat", archive(members), "--compress", f"{codec}:1", "-o", f"in.tar.{codec}")
    data = Path(f"in.tar.{codec}").read_bytes()
    for part in (0.5, 1):
        Path("cut").write_bytes(data[: int(part * len(data)) - 1])
        ran = run("cat", "cut", "-o", "out.tar", exit=1)
        assert ran.lines[0].endswith("[truncated]")
        ran = run("cat", "cut", "--skip", "truncated", exit=None)
        assert ran.stdout == tar(pick(members, keys(ran.stdout))) if ran.status == 0 else "no whole entry" in ran.stderr
        assert codec != "gz" or len(keys(ran.stdout).split()) >= 20 * part - 2
    Path("flipped").write_bytes(flip(data, len(data) // 2))
    ran = run("cat", "flipped", "-o", "out.tar", exit=1)
    assert ran.lines[0].endswith("[bad-data]")
    ran = run("cat", "flipped", "--skip", "bad-data", exit=None)
    if ran.status == 0:  # the position is unknown: a checksum covers everything
        assert keys(tar(members)).startswith(keys(ran.stdout))
    else:
        assert "no whole entry was found" in ran.stderr
    assert not Path("out.tar").exists()


# ---- several inputs: mix, shuffle, read ahead


@each_row(
    ("mix", "expected", "feed"),
    in_turn(
        [
            (1, "a1 a2 a3 b1 c1 c2"),
            (2, "a1 b1 a2 c1 a3 c2"),
            (3, "a1 b1 c1 a2 c2 a3"),
            (9, "a1 b1 c1 a2 c2 a3"),
        ]
    ),
)
def test_mix(mix: int, expected: str, run: Run, archive: Archive, feed: Feed) -> None:
    """N open inputs alternate; when one ends, the next one is opened."""
    all_: dict[str, Content] = {f"{key}.cls": key.encode() for key in ["a1", "a2", "a3", "b1", "c1", "c2"]}
    words = [feed(archive([pair for pair in all_.items() if pair[0][0] == name], f"{name}.tar")) for name in "abc"]
    assert run("cat", *words, "-m", str(mix)).stdout == tar(pick(all_, expected))


TWELVE: dict[str, Content] = {f"{number:02}.cls": b"%d" % number for number in range(12)}


@each_row(
    ("options", "expected", "feed"),
    in_turn(
        [
            ("-s 4 --seed 0", "03 04 00 02 07 08 06 10 09 11 05 01"),  # these three are by webdataset's own shuffle
            ("-s 4 --seed 1", "01 00 02 04 07 08 09 10 03 06 11 05"),
            ("--shuffle 100 --seed 0", "06 11 00 04 07 03 02 10 05 08 09 01"),
            ("-s 1 --seed 0", "00 01 02 03 04 05 06 07 08 09 10 11"),
            ("-s 0 --seed 0", "00 01 02 03 04 05 06 07 08 09 10 11"),
            ("-s 4 --seed 0 --slice 2:6", "05 03 02 04"),
        ]
    ),
)
def test_shuffle(options: str, expected: str, run: Run, archive: Archive, feed: Feed) -> None:
    """Samples are shuffled through a buffer of N samples, after selection; the order depends on the seed only."""
    assert run("cat", feed(archive(TWELVE)), *options.split()).stdout == tar(pick(TWELVE, expected))


LARGE: dict[str, Content] = {
    "a.x": b"1",
    "b.x": b"2",
    **{f"big.{n}": random.Random(n).randbytes(size) for n, size in enumerate((2_200, 47_000, 28_000, 0))},
    "c.x": b"3",
    "e.0": b"4" * 62_500,
}


@each_row(
    ("options", "expected"),
    [
        ("", "a b big c e"),
        ("--match .", "a b big c e"),
        ("--match [abc]$", "a b c"),
        ("--slice 1:4", "b big c"),
        ("-c 3", "a b big"),
        ("--shard-slice 2:", "big c e"),
        ("-s 2 --seed 1", "a b c big e"),
        ("-s 9 --seed 1", "b a e c big"),
        ("-m 2", "a b big c e"),
        ("-p 2", "a b big c e"),
        ("--skip all", "a b big c e"),
        ("--maxerr 1 --slice 2:", "big c e"),
        ("--allow joined-sample", "a b big c e"),
        ("--allow joined-sample -s 3 --seed 1", "a c big b e"),
        ("--allow joined-sample --match [bige]$", "b big e"),
        ("--rekey {key}", "a b big c e"),
        ("-f 'x 3 0' --on-missing-field keep", "a b 3 c e"),
    ],
)
def test_large_samples(
    options: str,
    expected: str,
    run: Run,
    archive: Archive,
    feeds: list[Feed],
    small_memory: None,
) -> None:
    """Samples larger than the window of a stream have the same output as from a file, for all options."""
    rows = pick(LARGE, expected.replace("3", ""))
    if "-f" in options:
        rows = [*rows[:2], ("big.3", b""), ("big.0", LARGE["big.0"]), *rows[2:]]
    for feed in feeds[:2]:  # a compressed input is a stream, as a pipe is
        assert run("cat", feed(archive(LARGE)), *shlex.split(options)).stdout == tar(rows)


@each_row(
    ("options", "parallel", "feed"),
    in_turn(
        [("", "2"), ("-m 2", "9"), ("-s 5 --seed 1", "2"), ("--match [1357]$", "9"), ("-f cls", "2"), ("-f cls", "9")],
        0,
    ),
)
def test_reading_ahead_changes_nothing(options: str, parallel: str, run: Run, archive: Archive, feed: Feed) -> None:
    """-p N does not change the output."""
    words = [feed(archive({f"{n}{m}.cls": b"x" * 4000 * m for m in range(4)}, f"{n}.tar")) for n in range(4)]
    expected = run("cat", *words, *options.split()).stdout
    assert run("cat", *words, *options.split(), "-p", parallel).stdout == expected
    assert len(keys(expected).split()) >= 8


def test_log(run: Run, archive: Archive) -> None:
    """-L N prints a progress line every N samples."""
    ran = run("cat", archive(ABC), "-L", "2")
    assert ran.lines == ["tarkit: 2 samples, 5120 bytes"]
    assert ran.stdout == tar(ABC)
    assert run("cat", "in.tar", "--logging", "1", "-q").stderr == ""


# ---- inputs and outputs


def test_lists_of_inputs(run: Run, archive: Archive) -> None:
    """-T reads inputs from a list, one a line, or ended by NUL with -0; -l makes the only input such a list."""
    for name in ("1.tar", "2.tar", "a b.tar"):
        archive({f"{name[0]}.x": b""}, name)
    Path("list").write_text("2.tar\n\na b.tar\n")
    Path("nul").write_bytes(b"a b.tar\0")
    assert keys(run("cat", "1.tar", "-T", "list").stdout) == "1 2 a"
    assert keys(run("cat", "-T", "nul", "-0", "1.tar").stdout) == "1 a"
    assert keys(run("cat", "-l", "list").stdout) == "2 a"
    assert keys(run("cat", "--files-from", "-", stdin=b"{1..2}.tar\n").stdout) == "1 2"
    Path("list").write_text("1.tar\nnone.tar\n")
    assert run("cat", "-T", "list", exit=1).lines == ["tarkit: list:2: none.tar: No such file or directory"]


@each_feed
def test_several_volumes_are_refused(run: Run, archive: Archive, feed: Feed) -> None:
    """An archive of several volumes is valid, but not supported as an input."""
    word = feed(archive((DATA / "gnu-multivolume-2.tar").read_bytes()))
    ran = run("cat", word, "--skip", "all", "-o", "out.tar", exit=1)
    assert ran.lines[0] == f"tarkit: {word}: at 0: the archive has several volumes"
    assert not Path("out.tar").exists()


@each_row("suffix", ["gz", "zst", "lz4", "xz", "bz2"])
def test_codecs(suffix: str, run: Run, archive: Archive) -> None:
    """The suffix of the output determines the codec, --compress overrides it; reading restores the contents."""
    word = archive(ABC)
    run("cat", word, "-o", f"out.tar.{suffix}")
    assert Path(f"out.tar.{suffix}").read_bytes()[:2] != b"a."
    assert suffix != "gz" or Path("out.tar.gz").read_bytes()[4:8] == bytes(4), "a gzip header without a time"
    assert run("cat", f"out.tar.{suffix}").stdout == tar(ABC)
    level = "1" if suffix != "xz" else "0"
    packed = run("cat", word, "--compress", f"{suffix}:{level}").stdout
    assert packed != tar(ABC)
    Path("data").write_bytes(packed)  # a name without a suffix
    assert run("cat", "data").stdout == tar(ABC)
    run("cat", word, "--compress", "none", "-o", f"plain.tar.{suffix}")
    assert Path(f"plain.tar.{suffix}").read_bytes() == tar(ABC)


def test_output_appears_when_it_is_complete(run: Run, archive: Archive) -> None:
    """After an error the old file is unchanged; a new one gets the mode of the file that it replaces."""
    Path("out.tar").write_text("old")
    os.chmod("out.tar", 0o640)
    run("cat", archive(tar(ABC)[:7000], "cut.tar"), "-o", "out.tar", exit=1)
    assert Path("out.tar").read_text() == "old"
    run("cat", archive(ABC), "-o", "out.tar", "--fsync")
    assert Path("out.tar").read_bytes() == tar(ABC)
    assert stat.S_IMODE(os.stat("out.tar").st_mode) == 0o640


def test_a_report_is_no_input(run: Run, archive: Archive) -> None:
    """A report that is an input, under any name, is refused; `tests/shell` has other outputs."""
    archive(ABC)
    os.link("in.tar", "other.tar")
    for words in (["cat", "in.tar", "--report", "other.tar"], ["--report", "other.tar", "cat", "in.tar"]):
        assert run(*words, "-o", "out.tar", exit=2).lines[0] == "tarkit: in.tar is both input and output"
    assert Path("in.tar").read_bytes() == tar(ABC)


def test_terminals(run: Run, archive: Archive) -> None:
    """An archive is not read from a terminal, and not written to one: nothing of it is shown."""
    archive(ABC)
    ours, theirs = os.openpty()
    for words in ("cat -o o.tar", "cat - -o o.tar", "cat /dev/stdin -o o.tar", "split -c1", "create -o o.tar"):
        [line, hint] = run(*words.split(), stdin=theirs, exit=2).lines
        assert line in ("tarkit: stdin is a terminal", "tarkit: /dev/stdin is a terminal")
        assert hint.startswith("hint: ")
    for words in ("cat in.tar", "cat in.tar -o -", "cat in.tar -o /dev/stdout"):
        ran = run(*words.split(), stdout=theirs, exit=2)
        assert ran.lines[0].endswith("stdout: refusing to write an archive to a terminal")
    run("cat", "in.tar", "-o", "out.tar", stdout=theirs)
    os.write(theirs, b"END")
    assert os.read(ours, 1000) == b"END"
    assert sorted(os.listdir()) == ["in.tar", "out.tar"]
    assert run("cat", "in.tar", "-o", "/dev/stdout").stdout == tar(ABC)
    os.close(ours)
    os.close(theirs)


def test_missing_inputs_are_reported_first(run: Run, archive: Archive) -> None:
    """A missing shard is reported before anything is written."""
    archive(ABC, "0.tar")
    archive(ABC, "2.tar")
    ran = run("cat", "{0..2}.tar", "-o", "pipe:touch begun", exit=1)
    assert ran.lines == ["tarkit: 1.tar: No such file or directory (1 of the 3 names of {0..2}.tar are missing)"]
    assert not Path("begun").exists()
    for words, name in (["-o", "none/out.tar"], "none/out.tar"), (["-o", "b.tar", "--report", "none/r"], "none/r"):
        assert run("cat", "0.tar", *words, exit=1).lines == [
            f"tarkit: {name}: No such file or directory",
            "hint: there is no directory none: make it with mkdir -p",
        ]
        assert not Path("b.tar").exists()


# ---- common options


NO_FIELD = "no field is left of 3 samples, the first of them 'a': left out"


@each_row(
    ("options", "warnings"),
    [
        (["--drop", "*"], [NO_FIELD, "no sample is left: the output is an archive without any"]),
        (["--drop", "j*", "--drop", "json", "--drop", "JP?"], [
            NO_FIELD, "no sample is left: the output is an archive without any"]),
        (["--drop", "nothere", "--drop", "jpg", "--drop", "x*"], [
            "--drop 'nothere' matches no field", "--drop 'x*' matches no field"]),
        (["-f", "png", "--on-missing-field", "skip", "--drop", "jpg"], [
            "--drop 'jpg' matches no field", "no sample is left: the output is an archive without any"]),
        (["--match", "x", "--drop", "png"], ["no sample is left: the output is an archive without any"]),
    ],
)  # fmt: skip
def test_warnings_of_drop(options: list[str], warnings: list[str], run: Run, archive: Archive) -> None:
    """A warning says that no field is left, or that a glob matches none."""
    ran = run("cat", archive(ABC), *options, "-o", "out.tar")
    assert ran.lines[: len(warnings)] == [f"tarkit: warning: {line}" for line in warnings]


def test_samples_without_fields_left(run: Run, archive: Archive) -> None:
    """They are named once, whether other samples are left or not."""
    name = archive([("a.x", b"1"), ("b.x", b"2"), ("b.y", b"3"), ("c.x", b"4")])
    ran = run("cat", name, "--drop", "x", "-o", "out.tar")
    assert ran.lines == ["tarkit: warning: no field is left of 2 samples, the first of them 'a': left out"]
    assert entries("out.tar") == [("b.y", b"3")]
    ran = run("cat", name, "-f", "y", "--on-missing-field", "keep", "-R", "#", "-q", "--report", "r.json")
    assert ran.stdout == tar({"000000000.y": b"3"})
    assert json.loads(Path("r.json").read_text())["samples"] == 1  # no archive can store the others
    ran = run("sort", name, "-f", "y", "--on-missing-field", "keep", "--match", "[bc]", "-o", "out.tar")
    assert ran.lines == ["tarkit: warning: no field is left of 1 sample, 'c': left out"]


@pytest.mark.forks
@each_row(
    ("shards", "template", "expected"),
    [
        (["a/x", "b/x"], "{dir}/{stem}/{key}", "a/x/k b/x/k"),
        (["d/a/x", "d/b/c/x", "d/y"], "{dir}/{stem}-{key}", "a/x-k b/c/x-k y-k"),
        (["d/x", "d/y"], "{dir}/{stem}-{dir}-{key}", "x--k y--k"),
        (["{a}/x", "b/x"], "{dir}/{key}", "{a}/k b/k"),
    ],
)
def test_rekey_by_directory(shards: list[str], template: str, expected: str, run: Run, archive: Archive) -> None:
    """{dir} is the directory of the shard, relative to that of all inputs, also where each input has an output."""
    names = []
    for shard in shards:
        Path(shard).parent.mkdir(parents=True, exist_ok=True)
        names.append(archive({"k.x": b"1"}, f"{shard}.tar"))
    Path("out").mkdir()
    words = [f"file:{name}" for name in names]
    assert keys(run("cat", *words, "--rekey", template).stdout) == expected
    assert keys(run("cat", *map(os.path.abspath, names), "--rekey", template).stdout) == expected
    if "stem" in template:
        run("cat", *words, "--rekey", template, "-o", "out/{index}.tar")
        assert [keys(f"out/{number}.tar") for number in range(len(names))] == expected.split()
    [line, hint] = run("cat", *words, "--rekey", "{nothere}", exit=2).lines[-2:]
    assert "{stem}, {dir}, or" in hint, line


# ---- a specification of webdataset


def test_a_specification_stands_for_its_shards(run: Run, archive: Archive) -> None:
    """They come in random order, by the seed; other inputs keep their places, and a shard is not overwritten."""
    pytest.importorskip("yaml")
    for name in "abcdef":
        archive({f"{name}.txt": name.encode()}, f"{name}.tar")
    Path("spec.yaml").write_text("datasets: [{shards: '{b..f}.tar', choose: 4}]")
    ran = run("cat", "a.tar", "spec.yaml", "--seed", "1")
    assert keys(ran.stdout)[0] == "a"
    assert len(set(keys(ran.stdout).split())) == 5
    assert ran.stdout == run("cat", "a.tar", "spec.yaml", "--seed", "1").stdout
    assert len({run("cat", "spec.yaml", "--seed", str(seed)).stdout for seed in range(8)}) > 4
    assert "seed: " in run("cat", "spec.yaml").lines[0]
    assert "input and output" in run("cat", "spec.yaml", "-o", "b.tar", "--seed", "1", exit=2).lines[0]


@each_row("command", ["cat", "mix --seed 1"])
def test_hint_for_equal_keys(command: str, run: Run, archive: Archive) -> None:
    """The hint for equal keys is another one where --rekey was given, and it helps."""
    words = [*command.split(), archive({"a.x": b"1"}), "in.tar", "-o", "out.tar"]
    if command != "cat":
        words = [*command.split(), "in.tar@1", "in.tar@1", "--until", "all", "-o", "out.tar"]
    assert run(*words, exit=1).lines[-1] == "hint: make the keys differ: --rekey '{stem}/{key}'"
    [_, hint] = run(*words, "--rekey", "{stem}/{key}", exit=1).lines[-2:]
    assert hint.startswith("hint: this --rekey gives two samples one key: ")
    run(*words, "--rekey", hint.partition("--rekey '")[2].partition("'")[0])
    assert [name for name, _ in entries("out.tar")] == ["000000000-a.x", "000000001-a.x"]


@each_row("words", [["--rekey", "{key}-{index}"], ["-f", "new:txt"], ["--rekey", "x{index}", "-f", "new:txt"]])
@each_row("name", ["b\0.txt", "b.txt", "\0b.txt"])
@each_row("allow", ["unsafe-name", "all"])
def test_renaming_an_entry_with_a_nul_in_its_name(
    words: list[str], name: str, allow: str, run: Run, archive: Archive
) -> None:
    """PAX records may have such names, which no new header gets."""
    value = name.encode().replace(b"b", b"b.t\0xt" if name == "b.txt" else b"b")
    record = b" path=" + value + b"\n"
    length = len(record) + 2
    size = len(str(length)) + len(record)
    info = tarfile.TarInfo("PaxHeaders/b")
    info.type, payload = tarfile.XHDTYPE, b"%d" % size + record
    info.size = len(payload)
    data = info.tobuf(tarfile.USTAR_FORMAT) + payload + bytes(-len(payload) % 512) + tar({"b.txt": b"1"})
    ran = run("cat", archive(data), *words, "--allow", allow, "--on-missing-field", "keep", "-o", "out.tar", exit=None)
    lines = [line for line in ran.lines if not line.startswith(("hint: ", "tarkit: warning: "))]
    assert ran.status == 0 or ("NUL" in lines[0] or "not a key" in lines[0])
    assert len(lines) <= 1
