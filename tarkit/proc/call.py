"""The call of a Python function: what is called, what is sent to it of a sample, what becomes of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tarkit import errors
from tarkit.errors import TarkitError, show
from tarkit.proc.child import NewSample, Piece, Wrapped, split_spec
from tarkit.proc.engine import Job
from tarkit.proc.result import sample_of
from tarkit.samples.sample import TarSample
from tarkit.streams.source import Source
from tarkit.tar.reader import Raw

TOGETHER_BYTES = 1 << 20  # bytes of samples that are read at a time


@dataclass(frozen=True)
class FunctionOptions:
    """The function that is called for samples, and how.

    Args:
        function: a callable, or MODULE:FUNCTION or FILE.py:FUNCTION.
        init: is called once in each process, before the function; of the same forms.
        decode: decode the fields and encode the results by the names of fields.
        pickles: decode pickles too.
        batches: the function takes and returns lists.
        timeout: seconds for one call.
        tmpdir: the directory of temporary files.
        mtime: time of new entries, in seconds since 1970.
        tell: called with lines for the user.
        wrap: makes the argument of a callable from a sample, and what encodes a field and a value that it returns;
            without it the argument is a dict of fields and `__key__`, and bytes and str are taken.
        exact: refuse values that their fields would hold with a loss.

    Raises:
        TarkitError: `function` or `init` is a name of another form.
    """

    function: str | Callable[..., Any]
    init: str | Callable[[], Any] | None = None
    decode: bool = False
    pickles: bool = False
    batches: bool = False
    timeout: float | None = None
    tmpdir: str | None = None
    mtime: int | None = 0
    tell: Callable[[str], None] = lambda line: None
    wrap: Callable[[TarSample], Wrapped] | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        for spec in (self.function, self.init):
            try:
                if isinstance(spec, str):
                    split_spec(spec)
            except ValueError:
                raise TarkitError(
                    f"{show(str(spec))} is not the name of a function",
                    "names are package.module:function or file.py:function",
                ) from None

    @property
    def named(self) -> bool:
        """Whether the function is found by its name, in a new interpreter."""
        return isinstance(self.function, str)

    @property
    def name(self) -> str:
        """What messages call the function."""
        return _name_of(self.function)

    @property
    def label(self) -> str:
        """What messages call the step that runs the function."""
        return f"--map {self.name}" if self.named else f"map({self.name})"

    @property
    def where(self) -> str:
        """What messages call the option or the method for the function."""
        return self.label.partition(" ")[0]

    def settings(self, place: int) -> dict[str, Any]:
        """Return what `child.load` and `child.serve` are called with.

        Args:
            place: the descriptor of the memory in which the process says where it is; -1 in this process.
        """
        return {
            "functions": (self.function, self.init),
            "init_name": _name_of(self.init),
            "decode": self.decode,
            "pickles": self.pickles,
            "batches": self.batches,
            "mtime": self.mtime,
            "wrap": self.wrap,
            "exact": self.exact,
            "place": place,
            "command_line": errors.command_line,
        }


def _name_of(function: object) -> str:
    """Return what messages call a function that is named or given."""
    return function if isinstance(function, str) else str(getattr(function, "__qualname__", type(function).__name__))


def pieces_of(jobs: list[Job]) -> list[Piece]:
    """Return what is sent of some samples: pieces of archives. Samples that are adjacent are read at once."""
    pieces: list[Piece] = []
    runs: list[tuple[Source, int, int, list[tuple[bytes, list[Raw]]]]] = []
    for job in jobs:
        sample = job.sample
        entries: list[Raw] = list(map(tuple, sample.raw))  # type: ignore[arg-type]
        start, stop = (entries[0][1], entries[-1][4]) if entries else (0, 0)
        if runs and runs[-1][0] is sample.source and runs[-1][2] == start and stop - runs[-1][1] <= TOGETHER_BYTES:
            runs[-1][3].append((job.key, entries))
            runs[-1] = (*runs[-1][:2], stop, runs[-1][3])
        else:
            runs.append((sample.source, start, stop, [(job.key, entries)]))
    for source, start, stop, samples in runs:
        pieces.append((source.name, start, source.read(start, stop), samples))
    return pieces


def new_samples(job: Job, made: list[NewSample]) -> list[TarSample]:
    """Return the samples that were made of the sample of a job."""
    return [job.sample if each is None else sample_of(job.shard, *each) for each in made]
