"""One frame (gzip member, xz stream ...) of a compressed stream: each library behind the same two faces.

`LIBRARIES` has for each codec a function that loads its library and returns the function that begins a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tarkit.errors import Problem, Unsupported
from tarkit.streams.codecs.input import Input

if TYPE_CHECKING:
    import zlib

    from zstandard import ZstdDecompressor

_ZST_BLOCK = 128 << 10  # what one block of zstd decodes to, at most
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16  # flags in a gzip header
_RLE, _RESERVED = 1, 3  # kinds of zstd blocks


class Frame(Protocol):
    """One frame, while it is decoded: up to n plain bytes, b"" once it is complete and `source` is behind it."""

    def read(self, n: int) -> bytes: ...


class _Decompressor(Protocol):
    """What the decompressors of bz2, lzma, isal and lz4 have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Bounded:
    """A frame of a library that bounds its output by itself."""

    def __init__(self, source: Input, library: _Decompressor, errors: tuple[type[Exception], ...]) -> None:
        self._input = source
        self._library = library
        self._errors = errors

    def read(self, n: int) -> bytes:
        library = self._library
        while not library.eof:
            hungry = library.needs_input
            data = self._input.more() if hungry else b""
            try:
                plain = library.decompress(data, n)
            except self._errors as error:
                raise self._input.damaged(error) from error
            if library.eof:
                self._input.back(library.unused_data or b"")
            if plain:
                return plain
            if not data and not library.eof and library.needs_input == hungry:
                raise self._input.cut() if hungry else self._input.damaged("it cannot be decoded further")
        return b""


class _Inflate:
    """zlib's decompressor with the interface of the others."""

    def __init__(self, library: zlib._Decompress) -> None:
        self._library = library

    @property
    def eof(self) -> bool:
        return self._library.eof

    @property
    def needs_input(self) -> bool:
        return not self._library.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._library.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._library.decompress(self._library.unconsumed_tail or data, max_length)


class _Gz:
    """A gzip member. The library decodes its body only: isal is lost in a header of two fields that comes in pieces."""

    def __init__(self, source: Input, body: _Bounded, crc32: Callable[[bytes, int], int]) -> None:
        self._input = source
        self._body = body
        self._crc32 = crc32
        self._crc = 0
        self._size = 0
        self._header()

    def read(self, n: int) -> bytes:
        data = self._body.read(n)
        if data:
            self._crc = self._crc32(data, self._crc)
            self._size += len(data)
            return data
        trailer = self._input.take(8)
        if self._crc != int.from_bytes(trailer[:4], "little"):
            raise self._input.damaged("wrong checksum")
        if self._size & 0xFFFFFFFF != int.from_bytes(trailer[4:], "little"):
            raise self._input.damaged("wrong size")
        return b""

    def _header(self) -> None:
        head = self._input.take(10)
        flags = head[3]
        if flags & 0xE0:
            raise self._input.damaged("unknown flags in its header")
        if flags & _EXTRA:
            head += self._input.take(2)
            head += self._input.take(int.from_bytes(head[-2:], "little"))
        for text in (_NAME, _COMMENT):
            if flags & text:
                head += self._input.take_text()
        if flags & _HEADER_CRC and int.from_bytes(self._input.take(2), "little") != self._crc32(head, 0) & 0xFFFF:
            raise self._input.damaged("wrong checksum of its header")


