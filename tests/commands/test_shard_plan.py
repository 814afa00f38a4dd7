"""tarkit shard beyond ishard: listing, added fields, even shards, updates, recipes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tarkit.errors import show
from tarkit.packing import grouping, plan, planned, tree
from tarkit.spill import multimap, records
from tests._tools import each_row
from tests.commands.test_shard_examples import DIRECTORY, Shard, grow, layout
from tests.commands.test_shard_examples import f1 as f1
from tests.conftest import Run, entries


def names(shards: list[Shard]) -> list[str]:
    """Return all entries of a layout, in order."""
    return [name for shard in shards for name in shard.entries]


# ---- the tree


@each_row(
    ("files", "samples"),
    [
        (["a/b.x", "a.x", "a0.x"], ["a.x", "a/b.x", "a0.x"]),  # bytes of whole paths: . < / < 0
        (["a/b.c", "a/b.d/x.y", "a/b.e"], ["a/b.c a/b.e", "a/b.d/x.y"]),  # a directory within a sample
        (["b", "b-1.x", "b.x"], ["b b.x", "b-1.x"]),
        ([".a", ".b.c", "d.e"], [".a .b.c d.e"]),  # no sample without a key
        (["é.x", "z.x", "\udcff.x"], ["z.x", "é.x", "\udcff.x"]),
        (["d/1.x", "d/e/1.x", "d/f.x", "d/e-.x"], ["d/1.x", "d/e-.x", "d/e/1.x", "d/f.x"]),
    ],
)
@each_row("rule", ["first", "last"])
def test_order(files: list[str], samples: list[str], rule: str, run: Run, here: Path) -> None:
    """Names are in byte order, those of a sample together at the position of the first one."""
    shards = layout(run, grow(here / "tree", files), *(["--last-dot"] if rule == "last" else []))
    assert [" ".join(names) for shard in shards for _, names in shard.samples] == samples


def naive(paths: list[str], key: str, last: bool) -> list[tuple[str, list[str]]]:
    """Return the samples of these files by definition: listed in order, grouped by first occurrence."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        folder, slash, base = path.rpartition("/")
        stem = base[: base.rindex(".") if last else base.index(".")] if "." in base else base
        text = {"full": folder + slash + stem, "base": stem, "flat": (folder + stem).replace("/", "")}[key]
        found.setdefault(text, []).append(path)
    return list(found.items())


def packed(samples: list[tuple[str, list[str]]], sizes: dict[str, int], limit: int, collapse: bool) -> list[list[str]]:
    """Return the shards of ishard's algorithm by definition, by recursion: directories first, closed at the limit."""
    shards: list[list[str]] = []

    def emit_if(buffer: list[str], full: bool) -> list[str]:
        if buffer and full:
            shards.append(buffer)
            return []
        return buffer

    def fills(buffer: list[str]) -> bool:
        own = dict(samples)
        return sum(sizes[name] for key in buffer for name in own[key]) >= limit

    def pack(folder: str) -> list[str]:
        buffer: list[str] = []
        below = {
            key[len(folder) :].partition("/")[0]
            for key, _ in samples
            if "/" in key[len(folder) :] and key.startswith(folder)
        }
        for each in sorted(below):
            buffer = buffer + pack(f"{folder}{each}/")
            buffer = emit_if(buffer, fills(buffer))
        for key, _ in samples:
            if key.startswith(folder) and "/" not in key[len(folder) :]:
                buffer = [*buffer, key]
                buffer = emit_if(buffer, fills(buffer))
        return emit_if(buffer, not folder or not collapse)

    pack("")
    return shards


@each_row("seed", range(2))
def test_against_the_words(seed: int, run: Run, here: Path) -> None:
    """For random trees keys, samples, and shards with and without -collapse equal those of the definition."""
    rng = random.Random(seed)
    folders = ["", "a/", "a/b/", "a/b.c/", "b/", "a-/", "a/0/x/"]
    files = {
        rng.choice(folders) + rng.choice("pqrs") + rng.choice((".w", ".x", ".y.z", ".z")): rng.randint(1, 500)
        for _ in range(60)
    }
    files = {name: size for name, size in files.items() if f"{name}/" not in folders}
    root = grow(here / "tree", files)
    for key in ("full", "base", "flat"):
        for words in ([], ["--last-dot"]):
            expected = naive(list(files), key, bool(words))
            found = layout(run, root, "--key", key, *words)
            assert [sample for shard in found for sample in shard.samples] == expected
            if key == "full":  # an expression that changes nothing, for which keys are made from paths
                assert layout(run, root, "--key", "^(.*)$", *words) == found
        for dirs in ("separate", "collapse"):
            samples = naive(list(files), key, True)
            shards = layout(
                run, root, "--key", key, "--last-dot", "--dirs", dirs, "--size-rule", "content", "-s", "900"
            )
            assert [shard.keys for shard in shards] == packed(samples, files, 900, dirs == "collapse")


