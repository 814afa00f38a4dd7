"""What the directory of a zip says of an entry: its name, what it is, permissions, time; and whether we can read it.

Source: PKWARE APPNOTE.TXT 6.3.10, 4.4; Info-ZIP's extra fields 0x5455 (time) and 0x7075 (name).
"""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from functools import lru_cache
from struct import unpack_from
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from zipfile import ZipInfo

METHODS = {0: "stored", 8: "deflate", 12: "bzip2", 14: "lzma"}

_ENCRYPTED, _PATCH, _UTF8 = 0x1 | 0x40, 0x20, 0x800
_UNIX = (3, 19)  # systems whose modes are in the external attributes
_TIME, _NAME = 0x5455, 0x7075  # extra fields of Info-ZIP
_KINDS = (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def unable(info: ZipInfo) -> str | None:
    """Why an entry cannot be read, if it cannot."""
    kind = kind_of(info)
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.compress_type not in METHODS or info.flag_bits & _PATCH:
        return f"is packed by method {info.compress_type}: only {', '.join(METHODS.values())} are read"
    if kind not in _KINDS:
        return "is a device or a FIFO"
    if is_folder(info) and (info.file_size or kind == stat.S_IFLNK):
        return "is a folder by its name, and has content"
    return None


def is_folder(info: ZipInfo) -> bool:
    """Whether an entry is a folder."""
    return info.orig_filename.endswith("/") or kind_of(info) == stat.S_IFDIR


def raw_name(info: ZipInfo) -> bytes:
    """The name of an entry as it lies in the zip."""
    name = info.orig_filename
    if info.flag_bits & _UTF8 or name.isascii():
        return name.encode()
    return name.encode("cp437")  # so zipfile decodes what is not marked; each byte is one of its letters


def name_of(info: ZipInfo) -> bytes:
    """The name of an entry: the bytes that the zip has, or what Info-ZIP says beside a name in another code page."""
    raw = raw_name(info)
    said = _extra(info, _NAME) if info.extra and not raw.isascii() else None
    if said and len(said) > 5 and said[0] == 1 and said[1:5] == crc32(raw).to_bytes(4, "little") and 0 not in said[5:]:
        return said[5:]
    return raw


def kind_of(info: ZipInfo) -> int:
    """What an entry is, as the upper bits of a mode: 0 when the zip does not say."""
    return stat.S_IFMT(info.external_attr >> 16) if info.create_system in _UNIX else 0


def mode_of(info: ZipInfo) -> int:
    """Its permissions; 0644, or 0755 for folders, when the zip does not say."""
    mode = info.external_attr >> 16 & 0o7777 if info.create_system in _UNIX else 0
    return mode or (0o755 if info.orig_filename.endswith("/") else 0o644)


def mtime_of(info: ZipInfo) -> int:
    """Its time, in seconds since 1970. That of the zip itself is taken for UTC, and its first for none: 0."""
    said = _extra(info, _TIME) if info.extra else None
    if said and len(said) >= 5 and said[0] & 1:
        return int.from_bytes(said[1:5], "little", signed=True)
    return _seconds(info.date_time)


@lru_cache(4096)
def _seconds(when: tuple[int, int, int, int, int, int]) -> int:
    if when <= (1980, 1, 1, 0, 0, 0):
        return 0
    try:
        return int(datetime(*when, tzinfo=UTC).timestamp())
    except ValueError:  # a 30th of February
        return 0


def _extra(info: ZipInfo, wanted: int) -> bytes | None:
    """The extra field of a number."""
    extra, at = info.extra, 0
    while at + 4 <= len(extra):
        number, size = unpack_from("<2H", extra, at)
        if number == wanted:
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return None
