"""Facts of a zip entry besides its content: name, type, permissions, time, owner, and whether it can be read.

Extra fields override the fixed fields. The local header of an entry may have more of them than the directory: Apple's
programs write the time in UTC and the owner only there.

Source: PKWARE APPNOTE.TXT 6.3.10: 4.4.2 (system), 4.4.4 (flags), 4.4.6 (time), 4.4.15 (attributes), 4.5.5 (NTFS),
4.5.7 (Unix), 4.6.9 (Unicode path); Info-ZIP's extrafld.txt: 0x5455 (time), 0x5855, 0x7855 and 0x7875 (Unix).
"""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from zlib import crc32

from tarkit.zip.decode import METHODS
from tarkit.zip.directory import ZipMember, extra_fields

TIME, UNIX_OLD, UNIX_16, OWNER, NAME = 0x5455, 0x5855, 0x7855, 0x7875, 0x7075  # extra fields of Info-ZIP
NTFS, PKWARE_UNIX = 0x000A, 0x000D
NTFS_EPOCH = 11_644_473_600  # seconds from 1601, the epoch of NTFS, to 1970

_ENCRYPTED, _PATCH, _UTF8 = 0x1 | 0x40, 0x20, 0x800
_UNIX = (3, 19)  # systems with a Unix mode in the external attributes
_DOS_FOLDER = 0x10  # in the MS-DOS attributes, which all systems write
_DEVICES = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK)
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO)


def unsupported(member: ZipMember) -> str | None:
    """Return why an entry cannot be read, None if it can."""
    if member.flags & _ENCRYPTED:
        return "is encrypted"
    if member.method not in METHODS or member.flags & _PATCH:
        return f"is compressed by method {member.method}: only {', '.join(METHODS.values())} are read"
    if member.system in _UNIX and stat.S_IFMT(member.attributes >> 16) in _DEVICES:
        return "is a device"
    if is_directory(member) and (member.size or kind_of(member) == stat.S_IFLNK):
        return "is a directory, and has content"
    return None


def is_directory(member: ZipMember) -> bool:
    """Whether an entry is a directory: by a slash, its mode, or its MS-DOS attributes if it has no mode."""
    if member.name.endswith(b"/"):
        return True
    kind = kind_of(member)
    return kind == stat.S_IFDIR or (not kind and bool(member.attributes & _DOS_FOLDER) and not member.size)


def kind_of(member: ZipMember) -> int:
    """Return the file type bits of the mode of an entry, 0 if unknown.

    A FIFO counts as a regular file: `zip` writes that type for content read from a FIFO or from stdin.
    """
    kind = stat.S_IFMT(member.attributes >> 16) if member.system in _UNIX else 0
    if kind == stat.S_IFIFO:
        return stat.S_IFREG
    return kind if kind in _KINDS else 0


def name_of(member: ZipMember) -> bytes:
    """Return the name of an entry: its bytes in the zip, or the Unicode path field with the checksum of these."""
    raw = member.name
    if b"up" not in member.extra or member.flags & _UTF8:  # the number of the field as bytes; most entries have none
        return raw
    path = extra_fields(member.extra).get(NAME, b"")
    if len(path) < 6 or path[0] != 1 or path[1:5] != crc32(raw).to_bytes(4, "little") or 0 in path[5:]:
        return raw
    try:
        path[5:].decode()
    except UnicodeDecodeError:
        return raw
    return path[5:]


def facts_of(member: ZipMember, local: bytes) -> dict[str, Any]:
    """Return mode, mtime, uid and gid of an entry whose local header has the extra fields `local`.

    Defaults, as in `create`: mode 0644, or 0755 for directories, owner 0, time 0.
    """
    mode = member.attributes >> 16
    if member.system not in _UNIX or stat.S_IFMT(mode) not in (0, *_KINDS):
        mode = 0
    mode = mode & 0o7777 or (0o755 if is_directory(member) else 0o644)
    time = _dos_time(member.date, member.time)
    if not member.extra and not local:
        return {"mode": mode, "mtime": time, "uid": 0, "gid": 0}
    fields = extra_fields(member.extra)
    if local != member.extra:
        for number, data in extra_fields(local, lenient=True).items():
            if len(data) > len(fields.get(number, b"")):  # the directory's is the shorter where it lacks the owner
                fields[number] = data
    uid, gid = _owner(fields)
    return {"mode": mode, "mtime": _mtime(fields, time), "uid": uid, "gid": gid}


def _mtime(fields: dict[int, bytes], dos: int) -> int:
    """Return the time in the extra fields, which is in UTC, else the MS-DOS time, taken as UTC."""
    data = fields.get(TIME, b"")
    if len(data) >= 5 and data[0] & 1:
        return _nearest(data[1:5], dos)
    for number in (UNIX_OLD, PKWARE_UNIX):
        if len(data := fields.get(number, b"")) >= 8:
            return _nearest(data[4:8], dos)
    data = fields.get(NTFS, b"")
    ticks = int.from_bytes(data[8:16], "little") if len(data) >= 16 and data[4:6] == b"\1\0" else 0
    return ticks // 10**7 - NTFS_EPOCH if ticks else dos


def _nearest(data: bytes, dos: int) -> int:
    """Return the seconds since 1970 whose lower 32 bits are `data`; the MS-DOS time tells before 1970 from after 2038.

    The field is signed, and wraps for times after January 2038, as in Info-ZIP; the MS-DOS time goes from 1980 to 2107.
    `dos` is 0 if the entry has no MS-DOS time.
    """
    signed = int.from_bytes(data, "little", signed=True)
    return signed + (1 << 32) if dos and dos - signed > 1 << 31 else signed


def _owner(fields: dict[int, bytes]) -> tuple[int, int]:
    data = fields.get(OWNER, b"")
    if len(data) > 2 and data[0] == 1 and data[1] <= 8:
        uid, rest = data[2 : 2 + data[1]], data[2 + data[1] :]
        if rest and rest[0] <= 8 and len(rest) > rest[0]:
            return int.from_bytes(uid, "little"), int.from_bytes(rest[1 : 1 + rest[0]], "little")
    for number, at in ((UNIX_16, 0), (UNIX_OLD, 8), (PKWARE_UNIX, 8)):
        if len(data := fields.get(number, b"")) >= at + 4:
            return int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 2 : at + 4], "little")
    return 0, 0


@lru_cache(4096)
def _dos_time(date: int, time: int) -> int:
    """Return an MS-DOS time in seconds since 1970; 0 for an invalid date, and for the earliest, which means none.

    >>> _dos_time(33, 0), _dos_time(33, 1), _dos_time(0, 0)
    (0, 315532802, 0)
    """
    if (date, time) == (33, 0):
        return 0
    clock = time >> 11, time >> 5 & 63, (time & 31) * 2
    try:
        return int(datetime((date >> 9) + 1980, date >> 5 & 15, date & 31, *clock, tzinfo=UTC).timestamp())
    except ValueError:
        return 0
