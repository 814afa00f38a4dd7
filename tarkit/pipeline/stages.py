"""Stages between input and output: checks of adjacent and repeated keys, and a shuffle buffer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from tarkit.errors import Problem, Unsupported, respell, show
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples.checks import duplicate_entries
from tarkit.samples.sample import Assembly, Recent, SampleBatch, TarSample, ViewRow, key_of, singly
from tarkit.sizes import plural
from tarkit.streams.ranges import HeldRange, RangeSpool

if TYPE_CHECKING:
    from random import Random

Item = TypeVar("Item")

SPOOLED = 1 << 20  # bytes; larger samples of a stream are buffered in a temporary file


def neighbours(
    batches: Iterator[SampleBatch],
    policy: Policy,
    tmpdir: str | None = None,
    distinct: bool = False,
    repeated: Callable[[], bool] | None = None,
) -> Iterator[SampleBatch]:
    """Check for repeated keys of adjacent samples, which readers take for one sample.

    If `policy` allows `joined-sample`, they are joined, and each sample is held until the next one is read.

    Args:
        batches: the samples, in the order of the output.
        policy: decides about problems.
        tmpdir: the directory of temporary files.
        distinct: check for repeated keys that are not adjacent too (`repeated-key`): for samples of several inputs or
            with new keys.
        repeated: as for `Keys`.

    Raises:
        Problem: `joined-sample`, `repeated-key`, `duplicate-entry`.
    """
    keys = Keys(policy, repeated) if distinct else None
    if "joined-sample" in policy.allowed:
        return _joined(singly(batches), policy, keeper(tmpdir), keys)
    return _apart(batches, policy, keys)


def without_strays(batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Yield the samples; entries without a key that are in none are dropped with a warning."""
    for batch in batches:
        if batch.key is not None:
            yield batch
        else:
            for sample in batch:
                sample.complete()
                count = len(sample.entries)
                words = "is left out: it is in no sample" if count == 1 else "are left out: they are in no sample"
                policy.warn(f"{sample.source.name}: {plural(count, 'entry')} without a key {words}")


class Keys:
    """A check for repeated keys: `repeated-key`.

    Args:
        policy: decides about a repeated key.
        repeated: whether the key of the current sample is repeated, where that is known in advance; other
            keys are not remembered then.
    """

    def __init__(self, policy: Policy, repeated: Callable[[], bool] | None = None) -> None:
        self._policy = policy
        self._repeated = repeated
        self._recent = Recent()

    def good(self, sample: TarSample) -> bool:
        """Return whether to keep a sample: its key is new, or may be repeated.

        Raises:
            Problem: `repeated-key`, unless the policy lets it pass.
        """
        key = sample.key
        if self._repeated is not None and not self._repeated():
            return True
        if key is None or not self._recent.add(key) or hash(key) in self._policy.scattered:
            return True
        message = f"the key {show(key)} is already in the output"
        return self._policy.apply(Problem("repeated-key", sample.source.name, sample.start, message)) == "keep"

    def all_new(self, batch: SampleBatch) -> bool:
        """Return whether no key of several samples was there before; else none of them is remembered.

        Where repeated keys are known in advance, their samples come one by one.
        """
        return self._repeated is not None or self._recent.extend(batch.keys)  # type: ignore[arg-type]


