"""What the system tells of processes, and what can be done to them from outside."""

from __future__ import annotations

import os


def at_terminal() -> bool:
    """Whether we are in the foreground of a terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def family(pid: int) -> list[int]:
    """A process and what it started, as far as the system tells (Linux)."""
    found = [pid]
    for each in found:
        try:
            with open(f"/proc/{each}/task/{each}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            pass
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def send(targets: list[int], signum: int) -> None:
    """Send a signal to processes, or to groups (negative), those that are still there."""
    for target in targets:
        try:
            os.kill(target, signum)
        except (ProcessLookupError, PermissionError):
            pass
