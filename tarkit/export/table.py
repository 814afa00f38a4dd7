"""Write a table with a row for each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tarkit.arguments import check_choice
from tarkit.errors import Usage, spell
from tarkit.export.columns import Row, Table, TableFormat, check_heads, checked, parse_columns, with_features
from tarkit.export.writer import gathered, pieces
from tarkit.options import Options, row
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import unrepeated
from tarkit.samples.fields import OnMissing
from tarkit.samples.sample import singly
from tarkit.sizes import plural

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
    header: bool = row("Table", "--no-header", "--noheader", default=True, help="No header line, in TSV and CSV.")
    on_missing: OnMissing = "error"

    def check(self) -> None:
        """Parse the columns."""
        check_choice("on_missing", self.on_missing, OnMissing)
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
    samples = singly(unrepeated(keyed, run.policy) if flow.keys_may_repeat else keyed)
    with flow, flow.open(output, data.locations) as sink:
        table = Table(options.parsed, samples, run.policy, options.on_missing, options.key)
        check_heads(table.columns, format)
        if format == "parquet":
            table.columns = with_features(table.columns)
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


def _counted(run: Run, table: Table) -> Iterator[Row]:
    for cells in table:
        run.samples += 1
        yield cells
