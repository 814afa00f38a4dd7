"""The samples of one shard, from a position on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tarkit.dataset import Dataset
from tarkit.indexing.indexed import IndexedDataset
from tarkit.loading.order import Unit
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import WHOLE, Sample, wrap_samples
from tarkit.pipeline.steps import Flow, Step
from tarkit.samples.dataset import ComingKeys, InputReader
from tarkit.samples.groups import LONGEST
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location
from tarkit.streams.source import Source


class Position(Step):
    """Count the samples that pass, and skip those before a position.

    Attributes:
        number: the number of the next sample.
        only: the numbers of the samples that pass; None for all from `number` on.
    """

    reads = "headers"

    def __init__(self, start: int = 0, only: Collection[int] | None = None, *, skip: bool = True) -> None:
        """Choose the samples that pass.

        Args:
            start: the number of the first sample that passes.
            only: in place of this, the numbers of the samples that pass, none below `start`.
            skip: whether the samples before `start` come, too.
        """
        self.number = start
        self.only = only
        self._skip = skip

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples from the position on."""
        if self.only is None:
            return self._from_start(batches)
        samples = singly(batches)
        for _ in range(self.number if self._skip else 0):
            next(samples, None)
        return self._chosen(samples, self.only)

    def _from_start(self, batches: Iterator[SampleBatch]) -> Iterator[SampleBatch]:
        start, number = self.number, 0 if self._skip else self.number
        for batch in batches:
            count, skip = len(batch.keys), max(start - number, 0)
            if skip < count and type(batch) is SampleBatch:
                yield CountedBatch(batch.part(skip, count), self, number + skip)
            elif skip < count:
                for self.number, sample in enumerate(islice(batch, skip, None), number + skip + 1):
                    yield sample
            number += count

    def _chosen(self, samples: Iterator[TarSample], only: Collection[int]) -> Iterator[TarSample]:
        remaining = len(only)
        for number, sample in enumerate(samples, self.number):
            if number in only:
                self.number, remaining = number + 1, remaining - 1
                yield sample
            if not remaining:
                return


class CountedBatch(SampleBatch):
    """Samples in a row, of which a position has the number of the next one when each is taken."""

    __slots__ = ("_number", "_position")

    def __init__(self, batch: SampleBatch, position: Position, number: int) -> None:
        """`number` is that of the first sample."""
        keys, stops, entries = batch.keys, batch.stops, batch.entries_held
        super().__init__(batch.source, batch.start, keys, stops, batch.contents, entries, batch.places, batch.first)  # type: ignore[arg-type]
        self.plain, self.rows = batch.plain, batch.rows
        self._position, self._number = position, number

    def part(self, begin: int, stop: int) -> SampleBatch:
        """Return samples [begin, stop), at least one."""
        part = super().part(begin, stop)
        return self if part is self else CountedBatch(part, self._position, self._number + begin)

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples."""
        position = self._position
        for position.number, sample in enumerate(super().__iter__(), self._number + 1):
            yield sample


class Cursor:
    """The samples of one shard, as they are read.

    The position counts the samples of the shard before any step; behind a function or command of the user, which may
    make several samples of one, it counts results.

    Attributes:
        shard: the number of the shard.
        stop: the number of the sample behind the last; -1 for all.
        position: the position.
        samples: the samples from the position on; an iterator.
        next: the number of the sample behind the latest that was taken of these.
    """

    def __init__(
        self,
        data: Dataset,
        unit: Unit,
        run: Run,
        position: Position,
        keep: Callable[[TarSample], TarSample] | None = None,
        begun: Callable[[Source], None] | None = None,
    ) -> None:
        """Open a shard.

        Args:
            data: the unit alone, and the steps.
            unit: what is read of which shard.
            run: where problems go.
            position: where to start.
            keep: keeps a large sample of a stream readable when the next one is requested.
            begun: called with the opened shard before its first sample.
        """
        self.shard, _, self.stop = unit
        self.position = position
        self.next = position.number
        chain = data.then(position) if data.opaque else data.first(position)
        batches, self._flow = chain.batches(run, moves=False)
        if begun is not None:
            self._flow.inputs.begun = begun
        self.samples = self._read(singly(batches), data, keep)

    def _read(
        self, samples: Iterator[TarSample], data: Dataset, keep: Callable[[TarSample], TarSample] | None
    ) -> Iterator[Sample]:
        flow = self._flow
        with flow:
            yield from wrap_samples(samples if keep is None else _keep_large(samples, keep), data._wrap)
            flow.finish()

    def close(self) -> None:
        """Close the shard, and end the processes of steps."""
        self.samples.close()  # type: ignore[attr-defined]
        self._flow.__exit__(None, None, None)


def _keep_large(samples: Iterator[TarSample], keep: Callable[[TarSample], TarSample]) -> Iterator[TarSample]:
    """Yield the samples; those that are not held in memory as a whole stay readable."""
    for sample in samples:
        large = sample.base is None and (sample.more is not None or sample.stop - sample.start > WHOLE)
        yield keep(sample) if large else sample


class ListedSamples:
    """The samples of an index with these numbers, in this order, as the origin of a dataset."""

    whole = False
    keys_may_repeat = True
    storage: StoreOptions | None = None

    def __init__(self, index: IndexedDataset, numbers: Sequence[int], locations: tuple[Location, ...]) -> None:
        self.locations = locations
        self._index = index
        self._numbers = numbers

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> ListedReader:
        """Begin to read for a run; see `tarkit.pipeline.chain.Origin`."""
        return ListedReader(self.locations, run.policy, tmpdir, index=self._index, numbers=self._numbers)


@dataclass(kw_only=True)
class ListedReader(InputReader):
    """The reader of `ListedSamples`."""

    index: IndexedDataset
    numbers: Sequence[int]

    def batches(self) -> Iterator[SampleBatch]:
        """Look the samples up."""
        batches = self.index.batches(self.numbers)
        return batches if self.coming is None else self._noted(singly(batches), self.coming)

    def _noted(self, samples: Iterator[TarSample], coming: ComingKeys) -> Iterator[TarSample]:
        """Yield the samples; note the keys of many before the first of them."""
        keys = self.index.keys_by_number
        for at, sample in enumerate(samples):
            if at % LONGEST == 0:
                coming.note([keys[number] for number in self.numbers[at : at + LONGEST]])
            yield sample
