"""Write a table with a row for each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tarkit.errors import spell
from tarkit.export.columns import Column, Row, Table, TableFormat, check_heads
from tarkit.export.writer import gathered, pieces
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.stages import unrepeated
from tarkit.samples.fields import OnMissing
from tarkit.samples.sample import singly

SUFFIXES: dict[TableFormat, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"),
    "json": (".json", ".json.gz", ".json.zst"),
    "yaml": (".yaml", ".yml"),
    "parquet": (".parquet",),
}
"""Suffixes of files that say the format; any other is tsv."""


def format_of(name: str) -> TableFormat:
    """Return the format of a table in a file of this name."""
    return next((form for form in SUFFIXES if name.lower().endswith(SUFFIXES[form])), "tsv")


def write_table(
    data: Chain,
    output: Output,
    run: Run,
    columns: list[Column] | None = None,
    *,
    format: TableFormat = "tsv",
    key: bool = True,
    header: bool = True,
    on_missing: OnMissing = "error",
    shown: Callable[[bytes], bytes] = lambda rows: rows,
) -> None:
    """Write a table of the samples of a dataset.

    Args:
        columns: those of `columns.parse_columns`; without them the first sample says which there are.
        key: whether there is a column for the key.
        header: whether tsv and csv begin with the names of the columns.
        on_missing: what to do about a sample that has nothing for a column.
        shown: changes rows on their way out.
    """
    batches, flow = data.batches(run, moves=False, contents=False, directory=output.directory)
    keyed = (batch for batch in batches if batch.key is not None)
    samples = singly(unrepeated(keyed, run.policy) if flow.keys_may_repeat else keyed)
    with flow, flow.open(output, data.locations) as sink:
        table = Table(columns, samples, run.policy, on_missing, key)
        check_heads(table.columns, format)
        rows = run.draw(_counted(run, table), lambda: run.bytes, lambda: run.samples)
        for piece in gathered(pieces(format, table.columns, rows, header)):
            written = shown(piece)
            sink.write(written)
            run.bytes += len(written)
        if table.outside:
            run.warn(
                f"{table.outside} of {run.samples} samples have fields that the table has not, such as "
                f"{table.example}: {spell('columns')} says which columns there are"
            )
        flow.finish()


def _counted(run: Run, table: Table) -> Iterator[Row]:
    for row in table:
        run.samples += 1
        yield row
