"""Make headers of entries: `encode` for new entries, `rename` for existing ones, and `end_of_archive`.

Existing headers are parsed only as far as a new name needs it, and by `mode_and_time` and `main_header` for facts
besides name and content: a reader of archives is `reader.TarReader`.

A new header has the simplest format that can hold it: USTAR, else USTAR after a PAX `x` entry with only the records
that do not fit. A renamed header keeps its format and all that does not depend on the name. Names are raw bytes.

Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; GNU tar manual, "Basic Tar Format"
and "Storing Sparse Files".
"""

from __future__ import annotations

import math
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import adler32

from tarkit.sizes import EARLIEST, LATEST
from tarkit.tar import block as b
from tarkit.tar import pax

if TYPE_CHECKING:
    from decimal import Decimal

_FIELD12 = 8**11 - 1  # the largest size and time that eleven octal digits hold: 8 GiB - 1
_FIELD8 = 8**7 - 1
_NAME, _PREFIX, _LINKNAME = 100, 155, 100
_NO_PREFIX = bytes(_PREFIX)

# The constant parts of a plain file's header: mode, uid, gid; then typeflag, an empty link name, magic, version, empty
# owner names, device 0, an empty prefix. The checksum counts its own field as eight spaces (POSIX, "ustar Interchange
# Format"). The lower half of the adler32 of up to 257 bytes is their sum plus 1.
_PLAIN_OWNER = b"0000644\0" + b"0000000\0" * 2
_PLAIN_TAIL = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(155 + 12)
_PLAIN_BLOCK = Struct("100s48s8s356s")  # name; owner, size and time; checksum; tail
_PLAIN_SUM = sum(_PLAIN_OWNER) + sum(_PLAIN_TAIL) + 8 * 32 - 2  # two sums are taken so: of the name, of the numbers

_CHARSET = b"hdrcharset"
_SPARSE_NAME = b"GNU.sparse.name"
_OTHER_TEXT = frozenset((b"linkpath", b"uname", b"gname"))  # the records that `hdrcharset` applies to besides the name


def encode(
    name: bytes,
    size: int,
    *,
    mode: int = 0o644,
    mtime: int | float = 0,
    uid: int = 0,
    gid: int = 0,
    typeflag: bytes = b.REGULAR,
    linkname: bytes = b"",
) -> bytes:
    """Return the header of a new entry: a USTAR block, after a PAX `x` entry where USTAR cannot hold all of it.

    The same arguments give the same bytes.

    Args:
        size: the payload in bytes.
        mtime: seconds since 1970.

    Raises:
        ValueError: an empty name, a NUL in a name, a negative size or id, a mode of more than 7 octal digits, an mtime
            that is not a number below 2**63, or a size for a type without payload.
    """
    # A plain file: all but the name, size and time is constant, and so is that part of the checksum.
    plain = mode == 0o644 and typeflag == b.REGULAR and not (uid or gid or linkname)
    if plain and 0 < len(name) <= _NAME and 0 not in name and (fields := _plain_fields(size, mtime)):
        checksum = _checksum_field((adler32(name) & 0xFFFF) + fields[1])
        return _PLAIN_BLOCK.pack(name, fields[0], checksum, _PLAIN_TAIL)
    return _encode_any(name, size, mode, mtime, uid, gid, typeflag, linkname)


@lru_cache(4096)
def _plain_fields(size: int, mtime: int | float) -> tuple[bytes, int] | None:
    """Return the fields of a plain file between name and checksum, and the sum of all its bytes but the name.

    None if eleven octal digits cannot hold the size or the time.
    """
    if not 0 <= size <= _FIELD12 or not 0 <= mtime <= _FIELD12 or mtime != int(mtime):
        return None
    numbers = b"%011o\0%011o\0" % (size, int(mtime))
    return _PLAIN_OWNER + numbers, (adler32(numbers) & 0xFFFF) + _PLAIN_SUM


@lru_cache(4096)
def _checksum_field(total: int) -> bytes:
    return b"%06o\0 " % total


