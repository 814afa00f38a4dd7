"""Limits of the system, such as `ulimit -v`: one line and a hint, status 1, and no traceback."""

from __future__ import annotations

import functools
import os
import resource
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError, describe_limit
from tests._tools import TARKIT, each_row
from tests.conftest import Archive, Run

COMMANDS = [
    "cat in.tar -o out.tar.xz",
    "cat in.tar -o out.tar.zst",
    "cat large.tar --to cbors -o out.cbors",
    "cat --where 'json.x == 1' large.tar -o out.tar",
    "proc -p 8 --worker cat in.tar -o out.tar",
    "sort -s txt in.tar.xz -o out.tar",
]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system may not limit memory")
@each_row("command", COMMANDS)
def test_memory(command: str, run: Run, archive: Archive) -> None:
    """Wherever memory ends, that is said; there is no output then."""
    archive({f"{n}.txt": b"%d" % n for n in range(100)})
    run("cat", "in.tar", "-o", "in.tar.xz")
    archive({"a.json": b"[" + b"1," * 5_000_000 + b"1]"}, "large.tar")
    for limit in (60, 100):
        few = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (limit << 20, limit << 20))
        pipe = subprocess.PIPE
        words = [*TARKIT, *shlex.split(command)]
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "timeout": 60}
        ended = subprocess.run(words, check=False, preexec_fn=few, **how)
        lines = ended.stderr.decode().splitlines()
        assert ended.returncode in (0, 1, -signal.SIGSEGV), lines  # the last where the stack cannot grow
        assert not any("Traceback" in line for line in lines), lines
        assert len([line for line in lines if not line.startswith("hint: ")]) <= 2, lines
        assert ended.returncode == 0 or not [*Path().glob("out*")], lines
        for path in Path().glob("out*"):  # of a run that had enough
            path.unlink()


@each_row(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("LZ4F_compressBegin failed with code: ERROR_allocation_failed"), "not enough memory"),
        (RuntimeError("something else"), None),
        (TarkitError("the input ends"), None),
        (KeyError("x"), None),
    ],
)
def test_errors(error: Exception, words: str | None) -> None:
    """Errors of libraries count by what they say."""
    found = describe_limit(error)
    assert (found is None) == (words is None)
    assert words is None or (found is not None and words in found[0])
