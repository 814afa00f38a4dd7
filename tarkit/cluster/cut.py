"""The fourth pass: where shards begin in the order. It reads sizes, not samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from tarkit.api.run import Run
from tarkit.cluster.call import PassRunner, TaskContext
from tarkit.cluster.order import SpanFigures
from tarkit.cluster.records import OrderedSample, read_order
from tarkit.shards.limits import Limits
from tarkit.tar.block import BLOCK, RECORD


class ShardStart(NamedTuple):
    """Where a shard begins: a range, a record in it, and the number of its first sample in the whole order."""

    span: int
    record: int
    sample: int


@dataclass(frozen=True)
class OpenShard:
    """The shard that is open at a border between two ranges: its samples, its length so far, its bytes of payload.

    `ahead` are length and payload of what stands in front of the first sample of all.
    """

    samples: int = 0
    position: int = 0
    content: int = 0
    ahead: tuple[int, int] = (0, 0)

    def is_full(self, limits: Limits, size: int) -> bool:
        """Return whether the shard closes before a sample of this size: the rules of `shards.writer.SeriesWriter`."""
        if not self.samples:
            return False
        if limits.count is not None and self.samples >= limits.count:
            return True
        if limits.size is None:
            return False
        if limits.rule == "content":
            return self.content >= limits.size
        return -(-(self.position + size + 2 * BLOCK) // RECORD) * RECORD > limits.size

    def plus(self, size: int, content: int) -> OpenShard:
        """Return the shard with one more sample."""
        return OpenShard(self.samples + 1, self.position + size, self.content + content)


class CutItem(NamedTuple):
    """A range to cut, the shard that is open at its start, and the number of its first sample."""

    span: int
    records: int
    first: int
    opened: OpenShard
    limits: Limits

    def __repr__(self) -> str:
        return f"range {self.span} of the order"


class CutResult(NamedTuple):
    """The shards that begin in a range, and the one that is open at its end."""

    starts: list[ShardStart]
    opened: OpenShard


def cut_span(item: CutItem, context: TaskContext, run: Run) -> CutResult:
    """Find where shards begin in a range."""
    starts: list[ShardStart] = []
    opened, sample = item.opened, item.first
    for record, size, content in _samples(read_order(context.spill, item.span, 0, item.records)):
        size, content = size + opened.ahead[0], content + opened.ahead[1]
        if opened.is_full(item.limits, size):
            opened = OpenShard()
        if not opened.samples:
            starts.append(ShardStart(item.span, record, sample))
        opened = opened.plus(size, content)
        sample += 1
    return CutResult(starts, opened)


def _samples(records: Iterator[OrderedSample]) -> Iterator[tuple[int, int, int]]:
    """Yield (first record, size, content) of each sample, with all parts that are joined to it."""
    first, size, content = -1, 0, 0
    for number, each in enumerate(records):
        if not each.joined:
            if first >= 0:
                yield first, size, content
            first, size, content = number, 0, 0
        size += each.size
        content += each.content
    if first >= 0:
        yield first, size, content


def find_starts(
    passes: PassRunner, spans: Sequence[SpanFigures], limits: Limits, ahead: tuple[int, int]
) -> list[ShardStart]:
    """Return where shards begin, in order; `ahead` is the size and content of what stands before the first sample.

    Shards of equally many samples begin where the numbers of samples of the ranges say. Others are found range after
    range, since a shard begins where the one before it is full.
    """
    firsts = [0, *accumulate(span.samples for span in spans)]
    whole = all(span.samples == span.records for span in spans)
    if limits.size is None and limits.count is not None and whole:
        numbers = range(0, firsts[-1], limits.count)
        return [ShardStart(*_place(firsts, number), number) for number in numbers]
    starts: list[ShardStart] = []
    opened = OpenShard(ahead=ahead)
    for span, figures in enumerate(spans):
        if figures.samples:
            item = CutItem(span, figures.records, firsts[span], opened, limits)
            for found in passes.results(cut_span, [item]):
                starts += found.starts
                opened = found.opened
    return starts


def _place(firsts: Sequence[int], number: int) -> tuple[int, int]:
    """Return the range of a sample, and its place there."""
    span = bisect_right(firsts, number) - 1
    return span, number - firsts[span]