def unrepeated(batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
    """Check all samples for repeated keys, for an output in which adjacent samples are not joined."""
    keys = Keys(policy)
    for batch in batches:
        if batch.count > 1 and keys.all_new(batch):
            yield batch
        else:
            yield from filter(keys.good, batch)


def _apart(
    batches: Iterable[SampleBatch], policy: Policy, keys: Keys | None, last: bytes | None = None
) -> Generator[SampleBatch, None, bytes | None]:
    """Yield the samples to keep, of those after a sample with the key `last`; return the key of the last one.

    A batch in which the check may find something is divided into its samples.
    """
    for batch in batches:
        if not isinstance(batch, TarSample):
            if batch.first_key == last or (keys is not None and not keys.all_new(batch)):
                last = yield from _apart(batch, policy, keys, last)
            else:
                last = batch.key
                yield batch
            continue
        key = batch.key
        if key is not None:  # entries of an archive without samples separate nothing
            if key == last:
                if not stays_apart(batch, policy):
                    continue
            elif keys is not None and not keys.good(batch):
                last = None  # the next sample is not adjacent to the one before this
                continue
            last = key
        yield batch
    return last


def stays_apart(sample: TarSample, policy: Policy) -> bool:
    """Return whether to keep a sample with the same key as the one before it.

    Raises:
        Problem: `joined-sample`, unless the policy lets it pass.
    """
    return policy.apply(_problem(sample)) == "keep"


def _joined(
    samples: Iterator[TarSample], policy: Policy, keep: Callable[[TarSample], TarSample], keys: Keys | None
) -> Iterator[TarSample]:
    for _, adjacent in groupby(map(keep, samples), _key_or_itself):
        held: list[TarSample] = []
        names: set[bytes] = set()  # of the entries of all that are held, once there are two
        for sample in adjacent:
            if not held:
                good = keys is None or keys.good(sample)
            else:
                policy.apply(_problem(sample))
                names = names or _names(held[0])
                good = _distinct(sample, names, policy) and good
            held.append(sample)
        if good:
            yield held[0] if len(held) == 1 else _union(held)


def _key_or_itself(sample: TarSample) -> object:
    """Return the key of a sample; entries without samples have none, and are joined to nothing."""
    return sample if sample.key is None else sample.key


def _names(sample: TarSample) -> set[bytes]:
    return {entry.name for entry in sample.entries if key_of(entry) is not None}


def _distinct(sample: TarSample, names: set[bytes], policy: Policy) -> bool:
    """Return whether a sample can be joined to others: none of its names is in theirs, or the policy allows it.

    Its names are added to theirs.
    """
    good = True
    for entry in duplicate_entries(sample.entries, names):
        message = f"{show(entry.name)} is in both samples that are joined"
        hint = respell(PROBLEMS["joined-sample"].repair)
        problem = Problem("duplicate-entry", sample.source.name, entry.start, message, hint)
        good = policy.apply(problem) == "keep" and good
    return good


def _union(samples: Sequence[TarSample]) -> TarSample:
    """Return one sample of the entries of several, with the key of the first."""
    first = samples[0]
    assembly = Assembly(first.source, first.start)
    for sample in samples:
        for entry in sample.entries:
            assembly.keep(sample.source, entry)
    union = assembly.sample(first.key)
    union.row = joined_row([sample.row for sample in samples], first.source.name)
    return union


def joined_row(rows: Iterable[ViewRow | None], name: str) -> ViewRow | None:
    """Return the row of a sample that is joined from several. Raises Unsupported if two of them have values."""
    known = dict.fromkeys(row for row in rows if row is not None and row.has_values)
    if len(known) > 1:
        raise Unsupported(f"{name}: samples of two rows of views are joined, and both have values")
    return next(iter(known), None)


def _problem(sample: TarSample) -> Problem:
    message = f"the sample before it in the output has the same key {show(sample.key or b'')}"
    return Problem("joined-sample", sample.source.name, sample.start, message)


INITIAL = 100  # samples in the buffer of webdataset's `shuffle` before the first comes out


def buffer_shuffle(
    batches: Iterable[SampleBatch], size: int, seed: int, tmpdir: str | None = None
) -> Iterator[TarSample]:
    """Shuffle through a buffer, in the order of webdataset's `shuffle(size, seed=seed)`; see `ShuffleBuffer`.

    Samples of streams are held in memory, large ones in a temporary file.
    """
    from random import Random

    return ShuffleBuffer[TarSample](size, INITIAL, Random(seed)).shuffle(map(keeper(tmpdir), singly(batches)))


class ShuffleBuffer(Generic[Item]):
    """A buffer of `size` items, from which a random one is taken once there are `initial`.

    The order is that of webdataset's `shuffle(size, initial=initial)`. The shuffle is local: an item moves ahead by at
    most `size` places.

    Attributes:
        items: the items in the buffer. Between two items of `shuffle` they may be stored with the state of `random`;
            a new buffer with both continues.
        random: the random numbers.
    """

    def __init__(self, size: int, initial: int, random: Random) -> None:
        self._size = size
        self._initial = min(initial, size)
        self.items: list[Item] = []
        self.random = random

    def shuffle(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items, locally mixed."""
        buffer, size, initial, draw = self.items, self._size, self._initial, self.random.randrange
        for item in items:
            buffer.append(item)
            if len(buffer) < size:
                buffer.extend(islice(items, 1))
            if len(buffer) >= initial:
                yield _take(buffer, draw)
        while buffer:
            yield _take(buffer, draw)


def _take(buffer: list[Item], draw: Callable[[int], int]) -> Item:
    place = draw(len(buffer))
    item, buffer[place] = buffer[place], buffer[-1]
    buffer.pop()
    return item


def keeper(tmpdir: str | None = None) -> Callable[[TarSample], TarSample]:
    """Return a function that keeps a sample valid while it is referenced, readable from any thread."""
    spool = RangeSpool(tmpdir)

    def keep(sample: TarSample) -> TarSample:
        if sample.source.seekable:
            return sample
        sample.complete()
        source, start, stop = sample.source, sample.start, sample.stop
        if stop - start < SPOOLED:
            sample.source = HeldRange(source.name, start, source.read(start, stop))
        else:
            sample.source = spool.hold(source.name, start, stop, source.send)
        return sample

    return keep
