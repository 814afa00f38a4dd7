"""A plan on its way to the packer: every row is seen and checked, and kept on disk, before a shard is opened.

Rows wait in memory until there are HELD of them, and then go to a temporary file, those of a shard together. So memory
holds HELD rows, a note for each shard, and the keys of one shard; all rows of a shard only if they are out of order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.packing.batch import PackRow, RowBatch, Rows
from tarkit.packing.plan import Planned, SavedPlan, content_of
from tarkit.packing.spool_check import ManyNames, ascend, in_several, keys_of
from tarkit.packing.tree import UNSIZED
from tarkit.samples.validate import NameChecks
from tarkit.sorting.runs import DuplicateKeys
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.recipe import MalformedRow

HELD = 20_000  # rows that are in memory at a time
TWINS = 16 << 20  # bytes of hashes in memory

# What mends a sample that is not together: of a plan that somebody has edited, and of one that was just made.
_POSITIONS = "the entries of a sample have positions that follow each other"
_KEYS_END = (
    "readers end keys at the first dot: give up --last-dot, or name entries after their sample with --rename key"
)


class PlannedShard(NamedTuple):
    """A shard to write: where its rows are in the spool, and what they come to.

    `planned` samples are in it by their positions, `samples` by the keys of the names, from `first` to `last`; `size`
    is their content in bytes, if all sizes were looked up.
    """

    name: bytes
    blobs: tuple[tuple[int, int], ...]
    rows: int
    planned: int
    samples: int
    size: int
    first: bytes
    last: bytes


class RowSpool:
    """The rows of a plan by shard, in order of position, as `fill` found them good.

    `agrees` also looks up each source, and raises when it is not there or has another size, unless `missing` ones are
    left for later.
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
        self._stop = 0
        self._blobs: dict[bytes, list[tuple[int, int]]] = {}
        self._agrees = agrees
        self._twins = DuplicateKeys(TWINS, tmpdir)
        self._tmpdir = tmpdir
        self._missing = missing

    def fill(self, plan: Iterable[Planned]) -> list[PlannedShard]:
        """Take in a plan; hand back its shards in the order in which they are first named.

        Raises:
            TarkitError: for the first row that cannot be: an unsafe name, one that is in its shard twice, a sample that
                is not together, a source that has another size, or is neither path nor literal.
        """
        if isinstance(plan, Rows):
            return self._fill_in_order(plan)
        buffers: dict[bytes, list[PackRow]] = {}
        held = 0
        rows = plan.numbered() if isinstance(plan, SavedPlan) else ((*row, 0) for row in plan)
        for shard, group in groupby(rows, itemgetter(0)):
            buffer = buffers.setdefault(shard, [])
            while some := list(islice(group, HELD - held)):
                buffer += some
                held += len(some)
                if held >= HELD:
                    self._flush(buffers)
                    held = 0
                    buffer = buffers.setdefault(shard, [])
        self._flush(buffers)
        return [self._settled(name, blobs) for name, blobs in self._blobs.items()]

    def _fill_in_order(self, plan: Rows) -> list[PlannedShard]:
        """The same for rows that come shard by shard: each is looked at while it is in memory."""
        shards: dict[bytes, PlannedShard] = {}
        for name, batches in groupby(plan.batches(), attrgetter("shard")):
            before = name in self._blobs
            blobs = self._blobs.setdefault(name, [])
            shard = None if before else self._summed(name, blobs, self._kept(batches, blobs), ManyNames())
            for _ in self._kept(batches, blobs):  # what was not looked at
                pass
            shards[name] = shard or self._settled(name, blobs)
        return list(shards.values())

    def _kept(self, batches: Iterable[RowBatch], blobs: list[tuple[int, int]]) -> Iterator[RowBatch]:
        for batch in batches:
            blobs.append(self._keep(batch))
            yield batch

    def _flush(self, buffers: dict[bytes, list[PackRow]]) -> None:
        for name, rows in filter(itemgetter(1), buffers.items()):
            self._blobs.setdefault(name, []).append(self._keep(RowBatch.of(rows)))
        buffers.clear()

    def _keep(self, batch: RowBatch) -> tuple[int, int]:
        blob = batch.dump()
        start = self._stop
        self.file.write(blob)
        self._stop += len(blob)
        return start, self._stop

    def _settled(self, name: bytes, blobs: list[tuple[int, int]]) -> PlannedShard:
        """A shard whose rows are checked, and sorted if they have to be."""
        read = self.file.read
        if not all(map(ascend, _overlapping(batch.numbers for batch in load_rows(read, blobs)))):
            everything = [row for batch in load_rows(read, blobs) for row in batch.rows()]
            everything.sort(key=itemgetter(1))
            blobs = [self._keep(RowBatch.of(everything[at : at + HELD])) for at in range(0, len(everything), HELD)]
        shard = self._summed(name, blobs, load_rows(read, blobs), ManyNames())
        if shard is None:
            shard = self._summed(name, blobs, load_rows(read, blobs), self._one_by_one(name, blobs))
        assert shard is not None
        return shard

    def _summed(
        self, name: bytes, blobs: list[tuple[int, int]], batches: Iterable[RowBatch], names: ManyNames | NameChecks
    ) -> PlannedShard | None:
        """A shard of rows that are in order; None when its names are not surely well, and nobody has looked at each."""
        count = planned = size = 0
        last = -1
        for batch in batches:
            planned += len(batch.numbers) - (batch.numbers[0] == last)
            last = batch.numbers[-1]
            count += len(batch.names)
            size += sum(batch.sizes)
            self._check_sources(batch)
            if isinstance(names, ManyNames) and not names.accept(batch.names):
                return None
        if self._agrees:
            self._note(names.hashes if isinstance(names, ManyNames) else map(hash, keys_of(self._names(blobs))))
        first, last_key = names.first or b"", names.last or b""
        return PlannedShard(name, tuple(blobs), count, planned, names.samples, size, first, last_key)

    def _one_by_one(self, shard: bytes, blobs: Iterable[tuple[int, int]]) -> NameChecks:
        """The names of all rows of a shard. Raises TarkitError for the first that cannot be."""
        names = NameChecks(_KEYS_END if self.plan_name is None else _POSITIONS, None)
        for batch in load_rows(self.file.read, blobs):
            for row in batch.rows():
                try:
                    if not row[2]:
                        raise MalformedRow("an empty name")
                    names.check(row[2])
                except MalformedRow as error:
                    raise TarkitError(f"{place(self.plan_name, shard, row)}: {error}", error.hint) from None
        return names

    def refuse(self, shards: Iterable[PlannedShard], written: Sequence[os.stat_result]) -> None:
        """Raises TarkitError when a source is one of the files that will be `written`."""
        known = {(status.st_dev, status.st_ino) for status in written}
        sizes = {status.st_size for status in written} | {UNSIZED}
        for shard in shards if known else ():
            batches = load_rows(self.file.read, shard.blobs)
            for row in (row for batch in batches for row in batch.rows() if row[4] in sizes):
                kind, path = content_of(row[3])
                try:
                    status = os.stat(path) if kind == "path" else None
                except OSError:
                    continue
                if status is not None and (status.st_dev, status.st_ino) in known:
                    raise TarkitError(f"{place(self.plan_name, shard.name, row)}: {show(path)} is written too")

    def _check_sources(self, batch: RowBatch) -> None:
        for row in batch.rows() if self._agrees or batch.has_marks else ():
            try:
                self._judge(row)
            except MalformedRow as error:
                raise TarkitError(f"{place(self.plan_name, batch.shard, row)}: {error}", error.hint) from None

    def _judge(self, row: PackRow) -> None:
        """Raises Malformed when the source of a row is not what it is said to be."""
        kind, value = content_of(row[3])
        if kind == "data":
            if len(value) != row[4]:
                raise MalformedRow(disagree(row[3], len(value), row[4]))
        elif self._agrees:
            try:
                size = os.stat(value).st_size
            except OSError as error:
                if self._missing and isinstance(error, FileNotFoundError | NotADirectoryError):
                    return
                raise MalformedRow(f"{show(value)}: {error.strerror}") from None
            if size != row[4]:
                raise MalformedRow(disagree(value, size, row[4]))

    def in_several(self, shards: Sequence[PlannedShard]) -> tuple[int, bytes]:
        """How many keys have entries in more than one shard, and the first of them, in a plan that agrees."""
        if self._twins.marked() is None:
            return 0, b""
        return in_several(lambda: (self._names(shard.blobs) for shard in shards), self._tmpdir)

    def _note(self, hashes: Iterable[int]) -> None:
        for each in hashes:
            self._twins.add(each)
        self._twins.settle()

    def _names(self, blobs: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        return (name for batch in load_rows(self.file.read, blobs) for name in batch.names)

    def sources(self, shards: Iterable[PlannedShard]) -> Iterator[bytes]:
        """The files of shards."""
        for shard in shards:
            for batch in load_rows(self.file.read, shard.blobs):
                found = map(content_of, batch.sources)
                yield from (value for kind, value in found if kind == "path")


def place(plan_name: str | None, shard: bytes, row: PackRow) -> str:
    """`PLAN:LINE` of a row, or the shard that it is for."""
    return f"{plan_name}:{row[5]}" if plan_name is not None and row[5] else os.fsdecode(shard)


def disagree(source: bytes, size: int, planned: int) -> str:
    """What to say of a source that has another size than planned."""
    many = f"{size} byte" if size == 1 else f"{size} bytes"
    return f"{show(source)} has {many}, and the plan says {planned}"


def load_rows(read: Callable[[int, int], bytes], blobs: Iterable[tuple[int, int]]) -> Iterator[RowBatch]:
    """The rows of a shard, as many at a time as were written together."""
    for start, stop in blobs:
        yield RowBatch.load(read(start, stop))


def _overlapping(batches: Iterable[list[int]]) -> Iterator[list[int]]:
    """Batches of numbers, with the last of the one before in front."""
    last: list[int] = []
    for numbers in batches:
        yield last + numbers
        last = numbers[-1:]
