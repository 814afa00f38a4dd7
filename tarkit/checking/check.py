"""Check shards: faults of each and of all together, clean copies, comparison of two sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tarkit.checking.across import Against, Manifest, SetCheck, Unique, joined, mixed, read_manifest
from tarkit.checking.compare import Sameness, SampleSets
from tarkit.checking.diff import Diff, Difference
from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.fix import Fix, rejects_output
from tarkit.checking.leaks import Leaks, read_values, refuse_own
from tarkit.checking.options import CheckOptions
from tarkit.checking.shard import Item, OptionalChecks, Rejected
from tarkit.checking.targets import Target
from tarkit.checking.view import check_part, whole_view
from tarkit.errors import Usage, spell
from tarkit.pipeline.chain import locate, refuse_twice
from tarkit.pipeline.output import Output, refuse_overwrite, status_of, total_size
from tarkit.pipeline.run import Run
from tarkit.pipeline.view_index import view_parts
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import Location, is_view
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


@dataclass(repr=False)
class Report:
    """The result of `tarkit.check`: iterate over the findings.

    Attributes:
        findings: each has `name`, `shard`, `offset`, `key`, `detail`, `level` ("error" or "note") and `hint`.
        shards: one for each shard, with `shard`, `samples`, `entries`, `size` and `bad`.
        same: whether the two sets of `same_as` or `diff` have the same samples, in any order; None if they were not
            compared.
        differences: those of `diff`, each with `change`, `key`, `fields`, and `old` and `new`, its places in both sets.
        complete: whether all samples are in the clean copy; None without `fix`.
        strict: whether notes count as errors.
    """

    findings: list[Finding] = field(default_factory=list)
    shards: list[ShardReport] = field(default_factory=list)
    same: bool | None = None
    complete: bool | None = None
    strict: bool = False
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.level == "error" or self.strict for finding in self.findings)

    @property
    def bad(self) -> list[str]:
        """The names of the shards that have errors."""
        return [shard.shard for shard in self.shards if shard.bad]

    @property
    def decoded(self) -> dict[str, int] | None:
        """The number of contents that were decoded, by field; None without `decode`."""
        counts = [shard.decoded for shard in self.shards if shard.decoded is not None]
        total = Counter[str]()
        for count in counts:
            total.update(count)
        return dict(total) if counts else None

    @property
    def samples(self) -> int:
        """The number of samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        return f"<tarkit.Report: {len(self.bad)} of {plural(len(self.shards), 'shard')} bad>"


