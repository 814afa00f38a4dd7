"""Decompress streams in bounded memory. A stream that ends early is always an error.

A compressed stream is a sequence of frames (gzip members, xz streams ..). `DECODERS` has for each codec a function that
imports its library and returns a function that begins to decode one frame; `Decoder` handles the bytes between frames:
padding, skippable frames, trailing data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, TarkitError, Unsupported
from tarkit.sizes import plural
from tarkit.streams.codecs.registry import (
    CODECS,
    DECODED,
    LZMA,
    SKIPPABLE,
    Codec,
    codec_by_magic,
    foreign_codec,
    not_decoded,
)

if TYPE_CHECKING:
    import zlib

    from zstandard import ZstdDecompressor

# ---- The compressed input and its errors

CUT = "the file was not written or not copied to its end: copy or make it again"
"""The hint for a file that ends early."""

CHUNK = 256 << 10  # bytes of one read; the libraries copy the bytes that they have not used, so more is slower


class CompressedInput:
    """The compressed bytes that are not decoded yet: those already read, then those still to be read.

    After damage `replay` returns those of the frame again, which begins at the last `mark`: read by `again`, or the
    first KEPT bytes of it.
    """

    def __init__(
        self,
        codec: Codec,
        reader: ByteReader,
        archive: str,
        again: Callable[[], ByteReader] | None = None,
    ) -> None:
        self.codec = codec
        self.archive = archive
        self.reader = reader
        self._again = again
        self._marked = 0  # offset of the frame
        self._kept: list[bytes] | None = None  # its bytes, while they are few
        self._data = b""
        self._at = 0
        self._total = 0
        self._ended = False

    def more(self) -> bytes:
        """Return the bytes already read, or read the next; b"" at the end."""
        data = self._data[self._at :] or self._fetch()
        self._data, self._at = b"", 0
        return data

    def back(self, data: bytes) -> None:
        """Put back the last bytes that `more` returned."""
        self._data, self._at = data, 0

    def peek(self, n: int) -> bytes:
        """Return the next n bytes, fewer at the end, without using them."""
        while len(self._data) - self._at < n:
            data = self._fetch()
            if not data:
                break
            self._data, self._at = self._data[self._at :] + data, 0
        return self._data[self._at : self._at + n]

    def take(self, n: int) -> bytes:
        """Return the next n bytes. Raises Problem `truncated` if there are fewer."""
        data = self.peek(n)
        if len(data) < n:
            raise self.cut()
        self._at += n
        return data

    def at_hand(self) -> int:
        """Return the number of bytes already read."""
        return len(self._data) - self._at

    def drop(self, n: int) -> None:
        """Skip n bytes. Raises Problem `truncated` if there are fewer."""
        while n > 0:
            n -= len(self.take(min(n, CHUNK)))

    def take_text(self) -> bytes:
        """Return the bytes up to and including the next zero byte."""
        text = b""
        while len(text) < CHUNK:
            data = self.more()
            if not data:
                raise self.cut()
            end = data.find(b"\0") + 1
            text += data[: end or None]
            if end:
                self.back(data[end:])
                return text
        raise self.damaged("a text in its header is not terminated")

    def skip_zeros(self) -> int:
        """Skip zero bytes and return how many there were."""
        count = 0
        while data := self.more():
            rest = data.lstrip(b"\0")
            count += len(data) - len(rest)
            if rest:
                self.back(rest)
                break
        return count

    def mark(self) -> None:
        """Note that the data of a frame begin here."""
        self._marked = self._total - (len(self._data) - self._at)
        self._kept = [self._data[self._at :]] if self._again is None else None

    def replay(self) -> Iterator[bytes]:
        """Yield the data since the mark again; nothing if they are too many, and `again` is missing."""
        if self._again is None:
            yield from self._kept or ()
            return
        reader, rest = self._again(), self._marked
        while data := reader.read(CHUNK):
            if len(data) > rest:
                yield data[rest:]
            rest = max(rest - len(data), 0)

    def cut(self, where: str | None = None) -> Problem:
        """Return the error of a stream that ends early."""
        return self.problem(
            "truncated",
            f"the {self.codec.name} stream ends inside {where or f'a {self.codec.unit}'}"
            f" (after {plural(self._total, 'compressed byte')})",
            CUT,
        )

    def damaged(self, why: object) -> Problem:
        """Return the error of a stream that cannot be decoded."""
        return self.problem("bad-data", f"the {self.codec.name} stream is damaged: {why}")

    def problem(self, name: str, detail: str, hint: str | None = None) -> Problem:
        """Return an error of this archive, without an offset, which would count decoded bytes."""
        return Problem(name, self.archive, None, detail, hint)

    def _fetch(self) -> bytes:
        data = b"" if self._ended else self.reader.read(CHUNK)
        self._ended = not data
        self._total += len(data)
        if self._kept is not None:
            self._kept.append(data)
            if self._total - self._marked > KEPT:
                self._kept = None
        return data


# ---- Frames: the libraries behind one interface

KEPT = 16 << 20  # compressed bytes of a frame that are held, where they cannot be read again

_ZST_BLOCK = 128 << 10  # bytes that a zstd block decodes to, at most
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16  # flags in a gzip header
_RLE, _RESERVED = 1, 3  # kinds of zstd blocks
_MOST = 1 << 20  # bytes that one call of a library may return


class Frame(Protocol):
    """A frame being decoded. `readinto` fills some of a view, 0 once the frame is complete and the input after it."""

    def readinto(self, view: memoryview) -> int: ...


class _Decompressor(Protocol):
    """The interface of the decompressors of bz2, lzma, isal and lz4."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Bounded:
    """A frame of a library that can bound the output of one call."""

    def __init__(
        self, source: CompressedInput, new: Callable[[], _Decompressor], errors: tuple[type[Exception], ...]
    ) -> None:
        self._input = source
        self._new = new
        self._library = new()
        self._errors = errors
        self._count = 0  # bytes that were decoded
        self._taken = self._before = 0  # compressed bytes that the library got, and those before the last call with any
        self._rest = b""  # bytes before damage
        self._failed: Problem | None = None
        source.mark()

    def readinto(self, view: memoryview) -> int:
        library = self._library
        while not library.eof and self._failed is None:
            hungry = library.needs_input
            data = self._input.more() if hungry else b""
            if data:
                self._before, self._taken = self._taken, self._taken + len(data)
            try:
                plain = library.decompress(data, min(len(view), _MOST))
            except self._errors as error:
                self._failed = self._input.damaged(error)
                self._rest = self._before_damage()
                break
            if library.eof:
                self._input.back(library.unused_data or b"")
            if plain:
                view[: len(plain)] = plain
                self._count += len(plain)
                return len(plain)
            if not data and not library.eof and library.needs_input == hungry:
                raise self._input.cut() if hungry else self._input.damaged("it cannot be decoded further")
        if self._failed is None:
            return 0
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        if not count:
            raise self._failed
        return count

    def _before_damage(self) -> bytes:
        """Decode the frame again, and return what the call that found the damage has not returned: bytes before it.

        From the data on that were given last, the library gets one byte at a time.
        """
        library, position, skip, plain_bytes = self._new(), 0, self._count, bytearray()
        try:
            for data in self._input.replay():
                whole = min(max(self._before - position, 0), len(data))
                position += len(data)
                for piece in (data[:whole], *(data[at : at + 1] for at in range(whole, len(data)))):
                    while (piece or not library.needs_input) and not library.eof and len(plain_bytes) <= _MOST:
                        plain, piece = library.decompress(piece, _MOST), b""
                        plain_bytes += plain[skip:]
                        skip = max(skip - len(plain), 0)
                        if not plain:
                            break
        except self._errors:
            pass
        return bytes(plain_bytes)


