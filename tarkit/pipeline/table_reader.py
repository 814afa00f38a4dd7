"""Parquet files that are no views as inputs: tables whose rows are samples."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.errors import Unsupported, spell
from tarkit.pipeline.entries import NewEntries, new_entry, sample_batches
from tarkit.samples.dataset import open_source
from tarkit.samples.sample import SampleBatch
from tarkit.samples.validate import NameChecks
from tarkit.streams.location import Location, numbered_keys
from tarkit.streams.source import WindowSource
from tarkit.tables.assignments import parse_assignments
from tarkit.tables.columnar import FETCH, READ, ColumnarTable
from tarkit.tables.content import EntryContent
from tarkit.tables.parquet import SourceFile


def open_table(location: Location) -> WindowSource:
    """Open a Parquet file. Raises Unsupported for a stream: its end has to be read first."""
    source = open_source(location, table=True)
    if not isinstance(source, WindowSource):
        source.close()
        hint = "write it to a file, and name that"
        raise Unsupported(f"{location.name}: Parquet must be a file, or an object that is read by ranges", hint)
    return source


class ParquetInput:
    """The samples of a Parquet table, a `BatchSource`. Without keys a key is the name of the file and the row.

    Attributes:
        name: the file, for messages.
        dropped: 0: a row that is no sample is an error.

    Raises:
        TarkitError: it is no Parquet file.
        Usage: it lacks a column.
    """

    def __init__(self, location: Location) -> None:
        self.name = location.name
        self.dropped = 0
        self._source = open_table(location)
        words, key = location.table or ("", None)
        numbered = numbered_keys(location)
        size = FETCH if location.kind == "url" else READ
        self._table = ColumnarTable(SourceFile(self._source), self.name, parse_assignments(words), key, numbered, size)

    def batches(self) -> Iterator[SampleBatch]:
        """Read the samples."""
        return sample_batches(self.name, self._entries())

    def _entries(self) -> Iterator[NewEntries]:
        names = NameChecks(f"keys are there twice: {spell('key', 'COLUMN')} names another column")
        for row in self._table.rows():
            yield new_entry(row, EntryContent(row.value, None, len(row.value), 0), names, 0)

    def unchanged(self) -> None:
        """Raise TarkitError if the file has changed since it was opened."""
        self._source.unchanged()

    def close(self) -> None:
        """Close the file."""
        self._source.close()