@each_row(
    ("mode", "expected", "left_out"),
    [
        (
            "files",
            ["d/f.x", "link.x"],
            ["symbolic links to directories: 1, 'to' first", "symbolic links to nothing: 2, 'broken.x' first"],
        ),
        ("skip", ["d/f.x"], ["symbolic links: 4, 'broken.x' first"]),
        ("all", ["d/f.x", "link.x", "to/f.x"], ["symbolic links to nothing: 3, 'broken.x' first"]),
    ],
)
def test_symlinks(mode: str, expected: list[str], left_out: list[str], run: Run, here: Path) -> None:
    """Links to files, to directories, broken ones, and special files are handled."""
    root = grow(here / "tree", ["d/f.x"])
    (root / "link.x").symlink_to("d/f.x")
    (root / "to").symlink_to("d")
    (root / "broken.x").symlink_to("nothing")
    (root / "d/broken.x").symlink_to("nothing")
    os.mkfifo(root / "fifo")
    words = ("--symlinks", mode, "-c", "9")
    assert names(layout(run, root, *words)) == expected
    ran = run("shard", root, *words, "--dry-run")
    told = [line.removeprefix("tarkit: left out, ") for line in ran.lines if "left out" in line]
    assert told == ["neither files nor directories: 1, 'fifo' first", *left_out]


def test_symlink_loop(run: Run, here: Path) -> None:
    """A link to a parent directory would be an endless loop."""
    root = grow(here / "tree", ["d/f.x"])
    (root / "d" / "up").symlink_to("..")
    assert "is a link to a directory that contains it" in run("shard", root, "--symlinks", "all", exit=1).lines[-1]
    assert names(layout(run, root)) == ["d/f.x"]


@each_row(
    ("words", "expected"),
    [
        (r"--match ^a/.*\.x$", "a/1.x"),
        ("--match 1", "a/1.x a/1.y b/1.x"),
        ("--exclude *.y", "a/1.x b/1.x b/c/2.x"),
        ("--exclude a --exclude b/c", "b/1.x"),
        ("--exclude **/2.x", "a/1.x a/1.y b/1.x"),
        ("--exclude b/*", "a/1.x a/1.y"),
    ],
)
def test_chosen(words: str, expected: str, run: Run, here: Path) -> None:
    """Names are selected by expression and glob."""
    root = grow(here / "tree", ["a/1.x", "a/1.y", "b/1.x", "b/c/2.x"])
    assert names(layout(run, root, *words.split())) == expected.split()


def test_outputs_in_the_tree(run: Run, here: Path) -> None:
    """Outputs of this run and of the last one are not packed."""
    grow(here, ["a/1.x", "s-0.tar", "s-1.tar", "other.tar", "plan.tsv"])
    assert names(layout(run, ".", "-o", "s-%d.tar", "--exclude", "plan.tsv")) == ["a/1.x", "other.tar"]
    Path("metadata.csv").write_text("file,text\na/1.x,one\n")
    found = names(layout(run, ".", "--join", "metadata.csv:file", "-o", "s-%d.tar", "--exclude", "plan.tsv"))
    assert found == ["a/1.x", "a/1.text", "other.tar"]
    Path("metadata.csv").unlink()
    expected = ["a/1.x", "other.tar"]
    assert names(
        layout(
            run, ".", "-o", "s-%d.tar", "--classes-out", "plan.tsv", "--label-from-dir", "c:name", "--match", "^[^o]"
        )
    ) == ["a/1.x", "a/1.c"]
    assert names(layout(run, here, "-o", f"{here}/s-%d.tar", "--exclude", "plan.tsv")) == expected
    assert names(layout(run, here, "-o", "s-%d.tar", "--exclude", "plan.tsv")) == expected


