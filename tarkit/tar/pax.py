"""Parse and format PAX records, and parse GNU long names.

The payload of an `x` or `g` entry is a sequence of records `LENGTH KEYWORD=VALUE\\n`, where LENGTH counts all bytes of
the record. Keywords and values are raw bytes: POSIX says UTF-8, but `hdrcharset=BINARY` allows others.

Sources: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Storing Sparse Files" (`GNU.sparse.*`) and "Basic
Tar Format" (typeflags `L` and `K`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Records = Mapping[bytes, bytes]
"""PAX records by keyword, of equal keywords the last."""

_SPARSE = frozenset(
    b"GNU.sparse." + word
    for word in (b"size", b"numblocks", b"offset", b"numbytes", b"map", b"name", b"major", b"minor", b"realsize")
)
DECISIVE = _SPARSE | {b"path", b"linkpath", b"size"}
"""Keywords of the records that change the name or extent of an entry; all others are copied unread."""


class Overrides(NamedTuple):
    """The values of PAX records that replace those in the header of an entry; None: no such record."""

    path: bytes | None
    linkpath: bytes | None
    size: int | None
    """Bytes of payload as stored in the archive."""
    real_size: int | None
    """Bytes of a sparse file with its holes."""
    sparse: bool
    """True for a sparse file (`GNU.sparse` 0.0, 0.1 or 1.0), whose payload is not its content."""

    @classmethod
    def of(cls, records: Records) -> Overrides:
        """Return the overrides in the records of an entry.

        `GNU.sparse.name` overrides `path`, which is a placeholder for readers without support for sparse files. An
        empty record counts as absent (POSIX). Raises ValueError if a size is not a decimal number from 0 to 2**63 - 1.
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
        """True if there is any override."""
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
            # GNU tar, libarchive and Python stop at a NUL: some writers pad the records with NULs.
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
    """Return the records that `Overrides` reads: of equal keywords the last, empty values included.

    Memory does not grow with the number of other records. Raises ValueError as `parse_pairs`.
    """
    return {keyword: value for keyword, value in parse_pairs(payload) if keyword in DECISIVE}


def name_alone(payload: bytes) -> bytes | None:
    """Return the name in the records of an `x` payload, b"" for none; None if the reference parser has to read them.

    That is the case for any other record that `Overrides` reads, a NUL in the name, and malformed records.
    """
    number, _, keyword = payload.partition(b"=")[0].partition(b" ")
    if keyword == b"mtime" and number == b"%d" % len(payload) and payload.endswith(b"\n"):
        return b""  # the only record, as webdataset writes it: 12 % of `cat` of such an archive
    try:
        records = parse_decisive(payload)
    except ValueError:
        return None
    name = records.pop(b"path", b"")
    return None if records or 0 in name else name


def parse_records(payload: bytes) -> dict[bytes, bytes]:
    """Return the records of an `x` or `g` payload by keyword: the last of equal ones counts, an empty one deletes.

    The repeated `GNU.sparse.offset` and `.numbytes` of sparse format 0.0 are lost: use `parse_pairs`.
    Raises ValueError as that.
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
    digits = value.lstrip(b"0") or value[-1:]  # leading zeros are allowed, as in Go's test file pax-pos-size-file.tar
    if not value.isdigit() or len(digits) > 19 or int(digits) >= 2**63:
        raise ValueError(f"PAX record {keyword.decode()}: not a size: {value[:40]!r}")
    return int(digits)


def parse_long_name(payload: bytes) -> bytes:
    """Return the name in the payload of a GNU `L` or `K` entry: what precedes the first NUL, or all."""
    return payload.partition(b"\0")[0]
