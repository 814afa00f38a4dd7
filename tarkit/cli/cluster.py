"""Commands on a cluster: --dask where a command makes no job for each input, and --spill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tarkit.cli import options
from tarkit.cli.console import ConsoleRun
from tarkit.cli.jobs import given_options
from tarkit.errors import Usage
from tarkit.options import Options, row

if TYPE_CHECKING:
    from tarkit.dataset import Dataset
    from tarkit.pipeline.output import Output
    from tarkit.shards.output import ShardsOutput


@contextmanager
def on_cluster(run: ConsoleRun) -> Iterator[None]:
    """Have the jobs of a run done by the cluster of --dask, if it is given."""
    options = given_options(click.get_current_context())
    if options.dask is None:
        yield
        return
    from tarkit.jobs.dask import connect_cluster

    with connect_cluster(options.dask, options.dask_resources) as run.executor:
        try:
            yield
        finally:
            run.executor = None


class SpillOptions(Options):
    """The options of a sort or shuffle on a cluster."""

    spill: str | None = row(
        "Jobs",
        "--spill",
        metavar="DIR",
        detail=True,
        help="With --dask, a shared directory or URL for temporary data.",
        more="Tasks write there what others read. It takes as many bytes as the selected samples, and is removed at "
        "the end. A task has --memory SIZE, by default 1GB, and takes the rest in temporary space of its worker.",
    )

    def check(self) -> None:
        on_cluster = given_options(click.get_current_context()).dask is not None
        if on_cluster and self.spill is None:
            hint = "--spill DIR, which all workers share, or --spill s3://BUCKET/tmp"
            raise Usage("--dask requires --spill: tasks write there what others read", hint)
        if self.spill is not None and not on_cluster:
            raise Usage("--spill requires --dask ADDRESS")

    def write(self, data: Dataset, target: Output | ShardsOutput, run: ConsoleRun, memory: int | None) -> None:
        """Write a dataset that is sorted or shuffled, here or on the cluster, where a task holds `memory` bytes."""
        if self.spill is None:
            from tarkit.cli.target import write

            write(data, target, run)
            return
        from tarkit.cluster.api import write_ordered

        with on_cluster(run):
            write_ordered(data, target, run, self.spill, memory=memory)


spill = options.rows(SpillOptions, "spill")
