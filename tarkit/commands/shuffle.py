"""tarkit shuffle: all samples in a random order, whatever their size."""

from __future__ import annotations

from typing import Literal

import click

from tarkit.api.dataset import Dataset, read
from tarkit.api.order import Order, Random
from tarkit.api.output import Output
from tarkit.api.shards import ShardsOutput
from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.target import OutputOptions, target, write
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.shards.template import epoch_names, number_of_samples, refuse_epoch
from tarkit.sorting.audit import Count, measure
from tarkit.sorting.keys import SortKey
from tarkit.streams.location import Location

INITIAL = 100  # samples in webdataset's buffer before the first comes out
PCG_SEEDS = 1 << 63
WRITING: tuple[str, ...] = ("output", "count", "size", "size_rule", "template", "force", "compress", "fsync", "memory")
WRITING += ("epochs", "buffer", "initial", "rng", "fields", "drop", "require", "on_missing_field", "rekey")

EXAMPLES = (
    "tarkit shuffle big.tar --seed 7 -o mixed.tar",
    "tarkit shuffle 'raw-*.tar' --memory 4G -o 'train-%06d.tar' -c 1000",
    "tarkit shuffle big.tar --epochs 3 -o 'e{epoch}-%06d.tar' --size 500M",
    "tarkit shuffle mixed.tar --audit --by cls",
)
COST = (
    "Files that fit into free memory: the headers are read, which where entries are small is to read all, and then "
    "each byte is read and written once, in the order of the output. Streams, compressed inputs and larger files: what "
    "--memory does not hold goes to temporary space and comes back, two times read and written. --epochs and --rng pcg "
    "copy from files always, and keep a stream in temporary space; pcg counts first, and holds 16 bytes a sample "
    "beside --memory. --buffer N is one pass and holds N samples. --audit reads headers, and holds 150 bytes a sample."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@target
@options.memory
@click.option("--epochs", type=click.IntRange(1), metavar="N", help="N orders; {epoch} in OUT counts from 0.")
@click.option("--buffer", metavar="N", help="Only locally, through N samples, in the order of webdataset's shuffle.")
@click.option("--initial", type=click.IntRange(1), metavar="M", help=f"Samples in it at first.  [default: {INITIAL}]")
@click.option(
    "--rng",
    type=click.Choice(["tarkit", "pcg"]),
    default="tarkit",
    metavar="tarkit|pcg",
    help="Whose order: pcg is that of AIStore's dSort.  [default: tarkit]",
)
@click.option("--audit", is_flag=True, help="Write nothing; say how mixed the samples are.")
@click.option("--by", metavar="FIELD", help="With --audit, also by class: cls, or json.label.")
@click.option("-p", "--parallel", type=click.IntRange(1), default=1, metavar="N", help="Read N inputs ahead.")
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
    epochs: int | None,
    rng: Literal["tarkit", "pcg"],
) -> None:
    """Put all samples into a random order, each as likely as any other.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    The order depends on the inputs, what is selected and --seed alone: not on --memory, nor on whether an input is a
    file or a stream. A sample stays whole. Entries without key that stand in no sample come first. Fields and keys
    change afterwards, so that {index} in --rekey counts in the new order. --slice and what else selects samples does so
    before, in the order of the inputs.

    With --epochs N there are N orders, the first of which is that of one alone. Where OUT has no {epoch} or
    {epoch:03d}, its name begins with epoch0-, epoch1- and so on.

    --buffer does not mix far: no sample comes more than N places early. Entries without key stay with their sample.

    --audit counts neighbours whose keys are neighbours in natural order, and with --by those of one class, and compares
    with what chance would have.
    """
    run = current()
    if audit:
        _refuse_what_audit_ignores()
        run_audit(run, read(run, inputs, shard_slice).choose(select), by)
        return
    if by is not None:
        raise Usage("--by is about --audit", "tarkit sort puts samples into the order of a field")
    size = _buffer_size(buffer, initial, rng)
    seed = select.seed = options.draw_seed(select.seed)
    if rng == "pcg" and not 0 <= seed < PCG_SEEDS:
        raise Usage(f"--seed {seed}: with --rng pcg a seed is from 0 to {PCG_SEEDS - 1}")
    targets = _targets(run, target, epochs)
    if size is not None:
        run.tell(f"a buffer of {size} samples mixes locally only; without --buffer all are mixed with all")
    data = read(run, inputs, shard_slice, prefetch=parallel - 1, spool=epochs is not None).choose(select)
    for epoch, each in enumerate(targets):
        if epoch:
            run.policy = policy.silent()
        if size is not None:
            mixed = data.buffer_shuffle(size, seed + epoch, initial=initial or INITIAL)
        else:
            mixed = data.then(Order(random=Random(seed, epoch, rng), memory=memory))
        write(mixed.change(fields), each, run)
    run.policy = policy
    run.finish()


def _buffer_size(buffer: str | None, initial: int | None, rng: str) -> int | None:
    """The number of samples in --buffer, None without; raises Usage for what does not go together."""
    if buffer is None and initial is not None:
        raise Usage("--initial is about --buffer")
    if buffer is not None and rng != "tarkit":
        raise Usage("--rng is about whole shuffles: it does not go with --buffer")
    size = None if buffer is None else number_of_samples(buffer, "--buffer", "--buffer 1000")
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


def run_audit(run: ConsoleRun, data: Dataset, by: str | None) -> None:
    """Say on stdout how mixed the samples are; the report has the same."""
    samples, flow = data.samples(run, moves=False)
    key = None if by is None else SortKey([by])

    def classed(sample: TarSample, ordinal: int) -> bytes | None:
        assert key is not None
        rank = key(sample, ordinal)
        return key.absent(sample, run.policy) if rank is None else rank

    found = measure(samples, None if key is None else classed)
    flow.finish()
    run.samples = found.samples
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
