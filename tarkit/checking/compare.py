"""Compare two sets of shards as multisets of samples: a fingerprint of each set, and the differences.

A sample is its key, its fields and their contents (`digest.py`); offset, shard, order of entries, times, modes and
owners are ignored. An entry without a key is a sample of its own; directories are ignored. The fingerprint of a set is
the sum modulo 2^128 of the hashes of its samples, and their number: it does not depend on the order, repeated samples
do not cancel out as they would with XOR, and two different sets collide with probability 2^-128. The sum is not secure
against sets that are constructed to collide.

The key and the hashes of each sample of both sets are stored, in memory and then on disk (`Multimap`), about 60 bytes a
field. They are grouped to find the samples that differ: `Sameness` does so if the sums differ, `diff.Diff` always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from tarkit.checking.digest import KEYLESS_FIELD, Fields, fields_of, is_keyless, sample_hash
from tarkit.checking.fieldsets import listed
from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.shard import CheckedSample
from tarkit.errors import show
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap, in_runs

PLACE = Struct("<BIQ")  # the set (0 or 1), the index of a shard in it, where the sample is there
_MASK = (1 << 128) - 1

Place = tuple[int, int, int]  # the same
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


class SampleSets:
    """Two sets, 0 and 1, whose samples are added shard by shard; `names` are used in messages."""

    def __init__(self, tmpdir: str | None = None, names: tuple[str, str] = ("this set", "the other")) -> None:
        self.names = names
        self.tmpdir = tmpdir
        self.totals = (Total(), Total())
        self.samples = Multimap(tmpdir)

    def add(self, side: int, index: int, samples: Sequence[CheckedSample]) -> None:
        """Add samples of the shard with this index in a set."""
        total = self.totals[side]
        for key, offset, contents in samples:
            fields = fields_of(contents)
            total.samples += 1
            total.entries += len(fields)
            total.value = (total.value + sample_hash(key, fields)) & _MASK
            self.keep(side, index, offset, key, contents)

    def keep(self, side: int, index: int, offset: int, key: bytes, contents: bytes) -> None:
        """Store a sample."""
        self.samples.add(key, PLACE.pack(side, index, offset) + contents)

    @property
    def same(self) -> bool:
        """Whether both hold the same samples."""
        return self.totals[0] == self.totals[1]


class Sameness(SampleSets):
    """Whether two sets have the same samples, in any order."""

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
        for key, values in self.samples.groups():
            _, first, second = paired(values)
            for number, (place, name, detail) in enumerate(_compared(key, first, second, sets, self.names)):
                yield place, number, name, key, detail


def paired(values: Iterable[bytes]) -> tuple[list[tuple[bytes, bytes]], list[bytes], list[bytes]]:
    """Return pairs of equal samples of both sets, and the samples of each that have no equal one in the other.

    Args:
        values: samples, each a `PLACE` and what is compared, of each set in order.
    """
    head = PLACE.size
    waiting: dict[bytes, list[bytes]] = {}
    second = []
    for value in values:
        if value[0]:
            second.append(value)
        else:
            waiting.setdefault(value[head:], []).append(value)
    for partners in waiting.values():
        partners.reverse()
    pairs, alone = [], []
    for value in second:
        if partners := waiting.get(value[head:], []):
            pairs.append((partners.pop(), value))
        else:
            alone.append(value)
    remaining = [value for values in waiting.values() for value in values]
    return pairs, sorted(remaining, key=place_of), alone


def place_of(value: bytes) -> Place:
    """Return the place of a stored sample."""
    side, index, offset = PLACE.unpack_from(value)
    return side, index, offset


def _compared(
    key: bytes, first: list[bytes], second: list[bytes], sets: Sets, names: tuple[str, str]
) -> Iterator[tuple[Place, str, str]]:
    """Yield (place, problem, message) for each difference between the samples of one key."""
    for one, other in zip(first, second, strict=False):
        side, index, start = place_of(one)
        changes = FieldChanges.between(fields_of(one[PLACE.size :]), fields_of(other[PLACE.size :]))
        report = sets[side][index]
        where = f"{report.shard} at {start}" if report.located else report.shard
        yield place_of(other), "changed-sample", f"{show(key)} {changes}, compared with {where}"
    for value in first[len(second) :]:
        yield place_of(value), "extra-sample", f"{_named(key, value)} is not in {names[1]}"
    for value in second[len(first) :]:
        yield place_of(value), "missing-sample", f"{_named(key, value)} is only in {names[1]}"


def _named(key: bytes, value: bytes) -> str:
    contents = value[PLACE.size :]
    return show(key) if is_keyless(contents) else f"{show(key)} ({listed(name for name, _ in fields_of(contents))})"


class FieldChanges(NamedTuple):
    """How the fields of two samples differ.

    Attributes:
        differs: fields with other contents.
        removed, added: fields that one of them lacks.
        repeated: a field is there a different number of times.
    """

    differs: list[bytes]
    removed: list[bytes]
    added: list[bytes]
    repeated: bool

    @classmethod
    def between(cls, before: Fields, after: Fields) -> FieldChanges:
        """Compare the fields of two samples."""
        old, new = dict(before), dict(after)
        differs = [name for name in old if name in new and old[name] != new[name]]
        removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        alike = not (differs or removed or added)
        return cls(differs, removed, added, alike or len(old) < len(before) or len(new) < len(after))

    def __str__(self) -> str:
        words = [f"differs in {listed(self.differs)}"] * bool(self.differs)
        words += [f"has no {listed(self.removed)}"] * bool(self.removed)
        words += [f"has the additional field {listed(self.added)}"] * bool(self.added)
        words += ["has a field a different number of times"] * self.repeated
        return " and ".join(words).replace(show(KEYLESS_FIELD), "its content")

    @property
    def words(self) -> list[bytes]:
        """The fields: those with other contents, `-NAME` and `+NAME`."""
        differs = [name for name in self.differs if name != KEYLESS_FIELD]
        return [*differs, *(b"-" + name for name in self.removed), *(b"+" + name for name in self.added)]
