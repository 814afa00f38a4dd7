"""The steps between reading and writing samples: choose, change, order, map. Each is called once a run.

`Step` is the interface of a step to `chain.Chain`; `Flow` has the state that the steps of one run share. The steps that
choose, change and shuffle through a buffer are here; `sorting.order` has those that order all samples, `proc.step` the
one that processes each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from tarkit.choosing.select import Select
from tarkit.errors import TarkitError, Usage, spell, spell_command
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import buffer_shuffle
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader, InputReader
from tarkit.samples.fields import Fields
from tarkit.samples.sample import SampleBatch
from tarkit.sizes import plural
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.choosing.key_list import KeyList
    from tarkit.pipeline.output import Output
    from tarkit.pipeline.view_rows import ValueTable
    from tarkit.streams.sink import Sink


@dataclass(eq=False, repr=False)
class Flow:
    """The state of one run over a dataset, which its steps share.

    The chain sets `has_all` before it calls a step. What a step says of samples (`is_repeated`)
    is for the steps after it and for the output.

    Attributes:
        run: where problems, messages and counts go.
        inputs: the reader of the samples.
        keys_may_repeat: whether two samples of the output may have one key, so that it has to be checked for that. A
            step that makes keys sets it.
        is_repeated: says whether another sample has the key of the current one; set by a sort, which knows that for
            each. None: not known, so that a check has to remember all keys.
        has_all: whether all samples of the inputs come to the current step, as they are.
        repeats: the option by which a sample may come several times under one key; empty if there is none.
        reread: iterates once more over the samples behind all steps, by a policy of its own, while no sample is asked
            for otherwise.
        as_view: whether the output is a view, which has values of samples, and no new contents.
        tables: those that samples are joined with, whose columns a view has.
        columns: the names of the columns of the views among the inputs, but for names such as `__into__`.
        at_end: called after the last sample; they raise TarkitError or report.
        stack: the processes and outputs of steps; leaving a `with` block of the flow ends them, so that no process
            lives on with the traceback of an exception, and completes outputs.
    """

    run: Run
    inputs: InputReader
    keys_may_repeat: bool
    is_repeated: Callable[[], bool] | None = None
    has_all: bool = False
    repeats: str = ""
    reread: Callable[[Policy], Iterator[SampleBatch]] = lambda policy: iter(())
    as_view: bool = False
    tables: list[ValueTable] = field(default_factory=list)
    columns: Sequence[str] = ()
    at_end: list[Callable[[], None]] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def finish(self) -> None:
        """Run the final checks of the steps, after the last sample; raises TarkitError."""
        for check in self.at_end:
            check()
        self.run.dropped += self.inputs.dropped

    def refuse_repeats(self, hint: str | None = None) -> None:
        """Raise Usage if samples may come several times under one key: where keys are names, one is lost."""
        if self.repeats:
            rekey = spell_command("cat", "rekey", "{index:09d}-{key}")
            other = f"{rekey} gives each its own, and a view may list a sample several times"
            raise Usage(f"{self.repeats} repeats samples, and a key may be there once", hint or other)

    def open(self, output: Output, inputs: Sequence[Location]) -> Sink:
        """Open the output; raise Usage when it is one of the inputs, or a file that a step reads or writes."""
        if self.run.places and output.location.kind in ("path", "url"):
            self.run.reserve(output.location.text, "the output")
        return output.open(inputs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


class Step:
    """A step: work on the samples of a run between reading and writing.

    Attributes:
        name: the method of `Dataset` that adds it.
        scope: the samples that a result needs: one `sample`; `all` samples of the run, which it orders or counts;
            or `parts`, all as well, and it joins the parts of scattered samples.
        reads: `headers` if it passes on samples unchanged, and needs their headers and some values alone; `keys` if it
            looks at nothing but keys.
        permutes: whether all samples come out as they are, perhaps in another order.
        opaque: whether it runs code of the user, so that its results are kept where they are read twice.
    """

    name: str = ""
    scope: Literal["sample", "all", "parts"] = "sample"
    reads: Literal["keys", "headers", "contents"] = "contents"
    permutes: bool = False
    opaque: bool = False

    @property
    def choice(self) -> str:
        """What selects samples, and how columns are joined, as text; empty where all pass, or all without problems."""
        return ""

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether fewer samples may come out than go in, if `policy` decides about problems.

        A step that changes all samples and leaves none out has to say so: loaders count and divide samples by it.
        """
        return not self.permutes

    def takes_rows(self, columns: frozenset[str]) -> bool:
        """Return whether it takes rows of views that were not read, which have keys, places and these columns."""
        return self.reads == "keys"

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Set how the inputs are read for this step, which comes after the steps `before`."""

    def apart(self) -> Step:
        """Return the step for runs of a loader, each over one of the archives."""
        return self

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples after this step."""
        raise NotImplementedError


