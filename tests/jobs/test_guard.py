"""The process that ends jobs when tarkit is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import ValueJob
from tarkit.jobs.process import run_job
from tarkit.jobs.values import Value
from tarkit.streams.tempfile import TemporaryFile
from tests._tools import gone

VALUE = Value("v", 0, "v", "v", "")


def test_jobs_run_without_it(here: Path) -> None:
    """Programs and pipelines are run as before when the guard has been killed."""
    guard = ProcessGuard()
    os.kill(guard._program.pid, signal.SIGKILL)
    assert guard._program.wait() == -signal.SIGKILL
    steps = (("bash", "-c", ":>first; echo done"), ("cat",))
    outcome = run_job(ValueJob(VALUE, steps), began=guard.began)
    assert outcome.status == 0
    assert isinstance(outcome.output, TemporaryFile)
    assert outcome.output.read(0, 99) == b"done\n"
    assert Path("first").exists()
    guard.close()


def test_programs_that_are_missing() -> None:
    """A job that did not start takes nothing from the guard; those that run are ended when it is closed."""
    guard = ProcessGuard()
    with subprocess.Popen(["sleep", "600"], process_group=0) as running:
        guard.began(running.pid)
        outcome = run_job(ValueJob(VALUE, (("no-such-program",),)), began=guard.began)
        assert outcome.status == 127
        guard.ended(())
        guard.close()
        assert running.wait() == -signal.SIGTERM
    assert gone(running.pid)
