"""tarkit split: cut archives into shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import Run, current
from tarkit.cli.output import total_size
from tarkit.cli.split_equal import Equal, chosen_samples, equal, plan_equal
from tarkit.cli.split_series import Cuts, Naming, SeriesPlan, cuts, naming
from tarkit.cli.target import refuse_inputs
from tarkit.errors import TarkitError, Usage
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.shards.limits import DEFAULT_SIZE, NO_LIMIT, Limits, parse_size
from tarkit.shards.template import existing_shards
from tarkit.shards.writer import OpenShards, Series, SeriesWriter, write_manifest
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink

_THERE = "--force replaces them; --append keeps them, and packs all of the inputs again behind them"
EXAMPLES = (
    "tarkit split big.tar -c 1000 -o 'shards/train-%06d.tar'",
    "tarkit create recipe -o - | tarkit split - -s 500M -o 'b-%06d.tar.zst'",
    "tarkit split 'raw-*.tar' -n 64 -o 'even-{00..63}.tar' --manifest even.tsv",
    "tarkit split big.tar -s 1G --post 'aws s3 cp {} s3://bucket/ && rm {}'",
    "tarkit split big.tar -s 1G --parts train=0.9,val=0.1 -o '{part}-%d.tar'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data. -n "
    "and --even need the number of samples or bytes first: two passes, and temporary space for all of a stream or "
    "compressed input. --parts, --folds and --map have a shard open for each part or category, each with up to 0.5 MB "
    "and what its codec takes; each name is looked up in all patterns of a map; --stratify keeps counts of each class. "
    "--max-shards looks at the headers of what is left, and reads a stream to its end."
)


@dataclass
class SplitOptions:
    """How the samples are cut and what becomes of each shard."""

    select: Select
    limits: Limits
    equal: Equal = field(default_factory=Equal)
    cuts: Cuts = field(default_factory=Cuts)
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    manifest: str | None = None
    shard_slice: Slice | None = None


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@naming
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="At most N samples in a shard.")
@click.option(
    "-s", "--size", metavar="SIZE", help=f"At most SIZE bytes: 500M, 16MiB, 1e9.  [default without -c: {DEFAULT_SIZE}]"
)
@click.option(
    "--size-rule",
    type=click.Choice(["tar", "content"]),
    default="tar",
    metavar="tar|content",
    help="SIZE is what no tar exceeds, or what the contents reach as in tarp.  [default: tar]",
)
@equal
@cuts
@click.option(
    "--max-shards",
    "--maxshards",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N shards; what is left is counted, not written.",
)
@click.option("--start", type=click.IntRange(0), metavar="N", help="Number the shards from N on.  [default: 0]")
@click.option("--append", is_flag=True, help="Go on behind the shards that are there.")
@click.option("--force", is_flag=True, help="Replace the shards that are there.")
@options.post("-p", "--post")
@click.option(
    "--manifest", type=options.WRITTEN, metavar="FILE", help="List the shards in FILE: samples, bytes, sha256, keys."
)
@options.shard_slice
@options.select
@options.problems
def split(
    inputs: list[Location],
    naming: Naming,
    count: int | None,
    size: str | None,
    size_rule: Any,
    max_shards: int | None,
    select: Select,
    policy: Policy,
    equal: Equal,
    cuts: Cuts,
    **given: Any,
) -> None:
    """Cut archives into shards by number of samples or size.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    Only limits that are given act; a shard closes at whichever comes first. A sample stays whole, and one that is
    larger than SIZE has a shard to itself. There is never an empty shard. A shard appears under its name when it is
    complete.

    --parts, --folds and --map cut into several series at once, each with its own numbers, limits as they are given.
    Where a key goes with --parts or --folds is settled by the key and --salt alone, also when the set grows; with
    --stratify it depends on the samples before.
    """
    run = current()
    equal.check(count is not None or size is not None)
    if given["append"] and given["force"]:
        raise Usage("--append keeps what is there, --force replaces it: choose one")
    if cuts.given and (equal.given or max_shards is not None):
        what = "--max-shards" if max_shards else "-n" if equal.shards else "--even"
        raise Usage(f"{what} is about one series of shards, and {cuts.given} makes several")
    if count is None and size is None and not equal.given:
        size = DEFAULT_SIZE
        run.tell(NO_LIMIT)
    limits = Limits(count, None if size is None else parse_size(size, "-c"), size_rule, max_shards)
    run_split(run, inputs, naming, SplitOptions(select, limits, equal, cuts, **given), policy)


def run_split(run: Run, locations: list[Location], naming: Naming, chosen: SplitOptions, policy: Policy) -> None:
    """Write the samples of all inputs that were chosen to numbered shards."""
    plan = chosen.cuts.plan(run, naming, policy, len(locations))
    run.refuse(locations, chosen.manifest)
    run.reserve(chosen.manifest, "the manifest")
    _refuse_names(run, plan, chosen.manifest)
    existing = [lot.template.existing() for lot in plan.lots]
    starts = [_first_index(chosen, each) for each in existing]
    for lot, start, each in zip(plan.lots, starts, existing, strict=True):
        refuse_inputs(each, locations)
        lot.template.name(start)
    inputs = DatasetReader(
        locations,
        policy,
        shard_slice=chosen.shard_slice,
        spool=chosen.equal.given,
        tmpdir=run.scratch(plan.output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    stream, sizes, limits = chosen_samples(inputs, chosen.select, policy), None, chosen.limits
    if chosen.equal.given:
        template = plan.lots[0].template
        number = chosen.equal.number(template)
        template.name(starts[0] + number - 1)
        equal = plan_equal(run, inputs, chosen.select, chosen.equal, number, policy)
        stream, sizes = equal.samples, equal.sizes
        if equal.limits is not None:
            limits = replace(equal.limits, shards=limits.shards)
    opened = OpenShards(lambda name: plan.output.open_named(parse_output(name).text, not chosen.force))
    series = Series(
        [
            SeriesWriter(
                lot.template,
                opened,
                limits,
                start=start,
                sizes=sizes,
                post=chosen.post,
                digest=chosen.manifest is not None,
                announce=lambda shard, why: run.note(
                    f"{shard.name}: {shard.samples} samples, {shard.size} bytes, closed by {why}"
                ),
            )
            for lot, start in zip(plan.lots, starts, strict=True)
        ],
        plan.assign,
        policy,
    )
    full = _write(run, series, stream, inputs, chosen.select)
    if full:
        _count_rest(run, stream, limits)
    _wind_up(run, series, plan, chosen, existing, starts)


def _write(run: Run, series: Series, stream: Iterator[TarSample], inputs: DatasetReader, select: Select) -> bool:
    """Write the samples of a stream to shards; whether all shards are full, and the last sample is not in one."""
    full = False
    try:
        for sample in run.watch(stream, lambda: series.position, total_size(inputs.locations)):
            if not series.add(sample):
                run.samples -= 1
                full = True
                break
        options.report_keys(run, select)
        series.close(run.samples)
        run.dropped = inputs.dropped
    except BaseException:
        series.abort()
        raise
    return full


def _count_rest(run: Run, stream: Iterator[TarSample], limits: Limits) -> None:
    """Say how many samples are not written since --max-shards was reached before the first of `stream` that is left.

    They are counted by their headers. The shards are complete, so a fault in what is left ends the count alone.
    """
    if limits.shards is None:
        raise TarkitError("an input has changed: it has more samples than in the pass that counted them")
    count, fault = 1, ""
    try:
        for _ in stream:
            count += 1
    except TarkitError as error:
        fault = f"; the count ended at {error}"
    samples = f"{'at least ' if fault else ''}{count} sample{'' if count == 1 else 's'}"
    run.tell(f"stopped at --max-shards {limits.shards}: {samples} not written{fault}")
    run.facts["not_written"] = count


def _refuse_names(run: Run, plan: SeriesPlan, manifest: str | None) -> None:
    """Raise Usage when a file that is written or read besides has a name that shards may get."""
    if manifest is not None and plan.output.location.kind != "path":
        raise Usage("--manifest needs shards that are files")
    for what, _, path in run.places.values():
        if what != "the output" and any(lot.template.matches(path) is not None for lot in plan.lots):
            option = "--manifest " if path == manifest else ""
            raise Usage(f"{option}{path}: the shards may get this name")


def _first_index(chosen: SplitOptions, existing: list[tuple[int, str]]) -> int:
    """The number of the first shard; raises TarkitError when shards are there and nobody said what to do."""
    if chosen.append and chosen.start is not None:
        raise Usage("--append goes on behind the last shard: it does not go with --start")
    if not existing or chosen.force:
        return chosen.start or 0
    if chosen.append:
        return existing[-1][0] + 1
    raise existing_shards([path for _, path in existing], hint=_THERE)


def _wind_up(
    run: Run,
    series: Series,
    plan: SeriesPlan,
    chosen: SplitOptions,
    existing: Sequence[list[tuple[int, str]]],
    starts: Sequence[int],
) -> None:
    """What comes after the last shard: stale ones go, but for those before the first; the manifest, the summary."""
    shards = series.done
    if chosen.force:
        made = {shard.name for shard in shards}
        found = ((path, index >= start) for start, each in zip(starts, existing, strict=True) for index, path in each)
        run.remove_others([path for path, behind in found if behind and path not in made])
    if chosen.manifest is not None:
        with open_sink("path", chosen.manifest) as sink:
            write_manifest(sink, shards)
    if not shards:
        run.tell("no sample, so no shard")
    elif (
        chosen.equal.even == "size"
        and len(shards) < chosen.equal.number(plan.lots[0].template)
        and len(shards) != chosen.limits.shards
    ):
        run.tell(f"{len(shards)} shards and no more: so large are some samples")
    run.samples -= series.left_out
    run.shards = len(shards)
    run.bytes = sum(shard.size for shard in shards)
    run.finish(plan.wind_up(run, series))
