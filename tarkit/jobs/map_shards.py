"""`tarkit.map_shards`: a function of the user makes a dataset of each archive, which becomes an archive of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tarkit.arguments import (
    check_function,
    check_text,
    checks_types,
)
from tarkit.dataset import Dataset
from tarkit.errors import TarkitError, Usage, show
from tarkit.jobs.engine import JobSummary, run_jobs
from tarkit.jobs.job import Counts, ValueJob, print_line
from tarkit.jobs.journal import location_states
from tarkit.jobs.options import Halt, JobOptions
from tarkit.jobs.outputs import check_outputs, parents_of
from tarkit.jobs.values import fill_name, has_placeholder, make_values
from tarkit.pipeline.chain import Archives, locate
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.selection import ProblemOptions
from tarkit.sizes import plural
from tarkit.stores.schemes import public_name
from tarkit.stores.store import parse_options
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input

Change = Callable[[Dataset], Dataset]


@dataclass(frozen=True)
class ShardCall:
    """The call of one job: it reads one archive and writes one. It can be pickled, if the function can."""

    location: Location
    output: str
    function: Change
    new_run: Callable[[], Run]
    compress: str | None
    storage_options: Mapping[str, object] | None

    def __call__(self) -> Counts:
        """Write the output; return its counts."""
        storage, runs = parse_options(self.storage_options), list[Run]()

        def begin() -> Run:
            runs.append(self.new_run())
            runs[-1].part_of_many = True
            return runs[-1]

        dataset = self.function(Dataset(Archives((self.location,), storage=storage), begin))
        if not isinstance(dataset, Dataset):
            raise TypeError(f"map_shards: the function returned {type(dataset).__name__}, not a Dataset")
        shard = dataset.write(self.output, compress=self.compress, storage_options=self.storage_options)
        return Counts(shard.samples, shard.size, next((run.facts["join"] for run in runs if "join" in run.facts), None))


@checks_types
def map_shards(
    inputs: Input | Iterable[Input],
    output: str | os.PathLike[str],
    function: Change,
    *,
    jobs: int = 0,
    dask: Any = None,
    dask_resources: Mapping[str, float] | None = None,
    retries: int = 0,
    halt: Halt = "soon",
    journal: str | os.PathLike[str] | None = None,
    resume: bool = False,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    compress: str | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[JobSummary], None] | None = None,
) -> JobSummary:
    """Make an archive of each archive, several at a time, in copies of this process or on a cluster.

    Lines that a job writes to stderr are printed after the name of its input. While this process has other threads, as
    in a notebook, it cannot be copied, and does the work itself, one job after the other; then of what is written to
    stderr only the lines about an error have the name before them.

    Args:
        inputs: as for `tarkit.open`, without file objects.
        output: the names of the outputs, with `{stem}` (the name of the input without directory and suffixes),
            `{name}`, `{dir}` (below the directory that all inputs have in common) or `{index:05d}`.
        function: takes the dataset of one archive, and returns the one that is written.
        jobs: how many at a time; 0 is one per CPU, or two for each thread of the workers of `dask`.
        dask: the address of the scheduler of a Dask cluster that does the work, `"local"`, or a `distributed.Client`.
            Workers must have tarkit of this version, the same Python, and this working directory.
        dask_resources: the resources that a job takes of a worker of Dask, such as `{"GPU": 1}`.
        retries: how often a job that failed is tried again.
        halt: after a failure: `"soon"` ends when the running jobs are done, `"now"` ends these, `"never"` goes on.
        journal: a file that records each job.
        resume: whether jobs that the journal has as done are left out, unless their input or output has changed, or
            allow, skip or compress. A change of the function is not seen, unless its name changes. A command as an
            input cannot be compared, and is done again.
        allow, skip: names of problems, as for `tarkit.open`.
        compress: a codec, whatever the suffix.
        tmpdir, storage_options: the directory of temporary files; how URLs are reached.
        progress: called when jobs have ended, and several times a second.

    Returns:
        How many jobs were done, kept as they were, and so on; the samples and bytes that were written.

    Raises:
        Usage: two inputs have one output, there is a journal and no `resume`, and the like.
        TarkitError: a job failed, or no sample of any archive has a row of a joined table.

    >>> import tarkit
    >>> summary = tarkit.map_shards("train-*.tar", "cats-{stem}.tar", lambda data: data.where("cls == 3"))
    >>> summary.done, summary.samples
    (2, 2)
    """
    options, problems = JobOptions.of(locals()), ProblemOptions.of(locals())
    check_function(function=function)
    template = os.fspath(output)
    check_text(output=template)
    if not has_placeholder(template):
        raise Usage(f"output={show(template)}: it has no placeholder", "for example 'out/{stem}.tar'")
    storage = parse_options(storage_options)
    begin = partial(problems.new_run, None, tmpdir)
    locations = locate(inputs, storage)
    pairs = list(zip(make_values([location.text for location in locations]), locations, strict=True))
    check_outputs(template, pairs)
    for value, _ in pairs[:1]:
        Output.from_argument(fill_name(template, value), compress, options=storage)  # raises for a template
    chosen = {"allow": problems.allow, "skip": problems.skip, "compress": (compress,) if compress else ()}
    name = _name_of(function, chosen)

    def make_jobs() -> Iterable[ValueJob]:
        for value, location in pairs:
            target = fill_name(template, value)
            call = ShardCall(location, target, function, begin, compress, storage_options)
            reads = partial(location_states, (location,), storage)
            settings: dict[str, Any] = {"outputs": (target,), "reads": reads, "storage": storage}
            yield ValueJob(value, directories=parents_of([target]), call=call, name=name, **settings)

    opened = options.open_journal(Run())
    how: dict[str, Any] = {"retries": options.retries, "halt": options.halt, "journal": opened}
    how |= {} if progress is None else {"progress": progress}
    warn = partial(warnings.warn, stacklevel=2)
    with (
        nullcontext() if opened is None else closing(opened),
        closing(options.open_executor(len(pairs), print_line, tmpdir, warn)) as executor,
    ):
        summary = run_jobs(make_jobs(), executor, **how)
    if summary.failed:
        raise _failed(summary, len(pairs))
    if summary.has_no_row:
        raise TarkitError(f"join: no sample of {plural(len(pairs), 'archive')} has a row of the table")
    return summary


def _name_of(function: Change, options: Mapping[str, Iterable[str]]) -> str:
    """Return the name of the calls of a function with these options, which tells them from others."""
    called = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    words = [f"{option}={','.join(sorted(set(names)))}" for option, names in options.items()]
    return " ".join(["map_shards", called, *(word for word in words if not word.endswith("="))])


def _failed(summary: JobSummary, total: int) -> TarkitError:
    job, outcome = summary.failures[0]
    lines = outcome.tail.splitlines() or [outcome.words()]
    message = next((line for line in lines if line.startswith("tarkit: ")), lines[-1]).removeprefix("tarkit: ")
    return TarkitError(f"{summary.failed} of {plural(total, 'job')} failed; {public_name(job.value.text)}: {message}")
