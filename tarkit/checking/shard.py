"""Check one shard: read all of it, also after damage, and yield the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tarkit.checking.digest import ContentHash
from tarkit.checking.fieldsets import LISTED, FieldSets
from tarkit.checking.findings import GATHERS, GLOBAL_REPAIR, Finding, ShardReport, unreadable_shard
from tarkit.checking.survey import Damage, Survey
from tarkit.checking.targets import ReaderRules, has_times, read_as
from tarkit.errors import MissingLibrary, TarkitError, Usage, show
from tarkit.problems import PROBLEMS
from tarkit.samples.checks import (
    GLOBAL,
    describe_duplicate,
    describe_link,
    duplicate_entries,
    equal_parts,
    links_outside,
    scattered_hint,
    sets_attributes,
)
from tarkit.samples.dataset import open_source
from tarkit.samples.names import composed, form_words
from tarkit.samples.sample import KEYLESS, Recent, is_safe, key_of
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap
from tarkit.streams.copy import CHUNK
from tarkit.streams.location import Location
from tarkit.streams.ranges import spooled
from tarkit.streams.source import Source, StreamSource
from tarkit.streams.text import sum_file
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

if TYPE_CHECKING:
    from tarkit.checking.decode import DecodedFields

BATCH = 1000  # samples that are yielded together

CheckedSample = tuple[bytes, int, bytes]  # key, offset and, if requested, the encoded hashes of the contents


class Rejected(NamedTuple):
    """Bytes of a sample with bad content, which follow each other."""

    data: bytes


Item = Finding | list[CheckedSample] | Rejected | ShardReport

_PLACE = Struct("<QH")  # the offset of a sample and the number of its set of fields
_OFFSET = Struct("<Q")


@dataclass(frozen=True)
class OptionalChecks:
    """The optional checks of a shard.

    Attributes:
        require: required fields, in lower case, each a tuple of alternatives.
        target: the reader whose rules are checked.
        keys: yield the key and the offset of every sample.
        contents: yield every sample with the hashes of its entries, and search for damage only.
        digest: compute length and sha256 of the file.
        decode: the fields whose content is decoded.
        rejects: yield the samples with bad content.
    """

    require: tuple[tuple[bytes, ...], ...] = ()
    target: str | None = None
    keys: bool = False
    contents: bool = False
    digest: bool = False
    decode: DecodedFields | None = None
    rejects: bool = False
    tmpdir: str | None = None


class ShardCheck:
    """Iterate over the findings in one archive; `report` is complete at the end."""

    def __init__(self, source: Source, checks: OptionalChecks, target: ReaderRules | None = None) -> None:
        self.source = source
        self.checks = checks
        self.report = ShardReport(source.name)
        self._target = target
        self._contents = ContentHash(source) if checks.contents else None
        self._decode = None if checks.decode is None else checks.decode.check_of(source.name)
        self._reads_each = not source.seekable or target is not None or checks.contents or self._decode is not None
        self._survey = Survey(source, on_entry=self._read_entry if self._reads_each else None)
        self._sets = FieldSets(source.name)
        self._keys = Multimap(checks.tmpdir)
        self._forms = Multimap(checks.tmpdir)  # keys that are not ASCII, by their normal form
        self._findings: list[Finding] = []
        self._batch: list[CheckedSample] = []
        self._keyless = Recent()  # names of entries without a key
        self._bad: set[int] = set()  # the offsets of entries with bad content, of samples that are not complete yet
        self._rejected: list[Entry] = []
        self._damaged = False
        self._directories = 0
        self._directory: Entry | None = None  # the first
        self._last: Entry | None = None

    def __iter__(self) -> Iterator[Item]:
        """Yield findings, and the samples if requested."""
        yield from self._samples()
        if self._damaged and not self._survey.has_entry and (self._survey.end or self.source.failure is not None):
            self.report.readable = False
            detail, repair = "no whole entry was found", "not an archive, or damaged from the start: fetch it again"
            self._findings.append(Finding("unreadable-shard", self.source.name, None, None, detail, "error", repair))
        self._check_scattered()
        if not self.checks.contents:
            self._findings += self._sets.notes()
            self._note_forms()
            if self._directory is not None:
                first = show(self._directory.name)
                one, many = "entry is a directory, which is no field", "entries are directories, which are no fields"
                detail = f"{plural(self._directories, one, many)}; the first is {first}"
                self._note("stray-entry", self._directory.start, None, detail, count=self._directories)
            if self._decode is not None:
                self._findings += self._decode.notes()
                self.report.decoded = self._decode.decoded
            if (odd := self._survey.odd_end) is not None:
                self._note("odd-end", self._survey.marker or 0, None, odd)
        if self._target is not None:
            self._findings += self._target.closed(self.report.samples)
        yield from self._findings
        if self._batch:
            yield self._batch
        self.report.size, self.report.is_made = self._survey.end, self.source.form is not None
        self.report.fields = dict(self._sets.counts().most_common(1))

    def _samples(self) -> Iterator[Item]:
        for item in self._survey.samples():
            if isinstance(item, Damage):
                self._report_damage(item, self._survey.groups.key)
                continue
            self._check(*item)
            if self._findings or len(self._batch) >= BATCH:
                yield from self._findings
                self._findings.clear()
                if self._batch:
                    yield self._batch
                    self._batch = []
            if self._rejected:
                yield from rejected(self.source, self._rejected)
                self._rejected = []

    def _check(self, key: bytes | None, entries: list[Raw], plain: bool) -> None:
        report, everything = self.report, entries
        report.entries += len(entries)
        if not plain:
            entries = []
            for entry in map(Entry._make, everything):
                if key_of(entry) is None:
                    self._check_keyless(entry)
                else:
                    entries.append(entry)
        if key is not None:
            length, start = len(key) + 1, entries[0][1]
            if self._bad and not self._bad.isdisjoint(starts := {entry[1] for entry in entries}):
                self._bad -= starts
                self._rejected = list(map(Entry._make, everything))
            report.samples += 1
            report.last = key
            if report.first is None:
                report.first = key
            if block.SLASH in key and not is_safe(key):
                self._error("unsafe-name", start, key, f"the name {show(entries[0][0])} is not safe to extract")
            if self._contents is not None:
                self._batch.append((key, start, self._contents.take(entries, length)))
                return
            if self.checks.keys:
                self._batch.append((key, start, b""))
            fields = self._sets.of(tuple([entry[0][length:] for entry in entries]), start, key)
            self._keys.add(key, _PLACE.pack(start, fields.number))
            if not key.isascii():
                self._forms.add(composed(key).encode("utf-8", "surrogateescape"), _OFFSET.pack(start) + key)
            if fields.has_duplicates:
                self._report_duplicates(key, entries)
            if self.checks.require:
                for detail in fields.missing(self.checks.require, key):
                    self._error("missing-field", start, key, detail)
            if self._target is not None:
                self._findings += self._target.sample(key, start, map(Entry._make, entries))
        if (not plain or self._survey.special) and self._contents is None:
            self._check_special(everything)

    def _check_special(self, entries: list[Raw]) -> None:
        for raw in links_outside(map(Entry._make, entries), set()):
            self._error("unmovable-entry", raw.start, key_of(raw), describe_link(raw))
        for entry in map(Entry._make, entries):
            key = key_of(entry)
            if entry.sparse and key is not None:
                self._note(
                    "sparse-entry", entry.start, key, f"{show(entry.name)} is a sparse file, stored without its holes"
                )
            if 0 in entry.name and key is not None:
                self._error("unsafe-name", entry.start, key, f"the name {show(entry.name)} contains a NUL")

    def _report_duplicates(self, key: bytes, entries: list[Raw]) -> None:
        first: dict[bytes, int] = {}
        named = list(map(Entry._make, entries))
        for entry in named:
            first.setdefault(entry.name, entry.start)
        for entry in duplicate_entries(named, set()):
            detail = f"{describe_duplicate(entry.name)}, first at {first[entry.name]}"
            self._error("duplicate-entry", entry.start, key, detail)

    def _check_keyless(self, entry: Entry) -> None:
        name, start = entry.name, entry.start
        if self._contents is not None:
            if entry.type not in KEYLESS:
                self._batch.append((name, start, self._contents.take_keyless(entry)))
            return
        if entry.type == block.PAX_GLOBAL:
            if not self._reads_each:
                self._check_global(entry)
            return
        if not is_safe(name):
            self._error("unsafe-name", start, None, f"the name {show(name)} is not safe to extract")
        if entry.type == block.DIRECTORY or name.endswith(b"/"):
            self._directories += 1
            self._directory = self._directory or entry
        else:
            self._note("stray-entry", start, None, f"{show(name)} has no key{read_as(name)}")
            if self._keyless.add(name):
                detail = f"{describe_duplicate(name)}, without a key: it is copied as it is"
                self._note("duplicate-entry", start, None, detail, PROBLEMS["stray-entry"].repair)

    def _check_global(self, entry: Entry) -> None:
        if sets_attributes(self.source, entry):
            self._error("unmovable-entry", entry.start, None, GLOBAL, GLOBAL_REPAIR)

    def _read_entry(self, entry: Entry) -> None:
        """Check the bytes of an entry, which a stream does not keep until its sample is complete."""
        if self._contents is not None:
            self._contents.add(entry)
        elif entry.type == block.PAX_GLOBAL:
            self._check_global(entry)
        if self._decode is not None and (key := key_of(entry)) is not None:
            faults = list(self._decode.entry(entry, key, self.source))
            self._findings += faults
            if self.checks.rejects and any(fault.name == "bad-content" for fault in faults):
                self._bad.add(entry.start)
        if self._target is not None:
            before, self._last = self._last, entry
            headers = b"" if entry.type == block.PAX_GLOBAL else self.source.read(entry.start, entry.data)
            if len(headers) > block.BLOCK or has_times(headers):
                self._findings += self._target.extended(entry, before, headers)
            self._findings += self._target.entry(entry, self.source)

    def _report_damage(self, damage: Damage, key: bytes | None) -> None:
        problem, lost, self._damaged = damage.problem, damage.stop - damage.start, True
        detail = problem.detail
        if problem.name in ("bad-header", "trailing-data"):
            size = self.source.size
            where = (
                "nothing follows" if size is not None and damage.stop >= size else f"reading resumes at {damage.stop}"
            )
            if lost:
                detail += f"; {plural(lost, 'byte is', 'bytes are')} not an entry, {where}"
            elif damage.marker is not None:
                detail += "; another archive follows"
        self._findings.append(
            Finding(problem.name, self.source.name, problem.offset, damage.key or key, detail, "error", problem.hint)
        )

    def _check_scattered(self) -> None:
        repeated = []
        for key, places in self._keys.repeated():
            (first, *rest), numbers = zip(*map(_PLACE.unpack, places), strict=True)
            equal = self._sets.have_equal_names(numbers)
            if equal is None:
                equal = equal_parts(self.source, key, [first, *rest])
            repair = scattered_hint(equal, GATHERS)
            repeated += [(offset, key, first, repair) for offset in rest]
        for offset, key, first, repair in sorted(repeated):
            detail = f"the key {show(key)} occurs again, first at {first}"
            self._error("scattered-sample", offset, key, detail, repair)

    def _note_forms(self) -> None:
        """Note keys that differ only in their Unicode normal form, each form at its first sample."""
        notes = []
        for _, values in self._forms.repeated():
            places: dict[bytes, int] = {}
            for value in values:
                places.setdefault(value[_OFFSET.size :], *_OFFSET.unpack_from(value))
            (first, start), *others = places.items()
            notes += [(offset, key, first, start) for key, offset in others]
        notes.sort()
        for offset, key, first, start in notes[:LISTED]:
            detail = f"the key {show(key)} is also there, first at {start}, {form_words(first)}"
            self._note("form-variant", offset, key, detail)
        if len(notes) > LISTED:
            (offset, key, *_), more = notes[LISTED], len(notes) - LISTED
            self._note("form-variant", offset, key, plural(more, "more such key"), count=more)

    def _error(self, name: str, offset: int, key: bytes | None, detail: str, repair: str | None = None) -> None:
        self._findings.append(Finding(name, self.source.name, offset, key, detail, "error", repair))

    def _note(
        self, name: str, offset: int, key: bytes | None, detail: str, repair: str | None = None, count: int = 1
    ) -> None:
        self._findings.append(Finding(name, self.source.name, offset, key, detail, "note", repair, count))


def rejected(source: Source, entries: Iterable[Entry]) -> Iterator[Rejected]:
    """Yield the bytes of entries."""
    for entry in entries:
        for start in range(entry.start, entry.stop, CHUNK):
            yield Rejected(source.read(start, min(start + CHUNK, entry.stop)))


def check_archive(location: Location, index: int, checks: OptionalChecks) -> Iterator[Item]:
    """Yield the findings in one archive, its report last. An input that cannot be read is a finding too.

    Raises:
        Usage: the input is a terminal.
        OSError: a temporary file cannot be written.
    """

    def opened() -> Source:
        stream = (checks.contents or checks.decode is not None) and location.kind == "url"  # each byte is read
        source = open_source(location, tmpdir=checks.tmpdir, stream=stream)
        return spooled(source) if checks.rejects and isinstance(source, StreamSource) else source

    return check_source(location, index, checks, opened)


def check_source(
    location: Location,
    index: int,
    checks: OptionalChecks,
    opened: Callable[[], Source],
    read: Callable[[Source], None] = lambda source: None,
) -> Iterator[Item]:
    """Yield the findings in the source that `opened` returns; `read` is called with it before it is closed.

    Raises:
        Usage, OSError: as `check_archive` does.
    """
    report = ShardReport(location.name)
    target = None if checks.target is None else ReaderRules(checks.target, location.name, index)
    try:
        source = opened()
        if target is not None:
            yield from target.opened(location.text if location.kind == "path" else None, source.codec)
        checked = ShardCheck(source, checks, target)
        report = checked.report
        report.shard = location.name
        yield from checked
        read(source)
        source.unchanged()
        source.close()
        if checks.digest and location.kind in ("path", "url"):
            report.sha256, report.stored = sum_file(location.kind, location.text, location.options)
    except (Usage, MissingLibrary):
        raise
    except TarkitError as error:
        report.readable = False
        yield unreadable_shard(location.name, error)
    except OSError as error:
        if error.filename not in (None, location.text, location.name):
            raise
        report.readable = False
        yield Finding("unreadable-shard", location.name, None, None, error.strerror or str(error))
    yield report
