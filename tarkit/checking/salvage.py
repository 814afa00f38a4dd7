"""Plan and write a clean copy of a damaged archive.

- A sample that touches damage is left out whole: the samples before and after a damaged header, either of which may
  have had its entry; the one with an entry that is cut at the end; the last one, if the end marker is missing. What
  another archive in the same file has of its key is kept. If compressed data fail their checksum, all samples are left
  out, since any of them may be wrong; but each entry of a zip has a checksum of its own, and a sequence of messages has
  none.
- The parts of a scattered sample are gathered at the first part. An entry with a name that its sample already has
  belongs to another sample of that key: it goes to the first of the samples KEY~2, KEY~3 ... without this name.
- A sample with an unsafe name, a hard link out of the sample, or content that cannot be decoded is left out.
- Entries without a key are dropped. So is a global PAX header of times and owners only; any other one applies to the
  entries that follow, and these are left out.

Two concatenated archives become one. Zeros between entries may also be a hole in the data. They are the end of an
archive if they are two blocks or fill a record, and the samples before and after them have the same fields; else both
samples touch damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.checking.survey import Damage, Survey
from tarkit.errors import show
from tarkit.problems import SHOWN
from tarkit.samples.checks import links_outside
from tarkit.samples.sample import is_safe, key_of
from tarkit.sizes import plural
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

    def read(self, source: Source, key: bytes) -> Iterator[Entry]:
        """Read the entries again."""
        for entry in map(Entry._make, Survey(source, self.start).entries()):
            if key_of(entry) == key:
                yield entry
            if entry.stop >= self.stop:
                return


class KeptSample(NamedTuple):
    """A sample of the copy: an unchanged part, or some entries; `new` is its new key, None if it keeps its own."""

    key: bytes
    part: SamplePart | None
    entries: list[Entry]
    new: bytes | None = None


class RejectedSample(NamedTuple):
    """A sample that is left out, and for which problem."""

    problem: str
    entries: list[Entry]


class Salvage:
    """The plan of a clean copy of an archive, made by reading it.

    Args:
        source: the archive; it must be seekable.
        allowed: problems that are kept as they are.
        bad: the offsets of entries with bad content.

    Attributes:
        keys: the parts of each sample, by key.
        keyless: entries without a key.
        lost: bytes without a whole entry.
        bad: the problems of samples that are left out, by key and number of the archive.
        unread: the number of entries that depend on a global PAX header.
        cut: the archive ends early; the rest of its content is unknown.
    """

    def __init__(self, source: Source, allowed: Container[str] = (), bad: Container[int] = ()) -> None:
        self.source = source
        self.keys: dict[bytes, list[SamplePart]] = {}
        self.keyless: list[Entry] = []
        self.lost: list[Lost] = []
        self.bad: dict[tuple[bytes, int], str] = {}
        self.entries = self.unread = 0
        self.cut = False
        self._allowed = allowed
        self._bad_entries = bad
        self._survey = Survey(source)
        self._key: bytes | None = None
        self._part: SamplePart | None = None  # the last part of the sample of that key
        self._first = self._archive = 0  # of several archives, where the current one begins, and its number
        self._cut: tuple[bytes, int, bytes] | None = None  # the key, the archive and the name of an entry that is cut
        self._suspect: str | None = None  # damage that may have destroyed the first entries of the next sample
        self._depends = False  # whether a global header was read on which the entries depend
        self._border: tuple[bytes, SamplePart] | None = None  # the last sample before a possible end of an archive
        self._borders: list[tuple[tuple[bytes, SamplePart], tuple[bytes, SamplePart]]] = []
        for item in self._survey.samples(apart=True):
            if isinstance(item, Damage):
                self._damage(item)
            else:
                self._add(*item)
        self._finish()

    def samples(
        self, taken: set[bytes], reserved: Container[bytes], before: bytes | None = None
    ) -> Iterator[KeptSample | RejectedSample]:
        """Yield the samples of the copy, and those that are left out.

        Args:
            taken: the keys of the copy so far; those of the yielded samples are added.
            reserved: keys that no renamed sample gets.
            before: a key that the first sample does not get.
        """
        for key, all_parts in self.keys.items():
            bad = [part for part in all_parts if (key, part.archive) in self.bad]
            parts = [part for part in all_parts if (key, part.archive) not in self.bad]
            if bad:
                yield RejectedSample(self.bad[key, bad[0].archive], self._read(bad, key))
            if len(parts) == 1 and parts[0].plain and key not in taken and key != before:
                taken.add(key)
                before = None
                yield KeptSample(key, parts[0], [])
                continue
            for entries in _distinct(self._read(parts, key)):
                new = _new_key(key, taken, reserved) if key in taken or key == before else None
                if not _movable(entries, new is not None):
                    yield RejectedSample("unmovable-entry", entries)
                    continue
                taken.add(new or key)
                before = None
                yield KeptSample(key, None, entries, new)

    def _read(self, parts: Iterable[SamplePart], key: bytes) -> list[Entry]:
        return [entry for part in parts for entry in part.read(self.source, key)]

    def _add(self, key: bytes | None, raw: list[Raw], plain: bool) -> None:
        self.entries += len(raw)
        if not plain or self._depends:
            raw = self._with_key(raw)
        if key is None or not raw:
            return
        start, stop = Entry._make(raw[0]).start, Entry._make(raw[-1]).stop
        if key == self._key and self._part is not None:
            part, plain = self._part, False
        else:
            self._key, self._part = key, (part := SamplePart(start, self._archive))
            self.keys.setdefault(key, []).append(part)
            if self._suspect is not None:
                self.bad.setdefault((key, self._archive), self._suspect)
            if self._border is not None:
                self._borders.append((self._border, (key, part)))
                self._border = None
        self._suspect = None
        part.plain = plain
        part.count += len(raw)
        part.stop = stop
        if (not plain or block.SLASH in key or self._survey.special) and not all(is_safe(name) for name, *_ in raw):
            self.bad.setdefault((key, self._archive), "unsafe-name")
        if self._bad_entries and any(entry[1] in self._bad_entries for entry in raw):
            self.bad.setdefault((key, self._archive), "bad-content")

    def _with_key(self, raw: list[Raw]) -> list[Raw]:
        keyed: list[Raw] = []
        for entry in map(Entry._make, raw):
            if entry.type == block.PAX_GLOBAL and not self._is_harmless(entry):
                self._depends = True
            if self._depends:
                self.unread += 1
            elif key_of(entry) is None:
                self.keyless.append(entry)
            else:
                keyed.append(entry)
        return keyed

    def _is_harmless(self, entry: Entry) -> bool:
        payload = self.source.read(entry.data, entry.data + entry.size)
        return all(keyword in _HARMLESS for keyword, _ in pax.parse_pairs(payload))

    def _damage(self, damage: Damage) -> None:
        name = damage.problem.name
        nothing = damage.start == damage.stop and name in ("no-end-marker", "bad-data")
        if name in self._allowed and (nothing or name in ("no-end-marker", "zero-filled")):  # zeros that hold no data
            return
        if self._survey.marker is not None and name != "bad-data":  # behind the end of the archive
            return
        if nothing and not self.entries and not self._survey.groups.keyless:
            self.lost.append(Lost(0, 0, name))
        start, border = damage.start, False
        if damage.marker is not None:
            zeros = damage.start - damage.marker
            border = zeros == 2 * block.BLOCK or (damage.start - self._first) % block.RECORD == 0
            start = damage.start if border else damage.marker
        self.cut = self.cut or name in ENDS
        if damage.stop > start:
            self.lost.append(Lost(start, damage.stop, name))
        if damage.key is not None and damage.cut is not None:
            self._cut = damage.key, self._archive, damage.cut
        if damage.key is not None and damage.key != self._key:
            self.bad[damage.key, self._archive] = name
        if name == "bad-data" and name not in self._allowed and self.source.codec not in WHOLE:
            every = [(key, part.archive) for key, parts in self.keys.items() for part in parts]
            self.bad = {**dict.fromkeys(every, name), **self.bad}
        if self._key is not None and not border and damage.key in (None, self._key):
            self.bad.setdefault((self._key, self._archive), name)
        if not border or damage.stop > damage.start:
            self._suspect = name
        if damage.marker is not None:
            if border and self._key is not None and self._part is not None:
                self._border = (self._key, self._part)
            self._key = self._part = None
            self._first = damage.stop
            self._archive += border

    def _finish(self) -> None:
        """Decide about zeros between entries, and forget problems of samples that are not there."""
        self.cut = self.cut and self._survey.marker is None
        for sides in self._borders:
            fields = [self._fields(key, part) for key, part in sides]
            if fields[0] != fields[1]:
                for key, part in sides:
                    self.bad.setdefault((key, part.archive), "trailing-data")
        there = {(key, part.archive) for key, parts in self.keys.items() for part in parts}
        self.bad = {place: why for place, why in self.bad.items() if place in there}

    def _fields(self, key: bytes, part: SamplePart) -> list[bytes]:
        """Return the fields of a part, with that of an entry which is cut there."""
        names = [entry.name for entry in part.read(self.source, key)]
        if self._cut is not None and self._cut[:2] == (key, part.archive):
            names.append(self._cut[2])
        return sorted(name[len(key) :] for name in names)


def _distinct(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Split the entries of one key into samples with unique names: each goes to the first sample without its name."""
    samples: list[dict[bytes, Entry]] = []
    for entry in entries:
        sample = next((sample for sample in samples if entry.name not in sample), None)
        if sample is None:
            samples.append(sample := {})
        sample[entry.name] = entry
    return [list(sample.values()) for sample in samples]


