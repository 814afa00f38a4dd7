"""Folders that are read before it is their turn, by threads: where a look takes long, several wait at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Scanned = tuple[list[bytes], list[bytes], Counter[str]]
"""Base names of the files and of the folders in a folder, in no order; what else is there, by kind."""


class Ahead:
    """Calls `scan` for folders, one after the other; inside of a `with`, `threads` do so for those that come next.

    What is held of them is as many folders as there are threads. An error is raised when it is the folder's turn.
    """

    def __init__(self, scan: Callable[[bytes], Scanned], threads: int) -> None:
        self._scan = scan
        self._threads = threads
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
        return self._scan(folder) if begun is None else begun.result()

    def expect(self, folders: Sequence[bytes]) -> None:
        """These folders, which lie in the one that was asked for last, will come next, in this order."""
        if self._pool is not None:
            self._coming.append(deque(folders))
            self._begin()

    def _begin(self) -> None:
        assert self._pool is not None
        for folder in islice(self._coming[-1], self._threads):
            if folder not in self._begun and len(self._begun) < self._threads:
                self._begun[folder] = self._pool.submit(self._scan, folder)

    def __enter__(self) -> Self:
        if self._threads > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads)
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