def check(
    inputs: Input | Iterable[Input],
    *,
    require: str | Iterable[str] = (),
    unique: bool = False,
    against: str | None = None,
    manifest: str | None = None,
    target: Target | None = None,
    decode: str | Iterable[str] | None = None,
    leak: Input | Iterable[Input] | None = None,
    same_as: Input | Iterable[Input] | None = None,
    diff: Input | Iterable[Input] | None = None,
    by: str | None = None,
    output: str | None = None,
    fix: str | None = None,
    rejects: str | None = None,
    allow: str | Iterable[str] = (),
    strict: bool = False,
    processes: int = 1,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Report:
    """Check shards. A missing shard, or damage, is a finding, not an exception, and reading continues after it.

    Args:
        inputs: as for `tarkit.open`; so are tmpdir and storage_options, which all URLs of the call share.
        require: fields that each sample has; `"jpg|png"` asks for either.
        unique: no key may be in two shards.
        against: a file with keys, one a line or in its column `__key__`, that are compared with those of the shards.
        manifest: a file as `split --manifest` writes it, to compare the shards with.
        target: a reader whose rules are applied: `"webdataset"`, `"dali"`, `"hf"` and others.
        decode: fields whose content is decoded, such as `"jpg json png:mask"`; `"all"` for all with a decoder.
        leak: other shards, none of whose samples may be in these too, by the value `by`.
        same_as: other shards that are to hold the same samples, in any order. It goes with no other check.
        diff: other shards, whose differences from these are listed: samples removed, added, renamed, changed or moved.
        by: what is compared: a value such as `"sha256.jpg"`, `"phash.jpg:4"`, `"txt"` with `leak`, and with `unique`
            within one set; `"key"` with `diff`, or `"content"`, so that renamed samples are seen.
        output: a table of the differences: .csv, .tsv, .jsonl, .parquet.
        fix: write a clean copy: to a file, a directory, or a copy of each to `"clean-%06d.tar"`.
        rejects: write samples that the clean copy leaves out to this archive; without `fix` those with bad content.
        allow, strict: names of problems that are notes; whether notes are errors.
        processes: how many shards are read at a time; 0 is one per CPU.

    >>> import tarkit
    >>> report = tarkit.check("train-*.tar", require=["jpg"])
    >>> report.ok, report.samples
    (True, 3)
    """
    options = CheckOptions.of(locals())
    storage = parse_options(storage_options)
    other = next((other for other in (same_as, diff, leak) if other is not None), None)
    others = None if other is None else locate(other, storage, missing="all")
    locations = locate(inputs, storage, missing="all")
    return ShardsCheck(Run(tmpdir=tmpdir), locations, options, others, storage=storage).collect()


class ShardsCheck:
    """A check of shards: iterate once over the findings of each shard and a report after them, then those of all.

    Args:
        run: counts samples, bytes, shards and findings, and shows progress.
        options: the checks to make.
        others: those of `same_as`, `diff` or `leak`.
        names: names of the two sets in messages.
        storage: how the URLs of the manifest and of the table of keys are reached.

    Attributes:
        report: the result, without the findings; complete at the end.
        failed: whether there was an error.
        fix: the clean copies, if they are written.
        compared: the comparison with `others`, or of values: a `Sameness`, a `Diff`, a `Leaks`.
    """

    def __init__(
        self,
        run: Run,
        locations: Sequence[Location],
        options: CheckOptions,
        others: Sequence[Location] | None = None,
        names: tuple[str, str] = ("this set", "the other"),
        storage: StoreOptions | None = None,
    ) -> None:
        self.run, self.locations, self.options, self.storage = run, locations, options, storage
        self.report, self.failed = Report(strict=options.strict), False
        self._unique = options.unique or options.target == "energon"
        self._counts: dict[str, tuple[Counter[str], Counter[str]]] = {}  # problems and notes of each shard
        self.fix: Fix | None = None
        if options.fix is not None:
            allowed = options.allowed
            self.fix = Fix(
                run, locations, options.fix, options.rejects, together=self._unique, allowed=allowed, options=storage
            )
        self._rejects: Output | None = None
        if options.fix is None and options.rejects is not None:
            self._rejects = rejects_output(run, locations, options.rejects, storage)
        if options.decoded is not None:
            options.decoded.load()
        for name in ("fix", "target"):
            if getattr(options, name) is not None and (view := next(filter(is_view, locations), None)) is not None:
                message = f"{view.name}: {spell(name)} needs archives, and this is a view"
                raise Usage(message, f"tarkit cat {view.name} -o NAME.tar makes an archive")
        tmpdir = run.scratch(None if self.fix is None else self.fix.output.directory)
        self.compared: SampleSets | Leaks | None = None
        self._others = others or ()
        if others is not None:
            refuse_twice((*locations, *others))
        if options.compared is not None:
            options.compared.load()
            refuse_own(locations, self._others, options.compared)
            self.compared = Leaks(options.compared, others is None, tmpdir, names)
            self._checks = OptionalChecks(tmpdir=tmpdir)
            return
        if others is not None:
            self._table = None if options.output is None else self._table_output(options.output)
            self.compared = (
                Diff(tmpdir, names, "content" if options.by == "content" else "key")
                if options.diff
                else Sameness(tmpdir, names)
            )
            self._checks = OptionalChecks(contents=True, tmpdir=tmpdir)
            return
        fields = tuple(tuple(os.fsencode(name).lower() for name in word.split("|")) for word in options.require)
        keys, digest = self._unique or options.against is not None, options.manifest is not None
        self._checks = OptionalChecks(
            fields,
            options.target,
            keys,
            digest=digest,
            decode=options.decoded,
            rejects=self._rejects is not None,
            tmpdir=tmpdir,
        )

    def collect(self) -> Report:
        """Check, and return the report with all findings."""
        for item in self:
            if isinstance(item, Finding):
                self.report.findings.append(item)
            elif isinstance(item, Difference):
                self.report.differences.append(item)
        return self.report

    def _table_output(self, word: str) -> Output:
        from tarkit.checking.diff_table import table_output

        output = table_output(word, self.storage)
        if output.location.kind == "path":
            refuse_overwrite(status_of(output.location.text), [*self.locations, *self._others])
            self.run.reserve(output.location.text, "the table of differences")
        return output

    def __iter__(self) -> Iterator[Finding | ShardReport | Difference]:
        report, run = self.report, self.run
        for item in self._checked() if self.compared is None else self._compared(self.compared):
            if isinstance(item, Difference):
                yield item
                continue
            if isinstance(item, Finding):
                if item.level == "error" and item.name in self.options.allowed:
                    item = item._replace(level="note")
                problems, notes = self._counts_of(item.shard)
                (problems if item.level == "error" else notes)[item.name] += 1
                run.policy.counts[item.name] += 1
                self.failed = self.failed or report.strict or item.level == "error"
            else:
                item.strict = report.strict
                item.problems, item.notes = self._counts_of(item.shard)
                report.shards.append(item)
                run.samples += item.samples
                run.bytes += item.size
                run.shards += 1
            yield item
        if self.fix is not None:
            report.complete = self.fix.whole(run.policy.counts)

    def _counts_of(self, shard: str) -> tuple[Counter[str], Counter[str]]:
        return self._counts.setdefault(shard, (Counter(), Counter()))

    def _checked(self) -> Iterator[Finding | ShardReport]:
        """Yield the findings of each shard and a report after them; then the findings that concern several shards."""
        run, shards, checks, options = self.run, self.report.shards, list[SetCheck](), self.options
        if self._unique:
            checks.append(Unique(self._checks.tmpdir))
        if options.against is not None:
            from tarkit.choosing.keys import read_keys

            checks.append(Against(read_keys(options.against, options=self.storage)))
        if options.manifest is not None:
            checks.append(Manifest(options.manifest, read_manifest(options.manifest, self.storage)))
        with ExitStack() as stack:
            if self.fix is not None:
                self.fix.start(stack, len(self.locations))
            rejects = None if self._rejects is None else stack.enter_context(EntryWriter(self._rejects.open()))
            for index, item in run.draw(
                "", self._items(), lambda: run.bytes, lambda: run.samples, total_size(self.locations)
            ):
                if isinstance(item, (Finding, ShardReport)):
                    yield item
                elif isinstance(item, Rejected) and rejects is not None:
                    rejects.raw((item.data,), len(item.data))
                for check in checks:
                    yield from check.add(index, self.locations[index], item)
        last = [check.findings(shards) for check in checks]
        if options.decoded is not None and run.samples:
            from tarkit.checking.decode import unused_words

            last.append(unused_words(options.decoded, self.report.decoded or {}))
        for findings in (joined(shards), mixed(shards), *last):
            yield from findings

    def _items(self) -> Iterator[tuple[int, Item]]:
        """Yield findings with the number of the shard; after each shard its clean copy is written."""
        if self.fix is None:
            for index, items in enumerate(self._in_parts(list(enumerate(self.locations)))):
                self.run.note(f"reading {self.locations[index].name}")
                for item in items:
                    yield index, item
            return
        jobs = list(enumerate(map(self.run.sent, self.locations)))
        work = partial(self.fix.read, self._checks)
        results = self.run.in_order(work, jobs, self.options.processes, self._checks.tmpdir)
        for (index, location), found in zip(jobs, results, strict=True):
            self.run.note(f"reading {location.name}")
            for item in found:
                yield index, item
            self.fix.write(last=index == len(jobs) - 1)

    def _in_parts(self, inputs: Sequence[tuple[int, Location]]) -> Iterator[Iterator[Item]]:
        """Yield the items of each input, which follows its index; a view may be read in parts."""
        run, processes = self.run, self.options.processes
        parts = view_parts([run.sent(location) for _, location in inputs], run, processes)
        jobs = [(index, part) for (index, _), each in zip(inputs, parts, strict=True) for part in each]
        results = run.in_order(partial(check_part, self._checks), jobs, processes, self._checks.tmpdir)
        for each in parts:
            yield whole_view(islice(results, len(each)))

    def _compared(self, compared: SampleSets | Leaks) -> Iterator[Finding | ShardReport | Difference]:
        """Yield the findings of each shard of both sets and a report after them; then what the comparison finds."""
        reports: tuple[list[ShardReport], list[ShardReport]] = ([], [])
        run, total = self.run, total_size([*self.locations, *self._others])
        for side, index, item in run.draw("", self._of_both_sets(), lambda: run.bytes, lambda: run.samples, total):
            if isinstance(item, Finding):
                yield item
            elif isinstance(item, ShardReport):
                reports[side].append(item)
                yield item
            elif not isinstance(item, Rejected):
                compared.add(side, index, item)
        if isinstance(compared, Leaks):
            yield from compared.findings(*reports)
        elif all(report.readable for report in self.report.shards):
            self.report.same = None if self.failed else compared.same  # after damage there is no verdict
            if isinstance(compared, Sameness):
                yield from compared.findings(*reports)
            elif isinstance(compared, Diff):
                differences = compared.differences(*reports)
                if self._table is not None:
                    from tarkit.checking.diff_table import written

                    differences = written(differences, self._table, [*self.locations, *self._others])
                yield from differences

    def _of_both_sets(self) -> Iterator[tuple[int, int, Item]]:
        """Yield items with the number of the set, 0 or 1, and of the shard in it."""
        run, value, tmpdir = self.run, self.options.compared, self._checks.tmpdir
        inputs = [*enumerate(self.locations), *enumerate(self._others)]
        if value is None:
            results = self._in_parts(inputs)
        else:
            jobs = [(index, run.sent(location)) for index, location in inputs]
            results = run.in_order(partial(read_values, value, tmpdir), jobs, self.options.processes, tmpdir)
        for number, ((index, _), items) in enumerate(zip(inputs, results, strict=True)):
            for item in items:
                yield int(number >= len(self.locations)), index, item
