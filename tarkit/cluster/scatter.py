"""The second pass: sort each group of inputs, so that the samples of each span are neighbours in its file."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.call import TaskContext, describe
from tarkit.cluster.records import (
    DIGEST,
    KEY_SIZE,
    ListedSample,
    SectionWriter,
    add_digest,
    file_name,
    pack_keyed,
)
from tarkit.cluster.shared import Blob
from tarkit.errors import TarkitError, Unsupported
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow, Step
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sizes import plural
from tarkit.sorting.order import Order
from tarkit.sorting.sorter import Sorter
from tarkit.spill.records import SpilledList, by_rank
from tarkit.streams.location import Location
from tarkit.streams.sink import Sink, WriteOnlySink
from tarkit.tar.writer import EntryWriter

BUFFER = 1 << 20  # bytes that are written together


class ScatterItem(NamedTuple):
    """A group of inputs.

    Attributes:
        inputs: the names of all inputs, by their numbers.
        start, samples: how many samples all groups before have, and how many this one has.
        bounds: the first ranks of all spans but the first.
        key_parts: into how many the keys are divided; 0 where they are not compared.
        payload: whether the weight of a sample is its payload, for which headers are read again; else its size.
    """

    group: int
    inputs: Blob
    locations: tuple[Location, ...]
    start: int
    samples: int
    bounds: Blob
    key_parts: int
    payload: bool

    def __repr__(self) -> str:
        return f"group {self.group}, {describe(self.locations)}"


@dataclass
class SampleSums:
    """Sums over samples that must be the same wherever the samples are: their number, bytes and fingerprint.

    `weight` is that by which shards are cut; it is no part of the comparison.
    """

    samples: int = 0
    size: int = 0
    weight: int = 0
    fingerprint: int = 0

    def add(self, size: int, weight: int, digest: bytes) -> None:
        """Add a sample."""
        self.samples += 1
        self.size += size
        self.weight += weight
        self.fingerprint = add_digest(self.fingerprint, digest)

    def merge(self, other: SampleSums) -> None:
        """Add the sums of other samples."""
        self.samples += other.samples
        self.size += other.size
        self.weight += other.weight
        self.fingerprint = add_digest(self.fingerprint, other.fingerprint.to_bytes(16, "big"))

    def same(self, other: SampleSums) -> bool:
        """Return whether both are of the same samples."""
        mine = (self.samples, self.size, self.fingerprint)
        return mine == (other.samples, other.size, other.fingerprint)

    def __str__(self) -> str:
        return f"{plural(self.samples, 'sample')}, {plural(self.size, 'byte')}, fingerprint {self.fingerprint:032x}"


class GroupFigures(NamedTuple):
    """Figures of a group, as the client keeps them: sums of its samples and of its entries without a key, and counts.

    `joined` samples were joined to others, `left_out` had no rank; `dropped` were left out for a problem. `sections_at`
    is where the table of sections begins in its list.
    """

    sums: SampleSums
    strays: SampleSums
    joined: int
    left_out: int
    dropped: int
    sections_at: int


@dataclass(eq=False, repr=False)
class RankedOrder(Step):
    """The order, with the rank of each sample; entries without a key come first, alone.

    `seen` is called with each sample that is left out, since a field is missing; with `gathers` with the others too.
    """

    order: Order
    seen: Callable[[TarSample], None]
    gathers: bool
    sorted: Sorter | None = None

    permutes = True

    def __post_init__(self) -> None:
        self.scope = self.order.scope

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        self.order.prepare(inputs, before, run)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        self.sorted = self.order.sorter(batches, flow)
        self.sorted.strays_apart = self.sorted.one_by_one = True
        self.sorted.distinct = False  # keys of all groups are compared later
        if self.sorted.absent is not None:
            self.sorted.absent = partial(self._absent, self.sorted.absent)
        return map(self._see, singly(self.sorted.batches())) if self.gathers else self.sorted.batches()

    def _see(self, sample: TarSample) -> TarSample:
        self.seen(sample)
        return sample

    def _absent(self, absent: Callable[[TarSample], bytes | None], sample: TarSample) -> bytes | None:
        rank = absent(sample)
        if rank is None:
            self.seen(sample)
        return rank


class SampleFile(WriteOnlySink):
    """Samples in a file, one after the other, each with a digest."""

    def __init__(self, target: Sink) -> None:
        self.name = target.name
        self.position = 0
        self._target = target
        self._waiting: list[bytes] = []
        self._size = 0
        self._hash = sha256()
        self._writer = EntryWriter(self)

    def add(self, sample: TarSample) -> tuple[int, int, bytes]:
        """Append a sample; return its position, its length without the key, and its digest."""
        start, key = self.position, sample.key or b""
        self._hash = sha256()
        self.write(KEY_SIZE.pack(len(key)) + key)
        before = self.position
        sample.write(self._writer)
        self._writer.flush()
        return start, self.position - before, self._hash.digest()[:DIGEST]

    def write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self.position += len(data)
        self._waiting.append(bytes(data))
        self._size += len(data)
        if self._size > BUFFER:
            self.flush()

    def flush(self) -> None:
        """Write the records in memory."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        self._target.write(b"".join(waiting))


