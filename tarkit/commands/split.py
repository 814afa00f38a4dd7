"""tarkit split: cut archives into shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from typing import Any

import click

from tarkit.cli import Command
from tarkit.commands import _options as options
from tarkit.commands._output import Output, open_output, total_size
from tarkit.commands._run import Run, current
from tarkit.commands._target import refuse_inputs
from tarkit.dataset.inputs import Inputs
from tarkit.dataset.names import DEFAULT_NAME, Template, parse_size, parse_template
from tarkit.dataset.sample import Sample
from tarkit.dataset.select import Select, Slice
from tarkit.dataset.shards import Limits, Shard, Shards, write_manifest
from tarkit.dataset.stages import neighbours, without_strays
from tarkit.errors import TarkitError, Usage
from tarkit.problems import Policy
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink

DEFAULT_SIZE = "1G"
EXAMPLES = (
    "tarkit split big.tar -c 1000 -o 'shards/train-%06d.tar'",
    "tarkit create recipe -o - | tarkit split - -s 500M -o 'b-%06d.tar.zst'",
    "tarkit split 'raw-*.tar' -n 64 -o 'even-{00..63}.tar' --manifest even.tsv",
    "tarkit split big.tar -s 1G --post 'aws s3 cp {} s3://bucket/ && rm {}'",
)
COST = (
    "One pass: each byte is read and written once, contents are not decoded. Memory does not grow with the data. -n "
    "needs the number of samples first: two passes, and temporary space for all of a stream or compressed input."
)


@dataclass
class SplitOptions:
    """How the samples are cut and what becomes of each shard."""

    select: Select
    limits: Limits
    shards: int | None = None
    remainder: str = "spread"
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    manifest: str | None = None
    shard_slice: Slice | None = None


def _template_output(output: str | None, template: str, compress: str | None, fsync: bool) -> tuple[Output, Template]:
    words = DEFAULT_NAME if output is None else output
    if words == "-":
        raise Usage("split writes numbered files, not stdout", "name them with -o 'out-%06d.tar'")
    opened = open_output(words, compress, fsync)
    text = opened.location.text if opened.location.kind == "path" else words
    return opened, parse_template(text, template)  # type: ignore[arg-type]


shards_output = options.group(
    "target",
    _template_output,
    click.option(
        "-o", "--output", "--outputs", metavar="TEMPLATE", help=f"Names of the shards.  [default: {DEFAULT_NAME}]"
    ),
    click.option(
        "--template",
        type=click.Choice(["auto", "printf", "bash", "at"]),
        default="auto",
        metavar="auto|printf|bash|at",
        help="How TEMPLATE counts: %06d, {0000..4096..8}, or @00001, which auto does not take.  [default: auto]",
    ),
    click.option("--compress", metavar="CODEC[:LEVEL]", help="gz, zst, lz4, xz, bz2, zip, none.  [default: by suffix]"),
    click.option("--fsync", is_flag=True, help="Have each shard on the disk before it gets its name."),
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@shards_output
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
@click.option("-n", "--shards", type=click.IntRange(1), metavar="N", help="N shards with equally many samples.")
@click.option(
    "--remainder",
    type=click.Choice(["spread", "drop", "repeat"]),
    default="spread",
    metavar="spread|drop|repeat",
    help="With -n, samples left over: spread or drop them, or repeat some to fill up.  [default: spread]",
)
@click.option("--max-shards", "--maxshards", type=click.IntRange(1), metavar="N", help="Stop after N shards.")
@click.option("--start", type=click.IntRange(0), metavar="N", help="Number the shards from N on.  [default: 0]")
@click.option("--append", is_flag=True, help="Go on behind the shards that are there.")
@click.option("--force", is_flag=True, help="Replace the shards that are there.")
@click.option(
    "-p", "--post", metavar="COMMAND", help="Run COMMAND after each shard, which it may move; {} is its name."
)
@click.option("--manifest", metavar="FILE", help="List the shards in FILE: samples, bytes, sha256, keys.")
@options.shard_slice
@options.select
@options.problems
def split(
    inputs: list[Location],
    target: tuple[Output, Template],
    count: int | None,
    size: str | None,
    size_rule: Any,
    max_shards: int | None,
    select: Select,
    policy: Policy,
    **given: Any,
) -> None:
    """Cut archives into shards by number of samples or size.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    Only limits that are given act; a shard closes at whichever comes first. A sample stays whole, and one that is
    larger than SIZE has a shard to itself. There is never an empty shard. A shard appears under its name when it is
    complete.
    """
    run = current()
    if count is None and size is None and given["shards"] is None:
        size = DEFAULT_SIZE
        run.tell(f"no limit is given: shards of at most {DEFAULT_SIZE} (10^9 bytes); -c and -s set others")
    if given["shards"] is not None and (count is not None or size is not None):
        raise Usage("-n makes equal shards: it does not go with -c or -s")
    if given["shards"] is None and given["remainder"] != "spread":
        raise Usage("--remainder is about -n")
    if given["append"] and given["force"]:
        raise Usage("--append keeps what is there, --force replaces it: choose one")
    limits = Limits(count, None if size is None else parse_size(size, "-c"), size_rule, max_shards)
    run_split(run, inputs, *target, SplitOptions(select, limits, **given), policy)


def run_split(
    run: Run, locations: list[Location], output: Output, template: Template, chosen: SplitOptions, policy: Policy
) -> None:
    """Write the samples of all inputs that were chosen to numbered shards."""
    if chosen.manifest is not None:
        if output.location.kind != "path":
            raise Usage("--manifest needs shards that are files")
        if template.matches(chosen.manifest) is not None:
            raise Usage(f"--manifest {chosen.manifest}: the shards may get this name")
    run.refuse(locations, chosen.manifest)
    run.reserve(chosen.manifest, "the manifest")
    for what, _, path in run.places.values():
        if what != "the output" and template.matches(path) is not None:
            raise Usage(f"{path} has a name that the shards may get")
    existing = template.existing()
    start = _first_index(template, chosen, existing)
    refuse_inputs(existing, locations)
    inputs = Inputs(
        locations,
        policy,
        shard_slice=chosen.shard_slice,
        spool=chosen.shards is not None,
        tmpdir=run.scratch(output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    stream, sizes = _samples(inputs, chosen, policy), None
    if chosen.shards is not None:
        stream, sizes = _equal(run, inputs, chosen, policy)
        template.name(start + chosen.shards - 1)
    shards = Shards(
        template,
        lambda name: output.open_named(parse_output(name).text),
        chosen.limits,
        start=start,
        sizes=sizes,
        post=chosen.post,
        digest=chosen.manifest is not None,
        announce=lambda shard, why: run.note(
            f"{shard.name}: {shard.samples} samples, {shard.size} bytes, closed by {why}"
        ),
    )
    try:
        for sample in run.watch(stream, lambda: shards.position, total_size(locations)):
            if not shards.add(sample):
                run.samples -= 1
                run.tell(f"input is left: {shards.done[-1].name} was the last shard that there may be")
                run.facts["input_left"] = True
                break
        options.report_keys(run, chosen.select)
        shards.close()
        run.dropped = inputs.dropped
    except BaseException:
        shards.abort()
        raise
    _wind_up(run, shards.done, chosen, existing)


def _samples(inputs: Inputs, chosen: SplitOptions, policy: Policy) -> Iterator[Sample]:
    return without_strays(neighbours(chosen.select(iter(inputs), policy), policy, inputs.tmpdir), policy)


def _first_index(template: Template, chosen: SplitOptions, existing: list[tuple[int, str]]) -> int:
    """The number of the first shard; raises TarkitError when shards are there and nobody said what to do."""
    if chosen.append and chosen.start is not None:
        raise Usage("--append goes on behind the last shard: it does not go with --start")
    if not existing or chosen.force:
        return chosen.start or 0
    if chosen.append:
        return existing[-1][0] + 1
    more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
    raise TarkitError(
        f"{existing[0][1]}{more}: there are shards of this name", "--append goes on behind them, --force replaces them"
    )


def _equal(run: Run, inputs: Inputs, chosen: SplitOptions, policy: Policy) -> tuple[Iterator[Sample], Iterator[int]]:
    """The samples for shards of equal number, and those numbers; all samples are counted first."""
    shards, remainder, maxerr = chosen.shards or 1, chosen.remainder, policy.maxerr

    def samples(policy: Policy | None = None) -> Iterator[Sample]:
        """One pass over the inputs; without a policy that tells, as silent as the one in which they were counted."""
        inputs.policy = policy or Policy(allowed, skipped, maxerr)
        return _samples(inputs, chosen, inputs.policy)

    allowed, skipped = policy.allowed, policy.skipped
    total = sum(1 for _ in samples())
    each, rest = divmod(total, shards)
    run.note(f"{total} samples for {shards} shards")
    if total == 0 or (each == 0 and remainder != "repeat"):
        if total:
            raise TarkitError(f"{total} samples cannot fill {shards} shards", "--remainder repeat uses some again")
        return iter(()), iter(())
    if remainder == "spread":
        return samples(policy), (each + (index < rest) for index in range(shards))
    if remainder == "drop":
        if rest:
            run.tell(f"the last {rest} of {total} samples are left out: --remainder drop")
            run.facts["left_out"] = rest
        return islice(samples(policy), each * shards), repeat(each, shards)
    each += rest > 0
    again = each * shards - total
    if again:
        run.tell(f"{again} samples come twice: --remainder repeat")
        run.facts["repeated"] = again
    rounds = chain.from_iterable(samples() for _ in count(1))
    return chain(samples(policy), islice(rounds, again)), repeat(each, shards)


def _wind_up(run: Run, shards: list[Shard], chosen: SplitOptions, existing: list[tuple[int, str]]) -> None:
    """What comes after the last shard: stale ones go, but for those before the first; the manifest, the summary."""
    if chosen.force:
        made = {shard.name for shard in shards}
        for index, path in existing:
            if path not in made and index >= (chosen.start or 0):
                run.note(f"{path}: removed, it is of an earlier run")
                os.unlink(path)
    if chosen.manifest is not None:
        with open_sink("path", chosen.manifest) as sink:
            write_manifest(sink, shards)
    if not shards:
        run.tell("no sample, so no shard")
    run.shards = len(shards)
    run.bytes = sum(shard.size for shard in shards)
    run.finish()
