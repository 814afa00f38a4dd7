"""The samples of a view by the numbers of its rows, and the division of a view into parts."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import TarkitError, Unsupported
from tarkit.pipeline.sample import WHOLE
from tarkit.problems import Policy
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import TarSample
from tarkit.streams.location import Location, RowsOfView, is_view
from tarkit.streams.source import WindowSource
from tarkit.views.rows import StoredRow

if TYPE_CHECKING:
    from tarkit.pipeline.run import Run
    from tarkit.pipeline.view_rows import MoreRange, RowGroup, Rows
    from tarkit.streams.remote import RemoteSource


PARTS = 64
"""Parts of a view at most, which several processes read, or a cluster."""

LEAST = 256  # rows of a part

MOST = 1 << 62  # bytes of a sample


def view_parts(locations: Sequence[Location], run: Run, processes: int) -> list[list[Location]]:
    """Return inputs, each with the parts that are read apart: of views rows that follow each other.

    A view is opened in another process, since threads of its library would keep this one from being copied. One that
    cannot be opened, or names an archive that is not there, has one part.
    """
    views = [location for location in locations if is_view(location)] if processes > 1 or run.executor else []
    counts = dict(zip(views, map(next, run.in_order(_count_rows, views, processes, run.tmpdir)), strict=True))
    return [_parts(location, counts.get(location)) for location in locations]


def parts_here(locations: Iterable[Location]) -> Iterator[Location]:
    """Yield the parts of all inputs, as `view_parts` does, whose rows this process counts."""
    for location in locations:
        yield from _parts(location, next(_count_rows(location)) if is_view(location) else None)


def join_parts(locations: Iterable[Location]) -> list[Location]:
    """Return inputs, with neighbouring parts of a view as one part."""
    joined: list[Location] = []
    for location in locations:
        before, rows = joined[-1] if joined else location, location.rows
        if rows and before.rows and before == location._replace(rows=before.rows) and before.rows.stop == rows.start:
            joined[-1] = location._replace(rows=rows._replace(start=before.rows.start))
        else:
            joined.append(location)
    return joined


def _count_rows(location: Location) -> Iterator[RowsOfView | None]:
    from tarkit.pipeline.view_reader import ViewReader

    try:
        reader = ViewReader(location, InputReader((location,), Policy(), moves=False))
        yield reader.all_rows
        reader.source.close()
    except (TarkitError, OSError):
        yield None  # reported where it is read


def _parts(location: Location, rows: RowsOfView | None) -> list[Location]:
    if rows is None:
        return [location]
    size = max(-(-rows.stop // PARTS), LEAST)
    starts = range(0, rows.stop, size)
    parts = (rows._replace(start=start, stop=min(start + size, rows.stop)) for start in starts)
    return [location._replace(rows=part) for part in parts] or [location]


class _Group(NamedTuple):
    """A group of values, and the numbers of its first row in the view and in the group."""

    row: int
    group: RowGroup
    first: int


class ViewIndex:
    """The rows of a view, in about 60 bytes of memory each, and their samples, each checked as it is read.

    It can be pickled: the view is opened again in another process, when a row is asked for, and must be as it was, and
    so must archives of which samples were read.

    Attributes:
        keys: the keys of the rows.
        sizes: the bytes of the samples; 0 where a row cannot be right.
        missing: archives that are left out, with the errors.

    Raises:
        TarkitError: it is no view, has changed, or names a file that does not exist.
    """

    def __init__(
        self,
        location: Location,
        allow: Iterable[str] = (),
        state: tuple[object, ...] | None = None,
        versions: Mapping[str, tuple[object, ...]] = MappingProxyType({}),
    ) -> None:
        """Read the rows; `allow` has the problems that pass."""
        from tarkit.pipeline.view_reader import ViewReader

        self._location, self._allow = location, tuple(allow)
        self._reader = ViewReader(location, InputReader((location,), Policy(self._allow), moves=False))
        self._reader.versions.update(versions)
        self._state = self.source().size, self.source().version
        if state not in (None, self._state):
            raise Unsupported(f"{location.name}: the view has changed since it was read", "open it again")
        self.missing = self._reader.missing
        self._lock = Lock()
        self._shards, self._numbers = list(self._reader.shards), array("i")
        self.keys: list[bytes] = []
        self._starts, self._stops, self.sizes = array("q"), array("q"), array("q")
        self._more: dict[int, list[MoreRange]] = {}
        self._fields: dict[int, str] = {}
        self._groups: list[_Group] = []
        number_of = {shard: number for number, shard in enumerate(self._shards)}
        for rows in self._reader.rows():
            first = len(self.keys)
            self._groups.append(_Group(first, rows.group, rows.first))
            self.keys += rows.keys
            self._numbers.extend(map(number_of.__getitem__, rows.shards))
            self._starts.extend(rows.starts)
            self._stops.extend(rows.stops)
            sizes = map(rows.size, range(len(rows.keys)))
            self.sizes.extend(size if 0 <= size < MOST else 0 for size in sizes)  # others are wrong
            self._more |= {first + at: more for at, more in enumerate(rows.more or ()) if more}
            self._fields |= {first + at: text for at, text in enumerate(rows.fields or ()) if text is not None}

    def source(self) -> WindowSource:
        """Return the file of the view."""
        return self._reader.source

    @property
    def remote(self) -> bool:
        """Whether archives are objects of stores."""
        return any(location.kind == "url" for location in self._reader.shards.values())

    def _group_of(self, number: int) -> tuple[RowGroup, int]:
        """Return the values of a row, and its number among them."""
        group = self._groups[bisect_right(self._groups, number, key=attrgetter("row")) - 1]
        return group.group, group.first + number - group.row

    def _rows(self, number: int) -> Rows:
        """Return one row."""
        from tarkit.pipeline.view_rows import Rows

        more, fields = self._more.get(number), self._fields.get(number)
        return Rows(
            *self._group_of(number),
            [self.keys[number]],
            [self._shards[self._numbers[number]]],
            [self._starts[number]],
            [self._stops[number]],
            [more] if more else None,
            None if fields is None else [fields],
        )

    def parts(self, number: int) -> Iterator[tuple[RemoteSource, int, int]]:
        """Yield the ranges of objects of stores that `sample` reads."""
        return self._reader.parts_of(self._rows(number))

    def place(self, number: int, key: bytes) -> tuple[bytes, WindowSource, int, StoredRow | None]:
        """Return the key of a row, empty for one of several ranges or chosen fields, its archive, start, and values."""
        from tarkit.pipeline.view_reader import can_be

        start, stop = self._starts[number], self._stops[number]
        with self._lock:
            source = self._reader.archive(self._shards[self._numbers[number]])
        odd = number in self._more or number in self._fields or not can_be(source, start, stop)
        group, at = self._group_of(number)
        return b"" if odd else self.keys[number], source, start, StoredRow(group, at) if group.columns else None

    def sample(self, number: int) -> tuple[TarSample, bytes | None]:
        """Return the sample of a row, and its bytes unless it is large. Any thread may call this.

        Raises:
            Problem: `changed-source`: the archive is not as the view says.
            TarkitError: it was written to since it was opened.
        """
        with self._lock:
            rows = self._rows(number)
            samples = [sample for batch in self._reader.read(rows, number) for sample in batch]
            if not samples:  # the policy leaves it out, and a number has a sample
                raise Unsupported(f"row {number + 1} of {self._reader.name}: the archive is not as the view says")
            sample = samples[0]
            sample.entries  # noqa: B018  # read here
            small = sample.stop - sample.start <= WHOLE
            data = sample.source.read(sample.start, sample.stop) if small else None
            self._reader.archives_unchanged(rows)
            return sample, data

    def __reduce__(self) -> tuple[object, ...]:
        return _PickledView, (self._location, self._allow, self._state, self._reader.versions)


class _PickledView:
    """A `ViewIndex` from another process, which is opened when it is used."""

    def __init__(self, *arguments: Any) -> None:
        """Note the arguments of `ViewIndex`."""
        self._arguments = arguments
        self._view: ViewIndex | None = None
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._view is None:
                self._view = ViewIndex(*self._arguments)
        return getattr(self._view, name)

    def __reduce__(self) -> tuple[object, ...]:
        return (_PickledView, self._arguments) if self._view is None else self._view.__reduce__()
