"""Write the samples of a run to one or several series of numbered shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from itertools import count as counting
from typing import TYPE_CHECKING, Literal, NamedTuple

from tarkit.api.archive import apart
from tarkit.api.chain import at_least
from tarkit.api.output import Output, named_output, status_of, total_size
from tarkit.errors import TarkitError, Usage
from tarkit.samples.pipeline import neighbours, without_strays
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import DEFAULT_SIZE, Limits, SizeRule, parse_size
from tarkit.shards.template import ShardTemplate, parse_template, refuse_existing, split_last
from tarkit.shards.writer import OpenShards, Series, SeriesWriter, Shard
from tarkit.streams.files import allow_files
from tarkit.streams.location import Location, parse_output

if TYPE_CHECKING:
    from fractions import Fraction

    from tarkit.api.chain import Chain
    from tarkit.api.run import Run
    from tarkit.api.steps import Flow
    from tarkit.problems import Policy
    from tarkit.shards.partition import Part

PART = "{part}"
OPEN_EACH = 18  # files that one series may have open: a shard, an input, and those that a copying thread has queued
THERE = "--force replaces them"
Remainder = Literal["spread", "drop", "repeat"]


class Lot(NamedTuple):
    """One series of shards; `share` is its share of the samples, if one is given."""

    name: str
    template: ShardTemplate
    share: Fraction | None = None


@dataclass
class ShardsOutput:
    """Series of shards to write; existing files of their names are looked up first.

    Attributes:
        output: how each shard is written.
        lots: the series: one, or one for each part or category.
        limits: when a shard is full.
        assign: the number of the series that a sample goes to, None for no series.
        start: the number of the first shard of each; with `append` it follows the shards that are there.
        force: whether shards that are there are replaced.
        post: a command that runs after each shard.
        digest: whether checksums are made.
        there: the hint for shards that are there and may not be.
        sizes: how many samples each shard gets, in place of the limits.
        existing: of each series, the shards that are there, by number.
        starts: of each series, the number of its first shard.

    Raises:
        TarkitError: there are shards of these names, and neither `append` nor `force`.
    """

    output: Output
    lots: Sequence[Lot]
    limits: Limits
    assign: Callable[[TarSample], int | None] | None = None
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    digest: bool = False
    there: str = THERE
    sizes: Iterator[int] | None = field(init=False, default=None)
    existing: list[list[tuple[int, str]]] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.existing = [lot.template.existing() for lot in self.lots]
        self.starts = [self._first(found) for found in self.existing]
        for lot, start in zip(self.lots, self.starts, strict=True):
            lot.template.name(start)  # raises if there is no such name

    def _first(self, existing: list[tuple[int, str]]) -> int:
        """Return the number of the first shard of a series."""
        if existing and self.append:
            return existing[-1][0] + 1
        if not self.force:
            refuse_existing([path for _, path in existing], self.there)
        return self.start or 0

    def matches(self, path: str) -> bool:
        """Return whether a path is one of the names that shards may get."""
        return any(lot.template.matches(path) is not None for lot in self.lots)

    def refuse_inputs(self, locations: Sequence[Location]) -> None:
        """Raise Usage when an input has one of the names that the shards may get."""
        taken = {path for found in self.existing for _, path in found}
        there = {(status.st_dev, status.st_ino) for status in map(status_of, taken) if status}
        for location in locations if there else ():
            if location.kind in ("path", "stdin"):
                status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
                if (status.st_dev, status.st_ino) in there:
                    raise Usage(f"{location.name} is an input, and has a name that the shards may get")

    def series(self, run: Run) -> Series:
        """Return the series, open for samples."""
        opened = OpenShards(lambda name: self.output.open_named(parse_output(name).text, not self.force))
        return Series(
            [
                SeriesWriter(
                    lot.template,
                    opened,
                    self.limits,
                    start=start,
                    sizes=self.sizes,
                    post=self.post,
                    digest=self.digest,
                    announce=lambda shard, why: run.note(
                        f"{shard.name}: {shard.samples} samples, {shard.size} bytes, closed by {why}"
                    ),
                )
                for lot, start in zip(self.lots, self.starts, strict=True)
            ],
            self.assign,
            run.policy,
        )

    def write(self, data: Chain, run: Run) -> Series:
        """Write all samples of a dataset; return the series."""
        self.refuse_inputs(data.inputs)
        samples, flow = data.samples(run, directory=self.output.directory)
        return self.write_samples(without_strays(apart(samples, flow), run.policy), flow)

    def write_samples(self, samples: Iterator[TarSample], flow: Flow) -> Series:
        """Write samples of a run, all of which have keys; return the series."""
        run, total = flow.run, total_size(flow.inputs.locations)
        before = run.samples
        full = False
        with flow:
            for what, _, path in run.places.values():
                if what != "the output" and self.matches(path):
                    raise Usage(f"{path} is {what}, and has a name that the shards may get")
            series = self.series(run)
            try:
                for sample in run.watch(samples, lambda: series.position, total):
                    if not series.add(sample):
                        run.samples -= 1
                        full = True
                        break
                flow.finish()
                series.close(run.samples - before)
            except BaseException:
                series.abort()
                raise
            if full:
                self._count_rest(run, samples)
        self._finish(run, series)
        return series

    def _count_rest(self, run: Run, samples: Iterator[TarSample]) -> None:
        """Report how many samples are not written because the last shard is full.

        They are counted by their headers. The shards are complete, so a fault in what is left ends the count alone.
        """
        if self.limits.shards is None:
            raise TarkitError("an input has changed: it has more samples than in the pass that counted them")
        count, fault = 1, ""
        try:
            for _ in samples:
                count += 1
        except TarkitError as error:
            fault = f"; the count ended at {error}"
        words = f"{'at least ' if fault else ''}{count} sample{'' if count == 1 else 's'}"
        run.tell(f"stopped at --max-shards {self.limits.shards}: {words} not written{fault}")
        run.facts["not_written"] = count

    def _finish(self, run: Run, series: Series) -> None:
        """Remove shards of an earlier run that `force` replaces, and count."""
        shards = series.done
        if self.force:
            made = {shard.name for shard in shards}
            numbered = zip(self.starts, self.existing, strict=True)
            found = ((path, index >= start) for start, each in numbered for index, path in each)
            run.remove_others([path for path, behind in found if behind and path not in made])
        empty = [lot.name for lot, samples in zip(self.lots, series.samples, strict=True) if not samples]
        if not shards:
            run.tell("no sample, so no shard")
        elif empty:
            more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
            run.warn(f"no sample for {', '.join(empty[:3])}{more}, so no shard")
        run.samples -= series.left_out
        run.shards += len(shards)
        run.bytes += sum(shard.size for shard in shards)


def shards_output(
    template: str | os.PathLike[str],
    count: int | None,
    size: int | str | None,
    size_rule: SizeRule = "tar",
    max_shards: int | None = None,
    parts: Parts | None = None,
    *,
    compress: str | None = None,
    fsync: bool = False,
    start: int | None = None,
    append: bool = False,
    force: bool = False,
    post: str | None = None,
    digest: bool = True,
) -> ShardsOutput:
    """Return shards of these names, a series for each part. Without a limit they have at most DEFAULT_SIZE bytes."""
    template = os.fspath(template)
    if count is None and size is None:
        size = DEFAULT_SIZE
    at_least(1, count=count, max_shards=max_shards)
    at_least(0, start=start)
    limits = Limits(count, None if size is None else parse_size(str(size)), size_rule, max_shards)
    output = named_output(template, compress, fsync)
    if output.location.kind == "stdout":
        raise Usage("shards are files, not stdout", "name them like 'out-%06d.tar'")
    lots = [Lot("", parse_template(template))] if parts is None else parts.lots(template, parse_template)
    if len(lots) > 1 and max_shards is not None:
        raise Usage("max_shards cannot be used with parts: it needs one series of shards")
    hint = "append=True continues after them, force=True replaces them"
    return ShardsOutput(output, lots, limits, None, start, append, force, post, digest, hint)


# ---- Parts, such as train and val, each of which is a series of shards


@dataclass(frozen=True)
class Parts:
    """Parts of a dataset with their shares, and what decides to which part a sample goes.

    Attributes:
        group: samples stay together whose keys match this regular expression with the same text in its group.
        group_field: samples stay together that have the same value of this field.
        salt: changes the hash that decides.
        stratify: a field; each part gets its share of each of its values, and no hash is used.
    """

    parts: Sequence[Part]
    group: str | None = None
    group_field: str | None = None
    salt: str | None = None
    stratify: str | None = None

    def lots(self, words: str, parse: Callable[[str], ShardTemplate]) -> list[Lot]:
        """Return the series: the name of a part replaces `{part}` in `words`, or comes before the name of the file."""
        from tarkit.shards.categories import check_apart

        if PART not in words:
            directory, name = split_last(words)
            words = f"{directory}{PART}-{name or '%06d.tar'}"
        lots = [Lot(part.name, parse(words.replace(PART, part.name)), part.share) for part in self.parts]
        check_apart([lot.template for lot in lots])
        return lots

    def assign(self, policy: Policy) -> Callable[[TarSample], int | None]:
        """Return the function that returns the number of the part of a sample."""
        from tarkit.shards.partition import ByHash, Dealer, FieldValue, KeyGroup

        if self.stratify is not None:
            return Dealer(self.parts, FieldValue(self.stratify, policy))
        group: Callable[[TarSample], bytes | None] | None = None
        if self.group is not None:
            group = KeyGroup(self.group)
        elif self.group_field is not None:
            group = FieldValue(self.group_field, policy)
        return ByHash(self.parts, self.salt or "", group)


def make_parts(
    parts: str | Mapping[str, object] | int | None,
    group: str | None = None,
    group_field: str | None = None,
    salt: str | None = None,
    stratify: str | None = None,
) -> Parts | None:
    """Return the parts that arguments request, None if they request none.

    Args:
        parts: `"train,val=0.1"`, `{"train": 0.9, "val": 0.1}`, or the number of folds.

    Raises:
        Usage: the shares do not sum to 1, a name is invalid, or the arguments do not go together.
    """
    from tarkit.shards.partition import folds, parse_parts

    refuse_mixed({"group": group, "group_field": group_field, "salt": salt, "stratify": stratify}, parts, "parts")
    if parts is None:
        return None
    if isinstance(parts, int):
        at_least(2, parts=parts)
        return Parts(folds(parts), group, group_field, salt, stratify)
    if isinstance(parts, Mapping):
        parts = ",".join(name if share is None else f"{name}={share}" for name, share in parts.items())
    return Parts(parse_parts(parts), group, group_field, salt, stratify)


def refuse_mixed(rules: Mapping[str, str | None], parts: object, needed: str) -> None:
    """Raise Usage for rules of parts that do not go together, or without parts.

    Args:
        rules: group, group_field, salt and stratify in this order, by the names that the user knows.
        parts: None if there are no parts.
        needed: what requests parts, as the user knows it.
    """
    given = [name for name, value in rules.items() if value is not None]
    group, group_field, _, stratify = rules
    if given and parts is None:
        raise Usage(f"{given[0]} requires {needed}")
    if rules[stratify] is not None and len(given) > 1:
        raise Usage(f"{stratify} uses no hash: it cannot be used with {given[0]}")
    if rules[group] is not None and rules[group_field] is not None:
        raise Usage(f"{group} and {group_field}: choose one")


def write_series(data: Chain, output: ShardsOutput, parts: Parts | None) -> list[Shard]:
    """Write the samples of a dataset, each to the series of its part; return the shards, part by part."""
    run = data.start()
    if parts is not None:
        check_lots(output.lots, output.output, len(data.locations), "parts")
        output.assign = parts.assign(run.policy)
    return output.write(data, run).done


def check_lots(lots: Sequence[Lot], output: Output, inputs: int, what: str) -> None:
    """Check that several series can be written at once, before the first is begun.

    Raises:
        TarkitError: a directory does not exist, or the system does not allow so many open files.
    """
    if output.location.kind == "path":
        directories = dict.fromkeys(lot.template.directory for lot in lots)
        missing = [directory.rstrip("/") for directory in directories if directory and not os.path.isdir(directory)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise TarkitError(f"{missing[0]}{more}: no such directory", f"mkdir -p {' '.join(missing[:9])}")
    most = allow_files(OPEN_EACH * len(lots) + inputs)
    if most < len(lots):
        words = f"{what}: {len(lots)} shards at once, but the system allows {most} to be open"
        raise TarkitError(words, "raise the limit with ulimit -n, or write some of them in each of several runs")


# ---- Equal shards, which take two passes: equal in number of samples, or about equal in bytes


def write_equal(
    data: Chain, output: ShardsOutput, run: Run, shards: int, even: Literal["count", "size"], remainder: Remainder
) -> Series:
    """Write a dataset to so many shards, equal in number of samples or about equal in bytes.

    Args:
        remainder: of samples that are left over when all shards have equally many: the first shards have one more
            (`spread`), they are left out (`drop`), or samples come again until all shards are full (`repeat`).

    Raises:
        TarkitError: there are fewer samples than shards.
    """
    output.refuse_inputs(data.inputs)
    samples, flow = data.samples(run, directory=output.output.directory, spool=True)
    with flow:
        samples = without_strays(apart(samples, flow), run.policy)
        if even == "size":
            size = _closing_size(run, _again(flow), shards)
            output.limits = replace(output.limits, size=size, rule="content")
        else:
            samples = _sized(run, output, samples, flow, shards, remainder)
        return output.write_samples(samples, flow)


def _again(flow: Flow) -> Iterator[TarSample]:
    """Read again the samples that are written, without warnings."""
    policy = flow.run.policy.silent()
    return without_strays(neighbours(flow.again(policy), policy, flow.inputs.tmpdir, flow.distinct), policy)


def _sized(
    run: Run, output: ShardsOutput, samples: Iterator[TarSample], flow: Flow, shards: int, remainder: Remainder
) -> Iterator[TarSample]:
    """Count the samples and set how many each shard gets; return the samples to write."""
    total = sum(1 for _ in _again(flow))
    each, rest = divmod(total, shards)
    run.note(f"{total} samples for {shards} shards")
    if total == 0 or (each == 0 and remainder != "repeat"):
        if total:
            raise TarkitError(f"{total} samples cannot fill {shards} shards", "--remainder repeat uses some again")
        output.sizes = iter(())
        return iter(())
    if remainder == "spread":
        output.sizes = (each + (index < rest) for index in range(shards))
        return samples
    if remainder == "drop":
        if rest:
            run.tell(f"the last {rest} of {total} samples are left out: --remainder drop")
            run.facts["left_out"] = rest
        output.sizes = repeat(each, shards)
        return islice(samples, each * shards)
    each += rest > 0
    again = each * shards - total
    if again:
        run.tell(f"{again} samples come twice: --remainder repeat")
        run.facts["repeated"] = again
    output.sizes = repeat(each, shards)
    return chain(samples, islice(chain.from_iterable(_again(flow) for _ in counting(1)), again))


def _closing_size(run: Run, samples: Iterator[TarSample], shards: int) -> int:
    """Return the size at which a shard closes, as in dSort's equal division: (1 + bytes of all contents) / shards."""
    total = sum(sample.content for sample in samples)
    size = -(-(1 + total) // shards)
    run.note(f"{total} bytes of content for {shards} shards, each closes at {size}")
    return size
