"""Find a sample by its key with an index of the shard, if the index can be trusted; else the caller reads the shard.

The archive may have changed since the index was written. An index that is older than its shard is not used. Of any
other the headers of the first sample, the last one, some between and the requested one are compared with the shard, and
no sample may follow the last. A key that the index lacks may still be in the shard.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import Problem
from tarkit.indexing.formats import DaliLines, index_path, read_index
from tarkit.indexing.scan import REGULAR, InvalidIndex, Row
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import FileSource, Source
from tarkit.tar import block

TRUSTED = ("dali", "tsv", "webshart")  # the formats with names, the fastest one first
COMPARED = 8  # samples, besides the first and the last, that are compared with the shard


class Stale(Exception):
    """The index does not describe the shard; str() is the reason."""


def indexes(shard: str) -> Iterator[tuple[str, str]]:
    """Yield format and path of the indexes next to a shard that list keys."""
    for name in TRUSTED:
        path = index_path(name, shard)
        if os.path.isfile(path):
            yield name, path


def look_up(source: FileSource, path: str, format: str, key: bytes, policy: Policy, moves: bool) -> TarSample | None:
    """Return the sample with `key`, by an index; None if the index does not list the key.

    Raises:
        Stale: the index cannot be trusted, or the shard has a problem that `policy` does not let pass.
    """
    try:
        listed, places = _read(source, path, format, key)
        if not places:
            return None
        if len(places) > 1:
            raise Stale("it lists the key twice")
        _trust(source, listed)
        sample = _sample_at(source, listed, places[0], policy, moves)
    except (InvalidIndex, OSError) as error:
        raise Stale(str(error)) from None
    if sample is None:
        raise Stale("it points to another sample")
    return sample


def _read(source: FileSource, path: str, format: str, key: bytes) -> tuple[Sequence[Row], list[int]]:
    """Return the rows of an index, and the indexes of the rows with the key.

    Raises:
        Stale: the index is older than the shard.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_mtime_ns < source.file.mtime:
            raise Stale("it is older than the shard")
        data = file.read()
    if format == "dali":  # other samples need not be parsed
        lines = DaliLines(data)
        return lines, lines.places(key)
    listed = [row for row in read_index(format, data) if row[0]]
    return listed, [place for place, row in enumerate(listed) if row[0] == key]


def _trust(source: Source, listed: Sequence[Row]) -> None:
    """Compare some samples with the shard; the last one must end the archive.

    Raises:
        Stale: a sample is not at its offset, or a sample follows the last.
    """
    first = bytes(source.peek(0, block.BLOCK)[: block.BLOCK])
    if first[156:157] == block.PAX_GLOBAL:
        raise Stale("the archive begins with a global header")
    last = len(listed) - 1
    places = {0, *(last * part // (COMPARED + 1) for part in range(1, COMPARED + 1))} - {last}
    silent = Policy()
    if any(_sample_at(source, listed, place, silent, False) is None for place in sorted(places)):
        raise Stale("the archive has changed since the index was written")
    found = _samples_from(source, listed, last, silent, False)
    if not _agrees(next(found, None), listed[last]) or next(found, None) is not None:
        raise Stale("the archive has changed since the index was written")


def _sample_at(source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool) -> TarSample | None:
    """Return the sample at an index of the rows, None if the shard has another one there."""
    sample = next(_samples_from(source, listed, place, policy, moves), None)
    return sample if _agrees(sample, listed[place]) else None


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


def _agrees(sample: TarSample | None, row: Row) -> bool:
    """Return whether the headers of a sample agree with its row in an index."""
    if sample is None or sample.key != row[0]:
        return False
    found = [
        (entry.name, entry.data, entry.size)
        for entry in sample.entries
        if entry.type in REGULAR and key_of(entry) is not None
    ]
    return found == [field[:3] for field in row[1]]
