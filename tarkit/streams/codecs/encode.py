"""Encoding: plain bytes in, a compressed stream out, the same bytes whatever the threads and the cuts of the input."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tarkit.streams.codecs.registry import legal_level

if TYPE_CHECKING:
    from concurrent.futures import Future

BLOCK = 1 << 20  # bytes handed to a library at a time, so that it never sees how the caller cut them
_GZ_WINDOW = 32 << 10  # how far back deflate can point
_ISAL_LEVELS = 3  # isal's are 0 to 3


class Encoder:
    """A compressed stream in the making; made by `encoder`. Call `close()` at its end or `abort()` if it has none."""

    def __init__(self, compressor: _Compressor, write: Callable[[bytes], object]) -> None:
        self._compressor: _Compressor | None = compressor
        self._target = write
        self._held = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress `data` (contiguous, if a view); it may be changed after. Raises what the target's write raises."""
        compressor = self._open()
        with memoryview(data).cast("B") as view:
            at = 0
            if self._held:
                at = min(BLOCK - len(self._held), len(view))
                self._held += view[:at]
                if len(self._held) < BLOCK:
                    return
                self._put(compressor.compress(bytes(self._held)))
                self._held.clear()
            while len(view) - at >= BLOCK:
                self._put(compressor.compress(bytes(view[at : at + BLOCK])))
                at += BLOCK
            self._held += view[at:]

    def close(self) -> None:
        """Write what is held back and the end of the stream; the target stays open. Nothing more at a second call."""
        if self._compressor is None:
            return
        compressor = self._compressor
        if self._held:
            self._put(compressor.compress(bytes(self._held)))
            self._held.clear()
        self._put(compressor.flush())
        self.abort()

    def abort(self) -> None:
        """Stop the threads, free the memory, write nothing more."""
        if isinstance(self._compressor, _Gz):
            self._compressor.stop()
        self._compressor = None
        self._held.clear()

    def _open(self) -> _Compressor:
        if self._compressor is None:
            raise ValueError("write to a closed Encoder")
        return self._compressor

    def _put(self, data: bytes) -> None:
        if data:
            self._target(data)


class _Compressor(Protocol):
    """What all compressors have in common."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Gz:
    """One gzip member. Its blocks are deflated in threads, each with the end of the one before as its dictionary."""

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
        # deflate, no fields, no time, nothing special, an unknown system
        self._head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"

    def compress(self, data: bytes, /) -> bytes:
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
        """What is ready, in order; waits until at most `most` blocks are not."""
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
    """isal where it is there and has the level, else zlib; both have the same functions."""
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
    """One lz4 frame of independent blocks, each a block of ours."""

    def __init__(self, level: int) -> None:
        from lz4.frame import BLOCKSIZE_MAX1MB, LZ4FrameCompressor

        self._library = LZ4FrameCompressor(
            block_size=BLOCKSIZE_MAX1MB, block_linked=False, compression_level=level, content_checksum=True
        )
        self._head: bytes = self._library.begin()

    def compress(self, data: bytes, /) -> bytes:
        head, self._head = self._head, b""
        body: bytes = self._library.compress(data)
        return head + body

    def flush(self) -> bytes:
        end: bytes = self._library.flush()
        return self._head + end


def _compressor(codec: str, level: int, threads: int) -> _Compressor:
    if codec == "gz":
        return _Gz(level, threads)
    if codec == "lz4":
        return _Lz4(level)
    if codec == "xz":
        from lzma import LZMACompressor

        return LZMACompressor(preset=level)
    if codec == "bz2":
        from bz2 import BZ2Compressor

        return BZ2Compressor(level)
    from zstandard import ZstdCompressor

    # Without a thread of its own the library cuts its blocks in another way; with one or more, in one way.
    return ZstdCompressor(level, write_checksum=True, threads=threads).compressobj()


def encoder(codec: str, level: int | None, write: Callable[[bytes], object], threads: int = 1) -> Encoder:
    """A writer of one `codec` stream (a name in `CODECS`), which calls `write` with its bytes, in the caller's thread.

    `level` None is 2 for gz, 3 for zst, 1 for lz4, 6 for xz and 9 for bz2. gz has isal's levels 1 to 3 (the size of
    zlib's level 1, up to six times as fast) and zlib's 4 to 9; without isal all are zlib's. `threads` >= 1 work beside
    the caller in gz and zst; the bytes do not depend on how many. Raises `Usage` for an illegal level.
    """
    return Encoder(_compressor(codec, legal_level(codec, level), max(1, threads)), write)
