"""tarkit mix: the output, to the byte, from files, pipes and compressed files."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tarkit.samples import reader
from tarkit.samples.fields import stem
from tarkit.streams import source
from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Link, Piped, Run, body, each_feed, entries, keys, pick, tar

A: dict[str, Content] = {f"a{n}.{field}": f"A{n}{field}".encode() * 99 for n in range(3) for field in ("cls", "jpg")}
B: dict[str, Content] = {f"b{n}.{field}": f"B{n}{field}".encode() * 9 for n in range(4) for field in ("cls", "jpg")}
AB = {**A, **B}


def weighed(word: str, weight: str) -> str:
    """Return an input with @WEIGHT after it."""
    if not isinstance(word, Piped):
        return word + weight
    new = str.__new__(Piped, f"{word}{weight}")
    new.number, new.path = word.number, word.path
    return new


def drawn(seed: int, *sources: tuple[float, list[str]], until: str = "first", total: int | None = None) -> str:
    """Return the draws of a mix by a simple model: choices among the remaining sources."""
    rng, left, live, out = random.Random(seed), [list(each) for _, each in sources], [*range(len(sources))], list[str]()
    while len(out) != total:
        [each] = rng.choices(live, [sources[number][0] for number in live])
        if left[each]:
            out.append(left[each].pop(0))
        elif until == "first" or len(live) == 1:
            break
        else:
            live.remove(each)
    return " ".join(out)


def rows(expected: str) -> list[tuple[str, Content]]:
    """Return the members of A and B with these keys, which may be new ones of repeated samples."""
    pairs = [(key, pick(AB, key.partition("~")[0])) for key in expected.split()]
    return [(key + name[2:], content) for key, members in pairs for name, content in members]


# ---- the draw

EXACT = [
    # weights, options, the keys in the output
    ("@1 @1", "--until all --seed 1", "a0 b0 b1 a1 a2 b2 b3"),
    (" ", "--until all --seed 1", "a0 b0 b1 a1 a2 b2 b3"),
    ("@3 @1", "--seed 1", "a0 b0 b1 a1 a2"),
    ("@1 @3", "--seed 1", "a0 b0 b1 b2 b3"),
    ("@1 @3", "--seed 1 --total 2", "a0 b0"),
    ("@1 @3", "--seed 1 --total 0", ""),
    ("@1 @1", "--seed 1 --until all --total 6", "a0 b0 b1 a1 a2 b2"),
    ("@1 @1", "--seed 1 --repeat --total 9", "a0 b0 b1 a1 a2 a0~2 b2 b3 a1~2"),
    ("@1 @1", "--seed 1 --repeat --until all", "a0 b0 b1 a1 a2 a0~2 b2 b3 a1~2 a2~2"),
]


@each_row(("weights", "options", "expected"), EXACT)
def test_exact_order(weights: str, options: str, expected: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The same seed gives the same bytes from every feed; entries keep their headers."""
    for feed in feeds if "--total 9" in options else feeds[:1]:
        inputs = feed(archive(A, "a.tar")), feed(archive(B, "b.tar"))
        words = [weighed(word, weight) for word, weight in zip(inputs, weights.split(" "), strict=True)]
        assert run("mix", *words, *options.split()).stdout == tar(rows(expected))


