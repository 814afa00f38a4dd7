"""tarkit split into several series: --map, --parts, --stratify; --even size; and that no sample is lost."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tarkit.samples import reader
from tarkit.shards import categories
from tarkit.sorting import memory
from tarkit.streams import source
from tests._feeds import in_turn
from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Run, each_feed, entries, keys, pick, tar

HUNDRED: dict[str, Content] = {f"k{number:03}.cls": b"%d" % (number % 7) for number in range(100)}
TEN: dict[str, Content] = {f"{number}.cls": b"%d" % number for number in range(10)}
KIB = b"x" * 1024
FISH = '{"fish-%d.tar":["train/n01440764.*","train/n01443537.*"],"dog-%d.tar":["train/n02084071.*"]}'
CLASSES = {
    "train/n01440764/a.JPEG": KIB,
    "train/n01443537/b.JPEG": KIB,
    "train/n02084071/c.JPEG": KIB,
    "train/n09999999/z.JPEG": KIB,
}
CATS = "cat_0.txt shard-cats-%d\ndog_0.txt shard-dogs-%d\ncat_1.txt shard-cats-%d\ndog_1.txt shard-dogs-%d\n"
HALF = "a=0.5,b=0.5"
TENFOLD: list[dict[str, Content]] = [{f"{shard}{file}.x": KIB for file in range(5)} for shard in range(10)]
FIVEFOLD = {
    f"o-{n}.tar": " ".join(f"{shard}{file}" for shard in (2 * n, 2 * n + 1) for file in range(5)) for n in range(5)
}


def shards(pattern: str = "**/*-*") -> dict[str, str]:
    """Return the keys in each matching file."""
    return {str(path.relative_to(Path.cwd())): keys(path) for path in sorted(Path.cwd().glob(pattern))}


def report() -> Any:
    return json.loads(Path("r.json").read_text())


def sized(*sizes: int) -> dict[str, Content]:
    """Return samples 1, 2, 3 ... with contents of these sizes."""
    return {f"{number}.bin": b"x" * size for number, size in enumerate(sizes, 1)}


# ---- the examples of ishard and dSort (docs/formats)

FIVE = sized(*[4096] * 5)
EXAMPLES: list[tuple[str, object, str, dict[str, str] | str]] = [
    # id, samples (several inputs: a list), options, the keys in each shard or the error
    ("Ex-EKM-1", CLASSES, f"-s 1MiB --size-rule content --map {FISH}",
        {"fish-0.tar": "train/n01440764/a train/n01443537/b", "dog-0.tar": "train/n02084071/c"}),
    ("Ex-EKM-2", CLASSES, f"-s 1KiB --size-rule content --map {FISH}",
        {"fish-0.tar": "train/n01440764/a", "fish-1.tar": "train/n01443537/b", "dog-0.tar": "train/n02084071/c"}),
    ("Ex-EKM-3", {"abc.jpg": b""}, '-c 9 --map {"x-%d.tar":["a.*","ab.*"]}', {"x-0.tar": "abc"}),
    ("Ex-EKM-4", {"abc.jpg": b""}, '-c 9 --map {"x-%d.tar":["(.*"]}',
        "--map: 'x-%d.tar': invalid regular expression '(.*': missing ), unterminated subpattern at position 0"),
    ("Ex-EKM-5", {"a1.x": KIB, "a2.x": KIB}, '-s 1KiB --size-rule content --map {"a-{0..0}.tar":["a"]}',
        "'a-{0..0}.tar': too few names: the template has 1 name, shard 2 has none"),
    ("Ex-EKM-a", [{"cat_0.txt": b"1", "dog_0.txt": b"2"}, {"cat_1.txt": b"3", "dog_1.txt": b"4"}],
        "-s 200KB --size-rule content --map cats",
        {"shard-cats-0.tar": "cat_0 cat_1", "shard-dogs-0.tar": "dog_0 dog_1"}),
    ("Ex-EKM-b", sized(*[4096] * 7), '-s 10KiB --size-rule content --map {"x-%d":["."]}',
        {"x-0.tar": "1 2 3", "x-1.tar": "4 5 6", "x-2.tar": "7"}),
    ("Ex-EKM-b, a shard at the limit", FIVE, '-s 9216 --size-rule content --map {"x-%d":["."]}',
        {"x-0.tar": "1 2 3", "x-1.tar": "4 5"}),
    ("Ex-EKM-c", TEN, '-c 4 --map {"shard-{0..100..3}-cats":["."]}',
        {"shard-0-cats.tar": "0 1 2 3", "shard-3-cats.tar": "4 5 6 7", "shard-6-cats.tar": "8 9"}),
    ("Ex-EKM-d warn", {"bird.txt": b"", "cat_0.txt": b""}, "-c 9 --map cats", {"shard-cats-0.tar": "cat_0"}),
    ("Ex-EKM-e abort", {"cat_0.txt": b""}, "-c 9 --map bad",
        "bad:2: a line is PATTERN TEMPLATE, and this one has 1 field"),
    ("Ex-OUT-1", FIVE, "-s 10KiB --size-rule content -o new-shard-%04d",
        {"new-shard-0000": "1 2 3", "new-shard-0001": "4 5"}),
    ("Ex-OUT-2", FIVE, "--even size -o o-{0..2}.tar", {"o-0.tar": "1 2", "o-1.tar": "3 4", "o-2.tar": "5"}),
    ("Ex-OUT-2 with -n", FIVE, "-n 3 --even size -o o-%d.tar", {"o-0.tar": "1 2", "o-1.tar": "3 4", "o-2.tar": "5"}),
    ("Ex-OUT-3", sized(10240, 1, 1, 20480, 5), "-s 10KiB --size-rule content -o o-%d.tar",
        {"o-0.tar": "1", "o-1.tar": "2 3 4", "o-2.tar": "5"}),
    ("Ex-OUT-4", FIVE, "-s 10KiB --size-rule content -o o-{0..0}.tar",
        "'o-{0..0}.tar': too few names: the template has 1 name, shard 2 has none"),
    ("Ex-OUT-5", TENFOLD, "-s 10KiB --size-rule content -o o-%d.tar", FIVEFOLD),
    ("Ex-OUT-6", TEN, "-c 4 -o n-{0..9}.tar.gz",
        {"n-0.tar.gz": "0 1 2 3", "n-1.tar.gz": "4 5 6 7", "n-2.tar.gz": "8 9"}),
]  # fmt: skip


@each_row(("example", "samples", "options", "expected", "feed"), in_turn(EXAMPLES))
def test_examples(
    example: str, samples: Any, options: str, expected: dict[str, str] | str, run: Run, archive: Archive, feed: Feed
) -> None:
    """Shards have the expected samples, with their bytes."""
    Path("cats").write_text(CATS)
    Path("bad").write_text("dog\td-%d\ncat_0.txt\n")
    inputs = samples if isinstance(samples, list) else [samples]
    words = [feed(archive(members, f"in{number}.tar")) for number, members in enumerate(inputs)]
    ran = run("split", *words, *options.split(), exit=isinstance(expected, str) or 0)
    if isinstance(expected, str):
        said = ran.lines[0].removeprefix("tarkit: ").removeprefix(words[0] if expected.startswith("in0") else "")
        assert said == expected.removeprefix("in0.tar")
        assert not [*Path.cwd().glob(".*")]
    else:
        assert shards() == expected
        members = {name: content for each in inputs for name, content in each.items()}
        for name, group in expected.items():
            assert entries(name) == pick(members, group)


@each_feed
def test_equal_in_bytes_may_be_fewer(run: Run, archive: Archive, feed: Feed) -> None:
    """If a large sample fills more than one shard there are fewer, with a message."""
    ran = run("split", feed(archive(sized(1, 9000, 1, 1))), "-n", "3", "--even", "size", "-o", "o-%d.tar")
    assert shards() == {"o-0.tar": "1 2", "o-1.tar": "3 4"}
    assert ran.lines == ["tarkit: 2 shards and no more: so large are some samples"]


# ---- parts


def reckoned(key: str, bounds: list[float], seed: str = "") -> int:
    """Return the number of a part by the formula in the README, without tarkit."""
    u = int(sha256(seed.encode() + b"\0" + key.encode()).hexdigest()[:16], 16)
    return next(place for place, bound in enumerate(bounds) if u < int(bound * 2**64))


@each_row(("seed", "feed"), in_turn(["", "17"], 1))
def test_parts(seed: str, run: Run, archive: Archive, feed: Feed) -> None:
    """Each sample is in one part, by the documented hash, in the order of the input, with unchanged bytes."""
    word = feed(archive(HUNDRED))
    options = f"-c 30 --parts train=0.75,val=0.25 --report r.json{f' --seed {seed}' if seed else ''}"
    run("split", word, *options.split())
    expected: dict[str, list[str]] = {"train": [], "val": []}
    for key in keys("in.tar").split():
        expected[("train", "val")[reckoned(key, [0.75, 1], seed)]].append(key)
    assert 15 < len(expected["val"]) < 35
    found = shards("*-*.tar")
    for name, group in expected.items():
        own = {path: held for path, held in found.items() if path.startswith(name)}
        assert [*own] == [f"{name}-{number:06}.tar" for number in range(len(own))]
        assert " ".join(own.values()).split() == group
        assert all(len(held.split()) == 30 for held in [*own.values()][:-1])
    for path, held in found.items():
        assert Path(path).read_bytes() == tar(pick(HUNDRED, held))
    facts = report()
    assert (facts["samples"], facts["shards"]) == (100, len(found))
    assert {name: part["samples"] for name, part in facts["parts"].items()} == {n: len(g) for n, g in expected.items()}
    assert [part["asked"] for part in facts["parts"].values()] == [0.75, 0.25]


def test_a_set_that_grows(run: Run, archive: Archive) -> None:
    """Samples keep their parts with more samples, in another order, in another archive, and with --append."""
    run("split", archive(pick(HUNDRED, " ".join(f"k{n:03}" for n in range(60)))), "-c", "99", "--parts", HALF)
    before = shards()
    rest = archive(pick(HUNDRED, " ".join(f"k{n:03}" for n in range(99, 59, -1))), "rest.tar")
    run("split", rest, "-c", "99", "--parts", HALF, "--append")
    after = shards()
    assert {name: after[name] for name in before} == before
    assert [*after] == ["a-000000.tar", "a-000001.tar", "b-000000.tar", "b-000001.tar"]
    run("split", archive(HUNDRED), "-c", "999", "--parts", HALF, "-o", "x.tar")
    for part in "ab":
        joined = set(f"{after[f'{part}-000000.tar']} {after[f'{part}-000001.tar']}".split())
        assert joined == set(shards()[f"{part}-x-000000.tar"].split())


GROUPS = [f"p{patient:02}/{visit}.x" for patient in range(30) for visit in range(3)]


@each_row(("option", "feed"), in_turn(["--group ^p[0-9]+", "--group ^(p[0-9]+)/", "--group-field json.patient"], 1))
def test_groups_stay_together(option: str, run: Run, archive: Archive, feed: Feed) -> None:
    """All samples of one patient are in one part, which depends on the patient only."""
    rows: list[tuple[str, Content]] = [(name, b"") for name in GROUPS]
    if "field" in option:
        rows = [(f"{name[:-1]}json", json.dumps({"patient": name[:3]}).encode()) for name in GROUPS]
    run("split", feed(archive(rows)), "-c", "999", "--parts", HALF, *option.split())
    found = shards()
    assert sorted(" ".join(found.values()).split()) == sorted(name[:-2] for name in GROUPS)
    for part, name in enumerate(found):
        assert {reckoned(key[:3], [0.5, 1]) for key in found[name].split()} == {part}


@each_feed
def test_a_key_without_group(run: Run, archive: Archive, feed: Feed) -> None:
    """A key that does not match is an error, whose hint has a solution."""
    word = feed(archive({"p1/a.x": b"", "q.x": b""}))
    ran = run("split", word, "-c", "9", "--parts", HALF, "--group", "^(p[0-9])/", exit=1)
    assert ran.lines == [
        f"tarkit: {word}: the key 'q' does not match '^(p[0-9])/'",
        "hint: if such keys are groups by themselves, match all: --group '^(p[0-9])/|.*'",
    ]
    assert shards() == {}
    run("split", word, "-c", "9", "--parts", HALF, "--group", "^(p[0-9])/|.*")
    assert sorted(" ".join(shards().values()).split()) == ["p1/a", "q"]


@each_row(
    ("template", "names"),
    [
        ([], "a-000000.tar b-000000.tar"),
        (["-o", "x-%d.tar"], "a-x-0.tar b-x-0.tar"),
        (["-o", "x"], "a-x-000000.tar b-x-000000.tar"),
        (["-o", "sub/x-%d.tar"], "sub/a-x-0.tar sub/b-x-0.tar"),
        (["-o", "sub/"], "sub/a-000000.tar sub/b-000000.tar"),
        (["-o", "{part}/%d.tar"], "a/0.tar b/0.tar"),
        (["-o", "{part}/{part}-{00..99}.tar"], "a/a-00.tar b/b-00.tar"),
        (["-o", "x-@09-{part}.tar"], "x-00-a.tar x-00-b.tar"),
        (["-o", "x-%d.tar.gz"], "a-x-0.tar.gz b-x-0.tar.gz"),
        (["-o", "pipe:cat > {part}-%d.tar"], "a-0.tar b-0.tar"),
        (["--start", "7", "-o", "%d.tar"], "a-7.tar b-7.tar"),
    ],
)
def test_names_of_parts(template: list[str], names: str, run: Run, archive: Archive) -> None:
    """{part} is replaced by the name; without it the name is a prefix of the file name."""
    for folder in ("sub", "a", "b"):
        os.mkdir(folder)
    run("split", archive(TEN, "in"), "-c", "10", "--parts", HALF, *template)
    found = {str(path.relative_to(Path.cwd())): keys(path) for path in Path.cwd().rglob("*") if path.is_file()}
    del found["in"]
    assert sorted(found) == names.split()
    assert sorted(" ".join(found.values()).split()) == [*map(str, range(10))]


def test_what_parts_say(run: Run, archive: Archive) -> None:
    """-v prints a table; a part without samples is a warning."""
    ran = run("-v", "split", archive(TEN), "-c", "99", "--parts", "most=0.999999,few=0.000001", "--report", "r.json")
    assert "tarkit: warning: no sample for few, so no shard" in ran.lines
    assert ran.lines[-4:-1] == [
        "tarkit: part    asked      got  samples  shards  bytes",
        "tarkit: most  100.00%  100.00%       10       1  20480",
        "tarkit: few     0.00%    0.00%        0       0      0",
    ]
    assert shards() == {"most-000000.tar": "0 1 2 3 4 5 6 7 8 9"}


# ---- folds and classes


@each_row(("how", "feed"), in_turn(["", "--stratify cls"], 1))
def test_folds(how: str, run: Run, archive: Archive, feed: Feed) -> None:
    """Each sample is in one fold; classes have the same shares in each."""
    run("split", feed(archive(HUNDRED)), "-c", "999", "--parts", "4", *how.split(), "--report", "r.json")
    found = shards()
    assert [*found] == [f"fold-{number}-000000.tar" for number in range(4)]
    assert sorted(" ".join(found.values()).split()) == keys("in.tar").split()
    for number, (name, held) in enumerate(found.items()):
        assert Path(name).read_bytes() == tar(pick(HUNDRED, held))
        if not how:
            assert all(reckoned(key, [0.25, 0.5, 0.75, 1]) == number for key in held.split())
            continue
        assert len(held.split()) == 25
        classes = Counter(int(key[1:]) % 7 for key in held.split())
        assert all(count in (3, 4) for count in classes.values())
    assert sum(part["samples"] for part in report()["parts"].values()) == 100


@each_row(
    ("fields", "option", "feed"),
    in_turn(
        [
            (lambda n: {"cls": b"%d\n" % (n % 3)}, "cls"),
            (lambda n: {"jpg": b"x", "CLS": b" %d" % (n % 3)}, "cls"),
            (lambda n: {"txt": "é日本"[n % 3].encode()}, "txt"),
            (lambda n: {"json": json.dumps({"a": {"label": [n % 3]}}).encode()}, "json.a.label"),
        ],
        1,
    ),
)
def test_classes_come_in_their_shares(fields: Any, option: str, run: Run, archive: Archive, feed: Feed) -> None:
    """36 samples of three classes have exactly the shares 2/3, 1/6 and 1/6."""
    members = {f"{n:02}.{field}": content for n in range(36) for field, content in fields(n).items()}
    run("split", feed(archive(members)), "-c", "999", "--parts", "a=2/3,b=1/6,c", "--stratify", option)
    counts = [Counter(int(key) % 3 for key in held.split()) for held in shards().values()]
    assert counts == [{0: 8, 1: 8, 2: 8}, {0: 2, 1: 2, 2: 2}, {0: 2, 1: 2, 2: 2}]


def test_a_sample_without_class(run: Run, archive: Archive) -> None:
    """A sample without a class is an error, dropped, or in a class of its own; and counted in each case."""
    members = {"1.cls": b"1", "2.txt": b"2", "3.cls": b"1", "4.cls": b"1"}
    word = archive(members)
    words = ("split", word, "-c", "9", "--parts", HALF, "--stratify", "cls", "--report", "r.json")
    ran = run(*words, exit=1)
    assert "[missing-field]" in ran.lines[0]
    assert ran.lines[1] == "hint: --skip missing-field leaves such samples out, --allow puts them into one group"
    assert shards() == {}
    run(*words, "--skip", "missing-field")
    assert shards() == {"a-000000.tar": "1 4", "b-000000.tar": "3"}
    assert (report()["samples"], report()["skipped"]) == (3, {"missing-field": 1})
    run(*words, "--allow", "missing-field", "--force")
    assert shards() == {"a-000000.tar": "1 4", "b-000000.tar": "2 3"}


# ---- maps


def test_what_maps_say(run: Run, archive: Archive) -> None:
    """Samples without a category are counted, and so are categories without samples."""
    word = archive(CLASSES)
    text = '{"a-%d": ["n01440764"], "b-%d": ["bird"], "c-%d": ["n0144"]}'
    Path("m.json").write_text(text)
    ran = run("split", word, "-c", "9", "--map", "m.json", exit=1)
    assert ran.lines == [
        "tarkit: m.json: 'train/n01440764/a.JPEG' is of 'a-%d' and of 'c-%d'",
        "hint: make the patterns exclusive",
    ]
    assert shards() == {}
    Path("m.json").write_text(text := text.replace('"n0144"', '"n01443"'))
    ran = run("split", word, "-c", "9", "--map", "m.json", "--report", "r.json")
    assert ran.lines == [
        "tarkit: warning: no sample for b-%d, so no shard",
        "tarkit: warning: 2 samples are in no category of m.json and left out, 'train/n02084071/c' first",
    ]
    assert shards() == {"a-0.tar": "train/n01440764/a", "c-0.tar": "train/n01443537/b"}
    ran = run("-v", "split", word, "-c", "9", "--map", "m.json", "--force")
    assert ran.lines[-5:-1] == [
        "tarkit: part     got  samples  shards  bytes",
        "tarkit: a-%d  50.00%        1       1  10240",
        "tarkit: b-%d   0.00%        0       0      0",
        "tarkit: c-%d  50.00%        1       1  10240",
    ]
    assert ran.lines[-1].startswith("tarkit: split: 2 samples, 20480 bytes, 2 shards, 2 in no category, ")
    assert (report()["samples"], report()["unmatched"]) == (2, 2)
    run("split", word, "-c", "9", "--map", text, "--unmatched", "rest", "--force", "--report", "r.json")
    assert shards()["rest-000000.tar"] == "train/n02084071/c train/n09999999/z"
    assert (report()["samples"], report()["unmatched"]) == (4, 0)


def test_maps_and_folders(run: Run, archive: Archive) -> None:
    """-o is the directory; the added suffix determines the codec; all directories must exist."""
    word = archive(CLASSES)
    os.mkdir("out")
    for codec, name in (("zst", "x-0.tar.zst"), ("zip", "x-0.zip"), ("none", "x-0.tar")):
        run("split", word, "-c", "9", "--map", '{"x-%d":["."]}', "-o", "out", "--compress", codec)
        assert os.listdir("out") == [name]
        assert entries(run("cat", f"out/{name}").stdout) == [*CLASSES.items()]
        os.unlink(f"out/{name}")
    ran = run("split", word, "-c", "9", "--map", '{"x-%d":["n01"],"y/x-%d":["n02"],"z/x-%d":["n03"]}', exit=1)
    assert ran.lines == ["tarkit: y and 1 more: no such directory", "hint: mkdir -p y z"]
    ran = run("split", word, "-c", "9", "--map", '{"x-%d":["."]}', "-o", "o-%d.tar", exit=2)
    assert ran.lines[0] == "tarkit: with --map, -o is a directory: the map has the names of shards"


@each_feed
def test_torn_and_untorn_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """A sample has the category of its files; entries without a key are not matched."""
    rows: list[tuple[str, Content]] = [("a", None), ("a/1.jpg", b""), ("README", b""), ("a/1.txt", b"")]
    rows.append(("b/2.jpg", b""))
    run("split", feed(archive(rows)), "-c", "9", "--map", '{"a-%d":["[.]txt"],"b-%d":["b/","README"]}')
    assert entries("a-0.tar") == rows[:4]
    assert entries("b-0.tar") == rows[4:]


# ---- existing shards, damage, limits


def test_what_is_there(run: Run, archive: Archive) -> None:
    """Existing shards of any part are an error; --force replaces those of each, --append continues after them."""
    word = archive(TEN)
    for name in ("a-3.tar", "b-1.tar", "b-9.tar"):
        Path(name).write_bytes(tar({f"old{name}": b""}))
    cut = ("split", word, "-c", "2", "--parts", HALF, "-o", "{part}-%d.tar")
    ran = run(*cut, exit=1)
    assert ran.lines[0] == "tarkit: a-3.tar: there are shards of this name"
    run(*cut, "--append")
    mine = {part: [key for key in map(str, range(10)) if "ab"[reckoned(key, [0.5, 1])] == part] for part in "ab"}
    assert all(len(held) > 2 for held in mine.values())
    names = [f"a-{n}.tar" for n in range(3, 4 + -(-len(mine["a"]) // 2))]
    names += ["b-1.tar", *(f"b-{n}.tar" for n in range(9, 10 + -(-len(mine["b"]) // 2)))]
    assert sorted(shards()) == sorted(names)
    run(*cut, "--force", "--manifest", "m.tsv", "--post", "echo {} >> seen")
    names = [f"{part}-{n}.tar" for part in "ab" for n in range(-(-len(mine[part]) // 2))]
    assert sorted(shards()) == names
    assert [line.split("\t")[0] for line in Path("m.tsv").read_text().splitlines()] == ["shard", *names]
    assert sorted(Path("seen").read_text().split()) == names


def test_an_input_among_the_shards(run: Run, archive: Archive) -> None:
    word = archive(TEN, "b-5.tar")
    ran = run("split", word, "-c", "2", "--parts", HALF, "-o", "{part}-%d.tar", "--force", exit=2)
    assert ran.lines[0] == "tarkit: b-5.tar is an input, and has a name that the shards may get"


@each_row("cut", ["--parts a=0.5,b=0.5", '--map {"a-%d":["[02468]"],"b-%d":["[13579]"]}'])
@each_feed
def test_damage_leaves_nothing_half(cut: str, run: Run, archive: Archive, feed: Feed) -> None:
    """Complete shards are kept, open ones removed; --skip keeps whole samples."""
    word = feed(archive(tar(TEN)[:9300]))
    ran = run("split", word, "-c", "3", *cut.split(), exit=1)
    assert "[truncated]" in ran.lines[0]
    assert all(len(held.split()) == 3 for held in shards().values())
    run("split", word, "-c", "3", *cut.split(), "--skip", "truncated", "--force")
    assert sorted(" ".join(shards().values()).split()) == [*map(str, range(8))]


def test_names_that_meet_later(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two templates with a common name later in the series are an error, and no shard is overwritten."""
    monkeypatch.setattr(categories, "_COMPARED", 4)
    cut = '{"x-%d":["[0-4]"],"x-{3..5}":["[5-9]"]}'
    ran = run("split", archive(TEN), "-c", "1", "--map", cut, exit=1)
    assert ran.lines == [
        "tarkit: 'x-3.tar' would be written twice: two templates have this name",
        "hint: 4 complete shards stay: --force replaces them",
    ]
    assert keys("x-3.tar") == "3"


