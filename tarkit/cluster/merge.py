"""The third pass: merge the lists of all groups for each span; and compare keys, one key part after the other."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tarkit.cluster.call import TaskContext
from tarkit.cluster.records import (
    OrderedSample,
    file_name,
    read_sections,
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
    """A span. With `joins`, neighbouring samples of one key become one sample.

    With `weights` those of the samples are written too, by which shards are cut.
    """

    span: int
    group_table: Blob
    joins: bool
    weights: bool

    def __repr__(self) -> str:
        return f"range {self.span} of the order"


class KeyPlace(NamedTuple):
    """A key that comes again: the number of its input, its position there, and the input where it was before."""

    key: bytes
    input: int
    start: int
    before: int


@dataclass
class SpanFigures:
    """Figures of a span, as the client keeps them.

    Attributes:
        samples, records: how many samples it has, and records, of which some may be joined.
        bytes: those of all records.
        first, last: the first and the last key.
        shown: the first samples that have the key of the one before them.
        weights: the file with the weights of the samples, each with those joined to it, and if some have several
            records with the first record of each; if it is asked for.
    """

    samples: int = 0
    records: int = 0
    bytes: int = 0
    first: KeyPlace | None = None
    last: KeyPlace | None = None
    shown: list[KeyPlace] = field(default_factory=list)
    weights: Blob | None = None


def order_span(item: OrderItem, context: TaskContext, run: Run) -> SpanFigures:
    """Write the order of the samples of a span."""
    spill, figures = context.spill, SpanFigures()

    def listed() -> Iterator[tuple[bytes, bytes]]:
        for group, section in enumerate(read_sections(spill, item.group_table, 1 + item.span)):
            for sample in unpack_listed(section):
                yield sample.rank, _PLACED.pack(sample.input, group, sample.start) + sample._replace(rank=b"").pack()

    weights, records = array("Q"), array("Q")
    pieces: list[bytes] = []
    waiting = 0
    last: KeyPlace | None = None
    with spill.create(file_name("order", item.span)) as sink:
        for record in by_rank(listed(), run.tmpdir):
            number, group, start = _PLACED.unpack_from(record)
            (sample,) = unpack_listed(record[_PLACED.size :])
            place = KeyPlace(sample.key, number, start, number if last is None else last.input)
            again = last is not None and last.key == sample.key
            joined = again and item.joins
            if item.weights and joined:
                weights[-1] += sample.weight
            elif item.weights:
                weights.append(sample.weight)
                records.append(figures.records)
            figures.first = figures.first or place
            figures.samples += not joined
            figures.records += 1
            figures.bytes += sample.size
            if again and not joined and len(figures.shown) < SHOWN:
                figures.shown.append(place)
            last = place
            ordered = OrderedSample(joined, group, len(sample.key), sample.offset, sample.size, sample.digest)
            pieces.append(ordered.pack(item.span))
            waiting += len(pieces[-1])
            if waiting > GATHERED:
                sink.write(b"".join(pieces))
                pieces, waiting = [], 0
        sink.write(b"".join(pieces))
    figures.last = last
    if item.weights:
        columns = weights.tobytes() + (records.tobytes() if figures.records > figures.samples else b"")
        figures.weights = spill.put(file_name("weights", item.span), columns)
    return figures


class KeysItem(NamedTuple):
    """A key part. `section` is the number of its section in the lists.

    In one of the first `scattered` inputs a key may come again.
    """

    section: int
    group_table: Blob
    scattered: int

    def __repr__(self) -> str:
        return f"section {self.section} of the keys"


class KeysFigures(NamedTuple):
    """How many keys of a key part are in two inputs or more, and some of them."""

    repeated: int
    shown: list[KeyPlace]


def compare_keys(item: KeysItem, context: TaskContext, run: Run) -> KeysFigures:
    """Find the keys that several inputs have, among those of a key part."""
    spill, keys = context.spill, Multimap(run.tmpdir)
    for section in read_sections(spill, item.group_table, item.section):
        for key, number, start in unpack_keyed(section):
            keys.add(key, _SEEN.pack(number, start))
    count, shown = 0, list[KeyPlace]()
    for key, values in keys.repeated():
        (first, _), *others = sorted(_SEEN.unpack(value) for value in values)
        for number, start in others:
            if number != first or number >= item.scattered:
                count += 1
                if len(shown) < SHOWN:
                    shown.append(KeyPlace(key, number, start, first))
    return KeysFigures(count, shown)