def scatter_group(item: ScatterItem, context: TaskContext, run: Run) -> GroupFigures:
    """Write the samples of a group in order, and a list of them."""
    spill = context.spill
    with spill.create(file_name("data", item.group)) as data, spill.create(file_name("list", item.group)) as listed:
        return _Scattering(item, context, run, SampleFile(data), SectionWriter(listed)).write()


class _Scattering:
    """Writes the files of one group."""

    def __init__(
        self, item: ScatterItem, context: TaskContext, run: Run, file: SampleFile, sections: SectionWriter
    ) -> None:
        self.item, self.context, self.run = item, context, run
        self.file, self.sections = file, sections
        self.bounds = [bytes.fromhex(bound) for bound in json.loads(context.spill.get(item.bounds))]
        order = replace(context.ordering.order, memory=context.memory)
        if order.random is not None:
            order.random = replace(order.random, start=item.start)
        self.order = RankedOrder(order, self._add_key, context.ordering.gathers)
        self.keys: SpilledList[tuple[bytes, bytes]] = SpilledList(run.tmpdir)
        self.inputs = {name: number for number, name in enumerate(json.loads(context.spill.get(item.inputs)))}

    def write(self) -> GroupFigures:
        item, ordering = self.item, self.context.ordering
        sums, strays = SampleSums(), SampleSums()
        steps = (*ordering.before, self.order, *ordering.after)
        batches, flow = self.context.chain(item.locations, steps, self.run).batches(self.run)
        with flow:
            for sample in singly(batches):
                self._add(sample, sums, strays)
            flow.finish()
        sorter = self.order.sorted
        if sorter is None or sorter.taken != item.samples:
            taken = sorter.taken if sorter is not None else 0
            where = describe(item.locations)
            counted = plural(item.samples, "sample was", "samples were")
            raise TarkitError(f"{where}: {counted} counted, but {taken} read: an input has changed")
        if strays.samples and ordering.after:
            words = "entries without a key, of which fields are chosen or names changed, are not sorted on a cluster"
            raise Unsupported(f"{item.locations[0].name}: {words}", "run without a cluster")
        first = len(self.bounds) + 2  # section 0 has the entries without a key
        self.sections.complete(first)
        for part, record in by_key_part(self.keys, self.run.tmpdir):
            self.sections.add(first + part, record)
        self.sections.finish(first + item.key_parts)
        self.file.flush()
        dropped = self.run.dropped - sorter.left_out
        return GroupFigures(sums, strays, sorter.joined, sorter.left_out, dropped, self.sections.length)

    def _add(self, sample: TarSample, sums: SampleSums, strays: SampleSums) -> None:
        content = sample.content if self.item.payload else None
        offset, size, digest = self.file.add(sample)
        weight = size if content is None else content
        if sample.key is None:
            strays.add(size, weight, digest)
            self.sections.add(0, ListedSample(b"", b"", 0, sample.start, offset, size, weight, digest).pack())
            return
        assert self.order.sorted is not None
        rank, number = self.order.sorted.current_rank, self.inputs[sample.source.name]
        sums.add(size, weight, digest)
        record = ListedSample(rank, sample.key, number, sample.start, offset, size, weight, digest)
        self.sections.add(1 + bisect_right(self.bounds, rank), record.pack())
        if not self.context.ordering.gathers:
            self._add_key(sample)

    def _add_key(self, sample: TarSample) -> None:
        """Store the key of a sample, to be compared with those of other groups."""
        if self.item.key_parts and sample.key is not None:
            part = crc32(sample.key) % self.item.key_parts
            record = pack_keyed(sample.key, self.inputs[sample.source.name], sample.start)
            self.keys.append((part.to_bytes(4, "big"), record))


def by_key_part(keys: SpilledList[tuple[bytes, bytes]], tmpdir: str | None) -> Iterator[tuple[int, bytes]]:
    """Yield the records of keys in the order of their key parts, each with the number of its part."""
    for record in by_rank(((part, part + record) for part, record in keys), tmpdir):
        yield int.from_bytes(record[:4], "big"), record[4:]


def random_bounds(count: int) -> list[bytes]:
    """Return the first ranks of all spans but the first, for random ranks."""
    return [((number << 64) // count).to_bytes(8, "big") for number in range(1, count)]
