"""tarkit stats: what is in archives, by their headers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import click

from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import Run, current
from tarkit.cli.output import text_output
from tarkit.errors import Usage
from tarkit.inspecting.census import Census, count_input
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

EXAMPLES = (
    "tarkit stats 'train-{000..099}.tar' -p 4",
    "tarkit stats shards/ --total",
    "tarkit stats shards/ --world 8 --workers 4",
    "tarkit stats a.tar --html a.html",
)
COST = (
    "One pass over the headers: contents of files are jumped over, those of streams and compressed inputs passed by. "
    "Memory does not grow with the data: medians are exact up to 65536 different sizes of a field, then 1/256 off at "
    "most, and 4096 fields and sets of fields are told apart."
)


@dataclass
class StatsOptions:
    """What is wanted of the counts."""

    select: Select
    shard_slice: Slice | None = None
    total: bool = False
    json: bool = False
    html: str | None = None
    world: int = 0
    workers: int = 1
    processes: int = 1


@dataclass
class _Said:
    """What one input came to, with what was said about it."""

    census: Census
    warnings: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Count N inputs at a time.")
@option("Output", "--total", is_flag=True, help="Print only the number of samples.")
@option("Output", "--json", is_flag=True, help="Print everything as one JSON object.")
@options.written("--html", "Write one self-contained page to FILE instead.")
@option("Stats", "--world", type=click.IntRange(1), metavar="W", help="Samples for each of W nodes, as in webdataset.")
@option("Stats", "--workers", type=click.IntRange(1), metavar="K", help="Same, with K workers on each node.")
@options.shard_slice
@options.select
@options.count
@options.problems
def stats(
    inputs: list[Location],
    total: bool,
    json: bool,
    html: str | None,
    world: int | None,
    workers: int | None,
    parallel: int,
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    policy: Policy,
) -> None:
    """Count samples, fields and sizes by the headers alone.

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    Samples, fields with their sizes, which fields go together, how even the shards are, and what the tar format costs.
    Shares are dealt as webdataset does it: shard i to node i mod W, and of those shard j to worker j mod K.

    Options that choose samples count those alone; inputs are then read one after the other, whatever -p says.
    """
    select.count = count
    if sum((total, json, html is not None)) > 1:
        raise Usage("--total, --json and --html are three outputs: choose one")
    if total and (world or workers):
        raise Usage("--total prints one number: --world and --workers want a table")
    wanted = 0 if world is None and workers is None else world or 1
    chosen = StatsOptions(select, shard_slice, total, json, html, wanted, workers or 1, parallel)
    run_stats(current(), inputs, chosen, policy)


def run_stats(run: Run, locations: list[Location], chosen: StatsOptions, policy: Policy) -> None:
    """Count all inputs, and tell what was found."""
    run.refuse(locations, chosen.html)
    run.reserve(chosen.html, "the page")
    if chosen.select.all and chosen.shard_slice is None:
        shards = _count_all(run, locations, chosen, policy)
    else:
        shards = _count_chosen(run, locations, chosen, policy)
    total = Census()
    for each in shards:
        total.merge(each)
    run.samples, run.shards, run.bytes, run.dropped = total.samples, len(shards), total.size, total.dropped
    _write(chosen, locations, _drawn(total, shards, chosen))
    run.finish()


def _count_all(run: Run, locations: list[Location], chosen: StatsOptions, policy: Policy) -> list[Census]:
    """Each input on its own, several at a time."""
    processes = 1 if policy.maxerr else min(chosen.processes, len(locations))  # so many errors are passed over in all
    work = partial(_count_one, allowed=policy.allowed, skipped=policy.skipped, tmpdir=run.tmpdir)
    shards: list[Census] = []
    position = 0

    def counted() -> int:
        return position

    found = (
        results_in_order(work, locations, processes, run.tmpdir)
        if not policy.maxerr
        else map(partial(_said, policy, run.tmpdir), locations)
    )
    if run.shows_progress:
        found = run.draw(iter(found), counted, lambda: run.samples)
    for said in found:
        run.note(f"{said.census.name}: {said.census.samples} samples, {said.census.size} bytes")
        for line in said.warnings:
            run.warn(line)
        policy.counts.update(said.counts)
        policy.dropped.update(said.dropped)
        run.samples += said.census.samples
        position += said.census.size
        shards.append(said.census)
    return shards


def _said(policy: Policy, tmpdir: str | None, location: Location) -> _Said:
    """One input under the policy of all."""
    return _Said(count_input(location, policy, tmpdir))


def _count_one(location: Location, allowed: frozenset[str], skipped: frozenset[str], tmpdir: str | None) -> _Said:
    """One input, with a policy of its own, perhaps in another process."""
    warnings: list[str] = []
    policy = Policy(allowed, skipped, warn=warnings.append)
    census = count_input(location, policy, tmpdir)
    return _Said(census, warnings, dict(policy.counts), dict(policy.dropped))


def _count_chosen(run: Run, locations: list[Location], chosen: StatsOptions, policy: Policy) -> list[Census]:
    """The samples that were chosen, each with the input that it is from."""
    shards: list[Census] = []
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        shard_slice=chosen.shard_slice,
        tmpdir=run.tmpdir,
        announce=lambda name: shards.append(Census(name)),
    )
    samples = chosen.select(sample for sample in inputs if sample.key is not None)
    for sample in run.watch(samples, lambda: sum(each.size for each in shards), None):
        shards[-1].add(sample)
    options.report_keys(run, chosen.select)
    if shards:
        shards[-1].dropped = inputs.dropped
    return shards


def _drawn(total: Census, shards: Sequence[Census], chosen: StatsOptions) -> str:
    """What to write."""
    if chosen.total:
        return f"{total.samples}\n"
    from tarkit.inspecting.census import deal
    from tarkit.views.report import as_json, sections

    shares = deal([each.samples for each in shards], chosen.world, chosen.workers) if chosen.world else []
    if chosen.json:
        import json

        return json.dumps(as_json(total, shards, shares), indent=2) + "\n"
    report = sections(total, shards, shares)
    if chosen.html is not None:
        from tarkit.views.html import page

        name = shards[0].name if len(shards) == 1 else f"{len(shards)} shards"
        return page(f"tarkit stats: {name}", report)
    from tarkit.views.text import coloured, plain

    if os.isatty(1) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        return coloured(report, os.get_terminal_size(1).columns or 80)
    return plain(report)


def _write(chosen: StatsOptions, locations: list[Location], text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    if chosen.html is not None and chosen.html != "-":
        with open_sink("path", chosen.html) as sink:
            sink.write(data)
    else:
        with text_output().open(locations) as sink:
            sink.write(data)
