"""Samples with other fields, which are put together when their entries or their bytes are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tarkit.samples.sample import TarSample
from tarkit.streams.source import Source
from tarkit.tar.reader import Entry, Raw


class AlteredSample(TarSample):
    """A plain sample, of a source that stays, with other contents of fields.

    Who needs contents alone, such as a loader, takes `plain_contents`, which does not put the sample together: that is
    five times as fast.
    """

    __slots__ = ("_made", "_make", "base", "changes", "extent")

    extent: int
    base: TarSample
    changes: Mapping[str, bytes]

    def __init__(self, base: TarSample, changes: Mapping[str, bytes], make: Callable[[], TarSample]) -> None:
        """Make a sample of `base`; see `TarSample`. `make` puts it together."""
        self.base, self.changes, self._make = base, changes, make
        self._made: TarSample | None = None
        self.extent = base.extent
        for content in changes.values():
            self.extent += len(content)
        self.key = base.key
        self.more = self.row = self._data = None
        self.plain = True

    @property
    def _whole(self) -> TarSample:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def source(self) -> Source:  # type: ignore[override]
        """A source that is put together."""
        return self._whole.source

    @property
    def start(self) -> int:  # type: ignore[override]
        """Where the sample began before, and begins in the source."""
        return self.base.start

    @property
    def stop(self) -> int:  # type: ignore[override]
        """The end in the source."""
        return self._whole.stop

    @property
    def entries(self) -> list[Entry]:
        """The entries, in order."""
        return self._whole.entries

    @entries.setter
    def entries(self, entries: list[Entry]) -> None:
        self._whole.entries = entries

    @property
    def raw(self) -> Sequence[Entry | Raw]:
        """The entries as they were read."""
        return self._whole.raw
