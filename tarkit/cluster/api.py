"""`tarkit.write_on_cluster`: write a dataset that is sorted or shuffled, by the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tarkit.arguments import check_at_least
from tarkit.cluster.call import TaskContext
from tarkit.cluster.plan import MEMORY, TaskDivision, plan_ordering
from tarkit.cluster.run import ClusterOutcome, OrderingPasses
from tarkit.cluster.shared import new_spill
from tarkit.errors import TarkitError, Usage, spell
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output, refuse_overwrite
from tarkit.pipeline.run import Run
from tarkit.problems import ONE_ARCHIVE
from tarkit.shards.output import ShardsOutput
from tarkit.shards.split import SplitOptions
from tarkit.shards.writer import Shard
from tarkit.sorting.memory import LEAST
from tarkit.stores.connect import portable_options
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import is_view

if TYPE_CHECKING:
    from tarkit.dataset import Dataset
    from tarkit.shards.limits import SizeRule


def write_ordered(
    data: Chain,
    output: Output | ShardsOutput,
    run: Run,
    spill: str,
    *,
    memory: int | None = None,
    division: TaskDivision | None = None,
    storage: StoreOptions | None = None,
) -> ClusterOutcome:
    """Write a dataset that is sorted or shuffled by tasks; see `write_on_cluster`. Nothing stays of the spill.

    Args:
        data: the dataset; one of its steps is the order.
        run: where problems and messages go; its executor does the tasks.
        spill: a directory or URL for files that tasks write for each other.
        memory: bytes that a task may hold.
        division: how large tasks are.
        storage: how the URL of the spill is reached.
    """
    ordering = plan_ordering(data, run.policy)
    locations = ordering.archives.locations
    if isinstance(output, ShardsOutput):
        location = output.output.location
        if location.kind not in ("path", "url"):
            raise Usage(f"{location.name}: workers write files or objects, not to commands", "name shards or URLs")
        if output.output.form_of(location.text) == "mds":
            raise Usage(f"{location.name}: workers write no index, which MDS needs", "write .tar, then tarkit split")
    elif is_view(output.location):
        hint = f"tarkit {ordering.order.name} writes a view without {spell('dask')}: it copies no bytes"
        raise Usage(f"{output.location.name}: workers write archives, not views", hint)
    place = new_spill(spill, ordering.order.name, portable_options(storage) if scheme_of(spill) else None)
    if isinstance(output, ShardsOutput):
        output.refuse_inputs(locations)
    else:
        refuse_overwrite(output.status(), locations)
        run.policy.strict |= ONE_ARCHIVE
    tmpdir = None if run.tmpdir is None else os.path.abspath(run.tmpdir)
    sent = replace(ordering, archives=replace(ordering.archives, locations=()))
    context = TaskContext(place, memory or MEMORY, tmpdir, sent)
    try:
        place.begin()
        return OrderingPasses(ordering, output, context, run, division or TaskDivision()).run()
    finally:
        try:
            place.remove()
        except (OSError, TarkitError) as error:
            run.warn(f"{place.shown}: the spill could not be removed: {error}")


def write_on_cluster(
    data: Dataset,
    output: str | os.PathLike[str],
    *,
    dask: Any,
    spill: str | os.PathLike[str],
    count: int | None = None,
    size: int | str | None = None,
    size_rule: SizeRule = "tar",
    force: bool = False,
    compress: str | None = None,
    fsync: bool = False,
    memory: int | None = None,
    resources: Mapping[str, float] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> list[Shard]:
    """Write a dataset that is sorted or shuffled, by the workers of a Dask cluster.

    The bytes are those of `data.write(output)`, or with `count` or `size` those of `data.split(output, ...)`. The
    workers read the inputs twice, and write all samples once to the spill and once to the shards. One archive they
    write to the spill as well, and this process copies it from there to the output, at its own speed. All paths must be
    the same files on all machines.

    Args:
        data: a dataset with one `sort` or `shuffle`; before and after it samples may be chosen, and fields.
        output: the name of one archive, or with `count` or `size` a template.
        dask: the address of a scheduler, `"local"`, or a `distributed.Client`.
        spill: a directory that all workers share, or a URL; the files written there are removed at the end.
        count, size, size_rule, force, compress, fsync: as for `Dataset.split`.
        memory: bytes that one task holds; 1 GB by default.
        resources: the resources that a task takes of a worker, such as `{"memory": 2e9}`.
        storage_options: how URLs of the output and of the spill are reached.

    Returns:
        The shards, or the one archive: name, samples, size of the tar in bytes, first and last key.

    Raises:
        Usage: something cannot be done by tasks, such as `order_file`.
        TarkitError: a block of the spill is gone or damaged, or samples are missing; then no shard stays.

    >>> import tarkit
    >>> data = tarkit.open("train-*.tar").shuffle(seed=7)
    >>> how = {"dask": "tcp://host:8786", "spill": "/shared/tmp"}
    >>> tarkit.write_on_cluster(data, "mixed-%03d.tar", count=2, **how)  # doctest: +SKIP
    """
    from tarkit.jobs.dask import connect_cluster

    check_at_least(LEAST, memory=memory)
    options = parse_options(storage_options)
    run, name = data.new_run(), os.fspath(output)
    opened: Output | ShardsOutput
    if count is None and size is None:
        opened = Output.from_argument(name, compress, fsync, options=options)
    else:
        limits: dict[str, Any] = {"count": count, "size": size, "size_rule": size_rule}
        file: dict[str, Any] = {"compress": compress, "fsync": fsync, "storage_options": storage_options}
        opened = SplitOptions(template=name, **limits, force=force, **file).open(run, data.locations)
    with connect_cluster(dask, resources) as run.executor:
        outcome = write_ordered(
            data,
            opened,
            run,
            os.fspath(spill),
            memory=memory,
            storage=options,
        )
    if isinstance(opened, ShardsOutput):
        return outcome.shards
    return [Shard(opened.location.name, outcome.samples, run.bytes, 0, outcome.first, outcome.last, "")]
