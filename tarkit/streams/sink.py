"""Where bytes are written: files that appear when they are complete, stdout, commands; a codec before any of them.

    with open_sink("path", "out.tar") as sink:
        sink.write(...)

Leaving the block normally completes the output, and says when that fails; leaving it by an exception leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from tarkit.stores import schemes
from tarkit.streams.codecs import encoder
from tarkit.streams.command import CommandWriter
from tarkit.streams.copy import CHUNK, Short
from tarkit.streams.mover import Shortened
from tarkit.streams.sink_plain import DescriptorSink, FileSink, Sink, discard_unfinished, open_file

__all__ = [
    "CommandSink",
    "DescriptorSink",
    "EncodedSink",
    "FileSink",
    "Sink",
    "UrlSink",
    "Written",
    "discard_unfinished",
    "open_sink",
]


class CommandSink(Sink):
    """The stdin of a command; its status counts."""

    def __init__(self, text: str) -> None:
        self.command = CommandWriter(text)
        super().__init__(self.command.fd, f"pipe:{text}")

    def close(self) -> None:
        """Wait for the command; raises CommandFailed unless its status is 0."""
        try:
            self.command.finish()
        except BrokenPipeError:
            self.command.wait()
            raise

    def abort(self) -> None:
        """End the command before it can take the end of its input for a good one."""
        self.command.end()

    def _failed(self, error: OSError) -> NoReturn:
        if isinstance(error, BrokenPipeError):
            self.command.wait()  # raises what the command has to say
            raise OSError(error.errno, "the command ended before it had read all", self.name) from None
        super()._failed(error)


class Written(Sink):
    """A sink without a descriptor: all that comes goes through `write`."""

    @property
    def fd(self) -> int | None:
        """None."""
        return None

    def writev(self, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces`, one behind the other."""
        self.write(b"".join(pieces))

    def copy(self, source: int, start: int, stop: int, short: Shortened | None = None) -> None:
        """Write bytes [start, stop) of the file `source`; raises Short when the file ends before."""
        while start < stop:
            data = os.pread(source, min(CHUNK, stop - start), start)
            if not data:
                raise Short(start)
            self.write(data)
            start += len(data)


class UrlSink(Written):
    """A remote object, which appears when it is complete."""

    def __init__(self, url: str) -> None:
        self.name = schemes.public_name(url)
        self.writer = schemes.open_write(url)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self.writer.write(data)

    def close(self) -> None:
        """Complete the object."""
        self.writer.close()

    def abort(self) -> None:
        """Leave no object."""
        self.writer.abort()


class EncodedSink(Written):
    """A codec in front of another sink."""

    def __init__(self, target: Sink, codec: str, level: int | None, threads: int = 1) -> None:
        self.name = target.name
        self.target = target
        self.encoder = encoder(codec, level, target.write, threads)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self.encoder.write(data)

    def close(self) -> None:
        """Finish the compressed stream and complete the output."""
        try:
            self.encoder.close()
        except BaseException:
            self.abort()
            raise
        self.target.close()

    def abort(self) -> None:
        """Give the output up."""
        try:
            self.encoder.abort()
        finally:
            self.target.abort()


def open_sink(
    kind: str,
    text: str,
    *,
    codec: tuple[str, int | None] | None = None,
    threads: int = 1,
    sync: bool = False,
    fresh: bool = False,
) -> Sink:
    """Open an output: `kind` is stdout, path, pipe or url, `text` what follows.

    `codec` is a codec's name and level; None writes plain bytes. What is `fresh` replaces no file.
    """
    sink = _open_plain(kind, text, sync, fresh)
    if codec is None:
        return sink
    try:
        return EncodedSink(sink, *codec, threads)
    except BaseException:
        sink.abort()
        raise


def _open_plain(kind: str, text: str, sync: bool, fresh: bool) -> Sink:
    if kind == "stdout":
        return DescriptorSink(os.dup(1), "stdout")
    if kind == "pipe":
        return CommandSink(text)
    if kind == "url":
        return UrlSink(text)
    return open_file(text, sync, fresh)
