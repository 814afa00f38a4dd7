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
from tarkit.loading.identity import marks_as_text
from tarkit.loading.mixed import ABSENT, MixedShards, first_pass
from tarkit.loading.order import PASSES, Unit, time_of
from tarkit.loading.shards import Shards
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


def check_complete(positions: Positions) -> None:
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
    check_divisible(positions, shards)
    first, last = _epochs(positions)
    of_first = next(each for each in positions.values() if each.epoch == first)
    later = tuple(_left(positions, epoch, place, shards) for epoch in range(first, last + 1))
    progress = Progress(first, of_first.epochs, of_first.following, later=later, marks=_marks(positions, shards))
    return progress.resolved()


def check_divisible(positions: Positions, shards: Shards | MixedShards) -> None:
    """Raise Usage if what is left at positions cannot be divided among other workers."""
    settings = shards.settings
    for name, value in (("resample", settings.resample), ("length", settings.length is not None)):
        if value:
            raise Usage(f"{name} gives each worker samples of its own: {_same(positions)}")
    divisible = isinstance(shards, Shards) and shards.by_sample and settings.equal == "drop"
    if settings.equal is not None and not divisible:
        raise Usage(f"equal={settings.equal!r} counts the samples of each worker in an epoch: {_same(positions)}")
    for each in shards.sources if isinstance(shards, MixedShards) else [shards]:
        if settings.full and each.data.opaque:
            raise Usage(
                f"behind map samples have no numbers: {_same(positions)}", "transform of the loader has numbers"
            )
    if any(each.skip for one in positions.values() for each in (one, *one.sources)):
        raise Usage(f"a worker stopped within the values that transform gives of one sample: {_same(positions)}")


def _epochs(positions: Positions) -> tuple[int, int]:
    """Return the first epoch that is not over, and the last that a worker has begun."""
    return min(each.epoch for each in positions.values()), max(_begun(positions))


def _begun(positions: Positions) -> Iterator[int]:
    """Yield the epochs that workers have begun, of each worker those that are not over."""
    return (epoch for each in positions.values() for epoch in (each.epoch, *(entry[0] for entry in each.later)))


def _marks(positions: Positions, shards: Shards) -> str:
    """Return the marks of the shards that workers have opened, as a position stores them."""
    return marks_as_text(dict(chain.from_iterable(shards.marks_in(each).items() for each in positions.values())))


def continue_mix(positions: Positions, place: WorkerPlace, mixed: MixedShards) -> Progress:
    """Return the position in a mix at which a worker of another number of workers continues.

    Each source has what is left of it, as a dataset of its own has, in passes as in epochs. A worker whose epoch is
    over has left nothing, whatever it has not read of a source.

    Raises:
        Usage: what is left cannot be divided.
    """
    check_divisible(positions, mixed)
    first, last = _epochs(positions)
    of_first = next(each for each in positions.values() if each.epoch == first)
    over = {here for here, each in positions.items() if mixed.is_over(here, each)}
    sources = []
    for number, source in enumerate(mixed.sources):
        of_source = {here: _of_source(each, number, here in over) for here, each in positions.items()}
        sources.append(_source_left(of_source, (first, last), place, source))
    if all(here in over for here, each in positions.items() if each.epoch == first):
        passes = tuple(1 for _ in sources)
    else:
        passes = tuple(time_of(source.epoch)[1] for source in sources)
    later = tuple((epoch, (), (), _given_of_total(positions, epoch, place, mixed)) for epoch in range(first, last + 1))
    progress = Progress(first, of_first.epochs, of_first.following, later=later).resolved()
    return progress._replace(sources=tuple(sources), passes=passes)


def _of_source(progress: Progress, number: int, over: bool) -> Progress:
    """Return the position of a worker in a source of a mix; behind all passes of its epoch if it reads no more."""
    source = progress.sources[number] if progress.sources else first_pass(progress.epoch, 0)
    absent = bool(progress.passes) and progress.passes[number] == ABSENT
    return source._replace(epoch=progress.epoch + PASSES * PASSES) if absent or over else source


def _source_left(positions: Positions, epochs: tuple[int, int], place: WorkerPlace, source: Shards) -> Progress:
    """Return the position of a worker in a source: the first pass of which something is left, or the one behind."""
    passes: dict[int, list[int]] = {}
    for epoch, number in map(time_of, _begun(positions)):
        if number < PASSES:
            passes.setdefault(epoch, []).append(number)
    first, last = epochs
    found = passes.get(first, [0])
    start = next(
        (
            number
            for number in range(min(found), max(found) + 1)
            if _is_left(positions, first + PASSES * number, source)
        ),
        max(found) + 1,
    )
    numbers = [first + PASSES * number for number in range(start, max(found) + 1)]
    for epoch in range(first + 1, last + 1):
        numbers += [epoch + PASSES * number for number in range(max(passes.get(epoch, [0])) + 1)]
    later = tuple(_left(positions, number, place, source) for number in numbers)
    return first_pass(first, start, later)._replace(marks=_marks(positions, source))


def _is_left(positions: Positions, epoch: int, shards: Shards) -> bool:
    """Return whether anything is left of an epoch."""
    if shards.settings.full:
        return bool(shards.left(epoch, _rows_given(positions, epoch)))
    return any(_left_in(positions, epoch, shards))


def _given_of_total(positions: Positions, epoch: int, place: WorkerPlace, mixed: MixedShards) -> int:
    """Return how many samples of a worker count as given in an epoch of a mix, so that the rest of `total` is left."""
    left = 0
    for here, progress in positions.items():
        if progress.epoch > epoch or (progress.epoch == epoch and mixed.is_over(here, progress)):
            continue
        if progress.epoch < epoch:
            progress = progress._replace(epoch=epoch, given=0, plan=None).resolved()
        left += (mixed.part_of_total(here) or 0) - progress.given
    total = mixed.part_of_total(place)
    return 0 if total is None else total - len(place.divide(range(left)))


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
    every, time = positions.values(), time_of(epoch)
    block = next((each.block for each in (*begun, *every) if time_of(each.epoch) >= time and each.block), 1)
    before = next((plan for each in every if time_of(each.epoch) <= time and (plan := _plan(each, epoch)[0])), ())
    given, taken = [], []
    for progress in (positions[place] for place in places):
        here = progress.epoch == epoch
        count = 0 if time_of(progress.epoch) < time else -1
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
        if time_of(progress.epoch) > time_of(epoch):
            continue
        plan, own = _plan(progress, epoch)
        rest = list(shards.order(epoch, place) if plan is None else plan)
        if progress.epoch == epoch:
            rest = [*progress.open, *rest[progress.opened :]]
            own = [*own, *progress.buffer]
        samples += own
        units += rest
    return units, samples
