"""tarkit index: index files that other tools read."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.cluster import on_cluster
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.map import MappedCommand
from tarkit.errors import TarkitError
from tarkit.indexing.index import IndexOptions, ShardIndexes
from tarkit.problems import Policy
from tarkit.sizes import plural
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

EXAMPLES = (
    "tarkit index shards/ --format dali",
    "tarkit index 'train-{000..099}.tar' --format wids,webshart -p 4",
    "tarkit index shards/ --format dali --verify",
)
COST = (
    "One pass over the headers, for all formats together; contents are not read, but for --md5. Memory does not grow "
    "with the shard, but with the index for --verify and for parquet; indexes over 1 MiB take temporary space."
)


@click.command(cls=MappedCommand, passes=True, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.rows(IndexOptions)
@shared.problems
def index(
    inputs: list[Location],
    options: Callable[..., IndexOptions],
    policy: Policy,
) -> None:
    """Write index files that other tools read.

    dali, energon, webshart and wids are the indexes of the programs of these names. For X.tar: dali X.idx, energon
    X.tar.idx, webshart X.json, tsv X.index.tsv, parquet X.index.parquet; wids has one shardindex.json for all shards.
    The tables, tsv and parquet, have a row for each field: its key, name, offset, size, and the offset of its first
    header.

    Regular files with a key are listed. An existing index is replaced, another file of that name is not. Shards must be
    plain archives. --verify ends with status 1 when it finds a fault, each on a line of stdout.
    """
    run = current()
    indexes = ShardIndexes(run, inputs, options())
    with on_cluster(run):
        if indexes.options.verify:
            _verify(run, indexes)
            return
        indexes.write()
    run.finish()


def _verify(run: ConsoleRun, indexes: ShardIndexes) -> None:
    faults = 0
    with open_sink("stdout", "-") as sink:
        for line in indexes.verify():
            sink.write(os.fsencode(line) + b"\n")
            faults += 1
    run.facts["faults"] = faults
    run.finish()
    if faults:
        message = f"{plural(faults, 'fault')} in the indexes of {plural(len(indexes.locations), 'shard')}"
        raise TarkitError(message, "tarkit index without --verify makes new ones")
