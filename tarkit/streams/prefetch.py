"""Fetch ranges of objects of stores before their turn: neighbours in one request, many at a time, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import accumulate, pairwise
from typing import TypeVar

from tarkit.stores.reading import RangeRequest
from tarkit.streams.remote import HeldRanges, RemoteSource
from tarkit.threads import Worker

REQUESTS = 64
"""Requests that are made at a time."""

SHARE = 8
"""A gap between two ranges that one request brings is so many times smaller than between two that wait for each other,
since requests at the same time share the wait."""

GROUP = 8 << 20
"""Bytes of the ranges of a group, of the gaps between them, and of the largest range that is fetched ahead; a larger
one is read as a stream when its turn comes."""

COUNT = 1 << 12
"""Items of the largest group."""

FIRST = (16, 1 << 19)
"""Items of the first group, and bytes of them; each next one has up to twice as many."""

AHEAD = 1
"""Groups that are requested while one is in use. With it and the one before, 2 * GROUP bytes each may be in memory."""

Item = TypeVar("Item")
Group = TypeVar("Group")
Part = tuple[RemoteSource, int, int]  # an object, start and stop in it


class Groups:
    """Divides items into groups that are fetched together: small ones first, so that little is fetched in vain."""

    def __init__(self, most: int = COUNT, size: int | None = None) -> None:
        """`most` and `size` are the items and the bytes of the largest group, by default COUNT and GROUP."""
        self._most, self._most_bytes = most, GROUP if size is None else size
        self._count, self._size = FIRST[0], min(FIRST[1], self._most_bytes)

    def __call__(self, items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
        """Yield groups of items, in order; `size_of` returns the bytes of an item."""
        group, held = list[Item](), 0
        for item in items:
            size = size_of(item)
            size = size if size <= self._most_bytes else 0
            if group and (len(group) >= self._count or held + size > self._size):
                yield group
                group, held = [], 0
                self._count = min(2 * self._count, self._most)
                self._size = min(2 * self._size, self._most_bytes)
            group.append(item)
            held += size
        if group:
            yield group


def fetch_ahead(groups: Iterator[Group], parts_of: Callable[[Group], Iterable[Part]]) -> Iterator[Group]:
    """Yield groups in order, each once the bytes of its ranges are in memory, where its objects read them.

    They stay there until the group after the next one is asked for; then they would be requested again.
    """
    waiting: deque[tuple[Group, list[_Request]]] = deque()
    passed, held = _Held(), _Held()
    worker = Worker("fetch", REQUESTS)
    try:
        while True:
            while len(waiting) <= AHEAD and (group := next(groups, None)) is not None:
                parts = merged(parts_of(group))
                waiting.append((group, [(part[0], part[1], part[0].request(*part[1:], worker)) for part in parts]))
            if not waiting:
                return
            group, requests = waiting[0]
            following = _Held()
            following.wait_for(requests)
            waiting.popleft()
            passed.drop()
            passed, held = held, following
            yield group
    finally:
        passed.drop()
        held.drop()
        for _, requests in waiting:
            for _, _, request in requests:
                request.close()
        worker.end(0)


_Request = tuple[RemoteSource, int, RangeRequest]


class _Held:
    """The bytes of a group, which its objects read."""

    def __init__(self) -> None:
        self._ranges: dict[RemoteSource, HeldRanges] = {}

    def wait_for(self, requests: Iterable[_Request]) -> None:
        """Wait for the bytes, and give them to their objects. Raises an exception of reading."""
        pieces: dict[RemoteSource, list[tuple[int, bytes]]] = {}
        for source, start, request in requests:
            with closing(request):
                pieces.setdefault(source, []).append((start, request.result()))
        for source, found in pieces.items():
            self._ranges[source] = HeldRanges(found)
            source.held.append(self._ranges[source])

    def drop(self) -> None:
        for source, ranges in self._ranges.items():
            source.drop(ranges)
        self._ranges.clear()


def merged(parts: Iterable[Part]) -> list[Part]:
    """Return ranges that one request each brings, in the order of their first use: neighbours are one.

    A range of more than GROUP bytes is left out. The smallest gaps are read through: of up to a SHARE of the gap of
    the object each, and of GROUP bytes in all.
    """
    order: dict[RemoteSource, int] = {}
    wanted = sorted(
        (order.setdefault(source, len(order)), start, stop, at)
        for at, (source, start, stop) in enumerate(parts)
        if 0 < stop - start <= GROUP
    )
    sources = list(order)
    most = [source.gap // SHARE for source in sources]
    gaps = sorted(b[1] - a[2] for a, b in pairwise(wanted) if a[0] == b[0] and 0 < b[1] - a[2] <= most[a[0]])
    limit = max((gap for gap, total in zip(gaps, accumulate(gaps), strict=True) if total <= GROUP), default=0)
    pieces: list[tuple[int, int, int, int]] = []  # first use, number of the object, start, stop
    for number, start, stop, at in wanted:
        if pieces:
            first, last, begin, end = pieces[-1]
            if last == number and start <= end + min(limit, most[number]) and max(end, stop) - begin <= 2 * GROUP:
                pieces[-1] = min(first, at), number, begin, max(end, stop)
                continue
        pieces.append((at, number, start, stop))
    return [(sources[number], start, stop) for _, number, start, stop in sorted(pieces)]
