"""The guide and the API reference: their blocks are one program, which prints what is shown, and is typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tarkit
from tarkit.cli.app import COMMANDS
from tests._documents import documents, text_of

ROOT = Path(tarkit.__file__).resolve().parents[1]
BLOCKS = [block for path in documents.GUIDE for block in documents.blocks(text_of(path)) if block.language == "python"]


@pytest.mark.forks
def test_the_blocks_print_what_is_shown(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each block of Python is followed by its output; scripts/docs --outputs docs/python.md renews all."""
    names: dict[str, object] = {}

    assert len(BLOCKS) > 20
    for block in BLOCKS:
        exec(block.text, names)
        assert capfd.readouterr() == (block.shown, ""), block.text


def test_all_pages_of_the_reference_are_run() -> None:
    assert sorted(documents.GUIDE[1:]) == sorted((ROOT / "docs/api").glob("*.md"))


@pytest.mark.slow
def test_the_program_is_typed(tmp_path: Path) -> None:
    """mypy --strict reports no error, and infers the types of results."""
    pytest.importorskip("mypy")
    program = "".join(block.text for block in BLOCKS)
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
    """The pages name nothing that the package does not have."""
    text = "".join(map(text_of, documents.GUIDE))
    assert set(re.findall(r"\btarkit\.([A-Za-z]\w*)", text)) <= {*tarkit.__all__, "torch"}  # torch: a module


def test_every_command_has_a_row() -> None:
    """The table of commands and their methods lists all commands; the names of the API in it exist."""
    table = text_of(ROOT / "docs/commands/index.md").partition("## The same in Python")[2]

    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(COMMANDS)
    for owner, name in re.findall(r"`(tarkit|Dataset|Report|Sample|Stats)\.(\w+)`", table):
        assert hasattr(tarkit if owner == "tarkit" else getattr(tarkit, owner), name), f"{owner}.{name}"
