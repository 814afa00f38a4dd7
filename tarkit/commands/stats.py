"""tarkit stats: count samples, fields and sizes by the headers of archives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import click

from tarkit.api.dataset import read
from tarkit.api.output import text_output
from tarkit.api.stats import Counts, count_dataset
from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

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


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Count N inputs at a time.")
@option("Output", "--total", is_flag=True, help="Print only the number of samples.")
@option("Output", "--json", is_flag=True, help="Print everything as one JSON object.")
@options.written("--html", "Write one self-contained page to FILE instead.")
@option("Stats", "--by", metavar="FIELD", help="Count classes too: the values of cls, or json.label.")
@option("Stats", "--classes", metavar="FILE", help="Names of numbered classes.  [default: classes.txt]")
@option(
    "Stats", "--world", type=click.IntRange(1), metavar="W", help="Samples that each of W training nodes would get."
)
@option(
    "Stats", "--workers", type=click.IntRange(1), metavar="K", help="Same, for each of K data-loader workers on a node."
)
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

    The report has the number of samples, the sizes of each field, which fields occur together, how even the shards are,
    and how many bytes the tar format adds. With --world and --workers it also has the samples that each process of a
    training run gets: webdataset gives shard i to node i mod W, and of these shard j to worker j mod K.

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
    run_stats(run, inputs, chosen)


def run_stats(run: ConsoleRun, locations: list[Location], chosen: StatsOptions) -> None:
    """Count all inputs, and write the report."""
    run.refuse(locations, chosen.html)
    run.reserve(chosen.html, "the page")
    counts = count_dataset(
        read(run, locations, chosen.shard_slice).choose(chosen.select), run, chosen.by, chosen.processes
    )
    _write(chosen, locations, _report(counts, chosen))
    run.finish()


def _report(counts: Counts, chosen: StatsOptions) -> str:
    """Return the output: a number, JSON, a page or text."""
    total, shards, classes = counts.total(), counts.shards, counts.classes
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
