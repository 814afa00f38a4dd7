"""The first pass: count the samples of each input, which gives each its number, and draw some of their sort keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.call import TaskContext, chain_of, describe
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow, Step
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Slice
from tarkit.sorting.order import Order
from tarkit.streams.location import Location

PREFIX = 64  # bytes of a drawn sort key: a border between two spans needs no more


class ScanItem(NamedTuple):
    """Inputs to scan. `draw` is how many sort keys are drawn."""

    locations: tuple[Location, ...]
    shard_slice: Slice | None
    before: tuple[Step, ...]
    order: Order
    draw: int

    def __repr__(self) -> str:
        return f"scan of {describe(self.locations)}"


class InputFigures(NamedTuple):
    """The samples of an input, and their bytes."""

    samples: int
    bytes: int


class ScanResult(NamedTuple):
    """The figures of each input, and the sort keys that were drawn."""

    inputs: list[InputFigures]
    drawn: list[bytes]


@dataclass(eq=False, repr=False)
class Gathering(Step):
    """Has inputs read as the step that follows in a later pass needs it."""

    order: Order

    @property
    def gathers(self) -> bool:
        """Whether parts of a sample may be scattered."""
        return self.order.gathers

    def __call__(self, samples: Iterator[TarSample], flow: Flow) -> Iterator[TarSample]:
        """Return the samples. Objects are read in order, unless their samples are large: then by headers alone."""
        if flow.by_headers and isinstance(flow.inputs, DatasetReader):
            flow.inputs.reordered = True
        return samples


def scan_inputs(item: ScanItem, context: TaskContext, run: Run) -> ScanResult:
    """Count the samples of some inputs. Problems that do not end the run are left to the pass that follows."""
    silent = Run(run.policy.silent(), run.tmpdir)
    result = ScanResult([], [])
    drawn: list[tuple[int, int, bytes]] = []
    key = item.order.key
    for location in item.locations:
        chain = chain_of((location,), item.shard_slice, (*item.before, Gathering(item.order)), silent)
        samples, flow = chain.samples(silent)
        count = size = 0
        previous: TarSample | None = None
        with flow:
            for sample in samples:
                size += previous.size if previous is not None else 0  # now its end is known
                previous = sample
                if sample.key is None:
                    continue
                if key is not None:
                    rank = key(sample, count)
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
