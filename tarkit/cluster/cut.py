"""The fourth pass: where shards begin in the order. It reads sizes, not samples."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tarkit.cluster.call import PassRunner, TaskContext
from tarkit.cluster.merge import SpanFigures, SpanSizes
from tarkit.cluster.shared import Blob
from tarkit.pipeline.run import Run
from tarkit.shards.limits import Limits
from tarkit.tar.block import BLOCK, RECORD


class ShardStart(NamedTuple):
    """Where a shard begins: a span, a record in it, and the number of its first sample in the whole order."""

    span: int
    record: int
    sample: int


class OpenShard(NamedTuple):
    """The shard that is open at a border between two spans: its samples, its length so far, its bytes of payload.

    At the start of all it has no sample, but what stands in front of the first one.
    """

    samples: int = 0
    position: int = 0
    content: int = 0


class CutItem(NamedTuple):
    """A span to cut: its sizes, the number of its first sample, and the shard that is open at its start."""

    span: int
    sizes: Blob
    samples: int
    records: int
    first: int
    opened: OpenShard
    limits: Limits

    def __repr__(self) -> str:
        return f"range {self.span} of the order"


class CutResult(NamedTuple):
    """The shards that begin in a span, and the one that is open at its end."""

    starts: list[ShardStart]
    opened: OpenShard


def cut_span(item: CutItem, context: TaskContext, run: Run) -> CutResult:
    """Find where shards begin in a span, by the rules of `shards.writer.SeriesWriter`.

    Where one ends is looked up in the sums of sizes, so that it takes no time for each sample.
    """
    weighs = item.limits.rule == "content"
    sizes = SpanSizes.unpack(context.spill.get(item.sizes), item.samples, weighs, item.records > item.samples)
    ends = array("Q", accumulate(sizes.sizes, initial=0))
    contents = array("Q", accumulate(sizes.contents, initial=0)) if weighs else array("Q")
    starts: list[ShardStart] = []
    opened, at = item.opened, 0
    while at < item.samples:
        following = _end_of_shard(opened, at, ends, contents, item.limits)
        if not opened.samples:
            starts.append(ShardStart(item.span, sizes.records[at] if sizes.records else at, item.first + at))
        if following >= item.samples:
            samples, size = opened.samples + item.samples - at, opened.position + ends[-1] - ends[at]
            content = opened.content + (contents[-1] - contents[at] if weighs else 0)
            return CutResult(starts, OpenShard(samples, size, content))
        opened, at = OpenShard(), following
    return CutResult(starts, opened)


def _end_of_shard(opened: OpenShard, first: int, ends: Sequence[int], contents: Sequence[int], limits: Limits) -> int:
    """Return the number of the first sample that the shard whose next sample is `first` does not take."""
    found = [len(ends)]
    if limits.count is not None:
        found.append(first + limits.count - opened.samples)
    if limits.size is not None and limits.rule == "content":
        found.append(bisect_left(contents, limits.size - opened.content + contents[first]))
    elif limits.size is not None:
        longest = limits.size // RECORD * RECORD - 2 * BLOCK  # of the entries of a tar that is as long as allowed
        found.append(bisect_right(ends, longest - opened.position + ends[first]) - 1)
    return max(min(found), first + (not opened.samples))


def find_starts(
    runner: PassRunner, spans: Sequence[SpanFigures], limits: Limits, ahead: tuple[int, int]
) -> list[ShardStart]:
    """Return where shards begin, in order; `ahead` is the size and content of what stands before the first sample.

    Shards of equally many samples begin where the numbers of samples of the spans say. Others are found span after
    span, since a shard begins where the one before it is full.
    """
    firsts = [0, *accumulate(span.samples for span in spans)]
    whole = all(span.samples == span.records for span in spans)
    if limits.size is None and limits.count is not None and whole:
        numbers = range(0, firsts[-1], limits.count)
        return [ShardStart(*_place(firsts, number), number) for number in numbers]
    starts: list[ShardStart] = []
    opened = OpenShard(0, *ahead)
    for span, figures in enumerate(spans):
        if figures.samples:
            assert figures.sizes is not None
            item = CutItem(span, figures.sizes, figures.samples, figures.records, firsts[span], opened, limits)
            for found in runner.results(cut_span, [item]):
                starts += found.starts
                opened = found.opened
    return starts


def _place(firsts: Sequence[int], number: int) -> tuple[int, int]:
    """Return the span of a sample, and its place there."""
    span = bisect_right(firsts, number) - 1
    return span, number - firsts[span]
