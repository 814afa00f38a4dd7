"""Copy bytes between descriptors: to a file by copy_file_range or sendfile, else by read and write.

copy_file_range shares blocks if the file system can. A system call that fails for a target is not tried again for it.

Bytes are always copied into a pipe. sendfile saves that copy, but puts the pages of the file itself into the pipe: the
reader of the pipe gets what is in the file when it reads. By then the room in a temporary file may have been used
again, or another program may have written to an input. A copy costs 0.1 to 0.2 s of CPU a gigabyte.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence

CHUNK = 1 << 20  # bytes of one read or write
PIECES = 1024  # buffers of one writev: IOV_MAX on Linux and macOS
SMALL = 1 << 18  # bytes: larger files are copied instead of read at once
UNSIZED = 1 << 16  # bytes of one read of a file whose size is not known
_SHIFT = 48  # bytes before a buffer, see `new_buffer`
_STEP = 1 << 28  # bytes of one system call: signals are handled between two of them
_REFUSALS = {errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBADF, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTSUP}


class Short(EOFError):
    """A file ended at `pos`, inside a range that was to be copied."""

    def __init__(self, pos: int) -> None:
        super().__init__(pos)
        self.pos = pos


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`, in as many writes as needed."""
    done = os.write(fd, data)
    if done < len(data):
        view = memoryview(data)
        while done < len(view):
            done += os.write(fd, view[done:])


def writev_all(fd: int, pieces: Sequence[bytes]) -> None:
    """Write all of `pieces`, however many."""
    for first in range(0, len(pieces), PIECES):
        group = pieces[first : first + PIECES]
        done = os.writev(fd, group)
        if done < sum(map(len, group)):
            write_all(fd, memoryview(b"".join(group))[done:])


def read_small(fd: int, size: int = -1) -> bytes:
    """Return the content of a small regular file, without a `stat`.

    A read that returns fewer bytes than requested has reached the end of a regular file.

    Args:
        size: the expected size in bytes; -1 when it is not known.

    Returns:
        With a size, up to `size + 1` bytes: any other length than `size` means that the file has another size. Without
        one, b"" for an empty file and for one of `UNSIZED` bytes or more.

    Raises:
        OSError: ESPIPE for a pipe, of which nothing is read.
    """
    if size >= 0:
        return os.pread(fd, size + 1, 0)
    data = os.pread(fd, UNSIZED, 0)
    return b"" if len(data) == UNSIZED or os.pread(fd, 1, len(data)) else data


def new_buffer(size: int) -> memoryview:
    """Return a buffer of `size` bytes for the system to read into.

    malloc maps a large buffer 16 bytes after the start of a page. On AMD's Zen 3, reads into the first 31 bytes of a
    page take four times as long: 205 MB in pieces of 2 MiB 0.08 s in place of 0.02. This one begins 64 bytes after it,
    if it is mapped; on the heap it may begin anywhere.
    """
    return memoryview(bytearray(size + _SHIFT))[_SHIFT:]


def widen(fd: int) -> None:
    """Raise the capacity of a pipe from 64 KiB to 1 MiB, if the system can and permits it."""
    size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if size is not None:
        try:
            fcntl.fcntl(fd, size, CHUNK)
        except OSError:
            pass


def seconds(status: os.stat_result) -> int:
    """Return the modification time of a file in whole seconds, rounded down."""
    return status.st_mtime_ns // 1_000_000_000


def is_pipe(fd: int) -> bool:
    """Whether a descriptor is a pipe or a FIFO."""
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


class Copier:
    """Copy ranges of files to one target descriptor, at its current offset."""

    def __init__(self, target: int) -> None:
        self.target = target
        mode = os.fstat(target).st_mode
        ways: list[Callable[[Copier, int, int, int], int]] = []  # unbound: a bound method would be a reference cycle
        if stat.S_ISREG(mode) and hasattr(os, "copy_file_range"):
            ways.append(Copier._copy_file_range)
        if stat.S_ISREG(mode) and hasattr(os, "splice"):  # Linux: elsewhere sendfile takes sockets alone
            ways.append(Copier._sendfile)
        ways.append(Copier._read_write)
        self.ways = ways
        self.buffer: memoryview | None = None

    def copy(self, source: int, start: int, stop: int) -> None:
        """Copy bytes [start, stop) of the file `source`.

        Raises:
            Short: the file ends before `stop`.
            OSError: of the target, or of the source.
        """
        while start < stop:
            way = self.ways[0]
            try:
                done = way(self, source, start, min(stop - start, _STEP))
            except OSError as error:
                if error.errno not in _REFUSALS or len(self.ways) == 1:
                    raise
                del self.ways[0]
                continue
            if done == 0:
                if len(self.ways) > 1 and os.fstat(source).st_size >= stop:
                    del self.ways[0]  # some file systems return 0 for calls that they do not support
                    continue
                raise Short(start)
            start += done

    def _copy_file_range(self, source: int, start: int, count: int) -> int:
        return os.copy_file_range(source, self.target, count, start)

    def _sendfile(self, source: int, start: int, count: int) -> int:
        return os.sendfile(self.target, source, start, count)

    def _read_write(self, source: int, start: int, count: int) -> int:
        if self.buffer is None:
            self.buffer = new_buffer(CHUNK)
        view = self.buffer[: min(count, CHUNK)]
        done = os.preadv(source, [view], start)
        write_all(self.target, view[:done])
        return done
