"""The tests of `--jobs`: what goes wrong in one of the processes is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, warnings, pytest

@pytest.mark.parametrize("number", range(40))
def test_many(number):
    os.write(2, b"said by %d\\n" % number)
    assert number != 33

def test_warns():
    warnings.warn("what it warns of")

def test_dies():
    os._exit(0)
"""


def test_what_fails_and_what_ends_early_is_named(here: Path) -> None:
    (here / "test_them.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "_jobs", "--jobs", "2", "-p", "no:hypothesispytest"]
    env = os.environ | {"PYTHONPATH": os.path.dirname(__file__), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, check=False, cwd=here, env=env, capture_output=True, text=True, timeout=60)
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "1 failed, 40 passed, 1 warning in " in said
    assert "FAILED test_them.py::test_many[33]" in said
    assert "-- Captured stderr call --" in said
    assert [line for line in said.splitlines() if line.startswith("said by")] == ["said by 33"]
    assert "UserWarning: what it warns of" in said
    assert "without a result: test_them.py::test_dies" in said
