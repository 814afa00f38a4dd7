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
from tarkit.jobs.job import TAIL, Counts, JobOutcome, Relay, ValueJob, make_directories, utc_now
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


def _try(call: Callable[[], Counts]) -> tuple[Counts | None, bytes]:
    """Return the counts of a call; or None, and the bytes for stderr: a message, or a traceback."""
    try:
        return call(), b""
    except (Exception, SystemExit) as error:
        if isinstance(error, (TarkitError, OSError)):
            text = message_text(str(error), getattr(error, "hint", None))
        else:
            from traceback import format_exception

            text = "".join(format_exception(error))
        return None, text.encode("utf-8", "backslashreplace")


def call_here(job: ValueJob, attempt: int, relay: Relay) -> JobOutcome:
    """Call the function of a job in this process, where nothing can end it; only an error is passed to `relay`."""
    started, start = time.monotonic(), utc_now()

    def call() -> Counts:
        make_directories(job)
        assert job.call is not None
        return job.call()

    counts, said = _try(call)
    for line in said.splitlines():
        relay(job, line)
    seconds, status, tail = time.monotonic() - started, int(counts is None), said[-TAIL:].decode().strip()
    outcome = JobOutcome(status, seconds, None, None, attempt, start=start, tail=tail)
    if counts is not None:
        outcome.samples, outcome.bytes, outcome.joined = counts.samples, counts.bytes, counts.joined
    return outcome


def call_apart(call: Callable[[], Counts], report: int) -> int:
    """Do a call in a process of its own; write its counts to descriptor `report`, and return the status."""
    counts, said = _try(call)
    if counts is None:
        os.write(2, said)
        return 1
    os.write(report, json.dumps(counts._asdict()).encode())
    return 0


def call_input(report: int, path: list[str]) -> None:
    """Do the call that is pickled in stdin, with this search path; `report` is as for `call_apart`."""
    sys.path[:] = path
    os.set_inheritable(report, False)
    catch_signals()
    with open(0, "rb") as file:
        data = file.read()
    try:
        raise SystemExit(call_apart(PickledCall(data), report))
    except Interrupted as error:
        die(error.signum)


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
