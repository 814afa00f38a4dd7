"""tarkit shard: every example of ishard's behaviour (`Ex-` in its description, sections 2.2 to 2.12), by id.

The layouts are those of the examples, with the options that correspond to ishard's flags: `--last-dot` and `--size-rule
content` for its keys and sizes, `--dirs separate` for its directories without `-collapse`. If ishard loses files,
counts twice or prints nothing, its description states the correct result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tarkit.commands import shard as command
from tarkit.packing import shard
from tarkit.packing.grouping import parse_key
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.pipeline.template import parse_template
from tarkit.sorting.shuffle import random_keys
from tests._tools import each_row
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
        plans.append(shard.plan_tree(run, options))
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


# ---- 2.2 source and names


def test_src_1(run: Run, f1: Path) -> None:
    """Ex-SRC-1: a prefix of the names selects; no annotations."""
    shards = layout(run, f1, "--match", "^ImageNet/Data/train", "--key", "base_file_name", "-s", "100KiB", *ISHARD)
    names = sorted(name for name in F1 if name.startswith(T))
    assert [(shard.name, shard.bytes, shard.entries) for shard in shards] == [
        ("shard-000000.tar", 123_180, names[:7]),
        ("shard-000001.tar", 92_260, names[7:]),
    ]


@each_row(("prefix", "names"), [("Data", ["Data/a.jpg", "Database/b.jpg"]), ("Data/", ["Data/a.jpg"]), ("Data/b", [])])
def test_src_2(prefix: str, names: list[str], run: Run, here: Path) -> None:
    """Ex-SRC-2: a prefix is text, not a directory; `^` begins an expression for it."""
    root = grow(here / "tree", ["Data/a.jpg", "Database/b.jpg"])
    assert [name for shard in layout(run, root, "--match", f"^{prefix}") for name in shard.entries] == names


# ---- 2.3 keys


@each_row(
    ("id", "key", "names", "keys"),
    [
        ("KEY-1", "base_file_name", ["A/b/c.jpg"], ["c"]),
        ("KEY-2", "base_file_name", ["c.jpg"], ["c"]),
        ("KEY-4", "base_file_name", ["A/c.seg.png"], ["c.seg"]),
        ("KEY-5", "full_name", ["A/b/c.jpg"], ["A/b/c"]),
        ("KEY-6", "collapse_all_dir", ["A/b/c.jpg"], ["Abc"]),
        ("KEY-7", "collapse_all_dir", ["a/bc.jpg", "ab/c.jpg"], ["abc"]),
        ("KEY-8", DIRECTORY, ["ImageNet/Data/train/n00000333/n00000333_01.JPEG"], ["n00000333"]),
        ("KEY-9", DIRECTORY, ["n00000333/x.jpg"], ["n00000333/x"]),
        ("KEY-10", "_[0-9]+", ["d/img_12.jpg"], ["d/img"]),
        ("KEY-11", "([a-z]+)[0-9]+", ["ab12/cd34.jpg"], ["ab/cd"]),
        ("KEY-12", "base_filename", ["A/b/c.jpg"], ["c"]),
        ("IS-KEY-5", "full", ["a.seg.png"], ["a.seg"]),
        ("IS-KEY-7", "base", ["a/k.JPEG", "b/K.jpeg"], ["k", "K"]),
        ("IS-KEY-9", DIRECTORY, ["x/v1.0/a.0"], ["v1.0"]),
    ],
)
def test_key(id: str, key: str, names: list[str], keys: list[str], run: Run, here: Path) -> None:
    """Ex-KEY-*: the key of a name."""
    root = grow(here / "tree", names)
    shards = layout(run, root, "--key", key, "--last-dot")
    assert [each for shard in shards for each in shard.keys] == keys
    assert [each for shard in shards for each in shard.entries] == names


@each_row(
    ("id", "key", "name", "expected"),
    [
        ("KEY-3", "base_file_name", b"A/c", b"c"),
        ("KEY-14", "base_file_name", b"A/.hidden", b""),
        ("IS-KEY-6", "base", b"a/.x", b""),
    ],
)
def test_key_of_no_sample(id: str, key: str, name: bytes, expected: bytes) -> None:
    """Ex-KEY-*: a name that has no key for readers of shards has one for ishard."""
    assert parse_key(key, last_dot=True).key(name) == expected


def test_key_13(run: Run) -> None:
    """Ex-KEY-13: an invalid expression is an error before the listing."""
    first, second = run("shard", "nowhere", "--key", "(.*'", exit=2).lines
    assert first == "tarkit: --key '(.*'': missing ), unterminated subpattern at position 0"
    assert "regular expression" in second


# ---- 2.4 samples


def test_samp_5(run: Run, here: Path) -> None:
    """IS-SAMP-5: a sample may have the name of a directory of keys; nothing is lost."""
    root = grow(here / "tree", ["n01/b.jpg", "x/n01/a.jpg", "x/y/n01/c.jpg"])
    shards = layout(run, root, "--key", DIRECTORY, *ISHARD)
    assert [shard.samples for shard in shards] == [
        [("n01/b", ["n01/b.jpg"])],
        [("n01", ["x/n01/a.jpg", "x/y/n01/c.jpg"])],
    ]


@each_row("size", ["512", "1KiB", "31KiB", "100KiB", "1MiB"])
def test_samp_1(size: str, run: Run, f1: Path) -> None:
    """Ex-SAMP-1: the files of a base name are in one shard, for any size."""
    [home] = [
        names
        for shard in layout(run, f1, "--key", "base", "-s", size, *ISHARD)
        for key, names in shard.samples
        if key == "n00000333_02"
    ]
    assert home == [
        f"{A}n00000333/n00000333_02.xml",
        f"{T}n00000333/n00000333_02.JPEG",
        f"{T}n00000333/n00000333_02.loss",
    ]


def test_samp_2(run: Run, f1: Path) -> None:
    """Ex-SAMP-2: with full names the annotation is another sample, in another directory."""
    shards = layout(run, f1, "--key", "full_name", "-s", "1MiB", *ISHARD)
    homes = [shard.name for shard in shards if any("n00000333_02" in key for key in shard.keys)]
    assert len(homes) == 2


# ---- 2.5 packing


def groups(shards: list[Shard]) -> list[list[str]]:
    """Return the names in each shard."""
    return [shard.entries for shard in shards]


def test_pack_1(run: Run, f1: Path) -> None:
    """Ex-PACK-1: base names and 120 KiB, as in the README's dry run."""
    shards = layout(run, f1, "--key", "base_file_name", "-s", "120KiB", *ISHARD)
    assert [shard.bytes for shard in shards] == [123_580, 123_180, 122_880, 61_440]
    val = [f"ILSVRC2012_val_{n}" for n in ("00001851", "00006595", "00007175", "00012920", "00021981")]
    assert [shard.keys for shard in shards] == [
        ["n00000333_01", "n00000333_02", "n00000369_01", "n00000369_02"],
        ["n00000369_03", "n00000369_04", "n00000333_03", val[0]],
        val[1:],
        ["ILSVRC2012_val_00001436", "ILSVRC2012_val_00016182"],
    ]
    assert shards[0].entries[:2] == [f"{A}n00000333/n00000333_01.xml", f"{T}n00000333/n00000333_01.JPEG"]


