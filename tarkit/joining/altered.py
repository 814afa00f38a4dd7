"""Samples with other fields, which are put together when their entries or their bytes are asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat

from tarkit.samples.sample import SampleBatch, TarSample
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
        arguments: tuple[object, ...],
    ) -> None:
        """Make a sample of `base`; see `TarSample`.

        Args:
            base: the sample.
            fields: the names of its fields.
            changes: the contents.
            make: puts the sample together, of `base`, the contents and the `arguments`.
            arguments: see `make`.
        """
        self.base, self._fields, self.changes = base, fields, changes
        self._make, self._arguments = make, arguments
        self._made: TarSample | None = None
        self.key = base.key
        self.more = self.row = self.data = None
        self.plain = True

    @property
    def extent(self) -> int:
        """The most bytes that are read of archives for the contents of the fields; others are in memory."""
        return self.base.extent

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
            self._made = self._make(self.base, self.changes, *self._arguments)
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


class AlteredBatch(SampleBatch):
    """Plain samples with other contents of the same fields: `AlteredSample` for many.

    They come one by one, or before another join. Each has a source of its own, and so the batch has no `source`.
    """

    __slots__ = ("_arguments", "_base", "_columns", "_fields", "_make", "_names", "left_out")

    _base: SampleBatch
    _arguments: Sequence[tuple[object, ...]]

    def __init__(
        self,
        base: SampleBatch,
        fields: tuple[str, ...],
        names: Sequence[str],
        columns: Sequence[Sequence[bytes]],
        make: Callable[..., TarSample],
        arguments: Sequence[tuple[object, ...]],
        left_out: tuple[str, Collection[str]],
    ) -> None:
        """Make a batch.

        Args:
            base: the samples, without rows.
            fields: the names of the fields that all of them have.
            names: those of the fields with other contents.
            columns: of each of these the contents, for each sample.
            make: see `AlteredSample`.
            arguments: of each sample those of `make`.
            left_out: see `TarSample`.
        """
        self.keys, self.key, self.contents = base.keys, base.key, ()
        self.plain, self.rows, self.entries_held = True, None, None
        self._base, self._fields, self._names, self._columns = base, fields, names, columns
        self._make, self._arguments, self.left_out = make, arguments, left_out
        if isinstance(base, AlteredBatch):  # one sample is made in place of two
            self._base, self._fields = base._base, base._fields
            self._names, self._columns = [*base._names, *names], [*base._columns, *columns]
            self._make = partial(_twice, base._make, make)
            self._arguments = list(zip(base._arguments, arguments, strict=True))

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of all samples."""
        return tuple(dict.fromkeys((*self._fields, *self._names)))

    def part(self, begin: int, stop: int) -> AlteredBatch:
        """Return samples [begin, stop), at least one."""
        if begin == 0 and stop == self.count:
            return self
        some = slice(begin, stop)
        columns = [column[some] for column in self._columns]
        base, arguments = self._base.part(begin, stop), self._arguments[some]
        part = AlteredBatch(base, self._fields, self._names, columns, self._make, arguments, self.left_out)
        part.rows = None if self.rows is None else self.rows[some]
        return part

    def _singly(self) -> Iterator[TarSample]:
        fields, names, make = self._fields, self._names, self._make
        contents: Iterable[tuple[bytes, ...]] = zip(*self._columns, strict=True) if names else repeat(())
        for sample, values, arguments in zip(self._base, contents, self._arguments, strict=False):
            altered = AlteredSample(sample, fields, dict(zip(names, values, strict=True)), make, arguments)
            altered.left_out = self.left_out
            yield altered


def _twice(
    make_first: Callable[..., TarSample],
    make: Callable[..., TarSample],
    sample: TarSample,
    changes: Mapping[str, bytes],
    first: tuple[object, ...],
    arguments: tuple[object, ...],
) -> TarSample:
    """Return a sample that was altered, and then once more."""
    return make(make_first(sample, changes, *first), changes, *arguments)
