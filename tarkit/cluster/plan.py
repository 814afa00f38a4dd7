"""Orderings that a cluster can do, and their division into tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import NamedTuple

from tarkit.errors import Usage, spell
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.steps import Change, ChooseAmongAll, SampleFilter, Step
from tarkit.problems import Policy
from tarkit.sorting.keys import SortKey
from tarkit.sorting.order import Order
from tarkit.streams.location import portable_location

BLOCK_SIZE = 16_000_000
"""Bytes of a block that one task reads of the file of a group, about: a request for less costs more than its bytes."""

MEMORY = 1_000_000_000
"""Bytes that a task holds, unless the user says otherwise."""

SPAN = 16_000_000
"""Samples in a span, whose list one task merges."""

SCANS = 10_000
"""Tasks that scan inputs, at most."""

GROUPED = 1000
"""Inputs of one task that sorts a group, at most: their files are open together."""

DRAWN = 200_000
"""Sort keys that are drawn in all, about."""


class InputFigures(NamedTuple):
    """The samples of an input, and their bytes."""

    samples: int
    bytes: int


@dataclass(frozen=True)
class TaskDivision:
    """How the work is divided.

    Attributes:
        task_size: bytes of samples that one task sorts, or writes; None: as many as make blocks of BLOCK_SIZE bytes.
        span: samples in a span.
        scans: tasks that scan inputs, at most.
    """

    task_size: int | None = None
    span: int = SPAN
    scans: int = SCANS

    def size(self, total: int) -> int:
        """Return the bytes of one task, if there are `total` bytes."""
        return self.task_size or max(isqrt(total * BLOCK_SIZE), 1)

    def spans(self, samples: int) -> int:
        """Return the number of spans."""
        return max(1, -(-samples // self.span))

    def batches(self, count: int) -> Iterator[range]:
        """Yield the inputs that each task scans."""
        size = max(1, -(-count // self.scans))
        return (range(first, min(first + size, count)) for first in range(0, count, size))

    def groups(self, inputs: Sequence[InputFigures]) -> Iterator[range]:
        """Yield the inputs of each group, which are neighbours and together about as large as a task may be."""
        most = self.size(sum(figures.bytes for figures in inputs))
        first = held = 0
        for number, figures in enumerate(inputs):
            if number > first and (held + figures.bytes > most or number - first >= GROUPED):
                yield range(first, number)
                first, held = number, 0
            held += figures.bytes
        if len(inputs) > first:
            yield range(first, len(inputs))


@dataclass(frozen=True)
class Ordering:
    """A dataset that can be ordered on a cluster: its archives, the order, and the steps around it.

    Attributes:
        archives: the inputs, as workers find them.
        before, order, after: the steps.
        compares_keys: whether samples of one key that are no neighbours have to be found.
        gathers: whether these are parts of one sample, in two inputs; their keys are those before the last steps.
        joins: whether samples of one key that are neighbours become one.
    """

    archives: Archives
    before: tuple[Step, ...]
    order: Order
    after: tuple[Step, ...]
    compares_keys: bool
    gathers: bool
    joins: bool


def plan_ordering(data: Chain, policy: Policy) -> Ordering:
    """Return the ordering of a dataset. Raises Usage for one that passes on a cluster cannot do."""
    origin = data.origin
    if not isinstance(origin, Archives) or origin.mode != "tar" or origin.interleave > 1:
        raise _not_there("a mix, text, or inputs that are read in turn")
    places = [number for number, step in enumerate(data.steps) if isinstance(step, Order)]
    if len(places) != 1:
        raise Usage("one sort or shuffle is needed, not none or several", "for example data.shuffle(seed=7)")
    before, order, after = data.steps[: places[0]], data.steps[places[0]], data.steps[places[0] + 1 :]
    assert isinstance(order, Order)
    _check_steps(before, order, after)
    renames = any(isinstance(step, Change) and step.fields.rekey is not None for step in (*before, *after))
    _check_policy(policy)
    several = origin.keys_may_repeat
    keys_order = _by_key(order)
    joins = "joined-sample" in policy.allowed
    if order.gathers and several and joins and (after or not keys_order):
        message = f"{spell('allow', 'joined-sample')} joins samples by their keys"
        raise Usage(f"{message}: on a cluster that needs a sort by key, and no other fields or keys after it")
    if order.gathers and several and any(isinstance(step, Change) and step.fields.rekey is not None for step in after):
        raise _not_there(f"{spell('rekey')} after a sort of several inputs, or of a view")
    gathers = order.gathers and several
    if gathers:
        compares = not keys_order or bool(after)
    else:
        compares = (several or renames) and "repeated-key" not in policy.allowed
    before = tuple(step.apart() if isinstance(step, SampleFilter) else step for step in before)
    return Ordering(_portable(origin), before, order, after, compares, gathers, joins)


def _check_steps(before: Sequence[Step], order: Order, after: Sequence[Step]) -> None:
    for step in before:
        lists = isinstance(step, SampleFilter) and (step.select.keys or step.select.exclude_keys) is not None
        if isinstance(step, (SampleFilter, ChooseAmongAll)) and (step.scope == "all" or lists):
            raise _not_there(f"{spell(step.name)}, which needs all samples in turn")
        if not isinstance(step, (SampleFilter, Change)):
            raise _not_there(f"the step {step.name!r} before the order")
    for step in after:
        if not isinstance(step, Change):
            raise _not_there(f"the step {step.name!r} after the order")
    if any(isinstance(step, Change) and step.fields.numbers_keys for step in (*before, *after)):
        raise _not_there(f"{{index}} in {spell('rekey')}")
    if order.key is not None and not isinstance(order.key, SortKey):
        raise _not_there(f"{spell('order_file')}, a list of all keys")


def _check_policy(policy: Policy) -> None:
    if policy.maxerr:
        raise _not_there(f"{spell('maxerr')}, which counts the problems of all tasks together")
    for name in ("joined-sample", "repeated-key"):
        if name in policy.skipped:
            raise _not_there(spell("skip", name))
    if "duplicate-entry" in policy.skipped and "joined-sample" in policy.allowed:
        raise _not_there(f"{spell('skip', 'duplicate-entry')} where samples are joined")


def _by_key(order: Order) -> bool:
    """Return whether equal keys have equal ranks, and different keys different ranks."""
    key = order.key
    if not isinstance(key, SortKey):
        return False
    fields = tuple(key.fields)
    return fields == ("__key__",) and key.type in ("auto", "str", "natural")


def _not_there(message: str) -> Usage:
    return Usage(f"{message}: this cannot be done on a cluster", f"run it without {spell('dask')}")


def _portable(origin: Archives) -> Archives:
    """Return the inputs as workers find them. Raises Usage for those that are of this process alone."""
    names: set[str] = set()
    locations = []
    for location in origin.locations:
        if location.name in names:
            raise Usage(f"{location.name} is named more than once", "on a cluster each input is read once")
        names.add(location.name)
        locations.append(portable_location(location))
    return replace(origin, locations=tuple(locations), prefetch=0, spool=False)
