"""Where an archive goes on behind damage, without the loss of what is still wanted of a stream."""

from __future__ import annotations

from collections.abc import Callable

from tarkit.samples.sample import Source
from tarkit.streams import source as streams
from tarkit.tar.resume import find_entry


def find_beyond(source: Source, header: int, kept: int, passed: Callable[[int], None] | None) -> int | None:
    """Where it goes on behind the damaged header at `header`, as `find_entry` finds it; None if nowhere.

    Of a stream, so much is looked at that its bytes from `kept` on, which are still wanted, stay in memory with it.
    """
    reach = 1 << 62 if source.seekable else streams.HELD // 4 - (header - kept)
    return find_entry(source, header, reach, passed)
