"""Check one shard: read all of it whatever is wrong, say what is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from struct import Struct
from typing import Any

from tarkit.checking.digest import ContentHash
from tarkit.checking.fieldsets import FieldSet, FieldSets
from tarkit.checking.findings import GATHERS, GLOBAL_REPAIR, Finding, Report
from tarkit.checking.survey import Damage, Survey
from tarkit.checking.targets import ReaderRules
from tarkit.errors import TarkitError, Usage, show
from tarkit.problems import PROBLEMS
from tarkit.samples.dataset import open_source
from tarkit.samples.reader import (
    GLOBAL,
    equal_parts,
    leading_out,
    said_leading_out,
    said_twice,
    says_more,
    scattered_hint,
    twice,
)
from tarkit.samples.sample import KEYLESS, Recent, SampleSource, is_safe, key_of, split_name
from tarkit.spill.multimap import Multimap
from tarkit.streams.location import Location
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

BATCH = 1000  # samples that are handed on together

Seen = tuple[bytes, int, bytes]  # of a sample: its key, its offset, what its contents are if that was asked for
Item = Finding | list[Seen] | Report

_OFFSET = Struct("<Q")


@dataclass(frozen=True)
class Asked:
    """What to look for besides what is always looked for.

    `require`: fields, in lower case, each with its alternatives. `keys`: hand on every sample. `contents`: with a hash
    of each entry, and nothing but damage is looked for. `digest`: the file's length and sha256.
    """

    require: tuple[tuple[bytes, ...], ...] = ()
    target: str | None = None
    keys: bool = False
    contents: bool = False
    digest: bool = False
    tmpdir: str | None = None


class ShardCheck:
    """Iterate over what is found in one archive; its `report` is complete at the end."""

    def __init__(self, source: SampleSource, asked: Asked, target: ReaderRules | None = None) -> None:
        self.source = source
        self.asked = asked
        self.report = Report(source.name)
        self._target = target
        self._survey = Survey(source)
        self._sets = FieldSets(source.name)
        self._keys = Multimap(asked.tmpdir)
        self._found: list[Finding] = []
        self._batch: list[Seen] = []
        self._strays: list[Raw] = []  # entries without key that stand in the current sample, or behind it
        self._stray_names = Recent()
        self._linked = False  # a hard link is in the current sample or among those
        self._damage = False
        self._folders = 0
        self._folder: Raw | None = None  # the first
        self._contents = ContentHash(source) if asked.contents else None
        self._last: Raw | None = None

    def __iter__(self) -> Iterator[Item]:
        """Yield findings, and the samples if they were asked for."""
        yield from self._entries()
        if self._damage and not self._survey.found and (self._survey.end or self.source.failure is not None):
            self.report.readable = False
            what, repair = "no whole entry was found", "it is no archive, or nothing is left of it: fetch it again"
            self._found.append(Finding("unreadable-shard", self.source.name, None, None, what, "error", repair))
        self._scattered()
        if not self.asked.contents:
            self._found += self._sets.notes()
            if self._folder is not None:
                what = (
                    f"{self._folders} entries are folders, which no reader needs; the first is {show(self._folder[0])}"
                )
                self._note("stray-entry", self._folder[1], None, what)
            if (odd := self._survey.odd_end) is not None:
                self._note("odd-end", self._survey.marker or 0, None, odd)
        if self._target is not None:
            self._found += self._target.closed(self.report.samples)
        yield from self._found
        if self._batch:
            yield self._batch
        self.report.size = self._survey.end
        self.report.fields = dict(self._sets.counts().most_common(1))

    def _entries(self) -> Iterator[Item]:
        key: bytes | None = None
        entries: list[Raw] = []
        prefix, length, found = b"", 0, self._found
        each = self._each if self._target is not None or self._contents is not None else None
        for entry in self._survey:
            name: Any = entry[0]
            if length and entry[5] == b"0" and name.startswith(prefix) and name.find(b"/", length) < 0:
                if each is not None:
                    each(entry)  # type: ignore[arg-type]
                entries.append(entry)  # type: ignore[arg-type]
                continue
            if isinstance(entry, Damage):
                self._damaged(entry, key)
                if entry.glued and key is not None:
                    self._settle()
                    self._close(key, entries, length)
                    key, length, entries = None, 0, []
                continue
            if each is not None:
                each(entry)
            parts = None if entry[5] in KEYLESS else split_name(name)
            own = None if parts is None else parts[0]
            if own is None:
                self._stray(entry)
                continue
            if own != key:
                if key is not None:
                    self._close(key, entries, length)
                key, prefix, length, entries = own, own + b".", len(own) + 1, []
                if block.SLASH in own and not is_safe(own):
                    self._error("unsafe-name", entry[1], own, f"the name {show(name)} is not safe to extract")
                if found or len(self._batch) >= BATCH:
                    yield from self._handed_on()
            entries.append(entry)
            if entry[5] != b"0" or entry[7] >= 0:
                self._special(entry, entries)
        if key is not None:
            self._settle()
            self._close(key, entries, length)
        if self._linked:
            self._judge_links([])

    def _settle(self) -> None:
        if self._contents is not None:
            self._contents.settle()

    def _handed_on(self) -> Iterator[Item]:
        yield from self._found
        self._found.clear()
        if self._batch:
            yield self._batch
            self._batch = []

    def _close(self, key: bytes, entries: list[Raw], length: int) -> None:
        """Look at a sample that is complete."""
        report, start = self.report, entries[0][1]
        report.samples += 1
        report.entries += len(entries)
        report.first, report.last = (key if report.first is None else report.first), key
        if self._contents is not None:
            self._batch.append((key, start, self._contents.take(length)))
            return
        self._keys.add(key, _OFFSET.pack(start))
        if self.asked.keys:
            self._batch.append((key, start, b""))
        fields = self._sets.of(tuple([entry[0][length:] for entry in entries]), start, key)
        if fields.twice:
            self._twice(key, entries)
        if self._linked:
            self._judge_links(entries)
        elif self._strays:
            self._strays = [stray for stray in self._strays if stray[1] > entries[-1][1]]
        if self.asked.require:
            self._required(key, start, fields)
        if self._survey.nul:
            for entry in entries:
                if 0 in entry[0]:
                    self._error("unsafe-name", entry[1], key, f"the name {show(entry[0])} has a NUL in it")
        if self._target is not None:
            self._found += self._target.sample(key, start, fields)

    def _twice(self, key: bytes, entries: list[Raw]) -> None:
        first: dict[bytes, int] = {}
        for entry in entries:
            first.setdefault(entry[0], entry[1])
        for again in twice(map(Entry._make, entries), set()):
            self._error("duplicate-entry", again.start, key, f"{said_twice(again.name)}, first at {first[again.name]}")

    def _judge_links(self, entries: list[Raw]) -> None:
        """Judge the hard links of a sample, with the entries without key in it, or of what stands behind the last."""
        last = entries[-1][1] if entries else 1 << 62
        inside = [stray for stray in self._strays if stray[1] < last]
        self._strays = [stray for stray in self._strays if stray[1] > last]
        for entry in leading_out(map(Entry._make, sorted([*inside, *entries], key=itemgetter(1))), set()):
            self._error("unmovable-entry", entry.start, key_of(entry), said_leading_out(entry))
        self._linked = any(stray[5] == block.HARD_LINK for stray in self._strays)

    def _required(self, key: bytes, start: int, fields: FieldSet) -> None:
        for names in fields.lacks(self.asked.require):
            have = ", ".join(map(show, fields.names))
            what = f"{show(key)} has no field {' or '.join(map(show, names))}, it has {have}"
            self._error("missing-field", start, key, what)

    def _special(self, entry: Raw, entries: list[Raw]) -> None:
        """An entry that is no plain file, or has holes; the last of `entries` is itself."""
        key = key_of(Entry._make(entry))
        if self.asked.contents:
            return
        self._linked = self._linked or entry[5] == block.HARD_LINK
        if entry[7] >= 0:
            self._note("sparse-entry", entry[1], key, f"{show(entry[0])} is stored without its holes")

    def _stray(self, entry: Raw) -> None:
        """An entry without key."""
        self.report.entries += 1
        if self._contents is not None:
            if entry[5] not in KEYLESS:
                self._batch.append((entry[0], entry[1], self._contents.take_stray()))
            return
        name, start = entry[0], entry[1]
        if entry[5] == block.PAX_GLOBAL:
            if says_more(self.source, entry):
                self._error("unmovable-entry", start, None, GLOBAL, GLOBAL_REPAIR)
            return
        self._strays.append(entry)
        self._linked = self._linked or entry[5] == block.HARD_LINK
        if not is_safe(name):
            self._error("unsafe-name", start, None, f"the name {show(name)} is not safe to extract")
        if entry[5] == block.DIRECTORY or name.endswith(b"/"):
            self._folders += 1
            self._folder = self._folder or entry
        else:
            self._note("stray-entry", start, None, f"{show(name)} has no key, and so no reader sees it")
            if self._stray_names.add(name):
                what = f"{said_twice(name)}, without key: it is carried over as it is"
                self._note("duplicate-entry", start, None, what, PROBLEMS["stray-entry"].repair)

    def _each(self, entry: Raw) -> None:
        if self._contents is not None:
            self._contents.add(entry)
        if self._target is not None:
            before, self._last = self._last, entry
            if before is not None and entry[2] - entry[1] > block.BLOCK and entry[5] != block.PAX_GLOBAL:
                kind = self.source.read(entry[1] + 156, entry[1] + 157)
                self._found += self._target.extended(before, kind in (block.PAX, block.SOLARIS_X))
            self._found += self._target.entry(entry)

    def _damaged(self, damage: Damage, key: bytes | None) -> None:
        problem, lost, self._damage = damage.problem, damage.stop - damage.start, True
        detail = problem.detail
        if problem.name in ("bad-header", "trailing-data"):
            going = f"reading goes on at {damage.stop}" if damage.stop < self._end_known() else "nothing follows"
            detail += f"; {lost} bytes are no entry, {going}" if lost else "; it is another archive" * damage.glued
        shard, where = self.source.name, damage.key or key
        self._found.append(Finding(problem.name, shard, problem.offset, where, detail, "error", problem.hint))

    def _end_known(self) -> int:
        return 1 << 62 if self.source.size is None else self.source.size

    def _scattered(self) -> None:
        again = []
        for key, offsets in self._keys.repeated():
            first, *rest = [_OFFSET.unpack(offset)[0] for offset in offsets]
            repair = scattered_hint(equal_parts(self.source, key, [first, *rest]), GATHERS)
            again += [(offset, key, first, repair) for offset in rest]
        for offset, key, first, repair in sorted(again):
            what = f"the key {show(key)} comes back, it was at {first} before"
            self._error("scattered-sample", offset, key, what, repair)

    def _error(self, name: str, offset: int, key: bytes | None, detail: str, repair: str | None = None) -> None:
        self._found.append(Finding(name, self.source.name, offset, key, detail, "error", repair))

    def _note(self, name: str, offset: int, key: bytes | None, detail: str, repair: str | None = None) -> None:
        self._found.append(Finding(name, self.source.name, offset, key, detail, "note", repair))


def check_shard(location: Location, index: int, asked: Asked) -> Iterator[Item]:
    """What is found in one input, its report last. An input that cannot be read is a finding too.

    Raises:
        Usage: it is a terminal.
        OSError: of temporary space.
    """
    return check_source(location, index, asked, lambda: open_source(location, tmpdir=asked.tmpdir))


def check_source(
    location: Location,
    index: int,
    asked: Asked,
    opened: Callable[[], SampleSource],
    read: Callable[[SampleSource], None] = lambda source: None,
) -> Iterator[Item]:
    """The same of what `opened` opens; `read` may then look at it once more."""
    report = Report(location.name)
    target = None if asked.target is None else ReaderRules(asked.target, location.name, index)
    try:
        source = opened()
        if target is not None:
            yield from target.opened(location.text if location.kind == "path" else None, source.codec)
        checked = ShardCheck(source, asked, target)
        report = checked.report
        report.shard = location.name
        yield from checked
        read(source)
        source.close()
        if asked.digest and location.kind == "path":
            report.stored, report.sha256 = _digest(location.text)
    except Usage:
        raise
    except TarkitError as error:
        report.readable = False
        detail = str(error).removeprefix(f"{location.name}: ")
        yield Finding("unreadable-shard", location.name, None, None, detail, "error", error.hint)
    except OSError as error:
        if error.filename not in (None, location.text, location.name):
            raise
        report.readable = False
        yield Finding("unreadable-shard", location.name, None, None, error.strerror or str(error))
    yield report


def _digest(path: str) -> tuple[int, str]:
    """Length and sha256 of a file."""
    import hashlib

    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest
