"""Read the directory of a zip: its entries and their offsets in the file.

The end record at the end of a zip has the offset of the directory, the directory those of the entries. Other bytes may
precede the zip, such as the program of a self-extracting one (4.1.9), or follow it; offsets count from the start of the
zip or of the file. An entry in those bytes is an error: the file is then a truncated zip with another one inside, or
several concatenated zips. (Python's zipfile opens both without an error, and takes twice the time.)

Source: PKWARE APPNOTE.TXT 6.3.10: 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (end records), 4.5.3 (the
extra field of zip64), 8.5.4 (the mark at the start of a first volume).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.sizes import plural
from tarkit.streams.codecs import CUT
from tarkit.streams.copy import CHUNK
from tarkit.streams.source import FileSource

LOCAL, CENTRAL, END = Struct("<4s5H3L2H"), Struct("<4s6H3L5H2L"), Struct("<4s4H2LH")
END64, LOCATOR = Struct("<4sQ2H2L4Q"), Struct("<4sLQL")
FULL, FULL16 = 0xFFFFFFFF, 0xFFFF  # the true number is in a field of zip64
ZIP64 = 1  # its extra field

_FIELD = Struct("<2H").unpack_from
_METHODS = frozenset((*range(21), *range(92, 100)))  # all that 4.4.5 lists
_VERSIONS = 63  # the newest version that 4.4.3 lists


class ZipMember(NamedTuple):
    """The record of an entry in the directory; `offset` is that of its local header in the file."""

    name: bytes
    system: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int  # bytes of its content as stored
    size: int
    attributes: int
    offset: int
    extra: bytes


class _End(NamedTuple):
    """An end record: the directory is `size` bytes that end at `stop` in the file and begin at `start` in the zip."""

    disk: int
    first: int
    entries: int
    size: int
    start: int
    stop: int


def read_directory(source: FileSource, name: str) -> list[ZipMember]:
    """Return the entries of a zip in the order of its directory; `name` is for messages.

    Raises:
        Problem: `truncated` for a zip that ends early, `bad-data` for other damage, `bad-header` if it is not a zip.
        Unsupported: a zip of several volumes.
    """
    failure: TarkitError | None = None
    size = source.size or 0
    for position in _end_records(source, size):
        for end in _ends(source, position, size):
            try:
                return _members(source, name, end, position, size)
            except TarkitError as raised:
                failure = failure or raised  # the error for the record nearest to the end of the file
    if failure is None:
        head = bytes(source.peek(0, 4)[:4])
        if head == b"PK\7\x08":
            failure = _several(name)
        elif head[:2] in (b"PK", b"P"):
            failure = Problem(
                "truncated", name, None, f"the zip ends before its directory, after {plural(size, 'byte')}", CUT
            )
        else:
            failure = Problem("bad-header", name, 0, "this is neither a tar archive nor a zip")
    raise failure


def damaged(name: str, detail: str, hint: str | None = None) -> Problem:
    """Return the problem of a damaged zip."""
    return Problem("bad-data", name, None, f"the zip is damaged: {detail}", hint)


def _several(name: str) -> Unsupported:
    return Unsupported(f"{name}: the zip is one of several volumes", "zip -s 0 IN.zip --out OUT.zip joins them")


def _end_records(source: FileSource, size: int) -> Iterator[int]:
    """Yield the offsets of possible end records, by their first four bytes, from the end of the file backwards."""
    stop = size
    while stop > 0:
        start = max(0, stop - CHUNK)
        data = source.read(start, min(size, stop + 3))
        at = data.rfind(b"PK\5\6")
        while at >= 0:
            yield start + at
            at = data.rfind(b"PK\5\6", 0, at + 3)
        stop = start


def _ends(source: FileSource, position: int, size: int) -> Iterator[_End]:
    """Yield the end record at `position` and the zip64 one before it, first the one that applies."""
    data = source.read(max(0, position - LOCATOR.size), min(size, position + END.size))
    record, locator = data[-END.size :], data[: -END.size]
    if len(record) < END.size or not record.startswith(b"PK\5\6"):
        return
    _, disk, first, _, count, length, start, _ = END.unpack(record)
    ends = [_End(disk, first, count, length, start, position)]
    if locator.startswith(b"PK\6\7"):  # the zip64 record is directly before its locator, or at the offset in that
        for at in (position - LOCATOR.size - END64.size, LOCATOR.unpack(locator)[2]):
            if 0 <= at <= size - END64.size and (record := source.read(at, at + END64.size)).startswith(b"PK\6\6"):
                _, _, _, _, disk64, first64, _, count64, length64, start64 = END64.unpack(record)
                ends.append(_End(disk64, first64, count64, length64, start64, at))
                break
    yield from reversed(ends) if FULL in (length, start) or FULL16 in (disk, first, count) else ends


def _members(source: FileSource, name: str, end: _End, position: int, size: int) -> list[ZipMember]:
    """Return the entries for an end record. Raises TarkitError unless all its numbers agree with the file."""
    if end.disk or end.first:
        raise _several(name)
    behind = position + END.size
    zip_stop = behind + int.from_bytes(source.read(behind - 2, behind), "little")  # with its comment
    if zip_stop > size:
        raise Problem("truncated", name, None, "the zip ends inside its comment", CUT)
    directory = end.stop - end.size
    front = directory - end.start  # bytes that the offsets do not count
    if front < 0:
        raise damaged(name, "its directory is not at the stated offset, as if bytes of its start were missing")
    members = _parse(source.read(directory, end.stop), front, name)
    if end.entries not in (len(members), len(members) & FULL16):
        raise damaged(name, f"it has {plural(end.entries, 'entry')}, and its directory lists {len(members)}")
    if not members and (front or zip_stop < size):
        raise damaged(name, "its directory is empty, and there are other bytes before or after it")
    if front:
        _refuse_entries(source, name, 0, min(member.offset for member in members), "before")
    _refuse_entries(source, name, behind, size, "after")
    return members


def _parse(data: bytes, front: int, name: str) -> list[ZipMember]:
    members: list[ZipMember] = []
    at, stop = 0, len(data)
    while at + CENTRAL.size <= stop:
        magic, made, _, flags, method, time, date, crc, packed, size, *rest = CENTRAL.unpack_from(data, at)
        name_size, extra_size, comment_size, _, _, attributes, offset = rest
        if magic != b"PK\1\2":
            break
        extra_at = at + CENTRAL.size + name_size
        raw, extra = data[at + CENTRAL.size : extra_at], data[extra_at : extra_at + extra_size]
        at = extra_at + extra_size + comment_size
        try:
            if FULL in (size, packed, offset):
                size, packed, offset = _wide(extra, (size, packed, offset))
            elif extra:
                extra_fields(extra)
        except ValueError as failure:
            raise damaged(name, f"its directory cannot be read: {show(raw)} has {failure}") from None
        members.append(
            ZipMember(raw, made >> 8, flags, method, time, date, crc, packed, size, attributes, offset + front, extra)
        )
    if at != stop and not data.startswith(b"PK\5\5", at):  # a signature may follow
        raise damaged(name, "its directory cannot be read: it contains something other than records of entries")
    return members


def _wide(extra: bytes, numbers: tuple[int, ...]) -> list[int]:
    field = extra_fields(extra).get(ZIP64, b"")
    wide, at = [], 0
    for number in numbers:
        if number == FULL and at + 8 <= len(field):
            number, at = int.from_bytes(field[at : at + 8], "little"), at + 8
        elif number == FULL and field:
            raise ValueError("a field of zip64 that is too short")
        wide.append(number)
    return wide


def extra_fields(extra: bytes, *, lenient: bool = False) -> dict[int, bytes]:
    """Return extra fields by their numbers (4.5.1), the first of each. Up to three bytes at the end are padding.

    Raises ValueError for a field that is cut, which `lenient` skips.
    """
    fields: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(extra):
        number, size = _FIELD(extra, at)
        at += 4 + size
        if at <= len(extra):
            fields.setdefault(number, extra[at - size : at])
        elif not lenient:
            raise ValueError(f"a damaged extra field (0x{number:04x})")
    return fields


def _refuse_entries(source: FileSource, name: str, start: int, stop: int, where: str) -> None:
    """Raise Problem if there is a local header in [start, stop), outside of the zip."""
    while start < stop:
        data = source.read(start, min(stop, start + CHUNK))
        at = data.find(b"PK\3\4")
        while at >= 0:
            header = data[at : at + LOCAL.size]
            if len(header) < LOCAL.size and start + at + LOCAL.size <= stop:
                break  # the next read has all of it
            if _is_entry(header) or (len(header) < LOCAL.size and stop == source.size):  # or its start, at the end
                hint = "if several zips were concatenated, split them; else copy or make the file again"
                raise damaged(name, f"there is an entry {where} it that its directory does not list", hint)
            at = data.find(b"PK\3\4", at + 1)
        start += len(data) - (LOCAL.size - 1 if start + len(data) < stop else 0)


def _is_entry(header: bytes) -> bool:
    """Whether bytes with the magic of a local header are one, and not part of a program that searches for it."""
    if len(header) < LOCAL.size:
        return False
    _, needed, _, method, *_, name_size, _ = LOCAL.unpack(header)
    return needed & 0xFF <= _VERSIONS and method in _METHODS and name_size > 0
