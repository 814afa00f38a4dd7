"""tarkit shuffle: all samples in a random order, whatever their size."""

from __future__ import annotations

from typing import Literal

import click

from tarkit.cli import cluster, options
from tarkit.cli.cluster import SpillOptions
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.map import MappedCommand
from tarkit.cli.target import OutputOptions, target
from tarkit.dataset import Dataset, for_run
from tarkit.errors import Usage
from tarkit.pipeline.output import Output
from tarkit.pipeline.template import epoch_names, refuse_epoch
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.select import Select, Slice
from tarkit.shards.output import ShardsOutput
from tarkit.sorting.audit import Count
from tarkit.sorting.order import Order, Random, audit_order
from tarkit.streams.location import Location

INITIAL = 100  # samples in webdataset's buffer before the first comes out
PCG_SEEDS = 1 << 63
WRITING: tuple[str, ...] = ("output", "count", "size", "size_rule", "force", "compress", "fsync", "memory")
WRITING += ("epochs", "buffer", "initial", "rng", "fields", "drop", "require", "on_missing_field", "rekey")

EXAMPLES = (
    "tarkit shuffle big.tar --seed 7 -o mixed.tar",
    "tarkit shuffle 'raw-*.tar' --memory 4G -o 'train-%06d.tar' -c 1000",
    "tarkit shuffle big.tar --epochs 3 -o 'e{epoch}-%06d.tar' --size 500M",
    "tarkit shuffle mixed.tar --audit --by cls",
)
COST = (
    "Files that fit into free memory: one pass over headers, one over contents. Others, and streams: two passes, with "
    "temporary space.\f Where entries are small, to read their headers is to read all. --epochs and --rng pcg always "
    "copy from files, and keep a stream in temporary space; pcg counts first, and holds 16 bytes a sample beside "
    "--memory. --buffer N is one pass and holds N samples. --audit reads headers, and holds 150 bytes a sample."
)


@click.command(cls=MappedCommand, passes=True, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Read N inputs ahead.")
@option(
    "Order",
    "--epochs",
    type=click.IntRange(1),
    metavar="N",
    help="Write N orders; {epoch} in OUT is the number, from 0.",
)
@option(
    "Order",
    "--buffer",
    metavar="N",
    help="Shuffle locally, in a buffer of N samples.",
    more="The order is that of webdataset's shuffle.",
)
@option(
    "Order",
    "--initial",
    type=click.IntRange(1),
    metavar="M",
    help=f"Samples in the buffer at first.  [default: {INITIAL}]",
)
@choice("Order", "--rng", choices="tarkit|pcg", help="Generator; pcg as in AIStore's dSort.")
@option("Order", "--audit", is_flag=True, help="Write nothing; print how mixed the samples are.")
@option("Order", "--by", metavar="FIELD", help="With --audit, also by class: cls, json.label.")
@options.memory
@cluster.spill
@target
@options.shard_slice
@options.select
@options.fields
@options.problems
def shuffle(
    inputs: list[Location],
    target: OutputOptions,
    shard_slice: Slice | None,
    select: Select,
    fields: Fields,
    buffer: str | None,
    initial: int | None,
    audit: bool,
    by: str | None,
    parallel: int,
    policy: Policy,
    memory: int,
    spill: SpillOptions,
    epochs: int | None,
    rng: Literal["tarkit", "pcg"],
) -> None:
    """Put all samples into a uniformly random order.

    The order depends only on the inputs, the selection and --seed, not on --memory, nor on whether an input is a file
    or a stream. Samples are selected before, in the order of the inputs.

    \f
    With --dask ADDRESS and --spill DIR a cluster does the work, in passes; the output has the same bytes.

    A sample stays whole. Entries without key that are in no sample come first. Fields and keys change afterwards, so
    that {index} in --rekey counts in the new order.
    """
    run = current()
    if (audit or buffer is not None) and "tarkit.dask" in click.get_current_context().meta:
        raise Usage(f"--{'audit' if audit else 'buffer'} reads samples in turn: it cannot be used with --dask")
    spill.check()
    if audit:
        _refuse_what_audit_ignores()
        _print_audit(run, for_run(run, inputs, shard_slice).filter_samples(select), by)
        return
    if by is not None:
        raise Usage("--by requires --audit", "tarkit sort puts samples into the order of a field")
    size = _buffer_size(buffer, initial, rng)
    if rng == "pcg" and not 0 <= (select.seed or 0) < PCG_SEEDS:
        raise Usage(f"--seed {select.seed}: with --rng pcg a seed is from 0 to {PCG_SEEDS - 1}")
    targets = _targets(run, target, epochs)
    seed = select.seed = options.draw_seed(select.seed)
    if size is not None:
        run.tell(f"a buffer of {size} samples mixes locally only; without --buffer all are mixed with all")
    data = for_run(run, inputs, shard_slice, prefetch=parallel - 1, spool=epochs is not None).filter_samples(select)
    dropped = 0  # in the first epoch: each leaves out the same samples
    for epoch, each in enumerate(targets):
        if epoch:
            run.policy = policy.silent()
        if size is not None:
            mixed = data.buffer_shuffle(size, seed + epoch, initial=initial or INITIAL)
        else:
            mixed = data.then(Order(random=Random(seed, epoch, rng), memory=memory))
        spill.write(mixed.change(fields), each, run)
        dropped = dropped if epoch else run.dropped
    run.policy, run.dropped = policy, dropped
    run.finish()


def _buffer_size(buffer: str | None, initial: int | None, rng: str) -> int | None:
    """The number of samples in --buffer, None without; raises Usage for what does not go together."""
    if buffer is None and initial is not None:
        raise Usage("--initial requires --buffer")
    if buffer is not None and rng != "tarkit":
        raise Usage("--rng cannot be used with --buffer")
    size = None if buffer is None else options.number_of_samples(buffer, "--buffer", "--buffer 1000")
    if size == 0:
        raise Usage("--buffer 0 holds nothing")
    return size


def _targets(run: ConsoleRun, target: OutputOptions, epochs: int | None) -> list[Output | ShardsOutput]:
    """The outputs, one for each epoch: all names are looked at before anything is read."""
    if epochs is None:
        refuse_epoch(target.output)
        return [target.open(run)]
    run.facts["epochs"] = epochs
    return [target.open(run, name) for name in epoch_names(target.output or "-", epochs)]


def _print_audit(run: ConsoleRun, data: Dataset, by: str | None) -> None:
    """Say on stdout how mixed the samples are; the report has the same."""
    found = audit_order(data, by, run)
    run.facts["audit"] = found.report()
    click.echo(f"{found.samples} samples")
    _echo("neighbours whose keys are neighbours too", found.kept)
    click.echo(f"places between neighbours, by key: {found.distance:.1f}, by chance {found.expected_distance:.1f}")
    if found.same is not None:
        _echo(f"neighbours of one {by}", found.same)
        click.echo(f"classes: {found.classes}; the longest run of one is {found.longest}")
    run.finish()


def _echo(what: str, count: Count) -> None:
    share = f"{100 * count.found / count.pairs:.3g} %" if count.pairs else "none"
    ratio = "" if count.ratio is None else f", so {count.ratio:.3g} times as many"
    click.echo(f"{what}: {count.found} of {count.pairs} ({share}), by chance {count.expected:.1f}{ratio}")


def _refuse_what_audit_ignores() -> None:
    context = click.get_current_context()
    for param in context.command.params:
        name = param.name or ""
        if name in WRITING and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(each for each in param.opts if each.startswith("--"))
            raise Usage(f"--audit writes nothing: {option} does not go with it")
