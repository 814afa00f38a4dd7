"""Put the files of a planned shard into an archive: open, read, compare with the plan, write."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tarkit.errors import TarkitError, show, system_hint
from tarkit.packing import sources
from tarkit.packing.batch import Batch, File
from tarkit.packing.files import version_mark
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.tree import UNSIZED
from tarkit.samples.validate import NameChecks
from tarkit.stores.object_prefetch import Fetched, Place, fetch, prefetch_objects
from tarkit.stores.schemes import public_name
from tarkit.streams.copy import CHUNK, SMALL, Short, read_small, seconds
from tarkit.tar.block import COLON
from tarkit.tar.header import encode
from tarkit.tar.writer import PADS, EntryWriter

if TYPE_CHECKING:
    from tarkit.stores.store import Info
    from tarkit.threads import ThreadCall

STEP = 8 << 20  # bytes between two updates of the progress bar

_KINDS = {errno.EISDIR: "is a directory", errno.ESPIPE: "is not a regular file, so its size cannot be planned"}

# Without O_NONBLOCK, opening a FIFO waits for a writer; it has no effect on a regular file.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def _places(plan: Plan, shard: PlannedShard) -> Iterator[Place]:
    """Yield the URL and the size of each source that is an object."""
    for batch in plan.batches(shard):
        for source, size in zip(plan.sources(batch), batch.sizes, strict=True) if plan.has_urls(batch) else ():
            kind, value = sources.parse(source)
            if kind == "url":
                yield value.decode("utf-8", "surrogateescape"), None if size == UNSIZED else size


class ShardFiller:
    """Write the entries of one shard.

    Args:
        plan: the plan.
        shard: one of its shards.
        writer: takes the entries.
        mtime: the time of entries in seconds, None for that of each file.
        skip: leave out a sample with a missing file; all sizes are known then.

    Attributes:
        content, files, planned: bytes, files and samples that are written so far.
        skipped: a message for each sample that was left out.
    """

    def __init__(self, plan: Plan, shard: PlannedShard, writer: EntryWriter, mtime: int | None, skip: bool) -> None:
        self.content = self.files = self.planned = 0
        self.skipped: list[str] = []
        self._plan = plan
        self._shard = shard
        self._writer = writer
        self._mtime = mtime
        self._skip = skip
        self._names = NameChecks(limit=None)
        request = partial(fetch, options=plan.tree.storage)
        self._requests = prefetch_objects(_places(plan, shard), lambda place: place, request)
        self._drawn: deque[ThreadCall[Fetched]] = deque()

    @property
    def keys(self) -> tuple[int, bytes, bytes]:
        """The number of samples that readers find, the first and the last key, when all is written."""
        names = self._names if self.skipped else self._shard
        return names.samples, names.first or b"", names.last or b""

    def fill(self) -> Iterator[int]:
        """Write all files; yield `content` from time to time.

        Raises:
            TarkitError: a file is missing, cannot be read, is not regular, or has not the size that was planned.
        """
        for batch in self._plan.batches(self._shard):
            yield from self._add_whole_samples(batch) if self._skip else self._add_all(batch)
        if not self._skip:
            self.files, self.planned = self._shard.files, self._shard.planned

    def _add_all(self, batch: Batch) -> Iterator[int]:
        """Write files; yield `content` after each STEP bytes. The hot loop of `shard`: a small file takes three system
        calls if its size is known, else four."""
        open_, close, add, mtime = os.open, os.close, self._writer.add, self._mtime or 0
        largest = -2 if self._mtime is None else SMALL
        due = self.content + STEP
        for name, path, size in zip(batch.names, self._plan.sources(batch), batch.sizes, strict=True):
            data = b""
            if size <= largest and size and COLON not in path:
                try:
                    fd = open_(path, _FLAGS)
                    try:
                        data = read_small(fd, size)
                    finally:
                        close(fd)
                except OSError as error:
                    raise self._unreadable(path, error) from None
                if len(data) != size >= 0:
                    raise self._differs(path, size)
            if data:
                add(encode(name, len(data), mtime=mtime), data)
                self.content += len(data)
            else:
                self._add((name, size, path))
            if self.content > due:
                due = self.content + STEP
                yield self.content

    def _add(self, file: File) -> None:
        name, size, source = file
        kind, value = sources.parse(source)
        if kind == "data":
            self._writer.add(self._header(name, size, 0), value)
        elif kind == "url":
            size = self._add_object(file, self._request())
        else:
            size = self._add_file(name, size, value)
        self.content += size

    def _add_file(self, name: bytes, size: int, path: bytes) -> int:
        """Write a file; return its size in bytes."""
        try:
            fd = os.open(path, _FLAGS)
            try:
                before = os.fstat(fd)
                if not stat.S_ISREG(before.st_mode) or before.st_size != size >= 0:
                    raise self._differs(path, size)
                size = before.st_size
                header = self._header(name, size, seconds(before))
                if size <= SMALL:
                    data = read_small(fd, size)
                    if len(data) != size:
                        raise self._differs(path, size)
                    self._writer.add(header, data)
                    return size
                self._writer.add_file(header, fd, size)
                after = os.fstat(fd)
            finally:
                os.close(fd)
        except Short:
            raise self._error(f"{show(path)} became shorter while it was read") from None
        except OSError as error:
            if error.filename is not None and os.fsencode(error.filename) != path:
                raise  # an error of the output
            raise self._unreadable(path, error) from None
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise self._error(f"{show(path)} was changed while it was read")
        return size

    def _request(self) -> ThreadCall[Fetched]:
        if self._drawn:
            return self._drawn.popleft()
        request = next(self._requests)[1]
        assert request is not None
        return request

    def _add_object(self, file: File, request: ThreadCall[Fetched]) -> int:
        """Write a file that is an object; return its size in bytes."""
        name, planned, source = file
        shown = public_name(os.fsdecode(source))
        with self._reading(shown):
            fetched = request.result()
        size, modified = fetched.info.size, fetched.info.modified or 0
        if size is None:
            raise self._error(f"{shown}: the store does not say how long this object is")
        if planned not in (size, UNSIZED):
            raise self._error(_other_size(shown, size, planned), "run it again")
        if self._has_changed(source, fetched.info):
            raise self._error(f"{shown} was changed after it was listed", "run it again")
        header, written = self._header(name, size, modified // 10**9), 0
        if fetched.data is not None:
            written = len(fetched.data)
            self._writer.add(header, fetched.data)
        else:
            self._writer.raw((header,), len(header))
            with closing(fetched.stream()) as stream:
                while True:
                    with self._reading(shown):
                        data = stream.read(CHUNK)
                    if not data:
                        break
                    written += len(data)
                    self._writer.raw((data,), len(data))
            self._writer.raw((PADS[size % 512],), len(PADS[size % 512]))
        if written != size:
            raise self._error(f"{shown}: {written} bytes came, and it has {size}")
        return size

    def _has_changed(self, source: bytes, info: Info) -> bool:
        """Whether an object is not the one that was listed."""
        tree = self._plan.tree
        if tree.newest is not None and info.modified is not None and info.modified > tree.newest:
            return True
        listed = tree.version(source)
        return listed != b"" and info.version is not None and version_mark(info.version) != listed

    @contextmanager
    def _reading(self, shown: str) -> Iterator[None]:
        """Name the shard in errors of an object."""
        try:
            yield
        except OSError as error:
            raise self._error(f"{shown}: {error.strerror}", "run it again") from None
        except TarkitError as error:
            raise self._error(str(error), error.hint) from error

    def _add_whole_samples(self, batch: Batch) -> Iterator[int]:
        due = self.content + STEP
        files: list[File] = list(zip(batch.names, batch.sizes, self._plan.sources(batch), strict=True))
        for start, stop in pairwise([0, *batch.stops]):
            sample = files[start:stop]
            missing = self._missing(sample)
            if missing is not None:
                self.skipped.append(f"{missing}; its sample is left out")
                continue
            for file in sample:
                self._names.check(file[0])
                self._add(file)
            self.files += len(sample)
            self.planned += 1
            if self.content > due:
                due = self.content + STEP
                yield self.content

    def _missing(self, files: Iterable[File]) -> str | None:
        """Return a message that names the first file of a sample that does not exist; None without one."""
        missing: str | None = None
        drawn: deque[ThreadCall[Fetched]] = deque()
        for _, _, source in files:
            kind, value = sources.parse(source)
            try:
                if kind == "url":
                    drawn.append(self._request())
                    drawn[-1].result()
                elif kind == "path":
                    os.stat(value)
            except (FileNotFoundError, NotADirectoryError) as error:
                shown = public_name(os.fsdecode(value)) if kind == "url" else show(value)
                missing = missing or f"{self._shard.name}: {shown}: {error.strerror}"
            except TarkitError:
                pass  # raised again when the object is written
            except OSError as error:
                raise self._unreadable(value, error) from None
        self._drawn = deque() if missing else drawn
        return missing

    def _header(self, name: bytes, size: int, mtime: int) -> bytes:
        try:
            return encode(name, size, mtime=mtime if self._mtime is None else self._mtime)
        except ValueError as error:
            raise self._error(str(error)) from None

    def _error(self, what: str, hint: str | None = None) -> TarkitError:
        return TarkitError(f"{self._shard.name}: {what}", hint)

    def _unreadable(self, path: bytes, error: OSError) -> TarkitError:
        if error.errno in _KINDS:
            return self._error(f"{show(path)} {_KINDS[error.errno]}")
        return self._error(f"{show(path)}: {error.strerror}", system_hint(error, path))

    def _differs(self, path: bytes, planned: int) -> TarkitError:
        try:
            status = os.stat(path)
        except OSError as error:
            return self._unreadable(path, error)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS[errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.ESPIPE]
            return self._error(f"{show(path)} {kind}")
        if planned in (status.st_size, UNSIZED):
            return self._error(f"{show(path)} was changed while it was read")
        return self._error(_other_size(show(path), status.st_size, planned), "run it again")


def _other_size(shown: str, size: int, planned: int) -> str:
    many = f"{size} byte" if size == 1 else f"{size} bytes"
    return f"{shown} has {many}, and the plan says {planned}"
