"""One run over a dataset: its counts, messages and warnings. `cli.console` has the kind that writes to a terminal."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tarkit import errors
from tarkit.arguments import check_path
from tarkit.errors import TarkitError, Usage, spell
from tarkit.pipeline.output import refuse_input
from tarkit.problems import Policy
from tarkit.samples.dataset import object_of
from tarkit.samples.sample import SampleBatch
from tarkit.stores import connect, schemes
from tarkit.stores.object_prefetch import open_ahead
from tarkit.streams.location import Location, portable_location
from tarkit.streams.text import file_label, parse_file

if TYPE_CHECKING:
    from tarkit.parallel import OrderedExecutor
    from tarkit.stores.store import StoreOptions

Item = TypeVar("Item")
Batch = TypeVar("Batch", bound=SampleBatch)
Job = TypeVar("Job")
Result = TypeVar("Result")


class ReservedFile(NamedTuple):
    """A file that a run reads or writes besides its inputs and outputs.

    Attributes:
        what: a name for messages: `the manifest`.
        written: whether the run writes it.
        path: its name, as it was given.
    """

    what: str
    written: bool
    path: str


def check_tmpdir(tmpdir: str | None) -> None:
    """Raise an error for a directory of temporary files that is none: TypeError, Usage for a URL, or OSError."""
    if tmpdir is None:
        return
    check_path(tmpdir=tmpdir)
    schemes.refuse_url(tmpdir, "tmpdir")
    if not os.path.isdir(tmpdir):
        number = errno.ENOTDIR if os.path.exists(tmpdir) else errno.ENOENT
        error = OSError(number, os.strerror(number), tmpdir)
        error.add_note(f"{spell('tmpdir')} is a directory that exists: mkdir -p makes one")
        raise error


class CommandOutput(Protocol):
    """Output of a command, in memory or in a file."""

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop), fewer only at the end."""


