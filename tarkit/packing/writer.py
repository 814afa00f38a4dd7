"""Write the shards of a plan, each by itself, so that processes can share the work."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby, islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import TarkitError, show, spell, system_hint
from tarkit.packing.batch import RowBatch, load_rows
from tarkit.packing.files import version_mark
from tarkit.packing.plan import Planned, content_of
from tarkit.packing.resume import GONE, Differs, Existing, Known, fingerprint, identity
from tarkit.packing.spool import PlannedShard, disagree, place
from tarkit.packing.tree import UNSIZED
from tarkit.parallel import PATIENCE, in_order
from tarkit.samples.validate import NameChecks
from tarkit.shards.writer import Shard
from tarkit.signals import uninterrupted
from tarkit.stores.object_prefetch import Fetched, Place, fetch, prefetch_objects
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.streams.copy import CHUNK, SMALL, Short, read_small, seconds
from tarkit.streams.sink import Sink
from tarkit.streams.text import sum_file
from tarkit.tar.block import COLON
from tarkit.tar.header import encode
from tarkit.tar.writer import PADS, EntryWriter

if TYPE_CHECKING:
    from tarkit.stores.store import Info, StoreOptions
    from tarkit.streams.background_uploads import BackgroundUploads
    from tarkit.threads import ThreadCall

# ---- Put the rows of a planned shard into an archive: open, read, compare with the plan, write

GATHERED = 1 << 19  # bytes of small files that go out together
PIECES = 768  # and how many, with their headers and padding; below IOV_MAX
STEP = 8 << 20  # bytes between two updates of the progress bar

_NO_FILE = "is not a regular file, so its size cannot be planned"

# Without O_NONBLOCK, opening a FIFO waits for a writer; it has no effect on a regular file.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class ObjectRequest(NamedTuple):
    """The request of an object, which was not modified after the time `newest`, and had the version, when it was
    planned."""

    request: ThreadCall[Fetched]
    newest: int | None
    version: bytes

    def has_changed(self, info: Info) -> bool:
        """Whether the object is not the one that was planned."""
        if self.newest is not None and info.modified is not None and info.modified > self.newest:
            return True
        return self.version != b"" and info.version is not None and version_mark(info.version) != self.version


def _objects_in(batches: Iterable[RowBatch]) -> Iterator[tuple[Place, int | None, bytes]]:
    """Yield URL and size, latest time, and version of each source that is an object."""
    for batch in batches:
        columns = zip(batch.sources, batch.sizes, batch.versions or repeat(b""), strict=False)
        for source, size, version in columns if batch.has_urls else ():
            kind, value = content_of(source)
            if kind == "url":
                place = value.decode("utf-8", "surrogateescape"), None if size == UNSIZED else size
                yield place, batch.newest, version


class ShardFiller:
    """Write the entries of one shard. `content` bytes of `rows` rows and `planned` samples are written so far.

    `mtime` None is each file's own. With `skip` a sample with a missing file is left out, and `skipped` says why; then
    all rows have sizes. `samples`, `first` and `last` are what readers will see, when all is written.
    """

    def __init__(
        self,
        shard: PlannedShard,
        writer: EntryWriter,
        read: Callable[[int, int], bytes],
        *,
        plan_name: str | None = None,
        mtime: int | None = 0,
        skip: bool = False,
        storage: StoreOptions | None = None,
    ) -> None:
        self.content = self.rows = self.planned = 0
        self.skipped: list[str] = []
        self._shard = shard
        self._writer = writer
        self._read = read
        self._plan_name = plan_name
        self._mtime = mtime
        self._skip = skip
        self._names = NameChecks(limit=None)
        places = _objects_in(load_rows(read, shard.extents))  # without self: a cycle would keep the shard in memory
        self._objects = prefetch_objects(places, lambda each: each[0], partial(fetch, options=storage))
        self._drawn: deque[ObjectRequest] = deque()

    @property
    def samples(self) -> int:
        """The number of samples, by the keys of the names."""
        return self._names.samples if self.skipped else self._shard.samples

    @property
    def first(self) -> bytes:
        """Key of the first sample."""
        return (self._names.first or b"") if self.skipped else self._shard.first

    @property
    def last(self) -> bytes:
        """Key of the last sample."""
        return (self._names.last or b"") if self.skipped else self._shard.last

    def fill(self) -> Iterator[int]:
        """Write all rows; yield `content` from time to time.

        Raises:
            TarkitError: a file is missing, cannot be read, is not regular, or has not the size that was planned.
        """
        batches = load_rows(self._read, self._shard.extents)
        if self._skip:
            yield from self._fill_whole_samples(row for batch in batches for row in batch.rows())
            return
        for batch in batches:
            yield from self._add_all(batch)
        self.rows, self.planned = self._shard.rows, self._shard.planned

    def _add_all(self, batch: RowBatch) -> Iterator[int]:
        """Write rows; yield `content` after each STEP bytes. The hot loop of `shard`: a small file takes three system
        calls if its size is known, else four."""
        open_, close, raw, mtime = os.open, os.close, self._writer.raw, self._mtime or 0
        largest = -2 if self._mtime is None else SMALL
        pieces: list[bytes] = []
        gathered, due = 0, self.content + STEP
        for at, name, path, size in zip(count(), batch.names, batch.sources, batch.sizes, strict=False):
            data = b""
            if size <= largest and size and COLON not in path:
                try:
                    fd = open_(path, _FLAGS)
                    try:
                        data = read_small(fd, size)
                    finally:
                        close(fd)
                except OSError as error:
                    raise self._failed(batch.row(at), error) from None
                if size < 0:
                    size = len(data)
                elif len(data) != size:
                    raise self._disagrees(batch.row(at))
            if data:
                pieces += (encode(name, size, mtime=mtime), data, PADS[size % 512])
                gathered += size
                if gathered <= GATHERED and len(pieces) <= PIECES:
                    continue
            raw(pieces, sum(map(len, pieces)))
            self.content += gathered
            pieces, gathered = [], 0
            if not data:
                self.content += self._add_any(batch.row(at))
            if self.content > due:
                due = self.content + STEP
                yield self.content
        raw(pieces, sum(map(len, pieces)))
        self.content += gathered

    def _add_any(self, row: Planned) -> int:
        """Write one row of any kind and size; return the bytes of its content."""
        size = row.size
        kind, value = content_of(row.source)
        if kind == "data":
            self._writer.add(self._header(row, size, 0), value)
            return size
        if kind == "url":
            return self._add_object(row, self._object())
        try:
            fd = os.open(value, _FLAGS)
            try:
                before = os.fstat(fd)
                if not stat.S_ISREG(before.st_mode) or before.st_size != size >= 0:
                    raise self._disagrees(row)
                size = before.st_size
                header = self._header(row, size, seconds(before))
                if size <= SMALL:
                    data = read_small(fd, size)
                    if len(data) != size:
                        raise self._disagrees(row)
                    self._writer.add(header, data)
                    return size
                self._writer.add_file(header, fd, size)
                after = os.fstat(fd)
            finally:
                os.close(fd)
        except Short:
            raise TarkitError(f"{self._where(row)}: {show(value)} became shorter while it was read") from None
        except OSError as error:
            if error.filename is not None and os.fsencode(error.filename) != value:
                raise  # an error of the output
            raise self._failed(row, error) from None
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise TarkitError(f"{self._where(row)}: {show(value)} was changed while it was read")
        return size

    def _object(self) -> ObjectRequest:
        """Return the request of the next object."""
        if self._drawn:
            return self._drawn.popleft()
        (_, newest, version), request = next(self._objects)
        assert request is not None
        return ObjectRequest(request, newest, version)

    def _add_object(self, row: Planned, requested: ObjectRequest) -> int:
        """Write a row whose source is an object; return its size in bytes."""
        with self._reading(row):
            found = requested.request.result()
        size, modified = found.info.size, found.info.modified or 0
        if size is None:
            raise TarkitError(f"{self._where(row)}: {_shown(row)}: the store does not say how long this object is")
        if row.size not in (size, UNSIZED):
            raise TarkitError(f"{self._where(row)}: {disagree(_shown(row), size, row.size)}", "plan again")
        if requested.has_changed(found.info):
            raise TarkitError(f"{self._where(row)}: {_shown(row)} was changed after it was listed", "plan again")
        header, written = self._header(row, size, modified // 10**9), 0
        if found.data is not None:
            written = len(found.data)
            self._writer.add(header, found.data)
        else:
            self._writer.raw((header,), len(header))
            with closing(found.stream()) as stream:
                while True:
                    with self._reading(row):
                        data = stream.read(CHUNK)
                    if not data:
                        break
                    written += len(data)
                    self._writer.raw((data,), len(data))
            self._writer.raw((PADS[size % 512],), len(PADS[size % 512]))
        if written != size:
            raise TarkitError(f"{self._where(row)}: {_shown(row)}: {written} bytes came, and it has {size}")
        return size

    @contextmanager
    def _reading(self, row: Planned) -> Iterator[None]:
        """Name the shard, or the line of the plan, in errors of the source of a row."""
        try:
            yield
        except OSError as error:
            raise TarkitError(f"{self._where(row)}: {_shown(row)}: {error.strerror}", "plan again") from None
        except TarkitError as error:
            raise TarkitError(f"{self._where(row)}: {error}", error.hint) from error

    def _fill_whole_samples(self, rows: Iterator[Planned]) -> Iterator[int]:
        """Write the samples of which all files exist."""
        due = STEP
        for _, each in groupby(rows, attrgetter("position")):
            sample = list(each)
            missing = self._missing(sample)
            if missing is not None:
                self.skipped.append(f"{missing}; its sample is left out")
                continue
            for row in sample:
                self._names.check(row.name)
                self.content += self._add_any(row)
            self.rows += len(sample)
            self.planned += 1
            if self.content > due:
                due = self.content + STEP
                yield self.content

    def _missing(self, sample: list[Planned]) -> str | None:
        """Return a message that names the first file of a sample that does not exist; None without one."""
        missing: str | None = None
        drawn: deque[ObjectRequest] = deque()
        for row in sample:
            kind, path = content_of(row.source)
            try:
                if kind == "url":
                    drawn.append(self._object())
                    drawn[-1].request.result()
                elif kind == "path":
                    os.stat(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                missing = missing or f"{self._where(row)}: {_shown(row)}: {error.strerror}"
            except TarkitError:
                pass  # raised again when the object is written
            except OSError as error:
                raise self._failed(row, error) from None
        self._drawn = deque() if missing else drawn
        return missing

    def _header(self, row: Planned, size: int, mtime: int) -> bytes:
        try:
            return encode(row.name, size, mtime=mtime if self._mtime is None else self._mtime)
        except ValueError as error:
            raise TarkitError(f"{self._where(row)}: {error}") from None

    def _where(self, row: Planned) -> str:
        return place(self._plan_name, self._shard.name, row)

    def _failed(self, row: Planned, error: OSError) -> TarkitError:
        path = content_of(row.source)[1]
        if error.errno == errno.EISDIR:
            return TarkitError(f"{self._where(row)}: {show(path)} is a directory")
        if error.errno == errno.ESPIPE:
            return TarkitError(f"{self._where(row)}: {show(path)} {_NO_FILE}")
        return TarkitError(f"{self._where(row)}: {show(path)}: {error.strerror}", system_hint(error, path))

    def _disagrees(self, row: Planned) -> TarkitError:
        """Return the error for a file that is not as planned."""
        path = content_of(row.source)[1]
        try:
            status = os.stat(path)
        except OSError as error:
            return self._failed(row, error)
        if stat.S_ISDIR(status.st_mode):
            return TarkitError(f"{self._where(row)}: {show(path)} is a directory")
        if not stat.S_ISREG(status.st_mode):
            return TarkitError(f"{self._where(row)}: {show(path)} {_NO_FILE}")
        if row.size in (status.st_size, UNSIZED):
            return TarkitError(f"{self._where(row)}: {show(path)} was changed while it was read")
        return TarkitError(f"{self._where(row)}: {disagree(path, status.st_size, row.size)}", "plan again")


def _shown(row: Planned) -> str:
    """Return the source of a row for a message, without the secrets of a URL."""
    kind, value = content_of(row.source)
    return public_name(os.fsdecode(value)) if kind == "url" else show(value)


_COUNTER = struct.Struct("=q")
_PULSE: Any = object()

UPLOADS = 60.0
"""Seconds that a process has, after a signal, until its requests have ended and its uploads are removed."""


@dataclass(frozen=True)
class Packing:
    """The settings of all shards, which are sent to processes: files are descriptors.

    Args:
        spool: the file with the rows.
        open_sink: opens a shard by its name.
        counters: a file with eight bytes per shard, the content written so far; -1 for none.
        plan_name: name of a saved plan.
        mtime: time of entries in seconds, None for that of each file.
        skip: leave samples with a missing file out.
        resume: keep existing shards that are as planned.
        replace: write those again that are not as planned.
        digest: compute checksums.
        posted: a command is run for each shard, and may move it.
        settings: all else that the bytes of a shard depend on.
        share: shards that a process gets at a time.
        tmpdir: directory of temporary files.
        remote: some shards are in stores.
        warn: called with a message about a shard in a store that could not be removed.
        sources: how sources are reached.
        storage: how shards are reached.
    """

    spool: int
    open_sink: Callable[[str], Sink]
    counters: int = -1
    plan_name: str | None = None
    mtime: int | None = 0
    skip: bool = False
    resume: bool = False
    replace: bool = False
    digest: bool = False
    posted: bool = False
    settings: str = ""
    share: int = 1
    tmpdir: str | None = None
    remote: bool = False
    warn: Callable[[str], None] = lambda text: None
    sources: StoreOptions | None = None
    storage: StoreOptions | None = None

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the spool."""
        return os.pread(self.spool, stop - start, start)


