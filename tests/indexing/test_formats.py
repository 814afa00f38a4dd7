"""Layouts of index files: their exact bytes, their limits, and reading them back."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import struct
import tarfile
import time
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import Problem, Unsupported
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import FORMATS, LAYOUTS, InvalidIndex, index_path
from tarkit.indexing.scan import fill_indexes
from tarkit.indexing.wids import IndexedShard, encode_wids, read_wids
from tarkit.problems import Policy
from tarkit.streams.location import Location
from tests._tools import each_row
from tests.conftest import GNU, PAX, USTAR, Archive, Content, Link, Run, tar

SMALL: list[tuple[str, Content]] = [
    ("d", None),  # at 0
    ("d/a.jpg", b"A" * 600),  # header at 512, content at 1024
    ("d/README", b"r"),  # at 2048
    ("d/a.json", b"{}"),  # at 3072
    ("d/.hidden", b"h"),  # at 4096
    ("__meta__/b.cls", b"1"),  # at 5120
    ("c.seg.png", b""),  # at 6144, end marker at 6656
]

EXACT = {
    "dali": b"v1.2 3\njpg 1024 600 d/a.jpg json 3584 2 d/a.json\ncls 5632 1 __meta__/b.cls\nseg.png 6656 0 c.seg.png\n",
    "energon": struct.pack("=3Q", 512, 6144, 6656),
    "webshart": b'{"path": "in.tar", "filesize": 10240, "includes_image_geometry": false, "files": {\n'
    b'"d/a.jpg": {"offset": 1024, "length": 600},\n"d/a.json": {"offset": 3584, "length": 2},\n'
    b'"__meta__/b.cls": {"offset": 5632, "length": 1},\n"c.seg.png": {"offset": 6656, "length": 0}\n}}\n',
    "tsv": b"__key__\tfield\toffset\tsize\tentry\n"
    b"d/a\tjpg\t1024\t600\t512\nd/a\tjson\t3584\t2\t3072\n__meta__/b\tcls\t5632\t1\t5120\nc\tseg.png\t6656\t0\t6144\n",
}


def index(format: str, name: str = "in.tar", **policy: list[str]) -> bytes:
    """Return the index of a shard in the current directory."""
    [made], _ = fill_indexes(Location("path", name, name), [IndexFile(format, "")], Policy(**policy))
    return made.read()


@each_row("format", EXACT)
def test_exact_bytes(format: str, archive: Archive) -> None:
    """Regular files with a key are listed, with the offsets of their contents."""
    archive(SMALL)
    assert index(format) == EXACT[format]


@pytest.mark.slow
@each_row("seed", range(60))
def test_numbers_of_any_size_and_sign(seed: int, run: Run, archive: Archive) -> None:
    """An index whose numbers were replaced is not used, or gives what the archive has; it is never a traceback."""
    draw = random.Random(seed)
    format = draw.choice(("dali", "webshart", "tsv"))
    name = archive({f"{number}.x": b"%d" % number for number in range(30)})
    run("index", name, "--format", format)
    path = Path(index_path(format, name))
    large = (
        -(2**63) - 1,
        -(2**63),
        -1,
        2**62,
        2**63 - 1,
        2**63,
        2**64,
        10**40,
        "9" * 5000,
        "1e999",
        "Infinity",
        "0.5",
        0,
    )
    count = len(re.findall(rb"\b\d+\b", path.read_bytes()))
    changed = {draw.randrange(count): str(draw.choice(large)).encode() for _ in range(draw.randint(1, 9))}
    numbers = itertools.count()
    path.write_bytes(re.sub(rb"\b\d+\b", lambda found: changed.get(next(numbers), found[0]), path.read_bytes()))
    os.utime(path, (future := time.time() + 60, future))
    assert run("get", "29.x", name).stdout == b"29"
    run("index", name, "--verify", "--format", format, exit=None)


def all_kinds() -> bytes:
    """Return an archive with all kinds of names, and entries that no index lists."""
    rows: list[tuple[str, Content]] = [
        ("a.x", b"1"),
        ("n" * 130 + ".txt", b"long"),
        ("n" * 130 + "/" + "m" * 120 + ".txt", b"longer" * 200),
        ("é/ü.cls", b"7"),
        ("l.jpg", b"target"),
        ("l.lnk", Link("l.jpg")),
        ("l.sym", Link("l.jpg", tarfile.SYMTYPE)),
        ("z.bin", bytes(range(256)) * 5),
    ]
    return tar(rows, PAX)


@pytest.mark.parametrize("format", ["dali", "webshart", "tsv", "parquet"])
@each_row("kind", [PAX, GNU])
def test_read_back_at_the_offsets(format: str, kind: int, archive: Archive) -> None:
    """The bytes at the offsets of an index are the contents that `tarfile` reads."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    data = all_kinds()
    if kind == GNU:
        with tarfile.open(fileobj=io.BytesIO(data)) as file:
            rows = [(info.name, file.extractfile(info).read()) for info in file if info.isreg()]  # type: ignore[union-attr]
        data = tar(rows, GNU)
    archive(data)
    found = {
        field.name.decode(): data[field.offset : field.offset + field.size]
        for key, fields in LAYOUTS[format].decode(index(format))
        for field in fields
        if key
    }
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        expected = {info.name: file.extractfile(info).read() for info in file if info.isreg()}  # type: ignore[union-attr]
    assert found == expected


