"""Write an archive from byte ranges of other archives and from new entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tarkit.streams.sink import Sink
from tarkit.streams.source import Source
from tarkit.tar.block import BLOCK, padding
from tarkit.tar.header import end_of_archive

GATHERED = 1 << 19  # bytes of small pieces that are written together
PIECES = 900  # and how many; below IOV_MAX
LONG = 8 << 20  # bytes: a longer range is written without waiting for an adjacent one
SMALL = 1 << 16  # bytes: a shorter range is read and written together with others

PADS = [bytes(padding(size)) for size in range(BLOCK)]
"""The padding of a payload, by its size modulo BLOCK."""


class EntryWriter:
    """Write ranges and entries, in order, then the end of the archive. `position` is the length so far in bytes.

    Adjacent ranges of a source are one copy; short ranges of a file, headers and small payloads are written together.
    Leaving the `with` block normally completes the archive and its sink, leaving it by an exception aborts both.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.position = 0
        self._source: Source | None = None
        self._start = self._stop = 0
        self._pieces: list[bytes] = []
        self._gathered = 0
        self._finished = False

    def append(self, source: Source, start: int, stop: int) -> None:
        """Append bytes [start, stop) of `source`: whole entries, or the payload of one with its padding."""
        self.position += stop - start
        if source is self._source and start == self._stop:
            self._stop = stop
            if stop - self._start > LONG:
                self.flush()
            return
        if self._source is not None:
            self._end_range()
        self._source, self._start, self._stop = source, start, stop
        source.lend(self.flush)

    def raw(self, pieces: Sequence[bytes], size: int) -> None:
        """Append `pieces`, which are `size` bytes together."""
        if self._source is not None:
            self._end_range()
        self._pieces += pieces
        self._gathered += size
        self.position += size
        if self._gathered > GATHERED or len(self._pieces) > PIECES:
            self.flush()

    @property
    def waiting(self) -> int:
        """Bytes in memory that are not written yet."""
        return self._gathered

    def flush(self) -> None:
        """Write all that is pending to the sink."""
        if self._pieces:
            pieces, self._pieces, self._gathered = self._pieces, [], 0
            self.sink.writev(pieces)
        if self._source is not None:
            source, self._source = self._source, None
            source.send(self._start, self._stop, self.sink)

    def wait(self) -> None:
        """Write all that is pending, and wait until nothing of the sources is needed any more."""
        self.flush()
        self.sink.wait()

    def _end_range(self) -> None:
        """Add the pending range to the pieces if it is short, else write it to the sink."""
        source = self._source
        assert source is not None
        size = self._stop - self._start
        if size > SMALL or not source.seekable:
            self.flush()
            return
        self._source = None
        self._pieces.append(source.read(self._start, self._stop))
        self._gathered += size
        if self._gathered > GATHERED or len(self._pieces) > PIECES:
            self.flush()

    def finish(self, zeros: int | None = None) -> None:
        """Write the end of the archive, once: two zero blocks and padding to a record, or `zeros` zero bytes."""
        if self._finished:
            return
        self.flush()
        self._finished = True
        if zeros is None:
            ending = end_of_archive(self.position)
            self.sink.write(ending)
            self.position += len(ending)
        else:
            for remaining in range(zeros, 0, -GATHERED):
                self.sink.write(bytes(min(remaining, GATHERED)))
            self.position += zeros

    def close(self) -> None:
        """Write the end of the archive and complete the sink."""
        try:
            self.finish()
        except BaseException:
            self.abort()
            raise
        self.sink.close()

    def abort(self) -> None:
        """Abort the archive and its sink."""
        self._source = None
        self._pieces = []
        self.sink.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()
