"""Samples with other fields, which are put together when their entries or their bytes are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tarkit.samples.sample import TarSample
from tarkit.streams.source import Source
from tarkit.tar.reader import Entry, Raw


class AlteredSample(TarSample):
    """A plain sample, of a source that stays, with other contents of fields: `changes` has these by name, in order.

    Who needs contents alone, such as a loader, takes `plain_contents`, which does not put the sample together: that is
    five times as fast.
    """

    __slots__ = ("_arguments", "_fields", "_made", "_make", "base", "changes")

    base: TarSample
    changes: Mapping[str, bytes]

    def __init__(
        self,
        base: TarSample,
        fields: tuple[str, ...],
        changes: Mapping[str, bytes],
        make: Callable[..., TarSample],
        *arguments: object,
    ) -> None:
        """Make a sample of `base`; see `TarSample`.

        Args:
            base: the sample.
            fields: the names of its fields.
            changes: the contents.
            make: puts the sample together, of `base` and the `arguments`.
            arguments: see `make`.
        """
        self.base, self._fields, self.changes = base, fields, changes
        self._make, self._arguments = make, arguments
        self._made: TarSample | None = None
        self.key = base.key
        self.more = self.row = self._data = None
        self.plain = True

    @property
    def extent(self) -> int:
        """The most bytes that the contents of the fields have together."""
        return self.base.extent + sum(map(len, self.changes.values()))

    def plain_fields(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple({**dict.fromkeys(self._fields), **self.changes})

    def plain_contents(self, data: bytes | None = None) -> dict[str, bytes]:
        """Return the contents of the fields by their names, in order; none if a file is sparse."""
        contents = self.base.plain_contents()
        if contents:
            contents.update(self.changes)
        return contents

    @property
    def _whole(self) -> TarSample:
        if self._made is None:
            self._made = self._make(self.base, *self._arguments)
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
