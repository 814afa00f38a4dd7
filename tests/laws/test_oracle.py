"""Python's tarfile, GNU tar, bsdtar and webdataset read what tarkit writes, and tarkit reads what they write."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tarkit.samples.sample import split_name
from tests._tools import each_row, program
from tests.conftest import GNU, PAX, Archive, Content, Run, body, keys

DATA = Path(__file__).parents[1] / "data"
Tree = dict[str, bytes | None]

FILES: Tree = {
    "a.jpg": b"A" * 700,
    "a.json": b"{}",
    "d.1/b.seg.png": b"",
    "d.1/b.jpg": b"B" * 512,
    "é/ü.txt": "ß".encode(),
    "\udce9.txt": b"latin",
    "with space.x": b"1",
    "x-" + "n" * 96 + ".x": b"100 bytes and a bit",
    "p" * 150 + "/" + "q" * 90 + ".x": b"prefix and name",
    "r" * 120 + "/" + "s" * 140 + ".x": b"PAX or L",
    "big.bin": bytes(range(256)) * 1100,
    "README": b"no key",
}


# ---- the readers


def by_tarfile(path: str) -> Tree:
    """Read with Python's tarfile."""
    with tarfile.open(path, encoding="utf-8", errorlevel=2) as file:
        members = [(info, file.extractfile(info)) for info in file if info.isreg()]
        return {info.name: opened.read() for info, opened in members if opened}


