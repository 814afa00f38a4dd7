"""tarkit stats: count samples, fields and sizes by the headers of archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from tarkit.api.output import text_output, total_size
from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.errors import Usage
from tarkit.inspecting.census import Census, count_input
from tarkit.parallel import results_in_order
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

if TYPE_CHECKING:
    from tarkit.inspecting.classes import ClassCounts

EXAMPLES = (
    "tarkit stats 'train-{000..099}.tar' -p 4",
    "tarkit stats shards/ --total",
    "tarkit stats shards/ --world 8 --workers 4",
    "tarkit stats shards/ --by cls --html stats.html",
)
COST = (
    "One pass over the headers: contents of files are skipped, those of streams and compressed inputs read; "
    "--by reads its field. "
    "Memory does not grow with the data: medians are exact up to 65536 different sizes of a field, then rounded down "
    "by at most 1/256, and 4096 fields and sets of fields are counted separately."
)


@dataclass
class StatsOptions:
    """The options of `stats`."""

    select: Select
    shard_slice: Slice | None = None
    total: bool = False
    json: bool = False
    html: str | None = None
    by: str | None = None
    class_names: Sequence[str] = ()
    world: int = 0
    workers: int = 1
    processes: int = 1


@dataclass
class _Counted:
    """The counts of one input, and its problems."""

    census: Census
    classes: ClassCounts | None = None
    warnings: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Count N inputs at a time.")
@option("Output", "--total", is_flag=True, help="Print only the number of samples.")
@option("Output", "--json", is_flag=True, help="Print everything as one JSON object.")
@options.written("--html", "Write one self-contained page to FILE instead.")
@option("Stats", "--by", metavar="FIELD", help="Count classes too: the values of cls, or json.label.")
@option("Stats", "--classes", metavar="FILE", help="Names of numbered classes.  [default: classes.txt]")
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
    by: str | None,
    classes: str | None,
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

    Samples, fields with their sizes, sets of fields, the distribution over shards, and the overhead of the tar format.
    webdataset gives shard i to node i mod W, and of these shard j to worker j mod K.

    Options that select samples restrict the counts to these; inputs are then read one by one, and -p has no effect.
    """
    select.count = count
    if sum((total, json, html is not None)) > 1:
        raise Usage("--total, --json and --html exclude each other", "choose one output")
    if total and (world or workers or by):
        raise Usage("--total cannot be used with --world, --workers or --by: it prints one number")
    if classes is not None and by is None:
        raise Usage("--classes requires --by")
    run = current()
    run.reserve(classes, "the class names", written=False)
    names: list[str] = []
    if by is not None:
        from tarkit.inspecting.classes import find_class_names

        names = find_class_names(classes, inputs)
    nodes = 0 if world is None and workers is None else world or 1
    chosen = StatsOptions(select, shard_slice, total, json, html, by, names, nodes, workers or 1, parallel)
    run_stats(run, inputs, chosen, policy)


def run_stats(run: ConsoleRun, locations: list[Location], chosen: StatsOptions, policy: Policy) -> None:
    """Count all inputs, and write the report."""
    run.refuse(locations, chosen.html)
    run.reserve(chosen.html, "the page")
    classes = _no_classes(chosen.by)
    count_all = chosen.select.all and chosen.shard_slice is None
    shards = (_count_all if count_all else _count_chosen)(run, locations, chosen, policy, classes)
    total = Census()
    for each in shards:
        total.merge(each)
    run.samples, run.shards, run.bytes, run.dropped = total.samples, len(shards), total.size, total.dropped
    if classes is not None and total.samples and not classes.counts:
        run.warn(f"no sample has {chosen.by!r}")
    _write(chosen, locations, _report(total, shards, chosen, classes))
    run.finish()


