"""Compress streams. The output depends only on the data, the codec and the level: not on threads or write sizes.

`ENCODERS` has for each codec of `registry.CODECS` a function that imports its library and returns a compressor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tarkit.streams.codecs.registry import legal_level

if TYPE_CHECKING:
    from concurrent.futures import Future

BLOCK = 1 << 20  # bytes given to a library at a time, whatever the sizes of the writes
_GZ_WINDOW = 32 << 10  # bytes: the window of deflate
_ISAL_LEVELS = 3  # isal has levels 0 to 3


class Encoder:
    """A writer of one compressed stream, made by `encoder`. Call `close()` at its end, or `abort()` to give it up."""

    def __init__(self, compressor: _Compressor, write: Callable[[bytes], object]) -> None:
        self._compressor: _Compressor | None = compressor
        self._target = write
        self._block = memoryview(bytearray(BLOCK))
        self._filled = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress `data` (a view must be contiguous), which may be changed after the call."""
        self._open()
        with memoryview(data).cast("B") as view:
            at = 0
            while at < len(view):
                room = self.room()
                count = min(len(room), len(view) - at)
                room[:count] = view[at : at + count]
                self.fill(count)
                at += count

    def room(self) -> memoryview:
        """Return where the next bytes go: a caller may put some there and call `fill` in place of `write`."""
        self._open()
        return self._block[self._filled :]

    def fill(self, count: int) -> None:
        """Compress the first `count` bytes of `room`."""
        self._filled += count
        if self._filled == len(self._block):
            self._compress()

    def close(self) -> None:
        """Write the rest and the end of the stream; the target stays open. A second call does nothing."""
        if self._compressor is None:
            return
        if self._filled:
            self._compress()
        self._put(self._compressor.flush())
        self.abort()

    def abort(self) -> None:
        """Stop the threads and free the memory, without writing anything."""
        if isinstance(self._compressor, _Gz):
            self._compressor.stop()
        self._compressor = None
        self._block = memoryview(b"")
        self._filled = 0

    def _compress(self) -> None:
        filled, self._filled = self._filled, 0
        self._put(self._open().compress(self._block[:filled]))

    def _open(self) -> _Compressor:
        if self._compressor is None:
            raise ValueError("write to a closed Encoder")
        return self._compressor

    def _put(self, data: bytes) -> None:
        if data:
            self._target(data)


class _Compressor(Protocol):
    """The interface of all compressors. The argument of `compress` is overwritten after the call."""

    def compress(self, data: memoryview, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Gz:
    """One gzip member. Its blocks are deflated in threads, each with the end of the previous one as its dictionary."""

    def __init__(self, level: int, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._library = deflate_library(level)
        self._level = level
        self._pool = ThreadPoolExecutor(threads, "gz")
        self._most = 2 * threads
        self._jobs: deque[Future[bytes]] = deque()
        self._window = b""
        self._crc = 0
        self._size = 0
        # RFC 1952: magic, deflate, no optional fields, no time, no flags, unknown system
        self._head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"

    def compress(self, block: memoryview, /) -> bytes:
        data = bytes(block)
        self._crc = self._library.crc32(data, self._crc)
        self._size += len(data)
        self._jobs.append(self._pool.submit(self._deflate, data, self._window))
        self._window = data[-_GZ_WINDOW:]
        return self._done(self._most)

    def flush(self) -> bytes:
        end: bytes = self._library.compressobj(self._level, self._library.DEFLATED, -15).flush()
        trailer = self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        return self._done(0) + end + trailer

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _done(self, most: int) -> bytes:
        ready = [self._head]
        self._head = b""
        while self._jobs and (len(self._jobs) > most or self._jobs[0].done()):
            ready.append(self._jobs.popleft().result())
        return b"".join(ready)

    def _deflate(self, block: bytes, window: bytes) -> bytes:
        library = self._library
        extra = (window,) if window else ()
        deflater = library.compressobj(self._level, library.DEFLATED, -15, library.DEF_MEM_LEVEL, 0, *extra)
        data: bytes = deflater.compress(block) + deflater.flush(library.Z_SYNC_FLUSH)
        return data


def deflate_library(level: int) -> Any:
    """Return isal if it is installed and has the level, else zlib; both have the same functions."""
    if level <= _ISAL_LEVELS:
        try:
            from isal import isal_zlib
        except ImportError:
            pass
        else:
            return isal_zlib
    import zlib

    return zlib


class _Lz4:
    """One lz4 frame of independent blocks, one for each BLOCK bytes."""

    def __init__(self, level: int) -> None:
        from lz4.frame import BLOCKSIZE_MAX1MB, LZ4FrameCompressor

        self._library = LZ4FrameCompressor(
            block_size=BLOCKSIZE_MAX1MB, block_linked=False, compression_level=level, content_checksum=True
        )
        self._head: bytes = self._library.begin()

    def compress(self, data: memoryview, /) -> bytes:
        head, self._head = self._head, b""
        body: bytes = self._library.compress(data)
        return head + body

    def flush(self) -> bytes:
        end: bytes = self._library.flush()
        return self._head + end


def _zst(level: int, threads: int) -> _Compressor:
    from zstandard import ZstdCompressor

    # Without threads the library divides the data into other blocks than with one or more.
    return ZstdCompressor(level, write_checksum=True, threads=threads).compressobj()


def _xz(level: int, threads: int) -> _Compressor:
    from lzma import LZMACompressor

    return LZMACompressor(preset=level)


def _bz2(level: int, threads: int) -> _Compressor:
    from bz2 import BZ2Compressor

    return BZ2Compressor(level)


ENCODERS: dict[str, Callable[[int, int], _Compressor]] = {
    "gz": _Gz,
    "zst": _zst,
    "lz4": lambda level, threads: _Lz4(level),
    "xz": _xz,
    "bz2": _bz2,
}


def encoder(codec: str, level: int | None, write: Callable[[bytes], object], threads: int = 1) -> Encoder:
    """Return an Encoder of one `codec` stream that calls `write` with the compressed bytes, in the caller's thread.

    Args:
        codec: a name in `CODECS`.
        level: None is the codec's default. gz has isal's levels 1 to 3 (the size of zlib's level 1, up to six times as
            fast) and zlib's 4 to 9; without isal all are zlib's.
        write: called with compressed bytes.
        threads: threads beside the caller's in gz and zst; the output does not depend on their number.

    Raises:
        Usage: the codec has no such level.
    """
    return Encoder(ENCODERS[codec](legal_level(codec, level), max(1, threads)), write)
