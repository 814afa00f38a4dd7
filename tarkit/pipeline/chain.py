"""Chains: an origin of samples, and the steps that are applied to them. `dataset.Dataset` adds the public methods.

A chain can be run any number of times. `Chain.batches` begins a run: the origin opens its inputs, and each step gets an
iterator of the samples in front of it and returns one of those behind it. The state that the steps of a run share is in
its `Flow`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, Self, cast

from tarkit.choosing.select import Select, Slice
from tarkit.errors import MissingFile, Unsupported, Usage, hint_without_missing
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Change, ChooseAmongAll, Flow, SampleFilter, Step
from tarkit.problems import Policy
from tarkit.samples.dataset import BatchSource, DatasetReader, InputReader
from tarkit.samples.fields import Fields, common_directory
from tarkit.samples.sample import SampleBatch
from tarkit.streams.fileobjects import FileObjectInput, reader_of
from tarkit.streams.location import Location, expand_inputs, is_view, says_view
from tarkit.threads import codec_threads

if TYPE_CHECKING:
    from tarkit.pipeline.ranges import KeptSamples
    from tarkit.samples.text import Mode
    from tarkit.stores.store import StoreOptions

    Input = str | os.PathLike[str] | BinaryIO | Location  # inputs as `locate` takes them, one or several


class Origin(Protocol):
    """The origin of the samples of a dataset: archives, a table, a tree of files, or other datasets."""

    @property
    def locations(self) -> tuple[Location, ...]:
        """What is read: all archives, the table, the directory; at least one."""

    @property
    def storage(self) -> StoreOptions | None:
        """How URLs of other files are reached that steps read; None for the options of the process."""

    @property
    def whole(self) -> bool:
        """Whether it is archives of which all samples are read, those of each archive in order."""

    @property
    def keys_may_repeat(self) -> bool:
        """Whether two samples may have one key, so that an output has to be checked for that."""

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> InputReader:
        """Begin to read for a run.

        Args:
            run: where problems and messages go.
            tmpdir: the directory of temporary files.
            spool: whether the run reads all samples several times, so that streams are copied to temporary files.
        """


class PartedOrigin(Origin, Protocol):
    """An origin of parts, each of which can be read alone, in any process: archives, or planned shards."""

    def only(self, places: Sequence[int]) -> Origin:
        """Return the parts with these numbers, in this order."""


@dataclass(eq=False, repr=False)
class Archives:
    """Archives as the origin of samples.

    Attributes:
        locations: where they are.
        shard_slice: start, stop and step of the samples that are read of each archive; None for all.
        interleave: how many archives are open at a time, giving a sample each in turn.
        prefetch: how many archives are opened ahead.
        spool: whether copies of streams are kept in temporary files from one run to the next, which read them again.
        mode: `tar`, or how text, which is there in place of archives, is divided into samples.
        storage: how URLs of other files are reached that steps read; None for the options of the process.
    """

    locations: tuple[Location, ...]
    shard_slice: Slice | None = None
    interleave: int = 1
    prefetch: int = 0
    spool: bool = False
    mode: Mode = "tar"
    storage: StoreOptions | None = None

    def __post_init__(self) -> None:
        self._kept: DatasetReader | None = None  # with `spool`, the reader of the first run
        self._opened = False  # whether there was a run
        self._stdin_start: int | None = None  # the offset at which the latest run began to read stdin, if it is a file

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what they were made of, without what runs have left. Raises TypeError for what one process has."""
        for location in self.locations:
            if location.kind in ("object", "stdin"):
                words = "a file object" if location.kind == "object" else "stdin"
                raise TypeError(f"cannot pickle a dataset of {words} ({location.name}): name a file or a URL")
        return Archives, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def whole(self) -> bool:
        """Whether all of their samples are read; those of text are made anew."""
        return self.shard_slice is None and self.mode == "tar" and not any(map(is_view, self.locations))

    def reads_all(self, policy: Policy) -> bool:
        """Return whether all samples are read; of views, whether `policy` leaves none out whose archive has changed."""
        if any(map(is_view, self.locations)):
            return self.shard_slice is None and "changed-source" not in policy.skipped
        return self.whole

    @property
    def keys_may_repeat(self) -> bool:
        """Whether there are several archives: within one a key that comes back is found by its reader."""
        return (len(self.locations) > 1 or is_view(self.locations[0])) and self.mode == "tar"

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> InputReader:
        """Begin to read for a run; see `Origin`."""
        if self.mode != "tar":
            return self._open_text(run, tmpdir, spool or self.spool)
        if self._kept is not None:
            self._kept.policy = run.policy
            return self._kept
        reader = DatasetReader(
            self._readable(),
            run.policy,
            tmpdir,
            shard_slice=self.shard_slice,
            interleave=self.interleave,
            prefetch=self.prefetch,
            spool=spool or self.spool,
            note=run.note,
            open_view=_open_view,
        )
        reader.announce = lambda name: run.note(f"reading {name}") if reader.policy is run.policy else None
        self._kept = reader if self.spool else None
        return reader

    def _open_text(self, run: Run, tmpdir: str | None, twice: bool) -> InputReader:
        """Begin to read text. Raises Unsupported for a stream that is to be read twice: it is not copied."""
        from tarkit.samples.text import TextReader

        for location in self.locations if twice else ():
            if location.kind != "path" or _is_stream(location):
                raise Unsupported(f"{location.name}: text that is read twice must be in a file")
        return TextReader(self._readable(), run.policy, tmpdir, mode=self.mode, shard_slice=self.shard_slice)

    def only(self, places: Sequence[int]) -> Archives:
        """Return those with these numbers, in this order, to be read once."""
        return replace(self, locations=self._readable([self.locations[place] for place in places]))

    def _readable(self, locations: Sequence[Location] | None = None) -> tuple[Location, ...]:
        """Return archives, by default all, to be read from their start.

        What is left of a stream may begin anywhere in the archive, also at a header.

        Raises:
            Unsupported: a stream that was read before.
        """
        locations = self.locations if locations is None else locations
        for location in locations if self._opened else ():
            if _is_stream(location) or (location.kind == "stdin" and _stdin_offset() != self._stdin_start):
                raise Unsupported(f"{location.name}: a stream can be read once", "write it to a file, and open that")
        self._opened = True
        if any(location.kind == "stdin" and not _is_stream(location) for location in locations):
            self._stdin_start = _stdin_offset()
        return tuple(
            location if location.file is None else location._replace(file=reader_of(location.file))
            for location in locations
        )