class Task(NamedTuple):
    """A shard to write, its index, its entry in the journal, and whether it exists."""

    number: int
    shard: PlannedShard
    known: Known | None = None
    exists: bool = False


class Packed(NamedTuple):
    """The result of a planned shard: `shard` is None when all its samples were left out.

    It has `planned` samples, `rows` entries, `content` bytes. `skipped` has a message for each sample that was left
    out. `kept` says whether it existed, `known` whether the journal has it as complete. `fingerprint` may be empty.
    """

    shard: Shard | None
    planned: int
    content: int
    rows: int
    skipped: list[str]
    kept: bool = False
    known: bool = False
    fingerprint: str = ""


def pack_all(
    packing: Packing, tasks: Iterable[Task], processes: int, report: Callable[[Packed], None]
) -> Generator[None]:
    """Write shards, `processes` at a time; call `report` with the result of each, in order. Yields from time to time.

    The error of a shard is raised when those before it are reported.
    """
    if processes <= 1:
        yield from _pack(packing, tasks, report)
        return
    left = iter(tasks)
    shares = iter(lambda: tuple(islice(left, packing.share)), ())
    work, patience = partial(_pack_share, packing), UPLOADS if packing.remote else PATIENCE
    for found in in_order(shares, work, processes, packing.tmpdir, share=1, pulse=_PULSE, patience=patience):
        for packed in found:
            if packed is not _PULSE:
                report(packed)
            yield


