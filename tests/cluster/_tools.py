"""Runs of the passes by tasks of this process, and what may happen to the spill between two passes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tarkit.cluster.api import write_ordered
from tarkit.cluster.call import TaskContext, call_task
from tarkit.cluster.plan import TaskDivision
from tarkit.cluster.run import ClusterOutcome
from tarkit.parallel import OrderedExecutor
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import archive_output, archives_output
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import parse_template
from tarkit.shards.limits import Limits
from tarkit.shards.output import ShardsOutput
from tarkit.shards.rows import SeriesOptions
from tarkit.shards.series import SeriesSpec
from tests.conftest import tar

SMALL = TaskDivision(task_size=8000, span=5, scans=4)


def task_of(work: partial[Any]) -> tuple[Callable[..., Any], TaskContext]:
    """Return the function of a pass, and what its tasks have in common, of the work of an executor."""
    task = work.args[0]
    assert task.func is call_task
    function, context = task.args
    return function, context


class Between:
    """Tasks of this process; before the pass of `function` begins, `event` is called with the files of the spill.

    Each task runs as often as `times` says, as one does of a worker that was lost.
    """

    def __init__(
        self, function: Callable[..., Any] | None = None, event: Callable[[Path], None] | None = None, times: int = 1
    ) -> None:
        self.function, self.event, self.times = function, event, times
        self.counts: dict[str, int] = {}

    def in_order(self, work: Any, items: Iterable[Any], /) -> Iterator[Iterator[Any]]:
        which, context = task_of(work)
        if which is self.function and self.event is not None:
            event, self.event = self.event, None
            event(Path(context.spill.place))
        for item in items:
            self.counts[which.__name__] = self.counts.get(which.__name__, 0) + 1
            for _ in range(self.times):
                results = list(work(item))
            yield iter(results)


def write_by_tasks(
    data: Chain,
    output: str,
    limits: Limits | None = None,
    *,
    tasks: OrderedExecutor | None = None,
    division: TaskDivision = SMALL,
    memory: int = 1_000_000,
    force: bool = False,
    run: Run | None = None,
    spill: str = "spill",
) -> ClusterOutcome:
    """Write a dataset by tasks; nothing stays of the spill."""
    os.makedirs(spill, exist_ok=True)
    target: Any
    if limits is None:
        target = archive_output(output, None, False)
    else:
        series = [SeriesSpec("", parse_template(output))]
        target = ShardsOutput(
            archives_output(output, None, False), limits, options=SeriesOptions(force=force), series=series
        )
    try:
        run = run or data.new_run()
        run.executor = tasks or Between()
        return write_ordered(data, target, run, spill, memory=memory, division=division)
    finally:
        assert os.listdir(spill) == []


def inputs(count: int, most: int = 8, seed: int = 1, **names: str) -> None:
    """Make archives `in-00.tar` and so on, each with up to `most` samples of one to three fields."""
    draw = random.Random(seed)
    for number in range(count):
        entries = {}
        for at in range(draw.randint(0, most)):
            entries[f"{draw.randint(0, 99):02}/{number}-{at}.jpg"] = draw.randbytes(draw.randint(0, 3000))
            entries[[*entries][-1][:-3] + "cls"] = b"%d" % draw.randint(0, 4)
        Path(f"in-{number:02}.tar").write_bytes(tar(entries))


def contents(pattern: str) -> dict[str, bytes]:
    """Return the contents of the files that a pattern matches, without its first letter in their names."""
    return {path.name[1:]: path.read_bytes() for path in sorted(Path().glob(pattern))}
