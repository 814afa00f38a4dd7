"""Run a test in a process that has one thread, so that the test may call `fork`.

A process of pytest-xdist has threads that no test can end: one for its channel, and those of libraries that other tests
load. A lock that one of them holds at the time of a fork is never released in the child. So tests that are marked
`forks` run in children of a server: a process with pytest and tarkit loaded, which is started anew, not forked.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
FORKS = ("-W", "error:This process:DeprecationWarning")  # Python 3.12 warns of a fork while threads run
_numbers = itertools.count()


def several_threads(patience: float) -> bool:
    """Return whether this process has more than one thread, and still has after `patience` seconds."""
    limit = time.monotonic() + patience
    while _threads() > 1:
        if time.monotonic() > limit:
            return True
        time.sleep(0.001)
    return False


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:  # a system without /proc
        return threading.active_count()


def run_alone(item: pytest.Item, basetemp: Path) -> None:
    """Run a test in the server; it passes, fails or is skipped here as it does there."""
    server = _server()
    assert server.stdin
    assert server.stdout
    asked = [item.nodeid, str(basetemp / f"alone{next(_numbers)}")]
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    outcome, said = json.loads(server.stdout.readline())
    if outcome == "skipped":
        pytest.skip(said)
    if outcome != "passed":
        pytest.fail(said, pytrace=False)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Return the server, which ends when this process does."""
    words = [sys.executable, str(Path(__file__))]
    # numpy would start threads when it is loaded
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TARKIT_TESTS_ALONE": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=HERE.parent, env=environment)


def serve(asked: IO[str], answers: IO[str]) -> None:
    """Run the requested tests, each in a fork of this process."""
    for line in asked:
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)  # the reports have all of it
            with open(write, "w") as answer:
                json.dump(_outcome(*json.loads(line)), answer)
            os._exit(0)
        os.close(write)
        with open(read) as answer:
            answers.write((answer.read() or json.dumps(("failed", "its process ended on the way"))) + "\n")
        answers.flush()
        os.wait()


def _outcome(test: str, basetemp: str) -> tuple[str, str]:
    """Run a test; return its outcome and the reason."""
    reports = _Reports()
    words = [test, "-p", "no:xdist", "-p", "no:cacheprovider", f"--basetemp={basetemp}", *FORKS]
    status = pytest.main(words, [reports])
    for outcome in ("failed", "skipped"):
        if outcome in reports.found:
            return outcome, reports.found[outcome]
    return ("passed", "") if status == 0 and reports.found else ("failed", f"pytest ended with status {status}")


class _Reports:
    """The reports of pytest for one test."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the report, without the prefix of skips."""
        said = report.longrepr[2] if report.outcome == "skipped" else report.longreprtext + report.capstderr
        self.found.setdefault(report.outcome, said.removeprefix("Skipped: "))


if __name__ == "__main__":
    from tests import _tools

    _tools._load()
    with open(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)
