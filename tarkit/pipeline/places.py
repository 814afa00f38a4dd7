"""The place of a sample: bytes that say where its ranges are, as compact as a list of many samples needs."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

Place = bytes
"""Where a sample is. Of one range of a file of input: `SHORT` with the kind, the file, start and length; then the tail.
Of any ranges: `_LONG` with the kind and their number; for each the input, the file, where it began in the input, its
offset in the file and its length; then the tail. The kind has the bits MANY, WITH_ROW and NAMED. The tail is the key,
after `ROW` if the sample is one of a view: the number of the rows that are read together, and of the row among them.
Before them are the words of -f for its fields, after their length, if it is NAMED: its entries get new names."""

SHORT = Struct(">BIQI")
SHORT_LIMIT = 1 << 32
"""Bytes of a range that is too long for `SHORT`."""

MANY, WITH_ROW, NAMED = 1, 2, 4
ROW = Struct(">IQ")
_WORDS = Struct(">I")  # the length of the fields of a sample whose entries have new names
_LONG = Struct(">BI")
_RANGE = Struct(">IIQQQ")
_FIRST = Struct(">xI4xI")  # the number of ranges, and the file of the first
_HEAD, _EACH = _LONG.size, _RANGE.size
TAIL = SHORT.size
"""Where the tail begins in the place of one range."""

Range = tuple[int, int, int, int, int]  # input, file, start, offset, length


def pack_ranges(ranges: Iterable[Range], kind: int, tail: bytes) -> Place:
    """Return the place of any ranges."""
    packed = [_RANGE.pack(*item) for item in ranges]
    return b"".join([_LONG.pack(kind | MANY, len(packed)), *packed, tail])


def with_words(words: bytes, tail: bytes) -> bytes:
    """Return the tail of a sample whose entries get new names, with the words of -f for its fields; none for all."""
    return _WORDS.pack(len(words)) + words + tail


def many_in(place: Place) -> list[Range]:
    """Return the ranges of a place of the kind MANY."""
    return list(_RANGE.iter_unpack(place[_HEAD : _tail_at(place)]))


def row_in(place: Place) -> tuple[int, int] | None:
    """Return the number of a group of rows and of the row in it; None for a sample that is not one of a view."""
    if not place[0] & WITH_ROW:
        return None
    group, number = ROW.unpack_from(place, _key_at(place) - ROW.size)
    return group, number


def _tail_at(place: Place) -> int:
    """Return where the tail begins in a place."""
    return _HEAD + _EACH * int(_LONG.unpack_from(place)[1]) if place[0] & MANY else TAIL


def _key_at(place: Place) -> int:
    """Return where the key begins in a place."""
    at = _tail_at(place)
    if place[0] & NAMED:
        at += _WORDS.size + int(_WORDS.unpack_from(place, at)[0])
    return at + (ROW.size if place[0] & WITH_ROW else 0)


def fields_in(place: Place) -> str:
    """Return the words of -f for the fields of a named sample; empty for all."""
    at = _tail_at(place)
    (length,) = _WORDS.unpack_from(place, at)
    return place[at + _WORDS.size : at + _WORDS.size + length].decode("utf-8", "surrogateescape")


def tail_of(place: Place) -> bytes:
    """Return the tail of a place."""
    return place[_tail_at(place) :]


def key_in(place: Place) -> bytes:
    """Return the key of the sample at a place."""
    return place[_key_at(place) :]


def size_of(place: Place) -> int:
    """Return the number of bytes at a place."""
    if place[0] & MANY:
        return sum(size for *_, size in many_in(place))
    return int(SHORT.unpack_from(place)[3])


def file_of(place: Place) -> int | None:
    """Return the number of the file of a place of one range that is not in a file of input; None for others."""
    count, file = _FIRST.unpack_from(place) if place[0] & MANY else (0, 0)
    return file if count == 1 else None
