"""The step that sorts or shuffles all samples, and the first sample that is out of order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tarkit.errors import Usage, spell
from tarkit.options import Options, row
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import total_size
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import neighbours
from tarkit.pipeline.steps import Flow, Step
from tarkit.problems import ALL
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sizes import plural
from tarkit.sorting.keys import Disorder, OrderFile, SortKey, SortType, check_order
from tarkit.sorting.memory import MEMORY, default_memory, in_place
from tarkit.sorting.shuffle import RandomKeys, random_keys
from tarkit.sorting.sorter import Rank, Ranks, Sorter
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.stores.store import StoreOptions


@dataclass(eq=False, repr=False)
class Order(Step):
    """An order of samples: by a key, or random.

    Attributes:
        key: gives the ranks, and decides about samples without a rank; None for a random order.
        random: the random order.
        memory: bytes that may be held; None: a quarter of the machine's.
        gathers: whether parts of a sample that are scattered come together; parts in two inputs are joined only if the
            policy allows `joined-sample`.
    """

    key: SortKey | OrderFile | None = None
    random: Random | None = None
    memory: int | None = None
    gathers: bool = False
    permutes = True

    def __post_init__(self) -> None:
        self.name = "shuffle" if self.key is None else "sort"
        self.scope = "parts" if self.gathers else "all"
        if self.key is None:
            self.reads = "keys"

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Have files that exceed free memory read in order, to avoid random access to the disk."""
        inputs.stream = inputs.stream or not in_place(inputs.locations, run.note)
        inputs.reordered = inputs.reordered or all(step.reads != "contents" for step in before)
        if not before and isinstance(self.key, SortKey):
            inputs.field = self.key.wanted

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples in order; rows of views that were not read are shuffled as columns."""
        if self.random is None or not flow.inputs.unread:
            return self.sorter(batches, flow).batches()
        from tarkit.sorting.rows import RowShuffle  # not loaded for most runs

        keys = RandomKeys(self.random.seed, self.random.epoch, self.random.start)
        rows = RowShuffle(keys.take, self._memory, flow.inputs.tmpdir)
        sorter = Sorter(
            rows.others(flow.run.watch_input("reading", batches, total_size(flow.inputs.locations))),
            lambda sample, ordinal: keys.take(1),
            self._memory,
            tmpdir=flow.inputs.tmpdir,
            note=flow.run.note,
            contents=flow.inputs.contents,
            one_by_one=True,
        )
        flow.at_end += (sorter.unchanged, lambda: self._report(flow.run, sorter, flow.inputs.locations, rows.count))
        return rows.merged(sorter)

    @property
    def _memory(self) -> int:
        return default_memory() if self.memory is None else self.memory

    def sorter(self, batches: Iterator[SampleBatch], flow: Flow) -> Sorter:
        """Return the sorter of the samples of a run."""
        run, key = flow.run, self.key
        if self.gathers:
            flow.refuse_repeats("a sort joins samples of one key: order the samples first, then choose")
        rank: Rank
        ranks: Ranks | None = None
        if key is None:
            assert self.random is not None
            rank, ranks = self.random.ranks()
        else:
            rank, ranks = key, key.ranks if isinstance(key, SortKey) else None
        sorter = Sorter(
            run.watch_input("reading", batches, total_size(flow.inputs.locations)),
            rank,
            self._memory,
            ranks,
            tmpdir=flow.inputs.tmpdir,
            note=run.note,
            gather=run.policy if self.gathers else None,
            absent=None if key is None else lambda sample: key.absent(sample, run.policy),
            distinct=key is None and flow.keys_may_repeat,
            contents=flow.inputs.contents,
        )
        flow.keys_may_repeat = sorter.distinct  # sorted by key, entries of one key are one sample
        flow.is_repeated = lambda: sorter.repeated
        # the sorter checks its files after the last sample; once more when the output has copied that one
        flow.at_end += (sorter.unchanged, lambda: self._report(run, sorter, flow.inputs.locations))
        return sorter

    def _report(self, run: Run, sorter: Sorter, inputs: Sequence[Location], rows: int = 0) -> None:
        taken, joined, left_out, out = sorter.taken + rows, sorter.joined, sorter.left_out, sorter.yielded + rows
        run.dropped += left_out
        run.facts["order"] = {"in": taken, "gathered": joined, "left_out": left_out, "out": out}
        run.note(
            f"{plural(taken, 'sample')} came in, {joined} became parts of others, {left_out} were left out, "
            f"and {out} came out"
        )
        policy = run.policy
        asked = self.gathers and "joined-sample" in policy.allowed and not policy.allowed >= ALL
        if asked and len(inputs) > 1 and not policy.counts["joined-sample"]:
            run.tell("no sample was joined: no key is in two inputs")
        if isinstance(self.key, OrderFile) and self.key.missing:
            run.facts["not_found"] = self.key.missing
            run.tell(f"{self.key.name}: {self.key.missing} of {plural(len(self.key.places), 'key')} were not found")


@dataclass(eq=False, repr=False)
class Random:
    """A random order. `start` is how many samples of the whole are before the first of this run."""

    seed: int
    epoch: int = 0
    start: int = 0

    def ranks(self) -> tuple[Rank, Ranks]:
        """Return the functions that give the rank of the next sample, and the ranks of the next ones."""
        keys = random_keys(self.seed, self.epoch, self.start)
        return lambda sample, ordinal: next(keys), lambda batch: list(islice(keys, len(batch.keys)))


class ShuffleOptions(Options):
    """The options of `Dataset.shuffle` and the command `shuffle`."""

    epochs: int | None = row(
        "Order", "--epochs", at_least=1, metavar="N", help="Write N orders; {epoch} in OUT is the number, from 0."
    )
    buffer: int | None = row(
        "Order",
        "--buffer",
        at_least=1,
        metavar="N",
        help="Shuffle locally, in a buffer of N samples.",
        more="The order is that of webdataset's shuffle.",
        hint="a number of samples, not bytes: --buffer 1000",
    )
    memory: int | None = MEMORY


class SortOptions(Options):
    """The options of `Dataset.sort`, `Dataset.find_disorder` and the command `sort`."""

    by: str | Sequence[str] = row(
        "Order",
        "-s",
        "--sort-field",
        "--sortfield",
        "--by",
        complete="values",
        many=True,
        split=True,
        default="__key__",
        metavar="FIELDS",
        help="Sort by contents of fields.  [default: __key__]",
        more="Also by size, size.FIELD, width.FIELD, json.a.b, or __random__.",
    )
    type: SortType = row(
        "Order",
        "-t",
        "--type",
        choices=SortType,
        default="auto",
        metavar="TYPE",
        help="As auto, str, int, float, natural.",
        more="auto puts numbers, by value, before text.",
    )
    reverse: bool = row("Order", "--reverse", "-r", default=False, help="Descending; equal samples keep their order.")
    order_file: str | os.PathLike[str] | None = row(
        "Order",
        "--order-file",
        metavar="FILE",
        role="file",
        help="Sort as the keys in FILE; others are an error.",
        more="FILE has one key a line. --keys-from FILE leaves out samples that it does not list.",
    )
    check_only: bool = row("Order", "--check-only", default=False, help="Write nothing; fail if not in order.")
    memory: int | None = MEMORY

    def check(self) -> None:
        """Raise Usage for options that do not go together."""
        if not self.by:
            raise Usage(f"{spell('by')} names no field")
        if self.order_file is not None and (self.by != ("__key__",) or self.type != "auto" or self.reverse):
            message = f"{spell('order_file')} cannot be used with {spell('by')}, {spell('type')} or {spell('reverse')}"
            raise Usage(message)

    def key(self, storage: StoreOptions | None = None) -> SortKey | OrderFile:
        """Return the key that ranks samples; `storage` has the options for the URL of a file."""
        if self.order_file is not None:
            return OrderFile(os.fsdecode(self.order_file), options=storage)
        return SortKey(self.by, self.type, self.reverse)


def find_disorder(data: Chain, key: SortKey | OrderFile, run: Run) -> Disorder | None:
    """Return the first sample that is out of order."""
    batches, flow = data.batches(run, moves=False, contents=False)

    def counted() -> Iterator[TarSample]:
        for sample in singly(batches):
            run.samples += sample.count
            yield sample

    with flow:
        disorder = check_order(singly(neighbours(counted(), run.policy)), _ranked(key, run))
        flow.finish()
    return disorder


def _ranked(key: SortKey | OrderFile, run: Run) -> Rank:
    """Return the function that gives the rank of each sample, or asks the policy about one that has none."""

    def rank(sample: TarSample, ordinal: int) -> bytes | None:
        value = key(sample, ordinal)
        return key.absent(sample, run.policy) if value is None else value

    return rank
