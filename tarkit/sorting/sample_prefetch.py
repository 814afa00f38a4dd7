"""Fetch samples of objects of stores before their turn: many requests at a time, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tarkit.sorting.ranges import RangeList, size_of
from tarkit.sorting.runs import Record
from tarkit.streams.source import RequestedRange

MEMORY = 64 << 20
"""Bytes of samples that are held or requested, with the one that is in use."""

REQUESTS = 16
"""Samples that are requested at a time."""

LARGEST = MEMORY // 4
"""Bytes of the largest sample that is fetched ahead; a larger one is read as a stream when its turn comes."""


def prefetch_samples(records: Iterator[Record], places: RangeList) -> Iterator[Record]:
    """Return the records; those of samples in objects come with their bytes, which were requested ahead."""
    return _fetched(records, places) if places.remote else records


def _fetched(records: Iterator[Record], places: RangeList) -> Iterator[Record]:
    waiting: deque[tuple[Record, list[RequestedRange] | None, int]] = deque()
    held, ended = 0, False
    try:
        while True:
            while not ended and len(waiting) < REQUESTS and held <= MEMORY - LARGEST:
                record = next(records, None)
                if record is None:
                    ended = True
                    break
                size = size_of(record[2])
                requests = places.request(record[2]) if record[3] is None and 0 < size <= LARGEST else None
                waiting.append((record, requests, size if requests else 0))
                held += size if requests else 0
            if not waiting:
                return
            (rank, ordinal, place, blob), requests, size = waiting[0]
            if requests:
                blob = b"".join([each.result() for each in requests])
            waiting.popleft()
            del requests
            yield rank, ordinal, place, blob
            held -= size
            if blob is None:
                places.free(place)
            del blob
    finally:
        for _, unused, _ in waiting:
            for each in unused or ():
                each.close()
