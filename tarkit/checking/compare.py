"""Compare two sets of shards as multisets of samples: a fingerprint of each set, and the differences.

A sample is its key, its fields and their contents (`digest.py`); offset, shard, order of entries, times, modes and
owners are ignored. An entry without a key is a sample of its own; directories are ignored. The fingerprint of a set is
the sum modulo 2^128 of the hashes of its samples, and their number: it does not depend on the order, repeated samples
do not cancel out as they would with XOR, and two different sets collide with probability 2^-128. The sum is not secure
against sets that are constructed to collide.

The key and the hashes of each sample of both sets are stored, in memory and then on disk (`Multimap`), about 60 bytes a
field. If the sums differ, they are grouped by key to find the samples that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from tarkit.checking.digest import KEYLESS_FIELD, Fields, fields_of, sample_hash
from tarkit.checking.fieldsets import listed
from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.shard import CheckedSample
from tarkit.errors import show
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap, in_runs

_PLACE = Struct("<BIQ")  # the set (0 or 1), the index of a shard in it, the offset
_MASK = (1 << 128) - 1

Place = tuple[int, int, int]  # the set (0 or 1), the index of a shard in it, the offset
Sets = tuple[Sequence[ShardReport], Sequence[ShardReport]]
Different = tuple[Place, int, str, bytes, str]


@dataclass
class Total:
    """The fingerprint of a set."""

    samples: int = 0
    entries: int = 0
    value: int = 0

    def __str__(self) -> str:
        return f"{plural(self.samples, 'sample')}, {plural(self.entries, 'entry')}, fingerprint {self.value:032x}"


class Sameness:
    """A comparison of two sets, 0 and 1, whose samples are added in any order; `names` are used in messages."""

    def __init__(self, tmpdir: str | None = None, names: tuple[str, str] = ("this set", "the other")) -> None:
        self.names = names
        self.totals = (Total(), Total())
        self._samples = Multimap(tmpdir)

    def add(self, side: int, index: int, samples: Sequence[CheckedSample]) -> None:
        """Add samples of the shard with this index in a set."""
        total = self.totals[side]
        for key, offset, contents in samples:
            fields = fields_of(contents)
            total.samples += 1
            total.entries += len(fields)
            total.value = (total.value + sample_hash(key, fields)) & _MASK
            self._samples.add(key, _PLACE.pack(side, index, offset) + contents)

    @property
    def same(self) -> bool:
        """Whether both hold the same samples."""
        return self.totals[0] == self.totals[1]

    def findings(self, first: Sequence[ShardReport], second: Sequence[ShardReport]) -> Iterator[Finding]:
        """Yield the samples that differ, sorted unless there are too many; none if the fingerprints are equal.

        Args:
            first, second: the reports on the shards of each set, by index.
        """
        if not self.same:
            sets = (first, second)
            for (side, index, offset), _, name, key, detail in in_runs(self._different(sets)):
                report = sets[side][index]
                yield Finding(name, report.shard, offset if report.located else None, key, detail)

    def _different(self, sets: Sets) -> Iterator[Different]:
        for key, values in self._samples.groups():
            sides: tuple[list[bytes], list[bytes]] = ([], [])
            for value in values:
                sides[value[0]].append(value)
            for number, (place, name, detail) in enumerate(_compared(key, *_unmatched(*sides), sets, self.names)):
                yield place, number, name, key, detail


def _unmatched(first: list[bytes], second: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the samples of each set without an equal sample in the other."""
    head = _PLACE.size
    waiting: dict[bytes, list[bytes]] = {}
    for value in first:
        waiting.setdefault(value[head:], []).append(value)
    alone = []
    for value in second:
        partners = waiting.get(value[head:])
        if partners:
            partners.pop(0)
        else:
            alone.append(value)
    remaining = [value for values in waiting.values() for value in values]
    return sorted(remaining, key=_place), alone


def _place(value: bytes) -> tuple[int, int, int]:
    side, index, offset = _PLACE.unpack_from(value)
    return side, index, offset


def _compared(
    key: bytes, first: list[bytes], second: list[bytes], sets: Sets, names: tuple[str, str]
) -> Iterator[tuple[Place, str, str]]:
    """Yield (place, problem, message) for each difference between the samples of one key."""
    for one, other in zip(first, second, strict=False):
        side, index, start = _place(one)
        difference = _difference(fields_of(one[_PLACE.size :]), fields_of(other[_PLACE.size :]))
        report = sets[side][index]
        where = f"{report.shard} at {start}" if report.located else report.shard
        yield _place(other), "changed-sample", f"{show(key)} {difference}, compared with {where}"
    for value in first[len(second) :]:
        yield _place(value), "missing-sample", f"{_named(key, value)} is not in {names[1]}"
    for value in second[len(first) :]:
        yield _place(value), "extra-sample", f"{_named(key, value)} is only in {names[1]}"


def _named(key: bytes, value: bytes) -> str:
    fields = fields_of(value[_PLACE.size :])
    return (
        show(key)
        if any(name == KEYLESS_FIELD for name, _ in fields)
        else f"{show(key)} ({listed(n for n, _ in fields)})"
    )


def _difference(before: Fields, after: Fields) -> str:
    old, new = dict(before), dict(after)
    differs = [name for name in old if name in new and old[name] != new[name]]
    words = [f"differs in {listed(differs)}"] * bool(differs)
    words += [f"has no {listed(old.keys() - new.keys())}"] * bool(old.keys() - new.keys())
    words += [f"has the additional field {listed(new.keys() - old.keys())}"] * bool(new.keys() - old.keys())
    if not words or len(old) < len(before) or len(new) < len(after):
        words.append("has a field a different number of times")
    return " and ".join(words).replace(show(KEYLESS_FIELD), "its content")
