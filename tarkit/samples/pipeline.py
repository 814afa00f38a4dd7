"""Stages between input and output: what keys come together, and a buffer that shuffles. Iterators in, iterators out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tarkit.errors import Problem, show
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples.reader import twice
from tarkit.samples.sample import Part, Recent, SampleSource, TarSample, key_of
from tarkit.streams.ranges import HeldRange, RangeSpool

SPOOLED = 1 << 20  # bytes of a sample of a stream from which on a buffer has it in a temporary file


DIFFER = PROBLEMS["joined-sample"].repair


def neighbours(
    samples: Iterator[TarSample],
    policy: Policy,
    tmpdir: str | None = None,
    distinct: bool = False,
    repeated: Callable[[], bool] | None = None,
) -> Iterator[TarSample]:
    """Refuse samples that the one before them would take in, since both have one key.

    Where `policy` allows `joined-sample`, make one of them on purpose: then each sample waits for the one that follows.
    With `distinct` a key that comes back later is judged too, as `repeated-key`: for samples of several inputs, and
    those that got new keys. `repeated` is as for `Keys`.
    """
    keys = Keys(policy, repeated) if distinct else None
    if "joined-sample" in policy.allowed:
        return _joined(samples, policy, keeper(tmpdir), keys)
    return _apart(samples, policy, keys)


def without_strays(samples: Iterator[TarSample], policy: Policy) -> Iterator[TarSample]:
    """The samples alone: what an archive has that has none is left out, with a warning."""
    for sample in samples:
        if sample.key is not None:
            yield sample
        else:
            policy.warn(
                f"{sample.source.name}: no sample in it; {len(sample.entries)} entries without key are left out"
            )


class Keys:
    """Judge keys that come back: `repeated-key`.

    `repeated` says whether the key of the current sample is there more than once, where that is known beforehand; other
    keys need not be remembered.
    """

    def __init__(self, policy: Policy, repeated: Callable[[], bool] | None = None) -> None:
        self._policy = policy
        self._repeated = repeated
        self._known = Recent()

    def good(self, sample: TarSample) -> bool:
        """Whether a sample is kept: its key is new, or it may come back. Raises Problem."""
        key = sample.key
        if self._repeated is not None and not self._repeated():
            return True
        if key is None or not self._known.add(key) or hash(key) in self._policy.scattered:
            return True
        what = f"the key {show(key)} is in the output already"
        return self._policy.judge(Problem("repeated-key", sample.source.name, sample.start, what)) == "keep"


def unrepeated(samples: Iterator[TarSample], policy: Policy) -> Iterator[TarSample]:
    """Judge all samples whose key comes back, for an output in which neighbours are not joined."""
    return filter(Keys(policy).good, samples)


def _apart(samples: Iterator[TarSample], policy: Policy, keys: Keys | None) -> Iterator[TarSample]:
    last = None
    for sample in samples:
        key = sample.key
        if key is not None:  # entries without key, of an archive without samples, keep nothing apart
            if key == last:
                if not stays_apart(sample, policy):
                    continue
            elif keys is not None and not keys.good(sample):
                last = None  # what follows is no neighbour of the one before this
                continue
            last = key
        yield sample


def stays_apart(sample: TarSample, policy: Policy) -> bool:
    """Judge a sample whose key is that of the one before it: whether it is kept. Raises Problem: `joined-sample`."""
    return policy.judge(_problem(sample)) == "keep"


def _joined(
    samples: Iterator[TarSample], policy: Policy, keep: Callable[[TarSample], TarSample], keys: Keys | None
) -> Iterator[TarSample]:
    held: TarSample | None = None
    good = True
    for sample in samples:
        sample = keep(sample)
        if held is not None and sample.key == held.key and sample.key is not None:
            policy.judge(_problem(sample))
            good = _distinct(held, sample, policy) and good
            held.parts = [*_parts(held), *_parts(sample)]
            held.entries = held.entries + sample.entries
        else:
            if held is not None and good:
                yield held
            held, good = sample, keys is None or keys.good(sample)
    if held is not None and good:
        yield held


def _distinct(held: TarSample, sample: TarSample, policy: Policy) -> bool:
    """Whether two samples that are joined are good together: no name is in both, or that is allowed."""
    good = True
    names = {entry.name for entry in held.entries if key_of(entry) is not None}
    for entry in twice(sample.entries, names):
        what = f"{show(entry.name)} is in both samples that are joined"
        problem = Problem("duplicate-entry", sample.source.name, entry.start, what, DIFFER)
        good = policy.judge(problem) == "keep" and good
    return good


def _parts(sample: TarSample) -> list[Part]:
    return [(sample.source, sample.start, sample.stop)] if sample.parts is None else sample.parts


def _problem(sample: TarSample) -> Problem:
    what = f"the sample before it in the output has the same key {show(sample.key or b'')}"
    return Problem("joined-sample", sample.source.name, sample.start, what)


def buffer_shuffle(
    samples: Iterator[TarSample], size: int, initial: int, seed: int, tmpdir: str | None = None
) -> Iterator[TarSample]:
    """Shuffle through a buffer of `size` samples, from which the first is taken once there are `initial`.

    The order is that of webdataset's `shuffle(size, initial=initial)` with `random.Random(seed)`. Local only: a sample
    does not get far ahead of where it was. Of streams, samples are held in memory, large ones in a temporary file.
    """
    draw = random.Random(seed).randint
    keep = keeper(tmpdir)
    buffer: list[TarSample] = []
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


def _take(buffer: list[TarSample], draw: Callable[[int, int], int]) -> TarSample:
    place = draw(0, len(buffer) - 1)
    sample, buffer[place] = buffer[place], buffer[-1]
    buffer.pop()
    return sample


def keeper(tmpdir: str | None = None) -> Callable[[TarSample], TarSample]:
    """A function that makes a sample good for as long as it is wanted, and to be read from any thread."""
    spool = RangeSpool(tmpdir)

    def keep(sample: TarSample) -> TarSample:
        if sample.source.seekable:
            return sample
        sample.complete()
        kept = held(sample.source, sample.start, sample.stop)
        if sample.parts is not None:
            sample.parts = [part if isinstance(part, bytes) else (kept, *part[1:]) for part in sample.parts]
        sample.source = kept
        return sample

    def held(source: SampleSource, start: int, stop: int) -> SampleSource:
        if source.seekable:
            return source
        if stop - start < SPOOLED:
            return HeldRange(source.name, start, source.read(start, stop))
        return spool.hold(source.name, start, stop, source.send)

    return keep
