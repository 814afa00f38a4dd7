"""Check a view: each row against the headers in its archive, and the contents of samples if that is requested."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.checking.digest import ContentHash
from tarkit.checking.fieldsets import FieldSets
from tarkit.checking.findings import Finding, FindingPolicy, ShardReport, unreadable_shard
from tarkit.checking.shard import BATCH, CheckedSample, Item, OptionalChecks, check_archive, rejected
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.pipeline.view_reader import ViewReader
from tarkit.samples.dataset import InputReader
from tarkit.samples.sample import KEYLESS, TarSample, key_of, singly
from tarkit.streams.location import Location, is_view
from tarkit.streams.text import sum_file


def check_shard(checks: OptionalChecks, job: tuple[int, Location]) -> Iterator[Item]:
    """Yield the findings in one input, which follows its index; its report last. One that cannot be read is a finding.

    Raises:
        Usage: the input is a terminal.
        MissingLibrary: a library that decodes a field is not installed.
        OSError: a temporary file cannot be written.
    """
    index, location = job
    return check_view(location, checks) if is_view(location) else check_archive(location, index, checks)


def check_view(location: Location, checks: OptionalChecks) -> Iterator[Item]:
    """Yield the findings in the rows of a view, by the headers of its archives; the report last."""
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
        if checks.digest:
            check.report.sha256, check.report.stored = sum_file(location.kind, location.text, location.options)
    except MissingLibrary:
        raise
    except TarkitError as error:
        yield from policy.findings
        check.report.readable = False
        yield unreadable_shard(location.name, error)
    yield check.report


class ViewCheck:
    """Yields the findings in samples of a view, which have no offset in it, and the samples if requested.

    Attributes:
        report: the report; complete after `end`.
        reads_contents: whether contents are read.
    """

    def __init__(self, location: Location, checks: OptionalChecks) -> None:
        self.report = ShardReport(location.name, located=False)
        self.reads_contents = checks.contents or checks.decode is not None
        self._checks = checks
        self._sets = FieldSets(location.name)
        self._decode = None if checks.decode is None else checks.decode.check_of(location.name)
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
        for detail in self._sets.of(names, sample.start, key).missing(checks.require, key):
            yield Finding("missing-field", report.shard, None, key, detail, "error")
        if self._decode is not None:
            faults = [fault for entry in entries for fault in self._decode.entry(entry, key, sample.source, False)]
            yield from faults
            if checks.rejects and any(fault.name == "bad-content" for fault in faults):
                yield from rejected(sample.source, sample.entries)

    def _add_contents(self, sample: TarSample) -> None:
        """Hash the entries of a sample as those of an archive."""
        contents, key = ContentHash(sample.source), sample.key or b""
        for entry in sample.entries:
            contents.add(entry)
        keyed = [entry for entry in sample.entries if key_of(entry) is not None]
        self._batch.append((key, self.report.samples - 1, contents.take(keyed, len(key) + 1)))
        for entry in sample.entries:
            if key_of(entry) is None and entry.type not in KEYLESS:
                self._batch.append((entry.name, self.report.samples - 1, contents.take_keyless(entry)))

    def _samples(self) -> Iterator[Item]:
        if self._batch:
            yield self._batch
            self._batch = []

    def end(self) -> Iterator[Item]:
        """Yield what is known after the last sample."""
        yield from self._samples()
        if self._decode is not None:
            yield from self._decode.notes(located=False)
            self.report.decoded = self._decode.decoded
