"""Check a view: each row against the headers in its archive, and the contents of samples if that is requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tarkit.checking.digest import ContentHash
from tarkit.checking.fieldsets import FieldSets
from tarkit.checking.findings import Finding, FindingPolicy, ShardReport, unreadable_shard
from tarkit.checking.shard import BATCH, CheckedSample, Item, OptionalChecks, check_archive, rejected
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import KEYLESS, TarSample, key_of, singly
from tarkit.streams.location import Location, is_view
from tarkit.streams.text import sum_file

if TYPE_CHECKING:
    from tarkit.checking.decode import ContentCheck


def check_part(checks: OptionalChecks, job: tuple[int, Location]) -> Iterator[Item | ViewPart]:
    """Yield the findings in one input, or a part of one, which follows its index; for `whole_view`.

    The report is last. An input that cannot be read is a finding.

    Raises:
        Usage: the input is a terminal.
        MissingLibrary: a library that decodes a field is not installed.
        OSError: a temporary file cannot be written.
    """
    index, location = job
    return check_view(location, checks) if is_view(location) else check_archive(location, index, checks)


def check_view(location: Location, checks: OptionalChecks) -> Iterator[Item | ViewPart]:
    """Yield the findings in the rows of a view, by the headers of its archives; the report last."""
    from tarkit.pipeline.view_reader import ViewReader

    policy = FindingPolicy(location.name, located=False)
    check = ViewCheck(location, checks)
    try:
        view = ViewReader(location, InputReader((location,), policy, checks.tmpdir, contents=check.reads_contents))
        for sample in singly(view.batches()):
            yield from policy.findings
            policy.findings.clear()
            yield from check.sample(sample)
        yield from policy.findings
        yield from check.end()
        view.unchanged()
        view.close()
        if checks.digest and not (location.rows and location.rows.start):
            check.report.sha256, check.report.stored = sum_file(location.kind, location.text, location.options)
    except MissingLibrary:
        raise
    except TarkitError as error:
        yield from policy.findings
        check.report.readable = False
        yield unreadable_shard(location.name, error)
    yield ViewPart(check.report, check.decode)


class ViewPart(NamedTuple):
    """The report on a part of a view, and what of its contents was decoded."""

    report: ShardReport
    decode: ContentCheck | None


def whole_view(parts: Iterable[Iterable[Item | ViewPart]]) -> Iterator[Item]:
    """Yield what the check of a whole view yields, of its parts in order; those after one that ends it do not count.

    An archive has one part, and its report among the items.
    """
    whole: ViewPart | None = None
    for items in parts:
        ended = whole is not None and not whole.report.readable
        for item in items:
            if isinstance(item, ViewPart):
                if not ended:
                    whole = item if whole is None else _merged(whole, item)
            elif not ended:
                yield item
    if whole is not None:
        report, decode = whole
        if decode is not None and report.readable:
            yield from decode.notes(located=False)
            report.decoded = decode.decoded
        yield report


def _merged(one: ViewPart, other: ViewPart) -> ViewPart:
    """Return the report on two parts, the first of which is good."""
    whole, part = one.report, other.report
    for name in ("samples", "entries", "size"):
        setattr(whole, name, getattr(whole, name) + getattr(part, name))
    whole.first, whole.last = whole.first or part.first, part.last or whole.last
    whole.readable = part.readable
    if one.decode is not None and other.decode is not None:
        one.decode.merge(other.decode)
    return one


class ViewCheck:
    """Yields the findings in samples of a view, which have no offset in it, and the samples if requested.

    Attributes:
        report: the report; complete after `end`.
        reads_contents: whether contents are read.
    """

    def __init__(self, location: Location, checks: OptionalChecks) -> None:
        self.report = ShardReport(location.name, located=False)
        self._first = 0 if location.rows is None else location.rows.start
        self.reads_contents = checks.contents or checks.decode is not None
        self._checks = checks
        self._sets = FieldSets(location.name)
        self.decode = None if checks.decode is None else checks.decode.check_of(location.name)
        self._batch: list[CheckedSample] = []

    def sample(self, sample: TarSample) -> Iterator[Item]:
        """Check a sample."""
        report, checks, key = self.report, self._checks, sample.key or b""
        entries = [entry for entry in sample.entries if key_of(entry) is not None]
        report.samples += 1
        report.entries += len(sample.raw)
        report.size += sample.size
        report.first, report.last = report.first or key, key
        if checks.contents:
            self._add_contents(sample)
        elif checks.keys:
            self._batch.append((key, sample.start, b""))
        if len(self._batch) >= BATCH:
            yield from self._samples()
        names = tuple(entry.name[len(key) + 1 :] for entry in entries)
        for detail in self._sets.of(names, sample.start, key).missing(checks.require, key, sample):
            yield Finding("missing-field", report.shard, None, key, detail, "error")
        if self.decode is not None:
            faults = [fault for entry in entries for fault in self.decode.entry(entry, key, sample.source, False)]
            yield from faults
            if checks.rejects and any(fault.name == "bad-content" for fault in faults):
                yield from rejected(sample.source, sample.entries)

    def _add_contents(self, sample: TarSample) -> None:
        """Hash the entries of a sample as those of an archive."""
        contents, key = ContentHash(sample.source), sample.key or b""
        for entry in sample.entries:
            contents.add(entry)
        keyed = [entry for entry in sample.entries if key_of(entry) is not None]
        self._batch.append((key, self._first + self.report.samples - 1, contents.take(keyed, len(key) + 1)))
        for entry in sample.entries:
            if key_of(entry) is None and entry.type not in KEYLESS:
                self._batch.append((entry.name, self._first + self.report.samples - 1, contents.take_keyless(entry)))

    def _samples(self) -> Iterator[Item]:
        if self._batch:
            yield self._batch
            self._batch = []

    def end(self) -> Iterator[Item]:
        """Yield the last samples."""
        yield from self._samples()
