"""webdataset 0.2.86, the last version with wids: both ways, and wids over index files of tarkit.

It is installed beside webdataset 1.0: pip install --no-deps --target build/webdataset-0.2.86 webdataset==0.2.86
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests.conftest import GNU, PAX, USTAR, Archive, Content, Link, Run, body
from tests.interop._packages import WEBDATASET_0_2, needs, result

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def installed(here: Path) -> None:
    """Skip tests where webdataset 0.2.86, or what it needs, is not there."""
    needs("braceexpand", "numpy", "yaml", build=WEBDATASET_0_2)


READ = """
import sys, webdataset
assert webdataset.__version__ == "0.2.86"
def read(*paths):
    found = webdataset.WebDataset(list(paths), shardshuffle=False)
    return [(each["__key__"], {k: v for k, v in each.items() if not k.startswith("__")}) for each in found]
"""


def ours(*paths: str) -> list[tuple[str, dict[str, bytes]]]:
    """Return keys and fields as tarkit reads them."""
    return [(sample.key, dict(sample)) for sample in tarkit.open(list(paths))]


SAMPLES = [
    ("a", {"jpg": b"1", "seg.png": b"2"}),
    ("d/b", {"json": b"{}"}),
    ("c.1/x", {"tar.gz": b""}),
    ("n" * 90 + "/" + "m" * 150, {"x": b"long"}),
    ("é/ü", {"ß": b"1"}),
]


def test_it_reads_what_tarkit_writes(here: Path) -> None:
    """Keys and fields are those that were written, compressed or not."""
    paths = [f"out.{suffix}" for suffix in ("tar", "tar.gz", "tgz", "tar.bz2", "tar.xz")]
    for path in paths:
        with tarkit.TarWriter(path) as out:
            for key, fields in SAMPLES:
                out.write(key, fields)
    program = READ + "print([read(path) for path in sys.argv[1:]])"
    found = result(program, *paths, build=WEBDATASET_0_2)
    assert found == [ours(path) for path in paths] == [SAMPLES] * len(paths)


WRITE = """
import sys, webdataset
samples = [{"__key__": f"d/{n}", "txt": "ß" * (n + 1), "cls": n, "json": {"n": n}, "B.TXT": b"b"} for n in range(10)]
with webdataset.TarWriter("one.tar", mtime=5) as writer:
    for each in samples:
        writer.write(each)
with webdataset.TarWriter("one.tar.gz") as writer:
    writer.write(samples[0])
with webdataset.TarWriter("long.tar") as writer:
    writer.write({"__key__": "k" * 120, "txt": "x"})
with webdataset.ShardWriter("s-%d.tar", maxcount=4, mtime=5, verbose=0) as writer:
    for each in samples:
        writer.write(each)
print(None)
"""


def test_tarkit_reads_what_it_writes(run: Run) -> None:
    """Samples, values and headers are those that it has written; split makes the same shards."""
    result(WRITE, build=WEBDATASET_0_2)
    expected = [
        (f"d/{n}", {"B.TXT": b"b", "cls": b"%d" % n, "json": b'{"n": %d}' % n, "txt": "ß".encode() * (n + 1)})
        for n in range(10)
    ]
    assert ours("one.tar") == expected
    assert ours("one.tar.gz") == expected[:1]
    assert ours("long.tar") == [("k" * 120, {"txt": b"x"})]
    assert ours(*(f"s-{n}.tar" for n in range(3))) == expected
    assert run("cat", "one.tar").stdout == Path("one.tar").read_bytes()
    run("split", "one.tar", "-c", "4", "-o", "t-%d.tar")
    for n in range(3):
        assert body(Path(f"t-{n}.tar").read_bytes()) == body(Path(f"s-{n}.tar").read_bytes())


def test_equal_keys_at_the_border_of_shards(run: Run, archive: Archive) -> None:
    """It joins the last sample of a shard with the first of the next; tarkit does not, and `check` says so."""
    shards = [archive({"a.jpg": b"1"}, "1.tar"), archive({"a.txt": b"2", "b.jpg": b"3"}, "2.tar")]
    equal = archive({"a.jpg": b"2"}, "3.tar")
    program = (
        READ
        + """
try:
    read(sys.argv[1], sys.argv[3])
except ValueError as error:
    print((read(*sys.argv[1:3]), str(error)))
"""
    )
    found, refused = result(program, *shards, equal, build=WEBDATASET_0_2)
    assert found == [("a", {"jpg": b"1", "txt": b"2"}), ("b", {"jpg": b"3"})]
    assert "duplicate file name" in refused
    assert ours(*shards) == [("a", {"jpg": b"1"}), ("a", {"txt": b"2"}), ("b", {"jpg": b"3"})]
    assert "[joined-sample]" in run("check", *shards, exit=1).stdout.decode()


# ---- wids


WIDS = """
import sys, wids
class Bytes(dict): pass
def contents(sample):
    return {name: value.read() if hasattr(value, "read") else value for name, value in sample.items()}
