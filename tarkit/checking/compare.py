"""Whether two sets of shards hold the same samples, in any order: a fingerprint, and what differs.

A sample is its key, its fields and their contents (`digest.py`): not its place, its shard, the order of its entries,
times, modes or owners. An entry without a key is taken for a sample of its own; folders do not count. The fingerprint
of a set is the sum modulo 2^128 of the hashes of its samples, and their number: it does not depend on the order, a
sample that comes twice does not cancel itself as it would with XOR, and two different sets have one fingerprint by
chance once in 2^128. (It is no proof against somebody who makes them alike on purpose.)

Which samples differ, the sums cannot say: so the key and the hashes of each sample of both sets are kept, in memory and
then on disk (`Multimap`), about 60 bytes a field, and gathered by key when the sums differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from tarkit.checking.digest import STRAY, Fields, fields_of, sample_hash
from tarkit.checking.fieldsets import listed
from tarkit.checking.findings import Finding, Report
from tarkit.checking.shard import Seen
from tarkit.errors import show
from tarkit.spill.multimap import Multimap, in_runs

_PLACE = Struct("<BIQ")  # which set, the number of a shard in it, the offset
_ALL = (1 << 128) - 1

Place = tuple[int, int, int]  # which set, the number of a shard in it, the offset
Sets = tuple[Sequence[Report], Sequence[Report]]
Different = tuple[Place, int, str, bytes, str]


@dataclass
class Total:
    """The fingerprint of a set."""

    samples: int = 0
    entries: int = 0
    value: int = 0

    def __str__(self) -> str:
        return f"{self.samples} samples, {self.entries} entries, fingerprint {self.value:032x}"


class Sameness:
    """Two sets, 0 and 1, whose samples come in any order; `names` are those that messages call them by."""

    def __init__(self, tmpdir: str | None = None, names: tuple[str, str] = ("this set", "the other")) -> None:
        self.names = names
        self.totals = (Total(), Total())
        self._ledger = Multimap(tmpdir)

    def add(self, which: int, index: int, samples: Sequence[Seen]) -> None:
        """Samples of shard number `index` of a set."""
        total = self.totals[which]
        for key, offset, contents in samples:
            fields = fields_of(contents)
            total.samples += 1
            total.entries += len(fields)
            total.value = (total.value + sample_hash(key, fields)) & _ALL
            self._ledger.add(key, _PLACE.pack(which, index, offset) + contents)

    @property
    def same(self) -> bool:
        """Whether both hold the same samples."""
        return self.totals[0] == self.totals[1]

    def findings(self, first: Sequence[Report], second: Sequence[Report]) -> Iterator[Finding]:
        """The samples that differ, in order if they are not too many; nothing when the fingerprints are equal."""
        if not self.same:
            sets = (first, second)
            for (which, index, offset), _, name, key, detail in in_runs(self._different(sets)):
                yield Finding(name, sets[which][index].shard, offset, key, detail)

    def _different(self, sets: Sets) -> Iterator[Different]:
        for key, values in self._ledger.groups():
            sides: tuple[list[bytes], list[bytes]] = ([], [])
            for value in values:
                sides[value[0]].append(value)
            for number, (place, name, detail) in enumerate(_compared(key, *_uneven(*sides), sets, self.names)):
                yield place, number, name, key, detail


def _uneven(first: list[bytes], second: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Those of each side that the other does not have, each as often as it has no partner."""
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
    left = [value for values in waiting.values() for value in values]
    return sorted(left, key=_place), alone


def _place(value: bytes) -> tuple[int, int, int]:
    which, index, offset = _PLACE.unpack_from(value)
    return which, index, offset


def _compared(
    key: bytes, first: list[bytes], second: list[bytes], sets: Sets, names: tuple[str, str]
) -> Iterator[tuple[Place, str, str]]:
    """What differs between the samples of one key: where, the problem, what a message says."""
    for one, other in zip(first, second, strict=False):
        which, index, start = _place(one)
        what = _difference(fields_of(one[_PLACE.size :]), fields_of(other[_PLACE.size :]))
        yield (
            _place(other),
            "changed-sample",
            f"{show(key)} {what}, compared with {sets[which][index].shard} at {start}",
        )
    for value in first[len(second) :]:
        yield _place(value), "missing-sample", f"{_named(key, value)} is not in {names[1]}"
    for value in second[len(first) :]:
        yield _place(value), "extra-sample", f"{_named(key, value)} is in {names[1]} alone"


def _named(key: bytes, value: bytes) -> str:
    fields = fields_of(value[_PLACE.size :])
    return show(key) if any(name == STRAY for name, _ in fields) else f"{show(key)} ({listed(n for n, _ in fields)})"


def _difference(before: Fields, after: Fields) -> str:
    """What differs between two samples of one key."""
    old, new = dict(before), dict(after)
    differs = [name for name in old if name in new and old[name] != new[name]]
    words = [f"differs in {listed(differs)}"] * bool(differs)
    words += [f"has no {listed(old.keys() - new.keys())}"] * bool(old.keys() - new.keys())
    words += [f"has {listed(new.keys() - old.keys())} besides"] * bool(new.keys() - old.keys())
    if not words or len(old) < len(before) or len(new) < len(after):
        words.append("has a field another number of times")
    return " and ".join(words).replace(show(STRAY), "its content")
