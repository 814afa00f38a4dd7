"""Sorted runs of samples, in memory and on disk, and duplicates among any number of keys."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from operator import lt

from tarkit.errors import spell
from tarkit.pipeline.places import Place, file_of
from tarkit.pipeline.ranges import RangeList
from tarkit.spill.runs import SortedRun, SortedRuns, ordinal_of, pack, rank_of, rest_of
from tarkit.streams.copy import CHUNK
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.writer import EntryWriter

Record = tuple[bytes, int, Place, bytes | None]
"""Rank, ordinal, place, and the bytes themselves where they are in memory."""

Recall = Callable[[], Iterator[tuple[int, bytes]]]

LEAST_SET = 1 << 20  # minimum of bytes for a set of hashes
_MOST_SET = 8  # and its maximum, for each hash of all, so that there are few passes
_SET_COST = 100  # bytes of memory of a hash in a set
_SLICE = 1 << 14  # hashes that are looked at together


class Runs(SortedRuns):
    """Records of samples in any order, to be iterated over by rank and ordinal, any number of times.

    The rest of a record is the place of its sample. Records beyond `memory` are written to disk in sorted runs,
    the bytes of samples in memory before the part of the list that they belong to; `note` is called with a message at
    the first.
    """

    def __init__(self, places: RangeList, memory: int, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(places.tmpdir, memory)
        self._places = places
        self._note: Callable[[str], None] | None = note
        self.blobs: dict[int, bytes] = {}  # of samples in memory, by ordinal
        self._numbers: dict[TemporaryFile, int] = {}  # of the files of runs that have bytes of samples
        self._own: set[int] = set()  # these numbers

    def add(self, rank: bytes, ordinal: int, place: Place, blob: bytes | None = None) -> None:
        """Add a record."""
        if blob is not None:
            self.blobs[ordinal] = blob
        self.extend([pack(rank, ordinal, place)], 0 if blob is None else len(blob) + 128)

    def spill(self) -> None:
        """Write the records in memory to a run, and the bytes of their samples."""
        super().spill()
        if self._note is not None and self.on_disk:
            words = "samples" if self._places.stored else "the list of samples"
            self._note(f"{spell('memory')} does not hold {words}: sorted in runs, in temporary space")
            self._note = None

    def moved(self, records: list[bytes], run: SortedRun) -> Iterator[list[bytes]]:
        """Write the bytes of samples that are in memory, or in runs that are merged, to the file of a run."""
        if not self.blobs and not self._numbers:
            yield records
            return
        assert run.file is not None
        part: list[bytes] = []
        start, writer = 0, EntryWriter(Sink(run.file.fd, run.file.name))
        for record in records:
            place, ordinal = rest_of(record), ordinal_of(record)
            blob = self.blobs.pop(ordinal, None)
            if blob is not None or file_of(place) in self._own:
                if run.file not in self._numbers:
                    self._numbers[run.file] = self._places.add_file(run.file)
                    self._own.add(self._numbers[run.file])
                if not writer.position:
                    start = os.lseek(run.file.fd, 0, os.SEEK_CUR)
                offset = start + writer.position
                if blob is None:
                    self._places.sample(place).write(writer)
                else:
                    writer.raw((blob,), len(blob))
                    self._places.stored += len(blob)
                record = pack(rank_of(record), ordinal, self._places.moved(place, self._numbers[run.file], offset))
            part.append(record)
            if writer.position > CHUNK:
                writer.flush()
                yield part
                part, writer = [], EntryWriter(Sink(run.file.fd, run.file.name))
        writer.flush()
        if part:
            yield part

    def blob(self, record: bytes) -> bytes | None:
        """Return the bytes of the sample of a record if they are in memory."""
        return self.blobs.get(ordinal_of(record)) if self.blobs else None

    def records(self) -> Iterator[Record]:
        """Yield all records in any order."""
        return self._unpacked(self.unordered())

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order."""
        return self._unpacked(self.blocks())

    def _unpacked(self, blocks: Iterator[list[bytes]]) -> Iterator[Record]:
        for block in blocks:
            for record in block:
                yield rank_of(record), ordinal_of(record), rest_of(record), self.blob(record)


