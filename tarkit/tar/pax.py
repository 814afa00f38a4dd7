"""PAX records and GNU long names, both ways.

Sources: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Sparse Formats" (`GNU.sparse.*`) and "Basic Tar
Format" (typeflags `L` and `K`). Keywords and values are raw bytes: UTF-8 by the standard, but `hdrcharset=BINARY` and
careless writers exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Records = Mapping[bytes, bytes]
"""PAX records by keyword, the last of equal keywords."""

_SPARSE = frozenset(
    b"GNU.sparse." + word
    for word in (b"size", b"numblocks", b"offset", b"numbytes", b"map", b"name", b"major", b"minor", b"realsize")
)
DECISIVE = _SPARSE | {b"path", b"linkpath", b"size"}
"""Keywords of records that say where an entry is or what it is called; all others are carried over unread."""


class Overrides(NamedTuple):
    """What the PAX records of an entry say in place of its header; None: nothing."""

    path: bytes | None
    linkpath: bytes | None
    size: int | None
    """Bytes of payload as stored in the archive."""
    real_size: int | None
    """Bytes of a sparse file with its holes: the size that people mean."""
    sparse: bool
    """True if the payload is a sparse file (`GNU.sparse` 0.0, 0.1 or 1.0), not the content itself."""

    @classmethod
    def of(cls, records: Records) -> Overrides:
        """Return what these records of an entry say, sparse files included.

        `GNU.sparse.name` goes before `path`, in whatever order they stand, as in GNU tar: there `path` is a stand-in
        for tars that do not know sparse files. An empty record says nothing (POSIX). Raises ValueError if a size is no
        decimal number from 0 to 2**63 - 1.
        """
        records = {keyword: value for keyword, value in records.items() if value}
        real_size = _size(records, b"GNU.sparse.realsize")
        return cls(
            records.get(b"GNU.sparse.name", records.get(b"path")),
            records.get(b"linkpath"),
            _size(records, b"size"),
            _size(records, b"GNU.sparse.size") if real_size is None else real_size,
            not _SPARSE.isdisjoint(records),
        )

    @property
    def any(self) -> bool:
        """True if the records say anything of this."""
        return self.sparse or any(value is not None for value in self[:4])


def parse_pairs(payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield all records (keyword, value) of an `x` or `g` payload, repeated keywords and empty values included.

    Raises ValueError, with the reason and the offset in the payload, where a record is not `length keyword=value\\n`.
    """
    pos = 0
    while pos < len(payload):
        space = payload.find(b" ", pos)
        digits = payload[pos : max(space, pos)]
        if len(digits) > 19:
            digits = digits.lstrip(b"0")
        if not digits.isdigit() or len(digits) > 19:
            # GNU tar, libarchive and Python end at a NUL, so writers that pad their records with NULs exist.
            if not payload[pos:].strip(b"\0"):
                break
            raise ValueError(f"PAX record at {pos}: no length")
        end = pos + int(digits)
        if end > len(payload):
            raise ValueError(f"PAX record at {pos}: its length {int(digits)} goes beyond the header")
        if end <= space + 1 or payload[end - 1] != 10:
            raise ValueError(f"PAX record at {pos}: no newline at its length {int(digits)}")
        keyword, equals, value = payload[space + 1 : end - 1].partition(b"=")
        if not keyword or not equals:
            raise ValueError(f"PAX record at {pos}: no keyword")
        yield keyword, value
        pos = end


def parse_decisive(payload: bytes) -> dict[bytes, bytes]:
    """Return the records that `Overrides` reads, the last of equal keywords, also where that is empty.

    Of millions of other records nothing is held. Raises ValueError as `parse_pairs`.
    """
    return {keyword: value for keyword, value in parse_pairs(payload) if keyword in DECISIVE}


def name_alone(payload: bytes) -> bytes | None:
    """Return the name that the records of an `x` payload give, b"" for none; None if they say more, or are malformed.

    Of the records that `Overrides` reads this takes `path` alone, without a NUL.
    """
    number, _, keyword = payload.partition(b"=")[0].partition(b" ")
    if keyword == b"mtime" and number == b"%d" % len(payload) and payload.endswith(b"\n"):
        return b""  # one record, as Python's tarfile and so webdataset write: read in a quarter of the time
    try:
        records = parse_decisive(payload)
    except ValueError:
        return None
    name = records.pop(b"path", b"")
    return None if records or 0 in name else name


def parse_records(payload: bytes) -> dict[bytes, bytes]:
    """Return the records of an `x` or `g` payload by keyword: the last of equal ones counts, an empty one deletes.

    `GNU.sparse.offset` and `.numbytes` of sparse format 0.0 repeat: `parse_pairs` keeps them. Raises ValueError as
    `parse_pairs`.
    """
    return last_of_each(parse_pairs(payload))


def last_of_each(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return records by keyword: the last of equal ones counts, an empty one deletes those before it (POSIX)."""
    records: dict[bytes, bytes] = {}
    for keyword, value in pairs:
        if value:
            records[keyword] = value
        else:
            records.pop(keyword, None)
    return records


def format_records(records: Records | Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the payload of an `x` header with these records, in their order.

    Raises ValueError for a keyword that is empty or contains "=".
    """
    pairs = records.items() if isinstance(records, Mapping) else records
    return b"".join(_format_record(keyword, value) for keyword, value in pairs)


def _format_record(keyword: bytes, value: bytes) -> bytes:
    if not keyword or b"=" in keyword:
        raise ValueError(f"not a PAX keyword: {keyword!r}")
    rest = len(keyword) + len(value) + 3  # space, "=", newline
    length = rest + len(str(rest))
    # The length counts its own digits: with them it may need one digit more.
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, keyword, value)


def _size(records: Records, keyword: bytes) -> int | None:
    value = records.get(keyword)
    if value is None:
        return None
    digits = value.lstrip(b"0") or value[-1:]  # any number of zeros may come first, as Go's pax-pos-size-file has them
    if not value.isdigit() or len(digits) > 19 or int(digits) >= 2**63:
        raise ValueError(f"PAX record {keyword.decode()}: not a size: {value[:40]!r}")
    return int(digits)


def parse_long_name(payload: bytes) -> bytes:
    """Return the name in the payload of a GNU `L` or `K` entry: what precedes the first NUL, or all."""
    return payload.partition(b"\0")[0]
