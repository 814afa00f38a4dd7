"""Decoding: compressed bytes in, plain bytes out, in bounded memory; a stream that was cut short is always an error.

The libraries decode one frame (gzip member, xz stream ...) at a time. What lies between frames is looked at here.
"""

from __future__ import annotations

from collections.abc import Callable

from tarkit.errors import Problem, TarkitError, Unsupported
from tarkit.streams.codecs.frames import LIBRARIES, Frame
from tarkit.streams.codecs.input import Input
from tarkit.streams.codecs.registry import CODECS, DECODED, SKIPPABLE, codec_by_magic, foreign_codec, not_decoded

_MOST = 1 << 20  # bytes returned at a time
_MAGIC = 10  # bytes of the longest magic, that of bzip2


class Decoder:
    """The plain bytes of a compressed stream; made by `decoder`.

    Holds some 3 MiB, and the window that the stream asks for: zstd to level 19 up to 8 MiB, `--long=31` 2 GiB, xz up to
    64 MiB, but never more than the stream has plain bytes.
    """

    def __init__(self, source: Input, begin: Callable[[Input], Frame]) -> None:
        self._input = source
        self._begin = begin
        self._frame: Frame | None = None
        self._first = True
        self._begun = False  # a frame that is no skippable one
        self._error: TarkitError | None = None

    def read(self, n: int) -> bytes:
        """Up to n bytes (n > 0; a MiB is best, and the most that comes), b"" only at the end of the last frame.

        Raises Problem `truncated` for a stream that was cut short, `bad-data` for damage, `trailing-data` for bytes
        behind a frame that begin no other, and Unsupported for a valid stream that cannot be decoded here; each further
        call raises the same. What `read` of the input raises is passed on.
        """
        if self._error is not None:
            raise self._error
        try:
            while self._frame is not None or self._next_frame():
                assert self._frame is not None
                data = self._frame.read(min(n, _MOST))
                if data:
                    return data
                self._frame = None
        except TarkitError as error:
            self._error = error
            raise
        except MemoryError as error:
            self._error = Unsupported(f"{self._input.archive}: too little memory to decode this stream")
            raise self._error from error
        return b""

    def _next_frame(self) -> bool:
        """Go to the next frame, over padding and skippable frames. False at the end of the input."""
        source = self._input
        while True:
            codec = source.codec
            if not self._first:
                self._skip_padding()
            head = source.peek(_MAGIC)
            if not head:
                return False
            if head.startswith(codec.magics):
                self._first, self._begun = False, True
                self._frame = self._begin(source)
                return True
            if codec.skips and head.startswith(SKIPPABLE):
                self._first = False
                source.drop(int.from_bytes(source.take(8)[4:], "little"))
            else:
                self._change_codec(head)

    def _change_codec(self, head: bytes) -> None:
        """Go on with the codec of the first frame behind skippable frames, which zstd and lz4 have in common.

        Raises Problem if no frame begins with `head`, and Unsupported for a codec that is not decoded.
        """
        if self._first or self._begun:
            raise self._no_frame(head)
        if (foreign := foreign_codec(head)) is not None:
            raise not_decoded(foreign, self._input.archive)
        other = CODECS.get(codec_by_magic(head) or "")
        if other is None or not other.skips:
            raise self._no_frame(head)
        self._input.codec, self._begin = other, LIBRARIES[other.name]()

    def _skip_padding(self) -> None:
        if self._input.codec.name == "gz":
            self._input.skip_zeros()
        elif self._input.codec.name == "xz" and self._input.skip_zeros() % 4:
            if self._input.peek(1):
                raise self._input.damaged("the padding between two streams is no multiple of 4 bytes")
            raise self._input.cut("the padding")

    def _no_frame(self, head: bytes) -> Problem:
        codec = self._input.codec
        if any(magic.startswith(head) for magic in codec.magics + SKIPPABLE * codec.skips):
            return self._input.cut()
        if self._first:
            return self._input.damaged(f"it does not begin with a {codec.unit}")
        return self._input.problem(
            "trailing-data", f"bytes that are no {codec.unit} follow the end of the {codec.name} stream"
        )


def decoder(codec: str, read: Callable[[int], bytes], archive: str) -> Decoder:
    """A reader of the plain bytes of a `codec` stream (a name in `DECODED`).

    `read(n)` returns up to n compressed bytes, b"" at the end of the file; `archive` is its name in messages. Several
    frames in a row are one stream. Skippable frames are passed over, as are zero bytes behind a gzip member and padding
    behind an xz stream. No bytes at all are no frames, hence no plain bytes.
    """
    return Decoder(Input(DECODED[codec], read, archive), LIBRARIES[codec]())
