"""webdataset 1.0.x: what it writes tarkit reads, the other way round, and where the two differ on purpose.

The ids are those of the questions below. Tests of a part that other folders test with webdataset are named here.

8.1 Keys and fields of a shard of tarkit: here;
    tests/samples/test_reader.py::test_split_name_is_webdatasets
    tests/commands/test_shard_plan.py::test_read_by_webdataset
8.2 A shard by TarWriter, and its headers: here
8.3 Values, by the encoders of TarWriter and by `decode`: here;
    tests/api/test_decode_webdataset.py::test_what_webdataset_encodes
    tests/api/test_decode_webdataset.py::test_what_webdataset_decodes
8.4 Fields and keys that are repeated: here;
    tests/commands/test_check_target.py::test_webdataset_agrees
8.5 Where ShardWriter ends a shard: here
8.6 Names of shards: here;
    tests/stores/test_rewrite.py::test_lists_and_variables_are_those_of_webdataset
    tests/streams/test_location.py::test_braces_are_counted_as_braceexpand_expands_them
8.7 The shuffle buffer:
    tests/commands/test_shuffle.py::test_buffer
    tests/samples/test_pipeline.py::test_shuffle_like_webdataset
    tests/commands/test_shuffle.py::test_buffer
8.7 Shares of nodes and workers: here;
    tests/commands/test_stats.py::test_shares_are_those_of_webdataset
8.7 Rules that rewrite URLs:
    tests/stores/test_rewrite.py::test_rules_are_those_of_webdataset
8.7 Specifications of several data sets:
    tests/mixing/test_shards.py::test_shards_and_their_order_are_those_of_webdataset
8.8 Entries that webdataset hides: here
"""

from __future__ import annotations

import ast
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from braceexpand import braceexpand

import tarkit
from tarkit.streams.location import expand_inputs
from tests._tools import each_row
from tests.conftest import Archive, Content, Link, Run, body, entries, keys, tar

ROOT = Path(__file__).parents[2]
OWN = ("__key__", "__url__", "__local_path__")  # items that webdataset adds to a sample


@pytest.fixture
def wds() -> Any:
    """Return the library, imported without torch."""
    return pytest.importorskip("webdataset", reason="webdataset is not installed")


