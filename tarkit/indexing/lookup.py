"""Find a sample by its key: by an index beside the shard when that can be trusted, else the caller reads the shard.

An index can describe an archive that has changed since. So one that is older than its shard is not used at all; of any
other the first and last samples, some between and the wanted one are read from the shard, as headers, and nothing may
follow the last. An index is evidence only for what it leads to: that it lacks a key does not show that the shard does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import Problem
from tarkit.indexing.formats import DaliLines, index_path, read_index
from tarkit.indexing.scan import REGULAR, NoIndex, Row
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import FileSource, Source
from tarkit.tar import block

TRUSTED = ("dali", "tsv", "webshart")  # those with names, the fastest to read first
LOOKS = 8  # samples, besides first and last, that are compared with the shard


class Stale(Exception):
    """The index does not describe the shard; str() is the reason."""


def indexes(shard: str) -> Iterator[tuple[str, str]]:
    """Format and path of the indexes beside a shard that can lead to a key."""
    for name in TRUSTED:
        path = index_path(name, shard)
        if os.path.isfile(path):
            yield name, path


def look_up(source: FileSource, path: str, format: str, key: bytes, policy: Policy, moves: bool) -> TarSample | None:
    """The sample that has `key`, by an index; None when the index does not list the key.

    Raises Stale when the index cannot be trusted, or the shard shows a problem that `policy` does not let pass.
    """
    try:
        listed, places = _read(source, path, format, key)
        if not places:
            return None
        if len(places) > 1:
            raise Stale("it lists the key twice")
        _trust(source, listed)
        sample = _sample_at(source, listed, places[0], policy, moves)
    except (NoIndex, OSError) as error:
        raise Stale(str(error)) from None
    if sample is None:
        raise Stale("it leads to another sample")
    return sample


def _read(source: FileSource, path: str, format: str, key: bytes) -> tuple[Sequence[Row], list[int]]:
    """What an index lists, and where in that the key is. Raises Stale when the index is older than the shard."""
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
    """Raises Stale unless some samples are where the index says, and the last of them ends the archive."""
    first = bytes(source.peek(0, block.BLOCK)[: block.BLOCK])
    if first[156:157] == block.PAX_GLOBAL:
        raise Stale("the archive begins with a header that is about all entries")
    last = len(listed) - 1
    places = {0, *(last * look // (LOOKS + 1) for look in range(1, LOOKS + 1))} - {last}
    silent = Policy()
    if any(_sample_at(source, listed, place, silent, False) is None for place in sorted(places)):
        raise Stale("the archive has changed since")
    found = _samples_from(source, listed, last, silent, False)
    if not _agrees(next(found, None), listed[last]) or next(found, None) is not None:
        raise Stale("the archive has changed since")


def _sample_at(source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool) -> TarSample | None:
    """The sample that is where an index says, None if there is another one."""
    sample = next(_samples_from(source, listed, place, policy, moves), None)
    return sample if _agrees(sample, listed[place]) else None


def _samples_from(
    source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool
) -> Iterator[TarSample]:
    """The samples behind the one that is listed before a place. Raises Stale."""
    before, pos = None, 0
    if place:
        before, fields = listed[place - 1]
        pos = max(field.stop for field in fields)  # a border of entries
    try:
        for sample in SampleReader(source, policy, moves=moves, pos=pos):
            if before is None or sample.key != before:  # else its rest: links, which no index lists
                yield sample
    except Problem as problem:
        raise Stale(str(problem)) from None


def _agrees(sample: TarSample | None, row: Row) -> bool:
    """Whether the headers of a sample say what an index lists."""
    if sample is None or sample.key != row[0]:
        return False
    there = [
        (entry.name, entry.data, entry.size)
        for entry in sample.entries
        if entry.type in REGULAR and key_of(entry) is not None
    ]
    return there == [field[:3] for field in row[1]]
