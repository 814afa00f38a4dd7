"""Folders that are read before it is their turn, by threads: where a look takes long, several wait at a time.

Where it does not, as with a disk whose folders are in memory, threads would only be in each other's way.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

SLOW, SLOW_EACH = 0.005, 5e-6  # seconds for a folder, and more for each entry: one that takes longer is slow

Scanned = tuple[list[bytes], list[bytes], Counter[str]]
"""Base names of the files and of the folders in a folder, in no order; what else is there, by kind."""


class Ahead:
    """Calls `scan` for folders, one after the other; inside of a `with`, once one was slow, `threads` do so for those
    that come next.

    What is held of them is as many folders as there are threads. An error is raised when it is the folder's turn.
    """

    def __init__(self, scan: Callable[[bytes], Scanned], threads: int) -> None:
        self._scan = scan
        self._threads = threads
        self._open = False
        self._pool: ThreadPoolExecutor | None = None
        self._coming: list[deque[bytes]] = []
        self._begun: dict[bytes, Future[Scanned]] = {}

    def __call__(self, folder: bytes) -> Scanned:
        """What is in a folder."""
        while self._coming and not (self._coming[-1] and self._coming[-1][0] == folder):
            self._coming.pop()
        begun = self._begun.pop(folder, None)
        if self._coming:
            self._coming[-1].popleft()
            self._begin()
        return self._timed(folder) if begun is None else begun.result()

    def _timed(self, folder: bytes) -> Scanned:
        """What is in a folder that nobody has begun to read."""
        start = time.monotonic()
        found = self._scan(folder)
        took = time.monotonic() - start
        if self._open and self._pool is None and took > SLOW + SLOW_EACH * (len(found[0]) + len(found[1])):
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads)
            self._begin()
        return found

    def expect(self, folders: Sequence[bytes]) -> None:
        """These folders, which lie in the one that was asked for last, will come next, in this order."""
        if self._open:
            self._coming.append(deque(folders))
            self._begin()

    def _begin(self) -> None:
        if self._pool is None or not self._coming:
            return
        for folder in islice(self._coming[-1], self._threads):
            if folder not in self._begun and len(self._begun) < self._threads:
                self._begun[folder] = self._pool.submit(self._scan, folder)

    def __enter__(self) -> Self:
        self._open = self._threads > 1
        return self

    def __exit__(self, *error: object) -> None:
        self._open = False
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