def samples_of(wds: Any, *paths: str | Path, decode: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return keys and fields as webdataset reads them."""
    found = wds.WebDataset([str(path) for path in paths], shardshuffle=False, empty_check=False)
    return [
        (each["__key__"], {k: v for k, v in each.items() if k not in OWN})
        for each in (found.decode() if decode else found)
    ]


def ours(*paths: str | Path) -> list[tuple[str, dict[str, bytes]]]:
    """Return keys and fields as tarkit reads them."""
    return [(sample.key, dict(sample)) for sample in tarkit.open([str(path) for path in paths])]


def test_the_table_names_tests_that_exist() -> None:
    """Each test that the docstring of this module names is in its module."""
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", __doc__ or "")
    assert len(named) == (__doc__ or "").count("::") > 5
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, f"{path}::{name}"


# ---- 8.1: keys and fields


ROWS = ["a.jpg", "a.json", "a.seg.png", "d/b.jpg", "d/b.seg.png", "c.1/x.json", "c.1/x.tar.gz", "./e.txt"]
EXPECTED = [
    ("a", {"jpg": b"a.jpg", "json": b"a.json", "seg.png": b"a.seg.png"}),
    ("d/b", {"jpg": b"d/b.jpg", "seg.png": b"d/b.seg.png"}),
    ("c.1/x", {"json": b"c.1/x.json", "tar.gz": b"c.1/x.tar.gz"}),
    ("./e", {"txt": b"./e.txt"}),
]


def test_8_1_webdataset_reads_what_commands_write(wds: Any, run: Run) -> None:
    """webdataset finds the same keys and fields in archives by create, split and cat."""
    run("create", "-o", "in.tar", stdin="".join(f"{name}\ttext:{name}\n" for name in ROWS).encode())
    assert samples_of(wds, "in.tar") == ours("in.tar") == EXPECTED
    run("split", "in.tar", "-c", "1", "-o", "out-%d.tar")
    assert [samples_of(wds, f"out-{number}.tar") for number in range(4)] == [[sample] for sample in EXPECTED]
    run("cat", "out-{0..3}.tar", "-f", "x:jpg,txt,json", "--rekey", "#", "-o", "out.tar.gz")
    assert samples_of(wds, "out.tar.gz") == [
        (f"{number:09d}", {"x": content})
        for number, content in enumerate([b"a.jpg", b"d/b.jpg", b"c.1/x.json", b"./e.txt"])
    ]


@each_row("suffix", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
def test_8_1_webdataset_reads_what_writers_write(suffix: str, wds: Any, here: Path) -> None:
    """The same for the writers of the Python API, with long names and names that are not ASCII, compressed or not."""
    long = "n" * 90 + "/" + "m" * 150
    with tarkit.TarWriter(f"out.{suffix}") as out:
        for key, fields in [*EXPECTED, (long, {"x": b""}), ("é/ü", {"ß": b"1"})]:
            out.write(key, fields)
    expected = [*EXPECTED, (long, {"x": b""}), ("é/ü", {"ß": b"1"})]
    assert samples_of(wds, f"out.{suffix}") == ours(f"out.{suffix}") == expected


def test_8_1_case_of_fields(wds: Any, archive: Archive) -> None:
    """webdataset converts fields to lower case; tarkit leaves them, and finds them in any case."""
    path = archive({"A.JPG": b"1", "A.Seg.png": b"2", "a.txt": b"3"})
    assert samples_of(wds, path) == [("A", {"jpg": b"1", "seg.png": b"2"}), ("a", {"txt": b"3"})]
    assert ours(path) == [("A", {"JPG": b"1", "Seg.png": b"2"}), ("a", {"txt": b"3"})]
    assert [list(sample) for sample in tarkit.open(path).select("x:jpg,txt")] == [["x"], ["x"]]


def test_8_1_hidden_files_and_empty_fields(wds: Any, archive: Archive) -> None:
    """A hidden file in a directory is a sample there, and no sample here; an empty field is one in both."""
    path = archive({"a/.hidden": b"1", ".top": b"2", "x.": b"3", "y..z": b"4", "README": b"5", "d.1/README": b"6"})
    assert samples_of(wds, path) == [("a/", {"hidden": b"1"}), ("x", {"": b"3"}), ("y", {".z": b"4"})]
    assert ours(path) == [("x", {"": b"3"}), ("y", {".z": b"4"})]


# ---- 8.2: TarWriter


def test_8_2_a_shard_by_tarwriter_is_copied_unchanged(wds: Any, run: Run) -> None:
    """A shard by TarWriter is copied, split and sorted header for header (docs/formats/webdataset.md, TarWriter)."""
    with wds.TarWriter("in.tar", mtime=1234567890, encoder=False) as writer:
        for number in range(5):
            writer.write({"__key__": f"d/{number}", "txt": b"x" * (number + 1), "B.TXT": b"b", "cls": b"1"})
    data = Path("in.tar").read_bytes()
    assert run("cat", "in.tar").stdout == data
    run("split", "in.tar", "-c", "2", "-o", "out-%d.tar")
    assert b"".join(body(Path(f"out-{number}.tar").read_bytes()) for number in range(3)) == body(data)
    assert body(run("sort", "in.tar").stdout) == body(data)
    size = len(body(data)) // 5
    back = run("sort", "in.tar", "--reverse").stdout
    assert [body(back)[at : at + size] for at in range(0, 5 * size, size)] == [
        body(data)[at : at + size] for at in range(4 * size, -1, -size)
    ]
    assert [entry.path for entry in tarkit.open("in.tar").entries()][:3] == ["d/0.B.TXT", "d/0.cls", "d/0.txt"]
    with tarfile.open("out-0.tar") as file:
        info = next(iter(file))
        assert (info.mode, info.uname, info.gname, info.mtime) == (0o444, "bigdata", "bigdata", 1234567890)


def test_8_2_headers_of_both_writers(wds: Any, here: Path) -> None:
    """Headers of tarkit differ in mode, owner, group and time alone; it keeps the order of the fields."""
    with wds.TarWriter("theirs.tar", mtime=5, encoder=False) as writer:
        writer.write({"__key__": "d/1", "txt": b"x", "cls": b"1"})
    with tarkit.TarWriter("ours.tar") as out:
        out.write("d/1", {"txt": b"x", "cls": b"1"})

    def headers(path: str) -> list[tuple[object, ...]]:
        with tarfile.open(path) as file:
            return [(each.name, each.type, each.size, each.uid, each.gid, each.pax_headers) for each in file]

    def owners(path: str) -> set[tuple[object, ...]]:
        with tarfile.open(path) as file:
            return {(each.mode, each.uname, each.gname, each.mtime) for each in file}

    assert headers("ours.tar") == headers("theirs.tar")[::-1]
    assert owners("theirs.tar") == {(0o444, "bigdata", "bigdata", 5)}
    assert owners("ours.tar") == {(0o644, "", "", 0)}


@each_row("compress", [True, "gz", "bz2", "xz", False, None])
def test_8_2_compressed_shards_of_tarwriter(compress: Any, wds: Any, here: Path) -> None:
    """The codec is known by content, whatever the name says."""
    with wds.TarWriter("in.tar", compress=compress, encoder=False) as writer:
        writer.write({"__key__": "a", "txt": b"x"})
    assert ours("in.tar") == [("a", {"txt": b"x"})]


@each_row("key", ["k" * 120, "d" * 120 + "/" + "k" * 130, "é" * 60])
def test_8_2_long_names(key: str, wds: Any, here: Path) -> None:
    """Both write names that do not fit a header of USTAR with a PAX header, and both read them."""
    with wds.TarWriter("theirs.tar", encoder=False) as writer:
        writer.write({"__key__": key, "txt": b"x"})
    with tarkit.TarWriter("ours.tar") as out:
        out.write(key, {"txt": b"x"})
    for path in ("theirs.tar", "ours.tar"):
        assert samples_of(wds, path) == ours(path) == [(key, {"txt": b"x"})]
    with tarfile.open("theirs.tar") as file:
        assert next(iter(file)).pax_headers.get("path") == f"{key}.txt"


def test_8_2_metadata(wds: Any, here: Path) -> None:
    """A field `__url__`, which TarWriter writes with `keep_meta`, is read by tarkit, and not by webdataset."""
    with wds.TarWriter("in.tar", keep_meta=True) as writer:
        writer.write({"__key__": "a", "txt": "x", "__url__": "s.tar"})
    assert ours("in.tar") == [("a", {"__url__": b"s.tar", "txt": b"x"})]
    with pytest.raises(ValueError, match="duplicate file name"):
        samples_of(wds, "in.tar")


# ---- 8.3: values


def test_8_3_plain_values_are_encoded_alike(wds: Any, here: Path) -> None:
    """Text is UTF-8 and a number decimal text, whatever the field; in a field json text is not quoted."""
    with wds.TarWriter("theirs.tar", mtime=0) as writer:
        writer.write({"__key__": "a", "cls": 3.5, "index": 7, "json": "text", "txt": "ß"})
    with tarkit.TarWriter("ours.tar") as out:
        out.write("a", {"cls": 3.5, "index": 7, "json": "text", "txt": "ß"})
    assert ours("ours.tar") == ours("theirs.tar")
    assert ours("ours.tar")[0][1] == {"cls": b"3.5", "index": b"7", "json": b"text", "txt": "ß".encode()}


# ---- 8.4: repeated keys and fields


@each_row(
    ("members", "problem", "target", "read"),
    [
        ([("a.jpg", b""), ("b.jpg", b""), ("a.txt", b"")], "scattered-sample", 1, ["a jpg", "b jpg", "a txt"]),
        ([("a.jpg", b""), ("a.jpg", b"")], "duplicate-entry", 1, None),
        ([("a.jpg", b""), ("a.JPG", b"")], None, 1, None),
        ([("A.jpg", b""), ("a.txt", b"")], None, 0, ["A jpg", "a txt"]),
        ([("a.jpg", b""), ("a.txt", b"")], None, 0, ["a jpg,txt"]),
    ],
)
def test_8_4_repeated_names(
    members: list[tuple[str, Content]], problem: str | None, target: int, read: list[str] | None, wds: Any, run: Run
) -> None:
    """A key that comes back is a second sample there and an error here; a field that comes back is an error in both."""
    Path("in.tar").write_bytes(tar(members))
    said = run("check", "in.tar", "--json", exit=1 if problem else 0).stdout.decode()
    found = [json.loads(line) for line in said.splitlines()]
    assert {each["problem"] for each in found if each.get("level") == "error"} == ({problem} if problem else set())
    run("check", "in.tar", "--target", "webdataset", exit=target)
    if read is None:
        with pytest.raises(ValueError, match="duplicate file name"):
            samples_of(wds, "in.tar")
    else:
        assert [f"{key} {','.join(fields)}" for key, fields in samples_of(wds, "in.tar")] == read


def test_8_4_equal_keys_at_the_border_of_shards(wds: Any, run: Run, archive: Archive) -> None:
    """A sample ends with its shard, in webdataset 1.0 too."""
    shards = [archive({"a.jpg": b"1", "b.jpg": b"2"}, "1.tar"), archive({"b.jpg": b"3"}, "2.tar")]
    expected = [("a", {"jpg": b"1"}), ("b", {"jpg": b"2"}), ("b", {"jpg": b"3"})]
    assert samples_of(wds, *shards) == ours(*shards) == expected
    assert "[joined-sample]" in run("check", *shards, exit=1).stdout.decode()  # for webdataset 0.2 it is one sample


# ---- 8.5: limits of shards


SIZES = [1000, 1000, 500, 500, 3000, 1, 2999, 1, 1000, 1000]
BOTH = {"maxsize": 4000, "maxcount": 3}


@each_row("limits", [*({"maxcount": n} for n in (1, 3, 10)), *({"maxsize": n} for n in (512, 2500, 3000)), BOTH])
def test_8_5_shards_end_where_those_of_webdataset_do(limits: dict[str, int], wds: Any, run: Run) -> None:
    """split ends shards where ShardWriter does, by count and by size of the contents (docs/formats/webdataset.md)."""
    with wds.ShardWriter("wds-%d.tar", encoder=False, mtime=0, verbose=0, **limits) as writer:
        for number, size in enumerate(SIZES):
            writer.write({"__key__": str(number), "x": bytes(size // 2), "y": bytes(size - size // 2)})
    run("cat", *sorted(str(path) for path in Path().glob("wds-*")), "-o", "in.tar")
    names = {"maxcount": "-c", "maxsize": "-s"}
    options = [word for name, value in limits.items() for word in (names[name], str(value))]
    run("split", "in.tar", *options, "--size-rule", "content", "-o", "out-%d.tar")
    found = [[keys(path) for path in sorted(Path().glob(f"{name}-*"))] for name in ("out", "wds")]
    assert found[0] == found[1]
    if "maxsize" not in limits:
        with tarkit.ShardWriter("own-%d.tar", count=limits["maxcount"]) as shards:
            for number, size in enumerate(SIZES):
                shards.write(str(number), {"x": bytes(size)})
        assert [keys(path) for path in sorted(Path().glob("own-*"))] == found[0]
    assert len(found[0]) > 1 or limits == {"maxcount": 10}


def test_8_5_no_samples(wds: Any, run: Run) -> None:
    """ShardWriter leaves an empty shard if it is given no samples; tarkit none."""
    with wds.ShardWriter("wds-%d.tar", verbose=0):
        pass
    with tarkit.ShardWriter("own-%d.tar", count=1):
        pass
    assert [path.name for path in Path().glob("*-*.tar")] == ["wds-0.tar"]


# ---- 8.6: lists of shards


SPECS = "x-{000..012} x-{8..11} x-{08..11} {a..e}/{1..3} {a,b,c}-{0..1} x-{0..10..5} x-{5..1} x-{05..1..2}"
SPECS += " {a,b{0..2},{x,y}} {} {a} {,x} {-1..1} {e..a..2} {0..1}.tar::http://h/{2..3}"


@each_row("spec", [f"http://h/{word}.tar" for word in SPECS.split()])
def test_8_6_braces(spec: str, wds: Any) -> None:
    """Braces expand as the package braceexpand expands them, and so as in webdataset."""
    found = [location.text for location in expand_inputs([spec])]
    assert found == [name for each in spec.split("::") for name in braceexpand(each)]
    assert found == wds.shardlists.expand_urls(spec)


# ---- 8.7: shares


def test_8_7_shares_of_nodes_and_workers(wds: Any, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 shards node 1 of 3 gets 1, 4, 7 ...; its worker 1 of 2 gets 4, 10 and 16."""
    shards = [archive({f"{number:02}.x": b""}, f"{number:02}.tar") for number in range(20)]
    for name, value in {"RANK": 1, "WORLD_SIZE": 3, "WORKER": 1, "NUM_WORKERS": 2}.items():
        monkeypatch.setenv(name, str(value))
    theirs = wds.WebDataset(shards, shardshuffle=False, nodesplitter=wds.split_by_node)
    expected = ["04", "10", "16"]
    assert [sample["__key__"] for sample in theirs] == expected
    assert [key for key, _ in ours(*[*shards][1::3][1::2])] == expected


# ---- 8.8: entries that webdataset hides


def test_8_8_hidden_entries_survive(wds: Any, run: Run, archive: Archive) -> None:
    """cat, split and sort keep what webdataset skips; a condition on the key, and `check --fix`, leave it out."""
    members: list[tuple[str, Content]] = [("__index__", b"1"), ("__a__/b.x", b"2"), ("c.x", b"3"), ("d/__e__.x", b"4")]
    path = archive(members)
    hidden_by_both = [("c", {"x": b"3"}), ("d/__e__", {"x": b"4"})]
    assert samples_of(wds, path) == hidden_by_both
    assert ours(path) == [("__a__/b", {"x": b"2"}), *hidden_by_both]
    assert run("cat", path).stdout == tar(members)
    assert entries(run("sort", path).stdout) == members
    run("split", path, "-c", "2", "-o", "out-%d.tar")
    assert [each for number in range(2) for each in entries(f"out-{number}.tar")] == members
    assert samples_of(wds, "out-0.tar", "out-1.tar") == hidden_by_both
    assert ours(path)[1:] == [(s.key, dict(s)) for s in tarkit.open(path).match("^(?!__)")] == hidden_by_both
    run("check", path, "--fix", "fixed.tar", exit=None)
    assert entries("fixed.tar") == members[1:]


def test_8_8_links(wds: Any, run: Run, archive: Archive) -> None:
    """A copy keeps links. webdataset skips them; here a hard link has the content of its target, a soft one none."""
    links: list[tuple[str, Content]] = [("a.hard", Link("a.x")), ("a.soft", Link("a.x", tarfile.SYMTYPE))]
    members: list[tuple[str, Content]] = [("a.x", b"1"), *links, ("b.x", b"2")]
    path = archive(members)
    assert run("cat", path).stdout == tar(members)
    assert samples_of(wds, path) == [("a", {"x": b"1"}), ("b", {"x": b"2"})]
    sample, _ = tarkit.open(path)
    assert list(sample) == ["x", "hard", "soft"]
    assert sample["hard"] == b"1"
    with pytest.raises(tarkit.Problem, match="not a regular file"):
        sample["soft"]
