"""Find a sample by its key with an index of the shard, if the index matches it; else the caller reads the shard.

An index matches if it is not older than the shard, where both have times, if the shard has the length of an archive
that ends with the last sample of the index, and if its first entry is that of the index. The sample that is returned is
always read from the shard itself, and has the requested key and the listed fields; the entry before it is looked at,
which may have become its first field since. A key that the index of a file lacks
is searched in the file. An object of a store lacks a key if its index lacks it and lists all entries of the archive:
then it is not searched. There is one request for the index and two for the object, one if the sample is in its first
bytes.

`Dataset.indexed` uses an index of an object in place of reading all headers (`covered`): only one that lists all
entries of the archive, each key once. The headers of each sample are compared when it is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tarkit.errors import Problem, TarkitError
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import LAYOUTS, DaliLines, IndexRow, InvalidIndex, index_path
from tarkit.indexing.scan import REGULAR
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import FileSource, WindowSource
from tarkit.tar import block
from tarkit.tar.reader import TarReader

TRUSTED = ("dali", "tsv", "webshart")  # the formats with names, the fastest one first
SHORT = 1 << 16  # bytes of an entry that is read with the sample after it; of a larger one its headers alone
AT_ONCE = 8 << 20  # bytes of the largest sample of an object that is read by one request, with its headers

CHANGED = "the archive has changed since the index was written"


class Stale(Exception):
    """The index does not describe the shard; str() is the reason."""


class Unreadable(Stale):
    """There may be an index, but it cannot be read: many stores deny access to objects that do not exist."""


class Lookup(NamedTuple):
    """The row of a key in an index, or its absence.

    Attributes:
        row: the row of the sample with the key; None if the index does not list the key.
        before: the row before it, if there is one.
        absent: whether there is no such sample in the shard, since the index lists all entries of it.
    """

    row: IndexRow | None
    before: IndexRow | None = None
    absent: bool = False


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
    """Look for a key in an index, and read the bytes of its sample in an object.

    Threads may do so, with sources of their own; one at a time, with `parsing`, holds all rows of its index.

    Raises:
        FileNotFoundError: there is no such index.
        Stale: the index does not match the shard.
    """
    try:
        data = _read_index(index, source)
        with parsing:
            first, last, *neighbours = _rows_for(index.format, data, key, source.url is not None)
    except FileNotFoundError:
        raise
    except (InvalidIndex, OSError) as error:
        raise Stale(str(error)) from None
    if first is None or last is None:
        return Lookup(None)
    _believe(source, first, last)
    if not neighbours:
        return Lookup(None, absent=True)
    before, row = neighbours
    start, stop, size = before.stop if before else 0, row.stop if row else 0, source.size or 0
    begin = start if before is None or start - before.last_header > SHORT else before.last_header
    if begin == start:
        _confirm(source, before, key)
    if source.url is not None and row is not None and start < stop <= min(size, begin + AT_ONCE):
        source.peek(begin, (size if row == last else stop + block.BLOCK) - begin)  # with the header behind it
    if begin < start:
        _confirm(source, before, key)
    return Lookup(row, before)


def _confirm(source: WindowSource, before: IndexRow | None, key: bytes) -> None:
    """Raise Stale if the entry before the sample with a key belongs to it: the index would take the entry away."""
    if before is None:
        return
    try:
        entry = next(iter(TarReader(source, before.last_header)), None)
    except TarkitError as error:
        raise Stale(str(error)) from None
    if entry is None or entry.stop != before.stop or key_of(entry) == key:
        raise Stale(CHANGED)


def _rows_for(format: str, data: bytes, key: bytes, remote: bool) -> list[IndexRow | None]:
    """Return the first and the last row of an index, the row before that of a key, and this one.

    If the index does not list the key, there are two rows; they are None if the shard may have it all the same.

    Raises:
        InvalidIndex: the data are not such an index.
        Stale: it lists the key twice.
    """
    if format == "dali":  # other samples need not be parsed
        lines = DaliLines(data)
        rows: Sequence[IndexRow] = lines
        places = lines.places(key)
    else:
        rows = [row for row in LAYOUTS[format].decode(data) if row.key]
        places = [place for place, row in enumerate(rows) if row.key == key]
    if len(places) > 1:
        raise Stale("it lists the key twice")
    if places:
        return [rows[0], rows[-1], rows[places[0] - 1] if places[0] else None, rows[places[0]]]
    return [rows[0], rows[-1]] if remote and rows and _lists_all(rows) else [None, None]


def sample_of(answer: Lookup, source: WindowSource, policy: Policy, moves: bool) -> TarSample:
    """Return the sample that an index lists.

    Raises:
        Stale: the shard has another one there, or a problem that `policy` does not let pass.
    """
    assert answer.row is not None
    try:
        for sample in SampleReader(source, policy, moves=moves, pos=answer.before.stop if answer.before else 0):
            if answer.before is not None and sample.key == answer.before.key:
                continue  # its remaining entries: links, which no index lists
            if not _agrees(sample, answer.row):
                break
            return sample
    except (Problem, OSError) as error:
        raise Stale(str(error)) from None
    raise Stale("it points to another sample")


def covered(
    source: WindowSource, report: Callable[[IndexFile, Stale], None]
) -> tuple[IndexFile, list[IndexRow]] | None:
    """Return the index of an object that lists all entries of it, and its rows; None if none matches.

    `report` is called with an index that does not match, or cannot be read, and the reason.
    """
    for index in indexes(source):
        try:
            rows = [row for row in LAYOUTS[index.format].decode(_read_index(index, source)) if row.key]
            if rows and len({key for key, _ in rows}) == len(rows) and _lists_all(rows):
                _believe(source, rows[0], rows[-1])
                return index, rows
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


def _lists_all(rows: Sequence[IndexRow]) -> bool:
    """Return whether no entry is between those of the rows: each header is right behind the previous content."""
    stop = 0
    for row in rows:
        for field in row.fields:
            if (field.start if field.start >= 0 else field.offset - block.BLOCK) != stop:
                return False
            stop = field.stop
    return True


def _believe(source: WindowSource, first: IndexRow, last: IndexRow) -> None:
    """Raise Stale unless a shard has the length that follows from the last row of its index, and its first field."""
    if bytes(source.peek(0, block.BLOCK)[: block.BLOCK])[156:157] == block.PAX_GLOBAL:
        raise Stale("the archive begins with a global header")
    longest = -(-(last.stop + 2 * block.BLOCK) // block.RECORD) * block.RECORD  # with two zero blocks, whole records
    if not last.stop <= (source.size or 0) <= longest:
        raise Stale(f"{CHANGED}: its length differs")
    try:
        fields = (entry for entry in TarReader(source) if entry.type in REGULAR and key_of(entry) is not None)
        entry = next(fields, None)
    except TarkitError as problem:
        raise Stale(str(problem)) from None
    if entry is None or (entry.name, entry.data, entry.size) != first.fields[0][:3]:
        raise Stale(CHANGED)


def _agrees(sample: TarSample, row: IndexRow) -> bool:
    fields = [
        (entry.name, entry.data, entry.size)
        for entry in sample.entries
        if entry.type in REGULAR and key_of(entry) is not None
    ]
    return sample.key == row.key and fields == [field[:3] for field in row.fields]
