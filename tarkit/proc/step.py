"""The step that processes each sample: its options, and its report. By what, its subclasses say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, TypedDict

from tarkit.arguments import check_whole, parse_processes
from tarkit.errors import Usage, spell
from tarkit.options import Options, row
from tarkit.pipeline.output import Output, total_size
from tarkit.pipeline.rows import MTIME
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow, Step
from tarkit.proc.pool import Pool
from tarkit.proc.run import OnError, SampleRun, number_jobs, parse_limit
from tarkit.samples.sample import SampleBatch, singly
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.tar.writer import EntryWriter


class WorkOptions(TypedDict, total=False):
    """Arguments of `map`, `proc` and `worker` of a dataset: how samples are processed, and what becomes of failures.

    Attributes:
        processes: how many copies of this process call the function, or how many commands or programs run at a time; 0
            is one per CPU. With 1, the default, and no timeout a function is called in this process. What it prints in
            a copy is dropped.
        ordered: whether results keep the order of the samples, as they do by default.
        timeout: seconds after which a sample fails, and the process that has it is ended. A program of `worker` is
            ended when it neither reads nor writes for so long when it could.
        on_error: what becomes of a sample that fails: `"error"` ends the run, `"skip"` leaves it out with a warning,
            `"keep"` passes it on unchanged. The default is `"error"`, with max_errors or rejects `"skip"`.
        max_errors: how many samples may fail, or which share: `10` or `"1%"`. More end the run.
        rejects: an output, as for `write`, for the samples that fail; each gets a field `__error__.json`.
        retries: how often a sample that failed is tried again; 0 by default.
        mtime: the time of new entries in seconds since 1970, 0 by default; None: for `proc` that of each file.
        storage_options: how the URL of rejects is reached, as for `tarkit.open`; by default as those of the dataset.

    >>> import tarkit
    >>> def label(sample: tarkit.Sample) -> dict[str, object]:
    ...     return {**sample, "label": {b"1": "cat"}[sample["cls"]]}
    >>> data = tarkit.open("a.tar", on_problem=print).map(label, rejects="bad.tar")
    >>> data.write("labels.tar").samples  # doctest: +ELLIPSIS
    a.tar: 'a/0' raised KeyError in ...
    1
    >>> list(tarkit.open("bad.tar").head()[0])
    ['jpg', 'cls', '__error__.json']
    """

    processes: int
    ordered: bool
    timeout: float | None
    on_error: OnError | None
    max_errors: int | str | None
    rejects: str | os.PathLike[str] | BinaryIO | None
    retries: int
    mtime: int | None
    storage_options: Mapping[str, object] | None


def parse_work_options(method: str, options: WorkOptions, storage: StoreOptions | None) -> dict[str, Any]:
    """Return the arguments of a `SampleWork` for the options that `Dataset.METHOD` was called with.

    `storage` says how URLs of the dataset are reached, and that of rejects if the options do not say so.

    Raises:
        TypeError: there is no such option.
        Usage: `rejects` cannot be an output.
    """
    for name in options:
        if name not in WorkOptions.__annotations__:
            raise TypeError(f"Dataset.{method}() got an unexpected keyword argument {name!r}")
    arguments: dict[str, Any] = dict(options)
    own = parse_options(arguments.pop("storage_options", None))
    if arguments.get("rejects") is not None:
        store = storage if own is None else own
        arguments["rejects"] = Output.from_argument(arguments["rejects"], series=None, options=store)
    return arguments


BATCH: Any = row(
    "Command",
    "--batch",
    at_least=1,
    metavar="N",
    help="N samples together: files of -c, a list of --map.",
    more="-c runs once over the files sample-000000.jpg, sample-000001.jpg and so on; --map passes a list.",
)


class SampleWork(Options, Step):
    """A step that processes each sample; the base class of those that say by what. Arguments are as in `WorkOptions`.

    Attributes:
        rejects: takes the samples that fail, each with a record.
    """

    mtime: int | None = MTIME
    processes: int = row(
        "Command", "-p", "--parallel", default=1, at_least=0, metavar="N", help="N samples at a time; 0: one per CPU."
    )
    ordered: bool = row("Command", "--unordered", default=True, help="Write results as soon as they are ready.")
    timeout: float | None = row(
        "Command", "--timeout", seconds=True, metavar="S", help="A sample fails after S seconds."
    )
    on_error: OnError | None = row(
        "Failures",
        "--on-error",
        choices=OnError,
        aliases={"abort": "error", "exclude": "skip", "ignore": "keep"},  # tarproc's words
        help="If a sample fails.  [default: error]",
        more="error: end the run. skip: leave it out. keep: write it as it was.",
    )
    max_errors: float | str | None = row(
        "Failures", "--max-errors", metavar="N|P%", help="End after more failures than this; skip others."
    )
    rejects: Output | None = row(
        "Failures",
        "--rejects",
        metavar="OUT",
        role="output",
        help="Write failed samples to this archive; skip them.",
        more="Each gets a field __error__.json.",
    )
    retries: int = row(
        "Failures",
        "--retries",
        default=0,
        at_least=0,
        metavar="N",
        help="Try a sample that failed again, up to N times.",
    )
    name = "map"
    opaque = True

    def check(self) -> None:
        check_whole(mtime=0 if self.mtime is None else self.mtime)
        self._limit = None if self.max_errors is None else parse_limit(str(self.max_errors))
        goes_on = self._limit is not None or self.rejects is not None
        if self.on_error == "error" and goes_on:
            message = f"{spell('on_error', 'error')} cannot be used with {spell('max_errors')} or {spell('rejects')}"
            raise Usage(f"{message}: it ends at the first failure")
        self._on_error: OnError = self.on_error or ("skip" if goes_on else "error")
        if self.rejects is not None and self.rejects.location.kind == "stdout":
            raise Usage(f"{spell('rejects')} needs a file: stdout is the output")
        if self.rejects is not None:
            self.scope = "all"

    @property
    def choice(self) -> str:
        """The code, which may make no sample of one, or several."""
        return f"{self.name}={self.code!r}"

    @property
    def code(self) -> str:
        """What recognises the code that is run."""
        raise NotImplementedError

    @property
    def stops(self) -> bool:
        """Whether the first failure ends the run; otherwise it must be found out which of several samples failed."""
        return self._on_error == "error"

    @property
    def way(self) -> dict[str, Any]:
        """Arguments of `Pool`: how many workers there are, and what is done with their results."""
        return {"parallel": parse_processes(self.processes), "retries": self.retries, "ordered": self.ordered}

    def pool(self, run: Run, tmpdir: str | None = None) -> AbstractContextManager[Pool]:
        """Return what runs jobs; entering it raises TarkitError for what is missing."""
        raise NotImplementedError

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        run = flow.run
        flow.is_repeated = None  # keys change, and samples are read ahead
        if self.rejects is not None and self.rejects.location.kind in ("path", "url"):
            run.reserve(self.rejects.location.text, "the rejects")
        pool = flow.stack.enter_context(self.pool(run, flow.inputs.tmpdir))  # errors come before any output
        results = SampleRun(
            pool,
            run.policy,
            self._on_error,
            limit=self._limit,
            rejects=self._open_rejects(flow),
            warn=run.warn,
            verbose=run.verbose,
            log=run.relay,
        )
        flow.at_end.append(lambda: self._report(run, results))
        total = total_size(flow.inputs.locations) if flow.has_all else None
        return results(
            number_jobs(singly(batches), run.policy, flow.inputs.tmpdir),
            lambda jobs: run.draw("", jobs, lambda: results.position, lambda: results.done, total),
        )

    def _open_rejects(self, flow: Flow) -> EntryWriter | None:
        """Open the archive of rejects, which the flow completes."""
        if self.rejects is None:
            return None
        return flow.stack.enter_context(EntryWriter(self.rejects.open(flow.inputs.locations)))

    def _report(self, run: Run, results: SampleRun) -> None:
        """Report how many samples were processed, failed or were removed, and which took longest."""
        failed, done, removed = results.failed, results.done - results.failed, results.removed
        skipped = failed if results.on_error == "skip" else 0
        run.facts |= {"done": done, "failed": failed, "left_out": skipped, "removed": removed, "kept": failed - skipped}
        if results.slowest[0] > 0:
            seconds, key = results.slowest
            run.facts["slowest"] = {"key": os.fsdecode(key), "seconds": round(seconds, 3)}
        if removed and self.name == "worker":
            had = "had no answer and was" if removed == 1 else "had no answer and were"
            run.tell(f"{removed} of {plural(done, 'sample')} {had} removed")
        elif (warning := results.nothing_left(self.name)) is not None:
            run.warn(warning)
        if failed and skipped:
            run.tell(plural(failed, "sample failed and was left out", "samples failed and were left out"))
        elif failed:
            one, many = "sample failed and was kept as it came in", "samples failed and were kept as they came in"
            run.tell(plural(failed, one, many))
