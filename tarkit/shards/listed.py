"""Shards that are not written: a view has their samples, and their names in a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.streams.sink import WriteOnlySink
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.pipeline.view_writer import ViewWriter


class _Nothing(WriteOnlySink):
    """The sink of a shard that is not written."""

    def __init__(self, name: str) -> None:
        self.name = name

    busy = False

    def wait(self) -> None:
        pass

    def abort(self) -> None:
        pass


class ListedShard(EntryWriter):
    """A shard that is not written: its samples become rows of a view. `position` is the length that it would have."""

    def __init__(self, name: str, view: ViewWriter) -> None:
        super().__init__(_Nothing(name))
        self._name, self._view = name, view

    def take(self, batch: SampleBatch, begin: int, end: int) -> None:
        """Add samples [begin, end) of a batch."""
        if isinstance(batch, TarSample):
            batch.complete()
        self._view.add(batch, begin, end, self._name)
        self.position += batch.stops[end - 1] - batch.start_of(begin)

    def finish(self, zeros: int | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
