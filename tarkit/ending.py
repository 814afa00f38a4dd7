"""How tarkit ends: what is cleaned up on every way out, and the signals that ask for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from tarkit.errors import Interrupted

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def die(signum: int) -> NoReturn:
    """Die of a signal, so that whoever started us sees it."""
    _last_act("tarkit.streams.sink_plain", "discard_unfinished")
    clean_up()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    raise SystemExit(128 + signum)


def clean_up() -> None:
    """End the commands that still run, and remove the directories of samples."""
    _last_act("tarkit.streams.command", "end_commands")
    _last_act("tarkit.work.place", "remove_places")


def _last_act(module: str, name: str) -> None:
    """Call a function that cleans up, unless its module was never needed, or the signal came before it was loaded."""
    function = getattr(sys.modules.get(module), name, None)
    if function is not None:
        function()


def catch_signals() -> None:
    """Let INT, TERM and HUP end us through all that cleans up, unless they are ignored."""

    ending = False

    def interrupt(signum: int, frame: object) -> None:
        nonlocal ending
        command = sys.modules.get("tarkit.streams.command")
        # whoever is impatient must not keep us from cleaning up
        if not ending and not (command and command.kept_back(signum)):
            ending = True
            raise Interrupted(signum)

    def lost() -> None:
        nonlocal ending
        ending = False

    caught = [getattr(signal, name) for name in SIGNALS if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN]
    for signum in caught:
        signal.signal(signum, interrupt)
    _send_again(lost)


def _send_again(lost: Callable[[], None]) -> None:
    """From now on a signal is sent once more whose `Interrupted` was raised where nothing can be, such as in __del__.

    `lost` is called just before, in a thread.
    """

    def hook(said: sys.UnraisableHookArgs) -> None:
        if not isinstance(said.exc_value, Interrupted):
            sys.__unraisablehook__(said)
            return
        signum = said.exc_value.signum

        def send() -> None:
            lost()
            os.kill(os.getpid(), signum)

        threading.Timer(0.01, send).start()

    sys.unraisablehook = hook
