"""Run programs that use other packages: each in a process of its own, offline, with the last line as its result."""

from __future__ import annotations

import os
import subprocess
import sys
from ast import literal_eval
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
WEBDATASET_0_2 = "webdataset-0.2.86"  # directories in `build`, which `pip install --target` fills
DALI = "dali"

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "NO_PROXY": "*",
}


def needs(*packages: str, build: str = "") -> None:
    """Skip the test if a package, or a directory of `build`, is not there.

    Nothing is imported here, as `pytest.importorskip` would: torch and others start threads, after which this process
    cannot be copied any more.
    """
    for name in packages:
        parent = name.partition(".")[0]
        if find_spec(parent) is None or find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if build and not (BUILD / build).is_dir():
        pytest.skip(f"build/{build} is not there")


def result(program: str, *words: object, build: str = "", exit: int = 0, **environ: str) -> Any:
    """Run a program of Python and return the value whose `repr` is its last line; if it fails, the last line of stderr.

    Args:
        program: the text of the program.
        words: `sys.argv[1:]` of the program.
        build: a directory of `build` whose packages go before all others.
        exit: the expected exit status.
        environ: more variables of its environment.
    """
    path = os.pathsep.join([*([str(BUILD / build)] if build else []), str(ROOT)])
    here = os.path.abspath("hf")
    environment = {**os.environ, **OFFLINE, "HF_HOME": here, "PYTHONPATH": path, "WIDS_CACHE": "wids-cache", **environ}
    ran = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert ran.returncode == exit, ran.stderr
    if exit:
        return ran.stderr.strip().splitlines()[-1]
    return literal_eval(ran.stdout.splitlines()[-1])
