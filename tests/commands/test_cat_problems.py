"""tarkit cat of archives with problems: what ends the run, and what --allow, --skip and --maxerr keep."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tarkit.problems import PROBLEMS
from tarkit.samples import reader
from tests._feeds import in_turn
from tests._tools import each_row, with_field
from tests.commands.test_cat import ABC
from tests.commands.test_check import flip
from tests.conftest import (
    KINDS,
    PAX,
    Archive,
    Content,
    Feed,
    Link,
    Rows,
    Run,
    body,
    each_feed,
    entries,
    keys,
    pairs,
    pick,
    tar,
)

X = tar(ABC)
TWICE: Rows = [("a.jpg", b"1"), ("a.json", b"2"), ("a.jpg", b"3"), ("b.jpg", b"4")]
BACK: Rows = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.json", b"3"), ("c.jpg", b"4")]
LINKS: Rows = [
    ("a.jpg", b"1"),
    ("a.png", Link("a.jpg")),
    ("b.jpg", Link("a.jpg")),
    ("c.jpg", b"2"),
    ("c.x", Link("a.jpg", b"2")),
]
TRIPLE: Rows = [(f"{key}.{number}", b"x") for key in "abc" for number in (1, 2, 3)]
UNSAFE: Rows = [("/a.jpg", b"1"), ("../b.jpg", b"2"), ("x/../c.jpg", b"3"), ("a..b/c..d.jpg", b"4")]
LONG: dict[str, Content] = {"a.cls": b"1", "b" * 120 + ".cls": b"2"}


class Case(NamedTuple):
    """A problem: the message that ends the run ({0}, {1} are the inputs), the entries kept by --allow and by --skip."""

    problem: str
    inputs: list[bytes]
    message: str
    allow: Rows
    skip: Rows
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
    "no-size": Case("bad-header", [X[:2560] + with_field(X[2560:], 124, b"zzzzzzzzzzz\0")],
        "{0}: at 2560: a size that is not a number: b'zzzzzzzzzzz\\x00' in the header after 'a.json'",
        [pair for pair in ABC.items() if pair[0] != "b.jpg"], pick(ABC, "c")),
    "no-name": Case("bad-header", [X[:2560] + with_field(X[2560:], 0, bytes(100))],
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
        for policy in (["--skip", "all"], ["--maxerr", str(times)]):
            assert run("cat", *words, *policy).stdout == ran.stdout
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


@pytest.mark.slow
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
    data: bytes, options: str, expected: str | Rows, run: Run, archive: Archive, feed: Feed
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
    ("rows", "options", "expected"),
    [
        ("a.x README | b.0 b.1 b.2 c.x", "--allow trailing-data", "a.x README b.0 b.1 b.2 c.x"),
        ("a.x b.0 b.1 README | LICENSE", "--allow trailing-data", "a.x b.0 b.1 README LICENSE"),
        ("a.x b.0 README b.1 c.x", "--drop 2", "a.x b.0 README b.1 c.x"),
        ("a.x !b.x b.0 b.1 c.x", "--maxerr 1", "c.x"),
        ("a.x !b.x b.0 b.1 c.x", "--skip bad-header", "c.x"),
        ("a.x !b.x b.0 b.1 c.x", "--allow bad-header", "a.x b.0 b.1 c.x"),
        ("a.x b.0 !b.1 b.2 c.x", "--allow bad-header", "a.x b.0 b.2 c.x"),
        ("a.x b.0 !b.1 b.2 c.x", "--skip bad-header", "a.x c.x"),
        ("a.x b.0 !b.1 b.2 c.x", "--allow bad-header -s 10 --seed 1", "a.x c.x b.0 b.2"),
        ("a.x b.0 !b.1 b.2 c.x", "--allow bad-header -s 10 --seed 1 -f 2 -f x --on-missing-field keep", "a.x c.x b.2"),
        ("a.x b.0 !b.1 b.2 c.x", "--allow bad-header,joined-sample -R {key}", "a.x b.0 b.2 c.x"),
    ],
)
def test_damage_around_large_samples(
    rows: str, options: str, expected: str, run: Run, archive: Archive, feeds: list[Feed], small_memory: None
) -> None:
    """Problems of large samples are handled as those of small ones.

    `|` is an end with another archive after it, `!` a damaged header; entries with a number are large.
    """

    def members(names: str) -> Rows:
        return [(name, name.encode() * (1250 if name[-1].isdigit() else 1)) for name in names.split()]

    data = b"".join(tar(members(part)) for part in rows.replace("!", "").split("|"))
    before, damage, _ = rows.partition("!")
    if damage:
        data = flip(data, len(body(tar(members(before)))))
    for feed in feeds:
        assert run("cat", feed(archive(data)), *options.split()).stdout == tar(members(expected))


@each_feed
def test_a_large_sample_is_examined_once(
    run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is checked once, entry by entry, from any feed."""
    monkeypatch.setattr(reader, "LARGE", 1 << 16)
    rows: Rows = [("a.0", b"0"), ("a.0", b"1")]
    rows += [(f"a.{number}", b"x" * 9000) for number in range(1, 30)]
    ran = run("cat", feed(archive([*rows, ("a.1", b"2")])), "--allow", "duplicate-entry", "--report", "r.json")
    assert ran.stdout == tar([*rows, ("a.1", b"2")])
    assert json.loads(Path("r.json").read_text())["problems"] == {"duplicate-entry": 2}


