"""Where the entries of a sample come from: their ranges in archives, before other headers or orders came in between."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from tarkit.errors import Usage
from tarkit.samples.fields import parse_fields
from tarkit.samples.sample import TarSample, key_of, split_name
from tarkit.streams.ranges import AssembledSource, Held, JoinedSource
from tarkit.streams.source import FileSource, Source, WindowSource
from tarkit.tar.block import HARD_LINK
from tarkit.tar.reader import Entry

if TYPE_CHECKING:
    from tarkit.streams.remote import RemoteSource

Span = tuple[int, int]  # start and stop in the input


def split_off_strays(sample: TarSample) -> tuple[list[Span], list[Span]]:
    """Return the ranges of entries without a key before or after all others, and the ranges of the rest.

    They stay in the sample where a hard link needs that.
    """
    if sample.plain:
        return [], [(sample.start, sample.stop)]
    named = sample.entries
    keyed = [number for number, entry in enumerate(named) if key_of(entry) is not None]
    first, last = (keyed[0], keyed[-1]) if keyed else (len(named), len(named))
    strays, rest = [*named[:first], *named[last + 1 :]], named[first : last + 1]
    if _linked(strays, rest):
        return [], spans_of(named)
    return spans_of(strays), spans_of(rest)


def _linked(strays: Sequence[Entry], rest: Sequence[Entry]) -> bool:
    """Return whether a hard link among these entries has its target among the others."""
    pairs = (strays, rest), (rest, strays)
    return any(
        entry.type == HARD_LINK and any(entry.link == other.name for other in b) for a, b in pairs for entry in a
    )


def spans_of(entries: Iterable[Entry]) -> list[Span]:
    """Return the ranges of entries; adjacent ones are one range."""
    spans: list[Span] = []
    for entry in entries:
        if spans and spans[-1][1] == entry.start:
            spans[-1] = (spans[-1][0], entry.stop)
        else:
            spans.append((entry.start, entry.stop))
    return spans


def origins_of(
    source: Source, spans: Iterable[Span], entries: Iterable[Entry] | None = None
) -> tuple[list[tuple[Source, int, int]], str | None] | None:
    """Return the ranges of archives that entries came from, and their fields in the words of -f if they are renamed.

    Args:
        source: the source of the entries.
        spans: their ranges in it.
        entries: themselves, if they are known.

    Returns:
        None if an entry has new content, a range cannot be told, or -f cannot say the names: one field is renamed, and
        another is there twice, or has a name with a blank.
    """
    ranges: list[tuple[Source, int, int]] = []
    words: list[bytes] = []
    pairs: list[tuple[bytes, bytes]] = []
    renamed = False
    for entry in entries if entries is not None else [each for span in spans for each in _entries(source, span)]:
        origin = _origin_of(source, entry)
        if origin is None or not stays(origin[0]):
            return None
        archive, before = origin
        if ranges and ranges[-1][0] is archive and ranges[-1][2] == before.start:
            ranges[-1] = archive, ranges[-1][1], before.stop
        else:
            ranges.append((archive, before.start, before.stop))
        old, new = split_name(before.name), split_name(entry.name)
        if old is not None and new is not None:
            pairs.append((old[1], new[1]))
            words.append(old[1] if old[1] == new[1] else b"%b:%b" % (new[1], old[1]))
            renamed = renamed or old[1] != new[1]
    if not ranges:
        return None
    if not renamed:
        return ranges, None
    text = os.fsdecode(b" ".join(words))
    return (ranges, text) if len(words) == len(set(words)) and _says(text, pairs) else None


def _says(words: str, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the words of -f mean these pairs of an old and a new name."""
    try:
        choices = parse_fields(words)
    except Usage:
        return False
    return [(choice.old, choice.old[0] if choice.new is None else choice.new) for choice in choices] == [
        ((old,), new) for old, new in pairs
    ]


def _entries(source: Source, span: Span) -> list[Entry]:
    return TarSample(None, source, None, *span).entries


def _origin_of(source: Source, entry: Entry) -> tuple[Source, Entry] | None:
    """Return the archive of an entry and the entry there, under the name that it has there."""
    while isinstance(source, JoinedSource):
        if isinstance(source, AssembledSource) and entry.start in source.origins:
            origin = source.origins[entry.start]
            if origin is None:
                return None
            source, entry = origin[0], Entry._make(origin[1])
            continue
        parts = list(source.within(entry.start, entry.stop))
        if len(parts) != 1 or not isinstance(parts[0][0], Source):
            return None
        source, entry = parts[0][0], entry._replace(start=parts[0][1], stop=parts[0][2])
    return source, entry


def stays(source: Source) -> bool:
    """Return whether the bytes of a source can be read at any time and take no memory: those of files and objects."""
    return source.seekable and not isinstance(source, Held)


def unaltered(source: Source) -> Source:
    """Return the archive if a source consists of ranges of it alone, so that no header was changed; else the source."""
    if isinstance(source, AssembledSource) and all(piece is source.origin for piece, _, _ in source.pieces):
        return source.origin
    return source


def is_object(source: object) -> TypeGuard[RemoteSource]:
    """Return whether a source is an object of a store, read by ranges."""
    return isinstance(source, WindowSource) and source.url is not None


def will_need(source: Source) -> None:
    """Ask the system to read a whole file ahead."""
    if isinstance(source, FileSource):
        source.will_need()
