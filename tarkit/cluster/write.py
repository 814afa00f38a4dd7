"""The last pass: read the blocks of some shards, or of part of one archive, and write their samples in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate, groupby
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.call import TaskContext
from tarkit.cluster.records import (
    DIGEST,
    KEY_SIZE,
    OrderedSample,
    file_name,
    read_groups,
    read_order,
    read_section,
    unpack_listed,
)
from tarkit.cluster.scatter import SampleSums
from tarkit.cluster.shared import Blob, Spill
from tarkit.errors import TarkitError, spell
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import neighbours
from tarkit.samples.sample import TarSample, singly
from tarkit.shards.limits import Limits
from tarkit.shards.rows import SeriesOptions
from tarkit.shards.series import SeriesSpec, ShardsPlan
from tarkit.shards.writer import Shard, ShardsWriter
from tarkit.sorting.sorter import LARGE, Sorter
from tarkit.spill.records import by_rank
from tarkit.stores.schemes import public_name
from tarkit.streams.ranges import HeldRange, MovedRange
from tarkit.streams.sink import Sink, WriteOnlySink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.streams.text import is_there
from tarkit.tar.writer import EntryWriter

READ = 32 << 20  # bytes of a block that are requested together
_PLACE = Struct(">IQ")  # group and offset: the order in which blocks are read
_NUMBER = Struct(">Q")  # of a sample in the order of the task


class SpanRecords(NamedTuple):
    """Records [first, last) of the order of a span."""

    span: int
    first: int
    last: int


class WriteItem(NamedTuple):
    """Shards to write, one after the other, or part of an archive.

    Attributes:
        number: that of the task.
        records: their samples.
        group_table: the file `groups`.
        strays: whether entries without a key come first.
        shards: how many samples each shard has; none for part of an archive.
        first: the index of the first shard.
        series: the names of the shards.
        output: how they are written.
        replace: whether shards of these names may be there.
    """

    number: int
    records: tuple[SpanRecords, ...]
    group_table: Blob
    strays: bool
    shards: tuple[int, ...] = ()
    first: int = 0
    series: SeriesSpec | None = None
    output: Output | None = None
    replace: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the shards."""
        assert self.series is not None
        return [self.series.template.name(self.first + index) for index in range(len(self.shards))]

    def __repr__(self) -> str:
        return f"shards from number {self.first} on" if self.shards else f"part {self.number} of the output"


@dataclass
class WriteResult:
    """Result of a task: the sums of the samples and of the entries without a key, and the shards, or the piece."""

    sums: SampleSums = field(default_factory=SampleSums)
    strays: SampleSums = field(default_factory=SampleSums)
    samples: int = 0  # once those of one key are joined
    shards: list[Shard] = field(default_factory=list)
    piece: Blob | None = None
    first: bytes = b""
    last: bytes = b""


class BlockReader:
    """Reads neighbouring samples of the file of a group; their positions are those in the file.

    Args:
        spill: has the file.
        start, stop: the block.
    """

    def __init__(self, spill: Spill, group: int, start: int, stop: int, tmpdir: str | None) -> None:
        self.position = start
        self._name = file_name("data", group)
        self._spill = spill
        self._tmpdir = tmpdir
        self._stop = stop
        self._ahead = b""
        self._used = 0

    def sample(self, key_size: int, size: int, digest: bytes) -> TarSample:
        """Return the next sample. Raises TarkitError if it is not the one that was written."""
        start, head = self.position, KEY_SIZE.size + key_size
        total = sha256()
        held: HeldRange | MovedRange
        if head + size <= LARGE:
            data = self._take(head + size)
            total.update(data)
            held = HeldRange(self._name, start, data)
        else:
            file = TemporaryFile(self._tmpdir)
            while (rest := start + head + size - self.position) > 0:
                data = self._take(min(rest, LARGE))
                total.update(data)
                file.write(data)
            held = MovedRange(file, self._name, start, self.position, 0)
        if total.digest()[:DIGEST] != digest:
            raise self._spill.changed(self._name, start)
        key = held.read(start + KEY_SIZE.size, start + head)
        sample = TarSample(key, held, (), start + head, self.position)
        sample.plain = True
        return sample

    def _take(self, length: int) -> bytes:
        """Return the next bytes, of a larger read where samples are small."""
        have = len(self._ahead) - self._used
        if have < length:
            start = self.position + have
            stop = min(max(self.position + length, start + READ), self._stop)
            self._ahead = self._ahead[self._used :] + self._spill.read(self._name, start, stop)
            self._used = 0
        data = self._ahead[self._used : self._used + length]
        self._used += length
        self.position += length
        return data


