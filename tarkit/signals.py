"""How tarkit ends: what is cleaned up on every way out, and the signals that ask for it.

A signal raises `Interrupted` in the main thread, once, and `die` is what follows. Three moments must not be torn apart.
What is inside of `uninterrupted`: there it is raised at the end of the block. An import: Python and other packages make
something else of what is raised while a module loads, such as a RuntimeError or nothing. And the moment when Python's
own code takes a lock, which nobody would release: whoever cleans up would wait for it. In these two cases the signal is
sent again, a little later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from tarkit.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RAISING = (*SIGNALS, signal.SIGALRM)  # those whose handlers may raise
AGAIN = 0.01  # seconds until a signal that could not be raised is sent again
_IMPORT = "<frozen importlib._bootstrap>"  # the file of the code that loads modules, as its frames have it

_ending = False
_again: int | None = None  # a signal that is to come once more
_outermost: FrameType | None = None


class _Shield:
    """Keeps back what a signal raises in the main thread; other threads, where nothing is raised, leave it alone."""

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
    """Keep signals back inside of a `with`, for what must not be left half done and takes no time."""
    return _shield


def catch_signals(signals: Sequence[signal.Signals] = SIGNALS) -> None:
    """Let these signals raise `Interrupted` from now on, unless they are ignored; imports count from the caller on."""
    global _ending, _outermost
    _ending, _outermost = False, sys._getframe(1)
    sys.unraisablehook = _lost
    for signum in signals:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _interrupt)


def ignore_signals() -> None:
    """Let signals do nothing from now on: whoever is impatient must not keep us from cleaning up."""
    global _ending  # noqa: PLW0603
    _ending = True


def release_signals() -> None:
    """Let signals end the process at once, as they do where nobody catches them: there is nothing left to clean up."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is _interrupt:
            signal.signal(signum, signal.SIG_DFL)
    if _again is not None:  # it has not yet
        os.kill(os.getpid(), _again)


def die(signum: int) -> NoReturn:
    """Die of a signal, so that whoever started us sees it."""
    ignore_signals()
    _last_act("tarkit.streams.sink", "discard_unfinished")
    clean_up()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    raise SystemExit(128 + signum)


def clean_up() -> None:
    """End the commands that still run, and remove the directories of samples."""
    _last_act("tarkit.streams.command", "end_commands")
    _last_act("tarkit.proc.workdir", "remove_places")


def _last_act(module: str, name: str) -> None:
    """Call a function that cleans up, unless its module was never needed, or the signal came before it was loaded."""
    function = getattr(sys.modules.get(module), name, None)
    if function is not None:
        function()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Raise `Interrupted` where that can be done, the first time."""
    if _ending:
        return
    if _shield.depth:
        _shield.kept.append(signum)
    elif _locking(frame) or _loading(frame):
        _send_again(signum)
    else:
        ignore_signals()
        raise Interrupted(signum)


def _loading(frame: FrameType | None) -> bool:
    """Whether a module is being imported in a frame, or in those that called it."""
    while frame is not None and frame is not _outermost:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def _locking(frame: FrameType | None) -> bool:
    """Whether a frame of Python's own code takes a lock or gives it back, and does not merely wait."""
    where, what = (frame.f_globals.get("__name__"), frame.f_code.co_name) if frame is not None else ("", "")
    if frame is not None and where == "threading":
        # Condition.wait is prepared for an error from where it sets `gotit`
        return what not in ("wait_for", "join", "_wait_for_tstate_lock") and "gotit" not in frame.f_locals
    return (where, what) == ("subprocess", "_internal_poll")


def _lost(said: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose `Interrupted` was raised where nothing can be, such as in __del__."""
    global _ending  # noqa: PLW0603
    if isinstance(said.exc_value, Interrupted):
        _ending = False
        _send_again(said.exc_value.signum)
    else:
        sys.__unraisablehook__(said)


def _send_again(signum: int) -> None:
    """Have a signal come once more, soon. A timer of the system does that: a thread would be in the way of a fork."""
    global _again  # noqa: PLW0603
    _again = signum
    signal.signal(signal.SIGALRM, lambda _, frame: _interrupt(signum, frame))
    signal.setitimer(signal.ITIMER_REAL, AGAIN)
