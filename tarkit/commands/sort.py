"""tarkit sort: put samples in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import Run, current
from tarkit.cli.order import note_order, reading, write_in_order
from tarkit.cli.target import OutputOptions, target
from tarkit.errors import TarkitError, Usage, show
from tarkit.problems import ONE_ARCHIVE, Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import neighbours
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.sorting.keys import OrderFile, SortKey, check_order
from tarkit.sorting.memory import in_place
from tarkit.sorting.shuffle import random_keys
from tarkit.sorting.sorter import Rank, Sorter
from tarkit.streams.location import Location

RANDOM = "__random__"
EXAMPLES = (
    "tarkit sort a.tar -o sorted.tar",
    "tarkit sort 'a-{00..99}.tar' -s cls -t int -c 1000 -o 'by-cls-%06d.tar'",
    "tarkit sort images.tar labels.tar --allow joined-sample -o both.tar",
)
COST = (
    "Files that fit into free memory: one pass over headers, one over contents. Others, and streams: two passes, with "
    "temporary space.\f About 250 bytes a sample are in memory; what --memory does not hold is sorted in runs."
)


@dataclass
class SortOptions:
    """The order, and what becomes of the samples besides. `seed` is for a random order, `order` beats `key`."""

    key: SortKey
    select: Select
    fields: Fields
    memory: int
    order: OrderFile | None = None
    seed: int | None = None
    shard_slice: Slice | None = None
    check_only: bool = False


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@option(
    "Order",
    "-s",
    "--sort-field",
    "--sortfield",
    "sort_field",
    multiple=True,
    metavar="FIELDS",
    help="Sort by these fields.  [default: __key__]",
    more="By the content of a field, or by size, size.FIELD, width.FIELD or json.a.b.",
)
@choice(
    "Order",
    "-t",
    "--type",
    "type_",
    choices="auto|str|int|float|natural",
    metavar="TYPE",
    help="As auto, str, int, float, natural.",
    more="auto puts numbers, by value, before text.",
)
@option("Order", "-r", "--reverse", is_flag=True, help="Descending; equal samples keep their order.")
@choice("Order", "--by", choices="key|name|md5", default=None, help="Sort by key, first path or MD5 of the key.")
@option("Order", "--order-file", metavar="FILE", help="Sort as the keys in FILE, one a line.")
@option("Order", "--check-only", is_flag=True, help="Write nothing; fail if not in order.")
@options.memory
@target
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

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    By default samples are sorted by key, in byte order, and equal samples keep their order. Two inputs with equal keys
    are an error; --allow joined-sample joins them: images in one, labels in the other.

    \f
    Scattered entries of a sample in one input are gathered. Samples are selected before, in the order of the inputs.
    """
    names = " ".join(sort_field).replace(",", " ").split()
    if sort_field and not names:
        raise Usage("--sort-field names no field")
    if sum((bool(names), by is not None, order_file is not None)) > 1:
        raise Usage("--sort-field, --by and --order-file cannot be used together")
    random = RANDOM in names
    if random and (len(names) > 1 or check_only):
        raise Usage(f"-s {RANDOM} cannot be used with other fields or --check-only")
    if check_only and target.given:
        raise Usage("--check-only cannot be used with options of the output: it writes nothing")
    if order_file is not None:
        current().reserve(order_file, "the list of keys in order", written=False)
        if reverse:
            raise Usage("--order-file cannot be used with -r")
    chosen = SortOptions(
        SortKey(names or ["__key__"], type_, reverse, by or "field"),
        select,
        fields,
        memory,
        None if order_file is None else OrderFile(order_file),
        options.draw_seed(select.seed) if random else None,
        shard_slice,
        check_only,
    )
    run_sort(current(), inputs, target, chosen, policy)


def run_sort(run: Run, locations: list[Location], target: OutputOptions, chosen: SortOptions, policy: Policy) -> None:
    """Write the samples of all inputs in the order that was chosen, or only look whether they are in it."""
    order = chosen.order or chosen.key
    if chosen.check_only:
        _check(run, locations, chosen, order, policy)
        return
    policy.strict |= frozenset() if target.cut else ONE_ARCHIVE
    opened = target.open(run, locations)
    tmpdir = run.scratch(opened.output)
    inputs = _inputs(run, locations, chosen, policy, tmpdir, not in_place(locations, run.note))
    arranged = Sorter(
        reading(run, chosen.select(iter(inputs)), locations),
        order if chosen.seed is None else _random(chosen.seed),
        chosen.memory,
        tmpdir,
        run.note,
        policy if chosen.seed is None else None,
        lambda sample: order.absent(sample, policy),
        distinct=chosen.seed is not None and len(locations) > 1,
    )
    write_in_order(run, opened, arranged, chosen.fields, policy, lambda: options.report_keys(run, chosen.select))
    _sum_up(run, inputs, arranged, chosen)


def _random(seed: int) -> Rank:
    """The ranks of `tarkit shuffle`."""
    keys = random_keys(seed)
    return lambda sample, ordinal: next(keys)


def _inputs(
    run: Run, locations: list[Location], chosen: SortOptions, policy: Policy, tmpdir: str | None, stream: bool
) -> DatasetReader:
    """The inputs. What counts samples before they are gathered must not tear them: then they may not be scattered.

    A random order is that of shuffle, which gathers nothing.
    """
    counts = (
        chosen.seed is not None
        or chosen.shard_slice is not None
        or chosen.select.slice is not None
        or chosen.select.sample is not None
    )
    return DatasetReader(
        locations,
        policy,
        gather=not counts,
        stream=stream,
        shard_slice=chosen.shard_slice,
        tmpdir=tmpdir,
        announce=lambda name: run.note(f"reading {name}"),
    )


def _check(
    run: Run, locations: list[Location], chosen: SortOptions, order: SortKey | OrderFile, policy: Policy
) -> None:
    """Raise TarkitError for the first sample that is out of order."""
    inputs = DatasetReader(locations, policy, moves=False, shard_slice=chosen.shard_slice)

    def rank(sample: TarSample, ordinal: int) -> bytes | None:
        value = order(sample, ordinal)
        return order.absent(sample, policy) if value is None else value

    def counted() -> Iterator[TarSample]:
        for sample in chosen.select(iter(inputs)):
            run.samples += sample.key is not None
            yield sample

    found = check_order(neighbours(counted(), policy), rank)
    options.report_keys(run, chosen.select)
    if found is not None:
        raise TarkitError(
            f"{found.archive}: at {found.offset}: {show(found.after)} is out of order behind {show(found.before)}",
            "tarkit sort without --check-only puts it in order",
        )
    run.dropped = inputs.dropped
    run.finish()


def _sum_up(run: Run, inputs: DatasetReader, arranged: Sorter, chosen: SortOptions) -> None:
    """The summary, with what came in and what came out of the order."""
    run.dropped = inputs.dropped + arranged.left_out
    note_order(run, arranged)
    if chosen.order is not None and chosen.order.missing:
        run.facts["not_found"] = chosen.order.missing
        run.tell(f"{chosen.order.name}: {chosen.order.missing} of {len(chosen.order.places)} keys did not come by")
    run.finish()
