"""The first pass: count the samples of each input, which gives each its number, and draw some of their sort keys."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.call import TaskContext, describe
from tarkit.cluster.plan import InputFigures
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow, Step
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sorting.order import Order
from tarkit.streams.location import Location

PREFIX = 64  # bytes of a drawn sort key: a border between two spans needs no more


class ScanItem(NamedTuple):
    """Inputs to scan. `draw` is how many sort keys are drawn."""

    locations: tuple[Location, ...]
    draw: int

    def __repr__(self) -> str:
        return f"scan of {describe(self.locations)}"


class ScanResult(NamedTuple):
    """The figures of each input, and the sort keys that were drawn."""

    inputs: list[InputFigures]
    drawn: list[bytes]


@dataclass(eq=False, repr=False)
class Gathering(Step):
    """Has inputs read as the step that follows in a later pass needs it."""

    order: Order

    def __post_init__(self) -> None:
        self.scope = self.order.scope

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Have objects read in order, unless their samples are large: then by headers alone."""
        inputs.reordered = all(step.reads == "headers" for step in before)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        return batches


def scan_inputs(item: ScanItem, context: TaskContext, run: Run) -> ScanResult:
    """Count the samples of some inputs. Problems that do not end the run are left to the pass that follows."""
    silent, order = Run(run.policy.silent(), run.tmpdir), context.ordering.order
    result = ScanResult([], [])
    drawn: list[tuple[int, int, bytes]] = []
    for location in item.locations:
        steps = (*context.ordering.before, Gathering(order))
        batches, flow = context.chain((location,), steps, silent).batches(silent)
        count = size = 0
        previous: TarSample | None = None
        with flow:
            for sample in singly(batches):
                size += previous.size if previous is not None else 0  # now its end is known
                previous = sample
                if sample.key is None:
                    continue
                if order.key is not None:
                    rank = order.key(sample, count)
                    if rank is not None:
                        drawn.append((-crc32(sample.key), len(drawn), rank[:PREFIX]))
                        if len(drawn) > 16 * item.draw:
                            drawn = heapq.nlargest(item.draw, drawn)
                count += 1
            size += previous.size if previous is not None else 0
            flow.finish()
        result.inputs.append(InputFigures(count, size))
    result.drawn.extend(rank for _, _, rank in heapq.nlargest(item.draw, drawn))
    return result


def choose_bounds(scans: Sequence[ScanResult], count: int) -> list[bytes]:
    """Return the first ranks of all spans but the first, such that spans have about equally many samples."""
    drawn: list[tuple[bytes, float]] = []
    for scan in scans:
        weight = sum(figures.samples for figures in scan.inputs) / max(1, len(scan.drawn))
        drawn += [(rank, weight) for rank in scan.drawn]
    drawn.sort()
    sums = list(accumulate(weight for _, weight in drawn))
    if not sums:
        return []
    places = [bisect_left(sums, sums[-1] * number / count) for number in range(1, count)]
    return sorted({drawn[place][0] for place in places})