class _Inflate:
    """Adapter that gives zlib's decompressor the interface of the others."""

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
    """A gzip member. Its header is parsed here: isal fails on a header with two fields that arrives in pieces."""

    def __init__(
        self, source: CompressedInput, body: _Bounded, crc32: Callable[[bytes | memoryview, int], int]
    ) -> None:
        self._input = source
        self._body = body
        self._crc32 = crc32
        self._crc = 0
        self._size = 0
        self._header()

    def readinto(self, view: memoryview) -> int:
        count = self._body.readinto(view)
        if count:
            self._crc = self._crc32(view[:count], self._crc)
            self._size += count
            return count
        trailer = self._input.take(8)
        if self._crc != int.from_bytes(trailer[:4], "little"):
            raise self._input.damaged("wrong checksum")
        if self._size & 0xFFFFFFFF != int.from_bytes(trailer[4:], "little"):
            raise self._input.damaged("wrong size")
        return 0

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
        self._input.mark()


class _ZstBlocks:
    """The parts of a zstd frame (RFC 8878, 3.1.1): header, blocks and perhaps a checksum; `read` returns one of them.

    `ended` says that all were returned. The checksum is a part, so that the bytes of the last block precede its damage.
    """

    def __init__(self, source: CompressedInput, longest: int) -> None:
        self._input = source
        self.ended = self._last = False
        head = source.take(5)
        single = head[4] >> 5 & 1
        window, dictionary, content = 1 - single, (0, 1, 2, 4)[head[4] & 3], (single, 2, 4, 8)[head[4] >> 6]
        fields = source.take(window + dictionary + content)
        if window and 1 << (10 + (fields[0] >> 3)) > longest:
            raise Unsupported(f"{source.archive}: this zst stream needs a window of more than {longest >> 20} MiB")
        if any(fields[window : window + dictionary]):
            raise Unsupported(f"{source.archive}: this zst stream needs a dictionary")
        self._checksum = head[4] & 4  # its length
        self._head = head + fields

    def read(self, n: int) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        if self.ended:
            return b""
        if self._last:
            checksum = self._input.take(self._checksum)
            self.ended = True
            return checksum
        word = int.from_bytes(self._input.peek(3), "little")
        kind, size = word >> 1 & 3, word >> 3
        if kind == _RESERVED or size > _ZST_BLOCK:
            self._input.take(3)
            raise self._input.damaged("a block header is wrong")
        block = self._input.take(3 + (1 if kind == _RLE else size))
        self._last = bool(word & 1)
        self.ended = self._last and not self._checksum
        return block

    def at_hand(self) -> bool:
        """Return whether there is a next block, and all of it was already read."""
        there = self._input.at_hand()
        return not self._last and there >= 7 and there >= 7 + (int.from_bytes(self._input.peek(3), "little") >> 3)


