"""Run a test in a process that has one thread, so that the test may call `fork`.

A process of pytest-xdist has threads that no test can end: one for its channel, and those of libraries that other tests
load. A lock that one of them holds at the time of a fork is never released in the child. So tests that are marked
`forks` run in children of a server: a process with pytest and tarkit loaded, which is started anew, not forked.

It is smaller as well: a fork of it takes half as long, since the modules of all tests are not in it.
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
from typing import IO

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
    server = _server(basetemp)
    assert server.stdin
    assert server.stdout
    group = item.get_closest_marker("xdist_group")
    name = item.nodeid.removesuffix(f"@{group.args[0]}") if group else item.nodeid
    asked = [name, str(basetemp / f"alone{next(_numbers)}")]
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    outcome, said = json.loads(server.stdout.readline())
    if outcome == "skipped":
        pytest.skip(said)
    if outcome != "passed":
        pytest.fail(said, pytrace=False)


@functools.cache
def _server(base: Path) -> subprocess.Popen[str]:
    """Return the server, which ends when this process does."""
    from tests._served import CLIENT_IN, client

    words = [sys.executable, str(Path(__file__))]
    # numpy would start threads when it is loaded
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TARKIT_TESTS_ALONE": "1", CLIENT_IN: client(base)}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=HERE.parent, env=environment)


class FileServer:
    """A fork of this process that has collected one file, and runs each requested test of it in a fork of its own."""

    def __init__(self, file: str) -> None:
        asked, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        if os.fork() == 0:
            for fd in range(3, answers):
                if fd != asked:
                    os.close(fd)
            with open(asked) as requests:
                pytest.main([file, "-p", "no:xdist", "-p", "no:cacheprovider", *FORKS], [Serving(requests, answers)])
            os._exit(0)
        os.close(asked)
        os.close(answers)
        self._requests, self._lines = open(self._asks, "w"), open(self._answers)

    def ask(self, line: str) -> str:
        """Pass on a request, and return the answer."""
        self._requests.write(line)
        self._requests.flush()
        return self._lines.readline()


class Serving:
    """The plugin of pytest in the fork for a file."""

    def __init__(self, requests: IO[str], answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._outcomes: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the requested tests until there are no more requests."""
        items = {item.nodeid: item for item in session.items}
        while line := self._requests.readline():
            test, basetemp = json.loads(line)
            if os.fork() == 0:
                self._requests.close()
                os.write(self._answers, json.dumps(self._run(items[test], basetemp)).encode() + b"\n")
                os._exit(0)
            _, status = os.wait()
            if status:
                os.write(self._answers, json.dumps(("failed", "its process ended on the way")).encode() + b"\n")
        return True

    def _run(self, item: pytest.Item, basetemp: str) -> tuple[str, str]:
        """Run a test; return its outcome and the reason."""
        os.mkdir(basetemp)
        item.config._tmp_path_factory._basetemp = Path(basetemp)  # type: ignore[attr-defined]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        for outcome in ("failed", "skipped"):
            if outcome in self._outcomes:
                return outcome, self._outcomes[outcome]
        return ("passed", "") if self._outcomes else ("failed", "pytest did not run it")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report, without the prefix of skips."""
        skipped = isinstance(report.longrepr, tuple)
        said = report.longrepr[2] if skipped else report.longreprtext + report.capstderr  # type: ignore[index]
        self._outcomes.setdefault(report.outcome, said.removeprefix("Skipped: "))


if __name__ == "__main__":
    from tests import _tools

    _tools._load()
    with open(os.dup(0)) as asked, open(os.dup(1), "w") as answers:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)  # the answers have all of it
        os.close(nowhere)
        server = functools.cache(FileServer)
        for line in asked:
            answers.write(server(json.loads(line)[0].partition("::")[0]).ask(line))
            answers.flush()
