"""Find a sample by its key with an index of the shard, if the index can be trusted; else the caller reads the shard.

The archive may have changed since the index was written. An index that is older than its shard is not used, where both
have times. A key that the index lacks may still be in the shard. What else is compared depends on what a look costs:

- A file: the headers of the first sample, the last one, some between and the requested one, from the header before it
  on; and no sample may follow the last.
- An object of a store: the headers of the requested sample, from the header before it up to the header after it, and
  the length of the object, which must be that of an archive that ends with the last sample of the index. These are one
  request for the index and two for the object, one if the sample is in its first bytes, and one more if the entry
  before it is large. What is returned is always read from the object
  itself, and has the requested key: a changed object whose length and whose sample at this place agree gives the new
  content of this sample. An object lacks a key if an index of it lacks the key, lists all entries of the archive, and
  agrees with its first entry and its last sample; then it is not searched.

`Dataset.indexed` uses an index of an object in place of reading all headers (`covered`): only one that lists all
entries of the archive, each key once. It compares times, the length, and the headers of the first entry and the last
sample, and those of each sample, with the header before it, when it is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import Problem, TarkitError
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import DaliLines, index_path, read_index
from tarkit.indexing.scan import REGULAR, InvalidIndex, Row
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import FileSource, Source, WindowSource
from tarkit.tar import block
from tarkit.tar.reader import TarReader

TRUSTED = ("dali", "tsv", "webshart")  # the formats with names, the fastest one first
COMPARED = 8  # samples, besides the first and the last, that are compared with the shard
AT_ONCE = 8 << 20  # bytes of the largest sample of an object that is read by one request, with its headers
COMPARED_AT_ONCE = 1 << 18  # likewise, of one of which headers alone are needed
SHORT = 1 << 16  # bytes of an entry that is read with the sample after it; of a larger one its headers alone

CHANGED = "the archive has changed since the index was written"


class Stale(Exception):
    """The index does not describe the shard; str() is the reason."""


class Unreadable(Stale):
    """There may be an index, but it cannot be read: many stores deny access to objects that do not exist."""


class Lookup(NamedTuple):
    """What an index says of a key.

    Attributes:
        rows: the rows of the index, as far as they are needed to compare them.
        place: that of the sample with the key; None if the index does not list the key.
        absent: whether there is no such sample in the shard, since the index lists all entries of it.
    """

    rows: Sequence[Row]
    place: int | None
    absent: bool = False


class _FewRows(Sequence[Row]):
    """Some rows of an index, under their places: those that are compared with the shard."""

    def __init__(self, listed: Sequence[Row], places: Sequence[int]) -> None:
        self._count = len(listed)
        near = {max(place - back, 0) for place in places for back in (0, 1, 2)}
        self._rows = {each: listed[each] for each in near}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place % self._count]


def _read_index(index: IndexFile, source: WindowSource) -> bytes:
    """Return the bytes of an index.

    Raises:
        FileNotFoundError: there is none.
        Stale: it was written before the shard, or it cannot be read.
    """
    try:
        data, written = index.read()
    except TarkitError as error:
        raise Unreadable(str(error)) from None
    if written is not None and source.written is not None and written < source.written:
        raise Stale("it is older than the shard")
    return data


def indexes(source: WindowSource) -> Iterator[IndexFile]:
    """Yield the indexes next to a shard that list keys; for an object, the places where they may be."""
    for name in TRUSTED:
        if source.url is not None:
            yield IndexFile(name, index_path(name, source.url), "url", source.options)
        elif isinstance(source, FileSource) and source.file.path:
            path = index_path(name, source.file.path)
            if os.path.isfile(path):
                yield IndexFile(name, path)


def look_up(source: WindowSource, index: IndexFile, key: bytes, parsing: threading.Lock) -> Lookup:
    """Look for a key in an index, and compare the index with the shard.

    Threads may do so, with sources of their own; one at a time, with `parsing`, holds all rows of its index.

    Raises:
        FileNotFoundError: there is no such index.
        Stale: the index cannot be trusted.
    """
    try:
        listed, places, whole = _read(source, index, key, parsing)
        if not places:
            return Lookup(listed, None, whole and _has_ends_of(source, listed))
        if len(places) > 1:
            raise Stale("it lists the key twice")
        if source.url is not None:
            _trust_length(source, listed)
            _read_at_once(source, listed, places[0], AT_ONCE)
        else:
            _trust(source, listed)
            _confirm_before(source, listed, places[0])
    except FileNotFoundError:
        raise
    except (InvalidIndex, OSError) as error:
        raise Stale(str(error)) from None
    return Lookup(listed, places[0])


def sample_of(found: Lookup, source: WindowSource, policy: Policy, moves: bool) -> TarSample:
    """Return the sample that an index lists.

    Raises:
        Stale: the shard has another one there, or a problem that `policy` does not let pass.
    """
    assert found.place is not None
    try:
        sample = _sample_at(source, found.rows, found.place, policy, moves)
    except (InvalidIndex, OSError) as error:
        raise Stale(str(error)) from None
    if sample is None:
        raise Stale("it points to another sample")
    return sample


def covered(source: WindowSource, report: Callable[[IndexFile, Stale], None]) -> tuple[IndexFile, list[Row]] | None:
    """Return the index of an object that lists all entries of it, and its rows; None if there is none to be trusted.

    `report` is called with an index that does not match, or cannot be read, and the reason.
    """
    for index in indexes(source):
        try:
            listed = [row for row in read_index(index.format, _read_index(index, source)) if row[0]]
            once = len({key for key, _ in listed}) == len(listed)
            if listed and once and _adjacent(listed):
                if not _has_ends_of(source, listed):
                    raise Stale(CHANGED)
                return index, listed
        except FileNotFoundError:
            continue
        except (InvalidIndex, OSError) as error:
            report(index, Stale(str(error)))
        except Stale as error:
            report(index, error)
    return None


def not_used(index: IndexFile, reason: Stale) -> str:
    """Return the message about an index that is not used, with the repair if it can be read."""
    repair = "" if isinstance(reason, Unreadable) else f"; tarkit index --format {index.format} makes a new one"
    return f"{index.name}: index not used: {reason}{repair}"


def _has_ends_of(source: WindowSource, listed: Sequence[Row]) -> bool:
    """Return whether an object has the first entry and the last sample of its index. Raises Stale for its length."""
    _trust_length(source, listed)
    try:
        first = next(iter(TarReader(source)), None)
    except Problem as problem:
        raise Stale(str(problem)) from None
    if first is None or (first.name, first.data, first.size) != listed[0][1][0][:3]:
        return False
    _read_at_once(source, listed, len(listed) - 1, COMPARED_AT_ONCE)
    found = _samples_from(source, listed, len(listed) - 1, Policy(), False)
    return agrees(next(found, None), listed[-1]) and next(found, None) is None


def _adjacent(listed: Sequence[Row]) -> bool:
    """Return whether no entry is between those of the rows: each header is right behind the previous content."""
    stop = 0
    for _, fields in listed:
        for field in fields:
            if (field.start if field.start >= 0 else field.offset - block.BLOCK) != stop:
                return False
            stop = field.stop
    return True


def _read(
    source: WindowSource, index: IndexFile, key: bytes, parsing: threading.Lock
) -> tuple[Sequence[Row], list[int], bool]:
    """Return the rows of an index, the indexes of those with the key, and whether it lists all entries of an object.

    Of the index of an object there are only the rows that are needed. Raises Stale.
    """
    data = _read_index(index, source)
    with parsing:
        if index.format == "dali":  # other samples need not be parsed
            lines = DaliLines(data)
            listed: Sequence[Row] = lines
            places = lines.places(key)
        else:
            listed = [row for row in read_index(index.format, data) if row[0]]
            places = [place for place, row in enumerate(listed) if row[0] == key]
        if source.url is None or not listed:
            return listed, places, False
        return _FewRows(listed, [0, *places, len(listed) - 1]), places, not places and _adjacent(listed)


def _trust_length(source: WindowSource, listed: Sequence[Row]) -> None:
    """Raise Stale if an object does not have the length that follows from its index, or begins with a global header."""
    _refuse_global(source)
    end = max(field.stop for field in listed[-1][1])
    longest = -(-(end + 2 * block.BLOCK) // block.RECORD) * block.RECORD  # with two zero blocks, in whole records
    if not end <= (source.size or 0) <= longest:
        raise Stale(f"{CHANGED}: its length differs")


def _read_at_once(source: WindowSource, listed: Sequence[Row], place: int, largest: int) -> None:
    """Read a sample of an object, up to the header after it, by one request unless it is larger than `largest`.

    The entry before it is compared, and is in the same request if it is short.

    Raises:
        Stale: the object has no such range, or another entry before the sample.
    """
    size = source.size or 0
    before = _entry_before(listed, place)
    start = max(field.stop for field in listed[place - 1][1]) if place else 0
    stop = max(field.stop for field in listed[place][1]) + block.BLOCK
    if place == len(listed) - 1:
        stop = size  # the end of the archive
    if not 0 <= before <= start < stop <= size + block.BLOCK:
        raise Stale("its offsets are not those of the archive")
    apart = start - before > SHORT
    if apart:
        _confirm_before(source, listed, place)
    begin = start if apart else before
    if stop <= start + largest:
        source.peek(begin, stop - begin)
    if not apart:
        _confirm_before(source, listed, place)


def _entry_before(listed: Sequence[Row], place: int) -> int:
    """Return where the entry that the index lists before a sample begins, or entries that are not listed before it."""
    if not place:
        return 0
    *others, last = listed[place - 1][1]
    if last.start >= 0:
        return last.start
    return max((field.stop for field in others or (listed[place - 2][1] if place > 1 else ())), default=0)


def _confirm_before(source: Source, listed: Sequence[Row], place: int) -> None:
    """Raise Stale unless the entry before a sample is that of the index: else the sample may begin before its row."""
    if not place:
        return
    last = listed[place - 1][1][-1]
    try:
        entry = next(
            (entry for entry in TarReader(source, _entry_before(listed, place)) if entry.stop >= last.stop), None
        )
    except TarkitError as problem:
        raise Stale(str(problem)) from None
    if entry is None or (entry.name, entry.data, entry.size) != last[:3]:
        raise Stale(CHANGED)


def _trust(source: Source, listed: Sequence[Row]) -> None:
    """Compare some samples with the shard; the last one must end the archive.

    Raises:
        Stale: a sample is not at its offset, or a sample follows the last.
    """
    _refuse_global(source)
    last = len(listed) - 1
    places = {0, *(last * part // (COMPARED + 1) for part in range(1, COMPARED + 1))} - {last}
    silent = Policy()
    if any(_sample_at(source, listed, place, silent, False) is None for place in sorted(places)):
        raise Stale(CHANGED)
    found = _samples_from(source, listed, last, silent, False)
    if not agrees(next(found, None), listed[last]) or next(found, None) is not None:
        raise Stale(CHANGED)


def _refuse_global(source: Source) -> None:
    first = bytes(source.peek(0, block.BLOCK)[: block.BLOCK])
    if first[156:157] == block.PAX_GLOBAL:
        raise Stale("the archive begins with a global header")


def _sample_at(source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool) -> TarSample | None:
    """Return the sample at an index of the rows, None if the shard has another one there."""
    sample = next(_samples_from(source, listed, place, policy, moves), None)
    return sample if agrees(sample, listed[place]) else None


def _samples_from(
    source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool
) -> Iterator[TarSample]:
    """Yield the samples after the row before `place`. Raises Stale."""
    before, pos = None, 0
    if place:
        before, fields = listed[place - 1]
        pos = max(field.stop for field in fields)  # a border of entries
    try:
        for sample in SampleReader(source, policy, moves=moves, pos=pos):
            if before is None or sample.key != before:  # its remaining entries: links, which no index lists
                yield sample
    except Problem as problem:
        raise Stale(str(problem)) from None


def agrees(sample: TarSample | None, row: Row) -> bool:
    """Return whether the headers of a sample agree with its row in an index."""
    if sample is None or sample.key != row[0]:
        return False
    found = [
        (entry.name, entry.data, entry.size)
        for entry in sample.entries
        if entry.type in REGULAR and key_of(entry) is not None
    ]
    return found == [field[:3] for field in row[1]]
