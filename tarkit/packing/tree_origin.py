"""A planned tree of files as an origin of samples, whose entries are made when it is read."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, tee

from tarkit.errors import TarkitError, show
from tarkit.packing.grouping import has_key
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.planned import PlannedBatch, PlannedFile, parse_source
from tarkit.pipeline.entries import HELD, GrowingSample, NewEntries, Piece, sample_batches, source_of
from tarkit.pipeline.run import Run
from tarkit.problems import usual_hint
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import SampleBatch
from tarkit.samples.validate import NameChecks
from tarkit.stores.object_prefetch import Wanted, fetch, prefetch_objects
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions
from tarkit.streams.cold import ColdFiles
from tarkit.streams.location import Location
from tarkit.tables.content import UNSIZED, ContentLoader, EntryContent
from tarkit.tar.block import COLON
from tarkit.tar.header import encode
from tarkit.tar.writer import PADS

OPENED = 64  # files of a sample that are open together

LoadedFile = tuple[PlannedFile, EntryContent | None]
"""A planned file and its content; None for one that is read when it is written."""


@dataclass(eq=False, repr=False)
class TreeOrigin:
    """The files of a plan as the origin of samples.

    Attributes:
        shards: those of its shards that are read.
        mtime: the time of all entries in seconds since 1970; None is that of each file.
        skip_missing: leave out samples with a file that does not exist any more; else it is an error.
        cold: asks the system for files before their turn, those of one shard after the other.
    """

    plan: Plan
    shards: Sequence[PlannedShard]
    mtime: int | None = 0
    skip_missing: bool = False
    cold: ColdFiles = field(default_factory=ColdFiles)
    whole = False
    keys_may_repeat = False

    @property
    def locations(self) -> tuple[Location, ...]:
        """The directory."""
        tree = self.plan.tree
        name = public_name(tree.root) if tree.remote else show(tree.root)
        return (Location("url" if tree.remote else "path", tree.root, name, options=tree.storage),)

    @property
    def storage(self) -> StoreOptions | None:
        """How objects are reached."""
        return self.plan.tree.storage

    def only(self, numbers: Sequence[int]) -> TreeOrigin:
        """Return the files of the shards with these numbers."""
        return replace(self, shards=[self.shards[number] for number in numbers])

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> TreeReader:
        """Begin to read for a run; see `Origin`."""
        return TreeReader(self, run, tmpdir)


class TreeReader(InputReader):
    """Reads the samples of planned shards in one run. Objects are requested ahead.

    Attributes:
        content: bytes of contents so far.
        samples, files: how many were read.
        skipped: a message for each sample that was left out, and for each file without a key that was.
        names: with `skip_missing`, checks the names of the entries of a shard, and counts its samples as readers do.
    """

    def __init__(self, origin: TreeOrigin, run: Run, tmpdir: str | None) -> None:
        super().__init__(origin.locations, run.policy, tmpdir)
        self.content = self.samples = self.files = 0
        self.skipped: list[str] = []
        self.names = NameChecks(limit=None)
        self._origin = origin
        self._name = self.locations[0].name
        self._place = ""  # the shard, named in front of errors
        times, changed = origin.mtime is None, origin.plan.tree.has_changed
        self._loader = ContentLoader(None, (), tmpdir, origin.storage, times, planned=True, has_changed=changed)
        requests = prefetch_objects(_objects(origin), lambda wanted: wanted, partial(fetch, options=origin.storage))
        self._requests = (request for _, request in requests)

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, shard after shard.

        Raises:
            TarkitError: a file is missing, cannot be read, is not regular, or has not the size that was planned.
        """
        if self._origin.skip_missing:
            yield from sample_batches(self._name, self._present_entries())
            return
        for shard in self._origin.shards:
            self._place = shard.name
            batches, others = tee(self._origin.plan.batches(shard))
            files = (zip(rows.names, rows.sizes, rows.sources, strict=True) for rows in others)
            asked = self._origin.cold.ahead(chain.from_iterable(files), self._ask_for)
            for rows in batches:
                yield from self._read(rows, islice(asked, len(rows.names)))

    def _ask_for(self, file: PlannedFile) -> int:
        return self._loader.ask_for(*parse_source(file[2]))

    def _read(self, rows: PlannedBatch, files: Iterator[PlannedFile]) -> Iterator[SampleBatch]:
        """Yield planned samples with their contents. The hot loop of `shard`: it makes arrays, and no samples.

        `files` has the files of these samples.
        `sample_batches` takes 8 % more time for files of 1 kB.
        """
        self.samples += len(rows.keys)
        self.files += len(rows.names)
        small, encode_, pads, mtime = self._loader.small, encode, PADS, self._origin.mtime or 0
        first = start = stop = 0  # the first sample that is not passed on, where it begins, and the end
        pieces: list[Piece] = []  # of that sample and those behind it
        ends: list[int] = []  # where each file ends
        for name, size, source in files:
            data = small(source, size) if COLON not in source else b""
            if data:
                size = len(data)
                header, padding = encode_(name, size, mtime=mtime), pads[size % 512]
                pieces += header, data, padding
                stop += len(header) + size + len(padding)
                self.content += size
            else:
                more, length = self._entry(name, size, source)
                pieces += more
                stop += length
            ends.append(stop)
            if stop - start <= HELD and len(ends) < len(rows.names):
                continue
            end = bisect_right(rows.stops, len(ends))
            if end > first:
                cut = len(pieces) - 3 * (len(ends) - rows.stops[end - 1])
                stops = [ends[file - 1] for file in rows.stops[first:end]]
                held = source_of(self._name, start, stops[-1], pieces[:cut])
                yield SampleBatch(held, start, rows.keys[first:end], stops)
                first, start, pieces = end, stops[-1], pieces[cut:]
            if stop - start > HELD:  # a long sample is passed on unfinished
                key, count = rows.keys[first], rows.stops[first] - len(ends)
                rest = ((key, *self._entry(*file)) for file in islice(files, count))
                sample = GrowingSample(key, self._name, start, pieces, rest)
                yield sample
                sample.complete()
                first, start, stop, pieces = first + 1, sample.stop, sample.stop, []
                ends += [stop] * count

    def _entry(
        self, name: bytes, size: int, source: bytes, content: EntryContent | None = None
    ) -> tuple[list[Piece], int]:
        """Return the pieces of an entry, and their length."""
        data, large, size, modified = content or self._load(source, size)
        mtime = self._origin.mtime
        header, padding = encode(name, size, mtime=modified if mtime is None else mtime), PADS[size % 512]
        self.content += size
        return [header, large or data, padding], len(header) + size + len(padding)

    def _load(self, source: bytes, size: int) -> EntryContent:
        kind, value = parse_source(source)
        try:
            content = self._loader(kind, value, size, next(self._requests) if kind == "url" else None)
        except TarkitError as error:
            # the cause does not leave a process, and the hint follows from it
            raise TarkitError(f"{self._place}: {error}", error.hint or usual_hint(error)) from error.__cause__
        if content.large is not None:
            content.large.place = self._place
        return content

    def _look(self, path: bytes) -> None:
        try:
            os.stat(path)
        except OSError as error:
            raise TarkitError(f"{self._place}: {show(path)}: {error.strerror}") from error

    def _present_entries(self) -> Iterator[NewEntries]:
        """Yield the entries of samples of which no file is missing: what is open, or read, cannot disappear any more.

        Files without a key stay: where their sample is left out, they go with the next one, or with the last.
        """
        for shard in self._origin.shards:
            self._place, self.names = shard.name, NameChecks(limit=None)
            last: bytes | None = None
            loose: list[LoadedFile] = []
            samples = chain.from_iterable(batch.samples() for batch in self._origin.plan.batches(shard))
            for key, files, _ in self._origin.cold.ahead(samples, lambda sample: sum(map(self._ask_for, sample[1]))):
                there, lost = self._present([*loose, *((file, None) for file in files)])
                if lost:
                    self.skipped.append(f"{lost}; its sample is left out")
                    loose = [(file, content) for file, content in there if not has_key(file[0])]
                    continue
                self.samples += 1
                last, loose = key, []
                yield from self._new_entries(key, there)
            there, _ = self._present(loose)
            if last is not None:
                yield from self._new_entries(last, there)
            else:
                self.skipped += [
                    f"{shard.name}: no sample is left, so {show(file[0])} is left out" for file, _ in there
                ]

    def _present(self, files: Sequence[LoadedFile]) -> tuple[list[LoadedFile], str]:
        """Return the files that exist, with their contents, and a message about the first missing one with a key.

        Of a sample with more files than OPENED those of the file system are read later.
        """
        there: list[LoadedFile] = []
        lost = ""
        for file, content in files:
            name, size, source = file
            kind, value = parse_source(source)
            try:
                if kind == "path" and len(files) > OPENED:
                    self._look(value)
                elif kind == "path" or content is None:
                    content = self._load(source, size)
                there.append((file, content))
            except TarkitError as error:
                if not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
                    raise
                if not has_key(name):
                    self.skipped.append(f"{error}; it is left out")
                lost = lost or (str(error) if has_key(name) else "")
        return there, lost

    def _new_entries(self, key: bytes, files: Sequence[LoadedFile]) -> Iterator[NewEntries]:
        self.files += len(files)
        self.names.extend([file[0] for file, _ in files])
        for (name, size, source), content in files:
            yield key, *self._entry(name, size, source, content)


def _objects(origin: TreeOrigin) -> Iterator[Wanted]:
    """Yield the URL and the size of each source that is an object."""
    for batch in chain.from_iterable(map(origin.plan.batches, origin.shards)):
        for source, size in zip(batch.sources, batch.sizes, strict=True):
            kind, value = parse_source(source)
            if kind == "url":
                yield os.fsdecode(value), None if size == UNSIZED else size