@each_row(
    ("id", "words", "sizes"),
    [
        ("PACK-2", ["-s", "1MiB", *ISHARD], [200, 400, 92_360, 123_080, 153_600, 61_440]),
        ("PACK-3", ["-s", "100KiB", *ISHARD], [200, 400, 92_360, 123_080, 122_880, 30_720, 61_440]),
        ("PACK-4", ["-s", "100KiB", *COLLAPSE], [123_080, 122_880, 184_520, 600]),
    ],
)
def test_pack_2_to_4(id: str, words: list[str], sizes: list[int], run: Run, f1: Path) -> None:
    """Ex-PACK-2, 3, 4: full names; directories bound shards, or pass their rest to the parent."""
    shards = layout(run, f1, "--key", "full_name", *words)
    assert [shard.bytes for shard in shards] == sizes
    assert sorted(name for shard in shards for name in shard.entries) == sorted(F1)
    if id == "PACK-4":
        folders = [sorted({name.rpartition("/")[0] for name in shard.entries}) for shard in shards]
        assert folders == [
            [f"{T}n00000369"],
            [f"{V}n00000333"],
            [f"{T}n00000333", f"{V}n00000333", f"{V}n00000369"],
            [f"{A}n00000333", f"{A}n00000369"],
        ]


FIVE = {"a/1.jpg": 40 * KIB, "b/1.jpg": 40 * KIB, "b/2.jpg": 40 * KIB, "b/3.jpg": 40 * KIB, "c/1.jpg": 10 * KIB}
NESTED = dict.fromkeys(("p/q/1.jpg", "p/q/2.jpg", "p/r/1.jpg", "p/3.jpg", "s/1.jpg"), 30 * KIB)


