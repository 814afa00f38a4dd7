"""Access to samples by number and by key, once all headers are read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from operator import index as as_index
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn, overload

from tarkit.errors import MissingKey, TarkitError, Unsupported, show
from tarkit.indexing import lookup
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import IndexRow
from tarkit.pipeline.origins import is_object
from tarkit.pipeline.ranges import READ, TOGETHER, gathered
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import WHOLE, DecodedSample, Sample, wrap_samples
from tarkit.problems import Policy
from tarkit.samples.dataset import object_of, open_source
from tarkit.samples.groups import plain_head
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import SampleBatch, TarSample, key_of
from tarkit.sizes import plural
from tarkit.stores.object_prefetch import WHOLE as WHOLE_OBJECT
from tarkit.stores.object_prefetch import prefetch_objects
from tarkit.streams.cold import ColdFiles, ask_for_range
from tarkit.streams.location import Location, is_view
from tarkit.streams.source import FileSource, WindowSource
from tarkit.tar import block, pax
from tarkit.tar.reader import Entry, TarReader

if TYPE_CHECKING:
    from tarkit.pipeline.view_index import ViewIndex
    from tarkit.streams.prefetch import Part

LEAST = 4  # samples that are read together
HEADER = 1 << 12  # bytes that are fetched of an entry before a sample, whose headers are compared
END = block.RECORD + 2 * block.BLOCK  # bytes of the longest end of an archive, as most programs write it
RENEW = "tarkit index makes a new index"


class IndexedDataset(Sequence[Sample]):
    """Samples by number and by key: `len(data)`, `data[3]`, `data[-1]`, `data["a/17"]`, `"a/17" in data`.

    `data[3:9]`, `data[[7, 3]]` and `data[["a/17", "a/3"]]` are lists, whose samples are fetched together.

    To make one reads the headers of all shards, which have to be plain archives in regular files, or objects of stores
    that send parts; of an object an index beside it is read instead if it matches the shard (see
    `tarkit.indexing.lookup`). Of a view the rows are read instead, and a sample is there as often as it has rows. It
    takes about 150 bytes of memory a sample. Looking a sample up reads its bytes alone.

    It can be pickled, for workers in other processes: the shards are opened again, and must not have changed. To decode
    the samples is a matter of the dataset: `tarkit.open(..., decode=True).indexed()`.
    """

    def __init__(
        self, locations: Sequence[Location], run: Run, wrap: Callable[[TarSample, bytes | None], Sample] = Sample
    ) -> None:
        """Read the headers. `tarkit.Dataset.indexed` is the way to call it. `wrap` makes a sample of one and its bytes.

        Raises:
            Unsupported: a shard that is compressed, or a stream.
            Problem: a fault that the policy of `run` does not let pass.
        """
        self._wrap = wrap
        self._sources: list[_OpenedShard | ViewIndex] = []
        self._shards = array("L")
        self._starts = array("Q")
        self._stops = array("Q")
        self._numbers: dict[bytes, int] = {}
        self._by_index: dict[int, tuple[int, array[int]]] = {}
        """Of the shards whose headers were not read, their first sample, and where the last entry of each begins."""
        self._left_out: set[int] = set()  # shards that are left out
        self._confirmed = -1  # the sample that was read last
        self._cold = ColdFiles()
        places = {location.text: location for location in locations}
        requests = prefetch_objects(
            locations,
            lambda location: None if object_of(location) is None else (location.text, WHOLE_OBJECT),
            lambda url, size: _look(places[url]),
        )
        for location, request in requests:
            try:
                if is_view(location):
                    self._add_view(location, run)
                    continue
                shard, covered, lines = _look(location) if request is None else request.result()
            except (FileNotFoundError, PermissionError) as error:
                run.policy.leave_out(location.name, error, alone=len(locations) == 1)
                self._left_out.add(len(self._sources))
                self._sources.append(_OpenedShard(location))
                continue
            source = shard.source()
            for index, reason in lines:
                (run.note if isinstance(reason, lookup.Unreadable) else run.warn)(lookup.not_used(index, reason))
            if covered is not None:
                self._add_by_index(source, *covered, run)
            else:
                for sample in SampleReader(source, run.policy, moves=False):
                    if not sample.plain:
                        _refuse_globals(sample)
                    if sample.key is not None:
                        self._add(sample.key, sample.start, sample.stop)
            source.close()
            self._sources.append(shard)

    def _add(self, key: bytes, start: int, stop: int) -> None:
        """Add a sample of the shard that is added next."""
        self._numbers.setdefault(key, len(self._starts))
        self._shards.append(len(self._sources))
        self._starts.append(start)
        self._stops.append(stop)

    def _add_view(self, location: Location, run: Run) -> None:
        """Add the samples of a view; each starts at the number of its row, and ends as many bytes later as it has."""
        from tarkit.pipeline.view_index import ViewIndex

        skips = {"missing-shard"} if run.policy.skips_missing else set()
        view = ViewIndex(location, run.policy.allowed | skips)
        for name, error in view.missing.items():
            run.policy.leave_out(name, error)
        for row, (key, size) in enumerate(zip(view.keys, view.sizes, strict=True)):
            self._add(key, row, row + size)
        self._sources.append(view)

    def _add_by_index(self, source: WindowSource, index: IndexFile, rows: Sequence[IndexRow], run: Run) -> None:
        """Add the samples of an object by an index beside it."""
        run.note(f"{source.name}: {plural(len(rows), 'sample')} by {index.name}")
        starts = array("Q", [row.last_header for row in rows])
        self._by_index[len(self._sources)] = len(self), starts
        start = 0
        for key, fields in rows:
            self._add(key, start, fields[-1].stop)
            start = fields[-1].stop

    def __len__(self) -> int:
        return len(self._starts)

    @cached_property
    def keys_by_number(self) -> list[bytes]:
        """The key of each sample; empty for one whose key another has before it."""
        keys = [b""] * len(self)
        for key, number in self._numbers.items():
            keys[number] = key
        return keys

    @property
    def sources(self) -> dict[int, WindowSource]:
        """The shards and views by their numbers, without those left out; those that were closed are opened again."""
        return {number: shard.source() for number, shard in enumerate(self._sources) if number not in self._left_out}

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.encode("utf-8", "surrogateescape") in self._numbers

    @overload
    def __getitem__(self, place: int | str) -> Sample: ...
    @overload
    def __getitem__(self, place: slice | list[int] | list[str]) -> list[Sample]: ...
    def __getitem__(self, place: int | str | slice | list[int] | list[str]) -> Sample | list[Sample]:
        """Return the sample of a number or a key, or those of a slice or a list; of two with one key it is the first.

        Several samples of objects of stores are fetched together, many requests at a time.

        Raises:
            IndexError: there are not so many samples.
            KeyError: no sample has this key. It is a TarkitError too.
        """
        if isinstance(place, slice):
            return list(self.samples(range(*place.indices(len(self)))))
        if isinstance(place, list):
            return list(self.samples(list(map(self._number, place))))
        return self._sample(self._number(place))

    def __getitems__(self, places: list[int]) -> list[Sample]:
        """Return the samples of numbers: the DataLoader of PyTorch asks for a batch like this."""
        return list(self.samples(list(map(self._number, places))))

    def __iter__(self) -> Iterator[Sample]:
        return self.samples(range(len(self)))

    def samples(self, numbers: Sequence[int]) -> Iterator[Sample]:
        """Yield the samples of numbers, in this order; those of objects of stores are fetched before their turn."""
        for found in self._found(numbers):
            if isinstance(found, Sample):
                yield found
            else:
                yield from wrap_samples(iter(found), self._wrap)

    def batches(self, numbers: Sequence[int]) -> Iterator[SampleBatch]:
        """Yield the samples of numbers as `samples` does, before they are made for Python."""
        return (found._sample if isinstance(found, Sample) else found for found in self._found(numbers))

    def _found(self, numbers: Sequence[int]) -> Iterator[Sample | SampleBatch]:
        """Yield samples one by one, or small ones of files as batches, which are read together."""
        if len(numbers) < LEAST:
            yield from map(self._sample, numbers)
            return
        from tarkit.streams.prefetch import Groups, fetch_ahead

        if any(shard.remote for number, shard in enumerate(self._sources) if number not in self._left_out):
            groups = Groups()(numbers, self._size)
            yield from (self._sample(number) for group in fetch_ahead(groups, self._ranges_of) for number in group)
            return
        files: dict[WindowSource, FileSource] = {}
        for group in self._cold.ahead(Groups(TOGETHER, READ)(numbers, self._size), self._ask_for, 1):
            for large, alike in groupby(group, lambda number: self._size(number) > READ):
                some = list(alike)
                batch = None if large or len(some) < LEAST else self._together(some, files)
                if batch is not None:
                    yield batch
                yield from map(self._sample, some if batch is None else some[batch.count :])
        for source in files:
            source.unchanged()  # since its last samples were read

    def _size(self, number: int) -> int:
        return self._stops[number] - self._starts[number]

    def _ask_for(self, numbers: Iterable[int]) -> int:
        """Ask the system for samples of files before their turn."""
        return sum(
            ask_for_range(shard.source(), self._starts[number], self._stops[number])
            for number in numbers
            if isinstance(shard := self._sources[self._shards[number]], _OpenedShard)
        )

    def _together(self, numbers: Sequence[int], files: dict[WindowSource, FileSource]) -> SampleBatch | None:
        """Return samples, from the first on, that are plain; None if the first is not, or one is not to be read so.

        `files` has the archives with windows of their own, since other threads may look samples up too.
        """
        sizes, keys = list(map(self._size, numbers)), self.keys_by_number
        places = [self._sources[self._shards[number]].place(self._starts[number], keys[number]) for number in numbers]
        if not all(map(itemgetter(0), places)):
            return None
        own_keys, sources, starts, rows = zip(*places, strict=True)
        used = set(sources)
        for source in used - files.keys():
            if not isinstance(source, FileSource):
                return None
            files[source] = source.another()
        for source in used:
            source.unchanged()
        batch = plain_head(gathered(own_keys, [files[source] for source in sources], starts, sizes))
        for source in used:
            source.unchanged()
        if batch is not None and any(row is not None for row in rows):
            batch.rows = rows[: batch.count]
        return batch

    def _ranges_of(self, numbers: Iterable[int]) -> Iterator[Part]:
        """Yield the ranges that looking samples up reads, of objects of stores."""
        for number in numbers:
            shard = self._sources[self._shards[number]]
            if not isinstance(shard, _OpenedShard):
                yield from shard.parts(self._starts[number])
                continue
            source = shard.source()
            before, begin, stop = self._range(number, self._entry_before(number))
            if is_object(source):
                if before < begin:
                    yield source, before, min(before + HEADER, source.size or 0)
                if stop - begin <= WHOLE:
                    yield source, begin, min(stop, source.size or 0)

    def _number(self, place: int | str) -> int:
        """Return the number of a sample by its number or its key."""
        if isinstance(place, str):
            number = self._numbers.get(place.encode("utf-8", "surrogateescape"))
            if number is None:
                raise self._missing(place)
            return number
        number = as_index(place)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no sample {number}: the dataset has {len(self)}")
        return number % len(self)

    def _range(self, number: int, before: int) -> tuple[int, int, int]:
        """Return where the entry before a sample begins, and the bytes that are read together.

        These are the sample with the header behind it, or the end of the archive; and a short entry before it.
        """
        start = self._starts[number]
        last = number + 1 == len(self) or self._shards[number + 1] != self._shards[number]
        stop = self._stops[number] + (END if last else block.BLOCK)
        return before, start if start - before > lookup.SHORT else before, stop

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError: methods of a dataset come before `indexed`, and of these `decode` alone."""
            if name == "decode":
                message = "decode comes before indexed: tarkit.open(..., decode=True).indexed()"
            else:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)

    def keys(self) -> list[str]:
        """The keys, in the order of the samples; of a key that comes back, once."""
        return [key.decode("utf-8", "surrogateescape") for key in self._numbers]

    def _sample(self, number: int) -> Sample:
        start, stop, opened = self._starts[number], self._stops[number], self._sources[self._shards[number]]
        if not isinstance(opened, _OpenedShard):
            return self._wrap(*opened.sample(start))
        shard = opened.source()
        shard.unchanged()
        source, data = shard.another(), None  # threads may look up too
        by_index = self._shards[number] in self._by_index
        before, begin, end = self._range(number, self._entry_before(number))
        other = _entry_at(source, before) if before < begin else None
        if stop - start <= WHOLE:
            data = bytes(source.peek(begin, end - begin)[start - begin : stop - begin])
        if begin < start:
            other = _entry_at(source, before)
        sample = next(iter(SampleReader(source, Policy(allow=["all"]), moves=False, pos=start)), None)
        good = sample is not None and (sample.start, sample.stop) == (start, stop)
        if sample is None or not good or (before < start and not _ends(other, start, sample.key)):
            words = "does not match the index beside it" if by_index else "has changed since its headers were read"
            raise Unsupported(f"{source.name}: the archive {words}", RENEW if by_index else None)
        if by_index and not self._lists(sample.key, number):
            message = (
                f"{source.name}: the index beside it does not match: it has another key for {show(sample.key or b'')}"
            )
            raise Unsupported(message, RENEW)
        self._confirmed = number
        source.close()
        shard.unchanged()
        return self._wrap(sample, data)

    def _entry_before(self, number: int) -> int:
        """Return where the entry before a sample begins, which is to be compared; where the sample begins for none."""
        first, starts = self._by_index.get(self._shards[number], (number, None))
        if starts is None or number == first or self._confirmed == number - 1:
            return self._starts[number]
        return starts[number - first - 1]

    def _missing(self, key: str) -> MissingKey:
        """Return the error for a key that no sample has; it may be that of an index that does not match its shard."""
        count = len(self._by_index)
        if not count:
            return MissingKey(f"no sample {show(key)}")
        looked = f"{plural(len(self._sources), 'shard')} {'was' if count == 1 else 'were'} looked up"
        message = f"no sample {show(key)}: {count} of {looked} in an index beside {'it' if count == 1 else 'them'}"
        return MissingKey(message, "does it match its shard? tarkit index --verify compares them")

    def _lists(self, key: bytes | None, number: int) -> bool:
        """Return whether the sample of a number has this key; an index lists each key of its shard once."""
        first = -1 if key is None else self._numbers.get(key, -1)
        return first == number or (first >= 0 and self._shards[first] != self._shards[number])