class _Zst:
    """A zstd frame. The library does not bound its output, so it is handed block after block (RFC 8878)."""

    def __init__(self, source: Input, library: ZstdDecompressor, longest: int, error: type[Exception]) -> None:
        self._input = source
        self._library = library.decompressobj()
        self._error = error
        self._rest = b""
        self._last = False
        self._failed: Problem | None = None
        head = source.take(5)
        single = head[4] >> 5 & 1
        window, dictionary, content = 1 - single, (0, 1, 2, 4)[head[4] & 3], (single, 2, 4, 8)[head[4] >> 6]
        fields = source.take(window + dictionary + content)
        if window and 1 << (10 + (fields[0] >> 3)) > longest:
            raise Unsupported(f"{source.archive}: this zst stream needs a window of more than {longest >> 20} MiB")
        if any(fields[window : window + dictionary]):
            raise Unsupported(f"{source.archive}: this zst stream needs a dictionary")
        self._checksum = head[4] & 4
        self._decode(head + fields)

    def read(self, n: int) -> bytes:
        plain = self._rest or self._blocks(n)
        self._rest = plain[n:]
        return plain[:n]

    def _blocks(self, n: int) -> bytes:
        """One block that is not empty, and more that are at hand and stay within n bytes; b"" after the last."""
        if self._failed is not None:
            raise self._failed
        blocks: list[bytes] = []
        try:
            while not self._last and (not blocks or (len(blocks) < n // _ZST_BLOCK and self._at_hand())):
                blocks += filter(None, [self._block()])
        except Problem as problem:
            self._failed = problem
            if not blocks:
                raise
        return b"".join(blocks)

    def _at_hand(self) -> bool:
        """Whether the next block can be had without waiting for it."""
        there = self._input.at_hand()
        return there >= 7 and there >= 7 + (int.from_bytes(self._input.peek(3), "little") >> 3)

    def _block(self) -> bytes:
        head = self._input.take(3)
        word = int.from_bytes(head, "little")
        self._last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        if kind == _RESERVED or size > _ZST_BLOCK:
            raise self._input.damaged("a block header is wrong")
        body = self._input.take(1 if kind == _RLE else size)
        if self._last and self._checksum:
            body += self._input.take(4)
        plain = self._decode(head + body)
        if self._library.eof != self._last:
            raise self._input.damaged("its frame does not end with the last block")
        return plain

    def _decode(self, data: bytes) -> bytes:
        try:
            return self._library.decompress(data)
        except self._error as error:
            if "llocation" in str(error):
                raise MemoryError from error
            raise self._input.damaged(error) from error


def _gz() -> Callable[[Input], Frame]:
    try:
        from isal import igzip_lib, isal_zlib
    except ImportError:
        import zlib

        return lambda source: _Gz(
            source, _Bounded(source, _Inflate(zlib.decompressobj(-15)), (zlib.error,)), zlib.crc32
        )
    error: Any = igzip_lib.error
    return lambda source: _Gz(source, _Bounded(source, igzip_lib.IgzipDecompressor(), (error,)), isal_zlib.crc32)


def _zst() -> Callable[[Input], Frame]:
    from zstandard import WINDOWLOG_MAX, ZstdDecompressor, ZstdError

    longest = 1 << WINDOWLOG_MAX
    library = ZstdDecompressor(max_window_size=longest)
    return lambda source: _Zst(source, library, longest, ZstdError)


def _lz4() -> Callable[[Input], Frame]:
    from lz4.frame import LZ4FrameDecompressor

    return lambda source: _Bounded(source, LZ4FrameDecompressor(), (RuntimeError,))


def _xz() -> Callable[[Input], Frame]:
    from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

    return lambda source: _Bounded(source, LZMADecompressor(FORMAT_XZ), (LZMAError,))


def _lzma() -> Callable[[Input], Frame]:
    from lzma import FORMAT_ALONE, LZMADecompressor, LZMAError

    return lambda source: _Bounded(source, LZMADecompressor(FORMAT_ALONE), (LZMAError,))


def _bz2() -> Callable[[Input], Frame]:
    from bz2 import BZ2Decompressor

    return lambda source: _Bounded(source, BZ2Decompressor(), (OSError, ValueError, RuntimeError))


LIBRARIES: dict[str, Callable[[], Callable[[Input], Frame]]] = {
    "gz": _gz,
    "zst": _zst,
    "lz4": _lz4,
    "xz": _xz,
    "lzma": _lzma,
    "bz2": _bz2,
}