def test_an_archive_in_a_damaged_entry_is_ignored(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The entries of an archive inside a damaged entry are content, whether the sample is kept or not."""
    rows: Rows = [*pick(ABC, "a"), ("b.txt", b"1"), ("b.tar", tar(ABC)), ("b.x", b"2")]
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
        "hint: make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice",
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
    twins: Rows = [("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("a.z", b"4"), ("a.y", b"5")]
    for rows, equal in ((BACK, False), (twins, True)):
        word = feed(archive(rows))
        for command in ("cat", "stats", "split -c 1 -o o-%d.tar", "check"):
            ran = run(*command.split(), word, exit=1)
            lines = [*ran.printed, *ran.lines]
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


@pytest.mark.parametrize("option", ["--allow", "--skip"])
def test_neighbours_of_one_key(run: Run, archive: Archive, option: str) -> None:
    """Any number of neighbours are one sample with the entries of all, in order; see whether a name comes twice."""
    for seed in range(6):
        draw = random.Random(seed)
        rows = [
            (draw.choice("abb"), draw.sample(range(40), draw.randrange(1, 4))) for _ in range(draw.randrange(1, 25))
        ]
        words = []
        expected: list[tuple[str, bytes]] = []
        for key, group in groupby(enumerate(rows), lambda row: row[1][0]):
            joined: list[tuple[str, bytes]] = []
            for number, (_, fields) in group:
                joined += [(f"{key}.{field}", b"%d" % number) for field in fields]
                words.append(archive([*joined[-len(fields) :]], f"{number:02}.tar"))
            if option == "--allow" or len(dict(joined)) == len(joined):
                expected += joined
        options = ["--allow", "joined-sample,repeated-key", option, "duplicate-entry"]
        assert run("cat", *words, *options).stdout == tar(expected), seed


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


@each_row(
    ("data", "problem", "skip"),
    [
        (flip(GZ, len(GZ) - 8), "bad-data", "a b"),  # the checksum
        (flip(GZ, len(GZ) - 1), "bad-data", "a b"),  # the size
        (GZ + b"hello", "trailing-data", "a b c"),
    ],
)
@each_row("kind", ["file", "pipe"])
def test_damaged_gzip(data: bytes, problem: str, skip: str, kind: str, run: Run) -> None:
    """Damage of the compression is an error, from a file and from a pipe; --allow keeps all, --skip what is certain."""
    Path("in.tar.gz").write_bytes(data)
    word = Feed(kind)("in.tar.gz")
    ran = run("cat", word, "-o", "out.tar", exit=1)
    assert ran.lines[0].startswith(f"tarkit: {word}: ")
    assert ran.lines[0].endswith(f"[{problem}]")
    assert not Path("out.tar").exists()
    assert run("cat", word, "--allow", problem).stdout == tar(ABC)
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


@pytest.mark.slow
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
