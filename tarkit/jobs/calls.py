"""Calls of functions as jobs: in this process, or pickled, for a new process on any machine."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tarkit.errors import Interrupted, TarkitError, message_text
from tarkit.jobs.job import Counts, JobOutcome, Relay, ValueJob, make_directories, utc_now
from tarkit.jobs.strays import take_mark
from tarkit.signals import catch_signals, clean_up, die, restart_in_copy


@dataclass(frozen=True)
class PickledCall:
    """A call of a job as it is sent to another process."""

    data: bytes

    def __call__(self) -> Counts:
        """Call it."""
        call: Callable[[], Counts] = pickle.loads(self.data)
        return call()


def call_here(job: ValueJob, attempt: int, relay: Relay) -> JobOutcome:
    """Call the function of a job in this process, where nothing can end it; only an error is passed to `relay`."""
    assert job.call is not None
    started, start = time.monotonic(), utc_now()
    status, samples, size, tail = 0, None, None, ""
    try:
        make_directories(job)
        samples, size = job.call()
    except (Exception, SystemExit) as error:
        status, tail = 1, str(error) if isinstance(error, TarkitError) else f"{type(error).__name__}: {error}"
        for line in error_text(error).encode("utf-8", "backslashreplace").splitlines():
            relay(job, line)
    return JobOutcome(status, time.monotonic() - started, samples, size, attempt, start=start, tail=tail)


def work_apart(work: Callable[[], int], mark: bytes) -> int:
    """Return the status of a step in a copy of this process; a signal ends it as it ends tarkit."""
    take_mark(mark)
    try:
        catch_signals()
        restart_in_copy()
        status = work()
        clean_up()
        return status
    except Interrupted as error:
        die(error.signum)


def call_apart(job: ValueJob, report: int) -> int:
    """Call the function of a job in a copy of this process; the outcome is written to descriptor `report`."""

    def write_line(job: ValueJob, line: bytes) -> None:
        os.write(2, line + b"\n")

    outcome = call_here(job, 1, write_line)
    facts = {"samples": outcome.samples, "bytes": outcome.bytes, "tail": outcome.tail}
    os.write(report, json.dumps(facts).encode())
    return outcome.status


def call_input(report: int, path: list[str]) -> None:
    """Call what is pickled in stdin, with this search path; samples and bytes are written to descriptor `report`."""
    sys.path[:] = path
    os.set_inheritable(report, False)
    catch_signals()
    with open(0, "rb") as file:
        data = file.read()
    try:
        samples, size = PickledCall(data)()
        os.write(report, json.dumps({"samples": samples, "bytes": size}).encode())
    except Interrupted as error:
        die(error.signum)
    except (TarkitError, OSError) as error:
        os.write(2, error_text(error).encode())
        raise SystemExit(1) from None


def error_text(error: BaseException) -> str:
    """Return what a call that raised writes to stderr: the message, or the traceback of an error of the function."""
    if isinstance(error, (TarkitError, OSError)):
        return message_text(str(error), getattr(error, "hint", None))
    from traceback import format_exception

    return "".join(format_exception(error))
