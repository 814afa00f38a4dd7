"""The differences between two sets as a table, whose column `__key__` other commands take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tarkit.checking.diff import Difference
from tarkit.errors import Usage, spell
from tarkit.export.columns import MISSING, Column, Row
from tarkit.export.table import TableOptions
from tarkit.export.writer import gathered, pieces
from tarkit.pipeline.output import Output, text_output
from tarkit.samples.values import Name
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location

HEADS = ("__key__", "change", "fields", "old_key", "old_shard", "old_index", "new_key", "new_shard", "new_index")
_NAME = (Name("__key__"),)  # all cells are names, and no content


def table_output(word: str, options: StoreOptions | None) -> Output:
    """Return the output of the table. Raises Usage for a suffix of another format, and for stdout."""
    output = text_output(word, options=options)
    if output.location.kind == "stdout":
        raise Usage(f"{spell('output')} writes to a file, the sums go to stdout", "without it, differences are lines")
    try:
        TableOptions().format_of(output)
    except Usage as error:
        raise Usage(str(error), "the suffix is .csv, .tsv, .jsonl, .json, .yaml or .parquet") from None
    return output


def written(differences: Iterable[Difference], output: Output, inputs: Sequence[Location]) -> Iterator[Difference]:
    """Write differences to a table whose format its suffix says, and yield each once it is in the table."""
    passed: list[Difference] = []

    def rows() -> Iterator[Row]:
        for difference in differences:
            passed.append(difference)
            yield _row(difference)

    columns = [Column(head, _NAME, kind="int64" if head.endswith("_index") else "") for head in HEADS]
    format = TableOptions().format_of(output)
    with output.open(inputs) as sink:
        for piece in gathered(pieces(format, columns, ([row] for row in rows()), True)):
            sink.write(piece)
            yield from passed
            passed.clear()
        yield from passed


def _row(difference: Difference) -> Row:
    cells: Row = [difference.key, difference.change, b" ".join(difference.fields) or MISSING]
    for place in (difference.old, difference.new):
        if place is None:
            cells += [MISSING] * 3
        else:
            cells += [place.key, place.shard, place.index]
    return cells
