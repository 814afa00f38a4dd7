"""A task of a pass: it has a run of its own on a worker, whose problems come back with the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from socket import gethostname
from typing import TypeVar

from tarkit.cluster.plan import Ordering
from tarkit.cluster.shared import Spill
from tarkit.errors import TarkitError
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Step
from tarkit.problems import Policy
from tarkit.sizes import and_more
from tarkit.streams.location import Location

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TaskContext:
    """Context that all tasks of a run share.

    Attributes:
        memory: bytes that a task may hold.
        tmpdir: the directory of temporary files on the workers, if the user has named one.
        ordering: the ordering to do; its archives have no locations.
    """

    spill: Spill
    memory: int
    tmpdir: str | None
    ordering: Ordering

    def chain(self, locations: tuple[Location, ...], steps: tuple[Step, ...], run: Run) -> Chain:
        """Return some of the archives with steps, for the run of a task."""
        return Chain(Archives(locations, self.ordering.archives.shard_slice), lambda: run, steps)


Work = Callable[[Item, TaskContext, Run], Result]
"""The function of a pass, which is that of a module: it does the task of an item."""


def call_task(function: Work[Item, Result], context: TaskContext, item: Item, policy: Policy) -> Result:
    """Do a task, on a worker."""
    context.spill.check()
    run = Run(policy, context.tmpdir)
    run.tmpdir = run.scratch(None)
    try:
        return function(item, context, run)
    except OSError as error:  # of this machine, and not of Dask
        if isinstance(error, TarkitError):  # a file that is not there
            raise TarkitError(f"{error}, on {gethostname()}", error.hint) from error
        where = error.filename if isinstance(error.filename, str) else f"{item}"
        raise TarkitError(f"{where}: {error.strerror or error}, on {gethostname()}") from error


def describe(locations: Sequence[Location]) -> str:
    """Return the names of inputs, for the representation of a task in messages: without secrets."""
    return and_more([location.name for location in locations])