def _movable(entries: list[Entry], renamed: bool) -> bool:
    """Return whether the hard links of a sample, if there are any, still lead to entries of it in the copy."""
    if renamed:
        return all(entry.type != block.HARD_LINK for entry in entries)
    return next(links_outside(entries, set()), None) is None


def _new_key(key: bytes, taken: Container[bytes], reserved: Container[bytes]) -> bytes:
    number = 2
    while (new := key + b"~%d" % number) in taken or new in reserved:
        number += 1
    return new


# ---- Write the clean copy that a plan describes, and account for every entry


SUMMANDS = ("kept", "renamed", "dropped", "rejected")
NUMBERS = ("entries", *SUMMANDS, "samples")


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

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of entries, and that of samples."""
        return {name: getattr(self, name) for name in NUMBERS}

    def lines(self, every: bool) -> Iterator[str]:
        """Yield the account as text: sums, new names, lost ranges; of the last two the first few, or `every` one."""
        where = f" -> {self.output}" if self.output else ": no copy, no sample left"
        yield f"{self.shard}{where}: {sums(self.numbers)}; {plural(self.samples, 'sample')}"
        if self.why:
            counts = ", ".join(f"{number} for {name}" for name, number in self.why.items())
            yield f"{self.shard}: samples left out: {counts}"
        limit = None if every else SHOWN
        for old, new in self.names[:limit]:
            yield f"{self.shard}: {show(old)} renamed to {show(new)}"
        if limit is not None and len(self.names) > limit:
            yield f"{self.shard}: {len(self.names) - limit} more renamed; -v prints all"
        for start, stop, problem in self.lost[:limit]:
            words = f"bytes {start} to {stop} are lost, {plural(stop - start, 'byte')}" if stop else "empty input"
            yield f"{self.shard}: {words} [{problem}]"
        if limit is not None and len(self.lost) > limit:
            more = plural(len(self.lost) - limit, "more range is", "more ranges are")
            yield f"{self.shard}: {more} lost; -v prints all"
        if self.cut:
            yield f"{self.shard}: it ends early: what followed is lost as well, and not counted"

    @property
    def record(self) -> dict[str, Any]:
        """The account as JSON."""
        return {
            "type": "fix",
            "shard": self.shard,
            "output": self.output,
            "samples": self.samples,
            **self.numbers,
            "why": dict(self.why),
            "names": [[show(old)[1:-1], show(new)[1:-1]] for old, new in self.names],
            "ends_early": self.cut,
            "lost": [lost._asdict() for lost in self.lost],
        }


def sums(numbers: Mapping[str, int]) -> str:
    """Return the account of entries in words: their number, and its summands."""
    return f"{plural(numbers['entries'], 'entry')} = {' + '.join(f'{numbers[name]} {name}' for name in SUMMANDS)}"


def write_clean(
    plan: Salvage,
    tally: Tally,
    copy: Callable[[], EntryWriter],
    rejects: EntryWriter | None,
    taken: set[bytes],
    reserved: Container[bytes],
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
    source, last = plan.source, None
    tally.entries, tally.lost, tally.cut = plan.entries, plan.lost, plan.cut
    for sample in plan.samples(taken, reserved, before):
        if isinstance(sample, KeptSample):
            _write(sample, source, copy(), tally)
            last = sample.new or sample.key
        else:
            tally.why[sample.problem] += 1
            tally.rejected += len(sample.entries)
            _append(rejects, source, sample.entries)
    tally.dropped += len(plan.keyless)
    _append(rejects, source, [entry for entry in plan.keyless if entry.type != block.PAX_GLOBAL])
    tally.rejected += plan.unread
    if plan.unread:
        tally.why["unmovable-entry"] += 1
    if tally.entries != sum(getattr(tally, name) for name in SUMMANDS):
        raise AssertionError(f"{tally.shard}: entries are not accounted for: {tally}")
    return last


def _write(sample: KeptSample, source: Source, writer: EntryWriter, tally: Tally) -> None:
    tally.samples += 1
    if sample.part is not None:
        writer.append(source, sample.part.start, sample.part.stop)
        tally.kept += sample.part.count
    elif sample.new is None:
        _append(writer, source, sample.entries)
        tally.kept += len(sample.entries)
    else:
        tally.names.append((sample.key, sample.new))
        for entry in sample.entries:
            header = rename(source.read(entry.start, entry.data), sample.new + entry.name[len(sample.key) :])
            writer.raw((header,), len(header))
            if entry.stop > entry.data:
                writer.append(source, entry.data, entry.stop)
        tally.renamed += len(sample.entries)


def _append(writer: EntryWriter | None, source: Source, entries: list[Entry]) -> None:
    if writer is not None:
        for entry in entries:
            writer.append(source, entry.start, entry.stop)