@each_row(
    ("id", "files", "words", "expected"),
    [
        ("PACK-5", FIVE, ISHARD, ["a/1", "b/1 b/2 b/3", "c/1"]),
        ("PACK-5", FIVE, COLLAPSE, ["b/1 b/2 b/3", "a/1 c/1"]),
        ("PACK-6", NESTED, COLLAPSE, ["p/q/1 p/q/2 p/r/1 p/3", "s/1"]),
        ("PACK-6", NESTED, ISHARD, ["p/q/1 p/q/2", "p/r/1", "p/3", "s/1"]),
    ],
)
def test_pack_5_and_6(
    id: str, files: dict[str, int], words: list[str], expected: list[str], run: Run, here: Path
) -> None:
    """Ex-PACK-5, 6: sizes are counted once."""
    shards = layout(run, grow(here / "tree", files), "--key", "full_name", "-s", "100KiB", *words)
    assert [" ".join(shard.keys) for shard in shards] == expected


@each_row(
    ("size", "sizes"),
    [("1MiB", [("n00000333 n00000369", 431_080)]), ("200KiB", [("n00000333", 246_160), ("n00000369", 184_920)])],
)
def test_pack_7(size: str, sizes: list[tuple[str, int]], run: Run, f1: Path) -> None:
    """Ex-PACK-7: an expression makes two samples of 12 files."""
    shards = layout(run, f1, "--key", DIRECTORY, "-s", size, *ISHARD)
    assert [(" ".join(shard.keys), shard.bytes) for shard in shards] == sizes
    assert [len(names) for shard in shards for _, names in shard.samples] == [12, 12]


# ---- 2.6 sizes

HUNDRED = {f"{number}.bin": 100 for number in range(7)}


@each_row(
    ("id", "files", "words", "counts"),
    [
        ("SIZE-1", dict.fromkeys((f"{n:02}.bin" for n in range(12)), 1), ["-c", "10"], [10, 2]),
        ("SIZE-2", {"a.bin": 1, "b.bin": 16_777_216, "c.bin": 1}, ["-s", "16MiB"], [2, 1]),
        ("SIZE-2", {"a.bin": 16_777_215, "b.bin": 1, "c.bin": 1}, ["-s", "16MiB"], [2, 1]),
        ("SIZE-3", {"a.bin": 3999, "b.bin": 1, "c.bin": 1}, ["-s", "4KB"], [2, 1]),
        ("SIZE-4", {"a.bin": 1_572_863, "b.bin": 1, "c.bin": 1}, ["-s", "1.5MiB"], [2, 1]),
        ("SIZE-9", HUNDRED, ["-c", "3"], [3, 3, 1]),
        ("IS-SIZE-6", dict.fromkeys(("a.x", "b.x", "c.x", "d.x", "e.x"), 0), ["-c", "2"], [2, 2, 1]),
    ],
)
def test_size(id: str, files: dict[str, int], words: list[str], counts: list[int], run: Run, here: Path) -> None:
    """Ex-SIZE-*: sizes in all spellings."""
    root = here / "tree"
    root.mkdir()
    for name, size in files.items():
        with (root / name).open("wb") as file:
            file.truncate(size)
    shards = layout(run, root, *words, "--size-rule", "content")
    assert [len(shard.samples) for shard in shards] == counts


def test_size_8(run: Run, f1: Path) -> None:
    """Ex-SIZE-8: with four samples each the shards are those of Ex-PACK-1."""
    by_count = layout(run, f1, "--key", "base_file_name", "-c", "4", *ISHARD)
    assert by_count == layout(run, f1, "--key", "base_file_name", "-s", "120KiB", *ISHARD)
    assert [len(shard.samples) for shard in by_count] == [4, 4, 4, 2]


