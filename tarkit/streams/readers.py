"""Where the bytes of a stream come from: a descriptor, a URL; with a codec or a thread in between."""

from __future__ import annotations

import os
from typing import Protocol

from tarkit.streams.copy import CHUNK, is_pipe, widen
from tarkit.streams.files import File
from tarkit.streams.source import Reader


class DescriptorReader:
    """A descriptor, read from where it stands; `name` is for messages."""

    def __init__(self, fd: int, name: str | None = None) -> None:
        self.fd = fd
        self.name = name
        if is_pipe(fd):
            widen(fd)

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        try:
            return os.readv(self.fd, [view])
        except OSError as error:
            error.filename = self.name
            raise

    def fileno(self) -> int | None:
        """The descriptor."""
        return self.fd

    def close(self) -> None:
        """Close the descriptor, unless it is stdin."""
        if self.fd > 2:
            os.close(self.fd)
            self.fd = -1


class FileReader:
    """A regular file, read from `offset` to its end; where there are many, not all of them are open."""

    def __init__(self, file: File, offset: int = 0) -> None:
        self.file = file
        self.pos = offset

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        held = self.file.opened or self.file.open()
        try:
            got = os.preadv(held.fd, [view], self.pos)
        except OSError as error:
            error.filename = self.file.name
            raise
        self.pos += got
        return got

    def fileno(self) -> int | None:
        """None: the descriptor is not at the place that is read."""
        return None

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Prepended:
    """A reader of which `head` was read before."""

    def __init__(self, head: bytes, reader: Reader) -> None:
        self.head = head
        self.reader = reader

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        if not self.head:
            return self.reader.readinto(view)
        count = min(len(self.head), len(view))
        view[:count] = self.head[:count]
        self.head = self.head[count:]
        return count

    def fileno(self) -> int | None:
        """The reader's descriptor, once `head` has been taken."""
        return None if self.head else self.reader.fileno()

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


class Readable(Protocol):
    """What a decoder, a URL and a thread that reads ahead have in common; `close()` too, but for decoders."""

    def read(self, n: int, /) -> bytes:
        """Up to `n` bytes, none at the end."""


class ByRead:
    """A reader for what has `read`; closing it closes `below`, the reader that it stands on, too."""

    def __init__(self, inner: Readable, below: Reader | None = None) -> None:
        self.inner = inner
        self.below = below

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`."""
        data = self.inner.read(len(view))
        view[: len(data)] = data
        return len(data)

    def fileno(self) -> int | None:
        """None: what a descriptor has is not what is read here."""
        return None

    def close(self) -> None:
        """Close it and what it stands on."""
        close = getattr(self.inner, "close", None)
        if (close is None or close() is not False) and self.below is not None:
            self.below.close()


def reading(reader: Reader) -> _Read:
    """The `read(n)` of a reader, for who wants one."""
    return _Read(reader)


class _Read:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._view = memoryview(bytearray(CHUNK))

    def __call__(self, n: int) -> bytes:
        return bytes(self._view[: self._reader.readinto(self._view[:n])])