def progress(counters: int, shards: int) -> int:
    """Return the bytes of content that are written by now, in all shards."""
    return sum(memoryview(os.pread(counters, _COUNTER.size * shards, 0)).cast("q"))


def _pack_share(packing: Packing, tasks: Iterable[Task]) -> Generator[Packed]:
    """Write the shards of a worker process; yield the results."""
    ready: list[Packed] = []
    with closing(_pack(packing, tasks, ready.append)) as steps:
        try:
            for _ in steps:
                yield from ready
                ready.clear()
        except (TarkitError, OSError):
            yield from ready
            raise
    yield from ready


def _pack(packing: Packing, tasks: Iterable[Task], report: Callable[[Packed], None]) -> Generator[None]:
    """Write shards, one after the other; report each once it is complete, in order."""
    completer = _Completer(packing, report)
    try:
        for task in tasks:
            yield from _steps(packing, task, completer)
            completer.report()
            yield
        completer.finish()
    except BaseException:
        completer.abort()
        raise


class _Completer:
    """Completes shards: those in stores in the background, while the next ones are written."""

    def __init__(self, packing: Packing, report: Callable[[Packed], None]) -> None:
        self._report = report
        self._uploads: BackgroundUploads | None = None
        if packing.remote:
            from tarkit.streams.background_uploads import BackgroundUploads

            self._uploads = BackgroundUploads(packing.replace, packing.warn)

    def add(self, packed: Packed) -> None:
        """Report a shard that is complete, after those before it."""
        self.finish()
        self._report(packed)

    def close(self, name: str, writer: EntryWriter, packed: Callable[[], Packed]) -> None:
        """Complete a shard whose entries are written; then report what `packed` returns."""
        if self._uploads is None or not writer.sink.remote:
            writer.close()
            self.add(packed())
            return
        taken = False
        try:
            self._uploads.make_room(writer.position)
            with uninterrupted():
                taken = True
                self._uploads.add(writer.sink, writer.close, writer.position, lambda: self._report(packed()))
        except BaseException:
            if not taken:
                writer.abort()
            raise

    def report(self) -> None:
        """Report the shards that are complete by now."""
        if self._uploads is not None:
            self._uploads.report()

    def finish(self) -> None:
        """Wait for all shards, and report them."""
        if self._uploads is not None:
            self._uploads.finish()

    def abort(self) -> None:
        """Remove the shards that were not reported, unless they may have replaced others."""
        if self._uploads is not None:
            self._uploads.abort()