def test_more_categories_than_files(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system does not allow all shards to be open at once, there is an error before anything is read."""
    monkeypatch.setattr(categories, "_COMPARED", 4)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (200, 200))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: None)
    text = json.dumps({f"c{n}-%d": [f"^{n}$"] for n in range(90)})
    ran = run("split", archive(TEN), "-c", "1", "--map", text, exit=1)
    assert ran.lines[0] == "tarkit: --map: 90 shards at once, but the system allows 84 to be open"


def test_many_encoders_take_memory(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """xz needs 95 MiB for each open shard; a warning is printed if that is much for this machine."""
    monkeypatch.setattr(memory, "default_memory", lambda: 500 << 20)
    for folds, said in ((6, ["tarkit: warning: 6 compressed shards at once take about 598 MB of memory"]), (5, [])):
        options = f"-c9 --parts {folds} -o {{part}}-x.tar.xz --stratify cls --force"
        ran = run("split", archive(pick(TEN, "1")), *options.split())
        assert ran.lines[:-1] == said


@each_feed
def test_large_samples_of_streams(run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large samples go to shards in turn, unchanged; small ones wait in several shards."""
    monkeypatch.setattr(reader, "LARGE", 1 << 13)
    monkeypatch.setattr(source, "CHUNK", 1 << 14)
    monkeypatch.setattr(source, "HELD", 1 << 15)
    members: dict[str, Content] = {}
    for number in range(40):
        members[f"{number:02}.a"] = b"%02d" % number * (20_000 if number % 7 == 3 else 300)
        members[f"{number:02}.b"] = os.urandom(number * 40)
    word = feed(archive(members))
    for cut in ("--parts a=0.4,b=0.3,c -c7", '--map {"a-%d":["^.[036]"],"b-%d":["^.[^036]"]} -s100K'):
        run("split", word, *cut.split())
        found = shards()
        assert sorted(" ".join(found.values()).split()) == [f"{number:02}" for number in range(40)]
        for name, held in found.items():
            assert Path(name).read_bytes() == tar(pick(members, held))
            os.unlink(name)


@each_feed
def test_samples_of_one_key_that_meet(run: Run, archive: Archive, feed: Feed) -> None:
    """Samples of two inputs with one key are an error if those between them go to another series."""
    words = [feed(archive({"a.x": b"1", "b.x": b"2"}, "1.tar")), feed(archive({"a.x": b"3", "c.x": b""}, "2.tar"))]
    cut = ("--map", '{"a-%d":["a","c"],"b-%d":["b"]}', "-c", "9", "--report", "r.json")
    [line, hint] = run("split", *words, *cut, exit=1).lines[-2:]
    assert line.endswith("the sample before it in the output has the same key 'a' [joined-sample]")
    assert hint == "hint: make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice"
    assert shards() == {}
    ran = run("split", *words, *cut, "--allow", "joined-sample", exit=1)
    assert "the same key 'a', and a shard may end between the two" in ran.lines[-2]
    run("split", *words, *cut, "--skip", "joined-sample")
    assert shards() == {"a-0.tar": "a c", "b-0.tar": "b"}
    assert entries("a-0.tar") == [("a.x", b"1"), ("c.x", b"")]
    assert (report()["samples"], report()["skipped"]) == (3, {"joined-sample": 1})


def test_templates_without_part(run: Run, archive: Archive) -> None:
    """The names of shards are printed if the template does not have {part}."""
    archive(TEN)
    ran = run("split", "in.tar", "-c9", "--parts", "train,val=30%", "-o", "x-%06d.tar")
    assert ran.lines[0] == "tarkit: writes train-x-%06d.tar, val-x-%06d.tar"
    assert sorted(shards("*-x-*")) == ["train-x-000000.tar", "val-x-000000.tar"]
    ran = run("split", "in.tar", "-c9", "--parts", "11", "-o", "y-%d.tar")
    assert ran.lines[0].endswith("fold-08-y-%d.tar and 2 more")
    assert "writes" not in run("split", "in.tar", "--parts", "a=0.5,b", "-o", "{part}/z-%d.tar", exit=1).stderr
