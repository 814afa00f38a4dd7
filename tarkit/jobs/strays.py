"""Processes of a job that have left the groups of its steps, for a session of their own: they end with the job as well.

A job that is ended is searched for them: descendants of its steps, and processes whose environment has the mark of the
job, which daemons have too, whose parent is gone. Only a process that has neither, since it was started with an empty
environment and its parent has ended, is not found. Without /proc none is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from itertools import count

from tarkit.streams.command import PATIENCE, family, send, start_of

VARIABLE = b"TARKIT_JOB"
ROUNDS = 20  # in which processes are killed that others start meanwhile
PAUSE = 0.01  # seconds between two looks

_RUN = os.urandom(6).hex()
_numbers = count()

Strays = dict[int, bytes]
"""Processes, each with the time of its start: a number may be used again."""


def new_mark() -> bytes:
    """Return the mark of a new job: the mark of the job of this process, if any, and a new one."""
    return os.environb.get(VARIABLE, b"") + f"{os.getpid()}.{_RUN}.{next(_numbers)};".encode()


def marked_environment(mark: bytes) -> dict[bytes, bytes]:
    """Return the environment of this process, with the mark of a job."""
    return {**os.environb, VARIABLE: mark}


def take_mark(mark: bytes) -> None:
    """Have this process, which is a copy, pass on the mark of a job."""
    os.environb[VARIABLE] = mark


def mark_of(pid: int) -> bytes:
    """Return the mark of a process, b"" if it has none that can be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return b""
    return next((word[len(VARIABLE) + 1 :] for word in words if word.startswith(VARIABLE + b"=")), b"")


def find_strays(leaders: Sequence[int], marks: Iterable[bytes]) -> Strays:
    """Return processes of steps that are in none of their groups; `leaders` are the steps, `marks` those of jobs.

    The oldest come first: a shell is ended before the command that it waits for, else it would go on with the next one.
    """
    job_marks = tuple(filter(None, marks))
    pids = {pid for leader in leaders for pid in family(leader)}
    if job_marks:
        try:
            pids.update(int(name) for name in os.listdir("/proc") if name.isdigit() and _has(int(name), job_marks))
        except OSError:
            pass
    states = {pid: start for pid in pids - {os.getpid()} if (start := start_of(pid))}
    by_age = sorted(states, key=lambda pid: (int(states[pid]), pid))
    return {pid: states[pid] for pid in by_age if _group(pid) not in leaders}


def end_strays(strays: Strays, marks: Sequence[bytes], limit: float) -> None:
    """Kill processes that still run at `limit`, a time of `time.monotonic`, and what they have started meanwhile."""
    while any(map(_runs, strays.items())) and time.monotonic() < limit:
        time.sleep(PAUSE)
    for _ in range(ROUNDS):
        remaining = [pid for pid, start in (strays | find_strays((), marks)).items() if _runs((pid, start))]
        if not remaining:
            return
        send(remaining, signal.SIGKILL)
        time.sleep(PAUSE)


def end_processes(leaders: Sequence[int], jobs: Iterable[bytes]) -> None:
    """End steps that belong to another process, which was killed: SIGTERM to all that they started, then SIGKILL.

    `jobs` are marks of jobs, of which a step may have started that is not among the `leaders`.
    """
    own_mark = os.environb.get(VARIABLE, b"")
    marks = {*jobs, *(mark_of(pid) for leader in leaders for pid in family(leader))} - {b"", own_mark}
    strays = find_strays(leaders, marks)
    groups = [-pid for pid in leaders]
    send([*groups, *strays], signal.SIGTERM)
    limit = time.monotonic() + PATIENCE
    started = {pid: start_of(pid) for pid in leaders}
    while any(map(_runs, started.items())) and time.monotonic() < limit:
        time.sleep(PAUSE)
    send(groups, signal.SIGKILL)
    end_strays(strays, list(marks), limit)


def _has(pid: int, marks: tuple[bytes, ...]) -> bool:
    return mark_of(pid).startswith(marks)


def _runs(process: tuple[int, bytes]) -> bool:
    return start_of(process[0]) == process[1] != b""


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
