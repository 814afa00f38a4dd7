"""Find a sample by its key with an index of the shard, if the index can be trusted; else the caller reads the shard.

The archive may have changed since the index was written. An index that is older than its shard is not used, where both
have times. A key that the index lacks may still be in the shard. What else is compared depends on what a look costs:

- A file: the headers of the first sample, the last one, some between and the requested one; and no sample may follow
  the last.
- An object of a store: the headers of the requested sample, up to the header after it, and the length of the object,
  which must be that of an archive that ends with the last sample of the index. These are one request for the index
  and two for the object, one if the sample is in its first bytes. What is returned is always read from the object
  itself, and has the requested key: a changed object whose length and whose sample at this place agree gives the new
  content of this sample.

`Dataset.indexed` uses an index of an object in place of reading all headers (`covered`): only one that lists all
entries of the archive, each key once. It compares times, the length, and the headers of the last sample, and those of
each sample when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import Problem, TarkitError
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import DaliLines, index_path, read_index
from tarkit.indexing.scan import REGULAR, InvalidIndex, Row
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import FileSource, Source, WindowSource
from tarkit.tar import block

TRUSTED = ("dali", "tsv", "webshart")  # the formats with names, the fastest one first
COMPARED = 8  # samples, besides the first and the last, that are compared with the shard
AT_ONCE = 8 << 20  # bytes of the largest sample of an object that is read by one request, with its headers


class Stale(Exception):
    """The index does not describe the shard; str() is the reason."""


class Unreadable(Stale):
    """There may be an index, but it cannot be read: many stores deny access to objects that do not exist."""


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


def look_up(source: WindowSource, index: IndexFile, key: bytes, policy: Policy, moves: bool) -> TarSample | None:
    """Return the sample with `key`, by an index; None if the index does not list the key.

    Raises:
        FileNotFoundError: there is no such index.
        Stale: the index cannot be trusted, or the shard has a problem that `policy` does not let pass.
    """
    try:
        listed, places = _read(source, index, key)
        if not places:
            return None
        if len(places) > 1:
            raise Stale("it lists the key twice")
        if source.url is not None:
            _trust_length(source, listed)
            _read_at_once(source, listed, places[0])
        else:
            _trust(source, listed)
        sample = _sample_at(source, listed, places[0], policy, moves)
    except FileNotFoundError:
        raise
    except (InvalidIndex, OSError) as error:
        raise Stale(str(error)) from None
    if sample is None:
        raise Stale("it points to another sample")
    return sample


def covered(source: WindowSource) -> tuple[IndexFile, list[Row]] | None:
    """Return the index of an object that lists all entries of it, and its rows; None if there is none to be trusted."""
    for index in indexes(source):
        try:
            listed = [row for row in read_index(index.format, _read_index(index, source)) if row[0]]
            if listed and len({key for key, _ in listed}) == len(listed) and _adjacent(listed):
                _trust_length(source, listed)
                _read_at_once(source, listed, len(listed) - 1)
                found = _samples_from(source, listed, len(listed) - 1, Policy(), False)
                if agrees(next(found, None), listed[-1]) and next(found, None) is None:
                    return index, listed
        except (InvalidIndex, OSError, Stale):
            continue
    return None


def _adjacent(listed: Sequence[Row]) -> bool:
    """Return whether no entry is between those of the rows: each header is right behind the previous content."""
    stop = 0
    for _, fields in listed:
        for field in fields:
            if (field.start if field.start >= 0 else field.offset - block.BLOCK) != stop:
                return False
            stop = field.stop
    return True


def _read(source: WindowSource, index: IndexFile, key: bytes) -> tuple[Sequence[Row], list[int]]:
    """Return the rows of an index, and the indexes of the rows with the key. Raises Stale."""
    data = _read_index(index, source)
    if index.format == "dali":  # other samples need not be parsed
        lines = DaliLines(data)
        return lines, lines.places(key)
    listed = [row for row in read_index(index.format, data) if row[0]]
    return listed, [place for place, row in enumerate(listed) if row[0] == key]


def _trust_length(source: WindowSource, listed: Sequence[Row]) -> None:
    """Raise Stale if an object does not have the length that follows from its index, or begins with a global header."""
    _refuse_global(source)
    end = max(field.stop for field in listed[-1][1])
    longest = -(-(end + 2 * block.BLOCK) // block.RECORD) * block.RECORD  # with two zero blocks, in whole records
    if not end <= (source.size or 0) <= longest:
        raise Stale("the archive has changed since the index was written: its length differs")


def _read_at_once(source: WindowSource, listed: Sequence[Row], place: int) -> None:
    """Read a sample of an object, up to the header after it, by one request unless it is large.

    Raises:
        Stale: the object has no such range.
    """
    size = source.size or 0
    start = max(field.stop for field in listed[place - 1][1]) if place else 0
    stop = max(field.stop for field in listed[place][1]) + block.BLOCK
    if place == len(listed) - 1:
        stop = size  # the end of the archive
    if not 0 <= start < stop <= size + block.BLOCK:
        raise Stale("its offsets are not those of the archive")
    if stop <= start + AT_ONCE:
        source.peek(start, stop - start)


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
        raise Stale("the archive has changed since the index was written")
    found = _samples_from(source, listed, last, silent, False)
    if not agrees(next(found, None), listed[last]) or next(found, None) is not None:
        raise Stale("the archive has changed since the index was written")


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
