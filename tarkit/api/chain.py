"""Chains: an origin of samples, and the steps that are applied to them. `dataset.Dataset` adds the public methods."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, cast, get_args

from tarkit.api.output import object_name
from tarkit.api.run import Run
from tarkit.api.steps import Change, Choose, Flow, InputReader, Step
from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location, expand_inputs
from tarkit.tar.block import EARLIEST, LATEST

if TYPE_CHECKING:
    from tarkit.samples.text import Mode
    from tarkit.stores.store import StoreOptions

    Input = str | os.PathLike[str] | BinaryIO | Location


class Origin(Protocol):
    """The origin of the samples of a dataset: archives, or other datasets."""

    @property
    def locations(self) -> tuple[Location, ...]:
        """All archives."""

    @property
    def whole(self) -> bool:
        """Whether all samples of the archives are read, in order."""

    @property
    def keys_repeat(self) -> bool:
        """Whether a key may come back, so that keys have to be judged in the output."""

    def open(self, run: Run, tmpdir: str | None, *, gather: bool, stream: bool, spool: bool) -> InputReader:
        """Begin to read for a run.

        Args:
            tmpdir: the directory of temporary files.
            gather: whether a step joins the parts of scattered samples.
            stream: whether files are to be read in order.
            spool: whether all is read several times.
        """


@dataclass
class Archives:
    """Archives that are read one after another: `shard_slice` of each, of which `interleave` take turns.

    With `spool` streams are kept in temporary files, so that several runs can be made. `mode` says which samples are
    made of text that is in place of archives.
    """

    locations: tuple[Location, ...]
    shard_slice: Slice | None = None
    interleave: int = 1
    prefetch: int = 0
    spool: bool = False
    mode: Mode = "tar"

    def __post_init__(self) -> None:
        self._kept: DatasetReader | None = None
        self._opened = False
        self._stdin: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of their samples are read."""
        return self.shard_slice is None and self.mode == "tar"

    @property
    def keys_repeat(self) -> bool:
        """Whether there are several."""
        return len(self.locations) > 1 and self.mode == "tar"

    def open(self, run: Run, tmpdir: str | None, *, gather: bool, stream: bool, spool: bool) -> InputReader:
        """Begin to read for a run; see `Origin`."""
        if self.mode != "tar":
            from tarkit.samples.text import TextReader

            for location in self.locations if spool or self.spool else ():
                if location.kind != "path" or _is_stream(location):
                    raise Unsupported(f"{location.name}: text that is read twice must be in a file")
            return TextReader(self._readable(), run.policy, self.mode, self.shard_slice, tmpdir)
        if self._kept is not None:
            self._kept.policy = run.policy
            return self._kept
        reader = DatasetReader(
            self._readable(),
            run.policy,
            gather=gather and self.shard_slice is None,
            stream=stream and not self.spool,
            shard_slice=self.shard_slice,
            mix=self.interleave,
            ahead=self.prefetch,
            spool=spool or self.spool,
            tmpdir=tmpdir,
        )
        reader.note = run.note
        reader.announce = lambda name: run.note(f"reading {name}") if reader.policy is run.policy else None
        self._kept = reader if self.spool else None
        return reader

    def only(self, places: Sequence[int]) -> Archives:
        """Return those with these numbers, in this order, to be read once."""
        readable = self._readable()
        return replace(self, locations=tuple(readable[place] for place in places))

    def _readable(self) -> tuple[Location, ...]:
        """Return the archives, to be read from their start. Raises Unsupported for a stream that was read before.

        What is left of a stream may begin anywhere in the archive, also at a header.
        """
        for location in self.locations if self._opened else ():
            if _is_stream(location) or (location.kind == "stdin" and os.lseek(0, 0, os.SEEK_CUR) != self._stdin):
                raise Unsupported(f"{location.name}: a stream can be read once", "write it to a file, and open that")
        self._opened = True
        if any(location.kind == "stdin" and not _is_stream(location) for location in self.locations):
            self._stdin = os.lseek(0, 0, os.SEEK_CUR)
        return tuple(
            location._replace(file=location.file.reader()) if isinstance(location.file, FileInput) else location
            for location in self.locations
        )


def _is_stream(location: Location) -> bool:
    """Whether an input is a pipe or a device; a command and a URL are opened anew for each run."""
    if location.kind not in ("stdin", "path"):
        return False
    try:
        return not stat.S_ISREG((os.fstat(0) if location.kind == "stdin" else os.stat(location.text)).st_mode)
    except OSError:
        return False  # opening it reports the error


