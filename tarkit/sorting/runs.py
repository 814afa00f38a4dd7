"""Sort more records than memory holds: sorted runs on disk, and duplicates among any number of keys."""

from __future__ import annotations

import heapq
import os
import resource
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct

from tarkit.errors import spell
from tarkit.sorting.ranges import Place, RangeList
from tarkit.streams.copy import CHUNK, writev_all
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.writer import EntryWriter

Record = tuple[bytes, int, Place, bytes | None]
"""Rank, ordinal, place, and the bytes themselves where they are in memory."""

COST = 180  # bytes of memory of a record besides its rank and place
MOST_RUNS = 256  # merged at once: each has an open file
BUFFER = 1 << 16  # bytes of one read of a list
LEAST_SET = 1 << 20  # minimum of bytes for a set of hashes
_SIZES = Struct("<IIQ")


@dataclass(eq=False, repr=False)
class _Run:
    """Sorted records in a temporary file: the bytes of samples that were in memory, then the list, from `list` on."""

    scratch: TemporaryFile
    number: int  # of the file
    list: int
    end: int
    level: int = 0

    def __iter__(self) -> Iterator[Record]:
        """Yield the records, and have the system read the bytes ahead."""
        pos, ahead, buffer, at = self.list, 0, b"", 0
        bytes_before = 0
        while pos + at < self.end:
            if len(buffer) - at < _SIZES.size:
                pos, at, buffer = pos + at, 0, self.scratch.read(pos + at, min(pos + at + BUFFER, self.end))
            ranks, places, ordinal = _SIZES.unpack_from(buffer, at)
            size = _SIZES.size + ranks + places
            if len(buffer) - at < size:
                pos, at = pos + at, 0
                buffer = self.scratch.read(pos, min(pos + max(BUFFER, size), self.end))
            middle = at + _SIZES.size + ranks
            place = buffer[middle : at + size]
            yield buffer[at + _SIZES.size : middle], ordinal, place, None
            at += size
            if self.list and int.from_bytes(place[8:12], "little") == self.number:
                bytes_before += int.from_bytes(place[28:36], "little")
                if bytes_before >= ahead and ahead < self.list:
                    ahead = bytes_before + CHUNK
                    _read_ahead(self.scratch, ahead, CHUNK)