def _steps(packing: Packing, task: Task, completer: _Completer) -> Generator[None]:
    """Write a shard, or find it as planned; yields from time to time."""
    name = os.fsdecode(task.shard.name)
    note = ""
    if packing.resume:
        note = "" if scheme_of(name) else fingerprint(packing.read, task.shard, packing.settings)
        if task.known and note and _same(packing, task.known, note, identity(name)):
            completer.add(_known(packing, task, task.known, note))
            return
        if task.exists:
            try:
                yield from _write(packing, task, name, note, Existing(name, packing.tmpdir, packing.storage), completer)
                return
            except Differs as error:
                if not packing.replace:
                    hint = f"{spell('resume')} with {spell('force')} writes it again"
                    raise TarkitError(f"{name}: exists, but is not as planned: {error}", hint) from None
    yield from _write(packing, task, name, note, packing.open_sink(name), completer)


def _same(packing: Packing, known: Known, note: str, there: str) -> bool:
    """Return whether a shard is that of the journal, or --post has moved that, and nothing is missing in the
    journal."""
    if (known.fingerprint, known.identity) != (note, there):
        return False
    return there != GONE or (packing.posted and known.posted and (bool(known.shard.sha256) or not packing.digest))


def _known(packing: Packing, task: Task, known: Known, note: str) -> Packed:
    """Return the result of a shard from the journal."""
    _count(packing, task, known.content)
    shard = _described(known.shard, packing.digest and not known.shard.sha256, None, packing.storage)
    complete = known.posted or not packing.posted
    return Packed(shard, known.planned, known.content, known.rows, [], True, complete, note)


