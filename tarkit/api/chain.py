"""A chain: where samples come from, and the steps that they go through. `dataset.Dataset` has its methods for users."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, cast

from tarkit.api.output import object_name
from tarkit.api.run import Run
from tarkit.api.steps import Change, Choose, Flow, Reader, Step
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location, expand_inputs

if TYPE_CHECKING:
    Input = str | os.PathLike[str] | BinaryIO


class Origin(Protocol):
    """Where the samples of a dataset come from: archives, or other datasets."""

    @property
    def locations(self) -> tuple[Location, ...]:
        """All archives."""

    @property
    def whole(self) -> bool:
        """Whether all of their samples are read, in order."""

    def open(self, run: Run, tmpdir: str | None, *, gather: bool, stream: bool, spool: bool) -> Reader:
        """Begin to read for a run.

        Args:
            tmpdir: the directory of temporary files.
            gather: whether a step puts samples that are scattered together.
            stream: whether files are to be read in order.
            spool: whether all is read several times.
        """


@dataclass
class Archives:
    """Archives that are read one after another: `shard_slice` of each, of which `interleave` take turns.

    With `spool` streams are kept in temporary files, so that several runs can be made.
    """

    locations: tuple[Location, ...]
    shard_slice: Slice | None = None
    interleave: int = 1
    prefetch: int = 0
    spool: bool = False

    def __post_init__(self) -> None:
        self._kept: DatasetReader | None = None

    @property
    def whole(self) -> bool:
        """Whether all of their samples are read."""
        return self.shard_slice is None

    def open(self, run: Run, tmpdir: str | None, *, gather: bool, stream: bool, spool: bool) -> DatasetReader:
        """Begin to read for a run; see `Origin`."""
        if self._kept is not None:
            self._kept.policy = run.policy
            return self._kept
        reader = DatasetReader(
            self.locations,
            run.policy,
            gather=gather and self.shard_slice is None,
            stream=stream and not self.spool,
            shard_slice=self.shard_slice,
            mix=self.interleave,
            ahead=self.prefetch,
            spool=spool or self.spool,
            tmpdir=tmpdir,
        )
        reader.announce = lambda name: run.note(f"reading {name}") if reader.policy is run.policy else None
        self._kept = reader if self.spool else None
        return reader


class Chain:
    """Samples of one or many archives, with the steps that they go through."""

    def __init__(self, origin: Origin, start: Callable[[], Run], steps: tuple[Step, ...] = ()) -> None:
        """Use `tarkit.open`. `start` begins a run over the dataset."""
        self._origin = origin
        self.start = start
        self._steps = steps

    @property
    def locations(self) -> tuple[Location, ...]:
        """The archives, in order."""
        return self._origin.locations

    @property
    def unchanged(self) -> bool:
        """Whether all samples come as they are, in the order that they have."""
        return not self._steps and self._origin.whole

    @property
    def keeps_all(self) -> bool:
        """Whether about as many bytes come out as there are."""
        return self._origin.whole and all(step.keeps_all for step in self._steps)

    def samples(
        self, run: Run, *, moves: bool = True, directory: str | None = None, spool: bool = False
    ) -> tuple[Iterator[TarSample], Flow]:
        """Begin a run: the samples as ranges of bytes behind all steps, and what the run knows of them.

        Args:
            run: where problems and counts go.
            moves: whether samples are written somewhere, which hard links between samples cannot bear.
            directory: that of the output, for temporary files.
            spool: whether streams are kept in temporary files, so that the inputs can be read twice.
        """
        origin, steps = self._origin, self._steps
        inputs = origin.open(
            run,
            run.scratch(directory),
            gather=_gathers(steps),
            stream=any(step.streams(origin.locations, run) for step in steps),
            spool=spool or any(step.rereads for step in steps),
        )
        inputs.moves = moves
        flow = Flow(run, inputs, distinct=len(origin.locations) > 1)
        samples = iter(inputs)
        for number, step in enumerate(steps):
            flow.again = partial(self._again, flow, number)
            samples = step(samples, flow)
        flow.again = partial(self._again, flow, len(steps))
        return samples, flow

    def _again(self, flow: Flow, number: int, policy: Policy) -> Iterator[TarSample]:
        """The samples in front of step `number`."""
        inputs = flow.inputs
        before, inputs.policy = inputs.policy, policy
        try:
            inner = Flow(Run(policy, inputs.tmpdir), inputs, distinct=len(self.locations) > 1)
            samples = iter(inputs)
            for step in self._steps[:number]:
                samples = step(samples, inner)
            yield from samples
        finally:
            inputs.policy = before

    def choose(self, select: Select) -> Self:
        """Add a choice of samples."""
        return self if select.all else self.then(Choose(select))

    def change(self, fields: Fields) -> Self:
        """Add a choice of fields and names."""
        return self if fields.all else self.then(Change(fields))

    def then(self, step: Step) -> Self:
        """Add a step."""
        return type(self)(self._origin, self.start, (*self._steps, step))


def _gathers(steps: Sequence[Step]) -> bool:
    """Whether a step puts parts of samples together before another one counts samples."""
    for step in steps:
        if step.gathers:
            return True
        if step.counts:
            return False
    return False


def locate(inputs: Input | Iterable[Input]) -> tuple[Location, ...]:
    """The archives that are named: words as on the command line, and file objects."""
    if isinstance(inputs, (str, os.PathLike)):
        return tuple(expand_inputs((os.fspath(inputs),)))
    if isinstance(inputs, Iterable) and not hasattr(inputs, "read"):
        return tuple(location for each in inputs for location in locate(each))
    file = cast(BinaryIO, inputs)
    return (Location("object", "", object_name(file), file),)
