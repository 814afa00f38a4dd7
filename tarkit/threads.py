"""Whether this process has threads: a copy of it (a fork) would wait for ever for a lock that one of them holds."""

from __future__ import annotations

import threading

_native = False


def mark_native_threads() -> None:
    """Record that a library has started threads that Python does not know, and that do not end."""
    global _native  # noqa: PLW0603
    _native = True


def has_threads() -> bool:
    """Return whether this process has other threads than the one that asks."""
    return _native or threading.active_count() > 1