@each_row(
    "words",
    [
        "",
        "--key base",
        "--key base --sort -key",
        f"--key {DIRECTORY}",
        "--sort shuffle:7 --label-from-dir cls:-1",
        "--key flat --dirs collapse",
        "--dirs collapse --sort shuffle:7",
        "-n 5 --even",
        "-s 40k",
    ],
)
def test_bounded_memory(words: str, run: Run, f1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are listed, sorted and planned in pieces of any size, and in temporary space: the layout is the same."""
    expected = layout(run, f1, *words.split())
    with monkeypatch.context() as patched:
        patched.setattr(planned, "SAMPLES", 3)
        patched.setattr(plan, "SAMPLES", 3)
        patched.setattr(tree, "STEP", 2)
        patched.setattr(records, "SORTED", 2000)
        patched.setattr(multimap, "HELD", 400)
        patched.setattr(multimap, "FEW", 200)
        patched.setattr(records, "HELD", 500)
        patched.setattr(records, "BATCH", 3)
        patched.setattr(records.SpilledList.__init__, "__defaults__", (500,))
        assert layout(run, f1, *words.split()) == expected


@each_row("dirs", ["pack", "separate", "collapse"])
def test_sizes_change_nothing_where_numbers_divide(dirs: str, run: Run, here: Path) -> None:
    """Shards by -c have the samples and sizes of the dry run, which looks up sizes."""
    root = grow(
        here / "tree", {f"{folder}/{n}.{f}": 700 * n for folder in ("a", "b/c", "b") for n in range(7) for f in "xy"}
    )
    words = ("-c", "3", "--dirs", dirs, "-o", "s-%d.tar")
    planned = layout(run, root, *words)
    run("shard", root, *words)
    assert len(planned) >= 7
    for shard in planned:
        there = [(name, len(content)) for name, content in entries(shard.name)]
        assert [name for name, _ in there] == shard.entries
        assert (shard.length, shard.bytes) == (os.stat(shard.name).st_size, sum(size for _, size in there))


# ---- limits


def test_sizes_are_those_of_split(run: Run, here: Path) -> None:
    """No tar exceeds SIZE, and shards end where `split` ends them, for names of any length."""
    rng = random.Random(3)
    files = {
        f"{'d' * rng.choice((1, 60, 90))}/{'n' * rng.choice((1, 90))}{n}.{f}": rng.randint(0, 9000)
        for n in range(30)
        for f in "xy"
    }
    root = grow(here / "tree", files)
    run("shard", root, "-c", "999", "-o", "all-%d.tar")
    for limit in ("10240", "20KiB", "51200"):
        run("shard", root, "-s", limit, "-o", f"out-{limit}-%d.tar")
        run("split", "all-0.tar", "-s", limit, "-o", f"cut-{limit}-%d.tar")
        outs = sorted(path.name for path in here.glob(f"out-{limit}-*"))
        assert len(outs) > 3
        for name in outs:
            assert Path(name).read_bytes() == Path(name.replace("out", "cut")).read_bytes()
        sizes = [shard.length for shard in layout(run, root, "-s", limit)]
        assert sizes == [Path(f"out-{limit}-{n}.tar").stat().st_size for n in range(len(outs))]


@each_row(
    ("words", "counts"),
    [
        ("-n 3", [4, 3, 3]),
        ("-n 10", [1] * 10),
        ("-o x-{0..3}.tar --even", [3, 3, 2, 2]),
        ("-n 2 --even", [5, 5]),
        ("-c 4", [4, 4, 2]),
    ],
)
def test_equal(words: str, counts: list[int], run: Run, here: Path) -> None:
    """Shards have equal numbers; with --even their sizes are as close as possible, and samples keep their order."""
    files = {f"{n}.x": 10_000 if n < 4 else 1 for n in range(10)}
    shards = layout(run, grow(here / "tree", files), *words.split())
    assert [len(shard.samples) for shard in shards] == counts
    assert sorted(names(shards)) == sorted(files)
    if "--even" in words.split():
        sizes = [shard.bytes for shard in shards]
        assert max(sizes) - min(sizes) <= 10_000
        assert max(sizes) < 21_000
        assert all(shard.keys == sorted(shard.keys) for shard in shards)


# ---- names


@each_row(
    ("words", "files", "expected"),
    [
        ("--key base --rename key", "A/1.xml T/1.jpg T/1.seg.png", "1.xml 1.jpg 1.seg.png"),
        ("--rename flat", "A/1.xml T/b/1.jpg", "A_1.xml T_b_1.jpg"),
        (f"--key {DIRECTORY} --rename key", "x/n/1.a y/n/2.b", "n.a n.b"),
        ("--key flat --rename key", "A/1.xml", "A1.xml"),
        ("--key base --rename key", "A/README A/.hidden A/x.y", ".hidden README x.y"),
        (
            "--last-dot --rename key",
            "v.1/my.photo.1.jpg v.1/my.photo.1.txt v.1/my.photo.2.jpg",
            "v.1/my_photo_1.jpg v.1/my_photo_1.txt v.1/my_photo_2.jpg",
        ),
        ("--last-dot --rename key", "a.seg.png a.txt", "a_seg.png a.txt"),
        (
            r"--key (?:.*/)?(.*)\.\w+$ --rename key",
            "x/my.photo.1.jpg y/my.photo.1.txt",
            "my_photo_1.jpg my_photo_1.txt",
        ),
    ],
)
def test_rename(words: str, files: str, expected: str, run: Run, here: Path) -> None:
    """One sample of tarkit is one sample of webdataset."""
    assert names(layout(run, grow(here / "tree", files.split()), *words.split())) == expected.split()


@each_row(
    ("words", "files", "text"),
    [
        # two entries of one name
        ("--key base --rename key", ["t/1.jpg", "v/1.jpg"], "'t/1.jpg' and 'v/1.jpg' would both be named '1.jpg'"),
        ("--rename flat", ["a/b.x", "a_b.x"], "'a/b.x' and 'a_b.x' would both be named 'a_b.x'"),
        ("--rename key --last-dot", ["a.b.png", "a_b.png"], "'a.b.png' and 'a_b.png' would both be named 'a_b.png'"),
        ("--label-from-dir x", ["c/1.x"], "'c/1.x' and a field that is added would both be named 'c/1.x'"),
        # a sample has exactly one class
        ("--label-from-dir cls", ["1.jpg"], "'1.jpg' is in no directory that could be its class"),
        (
            "--label-from-dir cls --key base",
            ["images/1.jpg", "labels/1.json"],
            "are of one sample, but in directories 'images' and 'labels'",
        ),
        ("--recipe r", ["a\n.x"], "cannot be a line of a recipe"),  # which has no escapes
    ],
)
def test_refused(words: str, files: list[str], text: str, run: Run, here: Path) -> None:
    """It is an error before anything is written."""
    root = grow(here / "tree", files)
    assert text in run("shard", root, *words.split(), exit=1).lines[-2]
    assert [path.name for path in Path.cwd().iterdir()] == ["tree"]


def test_hint_of_an_added_field(run: Run, here: Path) -> None:
    """The hint says how to leave out files with the same name."""
    root = grow(here / "tree", ["c/1.cls", "c/1.jpg"])
    hint = "hint: give the field that is added another name, or leave the files out: --exclude '*.cls'"
    assert run("shard", root, "--label-from-dir", "cls", exit=1).lines[-1] == hint
    run("shard", root, "--label-from-dir", "cls", "--exclude", "*.cls")


@each_row(
    ("words", "files", "text"),
    [
        ("", "README 1.x", "names without a key, with no dot or a leading one: 1, 'README' first"),
        ("", ".a.x a/.b a/..c 1.x", "names without a key, with no dot or a leading one: 3, '.a.x' first"),
        ("--last-dot", ".a.x 1.x", "names without a key, with no dot or a leading one: 1, '.a.x' first"),
        ("--key base", ".a.x 1.x", "names without a key, with no dot or a leading one: 1, '.a.x' first"),
        ("--key base", "a/1.x b/1.y", "readers would split 1 sample, '1' first"),
        (
            "--last-dot",
            "a.jpg a.seg.png b.seg.png",
            "keys that readers find in several samples, perhaps in several shards: 1, 'a' first",
        ),
        (
            r"--key ^.*\.(\w+)$",
            "c/1.x c/1.y",
            "keys that readers find in several samples, perhaps in several shards: 1, 'c/1' first",
        ),
        ("--key bse", "1.x", "--key: names without a match, which are their own keys: 1 of 1"),
        (
            "--last-dot --rename key",
            "a.b.jpg a_b.txt",
            "keys that readers find in several samples, perhaps in several shards: 1, 'a_b' first",
        ),
        (
            "--last-dot",
            "a.jpg a.seg.png",
            "perhaps in several shards: 1, 'a' first; --rename key names entries after their sample",
        ),
        (
            "",
            "s-0.tar s-1.tar.gz",
            "all files are archives, and are packed as they are; for the samples in them: tarkit split, cat or mix",
        ),
    ],
)
def test_warnings(words: str, files: str, text: str, run: Run, here: Path) -> None:
    """Differences in how readers see the shards are printed."""
    ran = run("shard", grow(here / "tree", files.split()), *words.split(), "--dry-run")
    assert any(text in line for line in ran.lines), ran.lines


def dotted(run: Run, root: Path, *words: str) -> list[str]:
    """Return the warnings about fields that are probably parts of names."""
    return [line for line in run("shard", root, *words, "--dry-run").lines if "parts of names" in line]


def test_file_names_with_dots(run: Run, here: Path) -> None:
    """Fields with a dot that are in one sample each are probably parts of names; the hint keeps the names apart."""
    files = [f"my.photo.v{number}.{field}" for number in range(1, 5) for field in ("jpg", "txt")]
    root = grow(here / "tree", files)
    what = "fields with a dot, each in one sample only: 8, such as 'photo.v1.jpg': they are probably parts of names"
    end = "--last-dot --rename key ends keys at the last dot"
    assert dotted(run, root) == [f"tarkit: warning: {what}; {end}"]
    assert dotted(run, root, "--key", "base") == [f"tarkit: warning: {what}; {end}"]
    words = ["--last-dot", "--rename", "key"]
    assert run("shard", root, *words, "-c", "9", "-o", "s-%d.tar").lines == []
    assert [name for name, _ in entries("s-0.tar")] == [name.replace(".", "_", 2) for name in files]


@each_row(
    ("files", "count"),
    [
        ([f"{key}.{field}" for key in "abc" for field in ("left.jpg", "right.jpg", "x.json", "y.json")], 0),
        (["a.1.jpg", "a.2.jpg", "a.3.jpg"], 0),  # too few
        ([f"v.1/{key}.{field}" for key in "abcdef" for field in ("jpg", "txt")], 0),  # the dot of a directory
        ([*(f"a.{n}.x" for n in range(4)), *(f"{key}.{f}.y" for key in "abc" for f in range(4))], 0),  # not most
        ([*(f"a.{n}.x" for n in range(5)), *(f"{key}.{f}.y" for key in "ab" for f in range(4))], 1),
        ([f"{key}.{number}.jpg" for key in ("cat", "dog") for number in range(8)], 1),  # eight times as many as samples
    ],
)
def test_fields_with_dots(files: list[str], count: int, run: Run, here: Path) -> None:
    """Fields that several samples have are fields."""
    assert len(dotted(run, grow(here / "tree", files))) == count


def test_many_fields_with_dots(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many fields are remembered."""
    monkeypatch.setattr(grouping, "DOTTED", 6)
    root = grow(here / "tree", [f"my.{number}.x" for number in range(9)])
    assert "each in one sample only: 6 or more, such as '0.x'" in dotted(run, root)[0]


# ---- labels


def texts(run: Run, root: Path, *words: str) -> dict[str, str]:
    """Return the added entries and their sources."""
    return {
        name: source
        for shard in layout(run, root, *words)
        for name, source in zip(shard.entries, shard.sources, strict=True)
        if not source.startswith("/")
    }


@each_row(
    ("files", "words", "expected", "classes"),
    [
        (  # the number of the class, or its name; classes are in the order of names, in any directories
            "train/dog/1.jpg train/cat/2.jpg val/dog/3.jpg val/ant/4.jpg",
            "cls:-1 class.txt:name:2",
            (
                "train/cat/2.cls=1 train/cat/2.class.txt=cat train/dog/1.cls=2 train/dog/1.class.txt=dog "
                "val/ant/4.cls=0 val/ant/4.class.txt=ant val/dog/3.cls=2 val/dog/3.class.txt=dog"
            ),
            "ant cat dog",
        ),
        (  # each field has the directory of its own level; the list of classes is that of the numbers
            "cat/2023/1.jpg dog/2024/2.jpg",
            "cls year:2:name",
            "cat/2023/1.cls=0 cat/2023/1.year=2023 dog/2024/2.cls=1 dog/2024/2.year=2024",
            "cat dog",
        ),
        (  # innermost directories of one name are one class; a renamed sample has its label under the new name
            "A/n1/1.xml T/x/n1/1.jpg T/n2/2.jpg",
            "cls:-1 --key base --rename key",
            "1.cls=0 2.cls=1",
            "n1 n2",
        ),
    ],
)
def test_labels(files: str, words: str, expected: str, classes: str, run: Run, here: Path) -> None:
    """Classes of directories are fields, and the lines of a list."""
    root = grow(here / "tree", files.split())
    labels, dashes, more = words.partition(" --")
    options = [option for label in labels.split() for option in ("--label-from-dir", label)] + (dashes + more).split()
    assert [f"{name}={source[5:]}" for name, source in texts(run, root, *options).items()] == expected.split()
    run("shard", root, *options, "-c", "99", "-o", "x-%d.tar", "--classes-out", "classes.txt")
    assert Path("classes.txt").read_text().split() == classes.split()
    labels_written = {name: data.decode() for name, data in entries("x-0.tar") if f"{name}=" in expected}
    assert labels_written == dict(pair.split("=") for pair in expected.split())


def test_a_list_of_classes(run: Run, here: Path) -> None:
    """Numbers are those of the list, for any part of the data; a class that is not in it is an error."""
    part = grow(here / "part", ["dog/1.jpg"])
    words = ["--label-from-dir", "cls", "--classes", "classes.txt"]
    Path("classes.txt").write_text("ant\ncat\ndog\n")
    assert texts(run, part, *words) == {"dog/1.cls": "text:2"}
    Path("classes.txt").write_text("cat\n")
    assert "the class 'dog' is not in classes.txt" in run("shard", part, *words, exit=1).lines[-1]


def label_of(path: str, level: int) -> str | None:
    """Return the directory of a file at a level, None without one."""
    parts = path.split("/")[:-1]
    place = level - 1 if level > 0 else level + len(parts)
    return parts[place] if 0 <= place < len(parts) else None


@each_row("seed", range(12))
def test_levels_of_labels(seed: int, run: Run, here: Path) -> None:
    """At a random level, of random trees, a label is that directory; directories of mixed depth are an error."""
    rng = random.Random(seed)
    depths = rng.choice(([1], [2], [3], [1, 2], [2, 3], [0, 1]))
    paths = {"/".join([*rng.choices("abc", k=rng.choice(depths)), f"{number}.x"]) for number in range(8)}
    root, level = grow(here / "tree", sorted(paths)), rng.choice((1, 2, -1, -2))
    word = "cls:name" if level == 1 and rng.random() < 0.5 else f"cls:{level}:name"
    words = ["--label-from-dir", word, "-c", "99"]
    below = {len(path.split("/")) for path in paths}
    labels = {path: label_of(path, level) for path in paths}
    if (level > 0 and len(below) > 1) or None in labels.values():
        [said, hint] = run("shard", root, *words, exit=1).lines
        if level > 0 and len(below) > 1:
            shown = [min((path for path in paths if len(path.split("/")) == depth), key=str.encode) for depth in below]
            files = ", ".join(map(show, shown))
            way = "--label-from-dir 'cls:-1' takes the innermost directory, whatever its depth"
            assert said == f"tarkit: --label-from-dir: directories of mixed depth: {files}"
            assert hint == f"hint: {way}; --match and --exclude leave files out"
        else:
            assert "is in no directory that could be its class" in said
        assert not list(here.glob("*.tar"))
        return
    assert texts(run, root, *words) == {f"{path[:-2]}.cls": f"text:{labels[path]}" for path in paths}
    numbered = [each.replace(":name", "") for each in words]
    classes = sorted(set(labels.values()), key=str)
    expected = {f"{path[:-2]}.cls": f"text:{classes.index(labels[path])}" for path in paths}
    assert texts(run, root, *numbered) == expected


# ---- files without a key, and files of file managers

JUNK = [".DS_Store", "a/Thumbs.db", "a/b/desktop.ini", "._1.x", "a/__MACOSX/._1.x", "__MACOSX/a/1.x"]
KEYLESS = ["README", ".hidden", "a/.hidden", "a/b/zzz", "b/0", "zzz", "a/.x.y"]


def kept(rng: random.Random, names: list[str]) -> list[str]:
    """Return some of the names."""
    return [name for name in names if rng.random() < 0.6]


@each_row("seed", range(12))
def test_files_without_a_key(seed: int, run: Run, here: Path) -> None:
    """Random trees: shards have the samples that they have without such files, each of which is packed once."""
    rng = random.Random(seed)
    limit = rng.choice((["-c", "3"], ["-c", "7"], ["-n", "4"], ["-n", "1"], ["-c", "999"]))
    options = [[], ["--sort", "-key"], ["--sort", "shuffle:7"], ["--label-from-dir", "cls:-1:name"]]
    if limit[0] == "-c":
        options += [["--dirs", "separate"], ["--dirs", "collapse"]]
    words = [*limit, *rng.choice(options)]
    folders = ("a/", "a/b/", "b/") if "--label-from-dir" in words else ("", "a/", "a/b/", "b/")
    samples = sorted({f"{rng.choice(folders)}{rng.randint(0, 30)}.x" for _ in range(30)})
    loose, junk = kept(rng, KEYLESS), kept(rng, JUNK)
    plain, tree = grow(here / "plain", samples), grow(here / "tree", [*samples, *loose, *junk])
    expected, found = layout(run, plain, *words), layout(run, tree, *words)
    assert [shard.keys for shard in found] == [shard.keys for shard in expected]
    assert sorted(names(found)) == sorted([*names(expected), *loose])
    ran = run("shard", tree, *words, "-o", "x-%d.tar", "--manifest", "m", "--report", "r")
    assert [len(shard.keys) for shard in expected] == [
        int(line.split("\t")[1]) for line in Path("m").read_text().splitlines()[1:]
    ]
    report = json.loads(Path("r").read_text())
    assert (report["samples"], report.get("junk", 0)) == (sum(len(shard.keys) for shard in expected), len(junk))
    assert (f"left out, files of file managers: {len(junk)}, " in ran.stderr) == bool(junk)
    assert [[name for name, _ in entries(f"x-{at}.tar")] for at in range(len(found))] == [
        shard.entries for shard in found
    ]
    before = {path.name: path.read_bytes() for path in here.glob("x-*")}
    run("shard", tree, *words, "-o", "x-%d.tar", "--resume")
    assert {path.name: path.read_bytes() for path in here.glob("x-*")} == before
    if words == ["-c", "7"] or words == ["-c", "3"]:
        run("shard", tree, *words, "--recipe", "recipe")
        run("create", "recipe", "-o", "all.tar")
        run("split", "all.tar", *words, "-o", "y-%d.tar")
        assert [path.read_bytes() for path in sorted(here.glob("y-*"))] == [before[name] for name in sorted(before)]


def test_updates_with_files_without_a_key(run: Run, here: Path) -> None:
    """A file without a key goes with a new sample once; alone it is left out, with a warning."""
    words = ["-c", "9", "-o", "x-%d.tar"]
    root = grow(here / "tree", ["1.x", "README"])
    run("shard", root, *words)
    grow(root, ["NOTES"])
    warned = "tarkit: warning: files without a key, left out since no sample goes with them: 1, 'NOTES' first"
    assert warned in run("shard", root, *words, "--update").lines
    grow(root, ["2.x"])
    run("shard", root, *words, "--update")
    assert [name for name, _ in entries("x-1.tar")] == ["2.x", "NOTES"]


def test_categories_of_files_without_a_key(run: Run, here: Path) -> None:
    """A file without a key goes with samples of its category; one in none is left out with a warning."""
    root = grow(here / "tree", ["a/1.x", "a/README", "b/2.x", "b/.hidden", "top"])
    Path("map.json").write_text('{"a-%d.tar": ["glob:a/*"], "b-%d.tar": ["glob:b/*"]}')
    ran = run("shard", root, "-c", "9", "--map", "map.json")
    assert "left out since no sample goes with them: 1, 'top' first" in ran.stderr
    assert [[name for name, _ in entries(f"{one}-0.tar")] for one in "ab"] == [
        ["a/1.x", "a/README"],
        ["b/.hidden", "b/2.x"],
    ]


@each_row("words", [["--require", "x"], ["--require", "x", "--on-missing-field", "exclude"], ["--join", "t.csv:file"]])
def test_no_sample_is_required_of_files_without_a_key(words: list[str], run: Run, here: Path) -> None:
    """--require and --join look at samples alone; exclude leaves other files out."""
    root = grow(here / "tree", ["1.x", "README"])
    Path("t.csv").write_text("file,txt\n1,one\n")
    ran = run("shard", root, "-c", "9", "-o", "x-%d.tar", *words)
    found = [name for name, _ in entries("x-0.tar")]
    assert found == (["1.x"] if "exclude" in words else ["1.x", *(["1.txt"] if "--join" in words else []), "README"])
    assert "without: 0; rows without a sample: 0" in ran.stderr or "--join" not in words


def test_a_tree_of_files_without_a_key(run: Run, here: Path) -> None:
    """No sample is an error, unless there are no files but junk."""
    root = grow(here / "tree", ["README", "a/0001", "a/.DS_Store"])
    assert run("shard", root, "-c", "9", exit=1).lines == [
        "tarkit: no file has a key, 'README' is the first of 2: there is no sample",
        "hint: a key ends at the first dot of a file name, which is not its first character: rename",
    ]
    run("shard", root, "--match", "DS_Store")
    kept = ["--match", "DS_Store", "--keep-junk"]
    run("shard", root, *kept, exit=1)
    grow(root, ["a/1.x"])
    run("shard", root, "-c", "9", "--keep-junk", "-o", "k-%d.tar")
    assert [name for name, _ in entries("k-0.tar")] == ["README", "a/.DS_Store", "a/0001", "a/1.x"]


# ---- tables


def test_update_of_shards_that_are_not_as_they_were(run: Run, here: Path) -> None:
    """The content of a damaged or compressed shard is unknown, so nothing is packed."""
    words = ("shard", grow(here / "tree", ["1.x", "2.x"]), "-c", "1", "-o", "x-%d.tar")
    run(*words)
    whole = Path("x-0.tar").read_bytes()
    Path("x-0.tar").write_bytes(whole + b"more")
    assert run(*words, "--update", exit=1).lines == [
        "tarkit: x-0.tar: at 10240: data follow the end of the archive [trailing-data]",
        "hint: --update reads the entries of each shard: repair it with check --fix, or write it again",
    ]
    Path("x-0.tar").rename("x-0.tar.gz")
    assert run(*words, "--update", exit=1).lines == [
        "tarkit: x-0.tar.gz: --update cannot read a shard that was compressed",
        "hint: use the present names of the shards, or move it away",
    ]
    Path("x-0.tar.gz").rename("other.tar.gz")
    run(*words, "--update")
    assert Path("x-2.tar").read_bytes() == whole


@each_row("folder", ["x\ny", "x\r"])
def test_a_class_that_is_no_line(folder: str, run: Run, here: Path) -> None:
    """A class with a line break cannot be in a list of classes: an error before anything is written."""
    root = grow(here / "tree", [f"{folder}/1.x"])
    words = ("shard", root, "-c", "1", "-o", "x-%d.tar", "--label-from-dir", "cls")
    ran = run(*words, "--classes-out", "classes.txt", exit=1)
    assert ran.lines == [
        f"tarkit: the class {show(folder)} cannot be a line of a list of classes",
        "hint: rename its directory",
    ]
    assert os.listdir() == ["tree"]
    run(*words)


def test_join(run: Run, here: Path) -> None:
    """Columns become fields of samples whose key or file is in a table; tests/commands/test_join.py has more kinds."""
    root = grow(here / "tree", ["c/1.jpg", "c/2.jpg", "c/3.jpg"])
    Path("table.csv").write_text('file,caption,@mask,n\nc/1,"two\nlines",,1\nc/2.jpg,plain,,2\nelsewhere,x,,3\n')
    words = ["--join", "table.csv:file", "-c", "9"]
    assert texts(run, root, *words) == {
        "c/1.caption": "base64:dHdvCmxpbmVz",
        "c/1.n": "text:1",
        "c/2.caption": "text:plain",
        "c/2.n": "text:2",
    }
    ran = run("shard", root, *words, "-o", "x-%d.tar")
    rows = "samples with a row: 2, without: 1 ('c/3'); rows without a sample: 1 ('elsewhere')"
    assert f"tarkit: table.csv: {rows}" in ran.lines
    assert dict(entries("x-0.tar"))["c/1.caption"] == b"two\nlines"
    # joined fields count for --require, and are never extra fields
    [shard] = layout(run, root, *words, "--require", "jpg,caption", "--on-missing-field", "exclude")
    assert shard.entries == ["c/1.jpg", "c/1.caption", "c/1.n", "c/2.jpg", "c/2.caption", "c/2.n"]


@each_row(
    ("cell", "text"),
    [
        ("m.png", None),
        ("nothing.bin", "nothing.bin: No such file or directory"),
        ("http://x/y", "table.csv:2: 'http://x/y': sources in a joined table are paths"),
    ],
)
def test_join_of_files(cell: str, text: str | None, run: Run, here: Path) -> None:
    """A column `@mask` has paths of files; another source is an error with its position."""
    root = grow(here / "tree", ["c/1.jpg"])
    Path("m.png").write_bytes(b"mask")
    Path("table.csv").write_text(f"k,@mask.png\nc/1,{cell}\n")
    ran = run("shard", root, "--join", "table.csv:k", "-c", "1", "-o", "x-%d.tar", exit=text is not None)
    if text is None:
        assert entries("x-0.tar") == [("c/1.jpg", b"x"), ("c/1.mask.png", b"mask")]
    else:
        assert text in ran.stderr


def test_join_by_base_names(run: Run, here: Path) -> None:
    """With --key base the names without directories match; without it an error says why no row matches."""
    root = grow(here / "tree", ["cat/1.jpg", "dog/2.jpg", "dog/3.jpg"])
    Path("table.csv").write_text("file,text\n1.jpg,one\n2.jpg,two\ndog/3.jpg,no\n")
    Path("none.csv").write_text("file,text\n1.jpg,one\n")
    words = ("shard", root, "-c", "9", "-o", "x-%d.tar", "--force", "--join")
    what = "tarkit: none.csv: no sample has a row: column 'file' begins with '1.jpg', keys with 'cat/1'"
    ways = "--join-by stem compares names, and cells, without directories"
    assert run(*words, "none.csv:file", exit=1).lines == [what, f"hint: {ways}"]
    assert run(*words, "none.csv:text", "--key", "base", exit=1).lines == [
        "tarkit: none.csv: no sample has a row: column 'text' begins with 'one', keys with '1'"
    ]
    assert sorted(os.listdir()) == ["none.csv", "table.csv", "tree"]
    (here / "none").mkdir()
    assert run("shard", here / "none", "--join", "none.csv:file", "-c", "9", "-o", "x-%d.tar").status == 0
    ran = run(*words, "table.csv:file", "--key", "base")
    assert ran.lines == ["tarkit: table.csv: samples with a row: 3, without: 0; rows without a sample: 0"]
    assert [name for name, _ in entries("x-0.tar")] == [
        *("cat/1.jpg", "cat/1.text", "dog/2.jpg", "dog/2.text", "dog/3.jpg", "dog/3.text")
    ]


# ---- update


def test_update(run: Run, here: Path) -> None:
    """Only samples that are in no shard yet are packed, into new shards after the existing ones."""
    root = grow(here / "tree", ["t/1.x", "t/2.x", "t/3.x"])
    words = ["-c", "2", "-o", "out/x-%03d.tar", "--label-from-dir", "cls:-1:name"]
    Path("out").mkdir()
    ran = run("shard", root, *words, "--update")
    assert ran.lines == ["tarkit: --update: samples that are in shards already: 0; there are no shards of this name"]
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert sorted(before) == ["x-000.tar", "x-001.tar"]
    assert "no sample, so no shard" in run("shard", root, *words, "--update").stderr
    grow(root, {"t/0.x": 1, "t/4.x": 1, "t/2.x": 7})
    ran = run("shard", root, *words, "--update")
    assert "tarkit: --update: samples that are in shards already: 3" in ran.lines
    assert any("another size than in the shards, which stay: 1, 't/2.x' first" in line for line in ran.lines)
    assert {name: Path("out", name).read_bytes() for name in before} == before
    assert [name for name, _ in entries("out/x-002.tar")] == ["t/0.x", "t/0.cls", "t/4.x", "t/4.cls"]
    assert not Path("out/x-003.tar").exists()
    other = run("shard", root, *words, "--rename", "flat", "--update", "--dry-run").stderr
    assert "no file of the tree is in the shards; were they made with another --rename or DIR?" in other
    grow(root, ["t/1.y"])
    assert "sample 't/1' is in the shards, but without 't/1.y'" in run("shard", root, *words, "--update", exit=1).stderr


# ---- uses of a plan


def test_recipe(run: Run, f1: Path) -> None:
    """`create | split` with the recipe writes the same bytes."""
    words = ["--key", "base", "--rename", "key", "--label-from-dir", "cls:-1", "--exclude", "val"]
    run("shard", f1, *words, "-c", "3", "-o", "a-%d.tar")
    run("shard", f1, *words, "-c", "3", "--recipe", "recipe")
    run("create", "recipe", "-o", "all.tar")
    run("split", "all.tar", "-c", "3", "-o", "b-%d.tar")
    made = sorted(Path.cwd().glob("a-*"))
    assert len(made) == 3
    for path in made:
        assert path.read_bytes() == Path(path.name.replace("a-", "b-")).read_bytes()
    ran = run("shard", f1, *words, "--recipe", "-")
    assert ran.stdout == Path("recipe").read_bytes()
    assert "no limit is given" not in ran.stderr
    assert "no limit is given" in run("shard", f1, *words, "-o", "c-%d.tar").stderr
    assert "no limit is given" not in run("shard", f1, *words, "-o", "c-%d.tar", exit=1).stderr


def test_map_with_order(run: Run, here: Path) -> None:
    """Categories are in the order of the map, each with its own order and directories."""
    root = grow(here / "tree", ["a/1.x", "b/2.x", "a/3.x", "c/4.x", "c/5.x"])
    spec = '{"late-%d": ["glob:c/*"], // the last letter\n "early-%d": ["^a", "^b"],}'
    shards = layout(run, root, "--map", spec, "--sort", "-key", "--dirs", "separate", "-o", "out/")
    assert [(shard.name, shard.keys) for shard in shards] == [
        ("out/late-0.tar", ["c/5", "c/4"]),
        ("out/early-0.tar", ["a/3", "a/1"]),
        ("out/early-1.tar", ["b/2"]),
    ]


def test_drawn_seed(run: Run, f1: Path) -> None:
    """A shuffle without a seed prints the drawn one."""
    ran = run("shard", f1, "--sort", "shuffle", "--show-keys")
    [line] = [line for line in ran.lines if line.startswith("tarkit: seed: ")]
    seed = line.rpartition(" ")[2]
    assert run("shard", f1, "--sort", f"shuffle:{seed}", "--show-keys").stdout == ran.stdout


def test_read_by_webdataset(run: Run, here: Path) -> None:
    """Directories of classes become shards with labels that webdataset decodes."""
    wds = pytest.importorskip("webdataset")
    root = grow(here / "tree", {f"{kind}/{n}.bin": n + 1 for kind in ("cat", "dog") for n in range(3)})
    run("shard", root, "-c", "4", "-o", "x-%06d.tar", "--label-from-dir", "cls")
    data = wds.WebDataset(["x-000000.tar", "x-000001.tar"], shardshuffle=False).decode()
    assert [(sample["__key__"], sample["cls"], len(sample["bin"])) for sample in data] == [
        (f"{kind}/{n}", label, n + 1) for label, kind in enumerate(("cat", "dog")) for n in range(3)
    ]


@each_row(
    ("words", "files", "hint"),
    [
        ("--key base --join t.csv:k", ["a/1.x", "b/1.y"], "name entries after their sample with --rename key"),
        (
            "--last-dot --sort shuffle:1 -c 4",
            [f"{key}.{part}.cls" for key in "ab" for part in "xy"],
            "give up --last-dot, or name entries after their sample with --rename key",
        ),
        ("--rename flat", ["a/b.x", "a/b0.x", "a_b.y"], "name entries after their sample with --rename key"),
        ("--last-dot --rename key", ["a.b.x", "a.b0.x", "a_b.y"], "give up --last-dot, or rename the files"),
        (r"--key (.*)\.\w$ --rename key", ["a.b.x", "a.b0.x", "a_b.y"], "rename the files"),
    ],
)
def test_hints_name_what_was_given(words: str, files: list[str], hint: str, run: Run, here: Path) -> None:
    """The hint of a scattered sample names options that were given, or that help."""
    Path("t.csv").write_text("k,v\n1,7\n")
    ran = run("shard", grow(here / "tree", files), *words.split(), "-q", "-o", "s-%d.tar", exit=1)
    assert "[scattered-sample]" in ran.lines[0]
    assert ran.lines[1] == f"hint: readers end keys at the first dot: {hint}"
    assert not [*Path().glob("s-*")]