def _encode_any(
    name: bytes, size: int, mode: int, mtime: int | float, uid: int, gid: int, typeflag: bytes, linkname: bytes
) -> bytes:
    """Return the header of `encode` for any arguments."""
    _check_name(name)
    if 0 in linkname:
        raise ValueError(f"a NUL in the link name {linkname!r}")
    if min(size, uid, gid) < 0 or not 0 <= mode <= _FIELD8 or not abs(mtime) < 2**63 or len(typeflag) != 1:
        raise ValueError(f"not valid in a tar header: {size=} {mode=} {mtime=} {uid=} {gid=} {typeflag=}")
    if size != b.payload_size(typeflag, size):
        raise ValueError(f"an entry of type {typeflag!r} has no payload, but size {size}")
    records: dict[bytes, bytes] = {}
    where = _split(name, _PREFIX)
    if where is None:
        records[b"path"] = name
        where = b"", _cut(name)
    if len(linkname) > _LINKNAME:
        records[b"linkpath"] = linkname
    if not all(map(is_utf8, records.values())):
        records = {_CHARSET: b"BINARY", **records}
    for keyword, value, limit in ((b"size", size, _FIELD12), (b"uid", uid, _FIELD8), (b"gid", gid, _FIELD8)):
        if value > limit:
            records[keyword] = b"%d" % value
    seconds = math.floor(mtime)
    if seconds != mtime or not 0 <= seconds <= _FIELD12:
        from decimal import Decimal  # rarely needed, and slower to import than this whole package

        records[b"mtime"] = format(Decimal(repr(mtime)), "f").encode()
    numbers = (mode, _fit(uid, _FIELD8), _fit(gid, _FIELD8), _fit(size, _FIELD12), _fit(seconds, _FIELD12))
    return (_pax_entry(name, records) if records else b"") + _ustar(*where, numbers, typeflag, linkname[:_LINKNAME])


def _ustar(prefix: bytes, name: bytes, numbers: tuple[int, int, int, int, int], typeflag: bytes, link: bytes) -> bytes:
    """Return a USTAR block of fields that fit; numbers: mode, uid, gid, size, mtime."""
    fields = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(_NAME, b"\0"), *numbers)
    middle = link.ljust(_LINKNAME, b"\0") + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    return b.seal(fields + bytes(8) + typeflag + middle + prefix.ljust(_PREFIX, b"\0") + bytes(12))


_LONG_NAME_BLOCK = _ustar(b"", b"././@LongLink", (0o644, 0, 0, 0, 0), b.GNU_LONG_NAME, b"").replace(
    b"ustar\x0000", b.GNU_MAGIC
)  # the header of an `L` entry, whose name is the same in all archives of GNU tar


def _fit(value: int, limit: int) -> int:
    """Return `value` for its USTAR field; 0, as in Python and Go, where a PAX record has it."""
    return value if 0 <= value <= limit else 0


def _check_name(name: bytes) -> None:
    if not name:
        raise ValueError("an empty name")
    if 0 in name:
        raise ValueError(f"a NUL in the name {name!r}")