@each_row(
    ("id", "text", "hint"),
    [
        ("SIZE-1", "10", "was -c 10 meant?"),
        ("SIZE-5", "100B", "was -c 100B meant?"),
        ("SIZE-6", "9300000000G", None),
        ("SIZE-7", "16 MiB", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)"),
        ("SIZE-7", "1PB", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)"),
        ("SIZE-7", "abc", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)"),
        ("SIZE-7", "MiB", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)"),
        ("IS-SIZE-6", "0", None),
        ("IS-SIZE-6", "-5", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)"),
    ],
)
def test_no_size(id: str, text: str, hint: str | None, run: Run) -> None:
    """Ex-SIZE-5, 6, 7: a number without a unit is not a size of a shard, and neither is a typing error."""
    lines = run("shard", "nowhere", "-s", text, exit=2).lines
    assert text in lines[0]
    assert lines[1:] == ([] if hint is None else [f"hint: {hint}"])


# ---- 2.7 templates


@each_row(
    ("id", "template", "words", "names", "count"),
    [
        ("TPL-a", "prefix-{0000..4096..8}-suffix", [], "prefix-0000-suffix prefix-0008-suffix prefix-0016-suffix", 513),
        ("TPL-b", "prefix-%06d-suffix", [], "prefix-000000-suffix prefix-000001-suffix prefix-000002-suffix", None),
        (
            "TPL-c",
            "prefix-@00001-gap-@100-suffix",
            [],
            "prefix-00000-gap-000-suffix prefix-00000-gap-001-suffix prefix-00000-gap-002-suffix",
            202,
        ),
        ("TPL-d", "pre-{0000..50..8}-suf", [], "pre-00-suf pre-08-suf pre-16-suf", 7),
        (
            "TPL-e",
            "prefix-{0010..0013..2}-gap-{1..2}-suffix",
            [],
            "prefix-0010-gap-1-suffix prefix-0010-gap-2-suffix prefix-0012-gap-1-suffix",
            4,
        ),
        (
            "TPL-f",
            "prefix-{0010..0013..2}-gap-{1..2..3}-suffix",
            [],
            "prefix-0010-gap-1-suffix prefix-0012-gap-1-suffix",
            2,
        ),
        ("TPL-g", "file:{1..02}}", [], "1} 2}", 2),
        ("TPL-h", "%00d", [], "0 1 2", None),
        ("TPL-i", "plain", [], "plain-000000 plain-000001 plain-000002", None),
    ],
)
def test_template(
    id: str, template: str, words: list[str], names: str, count: int | None, run: Run, here: Path
) -> None:
    """Ex-TPL-a to i: the first names, with a suffix added if there is none, and their number."""
    root = grow(here / "tree", [f"{n}.txt" for n in range(len(names.split()))])
    shards = layout(run, root, "-c", "1", "-o", template, *words)
    assert [shard.name for shard in shards] == [f"{name}.tar" for name in names.split()]
    assert parse_template(template, "at" if words else "auto").count == count


def test_template_too_few(run: Run, f1: Path) -> None:
    """TPL-7, TPL-d: seven names for fourteen samples fail before anything is written."""
    ran = run("shard", f1, "--key", "base", "-c", "1", "-o", "pre-{0000..50..8}-suf", exit=1)
    assert "too few names: the template has 7 names" in ran.lines[0]
    assert [*Path.cwd().iterdir()] == []


@each_row(
    "template",
    [
        "{}",
        "{{}}",
        "{{1..2}}",
        "{1..2{3..4}}",
        "p-{002..001}",
        "p-{1..9..-1}",
        "",
        "*",
        "%6d",
        "%x",
        "a-{a..z}",
        "{1..02}}",
    ],
)
def test_template_bad(template: str, run: Run) -> None:
    """Ex-TPL-j: an invalid template ends the run before the listing; that of TPL-g as well, without file:."""
    run("shard", "nowhere", "-o", template, exit=2)


@each_row("template", ["p-@@10", "p-@-@1"])
def test_template_bad_at(template: str, run: Run) -> None:
    """Ex-TPL-j: an @ without digits where others number."""
    run("shard", "nowhere", "-o", template, exit=2)


# ---- 2.8 suffixes


