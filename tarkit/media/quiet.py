"""Keep quiet what C libraries write to stderr about damage, which is reported otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Discard what is written to descriptor 2 meanwhile, by all threads."""
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, 2)
        os.close(null)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
