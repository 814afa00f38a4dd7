"""File objects of the caller as inputs and outputs. They are used where they stand, and stay open.

An input that can seek is read anew by each run, from the position that it had for the first. As it has one position,
only the run that began last can read it. An object that does not block is waited for.
"""

from __future__ import annotations

import io
import os
import select
import time
from typing import Any, BinaryIO

from tarkit.bytereader import ByteReader
from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.sizes import plural
from tarkit.streams.sink import WriteOnlySink

_PAUSE = 0.001  # seconds until an object without a descriptor is tried again


def object_name(file: object) -> str:
    """Return the name of a file object for messages."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "a file object"


class FileObjectInput:
    """A file object that is read. `reader` is that of the latest run."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.name = object_name(file)
        self.reader: FileObjectReader | None = None
        self._start: int | None = None

    @property
    def seekable(self) -> bool:
        """Whether it can be read again."""
        return bool(getattr(self.file, "seekable", bool)())

    def begin(self, reader: FileObjectReader) -> None:
        """Seek to where the first run began. Raises Unsupported when the object cannot seek."""
        if self.reader is not None:
            if self._start is None:
                message = f"{self.name}: a file object that cannot seek can be read once"
                raise Unsupported(message, "write it to a file, and open that")
            self.file.seek(self._start)
        elif self.seekable:
            self._start = self.file.tell()
        self.reader = reader


class FileObjectReader(ByteReader):
    """Reader of a file object in one run; it is invalid once a later run begins to read."""

    def __init__(self, source: FileObjectInput) -> None:
        self.source = source
        self._begun = False

    def readinto(self, view: Any, /) -> int:
        """Fill some of `view`. Raises TarkitError when a later run has begun to read the object."""
        source = self.source
        if not self._begun:
            self._begun = True
            source.begin(self)
        elif source.reader is not self:
            message = f"{source.name}: another iterator has begun to read this file object"
            raise TarkitError(message, "open the file by its path: then each iterator has its own position")
        data: object = source.file.read(len(view))
        while data is None and _is_raw(source.file):  # there is nothing yet
            _wait(source.file, select.POLLIN)
            data = source.file.read(len(view))
        if not isinstance(data, bytes):
            message = f"{source.name}: its read() returned {type(data).__name__}, not bytes"
            raise Usage(message, "open it in mode 'rb'")
        view[: len(data)] = data
        return len(data)


def reader_of(file: FileObjectInput | FileObjectReader) -> FileObjectReader:
    """Return a reader of its own for a file object; that of a run is one already."""
    return FileObjectReader(file) if isinstance(file, FileObjectInput) else file


class FileObjectSink(WriteOnlySink):
    """A file object that is written."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.file = file

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            if taken := self._offer(view):
                view = view[taken:]
            else:
                _wait(self.file, select.POLLOUT)

    def _offer(self, view: memoryview) -> int:
        """Return how many bytes the object took: a raw one may take only some, or none when it does not block.

        Other objects that return None have taken all.
        """
        try:
            count: object = self.file.write(view)
        except BlockingIOError as error:  # a buffer in front of an object that does not block
            return getattr(error, "characters_written", 0)
        if count is None:
            return 0 if _is_raw(self.file) else len(view)
        if not isinstance(count, int) or not 0 <= count <= len(view):
            raise TarkitError(f"{self.name}: its write() returned {count!r} for {plural(len(view), 'byte')}")
        return count

    def close(self) -> None:
        """Flush the object."""
        while True:
            try:
                self.file.flush()
                return
            except BlockingIOError:
                _wait(self.file, select.POLLOUT)


def _is_raw(file: BinaryIO) -> bool:
    """Return whether None from `read` or `write` means no bytes, for now."""
    if isinstance(file, io.RawIOBase):
        return True
    try:
        return not os.get_blocking(file.fileno())
    except (AttributeError, OSError, TypeError, ValueError):  # it has no descriptor
        return False


def _wait(file: BinaryIO, event: int) -> None:
    try:
        poll = select.poll()
        poll.register(file.fileno(), event)
    except (AttributeError, OSError, TypeError, ValueError):
        time.sleep(_PAUSE)
    else:
        poll.poll()