class Runs:
    """Records in any order, to be iterated over by rank and ordinal, any number of times.

    What does not fit into `memory` is written to disk in sorted runs; `note` is called with a message at the first.
    """

    def __init__(self, places: RangeList, memory: int, note: Callable[[str], None] = lambda text: None) -> None:
        self.count = 0
        self.held = 0  # bytes
        self._places = places
        self._memory = memory
        self._note = note
        self._ranks: list[bytes] = []
        self._ordinals = array("Q")
        self._where: list[Place] = []
        self._blobs: dict[int, bytes] = {}
        self._runs: list[_Run] = []
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = max(2, min(MOST_RUNS, memory // 2 // BUFFER, MOST_RUNS if files < 0 else files // 4))

    @property
    def on_disk(self) -> bool:
        """Whether there are runs on disk."""
        return bool(self._runs)

    def add(self, rank: bytes, ordinal: int, place: Place, blob: bytes | None = None) -> None:
        """Add a record."""
        if blob is not None:
            self._blobs[len(self._ranks)] = blob
            self.held += len(blob) + 128
        self._ranks.append(rank)
        self._ordinals.append(ordinal)
        self._where.append(place)
        self.count += 1
        self.held += COST + len(rank) + len(place)
        if self.held > self._memory:
            self.spill()

    def extend(self, ranks: list[bytes], ordinal: int, places: list[Place]) -> None:
        """Add records with consecutive ordinals from `ordinal` on."""
        self._ranks += ranks
        self._ordinals.extend(range(ordinal, ordinal + len(ranks)))
        self._where += places
        self.count += len(ranks)
        self.held += COST * len(ranks) + sum(map(len, ranks)) + sum(map(len, places))
        if self.held > self._memory:
            self.spill()

    def _order(self) -> list[int]:
        ordinals, ranks = self._ordinals, self._ranks
        order = range(len(ranks))
        rising = all(map(int.__lt__, ordinals, ordinals[1:]))
        return sorted(order if rising else sorted(order, key=ordinals.__getitem__), key=ranks.__getitem__)

    def spill(self) -> None:
        """Write the records in memory to a run, and the bytes of their samples."""
        if not self._ranks:
            return
        scratch = TemporaryFile(self._places.tmpdir)
        number = self._places.add_file(scratch)
        order = self._order()
        pieces: list[bytes] = []
        offset = gathered = 0
        for index in order:
            blob = self._blobs.pop(index, None)
            if blob is None:
                continue
            self._where[index] = self._places.moved(self._where[index], number, offset)
            offset += len(blob)
            pieces.append(blob)
            gathered += len(blob)
            if gathered > CHUNK:
                _flush(scratch, pieces)
                gathered = 0
        _flush(scratch, pieces)
        self._places.stored += offset
        records = ((self._ranks[index], self._ordinals[index], self._where[index]) for index in order)
        self._finish(scratch, number, offset, records, 0)
        self._ranks, self._ordinals, self._where, self._blobs, self.held = [], array("Q"), [], {}, 0
        for level in range(64):
            if sum(run.level == level for run in self._runs) < self._most:
                break
            self._merge_level(level)

    def _finish(
        self, scratch: TemporaryFile, number: int, offset: int, records: Iterator[tuple[bytes, int, Place]], level: int
    ) -> None:
        """Write the list of a run after its bytes."""
        pieces: list[bytes] = []
        end, gathered = offset, 0
        for rank, ordinal, place in records:
            pieces += (_SIZES.pack(len(rank), len(place), ordinal), rank, place)
            gathered += _SIZES.size + len(rank) + len(place)
            if gathered > BUFFER:
                _flush(scratch, pieces)
                end, gathered = end + gathered, 0
        _flush(scratch, pieces)
        self._runs.append(_Run(scratch, number, offset, end + gathered, level))
        if len(self._runs) == 1:
            what = "samples" if self._places.stored else "the list of samples"
            self._note(f"{spell('memory')} does not hold {what}: sorted in runs, in temporary space")

    def _merge_level(self, level: int) -> None:
        """Merge all runs of a level into one of the next, so that few files are open."""
        old = [run for run in self._runs if run.level == level]
        self._runs = [run for run in self._runs if run.level != level]
        numbers = {run.number for run in old}
        scratch, lists = TemporaryFile(self._places.tmpdir), TemporaryFile(self._places.tmpdir)
        number = self._places.add_file(scratch)
        writer = EntryWriter(Sink(scratch.fd, scratch.name))
        pieces: list[bytes] = []
        size = 0
        for rank, ordinal, place, _ in heapq.merge(*old):
            if int.from_bytes(place[:4], "little") == 1 and int.from_bytes(place[8:12], "little") in numbers:
                offset = writer.position
                sample = self._places.sample(place)
                sample.write(writer)
                place = self._places.moved(place, number, offset)
            pieces += (_SIZES.pack(len(rank), len(place), ordinal), rank, place)
            size += _SIZES.size + len(rank) + len(place)
            if len(pieces) > 900:
                _flush(lists, pieces)
        writer.flush()
        _flush(lists, pieces)
        offset = writer.position
        Sink(scratch.fd, scratch.name).copy(lists.fd, 0, size)
        self._runs.append(_Run(scratch, number, offset, offset + size, level + 1))
        for run in old:
            self._places.drop_file(run.number)

    def records(self) -> Iterator[Record]:
        """Yield all records in any order, those on disk first."""
        for run in self._runs:
            yield from run
        for index, rank in enumerate(self._ranks):
            yield rank, self._ordinals[index], self._where[index], self._blobs.get(index)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order."""
        if self._runs:
            self.spill()
            yield from heapq.merge(*self._runs) if len(self._runs) > 1 else self._runs[0]
            return
        ranks, ordinals, where, blobs = self._ranks, self._ordinals, self._where, self._blobs
        for index in self._order():
            yield ranks[index], ordinals[index], where[index], blobs.get(index)


def _flush(scratch: TemporaryFile, pieces: list[bytes]) -> None:
    try:
        writev_all(scratch.fd, pieces)
    except OSError as error:
        error.filename = scratch.name
        raise
    pieces.clear()


def _read_ahead(file: TemporaryFile, start: int, size: int) -> None:
    """Ask the system to read part of a temporary file ahead."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fd, start, size, os.POSIX_FADV_WILLNEED)


class DuplicateKeys:
    """Find which of any number of keys come more than once, by hashes of 8 bytes; on disk beyond `memory`."""

    def __init__(self, memory: int, tmpdir: str | None) -> None:
        self.count = 0
        self._memory = memory
        self._tmpdir = tmpdir
        self._hashes = array("q")
        self._file: TemporaryFile | None = None
        self._stored = 0
        self.add = self._hashes.append

    def flush(self) -> None:
        """Move the hashes to the disk if they take more than `memory`."""
        if 8 * len(self._hashes) > self._memory:
            self._file = self._file or TemporaryFile(self._tmpdir)
            self._file.write(memoryview(self._hashes).cast("B"))
            self._stored += 8 * len(self._hashes)
            del self._hashes[:]

    def _chunks(self) -> Iterator[array[int]]:
        for start in range(0, self._stored, CHUNK):
            assert self._file is not None
            yield array("q", self._file.read(start, min(start + CHUNK, self._stored)))
        yield self._hashes

    def marked(self) -> bytearray | None:
        """Return a byte for each key in order, 1 where its hash comes more than once; None if there is no such key."""
        total = self._stored // 8 + len(self._hashes)
        parts = 1 + 100 * total // max(self._memory, LEAST_SET)
        marks: bytearray | None = None
        for part in range(parts):
            seen: set[int] = set()
            twice: set[int] = set()
            for chunk in self._chunks():
                for number in chunk if parts == 1 else [each for each in chunk if each % parts == part]:
                    if number in seen:
                        twice.add(number)
                    seen.add(number)
            if twice:
                marks = marks or bytearray(total)
                ordinal = 0
                for chunk in self._chunks():
                    for number in chunk:
                        if number in twice:
                            marks[ordinal] = 1
                        ordinal += 1
        return marks
