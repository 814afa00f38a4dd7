"""Consecutive entries of one key are a sample: the grouping, one by one and in batches that the accelerator finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from operator import itemgetter
from typing import TypeVar

from tarkit.errors import TarkitError
from tarkit.samples.sample import KEYLESS, SampleBatch, is_safe, key_of
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.fast import ListedEntries, PlainEntries, SeveralEntries
from tarkit.tar.reader import Entry, Raw, TarReader

LARGE = 16 << 20  # bytes; a larger sample of a stream is yielded before its end is known, and ends a run

DAMAGED = 4 << 20  # bytes of a compressed stream, decoded, in which damage of the compression follows its first effects

FEW = 64  # entries of a sample up to which names are compared one by one

NO_LIMIT = 1 << 62

_NAME = itemgetter(0)
_PLAIN = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))


def group_entries(entries: Iterable[Raw]) -> Iterator[tuple[bytes | None, list[Raw]]]:
    """Yield the samples of an archive as (key, entries): the reference implementation of `EntryGroups`.

    The key is None only for the entries of an archive in which no entry has a key.
    """
    key: bytes | None = None
    sample: list[Raw] = []
    keyless: list[Raw] = []
    for entry in entries:
        entry_key = key_of(Entry._make(entry))
        if entry_key is None:
            keyless.append(entry)
            continue
        if entry_key != key and key is not None:
            yield key, sample
            sample = []
        key = entry_key
        sample += [*keyless, entry]
        keyless = []
    if sample or keyless:
        yield key, sample + keyless


Group = tuple[bytes, list[Raw], bool]  # the key of a sample, its entries, and whether it is plain
Found = TypeVar("Found")


def plain_groups(reader: TarReader, entry: Raw) -> Sequence[Group]:
    """Return the plain samples that the accelerator finds from the first entry of a sample on."""
    samples = reader.plain_samples(entry)
    return () if samples is None else list(zip(samples.keys, samples.entries.rows, repeat(True), strict=False))  # type: ignore[arg-type]


class EntryGroups:
    """Group consecutive entries of one key into samples, as `group_entries` does, at the speed of the headers.

    Between two calls `key` and `entries` are the sample that is not complete, and `keyless` the entries without a key
    that follow it. They may be changed, and reading continues with them. After `sever` the next entry with a key begins
    another sample, even if the key is the same.
    """

    __slots__ = ("_severed", "entries", "key", "keyless")

    def __init__(self) -> None:
        self.key: bytes | None = None
        self.entries: list[Raw] = []
        self.keyless: list[Raw] = []
        self._severed = False

    def sever(self) -> None:
        """End the incomplete sample, which is yielded when the next one begins."""
        self._severed = True

    @property
    def size(self) -> int:
        """Bytes from the start of the incomplete sample to the end of its last entry."""
        return self.entries[-1][4] - self.entries[0][1] if self.entries else 0

    def read(
        self, entries: Iterable[Raw], limit: int = NO_LIMIT, ahead: Callable[[Raw], Iterable[Found]] | None = None
    ) -> Iterator[Group | Found]:
        """Yield (key, entries, plain) of each sample that is complete because the next one begins.

        `plain`: all entries have the key and follow each other, their names differ, all are regular files. Reading
        stops at the end of `entries`, at an error in them, or as soon as the incomplete sample exceeds `limit` bytes.
        Called with the first entry of a sample, `ahead` returns samples from it on, in any form, and `entries` goes on
        after them.
        """
        key, sample, keyless = self.key, self.entries, self.keyless
        edge = (sample[0][1] if sample else 0) + limit  # the offset that a sample may reach
        prefix, length = b"", 0  # the key with its dot
        last, plain = b"", False  # the greatest name
        try:
            for entry in entries:
                name = entry[0]
                if length and name.startswith(prefix) and entry[5] == b"0" and name.find(b"/", length) < 0:
                    if name > last and not keyless:  # greater than all names before it: equal to none of them
                        last = name
                    elif keyless or name == last or len(sample) > 1:
                        plain = plain and not keyless and len(sample) < FEW and name not in map(_NAME, sample)
                        last = max(last, name)
                        sample += keyless
                        keyless.clear()
                    sample.append(entry)
                else:
                    slash = name.rfind(b"/") + 1
                    dot = name.find(b".", slash)
                    if dot <= slash or entry[5] in KEYLESS:
                        keyless.append(entry)
                        continue
                    entry_key = name[:dot]
                    if entry_key == key and not self._severed:
                        plain = False
                        sample += [*keyless, entry]
                    else:
                        if key is not None:
                            yield key, sample, plain
                        key, last, prefix, length = entry_key, name, entry_key + b".", len(entry_key) + 1
                        plain = not keyless and entry[5] in _PLAIN
                        sample = [*keyless, entry]
                        edge = sample[0][1] + limit
                        self._severed = False
                        if ahead is not None and not keyless and (following := ahead(entry)):
                            yield from following
                            key, sample, length = None, [], 0
                            continue
                    keyless.clear()
                if entry[4] > edge:
                    return
        finally:
            self.key, self.entries = key, sample

    def take(self) -> tuple[bytes | None, list[Raw]]:
        """Remove the incomplete sample and return it; `keyless` stays."""
        key, sample = self.key, self.entries
        self.key, self.entries = None, []
        return key, sample

    def finish(self) -> tuple[bytes | None, list[Raw]]:
        """The same at the end of an archive, with the entries without a key that follow."""
        self.entries += self.keyless
        self.keyless.clear()
        return self.take()

    def cut(self, stop: int) -> None:
        """Remove the entries from the offset `stop` on, where damage begins: a stream yields an entry that is cut."""
        for entries in self.entries, self.keyless:
            entries[:] = [entry for entry in entries if entry[1] < stop]
        if all(key_of(Entry._make(entry)) is None for entry in self.entries):  # those with a key are cut
            self.keyless[:0] = self.take()[1]


# ---- Batches of plain samples

LONGEST = 1024  # samples of a batch, as in `_fast.c`

_SHORT = 1 << 12  # bytes of a field that a batch has
_HELD = 1 << 18  # and of that field in all of its samples
_MOST_PASSED = 63  # samples that pass before a batch is looked for again


class BatchFinder:
    """Find batches of plain samples, with the contents of a field, in one archive.

    The accelerator finds samples that are in memory, and large ones in files. Without it Python finds those in memory;
    where it finds none, it lets a sample pass before it looks again, then 3, 7, up to 63.
    """

    def __init__(self, source: Source, field: bytes | None) -> None:
        self.source = source
        self._field = field
        self._to_pass = self._passing = 0  # samples to pass after the last attempt, and from here on

    def find(self, reader: TarReader, entry: Raw) -> SampleBatch | None:
        """Return the samples from an entry on, the last that `reader` has yielded, which continues after them."""
        if not reader.plain:
            return None
        if reader.accelerated:
            plain = reader.plain_samples(entry, self._field)
            if plain is None:
                return None
            return SampleBatch(self.source, plain.start, plain.keys, plain.stops, plain.contents, plain.entries)
        if self._passing:
            self._passing -= 1
            return None
        batch, last = self.collect(reader.again(entry))
        self._to_pass = self._passing = 0 if batch else min(2 * self._to_pass + 1, _MOST_PASSED)
        if last is not None:
            reader.pass_by(last)
        return batch

    def collect(self, reader: TarReader) -> tuple[SampleBatch | None, Raw | None]:
        """Return the plain samples at the start of a reader, each followed by another, and the last entry."""
        groups: list[Group] = []
        with suppress(TarkitError):
            for group in islice(EntryGroups().read(reader.raw()), LONGEST):
                odd = not group[2] or reader.nul or reader.sparse  # the last two perhaps in the next sample
                if odd or (block.SLASH in group[0] and not is_safe(group[1][0][0])):
                    break
                groups.append(group)
        contents: list[bytes] = []
        if self._field is not None:
            contents = self._contents(groups, self._field)
            del groups[len(contents) :]
        if not groups:
            return None, None
        keys, rows, _ = zip(*groups, strict=True)
        stops = [entries[-1][4] for entries in rows]
        return SampleBatch(self.source, rows[0][0][1], keys, stops, contents, ListedEntries(rows)), rows[-1][-1]

    def _contents(self, groups: Sequence[Group], field: bytes) -> list[bytes]:
        """Return the contents of the field, up to the first sample in which it is missing or long."""
        source, contents, held = self.source, list[bytes](), 0
        read = source.recent
        for key, entries, _ in groups:
            entry = next((entry for entry in entries if entry[0][len(key) + 1 :] == field), None)
            if entry is None or entry[3] > _SHORT or held > _HELD:
                break
            contents.append(read(entry[2], entry[2] + entry[3]))
            held += entry[3]
        return contents


def plain_head(batch: SampleBatch) -> SampleBatch | None:
    """Return the samples of a batch, from the first on, that are plain, as their headers are: with these keys and ends.

    The end of the last one is known by the header of another, which may not be there if the batch is in memory.
    """
    parts = list[PlainEntries]()
    count = _count_plain(batch, parts)
    if not count:
        return None
    entries, keys, places = SeveralEntries(parts), batch.keys[:count], batch.places and batch.places[:count]
    return SampleBatch(batch.source, batch.start, keys, batch.stops[:count], (), entries, places)  # type: ignore[arg-type]


def _count_plain(batch: SampleBatch, parts: list[PlainEntries]) -> int:
    """Return how many samples of a batch are plain; their entries are added to `parts`."""
    at, count = 0, batch.count
    while at < count:
        reader = TarReader(batch.source, batch.start_of(at))
        try:
            entry = next(iter(reader.raw()), None)
            plain = None if entry is None else BatchFinder(batch.source, None).find(reader, entry)
        except TarkitError:
            return at
        size = 0 if plain is None else min(plain.count, count - at)
        if plain is None or list(plain.keys[:size]) != list(batch.keys[at : at + size]):
            return at
        if list(plain.stops[:size]) != list(batch.stops[at : at + size]):
            return at
        assert plain.entries_held is not None
        parts.append(plain.entries_held)
        at += size
    return at
