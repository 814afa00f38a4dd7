"""The files of planned shards, as batches of samples; they are read when a batch is written."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tarkit.errors import TarkitError, show, system_hint
from tarkit.packing.batch import Batch, parse_source
from tarkit.packing.divide import weigh
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.tree import UNSIZED
from tarkit.samples.sample import SampleBatch
from tarkit.samples.validate import NameChecks
from tarkit.stores.object_prefetch import Fetched, Place, fetch, prefetch_objects
from tarkit.stores.schemes import public_name
from tarkit.streams.copy import CHUNK, SMALL, Short, read_small, seconds
from tarkit.tar.block import COLON
from tarkit.tar.header import encode
from tarkit.tar.writer import PADS, EntryWriter

if TYPE_CHECKING:
    from tarkit.threads import ThreadCall

OPENED = 64  # files that are open together
STEP = 8 << 20  # bytes of content in a batch, about: progress is shown after each

_KINDS = {errno.EISDIR: "is a directory", errno.ESPIPE: "is not a regular file, so its size cannot be planned"}

# Without O_NONBLOCK, opening a FIFO waits for a writer; it has no effect on a regular file.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class PlannedFiles:
    """The files of a planned shard, in batches of samples. Objects are requested ahead.

    Args:
        plan: the plan.
        shard: one of its shards.
        mtime: the time of entries in seconds, None for that of each file.
        skip: leave out samples with a missing file; then all sizes are known.

    Attributes:
        shard: the planned shard; once all batches are read, without what was left out.
        skipped: a message for each sample that was left out.
    """

    def __init__(self, plan: Plan, shard: PlannedShard, mtime: int | None, skip: bool) -> None:
        self.shard = shard
        self.mtime = mtime
        self.tree = plan.tree
        self.skipped: list[str] = []
        self._plan = plan
        self._skip = skip
        objects = prefetch_objects(_places(plan, shard), lambda place: place, partial(fetch, options=self.tree.storage))
        self._requests = (request for _, request in objects if request is not None)

    def __iter__(self) -> Iterator[FileBatch]:
        """Yield the batches; each is to be written before the next one is read."""
        if self._skip:
            yield from self._present()
            return
        for batch in self._plan.batches(self.shard):
            for part in batch.parts(STEP) if self._plan.sized else (batch,):
                yield FileBatch(part, self, self._requests)

    def _present(self) -> Iterator[FileBatch]:
        """Yield the samples of which no file is missing; few at a time, as their files are open until they are read."""
        names, files, groups = NameChecks(limit=None), 0, 0
        for rows in (part for batch in self._plan.batches(self.shard) for part in _few_files(batch)):
            batch = FileBatch(rows, self, self._requests)
            try:
                missing = batch.open_files()
                self.skipped += [f"{text}; its sample is left out" for text in missing.values()]
                for before, end in pairwise((-1, *missing, len(rows.keys))):
                    if before + 1 < end:
                        present = batch.part(before + 1, end)
                        names.extend(present.rows.names)
                        groups += present.count
                        files += len(present.rows.names)
                        yield present
            finally:
                batch.close_files()
        if self.skipped:
            self.shard = self.shard._replace(groups=groups, files=files, samples=names.samples)
            self.shard = self.shard._replace(first=names.first or b"", last=names.last or b"")


def _few_files(batch: Batch) -> Iterator[Batch]:
    """Yield parts of a batch with OPENED files at most; a sample with more is a part of its own."""
    start, count = 0, len(batch.keys)
    while start < count:
        before = batch.stops[start - 1] if start else 0
        stop = max(bisect_right(batch.stops, before + OPENED), start + 1)
        yield batch.part(start, stop)
        start = stop


def _places(plan: Plan, shard: PlannedShard) -> Iterator[Place]:
    """Yield the URL and the size of each source that is an object."""
    for batch in plan.batches(shard):
        for source, size in zip(batch.sources, batch.sizes, strict=True):
            kind, value = parse_source(source)
            if kind == "url":
                yield value.decode("utf-8", "surrogateescape"), None if size == UNSIZED else size


class FileBatch(SampleBatch):
    """Samples of a tree. Only `write` reads their files: before that there are no bytes, and no entries.

    Args:
        rows: the names, sizes and sources of the files.
        origin: the files of the shard.
        requests: the requests of objects, in their order.
    """

    __slots__ = ("_opened", "_origin", "_requests", "rows")

    def __init__(self, rows: Batch, origin: PlannedFiles, requests: Iterator[ThreadCall[Fetched]]) -> None:
        self.rows = rows
        self.keys, self.key, self.start = rows.keys, rows.keys[-1], 0
        self._origin = origin
        self._requests = requests
        self._opened: dict[bytes, int] = {}  # descriptors of files that are open already

    @property
    def content(self) -> int:
        """The bytes of the files, if sizes are known."""
        return sum(self.rows.sizes)

    @property
    def stops(self) -> list[int]:  # type: ignore[override]
        """Where each sample ends in an archive of the batch; 0 if sizes are not known."""
        return weigh(self.rows, self._origin.tree.sized)[1]

    def part(self, begin: int, end: int) -> FileBatch:
        """Return samples [begin, end), whose objects are the next to be requested."""
        batch = FileBatch(self.rows.part(begin, end), self._origin, self._requests)
        batch._opened = self._opened
        return batch

    def open_files(self) -> dict[int, str]:
        """Open the files; return the numbers of samples that lack one, each with a message that names the first.

        What is open cannot disappear any more. The files of a sample with more than OPENED are only looked at.
        """
        opens, opened = len(self.rows.names) <= OPENED, self._opened
        missing: dict[int, str] = {}
        requests: list[ThreadCall[Fetched]] = []  # of the other samples
        for number, (start, stop) in enumerate(pairwise((0, *self.rows.stops))):
            requested, paths = len(requests), list[bytes]()
            for source in self.rows.sources[start:stop]:
                kind, value = parse_source(source)
                try:
                    if kind == "url":
                        requests.append(next(self._requests))
                        requests[-1].result()
                    elif kind == "path" and opens and value not in opened:
                        opened[value] = os.open(value, _FLAGS)
                        paths.append(value)
                    elif kind == "path":
                        os.stat(value)
                except (FileNotFoundError, NotADirectoryError) as error:
                    shown = public_name(os.fsdecode(value)) if kind == "url" else show(value)
                    missing.setdefault(number, f"{self._origin.shard.name}: {shown}: {error.strerror}")
                except TarkitError:
                    pass  # raised again when the object is written
                except OSError as error:
                    raise self._unreadable(value, error) from None
            if number in missing:
                del requests[requested:]
                for path in paths:
                    os.close(opened.pop(path))
        self._requests = iter(requests)
        return missing

    def close_files(self) -> None:
        """Close the files that are open and were not written, after an error."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def write(self, writer: EntryWriter, begin: int = 0, end: int | None = None) -> None:
        """Append samples [begin, end) to an archive, by default all.

        The hot loop of `shard`: a small file takes three system calls if its size is known, else four.

        Raises:
            TarkitError: a file is missing, cannot be read, is not regular, or has not the size that was planned.
        """
        rows = self.rows.part(begin, len(self.keys) if end is None else end)
        open_ = self._open if self._opened else os.open
        close, add, mtime = os.close, writer.add, self._origin.mtime or 0
        largest = -2 if self._origin.mtime is None else SMALL
        for name, path, size in zip(rows.names, rows.sources, rows.sizes, strict=True):
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
            else:
                self._add(writer, name, size, path)

    def _open(self, path: bytes, flags: int) -> int:
        opened = self._opened.pop(path, -1)
        return os.open(path, flags) if opened < 0 else opened

    def _add(self, writer: EntryWriter, name: bytes, size: int, source: bytes) -> None:
        kind, value = parse_source(source)
        if kind == "data":
            writer.add(self._header(name, size, 0), value)
        elif kind == "url":
            self._add_object(writer, name, size, source)
        else:
            self._add_file(writer, name, size, value)

    def _add_file(self, writer: EntryWriter, name: bytes, size: int, path: bytes) -> None:
        try:
            fd = self._open(path, _FLAGS)
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
                    writer.add(header, data)
                    return
                writer.add_file(header, fd, size)
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

    def _add_object(self, writer: EntryWriter, name: bytes, planned: int, source: bytes) -> None:
        shown = public_name(os.fsdecode(source))
        with self._reading(shown):
            fetched = next(self._requests).result()
        size, modified = fetched.info.size, fetched.info.modified or 0
        if size is None:
            raise self._error(f"{shown}: the store does not say how long this object is")
        if planned not in (size, UNSIZED):
            raise self._error(_other_size(shown, size, planned), "run it again")
        if self._origin.tree.has_changed(source, fetched.info):
            raise self._error(f"{shown} was changed after it was listed", "run it again")
        header, written = self._header(name, size, modified // 10**9), 0
        if fetched.data is not None:
            written = len(fetched.data)
            writer.add(header, fetched.data)
        else:
            writer.raw((header,), len(header))
            with closing(fetched.stream()) as stream:
                while True:
                    with self._reading(shown):
                        data = stream.read(CHUNK)
                    if not data:
                        break
                    written += len(data)
                    writer.raw((data,), len(data))
            writer.raw((PADS[size % 512],), len(PADS[size % 512]))
        if written != size:
            raise self._error(f"{shown}: {written} bytes came, and it has {size}")

    @contextmanager
    def _reading(self, shown: str) -> Iterator[None]:
        """Name the shard in errors of an object."""
        try:
            yield
        except OSError as error:
            raise self._error(f"{shown}: {error.strerror}", "run it again") from None
        except TarkitError as error:
            raise self._error(str(error), error.hint) from error

    def _header(self, name: bytes, size: int, mtime: int) -> bytes:
        return encode(name, size, mtime=mtime if self._origin.mtime is None else self._origin.mtime)

    def _error(self, what: str, hint: str | None = None) -> TarkitError:
        return TarkitError(f"{self._origin.shard.name}: {what}", hint)

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