@each_row(
    ("words", "name"),
    [
        (["-o", "s-%d.tar"], "s-0.tar"),
        (["-o", "s-%d.zip"], "s-0.zip"),
    ],
)
def test_ext(words: list[str], name: str, run: Run, f1: Path) -> None:
    """2.8, TPL-8: a suffix is added to names that have none."""
    assert [shard.name for shard in layout(run, f1, *words)] == [name]


# ---- 2.9 required fields

EXTENSIONS = ["1.jpg", "1.json", "1.tmp", "2.jpg", "3.jpg", "3.json"]


@each_row(
    ("action", "fields", "names"),
    [
        ("keep", ".jpg,.json", EXTENSIONS),
        ("ignore", "jpg, json", EXTENSIONS),
        ("warn", ".jpg,.json", EXTENSIONS),
        ("warn", "jpg, json", EXTENSIONS),
        ("warn", "JPG,JSON,jpg", EXTENSIONS),
        ("exclude", "jpg, json", ["1.jpg", "1.json", "3.jpg", "3.json"]),
    ],
)
def test_required(action: str, fields: str, names: list[str], run: Run, here: Path) -> None:
    """2.9, the table: samples that are kept; fields are named with or without dots (Ex-EXT-4), in any case."""
    root = grow(here / "tree", EXTENSIONS)
    [shard] = layout(run, root, "--require", fields, "--on-missing-field", action, *ISHARD)
    assert shard.entries == names
    ran = run("shard", root, "--require", fields, "--on-missing-field", action, "--dry-run")
    warned = [line for line in ran.lines if line.startswith("tarkit: warning: sample")]
    assert warned == (
        [
            "tarkit: warning: sample '1' has '1.tmp', a field that --require does not name",
            "tarkit: warning: sample '2' has no json",
        ]
        if action == "warn"
        else []
    )


def test_required_abort(run: Run, here: Path) -> None:
    """2.9, the table: the first sample with a field too many or too few ends the run, and nothing is written."""
    root = grow(here / "tree", EXTENSIONS)
    for words in ([], ["--on-missing-field", "abort"], ["--on-missing-field", "error"]):
        ran = run("shard", root, "--require", ".jpg,.json", *words, exit=1)
        assert ran.lines[-2] == ("tarkit: sample '1' has '1.tmp', a field that --require does not name [missing-field]")
    assert [path.name for path in Path.cwd().iterdir()] == ["tree"]


@each_row("words", [["--require", ".a,,.b"], ["--require", ""], ["--require", "a", "--on-missing-field", "x"]])
def test_required_bad(words: list[str], run: Run) -> None:
    """IS-EXT-1, 2: an empty field, an unknown action."""
    run("shard", "nowhere", *words, exit=2)


def test_ext_2(run: Run, f1: Path) -> None:
    """Ex-EXT-2: six samples with annotation and picture, and no other field."""
    words = ["--require", ".JPEG,.xml", "--on-missing-field", "exclude", "-s", "1MiB", *ISHARD]
    [shard] = layout(run, f1, "--key", "base_file_name", *words)
    numbers = ["n00000333_01", "n00000333_02", *(f"n00000369_0{n}" for n in "1234")]
    assert (shard.keys, shard.bytes) == (numbers, 184_920)
    assert {name.rpartition(".")[2] for name in shard.entries} == {"xml", "JPEG"}
    assert len(shard.entries) == 12


def test_ext_3(run: Run, here: Path) -> None:
    """Ex-EXT-3: a second file of one field is neither an extra nor a missing field."""
    root = grow(here / "tree", ["t/1.jpg", "v/1.jpg", "t/1.json"])
    words = ["--require", ".jpg,.json", "--on-missing-field", "exclude", *ISHARD]
    [shard] = layout(run, root, "--key", "base", *words)
    assert shard.entries == ["t/1.jpg", "t/1.json", "v/1.jpg"]


def test_compound_extensions(run: Run, here: Path) -> None:
    """IS-EXT-1: `.seg.png`, if either dot ends the key."""
    root = grow(here / "tree", ["a.seg.png", "b.png"])
    words = ["--require", ".seg.png", "--on-missing-field", "exclude"]
    assert [shard.entries for shard in layout(run, root, *words)] == [["a.seg.png"]]
    assert [shard.entries for shard in layout(run, root, *words, "--last-dot")] == [["a.seg.png"]]


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


