"""Messages on stderr, and the progress bars that are hidden while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tarkit.errors import message_text

bars: list[Any] = []  # the progress bar on the screen, if any


@contextmanager
def bars_hidden() -> Iterator[None]:
    """Clear the progress bar while something else is written to the terminal, then draw it again."""
    for bar in bars:
        bar.clear()
    try:
        yield
    finally:
        for bar in bars:
            bar.refresh()


def say(message: str, hint: str | None = None) -> None:
    """Write a message to stderr, and the hint on a line of its own; a closed stderr is not an error."""
    try:
        with bars_hidden():
            os.write(2, message_text(message, hint).encode())
    except OSError:
        pass