class Run:
    """The counts and reports of one run. This kind reports warnings alone.

    There are four kinds of reports: `warn` for problems that do not end the run, `tell` for other messages, `note` for
    details, and `relay` for output of the user's code.

    Attributes:
        policy: decides about problems.
        tmpdir: the directory of temporary files that the user named; see `scratch`.
        samples, shards, bytes: how many were read, or written by a run that writes.
        dropped: samples that the policy left out.
        facts: further facts to report, by name; the command line writes it to `--report`.
        places: the files that were reserved, by their real path.
        shows_progress: whether progress is shown.
        verbose: whether every detail is reported.
        report: the file of `--report`.
        part_of_many: it is one of several jobs, and says nothing about all of them.
        executor: the cluster that does jobs, one for each input; None for processes of this machine.
    """

    shows_progress = False
    verbose = False
    report: str | None = None
    part_of_many = False
    executor: OrderedExecutor | None = None

    def __init__(
        self,
        policy: Policy | None = None,
        tmpdir: str | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """`on_problem` gets each warning in place of `warnings.warn`."""
        self.policy = policy or Policy(warn=self.warn)
        check_tmpdir(tmpdir)
        self.tmpdir = tmpdir
        self.samples = self.shards = self.bytes = self.dropped = 0
        self.facts: dict[str, Any] = {}
        self.places: dict[str, ReservedFile] = {}
        self._on_problem = on_problem

    def scratch(self, directory: str | None) -> str | None:
        """Return the directory of temporary files: the one that the user named, $TMPDIR, or `directory`, the output's.

        None stands for the system's; workers of a cluster have directories of their own.
        """
        if self.executor is not None:
            return self.tmpdir
        return self.tmpdir or os.environ.get("TMPDIR") or directory

    def refuse(self, inputs: Sequence[Location], *written: str | None) -> None:
        """Raise Usage when the report, or one of the other files that are written besides the output, is an input."""
        for path in (self.report, *written):
            refuse_input(path, inputs)

    def reserve(self, path: str | None, what: str, written: bool = True) -> None:
        """Register a file or object that is read or written; raise Usage when it is written and has a second role.

        Files of other kinds than regular ones, such as devices, may have several roles.

        Args:
            path: the file, its name as the user gives it; nothing is registered for None, `-` and commands.
            what: a name for messages: `the manifest`.
            written: whether the run writes it.

        Raises:
            FileNotFoundError: it is written, and its directory does not exist.
        """
        if path is None or path == "-":
            return
        kind, text = parse_file(path)
        if kind == "pipe":
            return
        if kind == "path":
            directory = os.path.dirname(text)
            if written and directory and not os.path.isdir(directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            try:
                if not stat.S_ISREG(os.stat(text).st_mode):
                    return
            except OSError:
                pass
        place = os.path.realpath(text) if kind == "path" else text
        other = self.places.setdefault(place, ReservedFile(what, written, path))
        if other.what != what and (written or other.written):
            raise Usage(f"{file_label(path)} is {other.what}, and {what} too")

    def relay(self, key: bytes, log: Sequence[CommandOutput]) -> None:
        """Pass on the output of a command or function for a sample."""

    def note(self, text: str) -> None:
        """Report a detail."""

    def tell(self, text: str) -> None:
        """Report a message that is not a problem."""

    def warn(self, text: str) -> None:
        """Report a problem that does not end the run."""
        if self._on_problem is not None:
            self._on_problem(text)
        else:
            errors.warn(text)

    def watch(
        self, doing: str, batches: Iterator[Batch], position: Callable[[], int], total: int | None
    ) -> Iterator[Batch]:
        """Count the samples that pass, and show progress; see `draw`."""
        return self.draw(doing, self.count(batches), position, lambda: self.samples, total)

    def watch_input(self, doing: str, batches: Iterator[Batch], total: int | None) -> Iterator[Batch]:
        """Show progress of a pass that writes nothing, in bytes of the archives that the samples come from."""
        if not self.shows_progress:  # to count takes time
            return batches
        passed = before = count = 0
        source = None

        def counted() -> Iterator[Batch]:
            nonlocal passed, before, count, source
            for batch in batches:
                if batch.source is not source:
                    source, before = batch.source, passed
                passed = before + batch.stop
                count += batch.count
                yield batch

        return self.draw(doing, counted(), lambda: passed, lambda: count, total)

    def count(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Count the samples that pass."""
        for batch in batches:
            self.samples += batch.count
            yield batch

    def draw(
        self,
        doing: str,
        items: Iterator[Item],
        position: Callable[[], int],
        samples: Callable[[], int],
        total: int | None = None,
    ) -> Iterator[Item]:
        """Return the items; a run that `shows_progress` shows it while they pass. This kind shows none.

        Args:
            doing: the name of the pass, such as `reading`; empty if the command has one alone, which its name says.
            items: the items to pass on, unchanged.
            position: returns the number of bytes so far.
            samples: returns the number of samples so far.
            total: bytes in all, if that is known.
        """
        return items

    def sent(self, location: Location) -> Location:
        """Return an input as those find it that do the jobs. Raises Usage for one that another machine cannot read."""
        return location if self.executor is None else portable_location(location)

    def in_order(
        self, work: Callable[[Job], Iterator[Item]], jobs: Iterable[Job], processes: int, tmpdir: str | None = None
    ) -> Iterator[Iterator[Item]]:
        """Yield an iterator over the results of `work` for each job, in order; read each to its end before the next.

        The jobs run in processes, or by the `executor`: then `work` is a function of a module, or a `partial` of one,
        and the jobs can be pickled, with inputs as `sent` returns them.

        Raises:
            Exception: a TarkitError or OSError of a job, after the results that precede it.
        """
        if self.executor is not None:
            return self.executor.in_order(work, jobs)
        if processes > 1:
            from tarkit.parallel import in_order  # not loaded for one process

            return in_order(jobs, work, processes, tmpdir)
        return map(work, open_ahead(jobs, _object_in))

    def do_in_order(
        self, work: Callable[[Job, Policy], Result], jobs: Iterable[Job], processes: int = 1
    ) -> Iterator[Result]:
        """Yield `work(job, policy)` for each job, in order. The problems that the policy counts are those of the run.

        Args:
            work: returns a value that can be pickled; a policy of its own takes its problems.
            jobs: the jobs.
            processes: how many jobs are done at a time; one with `maxerr`, which holds for all jobs together.

        Raises:
            Exception: a TarkitError or OSError of a job, after its warnings.
        """
        if self.executor is not None and self.policy.maxerr:
            raise Usage(f"{spell('maxerr')} cannot be used with {spell('dask')}: it holds for all jobs together")
        judged: Callable[[Job], Iterator[Any]] = partial(_judged, work, self.policy.fork())
        if self.policy.maxerr:  # what is left of it for each job is known when the one before has ended
            processes = 1

            def judged(job: Job) -> Iterator[Any]:
                return _judged(work, self.policy.fork(), job)

        for results in self.in_order(judged, jobs, processes, self.tmpdir):
            self.policy.absorb(next(results))
            yield from results

    def remove_others(self, paths: Sequence[str], options: StoreOptions | None = None) -> None:
        """Remove files that have names of a series but are not among its shards."""
        for path in paths:
            if schemes.scheme_of(path):
                connect.delete_object(path, options)
            else:
                os.unlink(path)


def _object_in(job: object) -> tuple[str, StoreOptions | None] | None:
    """Return the object that a job reads: it is an input, or a tuple with one."""
    parts = (job,) if isinstance(job, Location) or not isinstance(job, tuple) else job
    return next((object_of(part) for part in parts if isinstance(part, Location)), None)


def _judged(work: Callable[[Job, Policy], Result], policy: Policy, job: Job) -> Iterator[Any]:
    """Yield the problems of a job, and then its result; or raise its error."""
    fork, error = policy.fork(), None
    try:
        result = work(job, fork)
    except (TarkitError, OSError) as raised:
        error = raised
    yield fork.counted
    if error is not None:
        raise error
    yield result
