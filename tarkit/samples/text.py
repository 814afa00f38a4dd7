"""Samples made of text: one for each line, for each page, or for each key of a list (tarproc's --mode)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tarkit.errors import TarkitError, show
from tarkit.samples.dataset import InputReader, open_source
from tarkit.samples.sample import TarSample, is_safe, split_name
from tarkit.streams.ranges import HeldRange
from tarkit.streams.source import Source
from tarkit.tar.block import padding
from tarkit.tar.header import encode
from tarkit.tar.reader import Entry

Mode = Literal["tar", "keys", "lines", "pages"]

LONGEST = 16 << 20  # bytes of a line or a page
FIELD = b"txt"
_STEP = 1 << 20
_ENDS = {"keys": b"\n", "lines": b"\n", "pages": b"\f"}


@dataclass(kw_only=True)
class TextReader(InputReader):
    """Iterate over samples made of text: one for each line or page of all inputs.

    The key is a number of nine digits, the text the field txt. A line keeps its line end; pages are separated by form
    feeds. With `keys`, each line that is not blank is the key of a sample without fields.

    Raises:
        TarkitError: a line is longer than 16 MiB, or is not a valid key.
    """

    mode: Mode
    shard_slice: tuple[int, int | None, int] | None = None

    def batches(self) -> Iterator[TarSample]:
        """Yield the samples."""
        number = 0
        for location in self.locations:
            source = open_source(location, stream=True)
            lines = enumerate(_pieces(source, _ENDS[self.mode]), 1)
            for line, text in islice(lines, *(self.shard_slice or (0, None, 1))):
                if self.mode == "keys":
                    key = text.rstrip(b"\r\n")
                    if key.strip():
                        yield _of_key(key, f"{source.name}:{line}")
                    continue
                if self.mode == "pages":
                    text = text.removesuffix(b"\f")
                yield _sample(b"%09d" % number, text, source.name)
                number += 1
            source.close()


def _pieces(source: Source, end: bytes) -> Iterator[bytes]:
    """Yield the text, split after each `end`."""
    pos = 0
    rest = b""
    while view := source.peek(pos, 1):
        data = bytes(view[:_STEP])
        pos += len(data)
        source.release(pos)
        whole = rest + data
        *pieces, rest = whole.split(end)
        if len(rest) > LONGEST:
            raise TarkitError(f"{source.name}: at {pos - len(rest)}: a line or page of more than 16 MiB: is this text?")
        for piece in pieces:
            yield piece + end
    if source.failure is not None:
        raise source.failure
    if rest:
        yield rest


def _of_key(key: bytes, where: str) -> TarSample:
    if b"\0" in key or split_name(key + b".x") != (key, b"x") or not is_safe(key):
        raise TarkitError(
            f"{where}: invalid key {show(key)}: it has a dot after its last slash, or leads out of the directory",
            "the mode lines makes a sample of every line",
        )
    return TarSample(key, HeldRange(where.rpartition(":")[0], 0, b""), [], 0, 0)


def _sample(key: bytes, text: bytes, name: str) -> TarSample:
    size = len(text)
    header = encode(key + b"." + FIELD, size)
    data = header + text + bytes(padding(size))
    entry = Entry(key + b"." + FIELD, 0, len(header), size, len(data), b"0", b"", -1)
    return TarSample(key, HeldRange(name, 0, data), [entry], 0, len(data))
