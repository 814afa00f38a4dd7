"""What a header says of a file besides its name and content: mode and time. Source: POSIX.1-2017, pax."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from tarkit.tar import block as b
from tarkit.tar import pax


def mode_and_time(header: bytes) -> tuple[int, int]:
    """The permission bits of an entry, and its time in nanoseconds since 1970; `header` is all before the payload.

    What is malformed, or outside the years 1 to 9999, counts as 0.
    """
    block, records = proper(header)
    mode = number_of(block[100:108]) & 0o777
    said = said_time(records)
    if said is not None and b.EARLIEST <= said <= b.LATEST:
        return mode, int(said * 10**9)
    seconds = number_of(block[136:148])
    return mode, seconds * 10**9 if b.EARLIEST <= seconds <= b.LATEST else 0


def proper(header: bytes) -> tuple[bytes, pax.Records]:
    """The header proper of an entry, and the records of its PAX header; `header` is all before the payload."""
    pos = 0
    records: pax.Records = {}
    block = header[: b.BLOCK]
    while block[156:157] in (b.PAX, b.SOLARIS_X, b.GNU_LONG_NAME, b.GNU_LONG_LINK):
        size = number_of(block[124:136])
        if block[156:157] in (b.PAX, b.SOLARIS_X):
            records = pax.parse_records(header[pos + b.BLOCK : pos + b.BLOCK + size])
        pos += b.BLOCK + size + b.padding(size)
        block = header[pos : pos + b.BLOCK]
    return block, records


def said_time(records: pax.Records) -> Decimal | None:
    """The time that PAX records say, in seconds since 1970; None for none and for what is no number."""
    try:
        seconds = Decimal(records.get(b"mtime", b"").decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return seconds if seconds.is_finite() else None


def number_of(field: bytes) -> int:
    """Return the number in a header field, 0 for what is malformed."""
    try:
        return b.parse_number(field)
    except ValueError:
        return 0
