"""Write a table with a row for each sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tarkit.arguments import check_choice
from tarkit.errors import MissingFile, Usage, spell
from tarkit.export.columns import (
    KEY,
    MISSING,
    Column,
    Rows,
    Table,
    TableFormat,
    check_heads,
    checked,
    parse_columns,
    with_features,
)
from tarkit.export.writer import gathered, pieces
from tarkit.options import Options, row
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.locator import Locator, directory_of
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import unrepeated
from tarkit.pipeline.steps import Change, Step
from tarkit.samples.dataset import is_plain_file
from tarkit.samples.fields import OnMissing
from tarkit.samples.sample import TarSample
from tarkit.sizes import plural
from tarkit.streams.codecs import codec_by_suffix, message_format_by_suffix
from tarkit.streams.location import Location, is_view, says_view
from tarkit.views.names import FIELDS, MORE, SHARD, START, STOP

SUFFIXES: dict[TableFormat, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"),
    "json": (".json", ".json.gz", ".json.zst"),
    "yaml": (".yaml", ".yml"),
    "parquet": (".parquet",),
}
"""Suffixes of files that say the format; any other is tsv."""


OTHERS = (".xlsx", ".xls", ".ods", ".feather", ".arrow", ".orc", ".avro", ".db", ".sqlite")
"""Suffixes of tables that are not written."""


class TableOptions(Options):
    """The options of `Dataset.table` and the command `tsv`.

    Attributes:
        on_missing: the treatment of a sample that has nothing for a column.
        parsed: the columns; None: the first sample says which there are.
    """

    format: TableFormat | None = row(
        "Output",
        "--format",
        choices=TableFormat,
        metavar="FORMAT",
        help="Write tsv, csv, jsonl, json, yaml or parquet.",
        more="The default follows the suffix of OUT, else it is tsv.",
    )
    columns: str | Iterable[str] | None = row(
        "Table",
        "-f",
        "--fields",
        "--field",
        complete="values",
        many=True,
        metavar="COLUMNS",
        help="Columns: 'cls json.label size.jpg', '*'.",
        more="By default the short texts of the first sample, and the sizes of its other fields; '*' is all of its "
        "fields.",
    )
    key: bool = row("Table", "--no-key", "--nokey", default=True, help="No column __key__.")
    locate: bool | None = row(
        "Table",
        "--locate/--no-locate",
        help="Columns that make it a view.  [default: in Parquet]",
        more="__shard__, __start__ and __stop__ say where each sample lies. A Parquet file has them by default if all "
        "inputs are plain archives or views, and no column has pictures or sounds or is *: an edited table is a view.",
    )
    header: bool = row("Table", "--no-header", "--noheader", default=True, help="No header line, in TSV and CSV.")
    on_missing: OnMissing = "error"

    def check(self) -> None:
        """Parse the columns."""
        check_choice("on_missing", self.on_missing, OnMissing)
        if self.locate and not self.key:
            raise Usage(f"{spell('locate')} needs the column {KEY}: it cannot be used with {spell('key')}")
        self.parsed = None if self.columns is None else checked(parse_columns(" ".join(self.columns)))

    def format_of(self, output: Output) -> TableFormat:
        """Return the format: that of the options, else of the suffix. Raises Usage for a suffix of another format."""
        if self.format is not None:
            return self.format
        name = output.location.text.lower()
        if output.location.kind == "path" and name.endswith(OTHERS):
            message = f"{output.location.name}: tables of this format are not written"
            hint = f"the suffix is .tsv, .csv, .jsonl, .json, .yaml or .parquet; or give {spell('format')}"
            raise Usage(message, hint)
        return next((form for form in SUFFIXES if name.endswith(SUFFIXES[form])), "tsv")


def write_table(
    data: Chain,
    output: Output,
    run: Run,
    options: TableOptions,
    shown: Callable[[bytes], bytes] = lambda rows: rows,
) -> None:
    """Write a table of the samples of a dataset; `shown` changes rows on their way out."""
    format = options.format_of(output)
    if format == "parquet":
        output.refuse_terminal("Parquet")
    batches, flow = data.batches(run, moves=False, contents=False, directory=output.directory)
    keyed = (batch for batch in batches if batch.key is not None)
    if "repeated-key" not in run.policy.allowed:
        flow.refuse_repeats(f"{spell('allow', 'repeated-key')} writes a row for each")
    samples = unrepeated(keyed, run.policy) if flow.keys_may_repeat else keyed
    with flow, flow.open(output, data.locations) as sink:
        table = Table(options.parsed, samples, run.policy, options.on_missing, options.key)
        check_heads(table.columns, format)
        if format == "parquet":
            table.columns = with_features(table.columns)
        if _is_located(data, options, format, table):
            table.columns[1:1] = location_columns(data, output)
        elif says_view(output.location):
            message = (
                f"{output.location.name}: the name is that of a view, and the table would not say where samples lie"
            )
            raise Usage(
                message, "end it in .parquet alone; a view needs __key__, plain archives, and columns that are no media"
            )
        rows = run.draw("writing", _counted(run, table), lambda: run.bytes, lambda: run.samples)
        for piece in gathered(pieces(format, table.columns, rows, options.header)):
            written = shown(piece)
            sink.write(written)
            run.bytes += len(written)
        if table.outside:
            which = f"{table.outside} of {plural(run.samples, 'sample')}"
            others = f"{'has fields' if table.outside == 1 else 'have fields'} that the table has not"
            run.warn(f"{which} {others}, such as {table.example}: {spell('columns')} says which columns there are")
        flow.finish()


def _is_located(data: Chain, options: TableOptions, format: TableFormat, table: Table) -> bool:
    """Return whether the table has the columns of a view."""
    if options.locate is not None or format != "parquet":
        return bool(options.locate)
    if (
        not options.key
        or data.opaque
        or not data.of_archives
        or any(column.feature or column.exact for column in table.columns)
    ):
        return False
    return all(map(is_plain_input, data.locations)) and not any(map(_renames, data.steps))


def _renames(step: Step) -> bool:
    """Return whether a step gives fields other names, which not every view can say."""
    if not isinstance(step, Change):
        return False
    return bool(step.fields.rename) or any(choice.new is not None for choice in step.fields.keep or ())


def is_plain_input(location: Location) -> bool:
    """Return whether an input is a view or, as far as its name says, a plain archive."""
    if is_view(location):  # or another table
        from tarkit.pipeline.view_rows import NotView, view_file

        try:
            view_file(location)
        except (NotView, MissingFile):
            return False
        return True
    if location.kind == "url":
        return codec_by_suffix(location.text) is None and message_format_by_suffix(location.text) is None
    return location.kind == "path" and is_plain_file(location)


def location_columns(data: Chain, output: Output) -> list[Column]:
    """Return the columns of a view beside the key, as seen from the directory of the table.

    Further ranges and fields are in columns where samples may have some: those of views, and changed ones.
    """
    locator = Locator(directory_of(output) if output.location.kind in ("path", "url") else os.path.realpath("."))
    held: list[Any] = [None, None]  # the last sample, and its cells

    def cell(number: int, sample: TarSample) -> Any:
        if held[0] is not sample:
            sample.complete()
            ((first, start, stop), *rest), fields = locator.ranges_of(sample)
            more = [{"shard": locator.name(source), "start": low, "stop": high} for source, low, high in rest]
            held[:] = sample, (locator.name(first), start, stop, more or MISSING, fields or MISSING)
        return held[1][number]

    names = {SHARD: "string", START: "int64", STOP: "int64"}
    if any(map(is_view, data.locations)) or any(step.reads == "contents" for step in data.steps):
        names |= {MORE: "ranges", FIELDS: "string"}
    return [Column(name, (), kind=kind, of=partial(cell, number)) for number, (name, kind) in enumerate(names.items())]


def _counted(run: Run, table: Table) -> Iterator[Rows]:
    for rows in table:
        run.samples += len(rows)
        yield rows