class DuplicateKeys:
    """Find the repeated keys among any number, by hashes of 8 bytes; on disk beyond `memory`."""

    def __init__(self, memory: int, tmpdir: str | None) -> None:
        self.count = 0
        self._memory = memory
        self._tmpdir = tmpdir
        self._hashes = array("q")
        self._file: TemporaryFile | None = None
        self._stored = 0
        self.add = self._hashes.append
        self.extend = self._hashes.extend

    def flush(self) -> None:
        """Move the hashes to the disk if they take more than `memory`."""
        if 8 * len(self._hashes) > self._memory:
            self._file = self._file or TemporaryFile(self._tmpdir)
            self._file.write(memoryview(self._hashes).cast("B"))
            self._stored += 8 * len(self._hashes)
            del self._hashes[:]

    def _slices(self) -> Iterator[array[int]]:
        for start in range(0, self._stored, 8 * _SLICE):
            assert self._file is not None
            yield array("q", self._file.read(start, min(start + 8 * _SLICE, self._stored)))
        for start in range(0, len(self._hashes), _SLICE):
            yield self._hashes[start : start + _SLICE]

    def marked(self) -> bytearray | None:
        """Return a byte for each key in order, 1 where its hash is repeated; None if none is."""
        total = self._stored // 8 + len(self._hashes)
        limit = max(LEAST_SET, min(self._memory, max(_MOST_SET * total, 4 * LEAST_SET)))
        parts = 1 + _SET_COST * total // limit
        few, finer = min(parts, 256), -(-parts // 256)
        marks: bytearray | None = None
        for part in range(few * finer):
            seen: set[int] = set()
            count = 0
            for hashes in self._part(part, few, finer):
                count += len(hashes)
                seen.update(hashes)
            if len(seen) < count:
                marks = marks or bytearray(total)
                self._mark(self._part(part, few, finer), marks)
        return marks

    def _part(self, part: int, few: int, finer: int) -> Iterator[list[int]]:
        """Yield the hashes of one of `few * finer` parts, in lists."""
        low, high = part % few, part // few
        table = bytes(number % few == low for number in range(256))  # of one byte, without a step of Python for each
        for numbers in self._slices():
            hashes = list(compress(numbers, numbers.tobytes()[::8].translate(table)))
            yield hashes if finer == 1 else [number for number in hashes if number // 256 % finer == high]

    def _mark(self, part: Iterator[list[int]], marks: bytearray) -> None:
        """Mark the repeated hashes of a part."""
        seen: set[int] = set()
        twice: set[int] = set()
        for hashes in part:
            for number in hashes:
                if number in seen:
                    twice.add(number)
                seen.add(number)
        ordinal = 0
        for numbers in self._slices():
            for number in numbers:
                if number in twice:
                    marks[ordinal] = 1
                ordinal += 1


class SeenKeys:
    """The keys of the samples that a sort has read, to find repeated ones.

    While keys ascend no two are equal, and nothing is kept of them.
    """

    def __init__(self, memory: int, tmpdir: str | None) -> None:
        self._step = max(memory // 8, 1 << 17)  # hashes that are recalled together
        self._duplicates = DuplicateKeys(memory, tmpdir)
        self._highest: bytes | None = b""  # None: keys do not ascend
        self._count = 0

    def extend(self, keys: Sequence[bytes], recall: Recall) -> None:
        """Add the keys of the next samples.

        `recall` yields all keys so far, perhaps more, with their ordinals, in any order; it is called when a key comes
        that is not greater than all before it.
        """
        if self._highest is not None:
            if keys[0] > self._highest and all(map(lt, keys, islice(keys, 1, None))):
                self._highest = keys[-1]
                self._count += len(keys)
                return
            self._remember(recall)
        self._duplicates.extend(map(hash, keys))

    def flush(self) -> None:
        """Move the keys to disk if they take more than `memory`."""
        self._duplicates.flush()

    def marked(self) -> bytearray | None:
        """Return a byte for each key in order, 1 where it comes more than once; None if there is no such key."""
        return self._duplicates.marked() if self._highest is None else None

    def _remember(self, recall: Recall) -> None:
        """Add the keys so far to the hashes."""
        self._highest = None
        for first in range(0, self._count, self._step):
            hashes = array("q", bytes(8 * min(self._step, self._count - first)))
            for ordinal, key in recall():
                if 0 <= ordinal - first < len(hashes):
                    hashes[ordinal - first] = hash(key)
            self._duplicates.extend(hashes)
            self._duplicates.flush()
