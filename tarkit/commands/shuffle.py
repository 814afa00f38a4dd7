"""tarkit shuffle: all samples in a random order, whatever their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tarkit.cli import cluster, options
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.cluster import SpillOptions
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.map import MappedCommand
from tarkit.cli.target import OutputOptions, target
from tarkit.errors import Usage
from tarkit.pipeline.output import Output
from tarkit.pipeline.template import epoch_names, refuse_epoch
from tarkit.sizes import plural
from tarkit.sorting.order import Order, Random, ShuffleOptions
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.shards.output import ShardsOutput

EXAMPLES = (
    "tarkit shuffle big.tar --seed 7 -o mixed.tar",
    "tarkit shuffle 'raw-*.tar' --memory 4G -o 'train-%06d.tar' -c 1000",
    "tarkit shuffle big.tar --epochs 3 -o 'e{epoch}-%06d.tar' --size 500M",
    "tarkit shuffle 'raw-*.tar' --buffer 1000 -o 'local-%06d.tar' --size 1G",
)
COST = (
    "Files that fit into free memory: one pass over headers, one over contents. Others, and streams: two passes, with "
    "temporary space.\f Where entries are small, to read their headers is to read all. --epochs always copies "
    "from files, and keeps a stream in temporary space. --buffer N is one pass and holds N samples."
)


@click.command(cls=MappedCommand, passes=True, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Read N inputs ahead.")
@options.rows(ShuffleOptions, "shuffled")
@cluster.spill
@target
@choice(fields=options.fields)
def shuffle(
    inputs: list[Location],
    target: Callable[..., OutputOptions],
    choice: SampleChoice,
    shuffled: Callable[..., ShuffleOptions],
    parallel: int,
    spill: Callable[..., SpillOptions],
) -> None:
    """Put all samples into a uniformly random order.

    The order depends only on the inputs, the selection and --seed, not on --memory, nor on whether an input is a file
    or a stream. Samples are selected before, in the order of the inputs.

    \f
    With --dask ADDRESS and --spill DIR a cluster does the work, in passes; the output has the same bytes.

    A sample stays whole. Entries without key that are in no sample come first. Fields and keys change afterwards, so
    that {index} in --rekey counts in the new order.
    """
    run, select, chosen = current(), choice.select, shuffled()
    buffer, epochs, memory = chosen.buffer, chosen.epochs, chosen.memory
    if buffer is not None and "tarkit.dask" in click.get_current_context().meta:
        raise Usage("--buffer reads samples in turn: it cannot be used with --dask")
    spilled = spill()
    targets = _targets(run, target(), epochs)
    seed = select.seed = options.draw_seed(select.seed)
    if buffer is not None:
        run.tell(f"a buffer of {plural(buffer, 'sample')} mixes locally only; without --buffer all are mixed with all")
    data = choice.of(inputs, prefetch=parallel - 1, spool=epochs is not None)
    policy, dropped = run.policy, 0  # in the first epoch: each leaves out the same samples
    for epoch, each in enumerate(targets):
        if epoch:
            run.policy = policy.silent()
        if buffer is not None:
            mixed = data.buffer_shuffle(buffer, seed + epoch)
        else:
            mixed = data.then(Order(random=Random(seed, epoch), memory=memory))
        spilled.write(mixed.change(choice.fields), each, run, memory)
        dropped = dropped if epoch else run.dropped
    run.policy, run.dropped = policy, dropped
    run.finish()


def _targets(run: ConsoleRun, target: OutputOptions, epochs: int | None) -> list[Output | ShardsOutput]:
    """The outputs, one for each epoch: all names are looked at before anything is read."""
    if epochs is None:
        refuse_epoch(target.output)
        return [target.open(run)]
    run.facts["epochs"] = epochs
    return [target.open(run, name) for name in epoch_names(target.output or "-", epochs)]
