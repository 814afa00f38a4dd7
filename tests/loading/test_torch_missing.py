"""`tarkit.torch` without torch."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_an_extra() -> None:
    """The error names the extra; `import tarkit` alone loads nothing of it."""
    code = """
import sys, tarkit

sys.modules["torch"] = None
try:
    import tarkit.torch
except tarkit.TarkitError as error:
    print(error, error.hint, sep="\\n")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "tarkit.torch needs torch, which is not installed\npip install 'tarkit[torch]'\n"
