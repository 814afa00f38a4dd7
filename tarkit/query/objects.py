"""Parquet files in stores as tables of DuckDB: columns and row groups are fetched as far as a query needs them."""

from __future__ import annotations

from typing import Any

from tarkit.errors import Unsupported
from tarkit.samples.dataset import open_source
from tarkit.streams.location import Location
from tarkit.streams.source import WindowSource
from tarkit.tables.parquet import dataset_of


class ObjectTable:
    """A Parquet file that is an object, as a dataset of pyarrow, into which DuckDB hands its columns and conditions.

    Attributes:
        dataset: the dataset.
        columns: its columns.

    Raises:
        TarkitError: it is not there, no Parquet file, or the server sends no ranges.
    """

    def __init__(self, location: Location) -> None:
        source = open_source(location, table=True)
        if not isinstance(source, WindowSource):
            source.close()
            raise Unsupported(f"{location.name}: the server sends no parts of it", "copy it, and name the copy")
        self._source = source
        self.dataset: Any = dataset_of(source, location.name)
        self.columns: list[str] = self.dataset.schema.names

    def close(self) -> None:
        """Close the object."""
        self._source.close()
