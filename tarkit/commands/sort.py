"""tarkit sort: put samples in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tarkit.cli import cluster, options
from tarkit.cli.cluster import SpillOptions
from tarkit.cli.command import choice, option
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.cli.target import OutputOptions, target
from tarkit.dataset import for_run
from tarkit.errors import TarkitError, Usage, show
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
from tarkit.sorting.keys import OrderFile, SortKey
from tarkit.sorting.order import Order, Random, find_disorder
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
@options.inputs
@option(
    "Order",
    "-s",
    "--sort-field",
    "--sortfield",
    "--by",
    "sort_field",
    multiple=True,
    metavar="FIELDS",
    help="Sort by contents of fields.  [default: __key__]",
    more="Also by size, size.FIELD, width.FIELD, json.a.b, or __random__.",
)
@choice(
    "Order",
    "-t",
    "--type",
    "type_",
    choices=("auto", "str", "int", "float", "natural"),
    metavar="TYPE",
    help="As auto, str, int, float, natural.",
    more="auto puts numbers, by value, before text.",
)
@option("Order", "-r", "--reverse", is_flag=True, help="Descending; equal samples keep their order.")
@option(
    "Order",
    "--order-file",
    metavar="FILE",
    help="Sort as the keys in FILE; others are an error.",
    more="FILE has one key a line. --keys-from FILE leaves out samples that it does not list.",
)
@option("Order", "--check-only", is_flag=True, help="Write nothing; fail if not in order.")
@options.memory
@cluster.spill
@target
@options.shard_slice
@options.select
@options.fields
@options.problems
def sort(
    inputs: list[Location],
    target: Callable[..., OutputOptions],
    sort_field: tuple[str, ...],
    type_: Any,
    reverse: bool,
    order_file: str | None,
    check_only: bool,
    memory: int,
    spill: SpillOptions,
    shard_slice: Slice | None,
    select: Select,
    fields: Fields,
    policy: Policy,
) -> None:
    """Put samples in order, by key or by what is in them.

    By default samples are sorted by key, in byte order, and equal samples keep their order. Two inputs with equal keys
    are an error; --allow joined-sample joins them: images in one, labels in the other.

    \f
    Scattered entries of a sample in one input are gathered. Samples are selected before, in the order of the inputs.

    With --dask ADDRESS and --spill DIR a cluster does the work, in passes; the output has the same bytes.
    """
    names = " ".join(sort_field).replace(",", " ").split()
    if sort_field and not names:
        raise Usage("--sort-field names no field")
    if names and order_file is not None:
        raise Usage("--sort-field and --order-file cannot be used together")
    random = RANDOM in names
    if random and (len(names) > 1 or check_only):
        raise Usage(f"-s {RANDOM} cannot be used with other fields or --check-only")
    if check_only and (spill.spill is not None or "tarkit.dask" in click.get_current_context().meta):
        raise Usage("--check-only reads samples in turn: it cannot be used with --dask")
    if check_only and target().changed:
        raise Usage("--check-only cannot be used with options of the output: it writes nothing")
    if order_file is not None:
        current().reserve(order_file, "the list of keys in order", written=False)
        if reverse:
            raise Usage("--order-file cannot be used with -r")
    spill.check()
    run = current()
    order: SortKey | OrderFile = SortKey(names or ["__key__"], type_, reverse)
    if order_file is not None:
        order = OrderFile(order_file)
    data = for_run(run, inputs, shard_slice).filter_samples(select)
    if check_only:
        found = find_disorder(data, order, run)
        if found is not None:
            raise TarkitError(
                f"{found.archive}: at {found.offset}: {show(found.after)} is out of order after {show(found.before)}",
                "tarkit sort without --check-only puts it in order",
            )
        run.finish()
        return
    opened = target().open(run)
    seed = options.draw_seed(select.seed) if random else None
    by_key, by_chance = Order(order, memory=memory, gathers=True), Order(random=Random(seed or 0), memory=memory)
    spill.write(data.then(by_chance if random else by_key).change(fields), opened, run)
    run.finish()