def test_ekm_3(run: Run, here: Path) -> None:
    """Ex-EKM-3: two patterns of one category are no conflict."""
    root = grow(here / "tree", ["abc.jpg"])
    [shard] = layout(run, root, "--map", '{"x-%d.tar": ["a.*", "ab.*"]}')
    assert (shard.name, shard.entries) == ("x-0.tar", ["abc.jpg"])


def test_ekm_4(run: Run, f1: Path) -> None:
    """Ex-EKM-4: an invalid expression."""
    assert "'(.*'" in run("shard", f1, "--map", '{"x-%d.tar": ["(.*"]}', exit=2).lines[0]


def test_ekm_5(run: Run, here: Path) -> None:
    """Ex-EKM-5: a category with too few names."""
    root = grow(here / "tree", {"a1.x": KIB, "a2.x": KIB})
    ran = run("shard", root, "--map", '{"a-{0..0}.tar": ["a"]}', "-s", "1KiB", "--size-rule", "content", exit=1)
    assert "too few names: the template has 1 name" in ran.lines[0]


# ---- 2.11 order


@each_row("word", ["alpha:dec", "-key", "alphanumeric:dec"])
def test_sort_1(word: str, run: Run, f1: Path) -> None:
    """Ex-SORT-1: keys in descending order, four in each shard; samples stay whole."""
    shards = layout(run, f1, "--key", "base_file_name", "-c", "4", "--sort", word, *ISHARD)
    keys = [*(f"n00000369_0{n}" for n in "4321"), *(f"n00000333_0{n}" for n in "321")]
    keys += [
        f"ILSVRC2012_val_{n}"
        for n in ("00021981", "00016182", "00012920", "00007175", "00006595", "00001851", "00001436")
    ]
    assert [shard.keys for shard in shards] == [keys[:4], keys[4:8], keys[8:12], keys[12:]]
    assert sorted(name for shard in shards for name in shard.entries) == sorted(F1)


@each_row("seed", [0, 1, 42])
def test_sort_2(seed: int, run: Run, here: Path) -> None:
    """Ex-SORT-2: an order by a seed, that of `tarkit shuffle`."""
    names = [*"abcdefgh"]
    root = grow(here / "tree", [f"{name}.txt" for name in names])
    expected = [name for _, name in sorted(zip(random_keys(seed), names, strict=False))]
    for _ in range(2):
        [shard] = layout(run, root, "--sort", f"shuffle:{seed}")
        assert shard.keys == expected


@each_row("word", ["shuffle:zz", "alpha:up", "random", "shuffle:", "shuffle:-1", "key:dec"])
def test_sort_3(word: str, run: Run) -> None:
    """Ex-SORT-3: an invalid order."""
    assert "--sort" in run("shard", "nowhere", "--sort", word, exit=2).lines[0]


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
    from tarkit.views.text import human_size

    assert human_size(size) == text


# ---- 2.13 totals, 2.14 errors


def test_prog(run: Run, f1: Path) -> None:
    """2.13: the total of F1."""
    ran = run("shard", f1, "--dry-run", "--progress", "--report", "r.json")
    report = json.loads(Path("r.json").read_bytes())
    assert (report["bytes"], report["files"], report["samples"]) == (431_080, 24, 20)
    assert any("shard: 20 samples, 431080 bytes, 1 shard" in line for line in ran.lines)


def test_err_empty(run: Run, here: Path) -> None:
    """2.14: an empty source is no error, but a message."""
    (here / "tree").mkdir()
    ran = run("shard", here / "tree", "-c", "1", "--dry-run")
    assert (ran.stdout, ran.lines) == (b"", ["tarkit: no sample, so no shard"])


def test_err_source(run: Run) -> None:
    """2.14: no source, a missing one, and one that is not a directory."""
    assert run("shard", exit=2).lines[0] == "tarkit: no directory: tarkit shard DIR"
    assert run("shard", "nowhere", exit=1).lines[0] == "tarkit: nowhere: No such file or directory"
    Path("a.tar").write_bytes(b"")
    assert run("shard", "a.tar", exit=2).lines[0] == "tarkit: a.tar is not a directory"
