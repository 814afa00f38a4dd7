"""Checks across shards: repeated keys, a table of keys, a manifest, adjacent samples of one key, fields that differ.

`SetCheck` says how `check.ShardsCheck` uses each of the first three.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple, Protocol

from tarkit.checking.fieldsets import LISTED, listed
from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.shard import Item
from tarkit.choosing.key_list import OTHERS, KeyList
from tarkit.errors import TarkitError, show
from tarkit.shards.writer import MANIFEST_COLUMNS
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap, in_runs
from tarkit.stores import schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location
from tarkit.streams.text import file_label, open_file, parse_file
from tarkit.tables.recipe import MalformedRow, without_bom, without_end
from tarkit.tables.tsv import unescape_tsv


class SetCheck(Protocol):
    """A check of all shards together."""

    def add(self, index: int, location: Location, item: Item) -> Iterable[Finding]:
        """Take an item of the shard with this index; return the findings that are known at once."""

    def findings(self, shards: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield the findings that are known once all shards were read."""


_PLACE = Struct("<IQ")  # the index of a shard, an offset in it


class Unique:
    """A search for keys in more than one shard: exact, in bounded memory (`Multimap`)."""

    def __init__(self, tmpdir: str | None = None) -> None:
        self._keys = Multimap(tmpdir)

    def add(self, index: int, location: Location, item: Item) -> Iterable[Finding]:
        """Remember the keys of samples."""
        for key, offset, _ in item if isinstance(item, list) else ():
            self._keys.add(key, _PLACE.pack(index, offset))
        return ()

    def findings(self, shards: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield each further occurrence of a key that was in another shard, sorted unless there are too many."""
        for (index, offset), (other, before), key in in_runs(self._repeated()):
            detail = f"the key {show(key)} is also in {shards[other].shard}, at {before}"
            yield Finding("repeated-key", shards[index].shard, offset, key, detail)

    def _repeated(self) -> Iterator[tuple[tuple[int, int], tuple[int, int], bytes]]:
        for key, places in self._keys.repeated():
            first, *rest = map(_PLACE.unpack, places)
            yield from (((index, offset), first, key) for index, offset in rest if index != first[0])


class Against:
    """A comparison of the keys of a table with those of the samples."""

    def __init__(self, table: KeyList) -> None:
        self.table = table

    def add(self, index: int, location: Location, item: Item) -> Iterator[Finding]:
        """Yield the samples that the table does not list."""
        for key, offset, _ in item if isinstance(item, list) else ():
            if key in self.table.wanted:
                self.table.present.add(key)
            else:
                if not key.isascii() and len(self.table.others) < OTHERS:
                    self.table.others.add(key)
                detail = f"{show(key)} is not in {self.table.name}"
                yield Finding("extra-sample", location.name, offset, key, detail, "error", "leave it out: --keys-from")

    def findings(self, shards: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield the keys of the table that no sample has."""
        hint = self.table.hint()
        for key in self.table.missing():
            detail = f"no shard has the sample {show(key)}"
            yield Finding("missing-sample", self.table.name, None, key, detail, "error", hint)


def joined(shards: Sequence[ShardReport]) -> Iterator[Finding]:
    """Yield shards whose last sample has the key of the first one of the next shard."""
    filled = [shard for shard in shards if shard.samples]
    for before, after in pairwise(filled):
        if before.last == after.first and after.first is not None:
            detail = f"its first sample has the same key {show(after.first)} as the last one in {before.shard}"
            hint = "tarkit cat --rekey '{stem}/{key}' makes keys differ"
            yield Finding("joined-sample", after.shard, 0, after.first, detail, "error", hint)


def mixed(shards: Sequence[ShardReport]) -> Iterator[Finding]:
    """Yield shards whose most frequent set of fields differs from that of most shards."""
    main = [next(iter(shard.fields), None) for shard in shards]
    counts = Counter(fields for fields in main if fields is not None)
    if len(counts) < 2:
        return
    most = max(counts, key=lambda fields: counts[fields])
    others = [(shard, names) for shard, names in zip(shards, main, strict=True) if names is not None and names != most]
    for shard, names in others[:LISTED]:
        detail = f"its samples have {listed(names)}, those of most shards {listed(most)}"
        yield Finding("mixed-fields", shard.shard, None, None, detail, "note")
    if len(others) > LISTED:
        shard = others[LISTED][0]
        more = plural(len(others) - LISTED, "more shard has", "more shards have")
        detail = f"{more} other fields than most, this is the first of them"
        yield Finding("mixed-fields", shard.shard, None, None, detail, "note")


class ManifestRow(NamedTuple):
    """A row of a manifest: `stored` is the length of the file in bytes."""

    shard: str
    samples: int
    stored: int
    sha256: str
    first: bytes
    last: bytes


def read_manifest(path: str, options: StoreOptions | None = None) -> list[ManifestRow]:
    """Return the rows of a manifest, which `options` say how to reach.

    Raises:
        TarkitError: `PATH:LINE: reason` for an invalid manifest.
    """
    header = "\t".join(MANIFEST_COLUMNS).encode()
    rows = []
    word, path = path, file_label(path)
    with open_file(word, options) as file:
        for number, line in enumerate(without_bom(file), 1):
            text = without_end(line)
            if number == 1 and text != header:
                raise TarkitError(f"{path}: not a manifest: its first line is not {show(header)}")
            if number > 1 and text:
                try:
                    shard, samples, stored, sha256, first, last = map(unescape_tsv, text.split(b"\t"))
                    keys = (first, last)
                    rows.append(ManifestRow(os.fsdecode(shard), int(samples), int(stored), sha256.decode(), *keys))
                except (ValueError, MalformedRow):
                    raise TarkitError(f"{path}:{number}: not a row of a manifest") from None
    if not rows:
        raise TarkitError(f"{path}: no shard found")
    return rows


def places(rows: Sequence[ManifestRow], manifest: str) -> list[str]:
    """Return the paths or URLs of the shards of a manifest: relative to it, or in its directory, else as listed.

    Those of a manifest at a URL are in its directory, unless URLs are listed; whether they are there is not looked up.
    """
    kind, place = parse_file(manifest)
    directory = "" if kind == "pipe" else os.path.dirname(place)
    names = Counter(os.path.basename(row.shard) for row in rows)
    located = []
    for row in rows:
        name = os.path.basename(row.shard)
        if kind == "url":
            listed = schemes.scheme_of(row.shard) is not None
            located.append(row.shard if listed else f"{directory}/{name if names[name] == 1 else row.shard}")
            continue
        near = [] if os.path.isabs(row.shard) else [os.path.join(directory, row.shard)]
        near += [os.path.join(directory, name)] if names[name] == 1 else []
        located.append(next(filter(os.path.exists, near), row.shard))
    return located


class Manifest:
    """The rows of a manifest, and which of them were compared. A shard is identified by its path, else by its name."""

    def __init__(self, path: str, rows: Sequence[ManifestRow]) -> None:
        self.path = file_label(path)
        self._remaining = dict(enumerate(rows))
        self._by_path = {os.path.realpath(place): number for number, place in enumerate(places(rows, path))}
        self._by_name: dict[str, int | None] = {}
        for number, row in enumerate(rows):
            name = os.path.basename(row.shard)
            self._by_name[name] = None if name in self._by_name else number

    def add(self, index: int, location: Location, item: Item) -> Iterator[Finding]:
        """Yield the differences between a shard and its row, when its report is there."""
        if not isinstance(item, ShardReport):
            return
        path, report = location.text, item
        number = self._by_path.get(os.path.realpath(path), self._by_name.get(os.path.basename(path)))
        row = None if number is None else self._remaining.pop(number, None)
        if row is None:
            yield Finding("extra-shard", report.shard, None, None, f"{self.path} does not list it")
            return
        if not report.readable:
            return
        have = (report.samples, report.stored, report.sha256, report.first or b"", report.last or b"")
        labels = ("samples", "bytes", "sha256", "first key", "last key")
        for label, expected, actual in zip(labels, row[1:], have, strict=True):
            if actual is None:
                detail = f"{label} cannot be compared: it is neither a file nor an object"
                yield Finding("changed-shard", report.shard, None, None, detail)
            elif expected != actual:
                words = [show(value) if isinstance(value, bytes) else str(value) for value in (expected, actual)]
                detail = f"{label}: {words[0]} in {self.path}, {words[1]} in the shard"
                yield Finding("changed-shard", report.shard, None, None, detail)

    def findings(self, shards: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield the shards that are listed but were not compared."""
        for row in self._remaining.values():
            yield Finding("missing-shard", row.shard, None, None, f"{self.path} lists it, but it does not exist")
