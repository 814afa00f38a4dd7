"""Sinks: outputs of bytes to files, stdout, commands and URLs, compressed or not.

    with open_sink("path", "out.tar") as sink:
        sink.write(...)

Leaving the block normally completes the output, or raises an error; leaving it by an exception removes the output. A
file is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

from tarkit.errors import TarkitError
from tarkit.signals import OUTPUTS, register_cleanup, uninterrupted
from tarkit.stores import connect, schemes
from tarkit.streams.background import LONG, Mover, Shortened
from tarkit.streams.codecs import encoder
from tarkit.streams.command import CommandWriter
from tarkit.streams.copy import CHUNK, Copier, Short, is_pipe, widen, write_all, writev_all
from tarkit.streams.terminal import progress_hidden

if TYPE_CHECKING:
    from tarkit.stores.store import StoreOptions

unfinished: set[str] = set()
"""Paths of the temporary files of outputs that are not complete."""

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def discard_unfinished() -> None:
    """Remove the temporary files of outputs that were not completed."""
    for path in list(unfinished):
        _discard(path)


register_cleanup(OUTPUTS, discard_unfinished)


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
    unfinished.discard(path)  # last: after a signal before this line, the cleanup removes the file


class Sink:
    """An output with a descriptor, and the base class of all sinks; `name` is for messages.

    Attributes:
        remote: whether `close` waits for a server. Then it may be called in a thread.
    """

    remote = False

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self._out = fd
        self._copier = Copier(fd)
        if is_pipe(fd):
            widen(fd)

    @property
    def fd(self) -> int | None:
        """The descriptor, for a caller that writes to it directly and at once; None if that is not possible."""
        return self._out

    @property
    def busy(self) -> bool:
        """Whether copies are under way in a thread, for which `close` waits; not after one has failed."""
        return False

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        try:
            write_all(self._out, data)
        except OSError as error:
            self._failed(error)

    def writev(self, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces` in order."""
        try:
            writev_all(self._out, pieces)
        except OSError as error:
            self._failed(error)

    def copy(self, source: int, start: int, stop: int, short: Shortened | None = None) -> None:
        """Write bytes [start, stop) of the file `source`; raises Short if the file ends before `stop`.

        With `short` the sink may copy later: then a later call raises the exception `short(pos)`.
        """
        try:
            self._copier.copy(source, start, stop)
        except OSError as error:
            self._failed(error)

    def wait(self) -> None:
        """Wait until copies that are under way in a thread are made; raises their errors."""

    def close(self) -> None:
        """Complete the output."""

    def abort(self) -> None:
        """Give the output up."""

    def withdraw(self) -> bool:
        """Remove a remote output that is complete; return whether it is gone. One of another writer stays."""
        return False

    def _give_up(self) -> None:
        """Close the descriptor of an output that is given up, and ignore errors."""
        out, self._out = self._out, -1
        with suppress(OSError):
            os.close(out)

    def digest(self) -> tuple[str, int] | None:
        """Return the SHA-256 and the length of the stored bytes; None for a sink that does not compute it."""
        return None

    def index_entry(self, name: str) -> dict[str, Any] | None:
        """Return what an index says of the output, which is complete, under a name; None for one without an index."""
        return None

    def _failed(self, error: OSError) -> NoReturn:
        if error.filename is None:
            error.filename = self.name
        raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class WriteOnlySink(Sink):
    """Base class of sinks without a descriptor, whose only way in is `write`."""

    @property
    def fd(self) -> int | None:
        return None

    def writev(self, pieces: Sequence[bytes]) -> None:
        self.write(b"".join(pieces))

    def copy(self, source: int, start: int, stop: int, short: Shortened | None = None) -> None:
        while start < stop:
            data = os.pread(source, min(CHUNK, stop - start), start)
            if not data:
                raise Short(start)
            self.write(data)
            start += len(data)


class DescriptorSink(Sink):
    """Stdout, or a file that is not regular: written in place."""

    def close(self) -> None:
        """Close the descriptor, which may fail, on a network file system for instance."""
        if self._out >= 0:
            out, self._out = self._out, -1
            try:
                os.close(out)
            except OSError as error:
                self._failed(error)

    def abort(self) -> None:
        """Close the descriptor; the written bytes stay."""
        if self._out > 2:
            self._give_up()
        self._out = -1


