"""Chains of steps of the Python API give what a model over dicts gives, whatever the archives, steps and outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests._chains import differences

CHAINS = int(os.environ.get("TARKIT_TESTS_CHAINS", "60"))
FIRST = int(os.environ.get("TARKIT_TESTS_FIRST_CHAIN", "0"))


@pytest.mark.forks
def test_chains_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, fields, order and contents are right; every second chain runs without the accelerator."""
    failed = differences(range(FIRST, FIRST + CHAINS), tmp_path, monkeypatch)
    assert not failed, f"{len(failed)} of {CHAINS} chains\n" + "\n".join(failed[:8])
