"""Content compressed with gzip, in fields such as `json.gz`; equal content gives equal bytes. Format: RFC 1952."""

from __future__ import annotations

import zlib

from tarkit.errors import TarkitError
from tarkit.media.limits import decode_limit, limit_error

_GZIP = 31  # wbits: a gzip header and trailer, a window of 32 KiB


def compress(data: bytes) -> bytes:
    """Return content compressed with gzip, without a name and a time."""
    return zlib.compress(data, 6, _GZIP)


def expand(data: bytes) -> bytes:
    """Return the content of all gzip members.

    Raises:
        TarkitError: other data, data that are cut off, or content that is larger than a field may become.
    """
    parts: list[bytes] = []
    stored, limit = len(data), decode_limit(len(data))
    remaining = limit + 1
    while data or not parts:
        member = zlib.decompressobj(_GZIP)
        try:
            parts.append(member.decompress(data, remaining))
            remaining -= len(parts[-1])
            if not remaining:
                raise limit_error(stored, limit)
        except zlib.error as error:
            raise TarkitError(f"it is not compressed with gzip, as a name that ends in .gz says: {error}") from None
        if not member.eof:
            raise TarkitError("its gzip data are cut off")
        data = member.unused_data.lstrip(b"\0")  # padding, which gzip ignores too
    return b"".join(parts)
