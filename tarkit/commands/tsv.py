"""tarkit tsv: a table of samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import Run, current
from tarkit.cli.output import Output
from tarkit.errors import Usage, printable
from tarkit.export.columns import Column, Row, Table, checked, parse_columns
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import unrepeated
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.samples.values import View
from tarkit.streams.location import Location
from tarkit.streams.sink import Sink
from tarkit.tables.tsv import escape_tsv

EXAMPLES = (
    "tarkit tsv 'train-{000..099}.tar' -f 'cls json.label size.jpg' -o t.tsv",
    "tarkit tsv a.tar -f 'offset.jpg size.jpg width.jpg height.jpg' -o jpg.csv",
    "tarkit tsv a.tar -f json.score --where 'json.score > 0.5' --format jsonl",
    "tarkit tsv a.tar -f 'cls txt' | tarkit create --format tsv - -o b.tar",
)
COST = (
    "One pass; of the contents only what is in the table is read. Memory does not grow with the data: one row is held, "
    "of Parquet a row group. A field of more than 16 MiB is no cell."
)


@dataclass
class TsvOptions:
    """What the table is to be like."""

    select: Select
    fields: Fields
    columns: list[Column] | None = None
    key: bool = True
    header: bool = True
    format: str = "tsv"
    available: bool = False
    shard_slice: Slice | None = None
    ahead: int = 0


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.parallel("Read N inputs ahead.")
@options.text_output
@option(
    "Output",
    "--format",
    type=click.Choice(["tsv", "csv", "jsonl", "json", "yaml", "parquet"]),
    metavar="FORMAT",
    help="Write tsv, csv, jsonl, json, yaml or parquet.",
    more="The default follows the suffix of OUT, else it is tsv.",
)
@option(
    "Table",
    "-f",
    "--fields",
    "--field",
    "columns",
    multiple=True,
    metavar="COLUMNS",
    help="Columns: 'cls json.label size.jpg'.",
    more="By default the short texts of the first sample, and the sizes of its other fields.",
)
@option("Table", "--no-key", "--nokey", is_flag=True, help="No column __key__.")
@option("Table", "--no-header", "--noheader", is_flag=True, help="No header line, in TSV and CSV.")
@option("Table", "--available", is_flag=True, help="Only list the names of fields, one a line.")
@options.shard_slice
@options.select
@options.count
@options.fields_without_choice
@options.problems
def tsv(
    inputs: list[Location],
    columns: tuple[str, ...],
    no_key: bool,
    no_header: bool,
    format: str | None,
    available: bool,
    output: Output,
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    fields: Fields,
    parallel: int,
    policy: Policy,
) -> None:
    """Write a table with a row for each sample.

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    A column is a field (cls), a path into a field of JSON (json.label, json.items.0), size, size.FIELD in bytes,
    width.FIELD and height.FIELD of a picture, shard, offset (of the sample in its archive), offset.FIELD (of the
    content) or header.FIELD. a;b is the first that a sample has, new:a names a column.

    \f
    A field of the very name of a column comes first.

    In TSV a tab, a line end and a backslash in a cell are \\t, \\n, \\r and \\\\; \\N is a field that is not there. So
    create --format tsv and --keys-from read back what was written, to the last byte. In JSON, content that is no UTF-8
    is base64 under @FIELD, which create reads too. A terminal gets escapes for control characters. In Parquet the
    numbers of JSON and sizes are numbers, and contents are strings.
    """
    select.count = count
    if format is None:
        format = next((each for each in FORMATS if output.location.text.lower().endswith(FORMATS[each])), "tsv")
    if format == "parquet":
        output.refuse_terminal("Parquet")
    asked = checked(parse_columns(" ".join(columns))) if columns else None
    if available and asked:
        raise Usage("--available cannot be used with -f: it lists all fields")
    chosen = TsvOptions(select, fields, asked, not no_key, not no_header, format, available, shard_slice, parallel - 1)
    run_tsv(current(), inputs, output, chosen, policy)


FORMATS = {
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"),
    "json": (".json", ".json.gz", ".json.zst"),
    "yaml": (".yaml", ".yml"),
    "parquet": (".parquet",),
}


def run_tsv(run: Run, locations: list[Location], output: Output, chosen: TsvOptions, policy: Policy) -> None:
    """Write the table of the samples of all inputs that were chosen."""
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        shard_slice=chosen.shard_slice,
        ahead=chosen.ahead,
        tmpdir=run.scratch(output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    named = (sample for sample in chosen.select(iter(inputs)) if sample.key is not None)
    samples = chosen.fields(named, policy)
    if len(locations) > 1 or chosen.fields.rekey is not None:
        samples = unrepeated(samples, policy)
    with output.open(locations) as sink:
        counted = (_Seen if output.is_terminal else _Counted)(run, sink)
        if chosen.available:
            _list_fields(run, samples, counted)
        else:
            _write_table(run, samples, counted, chosen, policy)
        options.report_keys(run, chosen.select)
    run.dropped = inputs.dropped
    run.finish()


class _Counted:
    """A sink, with its bytes counted."""

    def __init__(self, run: Run, sink: Sink) -> None:
        self.run = run
        self.sink = sink

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        self.sink.write(data)
        self.run.bytes += len(data)


class _Seen(_Counted):
    """The same for a terminal: what would be an order to it comes as an escape."""

    def write(self, data: bytes) -> None:
        """Write all of `data`, which is rows."""
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        text = "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
        super().write(text.encode())


def _write_table(run: Run, samples: Iterator[TarSample], sink: _Counted, chosen: TsvOptions, policy: Policy) -> None:
    from tarkit.export.writer import gathered, pieces

    table, found = Table.of(chosen.columns, samples, policy, chosen.fields.on_missing, chosen.key)
    rows = _watched(run, found)
    if chosen.format == "parquet":
        from tarkit.export.parquet import write_parquet

        write_parquet(table.columns, rows, sink.write)
    else:
        format: Any = chosen.format
        gathered(pieces(format, table.columns, rows, chosen.header), sink.write)
    if table.outside:
        run.warn(
            f"{table.outside} of {run.samples} samples have fields that the table has not, such as {table.example}: "
            "-f says which columns there are"
        )


def _watched(run: Run, found: Iterator[tuple[TarSample, Row]]) -> Iterator[Row]:
    """The rows, counted, and with a bar if one is wanted."""

    def counted() -> Iterator[Row]:
        for _, row in found:
            run.samples += 1
            yield row

    rows = counted()
    return run.draw(rows, lambda: run.bytes, lambda: run.samples) if run.shows_progress else rows


def _list_fields(run: Run, samples: Iterator[TarSample], sink: _Counted) -> None:
    seen: dict[bytes, None] = {}
    for sample in run.watch(samples, lambda: run.bytes, None):
        fields = View(sample).fields
        if not fields.keys() <= seen.keys():
            seen.update(dict.fromkeys(fields))
    sink.write(b"".join(escape_tsv(name) + b"\n" for name in seen))