def _count_all(
    run: ConsoleRun, locations: list[Location], chosen: StatsOptions, policy: Policy, classes: ClassCounts | None
) -> list[Census]:
    """Count each input on its own, several at a time."""
    processes = 1 if policy.maxerr else min(chosen.processes, len(locations))  # --maxerr is a limit for all inputs
    work = partial(_count_one, allowed=policy.allowed, skipped=policy.skipped, tmpdir=run.tmpdir, by=chosen.by)
    shards: list[Census] = []
    position = 0

    def counted() -> int:
        return position

    found = (
        results_in_order(work, locations, processes, run.tmpdir)
        if not policy.maxerr
        else map(partial(_count_under, policy, run.tmpdir, chosen.by), locations)
    )
    if run.shows_progress:
        found = run.draw(iter(found), counted, lambda: run.samples, total_size(locations))
    for each in found:
        run.note(f"{each.census.name}: {each.census.samples} samples, {each.census.size} bytes")
        for line in each.warnings:
            run.warn(line)
        policy.counts.update(each.counts)
        policy.dropped.update(each.dropped)
        run.samples += each.census.samples
        position += each.census.size
        shards.append(each.census)
        if classes is not None and each.classes is not None:
            classes.merge(each.classes)
    return shards


def _no_classes(by: str | None) -> ClassCounts | None:
    """Return counts of classes to add to; None without --by."""
    if by is None:
        return None
    from tarkit.inspecting.classes import ClassCounts

    return ClassCounts()


def _class_counter(classes: ClassCounts | None, by: str | None, policy: Policy) -> Callable[[TarSample], None] | None:
    """Return the function that counts the class of a sample; None without --by."""
    if classes is None or by is None:
        return None
    from tarkit.samples.values import Name

    return partial(classes.add, Name(by), policy)


def _count_under(policy: Policy, tmpdir: str | None, by: str | None, location: Location) -> _Counted:
    """Count one input with the policy of all inputs."""
    classes = _no_classes(by)
    return _Counted(count_input(location, policy, tmpdir, _class_counter(classes, by, policy)), classes)


def _count_one(
    location: Location, allowed: frozenset[str], skipped: frozenset[str], tmpdir: str | None, by: str | None
) -> _Counted:
    """Count one input with a policy of its own, perhaps in another process."""
    warnings: list[str] = []
    policy = Policy(allowed, skipped, warn=warnings.append)
    counted = _count_under(policy, tmpdir, by, location)
    return replace(counted, warnings=warnings, counts=dict(policy.counts), dropped=dict(policy.dropped))


def _count_chosen(
    run: ConsoleRun, locations: list[Location], chosen: StatsOptions, policy: Policy, classes: ClassCounts | None
) -> list[Census]:
    """Count the selected samples of each input."""
    shards: list[Census] = []
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        shard_slice=chosen.shard_slice,
        tmpdir=run.tmpdir,
        announce=lambda name: shards.append(Census(name)),
    )
    count_class = _class_counter(classes, chosen.by, policy)
    samples = chosen.select(sample for sample in inputs if sample.key is not None)
    for sample in run.watch(samples, lambda: sum(each.size for each in shards), total_size(locations)):
        if count_class is not None:
            count_class(sample)
        shards[-1].add(sample)
    options.report_keys(run, chosen.select)
    if shards:
        shards[-1].dropped = inputs.dropped
    return shards


def _report(total: Census, shards: Sequence[Census], chosen: StatsOptions, classes: ClassCounts | None) -> str:
    """Return the output: a number, JSON, a page or text."""
    if chosen.total:
        return f"{total.samples}\n"
    from tarkit.inspecting.census import shares_of
    from tarkit.views.report import Balance, as_json, sections

    shares = shares_of([each.samples for each in shards], chosen.world, chosen.workers) if chosen.world else []
    balance = None
    if chosen.by is not None and classes is not None:
        balance = Balance(chosen.by, classes, chosen.class_names)
    if chosen.json:
        import json

        return json.dumps(as_json(total, shards, shares, balance), indent=2) + "\n"
    report = sections(total, shards, shares, balance)
    if chosen.html is not None:
        from tarkit.views.html import report_page

        title = shards[0].name if shards else "no shards"
        title += f" and {len(shards) - 1} more" if len(shards) > 1 else ""
        return report_page(
            title, "Statistics of all samples" if chosen.select.all else "Statistics of selected samples", report
        )
    from tarkit.views.terminal import coloured
    from tarkit.views.text import report_lines

    if os.isatty(1) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        return coloured(report, os.get_terminal_size(1).columns or 80)
    return report_lines(report)


def _write(chosen: StatsOptions, locations: list[Location], text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    if chosen.html is not None and chosen.html != "-":
        with open_sink("path", chosen.html) as sink:
            sink.write(data)
    else:
        with text_output().open(locations) as sink:
            sink.write(data)
