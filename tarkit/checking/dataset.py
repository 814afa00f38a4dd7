"""Checks across shards: repeated keys, adjacent samples of one key, fields that differ, a table of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct

from tarkit.checking.fieldsets import LISTED, listed
from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.shard import CheckedSample
from tarkit.errors import show
from tarkit.samples.select import OTHERS, KeyList
from tarkit.spill.multimap import Multimap, in_runs

_PLACE = Struct("<IQ")  # the index of a shard, an offset in it


class Unique:
    """A search for keys in more than one shard: exact, in bounded memory (`Multimap`)."""

    def __init__(self, tmpdir: str | None = None) -> None:
        self._keys = Multimap(tmpdir)

    def add(self, index: int, samples: Sequence[CheckedSample]) -> None:
        """Add samples of the shard with this index."""
        for key, offset, _ in samples:
            self._keys.add(key, _PLACE.pack(index, offset))

    def findings(self, shards: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield each further occurrence of a key that was in another shard, sorted unless there are too many."""
        for (index, offset), (other, before), key in in_runs(self._repeated()):
            what = f"the key {show(key)} is also in {shards[other].shard}, at {before}"
            yield Finding("repeated-key", shards[index].shard, offset, key, what)

    def _repeated(self) -> Iterator[tuple[tuple[int, int], tuple[int, int], bytes]]:
        for key, places in self._keys.repeated():
            first, *rest = map(_PLACE.unpack, places)
            yield from (((index, offset), first, key) for index, offset in rest if index != first[0])


class Against:
    """A comparison of the keys of a table with those of the samples."""

    def __init__(self, table: KeyList) -> None:
        self.table = table

    def add(self, shard: str, samples: Sequence[CheckedSample]) -> Iterator[Finding]:
        """Yield the samples that the table does not list."""
        for key, offset, _ in samples:
            if key in self.table.wanted:
                self.table.found.add(key)
            else:
                if not key.isascii() and len(self.table.others) < OTHERS:
                    self.table.others.add(key)
                what = f"{show(key)} is not in {self.table.name}"
                yield Finding("extra-sample", shard, offset, key, what, "error", "leave it out: --keys-from")

    def findings(self) -> Iterator[Finding]:
        """Yield the keys of the table that no sample has."""
        hint = self.table.hint()
        for key in self.table.missing():
            what = f"no shard has the sample {show(key)}"
            yield Finding("missing-sample", self.table.name, None, key, what, "error", hint)


def joined(shards: Sequence[ShardReport]) -> Iterator[Finding]:
    """Yield shards whose last sample has the key of the first one of the next shard."""
    filled = [shard for shard in shards if shard.samples]
    for before, after in pairwise(filled):
        if before.last == after.first and after.first is not None:
            what = f"its first sample has the same key {show(after.first)} as the last one in {before.shard}"
            hint = "tarkit cat --rekey '{stem}/{key}' makes keys differ"
            yield Finding("joined-sample", after.shard, 0, after.first, what, "error", hint)


def mixed(shards: Sequence[ShardReport]) -> Iterator[Finding]:
    """Yield shards whose most frequent set of fields differs from that of most shards."""
    main = [next(iter(shard.fields), None) for shard in shards]
    counts = Counter(each for each in main if each is not None)
    if len(counts) < 2:
        return
    most = max(counts, key=lambda each: counts[each])
    others = [(shard, own) for shard, own in zip(shards, main, strict=True) if own is not None and own != most]
    for shard, own in others[:LISTED]:
        what = f"its samples have {listed(own)}, those of most shards {listed(most)}"
        yield Finding("mixed-fields", shard.shard, None, None, what, "note")
    if len(others) > LISTED:
        shard = others[LISTED][0]
        what = f"{len(others) - LISTED} more shards have other fields than most, this is the first of them"
        yield Finding("mixed-fields", shard.shard, None, None, what, "note")
