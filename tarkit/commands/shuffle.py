"""tarkit shuffle: all samples in a random order, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import Run, current
from tarkit.cli.order import note_order, reading, write_in_order
from tarkit.cli.target import OutputOptions, target
from tarkit.errors import Usage
from tarkit.problems import ONE_ARCHIVE, Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import buffer_shuffle, neighbours
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.shards.template import epoch_names, refuse_epoch
from tarkit.sorting.audit import Count, measure
from tarkit.sorting.keys import SortKey
from tarkit.sorting.memory import in_place
from tarkit.sorting.shuffle import pcg_keys, random_keys
from tarkit.sorting.sorter import Sorter
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


@dataclass
class ShuffleOptions:
    """How `shuffle` goes about it. `initial` is how many samples are in the buffer before the first comes out."""

    select: Select
    fields: Fields
    seed: int
    memory: int
    shard_slice: Slice | None = None
    buffer: int | None = None
    initial: int = INITIAL
    rng: str = "tarkit"
    epochs: int | None = None
    ahead: int = 0


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
    **given: Any,
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
        run_audit(run, inputs, select, shard_slice, by, policy)
        return
    if by is not None:
        raise Usage("--by is about --audit", "tarkit sort puts samples into the order of a field")
    if buffer is None and initial is not None:
        raise Usage("--initial is about --buffer")
    if buffer is not None and given["rng"] != "tarkit":
        raise Usage("--rng is about whole shuffles: it does not go with --buffer")
    size = None if buffer is None else options.number_of_samples(buffer, "--buffer", "--buffer 1000")
    if size == 0:
        raise Usage("--buffer 0 holds nothing")
    seed = select.seed = options.draw_seed(select.seed)
    if given["rng"] == "pcg" and not 0 <= seed < PCG_SEEDS:
        raise Usage(f"--seed {seed}: with --rng pcg a seed is from 0 to {PCG_SEEDS - 1}")
    chosen = ShuffleOptions(
        select,
        fields,
        seed,
        shard_slice=shard_slice,
        buffer=size,
        initial=initial or INITIAL,
        ahead=parallel - 1,
        **given,
    )
    run_shuffle(run, inputs, target, chosen, policy)


def run_shuffle(
    run: Run, locations: list[Location], target: OutputOptions, chosen: ShuffleOptions, policy: Policy
) -> None:
    """Write the samples of all inputs that were chosen, shuffled, once for each epoch."""
    names: list[str | None] = [None]
    if chosen.epochs is None:
        refuse_epoch(target.output)
    else:
        names = [*epoch_names(target.output or "-", chosen.epochs)]
        run.facts["epochs"] = chosen.epochs
    outputs = [target.open(run, locations, name) for name in names]
    again = chosen.rng == "pcg" or len(names) > 1
    inputs = DatasetReader(
        locations,
        policy,
        shard_slice=chosen.shard_slice,
        ahead=chosen.ahead,
        spool=again,
        stream=chosen.buffer is None and not again and not in_place(locations, run.note),
        tmpdir=run.scratch(outputs[0].output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    policy.strict |= frozenset() if target.cut else ONE_ARCHIVE
    silent = partial(Policy, policy.allowed, policy.skipped, policy.maxerr, strict=policy.strict)
    if chosen.buffer is not None:
        run.tell(f"a buffer of {chosen.buffer} samples mixes locally only; without --buffer all are mixed with all")
    total = 0
    if chosen.rng == "pcg":
        inputs.policy = silent()
        total = sum(sample.key is not None for sample in chosen.select(iter(inputs)))
        run.note(f"{total} samples for --rng pcg")
    for epoch, output in enumerate(outputs):
        inputs.policy = silent() if epoch else policy
        check = partial(options.report_keys, run, chosen.select if epoch == 0 else Select())
        samples = chosen.select(iter(inputs))
        if chosen.buffer is not None:
            samples = buffer_shuffle(samples, chosen.buffer, chosen.initial, chosen.seed + epoch, inputs.tmpdir)
            distinct = len(locations) > 1 or chosen.fields.rekey is not None
            samples = neighbours(chosen.fields(samples, inputs.policy), inputs.policy, inputs.tmpdir, distinct)
            output.write(run, samples, check)
        else:
            arranged = _arranged(run, samples, inputs, chosen, epoch, total)
            write_in_order(run, output, arranged, chosen.fields, inputs.policy, check)
            note_order(run, arranged)
        run.dropped = inputs.dropped
    run.finish()


def _arranged(
    run: Run, samples: Iterator[TarSample], inputs: DatasetReader, chosen: ShuffleOptions, epoch: int, total: int
) -> Sorter:
    """The samples in the order of an epoch; `total` is how many there are, where that has to be known."""
    pcg = chosen.rng == "pcg"
    ranks = pcg_keys(total, chosen.seed + epoch) if pcg else random_keys(chosen.seed, epoch)
    read, distinct = reading(run, samples, inputs.locations), len(inputs.locations) > 1
    return Sorter(read, lambda sample, ordinal: next(ranks), chosen.memory, inputs.tmpdir, run.note, distinct=distinct)


def run_audit(
    run: Run, locations: list[Location], select: Select, shard_slice: Slice | None, by: str | None, policy: Policy
) -> None:
    """Say on stdout how mixed the samples are; the report has the same."""
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        shard_slice=shard_slice,
        tmpdir=run.tmpdir,
        announce=lambda name: run.note(f"reading {name}"),
    )
    key = None if by is None else SortKey([by])

    def classed(sample: TarSample, ordinal: int) -> bytes | None:
        assert key is not None
        rank = key(sample, ordinal)
        return key.absent(sample, policy) if rank is None else rank

    found = measure(select(iter(inputs)), None if key is None else classed)
    run.samples, run.dropped = found.samples, inputs.dropped
    run.facts["audit"] = found.report()
    options.report_keys(run, select)
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
