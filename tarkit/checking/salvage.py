"""Plan and write a clean copy of a damaged archive.

- A sample that touches damage is left out whole: the samples before and after a damaged header, either of which may
  have had its entry; the one with an entry that is cut at the end; the last one, if the end marker is missing. What
  another archive in the same file has of its key is kept. If compressed data fail their checksum, all samples are left
  out, since any of them may be wrong; but each entry of a zip has a checksum of its own, and a sequence of messages has
  none.
- The parts of a scattered sample are gathered at the first part. An entry with a name that its sample already has
  belongs to another sample of that key: it goes to the first of the samples KEY~2, KEY~3 ... without this name.
- A sample with an unsafe name, or with a hard link out of the sample, is left out.
- Entries without a key are dropped. So is a global PAX header of times and owners only; any other one applies to the
  entries that follow, and these are left out.

Two concatenated archives become one. Zeros between entries may also be a hole in the data. They are the end of an
archive if they are two blocks or fill a record, and the samples before and after them have the same fields; else both
samples touch damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.checking.survey import Damage, Survey
from tarkit.errors import show
from tarkit.problems import SHOWN
from tarkit.samples.reader import EntryGroups
from tarkit.samples.sample import is_safe, key_of
from tarkit.streams.codecs.registry import MESSAGES, ZIP
from tarkit.streams.source import Source
from tarkit.tar import block, pax
from tarkit.tar.header import rename
from tarkit.tar.reader import Entry, Raw
from tarkit.tar.writer import EntryWriter

WHOLE = frozenset((ZIP.name, *MESSAGES))  # formats in which damage says nothing about the samples before it
ENDS = ("truncated", "no-end-marker", "bad-data")  # after these problems nothing can be read
_HARMLESS = (b"comment", b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"charset", b"hdrcharset")


class Lost(NamedTuple):
    """Bytes [start, stop) without a whole entry."""

    start: int
    stop: int
    problem: str


class SamplePart:
    """Adjacent entries of one key: those of the key in the bytes [start, stop), with `plain` all entries in them.

    `archive` is the number of the archive, of several concatenated ones.
    """

    __slots__ = ("archive", "count", "plain", "start", "stop")

    def __init__(self, start: int, archive: int) -> None:
        self.archive = archive
        self.start = self.stop = start
        self.count = 0
        self.plain = True

    def read(self, source: Source, key: bytes) -> Iterator[Raw]:
        """Read the entries again."""
        for entry in Survey(source, self.start).entries():
            if key_of(Entry._make(entry)) == key:
                yield entry
            if entry[4] >= self.stop:
                return


class Kept(NamedTuple):
    """A sample of the copy: unchanged parts, or some entries; `key` is its new key, None if it keeps the old one."""

    parts: list[SamplePart]
    entries: list[Raw] | None
    old: bytes
    key: bytes | None


@dataclass
class Salvage:
    """The plan of a clean copy of an archive.

    Attributes:
        source: the archive.
        keys: the parts of each sample, by key.
        keyless: entries without a key.
        lost: bytes without a whole entry.
        bad: the problems of samples that are left out, by key and number of the archive.
        entries: the number of entries.
        unread: the number of entries that depend on a global PAX header.
        cut: the archive ends early, so that nobody knows what else was in it.
    """

    source: Source
    keys: dict[bytes, list[SamplePart]] = field(default_factory=dict)
    keyless: list[Raw] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    bad: dict[tuple[bytes, int], str] = field(default_factory=dict)
    entries: int = 0
    unread: int = 0
    cut: bool = False

    def samples(
        self, taken: set[bytes], known: Container[bytes], before: bytes | None = None
    ) -> Iterator[Kept | tuple[str, bytes, list[Raw]]]:
        """Yield the samples of the copy, and (problem, key, entries) for each sample that is left out.

        Args:
            taken: the keys of the copy so far; those of the yielded samples are added.
            known: keys that no renamed sample gets.
            before: a key that the first sample does not get.
        """
        for key, found in self.keys.items():
            parts = [part for part in found if (key, part.archive) not in self.bad]
            if len(parts) < len(found):
                left = [part for part in found if (key, part.archive) in self.bad]
                entries = [entry for part in left for entry in part.read(self.source, key)]
                yield self.bad[key, left[0].archive], key, entries
            if not parts:
                continue
            if len(parts) == 1 and parts[0].plain and key not in taken and key != before:
                taken.add(key)
                before = None
                yield Kept(parts, None, key, None)
                continue
            for entries in _distinct(entry for part in parts for entry in part.read(self.source, key)):
                new = _new_key(key, taken, known) if key in taken or key == before else None
                if not _movable(entries, new is not None):
                    yield "unmovable-entry", key, entries
                    continue
                taken.add(new or key)
                before = None
                yield Kept([], entries, key, new)


def _distinct(entries: Iterable[Raw]) -> list[list[Raw]]:
    """Split the entries of one key into samples with unique names: each goes to the first sample without its name."""
    samples: list[tuple[set[bytes], list[Raw]]] = []
    for entry in entries:
        for names, sample in samples:
            if entry[0] not in names:
                names.add(entry[0])
                sample.append(entry)
                break
        else:
            samples.append(({entry[0]}, [entry]))
    return [sample for _, sample in samples]


def _movable(entries: list[Raw], renamed: bool) -> bool:
    names: set[bytes] = set()
    for entry in entries:
        if entry[5] == block.HARD_LINK and (renamed or entry[6] not in names):
            return False
        names.add(entry[0])
    return True


def _new_key(key: bytes, taken: Container[bytes], known: Container[bytes]) -> bytes:
    number = 2
    while (new := key + b"~%d" % number) in taken or new in known:
        number += 1
    return new


class _Planner:
    """Makes the plan of the clean copy of an archive."""

    def __init__(self, source: Source, allowed: Container[str]) -> None:
        self.plan = Salvage(source)
        self.allowed = allowed
        self.survey = Survey(source)
        self.groups = EntryGroups()
        self.key: bytes | None = None
        self.part: SamplePart | None = None  # the last part of the sample of that key
        self.first = self.archive = 0  # of several archives, where the current one begins, and its number
        self.cut: tuple[bytes, int, bytes] | None = None  # the key, the archive and the name of an entry that is cut
        self.suspect: str | None = None  # damage that may have destroyed the first entries of the next sample
        self.unreadable = False
        self.border: tuple[bytes, SamplePart] | None = None  # the last sample before a possible end of an archive
        self.borders: list[tuple[tuple[bytes, SamplePart], tuple[bytes, SamplePart]]] = []

    def run(self) -> Salvage:
        """Read all of it."""
        while True:
            for key, entries, plain in self.groups.read(self.survey):
                self.add(key, entries, plain)
            if self.survey.damage is None:
                break
            self.add(*self.groups.take(), False)
            self.damage(self.survey.damage)
        self.add(*self.groups.finish(), False)
        return self.finish()

    def add(self, key: bytes | None, entries: list[Raw], plain: bool) -> None:
        """Plan the entries of a sample, or those before damage."""
        plan = self.plan
        plan.entries += len(entries)
        if not plain or self.unreadable:
            entries = self.with_key(entries)
        if key is None or not entries:
            return
        if key == self.key and self.part is not None:
            part, plain = self.part, False
        else:
            self.key, self.part = key, (part := SamplePart(entries[0][1], self.archive))
            plan.keys.setdefault(key, []).append(part)
            if self.suspect is not None:
                plan.bad.setdefault((key, self.archive), self.suspect)
            if self.border is not None:
                self.borders.append((self.border, (key, part)))
                self.border = None
        self.suspect = None
        part.plain = plain
        part.count += len(entries)
        part.stop = entries[-1][4]
        if (not plain or block.SLASH in key or self.survey.special) and not all(is_safe(entry[0]) for entry in entries):
            plan.bad.setdefault((key, self.archive), "unsafe-name")

    def with_key(self, entries: list[Raw]) -> list[Raw]:
        """Return the entries with a key, and plan the others."""
        plan, found = self.plan, []
        for entry in entries:
            if entry[5] == block.PAX_GLOBAL and not self._is_harmless(entry):
                self.unreadable = True
            if self.unreadable:
                plan.unread += 1
            elif key_of(Entry._make(entry)) is None:
                plan.keyless.append(entry)
            else:
                found.append(entry)
        return found

    def damage(self, damage: Damage) -> None:
        """Plan the samples before and after damage."""
        plan, name = self.plan, damage.problem.name
        nothing = damage.start == damage.stop and name in ("no-end-marker", "bad-data")
        if name in self.allowed and (nothing or name in ("no-end-marker", "zero-filled")):  # zeros that hold no data
            return
        if self.survey.marker is not None and name != "bad-data":  # behind the end of the archive
            return
        if nothing and not plan.entries and not self.groups.keyless:
            plan.lost.append(Lost(0, 0, name))
        start, border = damage.start, False
        if damage.marker is not None:
            zeros = damage.start - damage.marker
            border = zeros == 2 * block.BLOCK or (damage.start - self.first) % block.RECORD == 0
            start = damage.start if border else damage.marker
        plan.cut = plan.cut or name in ENDS
        if damage.stop > start:
            plan.lost.append(Lost(start, damage.stop, name))
        if damage.key is not None and damage.cut is not None:
            self.cut = damage.key, self.archive, damage.cut
        if damage.key is not None and damage.key != self.key:
            plan.bad[damage.key, self.archive] = name
        if name == "bad-data" and name not in self.allowed and plan.source.codec not in WHOLE:
            every = [(key, part.archive) for key, parts in plan.keys.items() for part in parts]
            plan.bad = {**dict.fromkeys(every, name), **plan.bad}
        if self.key is not None and not border and damage.key in (None, self.key):
            plan.bad.setdefault((self.key, self.archive), name)
        if not border or damage.stop > damage.start:
            self.suspect = name
        if damage.marker is not None:
            if border and self.key is not None and self.part is not None:
                self.border = (self.key, self.part)
            self.key = self.part = None
            self.first = damage.stop
            self.archive += border

    def finish(self) -> Salvage:
        """Return the plan, once all entries were read."""
        plan = self.plan
        plan.cut = plan.cut and self.survey.marker is None
        for sides in self.borders:
            fields = [self.fields(key, part) for key, part in sides]
            if fields[0] != fields[1]:
                for key, part in sides:
                    plan.bad.setdefault((key, part.archive), "trailing-data")
        there = {(key, part.archive) for key, parts in plan.keys.items() for part in parts}
        plan.bad = {place: why for place, why in plan.bad.items() if place in there}
        return plan

    def fields(self, key: bytes, part: SamplePart) -> list[bytes]:
        """Return the fields of a part, with that of an entry which is cut there."""
        names = [entry[0] for entry in part.read(self.plan.source, key)]
        if self.cut is not None and self.cut[:2] == (key, part.archive):
            names.append(self.cut[2])
        return sorted(name[len(key) :] for name in names)

    def _is_harmless(self, entry: Raw) -> bool:
        payload = self.plan.source.read(entry[2], entry[2] + entry[3])
        return all(keyword in _HARMLESS for keyword, _ in pax.parse_pairs(payload))


def salvage(source: Source, allowed: Container[str] = ()) -> Salvage:
    """Read an archive and return the plan of its clean copy; the source must be seekable."""
    return _Planner(source, allowed).run()


# ---- Write the clean copy that a plan describes, and account for every entry


@dataclass
class Tally:
    """The account of the entries of an input: `entries` is the sum of `kept`, `renamed`, `dropped` and `rejected`.

    `samples` is the number of samples of the copy, `why` that of samples left out, by problem.
    """

    shard: str
    output: str | None = None
    samples: int = 0
    entries: int = 0
    kept: int = 0
    renamed: int = 0
    dropped: int = 0
    rejected: int = 0
    why: Counter[str] = field(default_factory=Counter)
    names: list[tuple[bytes, bytes]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    cut: bool = False

    @property
    def whole(self) -> bool:
        """Whether every sample is in the copy."""
        return not self.rejected and not self.lost

    def lines(self, every: bool) -> Iterator[str]:
        """Yield the account as text: sums, new names, lost ranges; of the last two the first few, or `every` one."""
        where = f" -> {self.output}" if self.output else ": no copy, no sample left"
        yield (
            f"{self.shard}{where}: {self.entries} entries = {self.kept} kept + {self.renamed} renamed"
            f" + {self.dropped} dropped + {self.rejected} rejected; {self.samples} samples"
        )
        if self.why:
            counts = ", ".join(f"{number} for {name}" for name, number in self.why.items())
            yield f"{self.shard}: samples left out: {counts}"
        limit = None if every else SHOWN
        for old, new in self.names[:limit]:
            yield f"{self.shard}: {show(old)} renamed to {show(new)}"
        if limit is not None and len(self.names) > limit:
            yield f"{self.shard}: {len(self.names) - limit} more renamed; -v prints all"
        for start, stop, problem in self.lost[:limit]:
            what = f"bytes {start} to {stop} are lost, {stop - start} bytes" if stop else "empty input"
            yield f"{self.shard}: {what} [{problem}]"
        if limit is not None and len(self.lost) > limit:
            yield f"{self.shard}: {len(self.lost) - limit} more ranges are lost; -v prints all"
        if self.cut:
            yield f"{self.shard}: it ends early: what followed is lost as well, and not counted"

    @property
    def record(self) -> dict[str, Any]:
        """The account as JSON."""
        numbers = {
            name: getattr(self, name) for name in ("samples", "entries", "kept", "renamed", "dropped", "rejected")
        }
        return {
            "type": "fix",
            "shard": self.shard,
            "output": self.output,
            **numbers,
            "why": dict(self.why),
            "names": [[show(old)[1:-1], show(new)[1:-1]] for old, new in self.names],
            "ends_early": self.cut,
            "lost": [{"start": start, "stop": stop, "problem": problem} for start, stop, problem in self.lost],
        }


class AnyOf:
    """The union of several containers of keys."""

    def __init__(self, parts: Sequence[Container[bytes]]) -> None:
        self.parts = parts

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self.parts)


def write_clean(
    plan: Salvage,
    tally: Tally,
    copy: Callable[[], EntryWriter],
    rejects: EntryWriter | None,
    taken: set[bytes],
    known: Container[bytes],
    before: bytes | None = None,
) -> bytes | None:
    """Write the clean copy of an archive, and the entries that are left out.

    Args:
        plan: the plan of the copy.
        tally: the account to fill in.
        copy: returns the writer of the copy; called only if a sample is kept.
        rejects: the writer of the entries that are left out.
        taken, known, before: as for `Salvage.samples`.

    Returns:
        The key of the last sample of the copy, None if it has no sample.
    """
    source = plan.source
    tally.entries, tally.lost, tally.cut = plan.entries, plan.lost, plan.cut
    last = None
    for item in plan.samples(taken, known, before):
        if isinstance(item, Kept):
            _write(item, source, copy(), tally)
            last = item.key or item.old
            continue
        why, _, entries = item
        tally.why[why] += 1
        tally.rejected += len(entries)
        _append(rejects, source, entries)
    tally.dropped += len(plan.keyless)
    _append(rejects, source, [entry for entry in plan.keyless if entry[5] != block.PAX_GLOBAL])
    tally.rejected += plan.unread
    if plan.unread:
        tally.why["unmovable-entry"] += 1
    if tally.entries != tally.kept + tally.renamed + tally.dropped + tally.rejected:
        raise AssertionError(f"{tally.shard}: entries are not accounted for: {tally}")
    return last


def _write(item: Kept, source: Source, writer: EntryWriter, tally: Tally) -> None:
    tally.samples += 1
    if item.entries is None:
        for part in item.parts:
            writer.append(source, part.start, part.stop)
            tally.kept += part.count
        return
    if item.key is None:
        _append(writer, source, item.entries)
        tally.kept += len(item.entries)
        return
    tally.names.append((item.old, item.key))
    cut = len(item.old)
    for entry in item.entries:
        header = rename(source.read(entry[1], entry[2]), item.key + entry[0][cut:])
        writer.raw((header,), len(header))
        if entry[4] > entry[2]:
            writer.append(source, entry[2], entry[4])
    tally.renamed += len(item.entries)


def _append(writer: EntryWriter | None, source: Source, entries: list[Raw]) -> None:
    if writer is not None:
        for entry in entries:
            writer.append(source, entry[1], entry[4])
