"""tarkit cat: the output, to the byte, from files, pipes and compressed files."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path

import pytest

from tests._feeds import in_turn
from tests._tools import each_row, extension
from tests.conftest import GNU, PAX, Archive, Content, Feed, Rows, Run, each_feed, entries, keys, pick, tar

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

STRAYS: Rows = [
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
    members: Rows = [("d", None), ("README", b"1"), (".x.y", b"2")]
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

SAMPLE: Rows = [
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


# ---- several inputs: mix, shuffle, read ahead


MIXES = [(1, "a1 a2 a3 b1 c1 c2"), (2, "a1 b1 a2 c1 a3 c2"), (3, "a1 b1 c1 a2 c2 a3"), (9, "a1 b1 c1 a2 c2 a3")]


@each_row(("mix", "expected", "feed"), in_turn(MIXES))
def test_mix(mix: int, expected: str, run: Run, archive: Archive, feed: Feed) -> None:
    """N open inputs alternate; when one ends, the next one is opened."""
    all_: dict[str, Content] = {f"{key}.cls": key.encode() for key in ["a1", "a2", "a3", "b1", "c1", "c2"]}
    words = [feed(archive([pair for pair in all_.items() if pair[0][0] == name], f"{name}.tar")) for name in "abc"]
    assert run("cat", *words, "-m", str(mix)).stdout == tar(pick(all_, expected))


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
    assert ran.lines == [
        "tarkit: 1.tar: No such file or directory (1 of the 3 names of {0..2}.tar are missing)",
        "hint: --skip missing-shard goes on without it",
    ]
    assert not Path("begun").exists()


# ---- common options


NO_FIELD = "no field is left of 3 samples, the first of them 'a': left out"
NO_SAMPLE = "no sample is left: the output is an archive without any"


@each_row(
    ("options", "warnings"),
    [
        ("--drop *", [NO_FIELD, NO_SAMPLE]),
        ("--drop j* --drop json --drop JP?", [NO_FIELD, NO_SAMPLE]),
        ("--drop none --drop jpg --drop x*", ["--drop 'none' matches no field", "--drop 'x*' matches no field"]),
        ("-f png --on-missing-field skip --drop jpg", ["--drop 'jpg' matches no field", NO_SAMPLE]),
        ("--match x --drop png", [NO_SAMPLE]),
    ],
)
def test_warnings_of_drop(options: str, warnings: list[str], run: Run, archive: Archive) -> None:
    """A warning says that no field is left, or that a glob matches none."""
    ran = run("cat", archive(ABC), *options.split(), "-o", "out.tar")
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
    names = [archive({"k.x": b"1"}, f"{shard}.tar") for shard in shards]
    Path("out").mkdir()
    words = [f"file:{name}" for name in names]
    assert keys(run("cat", *words, "--rekey", template).stdout) == expected
    assert keys(run("cat", *map(os.path.abspath, names), "--rekey", template).stdout) == expected
    if "stem" in template:
        run("cat", *words, "--rekey", template, "-o", "out/{index}.tar")
        assert [keys(f"out/{number}.tar") for number in range(len(names))] == expected.split()


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
    """The hint for equal keys that --rekey has made names a template that makes them differ."""
    archive({"a.x": b"1"})
    inputs = ["in.tar", "in.tar"] if command == "cat" else ["in.tar@1", "in.tar@1", "--until", "all"]
    words = [*command.split(), *inputs, "-o", "out.tar"]
    [_, hint] = run(*words, "--rekey", "{stem}/{key}", exit=1).lines[-2:]
    assert hint.startswith("hint: this --rekey gives two samples one key: ")
    run(*words, "--rekey", hint.partition("--rekey '")[2].partition("'")[0])
    assert [name for name, _ in entries("out.tar")] == ["000000000-a.x", "000000001-a.x"]


@each_row("words", [["--rekey", "{key}-{index}"], ["-f", "new:txt"], ["--rekey", "x{index}", "-f", "new:txt"]])
@each_row("name", ["b\0.txt", "b.t\0xt.txt", "\0b.txt"])
@each_row("allow", ["unsafe-name", "all"])
def test_renaming_an_entry_with_a_nul_in_its_name(
    words: list[str], name: str, allow: str, run: Run, archive: Archive
) -> None:
    """PAX records may have such names, which no new header gets."""
    record = b" path=" + name.encode() + b"\n"
    data = extension(b"x", b"%d" % (len(record) + 2) + record) + tar({"b.txt": b"1"})
    ran = run("cat", archive(data), *words, "--allow", allow, "--on-missing-field", "keep", "-o", "out.tar", exit=None)
    lines = [line for line in ran.lines if not line.startswith(("hint: ", "tarkit: warning: "))]
    assert ran.status == 0 or ("NUL" in lines[0] or "not a key" in lines[0])
    assert len(lines) <= 1