class SampleFilter(Step):
    """Choose samples. A list of keys that is `shared` by several sources is not reported: `ReportKeys` does that."""

    reads: Literal["keys", "headers", "contents"] = "headers"

    def __init__(self, select: Select, shared: bool = False) -> None:
        self.select = select
        self.shared = shared
        self.name = _used(select, "where", "match", "keys", "exclude_keys", "sample", "slice", "count")
        if select.where is None:
            self.reads = "keys"
        if select.slice is not None or select.sample is not None or select.count is not None:
            self.scope = "all"

    @property
    def choice(self) -> str:
        """The options that choose."""
        select = self.select
        named: dict[str, object] = {
            "where": select.where and select.where.text,
            "match": select.match,
            "sample": select.sample,
        }
        named |= {"seed": select.seed, "slice": select.slice, "count": select.count}
        for name, keys in (("keys", select.keys), ("exclude_keys", select.exclude_keys)):
            if keys is not None:
                named[name] = digest(b"\0".join(sorted(keys.wanted)))
        return ", ".join(f"{name}={value!r}" for name, value in named.items() if value is not None)

    def leaves_out(self, policy: Policy) -> bool:
        """Return True: samples that are not chosen do not come out."""
        return True

    def takes_rows(self, columns: frozenset[str]) -> bool:
        """Return whether the names of an expression are columns: else archives have their values."""
        return self.select.where is None or self.select.where.names <= columns

    def prepare(self, inputs: InputReader, before: Sequence[Step], run: Run) -> None:
        """Say which samples are needed, if it comes first: of a list of keys, or the first ones."""
        select = self.select
        if before or self.shared or not (isinstance(inputs, DatasetReader) and inputs.may_choose):
            return
        if select.keys is not None and select.match is None and select.most is None:  # else keys are found in turn
            inputs.listed = select.keys.anew()
        others = (select.match, select.keys, select.exclude_keys, select.where, select.sample)
        if all(choice is None for choice in others):
            inputs.most = select.most

    def apart(self) -> SampleFilter:
        """Return the filter for a run over some of the archives."""
        return SampleFilter(replace(self.select, policy=Policy), shared=True)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples that are chosen."""
        select = self.select
        if not self.shared and (select.keys is not None or select.exclude_keys is not None):
            keys, others = (listed and listed.anew() for listed in (select.keys, select.exclude_keys))
            listed = flow.inputs.listed
            if keys is not None and isinstance(listed, type(keys)) and listed.wanted is keys.wanted:
                keys = listed  # which knows keys of samples that were not read
            select = replace(select, keys=keys, exclude_keys=others)
            flow.at_end.append(lambda: report_keys(flow.run, select))
        return select(batches, flow.run.policy)


class ChooseAmongAll(Step):
    """A choice of samples that depends on all of them; `choose` has the kinds."""

    reads: Literal["keys", "headers", "contents"] = "headers"
    scope = "all"

    def leaves_out(self, policy: Policy) -> bool:
        """Return True: samples that are not chosen do not come out."""
        return True


class ReportKeys(Step):
    """Report after the last sample which keys of a shared list were found."""

    reads = "headers"

    def __init__(self, select: Select) -> None:
        self.select = select

    def leaves_out(self, policy: Policy) -> bool:
        """Return False: the samples pass as they are."""
        return False

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples."""
        flow.at_end.append(lambda: report_keys(flow.run, self.select))
        return batches


class Change(Step):
    """Choose and rename fields, and give new keys."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.name = "select" if fields.keep else _used(fields, "drop", "require", "rename", "rekey")
        if fields.numbers_keys:
            self.scope = "all"

    @property
    def choice(self) -> str:
        """The fields that samples must have not to be left out."""
        required = " ".join(os.fsdecode(b"|".join(names)) for names in self.fields.require)
        return f"require={required!r}" if required and self.fields.on_missing == "skip" else ""

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether samples may be left out: for a field that they lack, or since no field is left of them."""
        fields = self.fields
        if fields.drop or any(not new for _, new in fields.rename):
            return True
        skips = fields.on_missing == "skip" or (fields.on_missing == "error" and "missing-field" in policy.skipped)
        return bool(fields.keep and (skips or fields.on_missing != "error")) or bool(fields.require and skips)

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples with their new fields and keys."""
        if self.fields.rekey is not None:
            flow.keys_may_repeat, flow.is_repeated, flow.repeats = True, None, ""
            words = f"this {spell('rekey')} gives two samples one key: another makes them differ"
            hint = f"{words}, {spell('rekey', '{index:09d}-{key}')} always"
            flow.run.policy.repairs |= {"joined-sample": hint, "repeated-key": hint}
        return self.fields(batches, flow.run.policy)


class BufferShuffle(Step):
    """Shuffle through a buffer of `size` samples."""

    name = "buffer_shuffle"
    scope = "all"
    permutes = True

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples, locally mixed."""
        return buffer_shuffle(batches, self.size, self.seed, flow.inputs.tmpdir)


def digest(data: bytes) -> str:
    """Return a short hash, by which a setting is recognised that is long or not to be shown."""
    from hashlib import sha256

    return sha256(data).hexdigest()[:16]


def _used(options: Select | Fields, *names: str) -> str:
    return next((name for name in names if getattr(options, name) not in (None, (), [])), "")


def report_keys(run: Run, select: Select) -> None:
    """Report how many of the listed keys were found; raise TarkitError if all were required and some are missing."""
    for name, done, keys in (
        ("keys", "requested", select.keys),
        ("exclude_keys", "to leave out", select.exclude_keys),
    ):
        if keys is not None and name not in run.facts:
            _report_list(run, name, done, keys)


def _report_list(run: Run, name: str, done: str, keys: KeyList) -> None:
    run.facts[name], text = keys.summary(done)
    if run.part_of_many and not keys.require_all:
        run.note(f"{keys.name}: {len(keys.present)} of {plural(len(keys.wanted), 'key')} found")
        return
    if keys.require_all and len(keys.present) < len(keys.wanted):
        raise TarkitError(text, keys.hint())
    run.tell(text)
    if (hint := keys.hint()) is not None:
        run.warn(f"{keys.name}: {hint}")
