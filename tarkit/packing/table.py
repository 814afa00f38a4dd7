"""Recipes and tables as an origin of samples: rows of one key are a sample, whose entries are made when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tarkit.pipeline.entries import NewEntries, new_entry, sample_batches
from tarkit.pipeline.run import Run
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch
from tarkit.samples.validate import NameChecks
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location
from tarkit.tables.content import EntryContent
from tarkit.tables.recipe import Row

LoadedRows = Iterable[tuple[Row, EntryContent]]


@dataclass(eq=False, repr=False)
class TableOrigin:
    """The rows of a recipe or a table as the origin of samples.

    Attributes:
        location: the file with the rows.
        rows: called for each run, with the directory of temporary files; returns the rows with their contents.
        repair: the hint for a row of a sample that ended before.
        mtime: the time of all entries in seconds since 1970; None is that of their contents.
        storage: how URLs of other files are reached that steps read.
    """

    location: Location
    rows: Callable[[str | None], LoadedRows]
    repair: str
    mtime: int | None = 0
    storage: StoreOptions | None = None
    whole = False
    keys_may_repeat = False

    @property
    def locations(self) -> tuple[Location, ...]:
        """The file with the rows."""
        return (self.location,)

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> TableReader:
        """Begin to read for a run; see `Origin`."""
        return TableReader(self, run, tmpdir)


class TableReader(InputReader):
    """Reads the samples of a table in one run; shows progress row by row, as some may take long."""

    draws = True

    def __init__(self, table: TableOrigin, run: Run, tmpdir: str | None) -> None:
        super().__init__(table.locations, run.policy, tmpdir)
        self._table = table
        self._run = run
        self._position = 0  # bytes so far

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples. Rows without a key belong to the sample before them.

        Raises:
            TarkitError: `RECIPE:LINE: reason`.
        """
        return sample_batches(self._table.location.name, self._entries())

    def _entries(self) -> Iterator[NewEntries]:
        """Yield the entries of the rows, each with the key of its sample."""
        names, mtime = NameChecks(self._table.repair), self._table.mtime
        rows = iter(self._table.rows(self.tmpdir))
        self._position = 0
        for row, content in self._run.draw("writing", rows, lambda: self._position, lambda: names.samples):
            entry = new_entry(row, content, names, mtime)
            self._position += entry[2]
            yield entry