def is_utf8(name: bytes) -> bool:
    """Whether a name is valid UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _split(name: bytes, prefix: int) -> tuple[bytes, bytes] | None:
    """Return `name` as USTAR fields (prefix, name), with at most `prefix` bytes in the first; None if too long."""
    if len(name) <= _NAME:
        return b"", name
    cut = name.rfind(b"/", 1, min(prefix + 1, len(name) - 1))
    # libarchive drops a slash at the end of a prefix.
    while cut > 1 and name[cut - 1] == b.SLASH:
        cut -= 1
    if cut < 1 or name[cut - 1] == b.SLASH or len(name) - cut - 1 > _NAME:
        return None
    return name[:cut], name[cut + 1 :]


def _cut(name: bytes) -> bytes:
    """Return the name field for a name that does not fit. A slash at the end is kept: in V7 it marks a directory."""
    slash = b"/" if name.endswith(b"/") else b""
    return (name[: _NAME - len(slash)].rstrip(b"/") or b"_") + slash


def _pax_name(name: bytes) -> bytes:
    """Return the name of the `x` entry of the entry `name`; only readers without PAX support show it."""
    tail = name.rstrip(b"/").rpartition(b"/")[2] or b"_"
    if len(tail) > 80:
        tail = tail[-80:].lstrip(bytes(range(0x80, 0xC0))) or tail[-80:]  # do not begin inside a UTF-8 character
    return b"PaxHeaders/" + tail


def _pax_entry(name: bytes, records: pax.Records | list[tuple[bytes, bytes]]) -> bytes:
    """Return the `x` entry with these records for the entry `name`."""
    block = _ustar(b"", _pax_name(name), (0o644, 0, 0, 0, 0), b.PAX, b"")
    return _extension(block, pax.format_records(records))


class _Part(NamedTuple):
    """One header of an entry: an extension with its payload, or the main header."""

    kind: bytes  # the typeflag, with Sun's X as x
    block: bytes
    payload: bytes  # without padding; after the main header: blocks of sparse map


def rename(header: bytes, name: bytes) -> bytes:
    """Return the header of an entry with only its name changed; the same bytes if it has that name.

    The name is stored as in the format of the header: USTAR in name and prefix, else in a PAX record; GNU in the name,
    else in an `L` entry; V7 in the name, else in a PAX record; for a PAX sparse file also in `GNU.sparse.name`. The
    name of the PAX header itself follows.

    Args:
        header: all of the entry before its payload: PAX and GNU extensions, the header, blocks of sparse map.

    Raises:
        ValueError: an empty name, a NUL in it, or a malformed `header`.
    """
    _check_name(name)
    if len(header) == b.BLOCK and header[156:157] not in b.EXTENSIONS:  # most are: saves 27 % of `cat --rekey`
        if b.name_of(header) == name:
            return header
        where = _split(name, _prefix_limit(header))
        if where is not None:
            return _place(header, *where)
    *extensions, last = _parts(header)
    # Of several `x`, or `L`, only the last counts, as in GNU tar and libarchive.
    by_kind = {part.kind: part for part in extensions}
    old_pax, old_long = by_kind.get(b.PAX), by_kind.get(b.GNU_LONG_NAME)
    pairs = list(pax.parse_pairs(old_pax.payload)) if old_pax else []
    records = pax.last_of_each(pairs)
    if _name(records, old_long, last.block) == name:
        return header
    sparse = _SPARSE_NAME in records
    plain = _sparse_stand_in(name) if sparse else name
    where = _split(plain, _prefix_limit(last.block))
    names = {_SPARSE_NAME: name} if sparse else {}
    pax_entry = long_entry = b""
    if where is None:
        where = b"", _cut(plain)
        if last.block[257:265] == b.GNU_MAGIC:
            long_entry = _extension(old_long.block if old_long else _LONG_NAME_BLOCK, plain + b"\0")
        else:
            names[b"path"] = plain
    pairs = _renamed_pairs(pairs, names)
    if pairs and old_pax:
        pax_entry = _extension(_place(old_pax.block, b"", _pax_name(name)), pax.format_records(pairs))
    elif pairs:
        pax_entry = _pax_entry(name, pairs)
    others = [_raw(part) for part in extensions if part.kind not in (b.PAX, b.GNU_LONG_NAME)]
    return b"".join((*others, pax_entry, long_entry, _place(last.block, *where), last.payload))


def rename_entry(entry: bytes, old: bytes, name: bytes) -> bytes | None:
    """Return an entry with another name, as `rename` does; None where more than the name in one block would change.

    `old` is the name that it has. The checksum is that of the bytes that stay and of those that change.
    """
    if name == old:
        return entry
    if len(name) > _NAME or entry[156:157] in b.EXTENSIONS:
        return None
    if entry[257:263] == b.USTAR_MAGIC and entry[345 : 345 + _PREFIX] != _NO_PREFIX:
        return None
    head = name.ljust(_NAME, b"\0") + entry[_NAME:148]
    tail = entry[156:]
    total = (adler32(head) & 0xFFFF) - 1 + _sum_of_tail(tail[: b.BLOCK - 156]) + 8 * 32
    return b"%b%06o\0 %b" % (head, total, tail)


@lru_cache(64)
def _sum_of_tail(tail: bytes) -> int:
    return sum(tail)  # of most archives all headers have the same


def _parts(header: bytes) -> list[_Part]:
    """Return the extensions of an entry, in order, and last its main header."""
    parts: list[_Part] = []
    pos = 0
    while len(block := header[pos : pos + b.BLOCK]) == b.BLOCK:
        kind, data = block[156:157], pos + b.BLOCK
        if kind not in b.EXTENSIONS:
            return [*parts, _Part(kind, block, header[data:])]
        size = b.payload_size(kind, b.parse_number(block[124:136]))
        parts.append(_Part(b.PAX if kind == b.SOLARIS_X else kind, block, header[data : data + size]))
        pos = data + size + b.padding(size)
    raise ValueError("not the whole header of an entry")


def _raw(part: _Part) -> bytes:
    return part.block + part.payload + bytes(b.padding(len(part.payload)))


def _name(records: pax.Records, long_name: _Part | None, block: bytes) -> bytes:
    """Return the name of an entry: a PAX record overrides `L`, as in GNU tar, and both override the header."""
    path = pax.Overrides.of(records).path
    if path is not None:
        return path
    return pax.parse_long_name(long_name.payload) if long_name else b.name_of(block)


def _extension(block: bytes, payload: bytes) -> bytes:
    """Return an extension with this payload; its header is `block` with another size."""
    size = b.format_number(len(payload), 12)
    return b.seal(block[:124] + size + block[136:]) + payload + bytes(b.padding(len(payload)))


def _renamed_pairs(pairs: list[tuple[bytes, bytes]], names: pax.Records) -> list[tuple[bytes, bytes]]:
    """Return PAX records with their names replaced by those in `names`, and with the `hdrcharset` that these need."""
    remaining = dict(names)
    kept = []
    charset: dict[bytes, bytes] = {}
    for keyword, value in pairs:
        if keyword == _CHARSET:
            charset[keyword] = value
        elif keyword not in (b"path", _SPARSE_NAME):
            kept.append((keyword, value))
        elif keyword in remaining:
            kept.append((keyword, remaining.pop(keyword)))
    if not any(keyword in _OTHER_TEXT for keyword, _ in kept):
        charset = {}
    if not all(map(is_utf8, names.values())):
        charset = {_CHARSET: b"BINARY"}
    if len(names) > 1:  # Python's tarfile takes the last name, and the path is a placeholder
        kept.sort(key=lambda pair: pair[0] == _SPARSE_NAME)
    return [*charset.items(), *remaining.items(), *kept]


def _sparse_stand_in(name: bytes) -> bytes:
    """Return the `path` of a PAX sparse file for readers that cannot unpack it: GNU tar's, without its process id."""
    directory, _, base = name.rpartition(b"/")
    return (directory or b".") + b"/GNUSparseFile.0/" + base


