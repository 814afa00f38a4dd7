"""The differences between two sets: samples that were removed, added, renamed, changed or moved.

Samples are matched by their keys, or by their contents first (`--by content`): the sample of another key with the same
fields and contents is renamed. Both are grouped in bounded memory, as for `--same-as`.

A sample with the same key and contents is moved if it is in another shard, by the number of the shard, or in another
order than others that stay: those not in a longest increasing subsequence of the places (patience sorting: Fredman,
"On computing the length of longest increasing subsequences", 1975), which is searched in windows of the first set.
Where the sets have different numbers of shards, the order is that of all shards together.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, islice
from struct import Struct
from typing import Any, Literal, NamedTuple

from tarkit.checking.compare import PLACE, FieldChanges, SampleSets, Sets, paired, place_of
from tarkit.checking.digest import fields_of, is_keyless
from tarkit.checking.findings import ShardReport
from tarkit.errors import show
from tarkit.spill.multimap import Group, Multimap
from tarkit.spill.runs import SortedRuns, pack, rank_of, rests_of

Change = Literal["removed", "added", "renamed", "changed", "moved"]
By = Literal["key", "content"]
CHANGES: tuple[Change, ...] = ("removed", "added", "renamed", "changed", "moved")

WINDOW = 1 << 18  # samples among which those that stay in order are searched
_HELD = 32 << 20  # bytes of memory of records that are sorted
_BATCH = 256
_KEY = Struct("<I")  # the length of a key
_RANK = Struct(">BIQ")  # the kind of a difference, the index of a shard, the number of the sample in it
_ORDER = Struct(">IQ")  # a shard or 0, and the place in it or in all shards


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Where a sample is: its key, the shard, and its number in the shard from 0."""

    key: bytes
    shard: str
    index: int

    def __str__(self) -> str:
        return f"{self.shard}[{self.index}]"


class Difference(NamedTuple):
    """A sample that differs between two sets.

    Attributes:
        change: removed, added, renamed, changed or moved.
        old, new: where it is in the first and in the second set; None where it is not.
        fields: of a changed sample the fields with other contents, and `-NAME`, `+NAME` for those of one set alone.
        words: the same in words.
    """

    change: Change
    old: SamplePlace | None
    new: SamplePlace | None
    fields: tuple[bytes, ...] = ()
    words: str = ""

    @property
    def key(self) -> bytes:
        """Its key, the new one if it has two."""
        place = self.new or self.old
        assert place is not None
        return place.key

    @property
    def line(self) -> str:
        """The difference as a line of text: `changed: 'a' differs in 'cls': old.tar[3] -> new.tar[3]`."""
        places = " -> ".join(str(place) for place in (self.old, self.new) if place is not None)
        before = f", before {show(self.old.key)}" if self.change == "renamed" and self.old is not None else ""
        return f"{self.change}: {show(self.key)}{before}{' ' + self.words if self.words else ''}: {places}"

    @property
    def record(self) -> dict[str, Any]:
        """The difference as JSON; bytes that are not UTF-8 are lone surrogates, as of `os.fsdecode`."""
        places = {
            name: None if place is None else {"key": _text(place.key), "shard": place.shard, "index": place.index}
            for name, place in (("old", self.old), ("new", self.new))
        }
        fields = [_text(name) for name in self.fields]
        return {"type": "difference", "change": self.change, "key": _text(self.key), "fields": fields, **places}


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


