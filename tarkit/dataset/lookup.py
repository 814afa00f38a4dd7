"""Find a sample by its key: by an index beside the shard when that can be trusted, else the caller reads the shard.

An index can be of an archive that has changed since. So before it is believed its first and last samples, some between
and the one that is wanted are read from the shard, as headers, and nothing may come behind the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tarkit.dataset.grouping import Samples
from tarkit.dataset.sample import Sample, Source, key_of
from tarkit.dataset.sidecar import REGULAR, NoIndex, Row
from tarkit.dataset.sidecar_layouts import DaliLines, index_path, read_index
from tarkit.errors import Problem
from tarkit.problems import Policy
from tarkit.tar import block

TRUSTED = ("dali", "tsv", "webshart")  # those with names, the fastest to read first
LOOKS = 8  # samples, besides first and last, that are compared with the shard


class Found(NamedTuple):
    """What an index has led to: the sample, or None when the shard does not have the key."""

    sample: Sample | None
    path: str


class Stale(Exception):
    """An index does not say what the shard is; str() is the reason."""


def indexes(shard: str) -> Iterator[tuple[str, str]]:
    """Format and path of the indexes beside a shard that can lead to a key."""
    for name in TRUSTED:
        path = index_path(name, shard)
        if os.path.isfile(path):
            yield name, path


def look_up(source: Source, path: str, format: str, key: bytes, policy: Policy, moves: bool) -> Found:
    """The sample that has `key`, by an index. Raises Stale when the index cannot be trusted; Problem by `policy`."""
    try:
        listed, places = _read(path, format, key)
        _trust(source, listed)
        return _found(source, path, listed, places, policy, moves)
    except (NoIndex, OSError) as error:
        raise Stale(str(error)) from None


def _read(path: str, format: str, key: bytes) -> tuple[Sequence[Row], list[int]]:
    """What an index lists, and where in that the key is."""
    with open(path, "rb") as file:
        data = file.read()
    if format == "dali":  # other samples need not be parsed
        lines = DaliLines(data)
        return lines, lines.places(key)
    listed = [row for row in read_index(format, data) if row[0]]
    return listed, [place for place, row in enumerate(listed) if row[0] == key]


def _found(
    source: Source, path: str, listed: Sequence[Row], places: Sequence[int], policy: Policy, moves: bool
) -> Found:
    if len(places) > 1:
        raise Stale("it lists the key twice")
    if not places:
        return Found(None, path)
    sample = _sample_at(source, listed, places[0], policy, moves)
    if sample is None:
        raise Stale("it leads to another sample")
    return Found(sample, path)


def _trust(source: Source, listed: Sequence[Row]) -> None:
    first = bytes(source.peek(0, block.BLOCK)[: block.BLOCK])
    if first[156:157] == block.PAX_GLOBAL:
        raise Stale("the archive begins with a header that is about all entries")
    if not listed:
        raise Stale("it lists no sample")
    last = len(listed) - 1
    places = {0, *(last * look // (LOOKS + 1) for look in range(1, LOOKS + 1))} - {last}
    silent = Policy()
    for place in sorted(places):
        if _sample_at(source, listed, place, silent, False) is None:
            raise Stale("the archive has changed since")
    rest = Samples(source, silent, moves=False, pos=_before(listed, last))
    try:
        found = [sample for sample in rest if sample.key != (listed[last - 1][0] if last else None)]
    except Problem as problem:
        raise Stale(str(problem)) from None
    if len(found) != 1 or not _agrees(found[0], listed[last]):
        raise Stale("the archive has changed since")


def _before(listed: Sequence[Row], place: int) -> int:
    """A border of entries before a sample, with none of another sample's listed fields between."""
    return max(field.stop for field in listed[place - 1][1]) if place else 0


def _sample_at(source: Source, listed: Sequence[Row], place: int, policy: Policy, moves: bool) -> Sample | None:
    """The sample that is where an index says, None if there is another one."""
    samples = Samples(source, policy, moves=moves, pos=_before(listed, place))
    try:
        for sample in samples:
            if place and sample.key == listed[place - 1][0]:
                continue  # the rest of the one before: links, which no index lists
            return sample if _agrees(sample, listed[place]) else None
    except Problem as problem:
        raise Stale(str(problem)) from None
    return None


def _agrees(sample: Sample, row: Row) -> bool:
    there = [
        (entry.name, entry.data, entry.size)
        for entry in sample.entries
        if entry.type in REGULAR and key_of(entry) is not None
    ]
    return sample.key == row[0] and there == [field[:3] for field in row[1]]
