"""tarkit.create: the same bytes as the command."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Run, entries

RECIPE = (
    "a.jpg photos/1.jpg\na.txt text:one two\n# comment\n\nb.bin hex:00ff\nb.txt base64:aGk=\nc.jpg file:photos/2.jpg\n"
)
TSV = "__key__\ttxt\t@jpg\nx\tone\tphotos/1.jpg\ny\ttwo\tphotos/2.jpg\n"
CSV = "id,txt,@jpg\n7,one,photos/1.jpg\n8,two,photos/2.jpg\n"
JSONL = '{"__key__": "x", "txt": "one", "json": {"a": 1}}\n{"__key__": "y", "txt": "two", "json": [2]}\n'

ROWS: list[tuple[str, dict[str, Any], list[str]]] = [
    (RECIPE, {}, []),
    (RECIPE, {"mtime": None}, ["--mtime", "source"]),
    (RECIPE, {"mtime": 1000}, ["--mtime", "@1000"]),
    (RECIPE, {"count": 3}, ["--count", "3"]),
    (RECIPE, {"count": 0}, ["--count", "0"]),
    (RECIPE, {"parallel": 3}, ["-p", "3"]),
    (RECIPE + "d.x nix.jpg\n", {"skip_missing": True}, ["--on-missing", "skip"]),
    (RECIPE + "a.cls text:1\n", {"group": True}, ["--group"]),
    (RECIPE.replace("photos/", ""), {"directory": "photos"}, ["-C", "photos"]),
    (RECIPE.replace("photos/", ""), {"directory": Path("photos")}, ["-C", "photos"]),
    (TSV, {"format": "tsv"}, ["--format", "tsv"]),
    (CSV, {"format": "csv", "key": "{id}"}, ["--format", "csv", "--key", "{id}"]),
    (CSV, {"format": "csv", "key": "{index:05d}"}, ["--format", "csv", "--key", "{index:05d}"]),
    (JSONL, {"format": "jsonl"}, ["--format", "jsonl"]),
    ("x\t1\ny\t2\n", {"format": "tsv", "columns": ["__key__", "txt"]}, ["--format", "tsv", "--columns", "__key__,txt"]),
    ("one\ntwo\n", {"format": "tsv", "columns": "txt", "key": "{index}"},
     ["--format", "tsv", "--columns", "txt", "--key", "{index}"]),
    (RECIPE + "d.txt pipe:echo hello\n", {"pipes": True}, []),
]  # fmt: skip


def fill() -> None:
    """Write the files that the recipes name, each with its own time."""
    for number in (1, 2):
        path = Path(f"photos/{number}.jpg")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"picture" * number)
        os.utime(path, (number * 1000, number * 1000))


@each_row("recipe,options,words", ROWS)
def test_the_archive_of_the_command(recipe: str, options: dict[str, Any], words: list[str], run: Run) -> None:
    """Entries, headers and end equal those of the command, in a file and in memory."""
    fill()
    Path("recipe").write_text(recipe)
    wanted = run("create", "recipe", *words).stdout
    memory = io.BytesIO()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tarkit.create("recipe", "out.tar", **options)
        samples = tarkit.create(Path("recipe"), memory, **options)
    assert ["nix.jpg" in str(each.message) for each in warned if each.category is tarkit.TarkitWarning] == [
        True,
        True,
    ] * ("skip_missing" in options)
    assert Path("out.tar").read_bytes() == memory.getvalue() == wanted
    assert samples == len({name.partition(".")[0] for name, _ in entries(wanted)})


def test_compressed(here: Path) -> None:
    """The suffix, or an option, determines the compression."""
    fill()
    Path("recipe").write_text(RECIPE)
    tarkit.create("recipe", "plain.tar")
    tarkit.create("recipe", "out.tar.gz")
    tarkit.create("recipe", "out", compress="gz:9", fsync=True)
    assert entries("plain.tar") == entries("out.tar.gz") == entries("out")
    assert Path("out").read_bytes()[:2] == b"\x1f\x8b"


@each_row(
    "recipe,options,message",
    [
        ("a.x text:1\nb.x pipe:touch ran\n", {}, r"^recipe:2: pipe: is not allowed here$"),
        ("a.x text:1\nword\n", {}, r"^recipe:2: "),
        ("a.x nix.jpg\n", {}, r"^recipe:1: .*nix\.jpg"),
        ("a.x text:1\nb.x text:2\na.y text:3\n", {}, r"^recipe:3: "),
        ("a.x text:1\n../b.x text:2\n", {}, r"^recipe:2: "),
        ("a.x text:1\nb.x hex:0\n", {}, r"^recipe:2: "),
        ("a.x text:1\nb.x pipe:false\n", {"pipes": True}, r"^recipe:2: "),
        ("__key__\t@x\nk\tpipe:touch ran\n", {"format": "tsv"}, r"^recipe:2: .*pipe: is not allowed here"),
        ("__key__\ttxt\nk\n", {"format": "tsv"}, r"^recipe:2: "),
        ("{]\n", {"format": "jsonl"}, r"^recipe:1: "),
    ],
)  # fmt: skip
def test_errors_of_recipes(recipe: str, options: dict[str, Any], message: str, here: Path) -> None:
    """The error names the line; no command has run, and there is no output."""
    Path("recipe").write_text(recipe)
    with pytest.raises(tarkit.TarkitError, match=message):
        tarkit.create("recipe", "out.tar", **options)
    assert os.listdir() == ["recipe"]


@each_row(
    "arguments,message",
    [
        ({"count": -1}, "count=-1: it is at least 0"),
        ({"parallel": 0}, "parallel=0: it is at least 1"),
        ({"format": "xml"}, "format='xml': it is one of tsv, csv, jsonl"),
        ({"columns": ["txt"]}, "columns and a key require format"),
        ({"key": "{index}"}, "columns and a key require format"),
        ({"recipe": "photos"}, "photos: Is a directory"),
        ({"mtime": -1 << 70}, ""),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str, here: Path) -> None:
    """Arguments out of range are errors, so that no other archive is written."""
    Path("recipe").write_text(RECIPE.replace("photos/", "text:"))
    Path("photos").mkdir()
    with pytest.raises(tarkit.TarkitError) as caught:
        tarkit.create(**{"recipe": "recipe", "output": "out.tar", **arguments})
    assert message in str(caught.value)
    assert not os.path.exists("out.tar")


def test_no_recipe(here: Path) -> None:
    """A missing recipe is an error of the operating system with the name of the file."""
    with pytest.raises(FileNotFoundError, match="nix"):
        tarkit.create("nix", "out.tar")


@each_row(
    "options,words",
    [
        ({"depfile": "out.d"}, ["--depfile", "out.d"]),
        ({"depfile": Path("out.d"), "directory": "."}, ["--depfile", "out.d", "-C", "."]),
    ],
)
def test_depfile(options: dict[str, Any], words: list[str], run: Run) -> None:
    """That of the command."""
    fill()
    Path("recipe").write_text(RECIPE)
    run("create", "recipe", "-o", "out.tar", *words)
    wanted = Path("out.d").read_bytes()
    Path("out.d").unlink()
    tarkit.create("recipe", "out.tar", **options)
    assert Path("out.d").read_bytes() == wanted


@each_row(
    "output,options,message",
    [
        ("-", {"depfile": "out.d"}, "depfile requires an output file"),
        ("out.tar", {"depfile": "recipe"}, "recipe is both input and output"),
        ("out.tar", {"depfile": "./out.tar"}, "out.tar is the output, and the depfile too"),
        ("out.tar", {"mtime": 10**12}, "seconds since 1970"),
    ],
)
def test_wrong_depfiles(output: str, options: dict[str, Any], message: str, here: Path) -> None:
    """Nothing is written."""
    fill()
    Path("recipe").write_text(RECIPE)
    with pytest.raises(tarkit.Usage, match=message):
        tarkit.create("recipe", output, **options)
    assert sorted(os.listdir()) == ["photos", "recipe"]
