"""Files that the system does not have in its cache: it is asked to read them before their turn, many at a time.

A program that reads one small file after another waits for the disk each time, and a disk works on many requests at
once. `posix_fadvise` makes them without a thread: 9 us a file, and 3 us for one that is in the cache after all. Reading
100 000 files of 1 kB takes a third of the time.

The system counts the blocks that a thread had it read from disks. So nothing is asked for while files are in the cache,
and what other programs do on the machine does not matter.
"""

from __future__ import annotations

import os
import resource
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from tarkit.errors import TarkitError
from tarkit.streams.source import FileSource

EVERY = 32
"""Items that are asked for together."""

GROUPS = 16
"""Groups of EVERY items that are asked for before their turn."""

MEMORY = 16 << 20
"""Bytes of these items from which on no more are asked for."""

MOST = 1 << 20
"""Bytes of an item that are asked for: behind these the system reads ahead by itself."""

_THREAD = getattr(resource, "RUSAGE_THREAD", None) if hasattr(os, "posix_fadvise") else None

Item = TypeVar("Item")


class ColdFiles:
    """Asks for files before their turn while they come from a disk; one object for all files of a run.

    Attributes:
        cold: whether the latest files came from a disk.
    """

    def __init__(self) -> None:
        self.cold = False

    def ahead(self, items: Iterable[Item], ask: Callable[[Item], int], every: int = EVERY) -> Iterator[Item]:
        """Yield items in order. While they are cold, up to GROUPS * `every` items are taken before their turn.

        Args:
            items: what is read by the caller, in this thread, before the next item is requested.
            ask: asks the system for an item, and returns the bytes that it takes; see `ask_for_file`.
            every: how many items are asked for together.
        """
        if _THREAD is None:
            yield from items
            return
        rest = iter(items)
        if self.cold:
            yield from self._asked(rest, ask, every)
        before = _blocks()
        for item in rest:
            yield item
            yield from islice(rest, every - 1)
            after = _blocks()
            if after > before:
                self.cold = True
                yield from self._asked(rest, ask, every)
                after = _blocks()
            before = after

    def _asked(self, rest: Iterator[Item], ask: Callable[[Item], int], every: int) -> Iterator[Item]:
        """Yield items, each asked for, until those of a group are all in the cache.

        An error of the items is raised in its turn, as it is without this.
        """
        waiting: deque[tuple[list[Item], int]] = deque()
        held = 0
        failure: Exception | None = None
        while True:
            while self.cold and failure is None and len(waiting) < GROUPS and held < MEMORY:
                group: list[Item] = []
                try:
                    group.extend(islice(rest, every))
                except Exception as error:
                    failure = error
                before = _blocks()
                size = sum(map(ask, group))
                if not group:
                    break
                self.cold = _blocks() > before
                waiting.append((group, size))
                held += size
            if not waiting:
                break
            group, size = waiting.popleft()
            held -= size
            yield from group
        if failure is not None:
            raise failure


def ask_for_file(path: bytes) -> int:
    """Ask for a file; return the bytes that are read. What cannot be read is reported in its turn.

    Nothing but a regular file is opened: the writer of a FIFO would see a reader, and lose it.
    """
    try:
        status = os.stat(path)
        if not status.st_size or not stat.S_ISREG(status.st_mode):
            return 0
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.posix_fadvise(fd, 0, MOST, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)
    except OSError:
        return 0
    return min(status.st_size, MOST)


def ask_for_range(source: object, start: int, stop: int) -> int:
    """Ask for a range of an archive if it is a file; return the bytes that are read."""
    if not isinstance(source, FileSource):
        return 0
    size = min(stop - start, MOST)
    try:
        source.will_need(start, size)
    except (OSError, TarkitError):  # it was replaced or changed
        return 0
    return size


def _blocks() -> int:
    """Return how many blocks this thread had the system read from disks."""
    return resource.getrusage(_THREAD).ru_inblock  # type: ignore[arg-type]
