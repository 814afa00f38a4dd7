"""tarkit stats: count samples, fields and sizes by the headers of archives."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.cluster import on_cluster
from tarkit.cli.color import has_colors
from tarkit.cli.console import current
from tarkit.cli.jobs import TaskCommand
from tarkit.display.inspect import Stats, StatsOptions, count_dataset
from tarkit.pipeline.output import Output, text_output
from tarkit.streams.location import Location, parse_output

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


@click.command(cls=TaskCommand, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.rows(StatsOptions)
@choice(count=shared.count)
def stats(
    inputs: list[Location],
    options: Callable[..., StatsOptions],
    choice: SampleChoice,
) -> None:
    """Count samples, fields, sizes and classes.

    The report has the number of samples, the sizes of each field, which fields occur together, how even the shards are,
    and how many bytes the tar format adds. With --world and --workers it also has the samples that each process of a
    training run gets: webdataset gives shard i to node i mod W, and of these shard j to worker j mod K.

    Options that select samples restrict the counts to these; inputs are then read one by one, and -p has no effect.
    """
    chosen = options()
    run = current()
    run.reserve(click.get_current_context().params["classes"], "the class names", written=False)
    run.refuse(inputs, chosen.html)
    output = text_output()
    if chosen.html is not None and chosen.html != "-":
        output = Output(parse_output(chosen.html), ("none", None))
        run.reserve(chosen.html, "the page")
    else:
        run.reserve_output(output)
    data = choice.of(inputs)
    with on_cluster(run):
        found = count_dataset(data, run, chosen)
    text = f"{found.samples}\n" if chosen.total else found.page() if chosen.html else _report(found, chosen.json)
    with output.open(inputs) as sink:
        sink.write(text.encode("utf-8", "surrogateescape"))
    run.finish()


def _report(found: Stats, as_json: bool) -> str:
    """Return the report as JSON, as text in colours for a terminal, or as plain text."""
    if as_json:
        from json import dumps

        return dumps(found.describe(), indent=2) + "\n"
    if has_colors(1):
        from shutil import get_terminal_size

        from tarkit.display.terminal import coloured

        return coloured(found.sections(), get_terminal_size().columns)
    return f"{found}\n"
