"""tarkit sort: put samples in order."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from tarkit.cli import cluster
from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.cluster import SpillOptions
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.cli.target import OutputOptions, target
from tarkit.errors import TarkitError, Usage, show
from tarkit.sorting.order import Order, Random, SortOptions, find_disorder
from tarkit.streams.location import Location

RANDOM = "__random__"
EXAMPLES = (
    "tarkit sort a.tar -o sorted.tar",
    "tarkit sort 'a-{00..99}.tar' -s cls -t int -c 1000 -o 'by-cls-%06d.tar'",
    "tarkit sort images.tar labels.tar --allow joined-sample -o both.tar",
)
COST = (
    "Files that fit into free memory: one pass over headers, one over contents. Others, and streams: two passes, with "
    "temporary space.\f About 60 bytes a sample are in memory; what --memory does not hold is sorted in runs."
)


@click.command(cls=MappedCommand, passes=True, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.rows(SortOptions)
@cluster.spill
@target
@choice(fields=shared.fields)
def sort(
    inputs: list[Location],
    target: Callable[..., OutputOptions],
    options: Callable[..., SortOptions],
    spill: Callable[..., SpillOptions],
    choice: SampleChoice,
) -> None:
    """Put samples in order, by key or by what is in them.

    By default samples are sorted by key, in byte order, and equal samples keep their order. Two inputs with equal keys
    are an error; --allow joined-sample joins them: images in one, labels in the other.

    \f
    Scattered entries of a sample in one input are gathered. Samples are selected before, in the order of the inputs.

    With --dask ADDRESS and --spill DIR a cluster does the work, in passes; the output has the same bytes.
    """
    chosen, context = options(), click.get_current_context()
    random = RANDOM in chosen.by
    if random and (len(chosen.by) > 1 or chosen.check_only):
        raise Usage(f"-s {RANDOM} cannot be used with other fields or --check-only")
    if chosen.check_only and (context.params["spill"] is not None or "tarkit.dask" in context.meta):
        raise Usage("--check-only reads samples in turn: it cannot be used with --dask")
    if chosen.check_only and target().changed:
        raise Usage("--check-only cannot be used with options of the output: it writes nothing")
    run, spilled = current(), spill()
    if chosen.order_file is not None:
        run.reserve(os.fspath(chosen.order_file), "the list of keys in order", written=False)
    order = chosen.key()
    data = choice.of(inputs)
    if chosen.check_only:
        found = find_disorder(data, order, run)
        if found is not None:
            raise TarkitError(
                f"{found.archive}: at {found.offset}: {show(found.after)} is out of order after {show(found.before)}",
                "tarkit sort without --check-only puts it in order",
            )
        run.finish()
        return
    opened = target().open(run)
    seed = shared.draw_seed(choice.select.seed) if random else None
    step = Order(random=Random(seed)) if seed is not None else Order(order, gathers=True)
    step.memory = chosen.memory
    spilled.write(data.then(step).change(choice.fields), opened, run, chosen.memory)
    run.finish()