def by_program(path: str) -> Callable[[str], Tree]:
    """Return a reader that unpacks with GNU tar or bsdtar; neither may print a message."""

    def read(archive: str) -> Tree:
        os.mkdir("unpacked")
        ran = subprocess.run(
            [path, "-x", "-f", archive, "-C", "unpacked"],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        found = [each for each in Path("unpacked").rglob("*") if each.is_file() and not each.is_symlink()]
        tree: Tree = {str(each.relative_to("unpacked")): each.read_bytes() for each in found}
        shutil.rmtree("unpacked")
        return tree

    return read


ARCHIVERS = {"tar": "GNU tar", "bsdtar": ""}  # and the word in each `--version`


def archiver(name: str) -> str:
    """Return the path of GNU tar or bsdtar."""
    return program(name, version=ARCHIVERS[name])


READERS: dict[str, Callable[[str], Tree]] = {"tarfile": by_tarfile}
for name in ARCHIVERS:
    with suppress(pytest.skip.Exception, pytest.fail.Exception):  # test_create reports it
        READERS[name] = by_program(archiver(name))


# ---- archives written by create, cat and split


def write_recipe() -> str:
    for number, content in enumerate(FILES.values()):
        Path(f"f{number}").write_bytes(content or b"")
    Path("recipe").write_bytes(b"".join(b"%b\tf%d\n" % (os.fsencode(name), n) for n, name in enumerate(FILES)))
    return "recipe"


@pytest.mark.parametrize("reader", ["tarfile", *ARCHIVERS])
def test_create(reader: str, run: Run) -> None:
    """All readers accept short and long names, in any encoding, and contents of all sizes.

    If a reader is missing this test reports it; the tests below continue without it.
    """
    if reader not in READERS:
        archiver(reader)
    run("create", write_recipe(), "-o", "out.tar")
    assert READERS[reader]("out.tar") == FILES


@each_row(("suffix", "codec"), [("gz", "gzip"), ("xz", "xz"), ("bz2", "bzip2"), ("zst", "zstd"), ("lz4", "lz4")])
def test_compressed(suffix: str, codec: str, run: Run) -> None:
    """Readers that know a codec, some of them by calling its program, accept compressed outputs."""
    run("create", write_recipe(), "-o", f"out.tar.{suffix}")
    if suffix in ("gz", "xz", "bz2"):
        assert by_tarfile(f"out.tar.{suffix}") == FILES
    decoder = program(codec)
    if suffix == "lz4":  # no tar knows it
        data = subprocess.run([decoder, "-dc", "out.tar.lz4"], capture_output=True, check=True).stdout
        Path("out.tar.lz4").write_bytes(data)
    for name, reader in READERS.items():
        if name != "tarfile" or suffix == "lz4":
            assert reader(f"out.tar.{suffix}") == FILES


@each_row("format", [GNU, PAX])
@each_row(
    ("spec", "new"),
    [("x/{key}", "x/{}"), ("{key}" + "k" * 100, "{}" + "k" * 100), ("y" * 130 + "/{index}", None)],
)
def test_renamed(format: int, spec: str, new: str | None, run: Run, archive: Archive) -> None:
    """All readers accept renamed headers of each dialect."""
    rows: dict[str, Content] = {"a.x": b"1", "b" * 98 + ".x": b"2", "c" * 120 + ".x": b"3", "é.x": b"4", "d/e.x": b"5"}
    run("cat", archive(rows, format=format), "--rekey", spec, "-o", "out.tar")
    renamed = {}
    for index, (name, content) in enumerate(rows.items()):
        key = name.removesuffix(".x")
        renamed[(new.format(key) if new else "y" * 130 + f"/{index}") + ".x"] = content
    for reader in READERS.values():
        assert reader("out.tar") == renamed


def test_split_and_cat(run: Run) -> None:
    """Each shard, and their concatenation by cat, is an archive for all readers."""
    run("create", write_recipe(), "-o", "in.tar")
    run("split", "in.tar", "-c", "2", "-o", "out-%d.tar")
    run("cat", "out-*.tar", "-s", "3", "--seed", "1", "-o", "all.tar")
    for reader in READERS.values():
        shards = [reader(str(path)) for path in sorted(Path().glob("out-*.tar"))]
        assert len(shards) == 5
        assert {name: content for shard in shards for name, content in shard.items()} == FILES
        assert reader("all.tar") == FILES


def golden() -> list[Path]:
    """Return the archives that Python's tarfile reads correctly: all but those with GNU's incremental headers."""
    skip = ("multivolume", "incremental", "label")
    return [path for path in sorted(DATA.glob("*.tar")) if not any(word in path.name for word in skip)]


@each_row("path", golden())
def test_renaming_changes_the_name_alone(path: Path, run: Run) -> None:
    """A change of keys leaves everything else that tarfile sees unchanged, for archives of all writers."""

    def seen(data: str | Path) -> list[tuple[str, dict[str, Any]]]:
        with tarfile.open(data, encoding="utf-8") as file:
            return [(info.name, facts(info)) for info in file]

    before = seen(path)
    run("cat", path, "--rekey", "x/{key}", "--allow", "unmovable-entry", "-o", "out.tar")
    after = seen("out.tar")
    assert [facts for _, facts in after] == [facts for _, facts in before]
    for (new, now), (old, _) in zip(after, before, strict=True):
        keyed = split_name(os.fsencode(old)) is not None and now["type"] != tarfile.DIRTYPE
        assert new == (f"x/{old}" if keyed else old)


def facts(info: tarfile.TarInfo) -> dict[str, Any]:
    """Return what a header has besides the name and its offset."""
    names = (
        "mode",
        "uid",
        "gid",
        "size",
        "mtime",
        "type",
        "linkname",
        "uname",
        "gname",
        "devmajor",
        "devminor",
        "sparse",
    )
    said = {name: getattr(info, name, None) for name in names}
    said["pax"] = {k: v for k, v in info.pax_headers.items() if k not in ("path", "GNU.sparse.name", "hdrcharset")}
    return said


# ---- archives written by GNU tar and bsdtar


PROGRAMS = [
    ("tar", ["--format=gnu"]),
    ("tar", ["--format=posix"]),
    ("tar", ["--format=gnu", "-z"]),
    ("bsdtar", ["--format=pax"]),
    ("bsdtar", ["--format=gnutar", "-j"]),
]


@each_row(("name", "options"), PROGRAMS)
def test_archives_of_programs(name: str, options: list[str], run: Run) -> None:
    """cat and split return what these programs packed."""
    packer = archiver(name)
    os.mkdir("tree")
    for name, content in FILES.items():
        path = Path("tree") / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content or b"")
    names = sorted(FILES, key=os.fsencode)
    subprocess.run([packer, "-c", "-f", "in.tar", *options, "-C", "tree", "--", *names], check=True)
    run("cat", "in.tar", "--match", "", "-o", "out.tar")
    assert by_tarfile("out.tar") == FILES
    run("split", "in.tar", "-c", "1", "-o", "out-%d.tar")
    assert {k: v for path in Path().glob("out-*.tar") for k, v in by_tarfile(str(path)).items()} == FILES


# ---- webdataset


@pytest.fixture
def webdataset() -> Any:
    """Return the library, imported without torch."""
    return pytest.importorskip("webdataset", reason="webdataset is not installed")


