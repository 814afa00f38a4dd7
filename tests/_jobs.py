"""Tests side by side: `pytest --jobs 2`, or `--jobs auto`.

The tests are collected once. Copies of this process then take them from one queue, a few at a time, and send what
became of them to this one. (Workers of pytest-xdist collect them again, and take 3 ms more for each.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait

import pytest

worker = ""  # the name of this copy


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--jobs`."""
    parser.addoption("--jobs", default="1", metavar="N|auto", help="run tests in N processes; auto: one for each core")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run them all, if there is to be more than one process."""
    wanted = session.config.getoption("jobs")
    jobs = min(cores() if wanted == "auto" else int(wanted), len(session.items))
    if jobs < 2 or session.testsfailed or session.config.option.collectonly:
        return None  # pytest runs them, or says why not
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
    queue, filled = os.pipe()
    os.write(filled, b"".join(first.to_bytes(4) + after.to_bytes(4) for first, after in lots(len(session.items), jobs)))
    os.close(filled)
    pids: dict[Connection, int] = {}
    try:
        for number in range(jobs):
            ours, theirs = Pipe(duplex=False)
            pid = os.fork()
            if not pid:
                work(session, f"-{number}-", queue, theirs)
            theirs.close()
            pids[ours] = pid
        listen(session, queue, pids)
    finally:
        os.close(queue)
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
    return True


def cores() -> int:
    """How many cores there are for us."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lots(tests: int, jobs: int) -> Iterator[tuple[int, int]]:
    """Tests that stand together, and may share what a module sets up, are taken together; at the end one by one."""
    first = 0
    while first < tests:
        after = first + max(1, min(16, (tests - first) // (8 * jobs)))
        yield first, after
        first = after


def listen(session: pytest.Session, queue: int, pids: dict[Connection, int]) -> None:
    """Report what the copies send, until they are done."""
    hook, running, missing = session.config.hook, set(pids), dict.fromkeys(item.nodeid for item in session.items)
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            try:
                nodeid, reports, warned = connection.recv()
            except EOFError:
                running.remove(connection)
                continue
            missing.pop(nodeid)
            for data in reports:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            for warning in warned:
                hook.pytest_warning_recorded.call_historic(kwargs=warning)
        if session.shouldfail or session.shouldstop:
            while os.read(queue, 1 << 16):  # nobody takes any more
                pass
    if missing and not session.shouldfail and not session.shouldstop:
        session.shouldfail = "a process ended early; without a result: " + " ".join(missing)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def work(session: pytest.Session, name: str, queue: int, results: Connection) -> None:
    """Run what the queue has, in a copy of the process, and end."""
    global worker
    worker = name
    status = 1
    try:
        config = session.config
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # into files of its own
        capture.start_global_capturing()
        capture.suspend_global_capture(in_=True)
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(kept := Kept(config))
        numbers = taken(queue)
        number = next(numbers, None)
        while number is not None:
            following = next(numbers, None)
            item = session.items[number]
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=None if following is None else session.items[following]
            )
            results.send((item.nodeid, *kept.take()))
            number = following
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def taken(queue: int) -> Iterator[int]:
    """The numbers of the tests that nobody else has taken."""
    while lot := os.read(queue, 8):
        yield from range(int.from_bytes(lot[:4]), int.from_bytes(lot[4:]))


class Kept:
    """What became of the test that runs."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[object] = []
        self.warned: list[dict[str, object]] = []

    def take(self) -> tuple[list[object], list[dict[str, object]]]:
        """Hand over what there is."""
        taken = self.reports, self.warned
        self.reports, self.warned = [], []
        return taken

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report."""
        self.reports.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Keep a warning, without the object that it is about."""
        found = warning_message
        plain = warnings.WarningMessage(str(found.message), found.category, found.filename, found.lineno)
        self.warned.append({"warning_message": plain, "when": when, "nodeid": nodeid, "location": location})
