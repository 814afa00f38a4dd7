"""tarkit sort: put samples in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tarkit.api.dataset import Dataset, read
from tarkit.api.order import Order, Random
from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.target import OutputOptions, target, write
from tarkit.errors import TarkitError, Usage, show
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import neighbours
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.sorting.keys import OrderFile, SortKey, check_order
from tarkit.streams.location import Location

RANDOM = "__random__"
EXAMPLES = (
    "tarkit sort a.tar -o sorted.tar",
    "tarkit sort 'a-{00..99}.tar' -s cls -t int -c 1000 -o 'by-cls-%06d.tar'",
    "tarkit sort images.tar labels.tar --allow joined-sample -o both.tar",
)
COST = (
    "Files that fit into free memory: one pass over the headers, one over the data, with a list in memory of about 250 "
    "bytes a sample. Else, and for streams: two passes, reading and writing; what --memory does not hold is sorted "
    "in runs, with temporary space for all of the data."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@target
@click.option(
    "-s",
    "--sort-field",
    "--sortfield",
    "sort_field",
    multiple=True,
    metavar="FIELDS",
    help="Sort by the content of FIELDS, size, size.FIELD, width.FIELD or json.a.b.  [default: __key__]",
)
@click.option(
    "-t",
    "--type",
    "type_",
    type=click.Choice(["auto", "str", "int", "float", "natural"]),
    default="auto",
    metavar="auto|str|int|float|natural",
    help="What the values are; auto takes numbers by value before text.  [default: auto]",
)
@click.option("-r", "--reverse", is_flag=True, help="The greatest first; what is equal stays in its order.")
@click.option(
    "--by",
    type=click.Choice(["key", "name", "md5"]),
    metavar="key|name|md5",
    help="Sort by the key, by the path of the first entry, or by the MD5 of the key.",
)
@click.option("--order-file", metavar="FILE", help="The order is that of the keys in FILE, one a line.")
@click.option("--check-only", is_flag=True, help="Write nothing; fail if the samples are not in order.")
@options.memory
@options.shard_slice
@options.select
@options.fields
@options.problems
def sort(
    inputs: list[Location],
    target: OutputOptions,
    sort_field: tuple[str, ...],
    type_: Any,
    reverse: bool,
    by: Any,
    order_file: str | None,
    check_only: bool,
    memory: int,
    shard_slice: Slice | None,
    select: Select,
    fields: Fields,
    policy: Policy,
) -> None:
    """Put samples in order, by key or by what is in them.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    Without -s samples are sorted by key, byte by byte. What is equal stays in its order, and as many samples come out
    as went in. The entries of a sample that are scattered over an input come together again. Two inputs with equal keys
    are an error, or with --allow joined-sample a join: images in one, labels in the other. --slice and what else
    selects samples does so before, in the order of the inputs.
    """
    names = " ".join(sort_field).replace(",", " ").split()
    if sort_field and not names:
        raise Usage("--sort-field names no field")
    if sum((bool(names), by is not None, order_file is not None)) > 1:
        raise Usage("--sort-field, --by and --order-file are three orders: choose one")
    random = RANDOM in names
    if random and (len(names) > 1 or check_only):
        raise Usage(f"-s {RANDOM} is an order of its own, and no sample is out of it")
    if check_only and target.given:
        raise Usage("--check-only writes nothing: it has no output")
    if order_file is not None:
        current().reserve(order_file, "the list of keys in order", written=False)
        if reverse:
            raise Usage("--order-file is the order: -r does not go with it")
    run = current()
    order: SortKey | OrderFile = SortKey(names or ["__key__"], type_, reverse, by or "field")
    if order_file is not None:
        order = OrderFile(order_file)
    data = read(run, inputs, shard_slice).choose(select)
    if check_only:
        refuse_disorder(data, order, run)
        return
    seed = options.draw_seed(select.seed) if random else None
    opened = target.open(run)
    by_key, by_chance = Order(order, memory=memory, gathers=True), Order(random=Random(seed or 0), memory=memory)
    write(data.then(by_chance if random else by_key).change(fields), opened, run)
    run.finish()


def refuse_disorder(data: Dataset, order: SortKey | OrderFile, run: ConsoleRun) -> None:
    """Raise TarkitError for the first sample of a dataset that is out of order."""
    samples, flow = data.samples(run, moves=False)

    def rank(sample: TarSample, ordinal: int) -> bytes | None:
        value = order(sample, ordinal)
        return order.absent(sample, run.policy) if value is None else value

    def counted() -> Iterator[TarSample]:
        for sample in samples:
            run.samples += sample.key is not None
            yield sample

    found = check_order(neighbours(counted(), run.policy), rank)
    flow.finish()
    if found is not None:
        raise TarkitError(
            f"{found.archive}: at {found.offset}: {show(found.after)} is out of order behind {show(found.before)}",
            "tarkit sort without --check-only puts it in order",
        )
    run.finish()