def read(path):
    data = wids.ShardListDataset(path, cache_dir="cache-" + path.replace("/", "-"), transformations=[contents])
    return [(each["__key__"], {k[1:]: v for k, v in each.items() if k[0] == "."}) for each in map(data.__getitem__, range(len(data)))]
"""  # noqa: E501


def read_by_wids(path: str, **settings: Any) -> Any:
    """Return keys and fields as wids reads them by number, from the shards that an index lists."""
    needs("torch")
    return result(WIDS + "print(repr(read(sys.argv[1])))", path, build=WEBDATASET_0_2, **settings)


def test_wids_reads_shards_by_an_index_of_tarkit(here: Path) -> None:
    """The number of a sample is that of `Dataset.indexed`."""
    with tarkit.ShardWriter("s-%d.tar", count=4) as out:
        for n in range(10):
            out.write(f"d.1/{n}", {"txt": f"ß{n}", "seg.png": bytes(n), "cls": n})
    assert tarkit.index("s-*.tar", "wids", md5=True) == ["shardindex.json"]
    expected = [(sample.key, dict(sample)) for sample in tarkit.open("s-*.tar").indexed()]
    assert len(expected) == 10
    assert read_by_wids("shardindex.json") == expected


WIDSINDEX = """
import sys
from wids import wids_index
made = wids_index.main_create.__code__  # it copies each shard to one place for all users of the machine
constants = tuple("copied.tar" if each == "/tmp/shard.tar" else each for each in made.co_consts)
wids_index.main_create.__code__ = made.replace(co_consts=constants)
wids_index.main_create(wids_index.argparse.Namespace(output="theirs.json", name="s", base=None, info=None, files=sys.argv[1:]))
print(None)
"""  # noqa: E501


def test_widsindex_writes_the_index_of_tarkit(here: Path) -> None:
    """The lists are equal; `index --verify` and wids take each of them."""
    needs("torch")
    result(WRITE, build=WEBDATASET_0_2)
    result(WIDSINDEX, "s-2.tar", "s-{0..1}.tar", build=WEBDATASET_0_2)
    tarkit.index("s-*.tar", "wids", md5=True)
    assert json.loads(Path("theirs.json").read_text()) == json.loads(Path("shardindex.json").read_text())
    Path("theirs.json").rename("shardindex.json")
    assert tarkit.verify_index("s-*.tar", "wids", md5=True) == []
    assert [key for key, _ in read_by_wids("shardindex.json")] == [f"d/{n}" for n in range(10)]
    facts = json.loads(Path("shardindex.json").read_text())
    facts["shardlist"][2]["nsamples"] = 3
    Path("shardindex.json").write_text(json.dumps(facts))
    fault = "shardindex.json: s-2.tar: 3 samples in the index, 2 in the shard"
    assert tarkit.verify_index("s-*.tar", "wids") == [fault]


LONG = "n" * 60 + "/" + "m" * 60


SEEN: list[tuple[list[tuple[str, Content]], int, str]] = [
    ([("d", None), ("d/a.x", b"1"), ("d/a.y", b"2"), ("README", b""), ("b.x", b"3")], GNU, "d/a:x,y b:x"),
    ([("__index__/a.x", b"1"), ("b.x", b"")], GNU, "__index__/a:x b:x"),
    ([("A.JPG", b"1"), ("é.x", b"")], GNU, "A:JPG é:x"),
    # no name in a header of its own is read, no first part of a name, and no link
    ([(f"{LONG}.x", b"1"), ("b.x", b"")], USTAR, f"{'m' * 60}:x b:x"),
    ([("a.x", b"1"), ("é.x", b"2")], PAX, "a:x ?:x"),
    ([("a.x", b"1"), ("a.y", Link("a.x")), ("a.z", Link("a.x", tarfile.SYMTYPE))], GNU, "a:x"),
    # names with a dot and without a key are samples
    ([(".hidden", b"1"), ("d/.x.y", b"2"), ("d.1/README", b"3"), ("b.x", b"")], GNU, ":hidden d/:x.y d:1/README b:x"),
]


def test_what_wids_sees_in_a_shard(here: Path, archive: Archive) -> None:
    """Where names are plain the samples are those of tarkit; where they are not, `tarkit index` refuses the shard."""
    needs("torch")
    for place, (members, format, read) in enumerate(SEEN):
        path = archive(members, f"{place}/in.tar", format=format)
        if format == GNU and "hidden" not in read:
            assert tarkit.index(path, "wids") == [f"{place}/shardindex.json"]
            continue
        with pytest.raises(tarkit.Unsupported, match="wids"):
            tarkit.index(path, "wids")
        shards = [{"url": "in.tar", "nsamples": len(read.split())}]
        Path(f"{place}/shardindex.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    program = WIDS + "print([read(path) for path in sys.argv[1:]])"
    paths = [f"{place}/shardindex.json" for place in range(len(SEEN))]
    for (_, _, read), found in zip(SEEN, result(program, *paths, build=WEBDATASET_0_2), strict=True):
        assert " ".join(f"{key}:{','.join(fields)}" for key, fields in found) == read
