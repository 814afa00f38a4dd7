"""Stages between input and output: what keys come together, and a buffer that shuffles. Iterators in, iterators out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tarkit.dataset.fields import NewKeys
from tarkit.dataset.sample import KEYLESS, Part, Sample, Source
from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.streams.spool import HeldRange, Spool

SPOOLED = 1 << 20  # bytes of a sample of a stream from which on a buffer has it in a temporary file


def neighbours(samples: Iterator[Sample], policy: Policy, tmpdir: str | None = None) -> Iterator[Sample]:
    """Refuse samples that the one before them would take in, since both have one key.

    Where `policy` allows `joined-sample`, make one of them on purpose: then each sample waits for the one that follows.
    """
    if "joined-sample" in policy.allowed:
        return _joined(samples, policy, keeper(tmpdir))
    return _apart(samples, policy)


def without_strays(samples: Iterator[Sample], policy: Policy) -> Iterator[Sample]:
    """The samples alone: what an archive has that has none is left out, with a warning."""
    for sample in samples:
        if sample.key is not None:
            yield sample
        else:
            policy.warn(
                f"{sample.source.name}: no sample in it; {len(sample.entries)} entries without key are left out"
            )


def unrepeated(samples: Iterator[Sample], policy: Policy) -> Iterator[Sample]:
    """Judge samples whose key was in the output before, `repeated-key`; neighbours of one key are another matter."""
    names = NewKeys(policy, "the key {} is in the output already")
    return (sample for sample in samples if sample.key is None or names.good(sample.key, sample))


def _apart(samples: Iterator[Sample], policy: Policy) -> Iterator[Sample]:
    last = None
    for sample in samples:
        if sample.key == last and last is not None and policy.judge(joined_problem(sample)) == "drop":
            continue
        last = sample.key
        yield sample


def _joined(samples: Iterator[Sample], policy: Policy, keep: Callable[[Sample], Sample]) -> Iterator[Sample]:
    held: Sample | None = None
    good = True
    for sample in samples:
        sample = keep(sample)
        if held is not None and sample.key == held.key and sample.key is not None:
            policy.judge(joined_problem(sample))
            good = _distinct(held, sample, policy) and good
            held.parts = [*_parts(held), *_parts(sample)]
            held.entries = held.entries + sample.entries
        else:
            if held is not None and good:
                yield held
            held, good = sample, True
    if held is not None and good:
        yield held


def _distinct(held: Sample, sample: Sample, policy: Policy) -> bool:
    """Whether two samples that are joined are good together: no name is in both, or that is allowed."""
    good = True
    names = {entry.name for entry in held.entries}
    for entry in sample.entries:
        if entry.name in names and entry.type not in KEYLESS:
            what = f"{show(entry.name)} is in both samples that are joined"
            problem = Problem("duplicate-entry", sample.source.name, entry.start, what)
            good = policy.judge(problem) == "keep" and good
    return good


def _parts(sample: Sample) -> list[Part]:
    return [(sample.source, sample.start, sample.stop)] if sample.parts is None else sample.parts


def joined_problem(sample: Sample) -> Problem:
    """That a sample comes behind one of the same key, which would take it in."""
    what = f"the sample before it in the output has the same key {show(sample.key or b'')}"
    return Problem("joined-sample", sample.source.name, sample.start, what)


def buffer_shuffle(
    samples: Iterator[Sample], size: int, initial: int, seed: int, tmpdir: str | None = None
) -> Iterator[Sample]:
    """Shuffle through a buffer of `size` samples, from which the first is taken once there are `initial`.

    The order is that of webdataset's `shuffle(size, initial=initial)` with `random.Random(seed)`. Local only: a sample
    does not get far ahead of where it was. Of streams, samples are held in memory, large ones in a temporary file.
    """
    draw = random.Random(seed).randint
    keep = keeper(tmpdir)
    buffer: list[Sample] = []
    for sample in samples:
        buffer.append(keep(sample))
        if len(buffer) < size:
            another = next(samples, None)
            if another is not None:
                buffer.append(keep(another))
        if len(buffer) >= min(initial, size):
            yield _take(buffer, draw)
    while buffer:
        yield _take(buffer, draw)


def _take(buffer: list[Sample], draw: Callable[[int, int], int]) -> Sample:
    place = draw(0, len(buffer) - 1)
    sample, buffer[place] = buffer[place], buffer[-1]
    buffer.pop()
    return sample


def keeper(tmpdir: str | None = None) -> Callable[[Sample], Sample]:
    """A function that makes a sample good for as long as it is wanted, and to be read from any thread."""
    spool = Spool(tmpdir)

    def keep(sample: Sample) -> Sample:
        if sample.source.seekable:
            return sample
        sample.complete()
        kept = held(sample.source, sample.start, sample.stop)
        if sample.parts is not None:
            sample.parts = [part if isinstance(part, bytes) else (kept, *part[1:]) for part in sample.parts]
        sample.source = kept
        return sample

    def held(source: Source, start: int, stop: int) -> Source:
        if source.seekable:
            return source
        if stop - start < SPOOLED:
            return HeldRange(source.name, start, source.read(start, stop))
        return spool.hold(source.name, start, stop, source.send)

    return keep
