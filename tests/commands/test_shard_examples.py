"""tarkit shard: every example of ishard's behaviour (`Ex-` in its description, sections 2.2 to 2.12), by id.

The layouts are those of the examples, with the options that correspond to ishard's flags: `--last-dot` and `--size-rule
content` for its keys and sizes, `--dirs separate` for its directories without `-collapse`. If ishard loses files,
counts twice or prints nothing, its description states the correct result. Examples of names and of the
spelling of sizes (TPL, SIZE) are in tests/shards/test_template.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tarkit.commands import shard as command
from tarkit.packing import planner
from tarkit.packing.plan import Plan, PlannedShard
from tests._tools import each_row
from tests.commands.test_shuffle import by_seed
from tests.conftest import Run

A, T, V = "ImageNet/Annotations/", "ImageNet/Data/train/", "ImageNet/Data/val/"
KIB = 1024
F1 = {
    **{f"{A}n00000333/n00000333_{n}.xml": 100 for n in ("01", "02")},
    **{f"{A}n00000369/n00000369_{n}.xml": 100 for n in ("01", "02", "03", "04")},
    **{f"{T}n00000333/n00000333_{n}.JPEG": 30 * KIB for n in ("01", "02", "03")},
    **{f"{T}n00000333/n00000333_{n}.loss": 100 for n in ("02", "03")},
    **{f"{T}n00000369/n00000369_{n}.JPEG": 30 * KIB for n in ("01", "02", "03", "04")},
    **{f"{T}n00000369/n00000369_{n}.loss": 100 for n in ("01", "02")},
    **{
        f"{V}n00000333/ILSVRC2012_val_{n}.JPEG": 30 * KIB
        for n in ("00001851", "00006595", "00007175", "00012920", "00021981")
    },
    **{f"{V}n00000369/ILSVRC2012_val_{n}.JPEG": 30 * KIB for n in ("00001436", "00016182")},
}
"""Names and sizes."""

ISHARD = ["--last-dot", "--size-rule", "content", "--dirs", "separate"]
COLLAPSE = ["--last-dot", "--size-rule", "content", "--dirs", "collapse"]
DIRECTORY = ".*/([^/]+)/[^/]+$"


def grow(root: Path, files: Mapping[str, int] | Iterable[str]) -> Path:
    """Make a tree of files with these sizes (1 byte) below `root`."""
    sizes = files if isinstance(files, Mapping) else dict.fromkeys(files, 1)
    for name, size in sizes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return root


@pytest.fixture(scope="session")
def f1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tree of most examples: 24 files, 431 080 bytes."""
    root = grow(tmp_path_factory.mktemp("f1"), F1)
    assert (len(F1), sum(F1.values())) == (24, 431_080)
    return root