def _open_view(location: Location, inputs: InputReader) -> BatchSource | None:
    if not is_view(location):
        return None
    from tarkit.pipeline.table_reader import ParquetInput
    from tarkit.pipeline.view_reader import ViewReader
    from tarkit.pipeline.view_rows import NotView

    try:
        return ViewReader(location, inputs)
    except NotView:
        if says_view(location):
            raise
        return ParquetInput(location)


def _stdin_offset() -> int:
    return os.lseek(0, 0, os.SEEK_CUR)


def _is_stream(location: Location) -> bool:
    """Whether an input is a pipe or a device; a command and a URL are opened anew for each run."""
    if location.kind not in ("stdin", "path"):
        return False
    try:
        return not stat.S_ISREG((os.fstat(0) if location.kind == "stdin" else os.stat(location.text)).st_mode)
    except OSError:
        return False  # opening it reports the error


class Chain:
    """Samples of one or many archives, and the steps that are applied to them."""

    def __init__(self, origin: Origin, new_run: Callable[[], Run], steps: tuple[Step, ...] = ()) -> None:
        """Use `tarkit.open`. `new_run` begins a run over the dataset."""
        self._origin = origin
        self.new_run = new_run
        self._steps = steps

    @property
    def origin(self) -> Origin:
        """The origin of the samples."""
        return self._origin

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return self._steps

    @property
    def locations(self) -> tuple[Location, ...]:
        """The archives, in order."""
        return self._origin.locations

    @property
    def storage(self) -> StoreOptions | None:
        """How URLs of files are reached that are read besides, such as the keys in order: as the inputs are."""
        return self._origin.storage

    @property
    def opaque(self) -> bool:
        """Whether a step runs code of the user."""
        return any(step.opaque for step in self._steps)

    @property
    def unchanged(self) -> bool:
        """Whether all samples come as they are, those of each archive in order."""
        return not self._steps and self._origin.whole

    @property
    def of_archives(self) -> bool:
        """Whether its origin is archives, and not a mix."""
        return isinstance(self._origin, Archives)

    @property
    def selected(self) -> bool:
        """Whether samples are chosen, by a step or where they are read; see `leaves_out`."""
        chosen = any(isinstance(step, (SampleFilter, ChooseAmongAll)) for step in self._steps)
        return not self._origin.whole or chosen

    def leaves_out(self, policy: Policy) -> bool:
        """Return whether fewer samples may come than the origin has, if `policy` decides about problems."""
        origin = self._origin
        every = origin.reads_all(policy) if isinstance(origin, Archives) else origin.whole
        return not every or any(step.leaves_out(policy) for step in self._steps)

    @property
    def choice(self) -> str:
        """What selects samples, and how tables are joined, as text; empty where all come, or all without problems."""
        choices = [step.choice for step in self._steps if step.choice]
        if isinstance(self._origin, Archives) and self._origin.shard_slice is not None:
            choices.insert(0, f"shard_slice={self._origin.shard_slice!r}")
        return ", ".join(choices)

    @property
    def permutes(self) -> bool:
        """Whether all samples come out as they are, perhaps in another order: about as many bytes as are read."""
        return self._origin.whole and all(step.permutes for step in self._steps)

    def batches(
        self,
        run: Run,
        *,
        moves: bool = True,
        contents: bool = True,
        listed: bool = False,
        as_view: bool = False,
        directory: str | None = None,
        spool: bool = False,
        inputs: InputReader | None = None,
        decode_ahead: bool = False,
    ) -> tuple[Iterator[SampleBatch], Flow]:
        """Begin a run: return the samples after all steps, as ranges of bytes, and the state of the run.

        Args:
            run: where problems and counts go.
            moves: whether samples are copied to other archives, which breaks hard links between samples.
            contents: whether all contents are read, or just headers and some values.
            listed: whether the output needs keys and places alone, so that rows of views may pass without a look at
                their archives, if no step needs more.
            as_view: whether the output is a view.
            directory: that of the output, for temporary files.
            spool: whether streams, and results of code of the user, are kept in temporary files, so that `Flow.reread`
                can read the samples again after all steps, and the next run the inputs.
            inputs: those of an earlier run with `spool`, to read them again.
            decode_ahead: whether compressed files may be decoded in a thread.
        """
        steps = self._steps
        inputs = inputs or self._origin.open(run, run.scratch(directory), spool)
        inputs.moves, inputs.contents = moves, contents
        # not with code of the user, for which processes may be forked
        inputs.decode_ahead = decode_ahead and codec_threads() > 1 and not self.opaque
        # parts of samples may come to the first step that orders or counts them, if it joins them
        inputs.gather = next((step.scope for step in steps if step.scope != "sample" or step.opaque), None) == "parts"
        inputs.stream, inputs.reordered, inputs.unread, inputs.field = False, False, False, None
        inputs.drawn_rows = inputs.listed = inputs.most = inputs.coming = None
        flow = Flow(run, inputs, keys_may_repeat=self._origin.keys_may_repeat, as_view=as_view)
        flow.at_end.append(inputs.unchanged)
        with ExitStack() as stack:
            stack.push(flow)  # processes of the first steps end with an error of a later one
            if any(map(is_view, self.locations)):
                from tarkit.pipeline.view_rows import all_columns, shared_views

                flow.stack.enter_context(shared_views(self.locations))
                flow.columns = all_columns(self.locations)
                inputs.unread = listed and self._take_rows()
            for number, step in enumerate(steps):
                step.prepare(inputs, steps[:number], run)
            batches = self._apply_steps(flow, spool)
            stack.pop_all()
        return batches, flow

    def _take_rows(self) -> bool:
        """Return whether all steps take rows of the views among the inputs that were not read."""
        from tarkit.pipeline.view_rows import common_columns

        origin = self._origin
        together = isinstance(origin, Archives) and origin.shard_slice is None and origin.interleave == 1
        columns = common_columns(self.locations) if together else frozenset[str]()
        for step in self._steps:
            if not step.takes_rows(columns):
                return False
            if step.permutes:
                columns = frozenset()  # a row whose archive is asked after all is read in its turn
        return True

    def _apply_steps(self, flow: Flow, keep: bool) -> Iterator[SampleBatch]:
        """Return the samples after all steps. With `keep` `flow.reread` reads them again.

        Results of code of the user are kept for that: it may have effects, and give others when it runs again.
        """
        flow.has_all = self._origin.whole
        batches, kept, behind = flow.inputs.batches(), None, 0
        batches = batches if flow.inputs.coming is None else flow.inputs.coming.noted(batches)
        for number, step in enumerate(self._steps, 1):
            batches = step(batches, flow)
            flow.has_all = flow.has_all and step.permutes
            if step.opaque and keep:
                from tarkit.pipeline.ranges import KeptSamples  # not loaded for most runs

                kept, behind = KeptSamples(batches, flow.inputs.tmpdir), number
                batches = kept.batches()
        flow.reread = partial(self._reread, flow.inputs, kept, self._steps[behind:])
        return batches

    def _reread(
        self, inputs: InputReader, kept: KeptSamples | None, steps: Sequence[Step], policy: Policy
    ) -> Iterator[SampleBatch]:
        """Yield the samples again: those that were kept, or those of the inputs, through the steps behind."""
        before = inputs.policy
        if kept is None:
            inputs.policy = policy
        run = Run(policy)
        run.tmpdir = inputs.tmpdir  # perhaps the directory of the output: if it is missing, opening that says so
        try:
            with Flow(run, inputs, keys_may_repeat=self._origin.keys_may_repeat) as flow:
                batches: Iterator[SampleBatch] = (kept or inputs).batches()
                for step in steps:
                    batches = step(batches, flow)
                yield from batches
        finally:
            inputs.policy = before

    def filter_samples(self, select: Select, shared: bool = False) -> Self:
        """Add a choice of samples; `shared` is as for `SampleFilter`."""
        if select.each_alone:
            return self if select.all else self.then(SampleFilter(select, shared))
        from tarkit.pipeline.choose import steps_of  # not loaded for most runs

        return self._with(self._origin, (*self._steps, *steps_of(select, shared)))

    def change(self, fields: Fields) -> Self:
        """Add a choice of fields and names."""
        if fields.rekey is not None and "{dir}" in fields.rekey:
            fields = replace(fields, base=common_directory(location.name for location in self.locations))
        return self if fields.all else self.then(Change(fields))

    def then(self, step: Step) -> Self:
        """Add a step."""
        return self._with(self._origin, (*self._steps, step))

    def first(self, step: Step) -> Self:
        """Add a step in front of the others."""
        return self._with(self._origin, (step, *self._steps))

    def with_origin(self, origin: Origin) -> Self:
        """Return the samples of another origin, through the same steps."""
        return self._with(origin, self._steps)

    def with_steps(self, origin: Origin, steps: Sequence[Step]) -> Self:
        """Return the samples of an origin through other steps."""
        return self._with(origin, tuple(steps))

    def apart(self) -> Self:
        """Return the dataset for runs that read one archive each (`only`), in any order and any process.

        A list of keys is not reported then, since an archive has some of them alone.

        Raises:
            Unsupported: another origin than archives, an input that can be read only once, or a step that orders or
                counts all samples.
        """
        if not isinstance(self._origin, Archives) or self._origin.mode != "tar":
            words = f"{self.locations[0].name}: a loader reads archives, views and mixes of these, and this is not one"
            raise Unsupported(words, "write the samples to archives, and open these")
        for location in self.locations:
            if location.kind in ("stdin", "object") or _is_stream(location):
                raise Unsupported(f"{location.name}: the archives are read again and again, and this one cannot be")
        if step := next((step for step in self._steps if step.scope != "sample"), None):
            message = f"{step.name} needs all samples in turn, and the archives are read one by one"
            raise Unsupported(message, "write the result to archives, and open these")
        steps = (step.apart() for step in self._steps)
        return self._with(self._origin, tuple(steps))

    def only(self, places: Sequence[int]) -> Self:
        """Return the samples of the parts of the origin with these numbers, in this order."""
        return self._with(cast(PartedOrigin, self._origin).only(places), self._steps)

    def _with(self, origin: Origin, steps: tuple[Step, ...]) -> Self:
        chain = type(self).__new__(type(self))
        vars(chain).update(vars(self), _origin=origin, _steps=steps)
        return chain


