"""Records in the order of their bytes, any number of them, in compact form: sorted runs, in memory and then on disk.

A record is `rank, ordinal, rest` in one object of bytes (`pack`), so that the order of records is the order of their
bytes: by rank, then by ordinal. New records are collected, sorted, divided into blocks, and each block is marshalled:
that is a run. A record in memory takes 5 bytes beside its own. Runs beyond the memory given are merged to one on disk.
To read, runs are merged block by block: sorting a list of sorted parts takes a fraction of the time of comparing the
first records of all runs for each record (external merge sort: Knuth, TAOCP 3, 5.4).
"""

from __future__ import annotations

import marshal
import os
import resource
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct

from tarkit.streams.copy import CHUNK
from tarkit.streams.tempfile import TemporaryFile

MOST_RUNS = 256  # merged at once: each may have an open file
BUFFER = 1 << 16  # bytes of memory for the block of a run that is being merged
BATCH = 256  # records of a block
UNSORTED = 4 << 20  # bytes of records that are sorted together
COST = 64  # bytes of memory of a record besides its own, until it is marshalled

HEAD = Struct(">HQ")
"""What follows the rank of a record: 0 and the ordinal."""

END = b"\0\0"  # of a rank
_BEFORE = HEAD.size
_ORDINAL = Struct(">Q").unpack_from


def escape(rank: bytes) -> bytes:
    """Return a rank as it begins a record: no other is a prefix of it with the two NUL that follow."""
    return rank.replace(b"\0", b"\0\xff")


def pack(rank: bytes, ordinal: int, rest: bytes) -> bytes:
    """Return a record. An ordinal is below 2**64; `rest` is any bytes."""
    return escape(rank) + HEAD.pack(0, ordinal) + rest


def rank_of(record: bytes) -> bytes:
    """Return the rank of a record."""
    return record[: record.index(END)].replace(b"\0\xff", b"\0")


def ordinal_of(record: bytes) -> int:
    """Return the ordinal of a record."""
    return int(_ORDINAL(record, record.index(END) + 2)[0])


def rest_of(record: bytes) -> bytes:
    """Return the rest of a record."""
    return record[record.index(END) + _BEFORE :]


def without_rank(record: bytes) -> bytes:
    """Return the record with an empty rank."""
    return record[record.index(END) :]


def rests_of(records: list[bytes]) -> list[bytes]:
    """Return the rest of each record."""
    return [record[record.index(END) + _BEFORE :] for record in records]


class SortedRun:
    """Sorted records in blocks, in memory or in a temporary file.

    Attributes:
        file: the temporary file; None in memory.
        level: how often its records were merged.
        size: bytes of the blocks.
    """

    def __init__(self, level: int, file: TemporaryFile | None) -> None:
        self.file = file
        self.level = level
        self.size = 0
        self._blocks: list[bytes] = []
        self._extents = array("Q")  # of the blocks in the file: start, stop, start, ...

    def append(self, records: list[bytes]) -> None:
        """Append a block, at the current position of the file."""
        block = marshal.dumps(records, 2)  # 2: without references, which take time
        self.size += len(block)
        if self.file is None:
            self._blocks.append(block)
        else:
            start = os.lseek(self.file.fd, 0, os.SEEK_CUR)
            self.file.write(block)
            self._extents.extend((start, start + len(block)))

    def blocks(self) -> Iterator[list[bytes]]:
        """Yield the blocks. The system reads ahead meanwhile."""
        for block in self._blocks:
            yield marshal.loads(block)
        file, extents = self.file, self._extents
        for at in range(0, len(extents), 2):
            assert file is not None
            start, stop = extents[at], extents[at + 1]
            if hasattr(os, "posix_fadvise") and at + 3 < len(extents):
                os.posix_fadvise(file.fd, stop, min(extents[at + 3] - stop, 2 * CHUNK), os.POSIX_FADV_WILLNEED)
            yield marshal.loads(file.read(start, stop))

    def drain(self) -> Iterator[list[bytes]]:
        """Yield the blocks, and free the memory of each."""
        if self.file is not None:
            yield from self.blocks()
        self._blocks.reverse()
        while self._blocks:
            yield marshal.loads(self._blocks.pop())