class _Zst:
    """A zstd frame. The library gets one block at a time, so that the bytes before damage are decoded."""

    def __init__(
        self, source: CompressedInput, library: ZstdDecompressor, longest: int, error: type[Exception]
    ) -> None:
        self._input = source
        self._blocks = _ZstBlocks(source, longest)
        # it decodes straight into a view, and needs nothing but `read` of a file
        self._library = library.stream_reader(cast(BinaryIO, self._blocks), closefd=False)
        self._error = error
        self._rest = memoryview(b"")
        self._failed: Problem | None = None

    def readinto(self, view: memoryview) -> int:
        if not self._rest and len(view) >= _ZST_BLOCK:
            return self._decode(view)
        if not self._rest:
            block = memoryview(bytearray(_ZST_BLOCK))
            self._rest = block[: self._decode(block)]
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _decode(self, view: memoryview) -> int:
        """Decode a block that is not empty, and those after it already read, while there is room; 0 at the end."""
        if self._failed is not None:
            raise self._failed
        done = 0
        try:
            while not self._blocks.ended and (not done or (len(view) - done >= _ZST_BLOCK and self._blocks.at_hand())):
                done += self._block(view[done:])
        except Problem as problem:
            self._failed = problem
            if not done:
                raise
        return done

    def _block(self, view: memoryview) -> int:
        try:
            return self._library.readinto1(view)
        except self._error as error:
            if "llocation" in str(error):
                raise MemoryError from error
            # the words that the library has where it returns bytes
            text = str(error).replace("zstd decompress error", "zstd decompressor error", 1)
            raise self._input.damaged(text) from error


def _gz() -> Callable[[CompressedInput], Frame]:
    try:
        from isal import igzip_lib, isal_zlib
    except ImportError:
        import zlib

        return lambda source: _Gz(
            source, _Bounded(source, lambda: _Inflate(zlib.decompressobj(-15)), (zlib.error,)), zlib.crc32
        )
    error: Any = igzip_lib.error
    return lambda source: _Gz(source, _Bounded(source, igzip_lib.IgzipDecompressor, (error,)), isal_zlib.crc32)


def _zst() -> Callable[[CompressedInput], Frame]:
    from zstandard import WINDOWLOG_MAX, ZstdDecompressor, ZstdError

    longest = 1 << WINDOWLOG_MAX
    library = ZstdDecompressor(max_window_size=longest)
    return lambda source: _Zst(source, library, longest, ZstdError)


def _lz4() -> Callable[[CompressedInput], Frame]:
    from lz4.frame import LZ4FrameDecompressor

    return lambda source: _Bounded(source, LZ4FrameDecompressor, (RuntimeError,))


def _xz() -> Callable[[CompressedInput], Frame]:
    from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

    return lambda source: _Bounded(source, lambda: LZMADecompressor(FORMAT_XZ), (LZMAError,))


def _lzma() -> Callable[[CompressedInput], Frame]:
    from lzma import FORMAT_ALONE, LZMADecompressor, LZMAError

    return lambda source: _Bounded(source, lambda: LZMADecompressor(FORMAT_ALONE), (LZMAError,))