def samples_of(webdataset: Any, path: str) -> list[dict[str, Any]]:
    """Return the samples of a shard, without the items that the library adds."""
    found = webdataset.WebDataset(path, shardshuffle=False, empty_check=False)
    return [{k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")} for sample in found]


def test_webdataset_reads_what_tarkit_writes(webdataset: Any, run: Run) -> None:
    """webdataset finds the same keys and fields in archives by create, split and cat."""
    rows = ["a.jpg", "a.json", "a.seg.png", "d/b.jpg", "d/b.seg.png", "c.1/x.json", "c.1/x.tar.gz", "./e.txt"]
    recipe = "".join(f"{name}\ttext:{name}\n" for name in rows)
    run("create", "-o", "in.tar", stdin=recipe.encode())
    expected = [
        {"__key__": "a", "jpg": b"a.jpg", "json": b"a.json", "seg.png": b"a.seg.png"},
        {"__key__": "d/b", "jpg": b"d/b.jpg", "seg.png": b"d/b.seg.png"},
        {"__key__": "c.1/x", "json": b"c.1/x.json", "tar.gz": b"c.1/x.tar.gz"},
        {"__key__": "./e", "txt": b"./e.txt"},
    ]
    assert samples_of(webdataset, "in.tar") == expected
    run("split", "in.tar", "-c", "1", "-o", "out-%d.tar")
    assert [samples_of(webdataset, f"out-{number}.tar") for number in range(4)] == [[sample] for sample in expected]
    run("cat", "out-{0..3}.tar", "-f", "x:jpg,txt,json", "--rekey", "#", "-o", "out.tar.gz")
    assert samples_of(webdataset, "out.tar.gz") == [
        {"__key__": f"{number:09d}", "x": content}
        for number, content in enumerate([b"a.jpg", b"d/b.jpg", b"c.1/x.json", b"./e.txt"])
    ]


def test_tarkit_reads_what_webdataset_writes(webdataset: Any, run: Run) -> None:
    """A shard by TarWriter is copied and split unchanged, header for header (docs/formats/webdataset.md, TarWriter)."""
    with webdataset.TarWriter("in.tar", mtime=1234567890, encoder=False) as writer:
        for number in range(5):
            writer.write({"__key__": f"d/{number}", "txt": b"x" * number, "B.TXT": b"b", "cls": b"1"})
    data = Path("in.tar").read_bytes()
    assert run("cat", "in.tar").stdout == data
    run("split", "in.tar", "-c", "2", "-o", "out-%d.tar")
    assert b"".join(body(Path(f"out-{number}.tar").read_bytes()) for number in range(3)) == body(data)
    with tarfile.open("out-0.tar") as file:
        info = next(iter(file))
        assert (info.mode, info.uname, info.gname, info.mtime) == (0o444, "bigdata", "bigdata", 1234567890)


@each_row(
    ("limits", "options"),
    [
        ({"maxcount": 3}, ["-c", "3"]),
        ({"maxcount": 1}, ["-c", "1"]),
        ({"maxcount": 10}, ["-c", "10"]),
        ({"maxsize": 2500}, ["-s", "2500", "--size-rule", "content"]),
        ({"maxsize": 3000}, ["-s", "3000", "--size-rule", "content"]),
        ({"maxsize": 512}, ["-s", "512", "--size-rule", "content"]),
        ({"maxsize": 4000, "maxcount": 3}, ["-s", "4000", "-c", "3", "--size-rule", "content"]),
    ],
)
def test_shards_end_where_those_of_webdataset_do(
    limits: dict[str, int], options: list[str], webdataset: Any, run: Run
) -> None:
    """split ends shards where ShardWriter does, by count and by size of the contents (docs/formats/webdataset.md)."""
    sizes = [1000, 1000, 500, 500, 3000, 1, 2999, 1, 1000, 1000]
    with webdataset.ShardWriter("wds-%d.tar", encoder=False, mtime=0, verbose=0, **limits) as writer:
        for number, size in enumerate(sizes):
            writer.write({"__key__": str(number), "x": bytes(size // 2), "y": bytes(size - size // 2)})
    run("cat", *sorted(str(path) for path in Path().glob("wds-*")), "-o", "in.tar")
    run("split", "in.tar", *options, "-o", "out-%d.tar")
    ours, theirs = ([keys(path) for path in sorted(Path().glob(f"{name}-*"))] for name in ("out", "wds"))
    assert ours == theirs
    assert len(ours) > 1 or limits == {"maxcount": 10}


def test_names_are_split_as_webdataset_does() -> None:
    """Keys and fields are webdataset's, except for hidden files: a key that is empty or ends with a slash is no key."""
    split = pytest.importorskip("webdataset.tariterators", reason="webdataset is not installed").base_plus_ext
    for length in range(1, 6):
        for name in map("".join, product(["a", ".", "/", "b.c", "é"], repeat=length)):
            key, field = split(name)
            expected = None if key is None or key == "" or key.endswith("/") else (key.encode(), field.encode())
            assert split_name(name.encode()) == expected, name
