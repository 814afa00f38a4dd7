"""scripts/_venv.sh: when what is installed is out of date."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("scripts/_venv.sh", "pyproject.toml", "hatch_build.py", "tarkit/tar/_fast.c")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout with what decides about an installation, and an accelerator compiled after its source."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tarkit/tar/_fast.abi3.so").write_bytes(b"compiled")
    stamp(tmp_path, "_fast.c", 100)
    stamp(tmp_path, "_fast.abi3.so", 200)
    return tmp_path


def stamp(checkout: Path, name: str, time: int) -> None:
    """Set the time of a file."""
    os.utime(checkout / "tarkit/tar" / name, (time, time))


def recipe(checkout: Path, group: str = "tarkit") -> str:
    """Return what is compared with the installation."""
    words = ("bash", "-c", f". {checkout}/scripts/_venv.sh; recipe {group}")
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def test_an_accelerator_that_is_gone_or_old(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled again when it was removed, or is older than its source; not when it was never there."""
    monkeypatch.delenv("TARKIT_PURE", raising=False)
    installed, others = recipe(checkout), recipe(checkout, "test")
    assert recipe(checkout) == installed
    stamp(checkout, "_fast.c", 300)
    assert recipe(checkout) != installed
    stamp(checkout, "_fast.abi3.so", 400)
    assert recipe(checkout) == installed
    (checkout / "tarkit/tar/_fast.abi3.so").unlink()
    without = recipe(checkout)
    assert without != installed
    assert recipe(checkout) == without
    assert recipe(checkout, "test") == others
    monkeypatch.setenv("TARKIT_PURE", "1")  # what was left out for this is compiled by the next run without it
    assert recipe(checkout) != without
