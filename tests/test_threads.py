"""How many threads may compress an output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tarkit.machine import cpus
from tarkit.threads import MOST_CODEC_THREADS, codec_threads
print(codec_threads() == min(MOST_CODEC_THREADS, cpus()), flush=True)
if os.fork() == 0:
    print(codec_threads())
else:
    os.wait()
"""


def test_codec_threads() -> None:
    """There is one for each CPU up to a bound, and one alone in a copy of the process."""
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1])]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout == "True\n1\n"
