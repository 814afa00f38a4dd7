"""Positions of all workers together: what is left of each epoch, divided among any other number of nodes and workers.

With `shuffle="full"` what is left is a part of the random order of all samples: a plan says how many samples each
worker has given, for each number of workers that an epoch had. Else it is the units that nobody has opened, the rest of
each open one, and single samples of shuffle buffers. A unit is a shard, or rows of a view, which are divided equally.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tarkit.errors import Usage
from tarkit.loading.division import WorkerPlace
from tarkit.loading.epoch import Shards
from tarkit.loading.identity import marks_as_text
from tarkit.loading.order import Unit
from tarkit.loading.state import Plan, Progress
from tarkit.sizes import plural

Positions = Mapping[WorkerPlace, Progress]
"""Of each worker of all nodes its position."""


def find_states(state: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the states of loaders in a state: itself, those of a list, those in states of StatefulDataLoader.

    Raises:
        Usage: a state of StatefulDataLoader that is older than its last batch.
    """
    if isinstance(state, Mapping):
        if "version" in state and "shards" in state:
            yield state
            return
        if state.get("_steps_since_snapshot"):
            raise Usage(
                "the state of a StatefulDataLoader is older than its last batch", "give snapshot_every_n_steps=1"
            )
    if isinstance(state, (Mapping, list, tuple)):
        for each in state.values() if isinstance(state, Mapping) else state:
            yield from find_states(each)


def check_whole(positions: Positions) -> None:
    """Raise Usage unless these are the positions of all workers of all nodes, in one iteration."""
    hint = "give a list of the states of all, as each node has stored them at one time"
    first = next(iter(positions))
    if other := next((place for place in positions if place.parts != first.parts or place.world != first.world), None):
        raise Usage(f"positions of {first.describe()}, and of {other.describe()}: they are of different runs", hint)
    for place in first.all():
        if place not in positions:
            given = f"{plural(len(positions), 'position')} of {first.describe()}"
            raise Usage(f"{given}: that of worker {place.worker} on node {place.rank} is missing", hint)
    iterations = {(each.following, each.epochs and each.epoch + each.epochs) for each in positions.values()}
    if len(iterations) > 1:
        raise Usage("the positions are not of the same iteration: their epochs differ", hint)


def continue_here(positions: Positions, place: WorkerPlace, shards: Shards) -> Progress:
    """Return the position at which a worker of another number of workers continues.

    Raises:
        Usage: what is left cannot be divided.
    """
    settings = shards.settings
    for name, value in (("resample", settings.resample), ("length", settings.length is not None)):
        if value:
            raise Usage(f"{name} gives each worker samples of its own: {_same(positions)}")
    if settings.equal == "repeat" or (settings.equal and not shards.by_sample):
        raise Usage(f"equal={settings.equal!r} counts the samples of each worker in an epoch: {_same(positions)}")
    if settings.full and shards.data.opaque:
        raise Usage(f"behind map samples have no numbers: {_same(positions)}", "transform of the loader has numbers")
    if any(each.skip for each in positions.values()):
        raise Usage(f"a worker stopped within the values that transform gives of one sample: {_same(positions)}")
    first = min(each.epoch for each in positions.values())
    last = max(epoch for each in positions.values() for epoch in (each.epoch, *(entry[0] for entry in each.later)))
    of_first = next(each for each in positions.values() if each.epoch == first)
    later = tuple(_left(positions, epoch, place, shards) for epoch in range(first, last + 1))
    marks = dict(chain.from_iterable(shards.marks_in(each).items() for each in positions.values()))
    progress = Progress(first, of_first.epochs, of_first.following, later=later, marks=marks_as_text(marks))
    return progress.resolved()


def _left(positions: Positions, epoch: int, place: WorkerPlace, shards: Shards) -> Plan:
    """Return the part of a worker of what is left of an epoch: its number, the plan, `taken` and `given`."""
    if shards.settings.full:
        return epoch, _rows_given(positions, epoch), (), 0
    units, samples = _left_in(positions, epoch, shards)
    own, single, given = shards.divided(units, samples, place)
    return epoch, tuple(own), tuple(single), given


def _same(positions: Positions) -> str:
    return f"the position continues on {next(iter(positions)).describe()}"


def _plan(progress: Progress, epoch: int) -> tuple[Plan | None, Sequence[tuple[int, int]]]:
    """Return the plan of a worker for an epoch, from the one that it is in on, and single samples that come first."""
    if epoch != progress.epoch:
        progress = progress._replace(epoch=epoch, plan=None, taken=()).resolved()
    return progress.plan, progress.taken


def _rows_given(positions: Positions, epoch: int) -> Plan:
    """Return the plan of an epoch of all samples: what each worker has given, after the plan that they had."""
    places = next(iter(positions)).all()
    begun = [each for each in positions.values() if each.epoch == epoch and each.block]
    block = next((each.block for each in (*begun, *positions.values()) if each.epoch >= epoch and each.block), 1)
    before = next((plan for each in positions.values() if each.epoch <= epoch and (plan := _plan(each, epoch)[0])), ())
    given, taken = [], []
    for progress in (positions[place] for place in places):
        here = progress.epoch == epoch
        count = 0 if progress.epoch < epoch else -1
        if here:
            count = progress.open[0][1] if progress.open else -1 if progress.opened else 0
        given.append(count)
        taken.append(tuple(number for _, number in progress.taken) if here else ())
    return (*before, (places[0].world, places[0].workers, block, tuple(given), tuple(taken)))


def _left_in(positions: Positions, epoch: int, shards: Shards) -> tuple[list[Unit], list[tuple[int, int]]]:
    """Return what is left of an epoch: units from their next samples on, and single samples."""
    units: list[Unit] = []
    samples: list[tuple[int, int]] = []
    for place in next(iter(positions)).all():
        progress = positions[place]
        if progress.epoch > epoch:
            continue
        plan, own = _plan(progress, epoch)
        rest = list(shards.order(epoch, place) if plan is None else plan)
        if progress.epoch == epoch:
            rest = [*progress.open, *rest[progress.opened :]]
            own = [*own, *progress.buffer]
        samples += own
        units += rest
    return units, samples
