"""Read the samples of a view, each checked against the headers in its archive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, groupby, pairwise, repeat
from operator import add, or_, sub
from typing import TYPE_CHECKING, Any

from tarkit.errors import MissingFile, Problem, TarkitError, Unsupported, show
from tarkit.pipeline.origins import is_object
from tarkit.pipeline.places import SHORT, SHORT_LIMIT, Place
from tarkit.pipeline.ranges import BEHIND, READ, RangeList
from tarkit.pipeline.view_rows import MoreRange, RowGroup, Rows, ViewFile, locate_archive, view_file
from tarkit.samples.checks import EntryChecks, describe_link
from tarkit.samples.dataset import SMALL, SPARSE, InputReader, open_source
from tarkit.samples.fields import parse_fields, with_names
from tarkit.samples.groups import plain_head
from tarkit.samples.sample import SampleBatch, TarSample, is_safe, key_of, split_name
from tarkit.stores.connect import cache_of
from tarkit.stores.object_prefetch import prefetch_objects
from tarkit.streams.location import Location, RowsOfView
from tarkit.streams.ranges import HeldRange, JoinedSource
from tarkit.streams.source import Source, WindowSource
from tarkit.tables.parquet import held, load_compute, load_pyarrow, parquet_errors
from tarkit.tables.stored_columns import StoredColumns
from tarkit.tar import block
from tarkit.tar.reader import Entry
from tarkit.views.batch import RowBatch, RowColumns
from tarkit.views.names import FIELDS, KEY, MORE, SHARD, START, STOP
from tarkit.views.rows import StoredRow

if TYPE_CHECKING:
    from tarkit.streams.remote import RemoteSource

LEAST = 5  # samples that are checked together
FEW = 4  # rows of a view of objects for each key that is listed: of fewer rows, all are read
_NO_VALUES = RowGroup(StoredColumns(None), 0, frozenset(), "")
HEADERS = 1 << 12  # bytes that are fetched of a large sample whose contents are not needed


class ViewReader:
    """The samples of a view, in the order of its rows.

    Attributes:
        name: the view, for messages.
        shards: the archives, by the names that they have in the view.
        dropped: how many samples the policy left out in the last pass.
        missing: archives that are left out, with the errors.
        versions: the sizes and versions of archives that were opened; of one that is opened later it must be the same.

    Raises:
        TarkitError: it is no view, or names a file that does not exist.
    """

    def __init__(self, location: Location, inputs: InputReader, file: ViewFile | None = None) -> None:
        """Open the view, unless its `file` is open."""
        self.name = location.name
        self.dropped = 0
        self._inputs = inputs
        self._file = file or view_file(location, take=True)
        self._file.store_in(inputs.tmpdir)
        self.missing: dict[str, MissingFile] = {}
        self._left_out: set[str] = set()  # by the names that they have in the view
        self.shards = {shard: self._locate(location, shard) for shard in self._file.shards()}
        self._ranges = RangeList(inputs.tmpdir)
        self._sources: dict[str, WindowSource] = {}
        self._shard_of: dict[Source, str] = {}
        self.versions: dict[str, tuple[object, ...]] = {}

    def _locate(self, view: Location, shard: str) -> Location:
        """Return where a shard is; raise TarkitError if it is not there, or may not be named."""
        location, allowed = locate_archive(view, shard)
        if location.kind == "path" and not os.path.isfile(location.text):
            hint = "has the view or the shard been moved? Paths in a view are relative to its directory"
            what = "not a regular file" if os.path.exists(location.text) else "No such file or directory"
            message = f"{location.name}: {what}; named by {view.name}"
            error = self.missing[location.name] = MissingFile(message, hint, location.text)
            self._inputs.policy.leave_out(location.name, error)
            self._left_out.add(shard)
        if not allowed:
            message = f"it names {location.name}, which is not below its own directory"
            problem = Problem("foreign-source", view.name, None, message)
            if self._inputs.policy.apply(problem) == "drop":
                raise problem
        return location

    @property
    def source(self) -> WindowSource:
        """The file of the view."""
        return self._file.source

    @property
    def all_rows(self) -> RowsOfView:
        """All rows of the view."""
        return self._file.all_rows

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in order, those that are needed, without those of archives that are left out."""
        rows_in_order = self._present(self._file.rows()) if self._left_out else self._file.rows()
        return rows_in_order if self._inputs.most is None else _first(rows_in_order, self._inputs.most)

    def _present(self, rows_in_order: Iterator[Rows]) -> Iterator[Rows]:
        for rows in rows_in_order:
            at = 0
            for missing, group in groupby(range(len(rows.keys)), lambda at, rows=rows: self._names_missing(rows, at)):  # type: ignore[misc]
                count = len(list(group))
                if missing:
                    self.dropped += count
                else:
                    yield rows.part(at, count)
                at += count

    def _names_missing(self, rows: Rows, at: int) -> bool:
        return not self._left_out.isdisjoint([each.shard for each in rows.ranges(at)])

    def batches(self) -> Iterator[SampleBatch]:
        """Read the samples; those of objects of stores are fetched before their turn."""
        self.dropped = 0
        if self._inputs.unread and not self._left_out:
            yield from self._unread()
            return
        remote = any(location.kind == "url" for location in self.shards.values())
        listed = self._inputs.listed
        few = listed is not None and self._file.count >= (FEW if remote else SPARSE) * len(listed.wanted)
        if self._inputs.drawn_rows is not None or few:
            yield from self._read_chosen(remote)
            return
        before = self._file.first
        rows_in_order = self.rows()
        if remote:
            rows_in_order = self._fetched(rows_in_order)
        for rows in rows_in_order:
            yield from self.read(rows, before)
            before += len(rows.keys)

    def _read_chosen(self, remote: bool) -> Iterator[SampleBatch]:
        """Read the samples of some rows; those of objects of stores are fetched before their turn."""
        groups: Iterator[list[tuple[int, Rows]]]
        if remote:
            from tarkit.streams.prefetch import Groups, fetch_ahead

            groups = fetch_ahead(
                Groups()(self._chosen_rows(), lambda row: row[1].size(0)),
                lambda group: chain.from_iterable(self.parts_of(row) for _, row in group),
            )
        else:
            groups = ([row] for row in self._chosen_rows())
        for group in groups:
            for before, row in group:
                yield from self.read(row, before)

    def _chosen_rows(self) -> Iterator[tuple[int, Rows]]:
        """Yield single rows, those that are drawn or whose keys are listed, each with its number in the view."""
        before, drawn, listed = self._file.first, self._inputs.drawn_rows, self._inputs.listed
        for rows in self.rows():
            numbers = listed.numbers_in(rows.keys) if listed is not None else drawn and drawn.among(len(rows.keys))
            for at in numbers or ():
                yield before + at, rows.part(at, 1)
            before += len(rows.keys)

    def _fetched(self, rows_in_order: Iterator[Rows]) -> Iterator[Rows]:
        """Return the rows in smaller parts, each once the ranges of its samples are in memory."""
        from tarkit.streams.prefetch import Groups, fetch_ahead

        groups = Groups()
        parts = (
            rows.part(group[0], len(group))
            for rows in rows_in_order
            for group in groups(range(len(rows.keys)), rows.size)
        )
        return fetch_ahead(parts, self.parts_of)

    def parts_of(self, rows: Rows) -> Iterator[tuple[RemoteSource, int, int]]:
        """Yield the ranges to be fetched: whole samples, or the first headers of large ones that are not read now.

        Once headers behind these were requested one by one, the ends of such samples are fetched as well.

        Their objects are opened, many at a time. A range that cannot be is left out: it is reported in its turn.
        """
        self._open(dict.fromkeys(rows.shards))
        if rows.more is not None:
            self._open({each.shard: None for ranges in rows.more for each in ranges})
        whole = self._inputs.contents and not self._inputs.reordered
        for at in range(len(rows.keys)):
            for shard, start, stop in rows.ranges(at):
                source = self._sources[shard]
                if not is_object(source) or not can_be(source, start, stop):
                    continue
                if not whole and stop - start > source.gap:
                    if source.missed and stop - start > 2 * HEADERS:  # headers behind a large content
                        yield source, stop - HEADERS, stop
                    stop = start + HEADERS
                yield source, start, stop

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        for batch in self.batches():
            yield from batch

    def sample(self, key: bytes, place: tuple[Any, ...], row: int) -> TarSample | None:
        """Return the sample of a row under another key; None if the policy leaves it out.

        Args:
            key: its key.
            place: the place of a row of `ViewFile.table_rows`.
            row: its number, from 0.
        """
        shard, start, stop, more, fields = place
        ranges = [[MoreRange(*item) for item in more]] if more else None
        rows = Rows(_NO_VALUES, 0, [key], [shard], [start], [stop], ranges, None if fields is None else [fields])
        return next((sample for batch in self.read(rows, row) for sample in batch), None)

    def plain_samples(
        self, keys: Sequence[bytes], places: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[Sequence[int], SampleBatch]]:
        """Yield those samples of rows that are plain and can be read together, with the number of each here.

        Neighbours in an archive are read at once. `sample` says what is wrong with others.

        Args:
            keys: their keys, in the archives too.
            places: their places, as for `sample`.
        """
        order = sorted(range(len(keys)), key=lambda at: places[at][:3])
        if len(order) < LEAST:
            return
        shards, starts, stops, more, fields = map(list, zip(*map(places.__getitem__, order), strict=True))
        if any(more) or any(words is not None for words in fields) or not self._left_out.isdisjoint(shards):
            return
        rows = Rows(_NO_VALUES, 0, [keys[at] for at in order], shards, starts, stops, None, None)
        if (found := self._usual_batches(rows)) is None:
            return
        first = 0
        for batch in found:
            head = plain_head(_in_memory(batch)) if batch.count >= LEAST else None
            if head is not None:
                yield order[first : first + head.count], head
            first += batch.count

    def archive(self, shard: str) -> WindowSource:
        """Return an archive by its name in the view; open it if it is not."""
        source = self._sources.get(shard)
        return self._add(shard, _open_plain(self.shards[shard])) if source is None else source

    def _add(self, shard: str, source: WindowSource) -> WindowSource:
        """Keep an archive that was opened. Raises Unsupported for one that has changed."""
        version = source.size, source.version
        if self.versions.setdefault(shard, version) != version:
            source.close()
            raise Unsupported(f"{source.name}: the archive has changed since its samples were read", "open it again")
        self._sources[shard] = source
        self._shard_of[source] = shard
        return source

    def _open(self, shards: Iterable[str]) -> None:
        """Open archives that are not open yet, objects of stores many at a time."""
        missing = [shard for shard in shards if shard not in self._sources]
        places = {self.shards[shard].text: self.shards[shard] for shard in missing}

        def wanted_of(shard: str) -> tuple[str, int | None] | None:
            location = self.shards[shard]
            return (location.text, SMALL) if location.kind == "url" and not cache_of(location.options) else None

        for shard, request in prefetch_objects(missing, wanted_of, lambda url, size: _open_plain(places[url])):
            self._add(shard, _open_plain(self.shards[shard]) if request is None else request.result())

    def read(self, rows: Rows, before: int) -> Iterator[SampleBatch]:
        """Yield the samples of rows, together as far as they can be."""
        if (places := self._usual_places(rows)) is not None:
            yield from self._samples(places, rows, 0, before)
            return
        places = list[Place]()
        first = 0
        for at, (key, shard, start, stop) in enumerate(
            zip(rows.keys, rows.shards, rows.starts, rows.stops, strict=True)
        ):
            parts = [(self.archive(shard), start, stop)]
            if rows.more is not None:
                parts += [(self.archive(each.shard), each.start, each.stop) for each in rows.more[at]]
            bad = [(source, low) for source, low, high in parts if not can_be(source, low, high)]
            if not bad:
                places.append(self._ranges.place(key, parts))
                continue
            yield from self._samples(places, rows, first, before)
            places, first = [], at + 1
            self._changed(*bad[0], before + at, "the archive has no such range")
        yield from self._samples(places, rows, first, before)

    def _unread(self) -> Iterator[SampleBatch]:
        """Yield the rows as they are, without a look at their archives; those of several ranges, or with fields, read.

        A range that its archive does not have is reported all the same.
        """
        sources: dict[str, Source] = {}
        for record in self._file.record_batches():
            batch, names = record.batch, record.batch.schema.names
            if any(name in names and batch.column(name).null_count < batch.num_rows for name in (MORE, FIELDS)):
                for rows in self._file.rows_of(record):
                    yield from self.read(rows, record.before + rows.first - record.first)
                continue
            with parquet_errors(self.name):
                columns = self._columns(batch, record.before, sources)
            yield from self._there(RowBatch(self.name, columns, list(sources.values()), self._look))

    def _columns(self, batch: Any, before: int, sources: dict[str, Source]) -> RowColumns:
        """Return the columns of a record batch; archives are opened, and added to `sources` by their names there."""
        arrow, compute = load_pyarrow(self.name)[0], load_compute()
        shards = batch.column(SHARD)
        shards = shards if arrow.types.is_dictionary(shards.type) else shards.dictionary_encode()
        known = shards.dictionary.to_pylist()
        used = [known[number] for number in shards.indices.unique().to_pylist()]
        self._open(dict.fromkeys(used))
        for name in used:
            if name not in sources:
                sources[name] = self.archive(name)
        numbers = {name: number for number, name in enumerate(sources)}
        starts, stops = (batch.column(name).cast(arrow.int64()) for name in (START, STOP))
        values = batch.select(list(self._file.values))
        if "_view" in str(values.schema):
            values = arrow.RecordBatch.from_arrays([*map(held, values.columns)], names=values.schema.names)
        ones = arrow.repeat(arrow.scalar(1, arrow.int64()), batch.num_rows)
        return RowColumns(
            _decoded(arrow, batch.column(KEY)).cast(arrow.string()),
            arrow.array([numbers.get(name, -1) for name in known], arrow.int32()).take(shards.indices),
            starts,
            stops,
            values,
            compute.cumulative_sum(ones, before - 1),
        )

    def _there(self, batch: RowBatch) -> Iterator[SampleBatch]:
        """Yield the rows whose ranges their archives have, in batches in which keys of neighbours differ."""
        begin = 0
        for number in batch.misplaced() if batch.count else ():
            if number > begin:
                yield from batch.part(begin, number).apart()
            source, start = batch.place(number)
            self._changed(source, start, batch.number(number), "the archive has no such range")
            begin = number + 1
        if begin < batch.count:
            yield from batch.part(begin, batch.count).apart()

    def _look(self, batch: RowBatch, at: int) -> TarSample | None:
        source, start = batch.place(at)
        place: tuple[Any, ...] = self._shard_of[source], start, batch.columns.stops[at].as_py(), [], None
        return self.sample(batch.key_of(at), place, batch.number(at))

    def _usual_sizes(self, rows: Rows) -> list[int] | None:
        """Return the bytes of samples if each is one range that can be."""
        starts, stops = rows.starts, rows.stops
        if rows.more is not None or (reduce(or_, starts) | reduce(or_, stops)) % block.BLOCK or min(starts) < 0:
            return None
        ends: dict[str, int] = {}  # of each archive, the last one
        for shard, stop in zip(rows.shards, stops, strict=True):
            if stop > ends.get(shard, 0):
                ends[shard] = stop
        if any(end > (self.archive(shard).size or 0) for shard, end in ends.items()):
            return None
        sizes = list(map(sub, stops, starts))
        return None if min(sizes) <= 0 or max(sizes) >= SHORT_LIMIT else sizes

    def _usual_places(self, rows: Rows) -> list[Place] | None:
        """Return the places of samples if each is one range that can be: 20 % of `cat` of small samples."""
        sizes = self._usual_sizes(rows)
        if sizes is None:
            return None
        numbers = {shard: self._ranges.file_of(self.archive(shard)) for shard in dict.fromkeys(rows.shards)}
        files = map(numbers.__getitem__, rows.shards)
        return list(map(add, map(SHORT.pack, repeat(0), files, rows.starts, sizes), rows.keys))

    def _usual_batches(self, rows: Rows) -> Iterable[SampleBatch] | None:
        """Return the same samples, in the order of their places: one batch if nothing is between them."""
        shards, starts, stops = rows.shards, rows.starts, rows.stops
        if shards[0] != shards[-1] or starts[1:] != stops[:-1]:
            places = self._usual_places(rows)
            return None if places is None else self._ranges.batches(places)
        if self._usual_sizes(rows) is None:
            return None
        return (SampleBatch(self.archive(shards[0]), starts[0], rows.keys, stops),)

    def _samples(self, places: Sequence[bytes], rows: Rows, first: int, before: int) -> Iterator[SampleBatch]:
        """Yield the samples at places, whose rows begin at `first`."""
        at = first
        for batch in self._ranges.batches(places):
            together = None
            if batch.count >= LEAST and (rows.fields is None or not any(rows.fields[at : at + batch.count])):
                together = plain_head(batch)
            plain = 0 if together is None else together.count
            if together is not None:
                together.rows = rows.of(at, plain) if rows.group.columns else None
                yield together
            rest = batch.part(plain, batch.count) if plain < batch.count else ()
            for number, sample in enumerate(rest, at + plain):
                checked = self._sample(sample, rows, number, before + number)
                if checked is not None:
                    checked.row = StoredRow(rows.group, rows.first + number) if rows.group.columns else None
                    yield checked
            at += batch.count

    def _sample(self, sample: TarSample, rows: Rows, number: int, row: int) -> TarSample | None:
        """Return the sample of a row as its headers are; None if the policy leaves it out."""
        source, key = sample.source, rows.keys[number]
        ranges = 1 + (0 if rows.more is None else len(rows.more[number]))
        try:
            entries = sample.entries
        except TarkitError as error:
            self._changed(source, sample.start, row, f"no entry is there ({error})")
            return None
        keys = {key_of(entry) for entry in entries} - {None}
        if not keys or entries[-1].stop != sample.stop or (len(keys) > 1 and ranges == 1):
            self._changed(source, sample.start, row, "the range is not one whole sample")
            return None
        policy = self._inputs.policy
        checks = EntryChecks(source, policy, self._inputs.moves)
        named = next(entry for entry in entries if key_of(entry) is not None)
        if not ((0 in named.name or checks.name(named)) & checks.entries(entries)):
            self.dropped += 1
            return None
        if ranges > 1 and not self._links_stay(source, entries, checks):
            self.dropped += 1
            return None
        sample.key = key_of(named)
        fields = None if rows.fields is None else rows.fields[number]
        if keys == {key} and fields is None:
            sample.plain = _plain(key, entries)
            return sample
        if 0 in key or split_name(key + b".x") != (key, b"x"):
            raise TarkitError(f"{self.name}: {show(key)} in row {row + 1} is not a key")
        changed = with_names(sample, key, None if fields is None else parse_fields(fields), policy)
        if changed is not None and not changed.entries:
            policy.warn(f"row {row + 1} of {self.name}: no field is left of {show(key)}: left out")
            changed = None
        elif changed is not None and not checks.name(changed.entries[0]):
            changed = None
        self.dropped += changed is None
        return changed

    def _links_stay(self, source: Source, entries: Sequence[Entry], checks: EntryChecks) -> bool:
        """Return whether the target of each hard link is in the archive of the link, or that does not matter."""
        archives: dict[bytes, Source] = {}
        good = True
        for entry in entries:
            archive = (
                next(iter(source.within(entry.start, entry.stop)))[0] if isinstance(source, JoinedSource) else source
            )
            if entry.type == block.HARD_LINK and archives.get(entry.link) is not archive:
                good = checks("unmovable-entry", entry.start, f"{describe_link(entry)}, or in another archive") and good
            archives.setdefault(entry.name, archive)  # type: ignore[arg-type]
        return good

    def _changed(self, source: Source, start: int, row: int, words: str) -> None:
        """Report a row whose range is not as the view says; raise Problem unless the policy leaves such samples out."""
        message = f"row {row + 1} of {self.name}: {words}"
        self._inputs.policy.apply(Problem("changed-source", source.name, start, message))
        self.dropped += 1

    def unchanged(self) -> None:
        """Raise TarkitError if an archive was changed since it was opened."""
        for source in (self._file.source, *self._sources.values()):
            source.unchanged()

    def archives_unchanged(self, rows: Rows) -> None:
        """Raise TarkitError if an archive of one row was changed since it was opened."""
        for each in rows.ranges(0):
            self.archive(each.shard).unchanged()

    def close(self) -> None:
        """Free the memory of the archives; another pass reads them again."""
        for source in self._sources.values():
            source.close()


