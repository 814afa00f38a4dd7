"""The rows of a plan in a temporary file, checked before the first shard is opened.

Rows of a saved plan are collected in memory until there are HELD of them, and then appended to the file, shard by
shard. So memory holds HELD rows, a record for each shard, and the keys of one shard; all rows of a shard only if they
are out of order. The rows of a layout are in such a file already.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter, le
from typing import NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.packing.batch import Extent, RowBatch, load_rows
from tarkit.packing.layout import PackLayout
from tarkit.packing.plan import Planned, content_of
from tarkit.packing.samples import cut_first
from tarkit.packing.tree import UNSIZED
from tarkit.samples.validate import NameChecks
from tarkit.sorting.runs import DuplicateKeys
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import MalformedRow

HELD = 20_000  # rows in memory
HASHES = 16 << 20  # bytes of hashes in memory


class PlannedShard(NamedTuple):
    """A shard to write, and the extents of its rows in the file.

    `planned` samples are in it by position, `samples` by the keys of the names, from `first` to `last`; `size` is its
    content in bytes, if the sizes of all files are known.
    """

    name: bytes
    extents: tuple[Extent, ...]
    rows: int
    planned: int
    samples: int
    size: int
    first: bytes
    last: bytes


class RowSpool:
    """The rows of a plan by shard, in order of position.

    With `agrees`, `fill` also looks up each source, and raises when it is not there or has another size; with `missing`
    it may be missing.
    """

    def __init__(
        self,
        tmpdir: str | None = None,
        *,
        plan_name: str | None = None,
        agrees: bool = False,
        missing: bool = False,
    ) -> None:
        self.file = TemporaryFile(tmpdir)
        self.plan_name = plan_name
        self._extents: dict[bytes, list[Extent]] = {}
        self._agrees = agrees
        self._duplicates = DuplicateKeys(HASHES, tmpdir)
        self._tmpdir = tmpdir
        self._missing = missing
        self._repair: str | None = "the entries of a sample have positions that follow each other"

    def fill(self, plan: Iterable[Planned]) -> list[PlannedShard]:
        """Read a plan and return its shards in the order in which they are first named.

        Raises:
            TarkitError: for the first bad row: an unsafe name, one that is in its shard twice, a sample whose entries
                are not together, a source that has another size, or is neither a path nor a literal.
        """
        if isinstance(plan, PackLayout):
            self.file, self._repair = plan.file, plan.repair
            return self._fill_in_order(plan.batches())
        buffers: dict[bytes, list[Planned]] = {}
        held = 0
        for shard, group in groupby(plan, itemgetter(0)):
            buffer = buffers.setdefault(shard, [])
            while some := list(islice(group, HELD - held)):
                buffer += some
                held += len(some)
                if held >= HELD:
                    self._flush(buffers)
                    held = 0
                    buffer = buffers.setdefault(shard, [])
        self._flush(buffers)
        return [self._checked(name, extents) for name, extents in self._extents.items()]

    def _fill_in_order(self, batches: Iterable[tuple[RowBatch, Extent]]) -> list[PlannedShard]:
        """Return the shards of rows that come shard by shard: each is checked while it is in memory."""
        shards: dict[bytes, PlannedShard] = {}
        for name, group in groupby(batches, lambda each: each[0].shard):
            again = name in self._extents
            extents = self._extents.setdefault(name, [])
            rows = _collected(group, extents)
            if again:
                deque(rows, 0)
                shards[name] = self._checked(name, extents)
            else:
                shards[name] = self._summed(name, extents, rows)
        return list(shards.values())

    def _flush(self, buffers: dict[bytes, list[Planned]]) -> None:
        for name, rows in filter(itemgetter(1), buffers.items()):
            self._extents.setdefault(name, []).append(self._append(RowBatch.of(rows)))
        buffers.clear()

    def _append(self, batch: RowBatch) -> Extent:
        data = batch.dump()
        start = os.lseek(self.file.fd, 0, os.SEEK_END)
        self.file.write(data)
        return start, start + len(data)

    def _checked(self, name: bytes, extents: list[Extent]) -> PlannedShard:
        """Return a shard whose rows are checked, and sorted if necessary."""
        read = self.file.read
        last, ascending = -1, True
        for batch in load_rows(read, extents):
            numbers = [last, *batch.numbers]
            ascending = ascending and all(map(le, numbers, batch.numbers))
            last = numbers[-1]
        if not ascending:
            everything = [row for batch in load_rows(read, extents) for row in batch.rows()]
            everything.sort(key=attrgetter("position"))
            extents = [self._append(RowBatch.of(everything[at : at + HELD])) for at in range(0, len(everything), HELD)]
        return self._summed(name, extents, load_rows(read, extents))

    def _summed(self, name: bytes, extents: list[Extent], batches: Iterable[RowBatch]) -> PlannedShard:
        """Return a shard of rows in order. Raises TarkitError for the first bad one."""
        names = NameChecks(self._repair, None)
        count = planned = size = 0
        last = -1
        for batch in batches:
            planned += len(batch.numbers) - (batch.numbers[0] == last)
            last = batch.numbers[-1]
            count += len(batch.names)
            size += sum(batch.sizes)
            self._check_sources(batch)
            self._check_names(batch, names)
        if self._agrees:
            for key in _keys_of(self._names(extents)):
                self._duplicates.add(hash(key))
            self._duplicates.flush()
        first, last_key = names.first or b"", names.last or b""
        return PlannedShard(name, tuple(extents), count, planned, names.samples, size, first, last_key)

    def _check_names(self, batch: RowBatch, names: NameChecks) -> None:
        if names.accept(batch.names):
            return
        for at, name in enumerate(batch.names):
            try:
                if not name:
                    raise MalformedRow("an empty name")
                names.check(name)
            except MalformedRow as error:
                raise TarkitError(f"{place(self.plan_name, batch.shard, batch.row(at))}: {error}", error.hint) from None

    def refuse(
        self, shards: Iterable[PlannedShard], written: Sequence[os.stat_result], urls: frozenset[bytes] = frozenset()
    ) -> None:
        """Raise TarkitError when a source is one of the files or objects that will be `written`."""
        known = {(status.st_dev, status.st_ino) for status in written}
        sizes = {status.st_size for status in written} | {UNSIZED}
        for shard in shards if known or urls else ():
            for batch in load_rows(self.file.read, shard.extents):
                for at, (source, size) in enumerate(zip(batch.sources, batch.sizes, strict=True)):
                    if source in urls or (size in sizes and _identity(source) in known):
                        where = place(self.plan_name, shard.name, batch.row(at))
                        raise TarkitError(f"{where}: {show(content_of(source)[1])} is written too")

    def _check_sources(self, batch: RowBatch) -> None:
        for row in batch.rows() if self._agrees or batch.has_marks else ():
            try:
                self._check_source(row)
            except MalformedRow as error:
                raise TarkitError(f"{place(self.plan_name, batch.shard, row)}: {error}", error.hint) from None

    def _check_source(self, row: Planned) -> None:
        """Raise MalformedRow when the source of a row is not what the plan says."""
        kind, value = content_of(row.source)
        if kind == "data":
            if len(value) != row.size:
                raise MalformedRow(disagree(row.source, len(value), row.size))
        elif self._agrees and kind == "path":  # the size of an object is compared when it is read
            try:
                size = os.stat(value).st_size
            except OSError as error:
                if self._missing and isinstance(error, FileNotFoundError | NotADirectoryError):
                    return
                raise MalformedRow(f"{show(value)}: {error.strerror}") from None
            if size != row.size:
                raise MalformedRow(disagree(value, size, row.size))

    def in_several(self, shards: Sequence[PlannedShard]) -> tuple[int, bytes]:
        """Return how many keys have entries in more than one shard, and the first of them, in a plan that agrees."""
        if self._duplicates.marked() is None:
            return 0, b""

        def keys() -> Iterator[bytes]:
            return chain.from_iterable(_keys_of(self._names(shard.extents)) for shard in shards)

        duplicates = DuplicateKeys(HASHES, self._tmpdir)
        for key in keys():
            duplicates.add(hash(key))
        found = [key for mark, key in zip(duplicates.marked() or b"", keys(), strict=False) if mark]
        return len(set(found)), found[0] if found else b""

    def _names(self, extents: Iterable[Extent]) -> Iterator[bytes]:
        return (name for batch in load_rows(self.file.read, extents) for name in batch.names)

    def sources(self, shards: Iterable[PlannedShard]) -> Iterator[bytes]:
        """Yield the source files of shards."""
        for shard in shards:
            for batch in load_rows(self.file.read, shard.extents):
                found = map(content_of, batch.sources)
                yield from (value for kind, value in found if kind == "path")


def _collected(batches: Iterable[tuple[RowBatch, Extent]], extents: list[Extent]) -> Iterator[RowBatch]:
    for batch, extent in batches:
        extents.append(extent)
        yield batch


def place(plan_name: str | None, shard: bytes, row: Planned) -> str:
    """Return `PLAN:LINE` of a row of a saved plan, else the name of its shard."""
    return f"{plan_name}:{row.line}" if plan_name is not None and row.line else os.fsdecode(shard)


def disagree(source: bytes | str, size: int, planned: int) -> str:
    """Return the message for a source whose size is not that of the plan; text is shown as it is."""
    many = f"{size} byte" if size == 1 else f"{size} bytes"
    return f"{source if isinstance(source, str) else show(source)} has {many}, and the plan says {planned}"


def _identity(source: bytes) -> tuple[int, int] | None:
    """Return device and inode of the file of a source, if it is one."""
    kind, path = content_of(source)
    try:
        status = os.stat(path) if kind == "path" else None
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _keys_of(names: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the keys of the samples of a shard."""
    return (key for key, _ in groupby(cut_first(name)[0] for name in names))