class Match(NamedTuple):
    """A sample of the first set, one of the second, or both, each a `PLACE` and its contents, with their keys."""

    old_key: bytes
    old: bytes | None
    new_key: bytes
    new: bytes | None

    @property
    def change(self) -> Change | None:
        """The kind of the difference but for the place; None for the same sample."""
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        if self.old_key != self.new_key:
            return "renamed"
        return "changed" if self.old[PLACE.size :] != self.new[PLACE.size :] else None

    @property
    def places(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The keys and the places, without contents, of a sample that is in both sets."""
        assert self.old is not None
        assert self.new is not None
        return self.old_key, self.old[: PLACE.size], self.new_key, self.new[: PLACE.size]

    @property
    def keyless(self) -> bool:
        """Whether it is an entry without a key, which has no place among samples."""
        return is_keyless((self.new or self.old or b"")[PLACE.size :])


class Diff(SampleSets):
    """The differences between two sets.

    Args:
        by: what samples are matched by.

    Attributes:
        counts: how many differences there are of each kind, and samples that are the `same`; complete at the end.
    """

    def __init__(self, tmpdir: str | None, names: tuple[str, str], by: By = "key") -> None:
        super().__init__(tmpdir, names)
        self.counts: Counter[str] = Counter(dict.fromkeys((*CHANGES, "same"), 0))
        self._by_content = by == "content"
        self._passed: Counter[tuple[int, int]] = Counter()  # samples of each shard so far

    @property
    def different(self) -> bool:
        """Whether there was a difference."""
        return any(self.counts[change] for change in CHANGES)

    def keep(self, side: int, index: int, offset: int, key: bytes, contents: bytes) -> None:
        place = PLACE.pack(side, index, self._passed[side, index])
        self._passed[side, index] += not is_keyless(contents)
        if self._by_content:
            self.samples.add(_digest(contents), place + _KEY.pack(len(key)) + key + contents)
        else:
            self.samples.add(key, place + contents)

    def differences(self, first: Sequence[ShardReport], second: Sequence[ShardReport]) -> Iterator[Difference]:
        """Yield the differences, those of a kind together, in the order of their places.

        Args:
            first, second: the reports on the shards of each set, by index.
        """
        different, kept = _Sorted(self.tmpdir), _Sorted(self.tmpdir)
        by_shard = len(first) == len(second)
        groups = self.samples.groups()
        for match in self._by_contents(groups) if self._by_content else _by_key(groups):
            change = match.change
            if change is not None:
                self._add(different, change, match)
            else:
                self.counts["same"] += 1
            if match.old is None or match.new is None or match.keyless:
                continue
            (_, old_shard, old), (_, new_shard, new) = place_of(match.old), place_of(match.new)
            if not by_shard:
                old_shard, old, new_shard, new = 0, old_shard << 40 | old, 0, new_shard << 40 | new
            if old_shard == new_shard:
                kept.add(_ORDER.pack(old_shard, old), marshal.dumps((new, match.places if change is None else None), 2))
            elif change is None:
                self._add(different, "moved", match.places)
        for places in _displaced(kept):
            self._add(different, "moved", places)
        self.counts["same"] -= self.counts["moved"]
        for _, record in different.sorted():
            yield _difference(marshal.loads(record), (first, second))

    def _add(self, different: _Sorted, change: Change, match: Sequence[bytes | None]) -> None:
        self.counts[change] += 1
        _, shard, index = place_of(match[3] or match[1] or b"")
        different.add(_RANK.pack(CHANGES.index(change), shard, index), marshal.dumps((change, tuple(match)), 2))

    def _by_contents(self, groups: Iterable[Group]) -> Iterator[Match]:
        """Yield samples with the same contents together, then those that are left by their keys."""
        left = Multimap(self.tmpdir)
        for _, values in groups:
            pairs, first, second = paired(values)
            for one, other in (*pairs, *zip(first, second, strict=False)):
                (old_key, old), (new_key, new) = _with_key(one), _with_key(other)
                yield Match(old_key, old, new_key, new)
            for value in (*first[len(second) :], *second[len(first) :]):
                left.add(*_with_key(value))
        yield from _by_key(left.groups())


def _digest(contents: bytes) -> bytes:
    return blake2b(contents, digest_size=16).digest()


def _with_key(value: bytes) -> tuple[bytes, bytes]:
    """Return the key, and the place with the contents, of a sample that was stored by its contents."""
    start = PLACE.size + _KEY.size
    stop = start + _KEY.unpack_from(value, PLACE.size)[0]
    return value[start:stop], value[: PLACE.size] + value[stop:]


def _by_key(groups: Iterable[Group]) -> Iterator[Match]:
    """Yield the samples of each key: those that are the same, then others in order, then those of one set alone."""
    for key, values in groups:
        pairs, first, second = paired(values)
        for one, other in (*pairs, *zip(first, second, strict=False)):
            yield Match(key, one, key, other)
        for value in first[len(second) :]:
            yield Match(key, value, key, None)
        for value in second[len(first) :]:
            yield Match(key, None, key, value)


class _Sorted:
    """Records that are sorted by their ranks, in memory and then on disk."""

    def __init__(self, tmpdir: str | None) -> None:
        self._runs = SortedRuns(tmpdir, _HELD)
        self._waiting: list[bytes] = []

    def add(self, rank: bytes, record: bytes) -> None:
        self._waiting.append(pack(rank, self._runs.count + len(self._waiting), record))
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._runs.extend(self._waiting)
        self._waiting = []

    def sorted(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield rank and record."""
        self._flush()
        for block in self._runs.blocks():
            yield from zip(map(rank_of, block), rests_of(block), strict=True)


def _displaced(kept: _Sorted) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Yield keys and places of samples that do not follow the order of the first set: as few as can be in a window."""
    for _, records in groupby(kept.sorted(), lambda pair: _ORDER.unpack(pair[0])[0]):
        floor = -1
        while window := [marshal.loads(record) for _, record in islice(records, WINDOW)]:
            staying, floor = _in_order([place for place, _ in window], floor)
            yield from (match for at, (_, match) in enumerate(window) if match is not None and at not in staying)


def _in_order(places: Sequence[int], floor: int) -> tuple[set[int], int]:
    """Return the indices of a longest increasing subsequence of the places above `floor`, and its last place."""
    tails, ends, before = list[int](), list[int](), [-1] * len(places)
    for at, place in enumerate(places):
        if place > floor:
            length = bisect_left(tails, place)
            before[at] = ends[length - 1] if length else -1
            tails[length : length + 1] = [place]
            ends[length : length + 1] = [at]
    staying, at = set[int](), ends[-1] if ends else -1
    while at >= 0:
        staying.add(at)
        at = before[at]
    return staying, tails[-1] if tails else floor


def _difference(record: Any, sets: Sets) -> Difference:
    change, (old_key, old, new_key, new) = record
    before, after = _sample_place(old_key, old, sets), _sample_place(new_key, new, sets)
    if change != "changed":
        return Difference(change, before, after)
    changes = FieldChanges.between(fields_of(old[PLACE.size :]), fields_of(new[PLACE.size :]))
    return Difference(change, before, after, tuple(changes.words), str(changes))


def _sample_place(key: bytes, value: bytes | None, sets: Sets) -> SamplePlace | None:
    if value is None:
        return None
    side, shard, index = place_of(value)
    return SamplePlace(key, sets[side][shard].shard, index)