class Shard(NamedTuple):
    """A shard of a layout: its name, bytes of content, keys with the names of their entries, length of its tar, and
    sources of the entries."""

    name: str
    bytes: int
    samples: list[tuple[str, list[str]]]
    length: int = 0
    sources: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The keys."""
        return [key for key, _ in self.samples]

    @property
    def entries(self) -> list[str]:
        """The names of all entries, in order."""
        return [name for _, names in self.samples for name in names]


def layout(run: Run, root: Path | str, *words: str) -> list[Shard]:
    """Return the shards that `tarkit shard ROOT WORDS` would write."""
    plans: list[Plan] = []

    def plan_tree(run: Any, options: Any) -> Plan:
        plans.append(planner.plan_tree(run, options))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "plan_tree", plan_tree)
        run("shard", root, *words, "--dry-run")
    return [shard_of(plan, each) for plan in plans for each in plan.shards]


def shard_of(plan: Plan, each: PlannedShard) -> Shard:
    """Return a shard of a plan."""
    samples: list[tuple[str, list[str]]] = []
    sources: list[bytes] = []
    for batch in plan.batches(each):
        samples += [(os.fsdecode(key), [os.fsdecode(file[0]) for file in files]) for key, files, _ in batch.samples()]
        sources += batch.sources
    return Shard(each.name, each.content, samples, each.length, tuple(map(os.fsdecode, sources)))


# ---- Layouts (2.2 to 2.11)

FIVE = {"a/1.jpg": 40 * KIB, "b/1.jpg": 40 * KIB, "b/2.jpg": 40 * KIB, "b/3.jpg": 40 * KIB, "c/1.jpg": 10 * KIB}
NESTED = dict.fromkeys(("p/q/1.jpg", "p/q/2.jpg", "p/r/1.jpg", "p/3.jpg", "s/1.jpg"), 30 * KIB)
PREFIXED = ["Data/a.jpg", "Database/b.jpg"]
EXTENSIONS = ["1.jpg", "1.json", "1.tmp", "2.jpg", "3.jpg", "3.json"]
TRAIN = sorted(name for name in F1 if name.startswith(T))
VAL = [f"ILSVRC2012_val_{n}" for n in ("00001851", "00006595", "00007175", "00012920", "00021981")]
PACKED = [
    "n00000333_01 n00000333_02 n00000369_01 n00000369_02",
    f"n00000369_03 n00000369_04 n00000333_03 {VAL[0]}",
    " ".join(VAL[1:]),
    "ILSVRC2012_val_00001436 ILSVRC2012_val_00016182",
]
FALLING = [
    *(f"n00000369_0{n}" for n in "4321"),
    *(f"n00000333_0{n}" for n in "321"),
    *(f"ILSVRC2012_val_{n}" for n in ("00021981", "00016182", "00012920", "00007175", "00006595", "00001851")),
    "ILSVRC2012_val_00001436",
]
BASE = ["--key", "base_file_name", *ISHARD]
FULL = ["--key", "full_name"]
EXCLUDE = ["--on-missing-field", "exclude"]
ONES = dict.fromkeys((f"{n:02}.bin" for n in range(12)), 1)
SAMPLES_5 = ["n01/b.jpg", "x/n01/a.jpg", "x/y/n01/c.jpg"]


def key(id: str, rule: str, files: str, keys: str) -> Any:
    """Return a row about the keys of files."""
    return id, files.split(), ["--key", rule, "--last-dot"], "keys", [keys]


def size(id: str, sizes: Sequence[int], words: str, counts: list[int]) -> Any:
    """Return a row about the numbers of samples with these sizes."""
    return id, {f"{n}.x": size for n, size in enumerate(sizes)}, [*words.split(), *ISHARD[1:3]], "counts", counts


def fields(action: str, required: str, names: list[str]) -> Any:
    """Return a row about required fields."""
    return f"2.9 {action}", EXTENSIONS, ["--require", required, "--on-missing-field", action, *ISHARD], "names", [names]


EXAMPLES: list[Any] = [
    # sources: a prefix is text, not a directory; `^` begins an expression for it
    ("SRC-1", F1, ["--match", f"^{T}", *BASE, "-s", "100KiB"], "names", [TRAIN[:7], TRAIN[7:]]),
    ("SRC-2", PREFIXED, ["--match", "^Data"], "names", [PREFIXED]),
    ("SRC-2", PREFIXED, ["--match", "^Data/"], "names", [PREFIXED[:1]]),
    ("SRC-2", PREFIXED, ["--match", "^Data/b"], "names", []),
    key("KEY-1", "base_file_name", "A/b/c.jpg", "c"),
    key("KEY-2", "base_file_name", "c.jpg", "c"),
    key("KEY-4", "base_file_name", "A/c.seg.png", "c.seg"),
    key("KEY-5", "full_name", "A/b/c.jpg", "A/b/c"),
    key("KEY-6", "collapse_all_dir", "A/b/c.jpg", "Abc"),
    key("KEY-7", "collapse_all_dir", "a/bc.jpg ab/c.jpg", "abc"),
    key("KEY-8", DIRECTORY, "ImageNet/Data/train/n00000333/n00000333_01.JPEG", "n00000333"),
    key("KEY-9", DIRECTORY, "n00000333/x.jpg", "n00000333/x"),
    key("KEY-10", "_[0-9]+", "d/img_12.jpg", "d/img"),
    key("KEY-11", "([a-z]+)[0-9]+", "ab12/cd34.jpg", "ab/cd"),
    key("KEY-12", "base_filename", "A/b/c.jpg", "c"),
    key("IS-KEY-5", "full", "a.seg.png", "a.seg"),
    key("IS-KEY-7", "base", "a/k.JPEG b/K.jpeg", "k K"),
    key("IS-KEY-9", DIRECTORY, "x/v1.0/a.0", "v1.0"),
    # a sample may have the name of a directory of keys; nothing is lost
    ("SAMP-5", SAMPLES_5, ["--key", DIRECTORY, *ISHARD], "keys", ["n01/b", "n01"]),
    ("SAMP-5", SAMPLES_5, ["--key", DIRECTORY, *ISHARD], "names", [SAMPLES_5[:1], SAMPLES_5[1:]]),
    # shards close at a limit; directories bound them, or pass their rest to the parent
    ("PACK-1", F1, [*BASE, "-s", "120KiB"], "sizes", [123_580, 123_180, 122_880, 61_440]),
    ("PACK-1", F1, [*BASE, "-s", "120KiB"], "keys", PACKED),
    ("PACK-2", F1, [*FULL, "-s", "1MiB", *ISHARD], "sizes", [200, 400, 92_360, 123_080, 153_600, 61_440]),
    ("PACK-3", F1, [*FULL, "-s", "100KiB", *ISHARD], "sizes", [200, 400, 92_360, 123_080, 122_880, 30_720, 61_440]),
    ("PACK-4", F1, [*FULL, "-s", "100KiB", *COLLAPSE], "sizes", [123_080, 122_880, 184_520, 600]),
    ("PACK-5", FIVE, [*FULL, "-s", "100KiB", *ISHARD], "keys", ["a/1", "b/1 b/2 b/3", "c/1"]),
    ("PACK-5", FIVE, [*FULL, "-s", "100KiB", *COLLAPSE], "keys", ["b/1 b/2 b/3", "a/1 c/1"]),
    ("PACK-6", NESTED, [*FULL, "-s", "100KiB", *COLLAPSE], "keys", ["p/q/1 p/q/2 p/r/1 p/3", "s/1"]),
    ("PACK-6", NESTED, [*FULL, "-s", "100KiB", *ISHARD], "keys", ["p/q/1 p/q/2", "p/r/1", "p/3", "s/1"]),
    ("a full rest", ["a/1.x", "b/1.x", "c/1.x"], ["--dirs", "collapse", "-c", "2"], "keys", ["a/1 b/1", "c/1"]),
    ("PACK-7", F1, ["--key", DIRECTORY, "-s", "1MiB", *ISHARD], "keys", ["n00000333 n00000369"]),
    ("PACK-7", F1, ["--key", DIRECTORY, "-s", "200KiB", *ISHARD], "sizes", [246_160, 184_920]),
    # sizes and numbers
    ("SIZE-1", ONES, ["-c", "10", *ISHARD[1:3]], "counts", [10, 2]),
    size("SIZE-3", [3999, 1, 1], "-s 4KB", [2, 1]),
    size("SIZE-9", [100] * 7, "-c 3", [3, 3, 1]),
    size("IS-SIZE-6", [0] * 5, "-c 2", [2, 2, 1]),
    ("SIZE-8", F1, [*BASE, "-c", "4"], "keys", PACKED),
    # a suffix is added to names that have none
    ("2.8", F1, ["-o", "s-%d.tar"], "shards", ["s-0.tar"]),
    ("TPL-8", F1, ["-o", "s-%d.zip"], "shards", ["s-0.zip"]),
    # fields are named with or without dots, in any case; a second file of a field is neither an extra nor missing
    fields("keep", ".jpg,.json", EXTENSIONS),
    fields("ignore", "jpg, json", EXTENSIONS),
    fields("warn", "JPG,JSON,jpg", EXTENSIONS),
    fields("exclude", "jpg, json", ["1.jpg", "1.json", "3.jpg", "3.json"]),
    (
        "EXT-2",
        F1,
        ["--require", ".JPEG,.xml", *EXCLUDE, "-s", "1MiB", *BASE],
        "keys",
        ["n00000333_01 n00000333_02 n00000369_01 n00000369_02 n00000369_03 n00000369_04"],
    ),
    (
        "EXT-3",
        ["t/1.jpg", "v/1.jpg", "t/1.json"],
        ["--require", ".jpg,.json", *EXCLUDE, *BASE],
        "names",
        [["t/1.jpg", "t/1.json", "v/1.jpg"]],
    ),
    ("IS-EXT-1", ["a.seg.png", "b.png"], ["--require", ".seg.png", *EXCLUDE], "names", [["a.seg.png"]]),
    ("IS-EXT-1", ["a.seg.png", "b.png"], ["--require", ".seg.png", *EXCLUDE, "--last-dot"], "names", [["a.seg.png"]]),
    # two patterns of one category are no conflict
    ("EKM-3", ["abc.jpg"], ["--map", '{"x-%d.tar": ["a.*", "ab.*"]}'], "shards", ["x-0.tar"]),
    *(
        (
            "SORT-1",
            F1,
            [*BASE, "-c", "4", "--sort", word],
            "keys",
            [" ".join(FALLING[at : at + 4]) for at in (0, 4, 8, 12)],
        )
        for word in ("alpha:dec", "-key", "alphanumeric:dec")
    ),
]
VIEWS: dict[str, Callable[[Shard], Any]] = {
    "keys": lambda shard: " ".join(shard.keys),
    "names": lambda shard: shard.entries,
    "sizes": lambda shard: shard.bytes,
    "counts": lambda shard: len(shard.samples),
    "shards": lambda shard: shard.name,
}


@each_row(("id", "files", "words", "view", "expected"), EXAMPLES)
def test_layout(
    id: str, files: Mapping[str, int], words: list[str], view: str, expected: list[Any], run: Run, here: Path, f1: Path
) -> None:
    """Ex-*: the shards of an example: keys, names or sizes in each."""
    root = f1 if files is F1 else grow(here / "tree", files)
    assert list(map(VIEWS[view], layout(run, root, *words))) == expected


# ---- 2.9 required fields


def test_required(run: Run, here: Path) -> None:
    """2.9: warnings, or the first sample with a field too many or too few ends the run before anything is written."""
    root = grow(here / "tree", EXTENSIONS)
    words = ["--require", ".jpg,.json", "--on-missing-field"]
    assert [line for line in run("shard", root, *words, "warn", "--dry-run").lines if "warning: sample" in line] == [
        "tarkit: warning: sample '1' has '1.tmp', a field that --require does not name",
        "tarkit: warning: sample '2' has no json",
    ]
    for more in (words[:-1], [*words, "abort"], [*words, "error"]):
        ran = run("shard", root, *more, exit=1)
        assert ran.lines[-2] == "tarkit: sample '1' has '1.tmp', a field that --require does not name [missing-field]"
    assert [path.name for path in Path.cwd().iterdir()] == ["tree"]


# ---- 2.10 categories

EKM = {
    "fish-%d.tar": ["train/n01440764.*", "train/n01443537.*"],
    "dog-%d.tar": ["train/n02084071.*"],
}
PICTURES = dict.fromkeys(
    ("train/n01440764/a.JPEG", "train/n01443537/b.JPEG", "train/n02084071/c.JPEG", "train/n09999999/z.JPEG"), KIB
)


@each_row(
    ("id", "size", "expected"),
    [
        ("EKM-1", "1MiB", [("fish-0.tar", "ab"), ("dog-0.tar", "c")]),
        ("EKM-2", "1KiB", [("fish-0.tar", "a"), ("fish-1.tar", "b"), ("dog-0.tar", "c")]),
    ],
)
def test_ekm_1_and_2(id: str, size: str, expected: list[tuple[str, str]], run: Run, here: Path) -> None:
    """Ex-EKM-1, 2: each category is packed alone; samples without a category are left out with a message."""
    root = grow(here / "tree", PICTURES)
    Path("map.json").write_text(json.dumps(EKM))
    for word in ("map.json", json.dumps(EKM)):
        shards = layout(run, root, "--map", word, "-s", size, *ISHARD[:3])
        assert [(shard.name, "".join(key[-1] for key in shard.keys)) for shard in shards] == expected
    ran = run("shard", root, "--map", "map.json", "--dry-run", "--progress")
    assert any("samples in no category, left out: 1, 'train/n09999999/z' first" in line for line in ran.lines)
    shards = layout(run, root, "--map", "map.json", "--unmatched", "rest-%d", "-s", size, *ISHARD[:3])
    assert (shards[-1].name, shards[-1].entries) == ("rest-0.tar", ["train/n09999999/z.JPEG"])


# ---- 2.11 order


@each_row("seed", [0, 1, 42])
def test_sort_2(seed: int, run: Run, here: Path) -> None:
    """Ex-SORT-2: an order by a seed, that of `tarkit shuffle`."""
    root = grow(here / "tree", [f"{name}.txt" for name in "abcdefgh"])
    for _ in range(2):
        [shard] = layout(run, root, "--sort", f"shuffle:{seed}")
        assert " ".join(shard.keys) == by_seed("a b c d e f g h", seed)


# ---- 2.12 dry run

DRY = f"""\
pre-0000-suf.tar\t120.68KiB
  [n00000333_01]\t
    pre-0000-suf/{A}n00000333/n00000333_01.xml\t100B
    pre-0000-suf/{T}n00000333/n00000333_01.JPEG\t30.00KiB
  [n00000333_02]\t
    pre-0000-suf/{A}n00000333/n00000333_02.xml\t100B
    pre-0000-suf/{T}n00000333/n00000333_02.JPEG\t30.00KiB
    pre-0000-suf/{T}n00000333/n00000333_02.loss\t100B
