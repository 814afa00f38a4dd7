"""What a header says of a file besides its name and content: mode and time. Source: POSIX.1-2017, pax."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from tarkit.tar import block as b
from tarkit.tar import pax


def mode_and_time(header: bytes) -> tuple[int, int]:
    """The permission bits of an entry, and its time in nanoseconds since 1970; `header` is all before the payload.

    What is malformed, or outside the years 1 to 9999, counts as 0.
    """
    pos, said = 0, None
    block = header[: b.BLOCK]
    while block[156:157] in (b.PAX, b.SOLARIS_X, b.GNU_LONG_NAME, b.GNU_LONG_LINK):
        size = _number(block[124:136])
        if block[156:157] in (b.PAX, b.SOLARIS_X):
            records = dict(pax.parse_pairs(header[pos + b.BLOCK : pos + b.BLOCK + size]))
            said = records.get(b"mtime")
        pos += b.BLOCK + size + b.padding(size)
        block = header[pos : pos + b.BLOCK]
    mode = _number(block[100:108]) & 0o777
    if said:
        try:
            seconds = Decimal(said.decode("ascii"))
            if b.EARLIEST <= seconds <= b.LATEST:
                return mode, int(seconds * 10**9)
        except (InvalidOperation, UnicodeDecodeError):
            pass
    seconds_ = _number(block[136:148])
    return mode, seconds_ * 10**9 if b.EARLIEST <= seconds_ <= b.LATEST else 0


def _number(field: bytes) -> int:
    try:
        return b.parse_number(field)
    except ValueError:
        return 0
