"""Fetch samples of objects of stores before their turn: many requests at a time, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tarkit.pipeline.places import Place, size_of
from tarkit.pipeline.ranges import RangeList

if TYPE_CHECKING:
    from tarkit.stores.reading import RangeRequest

MEMORY = 64 << 20
"""Bytes of samples that are held or requested, with the one that is in use."""

REQUESTS = 16
"""Samples that are requested at a time."""

LARGEST = MEMORY // 4
"""Bytes of the largest sample that is fetched ahead; a larger one is read as a stream when its turn comes."""


Placed = tuple[bytes, Place, bytes | None]  # a record, its place, and the bytes where they are in memory


def prefetch_samples(records: Iterator[Placed], places: RangeList) -> Iterator[Placed]:
    """Yield the records; those of samples in objects come with their bytes, which were requested ahead."""
    waiting: deque[tuple[Placed, list[RangeRequest] | None, int]] = deque()
    held, ended = 0, False
    try:
        while True:
            while not ended and len(waiting) < REQUESTS and held <= MEMORY - LARGEST:
                placed = next(records, None)
                if placed is None:
                    ended = True
                    break
                size = size_of(placed[1])
                requests = places.request(placed[1]) if placed[2] is None and 0 < size <= LARGEST else None
                waiting.append((placed, requests, size if requests else 0))
                held += size if requests else 0
            if not waiting:
                return
            (record, place, blob), requests, size = waiting[0]
            if requests:
                blob = b"".join([request.result() for request in requests])
            waiting.popleft()
            del requests
            yield record, place, blob
            held -= size
            if blob is None:
                places.free(place)
            del blob
    finally:
        for _, unused, _ in waiting:
            for request in unused or ():
                request.close()
