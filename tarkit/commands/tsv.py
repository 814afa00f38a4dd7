"""tarkit tsv: a table of samples."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.errors import printable
from tarkit.export.table import TableOptions, write_table
from tarkit.joining.options import JoinOptions
from tarkit.pipeline.output import Output
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit tsv 'train-{000..099}.tar' -f 'cls json.label size.jpg' -o t.tsv",
    "tarkit tsv a.tar -f 'offset.jpg size.jpg width.jpg height.jpg' -o jpg.csv",
    "tarkit tsv a.tar -f 'image:jpg,png label:cls' -o hf.parquet",
    "tarkit table 'train-*.tar' -f 'cls json.score' -o t.view.parquet",
    "tarkit tsv a.tar -f 'cls txt' | tarkit create --format tsv - -o b.tar",
)
COST = (
    "One pass; of the contents only what is in the table is read. Memory does not grow with the data: one row is held, "
    "of Parquet a row group. A field of more than 16 MiB is not a cell."
)


@click.command(cls=MappedCommand, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.parallel("Read N inputs ahead.")
@shared.text_output
@shared.rows(TableOptions)
@shared.join
@choice(count=shared.count, fields=shared.fields_without_choice)
def tsv(
    inputs: list[Location],
    options: Callable[..., TableOptions],
    output: Output,
    choice: SampleChoice,
    joins: JoinOptions,
    parallel: int,
) -> None:
    """Write a table with a row for each sample; also named table.

    A column is a field (cls), a path into a field of JSON (json.label, json.items.0), size, size.FIELD in bytes,
    width.FIELD and height.FIELD of a picture, sha256.FIELD, phash.FIELD, shard, offset (of the sample in its archive),
    offset.FIELD (of the content) or header.FIELD (offset of its first header). a;b is the first that a sample has,
    new:a names a column. * is all fields of the first sample; another field of a later one is an error.

    \f
    A field of the very name of a column comes first. duration.FIELD is the length of a sound in seconds, lines.FIELD
    that of a text, ok.FIELD whether the content is whole.

    In Parquet, and with --locate, columns say where each sample lies: a table that pandas or DuckDB has edited is a
    view, which every command reads as it reads archives.

    In TSV a tab, a line end and a backslash in a cell are \\t, \\n, \\r and \\\\; \\N is a field that is not there. So
    create --format tsv and --keys-from read back what was written, to the last byte. In JSON, content that is not UTF-8
    is base64 under @FIELD, which create reads too. A terminal gets escapes for control characters. In Parquet the
    numbers of JSON and sizes are numbers, and contents are strings; pictures and sounds are columns
    struct<bytes, path>, which load_dataset("parquet", data_files=...) of Hugging Face reads as such.
    """
    run = current()
    data = choice.of(inputs, joins, prefetch=parallel - 1).change(choice.fields)
    write_table(
        data, output, run, options(on_missing=choice.fields.on_missing), _escaped if output.is_terminal else bytes
    )
    run.finish()


def _escaped(rows: bytes) -> bytes:
    lines = rows.decode("utf-8", "surrogateescape").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines).encode()
