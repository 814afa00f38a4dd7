"""tarkit.create: the same bytes as the command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import entries

RECIPE = (
    "a.jpg photos/1.jpg\na.txt text:one two\n# comment\n\nb.bin hex:00ff\nb.txt base64:aGk=\nc.jpg file:photos/2.jpg\n"
)


def fill() -> None:
    """Write the files that the recipes name, each with its own time."""
    for number in (1, 2):
        path = Path(f"photos/{number}.jpg")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"picture" * number)
        os.utime(path, (number * 1000, number * 1000))


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