class _Blocks:
    """The samples of a task, block after block, each with its number in the order."""

    def __init__(self, item: WriteItem, context: TaskContext, run: Run, written: WriteResult) -> None:
        self.item, self.spill, self.run = item, context.spill, run
        self.written = written
        self.current = b""  # the rank of the sample that was yielded last

    def rank(self, sample: TarSample, ordinal: int) -> bytes:
        """Return the rank of the sample that was yielded last."""
        return self.current

    def __iter__(self) -> Iterator[TarSample]:
        yield from self._strays()
        records = ((record[:8], OrderedSample.unpack(record, 8)) for record in by_rank(self._places(), self.run.tmpdir))
        for group, block in groupby(records, key=lambda record: record[1].group):
            yield from self._block(group, list(block))

    def _block(self, group: int, block: list[tuple[bytes, OrderedSample]]) -> Iterator[TarSample]:
        _, last = block[-1]
        reader: BlockReader | None = None
        for number, record in block:
            if reader is None or record.offset != reader.position:
                # the records of a group are neighbours in its file, as in the order
                reader = self._reader(group, record.offset, last.stop)
            sample = reader.sample(record.key_size, record.size, record.digest)
            self.written.sums.add(record.size, 0, record.digest)
            self.current = number
            yield sample

    def _reader(self, group: int, start: int, stop: int) -> BlockReader:
        return BlockReader(self.spill, group, start, stop, self.run.tmpdir)

    def _strays(self) -> Iterator[TarSample]:
        if not self.item.strays:
            return
        for group, (sections_at, has) in enumerate(read_groups(self.spill, self.item.group_table)):
            for stray in unpack_listed(read_section(self.spill, group, sections_at, 0)) if has else ():
                reader = self._reader(group, stray.offset, stray.offset + KEY_SIZE.size + stray.size)
                sample = reader.sample(0, stray.size, stray.digest)
                self.written.strays.add(stray.size, 0, stray.digest)
                yield TarSample(None, sample.source, None, sample.start, sample.stop)

    def _places(self) -> Iterator[tuple[bytes, bytes]]:
        number = 0
        for part in self.item.records:
            for record in read_order(self.spill, part.span, part.first, part.last):
                yield _PLACE.pack(record.group, record.offset), _NUMBER.pack(number) + record.pack(part.span)
                number += 1


class _Piece(WriteOnlySink):
    """A file, and the length and CRC-32 of the bytes written to it."""

    def __init__(self, target: Sink) -> None:
        self.name = target.name
        self.position = self.checksum = 0
        self._target = target

    def write(self, data: bytes | memoryview) -> None:
        self.checksum = crc32(data, self.checksum)
        self.position += len(data)
        self._target.write(data)


def write_samples(item: WriteItem, context: TaskContext, run: Run) -> WriteResult:
    """Write the samples of a task to shards, or to a piece of the spill."""
    written = WriteResult()
    blocks = _Blocks(item, context, run, written)
    sorter = Sorter(iter(blocks), blocks.rank, context.memory, tmpdir=run.tmpdir)
    samples = _noted(singly(neighbours(sorter.batches(), run.policy, run.tmpdir)), written)
    if item.output is None:
        _write_piece(item, context, samples, written)
    else:
        _write_shards(item, context, run, samples, written)
    return written


def _noted(samples: Iterator[TarSample], written: WriteResult) -> Iterator[TarSample]:
    for sample in samples:
        if sample.key is not None:
            written.first = sample.key if not written.samples else written.first
            written.samples += 1
            written.last = sample.key
        yield sample


def _write_shards(
    item: WriteItem, context: TaskContext, run: Run, samples: Iterator[TarSample], written: WriteResult
) -> None:
    assert item.series is not None
    assert item.output is not None
    _claim(item, item.output, context.spill)
    # a task that runs again replaces its own shards; those of others are refused by its claim
    writer = ShardsWriter(
        run, ShardsPlan(item.output, Limits(), options=SeriesOptions(force=True)), [iter(item.names)], iter(item.shards)
    )
    complete = set(accumulate(item.shards))
    try:
        for number, sample in enumerate(samples, 1):
            if number in complete:  # after this sample a shard gets its name
                context.spill.check()
            if writer.add(sample):
                raise TarkitError(f"there are more samples than the {sum(item.shards)} that were counted")
        writer.close(written.samples)
    except BaseException:
        writer.abort()
        raise
    written.shards = writer.done
    if [shard.samples for shard in written.shards] != list(item.shards):
        raise AssertionError(f"shards of {item.shards} samples were planned, {written.shards} written")


def _claim(item: WriteItem, output: Output, spill: Spill) -> None:
    """Note in the spill that the shards of these names are those of this run.

    A task that runs again replaces its own. Raises TarkitError for one that another process has made since the start.
    """
    claim = file_name("claim", item.number)
    if spill.has(claim):
        return
    for name in () if item.replace else item.names:
        if is_there(name, output.location.options):
            words = "another process has created this shard since the run began"
            raise TarkitError(f"{public_name(name)}: {words}", f"{spell('force')} replaces it")
    spill.put(claim, b"1")


def _write_piece(item: WriteItem, context: TaskContext, samples: Iterator[TarSample], written: WriteResult) -> None:
    name = file_name("piece", item.number)
    with context.spill.create(name) as sink:
        piece = _Piece(sink)
        writer = EntryWriter(piece)
        for sample in samples:
            sample.write(writer)
        writer.flush()
    written.piece = Blob(name, piece.position, piece.checksum)
