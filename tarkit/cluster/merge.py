"""The third pass: merge the lists of all groups for each span; and compare keys, one key part after the other."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tarkit.cluster.call import TaskContext
from tarkit.cluster.records import (
    GroupTable,
    ListedSample,
    OrderedSample,
    order_name,
    read_sections,
    sizes_name,
    unpack_keyed,
    unpack_listed,
)
from tarkit.cluster.shared import Blob
from tarkit.pipeline.run import Run
from tarkit.spill.multimap import Multimap
from tarkit.spill.records import by_rank
from tarkit.tar.writer import GATHERED

SHOWN = 4  # repeated keys of one task that are reported one by one
_PLACED = Struct("<IIQ")  # input, group, start: of a record that is sorted
_SEEN = Struct("<IQ")  # input, start


class OrderItem(NamedTuple):
    """A span. With `joins` samples of one key that come one after the other become one.

    With `sizes` those of the samples are written too, with `weighs` also their bytes of payload.
    """

    span: int
    group_table: Blob
    joins: bool
    sizes: bool
    weighs: bool

    def __repr__(self) -> str:
        return f"range {self.span} of the order"


class SpanSizes(NamedTuple):
    """The sizes of the samples of a span, each with those joined to it, and their bytes of payload.

    Attributes:
        sizes: bytes of each sample.
        contents: bytes of payload, if shards are cut by these.
        records: the first record of each sample, if some have several.
    """

    sizes: array[int]
    contents: array[int]
    records: array[int]

    @classmethod
    def empty(cls) -> SpanSizes:
        """Return the sizes of no sample."""
        return cls(array("Q"), array("Q"), array("Q"))

    def add(self, size: int, content: int, record: int, joined: bool) -> None:
        """Add a record, which may be joined to the sample before it."""
        if joined:
            self.sizes[-1] += size
            self.contents[-1] += content
        else:
            self.sizes.append(size)
            self.contents.append(content)
            self.records.append(record)

    def pack(self, weighs: bool, joined: bool) -> bytes:
        """Return the sizes as bytes; `joined` says whether a sample has several records."""
        return self.sizes.tobytes() + self.contents.tobytes() * weighs + self.records.tobytes() * joined

    @classmethod
    def unpack(cls, data: bytes, samples: int, weighs: bool, joined: bool) -> SpanSizes:
        """Return the sizes of so many samples; other arguments are as for `pack`."""
        columns = [array("Q") for _ in range(3)]
        wanted = [column for column, there in zip(columns, (True, weighs, joined), strict=True) if there]
        for number, column in enumerate(wanted):
            column.frombytes(memoryview(data)[8 * samples * number : 8 * samples * (number + 1)])
        return cls(*columns)


class KeyPlace(NamedTuple):
    """A key that comes again: the number of its input, its position there, and the input where it was before."""

    key: bytes
    input: int
    start: int
    before: int


@dataclass
class SpanFigures:
    """What the client keeps of a span.

    Attributes:
        samples, records: how many samples it has, and records, of which some may be joined.
        bytes: those of all records.
        first, last: the first and the last key.
        adjacent: how many samples have the key of the one before them.
        shown: the first of these.
        sizes: the file with the sizes of the samples, if it is asked for.
    """

    samples: int = 0
    records: int = 0
    bytes: int = 0
    first: KeyPlace | None = None
    last: KeyPlace | None = None
    adjacent: int = 0
    shown: list[KeyPlace] = field(default_factory=list)
    sizes: Blob | None = None


def order_span(item: OrderItem, context: TaskContext, run: Run) -> SpanFigures:
    """Write the order of the samples of a span."""
    spill, figures = context.spill, SpanFigures()
    rows = GroupTable.unpack(spill.get(item.group_table))

    def listed() -> Iterator[tuple[bytes, bytes]]:
        for group, section in enumerate(read_sections(spill, rows, 1 + item.span)):
            for each in unpack_listed(section):
                yield each.rank, _PLACED.pack(each.input, group, each.start) + each._replace(rank=b"").pack()

    sizes = SpanSizes.empty()
    pieces: list[bytes] = []
    waiting = 0
    last: KeyPlace | None = None
    with spill.create(order_name(item.span)) as sink:
        for record in by_rank(listed(), run.tmpdir):
            number, group, start = _PLACED.unpack_from(record)
            (sample,) = unpack_listed(record[_PLACED.size :])
            place = KeyPlace(sample.key, number, start, number if last is None else last.input)
            again = last is not None and last.key == sample.key
            if item.sizes:
                sizes.add(sample.size, sample.content, figures.records, again and item.joins)
            _count(figures, sample, place, again and item.joins)
            if again and not item.joins:
                figures.adjacent += 1
                figures.shown += [place] if len(figures.shown) < SHOWN else []
            last = place
            pieces.append(_ordered(sample, group, again and item.joins).pack(item.span))
            waiting += len(pieces[-1])
            if waiting > GATHERED:
                sink.write(b"".join(pieces))
                pieces, waiting = [], 0
        sink.write(b"".join(pieces))
    figures.last = last
    if item.sizes:
        joined = figures.records > figures.samples
        figures.sizes = spill.put(sizes_name(item.span), sizes.pack(item.weighs, joined))
    return figures


def _count(figures: SpanFigures, sample: ListedSample, place: KeyPlace, joined: bool) -> None:
    figures.first = figures.first or place
    figures.samples += not joined
    figures.records += 1
    figures.bytes += sample.size


def _ordered(sample: ListedSample, group: int, joined: bool) -> OrderedSample:
    return OrderedSample(joined, group, len(sample.key), sample.offset, sample.size, sample.content, sample.digest)


class KeysItem(NamedTuple):
    """A key part. `section` is the number of its section in the lists.

    With `scattered` a key may come again in one input.
    """

    section: int
    group_table: Blob
    scattered: bool

    def __repr__(self) -> str:
        return f"section {self.section} of the keys"


class KeysFigures(NamedTuple):
    """How many keys of a key part are in two inputs or more, and some of them."""

    repeated: int
    shown: list[KeyPlace]


def compare_keys(item: KeysItem, context: TaskContext, run: Run) -> KeysFigures:
    """Find the keys that several inputs have, among those of a key part."""
    spill, keys = context.spill, Multimap(run.tmpdir)
    for section in read_sections(spill, GroupTable.unpack(spill.get(item.group_table)), item.section):
        for key, number, start in unpack_keyed(section):
            keys.add(key, _SEEN.pack(number, start))
    count, shown = 0, list[KeyPlace]()
    for key, values in keys.repeated():
        (first, _), *others = sorted(_SEEN.unpack(value) for value in values)
        for number, start in others:
            if number != first or not item.scattered:
                count += 1
                if len(shown) < SHOWN:
                    shown.append(KeyPlace(key, number, start, first))
    return KeysFigures(count, shown)