class TerminalSink(WriteOnlySink, DescriptorSink):
    """Stdout where it is a terminal: what shows progress there is hidden meanwhile."""

    def write(self, data: bytes | memoryview) -> None:
        with progress_hidden():
            super().write(data)


class FileSink(Sink):
    """A file that is written under a temporary name in its directory and renamed when it is complete.

    It gets the mode of the file that it replaces, else 0666 without the bits of the umask. A symbolic link is followed.

    Args:
        sync: fsync the file before renaming it, and the directory after.
        fresh: replace no file: one that exists, or is created by another process meanwhile, is an error.
    """

    def __init__(self, path: str, sync: bool = False, fresh: bool = False) -> None:
        self.path = os.path.realpath(path)
        self.sync = sync
        self._fresh = fresh
        directory, base = os.path.split(self.path)
        mode = 0o666
        try:
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
            replaces = True
            if fresh:
                raise _taken(path)
        except FileNotFoundError:
            replaces = False
        fd = -1
        for attempt in range(1000):
            again = f".{attempt}" if attempt else ""
            self.part = os.path.join(directory, f".{short_name(base)}.{os.getpid()}{again}.part")
            try:
                with uninterrupted():
                    fd = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
                    unfinished.add(self.part)
                break
            except FileExistsError:  # of this process, of one with its id on another machine, or of one that was killed
                pass
            except OSError as error:
                error.filename = path
                raise
        if fd < 0:
            raise FileExistsError(17, "too many unfinished outputs of this name", path)
        self._out = fd
        self._mover: Mover | None = None
        try:
            if replaces:
                os.fchmod(fd, mode)
            super().__init__(fd, path)
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                error.filename = path
            raise

    @property
    def fd(self) -> int | None:
        """The descriptor, whose position is the end of the written bytes."""
        self.wait()
        return self._out

    @property
    def busy(self) -> bool:
        return self._mover is not None and self._mover.busy

    def write(self, data: bytes | memoryview) -> None:
        self.wait()
        super().write(data)

    def writev(self, pieces: Sequence[bytes]) -> None:
        self.wait()
        super().writev(pieces)

    def copy(self, source: int, start: int, stop: int, short: Shortened | None = None) -> None:
        """Write bytes [start, stop) of the file `source`; raises Short if the file ends before `stop`.

        With `short` a long range is copied in a thread, as is a shorter one while the thread is busy; then a later call
        raises the error.
        """
        if short is None or (stop - start < LONG and not self.busy):
            self.wait()
            super().copy(source, start, stop)
            return
        try:
            self._mover = self._mover or Mover(self._copier)
        except RuntimeError:  # the system starts no more threads
            super().copy(source, start, stop)
            return
        try:
            self._mover.put(source, start, stop, short)
        except OSError as error:
            self._failed(error)

    def wait(self) -> None:
        if self._mover is not None:
            try:
                self._mover.wait()
            except OSError as error:
                self._failed(error)

    def fileno(self) -> int:
        """The descriptor, for reading the written bytes."""
        self.wait()
        return self._out

    def cut(self, position: int) -> None:
        """Truncate the output to `position` bytes."""
        self.wait()
        os.ftruncate(self._out, position)
        os.lseek(self._out, position, os.SEEK_SET)

    def close(self) -> None:
        """Complete the file: wait for copies, fsync if requested, close, rename."""
        try:
            if self._mover is not None:
                self._mover.wait()
                self._mover.stop()
            if self.sync:
                os.fsync(self._out)
            out, self._out = self._out, -1
            os.close(out)
            self._rename()
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                error.filename, error.filename2 = self.name, None
            raise
        unfinished.discard(self.part)
        if self.sync:
            directory = os.open(os.path.dirname(self.path), os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _rename(self) -> None:
        """Rename the file. With `fresh`, link it instead, which fails if the name is taken."""
        if self._fresh:
            try:
                os.link(self.part, self.path)
            except FileExistsError:
                raise _taken(self.name) from None
            except OSError:  # not every file system has links
                if os.path.lexists(self.path):
                    raise _taken(self.name) from None
            else:
                os.unlink(self.part)
                return
        os.rename(self.part, self.path)

    def abort(self) -> None:
        if self._mover is not None:
            self._mover.stop()
        _discard(self.part)
        if self._out >= 0:
            self._give_up()


class CommandSink(Sink):
    """The stdin of a command, whose status must be 0."""

    def __init__(self, text: str) -> None:
        self.command = CommandWriter(text)
        super().__init__(self.command.fd, f"pipe:{text}")

    def close(self) -> None:
        """Close the stdin and wait for the command; raises CommandFailed unless its status is 0."""
        try:
            self.command.finish()
        except BrokenPipeError:
            self.command.check_status()
            raise

    def abort(self) -> None:
        """End the command first, so that it does not take the end of its input for a complete one."""
        self.command.end()

    def _failed(self, error: OSError) -> NoReturn:
        if isinstance(error, BrokenPipeError):
            self.command.check_status()  # raises CommandFailed, with the message of the command
            raise OSError(error.errno, "the command exited before reading all its input", self.name) from None
        super()._failed(error)


class UrlSink(WriteOnlySink):
    """A remote object, which exists once it is complete."""

    remote = True

    def __init__(self, url: str, fresh: bool = False, options: StoreOptions | None = None) -> None:
        from hashlib import sha256

        self.name = schemes.public_name(url)
        self.writer = connect.create_object(url, fresh, options)
        self._hash = sha256()
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        self.writer.write(data)
        self._hash.update(data)
        self._size += len(data)

    def digest(self) -> tuple[str, int]:
        return self._hash.hexdigest(), self._size

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.abort()

    def withdraw(self) -> bool:
        return self.writer.withdraw()


class EncodedSink(WriteOnlySink):
    """A sink that compresses its data and writes it to `target`."""

    def __init__(self, target: Sink, codec: str, level: int | None, threads: int = 1) -> None:
        self.name, self.remote = target.name, target.remote
        self.target = target
        self.encoder = encoder(codec, level, target.write, threads)

    def write(self, data: bytes | memoryview) -> None:
        self.encoder.write(data)

    def copy(self, source: int, start: int, stop: int, short: Shortened | None = None) -> None:
        """Write bytes [start, stop) of the file `source`, read to where the encoder takes them from."""
        while start < stop:
            count = os.preadv(source, [self.encoder.room()[: stop - start]], start)
            if not count:
                raise Short(start)
            self.encoder.fill(count)
            start += count

    def digest(self) -> tuple[str, int] | None:
        return self.target.digest()

    def close(self) -> None:
        try:
            self.encoder.close()
        except BaseException:
            self.abort()
            raise
        self.target.close()

    def abort(self) -> None:
        try:
            self.encoder.abort()
        finally:
            self.target.abort()

    def withdraw(self) -> bool:
        return self.target.withdraw()


def open_sink(
    kind: str, text: str, *, sync: bool = False, fresh: bool = False, options: StoreOptions | None = None
) -> Sink:
    """Open an output.

    Args:
        kind: stdout, path, pipe or url.
        text: the path, the command or the URL.
        sync: fsync a file before renaming it.
        fresh: replace no file.
        options: how a URL is reached; None for the options of the process.
    """
    if kind == "stdout":
        return (TerminalSink if os.isatty(1) else DescriptorSink)(os.dup(1), "stdout")
    if kind == "pipe":
        return CommandSink(text)
    if kind == "url":
        return UrlSink(text, fresh, options)
    return open_file(text, sync, fresh)


def open_file(path: str, sync: bool = False, fresh: bool = False) -> Sink:
    """Open an output by its path; an existing file that is not regular is written in place."""
    fd = _descriptor(path)
    if fd is not None:
        try:
            return DescriptorSink(os.dup(fd), "stdout" if path == "/dev/stdout" else path)
        except OSError as error:
            error.filename = path
            raise
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFDIR if path.endswith("/") else stat.S_IFREG
    if stat.S_ISREG(mode):
        return FileSink(path, sync, fresh)
    return DescriptorSink(os.open(path, os.O_WRONLY | os.O_CLOEXEC), path)


def _descriptor(path: str) -> int | None:
    """Return the descriptor that a path stands for, such as `/dev/fd/63` of `>(...)`, else None."""
    for directory in ("/dev/fd/", "/proc/self/fd/"):
        number = path.removeprefix(directory)
        if number != path and number.isascii() and number.isdigit():
            return int(number)
    return _STANDARD.get(path)


def _taken(path: str) -> TarkitError:
    return TarkitError(
        f"{path}: another process has created this file",
        "does another run write here, or do names differ only in case?",
    )


def short_name(base: str) -> str:
    """Return a file name cut to a length that leaves room for the suffix of a temporary name."""
    raw = os.fsencode(base)
    return base if len(raw) <= 230 else os.fsdecode(raw[:230])