class DecodedIndex(IndexedDataset):
    """Samples by number and by key, whose values are decoded; see `IndexedDataset`."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __getitem__(self, place: int | str) -> DecodedSample: ...
        @overload
        def __getitem__(self, place: slice | list[int] | list[str]) -> list[DecodedSample]: ...
        def __getitem__(
            self, place: int | str | slice | list[int] | list[str]
        ) -> DecodedSample | list[DecodedSample]: ...
        def __iter__(self) -> Iterator[DecodedSample]: ...


class _OpenedShard:
    """A shard in which samples are looked up. A pickled one is opened again, and must be as it was."""

    def __init__(self, location: Location, state: tuple[object, ...] | None = None) -> None:
        self._location = location
        self._state = state  # its size and version, once it was opened
        self._source: WindowSource | None = None

    def source(self) -> WindowSource:
        """Return the shard; open it if it is not. Raises Unsupported for a stream, and for one that has changed."""
        if self._source is not None:
            return self._source
        location = self._location
        source = open_source(location) if location.kind in ("path", "stdin", "url") else None
        if not isinstance(source, WindowSource):
            if source is not None:
                source.close()
            message = f"{location.name}: samples are looked up in plain archives that can be read in any order"
            raise Unsupported(message, "make a plain file: tarkit cat SHARD -o PLAIN.tar")
        state = (source.size, source.version)
        if self._state not in (None, state):
            raise Unsupported(f"{location.name}: the archive has changed since its headers were read", "open it again")
        self._state, self._source = state, source
        return source

    def place(self, start: int, key: bytes) -> tuple[bytes, WindowSource, int, None]:
        """Return the key of a sample, empty for one that only its number tells, its archive, and where it begins."""
        return key, self.source(), start, None

    @property
    def remote(self) -> bool:
        """Whether it is an object of a store."""
        return self.source().url is not None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where it is, and its version. Raises TypeError for stdin."""
        if self._location.kind == "stdin":
            raise TypeError("cannot pickle a dataset of stdin: name a file or a URL")
        return _OpenedShard, (self._location, self._state)