def _prefix_limit(block: bytes) -> int:
    """Return how many bytes the prefix of a name may have in this header."""
    if block[257:263] != b.USTAR_MAGIC:
        return 0
    # star stores two times after a prefix that ends in NUL. Old versions wrote no trailer: GNU tar checks the times.
    times = block[475] == 0 and block[476:477].isdigit() and block[487] == 32 and block[499] == 32
    return b.STAR_PREFIX - 1 if times or block[508:512] == b.STAR_TRAILER else _PREFIX


def _place(block: bytes, prefix: bytes, name: bytes) -> bytes:
    """Return the header `block` with another name and the checksum for it."""
    limit = _prefix_limit(block)
    return b.seal(name.ljust(_NAME, b"\0") + block[100:345] + prefix.ljust(limit, b"\0") + block[345 + limit :])


def end_of_archive(length: int) -> bytes:
    """Return the end-of-archive marker of an archive of `length` bytes: two zero blocks, and zeros to fill a record."""
    return bytes(2 * b.BLOCK + -(length + 2 * b.BLOCK) % b.RECORD)


# ---- Read facts of a header besides name and content: mode and time


def mode_and_time(header: bytes) -> tuple[int, int]:
    """Return the permission bits of an entry and its time in nanoseconds since 1970, from all before its payload.

    A malformed number, or a time outside of the years 1 to 9999, counts as 0.
    """
    block, records = main_header(header)
    mode = number_or_zero(block[100:108]) & 0o777
    recorded = time_of(records)
    if recorded is not None and EARLIEST <= recorded <= LATEST:
        return mode, int(recorded * 10**9)
    seconds = number_or_zero(block[136:148])
    return mode, seconds * 10**9 if EARLIEST <= seconds <= LATEST else 0


def main_header(header: bytes) -> tuple[bytes, pax.Records]:
    """Return the main header of an entry and the records of its PAX header, from all before its payload."""
    pos = 0
    records: pax.Records = {}
    block = header[: b.BLOCK]
    while block[156:157] in b.EXTENSIONS:
        size = number_or_zero(block[124:136])
        if block[156:157] in (b.PAX, b.SOLARIS_X):
            records = pax.parse_records(header[pos + b.BLOCK : pos + b.BLOCK + size])
        pos += b.BLOCK + size + b.padding(size)
        block = header[pos : pos + b.BLOCK]
    return block, records


def time_of(records: pax.Records) -> Decimal | None:
    """Return the `mtime` of PAX records in seconds since 1970, None if there is none or it is not a number."""
    from decimal import Decimal, InvalidOperation

    try:
        seconds = Decimal(records.get(b"mtime", b"").decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return seconds if seconds.is_finite() else None


def number_or_zero(field: bytes) -> int:
    """Return the number in a header field, 0 if it is malformed."""
    try:
        return b.parse_number(field)
    except ValueError:
        return 0