"""


def test_dry_1(run: Run, f1: Path) -> None:
    """Ex-DRY-1: the format of a dry run, with and without keys; nothing is written."""
    words = ["--key", "base", "-s", "120KiB", "-o", "pre-{0000..8192..8}-suf", *ISHARD]
    shown = run("shard", f1, *words, "--dry-run", "--show-keys").stdout.decode()
    assert shown.startswith(DRY)
    heads = [line for line in shown.splitlines() if not line.startswith(" ")]
    assert heads == [
        "pre-0000-suf.tar\t120.68KiB",
        "pre-0008-suf.tar\t120.29KiB",
        "pre-0016-suf.tar\t120.00KiB",
        "pre-0024-suf.tar\t60.00KiB",
    ]
    plain = "".join(line for line in shown.splitlines(True) if not line.startswith("  ["))
    assert run("shard", f1, *words, "--dry-run").stdout.decode() == plain
    assert run("shard", f1, *words, "--show-keys").stdout.decode() == shown
    assert [*Path.cwd().iterdir()] == []


def test_dry_sizes_are_those_of_the_rule(run: Run, here: Path) -> None:
    """Unlike ishard, with -s as the limit of the tar the dry run shows the size of the file."""
    root = grow(here / "tree", {f"{number}.bin": 5000 for number in range(5)})
    shown = run("shard", root, "-s", "20KiB", "--dry-run").stdout.decode().splitlines()
    heads = dict(line.split("\t") for line in shown if not line.startswith(" "))
    assert heads == {"shard-000000.tar": "20.00KiB", "shard-000001.tar": "20.00KiB"}
    run("shard", root, "-s", "20KiB")
    assert {path.name: f"{path.stat().st_size / 1024:.2f}KiB" for path in Path.cwd().glob("*.tar")} == heads
    shown = run("shard", root, "-s", "20KiB", "--size-rule", "content", "--dry-run").stdout.decode().splitlines()
    assert [line for line in shown if not line.startswith(" ")] == ["shard-000000.tar\t24.41KiB"]


def test_dry_of_odd_names(run: Run, here: Path) -> None:
    """IS-DRY-5: plain text; line breaks are escaped."""
    root = grow(here / "tree", ["a&<b>+'.txt", "c\td\n.txt"])
    assert run("shard", root, "--dry-run").stdout.splitlines()[1:] == [
        b"    shard-000000/a&<b>+'.txt\t1B",
        b"    shard-000000/c\\td\\n.txt\t1B",
    ]


@each_row(
    ("size", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.00KiB"), (30720, "30.00KiB"), (1121976, "1.07MiB"), (1 << 41, "2.00TiB")],
)
def test_dry_sizes(size: int, text: str) -> None:
    """IS-DRY-4: binary units with two decimals."""
    from tarkit.display.text import human_size

    assert human_size(size) == text


# ---- 2.13 totals, 2.14 errors


def test_prog(run: Run, f1: Path) -> None:
    """2.13: the total of F1."""
    ran = run("shard", f1, "--dry-run", "--progress", "--report", "r.json")
    report = json.loads(Path("r.json").read_bytes())
    assert (report["bytes"], report["files"], report["samples"]) == (431_080, 24, 20)
    assert any("shard: 20 samples, 431080 bytes, 1 shard" in line for line in ran.lines)
