"""Chains of steps of the Python API give what a model over dicts gives, whatever the archives, steps and outputs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tarkit.tar import fast, reader
from tests._chains import Chain, outputs

CHAINS = int(os.environ.get("TARKIT_TESTS_CHAINS", "100"))
FIRST = int(os.environ.get("TARKIT_TESTS_FIRST_CHAIN", "0"))


@pytest.mark.forks
def test_chains_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, fields, order and contents are right; every second chain runs without the accelerator."""
    failed = []
    for seed in range(FIRST, FIRST + CHAINS):
        here = tmp_path / str(seed)
        here.mkdir()
        with monkeypatch.context() as patch:
            if seed % 2:
                patch.setattr(reader, "scan", None)
                patch.setattr(fast, "gather", lambda *ranges: None)
            one = None
            try:
                one = Chain(seed, here)
                for output, actual, expected in outputs(one):
                    if actual != expected:
                        failed.append(
                            f"{seed}: {one} -> {output}\n  actual   {actual!r:.400}\n  expected {expected!r:.400}"
                        )
            except Exception as error:
                failed.append(f"{seed}: {one} {type(error).__name__}: {error!s:.300}")
            finally:
                if one is not None:
                    one.close()
        shutil.rmtree(here)
    assert not failed, f"{len(failed)} of {CHAINS} chains\n" + "\n".join(failed[:8])