def locate(
    inputs: Input | Iterable[Input], options: StoreOptions | None = None, missing: bool | Literal["all"] = False
) -> tuple[Location, ...]:
    """Return the locations of inputs: words as on the command line, and file objects.

    Args:
        inputs: the inputs.
        options: those of URLs.
        missing: include paths that do not exist, if another input exists; `"all"` in any case.

    Raises:
        TarkitError: an input does not exist, a pattern matches nothing, or there are no inputs.
        TypeError: an input is neither a path nor a file object.
    """
    if isinstance(inputs, Location):
        return (inputs,)
    if isinstance(inputs, (str, os.PathLike)):
        return tuple(expand_inputs((os.fsdecode(inputs),), options=options, missing=missing))
    if hasattr(inputs, "read"):
        source = FileObjectInput(cast(BinaryIO, inputs))
        return (Location("object", "", source.name, source),)
    if not isinstance(inputs, Iterable) or isinstance(inputs, (bytes, bytearray, memoryview)):
        raise TypeError(f"an input is a path, a file object or a list of these, not {type(inputs).__name__}")
    items = tuple(inputs)
    names = [os.fsdecode(item) for item in items if isinstance(item, (str, os.PathLike))]
    if missing and names and len(names) == len(items):
        locations = tuple(expand_inputs(names, options=options, missing=missing))
    else:
        try:
            locations = tuple(location for item in items for location in locate(item, options))
        except MissingFile as error:
            error.hint = error.hint or (hint_without_missing() if len(items) > 1 else None)
            raise
    if not locations:
        raise Usage("the list of inputs is empty", "did a pattern match nothing?")
    refuse_twice(locations)
    return locations


def refuse_twice(locations: Iterable[Location]) -> None:
    """Raise Usage when stdin or a file object is given twice: its bytes can be read only once."""
    seen: set[int | str] = set()
    for location in locations:
        if location.kind in ("stdin", "object"):
            file = None if location.file is None else reader_of(location.file).source.file
            identity = location.kind if file is None else id(file)
            if identity in seen:
                raise Usage(f"{location.name} is named more than once")
            seen.add(identity)