def test_shares(run: Run, archive: Archive) -> None:
    """The summary has a table of shares, the report all of it; shares are near the requested ones."""
    archive({f"a{n}.x": b"" for n in range(40)}, "a.tar")
    archive({f"b{n}.x": b"" for n in range(300)}, "b-1.tar")
    ran = run("mix", "a.tar@3", "b-*.tar", "--repeat", "--total", "1K", "--seed", "4", "--report", "r.json", "-v")
    report = json.loads(Path("r.json").read_text())
    counts = [each["samples"] for each in report["sources"]]
    assert report["samples"] == sum(counts) == 1000
    assert (counts[0] - 750) ** 2 / 750 + (counts[1] - 250) ** 2 / 250 < 6.6  # 99 % of chi-square
    names = ("source", "weight", "probability", "asked", "got", "samples", "passed_over", "laps")
    assert report["sources"] == [
        dict(zip(names, ("a.tar", 3, 1, 0.75, counts[0] / 1000, counts[0], 0, counts[0] // 40), strict=True)),
        dict(zip(names, ("b-*.tar", 1, 1, 0.25, counts[1] / 1000, counts[1], 0, 0), strict=True)),
    ]
    assert ran.lines[-5:-1] == [
        "tarkit: samples that were drawn again have ~2, ~3, ... after their keys",
        "tarkit: source   weight   asked     got  samples  laps",
        f"tarkit: a.tar         3  75.00%  {counts[0] / 1000:.2%}      {counts[0]}    {counts[0] // 40}",
        f"tarkit: b-*.tar       1  25.00%  {counts[1] / 1000:.2%}      {counts[1]}     0",
    ]
    assert ran.lines[-1].startswith("tarkit: mix: 1000 samples, ")
    assert run("mix", "a.tar@3", "b-*.tar", "--until", "all", "--seed", "4").stderr == ""
    assert run("mix", "a.tar@3", "b-*.tar", "--seed", "4", "-q").stderr == ""


# ---- the end


@each_feed
def test_what_is_left_is_said(run: Run, archive: Archive, feed: Feed) -> None:
    """A run that stops at the end of a source says what is left of others, and one that ends before --total says so."""
    words = feed(archive(A, "a.tar")), feed(archive(B, "b.tar")), feed(archive({"c.x": b""}, "c.tar"))
    ran = run("mix", weighed(words[0], "@9"), *words[1:], "--seed", "1", "--report", "r.json")
    what = f"{words[0]} has no more samples, 2 of 3 sources have some left: "
    what += "--until all continues with these, --repeat reads it again"
    assert ran.lines == [f"tarkit: {what}"]
    assert json.loads(Path("r.json").read_text())["input_left"] == [*words[1:]]
    assert run("mix", *words, "--seed", "1", "--total", "2").lines == []
    ran = run("mix", *words, "--seed", "1", "--until", "all", "--total", "9")
    assert ran.lines == ["tarkit: 8 samples instead of 9: the sources have no more"]
    ran = run("mix", *words[:2], "--seed", "1", "--total", "9")
    assert len(ran.lines) == 2
    assert ran.lines[1] == "tarkit: 5 samples instead of 9"


@each_feed
def test_what_is_left_may_be_damaged(run: Run, archive: Archive, feed: Feed) -> None:
    """Damage in samples that are not drawn is ignored; else there is no output."""
    words = feed(archive({"a.x": b""}, "a.tar")), feed(archive(body(tar(B))[:3500], "cut.tar"))
    ran = run("mix", weighed(words[0], "@4"), words[1], "--seed", "1", "--report", "r.json")
    assert keys(ran.stdout) == "a b0"
    assert json.loads(Path("r.json").read_text())["input_left"] == [words[1]]
    ran = run("mix", *words, "--seed", "1", "--until", "all", "-o", "out.tar", exit=1)
    assert ran.lines[0].startswith(f"tarkit: {words[1]}: at 3500: the input ends inside a header after 'b1.cls'")
    assert not Path("out.tar").exists()


EMPTY = [
    # the second source, options
    (tar({}), ""),
    (tar({"README": b"", "d": None}), ""),
    (tar(B), "--match a"),
    (tar(B), "--match a --repeat --total 9"),
    (tar(B), "--match a --until all"),
    (tar({"c.x": b""}), "-f cls --on-missing-field skip"),
    (tar({"c.x": b""}), "-f cls --on-missing-field skip --repeat --total 9"),
]


@each_row(("data", "options"), EMPTY)
def test_a_source_without_samples(data: bytes, options: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A source without samples is an error without an output."""
    for feed in feeds if options == "" else feeds[:1]:
        words = feed(archive(A, "a.tar")), feed(archive(data, "b.tar"))
        ran = run("mix", *words, *options.split(), "--seed", "1", "-o", "out.tar", exit=1)
        assert ran.lines[-2:] == [
            f"tarkit: {words[1]}: no sample to draw",
            "hint: leave the source out, or check its selection",
        ]
        assert not Path("out.tar").exists()


@each_feed
def test_entries_without_key_go_with_a_sample(run: Run, archive: Archive, feed: Feed) -> None:
    """Entries without a key belong to samples as in cat; a shard without samples is left out with a warning."""
    members: list[tuple[str, Content]] = [("d", None), ("d/a.x", b"1"), ("d/README", b"2"), ("d/b.x", b"3")]
    archive(members, "1.tar")
    word = feed(archive({"d/README": b""}, "2.tar"))
    ran = run("mix", "1.tar", "--seed", "1")
    assert ran.stdout == tar(members)
    Path("m.json").write_text(json.dumps({"sources": [{"shards": ["1.tar", str(word)]}]}))
    if feed.kind != "pipe":
        ran = run("mix", "m.json", "--seed", "1")
        assert ran.stdout == tar(members)
        assert ran.lines == [f"tarkit: warning: {word}: 1 entry without a key is left out: it is in no sample"]


# ---- selection

CHOSEN = [
    ("--match 1", "a1 b1"),
    ("--slice 1:", "a1 a2 b1 b2 b3"),
    ("--shard-slice 1:3", "a1 a2 b1 b2"),
    ("--keys-from list", "a2 b0 b3"),
    ("--sample 100%", "a0 a1 a2 b0 b1 b2 b3"),
    ("-f jpg", "a0 a1 a2 b0 b1 b2 b3"),
]


@each_row(("options", "expected"), CHOSEN)
def test_samples_are_chosen_before_they_are_drawn(
    options: str, expected: str, run: Run, archive: Archive, feeds: list[Feed]
) -> None:
    """Samples of each source are selected before the draw; shares apply to selected samples."""
    Path("list").write_text("a2\nb0\nb3\n")
    order = drawn(
        3, (2, [key for key in expected.split() if key < "b"]), (1, [key for key in expected.split() if key > "b"])
    )
    for feed in feeds if "slice" in options else feeds[:1]:
        words = weighed(feed(archive(A, "a.tar")), "@2"), feed(archive(B, "b.tar"))
        out = run("mix", *words, *options.split(), "--seed", "3").stdout
        assert out == tar([row for row in rows(order) if "jpg" in row[0] or options != "-f jpg"])


def test_sample_is_another_draw_in_each_source(run: Run, archive: Archive) -> None:
    """--sample selects about its share, at other positions in each source."""
    for letter in "ab":
        archive({f"{letter}{n:03}.x": b"" for n in range(150)}, f"{letter}.tar")
    out = keys(run("mix", "a.tar", "b.tar", "--sample", ".5", "--seed", "1", "--until", "all").stdout).split()
    places = [{key[1:] for key in out if key[0] == letter} for letter in "ab"]
    assert places[0] != places[1]
    assert all(55 < len(each) < 95 for each in places)


@each_feed
def test_keys_from_says_what_was_found(run: Run, archive: Archive, feed: Feed) -> None:
    """Found keys are counted once for all sources."""
    Path("list").write_text("a1\nnone\nb0\n")
    words = feed(archive(A, "a.tar")), feed(archive(B, "b.tar"))
    ran = run("mix", *words, "--keys-from", "list", "--until", "all", "--seed", "1")
    assert ran.lines == ["tarkit: list: 3 keys requested, 2 found, 1 missing, the first of them 'none'"]
    run("mix", *words, "--keys-from", "list", "--require-all", "--until", "all", "-o", "out.tar", exit=1)
    assert not Path("out.tar").exists()


# ---- keys


@each_row(
    ("spec", "expected"),
    [
        ("{stem}/{key}", "{0}/k0 {1}/k0 {1}/k1 {0}/k1"),
        ("#", "000000000 000000001 000000002 000000003"),
        ("x/{key}-{index:02d}", "x/k0-00 x/k0-01 x/k1-02 x/k1-03"),
    ],
)
def test_rekey(spec: str, expected: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """New keys are those of the mix: numbers run through all sources."""
    members: dict[str, Content] = {f"k{n}.x": b"" for n in range(2)}
    for feed in feeds:
        words = feed(archive(members, "a.tar")), feed(archive(members, "b.tar"))
        ran = run("mix", *words, "--rekey", spec, "--until", "all", "--seed", "1")
        assert keys(ran.stdout) == expected.format(*map(stem, words))
        assert ran.stderr == ""


@each_feed
def test_one_key_in_two_sources(run: Run, archive: Archive, feed: Feed) -> None:
    """A key in two sources is an error, for neighbours and others, unless the keys change."""
    words = feed(archive({"k.x": b"1", "l.x": b"2"}, "a.tar")), feed(archive({"m.x": b"3", "k.x": b"4"}, "b.tar"))
    ran = run("mix", *words, "--until", "all", "--seed", "1", exit=1)  # a0 b0 b1 a1
    assert ran.lines[0] == f"tarkit: {words[1]}: at 1024: the key 'k' is already in the output [repeated-key]"
    ran = run("mix", *words, "--until", "all", "--seed", "1", "--allow", "repeated-key")
    assert (keys(ran.stdout), ran.stderr) == ("k m k l", "")
    ran = run("mix", *words, "--until", "all", "--seed", "1", "--skip", "repeated-key", "--report", "r.json")
    assert keys(ran.stdout) == "k m l"
    report = json.loads(Path("r.json").read_text())
    assert (report["samples"], report["skipped"]) == (3, {"repeated-key": 1})
    words = feed(archive({"k.x": b"1"}, "a.tar")), feed(archive({"k.y": b"3"}, "b.tar"))
    ran = run("mix", *words, "--until", "all", "--seed", "1", "-o", "out.tar", exit=1)
    assert ran.lines == [
        f"tarkit: {words[1]}: at 0: the sample before it in the output has the same key 'k' [joined-sample]",
        "hint: make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice",
    ]
    assert not Path("out.tar").exists()
    out = run("mix", *words, "--until", "all", "--seed", "1", "--allow", "joined-sample").stdout
    assert out == tar({"k.x": b"1", "k.y": b"3"})


@each_feed
def test_what_comes_again_stays_apart(run: Run, archive: Archive, feed: Feed) -> None:
    """Repeated samples of a source get new keys, so that the output can be read; --rekey applies last."""
    words = feed(archive({"k.x": b"1"}, "a.tar")), feed(archive({"l.x": b"3"}, "b.tar"))
    run("mix", *words, "--repeat", "--total", "9", "--seed", "1", "-o", "out.tar")
    assert keys("out.tar") == "k l l~2 k~2 k~3 k~4 l~3 l~4 k~5"
    assert run("cat", "out.tar").stderr == ""
    out = run("mix", *words, "--repeat", "--total", "3", "--seed", "1", "--rekey", "x/{key}").stdout
    assert keys(out) == "x/k x/l x/l~2"


@each_feed
def test_hard_links_are_refused(run: Run, archive: Archive, feed: Feed) -> None:
    """A hard link whose meaning would change is an error with its name."""
    word = feed(archive({"a.x": b"1", "b.x": Link("a.x")}))
    ran = run("mix", word, "--seed", "1", exit=1)
    assert ran.lines[0].endswith("'b.x' is a hard link to 'a.x', which is not in its sample [unmovable-entry]")


# ---- descriptions in files


def test_tarmix(run: Run, archive: Archive) -> None:
    """Weights, repeats, several shards in turn, renamed fields, new keys, missing files, and a buffer are supported."""
    pytest.importorskip("yaml")
    archive(A, "a.tar")
    archive(pick(B, "b0 b1"), "b-0.tar")
    archive(pick(B, "b2 b3"), "b-1.tar")
    Path("mix.yaml").write_text("""
sources:
  - {shards: a.tar, weight: 1, rename: {cls: label, jpg: ""}, rekey: "x/{key}"}
  - {shards: "b-{0..2}.tar", weight: 1, nstreams: 2, allow_missing: true}
""")
    ran = run("mix", "mix.yaml", "--until", "all", "--seed", "1")
    order = "x/a0 b0 b2 x/a1 x/a2 b1 b3"
    assert keys(ran.stdout) == order
    a = {f"x/{name[:2]}.label": content for name, content in A.items() if name.endswith("cls")}
    assert ran.stdout == tar(pick({**a, **B}, order))
    assert ran.lines == ["tarkit: b-{0..2}.tar: 1 of 3 are missing, and left out"]
    Path("mix.yaml").write_text("shuffle: 4\nsources: [{shards: [b-0.tar, b-1.tar], nrepeats: 2, shuffle: 3}]")
    ran = run("mix", "mix.yaml", "--seed", "1")
    assert sorted(keys(ran.stdout).split()) == sorted(f"b{n}{tail}" for n in range(4) for tail in ("", "~2"))
    assert keys(ran.stdout) != keys(run("mix", "mix.yaml", "--seed", "2").stdout)
    assert ran.stdout == run("mix", "mix.yaml", "--seed", "1").stdout


def test_datasets(run: Run, archive: Archive) -> None:
    """webdataset's format is read as JSON; without weights, shards count."""
    for name in "abcd":
        archive({f"{name}{n}.x": b"" for n in range(2)}, f"d/{name}.tar")
    description = {
        "prefix": "d/",
        "datasets": [{"shards": "{a..c}.tar", "choose": 2}, {"shards": "d.tar", "resample": 3}],
    }
    Path("mix.json").write_text(json.dumps(description))
    ran = run("mix", "mix.json", "--until", "all", "--seed", "1", "--report", "r.json")
    found = keys(ran.stdout).split()
    assert [key for key in found if key[0] == "d"] == ["d0", "d1", "d0~2", "d1~2", "d0~3", "d1~3"]
    assert len(found) == 10
    assert len({key[0] for key in found}) == 3
    sources = json.loads(Path("r.json").read_text())["sources"]
    assert [(each["source"], each["weight"], each["samples"]) for each in sources] == [
        ("d/{a..c}.tar", 2, 4),
        ("d/d.tar", 3, 6),
    ]


def passes(run: Run, archive: Archive, count: int, form: str = "sources", **source: Any) -> str:
    """Return COUNT keys of one source, by default of four shards of two samples, a0 a1 to d0 d1, again and again."""
    for name in "abcd":
        archive({f"{name}{n}.x": b"" for n in range(2)}, f"{name}.tar")
    Path("m.json").write_text(json.dumps({form: [{"shards": "{a,b,c,d}.tar", **source}]}))
    return keys(run("mix", "m.json", "--repeat", "--total", str(count), "--seed", "1").stdout)


def test_shards_in_turn(run: Run, archive: Archive) -> None:
    """nstreams shards are read in turn; nrepeats repeats within a pass."""
    assert passes(run, archive, 8, nstreams=3) == "a0 b0 c0 a1 b1 c1 d0 d1"
    assert passes(run, archive, 4, shards="a.tar", nrepeats=2) == "a0 a1 a0~2 a1~2"


@each_row(
    ("source", "step", "every"),
    [
        ({"shuffle": 1}, 2, "a b c d"),  # of each shard one sample after the other: the order of shards
        ({"shards": "e.tar", "shuffle": 8}, 1, "e0 e1 e2 e3 e4 e5 e6 e7"),
    ],
)
def test_shuffle(source: dict[str, Any], step: int, every: str, run: Run, archive: Archive) -> None:
    """Shards come in random order, samples through a buffer: all are there, in another order in each pass."""
    archive({f"e{n}.x": b"" for n in range(8)}, "e.tar")
    both = [key[: len(every.split()[0])] for key in passes(run, archive, 16, **source).split()]
    first, second = " ".join(both[:8:step]), " ".join(both[8::step])
    assert " ".join(sorted(first.split())) == " ".join(sorted(second.split())) == every
    assert len({first, second, every}) == 3
    assert [key[: len(every.split()[0])] for key in passes(run, archive, 8, **source).split()] == both[:8]


def test_choose_and_resample(run: Run, archive: Archive) -> None:
    """choose draws N shards without replacement, anew in each pass; resample draws N with replacement."""
    everything = passes(run, archive, 24, "datasets", choose=2).split()
    shards = [{key[0] for key in everything[at : at + 4]} for at in range(0, 24, 4)]
    assert {len(each) for each in shards} == {2}
    assert len(set(map(frozenset, shards))) > 2
    assert len(set(everything)) == 24
    assert len(set(passes(run, archive, 18, "datasets", resample=9).split())) == 18
    Path("m.json").write_text('{"datasets": [{"shards": "{a,b,c,d}.tar", "choose": 5}]}')
    assert run("mix", "m.json", exit=2).lines == ["tarkit: {a,b,c,d}.tar: choose 5 of 4 shards"]


def test_probability(run: Run, archive: Archive) -> None:
    """A sample that is drawn is kept with the given probability."""
    for letter in "ab":
        archive({f"{letter}{n:03}.x": b"" for n in range(200)}, f"{letter}.tar")
    Path("m.json").write_text(json.dumps({"sources": [{"shards": "a.tar"}, {"shards": "b.tar", "probability": 0.25}]}))
    run("mix", "m.json", "--seed", "1", "--report", "r.json", "-o", "out.tar")
    a, b = json.loads(Path("r.json").read_text())["sources"]
    assert (a["asked"], b["asked"]) == (0.8, 0.2)
    assert keys("out.tar").count("b") == b["samples"]
    assert a["passed_over"] == 0
    assert 2 < b["passed_over"] / b["samples"] < 4
    assert 30 < b["samples"] < 70 < 150 < a["samples"] <= 200


# ---- sources


def test_streams_begin_again(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Pipes are spooled, files and commands opened again; stdin is either."""
    options = ["--repeat", "--total", "50", "--seed", "7"]
    archive(A, "a.tar")
    archive(B, "b.tar")
    expected = run("mix", "a.tar", "b.tar", *options).stdout
    for feed in feeds[1:]:
        assert run("mix", feed("a.tar"), feed("b.tar"), *options).stdout == expected
    assert run("mix", "-", "pipe:cat b.tar", *options, stdin=Path("a.tar")).stdout == expected
    Path("a.gz").write_bytes(gzip.compress(tar(A)))
    assert run("mix", "-", feeds[2]("b.tar"), *options, stdin=Path("a.gz")).stdout == expected
    read, write = os.pipe()
    os.write(write, tar(A))
    os.close(write)
    assert run("mix", "-", feeds[1]("b.tar"), *options, stdin=read).stdout == expected
    os.close(read)


@each_feed
def test_large_samples_of_streams(run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples larger than memory of several streams have the same output as from files."""
    monkeypatch.setattr(reader, "LARGE", 1 << 12)
    monkeypatch.setattr(source, "HELD", 1 << 14)
    monkeypatch.setattr(source, "CHUNK", 1 << 12)
    monkeypatch.setattr(source, "SPLICED", 1 << 13)
    sets = [
        {f"{letter}{n}.bin": random.Random(f"{letter}{n}").randbytes(n * 10_001) for n in range(4)} for letter in "xyz"
    ]
    words = [feed(archive(members, f"{n}.tar")) for n, members in enumerate(sets)]
    order = drawn(5, *((1, [name[:2] for name in members]) for members in sets), until="all")
    everything = {name: content for members in sets for name, content in members.items()}
    for options in ([], ["--allow", "joined-sample"], ["--skip", "all"], ["-p", "2"], ["--repeat"]):
        ran = run("mix", *words, "--until", "all", "--seed", "5", *options)
        if options != ["--repeat"]:
            assert ran.stdout == tar(pick(everything, order))
        else:
            assert {name: content for name, content in entries(ran.stdout) if "~" not in name} == everything


def test_a_file_with_an_at_in_its_name(run: Run, archive: Archive) -> None:
    """A file with @ in its name takes precedence over a weight."""
    archive(A, "a@2")
    assert run("mix", "a@2", "--seed", "1").stdout == tar(A)
    assert run("mix", "a@2@3", "--seed", "1").stdout == tar(A)