def _bz2() -> Callable[[CompressedInput], Frame]:
    from bz2 import BZ2Decompressor

    return lambda source: _Bounded(source, BZ2Decompressor, (OSError, ValueError, RuntimeError))


DECODERS: dict[str, Callable[[], Callable[[CompressedInput], Frame]]] = {
    "gz": _gz,
    "zst": _zst,
    "lz4": _lz4,
    "xz": _xz,
    "lzma": _lzma,
    "bz2": _bz2,
}


_MAGIC = 10  # bytes of the longest magic, that of bzip2


class Decoder(ByteReader):
    """A reader of the plain bytes of a compressed stream, made by `decoder`.

    It needs about 3 MiB and the window of the stream: up to 8 MiB for zstd to level 19, 2 GiB with `--long=31`, 64 MiB
    for xz, but never more than the plain bytes.
    """

    def __init__(self, source: CompressedInput, begin: Callable[[CompressedInput], Frame]) -> None:
        self._input = source
        self._begin = begin
        self._frame: Frame | None = None
        self._first = True
        self._begun = False  # a frame that is not skippable was begun
        self._error: TarkitError | None = None

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`, which is not empty, and return how many bytes; 0 only at the end of the last frame.

        Raises the errors of the input's `read`, and the following, which each further call raises again.

        Raises:
            Problem: `truncated` for a stream that ends early, `bad-data` for damage, `trailing-data` for bytes after a
                frame that are not a frame.
            Unsupported: a valid stream that cannot be decoded.
        """
        if self._error is not None:
            raise self._error
        try:
            while self._frame is not None or self._next_frame():
                assert self._frame is not None
                count = self._frame.readinto(view)
                if count:
                    return count
                self._frame = None
        except TarkitError as error:
            self._error = error
            raise
        except MemoryError as error:
            self._error = Unsupported(f"{self._input.archive}: not enough memory to decode this stream")
            raise self._error from error
        return 0

    def close(self) -> None:
        self._input.reader.close()

    def _next_frame(self) -> bool:
        """Begin the next frame, after padding and skippable frames. Returns False at the end of the input."""
        source = self._input
        while True:
            codec = source.codec
            if not self._first:
                self._skip_padding()
            head = source.peek(_MAGIC)
            if not head:
                return False
            if head.startswith(codec.magics) or (self._first and codec is LZMA):  # recognised by its suffix
                self._first, self._begun = False, True
                self._frame = self._begin(source)
                return True
            if codec.skips and head.startswith(SKIPPABLE):
                self._first = False
                source.drop(int.from_bytes(source.take(8)[4:], "little"))
            else:
                self._change_codec(head)

    def _change_codec(self, head: bytes) -> None:
        """Switch to the codec of the first frame after skippable frames, which zstd and lz4 share.

        Raises Problem if `head` begins no frame, and Unsupported for a format that is not decoded.
        """
        if self._first or self._begun:
            raise self._no_frame(head)
        if (foreign := foreign_codec(head)) is not None:
            raise not_decoded(foreign, self._input.archive)
        other = CODECS.get(codec_by_magic(head) or "")
        if other is None or not other.skips:
            raise self._no_frame(head)
        self._input.codec, self._begin = other, DECODERS[other.name]()

    def _skip_padding(self) -> None:
        if self._input.codec.name == "gz":
            self._input.skip_zeros()
        elif self._input.codec.name == "xz" and self._input.skip_zeros() % 4:
            if self._input.peek(1):
                raise self._input.damaged("the padding between two streams is not a multiple of 4 bytes")
            raise self._input.cut("the padding")

    def _no_frame(self, head: bytes) -> Problem:
        codec = self._input.codec
        if any(magic.startswith(head) for magic in codec.magics + SKIPPABLE * codec.skips):
            return self._input.cut()
        if self._first:
            return self._input.damaged(f"it does not begin with a {codec.unit}")
        return self._input.problem(
            "trailing-data", f"bytes that are not a {codec.unit} follow the end of the {codec.name} stream"
        )


def decoder(codec: str, reader: ByteReader, archive: str, again: Callable[[], ByteReader] | None = None) -> Decoder:
    """Return a Decoder of a `codec` stream.

    Consecutive frames are one stream. Skippable frames, zero bytes after a gzip member and padding after an xz stream
    are skipped. An empty input has no frames and decodes to nothing.

    Args:
        codec: a name in `DECODED`.
        reader: the compressed bytes; `close` closes it.
        archive: the name for messages.
        again: returns another reader from the start of the stream, for what precedes damage; without it up to 16 MiB of
            the compressed bytes of a frame are held for that.
    """
    return Decoder(CompressedInput(DECODED[codec], reader, archive, again), DECODERS[codec]())
