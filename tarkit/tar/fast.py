"""The optional accelerator, compiled from `_fast.c`. Without it, or with TARKIT_PURE=1, Python does all of the work.

`reader.TarReader` calls it. It parses headers and groups plain entries into samples in one loop, so it is the one place
in this package that depends on samples. The reference, which reads whatever it leaves, is `reader.TarReader.raw`
together with `samples.groups.EntryGroups.read`; `samples.groups.BatchFinder` makes batches of that. All ways
give the same samples, problems and bytes. `gather` serves writers of samples in another order.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from itertools import accumulate, chain, repeat
from types import ModuleType
from typing import Final, NamedTuple

Found = tuple[bytes, bytes, bytes, bytes]
Scan = Callable[[bytes | memoryview, int, int, int, int, int, bytes | None, int, int], Found | None]


def _is_off() -> bool:
    return os.environ.get("TARKIT_PURE", "0") not in ("", "0")


def _load() -> ModuleType | None:
    if _is_off():
        return None
    try:
        return import_module("tarkit.tar._fast")
    except ImportError:
        return None


_compiled = _load()

scan: Final[Scan | None] = getattr(_compiled, "scan", None)
"""`scan(data, base, fd, offset, at, whole, field, least, most)` returns the plain samples that follow each other.

The last one is before the first sample that is not plain, that lacks the field, or whose end cannot be read. All
together have at most 1024 entries, with 31 KiB of names; a sample has at most 64 unless its names ascend.

Args:
    data, base: bytes of the archive, and the offset of the first.
    fd, offset: the file in which others are read, where the archive begins at an offset; -1 for none.
    at: the offset of the first sample.
    whole: the length of the archive.
    field: a field that all samples must have, as it is spelled, or None; with a file, of up to 4 KiB.
    least: the smallest sample, in bytes; the first smaller one is the last.
    most: after how many bytes to stop.

Returns:
    Four byte strings; None if there is no sample. The keys; the names of the entries, both with NUL between them. For
    each sample four native int64: the number of entries up to its end, the offset of its end, and place after `base`
    and size of the content of the field, the first if several are. For each entry three: place and size of its content,
    and its end.
"""

_gather: Callable[[bytes, bytes, bytes, int], bytes | None] | None = getattr(_compiled, "gather", None)


def gather(fds: Sequence[int], positions: Sequence[int], sizes: Sequence[int]) -> bytes | None:
    """Return ranges of files, one after the other, as `streams.source.gather` does, with one call.

    None if a range is not all there, or cannot be read, if they have more than 64 MiB, and without the accelerator.
    """
    if _gather is None:
        return None
    fd_array, position_array, size_array = (array("q", column).tobytes() for column in (fds, positions, sizes))
    return _gather(fd_array, position_array, size_array, sum(sizes))


def used() -> str:
    """Return whether the accelerator is used, for `tarkit --version -v`."""
    if _compiled is not None:
        return "used"
    return "turned off by TARKIT_PURE" if _is_off() else "not compiled; tarkit does the same without it, slower"


Row = tuple[bytes, int, int, int, int, bytes, bytes, int]
"""An entry, as `reader.Raw`."""


class EntryColumns(NamedTuple):
    """Entries of samples that follow each other, in columns; `ends` has for each sample the number after its last."""

    names: Sequence[bytes]
    starts: Sequence[int]
    data: Sequence[int]
    sizes: Sequence[int]
    stops: Sequence[int]
    ends: Sequence[int]


class PlainEntries:
    """The entries of plain samples that follow each other: columns, and a row for each, made when somebody asks."""

    @cached_property
    def columns(self) -> EntryColumns:
        """All entries."""
        raise NotImplementedError

    @cached_property
    def rows(self) -> Sequence[Sequence[Row]]:
        """The entries of each sample."""
        names, starts, data, sizes, stops, ends = self.columns
        rows = list(zip(names, starts, data, sizes, stops, repeat(b"0"), repeat(b""), repeat(-1), strict=False))
        return [rows[first:end] for first, end in zip([0, *ends], ends, strict=False)]


class FoundEntries(PlainEntries):
    """Entries that the accelerator found from the offset `start` on."""

    def __init__(self, start: int, arrays: Found) -> None:
        self._start, self._arrays = start, arrays

    @cached_property
    def columns(self) -> EntryColumns:
        """All entries."""
        _, names, samples, entries = self._arrays
        numbers, ends = memoryview(entries).cast("q").tolist(), memoryview(samples).cast("q")[0::4].tolist()
        stops = numbers[2::3]
        return EntryColumns(names.split(b"\0"), [self._start, *stops[:-1]], numbers[0::3], numbers[1::3], stops, ends)


class ListedEntries(PlainEntries):
    """Entries that Python found."""

    def __init__(self, rows: Sequence[Sequence[Row]]) -> None:
        self.rows = rows

    @cached_property
    def columns(self) -> EntryColumns:
        """All entries."""
        names, starts, data, sizes, stops, *_ = zip(*chain.from_iterable(self.rows), strict=True)
        return EntryColumns(names, starts, data, sizes, stops, list(accumulate(map(len, self.rows))))


class SeveralEntries(PlainEntries):
    """Entries that were found in several parts."""

    def __init__(self, parts: Sequence[PlainEntries]) -> None:
        self._parts = parts

    @cached_property
    def columns(self) -> EntryColumns:
        """All entries."""
        return self._parts[0].columns if len(self._parts) == 1 else ListedEntries(self.rows).columns

    @cached_property
    def rows(self) -> Sequence[Sequence[Row]]:
        """The entries of each sample."""
        return [row for part in self._parts for row in part.rows]
