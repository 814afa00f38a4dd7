"""Archives that are made while they are read, from inputs in other formats."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from tarkit.bytereader import ByteReader
from tarkit.errors import TarkitError
from tarkit.tar.header import end_of_archive

GATHERED = 1 << 18  # bytes of small pieces that are returned together


class GeneratedArchive(ByteReader):
    """The tar archive that is equivalent to an input; `name` is for messages.

    A subclass makes the entries, in `pieces`, and closes the input.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tar = self._archive()
        self._data = memoryview(b"")
        self._failure: TarkitError | OSError | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive without its end, in pieces of any size.

        Pieces in front of an empty one are returned at once, since the next may take time.

        Raises TarkitError or OSError; pieces yielded before are returned first.
        """
        raise NotImplementedError

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`. Raises the exceptions of `pieces`; after one each further call raises it too."""
        while not self._data:
            if self._failure is not None:
                raise self._failure
            try:
                data = next(self._tar, None)
            except (TarkitError, OSError) as failure:
                self._failure = failure
                raise
            if data is None:
                return 0
            self._data = memoryview(data)
        count = min(len(self._data), len(view))
        view[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        """Close the input."""
        self._tar.close()

    def _archive(self) -> Generator[bytes]:
        """Yield the archive in pieces. Before an error is raised, the pieces that precede it are yielded."""
        held: list[bytes] = []
        size = position = 0
        failure: TarkitError | OSError | None = None
        try:
            for piece in self.pieces():
                held.append(piece)
                size += len(piece)
                if size >= GATHERED or not piece:
                    position += size
                    yield b"".join(held)
                    held, size = [], 0
        except (TarkitError, OSError) as raised:
            failure = raised
        yield b"".join(held)
        if failure is not None:
            raise failure
        yield end_of_archive(position + size)