Looked = tuple[_OpenedShard, tuple[IndexFile, list[IndexRow]] | None, list[tuple[IndexFile, lookup.Stale]]]
"""A shard, the index of it and its rows if one matches, and those that do not, with the reasons."""


def _look(location: Location) -> Looked:
    """Open a shard; of an object, read an index beside it, in any thread."""
    shard, lines = _OpenedShard(location), list[tuple[IndexFile, lookup.Stale]]()
    source = shard.source()
    covered = None
    if source.url is not None:
        covered = lookup.covered(source, lambda index, reason: lines.append((index, reason)))
    return shard, covered, lines


def _entry_at(source: WindowSource, start: int) -> Entry | None:
    try:
        return next(iter(TarReader(source, start)), None)
    except TarkitError:
        return None


def _ends(entry: Entry | None, start: int, key: bytes | None) -> bool:
    """Return whether an entry ends where a sample with this key begins, and is no part of it."""
    return entry is not None and entry.stop == start and key_of(entry) != key


def _refuse_globals(sample: TarSample) -> None:
    """Raise Unsupported for a global PAX header that changes the entries after it: a lookup does not see it."""
    for entry in sample.entries:
        if entry.type == block.PAX_GLOBAL:
            payload = sample.source.read(entry.data, entry.data + entry.size)
            if pax.Overrides.of(pax.parse_decisive(payload)).any:
                message = (
                    f"{sample.source.name}: at {entry.start}: a global PAX header changes the entries that follow it"
                )
                raise Unsupported(message, "iterate over the dataset")
