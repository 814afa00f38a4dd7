"""Where bytes are written: files that appear when they are complete, stdout, commands; a codec before any of them.

    with open_sink("out.tar") as sink:
        sink.write(...)

Leaving the block normally completes the output, and says when that fails; leaving it by an exception leaves nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NoReturn, Self

from tarkit.streams import remote
from tarkit.streams.codecs import encoder
from tarkit.streams.command import CommandWriter
from tarkit.streams.copy import CHUNK, Copier, Short, is_pipe, widen, write_all, writev_all

_unfinished: set[str] = set()


def discard_unfinished() -> None:
    """Remove the temporary files of outputs that were not completed: the last act before a signal ends us."""
    for path in list(_unfinished):
        _discard(path)


def _discard(path: str) -> None:
    _unfinished.discard(path)
    try:
        os.unlink(path)
    except OSError:
        pass


class Sink:
    """Bytes that go out through the descriptor `fd`. `position` counts them, `name` is for messages."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd: int | None = fd
        self.name = name
        self.position = 0
        self._out = fd
        self._copier = Copier(fd)
        if is_pipe(fd):
            widen(fd)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        try:
            write_all(self._out, data)
        except OSError as error:
            self._failed(error)
        self.position += len(data)

    def writev(self, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces`, one behind the other."""
        try:
            self.position += writev_all(self._out, pieces)
        except OSError as error:
            self._failed(error)

    def copy(self, source: int, start: int, stop: int) -> None:
        """Write bytes [start, stop) of the file `source`; raises Short when the file ends before."""
        try:
            self._copier.copy(source, start, stop)
        except OSError as error:
            self._failed(error)
        self.position += stop - start

    def close(self) -> None:
        """Complete the output."""

    def abort(self) -> None:
        """Give the output up."""

    def _failed(self, error: OSError) -> NoReturn:
        if error.filename is None:
            error.filename = self.name
        raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class DescriptorSink(Sink):
    """Stdout, or what is no regular file: written in place."""

    def close(self) -> None:
        """Close the descriptor: that can fail, on a network file system for instance."""
        if self._out >= 0:
            out, self._out = self._out, -1
            try:
                os.close(out)
            except OSError as error:
                self._failed(error)

    def abort(self) -> None:
        """What was written stays."""
        if self._out > 2:
            os.close(self._out)
        self._out = -1


class FileSink(Sink):
    """A file that is written beside its name and gets it when it is complete.

    It has the mode of the file that it replaces, else what the umask leaves of 0666. A symbolic link keeps pointing to
    it. With `sync` it is on the disk before it has its name.
    """

    def __init__(self, path: str, sync: bool = False) -> None:
        self.path = os.path.realpath(path)
        self.sync = sync
        folder, base = os.path.split(self.path)
        mode = 0o666
        try:
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
            replaces = True
        except FileNotFoundError:
            replaces = False
        fd = -1
        for attempt in range(1000):
            again = f".{attempt}" if attempt else ""
            self.part = os.path.join(folder, f".{_short(base)}.{os.getpid()}{again}.part")
            try:
                _unfinished.add(self.part)
                fd = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                break
            except FileExistsError:  # another machine's process of our number, or a dead one's
                _unfinished.discard(self.part)
            except OSError as error:
                _unfinished.discard(self.part)
                error.filename = path
                raise
        if fd < 0:
            raise FileExistsError(17, "too many unfinished outputs of this name", path)
        if replaces:
            os.fchmod(fd, mode)
        super().__init__(fd, path)

    def fileno(self) -> int:
        """The descriptor, from which what was written can be read again."""
        return self._out

    def cut(self, position: int) -> None:
        """Forget what was written from `position` on."""
        os.ftruncate(self._out, position)
        os.lseek(self._out, position, os.SEEK_SET)
        self.position = position

    def close(self) -> None:
        """Give the file its name."""
        try:
            if self.sync:
                os.fsync(self._out)
            out, self._out = self._out, -1
            os.close(out)
            os.rename(self.part, self.path)
        except OSError as error:
            self.abort()
            error.filename, error.filename2 = self.name, None
            raise
        _unfinished.discard(self.part)
        if self.sync:
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def abort(self) -> None:
        """Remove what was written."""
        _discard(self.part)
        if self._out >= 0:
            os.close(self._out)
            self._out = -1


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


class UrlSink(Sink):
    """A remote object, which appears when it is complete."""

    def __init__(self, url: str) -> None:
        self.fd = None
        self.name = remote.public_name(url)
        self.position = 0
        self.writer = remote.open_write(url)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self.writer.write(data)
        self.position += len(data)

    def writev(self, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces`, one behind the other."""
        self.write(b"".join(pieces))

    def copy(self, source: int, start: int, stop: int) -> None:
        """Write bytes [start, stop) of the file `source`."""
        for data in _pieces(source, start, stop):
            self.write(data)

    def close(self) -> None:
        """Complete the object."""
        self.writer.close()

    def abort(self) -> None:
        """Leave no object."""
        self.writer.abort()


class EncodedSink(Sink):
    """A codec in front of another sink."""

    def __init__(self, target: Sink, codec: str, level: int | None, threads: int = 1) -> None:
        self.fd = None
        self.name = target.name
        self.position = 0
        self.target = target
        self.encoder = encoder(codec, level, target.write, threads)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self.encoder.write(data)
        self.position += len(data)

    def writev(self, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces`, one behind the other."""
        self.write(b"".join(pieces))

    def copy(self, source: int, start: int, stop: int) -> None:
        """Write bytes [start, stop) of the file `source`."""
        for data in _pieces(source, start, stop):
            self.write(data)

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


def _pieces(source: int, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:
        data = os.pread(source, min(CHUNK, stop - start), start)
        if not data:
            raise Short(start)
        yield data
        start += len(data)


def open_sink(
    kind: str, text: str, *, codec: tuple[str, int | None] | None = None, threads: int = 1, sync: bool = False
) -> Sink:
    """Open an output: `kind` is stdout, path, pipe or url, `text` what follows.

    `codec` is a codec's name and level; None writes plain bytes.
    """
    sink = _open_plain(kind, text, sync)
    if codec is None:
        return sink
    try:
        return EncodedSink(sink, *codec, threads)
    except BaseException:
        sink.abort()
        raise


def _open_plain(kind: str, text: str, sync: bool) -> Sink:
    if kind == "stdout":
        return DescriptorSink(os.dup(1), "stdout")
    if kind == "pipe":
        return CommandSink(text)
    if kind == "url":
        return UrlSink(text)
    for folder in ("/dev/fd/", "/proc/self/fd/"):
        if text.startswith(folder) and text[len(folder) :].isdigit():
            return DescriptorSink(os.dup(int(text[len(folder) :])), text)
    if text == "/dev/stdout":
        return DescriptorSink(os.dup(1), "stdout")
    try:
        mode = os.stat(text).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        return FileSink(text, sync)
    return DescriptorSink(os.open(text, os.O_WRONLY | os.O_CLOEXEC), text)


def _short(base: str) -> str:
    """A file name that leaves room for the rest of a temporary one."""
    raw = os.fsencode(base)
    return base if len(raw) <= 230 else os.fsdecode(raw[:230])
