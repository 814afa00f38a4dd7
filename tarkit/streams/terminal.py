"""The terminal that a progress bar shares with what commands and outputs write there: the bar is hidden meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import IO

from tarkit.streams.copy import write_all

TAIL = 2000  # bytes of the end of stderr that are kept
_HELD = 1 << 16  # bytes of a line that has not ended


def nothing_hidden() -> AbstractContextManager[bool]:
    """Return the context where nothing shows progress."""
    return nullcontext(False)


hide_progress: Callable[[], AbstractContextManager[bool]] = nothing_hidden
"""Hides what shows progress on the terminal for the time of a block; the value is whether there is something.

The command line sets it when it shows progress. Any thread may call it."""


def progress_hidden() -> AbstractContextManager[bool]:
    """Return the context in which other text is written to the terminal."""
    return hide_progress()


def write_beside(data: bytes, last: bool = True) -> bytes:
    """Write data to stderr; beside a progress bar whole lines only, unless it is the last. A closed stderr is no error.

    Returns:
        The rest, which is to be written later.
    """
    with progress_hidden() as hidden:
        stop = len(data)
        if hidden and not data.endswith(b"\n"):
            if last or len(data) > _HELD:
                data += b"\n" if data else b""
                stop = len(data)
            else:
                stop = data.rfind(b"\n") + 1
        try:
            write_all(2, data[:stop])
        except OSError:
            pass
    return data[stop:]


class PassedOn:
    """The stderr of a command, which a thread reads from a pipe and writes to stderr; `tail` is its end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.tail = b""
        self._pipe = pipe  # open as long as the thread reads
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        fd, rest = self._pipe.fileno(), b""
        while data := os.read(fd, 4096):
            self.tail = (self.tail + data)[-TAIL:]
            rest = write_beside(rest + data, last=False)
        write_beside(rest)

    def join(self, patience: float) -> None:
        """Wait at most that many seconds for its end: a process that the command has left may still hold it."""
        self._thread.join(patience)
