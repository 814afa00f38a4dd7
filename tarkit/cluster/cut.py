"""Where shards begin in the order: the client finds it from the weights of samples that the third pass has written."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tarkit.cluster.merge import SpanFigures
from tarkit.cluster.shared import Spill
from tarkit.shards.limits import Limits


class ShardStart(NamedTuple):
    """Where a shard begins: a span, a record in it, and the number of its first sample in the whole order."""

    span: int
    record: int
    sample: int


def find_starts(spill: Spill, spans: Sequence[SpanFigures], limits: Limits, ahead: int) -> list[ShardStart]:
    """Return where shards begin, in order; `ahead` is the weight of the entries before the first sample.

    Shards of equally many samples begin where the numbers of samples of the spans say. Others are found span after
    span, since a shard begins where the one before it is full; sums of weights take no time for each sample.
    """
    firsts = [0, *accumulate(span.samples for span in spans)]
    whole = all(span.samples == span.records for span in spans)
    if limits.size is None and limits.count is not None and whole:
        numbers = range(0, firsts[-1], limits.count)
        places = [(bisect_right(firsts, number) - 1, number) for number in numbers]
        return [ShardStart(span, number - firsts[span], number) for span, number in places]
    starts: list[ShardStart] = []
    samples, weight = 0, ahead  # of the shard that is open
    for span, figures in enumerate(spans):
        sums, records = _read_weights(spill, figures)
        at = before = 0
        while at < figures.samples:
            end = limits.end(sums, at, before, samples, weight)
            if not samples:
                starts.append(ShardStart(span, records[at] if records else at, firsts[span] + at))
            if end < figures.samples:
                samples, weight, at, before = 0, 0, end, sums[end - 1] if end else 0
            else:  # it goes on in the next span
                samples, weight = samples + figures.samples - at, weight + sums[-1] - before
                at = figures.samples
    return starts


def _read_weights(spill: Spill, figures: SpanFigures) -> tuple[Sequence[int], Sequence[int]]:
    """Return the sums of the weights of samples; and the first record of each, if some have several."""
    if figures.weights is None:
        return (), ()
    columns = memoryview(spill.get(figures.weights)).cast("Q")
    return array("Q", accumulate(columns[: figures.samples])), columns[figures.samples :]
