"""How many bytes the value of a field may have: a small compressed field can stand for any amount of memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import TarkitError, Usage
from tarkit.sizes import parse_size, plural


class NotDecoded(TarkitError):
    """Content is not decoded, and may be whole: it is too large, may run code, or is of a kind that is not known."""


class TooLarge(NotDecoded):
    """A value would take more memory than a field of its size may become."""


VARIABLE = "TARKIT_DECODE_LIMIT"
DEFAULT = 256 << 20
"""Bytes of a decoded value, unless the variable says others."""

RATIO = 8
"""A value may always have so many times the bytes of its field: one bit of a field can be one byte of a picture."""


_compressed = threading.local()  # has `stored`, the bytes of the field whose expanded content is decoded


def decode_limit(stored: int) -> int:
    """Return how many bytes the value of a field of `stored` bytes may have. Raises Usage for an invalid variable."""
    stored = getattr(_compressed, "stored", stored)
    text = os.environ.get(VARIABLE)
    if not text:
        return max(DEFAULT, RATIO * stored)
    try:
        return max(parse_size(text), RATIO * stored)
    except Usage as error:
        raise Usage(f"{VARIABLE}: {error}", error.hint) from None


@contextmanager
def compressed_field(stored: int) -> Iterator[None]:
    """Set the limit for values decoded meanwhile to that of a field of `stored` bytes, whose content was expanded."""
    _compressed.stored = stored
    try:
        yield
    finally:
        del _compressed.stored


def check_decoded(size: int, stored: int) -> None:
    """Raise TarkitError if a value of `size` bytes is larger than a field of `stored` bytes may become."""
    limit = decode_limit(stored)
    if size > limit:
        raise limit_error(stored, limit)


def limit_error(stored: int, limit: int) -> TooLarge:
    """Return the error for a field whose value is larger than the limit."""
    stored = getattr(_compressed, "stored", stored)
    return TooLarge(
        f"its {plural(stored, 'byte')} would become more than {limit} bytes ({VARIABLE}=4G sets another limit)"
    )


def limit_words(size: int, limit: int) -> str:
    """Return the words on content of `size` bytes that is not read, since it exceeds the limit itself."""
    return f"its {plural(size, 'byte')} are more than {limit} ({VARIABLE}=4G sets another limit)"