def test_energon_offsets_equal_tarfile(archive: Archive) -> None:
    """Offsets are those of the first header of an entry, as in Python's `tarfile`, which Energon uses."""
    data = all_kinds()
    archive(data)
    starts: dict[str, int] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        for info in file:
            if info.isreg():
                starts.setdefault(
                    info.name.rpartition("/")[0] + info.name.rpartition("/")[2].partition(".")[0], info.offset
                )
        end = file.offset
    assert [row[1][0].offset for row in LAYOUTS["energon"].decode(index("energon"))] == [*starts.values(), end]


@pytest.mark.parametrize(
    ("format", "members", "words"),
    [
        ("dali", {"a b.x": b""}, "a blank"),
        ("dali", {"a.": b""}, "empty field"),
        ("dali", {"README": b""}, "no sample"),
        ("webshart", {"\udcff.x": b""}, "is not UTF-8"),
        ("parquet", {"\udcff.x": b""}, "is not UTF-8"),
    ],
)
def test_limits_of_layouts(format: str, members: dict[str, Content], words: str, archive: Archive) -> None:
    """If a layout cannot store an entry there is no index, so that its reader finds no wrong data."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    archive(members)
    with pytest.raises(Unsupported, match=words):
        index(format)


def test_energon_needs_the_whole_archive(archive: Archive) -> None:
    """Samples of Energon are adjacent and need the end of the archive; a cut archive has no index."""
    archive(tar(SMALL)[:6656])
    assert index("dali", allow=["no-end-marker"]) == EXACT["dali"]
    with pytest.raises(Unsupported, match="not read whole"):
        index("energon", allow=["no-end-marker"])


def test_names_with_tabs(archive: Archive) -> None:
    """The table escapes names, and reading restores them."""
    archive({"a\tb.x\\y": b"1", "\udcff\n.z": b"2"})
    assert [field.name for _, fields in LAYOUTS["tsv"].decode(index("tsv")) for field in fields] == [
        b"a\tb.x\\y",
        b"\xff\n.z",
    ]


@each_row(
    ("name", "words"),
    [
        ("gnu-sparse-1.0.tar", "sparse-entry"),
        ("gnu-sparse-old.tar", "sparse-entry"),
        ("bsdtar-pax-sparse.tar", "sparse"),
    ],
)
def test_sparse(name: str, words: str) -> None:
    """A sparse file, whose content has no offset, is an error."""
    path = str(Path(__file__).parents[1] / "data" / name)
    with pytest.raises(Problem, match=words):
        index("dali", path)


@each_row(
    ("format", "data"),
    [
        ("dali", b""),
        ("dali", b"v1.2 2\na 0 1 a.a\n"),
        ("dali", b"v1.2 1\na 0 1\n"),
        ("dali", b"v1.2 1\na x 1 a.a\n"),
        ("dali", b"v1.1 1\na 0 1\n"),
        ("energon", b""),
        ("energon", b"1234567"),
        ("energon", struct.pack("=2Q", 512, 512)),
        ("energon", struct.pack("=2Q", 0, 700)),
        ("webshart", b"[]"),
        ("webshart", b'{"files": {}}'),
        ("webshart", b'{"caption": "a dog"}'),
        ("tsv", b"a\tb\n"),
        ("tsv", b"__key__\tfield\toffset\tsize\tentry\na\tb\t1\n"),
    ],
)
def test_no_index(format: str, data: bytes) -> None:
    """Data that do not have the layout are an invalid index."""
    with pytest.raises(InvalidIndex):
        LAYOUTS[format].decode(data)


@each_row(
    ("members", "format", "words"),
    [
        ([("a.x", b""), ("n" * 97 + ".xy", b"")], GNU, None),
        ([("a.x", b""), ("é.x", b""), ("README", b"")], USTAR, None),
        ([("a.x", b""), ("n" * 98 + ".xy", b"")], GNU, "not 'nnnn"),
        ([("n" * 98 + ".xy", b""), ("a.x", b"")], PAX, "not 'nnnn"),
        ([("d" * 60 + "/" + "n" * 60 + ".x", b"")], USTAR, "not 'dddd"),
        ([("é.x", b"")], PAX, "not 'é.x'"),
        ([("a.x", b""), (".hidden", b"")], USTAR, "a sample of '.hidden'"),
        ([("d.1/README", b""), ("a.x", b"")], USTAR, "a sample of 'd.1/README'"),
    ],
)
def test_shards_in_which_wids_finds_other_samples(
    members: list[tuple[str, Content]], format: int, words: str | None, archive: Archive
) -> None:
    """Numbers of samples would not be those of wids, or keys would differ: there is no index (tests/interop)."""
    path = archive(members, format=format)
    if words is None:
        assert tarkit.index(path, "wids") == ["shardindex.json"]
    else:
        with pytest.raises(Unsupported, match=words):
            tarkit.index(path, "tsv,wids")
        assert not Path("shardindex.json").exists()


def test_wids_exact() -> None:
    """The list is sorted by name, as widsindex writes it."""
    shards = [IndexedShard("t-1.tar", 3, 2048), IndexedShard("t-0.tar", 2, 1024, "ab")]
    data = encode_wids(shards)
    assert json.loads(data) == {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": [
            {"url": "t-0.tar", "md5sum": "ab", "nsamples": 2, "filesize": 1024},
            {"url": "t-1.tar", "nsamples": 3, "filesize": 2048},
        ],
        "name": "t",
    }
    assert read_wids(data) == sorted(shards)
    with pytest.raises(InvalidIndex):
        read_wids(b'{"a": 1}')


def test_paths() -> None:
    """Each layout has its own path; those of other tools are at the expected paths."""
    names = {index_path(format, "d/a.b.tar") for format in FORMATS if format != "wids"}
    assert names == {"d/a.b.idx", "d/a.b.tar.idx", "d/a.b.json", "d/a.b.index.tsv", "d/a.b.index.parquet"}
