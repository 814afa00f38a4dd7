"""The process that ends jobs when tarkit is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import ValueJob
from tarkit.jobs.strays import marked_environment, new_mark
from tarkit.jobs.values import Value
from tarkit.streams.process import ForkedChild
from tarkit.streams.tempfile import TemporaryFile
from tests._tools import gone
from tests.jobs.test_map_shards import run_job

VALUE = Value("v", 0, "v", "v", "")


def test_jobs_run_without_it(here: Path) -> None:
    """Programs and pipelines are run as before when the guard has been killed."""
    guard = ProcessGuard()
    os.kill(guard._program.pid, signal.SIGKILL)
    assert guard._program.wait() == -signal.SIGKILL
    steps = (("bash", "-c", ":>first; echo done"), ("cat",))
    outcome = run_job(ValueJob(VALUE, steps), guard=guard)
    assert outcome.status == 0
    assert isinstance(outcome.output, TemporaryFile)
    assert outcome.output.read(0, 99) == b"done\n"
    assert Path("first").exists()
    guard.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not tell environments")
def test_a_process_that_starts_as_tarkit_is_killed() -> None:
    """A step is ended by the mark of its job when it has started, and its process was not told yet."""
    guard, marks = ProcessGuard(), [new_mark(), new_mark()]
    running = [
        subprocess.Popen(["sleep", "600"], process_group=0, env=marked_environment(mark))  # type: ignore[call-overload]
        for mark in marks
    ]
    for mark in marks:
        guard.began(mark)
    guard.ended(marks[1:])
    guard.close()
    assert running[0].wait() == -signal.SIGTERM
    assert running[1].poll() is None
    running[1].kill()
    running[1].wait()


@pytest.mark.forks
def test_a_copy_tells_of_itself() -> None:
    """A copy is known before it works, whatever happens to the process that makes it."""
    read, write = os.pipe()
    child = ForkedChild(
        lambda: 0, [write], [], stdin=-1, stdout=-1, stderr=2, began=lambda pid: os.write(write, b"%d" % pid)
    )
    assert child.wait() == 0
    assert os.read(read, 99) == b"%d" % child.pid
    os.close(read)
    os.close(write)


def test_programs_that_are_missing() -> None:
    """A job that did not start takes nothing from the guard; those that run are ended when it is closed."""
    guard = ProcessGuard()
    with subprocess.Popen(["sleep", "600"], process_group=0) as running:
        guard.began(running.pid)
        outcome = run_job(ValueJob(VALUE, (("no-such-program",),)), guard=guard)
        assert outcome.status == 127
        guard.close()
        assert running.wait() == -signal.SIGTERM
    assert gone(running.pid)
