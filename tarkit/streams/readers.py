"""Readers of bytes in order: descriptors, files, and readers of which the first bytes are known."""

from __future__ import annotations

import os
from typing import Any

from tarkit.bytereader import ByteReader
from tarkit.streams.copy import is_pipe, widen
from tarkit.streams.files import File


class DescriptorReader(ByteReader):
    """A descriptor, read from its current position; `name` is for messages. 0, 1 and 2 stay open."""

    def __init__(self, fd: int, name: str | None = None) -> None:
        self.fd = fd
        self.name = name
        if is_pipe(fd):
            widen(fd)

    def readinto(self, view: Any, /) -> int:
        try:
            return os.readv(self.fd, [view])
        except OSError as error:
            error.filename = self.name
            raise

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        if self.fd > 2:
            os.close(self.fd)
            self.fd = -1


class FileReader(ByteReader):
    """A regular file, read from `offset` to its end. `File` bounds how many are open at once."""

    def __init__(self, file: File, offset: int = 0) -> None:
        self.file = file
        self.position = offset

    def readinto(self, view: Any, /) -> int:
        held = self.file.opened or self.file.open()
        try:
            count = os.preadv(held.fd, [view], self.position)
        except OSError as error:
            error.filename = self.file.name
            raise
        self.position += count
        return count

    def close(self) -> None:
        self.file.close()


class Prepended(ByteReader):
    """A reader with `head`, which was already read from it, put back in front."""

    def __init__(self, head: bytes, reader: ByteReader) -> None:
        self.head = head
        self.reader = reader

    def readinto(self, view: Any, /) -> int:
        if not self.head:
            return self.reader.readinto(view)
        count = min(len(self.head), len(view))
        view[:count] = self.head[:count]
        self.head = self.head[count:]
        return count

    def fileno(self) -> int:
        return super().fileno() if self.head else self.reader.fileno()

    def close(self) -> None:
        self.reader.close()
