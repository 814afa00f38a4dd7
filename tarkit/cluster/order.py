"""The third pass: merge the lists of all groups for each range of the order; and compare keys, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tarkit.api.run import Run
from tarkit.cluster.call import TaskContext
from tarkit.cluster.records import (
    GroupTable,
    ListedSample,
    OrderedSample,
    order_name,
    read_sections,
    unpack_keyed,
    unpack_listed,
)
from tarkit.cluster.spill import Blob
from tarkit.spill.multimap import Multimap
from tarkit.spill.records import by_rank
from tarkit.tar.writer import GATHERED

SHOWN = 4  # repeated keys of one task that are reported one by one
_PLACED = Struct("<IIQ")  # input, group, start: of a record that is sorted
_SEEN = Struct("<IQ")  # input, start


class OrderItem(NamedTuple):
    """A range of the order. With `joins` samples of one key that come one after the other become one."""

    span: int
    groups: Blob
    joins: bool

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
    """What the client keeps of a range.

    Attributes:
        samples, records: how many samples it has, and of how many parts they are.
        bytes: those of all parts.
        first, last: the first and the last key.
        adjacent: how many samples have the key of the one before them.
        shown: the first of these.
    """

    samples: int = 0
    records: int = 0
    bytes: int = 0
    first: KeyPlace | None = None
    last: KeyPlace | None = None
    adjacent: int = 0
    shown: list[KeyPlace] = field(default_factory=list)


def order_span(item: OrderItem, context: TaskContext, run: Run) -> SpanFigures:
    """Write the order of the samples of a range."""
    spill, figures = context.spill, SpanFigures()
    rows = GroupTable.unpack(spill.get(item.groups))

    def listed() -> Iterator[tuple[bytes, bytes]]:
        for group, section in enumerate(read_sections(spill, rows, 1 + item.span)):
            for each in unpack_listed(section):
                yield each.rank, _PLACED.pack(each.input, group, each.start) + each._replace(rank=b"").pack()

    pieces: list[bytes] = []
    waiting = 0
    last: KeyPlace | None = None
    with spill.create(order_name(item.span)) as sink:
        for record in by_rank(listed(), run.tmpdir):
            number, group, start = _PLACED.unpack_from(record)
            (sample,) = unpack_listed(record[_PLACED.size :])
            place = KeyPlace(sample.key, number, start, number if last is None else last.input)
            again = last is not None and last.key == sample.key
            _count(figures, sample, place, again and item.joins)
            if again and not item.joins:
                figures.adjacent += 1
                figures.shown += [place] if len(figures.shown) < SHOWN else []
            last = place
            pieces.append(_ordered(sample, group, again and item.joins).pack())
            waiting += len(pieces[-1])
            if waiting > GATHERED:
                sink.write(b"".join(pieces))
                pieces, waiting = [], 0
        sink.write(b"".join(pieces))
    figures.last = last
    return figures


def _count(figures: SpanFigures, sample: ListedSample, place: KeyPlace, joined: bool) -> None:
    figures.first = figures.first or place
    figures.samples += not joined
    figures.records += 1
    figures.bytes += sample.size


def _ordered(sample: ListedSample, group: int, joined: bool) -> OrderedSample:
    return OrderedSample(joined, group, len(sample.key), sample.offset, sample.size, sample.content, sample.digest)


class KeysItem(NamedTuple):
    """A part of the keys. `section` is the number of its section in the lists."""

    section: int
    groups: Blob


class KeysFigures(NamedTuple):
    """How many keys of a part are in two inputs or more, and some of them."""

    repeated: int
    shown: list[KeyPlace]


def compare_keys(item: KeysItem, context: TaskContext, run: Run) -> KeysFigures:
    """Find the keys that several inputs have, among those of a part."""
    spill, keys = context.spill, Multimap(run.tmpdir)
    for section in read_sections(spill, GroupTable.unpack(spill.get(item.groups)), item.section):
        for key, number, start in unpack_keyed(section):
            keys.add(key, _SEEN.pack(number, start))
    count, shown = 0, list[KeyPlace]()
    for key, values in keys.repeated():
        (first, _), *others = sorted(_SEEN.unpack(value) for value in values)
        for number, start in others:
            if number != first:
                count += 1
                if len(shown) < SHOWN:
                    shown.append(KeyPlace(key, number, start, first))
    return KeysFigures(count, shown)