def _first(rows_in_order: Iterator[Rows], most: int) -> Iterator[Rows]:
    """Yield the first rows, at most so many."""
    while most > 0 and (rows := next(rows_in_order, None)) is not None:
        count = min(len(rows.keys), most)
        yield rows.part(0, count)
        most -= count


def _open_plain(location: Location) -> WindowSource:
    """Open an archive that ranges can be read of. Raises Unsupported for others."""
    source = open_source(location)
    if isinstance(source, WindowSource):
        return source
    source.close()
    if location.kind == "url" and source.codec is None:
        words = "a view reads parts of objects, and the server sends none of this one, or does not name its version"
        raise Unsupported(f"{location.name}: {words}", "copy the archive to a file, or to a store that does")
    raise Unsupported(
        f"{location.name}: it is compressed, and a view needs plain archives",
        f"tarkit cat {location.name} -o NAME.tar makes a plain archive",
    )


def _in_memory(batch: SampleBatch) -> SampleBatch:
    """Return samples in a row, whose bytes are read if they are few, with an entry behind them."""
    source, start, stop = batch.source, batch.start, batch.stop
    if batch.places is not None or stop - start > READ:
        return batch
    held = HeldRange(source.name, start, source.read(start, stop) + BEHIND)
    starts = (start, *batch.stops)
    places = [(source, at) for at in starts[:-1]]
    return SampleBatch(held, start, batch.keys, batch.stops, places=places)  # type: ignore[arg-type]


def can_be(source: Source, start: int, stop: int) -> bool:
    """Return whether a range may be that of a sample: it is of whole blocks, at least one, and in the archive."""
    return 0 <= start < stop <= (source.size or 0) and not (start | stop) % block.BLOCK


def _decoded(arrow: Any, column: Any) -> Any:
    """Return a column whose values are not those of a dictionary."""
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column


def _plain(key: bytes, entries: Sequence[Entry]) -> bool:
    """Return whether entries are regular files of this key, with different names, without gaps."""
    prefix = key + b"."
    names = {entry.name for entry in entries}
    regular = all(entry.type == block.REGULAR and entry.name.startswith(prefix) for entry in entries)
    adjacent = all(entry.stop == following.start for entry, following in pairwise(entries))
    return (
        regular and adjacent and len(names) == len(entries) and all(is_safe(name) and 0 not in name for name in names)
    )
