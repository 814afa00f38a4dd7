"""Python's tarfile, GNU tar and bsdtar read what tarkit writes, and tarkit reads what they write."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tarkit.samples.sample import split_name
from tests._tools import each_row, program
from tests.conftest import GNU, PAX, Archive, Content, Run

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
    ("spec", "new"), [("x/{key}", "x/{}"), ("{key}" + "k" * 100, "{}" + "k" * 100), ("y" * 130 + "/{index}", None)]
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


@pytest.mark.slow
@each_row("path", golden())
@each_row("start", ["x/", "n" * 101, "p" * 150 + "/", "\u00e9" * 51, "\udce9"])
def test_renaming_changes_the_name_alone(start: str, path: Path, run: Run) -> None:
    """A change of keys leaves everything else that tarfile sees unchanged, for archives of all writers."""

    def seen(data: str | Path) -> list[tuple[str, dict[str, Any]]]:
        with tarfile.open(data, encoding="utf-8") as file:
            return [(info.name, facts(info)) for info in file]

    before = seen(path)
    run("cat", path, "--rekey", f"{start}{{key}}", "--allow", "unmovable-entry", "-o", "out.tar")
    after = seen("out.tar")
    assert [facts for _, facts in after] == [facts for _, facts in before]
    for (new, now), (old, _) in zip(after, before, strict=True):
        keyed = split_name(os.fsencode(old)) is not None and now["type"] != tarfile.DIRTYPE
        assert new == (f"{start}{old}" if keyed else old)


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
