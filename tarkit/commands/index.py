"""tarkit index: index files that other tools read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import click

from tarkit.cli import options as shared
from tarkit.cli.cluster import on_cluster
from tarkit.cli.console import ConsoleRun, JsonLines, current
from tarkit.cli.map import MappedCommand
from tarkit.errors import TarkitError
from tarkit.indexing.files import IndexFile
from tarkit.indexing.index import IndexOptions, ShardIndexes
from tarkit.sizes import plural
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink

EXAMPLES = (
    "tarkit index shards/ --format dali",
    "tarkit index 'train-{000..099}.tar' --format wids,webshart -p 4",
    "tarkit index shards/ --format view -o train.view.parquet",
    "tarkit index shards/ --format dali --verify",
)
COST = (
    "One pass over the headers, for all formats together but view, which takes another; contents are not read, but for "
    "--md5. Memory does not grow with the shard, but with the index for --verify and for parquet; indexes over 1 MiB "
    "take temporary space."
)


@click.command(cls=MappedCommand, passes=True, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.rows(IndexOptions)
@shared.json("An object on a line for each index, or each fault.")
@shared.problems
def index(
    inputs: list[Location],
    options: Callable[..., IndexOptions],
    as_json: bool,
) -> None:
    """Write index files that other tools read.

    dali, energon, webshart and wids are the indexes of the programs of these names. For X.tar: dali X.idx, energon
    X.tar.idx, webshart X.json, tsv X.index.tsv, parquet X.index.parquet; one for all shards: wids shardindex.json, view
    all.view.parquet, which is an input of all commands. tsv and parquet have a row for each field, a view for each
    sample.

    Regular files with a key are listed. An existing index is replaced, another file of that name is not. Shards must be
    plain archives. --verify ends with status 1 when it finds a fault, each on a line of stdout.
    """
    run = current()
    indexes = ShardIndexes(run, inputs, options())
    if indexes.options.output == "-":
        run.take_stdout("the index")
    lines = JsonLines(run) if as_json else None
    with on_cluster(run):
        if indexes.options.verify:
            _verify(run, indexes, lines)
            return
        if lines is None:
            indexes.write()
        else:
            indexes.write(partial(_print_index, lines))
            _print_summary(run, lines)
    run.finish()


def _print_index(lines: JsonLines, file: IndexFile, shard: str, samples: int) -> None:
    lines.write(type="index", index=file.name, format=file.format, shard=shard or None, samples=samples)


def _print_summary(run: ConsoleRun, lines: JsonLines) -> None:
    lines.write(type="summary", shards=run.shards, samples=run.samples, bytes=run.bytes, **run.facts)
    lines.close()


def _verify(run: ConsoleRun, indexes: ShardIndexes, lines: JsonLines | None) -> None:
    faults = 0
    with nullcontext() if lines else open_sink("stdout", "-") as sink:
        if lines is None:
            run.take_stdout("the list of faults")
        for fault in indexes.verify():
            if lines is not None:
                lines.write(type="fault", fault=fault)
            elif sink is not None:
                sink.write(os.fsencode(fault) + b"\n")
            faults += 1
    run.facts["faults"] = faults
    if lines is not None:
        _print_summary(run, lines)
    run.finish()
    if faults:
        message = f"{plural(faults, 'fault')} in the indexes of {plural(len(indexes.locations), 'shard')}"
        raise TarkitError(message, "tarkit index without --verify makes new ones")
