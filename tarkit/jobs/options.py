"""The options of a run of jobs, for `tarkit.map_shards` and for commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tarkit.arguments import parse_processes
from tarkit.errors import Usage, show, spell
from tarkit.options import Options, row

if TYPE_CHECKING:
    from tarkit.jobs.job import JobExecutor, Relay, RunWords
    from tarkit.jobs.journal import JobJournal
    from tarkit.pipeline.run import Run

Halt = Literal["soon", "now", "never"]


def _parse_resources(words: Iterable[str] | Mapping[str, float]) -> Mapping[str, float]:
    """Return the resources in `GPU=1,memory=2e9`. Raises Usage for anything else."""
    if isinstance(words, Mapping):
        return words
    resources: dict[str, float] = {}
    for word in ",".join(words).split(","):
        name, _, number = word.partition("=")
        try:
            resources[name.strip()] = float(number)
        except ValueError:
            name = ""
        if not (name.strip() and 0 < resources[name.strip()] < float("inf")):
            raise Usage(f"{spell('dask_resources')} {show(word)}: expected NAME=NUMBER", "for example GPU=1")
    return resources


class JobOptions(Options):
    """The options of a run of jobs. The functions of Python have some of them."""

    jobs: int = row(
        "Jobs",
        "--jobs",
        "-j",
        default=0,
        at_least=0,
        metavar="N",
        help="N jobs at a time.  [default: 0, one per CPU]",
        more="With --dask ADDRESS: how many are handed out, by default two for each thread of a worker.",
    )
    retries: int = row(
        "Jobs", "--job-retries", default=0, at_least=0, metavar="N", help="Try a job that failed up to N times more."
    )
    halt: Halt = row(
        "Jobs",
        "--halt",
        default="soon",
        choices=Halt,
        metavar="WHEN",
        help="After a failure: end soon, now, never.",
        more="soon: when the jobs that run are done. now: end these. never: do all other jobs.",
    )
    timeout: float | None = row(
        "Jobs",
        "--job-timeout",
        seconds=True,
        metavar="S",
        help="A job fails after S seconds, and all of it is ended.",
        more="Also what it started in a session of its own, unless that has another environment and no parent.",
    )
    dry_run: bool = row("Jobs", "--dry-run", default=False, help="Print the command lines, and run nothing.")
    journal: str | os.PathLike[str] | None = row(
        "Jobs",
        "--journal",
        metavar="FILE",
        role="side",
        help="Record each job in FILE, a JSON object a line.",
        more="A file that is there is an error without --resume.",
        parse=os.fspath,
    )
    resume: bool = row(
        "Jobs",
        "--resume",
        default=False,
        help="Leave out jobs that --journal has as done.",
        more="A job is done again if its command line, or one of its inputs or outputs, has changed.",
    )
    shard_index: str | None = row(
        "Jobs",
        "--shard-index",
        metavar="K/N",
        help="Only the K-th of N parts of the jobs, from 0.",
        more="For array jobs: a part has every N-th of the values.",
    )
    emit: str | None = row(
        "Jobs",
        "--emit",
        metavar="ENGINE",
        help="Print a script for slurm, k8s or make, and run nothing.",
        more="An array script of Slurm, an indexed Job of Kubernetes, a Makefile. The values are those that are "
        "found now. An array has an element for each N values, of -j N, and at most 1000; slurm:50: at most 50. "
        "Each element has a journal of its own, which has its number after the name.",
    )
    dask: Any = row(
        "Jobs",
        "--dask",
        metavar="ADDRESS",
        help="Run jobs on a Dask cluster: tcp://HOST:8786, or local.",
        more="ADDRESS is its scheduler's; local starts workers here. A path must be the same file on all machines.",
    )
    dask_resources: Mapping[str, float] | None = row(
        "Jobs",
        "--dask-resources",
        many=True,
        words=False,
        detail=True,
        metavar="NAME=N",
        help="What a job takes of a worker of Dask: GPU=1.",
        more="May be repeated, or be a list with commas. Workers offer it with dask worker --resources GPU=1.",
        parse=_parse_resources,
    )

    def check(self) -> None:
        if self.resume and self.journal is None:
            raise Usage(f"{spell('resume')} requires {spell('journal', 'FILE')}")
        if self.dask_resources and self.dask is None:
            raise Usage(f"{spell('dask_resources')} requires {spell('dask', 'ADDRESS')}")
        if self.emit is not None:
            self._check_emit()

    def _check_emit(self) -> None:
        make = (self.emit or "").startswith("make")
        allowed = {"emit", "retries", "timeout", *(() if make else ("jobs", "halt", "journal"))}
        hints = {"jobs": "make -j N", "halt": "make -k goes on after failures", "journal": "make compares times"}
        for name in self.changed:
            if name not in allowed:
                array = f"what it prints has {spell('shard_index')} and {spell('resume')} itself"
                raise Usage(
                    f"{spell('emit', self.emit)} does not go with {spell(name)}", hints.get(name) if make else array
                )

    def part(self) -> slice:
        """Return which of the values are done. Raises Usage for an invalid --shard-index."""
        word = self.shard_index
        if word is None:
            return slice(None)
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", word)
        if match is None or int(match[1]) >= int(match[2]):
            message = f"{spell('shard_index')} {show(word)}: expected K/N, where K is from 0 to N-1"
            raise Usage(message, "for example 0/16")
        return slice(int(match[1]), None, int(match[2]))

    def open_journal(self, run: Run) -> JobJournal | None:
        """Open the journal; a dry run begins none."""
        from tarkit.jobs.journal import JobJournal

        if self.journal is None or (self.dry_run and not os.path.exists(self.journal)):
            return None
        journal = os.fspath(self.journal)
        run.reserve(journal, "the journal")
        return JobJournal(journal, self.resume)

    def open_executor(
        self,
        total: int,
        relay: Relay,
        tmpdir: str | None,
        warn: Callable[[str], None],
        run: RunWords | None = None,
    ) -> JobExecutor:
        """Return the executor of `total` jobs, here or on a cluster; the caller closes it.

        `warn` is called with a text while a cluster has no workers; the rest is as for `LocalExecutor`.
        """
        if self.dask is not None:
            from tarkit.jobs.dask import DaskExecutor, connect_cluster

            cluster = connect_cluster(self.dask, self.dask_resources, jobs=self.jobs, warn=warn)
            return DaskExecutor(cluster, jobs=self.jobs, timeout=self.timeout, relay=relay, tmpdir=tmpdir)
        from tarkit.jobs.local import LocalExecutor

        slots = min(parse_processes(self.jobs), max(1, total))
        return LocalExecutor(slots, timeout=self.timeout, run=run, relay=relay, tmpdir=tmpdir)
