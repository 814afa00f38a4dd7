"""docs/python.md: its blocks are one program, which prints the shown text and passes mypy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tarkit
from tarkit.cli.app import COMMANDS

ROOT = Path(tarkit.__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return language and text of each block."""
    return BLOCK.findall((ROOT / "docs/python.md").read_text(encoding="utf-8"))


@pytest.mark.forks
def test_the_blocks_print_what_is_shown(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each block of Python is followed by its output."""
    found = blocks()
    names: dict[str, object] = {}

    assert [language for language, _ in found] == ["python", "text"] * (len(found) // 2)
    assert len(found) > 20
    for (_, code), (_, shown) in zip(found[::2], found[1::2], strict=True):
        exec(code, names)
        assert capfd.readouterr() == (shown, ""), code


def test_the_program_is_typed(tmp_path: Path) -> None:
    """mypy --strict reports no error, and infers the types of results."""
    pytest.importorskip("mypy")
    program = "".join(code for language, code in blocks() if language == "python")
    types = {
        "sample['jpg']": "bytes",
        "pets.sort()": "tarkit.Dataset",
        "parts": "list[tarkit.Shard]",
        "stats": "tarkit.Stats",
    }
    types |= {"indexed[0]": "tarkit.Sample", "indexed[:2]": "list[tarkit.Sample]", "report": "tarkit.Report"}
    types |= {"jpg": "tarkit.FieldStats", "packed": "list[tarkit.Shard]", "pets.map(strict)": "tarkit.Dataset"}
    types |= {"pets.find_disorder()": "tarkit.Disorder | None"}
    program += "from typing import assert_type\n"
    program += "".join(f"assert_type({value}, {kind})\n" for value, kind in types.items())
    (tmp_path / "guide.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path), "guide.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (0, "Success: no issues found in 1 source file\n"), ran.stdout + ran.stderr


def test_the_guide_names_what_is_there() -> None:
    """The guide has each public name of the package, except types that only functions return, and no other name."""
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\btarkit\.([A-Za-z]\w*)", text))
    returned = {"Dataset", "Finding", "IndexedDataset", "Report", "Shard", "__version__", "torch"}  # torch: a module

    assert named - returned == set(tarkit.__all__) - returned
    methods = {name for name in vars(tarkit.Dataset) if not name.startswith("_")}
    assert {name for name in methods if not re.search(rf"\b{name}\b", text)} == set()


def test_every_command_has_a_row() -> None:
    """The table of commands and their methods lists all commands; the names of the API in it exist."""
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    table = text.partition("## Commands and Python")[2].partition("\n## ")[0]

    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(COMMANDS)
    for owner, name in re.findall(r"`(tarkit|Dataset|Report|Sample|Stats)\.(\w+)`", table):
        assert hasattr(tarkit if owner == "tarkit" else getattr(tarkit, owner), name), f"{owner}.{name}"
