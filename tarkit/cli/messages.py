"""Messages on stderr, and the progress bars that are hidden while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from tarkit.cli.color import has_colors, painted_message
from tarkit.errors import message_text

bars: list[Any] = []  # the progress bar on the screen, if any


@contextmanager
def bars_hidden() -> Iterator[bool]:
    """Clear the progress bar while something else is written to the terminal, then draw it again.

    The value is True: text that does not end its line needs a line end, since a bar follows. Meanwhile no other thread
    draws the bar.
    """
    shown = list(bars)
    with ExitStack() as stack:
        for bar in shown:
            stack.enter_context(bar.get_lock())
            bar.clear(nolock=True)
        try:
            yield True
        finally:
            for bar in shown:
                bar.refresh(nolock=True)


def say(message: str, hint: str | None = None, role: Literal["error", "warning"] | None = None) -> None:
    """Write a message to stderr, and the hint on a line of its own; a closed stderr is not an error."""
    text = message_text(f"warning: {message}" if role == "warning" else message, hint)
    try:
        with bars_hidden():
            os.write(2, (painted_message(text, role) if has_colors(2) else text).encode())
    except OSError:
        pass
