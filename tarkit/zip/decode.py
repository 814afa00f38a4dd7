"""Decode the content of zip entries: deflate, bzip2 and LZMA without the headers of their file formats.

Source: PKWARE APPNOTE.TXT 6.3.10: 4.4.5 (methods), 5.8.8 (LZMA).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import decompressobj
from zlib import error as zlib_error

from tarkit.streams.copy import CHUNK

STORED, DEFLATE, BZIP2, LZMA = 0, 8, 12, 14
METHODS = {STORED: "stored", DEFLATE: "deflate", BZIP2: "bzip2", LZMA: "lzma"}


class MalformedData(Exception):
    """Compressed content does not decode."""


def decoded(pieces: Iterable[bytes], method: int, size: int) -> Iterator[bytes]:
    """Decode `pieces` to content of `size` bytes, yielding at most CHUNK bytes at a time. The result may be longer.

    Raises MalformedData if it cannot be decoded.
    """
    if method == STORED:
        yield from pieces
        return
    from lzma import LZMAError

    decoder: Any = None
    held = b""
    remaining = size if method == LZMA else 1 << 62  # without an end marker LZMA would continue after the data
    try:
        for piece in pieces:
            held += piece
            if decoder is None:
                decoder, held = _decoder(method, size, held)
            while remaining and not decoder.eof and (data := decoder.decompress(held, min(CHUNK, remaining))):
                remaining -= len(data)
                held = getattr(decoder, "unconsumed_tail", b"")  # the others keep unused input themselves
                yield data
            held = getattr(decoder, "unconsumed_tail", b"")
    except (zlib_error, LZMAError, EOFError, ValueError) as failure:
        raise MalformedData(str(failure)) from None
    except OSError as failure:
        if failure.errno is None:  # how bz2 reports wrong data
            raise MalformedData(str(failure)) from None
        raise


def _decoder(method: int, size: int, head: bytes) -> tuple[Any, bytes]:
    """Return the decoder of a method for content that begins with `head`, and the part of `head` that it decodes."""
    if method == DEFLATE:
        return decompressobj(-15), head
    if method == BZIP2:
        from bz2 import BZ2Decompressor

        return BZ2Decompressor(), head
    from lzma import FILTER_LZMA1, FORMAT_RAW, LZMADecompressor

    # Two bytes of version, two of the length of the properties (5), then these: lc, lp and pb, and the dictionary size.
    if len(head) < 9 or head[2:4] != b"\5\0" or head[4] >= 9 * 5 * 5:
        raise ValueError("its LZMA properties are wrong")
    bits, literals = divmod(head[4], 9)
    dictionary = min(int.from_bytes(head[5:9], "little"), size)  # a larger one is never filled
    filters = {"id": FILTER_LZMA1, "dict_size": max(dictionary, 4096), "lc": literals, "lp": bits % 5, "pb": bits // 5}
    return LZMADecompressor(FORMAT_RAW, filters=[filters]), head[9:]
