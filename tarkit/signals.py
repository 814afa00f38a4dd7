"""Signals: turn them into the exception `Interrupted`, and run the cleanups before the process ends.

A signal raises `Interrupted` in the main thread, once; then `die` cleans up and ends the process by that signal. In
three situations it is not raised at once:

- inside `uninterrupted()`: it is raised at the end of the block;
- during an import, where Python and other packages replace or swallow exceptions;
- while Python's own code takes or releases a lock, which then would stay locked and block the cleanup.

In the last two cases a timer sends the signal again a little later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from tarkit.errors import Interrupted, describe_limit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RAISING = (*SIGNALS, signal.SIGALRM)  # the signals whose handlers may raise
OUTPUTS, COMMANDS, DIRECTORIES = range(3)
"""Stages of the cleanup, in order: commands are ended before the directories that they work in are removed."""

AGAIN = 0.01  # seconds until a signal that could not be raised is sent again
_IMPORT = "<frozen importlib._bootstrap>"  # file name in the frames of the import system

_cleanups: dict[int, Callable[[], None]] = {}
_ending = False
_raised = 0  # the signal that was raised last
_again: int | None = None  # the signal that the timer sends again
_outermost: FrameType | None = None


class _Shield:
    """Context manager that delays `Interrupted` in the main thread; signals raise nothing in other threads."""

    def __init__(self) -> None:
        self.depth = 0
        self.kept: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self.depth -= 1
            if self.kept and not self.depth:
                signum = self.kept[0]
                self.kept.clear()
                _interrupt(signum, sys._getframe())


_shield = _Shield()


def uninterrupted() -> _Shield:
    """Delay signals inside a `with` block, for short steps that must be complete or not begun."""
    return _shield


def catch_signals() -> None:
    """Have SIGNALS raise `Interrupted` from now on, except those that are ignored.

    Only imports that begin after the caller's frame delay a signal.
    """
    global _ending, _outermost
    _ending, _outermost = False, sys._getframe(1)
    sys.unraisablehook = _lost
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _interrupt)


def ignore_signals() -> None:
    """Ignore signals from now on, so that a second one does not interrupt the cleanup."""
    global _ending  # noqa: PLW0603
    _ending = True


def is_ending() -> bool:
    """Whether a signal ends this run."""
    return _ending


def release_signals() -> None:
    """Restore the default handlers, which end the process at once: nothing is left to clean up."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is _interrupt:
            signal.signal(signum, signal.SIG_DFL)
    if _again is not None:  # the timer has not sent it yet
        os.kill(os.getpid(), _again)


def raise_delayed() -> None:
    """Raise a signal now that the timer would send again; the error that the caller handles came after it."""
    if _again is not None and not _ending:
        ignore_signals()
        raise Interrupted(_again)


def raise_swallowed() -> None:
    """Raise a signal again whose `Interrupted` a library in C has dropped: the caller would wait on."""
    if _ending and _raised:
        raise Interrupted(_raised)


def restart_in_copy() -> None:
    """In a copy of a process: end `uninterrupted` blocks of the original, and raise the errors delayed in them."""
    delayed = _shield.kept[:]
    _shield.depth = 0
    _shield.kept.clear()
    if delayed:
        ignore_signals()
        raise Interrupted(delayed[0])


def register_cleanup(stage: int, function: Callable[[], None]) -> None:
    """Have `clean_up` call `function` at this stage: OUTPUTS, COMMANDS or DIRECTORIES."""
    _cleanups[stage] = function


def clean_up() -> None:
    """Remove unfinished outputs, end the commands that still run, and remove the directories of samples."""
    for _, function in sorted(_cleanups.items()):
        function()


def die(signum: int) -> NoReturn:
    """Clean up, then end the process by this signal, so that its parent sees the reason."""
    ignore_signals()
    clean_up()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    raise SystemExit(128 + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle a signal: raise `Interrupted`, the first time, or delay it."""
    global _raised  # noqa: PLW0603
    if _ending:
        return
    if _shield.depth:
        _shield.kept.append(signum)
    elif _locking(frame) or _loading(frame):
        _send_again(signum)
    else:
        ignore_signals()
        _raised = signum
        raise Interrupted(signum)


def _loading(frame: FrameType | None) -> bool:
    """Whether the frame is part of an import."""
    while frame is not None and frame is not _outermost:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def _locking(frame: FrameType | None) -> bool:
    """Whether the frame is code of Python's library that takes or releases a lock, and does not merely wait."""
    where, function = (frame.f_globals.get("__name__"), frame.f_code.co_name) if frame is not None else ("", "")
    if frame is not None and where == "threading":
        # Condition.wait handles an exception once it has set `gotit`
        return function not in ("wait_for", "join", "_wait_for_tstate_lock") and "gotit" not in frame.f_locals
    return (where, function) == ("subprocess", "_internal_poll")


def _lost(failure: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose `Interrupted` was lost where exceptions are dropped, such as in __del__."""
    global _ending  # noqa: PLW0603
    if isinstance(failure.exc_value, Interrupted):
        _ending = False
        _send_again(failure.exc_value.signum)
    elif failure.exc_value is None or describe_limit(failure.exc_value) is None:  # else the error itself is reported
        sys.__unraisablehook__(failure)


def _send_again(signum: int) -> None:
    """Send a signal again soon, by a timer of the system: a thread would prevent a fork."""
    global _again  # noqa: PLW0603
    _again = signum
    signal.signal(signal.SIGALRM, lambda _, frame: _interrupt(signum, frame))
    signal.setitimer(signal.ITIMER_REAL, AGAIN)
