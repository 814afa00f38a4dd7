"""A task of a pass, on a worker: the state of a run is made there, and its problems come back with the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from socket import gethostname
from typing import TypeVar

from tarkit import errors
from tarkit.cluster.shared import Spill
from tarkit.errors import TarkitError
from tarkit.parallel import Tasks
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Step
from tarkit.problems import Policy, PolicyCounts
from tarkit.samples.select import Slice
from tarkit.streams.location import Location

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TaskContext:
    """What all tasks of a run have in common.

    Attributes:
        spill: the spill.
        allow, skip: what to do about problems.
        memory: bytes that a task may hold.
        tmpdir: the directory of temporary files on the workers, if the user has named one.
        command_line: whether messages name options.
    """

    spill: Spill
    allow: tuple[str, ...]
    skip: tuple[str, ...]
    memory: int
    tmpdir: str | None
    command_line: bool


def call_task(
    function: Callable[[Item, TaskContext, Run], Result], context: TaskContext, item: Item
) -> tuple[PolicyCounts, Result]:
    """Do a task, on a worker."""
    errors.command_line = context.command_line
    context.spill.check()
    run, policy = Run(tmpdir=context.tmpdir), Policy(context.allow, context.skip).fork()
    run.policy, run.tmpdir = policy, run.scratch(None)
    try:
        value = function(item, context, run)
    except OSError as error:  # of this machine, and not of Dask
        where = error.filename if isinstance(error.filename, str) else f"{item}"
        raise TarkitError(f"{where}: {error.strerror or error}, on {gethostname()}") from error
    return policy.found, value


def describe(locations: Sequence[Location]) -> str:
    """Return the names of inputs, for the representation of a task in messages: without secrets."""
    return locations[0].name + (f" and {len(locations) - 1} more" if len(locations) > 1 else "") if locations else ""


@dataclass(frozen=True)
class PassRunner:
    """Runs passes: a task for each item, the problems of which count for the run."""

    tasks: Tasks
    context: TaskContext
    run: Run

    def results(self, function: Callable[[Item, TaskContext, Run], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield `function(item, context, run)` for each item, in order; `function` is that of a module."""
        for found, value in self.tasks.run_tasks(partial(call_task, function, self.context), items):
            self.run.policy.absorb(found)
            yield value


def chain_of(locations: tuple[Location, ...], shard_slice: Slice | None, steps: tuple[Step, ...], run: Run) -> Chain:
    """Return some archives with steps, for the run of a task."""
    return Chain(Archives(locations, shard_slice), lambda: run, steps)
