"""Choose samples of batches: by flags, by an expression, by position. Single samples are batches too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tarkit.choosing.where import Where
from tarkit.problems import Policy
from tarkit.samples.columns import flags_of
from tarkit.samples.sample import OPEN, SampleBatch, TarSample

SINGLY = 64  # samples of a batch at most that are evaluated alone, since one of them may be a problem


def by_keys(
    batches: Iterable[SampleBatch], choose: Callable[[Sequence[bytes]], Iterable[bool]]
) -> Iterator[SampleBatch]:
    """Yield the samples for whose keys `choose` gives true."""
    for batch in batches:
        yield from batch.chosen(bytes(choose(batch.keys)))  # type: ignore[arg-type]


def by_values(where: Where, batches: Iterable[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Yield the samples that an expression selects."""
    for batch in batches:
        if not isinstance(batch, TarSample):
            yield from _selected(where, batch, policy)
        elif where(batch, policy):
            yield batch


def _selected(where: Where, batch: SampleBatch, policy: Policy) -> Iterator[SampleBatch]:
    """Yield the samples of a batch that are selected; where one may be a problem, the batch is halved.

    The reference is to look at one after the other.
    """
    flags = batch.flags(where)
    if flags is None and where.columnar:
        flags = flags_of(batch, where)
    if flags is None:
        yield from (sample for sample in batch if where(sample, policy))
    elif flags.count(OPEN) > SINGLY:
        half = batch.count // 2
        yield from _selected(where, batch.part(0, half), policy)
        yield from _selected(where, batch.part(half, batch.count), policy)
    elif max(flags) >= OPEN:
        yield from batch.in_turn(where, flags, policy)
    else:
        yield from batch.chosen(flags)


def by_position(batches: Iterable[SampleBatch], begin: int, end: int | None, step: int = 1) -> Iterator[SampleBatch]:
    """Yield every `step`-th sample from number `begin` up to `end`; none behind that is asked for."""
    if end is not None and end <= begin:
        return
    before = 0
    for batch in batches:
        count = batch.count
        low = begin - before if begin >= before else (begin - before) % step
        high = count if end is None else min(end - before, count)
        if low < high:
            if step == 1:
                yield batch.part(low, high)
            else:
                flags = bytearray(count)
                flags[low:high:step] = b"\1" * len(range(low, high, step))
                yield from batch.chosen(flags)
        before += count
        if end is not None and before >= end:
            return