def _write(packing: Packing, task: Task, name: str, note: str, sink: Sink, completer: _Completer) -> Generator[None]:
    writer = EntryWriter(sink)
    filler = ShardFiller(
        task.shard,
        writer,
        packing.read,
        plan_name=packing.plan_name,
        mtime=packing.mtime,
        skip=packing.skip,
        storage=packing.sources,
    )
    try:
        for content in filler.fill():
            _count(packing, task, content)
            yield
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    _count(packing, task, filler.content)
    kept = isinstance(sink, Existing)

    def packed(written: bool = True) -> Packed:
        shard = None
        if written:
            shard = Shard(name, filler.samples, writer.position, 0, filler.first, filler.last, "")
            shard = _described(shard, packing.digest, sink.digest(), packing.storage)
        return Packed(shard, filler.planned, filler.content, filler.rows, filler.skipped, kept, False, note)

    if filler.rows:
        completer.close(name, writer, packed)
    else:
        writer.abort()
        completer.add(packed(False))


def _described(shard: Shard, digest: bool, known: tuple[str, int] | None, storage: StoreOptions | None) -> Shard:
    """Return the shard with the checksum and the length of its file, if requested; they may be `known`."""
    if not digest:
        return shard
    sha256, stored = known or sum_file("url" if scheme_of(shard.name) else "path", shard.name, storage)
    return shard._replace(sha256=sha256, stored=stored)


def _count(packing: Packing, task: Task, content: int) -> None:
    if packing.counters >= 0:
        os.pwrite(packing.counters, _COUNTER.pack(content), _COUNTER.size * task.number)
