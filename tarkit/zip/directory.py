"""Read the directory of a zip: which entries there are, and where in the file they lie.

The end record, the last thing in a zip, says where the directory is, and the directory says where each entry is. Other
bytes may stand in front of the zip, as the program of a self-extracting one does (4.1.9), and behind it; offsets then
count from the start of the zip, or of the file. If an entry begins in those bytes, this is not the whole zip but
another one inside a cut zip, or the last of several that were glued together: that is an error.

Source: PKWARE APPNOTE.TXT 6.3.10: 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (end records), 4.5.3 (the
extra field of zip64), 8.5.4 (the mark at the start of a first volume).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.streams.copy import CHUNK
from tarkit.streams.source import FileSource

CUT = "the file was not written or not copied to its end: copy or make it again"

_LOCAL = Struct("<4s5H3L2H")
_CENTRAL = Struct("<4s4B4H3L5H2L")
_END = Struct("<4s4H2LH")
_FIELD = Struct("<2H").unpack_from
_END64 = Struct("<4sQ2H2L4Q")
_LOCATOR = Struct("<4sLQL")
_ENTRY, _LISTED, _SIGNATURE, _LAST = b"PK\3\4", b"PK\1\2", b"PK\5\5", b"PK\5\6"
_LAST64, _LOCATES = b"PK\6\6", b"PK\6\7"
_VOLUME = b"PK\7\x08"
_FULL, _FULL16 = 0xFFFFFFFF, 0xFFFF  # the true number is in a field of zip64
_ZIP64 = 1  # its extra field
_METHODS = frozenset((*range(21), *range(92, 100)))  # all that 4.4.5 lists
_VERSIONS = 63  # the newest version that 4.4.3 lists


class ZipMember(NamedTuple):
    """What the directory says of one entry; `offset` is the position of its local header in the file."""

    name: bytes
    system: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int  # bytes of its content as it lies in the zip
    size: int
    attributes: int
    offset: int
    extra: bytes


class _End(NamedTuple):
    """What an end record says: the directory is `size` bytes that end at `stop`, and begins at `start` in the zip."""

    disk: int
    first: int
    entries: int
    size: int
    start: int
    stop: int


def read_directory(source: FileSource, name: str) -> list[ZipMember]:
    """List the entries of a zip in the order of its directory; `name` is for messages.

    Raises:
        Problem: `truncated` for a zip that was cut, `bad-data` for other damage, `bad-header` for what is no zip.
        Unsupported: a zip of several volumes.
    """
    failure: TarkitError | None = None
    size = source.size or 0
    for position in _end_records(source, size):
        for end in _ends(source, position):
            try:
                return _members(source, name, end, position, size)
            except TarkitError as raised:
                failure = failure or raised  # that of the record nearest to the end of the file
    if failure is None:
        head = bytes(source.peek(0, len(_ENTRY))[: len(_ENTRY)])
        if head == _VOLUME:
            failure = _several(name)
        elif head[:2] in (b"PK", b"P"):
            what = f"the zip ends before its directory, after {size} bytes"
            failure = Problem("truncated", name, None, what, CUT)
        else:
            failure = Problem("bad-header", name, 0, "this is neither a tar archive nor a zip")
    raise failure


def damaged(name: str, what: str) -> Problem:
    """Return the problem of a zip that is damaged."""
    return Problem("bad-data", name, None, f"the zip is damaged: {what}")


def _several(name: str) -> Unsupported:
    return Unsupported(f"{name}: the zip is one of several volumes", "zip -s 0 IN.zip --out OUT.zip joins them")


def _end_records(source: FileSource, size: int) -> Iterator[int]:
    """Yield where an end record may be, from the end of the file on: wherever its first four bytes are."""
    stop = size
    while stop > 0:
        start = max(0, stop - CHUNK)
        data = source.read(start, min(size, stop + len(_LAST) - 1))
        at = data.rfind(_LAST)
        while at >= 0:
            yield start + at
            at = data.rfind(_LAST, 0, at + len(_LAST) - 1)
        stop = start


def _ends(source: FileSource, position: int) -> Iterator[_End]:
    """Yield what an end record says, and what that of zip64 before it says: first the one that counts."""
    data = source.read(max(0, position - _LOCATOR.size), min(source.size or 0, position + _END.size))
    record, locator = data[-_END.size :], data[: -_END.size]
    if len(record) < _END.size or not record.startswith(_LAST):
        return
    _, disk, first, _, count, size, start, _ = _END.unpack(record)
    plain = _End(disk, first, count, size, start, position)
    wide = _end64(source, position, locator) if locator.startswith(_LOCATES) else None
    full = _FULL in (size, start) or _FULL16 in (disk, first, count)
    yield from (end for end in ((wide, plain) if full else (plain, wide)) if end is not None)


def _end64(source: FileSource, position: int, locator: bytes) -> _End | None:
    """What the end record of zip64 says; it stands before its locator, or where that says."""
    size = source.size or 0
    for at in (position - _LOCATOR.size - _END64.size, _LOCATOR.unpack(locator)[2]):
        if 0 <= at <= size - _END64.size:
            record = source.read(at, at + _END64.size)
            if record.startswith(_LAST64):
                _, _, _, _, disk, first, _, count, length, start = _END64.unpack(record)
                return _End(disk, first, count, length, start, at)
    return None


def _members(source: FileSource, name: str, end: _End, position: int, size: int) -> list[ZipMember]:
    """The entries that an end record leads to; raises TarkitError unless they are all that the zip says there is."""
    if end.disk or end.first:
        raise _several(name)
    comment = int.from_bytes(source.read(position + _END.size - 2, position + _END.size), "little")
    zip_stop = position + _END.size + comment
    if zip_stop > size:
        raise Problem("truncated", name, None, "the zip ends inside its comment", CUT)
    directory = end.stop - end.size
    front = directory - end.start  # bytes that the offsets do not count
    if front < 0:
        raise damaged(name, "its directory is not where its end says, as if bytes of its start were missing")
    members = _parse(source.read(directory, end.stop), front, name)
    if end.entries not in (len(members), len(members) & _FULL16):
        raise damaged(name, f"it has {end.entries} entries, and its directory lists {len(members)}")
    if not members and (front or zip_stop < size):
        raise damaged(name, "its directory lists nothing, and other bytes stand around it")
    if front:
        _refuse_entries(source, name, 0, min(member.offset for member in members), "before")
    _refuse_entries(source, name, position + _END.size, size, "behind")  # in its comment too: others read that one
    return members


def _parse(data: bytes, front: int, name: str) -> list[ZipMember]:
    """The entries of a directory."""
    members: list[ZipMember] = []
    at, stop = 0, len(data)
    while at + _CENTRAL.size <= stop:
        magic, _, system, _, _, flags, method, time, date, crc, packed, size, *rest = _CENTRAL.unpack_from(data, at)
        name_size, extra_size, comment_size, _, _, attributes, offset = rest
        if magic != _LISTED:
            break
        extra_at = at + _CENTRAL.size + name_size
        raw, extra = data[at + _CENTRAL.size : extra_at], data[extra_at : extra_at + extra_size]
        at = extra_at + extra_size + comment_size
        try:
            if _FULL in (size, packed, offset):
                size, packed, offset = _wide(extra, (size, packed, offset))
            elif extra:
                extra_fields(extra)
        except ValueError as failure:
            raise damaged(name, f"its directory does not read: {show(raw)} has {failure}") from None
        members.append(
            ZipMember(raw, system, flags, method, time, date, crc, packed, size, attributes, offset + front, extra)
        )
    if at != stop and not data.startswith(_SIGNATURE, at):
        raise damaged(name, "its directory does not read: something else than a record of an entry is in it")
    return members


def _wide(extra: bytes, numbers: tuple[int, ...]) -> list[int]:
    """The size, packed size and offset of an entry, those that are full from the field of zip64."""
    field = extra_fields(extra).get(_ZIP64, b"")
    found, at = [], 0
    for number in numbers:
        if number == _FULL and at + 8 <= len(field):
            number, at = int.from_bytes(field[at : at + 8], "little"), at + 8
        elif number == _FULL and field:
            raise ValueError("a field of zip64 that is too short")
        found.append(number)
    return found


def extra_fields(extra: bytes, *, lenient: bool = False) -> dict[int, bytes]:
    """Return extra fields by their numbers (4.5.1), the first of each. Up to three bytes at the end are padding.

    Raises ValueError for a field that is longer than what there is, which `lenient` leaves out.
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
    """Raise Problem if the header of an entry is in [start, stop), outside of the zip."""
    while start < stop:
        data = source.read(start, min(stop, start + CHUNK))
        at = data.find(_ENTRY)
        while at >= 0:
            header = data[at : at + _LOCAL.size]
            if len(header) < _LOCAL.size and start + at + _LOCAL.size <= stop:
                break  # it is whole in what is read next
            if _is_entry(header) or (len(header) < _LOCAL.size and stop == source.size):  # or its start, at the end
                what = f"an entry that its directory does not list stands {where} it"
                hint = "if several zips were glued together, cut them apart; else copy or make the file again"
                raise Problem("bad-data", name, None, f"the zip is damaged: {what}", hint)
            at = data.find(_ENTRY, at + 1)
        start += len(data) - (_LOCAL.size - 1 if start + len(data) < stop else 0)


def _is_entry(header: bytes) -> bool:
    """Whether what begins as a local header is one, and not a program that looks for them."""
    if len(header) < _LOCAL.size:
        return False
    _, needed, _, method, *_, name_size, _ = _LOCAL.unpack(header)
    return needed & 0xFF <= _VERSIONS and method in _METHODS and name_size > 0
