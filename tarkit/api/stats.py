"""Count the samples, fields and sizes of a dataset; of plain archives only headers are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tarkit.api.chain import Chain
from tarkit.api.output import total_size
from tarkit.api.run import Run
from tarkit.inspecting.census import OTHERS, Census, count_input
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.sample import TarSample
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.inspecting.classes import ClassCounts


@dataclass(frozen=True)
class FieldStats:
    """Statistics of one field: the number of samples that have it, and the sizes of its contents in bytes.

    The median of more than 65 536 different sizes is up to 1/256 off.
    """

    count: int
    bytes: int
    min: int
    median: int
    max: int


@dataclass(frozen=True)
class Stats:
    """The result of `tarkit.stats`.

    Attributes:
        samples: the number of samples.
        bytes: the length of all tars together.
        fields: the fields, in lower case, the largest first; 4096 at most.
        shards: the number of samples in each shard, by its name.
        classes: with `by`, the number of samples that have each value, the most frequent first.
        missing: with `by`, the number of samples without the field.
        others: with `by`, the number of samples with values beyond the first 4096 different ones.
    """

    samples: int
    bytes: int
    fields: dict[str, FieldStats]
    shards: dict[str, int]
    classes: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    others: int = 0


def summarize(counts: Counts) -> Stats:
    """Return the public form of counts."""
    from tarkit.inspecting.classes import class_order

    total, found = counts.total(), counts.classes
    shards: dict[str, int] = {}
    for shard in counts.shards:
        shards[shard.name] = shards.get(shard.name, 0) + shard.samples
    rows = sorted(total.fields.items(), key=lambda row: (-row[1].bytes, row[0]))
    return Stats(
        total.samples,
        total.size,
        {
            name.decode("utf-8", "surrogateescape"): FieldStats(
                sizes.count, sizes.bytes, sizes.minimum, sizes.median, sizes.maximum
            )
            for name, sizes in rows
            if name != OTHERS
        },
        shards,
        dict(class_order(found.counts)) if found is not None else {},
        found.missing if found is not None else 0,
        found.others if found is not None else 0,
    )


@dataclass
class Counts:
    """The counts of each shard; with `by` also how many samples have each of its values."""

    shards: list[Census] = field(default_factory=list)
    classes: ClassCounts | None = None

    def total(self) -> Census:
        """Return the counts of all shards together."""
        total = Census()
        for shard in self.shards:
            total.merge(shard)
        return total


def count_dataset(data: Chain, run: Run, by: str | None = None, processes: int = 1) -> Counts:
    """Count a dataset: whole archives several at a time, else sample by sample.

    Args:
        by: a field whose values are counted, or a path into JSON.
        processes: how many archives are read at a time.
    """
    counts = Counts(classes=_no_classes(by))
    if data.unchanged:
        _count_archives(counts, data.locations, run, by, processes)
    else:
        _count_samples(counts, data, run, by)
    total = counts.total()
    run.samples, run.shards, run.bytes, run.dropped = total.samples, len(counts.shards), total.size, total.dropped
    if counts.classes is not None and run.samples and not counts.classes.counts:
        run.warn(f"no sample has {by!r}")
    return counts


@dataclass
class _InputCounts:
    """The counts of one input, and the problems found in it."""

    census: Census
    classes: ClassCounts | None = None
    warnings: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


def _count_archives(counts: Counts, locations: Sequence[Location], run: Run, by: str | None, processes: int) -> None:
    """Count each archive on its own, several at a time."""
    policy, position = run.policy, 0
    found: Iterable[_InputCounts]
    if policy.maxerr:  # so many errors may be passed over in all inputs together
        found = map(partial(_count_input, policy, run.tmpdir, by), locations)
    else:
        work = partial(_count_apart, allowed=policy.allowed, skipped=policy.skipped, tmpdir=run.tmpdir, by=by)
        found = results_in_order(work, locations, min(processes, len(locations)), run.tmpdir)
    if run.shows_progress:
        found = run.draw(iter(found), lambda: position, lambda: run.samples, total_size(locations))
    for each in found:
        census = each.census
        run.note(f"{census.name}: {census.samples} samples, {census.size} bytes")
        for line in each.warnings:
            run.warn(line)
        policy.counts.update(each.counts)
        policy.dropped.update(each.dropped)
        run.samples += census.samples
        position += census.size
        counts.shards.append(census)
        if counts.classes is not None and each.classes is not None:
            counts.classes.merge(each.classes)


def _count_input(policy: Policy, tmpdir: str | None, by: str | None, location: Location) -> _InputCounts:
    classes = _no_classes(by)
    return _InputCounts(count_input(location, policy, tmpdir, _class_counter(classes, by, policy)), classes)


def _count_apart(
    location: Location, allowed: frozenset[str], skipped: frozenset[str], tmpdir: str | None, by: str | None
) -> _InputCounts:
    """Count one input with a policy of its own, perhaps in another process."""
    warnings: list[str] = []
    policy = Policy(allowed, skipped, warn=warnings.append)
    found = _count_input(policy, tmpdir, by, location)
    return replace(found, warnings=warnings, counts=dict(policy.counts), dropped=dict(policy.dropped))


def _count_samples(counts: Counts, data: Chain, run: Run, by: str | None) -> None:
    """Count the samples after the steps, each for its archive."""
    samples, flow = data.samples(run, moves=False)
    shards: dict[str, Census] = {}

    def begin(name: str) -> Census:
        shards[name] = census = Census(name)
        counts.shards.append(census)
        return census

    def announce(name: str) -> None:
        begin(name)

    if isinstance(flow.inputs, DatasetReader):
        flow.inputs.announce = announce
    count_class = _class_counter(counts.classes, by, run.policy)
    keyed: Iterator[TarSample] = (sample for sample in samples if sample.key is not None)
    with flow:
        for sample in run.watch(keyed, lambda: sum(each.size for each in counts.shards), total_size(data.locations)):
            if count_class is not None:
                count_class(sample)
            (shards.get(sample.source.name) or begin(sample.source.name)).add(sample)
        flow.finish()
    if counts.shards:
        counts.shards[-1].dropped = run.dropped


def _no_classes(by: str | None) -> ClassCounts | None:
    """Return counts of classes to add to; None without `by`."""
    if by is None:
        return None
    from tarkit.inspecting.classes import ClassCounts

    return ClassCounts()


def _class_counter(classes: ClassCounts | None, by: str | None, policy: Policy) -> Callable[[TarSample], None] | None:
    """Return the function that counts the class of a sample; None without `by`."""
    if classes is None or by is None:
        return None
    from tarkit.samples.values import Name

    return partial(classes.add, Name(by), policy)