class SortedRuns:
    """Records of `pack`, to be read in order, any number of times, within `memory` bytes."""

    def __init__(self, tmpdir: str | None, memory: int) -> None:
        self.count = 0
        self._tmpdir = tmpdir
        self._memory = memory
        self._latest: list[bytes] = []
        self._unsorted = 0  # bytes of memory of these
        self._sorted = 0  # and of the runs in memory
        self._beside = 0  # and of other data of the records in memory
        self._runs: list[SortedRun] = []
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = max(2, min(MOST_RUNS, memory // 2 // BUFFER, MOST_RUNS if files < 0 else files // 4))

    @property
    def on_disk(self) -> bool:
        """Whether there are runs on disk."""
        return any(run.file is not None for run in self._runs)

    def extend(self, records: list[bytes], beside: int = 0) -> None:
        """Add records; `beside` is how many bytes of memory belong to them besides."""
        self.count += len(records)
        self._latest += records
        self._unsorted += sum(map(len, records)) + COST * len(records)
        self._beside += beside
        if self._unsorted > min(UNSORTED, self._memory // 4):
            self._sort()
        if self._unsorted + self._sorted + self._beside > self._memory:
            self.spill()

    def spill(self) -> None:
        """Write the records in memory to a run on disk."""
        self._sort()
        held = [run for run in self._runs if run.file is None]
        if held:
            self._runs = [run for run in self._runs if run.file is not None]
            self._merge(held, 0, TemporaryFile(self._tmpdir))
            self._sorted = self._beside = 0
            self._limit(on_disk=True)

    def blocks(self) -> Iterator[list[bytes]]:
        """Yield the records in order, in lists."""
        if self.on_disk:
            self.spill()
        self._sort()
        return merge(run.blocks() for run in self._runs)

    def unordered(self) -> Iterator[list[bytes]]:
        """Yield the records in any order, in lists."""
        self._sort()
        for run in self._runs:
            yield from run.blocks()

    def moved(self, records: list[bytes], run: SortedRun) -> Iterator[list[bytes]]:
        """Move data that belong to records along with them to the file of a run; yield the new records, in parts.

        Here it is nothing. The ranks and ordinals stay.
        """
        yield records

    def _sort(self) -> None:
        if self._latest:
            records, self._latest, self._unsorted = self._latest, [], 0
            records.sort()
            run = SortedRun(0, None)
            for part in _divided(records):
                run.append(part)
            self._runs.append(run)
            self._sorted += run.size
            self._limit(on_disk=False)

    def _limit(self, on_disk: bool) -> None:
        """Merge runs of one level into one of the next, where there are too many."""
        for level in range(64):
            full = [run for run in self._runs if run.level == level and (run.file is not None) is on_disk]
            if len(full) < self._most:
                break
            self._runs = [run for run in self._runs if run not in full]
            self._merge(full, level + 1, TemporaryFile(self._tmpdir) if on_disk else None)

    def _merge(self, runs: list[SortedRun], level: int, file: TemporaryFile | None) -> None:
        """Make one run of several, which are removed."""
        merged = SortedRun(level, file)
        waiting: list[bytes] = []
        size = 0
        for block in merge(run.drain() for run in runs):
            waiting += block
            size += sum(map(len, block))
            if len(waiting) >= BATCH or size > BUFFER // 4:
                self._append(waiting, merged)
                waiting, size = [], 0
        self._append(waiting, merged)
        self._runs.append(merged)
        for run in runs:
            if run.file is not None:
                run.file.close()

    def _append(self, records: list[bytes], run: SortedRun) -> None:
        for part in _divided(records):
            for block in (part,) if run.file is None else self.moved(part, run):
                run.append(block)


def merge(runs: Iterable[Iterator[list[bytes]]]) -> Iterator[list[bytes]]:
    """Yield the records of sorted runs, given in blocks, in order, in lists.

    Records up to the smallest last record of the current blocks are complete. A run of which less than
    half is left in memory gets its next block: then each round takes many records of every run, and not one block of
    one run.
    """
    heads = [(block, 0, rest) for rest in runs if (block := next(rest, None))]  # `block` from 0 on, and the rest
    while len(heads) > 1:
        bound = min([block[-1] for block, _, _ in heads])
        records: list[bytes] = []
        following = []
        for block, at, rest in heads:
            if block[at] <= bound:
                stop = bisect_right(block, bound, at)
                records += block[at:stop]
                block, at = (block, stop) if 2 * stop <= len(block) else (block[stop:] + next(rest, []), 0)
            if block:
                following.append((block, at, rest))
        heads = following
        records.sort()
        yield records
    for block, at, rest in heads:
        yield block[at:]
        yield from rest


def _divided(records: list[bytes]) -> Iterator[list[bytes]]:
    """Yield records in blocks for `BUFFER`."""
    count = len(records)
    if count > BATCH or (count > 1 and sum(map(len, records)) > BUFFER // 4):
        yield from _divided(records[: count // 2])
        yield from _divided(records[count // 2 :])
    elif records:
        yield records