class FileInput:
    """A file object of the caller, which stays open. Each run reads it from the position that it had for the first."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file = file
        self.name = name
        self.current: FileReading | None = None
        self._start: int | None = None

    @property
    def seekable(self) -> bool:
        """Whether it can be read again."""
        return bool(getattr(self.file, "seekable", bool)())

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes."""
        data: object = self.file.read(n)
        if not isinstance(data, bytes):
            raise Usage(f"{self.name}: its read() returned {type(data).__name__}, not bytes", "open it in mode 'rb'")
        return data

    def reader(self) -> BinaryIO:
        """Return a reader of the object for one run."""
        return cast(BinaryIO, FileReading(self))

    def begin(self, reading: FileReading) -> None:
        """Seek to where the first run began. Raises Unsupported when the object cannot seek."""
        if self.current is not None:
            if self._start is None:
                what = f"{self.name}: a file object that cannot seek can be read once"
                raise Unsupported(what, "write it to a file, and open that")
            self.file.seek(self._start)
        elif self.seekable:
            self._start = self.file.tell()
        self.current = reading


class FileReading:
    """A reader of a file object for one run; it is invalid once a later run begins to read."""

    def __init__(self, file: FileInput) -> None:
        self._file = file
        self._begun = False

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes. Raises TarkitError when a later run has begun to read the object."""
        if not self._begun:
            self._begun = True
            self._file.begin(self)
        elif self._file.current is not self:
            what = f"{self._file.name}: another iterator has begun to read this file object"
            raise TarkitError(what, "open the file by its path: then each iterator has its own position")
        return self._file.read(n)


class Chain:
    """Samples of one or many archives, and the steps that are applied to them."""

    def __init__(self, origin: Origin, new_run: Callable[[], Run], steps: tuple[Step, ...] = ()) -> None:
        """Use `tarkit.open`. `new_run` begins a run over the dataset."""
        self._origin = origin
        self.new_run = new_run
        self._steps = steps

    @property
    def locations(self) -> tuple[Location, ...]:
        """The archives, in order."""
        return self._origin.locations

    @property
    def inputs(self) -> list[Location]:
        """All files that are read: the archives, and those that steps read besides."""
        return [*self.locations, *(location for step in self._steps for location in step.extra_inputs)]

    @property
    def runs_code(self) -> bool:
        """Whether a step runs code of the user."""
        return any(step.runs_code for step in self._steps)

    @property
    def unchanged(self) -> bool:
        """Whether all samples come as they are, in the order that they have."""
        return not self._steps and self._origin.whole

    @property
    def of_archives(self) -> bool:
        """Whether its origin is archives, and not a mix."""
        return isinstance(self._origin, Archives)

    @property
    def selected(self) -> bool:
        """Whether samples are chosen, so that some may be left out."""
        return not self._origin.whole or any(isinstance(step, Choose) for step in self._steps)

    @property
    def passes_all(self) -> bool:
        """Whether about as many bytes come out as there are."""
        return self._origin.whole and all(step.passes_all for step in self._steps)

    def samples(
        self,
        run: Run,
        *,
        moves: bool = True,
        contents: bool = True,
        directory: str | None = None,
        spool: bool = False,
        inputs: InputReader | None = None,
    ) -> tuple[Iterator[TarSample], Flow]:
        """Begin a run: return the samples after all steps, as ranges of bytes, and the state of the run.

        Args:
            run: where problems and counts go.
            moves: whether samples are copied to other archives, which breaks hard links between samples.
            contents: whether all contents are read, or just headers and some values.
            directory: that of the output, for temporary files.
            spool: whether streams are kept in temporary files, so that the inputs can be read twice.
            inputs: those of a run with `spool`, to read them again.
        """
        origin, steps = self._origin, self._steps
        inputs = inputs or origin.open(
            run,
            run.scratch(directory),
            gather=_gathers(steps),
            stream=any(step.reads_in_order(origin.locations, run) for step in steps),
            spool=spool or any(step.rereads for step in steps),
        )
        inputs.moves, inputs.contents = moves, contents
        flow = Flow(run, inputs, keys_repeat=origin.keys_repeat)
        samples = iter(inputs)
        first: tuple[int, Iterable[TarSample]] = 0, inputs
        with ExitStack() as stack:
            stack.push(flow)  # what the first steps have started ends with an error of a later one
            for number, step in enumerate(steps):
                flow.reread = partial(self._reread, flow, first, number)
                flow.whole = origin.whole and all(each.passes_all for each in steps[:number])
                flow.by_headers = all(each.by_headers for each in steps[:number])
                samples = step(samples, flow)
                if step.runs_code and (spool or any(each.rereads for each in steps[number + 1 :])):
                    from tarkit.sorting.ranges import KeptSamples

                    first = number + 1, KeptSamples(samples, inputs.tmpdir)
                    samples = iter(first[1])
            flow.reread = partial(self._reread, flow, first, len(steps))
            stack.pop_all()
        return samples, flow

    def _reread(
        self, flow: Flow, first: tuple[int, Iterable[TarSample]], number: int, policy: Policy
    ) -> Iterator[TarSample]:
        """Return the samples in front of step `number`: those of `first`, through the steps from its number on."""
        inputs, (start, source) = flow.inputs, first
        before = inputs.policy
        if source is inputs:
            inputs.policy = policy
        try:
            with Flow(Run(policy, inputs.tmpdir), inputs, keys_repeat=self._origin.keys_repeat) as inner:
                samples = iter(source)
                for each in range(start, number):
                    inner.reread = partial(self._reread, inner, first, each)
                    samples = self._steps[each](samples, inner)
                yield from samples
        finally:
            inputs.policy = before

    def choose(self, select: Select) -> Self:
        """Add a choice of samples."""
        return self if select.all else self.then(Choose(select))

    def change(self, fields: Fields) -> Self:
        """Add a choice of fields and names."""
        return self if fields.all else self.then(Change(fields))

    def then(self, step: Step) -> Self:
        """Add a step."""
        return type(self)(self._origin, self.new_run, (*self._steps, step))

    def only(self, places: Sequence[int]) -> Self:
        """Return the samples of the archives with these numbers, in this order."""
        assert isinstance(self._origin, Archives)
        return type(self)(self._origin.only(places), self.new_run, self._steps)


def _gathers(steps: Sequence[Step]) -> bool:
    """Return whether a step joins the parts of scattered samples before another step counts samples."""
    for step in steps:
        if step.gathers:
            return True
        if step.counts:
            return False
    return False


def locate(inputs: Input | Iterable[Input], options: StoreOptions | None = None) -> tuple[Location, ...]:
    """Return the locations of inputs: words as on the command line, and file objects. `options` are those of URLs.

    Raises:
        TarkitError: an input does not exist, a pattern matches nothing, or there are no inputs.
        TypeError: an input is neither a path nor a file object.
    """
    if isinstance(inputs, Location):
        return (inputs,)
    if isinstance(inputs, (str, os.PathLike)):
        return tuple(expand_inputs((os.fsdecode(inputs),), options=options))
    if hasattr(inputs, "read"):
        file = cast(BinaryIO, inputs)
        name = object_name(file)
        return (Location("object", "", name, cast(BinaryIO, FileInput(file, name))),)
    if not isinstance(inputs, Iterable) or isinstance(inputs, (bytes, bytearray, memoryview)):
        raise TypeError(f"an input is a path, a file object or a list of these, not {type(inputs).__name__}")
    found = tuple(location for each in inputs for location in locate(each, options))
    if not found:
        raise Usage("the list of inputs is empty", "did a pattern match nothing?")
    refuse_twice(found)
    return found


def refuse_twice(locations: Iterable[Location]) -> None:
    """Raise Usage when stdin or a file object is given twice: its bytes can be read only once."""
    known: set[int | str] = set()
    for location in locations:
        if location.kind in ("stdin", "object"):
            file = location.file.file if isinstance(location.file, FileInput) else location.file
            which = location.kind if file is None else id(file)
            if which in known:
                raise Usage(f"{location.name} is named more than once")
            known.add(which)


# ---- Arguments


def words(given: str | Iterable[str], name: str = "") -> tuple[str, ...]:
    """Return an argument that is a list of words; a str is one word, not a list of its characters."""
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for word in found:
        if not isinstance(word, str):
            argument = f"{name}={given!r}: " if name else ""
            raise TypeError(f"{argument}a str or a list of str is needed, not {type(word).__name__}")
    return found


def names(given: str | Iterable[str], name: str = "") -> tuple[str, ...]:
    """Return the same for names of problems and fields, which commas may separate, as on the command line."""
    return tuple(part.strip() for word in words(given, name) for part in word.split(",") if part.strip())


def one_of(name: str, value: str | None, choices: object) -> None:
    """Raise Usage for a value that is not one of a Literal. None is accepted."""
    if value is not None and value not in get_args(choices):
        raise Usage(f"{name}={value!r}: it is one of {', '.join(get_args(choices))}")


def text(**arguments: str) -> None:
    """Raise TypeError for a value that is not a str."""
    _need("a str", lambda value: isinstance(value, str), arguments)


def number(**arguments: float) -> None:
    """Raise TypeError for a value that is not a number."""
    _need("a number", lambda value: hasattr(value, "__float__"), arguments)


def whole(**arguments: int) -> None:
    """Raise TypeError for a value that is not a whole number."""
    _need("a whole number", lambda value: hasattr(value, "__index__"), arguments)


def function(**arguments: object) -> None:
    """Raise TypeError for a value that cannot be called."""
    _need("a function", callable, arguments)


def seconds(**arguments: int) -> None:
    """Raise TypeError for a value that is not a whole number, and Usage for a time that no archive can have."""
    whole(**arguments)
    for name, value in arguments.items():
        if not EARLIEST <= value <= LATEST:
            raise Usage(f"{name}={value}: it is from {EARLIEST} to {LATEST} seconds since 1970, the years 1 to 9999")


def _need(what: str, fits: Callable[[object], bool], arguments: Mapping[str, object]) -> None:
    for name, value in arguments.items():
        if not fits(value):
            raise TypeError(f"{name}={value!r}: {what} is needed, not {type(value).__name__}")


def at_least(least: int, **arguments: int | None) -> None:
    """Raise TypeError for a value that is not a whole number, and Usage for one below `least`. None is accepted."""
    for name, value in arguments.items():
        if value is not None:
            whole(**{name: value})
            if value < least:
                raise Usage(f"{name}={value}: it is at least {least}")
